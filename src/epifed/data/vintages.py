"""Data vintages: counts as known on each day, and the archive in which a machine stores them.

The newest days of a case list are incomplete, and a forecast may use only what was known on its
day. So the list is stored as changes: on this day so many cases of a region and reporting date
appeared or, if negative, disappeared. A site and `epifed forecast` store the counts of each day in
one small local file. After a few weeks it shows the reporting delays of this authority.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from epifed.data.calendar import Day, to_day
from epifed.data.panel import CasePanel
from epifed.data.weekly_vintages import (
    Snapshots,
    count_weekly_vintages,
    remember_weeks,
    weeks_together,
)
from epifed.errors import EpifedError
from epifed.files import write_parquet

Floats = NDArray[np.float64]

LAGS = 28
"""Days after which a reporting date counts as complete."""

LEAST_VINTAGES = 14
"""Least number of vintages from which a list's reporting delays can be learned."""
MOST_LAGS = 56
"""Largest number of lags in `known`: eight weeks."""

SCHEMA = {
    "as_of": pl.Date,
    "region": pl.String,
    "reported": pl.Date,
    "onset": pl.Date,
    "age_group": pl.String,
    "cases": pl.Int64,
}
"""The columns of a table of changes; `onset` and `age_group` may be empty or left out."""

_DAY, _EPOCH = timedelta(days=1), date(1970, 1, 1)
_NEVER = -(10**7)


