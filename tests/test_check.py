"""What `check_panel` finds in panels made to have it."""

import json
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from epifed.check import SPIKE_FACTOR, SPIKE_FLOOR, check_panel
from epifed.panel import CasePanel
from epifed.sources import load_panel

MONDAY = date(2020, 11, 2)


def panel(counts: object, **more: object) -> CasePanel:
    array = np.atleast_2d(np.array(counts, dtype=float))
    regions = tuple(f"r{i}" for i in range(len(array)))
    return CasePanel(counts=array, regions=regions, start=MONDAY, **more)  # type: ignore[arg-type]


def test_regions_days_and_totals() -> None:
    report = check_panel(panel([[1, 0, 0], [0, 0, 0]], population=np.array([10, 20])))
    assert (report.regions, report.days, report.cases) == (2, 3, 1)
    assert (report.first_day, report.last_day) == (MONDAY, date(2020, 11, 4))
    assert report.population == 30
    assert report.zeros == pytest.approx(5 / 6)
    assert report.silent_regions == ("r1",)


@pytest.mark.parametrize(("days", "enough"), [(16, False), (17, True)])
def test_enough_days_for_one_window(days: int, enough: bool) -> None:
    report = check_panel(panel(np.ones(days)))
    assert (report.enough_days, report.days_needed) == (enough, 17)
    assert check_panel(panel(np.ones(days)), window=9).enough_days


def test_gaps() -> None:
    reported = np.array([[1, 0, 0, 1, 0], [0, 1, 1, 1, 1], [1, 1, 1, 1, 1]], dtype=bool)
    gaps = check_panel(panel(np.zeros((3, 5)), reported=reported)).gaps
    assert (gaps.missing, gaps.regions, gaps.longest, gaps.longest_region) == (4, 2, 2, "r0")
    assert gaps.share == pytest.approx(4 / 15)
    assert check_panel(panel(np.zeros(5))).gaps.missing == 0


def test_week_counts_whole_weeks_only() -> None:
    week = [7, 14, 7, 7, 7, 7, 0]
    report = check_panel(panel([*week, *week, 1000]))
    assert report.weekdays == pytest.approx([1, 2, 1, 1, 1, 1, 0])
    assert check_panel(panel(np.ones(6))).weekdays is None
    assert check_panel(panel(np.zeros(7))).weekdays is None


def test_week_starts_on_monday_whatever_the_first_day() -> None:
    counts = [0, 7, 7, 7, 7, 7, 7]
    sunday = CasePanel(counts=np.array([counts]), regions=("a",), start=date(2020, 11, 1))
    assert check_panel(sunday).weekdays == pytest.approx([*[7 / 6] * 6, 0])


def test_silent_weekends() -> None:
    quiet, normal = [1, 1, 1, 1, 1, 0, 0] * 2, [1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1, 0]
    assert check_panel(panel([quiet, normal, np.zeros(14)])).silent_weekends == ("r0",)
    assert check_panel(panel(np.ones(5))).silent_weekends == ()


def test_spikes_stand_out_of_the_days_around() -> None:
    counts = np.full((2, 40), 10.0)
    counts[0, 20] = 10 * SPIKE_FACTOR + SPIKE_FLOOR
    counts[1, 0] = 10 * SPIKE_FACTOR + SPIKE_FLOOR + 1
    counts[1, 39] = 500
    report = check_panel(panel(counts))
    assert report.spike_count == 2
    assert [(s.region, s.day, s.cases, s.median) for s in report.spikes] == [
        ("r1", date(2020, 12, 11), 500, 10),
        ("r1", MONDAY, 71, 10),
    ]
    assert len(check_panel(panel(counts), top=1).spikes) == 1


def test_counts_that_are_not_whole() -> None:
    assert check_panel(panel([1, 2.5, 3])).fractional == 1


@settings(max_examples=40, deadline=None)
@given(
    arrays(
        np.float64,
        st.tuples(st.integers(1, 4), st.integers(1, 40)),
        elements=st.integers(0, 500).map(float),
    )
)
def test_spikes_against_a_plain_loop(counts: np.ndarray) -> None:
    days = counts.shape[1]
    width = min(15, days)
    expected = 0
    for row in counts:
        for day, cases in enumerate(row):
            first = max(0, min(day - width // 2, days - width))
            expected += cases > 5 * np.median(row[first : first + width]) + 20
    assert check_panel(panel(counts)).spike_count == expected


def test_the_report_is_json() -> None:
    report = check_panel(panel(np.r_[np.ones(20), 100]))
    back = json.loads(json.dumps(report.to_dict()))
    assert back["first_day"] == "2020-11-02"
    assert list(back["weekdays"]) == ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
    assert back["spikes"][0]["day"] == "2020-11-22"


def test_real_data_as_its_readme_describes_it(real_data: Path) -> None:
    whole = load_panel(real_data)
    top = check_panel(whole).spikes[0]
    assert (top.region, top.day, top.cases, top.median) == ("03159", date(2022, 2, 16), 3854, 338)
    autumn = check_panel(whole.between(date(2020, 9, 1), date(2021, 1, 31)))
    week = [0.82, 1.17, 1.33, 1.24, 1.11, 0.83, 0.51]
    assert autumn.weekdays == pytest.approx(week, abs=0.02)
