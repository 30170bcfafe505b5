"""Nowcasts: the late cases of the last days, estimated from past reporting delays.

An authority mostly sends the cases of a day together. So a day without any case, where some are
expected, is probably late as a whole. A day with some cases lacks what usually follows the first
ones. Counts are not divided by their completeness, which would leave zeros and double chance cases.
Late shares are relative to the cases expected of that weekday. A client does this alone. The growth
of cases, and the completeness of a day elsewhere, may come from a public release.
"""

from dataclasses import dataclass, replace
from datetime import date, timedelta

import numpy as np
import polars as pl
from numpy.typing import NDArray

from epifed.data import calendar, quality
from epifed.data.calendar import WEEK
from epifed.data.panel import CasePanel, long_table
from epifed.data.vintages import LEAST_VINTAGES, MOST_LAGS, Vintages
from epifed.errors import EpifedError, counted
from epifed.intervals import LEVELS

Floats = NDArray[np.float64]

LATE_DAYS = WEEK
"""Number of newest reporting dates that are completed; older ones are nearly complete."""
SHOWN_DAYS = 2 * WEEK
AGES = MOST_LAGS
"""Number of lags that are used."""
BACK = 28
"""Number of vintages from which a client learns its reporting delays."""
SETTLED = 2
"""Days after which most late cases are reported, so that a vintage can be used for learning."""

USUAL_LATE = np.array([0.5, 0.12, 0.06, 0.03, 0.02, 0.012, 0.01])
"""Prior share of a day's cases that is late, by lag (Germany, August 2020)."""
PRIOR_CASES = 3.0
"""Weight of the pooled share, in cases of the client."""
WEEKDAYS = (0.5, 0.3, 0.2)
"""Weights of the same weekday one, two and three weeks before."""
SOFTENING = 20.0
"""Cases a week at which a client's own growth has half its weight."""
FOLLOW = 0.8
"""Share of the observed growth that is expected to continue."""
FURTHER = 0.4
"""Prior of the late share of days with some known cases, relative to that of all days."""
SPREAD = 1.0
"""Size of the negative binomial distribution for the chance that a day truly has no case."""
MEDIAN = 0.6
"""Difference between the mean and the median of the late cases."""
LARGEST_GROWTH = 0.8
"""Bound on the weekly log growth expected to continue, which is not meaningful after a silence."""

MOST_INCOMPLETE = WEEK
"""Largest number of newest days that are judged incomplete."""
LATE_BELOW, LATE_BELOW_FIRST, LOW_DAY = 0.7, 0.8, 0.9
"""Bounds on the share of the expected cases for incomplete days: all together, the oldest of them,
and each of them."""
SURE = 2.5
"""Standard deviations of chance by which incomplete days must lack cases."""
COMPARED_DAYS = 70
"""Past days whose runs are compared with an incomplete one."""
LARGEST_RATIO = 2.0
"""Bound on the weekly growth in the expectation for incomplete days."""

ERROR_VINTAGES = 42
"""Number of past nowcasts whose errors determine an interval."""
PRIOR_VINTAGES = 20
"""Weight of the usual errors, in vintages of the client."""
WIDER = 1.2
"""Factor on the client's own errors, because they are few and correlated within a week."""
OUTER = 0.1
"""Tails in which an interval is at least as wide as the usual errors."""
USUAL_ERRORS = np.interp(
    LEVELS,
    (0.01, 0.025, 0.1, 0.25, 0.5, 0.6, 0.75, 0.9, 0.975, 0.99),
    (-2.45, -2.1, -1.1, -0.6, -0.1, 0.1, 1.2, 3.1, 6.6, 8.5),
)
"""Quantiles of the errors of nowcasts relative to `_scale` (400 German counties, August 2020)."""


@dataclass(frozen=True)
class Usual:
    """A client's counts with holiday effects removed, and the factor of each day."""

    counts: Floats
    """[clients, lags]: the days before the last vintage, holidays as usual days."""
    factor: Floats
    """[clients, 7]: cases by lag, relative to those of a usual day."""


@dataclass(frozen=True)
class Nowcast:
    """Estimates of the last days after all reports have arrived, with quantiles at `LEVELS`."""

    as_of: date
    days: tuple[date, ...]
    regions: tuple[str, ...]
    known: Floats
    """[regions, days]: cases known so far."""
    point: Floats
    quantiles: Floats
    """[regions, days, levels]"""
    week: Floats
    """[regions]: cases of the last seven days."""
    week_quantiles: Floats

    def to_long(self) -> pl.DataFrame:
        """A row for each region, day and quantile level."""
        cells = {"known": self.known, "estimate": self.point, "value": self.quantiles}
        axes = {"region": self.regions, "date": self.days, "level": LEVELS}
        order = ("region", "date", "known", "estimate", "level", "value")
        return long_table(axes, cells).select(pl.lit(self.as_of).alias("as_of"), *order)


