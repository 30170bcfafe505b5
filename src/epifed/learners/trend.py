"""The shared trend: in one release, how fast cases grow in the average client, day by day.

A week is forecast as the same week again, times a growth. One county's own growth is mostly noise;
the mean over all clients is almost free of it and costs almost no privacy. So a client sends seven
bounded numbers, its growth on each of the last seven days against the same weekday a week before,
and the server keeps the noisy means of past releases, from which everything else is computed.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from pydantic import Field

from epifed import holidays
from epifed.days import WEEK
from epifed.errors import EpifedError
from epifed.learner import Floats, Learner, Own, Period, Vector
from epifed.panel import CasePanel
from epifed.settings import Settings

HISTORY = 217
"""Days of releases that a state remembers: 31 weeks."""

SOFTENING = 0.1
"""Share of its level that a client adds, with one case, to its counts before taking logarithms."""
LARGEST_GROWTH = 1.0
"""Bound on one day's log growth in a week."""
LARGEST_NORM = 1.2
"""Bound on the norm of all seven, with and without privacy: a wilder week says less."""

RECENCY = 0.6
"""Weight of a day relative to the next one."""
OUTLIER = 0.15
"""How far a day may lie from the median of its week before it is pulled back (a holiday)."""
TYPICAL = 0.15
"""Deviation of the trend in quiet and wild weeks together, against which noise is weighed."""
FOLLOW = 0.9
"""Growth forecast for the next week per unit of the trend, which is itself softened."""
DAMPING = 0.5
"""Growth of a forecast week relative to that of the week before."""
LARGEST_FORECAST = 0.7
"""Bound on the log growth forecast for the first week."""

_EXACT = 1e12


class TrendOwn(Own):
    """Whose holidays are taken out before a growth is computed."""

    holidays: str = Field("DE", description="country whose public holidays count, such as DE")


@dataclass(frozen=True)
class TrendState:
    """What past releases said of each day, the last day first: mean growth and precision."""

    growth: Floats
    precision: Floats
    """0: of this day nothing is known."""


@dataclass(frozen=True)
class LastDays:
    """The last two weeks of each client, holidays taken out, the last day first."""

    counts: Floats

    def __len__(self) -> int:
        """The number of clients."""
        return len(self.counts)

    def of(self, clients: NDArray[np.int64]) -> "LastDays":
        """The days of some clients only."""
        return LastDays(self.counts[clients])


