"""The one-shot learner against weighted least squares by NumPy, and what noise may do to it."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from epifed.data.readers import read_prepared
from epifed.errors import EpifedError
from epifed.evaluation import score
from epifed.learners.base import Windows, make_learner, recency
from epifed.learners.one_shot import LARGEST_RESIDUAL, OneShot
from epifed.settings import PERIODS, Settings, seed_sequence
from epifed.training.loop import make_clients, train
from epifed.training.release import read_release
from tests.helpers import START, small_clients, small_panel, windows_of

Floats = NDArray[np.float64]
NOTHING = np.zeros(2, dtype=np.float32)


def one_shot(clients: int = 12, **changes: object) -> Settings:
    return Settings.for_learner("one-shot", clients, **changes)


def design(inputs: Floats) -> tuple[Floats, Floats, Floats]:
    """The features of one window after another, from the words of the documentation."""
    last, level = inputs[:, -1], inputs.mean(axis=1) + 1
    trend = 3 * ((last - inputs[:, 0]) + (last - inputs[:, -4])) / level
    return np.stack([np.ones_like(last), np.clip(trend, -1, 1)], axis=1), last, level


def weighted_least_squares(windows: Windows, half_life: float | None) -> Floats:
    """All clients' windows in one pot, each client's recency weights summing to one."""
    rows, targets, weights = [], [], []
    for k in range(len(windows)):
        own = windows.mask[k]
        y = windows.targets[k][own].astype(np.float64)
        x, last, level = design(windows.inputs[k][own].astype(np.float64))
        days = windows.target_days[k][own]
        age = (days.max() - days).astype("timedelta64[D]").astype(float)
        recent = 0.5 ** (age / half_life) if half_life else np.ones(len(y))
        weight = recent / recent.sum() * level / (level + 30)
        weight = weight * np.minimum((level / (y + 1)) ** 1.5, 3)
        rows.append(x)
        targets.append(np.clip((y - last) / level, -1.5, 1.5))
        weights.append(weight)
    root = np.sqrt(np.concatenate(weights))
    solution: Floats = np.linalg.lstsq(
        np.concatenate(rows) * root[:, None], np.concatenate(targets) * root, rcond=None
    )[0]
    return solution


@pytest.mark.parametrize("half_life", [None, 2.0])
def test_without_noise_it_is_weighted_least_squares(half_life: float | None) -> None:
    settings = one_shot(epsilon=math.inf, half_life=half_life)
    clients = small_clients(settings)
    training = train(clients.view, settings)
    expected = weighted_least_squares(clients.train, half_life)
    np.testing.assert_allclose(training.vector, expected, rtol=1e-4, atol=1e-6)
    x, last, level = design(clients.test.inputs[0].astype(np.float64))
    np.testing.assert_allclose(
        training.predict(clients.test.inputs[:1])[0],
        np.maximum(last + level * (x @ expected), 0), rtol=1e-4,
    )  # fmt: skip


def test_padding_and_unequal_lengths_do_not_matter() -> None:
    settings = one_shot(3, epsilon=math.inf)
    windows = windows_of([5, 2, 9])
    learner = OneShot(settings)
    together = learner.contribute(NOTHING, windows)
    for k in range(3):
        own = windows.mask[k]
        alone = Windows(
            windows.inputs[k : k + 1, own], windows.targets[k : k + 1, own],
            windows.mask[k : k + 1, own], windows.target_days[k : k + 1, own],
        )  # fmt: skip
        np.testing.assert_allclose(
            learner.contribute(NOTHING, alone)[0], together[k], rtol=1.3e-6, atol=1e-5
        )


@given(
    counts=st.lists(st.floats(0, 1e6, width=32), min_size=11, max_size=11),
    epsilon=st.sampled_from([0.05, 0.3, 5.0]),
)
def test_contributions_are_bounded_whatever_the_counts(counts: list[float], epsilon: float) -> None:
    values = np.array(counts, dtype=np.float32)
    windows = Windows(
        values[None, None, :10], values[None, 10:], np.ones((1, 1), dtype=np.bool_),
        np.full((1, 1), np.datetime64("2020-11-01")),
    )  # fmt: skip
    sent = OneShot(one_shot(1, epsilon=epsilon)).contribute(NOTHING, windows)
    assert np.isfinite(sent).all()
    gram_and_moment = math.sqrt(3 * 0.15**2 + 2 * LARGEST_RESIDUAL**2)
    assert float(np.linalg.norm(sent)) <= 3 * gram_and_moment + 1e-5


@given(
    release=st.lists(st.floats(-1e6, 1e6), min_size=5, max_size=5),
    noise=st.floats(1e-3, 1e6),
    counts=st.lists(st.floats(0, 1e5, width=32), min_size=10, max_size=10),
)
def test_no_release_makes_nonsense(release: list[float], noise: float, counts: list[float]) -> None:
    learner = OneShot(one_shot(epsilon=0.1))
    state = learner.step(NOTHING, np.array(release, dtype=np.float32), noise)
    assert np.isfinite(state).all()
    window = np.array([counts], dtype=np.float32)
    predicted = float(learner.predict(state, window)[0])
    bound = LARGEST_RESIDUAL * (float(window.mean()) + 1)
    assert 0 <= predicted <= (float(window[0, -1]) + bound) * (1 + 1e-5)


@given(release=st.lists(st.floats(-1, 1), min_size=5, max_size=5))
def test_with_ever_more_noise_it_becomes_persistence(release: list[float]) -> None:
    learner = OneShot(one_shot(epsilon=0.1))
    windows = windows_of([4]).inputs
    for noise in (1e3, 1e6):
        noisy = np.float32(noise) * np.array(release, dtype=np.float32)
        state = learner.step(NOTHING, noisy, noise)
        assert float(np.linalg.norm(state)) < 0.1 / noise
    np.testing.assert_allclose(
        learner.predict(state, windows), windows[..., -1], rtol=1.3e-6, atol=1e-5
    )


def test_more_rounds_than_one_are_refused() -> None:
    with pytest.raises(EpifedError, match="rounds: found 2 with learner 'one-shot'; expected 1"):
        make_learner(one_shot(rounds=2))


def test_the_newest_window_of_each_client_counts_one_and_older_ones_less() -> None:
    windows = windows_of([3, 2])
    days = np.datetime64("2020-11-10") - np.array([[4, 2, 0], [1, 0, 99]])
    windows = Windows(windows.inputs, windows.targets, windows.mask, days)
    found = recency(windows, 2.0, Settings())
    np.testing.assert_allclose(found, [[0.25, 0.5, 1], [2**-0.5, 1, 0]], rtol=1e-6)
    alike = recency(windows, 2.0, Settings(split="shuffled"))
    np.testing.assert_array_equal(alike, windows.mask)


def test_a_secure_training_is_stored_and_read_back(tmp_path: Path) -> None:
    settings = one_shot(epsilon=1.0)
    clients = small_clients(settings)
    period = (START, small_panel().end)
    training = train(clients.view, settings, secure=True, period=period)
    assert training.release is not None
    training.release.write(tmp_path / "m")
    again = read_release(tmp_path / "m")
    assert (again.first_day, again.last_day, again.clients) == (*period, len(clients))
    np.testing.assert_array_equal(
        again.learner.predict(again.state_on(period[1]), clients.test.inputs),
        training.predict(clients.test.inputs),
    )
    assert set(score(training, clients)["method"]) == {"one-shot", "persistence"}


def test_at_a_tenth_it_beats_persistence_on_the_paper_s_hardest_cell(real_data: Path) -> None:
    panel = read_prepared(real_data)
    settings = one_shot(400, epsilon=0.1, smoothing="centered", history=11, min_windows=11)
    clients = make_clients(panel, settings, PERIODS["2022-03"])
    found = [
        score(train(clients.view, settings, seeds=seed_sequence(i)), clients)["r2"].to_list()
        for i in range(15)
    ]
    ours, persistence = np.mean(found, axis=0)
    assert persistence == pytest.approx(0.7809, abs=1e-3)
    assert ours > 0.87
