"""The rows of a ledger, chained by hashes, in durable SQLite files.

A row is canonical JSON. Its hash is the SHA-256 of the hash before it and of that text, so no row
can be changed, left out or moved without every later hash changing.
"""

import hashlib
import json
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any, Literal, TypedDict

from epifed.errors import EpifedError, counted
from epifed.ledger.budget import Cap, Part, Spending, most_trainings, together
from epifed.privacy.accounting import rounded_up

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


Row = dict[str, Any]
Outcome = Literal["open", "finished", "abandoned"]

GENESIS = "0" * 64
"""The hash before the first row."""


class Key(TypedDict):
    """What a training is found by: its name and everything that prices it."""

    training: str
    sampling_rate: float
    noise_multiplier: float
    settings_hash: str
    first_day: date | None
    last_day: date | None


@dataclass
class RunRecord:
    """One training: what it reserved, and the rounds it has paid for."""

    run: str
    opened: str
    sampling_rate: float
    noise_multiplier: float
    rounds: int
    mechanism: str
    accountant: str
    settings_hash: str
    training: str
    """The training's name, used once in a ledger; empty if it has none."""
    first_day: date | None
    last_day: date | None
    note: str
    """A remark for humans, which nothing reads."""
    spent: int = 0
    outcome: Outcome = "open"
    closed: str | None = None
    model_hash: str | None = None

    @property
    def counted(self) -> int:
        """The rounds that count: all reserved ones while the run is open, then those spent."""
        return self.rounds if self.outcome == "open" else self.spent

    def part(self, rounds: int) -> Part:
        """So many rounds of this run's mechanism."""
        return self.sampling_rate, self.noise_multiplier, rounds

    @property
    def days(self) -> str:
        """The days of data it learned from, for humans; empty if they are not known."""
        return f"{self.first_day} … {self.last_day}" if self.first_day else ""

    def differences(self, key: Key) -> list[str]:
        """How the training differs from one with this key: found and expected."""
        return [
            f"{name.replace('_', ' ')}: found {_said(found)}; expected {_said(wanted)}"
            for name, wanted in key.items()
            if (found := getattr(self, name)) != wanted
        ]


@dataclass
class Book:
    """What a ledger's rows say."""

    ledger: str
    created: str
    cap: Cap
    runs: dict[str, RunRecord] = field(default_factory=dict)
    hashes: list[str] = field(default_factory=list)

    @property
    def head(self) -> str:
        """The hash of the last row, which vouches for all."""
        return self.hashes[-1]

    def counting(self, now: datetime | None = None) -> list[RunRecord]:
        """The runs that count against the cap: all, or those open within its last weeks."""
        first = "" if self.cap.weeks is None else _first_day(self.cap.weeks, now)
        return [run for run in self.runs.values() if run.closed is None or run.closed >= first]

    def released(self, now: datetime | None = None) -> Spending:
        """The rounds spent that count against the cap, each of which may have been released."""
        return together(run.part(run.spent) for run in self.counting(now))

    def taken(self, without: str | None = None, now: datetime | None = None) -> Spending:
        """What a training must leave room for: the reservations of open runs included."""
        return together(run.part(run.counted) for run in self.counting(now) if run.run != without)

    def weeks_that_fit(self, part: Part, days: Sequence[date]) -> int:
        """How many trainings of so many rounds fit, one on each of these days.

        Of a cap that renews, what is older than its window counts no longer.
        """
        if self.cap.weeks is None:
            return min(len(days), most_trainings(self.cap, self.taken(), *part))
        rate, noise, rounds = part
        for number, day in enumerate(days):
            first = day - timedelta(weeks=self.cap.weeks)
            within = sum(first <= other for other in days[: number + 1])
            earlier = self.taken(now=datetime.combine(day, time.min, UTC))
            if not self.cap.allows(together((*earlier, (rate, noise, within * rounds)))):
                return number
        return len(days)

    def since_the_beginning(self) -> Spending:
        """All that was ever released or is held, whether the cap renews or not."""
        return together(run.part(run.counted) for run in self.runs.values())

    def renewal(self) -> str:
        """The weaker promise of a cap that renews, with the total; empty for any other."""
        if self.cap.weeks is None:
            return ""
        total = self.cap.price(self.since_the_beginning())
        return (
            f"The cap of the ledger renews every {counted(self.cap.weeks, 'week')}: since the "
            f"beginning all its releases together cost ε = {rounded_up(total)}, and no cap "
            "limits that."
        )

    def run(self, name: str) -> RunRecord:
        """One run, which must exist and be open."""
        if name not in self.runs:
            raise EpifedError(f"run '{name}': not in this ledger")
        record = self.runs[name]
        if record.outcome != "open":
            raise EpifedError(f"run '{name}': {record.outcome} on {record.closed}; expected open")
        return record

    def named(self, training: str) -> RunRecord | None:
        """The run of a training with this name, open or not."""
        runs = (run for run in self.runs.values() if training and run.training == training)
        return next(runs, None)


