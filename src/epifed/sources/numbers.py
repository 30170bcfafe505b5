"""Counts as offices write them: the decimal sign, thousands, `<5`, words for nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from epifed.errors import EpifedError
from epifed.panel import MOST_CASES
from epifed.reading import Assumptions, UnsaidError, short
from epifed.sources.table import at, refuse, wrong_type
from epifed.words import counted, was

COUNT = "a number of at least 0"
INHABITANTS = "a whole number above 0"
MOST_PEOPLE = 1e10

_HIDDEN = (
    r"(?i)^([<≤]=?\s*\d+|\d+\s*[-–]\s*\d+|(fewer than|less than|under|unter|weniger als)\s*\d+)$"
)
_SIGNS = {".": r"\.", ",": ",", " ": "[ \u00a0\u2009\u202f]", "'": "['\u2019]"}


def parse_numbers(
    where: Path | str,
    frame: pl.DataFrame,
    key: str,
    column: str,
    expected: str = COUNT,
    said: Assumptions | None = None,
) -> pl.DataFrame:
    """Turn a column into finite numbers of at least 0; an empty cell stays empty."""
    if frame.schema[key] == pl.String:
        frame = _with_points(where, frame, key, column, said or Assumptions())
    parsed = _cast(where, frame, key, column, expected)
    fits = pl.col(key).is_finite() & (pl.col(key) >= 0)
    if expected == INHABITANTS:
        fits &= (pl.col(key) > 0) & (pl.col(key) == pl.col(key).round())
    good = parsed.select(fits.fill_null(value=False))[key]
    bad = ~good & frame[key].is_not_null()
    refuse(where, frame, bad, key=key, column=column, expected=expected)
    most = MOST_PEOPLE if expected == INHABITANTS else MOST_CASES
    _refuse_enormous(where, parsed, key, column, most)
    return parsed


@dataclass(frozen=True)
class Counts:
    """Counts as numbers, negative ones included, and what was done to get them."""

    frame: pl.DataFrame
    notes: tuple[str, ...]


def parse_counts(where: Path | str, frame: pl.DataFrame, column: str, said: Assumptions) -> Counts:
    """Turn `cases` into numbers as was said; refuse what can be read in more ways than one."""
    notes: list[str] = []
    read = frame
    if frame.schema["cases"] == pl.String:
        frame = frame.with_columns(pl.col("cases").str.replace("^\u2212", "-"))
        read = _without_words(frame, said, notes)
        read = _without_hidden(where, read, column, said, notes)
        read = _with_points(where, read, "cases", column, said)
    parsed = _cast(where, read, "cases", column, COUNT)
    good = parsed.select(pl.col("cases").is_finite().fill_null(value=False))["cases"]
    bad = ~good & read["cases"].is_not_null()
    if bad.any():
        first = frame.filter(bad).sort("row").row(0, named=True)
        _offer_missing(where, first, column, said)
    refuse(where, frame, bad, key="cases", column=column, expected=COUNT)
    _refuse_enormous(where, parsed, "cases", column, MOST_CASES)
    return Counts(parsed, tuple(notes))


def _cast(
    where: Path | str, frame: pl.DataFrame, key: str, column: str, expected: str
) -> pl.DataFrame:
    kind = frame.schema[key]
    if not (kind == pl.String or kind.is_numeric() or kind == pl.Null):
        raise wrong_type(where, frame, key, column, expected)
    return frame.with_columns(pl.col(key).cast(pl.Float64, strict=False))


def _refuse_enormous(
    where: Path | str, frame: pl.DataFrame, key: str, column: str, most: float
) -> None:
    bad = frame.select((pl.col(key).abs() > most).fill_null(value=False))[key]
    refuse(where, frame, bad, key=key, column=column, expected=f"at most {most:,.0f}")


def _without_words(frame: pl.DataFrame, said: Assumptions, notes: list[str]) -> pl.DataFrame:
    if not said.missing:
        return frame
    empty = pl.col("cases").is_in(list(said.missing))
    found = frame.select(empty.fill_null(value=False).sum()).item()
    notes.append(
        f"{counted(found, 'count')} written as {' or '.join(said.missing)} {was(found)} taken as "
        "missing"
    )
    return frame.with_columns(cases=pl.when(~empty).then("cases"))


def _offer_missing(
    where: Path | str, first: Mapping[str, Any], column: str, said: Assumptions
) -> None:
    """Offer `missing` for a cell of letters or dashes, unless it spells a number that is none."""
    word = str(first["cases"])
    wordy = len(word) <= 12 and not any(c.isdigit() for c in word)
    if wordy and word.lower().lstrip("+-") not in {"inf", "infinity", "nan"}:
        more = {"missing": word}
        raise UnsaidError(
            f"{at(where, first['row'], column)}: found '{short(word)}'; expected {COUNT}, or a "
            "word for no report that is said",
            more,
        )


def _without_hidden(
    where: Path | str, frame: pl.DataFrame, column: str, said: Assumptions, notes: list[str]
) -> pl.DataFrame:
    hidden = frame.filter(pl.col("cases").str.contains(_HIDDEN))
    if hidden.is_empty():
        return frame
    if said.below is None:
        first = hidden.sort("row").row(0, named=True)
        raise UnsaidError(
            f"{at(where, first['row'], column)}: found '{short(first['cases'])}' "
            f"({len(hidden):,} such counts); expected a number, or one to put in their place",
            {"below": 2},
        )
    notes.append(f"{len(hidden):,} hidden counts such as {hidden['cases'][0]} are {said.below:g}")
    plain = pl.when(pl.col("cases").str.contains(_HIDDEN)).then(pl.lit(repr(float(said.below))))
    return frame.with_columns(cases=plain.otherwise("cases"))


def _with_points(
    where: Path | str, frame: pl.DataFrame, key: str, column: str, said: Assumptions
) -> pl.DataFrame:
    """Numbers with a decimal point and nothing between thousands."""
    thousands, decimal = said.thousands, said.decimal
    if thousands is not None and thousands == decimal:
        raise EpifedError(
            f"decimal and thousands: found '{thousands}' for both; expected two signs"
        )
    if thousands is None and decimal is None:
        _refuse_two_ways(where, frame, key, column)
        return frame
    if decimal is None:
        decimal = "." if thousands in (",", "'") else ","
    value = pl.col(key)
    if thousands is not None:
        sign = _SIGNS[thousands]
        whole = rf"^[+-]?(\d+|\d{{1,3}}({sign}\d{{3}})+)({_SIGNS[decimal]}\d*)?$"
        bad = frame.select(~value.str.contains(whole).fill_null(value=True))[key]
        refuse(
            where, frame, bad, key=key, column=column,
            expected=f"a number with '{thousands}' between thousands",
        )  # fmt: skip
        value = value.str.replace_all(sign, "")
    if decimal == ",":
        bad = frame.select(value.str.contains(".", literal=True).fill_null(value=False))[key]
        refuse(where, frame, bad, key=key, column=column, expected="a number with a decimal comma")
        value = value.str.replace(",", ".", literal=True)
    return frame.with_columns(value)


def _refuse_two_ways(where: Path | str, frame: pl.DataFrame, key: str, column: str) -> None:
    """Refuse signs that may stand between thousands, and a decimal sign that is no point."""
    text = pl.col(key)
    if frame[key].str.contains(r"^\d*$").all():
        return

    def first_of(pattern: str) -> Mapping[str, Any] | None:
        found = (
            frame.filter(text.str.contains(pattern)).select("row", text=text).sort("row").head(1)
        )
        return found.row(0, named=True) if len(found) else None

    def grouped(sign: str) -> str:
        return rf"^[+-]?[1-9]\d{{0,2}}({_SIGNS[sign]}\d{{3}})+$"

    points = frame.filter(text.str.contains(".", literal=True))
    if len(points) and points.select(text.str.contains(grouped(".")).all()).item():
        _offer(where, first_of(grouped(".")), column, {"thousands": "."}, {"decimal": "."})
    if cell := first_of(r"^[+-]?[1-9]\d{0,2}(\.\d{3})+,\d+$"):
        _offer(where, cell, column, {"thousands": ".", "decimal": ","})
    if cell := first_of(r"^[+-]?[1-9]\d{0,2}(,\d{3})+\.\d+$"):
        _offer(where, cell, column, {"thousands": ",", "decimal": "."})
    commas = frame.filter(text.str.contains(r"^[+-]?\d*(,\d+)+$"))
    if len(commas):
        thousands = commas.select(text.str.contains(grouped(",")).all()).item()
        ways = [{"thousands": ","}] if thousands else []
        _offer(
            where,
            commas.select("row", text=text).sort("row").row(0, named=True),
            column,
            *ways,
            {"decimal": ","},
        )
    for sign in (" ", "'"):
        if cell := first_of(grouped(sign)):
            _offer(where, cell, column, {"thousands": sign})


def _offer(
    where: Path | str, cell: Mapping[str, Any] | None, column: str, *ways: Mapping[str, Any]
) -> None:
    assert cell is not None
    found = f"{at(where, cell['row'], column)}: found '{short(cell['text'])}'"
    raise UnsaidError(f"{found}; expected a number, its signs said", *ways)
