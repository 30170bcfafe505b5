"""The real-time backtest: only what was known on a morning, scored on what came in the end."""

import math
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from epifed.data.panel import CasePanel
from epifed.data.quality import clean
from epifed.data.vintages import Vintages
from epifed.errors import EpifedError
from epifed.evaluation.backtest import Backtest, run_backtest, vintage_origins
from epifed.forecasting import Forecast, forecast, parts
from epifed.learners import real_time
from epifed.learners.base import make_learner
from epifed.nowcasting import late_reports as arithmetic
from epifed.settings import Settings
from tests.late_lists import late_list

DAY = timedelta(days=1)


def settings(panel: CasePanel, epsilon: float = 1.0, learner: str = "real-time") -> Settings:
    return Settings.resolve(len(panel.regions), {"learner": learner, "epsilon": epsilon})


def replay(panel: CasePanel, late: Vintages, out: Path, learner: str = "real-time") -> Backtest:
    chosen = settings(panel, learner=learner)
    last = panel.end - 7 * DAY
    origins = vintage_origins(last - 12 * DAY, last, 3, panel, late, chosen.horizon)
    return run_backtest(panel, chosen, origins, out, vintages=late, workers=1)


def test_a_row_known_one_day_later_moves_nothing_before(tmp_path: Path) -> None:
    panel, plain = late_list(regions=5)
    whole = replay(panel, plain, tmp_path / "plain")
    origin = whole.forecasts[2].origin
    morning = origin + DAY
    row = pl.DataFrame(
        {
            "as_of": [morning + DAY],
            "region": ["00002"],
            "reported": [origin - DAY],
            "cases": [900],
        }
    )
    planted = Vintages.from_changes(pl.concat([plain.changes, row], how="diagonal_relaxed"))
    other = replay(panel, planted, tmp_path / "planted")
    for one, same in zip(whole.forecasts[:3], other.forecasts[:3], strict=True):
        assert one.origin <= origin
        assert (one.quantiles == same.quantiles).all()
    before = pl.col("origin_date") <= origin
    assert whole.table.filter(before).equals(other.table.filter(before))
    assert other.forecasts[3].point[2] > 2 * whole.forecasts[3].point[2]


def test_scores_are_of_the_final_counts_and_say_how_late_the_list_was(tmp_path: Path) -> None:
    panel, late = late_list(regions=40)
    result = replay(panel, late, tmp_path)
    summary = result.summary()
    table = result.table
    assert summary["real_time"]
    for one in result.forecasts:
        rows = table.filter(pl.col("origin_date") == one.origin)
        at = (one.origin - panel.start).days
        assert rows["truth"].to_numpy() == pytest.approx(panel.counts[:, at + 1 : at + 8].mean(1))
        final = panel.counts[:, at - 6 : at + 1].mean(axis=1)
        assert rows["persistence_final"].to_numpy() == pytest.approx(final)
        known = late.as_known(one.origin + DAY).counts[:, -7:].mean(axis=1)
        assert rows["persistence"].to_numpy() == pytest.approx(known)
    off, base = (
        float(np.abs(table[name].to_numpy() - table["truth"].to_numpy()).sum())
        for name in ("point", "persistence_final")
    )
    assert summary["mae_ratio_final"] == pytest.approx(off / base)
    assert summary["nowcast_mae_ratio"] < 0.5
    assert summary["mae_ratio"] < summary["mae_ratio_final"]
    assert "data as known on its day" in result.caption()


def test_filling_late_days_up_beats_taking_them_as_they_are(tmp_path: Path) -> None:
    panel, late = late_list(regions=40, growth=0.2)
    filled = replay(panel, late, tmp_path / "nowcast")
    as_they_are = replay(panel, late, tmp_path / "trend", learner="trend")
    assert filled.summary()["mae_ratio_final"] < 0.8 * as_they_are.summary()["mae_ratio_final"]


def test_mornings_without_a_snapshot_or_a_target_are_left_out() -> None:
    panel, late = late_list(regions=2)
    first = panel.end - 10 * DAY
    origins = vintage_origins(first, panel.end, 1, panel, late, 7)
    assert origins == [first - DAY + i * DAY for i in range(5)]
    gone = Vintages.from_changes(
        late.changes, snapshots=[day for day in late.snapshots if day != first + DAY]
    )
    assert first not in vintage_origins(first, panel.end, 1, panel, gone, 7)
    with pytest.raises(EpifedError, match="expected some from"):
        vintage_origins(panel.end, panel.end, 1, panel, late, 7)


