"""The trend in real time: growth and reporting delays from data vintages, as known on each day.

On the day of a forecast the newest days are incomplete. So a client compares its last days as known
today with the same days of last week as known a week ago. It sends this growth and the share of its
cases that are reported late. The rest is the shared trend, on a panel with late days completed:
holidays, levels, places and releases are the same. Past errors are those of forecasts that were
made with the vintage of each past day. Without vintages the counts are taken as complete.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, ClassVar

import numpy as np

from epifed.data.calendar import WEEK, Step
from epifed.data.panel import CasePanel
from epifed.data.quality import clean
from epifed.data.weekday_effects import AHEAD, WeekdayEffects
from epifed.intervals import LEAST_ERRORS
from epifed.learners.base import SOFTENING, Floats, Learner, Parts, Period
from epifed.learners.growth import (
    GROWTH,
    HISTORY,
    LEVEL,
    MODES,
    Growth,
    Releases,
    Signals,
    carried_on,
    change_of,
    level_of,
    signals,
)
from epifed.learners.trend import LastDays, Trend
from epifed.nowcasting import late_reports
from epifed.nowcasting.late_reports import LATE_DAYS, USUAL_LATE
from epifed.settings import Settings

WEEKS_AHEAD = tuple(WEEK * weeks for weeks in range(1, AHEAD + 1))
"""Horizons that are usually forecast together."""
HINDCASTS = 63
"""Largest number of past days whose forecasts are repeated."""
WEIGHT, LATE = 2, slice(3, 3 + LATE_DAYS)
"""Places in a release of the mean weight and the late shares. Growth and level stand before them,
size and place after them."""
NUMBERS = 3 + LATE_DAYS + MODES

RECENCY, SLOW_RECENCY = 0.6, 0.7
"""Weight of a day relative to the next one in a change: newer days are less complete."""
LARGEST_CHANGE = 0.45
"""Bound on a client's relative change, (now - before) / (now + before)."""
FULL_WEIGHT = 30.0
"""Cases in both weeks from which a client has full weight; below, the weight follows their root."""
LEVEL_SHARE, WEIGHT_SHARE, LATE_SHARE = 0.3, 0.15, 0.1
"""Bounds on the numbers for a client's level, its weight and its late shares."""
UNEVEN = 1.2
"""Log distance of the case-weighted level above the mean level, for each unit by which the mean is
below the middle: growth is weighted by cases, which are spread unevenly at low levels."""

SEEN = 0.015
"""Standard deviation of a change measured without noise from the true change."""
USUAL_WEIGHT, WEIGHT_SPREAD, WEIGHT_DRIFT, LEAST_WEIGHT = 0.5, 0.3, 0.02, 0.1
"""Mean weight before any release, its standard deviation, its change in a day, and its least
value."""
LATE_SPREAD = 0.1
"""Standard deviation of the late shares around the usual ones."""

OLDER_LATE, OLDER_FEW, FEW = 0.7, 0.5, 20.0
"""Weight of the week before the last in a client's level: per share of the last week that was
completed, for a week without cases, and the number of cases that halves the second."""
OLDER_MOST = 0.6
CLEANED = 12 * WEEK
"""Days in which reporting artefacts are searched."""


MOST_MADE = 256
_MADE: dict[bytes, Floats] = {}
"""Cached forecasts [horizons, clients] as of past days, by a hash of all inputs."""


@dataclass(frozen=True)
class _FilledPanel:
    """A client's data as known on one day, with late days completed."""

    panel: CasePanel
    """The panel with the median of the late cases added."""
    own: WeekdayEffects
    """The weekday effects with the mean of the late cases added."""
    filled: Floats
    """[clients]: the mean number of late cases of the last week."""


