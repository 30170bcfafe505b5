"""Tidy tables: a row for each region and day, in CSV, parquet or a DataFrame."""

from pathlib import Path

import polars as pl

from epifed.errors import EpifedError
from epifed.frames import Table
from epifed.panel import CasePanel
from epifed.sources.table import (
    IN_MEMORY,
    INHABITANTS,
    columns_of,
    parse_days,
    parse_numbers,
    parse_regions,
    read_table,
    refuse_twice,
)

POPULATION = "population"


def read_tidy(
    table: Path | str | Table,
    date: str = "date",
    region: str = "region",
    cases: str = "cases",
    population: str = POPULATION,
) -> CasePanel:
    """The panel of a tidy CSV, parquet file or DataFrame; the others are the names of its columns.

    A column `population` is used if there is one. An empty count is a missing report.
    """
    table = Path(table) if isinstance(table, str) else table
    path = table if isinstance(table, Path) else IN_MEMORY
    columns = {"day": date, "region": region, "cases": cases}
    if population != POPULATION or population in columns_of(table):
        columns["population"] = population
    frame = parse_cases(path, read_table(table, columns), columns)
    inhabitants = None
    if "population" in columns:
        inhabitants = _populations(path, frame, columns)
    counted = frame.drop_nulls("cases")
    if counted.is_empty():
        raise EpifedError(f"{path}: column {cases}: found only empty cells; expected counts")
    empty = len(frame) - len(counted)
    return CasePanel.from_long(
        counted.select("day", "region", "cases"),
        source=str(path),
        regions=sorted(frame["region"].unique()),
        population=inhabitants,
        notes=(f"{empty} rows had no count; they are missing reports",) if empty else (),
    )


def parse_cases(path: Path | str, frame: pl.DataFrame, columns: dict[str, str]) -> pl.DataFrame:
    """The rows of a table with `day`, `region` and `cases` checked, its other columns as read."""
    frame = parse_regions(path, frame, columns["region"])
    frame = parse_days(path, frame, columns["day"])
    frame = parse_numbers(path, frame, "cases", columns["cases"])
    refuse_twice(path, frame, f"{columns['region']} and {columns['day']}")
    return frame


def _populations(path: Path | str, frame: pl.DataFrame, columns: dict[str, str]) -> dict[str, int]:
    column = columns["population"]
    known = parse_numbers(path, frame, "population", column, INHABITANTS).drop_nulls("population")
    first = pl.col("population").sort_by("row").first().over("region")
    changed = known.with_columns(first=first).filter(pl.col("population") != pl.col("first"))
    for row in changed.sort("row").head(1).iter_rows(named=True):
        raise EpifedError(
            f"{path}: row {row['row']}, column {column}: found {row['population']:.0f} for region "
            f"{row['region']}; expected {row['first']:.0f} as in its first row"
        )
    return {
        region: int(people)
        for region, people in known.select("region", "population").unique().iter_rows()
    }
