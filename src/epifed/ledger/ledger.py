"""The privacy budget of a federation, in one SQLite file, across all its trainings.

Budget is spent first and released after. A training reserves all its rounds before the first one,
and is refused if they do not fit under the cap. Each round is recorded durably before its noise is
drawn. While a run is open its whole reservation counts. Once it is closed the recorded rounds
count. So the ledger never shows less than was released, even after a crash.

Every transaction opens the file anew, reads all rows, checks their chain and compares them with the
witness. The witness is a separate file in which this machine stores the newest row it has seen. So
a ledger restored from an older copy is detected. The witness is updated after every commit, before
the call returns. It is locked before the ledger is read. So of two copies that spend at the same
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
    """The folder for lasting state: EPIFED_STATE, or the user's state directory."""
    return Path(os.environ.get("EPIFED_STATE") or platformdirs.user_state_dir("epifed"))


@dataclass(frozen=True)
class Seen:
    """The newest row that this machine has seen of a ledger; number 0 is before the first."""

    number: int
    hash: str

    def fault(self, book: Book) -> str | None:
        """Why a file with these rows is older or other than the ledger that was seen, if it is."""
        rows = len(book.hashes)
        if self.number > rows:
            return (
                f"an older copy: found {rows} rows; expected the {self.number} that this machine "
                f"has seen; rows missing: {self.number - rows}"
            )
        if self.number and book.hashes[self.number - 1] != self.hash:
            return (
                f"a copy that was used beside the original: found row {self.number} with the hash "
                f"{book.hashes[self.number - 1]}; expected {self.hash}, as this machine has seen "
                "it, and its rows are missing"
            )
        return None


class Witness:
    """This machine's record of the newest row of one ledger."""

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
        """Lock the witness; no other process can hold it at the same time."""
        with transaction(
            self.path, "BEGIN IMMEDIATE", create=create, foreign=_DAMAGED
        ) as connection:
            yield HeldWitness(connection)

    def expect(self) -> None:
        """Register a ledger that is about to get its first row."""
        with self.held(create=True) as held:
            held.note(Seen(0, GENESIS))

    def catch_up(self, book: Book) -> None:
        """Record rows whose writer was killed between its commit and its record."""
        with self.held() as held:
            if held.seen and held.seen.number < len(book.hashes) and not held.seen.fault(book):
                held.note(newest(book))


class HeldWitness:
    """A locked witness. Its records are kept after the lock is released."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.seen = _seen(connection)

    def note(self, newest: Seen) -> None:
        """Record a newer row."""
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
    """The ledger to which a federation's party charges its trainings, as this machine stores it."""

    federation: str
    """An id of the federation: a digest of its root certificate."""
    party: str
    clients: tuple[str, ...]
    ledger: str
    """The ledger's id."""
    epsilon: float
    """The ε of the ledger's cap."""

    def remember(self) -> None:
        """Store this record, unless the same one is stored."""
        if use_of(self.federation, self.party) != self:
            text = json.dumps(asdict(self), indent=2, ensure_ascii=False)
            write_text(_use_path(self.federation, self.party), text)


def use_of(federation: str, party: str) -> Use | None:
    """The ledger of a party; none if this machine has stored none."""
    return _read_use(_use_path(federation, party))


def uses_in(federation: str) -> list[Use]:
    """The ledgers of all parties of a federation on this machine."""
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
    """A training under a name that is in use. Nothing was spent."""


