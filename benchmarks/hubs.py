"""Two live hubs as they were: FluSight 2023/24 and the COVID-19 hub, 2024-11 to 2025-08.

    python benchmarks/hubs.py --data ../shared/data --work FOLDER --runs 3 --keep

Every state is a client. Each forecast is made with the vintage of its week and nothing later, by
the default learner. Its forecaster is fitted on what was public before the season (`pretrained.py`
with an earlier last day). The first part of each season was looked at when the learner was chosen
(see docs/evidence/weekly.md). Relative WIS on exactly the tasks of the hub's baseline, states,
horizons 0 to 3, beside all teams of the files. Last, another disease and country by the same
learner: weekly COVID-19 cases of the German states, final counts, against the COVIDhub baseline.
Forecasts stay in the folder, so it may be stopped; `--keep` writes `results/hubs.json`.
"""

import argparse
import math
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl

import epifed
from _runs import MEAN, hub_rows, of_runs, over_runs, said
from epifed.data.panel import CasePanel, choose
from epifed.data.readers.vintage_files import load_weekly_vintages
from epifed.data.weekly_vintages import WeeklyVintages
from epifed.evaluation.experiment import code_digest
from epifed.hubs.tables import TASK, compare, read_forecasts, read_truth, score
from kept import keep, table
from pretrained import fitted

NAME, NATION, ALL = "epifed", "US", "all"
HORIZONS = (0, 1, 2, 3)
COLUMNS = ["rank", "", "tasks", ALL, *map(str, HORIZONS), "in 50 %", "in 95 %"]
FORMS = ["{}", "{}", "{:,}", *[MEAN] * 5, "{:.1f}", "{:.1f}"]

GERMANY, GERMAN_FIRST, GERMAN_LAST = "German states", date(2020, 9, 6), date(2022, 6, 1)
GERMAN_COLUMNS = ["weeks ahead", "WIS", "MAE", "in 50 %", "in 95 %"]
GERMAN_FORMS = ["{}", "{:.3f}", "{:.3f}", "{:.1f}", "{:.1f}"]


@dataclass(frozen=True)
class Hub:
    """One season of a hub: its files, its baseline, and where the part not looked at begins."""

    name: str
    public: date
    """The last day of the public data that its forecaster learns from."""
    vintages: str
    forecasts: str
    truth: str | None
    baseline: str
    rest: date


HUBS = (
    Hub("FluSight 2023-24", date(2023, 9, 23), "flu_vintages.parquet", "flu_forecasts.parquet",
        "flu_admissions.csv", "FluSight-baseline", date(2024, 1, 20)),
    Hub("COVID-19 2024-25", date(2024, 11, 2), "covid_vintages.parquet", "covid_forecasts.parquet",
        None, "CovidHub-baseline", date(2025, 4, 5)),
)  # fmt: skip


def states_of(hub: Hub, data: Path) -> tuple[WeeklyVintages, CasePanel, pl.DataFrame]:
    """The vintages of the states, their final counts, and these as a hub's truth."""
    every = load_weekly_vintages(data / hub.vintages)
    vintages = every.of([region for region in every.regions if region != NATION])
    if hub.truth is None:
        panel = vintages.final()
        truth = panel.to_table().select("date", location="region", value="cases")
        return vintages, panel, truth
    path = data / hub.truth
    panel = epifed.load_panel(path, region="location", cases="value", totals="drop")
    return vintages, panel.of(vintages.regions), read_truth(path)


def scores(hub: Hub, teams: pl.DataFrame, truth: pl.DataFrame, ours: pl.DataFrame) -> pl.DataFrame:
    """The scores of all models, on the baseline's tasks in the states."""
    model = ours.with_columns(model=pl.lit(NAME)).select(teams.columns)
    scored = score(pl.concat([teams, model]), truth).table
    tasks = scored.filter(model=hub.baseline).select(TASK)
    shared = scored.join(tasks, on=TASK, how="semi")
    if len(shared.filter(model=NAME)) != len(tasks):
        raise SystemExit("found a task without a forecast of ours; expected all of them")
    return shared


def ratios(hub: Hub, scored: pl.DataFrame) -> dict[str, dict[Any, Any]]:
    """The record of each model over all horizons, and its relative WIS at each."""
    found: dict[str, dict[Any, Any]] = {}
    for row in compare(scored, hub.baseline, ("group",)):
        found[row["model"]] = {ALL: row["wis_ratio"], "record": row}
    for row in compare(scored, hub.baseline, ("horizon",)):
        found[row["model"]][row["horizon"]] = row["wis_ratio"]
    return found


