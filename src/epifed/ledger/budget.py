"""The joint privacy cost of several trainings, and what else fits under a cap.

The ε of two trainings together is less than the sum of theirs. So every question is answered by
composing all events that count and pricing the whole. This module also holds the rows of a ledger
file, chained by hashes, and the plan of a year's weekly budgets.
"""

import hashlib
import json
import math
import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import ROUND_FLOOR, Context
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypedDict

import dp_accounting as dp
from scipy.optimize import brentq

from epifed.errors import EpifedError, counted
from epifed.privacy.accounting import (
    NEIGHBOURING,
    UNIT,
    calibrate,
    epsilon_of,
    epsilon_of_gaussian,
    find_accountant,
    rounded_up,
    training_event,
)

Part = tuple[float, float, int]
"""Rounds of one mechanism: the sampling rate q, the noise multiplier c, and their number."""
Spending = tuple[Part, ...]
"""Parts in sorted order, so that the same rounds always have the same price."""

_ROUNDING = 1e-9
"""Relative rounding error allowed for composing different mechanisms."""
_PRECISION = 1e-3
_LARGEST_NOISE = 1e6
_MOST_TRAININGS = 2**20


LARGEST_DELTA = 1e-2
"""The largest δ that a cap may have."""
LARGEST_USUAL_DELTA = 1e-3
"""A cap with a larger δ comes with a warning."""


