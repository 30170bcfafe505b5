"""Trainings with clients chosen by the auditor, and all that an observer sees of them.

A `Trial` sets what every client sends in every round. A `Mechanism` trains with these clients
and returns what an adversary would see. Two mechanisms cover the transports of the deployed
rounds: `training.train` in one process, and a federation's server and sites (`served`). In
both only the learner is replaced: it sends the trial's vectors and records every release.
"""

import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from epifed.data.calendar import Step
from epifed.data.panel import CasePanel
from epifed.data.readers.formats import SIMULATION
from epifed.errors import EpifedError
from epifed.explain import Explanation, explain
from epifed.federation import aggregator, messages
from epifed.federation.aggregator import AggregatorWork, own_keys
from epifed.federation.crypto import ReportKey, Words, share, words
from epifed.federation.messages import (
    Code,
    Parts,
    Question,
    Report,
    RoundTerms,
    Task,
    accept_report,
    pack_task,
    seal_info,
    unpack_question,
)
from epifed.federation.secure_training import SecureTraining
from epifed.federation.server import Order, Post, Problem, ServedTraining
from epifed.federation.site import ANSWERS, CLIENTS, KEY, TERMS, Hosted, SiteWork, Source
from epifed.federation.site import LEDGER as SITE_LEDGER
from epifed.federation.terms import Aggregator, Federation, Server, Site, Terms
from epifed.files import write_text
from epifed.learners.base import Floats, Learner, Period, Vector
from epifed.ledger.budget import Cap, RunRecord
from epifed.ledger.ledger import Ledger
from epifed.privacy.accounting import Calibration
from epifed.privacy.noise import STEPS, Randomness, Rows, clip
from epifed.privacy.plan import PrivacyPlan
from epifed.registry import LEARNERS
from epifed.settings import Settings, seed_sequence
from epifed.testing import example_panel
from epifed.training import loop as training
from epifed.training.release import Release


@dataclass(frozen=True)
class Trial:
    """Simulated clients: client k sends `sent[k]` and has `examples[k]` examples."""

    settings: Settings
    sent: Vector
    examples: NDArray[np.int64]

    @property
    def clients(self) -> int:
        """The number of clients, N."""
        return len(self.sent)

    @cached_property
    def claim(self) -> Calibration:
        """The noise calibration that this training claims to have."""
        return PrivacyPlan.of(self.settings, self.clients).calibration

    @property
    def view(self) -> "Puppets":
        """All clients, as the learner's view."""
        return Puppets(np.arange(self.clients), self.examples)

    def in_units(self, projections: NDArray[Any]) -> Floats:
        """Scale projections of releases: one whole client counts 1, the noise has deviation c."""
        s = self.settings
        return projections.astype(np.float64) * (s.clients_per_round / s.clip_norm)


@dataclass(frozen=True)
class Puppets:
    """Clients without data, each with a number and a count of examples."""

    numbers: NDArray[np.int64]
    examples: NDArray[np.int64]

    def __len__(self) -> int:
        """The number of clients."""
        return len(self.numbers)

    def of(self, clients: NDArray[np.int64]) -> "Puppets":
        """The chosen ones of these clients."""
        return Puppets(self.numbers[clients], self.examples[clients])


@dataclass(frozen=True)
class Transcript:
    """What a training shows: each round's participating clients, and releases [rounds, length]."""

    cohorts: tuple[NDArray[np.int64], ...]
    releases: Vector


AUDIT_REGIONS, AUDIT_DAYS = 8, 60


def audit_panel() -> CasePanel:
    """An example panel with regions of all sizes, named so that they sort."""
    panel = example_panel(AUDIT_REGIONS, AUDIT_DAYS)
    return replace(panel, regions=tuple(f"{k:05d}" for k in range(AUDIT_REGIONS)))


@dataclass
class Listening:
    """Randomness that records each cohort and release, and the rows before noise."""

    randomness: Randomness
    name: str
    rows: list[Rows] = field(default_factory=list)
    cohorts: list[NDArray[np.int64]] = field(default_factory=list)
    releases: list[Rows] = field(default_factory=list)

    @classmethod
    def to(cls, randomness: Randomness) -> "Listening":
        """Wrap this source of randomness."""
        return cls(randomness, randomness.name)

    def sample(self, plan: PrivacyPlan) -> NDArray[np.int64]:
        """Draw a cohort as the wrapped source does, and record it."""
        self.cohorts.append(self.randomness.sample(plan))
        return self.cohorts[-1]

    def release(self, updates: Rows, plan: PrivacyPlan) -> Rows:
        """Release as the wrapped source does, and record rows and release."""
        self.rows.append(updates.copy())
        self.releases.append(self.randomness.release(updates, plan))
        return self.releases[-1]


