"""A learner and a model of another package, which is really installed and in no file of ours."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from epifed.simulate import SimulationSettings, simulate
from epifed.simulate.simulation import write
from tests import commands
from tests.helpers import lay_package

pytestmark = pytest.mark.field

LEARNER = '''
"""The mean growth from a week to the next: one number of each client."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import Field

from epifed.learners.base import Own, WindowLearner


class DriftOwn(Own):
    share: float = Field(0.5, gt=0, le=1, description="how much of the growth goes on")


@dataclass(frozen=True)
class Drift_:
    growth: np.ndarray


class Drift(WindowLearner[Drift_]):
    name = "drift"
    own_settings = DriftOwn

    def __init__(self, settings):
        super().__init__(settings)
        self.own = DriftOwn(**settings.own)

    @classmethod
    def preset(cls, clients: int, given: Mapping[str, Any]) -> dict[str, Any]:
        one = {"clients_per_round": clients, "rounds": 1, "accountant": "pld", "clip_norm": 1.0}
        return super().preset(clients, given) | one

    def start(self, seeds):
        return Drift_(np.zeros(1, dtype=np.float32))

    def contribute(self, state, view):
        there = np.log((view.targets + 1) / (view.inputs[..., -1] + 1)) * view.mask
        mean = there.sum(axis=1) / np.maximum(view.mask.sum(axis=1), 1)
        return np.clip(mean, -1, 1).astype(np.float32)[:, None]

    def step(self, state, release, noise_std):
        return Drift_(state.growth + release.astype(np.float32))

    def predict(self, state, inputs):
        grown = np.exp(np.clip(self.own.share * state.growth[0], -1, 1))
        return inputs[..., -1].astype(np.float64) * float(grown)

    def pack(self, state):
        return state.growth

    def unpack(self, vector):
        self.refuse_length(vector, 1)
        return Drift_(vector)
'''
MODEL = """
from torch import nn


def make_narrow(window):
    return nn.Sequential(nn.Linear(window, 2), nn.ReLU(), nn.Linear(2, 1))
"""


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment with a second package that brings a learner and a model."""
    return lay_package(
        tmp_path_factory.mktemp("site"),
        "drifting",
        {"drifting": LEARNER, "drifting_models": MODEL},
        {
            "epifed.learners": {"drift": "drifting:Drift"},
            "epifed.models": {"narrow": "drifting_models:make_narrow"},
        },
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "country"
    write(simulate(SimulationSettings.of(counties=12, communities=24, days=100)), folder)
    return folder


def python(environment: dict[str, str], folder: Path, code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=environment, cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def epifed(environment: dict[str, str], folder: Path, *arguments: str) -> str:
    return commands.epifed(*arguments, expect=0, environment=environment, folder=folder).stdout


def test_the_learner_keeps_the_rules(other: dict[str, str], tmp_path: Path) -> None:
    code = """
import sys
from epifed.testing import check_learner
check_learner("drift")
check_learner("drift", share=1.0)
check_learner("fedavg", model="narrow", epochs=2)
"""
    python(other, tmp_path, code)


@pytest.mark.parametrize(
    "settings",
    ['learner = "drift"\nshare = 0.8', 'model = "narrow"'],
)
def test_a_run_with_two_workers(
    other: dict[str, str], data: Path, tmp_path: Path, settings: str
) -> None:
    quick = "" if "drift" in settings else "\nepochs = 2\nrounds = 3"
    (tmp_path / "own.toml").write_text(f"{settings}{quick}\n")
    common = ["--data", str(data), "--settings", "own.toml", "--epsilon", "2", "--runs", "2"]
    for workers in ("1", "2"):
        epifed(other, tmp_path, "run", *common, "--workers", workers, "--out", workers)
    tables = [json.loads((tmp_path / w / "manifest.json").read_text()) for w in ("1", "2")]
    assert tables[0]["data"] == tables[1]["data"]
    code = """
import polars as pl
one, two = (pl.read_parquet(f"{w}/runs.parquet") for w in "12")
same = [name for name in one.columns if "seconds" not in name]
assert len(one) > 2 and one.select(same).equals(two.select(same)), (one, two)
"""
    python(other, tmp_path, code)


def test_a_backtest_and_a_release(other: dict[str, str], data: Path, tmp_path: Path) -> None:
    epifed(
        other, tmp_path, "backtest", "--data", str(data), "--from", "2020-11-10", "--to",
        "2020-12-05", "--learner", "drift", "--epsilon", "2", "--workers", "2", "--out", "back",
    )  # fmt: skip
    epifed(
        other, tmp_path, "train", "--data", str(data), "--learner", "drift", "--epsilon", "2",
        "--seeded", "--out", "drift.model",
    )  # fmt: skip
    epifed(other, tmp_path, "forecast", "drift.model", "--data", str(data))


@pytest.mark.parametrize(
    "settings",
    [
        'model = "narrow"\nrounds = 2\nepochs = 1',
        'learner = "drift"\nshare = 0.8',
    ],
)
def test_sites_of_a_federation_find_the_installed_code(
    other: dict[str, str], tmp_path: Path, settings: str
) -> None:
    (tmp_path / "x.toml").write_text(f"{settings}\n")
    text = epifed(
        other, tmp_path, "federation", "rehearse", "--sites", "2", "--clients", "8",
        "--settings", "x.toml", "--out", "rehearsal", "--json",
    )  # fmt: skip
    found = json.loads(text)
    assert found["sites_with_model"] == 2
    assert found["largest_difference"] < 1e-5
    report = (tmp_path / "rehearsal" / "kits" / "server" / "trainings").rglob("report.jsonl")
    rounds = [json.loads(line) for path in report for line in path.read_text().splitlines()]
    assert [line["problems"] for line in rounds] == [[]] * found["rounds"]
    kits = tmp_path / "rehearsal" / "kits"
    assert not [path for path in kits.rglob("*") if path.name.startswith("drifting")]
