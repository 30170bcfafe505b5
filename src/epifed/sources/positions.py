"""Where regions lie: the middles of their shapes in a GeoJSON file."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def middles(path: Path) -> dict[str, tuple[float, float]]:
    """The middle of each shape's bounding box by its id, longitude first; none of a broken file.

    What is wrong with a file is said by whoever draws its shapes; for a forecast it is a help.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
        return {
            str(feature["properties"]["id"]): _middle(feature["geometry"]["coordinates"])
            for feature in content["features"]
        }
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return {}


def _middle(coordinates: Any) -> tuple[float, float]:
    x, y = zip(*_points(coordinates), strict=True)
    return (min(x) + max(x)) / 2, (min(y) + max(y)) / 2


def _points(nested: Any) -> Iterator[tuple[float, float]]:
    if isinstance(nested[0], int | float):
        yield float(nested[0]), float(nested[1])
    else:
        for part in nested:
            yield from _points(part)
