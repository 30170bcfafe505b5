"""One round, whoever brings the vectors: what a client sends, what is accepted and released."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from epifed.learners.base import Vector, Windows
from epifed.privacy.noise import SeededRandomness
from epifed.privacy.plan import PrivacyPlan
from epifed.settings import Settings
from epifed.training.rounds import Rounds, contribution
from tests.helpers import small_settings, windows_of
from tests.privacy.test_noise_variants import Silent

LENGTH = 5


class Loud(Silent):
    """Every client sends the same long vector, the second one nonsense."""

    length = LENGTH

    def contribute(self, state: Vector, view: Windows) -> Vector:
        rows = np.full((len(view), LENGTH), 10.0, dtype=np.float32)
        rows[1:2] = math.nan
        return rows


def rounds_of(settings: Settings, clients: int = 12) -> Rounds[Vector]:
    learner = Loud(settings)
    randomness = SeededRandomness(*np.random.SeedSequence(0).spawn(2))
    plan = PrivacyPlan.of(settings, clients)
    return Rounds.of(learner, plan, randomness, learner.start(np.random.SeedSequence(0)))


def test_a_client_clips_what_it_sends_and_a_broken_vector_is_zero() -> None:
    settings = small_settings(epsilon=1.0, clip_norm=0.5)
    plan, learner = PrivacyPlan.of(settings, 12), Loud(settings)
    sent = contribution(learner, np.zeros(LENGTH, np.float32), windows_of([2, 2, 2]), plan)
    assert sent.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(sent, axis=1), [0.5, 0.0, 0.5], rtol=1e-6)
    assert all(rounds_of(settings).accept(row) is None for row in sent)


@pytest.mark.parametrize("clients", [1, 2, 3])
def test_alone_each_client_is_computed_without_the_others(clients: int) -> None:
    settings, seen = small_settings(epsilon=1.0), list[int]()

    class Counting(Loud):
        def contribute(self, state: Vector, view: Windows) -> Vector:
            seen.append(len(view))
            return super().contribute(state, view)

    plan, view = PrivacyPlan.of(settings, 12), windows_of([2] * clients)
    state = np.zeros(LENGTH, np.float32)
    sent = contribution(Counting(settings), state, view, plan, alone=True)
    assert (seen, sent.shape) == ([1] * clients, (clients, LENGTH))
    contribution(Counting(settings), state, view, plan)
    assert seen[clients:] == [clients], "together, if nothing else is asked for"


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (np.zeros(LENGTH, dtype=np.float32), None),
        (np.zeros(LENGTH, dtype=np.float64), "dtype"),
        (np.zeros(LENGTH + 1, dtype=np.float32), "shape"),
        (np.zeros((1, LENGTH), dtype=np.float32), "shape"),
        (np.full(LENGTH, math.nan, dtype=np.float32), "not-finite"),
        (np.full(LENGTH, -math.inf, dtype=np.float32), "not-finite"),
        (np.full(LENGTH, 0.5, dtype=np.float32), "norm"),
        (np.full(LENGTH, 3e38, dtype=np.float32), "norm"),
    ],
)
def test_what_does_not_fit_is_named_in_one_word(row: NDArray[np.float32], reason: str) -> None:
    assert rounds_of(small_settings(epsilon=1.0, clip_norm=0.5)).accept(row) == reason


def test_the_mean_is_over_the_fixed_m_and_the_learner_is_told_the_noise() -> None:
    settings = small_settings(epsilon=math.inf, clients_per_round=6)
    rounds = rounds_of(settings)
    closed = rounds.close(np.zeros(LENGTH, np.float32), np.ones((3, LENGTH), dtype=np.float32))
    np.testing.assert_allclose(closed, np.full(LENGTH, 0.5), rtol=1e-6)
    private = rounds_of(settings.but(epsilon=1.0))
    assert isinstance(private.learner, Silent)
    private.close(np.zeros(LENGTH, np.float32), private.empty_rows())
    assert private.learner.told == [0.5 * private.plan.noise_multiplier / 6]
