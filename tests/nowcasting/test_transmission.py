"""R(t) against the published formula, a table of the reference implementation and a renewal."""

from datetime import date

import numpy as np
import pytest
from scipy.stats import gamma

from epifed.errors import EpifedError
from epifed.nowcasting.transmission import Generation, posterior, reproduction

# The serial interval of mean 2.6 and deviation 1.5 days that comes with EpiEstim (data Flu2009).
EPIESTIM = [0.000, 0.233, 0.359, 0.198, 0.103, 0.053, 0.027, 0.014, 0.007, 0.003, 0.002, 0.001]


def test_the_generation_time_is_discretised_as_in_epiestim() -> None:
    assert Generation(2.6, 1.5).weights()[:12] == pytest.approx(EPIESTIM, abs=6e-4)
    weights = Generation().weights()
    assert weights.sum() == pytest.approx(1, abs=1e-3)
    assert weights @ np.arange(len(weights)) == pytest.approx(4.7, abs=0.05)


def test_the_posterior_is_the_published_one() -> None:
    cases = np.array([3.0, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8])
    generation = Generation(3.0, 1.0)
    weights = generation.weights()
    shape, scale = posterior(cases, generation)
    for day in range(7, 12):
        week = range(day - 6, day + 1)
        pressure = sum(weights[k] * cases[s - k] for s in week for k in range(1, s + 1))
        assert shape[day] == pytest.approx(1 + sum(cases[s] for s in week))
        assert scale[day] == pytest.approx(1 / (1 / 5 + pressure))


def test_a_renewal_gives_its_own_number_back() -> None:
    rng = np.random.default_rng(1)
    generation, number = Generation(), 1.3
    weights = generation.weights()
    cases = np.full(60, 200.0)
    for day in range(30, 60):
        past = sum(weights[k] * cases[day - k] for k in range(1, 22))
        cases[day] = rng.poisson(number * past)
    found = reproduction(np.tile(cases, (400, 1, 1)), ("a",), date(2020, 9, 1), 7, generation)
    low, _, middle, _, high = found.quantiles[0, -1]
    assert low < number < high
    assert middle == pytest.approx(number, rel=0.05)
    shape, scale = posterior(cases, generation)
    expected = gamma.ppf([0.025, 0.975], shape[-1], scale=scale[-1])
    assert [low, high] == pytest.approx(expected, rel=0.03)
    assert found.days[-1] == date(2020, 9, 1)


def test_what_is_not_known_of_the_last_days_widens_the_interval() -> None:
    rng = np.random.default_rng(2)
    sure = np.tile(np.full(40, 100.0), (400, 1, 1))
    unsure = sure.copy()
    unsure[..., -3:] += rng.normal(0, 60, size=(400, 1, 3)).clip(-100)
    spans = []
    for draws in (sure, unsure):
        quantiles = reproduction(draws, ("a",), date(2020, 9, 1), 1).quantiles[0, 0]
        spans.append(quantiles[-1] - quantiles[0])
    assert spans[1] > 1.3 * spans[0]


@pytest.mark.parametrize(("mean", "sd"), [(1.0, 1.0), (4.0, 0.0), (float("nan"), 1.0)])
def test_no_generation_time_is_refused(mean: float, sd: float) -> None:
    with pytest.raises(EpifedError, match="expected a mean above 1"):
        Generation(mean, sd)
