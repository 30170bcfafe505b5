"""The written directory: like the prepared one, byte for byte the same, all or nothing."""

import json
from datetime import date
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import typer
from typer.testing import CliRunner

from epifed.cli.data import simulate as command
from epifed.data.readers import read_prepared
from epifed.errors import EpifedError
from epifed.simulate import Simulation, SimulationSettings, simulate
from epifed.simulate import simulation as writing
from epifed.simulate.simulation import FILES, write

SMALL = ["--counties", "8", "--communities", "60", "--preset", "autumn-2020"]
app = typer.Typer()
app.command()(command)


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    return simulate(SimulationSettings(counties=20, communities=150, seed=6))


@pytest.fixture(scope="module")
def folder(simulation: Simulation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("data") / "deep" / "country"
    write(simulation, target)
    return target


def test_files_and_columns_are_those_of_the_prepared_directory(folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} == set(FILES)
    for unit, width in (("county", 5), ("community", 8)):
        cases = pl.read_parquet(folder / f"{unit}_cases.parquet")
        assert cases.columns == ["date", unit, "cases", "first_report", "onsets"]
        assert cases.schema["date"] == pl.Date and cases.schema[unit] == pl.String
        assert cases.schema["cases"] == pl.Int32
        assert cases.equals(cases.sort(unit, "date"))
        assert (cases[unit].str.len_chars() == width).all()
    counties = (folder / "counties.csv").read_text(encoding="utf-8").splitlines()
    assert counties[0] == "county,name,state,population_2020,population_2022"
    communities = (folder / "communities.csv").read_text(encoding="utf-8").splitlines()
    assert communities[0] == "community,name,county,population"
    assert len(counties) == 21 and len(communities) == 151
    assert "Simulated data" in (folder / "ATTRIBUTION.txt").read_text(encoding="utf-8")
    about = json.loads((folder / "simulation.json").read_text(encoding="utf-8"))
    assert about["settings"]["seed"] == 6 and about["last_day"] == "2021-01-31"


def test_maps_carry_the_ids(folder: Path, simulation: Simulation) -> None:
    for name, ids in (
        ("counties", simulation.country.county_ids),
        ("communities", simulation.country.community_ids),
    ):
        text = (folder / f"{name}.geojson").read_text(encoding="utf-8")
        features = json.loads(text)["features"]
        assert tuple(f["properties"]["id"] for f in features) == ids
        assert all(f["id"] == f["properties"]["id"] for f in features)
        assert all(set(f["properties"]) == {"id", "name"} for f in features)


def test_every_day_of_every_county_is_the_sum_of_its_communities(folder: Path) -> None:
    keys = {"community": pl.String, "county": pl.String}
    nested = pl.read_csv(folder / "communities.csv", schema_overrides=keys)
    columns = ["cases", "first_report", "onsets"]
    sums = (
        pl.read_parquet(folder / "community_cases.parquet")
        .join(nested, on="community")
        .group_by("county", "date")
        .agg(pl.col(columns).sum())
        .sort("county", "date")
    )
    counties = pl.read_parquet(folder / "county_cases.parquet")
    assert sums.select("date", "county", *columns).equals(counties)


def test_the_reader_of_real_data_reads_it(folder: Path, simulation: Simulation) -> None:
    counties, communities = read_prepared(folder), read_prepared(folder, level="community")
    assert counties.digest() == simulation.county_panel.digest()
    assert communities.digest() == simulation.community_panel.digest()
    assert counties.names == simulation.country.county_names
    assert counties.boundaries == folder / "counties.geojson"
    assert counties.start == date(2020, 9, 1)


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    settings = SimulationSettings(counties=12, communities=70, days=40, seed=2)
    for name, changed in (("a", 2), ("b", 2), ("c", 3)):
        write(simulate(settings.model_copy(update={"seed": changed})), tmp_path / name)
    for name in FILES:
        first = (tmp_path / "a" / name).read_bytes()
        assert first == (tmp_path / "b" / name).read_bytes(), name
        assert first != (tmp_path / "c" / name).read_bytes(), name


def test_a_foreign_directory_is_left_alone(simulation: Simulation, tmp_path: Path) -> None:
    (tmp_path / "diary.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(EpifedError, match=r"diary\.txt"):
        write(simulation, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["diary.txt"]
    with pytest.raises(EpifedError, match="expected a directory"):
        write(simulation, tmp_path / "diary.txt")
    prepared = tmp_path / "prepared"
    prepared.mkdir()
    (prepared / "county_cases.parquet").write_bytes(b"real data")
    with pytest.raises(EpifedError, match="not of a simulation"):
        write(simulation, prepared)


def test_an_earlier_simulation_is_replaced(simulation: Simulation, tmp_path: Path) -> None:
    target = tmp_path / "country"
    write(simulate(SimulationSettings(counties=3, communities=5, days=20)), target)
    write(simulation, target)
    assert read_prepared(target).counts.shape[0] == 20
    assert [path.name for path in tmp_path.iterdir()] == ["country"]


def test_a_failed_write_leaves_nothing(
    simulation: Simulation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writing, "geojson", full)
    with pytest.raises(EpifedError, match="No space left"):
        write(simulation, tmp_path / "country")
    assert list(tmp_path.iterdir()) == []


def test_the_command_writes_and_says_so(tmp_path: Path) -> None:
    target = tmp_path / "country"
    result = CliRunner().invoke(app, [*SMALL, "--seed", "1", "--out", str(target)])
    assert result.exit_code == 0, result.output
    assert "8 counties and 60 communities" in " ".join(result.stdout.split())
    assert read_prepared(target).counts.shape == (8, 153)


def test_the_command_speaks_json(tmp_path: Path) -> None:
    arguments = [*SMALL, "--days", "30", "--out", str(tmp_path / "x"), "--json"]
    result = CliRunner().invoke(app, arguments)
    about = json.loads(result.stdout)
    assert about["counties"] == 8 and about["last_day"] == "2020-09-30"
    assert about["cases"] == int(np.sum(read_prepared(tmp_path / "x").counts))


@pytest.mark.parametrize(
    "arguments",
    [
        ["--counties", "9", "--communities", "8", "--out", "x"],
        ["--level=-1", "--out", "x"],
        ["--preset", "flu", "--out", "x"],
        [],
    ],
)
def test_the_command_refuses_in_one_sentence(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, EpifedError)
    assert "expected" in str(result.exception)