@dataclass(frozen=True, repr=False)
class Vintages(Snapshots):
    """A case list as known on each of several days, stored as changes between them.

    A list *as of* a day is that day's morning, so its newest reporting date is the day before. The
    *lag* of a reporting date is 0 on the first morning on which it can be known.
    """

    changes: pl.DataFrame
    """The columns of `SCHEMA`, sorted by `as_of`. The first day holds all that was known before."""
    regions: tuple[str, ...]
    snapshots: tuple[date, ...]
    """The days of which there is a vintage; between them the list is taken as unchanged."""
    source: str = "memory"
    attribution: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """Changes that the reader made to the data, one sentence each."""

    def __post_init__(self) -> None:
        """Check that snapshots are present, sorted and distinct."""
        if not self.snapshots:
            raise EpifedError(f"{self.source}: found no vintage; expected at least one")
        if list(self.snapshots) != sorted(set(self.snapshots)):
            raise EpifedError(
                f"{self.source}: found snapshots out of order; expected each day once"
            )

    @classmethod
    def from_changes(
        cls,
        table: pl.DataFrame,
        *,
        source: str = "memory",
        regions: Sequence[str] | None = None,
        snapshots: Sequence[date] | None = None,
        attribution: tuple[str, ...] = (),
        notes: tuple[str, ...] = (),
    ) -> "Vintages":
        """The vintages in a table with the columns of `SCHEMA`.

        Defaults are the sorted regions of the table, and as snapshots the days with a change.
        """
        empty = [pl.lit(None).alias(name) for name in SCHEMA if name not in table.columns]
        frame = table.with_columns(empty).select(
            pl.col(name).cast(kind) for name, kind in SCHEMA.items()
        )
        keys = [name for name in SCHEMA if name != "cases"]
        summed = frame.group_by(keys).agg(pl.col("cases").sum()).filter(pl.col("cases") != 0)
        order = tuple(regions) if regions is not None else tuple(sorted(frame["region"].unique()))
        days = snapshots if snapshots is not None else sorted(frame["as_of"].unique())
        return cls(
            summed.filter(pl.col("region").is_in(order)).sort(keys),
            order,
            tuple(days),
            source,
            attribution,
            notes,
        )

    @property
    def missing(self) -> tuple[date, ...]:
        """The days between the first and the last without a vintage."""
        looked = set(self.snapshots)
        days = (self.first + i * _DAY for i in range((self.last - self.first).days + 1))
        return tuple(day for day in days if day not in looked)

    def until(self, day: Day) -> "Vintages":
        """The vintages up to the morning of a day."""
        day = to_day(day, "as of")
        self._refuse_before(day)
        if day >= self.last:
            return self
        then = replace(
            self,
            changes=self.changes.filter(pl.col("as_of") <= day),
            snapshots=tuple(d for d in self.snapshots if d <= day),
        )
        # The vintages of earlier days do not change and need not be computed again.
        days = (then.last - then.first).days + 1
        then.__dict__["_by_age"], then.__dict__["names"] = self._by_age[:days], self.names[:days]
        then.__dict__["_cells"] = tuple(column[: len(then.changes)] for column in self._cells)
        return then

    def quiet_until(self, day: date) -> "Vintages":
        """The vintages with unchanged ones added for each day after the last, up to a day."""
        more = (self.last + i * _DAY for i in range(1, (day - self.last).days + 1))
        return replace(self, snapshots=(*self.snapshots, *more))

    def since(self, day: Day) -> "Vintages | None":
        """The vintages of reporting dates from a day on; none if no vintage has such a date."""
        day = to_day(day, "first day")
        if self.last <= day:
            return None
        inside = self.changes.filter(pl.col("reported") >= day)
        if len(inside) == len(self.changes) and day < self.first:
            return self
        return replace(self, changes=inside, snapshots=tuple(d for d in self.snapshots if d > day))

    def of(self, regions: Sequence[str]) -> "Vintages":
        """The vintages of some regions only, in this order."""
        self._refuse_absent(regions)
        if len(set(regions)) < len(regions):
            twice = next(region for region in regions if list(regions).count(region) > 1)
            raise EpifedError(f"regions: found {twice} more than once; expected each once")
        if tuple(regions) == self.regions:
            return self
        inside = self.changes.filter(pl.col("region").is_in(list(regions)))
        return replace(self, changes=inside, regions=tuple(regions))

    def together(self, name: str) -> "Vintages":
        """The vintages of all regions as one."""
        return Vintages.from_changes(
            self.changes.with_columns(region=pl.lit(name)),
            source=self.source,
            regions=(name,),
            snapshots=self.snapshots,
        )

    def as_known(self, day: Day, like: CasePanel | None = None) -> CasePanel:
        """The panel as known on the morning of a day, up to its newest possible reporting date.

        A day without a vintage uses the last one before. `like` is a panel of the same regions that
        gives names, populations and boundaries. The result's `history` is the vintages up to it.
        """
        then = self.until(day)
        end = then.last - _DAY
        counts, first = self._counts_on(then.last)
        start = first if like is None else max(first, like.start)
        if end < start:
            raise EpifedError(
                f"{self.source}: found the first reporting date {start}; expected one before the "
                f"morning of {then.last}"
            )
        counts = counts[:, (start - first).days : (end - first).days + 1]
        positive = np.maximum(counts, 0.0)
        if like is None:
            return CasePanel(
                positive,
                self.regions,
                start,
                source=self.source,
                attribution=self.attribution,
                notes=self.notes,
                history=then,
            )
        self._refuse_other(like)
        return replace(like, counts=positive, start=start, reported=None, history=then)

    def published(self, like: CasePanel | None = None) -> CasePanel:
        """Cases by the day before they became known ("new today"), instead of by reporting date.

        Such a count is never incomplete. It begins after the first snapshot, which holds all cases
        known before. Cases taken back are left out of their day, not counted below zero.
        """
        first = self.first
        frame = self.changes.filter(pl.col("as_of") > first)
        if frame.is_empty():
            raise EpifedError(f"{self.source}: found one vintage; expected two or more")
        counts = np.zeros((len(self.regions), (self.last - first).days))
        row_of = {region: row for row, region in enumerate(self.regions)}
        rows = frame["region"].replace_strict(row_of, return_dtype=pl.Int64).to_numpy()
        days = (frame["as_of"] - first).dt.total_days().to_numpy() - 1
        np.add.at(counts, (rows, days), frame["cases"].to_numpy())
        return replace(
            self.as_known(self.last, like),
            counts=np.maximum(counts, 0.0),
            start=first,
            history=None,
        )

    @property
    def start(self) -> date:
        """The first of all reporting dates."""
        return self._counts_on(self.last)[1]

    @property
    def counts(self) -> Floats:
        """Counts [regions, days] from `start` on as known on the last day, with corrections."""
        return self._counts_on(self.last)[0]

    def known(self, lags: int = LAGS) -> Floats:
        """Counts [days, regions, lags] by their age on each day from the first to the last.

        Entry (i, k, l) is the count of the reporting date `first + i − 1 − l` as known on the
        morning of `first + i`; NaN on a day without a snapshot, 0 before the first reporting date.
        """
        if lags > MOST_LAGS:
            raise EpifedError(f"lags: found {lags}; expected at most {MOST_LAGS}")
        return self._by_age[:, :, :lags]

    @cached_property
    def names(self) -> tuple[bytes, ...]:
        """For each day from the first to the last, a hash of all data known by then."""
        rows, days, cases, as_of = self._cells
        sha = hashlib.sha256("\x00".join(self.regions).encode())
        digests, begin = [], 0
        for i in range((self.last - self.first).days + 1):
            end = int(np.searchsorted(as_of, np.datetime64(self.first + i * _DAY), side="right"))
            for column in (rows, days, cases):
                sha.update(column[begin:end].tobytes())
            digests.append(sha.digest())
            begin = end
        return tuple(digests)

    @cached_property
    def _by_age(self) -> Floats:
        days = (self.last - self.first).days + 1
        table = np.full((days, len(self.regions), MOST_LAGS), np.nan)
        for day in self.snapshots:
            counts, start = self._counts_on(day)
            at = (day - start).days - 1 - np.arange(MOST_LAGS)
            inside = (at >= 0) & (at < counts.shape[1])
            row = table[(day - self.first).days]
            row[:] = 0.0
            row[:, inside] = counts[:, at[inside]]
        return table

    @cached_property
    def _cells(self) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats, NDArray[np.datetime64]]:
        """The changes as arrays: region, day since 1970, cases, and the day they became known."""
        frame = self.changes
        row_of = {region: row for row, region in enumerate(self.regions)}
        rows = frame["region"].replace_strict(row_of, return_dtype=pl.Int64).to_numpy()
        days = frame["reported"].to_physical().cast(pl.Int64).to_numpy()
        cases = frame["cases"].to_numpy().astype(np.float64)
        return rows, days, cases, frame["as_of"].to_numpy().astype("datetime64[D]")

    def _counts_on(self, day: date) -> tuple[Floats, date]:
        """Counts [regions, days] as known on a snapshot, and their first reporting date."""
        rows, days, cases, as_of = self._cells
        end = int(np.searchsorted(as_of, np.datetime64(day), side="right"))
        rows, days, cases = rows[:end], days[:end], cases[:end]
        if end == 0:
            return np.zeros((len(self.regions), 1)), day - _DAY
        first = int(days.min())
        width = max(int(days.max()), (day - _EPOCH).days) - first + 1
        places = rows * width + days - first
        counts = np.bincount(places, cases, len(self.regions) * width).astype(np.float64)
        return counts.reshape(-1, width), _EPOCH + first * _DAY

    def completeness(self, lags: int = 14) -> pl.DataFrame:
        """The share of cases known by lag, for each weekday of the reporting date and for all.

        It is relative to the counts known now, for reporting dates at least `lags` days old. The
        row of all weekdays has no weekday.
        """
        now, table, start = self.counts, self.known(lags), self.start
        rows = []
        for lag in range(lags):
            for i in range(len(table)):
                day = self.first + (i - 1 - lag) * _DAY
                column = (day - start).days
                if column < 0 or (self.last - day).days <= lags or np.isnan(table[i, 0, lag]):
                    continue
                rows.append((lag, day.weekday(), table[i, :, lag].sum(), now[:, column].sum()))
        shares = pl.DataFrame(
            rows,
            schema={"lag": pl.Int64, "weekday": pl.Int64, "known": pl.Float64, "now": pl.Float64},
            orient="row",
        )
        both = [shares, shares.with_columns(weekday=pl.lit(None, dtype=pl.Int64))]
        return (
            pl.concat(both)
            .group_by("lag", "weekday")
            .agg(pl.col("known", "now").sum())
            .with_columns(share=pl.col("known") / pl.col("now"))
            .sort("weekday", "lag", nulls_last=False)
        )

    def digest(self) -> str:
        """A SHA-256 of all data and of the days on which they became known."""
        sha = hashlib.sha256("\x00".join([*self.regions, *map(str, self.snapshots)]).encode())
        for name in SCHEMA:
            column = self.changes[name]
            text = column.dtype == pl.String
            plain = column.fill_null("") if text else column.to_physical().fill_null(_NEVER)
            sha.update("\x00".join(plain).encode() if text else plain.to_numpy().tobytes())
        return sha.hexdigest()

    def to_frame(self) -> pl.DataFrame:
        """The table of changes, as read by `from_changes` and the source `vintages`.

        A vintage without a change is a row of 0 cases.
        """
        quiet = sorted(set(self.snapshots) - set(self.changes["as_of"]))
        rows = pl.DataFrame(
            {
                "as_of": quiet,
                "region": [self.regions[0]] * len(quiet),
                "reported": [day - _DAY for day in quiet],
                "cases": [0] * len(quiet),
            },
            schema={name: SCHEMA[name] for name in ("as_of", "region", "reported", "cases")},
        )
        return pl.concat([self.changes, rows], how="diagonal").sort("as_of", maintain_order=True)


