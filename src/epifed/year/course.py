"""The course of a year: the schedule itself runs it, on a clock that jumps, over real processes."""

import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from epifed.archive import KEPT_MORNINGS
from epifed.federation.flare.rehearsal import rehearsal_federation
from epifed.federation.flare.weeks import Trainings
from epifed.federation.weekly import Journal, Week, begun_in, budgeted, run_weeks, weeks_left
from epifed.files import to_json
from epifed.ledger.ledger import Ledger
from epifed.office import tend
from epifed.simulate.lateness import Mornings
from epifed.year.clock import Clock, RestartError
from epifed.year.events import SERVER
from epifed.year.parties import BUDGET, STATE, Parties
from epifed.year.plan import Act, Plan
from epifed.year.scores import scores_of

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
                _tend,
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

    def train(self, week: Week) -> None:
        """The week's training, to its end."""
        self.progress.text = f"{week.name}: training"
        super().train(week)


def _tend(kit: Path, out: Path, now: datetime, state: str) -> dict[str, Any]:
    """What an office makes of its week, on its own machine."""
    os.environ[STATE] = state
    began = time.process_time()
    status = tend(kit, out, MODEL_NAME, now)
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
