"""The ids of regions: text whose leading zeros count, which spreadsheets like to lose."""

from pathlib import Path

import polars as pl

from epifed.reading import UnsaidError, short
from epifed.sources.table import at, refuse, wrong_type

LEAST_DIGITS, MOST_DIGITS = 4, 12
"""Ids of so many digits lose a zero; shorter ones may be numbers that simply count."""
_DECIMAL = r"^\d+\.0+$"
_DIGITS = r"^\d+$"
_UNUSUAL = r"[^!-~]"
_UNSEEN = "[\ufeff\u200b-\u200f\u2060\u00ad]"
"""Signs that nobody sees, such as the mark of a file that was put below another."""


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
        raise UnsaidError(
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


def _lost(where: Path | str, rows: pl.DataFrame, ids: pl.Series, column: str) -> UnsaidError:
    shorter, *_, longer = ids.str.len_chars().unique().sort().to_list()
    few = ids.filter(ids.str.len_chars() == shorter)
    row = rows.filter(pl.col("region").is_in(few.implode())).row(0, named=True)
    return UnsaidError(
        f"{at(where, row['row'], column)}: found ids of {shorter} and of {longer} digits such as "
        f"'{row['region']}', which may have lost a leading zero; expected ids of one length",
        {"id_width": longer},
        {"id_width": 0},
    )
