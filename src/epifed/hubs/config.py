"""The settings of a hub: what it takes, as it says itself, or as a folder of ours does."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from epifed.data.calendar import WEEKDAYS
from epifed.data.readers.tables import listed
from epifed.errors import EpifedError
from epifed.files import read_json, write_text
from epifed.hubs.tables import NAMES
from epifed.intervals import LEVELS

TARGET = "wk inc case"
MAINTAINER = "epifed"
SCHEMAS = "https://raw.githubusercontent.com/hubverse-org/schemas/main/v5.0.1"
ROUND, END = "reference_date", "target_end_date"
TASK_IDS = (ROUND, "target", "horizon", END, "location")
"""The tasks of a folder of ours."""
_EXPECTED = "expected a hub's settings"


@dataclass(frozen=True)
class Form:
    """What a hub takes: its columns, target, quantile levels, allowed values and kind of file."""

    round_id: str = ROUND
    task_ids: tuple[str, ...] = TASK_IDS
    target: str = TARGET
    levels: tuple[float, ...] = LEVELS
    required_levels: tuple[float, ...] = LEVELS
    values: Mapping[str, frozenset[Any]] | None = None
    """What each column may say; none: a folder of ours, which takes what is written."""
    tasks: tuple[Mapping[str, "Choice"], ...] = ()
    """Which values go together, and which of them must be there; none: all do."""
    most: float | None = None
    """The largest value that is taken."""
    whole: bool = False
    """Whether values are whole numbers."""
    suffixes: tuple[str, ...] = (".parquet",)
    """The kinds of file that are taken; the first is written."""
    text_ids: bool = False
    """Whether quantile levels are written as text in parquet."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a file, in their order."""
        return (*self.task_ids, "output_type", "output_type_id", "value")

    @property
    def calendar(self) -> "Calendar | None":
        """The days of its weeks and rounds, where the values that it allows say one of each."""
        values = self.values or {}
        days = {date.fromisoformat(str(day)).weekday() for day in values.get(self.round_id, ())}
        ends = {date.fromisoformat(str(day)).weekday() for day in values.get(END, ())} or days
        ahead = tuple(sorted(week for week in values.get("horizon", ()) if week >= 0))
        if len(days) != 1 or len(ends) != 1 or not ahead:
            return None
        return Calendar(WEEKDAYS[min(ends)], WEEKDAYS[min(days)], ahead)

    def takes(self, day: date) -> bool:
        """Whether the hub has a round of a day."""
        rounds = (self.values or {}).get(self.round_id)
        return rounds is None or str(day) in {str(one) for one in rounds}


@dataclass(frozen=True)
class Choice:
    """What a column may say in one of the hub's tasks, and what it must."""

    allowed: frozenset[Any]
    required: frozenset[Any]


@dataclass(frozen=True)
class Calendar:
    """How a hub counts weeks: the weekdays that they end on and that forecasts are dated with."""

    week_ends: str
    reference_day: str
    ahead: tuple[int, ...]


def is_ours(hub: Path) -> bool:
    """Whether the settings of a hub were written by `write_config`, or there are none yet."""
    admin = hub / "hub-config" / "admin.json"
    if not (hub / "hub-config").exists():
        return True
    return admin.is_file() and read_json(admin, _EXPECTED).get("maintainer") == MAINTAINER


def form_of(hub: Path, target: str | None = None) -> Form:
    """What a hub takes of a new forecast; a folder of ours, or a new one, takes any."""
    return Form(target=target or TARGET) if is_ours(hub) else written_form(hub, target)


def written_form(hub: Path, target: str | None = None) -> Form:
    """What the settings of a hub say; a target must be named if it wants quantiles of several."""
    tasks_file = hub / "hub-config" / "tasks.json"
    try:
        rounds = read_json(tasks_file, _EXPECTED)["rounds"]
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
        said = read_json(tasks_file, _EXPECTED).get("output_type_id_datatype", "auto")
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
    return Form(round_id, names, target, levels, required, values, every, most, whole)


def _allowed(choice: Mapping[str, Any]) -> set[Any]:
    return {*(choice.get("required") or ()), *(choice.get("optional") or ())}


def write_config(hub: Path, form: Form, values: Mapping[str, list[Any]]) -> None:
    """Write the settings of a folder of ours, with what it took before; leave others' alone."""
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
    for name, content in (("admin", admin), ("tasks", _tasks(form, both))):
        write_text(config / f"{name}.json", json.dumps(content, indent=2) + "\n")


def _with_earlier(path: Path, form: Form, values: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """The values of the tasks with those that the file has already."""
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
