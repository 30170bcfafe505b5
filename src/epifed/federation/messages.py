"""The only messages of a federation: a task to a site, its contribution back, the model at the end.

Each is a short JSON text and the bytes of one array. A contribution is one clipped vector for each
client of the site, in the roster's order, zero for those who were not drawn: so its size tells
nothing of the draw. Nothing in a message is executed or unpickled, and sizes are bounded before
anything is decoded.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epifed.errors import EpifedError
from epifed.federation.codes import Code
from epifed.learner import Vector
from epifed.rounds import Rounds

Parts = dict[str, Any]
"""What travels: {"about": JSON text, "array": bytes}."""

SEALED_FIELDS = {"site", "aggregators", "length"}
"""What a task says only where there are aggregators."""
MOST_TEXT = 1_000_000
"""Characters of the JSON text of a message."""
MOST_ARRAY = 512 * 2**20
"""Bytes of the array of a message."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,60}")
"""A training's name: letters, digits and hyphens, for it becomes a folder's and a file's."""


def most_bytes(clients: int, length: int) -> int:
    """The bytes that an answer for so many clients can need, with room for what FLARE adds.

    A sealed report or a partial sum, whatever the clients, is of eight bytes a number.
    """
    return max(4 * clients, 8) * length + 2 * MOST_TEXT


class MessageError(EpifedError):
    """A message that is not what it should be; `code` says in which way.

    What `detail` says is for the party's own log.
    """

    def __init__(self, code: Code, detail: str = "") -> None:
        super().__init__(f"{code.value}: {detail}" if detail else code.value)
        self.code, self.detail = code, detail


@dataclass(frozen=True)
class Task:
    """What the server asks of one site in a round."""

    training: str
    round: int
    rounds: int
    paid: int
    """Rounds paid for before this one, repeated ones included."""
    settings: str
    first_day: str
    last_day: str
    enrolled: int
    """N, over which the accountant's q = m / N is taken."""
    noise_multiplier: float
    randomness: str
    clients: tuple[str, ...]
    """All clients of this site, in the roster's order."""
    drawn: str
    """For each of them 1 if it was drawn, else 0. Other sites' draws are nobody's business. Empty
    where the site draws itself."""
    state: Vector
    site: str = ""
    aggregators: tuple[tuple[str, str], ...] = ()
    """Names and public keys of those who add up the sealed shares; none: the server adds up."""
    length: int = 0
    """With aggregators: the numbers of a contribution."""

    @property
    def period(self) -> tuple[date, date]:
        """The days that are learned from."""
        return date.fromisoformat(self.first_day), date.fromisoformat(self.last_day)

    @property
    def numbers(self) -> int:
        """The size of the model."""
        return int(self.state.size)

    @property
    def repeated(self) -> int:
        """Rounds that were paid for and had to be run again."""
        return max(0, self.paid + 1 - self.round)

    @property
    def draws_itself(self) -> bool:
        """Whether the site tosses its clients' coins, and nobody else learns who was drawn."""
        return bool(self.aggregators) and self.randomness == "secure"

    def chosen(self) -> list[int]:
        """The places of the drawn clients among the site's."""
        return [i for i, mark in enumerate(self.drawn) if mark == "1"]


def pack_task(task: Task) -> Parts:
    """A task as it travels."""
    unsaid = {"state"} if task.aggregators else {"state", *SEALED_FIELDS}
    return _packed({k: v for k, v in vars(task).items() if k not in unsaid}, task.state)


def pack_tasks(tasks: Mapping[str, Task]) -> dict[str, Parts]:
    """The tasks of a round as they travel; a state that they share is held once."""
    states: dict[int, Any] = {}
    packed = {}
    for site, task in tasks.items():
        parts = pack_task(task)
        packed[site] = parts | {"array": states.setdefault(id(task.state), parts["array"])}
    return packed


def unpack_task(parts: Parts) -> Task:
    """The task that travelled; one that a site must not act on is refused."""
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
    """What leaves a site: a clipped vector for each of its clients, and nothing else."""
    return _packed({"training": training, "round": number}, rows)


def pack_code(training: str, number: int, code: Code) -> Parts:
    """What leaves a site that contributes nothing: why, as a code."""
    about = {"training": training, "round": number, "code": code.value}
    return {"about": json.dumps(about)}


def accept(parts: Parts, task: Task, rounds: Rounds[Any]) -> tuple[dict[str, Vector], list[Code]]:
    """The vectors of an answer by drawn client, and what was wrong with others.

    A vector that must not reach the sum counts as zero, alone; a message that is no contribution
    is refused whole.
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
    """What a party says in its greeting; whoever uses it checks it. Of no message, nothing."""
    try:
        return _about(parts)
    except MessageError:
        return {}


def unreceived(parts: Parts, sha256: str) -> Code | None:
    """Why a site has not the release with this hash, by its answer; none if it has."""
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
    """What a message says; one that is no message is refused, and so is one that says a code."""
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
