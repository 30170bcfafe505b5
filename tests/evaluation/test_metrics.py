import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from epifed.evaluation.metrics import STRATA, scores, strata

values = arrays(np.float64, 9, elements=st.integers(0, 1000).map(float))


@given(truth=values, prediction=values)
def test_scores_are_their_definitions(truth: np.ndarray, prediction: np.ndarray) -> None:
    got = scores(truth, prediction)
    pairs = list(zip(truth, prediction, strict=True))
    assert got["mse"] == pytest.approx(sum((p - t) ** 2 for t, p in pairs) / 9)
    assert got["mae"] == pytest.approx(sum(abs(p - t) for t, p in pairs) / 9)
    relative = sorted(100 * abs(p - t) / t for t, p in pairs if t)
    assert got["zeros"] == 9 - len(relative)
    if relative:
        assert got["mape"] == pytest.approx(sum(relative) / len(relative))
        middle = len(relative) // 2
        median = (
            relative[middle] if len(relative) % 2 else sum(relative[middle - 1 : middle + 1]) / 2
        )
        assert got["mdape"] == pytest.approx(median)
    else:
        assert math.isnan(got["mape"]) and math.isnan(got["mdape"])
    mean = sum(truth) / 9
    variation = sum((t - mean) ** 2 for t in truth)
    if variation:
        assert got["r2"] == pytest.approx(1 - 9 * got["mse"] / variation, abs=1e-9)
    else:
        assert math.isnan(got["r2"])


@given(truth=values, prediction=values, like_today=values)
def test_honest_scores_are_their_definitions(
    truth: np.ndarray, prediction: np.ndarray, like_today: np.ndarray
) -> None:
    got = scores(truth, prediction, like_today)
    scale = np.abs(like_today - truth).mean()
    if scale:
        assert got["mase"] == pytest.approx(np.abs(prediction - truth).mean() / scale)
    else:
        assert math.isnan(got["mase"])
    mean = np.maximum(prediction, 0.01)
    expected = np.mean(
        [
            2 * (t * math.log(t / m) - t + m) if t else 2 * m
            for t, m in zip(truth, mean, strict=True)
        ]
    )
    assert got["deviance"] == pytest.approx(expected, abs=1e-9)


def test_a_perfect_forecast() -> None:
    truth = np.array([[1.0, 2.0], [3.0, 0.0]])
    got = scores(truth, truth)
    assert [got[m] for m in ("mse", "mae", "mape", "mdape", "r2")] == [0, 0, 0, 0, 1]


def test_no_targets_have_no_scores() -> None:
    assert all(math.isnan(v) for v in scores(np.zeros(0), np.zeros(0)).values())


@given(arrays(np.int64, 30, elements=st.integers(1, 4_000_000)))
def test_every_region_is_in_exactly_one_stratum(population: np.ndarray) -> None:
    chosen = [mask for _, mask in strata(population)]
    assert len(chosen) == len(STRATA) == 5
    assert (np.sum(chosen, axis=0) == 1).all()
