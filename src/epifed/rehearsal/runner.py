"""A rehearsed year: its plan of events, and the real schedule on a simulated clock.

Parties are stopped, killed, restored and renamed as the plan requires.
"""

import json
import math
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import cached_property
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal, Self

import polars as pl
from pydantic import Field, model_validator

from epifed.data.panel import CasePanel
from epifed.data.vintages import KEPT_DAILY_VINTAGES, Vintages, fill
from epifed.errors import EpifedError
from epifed.evaluation.backtest import SCORES, metrics_of, scored_weeks
from epifed.evaluation.results_folder import RESULTS
from epifed.federation.answers import MODELS
from epifed.federation.flare.jobs import Trainings
from epifed.federation.flare.kits import SERVER
from epifed.federation.schedule import (
    Journal,
    Outcome,
    Schedule,
    Week,
    begun_in,
    budgeted,
    run_weeks,
    weeks_left,
)
from epifed.federation.site import ARCHIVE, LEDGER, archive_of
from epifed.federation.terms import Federation, Table, Terms
from epifed.files import to_json, write_text
from epifed.ledger.budget import Cap, together
from epifed.ledger.ledger import Ledger
from epifed.privacy.plan import PrivacyPlan
from epifed.rehearsal.local import LocalFederation, rehearsal_federation
from epifed.settings import Settings
from epifed.simulate import SimulationSettings, simulate
from epifed.simulate.simulation import Mornings
from epifed.site_report import WEEK_NAME, update_site

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
"""A phrase for each kind of event; there are no other kinds."""


class Event(Table):
    """An event of a week; it happens before the week's training unless its kind differs."""

    week: int = Field(ge=1, description="the week, the first is 1")
    what: What
    who: tuple[str, ...] = Field((), description="the parties, by name")
    hours: float = Field(0.0, ge=0, le=7 * 24, description="of 'late' and 'off'")

    def said(self) -> str:
        """The event as a phrase."""
        return SAID[self.what].format(who=", ".join(self.who), hours=self.hours)


class Events(Table):
    """All events of a year, as listed under `[[events]]` in a TOML file."""

    events: tuple[Event, ...] = ()

    @model_validator(mode="after")
    def _named(self) -> Self:
        for event in self.events:
            if (event.what in ("off", "restore")) == bool(event.who):
                needed = "nobody" if event.who else "who it happens to"
                raise ValueError(f"week {event.week}, '{event.what}': expected {needed} in 'who'")
        return self

    def of(self, week: int) -> tuple[Event, ...]:
        """The events of a week, in the order of the list."""
        return tuple(event for event in self.events if event.week == week)

    def within(self, weeks: int, parties: Sequence[str]) -> "Events":
        """The events of a shorter year with fewer parties."""
        kept = []
        for event in self.events:
            who = tuple(name for name in event.who if name in parties)
            if event.week <= weeks and (who or not event.who):
                kept.append(event.model_copy(update={"who": who}))
        return Events(events=tuple(kept))

    def refuse_unknown(self, weeks: int, sites: Sequence[str], others: Sequence[str]) -> None:
        """Refuse events that cannot happen in this year."""
        lost = set[str]()
        for unknown in sorted(self.events, key=lambda event: event.week):
            where = f"events: week {unknown.week}, '{unknown.what}'"
            if unknown.week > weeks:
                raise EpifedError(f"{where}: expected a week of the {weeks}")
            allowed = [*sites, *others] if unknown.what == "kill" else list(sites)
            for name in unknown.who:
                if name not in allowed or name in lost:
                    raise EpifedError(f"{where}: found '{name}'; expected one of {allowed}")
            if unknown.what == "lost-key":
                lost |= set(unknown.who)
                sites = [renamed(name) if name in unknown.who else name for name in sites]


def renamed(site: str) -> str:
    """The new name of a site whose key is lost."""
    return f"{site}-again"


