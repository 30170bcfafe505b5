"""The country behind results, and its maps in an equal-area projection."""

import difflib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
import shapely
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PatchCollection
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize
from matplotlib.dates import DateFormatter
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Outline
from numpy.typing import NDArray

from epifed.data.panel import CasePanel
from epifed.data.readers import read_counties, read_prepared
from epifed.data.readers.formats import BKG, DESTATIS, RKI, Level
from epifed.errors import EpifedError
from epifed.evaluation.experiment import drawn_communities
from epifed.evaluation.results_folder import DataRecord, ResultsFolder
from epifed.report.drawing import (
    THOUSANDS,
    WIDTH,
    Shapes,
    credit,
    panel_title,
    period_title,
    read_shapes,
    style,
)
from epifed.report.figures import daily_counts
from epifed.simulate import simulate
from epifed.simulate.simulation import write

STATE_COLOUR, COUNTY_COLOUR = "#E69F00", "#D55E00"
LAND, THIN, THICK = "#F4F4F2", "#9A9A9A", "#1A1A1A"
WEEKS = 4


def read_boundaries(path: Path, regions: Sequence[str]) -> Shapes:
    """Shapes by region id, in metres of an equal-area projection centred on them."""
    return read_shapes(path, regions).equal_area()


def regions(country: "Atlas", place: "Place", period: tuple[date, date]) -> Figure:
    """Maps of a state's communities and of all counties, and the cases of one county's communities.

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
    """National daily counts, and weekly incidence maps if there are shapes (the paper's Fig. 4).

    Each period is shaded, with twice its length before it and once after it.
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
    """Weekly cases per 100,000 in each county, in the first four whole weeks of a period."""
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
    """Hide an axes' frame and scale, and set equal units in both directions."""
    axes.set_axis_off()
    axes.set_aspect("equal", anchor="NW")
    return axes


def fill(
    axes: Axes, shapes: Shapes, values: Mapping[str, float] | None = None, **look: Any
) -> PatchCollection:
    """Draw regions as areas, coloured by value if there are values."""
    polygons, region = shapely.get_parts(shapes.geometry, return_index=True)
    paths = [
        Outline.make_compound_path(*(Outline(ring, closed=True) for ring in _rings(polygon)))
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
    """A light-to-dark colour scale, safe for the colour-blind and in grey, without white."""
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


PAPER_COUNTY = "LK Coesfeld"
"""The county in the paper's figure; in a country without it another is chosen."""


@dataclass(frozen=True)
class Atlas:
    """The contents of a prepared or simulated directory, as far as they are there."""

    source: str
    counties: CasePanel
    table: pl.DataFrame
    """county, name, state and populations."""
    communities: CasePanel | None
    drawn: bool
    """Whether the communities' cases were drawn at random from the counties', as in the paper."""
    county_shapes: Shapes | None
    """By county, in metres; or none."""
    community_shapes: Shapes | None
    attribution: tuple[str, ...]

    @property
    def data_attribution(self) -> tuple[str, ...]:
        """The sources without those of maps."""
        return tuple(source for source in self.attribution if source != BKG)

    def covers(self, days: tuple[date, date]) -> bool:
        """Whether the cases cover all these days."""
        return self.counties.start <= days[0] and days[1] <= self.counties.end

    def population(self, year: int) -> dict[str, int]:
        """Population of each county as counted for a year, or for the last year before it."""
        counted = sorted(
            c for c in self.table.columns if c[11:].isdecimal() and int(c[11:]) <= year
        )
        first = next(c for c in self.table.columns if c.startswith("population"))
        return dict(self.table.select("county", counted[-1] if counted else first).iter_rows())


@dataclass(frozen=True)
class Place:
    """The county that is marked on the map, in its state."""

    county: str
    name: str
    state: str


def read_country(directory: Path, seed: int = 0) -> Atlas:
    """Read a prepared directory; communities without cases get random ones, as in the paper."""
    counties = read_prepared(directory)
    attribution = counties.attribution
    communities = None
    drawn = False
    if (directory / "communities.csv").is_file():
        drawn = not (directory / "community_cases.parquet").is_file()
        if drawn:
            communities = drawn_communities(counties, directory, seed)
            if RKI in attribution:
                attribution = (RKI, DESTATIS, *(a for a in attribution if a != RKI))
        else:
            communities = read_prepared(directory, "community")
            attribution = tuple(dict.fromkeys((*communities.attribution, *attribution)))
    mapped = directory / "communities.geojson"
    return Atlas(
        source=str(directory),
        counties=counties,
        table=read_counties(directory),
        communities=communities,
        drawn=drawn,
        county_shapes=(
            read_boundaries(counties.boundaries, counties.regions) if counties.boundaries else None
        ),
        community_shapes=(
            read_boundaries(mapped, communities.regions)
            if communities and mapped.is_file()
            else None
        ),
        attribution=attribution,
    )


@contextmanager
def simulated_data(folder: ResultsFolder, remark: Callable[[str], object]) -> Iterator[Path | None]:
    """The data directory of simulated results: the stored one, else simulated again.

    None if the results are of real data, or if this version simulates other cases.
    """
    about = folder.manifest.data
    if folder.data_folder is not None:
        yield folder.data_folder
    elif about.simulated is None:
        yield None
    else:
        remark("no --data: simulating the epidemic of these results again")
        with TemporaryDirectory() as temporary:
            directory = Path(temporary) / "country"
            write(simulate(about.simulated), directory)
            yield directory if panel_behind(directory, about) else None


def panel_behind(directory: Path, about: DataRecord) -> CasePanel | None:
    """The panel in a data directory, of either level, from which results were computed."""
    panels = (read_prepared(directory, level) for level in get_args(Level))
    return next((panel for panel in panels if about.is_of(panel)), None)


def choose_place(country: Atlas, state: str | None, county: str | None) -> Place:
    """The county and state to show: those given, else the paper's, else a typical one.

    Without a name it is a county of the state with the most counties, with the median number of
    communities there.
    """
    table = country.table
    if county is not None:
        row = _named(table, ("county", "name"), county, "--county")
        if (
            state is not None
            and _named(table, ("state",), state, "--state")["state"] != (row["state"])
        ):
            raise EpifedError(
                f"--county: found {row['name']}, which is in {row['state']}; "
                f"expected a county of {state}"
            )
        return Place(row["county"], row["name"], row["state"])
    if state is not None:
        state = str(_named(table, ("state",), state, "--state")["state"])
    paper = table.filter(pl.col("name") == PAPER_COUNTY)
    if len(paper) and state in (None, paper["state"][0]):
        return Place(paper["county"][0], PAPER_COUNTY, paper["state"][0])
    largest = table.group_by("state").len().sort("len", "state", descending=[True, False])
    state = state or str(largest["state"][0])
    inside = table.filter(pl.col("state") == state)
    parts = dict.fromkeys(inside["county"], 0)
    for parent in country.communities.parents if country.communities else ():
        if parent in parts:
            parts[parent] += 1
    county = sorted(parts, key=lambda c: (parts[c], c))[(len(parts) - 1) // 2]
    return Place(county, inside.filter(pl.col("county") == county)["name"][0], state)


def _named(table: pl.DataFrame, columns: tuple[str, ...], text: str, option: str) -> dict[str, Any]:
    """The only row that matches an id, a name or a part of a name given by the user."""
    for column in columns:
        same = table.filter(pl.col(column).str.to_lowercase() == text.lower())
        if len(same):
            return same.row(0, named=True)
    last = columns[-1]
    part = table.filter(
        pl.col(last).str.to_lowercase().str.contains(text.lower(), literal=True)
    ).unique(last, maintain_order=True)
    if len(part) == 1:
        return part.row(0, named=True)
    names = part[last].to_list() or difflib.get_close_matches(
        text, table[last].unique().sort().to_list(), cutoff=0.4
    )
    near = f", such as {', '.join(names[:3])}" if names else ""
    kind = "state" if option == "--state" else "county's id or name"
    raise EpifedError(f"{option}: found '{text}'; expected one {kind}{near}")
