"""Honest uncertainty: quantiles by adaptive conformal calibration on each client's own past errors.

All of it is local: a client looks at how wrong the forecasts were on its own past days, so it costs
no privacy. An interval of 90 % is as wide as 90 % of the last errors; where it then missed more
often than one time in ten, the level is raised (Gibbs and Candès 2021), and lowered where it
missed less.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEVELS: tuple[float, ...] = (
    0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5,
    0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.975, 0.99,
)  # fmt: skip
"""The quantile levels of the forecast hubs."""

LEAST_ERRORS = 14
"""Past errors below which an interval says nothing."""
ERRORS = 126
"""How many past errors an interval looks at: 18 weeks."""
STEP = 0.01
"""How far one miss, or hit, moves a level."""
FARTHEST = 0.3
BEYOND = 5.0
"""How fast an interval grows past the largest error, if even that does not cover enough."""

_MIDDLE = LEVELS.index(0.5)
COVERAGE = 2 * np.array(LEVELS[_MIDDLE + 1 :]) - 1
"""The central coverage of each pair of levels around the median."""


def log_error(truth: Floats, forecast: Floats) -> Floats:
    """How far apart two counts are, on the log scale, softened by one case."""
    difference: Floats = np.abs(np.log((truth + 1) / (forecast + 1)))
    return difference


def widths(errors: Floats, horizon: int) -> Floats:
    """Half-widths on the log scale [clients, pairs] for a forecast made on the day after `errors`.

    errors[k, i] is the error of client k's forecast of day i, in order, the last one the newest
    that is known. A forecast of day i was made `horizon` days before, when only errors up to that
    day were known; so each past interval is judged as it would have been made.
    """
    clients, days = errors.shape
    offset = np.zeros((clients, len(COVERAGE)))
    for day in range(horizon + LEAST_ERRORS - 1, days):
        made = _quantiles(errors[:, : day - horizon + 1], offset)
        missed = errors[:, day, None] > made
        offset = np.clip(offset + STEP * (missed - (1 - COVERAGE)), -FARTHEST, FARTHEST)
    return _quantiles(errors, offset)


def quantiles(forecast: Floats, half: Floats) -> Floats:
    """The forecast and its half-widths as quantiles [clients, levels], none below zero."""
    centre = forecast[:, None] + 1
    below, above = centre * np.exp(-half[:, ::-1]), centre * np.exp(half)
    every: Floats = np.concatenate([below, centre, above], axis=1) - 1
    return np.maximum(every, 0.0)


def _quantiles(errors: Floats, offset: Floats) -> Floats:
    """Conformal quantiles of the last errors, at the coverage plus an offset."""
    ranked = np.sort(errors[:, -ERRORS:], axis=1)
    number = ranked.shape[1]
    place = np.maximum(np.clip(COVERAGE + offset, 0, 1) * (number + 1) - 1, 0)
    lower = np.minimum(place.astype(np.int64), number - 1)
    upper = np.minimum(lower + 1, number - 1)
    share = np.minimum(place - lower, 1.0)
    value = np.take_along_axis(ranked, lower, 1) * (1 - share)
    value = value + np.take_along_axis(ranked, upper, 1) * share
    value = value * (1 + BEYOND * np.maximum(place - (number - 1), 0) / number)
    grown: Floats = np.maximum.accumulate(value, axis=1)
    return grown


def weighted_interval_score(truth: Floats, quantile: Floats) -> Floats:
    """WIS (Bracher et al. 2021) of quantiles [..., levels]: twice the mean pinball loss."""
    levels = np.array(LEVELS)
    above = truth[..., None] - quantile
    score: Floats = 2 * np.maximum(levels * above, (levels - 1) * above).mean(axis=-1)
    return score


def hub_baseline(series: Floats, horizon: int) -> Floats:
    """The COVIDhub baseline: the last value, and past differences made symmetric, as quantiles.

    Differences over the horizon, a week apart; none below zero. `series` is [clients, days].
    """
    ends = np.arange(series.shape[1] - 1, horizon - 1, -7)
    last = series[:, -1, None]
    if len(ends) == 0:
        return np.repeat(last, len(LEVELS), axis=1)
    change = series[:, ends] - series[:, ends - horizon]
    both = np.concatenate([change, -change], axis=1)
    spread: Floats = np.quantile(both, LEVELS, axis=1).T
    return np.maximum(last + spread, 0.0)