KEPT_DAILY_VINTAGES = 84
"""Number of vintages in an archive; older ones become part of the first."""
KEPT_DAYS = KEPT_DAILY_VINTAGES + 56
"""Number of reporting dates in an archive, before the last."""
FILE = "vintages.parquet"
_COLUMNS = {"as_of": pl.Date, "region": pl.String, "reported": pl.Date, "cases": pl.Int64}


def remember(folder: Path, panel: CasePanel, *, write: bool = True) -> CasePanel:
    """Store a panel as known on the morning after its last day; return it with its vintages.

    Without `write` nothing is stored, but the result is the same.

    A second panel of the same morning takes the place of the first; one that is older than the
    last is not kept, and an archive that lacks a region, or is damaged, begins anew. Daily counts
    that are not whole, and counts with a history of their own, are not kept at all. The history
    stands in the panel once it has `LEAST_VINTAGES`.
    """
    if panel.history is not None or panel.revisions is not None:
        return panel
    if panel.step == "week":
        return remember_weeks(folder, panel, write=write)
    if not (panel.counts == np.round(panel.counts)).all():
        return panel
    morning = panel.end + timedelta(days=1)
    path = folder / FILE
    before = _read(path, panel)
    if before is not None and morning < before.last:
        return _with(panel, before, morning)
    kept = _bounded(_grown(before, panel, morning))
    if write:
        write_parquet(path, kept.to_frame())
    return _with(panel, kept, morning)


