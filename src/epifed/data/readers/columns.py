"""Find the days, regions and counts of a table: in three columns, or across the header."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from epifed.data.readers.tables import (
    KINDS,
    LEAST_DAYS,
    PLUS,
    RATES,
    AmbiguousTableError,
    Assumptions,
    RawTable,
    are_parts,
    is_total,
    likely,
    likely_counts,
    likely_day,
    listed,
    refuse,
    short,
    summands,
    usual_population,
)
from epifed.data.readers.values import (
    FACTS,
    NAME,
    POPULATION,
    SAID_FACTS,
    WEEK_WORD,
    day_names,
    plain_id,
    region_facts,
    spelled,
)
from epifed.errors import EpifedError

_DEFAULTS = {"day": "date", "region": "region", "cases": "cases"}
_OPTIONS = {"day": "date", "region": "region", "cases": "cases", POPULATION: POPULATION, NAME: NAME}


MOST_KINDS = 12
"""Most values of a column that tells rows of a region and day apart, such as cases and deaths."""
CASE_WORDS = ("cases", "confirmed", "fälle", "faelle", "cas", "casos", "total", "all", "gesamt")


@dataclass(frozen=True)
class LongTable:
    """A table with a row for each region and day: day, region, cases as written, and `row`."""

    frame: pl.DataFrame
    columns: dict[str, str]
    """The names of these columns in the original table, for messages."""
    layout: str
    notes: tuple[str, ...] = ()


def wanted_names(said: Assumptions) -> list[str]:
    """The column names to look for."""
    return [getattr(said, _OPTIONS[key]) or name for key, name in _DEFAULTS.items()]


def lay_long(table: RawTable, said: Assumptions) -> LongTable:
    """Lay out the table as a long one."""
    if said.layout == "regions-across":
        return _regions_across(table, said)
    days = day_names(table.names, said.date_format)
    if said.layout == "days-across" or (said.layout is None and sum(days) >= LEAST_DAYS):
        return _days_across(table, said, days)
    return _long(table, said)


def _long(table: RawTable, said: Assumptions) -> LongTable:
    absent = {"cases": said.line_list, "region": said.one_region}
    keys = [key for key in _DEFAULTS if not absent.get(key)]
    parts = summands(said.cases, table.names)
    if parts:
        frame, columns, notes = _summed_columns(table, said, keys, parts)
    else:
        frame, columns, notes = _dated(table, said, keys)
    if said.one_region:
        frame = frame.with_columns(region=pl.lit(Path(table.where).stem))
        columns["region"] = "(file)"
    if said.line_list:
        frame = frame.with_columns(cases=pl.lit(1.0))
        columns["cases"] = "(rows)"
    return LongTable(frame, columns, "long", notes)


def _summed_columns(
    table: RawTable, said: Assumptions, keys: Sequence[str], parts: Sequence[str]
) -> tuple[pl.DataFrame, dict[str, str], tuple[str, ...]]:
    """The wanted columns with a row for each of several columns of counts, to be added up."""
    every = [_dated(table, replace(said, cases=name), keys) for name in parts]
    frame = pl.concat(one.with_columns(part=pl.lit(i)) for i, (one, *_) in enumerate(every))
    note = f"the counts are the sums of the columns {listed(parts, MOST_KINDS)}"
    return frame, every[0][1] | {"cases": PLUS.join(parts)}, (*every[0][2], note)


def refuse_rows(
    table: RawTable, rows: pl.DataFrame, columns: Mapping[str, str], said: Assumptions
) -> None:
    """Refuse rows of a long table whose days or cases cannot be told.

    A site calls it for each client alone, so that one client's rows do not silence the others.
    """
    if PLUS in columns["day"] and columns["day"] not in table.names:
        bad = ~rows["day"].str.contains(r"^\d{4}-\d\d$").fill_null(value=True)
        expected = "a year and the number of a week"
        refuse(table.where, rows, bad, key="day", column=columns["day"], expected=expected)
    if said.line_list:
        _refuse_several_kinds(table, rows, columns, said)


def _refuse_several_kinds(
    table: RawTable, rows: pl.DataFrame, columns: Mapping[str, str], said: Assumptions
) -> None:
    """Refuse rows of a list of several diseases, or with dropped cases, until it is chosen."""
    chosen = {one.partition("=")[0].strip().casefold() for one in said.only or ()}
    names = [name for name in table.names if KINDS.search(name.casefold())]
    for name in names if said.duplicates != "sum" else ():
        if name.casefold() in chosen or name in columns.values() or table.names.count(name) > 1:
            continue
        cells = table.pick({"kind": name}).join(rows.select("row"), on="row", how="semi")
        by_kind = cells["kind"].cast(pl.String).drop_nulls().value_counts(sort=True)
        kinds = by_kind["kind"].to_list()
        if 1 < len(kinds) <= MOST_KINDS:
            raise AmbiguousTableError(
                f"{table.where}: column {short(name)}: found cases of several kinds, "
                f"{listed(kinds, 4)}; expected one kind, or that all are to be counted together",
                {"only": f"{name}={kinds[0]}"},
                {"duplicates": "sum"},
                *({"only": f"{name}={kind}"} for kind in kinds[1:]),
                column=name,
            )


def _dated(
    table: RawTable, said: Assumptions, keys: Sequence[str]
) -> tuple[pl.DataFrame, dict[str, str], tuple[str, ...]]:
    """The wanted columns with their names and notes; the day may be a year and a week."""
    both = said.date.split(PLUS) if said.date and said.date not in table.names else []
    if len(both) != 2:
        columns, notes = _columns(table, said, keys)
        return _picked(table, columns, said), columns, notes
    year, week = (name.strip() for name in both)
    columns, notes = _columns(table, replace(said, date=year), keys)
    frame = _picked(table, columns | {"week": _one(table, week)}, said)
    frame = _joined(frame).drop("week")
    columns["day"] = f"{columns['day']}{PLUS}{week}"
    return frame, columns, notes


def _picked(table: RawTable, columns: dict[str, str], said: Assumptions) -> pl.DataFrame:
    """The wanted columns of the rows that the option `only` selects."""
    chosen = [one.partition("=") for one in said.only or ()]
    for name, sign, _ in chosen:
        if not sign:
            raise EpifedError(f"only: found '{short(name)}'; expected COLUMN=VALUE")
    extra = {f"only {i}": _one(table, name) for i, (name, _, _) in enumerate(chosen)}
    frame = table.pick(columns | extra)
    for i, (name, _, value) in enumerate(chosen):
        frame = frame.filter(pl.col(f"only {i}").cast(pl.String) == value.strip())
        if frame.is_empty():
            raise EpifedError(
                f"{table.where}: column {short(name)}: found no row that says '{short(value)}'; "
                "expected some"
            )
    return frame.drop(extra)


def of_one_kind(
    table: RawTable, columns: Mapping[str, str], error: AmbiguousTableError
) -> AmbiguousTableError:
    """Extend the error on several rows of a region and day by the column that tells them apart.

    An example is cases and deaths, which must not be summed.
    """
    days = [columns["day"]] if columns["day"] in table.names else columns["day"].split(PLUS)
    keys = {"region": columns["region"]} | {f"day {i}": day for i, day in enumerate(days)}
    used = {columns["region"], columns["cases"], *days}
    others = [n for n in table.names if n and n not in used and table.names.count(n) == 1]
    if not set(keys.values()) <= set(table.names) or not others:
        return error
    wide = table.pick(keys | {f"other {i}": name for i, name in enumerate(others)})
    many = ""
    for i, name in enumerate(others):
        kinds = wide[f"other {i}"].drop_nulls().unique().cast(pl.String).sort().to_list()
        apart = not wide.select(*keys, f"other {i}").is_duplicated().any()
        if apart and 1 < len(kinds) <= MOST_KINDS:
            first = next((kind for kind in kinds if kind.casefold() in CASE_WORDS), kinds[0])
            return AmbiguousTableError(
                f"{error.sentence}, in {short(name)} {listed(kinds, 4)}",
                {"only": f"{name}={first}"},
                *error.choices,
                *({"only": f"{name}={kind}"} for kind in kinds if kind != first),
            )
        if apart and not many:
            many = f", told apart by {short(name)} ({len(kinds)} of them)"
    return AmbiguousTableError(error.sentence + many, *error.choices)


def _one(table: RawTable, wanted: str) -> str:
    """The name of one further column, found regardless of case."""
    alike = [name for name in table.names if name.casefold() == wanted.strip().casefold()]
    if len(alike) != 1:
        raise EpifedError(
            f"{table.where}: found {len(alike)} columns {short(wanted)}; expected one (the columns "
            f"are {listed(table.names) or 'none'})"
        )
    return alike[0]


def _joined(frame: pl.DataFrame) -> pl.DataFrame:
    """Join years and week numbers to words such as 2020-45."""
    parts = [
        pl.col(name)
        .cast(pl.String)
        .str.replace(r"\.0+$", "")
        .str.replace(rf"(?i)^(KW[ ._-]*|{WEEK_WORD})", "")
        for name in ("day", "week")
    ]
    empty = pl.col("day").is_null() & pl.col("week").is_null()
    word = parts[0].fill_null("") + "-" + parts[1].fill_null("").str.zfill(2)
    return frame.with_columns(day=pl.when(~empty).then(word))


def _columns(
    table: RawTable, said: Assumptions, keys: Sequence[str]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The name of each wanted column in the table, as given or usual, regardless of case."""
    columns: dict[str, str] = {}
    renamed: list[str] = []
    missing: list[str] = []
    notes: tuple[str, ...] = ()
    optional = set(FACTS) if said.population is None else {*FACTS} - {POPULATION}
    for key in (*keys, *(FACTS if said.name is None else SAID_FACTS)):
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
        elif key == POPULATION and (called := usual_population(table.names)):
            columns[key] = called
            notes += (f"{called} is taken as the population",)
    if missing:
        raise _missing(table, said, columns, missing)
    if renamed:
        notes = (f"columns by other capitals: {', '.join(renamed)}", *notes)
    return columns, notes


