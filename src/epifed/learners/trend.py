"""The shared trend: in one release, how fast cases grow in the average client, day by day.

A week is forecast as the same week again, times a growth. One county's own growth is mostly noise;
the mean over all clients is almost free of it and costs almost no privacy. So a client sends seven
bounded numbers, its growth on each of the last seven days against the same weekday a week before,
and the server keeps the noisy means of past releases, from which everything else is computed.
"""

import math
from typing import ClassVar

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from torch import Tensor

from epifed import holidays
from epifed.errors import EpifedError
from epifed.panel import CasePanel
from epifed.protocol import clip
from epifed.settings import Settings
from epifed.windows import Windows

Floats = NDArray[np.float64]

DAYS = 7
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


class Trend:
    """A state is [mean growth of each day, its precision], the last day first; 0: unknown."""

    any_horizon: ClassVar[bool] = True
    whole_period: ClassVar[bool] = True

    def __init__(self, settings: Settings) -> None:
        if settings.split == "shuffled":
            raise EpifedError(
                "learner: found 'trend' with the shuffled split, which cuts the last days up; "
                "expected the temporal split"
            )
        self.settings = settings

    def start(self, seeds: np.random.SeedSequence) -> Tensor:
        """Nothing known."""
        del seeds
        return torch.zeros(2 * HISTORY)

    def contribute(self, state: Tensor, windows: Windows) -> Tensor:
        """Log growth against the same weekday a week before, for each of the last seven days."""
        del state
        if len(windows) == 0:
            return torch.zeros((0, DAYS))
        if windows.latest is None or windows.latest.shape[1] < 2 * DAYS:
            found = 0 if windows.latest is None else windows.latest.shape[1]
            raise EpifedError(f"learner: found {found} days for 'trend'; expected at least 14")
        days = torch.from_numpy(windows.latest[:, -2 * DAYS :]).flip(-1)
        now, before = days[:, :DAYS], days[:, DAYS:]
        soft = 1 + SOFTENING * days.mean(dim=1, keepdim=True)
        grown = torch.log((now + soft) / (before + soft)).clamp(-LARGEST_GROWTH, LARGEST_GROWTH)
        return clip(grown, LARGEST_NORM)

    def step(self, state: Tensor, release: Tensor, noise_std: float) -> Tensor:
        """The last seven days become known, or better known."""
        fresh = torch.zeros(2 * HISTORY)
        fresh[:DAYS] = release
        fresh[HISTORY : HISTORY + DAYS] = 1 / noise_std**2 if noise_std else _EXACT
        return self.join(state, fresh)

    def predict(self, state: Tensor, inputs: Tensor) -> Tensor:
        """The last value of each window, carried on by the forecast growth."""
        weeks = self.settings.horizon / DAYS
        now = float(growth(state)[0])
        return inputs[..., -1] * math.exp(now * (1 - DAMPING**weeks) / (1 - DAMPING))

    def advance(self, state: Tensor, days: int) -> Tensor:
        """The days move back; of the new ones nothing is known yet."""
        later = torch.zeros_like(state).view(2, HISTORY)
        if days < HISTORY:
            later[:, days:] = state.view(2, HISTORY)[:, : HISTORY - days]
        return later.reshape(-1)

    def join(self, earlier: Tensor, fresh: Tensor) -> Tensor:
        """Each day weighted by how well it is known."""
        (a, p), (b, q) = earlier.view(2, HISTORY), fresh.view(2, HISTORY)
        known = p + q
        mean = torch.where(known > 0, (a * p + b * q) / known.clamp(min=1e-30), 0.0)
        return torch.cat([mean, known.clamp(max=_EXACT)])

    def hindcast(self, panel: CasePanel, state: Tensor, horizon: int) -> Floats:
        """The last week again, day by day, times the growth; holidays taken out and put back in."""
        counts = panel.counts
        length = counts.shape[1]
        holiday = holidays.is_holiday(self.settings.holidays, panel.start, length + horizon)
        effect = holidays.effect(counts, holiday)
        usual = np.where(holiday[:length], counts / effect[:, None], counts)
        days = min(length - DAYS, HISTORY - DAYS + 1)
        origins = np.arange(length - days, length)
        now = growth(state)[:days][::-1]
        total = np.zeros((len(counts), days))
        for ahead in range(horizon - DAYS + 1, horizon + 1):
            if ahead <= 0:
                total += counts[:, origins + ahead]
                continue
            weeks = -(-ahead // DAYS)
            grown = np.exp(now * (1 - DAMPING**weeks) / (1 - DAMPING))
            day = usual[:, origins + ahead - weeks * DAYS] * grown
            total += np.where(holiday[origins + ahead], day * effect[:, None], day)
        return total / DAYS


def growth(state: Tensor) -> Floats:
    """The log growth that was forecast for the first week, as of each day, the last day first.

    A weighted mean over the known days of a week; days far from their median are pulled back, as
    far as noise does not explain them; and what is mostly noise shrinks towards no growth at all.
    """
    values, precision = state.double().numpy().reshape(2, HISTORY)
    known = precision > 0
    noise = np.where(known, 1 / np.sqrt(np.maximum(precision, 1e-30)), 0.0)
    value = sliding_window_view(np.where(known, values, np.nan), DAYS)
    noise, known = sliding_window_view(noise, DAYS), sliding_window_view(known, DAYS)
    some = known.any(axis=1)
    middle = np.zeros(len(value))
    middle[some] = np.nanmedian(value[some], axis=1)
    reach = np.hypot(OUTLIER, 2 * noise)
    pulled = np.clip(np.where(known, value, 0.0), middle[:, None] - reach, middle[:, None] + reach)
    weight = np.where(known, RECENCY ** np.arange(DAYS), 0.0)
    weight = weight / np.maximum(weight.sum(axis=1, keepdims=True), 1e-30)
    trend = (weight * pulled).sum(axis=1)
    trust = TYPICAL**2 / (TYPICAL**2 + (weight**2 * noise**2).sum(axis=1))
    forecast: Floats = np.clip(FOLLOW * trust * trend, -LARGEST_FORECAST, LARGEST_FORECAST)
    return forecast
