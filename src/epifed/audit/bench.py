"""What the audit looks at from outside: the trusted side of a training, with chosen clients in it.

A `Trial` says what every client sends whenever it is asked. A `Mechanism` trains with such
clients and hands back what an adversary would see. There are two, one for each transport of the
deployed rounds: `training.train` in one process, and a federation's server and sites (`served`).
In both only the learner is a puppet: it sends the trial's vectors and writes down every release.
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
from epifed.federation.messages import Code, Parts, Task, pack_task
from epifed.federation.round_terms import (
    Question,
    Report,
    RoundTerms,
    accept_report,
    seal_info,
    unpack_question,
)
from epifed.federation.secure_training import SecureTraining
from epifed.federation.server import Answers, Order, Problem, ServedTraining, take_in
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
from epifed.training.rounds import Rounds


@dataclass(frozen=True)
class Trial:
    """A federation of puppets: client k sends `sent[k]`, and has `examples[k]` examples."""

    settings: Settings
    sent: Vector
    examples: NDArray[np.int64]

    @property
    def clients(self) -> int:
        """N."""
        return len(self.sent)

    @cached_property
    def claim(self) -> Calibration:
        """The noise that the accountant says this training has."""
        return PrivacyPlan.of(self.settings, self.clients).calibration

    @property
    def view(self) -> "Puppets":
        """All clients, as a learner sees them."""
        return Puppets(np.arange(self.clients), self.examples)

    def in_units(self, projections: NDArray[Any]) -> Floats:
        """Projections of releases such that one whole client counts 1, and the noise c."""
        s = self.settings
        return projections.astype(np.float64) * (s.clients_per_round / s.clip_norm)


@dataclass(frozen=True)
class Puppets:
    """Clients that are nothing but their numbers, and how many examples they would have."""

    numbers: NDArray[np.int64]
    examples: NDArray[np.int64]

    def __len__(self) -> int:
        """The number of clients."""
        return len(self.numbers)

    def of(self, clients: NDArray[np.int64]) -> "Puppets":
        """Some of them."""
        return Puppets(self.numbers[clients], self.examples[clients])


@dataclass(frozen=True)
class Transcript:
    """What a training showed: who came to each round, and what was released [rounds, length]."""

    cohorts: tuple[NDArray[np.int64], ...]
    releases: Vector


AUDIT_REGIONS, AUDIT_DAYS = 8, 60


def audit_panel() -> CasePanel:
    """Regions of all sizes, named so that they sort."""
    panel = example_panel(AUDIT_REGIONS, AUDIT_DAYS)
    return replace(panel, regions=tuple(f"{k:05d}" for k in range(AUDIT_REGIONS)))


@dataclass
class Listening:
    """Randomness that keeps a copy of the rows that noise is about to be added to."""

    randomness: Randomness
    name: str
    rows: list[Rows] = field(default_factory=list)
    cohorts: list[NDArray[np.int64]] = field(default_factory=list)
    releases: list[Rows] = field(default_factory=list)

    @classmethod
    def to(cls, randomness: Randomness) -> "Listening":
        """To this one."""
        return cls(randomness, randomness.name)

    def sample(self, plan: PrivacyPlan) -> NDArray[np.int64]:
        """As it was, noted."""
        self.cohorts.append(self.randomness.sample(plan))
        return self.cohorts[-1]

    def release(self, updates: Rows, plan: PrivacyPlan) -> Rows:
        """As it was, noted."""
        self.rows.append(updates.copy())
        self.releases.append(self.randomness.release(updates, plan))
        return self.releases[-1]


class Mechanism(Protocol):
    """Anything that trains: the engine, the deployed server, or one with a bug in it."""

    name: str

    def run(
        self, trial: Trial, seeds: np.random.SeedSequence, rounds: int | None = None
    ) -> Transcript:
        """One training of these clients, or its first rounds."""
        ...


class Recorder(Learner[Vector, Puppets]):
    """A learner whose clients send what the trial says, and whose server writes down."""

    name = "recorder"

    def __init__(self, trial: Trial) -> None:
        super().__init__(trial.settings)
        self.sent, self.examples = trial.sent, trial.examples
        self.cohorts: list[NDArray[np.int64]] = []
        self.releases: list[Vector] = []

    def view(self, panel: CasePanel, period: Period) -> Puppets:
        """Puppets have no data: a region's code is its number."""
        del period
        numbers = np.array([int(region) for region in panel.regions], dtype=np.int64)
        return Puppets(numbers, self.examples[numbers])

    def empty_view(self) -> Puppets:
        """No puppet."""
        return Puppets(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))

    def start(self, seeds: np.random.SeedSequence) -> Vector:
        """Zeros."""
        del seeds
        return np.zeros(self.sent.shape[1], dtype=np.float32)

    def contribute(self, state: Vector, view: Puppets) -> Vector:
        """The rows of those who came."""
        del state
        return self.sent[view.numbers]

    def step(self, state: Vector, release: Vector, noise_std: float) -> Vector:
        """As FedAvg."""
        del noise_std
        self.releases.append(release)
        return state + release

    def predict(self, state: Vector, inputs: Vector) -> Floats:
        """Nothing."""
        del state
        return np.zeros(inputs.shape[:-1])

    def hindcast(self, panel: CasePanel, state: Vector, horizon: int) -> Floats:
        """Nothing."""
        raise TypeError("puppets forecast nothing")

    def pack(self, state: Vector) -> Vector:
        """Itself."""
        return state

    def unpack(self, vector: Vector) -> Vector:
        """Itself."""
        return vector


