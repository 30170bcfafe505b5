"""Readers of case counts: from a file, a directory or a DataFrame to a `CasePanel`."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from epifed.data.panel import CasePanel, Table
from epifed.data.readers.cleaning import Tidy, load_tidy, read_tidy, to_panel
from epifed.data.readers.columns import wanted_names
from epifed.data.readers.formats import (
    read_communities,
    read_counties,
    read_memilio,
    read_prepared,
    read_rki,
)
from epifed.data.readers.tables import Assumptions, existing, open_content, read_header
from epifed.errors import EpifedError
from epifed.registry import Registry

__all__ = [
    "SOURCES",
    "load_panel",
    "load_table",
    "read_communities",
    "read_counties",
    "read_memilio",
    "read_prepared",
    "read_rki",
    "read_tidy",
    "recognise",
    "to_panel",
]

SOURCES: Registry[Callable[..., CasePanel]] = Registry(
    "epifed.readers",
    {
        "rki": "epifed.data.readers.formats:read_rki",
        "memilio": "epifed.data.readers.formats:read_memilio",
        "tidy": "epifed.data.readers.cleaning:read_tidy",
        "prepared": "epifed.data.readers.formats:read_prepared",
    },
    kind="format",
    fits=callable,
    expected="a function of a path that returns a CasePanel",
)
"""The readers by the name of their format: built-in, and those of other installed packages."""


_RKI = {"IdLandkreis", "NeuerFall"}
_OPENING = ("encoding", "delimiter", "member", "header_row", "date", "region", "cases")


def recognise(path: Path, options: Mapping[str, Any] | None = None) -> str:
    """The format of a path, from its kind, its ending and the header of a CSV."""
    if path.is_dir():
        return "prepared"
    if ".json" in [suffix.lower() for suffix in path.suffixes]:
        return "memilio"
    said = Assumptions(**{k: v for k, v in (options or {}).items() if k in _OPENING})
    content = open_content(path, said)
    if content.kind != "text":
        return "tidy"
    header = read_header(content, said, (*_RKI, *wanted_names(said)))
    return "rki" if {name.strip() for name in header.names} >= _RKI else "tidy"


def load_panel(source: Path | str | Table, format: str | None = None, **options: Any) -> CasePanel:
    """Read case counts from a file, a directory or a DataFrame.

    Parameters
    ----------
    source : path, str or DataFrame
        CSV, Excel or parquet, a prepared directory, or a pandas or polars DataFrame with a row for
        each day and region. `-` is standard input.
    format : str, optional
        The format; recognised if omitted. Other packages may add formats (entry point group
        `epifed.readers`).
    **options
        Options of the reader: all of `Assumptions` for a table, `date_column` (rki), `population`
        (memilio: a file), `level` (prepared).

    Returns
    -------
    CasePanel
        Regions × days, or weeks, of new cases.

    Raises
    ------
    EpifedError
        If the file cannot be read in exactly one way; the message names the option to add.

    Examples
    --------
    >>> import polars as pl
    >>> table = pl.DataFrame({"date": ["2024-01-01"], "region": ["north"], "cases": [3]})
    >>> load_panel(table).counts
    array([[3.]])
    """
    if not isinstance(source, Path | str):
        return to_panel(_frame_table(source, format, options))
    path, chosen = _chosen(source, format, options)
    reader = SOURCES.load(chosen)
    if SOURCES.is_builtin(chosen) and path.is_dir() != (chosen == "prepared"):
        found, expected = ("directory", "file") if path.is_dir() else ("file", "directory")
        raise EpifedError(f"{path}: found a {found}; expected a {expected} for format {chosen}")
    refuse_unknown(options, reader, chosen, str(path))
    panel: object = reader(path, **options)
    if not isinstance(panel, CasePanel):
        raise EpifedError(
            f"{path}: found a {type(panel).__name__} from the format {chosen}; expected a CasePanel"
        )
    return panel


def load_table(
    source: Path | str | Table, format: str | None = None, **options: Any
) -> Tidy | None:
    """The clean table of a file or DataFrame with every assumption; None for other formats."""
    if not isinstance(source, Path | str):
        return _frame_table(source, format, options)
    path, chosen = _chosen(source, format, options)
    is_table = SOURCES.load(chosen) is read_tidy and not path.is_dir()
    return load_tidy(path, **options) if is_table else None


def _chosen(source: Path | str, format: str | None, options: Mapping[str, Any]) -> tuple[Path, str]:
    path = existing(Path(source))
    return path, format or recognise(path, options)


def _frame_table(table: object, format: str | None, options: dict[str, Any]) -> Tidy:
    if not isinstance(table, Table):
        raise EpifedError(
            f"source: found a {type(table).__name__}; expected a path, or a DataFrame of pandas "
            "or polars"
        )
    if format not in {None, "tidy"}:
        raise EpifedError(
            f"format: found '{format}' with a DataFrame; expected tidy, or the path of a file"
        )
    return load_tidy(table, **options)


def refuse_unknown(
    options: dict[str, Any], reader: Callable[..., CasePanel], format: str, where: str
) -> None:
    """Refuse options that a reader does not have."""
    parameters = list(inspect.signature(reader).parameters.values())[1:]
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    known = [parameter.name for parameter in parameters]
    for option in options:
        if option not in known:
            raise EpifedError(
                f"{option}: not an option of the format {format}, which {where} has; "
                f"expected {'one of ' * bool(known)}{', '.join(known) or 'none'}"
            )
