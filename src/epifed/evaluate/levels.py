"""The backtest of larger regions: states and the nation, in the weeks that were asked for."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

import polars as pl

from epifed.evaluate.knowledge import Knowledge
from epifed.evaluate.scored import SCORES, scored, that_came
from epifed.forecasting import Forecast
from epifed.learner import Floats, Learner
from epifed.levels import Level
from epifed.panel import CasePanel
from epifed.targets import Targets, level_counts, level_rows
from epifed.windows import observed


@dataclass(frozen=True)
class LevelBacktest:
    """The forecasts of all levels, and those whose week has come beside what came."""

    forecasts: tuple[Forecast, ...]
    table: pl.DataFrame
    """As the backtest's own, with `level` and `weeks_ahead`, empty where weeks are not counted."""
    sentence: str
    """Which counts of larger regions were used."""

    def to_long(self) -> pl.DataFrame:
        """All quantiles: a row for each origin, region, week and quantile."""
        return pl.concat(map(level_rows, self.forecasts))

    def summary(self) -> list[dict[str, Any]]:
        """The scores of each level and week."""
        if self.table.is_empty():
            return []
        keys = ["level", "weeks_ahead", pl.when(pl.col("weeks_ahead").is_null()).then("horizon")
                .alias("days_ahead")]  # fmt: skip
        grouped = self.table.group_by(keys, maintain_order=True)
        regions, origins = pl.col("region").n_unique(), pl.col("origin_date").n_unique()
        return grouped.agg(regions.alias("regions"), origins.alias("origins"), *SCORES).to_dicts()


def backtest_levels(
    known: Knowledge, learner: Learner[Any, Any], states: Mapping[date, Any], targets: Targets
) -> LevelBacktest:
    """Forecast every level from each origin with the state of that day, and score what has come.

    Nothing after the clients' last day is scored, however far published totals reach.
    """
    finals = {level.name: level_counts(known.panel, targets, level) for level in targets.levels}
    forecasts, frames = [], []
    for day, state in states.items():
        then = known.on(day)
        filled_up = learner.completed(then.panel, state).counts
        completed = observed(filled_up, then.panel.step)[:, -1]
        for level, one in targets.made(then, learner, state):
            forecasts.append(one)
            final = finals[level.name]
            if one.target_date > min(final.end, known.panel.end):
                continue
            series = _known_series(known, targets, level, final, one)
            filled = series[:, -1] if targets.totals_of(level) else level.sum(completed)
            average = observed(final.counts, final.step)
            at = final.index(one.origin)
            to = at + one.horizon
            frame = scored(one, average[:, to], average[:, at], series, filled)
            frames.append(
                that_came(frame, final, to).with_columns(
                    pl.lit(level.name).alias("level"),
                    pl.lit(one.weeks_ahead, dtype=pl.Int64).alias("weeks_ahead"),
                )
            )
    table = pl.concat(frames) if frames else pl.DataFrame()
    return LevelBacktest(tuple(forecasts), table, targets.sentence())


def _known_series(
    known: Knowledge, targets: Targets, level: Level, final: CasePanel, one: Forecast
) -> Floats:
    """The 7-day averages of a level up to the last day known, as known then."""
    if known.vintages is not None and targets.totals_of(level) is None:
        return observed(level.sum(known.on(one.origin).reported), final.step)
    return observed(final.between(final.start, one.origin).counts, final.step)
