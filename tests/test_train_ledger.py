"""A training that a ledger pays for: refused before round 1, paid before noise, labelled."""

import io
import json
import math
import zipfile
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from epifed import windows
from epifed.errors import EpifedError
from epifed.ledger.budget import Cap
from epifed.ledger.ledger import Ledger, OverspendError
from epifed.privacy.mechanism import Rows
from epifed.privacy.plan import PrivacyPlan
from epifed.privacy.randomness import SecureRandomness
from epifed.release import Release, read_release
from epifed.training import train
from tests.helpers import START, small_clients, small_settings

OCTOBER = (START, START + timedelta(days=30))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "budget.ledger", Cap(2.5, 1e-5, "rdp"))


def test_every_round_is_paid_before_its_noise_is_drawn(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = small_settings(epsilon=2.0)
    paid: list[int] = []
    drawn = SecureRandomness.release

    def release(self: SecureRandomness, updates: Rows, plan: PrivacyPlan) -> Rows:
        (record,) = ledger.book().runs.values()
        paid.append(record.spent)
        return drawn(self, updates, plan)

    monkeypatch.setattr(SecureRandomness, "release", release)
    view = small_clients(settings).view
    training = train(view, settings, secure=True, ledger=ledger, period=OCTOBER)
    assert paid == [1, 2, 3, 4]
    (record,) = ledger.book().runs.values()
    assert record.run == training.ledger_run
    assert record.spent == settings.rounds
    assert (record.first_day, record.last_day) == OCTOBER
    assert training.randomness == "secure"


def test_a_training_that_does_not_fit_is_refused_before_the_first_round(ledger: Ledger) -> None:
    settings = small_settings(epsilon=2.0)
    view = small_clients(settings).view
    train(view, settings, ledger=ledger)
    seen: list[int] = []
    with pytest.raises(OverspendError):
        train(view, settings, ledger=ledger, watch=lambda i, _: seen.append(i))
    assert seen == []
    assert len(ledger.book().runs) == 1


def test_a_training_that_breaks_off_pays_for_the_rounds_it_drew(ledger: Ledger) -> None:
    settings = small_settings(epsilon=2.0)

    def stop(i: int, _: Any) -> None:
        if i == 2:
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        train(small_clients(settings).view, settings, ledger=ledger, watch=stop)
    (record,) = ledger.book().runs.values()
    assert record.spent == 2


def test_secure_trainings_differ_though_their_seeds_are_the_same() -> None:
    settings = small_settings(epsilon=2.0)
    view = small_clients(settings).view
    one, two = (train(view, settings, secure=True).vector for _ in range(2))
    assert not np.array_equal(one, two)
    assert np.isfinite(one).all()


def test_without_privacy_there_is_nothing_to_release_securely(ledger: Ledger) -> None:
    settings = small_settings(epsilon=math.inf)
    for options in ({"secure": True}, {"ledger": ledger}):
        with pytest.raises(EpifedError, match="found inf; expected a finite budget"):
            train(small_clients(settings).view, settings, **options)


@pytest.mark.parametrize(
    ("changes", "secure", "words"),
    [
        ({"epsilon": 2.0}, True, "(ε = 2, δ = 1e-05)-differential privacy, one of 12 clients"),
        ({"epsilon": 2.0}, False, "SEEDED: its noise is predictable, not for release"),
        ({"epsilon": math.inf}, False, "without differential privacy"),
    ],
)
def test_a_release_file_says_what_it_is(
    tmp_path: Path, changes: dict[str, float], secure: bool, words: str
) -> None:
    settings = small_settings(**changes)
    clients = small_clients(settings)
    training = train(clients.view, settings, secure=secure)
    path = tmp_path / "a.epifed"
    Release.of_training(training, OCTOBER).write(path)
    release = read_release(path)
    assert words in release.sentence()
    assert release.settings == settings
    np.testing.assert_array_equal(
        release.learner.predict(release.state_on(release.last_day), clients.test.inputs),
        training.predict(clients.test.inputs),
    )


def test_a_changed_or_foreign_release_file_is_refused(tmp_path: Path) -> None:
    settings = small_settings(epsilon=2.0)
    training = train(small_clients(settings).view, settings)
    path = tmp_path / "a.epifed"
    changed = replace(training, state=training.learner.unpack(training.vector + 1))
    forged = Release.of_training(changed, OCTOBER)
    object.__setattr__(forged, "sha256", training.state_hash)
    forged.write(path)
    with pytest.raises(EpifedError, match="the file was changed"):
        read_release(path)
    path.write_bytes(b"PK nonsense")
    with pytest.raises(EpifedError, match="expected a release by 'epifed train'"):
        read_release(path)
    with pytest.raises(EpifedError, match="cannot be read"):
        read_release(tmp_path / "nowhere")


def test_the_last_day_is_what_was_written_not_what_is_recomputed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.epifed"
    for share in (0.5, 0.9):
        settings = small_settings(train_share=share)
        training = train(small_clients(settings).view, settings)
        Release.of_training(training, OCTOBER).write(path)
        with monkeypatch.context() as patch:
            patch.setattr(windows, "last_learned", lambda *_: START)
            release = read_release(path)
            assert (release.first_day, release.last_day) == OCTOBER
            assert release.age_on(OCTOBER[1] + timedelta(days=3)) == 3


def test_a_file_of_the_first_version_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path, weights = tmp_path / "old.model", io.BytesIO()
    np.save(weights, np.zeros(11, dtype=np.float32))
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("model.json", json.dumps({"kind": "epifed model 1", "epsilon": "2.0"}))
        file.writestr("weights.npy", weights.getvalue())
    with pytest.raises(EpifedError, match=r"old\.model: found 'epifed model 1'.*train it again"):
        read_release(path)