class Mechanism(Protocol):
    """Anything that trains: the engine, the deployed server, or a variant with a known fault."""

    name: str

    def run(
        self, trial: Trial, seeds: np.random.SeedSequence, rounds: int | None = None
    ) -> Transcript:
        """Train these clients, for all rounds or only the first ones."""
        ...


class Recorder(Learner[Vector, Puppets]):
    """A learner whose clients send what the trial sets; it records every release."""

    name = "recorder"

    def __init__(self, trial: Trial) -> None:
        super().__init__(trial.settings)
        self.sent, self.examples = trial.sent, trial.examples
        self.cohorts: list[NDArray[np.int64]] = []
        self.releases: list[Vector] = []

    def view(self, panel: CasePanel, period: Period) -> Puppets:
        """The clients of a panel; a region's code is the client's number."""
        del period
        numbers = np.array([int(region) for region in panel.regions], dtype=np.int64)
        return Puppets(numbers, self.examples[numbers])

    def empty_view(self) -> Puppets:
        """A view without clients."""
        return Puppets(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))

    def start(self, seeds: np.random.SeedSequence) -> Vector:
        """Zeros."""
        del seeds
        return np.zeros(self.sent.shape[1], dtype=np.float32)

    def contribute(self, state: Vector, view: Puppets) -> Vector:
        """The rows of the clients in the view."""
        del state
        return self.sent[view.numbers]

    def step(self, state: Vector, release: Vector, noise_std: float) -> Vector:
        """Add the release to the state, as FedAvg does, and record it."""
        del noise_std
        self.releases.append(release)
        return state + release

    def predict(self, state: Vector, inputs: Vector) -> Floats:
        """Zeros."""
        del state
        return np.zeros(inputs.shape[:-1])

    def hindcast(self, panel: CasePanel, state: Vector, horizon: int) -> Floats:
        """Not available: raises `TypeError`."""
        raise TypeError("puppets forecast nothing")

    def pack(self, state: Vector) -> Vector:
        """The state itself."""
        return state

    def unpack(self, vector: Vector) -> Vector:
        """The vector itself."""
        return vector


@dataclass(frozen=True)
class Watched:
    """A view that records which of its rows were requested: the cohorts."""

    view: Puppets
    cohorts: list[NDArray[np.int64]]

    def __len__(self) -> int:
        """The number of clients."""
        return len(self.view)

    def of(self, clients: NDArray[np.int64]) -> Puppets:
        """The chosen clients, after recording them."""
        self.cohorts.append(clients)
        return self.view.of(clients)


class _EnoughError(Exception):
    """Raised to stop a training once enough rounds were played."""


class EngineMechanism:
    """The deployed `training.train`, with its own sampling, noise and release.

    With `secure` it takes the path for real data, which ignores the seeds.
    """

    def __init__(self, *, secure: bool = False) -> None:
        self.secure = secure
        self.name = f"in process, {'secure' if secure else 'seeded'}"

    def run(
        self, trial: Trial, seeds: np.random.SeedSequence, rounds: int | None = None
    ) -> Transcript:
        """Train in one process, for all rounds or only the first ones."""
        recorder = Recorder(trial)
        watched = Watched(trial.view, recorder.cohorts)

        def watch(number: int, _: Any) -> None:
            if number == rounds:
                raise _EnoughError

        with suppress(_EnoughError):
            training.train(
                watched,
                trial.settings,
                seeds=seeds,
                learner=recorder,
                secure=self.secure,
                watch=watch,
            )
        return Transcript(tuple(recorder.cohorts), np.stack(recorder.releases))


def likelihood_ratio(values: NDArray[np.float64], claim: Calibration) -> NDArray[np.float64]:
    """log p(took part) / p(did not), summed over the rounds (the first axis).

    `values` are projections on the client's direction in units of one client: N(0, c²) without
    it, and with it the mixture of the paper's Theorem 1. No test is stronger if the mechanism is
    what it claims to be.
    """
    q, c = claim.sampling_rate, claim.noise_multiplier
    absent = math.log1p(-q) if q < 1 else -math.inf
    ratio = np.logaddexp(absent, math.log(q) + (2 * values - 1) / (2 * c * c))
    total: NDArray[np.float64] = ratio.sum(axis=0)
    return total


