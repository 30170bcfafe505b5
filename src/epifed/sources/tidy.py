"""Tidy tables: a row for each region and day, in CSV, parquet or a DataFrame."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from epifed.errors import EpifedError
from epifed.frames import Table
from epifed.holidays import refuse_unknown_calendar
from epifed.panel import CasePanel
from epifed.sources.table import (
    IN_MEMORY,
    INHABITANTS,
    columns_of,
    parse_days,
    parse_numbers,
    parse_regions,
    read_table,
    refuse,
    refuse_twice,
)

POPULATION = "population"
CALENDAR, LONGITUDE, LATITUDE = "calendar", "longitude", "latitude"
DEGREES = 180


@dataclass(frozen=True)
class Facts:
    """What a table says of its regions beside their cases; a fact that it has not is none."""

    population: dict[str, int] | None = None
    calendars: dict[str, str] | None = None
    positions: dict[str, tuple[float, float]] | None = None


def read_tidy(
    table: Path | str | Table,
    date: str = "date",
    region: str = "region",
    cases: str = "cases",
    population: str = POPULATION,
) -> CasePanel:
    """The panel of a tidy CSV, parquet file or DataFrame; the others are the names of its columns.

    The columns `population`, `calendar` (of public holidays: DE, or DE-BY), `longitude` and
    `latitude` are used if they are there. An empty count is a missing report.
    """
    table = Path(table) if isinstance(table, str) else table
    path = table if isinstance(table, Path) else IN_MEMORY
    columns = {"day": date, "region": region, "cases": cases}
    columns |= fact_columns(columns_of(table), population)
    frame = parse_cases(path, read_table(table, columns), columns)
    facts = region_facts(path, frame, columns)
    counted = frame.drop_nulls("cases")
    if counted.is_empty():
        raise EpifedError(f"{path}: column {cases}: found only empty cells; expected counts")
    empty = len(frame) - len(counted)
    return CasePanel.from_long(
        counted.select("day", "region", "cases"),
        source=str(path),
        regions=sorted(frame["region"].unique()),
        **vars(facts),
        notes=(f"{empty} rows had no count; they are missing reports",) if empty else (),
    )


def fact_columns(found: Sequence[str], population: str = POPULATION) -> dict[str, str]:
    """The columns of facts that a table has, by their keys."""
    columns = {}
    if population != POPULATION or population in found:
        columns["population"] = population
    if CALENDAR in found:
        columns["calendar"] = CALENDAR
    if LONGITUDE in found and LATITUDE in found:
        columns |= {"longitude": LONGITUDE, "latitude": LATITUDE}
    return columns


def parse_cases(path: Path | str, frame: pl.DataFrame, columns: dict[str, str]) -> pl.DataFrame:
    """The rows of a table with `day`, `region` and `cases` checked, its other columns as read."""
    frame = parse_regions(path, frame, columns["region"])
    frame = parse_days(path, frame, columns["day"])
    frame = parse_numbers(path, frame, "cases", columns["cases"])
    refuse_twice(path, frame, f"{columns['region']} and {columns['day']}")
    return frame


def region_facts(path: Path | str, frame: pl.DataFrame, columns: Mapping[str, str]) -> Facts:
    """What the rows say of their regions, the same in every row of a region."""
    population = calendars = positions = None
    if "population" in columns:
        frame = parse_numbers(path, frame, "population", columns["population"], INHABITANTS)
        people = _constant(path, frame, "population", columns["population"])
        population = {region: int(value) for region, value in people.items()}
    if "calendar" in columns:
        calendars = _constant(path, frame, "calendar", columns["calendar"])
        for code in sorted(set(calendars.values())):
            refuse_unknown_calendar(code)
    if "longitude" in columns:
        x, y = (
            _constant(path, _degrees(path, frame, key), key, columns[key])
            for key in ("longitude", "latitude")
        )
        positions = {region: (x[region], y[region]) for region in x.keys() & y.keys()}
    return Facts(population, calendars, positions)


def _degrees(path: Path | str, frame: pl.DataFrame, key: str) -> pl.DataFrame:
    """Turn a column into degrees; an empty cell stays empty."""
    parsed = frame.with_columns(pl.col(key).cast(pl.Float64, strict=False))
    good = parsed.select((pl.col(key).abs() <= DEGREES).fill_null(value=False))[key]
    bad = ~good & frame[key].is_not_null()
    refuse(path, frame, bad, key=key, column=key, expected=f"degrees from -{DEGREES} to {DEGREES}")
    return parsed


def _constant(path: Path | str, frame: pl.DataFrame, key: str, column: str) -> dict[str, Any]:
    """The one value of each region that has one; refused where it changes."""
    known = frame.drop_nulls(key)
    first = pl.col(key).sort_by("row").first().over("region")
    changed = known.with_columns(first=first).filter(pl.col(key) != pl.col("first"))
    for row in changed.sort("row").head(1).iter_rows(named=True):
        raise EpifedError(
            f"{path}: row {row['row']}, column {column}: found {_said(row[key])} for region "
            f"{row['region']}; expected {_said(row['first'])} as in its first row"
        )
    return dict(known.select("region", key).unique().iter_rows())


def _said(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.10g}"
