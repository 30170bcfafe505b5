"""The weekly run: each week once, on the wall clock, by a rule that is written down."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from epifed.cli.app import app
from epifed.errors import EpifedError
from epifed.federation.flare.jobs import Trainings
from epifed.federation.readiness import NotReadyError
from epifed.federation.schedule import JOURNAL, Journal, Schedule, Week, Weekday, budgeted, run_due
from epifed.ledger.budget import Cap
from epifed.ledger.ledger import Ledger
from epifed.privacy.plan import PrivacyPlan
from epifed.settings import Settings
from epifed.training.loop import ledger_key
from tests.waiting import today

BERLIN = Schedule(first=date(2026, 3, 4), weeks=40, zone="Europe/Berlin", least_sites=3)
MONDAY = datetime(2026, 3, 2, 5, tzinfo=UTC)

FEDERATION = """name = "flu"
[server]
host = "localhost"
[terms]
epsilon_per_release = 2.0
epsilon_total = 6.0
[[sites]]
name = "north"
clients = ["1", "2"]
"""


@dataclass
class Country:
    """A federation with a clock that goes on when somebody waits."""

    now: datetime
    sites: int = 5
    trained: list[str] = field(default_factory=list)
    fails: int = 0
    willing: int | None = None
    """Sites that would take part; none: all that are connected."""
    wasted: str = ""
    come: datetime | None = None
    """When there are five sites."""

    def clock(self) -> datetime:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def connected(self) -> Collection[str]:
        there = 5 if self.come and self.now >= self.come else self.sites
        return range(there)  # type: ignore[return-value]

    def train(self, week: Week, least: int = 1) -> str:
        if self.willing is not None and self.willing < least:
            raise NotReadyError(f"{self.willing} would take part, {least} expected")
        self.trained.append(week.name)
        if self.fails:
            self.fails -= 1
            raise EpifedError("the server is away")
        return self.wasted

    def rival(self, week: Week) -> str | None:
        return next((name for name in self.trained if week.same(name)), None)

    def give_back(self, week: Week) -> None:
        assert week.name not in self.trained

    def begun(self, week: Week) -> bool:
        return week.name in self.trained

    def run(self, schedule: Schedule, folder: Path) -> Week | None:
        self.said: list[str] = []
        return run_due(
            schedule, Journal(folder), self, self.begun, self.said.append, self.clock, self.sleep
        )


def _outcomes(folder: Path) -> list[str]:
    return [entry["outcome"] for entry in Journal(folder).outcomes().values()]


def test_weeks_go_on_over_a_year_of_53() -> None:
    weeks = Schedule(first=date(2026, 12, 30), weeks=2).planned()
    assert [week.day for week in weeks] == [date(2026, 12, 28), date(2027, 1, 4)]


def test_six_in_the_morning_is_six_in_summer_and_in_winter() -> None:
    weeks = BERLIN.planned()
    assert weeks[0] == Week(date(2026, 3, 2), MONDAY)
    local = [week.due.astimezone(ZoneInfo("Europe/Berlin")) for week in weeks]
    assert {(moment.weekday(), moment.time()) for moment in local} == {(0, time(6))}
    assert {week.due.hour for week in weeks} == {4, 5}
    assert len({week.name for week in weeks}) == 40


@pytest.mark.parametrize(("at", "utc"), [(time(2, 30), time(1, 30)), (time(3, 0), time(1, 0))])
def test_an_hour_that_the_clock_skips_is_run_all_the_same(at: time, utc: time) -> None:
    chosen = BERLIN.model_copy(update={"at": at, "weekday": "sunday", "first": date(2026, 3, 29)})
    assert chosen.planned()[0].due.time() == utc


def test_an_hour_that_the_clock_shows_twice_is_the_first(tmp_path: Path) -> None:
    update = {"at": time(2, 30), "weekday": "sunday", "first": date(2026, 10, 25), "weeks": 1}
    chosen = BERLIN.model_copy(update=update)
    assert chosen.planned()[0].due.time() == time(0, 30)
    country = Country(chosen.planned()[0].due)
    for _ in range(3):
        country.run(chosen, tmp_path)
        country.sleep(3600)
    assert country.trained == ["week-2026-10-25"]


def test_too_few_sites_are_waited_for_and_the_week_is_skipped_or_not(tmp_path: Path) -> None:
    few = Country(MONDAY, sites=2)
    few.run(BERLIN, tmp_path / "skip")
    assert few.now - MONDAY == timedelta(minutes=240)
    assert (few.trained, _outcomes(tmp_path / "skip")) == ([], ["skipped"])
    waits = [line for line in few.said if "waits" in line]
    assert waits == [f"week-2026-03-02 waits: 2 sites connected, {BERLIN.least_sites} expected"]
    brave = Country(MONDAY, sites=2)
    brave.run(BERLIN.model_copy(update={"if_too_few": "go-on"}), tmp_path / "go on")
    assert (brave.trained, _outcomes(tmp_path / "go on")) == (["week-2026-03-02"], ["done"])


def test_too_few_sites_are_waited_for_as_long_as_the_week_may_be_begun(tmp_path: Path) -> None:
    waiting = BERLIN.model_copy(update={"if_too_few": "wait"})
    few = Country(MONDAY, sites=2)
    few.run(waiting, tmp_path / "in vain")
    assert few.now - MONDAY == timedelta(hours=waiting.make_up_hours)
    assert (few.trained, _outcomes(tmp_path / "in vain")) == ([], ["skipped"])
    slow = Country(MONDAY, sites=2, come=MONDAY + timedelta(hours=20))
    slow.run(waiting, tmp_path / "they come")
    assert timedelta(hours=20) <= slow.now - MONDAY < timedelta(hours=21)
    assert slow.trained == ["week-2026-03-02"]


def test_a_week_that_too_few_would_take_part_in_is_asked_for_again_and_then_refused(
    tmp_path: Path,
) -> None:
    unwilling = Country(MONDAY, willing=2)
    unwilling.run(BERLIN, tmp_path / "refused")
    assert unwilling.now - MONDAY == timedelta(minutes=240)
    assert (unwilling.trained, _outcomes(tmp_path / "refused")) == ([], ["refused"])
    brave = Country(MONDAY, willing=2)
    brave.run(BERLIN.model_copy(update={"if_too_few": "go-on"}), tmp_path / "go on")
    assert (brave.trained, _outcomes(tmp_path / "go on")) == (["week-2026-03-02"], ["done"])


def test_a_week_that_was_paid_for_and_taught_nothing_is_wasted(tmp_path: Path) -> None:
    country = Country(MONDAY, wasted="ε spent, nothing learned")
    country.run(BERLIN, tmp_path)
    assert _outcomes(tmp_path) == ["wasted"]


def test_a_missed_week_is_made_up_while_it_is_young(tmp_path: Path) -> None:
    country = Country(MONDAY + timedelta(days=7 * 2 + 2))
    coming = country.run(BERLIN, tmp_path)
    assert _outcomes(tmp_path) == ["skipped", "skipped", "done"]
    assert country.trained == ["week-2026-03-16"]
    assert coming is not None and coming.day == date(2026, 3, 23)


def test_a_week_that_was_paid_for_is_run_to_its_end_however_late(tmp_path: Path) -> None:
    country = Country(MONDAY, fails=1)
    with pytest.raises(EpifedError, match="away"):
        country.run(BERLIN, tmp_path)
    assert _outcomes(tmp_path) == []
    country.now += timedelta(days=6)
    country.sites = 0
    country.run(BERLIN, tmp_path)
    assert country.trained == ["week-2026-03-02"] * 2
    assert _outcomes(tmp_path) == ["done"]


@settings(max_examples=120)
@example("America/Goose_Bay", date(2000, 1, 1), "sunday", time(0, 1, fold=1))
@given(
    zone=st.sampled_from(sorted(available_timezones())),
    first=st.dates(date(2000, 1, 1), date(2040, 12, 1)),
    weekday=st.sampled_from(get_args(Weekday)),
    at=st.times().map(lambda one: one.replace(second=0, microsecond=0)),
)
def test_a_week_is_at_its_time_on_every_clock(
    zone: str, first: date, weekday: Any, at: time
) -> None:
    """Found by trying every offset that the zone has around the day; a time shown twice, once."""
    chosen = Schedule(first=first, weeks=30, zone=zone, weekday=weekday, at=at)
    weeks = chosen.planned()
    clock = ZoneInfo(zone)
    for week in weeks:
        wall = datetime.combine(week.day, at)
        around = [wall.replace(tzinfo=UTC) + timedelta(hours=12 * half) for half in range(-5, 6)]
        offsets = {moment.astimezone(clock).utcoffset() for moment in around}
        moments = [wall.replace(tzinfo=UTC) - offset for offset in offsets if offset is not None]
        shown = [one for one in moments if one.astimezone(clock).replace(tzinfo=None) == wall]
        if shown:
            assert week.due == min(shown)
        else:
            assert week.due in moments, "by the clock before it was set forward"
            assert week.due.astimezone(clock).replace(tzinfo=None) > wall
        assert chosen.local(week).endswith(f"({zone})")
    assert all(a.due < b.due for a, b in pairwise(weeks))
    assert [week.name for week in weeks] == sorted({week.name for week in weeks})


def test_a_week_of_another_schedule_is_not_trained_again(tmp_path: Path) -> None:
    country = Country(MONDAY)
    country.run(BERLIN, tmp_path / "one")
    tuesdays = BERLIN.model_copy(update={"weekday": "tuesday"})
    country.now += timedelta(days=1)
    country.run(tuesdays, tmp_path / "two")
    assert country.trained == ["week-2026-03-02"]
    (entry,) = Journal(tmp_path / "two").outcomes().values()
    assert entry["reason"] == "'week-2026-03-02' is this week's training already"


def test_a_skipped_week_lets_go_of_what_it_reserved(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "budget.ledger", Cap(3.0, 1e-5, "rdp"))
    week = BERLIN.planned()[0]
    chosen = Settings.for_learner("trend", 40, epsilon=0.3)
    plan = PrivacyPlan.of(chosen, 40)
    key = ledger_key(plan, chosen, BERLIN.period(week), week.name)
    ledger.reserve(rounds=1, **key)
    assert ledger.book().taken() != ()
    weekly = Trainings(None, None, BERLIN, chosen, ledger, print)  # type: ignore[arg-type]
    weekly.give_back(week)
    assert ledger.book().taken() == ()
    weekly.give_back(week)
    other = BERLIN.planned()[1]
    run = ledger.reserve(rounds=1, **key | {"training": other.name}).name
    ledger.spend(run, 1)
    weekly.give_back(other)
    assert ledger.book().run(run).outcome == "open", "what was spent stays"
    tuesday = Week(other.day + timedelta(days=1), other.due)
    assert weekly.rival(tuesday) == other.name
    assert weekly.rival(other) is None


def test_a_week_that_waits_says_why_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is told of a real network that is silent, `test_network` sees."""
    ledger = Ledger.create(tmp_path / "budget.ledger", Cap(3.0, 1e-5, "rdp"))

    def waiting(desk: Any, roster: Any, order: Any, watch: Any, least: int) -> dict[str, Any]:
        for status in ({"waiting": "for 2 sites"}, {"waiting": "for 2 sites"}, {"round": 1}):
            watch(status)
        return {"finished": True, "paid": 1, "unused": 0}

    monkeypatch.setattr("epifed.federation.flare.jobs.run_training", waiting)
    said: list[str] = []
    chosen = Settings.for_learner("trend", 40, epsilon=0.3)
    weekly = Trainings(None, None, BERLIN, chosen, ledger, said.append)  # type: ignore[arg-type]
    weekly.train(BERLIN.planned()[0])
    assert said == ["week-2026-03-02 waits: for 2 sites"]


