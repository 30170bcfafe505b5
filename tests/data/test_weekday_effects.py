"""What a client learns of its own weeks and holidays, and what it makes of them."""

from datetime import date, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from epifed.data.calendar import WEEK
from epifed.data.weekday_effects import TRUST, weekday_effects

Floats = NDArray[np.float64]

WEEKS = 20
WEEKDAYS = np.array([0.8, 1.2, 1.3, 1.2, 1.1, 0.9, 0.5])
EASTER_MONDAY = date(2021, 4, 5)


def reports(last: date, level: float = 1000.0, weeks: int = WEEKS) -> Floats:
    """Counts of one client with a weekly cycle, and no holiday in it."""
    days = [last - timedelta(days=weeks * WEEK - 1 - i) for i in range(weeks * WEEK)]
    return level * np.array([[WEEKDAYS[day.weekday()] for day in days]])


def at(last: date, day: date) -> int:
    return day.toordinal() - last.toordinal() - 1


def test_without_holidays_nothing_is_changed() -> None:
    counts = np.random.default_rng(0).poisson(20, (3, 100)).astype(float)
    for calendars in ((), ("", "", "")):
        found = weekday_effects(counts, calendars, EASTER_MONDAY)
        np.testing.assert_array_equal(found.usual, counts[:, 2:])
        assert (found.trust == 1).all()
        np.testing.assert_array_equal(found.again(2, 14, 112), found.usual)


def test_a_holiday_like_the_own_weekend_is_taken_out() -> None:
    last = date(2021, 4, 11)
    counts = reports(last, weeks=8)
    expected = counts.copy()
    for day, like in ((2, 5), (3, 6), (5, 6), (6, 0)):
        counts[0, at(last, date(2021, 4, day))] = 1000 * WEEKDAYS[like]
    found = weekday_effects(counts, ("DE",), last)
    np.testing.assert_allclose(found.usual, expected, rtol=0.12)
    untouched = weekday_effects(counts, (), last)
    assert np.abs(untouched.usual / expected - 1).max() > 0.3


def test_a_calendar_that_does_not_fit_is_unlearned() -> None:
    """A client that works on all holidays finds out, and is left alone more and more."""
    last = date(2021, 6, 30)
    counts = reports(last, weeks=52)
    wrong = np.abs(weekday_effects(counts, ("DE",), last).usual / counts - 1)[0]
    first, later = (wrong[at(last, day)] for day in (date(2020, 12, 25), date(2021, 5, 24)))
    assert 0 < later < 0.7 * first


def test_growth_is_hardly_measured_on_a_holiday() -> None:
    trust = weekday_effects(reports(EASTER_MONDAY), ("DE",), EASTER_MONDAY).trust[0]
    assert trust.shape == (2 * WEEK,)
    assert trust[-1] == TRUST[2] < 0.1
    assert trust[: WEEK + 3].tolist() == [1.0] * (WEEK + 3)


def test_a_holiday_ahead_is_expected() -> None:
    last = EASTER_MONDAY - timedelta(days=1)
    length = 8 * WEEK
    ahead = weekday_effects(reports(last, weeks=8), ("DE",), last).again(1, length, length + WEEK)[
        0
    ]
    monday, wednesday = ahead[0], ahead[2]
    assert monday == pytest.approx(1000 * WEEKDAYS[6], rel=0.1)
    assert wednesday == pytest.approx(1000 * WEEKDAYS[2], rel=0.1)


@given(
    st.integers(0, 400), st.integers(3, 30), st.sampled_from(["DE", "DE-BY", "US", ""]),
    st.integers(0, 10**6),
)  # fmt: skip
def test_nothing_depends_on_later_days_or_on_other_clients(
    shift: int, weeks: int, code: str, spike: int
) -> None:
    last = date(2020, 12, 1) + timedelta(days=shift)
    counts = np.random.default_rng(shift).poisson(30, (2, weeks * WEEK)).astype(float)
    whole = weekday_effects(counts, (code, "DE"), last)
    changed = counts.copy()
    changed[0, -WEEK:] += spike
    changed[1] += spike
    found = weekday_effects(changed, (code, "FR"), last)
    np.testing.assert_array_equal(whole.usual[0, :-WEEK], found.usual[0, :-WEEK])
    alone = weekday_effects(counts[:1], (code,), last)
    np.testing.assert_allclose(alone.usual[0], whole.usual[0], rtol=1e-12)
    ahead = 3, 3 * WEEK, (weeks + 3) * WEEK
    np.testing.assert_allclose(alone.again(*ahead)[0], whole.again(*ahead)[0], rtol=1e-12)


def test_a_county_that_reports_once_a_week_stays_as_it_is() -> None:
    last = date(2021, 4, 11)
    counts = reports(last)
    weekly = np.zeros_like(counts)
    weekly[0, 2::WEEK] = 70
    found = weekday_effects(weekly, ("DE",), last)
    assert np.abs(found.usual - weekly).max() < 70
    next_week = found.again(1, WEEKS * WEEK, (WEEKS + 1) * WEEK)
    assert next_week.sum() == pytest.approx(70, rel=0.5)


@pytest.mark.parametrize("last", [date(2021, 4, 5), date(2021, 4, 8), date(2021, 6, 30)])
def test_another_last_week_is_as_if_it_had_been_counted(last: date) -> None:
    counts = np.random.default_rng(1).poisson(30, (4, 140)).astype(float)
    other = counts.copy()
    other[:, -WEEK:] += np.arange(WEEK)
    one = weekday_effects(counts, ("DE",) * 4, last).ending(other[:, -WEEK:])
    whole = weekday_effects(other, ("DE",) * 4, last)
    np.testing.assert_allclose(one.usual, whole.usual)
    np.testing.assert_allclose(one.counts, whole.counts)
    quiet = weekday_effects(counts, (), last)
    assert (quiet.last_factor == 1).all()
