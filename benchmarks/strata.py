"""Errors by the size of a county, and what clipping does: from the runs that are kept.

    python benchmarks/strata.py

`benchmarks/reproduction.py` keeps the runs of `epifed reproduce`, one row per run and population
cluster; this makes the tables of docs/strata.md from them.
"""

import math
from collections.abc import Mapping
from typing import Any

import polars as pl

from epifed.evaluation.metrics import CLIPPED, STRATA
from epifed.evaluation.results_folder import ALL, FEDERATED, TRAINED, summary
from epifed.paper import by_size
from epifed.report.tables import budget
from kept import keep, kept_runs, spread, table

EPSILONS = (0.3, 0.5, 1.0, 2.0, math.inf)
LOCAL = "local MLP"
"""The baseline of each client's own network."""
CLUSTERS = [name for name, _, _ in STRATA]
SCORES = ("mape", "mdape", "mae_per_100k")
METRICS = {"mse": "MSE", "mae": "MAE", "mape": "MAPE %", "r2": "R²"}
UPDATES = {
    "not clipped, no noise (ε = ∞)": (FEDERATED, math.inf),
    "clipped, no noise": (CLIPPED, None),
    "clipped, noise of ε = 2": (FEDERATED, 2.0),
    "persistence": ("persistence", None),
}
SHORT = ("{:short}", "{:short} ± {:short}")
RATIO = ("{:.2f}", "{:.2f} ± {:.2f}")
CELLS = [(p, s) for p in ("2020-11", "2022-03") for s in ("shuffled", "temporal")]
COLUMNS = [("persistence", None), (LOCAL, None), *((FEDERATED, e) for e in EPSILONS)]

Sizes = Mapping[tuple[object, ...], Mapping[str, Any]]
"""The scores by period, split, method, budget and cluster."""


def cluster_tables(sizes: Sizes) -> dict[str, Any]:
    """A table for each period, split and score."""
    heads = ["inhabitants", "counties", "persistence", "own MLP"]
    heads += [f"ε {budget(e)}" for e in EPSILONS]
    formats = ["{}", "{}", *[SHORT] * len(COLUMNS)]
    return {
        f"{period} {split} {score}": table(
            heads,
            formats,
            [
                [name, sizes[period, split, "persistence", None, name]["regions"]]
                + [spread(sizes[period, split, *column, name], score) for column in COLUMNS]
                for name in CLUSTERS
            ],
        )
        for period, split in CELLS
        for score in SCORES
    }


def own_model(sizes: Sizes) -> dict[str, Any]:
    """The shared model's MAE per 100,000 over that of each county's own network, by size."""
    rows = [
        [period, split, budget(epsilon)]
        + [
            over(
                sizes[period, split, FEDERATED, epsilon, name],
                sizes[period, split, LOCAL, None, name],
                "mae_per_100k",
            )
            for name in CLUSTERS
        ]
        for period, split in CELLS
        for epsilon in (2.0, math.inf)
    ]
    return table(["period", "split", "ε", *CLUSTERS], ["{}"] * 3 + [RATIO] * len(CLUSTERS), rows)


def over(shared: Mapping[str, Any], own: Mapping[str, Any], score: str) -> list[float]:
    """The ratio of two independent means, and its deviation."""
    ratio = shared[score] / own[score]
    relative = [(row[f"{score}_std"] or 0.0) / row[score] for row in (shared, own)]
    return [float(f"{value:.6g}") for value in (ratio, ratio * math.hypot(*relative))]


def clipping(runs: pl.DataFrame) -> dict[str, Any]:
    """The non-private federation, the same clipped without noise, and ε = 2."""
    cells = {
        (row["period"], row["split"], row["method"], row["epsilon"]): row
        for row in summary(runs).iter_rows(named=True)
    }
    rows = [
        [period, split, updates, cells[period, split, *method]["runs"]]
        + [spread(cells[period, split, *method], score, "_mean") for score in METRICS]
        for period, split in CELLS
        for updates, method in UPDATES.items()
    ]
    heads = ["period", "split", "updates", "runs", *METRICS.values()]
    return table(heads, ["{}"] * 4 + [SHORT] * len(METRICS), rows)


def counted_runs(runs: pl.DataFrame) -> dict[str, Any]:
    """How many runs each budget has, and each county's own network."""
    shown = runs.filter(
        pl.col("stratum") == ALL, TRAINED | pl.col("method").is_in([LOCAL, CLIPPED])
    )
    counts = shown.group_by("period", "split", "method", "epsilon").len()
    by_cell = {tuple(row[:-1]): row[-1] for row in counts.rows()}
    columns = {LOCAL: (LOCAL, None), CLIPPED: (CLIPPED, None)}
    budgets = sorted(e for e in set(shown["epsilon"]) if e is not None)
    columns |= {f"ε {budget(e)}": (FEDERATED, e) for e in budgets}
    rows = [
        [period, split, *(by_cell.get((period, split, *key), 0) for key in columns.values())]
        for period, split in CELLS
    ]
    return table(["period", "split", *columns], ["{}"] * (2 + len(columns)), rows)


def size_tables(runs: pl.DataFrame) -> dict[str, Any]:
    """All tables of the page on sizes."""
    keys = ("period", "split", "method", "epsilon", "stratum")
    sizes = {tuple(row[k] for k in keys): row for row in by_size(runs).iter_rows(named=True)}
    tables = cluster_tables(sizes)
    return tables | {
        "own": own_model(sizes),
        "clipping": clipping(runs),
        "runs": counted_runs(runs),
    }


if __name__ == "__main__":
    print(keep("strata", "python benchmarks/strata.py", size_tables(kept_runs("reproduction"))))
