"""What a row counts: a day or a week, by how far apart rows are; anything else is refused."""

import re
from datetime import timedelta

import numpy as np
import polars as pl

from epifed.days import WEEK
from epifed.errors import EpifedError
from epifed.reading import UnsaidError, short
from epifed.sources.clean import LEAST_STEPS, SAME_REGION, Cleaning
from epifed.words import counted, was

REGULAR = 0.8
"""From this share of steps on, days are a week (or a month) apart."""
SEVERAL = "several weeks"
LONGER = {"a month": (28, 31), "three months": (89, 92), "a year": (365, 366)}
"""Other steps, in days."""
ONE_WEEKDAY, LEAST_WEEKS = 0.95, 5
"""From this share of all cases on one weekday, in so many weeks, days look like weeks."""
FEW_WEEKDAYS = 3
"""Rows on no more weekdays than this are of several days each."""
WEEKS_IN_A_ROW, WEEKS_OF_ONE = 4, 7
"""Steps of a week, one after another, of all regions or of one, that are no gaps between days."""
FIRST_DAY_NAMES = re.compile(r"start|begin|first|monday|montag|von\b")
"""Names of a column of weeks that is of their first days, in small letters."""
DAY_NAMES = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def of_one_cadence(state: Cleaning, *, weeks: bool) -> Cleaning:
    """Rows of days, or of weeks where that was said; others are refused. `weeks`: by format."""
    found = state.said.cadence or ("week" if weeks else _step(state.frame))
    if found == "week":
        return _by_last_days(_one_weekday(state), numbered=weeks)
    if found == "day" and state.said.cadence is None and _weekday_alone(state.frame) is not None:
        raise UnsaidError(
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
    raise UnsaidError(
        f"{state.where}: found days about {found} apart; expected a row for every day or week",
        *ways,
    )


def _weekday_alone(frame: pl.DataFrame) -> int | None:
    """The weekday that nearly all cases are on, where there are rows of others too; else none."""
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
    """Weeks that stand in a table of days: the rows of the other weekdays, all without a case."""
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
    """Weeks by their last day: as they are dated, or six days later where that is the first."""
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
    if FIRST_DAY_NAMES.search(column.casefold()):
        raise UnsaidError(
            f"{state.where}: column {short(column)}: found weeks that may be dated by their first "
            "day; expected it said which day it is",
            {"weeks_dated": "first"},
            {"weeks_dated": "last"},
        )
    ends = DAY_NAMES[state.frame["day"][0].weekday()]
    note = (
        f"a row is a week, taken as ending on the {ends} that it is dated (--weeks-dated first if "
        "that is its first day)"
    )
    return state.now(state.frame, note, cadence="week")


def _step(frame: pl.DataFrame) -> str:
    """How far apart the days of a region are: a day, unless nearly all are weeks, months, …."""
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
    """On how many weekdays there are rows; all, where there are few weeks."""
    days = counted["day"].unique()
    few = len(days) < LEAST_WEEKS * FEW_WEEKDAYS
    return WEEK if few else days.dt.weekday().n_unique()


def _refuse_mixed(state: Cleaning) -> None:
    """Refuse rows of which some are a day apart and others, one after another, a week."""
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