PUPPET = "puppet"
"""The name under which server and sites find the learner of a trial."""
PLENTY = 1e9
"""A cap that no trial reaches."""
SERVED_SITES = 3
_START = date(2021, 1, 4)
_STATE = "EPIFED_STATE"
_SHARED_MEMORY = Path("/dev/shm")
IN_MEMORY = str(_SHARED_MEMORY) if os.access(_SHARED_MEMORY, os.W_OK | os.X_OK) else None
"""A folder in memory for temporary files; None if the system has none."""

Answer = Callable[[Parts], Parts]
"""A site's answer to a task, both as they travel."""


@dataclass
class SitesPost(Post):
    """Carry tasks to sites and answers back in this process, and keep a copy of both."""

    answering: Mapping[str, Answer]
    tasks: list[dict[str, Parts]] = field(default_factory=list)
    answers: list[dict[str, Parts]] = field(default_factory=list)
    drawn: list[set[str]] = field(default_factory=list)

    def sites(self, tasks: dict[str, Task]) -> tuple[Mapping[str, Parts], list[Problem]]:
        """Exchange the messages of one round."""
        asked = {name: messages.pack_task(task) for name, task in tasks.items()}
        answers = {name: self.answering[name](parts) for name, parts in asked.items()}
        self.tasks.append(asked)
        self.answers.append(answers)
        self.drawn.append({t.clients[i] for t in tasks.values() for i in t.chosen()})
        return answers, []


class ServedMechanism:
    """The deployed `ServedTraining` and `SiteWork`, with simulated clients at the sites.

    Prices are left out because computing them takes longest; other checks cover them.
    """

    def __init__(self, *, secure: bool = False) -> None:
        self.secure = secure
        self.name = f"federation, {'secure' if secure else 'seeded'}"

    def run(
        self, trial: Trial, seeds: np.random.SeedSequence, rounds: int | None = None
    ) -> Transcript:
        """Train over the messages of a federation, for all rounds or only the first ones."""
        with workshop() as folder, LEARNERS.using(PUPPET, puppet(trial)):
            settings = trial.settings.but(learner=PUPPET, seed=int(seeds.generate_state(1)[0]))
            panel = puppet_panel(trial.clients)
            federation = roster(panel.regions, min(SERVED_SITES, trial.clients))
            works = site_works(folder, federation, panel)
            for work in works.values():
                work.terms = _Unpriced(**work.terms.model_dump())
            post = SitesPost({name: answer_of(work) for name, work in works.items()})
            ledger = plenty(folder, settings) if self.secure else None
            training = serve(folder, federation, settings, panel, ledger, kind=_UnpricedTraining)
            while training.done < (rounds or settings.rounds):
                training.play(post, lambda _: None)
            recorder = training.rounds.learner
            assert isinstance(recorder, Recorder)
            return Transcript(_rows(post.drawn, panel.regions), np.stack(recorder.releases))


class _Unpriced(Terms):
    def epsilon_of(self, noise_multiplier: float, plan: PrivacyPlan, rounds: int) -> float:
        del noise_multiplier, plan, rounds
        return 0.0


class _UnpricedTraining(ServedTraining):
    epsilon = 0.0


def puppet(trial: Trial) -> Callable[[Settings], Recorder]:
    """The learner of a trial, in the form that the registry holds."""

    class Puppet(Recorder):
        name = PUPPET

        def __init__(self, settings: Settings) -> None:
            super().__init__(Trial(settings, trial.sent, trial.examples))

    return Puppet


def puppet_panel(clients: int) -> CasePanel:
    """A panel whose regions are the numbers of simulated clients.

    Its counts are not whole numbers, so no site archives them; simulated clients do not read them.
    """
    return CasePanel(
        counts=np.full((clients, 3), 1.5),
        regions=tuple(f"{k:05d}" for k in range(clients)),
        start=_START,
        source="puppets",
    )


def roster(clients: tuple[str, ...], sites: int) -> Federation:
    """A federation with these clients distributed over this many sites."""
    hosted = tuple(Site(name=f"site-{i + 1}", clients=clients[i::sites]) for i in range(sites))
    return Federation(server=Server(host="localhost"), sites=hosted, terms=agreeable())


