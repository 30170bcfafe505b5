"""Submissions in the hubverse layout: written, and checked by the rules of hubValidations.

A hub asks for weekly cases: the value of a week, or seven times the 7-day average. The horizon
counts weeks from the hub's own reference date. Its requirements are read from its configuration.
"""

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from epifed.data.calendar import DAYS_OF, WEEK, WEEKDAYS
from epifed.data.readers.tables import listed
from epifed.errors import EpifedError, counted
from epifed.files import read_json, write_atomic, write_parquet, write_text
from epifed.forecasting import Forecast
from epifed.hubs.tables import NAMES, Locations, model_output, read_table, typed
from epifed.intervals import LEVELS

TARGET = "wk inc case"
MAINTAINER = "epifed"
SCHEMAS = "https://raw.githubusercontent.com/hubverse-org/schemas/main/v6.0.0"
ROUND, END = "reference_date", "target_end_date"
TASK_IDS = (ROUND, "target", "horizon", END, "location")
"""The task columns of a folder made by epifed."""
_EXPECTED = "expected a hub's settings"

CATEGORIES = ("large_decrease", "decrease", "stable", "increase", "large_increase")
RATE_CHANGES = {0: (0.3, 1.7), 1: (0.5, 3.0), 2: (0.7, 4.0), 3: (1.0, 5.0)}
"""Of FluSight: from which change in 100,000 inhabitants on, by weeks ahead, a week against the
newest one is an increase, and from which a large one."""
STABLE = 10.0
"""A change of fewer counts is stable, however large as a rate."""
POPULATIONS = Path("auxiliary-data") / "locations.csv"
"""Where such a hub says how many people live in each location."""


@dataclass(frozen=True)
class Form:
    """The format of a hub: columns, target, quantile levels, allowed values and kind of file."""

    round_id: str = ROUND
    task_ids: tuple[str, ...] = TASK_IDS
    target: str = TARGET
    levels: tuple[float, ...] = LEVELS
    required_levels: tuple[float, ...] = LEVELS
    values: Mapping[str, frozenset[Any]] | None = None
    """The allowed values of each column; none: a folder made by epifed, which accepts any."""
    tasks: tuple[Mapping[str, "Choice"], ...] = ()
    """The allowed and required combinations of values; none: all are allowed."""
    most: float | None = None
    """The largest accepted value."""
    whole: bool = False
    """Whether values must be whole numbers."""
    suffixes: tuple[str, ...] = (".parquet",)
    """The accepted kinds of file; the first is written."""
    text_ids: bool = False
    """Whether quantile levels are written as text in parquet."""
    change: str | None = None
    """The target of categories of rate change, where the hub asks for them."""
    samples: "Samples | None" = None
    """How many samples the hub takes, and how they are named; none: it takes none."""
    others: frozenset[str] = frozenset()
    """The hub's other targets, which a file may hold beside this one."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a file, in their order."""
        return (*self.task_ids, "output_type", "output_type_id", "value")

    @property
    def calendar(self) -> "Calendar | None":
        """The weekdays of its weeks and rounds, if its allowed values have one of each."""
        values = self.values or {}
        days = {date.fromisoformat(str(day)).weekday() for day in values.get(self.round_id, ())}
        ends = {date.fromisoformat(str(day)).weekday() for day in values.get(END, ())} or days
        ahead = tuple(sorted(week for week in values.get("horizon", ()) if week >= 0))
        if len(days) != 1 or len(ends) != 1 or not ahead:
            return None
        return Calendar(WEEKDAYS[min(ends)], WEEKDAYS[min(days)], ahead)

    def takes(self, day: date) -> bool:
        """Whether the hub has a round on a day."""
        rounds = (self.values or {}).get(self.round_id)
        return rounds is None or str(day) in {str(one) for one in rounds}


@dataclass(frozen=True)
class Choice:
    """The allowed and required values of a column in one of the hub's tasks."""

    allowed: frozenset[Any]
    required: frozenset[Any]


