"""Boundaries for a screen: simplified together, so that neighbours still meet, and on a grid."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import shapely

from epifed.report.shapes import read_shapes

GRID = 8000
"""Steps along the longer side of the country: finer than a screen shows at the usual zoom."""
POINTS = 18_000
"""About as many vertices as a page draws at once without a delay."""
POINTS_EACH = 8
"""Where there are many regions, so many for each are kept."""


def outlines(path: Path, regions: Sequence[str]) -> dict[str, Any]:
    """The shapes of all regions as whole numbers.

    A shape is a list of polygons, a polygon a list of rings, and a ring the flat list of its
    first point and the steps to each further one, the closing point left out.
    """
    shapes = read_shapes(path, regions).geometry
    west, south, east, north = (float(v) for v in shapely.total_bounds(shapes))
    squeeze = math.cos(math.radians((south + north) / 2))
    step = max((east - west) * squeeze, north - south, 1e-6) / GRID
    scale = np.array([step / squeeze, step])
    # In equal steps of both axes, so that one tolerance holds for both.
    flat = shapely.transform(shapes, lambda xy: (xy - (west, south)) / scale)
    return {
        "origin": [west, south],
        "step": scale.tolist(),
        "aspect": round(squeeze, 4),
        "shapes": [_encoded(shape) for shape in _simplified(flat)],
    }


def _simplified(shapes: Any) -> Any:
    """As few points as fit; a small region never vanishes, for the coverage keeps every ring."""
    tolerance = 4.0
    result = shapely.coverage_simplify(shapes, tolerance)
    most = max(POINTS, POINTS_EACH * len(shapes))
    while shapely.get_num_coordinates(result).sum() > most and tolerance < GRID / 50:
        tolerance *= 1.6
        result = shapely.coverage_simplify(shapes, tolerance)
    return result


def _encoded(shape: Any) -> list[list[list[int]]]:
    polygons = [
        [_ring(ring) for ring in (part.exterior, *part.interiors)]
        for part in shapely.get_parts(shape)
        if part.geom_type == "Polygon"
    ]
    kept = [[ring for ring in rings if ring] for rings in polygons if rings[0]]
    return kept or [[_dot(shape)]]


def _ring(ring: Any) -> list[int]:
    points = np.rint(shapely.get_coordinates(ring)).astype(int)[:-1]
    moved = np.any(np.diff(points, axis=0, prepend=points[-1:]) != 0, axis=1)
    points = points[moved]
    if len(points) < 3:
        return []
    steps = np.diff(points, axis=0)
    return [int(v) for v in np.concatenate([points[:1], steps]).ravel()]


def _dot(shape: Any) -> list[int]:
    x, y = (round(v) for v in shapely.point_on_surface(shape).coords[0])
    return [x, y, 1, 0, 0, 1]
