"""Submissions: in a hub's own columns, days and codes, nothing replaced, and the hub's rules."""

import json
import math
import subprocess
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hubdata import connect_hub

from epifed.cli.common import TargetOptions
from epifed.errors import EpifedError
from epifed.evaluation.backtest import run_backtest
from epifed.forecasting import Forecast
from epifed.hubs.submission import CATEGORIES, rate_changes, submission_faults, write_hub
from epifed.hubs.tables import read_forecasts, read_locations, read_truth
from epifed.intervals import LEVELS
from epifed.learners.base import settings_for
from tests.commands import epifed, refused
from tests.helpers import small_panel

MODEL = "office-trend"
SATURDAY = date(2023, 10, 14)


def of_week(weeks: int, level: str, regions: tuple[str, ...], value: float = 10.0) -> Forecast:
    """A forecast made on Wednesday, with data up to the Saturday before."""
    quantiles = value * weeks + np.tile(np.arange(23.0), (len(regions), 1))
    origin = SATURDAY - timedelta(days=7)
    days = 7 + 7 * weeks
    return Forecast(origin, days, regions, quantiles[:, 11], quantiles, level, SATURDAY, weeks)


def other_hub(folder: Path, **changes: object) -> Path:
    """A hub as one of influenza has it: another target, CSV, week 0, required levels."""
    dates = [str(SATURDAY + timedelta(weeks=week)) for week in range(-2, 6)]
    task_ids = {
        "reference_date": {"required": None, "optional": dates},
        "target": {"required": None, "optional": ["wk inc flu hosp"]},
        "horizon": {"required": None, "optional": [0, 1, 2, 3]},
        "location": {"required": None, "optional": ["US", "01", "02"]},
        "target_end_date": {"required": None, "optional": dates},
    } | changes
    quantile = {
        "output_type_id": {"required": list(LEVELS), "optional": None},
        "value": {"type": "double", "minimum": 0},
    }
    rate = {
        "task_ids": task_ids | {"target": {"required": None, "optional": ["rate change"]}},
        "output_type": {
            "pmf": {
                "output_type_id": {"required": ["up", "down"], "optional": None},
                "value": {"type": "double", "minimum": 0},
            }
        },
        "target_metadata": [],
    }
    count = {"task_ids": task_ids, "output_type": {"quantile": quantile}, "target_metadata": []}
    tasks = {
        "output_type_id_datatype": "character",
        "rounds": [
            {
                "round_id_from_variable": True,
                "round_id": "reference_date",
                "model_tasks": [rate, count],
                "submissions_due": {"relative_to": "reference_date", "start": -6, "end": -3},
            }
        ],
    }
    config = folder / "hub-config"
    config.mkdir(parents=True)
    (config / "tasks.json").write_text(json.dumps(tasks))
    admin = {"maintainer": "somebody", "file_format": ["csv"], "model_output_dir": "model-output"}
    (config / "admin.json").write_text(json.dumps(admin))
    return folder


def fill_in(hub: Path) -> None:
    path = hub / "model-metadata" / f"{MODEL}.yml"
    path.write_text(path.read_text().replace("fill in", "an office"))


def edited(hub: Path, edit: Callable[[dict[str, Any], dict[str, Any]], None]) -> None:
    """Change the settings of a hub: the whole of its tasks, and its task of quantiles."""
    path = hub / "hub-config" / "tasks.json"
    tasks = json.loads(path.read_text())
    edit(tasks, tasks["rounds"][0]["model_tasks"][1])
    path.write_text(json.dumps(tasks))


def locations(folder: Path) -> Path:
    path = folder / "locations.csv"
    path.write_text("location,region,level\nUS,nation,nation\n01,Alabama,state\n02,Alaska,state\n")
    return path


def test_levels_and_weeks_of_one_submission_in_another_hubs_own_words(tmp_path: Path) -> None:
    hub = other_hub(tmp_path / "hub")
    before = {path: path.read_text() for path in (hub / "hub-config").iterdir()}
    codes = read_locations(locations(tmp_path))
    made = [
        of_week(weeks, level, regions)
        for weeks in range(4)
        for level, regions in (("state", ("Alabama", "Alaska")), ("nation", ("nation",)))
    ]
    write_hub(made[:3], hub, MODEL, locations=codes)
    (path,) = write_hub(made[2:], hub, MODEL, locations=codes)
    assert path == hub / "model-output" / MODEL / f"{SATURDAY}-{MODEL}.csv"
    assert {path: path.read_text() for path in (hub / "hub-config").iterdir()} == before
    (fault,) = submission_faults(hub, MODEL)
    assert "found 'fill in'; expected the team's own entry" in fault
    fill_in(hub)
    assert submission_faults(hub, MODEL) == []
    table = pl.from_arrow(connect_hub(str(hub)).get_dataset().to_table())
    assert isinstance(table, pl.DataFrame)
    assert len(table) == 4 * 3 * len(LEVELS)
    assert set(table["location"]) == {"US", "01", "02"}
    assert set(table["target"]) == {"wk inc flu hosp"}
    read = read_forecasts(hub)
    ends = dict(read.select("horizon", "target_end_date").unique().iter_rows())
    assert ends == {weeks: SATURDAY + timedelta(weeks=weeks) for weeks in range(4)}
    median = read.filter((pl.col("level") == 0.5) & (pl.col("horizon") == 2))
    assert median["value"].to_list() == [7 * (20 + 11)] * 3
    metadata = (hub / "model-metadata" / f"{MODEL}.yml").read_text()
    assert 'team_abbr: "office"\n' in metadata and 'model_abbr: "trend"\n' in metadata


