"""What a county office needs: everything but networks runs where there is no PyTorch."""

import json
import os
import subprocess
import sys
from datetime import date, timedelta
from pathlib import Path

import pytest

from tests import commands
from tests.helpers import days_of
from tests.like_windows import ABSENT, lay

pytestmark = pytest.mark.field

NOT_AT_A_SITE = ("torch", "matplotlib", "opendp", "pandas", "pyarrow", "joblib", "shapely", "httpx")
FIRST = date(2020, 9, 1)


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in whose processes, workers included, some packages are not installed."""
    site = tmp_path_factory.mktemp("light")
    lay(site)
    search = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": search, "PYTHONIOENCODING": "cp1252"}


def python(environment: dict[str, str], code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )


def epifed(
    environment: dict[str, str], folder: Path, *arguments: str
) -> subprocess.CompletedProcess[str]:
    return commands.epifed(*arguments, environment=environment, folder=folder)


@pytest.fixture(scope="module")
def office(light: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the data of an invented country in it."""
    folder = tmp_path_factory.mktemp("office")
    made = epifed(
        light, folder, "simulate", "--out", "data",
        "--counties", "12", "--communities", "24", "--days", "120",
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    return folder


def test_what_is_blocked_is_not_there(light: dict[str, str]) -> None:
    for name in ABSENT:
        assert "ModuleNotFoundError" in python(light, f"import {name}").stderr


@pytest.mark.parametrize("learner", ["trend", "one-shot"])
def test_train_forecast_and_explain(light: dict[str, str], office: Path, learner: str) -> None:
    steps = [
        ["data", "check", "data"],
        ["train", "--data", "data", "--learner", learner, "--epsilon", "1", "--seeded",
         "--out", f"{learner}.seeded"],
        ["ledger", "init", f"{learner}.ledger", "--epsilon", "2", "--delta", "1e-5"],
        ["train", "--data", "data", "--learner", learner, "--epsilon", "1",
         "--ledger", f"{learner}.ledger", *days_of(office / "data"), "--out", f"{learner}.model"],
        ["ledger", "show", f"{learner}.ledger"],
        ["forecast", f"{learner}.model", "--data", "data", "--out", f"{learner}-forecast"],
        ["explain", f"{learner}.model"],
    ]  # fmt: skip
    for step in steps:
        done = epifed(light, office, *step)
        assert done.returncode == 0, (step, done.stderr)
    assert (office / f"{learner}-forecast" / "forecast.parquet").is_file()


def test_run_with_two_workers_and_its_report(light: dict[str, str], office: Path) -> None:
    done = epifed(
        light, office, "run", "--data", "data", "--learner", "trend", "--epsilon", "1",
        "--runs", "1", "--workers", "2", "--out", "run", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)
    again = epifed(light, office, "report", "run", "--data", "data", "--out", "page.html")
    assert again.returncode == 0, again.stderr
    assert (office / "page.html").stat().st_size > 10_000
    drawn = epifed(light, office, "figures", "run", "--data", "data", "--out", "figures")
    assert drawn.returncode == 0, drawn.stderr


def test_backtest_and_its_report(light: dict[str, str], office: Path) -> None:
    days = [str(FIRST + timedelta(days=n)) for n in (80, 110)]
    done = epifed(
        light, office, "backtest", "--data", "data", "--from", days[0], "--to", days[1],
        "--learner", "trend", "--epsilon", "1", "--workers", "1", "--out", "backtest",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shown = epifed(light, office, "report", "backtest", "--data", "data", "--out", "back.html")
    assert shown.returncode == 0, shown.stderr


def test_run_without_pytorch_leaves_the_paper_s_model_out(
    light: dict[str, str], office: Path
) -> None:
    done = epifed(
        light, office, "run", "--data", "data", "--epsilon", "1", "--runs", "1", "--workers", "1",
        "--out", "without", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "pip install epifed[torch]" in " ".join(done.stderr.split())
    methods = {row["method"] for row in json.loads(done.stdout)["compared"] if row["epsilon"]}
    assert methods == {"one-shot", "trend"}


def test_the_end_of_a_job_loads_no_pytorch_where_it_is_installed() -> None:
    done = python(
        dict(os.environ),
        "import sys, epifed.federation.flare.controller\n"
        "from nvflare.apis.impl.wf_comm_server import WFCommServer\n"
        "WFCommServer._cleanup_inflight_tensor_downloads(None, None)\n"
        "print('torch' in sys.modules)",
    )
    assert (done.stdout, done.returncode) == ("False\n", 0), done.stderr


@pytest.mark.parametrize("command", ["train", "run"])
def test_networks_without_pytorch_are_one_sentence(
    light: dict[str, str], office: Path, command: str
) -> None:
    seeded = ["--seeded"] if command == "train" else ["--runs", "1", "--workers", "1"]
    done = epifed(
        light, office, command, "--data", "data", "--learner", "fedavg", "--epsilon", "1",
        "--out", f"no-{command}", *seeded,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "epifed: learner: found 'fedavg', which trains networks, but No module named 'torch'; "
        "expected PyTorch ('pip install epifed[torch]'), or a learner that needs none"
    )
    assert "Traceback" not in done.stderr
    assert not (office / f"no-{command}").exists()


def test_a_site_imports_no_more_than_it_uses(light: dict[str, str]) -> None:
    code = f"""
import sys
import epifed.federation.flare.executor
from epifed.learners.base import make_learner
from epifed.settings import Settings
make_learner(Settings.resolve(12, {{"learner": "trend"}}))
print(*(name for name in {NOT_AT_A_SITE} if name in sys.modules))
"""
    done = python({**os.environ}, code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
    assert python(light, code).returncode == 0
