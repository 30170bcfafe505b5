"""Forecasts as of mornings: those whose list is known, and others made late by resampling.

    python benchmarks/mornings.py real --data DIR --runs 15     # 48 real mornings of autumn 2020
    python benchmarks/mornings.py resampled --data DIR          # other times, semi-synthetic

What this code has computed is kept in parts, so that a call which was ended goes on where it was;
results are kept for docs/real-time.md.
"""

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from _resampled import DAY, pseudo_vintages
from epifed.data.panel import CasePanel
from epifed.data.quality import Cleaned
from epifed.data.readers import load_panel
from epifed.data.readers.vintage_files import load_vintages
from epifed.data.vintages import Vintages
from epifed.evaluation.backtest import SCORES, KnownData, scored
from epifed.evaluation.experiment import code_digest
from epifed.evaluation.metrics import strata
from epifed.files import write_parquet
from epifed.forecasting import forecast
from epifed.learners.base import make_learner, observed, settings_for
from epifed.settings import Settings, seed_sequence
from epifed.training.loop import train
from kept import keep
from kept import table as kept_table

BEFORE, RELEASED = 35, 14
"""Mornings that are known before the first forecast that is scored, and releases."""
HORIZON = 7


@dataclass(frozen=True)
class Phase:
    """Mornings that are scored together, and whether constants were chosen on them."""

    name: str
    first: date
    last: date
    chosen_on: bool


REAL = (
    Phase("2020-09-01 to 2020-09-20", date(2020, 9, 1), date(2020, 9, 20), True),
    Phase("2020-09-21 to 2020-10-18", date(2020, 9, 21), date(2020, 10, 18), True),
)
PHASES = (
    Phase("rise, October 2020", date(2020, 10, 19), date(2020, 11, 8), False),
    Phase("turn, November 2020", date(2020, 11, 9), date(2020, 11, 30), False),
    Phase("second rise, December 2020", date(2020, 12, 1), date(2020, 12, 19), False),
    Phase("Christmas and New Year 2020", date(2020, 12, 20), date(2021, 1, 15), False),
    Phase("fall, winter 2021", date(2021, 1, 16), date(2021, 2, 28), False),
    Phase("third wave, March 2021", date(2021, 3, 1), date(2021, 3, 28), True),
    Phase("Easter and turn, April 2021", date(2021, 3, 29), date(2021, 5, 9), True),
    Phase("fourth wave, autumn 2021", date(2021, 9, 20), date(2021, 12, 19), True),
    Phase("Christmas and New Year 2021", date(2021, 12, 20), date(2022, 1, 15), True),
    Phase("Omicron, winter 2022", date(2022, 1, 16), date(2022, 3, 31), False),
    Phase("Easter and spring 2022", date(2022, 4, 1), date(2022, 6, 20), False),
)
TIMES = (PHASES[:5], PHASES[5:7], PHASES[7:9], PHASES[9:])
"""Times that are replayed in one go."""


class Replay:
    """Forecasts as of mornings with what was known, a release on each, scored on final counts."""

    def __init__(self, panel: CasePanel, vintages: Vintages, first: date, last: date) -> None:
        self.panel, self.known = panel, KnownData(panel, vintages)
        looked = set(vintages.snapshots)
        days = (first + i * DAY for i in range((last - first).days + 1))
        self.origins = [
            day - DAY for day in days if day in looked and day + (HORIZON - 1) * DAY <= panel.end
        ]
        self.final = observed(panel.counts, "day")
        self.views: dict[date, Any] = {}

    @cached_property
    def seen(self) -> dict[date, Cleaned]:
        """What was known at the end of each origin."""
        return {day: self.known.on(day) for day in self.origins}

    def table(self, settings: Settings, scored_from: date) -> pl.DataFrame:
        """Forecasts beside what came; releases and noise are those of `epifed backtest`."""
        learner = make_learner(settings)
        state, before = None, self.origins[0]
        rows = []
        for day in self.origins:
            then = self.seen[day]
            if day not in self.views:
                self.views[day] = learner.view(then.panel, (then.panel.start, day))
            seeds = seed_sequence(settings.seed, "backtest", day.isoformat())
            fresh = learner.unpack(train(self.views[day], settings, seeds=seeds).vector)
            if state is not None:
                fresh = learner.join(learner.advance(state, (day - before).days), fresh)
            state, before = learner.unpack(learner.pack(fresh)), day
            if day + DAY >= scored_from:
                at = self.panel.index(day)
                made = forecast(then, learner, state, HORIZON)
                full = observed(learner.completed(then.panel, state).counts, "day")[:, -1]
                truth, now = self.final[:, at + HORIZON], self.final[:, at]
                rows.append(scored(made, truth, now, observed(then.reported, "day"), full))
        return pl.concat(rows)


def _scores(table: pl.DataFrame) -> dict[str, float]:
    known = pl.col("persistence"), pl.col("persistence_final")
    off = [(one - pl.col("truth")).abs().sum() for one in known]
    return table.select(*SCORES, as_known=off[0] / off[1]).row(0, named=True)


def _of(table: pl.DataFrame, phase: Phase) -> pl.DataFrame:
    return table.filter(pl.col("origin_date").is_between(phase.first - DAY, phase.last - DAY))


def _spread(values: Sequence[float], digits: int = 3) -> list[float]:
    """The mean, and with several runs their deviation."""
    mean = round(float(np.mean(values)), digits)
    return [mean, round(float(np.std(values, ddof=1)), digits)] if len(values) > 1 else [mean]


