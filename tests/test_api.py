"""The Python façade, as a researcher uses it: on a panel, in a few lines, with own learners."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import epifed
from epifed.learners.base import Floats, Vector, Windows
from epifed.ledger.budget import Cap
from epifed.privacy.accounting import spent
from epifed.testing import check_learner, example_panel
from tests.late_lists import late_list


@pytest.fixture(scope="module")
def panel() -> epifed.CasePanel:
    return example_panel(regions=12, days=120)


def test_every_name_is_there_and_completes() -> None:
    assert set(epifed.__all__) == set(dir(epifed))
    for name in epifed.__all__:
        assert getattr(epifed, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        epifed.nothing  # noqa: B018


def test_train_forecast_and_backtest_in_one_call_each(panel: epifed.CasePanel) -> None:
    training = epifed.train(panel, learner="trend", epsilon=1.0)
    assert repr(training).startswith("Training(trend, (ε = 1, δ = 1e-05)")
    made = epifed.forecast(training, panel, horizon=(7, 14))
    assert_frame_equal(pl.from_pandas(made.to_pandas()), made.to_polars(), check_dtypes=False)
    assert made.to_polars()["horizon"].unique().sort().to_list() == [7, 14]
    assert made.wide()["region"].n_unique() == 12
    later = epifed.forecast(training, panel, learned_until=panel.end - timedelta(days=30))
    assert (
        later.to_polars().filter(level=0.5)["value"].to_list()
        != made.to_polars().filter(level=0.5, horizon=7)["value"].to_list()
    )
    first = panel.end - timedelta(days=28)
    tested = epifed.backtest(panel, str(first), str(panel.end), epsilon=2.0)
    assert tested.summary()["epsilon_per_release"] == 2.0
    assert tested.settings.learner == "trend"
    assert len(tested.table) == 12 * len(tested.forecasts)


@pytest.mark.parametrize("library", ["polars", "pandas"])
def test_dataframes_are_taken_wherever_a_panel_is(panel: epifed.CasePanel, library: str) -> None:
    long = panel.to_table()
    frame = long if library == "polars" else long.to_pandas()
    training = epifed.train(frame, learner="trend", epsilon=1.0)
    made = epifed.forecast(training, frame, horizon=7)
    loaded = epifed.load_panel(long)
    expected = epifed.forecast(epifed.train(loaded, training.settings), loaded)
    assert_frame_equal(made.to_polars(), expected.to_polars())
    first = panel.end - timedelta(days=14)
    assert len(epifed.backtest(frame, first, panel.end, epsilon=1.0).table) == 24


def test_a_forecast_is_a_table_of_people_and_a_figure(panel: epifed.CasePanel) -> None:
    made = epifed.forecast(epifed.train(panel, learner="trend"), panel, horizon=(7, 14))
    wide = made.wide()
    assert wide.columns[-6:] == [
        "like_today", "forecast", "lower_95", "lower_50", "upper_50", "upper_95"
    ]  # fmt: skip
    assert (wide["lower_95"] <= wide["forecast"]).all()
    assert len(made.plot(panel.regions[3]).axes) == 1
    assert made.plot().axes[0].get_title("left").endswith(f"forecast made on {panel.end}")
    with pytest.raises(epifed.EpifedError, match="region: found 'nowhere'; expected one of"):
        made.plot("nowhere")


def test_plot_and_save_say_what_they_take(panel: epifed.CasePanel, tmp_path: Path) -> None:
    training = epifed.train(panel, learner="trend", epsilon=1.0)
    made = epifed.forecast(training, panel)
    with pytest.raises(epifed.EpifedError, match="expected a Training and the Clients"):
        epifed.plot(made, panel)  # type: ignore[arg-type]
    settings = epifed.Settings.for_learner("one-shot", 12, epsilon=1.0)
    experiment = epifed.train(epifed.make_clients(panel, settings), settings)
    with pytest.raises(epifed.EpifedError, match="save: found a training of an experiment"):
        experiment.save(tmp_path / "none.epifed")


def test_levels_and_the_weeks_of_hubs_are_asked_for_by_name(panel: epifed.CasePanel) -> None:
    states = tuple("AB"[row % 2] for row in range(12))
    panel = replace(panel, states=states)
    training = epifed.train(panel, learner="trend", epsilon=1.0)
    made = epifed.forecast(
        training, panel, level=["state", "nation"], week_ends="saturday", ahead=(1, 2)
    ).to_polars()
    assert set(made["level"]) == {"state", "nation"}
    assert made["quantile"].n_unique() == 23
    assert set(made["region"]) == {"A", "B", "nation"}
    assert {day.isoweekday() for day in made["target_date"]} == {6}
    assert set(made["weeks_ahead"]) == {1, 2}
    plain = epifed.forecast(training, panel, level="nation").to_polars()
    assert plain["horizon"].unique().to_list() == [7]
    assert plain["weeks_ahead"].null_count() == len(plain)
    first = panel.end - timedelta(days=28)
    tested = epifed.backtest(
        panel, first, panel.end, epsilon=2.0, level="nation", week_ends="sunday", ahead=1
    )
    assert tested.levels is not None
    long = tested.levels.to_long()
    assert set(long["level"]) == {"nation"}
    assert long["value"].sum() == pytest.approx(
        sum(f.quantiles.sum() for f in tested.levels.forecasts)
    )
    assert tested.levels.summary()[0]["weeks_ahead"] == 1
    with pytest.raises(epifed.EpifedError, match="expected --week-ends with it"):
        epifed.forecast(training, panel, ahead=1)


@pytest.mark.parametrize("library", ["polars", "pandas"])
def test_published_totals_are_a_frame(panel: epifed.CasePanel, library: str) -> None:
    training = epifed.train(panel, learner="trend", epsilon=1.0)
    days = [panel.start + timedelta(days=day) for day in range(panel.counts.shape[1])]
    counts = 2 * panel.counts.sum(axis=0)
    totals = pl.DataFrame({"date": days, "location": "nation", "value": counts})
    frame = totals if library == "polars" else totals.to_pandas()
    summed = epifed.forecast(training, panel, level="nation").to_polars().filter(quantile=0.5)
    larger = epifed.forecast(training, panel, level="nation", published=frame).to_polars()
    published = larger.filter(quantile=0.5)
    assert published["value"][0] == pytest.approx(2 * summed["value"][0], rel=0.05)


def test_weeks_of_a_weekly_panel_are_counted_from_the_reference_day() -> None:
    panel = example_panel(regions=6, days=7 * 40).weekly()
    training = epifed.train(panel, learner="trend", epsilon=1.0)
    ends = panel.end.strftime("%A").lower()
    made = epifed.forecast(training, panel, reference_day=ends, ahead=(0, 3)).to_polars()
    dates = (
        made.select("weeks_ahead", "horizon", "reference_date", "target_date")
        .unique()
        .sort("horizon")
    )
    week = timedelta(weeks=1)
    assert dates.rows() == [
        (0, 1, panel.end + week, panel.end + week),
        (3, 4, panel.end + week, panel.end + 4 * week),
    ]
    plain = epifed.forecast(training, panel, horizon=(1, 4)).to_polars()
    assert made["value"].to_list() == pytest.approx(plain["value"].to_list())
    with pytest.raises(epifed.EpifedError, match="that end on a"):
        epifed.forecast(training, panel, week_ends="sunday" if ends != "sunday" else "monday")


def test_a_backtest_with_vintages_is_that_of_the_mornings() -> None:
    panel, late = late_list(regions=6)
    last = panel.end - timedelta(days=7)
    first = last - timedelta(days=6)
    tested = epifed.backtest(panel, str(first), str(last), every=3, vintages=late, epsilon=1.0)
    assert tested.real_time
    assert tested.settings.learner == "real-time"
    assert [one.origin for one in tested.forecasts] == [
        first + timedelta(days=days - 1) for days in (0, 3, 6)
    ]
    assert tested.nowcast is not None
    assert tested.nowcast["date"].max() == tested.forecasts[-1].origin
    assert tested.nowcast["as_of"].unique().to_list() == [last]


def test_days_may_be_text_and_settings_may_be_changed(panel: epifed.CasePanel) -> None:
    settings = epifed.Settings.for_learner("trend", 12, epsilon=1.0)
    first, last = str(panel.start), str(panel.end - timedelta(days=10))
    training = epifed.train(panel, settings, period=(first, last), epsilon=3.0)
    assert training.settings.epsilon == 3.0
    assert training.release is not None
    assert str(training.release.last_day) == last
    with pytest.raises(epifed.EpifedError, match="period: found 'yesterday'"):
        epifed.train(panel, settings, period=(first, "yesterday"))


def test_a_paid_training_is_read_back_and_forecasts(
    panel: epifed.CasePanel, tmp_path: Path
) -> None:
    ledger = epifed.Ledger.create(tmp_path / "b.ledger", Cap(2.0, 1e-5, "pld"))
    days = panel.start, panel.end
    training = epifed.train(
        panel, learner="trend", epsilon=1.0, ledger=ledger, period=days, regions=panel.regions
    )
    assert training.release is not None
    training.save(tmp_path / "week.epifed")
    release = epifed.read_release(tmp_path / "week.epifed")
    assert release.verified_by(ledger)
    read, made = epifed.forecast(release, panel), epifed.forecast(training, panel)
    assert_frame_equal(read.to_polars(), made.to_polars())


def test_an_experiment_keeps_windows_back(panel: epifed.CasePanel) -> None:
    settings = epifed.Settings.for_learner("one-shot", 12, epsilon=1.0)
    clients = epifed.make_clients(panel, settings)
    assert repr(clients) == "Clients(12 clients, 93 windows to train and 11 to test each)"
    scores = epifed.score(epifed.train(clients, settings), clients)
    assert set(scores["method"]) == {"one-shot", "persistence"}


class WeeklyChange(epifed.WindowLearner[Vector]):
    """How much a window's last value differs from the value a week later, on average."""

    name = "weekly-change"

    def start(self, seeds: np.random.SeedSequence) -> Vector:
        return np.zeros(1, dtype=np.float32)

    def contribute(self, state: Vector, view: Windows) -> Vector:
        last = view.inputs[..., -1]
        change = np.log((view.targets + 1) / (last + 1)).clip(-1, 1)
        return np.asarray(change.mean(axis=1, keepdims=True, where=view.mask), dtype=np.float32)

    def step(self, state: Vector, release: Vector, noise_std: float) -> Vector:
        return release

    def predict(self, state: Vector, inputs: Vector) -> Floats:
        return np.asarray(
            inputs[..., -1] * np.exp(float(np.clip(state[0], -1, 1))), dtype=np.float64
        )

    def pack(self, state: Vector) -> Vector:
        return state

    def unpack(self, vector: Vector) -> Vector:
        self.refuse_length(vector, 1)
        return vector


