"""The shared trend: bounded contributions, what the server keeps, how noise is weighed."""

import math
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from epifed.data.calendar import WEEK
from epifed.data.panel import CasePanel
from epifed.errors import EpifedError
from epifed.learners.base import Vector, settings_for
from epifed.learners.growth import (
    DAMPING,
    FOLLOW,
    GROWTH,
    HISTORY,
    LASTING,
    LEVEL,
    NUMBERS,
    REVERTING,
    TYPICAL,
    Releases,
    signals,
)
from epifed.learners.trend import LARGEST_CHANGE, LEVEL_SHARE, LastDays, Trend
from epifed.settings import Settings, seed_sequence
from epifed.training.loop import make_clients, train
from tests.helpers import START, small_panel

TREND = Settings.for_learner("trend", 12, epsilon=math.inf)
LEARNER = Trend(TREND)
UNKNOWN = LEARNER.start(seed_sequence(0))


def panel_of(counts: NDArray[np.float64]) -> CasePanel:
    return CasePanel(counts, tuple(f"{i:05d}" for i in range(len(counts))), START)


def contributions(counts: NDArray[np.float64], learner: Trend = LEARNER) -> Vector:
    panel = panel_of(counts.astype(np.float64))
    return learner.contribute(UNKNOWN, learner.view(panel, (panel.start, panel.end)))


def placed(panel: CasePanel) -> CasePanel:
    """The same regions, scattered over a map."""
    rng = np.random.default_rng(3)
    return replace(panel, positions=rng.uniform((6, 47), (15, 55), (len(panel.regions), 2)))


def released(growth: float, noise: float, level: float = 0.0) -> Releases:
    return LEARNER.step(UNKNOWN, np.array([growth, LEVEL_SHARE * level], dtype=np.float32), noise)


def same(one: Releases, two: Releases) -> None:
    np.testing.assert_allclose(one.values, two.values, rtol=1.3e-6, atol=1e-5)
    np.testing.assert_allclose(one.precision, two.precision, rtol=1.3e-6, atol=1e-5)


@given(st.lists(st.lists(st.integers(0, 10**6), min_size=21, max_size=21), min_size=1, max_size=5))
def test_a_contribution_is_two_numbers_of_bounded_norm(counts: list[list[int]]) -> None:
    rows = contributions(np.array(counts))
    assert rows.shape == (len(counts), 2)
    assert float(np.abs(rows[:, 0]).max()) <= LARGEST_CHANGE * (1 + 1e-6)
    assert float(np.linalg.norm(rows, axis=1).max()) <= TREND.clip_norm * (1 + 1e-6)


@given(st.integers(0, 2**32 - 1), st.floats(0.01, 1e5))
def test_with_places_it_is_five_within_the_same_kind_of_bound(seed: int, level: float) -> None:
    rng = np.random.default_rng(seed)
    panel = placed(small_panel())
    counts = rng.poisson(level, panel.counts.shape).astype(float)
    settings = settings_for(panel, {"learner": "trend", "epsilon": 20.0})
    learner = Trend(settings)
    rows = learner.contribute(
        UNKNOWN, learner.view(replace(panel, counts=counts), (panel.start, panel.end))
    )
    assert rows.shape == (12, len(NUMBERS))
    assert float(np.linalg.norm(rows, axis=1).max()) <= settings.clip_norm * (1 + 1e-6)


def test_a_change_does_not_depend_on_the_size_of_the_region() -> None:
    days = np.array([100, 90, 120, 110, 105, 70, 40], dtype=float)
    counts = np.concatenate([days, days, 1.1 * days])[None]
    small, large = contributions(10 * counts)[0], contributions(10_000 * counts)[0]
    np.testing.assert_allclose(small, large, atol=2e-3, rtol=0)
    assert float(small[0]) == pytest.approx(0.1 / 2.1, rel=0.01)


def test_the_last_day_counts_most() -> None:
    counts = np.full((7, 21), 50.0)
    counts[np.arange(7), 20 - np.arange(7)] = 60
    grown = contributions(counts)[:, 0]
    assert (np.diff(grown) < 0).all()
    # Weights fall by the recency of 0.2 from day to day.
    assert float(grown[1] / grown[0]) == pytest.approx(0.2, rel=0.1)


