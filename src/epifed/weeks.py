"""How the weeks of a forecast are counted: when a week ends, and which day a forecast is of.

Hubs count epidemiological weeks, Sunday to Saturday or Monday to Sunday, from a reference day of
their own, whatever day a forecast was made on.
"""

from dataclasses import dataclass
from datetime import date, timedelta

from epifed.days import WEEK
from epifed.errors import EpifedError

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def to_weekday(name: str, where: str) -> int:
    """The number of a weekday, Monday 0; `where` begins the sentence that refuses what is none.

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
    """The weekday that forecasts are dated with; none: the day they are made."""

    def reference_date(self, made: date) -> date:
        """The reference date of a forecast that is made on a day: that day or the next such one."""
        wait = 0 if self.reference is None else (self.reference - made.weekday()) % WEEK
        return made + timedelta(days=wait)

    def end(self, reference_date: date, ahead: int) -> date:
        """The last day of a week; week 0 is the last one that ends by the reference date."""
        since = (reference_date.weekday() - self.ends) % WEEK
        return reference_date + timedelta(days=WEEK * ahead - since)
