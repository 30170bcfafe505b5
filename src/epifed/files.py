"""Atomic files, the parts from which a grid resumes, and the cache folder."""

import json
import math
import os
import re
import tempfile
import zipfile
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs

from epifed.errors import EpifedError

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray


Part = dict[str, "NDArray[Any]"]


def write_atomic(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, make it durable, then rename it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(
            dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix
        )
        os.close(handle)
    except OSError as error:
        raise EpifedError(f"{path}: cannot be written: {error.strerror}") from None
    temporary = Path(name)
    try:
        write(temporary)
        with temporary.open("r+b") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        raise EpifedError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file, atomically."""
    write_atomic(path, lambda temporary: temporary.write_text(text, encoding="utf-8", newline="\n"))


def write_parquet(path: Path, frame: "pl.DataFrame") -> None:
    """Write a table, atomically."""
    from polars.exceptions import PolarsError

    def write(temporary: Path) -> None:
        try:
            frame.write_parquet(temporary, compression="zstd")
        except PolarsError as error:
            raise OSError(str(error)) from None

    write_atomic(path, write)


def write_sheet(path: Path, frame: "pl.DataFrame") -> None:
    """Write a CSV for a spreadsheet, atomically; texts that look like formulas stay texts."""
    import polars as pl

    def safe(name: str) -> pl.Expr:
        text = pl.col(name)
        computed = text.str.contains(r"^[=+\-@\t\r]")
        return pl.when(computed).then(pl.concat_str(pl.lit("'"), text)).otherwise(text).alias(name)

    texts = [name for name, kind in frame.schema.items() if kind == pl.String]
    write_atomic(path, frame.with_columns(map(safe, texts)).write_csv)


def save_part(path: Path, part: Part) -> None:
    """Store the arrays of one finished task."""
    import numpy as np

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez_compressed(file, **part)  # type: ignore[arg-type]

    write_atomic(path, write)


def load_part(path: Path) -> Part:
    """Read the arrays of a finished task."""
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise EpifedError(
            f"{path}: found a damaged part ({error}); delete it to have it computed anew"
        ) from None


def to_json(value: object) -> str:
    """JSON text in which infinity is the text "inf", which `--epsilon` also accepts."""

    def finite(value: object) -> object:
        if isinstance(value, float) and not math.isfinite(value):
            return None if math.isnan(value) else str(value)
        if isinstance(value, dict):
            return {key: finite(v) for key, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [finite(v) for v in value]
        return value.isoformat() if isinstance(value, date) else value

    return json.dumps(finite(value), indent=2, ensure_ascii=False)


_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*')


def read_json(path: Path, expected: str, *, comments: bool = False) -> dict[str, Any]:
    """The object in a JSON file; `expected` ends the error message if there is none.

    With `comments`, text from `//` to the end of its line is left out, as R's readers do.
    """
    try:
        text = path.read_text(encoding="utf-8")
        found = json.loads(_COMMENT.sub(r"\1", text) if comments else text)
    except OSError as error:
        raise EpifedError(f"{path}: cannot be read: {error.strerror}; {expected}") from None
    except (ValueError, RecursionError) as error:
        raise EpifedError(f"{path}: expected JSON; {error}") from None
    if not isinstance(found, dict):
        raise EpifedError(f"{path}: expected a JSON object; {expected}")
    return found


def cache_root() -> Path:
    """The cache folder: EPIFED_CACHE, or the user's cache directory."""
    return Path(os.environ.get("EPIFED_CACHE") or platformdirs.user_cache_dir("epifed"))
