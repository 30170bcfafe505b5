"""Tables: one way to read CSV, parquet and DataFrames, one way to say what is wrong in them."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl

from epifed.errors import EpifedError
from epifed.frames import Table, column_names, pick

IN_MEMORY = "DataFrame"
"""What stands for the file in a sentence on a table that is none."""

FIRST_DAY, LAST_DAY = date(1900, 1, 1), date(2100, 12, 31)
"""A day outside is a typing error, and would make the panel enormous."""

DAY = "a day as YYYY-MM-DD from 1900 to 2100"
COUNT = "a number of at least 0"
INHABITANTS = "a whole number above 0"
_YEARS_1_TO_9999 = (-719_162, 2_932_896)
_MILLISECONDS = 86_400_000
_SEPARATORS = ",;\t"
_LONGEST_HEADER = 1 << 16


@dataclass(frozen=True)
class Header:
    """The first line of a CSV that is not empty, and its place in the file."""

    names: tuple[str, ...]
    separator: str
    line: int


def wrong(path: Path | str, row: int, column: str, found: Any, expected: str) -> EpifedError:
    """The error for one cell: file, row, column, what was found and what was expected."""
    what = "an empty cell" if found is None or found == "" else f"'{found}'"
    return EpifedError(f"{path}: row {row}, column {column}: found {what}; expected {expected}")


def existing(path: Path) -> Path:
    """The path, if there is something to read."""
    if not path.exists():
        raise EpifedError(f"{path}: no such file or directory")
    if path.is_file() and path.stat().st_size == 0:
        raise EpifedError(f"{path}: found an empty file; expected case counts")
    return path


def read_header(path: Path) -> Header:
    """The column names of a CSV and the separator they are written with."""
    existing(path)
    line, text = 0, ""
    try:
        with path.open("rb") as file:
            while not text.strip():
                raw = file.readline(_LONGEST_HEADER)
                if not raw:
                    raise EpifedError(f"{path}: found only empty lines; expected a header")
                line += 1
                text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _not_utf8(path, line) from None
    except OSError as error:
        raise EpifedError(f"{path}: cannot be read: {error.strerror}") from None
    separator = max(_SEPARATORS, key=text.count)
    try:
        names = next(csv.reader([text.strip("\r\n")], delimiter=separator))
    except csv.Error:
        raise _not_csv(path, line) from None
    return Header(tuple(names), separator, line)


def require(path: Path | str, found: Sequence[str], expected: Sequence[str]) -> None:
    """Refuse a table without all expected columns, or with one of them twice."""
    names = [name.strip() for name in found]
    missing = [column for column in expected if column not in names]
    if missing:
        raise EpifedError(
            f"{path}: found no column {', '.join(missing)}; expected {', '.join(expected)} "
            f"(the columns are {', '.join(names) or 'none'})"
        )
    twice = [column for column in expected if names.count(column) > 1]
    if twice:
        raise EpifedError(f"{path}: found the column {twice[0]} twice; expected it once")


def scan_csv(path: Path, columns: Mapping[str, str]) -> pl.LazyFrame:
    """The wanted columns of a CSV as text, named by their keys, and `row`, their line number."""
    header = read_header(path)
    require(path, header.names, list(columns.values()))
    raw = {name.strip(): name for name in header.names}
    return pl.scan_csv(
        path,
        separator=header.separator,
        infer_schema=False,
        row_index_name="row",
        row_index_offset=header.line + 1,
        glob=False,
    ).select("row", *(pl.col(raw[column]).alias(key) for key, column in columns.items()))


def read_table(table: Path | Table, columns: Mapping[str, str]) -> pl.DataFrame:
    """The wanted columns of a CSV (as text), parquet file or DataFrame by their keys, and `row`."""
    if not isinstance(table, Path):
        require(IN_MEMORY, column_names(table), list(columns.values()))
        picked = pick(table, columns, IN_MEMORY).with_row_index("row", offset=1)
        return _filled(IN_MEMORY, picked)
    path = existing(table)
    if path.suffix.lower() in {".parquet", ".pq"}:
        frame = read_parquet(path, columns)
    else:
        text = [pl.col(key).str.strip_chars().replace("", None) for key in columns]
        frame = collect(path, scan_csv(path, columns).with_columns(text))
    return _filled(path, frame)


def _filled(where: Path | str, frame: pl.DataFrame) -> pl.DataFrame:
    """The rows that are not empty; refused if there is none."""
    frame = frame.filter(~pl.all_horizontal(pl.exclude("row").is_null()))
    if frame.is_empty():
        raise EpifedError(f"{where}: found no rows; expected at least one below the column names")
    return frame


def collect(path: Path, lazy: pl.LazyFrame) -> pl.DataFrame:
    """Run a scan of a CSV; what the reader refuses becomes one sentence with its row."""
    try:
        return lazy.collect(engine="streaming")
    except pl.exceptions.PolarsError as error:
        raise _unreadable_csv(path, error) from None


def columns_of(table: Path | Table) -> tuple[str, ...]:
    """The column names of a CSV, a parquet file or a DataFrame."""
    if not isinstance(table, Path):
        return column_names(table)
    path = existing(table)
    if path.suffix.lower() not in {".parquet", ".pq"}:
        return tuple(name.strip() for name in read_header(path).names)
    with _parquet(path) as arrow:
        return tuple(arrow.read_schema(path).names)


def parse_days(path: Path | str, frame: pl.DataFrame, column: str) -> pl.DataFrame:
    """Turn `day` into dates; refuse the first that is none, or that has a time of the day."""
    if frame.schema["day"] == pl.Datetime:
        since_1970 = pl.col("day").dt.replace_time_zone(None).dt.cast_time_unit("ms").to_physical()
        first, last = (days * _MILLISECONDS for days in _YEARS_1_TO_9999)
        stamp = since_1970.clip(first, last).cast(pl.Datetime("ms"))
        frame = frame.with_columns(stamp.dt.to_string("%Y-%m-%d %H:%M:%S%.3f"))
    if frame.schema["day"] == pl.String:
        days = pl.col("day").str.slice(0, 10).str.to_date("%Y-%m-%d", strict=False)
        midnight = pl.col("day").str.slice(10).str.contains(r"^([T ]00:00(:00(\.0*)?)?Z?)?$")
        parsed = frame.with_columns(day=pl.when(midnight).then(days))
    elif frame.schema["day"] == pl.Date:
        since_1970 = pl.col("day").to_physical().clip(*_YEARS_1_TO_9999)
        parsed = frame = frame.with_columns(since_1970.cast(pl.Date))
    else:
        raise _wrong_type(path, frame, "day", column, DAY)
    bad = ~pl.col("day").is_between(FIRST_DAY, LAST_DAY).fill_null(value=False)
    refuse(path, frame, parsed.select(bad)["day"], key="day", column=column, expected=DAY)
    return parsed


def parse_numbers(
    path: Path | str, frame: pl.DataFrame, key: str, column: str, expected: str = COUNT
) -> pl.DataFrame:
    """Turn a column into finite numbers of at least 0; an empty cell stays empty."""
    kind = frame.schema[key]
    if not (kind == pl.String or kind.is_numeric() or kind == pl.Null):
        raise _wrong_type(path, frame, key, column, expected)
    parsed = frame.with_columns(pl.col(key).cast(pl.Float64, strict=False))
    fits = pl.col(key).is_finite() & (pl.col(key) >= 0)
    if expected == INHABITANTS:
        fits &= (pl.col(key) > 0) & (pl.col(key) == pl.col(key).round())
    good = parsed.select(fits.fill_null(value=False))[key]
    bad = ~good & frame[key].is_not_null()
    refuse(path, frame, bad, key=key, column=column, expected=expected)
    return parsed


def parse_regions(path: Path | str, frame: pl.DataFrame, column: str) -> pl.DataFrame:
    """Turn `region` into text, leading zeros as they are; refuse an empty one."""
    kind = frame.schema["region"]
    if not (kind in (pl.String, pl.Categorical, pl.Enum) or kind.is_integer()):
        raise _wrong_type(path, frame, "region", column, "text")
    empty = frame["region"].is_null()
    refuse(path, frame, empty, key="region", column=column, expected="the id of a region")
    return frame.with_columns(pl.col("region").cast(pl.String))


def refuse_twice(path: Path | str, frame: pl.DataFrame, columns: str) -> None:
    """Refuse a second row of the same region and day."""
    rows = frame.select("row", "region", "day", first=pl.col("row").min().over("region", "day"))
    second = rows.filter(pl.col("row") != pl.col("first")).sort("row").head(1)
    for found in second.iter_rows(named=True):
        raise EpifedError(
            f"{path}: row {found['row']}, columns {columns}: found region {found['region']} on "
            f"{found['day']} a second time (first in row {found['first']}); expected it once"
        )


def refuse(
    path: Path | str, frame: pl.DataFrame, bad: pl.Series, *, key: str, column: str, expected: str
) -> None:
    """Refuse the first row that is bad, if any."""
    if bad.any():
        first = frame.filter(bad).sort("row").row(0, named=True)
        raise wrong(path, first["row"], column, first[key], expected)


def read_parquet(path: Path, columns: Mapping[str, str]) -> pl.DataFrame:
    """The wanted columns of a parquet file by their keys, and `row`."""
    found = columns_of(path)
    require(path, found, list(columns.values()))
    with _parquet(path) as arrow:
        table = arrow.read_table(path, columns=list(columns.values()))
        table.validate(full=True)
        frame = pl.DataFrame(table.replace_schema_metadata())
    picked = frame.select(pl.col(column).alias(key) for key, column in columns.items())
    return picked.with_row_index("row", offset=1)


@contextmanager
def _parquet(path: Path) -> Iterator[Any]:
    """Arrow's reader, which refuses a damaged file where polars ends the process.

    It is imported here, for an office that reads CSV needs none of it in memory.
    """
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        yield pq
    except (pa.ArrowException, pl.exceptions.PolarsError, OSError, UnicodeError) as error:
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else "broken"
        raise EpifedError(f"{path}: cannot be read as parquet: {reason}") from None


def _wrong_type(
    path: Path | str, frame: pl.DataFrame, key: str, column: str, expected: str
) -> EpifedError:
    return EpifedError(
        f"{path}: row {frame['row'][0]}, column {column}: found the type {frame.schema[key]}; "
        f"expected {expected}"
    )


def _not_utf8(path: Path, line: int) -> EpifedError:
    return EpifedError(f"{path}: row {line}: found bytes that are not UTF-8; expected UTF-8 text")


def _not_csv(path: Path, line: int) -> EpifedError:
    return EpifedError(f"{path}: row {line}: found a broken line; expected CSV")


def _unreadable_csv(path: Path, error: Exception) -> EpifedError:
    """Look for the line that the CSV reader could not take."""
    header = read_header(path)
    with path.open("rb") as file:
        for line, raw in enumerate(file, start=1):
            try:
                fields = next(csv.reader([raw.decode("utf-8")], delimiter=header.separator), [])
            except UnicodeDecodeError:
                return _not_utf8(path, line)
            except csv.Error:
                return _not_csv(path, line)
            if len(fields) > len(header.names):
                return EpifedError(
                    f"{path}: row {line}: found {len(fields)} cells; "
                    f"expected {len(header.names)}, one for each column"
                )
            if raw.count(b'"') % 2:
                return EpifedError(f'{path}: row {line}: found a " that is not closed')
    reason = str(error).splitlines()[0] if str(error) else "broken"
    return EpifedError(f"{path}: cannot be read as CSV: {reason}")
