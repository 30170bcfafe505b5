"""Forecasts of a backtest beside what came, and what they come to."""

from collections.abc import Mapping, Sequence
from datetime import date

import numpy as np
import polars as pl
from numpy.typing import NDArray

from epifed import intervals
from epifed.days import DAYS_OF, WEEK
from epifed.evaluate.knowledge import Knowledge
from epifed.forecasting import Forecast
from epifed.panel import CasePanel
from epifed.windows import observed

Floats = NDArray[np.float64]

COVERAGES = {"50": (0.25, 0.75), "95": (0.025, 0.975)}


def _within(name: str) -> pl.Expr:
    inside = pl.col("truth").is_between(pl.col(f"lower_{name}"), pl.col(f"upper_{name}"))
    return inside.mean().alias(f"coverage_{name}")


def _ratio(one: str, other: str, truth: str) -> pl.Expr:
    """The error of one column relative to that of another; none where the other has none."""
    error, base = ((pl.col(name) - pl.col(truth)).abs().sum() for name in (one, other))
    return _over(error, base)


def _over(score: pl.Expr, base: pl.Expr) -> pl.Expr:
    return pl.when(base > 0).then(score / base)


SCORES = (
    _ratio("point", "persistence", "truth").alias("mae_ratio"),
    _ratio("point", "persistence_final", "truth").alias("mae_ratio_final"),
    _ratio("nowcast", "persistence", "persistence_final").alias("nowcast_mae_ratio"),
    _over(pl.col("wis").sum(), pl.col("baseline_wis").sum()).alias("wis_ratio"),
    *(_within(name) for name in COVERAGES),
)


def own_table(
    known: Knowledge, made: Sequence[Forecast], completed: Mapping[date, Floats]
) -> pl.DataFrame:
    """The forecasts of the regions themselves beside what came."""
    panel = known.panel
    final = observed(panel.counts, panel.step)
    frames = []
    for one in made:
        at = panel.index(one.origin)
        series = final[:, : at + 1]
        if known.vintages is not None:
            series = observed(known.on(one.origin).reported, panel.step)
        to = at + one.horizon
        frame = scored(one, final[:, to], final[:, at], series, completed[one.origin])
        frames.append(that_came(frame, panel, to))
    return pl.concat(frames)


def that_came(frame: pl.DataFrame, final: CasePanel, column: int) -> pl.DataFrame:
    """The rows, one for each region, whose truth is known: an unreported week is none."""
    if final.step == "day" or final.reported is None:
        return frame
    return frame.filter(pl.Series(final.reported[:, column]))


def scored(
    one: Forecast, truth: Floats, now: Floats, series: Floats, completed: Floats
) -> pl.DataFrame:
    """One forecast beside what came, what there finally was on its day, and what was known."""
    baseline = intervals.hub_baseline(series, one.horizon, WEEK // DAYS_OF[one.step])
    columns = {
        "truth": truth,
        "persistence": series[:, -1],
        "persistence_final": now,
        "nowcast": completed,
        "point": one.point,
    }
    for name, (low, high) in COVERAGES.items():
        columns[f"lower_{name}"] = one.quantiles[:, intervals.LEVELS.index(low)]
        columns[f"upper_{name}"] = one.quantiles[:, intervals.LEVELS.index(high)]
    columns["wis"] = intervals.weighted_interval_score(truth, one.quantiles)
    columns["baseline_wis"] = intervals.weighted_interval_score(truth, baseline)
    return pl.DataFrame({"region": one.regions} | columns).select(
        pl.lit(one.origin).alias("origin_date"),
        "region",
        pl.lit(one.horizon, dtype=pl.Int64).alias("horizon"),
        pl.lit(one.target_date).alias("target_date"),
        *columns,
    )
