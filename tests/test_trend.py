"""The shared trend: bounded contributions, what the server keeps, how noise is weighed."""

import math
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from epifed.clients import make_clients
from epifed.days import WEEK
from epifed.errors import EpifedError
from epifed.learner import Vector
from epifed.learners.trend import (
    DAMPING,
    FOLLOW,
    HISTORY,
    LARGEST_NORM,
    LastDays,
    Trend,
    TrendState,
    forecast_growth,
)
from epifed.panel import CasePanel
from epifed.seeds import seed_sequence
from epifed.settings import Settings
from epifed.training import train
from tests.helpers import START, small_panel

TREND = Settings.for_learner("trend", 12, holidays="", epsilon=math.inf)
LEARNER = Trend(TREND)
UNKNOWN = LEARNER.start(seed_sequence(0))


def panel_of(counts: NDArray[np.float64]) -> CasePanel:
    return CasePanel(counts, tuple(f"{i:05d}" for i in range(len(counts))), START)


def contributions(counts: NDArray[np.float64]) -> Vector:
    panel = panel_of(counts.astype(np.float64))
    return LEARNER.contribute(UNKNOWN, LEARNER.view(panel, (panel.start, panel.end)))


def week(value: float) -> Vector:
    return np.full(WEEK, value, dtype=np.float32)


def released(value: float, noise: float) -> TrendState:
    return LEARNER.step(UNKNOWN, week(value), noise)


def same(one: TrendState, two: TrendState) -> None:
    np.testing.assert_allclose(one.growth, two.growth, rtol=1.3e-6, atol=1e-5)
    np.testing.assert_allclose(one.precision, two.precision, rtol=1.3e-6, atol=1e-5)


@given(st.lists(st.lists(st.integers(0, 10**6), min_size=14, max_size=14), min_size=1, max_size=5))
def test_a_contribution_is_seven_numbers_of_bounded_norm(counts: list[list[int]]) -> None:
    rows = contributions(np.array(counts))
    assert rows.shape == (len(counts), WEEK)
    assert float(np.linalg.norm(rows, axis=1).max()) <= LARGEST_NORM * (1 + 1e-6)


def test_a_contribution_does_not_depend_on_the_size_of_the_region() -> None:
    days = np.array([100, 90, 120, 110, 105, 70, 40], dtype=float)
    counts = np.concatenate([days, 1.1 * days])[None]
    small, large = contributions(10 * counts)[0], contributions(10_000 * counts)[0]
    np.testing.assert_allclose(small, large, atol=2e-3, rtol=0)
    assert float(small.mean()) == pytest.approx(math.log(1.1), rel=0.2)


def test_the_last_day_comes_first() -> None:
    counts = np.full((1, 14), 50.0)
    counts[0, -1] = 100
    first, *rest = contributions(counts)[0].tolist()
    assert first > 0.4
    assert rest == pytest.approx([0.0] * 6, abs=1e-6)


def test_without_noise_the_state_is_the_mean_over_the_clients() -> None:
    panel = small_panel()
    view = LEARNER.deployed_view(panel, (panel.start, panel.end))
    training = train(view, TREND)
    rows = LEARNER.contribute(training.state, view)
    np.testing.assert_allclose(
        training.state.growth[:WEEK], rows.mean(axis=0), rtol=1.3e-6, atol=1e-5
    )
    assert (training.vector[WEEK:HISTORY] == 0).all()


