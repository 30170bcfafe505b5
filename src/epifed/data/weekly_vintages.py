"""Weekly counts as known in each week, their usual revisions, and further signals.

The newest week is published low and revised in the weeks after. Each region learns the size of the
revision from its own past vintages, shrunk to that of all rows where there are few. A further
signal (such as emergency visits) that moves with the counts, and is smoother, improves the newest
weeks. All of it is local to the holder of the vintages, and has no privacy cost.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from epifed.data.calendar import WEEK, Day, refuse_apart, to_day
from epifed.data.panel import MOST_CASES, CasePanel, long_table
from epifed.errors import EpifedError, counted
from epifed.files import write_parquet

Floats = NDArray[np.float64]

COUNTS = "cases"
"""The signal to forecast, in a table that does not name its signals."""
SCHEMA = {
    "as_of": pl.Date,
    "date": pl.Date,
    "region": pl.String,
    "signal": pl.String,
    "cases": pl.Float64,
}

LAGS = 4
"""Weeks after which a count is taken as final."""
PAST = 26
"""Largest number of vintages from which revisions are learned."""
MEMORY = 0.95
"""Weight of a revision relative to one a week later."""
LARGEST_STEP = 0.2
"""Bound on the log revision from one week to the next in learning."""
SHARED_VINTAGES, OWN_VINTAGES = 3.0, 6.0
"""Vintages at which the shared revision has half its weight, and the weight of the shared revision
in a region's own vintages."""
FEW = 10.0
"""Cases in a week at which its revision has half its weight."""
LEAST_TOTAL, MOST_TOTAL = -0.15, 0.35
"""Bounds on the log revision that is applied."""

SIGNAL_WEEKS, LEAST_SIGNAL = 26, 6
"""Largest and least number of weeks from which a signal's relation to the counts is learned."""
SIGNAL_SHARE = 0.7
"""Largest weight of a smooth signal in the newest weeks."""
IMPROVED = 5
"""Number of newest weeks that a signal improves."""
LEVEL_WEEKS = 8
"""Weeks over which the counts' level relative to the signal is averaged."""
ROUGHEST, UNSURE = 0.5, 0.003
SLOPES = 0.3, 1.5


class Snapshots:
    """What vintages of days and of weeks share: regions, the days they were looked at, a source."""

    regions: tuple[str, ...]
    snapshots: tuple[date, ...]
    source: str

    def __repr__(self) -> str:
        """Regions, days and source in one line."""
        return (
            f"{type(self).__name__}({counted(len(self.regions), 'region')}, "
            f"{counted(len(self.snapshots), 'vintage')}, {self.first} … {self.last}, "
            f"{Path(self.source).name!r})"
        )

    @property
    def first(self) -> date:
        """The day of the first vintage."""
        return self.snapshots[0]

    @property
    def last(self) -> date:
        """The day of the last vintage."""
        return self.snapshots[-1]

    def _refuse_before(self, day: date) -> None:
        if day < self.first:
            raise EpifedError(
                f"{self.source}: found vintages from {self.first} to {self.last}; expected one as "
                f"of {day} or before"
            )

    def _refuse_absent(self, regions: Sequence[str]) -> None:
        if absent := sorted(set(regions) - set(self.regions)):
            raise EpifedError(
                f"{self.source}: found no vintages of region {absent[0]} ({len(absent)} of "
                f"{len(regions)} without); expected some of every region"
            )

    def _refuse_other(self, like: CasePanel) -> None:
        if like.regions != self.regions:
            raise EpifedError(
                f"{self.source}: found vintages of other regions than {like.source}; expected the "
                "same in the same order"
            )


