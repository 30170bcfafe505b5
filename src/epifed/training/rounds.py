"""One round of Algorithm 1: draw clients, accept their vectors, release the noisy mean.

A training in one process and a federation of machines use the same code. They differ only in how
vectors arrive. A client only ever sends one vector of norm at most S.
"""

import math
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from epifed.learners.base import Learner, Vector, View
from epifed.privacy.noise import Randomness, Rows, clip, from_grid, longest_sum, norms
from epifed.privacy.plan import PrivacyPlan

S = TypeVar("S")

SLACK = 1e-4
"""Relative amount by which rounding may let a clipped vector's norm exceed S."""


def contribution(
    learner: Learner[S, Any], state: S, view: View, plan: PrivacyPlan, *, alone: bool = False
) -> Vector:
    """The vectors that these clients send, one row each, clipped to S; a broken one is zero.

    With `alone`, each is computed without the others. In a stack the last bits of a client's
    32-bit numbers depend on the other clients, by up to 1e-6 S in all. No release may show that.
    """
    if alone and len(view) > 1:
        each = (view.of(np.array([row], dtype=np.int64)) for row in range(len(view)))
        return np.concatenate([contribution(learner, state, one, plan) for one in each])
    rows = learner.contribute(state, view)
    return clip(rows, plan.bound).astype(np.float32, copy=False)


def vector_length(learner: Learner[S, Any], state: S) -> int:
    """The length of a client's vector."""
    return int(learner.contribute(state, learner.empty_view()).shape[1])


@dataclass(frozen=True)
class Rounds(Generic[S]):
    """The rounds of one training: draw clients, accept vectors, release the noisy mean."""

    learner: Learner[S, Any]
    plan: PrivacyPlan
    randomness: Randomness
    length: int
    """The length of a client's vector."""

    @classmethod
    def of(
        cls, learner: Learner[S, Any], plan: PrivacyPlan, randomness: Randomness, start: S
    ) -> "Rounds[S]":
        """The rounds of a training that starts from this state."""
        return cls(learner, plan, randomness, vector_length(learner, start))

    def draw(self) -> NDArray[np.int64]:
        """Draw the cohort of a round, as row numbers of the N clients."""
        return self.randomness.sample(self.plan)

    def accept(self, row: NDArray[Any]) -> str | None:
        """One word on why a vector must not enter the sum, or none if it may."""
        if row.dtype != np.float32:
            return "dtype"
        if row.shape != (self.length,):
            return "shape"
        (norm,) = norms(row[None])
        if not math.isfinite(norm):
            return "not-finite"
        if norm > self.plan.bound * (1 + SLACK):
            return "norm"
        return None

    def close(self, state: S, updates: Vector) -> S:
        """The next state, from the noisy mean of these vectors: the sum is divided by m.

        A drawn client that is missing has no row, which equals a row of zeros.
        """
        return self._step(state, self.randomness.release(updates, self.plan), len(updates))

    def released(self, steps: NDArray[np.int64]) -> NDArray[np.float64]:
        """The noisy mean, from a sum on the grid that already includes the noise."""
        mean: NDArray[np.float64] = from_grid(steps, self.plan.bound) / self.plan.clients_per_round
        return mean

    def close_sum(self, state: S, released: NDArray[np.float64]) -> S:
        """The next state, from a noisy mean of `released`."""
        return self._step(state, released, 0)

    def plausible(self, steps: NDArray[np.int64], clients: int) -> bool:
        """Whether the norm of a sum is possible for so many clients and their noise."""
        longest = longest_sum(clients, self.length, self.plan.noise_of_round(0))
        (norm,) = norms(steps.astype(np.float64)[None])
        return bool(norm <= longest)

    def _step(self, state: S, released: Rows, participants: int) -> S:
        vector = released.astype(np.float32, copy=False)
        return self.learner.step(state, vector, self.plan.noise_std(participants))

    def empty_rows(self) -> Vector:
        """The vectors of a round without participating clients: an array [0, length]."""
        return np.zeros((0, self.length), dtype=np.float32)