def test_what_another_hub_does_not_take_is_refused_and_nothing_written(tmp_path: Path) -> None:
    hub = other_hub(tmp_path / "hub")
    with pytest.raises(EpifedError, match="column location: found Alabama"):
        write_hub([of_week(1, "state", ("Alabama",))], hub, MODEL)
    with pytest.raises(EpifedError, match="column horizon: found 4"):
        write_hub([of_week(4, "nation", ("US",))], hub, MODEL)
    with pytest.raises(EpifedError, match="found quantiles asked for wk inc flu hosp"):
        write_hub([of_week(1, "nation", ("US",))], hub, MODEL, target="wk inc case")
    with pytest.raises(EpifedError, match="--locations: found no location of region 'Texas'"):
        codes = read_locations(locations(tmp_path))
        write_hub([of_week(1, "state", ("Texas",))], hub, MODEL, locations=codes)
    assert not (hub / "model-output").exists()
    age = {"required": ["65+"], "optional": None}
    with pytest.raises(EpifedError, match="found the task id 'age_group'"):
        write_hub([of_week(1, "nation", ("US",))], other_hub(tmp_path / "b", age_group=age), MODEL)


def test_a_hub_of_schema_6_with_target_data_is_read_and_checked(tmp_path: Path) -> None:
    hub = other_hub(tmp_path / "hub")
    schemas = "https://raw.githubusercontent.com/hubverse-org/schemas/main/v6.0.0"
    for name in ("tasks", "admin"):
        path = hub / "hub-config" / f"{name}.json"
        newest = {"schema_version": f"{schemas}/{name}-schema.json"}
        path.write_text(json.dumps(newest | json.loads(path.read_text())))
    target_data = {
        "schema_version": f"{schemas}/target-data-schema.json",
        "observable_unit": ["location", "target_end_date"],
        "versioned": True,
        "date_col": "target_end_date",
    }
    (hub / "hub-config" / "target-data.json").write_text(json.dumps(target_data))
    codes = read_locations(locations(tmp_path))
    write_hub([of_week(1, "nation", ("nation",))], hub, MODEL, locations=codes)
    fill_in(hub)
    assert submission_faults(hub, MODEL) == []


def with_categories(folder: Path, **people: float) -> Path:
    """A hub that asks for categories of rate change beside quantiles, and says how many live."""
    hub = other_hub(folder)

    def ask(tasks: dict[str, Any], _: dict[str, Any]) -> None:
        pmf = tasks["rounds"][0]["model_tasks"][0]["output_type"]["pmf"]
        pmf["output_type_id"]["required"] = list(CATEGORIES)

    edited(hub, ask)
    (hub / "auxiliary-data").mkdir()
    rows = [f"{code},{number}" for code, number in people.items()]
    (hub / "auxiliary-data" / "locations.csv").write_text("\n".join(["location,population", *rows]))
    return hub


def weekly(weeks: int, last: float, quantiles: list[float]) -> Forecast:
    values = np.array([quantiles])
    origin = SATURDAY - timedelta(weeks=1)
    return Forecast(
        origin, weeks + 1, ("US",), values[:, 11], values, "", SATURDAY, weeks, "week",
        np.array([last]),
    )  # fmt: skip


