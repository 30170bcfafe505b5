"""The results folder: what is written is read again, and nothing else is taken for it."""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from epifed.cli.app import app
from epifed.data.panel import CasePanel
from epifed.data.readers import load_panel
from epifed.errors import EpifedError
from epifed.evaluation.backtest import origins_between, run_backtest
from epifed.evaluation.experiment import Grid, run_grid
from epifed.evaluation.metrics import METRICS, Metric, Pairs, register
from epifed.evaluation.results_folder import DATA, read_folder, read_grid
from epifed.explain import explain
from epifed.privacy.accounting import epsilon_of, training_event
from epifed.report import tables
from epifed.report.html import write_report
from epifed.report.html.payload import payload
from epifed.settings import Settings
from epifed.simulate import SimulationSettings, simulate, simulation
from epifed.simulate.simulation import write
from tests.helpers import small_panel, small_settings

SIMULATED = SimulationSettings(counties=8, communities=20, seed=3, days=100)


def small_grid(panel: CasePanel, out: Path) -> None:
    grid = Grid(
        settings=small_settings(rounds=2, epochs=1),
        splits=("temporal",),
        periods={"late": (panel.day(panel.counts.shape[1] - 38), panel.end)},
        epsilons=(2.0, math.inf),
        runs=1,
        baselines=("persistence",),
    )
    run_grid(panel, grid, out, workers=1)


def small_backtest(panel: CasePanel, out: Path) -> None:
    settings = Settings.for_learner("trend", len(panel.regions), epsilon=1.0)
    origins = origins_between(panel.day(70), panel.end, 7, panel, 7)
    run_backtest(panel, settings, origins, out, workers=1).write(out, panel)


