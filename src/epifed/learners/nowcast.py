"""The nowcast learner: the shared growth and lateness of reports, from what was known when.

On the morning of a forecast the newest days are incomplete. So a client measures its growth on the
last days as known today against the same days of last week as known a week ago, and sends it with
the share of its cases that come late, all bounded, in one vector. The server keeps the noisy means.
A client fills its own late days up, carries its last weeks on by the shared growth and a part of
its own, and knows how wrong it was from forecasts made with what was known on each past morning.
Without a history of what was known, the counts are taken as complete.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from epifed import nowcast
from epifed.days import WEEK
from epifed.errors import EpifedError
from epifed.intervals import LEAST_ERRORS
from epifed.learner import Floats, Period, Vector
from epifed.learners.releases import ReleaseLearner, Releases
from epifed.nowcast import LATE_DAYS, USUAL_LATE
from epifed.panel import CasePanel
from epifed.vintages import LEAST_MORNINGS

HISTORY = 70
"""Days of releases that a state remembers: ten weeks."""
HINDCASTS = 63
"""Past mornings at most whose forecasts are repeated."""
CHANGE, WEIGHT = 0, 1
NUMBERS = 2 + LATE_DAYS
"""What a release says of a day: weighted change, mean weight, late share by lag."""

RECENCY = 0.6
"""Weight of a day relative to the next one where the change is measured."""
SOFTENING = 2.0
"""Cases added before a client divides by its own."""
FULL_WEIGHT = 30.0
"""Cases in both weeks from which on a client counts fully; with fewer, by their root."""
LARGEST_CHANGE = 0.45
"""Bound on a client's relative change, (now - before) / (now + before)."""
WEIGHT_SHARE, LATE_SHARE = 0.3, 0.1
"""Bounds on the numbers that say a client's weight and its late shares."""

TYPICAL = 0.12
"""Deviation of the change over quiet and wild weeks, against which noise is weighed."""
LASTING = 0.85
"""Share of a change that is left a week later."""
SEEN = 0.015
"""Deviation of a change that is seen without noise from the true one."""
USUAL_WEIGHT, WEIGHT_SPREAD, WEIGHT_DRIFT, LEAST_WEIGHT = 0.5, 0.3, 0.02, 0.1
"""Mean weight before any release, how far it may be off, how far it moves in a day, and the least
that is believed."""
LATE_SPREAD = 0.1
"""How far the late shares may be off the usual ones."""

FOLLOW = 1.04
"""Growth forecast for the next week per unit of the growth seen, which is bounded by clients."""
DAMPING = 0.5
"""Growth of a forecast week relative to that of the week before."""
LARGEST_FORECAST = 0.8
"""Bound on the log growth forecast for the first week."""
WEEKS = (0.6, 0.3, 0.1)
"""Weights of the last three weeks in a client's level, each carried on to the last."""
OWN, OWN_CASES, FARTHEST_OWN = 0.3, 40.0, 0.5
"""Share of a client's own growth beyond the shared one that is followed, the cases at which it is
believed by half, and its bound."""


@dataclass(frozen=True)
class Reports:
    """What the last weeks of each client say: change, weight, and late share by lag."""

    change: Floats
    weight: Floats
    late: Floats

    def __len__(self) -> int:
        """The number of clients."""
        return len(self.change)

    def of(self, clients: NDArray[np.int64]) -> "Reports":
        """Those of some clients only."""
        return Reports(self.change[clients], self.weight[clients], self.late[clients])


class Nowcast(ReleaseLearner[Reports]):
    """The growth and lateness of all clients, from lists as they were known on each morning."""

    name = "nowcast"
    any_horizon: ClassVar[bool] = True
    reads_history: ClassVar[bool] = True
    remembered: ClassVar[tuple[int, int]] = (HISTORY, NUMBERS)

    @classmethod
    def preset(cls, clients: int, given: Mapping[str, Any]) -> dict[str, Any]:
        """Everybody once."""
        everybody = {"clients_per_round": clients, "rounds": 1, "accountant": "pld"}
        bound = math.hypot(LARGEST_CHANGE, WEIGHT_SHARE, LATE_SHARE)
        return super().preset(clients, given) | everybody | {"clip_norm": bound}

    def view(self, panel: CasePanel, period: Period) -> Reports:
        """What the last two weeks before the period's end say, as known at their ends."""
        days = (period[1] - panel.start).days + 1
        if days < 2 * WEEK:
            raise EpifedError(
                f"{panel.source}: found {days} days up to {period[1]} for learner 'nowcast'; "
                f"expected at least {2 * WEEK}"
            )
        known = nowcast.mornings(panel.between(panel.start, period[1]))
        late = nowcast.late_shares(known) - USUAL_LATE
        found = nowcast.comparable(known)
        if found is None:
            nothing = np.zeros(len(panel.regions))
            return Reports(nothing, nothing, late)
        now, before, weeks = found
        recent = RECENCY ** np.arange(WEEK)
        recent = recent / recent.mean()
        now, before = (np.maximum(days @ recent, 0.0) for days in (now, before))
        change = (now - before) / (now + before + SOFTENING) / weeks
        weight = np.minimum(np.sqrt((now + before) / FULL_WEIGHT), 1.0)
        return Reports(change, weight, late)

    def nobody(self) -> Reports:
        """Of no client."""
        return Reports(np.zeros(0), np.zeros(0), np.zeros((0, LATE_DAYS)))

    def contribute(self, state: Releases, view: Reports) -> Vector:
        """The weighted change, the weight and how late reports are, each bounded."""
        del state
        change = view.weight * np.clip(view.change, -LARGEST_CHANGE, LARGEST_CHANGE)
        norm = np.linalg.norm(view.late, axis=1, keepdims=True)
        late = LATE_SHARE * view.late / np.maximum(norm, 1.0)
        sent = np.concatenate([change[:, None], WEIGHT_SHARE * view.weight[:, None], late], axis=1)
        return sent.astype(np.float32)

    def step(self, state: Releases, release: Vector, noise_std: float) -> Releases:
        """What the last day's release says becomes known, or better known."""
        scale = np.full(NUMBERS, 1 / LATE_SHARE)
        scale[[CHANGE, WEIGHT]] = 1.0, 1 / WEIGHT_SHARE
        return state.said(release, scale, noise_std)

    def predict(self, state: Releases, inputs: Vector) -> Floats:
        """The last value of each window, carried on by the shared growth."""
        grown = math.exp(_forecast(shared_growth(state)) * _lasting(self.settings.horizon / WEEK))
        return inputs[..., -1].astype(np.float64) * grown

    def hindcast(self, panel: CasePanel, state: Releases, horizon: int) -> Floats:
        """The forecast as it was made on each past morning, with what was known on it.

        Where the history is too short for an interval, also of mornings before it, with counts as
        if they had been complete; on a day without a snapshot it is that of the day before.
        """
        known = nowcast.mornings(panel)
        complete = nowcast.as_complete(panel.counts)
        made: list[Floats] = []
        least = max(len(known) - 1, horizon + LEAST_ERRORS)
        for back in range(min(HINDCASTS, least, len(complete) - LEAST_MORNINGS), -1, -1):
            looked = back < len(known) and not np.isnan(known[-1 - back, 0, 0])
            if back < len(known) and not looked and made:
                made.append(made[-1])
                continue
            then = (known if looked else complete)[: -back or None]
            made.append(_carried_on(then, state.before(back), horizon))
        return np.stack(made, axis=1)

    def completed(self, panel: CasePanel, state: Releases) -> CasePanel:
        """The panel with its late days filled up."""
        known = nowcast.mornings(panel)
        return nowcast.completed(panel, known, _filled(known, state))


