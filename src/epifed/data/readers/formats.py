"""Files with a known format: the RKI line list, memilio-epidata, and the prepared directory.

The RKI list (`Aktuell_Deutschland_…csv`) has a row for each county, age group, sex and pair of
days; its columns are documented at
https://github.com/robert-koch-institut/SARS-CoV-2-Infektionen_in_Deutschland

memilio-epidata writes lists of records with cumulative counts by county and day, without days
without change. See getCaseData.py and getPopulationData.py in
https://github.com/SciCompMod/memilio

A prepared directory has `county_cases.parquet` and `counties.csv`, or `community_cases.parquet`
and `communities.csv`, with boundaries in GeoJSON. A simulated country has the same files.
"""

import json
import re
from pathlib import Path
from typing import Any, Literal, get_args

import polars as pl

from epifed.data.calendar import german_calendars
from epifed.data.panel import CasePanel
from epifed.data.readers.cleaning import clean_rows, twice
from epifed.data.readers.tables import (
    Assumptions,
    Content,
    collect,
    open_content,
    open_table,
    refuse,
    require,
    scan_csv,
    short,
    some,
    wrong,
)
from epifed.data.readers.values import (
    COUNT,
    DAY,
    FIRST_DAY,
    INHABITANTS,
    ISO,
    LAST_DAY,
    middles,
    parse_days,
    parse_numbers,
)
from epifed.errors import EpifedError
from epifed.files import read_json

DateColumn = Literal["Refdatum", "Meldedatum"]

COLUMNS = (
    "IdLandkreis",
    "Altersgruppe",
    "Geschlecht",
    "Meldedatum",
    "Refdatum",
    "IstErkrankungsbeginn",
    "NeuerFall",
    "NeuerTodesfall",
    "NeuGenesen",
    "AnzahlFall",
    "AnzahlTodesfall",
    "AnzahlGenesen",
)
"""The header of the official file."""

ATTRIBUTION = (
    "Robert Koch-Institut (RKI): SARS-CoV-2 Infektionen in Deutschland, CC BY 4.0 "
    "(https://creativecommons.org/licenses/by/4.0/); data changed (regions merged, "
    "daily sums). Citable dataset: https://doi.org/10.5281/zenodo.4681153"
)
MERGED = (
    "Berlin's districts 11001–11012 are counted as 11000, Eisenach 16056 as part of 16063 "
    "(Wartburgkreis)"
)


def county_id(number: pl.Expr) -> pl.Expr:
    """The 5-digit id of a county from the RKI's number, with Berlin and Eisenach merged."""
    merged = (
        pl.when(number.is_between(11001, 11012))
        .then(11000)
        .when(number == 16056)
        .then(16063)
        .otherwise(number)
    )
    return merged.cast(pl.String).str.zfill(5)


def read_rki(path: Path | str, date_column: str = "Refdatum") -> CasePanel:
    """Read an RKI line list: cases whose NeuerFall is 0 or 1, by county and day.

    `date_column` is `Refdatum` (onset where known, else report; the paper's choice) or
    `Meldedatum` (the day of the report to the health authority). The file is read as a stream, so
    memory does not grow with it.
    """
    if date_column not in get_args(DateColumn):
        raise EpifedError(
            f"date column: found '{date_column}'; expected {' or '.join(get_args(DateColumn))}"
        )
    names = {"county": "IdLandkreis", "day": date_column, "new": "NeuerFall", "cases": "AnzahlFall"}
    content = open_content(Path(path))
    lines = scan_csv(content, names).filter(~pl.all_horizontal(pl.col(*names).is_null()))
    sums = collect(
        content,
        lines.select(
            "county",
            "day",
            cases=pl.when(_COUNTS).then(_CASES).otherwise(0),
            counts=_COUNTS,
            fits=_FITS["new"] & _FITS["cases"],
        )
        .group_by("county", "day")
        .agg(pl.col("cases").sum(), pl.col("counts").any(), pl.col("fits").all()),
    )
    if sums.is_empty():
        raise EpifedError(
            f"{content.where}: found no rows; expected at least one below the column names"
        )
    bad = sums.filter(~(_FITS["county"] & _FITS["day"] & pl.col("fits")))
    if not bad.is_empty():
        raise _first_wrong(content, names, lines, bad)
    counted = sums.filter("counts").select(county_id(_COUNTY).alias("region"), _DAY, "cases")
    if counted.is_empty():
        raise EpifedError(
            f"{content.where}: found no row that counts; expected some with NeuerFall 0 or 1"
        )
    return CasePanel.from_long(
        counted.group_by("region", "day").agg(pl.col("cases").sum()),
        source=content.where,
        calendars=german_calendars(counted["region"].unique()),
        attribution=(ATTRIBUTION,),
        notes=(f"cases by {date_column}, where NeuerFall is 0 or 1", MERGED),
    )


