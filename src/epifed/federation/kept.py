"""Answers that are given once: the same bytes for the same question, paid for once.

An answer waits on the disk, where nobody reads it, until its round is in the party's ledger; then
it becomes the answer, and then it is given. A crash on the way has given nothing, and the next
asking finds what was there. Should the disk lose an answer, making another is paid for again.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from epifed.federation.codes import Code
from epifed.federation.messages import MessageError, Parts
from epifed.federation.sealed import digest
from epifed.files import write_atomic

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


class KeptAnswers:
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
