"""Answers that a party gives once, and the checks of a finished release.

An answer is written to disk, then its round is booked in the party's ledger, then it is given.
After a crash, the same question gets the same bytes. If the disk loses an answer, making a new one
is charged again.
"""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from filelock import FileLock

from epifed.errors import EpifedError
from epifed.federation.crypto import digest
from epifed.federation.messages import NAME, Code, MessageError, Parts
from epifed.federation.round_terms import Evidence, state_digest
from epifed.federation.terms import Owner, SiteLedger, Terms
from epifed.files import write_atomic
from epifed.learners.base import make_learner
from epifed.privacy.noise import SecureRandomness
from epifed.privacy.plan import PrivacyPlan
from epifed.settings import Settings, of_training
from epifed.training.release import MOST_LABEL, Release, read_release
from epifed.training.rounds import Rounds

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

    @contextmanager
    def _held(self, training: str) -> Iterator[None]:
        """Lock the training: the worker of a party that crashed may live on for a while."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / f"{training}.lock"):
            yield


MODELS = Owner.MODELS


def first_state(settings: Settings) -> str:
    """Digest of the state from which a training with these settings starts."""
    learner = make_learner(settings)
    return state_digest(learner.pack(learner.start(of_training(settings.seed)[0])))


def refuse_invented(release: Release, training: str, evidence: Evidence) -> None:
    """Refuse a release that is not, byte for byte, what its aggregators' signed sums give.

    The state is computed again from the first state, which is public, by the learner's own steps. A
    release that continues another one is refused too: federations make none.
    """
    settings, first = release.settings, evidence.first
    plan = PrivacyPlan.of(settings, release.clients)
    label = (training, str(release.first_day), str(release.last_day), release.randomness)
    agreed = (first.training, first.first_day, first.last_day, first.randomness)
    (cost, *others) = release.spent
    try:
        same = Settings.from_toml(first.settings) == settings
    except EpifedError:
        same = False
    if (
        not same
        or label != agreed
        or (plan.rounds, plan.clients) != (first.rounds, first.enrolled)
        or plan.noise != "aggregators"
        or plan.aggregators != len(first.aggregators)
        or not math.isclose(first.noise_multiplier, plan.noise_multiplier, rel_tol=1e-9)
        or not math.isclose(first.noise_multiplier, cost.noise_multiplier, rel_tol=1e-9)
        or cost.sampling_rate != plan.priced_rate
        or cost.rounds < plan.rounds
        or others
        or release.continues is not None
    ):
        raise MessageError(
            Code.INVENTED,
            f"{training}: found a label that is not that of the signed sums (label: "
            f"{release.sentence()}); expected their settings, days, clients, noise and rounds",
        )
    learner = make_learner(settings)
    start = learner.start(of_training(settings.seed)[0])
    rounds = Rounds.of(learner, plan.announced(first.noise_multiplier), SecureRandomness(), start)
    state, unused = evidence.replay(rounds, start)
    vector = np.ascontiguousarray(learner.pack(state), dtype=np.float32)
    if (vector.tobytes(), unused) != (release.vector.tobytes(), release.unused):
        raise MessageError(
            Code.INVENTED,
            f"{training}: found another state or number of unused rounds than the signed sums "
            "give; expected theirs",
        )


def keep_release(
    kit: Path,
    ledger: str,
    terms: Terms,
    content: bytes,
    training: str,
    evidence: Evidence | None = None,
) -> Release:
    """Check and keep the finished release, and close the training in the party's ledger.

    A release with predictable noise needs the party's consent, and no release replaces another. The
    cost to the party is what its own ledger shows, not what the server reports. With aggregators,
    the release is computed again from the sums that they signed.
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
        if evidence:
            refuse_invented(release, training, evidence)
        elif release.settings.noise == "aggregators":
            raise MessageError(Code.REFUSED_TRUST)
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
