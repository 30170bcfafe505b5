"""Larger regions: who belongs to whom, sums that fit together, and what they are made from."""

from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from epifed.data.calendar import Weeks, to_weekday
from epifed.data.panel import CasePanel, choose, levels_of
from epifed.data.quality import clean
from epifed.data.readers import load_panel
from epifed.errors import EpifedError
from epifed.evaluation.backtest import origins_between, run_backtest
from epifed.evaluation.results_folder import read_folder
from epifed.forecasting import Targets, Totals, forecast
from epifed.intervals import LEVELS
from epifed.learners.base import Learner, make_learner, settings_for
from tests.helpers import small_panel

STATES = ("North", "North", "North", "East", "East", "West", "West", "West")
SATURDAY = Weeks(ends=5, reference=0)


def country(days: int = 120, seed: int = 0) -> CasePanel:
    panel = small_panel(regions=8, days=days, seed=seed)
    rng = np.random.default_rng(seed)
    return replace(panel, states=STATES, positions=rng.uniform(5, 15, (8, 2)))


def trained(panel: CasePanel) -> tuple[Learner, object]:  # type: ignore[type-arg]
    learner = make_learner(settings_for(panel, {"learner": "trend", "epsilon": np.inf}))
    state = learner.start(np.random.SeedSequence(0))
    known = clean(panel).panel
    view = learner.view(known, (known.start, known.end))
    return learner, learner.step(state, learner.contribute(state, view).mean(axis=0), 0.0)


def test_the_levels_of_a_panel_end_with_the_nation() -> None:
    panel = country()
    found = levels_of(panel)
    assert list(found) == ["county", "state", "nation"]
    assert found["state"].regions == ("East", "North", "West")
    assert found["state"].members.sum(axis=1).tolist() == [2, 3, 3]
    east, north = panel.counts[3:5].sum(axis=0), panel.counts[:3].sum(axis=0)
    assert np.array_equal(found["state"].sum(panel.counts)[:2], np.stack([east, north]))
    assert list(levels_of(small_panel())) == ["region", "nation"]
    small = replace(panel, parents=("a", "a", "b", "b", "b", "c", "c", "c"))
    assert list(levels_of(small)) == ["community", "county", "state", "nation"]


def test_regions_of_any_level_can_be_chosen_by_id_or_name() -> None:
    panel = replace(country(), names=tuple("abcdefgh"))
    chosen = choose(panel, ["East", "nation", "c", "00004", "West"])
    assert [(one.name, one.regions) for one in chosen] == [
        ("state", ("East", "West")),
        ("nation", ("nation",)),
        ("county", ("00002", "00004")),
    ]
    with pytest.raises(EpifedError, match="--level: found 'South'; expected county, state, nation"):
        choose(panel, ["South"])


@given(st.integers(0, 30), st.sampled_from([5, 7, 12, 14]))
def test_points_of_all_levels_add_up_and_their_quantiles_are_in_order(
    seed: int, horizon: int
) -> None:
    panel = country(seed=seed)
    learner, state = trained(panel)
    known = clean(panel)
    county, states, nation = (
        forecast(known, learner, state, horizon, level) for level in levels_of(panel).values()
    )
    own = forecast(known, learner, state, horizon)
    assert np.array_equal(county.quantiles, own.quantiles)
    assert states.point.sum() == pytest.approx(county.point.sum())
    assert nation.point[0] == pytest.approx(county.point.sum())
    for one in (states, nation):
        assert (np.diff(one.quantiles, axis=1) >= 0).all()


