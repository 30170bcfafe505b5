"""The epidemic and its reporting: nobody appears, nobody vanishes, the level is met."""

from datetime import date

import numpy as np
import pytest
from numpy.typing import NDArray

from epifed.errors import EpifedError
from epifed.simulate import Simulation, SimulationSettings, default_panel, simulate
from epifed.simulate.country import make_country
from epifed.simulate.epidemic import (
    AUTUMN,
    BURN_IN,
    PRESETS,
    SPRING,
    commuting,
    course,
    eastward,
    sent_on,
)
from epifed.simulate.simulation import weekday_factors


@pytest.fixture(scope="module")
def small() -> Simulation:
    return simulate(SimulationSettings(counties=50, communities=800, seed=3))


@pytest.fixture(scope="module")
def autumn() -> Simulation:
    return simulate(SimulationSettings(seed=7))


@pytest.fixture(scope="module")
def spring() -> Simulation:
    return simulate(SimulationSettings(seed=8, preset="omicron-2022"))


def test_people_are_conserved(small: Simulation) -> None:
    people = small.country.community_population
    final = small.epidemic.final
    assert (final >= 0).all()
    assert (final.sum(0) == people).all()
    infected = small.epidemic.infections.sum(0, dtype=np.int64)
    assert small.epidemic.infections.min() >= 0
    assert (infected + final[0] <= people).all()
    assert (small.epidemic.ill.sum(0) <= people).all()


def test_susceptibles_run_out() -> None:
    settings = SimulationSettings(
        counties=20, communities=100, preset="omicron-2022", ascertainment=0.4, seed=1
    )
    crowd = simulate(settings)
    share = crowd.epidemic.final[0].sum() / crowd.country.community_population.sum()
    assert share < 0.6
    national = crowd.course.infections.sum()
    assert crowd.epidemic.infections.sum() / crowd.country.community_population.sum() == (
        pytest.approx(national, rel=0.05)
    )


def test_every_onset_is_reported_once_or_pending(small: Simulation) -> None:
    reports = small.reports
    assert reports.cases.min() >= 0 and reports.first_report.min() >= 0
    onsets = reports.onsets.sum(0, dtype=np.int64)
    assert (reports.cases.sum(0, dtype=np.int64) + reports.pending == onsets).all()
    assert (reports.onsets <= small.epidemic.ill).all()
    assert (np.cumsum(reports.cases, 0) <= np.cumsum(reports.onsets, 0)).all()
    found = onsets.sum() / small.epidemic.ill.sum()
    assert found == pytest.approx(AUTUMN.ascertainment, rel=0.05)


def test_reports_come_days_after_onsets(autumn: Simulation) -> None:
    onsets, cases = autumn.reports.onsets.sum(1), autumn.reports.cases.sum(1)
    waiting = (np.cumsum(onsets) - np.cumsum(cases))[BURN_IN:]
    delay = waiting.mean() / cases[BURN_IN:].mean()
    assert 3.5 < delay < 6


def test_half_is_known_on_the_next_morning_and_corrections_go_both_ways(
    autumn: Simulation,
) -> None:
    change = autumn.by_county(autumn.cases - autumn.first_report)
    assert (change > 0).any() and (change < 0).any()
    assert autumn.first_report.sum() / autumn.cases.sum() == pytest.approx(0.5, abs=0.06)


def test_counties_are_the_sum_of_their_communities(small: Simulation) -> None:
    county, community = small.county_panel, small.community_panel
    for row in range(50):
        inside = [i for i, c in enumerate(community.regions) if c[:5] == county.regions[row]]
        assert (community.counts[inside].sum(0) == county.counts[row]).all()
    assert county.population is not None and community.population is not None
    assert county.population.sum() == community.population.sum()
    assert (county.start, county.end) == (date(2020, 9, 1), date(2021, 1, 31))


def test_the_levels_are_the_papers(autumn: Simulation, spring: Simulation) -> None:
    november = autumn.county_panel.between(date(2020, 11, 1), date(2020, 11, 30)).counts
    march = spring.county_panel.between(date(2022, 3, 1), date(2022, 3, 31)).counts
    assert november.sum(0).mean() == pytest.approx(17_600, rel=0.05)
    assert march.sum(0).mean() == pytest.approx(212_000, rel=0.05)


def test_the_weekday_factors_are_the_real_ones(autumn: Simulation, spring: Simulation) -> None:
    for made, regime in ((autumn, AUTUMN), (spring, SPRING)):
        found = list(weekday_factors(made.county_panel).values())
        np.testing.assert_allclose(found, regime.weekday, rtol=0.05)


def test_some_authorities_hardly_report_at_weekends(spring: Simulation) -> None:
    counts = spring.county_panel.counts
    weekday = (spring.start.weekday() + np.arange(counts.shape[1])) % 7
    silent = (counts[:, weekday == 6] == 0).mean(1)
    assert 0.05 < (silent > 0.8).mean() < 0.3
    assert (silent < 0.05).mean() > 0.3


def test_waves_are_partly_out_of_step(autumn: Simulation) -> None:
    weekly = autumn.county_panel.counts[:, :147].reshape(400, 21, 7).sum(2)
    growth = np.diff(np.log(weekly + 1), axis=1)
    together = np.corrcoef(growth.mean(0), growth)[0, 1:].mean()
    assert 0.3 < together < 0.95