def canonical(row: Row) -> str:
    """The one text of a row."""
    return json.dumps(row, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def chained(before: str, text: str) -> str:
    """The hash of a row after another's."""
    return hashlib.sha256(f"{before}\n{text}".encode()).hexdigest()


def read_book(stored: Iterable[tuple[int, object, object]]) -> Book:
    """The book of rows (number, text, hash); the first that does not fit is named."""
    book: Book | None = None
    before = GENESIS
    expected = 0
    for expected, (number, text, digest) in enumerate(stored, start=1):
        if number != expected:
            raise EpifedError(f"row {expected} is missing")
        if not isinstance(text, str) or chained(before, text) != digest:
            raise EpifedError(
                f"row {number} does not fit the chain: it, or its hash, was changed after it was "
                "written"
            )
        try:
            row = json.loads(text)
            book = _opened(row) if book is None else _applied(book, row)
        except (KeyError, TypeError, ValueError, EpifedError) as error:
            raise EpifedError(f"row {number} does not follow from those before: {error}") from None
        book.hashes.append(digest)
        before = digest
    if book is None:
        raise EpifedError("row 1 is missing")
    return book


def _opened(row: Row) -> Book:
    if row["kind"] != "init":
        raise ValueError(f"found '{row['kind']}'; expected 'init'")
    if not re.fullmatch("[0-9a-f]{16}", row["ledger"]):
        raise ValueError(f"ledger: found '{row['ledger']}'; expected 16 hexadecimal digits")
    cap = Cap(row["epsilon"], row["delta"], row["accountant"], row.get("weeks"))
    return Book(row["ledger"], row["time"], cap)


def _applied(book: Book, row: Row) -> Book:
    kind = row["kind"]
    if kind == "reserve":
        if row["run"] in book.runs:
            raise ValueError(f"run '{row['run']}' was reserved before")
        if named := book.named(row.get("training", "")):
            raise ValueError(f"training '{named.training}' was reserved before")
        book.runs[row["run"]] = _reserved(row)
    elif kind == "resume":
        record = book.run(row["run"])
        record.rounds = max(record.rounds, row["rounds"])
    elif kind == "spend":
        record = book.run(row["run"])
        record.spent += 1
        if record.spent > record.rounds:
            raise ValueError(f"more than the {record.rounds} rounds of run '{record.run}'")
    elif kind == "close":
        record = book.run(row["run"])
        record.outcome, record.closed = row["outcome"], row["time"]
        record.model_hash = row["model_hash"]
    elif kind != "adopt":
        raise ValueError(f"found '{kind}'; expected reserve, resume, spend, close or adopt")
    return book


def _reserved(row: Row) -> RunRecord:
    values = {key: row[key] for key in row.keys() - {"kind", "time"}}
    if "data_period" in values:  # rows before trainings had names and days
        remark = ", ".join(filter(None, (values["note"], values.pop("data_period"))))
        values |= {"training": "", "first_day": None, "last_day": None, "note": remark}
    for name in ("first_day", "last_day"):
        values[name] = values[name] and date.fromisoformat(values[name])
    return RunRecord(opened=row["time"], **values)


def _first_day(weeks: int, now: datetime | None) -> str:
    """When the present window of a cap that renews began, as rows write it."""
    return ((now or datetime.now(UTC)) - timedelta(weeks=weeks)).isoformat(timespec="seconds")


def _said(value: object) -> str:
    return "none" if value is None else f"'{value}'" if isinstance(value, str) else str(value)
