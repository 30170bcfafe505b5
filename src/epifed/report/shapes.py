"""Shapes of regions from GeoJSON, and their outlines for a screen."""

import json
import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyproj
import shapely
from numpy.typing import NDArray

from epifed.data.panel import CasePanel
from epifed.errors import EpifedError

LONGITUDE_LATITUDE = "OGC:CRS84"
"""The coordinates of a GeoJSON file that names no others."""


@dataclass(frozen=True, eq=False)
class Shapes:
    """The shapes of regions, a geometry for each, and the coordinates they are in."""

    regions: tuple[str, ...]
    geometry: NDArray[np.object_]
    crs: str = LONGITUDE_LATITUDE

    def __len__(self) -> int:
        """How many regions there are."""
        return len(self.regions)

    def of(self, regions: Collection[str]) -> "Shapes":
        """Some of the shapes, in their own order."""
        kept = [k for k, region in enumerate(self.regions) if region in regions]
        return replace(
            self, regions=tuple(self.regions[k] for k in kept), geometry=self.geometry[kept]
        )

    def united(self, groups: Sequence[str]) -> "Shapes":
        """One shape for each group, of the regions that have its name in `groups`."""
        names = tuple(sorted(set(groups)))
        group = np.array(groups)
        whole = [shapely.union_all(self.geometry[group == name]) for name in names]
        return replace(self, regions=names, geometry=np.array(whole, dtype=object))

    def equal_area(self) -> "Shapes":
        """The same in metres of an equal-area projection centred on them."""
        west, south, east, north = shapely.total_bounds(self.geometry)
        crs = f"+proj=laea +lat_0={(south + north) / 2:.4f} +lon_0={(west + east) / 2:.4f} +units=m"
        to = pyproj.Transformer.from_crs(self.crs, crs, always_xy=True)
        flat = shapely.transform(
            self.geometry, lambda xy: np.column_stack(to.transform(xy[:, 0], xy[:, 1]))
        )
        return replace(self, geometry=flat, crs=crs)


def read_shapes(path: Path, regions: Sequence[str], names: Sequence[str] = ()) -> Shapes:
    """The shapes of these regions from a GeoJSON file, in their order.

    A feature names its region by the property `id`, else by the one that fits most regions, by
    their ids or their names.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
        features = [feature for feature in content["features"] if feature.get("geometry")]
        crs = (content.get("crs") or {}).get("properties", {}).get("name", LONGITUDE_LATITUDE)
        pyproj.CRS.from_user_input(crs)
        ids = _ids(features, regions, names or regions)
        wanted = set(regions)
        texts = {
            region: json.dumps(feature["geometry"])
            for region, feature in zip(ids, features, strict=True)
            if region in wanted
        }
        shapes = dict(zip(texts, shapely.from_geojson(list(texts.values())), strict=True))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise _unreadable(path, error) from None
    except (pyproj.exceptions.ProjError, shapely.errors.ShapelyError) as error:
        raise _unreadable(path, error) from None
    count = Counter(ids)
    twice = [region for region in regions if count[region] > 1]
    if twice:
        raise EpifedError(
            f"{path}: found {count[twice[0]]} shapes of region {twice[0]}; expected 1"
        )
    missing = wanted - shapes.keys()
    if missing:
        raise EpifedError(
            f"{path}: found no shape for region {min(missing)}; expected all regions, by a "
            "property with their ids or names"
        )
    return Shapes(tuple(regions), np.array([shapes[region] for region in regions]), crs)


def _ids(
    features: Sequence[dict[str, Any]], regions: Sequence[str], names: Sequence[str]
) -> list[str | None]:
    """The region of each feature, as far as it has one, by the property that fits most."""
    region_of = dict(zip(names, regions, strict=True)) | {region: region for region in regions}
    values = [{"": one.get("id"), **(one.get("properties") or {})} for one in features]
    keys = dict.fromkeys(["id", *(key for one in values for key in one)])
    columns = [
        [region_of.get(str(one[key])) if key in one else None for one in values] for key in keys
    ]
    return max(columns, key=lambda column: len({*column} - {None}))


def _unreadable(path: Path, error: Exception) -> EpifedError:
    reason = " ".join(str(error).split()) or type(error).__name__
    return EpifedError(f"{path}: cannot be read as GeoJSON ({reason})")


GRID = 8000
"""Steps along the longer side of the country: finer than a screen shows at the usual zoom."""
POINTS = 18_000
"""About as many vertices as a page draws at once without a delay."""
POINTS_EACH = 8
"""Where there are many regions, so many for each are kept."""


def map_of(panel: CasePanel) -> dict[str, Any] | None:
    """The outlines of a panel's regions, or circles around their places; none without either."""
    if panel.boundaries is not None:
        return outlines(read_shapes(panel.boundaries, panel.regions, panel.names).geometry)
    if panel.positions is None or len(panel.regions) < 2:
        return None
    places = shapely.points(panel.positions)
    others = shapely.STRtree(places).query_nearest(places, exclusive=True, return_distance=True)[1]
    apart = float(np.median(others)) or 0.1
    squeeze = math.cos(math.radians(float(np.median(panel.positions[:, 1]))))
    corners = np.linspace(0, 2 * np.pi, 17)[:-1]
    circle = 0.4 * apart * np.column_stack([np.cos(corners) / squeeze, np.sin(corners)])
    return outlines(shapely.polygons([place + circle for place in panel.positions]), exact=True)


def outlines(shapes: NDArray[np.object_], exact: bool = False) -> dict[str, Any]:
    """The shapes of all regions as whole numbers, simplified unless they are exact.

    A shape is a list of polygons, a polygon a list of rings, and a ring the flat list of its
    first point and the steps to each further one, the closing point left out.
    """
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
        "shapes": [_encoded(shape) for shape in (flat if exact else _simplified(flat))],
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
