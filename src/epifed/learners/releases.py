"""What past releases said, day by day: the state of learners that keep noisy means."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from epifed.learner import Floats, Learner, V, Vector

EXACT = 1e12
"""The precision of a number without noise."""


@dataclass(frozen=True)
class Releases:
    """What past releases said, the last day first: means and precisions [days, numbers].

    Of a learner of weeks, a day here is a week.
    """

    values: Floats
    precision: Floats
    """0: nothing is known."""

    @classmethod
    def unknown(cls, days: int, numbers: int) -> "Releases":
        """Nothing known of any day."""
        return cls(np.zeros((days, numbers)), np.zeros((days, numbers)))

    def before(self, days: int) -> "Releases":
        """What was known so many days before."""
        return Releases(self.values[days:], self.precision[days:])

    def later(self, days: int) -> "Releases":
        """The days move back, as many being remembered; of the new ones nothing is known yet."""
        remembered, numbers = self.values.shape
        new = np.zeros((min(days, remembered), numbers))
        values, precision = (
            np.concatenate([new, old])[:remembered] for old in (self.values, self.precision)
        )
        return Releases(values, precision)

    def joined(self, other: "Releases") -> "Releases":
        """Each number of each day weighted by how well it is known."""
        known = self.precision + other.precision
        total = self.values * self.precision + other.values * other.precision
        mean = np.where(known > 0, total / np.maximum(known, 1e-30), 0.0)
        return Releases(mean, np.minimum(known, EXACT))

    def said(self, release: Vector, scale: Floats, noise_std: float) -> "Releases":
        """The state after a release on the last day, whose first numbers come times a scale."""
        fresh = Releases.unknown(*self.values.shape)
        numbers = len(scale)
        fresh.values[0, :numbers] = release * scale
        precision = EXACT if noise_std == 0 else 1 / (scale * noise_std) ** 2
        fresh.precision[0, :numbers] = np.minimum(precision, EXACT)
        return self.joined(fresh)


class ReleaseLearner(Learner[Releases, V]):
    """A learner whose state is what past releases said, and nothing else."""

    remembered: ClassVar[tuple[int, int]]
    """Days of releases that a state remembers, and the numbers of each."""

    def start(self, seeds: np.random.SeedSequence) -> Releases:
        """Nothing known."""
        del seeds
        return Releases.unknown(*self.remembered)

    def advance(self, state: Releases, days: int) -> Releases:
        """The days move back; of the new ones nothing is known yet."""
        return state.later(days)

    def join(self, earlier: Releases, fresh: Releases) -> Releases:
        """Each number of each day weighted by how well it is known."""
        return earlier.joined(fresh)

    def informed(self, state: Releases) -> int:
        """The days since the first release that is remembered."""
        return int(np.flatnonzero(state.precision.any(axis=1)).max(initial=0))

    def pack(self, state: Releases) -> Vector:
        """The values, then the precisions."""
        return np.concatenate([state.values.ravel(), state.precision.ravel()]).astype(np.float32)

    def unpack(self, vector: Vector) -> Releases:
        """What `pack` made."""
        days, numbers = self.remembered
        self.refuse_length(vector, 2 * days * numbers)
        values, precision = vector.astype(np.float64).reshape(2, days, numbers)
        return Releases(values, precision)
