"""Public holidays of regions, and what kind of day follows from them."""

from datetime import date

import pytest

from epifed.data.calendar import (
    FIRST_BACK,
    FIRST_OFF,
    FURTHER_OFF,
    LONG_WEEKEND,
    SECOND_BACK,
    THIRD_BACK,
    USUAL,
    closed,
    day_kinds,
    days_off_within,
    german_calendars,
)
from epifed.errors import EpifedError

MONDAY, TUESDAY, WEDNESDAY, THURSDAY, FRIDAY, SATURDAY, SUNDAY = range(7)


def test_holidays_of_a_country_of_its_parts_and_of_none() -> None:
    country, weekend = closed("DE", date(2021, 4, 1), 6)
    assert country.tolist() == [False, True, False, False, True, False]
    assert weekend == (SATURDAY, SUNDAY)
    # Corpus Christi is a holiday in Bavaria, not in Berlin.
    assert closed("DE-BY", date(2021, 6, 3), 1)[0].all()
    assert not closed("DE-BE", date(2021, 6, 3), 1)[0].any()
    assert closed("US", date(2020, 11, 26), 1)[0].all()
    assert not closed("", date(2021, 4, 1), 30)[0].any()


def test_offices_close_on_the_last_days_of_a_year_where_christmas_is_a_holiday() -> None:
    assert closed("DE", date(2021, 12, 23), 10)[0].tolist() == [
        False, True, True, True, False, False, False, False, True, True,
    ]  # fmt: skip
    assert not closed("JP", date(2021, 12, 24), 2)[0].any()


@pytest.mark.parametrize("code", ["ATLANTIS", "DE-XX", "region"])
def test_an_unknown_calendar_is_refused(code: str) -> None:
    with pytest.raises(EpifedError, match=f"found '{code}'; expected a code such as DE or DE-BY"):
        closed(code, date(2021, 1, 1), 3)


def test_easter_is_a_long_weekend_and_the_days_after_it_catch_up() -> None:
    kind, like = day_kinds("DE", date(2021, 4, 1), 11)
    assert kind.tolist() == [
        USUAL, FIRST_OFF, FURTHER_OFF, LONG_WEEKEND, FURTHER_OFF, FIRST_BACK, SECOND_BACK,
        THIRD_BACK, USUAL, USUAL, USUAL,
    ]  # fmt: skip
    assert like.tolist() == [
        THURSDAY, SATURDAY, SUNDAY, SUNDAY, SUNDAY, MONDAY, WEDNESDAY, THURSDAY, FRIDAY, SATURDAY,
        SUNDAY,
    ]  # fmt: skip


def test_the_days_before_the_first_count_too() -> None:
    whole = day_kinds("DE", date(2021, 4, 1), 20)
    for skipped in range(10):
        later = day_kinds("DE", date(2021, 4, 1 + skipped), 20 - skipped)
        for one, other in zip(whole, later, strict=True):
            assert one[skipped:].tolist() == other.tolist()


def test_without_a_calendar_every_day_is_itself() -> None:
    kind, like = day_kinds("", date(2021, 4, 1), 14)
    assert not kind.any()
    assert like.tolist() == [(3 + day) % 7 for day in range(14)]


def test_a_weekend_after_a_holiday_on_friday_and_another_weekend() -> None:
    kind, like = day_kinds("DE", date(2021, 1, 1), 3)
    assert kind.tolist() == [FURTHER_OFF, FURTHER_OFF, LONG_WEEKEND]
    assert like.tolist() == [SUNDAY, SUNDAY, SUNDAY]
    # In Egypt the weekend is Friday and Saturday, and Sunday a usual working day.
    kind, like = day_kinds("EG", date(2021, 3, 3), 7)
    assert not kind.any()
    assert like.tolist() == [WEDNESDAY, THURSDAY, FRIDAY, SATURDAY, SUNDAY, MONDAY, TUESDAY]


def test_german_keys_tell_the_state() -> None:
    found = german_calendars(["09162", "11000000", "99999"])
    assert found == {"09162": "DE-BY", "11000000": "DE-BE"}


def test_who_had_a_holiday_of_late() -> None:
    calendars = ("DE-BY", "DE-BE", "", "DE-BY")  # Epiphany is one in Bavaria, not in Berlin
    assert days_off_within(calendars, date(2021, 1, 15), 10).tolist() == [True, False, False, True]
    assert not days_off_within(calendars, date(2021, 1, 16), 10).any()
    assert days_off_within(calendars, date(2021, 1, 1), 10).tolist() == [True, True, False, True]
