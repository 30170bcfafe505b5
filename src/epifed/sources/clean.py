"""From a long table to daily new cases: totals, sums, differences, corrections, all of it said."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from epifed.days import WEEK
from epifed.errors import EpifedError
from epifed.reading import Assumptions, UnsaidError, short
from epifed.words import counted, was

LEAST_STEPS, LEAST_RISES = 3, 10
FALLS_PER_RISE = 0.05
"""New cases fall about as often as they rise; accumulated ones hardly ever."""
YEARLY = "cumulative-yearly"
"""Accumulated counts that start anew with each year."""
ROLLING_WEEKS = 4
"""Weeks of rolling sums in which it must be possible to say what the days were."""
LEAST_STRETCHES, POSSIBLE = 20, 0.9
"""Stretches of so many weeks to judge by, and the share in which it is possible."""
LEAVING = -0.2
"""In a rolling sum a case leaves a week after it came, so sudden changes a week apart have a
correlation of about -0.5; those of days have one of about 0, or above it."""
MERGED = 0.2
"""From this share of empty regions on, cells look merged; fewer are forgotten."""
LONG_GAP, LONGEST_GAP = 62, 366
"""Days without any row that are said, and after which a later day is taken for a typing error."""


SAME_REGION = (pl.col("region") == pl.col("region").shift()).fill_null(value=False)
"""Whether the row before, in order of region and day, is of the same region."""


@dataclass(frozen=True)
class Cleaning:
    """A long table on its way: the rows, what was found of them, and what was done to them."""

    where: str
    frame: pl.DataFrame
    columns: dict[str, str]
    said: Assumptions
    found: dict[str, Any]
    notes: tuple[str, ...] = ()

    def now(self, frame: pl.DataFrame, note: str = "", **found: Any) -> Self:
        """The next state, with one more sentence if something was done."""
        notes = (*self.notes, note) if note else self.notes
        return replace(self, frame=frame, notes=notes, found=self.found | found)

    def at(self, row: int) -> str:
        """The place of a count, as a sentence begins with it."""
        return f"{self.where}: row {row}, column {short(self.columns['cases'])}"


def table_alone(state: Cleaning) -> Cleaning:
    """Without repeated headers and notes below the table, which hold no count; both are said."""
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
    whole = pl.col("day").is_not_null() & pl.col("region").is_not_null()
    holds = whole if state.said.line_list else whole | pl.col("cases").is_not_null()
    last = frame.filter(holds)["row"].max()
    below = frame[:0] if last is None else frame.filter(pl.col("row") > last)
    if len(below):
        text = below.select(pl.coalesce(pl.col("day", "region").cast(pl.String))).to_series()[0]
        frame = frame.filter(pl.col("row") <= last)
        notes.append(
            f"{counted(len(below), 'row')} below the table {was(len(below))} left out: "
            f"'{short(text)}'"
        )
    return replace(state, frame=frame, notes=(*state.notes, *notes))


def filled_down(state: Cleaning) -> Cleaning:
    """With the region and day of the row above where one is empty, if that was said."""
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
            raise UnsaidError(
                f"{state.where}: row {min(filled['row'])}, column "
                f"{short(state.columns['region'])}: found an empty cell ({len(filled):,} of them "
                "with a count); expected a region, or that it is the one above (merged cells)",
                {"fill_down": True},
            )
        return state
    full = state.frame.sort("row").with_columns(pl.col("region", "day").forward_fill())
    return state.now(full, f"{sum(gaps):,} empty cells have what stands above them", fill_down=True)


def summed(state: Cleaning) -> Cleaning:
    """One row for each region and day, in order: several are refused, or summed."""
    frame = state.frame.sort("region", "day")
    if not frame.select((SAME_REGION & (pl.col("day").diff().dt.total_days() == 0)).any()).item():
        return state.now(frame)
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
        raise UnsaidError(told, *[{"duplicates": "drop"}] * alike, {"duplicates": "sum"})
    others = [name for name in frame.columns if name not in ("row", "region", "day", "cases")]
    merged = frame.group_by("region", "day").agg(
        pl.col("row").min(),
        pl.when(pl.col("cases").count() > 0).then(pl.col("cases").sum()).alias("cases"),
        *(pl.col(name).drop_nulls().first() for name in others),
    )
    note = f"{counted(len(frame), 'row')} were summed to {len(merged):,} of one region and day each"
    return state.now(merged.sort("region", "day"), note, duplicates="sum")


def of_one_spelling(state: Cleaning) -> Cleaning:
    """Refuse regions that differ in capitals alone where no day has both: they are one."""
    names = (
        state.frame.select("region").unique().with_columns(key=pl.col("region").str.to_lowercase())
    )
    alike = names.filter(pl.col("key").is_duplicated())
    if alike.is_empty():
        return state
    rows = state.frame.join(alike, on="region").select("key", "day", "region").unique()
    both = rows.filter(pl.struct("key", "day").is_duplicated())["key"].unique()
    for key in alike.filter(~pl.col("key").is_in(both.implode()))["key"].sort()[:1]:
        one, other = alike.filter(key=key)["region"].sort()[:2]
        raise EpifedError(
            f"{state.where}: column {short(state.columns['region'])}: found '{short(one)}' and "
            f"'{short(other)}', and no day that has both; expected one spelling of a region"
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
    """What to say of the first second row of a region and day, if there is one."""
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
    """New cases: accumulated ones are refused unless said, and then become differences."""
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
            raise UnsaidError(
                f"{state.where}: column {short(state.columns['cases'])}: found counts that rise "
                f"{rises:,} times and fall {falls:,} times, so they look accumulated; expected "
                "new cases",
                {"counts": YEARLY if anew else "cumulative"},
                {"counts": "new"},
            )
        if state.found.get("cadence") == "day" and _rolling(known):
            raise UnsaidError(
                f"{state.where}: column {short(state.columns['cases'])}: found counts that look "
                "like sums or averages of the last seven days; expected the new cases of each day",
                {"counts": "new"},
            )
        return state.now(state.frame, counts="new")
    if state.said.counts == "cumulative" and anew:
        raise UnsaidError(
            f"{state.where}: column {short(state.columns['cases'])}: found accumulated counts that "
            "start anew with the year; expected that to be said",
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
    """Whether counts mostly fall by half or more where a year begins, and else do not."""
    enough = (pl.col("cases").shift() >= LEAST_RISES) & SAME_REGION
    halved = pl.col("cases") <= pl.col("cases").shift() / 2
    first = year != year.shift()
    shares = known.select(
        years=halved.filter(enough & first).mean(), days=halved.filter(enough & ~first).mean()
    ).row(0, named=True)
    return (shares["years"] or 0.0) > 1 / 2 and (shares["days"] or 0.0) <= FALLS_PER_RISE


def _rolling(known: pl.DataFrame) -> bool:
    """Whether counts look like sums, or averages, over the last seven days.

    A day is then the one a week before it and the change since the day before: no day may come out
    below zero, and none above what the first sum holds.
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
    """Counts of at least 0: negative ones are refused, spread back over days before, or zero."""
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
        raise UnsaidError(
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
    note = f"{what} {was(len(negative))} taken off the days before, in proportion to their counts"
    if left:
        note += f"; {left:,.6g} cases found no day to be taken off"
    return state.now(pl.concat([*parts, rest]), note, negatives="spread")


def spread_back(counts: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """Counts in order of time with each negative one taken off the days before; what was left.

    In proportion to their counts, over as few whole weeks back as hold twice as many cases, or
    all days; whole numbers stay whole.

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
    """Whole numbers that sum up to the total, each next to its share."""
    down = np.floor(shares)
    rest = round(total - down.sum())
    up = np.argsort(down - shares, kind="stable")[:rest]
    down[up] += 1
    return down