def test_categories_stand_beside_quantiles_where_a_hub_asks_for_them(tmp_path: Path) -> None:
    hub = with_categories(tmp_path / "hub", US=10e6)
    quantiles = list(np.linspace(100.0, 320.0, 23))
    (path,) = write_hub([weekly(week, 150.0, quantiles) for week in range(4)], hub, MODEL)
    fill_in(hub)
    assert submission_faults(hub, MODEL) == []
    table = pl.read_csv(path, infer_schema=False)
    assert len(table) == 4 * (len(LEVELS) + len(CATEGORIES))
    rows = table.filter(output_type="pmf", horizon="1")
    assert set(rows["target"]) == {"rate change"}
    given = dict(rows.select("output_type_id", pl.col("value").cast(float)).iter_rows())
    # One week after the reference day: 0.5 and 3 in 100,000 are 50 and 300 admissions.
    assert given["large_decrease"] == 0.0
    assert given["decrease"] == pytest.approx(LEVELS[0])
    assert given["stable"] == pytest.approx(LEVELS[10] - LEVELS[0])
    assert given["large_increase"] == 0.0
    assert sum(given.values()) == pytest.approx(1)
    assert set(read_forecasts(hub)["target_end_date"].unique()) == {
        SATURDAY + timedelta(weeks=week) for week in range(4)
    }
    again = write_hub([weekly(0, 150.0, quantiles)], hub, MODEL)
    assert again == [path]
    later = pl.read_csv(path, infer_schema=False)
    assert later.sort(later.columns).equals(table.sort(table.columns))


def test_a_change_of_fewer_than_ten_is_stable_however_few_live_there() -> None:
    quantiles = list(np.linspace(96.0, 118.0, 23))
    made = dict(rate_changes(weekly(0, 100.0, quantiles), {"US": 1000.0}).drop("region").rows())
    assert made["decrease"] == made["large_decrease"] == made["increase"] == 0.0
    assert made["stable"] == pytest.approx(LEVELS[14])
    assert made["large_increase"] == pytest.approx(1 - LEVELS[14])
    assert rate_changes(weekly(0, 100.0, quantiles), {}).is_empty()
    older = replace(weekly(0, 100.0, quantiles), weeks_ahead=1)
    assert rate_changes(older, {"US": 1000.0}).is_empty()


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("stable", "steady", "found the category steady"),
        ("increase", "stable", "found a category of a task twice"),
        ("0.0", "0.5", "do not add up to 1"),
    ],
)
def test_categories_that_a_hub_would_refuse_are_found(
    old: str, new: str, fault: str, tmp_path: Path
) -> None:
    hub = with_categories(tmp_path / "hub", US=10e6)
    quantiles = list(np.linspace(100.0, 320.0, 23))
    (path,) = write_hub([weekly(1, 150.0, quantiles)], hub, MODEL)
    fill_in(hub)
    lines = path.read_text().splitlines()
    changed = [line.replace(f",{old}", f",{new}") if ",pmf," in line else line for line in lines]
    path.write_text("\n".join(changed))
    assert fault in " ".join(submission_faults(hub, MODEL))


def asking_samples(folder: Path, **params: object) -> Path:
    """A hub that takes samples beside quantiles, in the newest schema and with comments."""
    hub = other_hub(folder)
    rules = {"type": "character", "max_length": 15, "compound_taskid_set": ["location"]}
    number = {"min_samples_per_task": 200, "max_samples_per_task": 200}

    def ask(_: dict[str, Any], count: dict[str, Any]) -> None:
        count["output_type"]["sample"] = {
            "is_required": False,
            "output_type_id_params": rules | number | params,
            "value": {"type": "double", "minimum": 0},
        }

    edited(hub, ask)
    tasks = hub / "hub-config" / "tasks.json"
    written = tasks.read_text().replace('"rounds": [', '"rounds": [ // of "this" season\n')
    tasks.write_text(written.replace('"wk inc flu hosp"', '"https://wk inc // hosp"'))
    return hub


def test_samples_stand_beside_quantiles_where_a_hub_takes_them(tmp_path: Path) -> None:
    hub = asking_samples(tmp_path / "hub")
    made = [of_week(weeks, "", ("01", "02", "US")) for weeks in range(4)]
    (path,) = write_hub(made, hub, MODEL)
    fill_in(hub)
    assert submission_faults(hub, MODEL) == []
    table = pl.read_csv(path, infer_schema=False)
    rows = table.filter(output_type="sample").with_columns(pl.col("value").cast(float))
    assert len(table) == 4 * 3 * (len(LEVELS) + 200) and len(rows) == 4 * 3 * 200
    # A sample is of one location, and goes through all weeks.
    of_one = rows.group_by("output_type_id").agg(pl.col("location").n_unique(), pl.len())
    assert of_one["location"].unique().to_list() == [1] and of_one["len"].unique().to_list() == [4]
    # Its quantiles are those of the forecast: here 0 to 22 above 10 a week, times seven days.
    values = rows.filter(horizon="2", location="01")["value"].to_numpy()
    assert np.quantile(values, LEVELS) == pytest.approx(7 * (20 + np.arange(23.0)), abs=7)
    # Errors add up from week to week: ranks go together as in a sum of independent steps.
    ranks = rows.with_columns(pl.col("value").rank().over("horizon", "location")).pivot(
        "horizon", index="output_type_id", values="value"
    )
    near, far = (np.corrcoef(ranks["0"], ranks[week])[0, 1] for week in ("1", "3"))
    assert near == pytest.approx(0.5**0.5, abs=0.1) and far == pytest.approx(0.5, abs=0.15)
    assert write_hub(made[:1], hub, MODEL) == [path]
    again = pl.read_csv(path, infer_schema=False)
    assert again.sort(again.columns).equals(table.sort(table.columns))