def shared_growth(state: Releases) -> float:
    """The log growth in a week that the releases say, once noise is weighed.

    The change is filtered from release to release, and fades after the last one.
    """
    mean, variance = 0.0, TYPICAL**2
    weight, spread = USUAL_WEIGHT, WEIGHT_SPREAD**2
    before: int | None = None
    for day in np.flatnonzero(state.precision[:, CHANGE] > 0)[::-1]:
        gap = 0 if before is None else before - int(day)
        before = int(day)
        lasting = LASTING ** (gap / WEEK)
        mean, variance = lasting * mean, lasting**2 * variance + TYPICAL**2 * (1 - lasting**2)
        spread += WEIGHT_DRIFT**2 * gap
        gain = spread / (spread + 1 / state.precision[day, WEIGHT])
        weight, spread = weight + gain * (state.values[day, WEIGHT] - weight), spread * (1 - gain)
        clients = max(weight, LEAST_WEIGHT)
        noise = 1 / (state.precision[day, CHANGE] * clients**2) + SEEN**2
        gain = variance / (variance + noise)
        mean += gain * (state.values[day, CHANGE] / clients - mean)
        variance *= 1 - gain
    mean *= LASTING ** ((before or 0) / WEEK)
    return 2 * math.atanh(min(max(mean, -0.6), 0.6))


def pooled_late(state: Releases) -> Floats:
    """The late share by lag that the releases say, against the usual one."""
    precision = state.precision[:, 2:]
    said = (state.values[:, 2:] * precision).sum(axis=0)
    mean: Floats = said / (precision.sum(axis=0) + 1 / LATE_SPREAD**2)
    return np.clip(USUAL_LATE + mean, 0.0, 1.0)


def _filled(known: Floats, state: Releases) -> Floats:
    """The cases that are still to come on the last morning."""
    growing = nowcast.growth(known, nowcast.FOLLOW * shared_growth(state))
    return nowcast.fill(known, growing, pooled_late(state))


def _carried_on(known: Floats, state: Releases, horizon: int) -> Floats:
    """The average of the week that ends `horizon` days after the last morning's newest day."""
    shared = shared_growth(state)
    first = _forecast(shared)
    own = OWN * _own_growth(known, shared)
    now = np.maximum(known[-1], 0.0)
    now[:, :LATE_DAYS] += _filled(known, state)
    # The last three weeks by lag, each carried on to the last one.
    level = sum(
        share * now[:, week * WEEK : (week + 1) * WEEK] * math.exp(week * first)
        for week, share in enumerate(WEEKS)
    )
    total = np.zeros(len(now))
    for ahead in range(horizon - WEEK + 1, horizon + 1):
        if ahead <= 0:
            total += now[:, -ahead]
            continue
        weeks = -(-ahead // WEEK)
        total += level[:, weeks * WEEK - ahead] * np.exp((first + own) * _lasting(weeks))
    return total / WEEK


def _own_growth(known: Floats, shared: float) -> Floats:
    """How far a client's own growth lies from the shared one; few cases say little."""
    found = nowcast.comparable(known)
    if found is None:
        return np.zeros(known.shape[1])
    now, before, weeks = found[0].sum(axis=1), found[1].sum(axis=1), found[2]
    ratio = (now + OWN_CASES * math.exp(shared)) / (before + OWN_CASES)
    own: Floats = np.clip(np.log(ratio) / weeks - shared, -FARTHEST_OWN, FARTHEST_OWN)
    return own


def _forecast(growth: float) -> float:
    """The log growth forecast for the first week."""
    return min(max(FOLLOW * growth, -LARGEST_FORECAST), LARGEST_FORECAST)


def _lasting(weeks: float) -> float:
    """Weeks of the first week's growth that so many weeks add up to."""
    return float((1 - DAMPING**weeks) / (1 - DAMPING))
