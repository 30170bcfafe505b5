"""The registry of metrics, and the simple baselines for comparison.

A metric has a name, a label, a unit, a direction and a function. It is registered once.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from epifed.errors import EpifedError
from epifed.learners.base import Baseline, make_learner
from epifed.privacy.plan import ClippedPlan
from epifed.settings import Settings
from epifed.training.loop import Clients, train

Floats = NDArray[np.float64]

LEAST_MEAN = 0.01
"""Least mean in the Poisson deviance, which is infinite for a forecast of 0."""

STRATA: tuple[tuple[str, float, float], ...] = (
    ("0–50k", 0, 50_000),
    ("50–100k", 50_000, 100_000),
    ("100–200k", 100_000, 200_000),
    ("200–500k", 200_000, 500_000),
    (">500k", 500_000, np.inf),
)
"""The paper's five population clusters; a bound belongs to the lower one."""


@dataclass(frozen=True)
class Pairs:
    """True values with their predictions and those of persistence, as flat arrays."""

    truth: Floats
    prediction: Floats
    persistence: Floats | None = None

    @cached_property
    def error(self) -> Floats:
        """Predicted minus true."""
        return self.prediction - self.truth

    @cached_property
    def percentage(self) -> Floats:
        """The absolute error in per cent of the true value, where that is not zero."""
        nonzero = self.truth != 0
        percent: Floats = 100 * np.abs(self.error[nonzero] / self.truth[nonzero])
        return percent

    @property
    def zeros(self) -> int:
        """The number of true values that are zero."""
        return int((self.truth == 0).sum())


@dataclass(frozen=True)
class Metric:
    """One score: its names, unit, direction and function."""

    name: str
    """The column of results."""
    label: str
    unit: str
    """Empty for a score without unit."""
    better: Literal["lower", "higher", "target"]
    compute: Callable[[Pairs], float]
    """Function of at least one pair; NaN where the score is not defined."""
    best: float = 0.0
    """The value of a perfect forecast: the least, the greatest, or the target."""
    small_counts: bool = False
    """Whether it is shown for small counts only, because it is defined with zeros."""
    on_page: bool = True
    """Whether the page for decision makers shows it."""
    words: Mapping[str, str] = field(default_factory=dict)
    """The name on the page by language, en or de; by default the label with its unit."""

    @property
    def head(self) -> str:
        """The head of a column: the label, and a percent sign if that is the unit."""
        return f"{self.label} %" if self.unit == "%" else self.label

    @property
    def axis(self) -> str:
        """The label of an axis."""
        return f"{self.label} ({self.unit})" if self.unit else self.label


METRICS: dict[str, Metric] = {}
"""All metrics by name, in the order of the tables; fill it with `register`."""


def register(metric: Metric) -> Metric:
    """Add a metric to all later results, tables and pages."""
    if metric.name in METRICS or not metric.name.isidentifier():
        raise EpifedError(
            f"metric: found the name '{metric.name}'; expected a new one of letters, digits and _"
        )
    METRICS[metric.name] = metric
    return metric


def shown(*, small_counts: bool = False) -> list[Metric]:
    """The metrics of a table; with `small_counts`, those for small counts as well."""
    return [metric for metric in METRICS.values() if small_counts or not metric.small_counts]


def scores(
    truth: Floats, prediction: Floats, persistence: Floats | None = None
) -> dict[str, float]:
    """All registered metrics of paired values, in the paper's units.

    `persistence` is the forecast of persistence for the same windows. Zero targets are left out
    of MAPE and MdAPE, and `zeros` is their number. A score that is not defined (no targets, all
    targets equal) is NaN.

    >>> s = scores(np.array([1.0, 2.0, 0.0]), np.array([2.0, 2.0, 0.0]))
    >>> round(s["mape"], 1), s["zeros"], s["r2"]
    (50.0, 1.0, 0.5)
    """
    if truth.size == 0:
        return dict.fromkeys((*METRICS, "zeros"), np.nan)
    like_today = None if persistence is None else persistence.ravel()
    pairs = Pairs(truth.ravel(), prediction.ravel(), like_today)
    values = {name: float(metric.compute(pairs)) for name, metric in METRICS.items()}
    return values | {"zeros": float(pairs.zeros)}


def of_points(
    truth: Floats, point: Floats, persistence: Floats | None = None
) -> dict[str, float | None]:
    """All registered metrics of point forecasts; none for a score that is not defined."""
    values = scores(truth, point, persistence)
    return {name: None if math.isnan(values[name]) else values[name] for name in METRICS}


def strata(population: NDArray[np.int64]) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """The paper's population clusters, each with a mask of its regions."""
    for name, above, to in STRATA:
        yield name, (population > above) & (population <= to)


def mean_squared_error(pairs: Pairs) -> float:
    """MSE: the mean of the squared errors."""
    return float(np.square(pairs.error).mean())


def mean_absolute_error(pairs: Pairs) -> float:
    """MAE: the mean of the absolute errors."""
    return float(np.abs(pairs.error).mean())


def mean_percentage_error(pairs: Pairs) -> float:
    """MAPE: the mean absolute error in per cent of the true value; zero targets are left out."""
    return float(pairs.percentage.mean()) if pairs.percentage.size else np.nan


def median_percentage_error(pairs: Pairs) -> float:
    """MdAPE: the median absolute error in per cent; zero targets are left out."""
    return float(np.median(pairs.percentage)) if pairs.percentage.size else np.nan


def explained_variation(pairs: Pairs) -> float:
    """R²: the share of the true values' variation that the forecast explains."""
    variation = np.square(pairs.truth - pairs.truth.mean()).sum()
    return float(1 - np.square(pairs.error).sum() / variation) if variation > 0 else np.nan


