"""Everything the page shows, in as few numbers as it takes."""

from dataclasses import fields
from datetime import UTC, date, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from epifed.anomalies import RECENT_DAYS, clean
from epifed.days import DAYS_OF
from epifed.errors import EpifedError
from epifed.evaluate.folder import ResultsFolder
from epifed.learner import Parts
from epifed.panel import CasePanel
from epifed.report.html import measured
from epifed.report.html.outlines import outlines

MOST_REGIONS = 12_000
MANY_REGIONS = 2000
"""From here on the page holds fewer days and horizons of each region."""
HISTORY_DAYS = 182
LATER_DAYS = 28
MOST_COUNTS = 500_000
LEVELS = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)
"""The quantiles the page shows: the median, and the ends of the 50, 80 and 95 % intervals."""


def payload(
    folder: ResultsFolder,
    panel: CasePanel | None,
    *,
    groups: dict[str, str],
    title: str | None,
    ledger: Path | None,
) -> dict[str, Any]:
    """The page's data. `groups` says for a region what larger one it lies in."""
    ids = panel.regions if panel else _regions(folder)
    if len(ids) > MOST_REGIONS:
        raise EpifedError(
            f"{folder.path}: found {len(ids)} regions; expected at most {MOST_REGIONS} on "
            "one page: report counties instead of communities"
        )
    rows = {region: i for i, region in enumerate(ids)}
    _same_regions(folder, panel, rows)
    as_of = _as_of(folder, panel)
    manifest, data = folder.manifest, folder.manifest.data
    attribution = dict.fromkeys((*(panel.attribution if panel else ()), *data.attribution))
    found: dict[str, Any] = {
        "title": title,
        "made": datetime.now(UTC).isoformat(timespec="minutes"),
        "as_of": as_of.isoformat(),
        "level": _level(panel, ids),
        "step": folder.settings.step,
        "simulated": data.simulated is not None,
        "seeded": folder.seeded,
        "source": data.source,
        "attribution": list(attribution),
        "same_data": panel is None or _same_data(folder, panel),
        "regions": {
            "ids": ids,
            "names": panel.names if panel else ids,
            "groups": [groups.get(region) for region in ids] if groups else None,
            "people": None
            if panel is None or panel.population is None
            else panel.population.tolist(),
        },
        "history": _history(panel, as_of) if panel else None,
        "anomalies": _anomalies(panel, as_of, rows) if panel and folder.newest else None,
        "map": outlines(panel.boundaries, ids) if panel and panel.boundaries else None,
        "forecast": _forecast(folder, rows),
        "nowcast": _nowcast(folder, rows),
        "backtest": measured.backtest(folder, rows),
        "compared": measured.comparison(folder),
        "release": measured.release(folder),
        "metrics": measured.metrics(),
        "grid": None,
        "ledger": measured.ledger(ledger) if ledger else None,
        "settings": _settings(folder),
        "manifest": {
            "epifed": manifest.epifed,
            "finished": manifest.finished.isoformat(),
            "seed": folder.settings.seed,
            "data_sha256": data.sha256,
            "versions": manifest.versions,
        },
        "version": version("epifed"),
    }
    if folder.grid is not None:
        found["grid"] = {
            "cells": measured.cells(folder.grid),
            "tests": measured.tests(folder.grid, rows, folder.settings.step),
            "privacy": measured.budgets(folder),
        }
    return found


def _same_data(folder: ResultsFolder, panel: CasePanel) -> bool:
    folders = [folder, *([folder.beside] if folder.beside else [])]
    return all(one.manifest.data.is_of(panel) for one in folders)


def _settings(folder: ResultsFolder) -> dict[str, Any]:
    values = folder.settings.model_dump(mode="python")
    return {k: measured.plain(v, 12) if isinstance(v, float) else v for k, v in values.items()}


def _past(folder: ResultsFolder) -> dict[str, pl.DataFrame]:
    """The tables of forecasts by name, as far as there are some."""
    found = {"forecast": folder.newest.forecast} if folder.newest else {}
    return found | ({"backtest": folder.backtest.backtest} if folder.backtest else {})


def _regions(folder: ResultsFolder) -> tuple[str, ...]:
    frames = [*_past(folder).values(), *([folder.grid.predictions] if folder.grid else [])]
    return tuple(sorted(set().union(*(set(frame["region"].unique()) for frame in frames))))


def _same_regions(folder: ResultsFolder, panel: CasePanel | None, rows: dict[str, int]) -> None:
    for name, frame in _past(folder).items():
        unknown = set(frame["region"].unique()) - rows.keys()
        if unknown and panel is not None:
            raise EpifedError(
                f"{folder.path}: found in {name}.parquet the region {min(unknown)}, which "
                f"is not in {panel.source}; expected the data that the results were made of"
            )


