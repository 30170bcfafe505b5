"""The public inputs that all clients of a releasable training share: days, regions and facts.

A value shared by all clients enters every contribution without noise. If it came from the rows of
the clients, one client could change the vectors of all others. So days and regions are given by
the user, never read from the cases.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from epifed.data.calendar import WEEK, Day, to_day
from epifed.data.panel import CasePanel, Table
from epifed.data.readers.tables import Assumptions, open_table, refuse, some
from epifed.data.readers.values import FACTS, Facts, refuse_alike, region_facts
from epifed.errors import EpifedError
from epifed.learners.base import Learner, Period, View

REGION = "region"
SUGGESTED_WEEKS = 26
"""Number of full weeks before today that an error message suggests as training period."""


@dataclass(frozen=True)
class PublicRegions:
    """The public list of regions that may take part, with public facts of each."""

    regions: tuple[str, ...]
    facts: Facts = field(default_factory=Facts)

    @classmethod
    def of(cls, source: "Path | str | Table | Sequence[str] | PublicRegions") -> "PublicRegions":
        """The list from a file or DataFrame with a column `region`, or from region ids.

        The columns population, state, calendar, longitude and latitude are used if present. A
        `.txt` file without column names has one id in each line.
        """
        if isinstance(source, PublicRegions):
            return source
        if isinstance(source, str | Path):
            path = Path(source)
            return cls._read(path, _lines(path))
        if isinstance(source, Sequence):
            return cls._read("regions", pl.DataFrame({REGION: [str(name) for name in source]}))
        return cls._read("regions", source)

    @classmethod
    def _read(cls, where: Path | str, table: Table | Path) -> "PublicRegions":
        raw = open_table(table)
        columns = {name: name for name in (REGION, *FACTS) if name == REGION or name in raw.names}
        frame = some(where, raw.pick(columns)).with_columns(pl.col(REGION).cast(pl.String))
        absent = frame[REGION].is_null()
        refuse(where, frame, absent, key=REGION, column=REGION, expected="the id of a region")
        twice = frame[REGION].is_duplicated()
        refuse(where, frame, twice, key=REGION, column=REGION, expected="each region once")
        refuse_alike(str(where), frame[REGION].to_list())
        facts = region_facts(str(where), frame, columns, Assumptions())
        for region in frame[REGION]:
            facts.refuse_missing(str(where), region)
        return cls(tuple(frame[REGION]), facts)

    def lay_out(self, panel: CasePanel) -> CasePanel:
        """The panel with exactly these regions, in this order, and with these facts.

        A region without rows has no reports. Rows of an unlisted region are refused, because a
        wrong list would otherwise drop them unnoticed.
        """
        unknown = sorted(set(panel.regions) - set(self.regions))
        if unknown:
            raise EpifedError(
                f"{panel.source}: found region {unknown[0]}, which is not in the list of "
                f"{len(self.regions)} regions; expected only listed ones: add it to the list, or "
                "remove its rows"
            )
        rows = [self.regions.index(region) for region in panel.regions]
        shape = (len(self.regions), panel.counts.shape[1])
        counts, reported = np.zeros(shape), np.zeros(shape, dtype=np.bool_)
        counts[rows] = panel.counts
        reported[rows] = _reported(panel)
        names = dict(zip(panel.regions, panel.names, strict=True))
        facts = self.facts
        return CasePanel(
            counts,
            self.regions,
            panel.start,
            names=tuple(names.get(region, region) for region in self.regions),
            population=_column(facts.population, self.regions),
            reported=reported,
            source=panel.source,
            attribution=panel.attribution,
            boundaries=panel.boundaries,
            states=_words(facts.states, self.regions),
            calendars=_words(facts.calendars, self.regions),
            positions=_column(facts.positions, self.regions),
            notes=panel.notes,
            simulated=panel.simulated,
            history=panel.history,
            step=panel.step,
            regions_given=True,
        )


@dataclass(frozen=True)
class ReleasableData:
    """Cases of given days and regions, as a training for release reads them."""

    panel: CasePanel
    period: Period

    @classmethod
    def of(
        cls,
        panel: CasePanel,
        first: Day | None,
        last: Day | None,
        regions: "Path | str | Table | Sequence[str] | PublicRegions | None" = None,
        step: str | None = None,
    ) -> "ReleasableData":
        """The panel on these days and regions, all of which must be given.

        Days that the panel lacks become days without reports, so no client's first or last row
        changes the period. `step` is the given unit of a count; none: days.
        """
        if first is None or last is None:
            raise EpifedError(_missing_days(panel, date.today()))
        begin, end = to_day(first, "first day"), to_day(last, "last day")
        if begin > end:
            raise EpifedError(f"found the period {begin} … {end}; expected its end after its start")
        if end > date.today():
            raise EpifedError(
                f"last day: found {end}; expected a day before today ({date.today()})"
            )
        if panel.step != (step or "day"):
            raise EpifedError(
                f"{panel.source}: found counts of each {panel.step}; expected each "
                f"{step or 'day'}, since what a count is of is given for a release, not "
                f"recognised: add --cadence {panel.step}"
            )
        if panel.step == "week" and (ahead := (end - panel.end).days % WEEK):
            raise EpifedError(
                f"last day: found {end}; expected {end - timedelta(days=ahead)} or another day by "
                "which a week is dated, since the days of a week are given for a release, too"
            )
        if panel.history is not None or panel.revisions is not None:
            raise EpifedError(
                f"{panel.source}: found data vintages of all regions together; expected none for a "
                "release, since the days on which they were kept come from all regions' rows (the "
                "sites of a federation keep vintages of each region alone)"
            )
        if panel.filled_down:
            raise EpifedError(
                f"{panel.source}: found rows that take their region or day from the row above "
                "(fill_down); expected both in every row for a release, since the row above may be "
                "another region's"
            )
        listed = PublicRegions.of(regions) if regions is not None else None
        if taken := set(panel.sums_dropped) & set(listed.regions if listed else panel.regions):
            raise EpifedError(
                f"{panel.source}: found region {min(taken)}, which is in the list and was dropped "
                "as a sum of others; expected it out of the list, or --totals keep, since no "
                "region's counts may decide that another one is left out"
            )
        if listed is not None:
            panel = listed.lay_out(panel)
        elif not panel.regions_given:
            raise EpifedError(
                f"{panel.source}: found no public list of regions; expected one for a release, "
                "since the regions that have rows must not decide about the others: add --regions "
                "FILE with a column 'region' and, if they are public, 'population', 'longitude' "
                "and 'latitude'"
            )
        laid_out = _on_days(panel, begin, end)
        return cls(laid_out, (laid_out.start, laid_out.end))

    @property
    def absent(self) -> NDArray[np.int64]:
        """Row numbers of the clients without any report on these days; their vectors are zero."""
        return np.flatnonzero(~_reported(self.panel).any(axis=1))

    def view(self, learner: Learner[Any, Any]) -> View:
        """The learner's view of every client."""
        view: View = learner.deployed_view(self.panel, self.period)
        return view

    def note(self) -> str | None:
        """A warning for the owner of the data if most regions have no report in the last week."""
        newest = _reported(self.panel)[:, -(WEEK // self.panel.step_days) :]
        regions, silent = len(newest), int((newest.sum(axis=1) == 0).sum())
        if 2 * silent <= regions:
            return None
        return (
            f"{silent} of {regions} regions have no report in the last week before "
            f"{self.panel.end}: are these the right days?"
        )


def _lines(path: Path) -> Table | Path:
    """The ids in a text file without column names, as a table; any other file as its path."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError):
        return path
    ids = [line.strip() for line in lines if line.strip()]
    plain = path.suffix.lower() == ".txt" and REGION not in ids[:1]
    return pl.DataFrame({REGION: ids}, schema={REGION: pl.String}) if plain else path


def _reported(panel: CasePanel) -> NDArray[np.bool_]:
    """Whether each region reported on each day, as a boolean matrix.

    Without such marks a day without a row counts as a day without a case. Then the last row of
    another region does not show that a region reported, and only days with a case are reports.
    """
    return panel.counts > 0 if panel.reported is None else panel.reported


def _column(values: dict[str, Any] | None, regions: Sequence[str]) -> NDArray[Any] | None:
    return None if values is None else np.array([values[region] for region in regions])


def _words(values: dict[str, str] | None, regions: Sequence[str]) -> tuple[str, ...]:
    return tuple(values.get(region, "") for region in regions) if values else ()


def _on_days(panel: CasePanel, first: date, last: date) -> CasePanel:
    """The panel on exactly these days; a weekly panel on the weeks dated within them."""
    unit = panel.step_days
    begin = panel.start + timedelta(days=-((panel.start - first).days // unit) * unit)
    length = (last - begin).days // unit + 1
    if length < 1:
        raise EpifedError(f"{panel.source}: found no {panel.step} from {first} to {last}")
    shape = (len(panel.regions), length)
    counts, reported = np.zeros(shape), np.zeros(shape, dtype=np.bool_)
    offset = (panel.start - begin).days // unit
    here = np.arange(length) - offset
    inside = (here >= 0) & (here < panel.counts.shape[1])
    counts[:, inside] = panel.counts[:, here[inside]]
    reported[:, inside] = _reported(panel)[:, here[inside]]
    return replace(panel, counts=counts, reported=reported, start=begin)


def _missing_days(panel: CasePanel, today: date) -> str:
    """The error message that asks for the days of a training."""
    last = today - timedelta(days=today.weekday() + 1)
    first = last - timedelta(days=SUGGESTED_WEEKS * WEEK - 1)
    return (
        f"{panel.source}: found no first and last day for a training that may be released; "
        "expected both to be given, since days read from the data would let one region decide "
        "about all: "
        f"add --from and --to (the last {SUGGESTED_WEEKS} full weeks: --from {first} --to {last})"
    )