_COUNTY = pl.col("county").cast(pl.Int64, strict=False)
_DAY = pl.col("day").str.to_date("%Y-%m-%d", strict=False)
_NEW = pl.col("new").cast(pl.Int64, strict=False)
_CASES = pl.col("cases").cast(pl.Int64, strict=False)
_COUNTS = _NEW.is_between(0, 1).fill_null(value=False)
_FITS = {
    "county": _COUNTY.is_between(1000, 99999).fill_null(value=False),
    "day": _DAY.is_between(FIRST_DAY, LAST_DAY).fill_null(value=False),
    "new": _NEW.is_not_null(),
    "cases": _CASES.is_not_null() & (~_COUNTS | (_CASES >= 0)),
}
_EXPECTED = {
    "county": "the number of a county",
    "day": DAY,
    "new": "-1, 0 or 1",
    "cases": "a whole number of at least 0",
}


def _first_wrong(
    content: Content, names: dict[str, str], lines: pl.LazyFrame, bad: pl.DataFrame
) -> EpifedError:
    """The error on the first bad line behind the bad sums, and on its first bad column."""
    keys = bad.lazy().select("county", "day")
    suspects = collect(
        content, lines.join(keys, on=["county", "day"], how="semi", nulls_equal=True)
    )
    fits = suspects.select("row", **_FITS)
    line = fits.filter(~pl.all_horizontal(*_FITS)).sort("row").row(0, named=True)
    key = next(key for key in _FITS if not line[key])
    found = suspects.filter(pl.col("row") == line["row"])[key].item()
    return wrong(content.where, line["row"], names[key], found, _EXPECTED[key])


POPULATION_FILES = ("county_current_population.json", "county_population.json")
COUNTY = "the number of a county"
_JSON = Assumptions(decimal=".")
_ROUNDING = 1e-6
"""An average of accumulated counts may fall by this much without a withdrawn case."""


def read_memilio(path: Path | str, population: Path | str | None = None) -> CasePanel:
    """Read a memilio-epidata case file: daily differences of the accumulated counts.

    `population` is memilio's population file; by default the one beside the case file, if there
    is one.
    """
    path = Path(path)
    frame = _read_counties(path, {"day": "Date", "cases": "Confirmed"}, optional={"name": "County"})
    empty = frame["cases"].is_null()
    refuse(path, frame, empty, key="cases", column="Confirmed", expected=COUNT)
    frame = parse_numbers(path, frame, "cases", "Confirmed", said=_JSON)
    frame = _parse_days(path, frame)
    if sentence := twice(path, frame.rename({"county": "region"}), "ID_County and Date"):
        raise EpifedError(sentence)
    daily = frame.sort("county", "day").with_columns(
        before=pl.col("cases").shift().over("county"), total=pl.col("cases")
    )
    daily = daily.with_columns(cases=pl.col("total") - pl.col("before")).drop_nulls("cases")
    _refuse_decrease(path, daily)
    if daily.is_empty():
        raise EpifedError(
            f"{path}: found one day for each county; expected at least two, because the counts "
            "are accumulated"
        )
    region = county_id(pl.col("county")).alias("region")
    unmerged = frame.filter(region.cast(pl.Int64) == pl.col("county"))
    names = dict(unmerged.drop_nulls("name").select(region, "name").unique().iter_rows())
    people, notes = _population_of(path, population)
    return CasePanel.from_long(
        daily.group_by(region, "day").agg(pl.col("cases").clip(lower_bound=0).sum()),
        source=str(path),
        names=names or None,
        population=people,
        regions=sorted(frame.select(region.unique())["region"]),
        calendars=german_calendars(frame.select(region.unique())["region"]),
        attribution=(ATTRIBUTION,),
        notes=_notes(path) + notes,
    )


def read_population(path: Path | str) -> dict[str, int]:
    """Inhabitants by county id, with Berlin and Eisenach merged."""
    path = Path(path)
    frame = _read_counties(path, {"people": "Population"})
    empty = frame["people"].is_null()
    refuse(path, frame, empty, key="people", column="Population", expected=INHABITANTS)
    frame = parse_numbers(path, frame, "people", "Population", INHABITANTS, _JSON)
    again = frame["county"].is_duplicated()
    refuse(path, frame, again, key="county", column="ID_County", expected="each county once")
    merged = frame.group_by(county_id(pl.col("county")).alias("region")).agg(pl.col("people").sum())
    return {region: int(people) for region, people in merged.iter_rows()}


def _population_of(
    path: Path, population: Path | str | None
) -> tuple[dict[str, int] | None, tuple[str, ...]]:
    if population is not None:
        return read_population(population), ()
    for beside in (path.with_name(name) for name in POPULATION_FILES):
        if beside.is_file():
            return read_population(beside), (f"population from {beside.name} beside the file",)
    return None, ()


def _notes(path: Path) -> tuple[str, ...]:
    notes = [
        "daily differences of accumulated counts; a county's first day has no day before it "
        "and is left out",
        MERGED,
    ]
    if average := re.search(r"_ma(\d+)", path.stem):
        notes.append(
            f"the file is already a centered {average[1]}-day average, which looks "
            f"{(int(average[1]) - 1) // 2} days ahead: do not smooth it again, and do not call "
            "what is made from it a forecast"
        )
    return tuple(notes)