def _as_of(folder: ResultsFolder, panel: CasePanel | None) -> date:
    """The day that counts as today: the forecast's origin, else the last day of the results."""
    if folder.newest is not None:
        last = folder.newest.forecast["origin_date"].max()
    else:
        assert folder.grid is not None
        last = folder.grid.predictions["target_day"].max()
    assert isinstance(last, date)
    if panel is not None and not panel.start <= last <= panel.end:
        raise EpifedError(
            f"{folder.path}: found results up to {last}, but {panel.source} has the days "
            f"{panel.start} … {panel.end}; expected the data that the results were made of"
        )
    return last


def _level(panel: CasePanel | None, ids: tuple[str, ...]) -> str:
    if panel and panel.parents:
        return "community"
    counties = panel is not None and panel.boundaries is not None
    return "county" if counties or all(len(i) == 5 and i.isdecimal() for i in ids) else "region"


def _history(panel: CasePanel, as_of: date) -> dict[str, Any]:
    """Counts of each day, or week, up to the day, and apart from them those reported later."""
    kept = int(np.clip(MOST_COUNTS // len(panel.regions), 42, HISTORY_DAYS))
    end, step = panel.index(as_of) + 1, panel.step_days
    begin = max(0, end - kept - 6)
    daily = panel.counts[:, begin : end + LATER_DAYS // step]
    whole = bool((daily == np.rint(daily)).all())
    values = daily.astype(int) if whole else np.round(daily, 1)
    return {
        "start": panel.day(begin).isoformat(),
        "step": step,
        "days": end - begin,
        "counts": values.tolist(),
    }


def _anomalies(panel: CasePanel, as_of: date, rows: dict[str, int]) -> list[list[Any]]:
    """Reports of the last weeks that the forecast does not take for counts of their day."""
    known = clean(panel.between(panel.start, as_of))
    found = known.to_long(RECENT_DAYS).sort("region", "day")
    return [
        [rows[region], day.isoformat(), kind, round(reported, 1), round(expected, 1)]
        for region, day, kind, reported, expected in found.iter_rows()
    ]


def _parts(
    parts: pl.DataFrame | None, rows: dict[str, int], horizons: list[int]
) -> list[list[list[float | None]]] | None:
    """What the country, the place, the level, holidays, reports add: [part][region][horizon]."""
    if parts is None:
        return None
    names = [field.name for field in fields(Parts)]
    laid = (measured.lay_out(parts, rows, "horizon", horizons, name) for name in names)
    return [
        [[None if np.isnan(v) else round(float(v), 3) for v in region] for region in part]
        for part in laid
    ]


def _forecast(folder: ResultsFolder, rows: dict[str, int]) -> dict[str, Any] | None:
    """The newest forecast, at the levels that the page shows."""
    if folder.newest is None:
        return None
    frame = folder.newest.forecast.with_columns(pl.col("level").round(4))
    frame = frame.filter(pl.col("origin_date") == pl.col("origin_date").max())
    absent = set(LEVELS) - set(frame["level"].unique())
    if absent:
        raise EpifedError(
            f"{folder.path}: found in forecast.parquet no level {min(absent):g}; "
            f"expected {', '.join(f'{level:g}' for level in LEVELS)}"
        )
    step = folder.settings.step
    horizons = frame["horizon"].unique().sort().to_list()
    if len(rows) > MANY_REGIONS:
        weeks = [days // DAYS_OF[step] for days in measured.WEEKS]
        horizons = [h for h in horizons if h in weeks] or horizons[:1]
    return {
        "horizons": [DAYS_OF[step] * h for h in horizons],
        "parts": _parts(folder.newest.parts, rows, horizons),
        "levels": LEVELS,
        "values": [
            measured.weekly(
                measured.lay_out(frame.filter(level=level), rows, "horizon", horizons, "value"),
                step,
            )
            for level in LEVELS
        ],
    }


def _nowcast(folder: ResultsFolder, rows: dict[str, int]) -> dict[str, Any] | None:
    """The last two weeks as known and as estimated, and R: for each [regions][days]."""
    frame = folder.newest.nowcast if folder.newest else None
    if frame is None or len(rows) > MANY_REGIONS:
        return None
    days = sorted(frame["date"].unique())
    digits = dict.fromkeys(("known", "estimate", "lower", "upper"), 1)
    digits |= dict.fromkeys(("r", "r_lower", "r_upper"), 2)
    return {
        "days": [day.isoformat() for day in days],
        **{
            name: [
                [None if np.isnan(v) else round(float(v), places) for v in region]
                for region in measured.lay_out(frame, rows, "date", days, name)
            ]
            for name, places in digits.items()
        },
    }
