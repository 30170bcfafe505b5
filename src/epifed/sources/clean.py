"""From a long table to daily new cases: totals, sums, differences, corrections, all of it said."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from epifed.days import WEEK
from epifed.errors import EpifedError
from epifed.reading import Assumptions, UnsaidError, listed, short

TOTALS = (
    "total", "totals", "grand total", "all", "alle", "sum", "summe", "gesamt", "gesamtsumme",
    "insgesamt", "gesamtergebnis", "overall", "national", "nation", "ensemble", "totale",
)  # fmt: skip
"""Names of rows that sum up others, in small letters."""
LEAST_STEPS, LEAST_RISES = 3, 10
REGULAR = 0.8
"""From this share of steps on, days are a week (or a month) apart."""
FALLS_PER_RISE = 0.05
"""New cases fall about as often as they rise; accumulated ones hardly ever."""
ROLLING_WEEKS = 4
"""Weeks of rolling sums in which it must be possible to say what the days were."""
LEAST_STRETCHES, POSSIBLE = 20, 0.9
"""Stretches of so many weeks to judge by, and the share in which it is possible."""
LEAVING = -0.2
"""In a rolling sum a case leaves a week after it came, so sudden changes a week apart have a
correlation of about -0.5; those of days have one of about 0, or above it."""
LEAST_SUMS = 7
"""Days on which a region must be the sum of all others to be taken for their total."""


_SAME_REGION = (pl.col("region") == pl.col("region").shift()).fill_null(value=False)
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


def without_totals(state: Cleaning) -> Cleaning:
    """Without the rows whose region, or day, is the word for a total."""
    found = {
        key: words.filter(words.str.to_lowercase().str.strip_chars(" :.").is_in(TOTALS))
        for key in ("day", "region")
        if state.frame.schema[key] == pl.String
        for words in [state.frame[key].unique().drop_nulls()]
    }
    if not any(len(words) for words in found.values()):
        return state
    totals = (pl.col(key).is_in(words.implode()) for key, words in found.items())
    return _drop_totals(state, state.frame.filter(pl.any_horizontal(totals)))


def _drop_totals(state: Cleaning, totals: pl.DataFrame) -> Cleaning:
    if totals.is_empty() or state.said.totals == "keep":
        return state
    named = totals.select("row", name=pl.coalesce("region", pl.col("day").cast(pl.String)))
    what = listed(named["name"].unique().sort().to_list())
    if state.said.totals != "drop":
        raise UnsaidError(
            f"{state.where}: row {min(totals['row'])}: found {what}, which looks like a total of "
            "the other rows; expected regions alone",
            {"totals": "drop"},
            {"totals": "keep"},
        )
    kept = state.frame.join(totals.select("row", "region"), on=["row", "region"], how="anti",
                            nulls_equal=True)  # fmt: skip
    if kept.is_empty():
        raise EpifedError(f"{state.where}: found totals alone; expected regions")
    return state.now(kept, f"{len(totals):,} rows of totals were dropped: {what}", totals="drop")


def without_sum_of_all(state: Cleaning) -> Cleaning:
    """Without a region that is the sum of all others on every day, whatever it is called."""
    if state.said.totals == "keep":
        return state
    by_region = state.frame.group_by("region").agg(pl.col("cases").sum())["cases"]
    if not (2 * by_region == by_region.sum()).any():
        return state
    days = pl.col("cases").sum().over("day")
    sums = (
        state.frame.with_columns(all=days)
        .group_by("region")
        .agg(
            same=(2 * pl.col("cases") == pl.col("all")).all(),
            days=(pl.col("cases") > 0).sum(),
        )
    )
    total = sums.filter("same", pl.col("days") >= LEAST_SUMS)["region"].to_list()
    if len(total) != 1 or sums.height < 4:
        return state
    return _drop_totals(state, state.frame.filter(region=total[0]))


def summed(state: Cleaning) -> Cleaning:
    """One row for each region and day, in order: several are refused, or summed."""
    frame = state.frame.sort("region", "day")
    if not frame.select((_SAME_REGION & (pl.col("day").diff().dt.total_days() == 0)).any()).item():
        return state.now(frame)
    if state.said.duplicates != "sum" and not state.said.line_list:
        columns = f"{short(state.columns['region'])} and {short(state.columns['day'])}"
        sentence = twice(state.where, frame, columns)
        assert sentence is not None
        raise UnsaidError(sentence, {"duplicates": "sum"})
    others = [name for name in frame.columns if name not in ("row", "region", "day", "cases")]
    merged = frame.group_by("region", "day").agg(
        pl.col("row").min(),
        pl.when(pl.col("cases").count() > 0).then(pl.col("cases").sum()).alias("cases"),
        *(pl.col(name).drop_nulls().first() for name in others),
    )
    note = f"{len(frame):,} rows were summed to {len(merged):,} of one region and day each"
    return state.now(merged.sort("region", "day"), note, duplicates="sum")


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


def of_one_cadence(state: Cleaning, *, weeks: bool) -> Cleaning:
    """Rows of days, or of weeks where that was said; others are refused. `weeks`: by format."""
    if state.said.cadence is not None:
        return state.now(state.frame, cadence=state.said.cadence)
    found = "week" if weeks else _step(state.frame)
    if found == "day":
        return state.now(state.frame, cadence="day")
    if found == "week":
        note = "a row is a week, which goes by its last day or the day it is dated"
        return state.now(state.frame, note, cadence="week")
    ways: list[dict[str, str]] = [{"cadence": "day"}]
    if found != "a month":
        ways.insert(0, {"cadence": "week"})
    raise UnsaidError(
        f"{state.where}: found days about {found} apart; expected a row for every day or week",
        *ways,
    )


def _step(frame: pl.DataFrame) -> str:
    """How far apart the days of a region are: a day, unless nearly all are weeks or months."""
    counted = frame.filter(pl.col("cases").is_not_null())
    days = counted.select(pl.col("day").diff().dt.total_days().filter(_SAME_REGION))
    steps = days.to_series().to_numpy()
    if len(steps) < LEAST_STEPS:
        return "day"
    if np.mean(steps % WEEK == 0) >= REGULAR:
        return "week" if np.mean(steps > WEEK) < 1 / 2 else "several weeks"
    return "a month" if np.mean((steps >= 28) & (steps <= 31)) >= REGULAR else "day"


def as_new(state: Cleaning) -> Cleaning:
    """New cases: accumulated ones are refused unless said, and then become differences."""
    if state.said.counts == "new":
        return state.now(state.frame, counts="new")
    known = state.frame.filter(pl.col("cases").is_not_null())
    if state.said.counts is None:
        steps = known.select(pl.col("cases").diff().filter(_SAME_REGION))["cases"]
        rises, falls = int((steps > 0).sum()), int((steps < 0).sum())
        possible = not (known["cases"] < 0).any()
        if possible and rises >= LEAST_RISES and falls <= FALLS_PER_RISE * rises:
            raise UnsaidError(
                f"{state.where}: column {short(state.columns['cases'])}: found counts that rise "
                f"{rises:,} times and fall {falls:,} times, so they look accumulated; expected "
                "new cases",
                {"counts": "cumulative"},
                {"counts": "new"},
            )
        if state.found.get("cadence") == "day" and _rolling(known):
            raise UnsaidError(
                f"{state.where}: column {short(state.columns['cases'])}: found counts that look "
                "like sums or averages of the last seven days; expected the new cases of each day",
                {"counts": "new"},
            )
        return state.now(state.frame, counts="new")
    daily = known.with_columns(pl.col("cases").diff()).filter(_SAME_REGION)
    if daily.is_empty():
        raise EpifedError(
            f"{state.where}: found one day for each region; expected at least two, because the "
            "counts are accumulated"
        )
    note = (
        "differences of accumulated counts, on the later day where days are missing; a region's "
        "first day has none before it and is left out"
    )
    return state.now(daily, note, counts="cumulative")


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
    what = f"{len(negative):,} negative counts in {regions:,} regions (−{taken:,.6g} cases in all)"
    if state.said.negatives == "zero":
        zeroed = state.frame.with_columns(pl.col("cases").clip(lower_bound=0))
        return state.now(zeroed, f"{what} were set to zero", negatives="zero")
    if state.said.negatives != "spread":
        first = negative.sort("row").row(0, named=True)
        raise UnsaidError(
            f"{state.at(first['row'])}: found '{first['cases']:.12g}'; expected a number of at "
            f"least 0 (negative: {len(negative):,} counts, −{taken:,.6g} cases in all)",
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
    note = f"{what} were taken off the days before, in proportion to their counts"
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