def _missing(
    table: RawTable, said: Assumptions, columns: Mapping[str, str], missing: Sequence[str]
) -> EpifedError:
    """The error on missing columns, with those that may be meant."""
    names = {k: getattr(said, _OPTIONS[k]) or _DEFAULTS.get(k, k) for k in _OPTIONS}
    expected = [names[key] for key in _DEFAULTS]
    sentence = (
        f"{table.where}: found no column {listed([names[key] for key in missing])}; expected "
        f"{listed(expected)} (the columns are {listed(table.names) or 'none'})"
    )
    if unusable := unusable_names(table):
        return EpifedError(f"{table.where}: {unusable}")
    offers: dict[str, Any] = {}
    columns = {key: name for key, name in columns.items() if key not in FACTS}
    for key in missing:
        free = [n for n in table.names if n not in columns.values() and n not in offers.values()]
        if found := likely_day(free) if key == "day" else likely(key, free):
            offers[_OPTIONS[key]] = found
    free = [n for n in table.names if n not in columns.values() and n not in offers.values()]
    counts = likely_counts([*free, offers["cases"]] if "cases" in offers else [])
    counts = [name for name in table.names if name in counts]
    if "cases" in missing and "cases" not in offers and len(missing) - len(offers) == 1:
        offered = {"day": offers.get("date"), "region": offers.get("region")}
        known = {**columns, **{key: name for key, name in offered.items() if name}}
        numbers = _numbers(table, known)
        rates = [name for name in table.names if RATES.search(name.casefold())]
        if rates and not numbers:
            return EpifedError(
                f"{table.where}: found no column of counts, and rates in {listed(rates)}; expected "
                "new cases (a rate of single days or weeks, not of the last seven days, is read if "
                "--column-cases names it)"
            )
        ways = _ways_to_count(numbers or ()) or [{"line_list": True}]
        return AmbiguousTableError(sentence, *(offers | way for way in ways))
    if {"region"} == set(missing) - {k for k, option in _OPTIONS.items() if option in offers}:
        day = columns.get("day") or offers["date"]
        days = [part.strip() for part in day.split(PLUS)] if day not in table.names else [day]
        frame = table.pick({f"day {i}": name for i, name in enumerate(days)})
        if not frame.select(pl.exclude("row")).is_duplicated().any():
            used = {*columns.values(), *offers.values(), *days}
            more = [name for name in table.names if name and name not in used]
            ways = [{"one_region": True} | offers]
            if more:
                dates = {key: name for key, name in offers.items() if key == "date"}
                ways.append(dates | {"layout": "regions-across"})
            return AmbiguousTableError(sentence, *ways)
    dated = "day" not in missing or "date" in offers
    nothing = {"region", "cases"} <= set(missing) and not offers.keys() & {"region", "cases"}
    if dated and nothing and len(table.names) > 1:
        return AmbiguousTableError(sentence, offers | {"layout": "regions-across"})
    return (
        AmbiguousTableError(sentence, *(offers | way for way in _ways_to_count(counts) or [{}]))
        if len(offers) == len(missing)
        else EpifedError(sentence)
    )