@dataclass(frozen=True)
class Watched:
    """A view that writes down which of its rows were asked for: the cohorts."""

    view: Puppets
    cohorts: list[NDArray[np.int64]]

    def __len__(self) -> int:
        """The number of clients."""
        return len(self.view)

    def of(self, clients: NDArray[np.int64]) -> Puppets:
        """Some of them, noted."""
        self.cohorts.append(clients)
        return self.view.of(clients)


class _EnoughError(Exception):
    """As many rounds were played as are looked at."""


class EngineMechanism:
    """`training.train` as it is: its sampling, its noise, its release.

    With `secure`, the path for real data, which pays no heed to the seeds.
    """

    def __init__(self, *, secure: bool = False) -> None:
        self.secure = secure
        self.name = f"in process, {'secure' if secure else 'seeded'}"

    def run(
        self, trial: Trial, seeds: np.random.SeedSequence, rounds: int | None = None
    ) -> Transcript:
        """One training by the engine, or its first rounds."""
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
    it, and with it the mixture of the paper's Theorem 1. The strongest test there is, if the
    mechanism is what it claims to be.
    """
    q, c = claim.sampling_rate, claim.noise_multiplier
    absent = math.log1p(-q) if q < 1 else -math.inf
    ratio = np.logaddexp(absent, math.log(q) + (2 * values - 1) / (2 * c * c))
    total: NDArray[np.float64] = ratio.sum(axis=0)
    return total


PUPPET = "puppet"
"""The learner of a trial, by the name under which server and sites find it."""
PLENTY = 1e9
"""A cap that no trial reaches."""
SERVED_SITES = 3
_START = date(2021, 1, 4)
_STATE = "EPIFED_STATE"
_SHARED_MEMORY = Path("/dev/shm")
IN_MEMORY = str(_SHARED_MEMORY) if os.access(_SHARED_MEMORY, os.W_OK | os.X_OK) else None
"""Where files are written without a disk; none: a folder as any other."""

Answer = Callable[[Parts], Parts]
"""A site: a task as it travels, and the answer as it travels."""


@dataclass
class Post:
    """Carries tasks to sites and answers back, as the transport does, and keeps a copy of both."""

    sites: Mapping[str, Answer]
    tasks: list[dict[str, Parts]] = field(default_factory=list)
    answers: list[dict[str, Parts]] = field(default_factory=list)
    drawn: list[set[str]] = field(default_factory=list)

    def __call__(self, tasks: dict[str, Task], rounds: Rounds[Any]) -> Answers:
        """One round's messages."""
        asked = {name: messages.pack_task(task) for name, task in tasks.items()}
        answers = {name: self.sites[name](parts) for name, parts in asked.items()}
        self.tasks.append(asked)
        self.answers.append(answers)
        self.drawn.append({t.clients[i] for t in tasks.values() for i in t.chosen()})
        return take_in(answers, tasks, rounds)


class ServedMechanism:
    """`ServedTraining` and `SiteWork` as they are, with puppets as the sites' clients.

    Only prices are left out, which take longer than all the rest: other checks look at them.
    """

    def __init__(self, *, secure: bool = False) -> None:
        self.secure = secure
        self.name = f"federation, {'secure' if secure else 'seeded'}"

    def run(
        self, trial: Trial, seeds: np.random.SeedSequence, rounds: int | None = None
    ) -> Transcript:
        """One training over the messages of a federation, or its first rounds."""
        with workshop() as folder, LEARNERS.using(PUPPET, puppet(trial)):
            settings = trial.settings.but(learner=PUPPET, seed=int(seeds.generate_state(1)[0]))
            panel = puppet_panel(trial.clients)
            federation = roster(panel.regions, min(SERVED_SITES, trial.clients))
            works = site_works(folder, federation, panel)
            for work in works.values():
                work.terms = _Unpriced(**work.terms.model_dump())
            post = Post({name: answer_of(work) for name, work in works.items()})
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
    """The learner of a trial, as a registry holds it."""

    class Puppet(Recorder):
        name = PUPPET

        def __init__(self, settings: Settings) -> None:
            super().__init__(Trial(settings, trial.sent, trial.examples))

    return Puppet


