"""All messages between the parties, the terms of a round, and the codes of refusals.

A message is a short JSON text and the bytes of one array. Nothing is executed or unpickled, and
sizes are bounded before decoding. In the order of a training:

| message | from | to | holds |
| --- | --- | --- | --- |
| `Greeting` | both | both | the protocols that are understood; an aggregator's keys |
| `RoundTerms` | server | party | the question whether it would take part |
| `Readiness` | party | server | yes or a code, with ε as the party counts it |
| `Task` | server | site | the terms of a round, the site's clients, the state |
| contribution | site | server | a clipped vector for each client; without aggregators |
| `Report` | site | server | a sealed share for each aggregator, and a signature |
| `Question` | server | aggregator | its shares of all reports |
| `PartialSum` | aggregator | server | the noisy sum of the shares, signed |
| `Delivery` | server | party | the release, and with aggregators its `Evidence` |

All of them follow from one object, `RoundTerms`, and one check, `RoundTerms.of`. Its digest is in
every seal and signature, so nothing of one round, training, N, c or S is valid for another. Clients
that are not drawn are zero in a contribution, so its size shows nothing about the draw.

An error's text can contain data, so a party sends one of a few codes instead.

The protocol number rises when anything that parties exchange changes: tasks, answers, names of
settings, the release file. `OLDEST` is the oldest protocol that is still understood.
"""

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, date, datetime
from enum import StrEnum
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from epifed.errors import EpifedError, counted, in_german
from epifed.federation.crypto import (
    DIGEST,
    SIGNATURE,
    PublicKeys,
    ReportKey,
    SecretKeys,
    Words,
    bound,
    digest,
    sealed_bytes,
    signed_by,
    split,
    to_bytes,
    words,
)
from epifed.files import write_text
from epifed.learners.base import Vector
from epifed.privacy.plan import PrivacyPlan
from epifed.settings import Settings
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


class MessageError(EpifedError):
    """A message that is refused; `code` is the reason.

    `detail` is for the party's own log.
    """

    def __init__(self, code: Code, detail: str = "") -> None:
        super().__init__(f"{code.value}: {detail}" if detail else code.value)
        self.code, self.detail = code, detail


Standing = Literal["absent", "late", "refused", "faulty"]
"""A site's state by its code: not connected, too slow, refusing, or any other failure."""


def standing(code: Code) -> Standing:
    """The state of a site that a round had to do without."""
    if code == Code.ABSENT:
        return "absent"
    if code in (Code.NO_ANSWER, Code.LATE):
        return "late"
    return "refused" if code.startswith("refused-") else "faulty"


Parts = dict[str, Any]
"""A message in transit: {"about": JSON text, "array": bytes}."""

MOST_TEXT = 1_000_000
"""Most characters of the JSON text of a message."""
MOST_ARRAY = 512 * 2**20
"""Most bytes of the array of a message."""
MOST_NUMBERS = MOST_ARRAY // 8
"""Most numbers of a vector."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,60}")
"""A training's name, which becomes the name of a folder and a file: letters, digits, hyphens."""


def most_bytes(clients: int, length: int) -> int:
    """The most bytes of an answer for so many clients, with room for what FLARE adds.

    Sealed reports and partial sums have eight bytes a number, however many clients there are.
    """
    return max(4 * clients, 8) * length + 2 * MOST_TEXT


def _packed(about: dict[str, Any], content: bytes | None = None) -> Parts:
    parts: Parts = {"about": json.dumps(about)}
    return parts if content is None else parts | {"array": content}


def _of_array(array: NDArray[Any]) -> tuple[dict[str, Any], bytes]:
    """The fields that describe an array, and its bytes."""
    array = np.ascontiguousarray(array)
    return {"dtype": array.dtype.name, "shape": array.shape}, array.tobytes()


def _fields(parts: Parts) -> dict[str, Any]:
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


def fields_or_none(parts: Parts) -> dict[str, Any]:
    """The fields of a message, which the caller must check; empty if it is no message."""
    try:
        return _fields(parts)
    except (MessageError, AttributeError, KeyError, TypeError, ValueError):
        return {}


def read_about(parts: Parts) -> dict[str, Any]:
    """The fields of a message; raises `MessageError` if it is invalid or carries a code."""
    about = _fields(parts)
    if "code" in about:
        code = about["code"]
        raise MessageError(
            Code(code) if isinstance(code, str) and code in set(Code) else Code.MESSAGE
        )
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


