"""Forecasts in the hubverse layout, as forecast hubs collect, score and combine them.

A hub asks for cases of a week, so a value is seven times the 7-day average, and the horizon counts
weeks.
"""

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl

from epifed.days import WEEK
from epifed.errors import EpifedError
from epifed.files import write_parquet, write_text
from epifed.forecasting import Forecast
from epifed.intervals import LEVELS

TARGET = "wk inc case"
_NAME = re.compile(r"[A-Za-z0-9_]+-[A-Za-z0-9_]+")


def to_hub(forecasts: Sequence[Forecast]) -> pl.DataFrame:
    """The rows of one origin's file: origin_date, target, horizon, location, …, value."""
    for one in forecasts:
        if one.horizon % WEEK:
            raise EpifedError(
                f"horizon: found {one.horizon} days; expected whole weeks (7, 14, 21, 28) for a hub"
            )
    long = pl.concat(one.to_long() for one in forecasts)
    return long.select(
        "origin_date",
        pl.lit(TARGET).alias("target"),
        (pl.col("horizon") // WEEK).cast(pl.Int32).alias("horizon"),
        pl.col("region").alias("location"),
        pl.lit("quantile").alias("output_type"),
        pl.col("level").alias("output_type_id"),
        (WEEK * pl.col("value")).alias("value"),
    )


def write_hub(forecasts: Sequence[Forecast], hub: Path, model: str) -> list[Path]:
    """Add forecasts to a hub's folder, one file for each origin; a new folder gets its settings."""
    if not _NAME.fullmatch(model):
        raise EpifedError(
            f"hub: found the model name '{model}'; expected team-model, letters, digits and _ only"
        )
    by_origin: dict[date, list[Forecast]] = defaultdict(list)
    for one in forecasts:
        by_origin[one.origin].append(one)
    frames = {origin: to_hub(group) for origin, group in sorted(by_origin.items())}
    if not (hub / "hub-config").exists():
        _write_config(hub, forecasts)
    written = []
    for origin, frame in frames.items():
        path = hub / "model-output" / model / f"{origin}-{model}.parquet"
        write_parquet(path, frame)
        written.append(path)
    return written


def _write_config(hub: Path, forecasts: Sequence[Forecast]) -> None:
    admin = {
        "name": "epifed",
        "maintainer": "epifed",
        "contact": {"name": "epifed", "email": "none"},
        "timezone": "Europe/Berlin",
        "file_format": ["parquet"],
        "model_output_dir": "model-output",
    }
    task_ids: dict[str, dict[str, Any]] = {
        "origin_date": {"optional": sorted({str(one.origin) for one in forecasts})},
        "target": {"required": [TARGET]},
        "horizon": {"optional": sorted({one.horizon // WEEK for one in forecasts})},
        "location": {"optional": list(forecasts[0].regions)},
    }
    tasks = {
        "output_type_id_datatype": "double",
        "rounds": [
            {
                "round_id_from_variable": True,
                "round_id": "origin_date",
                "model_tasks": [
                    {
                        "task_ids": {
                            name: {"required": None, "optional": None} | values
                            for name, values in task_ids.items()
                        },
                        "output_type": {
                            "quantile": {
                                "output_type_id": {"required": list(LEVELS)},
                                "is_required": True,
                                "value": {"type": "double", "minimum": 0},
                            }
                        },
                        "target_metadata": [
                            {
                                "target_id": TARGET,
                                "target_name": "weekly new reported cases",
                                "target_units": "cases",
                                "target_keys": {"target": TARGET},
                                "target_type": "continuous",
                                "is_step_ahead": True,
                                "time_unit": "week",
                            }
                        ],
                    }
                ],
                "submissions_due": {"relative_to": "origin_date", "start": 0, "end": 6},
            }
        ],
    }
    for name, content in (("admin", admin), ("tasks", tasks)):
        write_text(hub / "hub-config" / f"{name}.json", json.dumps(content, indent=2) + "\n")
