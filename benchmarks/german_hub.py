"""States and nation of Germany beside the teams of the German hub, on the same Mondays.

The counts of states and nation are the hub's own truth, by day of publication, as it was known on
each Monday. What the counties share is learned from what was known of them:

    thursday   final counts up to four days before, of which all but 3 % were known (22 Mondays)
    sunday     final counts up to the day before: not in real time (22 Mondays)
    mornings   what was known on the morning, as far as vintages reach (9 Mondays)

    python benchmarks/german_hub.py --data ../shared/data --work FOLDER --runs 15 --keep

Every run's forecasts stay in the folder, under a hash of the code, so it may be stopped. `--only`
takes some of the three. `--keep` writes `results/german_hub.json` and the figure of the first.
"""

import argparse
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from _runs import MEAN, hub_rows, of_runs, over_runs, said
from epifed.data.calendar import Weeks
from epifed.data.panel import CasePanel, choose
from epifed.data.readers import load_panel
from epifed.data.readers.vintage_files import load_vintages
from epifed.data.vintages import Vintages
from epifed.evaluation.backtest import run_backtest, vintage_origins
from epifed.forecasting import Targets, Totals
from epifed.hubs.tables import (
    DRAWS,
    TASK,
    compare,
    ratio,
    read_forecasts,
    read_locations,
    read_truth,
    score,
)
from epifed.learners.base import settings_for
from epifed.report import drawing
from epifed.report.figures import hub_figure
from kept import ROOT, keep, table

FIRST, LAST = date(2020, 10, 12), date(2021, 3, 8)
FIRST_MORNING = date(2020, 8, 17)
"""The first Monday with two weeks of vintages before it."""
WARM_UP = 12
"""Weeks of releases before the first Monday, which the first forecasts know of."""
LOCATIONS = Path(__file__).with_name("german_hub_locations.csv")
BASELINE, OURS = "KIT-baseline", "epifed"
SOURCES = (
    "Forecasts: German and Polish COVID-19 Forecast Hub, the named teams. Truth and county cases: "
    "Robert Koch-Institut (RKI), CC BY 4.0; data changed (regions merged, daily differences)",
)
AHEAD = (1, 2)
LEADS = {"thursday": 4, "sunday": 1, "mornings": 1}
"""By how many days the published totals are known further than what the counties learn from."""
LEVELS = ("nation", "state")

Runs = dict[float, list[pl.DataFrame]]


@dataclass(frozen=True)
class Known:
    """What the counties know in one of the three, and the totals that are published."""

    name: str
    panel: CasePanel
    totals: Totals
    vintages: Vintages | None

    def origins(self) -> list[date]:
        """The last days that the counties know, from the first release on."""
        if self.vintages is not None:
            last = self.vintages.last
            return vintage_origins(FIRST_MORNING, last, 7, self.panel, self.vintages, 7)
        first = FIRST - timedelta(days=7 * WARM_UP + self.totals.lead)
        weeks = (LAST - FIRST).days // 7 + WARM_UP + 1
        return [first + timedelta(days=7 * week) for week in range(weeks)]

    def forecasts(self, epsilon: float, run: int) -> pl.DataFrame:
        """The forecasts of one run from all Mondays, as a hub keeps them."""
        levels = choose(self.panel, LEVELS)
        targets = Targets(levels, AHEAD, Weeks(ends=5, reference=0), self.totals)
        learner = "trend" if self.vintages is None else "real-time"
        asked = {"learner": learner, "epsilon": epsilon, "seed": run}
        with tempfile.TemporaryDirectory() as out:
            found = run_backtest(
                self.panel, settings_for(self.panel, asked), self.origins(), Path(out),
                vintages=self.vintages, targets=targets, workers=1,
            )  # fmt: skip
        rows = hub_rows(found.levels, read_locations(LOCATIONS))
        day = pl.col("reference_date")
        asked_for = day >= FIRST_MORNING if self.vintages else day.is_between(FIRST, LAST)
        return rows.filter(asked_for)


