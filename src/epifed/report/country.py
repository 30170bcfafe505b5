"""The country behind the results: its regions, their people, their cases and their maps."""

import difflib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import numpy as np
import polars as pl

from epifed.communities import disaggregate
from epifed.errors import EpifedError
from epifed.evaluate.folder import ResultsFolder
from epifed.evaluate.manifest import DataRecord
from epifed.panel import CasePanel
from epifed.report.maps import read_boundaries
from epifed.report.shapes import Shapes
from epifed.seeds import seed_sequence
from epifed.simulate import simulate
from epifed.simulate.write import write
from epifed.sources import read_communities, read_counties, read_prepared
from epifed.sources.prepared import BKG, DESTATIS, RKI, Level

PAPER_COUNTY = "LK Coesfeld"
"""The county the paper shows; in a country without it another is chosen."""


@dataclass(frozen=True)
class Atlas:
    """What a prepared or simulated directory holds, as far as it is there."""

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
        """The sources of what is not a map."""
        return tuple(source for source in self.attribution if source != BKG)

    def covers(self, days: tuple[date, date]) -> bool:
        """Whether the cases reach over all these days."""
        return self.counties.start <= days[0] and days[1] <= self.counties.end

    def population(self, year: int) -> dict[str, int]:
        """People of each county as counted for a year, or for the last before it."""
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
    """Read a prepared directory; communities without cases get them as the paper drew them."""
    counties = read_prepared(directory)
    attribution = counties.attribution
    communities = None
    drawn = False
    if (directory / "communities.csv").is_file():
        drawn = not (directory / "community_cases.parquet").is_file()
        if drawn:
            rng = np.random.default_rng(seed_sequence(seed, "communities"))
            communities = disaggregate(counties, read_communities(directory), rng)
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
    """The data directory of simulated results: the one kept with them, else simulated again.

    None if the results are of real data, or if this version simulates other cases.
    """
    about = folder.manifest.data
    if folder.kept_data is not None:
        yield folder.kept_data
    elif about.simulated is None:
        yield None
    else:
        remark("no --data: simulating the epidemic of these results again")
        with TemporaryDirectory() as temporary:
            directory = Path(temporary) / "country"
            write(simulate(about.simulated), directory)
            yield directory if panel_behind(directory, about) else None


def panel_behind(directory: Path, about: DataRecord) -> CasePanel | None:
    """The panel of a data directory that results were computed from, of either level."""
    panels = (read_prepared(directory, level) for level in get_args(Level))
    return next((panel for panel in panels if about.is_of(panel)), None)


def choose_place(country: Atlas, state: str | None, county: str | None) -> Place:
    """The county and state to show: the ones named, else the paper's, else a middling one.

    Without a name it is a county of the state with the most counties, with as many communities
    as half of its counties have at most.
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
    """The one row that a user means by an id, a name or a part of a name."""
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
