"""The archive keeps what a machine was given, each morning once, and does not grow forever."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl

from epifed.data import vintages
from epifed.data.panel import CasePanel
from epifed.data.vintages import LEAST_MORNINGS, Vintages
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
    assert vintages.mornings_kept(tmp_path) == 2


def test_a_history_is_used_once_it_is_long_enough(tmp_path: Path) -> None:
    _, late = late_list(regions=2)
    for i in range(LEAST_MORNINGS):
        kept = vintages.remember(tmp_path, given(late.as_known(late.first + i * DAY)))
        assert (kept.history is not None) == (i == LEAST_MORNINGS - 1)


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
    assert vintages.mornings_kept(tmp_path) == 0


def test_the_archive_is_bounded(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    counts = rng.poisson(5, size=(2, 400)).astype(np.float64)
    start = late_list(regions=1)[0].start
    whole = CasePanel(counts, ("a", "b"), start)
    for day in range(250, 350):
        kept = vintages.remember(tmp_path, whole.between(start, start + day * DAY))
    assert kept.history is not None
    assert len(kept.history.snapshots) == vintages.KEPT_MORNINGS
    assert len(pl.read_parquet(tmp_path / vintages.FILE)) <= 2 * (vintages.KEPT_DAYS + 1)
    assert (kept.history.known(50)[-1] == kept.counts[:, ::-1][:, :50]).all()
