"""A year's budget that follows the released trend, and the filter that makes it sound."""

import json
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dp_accounting as dp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from epifed.errors import EpifedError
from epifed.federation.training_history import budget_of
from epifed.ledger.budget import Cap, plan_year, shares, total_of
from epifed.ledger.ledger import Ledger, OverspendError
from epifed.privacy.accounting import (
    calibrate,
    epsilon_of,
    epsilon_of_gaussian,
    spent,
    training_event,
)
from epifed.report.html.payload import ledger_summary
from tests.commands import epifed, refused
from tests.helpers import conforming

DELTA = 1e-5
CAP = Cap(1.0, DELTA, "gaussian")


@given(st.floats(0.05, 30), st.floats(1e-9, 1e-2))
def test_the_filter_is_the_closed_form_of_a_gaussian(c: float, delta: float) -> None:
    epsilon = spent(c, 1, 1, delta, "gaussian")
    mu = 1 / c
    if epsilon == 0:
        assert 2 * norm.cdf(mu / 2) - 1 <= delta
        return
    exact = norm.cdf(mu / 2 - epsilon / mu) - math.exp(
        epsilon + norm.logcdf(-mu / 2 - epsilon / mu)
    )
    assert exact <= delta
    assert exact == pytest.approx(delta, rel=1e-4)


@pytest.mark.parametrize("c", [0.8, 3.0, 20.0])
def test_the_filter_agrees_with_numerical_composition_and_lies_below_renyi(c: float) -> None:
    exact, numerical, renyi = (spent(c, 1, 7, DELTA, a) for a in ("gaussian", "pld", "rdp"))
    assert exact == pytest.approx(numerical, rel=2e-3)
    assert exact < renyi


@given(st.lists(st.floats(0.5, 40), min_size=1, max_size=20))
def test_releases_of_any_noise_cost_as_one_of_their_summed_precision(noises: list[float]) -> None:
    event = dp.ComposedDpEvent([training_event(1, c, 2) for c in noises])
    together = 1 / math.sqrt(sum(2 / c**2 for c in noises))
    assert epsilon_of(event, DELTA, "gaussian") == pytest.approx(
        spent(together, 1, 1, DELTA, "gaussian"), rel=1e-9
    )


def test_sampled_clients_are_refused() -> None:
    with pytest.raises(EpifedError, match=r"sampling rate: found 0\.25 with the accountant"):
        spent(4.0, 0.25, 75, DELTA, "gaussian")
    with pytest.raises(EpifedError, match="no filter is proven"):
        calibrate(1.0, DELTA, 0.25, 75, "gaussian")


def test_noise_is_calibrated_to_the_budget() -> None:
    found = calibrate(1.0, DELTA, 1, 52, "gaussian")
    assert found.epsilon_spent <= 1
    assert found.noise_multiplier == pytest.approx(math.sqrt(52 / total_of(CAP)), rel=2e-5)


def test_a_uniform_year_has_52_equal_weeks_that_cost_the_cap_together() -> None:
    weeks = plan_year(CAP, 52, "uniform")
    assert len(weeks) == 52
    assert np.ptp([w.noise_multiplier for w in weeks]) == pytest.approx(0, abs=1e-9)
    assert weeks[-1].epsilon_together == pytest.approx(1, rel=1e-6)
    assert weeks[0].epsilon_alone == pytest.approx(
        spent(weeks[0].noise_multiplier, 1, 1, DELTA, "gaussian"), rel=1e-6
    )


@given(st.lists(st.floats(-1.5, 1.5), max_size=60), st.integers(1, 60))
def test_no_past_makes_a_year_pass_its_cap(growth: list[float], weeks: int) -> None:
    planned = plan_year(CAP, weeks, "trend", growth)
    total = sum(1 / week.noise_multiplier**2 for week in planned)
    assert total == pytest.approx(total_of(CAP), rel=1e-9)
    assert epsilon_of_gaussian(total * (1 - 1e-9), DELTA) <= 1


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 8.0, 30.0])
def test_a_year_s_total_is_the_largest_within_the_cap(epsilon: float) -> None:
    total = total_of(Cap(epsilon, DELTA, "gaussian"))
    assert epsilon_of_gaussian(total, DELTA) <= epsilon
    assert epsilon_of_gaussian(total * (1 + 1e-8), DELTA) > epsilon


def test_what_was_spent_before_is_not_planned_again() -> None:
    total = total_of(CAP)
    planned = plan_year(CAP, 4, "uniform", spent=total / 2)
    assert sum(week.noise_multiplier**-2 for week in planned) == pytest.approx(total / 2)
    assert planned[0].epsilon_together > epsilon_of_gaussian(total / 2, CAP.delta)
    with pytest.raises(EpifedError, match="nothing is left of the cap"):
        plan_year(CAP, 4, "uniform", spent=total)


def test_a_week_depends_on_earlier_weeks_only() -> None:
    one = plan_year(CAP, 10, "trend", [0.3, 0.0, 0.0, 0.0])
    other = plan_year(CAP, 10, "trend", [0.3, 0.0, 0.0, 0.9])
    assert one[:4] == other[:4]
    assert one[4].shares != other[4].shares


