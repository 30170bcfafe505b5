"""Errors by the size of a county, and what clipping does: from the runs of `epifed reproduce`.

    epifed reproduce --data DATA --out results --runs 5
    python benchmarks/strata.py DATA results [more results]

Several folders of the same experiment are joined.
"""

import sys
from pathlib import Path
from typing import Any

import polars as pl

from epifed.data.readers import read_prepared
from epifed.evaluation.metrics import CLIPPED, STRATA
from epifed.evaluation.results_folder import FEDERATED, KEYS, TRAINED, summary
from epifed.paper import LOCAL, against_own_model, by_size
from epifed.report.tables import budget
from kept import keep, table

COMMAND = "python benchmarks/strata.py ../shared/data results"
EPSILONS = (0.3, 0.5, 1.0, 2.0, float("inf"))
CLUSTERS = [name for name, _, _ in STRATA]
SHORT = ("{:short}", "{:short} ± {:short}")
RATIO = ("{:.2f}", "{:.2f} ± {:.2f}")
CELLS = [(p, s) for p in ("2020-11", "2022-03") for s in ("shuffled", "temporal")]


def joined(folders: list[Path], name: str) -> pl.DataFrame:
    """A table of several folders; what two of them computed counts once."""
    every = pl.concat(pl.read_parquet(folder / name) for folder in folders)
    own = ("stratum",) if "stratum" in every.columns else ("region", "target_day")
    return every.unique([*KEYS, *own], keep="first", maintain_order=True)


def cell(mean: float | None, deviation: float | None) -> list[float] | None:
    """Mean and deviation, six digits."""
    if mean is None:
        return None
    return [float(f"{one:.6g}") for one in (mean, deviation) if one is not None]


def cluster_tables(scored: pl.DataFrame) -> dict[str, Any]:
    """A table for each period, split and score."""
    found = {}
    for period, split in CELLS:
        here = scored.filter(period=period, split=split)
        for score in ("mape", "mdape", "mae_per_100k"):
            rows: list[list[Any]] = []
            for name in CLUSTERS:
                row = here.filter(TRAINED & (pl.col("stratum") == name))
                by_budget = {one["epsilon"]: one for one in row.iter_rows(named=True)}
                first = row.row(0, named=True)
                own = here.filter(method=LOCAL, stratum=name).row(0, named=True)
                rows.append(
                    [
                        name, first["regions"], cell(first[f"{score}_persistence"], None),
                        cell(own[score], own[f"{score}_std"]),
                        *(cell(by_budget[e][score], by_budget[e][f"{score}_std"])
                          if e in by_budget else None for e in EPSILONS),
                    ]
                )  # fmt: skip
            heads = ["inhabitants", "counties", "persistence", "own MLP"]
            found[f"{period} {split} {score}"] = table(
                [*heads, *(f"ε {budget(e)}" for e in EPSILONS)],
                ["{}", "{}", *[SHORT] * (2 + len(EPSILONS))],
                rows,
            )
    return found


def own_model(scored: pl.DataFrame) -> dict[str, Any]:
    """The shared model's MAE over that of each county's own network, by size."""
    ratios = against_own_model(scored).filter(pl.col("epsilon").is_in([2.0, float("inf")]))
    rows = [
        [
            period, split, budget(epsilon),
            *(cell(*ratios.filter(
                period=period, split=split, stratum=name, epsilon=epsilon
            ).select("ratio", "ratio_std").row(0)) for name in CLUSTERS),
        ]
        for period, split in CELLS
        for epsilon in (2.0, float("inf"))
    ]  # fmt: skip
    return table(["period", "split", "ε", *CLUSTERS], ["{}"] * 3 + [RATIO] * len(CLUSTERS), rows)


def clipping(runs: pl.DataFrame) -> dict[str, Any]:
    """The non-private federation, the same clipped without noise, and ε = 2."""
    means = summary(runs)
    rows: list[list[Any]] = []
    for period, split in CELLS:
        here = means.filter(period=period, split=split)
        for name, chosen in (
            ("not clipped, no noise (ε = ∞)",
             (pl.col("method") == FEDERATED) & pl.col("epsilon").is_infinite()),
            ("clipped, no noise", pl.col("method") == CLIPPED),
            ("clipped, noise of ε = 2", (pl.col("method") == FEDERATED) & (pl.col("epsilon") == 2)),
            ("persistence", pl.col("method") == "persistence"),
        ):  # fmt: skip
            row = here.filter(chosen).row(0, named=True)
            scores = [cell(row[f"{m}_mean"], row[f"{m}_std"]) for m in ("mse", "mae", "mape", "r2")]
            rows.append([period, split, name, *scores])
    heads = ["period", "split", "updates", "MSE", "MAE", "MAPE %", "R²"]
    return table(heads, ["{}"] * 3 + [SHORT] * 4, rows)


def main(data: Path, folders: list[Path]) -> None:
    """Keep the tables."""
    runs = joined(folders, "runs.parquet")
    scored = by_size(joined(folders, "predictions.parquet"), read_prepared(data))
    kept = cluster_tables(scored) | {"own": own_model(scored), "clipping": clipping(runs)}
    number = scored.filter(TRAINED | pl.col("method").is_in([CLIPPED, LOCAL]))
    for period, split in CELLS:
        here = number.filter(period=period, split=split, stratum=CLUSTERS[0])
        kept[f"runs {period} {split}"] = {
            f"{method} {budget(epsilon)}".strip(): runs
            for method, epsilon, runs in here.select("method", "epsilon", "runs").rows()
        }
    print(keep("strata", COMMAND, kept))


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(folder) for folder in sys.argv[2:]])
