"""A federation with aggregators on the audit's bench: the deployed parties, played in one process.

The server is `federation.relay.SecureTraining`, the sites and the aggregators are at work in kits
of their own, and the messages between them are kept as they travelled. The audit holds the keys of
all aggregators, so it can open what no single party can.
"""

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epifed.audit.mechanisms import Recorder, Trial
from epifed.audit.served import PUPPET, agreeable, plenty, puppet, puppet_panel, site_work, workshop
from epifed.data.panel import CasePanel
from epifed.errors import EpifedError
from epifed.explain import Explanation, explain
from epifed.federation import aggregator
from epifed.federation.aggregator import AggregatorWork, own_keys
from epifed.federation.crypto import ReportKey, Words, share, words
from epifed.federation.messages import Code, Parts, Task, pack_task
from epifed.federation.roster import Aggregator, Federation, Server, Site
from epifed.federation.round_terms import (
    Question,
    Report,
    RoundTerms,
    accept_report,
    seal_info,
    unpack_question,
)
from epifed.federation.secure_training import SecureTraining
from epifed.federation.server import Order, Problem
from epifed.federation.site import ANSWERS, CLIENTS, KEY, SiteWork
from epifed.federation.site import LEDGER as SITE_LEDGER
from epifed.learners.base import Vector
from epifed.ledger.ledger import Ledger
from epifed.ledger.rows import RunRecord
from epifed.registry import LEARNERS
from epifed.settings import Settings
from epifed.training.release import Release

LEDGER, SERVER = "budget.db", "server"
Steps = NDArray[np.int64]
"""A vector in whole steps of the grid."""


@dataclass(frozen=True)
class SeenRound:
    """All messages of a round, by the party that they went to or came from."""

    tasks: dict[str, Parts]
    reports: dict[str, Parts]
    questions: dict[str, Parts] = field(default_factory=dict)
    answers: dict[str, Parts] = field(default_factory=dict)

    def question(self, name: str) -> Question:
        """What an aggregator was asked."""
        return unpack_question(self.questions[name])

    @cached_property
    def pact(self) -> RoundTerms:
        """What the round was agreed on."""
        return self.question(next(iter(self.questions))).pact


