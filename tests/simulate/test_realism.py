"""The realism table: its traits measured on panels whose traits are known."""

from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from epifed.data.panel import CasePanel
from epifed.data.readers import read_prepared
from epifed.errors import EpifedError
from epifed.simulate import SimulationSettings, simulate
from epifed.simulate import simulation as measure

MONDAY = date(2020, 9, 7)
PERIOD = (MONDAY, MONDAY + timedelta(days=139))
places = np.random.default_rng(0).uniform(0, 500, (200, 2))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(1)


def panel(counts: NDArray[np.float64]) -> CasePanel:
    return CasePanel(counts, tuple(f"{i:05d}" for i in range(len(counts))), MONDAY)


def test_a_panel_is_like_itself(rng: np.random.Generator) -> None:
    made = panel(rng.poisson(20.0, (200, 140)).astype(float))
    table = measure.realism_table(made, made, PERIOD, places, places)
    assert table["off_%"].abs().max() == 0
    assert table.columns == ["trait", "real", "simulated", "off_%"]


def test_weekday_factors_are_found() -> None:
    factors = np.array([0.8, 1.2, 1.3, 1.2, 1.1, 0.9, 0.5])
    made = panel(np.tile(100 * factors, (5, 20)))
    assert list(measure.weekday_factors(made).values()) == pytest.approx(list(factors))


def test_poisson_has_dispersion_one_and_reporting_in_pairs_two(rng: np.random.Generator) -> None:
    counts = rng.poisson(50.0, (200, 140)).astype(float)
    assert measure.dispersion(counts) == pytest.approx(0.85, abs=0.1)  # 1 - 1/7 by the mean
    assert measure.dispersion(2 * counts) == pytest.approx(2 * measure.dispersion(counts))


def test_growth_that_neighbours_share_has_a_high_moran(rng: np.random.Generator) -> None:
    along = np.sin(places[:, :1] / 80 + np.arange(19)[None])
    alone = rng.normal(size=(200, 19))
    shared = measure.spatial_growth(along, places)
    private = measure.spatial_growth(alone, places)
    assert shared["Moran's I of growth"] > 0.7
    assert abs(private["Moran's I of growth"]) < 0.05
    assert shared["growth correlation, 0–50 km"] > 0.7
    assert abs(private["growth correlation, 0–50 km"]) < 0.05


def test_persistence_is_scored_without_zero_targets() -> None:
    smooth = np.array([[10.0] * 7 + [20.0] * 7, [5.0] * 7 + [0.0] * 7])
    scores = measure.persistence(smooth)
    assert scores["persistence MAPE"] == pytest.approx(0.5)
    assert scores["persistence R²"] == pytest.approx(1 - (7 * 100 + 7 * 25) / (14 * 100))


def test_a_short_period_is_refused() -> None:
    made = panel(np.ones((200, 140)))
    with pytest.raises(EpifedError, match="full weeks"):
        measure.realism_table(made, made, (MONDAY, MONDAY + timedelta(20)), places, places)


def test_positions_are_needed() -> None:
    made = replace(panel(np.ones((200, 140))), boundaries=None)
    with pytest.raises(EpifedError, match="boundaries"):
        measure.realism_table(made, made, PERIOD)


PHASES = {
    "autumn-2020": (date(2020, 9, 1), date(2021, 1, 31)),
    "omicron-2022": (date(2022, 1, 1), date(2022, 5, 31)),
}


@pytest.mark.parametrize("preset", list(PHASES))
def test_the_simulated_counties_are_like_the_real_ones(preset: str, real_data: Path) -> None:
    """Within 15 % of the real value, or within 0.08 for correlations, some of which are near 0."""
    made = simulate(SimulationSettings.of(preset=preset, seed=11))
    table = measure.realism_table(
        read_prepared(real_data),
        made.county_panel,
        PHASES[preset],
        simulated_positions=made.country.county_positions,
    )
    for trait, real, simulated, off in table.iter_rows():
        correlation = "correlation" in trait or "Moran" in trait
        assert abs(off) < 15 or (correlation and abs(simulated - real) < 0.08), trait
