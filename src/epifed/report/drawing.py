"""The common style of figures and maps: colours by ε, axes, and shapes of regions."""

import json
import math
import re
import textwrap
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import date
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import polars as pl
import pyproj
import shapely
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import (
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullLocator,
    SymmetricalLogLocator,
)
from numpy.typing import NDArray

from epifed.data.panel import CasePanel
from epifed.errors import EpifedError
from epifed.files import write_atomic
from epifed.report.tables import table_epsilons
from epifed.settings import EPSILONS

matplotlib.use("Agg")


Colour = str | tuple[float, float, float, float]
FloatArray = NDArray[np.floating[Any]]

WIDTH = 7.5
"""Inches, the full width of a printed page."""
PERIOD_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
PERSISTENCE_COLOUR = "#555555"
MOST_PANELS = 5
THOUSANDS = FuncFormatter(lambda value, _: f"{value:,.0f}")


def colour(epsilon: float) -> tuple[float, float, float, float]:
    """The colour of a budget, on a colour-blind safe scale from the strictest to none."""
    low, high = math.log(min(EPSILONS)), math.log(10.0)
    place = (math.log(min(max(epsilon, min(EPSILONS)), 10.0)) - low) / (high - low)
    red, green, blue, alpha = plt.get_cmap("plasma")(0.87 * place)
    return red, green, blue, alpha


def style() -> AbstractContextManager[None]:
    """A context with the common style of all figures."""
    with as_file(files("epifed.report").joinpath("epifed.mplstyle")) as path:
        return plt.rc_context(matplotlib.rc_params_from_file(path, use_default_template=False))


def save(figure: Figure, *paths: Path) -> None:
    """Write a figure in the formats of the names' endings, and close it."""
    with style():
        for path in paths:
            kind = path.suffix[1:]
            undated = {"CreationDate": None} if kind == "pdf" else None

            def write(temporary: Path, kind: str = kind, undated: Any = undated) -> None:
                figure.savefig(temporary, format=kind, metadata=undated)

            write_atomic(path, write)
    plt.close(figure)


def period_title(period: str) -> str:
    """A readable period: "November 2020" for 2020-11, both days for a pair, else its name."""
    if re.fullmatch(r"\d{4}-(0[1-9]|1[0-2])", period):
        return f"{date.fromisoformat(f'{period}-01'):%B %Y}"
    try:
        first, last = (date.fromisoformat(day) for day in period.split("_"))
    except ValueError:
        return period
    year = f" {first:%Y}" if first.year != last.year else ""
    return f"{first.day} {first:%b}{year} – {last.day} {last:%b %Y}"


def panel_title(axes: Axes, letter: str, title: str, *, pad: float | None = None) -> None:
    """Set the panel's letter and title."""
    axes.set_title(rf"$\mathbf{{{letter}}}$  {title}", pad=pad)


def credit(figure: Figure, attribution: Sequence[str]) -> None:
    """Print the sources in the figure, as their licences require."""
    letters = int(figure.get_figwidth() * 24)
    lines = [line for source in attribution for line in textwrap.wrap(source, letters)]
    if lines:
        figure.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=5.5, color="#444444")


def date_axis(axes: Axes, *, from_the_first: bool = True) -> None:
    """Format an axis of days, with ticks counted from the first of a month or not."""
    locator = AutoDateLocator(  # type: ignore[no-untyped-call]
        minticks=4, maxticks=9, interval_multiples=from_the_first
    )
    formatter = ConciseDateFormatter(  # type: ignore[no-untyped-call]
        locator,
        formats=["%Y", "%b", "%d %b", "%H:%M", "%H:%M", "%S"],
        zero_formats=["", "%b\n%Y", "%d %b", "%d %b", "%H:%M", "%H:%M"],
        show_offset=False,
    )
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(formatter)


def chosen_budgets(epsilons: Sequence[float]) -> list[float]:
    """The budgets with a panel or line each: all if they are few, else the paper's main ones.

    >>> chosen_budgets([0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.0, 3.0])
    [0.3, 0.5, 1.0, 2.0]
    """
    found = sorted(set(epsilons))
    if len(found) <= MOST_PANELS:
        return found
    paper = [e for e in found if e in table_epsilons("main")]
    if len(paper) > 1:
        return paper
    spread = np.unique(np.linspace(0, len(found) - 1, MOST_PANELS).round().astype(int))
    return [found[i] for i in spread]


def scatter(
    axes: Axes, truth: FloatArray, prediction: FloatArray, title: str, dots: Colour
) -> None:
    """Plot predicted against true cases with the diagonal, on log axes.

    Where there are zeros or negative predictions, an axis is linear between -1 and 1.
    """
    axes.scatter(truth, prediction, s=4, alpha=0.3, linewidths=0, color=dots, rasterized=True)
    low, high = (float(truth.min()), float(truth.max())) if truth.size else (0.0, 1.0)
    start = low if low > 0 else min(1.0, high)
    line = np.unique([low, *np.geomspace(start or 1.0, high or 1.0, 100)])
    axes.plot(line, line, color="black", linewidth=0.9, label="perfect prediction")
    least = {"x": low, "y": min(low, float(prediction.min())) if prediction.size else low}
    for axis, value in least.items():
        if value > 0:
            axes.set(**{f"{axis}scale": "log"})
        else:
            signed_log(axes, axis)
    axes.set(title=title, xlabel="true cases per day")


