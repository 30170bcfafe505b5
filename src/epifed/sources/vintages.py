"""Sources of vintages: a table of changes, dated downloads of the RKI's list, an own list.

A row of any of them becomes known on some day. A table says so in a column; of a folder of dated
line lists, the differences from one to the next say so.
"""

from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path

import polars as pl

from epifed.errors import EpifedError
from epifed.sources.clean import LONGEST_GAP
from epifed.sources.content import existing
from epifed.sources.dates import FIRST_DAY, LAST_DAY
from epifed.sources.downloads import day_of, read_downloads
from epifed.sources.table import open_table, refuse, some
from epifed.vintages import Vintages

KNOWN = ("as_of", "known", "Datenstand")
REGION = ("region", "county", "community", "IdLandkreis")
REPORTED = ("reported", "date", "Meldedatum")
ONSET = ("onset", "Erkrankungsbeginn")
AGE = ("age_group", "Altersgruppe")
CASES = ("cases", "AnzahlFall")
TABLES = ("vintages.parquet", "linelist_vintages.parquet")
"""The names under which a data directory holds its table of changes."""
DAY = "a day as YYYY-MM-DD, YYYY/MM/DD or DD.MM.YYYY from 1900 to 2100"
TIME = r"[T ]\d?\d:\d\d(:\d\d(\.\d+)?)?Z?$"


def load_vintages(
    path: Path | str, *, regions: Sequence[str] | None = None, **columns: str
) -> Vintages:
    """The vintages of a table, of a data directory that has one, or of a folder of downloads.

    `regions` fixes the regions and their order. The columns of a table are found by their usual
    names, or given: see `read_vintages`.
    """
    path = existing(Path(path))
    if path.is_dir():
        table = next((path / name for name in TABLES if (path / name).is_file()), None)
        found = read_vintages(table, **columns) if table else read_downloads(path)
    else:
        found = read_vintages(path, **columns)
    return found if regions is None else found.of(regions)


def read_vintages(
    path: Path | str,
    *,
    known: str | None = None,
    entry: str | None = None,
    region: str | None = None,
    reported: str | None = None,
    onset: str | None = None,
    age: str | None = None,
    cases: str | None = None,
) -> Vintages:
    """The vintages of a CSV or parquet file whose rows say when they became known.

    `known` is the column of the first morning on which a row was known; `entry`, for an
    authority's own list, that of the day on which it was entered, so that it is known on the next
    morning. `reported` is the reporting date. A negative count takes cases back. Without a column
    of cases each row is one; without one of regions all are one region, named as the file.
    """
    path = Path(path)
    table = open_table(path)
    there = table.names
    morning = entry or _column(path, there, known, KNOWN)
    wanted = {"as_of": morning, "reported": _column(path, there, reported, REPORTED)}
    optional = {
        "region": (region, REGION),
        "onset": (onset, ONSET),
        "age_group": (age, AGE),
        "cases": (cases, CASES),
    }
    for key, (given, usual) in optional.items():
        if given or any(name in there for name in usual):
            wanted[key] = _column(path, there, given, usual)
    frame = some(path, table.pick(wanted))
    if entry and frame.schema["as_of"] == pl.String:
        frame = frame.with_columns(pl.col("as_of").str.replace(TIME, ""))
    for key in ("as_of", "reported", "onset"):
        if key in wanted:
            frame = parse_day(path, frame, key, wanted[key], empty=key == "onset")
    if entry:
        frame = frame.with_columns(pl.col("as_of") + pl.duration(days=1))
    frame = _counted(path, frame, wanted)
    early = frame["as_of"] < frame["reported"]
    refuse(path, frame, early, key="as_of", column=morning, expected="a day from the report's on")
    _refuse_leap(path, frame, morning)
    if "region" not in wanted:
        frame = frame.with_columns(region=pl.lit(path.name.split(".")[0]))
    else:
        frame = frame.with_columns(pl.col("region").cast(pl.String).str.strip_chars())
        none = frame["region"].fill_null("") == ""
        refuse(path, frame, none, key="region", column=wanted["region"], expected="a region")
    # An own list is whole on every morning: one without an entry is quiet, not missing.
    days = pl.date_range(*_ends(frame), eager=True).to_list() if entry else None
    return Vintages.from_changes(frame.drop("row"), source=str(path), snapshots=days)


def _ends(frame: pl.DataFrame) -> tuple[date, date]:
    days = sorted(frame["as_of"].unique())
    return days[0], days[-1]


def _refuse_leap(path: Path, frame: pl.DataFrame, column: str) -> None:
    """Refuse a morning more than a year from the one before or after it: a mistyped one."""
    mornings = frame.sort("as_of", "row").select("as_of", "row")
    leaps = (mornings["as_of"].diff().dt.total_days() > LONGEST_GAP).fill_null(value=False)
    for place in leaps.arg_true():
        before, after = mornings.row(place - 1), mornings.row(place)
        row = after[1] if place > len(mornings) / 2 else before[1]
        raise EpifedError(
            f"{path}: row {row}, column {column}: found {before[0]} and then nothing until "
            f"{after[0]}; expected no more than a year between mornings"
        )


def parse_day(
    path: Path, frame: pl.DataFrame, key: str, column: str, *, empty: bool = False
) -> pl.DataFrame:
    """Turn a column into days; the first that is none is refused, with its row."""
    if frame.schema[key] == pl.String:
        german = pl.col(key).str.to_date("%d.%m.%Y", strict=False)
        parsed = frame.with_columns(pl.coalesce(day_of(pl.col(key)), german))
    else:
        parsed = frame.with_columns(pl.col(key).cast(pl.Date, strict=False))
    bad = ~parsed[key].is_between(FIRST_DAY, LAST_DAY).fill_null(value=False)
    if empty:
        bad &= frame[key].is_not_null()
    refuse(path, frame, bad, key=key, column=column, expected=DAY)
    return parsed


def _column(path: Path, there: Iterable[str], given: str | None, usual: Sequence[str]) -> str:
    if given:
        return given
    for name in usual:
        if name in there:
            return name
    raise EpifedError(
        f"{path}: found no column {' or '.join(usual)} (the columns are {', '.join(there)}); "
        "expected one, or its name"
    )


def _counted(path: Path, frame: pl.DataFrame, wanted: dict[str, str]) -> pl.DataFrame:
    """The rows with whole numbers of cases, one each where the table has none."""
    if "cases" not in wanted:
        return frame.with_columns(cases=pl.lit(1, dtype=pl.Int64))
    number = frame["cases"].cast(pl.Float64, strict=False)
    bad = ~(number.is_finite() & (number == number.round())).fill_null(value=False)
    refuse(path, frame, bad, key="cases", column=wanted["cases"], expected="a whole number")
    return frame.with_columns(number.cast(pl.Int64).alias("cases"))