@dataclass(frozen=True)
class Cap:
    """The (ε, δ) that all trainings of a federation together may cost at most."""

    epsilon: float
    delta: float
    accountant: str
    weeks: int | None = None
    """Length of the window of a cap that renews, in weeks; none: the cap never renews."""

    def __post_init__(self) -> None:
        """Refuse values that make no cap."""
        if self.weeks is not None and self.weeks < 1:
            raise EpifedError(f"weeks: found {self.weeks}; expected at least 1, or none")
        if not 0 < self.epsilon < math.inf:
            raise EpifedError(
                f"epsilon: found {self.epsilon}; expected a finite number above 0: try 1"
            )
        if not 0 < self.delta <= LARGEST_DELTA:
            raise EpifedError(
                f"delta: found {self.delta}; expected a number above 0 and at most "
                f"{LARGEST_DELTA:g}: {_exposed(self.delta)}"
            )
        find_accountant(self.accountant)

    def price(self, spending: Spending) -> float:
        """The ε of all these rounds at the cap's δ."""
        return _price(spending, self.delta, self.accountant)

    def allows(self, spending: Spending) -> bool:
        """Whether all these rounds together stay within ε."""
        return self.price(spending) <= self.epsilon

    def sentence(self) -> str:
        """The cap with everything that must be quoted: δ, neighbours and accountant."""
        return (
            f"ε = {rounded_up(self.epsilon)} at δ = {rounded_up(self.delta)} ({UNIT} added or "
            f"removed, {self.accountant.upper()} accountant)" + self._renewal()
        )

    def _renewal(self) -> str:
        if self.weeks is None:
            return ""
        return (
            f" in every window of {counted(self.weeks, 'week')}, which renews: it is weaker than "
            "a cap once and for all, because what is released over the years adds up without end"
        )

    def warning(self) -> str | None:
        """A warning about an unusually large δ, or none."""
        if self.delta <= LARGEST_USUAL_DELTA:
            return None
        return f"δ = {rounded_up(self.delta)} is large: {_exposed(self.delta)}"

    def to_dict(self) -> dict[str, object]:
        """The cap as a dictionary for JSON, with neighbouring relation and unit."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "accountant": self.accountant,
            "neighbouring": NEIGHBOURING,
            "unit": UNIT,
            "weeks": self.weeks,
        }


@dataclass(frozen=True)
class Schedule:
    """Equal trainings that fit under a cap: their number, the noise of each and its own ε."""

    releases: int
    noise_multiplier: float
    epsilon_each: float


def together(parts: Iterable[Part]) -> Spending:
    """Parts as one spending, with equal mechanisms added up."""
    counts: Counter[tuple[float, float]] = Counter()
    for sampling_rate, noise_multiplier, rounds in parts:
        counts[float(sampling_rate), float(noise_multiplier)] += rounds
    return tuple(
        (rate, noise, rounds) for (rate, noise), rounds in sorted(counts.items()) if rounds
    )


def least_noise(cap: Cap, spent: Spending, sampling_rate: float, rounds: int) -> float | None:
    """The smallest noise multiplier, to 0.1 %, with which the rounds fit; none if none does."""
    if not spent:
        found = calibrate(cap.epsilon, cap.delta, sampling_rate, rounds, cap.accountant)
        return found.noise_multiplier

    def excess(log_c: float) -> float:
        spending = together((*spent, (sampling_rate, math.exp(log_c), rounds)))
        return math.log(max(cap.price(spending), cap.epsilon / 1e6) / cap.epsilon)

    if excess(math.log(_LARGEST_NOISE)) > 0:
        return None
    low, high = math.log(0.5), math.log(1.0)
    while excess(high) > 0:
        low, high = high, high + 1
    while excess(low) <= 0:
        low, high = low - 1, low
    log_c = brentq(excess, low, high, xtol=_PRECISION / 4)
    while excess(log_c) > 0:
        log_c += _PRECISION / 4
    return math.exp(log_c)


def most_rounds(
    cap: Cap, spent: Spending, sampling_rate: float, noise_multiplier: float, wanted: int
) -> int:
    """The largest number of rounds, at most `wanted`, that fits with this noise."""
    fits, too_many = 0, wanted + 1
    while too_many - fits > 1:
        rounds = (fits + too_many) // 2
        if cap.allows(together((*spent, (sampling_rate, noise_multiplier, rounds)))):
            fits = rounds
        else:
            too_many = rounds
    return fits


def most_trainings(
    cap: Cap, spent: Spending, sampling_rate: float, noise_multiplier: float, rounds: int
) -> int:
    """The largest number of trainings of so many rounds that fit with this noise."""

    def allowed(trainings: int) -> bool:
        part = (sampling_rate, noise_multiplier, trainings * rounds)
        return cap.allows(together((*spent, part)))

    if not allowed(1):
        return 0
    fits = 1
    while fits < _MOST_TRAININGS and allowed(2 * fits):
        fits *= 2
    step = fits // 2
    while step:
        if allowed(fits + step):
            fits += step
        step //= 2
    return fits


def schedule(
    cap: Cap, spent: Spending, sampling_rate: float, rounds: int, releases: int
) -> Schedule:
    """The noise with which so many equal trainings fit beside the rounds already spent."""
    noise = least_noise(cap, spent, sampling_rate, rounds * releases)
    if noise is None:
        raise EpifedError(
            f"no noise makes {counted(releases, 'training')} fit: ε = "
            f"{rounded_up(cap.price(spent))} of the "
            f"cap of {cap.sentence()} is taken"
        )
    each = cap.price(together([(sampling_rate, noise, rounds)]))
    return Schedule(releases=releases, noise_multiplier=noise, epsilon_each=each)


def refusal(cap: Cap, spent: Spending, wanted: Part) -> str:
    """The error message for a training that exceeds the cap, with what would fit."""
    rate, noise, rounds = wanted
    total = cap.price(together((*spent, wanted)))
    taken = cap.price(spent)
    fitting = []
    least = least_noise(cap, spent, rate, rounds)
    if least is not None:
        alone = cap.price(together([(rate, least, rounds)]))
        fitting.append(
            f"{counted(rounds, 'round')} with a noise multiplier of at least {rounded_up(least)} "
            f"(a training of at most ε = {rounded_down(alone)} by itself)"
        )
    fewer = most_rounds(cap, spent, rate, noise, rounds - 1) if noise > 0 else 0
    if fewer:
        fitting.append(f"{counted(fewer, 'round')} at this noise")
    return (
        f"this training would pass the cap of {cap.sentence()}: {counted(rounds, 'round')} with "
        "noise "
        f"multiplier c = {noise:.6g} at q = {rate:g} would bring ε to {rounded_up(total)}; taken "
        f"so far: ε = {rounded_up(taken)}, left: ε = {rounded_down(left(cap, taken))}; what would "
        f"fit: {', or '.join(fitting) or 'nothing'}"
    )


def left(cap: Cap, taken: float) -> float:
    """The ε that is left of the cap, at least 0."""
    return max(0.0, cap.epsilon - taken)


def rounded_down(epsilon: float) -> str:
    """A remaining ε with six digits, rounded down.

    >>> rounded_down(0.12345678)
    '0.123456'
    """
    return f"{float(Context(prec=6, rounding=ROUND_FLOOR).create_decimal(repr(epsilon))):g}"


def _exposed(delta: float) -> str:
    return (
        f"it allows that each client's data are revealed entirely with a chance of {delta:g}; δ "
        "should be far below one over the number of clients, as 1e-05"
    )


@lru_cache(maxsize=4096)
def _price(spending: Spending, delta: float, accountant: str) -> float:
    events = [training_event(*part) for part in spending]
    if not events:
        return 0.0
    if len(events) == 1:
        return epsilon_of(events[0], delta, accountant)
    return epsilon_of(dp.ComposedDpEvent(events), delta, accountant) * (1 + _ROUNDING)


Rule = Literal["uniform", "trend"]
RULES: tuple[Rule, ...] = ("uniform", "trend")

FILTER = "gaussian"
"""The accountant whose prices hold for adaptively chosen releases."""
TURNING = 0.10
"""The least change of weekly log growth between two weeks that counts as a turn."""
FLAT = 0.05
"""Log growth below which, in two weeks in a row, the trend counts as flat."""
MORE, LESS = 2.0, 0.5
"""Shares of a week while the trend turns, and while it is flat."""


@dataclass(frozen=True)
class Week:
    """The planned budget of one week."""

    week: int
    shares: float
    """Relative to an even share of what is left."""
    noise_multiplier: float
    epsilon_alone: float
    """The ε of this release alone, at the δ of the cap."""
    epsilon_together: float
    """The ε of all releases up to this one."""


def shares(growth: Sequence[float]) -> float:
    """The number of even shares for the next week, from the released log growth of past weeks.

    >>> shares([0.20, 0.02]), shares([0.01, -0.02]), shares([0.20, 0.22]), shares([0.1])
    (2.0, 0.5, 1.0, 1.0)
    """
    if len(growth) < 2:
        return 1.0
    before, now = growth[-2:]
    if abs(now - before) >= TURNING:
        return MORE
    return LESS if max(abs(now), abs(before)) < FLAT else 1.0


def spend(left: float, weeks_left: int, weight: float) -> float:
    """The part of what is left for a week, where each later week counts as one share.

    Only the last week takes all that is left, so the sum never exceeds the total.
    """
    return left * weight / (weight + weeks_left - 1)


def total_of(cap: Cap) -> float:
    """The μ² that a cap allows: the largest Σ 1/c² whose ε is within the cap."""

    def excess(log_squared: float) -> float:
        return epsilon_of_gaussian(math.exp(log_squared), cap.delta) - cap.epsilon

    low, high = math.log(1e-12), 0.0
    while excess(high) < 0:
        high += 2
    found = math.exp(float(brentq(excess, low, high, xtol=1e-13)))
    while epsilon_of_gaussian(found, cap.delta) > cap.epsilon:
        found *= 1 - 1e-12
    return found


def plan_year(
    cap: Cap, weeks: int, rule: Rule, growth: Sequence[float] = (), spent: float = 0.0
) -> list[Week]:
    """The budget of each of so many weeks, with one release of all clients a week.

    Parameters
    ----------
    cap
        The (ε, δ) of all weeks together, by the Gaussian filter.
    weeks
    Number of coming releases.
    rule
        `uniform`, or `trend`: twice as much while the released trend turns, half while it is flat.
    growth
    Released log growth of past weeks, the oldest first. Week i uses only earlier weeks. A week
    whose past is not yet released gets an even share.
    spent
    Σ 1/c² of earlier releases of the same clients.

    Returns
    -------
    A row for each week.

    Raises
    ------
    EpifedError
    If the cap's accountant does not allow adaptive choices, or nothing is left.
    """
    if cap.accountant != FILTER:
        raise EpifedError(
            f"accountant: found '{cap.accountant}' with the rule '{rule}' of a year; expected "
            f"'{FILTER}' (all clients in every round), because no filter is proven for the least ε "
            "over many Rényi orders or for PLD with sampled clients; a plan of equal weeks that is "
            "fixed beforehand is 'epifed ledger plan --releases 52'"
        )
    left = total_of(cap) - spent
    if left <= 0:
        raise EpifedError(f"nothing is left of the cap of {cap.sentence()}")
    planned = []
    for week in range(1, weeks + 1):
        known = growth[: week - 1] if week - 1 <= len(growth) else ()
        weight = shares(known) if rule == "trend" else 1.0
        taken = spend(left, weeks - week + 1, weight)
        left -= taken
        spent += taken
        planned.append(
            Week(
                week,
                weight,
                1 / math.sqrt(taken),
                epsilon_of_gaussian(taken, cap.delta),
                min(epsilon_of_gaussian(spent, cap.delta), cap.epsilon),
            )
        )
    return planned


WAIT_SECONDS = 60.0
"""Seconds that a transaction waits for another process that is writing."""

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

    The rollback journal uses synchronous = EXTRA, which also makes its removal durable. That
    removal is the commit. An exception leaves the file as it was. `foreign` is the error message
    for another kind of file. A `read_only` transaction changes nothing. It is refused after a crash
    until the next writer has repaired a half-written file.
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
    """The fields by which a training is found: its name, privacy parameters, settings and days."""

    training: str
    sampling_rate: float
    noise_multiplier: float
    settings_hash: str
    first_day: date | None
    last_day: date | None


@dataclass
class RunRecord:
    """One training in the ledger: its reservation, and the rounds it has spent."""

    run: str
    opened: str
    sampling_rate: float
    noise_multiplier: float
    rounds: int
    mechanism: str
    accountant: str
    settings_hash: str
    training: str
    """The training's name, used once in a ledger; empty without a name."""
    first_day: date | None
    last_day: date | None
    note: str
    """A remark for humans; no code reads it."""
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
        """The days of the training data as text; empty if not known."""
        return f"{self.first_day} … {self.last_day}" if self.first_day else ""

    def differences(self, key: Key) -> list[str]:
        """The differences of this training from a key, as texts of found and expected values."""
        return [
            f"{name.replace('_', ' ')}: found {_said(found)}; expected {_said(wanted)}"
            for name, wanted in key.items()
            if (found := getattr(self, name)) != wanted
        ]


