"""What a new user stumbles over: outputs, bars, words and boxes, as real commands show them."""

import inspect
import os
import re
import subprocess
import sys
from dataclasses import replace
from datetime import date
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from epifed.cli.app import COMMANDS, HOMES, app
from epifed.cli.common import caption, refuse_unwritable
from epifed.data.panel import CasePanel
from epifed.data_check import check_panel
from epifed.errors import EpifedError
from epifed.evaluation.backtest import origins_between, run_backtest
from epifed.learners.base import settings_for
from epifed.ledger.ledger import Ledger
from epifed.settings import Settings
from epifed.training.loop import NoisePreview
from tests.helpers import public_inputs, small_panel

ROOT = Path(__file__).parents[2]
UNWRITABLE = Path("/proc/nowhere/out")


def default_outputs() -> list[str]:
    found = []
    for name in COMMANDS:
        command = getattr(import_module(f"epifed.cli.{HOMES.get(name, name)}"), name, None)
        if command is not None:
            default = inspect.signature(command).parameters.get("out")
            if default is not None and isinstance(default.default, Path):
                found.append(str(default.default))
    return found


def test_no_default_output_can_be_committed() -> None:
    names = default_outputs()
    assert {"out", "backtest"} <= set(names)
    ignored = (ROOT / ".gitignore").read_text().split()
    for name in [*names, "results", "forecast"]:
        assert f"/{name}" in ignored or f"/{name}/" in ignored


def test_a_repeated_backtest_ends_its_bar_where_it_begins(tmp_path: Path) -> None:
    panel = small_panel(days=100)
    settings = settings_for(panel, {"learner": "trend", "epsilon": 1.0})
    origins = origins_between(panel.day(70), panel.end, 7, panel, 7)
    seen: list[tuple[int, int]] = []

    def run() -> list[tuple[int, int]]:
        seen.clear()
        run_backtest(
            panel, settings, origins, tmp_path, workers=1, progress=lambda *at: seen.append(at)
        )
        return list(seen)

    first = run()
    total = first[0][1]
    assert first[0] == (0, total) and first[-1] == (total, total)
    assert set(run()) == {(total, total)}
    next((tmp_path / "parts").rglob("*_state.npz")).unlink()
    again = run()
    assert again[0] == (total - 1, total) and again[-1] == (total, total)


SETUP = "--settings s.toml --federation f.toml --kit k --ledger l"
NEEDED = {
    "run": "",
    "backtest": "--data nowhere.csv --from 2020-01-01 --to 2020-02-01",
    "reproduce": "--data nowhere.csv",
    "nowcast": "--vintages nowhere.csv",
    "forecast": "nowhere.model --data nowhere.csv",
    "figures": "nowhere",
    "report": "nowhere",
    "train": "--data nowhere.csv --seeded",
    "hub score": "--forecasts nowhere --truth nowhere.csv --baseline x",
    "simulate": "",
    "audit": "",
    "data communities": "--data nowhere",
    "data convert": "nowhere.csv",
    "ledger plan": "--sampling-rate 1 --rounds 1",
    "federation rehearse": "--learner trend",
    "federation report": "--kit nowhere",
    "federation site": "--kit nowhere --data nowhere.csv",
    "federation schedule": f"nowhere.toml {SETUP}",
}
SUFFIX = {"audit": ".png", "ledger plan": ".png", "data convert": ".csv"}


@pytest.mark.skipif(not UNWRITABLE.parent.parent.is_dir(), reason="no /proc here")
@pytest.mark.parametrize("command", NEEDED)
def test_an_unwritable_output_is_said_before_anything_is_read(command: str) -> None:
    out = f"{UNWRITABLE}{SUFFIX.get(command, '')}"
    done = CliRunner().invoke(app, [*command.split(), *NEEDED[command].split(), "--out", out])
    assert isinstance(done.exception, EpifedError)
    assert str(done.exception).startswith(f"{out}: cannot be written to")


@pytest.mark.skipif(not UNWRITABLE.parent.parent.is_dir(), reason="no /proc here")
def test_a_model_that_cannot_be_written_is_not_paid_for(tmp_path: Path) -> None:
    data, ledger = tmp_path / "cases.csv", tmp_path / "budget.ledger"
    small_panel(days=60).to_long().rename({"day": "date"}).write_csv(data)
    runner = CliRunner()
    init = ["ledger", "init", str(ledger), "--epsilon", "3", "--delta", "1e-5"]
    assert runner.invoke(app, init).exit_code == 0
    train = ["train", "--data", str(data), "--learner", "trend", "--epsilon", "1"]
    for out in (UNWRITABLE, tmp_path):
        done = runner.invoke(app, [*train, "--ledger", str(ledger), "--out", str(out)])
        assert isinstance(done.exception, EpifedError)
    assert Ledger(ledger).book().runs == {}


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("run --runs=abc", "--runs: found 'abc'; expected a whole number"),
        ("run --runs 0", "--runs: found '0'; expected at least 1"),
        ("train --epsilon x --data a --out b", "--epsilon: found 'x'; expected a number"),
        ("backtest --data a --from x --to x", "--from: found 'x'; expected a day such as"),
        ("forecast", "--data: found none; expected your file of cases, such as"),
        ("forecast a", "--data: found none; expected the cases to forecast. Is a a file of cases?"),
        ("federation train absent", "absent: no such folder; expected that of 'epifed federation"),
        ("federation schedule absent", "absent: no such folder; expected that of 'epifed fed"),
        ("train --out a", "missing option '--data'; see 'epifed train --help'"),
        ("run --nonsense", "no such option: --nonsense"),
        ("ledger nonsense", "no such command 'nonsense'; see 'epifed ledger --help'"),
        ("nonsense", "no such command 'nonsense'; see 'epifed --help'"),
    ],
)
def test_what_was_typed_wrongly_is_one_sentence_and_no_box(typed: str, said: str) -> None:
    done = CliRunner().invoke(app, typed.split())
    assert isinstance(done.exception, EpifedError)
    assert str(done.exception).startswith(said) and "\n" not in str(done.exception)
    assert done.output == ""