class Parts:
    """The tables that this code has computed, one file each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / code_digest()[:12]

    def table(self, name: str, make: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        """A table that is there, or made now."""
        path = self.folder / f"{name}.parquet"
        if not path.exists():
            write_parquet(path, make())
        return pl.read_parquet(path)


def real(data: Path, runs: int, parts: Parts, command: str) -> None:
    """The mornings whose list is known: without privacy, and so many runs at each budget."""
    panel = load_panel(data)
    replay = Replay(panel, load_vintages(data, regions=panel.regions), REAL[0].first, REAL[-1].last)
    rows: list[list[Any]] = []
    for epsilon, times in ((math.inf, 1), (1.0, runs), (0.1, runs)):
        found: list[dict[str, float]] = []
        for seed in range(times):
            said = {"learner": "real-time", "epsilon": epsilon, "seed": seed}
            settings = settings_for(panel, said)
            table = parts.table(
                f"real_{epsilon:g}_{seed}", partial(replay.table, settings, REAL[0].first)
            )
            found.append(_scores(table))
            if epsilon == math.inf:
                _keep_exact(panel, table, command)
        scores = ("mae_ratio_final", "coverage_50", "coverage_95")
        mae, half, most = ([one[name] for one in found] for name in scores)
        shown = "∞" if epsilon == math.inf else f"{epsilon:g}"
        both = [round(float(np.mean(level)), 4) for level in (half, most)]
        rows.append([shown, len(found), _spread(mae), *both])
    budgets = kept_table(
        ["ε", "runs", "MAE over persistence on final data", "in 50 %", "in 95 %"],
        ["{}", "{}", ["{:.3f}", "{:.3f} ± {:.3f}"], "{:.1%}", "{:.1%}"],
        rows,
    )
    keep("real-time", command, {"budgets": budgets})


def _keep_exact(panel: CasePanel, table: pl.DataFrame, command: str) -> None:
    """What is said of the forecasts without privacy: by phase, and the nowcast by size."""
    assert panel.population is not None
    phases = [(one.name, _scores(_of(table, one))) for one in REAL] + [("all", _scores(table))]
    sizes = []
    for name, members in strata(panel.population):
        inside = [r for r, here in zip(panel.regions, members, strict=True) if here]
        of = [table.filter(pl.col("region").is_in(inside))]
        of.append(_of(of[0], REAL[1]))
        late = (pl.col("persistence") == pl.col("persistence_final")).mean()
        nothing = 100 * float(of[0].select(late).item())
        ratios = [_scores(one)["nowcast_mae_ratio"] for one in of]
        sizes.append([name, len(inside), *(round(r, 3) for r in ratios), round(nothing, 1)])
    both = [table, _of(table, REAL[1])]
    sizes.append(["all", 400, *(round(_scores(one)["nowcast_mae_ratio"], 3) for one in both), None])
    columns = ["inhabitants", "counties", "all mornings", "after 2020-09-20", "nothing late"]
    by_size = kept_table(columns, ["{}", "{}", "{:.2f}", "{:.2f}", "{:.0f} %"], sizes)
    as_known = round(_scores(table)["as_known"], 3)
    by_phase = _phase_table(phases, "mornings")
    kept = {"phases": by_phase, "strata": by_size, "like-today-as-known": as_known}
    keep("real-time", command, kept)


def _phase_table(rows: Sequence[tuple[str, dict[str, float]]], what: str) -> dict[str, Any]:
    names = ("mae_ratio_final", "nowcast_mae_ratio", "coverage_50", "coverage_95")
    return kept_table(
        [what, "MAE over persistence on final data", "nowcast over known", "in 50 %", "in 95 %"],
        ["{}", "{:.3f}", "{:.2f}", "{:.1%}", "{:.1%}"],
        [[name, *(round(found[one], 4) for one in names)] for name, found in rows],
    )


def resampled(data: Path, parts: Parts, command: str) -> None:
    """Other times, their lateness resampled: without privacy, by phase."""
    panel = load_panel(data)
    known = load_vintages(data, regions=panel.regions)
    settings = settings_for(panel, {"learner": "real-time", "epsilon": math.inf})
    found: dict[bool, list[tuple[str, dict[str, float]]]] = {True: [], False: []}

    def replayed(first: date, last: date) -> pl.DataFrame:
        late = pseudo_vintages(panel, known, first - BEFORE * DAY, last)
        return Replay(panel, late, first - RELEASED * DAY, last).table(settings, first)

    for phases in TIMES:
        first, last = phases[0].first, phases[-1].last
        table = parts.table(f"resampled_{first}", partial(replayed, first, last))
        for one in phases:
            found[one.chosen_on].append((one.name, _scores(_of(table, one))))
        if phases is TIMES[0]:
            found[False].append(("all from October 2020 to February 2021", _scores(table)))
    for chosen, name in ((True, "resampled-chosen-on"), (False, "resampled-test")):
        keep("real-time", command, {name: _phase_table(found[chosen], "resampled mornings")})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("which", choices=["real", "resampled"])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--runs", type=int, default=15, help="at each budget")
    parser.add_argument("--parts", type=Path, default=Path("out/mornings"), help="kept tables")
    options = parser.parse_args()
    command, parts = f"python benchmarks/mornings.py {options.which}", Parts(options.parts)
    if options.which == "real":
        real(options.data, options.runs, parts, command)
    else:
        resampled(options.data, parts, command)


if __name__ == "__main__":
    main()
