"""Quantiles, their score against closed forms, and coverage on errors that we know."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from epifed import intervals
from epifed.intervals import (
    ERRORS,
    LARGEST_SHARE,
    LEVELS,
    PRIOR_WEIGHT,
    SOFTENING,
    TELLING,
    UNFORESEEN,
    USUAL_ERROR,
    Past,
    hub_baseline,
    quantiles,
    unforeseen,
)

MIDDLE = LEVELS.index(0.5)


counts = st.floats(0, 1e5)


@given(
    st.lists(st.tuples(counts, counts), min_size=14, max_size=60),
    counts,
    st.integers(1, 28),
    st.integers(1, 10**7),
)
def test_quantiles_are_in_order_around_the_forecast_and_possible(
    past: list[tuple[float, float]], now: float, horizon: int, people: int
) -> None:
    forecasts, truths = (np.array([row]) for row in zip(*past, strict=True))
    point = np.array([now])
    values = quantiles(point, Past(forecasts, truths, horizon), np.array([people]))[0]
    assert (np.diff(values) >= 0).all()
    assert (values >= 0).all()
    assert values[MIDDLE] == pytest.approx(now, abs=1e-6)
    assert values.max() <= max(LARGEST_SHARE * people, now) + 1e-9


def freedom(horizon: int) -> float:
    """The degrees of freedom that intervals of a horizon assume."""
    return float(7 * max(7 / horizon, 1) ** -0.35)


def drawn(
    level: float, factor: float, days: int, clients: int, horizon: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Forecasts at a level, and truths whose errors are so many times the usual ones."""
    rng = np.random.default_rng(seed)
    forecast = level * np.exp(rng.normal(0, 0.3, size=(clients, days)))
    weeks = horizon / 7
    square = (USUAL_ERROR * weeks**0.2) ** 2 + UNFORESEEN**2 * max(weeks**2 - 1, 0)
    chance = intervals.CHANCE * weeks**-0.3
    spread = factor * np.sqrt(square + chance / (forecast + SOFTENING))
    shape = freedom(horizon)
    student = rng.standard_t(shape, size=forecast.shape)
    student /= stats.t.expect(np.abs, args=(shape,))
    ratio = np.maximum(1 + spread * student / 4, 0.0) ** 4
    return forecast, np.maximum((forecast + SOFTENING) * ratio - SOFTENING, 0.0)


def covered(forecast: np.ndarray, truth: np.ndarray, horizon: int, level: float) -> float:
    """The share of clients whose last day lies in the central interval made `horizon` days ago."""
    known = slice(0, forecast.shape[1] - horizon)
    values = quantiles(forecast[:, -1], Past(forecast[:, known], truth[:, known], horizon))
    low, high = (values[:, LEVELS.index(round(q, 3))] for q in (0.5 - level / 2, 0.5 + level / 2))
    return float(((low <= truth[:, -1]) & (truth[:, -1] <= high)).mean())


@pytest.mark.parametrize("level", [30.0, 300.0])
@pytest.mark.parametrize("horizon", [1, 7, 28])
@pytest.mark.parametrize(("factor", "days"), [(0.6, 150), (1.0, 50), (1.0, 150), (1.5, 150)])
def test_intervals_hold_what_they_say(level: float, horizon: int, factor: float, days: int) -> None:
    """Own errors of the usual size or another one, of which a known share is borrowed."""
    forecast, truth = drawn(level, factor, days, 4000, horizon, seed=0)
    own = sum(0.5 ** (age / 40) for age in range(min(days - horizon, ERRORS)))
    borrowed = 15 * (horizon / 7) * max(horizon / 7, 1)
    share = borrowed / (own + borrowed)
    wider = intervals.WIDER * max(7 / horizon, 1) ** 0.07 * ((1 - share) + share / factor)
    shape = freedom(horizon)
    for nominal in (0.5, 0.95):
        tail = stats.t.isf((1 - nominal) / 2, shape)
        expected = 1 - 2 * stats.t.sf(wider * tail, shape)
        assert covered(forecast, truth, horizon, nominal) == pytest.approx(expected, abs=0.035)


def test_a_holiday_and_forecasts_without_a_release_are_weighed() -> None:
    forecast, truth = drawn(200, 1.0, 60, 50, 7, seed=3)
    now = np.full(50, 200.0)
    plain = Past(forecast, truth, 7)
    after = Past(forecast, truth, 7, after_holiday=np.arange(50) < 20).width(now)
    assert after[20:] == pytest.approx(plain.width(now)[20:])
    added = after[:20] ** 2 - plain.width(now)[:20] ** 2
    assert added == pytest.approx((0.6 * plain.usual(now)[:20]) ** 2)
    worse = truth.copy()
    worse[:, :-20] = 9 * forecast[:, :-20]
    known, told = (Past(forecast, worse, 7, uninformed=days).size() for days in (0, 40))
    assert plain.size().mean() < told.mean()
    assert (told < known - 0.5 * (known - plain.size())).all()


