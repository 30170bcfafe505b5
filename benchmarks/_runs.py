"""Forecasts of several runs, each kept in a folder, so that a benchmark may be stopped."""

import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from epifed.evaluation.backtest import LevelBacktest
from epifed.evaluation.experiment import code_digest
from epifed.hubs.submission import to_hub
from epifed.hubs.tables import TASK, Locations

MEAN = ["{:.3f}", "{:.3f} ± {:.3f}"]
"""One number, or mean and deviation of several."""


def of_runs(
    work: Path, name: str, epsilon: float, runs: int, make: Callable[[float, int], pl.DataFrame]
) -> list[pl.DataFrame]:
    """The forecasts of all runs; those that this code has not made yet are made and kept."""
    found = []
    for run in range(1 if math.isinf(epsilon) else runs):
        path = work / code_digest()[:16] / f"{name}_{epsilon:g}_{run}.parquet"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            make(epsilon, run).write_parquet(path.with_suffix(".new"))
            path.with_suffix(".new").rename(path)
            print(f"{name}, ε = {epsilon:g}, run {run}", file=sys.stderr, flush=True)
        found.append(pl.read_parquet(path))
    return found


def hub_rows(found: LevelBacktest | None, locations: Locations | None = None) -> pl.DataFrame:
    """The forecasts of a backtest as they are scored."""
    assert found is not None
    rows = to_hub(found.forecasts, locations=locations)
    columns = [*TASK, pl.col("output_type_id").alias("level"), "value"]
    return rows.select(columns).with_columns(pl.col("horizon").cast(pl.Int64))


def over_runs(values: Sequence[float]) -> float | list[float]:
    """One number, or mean and deviation of several."""
    if len(values) == 1:
        return float(values[0])
    return [float(np.mean(values)), float(np.std(values, ddof=1))]


def said(epsilon: float) -> str:
    """A budget as it is written."""
    return "∞" if math.isinf(epsilon) else f"{epsilon:g}"
