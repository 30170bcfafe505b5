"""Late days are filled up by what comes late, and by nothing that was not known."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from epifed.data.vintages import Vintages
from epifed.errors import EpifedError
from epifed.intervals import LEVELS
from epifed.nowcasting import late_reports
from tests.late_lists import SHARES, late_list

DAY = timedelta(days=1)


def test_the_nowcast_is_nearer_to_what_comes_than_what_is_known() -> None:
    panel, late = late_list(regions=40, growth=0.15)
    off, as_known = 0.0, 0.0
    for back in range(5, 30, 6):
        made = late_reports.nowcast(late.until(late.last - back * DAY))
        end = (made.days[-1] - panel.start).days
        truth = panel.counts[:, end - 6 : end + 1].sum(axis=1)
        off += np.abs(made.week - truth).sum()
        as_known += np.abs(made.known[:, -7:].sum(axis=1) - truth).sum()
    assert off < 0.5 * as_known


def test_late_shares_are_those_of_the_list_and_shrink_without_one() -> None:
    _, late = late_list(regions=20)
    known = late.known(late_reports.AGES)
    shares = late_reports.late_shares(known).mean(axis=0)
    expected = 1 - np.cumsum(SHARES)
    assert shares[:3] == pytest.approx([*expected[:2], 0], abs=0.03)
    pooled = np.full(late_reports.LATE_DAYS, 0.3)
    assert late_reports.late_shares(known[-1:], pooled) == pytest.approx(0.3)


def test_a_zero_that_is_only_late_is_filled() -> None:
    _, late = late_list(regions=1, level=60)
    known = late.known(late_reports.AGES)
    known[-1, 0, 0] = 0.0
    filled = late_reports.fill(known, np.zeros(1))
    assert filled[0, 0] > 10


def test_what_comes_after_the_first_cases_does_not_depend_on_how_many_they_are() -> None:
    _, late = late_list(regions=1, level=60)
    known = late.known(late_reports.AGES)
    filled = []
    for seen in (1.0, 30.0, 1e4):
        known[-1, 0, 0] = seen
        filled.append(late_reports.fill(known, np.zeros(1))[0])
    np.testing.assert_allclose(filled[1:], [filled[0]] * 2)
    assert 0 < filled[0][0] < 60


def test_an_office_that_sends_a_day_at_once_lacks_all_of_it_or_nothing() -> None:
    rng = np.random.default_rng(1)
    days, level = 80, 40
    counts = rng.poisson(level, size=days)
    on_time = rng.random(days) < 0.6
    known = np.zeros((days, 1, late_reports.AGES))
    for morning in range(days):
        for lag in range(min(late_reports.AGES, morning)):
            day = morning - 1 - lag
            known[morning, 0, lag] = counts[day] if lag or on_time[day] else 0
    none, some = known.copy(), known.copy()
    none[-1, 0, 0], some[-1, 0, 0] = 0, level
    assert late_reports.fill(none, np.zeros(1))[0, 0] == pytest.approx(level, rel=0.15)
    assert late_reports.fill(some, np.zeros(1))[0, 0] < 0.05 * level


def test_intervals_hold_about_as_much_as_they_say() -> None:
    panel, late = late_list(regions=60)
    inside = []
    for back in range(4, 30, 5):
        made = late_reports.nowcast(late.until(late.last - back * DAY))
        end = (made.days[-1] - panel.start).days
        truth = panel.counts[:, end - 6 : end + 1].sum(axis=1)
        low, high = (made.week_quantiles[:, LEVELS.index(q)] for q in (0.025, 0.975))
        inside.append((truth >= low) & (truth <= high))
    assert np.mean(inside) > 0.93
    assert (np.diff(made.quantiles, axis=-1) >= 0).all()


def test_what_becomes_known_a_day_later_moves_no_nowcast() -> None:
    _, plain = late_list(regions=3)
    morning = plain.last - 10 * DAY
    row = pl.DataFrame(
        {
            "as_of": [morning + DAY],
            "region": ["00000"],
            "reported": [morning - 3 * DAY],
            "cases": [500],
        }
    )
    planted = Vintages.from_changes(pl.concat([plain.changes, row], how="diagonal_relaxed"))
    one, other = (late_reports.nowcast(v.until(morning)) for v in (plain, planted))
    assert (one.quantiles == other.quantiles).all()
    assert (one.week == other.week).all()
    after = late_reports.nowcast(planted.until(morning + DAY))
    assert after.week[0] > one.week[0] + 300


def test_comparable_weeks_are_as_old_as_each_other() -> None:
    panel, late = late_list(regions=200)
    known = late.as_known(late.last - 8 * DAY, like=panel)
    found = late_reports.comparable(late_reports.mornings(known))
    assert found is not None
    week, before, weeks = found
    assert week.sum() / before.sum() == pytest.approx(1, abs=0.02)
    assert known.counts[:, -7:].sum() / known.counts[:, -14:-7].sum() < 0.94
    assert weeks == 1


def test_where_nobody_looked_a_week_ago_it_is_two_weeks() -> None:
    _, late = late_list(regions=2)
    known = late.known(late_reports.AGES)
    known[-8] = np.nan
    found = late_reports.comparable(known)
    assert found is not None
    assert found[2] == 2
    known[-15] = np.nan
    assert late_reports.comparable(known) is None


def test_a_panel_without_history_is_taken_as_complete() -> None:
    panel, _ = late_list(regions=2)
    known = late_reports.mornings(panel)
    assert known.shape == (panel.counts.shape[1], 2, late_reports.AGES)
    assert (known[-1] == panel.counts[:, ::-1][:, : late_reports.AGES]).all()
    assert (known[-8, :, 0] == panel.counts[:, -8]).all()
    assert late_reports.late_counts(known)[0].sum() == 0


def test_completed_fills_the_newest_days() -> None:
    panel, late = late_list(regions=2)
    known = late.as_known(late.last, like=panel)
    filled = np.arange(14.0).reshape(2, 7)
    full = late_reports.completed(known, late_reports.mornings(known), filled)
    assert (full.counts[:, -1] - known.counts[:, -1] == filled[:, 0]).all()
    assert (full.counts[:, -7] - known.counts[:, -7] == filled[:, 6]).all()
    assert (full.counts[:, :-7] == known.counts[:, :-7]).all()


def test_too_short_a_history_is_refused() -> None:
    _, late = late_list(regions=1)
    with pytest.raises(EpifedError, match=r"found 6 days .* expected at least 14"):
        late_reports.nowcast(late.until(late.first + 5 * DAY))


def test_newest_days_that_look_incomplete_are_counted() -> None:
    panel, late = late_list(regions=20, growth=0.1)
    assert late_reports.incomplete_days(panel) == 0
    assert late_reports.incomplete_days(late.as_known(late.last - 3 * DAY, like=panel)) >= 1
    few, late_few = late_list(regions=1, level=2)
    assert late_reports.incomplete_days(late_few.as_known(late_few.last, like=few)) == 0


@pytest.mark.parametrize("missing", range(4))
def test_three_incomplete_days_are_all_noticed(missing: int) -> None:
    panel, _ = late_list(days=82, level=9.5)
    counts = panel.counts.copy()
    for lag, share in enumerate((0.2, 0.4, 0.6)[:missing]):
        counts[:, -1 - lag] = np.round(counts[:, -1 - lag] * share)
    assert late_reports.incomplete_days(replace(panel, counts=counts)) == missing


def test_a_file_that_always_falls_on_its_last_days_is_complete() -> None:
    """What the past shows every week is no sign of missing reports."""
    panel, _ = late_list(days=84, level=30.0)
    wild = panel.counts * np.where(np.arange(84) // 3 % 4 == 3, 0.4, 1.0)
    assert late_reports.incomplete_days(replace(panel, counts=np.round(wild))) == 0