def agreeable(**changes: Any) -> Terms:
    """Terms that permit every trial."""
    values: dict[str, Any] = {
        "epsilon_per_release": float("inf"),
        "epsilon_total": PLENTY,
        "accountant": "rdp",
        "seeded": True,
        "limits": {},
    }
    return Terms(**(values | changes))


def site_work(kit: Path, panel: CasePanel, clients: tuple[str, ...], terms: Terms) -> SiteWork:
    """A site in a new kit, with the panel's reported days of its own clients."""
    kit.mkdir(parents=True)
    (kit / TERMS).write_text(terms.to_toml(), encoding="utf-8")
    data = kit / "cases.csv"
    panel.to_table().filter(pl.col("region").is_in(clients)).write_csv(data)
    write_text(kit / SIMULATION, "{}")  # invented counts, on which a seeded training may run
    Source(str(data), None, {}).write(kit)
    return work_in(kit)


def work_in(kit: Path) -> SiteWork:
    """A site in its existing kit, as a worker starts it."""
    return SiteWork(kit, source=_ReadOnce(**vars(Source.of(kit))))


@dataclass(frozen=True)
class _ReadOnce(Source):
    """A source that reads each file only once per process.

    Hundreds of kits have the same file, and reading it takes longer than all that is audited.
    """

    def load(self, clients: Collection[str], step: Step = "day") -> Hosted:
        """The file's data of these clients, read or from memory."""
        asked = Path(self.path).read_bytes(), self.format, repr(self.options), tuple(clients), step
        if asked not in _READ:
            _READ[asked] = super().load(clients, step)
        return _READ[asked]


_READ: dict[tuple[Any, ...], Hosted] = {}


def site_works(folder: Path, federation: Federation, panel: CasePanel) -> dict[str, SiteWork]:
    """All sites of a federation, by name."""
    return {
        site.name: site_work(folder / "kits" / site.name, panel, site.clients, federation.terms)
        for site in federation.sites
    }


def answer_of(work: SiteWork) -> Answer:
    """A function that gives a site's answers as they leave it."""
    return lambda parts: work.answer(parts)[0]


def serve(
    folder: Path,
    federation: Federation,
    settings: Settings,
    panel: CasePanel,
    ledger: Ledger | None = None,
    name: str = "audit",
    kind: type[ServedTraining] = ServedTraining,
) -> ServedTraining:
    """The server's side of a training on this panel: seeded without a ledger, else secure."""
    order = Order.of(name, settings, panel.start, panel.end, seeded=ledger is None)
    return kind(folder / "trainings" / name, federation, order, ledger)


def plenty(folder: Path, settings: Settings) -> Ledger:
    """Create a ledger whose cap no trial reaches."""
    path = folder / "budget.db"
    delta = min(settings.delta, 1e-3)
    return Ledger.create(path, Cap(PLENTY, delta, "rdp"))


@contextmanager
def workshop() -> Iterator[Path]:
    """A temporary folder for kits and ledgers, including the state that witnesses the ledgers.

    It is in memory if the system has such a folder: no check tests what survives a power cut.
    """
    with (
        tempfile.TemporaryDirectory(prefix="epifed-audit-", dir=IN_MEMORY) as folder,
        remembering(Path(folder) / "state"),
    ):
        yield Path(folder)


@contextmanager
def remembering(folder: Path) -> Iterator[None]:
    """Redirect what this process and its children remember of ledgers to a folder."""
    before = os.environ.get(_STATE)
    os.environ[_STATE] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ[_STATE]
        else:
            os.environ[_STATE] = before


def _rows(drawn: list[set[str]], clients: tuple[str, ...]) -> tuple[NDArray[np.int64], ...]:
    row_of = {client: row for row, client in enumerate(clients)}
    return tuple(np.array(sorted(row_of[c] for c in cohort), dtype=np.int64) for cohort in drawn)


LEDGER, SERVER = "budget.db", "server"
Steps = NDArray[np.int64]
"""A vector in whole steps of the grid."""


