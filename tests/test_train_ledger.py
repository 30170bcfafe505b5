"""A training that a ledger pays for: refused before round 1, paid before noise, labelled."""

import math
from datetime import date
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from epifed import training as engine
from epifed.errors import EpifedError
from epifed.ledger.budget import Cap
from epifed.ledger.ledger import Ledger, OverspendError
from epifed.privacy.randomness import SecureRandomness
from epifed.release import Model, read_model
from epifed.training import train
from tests.helpers import small_clients, small_settings


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "budget.ledger", Cap(2.5, 1e-5, "rdp"))


def test_every_round_is_paid_before_its_noise_is_drawn(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = small_settings(epsilon=2.0)
    paid: list[int] = []
    drawn = SecureRandomness.release

    def release(self: SecureRandomness, updates: Tensor, **kwargs: float) -> Tensor:
        (record,) = ledger.book().runs.values()
        paid.append(record.spent)
        return drawn(self, updates, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(SecureRandomness, "release", release)
    days = date(2020, 10, 1), date(2020, 10, 31)
    training = train(small_clients(settings), settings, secure=True, ledger=ledger, days=days)
    assert paid == [1, 2, 3, 4]
    (record,) = ledger.book().runs.values()
    assert record.run == training.ledger_run
    assert (record.first_day, record.last_day) == days
    assert record.spent == settings.rounds
    assert training.randomness == "secure"


def test_a_training_that_does_not_fit_is_refused_before_the_first_round(ledger: Ledger) -> None:
    settings = small_settings(epsilon=2.0)
    clients = small_clients(settings)
    train(clients, settings, ledger=ledger)
    seen: list[int] = []
    with pytest.raises(OverspendError):
        train(clients, settings, ledger=ledger, watch=lambda i, _: seen.append(i))
    assert seen == []
    assert len(ledger.book().runs) == 1


def test_a_training_that_breaks_off_pays_for_the_rounds_it_drew(ledger: Ledger) -> None:
    settings = small_settings(epsilon=2.0)

    def stop(i: int, _: Tensor) -> None:
        if i == 2:
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        train(small_clients(settings), settings, ledger=ledger, watch=stop)
    (record,) = ledger.book().runs.values()
    assert record.spent == 2


def test_secure_trainings_differ_though_their_seeds_are_the_same() -> None:
    settings = small_settings(epsilon=2.0)
    clients = small_clients(settings)
    one, two = (train(clients, settings, secure=True).state for _ in range(2))
    assert not torch.equal(one, two)
    assert torch.isfinite(one).all()


def test_without_privacy_there_is_nothing_to_release_securely(ledger: Ledger) -> None:
    settings = small_settings(epsilon=math.inf)
    for options in ({"secure": True}, {"ledger": ledger}):
        with pytest.raises(EpifedError, match="found inf; expected a finite budget"):
            train(small_clients(settings), settings, **options)


@pytest.mark.parametrize(
    ("changes", "secure", "words"),
    [
        ({"epsilon": 2.0}, True, "(ε = 2, δ = 1e-05)-differential privacy, one of 12 clients"),
        ({"epsilon": 2.0}, False, "SIMULATED: its noise is seeded and predictable"),
        ({"epsilon": math.inf}, False, "without differential privacy"),
    ],
)
def test_a_model_file_says_what_it_is(
    tmp_path: Path, changes: dict[str, float], secure: bool, words: str
) -> None:
    settings = small_settings(**changes)
    clients = small_clients(settings)
    training = train(clients, settings, secure=secure)
    path = tmp_path / "a.model"
    Model.of(training, len(clients), "October").write(path)
    model = read_model(path)
    assert words in model.sentence()
    assert model.settings == settings
    np.testing.assert_array_equal(
        model.predict(clients.test.inputs), training.predict(clients.test.inputs)
    )


def test_a_changed_or_foreign_model_file_is_refused(tmp_path: Path) -> None:
    settings = small_settings(epsilon=2.0)
    clients = small_clients(settings)
    training = train(clients, settings)
    path = tmp_path / "a.model"
    Model.of(training, len(clients), "October").write(path)
    changed = engine.Training(
        training.state + 1, training.learner, settings, training.calibration, (), "secure"
    )
    forged = Model.of(changed, len(clients), "October")
    object.__setattr__(forged, "sha256", training.model_hash)
    forged.write(path)
    with pytest.raises(EpifedError, match="the file was changed"):
        read_model(path)
    path.write_bytes(b"PK nonsense")
    with pytest.raises(EpifedError, match="expected a model by 'epifed train'"):
        read_model(path)
    with pytest.raises(EpifedError, match="cannot be read"):
        read_model(tmp_path / "nowhere")
