"""The federation's side of the audit: the deployed server and sites, played in one process.

The server is `federation.server.ServedTraining`, each site a `federation.site.SiteWork` in a kit of
its own; between them go the messages as they travel. Only the network is left out.
"""

import os
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from epifed.audit.mechanisms import Recorder, Transcript, Trial
from epifed.data.calendar import Step
from epifed.data.panel import CasePanel
from epifed.federation import messages
from epifed.federation.messages import Parts, Task
from epifed.federation.roster import Federation, Server, Site
from epifed.federation.server import Answers, Order, ServedTraining, take_in
from epifed.federation.site import TERMS, Hosted, SiteWork, Source
from epifed.federation.terms import Terms
from epifed.ledger.budget import Cap
from epifed.ledger.ledger import Ledger
from epifed.privacy.plan import PrivacyPlan
from epifed.registry import LEARNERS
from epifed.settings import Settings
from epifed.training.rounds import Rounds

PUPPET = "puppet"
"""The learner of a trial, by the name under which server and sites find it."""
PLENTY = 1e9
"""A cap that no trial reaches."""
SITES = 3
_START = date(2021, 1, 4)
_STATE = "EPIFED_STATE"

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

    def run(self, trial: Trial, seeds: np.random.SeedSequence) -> Transcript:
        """One training over the messages of a federation."""
        with workshop() as folder, LEARNERS.using(PUPPET, puppet(trial)):
            settings = trial.settings.but(learner=PUPPET, seed=int(seeds.generate_state(1)[0]))
            panel = puppet_panel(trial.clients)
            federation = roster(panel.regions, min(SITES, trial.clients))
            works = site_works(folder, federation, panel)
            for work in works.values():
                work.terms = _Unpriced(**work.terms.model_dump())
            post = Post({name: answer_of(work) for name, work in works.items()})
            ledger = plenty(folder, settings) if self.secure else None
            training = serve(folder, federation, settings, panel, ledger, kind=_UnpricedTraining)
            while not training.finished:
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
    """A folder for kits and ledgers, whose witnesses stay in it too; gone at the end."""
    with (
        tempfile.TemporaryDirectory(prefix="epifed-audit-") as folder,
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
