"""Scores of several teams: the WIS by its definition, pairwise skill by hand, the same tasks."""

import json
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from typer.testing import CliRunner

from epifed.cli.app import app
from epifed.errors import EpifedError
from epifed.evaluation.metrics import METRICS, Metric
from epifed.hubs.tables import (
    TASK,
    by_last_days,
    compare,
    ratio,
    read_forecasts,
    read_locations,
    read_truth,
    relative_skill,
    score,
    weekly,
    wis_parts,
)
from epifed.intervals import LEVELS, weighted_interval_score
from tests.commands import refused

MONDAY = date(2020, 11, 2)


def interval_score(lower: float, upper: float, y: float, alpha: float) -> float:
    """As Bracher et al. (2021) define it."""
    below = 2 / alpha * (lower - y) * (y < lower)
    above = 2 / alpha * (y - upper) * (y > upper)
    return (upper - lower) + below + above


@given(
    hnp.arrays(np.float64, 23, elements=st.floats(0, 1e4)).map(np.sort),
    st.floats(0, 1e4),
)
def test_the_parts_of_the_wis_are_those_of_its_definition(
    quantiles: NDArray[np.float64],
    y: float,
) -> None:
    total = 0.5 * abs(y - quantiles[11])
    for k in range(11):
        alpha = 2 * LEVELS[k]
        total += alpha / 2 * interval_score(quantiles[k], quantiles[22 - k], y, alpha)
    parts = wis_parts(np.array(y), quantiles)
    assert sum(map(float, parts)) == pytest.approx(total / 11.5, abs=1e-9)
    assert sum(map(float, parts)) == pytest.approx(
        float(weighted_interval_score(np.array(y), quantiles)), abs=1e-9
    )
    assert all(part >= 0 for part in parts)
    if y >= quantiles[-1]:
        assert parts[1] == 0
    if y <= quantiles[0]:
        assert parts[2] == 0


def tasks(model: str, wis: dict[tuple[int, str], float]) -> pl.DataFrame:
    """Scores of a model on (week, location)."""
    rows = [
        {
            "model": model,
            "reference_date": MONDAY + timedelta(weeks=week),
            "horizon": 1,
            "target_end_date": MONDAY + timedelta(weeks=week, days=5),
            "location": location,
            "group": "all",
            "phase": "steady",
            "truth": 100.0,
            "median": 100.0 + value,
            "ae": value,
            "wis": value,
            "sharpness": value,
            "overprediction": 0.0,
            "underprediction": 0.0,
            "in_50": True,
            "in_95": True,
        }
        for (week, location), value in wis.items()
    ]
    return pl.DataFrame(rows)


BASE = tasks("t-base", {(0, "a"): 10.0, (0, "b"): 20.0, (1, "a"): 30.0})
HALF = tasks("t-half", {(0, "a"): 5.0, (0, "b"): 10.0, (1, "a"): 15.0})
LATE = tasks("t-late", {(1, "a"): 30.0, (2, "a"): 1.0})


def test_relative_skill_is_that_of_a_hand_computed_example() -> None:
    """Half/base = 30/60, late/base = 30/30, late/half = 30/15 on what each two share."""
    skill = relative_skill(pl.concat([BASE, HALF, LATE]), "t-base")
    theta_base = (1 * 2 * 1) ** (1 / 3)
    theta_half = (0.5 * 1 * 0.5) ** (1 / 3)
    theta_late = (1 * 2 * 1) ** (1 / 3)
    assert skill["t-base"] == pytest.approx(1)
    assert skill["t-half"] == pytest.approx(theta_half / theta_base)
    assert skill["t-late"] == pytest.approx(theta_late / theta_base)


