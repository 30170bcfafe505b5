"""How a week is carried on: what the last days say of growth and level, and what follows of them.

The arithmetic of the shared trend, which knows neither releases nor privacy: a week is the same
week again, times a growth that fades, and a level far from the country's that comes back.
"""

import math
from dataclasses import dataclass

import numpy as np

from epifed.days import WEEK
from epifed.learner import SOFTENING, Floats
from epifed.learners.shared import LEVEL_WIDTH
from epifed.panel import CasePanel
from epifed.rhythm import Rhythm

LEVEL_MIDDLE = 2.5
"""Log of the daily cases in 100,000 inhabitants in the middle of all levels."""
REVERTING = 0.13
"""Share of its distance from the country's level that a client loses in a week."""
DAMPING = 0.3
"""Growth of a forecast week relative to that of the week before."""
LARGEST_FORECAST = 0.8
"""Bound on the log growth forecast for the first week."""


@dataclass(frozen=True)
class Growth:
    """Log growth of the first week [regions, days]; of `own`, the distance that is reverted."""

    country: Floats
    region: Floats
    own: Floats

    @property
    def shared(self) -> Floats:
        """What the country and the region say together."""
        return bounded(self.country + self.region)

    def over(self, weeks: float) -> Floats:
        """The growth from now to so many weeks ahead."""
        return self.shared * lasting(weeks) + self.own * reverted(weeks)


def lasting(weeks: float) -> float:
    """Weeks of the first week's growth that so many weeks add up to."""
    return float((1 - DAMPING**weeks) / (1 - DAMPING))


def reverted(weeks: float) -> float:
    """Share of a client's distance from the country's level that so many weeks take away."""
    return float(1 - (1 - REVERTING) ** weeks)


def bounded(growth: Floats) -> Floats:
    """A log growth of the first week within what is forecast at all."""
    within: Floats = np.clip(growth, -LARGEST_FORECAST, LARGEST_FORECAST)
    return within


def change_of(own: Rhythm, now: Floats, before: Floats, recency: float) -> tuple[Floats, Floats]:
    """The relative change of the last week [clients, days] against the one before, and its cases.

    The last days count most, and days on or after holidays little.
    """
    trust = np.minimum(own.trust[:, WEEK:], own.trust[:, :WEEK])
    weight = trust * recency ** np.arange(WEEK)[::-1]
    added, whole = (weight * (now - before)).sum(axis=1), (weight * (now + before)).sum(axis=1)
    change: Floats = added / (whole + SOFTENING)
    return change, whole


def level_of(own: Rhythm, panel: CasePanel, days: int) -> Floats:
    """The level of each of the last days, between -1 and 1: cases of a week by inhabitants.

    Where the population is not known, by the client's own average so far.
    """
    if panel.population is not None:
        total = _running(own.usual[:, -(days + WEEK - 1) :])
        usual = panel.population[:, None] / 1e5 * math.exp(LEVEL_MIDDLE)
    else:
        total = _running(own.usual)
        ends = np.arange(total.shape[1] - days, total.shape[1])
        usual = (total[:, ends] + 1) / ends
    cases = (total[:, -days:] - total[:, -days - WEEK : -WEEK] + SOFTENING) / WEEK
    level: Floats = np.tanh(np.log(cases / usual) / LEVEL_WIDTH)
    return level


def _running(values: Floats) -> Floats:
    """The sums up to before each day, and up to the last."""
    total = np.zeros((values.shape[1] + 1, len(values))).T
    np.cumsum(values, axis=1, out=total[:, 1:])
    return total


def carried_on(own: Rhythm, growing: Growth, days: int, horizon: int) -> Floats:
    """The average of the week that ends `horizon` days after each of the last days."""
    length = own.usual.shape[1]
    origins = np.arange(length - days, length)
    total = np.zeros((days, len(own.usual))).T
    for ahead in range(horizon - WEEK + 1, min(horizon, 0) + 1):
        total += own.counts[:, origins + ahead]
    for weeks in range(1, -(-horizon // WEEK) + 1):
        first, last = max(horizon - WEEK, (weeks - 1) * WEEK) + 1, min(horizon, weeks * WEEK)
        if first > last:
            continue
        so_far = _running(own.again(weeks, length - days + first, length + last))
        total += (so_far[:, last - first + 1 :] - so_far[:, :days]) * np.exp(growing.over(weeks))
    return np.ascontiguousarray(np.maximum(total, 0.0)) / WEEK
