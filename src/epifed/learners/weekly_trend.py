"""The trend of weekly counts: one released number, and what public history says follows it.

A client sends one bounded number, its change of the last week. The growth of all clients is
released. Each client then forecasts alone: it completes its newest weeks by its own vintages and
further signals, describes them, and applies a forecaster that was fitted on public data
(`pretrained`). How wide its intervals are, and whether its series follows the seasons that the
forecaster knows, it learns from its own past errors. All but the released number is local.
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
"""How far the log growth of a week may be from all clients', beside so many deviations of chance,
before the week is taken for a reporting artefact."""
ERRORS, FORGETTING = 18, 0.92
"""Past forecasts whose errors are looked at, and what an error counts a week later."""
BORROWED, LARGEST_ERROR = 10.0, 4.0
"""How many own errors a usual one is worth for the width, and how many usual ones an error counts
at most."""
WIDER = 1.12
"""By how much intervals are wider for what else may happen."""
AT_FIRST = np.array([0.7, 0.3])
"""How much the seasonal forecast and the damped trend are believed before any error is known."""
HOLIDAYS, AT_HOLIDAYS = (0, 1, 51, 52), np.array([0.95, 0.05])
"""Weeks of the year around Christmas and New Year, whose growth is no trend, and how much the two
are believed then: only the seasonal forecast knows what follows."""


class WeeklyOwn(Own):
    """Which forecaster is applied."""

    pretrained: str = Field(
        SHIPPED,
        description="forecaster fitted on public data: respiratory (in the package) or a file of "
        "'epifed pretrain'",
    )


@dataclass(frozen=True)
class LastWeeks:
    """The relative change of each client's last week against the one before."""

    change: Floats

    def __len__(self) -> int:
        """The number of clients."""
        return len(self.change)

    def of(self, clients: NDArray[np.int64]) -> "LastWeeks":
        """The change of some clients only."""
        return LastWeeks(self.change[clients])


@dataclass(frozen=True)
class _Origin:
    """What was known in one week: completed counts [regions, weeks] and the released growth."""

    day: date
    counts: Floats
    growth: Floats

    def described(self, level: Level | None) -> Described:
        counts = self.counts if level is None else level.sum(self.counts)
        return describe(counts, self.growth, few_of(counts))


@dataclass(frozen=True)
class _Made:
    """The seasonal forecast and the damped trend, as of each origin."""

    change: Floats
    """[origins, 2, regions]: the log change, and"""
    width: Floats
    """its mean error."""
    missed: Floats
    """[past forecasts, 2, regions]: by how much they were wrong, the newest first, and"""
    past_width: Floats
    """the mean error that was expected."""

    def errors(self) -> Floats:
        """How large the errors are at present, in expected ones, of which some are borrowed."""
        weight = FORGETTING ** np.arange(len(self.missed))
        away = np.minimum(self.missed / self.past_width, LARGEST_ERROR)
        total = np.tensordot(weight, away, axes=1)
        return np.asarray((total + BORROWED) / (weight.sum() + BORROWED))

    def shares(self, week: int) -> Floats:
        """How much each forecast is believed in a week of the year: [2, regions].

        Errors count as those of a double exponential distribution of one width do.
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
    """The mean growth of all clients from one release a week, on panels of weeks.

    It is the learner `trend` at the step `week`; places in its state are weeks.
    """

    name = "trend"
    own_settings = WeeklyOwn
    any_horizon: ClassVar[bool] = True
    remembered: ClassVar[tuple[int, int]] = (REMEMBERED, len(NUMBERS))

    @classmethod
    def preset(cls, clients: int, given: Mapping[str, Any]) -> dict[str, Any]:
        """Everybody once, with one bounded number."""
        everybody = {"clients_per_round": clients, "rounds": 1, "accountant": "pld"}
        return super().preset(clients, given) | everybody | {"clip_norm": LARGEST_CHANGE}

    def fingerprint(self) -> str:
        """The forecaster's numbers: another file under the same name is another forecast."""
        return self._pretrained.digest()

    def view(self, panel: CasePanel, period: Period) -> LastWeeks:
        """What the last two weeks up to the period's end say, however long the period is."""
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
        """Of no client."""
        return LastWeeks(np.zeros(0))

    def contribute(self, state: Releases, view: LastWeeks) -> Vector:
        """The change, bounded."""
        del state
        change = np.clip(view.change, -LARGEST_CHANGE, LARGEST_CHANGE)
        return change[:, None].astype(np.float32)

    def entries(self, length: int) -> tuple[str, ...]:
        """The change alone."""
        del length
        return ("change against the week before",)

    def step(self, state: Releases, release: Vector, noise_std: float) -> Releases:
        """What the last week's release says becomes known, or better known."""
        return state.said(release, np.ones(1), noise_std)

    def predict(self, state: Releases, inputs: Vector) -> Floats:
        """The last value of each window, carried on by the growth of the country."""
        growth = float(signals(state, week=1).growth[0])
        weight = self._pretrained.coefficients[ALL_YEAR, self.settings.horizon - 1, SHARED]
        last: Floats = inputs[..., -1].astype(np.float64)
        return last * float(np.exp(weight.sum() * growth))

    def advance(self, state: Releases, days: int) -> Releases:
        """The weeks move back; of the new ones nothing is known yet."""
        return state.later(days // WEEK)

    def completed(self, panel: CasePanel, state: Releases) -> CasePanel:
        """The newest weeks as they will be: revised, and implausible ones replaced."""
        growth = _growth(state, panel.counts.shape[1])
        return replace(panel, counts=_plausible(_revised(panel), growth))

    def hindcast(self, panel: CasePanel, state: Releases, horizon: int) -> Floats:
        """The median of what would have been forecast as of each of the last weeks."""
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
        """Median and quantiles, as wide as public series and the own past errors say.

        A larger region's median is the sum of its parts'; its quantiles are those of its own sums.
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
        """Median and quantiles of the newest origin."""
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
        """What both forecasts were as of each origin, and how wrong they were."""
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
        """What all clients, the client itself and the time of the year add to the forecast."""
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
    """The released log growth of each of the last weeks; not a number before the first release."""
    released = signals(state, week=1)
    told = np.where(np.isnan(released.level), np.nan, released.growth)
    told[0] = released.growth[0]
    growth = np.full(weeks, np.nan)
    there = min(weeks, len(told))
    growth[weeks - there :] = told[:there][::-1]
    return growth


def _revised(panel: CasePanel) -> Floats:
    """Counts with the newest weeks completed, where vintages of them are known."""
    vintages = panel.revisions
    if vintages is None:
        return panel.counts
    snapshot = len(vintages.snapshots) - 1
    if vintages.newest(snapshot) != panel.end:
        return panel.counts
    return vintages.completed(snapshot, panel.counts)


def _plausible(counts: Floats, growth: Floats) -> Floats:
    """The same with a newest week that nobody's growth explains taken as the one before, grown."""
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
    """What was known in each of the last weeks, the panel's last one last.

    Where vintages are known, as it was published then; else the counts up to that week.
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
