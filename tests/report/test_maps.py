"""The country behind the figures: its regions, one county of it, and the real maps."""

import json
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import shapely

from epifed.data.panel import CasePanel
from epifed.data.readers.formats import BKG, DESTATIS, RKI
from epifed.errors import EpifedError
from epifed.evaluation.results_folder import DataRecord
from epifed.report import figures, maps
from epifed.report.drawing import map_of, read_shapes
from epifed.report.maps import Atlas, Place, choose_place, panel_behind, read_country
from epifed.simulate import SimulationSettings, simulate
from epifed.simulate.simulation import write
from tests.paper.test_figures import COMMUNITIES, COUNTIES, credit, parts, polygons

SETTINGS = SimulationSettings(counties=COUNTIES, communities=COMMUNITIES, seed=5)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "country"
    write(simulate(SETTINGS), folder)
    return folder


@pytest.fixture(scope="module")
def country(data: Path) -> Atlas:
    return read_country(data)


def test_incidence_is_the_week_s_cases_per_100_000(country: Atlas) -> None:
    weeks = maps.incidence(country, (date(2020, 11, 1), date(2020, 11, 20)))
    assert [w[0] for w in weeks] == [date(2020, 11, 1), date(2020, 11, 8)]
    county = country.table.row(3, named=True)
    k = country.counties.regions.index(county["county"])
    cases = country.counties.between(date(2020, 11, 8), date(2020, 11, 14)).counts[k].sum()
    assert weeks[1][2][county["county"]] == pytest.approx(1e5 * cases / county["population_2020"])


def test_the_panel_behind_results_is_found_by_its_digest(country: Atlas, data: Path) -> None:
    assert country.communities is not None
    for panel in (country.counties, country.communities):
        short = panel.between(panel.day(3), panel.day(90))
        for seen in (panel, short):
            found = panel_behind(data, DataRecord.of(seen))
            assert found is not None and found.digest() == panel.digest()
    other = replace(country.counties, counts=country.counties.counts + 1)
    assert panel_behind(data, DataRecord.of(other)) is None


def test_a_place_is_found_by_id_name_or_part(country: Atlas) -> None:
    row = country.table.row(7, named=True)
    expected = Place(row["county"], row["name"], row["state"])
    for text in (row["county"], row["name"], row["name"].lower()):
        assert choose_place(country, None, text) == expected
    other = country.table.filter(pl.col("state") != row["state"])["state"][0]
    assert choose_place(country, other, None).state == other
    with pytest.raises(EpifedError, match=f"which is in {row['state']}; expected a county of"):
        choose_place(country, other, row["name"])
    with pytest.raises(EpifedError, match="--county: found 'nowhere'; expected one county's id"):
        choose_place(country, None, "nowhere")
    with pytest.raises(EpifedError, match="--state: found 'Atlantis'; expected one state"):
        choose_place(country, "Atlantis", None)


def test_a_missing_shape_is_named(data: Path) -> None:
    with pytest.raises(EpifedError, match="found no shape for region 99999"):
        maps.read_boundaries(data / "counties.geojson", ["99999"])


def test_the_real_maps_are_germany_with_its_sources(real_data: Path) -> None:
    germany = read_country(real_data)
    assert germany.community_shapes is not None and germany.county_shapes is not None
    assert germany.drawn and len(germany.community_shapes) == 10_792
    west, south, east, north = shapely.total_bounds(germany.county_shapes.geometry)
    assert 600e3 < east - west < 680e3 and 850e3 < north - south < 900e3
    assert shapely.area(germany.county_shapes.geometry).sum() == pytest.approx(357.6e9, rel=0.02)
    place = choose_place(germany, None, None)
    assert place == Place("05558", "LK Coesfeld", "Nordrhein-Westfalen")
    figure = maps.regions(germany, place, (date(2022, 3, 1), date(2022, 4, 1)))
    assert len(figure.axes[2].lines) == 11 + 1
    for source in (RKI, DESTATIS, BKG):
        assert source in credit(figure)
    periods = {"2022-03": (date(2022, 3, 1), date(2022, 4, 1))}
    figure = maps.cases(germany, periods)
    assert polygons(figure) == [parts(germany.county_shapes)] * 4
    assert BKG in credit(figure)
    assert germany.population(2020)["05558"] == 220_586
    assert germany.population(2022)["05558"] == 220_712
    levels = {"counties": germany.counties.population}
    people = figures.populations(levels, germany.data_attribution)  # type: ignore[arg-type]
    assert BKG not in credit(people) and RKI in credit(people)


