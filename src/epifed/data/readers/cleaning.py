"""Clean a long table to new cases for each day or week.

Totals and sums of other rows are left out, cumulative counts are differenced, corrections are
handled, and the step (day or week) is recognised. Each change is recorded as a note.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from epifed.data.calendar import WEEK, Step
from epifed.data.panel import CasePanel, Table
from epifed.data.readers.columns import (
    LongTable,
    lay_long,
    of_one_kind,
    read_inhabitants,
    refuse_rows,
    wanted_names,
)
from epifed.data.readers.tables import (
    IN_MEMORY,
    USUAL,
    AmbiguousTableError,
    Assumptions,
    Content,
    RawTable,
    is_total,
    listed,
    open_table,
    short,
    some,
)
from epifed.data.readers.values import (
    ISO,
    TIMED,
    WEEK_LONG,
    WEEKLY,
    Days,
    Facts,
    day_names,
    parse_counts,
    parse_days,
    parse_regions,
    region_facts,
)
from epifed.errors import EpifedError, counted, was

LEAST_STEPS, LEAST_RISES = 3, 10
FALLS_PER_RISE = 0.05
"""Up to this ratio counts look accumulated; new cases fall about as often as they rise."""
YEARLY = "cumulative-yearly"
"""Accumulated counts that restart with each year."""
ROLLING = re.compile(
    r"7[\W_]*(tage|tägig|days?\b|day|d_?ma|dma|jours|giorni|d[ií]as)|(sieben|seven)[\W_]*(tage|day)"
    r"|rolling|moving|smoothed|gleitend|lissé|m[oó]vil"
)
"""Column names, in lower case, of sums or averages of the last seven days."""
ROLLING_WEEKS = 4
"""Number of weeks of rolling sums from which it must be possible to recover the days."""
LEAST_STRETCHES, POSSIBLE = 20, 0.9
"""Number of such stretches needed, and the share of them in which recovery must be possible."""
LEAVING = -0.2
"""In a rolling sum a case leaves after a week, so sudden changes a week apart have a correlation of
about -0.5. Those of daily counts have one of about 0 or more."""
MERGED = 0.2
"""From this share of empty region cells on, cells look merged; fewer are taken as forgotten."""
LONG_GAP, LONGEST_GAP = 62, 366
"""More days without rows than these are noted; beyond the second a day is refused as an error."""


ACROSS = "(column names)"
"""Where the days or regions of a wide table stand."""
KIND_OF_REGION = r"^(lk|sk|lkr\.?|kreis|landkreis|stadtkreis|stadt|kreisfreie stadt)\s+|\s+county$"
"""Words beside the name of a region that say what kind it is."""
SAME_REGION = (pl.col("region") == pl.col("region").shift()).fill_null(value=False)
"""Whether the previous row, in order of region and day, is of the same region."""


@dataclass(frozen=True)
class Cleaning:
    """A long table being cleaned: its rows, what was recognised, and what was changed."""

    where: str
    frame: pl.DataFrame
    columns: dict[str, str]
    said: Assumptions
    found: dict[str, Any]
    notes: tuple[str, ...] = ()
    sums_dropped: tuple[str, ...] = ()

    def now(self, frame: pl.DataFrame, note: str = "", **found: Any) -> Self:
        """The next state, with a further note if something was changed."""
        notes = (*self.notes, note) if note else self.notes
        return replace(self, frame=frame, notes=notes, found=self.found | found)

    def at(self, row: int) -> str:
        """The place of a count, as an error message begins with it."""
        return f"{self.where}: row {row}, column {short(self.columns['cases'])}"


def table_alone(state: Cleaning) -> Cleaning:
    """Leave out repeated headers, units below the header and notes below the table, with notes."""
    frame, notes = state.frame, []
    named = [
        pl.col(key) == state.columns[key]
        for key in ("day", "cases")
        if frame.schema[key] == pl.String
    ]
    if named:
        header = frame.select(pl.all_horizontal(named).fill_null(value=False)).to_series()
        if repeated := int(header.sum()):
            frame = frame.filter(~header)
            notes.append(
                f"{counted(repeated, 'row')} with the names of the columns again {was(repeated)} "
                "left out"
            )
    written = frame.schema["day"] == pl.String
    digits = pl.col("day").str.contains(r"\d") if written else pl.col("day").is_not_null()
    first = frame.filter(digits)["row"].min()
    if frame.schema["cases"] == pl.String and first is not None:
        units = frame.filter(pl.col("row") < first, ~pl.col("cases").str.contains(r"\d"))
        if len(units) and not frame.filter(pl.col("row") < first).height > len(units):
            frame = frame.filter(pl.col("row") >= first)
            notes.append(
                f"the text below the names of the columns was left out: "
                f"'{short(units['cases'][0])}'"
            )
    whole = pl.col("day").is_not_null() & pl.col("region").is_not_null()
    holds = whole if state.said.line_list else whole | pl.col("cases").is_not_null()
    if ACROSS in (state.columns["region"], state.columns["day"]):
        # Each cell of a wide table has a day and a region; only its count tells a note from a row.
        holds = pl.col("cases").is_not_null()
        if written and state.columns["region"] == ACROSS:
            words = frame["day"].unique().drop_nulls()
            are_days = day_names(words.to_list(), state.said.date_format)
            holds |= pl.col("day").is_in(
                words.filter(pl.Series(are_days, dtype=pl.Boolean)).implode()
            )
        elif state.columns["region"] == ACROSS:
            holds |= pl.col("day").is_not_null()
    last = frame.filter(holds)["row"].max()
    below = frame[:0] if last is None else frame.filter(pl.col("row") > last)
    if len(below):
        keys = ("region", "day") if state.columns["day"] == ACROSS else ("day", "region")
        text = below.select(pl.coalesce(pl.col(keys).cast(pl.String))).to_series()[0]
        frame, rows = frame.filter(pl.col("row") <= last), below["row"].n_unique()
        notes.append(
            f"{counted(rows, 'row')} below the table {was(rows)} left out: '{short(text)}'"
        )
    return replace(state, frame=frame, notes=(*state.notes, *notes))


def filled_down(state: Cleaning) -> Cleaning:
    """Fill empty regions and days from the row above, if the option `fill_down` is set."""
    gaps = state.frame.select(pl.col("region", "day").is_null().sum()).row(0)
    if not any(gaps):
        return state
    first = state.frame.sort("row").row(0, named=True)
    if not state.said.fill_down:
        merged = gaps[0] and first["region"] is not None and not state.said.line_list
        full = state.frame.sort("row").with_columns(pl.col("region").forward_fill())
        merged = merged and not full.select("region", "day").is_duplicated().any()
        filled = state.frame.filter(pl.col("region").is_null(), pl.col("cases").is_not_null())
        if merged and len(filled) >= max(LEAST_STEPS, MERGED * len(state.frame)):
            raise AmbiguousTableError(
                f"{state.where}: row {min(filled['row'])}, column "
                f"{short(state.columns['region'])}: found an empty cell ({len(filled):,} of them "
                "with a count); expected a region, or that it is the one above (merged cells)",
                {"fill_down": True},
            )
        return state
    full = state.frame.sort("row").with_columns(pl.col("region", "day").forward_fill())
    return state.now(full, f"{sum(gaps):,} empty cells have what stands above them", fill_down=True)


def summed(state: Cleaning) -> Cleaning:
    """Order rows by region and day; several of one are refused unless an option merges them."""
    frame = state.frame.sort("region", "day")
    if "part" in frame.columns:  # several columns of one row
        whole = pl.when(pl.col("cases").count() > 0).then(pl.col("cases").sum())
        one_row = frame.group_by("row", "region", "day", maintain_order=True)
        frame = one_row.agg(whole.alias("cases"), pl.exclude("cases", "part").first())
    if not frame.select((SAME_REGION & (pl.col("day").diff().dt.total_days() == 0)).any()).item():
        return state.now(frame)
    if state.said.duplicates == "last":
        last = frame.sort("region", "day", "row").unique(
            ["region", "day"], keep="last", maintain_order=True
        )
        again = len(frame) - len(last)
        note = (
            f"{counted(again, 'row')} {was(again)} left out: a later row has their region and day"
        )
        return state.now(last, note, duplicates="last")
    if state.said.duplicates != "sum" and not state.said.line_list:
        same = frame.unique(["region", "day", "cases"], keep="first", maintain_order=True)
        alike = not same.select("region", "day").is_duplicated().any()
        if alike and state.said.duplicates == "drop":
            again = len(frame) - len(same)
            note = f"{counted(again, 'row')} like another {was(again)} dropped"
            return state.now(same, note, duplicates="drop")
        columns = f"{short(state.columns['region'])} and {short(state.columns['day'])}"
        sentence = twice(state.where, frame, columns)
        assert sentence is not None
        told = f"{sentence}, and the same counts again" if alike else sentence
        ways = ("drop", "sum") if alike else ("sum", "last")
        raise AmbiguousTableError(told, *({"duplicates": way} for way in ways))
    others = [name for name in frame.columns if name not in ("row", "region", "day", "cases")]
    merged = frame.group_by("region", "day").agg(
        pl.col("row").min(),
        pl.when(pl.col("cases").count() > 0).then(pl.col("cases").sum()).alias("cases"),
        *(pl.col(name).drop_nulls().first() for name in others),
    )
    note = f"{counted(len(frame), 'row')} were summed to {len(merged):,} of one region and day each"
    return state.now(merged.sort("region", "day"), note, duplicates="sum")


def of_one_spelling(state: Cleaning) -> Cleaning:
    """Refuse two spellings of a region: other capitals and no day in common, or one after another.

    Spellings that follow one another differ in umlauts, signs or a word such as LK.
    """
    lower = pl.col("region").str.to_lowercase()
    bare = lower.str.replace(KIND_OF_REGION, "")
    plain = bare
    for sign, letters in {"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss"}.items():
        plain = plain.str.replace_all(sign, letters)
    plain = plain.str.normalize("NFD").str.replace_all(r"[^\pL\pN]", "")
    known = state.frame.filter(pl.col("cases").is_not_null())
    spans = known.group_by("region").agg(
        pl.col("day"), first=pl.col("day").min(), last=pl.col("day").max()
    )
    spans = spans.with_columns(lower=lower, plain=plain, bare=bare == lower).sort("first", "region")
    for key in ("lower", "plain"):
        for alike in spans.filter(pl.col(key).is_duplicated()).partition_by(
            key, maintain_order=True
        ):
            one, other = alike.rows(named=True)[:2]
            apart = one["last"] < other["first"] and (one["bare"] or other["bare"])
            few = min(len(one["day"]), len(other["day"])) < LEAST_STEPS
            if key == "plain" and (few or not apart):
                continue
            if key == "lower" and alike["day"].explode().is_duplicated().any():
                continue
            raise EpifedError(
                f"{state.where}: column {short(state.columns['region'])}: found "
                f"'{short(one['region'])}' and '{short(other['region'])}', and no day that has "
                "both; expected one spelling of a region"
            )
    return state


def without_leaps(state: Cleaning) -> Cleaning:
    """Refuse days more than a year from all others: every day between would count as zero."""
    days = state.frame.filter(pl.col("cases").is_not_null()).sort("day", "row").select("day", "row")
    gaps = days["day"].diff().dt.total_days()
    for place in (gaps > LONGEST_GAP).fill_null(value=False).arg_true():
        before, after = days.row(place - 1), days.row(place)
        row = after[1] if place > len(days) / 2 else before[1]
        raise EpifedError(
            f"{state.where}: row {row}, column {short(state.columns['day'])}: found {before[0]} "
            f"and then nothing until {after[0]}; expected no more than a year between days"
        )
    longest = gaps.arg_max()
    if longest is None or gaps[longest] <= LONG_GAP:
        return state
    first, last = days["day"][longest - 1], days["day"][longest]
    return state.now(state.frame, f"there is no report of any region between {first} and {last}")


def twice(where: Path | str, frame: pl.DataFrame, columns: str) -> str | None:
    """The error text for the first repeated region and day; None if there is none."""
    repeated = frame.sort("row").with_columns(first=pl.col("row").first().over("region", "day"))
    again = repeated.filter(~pl.struct("region", "day").is_first_distinct()).head(1)
    for found in again.iter_rows(named=True):
        return (
            f"{where}: row {found['row']}, columns {columns}: found region "
            f"{short(found['region'])} on {found['day']} a second time (first in row "
            f"{found['first']}); expected it once"
        )
    return None


def as_new(state: Cleaning) -> Cleaning:
    """Turn counts into new cases: accumulated ones need an option, and then become differences."""
    if state.said.counts == "new":
        return state.now(state.frame, counts="new")
    known = state.frame.filter(pl.col("cases").is_not_null())
    week = state.found.get("cadence") == "week"
    # A week belongs to the year of its middle, as in both calendars of weeks.
    year = pl.col("day").dt.offset_by("-3d" if week else "0d").dt.year()
    anew = _starts_anew(known, year)
    if state.said.counts is None:
        steps = known.select(pl.col("cases").diff().filter(SAME_REGION))["cases"]
        rises, falls = int((steps > 0).sum()), int((steps < 0).sum())
        possible = not (known["cases"] < 0).any()
        if possible and rises >= LEAST_RISES and falls <= FALLS_PER_RISE * rises:
            raise AmbiguousTableError(
                f"{state.where}: column {short(state.columns['cases'])}: found counts that rise "
                f"{rises:,} times and fall {falls:,} times, so they look accumulated; expected "
                "new cases",
                {"counts": YEARLY if anew else "cumulative"},
                {"counts": "new"},
            )
        named = ROLLING.search(state.columns["cases"].casefold())
        if state.found.get("cadence") == "day" and (named or _rolling(known)):
            raise AmbiguousTableError(
                f"{state.where}: column {short(state.columns['cases'])}: found counts that look "
                "like sums or averages of the last seven days; expected the new cases of each day",
                {"counts": "new"},
            )
        return state.now(state.frame, counts="new")
    if state.said.counts == "cumulative" and anew:
        raise AmbiguousTableError(
            f"{state.where}: column {short(state.columns['cases'])}: found accumulated counts that "
            "start anew with the year; expected that to be stated",
            {"counts": YEARLY},
        )
    change = pl.col("cases").diff()
    if state.said.counts == YEARLY:
        change = pl.when(year == year.shift()).then(change).otherwise("cases")
    daily = known.with_columns(change).filter(SAME_REGION)
    if daily.is_empty():
        raise EpifedError(
            f"{state.where}: found one day for each region; expected at least two, because the "
            "counts are accumulated"
        )
    note = (
        "differences of accumulated counts, on the later day where days are missing; a region's "
        "first day has none before it and is left out"
    )
    if state.said.counts == YEARLY:
        note += "; a year's first count is new, as counts start anew with it"
    return state.now(daily, note, counts=state.said.counts)


def _starts_anew(known: pl.DataFrame, year: pl.Expr) -> bool:
    """Whether counts mostly fall by half or more where a year begins, and hardly elsewhere."""
    enough = (pl.col("cases").shift() >= LEAST_RISES) & SAME_REGION
    halved = pl.col("cases") <= pl.col("cases").shift() / 2
    first = year != year.shift()
    shares = known.select(
        years=halved.filter(enough & first).mean(), days=halved.filter(enough & ~first).mean()
    ).row(0, named=True)
    return (shares["years"] or 0.0) > 1 / 2 and (shares["days"] or 0.0) <= FALLS_PER_RISE


def _rolling(known: pl.DataFrame) -> bool:
    """Whether counts look like sums, or averages, over the last seven days.

    A day is then the one a week before it plus the change since the day before. No day may come
    out below zero, and none above the first sum.
    """
    days, cases = known["day"].to_physical().to_numpy(), known["cases"].to_numpy()
    region = known["region"].rle_id().to_numpy()
    length = (ROLLING_WEEKS + 1) * WEEK
    starts = np.arange(max(len(days) - length + 1, 0))
    last = starts + length - 1
    whole = (days[last] - days[starts] == length - 1) & (region[last] == region[starts])
    change = np.diff(cases)[starts[whole][:, None] + np.arange(length - 1)]
    moving = change.any(axis=1)
    if moving.sum() < LEAST_STRETCHES:
        return False
    change, first = change[moving], cases[starts[whole][moving]]
    weeks = change[:, : ROLLING_WEEKS * WEEK].reshape(len(change), ROLLING_WEEKS, WEEK)
    owed = np.maximum(-np.cumsum(weeks, axis=1).min(axis=1), 0.0).sum(axis=1)
    if np.mean(owed <= first * (1 + 1e-9) + 1e-9) < POSSIBLE:
        return False
    trend = np.lib.stride_tricks.sliding_window_view(change, WEEK, axis=1).mean(axis=2)
    sudden = change[:, WEEK // 2 : -(WEEK // 2)] - trend
    sudden = sudden / np.maximum(np.sqrt((sudden**2).mean(axis=1, keepdims=True)), 1e-9)
    return float((sudden[:, WEEK:] * sudden[:, :-WEEK]).mean()) < LEAVING


def without_negatives(state: Cleaning) -> Cleaning:
    """Refuse negative counts, spread them back over earlier days, or set them to zero."""
    negative = state.frame.filter(pl.col("cases") < 0)
    if negative.is_empty():
        return state
    taken = -float(negative["cases"].sum())
    regions = negative["region"].n_unique()
    what = (
        f"{counted(len(negative), 'negative count')} in {counted(regions, 'region')} "
        f"(−{taken:,.6g} cases in all)"
    )
    if state.said.negatives == "zero":
        zeroed = state.frame.with_columns(pl.col("cases").clip(lower_bound=0))
        return state.now(zeroed, f"{what} {was(len(negative))} set to zero", negatives="zero")
    if state.said.negatives != "spread":
        first = negative.sort("row").row(0, named=True)
        raise AmbiguousTableError(
            f"{state.at(first['row'])}: found '{first['cases']:.12g}'; expected a number of at "
            f"least 0 (negative: {counted(len(negative), 'count')}, −{taken:,.6g} cases in all)",
            {"negatives": "spread"},
            {"negatives": "zero"},
        )
    frame = state.frame
    mine = pl.col("region").is_in(negative["region"].unique().to_list())
    known = frame.filter(mine, pl.col("cases").is_not_null())
    left, parts = 0.0, []
    for (_,), rows in known.group_by("region", maintain_order=True):
        spread, lost = spread_back(rows["cases"].to_numpy())
        left += lost
        parts.append(rows.with_columns(cases=spread))
    rest = frame.filter(~(mine & pl.col("cases").is_not_null()))
    done = f"{was(len(negative))} subtracted from the days before"
    note = f"{what} {done}, in proportion to their counts"
    if left:
        note += f"; {left:,.6g} cases could not be subtracted"
    return state.now(pl.concat([*parts, rest]), note, negatives="spread")


def spread_back(counts: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """Subtract each negative count from the days before it; also return what is left over.

    The subtraction is in proportion to the counts of the fewest whole weeks back that hold twice
    as many cases, or of all days. Whole numbers stay whole.

    >>> spread_back(np.array([6.0, 2.0, 4.0, -3.0, 5.0]))
    (array([4., 2., 3., 0., 5.]), 0.0)
    """
    spread = np.array(counts, dtype=np.float64)
    whole = bool((spread == np.rint(spread)).all())
    left = 0.0
    for day in np.flatnonzero(spread < 0):
        owed, spread[day] = -spread[day], 0.0
        first = int(day)
        while first > 0 and spread[first:day].sum() < 2 * owed:
            first = max(0, first - WEEK)
        before = spread[first:day]
        held = before.sum()
        taken = before * min(1.0, owed / held) if held else before * 0
        if whole and held > owed:
            taken = _whole(taken, owed)
        before -= taken
        left += max(0.0, owed - held)
    return spread, left


def _whole(shares: NDArray[np.float64], total: float) -> NDArray[np.float64]:
    """Round shares to whole numbers that add up to the total."""
    down = np.floor(shares)
    rest = round(total - down.sum())
    up = np.argsort(down - shares, kind="stable")[:rest]
    down[up] += 1
    return down


Floats = NDArray[np.float64]

LEAST_SUMS, LEAST_PARTS, LEAST_VALUES = 7, 3, 4
"""What a region needs to be taken for a total: days on which it is the sum of others, number of
these others, and number of different counts."""
MOST_LEVELS = 3
"""Levels below a total, such as states and counties, that all sum up to it."""
NEAR = (-1, 0, 1)
"""How far from the row where the cases reach a total (gaps filled) its parts may end."""
MIXED = 1.5
"""If the remaining regions hold this many times a total, its cases are in them more than once."""
MOST_COUNTS = 5_000_000
"""Up to this many counts, sums of neighbouring rows are searched for."""
NEARLY, ON_MOST = 0.05, 0.9
"""How far a total may differ from its parts, on this share of days; on half of them a fifth."""


def without_totals(state: Cleaning) -> Cleaning:
    """Leave out the rows whose region or day is a word for a total."""
    found = {
        key: words.filter(is_total(words))
        for key in ("day", "region")
        if state.frame.schema[key] == pl.String
        for words in [state.frame[key].unique().drop_nulls()]
    }
    if not any(len(words) for words in found.values()):
        return state
    totals = (pl.col(key).is_in(words.implode()) for key, words in found.items())
    return _drop_totals(state, state.frame.filter(pl.any_horizontal(totals)))


def without_total_kinds(table: RawTable, long: LongTable, said: Assumptions) -> LongTable:
    """Leave out rows that another column (such as age) calls a total, before rows are summed.

    A region with no other rows keeps them, whatever the others have.
    """
    if said.duplicates != "sum" or said.totals == "keep" or long.layout != "long":
        return long
    used, chosen = set(long.columns.values()), {one.partition("=")[0] for one in said.only or ()}
    others = [n for n in table.names if n and n not in used | chosen and table.names.count(n) == 1]
    if not others:
        return long
    wide = table.pick(
        {"region": long.columns["region"]} | {f"o{i}": n for i, n in enumerate(others)}
    )
    wide = wide.join(long.frame.select("row"), on="row", how="semi")
    frame, notes = long.frame, list(long.notes)
    for i, name in enumerate(others):
        if wide.schema[f"o{i}"] != pl.String:
            continue
        kinds = wide.select(pl.col(f"o{i}").n_unique().over("region")).to_series()
        totals = wide.filter(is_total(wide[f"o{i}"]) & (kinds > 1))
        if totals.is_empty():
            continue
        word = totals[f"o{i}"][0]
        if said.totals != "drop":
            raise AmbiguousTableError(
                f"{table.where}: row {totals['row'][0]}, column {short(name)}: found "
                f"'{short(word)}', which looks like a total of the rows to be summed; expected "
                "them alone, or it alone",
                {"totals": "drop"},
                {"duplicates": "refuse", "only": f"{name}={word}"},
            )
        frame = frame.join(totals.select("row"), on="row", how="anti")
        notes.append(
            f"{counted(len(totals), 'row')} of totals {was(len(totals))} dropped: {short(name)} "
            f"{short(word)}"
        )
    return LongTable(frame, long.columns, long.layout, tuple(notes))


def _drop_totals(state: Cleaning, totals: pl.DataFrame) -> Cleaning:
    if totals.is_empty() or state.said.totals == "keep":
        return state
    what = listed(_names(totals))
    if state.said.totals != "drop":
        raise AmbiguousTableError(
            f"{state.where}: row {min(totals['row'])}: found {what}, which looks like a total of "
            "the other rows; expected regions alone",
            {"totals": "drop"},
            {"totals": "keep"},
        )
    kept = state.frame.join(totals.select("row", "region"), on=["row", "region"], how="anti",
                            nulls_equal=True)  # fmt: skip
    if kept.is_empty():
        raise EpifedError(f"{state.where}: found totals alone; expected regions")
    return state.now(
        kept,
        f"{counted(len(totals), 'row')} of totals {was(len(totals))} dropped: {what}",
        totals="drop",
    )


def _names(totals: pl.DataFrame) -> list[str]:
    """The names of total rows: the day where that holds the word for a total, else the region."""
    words = totals.select(pl.col("region", "day").cast(pl.String))
    by_day = is_total(words["day"]) & ~is_total(words["region"])
    named = words.with_columns(name=pl.when(by_day).then("day").otherwise("region"))
    return named.select(pl.coalesce("name", "day")).to_series().unique().sort().to_list()


def without_sums(state: Cleaning, order: Sequence[str]) -> Cleaning:
    """Leave out regions that are sums of others, whatever their names; `order` is the table's.

    A sum may be of all others, of those whose ids begin with its id, or of neighbouring rows. It
    must match nearly, on nearly all days, since a few cases belong to no region.
    """
    if state.said.totals == "keep" or len(order) <= LEAST_PARTS:
        return state
    sums = _Sums.of(state.frame, order)
    found: list[str] = []
    while some := sums.of_some() or sums.of_all():
        found += some
        sums = sums.without(some)
    left = sums.cases.sum()
    if any(left > MIXED * total for total in sums.totals):
        raise EpifedError(
            f"{state.where}: found {short(found[-1])}, which is the sum of the others more than "
            "once, so regions of several levels are mixed; expected those of one level"
        )
    state = _drop_totals(state, state.frame.filter(pl.col("region").is_in(found)))
    state = replace(state, sums_dropped=tuple(found))
    same = sums.alike()
    note = f"regions with the same counts on every day: {listed(same)}" if same else ""
    return state.now(state.frame, note)


@dataclass(frozen=True)
class _Sums:
    """Counts of regions in table order, to find those that are sums of others."""

    ids: tuple[str, ...]
    counts: Floats
    """[regions, days]"""
    known: NDArray[np.bool_]
    totals: tuple[float, ...] = ()
    """The cases of regions already left out because they were the sum of all others."""

    @classmethod
    def of(cls, frame: pl.DataFrame, order: Sequence[str]) -> Self:
        """Build the counts from a long table."""
        frame = frame.drop_nulls("cases")
        days = frame["day"].rank("dense").to_numpy().astype(np.int64) - 1
        place = {id: i for i, id in enumerate(order)}
        rows = frame["region"].replace_strict(place, return_dtype=pl.Int64).to_numpy()
        counts = np.zeros((len(order), int(days.max(initial=-1)) + 1))
        known = np.zeros(counts.shape, dtype=np.bool_)
        counts[rows, days], known[rows, days] = frame["cases"].to_numpy(), True
        return cls(tuple(order), counts, known)

    @cached_property
    def cases(self) -> Floats:
        """The total cases of each region."""
        total: Floats = self.counts.sum(axis=1)
        return total

    def without(self, ids: Sequence[str]) -> Self:
        """The counts without these regions."""
        kept = [i for i, id in enumerate(self.ids) if id not in set(ids)]
        totals = self.totals
        if len(ids) == 1 and ids == self.of_all():
            totals = (*totals, float(self.cases.max()))
        named = tuple(self.ids[i] for i in kept)
        return replace(
            self, ids=named, counts=self.counts[kept], known=self.known[kept], totals=totals
        )

    def of_all(self) -> list[str]:
        """The region with most cases, if the others add up to it, or do so once per level."""
        if len(self.ids) <= LEAST_PARTS:
            return []
        biggest = int(self.cases.argmax())
        others = self.counts.sum(axis=0) - self.counts[biggest]
        levels = range(1, MOST_LEVELS + 1)
        gaps = (~self.known).sum(axis=0)
        is_one = any(self._has(biggest, others / level, gaps) for level in levels)
        return [self.ids[biggest]] if is_one else []

    def of_some(self) -> list[str]:
        """Regions that are the sum of those whose ids begin with theirs, or of their neighbours."""
        found = [id for parts in self._begun() for id in self._level(parts)]
        return list(dict.fromkeys(found)) or self._of_neighbours()

    def _level(self, parts: Mapping[int, list[int]]) -> list[str]:
        """Regions that are sums of their parts, if at least one of them has several parts."""
        sums = {
            i: self._has(i, self.counts[inside].sum(axis=0), (~self.known[inside]).sum(axis=0))
            for i, inside in parts.items()
        }
        is_level = any(is_sum and len(parts[i]) > 1 for i, is_sum in sums.items())
        return [self.ids[i] for i, is_sum in sums.items() if is_sum and is_level]

    def _begun(self) -> Iterator[Mapping[int, list[int]]]:
        """For each two lengths of ids: the longer ids that begin with each shorter one."""
        words = {id: i for i, id in enumerate(self.ids) if id.isalnum()}
        for short_one, long_one in itertools.combinations(sorted({len(id) for id in words}), 2):
            parts: dict[int, list[int]] = {}
            for id, i in words.items():
                if len(id) == long_one and id[:short_one] in words:
                    parts.setdefault(words[id[:short_one]], []).append(i)
            yield parts

    def _of_neighbours(self) -> list[str]:
        """Regions that are the sum of several next below or above them in the table."""
        if self.counts.size > MOST_COUNTS or len(self.ids) <= LEAST_PARTS:
            return []
        cases = self.cases / np.maximum(self.known.mean(axis=1), 1 / self.known.shape[1])
        so_far = np.concatenate([[0.0], np.cumsum(cases)])
        above_all = np.zeros((1, self.counts.shape[1]))
        summed = np.concatenate([above_all, self.counts.cumsum(axis=0)])
        gaps = np.concatenate([above_all, (~self.known).cumsum(axis=0)])
        below = np.searchsorted(so_far, so_far[1:] + cases)
        above = np.searchsorted(so_far, so_far[:-1] - cases)
        last = len(self.ids)
        found = []
        for i, id in enumerate(self.ids):
            runs = [(i + 1, below[i] + near) for near in NEAR if i + 2 < below[i] + near <= last]
            runs += [(above[i] + near, i) for near in NEAR if 0 <= above[i] + near < i - 1]
            varied = runs and len(np.unique(self.counts[i])) >= LEAST_VALUES
            if varied and any(
                self._has(i, summed[end] - summed[start], gaps[end] - gaps[start])
                for start, end in runs
            ):
                found.append(id)
        return found

    def alike(self) -> list[str]:
        """Regions whose counts equal another's on every day, if that is unlikely by chance."""
        found: dict[bytes, list[str]] = {}
        for id, counts in zip(self.ids, self.counts, strict=True):
            if np.count_nonzero(counts) >= LEAST_SUMS and len(np.unique(counts)) > LEAST_VALUES:
                found.setdefault(counts.tobytes(), []).append(id)
        return [id for ids in found.values() if len(ids) > 1 for id in ids]

    def _has(self, i: int, parts: Floats, gaps: NDArray[Any]) -> bool:
        """Whether a region's counts are near the sum of some others, on nearly all days with cases.

        Days on which one of them has no count are used only if there are few others.
        """
        days = self.known[i] & ((self.counts[i] > 0) | (parts > 0))
        if (whole := days & (gaps == 0)).sum() >= LEAST_SUMS:
            days = whole
        one, parts = self.counts[i, days], parts[days]
        if len(one) < LEAST_SUMS or abs(one.sum() - parts.sum()) > NEARLY * max(parts.sum(), 1.0):
            return False
        apart = np.abs(one - parts) / np.maximum(one, parts)
        return bool(np.mean(apart <= NEARLY) >= ON_MOST and np.median(apart) <= NEARLY / 5)


