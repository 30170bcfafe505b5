"""Cases by onset: nobody is lost, and who is not reported yet is counted."""

from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from epifed.data.vintages import Vintages
from epifed.nowcasting import transmission
from epifed.nowcasting.late_reports import nowcast
from epifed.nowcasting.transmission import OnsetNowcast, nowcast_summary
from tests.late_lists import late_list

DAY = timedelta(days=1)


def by_onset(late: Vintages) -> OnsetNowcast:
    made = transmission.onset_nowcast(late, nowcast(late))
    assert made is not None
    return made


def test_imputation_moves_cases_and_loses_none() -> None:
    panel, late = late_list(regions=4, onsets=True)
    made = by_onset(late)
    # Whoever was reported in the middle of the span fell ill within it.
    assert made.imputed[:, 10:30].sum() == pytest.approx(
        panel.counts[:, -(transmission.DAYS - 10) :][:, :20].sum(), rel=0.05
    )
    assert (made.known <= made.imputed + 1e-9).all()
    assert made.with_onset == pytest.approx(0.65, abs=0.05)


def test_who_is_not_reported_yet_is_counted() -> None:
    _, late = late_list(regions=20, weekly=False, onsets=True)
    then = late.until(late.last - 21 * DAY)
    early, later = (by_onset(v) for v in (then, late))
    days = slice(-35, -21)
    truth = later.imputed[:, days].sum(axis=0)
    estimate = np.median(early.draws[:, :, -14:], axis=0).sum(axis=0)
    assert early.imputed[:, -3:].sum() < 0.5 * truth[-3:].sum()
    weeks = estimate.reshape(2, 7).sum(axis=1)
    assert weeks == pytest.approx(truth.reshape(2, 7).sum(axis=1), rel=0.1)
    low, high = np.quantile(early.draws[:, :, -14:], (0.025, 0.975), axis=0)
    exact = later.imputed[:, days]
    assert ((exact >= low - 1) & (exact <= high + 1)).mean() > 0.9


def test_a_list_without_onsets_has_draws_by_report() -> None:
    _, late = late_list(regions=2)
    bare = Vintages.from_changes(late.changes.with_columns(onset=pl.lit(None, dtype=pl.Date)))
    made = nowcast(bare)
    assert transmission.onset_nowcast(bare, made) is None
    draws = transmission.reported_draws(bare, made)
    assert draws.shape == (transmission.DRAWS, 2, transmission.DAYS)
    assert (draws[:, :, -1].mean(axis=0) > made.known[:, -1]).all()


def test_onsets_that_nobody_notes_any_more_are_no_onsets() -> None:
    _, late = late_list(regions=2, days=120, onsets=True)
    noted = pl.col("reported") <= late.start + 7 * DAY
    old = late.changes.with_columns(onset=pl.when(noted).then("onset"))
    found = nowcast_summary(Vintages.from_changes(old))
    assert old["onset"].is_not_null().any() and found.onsets is None
    assert np.isfinite(found.number.quantiles).all()
