"""Days, weeks and public holidays.

Hubs count epidemiological weeks, Sunday to Saturday or Monday to Sunday, from their own reference
day. A holiday calendar has the code of a country (`DE`) or of a part of it (`DE-BY`), as in ISO
3166-2. The empty code has no holidays.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from typing import Literal

import holidays
import numpy as np
from numpy.typing import NDArray

from epifed.errors import EpifedError

WEEK = 7
"""Days in a week: counts are averaged over a week, and weekdays repeat after it."""

Step = Literal["day", "week"]
"""The unit of a panel's column: a day, or the week that ends on a day or is dated by it."""
DAYS_OF: dict[Step, int] = {"day": 1, "week": WEEK}
"""Days of a step."""

USUAL_WINDOW: dict[Step, int] = {"day": 10, "week": 4}
USUAL_HORIZON: dict[Step, int] = {"day": WEEK, "week": 1}
"""Default window H and horizon P, in steps."""

Day = date | str
"""A calendar day: a `date`, or its text YYYY-MM-DD."""


def to_day(day: Day, where: str = "day") -> date:
    """The calendar day of a date or text; `where` begins the error message for other values.

    >>> to_day("2020-11-01")
    datetime.date(2020, 11, 1)
    """
    if isinstance(day, datetime):
        if day.time() == time():
            return day.date()
    elif isinstance(day, date):
        return day
    elif isinstance(day, str):
        try:
            parsed = date.fromisoformat(day)
        except ValueError:
            parsed = None
        if parsed is not None and parsed.isoformat() == day:
            return parsed
    raise EpifedError(f"{where}: found '{day}'; expected a date, or its text YYYY-MM-DD")


def refuse_apart(source: str, days: Sequence[date]) -> None:
    """Refuse dates of weeks that are not whole weeks apart."""
    for day in days:
        if (day - days[0]).days % WEEK:
            raise EpifedError(
                f"{source}: found weeks dated {days[0]} and {day}; expected all of them whole "
                "weeks apart (--cadence day if these are days after all)"
            )


WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def to_weekday(name: str, where: str) -> int:
    """The number of a weekday, Monday 0; `where` begins the error message for other names.

    >>> to_weekday("Saturday", "--week-ends")
    5
    """
    if name.lower() not in WEEKDAYS:
        raise EpifedError(f"{where}: found '{name}'; expected one of {', '.join(WEEKDAYS)}")
    return WEEKDAYS.index(name.lower())


@dataclass(frozen=True)
class Weeks:
    """Weeks that end on one weekday, counted from a reference date.

    >>> german = Weeks(ends=5, reference=0)  # Sunday to Saturday, from a Monday
    >>> german.end(date(2020, 10, 12), 1)
    datetime.date(2020, 10, 17)
    >>> flu = Weeks(ends=5, reference=5)  # from the Saturday that ends the running week
    >>> flu.end(flu.reference_date(date(2023, 10, 11)), 0)
    datetime.date(2023, 10, 14)
    """

    ends: int
    reference: int | None = None
    """The weekday of reference dates; none: the day on which a forecast is made."""

    def reference_date(self, made: date) -> date:
        """The reference date of a forecast made on a day: that day or the next such weekday."""
        wait = 0 if self.reference is None else (self.reference - made.weekday()) % WEEK
        return made + timedelta(days=wait)

    def end(self, reference_date: date, ahead: int) -> date:
        """The last day of a week; week 0 is the last one that ends by the reference date."""
        since = (reference_date.weekday() - self.ends) % WEEK
        return reference_date + timedelta(days=WEEK * ahead - since)


Bools = NDArray[np.bool_]
Index = NDArray[np.int64]

USUAL, FIRST_OFF, FURTHER_OFF, FIRST_BACK, SECOND_BACK, THIRD_BACK, LONG_WEEKEND = range(7)
"""Kinds of days: usual; a holiday after a working day; a holiday, or the weekend's first day,
after a day off; the first, second and third working day after a holiday; a weekend after one."""
KINDS = 7

GERMAN_STATES = {
    "01": "SH", "02": "HH", "03": "NI", "04": "HB", "05": "NW", "06": "HE", "07": "RP", "08": "BW",
    "09": "BY", "10": "SL", "11": "BE", "12": "BB", "13": "MV", "14": "SN", "15": "ST", "16": "TH",
}  # fmt: skip
"""The federal states by the first two digits of a German regional key."""