class Trend(Learner[TrendState, LastDays]):
    """The mean growth of all clients, day by day, from one release a week."""

    name = "trend"
    own_settings = TrendOwn
    any_horizon: ClassVar[bool] = True

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.own = TrendOwn(**settings.own)

    @classmethod
    def preset(cls, clients: int, given: Mapping[str, Any]) -> dict[str, Any]:
        """Everybody once."""
        everybody = {"clients_per_round": clients, "rounds": 1, "accountant": "pld"}
        return super().preset(clients, given) | everybody | {"clip_norm": LARGEST_NORM}

    def view(self, panel: CasePanel, period: Period) -> LastDays:
        """The last two weeks before the period's end, however long the period is."""
        known = panel.counts[:, : (period[1] - panel.start).days + 1]
        if known.shape[1] < 2 * WEEK:
            raise EpifedError(
                f"{panel.source}: found {known.shape[1]} days up to {period[1]} for learner "
                f"'trend'; expected at least {2 * WEEK}"
            )
        usual = holidays.taken_out(known, self.own.holidays, panel.start)
        return LastDays(usual[:, : -2 * WEEK - 1 : -1])

    def nobody(self) -> LastDays:
        """No days."""
        return LastDays(np.zeros((0, 2 * WEEK)))

    def start(self, seeds: np.random.SeedSequence) -> TrendState:
        """Nothing known."""
        del seeds
        return TrendState(np.zeros(HISTORY), np.zeros(HISTORY))

    def contribute(self, state: TrendState, view: LastDays) -> Vector:
        """Log growth against the same weekday a week before, for each of the last seven days."""
        del state
        now, before = view.counts[:, :WEEK], view.counts[:, WEEK:]
        soft = 1 + SOFTENING * view.counts.mean(axis=1, keepdims=True)
        grown = np.log((now + soft) / (before + soft)).clip(-LARGEST_GROWTH, LARGEST_GROWTH)
        norm = np.linalg.norm(grown, axis=1, keepdims=True)
        bounded = grown / np.maximum(norm / LARGEST_NORM, 1.0)
        sent: Vector = bounded.astype(np.float32)
        return sent

    def step(self, state: TrendState, release: Vector, noise_std: float) -> TrendState:
        """The last seven days become known, or better known."""
        growth, precision = np.zeros(HISTORY), np.zeros(HISTORY)
        growth[:WEEK] = release
        precision[:WEEK] = 1 / noise_std**2 if noise_std else _EXACT
        return self.join(state, TrendState(growth, precision))

    def predict(self, state: TrendState, inputs: Vector) -> Floats:
        """The last value of each window, carried on by the forecast growth."""
        weeks = self.settings.horizon / WEEK
        now = float(forecast_growth(state)[0])
        grown = math.exp(now * (1 - DAMPING**weeks) / (1 - DAMPING))
        return inputs[..., -1].astype(np.float64) * grown

    def advance(self, state: TrendState, days: int) -> TrendState:
        """The days move back; of the new ones nothing is known yet."""

        def later(values: Floats) -> Floats:
            return np.concatenate([np.zeros(min(days, HISTORY)), values])[:HISTORY]

        return TrendState(later(state.growth), later(state.precision))

    def join(self, earlier: TrendState, fresh: TrendState) -> TrendState:
        """Each day weighted by how well it is known."""
        p, q = earlier.precision, fresh.precision
        known = p + q
        mean = (earlier.growth * p + fresh.growth * q) / np.maximum(known, 1e-30)
        return TrendState(np.where(known > 0, mean, 0.0), np.minimum(known, _EXACT))

    def pack(self, state: TrendState) -> Vector:
        """The growths, then the precisions."""
        return np.concatenate([state.growth, state.precision]).astype(np.float32)

    def unpack(self, vector: Vector) -> TrendState:
        """What `pack` made."""
        self.refuse_length(vector, 2 * HISTORY)
        values = vector.astype(np.float64)
        return TrendState(values[:HISTORY], values[HISTORY:])

    def hindcast(self, panel: CasePanel, state: TrendState, horizon: int) -> Floats:
        """The last week again, day by day, times the growth; holidays taken out and put back in."""
        counts = panel.counts
        length = counts.shape[1]
        holiday = holidays.is_holiday(self.own.holidays, panel.start, length + horizon)
        effect = holidays.effect(counts, holiday)
        usual = np.where(holiday[:length], counts / effect[:, None], counts)
        days = min(length - WEEK, HISTORY - WEEK + 1)
        origins = np.arange(length - days, length)
        now = forecast_growth(state)[:days][::-1]
        total = np.zeros((len(counts), days))
        for ahead in range(horizon - WEEK + 1, horizon + 1):
            if ahead <= 0:
                total += counts[:, origins + ahead]
                continue
            weeks = -(-ahead // WEEK)
            grown = np.exp(now * (1 - DAMPING**weeks) / (1 - DAMPING))
            day = usual[:, origins + ahead - weeks * WEEK] * grown
            total += np.where(holiday[origins + ahead], day * effect[:, None], day)
        return total / WEEK


def forecast_growth(state: TrendState) -> Floats:
    """The log growth that was forecast for the first week, as of each day, the last day first.

    A weighted mean over the known days of a week; days far from their median are pulled back, as
    far as noise does not explain them; and what is mostly noise shrinks towards no growth at all.
    """
    values, precision = state.growth, state.precision
    known = precision > 0
    noise = np.where(known, 1 / np.sqrt(np.maximum(precision, 1e-30)), 0.0)
    value = sliding_window_view(np.where(known, values, np.nan), WEEK)
    noise, known = sliding_window_view(noise, WEEK), sliding_window_view(known, WEEK)
    some = known.any(axis=1)
    middle = np.zeros(len(value))
    middle[some] = np.nanmedian(value[some], axis=1)
    reach = np.hypot(OUTLIER, 2 * noise)
    pulled = np.clip(np.where(known, value, 0.0), middle[:, None] - reach, middle[:, None] + reach)
    weight = np.where(known, RECENCY ** np.arange(WEEK), 0.0)
    weight = weight / np.maximum(weight.sum(axis=1, keepdims=True), 1e-30)
    trend = (weight * pulled).sum(axis=1)
    trust = TYPICAL**2 / (TYPICAL**2 + (weight**2 * noise**2).sum(axis=1))
    forecast: Floats = np.clip(FOLLOW * trust * trend, -LARGEST_FORECAST, LARGEST_FORECAST)
    return forecast
