"""Tables of case counts, as offices have them: recognise, assume what was said, clean, panel."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from epifed.data.calendar import Step
from epifed.data.panel import CasePanel, Table
from epifed.data.readers import cleaning
from epifed.data.readers.cleaning import (
    of_one_cadence,
    without_sums,
    without_total_kinds,
    without_totals,
)
from epifed.data.readers.columns import lay_long, of_one_kind, wanted_names
from epifed.data.readers.options import AmbiguousTableError, Assumptions
from epifed.data.readers.regions import Facts, parse_regions, region_facts
from epifed.data.readers.tables import IN_MEMORY, Content, RawTable, open_table, some
from epifed.data.readers.values import ISO, WEEKLY, parse_counts, parse_days
from epifed.errors import EpifedError, counted, was


@dataclass(frozen=True)
class Tidy:
    """A clean table, a row for each region and day or week, and every assumption behind it."""

    where: str
    frame: pl.DataFrame
    """day, region, cases (empty: no report), facts of the regions if there are some, and `row`."""
    columns: dict[str, str]
    read_as: dict[str, Any]
    notes: tuple[str, ...]

    @property
    def step(self) -> Step:
        """What a row counts."""
        return "week" if self.read_as["cadence"] == "week" else "day"

    def facts(self) -> Facts:
        """What the rows say of their regions beside the cases."""
        said = Assumptions(**{key: self.read_as.get(key) for key in ("decimal", "thousands")})
        return region_facts(self.where, self.frame, self.columns, said)


def read_tidy(table: Path | str | Table, **options: Any) -> CasePanel:
    """The panel of a table in a file or a DataFrame; options are those of `Assumptions`.

    The columns `population`, `calendar` (of public holidays: DE, or DE-BY), `longitude` and
    `latitude` are used if they are there. An empty count is a missing report.
    """
    return to_panel(load_tidy(table, **options))


def load_tidy(table: Path | str | Table, **options: Any) -> Tidy:
    """The clean table in a file or a DataFrame; options are those of `Assumptions`."""
    table = Path(table) if isinstance(table, str) else table
    said = Assumptions.of(options, str(table) if isinstance(table, Path) else IN_MEMORY)
    return cleaned(open_tidy(table, said), said)


def open_tidy(table: Path | Content | Table, said: Assumptions) -> RawTable:
    """The table as it is, its delimiter chosen by the columns it should have."""
    return open_table(table, said, wanted_names(said))


def cleaned(table: RawTable, said: Assumptions) -> Tidy:
    """Lay a table out as a long one and clean it."""
    long = without_total_kinds(table, lay_long(table, said), said)
    try:
        tidy = clean_rows(table.where, long.frame, long.columns, said)
    except AmbiguousTableError as error:
        if "duplicates" not in error.choices[0]:
            raise
        raise of_one_kind(table, long.columns, error) from None
    read_as = table.found | {"layout": long.layout} | {
        key: name for key, name in long.columns.items() if not name.startswith("(")
    }  # fmt: skip
    return Tidy(
        tidy.where, tidy.frame, tidy.columns, read_as | tidy.read_as, long.notes + tidy.notes
    )


def clean_rows(where: str, frame: pl.DataFrame, columns: dict[str, str], said: Assumptions) -> Tidy:
    """Clean the rows of a long table: ids, days, counts, then what several rows say together."""
    state = without_totals(cleaning.Cleaning(where, some(where, frame), columns, said, {}))
    state = cleaning.filled_down(cleaning.table_alone(state))
    rows = parse_regions(where, state.frame, columns["region"], said.id_width)
    days = parse_days(where, rows, columns["day"], said.date_format)
    counts = parse_counts(where, days.frame, columns["cases"], said)
    for note in counts.notes:
        state = state.now(counts.frame, note)
    if days.format not in (None, ISO):
        state = state.now(counts.frame, f"days are written as {days.format}")
    state = state.now(counts.frame, **({"date_format": days.format} if days.format else {}))
    state = cleaning.without_leaps(cleaning.summed(cleaning.of_one_spelling(state)))
    state = of_one_cadence(state, weeks=days.format in WEEKLY)
    order = rows.sort("row", maintain_order=True)["region"].unique(maintain_order=True)
    state = without_sums(cleaning.without_negatives(cleaning.as_new(state)), order.to_list())
    if state.frame["cases"].is_null().all():
        raise EpifedError(
            f"{where}: column {columns['cases']}: found only empty cells; expected counts"
        )
    used = {
        name: value
        for name in ("decimal", "thousands", "missing", "below", "id_width", "line_list")
        if (value := getattr(said, name)) is not None
    }
    return Tidy(where, state.frame, columns, state.found | used, state.notes)


def to_panel(tidy: Tidy) -> CasePanel:
    """The panel of a clean table, of days or of weeks.

    Of a list of cases a day without a row has no case; of counts it has no report.
    """
    reported = tidy.frame.drop_nulls("cases")
    empty = len(tidy.frame) - len(reported)
    notes = (
        (f"{counted(empty, 'row')} had no count and {was(empty)} taken as missing",)
        if empty
        else ()
    )
    panel = CasePanel.from_long(
        reported.select("day", "region", "cases"),
        source=tidy.where,
        regions=sorted(tidy.frame["region"].unique()),
        **vars(tidy.facts()),
        notes=(*tidy.notes, *notes),
        step=tidy.step,
    )
    return replace(panel, reported=None) if tidy.read_as.get("line_list") else panel
