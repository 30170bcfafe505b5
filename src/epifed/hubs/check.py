"""Whether a submission keeps the rules that hubs check with hubValidations.

File name and place, columns, values among those that the hub allows, one round in a file, no row
twice, all required quantile levels, values that are numbers of at least zero and do not fall with
the level, target dates that follow from the others, and a metadata file.
"""

from datetime import date
from pathlib import Path

import polars as pl

from epifed.errors import EpifedError
from epifed.hubs.config import END, Form, written_form
from epifed.hubs.tables import NAMES, model_output, read_table, typed

KIND = "quantile"


def submission_faults(hub: Path, model: str, target: str | None = None) -> list[str]:
    """What a hub would refuse of a model's files and metadata, each as a sentence."""
    folder = hub / model_output(hub) / model
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    if not files:
        raise EpifedError(f"{folder}: found no file; expected forecasts of {model}")
    form = written_form(hub, target)
    found = []
    metadata = [hub / "model-metadata" / f"{model}{suffix}" for suffix in (".yml", ".yaml")]
    if not any(path.is_file() for path in metadata):
        found.append(f"{metadata[0]}: not there; expected it beside the forecasts")
    for path in files:
        found += [f"{path.name}: {sentence}" for sentence in _file_faults(path, model, form)]
    return found


def _file_faults(path: Path, model: str, form: Form) -> list[str]:
    day = path.name.removesuffix(f"-{model}{form.suffix}")
    if day == path.name:
        return [f"found another name; expected DATE-{model}{form.suffix}"]
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
                f"column {name}: found {wrong[0]} ({len(wrong)} values that the hub does not "
                f"take); expected one of {some}{', …' if len(texts) > 5 else ''}"
            )
    return found


def _quantile_faults(frame: pl.DataFrame, form: Form) -> list[str]:
    found = []
    task = list(form.task_ids)
    sorted_ = frame.sort(*task, "output_type_id")
    falls = sorted_.select((pl.col("value").diff() < -1e-9).over(task).any()).item()
    if falls:
        found.append("found quantiles that fall with their level; expected none to")
    if not (frame["value"].is_finite() & (frame["value"] >= 0)).all():
        found.append("found a value below 0 or no number; expected at least 0")
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
