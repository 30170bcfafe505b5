"""Coast, Voronoi cells and polygons of an invented country."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray
from scipy.spatial import Voronoi

Array = NDArray[np.float64]
Index = NDArray[np.int64]

CORNER = (8.0, 47.5)
"""Longitude and latitude of the plane's origin: the invented country lies where no map is empty."""
KM_PER_DEGREE = 111.2
DECIMALS = 4
COAST_POINTS = 720


@dataclass(frozen=True)
class Shapes:
    """Polygons in longitude and latitude; a county is exactly the union of its communities."""

    communities: NDArray[np.object_]
    counties: NDArray[np.object_]


def coastline(area: float, rng: np.random.Generator) -> Array:
    """A closed wobbly line around so many square kilometres."""
    angle = np.linspace(0, 2 * np.pi, COAST_POINTS, endpoint=False)
    radius = np.ones(COAST_POINTS)
    for wave in range(2, 60):
        radius += (
            0.22 / wave**1.15 * rng.normal() * np.cos(wave * angle + rng.uniform(0, 2 * np.pi))
        )
    radius = np.maximum(radius, 0.35)
    line = np.stack([0.85 * radius * np.cos(angle), 1.15 * radius * np.sin(angle)], axis=1)
    x, y = line.T
    enclosed = 0.5 * abs(np.sum(x * np.roll(y, -1) - y * np.roll(x, -1)))
    line *= np.sqrt(area / enclosed)
    return np.asarray(line - line.min(0))


def points_inside(coast: Array, count: int, rng: np.random.Generator) -> Array:
    """Uniform points within the coast."""
    width, height = coast.max(0)
    share = shapely.area(shapely.polygons(coast)) / (width * height)
    found: list[Array] = []
    missing = count
    while missing > 0:
        tried = rng.random((int(missing / share * 1.02) + 16, 2)) * (width, height)
        kept = tried[inside(coast, tried)][:missing]
        found.append(kept)
        missing -= len(kept)
    return np.concatenate(found)


def inside(coast: Array, points: Array) -> NDArray[np.bool_]:
    """Which points are on land."""
    land = shapely.polygons(coast)
    shapely.prepare(land)
    return np.asarray(shapely.contains_xy(land, points[:, 0], points[:, 1]))


def voronoi(points: Array) -> tuple[Array, Index, Index]:
    """Cells as vertices in order with the cell of each, and the pairs of cells that touch."""
    low, high = points.min(0), points.max(0)
    middle, reach = (low + high) / 2, 10 * max(float((high - low).max()), 10.0)
    turn = np.linspace(0, 2 * np.pi, 12, endpoint=False)
    far = middle + reach * np.stack([np.cos(turn), np.sin(turn)], axis=1)
    diagram = Voronoi(np.concatenate([points, far]))
    n = len(points)
    pairs = diagram.ridge_points
    ends = np.asarray(diagram.ridge_vertices)
    edges = pairs[(pairs < n).all(1)]
    cell = np.concatenate([pairs[:, 0], pairs[:, 1]]).repeat(2)
    vertex = np.concatenate([ends, ends]).ravel()
    kept = (cell < n) & (vertex >= 0)
    both = np.unique(np.stack([cell[kept], vertex[kept]], axis=1), axis=0)
    cell, vertices = both[:, 0], diagram.vertices[both[:, 1]]
    offset = vertices - points[cell]
    order = np.lexsort((np.arctan2(offset[:, 1], offset[:, 0]), cell))
    return vertices[order], cell[order].astype(np.int64), edges.astype(np.int64)


def lon_lat_shapes(cells: tuple[Array, Index], coast: Array, county_of: Index) -> Shapes:
    """Clip the cells to the coast, turn kilometres into degrees and unite counties.

    Neighbours share their vertices, and equal numbers round to equal numbers, so rounding opens
    no gap; only then are counties united, so nesting is exact.
    """
    vertices, cell_of = cells
    land = shapely.polygons(coast)
    shapely.prepare(land)
    polygons = shapely.polygons(shapely.linearrings(vertices, indices=cell_of))
    shore = ~shapely.contains_properly(land, polygons)
    polygons[shore] = shapely.intersection(polygons[shore], land)
    polygons = shapely.transform(polygons, lambda xy: np.round(_degrees(xy), DECIMALS))
    polygons = shapely.remove_repeated_points(polygons)
    broken = ~shapely.is_valid(polygons)
    polygons[broken] = shapely.buffer(shapely.make_valid(polygons[broken]), 0)
    bounds = np.flatnonzero(np.diff(county_of, prepend=-1))
    groups = np.split(polygons, bounds[1:])
    counties = np.array([shapely.union_all(group) for group in groups], dtype=object)
    return Shapes(communities=polygons, counties=counties)


def geojson(ids: Iterable[str], names: Iterable[str], polygons: NDArray[np.object_]) -> str:
    """A feature collection, one line per feature."""
    texts = shapely.to_geojson(polygons)
    lines = [
        json.dumps({"type": "Feature", "id": i, "properties": {"id": i, "name": name}})[:-1]
        + f', "geometry": {text}}}'
        for i, name, text in zip(ids, names, texts, strict=True)
    ]
    return '{"type":"FeatureCollection","features":[\n' + ",\n".join(lines) + "\n]}\n"


def _degrees(kilometres: NDArray[Any]) -> Array:
    latitude = CORNER[1] + kilometres[:, 1] / KM_PER_DEGREE
    longitude = CORNER[0] + kilometres[:, 0] / (KM_PER_DEGREE * np.cos(np.radians(51)))
    return np.stack([longitude, latitude], axis=1)