@pytest.mark.parametrize(
    ("params", "column"),
    [({"type": "integer", "compound_taskid_set": ["location", "horizon"]}, "horizon"),
     ({"compound_taskid_set": None}, "horizon"), ({}, "location")],
)  # fmt: skip
def test_a_sample_stays_within_what_a_hub_keeps_apart(
    tmp_path: Path, params: dict[str, Any], column: str
) -> None:
    hub = asking_samples(tmp_path / "hub", **params)
    (path,) = write_hub([of_week(weeks, "", ("01", "US")) for weeks in (1, 3)], hub, MODEL)
    fill_in(hub)
    assert submission_faults(hub, MODEL) == []
    rows = pl.read_csv(path, infer_schema=False).filter(output_type="sample")
    apart = rows.group_by("output_type_id").agg(pl.col(column).n_unique())[column]
    assert apart.unique().to_list() == [1]


def test_two_targets_of_a_hub_stand_in_one_file(tmp_path: Path) -> None:
    hub = asking_samples(tmp_path / "hub")
    first = "https://wk inc // hosp"

    def second(tasks: dict[str, Any], count: dict[str, Any]) -> None:
        more = deepcopy(count)
        more["task_ids"]["target"]["optional"] = ["wk inc visits"]
        tasks["rounds"][0]["model_tasks"].append(more)

    path = hub / "hub-config" / "tasks.json"
    path.write_text(path.read_text().replace('// of "this" season', ""))
    edited(hub, second)
    week = [of_week(1, "", ("01", "US"))]
    with pytest.raises(EpifedError, match=r"https://wk inc // hosp, wk inc visits; expected one"):
        write_hub(week, hub, MODEL)
    for target in (first, "wk inc visits"):
        (path,) = write_hub(week, hub, MODEL, target=target)
    fill_in(hub)
    rows = pl.read_csv(path, infer_schema=False)
    assert len(rows) == 2 * 2 * (len(LEVELS) + 200)
    of_samples = rows.filter(output_type="sample").group_by("output_type_id")
    assert of_samples.agg(pl.col("target").n_unique())["target"].unique().to_list() == [1]
    assert all(submission_faults(hub, MODEL, target) == [] for target in (first, "wk inc visits"))
    rows.with_columns(target=pl.lit("wk inc deaths")).write_csv(path)
    assert "column target: found wk inc deaths" in submission_faults(hub, MODEL, first)[0]


SAMPLE_FAULTS = {
    "found 1 to 1 samples of a task; expected 200 to 200": pl.col("value"),
    "found a sample of a task twice": pl.lit("7").alias("output_type_id"),
    "found a sample with several values of location": (
        pl.col("output_type_id").cast(int) % 200
    ).cast(str).alias("output_type_id"),
    "expected at most 15 characters": pl.concat_str(
        pl.lit("a sample that is long "), "output_type_id"
    ).alias("output_type_id"),
    "found a value below 0": (-pl.col("value").cast(float)).cast(str).alias("value"),
    "column location: found 72": pl.lit("72").alias("location"),
}  # fmt: skip


@pytest.mark.parametrize("fault", SAMPLE_FAULTS)
def test_samples_that_a_hub_would_refuse_are_found(tmp_path: Path, fault: str) -> None:
    hub = asking_samples(tmp_path / "hub")
    (path,) = write_hub([of_week(1, "", ("01", "US"))], hub, MODEL)
    fill_in(hub)
    table = pl.read_csv(path, infer_schema=False)
    rows, change = table.filter(output_type="sample"), SAMPLE_FAULTS[fault]
    changed = rows.filter(location="01").head(1) if "1 to 1" in fault else rows.with_columns(change)
    pl.concat([table.filter(output_type="quantile"), changed]).write_csv(path)
    assert any(fault in sentence for sentence in submission_faults(hub, MODEL))


