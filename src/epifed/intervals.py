"""Forecast intervals: quantiles as wide as a client's own past errors, at its present level.

All of it is local. A client reads the errors of forecasts of its own past days, so there is no
privacy cost. Errors are measured on the fourth root of counts, where large and small counts have
errors of similar size. The unit is the usual error at a level and horizon: a steady part, the
unforeseen growth of the country, and chance, which is larger for few cases. The size of a client's
errors in this unit is one number, a weighted mean in which newer errors count more. A client with
little history borrows the usual size. Errors are bounded, so one bad week has a limited effect.
"""

import math
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

from epifed.data.calendar import WEEK, Step

Floats = NDArray[np.float64]

LEVELS: tuple[float, ...] = (
    0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5,
    0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.975, 0.99,
)  # fmt: skip
"""The quantile levels of the forecast hubs."""

LEAST_ERRORS, LEAST_WEEKLY_ERRORS = 14, 4
"""Fewest past errors, a day or a week apart, from which an interval is made."""
LEAST_STEPS: dict[Step, int] = {"day": 2 * WEEK + LEAST_ERRORS, "week": 2 + LEAST_WEEKLY_ERRORS}
"""Fewest days, or weeks, for a forecast: two weeks of cases, and enough past errors."""
ERRORS = 126
"""Largest number of past errors used: 18 weeks."""
HALF_LIFE = 40.0
"""Days in which an error loses half its weight."""
UNINFORMED = 0.2
"""Factor on the weight of an error of a forecast that used no release."""

SOFTENING = 0.3
"""Daily cases added to a count before its root is taken: about two a week."""
POWER = 0.25
"""The power of counts whose errors have a steady size."""
USUAL_ERROR, GROWING = 0.145, 0.2
"""The usual mean error a week ahead at high levels, as a log change, and the power with which it
grows with the horizon."""
UNFORESEEN = 0.12
"""Squared, the error that unforeseen growth adds in a week, beyond the first one."""
TELLING, PRIOR_WEIGHT = 1.3, 5.0
"""Ratio of clients' error from unforeseen growth to that of the country's level. Then the weight
of the usual value, in errors of the country that are a horizon apart."""
CHANCE, FADING = 0.55, 0.3
"""The squared error that chance adds to a week of one daily case, and the power with which it
falls with the horizon."""
BORROWED = {1: 15.0, WEEK: 5.0}
"""Weight of the usual error in own errors, so many days apart, a week ahead. For nearer targets it
falls with the horizon; further ahead, where errors are more alike, it grows with its square."""
LARGEST = 6.0
"""Bound on an error, in usual ones."""
AFTER_HOLIDAY, HOLIDAY_DAYS = 0.6, 10
"""Usual errors that a public holiday adds, squared, to forecasts made within so many days after it,
because counts on and after it are less reliable."""

FREEDOM, HEAVIER = 7.0, 0.35
"""Degrees of freedom of the Student distribution of the quantiles, and the power with which they
decrease for targets less than a week ahead."""
WIDER, NEARER = 1.03, 0.07
"""Factor on the width because the width itself is estimated, and the power with which it grows for
targets less than a week ahead."""
LARGEST_SHARE = 0.02
"""Largest share of a population that becomes cases in a day, on the average of a week."""


@dataclass(frozen=True)
class Past:
    """Past forecasts of some clients with their outcome: [clients, steps], the newest last."""

    forecast: Floats
    """Daily cases that were forecast."""
    truth: Floats
    """Daily cases that were observed."""
    horizon: int
    """Days ahead."""
    apart: int = 1
    """Days from one forecast to the next."""
    uninformed: int = 0
    """Number of first forecasts that were made before any release."""
    surprises: Floats = field(default_factory=lambda: np.zeros((0, 2)))
    """Log errors of past forecasts of the whole country, and the variance of the noise in each:
    [errors, 2], a week apart, as far as releases show them."""
    after_holiday: NDArray[np.bool_] | None = None
    """Which clients had a public holiday in the last days; none: no client had one."""

    def usual(self, forecast: Floats) -> Floats:
        """The usual mean error at this horizon for so many forecast cases."""
        weeks = self.horizon / WEEK
        steady = (USUAL_ERROR * weeks**GROWING) ** 2 + unforeseen(self.horizon, self.surprises)
        found: Floats = np.sqrt(steady + CHANCE * weeks**-FADING / (forecast + SOFTENING))
        return found

    def size(self) -> Floats:
        """The present size of each client's errors, in usual ones."""
        used = ERRORS // self.apart
        forecast, truth = self.forecast[:, -used:], self.truth[:, -used:]
        weight = np.exp2(-self.apart * np.arange(forecast.shape[1])[::-1] / HALF_LIFE)
        weight[: self.uninformed] *= UNINFORMED
        ratio = (truth + SOFTENING) / (forecast + SOFTENING)
        errors = np.abs(np.sqrt(np.sqrt(ratio)) - 1) / POWER
        errors = np.minimum(errors / self.usual(forecast), LARGEST)
        weeks = self.horizon / WEEK
        borrowed = BORROWED[self.apart] * max(weeks, weeks**2)
        mean: Floats = (errors @ weight + borrowed) / (weight.sum() + borrowed)
        if self.after_holiday is None:
            return mean
        return np.where(self.after_holiday, np.hypot(mean, AFTER_HOLIDAY), mean)

    def width(self, forecast: Floats) -> Floats:
        """The expected mean error of each client's forecast made now."""
        width: Floats = self.size() * self.usual(forecast)
        return width


