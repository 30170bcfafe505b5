"""The documentation's tables of `epifed reproduce`, and the runs behind them.

    epifed reproduce --data DATA --out results
    python benchmarks/reproduction.py results     # keeps its runs and curves, and the tables
    python benchmarks/reproduction.py             # the tables and pictures, from the kept runs
    epifed reproduce --data DATA --out one-shot --learner one-shot --resplit
    python benchmarks/reproduction.py one-shot

Runs are added to those that were kept before. Writes results/reproduction.json or, of another
learner than the paper's, small-epsilon.json. A star marks a cell that differs from the paper's by
more than either standard deviation.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from epifed.evaluation.results_folder import FEDERATED, TRAINED, summary
from epifed.report import figures
from epifed.report.drawing import save
from epifed.report.tables import budget, published
from kept import RESULTS, keep, keep_runs, kept_runs, spread, table

COMMAND = "epifed reproduce --data ../shared/data --out results"

PERIODS = {"2020-11": "Nov 2020", "2022-03": "Mar 2022"}
SPLITS = ("shuffled", "temporal")
CELLS = [(period, split) for period in PERIODS for split in SPLITS]
HEADS = [f"{PERIODS[period]} {split}" for period, split in CELLS]
METRICS = {"mse": "MSE", "mae": "MAE", "mape": "MAPE %", "r2": "R²"}
TABLE_OF = {"shuffled": "main", "temporal": "s1"}
"""The paper's table that a split is compared with (docs/reproduction.md says why)."""
SHORT = ("{:short}", "{:short} ± {:short}", "{:short} ± {:short}{:star}")
FIGURES = {"r2": ("{:.4f}", "{:.4f} ± {:.4f}"), "mape": ("{:.2f}", "{:.2f} ± {:.2f}")}
COARSE = {"r2": ("{:.2f}", "{:.2f} ± {:.2f}"), "mape": ("{:.1f}", "{:.1f} ± {:.1f}")}
WHO = ("paper", "epifed", "persistence")
RATIOS = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, float("inf"))

Key = tuple[str, str, str, float | None]


class Means:
    """Mean and deviation of each method, split and period, and what the paper says."""

    def __init__(self, means: pl.DataFrame, learner: str) -> None:
        self.learner = learner
        self.methods = list(dict.fromkeys(means["method"]))
        self.epsilons = sorted({e for e in means["epsilon"] if e is not None})
        self._ours: dict[Key, dict[str, Any]] = {
            (row["split"], row["period"], row["method"], row["epsilon"]): row
            for row in means.iter_rows(named=True)
        }
        self._paper = {
            (row["table"], row["period"], row["epsilon"], row["metric"]): row
            for row in published().iter_rows(named=True)
        }

    def ours(
        self, metric: str, period: str, split: str, method: str, epsilon: float | None = None
    ) -> list[float] | None:
        """A cell of what was computed."""
        row = self._ours.get((split, period, method, epsilon))
        return spread(row, metric, "_mean") if row else None

    def paper(self, metric: str, period: str, split: str, epsilon: float) -> list[float] | None:
        """A cell of the paper's table that belongs to a split."""
        row = self._paper.get((TABLE_OF[split], period, epsilon, metric))
        return spread(row, "published", "_mean") if row else None


def _first(cell: list[float] | None) -> float | None:
    return cell[0] if cell else None


def _digits(value: float) -> float:
    return float(f"{value:.6g}")


def paper_tables(means: Means) -> dict[str, Any]:
    """The paper's experiment: beside its tables, beside persistence, and every baseline."""
    tables: dict[str, Any] = {}
    for period in PERIODS:
        for metric, called in METRICS.items():
            rows: list[list[Any]] = [
                [
                    budget(epsilon),
                    *(
                        cell
                        for split in SPLITS
                        for cell in (
                            means.paper(metric, period, split, epsilon),
                            means.ours(metric, period, split, FEDERATED, epsilon),
                        )
                    ),
                ]
                for epsilon in means.epsilons
            ]
            like_today = [means.ours(metric, period, split, "persistence") for split in SPLITS]
            rows.append(["persistence", None, like_today[0], None, like_today[1]])
            tables[f"{period} {called}"] = table(
                ["ε", "paper, main", "shuffled", "paper, S1", "temporal"],
                ["{}", *[SHORT] * 4],
                [marked(row) for row in rows],
            )
    tables["outside"] = outside(tables)
    for metric in ("mae", "mape"):
        tables[f"baselines {METRICS[metric]}"] = table(
            ["method", *HEADS],
            ["{}", *[SHORT] * len(CELLS)],
            [
                [method, *(means.ours(metric, *cell, method) for cell in CELLS)]
                for method in means.methods
                if method != FEDERATED
            ],
        )
    tables["against persistence"] = table(
        ["split", "period", *(f"ε = {budget(e)}" for e in RATIOS)],
        ["{}", "{}", *["{:.2f}"] * len(RATIOS)],
        [
            [split, period, *(_ratio(means, period, split, epsilon) for epsilon in RATIOS)]
            for split in ("temporal", "shuffled")
            for period in PERIODS
        ],
    )
    tables["in short"] = table(
        ["period", "ε", *(f"{metric} {who}" for metric in ("R²", "MAPE %") for who in WHO)],
        ["{}", "{}", *(COARSE[metric] for metric in ("r2", "mape") for _ in WHO)],
        [
            [
                PERIODS[period],
                budget(epsilon),
                *(
                    cell
                    for metric in ("r2", "mape")
                    for cell in (
                        means.paper(metric, period, "shuffled", epsilon),
                        means.ours(metric, period, "shuffled", FEDERATED, epsilon),
                        means.ours(metric, period, "shuffled", "persistence"),
                    )
                ),
            ]
            for period in PERIODS
            for epsilon in (1.0, 2.0, float("inf"))
        ],
    )
    return tables


