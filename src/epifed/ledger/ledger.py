"""The privacy budget of a federation, in one SQLite file, across all its trainings.

Spend first, release after. A training reserves all its rounds before the first one, and is refused
if they do not fit under the cap. Each round is written down, durably, before its noise is drawn.
While a run is open its whole reservation counts; once it is closed the rounds written down count.
So the ledger never shows less than was released, whenever it is killed.

Every transaction opens the file anew, reads all rows, checks their chain and compares them with the
witness: what this machine remembers of the ledger outside its file, the newest row it has seen. A
file restored from an older copy is noticed. The witness is updated after every commit and before
the call returns, and is locked from before the ledger is read: of two copies that spend at the same
time, the second sees what the first wrote.
"""

import hashlib
import json
import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Self

import platformdirs

from epifed.errors import EpifedError
from epifed.files import write_text
from epifed.ledger.budget import (
    GENESIS,
    TAKEN,
    Book,
    Cap,
    Key,
    Outcome,
    Row,
    RunRecord,
    canonical,
    chained,
    read_book,
    refusal,
    together,
    transaction,
)
from epifed.privacy.accounting import training_event

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


@dataclass(frozen=True)
class Use:
    """The ledger that a party of a federation pays from, as this machine remembers it."""

    federation: str
    """What stands for the federation: a digest of its root certificate."""
    party: str
    clients: tuple[str, ...]
    ledger: str
    """The ledger's id."""
    epsilon: float
    """The ledger's cap."""

    def remember(self) -> None:
        """Write it down, if it is not written yet."""
        if use_of(self.federation, self.party) != self:
            text = json.dumps(asdict(self), indent=2, ensure_ascii=False)
            write_text(_use_path(self.federation, self.party), text)


def use_of(federation: str, party: str) -> Use | None:
    """The ledger that a party pays from; none if this machine has seen none."""
    return _read_use(_use_path(federation, party))


def uses_in(federation: str) -> list[Use]:
    """The ledgers that the parties of a federation pay from on this machine."""
    folder, name = _use_path(federation, "").parent, _short(federation)
    found = (_read_use(path) for path in sorted(folder.glob(f"{name}-*.json")))
    return [use for use in found if use is not None]


def _read_use(path: Path) -> Use | None:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise EpifedError(
            f"{path}: cannot be read ({error}); expected the record of a party's ledger: put the "
            "file back, or remove it once you know that the party's ledger is the newest"
        ) from None
    return Use(**values | {"clients": tuple(values["clients"])})


def _use_path(federation: str, party: str) -> Path:
    return state_root() / "parties" / f"{_short(federation)}-{_short(party)}.json"


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


APPLICATION_ID = 0x45504C47
"""'EPLG' in the header of the SQLite file."""

_SCHEMA = """
CREATE TABLE entries (number INTEGER PRIMARY KEY, row TEXT NOT NULL, hash TEXT NOT NULL);
CREATE TABLE head (number INTEGER NOT NULL, hash TEXT NOT NULL);
"""

_UNKNOWN = (
    "this machine has not seen this ledger: it is a copy, or was moved here, or was made before "
    "ledgers were remembered; use it where it was used before, or if it is the newest there is and "
    "no other will spend, take it on here, once, with 'epifed ledger adopt'"
)
_NOT_NEWEST = (
    "what they cost is unknown, so this file can neither spend nor be adopted; expected the "
    "newest file, or if that is lost, a new ledger whose smaller cap leaves room for them"
)


class OverspendError(EpifedError):
    """A training that does not fit under the cap. Nothing was spent."""


