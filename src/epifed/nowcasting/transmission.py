"""Cases by date of onset, the reproduction number R(t), and both with the nowcast of a day.

R(t) is the estimator of Cori et al. (2013): new cases are Poisson with mean R times the
infectiousness of past ones, weighted by the generation time; R is constant over a week with a gamma
prior, so its posterior is a gamma too (doi:10.1093/aje/kwt133, Web Appendix 1). Reported cases
are a fraction of infections; R(t) assumes that the fraction is steady.

Cases with unknown onset are spread over the days before their report like those with known onset.
Cases with onset but without a report so far are estimated from the delay between the two.
"""

from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.stats import gamma

from epifed.data.calendar import WEEK
from epifed.data.panel import long_table
from epifed.data.vintages import LEAST_VINTAGES, Vintages
from epifed.errors import EpifedError
from epifed.intervals import LEVELS as QUANTILES
from epifed.nowcasting.late_reports import LATE_DAYS, SHOWN_DAYS, Nowcast, nowcast

Floats = NDArray[np.float64]

GENERATION_MEAN, GENERATION_SD = 4.7, 2.9
"""Days between two cases of a chain of COVID-19: Nishiura, Linton, Akhmetzhanov (2020),
doi:10.1016/j.ijid.2020.02.060."""
LONGEST = 21
"""Largest generation time in days."""
R_PRIOR_SHAPE, R_PRIOR_SCALE = 1.0, 5.0
"""The gamma prior of R, with mean and standard deviation 5, as in the paper."""
LEVELS = (0.025, 0.25, 0.5, 0.75, 0.975)


@dataclass(frozen=True)
class Generation:
    """The generation time in days, as a gamma distribution shifted by one."""

    mean: float = GENERATION_MEAN
    sd: float = GENERATION_SD

    def __post_init__(self) -> None:
        """Refuse a mean of at most 1 or a standard deviation of at most 0."""
        if not (self.mean > 1 and self.sd > 0):
            raise EpifedError(
                f"generation time: found {self.mean:g} ± {self.sd:g} days; expected a mean above 1 "
                "and a deviation above 0"
            )

    def weights(self) -> Floats:
        """The probability w[k] that the next case follows k days later, k from 0 to `LONGEST`.

        >>> Generation(2.6, 1.5).weights()[:5].round(3).tolist()
        [0.0, 0.233, 0.359, 0.198, 0.103]
        """
        shape, scale = ((self.mean - 1) / self.sd) ** 2, self.sd**2 / (self.mean - 1)

        def below(day: Floats, more: float) -> Floats:
            return np.asarray(gamma.cdf(day, shape + more, scale=scale))

        k = np.arange(LONGEST + 1, dtype=np.float64)
        chance = k * below(k, 0) + (k - 2) * below(k - 2, 0) - 2 * (k - 1) * below(k - 1, 0)
        chance += shape * scale * (2 * below(k - 1, 1) - below(k - 2, 1) - below(k, 1))
        chance[0] = 0.0
        return np.maximum(chance, 0.0)


@dataclass(frozen=True)
class Reproduction:
    """R of the weeks that end on some days, with quantiles at `LEVELS`."""

    days: tuple[date, ...]
    regions: tuple[str, ...]
    quantiles: Floats
    """[regions, days, levels]"""

    def to_long(self) -> pl.DataFrame:
        """A row for each region and day."""
        columns = {f"q{level:g}": self.quantiles[..., i] for i, level in enumerate(LEVELS)}
        return long_table({"region": self.regions, "date": self.days}, columns)


def posterior(cases: Floats, generation: Generation) -> tuple[Floats, Floats]:
    """The shape and scale of R's gamma posterior, for the week that ends on each day [..., days].

    Days before the first have no cases. The scale is that of EpiEstim: 1 / (1 / prior + Σ Λ).
    """
    weights = generation.weights()
    days = cases.shape[-1]
    pressure = np.zeros_like(cases)
    for k in range(1, min(len(weights), days)):
        pressure[..., k:] += weights[k] * cases[..., : days - k]
    shape = R_PRIOR_SHAPE + _week(cases)
    scale = 1 / (1 / R_PRIOR_SCALE + _week(pressure))
    return shape, scale


def reproduction(
    draws: Floats,
    regions: tuple[str, ...],
    last: date,
    shown: int,
    generation: Generation | None = None,
) -> Reproduction:
    """R of the weeks that end on each of the last days, from draws [draws, regions, days] of cases.

    The draws carry the uncertainty of the last days. Each has its own posterior, and the
    quantiles are those of their mixture.
    """
    shape, scale = posterior(draws, generation or Generation())
    shape, scale = shape[..., -shown:], scale[..., -shown:]
    rng = np.random.default_rng(0)
    values = rng.gamma(shape, scale)
    quantiles = np.moveaxis(np.quantile(values, LEVELS, axis=0), 0, -1)
    days = tuple(last - timedelta(days=shown - 1 - i) for i in range(shown))
    return Reproduction(days, regions, quantiles)


def _week(values: Floats) -> Floats:
    """The sum of each day and the six before it."""
    zero = np.zeros((*values.shape[:-1], 1))
    total = np.concatenate([zero, np.cumsum(values, axis=-1)], axis=-1)
    days = values.shape[-1]
    first = np.maximum(np.arange(days) - WEEK + 1, 0)
    week: Floats = total[..., 1:] - total[..., first]
    return week


