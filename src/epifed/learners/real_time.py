"""The trend in real time: growth and lateness of reports, from what was known on each morning.

On the morning of a forecast the newest days are incomplete. So a client measures its growth on the
last days as known today against the same days of last week as known a week ago, and sends with it
the share of its cases that come late. Then it is the shared trend on a panel whose late days are
filled up: the same holidays, levels, places and releases; and past errors are those of the
forecasts that were made with what was known on each past morning. Without a history of what was
known, the counts are taken as complete.
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
"""Horizons that are mostly asked for together."""
HINDCASTS = 63
"""Past mornings at most whose forecasts are repeated."""
WEIGHT, LATE = 2, slice(3, 3 + LATE_DAYS)
"""Where a release says the mean weight and the late shares; before them are growth and level, after
them size and place."""
NUMBERS = 3 + LATE_DAYS + MODES

RECENCY, SLOW_RECENCY = 0.6, 0.7
"""Weight of a day relative to the next where a change is measured: the newest are half known."""
LARGEST_CHANGE = 0.45
"""Bound on a client's relative change, (now - before) / (now + before)."""
FULL_WEIGHT = 30.0
"""Cases in both weeks from which on a client counts fully; with fewer, by their root."""
LEVEL_SHARE, WEIGHT_SHARE, LATE_SHARE = 0.3, 0.15, 0.1
"""Bounds on the numbers that say a client's level, its weight and its late shares."""
UNEVEN = 1.2
"""How far above the mean level of clients that of cases lies, as a log incidence, for each unit of
the mean below the middle: growth is weighted by cases, which low levels spread unevenly."""

SEEN = 0.015
"""Deviation of a change that is seen without noise from the true one."""
USUAL_WEIGHT, WEIGHT_SPREAD, WEIGHT_DRIFT, LEAST_WEIGHT = 0.5, 0.3, 0.02, 0.1
"""Mean weight before any release, how far it may be off, how far it moves in a day, and the least
that is believed."""
LATE_SPREAD = 0.1
"""How far the late shares may be off the usual ones."""

OLDER_LATE, OLDER_FEW, FEW = 0.7, 0.5, 20.0
"""Weight of the last week but one in a client's level: so much of the share of the last one that is
filled up, and so much where there is no case, half of it with so many."""
OLDER_MOST = 0.6
CLEANED = 12 * WEEK
"""Days in which anomalous reports are looked for."""


MOST_MADE = 256
_MADE: dict[bytes, Floats] = {}
"""Forecasts [horizons, clients] of past mornings that this process has made, by the name of all
they depend on."""


@dataclass(frozen=True)
class _Morning:
    """What clients know on a morning, their late days filled up."""

    panel: CasePanel
    """With the median of what is still to come."""
    own: WeekdayEffects
    """With its mean."""
    filled: Floats
    """[clients]: the cases of the last week that are still to come, on average."""


