"""What a year is to be: its size, its weeks, what each costs, and what happens when."""

import json
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Literal

from epifed.errors import EpifedError
from epifed.federation.terms import Terms
from epifed.federation.weekly import Schedule, Week
from epifed.files import write_text
from epifed.ledger.budget import Cap, together
from epifed.privacy.plan import PrivacyPlan
from epifed.settings import Settings
from epifed.simulate import SimulationSettings, simulate
from epifed.simulate.lateness import Mornings
from epifed.year.events import Event, Events

FIRST = date(2020, 12, 7)
"""The first Monday: the invented epidemic has run for 97 days."""
BEGINS = date(2020, 9, 1)
MOST_WEEKS = 78
"""That end before the invented epidemic does."""
AFTER = 28
"""Days after the last week whose counts are simulated: forecasts reach so far."""
LEARNED = 60
"""Days that each week learns from."""
SHARE_NEEDED = 0.6
"""Of the sites, without which a week is skipped."""
ROOM = 1.001
"""How much more than its price a training may cost by a party's terms: it rounds by itself."""
ORDER, SCHEDULE, SETTINGS, EVENTS = "year.json", "weekly.toml", "settings.toml", "events.toml"

Kind = Literal["leave", "return", "files", "kill", "off", "restore", "lost-key", "close"]


@dataclass(frozen=True)
class Act:
    """One thing that is done at one time of the year."""

    moment: datetime
    kind: Kind
    week: int
    who: tuple[str, ...] = ()
    hours: float = 0.0


@dataclass(frozen=True)
class Plan:
    """A year, completely described; a folder that holds one is never used for another."""

    weeks: int
    sites: int
    aggregators: int
    clients: int
    settings: Settings
    events: Events

    @property
    def names(self) -> list[str]:
        """The sites, as they are called in the beginning."""
        return [f"site-{i + 1}" for i in range(self.sites)]

    @property
    def adders(self) -> list[str]:
        """The aggregators."""
        return [f"aggregator-{i + 1}" for i in range(self.aggregators)]

    @property
    def least(self) -> int:
        """Sites without which a week is skipped."""
        return least_sites(self.sites)

    @cached_property
    def schedule(self) -> Schedule:
        """When it trains."""
        return Schedule(
            first=FIRST,
            weeks=self.weeks,
            zone="Europe/Berlin",
            days=LEARNED,
            least_sites=self.least,
            deadline_minutes=10,
        )

    @cached_property
    def planned(self) -> list[Week]:
        """All weeks."""
        return self.schedule.planned()

    @cached_property
    def privacy(self) -> PrivacyPlan:
        """Of each week."""
        return PrivacyPlan.of(self.settings, self.clients)

    def price(self, weeks: int) -> float:
        """The ε of so many weeks together."""
        cost = self.privacy
        part = cost.priced_rate, cost.noise_multiplier, weeks * cost.rounds
        open_cap = Cap(1.0, self.settings.delta, self.settings.accountant)
        return open_cap.price(together([part])) if weeks else 0.0

    @property
    def cap(self) -> Cap:
        """The budget: exactly what all weeks cost, so that not one more could be paid."""
        return Cap(self.price(self.weeks), self.settings.delta, self.settings.accountant)

    @property
    def terms(self) -> Terms:
        """What every party agrees to: each week, and the whole year."""
        return Terms(
            epsilon_per_release=ROOM * self.price(1),
            epsilon_total=ROOM * self.price(self.weeks),
            delta=self.settings.delta,
            accountant=self.settings.accountant,
        )

    def simulated(self) -> Mornings:
        """The invented country, as it was known on each morning and as it was in the end."""
        days = (self.planned[-1].day - BEGINS).days + AFTER
        communities = min(10_786, 27 * self.clients)
        about = SimulationSettings.of(
            counties=self.clients,
            communities=communities,
            preset="pandemic",
            days=days,
            seed=self.settings.seed,
        )
        return Mornings(simulate(about))

    def acts(self) -> list[Act]:
        """Everything that is done, in its order."""
        found = []
        for number, week in enumerate(self.planned, 1):
            eve, files = week.due - timedelta(hours=18), week.due - timedelta(hours=1)
            found.append(Act(files, "files", number))
            found.append(Act(week.due + timedelta(days=5), "close", number))
            for event in self.events.of(number):
                found += _acts_of(event, week, eve)
        return sorted(found, key=lambda act: act.moment)

    def keep(self, folder: Path) -> bool:
        """Write it down in a folder that is new; whether it was there before, the same.

        Another one is refused.
        """
        size = {name: getattr(self, name) for name in ("weeks", "sites", "aggregators", "clients")}
        files = {
            SETTINGS: self.settings.to_toml(),
            SCHEDULE: self.schedule.to_toml(),
            EVENTS: self.events.to_toml(),
            ORDER: json.dumps(size, indent=2) + "\n",
        }
        if not (folder / ORDER).exists():
            if folder.exists() and any(folder.iterdir()):
                raise EpifedError(
                    f"{folder}: not empty; expected a new directory, or that of a rehearsed year"
                )
            for name, text in files.items():
                write_text(folder / name, text)
            return False
        for name, text in files.items():
            if (folder / name).read_text(encoding="utf-8") != text:
                raise EpifedError(
                    f"{folder / name}: found another year than the one asked for; expected the "
                    "same options to go on with it, or a new directory"
                )
        return True


def least_sites(sites: int) -> int:
    """Of so many sites, without how many a week is skipped."""
    return max(1, round(SHARE_NEEDED * sites))


def _acts_of(event: Event, week: Week, eve: datetime) -> list[Act]:
    number, who, hours = event.week, event.who, event.hours
    if event.what == "late":
        back = week.due + timedelta(hours=hours)
        return [Act(eve, "leave", number, who), Act(back, "return", number, who)]
    if event.what == "off":
        return [Act(week.due - timedelta(minutes=1), "off", number, hours=hours)]
    if event.what == "kill":
        return [Act(week.due - timedelta(minutes=30), "kill", number, who)]
    if event.what == "bad-file":
        return []
    return [Act(eve, event.what, number, who)]