def signed_log(axes: Axes, axis: str = "y") -> None:
    """Set a log axis for numbers of either sign, linear between -1 and 1."""
    (axes.set_xscale if axis == "x" else axes.set_yscale)("symlog", linthresh=1)
    ticks = axes.xaxis if axis == "x" else axes.yaxis
    locator = SymmetricalLogLocator(base=10, linthresh=1)
    locator.set_params(numticks=7)
    ticks.set_major_locator(locator)
    ticks.set_minor_locator(NullLocator())
    ticks.set_major_formatter(FuncFormatter(lambda value, _: _power(value)))


def _power(value: float) -> str:
    if abs(value) <= 10:
        return f"{value:g}".replace("-", "−")
    sign = "-" if value < 0 else ""
    return rf"${sign}10^{{{round(math.log10(abs(value)))}}}$"


def log_scale(axes: Axes) -> None:
    """Set a log y axis, or a linear one where no drawn value is above zero."""
    if math.isfinite(axes.dataLim.minposy):
        axes.set_yscale("log")


def log_ticks(axes: Axes) -> None:
    """Set ticks at powers of ten, with more ticks on a short range."""
    low, high = axes.get_ylim()
    if low > 0 and high / low < 100:
        few = high / low < 10
        axes.yaxis.set_major_locator(
            MaxNLocator(6, steps=[1, 2, 5, 10]) if few else LogLocator(subs=(1, 2, 5))
        )
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_locator(NullLocator())


def places(epsilons: Sequence[float]) -> list[float]:
    """Positions of budgets on the axis: ε itself, and twice the largest of S1 for ε = ∞."""
    return [
        2 * max(e for e in EPSILONS if math.isfinite(e)) if math.isinf(e) else e for e in epsilons
    ]


def band(
    axes: Axes,
    x: Sequence[float],
    line: pl.DataFrame,
    label: str,
    line_colour: Colour,
    *,
    most: float | None = None,
) -> None:
    """Draw a line of means with a band of one standard deviation.

    On a log axis the band cannot reach 0, and ends at a tenth of the mean; `most` is for a score
    with an upper bound.
    """
    mean = line["mean"].to_numpy()
    std = line["std"].fill_null(0.0).to_numpy()
    low = np.maximum(mean - std, mean / 10) if most is None else mean - std
    high = np.minimum(mean + std, math.inf if most is None else most)
    shade = 0.15 if most is None else 0.08
    axes.plot(x, mean, marker="o", color=line_colour, label=label)
    axes.fill_between(x, low, high, color=line_colour, alpha=shade, linewidth=0)


LONGITUDE_LATITUDE = "OGC:CRS84"
"""The coordinate system of a GeoJSON file that names no other."""


@dataclass(frozen=True, eq=False)
class Shapes:
    """The shapes of regions, a geometry for each, with their coordinate system."""

    regions: tuple[str, ...]
    geometry: NDArray[np.object_]
    crs: str = LONGITUDE_LATITUDE

    def __len__(self) -> int:
        """The number of regions."""
        return len(self.regions)

    def of(self, regions: Collection[str]) -> "Shapes":
        """The shapes of some regions, in their present order."""
        kept = [k for k, region in enumerate(self.regions) if region in regions]
        return replace(
            self, regions=tuple(self.regions[k] for k in kept), geometry=self.geometry[kept]
        )

    def united(self, groups: Sequence[str]) -> "Shapes":
        """One shape for each group; `groups` names the group of each region."""
        names = tuple(sorted(set(groups)))
        group = np.array(groups)
        whole = [shapely.union_all(self.geometry[group == name]) for name in names]
        return replace(self, regions=names, geometry=np.array(whole, dtype=object))

    def equal_area(self) -> "Shapes":
        """The shapes in metres of an equal-area projection centred on them."""
        west, south, east, north = shapely.total_bounds(self.geometry)
        crs = f"+proj=laea +lat_0={(south + north) / 2:.4f} +lon_0={(west + east) / 2:.4f} +units=m"
        to = pyproj.Transformer.from_crs(self.crs, crs, always_xy=True)
        flat = shapely.transform(
            self.geometry, lambda xy: np.column_stack(to.transform(xy[:, 0], xy[:, 1]))
        )
        return replace(self, geometry=flat, crs=crs)


def read_shapes(path: Path, regions: Sequence[str], names: Sequence[str] = ()) -> Shapes:
    """The shapes of these regions from a GeoJSON file, in their order.

    A feature names its region by the property `id`, else by the property that matches the ids or
    names of most regions.
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
    """The region of each feature, if it has one, by the property that matches most."""
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
"""Number of vertices kept for each region where there are many regions."""


def map_of(panel: CasePanel) -> dict[str, Any] | None:
    """The outlines of a panel's regions, or circles around their positions; none without either."""
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
    """The shapes of all regions as whole numbers, simplified unless `exact`.

    A shape is a list of polygons, and a polygon a list of rings. A ring is the flat list of its
    first point and the steps to each further one, without the closing point.
    """
    west, south, east, north = (float(v) for v in shapely.total_bounds(shapes))
    squeeze = math.cos(math.radians((south + north) / 2))
    step = max((east - west) * squeeze, north - south, 1e-6) / GRID
    scale = np.array([step / squeeze, step])
    # In equal steps of both axes, so that one tolerance applies to both.
    flat = shapely.transform(shapes, lambda xy: (xy - (west, south)) / scale)
    return {
        "origin": [west, south],
        "step": scale.tolist(),
        "aspect": round(squeeze, 4),
        "shapes": [_encoded(shape) for shape in (flat if exact else _simplified(flat))],
    }


def _simplified(shapes: Any) -> Any:
    """Shapes with fewer points; small regions remain, because the coverage keeps every ring."""
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
