"""Messages between server and sites, their codes, and the range of protocols understood.

A message is a short JSON text and the bytes of one array. A contribution is one clipped vector for
each client of the site, in the roster's order. Clients not drawn are zero, so its size shows
nothing about the draw. Nothing is executed or unpickled, and sizes are bounded before decoding.

An error's text can contain data, so a site sends one of a few codes instead.

The protocol number rises when anything that parties exchange changes: tasks, answers, names of
settings, the release file. `OLDEST` is the oldest protocol that is still understood.
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from epifed.errors import EpifedError, counted, in_german
from epifed.files import write_text
from epifed.learners.base import Vector
from epifed.training.rounds import Rounds


class Code(StrEnum):
    """Why a party refused, or why an answer, a round or a release cannot be used."""

    REFUSED_EPSILON = "refused-epsilon"
    REFUSED_TOTAL = "refused-total"
    REFUSED_PERIOD = "refused-period"
    REFUSED_SETTINGS = "refused-settings"
    REFUSED_SEEDED = "refused-seeded"
    REFUSED_CHANGE = "refused-change"
    REFUSED_TRUST = "refused-trust"
    REFUSED_REPEAT = "refused-repeat"
    REFUSED_ROSTER = "refused-roster"
    DATA = "data"
    LEDGER = "ledger"
    BAD_TASK = "bad-task"
    ERROR = "error"
    ABSENT = "absent"
    NO_ANSWER = "no-answer"
    LATE = "late"
    NOT_FINITE = "not-finite"
    SHAPE = "shape"
    DTYPE = "dtype"
    NORM = "norm"
    MESSAGE = "message"
    SIZE = "size"
    FOREIGN = "foreign"
    DOUBLED = "doubled"
    SIGNATURE = "signature"
    DIGEST = "digest"
    REPORTS = "reports"
    INVENTED = "invented"
    SEALED = "sealed"
    TOTAL = "total"
    UNUSUAL = "unusual"
    VERSION = "version"
    TOO_FEW = "too-few"


SENTENCES = {
    Code.REFUSED_EPSILON: "the training's ε is above what the site allows for one release",
    Code.REFUSED_TOTAL: "the training does not fit into the site's total ε",
    Code.REFUSED_PERIOD: "the site does not offer the training's days",
    Code.REFUSED_SETTINGS: "a setting or the model is larger than the site allows",
    Code.REFUSED_SEEDED: "a test with predictable (not private) noise: simulated counts only",
    Code.REFUSED_CHANGE: "the training's name is in the site's book with other noise or content",
    Code.REFUSED_TRUST: "the training asks to trust others than those the party has pinned",
    Code.REFUSED_REPEAT: "the round was answered before, to another question",
    Code.REFUSED_ROSTER: "N or the aggregators are not those of the aggregator's own roster",
    Code.DATA: "the site's data cannot be read or does not cover the training's days",
    Code.LEDGER: "the party's own ledger is lost, damaged, an older copy, or new to its machine",
    Code.BAD_TASK: "the site did not understand the task: another version of epifed",
    Code.ERROR: "an error at the site, which is in the site's own log",
    Code.ABSENT: "the site is not connected",
    Code.NO_ANSWER: "the site did not answer in time",
    Code.LATE: "an answer to a round that is over",
    Code.NOT_FINITE: "a vector with a value that is not a finite number",
    Code.SHAPE: "vectors of the wrong shape",
    Code.DTYPE: "vectors of the wrong number format",
    Code.NORM: "a vector longer than the clip norm",
    Code.MESSAGE: "a message that is not a contribution",
    Code.SIZE: "a message of another size than an answer to the training has",
    Code.FOREIGN: "a report of a site that is not in the roster, or whose key is not",
    Code.DOUBLED: "two reports of one site in a round",
    Code.SIGNATURE: "a report whose signature does not fit its site, round, noise and content",
    Code.DIGEST: "a share that is not the one that its site signed",
    Code.REPORTS: "the aggregators were not given the same reports",
    Code.INVENTED: "a release that is not what the sums give which its aggregators signed",
    Code.SEALED: "a share that its aggregator cannot open, which spoils the round",
    Code.TOTAL: "a sum longer than all clients and the noise can be, which spoils the round",
    Code.TOO_FEW: "too few sites sent what could be used: ε was spent and nothing learned",
    Code.VERSION: "another version of epifed, whose messages differ; the site was not asked",
    Code.UNUSUAL: "a release unlike those of earlier weeks: check it before use",
}

GERMAN = {code: in_german(sentence) for code, sentence in SENTENCES.items()}
"""The sentences in German, for the pages that offices read."""

Standing = Literal["absent", "late", "refused", "faulty"]
"""A site's state by its code: not connected, too slow, refusing, or any other failure."""


