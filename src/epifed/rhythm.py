"""The weekly rhythm of a client's reports, and its counts with holidays taken out of them.

All of it is local. Each client learns, from its own past and forgetting it, what share of a week it
reports on each weekday. A holiday looks like its own weekend, the day after like the day after a
weekend; how far that holds, it learns from its own holidays. Nothing looks ahead: what is assumed
of a week was learned before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np
from numpy.typing import NDArray

from epifed import holidays
from epifed.days import WEEK

Floats = NDArray[np.float64]
Index = NDArray[np.int64]

LONGEST = 52
"""Weeks at most that are looked at."""
AHEAD = 4
"""Weeks at most that can be forecast."""

HALF_LIFE = 5.0
"""Weeks after which a week counts half for the weekdays."""
FEW = 3.0
"""Cases that are assumed to be spread evenly, before a client has seen its own."""
HOLIDAY_HALF_LIFE = 6.0
"""Holidays of a kind after which one counts half."""
ASSUMED = 6.0
"""How many holidays the assumption about their kind is worth."""
EXPECTED = np.array([1.0, 1.0, 1.0, 1.0, 1.05, 1.08, 0.9])
"""Cases on a kind of day relative to the weekday it is like, before a client has seen one."""
TRUST = np.array([1.0, 0.05, 0.05, 0.8, 0.8, 0.8, 0.8])
"""Weight of a kind of day where growth is measured."""
LEAST, MOST = 0.05, 3.0


@dataclass(frozen=True)
class Rhythm:
    """The last whole weeks of some clients, holidays taken out."""

    counts: Floats
    """[regions, days], as reported."""
    usual: Floats
    """The same with holidays as usual days."""
    trust: Floats
    """Weight of each of the last 14 days where growth is measured: little on holidays."""
    _week: "_Weeks"
    _known: tuple["_Known", ...]
    """What was known before each week."""

    def again(self, weeks: int) -> Floats:
        """Each day as the one so many weeks before, holidays put in: [regions, days + 28].

        Where there is no such day it is 0.
        """
        days, gap = self.usual.shape[1], weeks * WEEK
        found = np.zeros((len(self.usual), days + AHEAD * WEEK))
        found[:, gap : gap + days] = self.usual
        for week in self._week.special:
            if 0 <= week - weeks < len(self._known):
                factor = self._known[week - weeks].factor(*self._week.of(week))
                found[:, week * WEEK : (week + 1) * WEEK] *= factor
        return found


def rhythm(counts: Floats, calendars: Sequence[str], last: date) -> Rhythm:
    """The rhythm of clients whose counts end on a day, each with a calendar; `()` is none."""
    weeks = min(counts.shape[1] // WEEK, LONGEST)
    counts = counts[:, counts.shape[1] - weeks * WEEK :]
    calendar = _Weeks.of_clients(calendars or [""] * len(counts), last, weeks)
    learned = _Learned(len(counts))
    known: list[_Known] = []
    usual = counts.copy()
    for week in range(weeks):
        days = slice(week * WEEK, (week + 1) * WEEK)
        known.append(learned.known())
        if week in calendar.special and week:
            factor = known[-1].factor(*calendar.of(week))
            filled = counts[:, days] + (1 - factor) * usual[:, days.start - WEEK : days.start]
            usual[:, days] = np.where(factor < 1, filled, counts[:, days] / np.maximum(factor, 1))
        if week >= 2:
            around = np.cumsum(usual[:, days.start - WEEK - 4 : days.start + 3], axis=1)
            level = (around[:, WEEK:] - around[:, :WEEK]) / WEEK
            seen = counts[:, days.start - WEEK : days.start]
            if week - 1 in calendar.special:
                learned.see_holidays(seen, level, known[week - 1], *calendar.of(week - 1))
            else:
                learned.see_week(seen, level)
    trust = np.concatenate(
        [TRUST[calendar.of(week)[0]] for week in range(max(weeks - 2, 0), weeks)], axis=1
    )
    return Rhythm(counts, usual, trust, calendar, tuple(known))


@dataclass(frozen=True)
class _Weeks:
    """The kinds of all days, in weeks counted from the clients' last day, some of them ahead."""

    row: Index
    """Which calendar each client has."""
    kind: Index
    """[calendars, weeks, days]"""
    like: Index
    """The day of the week that each day is like."""
    special: frozenset[int]
    """The weeks in which some day is not a usual one."""

    @classmethod
    def of_clients(cls, calendars: Sequence[str], last: date, weeks: int) -> "_Weeks":
        """The weeks of clients with these calendars."""
        first = last - timedelta(days=weeks * WEEK - 1)
        codes = sorted(set(calendars))
        place = {code: i for i, code in enumerate(codes)}
        row = np.array([place[code] for code in calendars], dtype=np.int64)
        found = [holidays.day_kinds(code, first, (weeks + AHEAD) * WEEK) for code in codes]
        kind, like = (
            np.stack(part).reshape(len(codes), -1, WEEK) for part in zip(*found, strict=True)
        )
        special = np.flatnonzero(kind.any(axis=(0, 2)))
        return cls(row, kind, (like - first.weekday()) % WEEK, frozenset(special.tolist()))

    def of(self, week: int) -> tuple[Index, Index]:
        """Kind and likeness of each client's days in a week."""
        return self.kind[self.row, week], self.like[self.row, week]


