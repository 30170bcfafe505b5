"""The archive keeps what a machine was given, each morning once, and does not grow forever."""

from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import polars as pl

from epifed.data import vintages
from epifed.data.panel import CasePanel
from epifed.data.vintages import LEAST_VINTAGES, Vintages
from epifed.data.weekly_vintages import FILE, KEPT_VINTAGES, LEAST_KEPT
from tests.late_lists import late_list

DAY = timedelta(days=1)


def given(panel: CasePanel) -> CasePanel:
    """The panel of a morning, as a file without a history would give it."""
    return replace(panel, history=None)


def test_the_archive_becomes_the_vintages_that_were_given(tmp_path: Path) -> None:
    _, late = late_list(regions=3, days=90)
    kept = None
    for i in range(30):
        kept = vintages.remember(tmp_path, given(late.as_known(late.first + i * DAY)))
    assert kept is not None and kept.history is not None
    same = late.until(late.first + 29 * DAY)
    assert kept.history.snapshots == same.snapshots
    assert (kept.history.known(20) == same.known(20)).all()


def test_an_archive_that_was_filled_is_as_one_that_grew(tmp_path: Path) -> None:
    _, late = late_list(regions=3, days=90)
    history = late.until(late.first + 28 * DAY)
    vintages.fill(tmp_path, history)
    kept = vintages.remember(tmp_path, given(late.as_known(late.first + 29 * DAY)))
    assert kept.history is not None
    assert kept.history.snapshots == late.until(late.first + 29 * DAY).snapshots
    assert (kept.history.known(20) == late.until(late.first + 29 * DAY).known(20)).all()


def stored(folder: Path) -> Vintages:
    return Vintages.from_changes(pl.read_parquet(folder / vintages.FILE))


def test_a_morning_is_kept_once_and_an_older_one_not_at_all(tmp_path: Path) -> None:
    _, late = late_list(regions=2)
    today = given(late.as_known(late.first + 5 * DAY))
    vintages.remember(tmp_path, given(late.as_known(late.first + 4 * DAY)))
    vintages.remember(tmp_path, today)
    more = replace(today, counts=today.counts + 1)
    vintages.remember(tmp_path, more)
    kept = stored(tmp_path)
    assert kept.snapshots == (late.first + 4 * DAY, late.first + 5 * DAY)
    assert (kept.known(5)[-1] == more.counts[:, ::-1][:, :5]).all()
    vintages.remember(tmp_path, given(late.as_known(late.first + 3 * DAY)))
    assert stored(tmp_path).digest() == kept.digest()
    assert vintages.count_vintages(tmp_path) == 2


def test_a_history_is_used_once_it_is_long_enough(tmp_path: Path) -> None:
    _, late = late_list(regions=2)
    for i in range(LEAST_VINTAGES):
        kept = vintages.remember(tmp_path, given(late.as_known(late.first + i * DAY)))
        assert (kept.history is not None) == (i == LEAST_VINTAGES - 1)


def test_a_new_region_begins_anew_a_missing_one_does_not(tmp_path: Path) -> None:
    _, late = late_list(regions=3)
    vintages.remember(tmp_path, given(late.as_known(late.first)))
    vintages.remember(tmp_path, given(late.of(["00001"]).as_known(late.first + DAY)))
    kept = stored(tmp_path)
    assert kept.snapshots == (late.first, late.first + DAY)
    assert kept.regions == late.regions
    expected = late.as_known(late.first + DAY).counts[1, -1]
    assert kept.as_known(late.first + DAY).counts[1, -1] == expected
    more = late_list(regions=4)[1]
    vintages.remember(tmp_path, given(more.as_known(late.first + 2 * DAY)))
    assert stored(tmp_path).snapshots == (late.first + 2 * DAY,)


def test_a_damaged_archive_begins_anew(tmp_path: Path) -> None:
    _, late = late_list(regions=2)
    (tmp_path / vintages.FILE).write_bytes(b"PAR1 half a file")
    vintages.remember(tmp_path, given(late.as_known(late.first)))
    assert stored(tmp_path).snapshots == (late.first,)