def test_the_seed_decides_everything() -> None:
    settings = SimulationSettings(counties=20, communities=90, days=30, seed=4)
    one, two = simulate(settings), simulate(settings)
    other = simulate(settings.model_copy(update={"seed": 5}))
    assert one.county_panel.digest() == two.county_panel.digest()
    assert (one.reports.first_report == two.reports.first_report).all()
    assert one.county_panel.digest() != other.county_panel.digest()


def test_fewer_days_are_the_first_days_of_the_wave() -> None:
    few = simulate(SimulationSettings(counties=20, communities=90, days=30))
    assert few.cases.shape == (30, 90)
    whole = course(PRESETS["autumn-2020"]).infections
    assert (few.course.infections == whole[: BURN_IN + 30]).all()


def test_the_default_panel_has_the_papers_period() -> None:
    panel = default_panel(1)
    assert panel.counts.shape[0] == 400 and panel.population is not None
    assert panel.between(date(2020, 11, 1), date(2020, 12, 1)).counts.sum() > 0
    assert "Simulated" in panel.attribution[0]


def test_both_periods_fit_in_the_pandemic() -> None:
    made = simulate(SimulationSettings(counties=60, communities=600, preset="pandemic", seed=2))
    panel = made.county_panel
    assert (panel.start, panel.end) == (date(2020, 9, 1), date(2022, 6, 30))
    per_person = panel.counts.sum(0) / made.country.county_population.sum() * 82_160_000
    for first, last, wanted in ((61, 91, 17_600), (546, 577, 212_000)):
        assert per_person[first:last].mean() == pytest.approx(wanted, rel=0.10)


def test_commuters_prefer_near_and_large_places() -> None:
    country = make_country(30, 500, np.random.SeedSequence(1))
    matrix = commuting(country).toarray()
    np.testing.assert_allclose(matrix.sum(1), 1)
    assert matrix.min() >= 0
    gaps = np.linalg.norm(country.positions[:, None] - country.positions[None], axis=2)
    out = matrix.copy()
    np.fill_diagonal(out, 0)
    assert (out * gaps).sum() / out.sum() < 0.5 * gaps.mean()
    people = country.community_population
    assert (out * people[None]).sum() / out.sum() > 2 * people.mean()


def test_more_communities_need_no_denser_commuting() -> None:
    country = make_country(60, 2000, np.random.SeedSequence(1))
    assert commuting(country).nnz <= 20 * 2000


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"counties": 10, "communities": 9}, "at least one community per county"),
        ({"counties": 0}, "counties: found 0"),
        ({"communities": 0}, "communities: found 0"),
        ({"counties": 1, "communities": 500}, "at most 100"),
        ({"level": -1}, "level: found -1"),
        ({"ascertainment": -0.1}, "ascertainment: found -0.1"),
        ({"ascertainment": 1.5}, "ascertainment: found 1.5"),
        ({"superspreading": 0}, "superspreading: found 0"),
        ({"days": 10_000}, "at most the 153 of autumn-2020"),
        ({"preset": "spring"}, "preset: found 'spring'"),
        ({"seed": -1}, "seed: found -1"),
        ({"level": float("nan")}, "level: found nan"),
    ],
)
def test_impossible_settings_are_one_sentence(values: dict[str, object], words: str) -> None:
    with pytest.raises(EpifedError, match=words) as caught:
        SimulationSettings.of(**values)
    assert "\n" not in str(caught.value)


def test_a_level_beyond_the_country_is_refused() -> None:
    with pytest.raises(EpifedError, match="expected a lower level"):
        simulate(
            SimulationSettings(
                counties=5, communities=9, preset="omicron-2022", level=2, ascertainment=0.1
            )
        )


@pytest.mark.parametrize("size", [(1, 1), (3, 5), (4, 4), (17, 18)])
def test_tiny_countries_work(size: tuple[int, int]) -> None:
    made = simulate(SimulationSettings(counties=size[0], communities=size[1], days=120))
    assert made.county_panel.counts.shape == (size[0], 120)
    assert made.cases.sum() > 0


def test_offices_are_closed_on_holidays() -> None:
    days = [date(2022, 4, 15), date(2022, 4, 18), date(2022, 5, 26), date(2022, 6, 6),
            date(2021, 4, 5), date(2020, 12, 25)]  # fmt: skip
    sunday, working = sent_on(date(2022, 5, 1), 2)[0], sent_on(date(2022, 5, 3), 1)[0]
    assert sunday < working
    assert all(sent_on(day, 1)[0] == sunday for day in days)


def test_a_wave_crosses_the_country_from_west_to_east() -> None:
    wave = simulate(SimulationSettings(preset="crossing", communities=400, seed=2))
    weeks = wave.county_panel.counts.reshape(400, -1, 7).sum(axis=2) + 1
    east = wave.country.county_positions[:, 0]

    def growth(week: int) -> NDArray[np.float64]:
        return np.asarray(np.log(weeks[:, week] / weeks[:, week - 1]))

    assert np.corrcoef(east, growth(18))[0, 1] < -0.1
    last = growth(-1)
    assert np.corrcoef(east, last)[0, 1] > 0.6
    assert (last > 0.05).sum() > 100 and (last < -0.05).sum() > 100


def test_a_preset_without_a_direction_has_none() -> None:
    assert not eastward(PRESETS["autumn-2020"], 5).any()
    crossing = PRESETS["crossing"]
    first = (date(2023, 10, 29) - crossing.begin).days
    tilt = eastward(crossing, first + 15)[first:]
    assert tilt[0] == -0.08 and tilt[-1] == 0.2 and (np.diff(tilt) > 0).all()
