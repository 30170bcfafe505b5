"""Maps from GeoJSON, in an equal-area projection around the country, with their attribution."""

import math
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
import shapely
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PatchCollection
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize
from matplotlib.dates import DateFormatter
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from numpy.typing import NDArray

from epifed.report.data_figures import daily_counts
from epifed.report.drawing import (
    THOUSANDS,
    WIDTH,
    credit,
    panel_title,
    period_title,
    style,
)
from epifed.report.shapes import Shapes, read_shapes

if TYPE_CHECKING:
    from epifed.report.country import Atlas, Place

STATE_COLOUR, COUNTY_COLOUR = "#E69F00", "#D55E00"
LAND, THIN, THICK = "#F4F4F2", "#9A9A9A", "#1A1A1A"
WEEKS = 4


def read_boundaries(path: FilePath, regions: Sequence[str]) -> Shapes:
    """Shapes by region id, in metres of an equal-area projection centred on them."""
    return read_shapes(path, regions).equal_area()


def regions(country: "Atlas", place: "Place", period: tuple[date, date]) -> Figure:
    """Communities of a state, counties of the country, and the cases of one county's communities.

    The paper's Fig. 2.
    """
    of_state = dict(country.table.select("county", "state").iter_rows())
    communities, all_counties = country.communities, country.county_shapes
    assert communities is not None and country.community_shapes is not None
    assert all_counties is not None
    inside = {county for county, state in of_state.items() if state == place.state}
    parents = zip(communities.regions, communities.parents, strict=True)
    small = country.community_shapes.of({c for c, parent in parents if parent in inside})
    with style():
        figure, grid = plt.subplot_mosaic(
            [["state", "country"], ["cases", "cases"]],
            figsize=(WIDTH, 6.6),
            height_ratios=[1.45, 1],
            width_ratios=[1.25, 1],
        )
        counties = all_counties.of(inside)
        left = blank_map(grid["state"])
        fill(left, counties, facecolor=LAND)
        fill(left, all_counties.of([place.county]), facecolor=COUNTY_COLOUR)
        outline(left, small, colors=THIN, linewidths=0.25)
        outline(left, counties, colors=THICK, linewidths=0.8)
        panel_title(left, "A", f"{place.state}: counties and communities,\n{place.name} marked")
        right = blank_map(grid["country"])
        fill(right, all_counties, facecolor=LAND)
        fill(right, counties, facecolor=STATE_COLOUR)
        outline(right, all_counties, colors=THIN, linewidths=0.25)
        whole = all_counties.united([of_state[county] for county in all_counties.regions])
        outline(right, whole, colors=THICK, linewidths=0.8)
        right.set_title(f"The country: states and counties,\n{place.state} marked")
        _trajectories(grid["cases"], country, place, period)
        credit(figure, country.attribution)
    return figure


