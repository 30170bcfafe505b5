"""The real-time backtest: only what was known on a morning, scored on what came in the end."""

from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from epifed import nowcast as arithmetic
from epifed.errors import EpifedError
from epifed.evaluate.backtest import Backtest, mornings_between, run_backtest
from epifed.learner import make_learner
from epifed.learners import nowcast
from epifed.panel import CasePanel
from epifed.settings import Settings
from epifed.vintages import Vintages
from tests.late import late_list

DAY = timedelta(days=1)


def settings(panel: CasePanel, epsilon: float = 1.0, learner: str = "nowcast") -> Settings:
    return Settings.resolve(len(panel.regions), {"learner": learner, "epsilon": epsilon})


def replay(panel: CasePanel, late: Vintages, out: Path, learner: str = "nowcast") -> Backtest:
    chosen = settings(panel, learner=learner)
    last = panel.end - 7 * DAY
    origins = mornings_between(last - 12 * DAY, last, 3, panel, late, chosen.horizon)
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
    assert "what was known on its morning" in result.caption()


def test_filling_late_days_up_beats_taking_them_as_they_are(tmp_path: Path) -> None:
    panel, late = late_list(regions=40, growth=0.2)
    filled = replay(panel, late, tmp_path / "nowcast")
    as_they_are = replay(panel, late, tmp_path / "trend", learner="trend")
    assert filled.summary()["mae_ratio_final"] < 0.8 * as_they_are.summary()["mae_ratio_final"]


def test_mornings_without_a_snapshot_or_a_target_are_left_out() -> None:
    panel, late = late_list(regions=2)
    first = panel.end - 10 * DAY
    origins = mornings_between(first, panel.end, 1, panel, late, 7)
    assert origins == [first - DAY + i * DAY for i in range(5)]
    gone = Vintages.from_changes(
        late.changes, snapshots=[day for day in late.snapshots if day != first + DAY]
    )
    assert first not in mornings_between(first, panel.end, 1, panel, gone, 7)
    with pytest.raises(EpifedError, match="expected some from"):
        mornings_between(panel.end, panel.end, 1, panel, late, 7)


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
    assert nowcast.shared_growth(state) == pytest.approx(0.25, abs=0.05)
    # A half comes on the first morning, 85 % on the second, all on the third.
    assert nowcast.pooled_late(state)[:3] == pytest.approx([0.5, 0.15, 0.0], abs=0.04)
    faded = nowcast.shared_growth(learner.advance(state, 14))
    assert 0 < faded < nowcast.shared_growth(state)


def test_with_nothing_but_noise_nothing_grows() -> None:
    panel, _ = late_list(regions=4)
    learner = make_learner(settings(panel))
    noise = np.full(nowcast.NUMBERS, 50.0, dtype=np.float32)
    state = learner.step(learner.start(np.random.SeedSequence(0)), noise, 1e4)
    assert nowcast.shared_growth(state) == pytest.approx(0, abs=0.01)
    assert nowcast.pooled_late(state) == pytest.approx(arithmetic.USUAL_LATE, abs=0.01)


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
    past = learner.hindcast(known, state, 7)
    for back, day in enumerate(sorted(made, reverse=True)):
        assert past[:, -1 - back] == pytest.approx(made[day])