def german_calendars(keys: Iterable[str]) -> dict[str, str]:
    """The calendars of German regions by their keys; other keys are left out."""
    return {key: f"DE-{GERMAN_STATES[key[:2]]}" for key in keys if key[:2] in GERMAN_STATES}


def refuse_unknown(code: str) -> None:
    """Refuse a code that no calendar has."""
    _calendar(code, 2020)


def is_calendar(code: str) -> bool:
    """Whether a calendar has this code."""
    try:
        refuse_unknown(code)
    except EpifedError:
        return False
    return True


def closed(code: str, first: date, days: int) -> tuple[Bools, tuple[int, ...]]:
    """Which of so many days are holidays, weekends not counted, and the weekdays of the weekend.

    The last days of the year, when offices are closed, count as holidays where Christmas does.
    """
    off = np.zeros(days, dtype=np.bool_)
    if not code:
        return off, (5, 6)
    for year in range(first.year, (first + timedelta(days=days - 1)).year + 1):
        for day in _calendar(code, year)[0]:
            at = (day - first).days
            if 0 <= at < days:
                off[at] = True
    return off, _calendar(code, first.year)[1]


def day_kinds(code: str, first: date, days: int) -> tuple[Index, Index]:
    """For each of so many days its kind, and the weekday that its reports resemble.

    A holiday after a working day resembles the weekend's first day, one after a day off the
    weekend's last. The first working day after it resembles the first of a usual week.
    """
    last = first + timedelta(days=days - 1)
    years = [_year_kinds(code, year) for year in range(first.year, last.year + 1)]
    skipped = (first - date(first.year, 1, 1)).days
    kind, like = (
        np.concatenate(part)[skipped : skipped + days] for part in zip(*years, strict=True)
    )
    return kind, like


def days_off_within(calendars: Sequence[str], last: date, days: int) -> Bools:
    """Whether each region had a public holiday on one of the last so many days."""
    first = last - timedelta(days=days - 1)
    off = {
        code: bool(np.isin(day_kinds(code, first, days)[0], (FIRST_OFF, FURTHER_OFF)).any())
        for code in set(calendars)
    }
    return np.array([off[code] for code in calendars], dtype=np.bool_)


@lru_cache(maxsize=4096)
def _year_kinds(code: str, year: int) -> tuple[Index, Index]:
    """The kind of each day of a year, and the weekday that it resembles."""
    # One more week at the start, because the first days may follow a holiday.
    first = date(year, 1, 1) - timedelta(days=WEEK)
    days = (date(year + 1, 1, 1) - first).days
    holiday, weekend = closed(code, first, days)
    weekday = (np.arange(days) + first.weekday()) % WEEK
    at_weekend = np.isin(weekday, weekend)
    off = holiday | at_weekend
    before = np.concatenate([[False], off[:-1]])
    like = weekday.copy()
    like[off & ~before], like[off & before] = weekend[0], weekend[-1]
    like[weekday == weekend[-1]] = weekend[-1]
    like[~off & before] = (weekend[-1] + 1) % WEEK
    kind = np.zeros(days, dtype=np.int64)
    worked = WEEK
    for day in range(days):
        if off[day]:
            if like[day] != weekday[day]:
                kind[day] = FURTHER_OFF if before[day] else FIRST_OFF
            elif worked == 0:
                kind[day] = LONG_WEEKEND
        else:
            worked += 1
            if worked <= 3:
                kind[day] = FIRST_BACK + worked - 1
        if holiday[day] and not at_weekend[day]:
            worked = 0
    return kind[WEEK:], like[WEEK:]


@lru_cache(maxsize=4096)
def _calendar(code: str, year: int) -> tuple[frozenset[date], tuple[int, ...]]:
    country, _, part = code.partition("-")
    try:
        calendar = holidays.country_holidays(country, subdiv=part or None, years=year)
    except NotImplementedError:
        raise EpifedError(
            f"holidays: found '{code}'; expected a code such as DE or DE-BY, or 'none'"
        ) from None
    eves = {date(year, 12, 24), date(year, 12, 31)} if date(year, 12, 25) in calendar else set()
    return frozenset(calendar) | eves, tuple(sorted(calendar.weekend))
