"""Metrics for Prometheus, alerts and board on them, and FLARE's own heartbeats at the server."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from epifed.dashboard import exposition
from epifed.federation.flare.kits import server_resources, site_resources
from epifed.federation.messages import Code
from epifed.federation.status import Beside, Live, read_status
from epifed.federation.training_history import Truth
from tests.federation.status_folders import Folders

MONITORING = Path(__file__).resolve().parents[2] / "docs" / "monitoring"
END = datetime(2026, 9, 1, tzinfo=UTC)
PROMTOOL = shutil.which("promtool") or shutil.which("promtool", path=Path(sys.executable).parent)
needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="no promtool on this machine: 'make promtool' fetches Debian's"
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    made = Folders(tmp_path_factory.mktemp("monitored"))
    made.train(0, {"office-001": Code.ABSENT})
    made.skip(1, "")
    made.train(2, {"office-001": Code.ABSENT, "office-002": Code.REFUSED_TOTAL})
    return made


@pytest.fixture(scope="module")
def text(folders: Folders) -> str:
    """All metrics, those that need more than files included."""
    now = folders.after(2)
    live = Live(
        asked=now,
        reached=True,
        connected=("office-002", "office-003", "office-004"),
        versions={"office-003": '0.0.1"\n'},
    )
    last = folders.schedule.period(folders.week(0))[1]
    counts = {last + timedelta(days=n): 100.0 + n for n in range(-30, 9)}
    places = replace(folders.places(), truth=Truth(counts, "truth.csv"))
    seen = read_status(places, Beside(live, {"server": END}), now)
    training = seen.trainings[-1].model_copy(update={"seconds": 2.5})
    seen = seen.model_copy(update={"trainings": (*seen.trainings[:-1], training)})
    return exposition(seen, 0.25).decode()


@pytest.fixture(scope="module")
def samples(text: str) -> dict[str, float]:
    families = text_string_to_metric_families(text)
    return {
        sample.name + json.dumps(sample.labels, sort_keys=True): sample.value
        for family in families
        for sample in family.samples
    }


def test_metrics_are_the_state(samples: dict[str, float], folders: Folders) -> None:
    book = folders.ledger.book()
    spent = book.cap.price(book.released())
    expected = {
        "epifed_epsilon_cap{}": 1.0,
        "epifed_epsilon_spent{}": spent,
        "epifed_epsilon_left{}": 1.0 - spent,
        "epifed_rounds_paid_total{}": 2.0,
        "epifed_releases_total{}": 2.0,
        'epifed_sites{"state": "absent"}': 1.0,
        'epifed_sites{"state": "refused"}': 1.0,
        'epifed_sites{"state": "connected"}': 2.0,
        'epifed_refusals_total{"code": "absent"}': 2.0,
        'epifed_refusals_total{"code": "refused-total"}': 1.0,
        'epifed_certificate_end_timestamp_seconds{"party": "server"}': END.timestamp(),
        'epifed_week_outcomes{"outcome": "skipped"}': 1.0,
        'epifed_week_state{"state": "done"}': 1.0,
        "epifed_server_reached{}": 1.0,
        "epifed_look_seconds{}": 0.25,
        "epifed_round_seconds{}": 2.5,
        "epifed_week_seconds{}": 181.0,
        "epifed_schedule_releases{}": 49.0,
        'epifed_notices{"kind": "certificate-soon", "urgent": "false"}': 1.0,
        'epifed_site_versions{"version": "0.0.1\\"\\n"}': 1.0,
    }
    assert {name: samples[name] for name in expected} == pytest.approx(expected)
    assert samples["epifed_epsilon_planned{}"] > spent  # a week was skipped


def metric_names(text: str) -> set[str]:
    return {
        sample.name for family in text_string_to_metric_families(text) for sample in family.samples
    }


def used(expression: str) -> set[str]:
    return set(re.findall(r"\b(epifed_\w+)", expression))


def test_alerts_and_board_use_metrics_that_exist(text: str) -> None:
    rules = (MONITORING / "alerts.yml").read_text()
    asked = set().union(*map(used, re.findall(r"expr: (.*)", rules)))
    board = json.loads((MONITORING / "grafana.json").read_text())
    for panel_of in board["panels"]:
        assert panel_of["targets"] and panel_of["title"]
        for target in panel_of["targets"]:
            asked |= used(target["expr"])
    assert asked and asked <= metric_names(text)
    labels = dict(re.findall(r"(epifed_\w+)\{(\w+)[=!]", rules))
    for name, label in labels.items():
        assert re.search(rf"^{name}\{{[^}}]*{label}=", text, flags=re.MULTILINE), (name, label)


def test_the_board_is_one_that_grafana_can_import() -> None:
    board = json.loads((MONITORING / "grafana.json").read_text())
    assert {"title", "uid", "schemaVersion", "panels", "templating", "time"} <= board.keys()
    (variable,) = board["templating"]["list"]
    assert (variable["name"], variable["type"], variable["query"]) == (
        "source",
        "datasource",
        "prometheus",
    )
    numbers = [panel_of["id"] for panel_of in board["panels"]]
    assert len(set(numbers)) == len(numbers)
    taken: set[tuple[int, int]] = set()
    for panel_of in board["panels"]:
        assert panel_of["type"] in {"stat", "timeseries", "bargauge"}
        assert panel_of["datasource"] == {"type": "prometheus", "uid": "${source}"}
        if panel_of["type"] == "timeseries":
            shown = panel_of["options"]
            assert {"calcs", "displayMode", "placement", "showLegend"} <= shown["legend"].keys()
            assert {"mode", "sort"} <= shown["tooltip"].keys()
        references = [target["refId"] for target in panel_of["targets"]]
        assert len(set(references)) == len(references)
        place = panel_of["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in cells) < 24 and not cells & taken
        taken |= cells


def unread(asked: Any, back: Any, place: str) -> Iterator[str]:
    """What of a board is not in what Grafana's own types make of it."""
    if isinstance(asked, dict):
        for name, value in asked.items():
            known = isinstance(back, dict) and name in back
            yield from unread(value, back[name] if known else None, f"{place}.{name}")
    elif isinstance(asked, list) and isinstance(back, list) and len(asked) == len(back):
        for i, value in enumerate(asked):
            yield from unread(value, back[i], f"{place}[{i}]")
    elif asked != back:
        yield place


