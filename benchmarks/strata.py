"""Errors by the size of a county, and what clipping does: from the runs of `epifed reproduce`.

    epifed reproduce --data DATA --out results --runs 5
    python benchmarks/strata.py DATA results [more results]
    python benchmarks/strata.py DATA results --add

Several folders of the same experiment are joined. With `--add` the runs are added to those that
were kept before: runs 0, 1, … of a cell that are kept already are left out, and means and
deviations are pooled.
"""

import json
import math
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from epifed.data.readers import read_prepared
from epifed.evaluation.metrics import CLIPPED, STRATA, strata
from epifed.evaluation.results_folder import ALL, FEDERATED, KEYS
from epifed.paper import by_size
from epifed.report.tables import budget
from kept import RESULTS, keep, table

COMMAND = "python benchmarks/strata.py ../shared/data results"
EPSILONS = (0.3, 0.5, 1.0, 2.0, float("inf"))
LOCAL = "local MLP"
"""The baseline of each client's own network."""
CLUSTERS = [name for name, _, _ in STRATA]
SCORES = ("mape", "mdape", "mae_per_100k")
METRICS = {"mse": "MSE", "mae": "MAE", "mape": "MAPE %", "r2": "R²"}
UPDATES = {
    "not clipped, no noise (ε = ∞)": f"{FEDERATED} ∞",
    "clipped, no noise": CLIPPED,
    "clipped, noise of ε = 2": f"{FEDERATED} 2",
    "persistence": "persistence",
}
SHORT = ("{:short}", "{:short} ± {:short}")
RATIO = ("{:.2f}", "{:.2f} ± {:.2f}")
CELLS = [(p, s) for p in ("2020-11", "2022-03") for s in ("shuffled", "temporal")]
METHODS = ["persistence", LOCAL, CLIPPED, *(f"{FEDERATED} {budget(e)}" for e in EPSILONS)]

Key = tuple[str, str, str, str, str]
"""Period, split, method with its budget, stratum, score."""


class Spread(NamedTuple):
    """Mean and standard deviation of so many runs."""

    runs: int
    mean: float
    deviation: float

    def joined(self, other: "Spread") -> "Spread":
        """Of the runs of both."""
        runs = self.runs + other.runs
        mean = (self.runs * self.mean + other.runs * other.mean) / runs
        squares = sum((s.runs - 1) * s.deviation**2 for s in (self, other))
        squares += self.runs * other.runs / runs * (self.mean - other.mean) ** 2
        return Spread(runs, mean, math.sqrt(squares / (runs - 1)))

    def over(self, other: "Spread") -> list[float]:
        """The ratio of two independent means, and its deviation."""
        ratio = self.mean / other.mean
        relative = [s.deviation / s.mean for s in (self, other)]
        return [_digits(ratio), _digits(ratio * math.hypot(*relative))]

    def cell(self) -> list[float]:
        """As it is kept: a single run has no deviation."""
        return [_digits(self.mean), *([_digits(self.deviation)] if self.runs > 1 else [])]


Spreads = dict[Key, Spread]


def _digits(value: float) -> float:
    return float(f"{value:.6g}")


def joined(folders: list[Path], name: str) -> pl.DataFrame:
    """A table of several folders; what two of them computed counts once."""
    every = pl.concat(pl.read_parquet(folder / name) for folder in folders)
    own = ("stratum",) if "stratum" in every.columns else ("region", "target_day")
    return every.unique([*KEYS, *own], keep="first", maintain_order=True)


def named() -> pl.Expr:
    """A method with its budget, if it has one."""
    budgets = pl.col("epsilon").map_elements(budget, return_dtype=pl.String)
    return pl.concat_str(["method", budgets], separator=" ", ignore_nulls=True).alias("named")


def of_runs(frame: pl.DataFrame, scores: Iterable[str]) -> Spreads:
    """The spread of each score over the runs of a frame with a row for each run and stratum."""
    cells = ["period", "split", "named", "stratum"]
    spreads = {}
    for score in scores:
        grouped = frame.group_by(cells).agg(
            pl.len().alias("runs"), pl.col(score).mean().alias("mean"), pl.col(score).std()
        )
        for *key, runs, mean, deviation in grouped.rows():
            period, split, method, stratum = map(str, key)
            spreads[period, split, method, stratum, score] = Spread(runs, mean, deviation or 0.0)
    return spreads


