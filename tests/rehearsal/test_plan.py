"""What a rehearsed year is to be: its events, its clock, and what must become of each week."""

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from epifed.cli.app import app
from epifed.errors import EpifedError
from epifed.rehearsal.report import HEIGHT, chart
from epifed.rehearsal.runner import (
    SAID,
    Clock,
    Event,
    Events,
    Plan,
    RestartError,
    foreseen,
    least_sites,
    usual,
)
from epifed.settings import Settings

START = datetime(2021, 1, 1, tzinfo=UTC)


def _plan(events: Events, weeks: int = 52, sites: int = 8) -> Plan:
    settings = Settings.for_learner("trend", 40, epsilon=1.0)
    return Plan(weeks, sites, 2, 40, settings, events)


def _refusal(*words: str) -> str:
    """The one sentence with which a rehearsal is refused."""
    with pytest.raises(EpifedError) as refused:
        CliRunner().invoke(app, ["federation", "rehearse", *words], catch_exceptions=False)
    return str(refused.value)


def test_the_usual_year_has_every_kind_of_event_and_skips_two_weeks() -> None:
    events = usual(8, least_sites(8))
    assert {event.what for event in events.events} == set(SAID)
    plan = _plan(events)
    events.refuse_unknown(52, plan.names, ["server", *plan.adders])
    became = foreseen(plan.schedule, plan.names, events)
    assert [week + 1 for week, one in enumerate(became) if one == "skipped"] == [31, 34]
    assert plan.cap.epsilon == plan.price(52)
    moments = [act.moment for act in plan.acts()]
    assert moments == sorted(moments)


def test_late_is_waited_for_until_the_deadline() -> None:
    half = tuple(f"site-{i + 1}" for i in range(4))

    def became(hours: float) -> str:
        events = Events(events=(Event(week=1, what="late", who=half, hours=hours),))
        plan = _plan(events, weeks=1)
        return foreseen(plan.schedule, plan.names, events)[0]

    assert (became(0.1), became(0.2)) == ("done", "skipped")


def test_a_machine_that_is_off_too_long_misses_its_week() -> None:
    def became(hours: float) -> str:
        events = Events(events=(Event(week=1, what="off", hours=hours),))
        return foreseen(_plan(events, weeks=1).schedule, ["site-1"] * 8, events)[0]

    plan = _plan(Events())
    assert plan.schedule.make_up_hours == 72
    events = Events(events=(Event(week=1, what="off", hours=72),))
    assert foreseen(plan.schedule, plan.names, events)[0] == "done"
    assert became(72.1) == "skipped"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('week = 1\nwhat = "flood"', "what"),
        ('week = 1\nwhat = "leave"', "expected who it happens to"),
        ('week = 1\nwhat = "restore"\nwho = ["site-1"]', "expected nobody"),
        ('week = 9\nwhat = "restore"', "expected a week of the 2"),
        ('week = 1\nwhat = "leave"\nwho = ["site-9"]', "found 'site-9'"),
        ('week = 1\nwhat = "leave"\nwho = ["server"]', "found 'server'"),
    ],
)
def test_a_list_that_cannot_happen_is_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    path, out = tmp_path / "events.toml", tmp_path / "out"
    path.write_text(f"[[events]]\n{text}\n")
    words = ("--weeks", "2", "--sites", "2", "--clients", "4")
    assert said in _refusal(*words, "--events", str(path), "--out", str(out))
    assert not out.exists()


def test_the_picture_of_a_year_has_a_bar_for_each_week_that_was_run() -> None:
    events = [["site-2 stopped"], [], ["holidays"], ["the <server> lost"]]
    weeks = [
        {
            "week": number,
            "day": date(2020, 12, 7) + timedelta(weeks=number),
            "events": what,
            "outcome": "skipped" if number == 2 else "done",
            "sites": 0 if number == 2 else 3,
            "spent": 0.5 * number,
            "planned": 0.5 * number,
            "scores": {"mae_ratio": 0.9} if number != 2 else None,
        }
        for number, what in enumerate(events)
    ]
    svg = ElementTree.fromstring(chart({"sites": 4, "weeks": weeks}))
    classes = Counter(one.get("class") for one in svg.iter())
    assert (classes["site"], classes["skipped"], classes["event"], classes["dot"]) == (3, 1, 2, 3)
    bars = [one for one in svg.iter("rect") if one.get("class") == "site"]
    assert {bar.get("height") for bar in bars} == {f"{0.75 * HEIGHT:.1f}"}
    told = [one.text for one in svg.iter("title")]
    assert "week 3; the <server> lost" in told


def test_a_year_needs_a_folder_and_events_a_year(tmp_path: Path) -> None:
    assert "--out" in _refusal("--weeks", "2")
    (tmp_path / "other.txt").write_text("")
    assert "not empty" in _refusal("--weeks", "2", "--out", str(tmp_path))
    assert "--weeks" in _refusal("--events", "list.toml")
    assert "at most 78" in _refusal("--weeks", "79", "--out", str(tmp_path / "long"))


def test_a_clock_does_each_thing_once_at_its_time_also_after_it_was_stopped(
    tmp_path: Path,
) -> None:
    done: list[tuple[str, datetime]] = []

    def clock() -> Clock:
        one = Clock.at(tmp_path / "clock.txt", START)
        for name, hours in (("b", 2), ("a", 1), ("b2", 2)):

            def act(name: str = name) -> bool:
                if name == "b2" and not any(found == "stop" for found, _ in done):
                    done.append(("stop", one.time))
                    raise KeyboardInterrupt
                done.append((name, one.time))
                return name == "a"

            one.enter(START + timedelta(hours=hours), act)
        one.forget_past()
        return one

    first = clock()
    with pytest.raises(RestartError):
        first.sleep(3 * 3600)
    with pytest.raises(KeyboardInterrupt):
        first.sleep(3 * 3600)
    clock().sleep(3 * 3600)
    assert [name for name, _ in done] == ["a", "b", "stop", "b2"]
    assert [when - START for _, when in done][:2] == [timedelta(hours=1), timedelta(hours=2)]
    assert clock().agenda == []
