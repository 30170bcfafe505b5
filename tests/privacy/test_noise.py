import math
import os
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from scipy import integrate, stats

from epifed.privacy import noise as secure
from epifed.privacy.noise import (
    ROUNDING,
    STEPS,
    SecureRandomness,
    _mechanism,
    from_grid,
    grid_deviation,
    grid_noise,
    longest_sum,
    noisy_sum,
    sample_clients,
    secure_release,
    to_grid,
)
from epifed.privacy.plan import PrivacyPlan
from tests.helpers import small_settings
from tests.waiting import exit_status

LENGTH = 11_777
ROUNDS = 6
CHANCE = 1e-8
"""The nominal false-alarm rate of each of the 25 checks of secure draws in this file.

The heaviest tails, of the fourth powers and of products of squares, raise it to 2.3e-8 (Edgeworth
series at 5.7 deviations): together below 6e-7.
"""


def normal(*shape: int) -> NDArray[np.float64]:
    return np.random.default_rng(0).standard_normal(shape)


def directions(rows: int, length: int) -> NDArray[np.float64]:
    """Random rows of norm 1."""
    drawn = normal(rows, length)
    unit: NDArray[np.float64] = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    return unit


def exact_norm(row: NDArray[np.int64]) -> int:
    """The squared norm in Python's whole numbers."""
    return sum(step * step for step in row.tolist())


@pytest.fixture(scope="module")
def noise() -> np.ndarray:
    """Empty rounds of the paper's model at S = 0.5 and c = 2, in units of σ."""
    empty = np.zeros((0, LENGTH), dtype=np.float32)
    return np.stack([noisy_sum(empty, 0.5, 2.0) for _ in range(ROUNDS)])


def within_chance(values: np.ndarray, mean: float, deviation: float) -> bool:
    """A mean of many, against the normal distribution it must have."""
    z = (values.mean() - mean) / (deviation / math.sqrt(values.size))
    return bool(2 * stats.norm.sf(abs(z)) > CHANCE)


def test_an_empty_round_is_still_noise_of_the_right_size(noise: np.ndarray) -> None:
    assert noise.shape == (ROUNDS, LENGTH)
    assert within_chance(noise, 0.0, 1.0)
    assert within_chance(noise**2, 1.0, math.sqrt(2))
    assert within_chance(noise**3, 0.0, math.sqrt(15))
    assert within_chance(noise**4, 3.0, math.sqrt(96))


def test_the_noise_is_normal_up_to_its_tails(noise: np.ndarray) -> None:
    assert stats.kstest(noise.ravel(), "norm").pvalue > CHANCE
    for threshold in (1.0, 2.0, 3.0, 3.5):
        beyond = int((np.abs(noise) > threshold).sum())
        expected = 2 * stats.norm.sf(threshold)
        assert stats.binomtest(beyond, noise.size, expected).pvalue > CHANCE


def test_coordinates_and_rounds_are_independent(noise: np.ndarray) -> None:
    correlations = np.corrcoef(noise)[np.triu_indices(ROUNDS, 1)]
    assert np.abs(correlations).max() * math.sqrt(LENGTH) < stats.norm.isf(CHANCE / 30)
    flat = noise.ravel()
    for lag in (1, 2, 3, LENGTH - 1, LENGTH):
        for left, right in ((flat[:-lag], flat[lag:]), (flat[:-lag] ** 2, flat[lag:] ** 2)):
            z = np.corrcoef(left, right)[0, 1] * math.sqrt(left.size)
            assert abs(z) < stats.norm.isf(CHANCE / 2)


def test_every_output_is_on_the_grid_and_its_last_bit_is_fair(noise: np.ndarray) -> None:
    steps = noise * STEPS / 0.5
    assert np.array_equal(steps, np.round(steps))
    odd = int((steps.astype(np.int64) % 2).sum())
    assert stats.binomtest(odd, steps.size, 0.5).pvalue > CHANCE


def test_the_sum_is_exact_and_divided_by_the_fixed_m() -> None:
    """Up to noise of deviation 6.25e-7: one of 3000 numbers is beyond 5e-6 with chance 4e-12."""
    updates = (0.1 * directions(40, 3000)).astype(np.float32)
    released = secure_release(updates, clip_norm=0.5, noise_multiplier=1e-5, clients_per_round=8)
    assert released.dtype == updates.dtype
    np.testing.assert_allclose(released, updates.sum(axis=0) / 8, rtol=0, atol=5e-6)


