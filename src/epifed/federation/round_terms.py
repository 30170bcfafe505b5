"""The terms of a round with aggregators, and the messages that only such a round has.

A *pact* identifies a round and fixes its price. Its digest is in every seal and signature, so
nothing of one round, training, N, c or S is valid for another. A *report* is what a site sends. A
*question* goes to an aggregator, and a *partial sum* is its answer. The signed partial sums of all
rounds are the *evidence* of a release: every party computes the state from them.
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import date
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epifed.errors import EpifedError
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
from epifed.federation.messages import MOST_ARRAY, NAME, Code, MessageError, Parts, Task, read_about
from epifed.learners.base import Vector
from epifed.training.rounds import Rounds

MOST_NUMBERS = MOST_ARRAY // 8


@dataclass(frozen=True)
class RoundTerms:
    """The pact: all terms that the parties of a round must agree on."""

    training: str
    round: int
    rounds: int
    settings: str
    first_day: str
    last_day: str
    enrolled: int
    noise_multiplier: float
    """c of the noise that each aggregator adds, and from which the price follows."""
    randomness: str
    length: int
    """The length of a contribution."""
    aggregators: tuple[tuple[str, str], ...]
    """Their names and public keys, in the roster's order."""
    start: str
    """The digest of the state from which the round starts."""
    least: int
    """The fewest sites of a sum that may be used."""

    @classmethod
    def of(cls, values: dict[str, Any]) -> "RoundTerms":
        """The pact from a message's fields; raises `MessageError` if they are invalid."""
        try:
            said = {field.name: values[field.name] for field in fields(cls)}
            named = tuple(
                (str(name), PublicKeys.of(text).text) for name, text in said["aggregators"]
            )
            pact = cls(**said | {"aggregators": named})
            whole = (pact.round, pact.rounds, pact.enrolled, pact.length, pact.least)
            good = (
                NAME.fullmatch(pact.training) is not None
                and all(type(number) is int for number in whole)
                and 1 <= pact.round <= pact.rounds
                and min(pact.enrolled, pact.least) >= 1
                and len(bytes.fromhex(pact.start)) == DIGEST
                and 1 <= pact.length <= MOST_NUMBERS
                and type(pact.noise_multiplier) is float
                and 0 < pact.noise_multiplier < math.inf
                and pact.randomness in ("secure", "seeded")
                and isinstance(pact.settings, str)
                and pact.period[0] <= pact.period[1]
                and len(named) >= 2
                and len(dict(named)) == len(named)
            )
        except (KeyError, TypeError, ValueError, EpifedError):
            good = False
        if not good:
            raise MessageError(Code.BAD_TASK)
        return pact

    @classmethod
    def of_task(cls, task: Task) -> "RoundTerms":
        """The pact to which a site's task belongs."""
        return cls.of(vars(task) | {"start": state_digest(task.state)})

    @property
    def period(self) -> tuple[date, date]:
        """First and last day of the training data."""
        return date.fromisoformat(self.first_day), date.fromisoformat(self.last_day)

    @property
    def numbers(self) -> int:
        """The length of the vectors that are added up."""
        return self.length

    @property
    def repeated(self) -> int:
        """Always 0: no round is repeated, because an answer is kept and given again."""
        return 0

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
        """SHA-256 of the pact, which every seal and signature covers."""
        return digest(json.dumps(asdict(self), sort_keys=True).encode())

    def last(self, name: str) -> bool:
        """Whether this aggregator gets the last share, which is the only one that is not a seed."""
        return self.aggregators[-1][0] == name


def state_digest(state: Vector) -> str:
    """Digest of a packed state, in hexadecimal digits."""
    return digest(state.astype("<f4").tobytes()).hex()


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


def make_report(pact: RoundTerms, site: str, key: ReportKey, steps: NDArray[np.int64]) -> Report:
    """Split a site's vector, in whole steps of the grid; seal each share and sign them all."""
    parts = split(steps, len(pact.aggregators))
    shares = tuple(
        keys.seal(part, seal_info(pact, site, name))
        for (name, keys), part in zip(pact.keys.items(), parts, strict=True)
    )
    signature = key.sign(_signed(pact, site, map(digest, shares)))
    return Report(site, shares, signature)


def seal_info(pact: RoundTerms, site: str, aggregator: str) -> bytes:
    """The context of a sealed share: it opens only for this round, site and aggregator."""
    return bound("share", pact.digest, site, aggregator)


def pack_report(pact: RoundTerms, report: Report) -> Parts:
    """Encode a report as a message; its size depends on the pact alone."""
    about = {"training": pact.training, "round": pact.round}
    content = b"".join((report.signature, *report.shares))
    return {"about": json.dumps(about), "array": content}


def report_bytes(aggregators: int, length: int) -> int:
    """The number of bytes of a report of `length` numbers to so many aggregators."""
    lasts = (place == aggregators - 1 for place in range(aggregators))
    return SIGNATURE + sum(sealed_bytes(length, last=last) for last in lasts)