def test_turning_weeks_get_more_and_flat_ones_less() -> None:
    assert shares([0.3, 0.1]) == shares([0.0, 0.10]) == 2
    assert shares([0.01, 0.02]) == 0.5
    assert shares([0.05, 0.0]) == shares([0.0, 0.05]) == 1
    planned = plan_year(CAP, 52, "trend", [0.3, 0.1, 0.1, 0.02, 0.01])
    assert [w.shares for w in planned[:7]] == [1, 1, 2, 1, 1, 0.5, 1]
    assert planned[2].epsilon_alone > planned[1].epsilon_alone > planned[5].epsilon_alone


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_only_a_proven_filter_may_follow_the_trend(accountant: str) -> None:
    with pytest.raises(EpifedError, match=f"found '{accountant}'.*no filter is proven"):
        plan_year(Cap(1.0, DELTA, accountant), 52, "trend")


def test_the_command_plans_a_year(tmp_path: Path) -> None:
    table = tmp_path / "growth.csv"
    table.write_text("week,growth\n2020-09-07,0.30\n2020-09-14,0.05\n")
    year = ("ledger", "plan", "--year", "--epsilon", "1", "--json")
    uniform = conforming("ledger plan", json.loads(epifed(*year, expect=0).stdout))
    assert len(uniform["weeks"]) == 52
    followed = epifed(*year, "--rule", "trend", "--growth", table, "--releases", "10", expect=0)
    weeks = conforming("ledger plan", json.loads(followed.stdout))["weeks"]
    assert [week["shares"] for week in weeks[:4]] == [1, 1, 2, 1]
    text = epifed(*year[:-1], "--rule", "trend", "--growth", table, expect=0).stdout
    assert "only released or public numbers may decide" in text
    sampled = refused(*year, "--rule", "trend", "--accountant", "pld", "--sampling-rate", "0.25")
    assert "no filter is proven" in sampled
    assert "--growth: found none" in refused(*year, "--rule", "trend")
    table.write_text("week,growth\n2020-09-07,fast\n")
    assert "fast" in refused(*year, "--rule", "trend", "--growth", table)


def test_a_cap_that_renews_holds_in_every_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cap = Cap(1.0, DELTA, "gaussian", weeks=52)
    ledger = Ledger.create(tmp_path / "year.db", cap)
    c = math.sqrt(2 / total_of(cap)) * 1.0001
    clock = datetime(2021, 1, 4, tzinfo=UTC)

    class Clock(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            del tz
            return clock

    monkeypatch.setattr("epifed.ledger.ledger.datetime", Clock)
    monkeypatch.setattr("epifed.ledger.budget.datetime", Clock)

    def train() -> None:
        with ledger.reserve(
            sampling_rate=1, noise_multiplier=c, rounds=1, settings_hash="x"
        ) as run:
            run.spend(1)
            run.finish("y")

    train()
    clock += timedelta(weeks=30)
    train()
    clock += timedelta(weeks=21)
    with pytest.raises(OverspendError, match="in every window of 52 weeks, which renews"):
        train()
    clock += timedelta(weeks=2)  # the first is older than 52 weeks now
    train()
    with pytest.raises(OverspendError):
        train()
    book = ledger.book()
    assert cap.price(book.taken()) <= 1
    assert cap.price(book.since_the_beginning()) == pytest.approx(
        epsilon_of_gaussian(3 / c**2, DELTA)
    )
    assert cap.price(book.since_the_beginning()) > 1
    assert "renews every 52 weeks: since the beginning all its releases" in book.renewal()
    # The page: what counts in the window, and beside it the total that no cap limits.
    budget = budget_of(book, None, None, None, set(), clock)
    assert budget.window == 52
    assert budget.spent == pytest.approx(epsilon_of_gaussian(2 / c**2, DELTA))
    assert budget.total == pytest.approx(epsilon_of_gaussian(3 / c**2, DELTA))
    assert [point.epsilon <= 1 for point in budget.points] == [True] * 3
    # A second release of a year fits whenever an older one has left the window.
    half_years = [clock.date() + timedelta(weeks=31 + 27 * k) for k in range(6)]
    assert book.weeks_that_fit((1, c, 1), half_years) == 6
    months = [clock.date() + timedelta(weeks=31 + 4 * k) for k in range(6)]
    assert book.weeks_that_fit((1, c, 1), months) == 1


def test_the_commands_show_both_totals_of_a_cap_that_renews(tmp_path: Path) -> None:
    path = tmp_path / "year.db"
    made = epifed(
        "ledger", "init", path, "--epsilon", "1", "--accountant", "gaussian", "--renew", "52",
        expect=0,
    )  # fmt: skip
    assert "in every window of 52 weeks" in made.stdout
    assert "adds up without end" in made.stdout
    shown = epifed("ledger", "show", path, expect=0).stdout
    assert "since the beginning ε = 0" in shown
    assert ledger_summary(path)["total"] == 0