def scaled_error(pairs: Pairs) -> float:
    """MASE: the MAE divided by that of persistence on the same windows."""
    if pairs.persistence is None:
        return np.nan
    scale = np.abs(pairs.persistence - pairs.truth).mean()
    return float(np.abs(pairs.error).mean() / scale) if scale > 0 else np.nan


def poisson_deviance(pairs: Pairs) -> float:
    """The mean Poisson deviance of the true counts under the predicted means."""
    truth, mean = pairs.truth, np.maximum(pairs.prediction, LEAST_MEAN)
    surprise = np.where(truth > 0, truth * np.log(np.maximum(truth, LEAST_MEAN) / mean), 0.0)
    return float(2 * (surprise - truth + mean).mean())


for _metric in (
    Metric("mse", "MSE", "cases² per day²", "lower", mean_squared_error, on_page=False),
    Metric(
        "mae", "MAE", "cases per day", "lower", mean_absolute_error,
        words={"en": "Mean error", "de": "Mittlerer Fehler"},
    ),
    Metric("mape", "MAPE", "%", "lower", mean_percentage_error),
    Metric("mdape", "MdAPE", "%", "lower", median_percentage_error),
    Metric("r2", "R²", "", "higher", explained_variation, best=1.0),
    Metric("mase", "MASE", "", "lower", scaled_error, small_counts=True),
    Metric(
        "deviance", "Poisson deviance", "", "lower", poisson_deviance, small_counts=True,
        words={"de": "Poisson-Devianz"},
    ),
):  # fmt: skip
    register(_metric)


CLIPPED = "clipped, no noise"
"""The private federation with c = 0, which shows the effect of clipping without noise."""
DAMPING = 0.3
"""Share of the week's local growth that continues in the damped trend."""


def persistence(clients: Clients, settings: Settings, seeds: np.random.SeedSequence) -> Floats:
    """Persistence ("next week equals this week"): the last value of the window."""
    del settings, seeds
    return clients.test.inputs[..., -1].astype(np.float64)


def damped_trend(clients: Clients, settings: Settings, seeds: np.random.SeedSequence) -> Floats:
    """The last value, extrapolated with a damped share of its log growth over the window."""
    del seeds
    inputs = clients.test.inputs.astype(np.float64)
    days = inputs.shape[-1] - 1
    if days == 0:
        return inputs[..., -1]
    growth = np.log((inputs[..., -1] + 1) / (inputs[..., 0] + 1)) / days
    prediction: Floats = inputs[..., -1] * np.exp(DAMPING * settings.horizon * growth)
    return prediction


def pooled_linear(clients: Clients, settings: Settings, seeds: np.random.SeedSequence) -> Floats:
    """Least squares on the training windows of all clients together, without privacy."""
    del settings, seeds
    design, targets = clients.train.pooled()
    coefficients = np.linalg.lstsq(_with_intercept(design), targets, rcond=None)[0]
    prediction: Floats = _with_intercept(clients.test.inputs.astype(np.float64)) @ coefficients
    return prediction


def predict_zero(clients: Clients, settings: Settings, seeds: np.random.SeedSequence) -> Floats:
    """No cases: often right for small regions, and of no use."""
    del settings, seeds
    return np.zeros(clients.test.targets.shape)


def county_share(clients: Clients, settings: Settings, seeds: np.random.SeedSequence) -> Floats:
    """The county's cases on the last day of the window, times the region's population share."""
    del settings, seeds
    if not clients.parents or clients.population is None:
        raise EpifedError("county share: found no counties above the regions; expected communities")
    if (clients.test.target_days != clients.test.target_days[0]).any():
        raise EpifedError("county share: found windows out of step; expected the temporal split")
    _, county = np.unique(clients.parents, return_inverse=True)
    last = clients.test.inputs[..., -1].astype(np.float64)
    of_county = np.zeros((county.max() + 1, last.shape[1]))
    np.add.at(of_county, county, last)
    share = clients.population / np.bincount(county, weights=clients.population)[county]
    prediction: Floats = share[:, None] * of_county[county]
    return prediction


def clipped_without_noise(
    clients: Clients, settings: Settings, seeds: np.random.SeedSequence
) -> Floats:
    """The same federation, Poisson-sampled and clipped to S like a private one, without noise."""
    settings = settings.but(epsilon=math.inf, sampler="poisson")
    plan = ClippedPlan.of(settings, len(clients))
    training = train(clients.view, settings, seeds=seeds, plan=plan)
    return training.predict(clients.test.inputs)


BASELINES: dict[str, Baseline] = {
    "persistence": persistence,
    "damped trend": damped_trend,
    "pooled linear": pooled_linear,
}
COMMUNITY_BASELINES: dict[str, Baseline] = {"zero": predict_zero, "county share": county_share}


def beside(settings: Settings, *, communities: bool) -> tuple[str, ...]:
    """The names of the baselines for a training with these settings."""
    more = COMMUNITY_BASELINES if communities else {}
    return (*BASELINES, *make_learner(settings).beside(), *more)


def baseline(name: str, settings: Settings) -> Baseline:
    """The baseline of this name."""
    every = BASELINES | COMMUNITY_BASELINES | {CLIPPED: clipped_without_noise}
    return every[name] if name in every else make_learner(settings).beside()[name]


def random_baselines(settings: Settings) -> frozenset[str]:
    """The names of the baselines that depend on the seed, which are those of the learner."""
    return frozenset(make_learner(settings).beside())


def _with_intercept(inputs: Floats) -> Floats:
    return np.concatenate([inputs, np.ones((*inputs.shape[:-1], 1))], axis=-1)
