"""A federation with aggregators in one process: every party in a kit of its own, no network."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from epifed.audit.bench import work_in
from epifed.data.panel import CasePanel
from epifed.federation import aggregator, site
from epifed.federation.aggregator import AggregatorWork, own_keys
from epifed.federation.crypto import ReportKey
from epifed.federation.messages import Code, Delivery, Parts, Task, pack_task
from epifed.federation.secure_training import SecureTraining
from epifed.federation.server import Order, Post, Problem
from epifed.federation.site import SiteWork, Source
from epifed.federation.terms import Aggregator, Federation, Server, Site, Terms
from epifed.ledger.ledger import Ledger
from epifed.training.release import Release
from tests.federation.helpers import panel

Change = Callable[[str, Parts], Parts | None]


def _same(name: str, parts: Parts) -> Parts:
    del name
    return parts


@dataclass
class Parties(Post):
    """All parties, and the post between them, which tests may tamper with."""

    folder: Path
    federation: Federation
    dropped: set[str] = field(default_factory=set)
    """Parties that do not answer."""
    reports: Change = _same
    """What becomes of a site's report on its way."""
    questions: Change = _same
    answers: Change = _same
    tasks: dict[str, Task] = field(default_factory=dict)
    seen: list[tuple[str, Parts]] = field(default_factory=list)
    """Everything that the server has got, by whom it came from."""

    @classmethod
    def make(
        cls,
        folder: Path,
        sites: int = 4,
        aggregators: int = 2,
        cases: CasePanel | None = None,
        own: Mapping[str, Any] | None = None,
        **terms: Any,
    ) -> "Parties":
        """Kits with keys, data and terms; `own` are those of the aggregators where they differ."""
        cases = cases or panel()
        names = [f"sum-{i + 1}" for i in range(aggregators)]
        agreed: dict[str, Any] = {
            "epsilon_per_release": float("inf"),
            "epsilon_total": 1e6,
            "accountant": "rdp",
            "seeded": True,
        }
        agreed |= terms
        kits = folder / "kits"
        pins = {name: own_keys(_made(kits / name)).public.fingerprint for name in names}
        long = cases.to_table()
        hosted = []
        for i in range(sites):
            kit, clients = _made(kits / f"site-{i + 1}"), cases.regions[i::sites]
            key = ReportKey.make(kit / site.KEY)
            (kit / site.TERMS).write_text(Terms(aggregators=pins, **agreed).to_toml())
            long.filter(pl.col("region").is_in(clients)).write_csv(kit / "cases.csv")
            Source(str(kit / "cases.csv"), None, {}).write(kit)
            (kit / site.CLIENTS).write_text(json.dumps(clients))
            hosted.append(Site(name=kit.name, clients=clients, signs=key.public))
        federation = Federation(
            server=Server(host="localhost"),
            sites=tuple(hosted),
            aggregators=tuple(Aggregator(name=name) for name in names),
        )
        for name in names:
            others = {other: pin for other, pin in pins.items() if other != name}
            said = Terms(aggregators=others, **(agreed | dict(own or {})))
            (kits / name / aggregator.TERMS).write_text(said.to_toml())
            (kits / name / aggregator.ROSTER).write_text(federation.to_toml())
        return cls(folder, federation)

    def kit(self, name: str) -> Path:
        return self.folder / "kits" / name

    def training(self, order: Order, ledger: Ledger | None = None) -> SecureTraining:
        return SecureTraining(
            self.folder / "trainings" / order.training, self.federation, order, ledger
        )

    def deliver(self, party: str, training: SecureTraining, change: Change = _same) -> Release:
        """What a party makes of the delivery of a finished training."""
        parts = change(party, training.delivery().pack())
        assert parts is not None
        kind = SiteWork if party.startswith("site") else AggregatorWork
        return kind(self.kit(party)).receive(Delivery.unpack(parts))

    def keys(self) -> Mapping[str, str]:
        names = [one.name for one in self.federation.aggregators if one.name not in self.dropped]
        return {name: own_keys(self.kit(name)).public.text for name in names}

    def sites(self, tasks: dict[str, Task]) -> tuple[Mapping[str, Parts], list[Problem]]:
        self.tasks = tasks
        answers = {}
        for name, task in tasks.items():
            if name not in self.dropped:
                parts, error = work_in(self.kit(name)).answer(pack_task(task))
                assert error is None or "code" in parts["about"], error
                if (arrived := self.reports(name, parts)) is not None:
                    answers[name] = arrived
                    self.seen.append((name, arrived))
        absent = [Problem(name, Code.ABSENT) for name in tasks if name not in answers]
        return answers, absent

    def aggregator(self, name: str, question: Parts) -> Parts | None:
        asked = self.questions(name, question)
        if name in self.dropped or asked is None:
            return None
        parts, _ = AggregatorWork(self.kit(name)).answer(asked)
        self.seen.append((name, parts))
        return self.answers(name, parts)


def _made(kit: Path) -> Path:
    kit.mkdir(parents=True, exist_ok=True)
    return kit


def spent(path: Path) -> int:
    """Rounds that a ledger shows; none if there is no ledger yet."""
    if not path.exists():
        return 0
    return sum(run.spent for run in Ledger(path).book().runs.values())
