"""The nowcast and R(t) of a morning as one table."""

from datetime import timedelta

import numpy as np
import pytest

from epifed.intervals import LEVELS
from epifed.nowcasting.transmission import LEVELS as R_LEVELS
from epifed.nowcasting.transmission import nowcast_on, nowcast_summary
from tests.late_lists import late_list

DAY = timedelta(days=1)


@pytest.mark.parametrize("onsets", [False, True])
def test_the_table_has_the_numbers_of_its_parts(onsets: bool) -> None:
    _, late = late_list(regions=3, onsets=onsets)
    morning = late.last - 4 * DAY
    found = nowcast_summary(late.until(morning))
    assert (found.onsets is not None) == onsets
    table = nowcast_on(late, morning - DAY)
    assert table is not None
    assert table["as_of"].unique().to_list() == [morning]
    assert table["date"].max() == morning - DAY
    made = found.reported
    for row, region in enumerate(late.regions):
        part = table.filter(region=region).sort("date")
        assert tuple(part["date"]) == made.days == found.number.days
        np.testing.assert_allclose(part["known"], made.known[row])
        np.testing.assert_allclose(part["estimate"], made.point[row])
        for name, level in (("lower", 0.025), ("upper", 0.975)):
            expected = made.quantiles[row, :, LEVELS.index(level)]
            np.testing.assert_allclose(part[name], expected)
        for name, level in (("r_lower", 0.025), ("r", 0.5), ("r_upper", 0.975)):
            expected = found.number.quantiles[row, :, R_LEVELS.index(level)]
            np.testing.assert_allclose(part[name], expected)


def test_without_mornings_enough_there_is_none() -> None:
    _, late = late_list(regions=2)
    assert nowcast_on(late, late.first + 12 * DAY) is None
    assert nowcast_on(late, late.first + 13 * DAY) is not None
