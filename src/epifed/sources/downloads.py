"""A folder of the RKI's line list, one download for each day, as vintages.

The list was published each day under one name, and kept by many under the day of the download:
gzipped or not, with days as 2020/09/30 00:00:00 or 2020-09-30, with the day of publication inside
(Datenstand) or not. A download that broke off is smaller than the one before, and is left out.
"""

import gzip
import io
import re
import zlib
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import polars as pl

from epifed.errors import EpifedError
from epifed.sources.rki import ATTRIBUTION, MERGED, county_id
from epifed.vintages import SCHEMA, Vintages
from epifed.words import counted

LEAST_SHARE = 0.95
"""A list with fewer cases than this share of the one before broke off: cases are seldom lost."""

_ENDINGS = (".csv", ".csv.gz")
_IN_NAME = re.compile(r"(20\d\d)[-_]?(\d\d)[-_]?(\d\d)")
_COLUMNS = ("IdLandkreis", "Meldedatum", "NeuerFall", "AnzahlFall")
_KEYS = ["region", "reported", "onset", "age_group"]


@dataclass(frozen=True)
class Snapshot:
    """One line list, summed, and the day it is of."""

    path: Path
    day: date
    cases: pl.DataFrame
    note: str | None = None

    @property
    def total(self) -> int:
        """All its cases."""
        return int(self.cases["cases"].sum())


def read_downloads(folder: Path) -> Vintages:
    """The vintages of a folder of dated line lists; what broke off is left out and said."""
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
    """What each list changes of the one before."""
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
    """The list of a file; a sentence if it broke off."""
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
    """The cases that count by county, days and age; none if the last row is cut short."""
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
    """The day of publication that stands in the first row."""
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
