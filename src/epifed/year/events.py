"""What happens in a year, written down: a list of events by week, which can be read and changed."""

import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Literal, Self

from pydantic import Field, model_validator

from epifed.errors import EpifedError
from epifed.federation.tables import Table
from epifed.federation.weekly import Outcome, Schedule

SERVER = "server"
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
