"""The trend of weekly counts: one released number, and a forecaster fitted on public history.

A client sends one bounded number, its change of the last week. The growth of all clients is
released. Each client then forecasts alone. It completes its newest weeks from its own vintages and
further signals, describes them, and applies a forecaster fitted on public data (`pretrained`). Its
own past errors decide the width of its intervals, and the weights of the seasonal forecast and the
damped trend. Only the released number leaves the client.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from epifed.data.calendar import WEEK
from epifed.data.panel import CasePanel, Level
from epifed.errors import EpifedError
from epifed.learners.base import DAYS_BACK, SOFTENING, Floats, Own, Parts, Period, Signal, Vector
from epifed.learners.growth import GROWTH, NUMBERS, TYPICAL, ReleaseLearner, Releases, signals
from epifed.learners.growth import HISTORY as REMEMBERED
from epifed.learners.pretrained import (
    ALL_YEAR,
    FEATURES,
    HIGH,
    HISTORY,
    LARGEST_CHANGE,
    OFFSET,
    SHIPPED,
    Described,
    Pretrained,
    bounded_change,
    describe,
    few_of,
    read_pretrained,
    week_of_year,
)

SHARED = [FEATURES.index(name) for name in ("growth of all clients", "their growth before")]
PLAUSIBLE, CHANCES = 0.9, 2.5
"""A week is a reporting artefact if its log growth is further from that of all clients than this,
plus so many standard deviations of chance."""
ERRORS, FORGETTING = 18, 0.92
"""Number of past forecasts whose errors are used, and the weight of an error a week later."""
BORROWED, LARGEST_ERROR = 10.0, 4.0
"""Weight of the usual error in own errors, for the width, and the bound on an error in usual
ones."""
WIDER = 1.12
"""Factor on the width of intervals, for changes without precedent."""
AT_FIRST = np.array([0.7, 0.3])
"""Weights of the seasonal forecast and the damped trend before any error is known."""
ALONE = 1.0
"""Clients at which the shared growth has half its weight. The mean of few repeats their own."""
HOLIDAYS, AT_HOLIDAYS = (0, 1, 51, 52), np.array([0.95, 0.05])
"""Weeks of the year around Christmas and New Year, whose growth is no trend, and the two weights
then: only the seasonal forecast accounts for the holidays."""


class WeeklyOwn(Own):
    """The setting for the forecaster to apply."""

    pretrained: str = Field(
        SHIPPED,
        description="forecaster fitted on public data: respiratory (in the package) or a file of "
        "'epifed pretrain'",
    )


@dataclass(frozen=True)
class LastWeeks:
    """The relative change of each client's last week against the week before."""

    change: Floats

    def __len__(self) -> int:
        """The number of clients."""
        return len(self.change)

    def of(self, clients: NDArray[np.int64]) -> "LastWeeks":
        """The change of some clients only."""
        return LastWeeks(self.change[clients])


@dataclass(frozen=True)
class _Origin:
    """Data as known in one week: completed counts [regions, weeks] and the released growth."""

    day: date
    counts: Floats
    growth: Floats

    def described(self, level: Level | None) -> Described:
        counts = self.counts if level is None else level.sum(self.counts)
        return describe(counts, self.growth, few_of(counts))


@dataclass(frozen=True)
class _Made:
    """The seasonal forecast and the damped trend as of each origin."""

    change: Floats
    """[origins, 2, regions]: the log change."""
    width: Floats
    """The mean error of each change."""
    missed: Floats
    """[past forecasts, 2, regions]: their absolute log errors, the newest first."""
    past_width: Floats
    """The mean error that was expected of each."""

    def errors(self) -> Floats:
        """The present size of errors in expected ones, shrunk towards 1."""
        weight = FORGETTING ** np.arange(len(self.missed))
        away = np.minimum(self.missed / self.past_width, LARGEST_ERROR)
        total = np.tensordot(weight, away, axes=1)
        return np.asarray((total + BORROWED) / (weight.sum() + BORROWED))

    def shares(self, week: int) -> Floats:
        """The weight of each forecast in a week of the year: [2, regions].

        Errors are compared as draws from double exponential distributions.
        """
        regions = self.missed.shape[2]
        if week in HOLIDAYS:
            return np.repeat(AT_HOLIDAYS[:, None], regions, axis=1)
        weight = FORGETTING ** np.arange(len(self.missed))
        away = np.minimum(self.missed / self.past_width[:, :1], LARGEST_ERROR)
        log = np.log(AT_FIRST)[:, None] - np.tensordot(weight, away, axes=1)
        share = np.exp(log - log.max(axis=0))
        return np.asarray(share / share.sum(axis=0))


