"""`epifed calibrate` as a user runs it."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import epifed
from epifed.cli import main

BUDGET = ("--epsilon", "2", "--delta", "1e-5", "--sampling-rate", "0.25", "--rounds", "75")


@pytest.fixture(autouse=True, scope="module")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EPIFED_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


class Command:
    """Runs the command in this process: exit code, stdout, stderr."""

    def __init__(self, patch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]) -> None:
        self.patch, self.capture = patch, capture

    def __call__(self, *arguments: str) -> tuple[object, str, str]:
        self.patch.setattr(sys, "argv", ["epifed", "calibrate", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        written = self.capture.readouterr()
        return end.value.code or 0, written.out, written.err


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capfd)


def test_json(command: Command) -> None:
    code, out, err = command(*BUDGET, "--accountant", "rdp", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found.pop("noise_multiplier") == pytest.approx(4.863, abs=5e-4)
    assert 1.99 < found.pop("epsilon_spent") <= 2
    assert found == {
        "epsilon": 2,
        "delta": 1e-5,
        "sampling_rate": 0.25,
        "rounds": 75,
        "accountant": "rdp",
        "neighbouring": "add or remove one client",
        "unit": "one client",
    }


def test_for_people(command: Command) -> None:
    code, out, err = command(*BUDGET)
    assert (code, err) == (0, "")
    assert "c = 4.86303" in out
    assert "(ε = 2, δ = 1e-05)-differential privacy, one client added or removed" in out


def test_counts_instead_of_a_rate(command: Command) -> None:
    _, out, _ = command("--epsilon", "2", "--clients", "400", "--clients-per-round", "100")
    assert out == command(*BUDGET)[1]


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_there_and_back(command: Command, accountant: str) -> None:
    rest = (*BUDGET[2:], "--accountant", accountant, "--json")
    there = json.loads(command("--epsilon", "2", *rest)[1])
    back = json.loads(command("--noise-multiplier", str(there["noise_multiplier"]), *rest)[1])
    assert back["epsilon"] == back["epsilon_spent"] == there["epsilon_spent"]
    assert back.keys() == there.keys()


def test_no_privacy_is_still_json(command: Command) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    _, out, _ = command("--epsilon", "inf", "--sampling-rate", "0.25", "--json")
    found = json.loads(out, parse_constant=refuse)
    assert found["noise_multiplier"] == 0
    assert float(found["epsilon"]) == float(found["epsilon_spent"]) == math.inf


@pytest.mark.parametrize(
    "arguments",
    [
        "--sampling-rate 0.25",
        "--epsilon 2 --noise-multiplier 4 --sampling-rate 0.25",
        "--epsilon 2",
        "--epsilon 2 --clients 400",
        "--epsilon 2 --clients 400 --clients-per-round 500",
        "--epsilon 2 --clients 0 --clients-per-round 0",
        "--epsilon 2 --clients 400 --clients-per-round 100 --sampling-rate 0.25",
        "--epsilon 0 --sampling-rate 0.25",
        "--epsilon nan --sampling-rate 0.25",
        "--epsilon -1 --sampling-rate 0.25",
        "--epsilon 0.001 --sampling-rate 0.25",
        "--epsilon 2 --sampling-rate 1.5",
        "--epsilon 2 --sampling-rate 0.25 --delta 0",
        "--epsilon 2 --sampling-rate 0.25 --delta 1",
        "--epsilon 2 --sampling-rate 0.25 --rounds 0",
        "--epsilon 2 --sampling-rate 0.25 --accountant gdp",
        "--noise-multiplier -1 --sampling-rate 0.25",
    ],
)
def test_nonsense_is_one_sentence(command: Command, arguments: str) -> None:
    code, out, err = command(*arguments.split(), "--json")
    assert (code, out) == (2, "")
    assert err.startswith("epifed: ")
    assert err.count("\n") == 1
    assert "expected" in err


@pytest.mark.field
def test_a_fresh_process_says_nothing_but_json(tmp_path: Path) -> None:
    source = Path(epifed.__file__).parents[1]
    code = "import epifed.cli; epifed.cli.main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "calibrate", "--epsilon", "4", *BUDGET[2:], "--json"],
        env=os.environ | {"EPIFED_CACHE": str(tmp_path), "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert json.loads(done.stdout)["epsilon"] == 4
