"""The prepared directory, small and real."""

import shutil
from datetime import date, timedelta
from pathlib import Path

import polars as pl
import pytest

from epifed.data.readers import load_panel, read_communities, read_counties, read_prepared
from epifed.data.readers.values import middles
from epifed.errors import EpifedError

COUNTIES = """county,name,state,population_2020,population_2022
01001,SK Flensburg,Schleswig-Holstein,90164,89934
16063,LK Wartburgkreis,Thüringen,161224,160245
"""
COMMUNITIES = """community,name,county,population
01001000,"Flensburg, Stadt",01001,90164
16056000,"Eisenach, Stadt",16063,42250
16063999,Rest,16063,118974
"""


def cases(path: Path, column: str, regions: list[str]) -> None:
    days = [date(2020, 1, 2) + timedelta(days=i) for i in range(3)]
    pl.DataFrame(
        {
            "date": days * len(regions),
            column: [region for region in regions for _ in days],
            "cases": range(3 * len(regions)),
        },
        schema={"date": pl.Date, column: pl.String, "cases": pl.Int32},
    ).write_parquet(path)


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    cases(tmp_path / "county_cases.parquet", "county", ["01001", "16063"])
    (tmp_path / "counties.csv").write_text(COUNTIES, encoding="utf-8")
    (tmp_path / "communities.csv").write_text(COMMUNITIES, encoding="utf-8")
    (tmp_path / "counties.geojson").write_text('{"type":"FeatureCollection","features":[]}')
    return tmp_path


def test_counties(prepared: Path) -> None:
    panel = load_panel(prepared)
    assert panel.regions == ("01001", "16063")
    assert panel.names == ("SK Flensburg", "LK Wartburgkreis")
    assert panel.counts.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert panel.population is not None
    assert panel.population.tolist() == [90164, 161224]
    assert panel.boundaries == prepared / "counties.geojson"
    assert [line.split(":")[0] for line in panel.attribution] == [
        "Robert Koch-Institut (RKI)",
        "© GeoBasis-DE / BKG 2021 (Daten verändert), http",
    ]


def test_communities_sum_to_their_county(prepared: Path) -> None:
    counties, communities = read_counties(prepared), read_communities(prepared)
    assert counties["state"].to_list() == ["Schleswig-Holstein", "Thüringen"]
    summed = communities.group_by("county").agg(pl.col("population").sum()).sort("county")
    assert summed["population"].to_list() == counties["population_2020"].to_list()


def test_community_level(prepared: Path) -> None:
    with pytest.raises(EpifedError, match=r"without community_cases\.parquet"):
        read_prepared(prepared, level="community")
    cases(prepared / "community_cases.parquet", "community", ["16063999", "01001000"])
    panel = load_panel(prepared, level="community")
    assert panel.regions == ("01001000", "16056000", "16063999")
    assert panel.names[1] == "Eisenach, Stadt"
    assert panel.counts.tolist() == [[3, 4, 5], [0, 0, 0], [0, 1, 2]]
    assert panel.boundaries is None
    assert any("Destatis" in line for line in panel.attribution)


def test_a_simulated_directory_has_its_own_attribution(prepared: Path) -> None:
    (prepared / "ATTRIBUTION.txt").write_text("A simulated country.\n\nNo one lives there.\n")
    text = COUNTIES.replace("population_2020", "population").replace("population_2022", "x")
    (prepared / "counties.csv").write_text(text, encoding="utf-8")
    panel = load_panel(prepared)
    assert panel.attribution == ("A simulated country.", "No one lives there.")
    assert panel.population is not None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("90164", "many", "row 2, column population_2020: found 'many'"),
        ("90164", "0", "row 2, column population_2020: found '0'"),
        ("SK Flensburg", "", "row 2, column name: found an empty cell"),
        ("16063", "01001", "row 2, column county: found '01001'; expected each county once"),
        (",state", ",land", "found no column state"),
        ("16063", "16064", "found region 16063, which is not among the 2 known regions"),
    ],
)
def test_bad_counties(prepared: Path, old: str, new: str, message: str) -> None:
    (prepared / "counties.csv").write_text(COUNTIES.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(EpifedError) as refused:
        load_panel(prepared)
    assert message in str(refused.value)


def test_an_empty_count_is_refused(prepared: Path) -> None:
    path = prepared / "county_cases.parquet"
    frame = pl.read_parquet(path).with_columns(
        cases=pl.when(pl.col("cases") == 1).then(None).otherwise("cases")
    )
    frame.write_parquet(path)
    with pytest.raises(EpifedError, match="row 2, column cases: found an empty cell"):
        load_panel(prepared)


def test_a_directory_without_the_files(tmp_path: Path) -> None:
    with pytest.raises(
        EpifedError, match=r"directory without county_cases\.parquet; expected a file"
    ):
        load_panel(tmp_path)
    with pytest.raises(EpifedError, match="no such directory"):
        read_prepared(tmp_path / "absent")
    (tmp_path / "cases.csv").write_text("date,region,cases\n")
    with pytest.raises(EpifedError, match="found a file; expected a prepared or simulated dir"):
        read_prepared(tmp_path / "cases.csv")
    with pytest.raises(EpifedError, match="level: found 'state'; expected county or community"):
        read_prepared(tmp_path, level="state")


def test_real_counties(real_data: Path, tmp_path: Path) -> None:
    panel = load_panel(real_data)
    assert panel.counts.shape == (400, 911)
    assert (panel.start, panel.end) == (date(2020, 1, 2), date(2022, 6, 30))
    assert panel.counts.sum() == 28_367_860
    assert panel.population is not None
    assert panel.population.sum() == 83_166_711
    assert panel.reported is not None
    assert panel.reported.all()
    assert (
        panel.counts[panel.regions.index("03159"), (date(2022, 2, 16) - panel.start).days] == 3854
    )
    communities = read_communities(real_data)
    assert len(communities) == 10_792
    assert set(communities["county"]) == set(panel.regions)
    shutil.copy(real_data / "county_cases.parquet", tmp_path / "a.parquet")
    alone = load_panel(tmp_path / "a.parquet", region="county")
    assert (alone.counts == panel.counts).all()


def test_real_counties_have_the_holidays_of_their_state_and_a_place(real_data: Path) -> None:
    panel = read_prepared(real_data)
    calendar = dict(zip(panel.names, panel.calendars, strict=True))
    assert calendar["SK München"] == "DE-BY" and calendar["SK Kiel"] == "DE-SH"
    assert panel.positions is not None
    longitude, latitude = panel.positions[panel.names.index("SK München")]
    assert (longitude, latitude) == pytest.approx((11.55, 48.15), abs=0.1)


def test_a_directory_with_its_own_attribution_has_no_german_holidays(prepared: Path) -> None:
    assert read_prepared(prepared).calendars[0].startswith("DE-")
    (prepared / "ATTRIBUTION.txt").write_text("another country")
    assert set(read_prepared(prepared).calendars) <= {""}


@pytest.mark.parametrize("content", ["", "{}", '{"features": [{"geometry": null}]}', "[1]"])
def test_a_broken_map_places_nobody(tmp_path: Path, content: str) -> None:
    path = tmp_path / "counties.geojson"
    path.write_text(content)
    assert middles(path) == {}
    assert middles(tmp_path / "absent") == {}