REGULAR = 0.8
"""From this share of steps on, days count as a week (or a month) apart."""
SEVERAL = "several weeks"
LONGER = {"a month": (28, 31), "three months": (89, 92), "a year": (365, 366)}
"""Other steps, with their range in days."""
ONE_WEEKDAY, LEAST_WEEKS = 0.95, 5
"""From this share of all cases on one weekday, in this many weeks, days look like weeks."""
FEW_WEEKDAYS = 3
"""Rows on at most this many weekdays cover several days each."""
WEEKS_IN_A_ROW, WEEKS_OF_ONE = 4, 7
"""Steps of a week in a row, over all regions or in one, that are too many for gaps between days."""
FIRST_DAY_NAMES = re.compile(
    r"start|begin|first|monday|montag|\b(von|vom|ab|of|commencing|from|du|d[ée]but|inicio|inizio)\b"
)
"""Column names, in lower case, that suggest weeks dated by their first day."""
MONDAY = 1
"""As Polars counts weekdays."""
DAY_NAMES = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONDAYS = DAY_NAMES[0]
"""The `example` of the question whether weeks dated on Mondays begin or end on them."""


def of_one_cadence(state: Cleaning, *, weeks: bool) -> Cleaning:
    """Accept rows of days or weeks (`weeks`: the date format says so); refuse other steps."""
    found = state.said.cadence or ("week" if weeks else _step(state.frame))
    if found == "week":
        return _by_last_days(_one_weekday(state), numbered=weeks)
    if found == "day" and state.said.cadence is None and _weekday_alone(state.frame) is not None:
        raise AmbiguousTableError(
            f"{state.where}: found a row for every day, but cases on one day of the week alone, so "
            "they look like weekly counts; expected a row for every day or week",
            {"cadence": "week"},
            {"cadence": "day"},
        )
    if found == "day" and state.said.cadence is None:
        _refuse_mixed(state)
    if found == "day":
        if state.said.weeks_dated is not None:
            raise EpifedError(
                f"{state.where}: found days; expected weeks, of which weeks_dated says the day"
            )
        return state.now(state.frame, cadence="day")
    ways: list[dict[str, str]] = [{"cadence": "day"}]
    if found == SEVERAL:
        ways.insert(0, {"cadence": "week"})
    raise AmbiguousTableError(
        f"{state.where}: found days about {found} apart; expected a row for every day or week",
        *ways,
    )


