"""Growth: released means filtered over time, and the weekly forecast from them.

Each released number is filtered over the releases: a noisy one has little weight against the
prediction from earlier ones, and with infinite noise the estimate is "no growth". A week's forecast
is the same week again, times a growth that fades. A level far from the country's returns to it.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from epifed.data.calendar import WEEK
from epifed.data.panel import CasePanel
from epifed.data.weekday_effects import WeekdayEffects
from epifed.learners.base import SOFTENING, Floats, Learner, V, Vector

EXACT = 1e12
"""The precision of a number without noise."""


@dataclass(frozen=True)
class Releases:
    """Values of past releases, the last day first: means and precisions [days, numbers].

    For a learner of weeks, each row is a week.
    """

    values: Floats
    precision: Floats
    """Inverse variance of each value; 0 where there is no release."""

    @classmethod
    def unknown(cls, days: int, numbers: int) -> "Releases":
        """Releases without any known value."""
        return cls(np.zeros((days, numbers)), np.zeros((days, numbers)))

    def before(self, days: int) -> "Releases":
        """The releases as they were known so many days before."""
        return Releases(self.values[days:], self.precision[days:])

    def later(self, days: int) -> "Releases":
        """The releases so many days later: older rows move back, and the new rows are unknown."""
        remembered, numbers = self.values.shape
        new = np.zeros((min(days, remembered), numbers))
        values, precision = (
            np.concatenate([new, old])[:remembered] for old in (self.values, self.precision)
        )
        return Releases(values, precision)

    def joined(self, other: "Releases") -> "Releases":
        """Both releases together, each value weighted by its precision."""
        known = self.precision + other.precision
        total = self.values * self.precision + other.values * other.precision
        mean = np.where(known > 0, total / np.maximum(known, 1e-30), 0.0)
        return Releases(mean, np.minimum(known, EXACT))

    def said(self, release: Vector, scale: Floats, noise_std: float) -> "Releases":
        """The state after a release on the last day; `scale` multiplies its first numbers."""
        fresh = Releases.unknown(*self.values.shape)
        numbers = len(scale)
        fresh.values[0, :numbers] = release * scale
        precision = EXACT if noise_std == 0 else 1 / (scale * noise_std) ** 2
        fresh.precision[0, :numbers] = np.minimum(precision, EXACT)
        return self.joined(fresh)


class ReleaseLearner(Learner[Releases, V]):
    """A learner whose state is nothing but the values of past releases."""

    remembered: ClassVar[tuple[int, int]]
    """Days of releases in a state, and numbers of each."""

    def start(self, seeds: np.random.SeedSequence) -> Releases:
        """A state without any release."""
        del seeds
        return Releases.unknown(*self.remembered)

    def advance(self, state: Releases, days: int) -> Releases:
        """The state so many days later; the new days are unknown."""
        return state.later(days)

    def join(self, earlier: Releases, fresh: Releases) -> Releases:
        """Both states together, each value weighted by its precision."""
        return earlier.joined(fresh)

    def informed(self, state: Releases) -> int:
        """Days since the first release in the state."""
        return int(np.flatnonzero(state.precision.any(axis=1)).max(initial=0))

    def pack(self, state: Releases) -> Vector:
        """The values, then the precisions."""
        return np.concatenate([state.values.ravel(), state.precision.ravel()]).astype(np.float32)

    def unpack(self, vector: Vector) -> Releases:
        """The state from the vector of `pack`."""
        days, numbers = self.remembered
        self.refuse_length(vector, 2 * days * numbers)
        values, precision = vector.astype(np.float64).reshape(2, days, numbers)
        return Releases(values, precision)


HISTORY = 217
"""Steps in a state: 31 weeks of days, or four years of weeks."""
GROWTH, LEVEL = 0, 1
NUMBERS = ("growth", "level", "size", "north", "east")
"""Numbers of a release: the mean change of clients, their mean level, and how the change depends
on a client's population and place."""
MODES = len(NUMBERS) - 2

