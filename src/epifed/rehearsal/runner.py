"""Runs a rehearsed year: the real schedule on a simulated clock, over real processes.

Parties are stopped, killed, restored and renamed as the plan says.
"""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Self

import polars as pl

from epifed.data.panel import CasePanel
from epifed.data.vintages import KEPT_MORNINGS, Vintages, fill
from epifed.errors import EpifedError
from epifed.evaluation.backtest import SCORES, scored_weeks
from epifed.evaluation.results_folder import RESULTS
from epifed.federation.answers import MODELS
from epifed.federation.flare.jobs import Trainings
from epifed.federation.flare.kits import SERVER
from epifed.federation.roster import Federation
from epifed.federation.schedule import Journal, Week, begun_in, budgeted, run_weeks, weeks_left
from epifed.federation.site import ARCHIVE, LEDGER, archive_of
from epifed.files import to_json, write_text
from epifed.ledger.ledger import Ledger
from epifed.rehearsal.local import LocalFederation, rehearsal_federation
from epifed.rehearsal.plan import Act, Plan, renamed
from epifed.simulate.simulation import Mornings
from epifed.site_report import WEEK_NAME, update_site

Action = Callable[[], bool]
"""Does something; says whether the schedule has to be started again after it."""
_APART = timedelta(seconds=1)


class RestartError(Exception):
    """The schedule must be started again, as its service would be."""


@dataclass
class Clock:
    """The time of a year, kept in a file, and what is to be done at which time."""

    path: Path
    time: datetime
    agenda: list[tuple[datetime, Action]] = field(default_factory=list)
    """In the order of their times, no two at the same."""

    @classmethod
    def at(cls, path: Path, beginning: datetime) -> "Clock":
        """A clock at its beginning, or where it stood when it was stopped."""
        said = path.read_text(encoding="utf-8").strip() if path.exists() else ""
        return cls(path, datetime.fromisoformat(said) if said else beginning)

    def enter(self, moment: datetime, action: Action) -> datetime:
        """Have something done at a time, or right after what is done then: when it will be."""
        while any(taken == moment for taken, _ in self.agenda):
            moment += _APART
        self.agenda.append((moment, action))
        self.agenda.sort(key=lambda entry: entry[0])
        return moment

    def forget_past(self) -> None:
        """What was to be done up to now has been done before."""
        self.agenda = [entry for entry in self.agenda if entry[0] > self.time]

    def now(self) -> datetime:
        """The time."""
        return self.time

    def sleep(self, seconds: float) -> None:
        """Go on by so many seconds, and do what is to be done until then."""
        self.until(self.time + timedelta(seconds=seconds))

    def until(self, moment: datetime) -> None:
        """Go on to a time, and do what is to be done until then.

        What is interrupted is done again from its beginning by the next clock of this file.
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
"""Days ahead that are looked at; the first is the one of the year's table."""
KEPT = ("mae_ratio", "coverage_50", "coverage_95")


def forecasts_of(folder: Path, final: CasePanel, day: date | None = None) -> pl.DataFrame:
    """The forecasts of all offices beside what finally came, of one morning's week or of all."""
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
    """Error relative to like today, and coverage, at the first horizon; none without forecasts."""
    table = forecasts_of(folder, final, day)
    return summed(table, HORIZONS[0]) if len(table) else None


def summed(table: pl.DataFrame, horizon: int) -> dict[str, Any] | None:
    """The scores of some forecasts at a horizon."""
    mine = table.filter(pl.col("horizon") == horizon)
    if mine.is_empty():
        return None
    found = mine.select(SCORES).row(0, named=True)
    return {name: found[name] for name in KEPT} | {"forecasts": len(mine)}


ROSTER, BUDGET, BACKUP, MACHINES, MACHINE = (
    "federation.toml",
    "budget.ledger",
    "backup",
    "machines",
    "server.machine",
)
STATE = "EPIFED_STATE"
PATIENCE = 300.0
"""Seconds that a training may take until it has its budget."""
DOWN = 2.0
"""Seconds that a party that was killed stays down."""