def _weekday_alone(frame: pl.DataFrame) -> int | None:
    """The weekday with nearly all cases where rows have every weekday; None if there is none."""
    by_day = (
        frame.group_by(pl.col("day").dt.weekday().alias("weekday"))
        .agg(pl.col("cases").sum(), weeks=pl.col("day").filter(pl.col("cases") > 0).n_unique())
        .sort("cases")
    )
    if by_day.height < WEEK or not by_day["cases"].sum():
        return None
    _, cases, weeks = by_day.row(-1)
    enough = cases >= ONE_WEEKDAY * float(by_day["cases"].sum()) and weeks >= LEAST_WEEKS
    return int(by_day["weekday"][-1]) if enough else None


def _one_weekday(state: Cleaning) -> Cleaning:
    """Drop rows of other weekdays without cases from a table of days that holds weeks."""
    alone = _weekday_alone(state.frame)
    others = state.frame.filter(pl.col("day").dt.weekday() != alone) if alone else state.frame[:0]
    if others.is_empty() or others["cases"].sum() != 0:
        return state
    kept = state.frame.filter(pl.col("day").dt.weekday() == alone)
    return state.now(
        kept,
        f"{counted(len(others), 'row')} without a case between the weeks {was(len(others))} left "
        "out",
    )


def _by_last_days(state: Cleaning, *, numbered: bool) -> Cleaning:
    """Date weeks by their last day: as they are, or six days later if dated by their first."""
    dated, column = state.said.weeks_dated, state.columns["day"]
    if numbered or dated == "last":
        note = "a row is a week, which goes by its last day"
        return state.now(
            state.frame, note, cadence="week", **({"weeks_dated": dated} if dated else {})
        )
    if dated == "first":
        note = "a row is a week, dated by its first day; it goes by its last, six days later"
        later = state.frame.with_columns(pl.col("day").dt.offset_by(f"{WEEK - 1}d"))
        return state.now(later, note, cadence="week", weeks_dated="first")
    begins = bool((state.frame["day"].dt.weekday() == MONDAY).all())
    if FIRST_DAY_NAMES.search(column.casefold()) or begins:
        what = "weeks that may be dated by their first day"
        what = "weeks dated on a Monday, which may be their first day" if begins else what
        raise AmbiguousTableError(
            f"{state.where}: column {short(column)}: found {what}; expected that day to be given",
            {"weeks_dated": "first"},
            {"weeks_dated": "last"},
            example=MONDAYS if begins else "",
        )
    ends = DAY_NAMES[state.frame["day"][0].weekday()]
    note = (
        f"a row is a week, taken as ending on the {ends} that it is dated (--weeks-dated first if "
        "that is its first day)"
    )
    return state.now(state.frame, note, cadence="week")