TYPICAL = np.array([0.13, 1.0, 0.025, 0.025, 0.025])
"""Standard deviation of each number over calm and changing weeks, the prior of the filter."""
LASTING = np.array([0.7, 1.0, 0.7, 0.7, 0.7])
"""Average share of each number that remains a week later."""
DRIFT = np.array([0.0, 0.015, 0.0, 0.0, 0.0])
"""Standard deviation of the level's weekly change beyond what the growth explains."""
LEVEL_WIDTH = 3.0
"""Log incidences over which the bounded level changes by one."""

FOLLOW, FOLLOW_SPREAD = 1.0, 0.15
"""Prior of the growth forecast for the next week per unit of the trend, before past releases show
it, and its standard deviation."""
SURPRISE = 0.13
"""Standard deviation of the error of a nation's weekly forecast."""


@dataclass(frozen=True)
class Signals:
    """The filtered estimates at each step, the last step first."""

    growth: Floats
    """Log growth of the next week, of all clients together: [steps]."""
    slopes: Floats
    """Additional growth per unit of a client's size and place: [steps, modes]."""
    level: Floats
    """Mean bounded level of the clients; NaN where unknown."""


def signals(state: Releases, week: int = WEEK) -> Signals:
    """Filter the releases of a state, and give the estimates as of each step.

    Between two releases the numbers are interpolated; after the last one they fade. `week` is the
    number of steps in a week.
    """
    released = np.flatnonzero(state.precision[:, GROWTH] > 0)[::-1]
    growth, level = np.zeros(HISTORY), np.full(HISTORY, np.nan)
    slopes = np.zeros((HISTORY, MODES))
    if len(released) == 0:
        return Signals(growth, slopes, level)
    found = _filtered(state, released, week)
    follow = _follow(state, released, found, week)
    newest = int(released[-1])
    days = np.arange(HISTORY)
    # np.interp needs rising places: the oldest release has the largest number of days.
    order = released[::-1]
    between = (days >= newest) & (days <= released[0])
    raw = np.stack([np.interp(days, order, found[::-1, i]) for i in range(len(NUMBERS))], axis=1)
    growth[between] = (np.interp(days, order, follow[::-1]) * log_growth(raw[:, GROWTH]))[between]
    slopes[between], level[between] = 2 * raw[between, 2:], raw[between, LEVEL]
    for day in range(newest):
        weeks = (newest - day) / week
        growth[day] = growth[newest] * LASTING[GROWTH] ** weeks
        slopes[day] = slopes[newest] * LASTING[2:] ** weeks
        level[day] = _grown(level[newest], growth[newest] * weeks)
    return Signals(growth, slopes, level)


def log_growth(change: Floats) -> Floats:
    """The log growth of a relative change (now - before) / (now + before)."""
    return 2 * np.arctanh(np.clip(change, -0.9, 0.9))


def _grown(level: float, growth: float) -> float:
    """A bounded level after a log growth."""
    return level + growth * (1 - level**2) / LEVEL_WIDTH


def _filtered(state: Releases, released: NDArray[np.int64], week: int) -> Floats:
    """The numbers as of each release, the oldest first, filtered against their prediction."""
    found = np.zeros((len(released), len(NUMBERS)))
    mean, variance = np.zeros(len(NUMBERS)), TYPICAL**2
    before = int(released[0])
    for i, day in enumerate(released):
        weeks = (before - int(day)) / week
        lasting = LASTING**weeks
        moved = _grown(mean[LEVEL], float(log_growth(mean[GROWTH])) * weeks)
        mean = lasting * mean
        mean[LEVEL] = moved
        variance = lasting**2 * variance + TYPICAL**2 * (1 - lasting**2) + DRIFT**2 * weeks
        noise = 1 / np.maximum(state.precision[day], 1 / EXACT)
        gain = np.where(state.precision[day] > 0, variance / (variance + noise), 0.0)
        mean = mean + gain * (state.values[day] - mean)
        variance = variance * (1 - gain)
        found[i] = mean
        before = int(day)
    return found


