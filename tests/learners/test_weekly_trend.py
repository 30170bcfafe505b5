"""Weeks: a panel that counts them, the trend that learns from them, and all commands on them."""

import json
import math
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import epifed
from epifed.cli.app import app
from epifed.data.panel import CasePanel, choose
from epifed.data.quality import clean
from epifed.data_check import check_panel
from epifed.errors import EpifedError
from epifed.evaluation.backtest import run_backtest
from epifed.federation.site import load_hosted
from epifed.forecasting import Targets, forecast
from epifed.learners.base import make_learner, settings_for, slide
from epifed.learners.pretrained import LARGEST_CHANGE
from epifed.learners.weekly_trend import WeeklyTrend
from epifed.privacy.plan import PrivacyPlan
from epifed.settings import Settings
from epifed.simulate import SimulationSettings, simulate
from epifed.testing import check_learner
from epifed.training.rounds import contribution

SATURDAY = date(2021, 1, 9)


def weeks(counts: Any, start: date = SATURDAY, **more: Any) -> CasePanel:
    counts = np.atleast_2d(np.asarray(counts, dtype=np.float64))
    regions = tuple(f"r{k:02d}" for k in range(len(counts)))
    return CasePanel(counts, regions, start, step="week", **more)


def country(regions: int = 12, length: int = 80, seed: int = 0) -> CasePanel:
    rng = np.random.default_rng(seed)
    level = np.geomspace(5, 500, regions)[:, None]
    wave = np.exp(1.2 * np.sin(np.arange(length) / 7 + rng.normal(0, 0.2, (regions, 1))))
    return weeks(rng.poisson(level * wave))


def trend(**changes: Any) -> WeeklyTrend:
    learner = make_learner(Settings.resolve(12, {"learner": "trend", "step": "week"}, changes))
    assert isinstance(learner, WeeklyTrend)
    return learner


# panels