def test_a_ratio_is_that_of_the_tasks_that_both_have() -> None:
    found = ratio(LATE, BASE)
    assert found is not None
    assert (found.value, found.tasks, found.dates) == (1.0, 1, 1)
    assert ratio(HALF, BASE) == ratio(HALF, BASE)
    other = tasks("t-x", {(5, "a"): 1.0})
    assert ratio(other, BASE) is None
    rows = {row["model"]: row for row in compare(pl.concat([BASE, HALF, LATE, other]), "t-base")}
    assert rows["t-x"]["wis_ratio"] is None
    assert rows["t-half"]["wis_ratio"] == pytest.approx(0.5)
    with pytest.raises(EpifedError, match=r"found no model 't-none'.*expected one of t-base"):
        compare(BASE, "t-none")


def test_a_metric_that_is_registered_is_scored_of_medians(monkeypatch: pytest.MonkeyPatch) -> None:
    worst = Metric("worst", "Worst", "", "lower", lambda pairs: float(np.abs(pairs.error).max()))
    monkeypatch.setitem(METRICS, "worst", worst)
    rows = {row["model"]: row for row in compare(pl.concat([BASE, HALF]), "t-base")}
    assert rows["t-half"]["worst"] == 15.0
    assert rows["t-half"]["mae"] == pytest.approx(10.0)
    assert rows["t-half"]["mase"] is None


@given(st.integers(0, 1000))
def test_the_interval_of_a_ratio_is_as_wide_as_dates_differ(seed: int) -> None:
    rng = np.random.default_rng(seed)
    keys = [(week, place) for week in range(20) for place in "abc"]
    base = tasks("t-base", dict(zip(keys, rng.gamma(3, 10, len(keys)), strict=True)))
    same = ratio(base.with_columns(wis=0.8 * pl.col("wis")), base)
    assert same is not None
    assert same.low == pytest.approx(0.8) and same.high == pytest.approx(0.8)
    moved = base.with_columns(wis=pl.col("wis") * pl.Series(rng.uniform(0.2, 1.4, len(keys))))
    found = ratio(moved, base)
    assert found is not None and found.low < found.value < found.high


def long(model: str, value: float, weeks: int = 3, location: str = "a") -> pl.DataFrame:
    rows = [
        {
            "model": model,
            "forecast_date": MONDAY + timedelta(weeks=week),
            "target_end_date": MONDAY + timedelta(weeks=week, days=5),
            "weeks_ahead": 1,
            "location": location,
            "quantile": level,
            "value": value * (0.5 + (level or 0.5)),
        }
        for week in range(weeks)
        for level in (*LEVELS, None)
    ]
    return pl.DataFrame(rows, schema_overrides={"quantile": pl.Float64})


def daily(
    values: list[float], location: str = "a", first: date = date(2020, 10, 18)
) -> pl.DataFrame:
    days = [first + timedelta(days=i) for i in range(len(values))]
    return pl.DataFrame({"date": days, "location": location, "value": values})


def test_daily_truth_is_added_up_and_weeks_with_a_gap_are_not_scored(tmp_path: Path) -> None:
    path = tmp_path / "truth.csv"
    values = [float(i) for i in range(35)]
    daily(values).filter(pl.col("date") != date(2020, 11, 5)).write_csv(path)
    truth = read_truth(path)
    ends = [date(2020, 10, 31), date(2020, 11, 7), date(2020, 11, 14)]
    found = weekly(truth, ends)
    assert found.to_dicts() == [
        {
            "target_end_date": ends[0],
            "location": "a",
            "truth": float(sum(range(7, 14))),
            "before": float(sum(range(7))),
        },
        {
            "target_end_date": ends[2],
            "location": "a",
            "truth": float(sum(range(21, 28))),
            "before": None,
        },
    ]
    by_week = truth.filter(pl.col("date").is_in(ends))
    assert weekly(by_week, ends)["truth"].to_list() == [13.0, 20.0, 27.0]