def marked(row: list[Any]) -> list[Any]:
    """A row with our cells marked that lie outside the paper's spread and our own."""
    name, *cells = row
    for i in (1, 3):
        paper, ours = cells[i - 1], cells[i]
        if paper and ours and len(ours) > 1:
            far = abs(ours[0] - paper[0]) > max(ours[1], paper[1])
            cells[i] = [*ours[:2], *([1] if far else [])]
    return [name, *cells]


def outside(tables: dict[str, Any]) -> dict[str, int]:
    """How many cells have a number of the paper beside them, and how many are marked."""
    pairs = [
        (row[i], row[i + 1])
        for name, kept in tables.items()
        if name[:7] in PERIODS
        for row in kept["rows"]
        for i in (1, 3)
        if row[i]
    ]
    return {"marked": sum(len(ours) == 3 for _, ours in pairs), "cells": len(pairs)}


def _ratio(means: Means, period: str, split: str, epsilon: float) -> float:
    ours = means.ours("mae", period, split, FEDERATED, epsilon)
    like_today = means.ours("mae", period, split, "persistence")
    assert ours and like_today
    return _digits(ours[0] / like_today[0])


def learner_tables(means: Means) -> dict[str, Any]:
    """Another learner by budget, beside the paper and persistence."""
    tables = {}
    for metric, formats in FIGURES.items():
        rows: list[list[Any]] = [
            [
                f"the paper, ε = {budget(e)}",
                *(means.paper(metric, *cell, e) for cell in CELLS),
            ]
            for e in (2.0, float("inf"))
        ]
        # The mean over the runs: with --resplit persistence has a split for each of them.
        rows.append(
            ["persistence", *(_first(means.ours(metric, *cell, "persistence")) for cell in CELLS)]
        )
        rows += [
            [
                f"{means.learner}, ε = {budget(e)}",
                *(means.ours(metric, *cell, means.learner, e) for cell in CELLS),
            ]
            for e in means.epsilons
            if e in _SHOWN
        ]
        tables[METRICS[metric]] = table([METRICS[metric], *HEADS], ["{}", *[formats] * 4], rows)
    return tables


_SHOWN = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, float("inf"))


def draw(runs: pl.DataFrame, curves: pl.DataFrame) -> None:
    """The pictures of the documentation that need no more than the runs."""
    images = RESULTS.parent.parent / "docs" / "images"
    save(figures.convergence(curves), images / "convergence.png")
    save(figures.by_population(runs, "temporal", "2020-11", "county"), images / "strata.png")


def main(folders: Sequence[str]) -> None:
    """Keep what the results folders hold, or make the tables from what is kept."""
    paper = []
    for folder in map(Path, folders):
        runs = pl.read_parquet(folder / "runs.parquet")
        trained = runs.filter(TRAINED)["method"].unique().to_list()
        if trained == [FEDERATED]:
            paper.append(folder)
            continue
        means = Means(summary(runs), *trained)
        made = json.loads((folder / "manifest.json").read_text())["finished"][:10]
        command = f"{COMMAND} --learner {means.learner} --resplit"
        print(keep("small-epsilon", command, learner_tables(means), made))
    if paper or not folders:
        keep_runs("reproduction", paper)
        runs = kept_runs("reproduction")
        print(keep("reproduction", COMMAND, paper_tables(Means(summary(runs), FEDERATED))))
        draw(runs, kept_runs("reproduction", "convergence"))


if __name__ == "__main__":
    main(sys.argv[1:])