def _step(frame: pl.DataFrame) -> str:
    """The usual step between a region's days: a day, unless nearly all are weeks, months, …."""
    counted = frame.filter(pl.col("cases").is_not_null())
    days = counted.select(pl.col("day").diff().dt.total_days().filter(SAME_REGION))
    steps = days.to_series().to_numpy()
    if len(steps) < LEAST_STEPS:
        return "day"
    if np.mean(steps % WEEK == 0) >= REGULAR:
        return "week" if np.mean(steps > WEEK) < 1 / 2 else SEVERAL
    for name, (least, most) in LONGER.items():
        if np.mean((steps >= least) & (steps <= most)) >= REGULAR:
            return name
    usual = int(np.bincount(steps).argmax())
    if usual > 1 and np.mean(steps == usual) >= REGULAR:
        return f"{usual} days"
    return f"{WEEK / 2:g} days" if _weekdays(counted) <= FEW_WEEKDAYS else "day"


def _weekdays(counted: pl.DataFrame) -> int:
    """The number of weekdays that have rows; 7 if there are few weeks."""
    days = counted["day"].unique()
    few = len(days) < LEAST_WEEKS * FEW_WEEKDAYS
    return WEEK if few else days.dt.weekday().n_unique()


def _refuse_mixed(state: Cleaning) -> None:
    """Refuse a mix of rows a day apart and of several rows in a row a week apart."""
    counted = state.frame.filter(pl.col("cases").is_not_null())
    every = counted.select("day").unique().sort("day").with_columns(region=pl.lit(""))
    for frame, least in ((every, WEEKS_IN_A_ROW), (counted, WEEKS_OF_ONE)):
        step = pl.col("day").diff().dt.total_days()
        steps = frame.select("region", "day", weekly=(step == WEEK) & SAME_REGION)
        if (steps["weekly"].sum() or 0) < least:
            continue
        runs = (
            steps.with_columns(run=pl.col("weekly").rle_id())
            .filter("weekly")
            .group_by("run")
            .agg(pl.len(), pl.col("day").min(), pl.col("region").first())
        )
        long = runs.filter(pl.col("len") >= least).sort("day", "region")
        if len(long):
            whose = f" of region {short(long['region'][0])}" if long["region"][0] else ""
            raise EpifedError(
                f"{state.where}: column {short(state.columns['day'])}: found rows{whose} that are "
                f"a week apart from {long['day'][0] - timedelta(days=WEEK)} on, and others that "
                "are days; expected days alone, or weeks alone (--cadence day takes all as days)"
            )


