"""Read data vintages: a table of changes, dated downloads of the RKI list, or an own line list.

Each row becomes known on some day. A table has a column for it. For a folder of dated line lists
it follows from the differences between consecutive lists. Downloads differ in columns and date
formats. One that is too small to be complete is left out.
"""

import gzip
import io
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl

from epifed.data.readers.cleaning import LONGEST_GAP, entered
from epifed.data.readers.formats import ATTRIBUTION, MERGED, county_id
from epifed.data.readers.tables import (
    AmbiguousTableError,
    Assumptions,
    RawTable,
    existing,
    listed,
    open_table,
    refuse,
    short,
    some,
)
from epifed.data.readers.values import FIRST_DAY, LAST_DAY
from epifed.data.vintages import SCHEMA, Vintages
from epifed.data.weekly_vintages import WeeklyVintages
from epifed.errors import EpifedError, counted

KNOWN = ("as_of", "known", "Datenstand")
REGION = ("region", "location", "county", "community", "IdLandkreis")
REPORTED = ("reported", "date", "Meldedatum")
ONSET = ("onset", "Erkrankungsbeginn")
AGE = ("age_group", "Altersgruppe")
CASES = ("cases", "value", "observation", "AnzahlFall")
REGIONS = re.compile(r"(?i)kreis|county|district|gemeinde|kommune|region|bezirk|^ags$|^fips$")
"""Names of columns that hold regions."""
TABLES = ("vintages.parquet", "linelist_vintages.parquet")
"""The names under which a data directory holds its table of changes."""
DAY = "a day as YYYY-MM-DD, YYYY/MM/DD or DD.MM.YYYY from 1900 to 2100"
TIME = r"[T ]\d?\d:\d\d(:\d\d(\.\d+)?)?Z?$"


def load_vintages(
    path: Path | str, *, regions: Sequence[str] | None = None, **columns: Any
) -> Vintages:
    """Load the vintages of a table, of a data directory with one, or of a folder of downloads.

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


def holds_weeks(path: Path | str, **columns: str) -> bool:
    """Whether a file is a table of weekly vintages: its dates are whole weeks apart.

    Such a table has each value as known on a day, not the changes.
    """
    path = existing(Path(path))
    if path.is_dir() or columns.get("entry"):
        return False
    table = open_table(path)
    if not any(name in table.names for name in REPORTED) and not columns.get("reported"):
        return False
    reported = _column(path, table.names, columns.get("reported"), REPORTED)
    days = parse_day(path, some(path, table.pick({"day": reported})), "day", reported)["day"]
    return days.n_unique() > 1 and days.dt.weekday().n_unique() == 1


def load_weekly_vintages(
    path: Path | str,
    *,
    regions: Sequence[str] | None = None,
    counts: str | None = None,
    known: str | None = None,
    region: str | None = None,
    reported: str | None = None,
    cases: str | None = None,
    **unused: str,
) -> WeeklyVintages:
    """Load the weekly vintages of a CSV or parquet file: as_of, date, region, cases, and signal.

    `regions` fixes the regions and their order, `counts` is the signal to forecast. The other
    arguments are the names of columns, where they are not the usual ones.
    """
    path = existing(Path(path))
    if unused:
        raise EpifedError(
            f"{path}: found weekly vintages and a column of {', '.join(unused)}; expected as_of, "
            "date, region, cases and signal only"
        )
    table = open_table(path)
    there = table.names
    wanted = {
        "as_of": _column(path, there, known, KNOWN),
        "date": _column(path, there, reported, REPORTED),
        "region": _column(path, there, region, REGION),
        "cases": _column(path, there, cases, CASES),
    }
    if "signal" in there:
        wanted["signal"] = "signal"
    frame = some(path, table.pick(wanted))
    for key in ("as_of", "date"):
        frame = parse_day(path, frame, key, wanted[key])
    number = frame["cases"].cast(pl.Float64, strict=False)
    bad = number.is_null() & frame["cases"].is_not_null()
    refuse(path, frame, bad, key="cases", column=wanted["cases"], expected="a number")
    frame = frame.with_columns(number.alias("cases"), pl.col("region").cast(pl.String))
    return WeeklyVintages.from_table(frame, counts=counts, regions=regions, source=str(path))


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
    one_region: bool = False,
) -> Vintages:
    """Read the vintages of a CSV or parquet file with a column of when each row became known.

    `known` is the column of the first day on which a row was known. `entry`, for an authority's own
    list, is that of the day of entry; the row is known the next day. `reported` is the reporting
    date. A negative count withdraws cases. Without a column of cases each row is one case. Without
    one of regions all rows are one region, named after the file; if a column looks like one of
    regions, `region` or `one_region` must be given.
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
    if "region" not in wanted and not one_region:
        _refuse_pooling(path, table, wanted.values())
    frame = some(path, table.pick(wanted))
    if entry and frame.schema["as_of"] == pl.String:
        frame = frame.with_columns(pl.col("as_of").str.replace(TIME, ""))
    for key in ("as_of", "reported", "onset"):
        if key in wanted:
            frame = parse_day(path, frame, key, wanted[key], empty=key == "onset")
    if entry:
        frame = frame.with_columns(pl.col("as_of") + pl.duration(days=1))
    frame = _counted(path, frame, wanted)
    _refuse_early(path, frame, morning)
    if "region" not in wanted:
        frame = frame.with_columns(region=pl.lit(path.name.split(".")[0]))
    else:
        frame = frame.with_columns(pl.col("region").cast(pl.String).str.strip_chars())
        none = frame["region"].fill_null("") == ""
        refuse(path, frame, none, key="region", column=wanted["region"], expected="a region")
    # An own list is complete every day: a day without an entry has no cases, it is not missing.
    days = pl.date_range(*_ends(frame), eager=True).to_list() if entry else None
    return Vintages.from_changes(frame.drop("row"), source=str(path), snapshots=days)


