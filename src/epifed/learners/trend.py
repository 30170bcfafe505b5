"""The shared trend: one release estimates the growth of cases in the country, by size and place.

The forecast of a week is the same week again, times a growth. One county's own growth is mostly
noise. The mean over all clients has little noise and a low privacy cost. So a client sends a few
bounded numbers: its change against the week before, its level, and, where the budget allows, its
change times its size and its place on the map. The server stores the noisy means of past releases.
The growth of the country and of each region follow from them. A client adds only its own level,
because a level far from the country's returns to it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from epifed.data import calendar as holidays
from epifed.data.calendar import WEEK, Step
from epifed.data.panel import CasePanel
from epifed.data.weekday_effects import WeekdayEffects, weekday_effects
from epifed.errors import EpifedError, counted
from epifed.learners.base import (
    DAYS_BACK,
    SOFTENING,
    Floats,
    Learner,
    Own,
    Parts,
    Period,
    Signal,
    Vector,
)
from epifed.learners.growth import (
    GROWTH,
    HISTORY,
    LEVEL,
    LEVEL_WIDTH,
    MODES,
    NUMBERS,
    TYPICAL,
    Growth,
    ReleaseLearner,
    Releases,
    Signals,
    bounded,
    carried_on,
    change_of,
    lasting,
    level_of,
    reverted,
    signals,
)
from epifed.learners.weekly_trend import WeeklyTrend
from epifed.settings import Settings

RECENCY, SLOW_RECENCY = 0.2, 0.5
"""Weight of a day relative to the next one in a change: for all clients together, and by place,
where fewer clients average out the noise."""
LARGEST_CHANGE = 0.3
"""Bound on a client's relative change, (now - before) / (now + before)."""
FARTHEST = 2.0
"""Bound on a client's size or place, in standard deviations from the mean."""
LEVEL_SHARE = 0.1
"""Bound on the number for a client's level."""
HIGHEST_LEVEL = 0.9
"""Bound on a level before it is converted to cases; beyond, it is too uncertain."""

MODES_BY_BUDGET = ((150.0, 3), (100.0, 1))
"""Least product of clients and ε for which so many modes improve the forecast."""
PLACE_SHARE = np.array([0.8, 0.5, 0.5])
"""Share of the last week's effect of size and place that remains in the next."""
FARTHEST_LEVEL = 1.5
"""Bound on a client's log distance from the country's level that reverts."""

ENTRIES = ("change times size", "change times latitude", "change times longitude")
"""Descriptions of the numbers for size and place."""


class TrendOwn(Own):
    """The settings: which holidays apply, and the public mean and spread of sizes and places."""

    holidays: str = Field(
        "region",
        description="public holidays: region (those of the data), none, or a code such as DE-BY",
    )
    modes: int = Field(
        0, ge=0, le=MODES, description="numbers for size and place that a client sends beside two"
    )
    places: tuple[float, ...] = Field(
        (),
        max_length=2 * MODES,
        description="mean and deviation over all clients of log population, latitude, longitude",
    )


@dataclass(frozen=True)
class LastDays:
    """The features of each client's last two weeks."""

    change: Floats
    """Relative change against the week before; later days have more weight."""
    slow_change: Floats
    level: Floats
    """Between -1 and 1."""
    place: Floats
    """[clients, modes]: size, north, east, in standard deviations from the mean."""
    weight: Floats
    """The weight of a client's change, at most 1."""
    further: Floats
    """[clients, numbers]: further numbers to send, already bounded."""

    def __len__(self) -> int:
        """The number of clients."""
        return len(self.change)

    def of(self, clients: NDArray[np.int64]) -> "LastDays":
        """The rows of some clients only."""
        return LastDays(*(values[clients] for values in vars(self).values()))