class Parties:
    """A federation on this machine whose parties know of ledgers only what their own machine does.

    The folder is all there is: another process can go on with it.
    """

    def __init__(self, local: LocalFederation) -> None:
        self.local = local
        self._killers: list[threading.Thread] = []
        self._failed: list[Exception] = []
        self._before: str | None = None

    @classmethod
    def make(cls, folder: Path, federation: Federation, panel: CasePanel) -> Self:
        """Kits, and the data of the panel."""
        return cls(LocalFederation.make(folder, federation, panel, folder / BUDGET, ()))

    @classmethod
    def found(cls, folder: Path) -> Self:
        """Those of a folder."""
        federation = Federation.read(folder / ROSTER)
        return cls(LocalFederation(folder, federation, folder / BUDGET, preloaded=()))

    @property
    def folder(self) -> Path:
        """Where everything is."""
        return self.local.folder

    @property
    def ledger(self) -> Path:
        """The federation's budget."""
        return self.folder / BUDGET

    @property
    def sites(self) -> tuple[str, ...]:
        """All enrolled ones."""
        return tuple(site.name for site in self.local.federation.sites)

    @property
    def running(self) -> tuple[str, ...]:
        """The sites that run."""
        return tuple(site for site in self.sites if site in self.local.processes)

    def machine(self, party: str) -> Path:
        """What the machine of a party remembers; a server that was restored is on another one."""
        path = self.folder / MACHINE
        number = path.read_text().strip() if party == SERVER and path.exists() else ""
        return self.folder / MACHINES / f"{party}{number}"

    def environment(self, party: str) -> dict[str, str]:
        """What the processes on the machine of a party have in theirs."""
        return {STATE: str(self.machine(party).resolve())}

    def start(self, *parties: str) -> None:
        """Start those that do not run, a server first, and wait until it knows the others."""
        new = [party for party in parties if party not in self.local.processes]
        self.local.environment |= {party: self.environment(party) for party in new}
        if new:
            self.local.start(*new)

    def stop(self, party: str) -> None:
        """End a party, if it runs."""
        if party in self.local.processes:
            workers = self.local.workers(party)
            self.local.kill(party)
            for pid in workers:
                with suppress(OSError):
                    os.kill(pid, 9)

    def leave(self, *sites: str) -> None:
        """Stop sites, and wait until the server knows: on its clock that was hours ago."""
        for site in sites:
            self.stop(site)
        self.local.wait_until_gone(sites)

    def write_files(self, panel: CasePanel, history: Vintages, broken: Collection[str]) -> None:
        """Give each site that runs the list of this morning; some of them one without a header.

        What its service would have kept on the mornings before, each day, it has in its archives.
        """
        for site in self.running:
            for client in self.local.federation.site(site).clients:
                fill(archive_of(self.local.kit(site), client), history.of((client,)))
            self.local.write_data(site, panel)
            if site in broken:
                path = self.local.data(site)
                write_text(path, path.read_text(encoding="utf-8").partition("\n")[2])

    def back_up(self) -> None:
        """Copy the server's kit and ledger, as is done after each week."""
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
        """Lose the server with its machine, and put the last backup up on another one."""
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
            one.model_copy(update={"name": new, "signs": None}) if one.name == site else one
            for one in roster.sites
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
        adding = [one.name for one in changed.aggregators]
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
        """Wait for those that were killed to be up again; what went wrong with that is raised."""
        for thread in self._killers:
            thread.join(PATIENCE)
        self._killers.clear()
        if self._failed:
            raise self._failed.pop()
        self.local.wait_for_sites(self.running)

    def processor_seconds(self) -> dict[str, float]:
        """Seconds that each running party, its workers and those that ended had on a core."""
        return {name: self.local.processor_seconds(name) for name in self.local.processes}

    def start_again(self, *parties: str) -> None:
        """Start parties, and wait until the server knows all that run."""
        self.start(*parties)
        self.local.wait_for_sites(self.running)

    def _epifed(self, party: str, *words: str) -> None:
        """Run a command on the machine of a party."""
        program = (sys.executable, "-m", "epifed", *words)
        here = os.environ | self.environment(party)
        done = subprocess.run(program, capture_output=True, text=True, env=here, check=False)
        if done.returncode:
            raise EpifedError(f"epifed {' '.join(words[:2])}: {done.stderr.strip()}")

    def __enter__(self) -> Self:
        """From now on this process is on the server's machine, where the schedule runs."""
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
"""Seconds on the clock after which the schedule looks at it again."""
ROUND_SECONDS = 60.0
"""That a round waits for a party that was killed."""
OFFICES = 2
"""Offices that make their week at the same time."""


