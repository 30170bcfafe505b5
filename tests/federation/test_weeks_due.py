"""The rule for a week, on an invented clock: due, waited for, made up, skipped."""

from collections.abc import Collection
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from epifed.cli.app import app
from epifed.errors import EpifedError
from epifed.federation.weekly import Journal, Schedule, Week, run_due
from epifed.ledger.budget import Cap
from epifed.ledger.ledger import Ledger

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


class Clock:
    """Time that passes only while somebody sleeps; sites that come at a moment."""

    def __init__(self, now: datetime, sites_from: datetime | None = None) -> None:
        self.now, self.sites_from = now, sites_from
        self.trained: list[str] = []

    def connected(self) -> Collection[str]:
        return {"north"} if self.sites_from and self.now >= self.sites_from else set()

    def train(self, week: Week) -> None:
        self.trained.append(week.name)

    def run(self, schedule: Schedule, folder: Path, begun: Collection[str] = ()) -> Week | None:
        return run_due(
            schedule,
            Journal(folder),
            self,
            lambda week: week.name in begun,
            lambda _: None,
            lambda: self.now,
            self.sleep,
        )

    def sleep(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


MONDAY = datetime(2026, 12, 28, 6, tzinfo=UTC)
"""Of ISO week 53."""
TWO_WEEKS = Schedule(first=date(2026, 12, 30), weeks=2)


def test_weeks_go_on_over_a_year_of_53_weeks_and_over_the_clock_change() -> None:
    berlin = Schedule(first=date(2026, 10, 19), weeks=60, weekday="sunday", zone="Europe/Berlin")
    due = [week.due for week in berlin.planned()]
    assert due[:2] == [datetime(2026, 10, 25, 5, tzinfo=UTC), datetime(2026, 11, 1, 5, tzinfo=UTC)]
    assert {week.day.isoweekday() for week in berlin.planned()} == {7}
    assert [week.day for week in TWO_WEEKS.planned()] == [date(2026, 12, 28), date(2027, 1, 4)]


@pytest.mark.parametrize(
    ("late", "sites_after", "choice", "outcome", "trained"),
    [
        (0, 0, "skip", "done", True),
        (72, 72, "skip", "done", True),
        (72.1, 0, "skip", "skipped", False),
        (1, 4.9, "skip", "done", True),
        (1, 5.1, "skip", "skipped", False),
        (1, 5.1, "go-on", "done", True),
    ],
)
def test_a_week_is_made_up_or_skipped_by_its_age_and_its_sites(
    tmp_path: Path, late: float, sites_after: float, choice: str, outcome: str, trained: bool
) -> None:
    schedule = TWO_WEEKS.model_copy(update={"if_too_few": choice})
    came = MONDAY + timedelta(hours=sites_after)
    clock = Clock(MONDAY + timedelta(hours=late), came)
    coming = clock.run(schedule, tmp_path)
    assert coming is not None and coming.name == "week-2027-01-04"
    assert Journal(tmp_path).outcomes()["week-2026-12-28"]["outcome"] == outcome
    assert clock.trained == (["week-2026-12-28"] if trained else [])


def test_a_week_in_the_ledger_is_run_to_its_end_however_late(tmp_path: Path) -> None:
    clock = Clock(MONDAY + timedelta(days=6))
    clock.run(TWO_WEEKS, tmp_path, begun={"week-2026-12-28"})
    assert clock.trained == ["week-2026-12-28"]


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("first = 9999-12-31", "first"),
        ("first = 0001-01-01", "first"),
        ("first = 2026-11-23\ndeadline_minutes = 99999999999999", "deadline_minutes"),
        ('first = 2026-11-23\nat = "06:00:00+05:00"', "at"),
    ],
)
def test_a_schedule_that_cannot_be_kept_is_refused(tmp_path: Path, line: str, named: str) -> None:
    path = tmp_path / "weekly.toml"
    path.write_text(line)
    with pytest.raises(EpifedError, match=rf"weekly\.toml: {named}: found .*expected|should be"):
        Schedule.read(path)


def test_weeks_that_will_be_skipped_are_neither_planned_nor_paid_for(tmp_path: Path) -> None:
    today = datetime.now(UTC).date()
    (tmp_path / "federation.toml").write_text(FEDERATION)
    (tmp_path / "trend.toml").write_text('learner = "trend"\nepsilon = 1.0\n')
    (tmp_path / "weekly.toml").write_text(f"first = {today - timedelta(weeks=40)}\nweeks = 42\n")
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
    assert all(date.fromisoformat(name[5:]) > today - timedelta(days=4) for name in planned)
