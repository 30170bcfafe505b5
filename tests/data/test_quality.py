"""Reports that are no count of their day: judged by a region's own past, and by nothing else."""

from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from epifed.data.panel import CasePanel
from epifed.data.quality import KINDS, LEARNING_DAYS, LONGEST_SILENCE, Cleaned, clean
from epifed.learners.base import make_learner
from epifed.settings import Settings

MONDAY = date(2020, 11, 2)
WEEK = np.array([60.0, 80, 80, 70, 60, 40, 30])

histories = arrays(
    np.float64,
    st.tuples(st.integers(1, 3), st.integers(LEARNING_DAYS + 1, 60)),
    elements=st.sampled_from([0.0, 0, 1, 7, 30, 45, 60, 400, 5000]),
)


def panel_of(counts: NDArray[np.float64]) -> CasePanel:
    return CasePanel(counts, tuple(f"r{i}" for i in range(len(counts))), MONDAY)


def found(*changes: tuple[int, float], weeks: int = 8, week: NDArray[np.float64] = WEEK) -> Cleaned:
    """One region with the same week again and again, except for some days."""
    counts = np.tile(week, weeks)
    for day, cases in changes:
        counts[day] = cases
    return clean(panel_of(counts[None]))


def said(cleaned: Cleaned) -> list[tuple[int, str]]:
    table = cleaned.to_long().sort("day")
    return [((row["day"] - MONDAY).days, row["kind"]) for row in table.iter_rows(named=True)]


@given(histories, st.data())
def test_what_was_known_on_a_day_never_changes(
    counts: NDArray[np.float64], data: st.DataObject
) -> None:
    panel = panel_of(counts)
    last = panel.start + timedelta(days=data.draw(st.integers(0, counts.shape[1] - 1)))
    then, now = clean(panel.between(panel.start, last)), clean(panel).until(last)
    np.testing.assert_array_equal(then.panel.counts, now.panel.counts)
    np.testing.assert_array_equal(then.kinds, now.kinds)
    assert then.panel.end == now.panel.end == last


@given(histories)
def test_a_region_is_judged_by_itself_alone(counts: NDArray[np.float64]) -> None:
    together = clean(panel_of(counts))
    for row, alone in enumerate(counts):
        found_alone = clean(panel_of(alone[None]))
        np.testing.assert_array_equal(together.panel.counts[row], found_alone.panel.counts[0])


@given(histories)
def test_usual_days_stay_and_nothing_is_negative(counts: NDArray[np.float64]) -> None:
    cleaned = clean(panel_of(counts))
    usual = cleaned.kinds == KINDS.index("usual")
    np.testing.assert_array_equal(cleaned.panel.counts[usual], counts[usual])
    assert (cleaned.panel.counts >= 0).all()
    late = cleaned.kinds == KINDS.index("catch-up")
    assert (cleaned.panel.counts[late] < counts[late]).all()


def test_a_backlog_is_replaced_by_the_usual_weekday() -> None:
    cleaned = found((40, 71_356))
    assert said(cleaned) == [(40, "backlog")]
    assert cleaned.panel.counts[0, 40] == pytest.approx(WEEK[40 % 7])
    assert cleaned.reported[0, 40] == 71_356


def test_what_was_found_is_said() -> None:
    cleaned = found((40, 71_356), (50, 0))
    assert cleaned.sentence() == (
        "implausible, and replaced: 2 reports of 1 region, such as r0 on 2020-12-12: "
        "71,356 reported, 40.0 expected (backlog)"
    )
    assert "such as r0 on 2020-12-22: 0 reported, 80.0 expected (silence)" in cleaned.sentence(14)
    assert cleaned.sentence(3) == "no implausible count of the last 3 days"
    assert cleaned.to_long(14)["kind"].to_list() == ["silence"]


def test_a_pause_and_its_backlog_add_up_to_what_was_reported() -> None:
    cleaned = found((37, 0), (38, 0), (39, 80 + 70 + 60.0))
    assert said(cleaned) == [(37, "silence"), (38, "silence"), (39, "catch-up")]
    np.testing.assert_allclose(cleaned.panel.counts[0, 35:42], WEEK, rtol=0.15)
    assert cleaned.panel.counts[0, 37:40].sum() == pytest.approx(210)


