"""What past releases of the shared trend said, step by step, and what follows from them.

Each number is filtered over the releases: what is mostly noise counts little against what the
releases before let expect, and with infinite noise nothing is left but "no growth".
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from epifed.days import WEEK
from epifed.learners.releases import EXACT, Releases

Floats = NDArray[np.float64]

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
