"""The weekday effects of a client's reports, and its counts with holiday effects removed.

All of it is local. Each client learns from its own recent past what share of a week it reports on
each weekday. A holiday is expected to resemble the client's weekend, and the day after the day
after a weekend. How closely, is learned from the client's own holidays. No later data is used: the
effects of a week are learned before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta

import numpy as np
from numpy.typing import NDArray

from epifed.data import calendar as holidays
from epifed.data.calendar import WEEK

Floats = NDArray[np.float64]
Index = NDArray[np.int64]

LONGEST = 52
"""Largest number of weeks that are used."""
AHEAD = 4
"""Largest number of weeks that can be forecast."""

HALF_LIFE = 5.0
"""Weeks after which a week has half its weight for the weekdays."""
FEW = 3.0
"""Weight of evenly spread cases, the prior of the weekday shares."""
HOLIDAY_HALF_LIFE = 10.0
"""Days on or after holidays after which one has half its weight."""
ASSUMED = 3.0
"""Weight, in such days, of the prior that a client observes holidays."""
TYPICAL = 0.5
"""Usual difference of cases on such a day from a usual one, relative to the average day."""
EXPECTED = np.array([1.0, 1.0, 1.0, 1.0, 1.05, 1.08, 0.9])
"""Cases on a kind of day relative to the weekday that it resembles."""
IS_BACK = np.array([False, False, False, True, True, True, False])
"""The kinds of working days after a holiday, whose effect is learned apart from days off."""
TRUST = np.array([1.0, 0.05, 0.05, 0.8, 0.8, 0.8, 0.8])
"""Weight of a kind of day in the measurement of growth."""
LEAST, MOST = 0.05, 3.0


@dataclass(frozen=True)
class WeekdayEffects:
    """The last whole weeks of some clients, with and without holiday effects."""

    counts: Floats
    """[regions, days], as reported."""
    usual: Floats
    """The same with holidays as usual days."""
    trust: Floats
    """Weight of each of the last 14 days in the measurement of growth, little on holidays."""
    _week: "_Weeks"
    _known: tuple["_Known", ...]
    """The effects learned before each week."""

    @property
    def last_factor(self) -> Floats:
        """Cases on each of the last seven days relative to a usual day."""
        last = len(self._known) - 1
        if last not in self._week.special:
            return np.ones((len(self.counts), WEEK))
        return self._known[last].factor(*self._week.of(last)).T

    def ending(self, week: Floats) -> "WeekdayEffects":
        """The same with other counts [regions, 7] of the last seven days."""
        before = self.usual[:, -2 * WEEK : -WEEK]
        usual = _as_usual(week, self.last_factor, before) if before.shape[1] == WEEK else week
        counts, usual = (
            np.concatenate([days[:, :-WEEK], last], axis=1)
            for days, last in ((self.counts, week), (self.usual, usual))
        )
        return replace(self, counts=counts, usual=usual)

    def again(self, weeks: int, begin: int, end: int) -> Floats:
        """The days from `begin` to before `end`, each a copy of the day so many weeks before.

        Holiday effects of the copied day are removed and those of this day added. Days count from
        the first one here, and may lie up to so many weeks after the last.
        """
        gap = weeks * WEEK
        copied = self.usual[:, begin - gap : end - gap].copy(order="K")
        for week in self._week.special:
            first, last = max(week * WEEK, begin), min((week + 1) * WEEK, end)
            if first < last and 0 <= week - weeks < len(self._known):
                factor = self._known[week - weeks].factor(*self._week.of(week))
                place = slice(first - week * WEEK, last - week * WEEK)
                copied[:, first - begin : last - begin] *= factor[place].T
        return copied


def weekday_effects(counts: Floats, calendars: Sequence[str], last: date) -> WeekdayEffects:
    """Learn the weekday effects of clients whose counts end on a day; calendars may be `()`."""
    weeks = min(counts.shape[1] // WEEK, LONGEST)
    # Days first, so that a week is contiguous in memory.
    daily = np.ascontiguousarray(counts[:, counts.shape[1] - weeks * WEEK :].T)
    calendar = _Weeks.of_clients(calendars or [""] * len(counts), last, weeks)
    learned = _Learned(len(counts))
    effects: list[_Known] = []
    usual = daily.copy()
    for week in range(weeks):
        start, end = week * WEEK, (week + 1) * WEEK
        effects.append(learned.known())
        if week in calendar.special and week:
            factor = effects[-1].factor(*calendar.of(week))
            usual[start:end] = _as_usual(daily[start:end], factor, usual[start - WEEK : start])
        if week >= 2:
            around = np.cumsum(usual[start - WEEK - 4 : start + 3], axis=0)
            level = (around[WEEK:] - around[:WEEK]) / WEEK
            seen = daily[start - WEEK : start]
            if week - 1 in calendar.special:
                learned.see_holidays(seen, level, effects[week - 1], *calendar.of(week - 1))
            else:
                learned.see_week(seen, level)
    trust = np.concatenate(
        [TRUST[calendar.of(week)[0]] for week in range(max(weeks - 2, 0), weeks)]
    )
    return WeekdayEffects(daily.T, usual.T, trust.T, calendar, tuple(effects))


def _as_usual(counts: Floats, factor: Floats, before: Floats) -> Floats:
    """A week's counts with holidays as usual days, estimated from the week before."""
    filled = counts + (1 - factor) * before
    usual: Floats = np.where(factor < 1, filled, counts / np.maximum(factor, 1))
    return usual


