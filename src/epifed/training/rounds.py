"""One round of Algorithm 1: draw who comes, accept what they send, close it with noise.

The same code for a training in one process and for a federation of machines, which differ only in
how vectors come to it. All a client ever sends is one vector of norm at most S.
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
"""By so much a clipped vector's norm may exceed S through floating-point arithmetic."""


def contribution(
    learner: Learner[S, Any], state: S, view: View, plan: PrivacyPlan, *, alone: bool = False
) -> Vector:
    """What these clients send: one vector each, clipped by themselves; a broken one is zero.

    `alone`, each is computed without the others. In a stack the last bits of a client's 32-bit
    numbers depend on who else is in it, by up to 1e-6 S in all: nothing that a release may show.
    """
    if alone and len(view) > 1:
        each = (view.of(np.array([row], dtype=np.int64)) for row in range(len(view)))
        return np.concatenate([contribution(learner, state, one, plan) for one in each])
    rows = learner.contribute(state, view)
    return clip(rows, plan.bound).astype(np.float32, copy=False)


@dataclass(frozen=True)
class Rounds(Generic[S]):
    """The rounds of one training: who draws, what is accepted, what is released."""

    learner: Learner[S, Any]
    plan: PrivacyPlan
    randomness: Randomness
    length: int
    """The numbers of a contribution."""

    @classmethod
    def of(
        cls, learner: Learner[S, Any], plan: PrivacyPlan, randomness: Randomness, start: S
    ) -> "Rounds[S]":
        """The rounds of a training that starts from this state."""
        length = learner.contribute(start, learner.empty_view()).shape[1]
        return cls(learner, plan, randomness, length)

    def draw(self) -> NDArray[np.int64]:
        """The cohort of a round, as rows of the N clients."""
        return self.randomness.sample(self.plan)

    def accept(self, row: NDArray[Any]) -> str | None:
        """Why a vector must not reach the sum, in one word; none if it may."""
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
        """The state after the release of these vectors' noisy mean: divided by m, never by rows.

        A client that was drawn and is missing is a row less, which is a row of zeros.
        """
        return self._step(state, self.randomness.release(updates, self.plan), len(updates))

    def released(self, steps: NDArray[np.int64]) -> NDArray[np.float64]:
        """The noisy mean where others have added up the vectors and the noise, on the grid."""
        mean: NDArray[np.float64] = from_grid(steps, self.plan.bound) / self.plan.clients_per_round
        return mean

    def close_sum(self, state: S, released: NDArray[np.float64]) -> S:
        """The state after such a noisy mean."""
        return self._step(state, released, 0)

    def plausible(self, steps: NDArray[np.int64], clients: int) -> bool:
        """Whether a sum is no longer than so many clients and the noise can make it."""
        longest = longest_sum(clients, self.length, self.plan.noise_of_round(0))
        (norm,) = norms(steps.astype(np.float64)[None])
        return bool(norm <= longest)

    def _step(self, state: S, released: Rows, came: int) -> S:
        vector = released.astype(np.float32, copy=False)
        return self.learner.step(state, vector, self.plan.noise_std(came))

    def empty_rows(self) -> Vector:
        """The vectors of a round to which nobody came."""
        return np.zeros((0, self.length), dtype=np.float32)