def scored(runs: Runs, data: Path) -> tuple[pl.DataFrame, Runs]:
    """The scores of the other teams, and of each of our runs, on the same Mondays."""
    truth = read_truth(data / "hub_de_truth.csv")
    teams = read_forecasts(data / "hub_de_forecasts.parquet").select(
        "model", *TASK, "level", "value"
    )
    groups = read_locations(LOCATIONS).levels
    days = pl.concat(one for every in runs.values() for one in every)["reference_date"].unique()
    shared = teams.filter(
        pl.col("reference_date").is_in(days.implode()), pl.col("horizon").is_in(AHEAD)
    )
    ours = {
        epsilon: [
            score(one.with_columns(model=pl.lit(OURS)).select(teams.columns), truth, groups).table
            for one in every
        ]
        for epsilon, every in runs.items()
    }
    return score(shared, truth, groups).table, ours


def ahead(level: str, weeks: int) -> str:
    """A level and how far ahead, as it is written."""
    return f"{level}, {weeks} week{'s' if weeks > 1 else ''}"


def beside(teams: pl.DataFrame, ours: Runs) -> dict[str, Any]:
    """WIS and MAE relative to the baseline's, coverage, and the other model that is closest.

    The closest is that with the least WIS relative to ours, on the tasks of both, however few.
    """
    rows: list[list[Any]] = []
    for level in LEVELS:
        for weeks in AHEAD:
            here = (pl.col("group") == level) & (pl.col("horizon") == weeks)
            others = {str(m): part for (m,), part in teams.filter(here).group_by("model")}
            for epsilon, runs in ours.items():
                mine = [one.filter(here) for one in runs]
                close = {
                    model: [one for run in mine if (one := ratio(part, run)) is not None]
                    for model, part in others.items()
                }
                means = {m: float(np.mean([r.value for r in rs])) for m, rs in close.items() if rs}
                closest = min(means, key=means.__getitem__)
                row: list[Any] = [f"{ahead(level, weeks)}, ε = {said(epsilon)}", len(mine)]
                for name in ("wis", "ae"):
                    found = [ratio(run, others[BASELINE], name) for run in mine]
                    row.append(over_runs([one.value for one in found if one is not None]))
                row += [
                    100 * float(np.mean([run[c].mean() for run in mine]))
                    for c in ("in_50", "in_95")
                ]
                rows.append([*row, closest, means[closest], close[closest][0].tasks])
    scores = ["WIS", "MAE", "in 50 %", "in 95 %"]
    columns = ["", "runs", *scores, "closest other", "its WIS over ours", "shared tasks"]
    forms: list[Any] = ["{}", "{}", MEAN, MEAN, "{:.1f}", "{:.1f}", "{}", "{:.2f}", "{}"]
    return table(columns, forms, rows)


def coverage(ours: Runs) -> dict[str, Any]:
    """How often the truth lay inside, nation and states together, over all runs, and how sure.

    Forecasts of one date err alike: between the ends lie 95 % of drawings of the dates.
    """
    rng = np.random.default_rng(0)
    rows = []
    for weeks in AHEAD:
        for epsilon, runs in ours.items():
            every = pl.concat(runs).filter(pl.col("horizon") == weeks)
            inside = 100 * every.select("in_50", "in_95").to_numpy().mean(axis=0)
            by_date = _by_date(every)["inside"].to_numpy()
            drawn = rng.choice(by_date, (DRAWS, len(by_date))).mean(axis=1)
            ends = [float(end) for end in np.quantile(drawn, [0.025, 0.975])]
            rows.append([_far(weeks, epsilon), *map(float, inside), ends])
    return table(
        ["", "in 50 %", "in 95 %", "dates drawn anew"],
        ["{}", "{:.1f}", "{:.1f}", "{:.0f} to {:.0f}"],
        rows,
    )