class WeeklyTrend(ReleaseLearner[LastWeeks]):
    """The mean growth of all clients from one release a week, on weekly panels.

    It is the learner `trend` at the step `week`. Rows of its state are weeks.
    """

    name = "trend"
    own_settings = WeeklyOwn
    any_horizon: ClassVar[bool] = True
    remembered: ClassVar[tuple[int, int]] = (REMEMBERED, len(NUMBERS))

    @classmethod
    def preset(cls, clients: int, given: Mapping[str, Any]) -> dict[str, Any]:
        """One round of all clients, with one bounded number."""
        everybody = {"clients_per_round": clients, "rounds": 1, "accountant": "pld"}
        return super().preset(clients, given) | everybody | {"clip_norm": LARGEST_CHANGE}

    def fingerprint(self) -> str:
        """The hash of the forecaster's numbers, which another file of the same name changes."""
        return self._pretrained.digest()

    def view(self, panel: CasePanel, period: Period) -> LastWeeks:
        """The change over the last two weeks up to the period's end, however long the period is."""
        panel.refuse_step("week")
        end = panel.index(period[1]) + 1
        if not 2 <= end <= panel.counts.shape[1]:
            raise EpifedError(
                f"{panel.source}: found the weeks {panel.start} … {panel.end} for learner "
                f"'trend'; expected two up to {period[1]}"
            )
        known = panel if end == panel.counts.shape[1] else panel.between(panel.start, period[1])
        counts = _revised(known)[:, -HISTORY:]
        offset = OFFSET * np.quantile(counts, HIGH, axis=1) + few_of(known.counts)
        return LastWeeks(bounded_change(counts[:, -2:], offset)[:, 0])

    def empty_view(self) -> LastWeeks:
        """The view without clients."""
        return LastWeeks(np.zeros(0))

    def contribute(self, state: Releases, view: LastWeeks) -> Vector:
        """The bounded change of each client."""
        del state
        change = np.clip(view.change, -LARGEST_CHANGE, LARGEST_CHANGE)
        return change[:, None].astype(np.float32)

    def entries(self, length: int) -> tuple[str, ...]:
        """The description of the change, the only number."""
        del length
        return ("change against the week before",)

    def step(self, state: Releases, release: Vector, noise_std: float) -> Releases:
        """Add the release of the last week to the state, shrunk where it is the mean of few."""
        clients = self.settings.clients_per_round
        return state.said(release, np.full(1, clients / (clients + ALONE)), noise_std)

    def predict(self, state: Releases, inputs: Vector) -> Floats:
        """The last value of each window times the growth of the country."""
        growth = float(signals(state, week=1).growth[0])
        weight = self._pretrained.coefficients[ALL_YEAR, self.settings.horizon - 1, SHARED]
        last: Floats = inputs[..., -1].astype(np.float64)
        return last * float(np.exp(weight.sum() * growth))

    def advance(self, state: Releases, days: int) -> Releases:
        """The state so many days later, in whole weeks; the new weeks are unknown."""
        return state.later(days // WEEK)

    def completed(self, panel: CasePanel, state: Releases) -> CasePanel:
        """The panel with its newest weeks revised from vintages, an implausible one replaced."""
        growth = _growth(state, panel.counts.shape[1])
        return replace(panel, counts=_plausible(_revised(panel), growth))

    def hindcast(self, panel: CasePanel, state: Releases, horizon: int) -> Floats:
        """The median forecast as of each of the last weeks."""
        weeks = min(panel.counts.shape[1] - 1, DAYS_BACK // WEEK)
        points = []
        for origin in _origins(panel, state, max(weeks, 1)):
            now = origin.described(None)
            change, _ = self._pretrained.predict(now, week_of_year(origin.day), horizon)
            points.append(np.maximum(np.exp(now.log + change) - now.offset, 0.0))
        return np.stack(points, axis=1)

    def quantiles(
        self, panel: CasePanel, state: Releases, horizon: int, level: Level | None = None
    ) -> tuple[Floats, Floats]:
        """Median and quantiles, as wide as public series and the own past errors suggest.

        A larger region's median is the sum of its parts' medians, its quantiles are of its sums.
        """
        origins = _origins(panel, state, ERRORS + horizon)
        point, spread = self._distribution(origins, horizon, None)
        if level is None:
            return point, spread
        whole, spread = self._distribution(origins, horizon, level)
        total = level.sum(point)
        ratio = np.where(whole > 0, total / np.maximum(whole, 1e-12), 1.0)
        return total, spread * ratio[:, None]

    def _distribution(
        self, origins: list["_Origin"], horizon: int, level: Level | None
    ) -> tuple[Floats, Floats]:
        """Median and quantiles as of the newest origin."""
        every = [origin.described(level) for origin in origins]
        rows = [(week_of_year(origin.day), ALL_YEAR) for origin in origins]
        final = origins[-1].counts if level is None else level.sum(origins[-1].counts)
        past = [self._made(every, rows, final, steps) for steps in sorted({1, horizon})]
        share, made = past[0].shares(rows[-1][0]), past[-1]
        change, width = made.change[-1], made.width[-1] * made.errors()
        now = every[-1]
        middle = now.log + (share * change).sum(axis=0)
        size = WIDER * (share * width).sum(axis=0)
        shape = self._pretrained.shape[horizon - 1]
        shape = shape - shape[len(shape) // 2]
        logs = middle[:, None] + size[:, None] * shape
        values = np.maximum(np.exp(logs) - now.offset[:, None], 0.0)
        return values[:, len(shape) // 2], values

    def _made(
        self, every: list[Described], rows: list[tuple[int, int]], final: Floats, horizon: int
    ) -> "_Made":
        """Both forecasts as of each origin, and the errors of the past ones."""
        made = [
            [self._pretrained.predict(now, week, horizon) for week in both]
            for now, both in zip(every, rows, strict=True)
        ]
        change, width = (np.array([[pair[i] for pair in both] for both in made]) for i in (0, 1))
        missed, places = [], range(len(every) - 1 - horizon, -1, -1)
        for place in places:
            now, back = every[place], len(every) - 1 - place
            truth = np.log(final[:, -1 - back + horizon] + now.offset)
            missed.append(np.abs(truth - now.log - change[place]))
        shape = len(places), 2, len(final)
        return _Made(change, width, np.reshape(missed, shape), width[list(places)].reshape(shape))

    def parts(self, panel: CasePanel, state: Releases, horizon: int) -> Parts:
        """The parts of the forecast by all clients, the client itself and the time of the year."""
        origin = _origins(panel, state, 1)[-1]
        now = origin.described(None)
        weight = self._pretrained.coefficients[week_of_year(origin.day), horizon - 1]
        added = now.features * weight
        country = added[:, SHARED].sum(axis=1)
        season = added[:, 0]
        reports = np.log((origin.counts[:, -1] + SOFTENING) / (panel.counts[:, -1] + SOFTENING))
        own = added.sum(axis=1) - country - season
        return Parts(country, np.zeros(len(own)), own, season, reports)

    def signal(self) -> Signal:
        """The growth of the country in a week."""
        scale = 2.0  # log growth per relative change, near none
        return Signal("the growth of a week", scale * float(TYPICAL[GROWTH]), scale)

    @property
    def _pretrained(self) -> Pretrained:
        return read_pretrained(str(self.settings.own["pretrained"]))


def _growth(state: Releases, weeks: int) -> Floats:
    """The released log growth of each of the last weeks; NaN before the first release."""
    released = signals(state, week=1)
    told = np.where(np.isnan(released.level), np.nan, released.growth)
    told[0] = released.growth[0]
    growth = np.full(weeks, np.nan)
    there = min(weeks, len(told))
    growth[weeks - there :] = told[:there][::-1]
    return growth


def _revised(panel: CasePanel) -> Floats:
    """Counts with the newest weeks completed from vintages, where there are some."""
    vintages = panel.revisions
    if vintages is None:
        return panel.counts
    snapshot = len(vintages.snapshots) - 1
    if vintages.newest(snapshot) != panel.end:
        return panel.counts
    return vintages.completed(snapshot, panel.counts)


def _plausible(counts: Floats, growth: Floats) -> Floats:
    """Counts in which an implausible newest week is replaced by the one before, times growth."""
    if counts.shape[1] < 2:
        return counts
    few = few_of(counts)
    before, now = counts[:, -2], counts[:, -1]
    shared = 0.0 if np.isnan(growth[-1]) else float(growth[-1])
    offset = OFFSET * np.quantile(counts[:, -HISTORY:], HIGH, axis=1) + few + 1e-9
    grown = np.log((now + offset) / (before + offset))
    chance = CHANCES * np.sqrt(2 * few / (before + 1))
    bad = np.abs(grown - shared) > PLAUSIBLE + chance
    replaced = counts.copy()
    replaced[bad, -1] = before[bad] * np.exp(shared)
    return replaced


def _origins(panel: CasePanel, state: Releases, weeks: int) -> list[_Origin]:
    """The data as known in each of the last weeks, the panel's last one last.

    With vintages, as published then; without, the present counts up to that week.
    """
    length = panel.counts.shape[1]
    growth, now = _growth(state, length), _revised(panel)
    made = []
    for back in range(min(weeks, length) - 1, -1, -1):
        day, end = panel.end - timedelta(days=WEEK * back), length - back
        counts = now[:, :end]
        if back and panel.revisions is not None:
            snapshot = panel.revisions.snapshot_of(day)
            if snapshot is not None:
                counts = panel.revisions.completed(snapshot)[:, -end:]
        made.append(_Origin(day, _plausible(counts, growth[:end]), growth[:end]))
    return made