def test_an_own_learner_keeps_the_rules_and_is_trained(panel: epifed.CasePanel) -> None:
    check_learner(WeeklyChange, rounds=1)
    with epifed.LEARNERS.using("weekly-change", WeeklyChange):
        training = epifed.train(
            panel, learner="weekly-change", rounds=1, clients_per_round=12, epsilon=2.0
        )
    assert training.vector.shape == (1,)
    assert training.calibration.epsilon_spent == pytest.approx(2.0, rel=1e-4)
    assert spent(training.plan.noise_multiplier, 1.0, 1, 1e-5) <= 2.0


def test_an_own_network_is_trained(panel: epifed.CasePanel) -> None:
    nn = pytest.importorskip("torch").nn

    def make(window: int) -> object:
        return nn.Sequential(nn.Linear(window, 4), nn.Tanh(), nn.Linear(4, 1))

    with epifed.MODELS.using("tanh", make):
        training = epifed.train(panel, model="tanh", rounds=2, epochs=2, epsilon=5.0)
        assert training.vector.shape == (10 * 4 + 4 + 4 + 1,)
    with pytest.raises(epifed.EpifedError, match="model: found 'tanh'"):
        epifed.train(panel, model="tanh", rounds=2)


def test_a_training_without_settings_is_the_trend() -> None:
    panel = example_panel()
    assert epifed.train(panel).settings.learner == "trend"
    assert epifed.train(panel, model="linear", rounds=1).settings.learner == "fedavg"