@dataclass(frozen=True)
class Samples:
    """A hub's rules for samples. One sample over several weeks is one possible course."""

    least: int
    most: int
    apart: frozenset[str]
    """The columns in which a sample has one value only."""
    longest: int | None
    """The largest number of characters in a sample's name; none: names are whole numbers."""
    whole: bool
    """Whether values must be whole numbers."""


@dataclass(frozen=True)
class Calendar:
    """A hub's definition of weeks: the weekdays of their ends and of reference dates."""

    week_ends: str
    reference_day: str
    ahead: tuple[int, ...]


def is_ours(hub: Path) -> bool:
    """Whether the settings of a hub were written by `write_config`, or do not exist yet."""
    admin = hub / "hub-config" / "admin.json"
    if not (hub / "hub-config").exists():
        return True
    return admin.is_file() and read_json(admin, _EXPECTED).get("maintainer") == MAINTAINER


def form_of(hub: Path, target: str | None = None) -> Form:
    """The format for new forecasts of a hub; a folder made by epifed, or a new one, accepts any."""
    return Form(target=target or TARGET) if is_ours(hub) else written_form(hub, target)


def written_form(hub: Path, target: str | None = None) -> Form:
    """The format in a hub's settings; if it has several targets with quantiles, name one."""
    tasks_file = hub / "hub-config" / "tasks.json"
    try:
        settings = read_json(tasks_file, _EXPECTED, comments=True)
        rounds = settings["rounds"]
        every = [(one, task) for one in rounds for task in one["model_tasks"]]
        found: dict[str, list[tuple[str, Any]]] = {}
        for one, task in every:
            if "quantile" in task["output_type"]:
                if not one["round_id_from_variable"]:
                    raise EpifedError(
                        f"{tasks_file}: found the round '{one['round_id']}' by name; expected "
                        "rounds by a column of dates"
                    )
                for name in sorted(_allowed(task["task_ids"]["target"])):
                    found.setdefault(name, []).append((one["round_id"], task))
        if target is None and len(found) == 1:
            (target,) = found
        if target is None or target not in found:
            raise EpifedError(
                f"{tasks_file}: found quantiles asked for {', '.join(found) or 'nothing'}; "
                "expected one of them named with --target"
            )
        form = _form(target, found[target], tasks_file)
        names = {kind for _, task in every for kind in task["output_type"]}
        form = replace(form, change=_change_target([task for _, task in every]))
        targets = {name for _, task in every for name in _allowed(task["task_ids"]["target"])}
        form = replace(form, others=frozenset(targets - {target, form.change}))
        said = settings.get("output_type_id_datatype", "auto")
        mixed = said == "auto" and bool(names - {"quantile", "cdf", "mean", "median"})
        form = replace(form, text_ids=said == "character" or mixed)
    except (KeyError, TypeError, AttributeError):
        raise EpifedError(f"{tasks_file}: found other contents; {_EXPECTED}") from None
    formats = read_json(hub / "hub-config" / "admin.json", _EXPECTED).get("file_format", ["csv"])
    suffixes = tuple(f".{kind}" for kind in ("csv", "parquet") if kind in formats)
    if not suffixes:
        raise EpifedError(
            f"{hub}: found files of {listed(formats)} asked for; expected csv or parquet"
        )
    return replace(form, suffixes=suffixes)


def _form(target: str, tasks: list[tuple[str, Any]], file: Path) -> Form:
    round_id, first = tasks[0]
    names = tuple(first["task_ids"])
    known = {*NAMES["reference_date"], "target", "horizon", END, "location"}
    if unknown := [name for name in names if name not in known]:
        raise EpifedError(
            f"{file}: found the task id '{unknown[0]}'; expected {', '.join(sorted(known))} only"
        )
    values: dict[str, frozenset[Any]] = {
        name: frozenset().union(*(_allowed(task["task_ids"][name]) for _, task in tasks))
        for name in names
    }
    asked = first["output_type"]["quantile"]["output_type_id"]
    required = tuple(asked.get("required") or ())
    if absent := [level for level in required if level not in LEVELS]:
        raise EpifedError(
            f"{file}: found the quantile level {absent[0]} required; expected levels among "
            f"{', '.join(map(str, LEVELS))}"
        )
    allowed = _allowed(asked)
    levels = tuple(level for level in LEVELS if level in allowed)
    every = tuple(
        {
            name: Choice(frozenset(_allowed(one)), frozenset(one.get("required") or ()))
            for name, one in task["task_ids"].items()
        }
        for _, task in tasks
    )
    value = first["output_type"]["quantile"]["value"]
    most, whole = value.get("maximum"), value.get("type") == "integer"
    samples = _samples_asked(first["output_type"].get("sample"), names)
    return Form(
        round_id, names, target, levels, required, values, every, most, whole, samples=samples
    )


