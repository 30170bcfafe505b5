"""States and nation of Germany beside the teams of the German hub, on the same 22 Mondays.

The counts of states and nation are the hub's own truth, by day of publication, as it was known on
each Monday; what the counties share is learned from their final counts up to the day before
(`--lead 1`: not in real time) or up to four days before (`--lead 4`: days of which all but 3 %
were known), or from what was known on the mornings, as far as vintages reach (`--vintages`).

    python benchmarks/german_hub.py --data shared/data --runs 15 --out german_hub
"""

import argparse
import math
import tempfile
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from epifed.evaluate.backtest import mornings_between, run_backtest
from epifed.files import to_json, write_text
from epifed.hubs.layout import to_hub
from epifed.hubs.locations import read_locations
from epifed.hubs.scores import score
from epifed.hubs.skill import compare
from epifed.hubs.tables import TASK, read_forecasts, read_truth
from epifed.learner import settings_for
from epifed.levels import choose
from epifed.panel import CasePanel
from epifed.report import drawing
from epifed.report.hub_figure import hub_figure
from epifed.sources import load_panel
from epifed.sources.vintages import load_vintages
from epifed.targets import Targets, Totals
from epifed.weeks import Weeks

FIRST, LAST = date(2020, 10, 12), date(2021, 3, 8)
WARM_UP = 12
"""Weeks of releases before the first Monday, which the first forecasts know of."""
LOCATIONS = Path(__file__).with_name("german_hub_locations.csv")
BASELINE = "KIT-baseline"
SOURCES = (
    "Forecasts: German and Polish COVID-19 Forecast Hub, the named teams. Truth and county cases: "
    "Robert Koch-Institut (RKI), CC BY 4.0; data changed (regions merged, daily differences)",
)
AHEAD = (1, 2)


def forecasts(
    panel: CasePanel, totals: Totals, epsilon: float, run: int, vintages: Path | None
) -> pl.DataFrame:
    """The forecasts of one run from all Mondays, as a hub keeps them."""
    locations = read_locations(LOCATIONS)
    levels = choose(panel, ["state", "nation"])
    targets = Targets(levels, AHEAD, Weeks(ends=5, reference=0), totals)
    learner = "nowcast" if vintages else "trend"
    settings = settings_for(panel, {"learner": learner, "epsilon": epsilon, "seed": run})
    history = None
    if vintages:
        history = load_vintages(vintages, regions=panel.regions)
        origins = mornings_between(date(2020, 8, 17), history.last, 7, panel, history, 7)
    else:
        weeks = (LAST - FIRST).days // 7 + WARM_UP + 1
        first = FIRST - timedelta(days=7 * WARM_UP + totals.lead)
        origins = [first + timedelta(days=7 * week) for week in range(weeks)]
    with tempfile.TemporaryDirectory() as out:
        result = run_backtest(
            panel, settings, origins, Path(out), vintages=history, targets=targets, workers=1
        )
    assert result.levels is not None
    rows = to_hub(result.levels.forecasts, locations=locations)
    return rows.select(*TASK, level="output_type_id", value="value").with_columns(
        pl.col("horizon").cast(pl.Int64)
    )


def name(epsilon: float) -> str:
    return f"epifed-{'no_privacy' if math.isinf(epsilon) else f'eps_{epsilon:g}'}"


def of_runs(table: pl.DataFrame, model: str, baseline: str) -> list[dict[str, Any]]:
    """The scores of a model's runs, each against the baseline: mean and deviation.

    `best` is the WIS of the best other model relative to ours, on the tasks of both.
    """
    keys = ("group", "horizon")
    others = table.filter(pl.col("model").str.contains("#").not_())
    rows = []
    for run in table.filter(pl.col("model").str.starts_with(f"{model}#"))["model"].unique():
        both = pl.concat([others, table.filter(pl.col("model") == run)])
        records = compare(both, baseline, keys, against=run)
        for row in (one for one in records if one["model"] == run):
            same = [one for one in records if all(one[key] == row[key] for key in keys)]
            rows.append(row | {"best": min(o["against"] for o in same if o["model"] != run)})
    found = []
    for group in sorted({tuple(row[key] for key in keys) for row in rows}):
        mine = [row for row in rows if tuple(row[key] for key in keys) == group]
        values = {
            score: [row[score] for row in mine]
            for score in ("mae_ratio", "wis_ratio", "coverage_50", "coverage_95", "best")
        }
        found.append(
            {"model": model, "level": group[0], "horizon": group[1], "runs": len(mine)}
            | {f"{k}": float(np.mean(v)) for k, v in values.items()}
            | {f"{k}_deviation": float(np.std(v, ddof=len(v) > 1)) for k, v in values.items()}
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epsilon", type=float, nargs="*", default=[math.inf, 1.0, 0.1])
    parser.add_argument("--runs", type=int, default=15, help="at finite ε")
    parser.add_argument("--lead", type=int, default=4)
    parser.add_argument("--vintages", type=Path, help="on the mornings that it has, lead 1")
    asked = parser.parse_args()
    panel = load_panel(asked.data)
    truth = read_truth(asked.data / "hub_de_truth.csv")
    locations = read_locations(LOCATIONS)
    lead = 1 if asked.vintages else asked.lead
    totals = Totals.of(panel, truth, locations.regions, lead)
    made = [read_forecasts(asked.data / "hub_de_forecasts.parquet")]
    for epsilon in asked.epsilon:
        for run in range(1 if math.isinf(epsilon) else asked.runs):
            rows = forecasts(panel, totals, epsilon, run, asked.vintages)
            made.append(rows.with_columns(model=pl.lit(f"{name(epsilon)}#{run}")))
    every = pl.concat(made, how="diagonal").filter(pl.col("horizon").is_in(AHEAD))
    ours = every.filter(pl.col("model").str.contains("#"))["reference_date"].unique()
    days = [day for day in ours if asked.vintages or FIRST <= day <= LAST]
    scored = score(every.filter(pl.col("reference_date").is_in(days)), truth, locations.levels)
    first = pl.col("model").str.contains("#[1-9]").not_()
    once = scored.table.filter(first).with_columns(pl.col("model").str.strip_suffix("#0"))
    runs = [row for e in asked.epsilon for row in of_runs(scored.table, name(e), BASELINE)]
    focus = name(asked.epsilon[0])
    table = compare(once, BASELINE, against=focus)
    write_text(asked.out / "german_hub.json", to_json({"runs": runs, "models": table}) + "\n")
    figure = hub_figure(table, ("group", "horizon"), BASELINE, focus, SOURCES)
    drawing.save(figure, asked.out / "german_hub.png")
    pooled = scored.table.filter(pl.col("model").str.contains("#")).group_by("horizon")
    print(pooled.agg(pl.col("in_95").mean(), pl.col("in_50").mean()))
    for row in runs:
        print(
            f"{row['model']:22} {row['level']:7} week {row['horizon']}  MAE {row['mae_ratio']:.3f} "
            f"± {row['mae_ratio_deviation']:.3f}  WIS {row['wis_ratio']:.3f} ± "
            f"{row['wis_ratio_deviation']:.3f}  in 50/95 %: {row['coverage_50']:.3f} "
            f"{row['coverage_95']:.3f}  best other / ours {row['best']:.3f}"
        )


if __name__ == "__main__":
    main()
