"""Answers that a party gives once, and the checks of a finished release.

An answer is written to disk, then its round is booked in the party's ledger, then it is given.
After a crash, the same question gets the same bytes. If the disk loses an answer, making a new one
is charged again.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from epifed.errors import EpifedError
from epifed.federation.crypto import digest
from epifed.federation.evidence import refuse_invented
from epifed.federation.messages import Code, Delivery, MessageError, Parts, RoundTerms
from epifed.federation.terms import Owner, SiteLedger, Terms, book_key
from epifed.files import write_atomic
from epifed.training.release import MOST_LABEL, Release, read_release

Make = Callable[[], Parts]
Spent = Callable[[], int]
"""Returns the rounds of the training that the party's ledger shows."""
Book = Callable[[int], None]
"""Books a round, given the number of rounds that were booked before its answer was made."""


def question_digest(parts: Parts) -> str:
    """SHA-256 of a whole question, in hexadecimal digits."""
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
        """The answer to a round's question: made, booked and kept the first time, then repeated."""
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

    def give_charged(
        self, parts: Parts, asked: RoundTerms, make: Make, ledger: SiteLedger | None
    ) -> Parts:
        """The answer to a question, charged to the party's ledger, which is None for a test."""
        question = asked.training, asked.round, question_digest(parts), make
        if ledger is None:
            return self.give(*question, lambda: 0, lambda _: None)
        plan = asked.read()[1]
        key = book_key(asked, *asked.read())

        def book(before: int) -> None:
            done = asked.round - 1
            ledger.enter(key, plan, max(before, done), asked.rounds - done)

        return self.give(*question, lambda: ledger.spent(key), book)

    def last_round(self, training: str) -> int:
        """The last round of a training that was answered; 0 before the first."""
        kept = _Answer.read(self.folder / f"{training}.answer")
        return kept.number if kept else 0

    @contextmanager
    def _held(self, training: str) -> Iterator[None]:
        """Lock the training: the worker of a party that crashed may live on for a while."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / f"{training}.lock"):
            yield


MODELS = Owner.MODELS


def keep_release(kit: Path, ledger: str, terms: Terms, delivery: Delivery) -> Release:
    """Check and keep the finished release, and close the training in the party's ledger.

    A release with predictable noise needs the party's consent, and no release replaces another. The
    cost to the party is what its own ledger shows, not what the server reports. With aggregators,
    the release is computed again from the sums that they signed.
    """
    training, content, evidence = delivery.training, delivery.content, delivery.evidence
    if len(content) > 4 * terms.most_numbers + MOST_LABEL:
        raise MessageError(Code.SIZE)
    path = kit / MODELS / f"{training}.epifed"
    path.parent.mkdir(exist_ok=True)
    waiting = path.with_suffix(".received")
    waiting.write_bytes(content)
    try:
        release = read_release(waiting, terms.most_numbers)
        if release.randomness != "secure" and not terms.seeded:
            raise MessageError(Code.REFUSED_SEEDED)
        if evidence:
            refuse_invented(release, training, evidence)
        elif release.settings.noise == "aggregators":
            raise MessageError(Code.REFUSED_TRUST)
        if path.exists() and read_release(path).sha256 != release.sha256:
            raise EpifedError(
                f"{path}: found another release of training '{training}'; expected the same"
            )
        if release.randomness == "secure":
            book = SiteLedger(kit / ledger, terms)
            book.refuse_label(training, release)
            book.finish(training, release.sha256)
        waiting.replace(path)
    finally:
        waiting.unlink(missing_ok=True)
    return release