@dataclass(frozen=True, repr=False)
class WeeklyVintages(Snapshots):
    """Weekly series of some regions as known on each of several days."""

    values: Mapping[str, Floats]
    """Of each signal, [snapshots, regions, weeks]; NaN where unknown."""
    regions: tuple[str, ...]
    snapshots: tuple[date, ...]
    start: date
    """The day that dates the first week."""
    counts: str = COUNTS
    """The signal to forecast."""
    source: str = "memory"
    notes: tuple[str, ...] = ()
    """What was left out or cannot be used, one sentence each."""
    _made: dict[date, Floats] = field(default_factory=dict, compare=False)
    """Cached completed counts of each snapshot."""

    @classmethod
    def from_table(
        cls,
        table: pl.DataFrame,
        *,
        counts: str | None = None,
        regions: Sequence[str] | None = None,
        source: str = "memory",
    ) -> "WeeklyVintages":
        """The vintages in a table: as_of, date, region, cases, and signal if there are several.

        Parameters
        ----------
        table
            A row for each vintage, region, week and signal, with the value as known on `as_of`.
        counts
            The signal to forecast; none: the one called cases or admissions, or the only one.
        regions
            The regions in their order; others are left out.

        Raises
        ------
        EpifedError
            If a week is dated after its vintage, occurs twice, or weeks are not whole weeks apart.
        """
        if "signal" not in table.columns:
            table = table.with_columns(signal=pl.lit(counts or COUNTS))
        frame = table.select(pl.col(name).cast(kind) for name, kind in SCHEMA.items())
        frame = frame.drop_nulls()
        if frame.is_empty():
            raise EpifedError(f"{source}: found no vintage; expected at least one")
        main = _main(source, frame, counts)
        frame, notes = _usable(source, frame, main)
        order = tuple(regions) if regions is not None else tuple(
            sorted(frame.filter(signal=main)["region"].unique())
        )  # fmt: skip
        frame = frame.filter(pl.col("region").is_in(order))
        if absent := sorted(set(order) - set(frame.filter(signal=main)["region"])):
            raise EpifedError(
                f"{source}: found no vintages of region {absent[0]} ({len(absent)} of "
                f"{len(order)} without); expected some of every region"
            )
        weeks = sorted(frame["date"].unique())
        refuse_apart(source, weeks)
        snapshots = tuple(sorted(frame.filter(signal=main)["as_of"].unique()))
        frame = frame.filter(pl.col("as_of").is_in(snapshots))
        shape = len(snapshots), len(order), (weeks[-1] - weeks[0]).days // WEEK + 1
        place = {"as_of": snapshots, "region": order}
        values = {}
        for name in sorted(frame["signal"].unique()):
            rows = frame.filter(signal=name)
            at = [
                rows[key].replace_strict({v: i for i, v in enumerate(of)}, return_dtype=pl.Int64)
                for key, of in place.items()
            ]
            cells = np.full(shape, np.nan)
            column = (rows["date"] - weeks[0]).dt.total_days().to_numpy() // WEEK
            cells[at[0].to_numpy(), at[1].to_numpy(), column] = rows["cases"].to_numpy()
            values[str(name)] = cells
        return cls(values, order, snapshots, weeks[0], main, source, notes + _stopped(values, main))

    @property
    def signals(self) -> tuple[str, ...]:
        """The further signals besides the counts."""
        return tuple(name for name in self.values if name != self.counts)

    def newest(self, snapshot: int) -> date:
        """The day that dates the newest week of a vintage."""
        return self._newest[snapshot]

    @cached_property
    def _newest(self) -> tuple[date, ...]:
        there = np.asarray(~np.isnan(self.values[self.counts]).all(axis=1))
        last = there.shape[1] - 1 - np.argmax(there[:, ::-1], axis=1)
        return tuple(self.start + timedelta(days=WEEK * int(week)) for week in last)

    def snapshot_of(self, week: date) -> int | None:
        """The last vintage whose newest week is dated by a day; none if there is none."""
        alike = [i for i, day in enumerate(self._newest) if day == week]
        return alike[-1] if alike else None

    def until(self, day: Day) -> "WeeklyVintages":
        """The vintages up to a day."""
        day = to_day(day, "as of")
        self._refuse_before(day)
        number = sum(snapshot <= day for snapshot in self.snapshots)
        if number == len(self.snapshots):
            return self
        cut = {name: cells[:number] for name, cells in self.values.items()}
        return replace(self, values=cut, snapshots=self.snapshots[:number])

    def until_week(self, week: date) -> "WeeklyVintages | None":
        """The vintages whose newest week is not after a day; none if there is none."""
        inside = [snapshot for i, snapshot in enumerate(self.snapshots) if self.newest(i) <= week]
        return self.until(inside[-1]) if inside else None

    def of(self, regions: Sequence[str]) -> "WeeklyVintages":
        """The vintages of some regions only, in this order."""
        if tuple(regions) == self.regions:
            return self
        self._refuse_absent(regions)
        rows = [self.regions.index(region) for region in regions]
        cut = {name: cells[:, rows] for name, cells in self.values.items()}
        return replace(self, values=cut, regions=tuple(regions), _made={})

    def as_known(self, week: Day, like: CasePanel | None = None) -> CasePanel:
        """The panel of the last vintage whose newest week is dated by a day.

        `like` is a panel of the same regions, which gives names, populations and boundaries. The
        result's `revisions` are the vintages up to it.
        """
        week = to_day(week, "week")
        snapshot = self.snapshot_of(week)
        if snapshot is None:
            raise EpifedError(
                f"{self.source}: found no vintage whose newest week is dated {week}; expected one, "
                f"from {self.newest(0)} to {self.newest(len(self.snapshots) - 1)}"
            )
        then = self.until(self.snapshots[snapshot])
        cells = self._cells(snapshot)
        begin = int(np.flatnonzero(~np.isnan(cells).all(axis=0))[0])
        cells, start = cells[:, begin:], self.start + timedelta(days=WEEK * begin)
        reported = ~np.isnan(cells)
        counts = np.where(reported, np.nan_to_num(cells), 0.0)
        if like is None:
            return CasePanel(
                counts, self.regions, start, reported=reported, source=self.source,
                notes=self.notes, revisions=then, step="week",
            )  # fmt: skip
        self._refuse_other(like)
        return replace(like, counts=counts, start=start, reported=reported, revisions=then)

    def final(self) -> CasePanel:
        """The panel of the last vintage, on which forecasts are scored."""
        return replace(self.as_known(self.newest(len(self.snapshots) - 1)), revisions=None)

    def _cells(self, snapshot: int, signal: str | None = None) -> Floats:
        """A signal as known on a snapshot, up to the newest week of the counts."""
        weeks = (self.newest(snapshot) - self.start).days // WEEK + 1
        return self.values[signal or self.counts][snapshot, :, :weeks]

    def revision(self, snapshot: int) -> Floats:
        """The expected log revision of the newest weeks [regions, lags], the newest first.

        Learned from vintages up to this one, from revisions between consecutive weeks.
        """
        links = np.zeros((len(self.regions), LAGS))
        for lag in range(LAGS):
            steps, weights = self._steps(snapshot, lag)
            if not steps.size:
                continue
            bounded = np.clip(steps, -LARGEST_STEP, LARGEST_STEP)
            middle = (_median(steps, weights) + float(np.average(bounded, weights=weights))) / 2
            shared = middle * len(steps) / (len(steps) + SHARED_VINTAGES)
            own = (bounded * weights).sum(axis=0) + OWN_VINTAGES * shared
            links[:, lag] = own / (weights.sum(axis=0) + OWN_VINTAGES)
        total = np.cumsum(links[:, ::-1], axis=1)[:, ::-1]
        return np.clip(total, LEAST_TOTAL, MOST_TOTAL)

    def _steps(self, snapshot: int, lag: int) -> tuple[Floats, Floats]:
        """Past log revisions [vintages, regions] within a week at this lag, and weights."""
        steps, weights = [], []
        cells = self.values[self.counts]
        for then in range(max(snapshot - PAST, 0), snapshot):
            days = (self.snapshots[then + 1] - self.snapshots[then]).days
            week = (self.newest(then) - self.start).days // WEEK - lag
            if abs(days - WEEK) > 2 or week < 0:
                continue
            before, after = cells[then, :, week], cells[then + 1, :, week]
            there = ~np.isnan(before + after)
            before, after = np.nan_to_num(before), np.nan_to_num(after)
            steps.append(np.where(there, np.log((after + 1) / (before + 1)), 0.0))
            age = MEMORY ** (snapshot - 1 - then)
            weights.append(there * age * before / (before + FEW))
        if not steps or not np.any(weights):
            return np.zeros((0, 0)), np.zeros((0, 0))
        return np.array(steps), np.array(weights)

    def completed(self, snapshot: int, counts: Floats | None = None) -> Floats:
        """Counts [regions, weeks] of a vintage with expected revisions and further signals applied.

        `counts` are the same with gaps and implausible weeks replaced. Without them, gaps are
        filled with the week before.
        """
        day = self.snapshots[snapshot]
        if counts is None and day in self._made:
            return self._made[day]
        whole = _without_gaps(self._cells(snapshot)) if counts is None else counts
        made = whole.copy()
        lags = min(LAGS, made.shape[1])
        revised = np.exp(self.revision(snapshot)[:, :lags])
        made[:, made.shape[1] - lags :] *= revised[:, ::-1]
        for name in self.signals:
            signal = self._cells(snapshot, name)[:, -made.shape[1] :]
            made = improved(made, signal)
        if counts is None:
            self._made[day] = made
        return made

    def nowcast(self) -> pl.DataFrame:
        """The newest weeks of the last vintage: a row for each region and week.

        `known` is the published count, `estimate` the count expected after revision.
        """
        last = len(self.snapshots) - 1
        cells, made = self._cells(last), self.completed(last)
        weeks = range(max(made.shape[1] - LAGS, 0), made.shape[1])
        days = [self.start + timedelta(days=WEEK * week) for week in weeks]
        newest = {"known": cells[:, list(weeks)], "estimate": made[:, list(weeks)]}
        table = long_table({"region": self.regions, "date": days}, newest)
        return table.with_columns(pl.col("known").fill_nan(None))

    def to_frame(self) -> pl.DataFrame:
        """The table of all vintages, with the columns of `SCHEMA`."""
        frames = []
        for name, cells in self.values.items():
            snapshot, region, week = np.nonzero(~np.isnan(cells))
            columns = {
                "as_of": [self.snapshots[i] for i in snapshot],
                "date": [self.start + timedelta(days=WEEK * int(i)) for i in week],
                "region": [self.regions[i] for i in region],
                "signal": [name] * len(week),
                "cases": cells[snapshot, region, week],
            }
            frames.append(pl.DataFrame(columns, schema=SCHEMA))
        return pl.concat(frames)

    def digest(self) -> str:
        """A SHA-256 of all data and of the days on which they became known."""
        head = [*self.regions, *map(str, self.snapshots), str(self.start), self.counts]
        sha = hashlib.sha256("\x00".join(head).encode())
        for name, cells in self.values.items():
            sha.update(name.encode() + np.ascontiguousarray(cells).tobytes())
        return sha.hexdigest()


