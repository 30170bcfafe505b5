"""CSV: its header, its rows as text by polars, and the line to blame where it breaks."""

import csv
import io
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from epifed.errors import EpifedError
from epifed.reading import Assumptions, UnsaidError, listed, short
from epifed.sources.content import Content
from epifed.sources.names import header_below

DELIMITERS = ",;\t|"
_LONGEST_HEADER = 1 << 20
_MOST_ABOVE = 30
"""Rows of text above a table."""
_NAMED = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";"}


@dataclass(frozen=True)
class Header:
    """The line of a CSV that names its columns, and its place in the file."""

    names: tuple[str, ...]
    separator: str
    line: int


def read_header(
    content: Content, said: Assumptions | None = None, wanted: Collection[str] = ()
) -> Header:
    """The column names of a CSV and the separator they are written with.

    Of several separators the one is taken that makes columns of the wanted names.
    """
    said = said or Assumptions()
    if said.header_row is None:
        _refuse_text_above(content, wanted)
    line, text = 0, ""
    with content.open() as file:
        while not text.strip() or line < (said.header_row or 1):
            raw = file.readline(_LONGEST_HEADER)
            if not raw:
                raise EpifedError(f"{content.where}: found only empty lines; expected a header")
            line += 1
            try:
                text = raw.decode("utf-8-sig")
            except UnicodeDecodeError:
                raise _not_utf8(content, line) from None
    separator = _separator(content, text, said, wanted)
    return Header(_cells(content, line, text, separator), separator, line)


def _refuse_text_above(content: Content, wanted: Collection[str]) -> None:
    """Refuse a table with text above the names of its columns until their row is said."""
    with content.open() as file:
        lines = [file.readline(_LONGEST_HEADER) for _ in range(_MOST_ABOVE)]
    texts = [(row, raw.decode("utf-8", errors="replace")) for row, raw in enumerate(lines, start=1)]
    filled = [(row, text) for row, text in texts if text.strip()]
    for sign in DELIMITERS:
        rows = [(row, text.replace('"', "").split(sign)) for row, text in filled]
        if found := header_below(rows, wanted):
            raise UnsaidError(
                f"{content.where}: row {filled[0][0]}: found '{short(filled[0][1])}' above the "
                "names of the columns; expected their row to be said",
                {"header_row": found},
            )
        if header_below([*rows[:1], (0, [*wanted, "date", "cases"])], wanted) is None:
            return


def _separator(content: Content, text: str, said: Assumptions, wanted: Collection[str]) -> str:
    if said.delimiter is not None:
        chosen = _NAMED.get(said.delimiter.lower(), said.delimiter)
        if len(chosen) != 1 or ord(chosen) > 127 or chosen in '"\r\n':
            raise EpifedError(
                f"delimiter: found '{short(said.delimiter)}'; expected one character, or tab"
            )
        return chosen
    if len(text) == _LONGEST_HEADER:
        raise EpifedError(
            f"{content.where}: found a first line of more than {_LONGEST_HEADER:,} characters; "
            "expected column names"
        )
    quoted_away = "".join(text.split('"')[::2])
    present = [one for one in DELIMITERS if one in quoted_away]
    if len(present) > 1:
        names = {name.casefold() for name in wanted}
        fitting = [
            one
            for one in present
            if names & {cell.strip().casefold() for cell in _cells(content, 1, text, one)}
        ]
        present = fitting if len(fitting) == 1 else present
    if len(present) > 1:
        most = sorted(present, key=quoted_away.count, reverse=True)
        ways = ({"delimiter": "tab" if one == "\t" else one} for one in most)
        raise UnsaidError(
            f"{content.where}: found several signs between column names: {short(text)}", *ways
        )
    return present[0] if present else ","


def _cells(content: Content, line: int, text: str, separator: str) -> tuple[str, ...]:
    try:
        (cells,) = csv.reader([text.strip("\r\n")], delimiter=separator)
    except (csv.Error, ValueError):
        raise _not_csv(content, line) from None
    return tuple(cells)


def require(where: Path | str, found: Sequence[str], expected: Sequence[str]) -> None:
    """Refuse a table without all expected columns, or with one of them twice."""
    names = [name.strip() for name in found]
    missing = [column for column in expected if column not in names]
    if missing:
        raise EpifedError(
            f"{where}: found no column {listed(missing)}; expected {listed(expected)} "
            f"(the columns are {listed(names) or 'none'})"
        )
    twice = [column for column in expected if names.count(column) > 1]
    if twice:
        raise EpifedError(f"{where}: found the column {short(twice[0])} twice; expected it once")


def scan_csv(
    content: Content, columns: Mapping[str, str], header: Header | None = None
) -> pl.LazyFrame:
    """The wanted columns of a CSV as text, named by their keys, and `row`, their line number."""
    header = header or read_header(content)
    require(content.where, header.names, list(columns.values()))
    names = [name.strip() for name in header.names]
    return scan_places(content, header, {key: names.index(name) for key, name in columns.items()})


def scan_places(content: Content, header: Header, places: Mapping[str, int]) -> pl.LazyFrame:
    """The columns at these places as text, named by their keys, and `row`, their line number."""
    every = pl.scan_csv(
        io.BytesIO(content.data) if isinstance(content.data, bytes) else content.data,
        separator=header.separator,
        infer_schema=False,
        skip_rows=_lines_above(content, header),
        row_index_name="row",
        row_index_offset=header.line + 1,
        glob=False,
    )
    return every.select("row", *(pl.nth(1 + place).alias(key) for key, place in places.items()))


def _lines_above(content: Content, header: Header) -> int:
    """How many lines to leave out above the header; empty ones polars leaves out by itself."""
    with content.open() as file:
        above = [file.readline() for _ in range(header.line - 1)]
    return header.line - 1 if any(raw.strip(b"\xef\xbb\xbf\r\n") for raw in above) else 0


def collect(content: Content, lazy: pl.LazyFrame, header: Header | None = None) -> pl.DataFrame:
    """Run a scan of a CSV; what the reader refuses becomes one sentence with its row."""
    try:
        return lazy.collect(engine="streaming")
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise _unreadable_csv(content, header or read_header(content), error) from None


def _not_utf8(content: Content, line: int) -> UnsaidError:
    return UnsaidError(
        f"{content.where}: row {line}: found bytes that are not UTF-8; expected UTF-8 text",
        {"encoding": "latin-1"},
        {"encoding": "cp1252"},
    )


def _not_csv(content: Content, line: int) -> EpifedError:
    return EpifedError(f"{content.where}: row {line}: found a broken line; expected CSV")


def _unreadable_csv(content: Content, header: Header, error: BaseException) -> EpifedError:
    """Look for the line that the CSV reader could not take."""
    with content.open() as file:
        for line, raw in enumerate(file, start=1):
            try:
                fields = next(csv.reader([raw.decode("utf-8")], delimiter=header.separator), [])
            except UnicodeDecodeError:
                return _not_utf8(content, line)
            except csv.Error:
                return _not_csv(content, line)
            if line > header.line and len(fields) > len(header.names):
                return EpifedError(
                    f"{content.where}: row {line}: found {len(fields)} cells; "
                    f"expected {len(header.names)}, one for each column"
                )
            if raw.count(b'"') % 2:
                return EpifedError(f'{content.where}: row {line}: found a " that is not closed')
    reason = str(error).splitlines()[0] if str(error) else "broken"
    return EpifedError(f"{content.where}: cannot be read as CSV: {short(reason, 100)}")
