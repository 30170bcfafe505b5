"""Honest uncertainty: quantiles as wide as a client's own past errors, at its present level.

All of it is local: a client looks at how wrong the forecasts were on its own past days, so it costs
no privacy. An error is measured on the scale on which counts have a steady spread, the square root,
and in units of what is usual at its level: a part that every level has, the growth that nobody
foresaw, and a part that few cases have, chance. How large a client's errors are in these units is
one number, the mean of the last ones, newer ones counting more; so a client with little history
borrows what is usual, and one bad week moves it by no more than a bounded error can.
"""

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

from epifed.days import WEEK

Floats = NDArray[np.float64]

LEVELS: tuple[float, ...] = (
    0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5,
    0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.975, 0.99,
)  # fmt: skip
"""The quantile levels of the forecast hubs."""

LEAST_ERRORS, LEAST_WEEKLY_ERRORS = 14, 4
"""Past errors, a day or a week apart, below which an interval says nothing."""
ERRORS = 126
"""How many past errors an interval looks at, at most: 18 weeks."""
HALF_LIFE = 40.0
"""Days in which an error loses half its weight."""
UNINFORMED = 0.2
"""Weight of the error of a forecast that no release had told anything."""

SOFTENING = 0.3
"""Daily cases added to a count before its root is taken: about two a week."""
USUAL_ERROR, GROWING = 0.145, 0.2
"""The mean error a week ahead that is usual at high levels, and the power of the horizon it grows
with."""
CHANCE, FADING = 26.0, 0.7
"""The daily cases at which chance errs as much as growth a week ahead, and the power of the horizon
it falls with."""
BORROWED = {1: 15.0, WEEK: 5.0}
"""How many own errors, so many days apart, the usual one is worth a week ahead; further ahead
errors are more alike."""
LARGEST = 6.0
"""An error counts at most as so many usual ones."""
AFTER_HOLIDAY, HOLIDAY_DAYS = 0.6, 10
"""Usual errors that a public holiday adds, by their squares, to those of forecasts made within so
many days after it: what was reported on and after it says less."""

FREEDOM, HEAVIER = 7.0, 0.35
"""Degrees of freedom of Student's distribution, whose shape the quantiles have a week ahead, and
the power with which they are fewer at horizons that are shorter or longer."""
WIDER, FURTHER, NEARER = 1.03, 0.36, 0.07
"""By how much intervals are wider for not knowing how wide they must be, and with what powers more
so at horizons that are longer or shorter than a week."""
LARGEST_SHARE = 0.02
"""Of a population, not more become cases in a day, on the average of a week."""


@cache
def shape(horizon: int) -> tuple[float, ...]:
    """How far each quantile lies from the middle, in units of the mean error of the past."""
    weeks = horizon / WEEK
    away = max(weeks, 1 / weeks)
    freedom = FREEDOM * away**-HEAVIER
    half = freedom / 2
    mean = math.sqrt(freedom / math.pi) * math.gamma(half + 0.5) / math.gamma(half) / (half - 0.5)
    wider = WIDER * away ** (FURTHER if weeks > 1 else NEARER)
    return tuple(wider * special.stdtrit(freedom, np.array(LEVELS)) / mean)


def unit(forecast: Floats, horizon: int) -> Floats:
    """How much larger than at high levels an error is where so few cases are forecast."""
    chance = CHANCE * (horizon / WEEK) ** -FADING
    larger: Floats = np.sqrt(1 + chance / (forecast + SOFTENING))
    return larger


def size(
    forecast: Floats,
    truth: Floats,
    horizon: int,
    apart: int = 1,
    *,
    uninformed: int = 0,
    after_holiday: NDArray[np.bool_] | None = None,
) -> Floats:
    """How large a client's errors are at present: [clients], of its forecasts [clients, days].

    The days are in order, the last one the newest whose truth is known, each `apart` days after
    the one before. The first `uninformed` forecasts were made before any release. Clients
    `after_holiday` had one in the last days.
    """
    used = ERRORS // apart
    forecast, truth = forecast[:, -used:], truth[:, -used:]
    weight = np.exp2(-apart * np.arange(forecast.shape[1])[::-1] / HALF_LIFE)
    weight[:uninformed] *= UNINFORMED
    usual = USUAL_ERROR * (horizon / WEEK) ** GROWING
    ratio = np.sqrt((truth + SOFTENING) / (forecast + SOFTENING))
    errors = np.minimum(2 * np.abs(ratio - 1) / unit(forecast, horizon), LARGEST * usual)
    borrowed = BORROWED[apart] * horizon / WEEK
    mean: Floats = (errors @ weight + borrowed * usual) / (weight.sum() + borrowed)
    if after_holiday is not None:
        mean = np.where(after_holiday, np.hypot(mean, AFTER_HOLIDAY * usual), mean)
    return mean


def quantiles(
    forecast: Floats, errors: Floats, horizon: int, population: NDArray[np.int64] | None = None
) -> Floats:
    """Quantiles [clients, levels] of a forecast whose errors have this size at present.

    None is below zero, and none above what is possible in a population.
    """
    width = errors * unit(forecast, horizon)
    root = np.maximum(1 + width[:, None] * np.array(shape(horizon)) / 2, 0.0)
    every: Floats = np.maximum((forecast[:, None] + SOFTENING) * root**2 - SOFTENING, 0.0)
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