@dataclass
class Book:
    """The content of a ledger's rows."""

    ledger: str
    created: str
    cap: Cap
    runs: dict[str, RunRecord] = field(default_factory=dict)
    hashes: list[str] = field(default_factory=list)

    @property
    def head(self) -> str:
        """The hash of the last row, which covers all rows."""
        return self.hashes[-1]

    def counting(self, now: datetime | None = None) -> list[RunRecord]:
        """The runs that count against the cap: all, or those open or closed within its window."""
        first = "" if self.cap.weeks is None else _first_day(self.cap.weeks, now)
        return [run for run in self.runs.values() if run.closed is None or run.closed >= first]

    def released(self, now: datetime | None = None) -> Spending:
        """The spent rounds that count against the cap; each may have been released."""
        return together(run.part(run.spent) for run in self.counting(now))

    def taken(self, without: str | None = None, now: datetime | None = None) -> Spending:
        """All rounds that count against the cap, including reservations of open runs."""
        return together(run.part(run.counted) for run in self.counting(now) if run.run != without)

    def weeks_that_fit(self, part: Part, days: Sequence[date]) -> int:
        """How many trainings of so many rounds fit, one on each of these days.

        Trainings older than the window of a renewing cap do not count.
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
        """All rounds ever released or reserved, even those outside a renewing cap's window."""
        return together(run.part(run.counted) for run in self.runs.values())

    def renewal(self) -> str:
        """A sentence on the weaker guarantee of a renewing cap, with the total ε; else empty."""
        if self.cap.weeks is None:
            return ""
        total = self.cap.price(self.since_the_beginning())
        return (
            f"The cap of the ledger renews every {counted(self.cap.weeks, 'week')}: since the "
            f"beginning all its releases together cost ε = {rounded_up(total)}, and no cap "
            "limits that."
        )

    def run(self, name: str) -> RunRecord:
        """The open run of this name; any other raises an error."""
        if name not in self.runs:
            raise EpifedError(f"run '{name}': not in this ledger")
        record = self.runs[name]
        if record.outcome != "open":
            raise EpifedError(f"run '{name}': {record.outcome} on {record.closed}; expected open")
        return record

    def named(self, training: str) -> RunRecord | None:
        """The run of the training with this name, open or not, if there is one."""
        runs = (run for run in self.runs.values() if training and run.training == training)
        return next(runs, None)


def canonical(row: Row) -> str:
    """A row as canonical JSON text."""
    return json.dumps(row, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def chained(before: str, text: str) -> str:
    """The hash of a row that follows the row with hash `before`."""
    return hashlib.sha256(f"{before}\n{text}".encode()).hexdigest()


def read_book(stored: Iterable[tuple[int, object, object]]) -> Book:
    """Check rows (number, text, hash) and read them; an error names the first wrong row."""
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
    if "data_period" in values:  # rows from before trainings had names and days
        remark = ", ".join(filter(None, (values["note"], values.pop("data_period"))))
        values |= {"training": "", "first_day": None, "last_day": None, "note": remark}
    for name in ("first_day", "last_day"):
        values[name] = values[name] and date.fromisoformat(values[name])
    return RunRecord(opened=row["time"], **values)


def _first_day(weeks: int, now: datetime | None) -> str:
    """The start of the present window of a renewing cap, in the time format of rows."""
    return ((now or datetime.now(UTC)) - timedelta(weeks=weeks)).isoformat(timespec="seconds")


def _said(value: object) -> str:
    return "none" if value is None else f"'{value}'" if isinstance(value, str) else str(value)