@given(st.integers(1, 4), st.integers(7, 60), st.integers(0, 999))
def test_a_week_is_the_sum_of_its_days(regions: int, days: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    reported = rng.random((regions, days)) < 0.95
    counts = rng.poisson(5.0, (regions, days)) * reported
    ids = tuple(map(str, range(regions)))
    daily = CasePanel(counts.astype(float), ids, date(2021, 1, 4), reported=reported)
    weekly = daily.weekly()
    assert (weekly.step, weekly.end) == ("week", daily.end)
    assert weekly.counts.shape[1] == days // 7 and weekly.reported is not None
    for column, day in enumerate(weekly.days):
        inside = daily.between(day - timedelta(days=6), day)
        assert np.array_equal(weekly.counts[:, column], inside.counts.sum(axis=1))
        assert inside.reported is not None
        assert np.array_equal(weekly.reported[:, column], inside.reported.all(axis=1))
        assert weekly.index(day) == column == weekly.index(day + timedelta(days=6))


@given(st.integers(-3, 40), st.integers(-3, 40))
def test_a_period_holds_the_weeks_that_are_dated_within(first: int, last: int) -> None:
    panel = weeks(np.arange(5.0))
    begin, end = (SATURDAY + timedelta(days=day) for day in (first, last))
    inside = [day for day in panel.days if begin <= day <= end]
    if inside and first > -7 and last < 35:
        cut = panel.between(begin, end)
        assert cut.days == inside
        assert panel.period(begin, end) == (inside[0], inside[-1])
        assert cut.counts[0].tolist() == [(day - SATURDAY).days // 7 for day in inside]
    else:
        with pytest.raises(EpifedError):
            panel.between(begin, end)


def test_weeks_and_days_of_the_same_numbers_are_not_the_same_data() -> None:
    panel = weeks([1, 2, 3])
    assert panel.digest() != replace(panel, step="day").digest()


def test_windows_count_weeks() -> None:
    settings = Settings.of(step="week", smoothing="none", window=3, horizon=2)
    windows = slide(weeks(np.arange(10.0)), settings, (SATURDAY, SATURDAY + timedelta(weeks=9)))
    assert windows.inputs[0].tolist() == [[i, i + 1, i + 2] for i in range(6)]
    assert windows.targets[0].tolist() == [4, 5, 6, 7, 8, 9]
    assert windows.target_days[0][0] == np.datetime64(SATURDAY + timedelta(weeks=4))


def test_weeks_are_not_averaged_over_seven() -> None:
    with pytest.raises(EpifedError, match="expected 'none'"):
        Settings.of(step="week")


# what is anomalous


def test_a_week_without_a_report_is_not_carried_on() -> None:
    counts = np.full((1, 12), 100.0)
    counts[0, 8] = 0.0
    found = clean(weeks(counts)).to_long()
    assert found.select("day", "kind").rows() == [(SATURDAY + timedelta(weeks=8), "silence")]
    assert clean(weeks(counts)).panel.counts[0, 8] == pytest.approx(100)


def test_few_cases_of_a_week_without_a_report_are_not_zero() -> None:
    counts = np.full((2, 12), 6.0)
    counts[:, 11] = 0.0
    reported = np.ones(counts.shape, dtype=np.bool_)
    reported[0, 11] = False
    panel = weeks(counts, reported=reported)
    assert clean(panel).panel.counts[:, 11].tolist() == [pytest.approx(6), 0.0]
    assert panel.digest() != replace(panel, reported=None).digest()
    assert "no report: 1 region-week (4.2%), not taken as zero" in "".join(
        check_panel(panel).warnings
    )


@given(st.integers(0, 99))
def test_what_was_anomalous_then_is_so_later(seed: int) -> None:
    rng = np.random.default_rng(seed)
    panel = weeks(
        rng.poisson(60.0, (3, 20)) * rng.choice([0.0, 1.0, 8.0], (3, 20), p=[0.1, 0.8, 0.1])
    )
    panel = replace(panel, reported=(panel.counts > 0) | (rng.random((3, 20)) < 0.5))
    whole = clean(panel)
    for week in range(4, 20):
        then, now = whole.until(panel.day(week)), clean(panel.between(panel.start, panel.day(week)))
        assert np.array_equal(then.kinds, now.kinds)
        assert np.array_equal(then.panel.counts, now.panel.counts)


# the learner


def test_learners_of_weeks_keep_the_rules() -> None:
    check_learner("trend", step="week")
    check_learner("fedavg", step="week", model="linear", epochs=2)


@pytest.mark.parametrize("learner", ["one-shot", "real-time"])
def test_others_refuse_weeks_in_one_sentence(learner: str) -> None:
    with pytest.raises(EpifedError, match=f"'{learner}' with counts of weeks; expected one that"):
        settings_for(country(), {"learner": learner})


def test_settings_of_days_are_not_for_weeks() -> None:
    with pytest.raises(EpifedError, match="expected 'week'"):
        settings_for(country(), {"learner": "trend", "step": "day"})
    for learner in ("trend", "fedavg"):
        with pytest.raises(EpifedError, match="step: found 'week'; expected 'day', which memory"):
            settings_for(replace(country(), step="day"), {"learner": learner, "step": "week"})
    with pytest.raises(EpifedError, match="found counts of each week; expected counts of each day"):
        epifed.train(country(), Settings.for_learner("trend", 12))


@given(st.lists(st.floats(0, 1e6), min_size=4, max_size=4))
def test_one_client_sends_one_bounded_number(counts: list[float]) -> None:
    learner = trend(epsilon=1.0)
    panel = weeks(np.reshape(counts, (2, 2)))
    view = learner.view(panel, (panel.start, panel.end))
    plan = PrivacyPlan.of(learner.settings, 12)
    rows = contribution(learner, learner.start(np.random.SeedSequence(0)), view, plan)
    assert rows.shape == (2, 1)
    assert np.abs(rows).max() <= LARGEST_CHANGE == learner.settings.clip_norm


def test_constant_counts_hardly_move() -> None:
    """The season alone moves them: by less than a third in a month of spring."""
    learner = trend()
    state = learner.step(learner.start(np.random.SeedSequence(0)), np.zeros(1, np.float32), 0.0)
    panel = weeks(np.full((3, 60), 200.0))
    for horizon in (1, 2, 3, 4):
        point, _ = learner.quantiles(panel, state, horizon)
        assert np.abs(np.log(point / 200)).max() < 0.3


def test_more_growth_of_all_clients_means_more_cases() -> None:
    learner = trend()
    start = learner.start(np.random.SeedSequence(0))
    panel = weeks(np.full((1, 60), 200.0))
    points = [
        learner.quantiles(panel, learner.step(start, np.array([one], np.float32), 0.0), 1)[0][0]
        for one in (-0.1, 0.0, 0.1)
    ]
    assert points == sorted(points) and points[2] > 1.05 * points[0]
    parts = learner.parts(panel, learner.step(start, np.array([0.1], np.float32), 0.0), 1)
    assert parts.country[0] > 0 == parts.reports[0]


def test_the_growth_of_few_clients_counts_less() -> None:
    """A client alone would count its own growth twice, and forecast ten times as much."""
    panel = weeks(np.r_[np.full(70, 40), 56, 78, 110, 154, 215])
    medians, told_growth = [], []
    for clients in (1, 2, 52):
        made = make_learner(Settings.resolve(clients, {"learner": "trend", "step": "week"}))
        state = made.step(made.start(np.random.SeedSequence(0)), np.array([0.16]), 0.0)
        told_growth.append(state.values[0, 0] / 0.16)
        made_quantiles = made.quantiles(panel, state, 4)
        assert made_quantiles is not None
        medians.append(float(made_quantiles[0][0]))
    assert told_growth == pytest.approx([1 / 2, 2 / 3, 52 / 53])
    assert medians[0] < medians[1] < medians[2]


def test_a_scale_of_its_own_makes_rates_and_counts_alike() -> None:
    """A rate and a thousand times that rate are forecast alike."""
    learner = trend()
    state = learner.step(learner.start(np.random.SeedSequence(0)), np.array([0.1]), 0.0)
    rates = country().counts / 7 + 0.01
    one, other = (learner.quantiles(weeks(scale * rates), state, 2)[1] for scale in (1.0, 1000.0))
    assert other == pytest.approx(1000 * one, rel=1e-6)


def test_an_implausible_newest_week_is_not_carried_on() -> None:
    learner = trend()
    state = learner.step(learner.start(np.random.SeedSequence(0)), np.zeros(1, np.float32), 0.0)
    counts = np.full((2, 30), 400.0)
    counts[0, -1] = 2800.0
    completed = learner.completed(weeks(counts), state).counts
    assert completed[:, -1] == pytest.approx(400)
    assert learner.quantiles(weeks(counts), state, 1)[0][0] < 600


def told(learner: WeeklyTrend, panel: CasePanel) -> Any:
    """The state of somebody who released the growth of every week."""
    state = learner.start(np.random.SeedSequence(0))
    for week in range(1, panel.counts.shape[1]):
        view = learner.view(panel, (panel.start, panel.day(week)))
        mean = learner.contribute(state, view).mean(axis=0)
        state = learner.step(learner.advance(state, 7), mean, 0.0)
    return state


@given(st.integers(0, 99), st.integers(1, 4))
def test_no_week_knows_of_a_later_one(seed: int, horizon: int) -> None:
    panel = country(4, 75, seed)
    learner = trend()
    state = told(learner, panel)
    every = learner.hindcast(panel, state, horizon)
    later = panel.counts.copy()
    later[:, 70:] = 1e5
    changed = learner.hindcast(replace(panel, counts=later), state, horizon)
    assert np.array_equal(every[:, :-5], changed[:, :-5])
    assert not np.array_equal(every[:, -5:], changed[:, -5:])


def test_a_future_spike_moves_no_forecast_before_it(tmp_path: Path) -> None:
    panel = country()
    settings = settings_for(panel, {"learner": "trend", "epsilon": 1.0, "horizon": 2})
    origins = [panel.day(week) for week in range(60, 70)]
    later = panel.counts.copy()
    later[:, 66:] += 1e4
    one = run_backtest(panel, settings, origins, tmp_path / "a", workers=1)
    two = run_backtest(replace(panel, counts=later), settings, origins, tmp_path / "b", workers=1)
    same = [
        np.array_equal(a.quantiles, b.quantiles)
        for a, b in zip(one.forecasts, two.forecasts, strict=True)
    ]
    assert same == [True] * 6 + [False] * 4
    assert (one.table["target_date"] - one.table["origin_date"]).unique().to_list() == [
        timedelta(weeks=2)
    ]
    assert one.summary()["step"] == "week"


def test_a_week_without_a_report_is_not_scored(tmp_path: Path) -> None:
    panel = country()
    reported = np.ones(panel.counts.shape, dtype=np.bool_)
    reported[0, 62] = False
    panel = replace(panel, reported=reported)
    found = epifed.backtest(panel, panel.day(60), panel.day(66), epsilon=math.inf)
    missing = found.table.filter(target_date=panel.day(62))
    assert len(missing) == len(panel.regions) - 1 and "r00" not in missing["region"].to_list()
    assert len(found.table) == 6 * len(panel.regions) - 1
    assert found.after_holiday(panel) is None


def test_larger_regions_are_scored_on_their_weeks(tmp_path: Path) -> None:
    panel = country(regions=4)
    reported = np.ones(panel.counts.shape, dtype=np.bool_)
    reported[0, 62] = False
    panel = replace(panel, states=("A", "A", "B", "B"), reported=reported)
    settings = settings_for(panel, {"learner": "trend", "epsilon": math.inf, "horizon": 2})
    origins = [panel.day(week) for week in range(60, 66)]
    targets = Targets(choose(panel, ["state", "nation"]), (2,))
    found = run_backtest(panel, settings, origins, tmp_path, targets=targets, workers=1).levels
    assert found is not None
    groups = [(row["level"], row["weeks_ahead"], row["days_ahead"]) for row in found.summary()]
    assert groups == [("state", 2, None), ("nation", 2, None)]
    for region, rows in (("A", slice(0, 2)), ("B", slice(2, 4)), ("nation", slice(0, 4))):
        table = found.table.filter(region=region)
        weeks_of = [week for week in range(62, 68) if reported[rows, week].all()]
        assert table["target_date"].to_list() == [panel.day(week) for week in weeks_of]
        assert table["truth"].to_list() == panel.counts[rows, weeks_of].sum(axis=0).tolist()
        known = [week - 2 for week in weeks_of]
        assert table["persistence"].to_list() == panel.counts[rows, known].sum(axis=0).tolist()


def test_horizons_are_one_to_four_weeks() -> None:
    panel = country()
    learner = trend()
    state = told(learner, panel)
    widths = []
    for horizon in (1, 2, 3, 4):
        made = forecast(clean(panel), learner, state, horizon)
        assert made.target_date == panel.end + timedelta(weeks=horizon)
        assert (np.diff(made.quantiles, axis=1) >= 0).all()
        widths.append(float(np.median(made.quantiles[:, -2] - made.quantiles[:, 1])))
    assert widths == sorted(widths)
    with pytest.raises(EpifedError, match="found 5 weeks; expected 1 to 4"):
        forecast(clean(panel), learner, state, 5)


def test_a_horizon_that_cannot_be_is_refused_before_any_training(tmp_path: Path) -> None:
    panel = country()
    settings = settings_for(panel, {"learner": "trend", "epsilon": 1.0, "horizon": 5})
    with pytest.raises(EpifedError, match="found 5 weeks; expected 1 to 4"):
        run_backtest(panel, settings, [panel.day(60)], tmp_path / "out", workers=1)
    assert not (tmp_path / "out").exists()


# sites


def lines(region: str, days: list[date], cases: list[int]) -> str:
    return "".join(f"{day},{region},{n}\n" for day, n in zip(days, cases, strict=True))


def test_a_site_s_clients_may_date_their_weeks_by_any_day(tmp_path: Path) -> None:
    """One by Mondays, one by Saturdays, both of the same weeks; who is daily or torn counts not."""
    cases = [5, 9, 7, 30, 12, 3, 8, 1]
    monday = [date(2021, 3, 1) + timedelta(weeks=i) for i in range(8)]
    saturday = [day + timedelta(days=5) for day in monday]
    torn = [*saturday[:7], saturday[7] + timedelta(days=1)]
    daily = [monday[0] + timedelta(days=i) for i in range(8)]
    path = tmp_path / "cases.csv"
    text = "date,region,cases\n" + lines("a", monday, cases) + lines("b", saturday, cases)
    path.write_text(text + lines("c", daily, cases) + lines("d", torn, cases))
    found = load_hosted(path, ["a", "b", "c", "d"], step="week")
    assert found.panel is not None
    assert (found.panel.regions, found.panel.start) == (("a", "b"), monday[0])
    assert found.panel.counts.tolist() == [cases, cases]
    assert "found a row for each day; expected each week" in found.left_out["c"]
    assert "whole weeks apart" in found.left_out["d"]
    assert found.panel.covers(saturday[1], saturday[7]).all()


# commands


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulated country as an office has it: epidemiological weeks, dated by Saturdays."""
    panel = simulate(SimulationSettings(counties=12, communities=60, seed=3)).county_panel
    while panel.end.weekday() != 5:
        panel = panel.between(panel.start, panel.end - timedelta(days=1))
    path = tmp_path_factory.mktemp("weekly") / "weeks.csv"
    panel.weekly().to_table().select("date", "region", "cases", "population").write_csv(path)
    return path


def run(*words: object, code: int = 0) -> str:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output + str(result.exception)
    return result.output


def test_a_weekly_country_from_the_file_to_the_page(file: Path, tmp_path: Path) -> None:
    report = json.loads(run("data", "check", file, "--json").split("\n}", 1)[0] + "\n}")
    assert (report["step"], report["weekdays"], report["enough_days"]) == ("week", None, True)
    last = date.fromisoformat(report["last_day"])
    first = last - timedelta(weeks=12)
    out, hub = tmp_path / "backtest", tmp_path / "hub"
    said = run(
        "backtest", "--data", file, "--from", first, "--to", last, "--epsilon", "inf",
        "--out", out, "--hub", hub, "--workers", 1,
    )  # fmt: skip
    assert "1 week ahead, 12 origins" in said
    table = pl.read_parquet(out / "backtest.parquet")
    assert table["horizon"].unique().to_list() == [1]
    raw = pl.read_csv(file, try_parse_dates=True, schema_overrides={"region": pl.String})
    truth = table.join(raw, left_on=["target_date", "region"], right_on=["date", "region"])
    assert len(truth) == len(table) and (truth["truth"] == truth["cases"]).all()
    ahead = pl.read_parquet(out / "forecast.parquet")
    assert ahead["horizon"].unique().sort().to_list() == [1, 2, 3, 4]
    sent = pl.read_parquet(hub / "model-output" / "epifed-trend" / f"{first}-epifed-trend.parquet")
    assert sent["horizon"].unique().to_list() == [1]
    point = table.filter(origin_date=first).sort("region")
    upper = sent.filter(output_type_id=0.975).sort("location")["value"]
    assert upper.to_list() == pytest.approx(point["upper_95"].to_list())
    page = tmp_path / "page.html"
    run("report", out, "--data", file, "--out", page)
    shown = json.loads(
        page.read_text().split('id="data"', 1)[1].split(">", 1)[1].split("</script")[0]
    )
    assert (shown["step"], shown["forecast"]["horizons"]) == ("week", [7, 14, 21, 28])
    assert shown["history"]["step"] == 7


def test_a_weekly_model_is_trained_and_used(file: Path, tmp_path: Path) -> None:
    model, out = tmp_path / "week.epifed", tmp_path / "forecast"
    run("train", "--data", file, "--learner", "trend", "--epsilon", 1, "--seeded", "--out", model)
    said = run("forecast", model, "--data", file, "--horizon", 1, "--horizon", 4, "--out", out)
    assert "cases of a week" in said and "earlier years" in said
    made = pl.read_parquet(out / "forecast.parquet")
    assert (made["target_date"] - made["origin_date"]).unique().sort().to_list() == [
        timedelta(weeks=1), timedelta(weeks=4),
    ]  # fmt: skip
    daily = tmp_path / "daily.csv"
    days = [date(2021, 1, 1) + timedelta(days=i) for i in range(90)]
    daily.write_text("date,region,cases\n" + lines("a", days, [i * 7 % 11 for i in range(90)]))
    refused = CliRunner().invoke(app, ["forecast", str(model), "--data", str(daily)])
    assert isinstance(refused.exception, EpifedError)


def test_the_paper_s_experiment_runs_on_weeks(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    settings = tmp_path / "few.toml"
    settings.write_text('rounds = 2\nepochs = 2\nmodel = "linear"\n')
    said = run(
        "run", "--data", file, "--settings", settings, "--epsilon", "inf", "--runs", 1,
        "--workers", 1, "--out", out,
    )  # fmt: skip
    assert "1 week ahead" in said
    assert (out / "report.html").is_file()
