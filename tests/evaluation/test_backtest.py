"""Rolling origins: nothing leaks, everything resumes, and the scores are what they say."""

import json
import math
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from epifed.cli.app import app
from epifed.data.panel import CasePanel
from epifed.data.quality import clean
from epifed.evaluation import experiment
from epifed.evaluation.backtest import metrics_of, origins_between, run_backtest
from epifed.evaluation.metrics import METRICS, Metric
from epifed.forecasting import forecast
from epifed.learners.base import make_learner
from epifed.privacy.accounting import epsilon_of, training_event
from epifed.settings import Settings, read_settings
from epifed.simulate import default_panel
from epifed.training.loop import train

FIRST, LAST = date(2020, 11, 3), date(2020, 12, 8)


@pytest.fixture(scope="module")
def panel() -> CasePanel:
    whole = default_panel(0)
    few = slice(0, 40)
    assert whole.population is not None
    return CasePanel(
        counts=whole.counts[few],
        regions=whole.regions[few],
        start=whole.start,
        names=whole.names[few],
        population=whole.population[few],
        source="simulated",
    )


def trend(**changes: object) -> Settings:
    return Settings.for_learner("trend", 40, **changes)


@pytest.mark.parametrize(
    "settings",
    [
        trend(epsilon=1.0),
        Settings.for_learner("one-shot", 40, epsilon=1.0),
        Settings.for_learner("fedavg", 40, epsilon=1.0, model="linear", rounds=3, epochs=2),
    ],
    ids=["trend", "one-shot", "fedavg"],
)
def test_a_future_spike_moves_no_forecast_before_it(
    panel: CasePanel, settings: Settings, tmp_path: Path
) -> None:
    spike = date(2020, 11, 18)
    counts = panel.counts.copy()
    counts[:, (spike - panel.start).days :] *= 50
    planted = replace(panel, counts=counts, source="planted")
    origins = origins_between(FIRST, LAST, 7, panel, 7)
    tables = [
        run_backtest(p, settings, origins, tmp_path / name, workers=1).table
        for p, name in ((panel, "as it was"), (planted, "planted"))
    ]
    columns = ["point", "lower_95", "lower_50", "upper_50", "upper_95", "persistence"]
    before, after = (
        [t.filter(pl.col("origin_date") < spike).select(columns) for t in tables],
        [t.filter(pl.col("origin_date") >= spike).select(columns) for t in tables],
    )
    assert len(before[0]) == 3 * 40
    assert before[0].equals(before[1])
    assert not after[0].equals(after[1])


@pytest.mark.field
def test_it_resumes_and_the_number_of_workers_does_not_matter(
    panel: CasePanel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiment, "WORKERS_COST", -1.0)
    origins = origins_between(FIRST, LAST, 7, panel, 7)
    settings = trend(epsilon=0.5)
    calls: list[tuple[int, int]] = []
    half = run_backtest(panel, settings, origins[:2], tmp_path / "a", workers=1)
    whole = run_backtest(
        panel,
        settings,
        origins,
        tmp_path / "a",
        workers=2,
        progress=lambda done, total: calls.append((done, total)),
    )
    fresh = run_backtest(panel, settings, origins, tmp_path / "b", workers=1)
    assert whole.table.equals(fresh.table)
    assert whole.table.filter(pl.col("origin_date") <= origins[1]).equals(half.table)
    every = 2 * (len(origins) + 1)
    assert calls[0] == (5, every)  # three releases, and the forecasts of two of them
    assert calls[-1] == (every, every)


def test_each_forecast_is_the_one_that_would_have_been_made_that_day(
    panel: CasePanel, tmp_path: Path
) -> None:
    """The same training, joining and forecast by hand, on nothing but the days up to the origin."""
    origins = origins_between(FIRST, LAST, 7, panel, 7)
    settings = trend(epsilon=math.inf)
    made = run_backtest(panel, settings, origins, tmp_path, workers=1).forecasts
    learner = make_learner(settings)
    state = None
    for origin, forecast_then in zip(origins, made, strict=True):
        known = panel.between(panel.start, origin)
        fresh = train(learner.deployed_view(known, (known.start, origin)), settings).state
        state = fresh if state is None else learner.join(learner.advance(state, 7), fresh)
        state = learner.unpack(learner.pack(state))
        alone = forecast(clean(known), learner, state, 7)
        np.testing.assert_allclose(forecast_then.point, alone.point, rtol=1e-6)
        np.testing.assert_allclose(forecast_then.quantiles, alone.quantiles, rtol=1e-6)