@dataclass(frozen=True)
class Tidy:
    """A clean table with one row per region and day or week, and every assumption behind it."""

    where: str
    frame: pl.DataFrame
    """day, region, cases (null: no report), the regions' facts if there are some, and `row`."""
    columns: dict[str, str]
    read_as: dict[str, Any]
    notes: tuple[str, ...]
    sums_dropped: tuple[str, ...]
    """Regions that were left out because their counts are sums of others."""

    @property
    def step(self) -> Step:
        """The step that a row counts: day or week."""
        return "week" if self.read_as["cadence"] == "week" else "day"

    def facts(self) -> Facts:
        """The facts of the regions beside the cases."""
        said = Assumptions(**{key: self.read_as.get(key) for key in ("decimal", "thousands")})
        return region_facts(self.where, self.frame, self.columns, said)


def read_tidy(table: Path | str | Table, **options: Any) -> CasePanel:
    """Read the panel of a table in a file or a DataFrame; options are those of `Assumptions`.

    The columns `population`, `calendar` (of public holidays: DE, or DE-BY), `longitude` and
    `latitude` are used if present. An empty count is a missing report.
    """
    return to_panel(load_tidy(table, **options))


def load_tidy(table: Path | str | Table, **options: Any) -> Tidy:
    """The clean table in a file or a DataFrame; options are those of `Assumptions`."""
    table = Path(table) if isinstance(table, str) else table
    said = Assumptions.of(options, str(table) if isinstance(table, Path) else IN_MEMORY)
    raw = open_tidy(table, said)
    tidy, people = cleaned(raw, said), said.population_from
    if people is None:
        return tidy
    if people in raw.other_sheets and isinstance(table, Path):
        return with_inhabitants(tidy, table, Assumptions(sheet=people))
    if not Path(people).is_file():
        expected = "a file"
        if raw.other_sheets:
            expected = f"a file, or one of the sheets {listed(raw.other_sheets)}"
        raise EpifedError(f"population_from: found '{short(people)}'; expected {expected}")
    return with_inhabitants(tidy, Path(people), Assumptions())