def test_the_intervals_of_a_sum_are_those_of_its_own_errors() -> None:
    """Counties that err alone make a nation that errs little, those that err alike one that errs
    as much: adding quantiles up would not tell them apart."""
    rng = np.random.default_rng(0)
    days, regions = 160, 30
    start = date(2020, 9, 1)

    def width(noise: NDArray[np.float64]) -> float:
        weekly = np.repeat(noise, 7, axis=1)[:, :days]
        counts = 200 * np.exp(0.25 * weekly)
        panel = CasePanel(counts, tuple(map(str, range(regions))), start)
        learner, state = trained(panel)
        nation = forecast(clean(panel), learner, state, 7, levels_of(panel)["nation"])
        low, high = (nation.quantiles[0, LEVELS.index(level)] for level in (0.025, 0.975))
        return float((high - low) / nation.point[0])

    alone = rng.normal(size=(regions, days // 7 + 1))
    alike = np.repeat(alone[:1], regions, axis=0)
    assert width(alone) < 0.7 * width(alike)


@given(
    st.dates(date(2020, 1, 1), date(2024, 12, 31)),
    st.integers(0, 6),
    st.one_of(st.none(), st.integers(0, 6)),
    st.integers(0, 4),
)
def test_weeks_end_on_their_day_and_are_counted_from_the_reference(
    made: date, ends: int, reference: int | None, ahead: int
) -> None:
    weeks = Weeks(ends, reference)
    day = weeks.reference_date(made)
    assert 0 <= (day - made).days <= 6
    assert reference is None or day.weekday() == reference
    end = weeks.end(day, ahead)
    assert end.weekday() == ends
    between = [day + timedelta(days=i) for i in range(1, 60)]
    assert sum(one.weekday() == ends and one <= end for one in between) == ahead


def test_a_weekday_is_called_by_its_name() -> None:
    assert to_weekday("Sunday", "--week-ends") == 6
    with pytest.raises(EpifedError, match="--week-ends: found 'Samstag'; expected one of monday"):
        to_weekday("Samstag", "--week-ends")


def published(panel: CasePanel, shift: int = 1) -> pl.DataFrame:
    """The totals of states and nation, dated by the day of publication."""
    rows = [
        (panel.day(day) + timedelta(days=shift), region, float(count))
        for name in ("state", "nation")
        for region, counts in zip(
            levels_of(panel)[name].regions, levels_of(panel)[name].sum(panel.counts), strict=True
        )
        for day, count in enumerate(counts)
    ]
    return pl.DataFrame(rows, schema=["date", "location", "value"], orient="row")


def totals_of(panel: CasePanel, table: pl.DataFrame, lead: int = 1) -> Totals:
    places = {name: name for name in table["location"].unique()}
    return Totals.of(panel, table, places, lead)


def test_totals_are_taken_at_the_smallest_level_that_is_complete() -> None:
    panel = country()
    table = published(panel)
    totals = totals_of(panel, table)
    assert totals.panel.regions == ("East", "North", "West")
    assert totals.panel.start == panel.start + timedelta(days=1)
    assert panel.population is not None and totals.panel.population is not None
    assert totals.panel.population[0] == panel.population[3:5].sum()
    typical = totals.panel.typical_population
    assert typical is not None
    low, high = panel.population[3:5].min(), panel.population[3:5].max()
    assert low <= typical[0] <= high
    assert totals.has(levels_of(panel)["nation"]) and not totals.has(levels_of(panel)["county"])
    without = totals_of(panel, table.filter(pl.col("location") != "East"))
    assert without.panel.regions == ("nation",)
    with pytest.raises(EpifedError, match="--published: found 2 of the regions"):
        totals_of(panel, table.filter(pl.col("location").is_in(["North", "West"])))


def test_totals_that_are_not_there_are_not_zero() -> None:
    panel = country()
    table = published(panel)
    late = table["date"].max()
    assert isinstance(late, date)
    ragged = table.filter(~((pl.col("location") == "West") & (pl.col("date") == late)))
    with pytest.raises(
        EpifedError, match=f"--published: found no count of West on {late}; expected"
    ):
        totals_of(panel, ragged)
    weekly = table.filter(pl.col("date").dt.weekday() == pl.lit(late).dt.weekday())
    with pytest.raises(EpifedError, match=r"counts of East in .* days; expected one of each day"):
        totals_of(panel, weekly)
    learner, state = trained(panel)
    old = totals_of(panel, table.filter(pl.col("date") < panel.end))
    with pytest.raises(EpifedError, match=r"^--published: found days"):
        Targets(choose(panel, ["nation"]), (1,), SATURDAY, old).made(clean(panel), learner, state)


def test_it_is_said_of_each_level_which_counts_were_used() -> None:
    panel = replace(country(), states=("Alone", *STATES[1:]))
    nation = published(panel).filter(location="nation")
    levels = choose(panel, ["state", "nation"])
    said = Targets(levels, (7,), totals=totals_of(panel, nation)).sentence().splitlines()
    assert [line.split(" are ")[0] for line in said] == [
        "counts of the levels 'nation'",
        "counts of the levels 'state'",
    ]
    assert "published totals" in said[0] and "sums of the clients' own" in said[1]
    alone = Targets(choose(panel, ["Alone"]), (7,), totals=totals_of(panel, published(panel)))
    assert "published totals" in alone.sentence()


def test_with_totals_nothing_of_the_clients_is_used_but_the_release() -> None:
    panel = country()
    learner, state = trained(panel)
    levels = choose(panel, ["state", "nation"])
    targets = Targets(levels, (1, 2), SATURDAY, totals_of(panel, published(panel)))
    now = panel.between(panel.start, panel.end - timedelta(days=20))
    first = [one for _, one in targets.made(clean(now), learner, state)]
    other = clean(replace(now, counts=now.counts[::-1]))
    again = [one for _, one in targets.made(other, learner, state)]
    for a, b in zip(first, again, strict=True):
        assert np.array_equal(a.quantiles, b.quantiles)
    assert first[0].point.sum() == pytest.approx(first[2].point[0])
    assert "public already; of the clients nothing is used but the release" in targets.sentence()
    summed = Targets(levels, (1, 2), SATURDAY)
    assert "no private release" in summed.sentence()


def test_no_later_day_of_totals_reaches_a_forecast() -> None:
    panel = country()
    learner, state = trained(panel)
    levels = choose(panel, ["state", "nation"])
    now = clean(panel.between(panel.start, panel.end - timedelta(days=20)))
    table = published(panel)
    last = now.panel.end + timedelta(days=1)
    later = pl.when(pl.col("date") > last).then(1e5).otherwise(pl.col("value"))
    made = [
        [
            one.quantiles
            for _, one in Targets(levels, (1, 2), SATURDAY, totals_of(panel, rows)).made(
                now, learner, state
            )
        ]
        for rows in (table, table.with_columns(value=later))
    ]
    assert all(np.array_equal(a, b) for a, b in zip(*made, strict=True))
    newest = pl.when(pl.col("date") == last).then(1e5).otherwise(pl.col("value"))
    known = totals_of(panel, table.with_columns(value=newest))
    moved = Targets(levels, (1,), SATURDAY, known).made(now, learner, state)
    assert not np.array_equal(moved[0][1].quantiles, made[0][0])


def test_a_backtest_scores_every_level_on_what_came(tmp_path: Path) -> None:
    panel = country(days=150)
    settings = settings_for(panel, {"learner": "trend", "epsilon": np.inf})
    first = panel.start + timedelta(days=100)
    origins = origins_between(first, panel.end, 7, panel, 7)
    targets = Targets(choose(panel, ["state", "nation"]), (1, 2), SATURDAY)
    result = run_backtest(panel, settings, origins, tmp_path, targets=targets, workers=1)
    result.write(tmp_path, panel)
    assert result.levels is not None
    table = result.levels.table
    assert set(table["target_date"].dt.weekday()) == {6}
    assert table["target_date"].max() <= panel.end  # type: ignore[operator]
    row = table.filter((pl.col("level") == "nation") & (pl.col("weeks_ahead") == 2)).row(
        0, named=True
    )
    to = (row["target_date"] - panel.start).days + 1
    assert row["truth"] == pytest.approx(panel.counts[:, to - 7 : to].sum() / 7)
    assert row["target_date"] - row["origin_date"] == timedelta(days=row["horizon"])
    stored = read_folder(tmp_path).backtest
    assert stored is not None and stored.levels is not None
    assert stored.levels.sort("origin_date", "region", "horizon").equals(
        table.select(stored.levels.columns).sort("origin_date", "region", "horizon")
    )
    groups = [(row["level"], row["weeks_ahead"]) for row in result.summary()["levels"]]
    assert groups == [("state", 1), ("state", 2), ("nation", 1), ("nation", 2)]
    references = {one.reference for one in result.levels.forecasts}
    assert len(result.levels.forecasts) == 4 * len(origins)
    assert all(day is not None and day.weekday() == 0 for day in references)


def test_totals_of_later_days_are_not_scored(tmp_path: Path) -> None:
    whole = country(days=150)
    panel = whole.between(whole.start, whole.end - timedelta(days=30))
    settings = settings_for(panel, {"learner": "trend", "epsilon": np.inf})
    origins = origins_between(panel.end - timedelta(days=28), panel.end, 7, panel, 7)
    totals = totals_of(whole, published(whole))
    targets = Targets(choose(panel, ["nation"]), (1, 3), SATURDAY, totals)
    found = run_backtest(panel, settings, origins, tmp_path, targets=targets, workers=1).levels
    assert found is not None
    assert (found.table["target_date"] <= panel.end).all()
    assert found.table["weeks_ahead"].unique().sort().to_list() == [1, 3]


def test_states_come_with_the_data(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"

    def states(table: str, **options: str) -> tuple[str, ...]:
        path.write_text(table)
        return load_panel(path, **options).states

    head = "date,region,cases,state\n"
    assert states(head + "2020-11-01,a,1,X\n2020-11-01,b,2,Y\n2020-11-02,b,2,Y\n") == ("X", "Y")
    assert states(head + "2020-11-01,a,1,X\n2020-11-01,b,2,\n") == ()
    assert states(head + "2020-11-01,a,1,sent\n2020-11-02,a,1,open\n") == ()
    assert states("date,state,cases\n2020-11-01,a,1\n2020-11-01,b,2\n", region="state") == ()


def test_the_states_of_real_counties(real_data: Path) -> None:
    found = levels_of(load_panel(real_data))["state"]
    assert len(found.regions) == 16
    assert found.members.sum() == 400
    assert found.members[found.regions.index("Bayern")].sum() == 96