def _ways_to_count(names: Sequence[str]) -> list[dict[str, Any]]:
    """The options for several columns of counts: one of them, or all added up."""
    totals = [name for name in names if is_total(pl.Series([name]))[0]]
    ways: list[dict[str, Any]] = [{"cases": name} for name in dict.fromkeys([*totals, *names])]
    parts = not totals and len(names) <= MOST_KINDS and are_parts(names)
    return [{"cases": PLUS.join(names)}, *ways] if parts else ways


_YEARLESS = r"(?i)^(KW|W|SE|week|woche)[ ._-]*\d\d?$|^\d\d?\. ?KW$|^\d\d?[./]\d\d?\.?$"


def unusable_names(table: RawTable) -> str:
    """What is wrong with column names that no option can mend; empty if nothing is."""
    names = table.names
    yearless = [name for name in names if re.match(_YEARLESS, name)]
    if len(yearless) >= LEAST_DAYS:
        return (
            f"found columns such as {short(yearless[0])}, days or weeks without a year; expected "
            "names with the year, such as 2024-W07 or 17.02.2024"
        )
    twice = [name for name in dict.fromkeys(names) if name and names.count(name) > 1]
    if len(twice) > 1:
        return (
            f"found the columns {listed(twice)} several times, so the names of the columns may "
            "stand in two rows; expected one row, with each name once"
        )
    unnamed = [i for i, name in enumerate(names) if not name]
    return _of_unnamed(table, unnamed, "the others") if len(unnamed) > 1 else ""


