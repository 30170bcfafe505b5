"""Aggregator's side of a round, without FLARE: check reports, book the round, add up, add noise.

The server relays the sites' sealed shares and is not trusted. The aggregator answers one question
in each round, adds the noise of a whole release itself, and keeps the answer.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from epifed.errors import EpifedError
from epifed.federation.answers import AnswerCache, keep_release
from epifed.federation.crypto import SecretKeys, share
from epifed.federation.messages import (
    Code,
    Delivery,
    MessageError,
    Parts,
    Question,
    Readiness,
    RoundTerms,
    pack_code,
    pack_partial,
    seal_info,
    unpack_question,
)
from epifed.federation.readiness import weigh
from epifed.federation.terms import Federation, SiteLedger, Terms
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
            training, number = question.terms.training, question.terms.round
            return self._sum(question, parts), None
        except MessageError as error:
            return pack_code(training, number, error.code), error
        except Exception as error:
            return pack_code(training, number, Code.ERROR), error

    def ready(self, parts: Parts) -> Parts:
        """Whether the aggregator would take part in a training, by its roster, terms and ledger."""
        try:
            return self._weighed(RoundTerms.unpack(parts)).pack()
        except MessageError as error:
            return Readiness(error.code).pack()
        except Exception:
            return Readiness(Code.ERROR).pack()

    def _weighed(self, asked: RoundTerms) -> Readiness:
        settings, plan = asked.read()
        self._refuse_roster(asked, plan)
        try:  # the learner is needed to compute the release again
            make_learner(settings)
        except EpifedError:
            raise MessageError(Code.BAD_TASK) from None
        return weigh(
            asked, self.terms, self._ledger(asked), self.answers.last_round(asked.training)
        )

    def receive(self, delivery: Delivery) -> Release:
        """Keep the finished release, after computing it again from the signed sums."""
        if delivery.evidence is None:
            raise MessageError(Code.REFUSED_TRUST)
        first = delivery.evidence.first.fingerprints
        self._refuse_others(first, self._own_name(first))
        return keep_release(self.kit, LEDGER, self.terms, delivery)

    def _ledger(self, asked: RoundTerms) -> SiteLedger | None:
        """The ledger to charge; None for a test."""
        secure = asked.randomness == "secure"
        return SiteLedger.of(self.kit / LEDGER, self.terms) if secure else None

    def _refuse_roster(self, asked: RoundTerms, plan: PrivacyPlan) -> None:
        """Refuse a training of other clients or aggregators than the roster's."""
        if (
            plan.noise != "aggregators"
            or asked.enrolled != len(self.roster.clients)
            or plan.aggregators != len(asked.aggregators)
        ):
            raise MessageError(Code.REFUSED_ROSTER)
        self._refuse_others(asked.fingerprints, self._own_name(asked.fingerprints))

    def _own_name(self, fingerprints: Mapping[str, str]) -> str:
        """The name under which this aggregator's keys are listed; raises if the list differs."""
        own = [name for name, pin in fingerprints.items() if pin == self.keys.public.fingerprint]
        if len(own) != 1 or tuple(fingerprints) != tuple(
            aggregator.name for aggregator in self.roster.aggregators
        ):
            raise MessageError(Code.REFUSED_ROSTER)
        return own[0]

    def _refuse_others(self, fingerprints: Mapping[str, str], own: str) -> None:
        """Refuse a training whose other aggregators differ from the pinned ones."""
        others = dict(fingerprints)
        if own not in self.terms.aggregators:
            del others[own]
        self.terms.refuse_trust(others)

    def _sum(self, question: Question, parts: Parts) -> Parts:
        settings, plan = self._agreed(question)
        self._check_reports(question)
        self._check_others(question)

        def make() -> Parts:
            return self._added_up(question, settings, plan)

        return self.answers.give_charged(parts, question.terms, make, self._ledger(question.terms))

    def _agreed(self, question: Question) -> tuple[Settings, PrivacyPlan]:
        """The settings and plan of a round, after checking it against the roster and the terms."""
        asked = question.terms
        settings, plan = asked.read()
        if plan.noise != "aggregators" or not plan.private or asked.rounds != plan.rounds:
            raise MessageError(Code.BAD_TASK)
        self._refuse_roster(asked, plan)
        if asked.keys[question.aggregator] != self.keys.public:
            raise MessageError(Code.REFUSED_ROSTER)
        self.terms.refuse(asked, settings, plan)
        return settings, plan

    def _check_reports(self, question: Question) -> None:
        """Check that the reports are of different sites of the roster, signed for this round."""
        asked, seen = question.terms, set[str]()
        place = len(asked.before(question.aggregator))
        for report in question.reports:
            if report.site in seen:
                raise MessageError(Code.DOUBLED)
            seen.add(report.site)
            report.check(asked, place, self.roster.signs.get(report.site))

    def _check_others(self, question: Question) -> None:
        """Check that the aggregators asked before this one were given the same reports."""
        expected = question.terms.before(question.aggregator)
        if [statement.aggregator for statement in question.before] != expected or not all(
            statement.holds(question.terms) and statement.reported == question.reported
            for statement in question.before
        ):
            raise MessageError(Code.REPORTS)

    def _added_up(self, question: Question, settings: Settings, plan: PrivacyPlan) -> Parts:
        asked, name = question.terms, question.aggregator
        total = np.zeros(asked.length, dtype=np.uint64)
        unopened = []
        for report in question.reports:
            content = self.keys.open(report.share, seal_info(asked, report.site, name))
            opened = share(content or b"", asked.length, last=asked.last(name))
            if opened is None:
                unopened.append(report.site)
            else:
                total += opened
        if asked.randomness == "secure":
            noise = grid_noise(asked.length, asked.noise_multiplier)
        else:
            place = len(asked.before(name))
            stream = settings.seed, place, asked.round
            noise = seeded_share(plan, *stream, asked.length, asked.noise_multiplier)
        return pack_partial(question, self.keys, total + noise.view(np.uint64), unopened)