def standing(code: Code) -> Standing:
    """The state of a site that a round had to do without."""
    if code == Code.ABSENT:
        return "absent"
    if code in (Code.NO_ANSWER, Code.LATE):
        return "late"
    return "refused" if code.startswith("refused-") else "faulty"


PROTOCOL, OLDEST = 3, 1
"""1: the greeting has no number. 2: the greeting states it. 3: parties are asked before a training
is charged, and deliveries carry the sums that aggregators signed."""
ASKED_FROM = 3
"""The first protocol in which a party can be asked whether it would take part."""
SIGNED_FROM = 3
"""The first protocol that all parties of a training with aggregators must understand."""
HEARD = "greeting.json"
"""The file in which a site keeps the server's last greeting."""
_VERSION = re.compile(r"[0-9A-Za-z.+-]{1,40}")


@dataclass(frozen=True)
class ProtocolRange:
    """The oldest and newest protocol that a party understands, and its version of epifed."""

    oldest: int
    newest: int
    epifed: str

    @classmethod
    def own(cls) -> "ProtocolRange":
        """The range of this installation."""
        return cls(OLDEST, PROTOCOL, version("epifed"))

    @classmethod
    def of(cls, about: Mapping[str, Any]) -> "ProtocolRange":
        """The range in a greeting: protocol 1 if it states none, 0 to 0 if it is malformed.

        >>> ProtocolRange.of({})
        ProtocolRange(oldest=1, newest=1, epifed='unknown')
        >>> ProtocolRange.of({"protocol": [2, 3], "epifed": "0.4.0"})
        ProtocolRange(oldest=2, newest=3, epifed='0.4.0')
        """
        said, named = about.get("protocol", [1, 1]), about.get("epifed")
        known = isinstance(named, str) and _VERSION.fullmatch(named)
        epifed = str(named) if known else "unknown"
        if isinstance(said, list) and len(said) == 2 and all(type(n) is int for n in said):
            return cls(said[0], said[1], epifed)
        return cls(0, 0, epifed)

    @property
    def about(self) -> dict[str, Any]:
        """The range as fields of a greeting."""
        return {"protocol": [self.oldest, self.newest], "epifed": self.epifed}

    def understands(self, other: "ProtocolRange") -> bool:
        """Whether the two ranges overlap."""
        return max(self.oldest, other.oldest) <= min(self.newest, other.newest)

    def __str__(self) -> str:
        """The version and the range, as text."""
        return f"epifed {self.epifed} (protocols {self.oldest} to {self.newest})"


def foreign(spoken: Mapping[str, ProtocolRange], oldest: int = OLDEST) -> dict[str, ProtocolRange]:
    """The parties that this server does not understand, if it speaks no protocol below `oldest`."""
    own = ProtocolRange.own()
    own = replace(own, oldest=max(own.oldest, oldest))
    return {name: theirs for name, theirs in spoken.items() if not own.understands(theirs)}


def refuse_foreign(
    others: Mapping[str, ProtocolRange], needed: Collection[str], left: int, least: int
) -> None:
    """Refuse a training, before it is charged, that too few parties would understand.

    Raises if `others` include one of `needed`, or leave fewer than `least` sites (`left`).
    """
    missing = sorted(others.keys() & set(needed))
    if missing or (others and left < least):
        name = missing[0] if missing else min(others)
        expected = "every aggregator" if missing else f"at least {counted(least, 'site')}"
        raise EpifedError(
            f"'{name}' runs {others[name]} and this server {ProtocolRange.own()}, which do not "
            f"understand each other; expected {expected} of a neighbouring version; nothing was "
            "spent"
        )


def hear(kit: Path, about: Mapping[str, Any]) -> ProtocolRange:
    """Read the server's greeting and keep it for `epifed federation check`."""
    said = ProtocolRange.of(about)
    when = datetime.now(UTC).isoformat(timespec="seconds")
    write_text(kit / HEARD, json.dumps(said.about | {"time": when}))
    return said


