"""The paper's scores: MSE, MAE, MAPE, MdAPE and R²; overall, per region and by population."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

METRICS = ("mse", "mae", "mape", "mdape", "r2")

HONEST_METRICS = ("mase", "deviance")
"""Scores that survive zeros and small counts."""

LEAST_MEAN = 0.01
"""The Poisson deviance of a forecast of nothing is infinite; so it is taken of this many cases."""

STRATA: tuple[tuple[str, float, float], ...] = (
    ("0–50k", 0, 50_000),
    ("50–100k", 50_000, 100_000),
    ("100–200k", 100_000, 200_000),
    ("200–500k", 200_000, 500_000),
    (">500k", 500_000, np.inf),
)
"""The paper's five population clusters; a bound belongs to the lower one."""


def scores(
    truth: Floats, prediction: Floats, persistence: Floats | None = None
) -> dict[str, float]:
    """All metrics of paired values, in the paper's units (MAPE and MdAPE in per cent).

    MASE is the MAE divided by that of `persistence` on the same windows; the deviance is the mean
    Poisson deviance.

    Zero targets are left out of MAPE and MdAPE; `zeros` says how many there were. A score that
    does not exist (no targets, all targets equal) is nan.

    >>> s = scores(np.array([1.0, 2.0, 0.0]), np.array([2.0, 2.0, 0.0]))
    >>> round(s["mape"], 1), s["zeros"], s["r2"]
    (50.0, 1.0, 0.5)
    """
    truth, prediction = truth.ravel(), prediction.ravel()
    if truth.size == 0:
        return dict.fromkeys((*METRICS, *HONEST_METRICS, "zeros"), np.nan)
    error = prediction - truth
    nonzero = truth != 0
    percentage = 100 * np.abs(error[nonzero] / truth[nonzero])
    variation = np.square(truth - truth.mean()).sum()
    return {
        "mse": float(np.square(error).mean()),
        "mae": float(np.abs(error).mean()),
        "mape": float(percentage.mean()) if percentage.size else np.nan,
        "mdape": float(np.median(percentage)) if percentage.size else np.nan,
        "r2": float(1 - np.square(error).sum() / variation) if variation > 0 else np.nan,
        "mase": _mase(truth, error, persistence),
        "deviance": _deviance(truth, prediction),
        "zeros": float(truth.size - nonzero.sum()),
    }


def _mase(truth: Floats, error: Floats, persistence: Floats | None) -> float:
    if persistence is None:
        return np.nan
    scale = np.abs(persistence.ravel() - truth).mean()
    return float(np.abs(error).mean() / scale) if scale > 0 else np.nan


def _deviance(truth: Floats, prediction: Floats) -> float:
    mean = np.maximum(prediction, LEAST_MEAN)
    surprise = np.where(truth > 0, truth * np.log(np.maximum(truth, LEAST_MEAN) / mean), 0.0)
    return float(2 * (surprise - truth + mean).mean())


def strata(population: NDArray[np.int64]) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """The paper's population clusters, each with the regions in it."""
    for name, above, to in STRATA:
        yield name, (population > above) & (population <= to)