def fill(folder: Path, history: Vintages) -> None:
    """Store the vintages of one list in an archive, as if each had been stored on its day."""
    write_parquet(folder / FILE, _bounded(history).to_frame())


def together(panel: CasePanel, alone: Sequence[CasePanel]) -> CasePanel:
    """A panel with the joint vintages of its regions, each of which has its own archive.

    It has the days of which all regions have a vintage; changes between them count for the next
    such day. Without enough such days the panel has no vintages.
    """
    if panel.step == "week":
        return weeks_together(panel, alone)
    histories = [own.history for own in alone if own.history is not None]
    if len(histories) < len(panel.regions):
        return panel
    common = sorted(set.intersection(*(set(own.snapshots) for own in histories)))
    if len(common) < LEAST_VINTAGES or common[-1] != panel.end + timedelta(days=1):
        return panel
    mornings = pl.DataFrame({"morning": common}, schema={"morning": pl.Date})
    changes = pl.concat([own.changes for own in histories]).sort("as_of")
    dated = changes.join_asof(mornings, left_on="as_of", right_on="morning", strategy="forward")
    history = Vintages.from_changes(
        dated.drop_nulls("morning").drop("as_of").rename({"morning": "as_of"}),
        source=panel.source,
        regions=panel.regions,
        snapshots=common,
    )
    return replace(panel, history=history)


