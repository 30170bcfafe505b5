"""The simulated list is as late as the real one, and ends as the final counts."""

from datetime import date, timedelta

import numpy as np
import polars as pl
import pytest

from epifed.data.vintages import Floats, Vintages
from epifed.simulate import Simulation, SimulationSettings, simulate
from epifed.simulate.simulation import KNOWN_ONSET, MORNINGS, Mornings, vintages

# Known / final by lag in the RKI's list of August to October 2020.
REAL = [0.50, 0.87, 0.94, 0.97, 0.98, 0.99, 0.99, 0.99]
# The same of the first mornings, for reports of Monday … Sunday.
REAL_WEEK = [
    [0.53, 0.49, 0.54, 0.51, 0.51, 0.36, 0.35],
    [0.91, 0.91, 0.90, 0.91, 0.81, 0.74, 0.88],
    [0.97, 0.97, 0.97, 0.95, 0.87, 0.93, 0.96],
    [0.98, 0.98, 0.98, 0.96, 0.96, 0.98, 0.98],
]
# Of the county-days with so many cases in the end, the share that shows none on the first morning.
# At weekends only 29 real county-days, of 8 counties, have 30 or more; in the week 170, of 21.
NONE_YET = [
    (3, 10, "week", 0.31),
    (3, 10, "weekend", 0.59),
    (10, 30, "week", 0.25),
    (10, 30, "weekend", 0.54),
    (30, np.inf, "week", 0.32),
    (30, np.inf, "all", 0.36),
]


@pytest.fixture(scope="module")
def country() -> Simulation:
    return simulate(SimulationSettings(counties=200, communities=400, seed=3))


@pytest.fixture(scope="module")
def late(country: Simulation) -> Vintages:
    return vintages(country)


def _first_and_last(known: Floats) -> tuple[Floats, Floats]:
    """What is known of four weeks before Christmas at first and in the end."""
    return known[:28, :, 0], known[28:56, :, 28]


def test_completeness_by_lag_is_the_real_one(late: Vintages) -> None:
    table = late.completeness(8).filter(pl.col("weekday").is_null()).sort("lag")
    assert table["share"].to_list() == pytest.approx(REAL, abs=0.05)


def test_less_is_known_after_a_weekend_as_in_the_real_list(late: Vintages) -> None:
    table = late.completeness(4).drop_nulls("weekday").sort("lag", "weekday")
    found = table["share"].to_numpy().reshape(4, 7)
    assert np.abs(found - REAL_WEEK).max() < 0.06


def test_less_is_known_after_a_holiday(country: Simulation, late: Vintages) -> None:
    final = country.county_panel

    def known(day: date) -> float:
        on = late.as_known(day + timedelta(days=1), like=final)
        return float(on.counts[:, -1].sum() / final.counts[:, final.index(day)].sum())

    christmas = known(date(2020, 12, 25))
    fridays = [known(date(2020, 12, day)) for day in (4, 11, 18)]
    assert christmas < 0.85 * np.mean(fridays)


def test_authorities_differ_as_the_real_ones_do(late: Vintages) -> None:
    known, now = _first_and_last(late.known(30))
    missing = 1 - known.sum(axis=0) / now.sum(axis=0)
    assert np.quantile(missing, [0.1, 0.5, 0.9]) == pytest.approx([0.12, 0.5, 0.85], abs=0.12)


def test_a_day_is_late_as_a_whole_as_often_as_in_the_real_list(late: Vintages) -> None:
    countries = (SimulationSettings(counties=200, communities=400, seed=seed) for seed in (4, 5))
    lists = [late.known(30), *(vintages(simulate(other)).known(30) for other in countries)]
    known, now = (
        np.concatenate(parts, axis=1) for parts in zip(*map(_first_and_last, lists), strict=True)
    )
    weekend = (late.first.weekday() - 1 + np.arange(28)) % 7 >= 5
    for least, most, days, real in NONE_YET:
        inside = {"week": ~weekend, "weekend": weekend, "all": np.full(28, True)}[days]
        some = (now[inside] >= least) & (now[inside] < most)
        assert (known[inside][some] == 0).mean() == pytest.approx(real, abs=0.08)


def test_in_the_end_it_is_the_final_count(country: Simulation, late: Vintages) -> None:
    panel = country.county_panel
    assert len(late.snapshots) == MORNINGS
    assert late.last == panel.end + timedelta(days=1)
    known = late.as_known(late.last, like=panel)
    assert (known.counts[:, :-28] == panel.counts[:, :-28]).all()
    assert known.counts[:, -1].sum() < 0.7 * panel.counts[:, -1].sum()
    onsets = late.changes.filter(pl.col("onset").is_not_null())
    share = int(onsets["cases"].sum()) / int(late.changes["cases"].sum())
    assert share == pytest.approx(KNOWN_ONSET, abs=0.02)
    delay = (onsets["reported"] - onsets["onset"]).dt.total_days()
    mean = int((delay * onsets["cases"]).sum()) / int(onsets["cases"].sum())
    assert mean == pytest.approx(4.5, abs=1.0)


def test_the_same_seed_gives_the_same_list() -> None:
    settings = SimulationSettings(counties=5, communities=20, days=30, seed=4)
    assert vintages(simulate(settings)).digest() == vintages(simulate(settings)).digest()


def test_any_morning_knows_what_had_come_by_then(country: Simulation) -> None:
    mornings, final = Mornings(country), country.county_panel
    day = final.end - timedelta(days=40)
    known = mornings.on(day)
    assert known.end == day - timedelta(days=1)
    now = final.counts[:, : known.counts.shape[1]]
    assert (known.counts[:, :-28] == now[:, :-28]).all()
    by_lag = [
        sum(mornings.on(day + timedelta(days=i)).counts[:, -1 - lag].sum() for i in range(28))
        / sum(final.counts[:, now.shape[1] - 1 - lag + i].sum() for i in range(28))
        for lag in range(8)
    ]
    assert by_lag == pytest.approx(REAL, abs=0.05)


def test_the_history_of_a_morning_is_what_was_known_on_those_before(country: Simulation) -> None:
    mornings, last = Mornings(country), country.county_panel.end - timedelta(days=20)
    history = mornings.history(last, 30)
    assert history.snapshots[0] == last - timedelta(days=29)
    for morning in (history.snapshots[0], last - timedelta(days=3), last):
        known = history.as_known(morning, like=country.county_panel)
        assert (known.counts == mornings.on(morning).counts).all()
