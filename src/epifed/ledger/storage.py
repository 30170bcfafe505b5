"""SQLite files that are on the disk when a transaction returns, on every system with a lock."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Literal

from epifed.errors import EpifedError

WAIT_SECONDS = 60.0
"""How long a transaction waits for another process that is writing."""

TAKEN = "exists already; expected a name that is not taken"


@contextmanager
def transaction(
    path: Path,
    begin: Literal["BEGIN", "BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"],
    *,
    create: bool = False,
    read_only: bool = False,
    foreign: str = "not a ledger; expected one by 'epifed ledger init'",
) -> Iterator[sqlite3.Connection]:
    """One transaction on its own connection, on the disk when this returns.

    A rollback journal with synchronous = EXTRA: its removal, which is the commit, is made durable
    too. An exception leaves the file as it was. `foreign` is said of a file of another kind. A
    `read_only` one changes nothing, not even what a crash has left half-written, and is refused
    until the next writer has mended that.
    """
    if not create and not path.is_file():
        raise EpifedError(f"{path}: no such file; expected a ledger by 'epifed ledger init'")
    if create:
        _make_room(path)
    uri = f"{path.resolve().as_uri()}?mode={'ro' if read_only else 'rwc' if create else 'rw'}"
    try:
        with closing(
            sqlite3.connect(uri, uri=True, timeout=WAIT_SECONDS, isolation_level=None)
        ) as connection:
            connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
            if not read_only:
                connection.execute("PRAGMA synchronous = EXTRA")
                connection.execute("PRAGMA fullfsync = ON")
                connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute(begin)
            yield connection
            connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise EpifedError(f"{path}: {_explained(error, TAKEN if create else foreign)}") from None


def _make_room(path: Path) -> None:
    if path.exists() and not path.is_file():
        raise EpifedError(f"{path}: {TAKEN}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EpifedError(f"{path}: cannot be created: {error.strerror}") from None


def _explained(error: sqlite3.Error, foreign: str) -> str:
    text = str(error)
    if "not a database" in text:
        return foreign
    if "malformed" in text or "no such table" in text:
        return f"damaged or truncated ({text}); restore it from a backup"
    if "locked" in text:
        return f"another process has been writing to it for {WAIT_SECONDS:g} seconds; try again"
    return f"cannot be read or written: {text}"