def read_entries(path: Path, entry: str, regions: Sequence[str], **options: Any) -> Vintages:
    """The vintages of an own list of cases that is read with options of `Assumptions`.

    `entry` is the column of the day on which a row was entered; it is known the next day.
    """
    frame = entered(path, entry, Assumptions.of(options, str(path)))
    empty = frame["as_of"].is_null()
    refuse(path, frame, empty, key="as_of", column=entry, expected=DAY)
    frame = frame.with_columns(
        pl.col("as_of") + pl.duration(days=1), pl.col("cases").cast(pl.Int64)
    )
    _refuse_early(path, frame, entry)
    days = pl.date_range(*_ends(frame), eager=True).to_list()
    return Vintages.from_changes(frame.drop("row"), source=str(path), snapshots=days).of(regions)


def _refuse_early(path: Path, frame: pl.DataFrame, morning: str) -> None:
    """Refuse a row that was known before it was reported, and a day far from all others."""
    early = frame["as_of"] < frame["reported"]
    refuse(path, frame, early, key="as_of", column=morning, expected="a day from the report's on")
    _refuse_leap(path, frame, morning)


def _refuse_pooling(path: Path, table: RawTable, used: Iterable[str]) -> None:
    """Refuse to pool regions: a column that looks like regions must be given or ruled out."""
    free = [name for name in table.names if name and name not in used]
    for name in (one for one in free if REGIONS.search(one)):
        several = table.pick({"region": name})["region"].drop_nulls().n_unique()
        if several > 1:
            raise AmbiguousTableError(
                f"{path}: found {several} values in the column {short(name)}; expected the column "
                "of the regions to be given, or that all rows are one region",
                {"region": name},
                {"one_region": True},
            )


def _ends(frame: pl.DataFrame) -> tuple[date, date]:
    days = sorted(frame["as_of"].unique())
    return days[0], days[-1]


def _refuse_leap(path: Path, frame: pl.DataFrame, column: str) -> None:
    """Refuse a vintage more than a year from its neighbours: its date is mistyped."""
    mornings = frame.sort("as_of", "row").select("as_of", "row")
    leaps = (mornings["as_of"].diff().dt.total_days() > LONGEST_GAP).fill_null(value=False)
    for place in leaps.arg_true():
        before, after = mornings.row(place - 1), mornings.row(place)
        row = after[1] if place > len(mornings) / 2 else before[1]
        raise EpifedError(
            f"{path}: row {row}, column {column}: found {before[0]} and then nothing until "
            f"{after[0]}; expected no more than a year between vintages"
        )


