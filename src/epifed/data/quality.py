"""Reporting artefacts: implausible counts of a region, and the counts expected instead.

They are backlogs reported at once, missing reports and corrections. Each region is judged alone, by
its own habit: one that reports once a week is not silent on the other days. Training and
forecasting use the cleaned panel; scores use the original data.

Days are processed once, in order. A day is judged on that day or never, so the judgement of an
earlier day never changes.
"""

from dataclasses import dataclass, replace
from datetime import date

import numpy as np
import polars as pl
from numpy.typing import NDArray

from epifed.data import calendar
from epifed.data.calendar import WEEK
from epifed.data.panel import CasePanel
from epifed.errors import EpifedError, counted

Floats = NDArray[np.float64]
Kinds = NDArray[np.uint8]
Booleans = NDArray[np.bool_]

ANOMALOUS = ("backlog", "silence", "catch-up")
"""Too many cases at once; no report where one was due; a report that ends a silence."""
KINDS = ("usual", *ANOMALOUS)
"""The kinds of days, by their numbers in `Cleaned.kinds`."""
USUAL, BACKLOG, SILENCE, CATCH_UP = range(len(KINDS))

WEEKS = 3
"""Number of past weeks whose same weekdays give the expectation, at the last week's level."""
LEARNING_DAYS = WEEKS * WEEK
"""Number of first days, which are not judged."""
LARGEST_SHIFT, STEADY_CASES = 2.0, 5.0
"""Bound on the last week's effect on the expectation, and the cases that soften it."""
TALLER, TALLER_BY = 2.5, 20.0
"""A backlog exceeds so many times the tallest recent usual report, plus so many cases, plus the
cases expected since the last report."""
MISSING = 20.0
"""Least number of expected cases since the last report for a day without any to be a silence."""
LONGER_BY = 1.0
"""Days by which a silence must exceed the longest usual pause."""
LONGEST_SILENCE = 28
"""Days without a case after which zero is taken as the true count."""
RECENT_DAYS = 28
"""Number of newest days whose artefacts are reported with a forecast."""
MEMORY = 0.98
"""Daily factor on a region's tallest report and longest pause."""
STRAY_DAYS, STRAY_GAP, LEAST_DENSE = 3, 62, 10
"""Fewer days than the first are stray if the gap beside them has more days than the second, and the
other days are so many times as many as the gaps between them."""


@dataclass(frozen=True)
class Cleaned:
    """A panel whose implausible counts are replaced by expected ones."""

    panel: CasePanel
    kinds: Kinds
    """[regions, days]: the number of the day's kind in `KINDS`."""
    reported: Floats
    """[regions, days]: the counts as reported."""

    @property
    def anomalous(self) -> Booleans:
        """Which counts are replaced."""
        replaced: Booleans = self.kinds != USUAL
        return replaced

    def until(self, last: date) -> "Cleaned":
        """The data up to a day."""
        cut = slice(0, self.panel.index(last) + 1)
        panel = self.panel.between(self.panel.start, last)
        return Cleaned(panel, self.kinds[:, cut], self.reported[:, cut])

    def to_long(self, last_days: int | None = None) -> pl.DataFrame:
        """A row for each replaced count, of the last days or of all, largest difference first."""
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
        """A short summary of the replaced counts, with the one of the largest difference."""
        anomalies = self.to_long(last_days)
        span = f"of the last {last_days} days " if last_days else ""
        if anomalies.is_empty():
            return f"no implausible count {span}".rstrip()
        first = anomalies.row(0, named=True)
        reports = counted(len(anomalies), "report")
        regions = counted(anomalies["region"].n_unique(), "region")
        return (
            f"implausible, and replaced: {reports} {span}of {regions}, "
            f"such as {first['region']} on {first['day']}: "
            f"{first['reported']:,.6g} reported, {first['expected']:,.1f} expected "
            f"({first['kind']})"
        )


def clean(panel: CasePanel) -> Cleaned:
    """Find and replace the implausible counts of each region, without using later days.

    A panel with vintages is unchanged, because its newest days are late, not silent. A week is
    expected to resemble the weeks before it.
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
    """The expected count of a day from the same weekday of the last weeks.

    `total` is all cases up to the first of those weeks, to the last one, and to the day.
    """
    last, usual = total[2] - total[1], (total[2] - total[0]) / WEEKS
    shift = (last + STEADY_CASES) / (usual + STEADY_CASES)
    expected: Floats = sum(alike) / WEEKS * shift.clip(1 / LARGEST_SHIFT, LARGEST_SHIFT)
    return expected


def _days_off(panel: CasePanel) -> Booleans:
    """Days [days, regions] on which a public holiday explains that nothing is reported."""
    regions, days = panel.counts.shape
    if not panel.calendars or panel.step == "week":
        return np.zeros((days, regions), dtype=np.bool_)
    codes, row = np.unique(panel.calendars, return_inverse=True)
    closed = np.stack([calendar.closed(str(code), panel.start, days)[0] for code in codes], axis=1)
    return closed[:, row]


def _absent(panel: CasePanel) -> Booleans:
    """Reports [weeks, regions] known to be missing; daily counts without any may be zeros."""
    if panel.step == "day" or panel.reported is None:
        return np.zeros(panel.counts.T.shape, dtype=np.bool_)
    return ~panel.reported.T


class _Habit:
    """Each region's reporting habit: its tallest recent report, longest pause and missing cases."""

    def __init__(self, regions: int, step_days: int) -> None:
        self.memory, self.longest_silence = MEMORY**step_days, LONGEST_SILENCE // step_days
        self.tallest, self.longest = np.zeros(regions), np.zeros(regions)
        self.pause, self.missing, self.owed = np.zeros((3, regions))
        self.doubted = np.zeros(regions, dtype=np.bool_)

    @classmethod
    def of(cls, reports: Floats, step_days: int) -> "_Habit":
        """The habits of the first days, which are not judged."""
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
        """The kinds of a day's reports, and the counts to use for them.

        `always`: whether there was a report on this weekday in all of the last weeks; `off`:
        whether the day is a public holiday; `absent`: whether the report is known to be missing.
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


def refuse_stray_days(panel: CasePanel) -> None:
    """Refuse a day or two far from all others: the days between would be forecast from as zeros."""
    there = panel.counts > 0 if panel.reported is None else panel.reported
    steps = np.flatnonzero(there.any(axis=0))
    gaps = np.diff(steps)
    for place in np.flatnonzero(gaps * (WEEK if panel.step == "week" else 1) > STRAY_GAP) + 1:
        alone = min(place, len(steps) - place)
        if alone < STRAY_DAYS and len(steps) - alone >= LEAST_DENSE * (gaps > 1).sum():
            before, after = (panel.day(int(step)) for step in steps[place - 1 : place + 1])
            raise EpifedError(
                f"{panel.source}: found {before} and then nothing until {after}; expected days "
                "near each other: is a year mistyped?"
            )