FILE = "weekly_vintages.parquet"
KEPT_VINTAGES, KEPT_WEEKS = PAST + 4, 160
"""Vintages that an archive keeps, and the newest weeks of each."""
LEAST_KEPT = 4
"""Vintages from which an archive says how a list is revised."""


def remember_weeks(folder: Path, panel: CasePanel, *, write: bool = True) -> CasePanel:
    """Keep a panel of weeks as known after its last week; the same with all that is kept.

    A second panel of the same week takes the place of the first. One that is older than the last
    is not kept. An archive that lacks a region, has other weeks or is damaged begins anew. The
    vintages stand in the panel once there are `LEAST_KEPT`.
    """
    as_of, path = panel.end + timedelta(days=1), folder / FILE
    begin = max(panel.start, panel.end - timedelta(days=WEEK * (KEPT_WEEKS - 1)))
    newest = panel.between(begin, panel.end).to_table().select("date", "region", "cases")
    newest = newest.with_columns(as_of=pl.lit(as_of), signal=pl.lit(COUNTS))
    newest = newest.select(pl.col(name).cast(kind) for name, kind in SCHEMA.items()).drop_nulls()
    rows = _archived(path, panel)
    if rows is not None and rows["as_of"].max() > as_of:  # type: ignore[operator]
        rows = rows.filter(pl.col("as_of") <= as_of)
    else:
        earlier = [] if rows is None else [rows.filter(pl.col("as_of") < as_of)]
        rows = pl.concat([*earlier, newest])
        oldest = rows["as_of"].unique().sort()[-KEPT_VINTAGES:][0]
        rows = rows.filter(pl.col("as_of") >= oldest)
        if write:
            write_parquet(path, rows)
    if rows["as_of"].n_unique() < LEAST_KEPT:
        return panel
    kept = WeeklyVintages.from_table(rows, regions=panel.regions, source=panel.source)
    return replace(panel, revisions=kept)


