"""Checks of what the parties of a sealed round refuse, keep and pay for, by their real answers.

The server is the adversary here: it stops a round before an aggregator is asked, and then asks
what it likes, with a site and the other aggregators in league.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from epifed.audit.findings import Check
from epifed.audit.mechanisms import Trial
from epifed.audit.sealed import Parties, SeenRound, at_work, spent
from epifed.audit.sealed_bench import DRAWN, ROUNDS
from epifed.audit.served import work_in
from epifed.errors import EpifedError
from epifed.federation import aggregator
from epifed.federation.aggregator import AggregatorWork
from epifed.federation.crypto import ReportKey, SecretKeys, bound, digest
from epifed.federation.messages import Code, Parts, pack_task, unpack_task
from epifed.federation.round_terms import (
    Question,
    Report,
    RoundTerms,
    accept_partial,
    pack_question,
)
from epifed.federation.secure_training import AwayError, SecureTraining, collect, question_of
from epifed.federation.site import KEY
from epifed.federation.site import LEDGER as SITE_LEDGER
from epifed.ledger.ledger import Ledger
from epifed.settings import Settings

SITES = {"site-1": (0, 1, 2, 3), "site-2": (4, 5), "site-3": (6, 7)}
CLIENTS, LENGTH = 8, 24
VICTIM, ALLY = "site-1", "site-2"
FIRST, SECOND = "sum-1", "sum-2"


@dataclass(frozen=True)
class Stopped:
    """A round whose reports have come and of which no aggregator was asked."""

    parties: Parties
    training: SecureTraining
    seen: SeenRound
    pact: RoundTerms
    reports: tuple[Report, ...]

    def question(self, name: str = FIRST, reports: tuple[Report, ...] | None = None) -> Question:
        """What the first aggregator is asked, or the second when the first has answered."""
        chosen = self.reports if reports is None else reports
        before = []
        if name == SECOND:
            asked = self.question(FIRST)
            answer = self.parties.aggregators_at_work[FIRST].answer(pack_question(asked))[0]
            before = [accept_partial(answer, asked)]
        return question_of(self.pact, name, chosen, before)

    def answer(self, question: Question | Parts) -> Parts:
        """What the aggregator says that a question is for."""
        parts = pack_question(question) if isinstance(question, Question) else question
        name = question.aggregator if isinstance(question, Question) else FIRST
        return self.parties.aggregators_at_work[name].answer(parts)[0]

    def paid(self, name: str) -> int:
        """The rounds in a party's own ledger."""
        file = aggregator.LEDGER if name in self.parties.names else SITE_LEDGER
        return spent(self.parties.kit(name) / file)