@dataclass(frozen=True)
class SeenRound:
    """All messages of a round, by the party that received or sent them."""

    tasks: dict[str, Parts]
    reports: dict[str, Parts]
    questions: dict[str, Parts] = field(default_factory=dict)
    answers: dict[str, Parts] = field(default_factory=dict)

    def question(self, name: str) -> Question:
        """The question that an aggregator was asked."""
        return unpack_question(self.questions[name])

    @cached_property
    def terms(self) -> RoundTerms:
        """The terms of the round."""
        return self.question(next(iter(self.questions))).terms


@dataclass
class Parties(Post):
    """All parties in their kits, their messages, and the server's training."""

    folder: Path
    panel: CasePanel
    federation: Federation
    sites_at_work: dict[str, SiteWork]
    aggregators_at_work: dict[str, AggregatorWork]
    away: list[set[str]] = field(default_factory=list)
    """For each round in turn, the sites that send nothing."""
    mute: set[str] = field(default_factory=set)
    """Aggregators that do not answer."""
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
        """Create kits with keys, data and terms, for sites with these clients.

        `own` are further terms of the aggregators alone.
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
        """The names of the aggregators."""
        return [*self.aggregators_at_work]

    def kit(self, name: str) -> Path:
        """The folder of a party."""
        return self.folder / "kits" / name

    def training(self, settings: Settings, name: str = "audit") -> SecureTraining:
        """The server's side of a secure training, charged to a ledger."""
        path = self.folder / LEDGER
        ledger = Ledger(path) if path.exists() else plenty(self.folder, settings)
        order = Order.of(name, settings, self.panel.start, self.panel.end)
        return SecureTraining(self.folder / SERVER / name, self.federation, order, ledger)

    def keys(self) -> Mapping[str, str]:
        """The public keys of each aggregator, as text."""
        return {name: work.keys.public.text for name, work in self.aggregators_at_work.items()}

    def sites(self, tasks: dict[str, Task]) -> tuple[Mapping[str, Parts], list[Problem]]:
        """Exchange one round's tasks and reports with the sites."""
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
        """Ask an aggregator a question; None if it does not answer."""
        self.seen[-1].questions[name] = question
        if name in self.mute:
            return None
        answer, _ = self.aggregators_at_work[name].answer(question)
        self.seen[-1].answers[name] = answer
        return answer

    def party(self, name: str) -> SiteWork | AggregatorWork:
        """A site or an aggregator, by name."""
        return self.sites_at_work.get(name) or self.aggregators_at_work[name]

    def copied(self, name: str) -> Path:
        """Copy a party's kit without its kept answers and its ledger."""
        copy = Path(tempfile.mkdtemp(dir=self.folder)) / name
        shutil.copytree(self.kit(name), copy, ignore=shutil.ignore_patterns(ANSWERS, "*.ledger*"))
        return copy

    def opened(self, seen: SeenRound, name: str) -> dict[str, Words]:
        """The shares of a round that an aggregator can open, by site."""
        question = seen.question(name)
        found = {}
        for report in question.reports:
            one = self.share(seen.terms, name, report.site, report.share)
            if one is not None:
                found[report.site] = one
        return found

    def share(self, terms: RoundTerms, name: str, site: str, sealed: bytes) -> Words | None:
        """Open a share that was sealed to an aggregator; None if it does not open."""
        content = own_keys(self.kit(name)).open(sealed, seal_info(terms, site, name))
        return share(content or b"", terms.length, last=terms.last(name))

    def vector(self, terms: RoundTerms, report: Report) -> Steps:
        """The vector that a site sent: the sum of all its shares."""
        total = np.zeros(terms.length, dtype=np.uint64)
        for name, sealed in zip(self.names, report.shares, strict=True):
            one = self.share(terms, name, report.site, sealed)
            if one is None:
                raise EpifedError(f"a share of {report.site} that {name} cannot open")
            total += one
        return total.view(np.int64)

    def report(self, parts: Parts, terms: RoundTerms, site: str) -> Report:
        """A site's report, as the server accepts it."""
        return accept_report(parts, terms, site, self.federation.signs[site])


def partial_sum(seen: SeenRound, name: str) -> Words:
    """The partial sum in an aggregator's answer."""
    return words(seen.answers[name]["array"])


def spent(ledger: Path) -> int:
    """The number of rounds in a ledger; 0 if there is no ledger yet."""
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
    """The parties of a trial's simulated clients, and the settings to train them with."""
    with workshop() as folder, LEARNERS.using(PUPPET, puppet(trial)):
        panel = puppet_panel(trial.clients)
        settings = trial.settings.but(
            noise="aggregators", aggregators=aggregators, sampler="poisson", learner=PUPPET
        )
        hosted = {name: tuple(panel.regions[k] for k in ks) for name, ks in sites.items()}
        yield Parties.make(folder, panel, hosted, aggregators, own), settings