def cut(content: object, sizes: Sequence[int]) -> list[bytes]:
    """Cut bytes into pieces of these sizes; raises if the total differs."""
    if not isinstance(content, bytes):
        raise MessageError(Code.MESSAGE)
    if len(content) != sum(sizes):
        raise MessageError(Code.SIZE)
    ends = np.cumsum(sizes, dtype=np.int64).tolist()
    return [content[end - size : end] for size, end in zip(sizes, ends, strict=True)]


PROTOCOL, OLDEST = 4, 4
"""4: all messages of a round have the same terms."""
LAST_GREETING = "greeting.json"
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
        >>> ProtocolRange.of({"protocol": [4, 5], "epifed": "0.4.0"})
        ProtocolRange(oldest=4, newest=5, epifed='0.4.0')
        """
        numbers, named = about.get("protocol", [1, 1]), about.get("epifed")
        epifed = named if isinstance(named, str) and _VERSION.fullmatch(named) else "unknown"
        if isinstance(numbers, list) and [type(n) for n in numbers] == [int, int]:
            return cls(numbers[0], numbers[1], epifed)
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


@dataclass(frozen=True)
class Greeting:
    """What the server and a party state of themselves when a job starts."""

    protocols: ProtocolRange
    settings: str = ""
    """The settings of the training, from the server."""
    keys: str = ""
    """The public keys of an aggregator."""

    @classmethod
    def own(cls, **stated: str) -> "Greeting":
        """The greeting of this installation."""
        return cls(ProtocolRange.own(), **stated)

    def pack(self) -> Parts:
        """Encode the greeting as a message."""
        return _packed(self.protocols.about | {"settings": self.settings, "keys": self.keys})

    @classmethod
    def unpack(cls, parts: Parts) -> "Greeting":
        """Decode a greeting; one that is invalid states nothing."""
        about = fields_or_none(parts)
        stated = (about.get(name, "") for name in ("settings", "keys"))
        return cls(
            ProtocolRange.of(about), *(text if isinstance(text, str) else "" for text in stated)
        )

    def remember(self, kit: Path) -> None:
        """Keep the server's greeting for `epifed federation check`."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        write_text(kit / LAST_GREETING, json.dumps(self.protocols.about | {"time": now}))