LONGEST_DELAY = 21
"""Largest delay in days from onset to report; longer ones count as this one."""
RECENT = 28
"""Number of reporting dates from which the delay of the newest cases is learned."""
PRIOR_CASES = 20.0
"""Weight of the delays of all regions, in cases of a region."""
PRIOR_SHAPE = 10.0
"""Weight of the level of the week before, in cases already reported."""
DRAWS = 400
DAYS = 56
"""Days of onset that are estimated; the first ones only support those that follow."""

USUAL_DELAY_MEAN = 4.5
"""Mean days from onset to report, used without data (Germany, autumn 2020)."""


@dataclass(frozen=True)
class OnsetNowcast:
    """Estimates of cases by date of onset after all reports have arrived, with draws."""

    days: tuple[date, ...]
    regions: tuple[str, ...]
    known: Floats
    """[regions, days]: cases with a known onset so far."""
    imputed: Floats
    """The same plus cases without onset, spread over the days before their report."""
    draws: Floats
    """[draws, regions, days]: including cases not yet reported."""
    with_onset: float
    """The share of recent cases with a known onset."""

    def to_long(self) -> pl.DataFrame:
        """A row for each region and each day of the last two weeks."""
        shown = slice(-SHOWN_DAYS, None)
        quantiles = np.quantile(self.draws[:, :, shown], LEVELS, axis=0)
        cells = {
            "known": self.known[:, shown],
            "imputed": self.imputed[:, shown],
            "estimate": quantiles[LEVELS.index(0.5)],
        } | {f"q{level:g}": quantiles[i] for i, level in enumerate(LEVELS)}
        return long_table({"region": self.regions, "date": self.days[shown]}, cells)


def onset_nowcast(history: Vintages, reported: Nowcast, seed: int = 0) -> OnsetNowcast | None:
    """The cases of the last days by date of onset, as of the last vintage of a history.

    None without any onset in the last weeks. `reported` is the nowcast by reporting date of the
    same vintage. Its late cases get an onset like cases without one.
    """
    span = DAYS + LONGEST_DELAY
    table, missing = _by_delay(history, span)
    if not table.any():
        return None
    rng = np.random.default_rng(seed)
    recent = table[:, -RECENT:].sum(axis=1)
    backward = _shrunk(recent)
    by_onset = _onsets(table)
    spread = by_onset + _spread(missing, backward)
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
        known=by_onset[:, -DAYS:],
        imputed=spread[:, -DAYS:],
        draws=draws + coming,
        with_onset=total / max(total + float(missing[:, -RECENT:].sum()), 1.0),
    )


def reported_draws(history: Vintages, reported: Nowcast, seed: int = 0) -> Floats:
    """Draws [draws, regions, days] of the cases by reporting date, for a list without onsets."""
    counts = history.known(DAYS)[-1, :, ::-1]
    draws = np.repeat(counts[None], DRAWS, axis=0)
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
    """Each region's distribution of delays, shrunk to that of all regions and to the usual one."""
    k = np.arange(LONGEST_DELAY + 1)
    usual = np.exp(-k / USUAL_DELAY_MEAN)
    everybody = counts.sum(axis=0) + PRIOR_CASES * usual / usual.sum()
    everybody /= everybody.sum()
    own = counts + PRIOR_CASES * everybody
    shares: Floats = own / own.sum(axis=1, keepdims=True)
    return shares


def _onsets(table: Floats) -> Floats:
    """The cases of a table by delay, summed by day of onset."""
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
    """The share of a day's onsets reported within so many days, [regions, delays].

    Estimated from onsets that are old enough to be reported with any delay.
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
    """Draws of the cases with onset on the last days that are not reported yet.

    A day's reported onsets are Poisson with mean λ times the share reported by now. λ has a gamma
    prior around the level of the week before the newest delays. So the number of cases still to be
    reported is negative binomial.
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


BAND = (0.025, 0.975)
"""Ends of the interval in tables and pages."""


@dataclass(frozen=True)
class NowcastSummary:
    """The nowcasts by reporting date and, if the list has onsets, by onset, and R(t)."""

    reported: Nowcast
    onsets: OnsetNowcast | None
    number: Reproduction

    def to_long(self) -> pl.DataFrame:
        """A row for each region and day: cases as known and as estimated, and R, with intervals."""
        made, low, high = self.reported, *(QUANTILES.index(level) for level in BAND)
        lowest, _, middle, _, highest = (f"q{level:g}" for level in LEVELS)
        cases = made.to_long().filter(level=0.5).drop("level", "value")
        return cases.with_columns(
            lower=pl.Series(made.quantiles[..., low].ravel()),
            upper=pl.Series(made.quantiles[..., high].ravel()),
        ).join(
            self.number.to_long().select(
                "region",
                "date",
                r=pl.col(middle),
                r_lower=pl.col(lowest),
                r_upper=pl.col(highest),
            ),
            on=["region", "date"],
            how="left",
            maintain_order="left",
        )


def nowcast_summary(history: Vintages, generation: Generation | None = None) -> NowcastSummary:
    """Nowcasts and R(t) as of the last vintage of a history."""
    made = nowcast(history)
    fallen_ill = onset_nowcast(history, made)
    draws = fallen_ill.draws if fallen_ill else reported_draws(history, made)
    number = reproduction(draws, history.regions, made.days[-1], len(made.days), generation)
    return NowcastSummary(made, fallen_ill, number)


def nowcast_on(vintages: Vintages, day: date) -> pl.DataFrame | None:
    """The two weeks to a day as known on the next day; none if there are too few vintages."""
    morning = day + timedelta(days=1)
    if (morning - vintages.first).days < LEAST_VINTAGES:
        return None
    return nowcast_summary(vintages.until(morning)).to_long()