def test_the_level_is_by_inhabitants_or_by_the_own_average() -> None:
    """From the docstring: tanh of a third of the log of daily cases per exp(2.5) in 100,000."""
    counts = np.full((1, 28), 40.0)
    counts[0, -WEEK:] = 80
    panel = panel_of(counts)
    known = replace(panel, population=np.array([200_000]))
    level = LEARNER.view(known, (known.start, known.end)).level[0]
    assert level == pytest.approx(math.tanh((math.log(80 / 2) - 2.5) / 3), abs=1e-3)
    own = LEARNER.view(panel, (panel.start, panel.end)).level[0]
    assert own == pytest.approx(math.tanh(math.log(80 / 50) / 3), abs=1e-2)


def test_without_noise_the_state_is_the_mean_over_the_clients() -> None:
    panel = small_panel()
    view = LEARNER.deployed_view(panel, (panel.start, panel.end))
    training = train(view, TREND)
    rows = LEARNER.contribute(training.state, view)
    expected = rows.mean(axis=0) / [1, LEVEL_SHARE]
    np.testing.assert_allclose(training.state.values[0, :2], expected, rtol=1.3e-6, atol=1e-5)
    assert (training.state.precision[1:] == 0).all()
    assert (training.state.precision[0, 2:] == 0).all()


@pytest.mark.parametrize("days", [21, 40, 180])
def test_a_training_for_use_reads_the_newest_days_however_long_the_period_is(days: int) -> None:
    panel = small_panel(days=190)
    last = panel.end - timedelta(days=5)
    view = LEARNER.deployed_view(panel, (last - timedelta(days=days - 1), last))
    newest = panel.counts[:, -14 - 5 : -5]
    weight = 0.2 ** np.arange(WEEK)[::-1]
    now, before = (newest[:, part] @ weight for part in (slice(7, 14), slice(0, 7)))
    np.testing.assert_allclose(view.change, (now - before) / (now + before + 0.5), rtol=1e-9)


def test_an_experiment_s_training_ends_before_the_days_that_are_tested() -> None:
    panel = small_panel(days=60)
    clients = make_clients(panel, TREND)
    last = clients.train.target_days.max().astype("datetime64[D]").item()
    assert last < clients.test.target_days.min().astype("datetime64[D]").item()
    expected = LEARNER.view(panel.between(panel.start, last), (panel.start, last))
    assert isinstance(clients.view, LastDays)
    np.testing.assert_array_equal(clients.view.change, expected.change)


def test_a_steady_trend_is_followed_and_an_unknown_one_is_persistence() -> None:
    growth = math.log(1.2)
    change = (1.2 - 1) / (1.2 + 1)
    assert signals(released(change, 0.0)).growth[0] == pytest.approx(FOLLOW * growth, rel=1e-6)
    nothing = signals(UNKNOWN)
    assert (nothing.growth == 0).all() and np.isnan(nothing.level).all()
    windows = np.full((3, 10), 40.0, dtype=np.float32)
    assert (Trend(TREND).predict(UNKNOWN, windows) == 40).all()
    ahead = Trend(TREND).predict(released(change, 0.0), windows)
    assert float(ahead[0]) == pytest.approx(40 * 1.2**FOLLOW, rel=1e-5)


def test_nothing_released_is_the_last_week_again() -> None:
    panel = small_panel()
    for horizon in (7, 14, 28):
        found = LEARNER.hindcast(panel, UNKNOWN, horizon)[:, -1]
        np.testing.assert_allclose(found, panel.counts[:, -WEEK:].mean(axis=1), rtol=1e-12)


@given(noise=st.floats(0.001, 1000))
def test_noise_shrinks_the_forecast_as_far_as_a_typical_trend_allows(noise: float) -> None:
    """Of one release, the share typical² / (typical² + noise²) of the change is believed."""
    found = float(signals(released(0.1, noise)).growth[0])
    share = TYPICAL[GROWTH] ** 2 / (TYPICAL[GROWTH] ** 2 + noise**2)
    assert found == pytest.approx(FOLLOW * 2 * math.atanh(share * 0.1), rel=1e-4, abs=1e-9)


