"""The weekly run: which week is due, and with what outcome it ends. All weeks follow one rule.

A week is due at its weekday and time on the wall clock of its time zone. It runs until it is
finished. A missed week is made up within `make_up_hours` and skipped after that. If too few sites
are there by the deadline, `if_too_few` decides. A skipped week costs nothing. A journal records
each week's outcome, and only one process at a time writes it. A week's training has the week's
name. So if it is started twice, the same training resumes and is charged to the ledger once.

After a jump of the clock (`ClockWatch`), nothing is begun or skipped until the clock is right
again, or somebody confirms it.
"""

import json
import re
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from datetime import time as wall_time
from pathlib import Path
from typing import Any, Literal, Protocol, get_args
from zoneinfo import ZoneInfo, available_timezones

from filelock import FileLock, Timeout
from pydantic import Field, field_validator

from epifed.errors import EpifedError, counted
from epifed.federation.readiness import NotReadyError
from epifed.federation.terms import Table
from epifed.files import write_text
from epifed.learners.base import Period
from epifed.ledger.budget import Book, Cap, Spending, most_trainings, together
from epifed.ledger.ledger import Ledger
from epifed.privacy.accounting import rounded_up
from epifed.privacy.plan import PrivacyPlan

JOURNAL = "weeks.jsonl"
Weekday = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
Outcome = Literal["done", "skipped", "refused", "wasted"]
"""A refused week cost nothing: too few sites would have taken part. A wasted week was charged, but
nothing was learned."""
_NAMED = re.compile(r"week-(\d{4}-\d\d-\d\d)")
EARLIEST, LATEST = date(2000, 1, 1), date(2999, 12, 31)
"""Bounds on a schedule's first day."""
ASK_AGAIN = 600.0
"""Seconds after which sites that refused a week are asked again."""
LONGEST_SLEEP = 300.0
"""Most seconds of sleep until the next look at the clock, which may have been set."""
CLOCK = "clock.json"
LARGEST_STEP = timedelta(hours=1)
"""The most by which a clock may be corrected while the scheduler runs."""
LONGEST_PAUSE = timedelta(days=3)
"""The longest absence of a scheduler after which nobody needs to confirm the time."""


class Schedule(Table):
    """When a federation trains, and how it handles a week that goes wrong."""

    first: date
    """A day in the first week."""
    weeks: int = Field(52, ge=1, le=520)
    weekday: Weekday = "monday"
    at: wall_time = wall_time(6)
    """On the wall clock of the zone, in summer and in winter."""
    zone: str = "UTC"
    days: int = Field(180, ge=14, le=3660)
    """Days of training data."""
    lag: int = Field(1, ge=1, le=28)
    """Days from the last day of data to the week's day; all sites have their counts by then."""
    least_sites: int = Field(1, ge=1)
    deadline_minutes: int = Field(240, ge=0, le=7 * 24 * 60)
    """Minutes to wait if too few sites are connected or willing."""
    if_too_few: Literal["skip", "go-on", "wait"] = "skip"
    """The action then; with `wait`, a week is skipped once it is too old to begin."""
    make_up_hours: int = Field(72, ge=1, le=7 * 24)
    """The greatest age, in hours, at which a week is begun; an older one is skipped."""

    @field_validator("zone")
    @classmethod
    def _known(cls, zone: str) -> str:
        if zone not in available_timezones():
            raise ValueError("expected a time zone such as Europe/Berlin")
        return zone

    @field_validator("at")
    @classmethod
    def _on_the_wall(cls, at: wall_time) -> wall_time:
        if at.tzinfo is not None:
            raise ValueError("expected a time without an offset, on the clock of the zone")
        return at

    @field_validator("first")
    @classmethod
    def _countable(cls, first: date) -> date:
        if not EARLIEST <= first <= LATEST:
            raise ValueError(f"expected a day from {EARLIEST} to {LATEST}")
        return first

    def planned(self) -> list["Week"]:
        """All weeks, in order."""
        monday = self.first - timedelta(days=self.first.weekday())
        offset = get_args(Weekday).index(self.weekday)
        days = [monday + timedelta(days=7 * week + offset) for week in range(self.weeks)]
        return [Week(day, self._moment(day)) for day in days]

    def period(self, week: "Week") -> Period:
        """First and last day of the data for a week's training."""
        return self.period_to(week.day - timedelta(days=self.lag))

    def period_to(self, last: date) -> Period:
        """First and last day of the data for a training with this last day."""
        return last - timedelta(days=self.days - 1), last

    def missed(self, week: "Week", now: datetime) -> bool:
        """Whether it is too late to begin a week."""
        return now > self._last_begin(week)

    def patience(self, week: "Week", now: datetime) -> datetime:
        """The time until which a week that can begin now waits for enough sites."""
        deadline = now + timedelta(minutes=self.deadline_minutes)
        return self._last_begin(week) if self.if_too_few == "wait" else deadline

    def _last_begin(self, week: "Week") -> datetime:
        return week.due + timedelta(hours=self.make_up_hours)

    def _moment(self, day: date) -> datetime:
        """The UTC time of a week: moved on if the clock skips it, the first if it occurs twice."""
        local = datetime.combine(day, self.at.replace(fold=0), tzinfo=ZoneInfo(self.zone))
        return local.astimezone(UTC)

    def local(self, week: "Week") -> str:
        """The local time of a week, with its offset from UTC.

        >>> berlin = Schedule(first=date(2026, 11, 23), zone="Europe/Berlin")
        >>> berlin.local(berlin.planned()[0])
        'Monday 2026-11-23 06:00 +0100 (Europe/Berlin)'
        """
        return f"{week.due.astimezone(ZoneInfo(self.zone)):%A %Y-%m-%d %H:%M %z} ({self.zone})"


