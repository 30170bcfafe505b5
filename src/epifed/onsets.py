"""Nowcasts by date of onset: when people fell ill, from when they were reported.

The onset is missing for many, and of those who fell ill lately most are not reported yet. A missing
one is spread over the days before its report as the known ones are; who is still to come is
estimated from how long it takes from onset to report.
"""

from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np
import polars as pl
from numpy.typing import NDArray

from epifed.days import WEEK
from epifed.intervals import LEVELS as QUANTILES
from epifed.nowcast import LATE_DAYS, SHOWN_DAYS, Nowcast
from epifed.vintages import Vintages

Floats = NDArray[np.float64]

LONGEST_DELAY = 21
"""Days from onset to report; later ones count as this one."""
RECENT = 28
"""Reporting dates from which the delay of the newest cases is learned."""
PRIOR_CASES = 20.0
"""Cases that the delay of all regions counts for beside a region's own."""
PRIOR_SHAPE = 10.0
"""Cases that the level of the week before counts for beside those already reported."""
DRAWS = 400
DAYS = 56
"""Days of onset that are estimated; the first only carry those that follow."""
LEVELS = (0.025, 0.25, 0.5, 0.75, 0.975)

USUAL_DELAY_MEAN = 4.5
"""Days from onset to report, where no list says so (Germany, autumn 2020)."""


@dataclass(frozen=True)
class OnsetNowcast:
    """Cases by date of onset as they will be known once all are reported, with quantiles."""

    days: tuple[date, ...]
    regions: tuple[str, ...]
    known: Floats
    """[regions, days]: with an onset in the list so far."""
    imputed: Floats
    """The same, and those without an onset spread over the days before their report."""
    draws: Floats
    """[draws, regions, days]: with those who are still to be reported."""
    with_onset: float
    """The share of the recent cases whose onset is known."""

    def to_long(self) -> pl.DataFrame:
        """A row for each region and each of the last two weeks' days."""
        shown = slice(-SHOWN_DAYS, None)
        quantiles = np.quantile(self.draws[:, :, shown], LEVELS, axis=0)
        regions, days = quantiles.shape[1:]
        return pl.DataFrame(
            {
                "region": np.repeat(np.array(self.regions, dtype=object), days),
                "date": np.tile(np.array(self.days[shown], "datetime64[D]"), regions),
                "known": self.known[:, shown].ravel(),
                "imputed": self.imputed[:, shown].ravel(),
                "estimate": quantiles[LEVELS.index(0.5)].ravel(),
            }
            | {f"q{level:g}": quantiles[i].ravel() for i, level in enumerate(LEVELS)},
            schema_overrides={"region": pl.String, "date": pl.Date},
        )


def onset_nowcast(history: Vintages, reported: Nowcast, seed: int = 0) -> OnsetNowcast | None:
    """The cases of the last days by date of onset, as of the last morning of a history.

    None where the list has no onset of the last weeks. `reported` is the nowcast by reporting date
    of the same morning, whose late cases get an onset like those without one.
    """
    span = DAYS + LONGEST_DELAY
    table, missing = _by_delay(history, span)
    if not table.any():
        return None
    rng = np.random.default_rng(seed)
    recent = table[:, -RECENT:].sum(axis=1)
    backward = _shrunk(recent)
    known = _onsets(table)
    spread = known + _spread(missing, backward)
    late = _late_draws(reported, rng)
    unreported = np.zeros((len(late), *missing.shape))
    unreported[:, :, -LATE_DAYS:] = late
    draws = spread[None] + _spread(unreported, backward)
    draws = draws[..., -DAYS:]
    coming = _coming(draws, _forward(table), rng)
    total = float(recent.sum())
    last = history.last - timedelta(days=1)
    return OnsetNowcast(
        days=tuple(last - timedelta(days=DAYS - 1 - i) for i in range(DAYS)),
        regions=history.regions,
        known=known[:, -DAYS:],
        imputed=spread[:, -DAYS:],
        draws=draws + coming,
        with_onset=total / max(total + float(missing[:, -RECENT:].sum()), 1.0),
    )


def reported_draws(history: Vintages, reported: Nowcast, seed: int = 0) -> Floats:
    """Draws [draws, regions, days] of the cases by reporting date, for a list without onsets."""
    known = history.known(DAYS)[-1, :, ::-1]
    draws = np.repeat(known[None], DRAWS, axis=0)
    draws[..., -LATE_DAYS:] += _late_draws(reported, np.random.default_rng(seed))
    return np.maximum(draws, 0.0)


