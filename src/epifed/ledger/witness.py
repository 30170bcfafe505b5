"""What this machine remembers of a ledger outside its file: the newest row it has seen.

A ledger's file can be restored from a backup, and then says nothing of the rows written since.
The witness, in the user's state directory, does. It is updated after every commit to the ledger
and before the call returns, so no round is released that the witness does not know of, and it is
locked from before the ledger is read until after the update: of two copies of a ledger that spend
at the same time, the second sees what the first wrote.

It is a SQLite file, because that can be locked and replaced on every system.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from epifed.ledger.book import GENESIS, Book
from epifed.ledger.storage import transaction

_DAMAGED = (
    "damaged; expected this machine's memory of a ledger: remove it, then take the ledger on with "
    "'epifed ledger adopt'"
)


def state_root() -> Path:
    """EPIFED_STATE, or the user's state directory: what epifed must not forget."""
    return Path(os.environ.get("EPIFED_STATE") or platformdirs.user_state_dir("epifed"))


@dataclass(frozen=True)
class Seen:
    """The newest row that was seen of a ledger; number 0 is before its first."""

    number: int
    hash: str

    def fault(self, book: Book) -> str | None:
        """Why a file with these rows is not the ledger that was seen, or nothing."""
        rows = len(book.hashes)
        if self.number > rows:
            return (
                f"an older copy: found {rows} rows; expected the {self.number} that this machine "
                f"has seen; rows missing: {self.number - rows}"
            )
        if self.number and book.hashes[self.number - 1] != self.hash:
            return (
                f"a copy that went its own way: found row {self.number} with the hash "
                f"{book.hashes[self.number - 1]}; expected {self.hash}, as this machine has seen "
                "it, and its rows are missing"
            )
        return None


class Witness:
    """The memory of one ledger on this machine."""

    def __init__(self, ledger: str) -> None:
        self.path = state_root() / "ledgers" / f"{ledger}.db"

    def read(self, *, read_only: bool = False) -> Seen | None:
        """The newest row seen, or none if this machine does not know the ledger."""
        if not self.path.is_file():
            return None
        with transaction(self.path, "BEGIN", read_only=read_only, foreign=_DAMAGED) as connection:
            return _seen(connection)

    @contextmanager
    def held(self, *, create: bool = False) -> Iterator["HeldWitness"]:
        """The witness, which no other process can hold at the same time."""
        with transaction(
            self.path, "BEGIN IMMEDIATE", create=create, foreign=_DAMAGED
        ) as connection:
            yield HeldWitness(connection)

    def expect(self) -> None:
        """Know a ledger that is about to get its first row."""
        with self.held(create=True) as held:
            held.note(Seen(0, GENESIS))

    def catch_up(self, book: Book) -> None:
        """Note rows of a writer that was killed between its commit and its note."""
        with self.held() as held:
            if held.seen and held.seen.number < len(book.hashes) and not held.seen.fault(book):
                held.note(newest(book))


class HeldWitness:
    """A witness while it is locked. What is noted stays when the lock is given back."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.seen = _seen(connection)

    def note(self, newest: Seen) -> None:
        """Remember a newer row."""
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS seen (one INTEGER PRIMARY KEY, number INTEGER, hash TEXT)"
        )
        self._connection.execute(
            "INSERT OR REPLACE INTO seen VALUES (1, ?, ?)", (newest.number, newest.hash)
        )


def newest(book: Book) -> Seen:
    """The newest row of a book."""
    return Seen(len(book.hashes), book.head)


def _seen(connection: sqlite3.Connection) -> Seen | None:
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'seen'").fetchone():
        return None
    found = connection.execute("SELECT number, hash FROM seen").fetchone()
    return found and Seen(*found)