def last_greeting(kit: Path) -> tuple[ProtocolRange, str] | None:
    """The protocols of the server's last greeting and its time; None before the first training."""
    try:
        about = json.loads((kit / LAST_GREETING).read_text(encoding="utf-8"))
        return ProtocolRange.of(about), str(about["time"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def not_understood(stated: Mapping[str, ProtocolRange]) -> dict[str, ProtocolRange]:
    """The parties that this server does not understand."""
    own = ProtocolRange.own()
    return {name: theirs for name, theirs in stated.items() if not own.understands(theirs)}


def refuse_versions(
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


@dataclass(frozen=True, kw_only=True)
class RoundTerms:
    """All terms of a round that its parties must agree on. They fix its price.

    They are also the question whether a party would take part in the rounds from this one on.
    """

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
    """c of the noise that is added, by each aggregator if there are any."""
    randomness: str
    numbers: int
    """The size of the model, in numbers."""
    length: int
    """The length of the vector of a client."""
    start: str
    """The digest of the state from which the round starts."""
    least: int = 1
    """The fewest sites whose contributions may be used."""
    aggregators: tuple[tuple[str, str], ...] = ()
    """Their names and public keys, in the roster's order; if empty, the server adds up."""

    @classmethod
    def make(
        cls,
        training: str,
        settings: Settings,
        plan: PrivacyPlan,
        period: tuple[date, date],
        state: Vector,
        length: int,
        **stated: Any,
    ) -> "RoundTerms":
        """The terms of a training's first round, or with `stated` other fields."""
        values: dict[str, Any] = {
            "round": 1,
            "rounds": plan.rounds,
            "paid": 0,
            "noise_multiplier": plan.noise_multiplier,
            "randomness": "secure",
        }
        return cls(
            training=training,
            settings=settings.to_toml(),
            first_day=str(period[0]),
            last_day=str(period[1]),
            enrolled=plan.clients,
            numbers=int(state.size),
            length=length,
            start=state_digest(state),
            **values | stated,
        )

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "RoundTerms":
        """The terms from a message's fields; raises `MessageError` if they are invalid."""
        try:
            stated = {field.name: values[field.name] for field in fields(RoundTerms)}
            keys = tuple(
                (str(name), PublicKeys.of(key).text) for name, key in stated["aggregators"]
            )
            terms = RoundTerms(**stated | {"aggregators": keys})
            whole = (terms.round, terms.rounds, terms.paid, terms.enrolled, terms.least)
            sizes = (terms.numbers, terms.length)
            valid = (
                isinstance(terms.training, str)
                and NAME.fullmatch(terms.training) is not None
                and all(type(number) is int for number in (*whole, *sizes))
                and 1 <= terms.round <= terms.rounds
                and min(terms.enrolled, terms.least) >= 1
                and terms.paid >= 0
                and 0 <= terms.numbers <= MOST_NUMBERS
                and 1 <= terms.length <= MOST_NUMBERS
                and isinstance(terms.settings, str)
                and terms.period[0] <= terms.period[1]
                and type(terms.noise_multiplier) is float
                and 0 <= terms.noise_multiplier < math.inf
                and terms.randomness in ("secure", "seeded")
                and len(bytes.fromhex(terms.start)) == DIGEST
                and (not keys or terms._valid_with_aggregators())
            )
        except (KeyError, TypeError, ValueError, EpifedError):
            valid = False
        if not valid:
            raise MessageError(Code.BAD_TASK)
        return terms

    def _valid_with_aggregators(self) -> bool:
        """Whether several aggregators add noise, and no round is repeated: answers are kept."""
        several = len(dict(self.aggregators)) == len(self.aggregators) >= 2
        return several and self.noise_multiplier > 0 and self.paid == self.round - 1

    @property
    def agreed(self) -> dict[str, Any]:
        """The terms as fields of a message."""
        return {field.name: getattr(self, field.name) for field in fields(RoundTerms)}

    def pack(self) -> Parts:
        """Encode the question whether a party would take part."""
        return _packed(self.agreed)

    @classmethod
    def unpack(cls, parts: Parts) -> "RoundTerms":
        """Decode the question whether a party would take part."""
        return cls.of(fields_or_none(parts))

    def read(self) -> tuple[Settings, PrivacyPlan]:
        """The settings and their privacy plan; raises `MessageError` if they are invalid."""
        try:
            settings = Settings.from_toml(self.settings)
            return settings, PrivacyPlan.of(settings, self.enrolled)
        except EpifedError:
            raise MessageError(Code.BAD_TASK) from None

    @property
    def period(self) -> tuple[date, date]:
        """First and last day of the training data."""
        return date.fromisoformat(self.first_day), date.fromisoformat(self.last_day)

    @property
    def repeated(self) -> int:
        """Rounds that were charged and had to be run again."""
        return max(0, self.paid + 1 - self.round)

    @cached_property
    def keys(self) -> dict[str, PublicKeys]:
        """The aggregators' public keys by name."""
        return {name: PublicKeys.of(text) for name, text in self.aggregators}

    @property
    def fingerprints(self) -> dict[str, str]:
        """The fingerprints of the aggregators' keys by name, as parties pin them."""
        return {name: keys.fingerprint for name, keys in self.keys.items()}

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the terms, which every seal and signature covers."""
        return digest(json.dumps(self.agreed, sort_keys=True).encode())

    def in_round(self, number: int, state: Vector) -> "RoundTerms":
        """The terms of another round of a training with aggregators, from the state before it."""
        return replace(self, round=number, paid=number - 1, start=state_digest(state))

    def last(self, name: str) -> bool:
        """Whether this aggregator gets the last share, which is the only one that is not a seed."""
        return self.aggregators[-1][0] == name

    def before(self, name: str) -> list[str]:
        """The names of the aggregators that are asked before the named one."""
        names = [aggregator for aggregator, _ in self.aggregators]
        return names[: names.index(name)]


def state_digest(state: Vector) -> str:
    """Digest of a packed state, in hexadecimal digits."""
    return digest(state.astype("<f4").tobytes()).hex()


_ACCOUNTANT = re.compile(r"[a-z0-9-]{1,20}")


@dataclass(frozen=True)
class Readiness:
    """Whether a party would take part, and the ε as it counts it."""

    code: Code | None = None
    """Why it would not take part; None if it would."""
    epsilon: float | None = None
    """As the party counts it: of this training, or of all together if the total is exceeded."""
    limit: float | None = None
    """The most that it allows; None if infinite."""
    delta: float | None = None
    accountant: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain values."""
        return vars(self) | {"code": self.code.value if self.code else "yes"}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Readiness":
        """The answer from plain values; one that is invalid counts as a refusal."""
        word, named = values.get("code"), values.get("accountant")
        code = Code(word) if isinstance(word, str) and word in set(Code) else Code.MESSAGE
        return cls(
            None if word == "yes" else code,
            **{name: _finite(values.get(name)) for name in ("epsilon", "limit", "delta")},
            accountant=named if isinstance(named, str) and _ACCOUNTANT.fullmatch(named) else None,
        )

    def pack(self) -> Parts:
        """Encode the answer as a message."""
        return _packed(self.to_dict())

    @classmethod
    def unpack(cls, parts: Parts) -> "Readiness":
        """Decode an answer; one that is invalid counts as a refusal."""
        return cls.of(fields_or_none(parts))


def _finite(value: object) -> float | None:
    valid = type(value) in (int, float) and 0 <= float(value) < math.inf  # type: ignore[arg-type]
    return float(value) if valid else None  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Task(RoundTerms):
    """The server's request to one site in a round: the terms, and what concerns this site."""

    site: str
    clients: tuple[str, ...]
    """All clients of this site, in the roster's order."""
    drawn: str
    """One digit for each client: 1 if drawn, else 0. A site is not told other sites' draws. Empty
    if the site draws its clients itself."""
    state: Vector

    @classmethod
    def to(
        cls, terms: RoundTerms, site: str, clients: tuple[str, ...], drawn: str, state: Vector
    ) -> "Task":
        """The task of a site in a round with these terms."""
        return cls(**terms.agreed, site=site, clients=clients, drawn=drawn, state=state)

    @property
    def draws_itself(self) -> bool:
        """Whether the site draws its clients itself, so that nobody else learns who was drawn."""
        return bool(self.aggregators) and self.randomness == "secure"

    def chosen(self) -> list[int]:
        """The positions of the drawn clients among the site's clients."""
        return [i for i, mark in enumerate(self.drawn) if mark == "1"]


def pack_task(task: Task) -> Parts:
    """Encode a task as a message."""
    own = {"site": task.site, "clients": task.clients, "drawn": task.drawn}
    described, content = _of_array(task.state)
    return _packed(task.agreed | own | described, content)


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
    about = _fields(parts)
    state, terms = _array(about, parts), RoundTerms.of(about)
    site, clients, drawn = (about.get(name) for name in ("site", "clients", "drawn"))
    if (
        not isinstance(site, str)
        or not isinstance(clients, list)
        or not all(isinstance(client, str) for client in clients)
        or not isinstance(drawn, str)
        or not re.fullmatch("[01]*", drawn)
        or len(clients) > terms.enrolled
        or (state.size, state_digest(state)) != (terms.numbers, terms.start)
    ):
        raise MessageError(Code.BAD_TASK)
    task = Task.to(terms, site, tuple(clients), drawn, state)
    if len(drawn) != (0 if task.draws_itself else len(clients)):
        raise MessageError(Code.BAD_TASK)
    return task


def _answer(training: str, number: int, **more: Any) -> dict[str, Any]:
    """The fields of each answer to a round."""
    return {"training": training, "round": number} | more


def _answered(parts: Parts, terms: RoundTerms) -> dict[str, Any]:
    """The fields of an answer; raises `MessageError` if it has a code or is of another round."""
    about = read_about(parts)
    if about.get("training") != terms.training or about.get("round") != terms.round:
        raise MessageError(Code.LATE)
    return about


def pack_code(training: str, number: int, code: Code) -> Parts:
    """Encode the answer of a party that contributes nothing: a code for the reason."""
    return _packed(_answer(training, number, code=code.value))


def pack_contribution(training: str, number: int, rows: Vector) -> Parts:
    """Encode a site's answer: a clipped vector for each of its clients, and nothing else."""
    described, content = _of_array(rows)
    return _packed(_answer(training, number, **described), content)


def accept(parts: Parts, task: Task, rounds: Rounds[Any]) -> tuple[dict[str, Vector], list[Code]]:
    """The accepted vectors by drawn client, and the codes of the rejected ones.

    A rejected vector counts as zero and leaves the others valid. A message that is not a
    contribution is refused as a whole.
    """
    array = _array(_answered(parts, task), parts)
    if array.shape != (len(task.clients), rounds.length):
        raise MessageError(Code.SHAPE)
    accepted: dict[str, Vector] = {}
    rejected: list[Code] = []
    for client, mark, row in zip(task.clients, task.drawn, array, strict=True):
        reason = rounds.accept(row)
        if reason:
            rejected.append(Code(reason))
        elif mark == "1":
            accepted[client] = row
    return accepted, rejected


@dataclass(frozen=True)
class Report:
    """A site's message in a round: a sealed share for each aggregator, and one signature."""

    site: str
    shares: tuple[bytes, ...]
    signature: bytes

    @property
    def digests(self) -> tuple[bytes, ...]:
        """The digests of the sealed shares, which the signature covers."""
        return tuple(map(digest, self.shares))


def make_report(terms: RoundTerms, site: str, key: ReportKey, steps: NDArray[np.int64]) -> Report:
    """Split a site's vector, in whole steps of the grid; seal each share and sign them all."""
    parts = split(steps, len(terms.aggregators))
    shares = tuple(
        keys.seal(part, seal_info(terms, site, name))
        for (name, keys), part in zip(terms.keys.items(), parts, strict=True)
    )
    signature = key.sign(_signed(terms, site, map(digest, shares)))
    return Report(site, shares, signature)


def seal_info(terms: RoundTerms, site: str, aggregator: str) -> bytes:
    """The context of a sealed share: it opens only for this round, site and aggregator."""
    return bound("share", terms.digest, site, aggregator)


def pack_report(terms: RoundTerms, report: Report) -> Parts:
    """Encode a report as a message; its size depends on the terms alone."""
    content = b"".join((report.signature, *report.shares))
    return _packed(_answer(terms.training, terms.round), content)


def report_bytes(aggregators: int, length: int) -> int:
    """The number of bytes of a report of `length` numbers to so many aggregators."""
    lasts = (place == aggregators - 1 for place in range(aggregators))
    return SIGNATURE + sum(sealed_bytes(length, last=last) for last in lasts)


def accept_report(parts: Parts, terms: RoundTerms, site: str, public: str | None) -> Report:
    """The report in a site's answer; raises `MessageError` if its form or signature is wrong."""
    _answered(parts, terms)
    sizes = [sealed_bytes(terms.length, last=terms.last(name)) for name, _ in terms.aggregators]
    signature, *shares = cut(parts.get("array"), (SIGNATURE, *sizes))
    report = Report(site, tuple(shares), signature)
    _check_signature(terms, site, report.digests, signature, public)
    return report


@dataclass(frozen=True)
class Relayed:
    """The part of a report that one aggregator gets: its own share, all digests, the signature."""

    site: str
    digests: tuple[bytes, ...]
    signature: bytes
    share: bytes

    def check(self, terms: RoundTerms, place: int, public: str | None) -> None:
        """Refuse a share that is not the one that a site of the roster signed for this round."""
        if digest(self.share) != self.digests[place]:
            raise MessageError(Code.DIGEST)
        _check_signature(terms, self.site, self.digests, self.signature, public)


@dataclass(frozen=True)
class Statement:
    """What an aggregator signs: the digests of the reports that it added up and of its sum."""

    aggregator: str
    reported: bytes
    """The digest of the reports."""
    partial: bytes
    """The digest of the partial sum."""
    opened: int
    """The number of reports whose shares could be opened and are in the sum."""
    signature: bytes

    def holds(self, terms: RoundTerms) -> bool:
        """Whether the aggregator signed it for this round."""
        keys = terms.keys.get(self.aggregator)
        content = _stated(terms, self.aggregator, self.reported, self.partial, self.opened)
        return keys is not None and keys.signed(self.signature, content)

    def to_dict(self) -> dict[str, Any]:
        """The statement as plain values."""
        return {
            "aggregator": self.aggregator,
            "reports": self.reported.hex(),
            "partial": self.partial.hex(),
            "opened": self.opened,
            "signature": self.signature.hex(),
        }

    @classmethod
    def of(cls, values: Any) -> "Statement":
        """The statement from plain values; raises `MessageError` if they are invalid."""
        try:
            reported, partial, signature = (
                bytes.fromhex(values[name]) for name in ("reports", "partial", "signature")
            )
            opened = values["opened"]
            if type(opened) is not int or opened < 0:
                raise ValueError
            return cls(str(values["aggregator"]), reported, partial, opened, signature)
        except (KeyError, TypeError, ValueError):
            raise MessageError(Code.MESSAGE) from None


@dataclass(frozen=True)
class Question:
    """The request to an aggregator to add up these reports."""

    terms: RoundTerms
    aggregator: str
    reports: tuple[Relayed, ...]
    before: tuple[Statement, ...]
    """The statements of the aggregators that have answered before it."""

    @property
    def reported(self) -> bytes:
        """Digest of the reports, equal for all aggregators that were given the same ones."""
        listed = (
            (report.site, *(d.hex() for d in report.digests), report.signature.hex())
            for report in sorted(self.reports, key=lambda report: report.site)
        )
        return digest(json.dumps([self.terms.digest.hex(), *listed]).encode())


def pack_question(question: Question) -> Parts:
    """Encode a question as a message."""
    about = question.terms.agreed | {
        "aggregator": question.aggregator,
        "sites": [report.site for report in question.reports],
        "before": [statement.to_dict() for statement in question.before],
    }
    content = b"".join(
        b"".join((*report.digests, report.signature, report.share)) for report in question.reports
    )
    return _packed(about, content)


def unpack_question(parts: Parts) -> Question:
    """Decode a question; raises `MessageError` if it is invalid."""
    about = read_about(parts)
    terms = RoundTerms.of(about)
    names = [name for name, _ in terms.aggregators]
    aggregator, sites, before = (about.get(key) for key in ("aggregator", "sites", "before"))
    if (
        aggregator not in names
        or not isinstance(before, list)
        or not isinstance(sites, list)
        or not all(isinstance(site, str) for site in sites)
    ):
        raise MessageError(Code.BAD_TASK)
    share = sealed_bytes(terms.length, last=terms.last(aggregator))
    sizes = (*[DIGEST] * len(names), SIGNATURE, share)
    pieces = cut(parts.get("array"), sizes * len(sites))
    reports = []
    for number, site in enumerate(sites):
        *digests, signature, content = pieces[number * len(sizes) : (number + 1) * len(sizes)]
        reports.append(Relayed(site, tuple(digests), signature, content))
    return Question(terms, aggregator, tuple(reports), tuple(map(Statement.of, before)))


@dataclass(frozen=True)
class PartialSum:
    """An aggregator's answer: the sum of its shares, with its noise."""

    statement: Statement
    total: Words
    unopened: tuple[str, ...]
    """Sites that signed a share which cannot be opened."""


def pack_partial(
    question: Question, keys: SecretKeys, total: Words, unopened: Sequence[str]
) -> Parts:
    """Sign a partial sum and encode it as a message."""
    terms, name, content = question.terms, question.aggregator, to_bytes(total)
    opened = len(question.reports) - len(unopened)
    signature = keys.sign(_stated(terms, name, question.reported, digest(content), opened))
    statement = Statement(name, question.reported, digest(content), opened, signature)
    about = _answer(terms.training, terms.round, unopened=list(unopened)) | statement.to_dict()
    return _packed(about, content)


def accept_partial(parts: Parts, question: Question) -> PartialSum:
    """The partial sum in an aggregator's answer; raises if it does not fit this question."""
    terms = question.terms
    about = _answered(parts, terms)
    (content,) = cut(parts.get("array"), (8 * terms.length,))
    statement, unopened = Statement.of(about), about.get("unopened")
    if not isinstance(unopened, list) or not {r.site for r in question.reports}.issuperset(
        unopened
    ):
        raise MessageError(Code.MESSAGE)
    if statement.opened != len(question.reports) - len(unopened):
        raise MessageError(Code.MESSAGE)
    if statement.aggregator != question.aggregator or statement.partial != digest(content):
        raise MessageError(Code.DIGEST)
    if not statement.holds(terms):
        raise MessageError(Code.SIGNATURE)
    if statement.reported != question.reported:
        raise MessageError(Code.REPORTS)
    return PartialSum(statement, words(content), tuple(unopened))


def _signed(terms: RoundTerms, site: str, digests: Iterable[bytes]) -> bytes:
    return bound("report", terms.digest, site, *digests)


def _stated(
    terms: RoundTerms, aggregator: str, reported: bytes, partial: bytes, opened: int
) -> bytes:
    return bound("partial sum", terms.digest, aggregator, reported, partial, str(opened))


def _check_signature(
    terms: RoundTerms, site: str, digests: Iterable[bytes], signature: bytes, public: str | None
) -> None:
    if public is None:
        raise MessageError(Code.FOREIGN)
    if not signed_by(public, signature, _signed(terms, site, digests)):
        raise MessageError(Code.SIGNATURE)


MOST_EVIDENCE = 256 * 2**20
"""Most bytes of a training's signed sums: 1,423 rounds of 11,777 numbers, two aggregators."""
_OPENED = 8
"""Bytes of the number of opened reports."""


def pack_sums(sums: Iterable[PartialSum]) -> bytes:
    """The partial sums of a round with their signatures, as bytes of a delivery."""
    pieces = (
        (
            each.statement.reported,
            each.statement.opened.to_bytes(_OPENED),
            each.statement.signature,
            to_bytes(each.total),
        )
        for each in sums
    )
    return b"".join(map(b"".join, pieces))


def evidence_bytes(aggregators: int, length: int, rounds: int) -> int:
    """The number of bytes of the signed sums of a training."""
    return rounds * aggregators * (DIGEST + _OPENED + SIGNATURE + 8 * length)


@dataclass(frozen=True)
class Evidence:
    """The proof of a release made with aggregators: all sums that they signed."""

    first: RoundTerms
    """The terms of the first round; those of the others follow from it and from the sums."""
    sums: bytes

    def rounds(self) -> list[bytes]:
        """The signed sums of each round."""
        each = evidence_bytes(len(self.first.aggregators), self.first.length, 1)
        return cut(self.sums, [each] * self.first.rounds)


def signed_sums(terms: RoundTerms, content: bytes) -> list[PartialSum]:
    """The sums of a round; raises `MessageError` unless every aggregator signed its own."""
    sizes = (DIGEST, _OPENED, SIGNATURE, 8 * terms.length)
    pieces = cut(content, sizes * len(terms.aggregators))
    sums = []
    for place, (name, _) in enumerate(terms.aggregators):
        reported, opened, signature, total = pieces[4 * place : 4 * place + 4]
        statement = Statement(name, reported, digest(total), int.from_bytes(opened), signature)
        if not statement.holds(terms):
            raise MessageError(
                Code.INVENTED,
                f"round {terms.round}: found a sum that '{name}' did not sign for this round "
                "and the state before it; expected one",
            )
        sums.append(PartialSum(statement, words(total), ()))
    if len({each.statement.reported for each in sums}) > 1:
        raise MessageError(Code.REPORTS)
    return sums


@dataclass(frozen=True)
class Delivery:
    """The finished training, as each party gets it."""

    training: str
    content: bytes
    """The release file."""
    evidence: Evidence | None = None
    """None without aggregators."""

    def pack(self) -> Parts:
        """Encode the delivery as a message."""
        first = self.evidence.first.agreed if self.evidence else None
        sums = self.evidence.sums if self.evidence else b""
        return _packed({"training": self.training, "first": first}, self.content) | {"sums": sums}

    @classmethod
    def unpack(cls, parts: Parts) -> "Delivery":
        """Decode a delivery; raises `MessageError` if it is invalid."""
        about, content, sums = _fields(parts), parts.get("array"), parts.get("sums")
        training, first = about.get("training"), about.get("first")
        if not isinstance(training, str) or not NAME.fullmatch(training):
            raise MessageError(Code.BAD_TASK)
        if (
            not isinstance(content, bytes)
            or not isinstance(sums, bytes)
            or len(sums) > MOST_EVIDENCE
        ):
            raise MessageError(Code.SIZE)
        if first is None:
            return cls(training, content)
        if not isinstance(first, dict):
            raise MessageError(Code.BAD_TASK)
        return cls(training, content, Evidence(RoundTerms.of(first), sums))


def pack_receipt(sha256: str) -> Parts:
    """Encode a party's answer to a delivery: the hash of the release that it keeps."""
    return _packed({"sha256": sha256})


def unreceived(parts: Parts, sha256: str) -> Code | None:
    """Why a party does not have the release with this hash, by its answer; None if it has it."""
    try:
        about = read_about(parts)
    except MessageError as error:
        return error.code
    return None if about.get("sha256") == sha256 else Code.MESSAGE
