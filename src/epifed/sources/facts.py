"""What a table says of its regions beside their cases: inhabitants, state, holidays, place."""

from dataclasses import dataclass
from typing import Any

import polars as pl

from epifed.errors import EpifedError
from epifed.holidays import is_calendar
from epifed.reading import Assumptions
from epifed.sources.numbers import INHABITANTS, parse_numbers
from epifed.sources.table import refuse

POPULATION, CALENDAR, LONGITUDE, LATITUDE = "population", "calendar", "longitude", "latitude"
STATE, NAME = "state", "name"
FACTS = (POPULATION, STATE, CALENDAR, LONGITUDE, LATITUDE)
"""The columns that are used if they are there."""
SAID_FACTS = (*FACTS, NAME)
"""With that of names, which may be of persons, so it must be said."""
DEGREES = 180


@dataclass(frozen=True)
class Facts:
    """By region; a fact that the table has no column for is none."""

    population: dict[str, int] | None = None
    states: dict[str, str] | None = None
    calendars: dict[str, str] | None = None
    positions: dict[str, tuple[float, float]] | None = None
    names: dict[str, str] | None = None

    def refuse_missing(self, where: str, region: str) -> None:
        """Refuse a region without a fact that the table has a column for.

        Else whether the others' facts are used would depend on this region.
        """
        for column, found in ((POPULATION, self.population), (LONGITUDE, self.positions)):
            if found is not None and region not in found:
                raise EpifedError(
                    f"{where}: column {column}: found no value for region {region}; expected one"
                )

    def joined(self, other: "Facts") -> "Facts":
        """The facts of other regions of the same table as well."""
        mine, others = vars(self), vars(other)
        return Facts(
            **{key: mine[key] if others[key] is None else (mine[key] or {}) | others[key]
               for key in mine}
        )  # fmt: skip


def region_facts(
    where: str, frame: pl.DataFrame, columns: dict[str, str], said: Assumptions
) -> Facts:
    """What the rows say of their regions, the same in every row of a region."""
    population = calendars = positions = None
    if POPULATION in frame.columns:
        column = columns[POPULATION]
        frame = parse_numbers(where, frame, POPULATION, column, INHABITANTS, said)
        people = _constant(where, frame, POPULATION, column)
        population = {region: int(value) for region, value in people.items()}
    if CALENDAR in frame.columns:
        codes = frame[CALENDAR].drop_nulls().unique().to_list()
        unknown = [code for code in codes if not is_calendar(code)]
        bad = frame[CALENDAR].is_in(unknown).fill_null(value=False)
        column = columns[CALENDAR]
        refuse(where, frame, bad, key=CALENDAR, column=column, expected="a code such as DE-BY")
        calendars = _constant(where, frame, CALENDAR, column)
    if LONGITUDE in frame.columns and LATITUDE in frame.columns:
        x, y = (
            _constant(where, _degrees(where, frame, key, columns[key], said), key, columns[key])
            for key in (LONGITUDE, LATITUDE)
        )
        positions = {region: (x[region], y[region]) for region in x.keys() & y.keys()}
    names = None
    if NAME in frame.columns:
        called = frame.with_columns(pl.col(NAME).cast(pl.String))
        names = _constant(where, called, NAME, columns[NAME])
    return Facts(population, _states(frame), calendars, positions, names)


def _states(frame: pl.DataFrame) -> dict[str, str] | None:
    """The state of each region; none if the column says more than one of a region, or not of all.

    A column of that name may be of something else.
    """
    if STATE not in frame.columns:
        return None
    pairs = frame.select("region", pl.col(STATE).cast(pl.String)).unique()
    one = not pairs["region"].is_duplicated().any() and pairs[STATE].null_count() == 0
    return dict(pairs.iter_rows()) if one else None


def _degrees(
    where: str, frame: pl.DataFrame, key: str, column: str, said: Assumptions
) -> pl.DataFrame:
    """Turn a column into degrees; an empty cell stays empty."""
    number = pl.col(key)
    if frame.schema[key] == pl.String and said.decimal == ",":
        number = number.str.replace(",", ".", literal=True)
    parsed = frame.with_columns(number.cast(pl.Float64, strict=False))
    good = parsed.select((pl.col(key).abs() <= DEGREES).fill_null(value=False))[key]
    bad = ~good & frame[key].is_not_null()
    expected = f"degrees from -{DEGREES} to {DEGREES}"
    refuse(where, frame, bad, key=key, column=column, expected=expected)
    return parsed


def _constant(where: str, frame: pl.DataFrame, key: str, column: str) -> dict[str, Any]:
    """The one value of each region that has one; refused where it changes."""
    known = frame.drop_nulls(key)
    first = pl.col(key).sort_by("row").first().over("region")
    changed = known.with_columns(first=first).filter(pl.col(key) != pl.col("first"))
    for row in changed.sort("row").head(1).iter_rows(named=True):
        raise EpifedError(
            f"{where}: row {row['row']}, column {column}: found {_said(row[key])} for region "
            f"{row['region']}; expected {_said(row['first'])} as in its first row"
        )
    return dict(known.select("region", key).unique().iter_rows())


def _said(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.10g}"
