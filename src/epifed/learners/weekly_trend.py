"""The shared trend where weeks are all there is: one released number, the growth of the country.

The last week is forecast again, times a growth. The country's comes from the release and fades with
the horizon. The rest is local and free: a client that grows faster than the country goes on doing
so for a while, one far above or below its own average of a year comes back, and where earlier years
explained what the trend did not, they are asked again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from epifed.data.calendar import WEEK
from epifed.data.panel import CasePanel
from epifed.errors import EpifedError
from epifed.learners.base import DAYS_BACK, Floats, Parts, Period, Signal, Vector
from epifed.learners.growth import (
    GROWTH,
    HISTORY,
    NUMBERS,
    TYPICAL,
    ReleaseLearner,
    Releases,
    signals,
)

LARGEST_CHANGE = 0.4
"""Bound on a client's relative change, (now - before) / (now + before)."""
FEW = 3.0
"""Cases of a week that are added before a client divides by its own."""
FOLLOW, DAMPING = 0.9, 0.5
"""Share of the country's growth that the next week follows, and of each week's that the one after
it does."""
OWN_SHARE, OWN_FEW = 0.25, 30.0
"""Share of a client's growth beyond the country's that goes on, and the cases of a week at which
half of that growth is believed."""
YEAR = 52
REVERTING, STAYING = 0.09, 0.9
"""Share of its log distance from its own average that a client loses in the next week, and of each
week's loss that the one after it has."""
FROM_BELOW = 0.5
"""How fast a client comes back from below, relative to one above."""
FARTHEST, YOUNG = 2.5, 4.0
"""Bound on that distance, and the weeks of history at which half of it is believed."""
AROUND, SEASON_CASES = 1, 5.0
"""Weeks on both sides that an earlier year's week is averaged with, and cases added before."""
LARGEST_SEASON, MOST_SEASON = 2.0, 0.6
"""Bounds on what an earlier year says, and on how much of it is followed."""
DOUBT = 30.0
"""How much earlier years must have explained, as a sum of squares, to be followed by half."""


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