def accept_report(parts: Parts, pact: RoundTerms, site: str, public: str | None) -> Report:
    """The report in a site's answer; raises `MessageError` if its form or signature is wrong."""
    about = read_about(parts)
    if about.get("training") != pact.training or about.get("round") != pact.round:
        raise MessageError(Code.LATE)
    sizes = [sealed_bytes(pact.length, last=pact.last(name)) for name, _ in pact.aggregators]
    signature, *shares = _cut(parts.get("array"), (SIGNATURE, *sizes))
    report = Report(site, tuple(shares), signature)
    _check_signature(pact, site, report.digests, signature, public)
    return report


@dataclass(frozen=True)
class Relayed:
    """The part of a report that one aggregator gets: its own share, all digests, the signature."""

    site: str
    digests: tuple[bytes, ...]
    signature: bytes
    share: bytes

    def check(self, pact: RoundTerms, place: int, public: str | None) -> None:
        """Refuse a share that is not the one that a site of the roster signed for this round."""
        if digest(self.share) != self.digests[place]:
            raise MessageError(Code.DIGEST)
        _check_signature(pact, self.site, self.digests, self.signature, public)


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

    def holds(self, pact: RoundTerms) -> bool:
        """Whether the aggregator signed it for this round."""
        keys = pact.keys.get(self.aggregator)
        content = _stated(pact, self.aggregator, self.reported, self.partial, self.opened)
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

    pact: RoundTerms
    aggregator: str
    reports: tuple[Relayed, ...]
    before: tuple[Statement, ...]
    """The statements of the aggregators that have answered before it."""

    @property
    def reported(self) -> bytes:
        """Digest of the reports, equal for all aggregators that were given the same ones."""
        told = (
            (report.site, *(d.hex() for d in report.digests), report.signature.hex())
            for report in sorted(self.reports, key=lambda report: report.site)
        )
        return digest(json.dumps([self.pact.digest.hex(), *told]).encode())


def pack_question(question: Question) -> Parts:
    """Encode a question as a message."""
    about = asdict(question.pact) | {
        "aggregator": question.aggregator,
        "sites": [report.site for report in question.reports],
        "before": [statement.to_dict() for statement in question.before],
    }
    content = b"".join(
        b"".join((*report.digests, report.signature, report.share)) for report in question.reports
    )
    return {"about": json.dumps(about), "array": content}


def unpack_question(parts: Parts) -> Question:
    """Decode a question; raises `MessageError` if it is invalid."""
    about = read_about(parts)
    pact = RoundTerms.of(about)
    names = [name for name, _ in pact.aggregators]
    aggregator, sites, before = (about.get(key) for key in ("aggregator", "sites", "before"))
    if (
        aggregator not in names
        or not isinstance(before, list)
        or not isinstance(sites, list)
        or not all(isinstance(site, str) for site in sites)
    ):
        raise MessageError(Code.BAD_TASK)
    share = sealed_bytes(pact.length, last=pact.last(aggregator))
    sizes = (*[DIGEST] * len(names), SIGNATURE, share)
    cut = _cut(parts.get("array"), sizes * len(sites))
    reports = []
    for number, site in enumerate(sites):
        *digests, signature, content = cut[number * len(sizes) : (number + 1) * len(sizes)]
        reports.append(Relayed(site, tuple(digests), signature, content))
    return Question(pact, aggregator, tuple(reports), tuple(map(Statement.of, before)))


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
    pact, name, content = question.pact, question.aggregator, to_bytes(total)
    opened = len(question.reports) - len(unopened)
    signature = keys.sign(_stated(pact, name, question.reported, digest(content), opened))
    statement = Statement(name, question.reported, digest(content), opened, signature)
    about = {"training": pact.training, "round": pact.round, "unopened": list(unopened)}
    return {"about": json.dumps(about | statement.to_dict()), "array": content}


def accept_partial(parts: Parts, question: Question) -> PartialSum:
    """The partial sum in an aggregator's answer; raises if it does not fit this question."""
    about = read_about(parts)
    pact = question.pact
    if about.get("training") != pact.training or about.get("round") != pact.round:
        raise MessageError(Code.LATE)
    (content,) = _cut(parts.get("array"), (8 * pact.length,))
    statement, unopened = Statement.of(about), about.get("unopened")
    if not isinstance(unopened, list) or not {r.site for r in question.reports}.issuperset(
        unopened
    ):
        raise MessageError(Code.MESSAGE)
    if statement.opened != len(question.reports) - len(unopened):
        raise MessageError(Code.MESSAGE)
    if statement.aggregator != question.aggregator or statement.partial != digest(content):
        raise MessageError(Code.DIGEST)
    if not statement.holds(pact):
        raise MessageError(Code.SIGNATURE)
    if statement.reported != question.reported:
        raise MessageError(Code.REPORTS)
    return PartialSum(statement, words(content), tuple(unopened))


def _signed(pact: RoundTerms, site: str, digests: Iterable[bytes]) -> bytes:
    return bound("report", pact.digest, site, *digests)


def _stated(
    pact: RoundTerms, aggregator: str, reported: bytes, partial: bytes, opened: int
) -> bytes:
    return bound("partial sum", pact.digest, aggregator, reported, partial, str(opened))