class NameTakenError(EpifedError):
    """A training under a name that another one has used. Nothing was spent."""


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
    """A ledger file: the privacy budget of all trainings together.

    Parameters
    ----------
    path : Path
        The SQLite file, made by `Ledger.create`.
    copy : bool
        Read a copy, from which this machine must not spend.

    Raises
    ------
    EpifedError
        If the file is missing, damaged, or older than what this machine has seen of it.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> ledger = Ledger.create(Path(mkdtemp()) / "budget.ledger", Cap(2.0, 1e-5, "pld"))
    >>> ledger.book().runs
    {}
    """

    def __init__(self, path: Path, *, copy: bool = False) -> None:
        self.path = path
        self._copy = copy
        self._id = self.verify().ledger

    @classmethod
    def create(cls, path: Path, cap: Cap, note: str = "") -> Self:
        """A new ledger with its cap, which is set once and for all."""
        name = secrets.token_hex(8)
        witness = Witness(name)
        with transaction(path, "BEGIN EXCLUSIVE", create=True) as connection:
            if connection.execute("SELECT count(*) FROM sqlite_master").fetchone() != (0,):
                raise EpifedError(f"{path}: {TAKEN}")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            for statement in filter(str.strip, _SCHEMA.split(";")):
                connection.execute(statement)
            connection.execute("INSERT INTO head VALUES (0, ?)", (GENESIS,))
            first: Row = {
                "kind": "init",
                "ledger": name,
                "epsilon": cap.epsilon,
                "delta": cap.delta,
                "accountant": cap.accountant,
                "note": note,
            } | ({} if cap.weeks is None else {"weeks": cap.weeks})
            _append(connection, [], first)
            witness.expect()
        return cls(path)

    def book(self) -> Book:
        """What the rows say now."""
        with transaction(self.path, "BEGIN") as connection:
            book, seen = self._checked(connection)
        self._catch_up(book, seen)
        return book

    def verify(self, head: str | None = None) -> Book:
        """Check the file, every row, and that a row seen before, by its hash, is still there."""
        with transaction(self.path, "BEGIN") as connection:
            book, seen = self._checked(connection)
            (health,) = connection.execute("PRAGMA integrity_check").fetchone()
            if health != "ok":
                raise EpifedError(f"{self.path}: damaged: {health}; restore it from a backup")
        self._catch_up(book, seen)
        self._check_head(book, head)
        return book

    def reserve(
        self,
        *,
        sampling_rate: float,
        noise_multiplier: float,
        rounds: int,
        settings_hash: str,
        training: str = "",
        first_day: date | None = None,
        last_day: date | None = None,
        note: str = "",
    ) -> Run:
        """Take the budget of a whole training, or refuse it. One round at q = 1 is a one-shot.

        A training's name is used once: what goes on under it is found by `find`, and more rounds
        than were reserved are taken by `resume`.
        """
        training_event(sampling_rate, noise_multiplier, rounds)  # refuses what cannot be priced
        key: Key = {
            "training": training,
            "sampling_rate": float(sampling_rate),
            "noise_multiplier": float(noise_multiplier),
            "settings_hash": settings_hash,
            "first_day": first_day,
            "last_day": last_day,
        }
        name = f"{datetime.now(UTC):%Y%m%d}-{secrets.token_hex(4)}"
        wanted: Row = {
            **key,
            "run": name,
            "mechanism": "gaussian" if sampling_rate == 1 else "poisson-sampled gaussian",
            "rounds": int(rounds),
            "first_day": first_day and first_day.isoformat(),
            "last_day": last_day and last_day.isoformat(),
            "note": note,
        }
        self._take("reserve", wanted, key)
        return Run(self, name)

    def find(
        self,
        training: str,
        *,
        sampling_rate: float,
        noise_multiplier: float,
        settings_hash: str,
        first_day: date | None,
        last_day: date | None,
    ) -> RunRecord | None:
        """The run of this very training, open or not; another one of its name is not it."""
        record = self.book().named(training)
        key: Key = {
            "training": training,
            "sampling_rate": sampling_rate,
            "noise_multiplier": noise_multiplier,
            "settings_hash": settings_hash,
            "first_day": first_day,
            "last_day": last_day,
        }
        return None if record is None or record.differences(key) else record

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
                    f"{self.path}: run '{name}' has spent all its rounds "
                    f"({record.rounds}); expected no round {number}"
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
        with copy._writing(adopting=True) as (connection, book):
            row: Row = {"kind": "adopt", "note": note}
            _append(connection, book.hashes, row)
        return cls(path)

    def _take(self, kind: str, wanted: Row, key: Key | None = None) -> None:
        part = wanted["sampling_rate"], wanted["noise_multiplier"], wanted["rounds"]

        def allowed(book: Book) -> bool:
            return book.cap.allows(together((*book.taken(wanted["run"]), part)))

        allowed(self.book())  # priced and remembered before anybody has to wait for the file
        with self._writing() as (connection, book):
            if key and (taken := book.named(key["training"])):
                raise NameTakenError(f"{self.path}: {_name_taken(taken, key)}")
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
    def _writing(self, adopting: bool = False) -> Iterator[tuple[sqlite3.Connection, Book]]:
        """A transaction that writes. The witness is held from before it until it knows of it."""
        witness = Witness(self._id)
        if not adopting and not witness.path.is_file():
            raise EpifedError(f"{self.path}: {_UNKNOWN}")
        with witness.held(create=adopting) as held:
            with transaction(self.path, "BEGIN IMMEDIATE") as connection:
                book = _read(self.path, connection)
                _check_one_name(self.path)
                if book.ledger != self._id:
                    raise EpifedError(
                        f"{self.path}: was replaced: found the ledger {book.ledger}; expected "
                        f"{self._id}"
                    )
                if held.seen or not adopting:
                    self._check_seen(book, held.seen)
                if held.seen and adopting:
                    raise EpifedError(f"{self.path}: known on this machine; nothing to adopt")
                yield connection, book
            if (now := newest(book)) != held.seen:
                held.note(now)

    def _checked(self, connection: sqlite3.Connection) -> tuple[Book, Seen | None]:
        """The book, once it was compared with what this machine has seen of the ledger."""
        book = _read(self.path, connection)
        if self._copy:
            return book, None
        _check_one_name(self.path)
        seen = Witness(book.ledger).read()
        self._check_seen(book, seen)
        return book, seen

    def _check_seen(self, book: Book, seen: Seen | None) -> None:
        if seen is None:
            raise EpifedError(f"{self.path}: {_UNKNOWN}")
        if fault := seen.fault(book):
            raise EpifedError(f"{self.path}: {fault}; {_NOT_NEWEST}")

    def _catch_up(self, book: Book, seen: Seen | None) -> None:
        """Not within the transaction: a writer that holds the witness waits for readers to end."""
        if seen and seen.number < len(book.hashes):
            Witness(book.ledger).catch_up(book)

    def _check_head(self, book: Book, head: str | None) -> None:
        if head is not None and head.strip().lower() not in book.hashes:
            raise EpifedError(
                f"{self.path}: no row has the hash {head}: rows were lost since it was noted, or "
                "the ledger was rebuilt"
            )


