"""Tables as they are: CSV, Excel, parquet and DataFrames, opened in one way, none of it changed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from epifed.errors import EpifedError
from epifed.frames import Table, column_names, pick, without_offset
from epifed.reading import Assumptions, UnsaidError, listed, short
from epifed.sources.content import Content, open_content
from epifed.sources.csvs import collect, read_header, require, scan_places
from epifed.sources.names import header_below

_MOST_ABOVE = 30
_AS_TEXT = r'^="([^"]*)"$'
"""How spreadsheets write text that looks like a number: ="01001"."""
_MARK = "\ufeff"
"""How a file may begin, and so a line of one that was put below another."""
IN_MEMORY = "DataFrame"
"""What stands for the file in a sentence on a table that is none."""


@dataclass(frozen=True)
class RawTable:
    """A table as it was found: the names of its columns, and a way to its cells."""

    where: str
    names: tuple[str, ...]
    cells: Callable[[Sequence[int]], pl.DataFrame]
    """The columns at these places, named by their place, and `row`; text is not yet stripped."""
    found: dict[str, Any] = field(default_factory=dict)
    """What was recognised on opening it."""

    def pick(self, columns: Mapping[str, str]) -> pl.DataFrame:
        """The wanted columns by their keys, and `row`; an empty cell is null, an empty row gone."""
        require(self.where, self.names, list(columns.values()))
        places = {key: self.names.index(name) for key, name in columns.items()}
        frame = self.cells(sorted(set(places.values())))
        chosen = frame.select("row", *(_stripped(frame, str(i), k) for k, i in places.items()))
        return chosen.filter(~pl.all_horizontal(pl.exclude("row").is_null()))


def some(where: Path | str, frame: pl.DataFrame) -> pl.DataFrame:
    """The rows of a table; refused if there is none."""
    if frame.is_empty():
        raise EpifedError(f"{where}: found no rows; expected at least one below the column names")
    return frame


def _stripped(frame: pl.DataFrame, name: str, key: str) -> pl.Expr:
    column = pl.col(name)
    if frame.schema[name] in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    elif frame.schema[name] != pl.String:
        return column.alias(key)
    plain = column.str.strip_chars_start(_MARK).str.strip_chars().str.replace(_AS_TEXT, "${1}")
    return plain.replace("", None).alias(key)


def open_table(
    table: Path | Content | Table, said: Assumptions | None = None, wanted: Sequence[str] = ()
) -> RawTable:
    """Open a file or a DataFrame; `wanted` are names that its columns should have."""
    said = said or Assumptions()
    if not isinstance(table, Path | Content):
        return _of_frame(table)
    content = open_content(table, said) if isinstance(table, Path) else table
    if content.kind == "parquet":
        return _of_parquet(content)
    if content.kind == "excel":
        return _of_excel(content, said, wanted)
    header = read_header(content, said, wanted)

    def cells(places: Sequence[int]) -> pl.DataFrame:
        named = {str(place): place for place in places}
        return collect(content, scan_places(content, header, named), header)

    names = tuple(name.strip() for name in header.names)
    found = content.found | {"delimiter": "tab" if header.separator == "\t" else header.separator}
    return RawTable(content.where, names, cells, {"file": "CSV"} | found)


def _of_frame(table: Table) -> RawTable:
    names = column_names(table)

    def cells(places: Sequence[int]) -> pl.DataFrame:
        wanted = {str(place): names[place] for place in places}
        return pick(table, wanted, IN_MEMORY).with_row_index("row", offset=1)

    return RawTable(IN_MEMORY, names, cells, {"file": IN_MEMORY})


def _of_parquet(content: Content) -> RawTable:
    with _parquet(content) as (parquet, file):
        names = tuple(parquet.read_schema(file).names)

    def cells(places: Sequence[int]) -> pl.DataFrame:
        with _parquet(content) as (parquet, file):
            wanted = [names[place] for place in places]
            table = parquet.read_table(file, columns=wanted)
            table.validate(full=True)
            columns = [without_offset(table.column(name)) for name in wanted]
            named = [str(place) for place in places]
            frame = pl.DataFrame(table.from_arrays(columns, names=named))
        return frame.with_row_index("row", offset=1)

    return RawTable(content.where, names, cells, {"file": "parquet"} | content.found)


@contextmanager
def _parquet(content: Content) -> Iterator[tuple[Any, Any]]:
    """Arrow's reader, which refuses a damaged file where polars ends the process.

    It is imported here, for an office that reads CSV needs none of it in memory.
    """
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        is_path = isinstance(content.data, Path)
        yield pq, content.data if is_path else pa.BufferReader(content.data)
    except (
        pa.ArrowException,
        pl.exceptions.PolarsError,
        OSError,
        UnicodeError,
        ValueError,
    ) as error:
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else "broken"
        raise EpifedError(
            f"{content.where}: cannot be read as parquet: {short(reason, 150)}"
        ) from None


def _of_excel(content: Content, said: Assumptions, wanted: Sequence[str]) -> RawTable:
    try:
        import fastexcel  # noqa: PLC0415
    except ImportError:
        raise EpifedError(
            f"{content.where}: found an Excel file, which needs fastexcel; expected epifed "
            "installed with 'pip install epifed[excel]', or the sheet saved as CSV"
        ) from None
    try:
        book = fastexcel.read_excel(content.read())
        sheets = {
            name: book.load_sheet(name, header_row=None, skip_rows=0, dtypes="string").to_polars()
            for name in ([said.sheet] if said.sheet in book.sheet_names else book.sheet_names)
        }
    except (fastexcel.FastExcelError, pl.exceptions.PolarsError, OSError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else "broken"
        raise EpifedError(
            f"{content.where}: cannot be read as Excel: {short(reason, 100)}"
        ) from None
    filled = {name: sheet for name, sheet in sheets.items() if sheet.height > 1}
    if said.sheet is not None and said.sheet not in sheets:
        raise EpifedError(
            f"{content.where}: found no sheet '{short(said.sheet)}'; expected one of "
            f"{listed(list(sheets))}"
        )
    if not filled:
        raise EpifedError(f"{content.where}: found no sheet with rows; expected a table")
    if len(filled) > 1:
        ways = [{"sheet": name} for name in list(filled)[:4]]
        raise UnsaidError(
            f"{content.where}: found {len(filled)} sheets with rows; expected one", *ways
        )
    ((sheet, frame),) = filled.items()
    text = pl.any_horizontal(pl.exclude("row").str.strip_chars().str.len_chars() > 0)
    rows = frame.with_row_index("row", offset=1).filter(
        pl.col("row") >= (said.header_row or 1), text
    )
    if rows.is_empty():
        raise EpifedError(f"{content.where}: found no row {said.header_row}; expected a header")
    first = rows.head(_MOST_ABOVE).fill_null("").rows()
    found_below = header_below([(row, cells) for row, *cells in first], wanted)
    if said.header_row is None and found_below:
        text_above = next(cell for cell in first[0][1:] if cell.strip())
        raise UnsaidError(
            f"{content.where}: row {first[0][0]}: found '{short(text_above)}' above the names of "
            "the columns; expected their row to be said",
            {"header_row": found_below},
        )
    _, *names = rows.row(0)

    def cells(places: Sequence[int]) -> pl.DataFrame:
        columns = [pl.nth(1 + place).alias(str(place)) for place in places]
        below: pl.DataFrame = rows.slice(1).select("row", *columns)
        return below

    found = {"file": "Excel", "sheet": sheet} | content.found
    return RawTable(content.where, tuple((name or "").strip() for name in names), cells, found)


def wrong(where: Path | str, row: int, column: str, found: Any, expected: str) -> EpifedError:
    """The error for one cell: file, row, column, what was found and what was expected."""
    what = "an empty cell" if found is None or found == "" else f"'{short(found)}'"
    return EpifedError(f"{at(where, row, column)}: found {what}; expected {expected}")


def at(where: Path | str, row: int, column: str) -> str:
    """The place of a cell, as a sentence begins with it."""
    return f"{where}: row {row}, column {short(column)}"


def wrong_type(
    where: Path | str, frame: pl.DataFrame, key: str, column: str, expected: str
) -> EpifedError:
    """The error for a column of a type that it cannot have."""
    kind = short(frame.schema[key])
    return EpifedError(
        f"{at(where, frame['row'][0], column)}: found the type {kind}; expected {expected}"
    )


def refuse(
    where: Path | str, frame: pl.DataFrame, bad: pl.Series, *, key: str, column: str, expected: str
) -> None:
    """Refuse the first row that is bad, if any."""
    if bad.any():
        first = frame.filter(bad).select("row", key).sort("row").row(0, named=True)
        raise wrong(where, first["row"], column, first[key], expected)
