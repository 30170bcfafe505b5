import json
import shutil
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from epifed.cli.ledger import _up, app
from epifed.errors import EpifedError
from epifed.ledger.budget import rounded_down
from epifed.ledger.ledger import Ledger


def invoke(*arguments: object) -> str:
    """What a command prints; its mistakes as the exception that `main` makes a sentence of."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception:
        raise result.exception
    return result.stdout


def invoke_json(*arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(invoke(*arguments, "--json"))
    return found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.db"
    printed = invoke("init", path, "--epsilon", 2, "--delta", 1e-5)
    assert "cap ε = 2 at δ = 1e-05 (one client added or removed, RDP accountant)" in printed
    return path


def train(file: Path, spent: int, reserved: int = 75, training: str = "") -> str:
    run = Ledger(file).reserve(
        sampling_rate=0.25,
        noise_multiplier=8.0,
        rounds=reserved,
        settings_hash="5e77",
        training=training,
        first_day=date(2022, 3, 1),
        last_day=date(2022, 4, 1),
    )
    for i in range(1, spent + 1):
        run.spend(i)
    return run.name


def test_show_tells_what_is_spent_taken_and_left(file: Path) -> None:
    name = train(file, spent=2)
    printed = invoke("show", file)
    for part in (name, "2 of 75 open", "2022-03-01 … 2022-04-01", "for 2 rounds in 1 run\n"):
        assert part in printed
    assert "73 rounds that open runs still hold" in printed
    shown = invoke_json("show", file)
    assert 0 < shown["spent_epsilon"] < shown["taken_epsilon"] < 2
    assert shown["left_epsilon"] == pytest.approx(2 - shown["taken_epsilon"], abs=1e-6)
    assert shown["cap"]["neighbouring"] == "add or remove one client"
    assert shown["runs"][0]["settings_hash"] == "5e77"
    assert shown["head"] in printed


def test_close_gives_unspent_rounds_back(file: Path) -> None:
    name = train(file, spent=2)
    assert "2 of 75 rounds were spent and count" in invoke("close", file, name, "--note", "crash")
    assert "2 abandoned" in invoke("show", file)
    shown = invoke_json("show", file)
    assert shown["spent_epsilon"] == shown["taken_epsilon"]
    with pytest.raises(EpifedError, match="expected open"):
        invoke("close", file, name)


def test_verify_checks_a_hash_noted_earlier(file: Path) -> None:
    head = invoke_json("show", file)["head"]
    train(file, spent=1)
    printed = invoke("verify", file, "--head", head)
    assert "all 3 rows fit" in printed
    assert "rows since the hash that was given: 2" in printed
    assert invoke_json("verify", file)["verified"] is True
    with pytest.raises(EpifedError, match="no row has the hash"):
        invoke("verify", file, "--head", "f" * 64)


def test_a_ledger_of_another_machine_is_refused_read_on_demand_and_adopted(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EPIFED_STATE", str(tmp_path / "other"))
    for command in ("show", "verify"):
        with pytest.raises(EpifedError, match="this machine has not seen this ledger"):
            invoke(command, file)
        assert invoke(command, file, "--copy")
    assert "is the ledger now" in invoke("adopt", file, "--note", "moved")
    invoke("show", file)


def test_an_older_copy_is_read_on_demand_and_never_adopted(file: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copy(file, tmp_path / "copy.db"))
    train(file, spent=1)
    for command in ("show", "verify", "adopt"):
        with pytest.raises(EpifedError, match=r"an older copy.*rows missing: 2"):
            invoke(command, copy, *(("--note", "restored") if command == "adopt" else ()))
    assert invoke("show", copy, "--copy")


def test_a_trainings_name_is_shown(file: Path) -> None:
    assert "training" not in invoke("show", file)
    train(file, spent=0, training="weekly\x1b[31m")
    assert "weekly [31m" in invoke("show", file)
    (run,) = invoke_json("show", file)["runs"]
    assert (run["training"], run["first_day"]) == ("weekly\x1b[31m", "2022-03-01")


def test_a_large_delta_is_refused_or_explained(tmp_path: Path) -> None:
    options = ("--epsilon", 2, "--delta")
    for command in (("init", tmp_path / "no.db"), ("plan",)):
        with pytest.raises(EpifedError, match=r"delta: found 0.9; expected .* at most 0.01"):
            invoke(*command, *options, 0.9)
    assert not (tmp_path / "no.db").exists()
    file = tmp_path / "ledger.db"
    for printed in (
        invoke("init", file, *options, 0.005),
        invoke("show", file),
        invoke("plan", "--ledger", file, "--sampling-rate", 1, "--rounds", 1, "--releases", 1),
    ):
        assert "δ = 0.005 is large: it allows that each client's data are revealed" in printed
    assert "is large" not in invoke("plan", *options, 1e-3, "--rounds", 1, "--releases", 1)


def test_no_printed_epsilon_is_less_than_it_is(file: Path) -> None:
    train(file, spent=2)
    train(file, spent=3, reserved=3)
    shown = invoke_json("show", file)
    printed = invoke("show", file)
    options = ("--ledger", file, "--sampling-rate", 1, "--rounds", 5, "--releases", 3)
    found = invoke_json("plan", *options)
    planned = invoke("plan", *options)
    for words, text, value in (
        ("spent  ε = ", printed, shown["spent_epsilon"]),
        ("taken  ε = ", printed, shown["taken_epsilon"]),
        ("taken ε = ", planned, found["taken_epsilon"]),
        ("which is ε = ", planned, found["epsilon_each"]),
    ):
        said = float(text.split(words)[1].split()[0].rstrip(","))
        assert value <= said < value + 2e-4
    said = float(printed.split("left   ε = ")[1].split(",")[0])
    assert shown["left_epsilon"] - 2e-5 < said <= shown["left_epsilon"]


@given(st.floats(1e-9, 1e7))
def test_what_is_spent_is_rounded_up_and_what_is_left_down(value: float) -> None:
    assert value <= float(_up(value)) <= value * (1 + 1e-5) + 1e-4
    assert value * (1 - 1e-5) <= float(rounded_down(value)) <= value


def test_plan_answers_both_ways_and_plots(tmp_path: Path) -> None:
    out = tmp_path / "plan.png"
    options = ("--epsilon", 2, "--sampling-rate", 1, "--rounds", 20, "--releases", 4)
    found = invoke_json("plan", *options, "--epsilon-each", 0.8, "--out", out)
    assert found["releases"] == 4
    assert 0.5 < found["epsilon_each"] < 2
    noises = [point["noise_multiplier"] for point in found["curve"]]
    assert noises == sorted(noises)
    assert found["fixed_noise"]["releases"] > 2
    assert out.read_bytes().startswith(b"\x89PNG")
    back = invoke_json("plan", *options, "--noise-multiplier", found["noise_multiplier"])
    assert back["fixed_noise"]["releases"] == 4
    printed = invoke("plan", *options, "--noise-multiplier", 24)
    assert "4 trainings of 20 rounds at q = 1 fit" in printed
    assert "with c = 24, ε =" in printed


def test_plan_for_a_ledger_leaves_room_for_what_is_taken(file: Path) -> None:
    options = ("--sampling-rate", 1, "--rounds", 20, "--releases", 2)
    fresh = invoke_json("plan", "--epsilon", 2, *options)
    train(file, spent=0)
    used = invoke_json("plan", "--ledger", file, *options)
    assert used["noise_multiplier"] > fresh["noise_multiplier"]
    assert used["taken_epsilon"] > 0


@pytest.mark.parametrize(
    "options, found",
    [
        ((), "expected --epsilon, or --ledger"),
        (("--epsilon", 0), "epsilon: found 0"),
        (("--epsilon", 2, "--delta", 0), "delta: found 0"),
        (("--epsilon", 2, "--accountant", "gdp"), "accountant: found 'gdp'"),
        (("--epsilon", 2, "--noise-multiplier", 3, "--epsilon-each", 1), "found both"),
        (("--epsilon", 2, "--ledger", "ledger.db"), "has its own cap"),
        (("--ledger", "nowhere.db"), "no such file"),
        (
            ("--epsilon", 2, "--sampling-rate", 1, "--releases", 1, "--out", "p.txt"),
            "ending in .png",
        ),
    ],
)
def test_mistakes_are_told_in_one_sentence(options: tuple[object, ...], found: str) -> None:
    with pytest.raises(EpifedError, match=found):
        invoke("plan", *options)