def test_a_forecast_knows_which_releases_came_before_it(panel: CasePanel, tmp_path: Path) -> None:
    """A finer backtest in the same directory does not take over forecasts of the coarser one."""
    settings = trend(epsilon=math.inf)
    seldom, often = (origins_between(FIRST, LAST, every, panel, 7) for every in (14, 7))
    run_backtest(panel, settings, seldom, tmp_path / "a", workers=1)
    after = run_backtest(panel, settings, often, tmp_path / "a", workers=1)
    fresh = run_backtest(panel, settings, often, tmp_path / "b", workers=1)
    assert after.table.equals(fresh.table)


def test_the_summary_is_the_table_and_the_budget_is_composed(
    panel: CasePanel, tmp_path: Path
) -> None:
    origins = origins_between(FIRST, LAST, 7, panel, 7)
    settings = trend(epsilon=1.0)
    result = run_backtest(panel, settings, origins, tmp_path, workers=1)
    table, summary = result.table, result.summary()
    truth = table["truth"].to_numpy()
    expected = np.abs(table["point"] - truth).sum() / np.abs(table["persistence"] - truth).sum()
    assert summary["mae_ratio"] == pytest.approx(expected)
    low, high = (table[f"{side}_95"].to_numpy() for side in ("lower", "upper"))
    assert summary["coverage_95"] == pytest.approx(((low <= truth) & (truth <= high)).mean())
    assert summary["worst_month_mae_ratio"] == max(result.by_month()["mae_ratio"])
    week = (origins[0] - panel.start).days
    assert table["truth"][0] == pytest.approx(panel.counts[0, week + 1 : week + 8].mean())
    assert table["persistence"][0] == pytest.approx(panel.counts[0, week - 6 : week + 1].mean())
    noise = 3.7304
    rough = epsilon_of(training_event(1.0, noise, len(origins) + 1), 1e-5, "pld")
    assert summary["epsilon_total"] == pytest.approx(rough, rel=1e-3)
    result.write(tmp_path, panel)
    stored = json.loads((tmp_path / "backtest.json").read_text())
    assert stored["mae_ratio"] == summary["mae_ratio"]
    ahead = pl.read_parquet(tmp_path / "forecast.parquet")
    assert set(ahead["horizon"]) == {7, 14, 21, 28}
    assert ahead["origin_date"].unique().to_list() == [panel.end]
    newest = ahead.filter(horizon=7, level=0.5)["value"].to_numpy()
    assert (newest != panel.counts[:, -7:].mean(axis=1)).all()


def test_forecasts_after_a_public_holiday_have_scores_of_their_own(
    panel: CasePanel, tmp_path: Path
) -> None:
    before, christmas, epiphany = date(2020, 12, 15), date(2020, 12, 29), date(2021, 1, 12)
    bavarian = replace(panel, calendars=("DE-BY",) + ("",) * (len(panel.regions) - 1))
    days = [before, christmas, epiphany]
    result = run_backtest(bavarian, trend(), days, tmp_path, workers=1)
    found = result.after_holiday(bavarian)
    assert found is not None
    rows = result.table.filter(
        (pl.col("region") == panel.regions[0]) & pl.col("origin_date").is_in([christmas, epiphany])
    )
    off, like = (
        float(np.abs(rows[name].to_numpy() - rows["truth"].to_numpy()).sum())
        for name in ("point", "persistence")
    )
    assert found["mae_ratio"] == pytest.approx(off / like)
    assert result.after_holiday(panel) is None


def test_any_horizon_can_be_asked_for(panel: CasePanel, tmp_path: Path) -> None:
    for horizon in (1, 3, 28):
        origins = origins_between(FIRST, LAST, 14, panel, horizon)
        settings = trend(epsilon=math.inf, horizon=horizon)
        table = run_backtest(panel, settings, origins, tmp_path, workers=1).table
        gap = table["target_date"] - table["origin_date"]
        assert set(gap) == {timedelta(days=horizon)}
        assert np.isfinite(table["point"].to_numpy()).all()


def command(data: Path, out: Path, *more: str) -> list[str]:
    return ["backtest", "--data", str(data), "--from", "2020-11-03", "--to", "2020-12-08",
            "--out", str(out), "--workers", "1", *more]  # fmt: skip