def foreseen(schedule: Schedule, sites: Sequence[str], events: Events) -> list[Outcome]:
    """The expected outcome of each week, by the schedule's rule and the list of events alone."""
    away: set[str] = set()
    outcomes: list[Outcome] = []
    for number in range(1, schedule.weeks + 1):
        missing, off = set[str](), 0.0
        for event in events.of(number):
            if event.what == "leave":
                away |= set(event.who)
            elif event.what == "return":
                away -= set(event.who)
            elif event.what == "late" and event.hours * 60 > schedule.deadline_minutes:
                missing |= set(event.who)
            elif event.what == "off":
                off = max(off, event.hours)
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
    """The default events of a rehearsed year, for so many sites."""
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
"""The first Monday: the simulated epidemic has run for 97 days."""
BEGINS = date(2020, 9, 1)
MOST_WEEKS = 78
"""Most weeks of a year; the simulated epidemic lasts longer."""
AFTER = 28
"""Days simulated after the last week, so that its forecasts can be scored."""
LEARNED = 60
"""Days of training data in each week."""
SHARE_NEEDED = 0.6
"""Share of the sites below which a week is skipped."""
ROOM = 1.001
"""Factor by which a party's terms exceed the price of a training, because of its own rounding."""
ORDER, SCHEDULE, SETTINGS, EVENTS = "year.json", "weekly.toml", "settings.toml", "events.toml"

Kind = Literal["leave", "return", "files", "kill", "off", "restore", "lost-key", "close"]


@dataclass(frozen=True)
class Act:
    """An action of the rehearsal at a time of the year."""

    moment: datetime
    kind: Kind
    week: int
    who: tuple[str, ...] = ()
    hours: float = 0.0


@dataclass(frozen=True)
class Plan:
    """The complete description of a year; a folder with one is not used for another."""

    weeks: int
    sites: int
    aggregators: int
    clients: int
    settings: Settings
    events: Events

    @property
    def names(self) -> list[str]:
        """The first names of the sites."""
        return [f"site-{i + 1}" for i in range(self.sites)]

    @property
    def adders(self) -> list[str]:
        """The names of the aggregators."""
        return [f"aggregator-{i + 1}" for i in range(self.aggregators)]

    @property
    def least(self) -> int:
        """The fewest sites with which a week is run."""
        return least_sites(self.sites)

    @cached_property
    def schedule(self) -> Schedule:
        """The schedule of its trainings."""
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
        """The privacy plan of each week."""
        return PrivacyPlan.of(self.settings, self.clients)

    def price(self, weeks: int) -> float:
        """The ε of so many weeks together."""
        cost = self.privacy
        part = cost.priced_rate, cost.noise_multiplier, weeks * cost.rounds
        open_cap = Cap(1.0, self.settings.delta, self.settings.accountant)
        return open_cap.price(together([part])) if weeks else 0.0

    @property
    def cap(self) -> Cap:
        """The budget: exactly the cost of all weeks, so that no further one fits."""
        return Cap(self.price(self.weeks), self.settings.delta, self.settings.accountant)

    @property
    def terms(self) -> Terms:
        """The terms of every party: the cost of a week, and of the whole year."""
        return Terms(
            epsilon_per_release=ROOM * self.price(1),
            epsilon_total=ROOM * self.price(self.weeks),
            delta=self.settings.delta,
            accountant=self.settings.accountant,
        )

    def simulated(self) -> Mornings:
        """The simulated country, with its data vintages and the final counts."""
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
        """All actions, in order of time."""
        acts = []
        for number, week in enumerate(self.planned, 1):
            eve, files = week.due - timedelta(hours=18), week.due - timedelta(hours=1)
            acts.append(Act(files, "files", number))
            acts.append(Act(week.due + timedelta(days=5), "close", number))
            for event in self.events.of(number):
                acts += _acts_of(event, week, eve)
        return sorted(acts, key=lambda act: act.moment)

    def keep(self, folder: Path) -> bool:
        """Store the plan in a new folder; returns whether the same plan was there before.

        Another plan in the folder is refused.
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
    """The fewest of so many sites with which a week is run."""
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


Action = Callable[[], bool]
"""Does something; returns whether the schedule has to be started again."""
_APART = timedelta(seconds=1)


class RestartError(Exception):
    """The schedule must be started again, as its service would be."""


@dataclass
class Clock:
    """The simulated time of a year, stored in a file, with an agenda of actions."""

    path: Path
    time: datetime
    agenda: list[tuple[datetime, Action]] = field(default_factory=list)
    """In order of time, no two at the same time."""

    @classmethod
    def at(cls, path: Path, beginning: datetime) -> "Clock":
        """A clock at the beginning, or at the time stored when it was stopped."""
        text = path.read_text(encoding="utf-8").strip() if path.exists() else ""
        return cls(path, datetime.fromisoformat(text) if text else beginning)

    def enter(self, moment: datetime, action: Action) -> datetime:
        """Schedule an action, a second later if the time is taken; returns its time."""
        while any(entered == moment for entered, _ in self.agenda):
            moment += _APART
        self.agenda.append((moment, action))
        self.agenda.sort(key=lambda entry: entry[0])
        return moment

    def forget_past(self) -> None:
        """Drop actions up to now: they were done before."""
        self.agenda = [entry for entry in self.agenda if entry[0] > self.time]

    def now(self) -> datetime:
        """The simulated time."""
        return self.time

    def sleep(self, seconds: float) -> None:
        """Advance by so many seconds, and do the actions due until then."""
        self.until(self.time + timedelta(seconds=seconds))

    def until(self, moment: datetime) -> None:
        """Advance to a time, and do the actions due until then.

        An interrupted action is done again from its beginning by the next clock of this file.
        """
        while self.agenda and self.agenda[0][0] <= moment:
            due, action = self.agenda[0]
            self.time = max(due, self.time)
            restart = action()
            self.agenda.pop(0)
            write_text(self.path, f"{self.time.isoformat()}\n")
            if restart:
                raise RestartError
        self.time = max(moment, self.time)


HORIZONS = (7, 14)
"""Days ahead of the scored forecasts; the year's table shows the first."""
KEPT = ("mae_ratio", "coverage_50", "coverage_95")