def test_averages_are_not_kept(tmp_path: Path) -> None:
    _, late = late_list(regions=3)
    half = given(late.as_known(late.first + 2 * DAY))
    vintages.remember(tmp_path, replace(half, counts=half.counts / 2))
    assert vintages.count_vintages(tmp_path) == 0


def test_the_archive_is_bounded(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    counts = rng.poisson(5, size=(2, 400)).astype(np.float64)
    start = late_list(regions=1)[0].start
    whole = CasePanel(counts, ("a", "b"), start)
    for day in range(250, 350):
        kept = vintages.remember(tmp_path, whole.between(start, start + day * DAY))
    assert kept.history is not None
    assert len(kept.history.snapshots) == vintages.KEPT_DAILY_VINTAGES
    assert len(pl.read_parquet(tmp_path / vintages.FILE)) <= 2 * (vintages.KEPT_DAYS + 1)
    assert (kept.history.known(50)[-1] == kept.counts[:, ::-1][:, :50]).all()


# weeks


def weeks_of(late: int, regions: int = 2) -> CasePanel:
    """A list of weeks whose newest week is published a tenth low, as known after so many weeks."""
    counts = np.asarray(
        100.0 + 50 * np.arange(regions)[:, None] + np.arange(late), dtype=np.float64
    )
    counts[:, -1] *= 0.9
    ids = tuple(f"r{k}" for k in range(regions))
    return CasePanel(counts, ids, date(2023, 1, 7), step="week")


def test_an_archive_of_weeks_learns_how_the_newest_week_is_revised(tmp_path: Path) -> None:
    kept = weeks_of(20)
    for length in range(20, 40):
        kept = vintages.remember(tmp_path, weeks_of(length))
        vintages.remember(tmp_path, weeks_of(length))
        vintages.remember(tmp_path, weeks_of(length - 1))
        assert (kept.revisions is not None) == (length >= 20 + LEAST_KEPT - 1)
    assert kept.revisions is not None and vintages.count_vintages(tmp_path) == 20
    again = kept.revisions.as_known(weeks_of(30).end)
    assert np.allclose(again.counts, weeks_of(30).counts)
    completed = kept.revisions.completed(19, kept.counts)[:, -1]
    assert np.allclose(completed, weeks_of(39).counts[:, -1] / 0.9, rtol=0.03)


def test_an_archive_of_weeks_is_bounded_and_begins_anew(tmp_path: Path) -> None:
    for length in range(20, 20 + KEPT_VINTAGES + 5):
        vintages.remember(tmp_path, weeks_of(length, 1))
    assert vintages.count_vintages(tmp_path) == KEPT_VINTAGES
    before = (tmp_path / FILE).read_bytes()
    vintages.remember(tmp_path, weeks_of(length + 1, 1), write=False)
    assert (tmp_path / FILE).read_bytes() == before
    vintages.remember(tmp_path, weeks_of(30, 2))
    assert vintages.count_vintages(tmp_path) == 1
    (tmp_path / FILE).write_bytes(b"no table")
    assert vintages.count_vintages(tmp_path) == 0
    moved = replace(weeks_of(31, 2), start=date(2023, 1, 6))
    vintages.remember(tmp_path, weeks_of(31, 2))
    vintages.remember(tmp_path, moved)
    assert vintages.count_vintages(tmp_path) == 1


def test_clients_of_weeks_are_remembered_alone_and_put_together(tmp_path: Path) -> None:
    for length in range(20, 26):
        panel = weeks_of(length)
        alone = [vintages.remember(tmp_path / r, panel.alone(r)) for r in panel.regions]
    both = vintages.together(panel, alone)
    assert both.revisions is not None and len(both.revisions.snapshots) == 6
    for row, one in enumerate(alone):
        assert one.revisions is not None
        mine = both.revisions.of([panel.regions[row]])
        assert mine.digest() == one.revisions.digest()
    assert vintages.together(panel, alone[:1]).revisions is None
