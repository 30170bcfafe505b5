"""The weekly run: which week is due, and what becomes of it. One rule for every week.

A week is due at its weekday and time on the wall clock of its time zone. It is run until it is
finished; a week that was missed is made up while it is younger than `make_up_hours`, and skipped
after that. Too few sites by the deadline skip the week, or do not, as was said before. Nothing is
spent on a week that is skipped. What became of each week stands in a journal, and one process at a
time writes it; the training of a week has the week's name, so that whatever runs it twice goes on
with the same training and the ledger pays it once.

A clock that jumped is not believed (`ClockWatch`): nothing is begun or skipped until it is right
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
"""A week that was refused cost nothing: too few sites would have taken part. A wasted one was paid
for and nothing was learned."""
_NAMED = re.compile(r"week-(\d{4}-\d\d-\d\d)")
EARLIEST, LATEST = date(2000, 1, 1), date(2999, 12, 31)
"""Of a schedule's first day."""
ASK_AGAIN = 600.0
"""Seconds after which sites that refused a week are asked again."""
LONGEST_SLEEP = 300.0
"""Seconds after which the clock is looked at again: it may have been set."""
CLOCK = "clock.json"
LARGEST_STEP = timedelta(hours=1)
"""By how much a clock may be corrected while the scheduler runs."""
LONGEST_PAUSE = timedelta(days=3)
"""How long a scheduler may be away without anybody confirming the time afterwards."""


class Schedule(Table):
    """When a federation trains, and what is done about a week that goes wrong."""

    first: date
    """A day in the first week."""
    weeks: int = Field(52, ge=1, le=520)
    weekday: Weekday = "monday"
    at: wall_time = wall_time(6)
    """On the wall clock: six in the morning is six in summer and in winter."""
    zone: str = "UTC"
    days: int = Field(180, ge=14, le=3660)
    """Days that are learned from."""
    lag: int = Field(1, ge=1, le=28)
    """How many days before the week's day the last of them is: what all sites have by then."""
    least_sites: int = Field(1, ge=1)
    deadline_minutes: int = Field(240, ge=0, le=7 * 24 * 60)
    """How long too few sites are waited for."""
    if_too_few: Literal["skip", "go-on", "wait"] = "skip"
    """What is done then; who waits, waits until the week is too old to be begun, and skips it."""
    make_up_hours: int = Field(72, ge=1, le=7 * 24)
    """How old a week may be when it is begun; an older one is skipped."""

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
        """All weeks, the first one first."""
        monday = self.first - timedelta(days=self.first.weekday())
        offset = get_args(Weekday).index(self.weekday)
        days = [monday + timedelta(days=7 * week + offset) for week in range(self.weeks)]
        return [Week(day, self._moment(day)) for day in days]

    def period(self, week: "Week") -> Period:
        """The days that a week's training learns from."""
        return self.period_to(week.day - timedelta(days=self.lag))

    def period_to(self, last: date) -> Period:
        """The days of a training whose last one is given."""
        return last - timedelta(days=self.days - 1), last

    def missed(self, week: "Week", now: datetime) -> bool:
        """Whether it is too late to begin a week."""
        return now > self._last_begin(week)

    def patience(self, week: "Week", now: datetime) -> datetime:
        """Until when a week that could begin now waits for enough sites."""
        deadline = now + timedelta(minutes=self.deadline_minutes)
        return self._last_begin(week) if self.if_too_few == "wait" else deadline

    def _last_begin(self, week: "Week") -> datetime:
        return week.due + timedelta(hours=self.make_up_hours)

    def _moment(self, day: date) -> datetime:
        """The moment of a week. A time that the clock skips is as long after midnight; of one that
        it shows twice, the first."""
        local = datetime.combine(day, self.at.replace(fold=0), tzinfo=ZoneInfo(self.zone))
        return local.astimezone(UTC)

    def local(self, week: "Week") -> str:
        """The moment of a week as the clock on the wall shows it, and how far that is from UTC.

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
        """Of its training."""
        return f"week-{self.day}"

    def same(self, training: str) -> bool:
        """Whether a training's name is that of another day of the same week, Monday to Sunday."""
        found = _NAMED.fullmatch(training)
        if found is None or training == self.name:
            return False
        return date.fromisoformat(found[1]).isocalendar()[:2] == self.day.isocalendar()[:2]


class Running(Protocol):
    """What runs a week: a federation that is connected."""

    def connected(self) -> Collection[str]:
        """The sites that are there."""
        ...

    def train(self, week: Week, least: int) -> str:
        """Train until the week's release is made; called again, it goes on.

        Nothing is spent and `NotReadyError` raised if fewer than `least` sites would take part.
        What is told is why nothing was learned; usually nothing.
        """
        ...

    def rival(self, week: Week) -> str | None:
        """Another training of the same week that was paid for, if there is one."""
        ...

    def give_back(self, week: Week) -> None:
        """Let go of what is reserved in the budget for a week that is skipped."""
        ...