def of_kept(before: Mapping[str, Any]) -> Spreads:
    """The same from what is kept."""
    spreads = {}
    for period, split in CELLS:
        runs = before[f"runs {period} {split}"] | {"persistence": 1}
        columns = ["persistence", LOCAL, *(f"{FEDERATED} {budget(e)}" for e in EPSILONS)]
        for score in SCORES:
            for name, _, *cells in before[f"{period} {split} {score}"]["rows"]:
                for method, cell in zip(columns, cells, strict=True):
                    key = (period, split, method, name, score)
                    spreads[key] = Spread(runs[method], cell[0], (*cell, 0.0)[1])
        for period_of, split_of, updates, *cells in before["clipping"]["rows"]:
            if (period_of, split_of) == (period, split):
                method = UPDATES[updates]
                for score, cell in zip(METRICS, cells, strict=True):
                    key = (period, split, method, ALL, score)
                    spreads[key] = Spread(runs[method], cell[0], (*cell, 0.0)[1])
    return spreads


def not_kept(frame: pl.DataFrame, before: Mapping[str, Any]) -> pl.DataFrame:
    """The runs of a frame that are not among those that are kept."""
    counts = pl.DataFrame(
        [
            {"period": period, "split": split, "named": method, "kept": runs}
            for period, split in CELLS
            for method, runs in (before[f"runs {period} {split}"] | {"persistence": 1}).items()
            if method in METHODS
        ]
    )
    return frame.join(counts, on=["period", "split", "named"], how="left").filter(
        pl.col("run") >= pl.col("kept").fill_null(0)
    )


def cluster_tables(spreads: Spreads, counties: Mapping[str, int]) -> dict[str, Any]:
    """A table for each period, split and score."""
    tables = {}
    columns = [method for method in METHODS if method != CLIPPED]
    heads = ["inhabitants", "counties", "persistence", "own MLP"]
    for period, split in CELLS:
        for score in SCORES:
            rows = [
                [name, counties[name],
                 *(spreads[period, split, method, name, score].cell() for method in columns)]
                for name in CLUSTERS
            ]  # fmt: skip
            tables[f"{period} {split} {score}"] = table(
                [*heads, *(f"ε {budget(e)}" for e in EPSILONS)],
                ["{}", "{}", *[SHORT] * (2 + len(EPSILONS))],
                rows,
            )
    return tables


def own_model(spreads: Spreads) -> dict[str, Any]:
    """The shared model's MAE per 100,000 over that of each county's own network, by size."""
    rows = [
        [
            period, split, budget(epsilon),
            *(spreads[period, split, f"{FEDERATED} {budget(epsilon)}", name, "mae_per_100k"].over(
                spreads[period, split, LOCAL, name, "mae_per_100k"]
            ) for name in CLUSTERS),
        ]
        for period, split in CELLS
        for epsilon in (2.0, float("inf"))
    ]  # fmt: skip
    return table(["period", "split", "ε", *CLUSTERS], ["{}"] * 3 + [RATIO] * len(CLUSTERS), rows)


def clipping(spreads: Spreads) -> dict[str, Any]:
    """The non-private federation, the same clipped without noise, and ε = 2."""
    rows = [
        [period, split, updates,
         *(spreads[period, split, method, ALL, score].cell() for score in METRICS)]
        for period, split in CELLS
        for updates, method in UPDATES.items()
    ]  # fmt: skip
    heads = ["period", "split", "updates", *METRICS.values()]
    return table(heads, ["{}"] * 3 + [SHORT] * len(METRICS), rows)


def main(data: Path, folders: list[Path], *, add: bool) -> None:
    """Keep the tables."""
    counties = read_prepared(data)
    runs = joined(folders, "runs.parquet").with_columns(named())
    predictions = joined(folders, "predictions.parquet").with_columns(named())
    path = RESULTS / "strata.json"
    before = json.loads(path.read_text()) if add else {}
    if add:
        runs, predictions = not_kept(runs, before), not_kept(predictions, before)
    by_run = pl.concat(
        by_size(chosen, counties).with_columns(named(), pl.lit(number).alias("run"))
        for (number,), chosen in predictions.group_by("run")
    )
    spreads = of_runs(by_run, SCORES) | of_runs(runs.filter(stratum=ALL), METRICS)
    if add:
        kept_before = of_kept(before)
        spreads = kept_before | {
            key: spread.joined(kept_before[key]) if key in kept_before else spread
            for key, spread in spreads.items()
        }
    assert counties.population is not None
    sizes = {name: int(chosen.sum()) for name, chosen in strata(counties.population)}
    kept = cluster_tables(spreads, sizes)
    kept |= {"own": own_model(spreads), "clipping": clipping(spreads)}
    for period, split in CELLS:
        kept[f"runs {period} {split}"] = {
            method: spreads[period, split, method, CLUSTERS[0] if of_size else ALL, score].runs
            for method in METHODS[1:]
            for of_size, score in [(method != CLIPPED, "mape")]
        }
    print(keep("strata", COMMAND + (" --add" if add else ""), kept))


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--add"]
    main(Path(words[0]), [Path(word) for word in words[1:]], add="--add" in sys.argv)
