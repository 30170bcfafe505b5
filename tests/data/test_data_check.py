"""What `check_panel` finds in panels made to have it."""

import json
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from epifed.data.panel import CasePanel
from epifed.data.readers import load_panel
from epifed.data_check import check_panel

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


@pytest.mark.parametrize(("days", "enough"), [(27, False), (28, True)])
def test_enough_days_for_a_forecast(days: int, enough: bool) -> None:
    report = check_panel(panel(np.ones(days)))
    assert (report.enough_days, report.days_needed) == (enough, 28)


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


def test_reports_that_are_no_count_of_their_day() -> None:
    counts = np.full((2, 40), 30.0)
    counts[1, 39] = 500
    counts[0, 38], counts[0, 39] = 0, 55
    report = check_panel(panel(counts))
    assert report.anomaly_counts == {"backlog": 1, "silence": 1, "catch-up": 1}
    assert [(a.region, a.name, a.day, a.kind, a.reported) for a in report.anomalies] == [
        ("r1", "r1", date(2020, 12, 11), "backlog", 500),
        ("r0", "r0", date(2020, 12, 10), "silence", 0),
        ("r0", "r0", date(2020, 12, 11), "catch-up", 55),
    ]
    assert [a.expected for a in report.anomalies] == pytest.approx([30, 30, 30])
    assert len(check_panel(panel(counts), top=1).anomalies) == 1


def test_counts_that_are_not_whole() -> None:
    assert check_panel(panel([1, 2.5, 3])).fractional == 1


def test_the_report_is_json() -> None:
    report = check_panel(panel(np.r_[np.ones(21), 100]))
    back = json.loads(json.dumps(report.to_dict()))
    assert back["first_day"] == "2020-11-02"
    assert list(back["weekdays"]) == ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
    assert back["anomalies"][0]["day"] == "2020-11-23"


def test_real_data_as_its_readme_describes_it(real_data: Path) -> None:
    whole = load_panel(real_data)
    top = check_panel(whole).anomalies[0]
    assert (top.region, top.day, top.kind, top.reported) == (
        "03159", date(2022, 2, 16), "backlog", 3854,
    )  # fmt: skip
    autumn = check_panel(whole.between(date(2020, 9, 1), date(2021, 1, 31)))
    week = [0.82, 1.17, 1.33, 1.24, 1.11, 0.83, 0.51]
    assert autumn.weekdays == pytest.approx(week, abs=0.02)


def test_a_day_without_a_row_of_a_line_list_has_no_case_and_no_gap(tmp_path: Path) -> None:
    path = tmp_path / "list.csv"
    rows = [(day, "ab"[day % 2]) for day in range(1, 31)]
    path.write_text("date,region\n" + "".join(f"2024-05-{day:02d},{name}\n" for day, name in rows))
    report = check_panel(load_panel(path, line_list=True, cadence="day"))
    assert report.gaps.missing == 0 and report.zeros == 0.5
    assert not any("no report" in one for one in report.warnings)
