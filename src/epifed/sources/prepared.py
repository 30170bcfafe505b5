"""The prepared directory: cases in parquet, regions in CSV, boundaries in GeoJSON.

`county_cases.parquet` with `counties.csv`, and for the smaller level `community_cases.parquet`
with `communities.csv`. A simulated country has the same files, and an ATTRIBUTION.txt of its own.
"""

import re
from pathlib import Path
from typing import Any, Literal, get_args

import polars as pl

from epifed.errors import EpifedError
from epifed.holidays import german_calendars
from epifed.panel import CasePanel
from epifed.reading import Assumptions
from epifed.simulate.settings import CALENDAR, settings_of
from epifed.sources.numbers import COUNT, INHABITANTS, parse_numbers
from epifed.sources.positions import middles
from epifed.sources.table import open_table, refuse, some
from epifed.sources.tidy import clean_rows

Level = Literal["county", "community"]

RKI = (
    "Robert Koch-Institut (RKI): SARS-CoV-2 Infektionen in Deutschland, CC BY 4.0 "
    "(https://creativecommons.org/licenses/by/4.0/); data changed (regions merged, daily "
    "differences). Citable dataset: https://doi.org/10.5281/zenodo.4681153"
)
DESTATIS = "© Statistisches Bundesamt (Destatis), Gemeindeverzeichnis, 31.12.2020; data changed"
BKG = (
    "© GeoBasis-DE / BKG 2021 (Daten verändert), http://www.bkg.bund.de, licence dl-de/by-2-0 "
    "(https://www.govdata.de/dl-de/by-2-0)"
)
ATTRIBUTION_FILE = "ATTRIBUTION.txt"
_PEOPLE = ("population_2020", "population")
"""The populations that count, if there are several: else the last."""
_OPTIONS = ("duplicates", "totals", "cadence", "counts", "negatives")
_PLURAL = {"county": "counties", "community": "communities"}


def read_prepared(directory: Path | str, level: str = "county", **options: Any) -> CasePanel:
    """The panel of a prepared directory, of its counties or of its communities.

    Options are those `Assumptions` that change counts: `negatives`, say.
    """
    directory = Path(directory)
    said = Assumptions.of(options, str(directory), "prepared", _OPTIONS)
    if level not in get_args(Level):
        raise EpifedError(f"level: found '{level}'; expected {' or '.join(get_args(Level))}")
    cases = _file(directory, f"{level}_cases.parquet")
    regions = read_counties(directory) if level == "county" else read_communities(directory)
    people = next(name for name in (*_PEOPLE, *regions.columns[::-1]) if name in regions.columns)
    columns = {"day": "date", "region": level, "cases": "cases"}
    tidy = clean_rows(str(cases), open_table(cases).pick(columns), columns, said)
    frame = tidy.frame
    empty = frame["cases"].is_null()
    refuse(cases, frame, empty, key="cases", column="cases", expected=COUNT)
    boundaries = directory / f"{_PLURAL[level]}.geojson"
    mapped = boundaries.is_file()
    simulated = settings_of(directory)
    return CasePanel.from_long(
        frame.select("day", "region", "cases"),
        source=str(directory),
        names=dict(regions.select(level, "name").iter_rows()),
        population=dict(regions.select(level, people).iter_rows()),
        parents=dict(regions.select(level, "county").iter_rows()) if level == "community" else None,
        states=_states(directory, regions, level),
        calendars=_calendars(directory, regions[level].to_list(), simulated=simulated is not None),
        positions=middles(boundaries) if mapped else None,
        regions=regions[level].to_list(),
        regions_given=True,
        attribution=_attribution(directory, level, mapped=mapped),
        boundaries=boundaries if mapped else None,
        notes=tidy.notes,
        step=tidy.step,
        simulated=simulated.model_dump() if simulated else None,
    )


def read_counties(directory: Path | str) -> pl.DataFrame:
    """The table of counties: county, name, state and the populations, whole numbers."""
    path = _file(Path(directory), "counties.csv")
    known = open_table(path).names
    years = [name for name in known if re.fullmatch(r"population(_\d{4})?", name)]
    years = years or ["population_2020"]
    return _read_regions(path, "county", ["name", "state"], years)


def read_communities(directory: Path | str) -> pl.DataFrame:
    """The table of communities: community, name, its county and its population."""
    path = _file(Path(directory), "communities.csv")
    return _read_regions(path, "community", ["name", "county"], ["population"])


def _read_regions(path: Path, key: str, text: list[str], numbers: list[str]) -> pl.DataFrame:
    columns = [key, *text, *numbers]
    frame = some(path, open_table(path).pick({column: column for column in columns}))
    for column in columns:
        empty = frame[column].is_null()
        refuse(path, frame, empty, key=column, column=column, expected="a value")
    twice = frame[key].is_duplicated()
    refuse(path, frame, twice, key=key, column=key, expected=f"each {key} once")
    for column in numbers:
        frame = parse_numbers(path, frame, column, column, INHABITANTS)
    return frame.select(key, *text, pl.col(numbers).cast(pl.Int64))


def _states(directory: Path, regions: pl.DataFrame, level: str) -> dict[str, str] | None:
    """The state of each region; of communities, that of their county, where a table says it."""
    if level == "county":
        return dict(regions.select("county", "state").iter_rows())
    if not (directory / "counties.csv").is_file():
        return None
    of_county = read_counties(directory).select("county", "state")
    with_state = regions.join(of_county, on="county")
    found = dict(with_state.select(level, "state").iter_rows())
    return found if len(found) == len(regions) else None


def _file(directory: Path, name: str) -> Path:
    if not directory.is_dir():
        raise EpifedError(f"{directory}: no such directory")
    path = directory / name
    if not path.is_file():
        raise EpifedError(f"{directory}: found no {name}; expected it in a prepared directory")
    return path


def _calendars(directory: Path, keys: list[str], *, simulated: bool) -> dict[str, str]:
    """Those of the simulation, of the German states, or none if a file says that it is neither."""
    if simulated:
        return dict.fromkeys(keys, CALENDAR)
    if (directory / ATTRIBUTION_FILE).is_file():
        return {}
    return german_calendars(keys)


def _attribution(directory: Path, level: str, *, mapped: bool) -> tuple[str, ...]:
    own = directory / ATTRIBUTION_FILE
    if own.is_file():
        lines = own.read_text(encoding="utf-8", errors="replace").splitlines()
        return tuple(line.strip() for line in lines if line.strip())
    return (RKI, *([DESTATIS] if level == "community" else []), *([BKG] if mapped else []))