def dates(ours: Runs) -> dict[str, Any]:
    """The same for each Monday, at the first budget."""
    first = pl.concat(next(iter(ours.values())))
    parts = [_by_date(first.filter(pl.col("horizon") == weeks)) for weeks in AHEAD]
    both = parts[0].join(parts[1], on="reference_date", how="left", suffix="_later")
    rows = [[str(day), *values] for day, *values in both.sort("reference_date").iter_rows()]
    columns = ["Monday", "1 week, in 95 %", "above", "2 weeks, in 95 %", "above "]
    return table(columns, ["{}", *["{:.0f}"] * 4], rows)


def _by_date(scores: pl.DataFrame) -> pl.DataFrame:
    """In per cent, how much of each date's truth lay inside, and above the median."""
    above = (pl.col("overprediction") < pl.col("underprediction")).mean()
    return scores.group_by("reference_date").agg(
        inside=100 * pl.col("in_95").mean(), above=100 * above
    )


def _far(weeks: int, epsilon: float) -> str:
    return f"{weeks} week{'s' if weeks > 1 else ''}, ε = {said(epsilon)}"


def others(teams: pl.DataFrame) -> dict[str, Any]:
    """All other models relative to the baseline, each on the tasks it has."""
    rows = [
        [f"{row['model']}, {ahead(row['group'], row['horizon'])}", row["wis_ratio"],
         row["mae_ratio"], 100 * row["coverage_95"], row["shared_tasks"]]
        for row in compare(teams, BASELINE)
        if row["wis_ratio"] is not None
    ]  # fmt: skip
    columns = ["model", "WIS", "MAE", "in 95 %", "tasks"]
    return table(columns, ["{}", "{:.3f}", "{:.3f}", "{:.1f}", "{}"], rows)


def drawn(teams: pl.DataFrame, ours: Mapping[float, Sequence[pl.DataFrame]], path: Path) -> None:
    """The figure of all models, ours by its first run at each budget."""
    names = {e: f"{OURS}-{'no_privacy' if math.isinf(e) else f'eps_{e:g}'}" for e in ours}
    first = [runs[0].with_columns(model=pl.lit(names[e])) for e, runs in ours.items()]
    focus = next(iter(names.values()))
    records = compare(pl.concat([teams, *first]), BASELINE)
    drawing.save(hub_figure(records, ("group", "horizon"), BASELINE, focus, SOURCES), path)


def main() -> None:
    """Make what is missing, score it beside the teams, and keep it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--epsilon", type=float, nargs="*", default=[math.inf, 1.0, 0.1])
    parser.add_argument("--runs", type=int, default=15, help="at finite ε")
    parser.add_argument("--only", choices=LEADS, nargs="*", default=list(LEADS))
    parser.add_argument("--keep", action="store_true")
    asked = parser.parse_args()
    panel = load_panel(asked.data)
    truth = read_truth(asked.data / "hub_de_truth.csv")
    vintages = load_vintages(asked.data / "linelist_vintages.parquet", regions=panel.regions)
    for name in asked.only:
        totals = Totals.of(panel, truth, read_locations(LOCATIONS).regions, LEADS[name])
        known = Known(name, panel, totals, vintages if name == "mornings" else None)
        runs = {e: of_runs(asked.work, name, e, asked.runs, known.forecasts) for e in asked.epsilon}
        teams, ours = scored(runs, asked.data)
        found = {
            name: beside(teams, ours),
            f"{name} coverage": coverage(ours),
            f"{name} dates": dates(ours),
            f"{name} others": others(teams),
        }
        for row in (row for part in found.values() for row in part["rows"]):
            print(*row, sep="  ")
        if asked.keep:
            command = f"python benchmarks/german_hub.py --runs {asked.runs} --only {name} --keep"
            print(keep("german_hub", command, found))
            if name == "thursday":
                drawn(teams, ours, ROOT / "docs" / "images" / "german_hub.png")


if __name__ == "__main__":
    main()
