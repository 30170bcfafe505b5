"""The case panel: regions × days (or weeks) of counts. Every reader returns one.

A table in memory is a polars or a pandas DataFrame; pandas need not be installed.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import polars as pl
from numpy.typing import NDArray

from epifed.data.calendar import DAYS_OF, WEEK, Day, Step, refuse_apart, to_day
from epifed.errors import EpifedError, counted, printable

if TYPE_CHECKING:
    from epifed.data.vintages import Vintages
    from epifed.data.weekly_vintages import WeeklyVintages


@runtime_checkable
class Table(Protocol):
    """A DataFrame of polars or pandas."""

    @property
    def columns(self) -> Any:
        """The names of the columns."""

    def __getitem__(self, columns: Any) -> Any:
        """The selected columns or rows."""

    def __len__(self) -> int:
        """The number of rows."""


def column_names(table: Table) -> tuple[str, ...]:
    """The column names of a table, including the named levels of a pandas index."""
    return tuple(str(name).strip() for name in _flat(table).columns)


def pick(table: Table, columns: Mapping[str, str], where: str) -> pl.DataFrame:
    """The columns `columns[key]` of a table under the names `key`; NaN of pandas becomes null."""
    flat = _flat(table)
    raw = {str(name).strip(): name for name in flat.columns}
    return pl.DataFrame({key: _series(flat, raw[name], where) for key, name in columns.items()})


def long_rows(table: Table, source: str) -> pl.DataFrame:
    """The columns day (dates), region and cases of a long table, all of which are required."""
    wanted = ("day", "region", "cases")
    if missing := [name for name in wanted if name not in column_names(table)]:
        raise EpifedError(
            f"{source}: found no column {', '.join(missing)}; expected {', '.join(wanted)}"
        )
    frame = pick(table, {name: name for name in wanted}, source)
    kind = frame.schema["day"]
    if kind == pl.Date:
        return frame
    if kind not in (pl.String, pl.Datetime):
        raise EpifedError(f"{source}: column day: found the type {kind}; expected dates")
    texts = frame["day"].unique()
    days = pl.Series([to_day(day, f"{source}: column day") for day in texts], dtype=pl.Date)
    return frame.with_columns(pl.col("day").replace_strict(texts, days, return_dtype=pl.Date))


def long_table(
    axes: Mapping[str, Sequence[Any]], columns: Mapping[str, NDArray[Any]]
) -> pl.DataFrame:
    """A row for each combination of the axes' values, the last axis running fastest.

    A column has one value for each row, or for each combination of the first axes.
    """
    shape = tuple(len(values) for values in axes.values())
    index = np.indices(shape, dtype=np.uint32).reshape(len(shape), -1)
    kinds: dict[type, type[pl.DataType]] = {str: pl.String, date: pl.Date}
    frame = {}
    for (name, values), row in zip(axes.items(), index, strict=True):
        kind = kinds.get(type(values[0])) if len(values) else None
        frame[name] = pl.Series(list(values), dtype=kind).gather(row)
    for name, cells in columns.items():
        wide = cells.reshape(cells.shape + (1,) * (len(shape) - cells.ndim))
        frame[name] = pl.Series(np.broadcast_to(wide, shape).ravel())
    return pl.DataFrame(frame)


def _flat(table: Any) -> Any:
    index: Any = getattr(table, "index", None)
    if getattr(index, "inferred_type", "") == "datetime64" and index.name is None:
        table = table.rename_axis(None if "date" in table.columns else "date")
    names = getattr(getattr(table, "index", None), "names", ())
    levels = [name for name in names if name is not None and name not in table.columns]
    return table.reset_index(level=levels) if levels else table


def _series(table: Any, column: Any, where: str) -> pl.Series:
    if isinstance(table, pl.DataFrame):
        return table.get_column(column)
    import pyarrow as pa  # noqa: PLC0415

    try:
        return pl.Series(without_offset(pa.array(table[column], from_pandas=True)))
    except (pa.ArrowException, pl.exceptions.PolarsError, TypeError, ValueError):
        raise EpifedError(
            f"{where}: column {column}: found values of several types, or of one that is not "
            "known; expected days, text or numbers alone"
        ) from None


def without_offset(array: Any) -> Any:
    """An Arrow array in which times with an offset such as +05:30 are local times.

    Polars does not support such offsets. Midnight there stays midnight.
    """
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    kind = array.type
    offset = pa.types.is_timestamp(kind) and re.fullmatch(r"([+-])(\d\d):(\d\d)", kind.tz or "")
    if not offset:
        return array
    minutes = int(f"{offset[1]}1") * (60 * int(offset[2]) + int(offset[3]))
    ahead = pa.scalar(timedelta(minutes=minutes), pa.duration(kind.unit))
    return pc.add(array.cast(pa.timestamp(kind.unit)), ahead)


MOST_CASES = 1e9
"""Largest accepted count: a larger one is a typing error, and sums would overflow."""


@dataclass(frozen=True, repr=False)
class CasePanel:
    """Case counts c[k, t] of regions k (the paper's geographic units) on days, or in weeks, t.

    A missing report is a count of 0; `reported` marks which entries were in the source. A week
    is dated by one of its days.

    Parameters
    ----------
    counts : array [regions, steps]
        New cases, at least 0.
    regions : tuple of str
        Ids of the regions, each once.
    start : date
        The first day, or the date of the first week.
    population : array [regions], optional
        Inhabitants of each region.
    step : {"day", "week"}
        The unit of a column.

    Raises
    ------
    EpifedError
        If shapes do not match, a region occurs twice, or a count is impossible.

    Examples
    --------
    >>> CasePanel(np.array([[3.0, 5.0]]), ("north",), date(2024, 1, 1))
    CasePanel(1 region × 2 days, 2024-01-01 … 2024-01-02, 'memory')
    """

    counts: NDArray[np.float64]
    regions: tuple[str, ...]
    start: date
    names: tuple[str, ...] = ()
    population: NDArray[np.int64] | None = None
    reported: NDArray[np.bool_] | None = None
    source: str = "memory"
    attribution: tuple[str, ...] = ()
    boundaries: Path | None = None
    """A GeoJSON file for maps, whose feature ids are the regions."""
    parents: tuple[str, ...] = ()
    """For parts of larger regions (communities): the larger region of each."""
    states: tuple[str, ...] = ()
    """The state of each region, if known."""
    typical_population: NDArray[np.float64] | None = None
    """For sums of clients: the population of a typical client."""
    calendars: tuple[str, ...] = ()
    """The code of each region's public holidays, such as DE-BY; empty if not known."""
    positions: NDArray[np.float64] | None = None
    """Longitude and latitude of each region's center."""
    notes: tuple[str, ...] = ()
    """Changes that the reader made to the data, one sentence each."""
    simulated: Mapping[str, Any] | None = None
    """For simulated cases: the settings of their simulation; none for real cases."""
    history: "Vintages | None" = None
    """The data vintages up to this panel, which is the last, if they were kept."""
    step: Step = "day"
    """The unit of a column."""
    revisions: "WeeklyVintages | None" = None
    """For weeks: the vintages up to this panel, which is the last, and further signals."""
    regions_given: bool = False
    """Whether the list of regions was given by the user, not read from the rows of cases."""
    sums_dropped: tuple[str, ...] = ()
    """Regions that were left out because their counts are sums of other regions."""
    filled_down: bool = False
    """Whether rows have the region or day of the row above, perhaps of another region."""

    def __post_init__(self) -> None:
        """Check shapes, ids and counts."""
        counts = np.ascontiguousarray(self.counts, dtype=np.float64)
        object.__setattr__(self, "counts", counts)
        names = tuple(map(printable, self.names)) if self.names else self.regions
        object.__setattr__(self, "names", names)
        if counts.ndim != 2 or counts.size == 0:
            raise EpifedError(f"{self.source}: found no case counts; expected regions × days")
        regions = len(counts)
        if len(self.regions) != regions or len(self.names) != regions:
            raise EpifedError(
                f"{self.source}: found {len(self.regions)} region ids and {len(self.names)} names "
                f"for {counted(regions, 'row')} of counts; expected one each"
            )
        for name in ("parents", "states", "calendars"):
            values = getattr(self, name)
            if values and len(values) != regions:
                raise EpifedError(
                    f"{self.source}: found {len(values)} {name}; expected {regions}, "
                    "one for each region"
                )
        if self.positions is not None and (
            self.positions.shape != (regions, 2) or not np.isfinite(self.positions).all()
        ):
            raise EpifedError(
                f"{self.source}: found positions of shape {self.positions.shape}; expected "
                f"({regions}, 2), a longitude and a latitude for each region"
            )
        if len(set(self.regions)) != regions:
            raise EpifedError(f"{self.source}: found a region id twice; expected each once")
        bad = ~((counts >= 0) & (counts <= MOST_CASES))
        if bad.any():
            row, day = (int(i) for i in np.argwhere(bad)[0])
            raise EpifedError(
                f"{self.source}: region {self.regions[row]}, {self.day(day)}: found "
                f"{counts[row, day]:g} cases; expected a number of at least 0 and at most "
                f"{MOST_CASES:,.0f}"
            )
        if self.population is not None:
            population = np.asarray(self.population)
            if population.shape != (regions,) or (population <= 0).any():
                raise EpifedError(
                    f"{self.source}: expected one population above 0 for each of "
                    f"{counted(regions, 'region')}"
                )
            object.__setattr__(self, "population", population.astype(np.int64))
        if self.reported is not None and self.reported.shape != counts.shape:
            raise EpifedError(
                f"{self.source}: found a report mask of shape {self.reported.shape}; "
                f"expected {counts.shape}"
            )

    def __repr__(self) -> str:
        """Regions, days and source in one line."""
        regions, steps = self.counts.shape
        period = f"{self.start} … {self.end}"
        size = f"{counted(regions, 'region')} × {counted(steps, self.step)}"
        return f"CasePanel({size}, {period}, {Path(self.source).name!r})"

    @classmethod
    def from_long(
        cls,
        table: Table,
        *,
        source: str = "memory",
        names: dict[str, str] | None = None,
        population: dict[str, int] | None = None,
        parents: dict[str, str] | None = None,
        states: Mapping[str, str] | None = None,
        calendars: Mapping[str, str] | None = None,
        positions: Mapping[str, tuple[float, float]] | None = None,
        regions: Sequence[str] | None = None,
        attribution: tuple[str, ...] = (),
        boundaries: Path | None = None,
        notes: tuple[str, ...] = (),
        simulated: Mapping[str, Any] | None = None,
        step: Step = "day",
        regions_given: bool = False,
        sums_dropped: tuple[str, ...] = (),
    ) -> "CasePanel":
        """A panel from a long table with the columns `day`, `region` and `cases`.

        The table is a DataFrame of polars or pandas. Days are dates or text YYYY-MM-DD, regions are
        text. Missing pairs become zero and are marked as not reported. `regions` fixes the rows and
        their order; without it they are the sorted regions of the table. With the step `week` a day
        stands for its week, and all must be whole weeks apart. `regions_given` marks a public list
        of regions that was not read from the rows.

        Parameters
        ----------
        table : DataFrame
            Columns day, region and cases.
        source : str
            Where it is from, for messages.
        names, population, parents, states, calendars, positions : mapping, optional
            A fact of each region, by its id.
        regions : sequence of str, optional
            The rows and their order.
        step : {"day", "week"}
            What one count is of.
        attribution, boundaries, notes, simulated, regions_given, sums_dropped
            As the fields of the panel.

        Returns
        -------
        CasePanel
            Counts [regions, steps].

        Raises
        ------
        EpifedError
            If a region and day occurs twice, or a region is unknown.
        """
        frame = long_rows(table, source)
        if frame.is_empty():
            raise EpifedError(f"{source}: found no rows; expected at least one day of one region")
        twice = frame.select(pl.struct("region", "day").is_duplicated().alias("twice"))["twice"]
        if twice.any():
            row = frame.filter(twice).row(0, named=True)
            raise EpifedError(
                f"{source}: found region {row['region']} on {row['day']} more than once; "
                "expected each region and day once"
            )
        order = tuple(regions) if regions is not None else tuple(sorted(frame["region"].unique()))
        row_of = {region: i for i, region in enumerate(order)}
        unknown = set(frame["region"].unique()) - row_of.keys()
        if unknown:
            raise EpifedError(
                f"{source}: found region {min(unknown)}, which is not among the "
                f"{len(order)} known regions"
            )
        first, last = frame["day"].min(), frame["day"].max()
        assert isinstance(first, date) and isinstance(last, date)
        rows = frame["region"].replace_strict(row_of, return_dtype=pl.Int64).to_numpy()
        if step == "week":
            refuse_apart(source, frame["day"].unique(maintain_order=True).to_list())
        days = (frame["day"] - first).dt.total_days().to_numpy() // DAYS_OF[step]
        shape = (len(order), (last - first).days // DAYS_OF[step] + 1)
        counts = np.zeros(shape, dtype=np.float64)
        reported = np.zeros(shape, dtype=np.bool_)
        counts[rows, days] = frame["cases"].cast(pl.Float64).to_numpy()
        reported[rows, days] = True
        if population is not None and (absent := [r for r in order if r not in population]):
            raise EpifedError(
                f"{source}: found no population for region {absent[0]}"
                f" ({len(absent)} of {len(order)} without); expected one for every region"
            )
        return cls(
            counts=counts,
            regions=order,
            start=first,
            names=tuple(names.get(r, r) for r in order) if names else (),
            population=np.array([population[r] for r in order]) if population else None,
            reported=reported,
            parents=tuple(parents[r] for r in order) if parents else (),
            states=_states(states, order),
            calendars=tuple(calendars.get(r, "") for r in order) if calendars else (),
            positions=_positions(positions, order),
            source=source,
            attribution=attribution,
            boundaries=boundaries,
            notes=notes,
            simulated=simulated,
            step=step,
            regions_given=regions_given,
            sums_dropped=sums_dropped,
        )

    def to_long(self) -> pl.DataFrame:
        """The panel as a long table with the columns day, region, cases.

        Returns
        -------
        DataFrame
            A row for each region and day.
        """
        long = long_table({"region": self.regions, "day": self.days}, {"cases": self.counts})
        return long.select("day", "region", "cases")

    def to_table(self) -> pl.DataFrame:
        """The panel as a tidy table: date, region, cases and the known facts of the regions.

        A day without a report has no row.

        Returns
        -------
        DataFrame
            A row for each report.
        """
        facts: dict[str, Any] = {"region": self.regions}
        if self.population is not None:
            facts["population"] = self.population
        if self.states:
            facts["state"] = self.states
        if any(self.calendars):
            facts["calendar"] = self.calendars
        if self.positions is not None:
            facts["longitude"], facts["latitude"] = self.positions.T
        long = self.to_long().rename({"day": "date"})
        if self.reported is not None:
            long = long.filter(pl.Series(self.reported.ravel()))
        return long.join(pl.DataFrame(facts), on="region", maintain_order="left")

    def day(self, index: int) -> date:
        """The calendar day of a column; for a week, the day that dates it.

        Parameters
        ----------
        index : int
            A column.

        Returns
        -------
        date
            Its day.
        """
        return self.start + timedelta(days=index * self.step_days)

    def index(self, day: date) -> int:
        """The column of the last day, or week, dated on or before a day; negative if none.

        Parameters
        ----------
        day : date
            Any day.

        Returns
        -------
        int
            A column.
        """
        return (day - self.start).days // self.step_days

    @property
    def step_days(self) -> int:
        """Days of a step."""
        return DAYS_OF[self.step]

    @property
    def days(self) -> list[date]:
        """The calendar days of the columns."""
        return [self.day(i) for i in range(self.counts.shape[1])]

    @property
    def end(self) -> date:
        """The last day, inclusive."""
        return self.day(self.counts.shape[1] - 1)

    def between(self, first: Day, last: Day) -> "CasePanel":
        """The panel from day `first` to day `last`, both included, which it must contain.

        A weekly panel keeps the weeks dated within them.

        Parameters
        ----------
        first, last : date or str
            Both included.

        Returns
        -------
        CasePanel
            Counts [regions, fewer steps].

        Raises
        ------
        EpifedError
            If the panel does not contain these days.
        """
        first, last = to_day(first, "first day"), to_day(last, "last day")
        if first > last:
            raise EpifedError(
                f"found the period {first} … {last}; expected its end after its start"
            )
        begin, end = self._columns(first, last)
        if begin < 0 or end >= self.counts.shape[1] or begin > end:
            raise EpifedError(
                f"{self.source}: found {self.step}s {self.start} … {self.end}; "
                f"expected all of {first} … {last}"
            )
        cut = slice(begin, end + 1)
        return replace(
            self,
            counts=self.counts[:, cut],
            reported=None if self.reported is None else self.reported[:, cut],
            start=self.day(begin),
            history=self._history_between(first, last),
            revisions=self._revisions_until(begin, end),
        )

    def period(self, first: Day | None = None, last: Day | None = None) -> tuple[date, date]:
        """The first and last day, or dated week, between two days; by default the whole panel's.

        Parameters
        ----------
        first, last : date or str, optional
            Both included.

        Returns
        -------
        (date, date)
            The days of the first and the last column.

        Raises
        ------
        EpifedError
            If the panel does not contain these days.
        """
        inside = self.between(first or self.start, last or self.end)
        return inside.start, inside.end

    def _columns(self, first: date, last: date) -> tuple[int, int]:
        """The first column dated on or after the first day, and the last up to the last day."""
        return -((self.start - first).days // self.step_days), self.index(last)

    def weekly(self) -> "CasePanel":
        """The sums of whole weeks up to the last day, dated by their last days.

        A week is reported if all of its days are.

        Returns
        -------
        CasePanel
            Counts [regions, weeks].

        Raises
        ------
        EpifedError
            If there is no whole week.
        """
        self.refuse_step("day")
        weeks = self.counts.shape[1] // WEEK
        if weeks == 0:
            raise EpifedError(f"{self.source}: found no whole week; expected {WEEK} days")
        skipped = self.counts.shape[1] - weeks * WEEK
        shape = (len(self.regions), weeks, WEEK)
        reported = self.reported
        if reported is not None:
            reported = np.logical_and.reduce(reported[:, skipped:].reshape(shape), axis=2)
        return replace(
            self,
            counts=self.counts[:, skipped:].reshape(shape).sum(axis=2),
            reported=reported,
            start=self.day(skipped + WEEK - 1),
            step="week",
            history=None,
        )

    def refuse_step(self, expected: Step) -> None:
        """Refuse a panel of another step than the expected one.

        Parameters
        ----------
        expected : {"day", "week"}
            What one count must be of.

        Raises
        ------
        EpifedError
            If the panel has another step.
        """
        if self.step != expected:
            raise EpifedError(
                f"{self.source}: found counts of each {self.step}; expected counts of each "
                f"{expected}"
            )

    def of(self, regions: Sequence[str]) -> "CasePanel":
        """The panel of some regions only, in this order.

        Parameters
        ----------
        regions : sequence of str
            Ids of the panel.

        Returns
        -------
        CasePanel
            Counts [these regions, steps].
        """
        rows = [self.regions.index(region) for region in regions]
        return replace(
            self,
            counts=self.counts[rows],
            regions=tuple(regions),
            names=tuple(self.names[row] for row in rows),
            population=None if self.population is None else self.population[rows],
            reported=None if self.reported is None else self.reported[rows],
            parents=tuple(self.parents[row] for row in rows) if self.parents else (),
            states=tuple(self.states[row] for row in rows) if self.states else (),
            typical_population=None
            if self.typical_population is None
            else self.typical_population[rows],
            calendars=tuple(self.calendars[row] for row in rows) if self.calendars else (),
            positions=None if self.positions is None else self.positions[rows],
            history=None if self.history is None else self.history.of(regions),
            revisions=None if self.revisions is None else self.revisions.of(regions),
        )

    def alone(self, region: str) -> "CasePanel":
        """The panel of one region from its own first report to its own last.

        Parameters
        ----------
        region : str
            Its id.

        Returns
        -------
        CasePanel
            Counts [1, its own steps].
        """
        own = self.of([region])
        days = np.flatnonzero(own.reported[0]) if own.reported is not None else np.array([])
        return own.between(own.day(int(days[0])), own.day(int(days[-1]))) if len(days) else own

    def _history_between(self, first: date, last: date) -> "Vintages | None":
        history, morning = self.history, last + timedelta(days=1)
        if history is None or morning < history.first:
            return None
        return history.until(morning).since(first)

    def _revisions_until(self, begin: int, end: int) -> "WeeklyVintages | None":
        if self.revisions is None or begin > end:
            return None
        return self.revisions.until_week(self.day(end))

    def covers(self, first: date, last: date) -> NDArray[np.bool_]:
        """Which regions' own reports reach from one day to another.

        Parameters
        ----------
        first, last : date
            Both included.

        Returns
        -------
        array, bool [regions]
            True for a region with a report by the first day and one on the last or later.
        """
        reported = self.reported
        if reported is None:
            reported = np.ones(self.counts.shape, dtype=np.bool_)
        begin, end = self._columns(first, last)
        columns = np.arange(self.counts.shape[1])
        early, late = columns <= begin, columns >= end
        return np.asarray(reported[:, early].any(axis=1) & reported[:, late].any(axis=1))

    def digest(self) -> str:
        """A SHA-256 of a training's inputs: regions, days, counts, population, holidays.

        Returns
        -------
        str
            64 hexadecimal digits.
        """
        sha = hashlib.sha256()
        sha.update("\x00".join(self.regions).encode())
        sha.update(self.start.isoformat().encode())
        sha.update(np.array(self.counts.shape, dtype=np.int64).tobytes())
        sha.update(self.counts.tobytes())
        if self.population is not None:
            sha.update(self.population.tobytes())
        sha.update("\x00".join(self.calendars).encode())
        if self.history is not None:
            sha.update(self.history.digest().encode())
        if self.revisions is not None:
            sha.update(self.revisions.digest().encode())
        if self.step != "day":
            sha.update(self.step.encode())
            if self.reported is not None and not self.reported.all():
                sha.update(np.packbits(self.reported).tobytes())
        return sha.hexdigest()


def _states(state_of: Mapping[str, str] | None, regions: Sequence[str]) -> tuple[str, ...]:
    """The states of all regions; empty unless all are known."""
    if state_of is None or any(region not in state_of for region in regions):
        return ()
    return tuple(state_of[region] for region in regions)


def _positions(
    position_of: Mapping[str, tuple[float, float]] | None, regions: Sequence[str]
) -> NDArray[np.float64] | None:
    """The positions of all regions; none unless all are known."""
    if position_of is None or any(region not in position_of for region in regions):
        return None
    return np.array([position_of[region] for region in regions], dtype=np.float64)


Floats = NDArray[np.float64]

NATION = "nation"


@dataclass(frozen=True)
class Level:
    """Regions of one level, each a sum of regions of a panel."""

    name: str
    """The level's name: county, state, nation."""
    regions: tuple[str, ...]
    names: tuple[str, ...]
    members: NDArray[np.bool_]
    """[regions, regions of the panel]"""

    def sum(self, values: Floats) -> Floats:
        """Sums over the members, for values [regions of the panel, ...]."""
        total: Floats = self.members.astype(np.float64) @ values
        return total

    def only(self, rows: Sequence[int]) -> "Level":
        """The level with some of its regions only."""
        return replace(
            self,
            regions=tuple(self.regions[row] for row in rows),
            names=tuple(self.names[row] for row in rows),
            members=self.members[list(rows)],
        )

    def panel(self, parts: CasePanel) -> CasePanel:
        """The panel of these regions: counts and populations are sums, positions are centers.

        A sum is reported if all of its parts are.
        """
        people = parts.population
        weight = self.members * (1.0 if people is None else people.astype(np.float64))
        weight /= weight.sum(axis=1, keepdims=True)
        positions = parts.positions
        missing = None if parts.reported is None else (~parts.reported).astype(np.float64)
        return CasePanel(
            self.sum(parts.counts),
            self.regions,
            parts.start,
            names=self.names,
            population=None if people is None else self.members @ people,
            reported=None if missing is None else self.sum(missing) == 0,
            typical_population=None if people is None else np.exp(weight @ np.log(people)),
            states=_common(parts.states, self.members),
            calendars=_common(parts.calendars, self.members),
            positions=None if positions is None else weight @ positions,
            source=parts.source,
            attribution=parts.attribution,
            notes=parts.notes,
            simulated=parts.simulated,
            step=parts.step,
        )


def levels_of(panel: CasePanel) -> dict[str, Level]:
    """Every level of a panel by its name, from its own regions to the nation."""
    own = "community" if panel.parents else "county" if panel.states else "region"
    levels = {own: Level(own, panel.regions, panel.names, np.eye(len(panel.regions), dtype=bool))}
    for name, belonging in (("county", panel.parents), ("state", panel.states)):
        if belonging:
            regions = tuple(sorted(set(belonging)))
            members = np.array(regions)[:, None] == np.array(belonging)[None, :]
            levels[name] = Level(name, regions, regions, members)
    every = np.ones((1, len(panel.regions)), dtype=bool)
    return levels | {NATION: Level(NATION, (NATION,), (NATION,), every)}


def choose(panel: CasePanel, wanted: Sequence[str]) -> tuple[Level, ...]:
    """The requested levels, by the name of a level, or the id or name of any region.

    >>> from datetime import date
    >>> panel = CasePanel(np.ones((2, 3)), ("01001", "01002"), date(2020, 1, 2), states=("A", "A"))
    >>> [(level.name, level.regions) for level in choose(panel, ["nation", "A", "01002"])]
    [('nation', ('nation',)), ('state', ('A',)), ('county', ('01002',))]
    """
    every = levels_of(panel)
    rows: dict[str, list[int]] = {}
    for asked in wanted:
        level, inside = _level_with(every, asked)
        rows[level] = sorted({*rows.get(level, []), *inside})
    return tuple(every[name].only(inside) for name, inside in rows.items())


def _level_with(every: dict[str, Level], wanted: str) -> tuple[str, Sequence[int]]:
    if wanted in every:
        return wanted, range(len(every[wanted].regions))
    for level in every.values():
        for names in (level.regions, level.names):
            if names.count(wanted) == 1:
                return level.name, [names.index(wanted)]
    raise EpifedError(
        f"--level: found '{wanted}'; expected {', '.join(every)}, or the id or name of one region"
    )


def _common(values: tuple[str, ...], members: NDArray[np.bool_]) -> tuple[str, ...]:
    """The value that all members of each sum share, or an empty text."""
    if not values:
        return ()
    inside = [{values[i] for i in np.flatnonzero(row)} for row in members]
    return tuple(min(shared) if len(shared) == 1 else "" for shared in inside)
