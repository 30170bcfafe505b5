"""Where a table has its days, regions and counts: in three columns, or spread over the header."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from epifed.errors import EpifedError
from epifed.reading import Assumptions, UnsaidError, listed, short
from epifed.sources.dates import day_names
from epifed.sources.facts import FACTS, POPULATION
from epifed.sources.table import RawTable

LEAST_DAYS = 3
"""So many column names that are days make a table with days across."""
_DEFAULTS = {"day": "date", "region": "region", "cases": "cases"}
_OPTIONS = {"day": "date", "region": "region", "cases": "cases", POPULATION: POPULATION}
_USUAL = {
    "day": "date day datum tag meldedatum reporting_date report_date date_report onset fecha jour "
    "week woche kw epiweek target_end_date week_end",
    "region": "region county fips ags id location geo state landkreis kreis idlandkreis "
    "district province area region_id code municipality kommune bundesland name",
    "cases": "cases count counts new_cases cases_new fälle faelle anzahl anzahlfall neue_fälle "
    "value n confirmed confirmed_cases casos cas incidence total_cases cum_cases",
}


@dataclass(frozen=True)
class LongTable:
    """A row for each region and day: day, region, cases as they were written, and `row`."""

    frame: pl.DataFrame
    columns: dict[str, str]
    """What the columns are called in the table, for sentences about them."""
    layout: str
    notes: tuple[str, ...] = ()


def wanted_names(said: Assumptions) -> list[str]:
    """The column names to look for."""
    return [getattr(said, _OPTIONS[key]) or name for key, name in _DEFAULTS.items()]


def lay_long(table: RawTable, said: Assumptions) -> LongTable:
    """The table as a long one."""
    if said.layout == "regions-across":
        return _regions_across(table, said)
    days = day_names(table.names, said.date_format)
    if said.layout == "days-across" or (said.layout is None and sum(days) >= LEAST_DAYS):
        return _days_across(table, said, days)
    return _long(table, said)


def _long(table: RawTable, said: Assumptions) -> LongTable:
    keys = ["day", "region"] if said.line_list else ["day", "region", "cases"]
    columns, notes = _columns(table, said, keys)
    frame = table.pick(columns)
    if said.line_list:
        frame = frame.with_columns(cases=pl.lit(1.0))
        columns["cases"] = "(rows)"
    return LongTable(frame, columns, "long", notes)


def _columns(
    table: RawTable, said: Assumptions, keys: Sequence[str]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The name of each wanted column in the table: as said or usual, capitals or not."""
    columns: dict[str, str] = {}
    renamed: list[str] = []
    missing: list[str] = []
    optional = set(FACTS) if said.population is None else {*FACTS} - {POPULATION}
    for key in (*keys, *FACTS):
        chosen = getattr(said, _OPTIONS[key]) if key in _OPTIONS else None
        wanted = (chosen or _DEFAULTS.get(key, key)).strip()
        alike = [name for name in table.names if name.casefold() == wanted.casefold()]
        exact = [name for name in alike if name == wanted]
        if len(exact or alike) > 1:
            raise EpifedError(
                f"{table.where}: found the column {short(wanted)} twice; expected it once"
            )
        if key in optional and set(exact or alike) & set(columns.values()):
            continue  # a table of states has no states above them
        if alike:
            columns[key] = (exact or alike)[0]
            renamed += [] if exact else [f"{columns[key]} is {wanted}"]
        elif key not in optional:
            missing.append(key)
    if missing:
        raise _missing(table, said, columns, missing)
    notes = (f"columns by other capitals: {', '.join(renamed)}",) if renamed else ()
    return columns, notes


def _missing(
    table: RawTable, said: Assumptions, columns: Mapping[str, str], missing: Sequence[str]
) -> EpifedError:
    """The sentence on columns that are not there, with those that may be meant."""
    names = {k: getattr(said, _OPTIONS[k]) or _DEFAULTS.get(k, POPULATION) for k in _OPTIONS}
    expected = [names[key] for key in _DEFAULTS]
    sentence = (
        f"{table.where}: found no column {listed([names[key] for key in missing])}; expected "
        f"{listed(expected)} (the columns are {listed(table.names) or 'none'})"
    )
    offers: dict[str, Any] = {}
    for key in missing:
        usual = _USUAL.get(key, "").split()
        free = [n for n in table.names if n not in columns.values() and n not in offers.values()]
        found = [n for word in usual for n in free if n.casefold().replace(" ", "_") == word]
        if found:
            offers[_OPTIONS[key]] = found[0]
    if "cases" in missing and "cases" not in offers and len(missing) - len(offers) == 1:
        return UnsaidError(sentence, offers | {"line_list": True})
    if list(missing) == ["region", "cases"] and "region" not in offers and len(table.names) > 2:
        return UnsaidError(sentence, offers | {"layout": "regions-across"})
    return UnsaidError(sentence, offers) if len(offers) == len(missing) else EpifedError(sentence)


def _days_across(table: RawTable, said: Assumptions, days: Sequence[bool]) -> LongTable:
    """A row for each region, a column for each day."""
    across = [name for name, is_day in zip(table.names, days, strict=True) if is_day]
    if not across:
        raise EpifedError(
            f"{table.where}: found no column name that is a day; expected days-across"
        )
    columns, notes = _columns(table, said, ["region"])
    wide = table.pick(columns | {f"day {i}": name for i, name in enumerate(across)})
    names = {f"day {i}": name for i, name in enumerate(across)}
    long = _melted(wide, list(names), list(columns)).with_columns(
        day=pl.col("across").replace_strict(names, return_dtype=pl.String)
    )
    ignored = [n for n in table.names if n not in across and n not in columns.values()]
    told = (f"columns that are no day were left out: {listed(ignored)}",) if ignored else ()
    columns |= {"day": "(column names)", "cases": "(days)"}
    return LongTable(long.drop("across"), columns, "days-across", notes + told)


def _regions_across(table: RawTable, said: Assumptions) -> LongTable:
    """A row for each day, a column for each region."""
    columns, notes = _columns(table, said, ["day"])
    regions = [name for name in table.names if name and name not in columns.values()]
    if not regions:
        raise EpifedError(f"{table.where}: found no column but the day; expected regions-across")
    names = {f"region {i}": name for i, name in enumerate(regions)}
    wide = table.pick(columns | names)
    long = _melted(wide, list(names), ["day"]).with_columns(
        region=pl.col("across").replace_strict(names, return_dtype=pl.String)
    )
    columns = {"day": columns["day"], "region": "(column names)", "cases": "(regions)"}
    return LongTable(long.drop("across"), columns, "regions-across", notes)


def _melted(wide: pl.DataFrame, names: list[str], kept: list[str]) -> pl.DataFrame:
    """One row for each cell of the wide columns, all of them as one type."""
    kinds = {wide.schema[name] for name in names}
    if len(kinds) > 1 and not all(kind.is_numeric() or kind == pl.Null for kind in kinds):
        wide = wide.with_columns(pl.col(names).cast(pl.String, strict=False))
    elif len(kinds) > 1:
        wide = wide.with_columns(pl.col(names).cast(pl.Float64, strict=False))
    return wide.unpivot(names, index=["row", *kept], variable_name="across", value_name="cases")