def _follow(state: Releases, released: NDArray[np.int64], found: Floats, week: int) -> Floats:
    """The share of the growth to forecast, as of each release, learned from releases a week apart.

    It is estimated from the level's change after each growth. The estimate stays close to its
    prior while few weeks are known or the noise is large.
    """
    weight, product = np.zeros(len(released)), np.zeros(len(released))
    place = {int(day): i for i, day in enumerate(released)}
    for i, day in enumerate(released):
        then = int(day) + week
        if then not in place:
            continue
        x = float(log_growth(found[place[then], GROWTH]))
        low, high = state.values[then, LEVEL], state.values[day, LEVEL]
        slope = LEVEL_WIDTH / max(1 - low**2, 0.1)
        noise = slope**2 * float((1 / np.maximum(state.precision[[day, then], LEVEL], 1e-30)).sum())
        known = 1 / (SURPRISE**2 + noise)
        weight[i], product[i] = known * x * x, known * x * slope * (high - low)
    prior = 1 / FOLLOW_SPREAD**2
    learned: Floats = (prior * FOLLOW + np.cumsum(product)) / (prior + np.cumsum(weight))
    return np.clip(learned, 0.5, 1.2)


LEVEL_MIDDLE = 2.5
"""Middle of all levels: the log of daily cases per 100,000 inhabitants."""
REVERTING = 0.13
"""Share of a client's distance from the country's level that is lost in a week."""
DAMPING = 0.3
"""Growth of a forecast week relative to that of the week before."""
LARGEST_FORECAST = 0.8
"""Bound on the log growth forecast for the first week."""


@dataclass(frozen=True)
class Growth:
    """Log growth of the first week [regions, days]; `own` is the distance that reverts."""

    country: Floats
    region: Floats
    own: Floats

    @property
    def shared(self) -> Floats:
        """The bounded sum of the country's and the region's growth."""
        return bounded(self.country + self.region)

    def over(self, weeks: float) -> Floats:
        """The log growth from now to so many weeks ahead."""
        return self.shared * lasting(weeks) + self.own * reverted(weeks)


def lasting(weeks: float) -> float:
    """The growth of so many weeks, in multiples of the first week's growth."""
    return float((1 - DAMPING**weeks) / (1 - DAMPING))


def reverted(weeks: float) -> float:
    """Share of a client's distance from the country's level that is lost in so many weeks."""
    return float(1 - (1 - REVERTING) ** weeks)


def bounded(growth: Floats) -> Floats:
    """A log growth of the first week, clipped to ±`LARGEST_FORECAST`."""
    within: Floats = np.clip(growth, -LARGEST_FORECAST, LARGEST_FORECAST)
    return within


def change_of(
    own: WeekdayEffects, now: Floats, before: Floats, recency: float
) -> tuple[Floats, Floats]:
    """The relative change of the last week [clients, days] against the one before, and its cases.

    Later days have more weight, days on or after holidays little.
    """
    trust = np.minimum(own.trust[:, WEEK:], own.trust[:, :WEEK])
    weight = trust * recency ** np.arange(WEEK)[::-1]
    added, whole = (weight * (now - before)).sum(axis=1), (weight * (now + before)).sum(axis=1)
    change: Floats = added / (whole + SOFTENING)
    return change, whole


def level_of(own: WeekdayEffects, panel: CasePanel, days: int) -> Floats:
    """The level of each of the last days, between -1 and 1: weekly cases per inhabitant.

    Without a population, relative to the client's own average so far.
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
    """Cumulative sums along the days, starting with 0."""
    total = np.zeros((values.shape[1] + 1, len(values))).T
    np.cumsum(values, axis=1, out=total[:, 1:])
    return total


def carried_on(own: WeekdayEffects, growing: Growth, days: int, horizon: int) -> Floats:
    """The forecast average of the week that ends `horizon` days after each of the last days."""
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
