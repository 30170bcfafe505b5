"""Influenza admissions of US states against FluSight-baseline, on exactly its tasks.

    python benchmarks/flusight.py --data ../shared/data --work FOLDER --runs 15 --keep

Every state is a client, every Saturday from `--from` on a release; the reference date of a hub's
round is the Saturday after the last week that was known. Truth is the file's, a later state than
what teams had. `epifed backtest --hub` and `epifed hub score` give the same numbers. Every run's
forecasts stay in the folder, so it may be stopped; `--keep` writes `results/weekly.json`.
"""

import argparse
import math
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl

import epifed
from _runs import MEAN, hub_rows, of_runs, over_runs, said
from epifed.hubs.scores import compare, score
from epifed.hubs.tables import TASK, Locations, read_forecasts, read_truth
from kept import keep, table

BASELINE, ENSEMBLE = "FluSight-baseline", "FluSight-ensemble"
NATION = "US"
NAME = "epifed"
ALL = "all"
HORIZONS = (0, 1, 2, 3)
COLUMNS = ["", ALL, *map(str, HORIZONS), "in 50 %", "in 95 %"]
FORMS = ["{}", *[MEAN] * 5, "{:.1f}", "{:.1f}"]


def records(teams: pl.DataFrame, truth: pl.DataFrame, ours: pl.DataFrame) -> dict[str, Any]:
    """The scores of our forecasts on the baseline's tasks, over all horizons and by each."""
    model = ours.with_columns(model=pl.lit(NAME)).select(teams.columns)
    scored = score(pl.concat([teams, model]), truth).table
    tasks = scored.filter(model=BASELINE).select(TASK)
    shared = scored.join(tasks, on=TASK, how="semi")
    if len(shared.filter(model=NAME)) != len(tasks):
        raise SystemExit("found a task without a forecast of ours; expected all of them")
    rows = [
        *compare(shared, BASELINE, ("group",)),
        *compare(shared, BASELINE, ("horizon",)),
    ]
    return {f"{row['model']} {row.get('horizon', ALL)}": row for row in rows}


def row(label: str, model: str, runs: Sequence[Mapping[str, Any]]) -> list[Any]:
    """A line of the table: WIS over all horizons and at each, and coverage."""
    every = [
        over_runs([run[f"{model} {horizon}"]["wis_ratio"] for run in runs])
        for horizon in (ALL, *HORIZONS)
    ]
    inside = [
        100 * sum(run[f"{model} {ALL}"][name] for run in runs) / len(runs)
        for name in ("coverage_50", "coverage_95")
    ]
    return [label, *every, *inside]


def main() -> None:
    """Print the scores relative to the baseline, by horizon and over all, and keep them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=15, help="at finite ε")
    parser.add_argument("--epsilon", type=float, nargs="*", default=[math.inf, 1.0])
    parser.add_argument("--from", dest="first", type=date.fromisoformat, default="2022-09-03")
    parser.add_argument("--keep", action="store_true")
    asked = parser.parse_args()
    first = date.fromisoformat(str(asked.first))
    panel = epifed.load_panel(
        asked.data / "flu_admissions.csv", region="location", cases="value", totals="drop"
    )
    truth = read_truth(asked.data / "flu_admissions.csv")
    teams = read_forecasts(asked.data / "flusight_forecasts.parquet")
    last = max(teams["target_end_date"])
    codes = Locations({region: region for region in panel.regions} | {"nation": NATION})

    def forecasts(epsilon: float, run: int) -> pl.DataFrame:
        found = epifed.backtest(
            panel, first, last, learner="trend", epsilon=epsilon, seed=run,
            week_ends="saturday", reference_day="saturday", ahead=HORIZONS,
            level=("region", "nation"),
        )  # fmt: skip
        return hub_rows(found.levels, codes)

    made = {e: of_runs(asked.work, "flusight", e, asked.runs, forecasts) for e in asked.epsilon}
    found: dict[str, Any] = {}
    for place, name in (("states", "season 2023-24"), ("nation", "season 2023-24, nation")):
        here = (pl.col("location") == NATION) == (place == "nation")
        rows: list[list[Any]] = []
        for epsilon, every in made.items():
            runs = [records(teams.filter(here), truth, one.filter(here)) for one in every]
            many = f" for each release ({len(runs)} runs)" if len(runs) > 1 else ""
            rows.append(row(f"ε = {said(epsilon)}{many}", NAME, runs))
        rows.append(row(ENSEMBLE, ENSEMBLE, runs[:1]))
        about = {"first_release": str(first), "tasks": runs[0][f"{NAME} {ALL}"]["tasks"]}
        found[name] = table(COLUMNS, FORMS, rows) | about
        print(place, *rows, sep="\n")
    if asked.keep:
        command = f"python benchmarks/flusight.py --runs {asked.runs} --keep"
        print(keep("weekly", command, found))


if __name__ == "__main__":
    main()