def _samples_asked(asked: Mapping[str, Any] | None, names: Sequence[str]) -> Samples | None:
    """The rules for samples in a hub's settings; none in those before version 3 of the schema."""
    if asked is None or "output_type_id_params" not in asked:
        return None
    rules = asked["output_type_id_params"]
    apart = frozenset(rules.get("compound_taskid_set") or names)
    longest = rules["max_length"] if rules["type"] == "character" else None
    number = rules["min_samples_per_task"], rules["max_samples_per_task"]
    return Samples(*number, apart, longest, asked["value"].get("type") == "integer")


def _change_target(tasks: Sequence[Any]) -> str | None:
    """The target for which a hub asks for the probabilities of `CATEGORIES`."""
    for task in tasks:
        asked = task["output_type"].get("pmf")
        if asked is not None and _allowed(asked["output_type_id"]) == set(CATEGORIES):
            return str(min(_allowed(task["task_ids"]["target"])))
    return None


def _allowed(choice: Mapping[str, Any]) -> set[Any]:
    return {*(choice.get("required") or ()), *(choice.get("optional") or ())}


def write_config(hub: Path, form: Form, values: Mapping[str, list[Any]]) -> None:
    """Write the settings of a folder made by epifed, added to its earlier ones; no other hub's."""
    if not is_ours(hub):
        return
    config = hub / "hub-config"
    tasks = config / "tasks.json"
    both = _with_earlier(tasks, form, values) if tasks.exists() else values
    admin = {
        "schema_version": f"{SCHEMAS}/admin-schema.json",
        "name": MAINTAINER,
        "maintainer": MAINTAINER,
        "contact": {"name": MAINTAINER, "email": "nobody@example.org"},
        "repository": {"host": "github", "owner": "nobody", "name": "local"},
        "file_format": ["parquet"],
        "timezone": "Europe/Berlin",
        "model_output_dir": "model-output",
    }
    target_data = {
        "schema_version": f"{SCHEMAS}/target-data-schema.json",
        "observable_unit": [END, "location", "target"],
        "date_col": END,
        "versioned": False,
    }
    contents = {"admin": admin, "tasks": _tasks(form, both), "target-data": target_data}
    for name, content in contents.items():
        write_text(config / f"{name}.json", json.dumps(content, indent=2) + "\n")


