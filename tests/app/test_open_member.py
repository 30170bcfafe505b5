"""`epifed open --kit`: what a member of a federation sees of its week."""

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from epifed.app.reading import Memory
from epifed.app.server import Door, make_app
from epifed.app.session import PageSession
from epifed.federation.messages import GERMAN, SENTENCES, Code
from epifed.federation.site import LastAsked, preview, remembered
from epifed.settings import Settings
from epifed.site_report import Member
from tests.federation import test_site_report as test_office
from tests.federation.test_site_report import FIRST, MODEL, Office

north = test_office.north
OWN = "http://127.0.0.1:4322"


@pytest.fixture
def member(north: Office) -> Member:
    return Member(north.kit, north.out, MODEL)


@pytest.fixture
def client(member: Member, tmp_path: Path) -> TestClient:
    folder = tmp_path / "private"
    folder.mkdir()
    door = Door(4322)
    desk = PageSession(folder, Memory(tmp_path / "memory.json"), member)
    found = TestClient(make_app(desk, door), base_url=OWN, headers={"origin": OWN})
    assert found.get(f"/?token={door.token}").status_code == 200
    return found


def shown(answer: Any) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()["member"]
    return found


def test_a_site_that_was_never_asked_sees_that(client: TestClient, north: Office) -> None:
    found = shown(client.get("/api/state"))
    assert found["clients"] == list(north.panel.regions)
    assert (found["release"], found["asked"], found["preview"]) == (None, None, None)
    refused = client.post("/api/preview")
    assert refused.status_code == 422 and "asked for yet" in refused.json()["problem"]
    assert client.get("/api/take/week").status_code == 404


def test_a_member_sees_its_release_training_and_what_would_be_sent(
    client: TestClient, north: Office
) -> None:
    north.give(FIRST)
    north.train(FIRST)
    found = shown(client.get("/api/state"))
    assert found["release"]["training"] == f"week-{FIRST}"
    assert found["release"]["last_day"] == str(FIRST - timedelta(days=1))
    assert {"epsilon", "delta", "accountant", "epsilon_without_amplification"} <= found[
        "release"
    ].keys()
    assert found["asked"]["sent"] and found["asked"]["problem"] is None
    sent_before = list(north.sent)
    ahead = shown(client.post("/api/preview"))["preview"]
    asked, source = LastAsked.of(north.kit), remembered(north.kit)
    assert asked is not None and source is not None
    settings = Settings.from_toml(asked.settings)
    period = (date.fromisoformat(ahead["first_day"]), date.fromisoformat(ahead["last_day"]))
    assert (period[0] - asked.period[0]).days % 7 == 0
    expected = preview(north.kit, settings, period, asked.enrolled, source=source)
    assert ahead["vectors"] == {
        client: row.tolist() for client, row in zip(expected.clients, expected.rows, strict=True)
    }
    assert ahead["entries"] == list(expected.entries) and ahead["bytes"] == expected.bytes
    assert north.sent == sent_before


def test_the_own_forecast_is_made_and_taken_along(client: TestClient, north: Office) -> None:
    north.give(FIRST)
    north.train(FIRST)
    found = shown(client.post("/api/own"))
    assert found["own"]["made"] and found["own"]["week"]
    report = client.get("/api/take/week")
    assert report.status_code == 200 and "epifed" in report.text[:3000]
    assert any("Your data end on" in one for one in found["problems"])


def test_a_refusal_is_in_plain_words_of_both_languages(client: TestClient, north: Office) -> None:
    why = SENTENCES[Code.REFUSED_TOTAL]
    LastAsked("week-1", "", "2026-08-01", "2026-10-01", 40, False, {}, why).write(north.kit)
    found = client.get("/api/state").json()
    assert found["member"]["asked"]["problem"] == why
    assert found["german"][why] == GERMAN[Code.REFUSED_TOTAL] != why
