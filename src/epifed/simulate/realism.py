"""How like the real counties a simulated country is: one number per trait, side by side."""

import json
from datetime import date
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import shapely
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter1d
from scipy.spatial import cKDTree
from shapely.geometry import shape

from epifed.data.panel import CasePanel
from epifed.errors import EpifedError

Array = NDArray[np.float64]

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
DISTANCES = (0, 50, 100, 200, 400)
NEIGHBOURS = 6
HORIZON = 7
KM_PER_DEGREE = 111.2


def realism_table(
    real: CasePanel,
    simulated: CasePanel,
    period: tuple[date, date],
    real_positions: Array | None = None,
    simulated_positions: Array | None = None,
) -> pl.DataFrame:
    """Every trait of both panels in the period, and how far the simulated one is off in percent.

    Positions are kilometres, one row per region; without them they are the centroids of the
    panel's `boundaries`.
    """
    left = traits(real.between(*period), _positions(real, real_positions))
    right = traits(simulated.between(*period), _positions(simulated, simulated_positions))
    return pl.DataFrame(
        {
            "trait": list(left),
            "real": list(left.values()),
            "simulated": list(right.values()),
        }
    ).with_columns(
        ((pl.col("simulated") / pl.col("real") - 1) * pl.col("real").sign() * 100).alias("off_%")
    )


def traits(panel: CasePanel, positions: Array) -> dict[str, float]:
    """The traits of one panel, over all its days."""
    counts = panel.counts
    found = {
        "cases per day": float(counts.sum(0).mean()),
        "zero county-days": float((counts == 0).mean()),
    }
    found |= weekday_factors(panel)
    found["dispersion"] = dispersion(counts)
    growth = weekly_growth(panel)
    for lag in (1, 2, 3):
        pairs = growth[:, lag:].ravel(), growth[:, :-lag].ravel()
        found[f"growth autocorrelation, lag {lag}"] = float(np.corrcoef(*pairs)[0, 1])
    found["growth spread"] = float((growth - growth.mean(0)).std())
    found |= spatial_growth(growth, positions)
    smooth = centered_average(counts)
    found["peak day spread"] = float(smooth.argmax(1).std())
    found |= persistence(smooth)
    return found


def weekday_factors(panel: CasePanel) -> dict[str, float]:
    """Cases of the average Monday … Sunday relative to the average day."""
    national = panel.counts.sum(0)
    weekday = (panel.start.weekday() + np.arange(national.size)) % 7
    return {
        f"factor {name}": float(national[weekday == i].mean() / national.mean())
        for i, name in enumerate(WEEKDAYS)
        if (weekday == i).any()
    }


def dispersion(counts: Array) -> float:
    """Median over counties of the Pearson dispersion around the 7-day mean times the weekday.

    1 is Poisson. The expectation of a day is its centered 7-day mean times the county's own
    weekday factor, so neither the wave nor the weekly cycle counts as noise.
    """
    smooth = centered_average(counts)
    inner = counts[:, 3:-3]
    weekday = np.arange(inner.shape[1]) % 7
    expected = np.empty_like(inner)
    for day in range(7):
        of_day = weekday == day
        total = smooth[:, of_day].sum(1, keepdims=True)
        factor = inner[:, of_day].sum(1, keepdims=True) / np.maximum(total, 1e-9)
        expected[:, of_day] = smooth[:, of_day] * factor
    squares = (inner - expected) ** 2 / np.maximum(expected, 1e-9)
    known = expected > 0.5
    return float(np.nanmedian(np.where(known, squares, 0).sum(1) / np.maximum(known.sum(1), 1)))


def weekly_growth(panel: CasePanel) -> Array:
    """log((cases of a week + 1) / (cases of the week before + 1)), Monday to Sunday."""
    skip = -panel.start.weekday() % 7
    weeks = (panel.counts.shape[1] - skip) // 7
    if weeks < 6:
        raise EpifedError(f"found {weeks} full weeks; expected at least 6 to measure growth")
    weekly = panel.counts[:, skip : skip + 7 * weeks].reshape(-1, weeks, 7).sum(2)
    return np.asarray(np.diff(np.log(weekly + 1), axis=1))


def spatial_growth(growth: Array, positions: Array) -> dict[str, float]:
    """Moran's I of weekly growth and its correlation by distance, averaged over weeks."""
    centred = growth - growth.mean(0)
    n = len(centred)
    near = cKDTree(positions).query(positions, k=min(NEIGHBOURS + 1, n))[1][:, 1:]
    variance = (centred**2).sum(0)
    moran = (centred * centred[near].mean(1)).sum(0) / np.maximum(variance, 1e-12)
    found = {"Moran's I of growth": float(moran.mean())}
    gaps = np.linalg.norm(positions[:, None] - positions[None], axis=2)
    products = centred @ centred.T
    scale = variance.sum() / n
    for low, high in pairwise(DISTANCES):
        pairs = (gaps > max(low, 1e-9)) & (gaps <= high)
        if pairs.any():
            name = f"growth correlation, {low}–{high} km"
            found[name] = float(products[pairs].mean() / scale)
    return found


def persistence(smooth: Array) -> dict[str, float]:
    """R² and MAPE (zero targets left out) of the forecast "in 7 days as today"."""
    forecast, target = smooth[:, :-HORIZON], smooth[:, HORIZON:]
    residual = ((target - forecast) ** 2).sum()
    some = target > 0
    return {
        "persistence R²": float(1 - residual / ((target - target.mean()) ** 2).sum()),
        "persistence MAPE": float((np.abs(target - forecast)[some] / target[some]).mean()),
    }


def centered_average(counts: Array) -> Array:
    """The centered 7-day average of the days that have one."""
    return np.asarray(uniform_filter1d(counts, 7, axis=1)[:, 3:-3])


def _positions(panel: CasePanel, positions: Array | None) -> Array:
    if positions is not None:
        return positions
    if panel.boundaries is None:
        raise EpifedError(f"{panel.source}: found no boundaries; expected positions or boundaries")
    return centroids(panel.boundaries, panel.regions)


def centroids(boundaries: Path, regions: tuple[str, ...]) -> Array:
    """Centroids of the regions in kilometres, from a GeoJSON file in degrees."""
    features = json.loads(boundaries.read_text(encoding="utf-8"))["features"]
    shapes = {feature["properties"]["id"]: shape(feature["geometry"]) for feature in features}
    points = shapely.get_coordinates(shapely.centroid([shapes[region] for region in regions]))
    scale = np.array([np.cos(np.radians(points[:, 1].mean())), 1.0])
    return np.asarray(points * scale * KM_PER_DEGREE)