def nowcast(
    history: Vintages, shared_growth: float | None = None, pooled: Floats | None = None
) -> Nowcast:
    """The last two weeks as of the last vintage of a history, by reporting date.

    `shared_growth` is the log growth in a week and `pooled` the late share by lag, both of all
    clients, from a release.
    """
    by_age = history.known(AGES)
    if len(by_age) < LEAST_VINTAGES:
        raise EpifedError(
            f"{history.source}: found {counted(len(by_age), 'day')} from {history.first} to "
            f"{history.last}; "
            f"expected at least {LEAST_VINTAGES} to learn how late cases are reported"
        )
    filled = fill(by_age, growth(by_age, shared_growth), pooled)
    now = by_age[-1]
    mornings = _mornings(by_age, pooled)
    total = _week(now, filled, mornings)
    shown = now[:, SHOWN_DAYS - 1 :: -1]
    point, quantiles = shown.copy(), np.repeat(shown[:, :, None], len(LEVELS), axis=2)
    for lag in range(LATE_DAYS):
        errors = np.array([error[:, lag] for _, _, error in mornings])
        spread = filled[:, lag, None] + _errors(filled[:, lag], now[:, lag], errors)
        at = SHOWN_DAYS - 1 - lag
        point[:, at] += filled[:, lag]
        quantiles[:, at] = np.maximum(now[:, lag, None] + np.round(spread), 0.0)
    return Nowcast(
        as_of=history.last,
        days=tuple(history.last - timedelta(days=SHOWN_DAYS - i) for i in range(SHOWN_DAYS)),
        regions=history.regions,
        known=shown,
        point=point,
        quantiles=quantiles,
        week=now[:, :WEEK].sum(axis=1) + filled.sum(axis=1),
        week_quantiles=total,
    )


def completed(panel: CasePanel, by_age: Floats, filled: Floats) -> CasePanel:
    """The panel with its last days as known in the last vintage, and the late cases added."""
    counts = panel.counts.copy()
    now = np.maximum(by_age[-1], 0.0)
    now[:, :LATE_DAYS] += filled
    days = min(AGES, counts.shape[1])
    counts[:, : -days - 1 : -1] = now[:, :days]
    return replace(panel, counts=counts)


def comparable(by_age: Floats) -> tuple[Floats, Floats, float] | None:
    """The last week as known now, a week before it as known at its own end, and the weeks between.

    By lag, [clients, 7] each. Reporting delays do not bias the growth between them. None without a
    vintage of one or two weeks ago.
    """
    for weeks in (1, 2):
        back = weeks * WEEK
        if back < len(by_age) and _looked(by_age[-1 - back]):
            return by_age[-1, :, :WEEK], by_age[-1 - back, :, :WEEK], float(weeks)
    return None


def mornings(panel: CasePanel) -> Floats:
    """The counts as known on each day, in the form of `Vintages.known(AGES)`.

    A panel without vintages is taken as complete on all days.
    """
    if panel.history is not None:
        return panel.history.known(AGES)
    return as_complete(panel.counts)


def as_complete(counts: Floats) -> Floats:
    """The vintages after each day of counts [regions, days], as if no report were ever late."""
    padded = np.concatenate([np.zeros((len(counts), AGES - 1)), counts], axis=1)
    by_age = np.lib.stride_tricks.sliding_window_view(padded, AGES, axis=1)[:, :, ::-1]
    return np.ascontiguousarray(by_age.transpose(1, 0, 2))