def glance(path: Path) -> tuple[Book, str | None]:
    """What a ledger says, and what speaks against this file; neither it nor its witness changes."""

    def read() -> Book:
        with transaction(path, "BEGIN", read_only=True) as connection:
            return _read(path, connection)

    book = read()
    seen = Witness(book.ledger).read(read_only=True)
    if seen is None:
        return book, _UNKNOWN
    if seen.fault(book):  # a row may have been written between the two
        book = read()
    return book, seen.fault(book)


def _read(path: Path, connection: sqlite3.Connection) -> Book:
    if connection.execute("PRAGMA application_id").fetchone() != (APPLICATION_ID,):
        raise EpifedError(f"{path}: not a ledger; expected one by 'epifed ledger init'")
    head = connection.execute("SELECT number, hash FROM head").fetchone()
    rows = connection.execute("SELECT number, row, hash FROM entries ORDER BY number")
    try:
        book = read_book(rows)
    except EpifedError as error:
        raise EpifedError(f"{path}: {error}") from None
    if head != (len(book.hashes), book.head):
        raise EpifedError(
            f"{path}: truncated or tampered with: it ends at row {len(book.hashes)}, but "
            f"its record of the last row says {head and head[0]}; restore it from a backup"
        )
    return book


def _append(connection: sqlite3.Connection, hashes: list[str], row: Row) -> None:
    stamped = row | {"time": datetime.now(UTC).isoformat(timespec="seconds")}
    text = canonical(stamped)
    number, digest = len(hashes) + 1, chained(hashes[-1] if hashes else GENESIS, text)
    connection.execute("INSERT INTO entries VALUES (?, ?, ?)", (number, text, digest))
    connection.execute("UPDATE head SET number = ?, hash = ?", (number, digest))
    hashes.append(digest)


def _name_taken(taken: RunRecord, key: Key) -> str:
    differences = ", ".join(taken.differences(key))
    state = taken.outcome if taken.outcome == "open" else f"{taken.outcome} on {taken.closed}"
    return (
        f"training '{taken.training}' is in the ledger as run {taken.run} ({state})"
        f"{f' with another price or content: {differences}' if differences else ''}; expected a "
        "name that was not used"
    )


def _check_one_name(path: Path) -> None:
    names = path.stat().st_nlink
    if names > 1:
        raise EpifedError(
            f"{path}: has {names} names (hard links), with which a crash can damage it; expected "
            "one"
        )
