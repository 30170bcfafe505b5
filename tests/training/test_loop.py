import math

import numpy as np
import pytest

from epifed.errors import EpifedError
from epifed.learners.base import Vector
from epifed.learners.fedavg import FedAvg, FedAvgState
from epifed.privacy.accounting import calibrate
from epifed.settings import seed_sequence
from epifed.training.loop import train
from tests.helpers import START, small_clients, small_panel, small_settings
from tests.privacy.test_noise_variants import Silent


def algorithm_1(settings, clients, seeds) -> tuple[Vector, list[int]]:  # type: ignore[no-untyped-def]
    """The paper's pseudocode, line by line, with its own arithmetic."""
    initial, sampling, noise = seeds.spawn(3)
    learner = FedAvg(settings)
    w = learner.start(initial).weights
    rng, source = np.random.default_rng(sampling), np.random.default_rng(noise)
    m, N = settings.clients_per_round, len(clients)
    c = calibrate(settings.epsilon, settings.delta, m / N, settings.rounds).noise_multiplier
    sizes = []
    for _ in range(settings.rounds):
        if settings.sampler == "fixed":
            K = rng.choice(N, size=m, replace=False)
        else:
            K = np.flatnonzero(rng.random(N) < m / N)
        U = []
        for k in K:
            delta = learner.contribute(FedAvgState(w, w), clients.train.of(np.array([k])))[0]
            if settings.private:
                delta = delta / max(1.0, float(np.linalg.norm(delta)) / settings.clip_norm)
            U.append(delta)
        xi = source.standard_normal(len(w), dtype=np.float32)
        w = w + sum(U, np.zeros_like(w)) / m
        if settings.private:
            w = w + np.float32(settings.clip_norm * c / m) * xi
        sizes.append(len(K))
    return w, sizes


@pytest.mark.parametrize("changes", [
    {"epsilon": 2.0}, {"epsilon": math.inf}, {"epsilon": math.inf, "sampler": "fixed"},
    {"epsilon": 5.0, "model": "mlp"},
])  # fmt: skip
def test_the_engine_is_algorithm_1(changes: dict[str, object]) -> None:
    settings = small_settings(**changes)
    clients = small_clients(settings)
    training = train(clients.view, settings, seeds=seed_sequence(1, "a"))
    expected, sizes = algorithm_1(settings, clients, seed_sequence(1, "a"))
    np.testing.assert_allclose(training.vector, expected, atol=1e-5, rtol=1e-4)
    assert list(training.cohort_sizes) == sizes


def test_the_same_seed_gives_the_same_weights_and_another_does_not() -> None:
    settings = small_settings(epsilon=2.0)
    clients = small_clients(settings)
    one, two = (train(clients.view, settings, seeds=seed_sequence(0, "x")) for _ in range(2))
    other = train(clients.view, settings, seeds=seed_sequence(0, "y"))
    np.testing.assert_array_equal(one.vector, two.vector)
    assert not np.array_equal(one.vector, other.vector)


class Adding(Silent):
    """Its state is the sum of all releases."""

    def step(self, state: Vector, release: Vector, noise_std: float) -> Vector:
        return state + release


def test_every_round_adds_noise_of_the_calibrated_size_even_when_nobody_comes() -> None:
    settings = small_settings(epsilon=1.0, clients_per_round=1, rounds=25)
    clients = small_clients(settings)
    states: list[Vector] = []
    training = train(
        clients.view, settings, learner=Adding(settings), watch=lambda _, w: states.append(w)
    )
    assert 0 in training.cohort_sizes
    sigma = settings.clip_norm * training.calibration.noise_multiplier / 1
    steps = np.diff(np.stack(states), axis=0)
    assert len(steps) == settings.rounds
    for step in steps:
        assert float(step.std()) == pytest.approx(sigma, rel=0.03)
        assert abs(float(step.mean())) < 5 * sigma / math.sqrt(20_000)
    correlation = np.corrcoef(steps) - np.eye(len(steps))
    assert abs(correlation).max() < 6 / math.sqrt(20_000)


def test_training_without_privacy_learns() -> None:
    settings = small_settings(epsilon=math.inf, rounds=30, epochs=20, learning_rate=0.01)
    clients = small_clients(settings)
    seeds = seed_sequence(0)
    truth = clients.test.targets
    before = FedAvg(settings).predict(
        FedAvg(settings).start(seed_sequence(0).spawn(1)[0]), clients.test.inputs
    )
    after = train(clients.view, settings, seeds=seeds).predict(clients.test.inputs)
    assert np.square(after - truth).mean() < 0.2 * np.square(before - truth).mean()


def test_more_clients_a_round_than_clients_are_refused() -> None:
    settings = small_settings(clients_per_round=13)
    with pytest.raises(EpifedError, match="found 13 of 12 clients"):
        train(small_clients(settings).view, settings)


def test_a_training_continues_from_the_state_of_an_earlier_one() -> None:
    settings = small_settings(epsilon=math.inf, clients_per_round=12, rounds=2)
    clients = small_clients(settings)
    days = (START, small_panel().end)
    half = train(clients.view, settings, period=days)
    whole = train(clients.view, settings.but(rounds=4))
    continued = train(clients.view, settings, earlier=half.release, period=days)
    np.testing.assert_allclose(continued.vector, whole.vector, rtol=1.3e-6, atol=1e-5)