def incomplete_days(panel: CasePanel) -> int:
    """The number of a panel's newest days that look incomplete, compared with its own past.

    All regions together. A day is expected to equal the same weekdays of the two weeks before the
    run, times the growth of those weeks. A run of newest days is incomplete if each day is far
    below expectation, more than by chance. The run must also be lower than any run of its length
    in the weeks before. Public holidays explain a low day. A backlog counts as the expected cases:
    otherwise the days after it would look low.
    """
    if panel.step != "day":
        return 0
    cleaned = quality.clean(replace(panel, history=None))
    counts = np.where(cleaned.kinds == quality.BACKLOG, cleaned.panel.counts, panel.counts)
    totals, closed = counts.sum(axis=0), _closed(panel)
    for run in range(min(MOST_INCOMPLETE, (len(totals) - 3 * WEEK) // 2), 0, -1):
        shares, expected = _tail(totals, run)
        low = (shares < LOW_DAY) & ~closed[len(totals) - run :]
        missing = float(((1 - shares) * expected).sum())
        certain = missing > SURE * np.sqrt(expected.sum() + 1.0)
        share = float(shares @ expected) / max(float(expected.sum()), 1e-9)
        if not (low.all() and shares[0] < LATE_BELOW_FIRST and share < LATE_BELOW and certain):
            continue
        ends = range(len(totals) - run, max(len(totals) - COMPARED_DAYS, 3 * WEEK + run), -1)
        before = [_share(totals[:end], run) for end in ends]
        if not before or share < min(before):
            return run
    return 0


def _tail(totals: Floats, run: int) -> tuple[Floats, Floats]:
    """For each of the newest days, its share of the expected cases, and that expectation."""
    complete = totals[: len(totals) - run]
    last, before = complete[-WEEK:].sum(), complete[-2 * WEEK : -WEEK].sum()
    grown = np.clip((last + 1) / (before + 1), 1 / LARGEST_RATIO, LARGEST_RATIO)
    place = np.arange(run)
    alike = (complete[place - WEEK] * grown + complete[place - 2 * WEEK] * grown**2) / 2
    newest = totals[len(totals) - run :]
    return newest / np.maximum(alike, 1e-9), alike


def _share(totals: Floats, run: int) -> float:
    """The share of the expected cases of the newest days that was observed, all together."""
    shares, expected = _tail(totals, run)
    return float(shares @ expected) / max(float(expected.sum()), 1e-9)


def _closed(panel: CasePanel) -> NDArray[np.bool_]:
    """Which days are a public holiday of most regions."""
    days = panel.counts.shape[1]
    if not panel.calendars:
        return np.zeros(days, dtype=np.bool_)
    off = [calendar.closed(code, panel.start, days)[0] for code in panel.calendars]
    return np.asarray(np.mean(off, axis=0) > 1 / 2)


def growth(by_age: Floats, shared: float | None = None) -> Floats:
    """The expected weekly log growth of each client, from comparable vintages.

    It compares the last seven days as known today with those of a week before as known then. Few
    cases have little weight. The growth of all clients, if known, has the same weight as the own.
    """
    weeks_alike = comparable(by_age)
    if weeks_alike is None:
        own = np.zeros(by_age.shape[1])
    else:
        now, before, weeks = weeks_alike
        ratio = (now.sum(axis=1) + SOFTENING) / (before.sum(axis=1) + SOFTENING)
        own = FOLLOW * np.clip(np.log(ratio) / weeks, -LARGEST_GROWTH, LARGEST_GROWTH)
    return own if shared is None else (own + shared) / 2


def late_counts(by_age: Floats, *, some: bool = False) -> tuple[Floats, Floats]:
    """By client and lag: cases reported later, and cases known by now, of the last vintages.

    With `some`, only of days that had some cases in the vintage.
    """
    now = by_age[-1]
    late, total = np.zeros((len(now), LATE_DAYS)), np.zeros((len(now), LATE_DAYS))
    for back in range(SETTLED, min(BACK, len(by_age) - 1) + 1):
        then = by_age[-1 - back, :, :LATE_DAYS]
        if _looked(by_age[-1 - back]):
            by_now = now[:, back : back + LATE_DAYS]
            counted = (then > 0) | (not some)
            late += counted * (by_now - then)
            total += counted * by_now
    return late, total


def late_shares(by_age: Floats, pooled: Floats | None = None, *, some: bool = False) -> Floats:
    """The late share by client and lag: the own share, shrunk to the pooled one.

    With `some`, of days that already have some cases.
    """
    late, total = late_counts(by_age, some=some)
    prior = (FURTHER if some else 1.0) * (USUAL_LATE if pooled is None else pooled)
    shares: Floats = np.clip((late + PRIOR_CASES * prior) / (total + PRIOR_CASES), 0.0, 1.0)
    return shares


def fill(by_age: Floats, growing: Floats, pooled: Floats | None = None) -> Floats:
    """The median number of late cases of the last days [clients, lags], as of the last vintage.

    The total is a median, which scores require, and 0 where few cases are late.
    """
    return median_of(coming(by_age, growing, pooled))


def coming(
    by_age: Floats, growing: Floats, pooled: Floats | None = None, usual: Usual | None = None
) -> Floats:
    """The mean number of late cases of the last days [clients, lags].

    `by_age` is `Vintages.known(AGES)`, `growing` each client's weekly log growth. `usual` holds
    its holiday effects.
    """
    if usual is None:
        expected = _expected(by_age[-1], growing)
    else:
        expected = _expected(usual.counts, growing) * usual.factor
    late, further = late_shares(by_age, pooled), late_shares(by_age, pooled, some=True)
    truly_none = (1 + np.maximum(expected, 0.0) / SPREAD) ** -SPREAD
    only_late = late / np.maximum(late + (1 - late) * truly_none, 1e-12)
    mean: Floats = np.where(by_age[-1, :, :LATE_DAYS] > 0, further, only_late) * expected
    return mean


def median_of(mean: Floats) -> Floats:
    """Scale mean late cases to the median of their total, which is 0 where few are late."""
    total = mean.sum(axis=1, keepdims=True)
    filled: Floats = mean * np.maximum(1 - MEDIAN / np.maximum(total, MEDIAN), 0.0)
    return filled


def _expected(now: Floats, growing: Floats) -> Floats:
    """The expected cases of each of the last days, from level, weekday and growth."""
    lag = np.arange(LATE_DAYS)
    grown = np.exp(growing)[:, None]
    alike = sum(
        weight * now[:, lag + WEEK * (week + 1)] * grown ** (week + 1)
        for week, weight in enumerate(WEEKDAYS)
    )
    level = now[:, SETTLED : SETTLED + 10].mean(axis=1, keepdims=True) * grown
    same = sum(now[:, lag + WEEK * week] for week in (1, 2, 3, 4))
    around = np.stack([now[:, i + 4 : i + 4 + 4 * WEEK].sum(axis=1) / WEEK for i in lag], axis=1)
    expected: Floats = 0.5 * alike + 0.5 * level * (same + 2) / (around + 2)
    return expected


def _mornings(by_age: Floats, pooled: Floats | None) -> list[tuple[Floats, Floats, Floats]]:
    """Nowcasts as of past vintages: late cases estimated, cases known then, and scaled errors."""
    made = []
    for back in range(SETTLED + 1, min(ERROR_VINTAGES, len(by_age) - LEAST_VINTAGES) + 1):
        then = by_age[: len(by_age) - back]
        if _looked(then[-1]):
            filled = fill(then, growth(then), pooled)
            seen = then[-1, :, :LATE_DAYS]
            came = by_age[-1, :, back : back + LATE_DAYS] - seen
            made.append((filled, seen, came - filled))
    return [(filled, seen, error / _scale(filled, seen)) for filled, seen, error in made]


def _week(now: Floats, filled: Floats, mornings: list[tuple[Floats, Floats, Floats]]) -> Floats:
    """Quantiles of the cases of the last seven days."""
    errors = []
    for then, seen, error in mornings:
        off = (error * _scale(then, seen)).sum(axis=1)
        errors.append(off / _scale(then.sum(axis=1), seen.sum(axis=1)))
    so_far, late = now[:, :WEEK].sum(axis=1), filled.sum(axis=1)
    spread = late[:, None] + _errors(late, so_far, np.array(errors))
    total: Floats = np.maximum(so_far[:, None] + np.round(spread), 0.0)
    return total


def _scale(filled: Floats, seen: Floats) -> Floats:
    """The usual size of an error: from chance, from corrections, and in proportion."""
    scale: Floats = np.sqrt(0.25 + filled + 0.02 * seen + (0.4 * filled) ** 2)
    return scale


def _errors(filled: Floats, seen: Floats, past: Floats) -> Floats:
    """Quantiles of a nowcast's error [clients, levels], from the client's and the usual ones."""
    usual = np.broadcast_to(USUAL_ERRORS, (len(filled), len(LEVELS)))
    if len(past) == 0:
        return usual * _scale(filled, seen)[:, None]
    own = WIDER * np.quantile(past, LEVELS, axis=0).T
    both = (len(past) * own + PRIOR_VINTAGES * usual) / (len(past) + PRIOR_VINTAGES)
    levels = np.array(LEVELS)
    both = np.where(levels < OUTER, np.minimum(both, usual), both)
    both = np.where(levels > 1 - OUTER, np.maximum(both, usual), both)
    errors: Floats = np.maximum.accumulate(both, axis=1) * _scale(filled, seen)[:, None]
    return errors


def _looked(morning: Floats) -> bool:
    return not np.isnan(morning[0, 0])