@dataclass(frozen=True)
class _Known:
    """What clients have learned of their weekdays and holidays."""

    share: Floats
    """Cases on each day of the week relative to the average day."""
    effect: Floats
    """Cases on each kind of day relative to the weekday it is like."""

    def factor(self, kind: Index, like: Index) -> Floats:
        """Cases on each day of a week relative to what they are on a usual day."""
        ratio = np.take_along_axis(self.share, like, axis=1) / self.share
        ratio = ratio * np.take_along_axis(self.effect, kind, axis=1)
        found: Floats = np.where(kind == holidays.USUAL, 1.0, np.clip(ratio, LEAST, MOST))
        return found


class _Learned:
    """The sums from which clients learn, as far as they have seen."""

    def __init__(self, clients: int) -> None:
        self.on_day, self.in_week = np.zeros((2, clients, WEEK))
        self.found, self.expected, self.number = np.zeros((3, clients, holidays.KINDS))

    def known(self) -> _Known:
        """What follows from them."""
        share = np.clip((self.on_day + FEW) / (self.in_week + FEW), 0.02, WEEK)
        assumed = ASSUMED * self.expected / np.maximum(self.number, 1e-9) + FEW
        effect = (self.found + assumed * EXPECTED) / (self.expected + assumed)
        return _Known(share, np.clip(effect, 0.3, 2.0))

    def see_week(self, counts: Floats, level: Floats) -> None:
        """Learn from a week of usual days, the level around each of which is known."""
        keep = 0.5 ** (1 / HALF_LIFE)
        self.on_day, self.in_week = self.on_day * keep + counts, self.in_week * keep + level

    def see_holidays(
        self, counts: Floats, level: Floats, known: _Known, kind: Index, like: Index
    ) -> None:
        """Learn from a week with other days."""
        before = self.on_day, self.in_week
        self.see_week(counts, level)
        usual = kind == holidays.USUAL
        self.on_day, self.in_week = (
            np.where(usual, now, then)
            for now, then in zip((self.on_day, self.in_week), before, strict=True)
        )
        likely = level * np.take_along_axis(known.share, like, axis=1)
        for one in range(1, holidays.KINDS):
            here = kind == one
            times = here.sum(axis=1)
            keep = 0.5 ** (times / HOLIDAY_HALF_LIFE)
            self.found[:, one] = self.found[:, one] * keep + (counts * here).sum(axis=1)
            self.expected[:, one] = self.expected[:, one] * keep + (likely * here).sum(axis=1)
            self.number[:, one] = self.number[:, one] * keep + times
