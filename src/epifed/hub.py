"""Forecasts in the hubverse layout, as forecast hubs collect, score and combine them.

A hub asks for cases of a week, so a value is seven times the 7-day average, or that of a week, and
the horizon counts weeks.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl

from epifed.days import DAYS_OF, WEEK, Step
from epifed.errors import EpifedError
from epifed.files import read_json, write_parquet, write_text
from epifed.forecasting import Forecast
from epifed.intervals import LEVELS

TARGET = "wk inc case"
_NAME = re.compile(r"[A-Za-z0-9_]+-[A-Za-z0-9_]+")


def refuse_for_hub(model: str, horizons: Iterable[int], step: Step = "day") -> None:
    """Refuse what a hub does not take, before anything is computed for it."""
    if not _NAME.fullmatch(model):
        raise EpifedError(
            f"hub: found the model name '{model}'; expected team-model, letters, digits and _ only"
        )
    for days in horizons:
        if step == "day" and days % WEEK:
            raise EpifedError(
                f"horizon: found {days} days; expected whole weeks (7, 14, 21, 28) for a hub"
            )


def to_hub(forecasts: Sequence[Forecast]) -> pl.DataFrame:
    """The rows of one origin's file: origin_date, target, horizon, location, …, value."""
    long = pl.concat(one.to_long() for one in forecasts)
    week = WEEK // DAYS_OF[forecasts[0].step]
    return long.select(
        "origin_date",
        pl.lit(TARGET).alias("target"),
        (pl.col("horizon") // week).cast(pl.Int32).alias("horizon"),
        pl.col("region").alias("location"),
        pl.lit("quantile").alias("output_type"),
        pl.col("level").alias("output_type_id"),
        (week * pl.col("value")).alias("value"),
    )


def write_hub(forecasts: Sequence[Forecast], hub: Path, model: str) -> list[Path]:
    """Add forecasts to a hub's folder, one file for each origin.

    What the model forecast before stays: other horizons and locations in the same file, and the
    same ones only if they are the same. A new folder gets its settings, one of ours more of them.
    """
    refuse_for_hub(model, [one.horizon for one in forecasts], forecasts[0].step)
    by_origin: dict[date, list[Forecast]] = defaultdict(list)
    for one in forecasts:
        by_origin[one.origin].append(one)
    folder = hub / "model-output" / model
    frames = {
        path: _beside_earlier(path, to_hub(group))
        for origin, group in sorted(by_origin.items())
        for path in [folder / f"{origin}-{model}.parquet"]
    }
    _write_config(hub, forecasts)
    for path, frame in frames.items():
        write_parquet(path, frame)
    return list(frames)


def _beside_earlier(path: Path, frame: pl.DataFrame) -> pl.DataFrame:
    """The new rows with those that the file has already; another value for one is refused."""
    if not path.exists():
        return frame
    try:
        earlier = pl.read_parquet(path).select(frame.columns).cast(frame.schema)
    except (pl.exceptions.PolarsError, OSError):
        raise EpifedError(
            f"{path}: found other columns than a forecast has; expected {', '.join(frame.columns)}"
        ) from None
    keys = [name for name in frame.columns if name != "value"]
    both = frame.join(earlier, on=keys, suffix="_earlier")
    if not both.select((pl.col("value") - pl.col("value_earlier")).abs() < 1e-9).to_series().all():
        raise EpifedError(
            f"{path}: found other forecasts of the same horizon and location; expected another "
            "--model-name or --hub, or the file removed"
        )
    return pl.concat([earlier.join(frame, on=keys, how="anti"), frame]).sort("horizon", "location",
        "output_type_id", maintain_order=True)  # fmt: skip


def _write_config(hub: Path, forecasts: Sequence[Forecast]) -> None:
    """The settings of a hub of ours, with what it had before; those of others are left alone."""
    config = hub / "hub-config"
    task_ids: dict[str, list[Any]] = {
        "origin_date": sorted({str(one.origin) for one in forecasts}),
        "horizon": sorted({one.horizon * DAYS_OF[one.step] // WEEK for one in forecasts}),
        "location": list(forecasts[0].regions),
    }
    admin = {
        "name": "epifed",
        "maintainer": "epifed",
        "contact": {"name": "epifed", "email": "none"},
        "timezone": "Europe/Berlin",
        "file_format": ["parquet"],
        "model_output_dir": "model-output",
    }
    if config.exists():
        if not _is_ours(config / "admin.json"):
            return
        task_ids = _with_earlier(config / "tasks.json", task_ids)
    for name, content in (("admin", admin), ("tasks", _tasks(task_ids))):
        write_text(config / f"{name}.json", json.dumps(content, indent=2) + "\n")


def _is_ours(admin: Path) -> bool:
    return admin.is_file() and read_json(admin, "expected a hub").get("maintainer") == "epifed"


def _with_earlier(path: Path, task_ids: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """The values of the tasks with those that the file has already."""
    try:
        (model_tasks,) = read_json(path, "expected a hub's tasks")["rounds"][0]["model_tasks"]
        earlier = {name: model_tasks["task_ids"][name]["optional"] for name in task_ids}
        return {name: sorted({*values, *earlier[name]}) for name, values in task_ids.items()}
    except (KeyError, IndexError, TypeError, ValueError):
        raise EpifedError(
            f"{path}: found other tasks than epifed writes; expected its own"
        ) from None


def _tasks(task_ids: dict[str, list[Any]]) -> dict[str, Any]:
    choices: dict[str, dict[str, Any]] = {
        "origin_date": {"optional": task_ids["origin_date"]},
        "target": {"required": [TARGET]},
        "horizon": {"optional": task_ids["horizon"]},
        "location": {"optional": task_ids["location"]},
    }
    return {
        "output_type_id_datatype": "double",
        "rounds": [
            {
                "round_id_from_variable": True,
                "round_id": "origin_date",
                "model_tasks": [
                    {
                        "task_ids": {
                            name: {"required": None, "optional": None} | values
                            for name, values in choices.items()
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
