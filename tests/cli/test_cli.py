"""The commands as a user runs them: real processes, exit codes, what is on which stream."""

import csv
import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from epifed.cli.app import app
from epifed.settings import Settings
from tests.commands import epifed, refused
from tests.helpers import public_inputs, small_panel

COMMANDS = [
    "",
    "open",
    "run",
    "audit",
    "explain",
    "federation rehearse",
    "federation",
    "report",
    "figures",
    "forecast",
    "backtest",
    "hub",
    "hub score",
    "hub check",
    "reproduce",
    "train",
    "simulate",
    "calibrate",
    "data",
    "data check",
    "data fetch",
    "data fetch rki",
    "data communities",
    "ledger",
    "ledger init",
    "ledger show",
    "ledger plan",
    "ledger verify",
]


@pytest.fixture(scope="module")
def tidy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tidy") / "cases.csv"
    frame = small_panel().to_long().rename({"day": "date"})
    frame.with_columns(pl.col("cases").cast(pl.Int64)).write_csv(path)
    return path


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    text = CliRunner().invoke(app, [*command.split(), "--help"]).stdout
    assert "Usage" in text
    assert len(text.splitlines()) > 8


def small_run(
    tidy: Path, out: Path, *more: str, expect: int = 0
) -> subprocess.CompletedProcess[str]:
    settings = out.parent / "settings.toml"
    settings.write_text(
        Settings.of(model="linear", rounds=3, epochs=2, clients_per_round=3).to_toml()
    )
    arguments: Sequence[str] = ("run", "--data", str(tidy), "--out", str(out), "--settings",
                                str(settings), "--runs", "2", "--workers", "1", *more)  # fmt: skip
    return epifed(*arguments, expect=expect)


