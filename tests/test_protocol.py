import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from epifed import protocol


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
    updates = scale * torch.randn(rows, length, generator=torch.Generator().manual_seed(seed))
    clipped = protocol.clip(updates, norm)
    for before, after in zip(updates, clipped, strict=True):
        assert after.norm() <= norm * (1 + 1e-5)
        if before.norm() <= norm:
            assert torch.equal(before, after)
        else:
            torch.testing.assert_close(after, before * (norm / before.norm()))


def test_no_clip_norm_leaves_updates_alone() -> None:
    updates = 1e6 * torch.randn(3, 5)
    assert torch.equal(protocol.clip(updates, math.inf), updates)


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf, 3e38])
def test_an_update_that_is_not_finite_counts_as_zero(poison: float) -> None:
    updates = torch.ones(3, 4)
    updates[1] = poison
    clipped = protocol.clip(updates, 0.5)
    assert torch.equal(clipped[1], torch.zeros(4))
    torch.testing.assert_close(clipped[[0, 2]], torch.full((2, 4), 0.25))


def test_the_sum_is_divided_by_the_fixed_m_not_by_how_many_came() -> None:
    updates = torch.ones(3, 2)
    assert protocol.aggregate(updates, 100).tolist() == pytest.approx([0.03, 0.03])


def test_a_release_is_the_clipped_mean_plus_scaled_noise() -> None:
    updates = torch.tensor([[3.0, 4.0], [0.3, 0.4]])
    noise = torch.tensor([1.0, -1.0])
    got = protocol.release(
        updates, noise, clip_norm=1.0, noise_multiplier=2.0, clients_per_round=10
    )
    mean = (torch.tensor([0.6, 0.8]) + torch.tensor([0.3, 0.4])) / 10
    torch.testing.assert_close(got, mean + 0.2 * noise)


def test_an_empty_round_still_releases_noise() -> None:
    noise = torch.randn(7)
    got = protocol.release(
        torch.zeros(0, 7), noise, clip_norm=0.5, noise_multiplier=4.0, clients_per_round=100
    )
    torch.testing.assert_close(got, 0.02 * noise)


def test_one_client_moves_a_release_by_at_most_s_over_m() -> None:
    updates = 50 * torch.randn(9, 30)
    noise = torch.randn(30)
    values = [
        protocol.release(u, noise, clip_norm=0.5, noise_multiplier=1.0, clients_per_round=10)
        for u in (updates, updates[1:])
    ]
    assert (values[0] - values[1]).norm() <= 0.5 / 10 * (1 + 1e-5)


def test_noise_without_clipping_is_refused() -> None:
    with pytest.raises(ValueError, match="protects nobody"):
        protocol.release(
            torch.zeros(1, 2), torch.zeros(2), clip_norm=math.inf, noise_multiplier=1.0,
            clients_per_round=1,
        )  # fmt: skip


def test_poisson_sampling_is_independent_with_probability_q() -> None:
    rng = np.random.default_rng(5)
    clients, m, rounds = 40, 10, 4000
    came = np.zeros((rounds, clients), dtype=bool)
    for row in came:
        row[protocol.sample_clients(rng, clients, m, "poisson")] = True
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
    got = protocol.sample_clients(np.random.default_rng(seed), clients, m, "fixed")
    assert len(got) == len(set(got.tolist())) == min(m, clients)
    assert got.min() >= 0 and got.max() < clients
