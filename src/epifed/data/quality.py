"""Days on which a region's report is no count of that day, and what the day was probably like.

Backlogs reported at once, reports that did not come, corrections. Each region is judged alone, by
its own way of reporting: one that reports once a week is not silent on the other days. It is one
step between a panel and whatever learns or forecasts from it; scores keep the data as they are.

The days are gone through once, in order. What is said of a day is said on that day or never, so
what was known on an earlier day never changes.
"""

from dataclasses import dataclass, replace
from datetime import date

import numpy as np
import polars as pl
from numpy.typing import NDArray

from epifed.data import calendar
from epifed.data.calendar import WEEK
from epifed.data.panel import CasePanel
from epifed.errors import counted

Floats = NDArray[np.float64]
Kinds = NDArray[np.uint8]
Booleans = NDArray[np.bool_]

ANOMALOUS = ("backlog", "silence", "catch-up")
"""Too many cases at once; no report where one was due; a report with what a silence owed."""
KINDS = ("usual", *ANOMALOUS)
"""What a day is, by its number in `Cleaned.kinds`."""
USUAL, BACKLOG, SILENCE, CATCH_UP = range(len(KINDS))

WEEKS = 3
"""A day is expected to be like the same weekday of so many weeks, at the level of the last one."""
LEARNING_DAYS = WEEKS * WEEK
"""Days before anything is judged."""
LARGEST_SHIFT, STEADY_CASES = 2.0, 5.0
"""How far the last week's level may move what is expected, and how many cases it takes to do so."""
TALLER, TALLER_BY = 2.5, 20.0
"""A backlog is so many times the tallest usual report of late, so many cases more, and what was
expected since the last report more."""
MISSING = 20.0
"""Cases that were expected since the last report, at least, where a day without any is silence."""
LONGER_BY = 1.0
"""Days by which a silence is longer than the longest usual pause."""
LONGEST_SILENCE = 28
"""After so many days without a case, no case is what there is."""
RECENT_DAYS = 28
"""Days that matter to a forecast: what is anomalous in them is said with it."""
MEMORY = 0.98
"""How much of its tallest report and longest pause a region still remembers a day later."""


