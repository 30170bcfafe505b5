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
    SOFTENING,
    hub_baseline,
    quantiles,
    size,
    weighted_interval_score,
)

MIDDLE = LEVELS.index(0.5)


def naive_score(truth: float, quantile: list[float]) -> float:
    """Bracher et al. (2021), Eq. 1, interval by interval."""
    total = 0.5 * abs(truth - quantile[MIDDLE])
    for k in range(MIDDLE):
        alpha = 2 * LEVELS[k]
        low, high = quantile[k], quantile[-1 - k]
        score = high - low + 2 / alpha * max(low - truth, 0) + 2 / alpha * max(truth - high, 0)
        total += alpha / 2 * score
    return total / (MIDDLE + 0.5)


@given(st.floats(0, 1000), st.lists(st.floats(0, 1000), min_size=len(LEVELS), max_size=len(LEVELS)))
def test_the_score_is_that_of_the_paper(truth: float, values: list[float]) -> None:
    ordered = sorted(values)
    found = weighted_interval_score(np.array([truth]), np.array([ordered]))[0]
    assert found == pytest.approx(naive_score(truth, ordered), rel=1e-9, abs=1e-9)


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
    values = quantiles(point, size(forecasts, truths, horizon), horizon, np.array([people]))[0]
    assert (np.diff(values) >= 0).all()
    assert (values >= 0).all()
    assert values[MIDDLE] == pytest.approx(now, abs=1e-6)
    assert values.max() <= max(LARGEST_SHARE * people, now) + 1e-9


def freedom(horizon: int) -> float:
    """The degrees of freedom that intervals of a horizon assume."""
    return float(7 * max(horizon / 7, 7 / horizon) ** -0.35)


def drawn(
    level: float, errors: float, days: int, clients: int, horizon: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Forecasts at a level, and truths whose errors on the root scale are known."""
    rng = np.random.default_rng(seed)
    forecast = level * np.exp(rng.normal(0, 0.3, size=(clients, days)))
    chance = intervals.CHANCE * (7 / horizon) ** intervals.FADING
    spread = errors * np.sqrt(1 + chance / (forecast + SOFTENING))
    shape = freedom(horizon)
    student = rng.standard_t(shape, size=forecast.shape)
    student /= stats.t.expect(np.abs, args=(shape,))
    root = np.sqrt(forecast + SOFTENING) * (1 + spread * student / 2)
    return forecast, np.maximum(np.sign(root) * root**2 - SOFTENING, 0.0)


def covered(forecast: np.ndarray, truth: np.ndarray, horizon: int, level: float) -> float:
    """The share of clients whose last day lies in the central interval made `horizon` days ago."""
    known = slice(0, forecast.shape[1] - horizon)
    values = quantiles(forecast[:, -1], size(forecast[:, known], truth[:, known], horizon), horizon)
    low, high = (values[:, LEVELS.index(round(q, 3))] for q in (0.5 - level / 2, 0.5 + level / 2))
    return float(((low <= truth[:, -1]) & (truth[:, -1] <= high)).mean())


@pytest.mark.parametrize("level", [30.0, 300.0])
@pytest.mark.parametrize("horizon", [1, 7, 14])
@pytest.mark.parametrize(("factor", "days"), [(0.6, 150), (1.0, 50), (1.0, 150), (1.5, 150)])
def test_intervals_hold_what_they_say(level: float, horizon: int, factor: float, days: int) -> None:
    """Own errors of the usual size or another one, of which a known share is borrowed."""
    usual = 0.145 * (horizon / 7) ** 0.2
    forecast, truth = drawn(level, factor * usual, days, 4000, horizon, seed=0)
    own = sum(0.5 ** (age / 40) for age in range(min(days - horizon, 126)))
    share = 15 * horizon / 7 / (own + 15 * horizon / 7)
    wider = 1.03 * (horizon / 7) ** (0.36 if horizon > 7 else -0.07)
    wider *= (1 - share) + share / factor
    shape = freedom(horizon)
    for nominal in (0.5, 0.95):
        expected = 1 - 2 * stats.t.sf(wider * stats.t.isf((1 - nominal) / 2, shape), shape)
        assert covered(forecast, truth, horizon, nominal) == pytest.approx(expected, abs=0.035)


def test_a_holiday_and_forecasts_without_a_release_are_weighed() -> None:
    forecast, truth = drawn(200, 0.2, 60, 50, 7, seed=3)
    plain = size(forecast, truth, 7)
    unsettled = np.arange(50) < 20
    after = size(forecast, truth, 7, after_holiday=unsettled)
    assert after[20:] == pytest.approx(plain[20:])
    assert after[:20] ** 2 - plain[:20] ** 2 == pytest.approx((0.6 * 0.145) ** 2)
    worse = truth.copy()
    worse[:, :30] = 9 * forecast[:, :30]
    known, told = (size(forecast, worse, 7, uninformed=days) for days in (0, 30))
    assert (plain < told).all()
    assert (told < known - 0.5 * (known - plain)).all()


def test_coverage_recovers_when_errors_become_larger() -> None:
    """Errors tripled twelve weeks ago: the whole past alike would miss far too often."""
    forecast, truth = drawn(100, 0.1, 210, 4000, 7, seed=1)
    later, far = drawn(100, 0.3, 90, 4000, 7, seed=2)
    forecast, truth = np.hstack([forecast, later]), np.hstack([truth, far])
    assert abs(covered(forecast, truth, 7, 0.5) - 0.5) < 0.09
    assert abs(covered(forecast, truth, 7, 0.95) - 0.95) < 0.09


def test_one_bad_week_does_not_spoil_eighteen() -> None:
    forecast, truth = drawn(100, 0.15, ERRORS, 50, 7, seed=3)
    spoilt = truth.copy()
    spoilt[:, -40:-33] *= 10_000
    before, after = size(forecast, truth, 7), size(forecast, spoilt, 7)
    assert (after >= before - 1e-12).all()
    assert (after < 1.6 * before).all()


def test_little_history_borrows_what_is_usual() -> None:
    perfect = np.full((1, 14), 500.0)
    few, many = (
        size(np.tile(perfect, n), np.tile(perfect, n), 7)[0] / intervals.USUAL_ERROR for n in (1, 9)
    )
    assert 0.4 < few < 0.7
    assert few > 2 * many > 0


def test_the_level_of_the_forecast_sets_the_width_not_that_of_the_past() -> None:
    """Chance is large where cases are few, and stays behind when they have become many."""
    rng = np.random.default_rng(4)
    forecast = np.full((2000, 120), 2.0)
    truth = rng.poisson(14, size=forecast.shape) / 7
    values = quantiles(np.full(2000, 200.0), size(forecast, truth, 7), 7)
    relative = (values[:, LEVELS.index(0.975)] / 200 - 1).mean()
    small = quantiles(np.full(2000, 2.0), size(forecast, truth, 7), 7)
    assert relative < 0.6 * (small[:, LEVELS.index(0.975)] / 2 - 1).mean()


def test_the_hub_baseline_is_the_last_value_and_symmetric_differences() -> None:
    series = np.array([[0.0] * 7 + [10.0] * 7 + [14.0]])
    found = hub_baseline(series, 7)[0]
    assert found[MIDDLE] == 14
    changes = [14 - 10, 10 - 0]
    expected = 14 + np.quantile([*changes, *(-c for c in changes)], LEVELS)
    assert found == pytest.approx(np.maximum(expected, 0))
    assert hub_baseline(series[:, :3], 7)[0] == pytest.approx(np.zeros(len(LEVELS)))