def _with_earlier(path: Path, form: Form, values: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """The values of the tasks together with those already in the file."""
    try:
        (task,) = read_json(path, _EXPECTED)["rounds"][0]["model_tasks"]
        (target,) = task["task_ids"]["target"]["required"]
        earlier = {name: task["task_ids"][name]["optional"] for name in values}
        found = {name: sorted({*new, *earlier[name]}) for name, new in values.items()}
    except (KeyError, IndexError, TypeError, ValueError):
        raise EpifedError(
            f"{path}: found other tasks than epifed writes; expected its own"
        ) from None
    if target != form.target:
        raise EpifedError(f"{path}: found the target '{target}'; expected '{form.target}'")
    return found


def _tasks(form: Form, values: Mapping[str, list[Any]]) -> dict[str, Any]:
    choices = {
        name: {"required": [form.target], "optional": None}
        if name == "target"
        else {"required": None, "optional": values[name]}
        for name in form.task_ids
    }
    quantile = {
        "output_type_id": {"required": list(form.levels)},
        "is_required": True,
        "value": {"type": "double", "minimum": 0},
    }
    about = {
        "target_id": form.target,
        "target_name": "weekly new reported cases",
        "target_units": "count",
        "target_keys": {"target": form.target},
        "target_type": "continuous",
        "is_step_ahead": True,
        "time_unit": "week",
    }
    return {
        "schema_version": f"{SCHEMAS}/tasks-schema.json",
        "output_type_id_datatype": "double",
        "derived_task_ids": [END],
        "rounds": [
            {
                "round_id_from_variable": True,
                "round_id": form.round_id,
                "model_tasks": [
                    {
                        "task_ids": choices,
                        "output_type": {"quantile": quantile},
                        "target_metadata": [about],
                    }
                ],
                "submissions_due": {"relative_to": form.round_id, "start": -6, "end": 6},
            }
        ],
    }


NAME = re.compile(r"[A-Za-z0-9_]+-[A-Za-z0-9_]+")
METADATA = "model-metadata"


def refuse_for_hub(model: str, horizons: Iterable[int] = ()) -> None:
    """Refuse a model name or horizons that a hub does not accept, before anything is computed."""
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
    """The rows of forecasts in a hub's format, by default that of a folder made by epifed."""
    form, locations = form or Form(), locations or Locations()
    return pl.concat(_rows(one, form, locations) for one in forecasts)


def _rows(one: Forecast, form: Form, locations: Locations) -> pl.DataFrame:
    value = WEEK // DAYS_OF[one.step] * pl.col("value")
    long = one.to_long().filter(pl.col("level").is_in(form.levels))
    cells = {
        "target": pl.lit(form.target),
        "output_type": pl.lit(KIND),
        "output_type_id": pl.col("level"),
        "value": value.round() if form.whole else value,
    }
    return long.select(**(_columns(one, form, locations) | cells)).select(form.columns)


def _columns(one: Forecast, form: Form, locations: Locations) -> dict[str, pl.Expr]:
    """What a forecast is of, in a hub's words, from a column of regions."""
    allowed = (form.values or {}).get("location", frozenset())
    codes = {region: locations.code(region, allowed) for region in one.regions}
    return {
        form.round_id: pl.lit(one.reference or one.origin),
        "horizon": pl.lit(_weeks(one), dtype=pl.Int32),
        END: pl.lit(one.target_date),
        "location": pl.col("region").replace_strict(codes, return_dtype=pl.String),
    }


def _weeks(one: Forecast) -> int:
    """The weeks ahead, as a hub counts them."""
    return one.horizon * DAYS_OF[one.step] // WEEK if one.weeks_ahead is None else one.weeks_ahead


def rate_changes(one: Forecast, populations: Mapping[str, float]) -> pl.DataFrame:
    """The probability of each of `CATEGORIES`: region, output_type_id, value.

    A change is that from the newest known week, as it will be once revised, to the week ahead.
    Regions whose population is not known are left out; all are, where the newest week is unknown or
    is not the one before the hub's reference date.
    """
    weeks, rows = _weeks(one), []
    ahead = one.horizon - 1 if one.step == "week" else None
    if one.last is not None and weeks in RATE_CHANGES and ahead == weeks:
        for region, last, quantiles in zip(one.regions, one.last, one.quantiles, strict=True):
            if region not in populations:
                continue
            small, large = (max(rate * populations[region] / 1e5, STABLE)
                            for rate in RATE_CHANGES[weeks])  # fmt: skip
            ends = last + np.array([-large, -small, small, large])
            below = np.interp(ends, quantiles, LEVELS, left=0.0, right=1.0)
            parts = np.diff([0.0, *below, 1.0])
            rows += [(region, *pair) for pair in zip(CATEGORIES, parts, strict=True)]
    schema = {"region": pl.String, "output_type_id": pl.String, "value": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def read_populations(hub: Path) -> dict[str, float]:
    """The people in each location of a hub; none where it does not say."""
    path = hub / POPULATIONS
    if not path.is_file():
        return {}
    table = read_table(path)
    if missing := [name for name in ("location", "population") if name not in table.columns]:
        raise EpifedError(f"{path}: found no column {missing[0]}; expected location, population")
    people = pl.col("population").str.replace_all(",", "").cast(pl.Float64, strict=False)
    return dict(table.select("location", people).drop_nulls().iter_rows())


def samples(
    made: pl.DataFrame, form: Form, asked: Samples, group: Sequence[Forecast]
) -> pl.DataFrame:
    """Draw samples from the quantiles of one round's rows, the same ones each time.

    From week to week errors add up: over so many weeks, a sample is the sum of as many draws. Its
    ranks among the samples of a task give its value between the quantiles, and none outside them.
    """
    steps = {_weeks(one): one.horizon * DAYS_OF[one.step] / WEEK for one in group}
    task, frames = list(form.task_ids), []
    apart = [name for name in task if name in asked.apart and name not in {form.round_id, END}]
    places = {name: sorted((form.values or {})[name], key=str) for name in apart}
    for key, rows in made.group_by(task, maintain_order=True):
        of = dict(zip(task, key, strict=True))
        seed = [ord(letter) for letter in f"{of[form.round_id]} {of['location']}"]
        draws = np.random.default_rng(seed).standard_normal((MOST_STEPS, asked.least))
        order = draws[: math.ceil(steps[of["horizon"]])].sum(axis=0).argsort().argsort()
        values = np.interp((order + 0.5) / asked.least, rows["output_type_id"], rows["value"])
        begin = sorted({form.target, *form.others}).index(form.target)
        for name in apart:
            begin = begin * len(places[name]) + places[name].index(of[name])
        frames.append(
            rows[:1]
            .select(task)
            .join(
                pl.DataFrame(
                    {
                        "output_type": [SAMPLE] * asked.least,
                        "output_type_id": np.arange(asked.least) + begin * asked.least,
                        "value": values.round() if asked.whole else values,
                    }
                ),
                how="cross",
            )
        )
    return pl.concat(frames).select(form.columns)


def _categories(
    group: Sequence[Forecast], form: Form, locations: Locations, hub: Path
) -> pl.DataFrame | None:
    """The rows of rate change of one round; none if the hub does not ask, or nothing is known."""
    if form.change is None or not (people := read_populations(hub)):
        return None
    frames = []
    allowed = (form.values or {}).get("location", frozenset())
    for one in group:
        known = {region: people[code] for region in one.regions
                 if (code := locations.code(region, allowed)) in people}  # fmt: skip
        cells = {
            "target": pl.lit(form.change),
            "output_type": pl.lit(CATEGORY),
            "output_type_id": pl.col("output_type_id"),
            "value": pl.col("value"),
        }
        rows = rate_changes(one, known)
        frames.append(rows.select(**(_columns(one, form, locations) | cells)).select(form.columns))
    every = pl.concat(frames)
    return None if every.is_empty() else every


def write_hub(
    forecasts: Sequence[Forecast],
    hub: Path,
    model: str,
    *,
    locations: Locations | None = None,
    target: str | None = None,
) -> list[Path]:
    """Add forecasts to a hub's folder, one file for each reference date.

    Earlier forecasts of the model stay: other horizons and locations in the same file, and the
    same ones only with equal values. A new folder gets settings, and those of a folder made by
    epifed are extended. Another hub's settings stay, and its columns, values and kind of file are
    used. Dates without a round of that hub are left out, unless no date has one.
    """
    own = [one for one in forecasts if one.weeks_ahead is None]
    refuse_for_hub(model, [one.horizon * DAYS_OF[one.step] for one in own])
    form = form_of(hub, target)
    folder = hub / model_output(hub) / model
    frames = {}
    for day, group in _rounds(forecasts, form).items():
        path = folder / f"{day}-{model}{form.suffixes[0]}"
        made = _of_round(day, group, form, locations, path)
        more = _categories(group, form, locations or Locations(), hub)
        if more is not None and (faults := category_faults(more, form)):
            raise EpifedError(f"{path}: {faults[0]}")
        drawn = None if form.samples is None else samples(made, form, form.samples, group)
        rows = [
            one.with_columns(output_type_id=_ID) for one in (made, more, drawn) if one is not None
        ]
        frames[path] = _beside_earlier(path, pl.concat(rows))
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
    """Refuse forecasts whose dates, weeks or locations a hub would not accept."""
    form = form_of(hub, target)
    for day, group in _rounds(forecasts, form).items():
        _of_round(day, group, form, locations, hub)


def _rounds(forecasts: Sequence[Forecast], form: Form) -> dict[date, list[Forecast]]:
    """The forecasts of each reference date with a round of the hub; of all, if none has one."""
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
    """The new rows together with those in the file; a changed value is refused."""
    if not path.exists():
        return frame
    try:
        earlier = typed(read_table(path), frame.schema).with_columns(output_type_id=_ID)
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
    """Write the model's metadata that hubs require, with gaps for its team to fill in."""
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


KIND, CATEGORY, SAMPLE = "quantile", "pmf", "sample"
MOST_STEPS = 16
"""The largest number of weeks over which a sample is drawn."""
_NUMBER = pl.col("output_type_id").cast(pl.Float64, strict=False).cast(pl.String)
_ID = pl.coalesce(
    pl.when(pl.col("output_type") == KIND).then(_NUMBER), pl.col("output_type_id").cast(pl.String)
)
"""Quantile levels and other ids as text, each level written in one way."""
FILL_IN = "fill in"
"""The text in metadata where the team must fill in a value."""


def submission_faults(hub: Path, model: str, target: str | None = None) -> list[str]:
    """The faults for which a hub would refuse a model's files and metadata, one sentence each."""
    folder = hub / model_output(hub) / model
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    if not files:
        raise EpifedError(f"{folder}: found no file; expected forecasts of {model}")
    form = written_form(hub, target)
    found = _metadata_faults(hub, model)
    for path in files:
        found += [f"{path.name}: {sentence}" for sentence in _file_faults(path, model, form)]
    return found


def _metadata_faults(hub: Path, model: str) -> list[str]:
    """The faults in a model's metadata."""
    files = [hub / "model-metadata" / f"{model}{suffix}" for suffix in (".yml", ".yaml")]
    there = [path for path in files if path.is_file()]
    if not there:
        return [f"{files[0]}: not there; expected it beside the forecasts"]
    name, text = there[0].name, there[0].read_text(encoding="utf-8", errors="replace")
    schema = hub / "hub-config" / "model-metadata-schema.json"
    asked = read_json(schema, "expected a schema").get("required") if schema.is_file() else ()
    names = re.findall(r"(?m)^['\"]?(\w+)['\"]?\s*:", text)
    absent = [one for one in asked or () if one not in names]
    found = [f"{name}: found no {listed(absent)}; expected what the hub asks for"] if absent else []
    if FILL_IN in text and not is_ours(hub):
        found.append(f"{name}: found '{FILL_IN}'; expected the team's own entry")
    return found


def _file_faults(path: Path, model: str, form: Form) -> list[str]:
    ends = [f"-{model}{suffix}" for suffix in form.suffixes]
    day = next((path.name.removesuffix(end) for end in ends if path.name.endswith(end)), None)
    if day is None:
        return [f"found another name; expected DATE{' or DATE'.join(ends)}"]
    try:
        date.fromisoformat(day)
    except ValueError:
        return [f"found a name that begins with '{day}'; expected a date"]
    frame = read_table(path)
    if set(frame.columns) != set(form.columns):
        return [f"found the columns {', '.join(frame.columns)}; expected {', '.join(form.columns)}"]
    if "target" in frame.columns and form.others:
        frame = frame.filter(~pl.col("target").is_in(sorted(form.others)).fill_null(value=False))
    asked = (pl.col("output_type") == CATEGORY) & (pl.col("target") == pl.lit(form.change))
    asked = asked.fill_null(value=False)
    frame, categories = frame.filter(~asked), frame.filter(asked)
    sampled = (pl.col("output_type") == SAMPLE).fill_null(value=False)
    drawn = frame.filter(sampled) if form.samples else frame.clear()
    frame = frame.filter(~sampled) if form.samples else frame
    kinds: dict[str, type[pl.DataType]] = {
        **dict.fromkeys(form.columns, pl.String),
        "horizon": pl.Int32,
        "output_type_id": pl.Float64,
        "value": pl.Float64,
        **{name: pl.Date for name in form.task_ids if name in {*NAMES["reference_date"], END}},
    }
    try:
        frame = typed(frame, kinds)
        categories = typed(categories, kinds | {"output_type_id": pl.String})
        drawn = typed(drawn, kinds | {"output_type_id": pl.String})
    except pl.exceptions.PolarsError as error:
        return [f"found a value of another type ({str(error).splitlines()[0][:150]})"]
    found = (
        [] if frame.is_empty() and len(categories) + len(drawn) else table_faults(frame, form, day)
    )
    if form.samples is not None and len(drawn):
        found += sample_faults(drawn, form, form.samples)
    return found + category_faults(categories, form)


def sample_faults(frame: pl.DataFrame, form: Form, asked: Samples) -> list[str]:
    """What a hub would refuse of samples."""
    found, task, name = _values_faults(frame, form, SAMPLE), list(form.task_ids), "output_type_id"
    if frame.select([*task, name]).is_duplicated().any():
        found.append("found a sample of a task twice; expected each once")
    number = frame.group_by(task).len()["len"].sort()
    if not number.is_between(asked.least, asked.most).all():
        found.append(
            f"found {number[0]} to {number[-1]} samples of a task; expected {asked.least} to "
            f"{asked.most}"
        )
    apart = [one for one in task if one in asked.apart]
    if apart and (frame.group_by(name).agg(pl.struct(apart).n_unique())[apart[0]] > 1).any():
        found.append(f"found a sample with several values of {listed(apart)}; expected one of each")
    pattern = r"^\d+$" if asked.longest is None else rf"^.{{1,{asked.longest}}}$"
    if not frame[name].str.contains(pattern).fill_null(value=False).all():
        found.append("found a name of a sample that the hub does not take; expected "
                     + ("whole numbers" if asked.longest is None else f"at most {asked.longest} "
                        "characters"))  # fmt: skip
    return found + _number_faults(frame["value"], form.most, whole=asked.whole)


def category_faults(frame: pl.DataFrame, form: Form) -> list[str]:
    """What a hub would refuse of probabilities of rate change."""
    found = []
    wrong = sorted(set(frame["output_type_id"].drop_nulls()) - set(CATEGORIES))
    if wrong:
        found.append(f"found the category {wrong[0]}; expected one of {', '.join(CATEGORIES)}")
    if frame.select([*form.task_ids, "output_type_id"]).is_duplicated().any():
        found.append("found a category of a task twice; expected each once")
    if not frame["value"].is_between(0, 1).fill_null(value=False).all():
        found.append("found a probability that is not between 0 and 1; expected each to be")
    tasks = frame.group_by(form.task_ids).agg(pl.len(), pl.col("value").sum())
    if (tasks["len"] != len(CATEGORIES)).any() or ((tasks["value"] - 1).abs() > 1e-6).any():
        found.append("found categories of a task that are not all there or do not add up to 1")
    return found


def table_faults(frame: pl.DataFrame, form: Form, day: str) -> list[str]:
    """The faults for which a hub would refuse one file's rows, in the round of a day."""
    found = []
    if frame.null_count().sum_horizontal().item():
        found.append("found an empty cell; expected a value in every one")
    rounds = frame[form.round_id].cast(pl.String).unique().to_list()
    if rounds != [day]:
        found.append(f"found {form.round_id} {', '.join(map(str, rounds))}; expected {day} alone")
    found += _values_faults(frame, form, KIND)
    keys = [name for name in form.columns if name != "value"]
    if frame.select(keys).is_duplicated().any():
        found.append("found a row twice; expected each quantile of a task once")
    found += _quantile_faults(frame, form)
    return found


def _values_faults(frame: pl.DataFrame, form: Form, kind: str) -> list[str]:
    """The faults by values that the hub does not allow."""
    found = []
    kinds = frame["output_type"].unique().to_list()
    if kinds != [kind]:
        found.append(f"found the output types {', '.join(map(str, kinds))}; expected {kind}")
    for name, allowed in (form.values or {}).items():
        texts = {str(value) for value in allowed}
        wrong = sorted(set(frame[name].cast(pl.String).unique().drop_nulls()) - texts)
        if name == "target":
            wrong = sorted(set(frame[name].unique()) - {form.target})
        if wrong:
            some = ", ".join(sorted(texts)[:5])
            found.append(
                f"column {name}: found {wrong[0]} ({counted(len(wrong), 'value')} that the hub "
                "does not "
                f"take); expected one of {some}{', …' if len(texts) > 5 else ''}"
            )
    return found or _combination_faults(frame, form)


def _combination_faults(frame: pl.DataFrame, form: Form) -> list[str]:
    """The faults by combinations that the hub does not allow, and by required ones that are absent.

    If some values of a column are required, all of them must be there for every combination of
    the columns without required values.
    """
    if not form.tasks:
        return []
    tasks = frame.select(pl.col(form.task_ids).cast(pl.String)).unique()
    taken, found = pl.lit(value=False), []
    for task in form.tasks:
        fits = pl.all_horizontal(
            pl.col(name).is_in([str(one) for one in task[name].allowed]) for name in form.task_ids
        )
        taken |= fits
        must = {n: [str(v) for v in one.required] for n, one in task.items() if one.required}
        must = {name: values for name, values in must.items() if name != END}
        free = [name for name in form.task_ids if name not in must and name != END]
        mine = tasks.filter(fits)
        if not must or mine.is_empty():
            continue
        wanted = mine.select(free).unique() if free else pl.DataFrame({"": [0]})
        for name, values in must.items():
            wanted = wanted.join(pl.DataFrame({name: sorted(values)}), how="cross")
        absent = wanted.join(mine, on=[*free, *must], how="anti").sort(*free, *must)
        if len(absent):
            first = absent.select(*free, *must).row(0, named=True)
            what = ", ".join(f"{name} {value}" for name, value in first.items())
            found.append(f"found {len(absent)} required tasks missing; expected {what}, say")
    if not tasks.select(taken.all()).item():
        first = tasks.filter(~taken).sort(form.task_ids).row(0, named=True)
        what = ", ".join(f"{name} {value}" for name, value in first.items())
        found.insert(0, f"found {what}; expected values that the hub takes together")
    return found


def _number_faults(values: pl.Series, most: float | None, *, whole: bool) -> list[str]:
    """The faults of values, whatever they are of."""
    found = []
    if not (values.is_finite() & (values >= 0)).fill_null(value=False).all():
        found.append("found a value below 0 or no number; expected at least 0")
    if most is not None and (values > most).any():
        found.append(f"found a value above {most:g}; expected at most that")
    if whole and (values != values.round()).any():
        found.append("found a value that is not whole; expected whole numbers")
    return found


def _quantile_faults(frame: pl.DataFrame, form: Form) -> list[str]:
    found = []
    task = list(form.task_ids)
    sorted_ = frame.sort(*task, "output_type_id")
    falls = sorted_.select((pl.col("value").diff() < -1e-9).over(task).any()).item()
    if falls:
        found.append("found quantiles that fall with their level; expected none to")
    found += _number_faults(frame["value"], form.most, whole=form.whole)
    levels = frame.group_by(task).agg(pl.col("output_type_id").sort())["output_type_id"].to_list()
    if any(set(form.required_levels) - set(one) for one in levels):
        found.append("found a task without all required quantile levels; expected all")
    if any(set(one) - set(form.levels) for one in levels):
        found.append("found a quantile level that the hub does not take; expected those it names")
    if END in task:
        weekdays = frame.select(
            (pl.col(END) - pl.col(form.round_id)).dt.total_days() - 7 * pl.col("horizon")
        ).to_series()
        if weekdays.n_unique() > 1:
            found.append(f"found {END} that does not follow from the other dates; expected it to")
    return found