def test_tables_of_hubs_are_read_alike(tmp_path: Path) -> None:
    table = long("t-one", 100.0)
    table.write_parquet(tmp_path / "table.parquet")
    found = read_forecasts(tmp_path / "table.parquet")
    assert len(found) == 3 * len(LEVELS)
    folder = tmp_path / "hub" / "model-output" / "t-one"
    folder.mkdir(parents=True)
    for (day,), part in table.drop_nulls("quantile").group_by("forecast_date"):
        part.select(
            reference_date="forecast_date",
            target=pl.lit("wk inc case"),
            horizon="weeks_ahead",
            target_end_date="target_end_date",
            location="location",
            output_type=pl.lit("quantile"),
            output_type_id="quantile",
            value="value",
        ).write_csv(folder / f"{day}-t-one.csv")
    again = read_forecasts(tmp_path / "hub")
    order = [*TASK, "level"]
    assert again.sort(order).equals(found.sort(order))
    (tmp_path / "bad.csv").write_text("model,reference_date\nx,2020-01-01\n")
    with pytest.raises(EpifedError, match=r"bad.csv: found no column horizon or weeks_ahead"):
        read_forecasts(tmp_path / "bad.csv")


def test_a_truth_of_weeks_by_their_first_day_is_said_or_refused(tmp_path: Path) -> None:
    saturdays = [date(2023, 10, 7) + timedelta(weeks=week) for week in range(6)]
    rows = [f"{day},US,{100 + i}" for i, day in enumerate(saturdays)]
    sundays = [f"{day - timedelta(days=6)},US,{100 + i}" for i, day in enumerate(saturdays)]
    paths = {}
    for name, lines in {"last": rows, "first": sundays}.items():
        paths[name] = tmp_path / f"{name}.csv"
        paths[name].write_text("\n".join(["date,location,value", *lines]) + "\n")
    known = weekly(read_truth(paths["last"]), saturdays)
    assert by_last_days(read_truth(paths["first"])).equals(read_truth(paths["last"]))
    with pytest.raises(EpifedError, match=r"dated by their sunday .* --truth-weeks first"):
        weekly(read_truth(paths["first"]), saturdays)
    assert weekly(by_last_days(read_truth(paths["first"])), saturdays).equals(known)
    daily = tmp_path / "daily.csv"
    days = [date(2023, 10, 1) + timedelta(days=day) for day in range(20)]
    daily.write_text("\n".join(["date,location,value", *(f"{day},US,1" for day in days)]) + "\n")
    with pytest.raises(EpifedError, match="found daily counts; expected those of weeks"):
        by_last_days(read_truth(daily))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_forecast_that_is_no_number_is_refused(tmp_path: Path, value: float) -> None:
    path = tmp_path / "table.parquet"
    broken = pl.when(pl.col("quantile") == 0.25).then(value).otherwise(pl.col("value"))
    long("t-one", 100.0).with_columns(value=broken).write_parquet(path)
    with pytest.raises(EpifedError, match="or a value that is no number; expected a forecast in"):
        read_forecasts(path)


def test_a_truth_that_is_no_number_is_no_truth(tmp_path: Path) -> None:
    path = tmp_path / "truth.parquet"
    daily([1.0, float("nan"), 3.0]).write_parquet(path)
    assert read_truth(path)["value"].to_list() == [1.0, 3.0]


def versions() -> pl.DataFrame:
    """Two targets of a hub, each week in two versions; the newest counts of the first are 1, 2."""
    rows = [
        (as_of, day, "a", target, 10.0 * late + value + 100 * (target == "visits"))
        for late, as_of in enumerate(("2024-11-27", "2024-11-20"))
        for value, day in ((1.0, "2024-11-09"), (2.0, "2024-11-16"))
        for target in ("admissions", "visits")
    ]
    names = ["as_of", "week_end", "location", "target", "observation"]
    return pl.DataFrame(rows, schema=names, orient="row")


