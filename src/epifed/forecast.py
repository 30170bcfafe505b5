"""Forecasts of one authority or of all: a trained state and the own counts in, quantiles out.

What a client does here it does alone: the trend is public, the counts and the errors are its own.
"""

from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from epifed import holidays, intervals
from epifed.errors import EpifedError
from epifed.learners import make_learner
from epifed.learners.trend import DAMPING, DAYS, HISTORY, advance, growth
from epifed.panel import CasePanel
from epifed.settings import Settings
from epifed.windows import last_windows, smooth

Floats = NDArray[np.float64]

MOST_HORIZON = 28


@dataclass(frozen=True)
class Forecast:
    """Quantiles of the 7-day average of daily cases, `horizon` days after the origin."""

    origin: date
    horizon: int
    regions: tuple[str, ...]
    point: Floats
    quantiles: Floats
    """[regions, levels], at `intervals.LEVELS`."""

    @property
    def target_date(self) -> date:
        """The last day of the week that is forecast."""
        return self.origin + timedelta(days=self.horizon)

    def to_long(self) -> pl.DataFrame:
        """A row for each region and quantile level."""
        levels = len(intervals.LEVELS)
        return pl.DataFrame(
            {
                "origin_date": [self.origin] * self.quantiles.size,
                "region": np.repeat(np.array(self.regions, dtype=object), levels),
                "horizon": np.full(self.quantiles.size, self.horizon),
                "target_date": [self.target_date] * self.quantiles.size,
                "level": np.tile(intervals.LEVELS, len(self.regions)),
                "value": self.quantiles.ravel(),
            },
            schema_overrides={"region": pl.String},
        )


def forecast(
    panel: CasePanel, settings: Settings, state: Tensor, horizon: int, age: int = 0
) -> Forecast:
    """Forecast from the panel's last day with a state that was trained `age` days before it."""
    past = _as_of_each_day(panel, settings, state, horizon, age)
    truth = smooth(panel.counts, "trailing")
    known, least = past.shape[1] - horizon, intervals.LEAST_ERRORS
    if known < least:
        raise EpifedError(
            f"{panel.source}: found {panel.counts.shape[1]} days of cases, enough for "
            f"{max(known, 0)} past errors {horizon} days ahead; expected enough for {least}"
        )
    errors = intervals.log_error(truth[:, -known:], past[:, :known])
    half = intervals.widths(errors, horizon)
    point = past[:, -1]
    return Forecast(panel.end, horizon, panel.regions, point, intervals.quantiles(point, half))


def _as_of_each_day(
    panel: CasePanel, settings: Settings, state: Tensor, horizon: int, age: int
) -> Floats:
    """What would have been forecast on each of the last days, the panel's last day last."""
    if not 1 <= horizon <= MOST_HORIZON:
        raise EpifedError(f"horizon: found {horizon} days; expected 1 to {MOST_HORIZON}")
    if settings.learner == "trend":
        return _by_trend(panel, settings, advance(state, age), horizon)
    if horizon != settings.horizon:
        raise EpifedError(
            f"horizon: found {horizon} days; expected {settings.horizon}, the one that the "
            f"'{settings.learner}' model was trained for"
        )
    days = min(panel.counts.shape[1] - settings.window + 1, HISTORY - DAYS + 1)
    inputs = torch.from_numpy(last_windows(panel, settings, days))
    prediction: Floats = make_learner(settings).predict(state, inputs).double().numpy()
    return np.maximum(prediction, 0.0)


def _by_trend(panel: CasePanel, settings: Settings, state: Tensor, horizon: int) -> Floats:
    """The last week again, day by day, times the growth; holidays taken out and put back in."""
    counts = panel.counts
    length = counts.shape[1]
    holiday = holidays.is_holiday(settings.holidays, panel.start, length + horizon)
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