def test_the_settings_of_a_new_folder_are_of_the_newest_schema(tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    write_hub([of_week(1, "nation", ("nation",))], hub, MODEL)
    settings = {path.stem: json.loads(path.read_text()) for path in (hub / "hub-config").iterdir()}
    assert set(settings) == {"admin", "tasks", "target-data"}
    for name, content in settings.items():
        assert content["schema_version"].endswith(f"/main/v6.0.0/{name}-schema.json")
    about = settings["target-data"]
    task_ids = settings["tasks"]["rounds"][0]["model_tasks"][0]["task_ids"]
    assert about["date_col"] == "target_end_date" and set(about["observable_unit"]) <= set(task_ids)
    counted = pl.DataFrame(
        {"target_end_date": [SATURDAY], "location": ["nation"], "target": ["wk inc case"],
         "observation": [3.0]}
    )  # fmt: skip
    (hub / "target-data").mkdir()
    counted.write_csv(hub / "target-data" / "time-series.csv")
    assert read_truth(hub)["value"].to_list() == [3.0]


def test_a_later_submission_adds_and_never_replaces(tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    write_hub([of_week(1, "nation", ("nation",))], hub, MODEL)
    (path,) = write_hub([of_week(2, "state", ("Alabama",))], hub, MODEL)
    rows = pl.read_parquet(path)
    assert set(rows.select("horizon", "location").unique().iter_rows()) == {
        (1, "nation"),
        (2, "Alabama"),
    }
    ids = json.loads((hub / "hub-config" / "tasks.json").read_text())["rounds"][0]["model_tasks"][0]
    assert ids["task_ids"]["horizon"]["optional"] == [1, 2]
    assert ids["task_ids"]["location"]["optional"] == ["Alabama", "nation"]
    with pytest.raises(EpifedError, match="found other forecasts of the same horizon and location"):
        write_hub([of_week(1, "nation", ("nation",), 11.0)], hub, MODEL)
    assert pl.read_parquet(path).equals(rows)
    metadata = hub / "model-metadata" / f"{MODEL}.yml"
    metadata.write_text("mine: 1\n")
    write_hub([of_week(3, "nation", ("nation",))], hub, MODEL)
    assert metadata.read_text() == "mine: 1\n"
    assert submission_faults(hub, MODEL) == []


def test_a_folder_of_ours_is_checked_by_its_own_settings(tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    (path,) = write_hub([of_week(1, "nation", ("nation",))], hub, MODEL)
    assert submission_faults(hub, MODEL) == []
    rows = pl.read_parquet(path)
    rows.with_columns(pl.col("target_end_date") + timedelta(days=3)).write_parquet(path)
    (fault,) = submission_faults(hub, MODEL)
    assert "column target_end_date: found 2023-10-24" in fault
    (hub / "hub-config" / "tasks.json").write_text("{")
    with pytest.raises(EpifedError, match=r"tasks.json: expected JSON"):
        submission_faults(hub, MODEL)


FAULTS = {
    "reference_date 2023-10-21": pl.lit(date(2023, 10, 21)).alias("reference_date"),
    "found the output types mean": pl.lit("mean").alias("output_type"),
    "quantiles that fall": (-pl.col("value") + 1000).alias("value"),
    "value below 0": (pl.col("value") - 1000).alias("value"),
    "target_end_date that does not follow": pl.when(pl.col("horizon") == 1)
    .then(pl.lit(SATURDAY))
    .otherwise("target_end_date")
    .alias("target_end_date"),
    "quantile level that the hub does not take": (pl.col("output_type_id") / 2).alias(
        "output_type_id"
    ),
    "column location: found 72": pl.lit("72").alias("location"),
    "an empty cell": pl.lit(None, dtype=pl.Float64).alias("value"),
}


@pytest.mark.parametrize("said", FAULTS)
def test_the_check_finds_every_planted_fault(tmp_path: Path, said: str) -> None:
    hub = other_hub(tmp_path / "hub")
    (path,) = write_hub([of_week(weeks, "nation", ("US",)) for weeks in (0, 1)], hub, MODEL)
    pl.read_csv(path, try_parse_dates=True, schema_overrides={"location": pl.String}).with_columns(
        FAULTS[said]
    ).write_csv(path)
    assert any(said in sentence for sentence in submission_faults(hub, MODEL))


def test_the_check_looks_at_rows_names_and_metadata(tmp_path: Path) -> None:
    hub = other_hub(tmp_path / "hub")
    (path,) = write_hub([of_week(1, "nation", ("US",))], hub, MODEL)
    fill_in(hub)
    frame = pl.read_csv(path, infer_schema=False)
    pl.concat([frame, frame.head(1)]).write_csv(path)
    assert submission_faults(hub, MODEL) == [
        f"{path.name}: found a row twice; expected each quantile of a task once"
    ]
    frame.tail(-1).write_csv(path)
    assert "without all required quantile levels" in submission_faults(hub, MODEL)[0]
    frame.drop("target").write_csv(path)
    assert "found the columns" in submission_faults(hub, MODEL)[0]
    frame.write_csv(path)
    path.rename(path.with_name("forecast.csv"))
    (hub / "model-metadata" / f"{MODEL}.yml").unlink()
    faults = submission_faults(hub, MODEL)
    assert len(faults) == 2 and "not there" in faults[0] and "another name" in faults[1]


def test_values_that_are_not_taken_together_are_found(tmp_path: Path) -> None:
    hub = other_hub(tmp_path / "hub")

    def split(tasks: dict[str, Any], count: dict[str, Any]) -> None:
        nation, states = deepcopy(count), deepcopy(count)
        nation["task_ids"]["location"]["optional"] = ["US"]
        states["task_ids"]["location"]["optional"] = ["01", "02"]
        states["task_ids"]["horizon"]["optional"] = [0, 1]
        tasks["rounds"][0]["model_tasks"] = [nation, states]

    edited(hub, split)
    write_hub([of_week(3, "nation", ("US",)), of_week(1, "state", ("01",))], hub, MODEL)
    with pytest.raises(EpifedError, match=r"horizon 3, location 01, .*; expected values that the"):
        write_hub([of_week(3, "state", ("01",))], hub, MODEL)


def test_tasks_that_a_hub_requires_must_be_there(tmp_path: Path) -> None:
    hub = other_hub(tmp_path / "hub")
    edited(
        hub,
        lambda _, count: count["task_ids"].update(
            horizon={"required": [0, 1], "optional": [2, 3]},
            location={"required": ["US"], "optional": ["01", "02"]},
        ),
    )
    (path,) = write_hub([of_week(weeks, "nation", ("US",)) for weeks in (0, 1, 3)], hub, MODEL)
    fill_in(hub)
    assert submission_faults(hub, MODEL) == []
    frame = pl.read_csv(path, infer_schema=False)
    frame.filter(pl.col("horizon") != "0").write_csv(path)
    (fault,) = submission_faults(hub, MODEL)
    assert "found 1 required tasks missing; expected reference_date 2023-10-14" in fault
    assert "horizon 0, location US" in fault


def test_whole_numbers_bounds_and_text_where_a_hub_asks_for_them(tmp_path: Path) -> None:
    hub = other_hub(tmp_path / "hub")

    def edit(tasks: dict[str, Any], count: dict[str, Any]) -> None:
        count["output_type"]["quantile"]["value"] = {
            "type": "integer",
            "minimum": 0,
            "maximum": 1000,
        }

    edited(hub, edit)
    admin = hub / "hub-config" / "admin.json"
    admin.write_text(admin.read_text().replace('["csv"]', '["parquet"]'))
    half = of_week(1, "nation", ("US",), 10.55)
    (path,) = write_hub([half], hub, MODEL)
    fill_in(hub)
    assert submission_faults(hub, MODEL) == []
    rows = pl.read_parquet(path)
    assert rows.schema["output_type_id"] == pl.String
    assert rows["value"].to_list() == [round(7 * (10.55 + i)) for i in range(23)]
    rows.with_columns(pl.col("value") + 0.5).write_parquet(path)
    assert "not whole" in submission_faults(hub, MODEL)[0]
    rows.with_columns(pl.col("value") + 900).write_parquet(path)
    assert "found a value above 1000" in submission_faults(hub, MODEL)[0]
    (hub / "hub-config" / "model-metadata-schema.json").write_text('{"required": ["website_url"]}')
    assert "found no website_url" in submission_faults(hub, MODEL)[0]


def flu_hub(folder: Path, first: date) -> Path:
    """A hub of weeks that end on Saturdays, forecast from the Saturday after the last known one."""
    dates = [str(first + timedelta(weeks=week)) for week in range(-2, 12)]
    taken = {"required": None, "optional": dates[2:5]}
    return other_hub(
        folder,
        reference_date=taken,
        horizon={"required": None, "optional": [-1, 0, 1, 2, 3]},
        location={"required": None, "optional": ["US", "01", "02", "03", "04"]},
        target_end_date={"required": None, "optional": dates},
    )


def test_a_hubs_own_settings_say_how_weekly_counts_are_forecast(tmp_path: Path) -> None:
    daily = small_panel(4, 7 * 40)
    saturday = date(2023, 9, 30)
    daily = replace(
        daily,
        regions=("01", "02", "03", "04"),
        start=saturday - timedelta(days=7 * 40 - 1),
    )
    panel = daily.weekly()
    rounds = saturday - timedelta(weeks=4)
    hub = flu_hub(tmp_path / "hub", rounds)
    codes = tmp_path / "codes.csv"
    codes.write_text("location,region\nUS,nation\n")
    target_options = TargetOptions(
        level=["region", "nation"], hub=hub, model_name=MODEL, locations=codes
    )
    origins = [saturday - timedelta(weeks=weeks) for weeks in (7, 6, 5, 4, 3)]
    target_options.refuse_early([7])
    targets = target_options.targets(panel, [1], origins)
    assert targets is not None and targets.ahead == (0, 1, 2, 3)
    result = run_backtest(
        panel,
        settings_for(panel, {"learner": "trend", "epsilon": math.inf}),
        origins,
        tmp_path / "out",
        targets=targets,
        workers=1,
    )
    assert result.levels is not None
    said = target_options.write(result.levels.forecasts)
    assert "hub files of 5 reference dates" in said and "(2 of them left out" in said
    fill_in(hub)
    assert submission_faults(hub, MODEL) == []
    read = read_forecasts(hub)
    assert sorted(read["reference_date"].unique()) == [
        rounds + timedelta(weeks=w) for w in (0, 1, 2)
    ]
    ends = pl.col("reference_date") + pl.duration(weeks=pl.col("horizon"))
    assert read.select((ends == pl.col("target_end_date")).all()).item()
    assert set(read["location"]) == {"US", "01", "02", "03", "04"}
    table = connect_hub(str(hub)).get_dataset().to_table()
    assert table.num_rows == 3 * 4 * 5 * len(LEVELS) == len(read)
    zero = read.filter(pl.col("horizon") == 0, pl.col("level") == 0.5, location="03")
    assert zero["target_end_date"][0] == rounds == origins[2] + timedelta(weeks=1)
    week = result.levels.forecasts[0]
    assert week.step == "week" and week.weeks_ahead == 0 and week.horizon == 1


def test_rates_of_a_few_countries_go_into_a_hub_that_dates_rounds_by_wednesday(
    tmp_path: Path,
) -> None:
    """Decimals instead of counts, weeks without a report, two indicators, no vintages."""
    rng = np.random.default_rng(0)
    countries = ["AT", "BE", "EE", "IE", "LU", "NO"]
    sundays = [date(2023, 3, 5) + timedelta(weeks=week) for week in range(80)]
    wave = np.exp(np.sin(np.arange(80) / 8))
    lines = ["location,truth_date,indicator,value"]
    for scale, country in zip(np.geomspace(0.4, 400, 6), countries, strict=True):
        for sunday, height in zip(sundays, wave, strict=True):
            if rng.random() < 0.05 or (country == "LU" and 5 <= sunday.month <= 9):
                continue
            value = scale * height * rng.gamma(60, 1 / 60)
            for indicator, more in (("ILI incidence", 1), ("ARI incidence", 5)):
                lines.append(f"{country},{sunday},{indicator},{more * value:.2f}")
    data = tmp_path / "truth.csv"
    data.write_text("\n".join(lines))
    wednesdays = [sundays[week] + timedelta(days=3) for week in range(72, 76)]
    ends = [str(sunday + timedelta(weeks=week)) for sunday in sundays[72:] for week in range(5)]
    hub = other_hub(
        tmp_path / "hub",
        reference_date=None,
        origin_date={"required": None, "optional": [str(day) for day in wednesdays]},
        target={"required": None, "optional": ["ILI incidence"]},
        horizon={"required": None, "optional": [1, 2, 3, 4]},
        location={"required": None, "optional": countries},
        target_end_date={"required": None, "optional": sorted(set(ends))},
    )

    def by_origin(tasks: dict[str, Any], count: dict[str, Any]) -> None:
        del count["task_ids"]["reference_date"]
        tasks["rounds"][0]["round_id"] = "origin_date"
        tasks["rounds"][0]["model_tasks"] = [count]

    edited(hub, by_origin)
    epifed(
        "backtest", "--data", data, "--column-date", "truth_date", "--column-region", "location",
        "--column-cases", "value", "--only", "indicator=ILI incidence", "--from", str(sundays[72]),
        "--to", str(sundays[79]), "--epsilon", "inf", "--level", "region", "--hub", hub,
        "--model-name", MODEL, "--out", tmp_path / "out",
    )  # fmt: skip
    fill_in(hub)
    epifed("hub", "check", hub, "--model", MODEL)
    read = read_forecasts(hub)
    assert set(read["reference_date"]) == set(wednesdays)
    assert set(read["location"]) == set(countries) and set(read["horizon"]) == {1, 2, 3, 4}
    first = read.filter(pl.col("horizon") == 1)
    apart = (first["target_end_date"] - first["reference_date"]).dt.total_days().unique()
    assert apart.to_list() == [4]
    middle = first.filter(location="AT", level=0.5)["value"]
    assert (middle != middle.round()).any() and middle.is_between(0.05, 4).all()


def test_a_weekly_file_of_another_weekday_than_the_hub_is_refused_early(tmp_path: Path) -> None:
    panel = small_panel(4, 7 * 12).weekly()
    sunday = panel.end + timedelta(days=(6 - panel.end.weekday()) % 7)
    panel = replace(panel, start=panel.start + (sunday - panel.end))
    hub = flu_hub(tmp_path / "hub", sunday - timedelta(days=1))
    with pytest.raises(EpifedError, match=r"weeks of .* that end on a sunday; expected the same"):
        TargetOptions(hub=hub, model_name=MODEL).targets(panel, [1], [panel.end])


def test_what_a_hub_would_refuse_is_refused_before_anything_is_computed(tmp_path: Path) -> None:
    panel = small_panel(4, 7 * 12).weekly()
    saturday = panel.end + timedelta(days=(5 - panel.end.weekday()) % 7)
    panel = replace(panel, start=panel.start + (saturday - panel.end))
    hub = flu_hub(tmp_path / "hub", saturday + timedelta(weeks=1))
    with pytest.raises(EpifedError, match=r"column location: found .* expected one of 01"):
        TargetOptions(hub=hub, model_name=MODEL).targets(panel, [1], [panel.end])


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return epifed(*map(str, arguments), expect=0)


def test_from_a_country_to_the_scores_of_its_states(tmp_path: Path) -> None:
    data, hub = tmp_path / "country", tmp_path / "hub"
    small = ("--counties", "20", "--communities", "40", "--days", "150")
    run("simulate", "--out", data, "--preset", "autumn-2020", "--seed", "1", *small)
    cases = pl.read_parquet(data / "county_cases.parquet")
    last = cases["date"].max()
    assert isinstance(last, date)
    span = ("--from", str(last - timedelta(days=42)), "--to", str(last), "--epsilon", "inf")
    weeks = ("--week-ends", "saturday", "--reference-day", "monday", "--ahead", "1", "--ahead", "2")
    levels = ("--level", "state", "--level", "nation")
    out = ("--out", tmp_path / "out", "--hub", hub, "--workers", "1")
    done = run("backtest", "--data", data, *span, *weeks, *levels, *out)
    assert "state, week 1" in done.stdout and "nation, week 2" in done.stdout
    assert "they are no private release" in done.stderr.replace("\n", " ")
    said = run("hub", "check", hub, "--model", "epifed-trend").stdout
    assert "nothing that a hub would refuse" in said
    found = refused("hub", "check", str(hub), "--model", "epifed-other")
    assert "found no file; expected forecasts of epifed-other" in found
    states = pl.read_csv(data / "counties.csv", infer_schema=False).select("county", "state")
    daily = cases.join(states, on="county").group_by("date", "state").agg(pl.col("cases").sum())
    total = cases.group_by("date").agg(pl.col("cases").sum(), state=pl.lit("nation"))
    both = pl.concat([daily, total.select(daily.columns)])
    truth = tmp_path / "truth.csv"
    both.rename({"state": "location", "cases": "value"}).write_csv(truth)
    same = ("--forecasts", hub, "--truth", truth, "--baseline", "epifed-trend")
    scores = json.loads(run("hub", "score", *same, "--by", "horizon", "--json").stdout)["scores"]
    assert [(row["horizon"], row["wis_ratio"]) for row in scores] == [(1, 1.0), (2, 1.0)]
    table = run("hub", "score", *same, "--by", "phase", "--out", tmp_path / "scores")
    assert "relative to epifed-trend" in table.stdout
    assert (tmp_path / "scores" / "hub_scores.png").stat().st_size > 10_000
    summed = pl.read_parquet(tmp_path / "out" / "levels.parquet")
    scored = pl.read_parquet(tmp_path / "scores" / "scores.parquet")
    assert 7 * summed["wis"].sum() == pytest.approx(scored["wis"].sum(), rel=1e-6)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--ahead", "1"), "expected --week-ends with it"),
        (("--week-ends", "someday"), "--week-ends: found 'someday'; expected one of monday"),
        (("--published", "x.csv"), "found --published; expected --level with it"),
        (("--published-lead", "3"), "found --published-lead; expected --published with it"),
        (("--locations", "x.csv"), "found --locations; expected --hub or --published with it"),
        (("--target", "x"), "found --target or --model-name; expected --hub with it"),
        (("--level", "region", "--published", "nation.csv"), "expected a --level that is forecast"),
        (("--hub", "cases.csv"), "cases.csv: "),
        (("--level", "Atlantis"), "--level: found 'Atlantis'; expected region, nation"),
        (("--hub", "h", "--model-name", "x"), "found the model name 'x'; expected team-model"),
    ],
)
def test_options_that_cannot_be_are_one_sentence(
    tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    table = small_panel(regions=6, days=100).to_long().rename({"day": "date"})
    table.with_columns(pl.col("cases").cast(pl.Int64)).write_csv(tmp_path / "cases.csv")
    total = table.group_by("date").agg(pl.col("cases").sum().alias("value"))
    total.with_columns(location=pl.lit("nation")).write_csv(tmp_path / "nation.csv")
    span = ("--from", "2020-12-10", "--to", "2020-12-30", "--out", str(tmp_path / "out"))
    given = [str(tmp_path / one) if one.endswith(".csv") else one for one in options]
    assert words in refused("backtest", "--data", str(tmp_path / "cases.csv"), *span, *given)
    assert not (tmp_path / "out").exists()
