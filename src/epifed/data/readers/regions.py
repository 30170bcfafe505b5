"""Regions in a table: ids with leading zeros, population, state, holidays and position."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from epifed.data.calendar import is_calendar
from epifed.data.readers.options import AmbiguousTableError, Assumptions, short
from epifed.data.readers.tables import at, refuse, wrong_type
from epifed.data.readers.values import INHABITANTS, parse_numbers
from epifed.errors import EpifedError

LEAST_DIGITS, MOST_DIGITS = 4, 12
"""Ids of so many digits lose a zero; shorter ones may be numbers that simply count."""
_DECIMAL = r"^\d+\.0+$"
_DIGITS = r"^\d+$"
_UNUSUAL = r"[^!-~]"
_UNSEEN = (
    "[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ufeff\u200b-\u200f\u202a-\u202e\u2060"
    "\u2066-\u2069\u00ad]"
)
"""Signs that nobody sees, such as the mark of a file that was put below another, and such that a
terminal obeys."""


def parse_regions(
    where: Path | str, frame: pl.DataFrame, column: str, width: int | None = None
) -> pl.DataFrame:
    """Turn `region` into text, filled up with zeros to `width` digits; refuse an empty one.

    Without a width, ids that have lost their zeros or became decimal numbers are refused.
    """
    kind = frame.schema["region"]
    if kind.is_float():
        whole = (pl.col("region") == pl.col("region").round()).all()
        if not frame.select(whole).item():
            raise wrong_type(where, frame, "region", column, "text")
        frame = frame.with_columns(
            pl.col("region").cast(pl.Int64, strict=False).cast(pl.String) + ".0"
        )
    elif kind.is_integer() or kind == pl.Null:
        frame = frame.with_columns(pl.col("region").cast(pl.String))
    elif kind != pl.String:
        raise wrong_type(where, frame, "region", column, "text")
    frame = frame.with_columns(spelled(frame["region"]))
    empty = frame["region"].is_null()
    refuse(where, frame, empty, key="region", column=column, expected="the id of a region")
    if width is None:
        _refuse_lost_zeros(where, frame, column)
        return frame
    return frame.with_columns(filled(pl.col("region"), width))


def spelled(ids: pl.Series) -> pl.Series:
    """Ids without unseen signs, one space where there are several, letters in one form of Unicode.

    >>> spelled(pl.Series("region", ["LK\\u00a0 Harz", "Du\\u0308ren"])).to_list()
    ['LK Harz', 'Düren']
    """
    if not ids.str.contains(_UNUSUAL).any():
        return ids
    plain = ids.str.replace_all(_UNSEEN, "").str.replace_all(r"\s+", " ").str.strip_chars()
    return plain.str.normalize("NFC").replace("", None)


def refuse_alike(where: str, ids: Sequence[str]) -> None:
    """Refuse ids that may be of one client: it would count twice, and move the sum by 2 S."""
    plain: dict[str, str] = {}
    for name, spelling in zip(ids, spelled(pl.Series(ids, dtype=pl.String)), strict=True):
        if not spelling or spelling != name:
            raise EpifedError(
                f"{where}: found the client {name!a}; expected {spelling or 'an id'!a}, without "
                "blanks around it or signs that nobody sees"
            )
        digits = re.fullmatch(r"0*(\d+?)(\.0+)?", spelling)
        other = plain.setdefault(digits[1] if digits else spelling.casefold(), name)
        if other != name:
            raise EpifedError(
                f"{where}: found the clients {other!a} and {name!a}, which differ in zeros before "
                "a number or in upper and lower case only; expected each client once"
            )


def filled(ids: pl.Expr, width: int | None) -> pl.Expr:
    """Ids of digits filled up with zeros; none, or 0, leaves them as they are."""
    if not width:
        return ids
    whole = ids.str.replace(r"\.0+$", "")
    return pl.when(whole.str.contains(r"^\d+$")).then(whole.str.zfill(width)).otherwise(ids)


def _refuse_lost_zeros(where: Path | str, frame: pl.DataFrame, column: str) -> None:
    ids = frame["region"].unique()
    decimal = ids.filter(ids.str.contains(_DECIMAL))
    numbers = ids.filter(ids.str.contains(_DIGITS))
    rows = frame.select("row", "region").sort("row")
    if len(decimal) and len(decimal) + len(numbers) > len(ids) / 2:
        whole = pl.concat([decimal.str.replace(r"\.0+$", ""), numbers])
        digits = int(whole.str.len_chars().max())  # type: ignore[arg-type]
        first = rows.filter(pl.col("region").is_in(decimal.implode())).row(0, named=True)
        raise AmbiguousTableError(
            f"{at(where, first['row'], column)}: found '{short(first['region'])}', a decimal "
            "number; expected an id as text",
            {"id_width": digits},
        )
    if numbers.str.strip_chars_start("0").is_duplicated().any():
        again = numbers.filter(numbers.str.strip_chars_start("0").is_duplicated())
        raise _lost(where, rows, again, column)
    lengths = sorted(numbers.str.len_chars().unique())
    if len(lengths) != 2 or len(numbers) <= len(ids) / 2:
        return
    if lengths[1] - lengths[0] == 1 and LEAST_DIGITS <= lengths[1] <= MOST_DIGITS:
        raise _lost(where, rows, numbers, column)


def _lost(
    where: Path | str, rows: pl.DataFrame, ids: pl.Series, column: str
) -> AmbiguousTableError:
    shorter, *_, longer = ids.str.len_chars().unique().sort().to_list()
    few = ids.filter(ids.str.len_chars() == shorter)
    row = rows.filter(pl.col("region").is_in(few.implode())).row(0, named=True)
    return AmbiguousTableError(
        f"{at(where, row['row'], column)}: found ids of {shorter} and of {longer} digits such as "
        f"'{row['region']}', which may have lost a leading zero; expected ids of one length",
        {"id_width": longer},
        {"id_width": 0},
    )


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


def middles(path: Path) -> dict[str, tuple[float, float]]:
    """The middle of each shape's bounding box by its id, longitude first; none of a broken file.

    What is wrong with a file is said by whoever draws its shapes; for a forecast it is a help.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
        return {
            str(feature["properties"]["id"]): _middle(feature["geometry"]["coordinates"])
            for feature in content["features"]
        }
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return {}


def _middle(coordinates: Any) -> tuple[float, float]:
    x, y = zip(*_points(coordinates), strict=True)
    return (min(x) + max(x)) / 2, (min(y) + max(y)) / 2


def _points(nested: Any) -> Iterator[tuple[float, float]]:
    if isinstance(nested[0], int | float):
        yield float(nested[0]), float(nested[1])
    else:
        for part in nested:
            yield from _points(part)
