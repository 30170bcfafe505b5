import math

import numpy as np
import pytest
import torch
from torch import Tensor

from epifed.errors import EpifedError
from epifed.learners.fedavg import FedAvg
from epifed.privacy.accounting import calibrate
from epifed.privacy.noise import SeededNoise
from epifed.protocol import sample_clients
from epifed.seeds import seed_sequence
from epifed.training import train
from epifed.windows import Windows
from tests.helpers import small_clients, small_settings


def algorithm_1(settings, clients, seeds) -> tuple[Tensor, list[int]]:  # type: ignore[no-untyped-def]
    """The paper's pseudocode, line by line, with its own arithmetic."""
    initial, sampling, noise = seeds.spawn(3)
    learner = FedAvg(settings)
    w = learner.start(initial)
    rng, source = np.random.default_rng(sampling), SeededNoise(noise)
    m, N = settings.clients_per_round, len(clients)
    c = calibrate(settings.epsilon, settings.delta, m / N, settings.rounds).noise_multiplier
    sizes = []
    for _ in range(settings.rounds):
        K = sample_clients(rng, N, m, settings.sampler)
        U = []
        for k in K:
            delta = learner.contribute(w, clients.train.of(np.array([k])))[0]
            if settings.private:
                delta = delta / max(1.0, float(delta.norm()) / settings.clip_norm)
            U.append(delta)
        xi = source.draw(len(w))
        w = w + sum(U, torch.zeros_like(w)) / m
        if settings.private:
            w = w + settings.clip_norm * c / m * xi
        sizes.append(len(K))
    return w, sizes


@pytest.mark.parametrize("changes", [
    {"epsilon": 2.0}, {"epsilon": math.inf}, {"epsilon": math.inf, "sampler": "fixed"},
    {"epsilon": 5.0, "model": "mlp"},
])  # fmt: skip
def test_the_engine_is_algorithm_1(changes: dict[str, object]) -> None:
    settings = small_settings(**changes)
    clients = small_clients(settings)
    training = train(clients, settings, seeds=seed_sequence(1, "a"))
    expected, sizes = algorithm_1(settings, clients, seed_sequence(1, "a"))
    torch.testing.assert_close(training.state, expected, atol=1e-5, rtol=1e-4)
    assert list(training.cohort_sizes) == sizes


def test_the_same_seed_gives_the_same_weights_and_another_does_not() -> None:
    settings = small_settings(epsilon=2.0)
    clients = small_clients(settings)
    one, two = (train(clients, settings, seeds=seed_sequence(0, "x")) for _ in range(2))
    other = train(clients, settings, seeds=seed_sequence(0, "y"))
    assert torch.equal(one.state, two.state)
    assert not torch.equal(one.state, other.state)


class Silent:
    """A learner whose clients send zeros: what is left is the noise."""

    def start(self, seeds: np.random.SeedSequence) -> Tensor:
        return torch.zeros(20_000)

    def contribute(self, state: Tensor, windows: Windows) -> Tensor:
        return torch.zeros(len(windows), len(state))

    def step(self, state: Tensor, release: Tensor, noise_std: float) -> Tensor:
        return state + release

    def predict(self, state: Tensor, inputs: Tensor) -> Tensor:
        return inputs[..., -1]


def test_every_round_adds_noise_of_the_calibrated_size_even_when_nobody_comes() -> None:
    settings = small_settings(epsilon=1.0, clients_per_round=1, rounds=25)
    clients = small_clients(settings)
    states: list[Tensor] = []
    training = train(clients, settings, learner=Silent(), watch=lambda _, w: states.append(w))
    assert 0 in training.cohort_sizes
    sigma = settings.clip_norm * training.calibration.noise_multiplier / 1
    steps = torch.stack(states).diff(dim=0)
    assert len(steps) == settings.rounds
    for step in steps:
        assert float(step.std()) == pytest.approx(sigma, rel=0.03)
        assert abs(float(step.mean())) < 5 * sigma / math.sqrt(20_000)
    correlation = np.corrcoef(steps.numpy()) - np.eye(len(steps))
    assert abs(correlation).max() < 6 / math.sqrt(20_000)


def test_training_without_privacy_learns() -> None:
    settings = small_settings(epsilon=math.inf, rounds=30, epochs=20, learning_rate=0.01)
    clients = small_clients(settings)
    seeds = seed_sequence(0)
    truth = clients.test.targets
    before = FedAvg(settings).predict(
        FedAvg(settings).start(seed_sequence(0).spawn(1)[0]), torch.from_numpy(clients.test.inputs)
    )
    after = train(clients, settings, seeds=seeds).predict(clients.test.inputs)
    assert np.square(after - truth).mean() < 0.2 * np.square(before.numpy() - truth).mean()


def test_more_clients_a_round_than_clients_are_refused() -> None:
    settings = small_settings(clients_per_round=13)
    with pytest.raises(EpifedError, match="found 13 of 12 clients"):
        train(small_clients(settings), settings)


def test_a_training_continues_from_the_state_of_an_earlier_one() -> None:
    settings = small_settings(epsilon=math.inf, clients_per_round=12, rounds=2)
    clients = small_clients(settings)
    half = train(clients, settings)
    whole = train(clients, settings.but(rounds=4))
    continued = train(clients, settings, start=half.state)
    torch.testing.assert_close(continued.state, whole.state)
