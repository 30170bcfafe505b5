"""Forecasts written in the hubverse layout, as forecast hubs collect, score and combine them.

A hub asks for cases of a week, so a value is that of a week, or seven times the 7-day average, and
the horizon counts weeks, from the hub's own reference date.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path

import polars as pl

from epifed.days import DAYS_OF, WEEK
from epifed.errors import EpifedError
from epifed.files import write_atomic, write_parquet, write_text
from epifed.forecasting import Forecast
from epifed.hubs.check import FILL_IN, table_faults
from epifed.hubs.config import END, Form, form_of, write_config
from epifed.hubs.locations import Locations
from epifed.hubs.tables import model_output, read_table, typed

NAME = re.compile(r"[A-Za-z0-9_]+-[A-Za-z0-9_]+")
METADATA = "model-metadata"


def refuse_for_hub(model: str, horizons: Iterable[int] = ()) -> None:
    """Refuse what a hub does not take, before anything is computed for it."""
    if not NAME.fullmatch(model):
        raise EpifedError(
            f"hub: found the model name '{model}'; expected team-model, letters, digits and _ only"
        )
    for days in horizons:
        if days % WEEK:
            raise EpifedError(
                f"horizon: found {days} days; expected whole weeks (7, 14, 21, 28) for a hub, or "
                "--week-ends"
            )


def to_hub(
    forecasts: Sequence[Forecast], form: Form | None = None, locations: Locations | None = None
) -> pl.DataFrame:
    """The rows of forecasts as a hub takes them, by default as a folder of ours does."""
    form, locations = form or Form(), locations or Locations()
    return pl.concat(_rows(one, form, locations) for one in forecasts)


def _rows(one: Forecast, form: Form, locations: Locations) -> pl.DataFrame:
    step = DAYS_OF[one.step]
    weeks = one.horizon * step // WEEK if one.weeks_ahead is None else one.weeks_ahead
    allowed = (form.values or {}).get("location", frozenset())
    codes = {region: locations.code(region, allowed) for region in one.regions}
    value = WEEK // step * pl.col("value")
    said = {
        form.round_id: pl.lit(one.reference or one.origin),
        "target": pl.lit(form.target),
        "horizon": pl.lit(weeks, dtype=pl.Int32),
        END: pl.lit(one.target_date),
        "location": pl.col("region").replace_strict(codes, return_dtype=pl.String),
        "output_type": pl.lit("quantile"),
        "output_type_id": pl.col("level"),
        "value": value.round() if form.whole else value,
    }
    long = one.to_long().filter(pl.col("level").is_in(form.levels))
    return long.select(said[name].alias(name) for name in form.columns)


def write_hub(
    forecasts: Sequence[Forecast],
    hub: Path,
    model: str,
    *,
    locations: Locations | None = None,
    target: str | None = None,
) -> list[Path]:
    """Add forecasts to a hub's folder, one file for each reference date.

    What the model forecast before stays: other horizons and locations in the same file, and the
    same ones only if they are the same. A new folder gets its settings, one of ours more of them;
    of another hub's they are kept, in its columns, values and kind of file, and dates that it has
    no round of are left out, unless it has none of any.
    """
    own = [one for one in forecasts if one.weeks_ahead is None]
    refuse_for_hub(model, [one.horizon * DAYS_OF[one.step] for one in own])
    form = form_of(hub, target)
    folder = hub / model_output(hub) / model
    frames = {}
    for day, group in _rounds(forecasts, form).items():
        path = folder / f"{day}-{model}{form.suffixes[0]}"
        frames[path] = _beside_earlier(path, _of_round(day, group, form, locations, path))
    every = pl.concat(frames.values())
    names = [name for name in form.task_ids if name != "target"]
    plain = {name: every[name].unique().sort().to_list() for name in names}
    write_config(
        hub, form, {k: [str(v) if isinstance(v, date) else v for v in plain[k]] for k in plain}
    )
    for path, frame in frames.items():
        _write_table(path, frame, text_ids=form.text_ids)
    _write_metadata(hub, model)
    return list(frames)


def refuse_tasks(
    forecasts: Sequence[Forecast], hub: Path, *, locations: Locations, target: str | None
) -> None:
    """Refuse forecasts that a hub would not take for their dates, weeks or locations."""
    form = form_of(hub, target)
    for day, group in _rounds(forecasts, form).items():
        _of_round(day, group, form, locations, hub)


def _rounds(forecasts: Sequence[Forecast], form: Form) -> dict[date, list[Forecast]]:
    """The forecasts of each reference date that the hub has a round of; of all, if of none."""
    by_date: dict[date, list[Forecast]] = defaultdict(list)
    for one in forecasts:
        by_date[one.reference or one.origin].append(one)
    taken = {day: by_date[day] for day in sorted(by_date) if form.takes(day)}
    return taken or dict(sorted(by_date.items()))


def _of_round(
    day: date, group: Sequence[Forecast], form: Form, locations: Locations | None, path: Path
) -> pl.DataFrame:
    frame = to_hub(group, form, locations)
    if faults := table_faults(frame, form, str(day)):
        raise EpifedError(f"{path}: {faults[0]}")
    return frame


def _write_table(path: Path, frame: pl.DataFrame, *, text_ids: bool) -> None:
    if path.suffix == ".parquet":
        kind = pl.String if text_ids else pl.Float64
        write_parquet(path, frame.with_columns(pl.col("output_type_id").cast(kind)))
    else:
        write_atomic(path, frame.write_csv)


def _beside_earlier(path: Path, frame: pl.DataFrame) -> pl.DataFrame:
    """The new rows with those that the file has already; another value for one is refused."""
    if not path.exists():
        return frame
    try:
        earlier = typed(read_table(path), frame.schema)
    except (pl.exceptions.PolarsError, KeyError):
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
    return pl.concat([earlier.join(frame, on=keys, how="anti"), frame]).sort(
        "horizon", "location", "output_type_id", maintain_order=True
    )


def _write_metadata(hub: Path, model: str) -> None:
    """Say what the model is, as hubs ask; what only its team can say is left to be filled in."""
    path = hub / METADATA / f"{model}.yml"
    if path.exists():
        return
    team, name = model.split("-")
    about = {
        "team_name": team,
        "team_abbr": team,
        "model_name": name,
        "model_abbr": name,
        "model_contributors": [
            {"name": FILL_IN, "affiliation": FILL_IN, "email": "fill.in@example.org"}
        ],
        "license": FILL_IN,
        "designated_model": False,
        "data_inputs": "reported cases of local clients, of which only noisy means are shared",
        "methods": "Growth shared by all clients, learned with differential privacy, carries each "
        "region's last week on; quantiles from its own past errors.",
        "methods_long": "Clients send bounded numbers on their growth and level; a server releases "
        "noisy means, with client-level differential privacy. Larger regions are sums of smaller "
        "ones; quantiles come from past errors of each region or sum, on the root of counts.",
        "ensemble_of_models": False,
        "ensemble_of_hub_models": False,
    }
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in about.items()]
    write_text(path, "\n".join(lines) + "\n")