def forecasts_of(folder: Path, final: CasePanel, day: date | None = None) -> pl.DataFrame:
    """All sites' forecasts with the observed counts, of one day's week or of all weeks."""
    wanted = f"{day.isocalendar().year}-W{day.isocalendar().week:02d}" if day else None
    frames = []
    for path in sorted((folder / "reports").glob("*/*")):
        if not WEEK_NAME.fullmatch(path.name) or wanted not in (None, path.name):
            continue
        for horizon in HORIZONS:
            table = scored_weeks(final, [path / RESULTS], horizon, final.end)
            if table is not None:
                about = pl.lit(path.parent.name).alias("site"), pl.lit(path.name).alias("week")
                frames.append(table.with_columns(about))
    return pl.concat(frames) if frames else pl.DataFrame()


def scores_of(folder: Path, final: CasePanel, day: date | None = None) -> dict[str, Any] | None:
    """Relative MAE and coverage at the first horizon; None without forecasts."""
    table = forecasts_of(folder, final, day)
    return summed(table, HORIZONS[0]) if len(table) else None


def summed(table: pl.DataFrame, horizon: int) -> dict[str, Any] | None:
    """The scores of these forecasts at a horizon; None without any."""
    scored = table.filter(pl.col("horizon") == horizon)
    if scored.is_empty():
        return None
    sums = scored.select(SCORES).row(0, named=True)
    kept = {name: sums[name] for name in KEPT}
    return kept | {"forecasts": len(scored), "metrics": metrics_of(scored)}


ROSTER, BUDGET, BACKUP, MACHINES, MACHINE = (
    "federation.toml",
    "budget.ledger",
    "backup",
    "machines",
    "server.machine",
)
STATE = "EPIFED_STATE"
PATIENCE = 300.0
"""Most seconds until a training has its budget."""
DOWN = 2.0
"""Seconds until a killed party is started again."""


