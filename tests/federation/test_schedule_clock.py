"""A clock that jumped decides nothing: no week is skipped or trained until it is confirmed."""

from collections.abc import Callable
from datetime import date, datetime, timedelta
from pathlib import Path

import pytest

from epifed.federation.schedule import ClockWatch, Journal, Schedule, run_due, run_weeks
from tests.federation.test_schedule_rule import MONDAY, Country

YEAR = Schedule(first=date(2026, 3, 2), weeks=52)
AT_SIX = MONDAY + timedelta(hours=1)


class Machine(Country):
    """A country whose clock can be set, beside a steady one that cannot."""

    ahead = timedelta(0)
    seconds = 0.0

    def clock(self) -> datetime:
        return self.now + self.ahead

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.seconds += seconds

    def wait(self, **span: float) -> None:
        self.sleep(timedelta(**span).total_seconds())


@pytest.fixture
def machine() -> Machine:
    return Machine(AT_SIX)


class Scheduler:
    """A scheduler over a machine, which can be started again."""

    def __init__(self, machine: Machine, folder: Path) -> None:
        self.machine, self.folder = machine, folder
        self.said: list[str] = []
        self.start()

    def start(self) -> None:
        self.watch = ClockWatch(self.folder, lambda: self.machine.seconds)

    def look(self) -> None:
        machine = self.machine
        run_due(
            YEAR, self.journal, machine, machine.begun, self.said.append, machine.clock,
            machine.sleep, self.watch,
        )  # fmt: skip

    @property
    def journal(self) -> Journal:
        return Journal(self.folder)


@pytest.fixture
def scheduler(machine: Machine, tmp_path: Path) -> Scheduler:
    found = Scheduler(machine, tmp_path)
    found.look()
    assert machine.trained == ["week-2026-03-02"]
    return found


@pytest.mark.parametrize("ahead", [timedelta(days=700), timedelta(days=6), timedelta(days=-40)])
@pytest.mark.parametrize("again", [False, True])
def test_a_clock_that_jumped_decides_nothing(
    scheduler: Scheduler, machine: Machine, ahead: timedelta, again: bool
) -> None:
    machine.wait(hours=30)
    if again:
        scheduler.start()
    machine.ahead = ahead
    for _ in range(3):
        scheduler.look()
    assert list(scheduler.journal.outcomes()) == machine.trained == ["week-2026-03-02"]
    (sentence,) = (line for line in scheduler.said if "clock" in line)
    assert "--confirm-clock" in sentence
    machine.ahead = timedelta(0)
    machine.wait(days=6)
    scheduler.start()
    ClockWatch(scheduler.folder).confirm(machine.clock())
    scheduler.look()
    assert machine.trained == ["week-2026-03-02", "week-2026-03-09"]


def test_a_waiting_scheduler_goes_on_when_the_clock_is_right_again(
    scheduler: Scheduler, machine: Machine
) -> None:
    machine.wait(days=2)
    machine.ahead = timedelta(days=700)
    scheduler.look()
    machine.ahead = timedelta(0)
    machine.wait(days=5)
    scheduler.look()
    assert machine.trained == ["week-2026-03-02", "week-2026-03-09"]


def test_a_jump_that_somebody_confirms_is_the_time(scheduler: Scheduler, machine: Machine) -> None:
    machine.ahead = timedelta(days=15)
    scheduler.look()
    ClockWatch(scheduler.folder).confirm(machine.clock())
    scheduler.look()
    outcomes = {week: line["outcome"] for week, line in scheduler.journal.outcomes().items()}
    assert outcomes == {
        "week-2026-03-02": "done", "week-2026-03-09": "skipped", "week-2026-03-16": "done",
    }  # fmt: skip


def test_the_first_start_by_a_wrong_clock_skips_no_year(tmp_path: Path) -> None:
    scheduler = Scheduler(Machine(AT_SIX + timedelta(days=700)), tmp_path)
    scheduler.look()
    assert scheduler.journal.outcomes() == {}
    assert "by it 52 weeks were missed" in scheduler.said[0]


def test_a_week_that_a_wrong_clock_called_missed_is_open_again(
    scheduler: Scheduler, machine: Machine
) -> None:
    """One week may be skipped without a question; when the clock is right again, it is run."""
    machine.wait(days=5)
    machine.ahead = timedelta(days=9)
    ClockWatch(scheduler.folder).confirm(machine.clock())
    scheduler.look()
    assert scheduler.journal.outcomes()["week-2026-03-09"]["outcome"] == "skipped"
    machine.ahead = timedelta(0)
    machine.wait(days=2)
    scheduler.start()
    ClockWatch(scheduler.folder).confirm(machine.clock())
    scheduler.look()
    assert scheduler.journal.outcomes()["week-2026-03-09"]["outcome"] == "done"


@pytest.mark.parametrize("hours", range(0, 72, 7))
def test_after_a_reboot_a_wrong_clock_loses_no_week(
    scheduler: Scheduler, machine: Machine, hours: int
) -> None:
    """A clock ahead by less than a pause is believed; sites refuse days that they cannot have."""
    machine.wait(days=4, hours=hours)
    scheduler.look()
    scheduler.start()
    machine.ahead, machine.willing = timedelta(hours=71), 0
    scheduler.look()
    assert machine.trained == ["week-2026-03-02"]
    machine.ahead, machine.willing = timedelta(0), None
    scheduler.start()
    machine.now = AT_SIX + timedelta(days=7, hours=1)
    ClockWatch(scheduler.folder).confirm(machine.clock())
    scheduler.look()
    outcomes = scheduler.journal.outcomes()
    assert [line["outcome"] for line in outcomes.values()] == ["done", "done"]


def test_small_corrections_and_short_pauses_are_believed(
    scheduler: Scheduler, machine: Machine
) -> None:
    machine.ahead = timedelta(minutes=40)
    scheduler.look()
    machine.wait(days=2.9)
    scheduler.start()
    scheduler.look()
    assert not any("clock" in line for line in scheduler.said)


def test_a_whole_year_runs_without_a_question(tmp_path: Path) -> None:
    machine = Machine(AT_SIX - timedelta(days=1))
    watch = ClockWatch(tmp_path, lambda: machine.seconds)
    said: list[str] = []
    speak: Callable[[str], None] = said.append
    run_weeks(
        YEAR, Journal(tmp_path), machine, machine.begun, speak, machine.clock, machine.sleep,
        longest=43_200.0, watch=watch,
    )  # fmt: skip
    assert len(machine.trained) == 52
    assert not any("clock" in line for line in said)
    assert len([line for line in said if " begins on " in line]) == 52