@contextmanager
def stopped(settings: Settings, number: int = 1, **own: Any) -> Iterator[Stopped]:
    """The first round, or a later one, stopped before its first question."""
    rows = np.full((CLIENTS, LENGTH), settings.clip_norm, dtype=np.float32)
    chosen = settings.but(clients_per_round=CLIENTS // DRAWN, rounds=ROUNDS, accountant="rdp")
    trial = Trial(chosen, rows, np.ones(CLIENTS, dtype=np.int64))
    with at_work(trial, SITES, **own) as (parties, sealed):
        training = parties.training(sealed)
        for _ in range(1, number):
            training.play(parties, lambda _: None)
        parties.mute = {FIRST}
        try:
            training.play(parties, lambda _: None)
        except AwayError:
            parties.mute = set()
        seen = parties.seen[-1]
        reports = tuple(
            parties.report(parts, seen.pact, site) for site, parts in sorted(seen.reports.items())
        )
        yield Stopped(parties, training, seen, seen.pact, reports)


def _code(parts: Parts) -> str:
    """The code of an answer; 'accepted' if it is none."""
    return str(json.loads(parts["about"]).get("code", "accepted"))


def _refused(name: str, expected: str, found: dict[str, tuple[str, Code]], paid: int) -> Check:
    """A check that each of these was refused with its code, and none was paid for."""
    wrong = [
        f"{what}: {said} where {due.value} is due"
        for what, (said, due) in found.items()
        if said != due.value
    ]
    if paid:
        wrong.append(f"{paid} rounds were paid for")
    return Check(name, not wrong, expected, "; ".join(wrong) or f"so are {', '.join(found)}")


def _signed(stop: Stopped, site: str, shares: tuple[bytes, ...]) -> Report:
    """A report that a site signs as its own, whatever is in it."""
    key = ReportKey.read(stop.parties.kit(site) / KEY)
    content = bound("report", stop.pact.digest, site, *map(digest, shares))
    return Report(site, shares, key.sign(content))


def _forged(settings: Settings) -> Check:
    """A share counts only if a site of the roster has signed it."""
    with stopped(settings) as stop:
        question = stop.question()
        relayed, *others = question.reports

        def asked(*reports: Any) -> str:
            return _code(stop.answer(replace(question, reports=reports)))

        ally = _signed(stop, ALLY, stop.reports[0].shares).signature
        found = {
            "no signature": (asked(replace(relayed, signature=bytes(64)), *others), Code.SIGNATURE),
            "another site's": (asked(replace(relayed, signature=ally), *others), Code.SIGNATURE),
            "a stranger": (asked(replace(relayed, site="site-9"), *others), Code.FOREIGN),
            "two of one site": (asked(relayed, *others, relayed), Code.DOUBLED),
            "a changed share": (
                asked(replace(relayed, share=others[0].share), *others),
                Code.DIGEST,
            ),
        }
        parts = stop.seen.reports[VICTIM]
        blank = parts | {"array": bytes(64) + parts["array"][64:]}
        signs = stop.parties.federation.signs
        reports, problems = collect({VICTIM: blank}, stop.pact, signs)
        said = "accepted" if reports else problems[0].code.value
        found["no signature, by the server"] = (said, Code.SIGNATURE)
        return _refused(
            "forged reports",
            "a report that is not its site's, or is there twice, is refused and not paid for",
            found,
            stop.paid(FIRST),
        )


def _changed(settings: Settings) -> Check:
    """Nobody adds up under other terms than those that the sites have signed."""
    with stopped(settings) as stop:
        question = pack_question(stop.question())

        def said(**changes: Any) -> str:
            about = json.loads(question["about"]) | changes
            return _code(stop.answer(question | {"about": json.dumps(about)}))

        smaller = Settings.from_toml(stop.pact.settings).but(clip_norm=settings.clip_norm / 2)
        found = {
            "other c": (said(noise_multiplier=stop.pact.noise_multiplier / 2), Code.SIGNATURE),
            "other S": (said(settings=smaller.to_toml()), Code.SIGNATURE),
            "other N": (said(enrolled=CLIENTS - 1), Code.REFUSED_ROSTER),
            "other training": (said(training="another"), Code.SIGNATURE),
            "other round": (said(round=2), Code.SIGNATURE),
        }
        short = question | {"array": question["array"][:-1]}
        found["cut off"] = (_code(stop.answer(short)), Code.SIZE)
        paid = stop.paid(FIRST)
        fewer = stop.question(SECOND, stop.reports[1:])
        found["other reports for the second"] = (_code(stop.answer(fewer)), Code.REPORTS)
        alone = replace(stop.question(SECOND), before=())
        found["a second without the first"] = (_code(stop.answer(alone)), Code.REPORTS)
        paid += stop.paid(SECOND)
    with stopped(settings, epsilon_total=settings.epsilon / 100) as stop:
        found["a spent budget"] = (_code(stop.answer(stop.question())), Code.REFUSED_TOTAL)
        paid += stop.paid(FIRST)
    return _refused(
        "changed questions",
        "other terms, other reports for each, or more than the budget: refused and not paid for",
        found,
        paid,
    )


def _bound(settings: Settings) -> Check:
    """A seal opens for its own round and site alone, whoever signs it again."""
    with stopped(settings, 2) as stop:
        first = stop.parties.seen[0]
        old = stop.parties.report(first.reports[VICTIM], first.pact, VICTIM)
        now = next(report for report in stop.reports if report.site == VICTIM)
        replayed = _code(stop.answer(question_of(stop.pact, FIRST, (old,), [])))
        problem = "" if replayed == Code.SIGNATURE else f"an old report: {replayed}"
        attacks = {
            "a share under an ally's name": (ALLY, now.shares),
            "an old share under an ally's name": (ALLY, old.shares),
            "an old share, signed anew": (VICTIM, old.shares),
        }
        for what, (site, shares) in attacks.items():
            others = tuple(report for report in (now,) if report.site != site)
            reports = (*others, _signed(stop, site, shares))
            question = question_of(stop.pact, FIRST, reports, [])
            work = AggregatorWork(stop.parties.copied(FIRST))
            answer, _ = work.answer(pack_question(question))
            unopened = () if "array" not in answer else accept_partial(answer, question).unopened
            if unopened != (site,):
                problem = problem or f"{what} is opened"
    return Check(
        "old and copied shares",
        not problem,
        "a share counts once, for its own round and site, even if an ally signs a copy of it",
        problem or f"not opened: {', '.join(attacks)}; an old report is refused",
    )


def _same_answer(settings: Settings) -> Check:
    """Two answers to two questions of a round would be two releases for one payment."""
    problem = ""
    with stopped(settings) as stop:
        stop.training.play(stop.parties, lambda _: None)
        seen = stop.seen
        for name, answer in seen.answers.items():
            question = seen.question(name)
            for work in (
                stop.parties.aggregators_at_work[name],
                AggregatorWork(stop.parties.kit(name)),
            ):
                if work.answer(seen.questions[name])[0] != answer:
                    problem = problem or f"{name} answers the same question otherwise"
                other = pack_question(replace(question, reports=question.reports[1:]))
                if _code(work.answer(other)[0]) == "accepted":
                    problem = problem or f"{name} answers another question of the same round"
        for name, report in seen.reports.items():
            task = unpack_task(seen.tasks[name])
            site = work_in(stop.parties.kit(name))
            if site.answer(seen.tasks[name])[0] != report:
                problem = problem or f"{name} answers the same task otherwise"
            other_task = pack_task(replace(task, state=task.state + 1))
            if _code(site.answer(other_task)[0]) == "accepted":
                problem = problem or f"{name} answers another task of the same round"
        counts = {name: stop.paid(name) for name in (*seen.answers, *seen.reports)}
        if {*counts.values()} != {1}:
            problem = problem or f"rounds paid for: {counts}"
    return Check(
        "same answer twice",
        not problem,
        "the same question brings the same bytes, also after a restart, and is paid for once; "
        "another one in its round is refused",
        problem or f"so it is with {len(counts)} parties",
    )


def _paid_first(settings: Settings) -> Check:
    """An answer that is kept to be given, or leaves, before its payment could go unpaid."""
    problem = ""
    with stopped(settings) as stop:
        for name, kind, asked, file in (
            (FIRST, AggregatorWork, pack_question(stop.question()), aggregator.LEDGER),
            (VICTIM, work_in, stop.seen.tasks[VICTIM], SITE_LEDGER),
        ):
            kit = stop.parties.copied(name)
            with _unwritable(kit):
                unpaid = [_code(kind(kit).answer(asked)[0]) for _ in range(2)]
            if "accepted" in unpaid:
                problem = problem or f"{name} gave an answer that its ledger does not have"
            said, paid = _code(kind(kit).answer(asked)[0]), spent(kit / file)
            if (said, paid) != ("accepted", 1):
                problem = problem or f"{name}: {said}, and {paid} rounds in its ledger"
    return Check(
        "paid before the answer",
        not problem,
        "an aggregator or a site whose ledger cannot be written gives no answer, however often it "
        "is asked; then one, which is in the ledger",
        problem or "so it is with both",
    )


@contextmanager
def _unwritable(kit: Path) -> Iterator[None]:
    """For a while no round can be written into the ledger of a kit."""
    honest = Ledger.spend

    def full(self: Ledger, name: str, number: int) -> None:
        if kit in self.path.parents:
            raise EpifedError(f"{self.path}: the disk is full")
        honest(self, name, number)

    with patch.object(Ledger, "spend", full):
        yield


def _pinned(settings: Settings) -> Check:
    """A server that puts itself in the place of others, or tosses the coins, gets a code."""
    with stopped(settings) as stop:
        task = unpack_task(stop.seen.tasks[VICTIM])
        work = work_in(stop.parties.copied(VICTIM))

        def asked(**changes: Any) -> str:
            return _code(work.answer(pack_task(replace(task, **changes)))[0])

        keys = SecretKeys.make().public.text
        every = tuple((name, SecretKeys.make().public.text) for name, _ in task.aggregators)
        plain = Settings.from_toml(task.settings).but(noise="server", aggregators=None).to_toml()
        marks = "1" + "0" * (len(task.clients) - 1)
        abroad = stop.parties.panel.regions[SITES[ALLY][0]]
        found = {
            "the server's keys": (asked(aggregators=every), Code.REFUSED_TRUST),
            "one key of the server's": (
                asked(aggregators=((FIRST, keys), *task.aggregators[1:])),
                Code.REFUSED_TRUST,
            ),
            "no aggregators": (
                asked(aggregators=(), settings=plain, drawn=marks),
                Code.REFUSED_TRUST,
            ),
            "the server's coins": (asked(drawn=marks), Code.BAD_TASK),
            "a client of another site": (asked(clients=(*task.clients, abroad)), Code.BAD_TASK),
            "a client named twice": (
                asked(clients=(*task.clients, task.clients[0])),
                Code.BAD_TASK,
            ),
        }
        paid = spent(work.kit / SITE_LEDGER)
    return _refused(
        "no other is trusted",
        "a site seals to the keys that it has pinned, and draws each of its own clients once by "
        "itself, or sends nothing",
        found,
        paid,
    )


REFUSALS: dict[str, Callable[[Settings], Check]] = {
    "forged reports": _forged,
    "changed questions": _changed,
    "old and copied shares": _bound,
    "same answer twice": _same_answer,
    "paid before the answer": _paid_first,
    "no other is trusted": _pinned,
}
"""These checks by name."""