class RealTimeTrend(Trend):
    """The growth and lateness of all clients, from lists as they were known on each morning."""

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
        self._filled: tuple[CasePanel, Releases, _Morning] | None = None

    @classmethod
    def at(cls, step: Step) -> type[Learner[Any, Any]]:
        """Days alone: of weeks nobody knows how late they are."""
        return super(Trend, cls).at(step)

    def view(self, panel: CasePanel, period: Period) -> LastDays:
        """What the last two weeks before the period's end say, as known at their ends."""
        self._refuse_short(panel, period)
        panel = panel.between(panel.start, period[1])
        known = late_reports.mornings(panel)
        morning = self._morning(replace(panel, history=None), known)
        own = morning.own
        now, before = own.usual[:, -WEEK:], own.usual[:, -2 * WEEK : -WEEK]
        found = late_reports.comparable(known)
        if found is not None and found[2] == 1:
            # Holidays are taken out of the days as known, as they are of the filled ones.
            moved = own.usual - own.counts
            now = np.maximum(found[0][:, ::-1] + moved[:, -WEEK:], 0.0)
            before = np.maximum(found[1][:, ::-1] + moved[:, -2 * WEEK : -WEEK], 0.0)
        (change, cases), (slow, _) = (change_of(own, now, before, r) for r in self.recency)
        cases = cases * WEEK / float((RECENCY ** np.arange(WEEK)).sum())
        weight = np.minimum(np.sqrt(cases / FULL_WEIGHT), 1.0)
        late = late_reports.late_shares(known) - USUAL_LATE
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
        """The forecast as it was made on each past morning, with what was known on it.

        Where the history is too short for an interval, also of mornings before it, with counts as
        if they had been complete; on a day without a snapshot it is that of the day before.
        """
        if panel.history is None:
            return super().hindcast(panel, state, horizon)
        history, known = panel.history, late_reports.mornings(panel)
        bare = replace(panel, history=None)
        ahead = WEEKS_AHEAD if horizon in WEEKS_AHEAD else (horizon,)
        facts = repr((self.own, panel.start, ahead, *_public(panel))).encode()
        made: list[Floats] = []
        for back in range(min(HINDCASTS, len(known) - 1), -1, -1):
            at = len(known) - 1 - back
            if np.isnan(known[at, 0, 0]) and made:
                made.append(made[-1])
                continue
            then = state.before(back)
            name = hashlib.sha256(facts + history.names[at] + _said(then)).digest()
            if name not in _MADE:
                until = history.as_known(history.first + timedelta(days=at), like=bare)
                until = replace(until, history=None)
                _MADE[name] = self._forecasts(until, known[: at + 1], then, ahead)
            made.append(_MADE[name][ahead.index(horizon)])
        while len(_MADE) > MOST_MADE:
            del _MADE[next(iter(_MADE))]
        past = np.stack(made, axis=1)
        more = horizon + LEAST_ERRORS + 1 - past.shape[1]
        if more > 0 and len(known) == past.shape[1]:
            end = bare.counts.shape[1] - 1 - len(known)
            if end >= 2 * WEEK:
                before = bare.between(bare.start, bare.day(end))
                complete = super().hindcast(before, state.before(len(known)), horizon)
                past = np.concatenate([complete[:, -more:], past], axis=1)
        return past

    def completed(self, panel: CasePanel, state: Releases) -> CasePanel:
        """The panel with its late days filled up."""
        return replace(self._filled_up(panel, state).panel, history=panel.history)

    def parts(self, panel: CasePanel, state: Releases, horizon: int) -> Parts:
        """What the country, the region, the client, its calendar and late reports add."""
        if panel.history is None:
            return super().parts(panel, state, horizon)
        morning = self._filled_up(panel, state)
        own = morning.own
        found, growing = self._parts(own, panel, state, horizon)
        taken, blended, reported = (
            days[:, -WEEK:].mean(axis=1) + SOFTENING
            for days in (own.usual, _blended(morning, growing).usual, panel.counts)
        )
        late = np.log((own.counts[:, -WEEK:].mean(axis=1) + SOFTENING) / reported)
        return replace(found, own=found.own + np.log(blended / taken), reports=late)

    def _signals(self, state: Releases) -> Signals:
        """What the releases say, their changes divided by the clients' mean weight."""
        return signals(_unweighted(state))

    def _filled_up(self, panel: CasePanel, state: Releases) -> _Morning:
        """The panel's morning; the last one is remembered."""
        if self._filled is None or self._filled[0] is not panel or self._filled[1] is not state:
            known = late_reports.mornings(panel)
            self._filled = panel, state, self._morning(replace(panel, history=None), known, state)
        return self._filled[2]

    def _morning(self, panel: CasePanel, known: Floats, state: Releases | None = None) -> _Morning:
        """The last of some mornings, whose panel ends on its newest day."""
        now = np.maximum(known[-1], 0.0)
        panel = late_reports.completed(panel, known, np.zeros((len(now), LATE_DAYS)))
        own = self._rhythm_of(_cleaned(panel))
        days = own.usual[:, : -late_reports.AGES - 1 : -1]
        usual = now.copy()
        usual[:, : days.shape[1]] = days
        told = late_reports.Usual(usual, own.last_factor[:, ::-1])
        growing = late_reports.growth(known, None if state is None else shared_growth(state))
        pooled = None if state is None else pooled_late(state)
        mean = late_reports.coming(known, growing, pooled, told)
        week = now[:, LATE_DAYS - 1 :: -1] + mean[:, ::-1]
        full = late_reports.completed(panel, known, late_reports.median_of(mean))
        return _Morning(full, own.ending(week), mean.sum(axis=1))

    def _forecasts(
        self, panel: CasePanel, known: Floats, state: Releases, ahead: Sequence[int]
    ) -> Floats:
        """The averages of the weeks that end so many days after the last morning's newest day."""
        morning = self._morning(panel, known, state)
        growing = self._growth(morning.own, panel, self._signals(state), 1)
        own = _blended(morning, growing)
        return np.stack([carried_on(own, growing, 1, days)[:, -1] for days in ahead])


def _cleaned(panel: CasePanel) -> CasePanel:
    """The panel with anomalous reports replaced, of the last weeks but for days that are late."""
    days = panel.counts.shape[1]
    first, end = max(days - CLEANED, 0), days - LATE_DAYS
    if end - first <= 3 * WEEK:
        return panel
    counts = panel.counts.copy()
    judged = panel.between(panel.day(first), panel.day(end - 1))
    counts[:, first:end] = clean(judged).panel.counts
    return replace(panel, counts=counts)


def _blended(morning: _Morning, growing: Growth) -> WeekdayEffects:
    """The rhythm with a level that counts the week before, too, where the last one says little."""
    own = morning.own
    last, before = own.usual[:, -WEEK:], own.usual[:, -2 * WEEK : -WEEK]
    cases = last.sum(axis=1)
    older = OLDER_LATE * morning.filled / (cases + 1) + OLDER_FEW / (1 + cases / FEW)
    older = np.minimum(older, OLDER_MOST)[:, None]
    usual = own.usual.copy(order="K")
    usual[:, -WEEK:] = (1 - older) * last + older * before * np.exp(growing.shared)
    return replace(own, usual=usual)


def shared_growth(state: Releases) -> float:
    """The log growth of the next week that the releases say, once noise is weighed."""
    return float(signals(_unweighted(state)).growth[0])


def pooled_late(state: Releases) -> Floats:
    """The late share by lag that the releases say, against the usual one."""
    precision = state.precision[:, LATE]
    said = (state.values[:, LATE] * precision).sum(axis=0)
    mean: Floats = said / (precision.sum(axis=0) + 1 / LATE_SPREAD**2)
    return np.clip(USUAL_LATE + mean, 0.0, 1.0)


def _unweighted(state: Releases) -> Releases:
    """What the releases say in the trend's order, changes divided by the mean weight so far."""
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
    """What a forecast may depend on beside the cases."""
    places = (panel.population, panel.typical_population, panel.positions)
    return panel.calendars, *(None if one is None else one.tobytes() for one in places)


def _said(state: Releases) -> bytes:
    """A name for what the releases say, however many days are remembered."""
    days = int(np.flatnonzero(state.precision.any(axis=1)).max(initial=-1)) + 1
    told = np.concatenate([state.values[:days], state.precision[:days]])
    return hashlib.sha256(told.astype(np.float32).tobytes()).digest()