def with_inhabitants(tidy: Tidy, path: Path, sheet: Assumptions) -> Tidy:
    """The table with the inhabitants that another file, or another sheet, has of each region."""
    table = open_inhabitants(path, sheet)
    regions = tidy.frame["region"].unique().to_list()
    people, column, left_out = read_inhabitants(table, regions, tidy.facts().names or {})
    source = sheet.sheet or path.name
    note = f"the inhabitants are those of {short(column)} in {short(source)}"
    if left_out:
        note += f"; without cases, so not used: {listed(left_out)}"
    counts = pl.col("region").replace_strict(people, return_dtype=pl.Int64)
    return replace(
        tidy,
        frame=tidy.frame.with_columns(population=counts),
        columns=tidy.columns | {"population": f"({source}: {column})"},
        notes=(*tidy.notes, note),
        read_as=tidy.read_as | {"population_from": source},
    )


def open_inhabitants(path: Path, sheet: Assumptions) -> RawTable:
    """Open a table of inhabitants, below a title if there is one."""
    wanted = (*USUAL["population"], *USUAL["region"])
    try:
        return open_table(path, sheet, wanted)
    except AmbiguousTableError as error:
        row = error.choices[0].get("header_row")
        if row is None:
            raise
        return open_table(path, replace(sheet, header_row=row), wanted)


