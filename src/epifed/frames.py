"""Tables in memory: a polars DataFrame, or a pandas one, which need not be installed."""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Protocol, runtime_checkable

import polars as pl

from epifed.days import to_day
from epifed.errors import EpifedError


@runtime_checkable
class Table(Protocol):
    """A DataFrame of polars or pandas."""

    @property
    def columns(self) -> Any:
        """The names of the columns."""

    def __getitem__(self, columns: Any) -> Any:
        """A part of the table."""

    def __len__(self) -> int:
        """How many rows there are."""


def column_names(table: Table) -> tuple[str, ...]:
    """The names of a table's columns; the named levels of a pandas index are columns too."""
    return tuple(str(name).strip() for name in _flat(table).columns)


def pick(table: Table, columns: Mapping[str, str], where: str) -> pl.DataFrame:
    """The columns `columns[key]` of a table under the names `key`; NaN of pandas is empty."""
    flat = _flat(table)
    raw = {str(name).strip(): name for name in flat.columns}
    return pl.DataFrame({key: _series(flat, raw[name], where) for key, name in columns.items()})


def long_rows(table: Table, source: str) -> pl.DataFrame:
    """The columns day (dates), region and cases of a long table; refused without them."""
    wanted = ("day", "region", "cases")
    if missing := [name for name in wanted if name not in column_names(table)]:
        raise EpifedError(
            f"{source}: found no column {', '.join(missing)}; expected {', '.join(wanted)}"
        )
    frame = pick(table, {name: name for name in wanted}, source)
    kind = frame.schema["day"]
    if kind == pl.Date:
        return frame
    if kind not in (pl.String, pl.Datetime):
        raise EpifedError(f"{source}: column day: found the type {kind}; expected dates")
    found = frame["day"].unique()
    days = pl.Series([to_day(day, f"{source}: column day") for day in found], dtype=pl.Date)
    return frame.with_columns(pl.col("day").replace_strict(found, days, return_dtype=pl.Date))


def _flat(table: Any) -> Any:
    names = getattr(getattr(table, "index", None), "names", ())
    levels = [name for name in names if name is not None and name not in table.columns]
    return table.reset_index(level=levels) if levels else table


def _series(table: Any, column: Any, where: str) -> pl.Series:
    if isinstance(table, pl.DataFrame):
        return table.get_column(column)
    import pyarrow as pa  # noqa: PLC0415

    try:
        return pl.Series(without_offset(pa.array(table[column], from_pandas=True)))
    except (pa.ArrowException, pl.exceptions.PolarsError, TypeError, ValueError):
        raise EpifedError(
            f"{where}: column {column}: found values of several types, or of one that is not "
            "known; expected days, text or numbers alone"
        ) from None


def without_offset(array: Any) -> Any:
    """An Arrow array; times with an offset such as +05:30, which polars does not know, are local.

    What is midnight there stays midnight.
    """
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    kind = array.type
    offset = pa.types.is_timestamp(kind) and re.fullmatch(r"([+-])(\d\d):(\d\d)", kind.tz or "")
    if not offset:
        return array
    minutes = int(f"{offset[1]}1") * (60 * int(offset[2]) + int(offset[3]))
    ahead = pa.scalar(timedelta(minutes=minutes), pa.duration(kind.unit))
    return pc.add(array.cast(pa.timestamp(kind.unit)), ahead)
