"""What one office makes of a release and its own counts: the forecast of a morning, offline."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import numpy as np
import polars as pl

from epifed import forecasting
from epifed.anomalies import Cleaned, clean
from epifed.days import DAYS_OF
from epifed.errors import EpifedError
from epifed.forecasting import Forecast
from epifed.intervals import LEVELS
from epifed.learner import Floats, Learner, Parts
from epifed.nowcast import newest_is_late
from epifed.panel import CasePanel
from epifed.release import Release
from epifed.windows import observed
from epifed.words import counted

AHEAD = (7, 14, 21, 28)
"""Days ahead of a weekly forecast."""


@dataclass(frozen=True)
class Outlook:
    """The forecasts from the last day of a panel, and where their changes come from."""

    known: Cleaned
    learner: Learner[Any, Any]
    state: Any
    """As it stands on the last day."""
    forecasts: tuple[Forecast, ...]
    parts: dict[int, Parts | None]
    """By horizon; none where the learner cannot say."""

    @classmethod
    def of(
        cls, panel: CasePanel, learner: Learner[Any, Any], state: Any, horizons: Sequence[int]
    ) -> "Outlook":
        """The outlook from a state as it stands on the panel's last day."""
        known = clean(panel)
        made = tuple(forecasting.forecast(known, learner, state, one) for one in horizons)
        parts = {one: forecasting.parts(known, learner, state, one) for one in horizons}
        return cls(known, learner, state, made, parts)

    @property
    def panel(self) -> CasePanel:
        """What was forecast from, anomalous reports replaced."""
        return self.known.panel

    def to_long(self) -> pl.DataFrame:
        """A row for each horizon, region and quantile level."""
        return pl.concat(one.to_long() for one in self.forecasts)

    def parts_table(self) -> pl.DataFrame | None:
        """Where the changes come from, if the learner can say."""
        regions = self.panel.regions
        found = [one.to_long(regions, days) for days, one in self.parts.items() if one is not None]
        return pl.concat(found) if found else None

    def completed(self) -> Floats:
        """The last week of each region as the learner takes it, late reports filled up."""
        filled = self.learner.completed(self.panel, self.state)
        return observed(filled.counts, filled.step)[:, -1]

    def table(self, names: Sequence[str]) -> pl.DataFrame:
        """A row for each region and horizon, as people read it: point, 50 and 95 % interval."""
        reported = observed(self.known.reported, self.panel.step)[:, -1]
        ends = {"lower_95": 0.025, "lower_50": 0.25, "upper_50": 0.75, "upper_95": 0.975}
        frames = [
            pl.DataFrame(
                {
                    "origin_date": [one.origin] * len(one.regions),
                    "region": one.regions,
                    "name": names,
                    "horizon": [one.horizon * DAYS_OF[one.step]] * len(one.regions),
                    "target_date": [one.target_date] * len(one.regions),
                    "like_today": reported,
                    "forecast": one.point,
                }
                | {name: one.quantiles[:, LEVELS.index(level)] for name, level in ends.items()},
                schema_overrides={"region": pl.String, "name": pl.String},
            )
            for one in self.forecasts
        ]
        return pl.concat(frames).with_columns(pl.selectors.float().round(3))


def horizons_of(learner: Learner[Any, Any]) -> tuple[int, ...]:
    """The steps ahead of a weekly forecast: one to four weeks, or the learner's own horizon."""
    step = DAYS_OF[learner.settings.step]
    return (
        tuple(days // step for days in AHEAD)
        if learner.any_horizon
        else (learner.settings.horizon,)
    )


def timely(
    panel: CasePanel, known: CasePanel, learner: Learner[Any, Any], learned_to: date, kept: str
) -> tuple[CasePanel, str]:
    """The panel to forecast from, and a sentence on how complete its newest days are.

    `known` is the same panel with what was known on earlier mornings, as far as it is kept, and
    `kept` says how far that is. Without, a newest day that looks incomplete and is newer than what
    was learned from is left out.
    """
    if panel.step == "week":
        return panel, "weekly counts: the newest week is taken as complete"
    if known.history is not None and learner.reads_history:
        mornings = len(known.history.snapshots)
        return (
            known,
            f"late reports are filled up, from {counted(mornings, 'morning')} of your own list",
        )
    reason = kept if learner.reads_history else f"the learner '{learner.name}' reads no vintages"
    if not newest_is_late(panel):
        return panel, f"no vintages ({reason}): the newest days are taken as complete"
    before = panel.end - timedelta(days=1)
    if before < learned_to:
        return panel, f"no vintages ({reason}): {panel.end} looks incomplete, take care"
    return panel.between(panel.start, before), (
        f"no vintages ({reason}): {panel.end} looks incomplete and is left out, the days before "
        "are taken as complete; counts by publication day never are incomplete "
        "('epifed data convert --by-publication')"
    )


def joined_state(releases: Sequence[Release], day: date) -> Any:
    """What releases know together on a day, the newest last; those of other learners are left out.

    They are released and paid for already, so joining them costs nothing.
    """
    newest = releases[-1]
    learner = newest.learner
    state, last = None, newest.last_day
    for one in sorted(releases, key=lambda release: release.last_day):
        if one.last_day > newest.last_day or not learner.compatible(one.learner):
            continue
        fresh = learner.unpack(one.vector)
        if state is not None:
            fresh = learner.join(learner.advance(state, (one.last_day - last).days), fresh)
        state, last = fresh, one.last_day
    if state is None:
        raise EpifedError("found no release; expected at least one")
    return learner.advance(state, newest.age_on(day))


def as_points(outlook: Outlook) -> pl.DataFrame:
    """What a later week needs to score the forecasts: point, and what was known on the day."""
    panel = outlook.panel
    persistence = observed(outlook.known.reported, panel.step)[:, -1]
    completed = outlook.completed()
    return pl.concat(
        pl.DataFrame(
            {
                "region": one.regions,
                "horizon": np.full(len(one.regions), one.horizon),
                "point": one.point,
                "persistence": persistence,
                "completed": completed,
            },
            schema_overrides={"region": pl.String},
        )
        for one in outlook.forecasts
    )