@dataclass(frozen=True)
class _Weeks:
    """The kinds of all days, in weeks counted from the clients' last day, some of them ahead."""

    row: Index
    """The number of each client's calendar."""
    kind: Index
    """[weeks, days, calendars]"""
    like: Index
    """The weekday that each day resembles."""
    special: frozenset[int]
    """The weeks with a day that is not usual."""

    @classmethod
    def of_clients(cls, calendars: Sequence[str], last: date, weeks: int) -> "_Weeks":
        """The weeks of clients with these calendars."""
        first = last - timedelta(days=weeks * WEEK - 1)
        codes = sorted(set(calendars))
        place = {code: i for i, code in enumerate(codes)}
        row = np.array([place[code] for code in calendars], dtype=np.int64)
        kinds = [holidays.day_kinds(code, first, (weeks + AHEAD) * WEEK) for code in codes]
        kind, like = (
            np.stack(part, axis=1).reshape(-1, WEEK, len(codes))
            for part in zip(*kinds, strict=True)
        )
        special = np.flatnonzero(kind.any(axis=(1, 2)))
        return cls(row, kind, (like - first.weekday()) % WEEK, frozenset(special.tolist()))

    def of(self, week: int) -> tuple[Index, Index]:
        """Kind of each client's days in a week and the weekday they resemble: [days, clients]."""
        return self.kind[week][:, self.row], self.like[week][:, self.row]


@dataclass(frozen=True)
class _Known:
    """The learned effects of weekdays and holidays."""

    share: Floats
    """Cases on each day of the week relative to the average day: [days, clients]."""
    keeping: Floats
    """Share of the expected effect of days off, and of days after them, by client: [2, clients]."""

    def expected(self, kind: Index, like: Index) -> Floats:
        """The relative difference of each day of a week from a usual one, if holidays count."""
        ratio = np.take_along_axis(self.share, like, axis=0) / self.share * EXPECTED[kind]
        difference: Floats = np.where(kind == holidays.USUAL, 0.0, np.clip(ratio, LEAST, MOST) - 1)
        return difference

    def factor(self, kind: Index, like: Index) -> Floats:
        """Cases on each day of a week relative to a usual day."""
        off, back = self.keeping
        kept = np.where(IS_BACK[kind], back, off)
        factor: Floats = np.clip(1 + kept * self.expected(kind, like), LEAST, MOST)
        return factor


class _Learned:
    """The running sums from which clients learn."""

    def __init__(self, clients: int) -> None:
        self.on_day, self.in_week = np.zeros((2, WEEK, clients))
        self.moved, self.expected = np.zeros((2, 2, clients))

    def known(self) -> _Known:
        """The effects learned from the sums so far."""
        share = np.clip((self.on_day + FEW) / (self.in_week + FEW), 0.02, WEEK)
        assumed = ASSUMED * TYPICAL**2
        keeping = (self.moved + assumed) / (self.expected + assumed)
        return _Known(share, np.clip(keeping, 0.0, 1.3))

    def see_week(self, counts: Floats, level: Floats) -> None:
        """Learn from a week of usual days, given the level around each."""
        keep = 0.5 ** (1 / HALF_LIFE)
        self.on_day, self.in_week = self.on_day * keep + counts, self.in_week * keep + level

    def see_holidays(
        self, counts: Floats, level: Floats, effects: _Known, kind: Index, like: Index
    ) -> None:
        """Learn from a week with days that are not usual."""
        before = self.on_day, self.in_week
        self.see_week(counts, level)
        usual = kind == holidays.USUAL
        self.on_day, self.in_week = (
            np.where(usual, now, then)
            for now, then in zip((self.on_day, self.in_week), before, strict=True)
        )
        expected = effects.expected(kind, like) * effects.share
        moved = np.clip(counts / (level + FEW / WEEK) - effects.share, -1.0, 1.0)
        for group, back in enumerate((False, True)):
            here = ~usual & (IS_BACK[kind] == back)
            keep = 0.5 ** (here.sum(axis=0) / HOLIDAY_HALF_LIFE)
            seen = (here * expected * moved).sum(axis=0), (here * expected**2).sum(axis=0)
            self.moved[group] = self.moved[group] * keep + seen[0]
            self.expected[group] = self.expected[group] * keep + seen[1]
