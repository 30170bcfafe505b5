"""The archive keeps what a machine was given, each morning once, and does not grow forever."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl

from epifed import archive
from epifed.panel import CasePanel
from tests.late import late_list

DAY = timedelta(days=1)


def given(panel: CasePanel) -> CasePanel:
    """The panel of a morning, as a file without a history would give it."""
    return replace(panel, history=None)


def test_the_archive_becomes_the_vintages_that_were_given(tmp_path: Path) -> None:
    _, late = late_list(regions=3, days=90)
    kept = None
    for i in range(30):
        kept = archive.remember(tmp_path, given(late.as_known(late.first + i * DAY)))
    assert kept is not None and kept.history is not None
    same = late.until(late.first + 29 * DAY)
    assert kept.history.snapshots == same.snapshots
    assert (kept.history.known(20) == same.known(20)).all()


def test_a_morning_is_kept_once_and_an_older_one_not_at_all(tmp_path: Path) -> None:
    _, late = late_list(regions=2)
    today = given(late.as_known(late.first + 5 * DAY))
    archive.remember(tmp_path, given(late.as_known(late.first + 4 * DAY)))
    archive.remember(tmp_path, today)
    more = replace(today, counts=today.counts + 1)
    kept = archive.remember(tmp_path, more)
    assert kept.history is not None
    assert kept.history.snapshots == (late.first + 4 * DAY, late.first + 5 * DAY)
    assert (kept.history.known(5)[-1] == more.counts[:, ::-1][:, :5]).all()
    archive.remember(tmp_path, given(late.as_known(late.first + 3 * DAY)))
    stored = pl.read_parquet(tmp_path / archive.FILE)
    assert stored["as_of"].n_unique() == 2


def test_other_regions_begin_anew_and_averages_are_not_kept(tmp_path: Path) -> None:
    _, late = late_list(regions=3)
    archive.remember(tmp_path, given(late.as_known(late.first)))
    other = archive.remember(tmp_path, given(late.of(["00001"]).as_known(late.first + DAY)))
    assert other.history is not None
    assert other.history.snapshots == (late.first + DAY,)
    half = given(late.as_known(late.first + 2 * DAY))
    assert archive.remember(tmp_path, replace(half, counts=half.counts / 2)).history is None


def test_the_archive_is_bounded(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    counts = rng.poisson(5, size=(2, 400)).astype(np.float64)
    start = late_list(regions=1)[0].start
    whole = CasePanel(counts, ("a", "b"), start)
    for day in range(250, 350):
        kept = archive.remember(tmp_path, whole.between(start, start + day * DAY))
    assert kept.history is not None
    assert len(kept.history.snapshots) == archive.KEPT_MORNINGS
    stored = pl.read_parquet(tmp_path / archive.FILE)
    assert len(stored) <= 2 * (archive.KEPT_DAYS + 1)
    assert (kept.history.known(50)[-1] == kept.counts[:, ::-1][:, :50]).all()
