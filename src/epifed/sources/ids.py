"""The ids of regions: text whose leading zeros count, which spreadsheets like to lose."""

from pathlib import Path

import polars as pl

from epifed.reading import UnsaidError, short
from epifed.sources.table import at, refuse, wrong_type

LEAST_DIGITS, MOST_DIGITS = 4, 12
"""Ids of so many digits lose a zero; shorter ones may be numbers that simply count."""
_DECIMAL = r"^\d+\.0+$"


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
    empty = frame["region"].is_null()
    refuse(where, frame, empty, key="region", column=column, expected="the id of a region")
    if width is None:
        _refuse_lost_zeros(where, frame, column)
        return frame
    return frame.with_columns(filled(pl.col("region"), width))


def filled(ids: pl.Expr, width: int | None) -> pl.Expr:
    """Ids of digits filled up with zeros; none, or 0, leaves them as they are."""
    if not width:
        return ids
    whole = ids.str.replace(r"\.0+$", "")
    return pl.when(whole.str.contains(r"^\d+$")).then(whole.str.zfill(width)).otherwise(ids)


def _refuse_lost_zeros(where: Path | str, frame: pl.DataFrame, column: str) -> None:
    ids = frame["region"].unique()
    decimal = ids.str.contains(_DECIMAL)
    first = frame.select("row", "region").sort("row").row(0, named=True)
    if decimal.all():
        digits = int(ids.str.replace(r"\.0+$", "").str.len_chars().max())  # type: ignore[arg-type]
        raise UnsaidError(
            f"{at(where, first['row'], column)}: found '{short(first['region'])}', a decimal "
            "number; expected an id as text",
            {"id_width": digits},
        )
    lengths = sorted(ids.str.len_chars().unique())
    if len(lengths) != 2 or not ids.str.contains(r"^\d+$").all():
        return
    shorter, longer = lengths
    if longer - shorter == 1 and LEAST_DIGITS <= longer <= MOST_DIGITS:
        lost = frame.filter(pl.col("region").str.len_chars() == shorter).sort("row")
        row = lost.row(0, named=True)
        raise UnsaidError(
            f"{at(where, row['row'], column)}: found ids of {shorter} and of {longer} digits such "
            f"as '{row['region']}', which may have lost a leading zero; expected ids of one length",
            {"id_width": longer},
            {"id_width": 0},
        )
