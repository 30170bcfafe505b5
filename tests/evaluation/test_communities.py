from dataclasses import replace
from datetime import timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from epifed.data.panel import CasePanel
from epifed.data.readers import read_communities, read_prepared
from epifed.errors import EpifedError
from epifed.evaluation.experiment import disaggregate, zero_entries
from epifed.settings import PERIODS, Settings
from tests.helpers import START, small_panel


def places(panel: CasePanel, each: int, seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    return pl.DataFrame(
        [
            {"community": f"{county}{i:03d}", "name": f"c{i}", "county": county,
             "population": int(rng.integers(100, 50_000))}
            for county in panel.regions for i in range(each)
        ]
    )  # fmt: skip


@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 99))
def test_communities_add_up_to_their_county_on_every_day(
    regions: int, each: int, seed: int
) -> None:
    panel = small_panel(regions, 20, seed)
    drawn = disaggregate(panel, places(panel, each, seed), np.random.default_rng(seed))
    assert len(drawn.regions) == regions * each
    parents = np.array(drawn.parents)
    for k, county in enumerate(panel.regions):
        assert (drawn.counts[parents == county].sum(axis=0) == panel.counts[k]).all()


def test_communities_have_the_calendar_and_place_of_their_county() -> None:
    panel = replace(
        small_panel(2, 20),
        calendars=("DE-BY", "DE-SN"),
        positions=np.array([[11.5, 48], [13.7, 51]]),
    )
    drawn = disaggregate(panel, places(panel, 3), np.random.default_rng(0))
    assert drawn.calendars == ("DE-BY",) * 3 + ("DE-SN",) * 3
    assert drawn.positions is not None
    assert drawn.positions[:, 1].tolist() == [48, 48, 48, 51, 51, 51]


def test_cases_fall_by_share_of_population() -> None:
    panel = CasePanel(np.full((1, 50), 10_000.0), ("a",), START)
    table = pl.DataFrame(
        {"community": ["x", "y"], "name": ["x", "y"], "county": ["a", "a"], "population": [1, 3]}
    )
    drawn = disaggregate(panel, table, np.random.default_rng(0))
    assert drawn.counts[1].mean() == pytest.approx(7_500, abs=5 * 43 / 7)
    assert drawn.counts[1].std() == pytest.approx(43.3, rel=0.35)


@pytest.mark.parametrize(
    ("counts", "county", "words"),
    [(np.full((1, 3), 0.5), "a", "not whole numbers"), (np.ones((1, 3)), "b", "county a has")],
)
def test_what_cannot_be_drawn_is_refused(counts: np.ndarray, county: str, words: str) -> None:
    panel = CasePanel(counts, ("a",), START)
    table = pl.DataFrame({"community": ["x"], "name": ["x"], "county": [county], "population": [5]})
    with pytest.raises(EpifedError, match=words):
        disaggregate(panel, table, np.random.default_rng(0))


def test_zero_entries_counts_inputs_and_target() -> None:
    counts = np.ones((2, 30))
    counts[1] = 0
    panel = CasePanel(counts, ("a", "b"), START, population=np.array([10, 30]))
    period = (START, START + timedelta(days=29))
    table = zero_entries(panel, Settings.of(smoothing="none"), period)
    assert table["zeros"].to_list() == list(range(12))
    assert table["samples"].to_list() == [14, *[0] * 10, 14]
    assert table["population_median"].to_list()[0] == 10
    assert table["population_median"].to_list()[11] == 30
    assert table["share"].sum() == pytest.approx(1)


def test_the_real_counties_can_be_drawn_into_their_communities(real_data: object) -> None:
    counties = read_prepared(real_data)  # type: ignore[arg-type]
    cut = counties.between(*PERIODS["2020-11"])
    drawn = disaggregate(cut, read_communities(real_data), np.random.default_rng(0))  # type: ignore[arg-type]
    assert len(drawn.regions) == 10_792
    sums = pl.DataFrame(drawn.counts).with_columns(county=pl.Series(drawn.parents))
    totals = sums.group_by("county").sum().sort("county").drop("county").to_numpy()
    assert (totals == cut.counts).all()
    table = zero_entries(drawn, Settings.paper(smoothing="none"), PERIODS["2020-11"])
    assert table["samples"].sum() == 10_792 * 14
    assert table["population_median"][0] > table["population_median"][11]