def count_vintages(folder: Path) -> int:
    """The number of vintages in an archive."""
    kept = _changes(folder / FILE)
    return count_weekly_vintages(folder) if kept is None else kept["as_of"].n_unique()


def _read(path: Path, panel: CasePanel) -> Vintages | None:
    if (kept := _changes(path)) is None:
        return None
    archived = Vintages.from_changes(kept, source=str(path))
    return archived if set(archived.regions) >= set(panel.regions) else None


def _changes(path: Path) -> pl.DataFrame | None:
    """The rows of an archive; none if it is empty, missing or damaged."""
    try:
        kept = pl.read_parquet(path).with_columns(
            pl.col(name).cast(kind) for name, kind in _COLUMNS.items()
        )
        if kept.is_empty() or any(kept.select(*_COLUMNS).null_count().row(0)):
            return None
        oldest = pl.col("as_of").max() - pl.duration(days=KEPT_DAYS)
        dated = kept.select(pl.col("reported").is_between(oldest, pl.col("as_of").max()).all())
    except (OSError, ValueError, pl.exceptions.PolarsError):
        return None
    return kept if dated.item() else None


def _with(panel: CasePanel, kept: Vintages, morning: date) -> CasePanel:
    if morning < kept.first:
        return panel
    history = kept.until(morning).of(panel.regions)
    return replace(panel, history=history) if len(history.snapshots) >= LEAST_VINTAGES else panel


def _grown(before: Vintages | None, panel: CasePanel, morning: date) -> Vintages:
    """The stored vintages with the changes of this morning added."""
    earlier = None
    if before is not None and before.first < morning:
        earlier = before.until(morning - timedelta(days=1))
    first = max(panel.start, panel.end - timedelta(days=KEPT_DAYS - 1))
    now = panel.between(first, panel.end).counts
    before_counts = np.zeros_like(now)
    if earlier is not None:
        same = earlier.of(panel.regions)
        old, offset = same.counts, (first - same.start).days
        columns = np.arange(now.shape[1]) + offset
        inside = (columns >= 0) & (columns < old.shape[1])
        before_counts[:, inside] = old[:, columns[inside]]
    rows, days = np.nonzero(now != before_counts)
    changed = pl.DataFrame(
        {
            "as_of": [morning] * len(rows),
            "region": [panel.regions[row] for row in rows],
            "reported": [first + timedelta(days=int(day)) for day in days],
            "cases": (now - before_counts)[rows, days].astype(np.int64),
        },
        schema_overrides={"as_of": pl.Date, "region": pl.String, "reported": pl.Date},
    )
    snapshots = (*(earlier.snapshots if earlier is not None else ()), morning)
    frames = [changed] if earlier is None else [earlier.changes.select(changed.columns), changed]
    return Vintages.from_changes(
        pl.concat(frames),
        source=panel.source,
        regions=earlier.regions if earlier is not None else panel.regions,
        snapshots=snapshots,
    )


def _bounded(kept: Vintages) -> Vintages:
    """The newest vintages and reporting dates only."""
    mornings = kept.snapshots[-KEPT_DAILY_VINTAGES:]
    oldest = kept.last - timedelta(days=KEPT_DAYS)
    changes = kept.changes.filter(pl.col("reported") >= oldest).with_columns(
        pl.max_horizontal("as_of", pl.lit(mornings[0]))
    )
    return Vintages.from_changes(
        changes, source=kept.source, regions=kept.regions, snapshots=mornings
    )
