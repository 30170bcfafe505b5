"""Days, as a caller may give them: a `date`, or its text YYYY-MM-DD."""

from collections.abc import Sequence
from datetime import date, datetime, time
from typing import Literal

from epifed.errors import EpifedError

WEEK = 7
"""Days of a week, over which counts are averaged and after which weekdays are alike."""

Step = Literal["day", "week"]
"""What one column of a panel counts: a day, or the week that ends on, or is dated by, a day."""
DAYS_OF: dict[Step, int] = {"day": 1, "week": WEEK}
"""Days of a step."""

USUAL_WINDOW: dict[Step, int] = {"day": 10, "week": 4}
USUAL_HORIZON: dict[Step, int] = {"day": WEEK, "week": 1}
"""Window H and horizon P in steps, if nobody says otherwise."""

Day = date | str
"""A calendar day: a `date`, or its text YYYY-MM-DD."""


def to_day(day: Day, where: str = "day") -> date:
    """The calendar day; `where` begins the sentence that refuses what is none.

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
            found = date.fromisoformat(day)
        except ValueError:
            found = None
        if found is not None and found.isoformat() == day:
            return found
    raise EpifedError(f"{where}: found '{day}'; expected a date, or its text YYYY-MM-DD")


def refuse_apart(source: str, days: Sequence[date]) -> None:
    """Refuse days that weeks are dated by and that are not whole weeks apart."""
    for day in days:
        if (day - days[0]).days % WEEK:
            raise EpifedError(
                f"{source}: found weeks dated {days[0]} and {day}; expected all of them whole "
                "weeks apart (--cadence day if these are days after all)"
            )