def test_a_part_of_a_name_that_fits_several_is_refused(real_data: Path) -> None:
    germany = read_country(real_data)
    with pytest.raises(EpifedError, match="such as SK Ansbach, LK Ansbach"):
        choose_place(germany, None, "ansbach")


SQUARE = {"type": "Polygon", "coordinates": [[[9, 50], [10, 50], [10, 51], [9, 50]]]}


def feature(region: object, geometry: object = SQUARE) -> dict[str, object]:
    return {"type": "Feature", "properties": {"id": region}, "geometry": geometry}


@pytest.mark.parametrize(
    ("features", "sentence"),
    [
        ([feature("1", {"type": "Polygon"})], "cannot be read as GeoJSON ("),
        ([feature("1", {"type": "Heap", "coordinates": []})], "cannot be read as GeoJSON ("),
        ([3], "cannot be read as GeoJSON ("),
        ([feature(None)], "found no shape for region 1; expected all regions"),
        ([feature("1", None), feature("2")], "found no shape for region 1; expected all regions"),
        ([feature("1"), feature(1)], "found 2 shapes of region 1; expected 1"),
    ],
)
def test_a_bad_map_is_one_sentence(tmp_path: Path, features: list[object], sentence: str) -> None:
    path = tmp_path / "a.geojson"
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    with pytest.raises(EpifedError) as refused:
        read_shapes(path, ["1"])
    assert str(refused.value).startswith(f"{path}: {sentence}")


def test_shapes_are_read_in_order_and_from_the_coordinates_that_the_file_names(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.geojson"
    content = {"type": "FeatureCollection", "features": [feature(1), feature("2"), feature("x")]}
    path.write_text(json.dumps(content))
    shapes = read_shapes(path, ["2", "1"])
    assert shapes.regions == ("2", "1")
    area = shapely.area(shapes.equal_area().geometry)
    assert area == pytest.approx(111.2e3 * 71.7e3 / 2, rel=0.01)
    named = {"type": "name", "properties": {"name": "urn:ogc:def:crs:EPSG::3857"}}
    path.write_text(json.dumps(content | {"crs": named}))
    metres = read_shapes(path, ["1"]).equal_area()
    assert shapely.area(metres.geometry) == pytest.approx(0.5, rel=0.01)
    path.write_text(json.dumps(content | {"crs": named | {"properties": {"name": "nowhere"}}}))
    with pytest.raises(EpifedError, match="cannot be read as GeoJSON"):
        read_shapes(path, ["1"])


def test_a_property_with_names_is_recognised_and_places_alone_make_circles(tmp_path: Path) -> None:
    path = tmp_path / "a.geojson"
    named = [feature(None) | {"properties": {"NR": 7, "GEN": name}} for name in ("North", "South")]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": named}))
    assert len(read_shapes(path, ["1", "2"], ["South", "North"])) == 2
    counts = np.ones((2, 30))
    panel = CasePanel(
        counts, ("1", "2"), date(2024, 1, 1), positions=np.array([[8.0, 50], [9, 50]])
    )
    drawn = map_of(panel)
    assert drawn is not None and [len(shape[0][0]) for shape in drawn["shapes"]] == [32, 32]
    assert map_of(CasePanel(counts, ("1", "2"), date(2024, 1, 1))) is None