@dataclass
class Parties:
    """All parties in their kits, the post between them, and the server's training."""

    folder: Path
    panel: CasePanel
    federation: Federation
    sites_at_work: dict[str, SiteWork]
    aggregators_at_work: dict[str, AggregatorWork]
    away: list[set[str]] = field(default_factory=list)
    """For each round, in turn, the sites that send nothing."""
    mute: set[str] = field(default_factory=set)
    """Aggregators that are not there when they are asked."""
    seen: list[SeenRound] = field(default_factory=list)

    @classmethod
    def make(
        cls,
        folder: Path,
        panel: CasePanel,
        sites: Mapping[str, tuple[str, ...]],
        aggregators: int,
        own: Mapping[str, Any],
    ) -> "Parties":
        """Kits with keys, data and terms, for sites with these clients.

        `own` are terms of the aggregators alone.
        """
        names = [f"sum-{i + 1}" for i in range(aggregators)]
        kits = folder / "kits"
        pins = {name: own_keys(kits / name).public.fingerprint for name in names}
        works, hosted = {}, []
        for name, clients in sites.items():
            works[name] = site_work(kits / name, panel, clients, agreeable(aggregators=pins))
            (kits / name / CLIENTS).write_text(json.dumps(clients), encoding="utf-8")
            key = ReportKey.make(kits / name / KEY)
            hosted.append(Site(name=name, clients=clients, signs=key.public))
        federation = Federation(
            server=Server(host="localhost"),
            sites=tuple(hosted),
            aggregators=tuple(Aggregator(name=name) for name in names),
        )
        for name in names:
            others = {other: pin for other, pin in pins.items() if other != name}
            said = agreeable(aggregators=others, **own)
            (kits / name / aggregator.TERMS).write_text(said.to_toml(), encoding="utf-8")
            (kits / name / aggregator.ROSTER).write_text(federation.to_toml(), encoding="utf-8")
        return cls(folder, panel, federation, works, {n: AggregatorWork(kits / n) for n in names})

    @property
    def names(self) -> list[str]:
        """The aggregators."""
        return [*self.aggregators_at_work]

    def kit(self, name: str) -> Path:
        """A party's own folder."""
        return self.folder / "kits" / name

    def training(self, settings: Settings, name: str = "audit") -> SecureTraining:
        """The server's side of a secure training, which a ledger pays for."""
        path = self.folder / LEDGER
        ledger = Ledger(path) if path.exists() else plenty(self.folder, settings)
        order = Order.of(name, settings, self.panel.start, self.panel.end)
        return SecureTraining(self.folder / SERVER / name, self.federation, order, ledger)

    def keys(self) -> Mapping[str, str]:
        """What each aggregator says of its keys."""
        return {name: work.keys.public.text for name, work in self.aggregators_at_work.items()}

    def sites(self, tasks: dict[str, Task]) -> tuple[Mapping[str, Parts], list[Problem]]:
        """One round's tasks and reports."""
        away = self.away.pop(0) if self.away else set()
        asked = {name: pack_task(task) for name, task in tasks.items()}
        answers = {
            name: self.sites_at_work[name].answer(parts)[0]
            for name, parts in asked.items()
            if name not in away
        }
        self.seen.append(SeenRound(asked, answers))
        return answers, [Problem(name, Code.ABSENT) for name in sorted(away)]

    def aggregator(self, name: str, question: Parts) -> Parts | None:
        """One question and its answer."""
        self.seen[-1].questions[name] = question
        if name in self.mute:
            return None
        answer, _ = self.aggregators_at_work[name].answer(question)
        self.seen[-1].answers[name] = answer
        return answer

    def copied(self, name: str) -> Path:
        """A copy of a party's kit that has answered and paid for nothing yet."""
        copy = Path(tempfile.mkdtemp(dir=self.folder)) / name
        shutil.copytree(self.kit(name), copy, ignore=shutil.ignore_patterns(ANSWERS, "*.ledger*"))
        return copy

    def opened(self, seen: SeenRound, name: str) -> dict[str, Words]:
        """The shares of a round that an aggregator can open, by site."""
        question = seen.question(name)
        found = {}
        for report in question.reports:
            one = self.share(seen.pact, name, report.site, report.share)
            if one is not None:
                found[report.site] = one
        return found

    def share(self, pact: RoundTerms, name: str, site: str, sealed: bytes) -> Words | None:
        """A share that was sealed to an aggregator, if it opens."""
        content = own_keys(self.kit(name)).open(sealed, seal_info(pact, site, name))
        return share(content or b"", pact.length, last=pact.last(name))

    def vector(self, pact: RoundTerms, report: Report) -> Steps:
        """What a site sent: all of its shares, added up."""
        total = np.zeros(pact.length, dtype=np.uint64)
        for name, sealed in zip(self.names, report.shares, strict=True):
            one = self.share(pact, name, report.site, sealed)
            if one is None:
                raise EpifedError(f"a share of {report.site} that {name} cannot open")
            total += one
        return total.view(np.int64)

    def report(self, parts: Parts, pact: RoundTerms, site: str) -> Report:
        """A site's report, as the server takes it in."""
        return accept_report(parts, pact, site, self.federation.signs[site])


def partial_sum(seen: SeenRound, name: str) -> Words:
    """What an aggregator answered."""
    return words(seen.answers[name]["array"])


def spent(ledger: Path) -> int:
    """The rounds that a ledger shows; none if there is none yet."""
    if not ledger.exists():
        return 0
    return sum(run.spent for run in Ledger(ledger).book().runs.values())


