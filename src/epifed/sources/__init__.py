"""Sources of case counts: a file, a directory or a DataFrame in, a `CasePanel` out."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from epifed.errors import EpifedError
from epifed.frames import Table
from epifed.panel import CasePanel
from epifed.registry import Registry
from epifed.sources.memilio import read_memilio
from epifed.sources.prepared import read_communities, read_counties, read_prepared
from epifed.sources.rki import read_rki
from epifed.sources.table import IN_MEMORY, existing, read_header
from epifed.sources.tidy import read_tidy

__all__ = [
    "SOURCES",
    "load_panel",
    "read_communities",
    "read_counties",
    "read_memilio",
    "read_prepared",
    "read_rki",
    "read_tidy",
    "recognise",
]

SOURCES: Registry[Callable[..., CasePanel]] = Registry(
    "epifed.sources",
    {
        "rki": "epifed.sources.rki:read_rki",
        "memilio": "epifed.sources.memilio:read_memilio",
        "tidy": "epifed.sources.tidy:read_tidy",
        "prepared": "epifed.sources.prepared:read_prepared",
    },
    kind="format",
    fits=callable,
    expected="a function of a path that returns a CasePanel",
)
"""The readers by the name of their format: ours, and those of other installed packages."""


def recognise(path: Path) -> str:
    """The format of a path: what it is, how it ends, and the header of a CSV."""
    if path.is_dir():
        return "prepared"
    if path.suffix.lower() == ".json":
        return "memilio"
    if path.suffix.lower() in {".parquet", ".pq"}:
        return "tidy"
    names = {name.strip() for name in read_header(path).names}
    return "rki" if {"IdLandkreis", "NeuerFall"} <= names else "tidy"


def load_panel(source: Path | str | Table, format: str | None = None, **options: Any) -> CasePanel:
    """The panel of a file, a directory or a DataFrame (pandas or polars, in the tidy format).

    The format of a path is recognised, or named by `format`, which may be one that another
    installed package brings (entry point group `epifed.sources`). Options go to its reader:
    `date_column` (rki), `population` (memilio: a file; tidy: a column), `date`, `region`, `cases`
    (tidy: columns), `level` (prepared).
    """
    if not isinstance(source, Path | str):
        return _load_table(source, format, options)
    path = existing(Path(source))
    chosen = format or recognise(path)
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


def _load_table(table: object, format: str | None, options: dict[str, Any]) -> CasePanel:
    if not isinstance(table, Table):
        raise EpifedError(
            f"source: found a {type(table).__name__}; expected a path, or a DataFrame of pandas "
            "or polars"
        )
    if format not in {None, "tidy"}:
        raise EpifedError(
            f"format: found '{format}' with a DataFrame; expected tidy, or the path of a file"
        )
    refuse_unknown(options, read_tidy, "tidy", IN_MEMORY)
    return read_tidy(table, **options)


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