class Run:
    """A training with a reserved budget. As a context it closes the run on leaving, if still open.

    Do not use it as a context for a training that must be resumable after an exception.
    """

    def __init__(self, ledger: "Ledger", name: str) -> None:
        self.ledger = ledger
        self.name = name
        self._open = True

    def spend(self, number: int) -> None:
        """Record round `number`. Its noise may be drawn only after this has returned."""
        self.ledger.spend(self.name, number)

    def finish(self, model_hash: str) -> None:
        """Close the run with the hash of its release."""
        self.ledger.close(self.name, "finished", model_hash=model_hash)
        self._open = False

    def __enter__(self) -> Self:
        """The run itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Abandon a run that is not finished: its unspent rounds are given back."""
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
        Read a copy, from which this machine cannot spend.

    Raises
    ------
    EpifedError
        If the file is missing, damaged, or older than this machine's record of it.

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
        """Create a ledger with a cap, which cannot be changed later.

        Parameters
        ----------
        path : Path
            The new file.
        cap : Cap
            ε, δ and accountant of all trainings together.
        note : str
            Kept in the first row.

        Returns
        -------
        Ledger
            Without any run.

        Raises
        ------
        EpifedError
            If the file exists.
        """
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
        """Read and check all rows.

        Returns
        -------
        Book
            Cap, runs and hashes of the rows.

        Raises
        ------
        EpifedError
            If a row is damaged or missing.
        """
        with transaction(self.path, "BEGIN") as connection:
            book, seen = self._checked(connection)
        self._catch_up(book, seen)
        return book

    def verify(self, head: str | None = None) -> Book:
        """Check the file and every row; with `head`, also that a row with this hash is there.

        Parameters
        ----------
        head : str, optional
            A hash that was noted before.

        Returns
        -------
        Book
            Cap, runs and hashes of the rows.

        Raises
        ------
        EpifedError
            If the file or a row is damaged, or no row has the hash.
        """
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
        """Reserve the budget of a whole training, or refuse it. A one-shot is one round at q = 1.

        A training's name is used once. `find` finds the run of an interrupted training, and
        `resume` reserves any rounds beyond its reservation.

        Parameters
        ----------
        sampling_rate, noise_multiplier, rounds
            q, c and T_cl of the training.
        settings_hash : str
            The digest of its settings.
        training : str
            Its name.
        first_day, last_day : date, optional
            The days that it learns from.
        note : str
            Kept in the row.

        Returns
        -------
        Run
            With the whole budget reserved.

        Raises
        ------
        EpifedError
            If it does not fit under the cap, or its name is in use.
        """
        training_event(sampling_rate, noise_multiplier, rounds)  # refuses invalid values
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
        """The run of this training, open or not; none if its name is used with another key.

        Parameters
        ----------
        training : str
            The name.
        sampling_rate, noise_multiplier : float
            q and c.
        settings_hash : str
            The digest of its settings.
        first_day, last_day : date or None
            The days that it learns from.

        Returns
        -------
        RunRecord or None
            As the ledger has it.
        """
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
        """Continue an interrupted run. A round that must be repeated is charged once more.

        Parameters
        ----------
        name : str
            The run.
        rounds_left : int
            Rounds that it still needs.

        Returns
        -------
        Run
            The same run, open.

        Raises
        ------
        EpifedError
            If it is closed, or the cap has no room.
        """
        record = self.book().run(name)
        rounds = max(record.rounds, record.spent + rounds_left)
        rate, noise, _ = record.part(rounds)
        wanted = {"run": name, "sampling_rate": rate, "noise_multiplier": noise, "rounds": rounds}
        self._take("resume", wanted)
        return Run(self, name)

    def spend(self, name: str, number: int) -> None:
        """Record one round of a run, durably.

        Parameters
        ----------
        name : str
            The run.
        number : int
            The round, from 1.

        Raises
        ------
        EpifedError
            If the run is closed, or the round is not the next one.
        """
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
        """End a run: from now on only its spent rounds count, and no more can be spent.

        Parameters
        ----------
        name : str
            The run.
        outcome : {"finished", "abandoned"}
            How it ended.
        model_hash : str, optional
            The hash of its release.
        note : str
            Kept in the row.

        Returns
        -------
        Book
            With the closed run.

        Raises
        ------
        EpifedError
            If there is no such open run.
        """
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
        """Let this machine spend from a moved or restored file; its original must not.

        Parameters
        ----------
        path : Path
            The moved or restored file.
        note : str
            Why the original is gone.
        head : str, optional
            The last hash that was noted.

        Returns
        -------
        Ledger
            One that this machine may spend from.

        Raises
        ------
        EpifedError
            If the file is older than this machine's record of it.
        """
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

        allowed(self.book())  # priced and cached before the file is locked
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
        """A transaction that writes, inside a lock on the witness, which is updated at the end."""
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
        """Read the rows and compare them with the newest row that this machine has seen."""
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
        """Update the witness. Not within a transaction: its holder waits for readers to end."""
        if seen and seen.number < len(book.hashes):
            Witness(book.ledger).catch_up(book)

    def _check_head(self, book: Book, head: str | None) -> None:
        if head is not None and head.strip().lower() not in book.hashes:
            raise EpifedError(
                f"{self.path}: no row has the hash {head}: rows were lost since it was noted, or "
                "the ledger was rebuilt"
            )


def glance(path: Path) -> tuple[Book, str | None]:
    """Read a ledger and any fault of this file, without changing it or its witness."""

    def read() -> Book:
        with transaction(path, "BEGIN", read_only=True) as connection:
            return _read(path, connection)

    book = read()
    seen = Witness(book.ledger).read(read_only=True)
    if seen is None:
        return book, _UNKNOWN
    if seen.fault(book):  # a row may have been written between the two reads
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
            f"its record of the last row is {head and head[0]}; restore it from a backup"
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
