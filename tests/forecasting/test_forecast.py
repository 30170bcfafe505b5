"""One authority: a release file and its own cases in, a forecast out; and the hub's layout."""

import json
import math
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hubdata import connect_hub
from typer.testing import CliRunner

from epifed.cli.app import app
from epifed.data.panel import CasePanel
from epifed.data.quality import clean
from epifed.errors import EpifedError
from epifed.forecasting import forecast
from epifed.hubs.submission import TARGET, write_hub
from epifed.intervals import LEVELS
from epifed.learners.base import make_learner
from epifed.learners.trend import Trend
from epifed.privacy.plan import PrivacyPlan
from epifed.settings import Settings, seed_sequence
from epifed.training.release import Release, read_release

DAYS = 120


def cases(regions: int = 12, days: int = DAYS, growth: float = 0.02) -> CasePanel:
    rng = np.random.default_rng(3)
    week = np.array([1.2, 1.3, 1.2, 1.1, 0.9, 0.7, 0.6])[np.arange(days) % 7]
    level = np.linspace(20, 400, regions)[:, None] * np.exp(growth * np.arange(days)) * week
    return CasePanel(
        rng.poisson(level).astype(float),
        tuple(f"{i:05d}" for i in range(regions)),
        date(2021, 1, 4),
    )


def csv(panel: CasePanel, path: Path) -> Path:
    panel.to_long().rename({"day": "date"}).write_csv(path)
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    path = folder / "trend.epifed"
    data = csv(cases(), folder / "all.csv")
    arguments = ["train", "--data", str(data), "--learner", "trend", "--epsilon", "100",
                 "--seeded", "--out", str(path)]  # fmt: skip
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return path


def test_days_of_the_target_week_that_have_come_are_certain() -> None:
    panel = cases()
    learner = Trend(Settings.resolve(12, {"learner": "trend"}))
    state = learner.start(seed_sequence(0))
    for horizon in (1, 4):
        made = forecast(clean(panel), learner, state, horizon)
        came = panel.counts[:, horizon - 7 :].sum(axis=1) / 7
        assert (made.quantiles[:, 0] > came).all()
        assert made.quantiles[:, LEVELS.index(0.5)] == pytest.approx(made.point)
    # A day is forecast about as well whatever weekday it is, in proportion to its own cases.
    widths = []
    for days in range(DAYS - 7, DAYS):
        made = forecast(clean(panel.between(panel.start, panel.day(days))), learner, state, 1)
        ahead = made.point - panel.counts[:, days - 5 : days + 1].sum(axis=1) / 7
        spread = np.sqrt(made.quantiles[:, -1]) - np.sqrt(made.quantiles[:, 0])
        widths.append(float((spread * np.sqrt(made.point) / ahead)[-1]))
    assert max(widths) < 1.3 * min(widths)


def test_forecasts_before_the_first_release_are_known_as_such() -> None:
    learner = Trend(Settings.resolve(12, {"learner": "trend"}))
    state = learner.start(seed_sequence(0))
    assert learner.informed(state) == 0
    said = learner.step(state, np.zeros(2, dtype=np.float32), 0.01)
    assert learner.informed(learner.advance(said, 9)) == 9
    later = learner.step(learner.advance(said, 7), np.zeros(2, dtype=np.float32), 0.01)
    assert learner.informed(later) == 7


