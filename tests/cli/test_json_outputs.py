"""What commands print with `--json` is what the JSON Schemas of the reference say."""

import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jsonschema
import polars as pl
import pytest
from typer.testing import CliRunner

from epifed.cli.app import COMMANDS, app, load_command
from epifed.cli.outputs import OUTPUTS, schema
from epifed.data.readers.formats import COLUMNS
from tests.data.test_download import ROW
from tests.helpers import conforming, days_of


def commands_with_json(command: Any, name: str) -> Iterator[str]:
    if any("--json" in option.opts for option in command.params):
        yield name
    for inner, one in getattr(command, "commands", {}).items():
        yield from commands_with_json(one, f"{name} {inner}")


def test_every_command_with_json_has_a_schema() -> None:
    found = {one for name in COMMANDS for one in commands_with_json(load_command(name), name)}
    assert found == set(OUTPUTS)
    for command in OUTPUTS:
        jsonschema.Draft202012Validator.check_schema(schema(command))


def printed(command: str, *options: str | Path, code: int = 0) -> Any:
    """What a command prints with --json, which its schema allows."""
    done = CliRunner().invoke(app, [*command.split(), *map(str, options), "--json"])
    assert done.exit_code == code, (done.output, done.exception)
    return conforming(command, json.loads(done.stdout))


@pytest.fixture(scope="module")
def country(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("json") / "country"
    size = ("--counties", "12", "--communities", "24")
    printed("simulate", "--preset", "crossing", *size, "--out", out)
    return out


@pytest.fixture(scope="module")
def model(country: Path) -> Path:
    """A release that a ledger beside it paid for."""
    ledger, model = country.parent / "budget.ledger", country.parent / "trend.model"
    assert CliRunner().invoke(app, ["ledger", "init", str(ledger), "--epsilon", "5"]).exit_code == 0
    paid: list[str | Path] = ["--learner", "trend", "--epsilon", "1", "--ledger", ledger]
    paid += days_of(country)
    printed("train", "--data", country, *paid, "--out", model)
    return model


def test_prices(model: Path) -> None:
    printed("calibrate", "--epsilon", "inf", "--sampling-rate", "0.25", "--rounds", "75")
    printed("calibrate", "--noise-multiplier", "3", "--sampling-rate", "0.25", "--rounds", "75")
    ledger = model.parent / "budget.ledger"
    assert printed("ledger show", ledger)["runs"]
    assert printed("ledger verify", ledger)["verified"] is True
    one = ("--sampling-rate", "1", "--rounds", "1", "--releases", "3")
    assert printed("ledger plan", "--ledger", ledger, *one, "--epsilon-each", "0.5")["fixed_noise"]
    assert printed("explain", model)["sentences"]


def test_data(country: Path, tmp_path: Path) -> None:
    assert printed("data check", country)["expected_noise"]
    assert printed("data check", country, "--vintages", country)["vintages"]["completeness"]
    autumn, size = tmp_path / "autumn", ("--counties", "12", "--communities", "24")
    printed("simulate", "--preset", "autumn-2020", *size, "--out", autumn)
    drawn = printed("data communities", "--data", autumn, "--out", tmp_path / "drawn")
    assert drawn["2020-11"][0]["population_median"] > 0


def test_a_download(tmp_path: Path) -> None:
    (tmp_path / "cases.csv").write_text(",".join(COLUMNS) + "\n" + ROW)
    serving = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), serving) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/cases.csv"
        found = printed("data fetch rki", "--url", url, "--cache", tmp_path / "cache")
        server.shutdown()
    assert found["url"] == url


def test_forecasts(country: Path, model: Path, tmp_path: Path) -> None:
    nation = ("--data", country, "--level", "nation")
    ahead = ("--horizon", "7", "--archive", tmp_path / "archive")
    found = printed("forecast", model, *nation, *ahead, "--out", tmp_path / "forecast")
    assert found["levels"] and found["parts"]
    assert printed("nowcast", "--vintages", country, "--out", tmp_path / "nowcast")["week"]
    weeks = ("--from", "2023-11-07", "--to", "2023-11-28", "--epsilon", "inf", "--workers", "1")
    found = printed("backtest", *nation, *weeks, "--out", tmp_path / "backtest")
    assert found["epsilon_total"] == "inf"


