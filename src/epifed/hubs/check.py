"""Whether a submission keeps the rules that hubs check with hubValidations.

File name and place, columns, values among those that the hub allows together, all that it
requires, one round in a file, no row twice, all required quantile levels, values within their
bounds that do not fall with the level, target dates that follow from the others, and metadata.
"""

import re
from datetime import date
from pathlib import Path

import polars as pl

from epifed.errors import EpifedError
from epifed.files import read_json
from epifed.hubs.config import END, Form, is_ours, written_form
from epifed.hubs.tables import NAMES, model_output, read_table, typed
from epifed.reading import listed
from epifed.words import counted

KIND = "quantile"
FILL_IN = "fill in"
"""What stands in metadata for what only the team can say."""


def submission_faults(hub: Path, model: str, target: str | None = None) -> list[str]:
    """What a hub would refuse of a model's files and metadata, each as a sentence."""
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
    """What is missing in what a model says of itself."""
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
        found.append(f"{name}: found '{FILL_IN}'; expected what only the team can say")
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
    kinds: dict[str, type[pl.DataType]] = {
        **dict.fromkeys(form.columns, pl.String),
        "horizon": pl.Int32,
        "output_type_id": pl.Float64,
        "value": pl.Float64,
        **{name: pl.Date for name in form.task_ids if name in {*NAMES["reference_date"], END}},
    }
    try:
        frame = typed(frame, kinds)
    except pl.exceptions.PolarsError as error:
        return [f"found a value of another type ({str(error).splitlines()[0][:150]})"]
    return table_faults(frame, form, day)


def table_faults(frame: pl.DataFrame, form: Form, day: str) -> list[str]:
    """What a hub would refuse of one file's rows, which are of the round of a day."""
    found = []
    if frame.null_count().sum_horizontal().item():
        found.append("found an empty cell; expected a value in every one")
    rounds = frame[form.round_id].cast(pl.String).unique().to_list()
    if rounds != [day]:
        found.append(f"found {form.round_id} {', '.join(map(str, rounds))}; expected {day} alone")
    found += _values_faults(frame, form)
    keys = [name for name in form.columns if name != "value"]
    if frame.select(keys).is_duplicated().any():
        found.append("found a row twice; expected each quantile of a task once")
    found += _quantile_faults(frame, form)
    return found


def _values_faults(frame: pl.DataFrame, form: Form) -> list[str]:
    """Values of the tasks that the hub does not allow."""
    found = []
    kinds = frame["output_type"].unique().to_list()
    if kinds != [KIND]:
        found.append(f"found the output types {', '.join(map(str, kinds))}; expected {KIND}")
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
    """Values that the hub does not take together, and those that it requires and that are absent.

    Where some values of a column are required, all of them must be there for every combination of
    the columns of which none is.
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


def _quantile_faults(frame: pl.DataFrame, form: Form) -> list[str]:
    found = []
    task = list(form.task_ids)
    sorted_ = frame.sort(*task, "output_type_id")
    falls = sorted_.select((pl.col("value").diff() < -1e-9).over(task).any()).item()
    if falls:
        found.append("found quantiles that fall with their level; expected none to")
    values = frame["value"]
    if not (values.is_finite() & (values >= 0)).all():
        found.append("found a value below 0 or no number; expected at least 0")
    if form.most is not None and (values > form.most).any():
        found.append(f"found a value above {form.most:g}; expected at most that")
    if form.whole and (values != values.round()).any():
        found.append("found a value that is not whole; expected whole numbers")
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