@pytest.mark.parametrize("how", ["csv", "parquet", "folders"])
def test_the_newest_counts_of_a_hub_s_own_target_data_are_the_truth(
    tmp_path: Path, how: str
) -> None:
    folder = tmp_path / "hub" / "target-data"
    (tmp_path / "hub" / "hub-config").mkdir(parents=True)
    settings = {"date_col": "week_end", "observable_unit": ["week_end", "location", "target"]}
    (tmp_path / "hub" / "hub-config" / "target-data.json").write_text(json.dumps(settings))
    with pytest.raises(EpifedError, match="found no target-data/time-series; expected the obs"):
        read_truth(tmp_path / "hub")
    folder.mkdir()
    if how == "csv":
        versions().write_csv(folder / "time-series.csv")
    elif how == "parquet":
        typed = versions().with_columns(pl.col("as_of", "week_end").str.to_date())
        typed.write_parquet(folder / "time-series.parquet")
    else:
        for (as_of,), part in versions().group_by("as_of"):
            (folder / "time-series" / f"as_of={as_of}").mkdir(parents=True)
            name = folder / "time-series" / f"as_of={as_of}" / "part-0.parquet"
            part.drop("as_of").write_parquet(name)
    with pytest.raises(EpifedError, match="found the targets admissions, visits; expected one"):
        read_truth(tmp_path / "hub")
    truth = read_truth(tmp_path / "hub", "admissions")
    assert truth.to_dicts() == [
        {"date": date(2024, 11, 9), "location": "a", "value": 1.0},
        {"date": date(2024, 11, 16), "location": "a", "value": 2.0},
    ]


def test_a_truth_of_all_cases_so_far_or_with_thousands_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "truth.csv"
    daily(list(np.cumsum(np.arange(60) % 7 + 1.0))).write_csv(path)
    with pytest.raises(EpifedError, match="rise 59 times and fall 0 times, so they look accumul"):
        read_truth(path)
    path.write_text("date,location,value\n2020-11-02,a,1.234\n2020-11-03,a,980\n")
    with pytest.raises(EpifedError, match=r"found '1\.234', which may be thousands"):
        read_truth(path)


def test_horizons_in_days_are_not_taken_for_weeks(tmp_path: Path) -> None:
    frame = long("t-one", 100.0).drop("target_end_date")
    frame.with_columns(pl.col("weeks_ahead") * 7).write_parquet(tmp_path / "table.parquet")
    with pytest.raises(EpifedError, match="column horizon: found 7, which look like days"):
        read_forecasts(tmp_path / "table.parquet")


def test_locations_that_the_truth_does_not_know_are_named(tmp_path: Path) -> None:
    both = pl.concat([long("t-base", 100.0), long("t-base", 100.0, location="1")])
    both.write_parquet(tmp_path / "table.parquet")
    pl.concat([daily([10.0] * 40, place) for place in ("a", "01")]).write_csv(tmp_path / "t.csv")
    same = ("--forecasts", str(tmp_path / "table.parquet"), "--truth", str(tmp_path / "t.csv"))
    done = CliRunner().invoke(app, ["hub", "score", *same, "--baseline", "t-base", "--json"])
    assert json.loads(done.stdout)["unknown_locations"] == ["1"]
    assert "the truth has no values of 1 location: 1" in done.stderr


def test_no_case_after_no_case_is_steady() -> None:
    names = {"forecast_date": "reference_date", "weeks_ahead": "horizon", "quantile": "level"}
    frame = long("t-base", 100.0).rename(names).drop_nulls("level")
    scored = score(frame, daily([0.0] * 21 + [1.0] * 7 + [0.0] * 7))
    assert scored.table["phase"].to_list() == ["steady", "rising", "falling"]


