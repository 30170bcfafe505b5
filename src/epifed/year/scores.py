"""How good the offices' forecasts of a year were, held to what finally came."""

from datetime import date
from pathlib import Path
from typing import Any

import polars as pl

from epifed.evaluate.scored import SCORES
from epifed.evaluate.week import scored_weeks
from epifed.office import RESULTS, WEEK_NAME
from epifed.panel import CasePanel

HORIZONS = (7, 14)
"""Days ahead that are looked at; the first is the one of the year's table."""
KEPT = ("mae_ratio", "coverage_50", "coverage_95")


def forecasts_of(folder: Path, final: CasePanel, day: date | None = None) -> pl.DataFrame:
    """The forecasts of all offices beside what finally came, of one morning's week or of all."""
    wanted = f"{day.isocalendar().year}-W{day.isocalendar().week:02d}" if day else None
    frames = []
    for path in sorted((folder / "reports").glob("*/*")):
        if not WEEK_NAME.fullmatch(path.name) or wanted not in (None, path.name):
            continue
        for horizon in HORIZONS:
            table = scored_weeks(final, [path / RESULTS], horizon, final.end)
            if table is not None:
                about = pl.lit(path.parent.name).alias("site"), pl.lit(path.name).alias("week")
                frames.append(table.with_columns(about))
    return pl.concat(frames) if frames else pl.DataFrame()


def scores_of(folder: Path, final: CasePanel, day: date | None = None) -> dict[str, Any] | None:
    """Error relative to like today, and coverage, at the first horizon; none without forecasts."""
    table = forecasts_of(folder, final, day)
    return summed(table, HORIZONS[0]) if len(table) else None


def summed(table: pl.DataFrame, horizon: int) -> dict[str, Any] | None:
    """The scores of some forecasts at a horizon."""
    mine = table.filter(pl.col("horizon") == horizon)
    if mine.is_empty():
        return None
    found = mine.select(SCORES).row(0, named=True)
    return {name: found[name] for name in KEPT} | {"forecasts": len(mine)}