def unforeseen(horizon: int, surprises: Floats) -> float:
    """The squared mean error of a country's growth over a horizon, from the usual and past errors.

    The noise variance is subtracted from past errors. Mostly noisy ones have little weight.
    """
    if horizon <= WEEK:
        return 0.0
    usual = UNFORESEEN**2 * ((horizon / WEEK) ** 2 - 1)
    errors, noise = surprises.T
    weight = WEEK / horizon * (usual / (usual + noise)) ** 2
    found = PRIOR_WEIGHT * usual + TELLING**2 * float(weight @ (errors**2 - noise))
    return max(found / float(PRIOR_WEIGHT + weight.sum()), 0.0)


@cache
def shape(horizon: int) -> tuple[float, ...]:
    """The distance of each quantile from the median, in units of the mean error."""
    nearer = max(WEEK / horizon, 1.0)
    freedom = FREEDOM * nearer**-HEAVIER
    half = freedom / 2
    mean = math.sqrt(freedom / math.pi) * math.gamma(half + 0.5) / math.gamma(half) / (half - 0.5)
    wider = WIDER * nearer**NEARER
    return tuple(wider * special.stdtrit(freedom, np.array(LEVELS)) / mean)


def quantiles(forecast: Floats, past: Past, population: NDArray[np.int64] | None = None) -> Floats:
    """Quantiles [clients, levels] of forecasts by clients with these past errors.

    They are at least 0, and at most a plausible share of the population.
    """
    away = past.width(forecast)[:, None] * np.array(shape(past.horizon))
    ratio = np.maximum(1 + POWER * away, 0.0) ** (1 / POWER)
    every: Floats = np.maximum((forecast[:, None] + SOFTENING) * ratio - SOFTENING, 0.0)
    if population is not None:
        most = np.maximum(LARGEST_SHARE * population, forecast)
        every = np.minimum(every, most[:, None])
    return every


def weighted_interval_score(truth: Floats, quantile: Floats) -> Floats:
    """WIS (Bracher et al. 2021) of quantiles [..., levels]: twice the mean pinball loss."""
    levels = np.array(LEVELS)
    above = truth[..., None] - quantile
    score: Floats = 2 * np.maximum(levels * above, (levels - 1) * above).mean(axis=-1)
    return score


def hub_baseline(series: Floats, horizon: int, week: int = WEEK) -> Floats:
    """The COVIDhub baseline: the last value plus past differences made symmetric, as quantiles.

    Differences span the horizon and are a week apart; no quantile is below 0. `series` is
    [clients, days], or weeks where `week` is 1.
    """
    ends = np.arange(series.shape[1] - 1, horizon - 1, -week)
    last = series[:, -1, None]
    if len(ends) == 0:
        return np.repeat(last, len(LEVELS), axis=1)
    change = np.sort(np.abs(series[:, ends] - series[:, ends - horizon]), axis=1)
    place = np.array(LEVELS) * (2 * len(ends) - 1)
    lower = np.minimum(place.astype(np.int64), 2 * len(ends) - 2)
    both = np.concatenate([-change[:, ::-1], change], axis=1)
    below, above = both[:, lower], both[:, lower + 1]
    spread: Floats = below + (above - below) * (place - lower)
    return np.maximum(last + spread, 0.0)
