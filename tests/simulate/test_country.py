"""The invented country: sizes, nesting, shapes."""

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from epifed.simulate.country import Country, make_country


@pytest.fixture(scope="module")
def country() -> Country:
    return make_country(400, 10_786, np.random.SeedSequence(5))


def near(found: float, wanted: float) -> bool:
    return abs(found / wanted - 1) < 0.05


@pytest.mark.parametrize("seed", [0, 1, 5])
def test_the_sizes_are_the_papers_within_5_percent(seed: int) -> None:
    made = make_country(400, 10_786, np.random.SeedSequence(seed))
    counties, communities = made.county_population, made.community_population
    assert len(counties) == 400 and len(communities) == 10_786
    assert near(float(np.median(counties)), 147_500)
    assert near(float(counties.mean()), 200_500)
    assert near(float(counties.max()), 3_690_000)
    assert near(float(np.median(communities)), 1_832)
    assert near(float(communities.mean()), 7_800)
    assert communities.min() > 0
    alone = (np.bincount(made.county_of) == 1).sum()
    assert 95 <= alone <= 120


def test_communities_lie_in_counties_in_states(country: Country) -> None:
    assert (np.diff(country.county_of) >= 0).all()
    assert len(set(country.county_of)) == 400
    assert country.community_ids == tuple(sorted(set(country.community_ids)))
    assert country.county_ids == tuple(sorted(set(country.county_ids)))
    for community, county in zip(country.community_ids, country.county_of, strict=True):
        assert len(community) == 8 and community[:5] == country.county_ids[county]
    for county_id, state in zip(country.county_ids, country.state_of, strict=True):
        assert len(county_id) == 5 and int(county_id[:2]) == state + 1
    assert len(country.state_names) == len(set(country.state_of)) == 16
    assert len(set(country.community_names)) == 10_786
    assert len(set(country.county_names)) == 400
    sums = np.bincount(country.county_of, country.community_population)
    assert (sums == country.county_population).all()


def test_shapes_are_valid_disjoint_and_cover_the_land(country: Country) -> None:
    communities, counties = country.shapes.communities, country.shapes.counties
    assert shapely.is_valid(communities).all() and shapely.is_valid(counties).all()
    assert not shapely.is_empty(communities).any()
    assert set(shapely.get_type_id(communities)) <= {3, 6}
    whole = shapely.union_all(counties)
    assert shapely.area(communities).sum() == pytest.approx(whole.area, rel=1e-9)
    assert shapely.area(counties).sum() == pytest.approx(whole.area, rel=1e-9)
    holes = shapely.get_num_interior_rings(shapely.get_parts(whole)).sum()
    assert holes == 0
    sums = np.bincount(country.county_of, shapely.area(communities))
    np.testing.assert_allclose(sums, shapely.area(counties), rtol=1e-9)
    digits = shapely.get_coordinates(communities) * 1e4
    assert np.abs(digits - digits.round()).max() < 1e-6
    west, south, east, north = whole.bounds
    assert -20 < west < east < 40 and 30 < south < north < 65


def test_counties_and_states_are_in_one_piece(country: Country) -> None:
    counties = country.shapes.counties
    parts = shapely.get_num_geometries(counties)
    assert (parts > 1).mean() < 0.02  # a bay may cut a cell in two
    states = [shapely.union_all(counties[country.state_of == i]) for i in range(16)]
    largest = [shapely.area(shapely.get_parts(state)).max() / state.area for state in states]
    assert min(largest) > 0.98


@settings(max_examples=25)
@given(st.integers(1, 20), st.integers(0, 60), st.integers(0, 2**32))
def test_any_small_country_is_whole(counties: int, more: int, seed: int) -> None:
    made = make_country(counties, counties + more, np.random.SeedSequence(seed))
    assert set(made.county_of) == set(range(counties))
    assert set(made.state_of) == set(range(len(made.state_names)))
    assert len(made.state_names) <= min(16, counties)
    assert (made.community_population > 0).all()
    assert (made.by_county(made.community_population) == made.county_population).all()
    shapes = made.shapes
    assert shapely.is_valid(shapes.communities).all()
    assert not shapely.is_empty(shapes.communities).any()
    area = shapely.union_all(shapes.communities).area
    assert shapely.area(shapes.communities).sum() == pytest.approx(area, rel=1e-6)


@pytest.mark.parametrize("seed", [0, 1])
def test_no_two_communities_share_a_place_or_lack_a_shape(seed: int) -> None:
    country = make_country(400, 10_786, np.random.SeedSequence(seed))
    assert len(np.unique(country.positions, axis=0)) == 10_786
    assert not shapely.is_empty(country.shapes.communities).any()
