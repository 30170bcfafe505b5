"""The shapes of regions, as their source has them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import geopandas as gpd

from epifed.errors import EpifedError


def read_shapes(path: Path, regions: Sequence[str]) -> Any:
    """The shapes of these regions from a GeoJSON file, a row for each, by its id."""
    try:
        found = gpd.read_file(path)
    except (OSError, ValueError, RuntimeError) as error:
        raise EpifedError(f"{path}: cannot be read as GeoJSON ({error})") from None
    if "id" not in found.columns:
        raise EpifedError(f"{path}: found no property 'id'; expected it in every feature")
    shapes = found.assign(id=found["id"].astype(str)).set_index("id")
    shapes = shapes[shapes.geometry.notna()]
    missing = set(regions) - set(shapes.index)
    if missing:
        raise EpifedError(f"{path}: found no shape for region {min(missing)}; expected all regions")
    return shapes.loc[list(regions), ["geometry"]]