def test_the_country_says_how_much_is_unforeseen() -> None:
    """Without noise its past errors are averaged with the usual one; noise is taken out of them."""
    usual = UNFORESEEN**2 * (4**2 - 1)
    assert unforeseen(7, np.ones((9, 2))) == 0
    assert unforeseen(28, np.zeros((0, 2))) == pytest.approx(usual)
    errors = np.array([0.9, -1.2, 0.3, -0.6, 1.5, 0.2, 0.8, -0.4])
    exact = np.stack([errors, np.zeros(8)], axis=1)
    expected = (PRIOR_WEIGHT * usual + TELLING**2 * (errors**2).sum() / 4) / (PRIOR_WEIGHT + 2)
    assert unforeseen(28, exact) == pytest.approx(expected)
    assert unforeseen(28, exact * [[0.0, 1.0]]) < usual
    rng = np.random.default_rng(0)
    noise = 0.3**2
    noisy = np.stack([rng.normal(0, np.hypot(0.5, 0.3), 20_000), np.full(20_000, noise)], axis=1)
    assert unforeseen(28, noisy) == pytest.approx((TELLING * 0.5) ** 2, rel=0.05)
    mostly = np.stack([rng.normal(0, 20, 20), np.full(20, 400.0)], axis=1)
    assert unforeseen(28, mostly) == pytest.approx(usual, rel=0.01)


def test_a_wild_country_widens_what_is_more_than_a_week_ahead() -> None:
    forecast, truth = drawn(500, 1.0, 150, 20, 7, seed=5)
    now = np.full(20, 500.0)
    for days in (7, 14, 28):
        wild = np.stack([np.full(20, days / 28), np.zeros(20)], axis=1)
        wider = Past(forecast, truth, days, surprises=wild).usual(now)
        usual = Past(forecast, truth, days).usual(now)
        assert (wider > 1.2 * usual).all() if days > 7 else (wider == usual).all()


def test_coverage_recovers_when_errors_become_larger() -> None:
    """Errors tripled twelve weeks ago: the whole past alike would miss far too often."""
    forecast, truth = drawn(100, 0.6, 210, 4000, 7, seed=1)
    later, far = drawn(100, 1.8, 90, 4000, 7, seed=2)
    forecast, truth = np.hstack([forecast, later]), np.hstack([truth, far])
    assert abs(covered(forecast, truth, 7, 0.5) - 0.5) < 0.1
    assert abs(covered(forecast, truth, 7, 0.95) - 0.95) < 0.09


def test_one_bad_week_does_not_spoil_eighteen() -> None:
    forecast, truth = drawn(100, 1.0, ERRORS, 50, 7, seed=3)
    spoilt = truth.copy()
    spoilt[:, -40:-33] *= 10_000
    before, after = (Past(forecast, one, 7).size() for one in (truth, spoilt))
    assert (after >= before - 1e-12).all()
    assert (after < 1.6 * before).all()


def test_little_history_borrows_what_is_usual() -> None:
    perfect = np.full((1, 14), 500.0)
    few, many = (Past(np.tile(perfect, n), np.tile(perfect, n), 7).size()[0] for n in (1, 9))
    assert 0.4 < few < 0.7
    assert few > 2 * many > 0


def test_the_level_of_the_forecast_sets_the_width_not_that_of_the_past() -> None:
    """Chance is large where cases are few, and stays behind when they have become many."""
    rng = np.random.default_rng(4)
    forecast = np.full((2000, 120), 2.0)
    truth = rng.poisson(14, size=forecast.shape) / 7
    past = Past(forecast, truth, 7)
    values = quantiles(np.full(2000, 200.0), past)
    relative = (values[:, LEVELS.index(0.975)] / 200 - 1).mean()
    small = quantiles(np.full(2000, 2.0), past)
    assert relative < 0.6 * (small[:, LEVELS.index(0.975)] / 2 - 1).mean()


def test_the_hub_baseline_is_the_last_value_and_symmetric_differences() -> None:
    series = np.array([[0.0] * 7 + [10.0] * 7 + [14.0]])
    found = hub_baseline(series, 7)[0]
    assert found[MIDDLE] == 14
    changes = [14 - 10, 10 - 0]
    expected = 14 + np.quantile([*changes, *(-c for c in changes)], LEVELS)
    assert found == pytest.approx(np.maximum(expected, 0))
    assert hub_baseline(series[:, :3], 7)[0] == pytest.approx(np.zeros(len(LEVELS)))