def test_a_form_that_is_none_is_said_by_epifed(tmp_path: Path) -> None:
    words = ["federation", "key", str(tmp_path / "form"), "--out", str(tmp_path / "key")]
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, EpifedError)
    assert "expected the form by 'epifed federation init'" in str(done.exception)


def test_a_bare_group_shows_its_help() -> None:
    assert "Usage" in CliRunner().invoke(app, ["ledger"]).output


def test_a_look_at_an_output_leaves_nothing_behind(tmp_path: Path) -> None:
    refuse_unwritable(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command", [["data", "check"], ["explain"], ["run", "--data"], ["ledger", "show"]]
)
def test_an_unreadable_file_is_left_to_epifed(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = tmp_path / "cases.csv"
    cases.write_text("date,region,cases\n")
    monkeypatch.setattr(os, "access", lambda *_: False)
    done = CliRunner().invoke(app, [*command, str(cases)])
    assert "Usage" not in done.output and "╭" not in done.output
    assert isinstance(done.exception, EpifedError)


def test_one_is_not_several() -> None:
    one = CasePanel(np.full((1, 1), 0.5), ("a",), date(2024, 1, 1), source="memory")
    assert repr(one).startswith("CasePanel(1 region × 1 day, ")
    warnings = check_panel(one).warnings
    assert "not a whole number: 1 count" in warnings
    assert not any(re.search(r"\b1 [\w-]+s\b", said) for said in warnings), warnings


def test_zeros_are_worth_a_word_where_there_are_some() -> None:
    assert "zero target" not in caption(Settings(), 1, 0.0)
    assert "1 zero target left out of MAPE" in caption(Settings(), 2, 1.0)


def test_two_prices_of_one_training_are_told_apart(tmp_path: Path) -> None:
    data, ledger = tmp_path / "cases.csv", tmp_path / "budget.ledger"
    panel = small_panel(days=60)
    panel.to_long().rename({"day": "date"}).write_csv(data)
    runner = CliRunner()
    init = ["ledger", "init", str(ledger), "--epsilon", "3", "--delta", "1e-5"]
    assert runner.invoke(app, [*init, "--accountant", "rdp"]).exit_code == 0
    train = ["train", "--data", str(data), "--learner", "trend", "--epsilon", "1"]
    train += ["--ledger", str(ledger), *public_inputs(tmp_path, data)]
    made = runner.invoke(app, [*train, "--out", str(tmp_path / "one.model")])
    assert made.exit_code == 0, made.output
    (line,) = [x for x in made.output.splitlines() if "the ledger counts by RDP" in x]
    price = float(line.split("ε = ")[1].split(":")[0])
    shown = runner.invoke(app, ["ledger", "show", str(ledger)]).output
    assert f"{price:g}" in shown
    assert 1 < price < 2


def test_python_minus_m_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "epifed", "--help"], capture_output=True, text=True, check=True
    )
    assert "federated" in done.stdout


WORDS_JS = [path for path in (ROOT / "src").rglob("words*.js") if "vendor" not in path.parts]
PLURAL = re.compile(
    r"\$\{v\.(n|steps|horizon|origins|weeks|sites|clients|detail|away|zeros)\} "
    r"(?!is\b)(\w+s|more weeks|past forecasts|test values|are|Tagen?|Wochen|Standorten?|Klienten|"
    r"Freigaben|weitere Wochen|früheren Vorhersagen|Testtagen|Testwerte|sind)\b"
)
SEVERAL_ONLY = ("privacyAll", "head", "firstRows")


def test_one_is_not_several_on_the_pages_either() -> None:
    """In both languages the word goes with its number, unless the line tells one from several."""
    assert len(WORDS_JS) == 5
    for path in WORDS_JS:
        for line in path.read_text().splitlines():
            told = "=== 1" in line or "=== '1'" in line
            known = line.strip().startswith(SEVERAL_ONLY)
            assert told or known or not PLURAL.search(line), f"{path.name}: {line.strip()}"


def test_one_training_of_one_round_is_told_as_such(tmp_path: Path) -> None:
    runner, ledger = CliRunner(), tmp_path / "b.ledger"
    plan = ["ledger", "plan", "--sampling-rate", "1", "--rounds", "1", "--releases", "1"]
    said = runner.invoke(app, [*plan, "--epsilon", "2", "--epsilon-each", "1.9"]).output
    assert "\n1 training of 1 round at q = 1 fits if it has" in said
    assert "1 training fits\n" in said
    init = ["ledger", "init", str(ledger), "--epsilon", "2", "--delta", "1e-5"]
    assert runner.invoke(app, init).exit_code == 0
    assert "its only row fits" in runner.invoke(app, ["ledger", "verify", str(ledger)]).output


def test_noise_beyond_imagination_has_no_number() -> None:
    some = NoisePreview(3, 0.1, "the growth of a week", 0.26, 6.5, None, 225)
    assert "by more than ±1,000 %," in some.sentence()
    assert "noise hides most of it; less than 1 % of the release" in some.sentence()
    assert "by about ±65 %," in replace(some, noise=0.5).sentence()
    assert replace(some, clients=1).sentence().startswith("With 1 client and ")