def puppet_panel(clients: int) -> CasePanel:
    """A panel whose regions are the numbers of puppets.

    Its counts are not whole, so that no site keeps them: puppets do not read them.
    """
    return CasePanel(
        counts=np.full((clients, 3), 1.5),
        regions=tuple(f"{k:05d}" for k in range(clients)),
        start=_START,
        source="puppets",
    )


def roster(clients: tuple[str, ...], sites: int) -> Federation:
    """The clients dealt out to so many sites."""
    hosted = tuple(Site(name=f"site-{i + 1}", clients=clients[i::sites]) for i in range(sites))
    return Federation(server=Server(host="localhost"), sites=hosted, terms=agreeable())


def agreeable(**changes: Any) -> Terms:
    """Terms under which every trial may run."""
    values: dict[str, Any] = {
        "epsilon_per_release": float("inf"),
        "epsilon_total": PLENTY,
        "accountant": "rdp",
        "seeded": True,
        "limits": {},
    }
    return Terms(**(values | changes))


def site_work(kit: Path, panel: CasePanel, clients: tuple[str, ...], terms: Terms) -> SiteWork:
    """A site in a new kit, with the reported days of those of its clients that the panel has."""
    kit.mkdir(parents=True)
    (kit / TERMS).write_text(terms.to_toml(), encoding="utf-8")
    data = kit / "cases.csv"
    panel.to_table().filter(pl.col("region").is_in(clients)).write_csv(data)
    write_text(kit / SIMULATION, "{}")  # invented counts, on which a seeded training may run
    Source(str(data), None, {}).write(kit)
    return work_in(kit)


def work_in(kit: Path) -> SiteWork:
    """A site in its kit, as a worker finds it."""
    return SiteWork(kit, source=_ReadOnce(**vars(Source.of(kit))))


@dataclass(frozen=True)
class _ReadOnce(Source):
    """A source that reads what it has read before, here or elsewhere, no second time.

    Hundreds of kits have the same file, and to read it takes longer than all that is audited.
    """

    def load(self, clients: Collection[str], step: Step = "day") -> Hosted:
        """What the file has of these clients."""
        asked = Path(self.path).read_bytes(), self.format, repr(self.options), tuple(clients), step
        if asked not in _READ:
            _READ[asked] = super().load(clients, step)
        return _READ[asked]


_READ: dict[tuple[Any, ...], Hosted] = {}


def site_works(folder: Path, federation: Federation, panel: CasePanel) -> dict[str, SiteWork]:
    """Every site of a roster, at work."""
    return {
        site.name: site_work(folder / "kits" / site.name, panel, site.clients, federation.terms)
        for site in federation.sites
    }


def answer_of(work: SiteWork) -> Answer:
    """A site's answers as they leave it."""
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
    """The server's side of a training of these days: seeded without a ledger, else secure."""
    order = Order.of(name, settings, panel.start, panel.end, seeded=ledger is None)
    return kind(folder / "trainings" / name, federation, order, ledger)


def plenty(folder: Path, settings: Settings) -> Ledger:
    """A ledger that pays for every trial."""
    path = folder / "budget.db"
    delta = min(settings.delta, 1e-3)
    return Ledger.create(path, Cap(PLENTY, delta, "rdp"))


@contextmanager
def workshop() -> Iterator[Path]:
    """A folder for kits and ledgers, whose witnesses stay in it too; gone at the end.

    In memory where the system has such a folder: no check is of what a disk keeps without power.
    """
    with (
        tempfile.TemporaryDirectory(prefix="epifed-audit-", dir=IN_MEMORY) as folder,
        remembering(Path(folder) / "state"),
    ):
        yield Path(folder)


@contextmanager
def remembering(folder: Path) -> Iterator[None]:
    """Keep what this process and its children remember of ledgers in a folder, for a while."""
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

    def party(self, name: str) -> SiteWork | AggregatorWork:
        """A site or an aggregator at work."""
        return self.sites_at_work.get(name) or self.aggregators_at_work[name]

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
            [
                total - _added_shares(shares)
                for total, shares in zip(partials[n], opened[n], strict=True)
            ]
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


def _added_shares(shares: Mapping[str, Words]) -> Words:
    return np.asarray(np.sum([*shares.values()], axis=0, dtype=np.uint64))