def test_two_releases_of_the_same_day_are_weighted_by_their_precision() -> None:
    both = LEARNER.join(released(0.0, 0.1), released(0.4, 0.2))
    expected = 0.4 * 0.2**-2 / (0.1**-2 + 0.2**-2)
    assert float(both.values[0, GROWTH]) == pytest.approx(expected, rel=1e-5)
    assert float(both.precision[0, GROWTH]) == pytest.approx(0.1**-2 + 0.2**-2, rel=1e-5)
    same(LEARNER.join(UNKNOWN, both), both)
    same(LEARNER.unpack(LEARNER.pack(both)), both)


def test_a_noisy_release_is_weighed_against_what_the_last_ones_let_expect() -> None:
    quiet = UNKNOWN
    for _ in range(8):
        quiet = LEARNER.join(LEARNER.advance(quiet, WEEK), released(0.0, 0.01))
    alone = signals(released(0.2, 0.1)).growth[0]
    after = signals(LEARNER.join(LEARNER.advance(quiet, WEEK), released(0.2, 0.1))).growth[0]
    assert 0 < after < alone


def test_how_much_to_follow_is_learned_from_what_the_level_did() -> None:
    """A country whose level does not follow its growth teaches that little follows."""
    deaf, true = UNKNOWN, UNKNOWN
    for week in range(20):
        wave = 0.15 * (-1) ** week
        # After a growth of 2 atanh(0.15) the true level has moved by a third of it.
        deaf = LEARNER.join(LEARNER.advance(deaf, WEEK), released(wave, 0.0))
        moved = 2 * math.atanh(0.15) / 3 * (week % 2)
        true = LEARNER.join(LEARNER.advance(true, WEEK), released(wave, 0.0, moved))
    ignored, followed = (abs(signals(state).growth[0]) for state in (deaf, true))
    assert ignored < 0.75 * followed
    assert followed == pytest.approx(FOLLOW * 2 * math.atanh(0.15), rel=0.1)


@pytest.mark.parametrize("noise", [0.0, 0.002])
@pytest.mark.parametrize("weeks", [1, 4])
def test_surprises_are_what_the_level_did_beyond_the_growth_that_was_followed(
    noise: float, weeks: int
) -> None:
    """No growth was said while cases doubled and halved: the log changes are the surprises."""
    heights = [0.0, 0.7, 0.0, -0.7, 0.4, 0.9, -0.2]
    state = UNKNOWN
    for height in heights:
        told = released(0.0, noise, math.tanh(height / 3))
        state = LEARNER.join(LEARNER.advance(state, WEEK), told)
    found = LEARNER.surprises(state, weeks * WEEK)
    newest_first = heights[::-1]
    changes = [a - b for a, b in zip(newest_first, newest_first[weeks:], strict=False)]
    assert found[:, 0] == pytest.approx(changes, abs=1e-4)
    slopes = [3 / (1 - math.tanh(h / 3) ** 2) for h in newest_first]
    in_both = [a * a + b * b for a, b in zip(slopes, slopes[weeks:], strict=False)]
    assert found[:, 1] == pytest.approx([(noise / LEVEL_SHARE) ** 2 * v for v in in_both], abs=1e-6)
    assert LEARNER.surprises(state, 3).shape == LEARNER.surprises(UNKNOWN, 7).shape == (0, 2)


@given(st.integers(0, 300), st.integers(0, 300))
def test_advancing_twice_is_advancing_once(first: int, second: int) -> None:
    state = released(0.3, 0.1)
    same(
        LEARNER.advance(LEARNER.advance(state, first), second),
        LEARNER.advance(state, first + second),
    )


@pytest.mark.parametrize("days", [1, 7, 21])
def test_an_old_release_fades_to_like_today(days: int) -> None:
    state = released(0.2, 0.0)
    fresh, old = (signals(LEARNER.advance(state, age)).growth[0] for age in (0, days))
    assert old == pytest.approx(fresh * LASTING[GROWTH] ** (days / WEEK), rel=1e-9)
    assert (signals(LEARNER.advance(state, HISTORY)).growth == 0).all()


def test_further_ahead_the_growth_is_damped() -> None:
    windows = np.full((1, 10), 10.0, dtype=np.float32)
    state = released(0.1, 0.0)
    weeks = [
        math.log(float(Trend(TREND.but(horizon=7 * week)).predict(state, windows)[0]) / 10)
        for week in (1, 2, 3)
    ]
    assert weeks[1] - weeks[0] == pytest.approx(DAMPING * weeks[0], rel=1e-4)
    assert weeks[2] - weeks[1] == pytest.approx(DAMPING**2 * weeks[0], rel=1e-4)


