"""Models beside each other on exactly the same tasks: ratios, pairwise skill, and how sure.

A ratio of two models is that of their mean scores over the tasks that both have. The relative
skill of a model is the geometric mean of its ratios to all models, itself included, divided by the
baseline's (Cramer et al. 2022). Forecasts of one date err alike, so a ratio's interval comes from
drawing the dates anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from epifed.errors import EpifedError
from epifed.hubs.scores import PARTS, PHASES
from epifed.hubs.tables import TASK
from epifed.seeds import seed_sequence

Floats = NDArray[np.float64]

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
