"""The budget of a federation, in one SQLite file, across all its trainings.

Spend first, release after. A training reserves all its rounds before the first one, which is
refused if they do not fit under the cap together with everything before. Each round is then
written down, durably, before its noise is drawn. While a run is open its whole reservation
counts; once it is closed the rounds written down count. So whatever is killed, and whenever, the
ledger never shows less than was released.

Every transaction opens the file anew, reads all rows and checks their chain. Nothing is held in
memory that another process could have outdated, and a file that was replaced is noticed.
"""

import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from epifed.errors import EpifedError
from epifed.ledger.book import GENESIS, Book, Outcome, Row, canonical, chained, read_book
from epifed.ledger.budget import Cap, refusal, together
from epifed.privacy.accounting import training_event

APPLICATION_ID = 0x45504C47
"""'EPLG' in the header of the SQLite file."""
PATIENCE = 60.0
"""Seconds to wait for another process that is writing."""

_SCHEMA = """
CREATE TABLE entries (number INTEGER PRIMARY KEY, row TEXT NOT NULL, hash TEXT NOT NULL);
CREATE TABLE head (number INTEGER NOT NULL, hash TEXT NOT NULL);
"""


_TAKEN = "exists already; expected a name that is not taken"


class OverspendError(EpifedError):
    """A training that does not fit under the cap. Nothing was spent."""