def test_a_level_above_the_country_s_comes_back() -> None:
    days = np.tile([40.0], 70)
    panel = replace(panel_of(np.stack([days, days])), population=np.array([100_000, 20_000]))
    middle = math.tanh((math.log(40) - 2.5) / 3)
    found = LEARNER.hindcast(panel, released(0.0, 0.0, middle), 7)[:, -1]
    assert found[0] == pytest.approx(40, rel=0.01)
    assert 40 * math.exp(-REVERTING * 1.5) * 0.99 < found[1] < 36


def test_the_map_has_more_than_one_colour_where_places_differ() -> None:
    """A growth that depends on the latitude alone is found there, and forecast."""
    panel = placed(small_panel(regions=200))
    assert panel.positions is not None
    north = panel.positions[:, 1]
    north = (north - north.mean()) / north.std()
    counts = np.full(panel.counts.shape, 1000.0)
    counts[:, -WEEK:] *= np.exp(0.1 * north)[:, None]
    panel = replace(panel, counts=counts)
    settings = settings_for(panel, {"learner": "trend", "epsilon": math.inf})
    learner = Trend(settings)
    state = train(learner.deployed_view(panel, (panel.start, panel.end)), settings).state
    parts = learner.parts(panel, state, 7)
    assert float(np.corrcoef(parts.place, north)[0, 1]) > 0.95
    assert np.ptp(parts.place) > 0.1
    assert np.ptp(parts.country) == 0


@pytest.mark.parametrize("horizon", [1, 5, 7, 14])
def test_the_parts_of_a_change_add_up_to_it(horizon: int) -> None:
    panel = placed(small_panel(regions=60, days=120))
    panel = replace(panel, counts=panel.counts + 50, calendars=("DE",) * 60)
    settings = settings_for(panel, {"learner": "trend", "epsilon": math.inf})
    learner = Trend(settings)
    state = train(learner.deployed_view(panel, (panel.start, panel.end)), settings).state
    parts = learner.parts(panel, state, horizon)
    together = parts.country + parts.place + parts.own + parts.calendar
    point = learner.hindcast(panel, state, horizon)[:, -1]
    change = np.log(point / panel.counts[:, -WEEK:].mean(axis=1))
    np.testing.assert_allclose(together, change, atol=0.02)


def test_few_clients_send_two_numbers_and_many_send_five() -> None:
    panel = placed(small_panel(regions=200))
    numbers = {
        epsilon: settings_for(panel, {"learner": "trend", "epsilon": epsilon}).own["modes"]
        for epsilon in (0.1, 0.5, 0.6, 1.0, math.inf)
    }
    assert numbers == {0.1: 0, 0.5: 1, 0.6: 1, 1.0: 3, math.inf: 3}
    nowhere = replace(panel, population=None, positions=None)
    assert settings_for(nowhere, {"learner": "trend"}).own["modes"] == 0


def test_a_region_without_facts_gets_the_forecast_of_the_country() -> None:
    panel = placed(small_panel(regions=30))
    settings = settings_for(panel, {"learner": "trend", "epsilon": 10.0})
    learner = Trend(settings)
    state = train(learner.deployed_view(panel, (panel.start, panel.end)), settings).state
    alone = replace(panel.of(panel.regions[:1]), positions=None, population=None)
    assert (learner.parts(alone, state, 7).place == 0).all()


def test_days_between_releases_are_interpolated() -> None:
    early, late = released(0.0, 0.0, 0.1), released(0.1, 0.0, 0.3)
    found = signals(LEARNER.join(LEARNER.advance(early, 10), late))
    assert found.level[5] == pytest.approx(0.2)
    assert (np.diff(found.growth[:11]) < 0).all()
    assert (found.growth[11:] == 0).all() and np.isnan(found.level[11:]).all()
    assert LEVEL == 1


def test_the_shuffled_split_and_a_short_history_are_refused() -> None:
    with pytest.raises(EpifedError, match="expected the temporal split"):
        make_clients(small_panel(), TREND.but(split="shuffled"))
    words = "found 13 days up to 2020-10-13 for learner 'trend'; expected at least 14"
    with pytest.raises(EpifedError, match=words):
        contributions(np.ones((2, 13)))