class RealTimeTrend(Trend):
    """The growth and reporting delays of all clients, from data as known on each day."""

    name = "real-time"
    reads_history: ClassVar[bool] = True
    remembered: ClassVar[tuple[int, int]] = (HISTORY, NUMBERS)
    recency: ClassVar[tuple[float, float]] = RECENCY, SLOW_RECENCY
    largest_change: ClassVar[float] = LARGEST_CHANGE
    level_share: ClassVar[float] = LEVEL_SHARE
    uneven: ClassVar[float] = UNEVEN
    further: ClassVar[tuple[float, ...]] = (1 / WEIGHT_SHARE, *[1 / LATE_SHARE] * LATE_DAYS)
    further_entries: ClassVar[tuple[str, ...]] = (
        "weight of the change",
        *(f"late share of a day {age} days old, against the usual" for age in range(LATE_DAYS)),
    )
    further_bound: ClassVar[float] = math.hypot(WEIGHT_SHARE, LATE_SHARE)

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._filled: tuple[CasePanel, Releases, _FilledPanel] | None = None

    @classmethod
    def at(cls, step: Step) -> type[Learner[Any, Any]]:
        """Daily counts only, because reporting delays of weekly counts are not known."""
        return super(Trend, cls).at(step)

    def view(self, panel: CasePanel, period: Period) -> LastDays:
        """The change over the last two weeks before the period's end, as known at their ends."""
        self._refuse_short(panel, period)
        panel = panel.between(panel.start, period[1])
        by_age = late_reports.mornings(panel)
        morning = self._fill_up(replace(panel, history=None), by_age)
        own = morning.own
        now, before = own.usual[:, -WEEK:], own.usual[:, -2 * WEEK : -WEEK]
        weeks_alike = late_reports.comparable(by_age)
        if weeks_alike is not None and weeks_alike[2] == 1:
            # Holidays are removed from the days as known, as from the completed ones.
            moved = own.usual - own.counts
            now = np.maximum(weeks_alike[0][:, ::-1] + moved[:, -WEEK:], 0.0)
            before = np.maximum(weeks_alike[1][:, ::-1] + moved[:, -2 * WEEK : -WEEK], 0.0)
        (change, cases), (slow, _) = (change_of(own, now, before, r) for r in self.recency)
        cases = cases * WEEK / float((RECENCY ** np.arange(WEEK)).sum())
        weight = np.minimum(np.sqrt(cases / FULL_WEIGHT), 1.0)
        late = late_reports.late_shares(by_age) - USUAL_LATE
        late = LATE_SHARE * late / np.maximum(np.linalg.norm(late, axis=1, keepdims=True), 1.0)
        return LastDays(
            change,
            slow,
            level_of(own, panel, 1)[:, -1],
            self._place(panel),
            weight,
            np.concatenate([WEIGHT_SHARE * weight[:, None], late], axis=1),
        )

    def hindcast(self, panel: CasePanel, state: Releases, horizon: int) -> Floats:
        """Forecasts as of each past day, made with the vintage of that day.

        Where the vintages are too few for an interval, earlier days are added as if their counts
        had been complete. A day without a vintage uses the one of the day before.
        """
        if panel.history is None:
            return super().hindcast(panel, state, horizon)
        history, by_age = panel.history, late_reports.mornings(panel)
        bare = replace(panel, history=None)
        ahead = WEEKS_AHEAD if horizon in WEEKS_AHEAD else (horizon,)
        facts = repr((self.own, panel.start, ahead, *_public(panel))).encode()
        made: list[Floats] = []
        for back in range(min(HINDCASTS, len(by_age) - 1), -1, -1):
            at = len(by_age) - 1 - back
            if np.isnan(by_age[at, 0, 0]) and made:
                made.append(made[-1])
                continue
            then = state.before(back)
            name = hashlib.sha256(facts + history.names[at] + _said(then)).digest()
            if name not in _MADE:
                until = history.as_known(history.first + timedelta(days=at), like=bare)
                until = replace(until, history=None)
                _MADE[name] = self._forecasts(until, by_age[: at + 1], then, ahead)
            made.append(_MADE[name][ahead.index(horizon)])
        while len(_MADE) > MOST_MADE:
            del _MADE[next(iter(_MADE))]
        past = np.stack(made, axis=1)
        more = horizon + LEAST_ERRORS + 1 - past.shape[1]
        if more > 0 and len(by_age) == past.shape[1]:
            end = bare.counts.shape[1] - 1 - len(by_age)
            if end >= 2 * WEEK:
                before = bare.between(bare.start, bare.day(end))
                complete = super().hindcast(before, state.before(len(by_age)), horizon)
                past = np.concatenate([complete[:, -more:], past], axis=1)
        return past

    def completed(self, panel: CasePanel, state: Releases) -> CasePanel:
        """The panel with its late days completed."""
        return replace(self._filled_up(panel, state).panel, history=panel.history)

    def parts(self, panel: CasePanel, state: Releases, horizon: int) -> Parts:
        """The parts by country, region, client, its calendar and late reports."""
        if panel.history is None:
            return super().parts(panel, state, horizon)
        morning = self._filled_up(panel, state)
        own = morning.own
        parts, growing = self._parts(own, panel, state, horizon)
        taken, blended, reported = (
            days[:, -WEEK:].mean(axis=1) + SOFTENING
            for days in (own.usual, _blended(morning, growing).usual, panel.counts)
        )
        late = np.log((own.counts[:, -WEEK:].mean(axis=1) + SOFTENING) / reported)
        return replace(parts, own=parts.own + np.log(blended / taken), reports=late)

    def _signals(self, state: Releases) -> Signals:
        """The estimates from the releases, with changes divided by the clients' mean weight."""
        return signals(_unweighted(state))

    def _filled_up(self, panel: CasePanel, state: Releases) -> _FilledPanel:
        """The completed data of a panel's last day; the last result is cached."""
        if self._filled is None or self._filled[0] is not panel or self._filled[1] is not state:
            by_age = late_reports.mornings(panel)
            self._filled = panel, state, self._fill_up(replace(panel, history=None), by_age, state)
        return self._filled[2]

    def _fill_up(
        self, panel: CasePanel, by_age: Floats, state: Releases | None = None
    ) -> _FilledPanel:
        """The completed data as of the last vintage, for a panel that ends on its newest day."""
        now = np.maximum(by_age[-1], 0.0)
        panel = late_reports.completed(panel, by_age, np.zeros((len(now), LATE_DAYS)))
        own = self._rhythm_of(_cleaned(panel))
        days = own.usual[:, : -late_reports.AGES - 1 : -1]
        usual = now.copy()
        usual[:, : days.shape[1]] = days
        told = late_reports.Usual(usual, own.last_factor[:, ::-1])
        growing = late_reports.growth(by_age, None if state is None else shared_growth(state))
        pooled = None if state is None else pooled_late(state)
        mean = late_reports.coming(by_age, growing, pooled, told)
        week = now[:, LATE_DAYS - 1 :: -1] + mean[:, ::-1]
        full = late_reports.completed(panel, by_age, late_reports.median_of(mean))
        return _FilledPanel(full, own.ending(week), mean.sum(axis=1))

    def _forecasts(
        self, panel: CasePanel, by_age: Floats, state: Releases, ahead: Sequence[int]
    ) -> Floats:
        """Forecast averages of the weeks that end so many days after the newest known day."""
        morning = self._fill_up(panel, by_age, state)
        growing = self._growth(morning.own, panel, self._signals(state), 1)
        own = _blended(morning, growing)
        return np.stack([carried_on(own, growing, 1, days)[:, -1] for days in ahead])