def parse_day(
    path: Path, frame: pl.DataFrame, key: str, column: str, *, empty: bool = False
) -> pl.DataFrame:
    """Turn a column into days; the first bad value is refused, with its row."""
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
    option = "--column-known or, of the day it was entered, --column-entry"
    option = option if usual == KNOWN else "--column-reported"
    raise EpifedError(
        f"{path}: found no column {' or '.join(usual)} (the columns are {listed(list(there))}); "
        f"expected one; add {option} and the name of the column"
    )


def _counted(path: Path, frame: pl.DataFrame, wanted: dict[str, str]) -> pl.DataFrame:
    """The rows with whole numbers of cases; one case each if there is no such column."""
    if "cases" not in wanted:
        return frame.with_columns(cases=pl.lit(1, dtype=pl.Int64))
    number = frame["cases"].cast(pl.Float64, strict=False)
    bad = ~(number.is_finite() & (number == number.round())).fill_null(value=False)
    refuse(path, frame, bad, key="cases", column=wanted["cases"], expected="a whole number")
    return frame.with_columns(number.cast(pl.Int64).alias("cases"))


LEAST_SHARE = 0.95
"""Least share of the largest earlier list's cases; a list with fewer is an incomplete download."""

_ENDINGS = (".csv", ".csv.gz")
_IN_NAME = re.compile(r"(20\d\d)[-_]?(\d\d)[-_]?(\d\d)")
_COLUMNS = ("IdLandkreis", "Meldedatum", "NeuerFall", "AnzahlFall")
_KEYS = ["region", "reported", "onset", "age_group"]


@dataclass(frozen=True)
class Snapshot:
    """One line list, summed by county, days and age, and the day of its data."""

    path: Path
    day: date
    cases: pl.DataFrame
    note: str | None = None

    @property
    def total(self) -> int:
        """The sum of all its cases."""
        return int(self.cases["cases"].sum())


def read_downloads(folder: Path) -> Vintages:
    """Read a folder of dated line lists; incomplete ones are left out, with a note."""
    paths = sorted(path for path in folder.iterdir() if path.name.lower().endswith(_ENDINGS))
    if not paths:
        raise EpifedError(f"{folder}: found no .csv or .csv.gz; expected dated line lists")
    notes: list[str] = [MERGED]
    by_day: dict[date, Snapshot] = {}
    for path in paths:
        found = _read(path)
        if isinstance(found, str):
            notes.append(found)
            continue
        if found.note:
            notes.append(found.note)
        if found.day not in by_day or by_day[found.day].total <= found.total:
            by_day[found.day] = found
    changes, snapshots = _changes([by_day[day] for day in sorted(by_day)], notes)
    if not snapshots:
        raise EpifedError(f"{folder}: found no whole line list; expected at least one")
    return Vintages.from_changes(
        pl.concat(changes),
        source=str(folder),
        snapshots=snapshots,
        attribution=(ATTRIBUTION,),
        notes=tuple(notes),
    )


def day_of(text: pl.Expr) -> pl.Expr:
    """The day of a text such as 2020-09-30, 2020/09/30 00:00:00 or 2020-09-30T00:00:00.000Z."""
    day = text.str.slice(0, 10).str.replace_all("/", "-").str.to_date("%Y-%m-%d", strict=False)
    midnight = text.str.slice(10).str.contains(r"^([T ]00:00(:00(\.0*)?)?Z?)?$")
    return pl.when(midnight).then(day)


def _changes(lists: list[Snapshot], notes: list[str]) -> tuple[list[pl.DataFrame], list[date]]:
    """The changes from each list to the next."""
    changes, snapshots = [], []
    before: Snapshot | None = None
    for i, one in enumerate(lists):
        least = max((other.total for other in lists[:i]), default=0) * LEAST_SHARE
        if one.total < least:
            notes.append(
                f"{one.path.name}: found {counted(one.total, 'case')}, fewer than before; taken "
                "as a "
                "download that broke off and left out"
            )
            continue
        gone = [before.cases.with_columns(-pl.col("cases"))] if before else []
        moved = pl.concat([one.cases, *gone]).group_by(_KEYS).agg(pl.col("cases").sum())
        changes.append(
            moved.filter(pl.col("cases") != 0)
            .with_columns(as_of=pl.lit(one.day))
            .select(list(SCHEMA))
        )
        snapshots.append(one.day)
        before = one
    return changes, snapshots


