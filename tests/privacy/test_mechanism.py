"""The Gaussian mechanism and the draw of a cohort: clipped, divided by m, never without noise."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from epifed.errors import EpifedError
from epifed.privacy.noise import SeededRandomness, clip, release
from epifed.privacy.plan import PrivacyPlan
from epifed.settings import SamplerName


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def plan_of(clients: int, m: int, sampler: SamplerName) -> PrivacyPlan:
    return PrivacyPlan(clients, m, 4, 0.5, "server", sampler, math.inf, 1e-5, "rdp")


def seeded(seed: int) -> SeededRandomness:
    return SeededRandomness(*np.random.SeedSequence(seed).spawn(2))


@given(
    rows=st.integers(0, 6),
    length=st.integers(1, 20),
    norm=st.floats(1e-3, 1e3),
    scale=st.floats(1e-6, 1e6),
    seed=st.integers(0, 2**32 - 1),
)
def test_clip_bounds_the_whole_row_and_keeps_its_direction(
    rows: int, length: int, norm: float, scale: float, seed: int
) -> None:
    updates = np.float32(scale) * normal(rows, length, seed=seed)
    clipped = clip(updates, norm)
    assert clipped.dtype == np.float32
    for before, after in zip(updates, clipped, strict=True):
        assert np.linalg.norm(after) <= norm * (1 + 1e-5)
        long = float(np.linalg.norm(before.astype(np.float64)))
        if long <= norm:
            np.testing.assert_array_equal(before, after)
        else:
            np.testing.assert_allclose(after, before * (norm / long), rtol=1.3e-6, atol=1e-5)


def test_no_clip_norm_leaves_updates_alone() -> None:
    updates = 1e6 * normal(3, 5)
    np.testing.assert_array_equal(clip(updates, math.inf), updates)


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf, 3e38])
def test_an_update_that_is_not_finite_counts_as_zero(poison: float) -> None:
    updates = np.ones((3, 4), dtype=np.float32)
    updates[1] = poison
    clipped = clip(updates, 0.5)
    np.testing.assert_array_equal(clipped[1], np.zeros(4))
    np.testing.assert_allclose(clipped[[0, 2]], np.full((2, 4), 0.25), rtol=1.3e-6, atol=1e-5)


def test_the_sum_is_divided_by_the_fixed_m_not_by_how_many_came() -> None:
    got = release(
        np.ones((3, 2), dtype=np.float32), normal(2),
        clip_norm=math.inf, noise_multiplier=0.0, clients_per_round=100,
    )  # fmt: skip
    assert got.tolist() == pytest.approx([0.03, 0.03])


def test_a_release_is_the_clipped_mean_plus_scaled_noise() -> None:
    updates = np.array([[3.0, 4.0], [0.3, 0.4]], dtype=np.float32)
    noise = np.array([1.0, -1.0], dtype=np.float32)
    got = release(updates, noise, clip_norm=1.0, noise_multiplier=2.0, clients_per_round=10)
    mean = (np.array([0.6, 0.8]) + np.array([0.3, 0.4])) / 10
    np.testing.assert_allclose(got, mean + 0.2 * noise, rtol=1.3e-6, atol=1e-5)


def test_an_empty_round_still_releases_noise() -> None:
    noise, empty = normal(7), np.zeros((0, 7), dtype=np.float32)
    got = release(empty, noise, clip_norm=0.5, noise_multiplier=4.0, clients_per_round=100)
    np.testing.assert_allclose(got, 0.02 * noise, rtol=1.3e-6, atol=1e-5)


def test_one_client_moves_a_release_by_at_most_s_over_m() -> None:
    updates, noise = 50 * normal(9, 30), normal(30, seed=1)
    values = [
        release(u, noise, clip_norm=0.5, noise_multiplier=1.0, clients_per_round=10)
        for u in (updates, updates[1:])
    ]
    assert np.linalg.norm(values[0] - values[1]) <= 0.5 / 10 * (1 + 1e-5)


def test_noise_without_clipping_is_refused() -> None:
    with pytest.raises(ValueError, match="gives no privacy"):
        release(
            normal(1, 2), normal(2), clip_norm=math.inf, noise_multiplier=1.0, clients_per_round=1
        )


def test_poisson_sampling_is_independent_with_probability_q() -> None:
    randomness = seeded(5)
    clients, m, rounds = 40, 10, 4000
    plan = plan_of(clients, m, "poisson")
    came = np.zeros((rounds, clients), dtype=bool)
    for row in came:
        row[randomness.sample(plan)] = True
    sizes = came.sum(axis=1)
    binomial = stats.binom(clients, 0.25)
    observed = np.bincount(sizes, minlength=clients + 1)[4:17]
    expected = rounds * binomial.pmf(np.arange(4, 17))
    chi2 = ((observed - expected) ** 2 / expected).sum()
    assert chi2 < stats.chi2(len(expected)).ppf(1 - 1e-6)
    assert abs(came.mean(axis=0) - 0.25).max() < 5 * math.sqrt(0.25 * 0.75 / rounds)
    pairs = np.corrcoef(came.T) - np.eye(clients)
    assert abs(pairs).max() < 6 / math.sqrt(rounds)


@settings(max_examples=30)
@given(clients=st.integers(1, 50), m=st.integers(1, 60), seed=st.integers(0, 99))
def test_fixed_sampling_draws_exactly_m_different_clients(clients: int, m: int, seed: int) -> None:
    if m > clients:
        everybody = "1 client" if clients == 1 else f"{clients} clients"
        with pytest.raises(EpifedError, match=f"found {m} of {everybody};"):
            plan_of(clients, m, "fixed")
        return
    got = seeded(seed).sample(plan_of(clients, m, "fixed"))
    assert len(got) == len(set(got.tolist())) == m
    assert got.min() >= 0 and got.max() < clients