def _cleaned(panel: CasePanel) -> CasePanel:
    """The panel with reporting artefacts of recent weeks replaced, except on late days."""
    days = panel.counts.shape[1]
    first, end = max(days - CLEANED, 0), days - LATE_DAYS
    if end - first <= 3 * WEEK:
        return panel
    counts = panel.counts.copy()
    judged = panel.between(panel.day(first), panel.day(end - 1))
    counts[:, first:end] = clean(judged).panel.counts
    return replace(panel, counts=counts)


def _blended(morning: _FilledPanel, growing: Growth) -> WeekdayEffects:
    """Weekday effects whose level also uses the week before, where the last week is uncertain."""
    own = morning.own
    last, before = own.usual[:, -WEEK:], own.usual[:, -2 * WEEK : -WEEK]
    cases = last.sum(axis=1)
    older = OLDER_LATE * morning.filled / (cases + 1) + OLDER_FEW / (1 + cases / FEW)
    older = np.minimum(older, OLDER_MOST)[:, None]
    usual = own.usual.copy(order="K")
    usual[:, -WEEK:] = (1 - older) * last + older * before * np.exp(growing.shared)
    return replace(own, usual=usual)


def shared_growth(state: Releases) -> float:
    """The filtered log growth of the next week, from the releases."""
    return float(signals(_unweighted(state)).growth[0])


def pooled_late(state: Releases) -> Floats:
    """The late share by lag: the usual one plus the released deviation, shrunk by its noise."""
    precision = state.precision[:, LATE]
    weighted = (state.values[:, LATE] * precision).sum(axis=0)
    mean: Floats = weighted / (precision.sum(axis=0) + 1 / LATE_SPREAD**2)
    return np.clip(USUAL_LATE + mean, 0.0, 1.0)


def _unweighted(state: Releases) -> Releases:
    """The releases in the trend's order of numbers, changes divided by the mean weight so far."""
    order = [GROWTH, LEVEL, *range(LATE.stop, NUMBERS)]
    values, precision = state.values[:, order].copy(), state.precision[:, order].copy()
    changes = [place for place, number in enumerate(order) if number != LEVEL]
    weight, spread = USUAL_WEIGHT, WEIGHT_SPREAD**2
    before: int | None = None
    for day in np.flatnonzero(state.precision[:, GROWTH] > 0)[::-1]:
        spread += WEIGHT_DRIFT**2 * (0 if before is None else before - int(day))
        before = int(day)
        gain = spread / (spread + 1 / state.precision[day, WEIGHT])
        weight, spread = weight + gain * (state.values[day, WEIGHT] - weight), spread * (1 - gain)
        clients = max(weight, LEAST_WEIGHT)
        values[day, changes] /= clients
        precision[day, changes] *= clients**2
    precision[:, GROWTH] /= 1 + SEEN**2 * precision[:, GROWTH]
    return Releases(values, precision)


def _public(panel: CasePanel) -> tuple[object, ...]:
    """The public inputs of a forecast: calendars, populations and positions."""
    places = (panel.population, panel.typical_population, panel.positions)
    return panel.calendars, *(None if place is None else place.tobytes() for place in places)


def _said(state: Releases) -> bytes:
    """A hash of the releases in a state, independent of how many days it holds."""
    days = int(np.flatnonzero(state.precision.any(axis=1)).max(initial=-1)) + 1
    told = np.concatenate([state.values[:days], state.precision[:days]])
    return hashlib.sha256(told.astype(np.float32).tobytes()).digest()