class Journal:
    """What became of each week, in a folder.

    One scheduler at a time holds its budget: whatever folders they write to, those that pay from
    one ledger take turns.
    """

    def __init__(self, folder: Path, ledger: Path | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / JOURNAL
        held = self.path if ledger is None else ledger.resolve()
        self.lock = FileLock(held.with_name(f"{held.name}.schedule"))

    def held(self) -> Any:
        """The right to run weeks; refused while another has it."""
        try:
            return self.lock.acquire(timeout=0)
        except Timeout:
            raise EpifedError(
                f"{self.path}: another scheduler runs its weeks; expected one at a time"
            ) from None

    def outcomes(self) -> dict[str, dict[str, Any]]:
        """The last line of each week. A line that a crash cut off has not been written."""
        return read_outcomes(self.path)

    def write(self, week: Week, outcome: Outcome, reason: str, now: datetime) -> None:
        """Add what became of a week."""
        entry = {"week": week.name, "outcome": outcome, "reason": reason, "time": now.isoformat()}
        with self.path.open("a", encoding="utf-8", newline="\n") as file:
            file.write(f"\n{json.dumps(entry)}\n" if self._cut_off() else f"{json.dumps(entry)}\n")

    def _cut_off(self) -> bool:
        content = self.path.read_bytes() if self.path.exists() else b""
        return bool(content) and not content.endswith(b"\n")


def read_outcomes(path: Path) -> dict[str, dict[str, Any]]:
    """The last line of each week in a journal, which is not touched."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        found[entry["week"]] = entry
    return found


def steady_seconds() -> float:
    """Seconds by a clock that nobody can set; it goes on while the machine sleeps, where it can."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


class ClockWatch:
    """Notices a clock that jumped, by a steady one and by when a scheduler last looked at it.

    The last look is kept in the schedule's folder. `confirm` says that the clock is right; a
    scheduler that waits reads it with its next look.
    """

    def __init__(self, folder: Path, steady: Callable[[], float] = steady_seconds) -> None:
        self.path, self.steady = folder / CLOCK, steady
        self.doubted = False
        self._looked: tuple[datetime, float] | None = None

    def confirm(self, now: datetime) -> None:
        """Note that somebody has compared the clock with another one."""
        self._note(now, now)

    def doubts(
        self, missed: Sequence[Week], now: datetime, say: Callable[[str], None] = lambda _: None
    ) -> bool:
        """Whether the clock is not believed, given the weeks that are missed by it; said once."""
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
        """When the clock was looked at last, and confirmed last; what cannot be read is not."""
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
    """Several weeks that would be skipped at once: a clock that is wrong, or a schedule that is."""
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
    """Bring every week that is due to its end; the next week that is not, if there is one.

    `begun` says whether something was spent on a week: then it is run to its end, however late.
    With a `watch`, the next week may be one that is due by a clock that is not believed.
    """
    with journal.held():
        weeks = open_weeks(schedule, journal, now())
        for place, week in enumerate(weeks):
            if watch and watch.doubts(_too_old(schedule, weeks[place:], begun, now()), now(), say):
                return week
            if week.due > now():
                return week
            outcome, reason = _run(schedule, week, running, begun, now, sleep)
            if outcome in ("skipped", "refused"):
                running.give_back(week)
            journal.write(week, outcome, reason, now())
            say(f"{week.name}: {outcome}{f', {reason}' if reason else ''}")
    return None


def open_weeks(schedule: Schedule, journal: Journal, now: datetime) -> list[Week]:
    """The weeks of which nothing is in the journal.

    A week that cost nothing and was skipped or refused by a clock that showed more than this one is
    open again.
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
    while coming := run_due(schedule, journal, running, begun, say, now, sleep, watch):
        wait = (coming.due - now()).total_seconds()
        sleep(longest if watch and watch.doubted else min(longest, max(1.0, wait)))


def _run(
    schedule: Schedule,
    week: Week,
    running: Running,
    begun: Callable[[Week], bool],
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
    until, least = schedule.patience(week, now()), schedule.least_sites
    while (came := len(running.connected())) < schedule.least_sites:
        if now() >= until:
            if schedule.if_too_few != "go-on":
                return "skipped", f"{counted(came, 'site')} came, {schedule.least_sites} expected"
            least = 1
            break
        sleep(min(30.0, max(1.0, (until - now()).total_seconds())))
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


def _learned(nothing: str) -> tuple[Outcome, str]:
    """What became of a week that was trained; `nothing` says why it taught nobody anything."""
    return ("wasted", nothing) if nothing else ("done", "")


def begun_in(ledger: Ledger) -> Callable[[Week], bool]:
    """Says whether a ledger has paid for something of a week."""

    def begun(week: Week) -> bool:
        run = ledger.book().named(week.name)
        return run is not None and run.spent > 0

    return begun


def weeks_left(schedule: Schedule, journal: Journal, book: Book, now: datetime) -> list[Week]:
    """The weeks that are still to be paid for."""
    return [
        week
        for week in open_weeks(schedule, journal, now)
        if book.named(week.name) is None and not schedule.missed(week, now)
    ]


def budgeted(
    cap: Cap, taken: Spending, plan: PrivacyPlan, weeks: int, fits: int | None = None
) -> str:
    """What so many weeks to come will spend; refused if the budget ends before them.

    `fits`, of a cap that renews, is how many of them its book has room for.
    """
    rate, noise, rounds = plan.priced_rate, plan.noise_multiplier, plan.rounds
    if fits is None or cap.weeks is None:
        fits = most_trainings(cap, taken, rate, noise, rounds)
    if fits < weeks:
        raise EpifedError(
            f"found room for {counted(fits, 'week')} under the cap of {cap.sentence()}, at ε = "
            f"{rounded_up(plan.price().epsilon_spent)} each; expected room for {weeks}: "
            "'epifed ledger plan' says which ε leaves it"
        )
    if cap.weeks is not None:
        return f"{counted(weeks, 'week')} to come fit under the cap of {cap.sentence()}"
    total = cap.price(together((*taken, (rate, noise, weeks * rounds))))
    return (
        f"{counted(weeks, 'week')} to come: ε = {rounded_up(total)} after the last, of "
        f"{cap.sentence()}"
    )