class Trend(ReleaseLearner[LastDays]):
    """The mean growth of all clients, by size and place, from one release a week."""

    name = "trend"
    own_settings = TrendOwn
    any_horizon: ClassVar[bool] = True
    remembered: ClassVar[tuple[int, int]] = (HISTORY, len(NUMBERS))
    recency: ClassVar[tuple[float, float]] = RECENCY, SLOW_RECENCY
    largest_change: ClassVar[float] = LARGEST_CHANGE
    level_share: ClassVar[float] = LEVEL_SHARE
    uneven: ClassVar[float] = 0.0
    """Log distance above the mean level at which a level does not revert, for each unit by which
    that mean is below the middle: at low levels cases are spread more unevenly."""
    further: ClassVar[tuple[float, ...]] = ()
    """Factors from a release to each number sent besides changes and level."""
    further_entries: ClassVar[tuple[str, ...]] = ()
    """Descriptions of these numbers."""
    further_bound: ClassVar[float] = 0.0

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.own = TrendOwn(**settings.own)
        self.modes = min(self.own.modes, len(self.own.places) // 2)
        self._seen: tuple[CasePanel, WeekdayEffects] | None = None
        if self.own.holidays not in ("region", "none"):
            holidays.refuse_unknown(self.own.holidays)

    @classmethod
    def at(cls, step: Step) -> type[Learner[Any, Any]]:
        """This class for days, `WeeklyTrend` for weeks."""
        return WeeklyTrend if step == "week" else cls

    @classmethod
    def preset(cls, clients: int, given: Mapping[str, Any]) -> dict[str, Any]:
        """One round of all clients, with as many numbers as the budget allows."""
        everybody = {"clients_per_round": clients, "rounds": 1, "accountant": "pld"}
        epsilon = float(given.get("epsilon", Settings.model_fields["epsilon"].default))
        paid = next((modes for least, modes in MODES_BY_BUDGET if clients * epsilon >= least), 0)
        modes = int(given.get("modes", min(paid, len(given.get("places", ())) // 2)))
        bound = math.hypot(cls._largest_norm(modes), cls.level_share, cls.further_bound)
        return super().preset(clients, given) | everybody | {"modes": modes, "clip_norm": bound}

    @classmethod
    def facts(cls, panel: CasePanel) -> dict[str, Any]:
        """Mean and standard deviation of the clients' public sizes and places, where known."""
        covariates = _covariates(panel)
        return {"places": tuple(float(v) for c in covariates for v in (c.mean(), c.std()))}

    def view(self, panel: CasePanel, period: Period) -> LastDays:
        """The features of the last two weeks up to the period's end, whatever its length."""
        self._refuse_short(panel, period)
        until = panel if period[1] == panel.end else panel.between(panel.start, period[1])
        own = self._weekday_effects(until)
        now, before = own.usual[:, -WEEK:], own.usual[:, -2 * WEEK : -WEEK]
        change, slow = (change_of(own, now, before, recency)[0] for recency in self.recency)
        clients = len(panel.regions)
        return LastDays(
            change,
            slow,
            level_of(own, until, 1)[:, -1],
            self._place(until),
            np.ones(clients),
            np.zeros((clients, 0)),
        )

    def empty_view(self) -> LastDays:
        """The view without clients."""
        nothing = np.zeros(0)
        further = np.zeros((0, len(self.further)))
        return LastDays(nothing, nothing, nothing, np.zeros((0, MODES)), nothing, further)

    def contribute(self, state: Releases, view: LastDays) -> Vector:
        """The change, the level, and the change times size and place, all bounded."""
        del state
        largest = self.largest_change
        change, slow = (
            (view.weight * np.clip(moved_by, -largest, largest))[:, None]
            for moved_by in (view.change, view.slow_change)
        )
        moved = np.concatenate([change, slow, slow], axis=1) * view.place
        grown = np.concatenate([change, moved[:, : self.modes]], axis=1)
        norm = np.linalg.norm(grown, axis=1, keepdims=True)
        grown = grown / np.maximum(norm / self._largest_norm(self.modes), 1.0)
        level = self.level_share * view.level[:, None]
        sent = np.concatenate([grown[:, :1], level, view.further, grown[:, 1:]], axis=1)
        return sent.astype(np.float32)

    def entries(self, length: int) -> tuple[str, ...]:
        """The change, the level, numbers of a subclass, and the change times size and place."""
        del length
        places = ENTRIES[: self.modes]
        return ("change against the week before", "level of cases", *self.further_entries, *places)

    def step(self, state: Releases, release: Vector, noise_std: float) -> Releases:
        """Add the release of the last day to the state."""
        scale = np.array([1.0, 1 / self.level_share, *self.further, *[1.0] * self.modes])
        return state.said(release, scale, noise_std)

    def predict(self, state: Releases, inputs: Vector) -> Floats:
        """The last value of each window times the growth of the country."""
        growth = bounded(self._signals(state).growth[:1])
        grown = np.exp(float(growth[0]) * lasting(self.settings.horizon / WEEK))
        last: Floats = inputs[..., -1].astype(np.float64)
        return last * float(grown)

    def hindcast(self, panel: CasePanel, state: Releases, horizon: int) -> Floats:
        """The last week again, day by day, times the growth, with holidays of the target week."""
        own = self._weekday_effects(panel)
        days = min(own.usual.shape[1] - WEEK, DAYS_BACK)
        growing = self._growth(own, panel, self._signals(state), days)
        return carried_on(own, growing, days, horizon)

    def surprises(self, state: Releases, horizon: int) -> Floats:
        """The level's change between two releases minus the growth that the first one predicted."""
        released = state.precision[:, LEVEL] > 0
        later = np.flatnonzero(released[: len(released) - horizon] & released[horizon:])
        pairs = np.stack([later, later + horizon])
        level = np.clip(state.values[pairs, LEVEL], -HIGHEST_LEVEL, HIGHEST_LEVEL)
        noise = (LEVEL_WIDTH / (1 - level**2)) ** 2 / state.precision[pairs, LEVEL]
        now, before = LEVEL_WIDTH * np.arctanh(level)
        growth = bounded(self._signals(state).growth[later + horizon])
        return np.stack(
            [now - before - growth * lasting(horizon / WEEK), noise.sum(axis=0)], axis=1
        )

    def parts(self, panel: CasePanel, state: Releases, horizon: int) -> Parts:
        """The parts of the last forecast by country, region, client and its calendar."""
        return self._parts(self._weekday_effects(panel), panel, state, horizon)[0]

    def _parts(
        self, own: WeekdayEffects, panel: CasePanel, state: Releases, horizon: int
    ) -> tuple[Parts, "Growth"]:
        growing = self._growth(own, panel, self._signals(state), 1)
        weeks = horizon / WEEK
        again = carried_on(own, Growth(*(0 * part for part in vars(growing).values())), 1, horizon)
        last = own.counts[:, -WEEK:].mean(axis=1)
        parts = Parts(
            country=growing.country[:, 0] * lasting(weeks),
            place=growing.region[:, 0] * lasting(weeks),
            own=growing.own[:, 0] * reverted(weeks),
            calendar=np.log((again[:, 0] + SOFTENING) / (last + SOFTENING)),
            reports=np.zeros(len(last)),
        )
        return parts, growing

    def signal(self) -> Signal:
        """The growth of the country in a week."""
        scale = 2.0  # log growth per relative change, near none
        return Signal("the growth of a week", scale * float(TYPICAL[GROWTH]), scale)

    def _refuse_short(self, panel: CasePanel, period: Period) -> None:
        panel.refuse_step("day")
        days = (period[1] - panel.start).days + 1
        if days < 2 * WEEK:
            raise EpifedError(
                f"{panel.source}: found {counted(days, 'day')} up to {period[1]} for learner "
                f"'{self.name}'; "
                f"expected at least {2 * WEEK}"
            )

    def _signals(self, state: Releases) -> Signals:
        """The filtered estimates of each past day."""
        return signals(state)

    @classmethod
    def _largest_norm(cls, modes: int) -> float:
        """Bound on the norm of a client's changes: a change at its bound, in a usual place."""
        return cls.largest_change * math.sqrt(1 + 0.8 * modes)

    def _weekday_effects(self, panel: CasePanel) -> WeekdayEffects:
        """The weekday effects of a panel's regions; those of the last panel are cached."""
        if self._seen is None or self._seen[0] is not panel:
            self._seen = panel, self._rhythm_of(panel)
        return self._seen[1]

    def _rhythm_of(self, panel: CasePanel) -> WeekdayEffects:
        calendars = panel.calendars
        if self.own.holidays != "region":
            code = "" if self.own.holidays == "none" else self.own.holidays
            calendars = (code,) * len(panel.regions)
        return weekday_effects(panel.counts, calendars, panel.end)

    def _place(self, panel: CasePanel) -> Floats:
        """Size and place of each region, in standard deviations from the mean; 0 if unknown."""
        places = np.zeros((len(panel.regions), MODES))
        for i, values in enumerate(_covariates(panel)[: self.modes]):
            mean, deviation = self.own.places[2 * i : 2 * i + 2]
            places[:, i] = (values - mean) / max(deviation, 1e-9)
        return np.clip(places, -FARTHEST, FARTHEST)

    def _growth(
        self, own: WeekdayEffects, panel: CasePanel, estimates: Signals, days: int
    ) -> "Growth":
        """The log growth of the next week as of each of the last days, by its parts."""
        country = np.broadcast_to(estimates.growth[:days][::-1], (len(panel.regions), days))
        slopes = estimates.slopes[:days][::-1] * PLACE_SHARE
        region = self._place(panel) @ slopes.T
        mean = estimates.level[:days][::-1]
        level = level_of(own, panel, days)
        apart = LEVEL_WIDTH * (level - mean) / np.maximum(1 - mean**2, 0.3)
        apart = np.clip(apart, -FARTHEST_LEVEL, FARTHEST_LEVEL)
        apart = apart - self.uneven * np.maximum(-mean, 0.0)
        apart = np.where(np.isnan(mean), 0.0, apart)
        return Growth(bounded(country), region, -apart)


def _covariates(panel: CasePanel) -> list[Floats]:
    """Public facts of each region, where known: log population, latitude, longitude."""
    if panel.population is None:
        return []
    typical = panel.population if panel.typical_population is None else panel.typical_population
    size = np.log(typical.astype(np.float64))
    if panel.positions is None:
        return [size]
    return [size, panel.positions[:, 1], panel.positions[:, 0]]