@dataclass(frozen=True)
class Cleaned:
    """A panel with its anomalous days replaced by what was expected of them."""

    panel: CasePanel
    kinds: Kinds
    """[regions, days]: the number of what the day is in `KINDS`."""
    reported: Floats
    """[regions, days]: the counts as they were reported."""

    @property
    def anomalous(self) -> Booleans:
        """Which days are replaced."""
        found: Booleans = self.kinds != USUAL
        return found

    def until(self, last: date) -> "Cleaned":
        """What was known on a day."""
        cut = slice(0, self.panel.index(last) + 1)
        known = self.panel.between(self.panel.start, last)
        return Cleaned(known, self.kinds[:, cut], self.reported[:, cut])

    def to_long(self, last_days: int | None = None) -> pl.DataFrame:
        """A row for each anomalous day, of the last ones or of all, the farthest off first."""
        steps = -(-last_days // self.panel.step_days) if last_days else self.kinds.shape[1]
        from_day = max(self.kinds.shape[1] - steps, 0)
        rows, days = np.nonzero(self.anomalous[:, from_day:])
        days = days + from_day
        return pl.DataFrame(
            {
                "region": [self.panel.regions[row] for row in rows],
                "day": [self.panel.day(int(day)) for day in days],
                "kind": [KINDS[kind] for kind in self.kinds[rows, days]],
                "reported": self.reported[rows, days],
                "expected": self.panel.counts[rows, days],
            },
            schema={
                "region": pl.String,
                "day": pl.Date,
                "kind": pl.String,
                "reported": pl.Float64,
                "expected": pl.Float64,
            },
        ).sort((pl.col("reported") - pl.col("expected")).abs(), descending=True)

    def sentence(self, last_days: int | None = None) -> str:
        """What was found, in few words, with what is farthest off."""
        found = self.to_long(last_days)
        span = f"of the last {last_days} days " if last_days else ""
        if found.is_empty():
            return f"no report {span}stands out"
        first = found.row(0, named=True)
        reports = counted(len(found), "report")
        regions = counted(found["region"].n_unique(), "region")
        return (
            f"not taken for a count of its {self.panel.step}: {reports} {span}of {regions}, "
            f"such as {first['region']} on {first['day']}: "
            f"{first['reported']:,.6g} reported, {first['expected']:,.1f} expected "
            f"({first['kind']})"
        )


def clean(panel: CasePanel) -> Cleaned:
    """Find the anomalous days of each region and replace them, with nothing from after a day.

    A panel with a history is left as it is: its newest days are late, not silent. Of weeks, each
    is expected to be like the ones before it.
    """
    if panel.history is not None:
        return Cleaned(panel, np.zeros(panel.counts.shape, dtype=np.uint8), panel.counts)
    reports = np.ascontiguousarray(panel.counts.T)
    usual, kinds = reports.copy(), np.zeros(reports.shape, dtype=np.uint8)
    total = np.zeros((len(reports) + 1, reports.shape[1]))
    week, learning = WEEK // panel.step_days, LEARNING_DAYS // panel.step_days
    np.cumsum(reports[:learning], axis=0, out=total[1 : learning + 1])
    habit, off = _Habit.of(reports[:learning], panel.step_days), _days_off(panel)
    absent = _absent(panel)
    for day in range(learning, len(reports)):
        weeks = total[[day - learning, day - week, day]]
        alike = slice(day - learning, day, week)
        always = np.logical_and.reduce(reports[alike] > 0)
        expected = _expected(usual[alike], weeks)
        kinds[day], usual[day] = habit.judge(reports[day], expected, always, off[day], absent[day])
        total[day + 1] = total[day] + usual[day]
    return Cleaned(replace(panel, counts=usual.T), kinds.T, panel.counts)


def _expected(alike: Floats, total: Floats) -> Floats:
    """What the same weekday of the last weeks says of a day.

    `total` is all cases up to the first of those weeks, to the last one, and to the day.
    """
    last, usual = total[2] - total[1], (total[2] - total[0]) / WEEKS
    shift = (last + STEADY_CASES) / (usual + STEADY_CASES)
    expected: Floats = sum(alike) / WEEKS * shift.clip(1 / LARGEST_SHIFT, LARGEST_SHIFT)
    return expected


def _days_off(panel: CasePanel) -> Booleans:
    """On which days [days, regions] a region's calendar explains that nothing is reported."""
    regions, days = panel.counts.shape
    if not panel.calendars or panel.step == "week":
        return np.zeros((days, regions), dtype=np.bool_)
    codes, row = np.unique(panel.calendars, return_inverse=True)
    closed = np.stack([calendar.closed(str(code), panel.start, days)[0] for code in codes], axis=1)
    return closed[:, row]


def _absent(panel: CasePanel) -> Booleans:
    """Which reports [weeks, regions] are known not to have come; days without any may be zero."""
    if panel.step == "day" or panel.reported is None:
        return np.zeros(panel.counts.T.shape, dtype=np.bool_)
    return ~panel.reported.T


class _Habit:
    """How each region reports: its tallest report and longest pause of late, and what it owes."""

    def __init__(self, regions: int, step_days: int) -> None:
        self.memory, self.longest_silence = MEMORY**step_days, LONGEST_SILENCE // step_days
        self.tallest, self.longest = np.zeros(regions), np.zeros(regions)
        self.pause, self.missing, self.owed = np.zeros((3, regions))
        self.doubted = np.zeros(regions, dtype=np.bool_)

    @classmethod
    def of(cls, reports: Floats, step_days: int) -> "_Habit":
        """The habits that the first days show, which nobody judges."""
        habit = cls(reports.shape[1], step_days)
        for report in reports:
            habit._learn(report, report > 0)
        return habit

    def judge(
        self,
        report: Floats,
        expected: Floats,
        always: Booleans,
        off: Booleans,
        absent: Booleans,
    ) -> tuple[Kinds, Floats]:
        """What a day's reports are, and what to take for them.

        `always`: whether there was a report on this weekday in all of the last weeks; `off`:
        whether the day is a public holiday; `absent`: whether it is known that no report came.
        """
        some = report > 0
        missing = self.missing + expected
        pausing = self.pause + 1
        unusual = always | (pausing > self.longest + LONGER_BY)
        noticed = unusual & (absent | (missing > MISSING))
        silent = ~some & ~off & noticed & (pausing <= self.longest_silence)
        tall = report > TALLER * self.tallest + TALLER_BY + missing
        backlog = tall & ~self.doubted
        late = np.where(tall, 0.0, np.clip(report - expected, 0.0, self.owed))
        kind = np.select([backlog, silent, late > 0], [BACKLOG, SILENCE, CATCH_UP], USUAL)
        usual = np.where(backlog | silent, expected, report - late)
        self.doubted = np.where(some, tall, self.doubted)
        self.missing = np.where(some, 0.0, missing)
        self.owed = np.where(some, 0.0, self.owed + np.where(silent, expected, 0.0))
        self._learn(usual, some)
        return kind.astype(np.uint8), usual

    def _learn(self, usual: Floats, some: Booleans) -> None:
        self.tallest = np.maximum(self.memory * self.tallest, usual)
        self.longest = np.maximum(self.memory * self.longest, np.where(some, self.pause, 0.0))
        self.pause = np.where(some, 0.0, self.pause + 1)