def _read_counties(
    path: Path, columns: dict[str, str], optional: dict[str, str] | None = None
) -> pl.DataFrame:
    """Records as columns of text, with `row` and `county`, an integer."""
    records = _read_records(path)
    wanted = {"county": "ID_County"} | columns
    require(path, list(records[0]), list(wanted.values()))
    wanted |= optional or {}
    frame = pl.DataFrame(
        {key: [_text(record.get(column)) for record in records] for key, column in wanted.items()},
        schema=dict.fromkeys(wanted, pl.String),
    ).with_row_index("row", offset=1)
    number = pl.col("county").cast(pl.Float64, strict=False)
    whole = (number == number.round()) & number.is_between(1000, 99999)
    good = frame.select(whole.fill_null(value=False))["county"]
    refuse(path, frame, ~good, key="county", column="ID_County", expected=COUNTY)
    return frame.with_columns(number.cast(pl.Int64))


def _read_records(path: Path) -> list[dict[str, Any]]:
    try:
        records = json.loads(open_content(path).read().decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise EpifedError(
            f"{path}: found broken JSON; expected a list of records ({short(error, 100)})"
        ) from None
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise EpifedError(f"{path}: found other JSON; expected a list of records")
    if not records:
        raise EpifedError(f"{path}: found an empty list; expected at least one record")
    return records


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _parse_days(path: Path, frame: pl.DataFrame) -> pl.DataFrame:
    """Parse dates given as text, or as milliseconds since 1970, as pandas may write them."""
    milliseconds = pl.col("day").cast(pl.Int64, strict=False)
    if frame.select(milliseconds.is_not_null().all()).item():
        days = pl.from_epoch(milliseconds, time_unit="ms").cast(pl.Date)
        frame = frame.with_columns(days.dt.to_string("%Y-%m-%d"))
    return parse_days(path, frame, "Date", ISO).frame


def _refuse_decrease(path: Path, daily: pl.DataFrame) -> None:
    fallen = daily.filter(pl.col("cases") < -_ROUNDING).sort("row").head(1)
    for row in fallen.iter_rows(named=True):
        raise EpifedError(
            f"{path}: row {row['row']}, column Confirmed: found {row['total']:g} for county "
            f"{row['county']} on {row['day']}; expected at least {row['before']:g}, the "
            "accumulated count of its day before"
        )


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
"""Preferred population columns; without them the last column is used."""
_OPTIONS = ("duplicates", "totals", "cadence", "counts", "negatives")
_PLURAL = {"county": "counties", "community": "communities"}


def read_prepared(directory: Path | str, level: str = "county", **options: Any) -> CasePanel:
    """Read a prepared directory, by counties or by communities.

    Options are those `Assumptions` that change counts, such as `negatives`.
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
    simulated = simulation_record(directory)
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
        sums_dropped=tidy.sums_dropped,
        attribution=_attribution(directory, level, mapped=mapped),
        boundaries=boundaries if mapped else None,
        notes=tidy.notes,
        step=tidy.step,
        simulated=simulated,
    )


SIMULATION = "simulation.json"
"""The file of a simulated directory that records what was simulated."""
CALENDAR = "DE"
"""The code of the calendar whose holidays a simulated country has."""


def is_simulated(path: Path) -> bool:
    """Whether a directory, or that of a file, is marked as invented by 'epifed simulate'."""
    return ((path if path.is_dir() else path.parent) / SIMULATION).is_file()


def simulation_record(directory: Path) -> dict[str, Any] | None:
    """The settings that a simulated directory records; None if it is not simulated."""
    path = directory / SIMULATION
    if not path.is_file():
        return None
    expected = "expected what 'epifed simulate' wrote"
    settings = read_json(path, expected).get("settings")
    if not isinstance(settings, dict):
        raise EpifedError(f"{path}: found no settings; {expected}")
    return settings


def read_counties(directory: Path | str) -> pl.DataFrame:
    """Read the table of counties: county, name, state and the populations, whole numbers."""
    path = _file(Path(directory), "counties.csv")
    known = open_table(path).names
    years = [name for name in known if re.fullmatch(r"population(_\d{4})?", name)]
    years = years or ["population_2020"]
    return _read_regions(path, "county", ["name", "state"], years)


def read_communities(directory: Path | str) -> pl.DataFrame:
    """Read the table of communities: community, name, county and population."""
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
    """The state of each region, for communities via their county; None if not known for all."""
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
        what = "found a file" if directory.exists() else "no such directory"
        raise EpifedError(f"{directory}: {what}; expected a prepared or simulated directory")
    path = directory / name
    if not path.is_file():
        raise EpifedError(
            f"{directory}: found a directory without {name}; expected a file of case counts, or a "
            "prepared or simulated directory"
        )
    return path


def _calendars(directory: Path, keys: list[str], *, simulated: bool) -> dict[str, str]:
    """Calendars of the simulation or of the German states; none if an attribution file exists."""
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