@dataclass(frozen=True)
class Played:
    """A finished training with aggregators, with all that was sent in it opened."""

    rounds: tuple[SeenRound, ...]
    reports: tuple[dict[str, Report], ...]
    vectors: tuple[dict[str, Steps], ...]
    """For each round, the vector of each site."""
    noises: Steps
    """[aggregators, rounds, length]: the noise that each added to the shares that it opened."""
    shares: dict[str, list[Words]]
    """Every share that each aggregator opened."""
    totals: Steps
    """[rounds, length]: the sum of each round's partial sums."""
    releases: Vector
    """[rounds, length]: the releases; NaN where the server refused the sum."""
    release: Release
    books: dict[str, RunRecord]
    """The training in each party's ledger."""
    held: dict[str, bytes]
    """All bytes on the disks of the server and of each aggregator at the end."""

    learner: Callable[[Settings], Recorder]

    @cached_property
    def explained(self) -> Explanation:
        """The explanation that `explain` gives of the release."""
        with workshop() as folder, LEARNERS.using(PUPPET, self.learner):
            self.release.write(folder / "model.epifed")
            return explain(folder / "model.epifed")

    @classmethod
    def of(cls, parties: Parties, settings: Settings) -> "Played":
        """Train these parties to the end."""
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
            [
                total - _added_shares(shares)
                for total, shares in zip(partials[n], opened[n], strict=True)
            ]
            for n in names
        ]
        reports = tuple(
            {site: parties.report(parts, one.terms, site) for site, parts in one.reports.items()}
            for one in seen
        )
        ledgers = {"server": parties.folder / LEDGER}
        ledgers |= {name: parties.kit(name) / aggregator.LEDGER for name in names}
        ledgers |= {name: parties.kit(name) / SITE_LEDGER for name in parties.sites_at_work}
        return cls(
            rounds=tuple(seen),
            reports=reports,
            vectors=tuple(
                {site: parties.vector(one.terms, report) for site, report in sent.items()}
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


def _added_shares(shares: Mapping[str, Words]) -> Words:
    return np.asarray(np.sum([*shares.values()], axis=0, dtype=np.uint64))


def contents(folder: Path) -> bytes:
    """All bytes of the files in a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return b"".join(path.read_bytes() for path in files)


HONEST = "site-1"
"""The attacked site; the other sites collude with the attackers."""
SMALL_SITE = "site-3"
"""A site with one client, so that often none of its clients is drawn."""
SEALED_ROUNDS = 4
DRAWN = 2
"""One in this many clients is drawn."""
AWAY: tuple[set[str], ...] = (set(), {"site-2"}, {"site-2", "site-3"}, set())
"""The sites that drop out of each busy round: in the third all but one."""
TIMES_BOUND = 100.0
"""How many times S a busy client sends."""
SEALED_EPSILON = 8.0
"""The claim of both trainings; at a smaller or a larger ε this few canaries show less."""
LARGE = 2**20
"""Sizes of at least this many steps do not coincide by chance."""
COPIES, MOST_COPIES = 2, 25


@dataclass(frozen=True)
class Layout:
    """The clients of each site, and the length of a vector."""

    canaries: int
    """Clients of the attacked site; an even number."""

    @property
    def sites(self) -> dict[str, tuple[int, ...]]:
        """The clients of each site."""
        start = self.canaries
        others = {"site-2": range(start, start + 7), SMALL_SITE: range(start + 7, start + 8)}
        return {HONEST: tuple(range(start))} | {name: tuple(ks) for name, ks in others.items()}

    @property
    def clients(self) -> int:
        """The number of clients, N."""
        return self.canaries + 8

    @property
    def length(self) -> int:
        """A direction for each client, and as many that no client has as there are canaries."""
        return self.clients + self.canaries


LAYOUT = Layout(392)


@dataclass(frozen=True)
class Again:
    """Answers of copies of two sites to tasks that the sites have answered before."""

    sent: tuple[Steps, ...]
    """The vectors of copies of the attacked site."""
    few: dict[bool, list[Parts]]
    """Answers of copies of the small site, by whether any client was drawn."""

    @classmethod
    def of(cls, parties: Parties, seen: SeenRound) -> "Again":
        """Ask the copies the tasks of a round."""
        few: dict[bool, list[Parts]] = {False: [], True: []}
        for _ in range(MOST_COPIES):
            answer, vector = _answered(parties, seen, SMALL_SITE)
            few[bool(vector.any())].append(answer)
            if all(few.values()):
                break
        return cls(tuple(_answered(parties, seen, HONEST)[1] for _ in range(COPIES)), few)


def _answered(parties: Parties, seen: SeenRound, site: str) -> tuple[Parts, Steps]:
    answer, error = work_in(parties.copied(site)).answer(seen.tasks[site])
    if error is not None:
        raise error
    return answer, parties.vector(seen.terms, parties.report(answer, seen.terms, site))


@dataclass(frozen=True)
class SealedBench:
    """The trainings with aggregators, each played when a check first needs it."""

    settings: Settings
    seed: int = 0
    layout: Layout = LAYOUT

    @property
    def length(self) -> int:
        """The length of a vector."""
        return self.layout.length

    @cached_property
    def plan(self) -> PrivacyPlan:
        """The privacy plan of both trainings."""
        return PrivacyPlan.of(self._settings.but(noise="aggregators"), self.layout.clients)

    @property
    def deviation(self) -> float:
        """The deviation that each aggregator's noise must have, in steps."""
        return self.plan.noise_multiplier * STEPS

    @cached_property
    def quiet(self) -> Played:
        """A training with three aggregators in which all clients send zeros."""
        sent = np.zeros((self.layout.clients, self.length), dtype=np.float32)
        with at_work(self._trial(sent), self.layout.sites, 3) as (parties, settings):
            return Played.of(parties, settings)

    @property
    def busy(self) -> Played:
        """A training with two aggregators in which all clients send and sites drop out."""
        return self._busy[0]

    @property
    def again(self) -> Again:
        """Answers of copies of the sites to the tasks of the busy training's first round."""
        return self._busy[1]

    def trainings(self) -> Iterator[Played]:
        """The busy training, then the quiet one."""
        yield self.busy
        yield self.quiet

    @cached_property
    def directions(self) -> Floats:
        """Orthonormal rows: one for each client, then those that no client has."""
        rng = np.random.default_rng(seed_sequence(self.seed, "sealed", "directions"))
        found: Floats = np.linalg.qr(rng.standard_normal((self.length, self.length)))[0]
        return found

    def weights(self, vector: Steps) -> Floats:
        """How many times S each client counts in a vector."""
        found: Floats = self.directions[: self.layout.clients] @ (vector / STEPS)
        return found

    def drawn(self, vector: Steps) -> NDArray[np.int64]:
        """1 for each client of the attacked site that is part of the vector, else 0."""
        mine = self.weights(vector)[: self.layout.canaries]
        return (mine > 1 / 2).astype(np.int64)

    @cached_property
    def sent(self) -> Vector:
        """The rows that the busy clients send."""
        rows = TIMES_BOUND * self.settings.clip_norm * self.directions[: self.layout.clients]
        return rows.astype(np.float32)

    @cached_property
    def contributions(self) -> NDArray[np.uint64]:
        """Numbers of the busy training that must stay hidden: of sums, and clients' in pairs."""
        sums = np.concatenate([v for sent in self.busy.vectors for v in sent.values()])
        rows = clip(self.sent, self.plan.bound).astype(np.float32)
        large = sums[np.abs(sums) > LARGE].view(np.uint64)
        return np.unique(np.concatenate([large, rows.view(np.uint64).ravel()]))

    @cached_property
    def _busy(self) -> tuple[Played, Again]:
        with at_work(self._trial(self.sent), self.layout.sites) as (parties, settings):
            parties.away = [*AWAY]
            played = Played.of(parties, settings)
            return played, Again.of(parties, played.rounds[0])

    @cached_property
    def _settings(self) -> Settings:
        return self.settings.but(
            clients_per_round=self.layout.clients // DRAWN,
            rounds=SEALED_ROUNDS,
            epsilon=SEALED_EPSILON,
            accountant="rdp",
            sampler="poisson",
        )

    def _trial(self, sent: Vector) -> Trial:
        return Trial(self._settings, sent, np.ones(len(sent), dtype=np.int64))