def test_run_writes_results_figures_and_a_table(tidy: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = small_run(tidy, out)
    names = {p.name for p in out.iterdir()}
    assert names == {
        "parts", "runs.parquet", "predictions.parquet", "convergence.parquet", "settings.toml",
        "manifest.json", "privacy_utility.png", "convergence.png", "predicted_against_true.png",
        "report.html",
    }  # fmt: skip
    assert "the report has no forecast" in " ".join(done.stderr.split())
    for word in ("persistence", "fedavg", "0.5", "∞", "δ = 1e-05", "add or remove one client"):
        assert word in done.stdout
    assert "fedavg (the paper's model)" in done.stdout
    assert "MAPE" not in done.stdout and "zero target" not in done.stdout
    assert done.stderr.count(str(out)) >= 2 and "What to do next" in done.stderr
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["data"]["regions"] == 12
    assert manifest["versions"]["torch"]


def test_run_as_json_has_nothing_else_on_stdout(tidy: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = small_run(tidy, out, "--json", "--epsilon", "inf", "--epsilon", "2")
    found = json.loads(done.stdout)
    rows = found["experiment"]["methods"]
    budgets = {row["epsilon"] for row in rows if row["method"] == "federated"}
    assert budgets == {2.0, "inf"}
    assert {"persistence", "local MLP"} <= {row["method"] for row in rows}
    assert found["experiment"]["delta"] == 1e-5 and found["experiment"]["settings"]["rounds"] == 3
    by_mae = {(row["method"], row["epsilon"]): row["mae_mean"] for row in rows}
    for row in found["compared"]:
        expected = by_mae[row["method"], row["epsilon"]] / by_mae["persistence", None]
        assert row["error"] == pytest.approx(expected)
    again = small_run(tidy, out, "--details", "--epsilon", "inf", "--epsilon", "2")
    assert "MAPE" in again.stdout


def test_train_is_paid_for_by_a_ledger_until_it_is_empty(tidy: Path, tmp_path: Path) -> None:
    ledger, settings = tmp_path / "budget.ledger", tmp_path / "settings.toml"
    epifed("ledger", "init", str(ledger), "--epsilon", "2.5", "--delta", "1e-5", expect=0)
    settings.write_text(
        Settings.of(model="linear", rounds=3, epochs=2, clients_per_round=3, epsilon=2.0).to_toml()
    )
    training = ("train", "--data", str(tidy), "--settings", str(settings), "--json", "--out")
    paid = ("--ledger", str(ledger), *public_inputs(tmp_path, tidy))
    done = epifed(*training, str(tmp_path / "one.model"), *paid, expect=0)
    about = json.loads(done.stdout)
    assert about["randomness"] == "secure"
    assert about["epsilon"] <= 2.0
    shown = json.loads(epifed("ledger", "show", str(ledger), "--json", expect=0).stdout)
    assert about["ledger_run"] in json.dumps(shown)
    assert about["sha256"] in json.dumps(shown)
    assert "budget.ledger" in refused(*training, str(tmp_path / "two.model"), *paid)
    assert not (tmp_path / "two.model").exists()
    assert "neither of --ledger and --seeded" in refused(*training, str(tmp_path / "x.model"))
    seeded = epifed(*training, str(tmp_path / "three.model"), "--seeded", expect=0)
    assert json.loads(seeded.stdout)["randomness"] == "seeded"


@pytest.mark.field
def test_reproduce_writes_the_comparison(tmp_path: Path, real_data: Path) -> None:
    out = tmp_path / "r"
    narrow = ["--runs", "1", "--rounds", "1", "--epsilon", "inf", "--epsilon", "2", "--period",
              "2020-11", "--split", "temporal", "--table", "s1", "--workers", "1"]  # fmt: skip
    done = epifed(
        "reproduce", "--data", str(real_data), "--out", str(out), *narrow, "--json", expect=0
    )
    with (out / "comparison.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [
        "split", "table", "period", "epsilon", "metric",
        "published_mean", "published_std", "mean", "std", "outside", "persistence",
    ]  # fmt: skip
    assert len(rows) == 2 * 5
    assert {r["epsilon"] for r in rows} == {"2.0", "inf"}
    persistence = next(float(r["persistence"]) for r in rows if r["metric"] == "r2")
    assert persistence == pytest.approx(0.952, abs=5e-4)
    assert len(json.loads(done.stdout)) == len(rows)
    assert "the paper's table s1" in (out / "comparison.md").read_text()
    assert (
        len(pl.read_parquet(out / "predictions.parquet").filter(run=0, method="persistence")) == 800
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "--data", "nowhere.csv"], "nowhere.csv"),
        (["run", "--epsilon", "-1"], "--epsilon: found '-1'; expected a number above 0: try 1"),
        (["run", "--epsilon", "two"], "--epsilon: found 'two'"),
        (["run", "--settings", "nowhere.toml"], "nowhere.toml: cannot be read"),
        (["reproduce", "--data", ".", "--out", "x", "--period", "2021-01"], "--period: found"),
        (["reproduce", "--data", ".", "--out", "x", "--split", "both"], "--split: found 'both'"),
        (["reproduce", "--data", ".", "--out", "x", "--table", "s2"], "--table: found 's2'"),
        (["reproduce", "--data", ".", "--out", "x", "--epsilon", "0.1"], "budgets of the paper"),
        (["calibrate", "--epsilon", "0", "--sampling-rate", "0.25", "--rounds", "75"], "found 0"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(arguments: list[str], words: str) -> None:
    assert words in refused(*arguments)


def test_a_file_as_output_directory_is_refused_before_any_work(tidy: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("precious")
    done = small_run(tidy, out, expect=2)
    assert "found a file; expected a directory" in done.stderr
    assert out.read_text() == "precious"


def test_too_short_data_are_refused_and_nothing_is_written(tidy: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = small_run(tidy, out, "--from", "2020-10-01", "--to", "2020-10-12", expect=2)
    assert re.search(r"found 12 days .* expected at least 17", done.stderr)
    assert not out.exists()