def test_a_region_that_reports_once_a_week_is_silent_when_that_day_fails() -> None:
    weekly = np.array([0, 0, 400.0, 0, 0, 0, 0])
    assert said(found(week=weekly)) == []
    assert said(found((37, 0), (38, 400), week=weekly)) == [(37, "silence"), (38, "catch-up")]


def test_a_holiday_without_a_report_is_no_silence() -> None:
    """2020-12-25 is a Friday; a learner knows the calendar, and what a holiday is like."""
    counts = np.tile(WEEK, 9)
    counts[53] = 0
    panel = panel_of(counts[None])
    assert said(clean(panel)) == [(53, "silence")]
    assert said(clean(replace(panel, calendars=("DE-BY",)))) == []


def test_small_numbers_are_never_anomalous() -> None:
    rng = np.random.default_rng(0)
    rare = rng.poisson(0.4, size=(300, 200)).astype(float)
    assert not clean(panel_of(rare)).anomalous.any()


def test_a_jump_that_stays_is_believed_at_its_second_report() -> None:
    jump = [(day, 10 * WEEK[day % 7]) for day in range(40, 56)]
    assert said(found(*jump)) == [(40, "backlog")]


def test_a_region_that_stops_is_silent_for_four_weeks_then_without_cases() -> None:
    cleaned = found(*((day, 0.0) for day in range(40, 84)), weeks=12)
    assert {kind for _, kind in said(cleaned)} == {"silence"}
    assert [day for day, _ in said(cleaned)] == list(range(40, 40 + LONGEST_SILENCE))
    filled = cleaned.panel.counts[0, 40 : 40 + LONGEST_SILENCE]
    np.testing.assert_allclose(filled, np.resize(np.roll(WEEK, 2), LONGEST_SILENCE), rtol=0.2)
    assert (cleaned.panel.counts[0, -10:] == 0).all()


def test_a_new_way_of_reporting_is_learned() -> None:
    """From every day to once a week: one week of silence, no more."""
    weekly = [(day, 420.0 if day % 7 == 2 else 0.0) for day in range(35, 84)]
    days = [day for day, _ in said(found(*weekly, weeks=12))]
    assert days and max(days) < 35 + 10


def test_growth_as_fast_as_an_epidemic_is_not_anomalous() -> None:
    doubling = np.tile(WEEK, 10) / 60 * np.exp2(np.arange(70) / 3.5)
    assert said(clean(panel_of(doubling[None]))) == []


def test_a_training_for_use_sees_the_cleaned_days_and_an_experiment_the_raw_ones() -> None:
    counts = np.tile(WEEK, (4, 8))
    counts[1, -2] = 50_000
    panel = panel_of(counts)
    period = panel.start, panel.end
    for learner in ("trend", "one-shot"):
        made = make_learner(Settings.for_learner(learner, 4))
        state = made.start(np.random.SeedSequence(0))
        used = made.contribute(state, made.deployed_view(panel, period))
        raw = made.contribute(state, made.view(panel, period))
        np.testing.assert_allclose(used[1], used[0], atol=1e-6)
        assert (raw[1] != raw[0]).any()


def test_one_new_york_dump_is_found(real_data: Path) -> None:
    """The README of the data names it: 71,356 cases in a county whose daily median is 35."""
    path = real_data / "us_county_cases.parquet"
    if not path.is_file():
        pytest.skip(f"no US counties: {path}")
    table = pl.read_parquet(path).rename({"date": "day", "county": "region"})
    dump = table.filter(pl.col("cases") == 71_356).row(0, named=True)
    one = table.filter(pl.col("region") == dump["region"])
    cleaned = clean(CasePanel.from_long(one.with_columns(pl.col("cases").clip(0))))
    day = (dump["day"] - cleaned.panel.start).days
    assert KINDS[cleaned.kinds[0, day]] == "backlog"
    assert cleaned.panel.counts[0, day] < 200
