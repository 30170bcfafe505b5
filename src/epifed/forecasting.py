"""Forecasts of one authority or of all: a trained state and the own counts in, quantiles out.

What a client does here it does alone: the trend is public, the counts and the errors are its own.
"""

from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from epifed import intervals
from epifed.anomalies import Cleaned
from epifed.days import DAYS_OF, WEEK, Step
from epifed.errors import EpifedError
from epifed.holidays import days_off_within
from epifed.learner import SOFTENING, Learner, Parts
from epifed.levels import Level
from epifed.panel import CasePanel
from epifed.windows import observed

Floats = NDArray[np.float64]

MOST_HORIZON = 28


@dataclass(frozen=True)
class Forecast:
    """Quantiles of the 7-day average of daily cases, `horizon` days after the origin.

    With the step `week`: of a week's cases, so many weeks after the one dated by the origin.
    """

    origin: date
    horizon: int
    regions: tuple[str, ...]
    point: Floats
    quantiles: Floats
    """[regions, levels], at `intervals.LEVELS`."""
    level: str = ""
    """What the regions are, if they are sums of others: county, state, nation."""
    reference: date | None = None
    """The date that a hub knows it by; none: the origin."""
    weeks_ahead: int | None = None
    """The week, as a hub counts from that date; none: whole weeks from the origin."""
    step: Step = "day"

    @property
    def target_date(self) -> date:
        """The last day of the week that is forecast, or the day that it is dated."""
        return self.origin + timedelta(days=self.horizon * DAYS_OF[self.step])

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


def refuse_horizon(horizon: int, step: Step) -> None:
    """Refuse days, or weeks, ahead that nothing can be forecast for."""
    most = MOST_HORIZON // DAYS_OF[step]
    if not 1 <= horizon <= most:
        raise EpifedError(f"horizon: found {horizon} {step}s; expected 1 to {most}")


@dataclass(frozen=True)
class Reckoned:
    """A forecast before its uncertainty is said: the points, and what the past says of them."""

    origin: date
    horizon: int
    step: Step
    regions: tuple[str, ...]
    level: str
    point: Floats
    """What is forecast, as if no report had been anomalous."""
    now: Floats
    """What the days of the target week that have come add to it, which are certain."""
    left: float
    """The share of the target week that is to come, times the days of a step."""
    past: intervals.Past
    population: NDArray[np.int64] | None
    reported: Floats
    """What anomalous reports of those days that have come add."""

    def forecast(self) -> Forecast:
        """The forecast with its quantiles."""
        ahead = np.maximum(self.point - self.now, 0.0) / self.left
        spread = intervals.quantiles(ahead, self.past, self.population)
        values = (self.now + self.reported)[:, None] + self.left * spread
        return Forecast(
            self.origin,
            self.horizon,
            self.regions,
            np.maximum(self.point + self.reported, 0.0),
            np.maximum(values, 0.0),
            self.level,
            step=self.step,
        )


def forecast(
    cleaned: Cleaned,
    learner: Learner[Any, Any],
    state: Any,
    horizon: int,
    level: Level | None = None,
) -> Forecast:
    """Forecast from a panel's last day with a state as it stands on that day.

    Larger regions, those of a level, are forecast as the sums of their parts, with quantiles as
    wide as the past errors of such sums. Anomalous days are replaced both in what is carried on
    and in what past forecasts are held to; those that lie in the target week already are known,
    and come back in at the end.
    """
    return reckoned(cleaned, learner, state, horizon, level).forecast()


def reckoned(
    cleaned: Cleaned,
    learner: Learner[Any, Any],
    state: Any,
    horizon: int,
    level: Level | None = None,
) -> Reckoned:
    """What `forecast` says, before its uncertainty is said."""
    panel = cleaned.panel
    panel.refuse_step(learner.settings.step)
    refuse_horizon(horizon, panel.step)
    apart, unit = panel.step_days, f"{panel.step}s"
    made = learner.hindcast(panel, state, horizon)
    known = made.shape[1] - horizon
    least = intervals.LEAST_ERRORS if apart == 1 else intervals.LEAST_WEEKLY_ERRORS
    if known < least:
        raise EpifedError(
            f"{panel.source}: found {panel.counts.shape[1]} {unit} of cases, enough for "
            f"{max(known, 0)} past errors {horizon} {unit} ahead; expected enough for {least}"
        )
    used = min(known, intervals.ERRORS // apart)
    so_far = learner.completed(panel, state).counts
    days = apart * horizon
    truth = observed(so_far[:, -used - WEEK + 1 :], panel.step)[:, -used:]
    came, unsettled = _came(so_far, days), after_holiday(panel, panel.end)
    reported, population, regions = _reported(cleaned, horizon), panel.population, panel.regions
    if level is not None:
        made, truth, reported = level.sum(made), level.sum(truth), level.sum(reported)
        came, unsettled = level.sum(came), level.members @ unsettled > 0
        population = None if population is None else level.members @ population
        regions = level.regions
    # Days of the target week that have come are certain: only the mean of the others errs.
    # An interval is reckoned in cases a day, whatever a step counts.
    left, informed = min(days, WEEK) / WEEK * apart, learner.informed(state)
    then = came[:, -used - horizon : -horizon]
    past = intervals.Past(
        np.maximum(made[:, known - used : known] - then, 0.0) / left,
        np.maximum(truth - then, 0.0) / left,
        days,
        apart,
        uninformed=0 if informed is None else max(used + horizon - 1 - informed, 0),
        surprises=learner.surprises(state, horizon),
        after_holiday=unsettled,
    )
    return Reckoned(
        panel.end,
        horizon,
        panel.step,
        regions,
        level.name if level else "",
        made[:, -1],
        came[:, -1],
        left,
        past,
        population,
        reported,
    )


def parts(cleaned: Cleaned, learner: Learner[Any, Any], state: Any, horizon: int) -> Parts | None:
    """Where the change comes from, against the last week as reported, if the learner can say."""
    found = learner.parts(cleaned.panel, state, horizon)
    if found is None:
        return None
    taken, reported = (
        counts[:, -WEEK // cleaned.panel.step_days :].mean(axis=1) + SOFTENING
        for counts in (cleaned.panel.counts, cleaned.reported)
    )
    return replace(found, reports=found.reports + np.log(taken / reported))


def after_holiday(panel: CasePanel, day: date) -> NDArray[np.bool_]:
    """Which regions had a public holiday shortly before a day, as far as that is known."""
    if not panel.calendars or panel.step == "week":
        return np.zeros(len(panel.regions), dtype=np.bool_)
    return days_off_within(panel.calendars, day, intervals.HOLIDAY_DAYS)


def _came(counts: Floats, horizon: int) -> Floats:
    """By day, what the days of its target week that have come add to the average of that week."""
    days = max(WEEK - horizon, 0)
    total = np.cumsum(np.pad(counts, ((0, 0), (WEEK, 0))), axis=1)
    came: Floats = (total[:, WEEK:] - total[:, WEEK - days : total.shape[1] - days]) / WEEK
    return came


def _reported(cleaned: Cleaned, horizon: int) -> Floats:
    """By how much the days of the target week that have come exceed what they are taken for."""
    days = max(WEEK - horizon, 0) if cleaned.panel.step == "day" else 0
    newest = slice(cleaned.reported.shape[1] - days, None)
    excess = cleaned.reported[:, newest] - cleaned.panel.counts[:, newest]
    average: Floats = excess.sum(axis=1) / WEEK
    return average