@contextmanager
def at_work(
    trial: Trial,
    sites: Mapping[str, tuple[int, ...]],
    aggregators: int = 2,
    **own: Any,
) -> Iterator[tuple[Parties, Settings]]:
    """The parties of a trial's puppets, and the settings of a training of them."""
    with workshop() as folder, LEARNERS.using(PUPPET, puppet(trial)):
        panel = puppet_panel(trial.clients)
        settings = trial.settings.but(
            noise="aggregators", aggregators=aggregators, sampler="poisson", learner=PUPPET
        )
        hosted = {name: tuple(panel.regions[k] for k in ks) for name, ks in sites.items()}
        yield Parties.make(folder, panel, hosted, aggregators, own), settings


@dataclass(frozen=True)
class Played:
    """A training with aggregators that was played to its end, opened and written down."""

    rounds: tuple[SeenRound, ...]
    reports: tuple[dict[str, Report], ...]
    vectors: tuple[dict[str, Steps], ...]
    """For each round, what each site sent."""
    noises: Steps
    """[aggregators, rounds, length]: what each added to the shares that it opened."""
    shares: dict[str, list[Words]]
    """Of each aggregator, every share that it opened."""
    totals: Steps
    """[rounds, length]: the partial sums of each round, added up."""
    releases: Vector
    """[rounds, length]: what was released; not a number where the server refused the sum."""
    release: Release
    books: dict[str, RunRecord]
    """The training in each party's ledger."""
    held: dict[str, bytes]
    """All bytes on the disks of the server and of each aggregator at the end."""

    learner: Callable[[Settings], Recorder]

    @cached_property
    def explained(self) -> Explanation:
        """What is said of the release to whoever asks."""
        with workshop() as folder, LEARNERS.using(PUPPET, self.learner):
            self.release.write(folder / "model.epifed")
            return explain(folder / "model.epifed")

    @classmethod
    def of(cls, parties: Parties, settings: Settings) -> "Played":
        """A whole training of these parties."""
        training = parties.training(settings)
        recorder, names, seen = training.rounds.learner, parties.names, parties.seen
        assert isinstance(recorder, Recorder)
        releases = []
        while not training.finished:
            training.play(parties, lambda _: None)
            learned = recorder.releases.pop() if recorder.releases else None
            releases.append(np.full(training.rounds.length, np.nan) if learned is None else learned)
        release = training.finish()
        opened = {name: [parties.opened(one, name) for one in seen] for name in names}
        partials = {name: [partial_sum(one, name) for one in seen] for name in names}
        noises = [
            [total - _added(shares) for total, shares in zip(partials[n], opened[n], strict=True)]
            for n in names
        ]
        reports = tuple(
            {site: parties.report(parts, one.pact, site) for site, parts in one.reports.items()}
            for one in seen
        )
        ledgers = {"server": parties.folder / LEDGER}
        ledgers |= {name: parties.kit(name) / aggregator.LEDGER for name in names}
        ledgers |= {name: parties.kit(name) / SITE_LEDGER for name in parties.sites_at_work}
        return cls(
            rounds=tuple(seen),
            reports=reports,
            vectors=tuple(
                {site: parties.vector(one.pact, report) for site, report in sent.items()}
                for one, sent in zip(seen, reports, strict=True)
            ),
            noises=np.array(noises, dtype=np.uint64).view(np.int64),
            shares={n: [s for shares in opened[n] for s in shares.values()] for n in names},
            totals=np.array([*partials.values()], dtype=np.uint64).sum(axis=0).view(np.int64),
            releases=np.stack(releases).astype(np.float32),
            release=release,
            books={
                who: next(iter(Ledger(path).book().runs.values())) for who, path in ledgers.items()
            },
            held={name: contents(parties.kit(name)) for name in names}
            | {"server": contents(parties.folder / SERVER)},
            learner=puppet(Trial(settings, recorder.sent, recorder.examples)),
        )


def _added(shares: Mapping[str, Words]) -> Words:
    return np.asarray(np.sum([*shares.values()], axis=0, dtype=np.uint64))


def contents(folder: Path) -> bytes:
    """All bytes of the files in a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return b"".join(path.read_bytes() for path in files)