def test_a_release_has_the_deviation_of_the_protocol() -> None:
    released = secure_release(
        normal(3, LENGTH).astype(np.float32),
        clip_norm=0.5,
        noise_multiplier=4.86,
        clients_per_round=100,
    )
    assert within_chance((released / (0.5 * 4.86 / 100)) ** 2, 1.0, math.sqrt(2))


@settings(max_examples=200)
@given(
    rows=hnp.arrays(
        np.float64,
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=40),
        elements=st.floats(allow_nan=True, allow_infinity=True),
    ),
    clip_norm=st.floats(1e-6, 1e6),
)
def test_no_row_is_longer_than_the_clip_norm_whatever_is_sent(
    rows: np.ndarray, clip_norm: float
) -> None:
    for row in to_grid(rows, clip_norm):
        assert exact_norm(row) <= STEPS**2


@settings(max_examples=50)
@given(
    length=st.integers(1, 3000),
    clip_norm=st.floats(1e-3, 1e3),
    scale=st.floats(0.5, 1e9),
    seed=st.integers(0, 2**32 - 1),
)
def test_rounding_never_lengthens_a_clipped_row_beyond_the_clip_norm(
    length: int, clip_norm: float, scale: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    for drawn in (rng.standard_normal((2, length)), np.ones((1, length))):
        rows = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
        halves = np.floor(rows * STEPS) + 0.5  # the worst case of rounding
        for worst in (rows * scale * clip_norm, halves * clip_norm / STEPS):
            for row in to_grid(worst, clip_norm):
                assert exact_norm(row) <= STEPS**2


def test_the_worst_rounding_reaches_the_clip_norm_but_never_passes_it() -> None:
    longest = 0
    for length in range(40, 640):
        root = math.sqrt(length)
        for steps in range(int(STEPS / root) - 3, int(STEPS / root) + 1):
            row = np.full((1, length), (steps + 0.5 + 1e-6) / STEPS)  # each entry is rounded up
            (rounded,) = to_grid(row, 1.0)
            longest = max(longest, exact_norm(rounded))
    assert (STEPS - 2) ** 2 < longest <= STEPS**2


def test_a_client_is_drawn_with_exactly_its_probability(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = PrivacyPlan.of(small_settings(clients_per_round=7), 20)
    draws = iter(range(20))
    monkeypatch.setattr("secrets.randbelow", lambda below: next(draws) if below == 20 else None)
    assert len(sample_clients(plan, 20)) == 7


def test_a_row_within_the_clip_norm_moves_by_at_most_half_a_step() -> None:
    rows = 0.9 * directions(5, 1000)
    steps = rows * STEPS
    assert np.abs(to_grid(rows, 1.0) - steps).max() <= 0.5


def test_a_row_that_is_not_finite_counts_as_zero_and_spoils_no_other() -> None:
    rows = np.full((3, 4), 0.25, dtype=np.float32)
    rows[1, 2] = math.nan
    rows[2, 0] = math.inf
    grid = to_grid(rows, 1.0)
    assert grid[0].tolist() == [STEPS // 4] * 4
    assert not grid[1:].any()
    assert rows[0].tolist() == [0.25] * 4


@given(noise_multiplier=st.floats(1e-6, 1e6))
def test_the_library_confirms_the_price_for_the_sensitivity_of_one_client(
    noise_multiplier: float,
) -> None:
    mechanism = _mechanism(grid_deviation(noise_multiplier))
    rho = mechanism.map(float(STEPS))  # type: ignore[no-untyped-call]
    assert rho <= 1 / (2 * noise_multiplier**2) * (1 + 1e-12)


@pytest.mark.parametrize("noise_multiplier", [1e-6, 0.5, 4.863, 1e4])
def test_the_deviation_on_the_grid_is_rounded_up_and_hardly_more(noise_multiplier: float) -> None:
    exact = (Fraction(noise_multiplier) * STEPS) ** 2 + Fraction(ROUNDING) ** 2
    assert exact < Fraction(grid_deviation(noise_multiplier)) ** 2 < exact * (1 + Fraction(1e-15))
    assert ROUNDING == 3


def test_noise_is_added_to_the_sum_and_to_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secure, "_mechanism", lambda _: lambda steps: steps)
    assert grid_noise(3, 1.0).tolist() == [0, 0, 0]
    rows = 0.1 * directions(5, 30)
    exact = from_grid(to_grid(rows, 0.5).sum(axis=0), 0.5)
    np.testing.assert_array_equal(noisy_sum(rows, 0.5, 1.0), exact)
    np.testing.assert_allclose(exact, rows.sum(axis=0), rtol=0, atol=5 * 0.5 / STEPS)


def test_the_longest_sum_is_that_of_all_clients_and_their_noise() -> None:
    """Each client at S, and noise of deviation σ in d coordinates up to σ (√d + 10)."""
    assert longest_sum(3, 400, 2.0) == pytest.approx(3 * STEPS + 2 * STEPS * (20 + 10), rel=1e-12)


@pytest.mark.parametrize("rounding", [0.7, 0.8, 1.0])
def test_discrete_noise_is_continuous_noise_rounded_at_random(rounding: float) -> None:
    """The lemma behind `ROUNDING`, by integration, with a deviation where its error is visible."""
    sigma, whole = 2.0, np.arange(-60, 61)
    bound = 5 * math.exp(-2 * math.pi**2 * rounding**2)

    def rounded(k: int) -> float:
        def density(t: float) -> float:
            weights = np.exp(-((whole - t) ** 2) / (2 * rounding**2))
            chosen = math.exp(-((k - t) ** 2) / (2 * rounding**2)) / weights.sum()
            return float(stats.norm.pdf(t, scale=sigma) * chosen)

        return float(integrate.quad(density, -30, 30, epsabs=0, epsrel=1e-12, limit=400)[0])

    wide = np.exp(-(whole**2) / (2 * (sigma**2 + rounding**2)))
    for k in (0, 1, 3, 6):
        assert abs(rounded(k) / (wide[60 + k] / wide.sum()) - 1) <= bound
    assert 5 * math.exp(-2 * math.pi**2 * ROUNDING**2) < 1e-76


@pytest.mark.parametrize("clip_norm", [0.0, -1.0, math.inf, math.nan])
@pytest.mark.parametrize("noise_multiplier", [0.0, math.inf, math.nan])
def test_noise_that_protects_nobody_is_refused(clip_norm: float, noise_multiplier: float) -> None:
    with pytest.raises(ValueError, match="secure noise needs"):
        noisy_sum(np.zeros((1, 3)), clip_norm, 1.0)
    with pytest.raises(ValueError, match="secure noise needs"):
        noisy_sum(np.zeros((1, 3)), 1.0, noise_multiplier)


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
def test_a_forked_process_does_not_repeat_its_parents_noise() -> None:
    """A secure generator lives in memory, which a fork copies.

    Two draws of 4 numbers of deviation 2^24 steps or more are equal with a chance below 1e-29.
    """
    empty = np.zeros((0, 4))
    noisy_sum(empty, 1.0, 1.0)
    seen = set()
    for _ in range(3):
        reader, writer = os.pipe()
        if not (child := os.fork()):
            try:
                os.write(writer, noisy_sum(empty, 1.0, 1.0).tobytes())
            finally:
                os._exit(0)
        os.close(writer)
        exit_status(child)
        seen.add(os.read(reader, 32))
        os.close(reader)
    seen.add(noisy_sum(empty, 1.0, 1.0).tobytes())
    assert len(seen) == 4
    assert {len(drawn) for drawn in seen} == {32}


def test_the_secure_sample_is_poisson() -> None:
    plan = PrivacyPlan.of(small_settings(clients_per_round=100), 400)
    samples = [SecureRandomness().sample(plan) for _ in range(300)]
    sizes = np.array([len(sample) for sample in samples])
    assert within_chance(sizes, 100.0, math.sqrt(400 * 0.25 * 0.75))
    assert stats.chi2.sf(299 * sizes.var(ddof=1) / 75, 299) > CHANCE
    often = np.bincount(np.concatenate(samples), minlength=400)
    assert stats.chi2.sf(((often - 75) ** 2 / (300 * 0.25 * 0.75)).sum(), 400) > CHANCE
    everybody = PrivacyPlan.of(small_settings(clients_per_round=7), 7)
    assert len(SecureRandomness().sample(everybody)) == 7


def test_a_secure_sample_of_fixed_size_is_refused() -> None:
    fixed = PrivacyPlan.of(small_settings(epsilon=math.inf, sampler="fixed"), 12)
    with pytest.raises(ValueError, match="secure sampling is Poisson; found 'fixed'"):
        SecureRandomness().sample(fixed)
