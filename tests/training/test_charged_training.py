"""A training that a ledger pays for: refused before round 1, paid before noise, labelled."""

import io
import json
import math
import zipfile
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant

from epifed.errors import EpifedError
from epifed.learners import base
from epifed.learners.base import make_learner
from epifed.ledger.budget import Cap
from epifed.ledger.ledger import Ledger, OverspendError
from epifed.privacy.noise import Rows, SecureRandomness
from epifed.privacy.plan import PrivacyPlan, Spent
from epifed.settings import Settings
from epifed.training.loop import Training, train
from epifed.training.release import Release, read_release
from tests.helpers import START, small_clients, small_panel, small_settings

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
    train(view, settings, ledger=ledger, period=OCTOBER)
    seen: list[int] = []
    with pytest.raises(OverspendError):
        train(view, settings, ledger=ledger, period=OCTOBER, watch=lambda i, _: seen.append(i))
    assert seen == []
    assert len(ledger.book().runs) == 1


def test_without_the_library_of_the_noise_nothing_is_paid(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("epifed.privacy.noise.find_spec", lambda _: None)
    settings = small_settings(epsilon=2.0)
    view = small_clients(settings).view
    with pytest.raises(EpifedError, match=r"found no OpenDP.*pip install epifed\[release\]"):
        train(view, settings, ledger=ledger, period=OCTOBER)
    assert not ledger.book().runs
    assert train(view, settings, period=OCTOBER).randomness == "seeded"


def test_a_training_that_breaks_off_pays_for_the_rounds_it_drew(ledger: Ledger) -> None:
    settings = small_settings(epsilon=2.0)

    def stop(i: int, _: Any) -> None:
        if i == 2:
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        train(small_clients(settings).view, settings, ledger=ledger, period=OCTOBER, watch=stop)
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
    training = train(clients.view, settings, secure=secure, period=OCTOBER)
    path = tmp_path / "a.epifed"
    _release(training).write(path)
    release = read_release(path)
    assert words in release.sentence()
    assert release.settings == settings
    np.testing.assert_array_equal(
        release.learner.predict(release.state_on(release.last_day), clients.test.inputs),
        training.predict(clients.test.inputs),
    )


def _release(training: Training) -> Release:
    assert training.release is not None
    return training.release


@pytest.mark.parametrize(
    "change",
    [
        lambda r: {"vector": r.vector + 1},
        lambda r: {"spent": (Spent(0.5, 1e5, 1),)},
        lambda r: {"randomness": "secure"},
        lambda r: {"settings": r.settings.but(delta=1e-9)},
        lambda r: {"clients": 400},
        lambda r: {"last_day": r.last_day + timedelta(days=7)},
        lambda r: {"ledger_run": "20201101-00000000"},
        lambda r: {"continues": None, "epifed": "0.0"},
    ],
)
def test_a_release_of_which_anything_was_changed_is_refused(
    tmp_path: Path, change: Callable[[Release], dict[str, Any]]
) -> None:
    settings = small_settings(epsilon=2.0)
    release = _release(train(small_clients(settings).view, settings, period=OCTOBER))
    path = tmp_path / "a.epifed"
    replace(release, **change(release)).write(path)
    with pytest.raises(EpifedError, match="the file was changed"):
        read_release(path)


def test_a_foreign_or_swollen_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.epifed"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("release.json", " " * (5 * 2**20))
        file.writestr("state.npy", b"")
    assert path.stat().st_size < 10_000
    with pytest.raises(EpifedError, match=r"bytes of release\.json; expected at most"):
        read_release(path)
    path.write_bytes(b"PK nonsense")
    with pytest.raises(EpifedError, match="found another or a damaged file; expected a release"):
        read_release(path)
    with pytest.raises(EpifedError, match="cannot be read"):
        read_release(tmp_path / "nowhere")


def test_the_last_day_is_what_was_written_not_what_is_recomputed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.epifed"
    for share in (0.5, 0.9):
        settings = small_settings(train_share=share)
        _release(train(small_clients(settings).view, settings, period=OCTOBER)).write(path)
        with monkeypatch.context() as patch:
            patch.setattr(base, "last_learned", lambda *_: START)
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


def _weekly(epsilon: float, week: int, **how: Any) -> Release:
    """A training of the shared trend on the days up to a week."""
    panel = small_panel(regions=40, days=60)
    settings = Settings.for_learner("trend", 40, epsilon=epsilon)
    period = (panel.start, panel.start + timedelta(days=13 + 7 * week))
    view = make_learner(settings).deployed_view(panel, period)
    return _release(train(view, settings, period=period, **how))


def test_six_weekly_releases_in_one_file_cost_what_six_cost(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "year.ledger", Cap(10.0, 1e-5, "pld"))
    release = None
    for week in range(6):
        release = _weekly(1.0, week, ledger=ledger, earlier=release)
    assert release is not None
    assert len(release.spent) == 6
    independent = PLDAccountant(dp.NeighboringRelation.ADD_OR_REMOVE_ONE, 1e-4)
    for spent in release.spent:
        independent.compose(dp.GaussianDpEvent(spent.noise_multiplier))
    truth = float(independent.get_epsilon(1e-5))
    assert truth == pytest.approx(2.71, abs=0.005)
    assert release.epsilon == pytest.approx(truth, rel=1e-3)
    assert "composed of the 6 releases inside it" in release.sentence()
    assert "ε = 2.7" in release.sentence()


def test_a_noise_free_state_never_gets_a_private_label(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "fed.ledger", Cap(1.0, 1e-5, "pld"))
    noiseless = _weekly(math.inf, 0)
    with pytest.raises(EpifedError, match="noise is predictable or absent"):
        _weekly(0.05, 1, ledger=ledger, earlier=noiseless)
    assert ledger.book().runs == {}
    research = _weekly(0.05, 1, earlier=noiseless)
    assert math.isinf(research.epsilon)
    assert research.sentence().startswith("trained without differential privacy")


def test_only_what_this_ledger_paid_for_is_continued(tmp_path: Path) -> None:
    one, two = (Ledger.create(tmp_path / name, Cap(10.0, 1e-5, "pld")) for name in ("one", "two"))
    seeded, honest = _weekly(1.0, 0), _weekly(1.0, 0, ledger=one)
    with pytest.raises(EpifedError, match="noise is predictable or absent"):
        _weekly(1.0, 1, ledger=one, earlier=seeded)
    with pytest.raises(EpifedError, match=r"not in the ledger .*two"):
        _weekly(1.0, 1, ledger=two, earlier=honest)
    relabelled = replace(honest, spent=(Spent(1.0, 1e5, 1),))
    relabelled = replace(relabelled, sha256=relabelled.content_hash())
    relabelled.write(tmp_path / "r")
    assert not read_release(tmp_path / "r").verified_by(one), "anybody can write a label"
    with pytest.raises(EpifedError, match=r"not in the ledger .*one"):
        _weekly(1.0, 1, ledger=one, earlier=relabelled)
    assert honest.verified_by(one)
    assert _weekly(1.0, 1, ledger=one, earlier=honest).continues == honest.sha256
    assert _weekly(1.0, 1, earlier=honest).randomness == "seeded"


def test_both_prices_are_said_where_sampling_makes_two() -> None:
    settings = small_settings(epsilon=2.0, clients_per_round=3)
    release = _release(train(small_clients(settings).view, settings, period=OCTOBER))
    assert release.epsilon == pytest.approx(2.0, rel=1e-4)
    assert release.epsilon_without_amplification > 2 * release.epsilon
    assert "against whoever sees who was drawn" in release.sentence()
    assert "whoever sees" not in _weekly(1.0, 0).sentence()