@dataclass
class Progress:
    """How far a year is, for whoever waits for it."""

    weeks: int
    began: float = field(default_factory=time.monotonic)
    done: int = 0
    """Weeks that were closed before and now."""
    here: int = 0
    """Weeks that were closed since this process began."""
    text: str = "making certificates and kits"

    @property
    def left(self) -> float | None:
        """Seconds until the end, if the weeks go on as they did; none before the first."""
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

    def run(self, mornings: Mornings) -> None:
        """Every week that is left, to the end of the year."""
        acts = self.plan.acts()
        for act in acts:
            self.clock.enter(act.moment, self._bound(act, mornings))
        away = self._standing(acts)
        self.clock.forget_past()
        with (
            self._parties(mornings) as parties,
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
        """The schedule as its service would run it; false if it is to be started again."""
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

    def _parties(self, mornings: Mornings) -> Parties:
        plan = self.plan
        if (self.folder / "kits" / SERVER).exists():
            return Parties.found(self.folder)
        roster = rehearsal_federation(
            mornings.final,
            plan.sites,
            plan.aggregators,
            terms=plan.terms,
            round_timeout=ROUND_SECONDS,
        )
        first = mornings.on(self.clock.time.date())
        parties = Parties.make(self.folder, roster, first)
        with parties:
            if not parties.ledger.exists():
                Ledger.create(parties.ledger, plan.cap, "a rehearsed year")
        return parties

    def _standing(self, acts: list[Act]) -> set[str]:
        """The sites that are away now, by what was done so far."""
        away: set[str] = set()
        for (moment, _), act in zip(self.clock.agenda, acts, strict=True):
            if moment <= self.clock.time and act.kind in ("leave", "return"):
                away = away | {*act.who} if act.kind == "leave" else away - {*act.who}
        return away

    def _bound(self, act: Act, mornings: Mornings) -> Callable[[], bool]:
        def do() -> bool:
            self._do(act, mornings)
            return act.kind in ("off", "restore", "lost-key")

        return do

    def _do(self, act: Act, mornings: Mornings) -> None:
        week, parties = self.plan.planned[act.week - 1], self.parties
        self.progress.text = f"{week.name}: {act.kind} {', '.join(act.who)}".strip()
        if act.kind == "files":
            broken = {
                name
                for event in self.plan.events.of(act.week)
                if event.what == "bad-file"
                for name in event.who
            }
            before = mornings.history(week.day - timedelta(days=1), KEPT_MORNINGS)
            parties.write_files(mornings.on(week.day), before, broken)
        elif act.kind == "leave":
            parties.leave(*act.who)
        elif act.kind == "return":
            panel = mornings.on(self.clock.time.date())
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
            self._close(act.week, week, mornings)

    def _close(self, number: int, week: Week, mornings: Mornings) -> None:
        """The end of a week: the offices' own reports, the backup, and what it came to."""
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
            "processor_seconds_offices": round(sum(one["processor"] for one in made.values()), 2),
        }
        with (self.folder / COURSE).open("a", encoding="utf-8", newline="\n") as file:
            file.write(to_json(line).replace("\n", " ") + "\n")
        self._closed = time.monotonic()
        self.progress.done, self.progress.here = number, self.progress.here + 1
        scores = scores_of(self.folder, mornings.final, week.day)
        self.say(_sentence(number, week, self.journal.outcomes(), line, scores))


class _Told(Trainings):
    """Trainings that somebody waits for."""

    progress: Progress

    def train(self, week: Week, least: int = 1) -> str:
        """The week's training, to its end."""
        self.progress.text = f"{week.name}: training"
        return super().train(week, least)


def _update_site(kit: Path, out: Path, now: datetime, state: str) -> dict[str, Any]:
    """What an office makes of its week, on its own machine."""
    os.environ[STATE] = state
    began = time.process_time()
    status = update_site(kit, out, MODEL_NAME, now)
    used = round(time.process_time() - began, 2)
    return {"problems": status["problems"], "week": status["week"], "processor": used}


def course_of(folder: Path) -> dict[int, dict[str, Any]]:
    """What is written down of each week that was closed."""
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
    ratio = f", error {scores['mae_ratio']:.2f} of like today" if scores else ""
    return (
        f"week {number}, {week.day}: {became['outcome']}{reason}, {len(line['running'])} sites"
        f"{ratio}; {line['seconds']:.0f} s"
    )
