"""Scores of quantile forecasts, and the relative skill of models on the same tasks.

WIS (Bracher et al. 2021) is the sum of the intervals' width and of penalties for over- and
underprediction. A ratio of two models is that of their mean scores over the tasks that both have.
The relative skill of a model is the geometric mean of its ratios to all models, divided by the
baseline's (Cramer et al. 2022). Forecasts of one date err alike, so a ratio's interval comes from
resampling the dates.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from epifed.errors import EpifedError
from epifed.hubs.tables import TASK, weekly
from epifed.intervals import LEVELS, weighted_interval_score
from epifed.settings import seed_sequence

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
    columns = {
        "ae": np.abs(quantiles[:, LEVELS.index(0.5)] - y),
        "wis": weighted_interval_score(y, quantiles),
    }
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


DRAWS = 2000
"""How often the dates are drawn."""
CERTAINTY = 0.95


@dataclass(frozen=True)
class Ratio:
    """The mean score of one model relative to another's on the tasks of both."""

    value: float
    low: float
    high: float
    """Between them lies the ratio in 95 % of the drawn sets of dates."""
    tasks: int
    dates: int


def ratio(one: pl.DataFrame, other: pl.DataFrame, score: str = "wis") -> Ratio | None:
    """The ratio of two models' scores; none if they share no task, or the other never errs."""
    both = one.join(other, on=TASK, suffix="_other")
    sums = both.group_by("reference_date").agg(pl.col(score, f"{score}_other").sum())
    sums = sums.sort("reference_date")
    mine, theirs = sums[score].to_numpy(), sums[f"{score}_other"].to_numpy()
    if len(sums) == 0 or theirs.sum() == 0:
        return None
    rng = np.random.default_rng(seed_sequence(0, "dates", str(len(sums))))
    drawn = rng.multinomial(len(sums), np.full(len(sums), 1 / len(sums)), size=DRAWS)
    below = drawn @ theirs
    every = (drawn @ mine)[below > 0] / below[below > 0]
    tail = (1 - CERTAINTY) / 2
    low, high = np.quantile(every, [tail, 1 - tail])
    return Ratio(float(mine.sum() / theirs.sum()), float(low), float(high), len(both), len(sums))


def relative_skill(table: pl.DataFrame, baseline: str, score: str = "wis") -> dict[str, float]:
    """The relative skill of every model against the baseline, by pairwise comparison."""
    models = table["model"].unique().sort().to_list()
    of = {model: table.filter(pl.col("model") == model).select(*TASK, score) for model in models}
    means = {}
    for model in models:
        shared = (of[model].join(of[other], on=TASK, suffix="_other") for other in models)
        sums = np.array([[both[name].sum() for name in (score, f"{score}_other")]
                         for both in shared if len(both)], dtype=np.float64)  # fmt: skip
        logs = np.log(sums[(sums > 0).all(axis=1)]) @ [1.0, -1.0]
        means[model] = float(np.exp(np.mean(logs))) if len(logs) else np.nan
    return {model: mean / means[baseline] for model, mean in means.items()}


def compare(
    table: pl.DataFrame,
    baseline: str,
    by: Sequence[str] = ("group", "horizon"),
    against: str | None = None,
) -> list[dict[str, Any]]:
    """A record for each model in each group: scores, relative to the baseline's on the same tasks.

    With `against`, also relative to that model. The best WIS of a group comes first.
    """
    for name in filter(None, (baseline, against)):
        if name not in table["model"]:
            known = ", ".join(table["model"].unique().sort())
            raise EpifedError(f"found no model '{name}' with scores; expected one of {known}")
    rows = []
    for keys, group in table.drop_nulls(by).group_by(by, maintain_order=True):
        models = {name: part for (name,), part in group.group_by("model", maintain_order=True)}
        if baseline not in models:
            continue
        skill = relative_skill(group, baseline)
        rows += [
            dict(zip(by, keys, strict=True))
            | _record(part, models[baseline], models.get(against) if against else None)
            | {"relative_skill": skill[str(name)]}
            for name, part in models.items()
        ]
    order = {phase: i for i, phase in enumerate(PHASES)}
    return sorted(
        rows,
        key=lambda row: (
            *(order.get(row[key], row[key]) for key in by),
            np.inf if row["wis_ratio"] is None else row["wis_ratio"],
        ),
    )


def _record(part: pl.DataFrame, base: pl.DataFrame, other: pl.DataFrame | None) -> dict[str, Any]:
    mae, wis = ratio(part, base, "ae"), ratio(part, base)
    against = None if other is None else ratio(part, other)
    means = part.select("ae", "wis", *PARTS, "in_50", "in_95").mean().row(0, named=True)
    return {
        "model": part["model"][0],
        "tasks": len(part),
        "dates": part["reference_date"].n_unique(),
        "shared_tasks": wis.tasks if wis else 0,
        "mae": means["ae"],
        "wis": means["wis"],
        **{name: means[name] for name in PARTS},
        "mae_ratio": mae.value if mae else None,
        "wis_ratio": wis.value if wis else None,
        "wis_ratio_low": wis.low if wis else None,
        "wis_ratio_high": wis.high if wis else None,
        "coverage_50": means["in_50"],
        "coverage_95": means["in_95"],
        "against": against.value if against else None,
        "against_low": against.low if against else None,
        "against_high": against.high if against else None,
        "against_tasks": against.tasks if against else 0,
    }
