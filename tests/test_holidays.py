"""Public holidays and what a client learns of them."""

from datetime import date

import numpy as np
import pytest

from epifed.errors import EpifedError
from epifed.holidays import USUAL, effect, is_holiday, taken_out


def test_german_weekday_holidays_are_known() -> None:
    days = is_holiday("DE", date(2021, 4, 1), 6)
    assert days.tolist() == [False, True, False, False, True, False]
    christmas = is_holiday("DE", date(2021, 12, 23), 5)
    assert christmas.tolist() == [False, True, False, False, False]
    assert not is_holiday("", date(2021, 4, 1), 30).any()


def test_an_unknown_country_is_refused() -> None:
    with pytest.raises(EpifedError, match="found 'ATLANTIS'; expected a country code"):
        is_holiday("ATLANTIS", date(2021, 1, 1), 3)


def test_a_client_learns_its_own_effect_and_the_holiday_is_taken_out() -> None:
    first, days = date(2021, 3, 1), 100
    holiday = is_holiday("DE", first, days)
    counts = np.full((2, days), 1000.0)
    counts[0, holiday] = 300
    found = effect(counts, holiday)
    assert found[0] == pytest.approx(0.3, abs=0.15)
    assert found[1] == pytest.approx(1.0, abs=0.06)
    usual = taken_out(counts, "DE", first)
    assert np.abs(usual[1] - 1000).max() < 70
    assert usual[0, holiday].min() > 600
    assert (usual[:, ~holiday] == 1000).all()


def test_before_the_first_holiday_a_usual_effect_is_assumed() -> None:
    holiday = np.zeros(30, dtype=np.bool_)
    assert effect(np.full((3, 30), 5.0), holiday) == pytest.approx(np.full(3, USUAL))


def test_the_last_week_does_not_count_because_its_next_one_is_unknown() -> None:
    holiday = np.zeros(30, dtype=np.bool_)
    holiday[25] = True
    counts = np.full((1, 30), 100.0)
    counts[0, 25] = 0
    assert effect(counts, holiday) == pytest.approx([USUAL])
