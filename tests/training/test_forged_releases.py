"""Release files that somebody forged: each is refused in a sentence, at once."""

import io
import json
import math
import zipfile
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from epifed.cli.app import app
from epifed.errors import EpifedError
from epifed.learners.base import make_learner
from epifed.privacy.plan import PrivacyPlan, Spent, price_together
from epifed.settings import Settings, of_training
from epifed.training.release import ABOUT, MOST_MECHANISMS, STATE, Release, read_release

SETTINGS = Settings.of(learner="trend", rounds=1, clients_per_round=6, epsilon=1.0)
WRONG = "0" * 64


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """An honest one."""
    learner = make_learner(SETTINGS)
    made = Release.of(
        learner, learner.start(of_training(0)[0]), PrivacyPlan.of(SETTINGS, 12), paid=1,
        period=(date(2026, 1, 1), date(2026, 3, 1)), randomness="secure", ledger_run="20260301-ab",
    )  # fmt: skip
    made.write(tmp_path / "honest.epifed")
    return tmp_path / "honest.epifed"


def _npy(vector: Any) -> bytes:
    content = io.BytesIO()
    np.save(content, vector, allow_pickle=True)
    return content.getvalue()


def forge(path: Path, state: bytes | None = None, **changes: Any) -> Path:
    """The same file with another label or state, and the hash that fits where one can be made."""
    with zipfile.ZipFile(path) as file:
        about = json.loads(file.read(ABOUT)) | changes
        state = state if state is not None else file.read(STATE)
    forged = path.with_name("forged.epifed")

    def write() -> None:
        with zipfile.ZipFile(forged, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr(ABOUT, json.dumps(about))
            file.writestr(STATE, state)

    write()
    if "sha256" not in changes:
        try:
            read_release(forged)
        except EpifedError as error:
            if "found content with the hash" in str(error):
                about["sha256"] = _true_hash(about, state)
                write()
    return forged


def _true_hash(about: dict[str, Any], state: bytes) -> str:
    said = {**about, "settings": Settings.from_toml(about["settings"])}
    said |= {day: date.fromisoformat(about[day]) for day in ("first_day", "last_day")}
    said["spent"] = tuple(Spent(**one) for one in about["spent"])
    said.pop("kind")
    return Release(vector=np.load(io.BytesIO(state)), **said).content_hash()


ODD: list[dict[str, Any]] = [
    {"clients": "12"}, {"clients": True}, {"clients": -3}, {"clients": 10**30}, {"clients": None},
    {"clients": 1.5}, {"spent": []}, {"spent": {}}, {"spent": "x"}, {"spent": [1]},
    {"spent": [{"sampling_rate": 2.0, "noise_multiplier": 1.0, "rounds": 1}]},
    {"spent": [{"sampling_rate": 0.5, "noise_multiplier": math.nan, "rounds": 1}]},
    {"spent": [{"sampling_rate": 0.5, "noise_multiplier": -1.0, "rounds": 1}]},
    {"spent": [{"sampling_rate": 0.5, "noise_multiplier": 1.0, "rounds": -1}]},
    {"spent": [{"sampling_rate": 0.5, "noise_multiplier": 1.0, "rounds": 1, "more": 1}]},
    {"randomness": "SECURE"}, {"randomness": ["secure"]}, {"ledger_run": 7},
    {"ledger_run": "\x1b]0;owned\x07"}, {"continues": "\x1b[31m"}, {"continues": 1},
    {"created": 5}, {"created": "yesterday"}, {"created": "\x1b[2J"}, {"epifed": "9\x1b[2J"},
    {"epifed": 9}, {"settings": 5}, {"settings": "learner = 5"}, {"settings": "\x1b[31m"},
    {"settings": "window = 1000000"}, {"settings": "a = " + "[" * 100_000},
    {"first_day": 5}, {"first_day": "2027-01-01"}, {"last_day": None}, {"last_day": "2026-02-31"},
    {"sha256": None}, {"sha256": WRONG}, {"kind": ["epifed release 2"]}, {"more": 1},
    {"vector": [1.0]},
]  # fmt: skip


@pytest.mark.parametrize("changes", ODD, ids=[json.dumps(one)[:60] for one in ODD])
def test_odd_labels_are_refused_in_a_sentence(release: Path, changes: dict[str, Any]) -> None:
    forged = forge(release, **changes)
    with pytest.raises(EpifedError) as caught:
        read_release(forged)
    sentence = str(caught.value)
    assert "expected" in sentence and len(sentence) < 1000
    assert sentence.isprintable()
    shown = CliRunner().invoke(app, ["explain", str(forged)])
    assert isinstance(shown.exception, EpifedError)
    assert "\x1b" not in shown.output


@pytest.mark.parametrize(
    "state",
    [
        _npy(np.full(9, np.nan, np.float32)),
        _npy(np.array([1, np.inf], np.float32)),
        _npy(np.ones((3, 3), np.float32)),
        _npy(np.ones(9)),
        _npy(np.array([{}], object)),
        _npy(np.float32(1)),
        b"",
        b"\x93NUMPY\x01\x00\x10\x00{'descr':(((((((",
        b"\x93NUMPY\x09\x00",
        b"PK\x03\x04",
    ],
)
def test_states_that_are_no_numbers_are_refused(release: Path, state: bytes) -> None:
    with pytest.raises(EpifedError, match="expected a release"):
        read_release(forge(release, state))


def test_a_small_file_that_unpacks_to_a_large_one_is_refused(release: Path) -> None:
    bomb = forge(release, _npy(np.zeros(10_000_000, np.float32)))
    assert bomb.stat().st_size < 100_000
    with pytest.raises(EpifedError, match="expected at most"):
        read_release(bomb, most_numbers=1_000_000)
    with pytest.raises(EpifedError, match="expected at most"):
        read_release(forge(release, settings="#" * 2_000_000))


def test_hundreds_of_different_releases_inside_one_are_refused_before_they_are_priced(
    release: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def priced(*_: object) -> None:
        raise AssertionError("something was priced")

    monkeypatch.setattr("epifed.privacy.plan.epsilon_of", priced)
    spent = [
        {"sampling_rate": 0.5, "noise_multiplier": 1.0 + i / 1000, "rounds": 1}
        for i in range(MOST_MECHANISMS + 1)
    ]
    with pytest.raises(EpifedError, match=f"rounds of {MOST_MECHANISMS + 1} different noises"):
        read_release(forge(release, spent=spent))


def test_equal_releases_are_priced_together_however_many(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [Spent(0.5, 3.0, 2)] * 50 + [Spent(1.0, 9.0, 1)] * 2
    together = price_together([Spent(0.5, 3.0, 100), Spent(1.0, 9.0, 2)], 1e-5, "rdp")
    assert price_together(many, 1e-5, "rdp") == pytest.approx(together, rel=1e-12)