def _numbers(table: RawTable, known: Mapping[str, str]) -> list[str] | None:
    """Columns that may be counts if no region has two rows of a day; None if one has.

    Two rows of a day are usual in a list of persons.
    """
    keys = {key: known[key] for key in ("day", "region") if known.get(key) in table.names}
    others = {f"other {i}": n for i, n in enumerate(table.names) if n and n not in known.values()}
    frame = table.pick(keys | others).head(10_000)
    if len(keys) < 2 or frame.select("day", "region").is_duplicated().any():
        return None
    as_text = frame.select(pl.col(list(others)).cast(pl.String, strict=False))
    return [
        others[column.name]
        for column in as_text
        if column.null_count() < len(column)
        and column.str.contains(r"^[\d., ]*\d$").mean() == 1
        and not RATES.search(others[column.name].casefold())
    ]


def _days_across(table: RawTable, said: Assumptions, days: Sequence[bool]) -> LongTable:
    """Lay out a table with a row for each region and a column for each day."""
    across = [name for name, is_day in zip(table.names, days, strict=True) if is_day]
    if not across:
        raise EpifedError(
            f"{table.where}: found no column name that is a day; expected days-across"
        )
    columns, notes = _columns(table, said, ["region"])
    first, last = days.index(True), len(days) - 1 - days[::-1].index(True)
    unnamed = [i for i, name in enumerate(table.names) if not name and first < i <= last + 1]
    if unusable := _of_unnamed(table, unnamed, "a day"):
        raise EpifedError(f"{table.where}: {unusable}")
    wide = _picked(table, columns | {f"day {i}": name for i, name in enumerate(across)}, said)
    names = {f"day {i}": name for i, name in enumerate(across)}
    long = _melted(wide, list(names), list(columns)).with_columns(
        day=pl.col("across").replace_strict(names, return_dtype=pl.String)
    )
    ignored = [n for n in table.names if n not in across and n not in columns.values()]
    told = (f"columns that are no day were left out: {listed(ignored)}",) if ignored else ()
    columns |= {"day": "(column names)", "cases": "(days)"}
    return LongTable(long.drop("across"), columns, "days-across", notes + told)