@pytest.mark.parametrize(
    ("panel_number", "within", "typo"),
    [(None, (), None), (None, (), "refrsh"), (0, ("options",), "grafMode"),
     (0, ("targets", 0), "exprr"), (7, ("fieldConfig", "defaults"), "unitt")],
)  # fmt: skip
def test_grafanas_own_types_know_every_word_of_the_board(
    panel_number: int | None, within: tuple[str | int, ...], typo: str | None
) -> None:
    reason = "Grafana's own types (grafana-foundation-sdk) are not installed"
    models = pytest.importorskip("grafana_foundation_sdk.models.dashboard", reason=reason)
    plugins = pytest.importorskip("grafana_foundation_sdk.cog.plugins", reason=reason)
    encoder = pytest.importorskip("grafana_foundation_sdk.cog.encoder", reason=reason)
    plugins.register_default_plugins()
    board = json.loads((MONITORING / "grafana.json").read_text())
    place = board if panel_number is None else board["panels"][panel_number]
    for step in within:
        place = place[step]
    if typo is not None:
        place[typo] = 1
    back = json.loads(json.dumps(models.Dashboard.from_json(board), cls=encoder.JSONEncoder))
    assert [one.rpartition(".")[2] for one in unread(board, back, "")] == ([typo] if typo else [])


def promtool(*arguments: str, given: str | None = None) -> str:
    assert PROMTOOL is not None
    done = subprocess.run(
        [PROMTOOL, *arguments],
        cwd=MONITORING,
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.field
@needs_promtool
def test_prometheus_own_tool_takes_metrics_rules_and_configuration(text: str) -> None:
    assert promtool("check", "metrics", given=text).strip() == ""
    assert "13 rules found" in promtool("check", "rules", "alerts.yml")
    assert "SUCCESS" in promtool("check", "config", "prometheus.yml")


@pytest.mark.field
@needs_promtool
def test_alerts_fire_when_they_should_and_not_before() -> None:
    assert "SUCCESS" in promtool("test", "rules", "alerts_test.yml")


@pytest.mark.field
@needs_promtool
def test_the_board_asks_questions_that_prometheus_understands(tmp_path: Path) -> None:
    board = json.loads((MONITORING / "grafana.json").read_text())
    rules = [
        {"record": f"question:{i}_{k}", "expr": target["expr"]}
        for i, panel_of in enumerate(board["panels"])
        for k, target in enumerate(panel_of["targets"])
    ]
    path = tmp_path / "questions.yml"
    path.write_text(json.dumps({"groups": [{"name": "board", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool("check", "rules", str(path))


def paths(resources: dict[str, Any]) -> list[str]:
    return [one["path"] for one in resources["components"]]


def test_neither_sites_nor_the_server_stream_anything() -> None:
    site = site_resources()
    assert site["allow_log_streaming"] is False
    for resources in (site, server_resources(Path("kit"))):
        assert not any("metric" in path or "statsd" in path for path in paths(resources))
        assert "streaming_to_server" not in json.dumps(resources)
