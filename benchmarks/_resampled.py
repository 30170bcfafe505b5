"""Final counts made late by resampling: a history for times of which nobody kept one.

The real list is known as of the mornings of August to October 2020 alone. For other times each
county's day becomes known as a real day of the same county and weekday did, weeks being drawn by
their cases. That is **semi-synthetic**: the epidemic is real, its lateness is resampled. Public
holidays are reported like weekends, an office that is closed sends nothing until the next morning,
and now and then one falls silent for days.
"""

from datetime import date, timedelta

import numpy as np
import polars as pl
from numpy.typing import NDArray

from epifed.data.calendar import closed, day_kinds
from epifed.data.panel import CasePanel
from epifed.data.vintages import Vintages

Floats = NDArray[np.float64]
DAY = timedelta(days=1)

FIRST_REAL, LAST_REAL = date(2020, 8, 3), date(2020, 10, 4)
"""The real reporting dates, whole weeks, whose lateness is resampled."""
LAGS = 14
"""Mornings of each that are known; what is missing then comes after four weeks."""
SETTLED = 28
CLOSED = 0.6
"""Chance that an office sends nothing on a public holiday."""
OUTAGE, LONGEST_OUTAGE = 0.001, 10
"""Chance that an office falls silent on a day, and for how many days at most."""


def trajectories(panel: CasePanel, real: Vintages) -> tuple[Floats, Floats]:
    """Of real days [weeks, weekdays, counties] the share known [..., lags], and the final cases."""
    known = real.known(LAGS)
    for i in np.flatnonzero(np.isnan(known[:, 0, 0])):  # nobody looked: as on the morning before
        known[i, :, 1:], known[i, :, 0] = known[i - 1, :, :-1], 0.0
    days = (LAST_REAL - FIRST_REAL).days + 1
    first = (FIRST_REAL - real.first).days + 1
    at = panel.index(FIRST_REAL)
    final = panel.counts[:, at : at + days].T
    seen = np.stack([known[first + lag : first + lag + days, :, lag] for lag in range(LAGS)], -1)
    share = seen / np.maximum(final, 1)[..., None]
    weeks = days // 7
    return share.reshape(weeks, 7, -1, LAGS), final.reshape(weeks, 7, -1)


def pseudo_vintages(
    panel: CasePanel, real: Vintages, first: date, last: date, seed: int = 0
) -> Vintages:
    """A history of the final counts, from the morning of one day to that of another."""
    rng = np.random.default_rng([seed, first.toordinal()])
    start = first - SETTLED * DAY
    days = (last - start).days
    at = panel.index(start)
    final = panel.counts[:, at : at + days].T
    share = _drawn(panel, *trajectories(panel, real), start, days, rng)
    # [days, counties, mornings after the day]: rounded with one draw for all mornings of a day.
    so_far = np.floor(final[..., None] * share + rng.random(final.shape)[..., None])
    so_far = np.concatenate([np.zeros((*final.shape, 1)), so_far], axis=2)
    silent = _silent(panel, start, days, rng)
    for morning in range(1, days + 1):
        # so_far[..., 1 + lag] is what the morning knows, [..., lag] what the one before knew.
        for lag in range(min(SETTLED, morning)):
            stuck = morning - 1 - lag, silent[morning - 1]
            so_far[*stuck, 1 + lag] = so_far[*stuck, lag]
    change = np.diff(so_far, axis=2)
    d, county, k = np.nonzero(change)
    morning = np.maximum(d + 1 + k, SETTLED)
    inside = morning <= days
    d, county, k, morning = d[inside], county[inside], k[inside], morning[inside]
    ids = pl.Series(panel.regions, dtype=pl.String)
    origin = np.datetime64(start)
    late = pl.DataFrame(
        {
            "as_of": origin + morning,
            "region": ids.gather(county),
            "reported": origin + d,
            "cases": change[d, county, k].astype(np.int64),
        }
    )
    county, d = np.nonzero(panel.counts[:, :at])
    before = pl.DataFrame(
        {
            "as_of": np.full(len(d), np.datetime64(first)),
            "region": ids.gather(county),
            "reported": np.datetime64(panel.start) + d,
            "cases": panel.counts[county, d].astype(np.int64),
        }
    )
    looked = [first + i * DAY for i in range((last - first).days + 1)]
    return Vintages.from_changes(
        pl.concat([late, before]), source="resampled", regions=panel.regions, snapshots=looked
    )


def _drawn(
    panel: CasePanel, share: Floats, cases: Floats, start: date, days: int, rng: np.random.Generator
) -> Floats:
    """Shares known [days, counties, lags to `SETTLED`] as on real days that are drawn."""
    counties = share.shape[2]
    like = {code: day_kinds(code, start, days)[1] for code in set(panel.calendars)}
    weekday = np.stack([like[code] for code in panel.calendars], axis=1)
    county = np.arange(counties)
    by_week = cases.sum(axis=1) + 0.1
    by_day = cases + 1e-9
    found = np.ones((days, counties, SETTLED + 1))
    week = np.zeros(counties, dtype=np.int64)
    for day in range(days):
        if day % 7 == 0:
            week = _draw(by_week, rng)
        on = weekday[day]
        chosen = np.where(cases[week, on, county] > 0, week, _draw(by_day[:, on, county], rng))
        # Where a county never had a case on such a weekday, one of all counties' days.
        empty = cases[chosen, on, county] == 0
        other = np.where(empty, rng.integers(0, counties, counties), county)
        found[day, :, :LAGS] = share[chosen, on, other]
        none = cases[chosen, on, other] == 0
        found[day, none, :LAGS] = [0.5, 0.88, 0.94, 0.97, *[0.99] * (LAGS - 4)]
        found[day, :, LAGS:SETTLED] = found[day, :, LAGS - 1, None]
    return found


def _draw(weight: Floats, rng: np.random.Generator) -> NDArray[np.int64]:
    """One of the first axis for each of the second, by weight."""
    total = np.cumsum(weight, axis=0)
    picked: NDArray[np.int64] = (rng.random(total.shape[1]) * total[-1] >= total).sum(axis=0)
    return np.minimum(picked, len(weight) - 1)


def _silent(
    panel: CasePanel, start: date, days: int, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """On which days [days, counties] an office sends nothing."""
    off = {code: closed(code, start, days)[0] for code in set(panel.calendars)}
    silent = np.stack([off[code] for code in panel.calendars], axis=1)
    silent = silent & (rng.random(silent.shape) < CLOSED)
    for day, county in zip(*np.nonzero(rng.random(silent.shape) < OUTAGE), strict=True):
        silent[day : day + int(rng.integers(3, LONGEST_OUTAGE + 1)), county] = True
    return silent