def test_schedulers_of_one_ledger_take_turns_whatever_they_write_to(tmp_path: Path) -> None:
    ledger = tmp_path / "budget.ledger"
    with (
        Journal(tmp_path / "one", ledger).held(),
        pytest.raises(EpifedError, match="another scheduler"),
    ):
        Journal(tmp_path / "two", ledger).held()


@settings(max_examples=60)
@given(
    steps=st.lists(st.tuples(st.integers(1, 200), st.integers(0, 5), st.booleans()), max_size=30)
)
def test_each_week_has_one_end_whatever_happens(steps: list[tuple[int, int, bool]]) -> None:
    """However long nobody looked, whoever came, whatever failed: one line a week, in order."""
    country = Country(MONDAY - timedelta(days=3))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for hours, sites, fails in steps:
            country.now += timedelta(hours=hours)
            country.sites, country.fails = sites, int(fails)
            try:
                country.run(BERLIN, folder)
            except EpifedError:
                country.fails = 0
        path = folder / JOURNAL
        lines = [json.loads(x) for x in path.read_text().splitlines()] if path.exists() else []
    names = [line["week"] for line in lines]
    assert names == [week.name for week in BERLIN.planned()][: len(names)]
    done = {line["week"] for line in lines if line["outcome"] == "done"}
    assert done <= set(country.trained)
    skipped = {line["week"] for line in lines if line["outcome"] == "skipped"}
    assert not skipped & set(country.trained), "nothing is spent on a week that is skipped"
    assert all(week.due <= country.now for week in BERLIN.planned()[: len(names)])


