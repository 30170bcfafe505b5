"""Sources of case counts: a file or directory in, a `CasePanel` out."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from epifed.errors import EpifedError
from epifed.panel import CasePanel
from epifed.sources.memilio import read_memilio
from epifed.sources.prepared import read_communities, read_counties, read_prepared
from epifed.sources.rki import read_rki
from epifed.sources.table import existing, read_header
from epifed.sources.tidy import read_tidy

__all__ = [
    "FORMATS",
    "load_panel",
    "read_communities",
    "read_counties",
    "read_memilio",
    "read_prepared",
    "read_rki",
    "read_tidy",
    "recognise",
]

FORMATS: dict[str, Callable[..., CasePanel]] = {
    "rki": read_rki,
    "memilio": read_memilio,
    "tidy": read_tidy,
    "prepared": read_prepared,
}


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


def load_panel(path: Path | str, format: str | None = None, **options: Any) -> CasePanel:
    """The panel of any source; its format is recognised, or named by `format`.

    Options go to the reader: `date_column` (rki), `population` (memilio: a file; tidy: a column),
    `date`, `region`, `cases` (tidy: columns), `level` (prepared).
    """
    path = existing(Path(path))
    if format is not None and format not in FORMATS:
        raise EpifedError(f"format: found '{format}'; expected one of {', '.join(FORMATS)}")
    chosen = format or recognise(path)
    if path.is_dir() != (chosen == "prepared"):
        found, expected = ("directory", "file") if path.is_dir() else ("file", "directory")
        raise EpifedError(f"{path}: found a {found}; expected a {expected} for format {chosen}")
    reader = FORMATS[chosen]
    known = list(inspect.signature(reader).parameters)[1:]
    for option in options:
        if option not in known:
            raise EpifedError(
                f"{option}: not an option of the format {chosen}, which {path} has; "
                f"expected one of {', '.join(known)}"
            )
    return reader(path, **options)
