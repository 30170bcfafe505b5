"""The paper's experiments as `epifed reproduce` runs them: communities, clipping, clusters."""

import json
import math
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from epifed import app, paper
from epifed.errors import EpifedError
from epifed.evaluation.experiment import Grid, run_grid
from epifed.evaluation.metrics import CLIPPED, clipped_without_noise
from epifed.evaluation.results_folder import gather
from epifed.learners.base import make_learner
from epifed.privacy.plan import ClippedPlan
from epifed.report import html
from epifed.settings import read_settings, seed_sequence
from epifed.training.rounds import contribution
from tests.commands import epifed, refused
from tests.helpers import START, conforming, small_clients, small_panel, small_settings

COUNTIES = 6


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared directory of six counties with two communities each, November 2020."""
    folder = tmp_path_factory.mktemp("prepared")
    ids = [f"{i:05d}" for i in range(1, COUNTIES + 1)]
    days = [date(2020, 10, 1) + timedelta(days=i) for i in range(75)]
    rng = np.random.default_rng(5)
    cases = rng.poisson(30, size=(COUNTIES, len(days)))
    pl.DataFrame(
        {"date": days * COUNTIES, "county": np.repeat(ids, len(days)), "cases": cases.ravel()}
    ).write_parquet(folder / "county_cases.parquet")
    pl.DataFrame(
        {"county": ids, "name": [f"LK {i}" for i in ids], "state": "Hessen",
         "population_2020": [40_000, 60_000, 150_000, 300_000, 700_000, 90_000]}
    ).write_csv(folder / "counties.csv")  # fmt: skip
    pl.DataFrame(
        {"community": [f"{i}00{j}" for i in ids for j in (1, 2)],
         "name": [f"{i} {j}" for i in ids for j in (1, 2)],
         "county": [i for i in ids for _ in (1, 2)], "population": [10_000, 30_000] * COUNTIES}
    ).write_csv(folder / "communities.csv")  # fmt: skip
    return folder


QUICK = ("--runs", "1", "--rounds", "2", "--epsilon", "inf", "--period", "2020-11", "--workers",
         "1", "--json")  # fmt: skip


def test_communities_get_the_papers_settings_with_and_without_average(
    directory: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    done = epifed("reproduce", "--data", directory, "--out", out, "--level", "community", *QUICK)
    assert done.returncode == 0, done.stderr
    rows = conforming("reproduce", json.loads(done.stdout))
    assert {row["smoothing"] for row in rows} == {"centered", "none"}
    assert {row["split"] for row in rows} == {"temporal"}
    assert {row["method"] for row in rows} >= {"persistence", "zero", "county share", CLIPPED}
    for how in ("centered", "none"):
        settings = read_settings(out / how / "settings.toml")
        # A quarter of 12 communities a round; S and the window as in the paper.
        assert (settings.clients_per_round, settings.clip_norm, settings.window) == (3, 1.0, 10)
        assert settings.smoothing == how
        regions = pl.read_parquet(out / how / "predictions.parquet")["region"].unique()
        assert set(regions) == set(pl.read_csv(
            directory / "communities.csv", schema_overrides={"community": pl.String}
        )["community"])  # fmt: skip
        assert (out / how / "zero_entries.png").is_file()
    assert not (out / "comparison.csv").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--level", "village"), "--level: found 'village'; expected county or community"),
        (("--level", "community", "--table", "s1"), "publishes no table of communities"),
        (("--level", "community", "--split", "shuffled"), "--split: found 'shuffled'; expected"),
        (("--level", "community", "--epsilon", "0.2"), "budgets of the paper's experiment"),
    ],
)
def test_what_the_paper_did_not_do_is_refused(
    directory: Path, tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    out = tmp_path / "out"
    assert words in refused("reproduce", "--data", directory, "--out", out, *options)
    assert not out.exists()


@pytest.mark.parametrize("level", ["county", "community"])
def test_a_simulated_country_is_refused(tmp_path: Path, level: str) -> None:
    country = tmp_path / "country"
    few = ("--preset", "crossing", "--counties", "4", "--communities", "8")
    epifed("simulate", *few, "--seed", "0", "--out", country, expect=0)
    words = refused("reproduce", "--data", country, "--out", tmp_path / "out", "--level", level)
    assert "found a simulated country; expected reported cases" in words
    assert "epifed run" in words
    assert not (tmp_path / "out").exists()


def test_communities_do_not_get_the_settings_of_counties(directory: Path, tmp_path: Path) -> None:
    table = tmp_path / "communities.csv"
    days = [date(2020, 10, 1) + timedelta(days=i) for i in range(75)]
    ids = pl.read_csv(directory / "communities.csv", schema_overrides={"community": pl.String})
    rows = [f"{day},{region},{len(region)}" for region in ids["community"] for day in days]
    table.write_text("\n".join(["date,region,cases", *rows]) + "\n")
    words = refused("reproduce", "--data", table, "--out", tmp_path / "out", *QUICK)
    assert "found communities, by ids such as 00001001; expected counties" in words
    assert not (tmp_path / "out").exists()


def test_counties_are_scored_by_population_beside_persistence(
    directory: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    epifed("reproduce", "--data", directory, "--out", out, *QUICK, expect=0)
    found = pl.read_csv(out / "strata.csv")
    assert set(found["stratum"]) == {"0–50k", "50–100k", "100–200k", "200–500k", ">500k"}
    assert found["mae_per_100k_persistence"].is_not_null().all()
    assert found.filter(stratum="50–100k")["regions"].unique().to_list() == [2]
    runs = pl.read_parquet(out / "runs.parquet")
    for score in ("mape", "mdape", "mae"):
        kept = runs.filter(split="temporal", method=CLIPPED, stratum="50–100k")[score]
        ours = found.filter(split="temporal", method=CLIPPED, stratum="50–100k")[score]
        assert ours[0] == pytest.approx(kept[0])
    assert "MAE per 100,000" in (out / "strata.md").read_text()


def test_errors_per_inhabitant_are_of_the_region_s_own() -> None:
    clients = small_clients(small_settings())
    people = np.where(np.arange(len(clients)) % 2, 20_000, 40_000)
    clients = replace(clients, population=people)
    keys = {"split": "temporal", "period": "one", "epsilon": None, "method": "persistence"}
    parts = [(keys | {"run": run}, {"prediction": clients.test.targets + wrong}, clients)
             for run, wrong in enumerate((2.0, -4.0))]  # fmt: skip
    (row,) = paper.by_size(gather(parts).runs).to_dicts()  # type: ignore[arg-type]
    assert (row["stratum"], row["regions"], row["runs"]) == ("0–50k", len(clients), 2)
    assert (row["mae"], row["mae_persistence"]) == (pytest.approx(3), pytest.approx(3))
    assert row["mae_std"] == pytest.approx(2**0.5)
    assert row["mae_per_100k"] == pytest.approx(3e5 * (1 / 20_000 + 1 / 40_000) / 2)


def test_clipping_without_noise_clips_and_adds_nothing() -> None:
    settings = small_settings(epsilon=math.inf, clip_norm=1e-9, rounds=3)
    clients = small_clients(settings)
    plan = ClippedPlan.of(settings, len(clients))
    learner = make_learner(settings)
    start = learner.start(seed_sequence(0))
    rows = contribution(learner, start, clients.view, plan)
    assert np.linalg.norm(rows, axis=1).max() <= 1e-9 * (1 + 1e-4)
    assert plan.noise_std(3) == 0
    # Clipped to almost nothing, three rounds leave the initial model where it was.
    moved = clipped_without_noise(clients, settings, seed_sequence(0))
    initial = seed_sequence(0).spawn(3)[0]
    still = learner.predict(learner.start(initial), clients.test.inputs)
    assert moved == pytest.approx(still, abs=1e-5)


def test_clipping_without_noise_has_no_budget() -> None:
    with pytest.raises(EpifedError, match="found 2 without noise; expected inf"):
        ClippedPlan.of(small_settings(epsilon=2.0), 12)


def test_the_clipped_row_has_as_many_runs_as_the_trainings(tmp_path: Path) -> None:
    panel = small_panel()
    grid = Grid(
        settings=small_settings(epsilon=math.inf, sampler="fixed"),
        splits=("temporal",),
        periods={"all": (START, panel.end)},
        epsilons=(math.inf,),
        runs=3,
        baselines=("persistence", CLIPPED),
        baseline_runs=1,
    )
    runs = run_grid(panel, grid, tmp_path, workers=1).runs.filter(stratum="all")
    assert len(runs.filter(method=CLIPPED)) == 3
    assert runs.filter(method=CLIPPED)["mae"].n_unique() == 3


def test_forecasts_and_r_say_that_cases_are_a_fraction_of_infections() -> None:
    for page in (html, app):
        assets = Path(str(page.__file__)).parent / "assets"
        for language, words in (
            ("en", "Reported cases are a fraction of all infections."),
            ("de", "Gemeldete Fälle sind nur ein Teil aller Infektionen."),
        ):
            text = (assets / f"words_{language}.js").read_text(encoding="utf-8")
            for note in ("fanNote:", "nowcastNote:"):
                (line,) = [line for line in text.splitlines() if note in line]
                assert words in line.partition(note)[2]