class Run:
    """A training that has its budget. Leaving it as a context closes it, if it is still open.

    A training that shall be resumed after an exception is not used as a context.
    """

    def __init__(self, ledger: "Ledger", name: str) -> None:
        self.ledger = ledger
        self.name = name
        self._open = True

    def spend(self, number: int) -> None:
        """Write down round `number`. Only when this has returned may its noise be drawn."""
        self.ledger.spend(self.name, number)

    def finish(self, model_hash: str) -> None:
        """Close the run with the hash of the model that came of it."""
        self.ledger.close(self.name, "finished", model_hash=model_hash)
        self._open = False

    def __enter__(self) -> Self:
        """The run itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """What was not finished is abandoned: its unspent rounds are given back."""
        if self._open:
            # A reservation that cannot be given back stays in force, which is safe.
            with suppress(EpifedError):
                self.ledger.close(self.name, "abandoned")


class Ledger:
    """A ledger file. `copy` allows one to be read that is only a copy."""

    def __init__(self, path: Path, *, copy: bool = False) -> None:
        self.path = path
        self._copy = copy
        self.verify()

    @classmethod
    def create(cls, path: Path, cap: Cap, note: str = "") -> Self:
        """A new ledger with its cap, which is set once and for all."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise EpifedError(f"{path}: cannot be created: {error.strerror}") from None
        with _transaction(path, "rwc", "BEGIN EXCLUSIVE") as connection:
            if connection.execute("SELECT count(*) FROM sqlite_master").fetchone() != (0,):
                raise EpifedError(f"{path}: {_TAKEN}")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            for statement in filter(str.strip, _SCHEMA.split(";")):
                connection.execute(statement)
            connection.execute("INSERT INTO head VALUES (0, ?)", (GENESIS,))
            first: Row = {
                "kind": "init",
                "ledger": secrets.token_hex(8),
                "epsilon": cap.epsilon,
                "delta": cap.delta,
                "accountant": cap.accountant,
                "identity": _identity(path),
                "note": note,
            }
            _append(connection, [], first)
        return cls(path)

    def book(self) -> Book:
        """What the rows say now."""
        with _transaction(self.path, "rw", "BEGIN") as connection:
            return self._checked(connection)

    def verify(self, head: str | None = None) -> Book:
        """Check the file, every row, and that a row seen before, by its hash, is still there."""
        with _transaction(self.path, "rw", "BEGIN") as connection:
            book = self._checked(connection)
            (health,) = connection.execute("PRAGMA integrity_check").fetchone()
            if health != "ok":
                raise EpifedError(f"{self.path}: damaged: {health}; restore it from a backup")
        self._check_head(book, head)
        return book

    def reserve(
        self,
        *,
        sampling_rate: float,
        noise_multiplier: float,
        rounds: int,
        settings_hash: str,
        data_period: str,
        note: str = "",
    ) -> Run:
        """Take the budget of a whole training, or refuse it. One round at q = 1 is a one-shot."""
        training_event(sampling_rate, noise_multiplier, rounds)  # refuses what cannot be priced
        name = f"{datetime.now(UTC):%Y%m%d}-{secrets.token_hex(4)}"
        wanted: Row = {
            "run": name,
            "mechanism": "gaussian" if sampling_rate == 1 else "poisson-sampled gaussian",
            "sampling_rate": float(sampling_rate),
            "noise_multiplier": float(noise_multiplier),
            "rounds": int(rounds),
            "settings_hash": settings_hash,
            "data_period": data_period,
            "note": note,
        }
        self._take("reserve", wanted)
        return Run(self, name)

    def resume(self, name: str, rounds_left: int) -> Run:
        """Go on with an interrupted run. A round it has to repeat is paid for once more."""
        record = self.book().run(name)
        rounds = max(record.rounds, record.spent + rounds_left)
        rate, noise, _ = record.part(rounds)
        wanted = {"run": name, "sampling_rate": rate, "noise_multiplier": noise, "rounds": rounds}
        self._take("resume", wanted)
        return Run(self, name)

    def spend(self, name: str, number: int) -> None:
        """Write down one round of a run, durably."""
        with self._writing() as (connection, book):
            record = book.run(name)
            if record.spent >= record.rounds:
                raise OverspendError(
                    f"{self.path}: run '{name}' has spent all its {record.rounds} rounds; "
                    f"expected no round {number}"
                )
            row: Row = {"kind": "spend", "run": name, "round": int(number)}
            _append(connection, book.hashes, row)

    def close(
        self, name: str, outcome: Outcome, *, model_hash: str | None = None, note: str = ""
    ) -> Book:
        """End a run: from now on the rounds it has spent count, and no other can be spent."""
        with self._writing() as (connection, book):
            book.run(name)
            row: Row = {
                "kind": "close",
                "run": name,
                "outcome": outcome,
                "model_hash": model_hash,
                "note": note,
            }
            _append(connection, book.hashes, row)
        return self.book()

    @classmethod
    def adopt(cls, path: Path, note: str, head: str | None = None) -> Self:
        """Make a moved or restored file the one that spends. Its original must not spend again."""
        copy = cls(path, copy=True)
        copy.verify(head)
        with copy._writing() as (connection, book):
            identity = _identity(path)
            if identity == book.identity:
                raise EpifedError(f"{path}: this is the original; nothing to adopt")
            row: Row = {"kind": "adopt", "identity": identity, "note": note}
            _append(connection, book.hashes, row)
        return cls(path)

    def _take(self, kind: str, wanted: Row) -> None:
        part = wanted["sampling_rate"], wanted["noise_multiplier"], wanted["rounds"]

        def allowed(book: Book) -> bool:
            return book.cap.allows(together((*book.taken(wanted["run"]), part)))

        allowed(self.book())  # priced and remembered before anybody has to wait for the file
        with self._writing() as (connection, book):
            if fits := allowed(book):
                row = wanted | {"kind": kind}
                if kind == "reserve":
                    row["accountant"] = book.cap.accountant
                _append(connection, book.hashes, row)
        if not fits:
            unspent = [run.run for run in book.runs.values() if run.counted > run.spent]
            hint = f" (open, holding rounds not spent: {', '.join(unspent)})" if unspent else ""
            sentence = refusal(book.cap, book.taken(wanted["run"]), part)
            raise OverspendError(f"{self.path}: {sentence}{hint}")

    @contextmanager
    def _writing(self) -> Iterator[tuple[sqlite3.Connection, Book]]:
        with _transaction(self.path, "rw", "BEGIN IMMEDIATE") as connection:
            yield connection, self._checked(connection)

    def _checked(self, connection: sqlite3.Connection) -> Book:
        if connection.execute("PRAGMA application_id").fetchone() != (APPLICATION_ID,):
            raise EpifedError(f"{self.path}: not a ledger; expected one by 'epifed ledger init'")
        head = connection.execute("SELECT number, hash FROM head").fetchone()
        rows = connection.execute("SELECT number, row, hash FROM entries ORDER BY number")
        try:
            book = read_book(rows)
        except EpifedError as error:
            raise EpifedError(f"{self.path}: {error}") from None
        if head != (len(book.hashes), book.head):
            raise EpifedError(
                f"{self.path}: truncated or tampered with: it ends at row {len(book.hashes)}, but "
                f"its record of the last row says {head and head[0]}; restore it from a backup"
            )
        if not self._copy and _identity(self.path) != book.identity:
            raise EpifedError(
                f"{self.path}: a copy, which must not spend beside its original; use the original, "
                "or if that is gone for good, make this one the ledger with 'epifed ledger adopt'"
            )
        return book

    def _check_head(self, book: Book, head: str | None) -> None:
        if head is not None and head.strip().lower() not in book.hashes:
            raise EpifedError(
                f"{self.path}: no row has the hash {head}: rows were lost since it was noted, or "
                "the ledger was rebuilt"
            )