def test_one_authority_gets_a_forecast_with_intervals_and_a_figure(
    model: Path, tmp_path: Path
) -> None:
    panel = cases()
    own = CasePanel(panel.counts[5:6], panel.regions[5:6], panel.start)
    result = CliRunner().invoke(
        app,
        ["forecast", str(model), "--data", str(csv(own, tmp_path / "own.csv")), "--out",
         str(tmp_path / "out"), "--horizon", "7", "--horizon", "14", "--json"],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert "SEEDED" in found["release"]
    assert "Not verified" in found["verification"]
    table = pl.DataFrame(found["forecast"])
    assert len(table) == 2 * len(LEVELS)
    now = panel.counts[5, -7:].mean()
    week, fortnight = (
        table.filter((pl.col("level") == 0.5) & (pl.col("horizon") == h))["value"][0]
        for h in (7, 14)
    )
    assert now < week < fortnight < 1.5 * now
    parts = pl.DataFrame(found["parts"])
    assert parts.equals(pl.read_parquet(tmp_path / "out" / "parts.parquet"))
    assert parts["region"].to_list() == ["00005", "00005"]
    change = parts.select(pl.sum_horizontal("country", "place", "own", "calendar", "reports"))
    assert change.to_series().to_list() == pytest.approx(
        [math.log(week / now), math.log(fortnight / now)], abs=0.02
    )
    assert (tmp_path / "out" / "00005.png").stat().st_size > 10_000


def test_a_national_office_forecasts_its_states_in_the_weeks_of_a_hub(
    model: Path, tmp_path: Path
) -> None:
    panel = replace(cases(4), states=("East", "West", "West", "East"))
    panel.to_table().write_csv(tmp_path / "own.csv")
    hub, weeks = tmp_path / "hub", ["--week-ends", "sunday", "--ahead", "1", "--ahead", "2"]
    asked = ["--level", "state", "--level", "nation", "--hub", str(hub), "--json", *weeks]
    result = CliRunner().invoke(
        app,
        ["forecast", str(model), "--data", str(tmp_path / "own.csv"), "--out",
         str(tmp_path / "out"), *asked],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    levels = pl.read_parquet(tmp_path / "out" / "levels.parquet")
    assert set(levels["target_date"].dt.weekday()) == {7}
    assert levels["reference_date"].unique().to_list() == [panel.end + timedelta(days=1)]
    assert json.loads(result.stdout)["levels"][0]["level"] == "state"
    points = levels.filter((pl.col("quantile") == 0.5) & (pl.col("weeks_ahead") == 2))
    by_region = dict(points.select("region", "value").iter_rows())
    assert by_region["nation"] == pytest.approx(by_region["East"] + by_region["West"])
    (path,) = (hub / "model-output" / "epifed-trend").iterdir()
    written = pl.read_parquet(path)
    assert set(written["location"]) == {"East", "West", "nation"}
    assert "they are no private release" in result.stderr.replace("\n", " ")


def test_the_same_command_for_humans(model: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app,
        ["forecast", str(model), "--data", str(csv(cases(20), tmp_path / "own.csv")), "--out",
         str(tmp_path / "out")],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "persistence" in result.stdout
    assert "shared" in result.stdout and "place" in result.stdout
    assert "SEEDED" in result.stdout
    assert "shown: the first 12 of 20 regions" in " ".join(result.stderr.split())


def test_a_backlog_is_named_and_not_carried_on(model: Path, tmp_path: Path) -> None:
    panel = cases(2)
    counts = panel.counts.copy()
    counts[1, -3] += 40_000
    for name, one in (("as it was", panel), ("dumped", replace(panel, counts=counts))):
        result = CliRunner().invoke(
            app,
            ["forecast", str(model), "--data", str(csv(one, tmp_path / f"{name}.csv")), "--out",
             str(tmp_path / name), "--json"],
        )  # fmt: skip
        assert result.exit_code == 0, result.output
    (found,) = json.loads(result.stdout)["anomalies"]
    assert (found["region"], found["kind"]) == ("00001", "backlog")
    assert found["reported"] > 40_000 > 10 * found["expected"]
    assert "00001 on 2021-05-01" in " ".join(result.stderr.split())
    kept = pl.read_parquet(tmp_path / "dumped" / "anomalies.parquet")
    assert len(kept) == 1
    before, after = (
        pl.read_parquet(tmp_path / name / "forecast.parquet")["value"].to_numpy()
        for name in ("as it was", "dumped")
    )
    np.testing.assert_allclose(after, before, rtol=0.15)


def test_short_or_old_cases_are_refused(model: Path, tmp_path: Path) -> None:
    short = cases(1, DAYS)
    short = CasePanel(short.counts[:, -27:], short.regions, date(2021, 4, 7))
    result = CliRunner().invoke(
        app, ["forecast", str(model), "--data", str(csv(short, tmp_path / "short.csv")),
              "--out", str(tmp_path / "out")],
    )  # fmt: skip
    assert "found 27 days of cases, enough for 7 past errors 7 days ahead" in str(result.exception)
    old = cases(1, DAYS - 10)
    result = CliRunner().invoke(
        app, ["forecast", str(model), "--data", str(csv(old, tmp_path / "old.csv")),
              "--out", str(tmp_path / "out")],
    )  # fmt: skip
    assert "expected cases up to that day at least" in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_a_stale_model_is_named(model: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app, ["forecast", str(model), "--data", str(csv(cases(1, DAYS + 9), tmp_path / "c.csv")),
              "--out", str(tmp_path / "out")],
    )  # fmt: skip
    assert result.exit_code == 0
    assert "9 days before the last day of the data" in " ".join(result.stderr.split())


def test_a_training_continues_what_an_earlier_one_knew(model: Path, tmp_path: Path) -> None:
    data = csv(cases(days=DAYS + 7), tmp_path / "later.csv")
    arguments = ["train", "--data", str(data), "--learner", "trend", "--epsilon", "100",
                 "--seeded", "--continue", str(model),
                 "--out", str(tmp_path / "m")]  # fmt: skip
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    learner = read_release(model).learner
    before, after = (learner.unpack(read_release(m).vector) for m in (model, tmp_path / "m"))
    assert (after.values[7] == before.values[0]).all()
    assert (np.flatnonzero(after.precision[:, 0]) == [0, 7]).all()
    wrong = ["one-shot" if word == "trend" else word for word in arguments]
    assert "--continue: found a release of trend" in str(CliRunner().invoke(app, wrong).exception)


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ({"model": "linear"}, {"model": "scale-free linear"}),
        ({"model": "gru"}, {"model": "gru", "window": 14}),
    ],
    ids=["model", "window"],
)
def test_a_training_continues_nothing_of_another_kind_though_it_is_as_long(
    earlier: dict[str, object], later: dict[str, object]
) -> None:
    one, other = (Settings.for_learner("fedavg", 12, **values) for values in (earlier, later))
    release = released(one)
    assert len(release.vector) == make_learner(other).pack_length()
    release.as_of(one, release.last_day)
    with pytest.raises(EpifedError, match="--continue: found a release of fedavg of the model"):
        release.as_of(other, release.last_day)


def released(settings: Settings) -> Release:
    learner = make_learner(settings)
    state, plan = learner.start(seed_sequence(0)), PrivacyPlan.of(settings, 12)
    period = (date(2021, 1, 4), date(2021, 5, 3))
    return Release.of(
        learner, state, plan, paid=plan.rounds, period=period, randomness="seeded", ledger_run=None
    )


def test_a_file_that_names_a_learner_alone_gives_what_suits_it(tmp_path: Path) -> None:
    settings, out = tmp_path / "trend.toml", tmp_path / "trend.epifed"
    settings.write_text('learner = "trend"\n')
    data = csv(cases(), tmp_path / "all.csv")
    arguments = ["train", "--data", str(data), "--settings", str(settings), "--seeded",
                 "--out", str(out)]  # fmt: skip
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    release = read_release(out)
    assert release.settings == Settings.for_learner("trend", 12)
    assert (release.settings.rounds, release.settings.clients_per_round) == (1, 12)
    assert (release.first_day, release.last_day) == (cases().start, cases().end)


def test_a_learner_with_one_horizon_refuses_another() -> None:
    learner = make_learner(Settings.for_learner("fedavg", 12))
    state = learner.start(seed_sequence(0))
    with pytest.raises(EpifedError, match="found 14 days; expected 7, the one that the 'fedavg'"):
        forecast(clean(cases()), learner, state, 14)
    with pytest.raises(EpifedError, match="found 29 days; expected 1 to 28"):
        forecast(clean(cases()), learner, state, 29)


def test_a_hub_reads_what_was_written(tmp_path: Path) -> None:
    panel = cases()
    learner = Trend(Settings.for_learner("trend", 12))
    nothing = learner.start(seed_sequence(0))
    state = learner.step(nothing, np.full(2, 0.1, dtype=np.float32), 0.01)
    made = [forecast(clean(panel), learner, state, days) for days in (7, 14)]
    (path,) = write_hub(made, tmp_path, "health_office-trend")
    assert path.name == f"{panel.end}-health_office-trend.parquet"
    hub = connect_hub(str(tmp_path))
    table = pl.from_arrow(hub.get_dataset().to_table())
    assert isinstance(table, pl.DataFrame)
    assert len(table) == 2 * 12 * len(LEVELS)
    assert set(table.columns) == {"reference_date", "target", "horizon", "target_end_date",
                                  "location", "output_type", "output_type_id", "value",
                                  "model_id"}  # fmt: skip
    assert table["model_id"].unique().to_list() == ["health_office-trend"]
    assert table["target"].unique().to_list() == [TARGET]
    assert sorted(table["horizon"].unique()) == [1, 2]
    assert sorted(table["output_type_id"].unique()) == list(LEVELS)
    median = table.filter(
        (pl.col("location") == "00003")
        & (pl.col("horizon") == 1)
        & (pl.col("output_type_id") == 0.5)
    )
    assert median["value"][0] == pytest.approx(7 * made[0].point[3])
    assert median["reference_date"][0] == panel.end
    assert median["target_end_date"][0] == panel.end + timedelta(days=7)


def test_a_hub_takes_whole_weeks_and_proper_names_only(tmp_path: Path) -> None:
    learner = Trend(Settings.for_learner("trend", 12))
    made = [forecast(clean(cases()), learner, learner.start(seed_sequence(0)), 10)]
    with pytest.raises(EpifedError, match="found 10 days; expected whole weeks"):
        write_hub(made, tmp_path / "hub", "team-model")
    with pytest.raises(EpifedError, match="expected team-model"):
        write_hub(made, tmp_path / "hub", "../evil")
    assert not (tmp_path / "hub").exists()
