"""Answers that a party gives once, and what it does with a finished release.

An answer waits on the disk until its round is in the party's ledger. Then it becomes the answer,
and then it is given. After a crash the same question gets the same bytes. If the disk loses an
answer, making another is charged again.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from epifed.errors import EpifedError
from epifed.federation.crypto import digest
from epifed.federation.messages import NAME, Code, MessageError, Parts
from epifed.federation.terms import Owner, SiteLedger, Terms
from epifed.files import write_atomic
from epifed.training.release import MOST_LABEL, Release, read_release

Make = Callable[[], Parts]
Spent = Callable[[], int]
"""Rounds of the training that the party's ledger shows."""
Book = Callable[[int], None]
"""Writes a round down, given the rounds that were there before its answer was made."""


def question_digest(parts: Parts) -> str:
    """What stands for a question: a SHA-256 of all of it."""
    text = json.dumps(parts.get("about")).encode()
    return digest(len(text).to_bytes(8) + text + bytes(parts.get("array") or b"")).hex()


@dataclass(frozen=True)
class _Answer:
    number: int
    question: str
    spent: int
    parts: Parts

    def write(self, path: Path) -> None:
        head = {
            "number": self.number,
            "question": self.question,
            "spent": self.spent,
            "about": self.parts["about"],
        }
        content = json.dumps(head).encode() + b"\n" + self.parts["array"]
        write_atomic(path, lambda temporary: temporary.write_bytes(content))

    @classmethod
    def read(cls, path: Path) -> "_Answer | None":
        try:
            head, array = path.read_bytes().split(b"\n", 1)
        except FileNotFoundError:
            return None
        values = json.loads(head)
        parts: Parts = {"about": values.pop("about"), "array": array}
        return cls(**values, parts=parts)


class AnswerCache:
    """The last answer of a party to each training, in a folder of its kit."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def give(
        self, training: str, number: int, question: str, make: Make, spent: Spent, book: Book
    ) -> Parts:
        """The answer to a question of a round: made, booked and kept the first time."""
        path = self.folder / f"{training}.answer"
        waiting = path.with_suffix(".waiting")
        with self._held(training):
            kept = _Answer.read(path)
            if kept and (kept.number, kept.question) == (number, question):
                return kept.parts
            if kept and kept.number >= number:
                raise MessageError(Code.REFUSED_REPEAT)
            made = _Answer.read(waiting)
            if made is None or (made.number, made.question) != (number, question):
                made = _Answer(number, question, spent(), make())
                made.write(waiting)
            book(made.spent)
            waiting.replace(path)
            return made.parts

    @contextmanager
    def _held(self, training: str) -> Iterator[None]:
        """One process at a time: the worker of a party that crashed may live on for a while."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / f"{training}.lock"):
            yield


MODELS = Owner.MODELS


def keep_release(kit: Path, ledger: str, terms: Terms, content: bytes, training: str) -> Release:
    """Keep the finished release, once it has been checked, and close the party's book on it.

    One that is not private is taken only where the party agrees to such tests, and none takes the
    place of another. What it cost the party, its own book says, not the server.
    """
    if not isinstance(training, str) or not NAME.fullmatch(training):
        raise MessageError(Code.BAD_TASK)
    if not isinstance(content, bytes) or len(content) > 4 * terms.most_numbers + MOST_LABEL:
        raise MessageError(Code.SIZE)
    path = kit / MODELS / f"{training}.epifed"
    path.parent.mkdir(exist_ok=True)
    waiting = path.with_suffix(".received")
    waiting.write_bytes(content)
    try:
        release = read_release(waiting, terms.most_numbers)
        if release.randomness != "secure" and not terms.seeded:
            raise MessageError(Code.REFUSED_SEEDED)
        if path.exists() and read_release(path).sha256 != release.sha256:
            raise EpifedError(
                f"{path}: another release of training '{training}' came; expected the same"
            )
        if release.randomness == "secure":
            book = SiteLedger(kit / ledger, terms)
            book.refuse_label(training, release)
            book.finish(training, release.sha256)
        waiting.replace(path)
    finally:
        waiting.unlink(missing_ok=True)
    return release