class Parties:
    """A federation on this machine, whose parties know only the ledgers of their own machine.

    All its state is in the folder, so another process can resume it.
    """

    def __init__(self, local: LocalFederation) -> None:
        self.local = local
        self._killers: list[threading.Thread] = []
        self._failed: list[Exception] = []
        self._before: str | None = None

    @classmethod
    def make(cls, folder: Path, federation: Federation, panel: CasePanel) -> Self:
        """Make kits, and data files from the panel."""
        return cls(LocalFederation.make(folder, federation, panel, folder / BUDGET, ()))

    @classmethod
    def found(cls, folder: Path) -> Self:
        """The federation of an existing folder."""
        federation = Federation.read(folder / ROSTER)
        return cls(LocalFederation(folder, federation, folder / BUDGET, preloaded=()))

    @property
    def folder(self) -> Path:
        """The folder of the federation."""
        return self.local.folder

    @property
    def ledger(self) -> Path:
        """The federation's ledger."""
        return self.folder / BUDGET

    @property
    def sites(self) -> tuple[str, ...]:
        """All enrolled sites."""
        return tuple(site.name for site in self.local.federation.sites)

    @property
    def running(self) -> tuple[str, ...]:
        """The running sites."""
        return tuple(site for site in self.sites if site in self.local.processes)

    def machine(self, party: str) -> Path:
        """The folder of a party's machine state; a restored server has a new machine."""
        path = self.folder / MACHINE
        number = path.read_text().strip() if party == SERVER and path.exists() else ""
        return self.folder / MACHINES / f"{party}{number}"

    def environment(self, party: str) -> dict[str, str]:
        """The environment variable of the processes on a party's machine."""
        return {STATE: str(self.machine(party).resolve())}

    def start(self, *parties: str) -> None:
        """Start the parties that do not run, and wait until the server knows them."""
        new = [party for party in parties if party not in self.local.processes]
        self.local.environment |= {party: self.environment(party) for party in new}
        if new:
            self.local.start(*new)

    def stop(self, party: str) -> None:
        """End a party and its workers, if it runs."""
        if party in self.local.processes:
            workers = self.local.workers(party)
            self.local.kill(party)
            for pid in workers:
                with suppress(OSError):
                    os.kill(pid, 9)

    def leave(self, *sites: str) -> None:
        """Stop sites, and wait until the server has dropped them, as after hours of absence."""
        for site in sites:
            self.stop(site)
        self.local.wait_until_gone(sites)

    def write_files(self, panel: CasePanel, history: Vintages, broken: Collection[str]) -> None:
        """Write this day's file for each running site; `broken` ones get no header.

        Their archives get the vintages that a service would have stored on the days before.
        """
        for site in self.running:
            for client in self.local.federation.site(site).clients:
                fill(archive_of(self.local.kit(site), client), history.of((client,)))
            self.local.write_data(site, panel)
            if site in broken:
                path = self.local.data(site)
                write_text(path, path.read_text(encoding="utf-8").partition("\n")[2])

    def back_up(self) -> None:
        """Copy the server's kit and ledger, as after each week."""
        new = self.folder / f".{BACKUP}"
        shutil.rmtree(new, ignore_errors=True)
        shutil.copytree(self.local.kit(SERVER), new / SERVER)
        with (
            closing(sqlite3.connect(self.ledger)) as ledger,
            closing(sqlite3.connect(new / BUDGET)) as copy,
        ):
            ledger.backup(copy)
        shutil.rmtree(self.folder / BACKUP, ignore_errors=True)
        new.rename(self.folder / BACKUP)

    def restore_server(self) -> None:
        """Delete the server, and restore the last backup on another machine."""
        self.stop(SERVER)
        number = int(self.machine(SERVER).name.removeprefix(SERVER) or 1) + 1
        shutil.rmtree(self.local.kit(SERVER), ignore_errors=True)
        shutil.copytree(self.folder / BACKUP / SERVER, self.local.kit(SERVER))
        self.ledger.unlink(missing_ok=True)
        shutil.copyfile(self.folder / BACKUP / BUDGET, self.ledger)
        write_text(self.folder / MACHINE, f"{number}\n")
        shutil.rmtree(self.machine(SERVER), ignore_errors=True)
        os.environ |= self.environment(SERVER)
        words = ("ledger", "adopt", str(self.ledger), "--note", "restored from backup")
        self._epifed(SERVER, *words)
        self.start_again(SERVER)

    def lose_key(self, site: str) -> None:
        """Enrol a site whose key is lost under a new name, by the documented procedure."""
        new, roster = renamed(site), self.local.federation
        self.stop(site)
        sites = tuple(
            hosted.model_copy(update={"name": new, "signs": None})
            if hosted.name == site
            else hosted
            for hosted in roster.sites
        )
        changed = roster.model_copy(update={"sites": sites, "removed": (*roster.removed, site)})
        path = self.folder / ROSTER
        write_text(path, changed.to_toml())
        self._epifed(SERVER, "federation", "init", str(path), "--out", str(self.folder))
        self.local.federation = Federation.read(path)
        old, kit = self.local.kit(site), self.local.kit(new)
        self.local.pin()
        for name in (MODELS, ARCHIVE):
            if (old / name).is_dir():
                shutil.copytree(old / name, kit / name, dirs_exist_ok=True)
        if (old / LEDGER).is_file():
            shutil.copyfile(old / LEDGER, kit / LEDGER)
            shutil.rmtree(self.machine(new), ignore_errors=True)
            self._epifed(new, "ledger", "adopt", str(kit / LEDGER), "--note", "key lost")
        if self.local.data(site).exists():
            shutil.copyfile(self.local.data(site), self.local.data(new))
        adding = [hosted.name for hosted in changed.aggregators]
        for party in adding:
            self.stop(party)
        self.stop(SERVER)
        self.start_again(SERVER, *adding, new)
        self.back_up()  # an older one knows the site by its old name

    def kill_within(self, party: str, week: Week) -> None:
        """Kill a party as soon as a week's training has its budget, and start it again."""

        def kill() -> None:
            until = time.monotonic() + PATIENCE
            try:
                while Ledger(self.ledger).book().named(week.name) is None:
                    if time.monotonic() > until:
                        raise EpifedError(f"{week.name}: no training to kill {party} in")
                    time.sleep(0.2)
                self.stop(party)
                time.sleep(DOWN)
                self.start(party)
            except Exception as error:
                self._failed.append(error)

        thread = threading.Thread(target=kill, daemon=True)
        self._killers.append(thread)
        thread.start()

    def settle(self) -> None:
        """Wait until killed parties run again; raises the error of a failed restart."""
        for thread in self._killers:
            thread.join(PATIENCE)
        self._killers.clear()
        if self._failed:
            raise self._failed.pop()
        self.local.wait_for_sites(self.running)

    def processor_seconds(self) -> dict[str, float]:
        """Processor seconds of each running party and its workers, including ended ones."""
        return {name: self.local.processor_seconds(name) for name in self.local.processes}

    def start_again(self, *parties: str) -> None:
        """Start parties, and wait until the server knows all running sites."""
        self.start(*parties)
        self.local.wait_for_sites(self.running)

    def _epifed(self, party: str, *words: str) -> None:
        """Run an epifed command on a party's machine."""
        program = (sys.executable, "-m", "epifed", *words)
        here = os.environ | self.environment(party)
        done = subprocess.run(program, capture_output=True, text=True, env=here, check=False)
        if done.returncode:
            raise EpifedError(f"epifed {' '.join(words[:2])}: {done.stderr.strip()}")

    def __enter__(self) -> Self:
        """Give this process the state of the server's machine, where the schedule runs."""
        self._before = os.environ.get(STATE)
        os.environ |= self.environment(SERVER)
        return self

    def __exit__(self, *_: object) -> None:
        """End all parties."""
        self.local.__exit__()
        os.environ.pop(STATE)
        if self._before is not None:
            os.environ[STATE] = self._before