def test_the_release_says_the_shared_growth_and_how_late_cases_come() -> None:
    panel, late = late_list(regions=200, growth=0.25, level=20)
    chosen = settings(panel)
    learner = make_learner(chosen)
    known = late.as_known(late.last - 5 * DAY, like=panel)
    rows = learner.contribute(
        learner.start(np.random.SeedSequence(0)), learner.view(known, (panel.start, known.end))
    )
    assert np.linalg.norm(rows, axis=1).max() <= chosen.clip_norm + 1e-6
    state = learner.step(learner.start(np.random.SeedSequence(0)), rows.mean(axis=0), 0.0)
    assert real_time.shared_growth(state) == pytest.approx(0.25, abs=0.05)
    # A half comes on the first morning, 85 % on the second, all on the third.
    assert real_time.pooled_late(state)[:3] == pytest.approx([0.5, 0.15, 0.0], abs=0.04)
    faded = real_time.shared_growth(learner.advance(state, 14))
    assert 0 < faded < real_time.shared_growth(state)


def test_with_nothing_but_noise_nothing_grows() -> None:
    panel, _ = late_list(regions=4)
    learner = make_learner(settings(panel))
    sent = learner.contribute(learner.start(np.random.SeedSequence(0)), learner.empty_view())
    noise = np.full(sent.shape[1], 50.0, dtype=np.float32)
    state = learner.step(learner.start(np.random.SeedSequence(0)), noise, 1e4)
    assert real_time.shared_growth(state) == pytest.approx(0, abs=0.01)
    assert real_time.pooled_late(state) == pytest.approx(arithmetic.USUAL_LATE, abs=0.01)


def test_past_forecasts_are_those_that_were_made() -> None:
    """The hindcast of a morning is the forecast that was made on it, with its own release."""
    panel, late = late_list(regions=5)
    learner = make_learner(settings(panel))
    state = learner.start(np.random.SeedSequence(0))
    made = {}
    last = late.last - 8 * DAY
    for i in range(10):
        known = late.as_known(last - (9 - i) * DAY, like=panel)
        rows = learner.contribute(state, learner.view(known, (panel.start, known.end)))
        state = learner.step(learner.advance(state, 1), rows.mean(axis=0), 0.01)
        made[known.end] = learner.hindcast(known, state, 7)[:, -1]
    real_time._MADE.clear()
    past = learner.hindcast(known, state, 7)
    for back, day in enumerate(sorted(made, reverse=True)):
        assert past[:, -1 - back] == pytest.approx(made[day])


@pytest.mark.parametrize("horizon", [3, 7, 21])
def test_the_parts_of_a_change_add_up_to_it_in_real_time(horizon: int) -> None:
    panel, late = late_list(regions=30, growth=0.2)
    panel = replace(panel, calendars=("DE",) * 30)
    learner = make_learner(settings(panel, epsilon=math.inf))
    known = late.as_known(late.last - 9 * DAY, like=panel)
    rows = learner.contribute(
        learner.start(np.random.SeedSequence(0)), learner.view(known, (panel.start, known.end))
    )
    state = learner.step(learner.start(np.random.SeedSequence(0)), rows.mean(axis=0), 0.0)
    found = parts(clean(known), learner, state, horizon)
    assert found is not None
    together = found.country + found.place + found.own + found.calendar + found.reports
    point = learner.hindcast(known, state, horizon)[:, -1]
    change = np.log(point / known.counts[:, -7:].mean(axis=1))
    # Days of the target week that have come grow no more: only whole weeks add up exactly.
    np.testing.assert_allclose(together, change, atol=0.03 if horizon % 7 == 0 else 0.15)
    assert found.reports.min() > 0


def forecasts_of(panel: CasePanel, late: Vintages) -> Forecast:
    """The forecast of the last morning of a list, one release before it."""
    chosen = settings(panel, epsilon=math.inf)
    learner = make_learner(chosen)
    known = late.as_known(late.last, like=panel)
    rows = learner.contribute(
        learner.start(np.random.SeedSequence(0)), learner.view(known, (panel.start, known.end))
    )
    state = learner.step(learner.start(np.random.SeedSequence(0)), rows.mean(axis=0), 0.0)
    return forecast(clean(known), learner, state, 7)


