"""Honest uncertainty: quantiles as wide as a client's own past errors, at its present level.

All of it is local: a client looks at how wrong the forecasts were on its own past days, so it costs
no privacy. An error is measured on a scale on which large and small counts err alike, the fourth
root, and in units of what is usual at its level and horizon: what every week errs by, the growth
that nobody foresaw, and chance, which few cases have more of. How large a client's errors are in
these units is one number, the mean of the last ones, newer ones counting more; so a client with
little history borrows what is usual, and one bad week moves it by no more than a bounded error can.
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
"""Past errors, a day or a week apart, below which an interval says nothing."""
LEAST_STEPS: dict[Step, int] = {"day": 2 * WEEK + LEAST_ERRORS, "week": 2 + LEAST_WEEKLY_ERRORS}
"""Days, or weeks, below which there is no forecast: two weeks of cases, and enough past errors."""
ERRORS = 126
"""How many past errors an interval looks at, at most: 18 weeks."""
HALF_LIFE = 40.0
"""Days in which an error loses half its weight."""
UNINFORMED = 0.2
"""Weight of the error of a forecast that no release had told anything."""

SOFTENING = 0.3
"""Daily cases added to a count before its root is taken: about two a week."""
POWER = 0.25
"""The power of counts that has errors of a steady size."""
USUAL_ERROR, GROWING = 0.145, 0.2
"""The mean error a week ahead that is usual at high levels, as a log change, and the power of the
horizon it grows with."""
UNFORESEEN = 0.12
"""What a growth that nobody foresaw adds in a week, by squares, beyond the first one."""
TELLING, BELIEVED = 1.3, 5.0
"""How many times as much clients err by it as the country's level tells, and how many errors of the
country, a horizon apart, what is usually unforeseen is worth."""
CHANCE, FADING = 0.55, 0.3
"""The square of the error that chance adds to a week of one daily case, and the power of the
horizon it falls with."""
BORROWED = {1: 15.0, WEEK: 5.0}
"""How many own errors, so many days apart, the usual one is worth a week ahead; nearer it is worth
less with the horizon, and further ahead, where errors are more alike, more with its square."""
LARGEST = 6.0
"""An error counts at most as so many usual ones."""
AFTER_HOLIDAY, HOLIDAY_DAYS = 0.6, 10
"""Usual errors that a public holiday adds, by their squares, to those of forecasts made within so
many days after it: what was reported on and after it says less."""

FREEDOM, HEAVIER = 7.0, 0.35
"""Degrees of freedom of Student's distribution, whose shape the quantiles have, and the power with
which they are fewer less than a week ahead."""
WIDER, NEARER = 1.03, 0.07
"""By how much intervals are wider for not knowing how wide they must be, and with what power more
less than a week ahead."""
LARGEST_SHARE = 0.02
"""Of a population, not more become cases in a day, on the average of a week."""


@dataclass(frozen=True)
class Past:
    """How wrong the forecasts of some clients were: [clients, steps], the newest known one last."""

    forecast: Floats
    """Daily cases that were forecast."""
    truth: Floats
    """Daily cases that came."""
    horizon: int
    """Days ahead."""
    apart: int = 1
    """Days from one forecast to the next."""
    uninformed: int = 0
    """How many of the first ones were made before any release."""
    surprises: Floats = field(default_factory=lambda: np.zeros((0, 2)))
    """By how much, as a log change, past forecasts of the whole country erred, and the variance of
    the noise in that: [errors, 2], a week apart, as far as releases tell."""
    after_holiday: NDArray[np.bool_] | None = None
    """Which clients had a public holiday in the last days; none: nobody."""

    def usual(self, forecast: Floats) -> Floats:
        """The mean error that is usual at this horizon where so many cases are forecast."""
        weeks = self.horizon / WEEK
        steady = (USUAL_ERROR * weeks**GROWING) ** 2 + unforeseen(self.horizon, self.surprises)
        found: Floats = np.sqrt(steady + CHANCE * weeks**-FADING / (forecast + SOFTENING))
        return found

    def size(self) -> Floats:
        """How large each client's errors are at present, in usual ones."""
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
        """The mean error that each client is to expect of a forecast made now."""
        width: Floats = self.size() * self.usual(forecast)
        return width


def unforeseen(horizon: int, surprises: Floats) -> float:
    """The squared mean error of a country's growth over a horizon, from what is usual and its past.

    What is noise is taken out of past errors, and those that are mostly noise count little.
    """
    if horizon <= WEEK:
        return 0.0
    usual = UNFORESEEN**2 * ((horizon / WEEK) ** 2 - 1)
    errors, noise = surprises.T
    weight = WEEK / horizon * (usual / (usual + noise)) ** 2
    found = BELIEVED * usual + TELLING**2 * float(weight @ (errors**2 - noise))
    return max(found / float(BELIEVED + weight.sum()), 0.0)


@cache
def shape(horizon: int) -> tuple[float, ...]:
    """How far each quantile lies from the middle, in units of the mean error."""
    nearer = max(WEEK / horizon, 1.0)
    freedom = FREEDOM * nearer**-HEAVIER
    half = freedom / 2
    mean = math.sqrt(freedom / math.pi) * math.gamma(half + 0.5) / math.gamma(half) / (half - 0.5)
    wider = WIDER * nearer**NEARER
    return tuple(wider * special.stdtrit(freedom, np.array(LEVELS)) / mean)


def quantiles(forecast: Floats, past: Past, population: NDArray[np.int64] | None = None) -> Floats:
    """Quantiles [clients, levels] of a forecast by clients with such a past.

    None is below zero, and none above what is possible in a population.
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
    """The COVIDhub baseline: the last value, and past differences made symmetric, as quantiles.

    Differences over the horizon, a week apart; none below zero. `series` is [clients, days], or
    weeks where `week` is 1.
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