def count_weekly_vintages(folder: Path) -> int:
    """How many vintages of weeks an archive has."""
    try:
        return int(pl.read_parquet(folder / FILE)["as_of"].n_unique())
    except (OSError, pl.exceptions.PolarsError):
        return 0


def _archived(path: Path, panel: CasePanel) -> pl.DataFrame | None:
    """The rows of an archive; none if it is not there, is damaged, or is of other weeks."""
    try:
        rows = pl.read_parquet(path).select(
            pl.col(name).cast(kind) for name, kind in SCHEMA.items()
        )
    except (OSError, ValueError, pl.exceptions.PolarsError):
        return None
    apart = rows.select(((pl.col("date") - panel.end).dt.total_days() % WEEK == 0).all()).item()
    complete = set(rows["region"]) >= set(panel.regions) and not rows.is_empty()
    whole = not any(rows.null_count().row(0)) and bool((rows["date"] <= rows["as_of"]).all())
    return rows if apart and complete and whole else None


def weeks_together(panel: CasePanel, alone: Sequence[CasePanel]) -> CasePanel:
    """A panel of weeks with the vintages of its regions, each of which was remembered alone."""
    kept = [own.revisions for own in alone if own.revisions is not None]
    if len(kept) < len(panel.regions):
        return panel
    common = sorted(set.intersection(*(set(history.snapshots) for history in kept)))
    if len(common) < LEAST_KEPT or common[-1] != panel.end + timedelta(days=1):
        return panel
    rows = pl.concat([history.to_frame() for history in kept]).filter(pl.col("as_of").is_in(common))
    every = WeeklyVintages.from_table(rows, regions=panel.regions, source=panel.source)
    return replace(panel, revisions=every)


