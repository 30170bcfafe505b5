"""Growth: released means filtered over time, and the extrapolation of a week by them.

Each released number is filtered over the releases: a noisy one counts little against what earlier
ones suggest, and with infinite noise nothing is left but "no growth". A week is extrapolated as the
same week again, times a growth that fades, and a level far from the country's returns to it.
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
    """What past releases said, the last day first: means and precisions [days, numbers].

    Of a learner of weeks, a day here is a week.
    """

    values: Floats
    precision: Floats
    """0: nothing is known."""

    @classmethod
    def unknown(cls, days: int, numbers: int) -> "Releases":
        """Nothing known of any day."""
        return cls(np.zeros((days, numbers)), np.zeros((days, numbers)))

    def before(self, days: int) -> "Releases":
        """What was known so many days before."""
        return Releases(self.values[days:], self.precision[days:])

    def later(self, days: int) -> "Releases":
        """The days move back, as many being remembered; of the new ones nothing is known yet."""
        remembered, numbers = self.values.shape
        new = np.zeros((min(days, remembered), numbers))
        values, precision = (
            np.concatenate([new, old])[:remembered] for old in (self.values, self.precision)
        )
        return Releases(values, precision)

    def joined(self, other: "Releases") -> "Releases":
        """Each number of each day weighted by how well it is known."""
        known = self.precision + other.precision
        total = self.values * self.precision + other.values * other.precision
        mean = np.where(known > 0, total / np.maximum(known, 1e-30), 0.0)
        return Releases(mean, np.minimum(known, EXACT))

    def said(self, release: Vector, scale: Floats, noise_std: float) -> "Releases":
        """The state after a release on the last day, whose first numbers come times a scale."""
        fresh = Releases.unknown(*self.values.shape)
        numbers = len(scale)
        fresh.values[0, :numbers] = release * scale
        precision = EXACT if noise_std == 0 else 1 / (scale * noise_std) ** 2
        fresh.precision[0, :numbers] = np.minimum(precision, EXACT)
        return self.joined(fresh)


class ReleaseLearner(Learner[Releases, V]):
    """A learner whose state is what past releases said, and nothing else."""

    remembered: ClassVar[tuple[int, int]]
    """Days of releases that a state remembers, and the numbers of each."""

    def start(self, seeds: np.random.SeedSequence) -> Releases:
        """Nothing known."""
        del seeds
        return Releases.unknown(*self.remembered)

    def advance(self, state: Releases, days: int) -> Releases:
        """The days move back; of the new ones nothing is known yet."""
        return state.later(days)

    def join(self, earlier: Releases, fresh: Releases) -> Releases:
        """Each number of each day weighted by how well it is known."""
        return earlier.joined(fresh)

    def informed(self, state: Releases) -> int:
        """The days since the first release that is remembered."""
        return int(np.flatnonzero(state.precision.any(axis=1)).max(initial=0))

    def pack(self, state: Releases) -> Vector:
        """The values, then the precisions."""
        return np.concatenate([state.values.ravel(), state.precision.ravel()]).astype(np.float32)

    def unpack(self, vector: Vector) -> Releases:
        """What `pack` made."""
        days, numbers = self.remembered
        self.refuse_length(vector, 2 * days * numbers)
        values, precision = vector.astype(np.float64).reshape(2, days, numbers)
        return Releases(values, precision)


HISTORY = 217
"""Steps that a state remembers: 31 weeks of days, or four years of weeks."""
GROWTH, LEVEL = 0, 1
NUMBERS = ("growth", "level", "size", "north", "east")
"""What a release may say: the mean change of clients, their mean level, and how the change depends
on a client's population and place."""
MODES = len(NUMBERS) - 2

TYPICAL = np.array([0.13, 1.0, 0.025, 0.025, 0.025])
"""Deviation of each number over quiet and wild weeks together, against which noise is weighed."""
LASTING = np.array([0.7, 1.0, 0.7, 0.7, 0.7])
"""Share of each number that is left a week later, on average."""
DRIFT = np.array([0.0, 0.015, 0.0, 0.0, 0.0])
"""Deviation by which the level moves in a week beside what the growth explains."""
LEVEL_WIDTH = 3.0
"""Log incidences over which the bounded level changes by one."""

FOLLOW, FOLLOW_SPREAD = 1.0, 0.15
"""Growth forecast for the next week per unit of the trend, before the past has shown how much, and
how far that may be off."""
SURPRISE = 0.13
"""Deviation of a nation's week from its forecast."""


@dataclass(frozen=True)
class Signals:
    """What could be known at each step, the last one first, once noise is weighed."""

    growth: Floats
    """Log growth of the next week, of all clients together: [steps]."""
    slopes: Floats
    """What is added for a client by its size and place: [steps, modes]."""
    level: Floats
    """Mean bounded level of the clients; not a number where none is known."""


def signals(state: Releases, week: int = WEEK) -> Signals:
    """Filter the releases of a state, and say for each step what followed from them.

    Between two releases the numbers are interpolated; after the last one they fade. `week` is the
    steps of a week.
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
    # np.interp wants rising places: the oldest release has the largest number of days.
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
    """A bounded level after a growth."""
    return level + growth * (1 - level**2) / LEVEL_WIDTH


def _filtered(state: Releases, released: NDArray[np.int64], week: int) -> Floats:
    """The numbers as of each release, the oldest first, each weighed against its prediction."""
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
    """How much of the growth to follow, as of each release: learned from those a week apart.

    What the level then did says how much of a growth there was to follow; little, as long as
    few weeks are known or the noise is large.
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


def change_of(
    own: WeekdayEffects, now: Floats, before: Floats, recency: float
) -> tuple[Floats, Floats]:
    """The relative change of the last week [clients, days] against the one before, and its cases.

    The last days count most, and days on or after holidays little.
    """
    trust = np.minimum(own.trust[:, WEEK:], own.trust[:, :WEEK])
    weight = trust * recency ** np.arange(WEEK)[::-1]
    added, whole = (weight * (now - before)).sum(axis=1), (weight * (now + before)).sum(axis=1)
    change: Floats = added / (whole + SOFTENING)
    return change, whole


def level_of(own: WeekdayEffects, panel: CasePanel, days: int) -> Floats:
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


def carried_on(own: WeekdayEffects, growing: Growth, days: int, horizon: int) -> Floats:
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