@pytest.fixture(scope="module")
def file(panel: CasePanel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "cases.csv"
    panel.to_long().rename({"day": "date"}).write_csv(path)
    return path


def test_the_command_prints_the_keys_that_were_promised(file: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, command(file, tmp_path / "out", "--json", "--epsilon", "0.1"))
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert {"mae_ratio", "wis_ratio", "coverage_50", "coverage_95", "worst_month_mae_ratio",
            "epsilon_per_release", "epsilon_total"} <= found.keys()  # fmt: skip
    assert found["epsilon_per_release"] == 0.1
    assert 0.1 < found["epsilon_total"] < 0.5
    assert found["learner"] == "trend"


def test_the_command_reads_well_without_json(file: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, command(file, tmp_path / "out", "--epsilon", "inf"))
    assert result.exit_code == 0, result.output
    assert "no differential privacy (ε = ∞)" in result.stdout
    assert "worst month" in result.stdout


SAID = 'learner = "trend"\nepsilon = 0.3\nhorizon = 14\n'


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), ("trend", 0.3, 14)),
        (("--epsilon", "0.5"), ("trend", 0.5, 14)),
        (("--horizon", "3"), ("trend", 0.3, 3)),
        (("--learner", "one-shot"), ("one-shot", 0.3, 14)),
        (("--learner", "trend", "--epsilon", "inf", "--horizon", "7"), ("trend", math.inf, 7)),
    ],
    ids=lambda value: " ".join(map(str, value)),
)
def test_a_file_is_obeyed_and_an_option_given_wins_over_it(
    file: Path, tmp_path: Path, options: tuple[str, ...], expected: tuple[str, float, int]
) -> None:
    said = tmp_path / "said.toml"
    said.write_text(SAID)
    arguments = command(file, tmp_path / "out", "--settings", str(said), "--json", *options)
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["learner"], float(found["epsilon_per_release"]), found["horizon"]) == expected
    stored = read_settings(tmp_path / "out" / "settings.toml")
    assert (stored.learner, stored.epsilon, stored.horizon) == expected
    assert (stored.rounds, stored.clients_per_round) == (1, 40)
    table = pl.read_parquet(tmp_path / "out" / "backtest.parquet")
    assert set(table["target_date"] - table["origin_date"]) == {timedelta(days=expected[2])}


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (("--epsilon", "0"), "--epsilon: found '0'; expected a number above 0: try 1"),
        (("--learner", "magic"), "learner: found 'magic'; expected one of"),
        (("--from", "2019-01-01"), "expected origins from 2019-01-01"),
        (("--holidays", "XX"), "holidays: found 'XX'; expected a code such as DE"),
    ],
)
def test_a_mistake_is_one_sentence(
    file: Path, tmp_path: Path, more: tuple[str, str], sentence: str
) -> None:
    arguments = [*command(file, tmp_path / "out")]
    name, value = more
    at = arguments.index(name) if name in arguments else len(arguments)
    arguments[at : at + 2] = [name, value]
    result = CliRunner().invoke(app, arguments)
    assert sentence in str(result.exception)
    assert not (tmp_path / "out" / "backtest.json").exists()


@pytest.mark.field
def test_real_counties_beat_like_today_at_a_tenth(real_data: Path, tmp_path: Path) -> None:
    """Four months of the promise in docs/small-epsilon.md; the whole of it takes a minute."""
    arguments = ["backtest", "--data", str(real_data), "--from", "2021-10-05", "--to", "2022-02-01",
                 "--epsilon", "0.1", "--out", str(tmp_path), "--json"]  # fmt: skip
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["mae_ratio"] < 0.9
    assert found["wis_ratio"] < 0.9
    assert abs(found["coverage_50"] - 0.5) < 0.08
    assert abs(found["coverage_95"] - 0.95) < 0.06


def test_a_metric_that_is_registered_is_in_the_record(
    panel: CasePanel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worst = Metric("worst", "Worst", "", "lower", lambda pairs: float(np.abs(pairs.error).max()))
    monkeypatch.setitem(METRICS, "worst", worst)
    tested = run_backtest(panel, trend(), origins_between(FIRST, LAST, 7, panel, 7), tmp_path)
    error = (tested.table["point"] - tested.table["truth"]).abs()
    values = tested.record().metrics
    assert values["worst"] == pytest.approx(error.max())
    assert values["mae"] == pytest.approx(error.mean())
    assert values["mase"] == pytest.approx(tested.record().mae_ratio)
    assert all(value is None for value in metrics_of(tested.table.head(0)).values())