def cases(country: "Atlas", periods: Mapping[str, tuple[date, date]]) -> Figure:
    """National daily counts, and weekly incidence maps where there are shapes (the paper's Fig. 4).

    Around each period, which is shaded, a stretch of its own length twice before and once after.
    """
    mapped = country.county_shapes is not None
    rows: Any = []
    for period in periods:
        rows.append([f"{period} line"] * WEEKS)
        if mapped:
            rows.append([f"{period} {week}" for week in range(WEEKS)])
    heights = [1.0, 1.35] if mapped else [1.0]
    with style():
        figure: Figure
        figure, grid = plt.subplot_mosaic(
            rows,
            figsize=(WIDTH, 0.5 + sum(1.75 * h for h in heights) * len(periods)),
            height_ratios=heights * len(periods),
        )
        letters = iter("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
        for period, days in periods.items():
            _national(grid[f"{period} line"], country, days)
            panel_title(
                grid[f"{period} line"],
                next(letters),
                f"Daily new cases in the country, {period_title(period)} shaded",
            )
            if mapped:
                maps = [grid[f"{period} {week}"] for week in range(WEEKS)]
                _weekly(figure, maps, country, days, next(letters))
        figure.align_ylabels([grid[f"{period} line"] for period in periods])
        credit(figure, country.attribution)
    return figure


def incidence(
    country: "Atlas", days: tuple[date, date]
) -> list[tuple[date, date, dict[str, float]]]:
    """Weekly cases per 100,000 in each county: the first four whole weeks of a period at most."""
    population = country.population(days[0].year)
    panel = country.counties
    whole = ((days[1] - days[0]).days + 1) // 7
    found = []
    for week in range(min(whole, WEEKS)):
        first = days[0] + timedelta(days=7 * week)
        last = first + timedelta(days=6)
        total = panel.between(first, last).counts.sum(axis=1)
        people = np.array([population[region] for region in panel.regions])
        rate = dict(zip(panel.regions, (1e5 * total / people).tolist(), strict=True))
        found.append((first, last, rate))
    return found


def blank_map(axes: Axes) -> Axes:
    """Axes without frame and scale, in which a metre is as wide as it is high."""
    axes.set_axis_off()
    axes.set_aspect("equal", anchor="NW")
    return axes


def fill(
    axes: Axes, shapes: Shapes, values: Mapping[str, float] | None = None, **look: Any
) -> PatchCollection:
    """Draw regions as areas, coloured by value if there are values."""
    polygons, region = shapely.get_parts(shapes.geometry, return_index=True)
    paths = [
        Path.make_compound_path(*(Path(ring, closed=True) for ring in _rings(polygon)))
        for polygon in polygons
    ]
    drawn = PatchCollection([PathPatch(path) for path in paths], **({"linewidth": 0} | look))
    if values is not None:
        drawn.set_array(np.array([values[name] for name in shapes.regions])[region])
    axes.add_collection(drawn)
    axes.autoscale_view()
    return drawn


def outline(axes: Axes, shapes: Shapes, **look: Any) -> None:
    """Draw the boundaries of regions."""
    polygons = shapely.get_parts(shapes.geometry)
    lines = [ring for polygon in polygons for ring in _rings(polygon)]
    axes.add_collection(LineCollection(lines, **look))
    axes.autoscale_view()


def _rings(polygon: Any) -> list[NDArray[np.float64]]:
    return [shapely.get_coordinates(ring) for ring in (polygon.exterior, *polygon.interiors)]


def _weekly(
    figure: Figure, maps: list[Axes], country: "Atlas", days: tuple[date, date], letter: str
) -> None:
    weeks, shapes = incidence(country, days), country.county_shapes
    assert shapes is not None
    for axes in maps[len(weeks) :]:
        axes.set_axis_off()
    if not weeks:
        return
    everything = np.concatenate([list(rate.values()) for _, _, rate in weeks])
    norm = Normalize(0, float(np.quantile(everything, 0.99)) or 1.0)
    colours = heat()
    for axes, (first, last, rate) in zip(maps, weeks, strict=False):
        fill(
            blank_map(axes), shapes, rate, norm=norm, cmap=colours,
            edgecolor="white", linewidth=0.1,
        )  # fmt: skip
        month = "" if first.month == last.month else f" {first:%b}"
        axes.set_title(f"{first.day}{month} – {last.day} {last:%b %Y}")
    panel_title(maps[0], letter, maps[0].get_title(loc="left"))
    bar = figure.colorbar(
        plt.cm.ScalarMappable(norm, colours), ax=maps, location="right", extend="max",
        shrink=0.85, aspect=18, pad=0.01, format=THOUSANDS,
    )  # fmt: skip
    bar.set_label("cases a week per 100,000")
    bar.outline.set_visible(False)


def heat() -> Colormap:
    """Light to dark, safe for the colour-blind and in grey, with white kept for the background."""
    steps = plt.get_cmap("magma_r")(np.linspace(0.04, 0.92, 256))
    return LinearSegmentedColormap.from_list("heat", [tuple(step) for step in steps])


def _national(axes: Axes, country: "Atlas", days: tuple[date, date]) -> None:
    panel = country.counties
    length = days[1] - days[0]
    first, last = max(panel.start, days[0] - 2 * length), min(panel.end, days[1] + length)
    daily_counts(axes, panel, (first, last))
    axes.axvspan(
        np.datetime64(days[0]), np.datetime64(days[1]),  # type: ignore[arg-type]
        color="black", alpha=0.07, linewidth=0,
    )  # fmt: skip


def _trajectories(axes: Axes, country: "Atlas", place: "Place", period: tuple[date, date]) -> None:
    assert country.communities is not None
    panel = country.communities.between(*period)
    rows = [k for k, parent in enumerate(panel.parents) if parent == place.county]
    people = panel.population if panel.population is not None else np.zeros(len(panel.regions))
    rows.sort(key=lambda k: -int(people[k]))
    named = len(rows) if len(rows) <= 14 else 13
    shades = plt.get_cmap("viridis")(np.linspace(0.0, 0.9, max(len(rows), 2)))
    dates = np.array(panel.days, dtype="datetime64[D]")
    for i, k in enumerate(rows):
        label = panel.names[k] if i < named else "_nolegend_"
        axes.plot(dates, panel.counts[k], color=shades[i], linewidth=0.8, label=label)
    if named < len(rows):
        axes.plot([], [], color=shades[-1], label=f"… {len(rows) - named} smaller ones")
    axes.plot(
        dates, panel.counts[rows].sum(axis=0), color=COUNTY_COLOUR, linewidth=2,
        label=f"{place.name}, sum",
    )  # fmt: skip
    axes.margins(x=0.01)
    axes.set_xticks(dates[:: 7 * math.ceil(len(dates) / 70)])
    axes.xaxis.set_major_formatter(DateFormatter("%d %b"))  # type: ignore[no-untyped-call]
    axes.set_yscale("symlog", linthresh=1)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(THOUSANDS)
    axes.set(ylabel="new cases a day")
    span = period_title(f"{period[0]}_{period[1]}")
    how = "cases drawn at random from the county" if country.drawn else "cases as in the data"
    panel_title(axes, "B", f"Communities of {place.name}, {how}, {span}")
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(
        handles[-1:] + handles[:-1], [n.split(",")[0] if i else n for i, n in
        enumerate(labels[-1:] + labels[:-1])],
        loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=6.5, labelspacing=0.25,
    )  # fmt: skip
