"""Aggregator's side of a round, without FLARE: check reports, book the round, add up, add noise.

The server relays the sites' sealed shares and is not trusted. The aggregator answers one question
in each round, adds the noise of a whole release itself, and keeps the answer.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from epifed.errors import EpifedError
from epifed.federation.answers import AnswerCache, keep_release, question_digest
from epifed.federation.crypto import SecretKeys, share
from epifed.federation.messages import Code, MessageError, Parts, pack_code
from epifed.federation.readiness import Proposal, Readiness, weigh
from epifed.federation.round_terms import (
    Evidence,
    Question,
    RoundTerms,
    pack_partial,
    seal_info,
    unpack_question,
)
from epifed.federation.terms import Federation, SiteLedger, Terms, book_key
from epifed.learners.base import make_learner
from epifed.privacy.noise import grid_noise, seeded_share
from epifed.privacy.plan import PrivacyPlan
from epifed.settings import Settings
from epifed.training.release import Release

TERMS, KEYS, LEDGER, ANSWERS = "aggregator.toml", "aggregator.key", "aggregator.ledger", "answers"
ROSTER = "federation.toml"


def own_keys(kit: Path) -> SecretKeys:
    """The keys of an aggregator's kit; they are made on first use."""
    path = kit / KEYS
    if not path.exists():
        SecretKeys.make().write(path)
    return SecretKeys.read(path)


