"""What memilio-epidata writes: `cases_all_county.json`, its `_ma7`, and a population file.

Lists of records; counts are accumulated, by county and day, without the days on which nothing
changed (unless all dates were asked for). See getCaseData.py and getPopulationData.py in
https://github.com/SciCompMod/memilio
"""

import json
import re
from pathlib import Path
from typing import Any

import polars as pl

from epifed.errors import EpifedError
from epifed.holidays import german_calendars
from epifed.panel import CasePanel
from epifed.sources.rki import ATTRIBUTION, MERGED, county_id
from epifed.sources.table import (
    COUNT,
    INHABITANTS,
    existing,
    parse_days,
    parse_numbers,
    refuse,
    refuse_twice,
    require,
)

POPULATION_FILES = ("county_current_population.json", "county_population.json")
COUNTY = "the number of a county"
_ROUNDING = 1e-6
"""An average of accumulated counts may fall by this much without a case withdrawn."""


def read_memilio(path: Path | str, population: Path | str | None = None) -> CasePanel:
    """The panel of a memilio-epidata case file: daily differences of the accumulated counts.

    `population` is memilio's population file; without it, the one beside the case file is taken
    if there is one.
    """
    path = Path(path)
    frame = _read_counties(path, {"day": "Date", "cases": "Confirmed"}, optional={"name": "County"})
    empty = frame["cases"].is_null()
    refuse(path, frame, empty, key="cases", column="Confirmed", expected=COUNT)
    frame = parse_numbers(path, frame, "cases", "Confirmed")
    frame = _parse_days(path, frame)
    refuse_twice(path, frame.rename({"county": "region"}), "ID_County and Date")
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
    """Inhabitants by county id, Berlin and Eisenach merged."""
    path = Path(path)
    frame = _read_counties(path, {"people": "Population"})
    empty = frame["people"].is_null()
    refuse(path, frame, empty, key="people", column="Population", expected=INHABITANTS)
    frame = parse_numbers(path, frame, "people", "Population", INHABITANTS)
    twice = frame["county"].is_duplicated()
    refuse(path, frame, twice, key="county", column="ID_County", expected="each county once")
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
    """Records as columns of text or numbers, with `row` and `county`, an integer."""
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
    existing(path)
    try:
        records = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise EpifedError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise EpifedError(
            f"{path}: found broken JSON; expected a list of records ({error})"
        ) from None
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise EpifedError(f"{path}: found other JSON; expected a list of records")
    if not records:
        raise EpifedError(f"{path}: found an empty list; expected at least one record")
    return records


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _parse_days(path: Path, frame: pl.DataFrame) -> pl.DataFrame:
    """Dates as text, or as milliseconds since 1970 where pandas wrote them so."""
    milliseconds = pl.col("day").cast(pl.Int64, strict=False)
    if frame.select(milliseconds.is_not_null().all()).item():
        days = pl.from_epoch(milliseconds, time_unit="ms").cast(pl.Date)
        frame = frame.with_columns(days.dt.to_string("%Y-%m-%d"))
    return parse_days(path, frame, "Date")


def _refuse_decrease(path: Path, daily: pl.DataFrame) -> None:
    fallen = daily.filter(pl.col("cases") < -_ROUNDING).sort("row").head(1)
    for row in fallen.iter_rows(named=True):
        raise EpifedError(
            f"{path}: row {row['row']}, column Confirmed: found {row['total']:g} for county "
            f"{row['county']} on {row['day']}; expected at least {row['before']:g}, the "
            "accumulated count of its day before"
        )