def _by_delay(history: Vintages, span: int) -> tuple[Floats, Floats]:
    """Cases [regions, reporting days, delay] with an onset, and [regions, days] without one."""
    first = history.last - timedelta(days=span)
    frame = history.changes.filter(
        pl.col("reported").is_between(first, history.last, closed="left")
    )
    row_of = {region: row for row, region in enumerate(history.regions)}
    rows = frame["region"].replace_strict(row_of, return_dtype=pl.Int64).to_numpy()
    days = (frame["reported"] - first).dt.total_days().to_numpy()
    delay = (frame["reported"] - frame["onset"]).dt.total_days().clip(0, LONGEST_DELAY)
    cases = frame["cases"].to_numpy().astype(np.float64)
    has = delay.is_not_null().to_numpy()
    table = np.zeros((len(history.regions), span, LONGEST_DELAY + 1))
    np.add.at(table, (rows[has], days[has], delay.drop_nulls().to_numpy()), cases[has])
    missing = np.zeros(table.shape[:2])
    np.add.at(missing, (rows[~has], days[~has]), cases[~has])
    return np.maximum(table, 0.0), np.maximum(missing, 0.0)


def _shrunk(counts: Floats) -> Floats:
    """Each region's distribution over delays, shrunk to that of all and to the usual one."""
    k = np.arange(LONGEST_DELAY + 1)
    usual = np.exp(-k / USUAL_DELAY_MEAN)
    everybody = counts.sum(axis=0) + PRIOR_CASES * usual / usual.sum()
    everybody /= everybody.sum()
    own = counts + PRIOR_CASES * everybody
    shares: Floats = own / own.sum(axis=1, keepdims=True)
    return shares


def _onsets(table: Floats) -> Floats:
    """The cases of a table by delay, by day of onset."""
    onsets = np.zeros(table.shape[:2])
    for delay in range(table.shape[2]):
        days = table.shape[1] - delay
        onsets[:, :days] += table[:, delay:, delay]
    return onsets


def _spread(cases: Floats, backward: Floats) -> Floats:
    """Cases [..., regions, days] by reporting date, spread over the days before."""
    onsets = np.zeros_like(cases)
    for delay in range(backward.shape[1]):
        days = cases.shape[-1] - delay
        onsets[..., :days] += cases[..., delay:] * backward[:, delay, None]
    return onsets


def _forward(table: Floats) -> Floats:
    """The share of a day's onsets that is reported so many days later or before, [regions, days].

    From the onsets that are old enough to have been reported, whatever their delay.
    """
    span = table.shape[1]
    counts = np.zeros((len(table), LONGEST_DELAY + 1))
    for delay in range(LONGEST_DELAY + 1):
        until = span - LONGEST_DELAY + delay
        counts[:, delay] = table[:, delay:until, delay].sum(axis=1)
    return np.minimum(np.cumsum(_shrunk(counts), axis=1), 1.0)


def _late_draws(reported: Nowcast, rng: np.random.Generator) -> Floats:
    """Draws [draws, regions, days] of the late cases of the last days, from their quantiles."""
    late = reported.quantiles[:, -LATE_DAYS:] - reported.known[:, -LATE_DAYS:, None]
    last = len(QUANTILES) - 1
    place = np.interp(rng.random((DRAWS, *late.shape[:2])), QUANTILES, np.arange(last + 1))
    lower = np.minimum(place.astype(np.int64), last - 1)
    low = np.take_along_axis(late[None], lower[..., None], axis=-1)[..., 0]
    high = np.take_along_axis(late[None], lower[..., None] + 1, axis=-1)[..., 0]
    return np.maximum(low + (high - low) * (place - lower), 0.0)


def _coming(draws: Floats, forward: Floats, rng: np.random.Generator) -> Floats:
    """Draws of the cases that fell ill on the last days and are not reported yet.

    A day's reported onsets are a Poisson number of mean λ times the share reported by now; λ has a
    gamma prior around the level of the week before the delay's reach, so what is still to come is
    negative binomial.
    """
    days = draws.shape[-1]
    age = days - 1 - np.arange(days)
    share = forward[:, np.minimum(age, LONGEST_DELAY)]
    share = np.where(age > LONGEST_DELAY, 1.0, share)
    settled = share >= 0.9
    counts = draws / np.maximum(share, 0.05)
    newest = np.array([np.flatnonzero(row)[-1] for row in settled])
    level = np.stack(
        [
            counts[:, row, max(end - WEEK + 1, 0) : end + 1].mean(axis=1)
            for row, end in enumerate(newest)
        ],
        axis=1,
    )
    level = level[..., None] + 0.1
    shape = PRIOR_SHAPE + draws
    rate = rng.gamma(shape, 1 / (PRIOR_SHAPE / level + share))
    coming: Floats = rng.poisson(rate * (1 - share)).astype(np.float64)
    return np.where(share >= 1, 0.0, coming)