def improved(counts: Floats, signal: Floats) -> Floats:
    """The newest counts [regions, weeks], improved by a further signal of the same weeks.

    Unchanged where the signal is missing, has too short a past, or did not move with the counts.
    """
    weeks = min(counts.shape[1], SIGNAL_WEEKS)
    if weeks < 3:
        return counts
    beside = np.asarray(signal[:, -weeks:])
    there = np.isfinite(beside) & (beside >= 0)
    seen = there.sum(axis=1, keepdims=True)
    beside = np.where(there, beside, 0.0)
    mean = beside.sum(axis=1, keepdims=True) / np.maximum(seen, 1)
    logs = np.log(counts[:, -weeks:] + 1)
    other = np.where(there, np.log(beside + 0.05 * mean + 1e-12), np.nan)
    ours, theirs = np.diff(logs, axis=1), np.diff(other, axis=1)
    both = np.isfinite(theirs)
    ours, theirs = np.where(both, ours, 0.0), np.where(both, theirs, 0.0)
    product, square = (ours * theirs).sum(axis=1), (theirs**2).sum(axis=1)
    slope = np.clip((product + SLOPES[0]) / (square + SLOPES[0]), *SLOPES)
    rough, smooth = _roughness(logs), _roughness(other)
    share = SIGNAL_SHARE * rough / (rough + slope**2 * smooth + UNSURE)
    share = np.where((both.sum(axis=1) >= LEAST_SIGNAL) & (product > 0), share, 0.0)
    made = counts.copy()
    apart = logs - slope[:, None] * other
    for week in range(max(weeks - IMPROVED, LEAST_SIGNAL), weeks):
        near = apart[:, max(week - LEVEL_WEEKS + 1, 0) : week + 1]
        level = np.nansum(near, axis=1) / np.maximum(np.isfinite(near).sum(axis=1), 1)
        expected = level + slope * other[:, week]
        use = np.isfinite(expected)
        moved = logs[:, week] + share * (np.where(use, expected, 0.0) - logs[:, week])
        column = counts.shape[1] - weeks + week
        made[use, column] = np.maximum(np.exp(moved[use]) - 1, 0.0)
    return made