def near(made: Forecast, panel: CasePanel, origin_back: int, rtol: float = 0.3) -> None:
    end = panel.counts.shape[1] - origin_back
    truth = panel.counts[:, end : end + 7].mean(axis=1)
    assert np.isfinite(made.quantiles).all()
    np.testing.assert_allclose(made.point, truth, rtol=rtol)
    assert made.point.sum() == pytest.approx(truth.sum(), rel=0.15)


def test_a_week_without_a_snapshot_does_not_break_a_forecast() -> None:
    panel, late = late_list(regions=8, level=100)
    then = late.until(late.last - 8 * DAY)
    for first_back in (1, 4, 7):
        gone = {then.last - (first_back + i) * DAY for i in range(7)}
        kept = [day for day in then.snapshots if day not in gone]
        later = [next(d for d in kept if d >= day) for day in then.changes["as_of"]]
        moved = then.changes.with_columns(pl.Series("as_of", later))
        gap = Vintages.from_changes(moved, snapshots=kept)
        assert len(gap.missing) == 7
        near(forecasts_of(panel, gap), panel, 8)


def test_an_office_that_was_silent_for_nine_days_and_is_back_does_not_explode() -> None:
    panel, late = late_list(regions=8, level=100)
    then = late.until(late.last - 8 * DAY)
    for back in range(9):
        silent = then.last - back * DAY
        moved = then.changes.with_columns(
            as_of=pl.when(
                (pl.col("region") == "00003")
                & pl.col("as_of").is_between(silent - 9 * DAY, silent - DAY)
            )
            .then(pl.lit(silent))
            .otherwise("as_of")
        )
        held = Vintages.from_changes(moved, snapshots=then.snapshots)
        near(forecasts_of(panel, held), panel, 8)
    gone = then.changes.filter((pl.col("region") != "00003") | (pl.col("as_of") < silent))
    made = forecasts_of(panel, Vintages.from_changes(gone, snapshots=then.snapshots))
    others = [i for i in range(8) if i != 3]
    assert made.point[3] > 0.5 * made.point[others].mean()


def test_cases_that_are_taken_back_do_not_break_a_forecast() -> None:
    panel, late = late_list(regions=8, level=100)
    then = late.until(late.last - 8 * DAY)
    wrong = pl.DataFrame(
        {
            "as_of": [then.last - 3 * DAY, then.last, then.last],
            "region": ["00001", "00001", "00002"],
            "reported": [then.last - 5 * DAY, then.last - 5 * DAY, then.last - DAY],
            "cases": [500, -500, -300],
        }
    )
    taken = Vintages.from_changes(pl.concat([then.changes, wrong], how="diagonal_relaxed"))
    near(forecasts_of(panel, taken), panel, 8)


def test_days_off_are_not_filled_like_working_days() -> None:
    """Over Christmas, with and without the calendar: what is filled up, against what comes."""
    panel, late = late_list(regions=8, level=100, days=211)
    christmas = (date(2020, 12, 25) - panel.start).days
    off = slice(christmas - 1, christmas + 3)
    counts = panel.counts.copy()
    counts[:, off] = np.floor(counts[:, off] * 0.3)
    days = [panel.day(i) for i in range(off.start, off.stop)]
    fewer = late.changes.with_columns(
        cases=pl.when(pl.col("reported").is_in(days))
        .then((pl.col("cases") * 0.3).floor().cast(pl.Int64))
        .otherwise("cases")
    )
    held = Vintages.from_changes(fewer, snapshots=late.snapshots).until(date(2020, 12, 27))
    final = replace(panel, counts=counts)
    week = final.between(date(2020, 12, 20), date(2020, 12, 26)).counts.sum()
    off_by = []
    for calendars in ((), ("DE",) * 8):
        like = replace(final, calendars=calendars)
        learner = make_learner(settings(like))
        known = held.as_known(held.last, like=like)
        full = learner.completed(known, learner.start(np.random.SeedSequence(0)))
        off_by.append(abs(full.counts[:, -7:].sum() / week - 1))
    assert off_by[1] < 0.06
    assert off_by[1] < 0.6 * off_by[0]