def open_tidy(table: Path | Content | Table, said: Assumptions) -> RawTable:
    """Open a table unchanged; the expected column names help to choose its delimiter."""
    return open_table(table, said, wanted_names(said))


def cleaned(table: RawTable, said: Assumptions) -> Tidy:
    """Lay out a table as a long one and clean it."""
    long = without_total_kinds(table, lay_long(table, said), said)
    refuse_rows(table, long.frame, long.columns, said)
    try:
        tidy = clean_rows(table.where, long.frame, long.columns, said)
    except AmbiguousTableError as error:
        if "duplicates" not in error.choices[0]:
            raise
        raise of_one_kind(table, long.columns, error) from None
    read_as = table.found | {"layout": long.layout} | {
        key: name for key, name in long.columns.items() if not name.startswith("(")
    }  # fmt: skip
    return replace(tidy, read_as=read_as | tidy.read_as, notes=long.notes + tidy.notes)


def entered(path: Path, entry: str, said: Assumptions) -> pl.DataFrame:
    """The rows of a list of cases, read as the file is, and the day on which each was entered.

    The columns: row, as_of (the day of entry), reported, region, cases.
    """
    table = open_tidy(path, said)
    long = lay_long(table, said)
    state, *_ = _read_rows(table.where, long.frame, long.columns, said)
    days = table.pick({"day": entry})
    if days["row"].is_duplicated().any():
        raise EpifedError(
            f"{table.where}: found several sheets or files; expected one, if a column has the day "
            "of entry"
        )
    days = days.join(state.frame.select("row"), on="row", how="semi")
    as_of = entry_days(table.where, days, entry, said.date_format).rename({"day": "as_of"})
    rows = state.frame.rename({"day": "reported"}).join(as_of, on="row", maintain_order="left")
    return rows.select("row", "as_of", "reported", "region", "cases")


