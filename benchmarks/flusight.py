"""Influenza admissions of US states against FluSight-baseline, on exactly its tasks.

    python benchmarks/flusight.py --data ../shared/data --runs 15 --out benchmarks/results

Every state is a client, every Saturday from `--from` on a release; the reference date of a hub's
round is the Saturday after the last week that was known. Truth is the file's, a later state than
what teams had. `epifed backtest --hub` and `epifed hub score` give the same numbers.
"""

import argparse
import math
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import epifed
from epifed.files import to_json, write_text
from epifed.hubs.layout import to_hub
from epifed.hubs.scores import score
from epifed.hubs.skill import compare
from epifed.hubs.tables import TASK, read_forecasts, read_truth

BASELINE = "FluSight-baseline"
NATION = "US"
NAME = "epifed"
ALL = "all"
SCORES = ("wis_ratio", "mae_ratio", "coverage_50", "coverage_95")


def forecasts(panel: epifed.CasePanel, epsilon: float, run: int, first: date, last: date) -> Any:
    """The forecasts of one run from all Saturdays, as the hub keeps them."""
    found = epifed.backtest(
        panel, first, last, learner="trend", epsilon=epsilon, seed=run,
        week_ends="saturday", reference_day="saturday", ahead=(0, 1, 2, 3),
    )  # fmt: skip
    assert found.levels is not None
    rows = to_hub(found.levels.forecasts)
    return rows.select(*TASK, level="output_type_id", value="value").with_columns(
        pl.col("horizon").cast(pl.Int64)
    )


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


def main() -> None:
    """Print the scores relative to the baseline, by horizon and over all, and keep them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=15, help="at finite ε")
    parser.add_argument("--epsilon", type=float, nargs="*", default=[math.inf, 1.0])
    parser.add_argument("--from", dest="first", type=date.fromisoformat, default="2022-09-03")
    asked = parser.parse_args()
    first = date.fromisoformat(str(asked.first))
    panel = epifed.load_panel(
        asked.data / "flu_admissions.csv", region="location", cases="value", totals="drop"
    )
    truth = read_truth(asked.data / "flu_admissions.csv")
    teams = read_forecasts(asked.data / "flusight_forecasts.parquet")
    teams = teams.filter(pl.col("location") != NATION)
    last = max(teams["target_end_date"])
    rows: list[dict[str, Any]] = []
    for epsilon in asked.epsilon:
        runs = asked.runs if math.isfinite(epsilon) else 1
        made = [
            records(teams, truth, forecasts(panel, epsilon, run, first, last))
            for run in range(runs)
        ]
        for key in (key for key in made[0] if epsilon == asked.epsilon[0] or key.startswith(NAME)):
            every = {name: [one[key][name] for one in made] for name in SCORES}
            model, horizon = key.split()
            rows.append(
                {
                    "model": model,
                    "epsilon": epsilon if model == NAME else None,
                    "horizon": horizon,
                    "runs": runs if model == NAME else None,
                    "tasks": made[0][key]["tasks"],
                }
                | {name: float(np.mean(values)) for name, values in every.items()}
                | {f"{k}_deviation": float(np.std(v, ddof=len(v) > 1)) for k, v in every.items()}
            )
            row = rows[-1]
            print(
                f"{model:18} ε = {row['epsilon']}, horizon {horizon}: WIS {row['wis_ratio']:.3f} ± "
                f"{row['wis_ratio_deviation']:.3f}, MAE {row['mae_ratio']:.3f}, in 50/95 %: "
                f"{row['coverage_50']:.3f} {row['coverage_95']:.3f}"
            )
    about = {"baseline": BASELINE, "first_release": first, "regions": len(panel.regions)}
    write_text(asked.out / "flusight.json", to_json(about | {"scores": rows}) + "\n")


if __name__ == "__main__":
    main()
