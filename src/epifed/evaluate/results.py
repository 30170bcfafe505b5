"""The tables of a grid: one row per run and stratum, per prediction, per point of a curve."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from epifed.clients import Clients
from epifed.evaluate.metrics import METRICS, scores, strata
from epifed.files import Part
from epifed.settings import Settings

FEDERATED = "federated"
"""The method of the paper's learner; another learner's is its name."""
TRAINED = pl.col("epsilon").is_not_null()
"""Rows of a training, whatever its learner: a baseline has no budget."""
ALL = "all"
KEYS = ("split", "period", "method", "epsilon", "run")
CURVE_COLUMNS = ("round", "train_mse", "test_mse", "test_mape")
KEY_TYPES: dict[str, type[pl.DataType]] = {
    "split": pl.String,
    "period": pl.String,
    "method": pl.String,
    "epsilon": pl.Float64,
    "run": pl.Int32,
}


@dataclass(frozen=True)
class Results:
    """Tidy tables. `epsilon` is null for a baseline and inf for the non-private federation."""

    runs: pl.DataFrame
    """One row per run and population stratum, with the metrics and what the run cost."""
    predictions: pl.DataFrame
    """One row per run, region and test day."""
    convergence: pl.DataFrame
    """One row per run and evaluated round."""


def method_of(settings: Settings) -> str:
    """What a training is called beside the baselines."""
    return FEDERATED if settings.learner == "fedavg" else settings.learner


def gather(parts: list[tuple[dict[str, object], Part, Clients]]) -> Results:
    """Score the parts of a grid, each with its keys and the clients it was tested on."""
    runs: list[dict[str, object]] = []
    predictions: list[pl.DataFrame] = []
    curves: list[pl.DataFrame] = []
    for keys, part, clients in parts:
        truth = clients.test.targets.astype(np.float64)
        like_today = clients.test.inputs[..., -1].astype(np.float64)
        prediction = part["prediction"]
        cost = {
            name: float(part[name]) if name in part else None
            for name in ("noise_multiplier", "epsilon_spent", "mean_cohort")
        }
        runs.append(keys | {"stratum": ALL} | scores(truth, prediction, like_today) | cost)
        if clients.population is not None:
            runs += [
                keys
                | {"stratum": name}
                | scores(truth[chosen], prediction[chosen], like_today[chosen])
                | cost
                for name, chosen in strata(clients.population)
            ]
        regions = np.repeat(np.array(clients.regions, dtype=object), truth.shape[1])
        columns = {
            "region": pl.Series(regions, dtype=pl.String),
            "target_day": pl.Series(clients.test.target_days.ravel()).cast(pl.Date),
            "truth": truth.ravel(),
            "prediction": prediction.ravel(),
        }
        predictions.append(_with_keys(pl.DataFrame(columns), keys))
        if "convergence" in part:
            frame = pl.DataFrame(part["convergence"], schema=CURVE_COLUMNS, orient="row")
            curves.append(_with_keys(frame.with_columns(pl.col("round").cast(pl.Int32)), keys))
    measured: dict[str, type[pl.DataType]] = dict.fromkeys(
        (*METRICS, "zeros", "noise_multiplier", "epsilon_spent", "mean_cohort"), pl.Float64
    )
    return Results(
        pl.DataFrame(runs, schema=KEY_TYPES | {"stratum": pl.String} | measured, orient="row"),
        pl.concat(predictions),
        pl.concat(curves) if curves else pl.DataFrame(schema=KEY_TYPES),
    )


def summary(runs: pl.DataFrame) -> pl.DataFrame:
    """Mean and standard deviation over the runs of each method and budget, over all regions."""
    return (
        runs.filter(pl.col("stratum") == ALL)
        .group_by("split", "period", "method", "epsilon", maintain_order=True)
        .agg(
            pl.len().alias("runs"),
            *(pl.col(m).mean().alias(f"{m}_mean") for m in METRICS),
            *(pl.col(m).std().alias(f"{m}_std") for m in METRICS),
            pl.col("zeros").first(),
        )
    )


def _with_keys(frame: pl.DataFrame, keys: dict[str, object]) -> pl.DataFrame:
    return frame.select(
        *(pl.lit(keys[name], dtype=KEY_TYPES[name]).alias(name) for name in KEYS), pl.all()
    )
