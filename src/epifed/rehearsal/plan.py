"""The plan of a rehearsed year: its size, weeks, budget, and the events of each week."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from epifed.errors import EpifedError
from epifed.federation.flare.kits import SERVER
from epifed.federation.schedule import Outcome, Schedule, Week
from epifed.federation.terms import Table, Terms
from epifed.files import write_text
from epifed.ledger.budget import Cap, together
from epifed.privacy.plan import PrivacyPlan
from epifed.settings import Settings
from epifed.simulate import SimulationSettings, simulate
from epifed.simulate.simulation import Mornings

What = Literal["leave", "return", "late", "bad-file", "kill", "off", "restore", "lost-key"]
SAID: dict[What, str] = {
    "leave": "{who} stopped",
    "return": "{who} back",
    "late": "{who} {hours:g} h late",
    "bad-file": "{who}: a broken file",
    "kill": "{who} killed in the training",
    "off": "the server's machine off for {hours:g} h",
    "restore": "the server lost, restored from backup on another machine",
    "lost-key": "{who}: key lost, new name",
}
"""Of each kind, in words; these are all there are."""


class Event(Table):
    """Something that happens in a week, before its training unless it says otherwise."""

    week: int = Field(ge=1, description="the week, the first is 1")
    what: What
    who: tuple[str, ...] = Field((), description="the parties, by name")
    hours: float = Field(0.0, ge=0, le=7 * 24, description="of 'late' and 'off'")

    def said(self) -> str:
        """The event in words."""
        return SAID[self.what].format(who=", ".join(self.who), hours=self.hours)


class Events(Table):
    """All events of a year, as a TOML file lists them under `[[events]]`."""

    events: tuple[Event, ...] = ()

    @model_validator(mode="after")
    def _named(self) -> Self:
        for one in self.events:
            if (one.what in ("off", "restore")) == bool(one.who):
                needed = "nobody" if one.who else "who it happens to"
                raise ValueError(f"week {one.week}, '{one.what}': expected {needed} in 'who'")
        return self

    def of(self, week: int) -> tuple[Event, ...]:
        """Those of a week, in the order of the list."""
        return tuple(one for one in self.events if one.week == week)

    def within(self, weeks: int, parties: Sequence[str]) -> "Events":
        """Those of a shorter year of fewer parties, as far as they are left."""
        kept = []
        for one in self.events:
            who = tuple(name for name in one.who if name in parties)
            if one.week <= weeks and (who or not one.who):
                kept.append(one.model_copy(update={"who": who}))
        return Events(events=tuple(kept))

    def refuse_unknown(self, weeks: int, sites: Sequence[str], others: Sequence[str]) -> None:
        """Refuse what cannot happen in this year."""
        lost = set[str]()
        for one in sorted(self.events, key=lambda event: event.week):
            where = f"events: week {one.week}, '{one.what}'"
            if one.week > weeks:
                raise EpifedError(f"{where}: expected a week of the {weeks}")
            allowed = [*sites, *others] if one.what == "kill" else list(sites)
            for name in one.who:
                if name not in allowed or name in lost:
                    raise EpifedError(f"{where}: found '{name}'; expected one of {allowed}")
            if one.what == "lost-key":
                lost |= set(one.who)
                sites = [renamed(name) if name in one.who else name for name in sites]


def renamed(site: str) -> str:
    """The new name of a site whose key is lost."""
    return f"{site}-again"


def foreseen(schedule: Schedule, sites: Sequence[str], events: Events) -> list[Outcome]:
    """What must become of each week by the schedule's rule, from the list of events alone."""
    away: set[str] = set()
    outcomes: list[Outcome] = []
    for number in range(1, schedule.weeks + 1):
        missing, off = set[str](), 0.0
        for one in events.of(number):
            if one.what == "leave":
                away |= set(one.who)
            elif one.what == "return":
                away -= set(one.who)
            elif one.what == "late" and one.hours * 60 > schedule.deadline_minutes:
                missing |= set(one.who)
            elif one.what == "off":
                off = max(off, one.hours)
        too_few = len(set(sites) - away - missing) < schedule.least_sites
        too_late = timedelta(hours=off) > timedelta(hours=schedule.make_up_hours)
        skipped = too_late or (too_few and schedule.if_too_few != "go-on")
        outcomes.append("skipped" if skipped else "done")
    return outcomes


def _away(first: int, last: int, *who: str) -> tuple[Event, ...]:
    return (
        Event(week=first, what="leave", who=who),
        Event(week=last + 1, what="return", who=who),
    )


def usual(sites: int, least: int) -> Events:
    """The year that is rehearsed unless another list is given, for so many sites."""
    many = tuple(f"site-{i + 1}" for i in range(sites - least + 1))
    half = many[: max(1, math.ceil(len(many) / 2))]
    return Events(
        events=(
            *_away(3, 5, "site-2"),
            Event(week=7, what="bad-file", who=("site-3",)),
            Event(week=9, what="kill", who=(SERVER,)),
            Event(week=12, what="off", hours=50),
            *_away(14, 19, "site-4", "site-5"),
            Event(week=16, what="kill", who=("aggregator-1",)),
            Event(week=20, what="lost-key", who=("site-6",)),
            Event(week=23, what="late", who=many, hours=0.1),
            Event(week=26, what="restore"),
            Event(week=28, what="kill", who=("site-1",)),
            *_away(31, 31, *many),
            Event(week=34, what="off", hours=100),
            *_away(36, 39, "site-7"),
            Event(week=40, what="kill", who=(SERVER,)),
            Event(week=43, what="bad-file", who=half),
            Event(week=45, what="kill", who=("aggregator-2",)),
            Event(week=47, what="restore"),
            *_away(49, 50, "site-8"),
        )
    )


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
                    "same options to resume it, or a new directory"
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