def test_a_line_that_a_crash_cut_off_was_not_written(tmp_path: Path) -> None:
    country = Country(MONDAY)
    country.run(BERLIN, tmp_path)
    path = tmp_path / JOURNAL
    path.write_bytes(path.read_bytes()[:-20])
    country.run(BERLIN, tmp_path)
    country.run(BERLIN, tmp_path)
    assert country.trained == ["week-2026-03-02"] * 2, "the same training, which the ledger knows"
    assert _outcomes(tmp_path) == ["done"]


HOLDER = """
import sys, time
from pathlib import Path
from epifed.federation.schedule import Journal
with Journal(Path(sys.argv[1])).held():
    print("held", flush=True)
    time.sleep(600)
"""


def test_two_schedulers_never_run_weeks_at_once_and_a_killed_one_lets_go(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    country = Country(MONDAY)
    with pytest.raises(EpifedError, match="another scheduler"):
        country.run(BERLIN, tmp_path)
    assert country.trained == []
    holder.kill()
    holder.wait()
    country.run(BERLIN, tmp_path)
    assert country.trained == ["week-2026-03-02"]


def test_the_year_must_fit_into_the_budget() -> None:
    plan = PrivacyPlan.of(Settings.for_learner("trend", 40, epsilon=0.3), 40)
    cap = Cap(3.0, 1e-5, "rdp")
    said = budgeted(cap, (), plan, 10)
    assert said.startswith("10 weeks to come: ε = ")
    with pytest.raises(EpifedError, match=r"found room for \d+ weeks under .* room for 520"):
        budgeted(cap, (), plan, 520)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('first = 2026-01-01\nzone = "Berlin"', "zone"),
        ('first = 2026-01-01\nweekday = "Montag"', "weekday"),
        ("first = 2026-01-01\nleast_site = 3", "least_site"),
        ("weeks = 3", "first"),
        ("first = 9999-12-31", "first"),
        ("first = 0001-01-01", "first"),
        ("first = 2026-11-23\ndeadline_minutes = 99999999999999", "deadline_minutes"),
        ('first = 2026-11-23\nat = "06:00:00+05:00"', "at"),
    ],
)
def test_a_schedule_that_is_none_is_one_sentence(tmp_path: Path, text: str, found: str) -> None:
    path = tmp_path / "weekly.toml"
    path.write_text(text)
    with pytest.raises(EpifedError, match=rf"weekly\.toml: {found}") as caught:
        Schedule.read(path)
    assert "\n" not in str(caught.value)


def test_weeks_that_will_be_skipped_are_neither_planned_nor_paid_for(tmp_path: Path) -> None:
    day = today(UTC)
    (tmp_path / "federation.toml").write_text(FEDERATION)
    (tmp_path / "trend.toml").write_text('learner = "trend"\nepsilon = 1.0\n')
    (tmp_path / "weekly.toml").write_text(f"first = {day - timedelta(weeks=40)}\nweeks = 42\n")
    Ledger.create(tmp_path / "budget.ledger", Cap(2.5, 1e-5, "rdp"))
    words = ["federation", "schedule", str(tmp_path / "weekly.toml"), "--plan"]
    for name, file in {
        "settings": "trend.toml",
        "federation": "federation.toml",
        "kit": "kit",
        "ledger": "budget.ledger",
        "out": "weeks",
    }.items():
        words += [f"--{name}", str(tmp_path / file)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    planned = [line.split()[0] for line in result.stdout.splitlines() if line.startswith("week-")]
    assert 1 <= len(planned) <= 2
    assert all("06:00 +0000 (UTC)" in line for line in result.stdout.splitlines())
    assert all(date.fromisoformat(name[5:]) > day - timedelta(days=4) for name in planned)
