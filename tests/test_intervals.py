"""Quantiles, their score against closed forms, and coverage on errors that we know."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from epifed.intervals import (
    COVERAGE,
    LEVELS,
    hub_baseline,
    log_error,
    quantiles,
    weighted_interval_score,
    widths,
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


def test_widths_grow_with_the_coverage_and_quantiles_are_in_order() -> None:
    rng = np.random.default_rng(0)
    half = widths(np.abs(rng.normal(0, 0.3, size=(20, 90))), 7)
    assert half.shape == (20, len(COVERAGE))
    assert (np.diff(half, axis=1) >= 0).all()
    values = quantiles(np.linspace(0, 300, 20), half)
    assert (np.diff(values, axis=1) >= 0).all()
    assert (values >= 0).all()
    assert values[:, MIDDLE] == pytest.approx(np.linspace(0, 300, 20))


@pytest.mark.parametrize("grow", [1.0, 3.0])
def test_coverage_is_kept_also_when_errors_become_larger(grow: float) -> None:
    """Errors are tripled half-way: a plain quantile of the past would miss far too often."""
    rng = np.random.default_rng(1)
    clients, days, horizon = 200, 260, 7
    errors = np.abs(rng.normal(0, 0.2, size=(clients, days)))
    errors[:, 130:] *= grow
    inside = np.zeros((clients, len(COVERAGE)))
    origins = range(160, days - horizon, 7)
    for origin in origins:
        inside += errors[:, origin + horizon, None] <= widths(errors[:, : origin + 1], horizon)
    covered = inside.mean(axis=0) / len(origins)
    assert np.abs(covered - COVERAGE).max() < (0.03 if grow == 1 else 0.09)


def test_an_error_is_symmetric_on_the_log_scale() -> None:
    assert log_error(np.array([9.0]), np.array([19.0])) == pytest.approx(np.log(2))
    assert log_error(np.array([19.0]), np.array([9.0])) == pytest.approx(np.log(2))


def test_the_hub_baseline_is_the_last_value_and_symmetric_differences() -> None:
    series = np.array([[0.0] * 7 + [10.0] * 7 + [14.0]])
    found = hub_baseline(series, 7)[0]
    assert found[MIDDLE] == 14
    changes = [14 - 10, 10 - 0]
    expected = 14 + np.quantile([*changes, *(-c for c in changes)], LEVELS)
    assert found == pytest.approx(np.maximum(expected, 0))
    assert hub_baseline(series[:, :3], 7)[0] == pytest.approx(np.zeros(len(LEVELS)))
