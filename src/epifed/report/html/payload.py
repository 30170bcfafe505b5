"""Everything the page shows, in as few numbers as it takes."""

from datetime import UTC, date, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from epifed.errors import EpifedError
from epifed.panel import CasePanel
from epifed.report.html import measured
from epifed.report.html.inputs import LEVELS, Inputs
from epifed.report.html.outlines import outlines

MOST_REGIONS = 12_000
MANY_REGIONS = 2000
"""From here on the page holds fewer days and horizons of each region."""
HISTORY_DAYS = 182
LATER_DAYS = 28
MOST_COUNTS = 500_000
SIMULATED = "simulated ("


def payload(
    inputs: Inputs,
    panel: CasePanel | None,
    *,
    groups: dict[str, str],
    title: str | None,
    ledger: Path | None,
) -> dict[str, Any]:
    """The page's data. `groups` says for a region what larger one it lies in."""
    ids = panel.regions if panel else _regions(inputs)
    if len(ids) > MOST_REGIONS:
        raise EpifedError(
            f"{inputs.directory}: found {len(ids)} regions; expected at most {MOST_REGIONS} on "
            "one page: report counties instead of communities"
        )
    rows = {region: i for i, region in enumerate(ids)}
    _same_regions(inputs, panel, rows)
    as_of = _as_of(inputs, panel)
    attribution = tuple(dict.fromkeys((*(panel.attribution if panel else ()), *inputs.attribution)))
    source = str(inputs.data.get("source") or (Path(panel.source).name if panel else ""))
    found: dict[str, Any] = {
        "title": title,
        "made": datetime.now(UTC).isoformat(timespec="minutes"),
        "as_of": as_of.isoformat(),
        "level": _level(panel, ids),
        "simulated": source.startswith(SIMULATED)
        or any(line.startswith("Simulated data") for line in attribution),
        "seeded": inputs.seeded,
        "source": source,
        "attribution": attribution,
        "same_data": panel is None or inputs.data.get("sha256") in (None, panel.digest()),
        "regions": {
            "ids": ids,
            "names": panel.names if panel else ids,
            "groups": [groups.get(region) for region in ids] if groups else None,
            "people": None
            if panel is None or panel.population is None
            else panel.population.tolist(),
        },
        "history": _history(panel, as_of) if panel else None,
        "map": outlines(panel.boundaries, ids) if panel and panel.boundaries else None,
        "forecast": _forecast(inputs.forecast, rows),
        "backtest": measured.backtest(inputs, rows),
        "grid": None,
        "ledger": measured.ledger(ledger) if ledger else None,
        "settings": _settings(inputs),
        "manifest": {
            key: inputs.manifest.get(key)
            for key in ("epifed", "finished", "settings_sha256", "seed", "noise", "versions")
        }
        | {"data_sha256": inputs.data.get("sha256"), "days": inputs.data.get("days")},
        "version": version("epifed"),
    }
    if inputs.grid is not None:
        found["grid"] = {
            "cells": measured.cells(inputs.grid),
            "tests": measured.tests(inputs.grid, rows),
            "privacy": measured.budgets(inputs.directory) if inputs.describes_grid else None,
        }
    return found


def _settings(inputs: Inputs) -> dict[str, Any] | None:
    if inputs.settings is None:
        return None
    values = inputs.settings.model_dump(mode="python")
    return {k: measured.plain(v, 12) if isinstance(v, float) else v for k, v in values.items()}


def _regions(inputs: Inputs) -> tuple[str, ...]:
    predictions = inputs.grid.predictions if inputs.grid else None
    frames = [inputs.forecast, inputs.backtest, predictions]
    named = [frame["region"].unique() for frame in frames if frame is not None]
    return tuple(sorted(set().union(*(set(names) for names in named))))


def _same_regions(inputs: Inputs, panel: CasePanel | None, rows: dict[str, int]) -> None:
    for name, frame in (("forecast", inputs.forecast), ("backtest", inputs.backtest)):
        unknown = set() if frame is None else set(frame["region"].unique()) - rows.keys()
        if unknown and panel is not None:
            raise EpifedError(
                f"{inputs.directory / name}.parquet: found region {min(unknown)}, which is not in "
                f"{panel.source}; expected the data that the results were made of"
            )


def _as_of(inputs: Inputs, panel: CasePanel | None) -> date:
    """The day that counts as today: the forecast's origin, else the last day of the results."""
    if inputs.forecast is not None:
        last = inputs.forecast["origin_date"].max()
    elif inputs.backtest is not None:
        last = inputs.backtest["target_date"].max()
    else:
        assert inputs.grid is not None
        last = inputs.grid.predictions["target_day"].max()
    assert isinstance(last, date)
    if panel is not None and not panel.start <= last <= panel.end:
        raise EpifedError(
            f"{inputs.directory}: found results up to {last}, but {panel.source} has the days "
            f"{panel.start} … {panel.end}; expected the data that the results were made of"
        )
    return last


def _level(panel: CasePanel | None, ids: tuple[str, ...]) -> str:
    if panel and panel.parents:
        return "community"
    counties = panel is not None and panel.boundaries is not None
    return "county" if counties or all(len(i) == 5 and i.isdecimal() for i in ids) else "region"


def _history(panel: CasePanel, as_of: date) -> dict[str, Any]:
    """Daily counts up to the day, and apart from them those that were reported later."""
    kept = int(np.clip(MOST_COUNTS // len(panel.regions), 42, HISTORY_DAYS))
    end = (as_of - panel.start).days + 1
    begin = max(0, end - kept - 6)
    daily = panel.counts[:, begin : end + LATER_DAYS]
    whole = bool((daily == np.rint(daily)).all())
    values = daily.astype(int) if whole else np.round(daily, 1)
    return {
        "start": (panel.start + timedelta(days=begin)).isoformat(),
        "days": end - begin,
        "counts": values.tolist(),
    }


def _forecast(frame: pl.DataFrame | None, rows: dict[str, int]) -> dict[str, Any] | None:
    if frame is None:
        return None
    horizons = frame["horizon"].unique().sort().to_list()
    if len(rows) > MANY_REGIONS:
        horizons = [h for h in horizons if h in measured.WEEKS] or horizons[:1]
    return {
        "horizons": horizons,
        "levels": LEVELS,
        "values": [
            measured.weekly(
                measured.lay_out(frame.filter(level=level), rows, "horizon", horizons, "value")
            )
            for level in LEVELS
        ],
    }
