"""Days, as a caller may give them: a `date`, or its text YYYY-MM-DD."""

from datetime import date, datetime, time

from epifed.errors import EpifedError

WEEK = 7
"""Days of a week, over which counts are averaged and after which weekdays are alike."""

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
