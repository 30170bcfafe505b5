"""All figures of the paper from stored results and, where it is there, the country behind them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from epifed.communities import zero_entries
from epifed.evaluate.folder import GridFolder
from epifed.evaluate.results import ALL
from epifed.report import data_figures, figures, maps, result_figures
from epifed.report.country import Atlas, Place
from epifed.report.drawing import save

KINDS = ("pdf", "png")
NO_DATA = "no --data: expected the prepared or simulated directory behind these results"


@dataclass
class Plan:
    """What can be drawn, by file name, and why the rest cannot."""

    drawings: dict[str, Callable[[], Figure]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, draw: Callable[[], Figure], missing: str | None = None) -> None:
        """A figure, or the reason against it."""
        if missing is None:
            self.drawings[name] = draw
        else:
            self.left_out[name] = missing

    def write(self, directory: Path) -> Iterator[list[Path]]:
        """Draw one after the other, each as PDF and PNG."""
        for name, draw in self.drawings.items():
            paths = [directory / f"{name}.{kind}" for kind in KINDS]
            save(draw(), *paths)
            yield paths


def plan(stored: GridFolder, country: Atlas | None, place: Place | None) -> Plan:
    """The figures of the paper, in its order."""
    found = Plan()
    if country is None or place is None:
        for name in ("populations", "regions", "zero_entries", "cases"):
            found.left_out[name] = NO_DATA
    else:
        _of_country(found, stored, country, place)
    results = stored.results
    unit = unit_of(stored, country)
    for split, period in stored.cells:
        found.add(
            f"predictions_{period}_{split}",
            lambda s=split, p=period: result_figures.predicted_against_true(  # type: ignore[misc]
                results.predictions, s, p, unit
            ),
        )
    strata = set(results.runs["stratum"].unique()) != {ALL}
    for split, period in stored.cells:
        found.add(
            f"strata_{period}_{split}",
            lambda s=split, p=period: result_figures.by_population(  # type: ignore[misc]
                results.runs, s, p, unit
            ),
            None if strata else "these results have no populations",
        )
    found.add("privacy_utility", lambda: figures.privacy_utility(results.runs))
    curves = None if len(results.convergence) else "these results have no curves"
    found.add("convergence", lambda: figures.convergence(results.convergence), curves)
    found.add("losses", lambda: figures.losses(results.convergence), curves)
    return found


def unit_of(stored: GridFolder, country: Atlas | None) -> str:
    """What a region of these results is called."""
    regions = set(stored.results.predictions["region"].unique())
    if country is not None and regions <= set(country.counties.regions):
        return "county"
    if country is not None and country.communities is not None:
        return "community" if regions <= set(country.communities.regions) else "region"
    return "region"


def _of_country(found: Plan, stored: GridFolder, country: Atlas, place: Place) -> None:
    communities = country.communities
    covered = {p: days for p, days in stored.grid.periods.items() if country.covers(days)}
    early = None
    if not covered:
        panel = country.counties
        early = f"{country.source} has {panel.start} … {panel.end}, none of these periods"
    none = None if communities else f"{country.source} has no communities.csv"
    shapes = None
    if country.county_shapes is None or country.community_shapes is None:
        shapes = f"{country.source} has no counties.geojson and communities.geojson"

    def people() -> Figure:
        levels: dict[str, NDArray[np.int64]] = {}
        for name, level in (("counties", country.counties), ("communities", communities)):
            if level is not None and level.population is not None:
                levels[name] = level.population
        return data_figures.populations(levels, country.data_attribution)

    def zeros() -> Figure:
        assert communities is not None
        plain = stored.settings.but(smoothing="none")
        tables = {p: zero_entries(communities, plain, days) for p, days in covered.items()}
        return data_figures.zero_entries(tables, country.data_attribution)

    found.add("populations", people)
    last = list(covered.values())[-1:]
    found.add("regions", lambda: maps.regions(country, place, last[0]), none or shapes or early)
    found.add("zero_entries", zeros, none or early)
    found.add("cases", lambda: maps.cases(country, covered), early)
    if country.county_shapes is None and not early:
        found.left_out["maps in cases"] = f"{country.source} has no counties.geojson"