def _roughness(logs: Floats) -> Floats:
    """The variance of one week by chance, from second differences: [regions]."""
    bends = np.diff(logs, 2, axis=1) ** 2 / 6
    finite = np.isfinite(bends)
    total: Floats = np.where(finite, np.minimum(bends, ROUGHEST), 0.0).sum(axis=1)
    return np.asarray(total / np.maximum(finite.sum(axis=1), 1))


def _median(values: Floats, weights: Floats) -> float:
    """The weighted median."""
    order = np.argsort(values, axis=None)
    total = np.cumsum(weights.ravel()[order])
    return float(values.ravel()[order][np.searchsorted(total, total[-1] / 2)])


def _without_gaps(cells: Floats) -> Floats:
    """Fill each unknown week with the one before it, and first ones with the first known week."""
    there = ~np.isnan(cells)
    at = np.maximum.accumulate(np.where(there, np.arange(cells.shape[1]), -1), axis=1)
    first = np.argmax(there, axis=1)
    at = np.where(at < 0, first[:, None], at)
    return np.nan_to_num(np.take_along_axis(cells, at, axis=1))


def _main(source: str, frame: pl.DataFrame, counts: str | None) -> str:
    """The name of the signal to forecast."""
    names = sorted(frame["signal"].unique())
    if counts is not None and counts in names:
        return counts
    usual = [name for name in (COUNTS, "admissions", "incidence") if name in names]
    if counts is None and (usual or len(names) == 1):
        return str((usual or names)[0])
    raise EpifedError(
        f"{source}: found the signals {', '.join(names)}; expected one to forecast, by --signal"
    )


def _stopped(values: Mapping[str, Floats], main: str) -> tuple[str, ...]:
    """A sentence on each signal without a value of the newest weeks of the counts."""
    newest = int(np.flatnonzero(~np.isnan(values[main][-1]).all(axis=0)).max(initial=0))
    recent = slice(max(newest - IMPROVED + 1, 0), newest + 1)
    return tuple(
        f"the signal '{name}' has no value of the last {IMPROVED} weeks; forecasts are made "
        "without it"
        for name, cells in values.items()
        if name != main and np.isnan(cells[-1, :, recent]).all()
    )


def _usable(source: str, frame: pl.DataFrame, main: str) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """The usable rows: wrong counts raise an error, wrong signals are left out with a note."""
    value, notes = pl.col("cases"), []
    wrong = ~(value.is_finite() & value.is_between(0, MOST_CASES)) | (
        pl.col("date") > pl.col("as_of")
    )
    twice = pl.struct("as_of", "date", "region", "signal").is_duplicated()
    ours = frame.filter(signal=main)
    for bad, what in ((wrong, "a value of at least 0, of a week up to its vintage"),
                      (twice, "each week of a region once in a vintage")):  # fmt: skip
        if len(rows := ours.filter(bad)):
            row = rows.row(0, named=True)
            raise EpifedError(
                f"{source}: region {row['region']}, week {row['date']}, as of {row['as_of']}: "
                f"found {row['cases']:g}; expected {what}"
            )
    for name in sorted(set(frame["signal"]) - {main}):
        if len(frame.filter(pl.col("signal") == name, wrong | twice)):
            notes.append(
                f"the signal '{name}' has values that cannot be; forecasts are made without it"
            )
            frame = frame.filter(pl.col("signal") != name)
    return frame, tuple(notes)
