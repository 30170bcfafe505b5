"""Public holidays: days on which fewer cases are reported, known in advance and free of charge.

How much fewer, each client learns from its own past holidays, so a calendar that does not fit the
data does little harm.
"""

from datetime import date, timedelta

import holidays
import numpy as np
from numpy.typing import NDArray

from epifed.days import WEEK
from epifed.errors import EpifedError

Floats = NDArray[np.float64]

USUAL = 0.8
"""Cases on a holiday relative to the same weekday, before a client has seen one."""
LEAST, MOST = 0.1, 1.2


def is_holiday(country: str, first: date, days: int) -> NDArray[np.bool_]:
    """Which of so many days are public holidays from Monday to Friday; none for country ''.

    The last days of the year, on which offices close, count as holidays where Christmas is one.
    """
    found = np.zeros(days, dtype=np.bool_)
    if not country:
        return found
    every = [first + timedelta(days=i) for i in range(days)]
    try:
        calendar = holidays.country_holidays(country, years={day.year for day in every})
    except NotImplementedError:
        raise EpifedError(
            f"holidays: found '{country}'; expected a country code such as DE, or nothing"
        ) from None
    for i, day in enumerate(every):
        eve = (day.month, day.day) in ((12, 24), (12, 31)) and date(day.year, 12, 25) in calendar
        found[i] = (day in calendar or eve) and day.weekday() < 5
    return found


def effect(counts: Floats, holiday: NDArray[np.bool_]) -> Floats:
    """Cases on a holiday relative to the same weekday a week before and after, for each client."""
    regions, days = counts.shape
    on, around = np.zeros(regions), np.zeros(regions)
    seen = 0
    for day in np.flatnonzero(holiday[: days - WEEK]):
        near = [d for d in (day - WEEK, day + WEEK) if d >= 0 and not holiday[d]]
        if near:
            on += counts[:, day]
            around += counts[:, near].mean(axis=1)
            seen += 1
    usual = around / max(seen, 1) + 1
    ratio: Floats = (on + USUAL * usual) / (around + usual)
    return np.clip(ratio, LEAST, MOST)


def taken_out(counts: Floats, country: str, first: date) -> Floats:
    """The counts as if their holidays had been usual days."""
    holiday = is_holiday(country, first, counts.shape[1])
    return np.where(holiday, counts / effect(counts, holiday)[:, None], counts)