def test_experiments(country: Path, tmp_path: Path) -> None:
    budgets = ("--epsilon", "1", "--epsilon", "inf", "--workers", "1")
    quick = ("--learner", "one-shot", "--runs", "2", *budgets)
    printed("run", "--data", country, *quick, "--from", "2023-10-25", "--out", tmp_path / "run")
    assert printed("explain", tmp_path / "run")["trainings"]


def test_scores_of_a_hub(tmp_path: Path) -> None:
    levels = [0.01, 0.025, *(round(0.05 * i, 2) for i in range(1, 20)), 0.975, 0.99]
    rows = [
        {"model": model, "reference_date": "2024-01-06", "horizon": 1, "location": "DE",
         "target_end_date": "2024-01-13", "quantile": level, "value": 100 + scale * (level - 0.5)}
        for model, scale in (("base-line", 80), ("team-model", 40))
        for level in levels
    ]  # fmt: skip
    pl.DataFrame(rows).with_columns(pl.col("^.*date$").str.to_date()).write_parquet(
        tmp_path / "forecasts.parquet"
    )
    (tmp_path / "truth.csv").write_text("date,location,value\n2024-01-13,DE,104\n")
    read = ("--forecasts", tmp_path / "forecasts.parquet", "--truth", tmp_path / "truth.csv")
    assert printed("hub score", *read, "--baseline", "base-line")["scores"]


def test_kits(tmp_path: Path) -> None:
    pytest.importorskip("nvflare", reason="no federation here")
    (tmp_path / "federation.toml").write_text(
        'name = "flu"\n[server]\nhost = "localhost"\nport = 8002\n[terms]\n'
        'epsilon_per_release = 2\nepsilon_total = 6\n[[sites]]\nname = "north"\n'
        'clients = ["01001"]\n'
    )
    printed("federation init", tmp_path / "federation.toml", "--out", tmp_path / "flu")
    (tmp_path / "cases.csv").write_text("date,region,cases\n2024-01-01,01001,3\n")
    own = ("--kit", tmp_path / "flu" / "kits" / "north", "--data", tmp_path / "cases.csv")
    found = printed("federation check", *own, code=1)
    assert {one["ok"] for one in found} == {True, False}


@pytest.mark.parametrize(
    "running", [{"job": "1f"}, {"training": "week", "finished": False},
                {"training": "week", "finished": False, "versions": {"north": "0.1.0"}}]
)  # fmt: skip
def test_a_training_that_only_starts(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its first round a job says less."""
    jobs = pytest.importorskip("epifed.federation.flare.jobs", reason="no federation here")
    monkeypatch.setattr(jobs, "look", lambda _: {"connected": ["north"], "running": [running]})
    printed("federation status", "--kit", "kit")
    done = CliRunner().invoke(app, ["federation", "status", "--kit", "kit"])
    assert (done.exit_code, done.exception) == (0, None)
    assert f"starting: {running.get('training', '1f')}\n" in done.stdout


def test_the_status_shows_the_total_of_a_budget_that_renews(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = pytest.importorskip("epifed.federation.flare.jobs", reason="no federation here")
    monkeypatch.setattr(jobs, "look", lambda _: {"connected": [], "running": []})
    ledger = tmp_path / "budget.ledger"
    CliRunner().invoke(app, ["ledger", "init", str(ledger), "--epsilon", "1", "--renew", "52"])
    shown = printed("federation status", "--kit", "kit", "--ledger", ledger)
    assert (shown["ledger"]["cap"]["weeks"], shown["ledger"]["total_epsilon"]) == (52, 0)
    done = CliRunner().invoke(
        app, ["federation", "status", "--kit", "kit", "--ledger", str(ledger)]
    )
    assert "in every window of 52 weeks, which renews: it is weaker than" in done.stdout
    assert "total  since the beginning ε = 0" in done.stdout and "no cap limits" in done.stdout


@pytest.mark.field
def test_a_membership_attack() -> None:
    printed("audit", "--membership", "--runs", "8")


@pytest.mark.field
def test_the_papers_experiment(real_data: Path, tmp_path: Path) -> None:
    quick = ("--learner", "one-shot", "--runs", "1", "--epsilon", "1", "--split", "temporal")
    printed("reproduce", "--data", real_data, *quick, "--out", tmp_path / "paper")