def _of_unnamed(table: RawTable, places: Sequence[int], beside: str) -> str:
    """What is wrong with filled columns without a name, whose day or region is unclear."""
    texts = table.cells(places).select(pl.exclude("row").cast(pl.String).str.strip_chars())
    filled = [place for place in places if texts[str(place)].replace("", None).drop_nulls().len()]
    if not filled:
        return ""
    return (
        f"column {filled[0] + 1}: found no name beside {beside}, and cells below ({len(filled)} "
        "such columns: merged cells, or names in two rows?); expected one row with a name for "
        "each column"
    )


def _regions_across(table: RawTable, said: Assumptions) -> LongTable:
    """Lay out a table with a row for each day and a column for each region."""
    columns, notes = _columns(table, said, ["day"])
    used = {*columns.values(), *(one.partition("=")[0] for one in said.only or ())}
    regions = [name for name in table.names if name and name not in used]
    if not regions:
        raise EpifedError(f"{table.where}: found no column but the day; expected regions-across")
    unnamed = [i for i, name in enumerate(table.names) if not name]
    if unusable := _of_unnamed(table, unnamed, "a region"):
        raise EpifedError(f"{table.where}: {unusable}")
    names = {f"region {i}": name for i, name in enumerate(regions)}
    wide = _picked(table, columns | names, said)
    long = _melted(wide, list(names), ["day"]).with_columns(
        region=pl.col("across").replace_strict(names, return_dtype=pl.String)
    )
    columns = {"day": columns["day"], "region": "(column names)", "cases": "(regions)"}
    return LongTable(long.drop("across"), columns, "regions-across", notes)


def _melted(wide: pl.DataFrame, names: list[str], kept: list[str]) -> pl.DataFrame:
    """Unpivot wide columns, after casting them to one type."""
    kinds = {wide.schema[name] for name in names}
    if len(kinds) > 1 and not all(kind.is_numeric() or kind == pl.Null for kind in kinds):
        wide = wide.with_columns(pl.col(names).cast(pl.String, strict=False))
    elif len(kinds) > 1:
        wide = wide.with_columns(pl.col(names).cast(pl.Float64, strict=False))
    return wide.unpivot(names, index=["row", *kept], variable_name="across", value_name="cases")


def read_inhabitants(
    table: RawTable, regions: Sequence[str], names: Mapping[str, str]
) -> tuple[dict[str, int], str, list[str]]:
    """The inhabitants of each region from a further table, their column, and its other regions.

    A region is found by its id or name, in the column that has most of them.
    """
    columns = [name for name in table.names if name and table.names.count(name) == 1]
    people = likely(POPULATION, columns)
    others = [name for name in columns if name != people]
    if people is None or not others:
        raise EpifedError(
            f"{table.where}: found no column of inhabitants beside one of regions; expected both "
            f"(the columns are {listed(table.names) or 'none'})"
        )
    wide = table.pick({POPULATION: people} | {f"key {i}": name for i, name in enumerate(others)})
    wanted = {plain_id(names.get(one, one)): one for one in regions}
    wanted |= {plain_id(one): one for one in regions}
    keys = []
    for i in range(len(others)):
        key = spelled(wide[f"key {i}"].cast(pl.String)).map_elements(plain_id, pl.String)
        keys.append(key.replace_strict(wanted, default=None, return_dtype=pl.String))
    best = max(range(len(keys)), key=lambda i: keys[i].n_unique())
    rows = wide.with_columns(region=keys[best])
    mine = rows.filter(pl.col("region").is_not_null(), pl.col(POPULATION).is_not_null())
    absent = sorted({*regions} - {*mine["region"]})
    if absent:
        raise EpifedError(
            f"{table.where}: found no inhabitants of {listed(absent)} ({len(absent)} of "
            f"{len(regions)} regions) in the column {short(others[best])}; expected all regions"
        )
    facts = region_facts(table.where, mine, {POPULATION: people}, Assumptions())
    assert facts.population is not None
    rest = rows.filter(pl.col("region").is_null())[f"key {best}"].drop_nulls()
    return facts.population, people, rest.cast(pl.String).to_list()


def is_of_inhabitants(table: RawTable) -> bool:
    """Whether a table has the inhabitants of regions, and no days."""
    people = likely(POPULATION, [name for name in table.names if name])
    others = [name for name in table.names if name and name != people]
    return people is not None and likely_day(others) is None