class WeeklyTrend(ReleaseLearner[LastWeeks]):
    """The mean growth of all clients from one release a week, on panels of weeks.

    It is the learner `trend` at the step `week`; places in its state are weeks.
    """

    name = "trend"
    any_horizon: ClassVar[bool] = True
    remembered: ClassVar[tuple[int, int]] = (HISTORY, len(NUMBERS))

    @classmethod
    def preset(cls, clients: int, given: Mapping[str, Any]) -> dict[str, Any]:
        """Everybody once, with one bounded number."""
        everybody = {"clients_per_round": clients, "rounds": 1, "accountant": "pld"}
        return super().preset(clients, given) | everybody | {"clip_norm": LARGEST_CHANGE}

    def view(self, panel: CasePanel, period: Period) -> LastWeeks:
        """What the last two weeks up to the period's end say, however long the period is."""
        panel.refuse_step("week")
        end = panel.index(period[1]) + 1
        if not 2 <= end <= panel.counts.shape[1]:
            raise EpifedError(
                f"{panel.source}: found the weeks {panel.start} … {panel.end} for learner "
                f"'trend'; expected two up to {period[1]}"
            )
        return LastWeeks(_change(panel.counts[:, end - 2 : end], FEW)[:, 0])

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
        last: Floats = inputs[..., -1].astype(np.float64)
        return last * float(np.exp(FOLLOW * growth * _lasting(DAMPING, self.settings.horizon)))

    def advance(self, state: Releases, days: int) -> Releases:
        """The weeks move back; of the new ones nothing is known yet."""
        return state.later(days // WEEK)

    def hindcast(self, panel: CasePanel, state: Releases, horizon: int) -> Floats:
        """The last week again, times the growth, as of each of the last weeks."""
        weeks = min(panel.counts.shape[1] - 1, DAYS_BACK // WEEK)
        grown = _growth(panel.counts, state, horizon).total()[:, -weeks:]
        return np.asarray(panel.counts[:, -weeks:] * np.exp(grown))

    def parts(self, panel: CasePanel, state: Releases, horizon: int) -> Parts:
        """What the country, the client itself and earlier years add to the last forecast."""
        found = _growth(panel.counts, state, horizon)
        nothing = np.zeros(len(panel.regions))
        last = (found.country[:, -1], nothing, found.own[:, -1], found.season[:, -1], nothing)
        return Parts(*last)

    def signal(self) -> Signal:
        """The growth of the country in a week."""
        scale = 2.0  # log growth per relative change, near none
        return Signal("the growth of a week", scale * float(TYPICAL[GROWTH]), scale)


@dataclass(frozen=True)
class _Growth:
    """Log growth up to the horizon as of each week [regions, weeks], by where it comes from."""

    country: Floats
    own: Floats
    season: Floats

    def total(self) -> Floats:
        """All of it."""
        return self.country + self.own + self.season


def _growth(counts: Floats, state: Releases, horizon: int) -> _Growth:
    """What is forecast as of each week, from that week's counts and those before it."""
    regions, weeks = counts.shape
    known = signals(state, week=1)
    growth, told = np.zeros(weeks), np.zeros(weeks, dtype=np.bool_)
    seen = min(weeks, len(known.growth))
    growth[weeks - seen :] = known.growth[:seen][::-1]
    told[weeks - seen :] = ~np.isnan(known.level[:seen][::-1])
    country = np.broadcast_to(FOLLOW * growth * _lasting(DAMPING, horizon), (regions, weeks))
    change = np.zeros((regions, weeks))
    change[:, 1:] = 2 * np.clip(_change(counts, OWN_FEW), -LARGEST_CHANGE, LARGEST_CHANGE)
    faster = change - growth * counts / (counts + OWN_FEW)
    own = OWN_SHARE * faster * _lasting(DAMPING, horizon)
    own = own - REVERTING * _apart(counts) * _lasting(STAYING, horizon)
    grown = np.asarray(counts * np.exp(country + own))
    return _Growth(country, own, _season(counts, grown, told, horizon))


def _change(counts: Floats, few: float) -> Floats:
    """The relative change of each week against the one before: [regions, weeks - 1]."""
    now, before = counts[:, 1:], counts[:, :-1]
    change: Floats = (now - before) / (now + before + few)
    return change


def _lasting(share: float, weeks: int) -> float:
    """Weeks of the first week's growth that so many weeks add up to."""
    return float((1 - share**weeks) / (1 - share))


def _apart(counts: Floats) -> Floats:
    """The log distance of each week from the average of the year up to it, as it is believed."""
    total = np.cumsum(np.pad(counts, ((0, 0), (1, 0))), axis=1)
    ends = np.arange(1, counts.shape[1] + 1)
    begins = np.maximum(ends - YEAR, 0)
    average = (total[:, ends] - total[:, begins]) / (ends - begins)
    apart = np.clip(np.log((counts + FEW) / (average + FEW)), -FARTHEST, FARTHEST)
    believed: Floats = np.where(apart < 0, FROM_BELOW, 1.0) * apart * ends / (ends + YOUNG)
    return believed


def _season(counts: Floats, grown: Floats, told: NDArray[np.bool_], horizon: int) -> Floats:
    """What earlier years add, as far as they explained the errors so far; nothing where none are.

    `grown` is what was forecast without them as of each week, `told` which weeks had a release.
    """
    regions, weeks = counts.shape
    said, error = np.zeros((2, regions, weeks))
    logs = np.log(counts + SEASON_CASES)
    total = np.cumsum(np.pad(logs, ((0, 0), (1, 0))), axis=1)
    for week in range(YEAR + AROUND, weeks):
        years = np.arange(week - YEAR, AROUND - 1, -YEAR)
        then, later = (_around(total, years + ahead, week) for ahead in (0, horizon))
        changes = np.clip(later - then, -LARGEST_SEASON, LARGEST_SEASON)
        said[:, week] = changes.mean(axis=1)
    came = np.log((counts[:, horizon:] + SEASON_CASES) / (grown[:, :-horizon] + SEASON_CASES))
    before = np.where(told, said, 0.0)[:, :-horizon]
    error[:, horizon:] = before * np.clip(came, -LARGEST_SEASON, LARGEST_SEASON)
    square = np.zeros((regions, weeks))
    square[:, horizon:] = before**2
    followed = np.cumsum(error, axis=1) / (DOUBT + np.cumsum(square, axis=1))
    season: Floats = np.clip(followed, 0.0, MOST_SEASON) * said
    return season


def _around(total: Floats, weeks: NDArray[np.int64], last: int) -> Floats:
    """The mean of the weeks around each of some, none after the last, from running totals."""
    begins, ends = weeks - AROUND, np.minimum(weeks + AROUND, last) + 1
    mean: Floats = (total[:, ends] - total[:, begins]) / (ends - begins)
    return mean