@dataclass(frozen=True)
class Closed:
    """The result of a round with aggregators."""

    state: Any
    released: NDArray[np.float64] | None
    """The noisy mean; None if the round could not be used."""
    code: Code | None = None
    """Why the round could not be used."""


def close_round(
    pact: RoundTerms, sums: Sequence[PartialSum], rounds: Rounds[Any], state: Any
) -> Closed:
    """The state after a round from its signed sums; the server and all parties use this rule."""
    if min(one.statement.opened for one in sums) < pact.least:
        return Closed(state, None, Code.TOO_FEW)
    total = np.zeros(pact.length, dtype=np.uint64)
    for one in sums:
        total += one.total
    steps = total.view(np.int64)
    if not rounds.plausible(steps, pact.enrolled):
        return Closed(state, None, Code.TOTAL)
    released = rounds.released(steps)
    return Closed(rounds.close_sum(state, released), released)


MOST_EVIDENCE = 256 * 2**20
"""Most bytes of a training's signed sums: 1,423 rounds of 11,777 numbers, two aggregators."""
_OPENED = 8
"""Bytes of the number of opened reports."""


def pack_sums(sums: Iterable[PartialSum]) -> bytes:
    """The partial sums of a round with their signatures, as bytes of a delivery."""
    return b"".join(
        b"".join(
            (
                one.statement.reported,
                one.statement.opened.to_bytes(_OPENED),
                one.statement.signature,
                to_bytes(one.total),
            )
        )
        for one in sums
    )


def evidence_bytes(aggregators: int, length: int, rounds: int) -> int:
    """The number of bytes of the signed sums of a training."""
    return rounds * aggregators * (DIGEST + _OPENED + SIGNATURE + 8 * length)


@dataclass(frozen=True)
class Evidence:
    """The proof of a release made with aggregators: all sums that they signed."""

    first: RoundTerms
    """The terms of the first round; those of the others follow from it and from the sums."""
    sums: bytes

    def pack(self) -> Parts:
        """The evidence as parts of a delivery."""
        return {"terms": json.dumps(asdict(self.first)), "sums": self.sums}

    @classmethod
    def of(cls, parts: Parts) -> "Evidence | None":
        """The evidence in a delivery; None without aggregators."""
        if parts.get("terms") is None:
            return None
        sums = parts.get("sums")
        if not isinstance(sums, bytes) or len(sums) > MOST_EVIDENCE:
            raise MessageError(Code.SIZE)
        return cls(RoundTerms.of(read_about({"about": parts["terms"]})), sums)

    def replay(self, rounds: Rounds[Any], start: Any) -> tuple[Any, int]:
        """The state that the signed sums give, and the number of rounds that could not be used.

        Raises `MessageError` unless the sums are exactly the rounds of one training, in order. Each
        must start from the state before it and be signed by every aggregator of the terms.
        """
        first, state, unused = self.first, start, 0
        each = evidence_bytes(len(first.aggregators), first.length, 1)
        if first.round != 1 or first.length != rounds.length:
            raise MessageError(Code.INVENTED, "found the terms of another round or model")
        contents = _cut(self.sums, [each] * first.rounds)
        for number, content in enumerate(contents, start=1):
            now = replace(first, round=number, start=state_digest(rounds.learner.pack(state)))
            closed = close_round(now, self._signed_sums(now, content), rounds, state)
            # As on the server, which keeps the packed state of each round.
            state = rounds.learner.unpack(rounds.learner.pack(closed.state))
            unused += closed.released is None
        return state, unused

    def _signed_sums(self, pact: RoundTerms, content: bytes) -> list[PartialSum]:
        sizes = (DIGEST, _OPENED, SIGNATURE, 8 * pact.length)
        pieces = _cut(content, sizes * len(pact.aggregators))
        sums = []
        for place, (name, _) in enumerate(pact.aggregators):
            reported, opened, signature, total = pieces[4 * place : 4 * place + 4]
            statement = Statement(name, reported, digest(total), int.from_bytes(opened), signature)
            if not statement.holds(pact):
                raise MessageError(
                    Code.INVENTED,
                    f"round {pact.round}: found a sum that '{name}' did not sign for this round "
                    "and the state before it; expected one",
                )
            sums.append(PartialSum(statement, words(total), ()))
        if len({one.statement.reported for one in sums}) > 1:
            raise MessageError(Code.REPORTS)
        return sums


def _check_signature(
    pact: RoundTerms, site: str, digests: Iterable[bytes], signature: bytes, public: str | None
) -> None:
    if public is None:
        raise MessageError(Code.FOREIGN)
    if not signed_by(public, signature, _signed(pact, site, digests)):
        raise MessageError(Code.SIGNATURE)


def _cut(content: object, sizes: Sequence[int]) -> list[bytes]:
    """Cut bytes into pieces of these sizes; raises if the total differs."""
    if not isinstance(content, bytes):
        raise MessageError(Code.MESSAGE)
    if len(content) != sum(sizes):
        raise MessageError(Code.SIZE)
    ends = np.cumsum(sizes, dtype=np.int64).tolist()
    return [content[end - size : end] for size, end in zip(sizes, ends, strict=True)]
