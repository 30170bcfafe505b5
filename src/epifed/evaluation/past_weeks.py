"""Forecasts from releases as results folders, and earlier ones beside what was observed."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path

import polars as pl

from epifed.data.panel import CasePanel
from epifed.errors import EpifedError
from epifed.evaluation.backtest import KnownData, own_table, record_of
from epifed.evaluation.results_folder import (
    ForecastRecord,
    ReleaseRecord,
    WeekTables,
    read_folder,
    write_forecast,
)
from epifed.forecasting import Forecast, SiteForecast, as_points
from epifed.intervals import LEVELS
from epifed.learners.base import Floats
from epifed.privacy.plan import price_together
from epifed.training.release import Release

MOST_WEEKS = 60
"""Earlier weeks that are looked at."""
_Past = tuple[Forecast, Floats, Floats]
"""A forecast, and what was known of the last week on its day: as reported, and filled up."""


def label(training: str, releases: Sequence[Release]) -> ReleaseRecord:
    """What is said of the release of a training, the last of those that a forecast knows."""
    newest = releases[-1]
    spent = [one for release in releases for one in release.spent]
    return ReleaseRecord(
        training=training,
        sha256=newest.sha256,
        last_day=newest.last_day,
        learner=newest.settings.learner,
        epsilon=newest.epsilon,
        delta=newest.delta,
        accountant=newest.accountant,
        releases=len(releases),
        epsilon_total=price_together(spent, newest.delta, newest.accountant),
        noise_multiplier=newest.spent[-1].noise_multiplier,
    )


def keep_forecast(
    path: Path,
    panel: CasePanel,
    outlook: SiteForecast,
    release: Release,
    about: ReleaseRecord,
    *,
    nowcast: pl.DataFrame | None = None,
    earlier: Sequence[Path] = (),
    notes: Sequence[str] = (),
) -> None:
    """Write a forecast from a release as a results folder, with a CSV beside.

    `earlier` are the folders of the forecasts of weeks before, which are scored; `notes` is what
    must be known of it, in sentences.
    """
    settings = release.settings
    past = scored_weeks(panel, earlier, settings.horizon, outlook.panel.end)
    record = None
    if past is not None:
        record = record_of(
            past,
            settings,
            origins=past["origin_date"].n_unique(),
            releases=about.releases,
            epsilon_total=about.epsilon_total,
            noise_multiplier=about.noise_multiplier,
            real_time=True,
        )
    tables = WeekTables(
        outlook.to_long(),
        as_points(outlook),
        outlook.parts_table(),
        nowcast,
        past,
        record,
        outlook.total_to_long(),
    )
    left_out = (panel.end - outlook.panel.end).days
    write_forecast(
        path,
        panel,
        settings,
        tables,
        outlook.table(),
        randomness="secure" if release.randomness == "secure" else "seeded",
        about=ForecastRecord(incomplete_days=left_out, notes=tuple(notes)),
        release=about,
        beside={"levels": outlook.larger_to_long(), "anomalies": outlook.known.to_long()},
    )


def scored_weeks(
    panel: CasePanel, earlier: Sequence[Path], horizon: int, today: date
) -> pl.DataFrame | None:
    """The forecasts of earlier weeks whose target has come, beside it; none if there is none.

    "Like today" is what was reported on the day, as the office knew it.
    """
    frames = []
    for path in sorted(earlier)[-MOST_WEEKS:]:
        found = _read(path, panel, horizon)
        if found is None or found[0].target_date > min(panel.end, today):
            continue
        made, reported, completed = found
        mine = panel.of(made.regions)
        if made.origin < mine.start:
            continue
        table = own_table(KnownData(mine), [made], {made.origin: completed})
        known = pl.DataFrame({"region": made.regions, "known": reported})
        frames.append(
            table.join(known, on="region", maintain_order="left")
            .with_columns(persistence=pl.col("known"))
            .drop("known")
        )
    return pl.concat(frames) if frames else None


def _read(path: Path, panel: CasePanel, horizon: int) -> _Past | None:
    """The forecast of an earlier week of the regions that the panel has; none if it has none.

    One that cannot be read, of another version of epifed say, is no reason to make no forecast.
    """
    try:
        tables = read_folder(path).tables
    except (EpifedError, OSError):
        return None
    if not isinstance(tables, WeekTables):
        return None
    points = tables.points.filter(
        (pl.col("horizon") == horizon) & pl.col("region").is_in(panel.regions)
    )
    long = tables.forecast.filter(
        (pl.col("horizon") == horizon) & pl.col("region").is_in(points["region"].to_list())
    )
    if points.is_empty() or len(long) != len(points) * len(LEVELS):
        return None
    regions = tuple(points["region"])
    order = {region: row for row, region in enumerate(regions)}
    long = long.sort(pl.col("region").replace_strict(order), "level")
    made = Forecast(
        long["origin_date"][0],
        horizon,
        regions,
        points["point"].to_numpy(),
        long["value"].to_numpy().reshape(len(regions), len(LEVELS)),
        step=panel.step,
    )
    return made, points["persistence"].to_numpy(), points["completed"].to_numpy()