def _read(path: Path) -> Snapshot | str:
    """Read the list of a file; a note instead if the download is incomplete."""
    broken = f"{path.name}: found a download that broke off; left out"
    try:
        raw = path.read_bytes()
        if raw[:2] == b"\x1f\x8b":
            raw = gzip.decompress(raw)
        frame = pl.read_csv(io.BytesIO(raw), infer_schema=False)
    except (EOFError, gzip.BadGzipFile, zlib.error, pl.exceptions.PolarsError):
        return broken
    frame = frame.rename({name: name.strip("\ufeff ") for name in frame.columns})
    if missing := [name for name in _COLUMNS if name not in frame.columns]:
        raise EpifedError(
            f"{path}: found no column {', '.join(missing)}; expected an RKI line list with "
            f"{', '.join(_COLUMNS)}"
        )
    inside, named = _published(frame), _named(path)
    day = inside or named
    if day is None:
        raise EpifedError(
            f"{path}: found no day in the name and no Datenstand inside; expected one of them"
        )
    cases = _cases(path, frame)
    if cases is None:
        return broken
    differs = f"{path.name}: is the list of {inside}, which it says inside; taken as such"
    return Snapshot(path, day, cases, differs if inside and named and inside != named else None)


def _cases(path: Path, frame: pl.DataFrame) -> pl.DataFrame | None:
    """The counted cases by county, days and age; None if the last row is incomplete."""
    known = pl.col("IstErkrankungsbeginn").str.strip_chars() == "1"
    has_onset = {"Refdatum", "IstErkrankungsbeginn"} <= set(frame.columns)
    rows = frame.select(
        region=county_id(pl.col("IdLandkreis").cast(pl.Int64, strict=False)),
        reported=day_of(pl.col("Meldedatum").str.strip_chars()),
        onset=pl.when(known).then(day_of(pl.col("Refdatum").str.strip_chars()))
        if has_onset
        else pl.lit(None, dtype=pl.Date),
        age_group=pl.col("Altersgruppe")
        if "Altersgruppe" in frame.columns
        else pl.lit(None, dtype=pl.String),
        new=pl.col("NeuerFall").cast(pl.Int64, strict=False),
        cases=pl.col("AnzahlFall").cast(pl.Int64, strict=False),
    )
    wrong = rows.select(pl.any_horizontal(pl.col("region", "reported", "new", "cases").is_null()))
    bad = wrong.to_series().arg_true()
    if len(bad) and bad[0] < len(rows) - 1:
        raise EpifedError(
            f"{path}: row {bad[0] + 2}: found {', '.join(map(str, frame.row(bad[0])))}; expected a "
            "county, a day, -1, 0 or 1 and a number of cases"
        )
    if len(bad) or rows.is_empty():
        return None
    counted = rows.filter(pl.col("new").is_between(0, 1))
    return counted.group_by(_KEYS).agg(pl.col("cases").sum())


def _published(frame: pl.DataFrame) -> date | None:
    """The day of publication in the first row."""
    if "Datenstand" not in frame.columns or frame.is_empty():
        return None
    text = frame["Datenstand"][0] or ""
    for pattern, order in (
        (r"(\d\d)\.(\d\d)\.(\d{4})", (3, 2, 1)),
        (r"(\d{4})[-/](\d\d)[-/](\d\d)", (1, 2, 3)),
    ):
        if match := re.search(pattern, text):
            return _date(*(match.group(i) for i in order))
    return None


def _named(path: Path) -> date | None:
    """The day in a file's name."""
    match = _IN_NAME.search(path.name)
    return _date(*match.groups()) if match else None


def _date(year: str, month: str, day: str) -> date | None:
    try:
        return date(int(year), int(month), int(day))
    except ValueError:
        return None