@pytest.fixture(scope="module")
def country(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("country") / "data"
    write(simulate(SIMULATED), folder)
    return folder


@pytest.fixture(scope="module")
def both(country: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A grid with a backtest of a shorter stretch of the same days within."""
    out = tmp_path_factory.mktemp("both")
    panel = load_panel(country)
    small_grid(panel, out)
    small_backtest(panel.between(panel.start, panel.day(90)), out / "backtest")
    return out


def test_the_manifest_says_in_fields_what_prose_said(both: Path, country: Path) -> None:
    folder = read_folder(both)
    about = folder.manifest
    assert (about.kind, about.randomness, about.format) == ("grid", "seeded", 2)
    assert about.data.simulated == SIMULATED
    assert about.grid is not None and about.grid.epsilons == (2.0, math.inf)
    assert about.settings_sha256 == folder.settings.digest()
    assert folder.seeded
    panel = load_panel(country)
    assert (about.data.first_day, about.data.last_day) == (panel.start, panel.end)
    written = json.loads((both / "manifest.json").read_text())
    assert "noise" not in written
    assert written["data"]["simulated"]["seed"] == 3


def test_a_backtest_within_has_a_manifest_of_its_own(both: Path, country: Path) -> None:
    folder = read_folder(both)
    assert folder.beside is not None and folder.beside.manifest.kind == "backtest"
    assert folder.backtest is not None and folder.backtest is folder.beside.backtest
    assert folder.beside.settings.learner == "trend"
    panel = load_panel(country)
    # It saw fewer days of the same data, which is not other data.
    assert folder.manifest.data.is_of(panel) and folder.beside.manifest.data.is_of(panel)
    assert not folder.manifest.data.is_of(replace(panel, counts=panel.counts + 1))
    assert not folder.manifest.data.is_of(panel.between(panel.day(1), panel.end))
    found = payload(folder, panel, groups={}, title=None, ledger=None)
    assert folder.backtest.parts is not None
    kept = folder.backtest.parts.filter(horizon=7).row(0, named=True)
    at = found["regions"]["ids"].index(kept["region"])
    shown = [part[at][0] for part in found["forecast"]["parts"]]
    assert shown == pytest.approx(
        [kept[name] for name in ("country", "place", "own", "calendar", "reports")], abs=6e-4
    )
    assert found["same_data"] and found["simulated"] and found["seeded"]


def test_a_backtest_is_explained_as_its_record_prices_it(both: Path) -> None:
    found = explain(both / "backtest")
    record = json.loads((both / "backtest" / "backtest.json").read_text())
    assert found.trainings == found.private_trainings == record["releases"]
    (budget,) = found.budgets
    assert budget.error_over_persistence == record["mae_ratio"]
    assert found.composed_epsilon == pytest.approx(record["epsilon_total"])
    one = epsilon_of(training_event(1.0, budget.spent.noise_multiplier, 1), found.delta, "pld")
    assert budget.epsilon_spent == pytest.approx(one, rel=1e-3)
    assert "NOT for release" in " ".join(found.sentences())
    done = CliRunner().invoke(app, ["explain", str(both / "backtest")])
    assert done.exit_code == 0 and f"{record['releases']} trainings with 8 clients" in done.stdout
    whole = explain(both).sentences()
    assert any(f"{record['releases']} further trainings of the learner trend" in s for s in whole)


def test_a_folder_of_an_earlier_version_is_refused_with_what_to_do(
    both: Path, tmp_path: Path
) -> None:
    old = {"epifed": "0.1", "noise": "seeded generator: a simulation, not a release"}
    (tmp_path / "manifest.json").write_text(json.dumps(old))
    for read in (read_folder, read_grid, explain, lambda p: write_report(p, p / "r.html")):
        with pytest.raises(EpifedError, match=r"another version .* the same --out again"):
            read(tmp_path)
    small_grid(small_panel(), tmp_path)
    assert read_folder(tmp_path).manifest.kind == "grid"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda p: (p / "settings.toml").write_text("seed = 1\n"), "found other settings"),
        (lambda p: (p / "runs.parquet").unlink(), r"runs\.parquet: cannot be read"),
        (lambda p: (p / "manifest.json").write_text("["), "expected JSON"),
        (lambda p: (p / "manifest.json").write_text("[" * 100_000), "expected JSON"),
        (lambda p: (p / "manifest.json").unlink(), "found no results"),
        (
            lambda p: pl.DataFrame({"a": [1]}).write_parquet(p / "predictions.parquet"),
            "found no column 'split'",
        ),
    ],
)
def test_a_damaged_folder_is_refused(
    change: Callable[[Path], object], words: str, tmp_path: Path
) -> None:
    small_grid(small_panel(), tmp_path)
    change(tmp_path)
    with pytest.raises(EpifedError, match=words):
        read_folder(tmp_path)


def test_results_are_not_written_over_those_of_another_kind(both: Path, tmp_path: Path) -> None:
    panel = small_panel(days=100)
    with pytest.raises(EpifedError, match="found the results of a grid; expected a new directory"):
        small_backtest(panel, both)
    with pytest.raises(EpifedError, match="found the results of a backtest"):
        small_grid(panel, both / "backtest")
    with pytest.raises(EpifedError, match="found the results of a backtest; expected a directory"):
        read_grid(both / "backtest")
    assert read_folder(both).manifest.data.simulated == SIMULATED


def test_data_kept_with_simulated_results_is_not_simulated_again(
    both: Path, country: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("simulated again")

    kept = tmp_path / "kept"
    small_grid(load_panel(country), kept)
    monkeypatch.setattr("epifed.report.maps.simulate", refuse)
    with pytest.raises(AssertionError, match="simulated again"):
        write_report(kept, tmp_path / "r.html")
    (kept / DATA).symlink_to(country)
    write_report(kept, tmp_path / "r.html")
    out = str(tmp_path / "figures")
    monkeypatch.setattr("epifed.paper.Plan.write", lambda *_: iter(()))
    done = CliRunner().invoke(app, ["figures", str(kept), "--out", out, "--json"])
    assert json.loads(done.stdout)["left_out"] == {}
    # What lies there from another simulation is not taken for it.
    (kept / DATA).unlink()
    write(simulate(SIMULATED.model_copy(update={"seed": 4})), kept / DATA)
    assert read_folder(kept).data_folder is None


def test_run_simulates_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[SimulationSettings] = []
    real = simulation.simulate

    def counted(settings: SimulationSettings, *_: object) -> object:
        made.append(settings)
        return real(SIMULATED.model_copy(update={"seed": settings.seed}))

    monkeypatch.setattr(simulation, "simulate", counted)
    monkeypatch.setattr("epifed.report.maps.simulate", counted)
    (tmp_path / "s.toml").write_text(small_settings(rounds=1, epochs=1).to_toml())
    out = tmp_path / "out"
    done = CliRunner().invoke(
        app,
        ["run", "--out", str(out), "--settings", str(tmp_path / "s.toml"), "--epsilon", "2",
         "--runs", "1", "--workers", "1", "--seed", "5"],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert [settings.seed for settings in made] == [5]
    folder = read_folder(out)
    assert folder.data_folder == out / DATA
    assert folder.manifest.data.simulated == SIMULATED.model_copy(update={"seed": 5})
    assert '"map":{' in (out / "report.html").read_text()


def worst_error(pairs: Pairs) -> float:
    return float(np.abs(pairs.error).max())


@pytest.fixture
def worst() -> Iterator[Metric]:
    yield register(Metric("worst", "Worst error", "cases per day", "lower", worst_error))
    del METRICS["worst"]


def test_a_new_metric_is_one_entry_of_the_registry(tmp_path: Path, worst: Metric) -> None:
    small_grid(small_panel(), tmp_path)
    stored = read_grid(tmp_path)
    own = stored.results.predictions.filter(method="persistence")
    expected = (own["prediction"] - own["truth"]).abs().max()
    assert isinstance(expected, float)
    row = stored.results.runs.filter(method="persistence", stratum="all")
    assert row["worst"].to_list() == pytest.approx([expected])
    rows = tables.method_rows(stored.results.runs, "temporal", "late")
    text = tables.markdown(tables.method_header(), rows)
    assert "| Worst error |" in text.splitlines()[0]
    assert text.splitlines()[2].endswith(f"| {tables.number(expected)} |")
    found = payload(stored.folder, None, groups={}, title=None, ledger=None)
    (shown,) = [metric for metric in found["metrics"] if metric["key"] == "worst"]
    assert (shown["label"], shown["unit"]) == ("Worst error", "cases per day")
    assert found["grid"]["cells"][0]["rows"][0]["mean"]["worst"] == pytest.approx(expected, 1e-3)
    with pytest.raises(EpifedError, match="found the name 'worst'; expected a new one"):
        register(worst)


def test_results_from_before_a_metric_show_none_of_it(tmp_path: Path) -> None:
    small_grid(small_panel(), tmp_path)
    register(Metric("worst", "Worst error", "", "lower", worst_error))
    try:
        runs = read_grid(tmp_path).results.runs
        assert runs["worst"].is_null().all()
        assert tables.method_rows(runs, "temporal", "late")[0][-1] == "–"
    finally:
        del METRICS["worst"]


def test_dates_and_infinity_survive_the_file(both: Path) -> None:
    grid = read_grid(both)
    assert all(isinstance(day, date) for days in grid.grid.periods.values() for day in days)
    assert grid.epsilons == [2.0, math.inf]
    assert grid.cells == [("temporal", "late")]
