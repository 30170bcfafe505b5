"""A federation's folders as the deployed code writes them, without its processes.

Roster, trainings, ledger and journal are written by their own code; only the sites are made up.
"""

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from epifed.federation.flare.kits import make_kits
from epifed.federation.messages import Code, Parts, Task, pack_contribution
from epifed.federation.schedule import Journal, Outcome, Schedule, Week
from epifed.federation.server import DELIVERED, Order, Problem, ServedTraining, write_line
from epifed.federation.status import ROSTER, TRAININGS, Places
from epifed.federation.terms import Federation, Server, Site
from epifed.files import write_text
from epifed.ledger.budget import Cap
from epifed.ledger.ledger import Ledger
from epifed.privacy.plan import PrivacyPlan
from epifed.settings import Settings
from tests.federation.helpers import SitesPost

FIRST = date(2026, 8, 3)
"""A Monday."""


@dataclass
class Folders:
    """The server's kit, the journal and the ledger of a federation."""

    root: Path
    sites: int = 4
    clients: int = 3
    """Of each site."""
    weeks: int = 52
    cap: Cap = field(default_factory=lambda: Cap(1.0, 1e-5, "rdp"))
    real_kits: bool = False
    """With certificates, made as for a real federation."""
    settings: Settings = field(init=False)

    def __post_init__(self) -> None:
        names = [f"office-{i + 1:03d}" for i in range(self.sites)]
        self.roster = Federation(
            name="flu",
            server=Server(host="localhost", port=8002),
            sites=tuple(
                Site(name=name, clients=tuple(f"{i:04d}{k}" for k in range(self.clients)))
                for i, name in enumerate(names)
            ),
        )
        enrolled = self.sites * self.clients
        self.settings = Settings.resolve(
            enrolled, {"learner": "trend", "epsilon": 0.1, "accountant": "rdp"}
        )
        self.schedule = Schedule(
            first=FIRST, weeks=self.weeks, zone="Europe/Berlin", least_sites=max(1, self.sites // 2)
        )
        if self.real_kits:
            make_kits(self.roster, self.root / "flu")
        write_text(self.kit / ROSTER, self.roster.to_toml())
        write_text(self.root / "weekly.toml", self.schedule.to_toml())
        write_text(self.root / "trend.toml", self.settings.to_toml())
        self.ledger = Ledger.create(self.root / "budget.ledger", self.cap)
        write_text(self.kit / "server.json", json.dumps({"ledger": str(self.ledger.path)}))
        self.journal = Journal(self.root / "weeks")

    @property
    def kit(self) -> Path:
        """The server's."""
        return self.root / "flu" / "kits" / "server"

    def options(self) -> list[str]:
        """Of `epifed federation dashboard`."""
        named = {
            "--kit": self.kit,
            "--weeks": self.root / "weeks",
            "--schedule": self.root / "weekly.toml",
            "--settings": self.root / "trend.toml",
        }
        return [str(text) for pair in named.items() for text in pair]

    @property
    def plan(self) -> PrivacyPlan:
        return PrivacyPlan.of(self.settings, len(self.roster.clients))

    def places(self, **changes: Any) -> Places:
        weeks = self.root / "weeks"
        found = Places(self.kit, self.ledger.path, weeks, self.schedule, self.plan)
        return replace(found, **changes)

    def week(self, number: int) -> Week:
        return self.schedule.planned()[number]

    def train(
        self,
        number: int,
        wrong: dict[str, Code] | None = None,
        *,
        growth: float = 0.0,
        delivered: tuple[str, ...] | None = None,
        finish: bool = True,
        unused: int = 0,
    ) -> None:
        """A week's training, in which all clients report a growth and some sites are not there."""
        week, wrong = self.week(number), wrong or {}
        order = Order.of(week.name, self.settings, *self.schedule.period(week))
        folder = self.kit / TRAININGS / week.name
        training = ServedTraining(folder, self.roster, order, self.ledger)
        present = [site.name for site in self.roster.sites if site.name not in wrong]

        def answer(tasks: dict[str, Task]) -> tuple[dict[str, Parts], list[Problem]]:
            answers = {}
            for name in present:
                rows = np.zeros((len(tasks[name].clients), tasks[name].length), dtype=np.float32)
                rows[:, 0] = np.tanh(growth / 2)
                answers[name] = pack_contribution(week.name, tasks[name].round, rows)
            return answers, [Problem(site, code) for site, code in wrong.items()]

        def report(line: dict[str, Any]) -> None:
            moment = (week.due + timedelta(minutes=3)).timestamp()
            write_line(folder, line | {"time": moment + line["round"], "sites": present})

        training.play(SitesPost(answer), report)
        if finish:
            training.unused = unused
            training.finish()
            held = present if delivered is None else delivered
            write_text(folder / DELIVERED, json.dumps(held))
            became: Outcome = "wasted" if unused else "done"
            self.journal.write(week, became, "", week.due + timedelta(minutes=9))

    def skip(self, number: int, reason: str, outcome: Outcome = "skipped") -> None:
        """A week that was not run."""
        week = self.week(number)
        self.journal.write(week, outcome, reason, week.due + timedelta(hours=4))

    def after(self, number: int) -> datetime:
        """An hour after a week's time."""
        return (self.week(number).due + timedelta(hours=1)).astimezone(UTC)
