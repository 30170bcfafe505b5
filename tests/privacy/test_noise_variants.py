"""Who adds the noise: how much of it a release carries, what it costs, and what is said of it."""

import math

import numpy as np
import pytest

from epifed.errors import EpifedError
from epifed.learners.base import Floats, Vector, WindowLearner, Windows
from epifed.privacy.accounting import spent
from epifed.privacy.plan import TRUST, PrivacyPlan, Spent, price_together
from epifed.settings import NoiseName, Settings, seed_sequence
from epifed.training.loop import train
from tests.helpers import small_clients, small_settings

LENGTH = 20_000
KINDS: list[NoiseName] = ["server", "clients", "local"]


class Silent(WindowLearner[Vector]):
    """Clients send zeros: what is left is the noise. It remembers what it was told of it."""

    name = "silent"
    length = LENGTH

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.told: list[float] = []

    def start(self, seeds: np.random.SeedSequence) -> Vector:
        return np.zeros(self.length, dtype=np.float32)

    def contribute(self, state: Vector, view: Windows) -> Vector:
        return np.zeros((len(view), self.length), dtype=np.float32)

    def step(self, state: Vector, release: Vector, noise_std: float) -> Vector:
        self.told.append(noise_std)
        return release

    def predict(self, state: Vector, inputs: Vector) -> Floats:
        return inputs[..., -1].astype(np.float64)

    def pack(self, state: Vector) -> Vector:
        return state

    def unpack(self, vector: Vector) -> Vector:
        return vector


def factor(noise: NoiseName, clients: int, came: int) -> float:
    """How many times the calibrated noise a round carries."""
    settings = small_settings(noise=noise, epsilon=1.0, clients_per_round=clients)
    plan = PrivacyPlan.of(settings, clients)
    return plan.noise_of_round(came) / plan.noise_multiplier


def expected_std(noise: NoiseName, c: float, came: int, clients: int, m: int, s: float) -> float:
    """From single clients: the variance of the sum of what each of them adds."""
    if noise == "server":
        variance = (s * c) ** 2
    elif noise == "clients":
        variance = sum((s * c) ** 2 / (clients - 1) for _ in range(clients))
    else:
        variance = sum((s * c) ** 2 for _ in range(came))
    return math.sqrt(variance) / m


@pytest.mark.parametrize("noise", KINDS)
def test_every_release_carries_the_noise_of_its_kind(noise: NoiseName) -> None:
    settings = small_settings(noise=noise, epsilon=1.0, clients_per_round=3, rounds=12)
    clients = small_clients(settings, regions=6)
    releases: list[Vector] = []
    learner = Silent(settings)
    training = train(clients.view, settings, learner=learner, watch=lambda _, w: releases.append(w))
    c, s = training.calibration.noise_multiplier, settings.clip_norm
    for released, told, came in zip(releases[1:], learner.told, training.cohort_sizes, strict=True):
        expected = expected_std(noise, c, came, 6, 3, s)
        assert told == pytest.approx(expected, abs=1e-12)
        assert float(released.std()) == pytest.approx(expected, rel=0.04, abs=1e-9)


@pytest.mark.parametrize("clients", [2, 3, 7])
def test_what_all_but_one_client_add_is_exactly_the_calibrated_noise(clients: int) -> None:
    whole = factor("clients", clients, 0) ** 2
    assert whole * (clients - 1) / clients == pytest.approx(1.0, rel=1e-12)


def test_shares_drawn_one_by_one_have_the_same_distribution() -> None:
    rng = np.random.default_rng(0)
    clients, c = 5, 2.0
    shares = rng.normal(0, c / math.sqrt(clients - 1), size=(clients, 200_000))
    assert shares.sum(axis=0).std() == pytest.approx(c * factor("clients", clients, 0), rel=0.01)
    assert shares[1:].sum(axis=0).std() == pytest.approx(c, rel=0.01)


@pytest.mark.parametrize(("noise", "rate"), [("server", 0.5), ("clients", 0.5), ("local", 1.0)])
def test_the_accountant_prices_each_at_its_own_sampling_rate(noise: NoiseName, rate: float) -> None:
    settings = small_settings(noise=noise, epsilon=1.5, clients_per_round=6, rounds=4)
    found = PrivacyPlan.of(settings, 12).calibration
    assert found.sampling_rate == rate
    cost = spent(found.noise_multiplier, rate, 4, settings.delta)
    assert found.epsilon_spent == pytest.approx(cost)
    assert 1.49 < cost <= 1.5
    assert TRUST[noise] in found.sentence()


def test_server_noise_is_what_it_always_was() -> None:
    settings = small_settings(epsilon=2.0)
    clients = small_clients(settings)
    assert settings.noise == "server"
    shared = train(clients.view, settings.but(noise="clients"), seeds=seed_sequence(3))
    plain = train(clients.view, settings, seeds=seed_sequence(3))
    assert plain.cohort_sizes == shared.cohort_sizes
    assert not np.array_equal(plain.vector, shared.vector)
    assert factor("server", 12, 6) == 1.0


def test_without_privacy_nobody_adds_noise() -> None:
    settings = small_settings(epsilon=math.inf)
    clients = small_clients(settings)
    states = [
        train(clients.view, settings.but(noise=kind), seeds=seed_sequence(0)).vector
        for kind in KINDS
    ]
    np.testing.assert_array_equal(states[0], states[1])
    np.testing.assert_array_equal(states[0], states[2])


@pytest.mark.parametrize("noise", ["clients", "local"])
def test_a_secure_training_takes_the_server_s_noise_only(noise: NoiseName) -> None:
    settings = small_settings(noise=noise, epsilon=1.0)
    with pytest.raises(EpifedError, match=f"noise: found '{noise}'; expected 'server'"):
        train(small_clients(settings).view, settings, secure=True)


def test_one_client_cannot_share_noise() -> None:
    settings = small_settings(noise="clients", epsilon=1.0, clients_per_round=1)
    with pytest.raises(EpifedError, match="found 'clients' with 1 client"):
        train(small_clients(settings, regions=1).view, settings)


def test_the_price_of_some_rounds_is_theirs_and_without_noise_there_is_none() -> None:
    plan = PrivacyPlan.of(small_settings(epsilon=1.0, rounds=4), 12)
    half = plan.price(2)
    cost = spent(plan.noise_multiplier, plan.sampling_rate, 2, plan.delta, plan.accountant)
    assert (half.rounds, half.epsilon, half.epsilon_spent) == (2, 1.0, cost)
    assert half.trust == TRUST["server"]
    assert plan.price(4) is plan.price() is plan.calibration
    free = PrivacyPlan.of(small_settings(epsilon=math.inf), 12)
    assert free.price(2) is free.calibration
    assert price_together([plan.spent(), free.spent()], 1e-5, "rdp") == math.inf
    assert price_together([Spent(0.5, 1.0, 2)], 1e-5, "rdp") == spent(1.0, 0.5, 2, 1e-5)
