"""The shared trend: bounded contributions, what the server keeps, how noise is weighed."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from epifed.errors import EpifedError
from epifed.learners.trend import (
    DAMPING,
    DAYS,
    FOLLOW,
    HISTORY,
    LARGEST_NORM,
    Trend,
    growth,
)
from epifed.seeds import seed_sequence
from epifed.settings import Settings
from epifed.training import train
from epifed.windows import make_clients
from tests.helpers import small_panel, windows_of

TREND = Settings.for_learner("trend", 12, holidays="", epsilon=math.inf)
LEARNER = Trend(TREND)


def contributions(counts: NDArray[np.float64]) -> Tensor:
    windows = windows_of([1] * len(counts))
    object.__setattr__(windows, "latest", counts.astype(np.float32))
    return LEARNER.contribute(torch.zeros(2 * HISTORY), windows)


def released(value: float, noise: float) -> Tensor:
    start = LEARNER.start(seed_sequence(0))
    return LEARNER.step(start, torch.full((DAYS,), value), noise)


@given(st.lists(st.lists(st.integers(0, 10**6), min_size=14, max_size=14), min_size=1, max_size=5))
def test_a_contribution_is_seven_numbers_of_bounded_norm(counts: list[list[int]]) -> None:
    rows = contributions(np.array(counts))
    assert rows.shape == (len(counts), DAYS)
    assert float(rows.norm(dim=1).max()) <= LARGEST_NORM * (1 + 1e-6)


def test_a_contribution_does_not_depend_on_the_size_of_the_region() -> None:
    week = np.array([100, 90, 120, 110, 105, 70, 40], dtype=float)
    counts = np.concatenate([week, 1.1 * week])[None]
    small, large = contributions(10 * counts)[0], contributions(10_000 * counts)[0]
    torch.testing.assert_close(small, large, atol=2e-3, rtol=0)
    assert float(small.mean()) == pytest.approx(math.log(1.1), rel=0.2)


def test_the_last_day_comes_first() -> None:
    counts = np.full((1, 14), 50.0)
    counts[0, -1] = 100
    first, *rest = contributions(counts)[0].tolist()
    assert first > 0.4
    assert rest == pytest.approx([0.0] * 6, abs=1e-6)


def test_without_noise_the_state_is_the_mean_over_the_clients() -> None:
    clients = make_clients(small_panel(), TREND.but(train_share=1.0))
    training = train(clients, TREND.but(train_share=1.0))
    rows = Trend(TREND).contribute(training.state, clients.train)
    torch.testing.assert_close(training.state[:DAYS], rows.mean(dim=0))
    assert (training.state[DAYS:HISTORY] == 0).all()


def test_a_steady_trend_is_followed_and_an_unknown_one_is_persistence() -> None:
    steady = growth(released(0.2, 0.0))
    assert steady[0] == pytest.approx(FOLLOW * 0.2, rel=1e-6)
    assert (growth(torch.zeros(2 * HISTORY)) == 0).all()
    windows = torch.full((3, 10), 40.0)
    assert (Trend(TREND).predict(torch.zeros(2 * HISTORY), windows) == 40).all()
    ahead = Trend(TREND).predict(released(0.2, 0.0), windows)
    assert float(ahead[0]) == pytest.approx(40 * math.exp(FOLLOW * 0.2), rel=1e-5)


@given(noise=st.floats(0.001, 1000))
def test_noise_shrinks_the_forecast_towards_like_today(noise: float) -> None:
    exact, noisy = float(growth(released(0.2, 0.0))[0]), float(growth(released(0.2, noise))[0])
    assert 0 <= noisy <= exact + 1e-9
    if noise > 10:
        assert noisy < 0.01


def test_one_wild_day_hardly_moves_the_trend() -> None:
    start = torch.zeros(2 * HISTORY)
    week = torch.full((DAYS,), 0.1)
    holiday = week.clone()
    holiday[1] = -0.9
    usual = growth(LEARNER.step(start, week, 0.01))[0]
    disturbed = growth(LEARNER.step(start, holiday, 0.01))[0]
    plain_mean = FOLLOW * float(
        (0.6 ** torch.arange(7) * holiday).sum() / (0.6 ** torch.arange(7)).sum()
    )
    assert abs(usual - disturbed) < 0.25 * abs(usual - plain_mean)


def test_two_releases_of_the_same_days_are_weighted_by_their_precision() -> None:
    both = LEARNER.join(released(0.0, 0.1), released(0.4, 0.2))
    assert float(both[0]) == pytest.approx(0.4 * 0.2**-2 / (0.1**-2 + 0.2**-2), rel=1e-5)
    assert float(both[HISTORY]) == pytest.approx(0.1**-2 + 0.2**-2, rel=1e-5)
    torch.testing.assert_close(LEARNER.join(torch.zeros(2 * HISTORY), both), both)


@given(st.integers(0, 300), st.integers(0, 300))
def test_advancing_twice_is_advancing_once(first: int, second: int) -> None:
    state = released(0.3, 0.1)
    torch.testing.assert_close(
        LEARNER.advance(LEARNER.advance(state, first), second),
        LEARNER.advance(state, first + second),
    )


def test_an_old_release_fades_to_like_today() -> None:
    state = released(0.3, 0.01)
    assert growth(LEARNER.advance(state, 3))[0] > 0.2
    assert growth(LEARNER.advance(state, DAYS))[0] == 0


def test_further_ahead_the_growth_is_damped() -> None:
    windows = torch.full((1, 10), 10.0)
    state = released(0.2, 0.0)
    weeks = [
        math.log(float(Trend(TREND.but(horizon=7 * week)).predict(state, windows)[0]) / 10)
        for week in (1, 2, 3)
    ]
    assert weeks[1] - weeks[0] == pytest.approx(DAMPING * weeks[0], rel=1e-4)
    assert weeks[2] - weeks[1] == pytest.approx(DAMPING**2 * weeks[0], rel=1e-4)


def test_the_shuffled_split_and_a_short_history_are_refused() -> None:
    with pytest.raises(EpifedError, match="expected the temporal split"):
        Trend(TREND.but(split="shuffled"))
    with pytest.raises(EpifedError, match="found 13 days for 'trend'; expected at least 14"):
        contributions(np.ones((2, 13)))