def contents(folder: Path) -> bytes:
    """All bytes of the files in a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return b"".join(path.read_bytes() for path in files)


HONEST = "site-1"
"""The site that is attacked; the others are in league with the attackers."""
SMALL_SITE = "site-3"
"""It has one client, so that often none is drawn."""
SEALED_ROUNDS = 4
DRAWN = 2
"""One in so many clients is drawn."""
AWAY: tuple[set[str], ...] = (set(), {"site-2"}, {"site-2", "site-3"}, set())
"""Who drops out of the busy rounds: in the third all but one."""
TIMES_BOUND = 100.0
"""A busy client sends so many times S."""
SEALED_EPSILON = 8.0
"""The claim of both trainings: at a smaller one, or a larger, so few canaries tell less."""
LARGE = 2**20
"""A number of steps, or more, that is not met by chance."""
COPIES, MOST_COPIES = 2, 25


@dataclass(frozen=True)
class Layout:
    """Who is where: the clients of each site, and the numbers of a vector."""

    canaries: int
    """Clients of the attacked site; even."""

    @property
    def sites(self) -> dict[str, tuple[int, ...]]:
        """The clients of each site."""
        start = self.canaries
        others = {"site-2": range(start, start + 7), SMALL_SITE: range(start + 7, start + 8)}
        return {HONEST: tuple(range(start))} | {name: tuple(ks) for name, ks in others.items()}

    @property
    def clients(self) -> int:
        """N."""
        return self.canaries + 8

    @property
    def length(self) -> int:
        """Room for a direction of each client, and for as many of nobody as there are canaries."""
        return self.clients + self.canaries


LAYOUT = Layout(392)


@dataclass(frozen=True)
class Again:
    """What copies of two sites answer to tasks that the sites have answered before."""

    sent: tuple[Steps, ...]
    """By copies of the attacked site."""
    few: dict[bool, list[Parts]]
    """By copies of the one with few clients, by whether any was drawn."""

    @classmethod
    def of(cls, parties: Parties, seen: SeenRound) -> "Again":
        """Of the tasks of a round."""
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
    return answer, parties.vector(seen.pact, parties.report(answer, seen.pact, site))


@dataclass(frozen=True)
class SealedBench:
    """The trainings, each played when a check first needs it."""

    settings: Settings
    seed: int = 0
    layout: Layout = LAYOUT

    @property
    def length(self) -> int:
        """The numbers of a vector."""
        return self.layout.length

    @cached_property
    def plan(self) -> PrivacyPlan:
        """What both cost by the claim."""
        return PrivacyPlan.of(self._settings.but(noise="aggregators"), self.layout.clients)

    @property
    def deviation(self) -> float:
        """What the noise of each aggregator must have, in steps."""
        return self.plan.noise_multiplier * STEPS

    @cached_property
    def quiet(self) -> Played:
        """Nobody sends anything, to three aggregators."""
        sent = np.zeros((self.layout.clients, self.length), dtype=np.float32)
        with at_work(self._trial(sent), self.layout.sites, 3) as (parties, settings):
            return Played.of(parties, settings)

    @property
    def busy(self) -> Played:
        """Everybody sends, to two aggregators; sites drop out."""
        return self._busy[0]

    @property
    def again(self) -> Again:
        """What copies of its sites send to the tasks of its first round."""
        return self._busy[1]

    def trainings(self) -> Iterator[Played]:
        """Both, one after the other."""
        yield self.busy
        yield self.quiet

    @cached_property
    def directions(self) -> Floats:
        """Orthonormal rows: one for each client, and then those that no client has."""
        rng = np.random.default_rng(seed_sequence(self.seed, "sealed", "directions"))
        found: Floats = np.linalg.qr(rng.standard_normal((self.length, self.length)))[0]
        return found

    def weights(self, vector: Steps) -> Floats:
        """How many times S counts in a vector for each client."""
        found: Floats = self.directions[: self.layout.clients] @ (vector / STEPS)
        return found

    def drawn(self, vector: Steps) -> NDArray[np.int64]:
        """1 for each client of the attacked site whose vector is in what it sent, else 0."""
        mine = self.weights(vector)[: self.layout.canaries]
        return (mine > 1 / 2).astype(np.int64)

    @cached_property
    def sent(self) -> Vector:
        """What the busy clients send."""
        rows = TIMES_BOUND * self.settings.clip_norm * self.directions[: self.layout.clients]
        return rows.astype(np.float32)

    @cached_property
    def contributions(self) -> NDArray[np.uint64]:
        """What nobody may see of the busy training: numbers of sums, pairs of clients' numbers."""
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