@pytest.mark.parametrize("days", [14, 15, 40, 180])
def test_a_training_for_use_reads_the_newest_days_however_long_the_period_is(days: int) -> None:
    """From the docstring: log growth of each of the last seven days against a week before."""
    panel = small_panel(days=190)
    last = panel.end - timedelta(days=5)
    view = LEARNER.deployed_view(panel, (last - timedelta(days=days - 1), last))
    newest = panel.counts[:, -14 - 5 : -5]
    soft = 1 + 0.1 * newest.mean(axis=1)
    expected = [
        np.log((newest[:, 13 - day] + soft) / (newest[:, 6 - day] + soft)).clip(-1, 1)
        for day in range(WEEK)
    ]
    rows = np.stack(expected, axis=1)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True) / LARGEST_NORM, 1)
    got = LEARNER.contribute(UNKNOWN, view)
    np.testing.assert_allclose(got, rows, rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(got, contributions(newest))


def test_an_experiment_s_training_ends_before_the_days_that_are_tested() -> None:
    panel = small_panel(days=60)
    clients = make_clients(panel, TREND)
    last = clients.train.target_days.max().astype("datetime64[D]").item()
    assert last < clients.test.target_days.min().astype("datetime64[D]").item()
    expected = contributions(panel.between(last - timedelta(days=13), last).counts)
    assert isinstance(clients.view, LastDays)
    np.testing.assert_array_equal(LEARNER.contribute(UNKNOWN, clients.view), expected)


def test_a_steady_trend_is_followed_and_an_unknown_one_is_persistence() -> None:
    steady = forecast_growth(released(0.2, 0.0))
    assert steady[0] == pytest.approx(FOLLOW * 0.2, rel=1e-6)
    assert (forecast_growth(UNKNOWN) == 0).all()
    windows = np.full((3, 10), 40.0, dtype=np.float32)
    assert (Trend(TREND).predict(UNKNOWN, windows) == 40).all()
    ahead = Trend(TREND).predict(released(0.2, 0.0), windows)
    assert float(ahead[0]) == pytest.approx(40 * math.exp(FOLLOW * 0.2), rel=1e-5)


@given(noise=st.floats(0.001, 1000))
def test_noise_shrinks_the_forecast_towards_like_today(noise: float) -> None:
    exact, noisy = (float(forecast_growth(released(0.2, sigma))[0]) for sigma in (0.0, noise))
    assert 0 <= noisy <= exact + 1e-9
    if noise > 10:
        assert noisy < 0.01


def test_one_wild_day_hardly_moves_the_trend() -> None:
    holiday = week(0.1)
    holiday[1] = -0.9
    usual = forecast_growth(LEARNER.step(UNKNOWN, week(0.1), 0.01))[0]
    disturbed = forecast_growth(LEARNER.step(UNKNOWN, holiday, 0.01))[0]
    plain_mean = FOLLOW * float((0.6 ** np.arange(7) * holiday).sum() / (0.6 ** np.arange(7)).sum())
    assert abs(usual - disturbed) < 0.25 * abs(usual - plain_mean)


def test_two_releases_of_the_same_days_are_weighted_by_their_precision() -> None:
    both = LEARNER.join(released(0.0, 0.1), released(0.4, 0.2))
    assert float(both.growth[0]) == pytest.approx(0.4 * 0.2**-2 / (0.1**-2 + 0.2**-2), rel=1e-5)
    assert float(both.precision[0]) == pytest.approx(0.1**-2 + 0.2**-2, rel=1e-5)
    same(LEARNER.join(UNKNOWN, both), both)
    same(LEARNER.unpack(LEARNER.pack(both)), both)


@given(st.integers(0, 300), st.integers(0, 300))
def test_advancing_twice_is_advancing_once(first: int, second: int) -> None:
    state = released(0.3, 0.1)
    same(
        LEARNER.advance(LEARNER.advance(state, first), second),
        LEARNER.advance(state, first + second),
    )


def test_an_old_release_fades_to_like_today() -> None:
    state = released(0.3, 0.01)
    assert forecast_growth(LEARNER.advance(state, 3))[0] > 0.2
    assert forecast_growth(LEARNER.advance(state, WEEK))[0] == 0


def test_further_ahead_the_growth_is_damped() -> None:
    windows = np.full((1, 10), 10.0, dtype=np.float32)
    state = released(0.2, 0.0)
    weeks = [
        math.log(float(Trend(TREND.but(horizon=7 * week)).predict(state, windows)[0]) / 10)
        for week in (1, 2, 3)
    ]
    assert weeks[1] - weeks[0] == pytest.approx(DAMPING * weeks[0], rel=1e-4)
    assert weeks[2] - weeks[1] == pytest.approx(DAMPING**2 * weeks[0], rel=1e-4)


def test_the_shuffled_split_and_a_short_history_are_refused() -> None:
    with pytest.raises(EpifedError, match="expected the temporal split"):
        make_clients(small_panel(), TREND.but(split="shuffled"))
    words = "found 13 days up to 2020-10-13 for learner 'trend'; expected at least 14"
    with pytest.raises(EpifedError, match=words):
        contributions(np.ones((2, 13)))