JOURNAL, COURSE, CLOCK = "weeks", "course.jsonl", "clock.txt"
MODEL_NAME = "epifed-year"
LOOKS = 6 * 3600.0
"""Most seconds on the simulated clock between two looks of the schedule."""
ROUND_SECONDS = 60.0
"""Seconds that a round waits for its sites, such as a killed one."""
OFFICES = 2
"""Sites that make their weekly report at the same time."""


@dataclass
class Progress:
    """The progress of a year."""

    weeks: int
    began: float = field(default_factory=time.monotonic)
    done: int = 0
    """Weeks closed, in this process and before."""
    here: int = 0
    """Weeks closed since this process began."""
    text: str = "making certificates and kits"

    @property
    def left(self) -> float | None:
        """Seconds until the end at the present pace; None before the first week."""
        if not self.here:
            return None
        return (time.monotonic() - self.began) / self.here * (self.weeks - self.done)


class Course:
    """A year in a folder, from its beginning or from where it was interrupted."""

    def __init__(
        self,
        folder: Path,
        plan: Plan,
        progress: Progress,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.folder, self.plan, self.progress, self.say = folder, plan, progress, say
        self.journal = Journal(folder / JOURNAL, folder / BUDGET)
        beginning = plan.planned[0].due - timedelta(days=1)
        self.clock = Clock.at(folder / CLOCK, beginning)
        self._closed, self._processor = time.monotonic(), dict[str, float]()
        progress.done = len(course_of(folder))

    def run(self, vintages: Mornings) -> None:
        """Run all remaining weeks, to the end of the year."""
        acts = self.plan.acts()
        for act in acts:
            self.clock.enter(act.moment, self._bound(act, vintages))
        away = self._standing(acts)
        self.clock.forget_past()
        with (
            self._parties(vintages) as parties,
            ProcessPoolExecutor(OFFICES, get_context("spawn")) as offices,
        ):
            self.parties, self.offices = parties, offices
            self.progress.text = "starting the server and all sites"
            here = [name for name in parties.sites if name not in away]
            parties.start(SERVER, *self.plan.adders, *here)
            self._closed, self._processor = time.monotonic(), parties.processor_seconds()
            while not self._scheduled():
                pass
            self.clock.until(self.clock.agenda[-1][0] if self.clock.agenda else self.clock.time)

    def _scheduled(self) -> bool:
        """Run the schedule as its service would; false if it has to be started again."""
        ledger, plan = Ledger(self.parties.ledger), self.plan
        book = ledger.book()
        left = weeks_left(plan.schedule, self.journal, book, self.clock.now())
        if left:
            budgeted(book.cap, book.taken(), plan.privacy, len(left))
        roster, desk = self.parties.local.federation, self.parties.local.desk
        runner = _Told(desk, roster, plan.schedule, plan.settings, ledger, self.say)
        runner.progress = self.progress
        now, sleep = self.clock.now, self.clock.sleep
        begun = begun_in(ledger)
        try:
            run_weeks(
                plan.schedule, self.journal, runner, begun, self.say, now, sleep, longest=LOOKS
            )
        except RestartError:
            return False
        return True

    def _parties(self, vintages: Mornings) -> Parties:
        plan = self.plan
        if (self.folder / "kits" / SERVER).exists():
            return Parties.found(self.folder)
        roster = rehearsal_federation(
            vintages.final,
            plan.sites,
            plan.aggregators,
            terms=plan.terms,
            round_timeout=ROUND_SECONDS,
        )
        first = vintages.on(self.clock.time.date())
        parties = Parties.make(self.folder, roster, first)
        with parties:
            if not parties.ledger.exists():
                Ledger.create(parties.ledger, plan.cap, "a rehearsed year")
        return parties

    def _standing(self, acts: list[Act]) -> set[str]:
        """The sites that are away now, after the actions done so far."""
        away: set[str] = set()
        for (moment, _), act in zip(self.clock.agenda, acts, strict=True):
            if moment <= self.clock.time and act.kind in ("leave", "return"):
                away = away | {*act.who} if act.kind == "leave" else away - {*act.who}
        return away

    def _bound(self, act: Act, vintages: Mornings) -> Callable[[], bool]:
        def do() -> bool:
            self._do(act, vintages)
            return act.kind in ("off", "restore", "lost-key")

        return do

    def _do(self, act: Act, vintages: Mornings) -> None:
        week, parties = self.plan.planned[act.week - 1], self.parties
        self.progress.text = f"{week.name}: {act.kind} {', '.join(act.who)}".strip()
        if act.kind == "files":
            broken = {
                name
                for event in self.plan.events.of(act.week)
                if event.what == "bad-file"
                for name in event.who
            }
            before = vintages.history(week.day - timedelta(days=1), KEPT_DAILY_VINTAGES)
            parties.write_files(vintages.on(week.day), before, broken)
        elif act.kind == "leave":
            parties.leave(*act.who)
        elif act.kind == "return":
            panel = vintages.on(self.clock.time.date())
            for site in act.who:
                parties.local.write_data(site, panel)
            parties.start(*act.who)
        elif act.kind == "kill":
            for party in act.who:
                parties.kill_within(party, week)
        elif act.kind == "off":
            parties.stop(SERVER)
            self.clock.time += timedelta(hours=act.hours)
            parties.start_again(SERVER)
        elif act.kind == "restore":
            parties.restore_server()
        elif act.kind == "lost-key":
            for site in act.who:
                parties.lose_key(site)
        else:
            self._close(act.week, week, vintages)

    def _close(self, number: int, week: Week, vintages: Mornings) -> None:
        """End a week: make the sites' reports, back up, and record the results."""
        parties = self.parties
        parties.settle()
        trained = time.monotonic()
        noon = datetime.combine(week.day, datetime.min.time()).replace(hour=12).astimezone()
        jobs = {
            site: self.offices.submit(
                _update_site,
                parties.local.kit(site),
                parties.local.reports(site),
                noon,
                parties.environment(site)[STATE],
            )
            for site in parties.running
        }
        made = {site: job.result() for site, job in jobs.items()}
        parties.back_up()
        before, self._processor = self._processor, parties.processor_seconds()
        used = {
            party: now - before[party] if 0 <= before.get(party, -1) <= now else now
            for party, now in self._processor.items()
        }
        line = {
            "week": number,
            "day": week.day,
            "running": list(parties.running),
            "offices": made,
            "seconds": round(time.monotonic() - self._closed, 2),
            "seconds_offices": round(time.monotonic() - trained, 2),
            "processor_seconds": round(sum(used.values()), 2),
            "processor_seconds_server": round(used.get(SERVER, 0.0), 2),
            "processor_seconds_offices": round(
                sum(office["processor"] for office in made.values()), 2
            ),
        }
        with (self.folder / COURSE).open("a", encoding="utf-8", newline="\n") as file:
            file.write(to_json(line).replace("\n", " ") + "\n")
        self._closed = time.monotonic()
        self.progress.done, self.progress.here = number, self.progress.here + 1
        scores = scores_of(self.folder, vintages.final, week.day)
        self.say(_sentence(number, week, self.journal.outcomes(), line, scores))


class _Told(Trainings):
    """Trainings that report their progress."""

    progress: Progress

    def train(self, week: Week, least: int = 1) -> str:
        """Run the week's training to its end."""
        self.progress.text = f"{week.name}: training"
        return super().train(week, least)


def _update_site(kit: Path, out: Path, now: datetime, state: str) -> dict[str, Any]:
    """Make a site's weekly report on its own machine."""
    os.environ[STATE] = state
    began = time.process_time()
    status = update_site(kit, out, MODEL_NAME, now)
    used = round(time.process_time() - began, 2)
    return {"problems": status["problems"], "week": status["week"], "processor": used}


def course_of(folder: Path) -> dict[int, dict[str, Any]]:
    """The recorded results of each closed week."""
    path = folder / COURSE
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {line["week"]: line for line in map(json.loads, lines)}


def _sentence(
    number: int,
    week: Week,
    outcomes: dict[str, dict[str, Any]],
    line: dict[str, Any],
    scores: dict[str, Any] | None,
) -> str:
    became = outcomes[week.name]
    reason = f" ({became['reason']})" if became["reason"] else ""
    ratio = f", relative MAE {scores['mae_ratio']:.2f}" if scores else ""
    return (
        f"week {number}, {week.day}: {became['outcome']}{reason}, {len(line['running'])} sites"
        f"{ratio}; {line['seconds']:.0f} s"
    )