def test_locations_that_are_not_named_are_left_out(tmp_path: Path) -> None:
    both = pl.concat([long("t-base", 100.0), long("t-base", 100.0, location="b")])
    both.write_parquet(tmp_path / "table.parquet")
    truth = pl.concat([daily([10.0] * 40, place) for place in "ab"])
    truth.write_csv(tmp_path / "truth.csv")
    (tmp_path / "places.csv").write_text("location,region\na,Anywhere\n")
    options = ("--truth", str(tmp_path / "truth.csv"), "--baseline", "t-base", "--json")
    same = ("--forecasts", str(tmp_path / "table.parquet"), *options)
    for more, tasks in (((), 6), (("--locations", str(tmp_path / "places.csv")), 3)):
        done = CliRunner().invoke(app, ["hub", "score", *same, *more])
        assert [row["tasks"] for row in json.loads(done.stdout)["scores"]] == [tasks]


def test_a_model_that_nobody_submitted_is_refused(tmp_path: Path) -> None:
    long("t-base", 100.0).write_parquet(tmp_path / "table.parquet")
    daily([10.0] * 40).write_csv(tmp_path / "truth.csv")
    same = ("--forecasts", str(tmp_path / "table.parquet"), "--truth", str(tmp_path / "truth.csv"))
    said = refused("hub", "score", *same, "--baseline", "t-base", "--model", "t-absent")
    assert "--model: found 't-absent'; expected one of t-base" in said


def test_only_complete_forecasts_of_known_weeks_are_scored() -> None:
    names = {"forecast_date": "reference_date", "weeks_ahead": "horizon", "quantile": "level"}
    frame = pl.concat([long("t-base", 100.0), long("t-other", 120.0)]).rename(names)
    frame = frame.drop_nulls("level")
    lacking = (pl.col("model") == "t-other") & (pl.col("level") == 0.5)
    frame = frame.filter(~(lacking & (pl.col("reference_date") == MONDAY)))
    values = [10.0] * 14 + [10.0] * 7 + [20.0] * 7
    scored = score(frame, daily(values), {"a": "state"})
    assert (scored.incomplete, scored.unknown) == (1, 2)
    phases = scored.table.select("target_end_date", "phase").unique().sort("target_end_date")
    assert phases["phase"].to_list() == ["steady", "rising"]
    rows = compare(scored.table, "t-base", ("group", "horizon"), "t-other")
    assert {row["model"]: row["shared_tasks"] for row in rows} == {"t-base": 2, "t-other": 1}
    with pytest.raises(EpifedError, match="none with all 23 quantile levels and a known truth"):
        score(frame, daily(values, "b"))


def test_the_hubs_ratios_are_those_that_are_known(real_data: Path) -> None:
    """The median ensemble of the German hub, and the ensemble of FluSight's teams."""
    repository = Path(__file__).resolve().parents[2]
    levels = read_locations(repository / "benchmarks" / "german_hub_locations.csv").levels
    assert len(levels) == 17
    german = read_forecasts(real_data / "hub_de_forecasts.parquet").filter(
        pl.col("reference_date").is_between(date(2020, 10, 12), date(2021, 3, 8))
        & pl.col("model").is_in(["KIT-baseline", "KITCOVIDhub-median_ensemble"])
        & pl.col("horizon").is_in([1, 2])
    )
    scored = score(german, read_truth(real_data / "hub_de_truth.csv"), levels)
    found = {
        row["horizon"]: (round(row["mae_ratio"], 2), round(row["wis_ratio"], 2))
        for row in compare(scored.table, "KIT-baseline")
        if row["group"] == "nation" and row["model"] != "KIT-baseline"
    }
    assert found == {1: (0.78, 0.80), 2: (1.01, 0.98)}
    flu = read_forecasts(real_data / "flusight_forecasts.parquet")
    states = score(
        flu.filter(pl.col("location") != "US"), read_truth(real_data / "flu_admissions.csv")
    )
    rows = compare(states.table, "FluSight-baseline", ("horizon",))
    ensemble = [row["wis_ratio"] for row in rows if row["model"] == "FluSight-ensemble"]
    assert [round(value, 2) for value in ensemble] == [0.78, 0.76, 0.74, 0.72]
