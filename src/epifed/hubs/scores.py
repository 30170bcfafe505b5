"""Scores of quantile forecasts, a row for each model and task.

WIS (Bracher et al. 2021) is the sum of three parts: how wide the intervals are, and how far the
truth lies below or above them.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from epifed.errors import EpifedError
from epifed.hubs.tables import TASK, weekly
from epifed.intervals import LEVELS

Floats = NDArray[np.float64]

PARTS = ("sharpness", "overprediction", "underprediction")
PHASES = ("rising", "steady", "falling")
STEADY = 0.1
"""A week counts as steady if it changes by no more than this share against the one before."""
EVERYWHERE = "all"


def wis_parts(truth: Floats, quantiles: Floats) -> tuple[Floats, Floats, Floats]:
    """Sharpness, over- and underprediction of quantiles [..., levels], which add up to the WIS.

    >>> q = np.array(LEVELS) * 100
    >>> [round(float(part), 2) for part in wis_parts(np.array(50.0), q)]
    [7.47, 0.0, 0.0]
    """
    half = len(LEVELS) // 2
    lower, middle, upper = quantiles[..., :half], quantiles[..., half], quantiles[..., :half:-1]
    alpha = 2 * np.array(LEVELS[:half])
    y = truth[..., None]
    above, below = np.maximum(lower - y, 0.0).sum(-1), np.maximum(y - upper, 0.0).sum(-1)
    weights = half + 0.5
    return (
        (alpha / 2 * (upper - lower)).sum(-1) / weights,
        (above + np.maximum(middle - truth, 0.0) / 2) / weights,
        (below + np.maximum(truth - middle, 0.0) / 2) / weights,
    )


@dataclass(frozen=True)
class Scored:
    """The scores of all tasks, and what could not be scored."""

    table: pl.DataFrame
    """model, task, group, phase, truth, ae, wis, its parts, in_50, in_95."""
    incomplete: int
    """Forecasts without all quantile levels."""
    unknown: int
    """Forecasts of weeks whose truth is not known."""
    nowhere: tuple[str, ...] = ()
    """Locations of which the truth knows nothing."""


def score(
    forecasts: pl.DataFrame, truth: pl.DataFrame, groups: dict[str, str] | None = None
) -> Scored:
    """Score forecasts (`read_forecasts`) against a truth (`read_truth`).

    `groups` is the level of each location, nation or state; others are left out.
    """
    wide = _wide(forecasts)
    if groups is not None:
        wide = wide.filter(pl.col("location").is_in(list(groups)))
    every = len(wide)
    complete = wide.drop_nulls()
    came = weekly(truth, complete["target_end_date"].unique().to_list())
    known = complete.join(came, on=["target_end_date", "location"], maintain_order="left")
    if known.is_empty():
        raise EpifedError(
            f"found {every} forecasts, none with all {len(LEVELS)} quantile levels and a known "
            "truth; expected some of the truth's weeks and locations"
        )
    quantiles, y = known.select(map(str, LEVELS)).to_numpy(), known["truth"].to_numpy()
    parts = dict(zip(PARTS, wis_parts(y, quantiles), strict=True))
    columns = {"ae": np.abs(quantiles[:, LEVELS.index(0.5)] - y), "wis": sum(parts.values())}
    for name, low, high in (("in_50", 0.25, 0.75), ("in_95", 0.025, 0.975)):
        ends = quantiles[:, LEVELS.index(low)], quantiles[:, LEVELS.index(high)]
        columns[name] = (ends[0] <= y) & (y <= ends[1])
    group = pl.lit(EVERYWHERE)
    if groups is not None:
        group = pl.col("location").replace_strict(groups, return_dtype=pl.String)
    table = known.select(
        "model", *TASK, group.alias("group"), _phase().alias("phase"), "truth"
    ).with_columns(pl.DataFrame(columns | parts))
    places = set(complete["location"]) - set(truth["location"])
    return Scored(table, every - len(complete), len(complete) - len(known), tuple(sorted(places)))


def _wide(forecasts: pl.DataFrame) -> pl.DataFrame:
    """A row for each task of a model, a column for each quantile level; others are left out."""
    named = pl.col("level").round(6).cast(pl.Float64)
    frame = forecasts.with_columns(named).filter(pl.col("level").is_in(LEVELS))
    every = [
        pl.col("value").filter(pl.col("level") == level).first().alias(str(level))
        for level in LEVELS
    ]
    return frame.group_by("model", *TASK, maintain_order=True).agg(every).sort("model", *TASK)


def _phase() -> pl.Expr:
    """Whether the week that was forecast had more or fewer cases than the one before."""
    change = ((pl.col("truth") - pl.col("before")) / pl.col("before")).fill_nan(0.0)
    rising, steady, falling = PHASES
    return (
        pl.when(change > STEADY)
        .then(pl.lit(rising))
        .when(change < -STEADY)
        .then(pl.lit(falling))
        .when(change.is_not_null())
        .then(pl.lit(steady))
    )
