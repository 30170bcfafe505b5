import math
from dataclasses import replace

import numpy as np
import pytest

from epifed.errors import EpifedError
from epifed.evaluation.metrics import DAMPING, baseline, beside, persistence, pooled_linear, scores
from epifed.settings import Settings
from tests.helpers import small_clients, small_settings

PAPER = small_settings(model="mlp", rounds=2)


def test_the_network_s_baselines_stand_beside_the_paper_s_learner_only() -> None:
    always = ("persistence", "damped trend", "pooled linear")
    assert beside(PAPER, communities=False) == (*always, "central MLP", "local MLP")
    assert beside(Settings.for_learner("one-shot", 12), communities=False) == always
    scale_free = Settings.for_learner("fedavg", 12, model="scale-free linear")
    assert beside(scale_free, communities=True) == (*always, "zero", "county share")


@pytest.mark.parametrize("name", beside(PAPER, communities=False))
def test_a_baseline_forecasts_every_test_window_and_never_sees_its_target(name: str) -> None:
    settings = PAPER
    clients = small_clients(settings)
    seeds = [np.random.SeedSequence(1) for _ in range(2)]
    first = baseline(name, settings)(clients, settings, seeds[0])
    assert first.shape == clients.test.targets.shape
    assert np.isfinite(first).all()
    clients.test.targets[:] = 1e9
    np.testing.assert_array_equal(baseline(name, settings)(clients, settings, seeds[1]), first)


def test_persistence_is_the_last_day_of_the_window() -> None:
    settings = small_settings(smoothing="none")
    clients = small_clients(settings)
    got = persistence(clients, settings, np.random.SeedSequence(0))
    np.testing.assert_array_equal(got, clients.test.inputs[:, :, -1])


def test_damped_trend_on_exponential_growth() -> None:
    settings = small_settings()
    clients = small_clients(settings)
    growth = 0.05
    clients.test.inputs[:] = 1e4 * np.exp(growth * np.arange(10)) - 1
    got = baseline("damped trend", settings)(clients, settings, np.random.SeedSequence(0))
    last = 1e4 * math.exp(growth * 9) - 1
    np.testing.assert_allclose(got, last * math.exp(DAMPING * 7 * growth), rtol=1e-4)


def test_pooled_linear_finds_an_exact_linear_rule() -> None:
    settings = small_settings()
    clients = small_clients(settings)
    weights = np.linspace(-1, 1, 10)
    for windows in (clients.train, clients.test):
        windows.targets[:] = windows.inputs @ weights + 3
    got = pooled_linear(clients, settings, np.random.SeedSequence(0))
    assert scores(clients.test.targets.astype(float), got)["r2"] == pytest.approx(1, abs=1e-6)


def test_local_models_differ_between_clients() -> None:
    settings = small_settings(model="mlp", rounds=8, epochs=30, learning_rate=0.01)
    clients = small_clients(settings)
    clients.test.inputs[:] = clients.test.inputs[0, 0]
    got = baseline("local MLP", settings)(clients, settings, np.random.SeedSequence(0))
    assert got[:, 0].std() > 0.1


def test_county_share_is_the_county_s_last_day_by_population() -> None:
    settings = small_settings(smoothing="none")
    clients = small_clients(settings)
    population = np.arange(1, 13) * 100
    nested = replace(clients, parents=("a",) * 5 + ("b",) * 7, population=population)
    got = baseline("county share", settings)(nested, settings, np.random.SeedSequence(0))
    last = clients.test.inputs[..., -1].astype(float)
    expected = last[5:].sum(axis=0) * population[7] / population[5:].sum()
    np.testing.assert_allclose(got[7], expected)
    np.testing.assert_allclose(got.sum(axis=0), last.sum(axis=0))
    assert (baseline("zero", settings)(nested, settings, np.random.SeedSequence(0)) == 0).all()


@pytest.mark.parametrize(
    ("split", "parents", "words"),
    [("temporal", (), "no counties above"), ("shuffled", ("a",) * 12, "out of step")],
)
def test_county_share_needs_communities_in_step(
    split: str, parents: tuple[str, ...], words: str
) -> None:
    settings = small_settings(split=split)
    nested = replace(small_clients(settings), parents=parents)
    with pytest.raises(EpifedError, match=words):
        baseline("county share", settings)(nested, settings, np.random.SeedSequence(0))