def entry_days(
    where: str, frame: pl.DataFrame, column: str, format: str | None = None
) -> pl.DataFrame:
    """The days of entry in the column `day`, without the time of the day."""
    try:
        return parse_days(where, frame, column).frame
    except AmbiguousTableError as error:
        ways = [str(way.get("date_format")) for way in error.choices]
        timed = [way for way in ways if way.removesuffix(TIMED) == format or len(ways) == 1]
        return parse_days(where, frame, column, timed[0] if timed else format).frame


def _read_rows(
    where: str, frame: pl.DataFrame, columns: dict[str, str], said: Assumptions
) -> tuple[Cleaning, Days, pl.DataFrame]:
    """Read the ids, days and counts of a long table; also return its rows in their order."""
    state = without_totals(Cleaning(where, some(where, frame), columns, said, {}))
    state = filled_down(table_alone(state))
    rows = parse_regions(where, state.frame, columns["region"], said.id_width)
    days = parse_days(where, rows, columns["day"], said.date_format)
    days, later = _until(days, said)
    counts = parse_counts(where, days.frame, columns["cases"], said)
    if later:
        state = state.now(counts.frame, later, until=said.until)
    for note in counts.notes:
        state = state.now(counts.frame, note)
    if days.format not in (None, ISO):
        state = state.now(counts.frame, f"days are written as {days.format}")
    state = state.now(counts.frame, **({"date_format": days.format} if days.format else {}))
    return state, days, rows


def clean_rows(where: str, frame: pl.DataFrame, columns: dict[str, str], said: Assumptions) -> Tidy:
    """Clean the rows of a long table: ids, days and counts first, then rules over several rows."""
    state, days, rows = _read_rows(where, frame, columns, said)
    state = without_leaps(summed(of_one_spelling(state)))
    state = of_one_cadence(state, weeks=(days.format or "").endswith((*WEEKLY, WEEK_LONG)))
    order = rows.sort("row", maintain_order=True)["region"].unique(maintain_order=True)
    state = without_sums(without_negatives(as_new(state)), order.to_list())
    if state.frame["cases"].is_null().all():
        raise EpifedError(
            f"{where}: column {columns['cases']}: found only empty cells; expected counts"
        )
    used = {
        name: value
        for name in ("decimal", "thousands", "missing", "below", "id_width", "line_list")
        if (value := getattr(said, name)) is not None
    }
    return Tidy(where, state.frame, columns, state.found | used, state.notes, state.sums_dropped)


def _until(days: Days, said: Assumptions) -> tuple[Days, str]:
    """Leave out the rows after the last day to read, with a note."""
    if said.until is None:
        return days, ""
    kept = days.frame.filter(pl.col("day") <= day_of("until", said.until))
    after = len(days.frame) - len(kept)
    if not len(kept):
        raise EpifedError(f"until: found no row up to {said.until}; expected some")
    note = f"{counted(after, 'row')} after {said.until} {was(after)} left out" if after else ""
    return replace(days, frame=kept), note


def day_of(name: str, word: str) -> date:
    """The day that an option gives.

    >>> day_of("until", "2026-01-31")
    datetime.date(2026, 1, 31)
    """
    try:
        return date.fromisoformat(word)
    except ValueError:
        raise EpifedError(
            f"{name}: found '{short(word)}'; expected a day such as 2026-01-31"
        ) from None


def to_panel(tidy: Tidy) -> CasePanel:
    """The panel of a clean table, of days or of weeks.

    A day without a row has no case in a line list, and no report in a table of counts.
    """
    reported = tidy.frame.drop_nulls("cases")
    empty = len(tidy.frame) - len(reported)
    notes = (
        (f"{counted(empty, 'row')} had no count and {was(empty)} taken as missing",)
        if empty
        else ()
    )
    panel = CasePanel.from_long(
        reported.select("day", "region", "cases"),
        source=tidy.where,
        regions=sorted(tidy.frame["region"].unique()),
        **vars(tidy.facts()),
        notes=(*tidy.notes, *notes),
        step=tidy.step,
        sums_dropped=tidy.sums_dropped,
    )
    panel = replace(panel, filled_down=bool(tidy.read_as.get("fill_down")))
    return replace(panel, reported=None) if tidy.read_as.get("line_list") else panel