@dataclass(frozen=True)
class Week:
    """One week of a schedule."""

    day: date
    due: datetime

    @property
    def name(self) -> str:
        """The name of its training."""
        return f"week-{self.day}"

    def same(self, training: str) -> bool:
        """Whether a training is named after another day of the same week (Monday to Sunday)."""
        match = _NAMED.fullmatch(training)
        if match is None or training == self.name:
            return False
        return date.fromisoformat(match[1]).isocalendar()[:2] == self.day.isocalendar()[:2]


class Running(Protocol):
    """Runs the training of a week in a connected federation."""

    def connected(self) -> Collection[str]:
        """The names of the connected sites."""
        ...

    def train(self, week: Week, least: int) -> str:
        """Train until the week's release is made; a repeated call resumes.

        If fewer than `least` sites would take part, raises `NotReadyError` and nothing is spent.
        Returns the reason why nothing was learned, or an empty string.
        """
        ...

    def rival(self, week: Week) -> str | None:
        """Another training of the same week that was charged, or None."""
        ...

    def give_back(self, week: Week) -> None:
        """Release the budget reserved for a week that is skipped."""
        ...


class Journal:
    """The outcome of each week, as lines of a file in a folder.

    One scheduler at a time holds the lock of its ledger, or of the file without one. So those that
    charge the same ledger take turns, whatever folders they write to.
    """

    def __init__(self, folder: Path, ledger: Path | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / JOURNAL
        held = self.path if ledger is None else ledger.resolve()
        self.lock = FileLock(held.with_name(f"{held.name}.schedule"))

    def held(self) -> Any:
        """Lock the weeks for this scheduler; raises `EpifedError` while another holds them."""
        try:
            return self.lock.acquire(timeout=0)
        except Timeout:
            raise EpifedError(
                f"{self.path}: another scheduler runs its weeks; expected one at a time"
            ) from None

    def outcomes(self) -> dict[str, dict[str, Any]]:
        """The last line of each week, by week. A line cut off by a crash is ignored."""
        return read_outcomes(self.path)

    def write(self, week: Week, outcome: Outcome, reason: str, now: datetime) -> None:
        """Append the outcome of a week."""
        entry = {"week": week.name, "outcome": outcome, "reason": reason, "time": now.isoformat()}
        with self.path.open("a", encoding="utf-8", newline="\n") as file:
            file.write(f"\n{json.dumps(entry)}\n" if self._cut_off() else f"{json.dumps(entry)}\n")

    def _cut_off(self) -> bool:
        content = self.path.read_bytes() if self.path.exists() else b""
        return bool(content) and not content.endswith(b"\n")


def read_outcomes(path: Path) -> dict[str, dict[str, Any]]:
    """The last line of each week in a journal, by week; the file is not changed."""
    outcomes = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        outcomes[entry["week"]] = entry
    return outcomes


def steady_seconds() -> float:
    """Seconds by a clock that nobody can set; where possible it counts while the machine sleeps."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


class ClockWatch:
    """Detects a clock that jumped, by a steady clock and the time of the last look.

    The last look is stored in the schedule's folder. `confirm` records that the clock is right; a
    waiting scheduler reads it at its next look.
    """

    def __init__(self, folder: Path, steady: Callable[[], float] = steady_seconds) -> None:
        self.path, self.steady = folder / CLOCK, steady
        self.doubted = False
        self._looked: tuple[datetime, float] | None = None

    def confirm(self, now: datetime) -> None:
        """Record that somebody has compared the clock with another one."""
        self._note(now, now)

    def doubts(
        self, missed: Sequence[Week], now: datetime, say: Callable[[str], None] = lambda _: None
    ) -> bool:
        """Whether the clock is in doubt, given the weeks that it shows as missed; reported once."""
        looked, confirmed = self._read()
        sure = confirmed is not None and timedelta(0) <= now - confirmed <= timedelta(days=1)
        reason = None if sure else self._jumped(looked, now) or _many(missed)
        if reason and not self.doubted:
            say(
                f"the clock shows {now:%Y-%m-%d %H:%M} UTC, but {reason}; nothing is begun or "
                "skipped until the clock is set right, or confirmed with --confirm-clock"
            )
        self.doubted = reason is not None
        if not reason:
            self._looked = now, self.steady()
            self._note(now, confirmed)
        return self.doubted

    def _jumped(self, looked: datetime | None, now: datetime) -> str | None:
        if self._looked is not None:
            before, seconds = self._looked
            expected = before + timedelta(seconds=self.steady() - seconds)
            if abs(now - expected) > LARGEST_STEP:
                return f"it should show about {expected:%Y-%m-%d %H:%M}"
        elif looked is not None and not -LARGEST_STEP <= now - looked <= LONGEST_PAUSE:
            return f"a scheduler last looked at it at {looked:%Y-%m-%d %H:%M}"
        return None

    def _read(self) -> tuple[datetime | None, datetime | None]:
        """The times of the last look and the last confirmation; None for both if unreadable."""
        try:
            values = json.loads(self.path.read_text(encoding="utf-8"))
            looked, confirmed = (
                datetime.fromisoformat(values[name]) if values.get(name) else None
                for name in ("looked", "confirmed")
            )
        except (OSError, ValueError, TypeError, AttributeError):
            return None, None
        return looked, confirmed

    def _note(self, looked: datetime, confirmed: datetime | None) -> None:
        values = {"looked": looked.isoformat(), "confirmed": confirmed and confirmed.isoformat()}
        write_text(self.path, json.dumps(values))


def _many(missed: Sequence[Week]) -> str | None:
    """The reason for doubt if several weeks would be skipped at once, by clock or schedule."""
    if len(missed) < 2:
        return None
    return f"by it {len(missed)} weeks were missed, {missed[0].name} to {missed[-1].name}"


def _too_old(
    schedule: Schedule, weeks: Sequence[Week], begun: Callable[[Week], bool], now: datetime
) -> list[Week]:
    """The weeks that would be skipped because it is too late to begin them."""
    return [week for week in weeks if schedule.missed(week, now) and not begun(week)]


def run_due(
    schedule: Schedule,
    journal: Journal,
    running: Running,
    begun: Callable[[Week], bool],
    say: Callable[[str], None],
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    sleep: Callable[[float], None] = time.sleep,
    watch: ClockWatch | None = None,
) -> Week | None:
    """Run every due week to its end; return the next week that is not due, or None.

    `begun` shows whether something was spent on a week; then it is run to its end, however late.
    With a `watch`, the returned week may be due by a clock that is in doubt.
    """
    with journal.held():
        weeks = open_weeks(schedule, journal, now())
        for place, week in enumerate(weeks):
            if watch and watch.doubts(_too_old(schedule, weeks[place:], begun, now()), now(), say):
                return week
            if week.due > now():
                return week
            outcome, reason = _run(schedule, week, running, begun, say, now, sleep)
            if outcome in ("skipped", "refused"):
                running.give_back(week)
            journal.write(week, outcome, reason, now())
            say(f"{week.name}: {outcome}{f', {reason}' if reason else ''}")
    return None


def open_weeks(schedule: Schedule, journal: Journal, now: datetime) -> list[Week]:
    """The weeks without an outcome in the journal.

    A skipped or refused week is open again if its entry is more than `LARGEST_STEP` later than the
    present time: the clock was wrong then.
    """
    outcomes = journal.outcomes()

    def is_open(week: Week) -> bool:
        entry = outcomes.get(week.name)
        if entry is None:
            return True
        unspent = entry["outcome"] in ("skipped", "refused")
        return unspent and datetime.fromisoformat(entry["time"]) > now + LARGEST_STEP

    return [week for week in schedule.planned() if is_open(week)]


def run_weeks(
    schedule: Schedule,
    journal: Journal,
    running: Running,
    begun: Callable[[Week], bool],
    say: Callable[[str], None],
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    sleep: Callable[[float], None] = time.sleep,
    longest: float = LONGEST_SLEEP,
    watch: ClockWatch | None = None,
) -> None:
    """Run every week at its time, until the last one is over."""
    announced: Week | None = None
    while coming := run_due(schedule, journal, running, begun, say, now, sleep, watch):
        if coming != announced and not (watch and watch.doubted):
            say(f"{coming.name} begins on {schedule.local(coming)}")
            announced = coming
        wait = (coming.due - now()).total_seconds()
        sleep(longest if watch and watch.doubted else min(longest, max(1.0, wait)))


def _run(
    schedule: Schedule,
    week: Week,
    running: Running,
    begun: Callable[[Week], bool],
    say: Callable[[str], None],
    now: Callable[[], datetime],
    sleep: Callable[[float], None],
) -> tuple[Outcome, str]:
    if begun(week):
        return _learned(running.train(week, 1))
    if schedule.missed(week, now()):
        hours = (now() - week.due) / timedelta(hours=1)
        return (
            "skipped",
            f"missed: {counted(round(hours), 'hour')} late, {schedule.make_up_hours} allowed",
        )
    if other := running.rival(week):
        return "skipped", f"'{other}' is this week's training already"
    until = schedule.patience(week, now())
    too_few = _wait_for_sites(schedule, week, running, until, say, now, sleep)
    if too_few and schedule.if_too_few != "go-on":
        return "skipped", too_few
    least = 1 if too_few else schedule.least_sites
    while True:
        try:
            return _learned(running.train(week, least))
        except NotReadyError as refused:
            reason = str(refused)
        if begun(week):
            raise EpifedError(f"{week.name}: {reason}")
        if now() < until:
            sleep(min(ASK_AGAIN, max(1.0, (until - now()).total_seconds())))
        elif schedule.if_too_few == "go-on" and least > 1:
            least = 1
        else:
            return "refused", reason


def _wait_for_sites(
    schedule: Schedule,
    week: Week,
    running: Running,
    until: datetime,
    say: Callable[[str], None],
    now: Callable[[], datetime],
    sleep: Callable[[float], None],
) -> str:
    """Wait for the least number of connected sites; returns how many there were if too few."""
    announced = ""
    while (connected := len(running.connected())) < schedule.least_sites:
        few = f"{counted(connected, 'site')} connected, {schedule.least_sites} expected"
        if now() >= until:
            return few
        if few != announced:
            say(f"{week.name} waits: {few}")
            announced = few
        sleep(min(30.0, max(1.0, (until - now()).total_seconds())))
    return ""


def _learned(nothing: str) -> tuple[Outcome, str]:
    """The outcome of a trained week; `nothing` is the reason why nothing was learned, or empty."""
    return ("wasted", nothing) if nothing else ("done", "")


def begun_in(ledger: Ledger) -> Callable[[Week], bool]:
    """A function that returns whether a ledger has charged any round of a week."""

    def begun(week: Week) -> bool:
        run = ledger.book().named(week.name)
        return run is not None and run.spent > 0

    return begun


def weeks_left(schedule: Schedule, journal: Journal, book: Book, now: datetime) -> list[Week]:
    """The open weeks that the ledger does not have yet and that can still begin."""
    return [
        week
        for week in open_weeks(schedule, journal, now)
        if book.named(week.name) is None and not schedule.missed(week, now)
    ]


def budgeted(
    cap: Cap, reserved: Spending, plan: PrivacyPlan, weeks: int, fits: int | None = None
) -> str:
    """A sentence on the cost of the coming weeks; raises if the budget ends before them.

    `fits` is the number of them that the budget has room for; it is used if the cap renews.
    """
    rate, noise, rounds = plan.priced_rate, plan.noise_multiplier, plan.rounds
    if fits is None or cap.weeks is None:
        fits = most_trainings(cap, reserved, rate, noise, rounds)
    if fits < weeks:
        raise EpifedError(
            f"found room for {counted(fits, 'week')} under the cap of {cap.sentence()}, at ε = "
            f"{rounded_up(plan.price().epsilon_spent)} each; expected room for {weeks}: "
            "'epifed ledger plan' prints the ε that fits"
        )
    if cap.weeks is not None:
        return f"{counted(weeks, 'week')} to come fit under the cap of {cap.sentence()}"
    total = cap.price(together((*reserved, (rate, noise, weeks * rounds))))
    return (
        f"{counted(weeks, 'week')} to come: ε = {rounded_up(total)} after the last, of "
        f"{cap.sentence()}"
    )