def ranked(hub: Hub, runs: dict[str, list[pl.DataFrame]]) -> list[list[Any]]:
    """The table of all models, the best first; ours by the runs of each budget."""
    rows: list[list[Any]] = []
    for label, scored in runs.items():
        every = [ratios(hub, one) for one in scored]
        for model, record in every[0].items():
            if model != NAME and any(row[1] == model for row in rows):
                continue
            mine = [one[model] for one in every] if model == NAME else [record]
            values = [over_runs([one[key] for one in mine]) for key in (ALL, *HORIZONS)]
            inside = [
                100 * sum(one["record"][name] for one in mine) / len(mine)
                for name in ("coverage_50", "coverage_95")
            ]
            shown = f"**{label}**" if model == NAME else model
            rows.append([0, shown, record["record"]["tasks"], *values, *inside])
    rows.sort(key=lambda row: row[3][0] if isinstance(row[3], list) else row[3])
    rank = 0
    for row in rows:
        rank += not (row[1].startswith("**") and "∞" not in row[1])
        row[0] = rank if "**" not in row[1] or "∞" in row[1] else None
    return rows


def german_states(data: Path) -> list[list[Any]]:
    """How well the weekly cases of the German states are forecast, by weeks ahead; no privacy."""
    counties = epifed.load_panel(data)
    (states,) = choose(counties, ("state",))
    panel = states.panel(counties).weekly()
    rows: list[list[Any]] = []
    for ahead in (1, 2, 3, 4):
        made = epifed.backtest(
            panel, GERMAN_FIRST, GERMAN_LAST, epsilon=math.inf, horizon=ahead
        ).summary()
        scores = [made[name] for name in ("wis_ratio", "mae_ratio")]
        rows.append([ahead, *scores, 100 * made["coverage_50"], 100 * made["coverage_95"]])
    return rows


def forecaster(hub: Hub, data: Path, work: Path) -> Path:
    """The file of what was public before a hub's season; fitted if this code has not yet."""
    path = work / code_digest()[:16] / f"pretrained_{hub.public}.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        fitted(data, hub.public).write(path)
    return path


def main() -> None:
    """Print the tables of both hubs, whole and rest, and keep them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=3, help="at finite ε")
    parser.add_argument("--epsilon", type=float, nargs="*", default=[math.inf, 1.0])
    parser.add_argument("--keep", action="store_true")
    asked = parser.parse_args()
    kept: dict[str, Any] = {}
    for hub in HUBS:
        vintages, panel, truth = states_of(hub, asked.data)
        teams = read_forecasts(asked.data / hub.forecasts)
        teams = teams.filter(pl.col("location") != NATION, pl.col("horizon").is_in(HORIZONS))

        learned = str(forecaster(hub, asked.data, asked.work))

        def forecasts(
            epsilon: float, run: int, panel: CasePanel = panel, vintages: WeeklyVintages = vintages,
            learned: str = learned,
        ) -> pl.DataFrame:  # fmt: skip
            made = epifed.backtest(
                panel, vintages.first, vintages.last, vintages=vintages, epsilon=epsilon,
                seed=run, reference_day="saturday", ahead=HORIZONS, level="region",
                pretrained=learned,
            )  # fmt: skip
            return hub_rows(made.levels)

        runs: dict[str, list[pl.DataFrame]] = {}
        for epsilon in asked.epsilon:
            name = hub.name.replace(" ", "_")
            made = of_runs(asked.work, name, epsilon, asked.runs, forecasts)
            many = f", {len(made)} runs" if len(made) > 1 else ""
            label = f"epifed, ε = {said(epsilon)}{many}"
            runs[label] = [scores(hub, teams, truth, one) for one in made]
        rest = {
            label: [one.filter(pl.col("reference_date") >= hub.rest) for one in scored]
            for label, scored in runs.items()
        }
        for part, of in (("", runs), (", rest", rest)):
            rows = ranked(hub, of)
            kept[hub.name + part] = table(COLUMNS, FORMS, rows)
            print(hub.name + part, *rows, sep="\n")
    kept[GERMANY] = table(GERMAN_COLUMNS, GERMAN_FORMS, german_states(asked.data))
    print(GERMANY, *kept[GERMANY]["rows"], sep="\n")
    if asked.keep:
        command = f"python benchmarks/hubs.py --runs {asked.runs} --keep"
        print(keep("hubs", command, kept))


if __name__ == "__main__":
    main()