class AggregatorWork:
    """An aggregator and its kit. Its answers hold a partial sum or a code, never free text."""

    def __init__(self, kit: Path) -> None:
        self.kit = kit
        self.terms = Terms.read(kit / TERMS)
        self.roster = Federation.read(kit / ROSTER)
        self.keys = own_keys(kit)
        self.answers = AnswerCache(kit / ANSWERS)

    def answer(self, parts: Parts) -> tuple[Parts, Exception | None]:
        """Answer a question; also returns the error, if any, for the aggregator's own log."""
        training, number = "", 0
        try:
            question = unpack_question(parts)
            training, number = question.pact.training, question.pact.round
            return self._sum(question, question_digest(parts)), None
        except MessageError as error:
            return pack_code(training, number, error.code), error
        except Exception as error:
            return pack_code(training, number, Code.ERROR), error

    def ready(self, parts: Parts) -> Parts:
        """Whether the aggregator would take part in a training, by its roster, terms and ledger."""
        try:
            return self._weighed(Proposal.unpack(parts)).pack()
        except MessageError as error:
            return Readiness(error.code).pack()
        except Exception:
            return Readiness(Code.ERROR).pack()

    def _weighed(self, proposal: Proposal) -> Readiness:
        settings, plan = proposal.read()
        pinned = dict(proposal.aggregators)
        if (
            plan.noise != "aggregators"
            or proposal.enrolled != len(self.roster.clients)
            or plan.aggregators != len(pinned)
        ):
            raise MessageError(Code.REFUSED_ROSTER)
        self._refuse_others(pinned, self._own_name(pinned))
        try:  # the learner is needed to compute the release again
            make_learner(settings)
        except EpifedError:
            raise MessageError(Code.BAD_TASK) from None
        book = None
        if proposal.randomness == "secure":
            book = SiteLedger.of(self.kit / LEDGER, self.terms)
        return weigh(proposal, self.terms, book)

    def receive(self, content: bytes, training: str, evidence: Evidence | None = None) -> Release:
        """Keep the finished release, after computing it again from the signed sums."""
        if evidence is None:
            raise MessageError(Code.REFUSED_TRUST)
        first = evidence.first
        self._refuse_others(first.fingerprints, self._own_name(first.fingerprints))
        return keep_release(self.kit, LEDGER, self.terms, content, training, evidence)

    def _own_name(self, fingerprints: Mapping[str, str]) -> str:
        """The name under which this aggregator's keys are listed; raises if the list differs."""
        own = [name for name, pin in fingerprints.items() if pin == self.keys.public.fingerprint]
        if len(own) != 1 or tuple(fingerprints) != tuple(
            one.name for one in self.roster.aggregators
        ):
            raise MessageError(Code.REFUSED_ROSTER)
        return own[0]

    def _refuse_others(self, fingerprints: Mapping[str, str], own: str) -> None:
        """Refuse a training whose other aggregators differ from the pinned ones."""
        others = dict(fingerprints)
        if own not in self.terms.aggregators:
            del others[own]
        self.terms.refuse_trust(others)

    def _sum(self, question: Question, asked: str) -> Parts:
        pact = question.pact
        settings, plan = self._agreed(question)
        self._check_reports(question)
        self._check_others(question)

        def make() -> Parts:
            return self._added_up(question, settings, plan)

        if pact.randomness != "secure":
            return self.answers.give(
                pact.training, pact.round, asked, make, lambda: 0, lambda _: None
            )
        book, key = SiteLedger.of(self.kit / LEDGER, self.terms), book_key(pact, settings, plan)

        def write_down(spent: int) -> None:
            book.enter(key, plan, max(spent, pact.round - 1), pact.rounds - pact.round + 1)

        return self.answers.give(
            pact.training, pact.round, asked, make, lambda: book.spent(key), write_down
        )

    def _agreed(self, question: Question) -> tuple[Settings, PrivacyPlan]:
        """The settings and plan of a pact, after checking it against the roster and the terms."""
        pact = question.pact
        try:
            settings = Settings.from_toml(pact.settings)
            plan = PrivacyPlan.of(settings, pact.enrolled)
        except EpifedError:
            raise MessageError(Code.BAD_TASK) from None
        names = tuple(name for name, _ in pact.aggregators)
        if plan.noise != "aggregators" or not plan.private or pact.rounds != plan.rounds:
            raise MessageError(Code.BAD_TASK)
        if (
            pact.enrolled != len(self.roster.clients)
            or names != tuple(one.name for one in self.roster.aggregators)
            or plan.aggregators != len(names)
            or dict(pact.aggregators)[question.aggregator] != self.keys.public.text
        ):
            raise MessageError(Code.REFUSED_ROSTER)
        self._refuse_others(pact.fingerprints, question.aggregator)
        self.terms.refuse(pact, settings, plan)
        return settings, plan

    def _check_reports(self, question: Question) -> None:
        """Check that the reports are of different sites of the roster, signed for this round."""
        pact, seen = question.pact, set[str]()
        place = len(_before(pact, question.aggregator))
        for report in question.reports:
            if report.site in seen:
                raise MessageError(Code.DOUBLED)
            seen.add(report.site)
            report.check(pact, place, self.roster.signs.get(report.site))

    def _check_others(self, question: Question) -> None:
        """Check that the aggregators asked before this one were given the same reports."""
        expected = _before(question.pact, question.aggregator)
        if [statement.aggregator for statement in question.before] != expected or not all(
            statement.holds(question.pact) and statement.reported == question.reported
            for statement in question.before
        ):
            raise MessageError(Code.REPORTS)

    def _added_up(self, question: Question, settings: Settings, plan: PrivacyPlan) -> Parts:
        pact, name = question.pact, question.aggregator
        total = np.zeros(pact.length, dtype=np.uint64)
        unopened = []
        for report in question.reports:
            content = self.keys.open(report.share, seal_info(pact, report.site, name))
            opened = share(content or b"", pact.length, last=pact.last(name))
            if opened is None:
                unopened.append(report.site)
            else:
                total += opened
        if pact.randomness == "secure":
            noise = grid_noise(pact.length, pact.noise_multiplier)
        else:
            place = len(_before(pact, name))
            stream = settings.seed, place, pact.round
            noise = seeded_share(plan, *stream, pact.length, pact.noise_multiplier)
        return pack_partial(question, self.keys, total + noise.view(np.uint64), unopened)


def _before(pact: RoundTerms, name: str) -> list[str]:
    """The names of the aggregators that are asked before the named one."""
    names = [one for one, _ in pact.aggregators]
    return names[: names.index(name)]