def heard(kit: Path) -> tuple[ProtocolRange, str] | None:
    """The server's last greeting and its time; None before the first training."""
    try:
        about = json.loads((kit / HEARD).read_text(encoding="utf-8"))
        return ProtocolRange.of(about), str(about["time"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


Parts = dict[str, Any]
"""A message in transit: {"about": JSON text, "array": bytes}."""

SEALED_FIELDS = {"site", "aggregators", "length", "least"}
"""Fields of a task that are sent only if there are aggregators."""
MOST_TEXT = 1_000_000
"""Most characters of the JSON text of a message."""
MOST_ARRAY = 512 * 2**20
"""Most bytes of the array of a message."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,60}")
"""A training's name, which becomes the name of a folder and a file: letters, digits, hyphens."""


def most_bytes(clients: int, length: int) -> int:
    """The most bytes of an answer for so many clients, with room for what FLARE adds.

    Sealed reports and partial sums have eight bytes a number, however many clients there are.
    """
    return max(4 * clients, 8) * length + 2 * MOST_TEXT


class MessageError(EpifedError):
    """A message that is refused; `code` is the reason.

    `detail` is for the party's own log.
    """

    def __init__(self, code: Code, detail: str = "") -> None:
        super().__init__(f"{code.value}: {detail}" if detail else code.value)
        self.code, self.detail = code, detail


@dataclass(frozen=True)
class Task:
    """The server's request to one site in a round."""

    training: str
    round: int
    rounds: int
    paid: int
    """Rounds charged before this one, including repeated rounds."""
    settings: str
    first_day: str
    last_day: str
    enrolled: int
    """N, the denominator of the accountant's q = m / N."""
    noise_multiplier: float
    randomness: str
    clients: tuple[str, ...]
    """All clients of this site, in the roster's order."""
    drawn: str
    """One digit for each client: 1 if drawn, else 0. A site is not told other sites' draws. Empty
    if the site draws its clients itself."""
    state: Vector
    site: str = ""
    aggregators: tuple[tuple[str, str], ...] = ()
    """Names and public keys of the aggregators; if empty, the server adds up."""
    length: int = 0
    """With aggregators: the length of a contribution."""
    least: int = 0
    """With aggregators: the fewest sites of a sum that may be used."""

    @property
    def period(self) -> tuple[date, date]:
        """First and last day of the training data."""
        return date.fromisoformat(self.first_day), date.fromisoformat(self.last_day)

    @property
    def numbers(self) -> int:
        """The size of the model, in numbers."""
        return int(self.state.size)

    @property
    def repeated(self) -> int:
        """Rounds that were charged and had to be run again."""
        return max(0, self.paid + 1 - self.round)

    @property
    def draws_itself(self) -> bool:
        """Whether the site draws its clients itself, so that nobody else learns who was drawn."""
        return bool(self.aggregators) and self.randomness == "secure"

    def chosen(self) -> list[int]:
        """The positions of the drawn clients among the site's clients."""
        return [i for i, mark in enumerate(self.drawn) if mark == "1"]


def pack_task(task: Task) -> Parts:
    """Encode a task as a message."""
    unsaid = {"state"} if task.aggregators else {"state", *SEALED_FIELDS}
    return _packed({k: v for k, v in vars(task).items() if k not in unsaid}, task.state)


def pack_tasks(tasks: Mapping[str, Task]) -> dict[str, Parts]:
    """Encode a round's tasks as messages by site; a state that they share is held once."""
    states: dict[int, Any] = {}
    packed = {}
    for site, task in tasks.items():
        parts = pack_task(task)
        packed[site] = parts | {"array": states.setdefault(id(task.state), parts["array"])}
    return packed


def unpack_task(parts: Parts) -> Task:
    """Decode a task; raises `MessageError` if a site must not act on it."""
    about = _about(parts)
    state = _array(about, parts)
    try:
        about["clients"] = tuple(about["clients"])
        about["aggregators"] = tuple((n, keys) for n, keys in about.get("aggregators", ()))
        named = set(Task.__dataclass_fields__) - {"state", *SEALED_FIELDS}
        known = {name: about[name] for name in named | (SEALED_FIELDS & about.keys())}
        task = Task(**known, state=state)
        good = (
            NAME.fullmatch(task.training) is not None
            and all(isinstance(client, str) for client in task.clients)
            and re.fullmatch("[01]*", task.drawn) is not None
            and len(task.drawn) == (0 if task.draws_itself else len(task.clients))
            and all(isinstance(n, int) for n in (task.round, task.rounds, task.paid, task.enrolled))
            and 1 <= task.round <= task.rounds
            and task.paid >= 0
            and task.enrolled >= len(task.clients)
            and float(task.noise_multiplier) >= 0
            and task.period[0] <= task.period[1]
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        good = False
    if not good:
        raise MessageError(Code.BAD_TASK)
    return task


def pack_contribution(training: str, number: int, rows: Vector) -> Parts:
    """Encode a site's answer: a clipped vector for each of its clients, and nothing else."""
    return _packed({"training": training, "round": number}, rows)


def pack_code(training: str, number: int, code: Code) -> Parts:
    """Encode the answer of a party that contributes nothing: a code for the reason."""
    about = {"training": training, "round": number, "code": code.value}
    return {"about": json.dumps(about)}


def accept(parts: Parts, task: Task, rounds: Rounds[Any]) -> tuple[dict[str, Vector], list[Code]]:
    """The accepted vectors by drawn client, and the codes of the rejected ones.

    A rejected vector counts as zero and leaves the others valid. A message that is not a
    contribution is refused as a whole.
    """
    about = read_about(parts)
    if about.get("training") != task.training or about.get("round") != task.round:
        raise MessageError(Code.LATE)
    array = _array(about, parts)
    if array.shape != (len(task.clients), rounds.length):
        raise MessageError(Code.SHAPE)
    good: dict[str, Vector] = {}
    wrong: list[Code] = []
    for client, mark, row in zip(task.clients, task.drawn, array, strict=True):
        reason = rounds.accept(row)
        if reason:
            wrong.append(Code(reason))
        elif mark == "1":
            good[client] = row
    return good, wrong


def said(parts: Parts) -> dict[str, Any]:
    """The fields of a greeting, which the caller must check; empty if it is no message."""
    try:
        return _about(parts)
    except (MessageError, AttributeError, KeyError, TypeError, ValueError):
        return {}


def unreceived(parts: Parts, sha256: str) -> Code | None:
    """Why a site does not have the release with this hash, by its answer; None if it has it."""
    try:
        about = read_about(parts)
    except MessageError as error:
        return error.code
    return None if about.get("sha256") == sha256 else Code.MESSAGE


def _packed(about: dict[str, Any], array: NDArray[Any]) -> Parts:
    array = np.ascontiguousarray(array)
    about = about | {"dtype": array.dtype.name, "shape": array.shape}
    return {"about": json.dumps(about), "array": array.tobytes()}


def read_about(parts: Parts) -> dict[str, Any]:
    """The fields of a message; raises `MessageError` if it is invalid or carries a code."""
    about = _about(parts)
    if "code" in about:
        raise MessageError(_code(about["code"]))
    return about


def _about(parts: Parts) -> dict[str, Any]:
    text = parts.get("about")
    if not isinstance(text, str) or len(text) > MOST_TEXT:
        raise MessageError(Code.MESSAGE)
    try:
        about = json.loads(text)
    except (ValueError, RecursionError):
        raise MessageError(Code.MESSAGE) from None
    if not isinstance(about, dict):
        raise MessageError(Code.MESSAGE)
    return about


def _array(about: dict[str, Any], parts: Parts) -> NDArray[Any]:
    content = parts.get("array")
    if not isinstance(content, bytes) or len(content) > MOST_ARRAY:
        raise MessageError(Code.MESSAGE)
    if about.get("dtype") != "float32":
        raise MessageError(Code.DTYPE)
    shape = about.get("shape")
    if not isinstance(shape, list) or not all(
        type(size) is int and 0 <= size <= MOST_ARRAY for size in shape
    ):
        raise MessageError(Code.SHAPE)
    try:
        return np.frombuffer(content, dtype=np.float32).copy().reshape(shape)
    except ValueError:
        raise MessageError(Code.SHAPE) from None


def _code(text: object) -> Code:
    if isinstance(text, str) and text in set(Code):
        return Code(text)
    return Code.MESSAGE