def _append(connection: sqlite3.Connection, hashes: list[str], row: Row) -> None:
    stamped = row | {"time": datetime.now(UTC).isoformat(timespec="seconds")}
    text = canonical(stamped)
    number, digest = len(hashes) + 1, chained(hashes[-1] if hashes else GENESIS, text)
    connection.execute("INSERT INTO entries VALUES (?, ?, ?)", (number, text, digest))
    connection.execute("UPDATE head SET number = ?, hash = ?", (number, digest))


@contextmanager
def _transaction(path: Path, mode: str, begin: str) -> Iterator[sqlite3.Connection]:
    """One transaction on its own connection, on the disk when this returns.

    A rollback journal with synchronous = EXTRA: its removal, which is the commit, is made durable
    too. An exception leaves the file as it was.
    """
    if mode == "rw" and not path.is_file():
        raise EpifedError(f"{path}: no such file; expected a ledger by 'epifed ledger init'")
    if mode == "rwc" and path.exists() and not path.is_file():
        raise EpifedError(f"{path}: {_TAKEN}")
    uri = f"{path.resolve().as_uri()}?mode={mode}"
    try:
        with closing(
            sqlite3.connect(uri, uri=True, timeout=PATIENCE, isolation_level=None)
        ) as connection:
            connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute("PRAGMA fullfsync = ON")
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute(begin)
            yield connection
            connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise EpifedError(f"{path}: {_explained(error, mode)}") from None


def _explained(error: sqlite3.Error, mode: str) -> str:
    text = str(error)
    if "not a database" in text:
        return _TAKEN if mode == "rwc" else "not a ledger; expected one by 'epifed ledger init'"
    if "malformed" in text or "no such table" in text:
        return f"damaged or truncated ({text}); restore it from a backup"
    if "locked" in text:
        return f"another process has been writing to it for {PATIENCE:g} seconds; try again"
    return f"cannot be read or written: {text}"


def _identity(path: Path) -> str:
    """Which file this is: a copy is another one, a renamed file the same."""
    status = path.stat()
    if status.st_nlink > 1:
        raise EpifedError(
            f"{path}: has {status.st_nlink} names (hard links), with which a crash can damage it; "
            "expected one"
        )
    system = os.statvfs(path).f_fsid if hasattr(os, "statvfs") else status.st_dev
    return f"{system:x}-{status.st_ino}"
