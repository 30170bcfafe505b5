"""Who comes to a round and what noise it gets: seeded for experiments, secure for real releases."""

import secrets
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from epifed.privacy.mechanism import Rows, release
from epifed.privacy.plan import PrivacyPlan
from epifed.privacy.secure import secure_release


class Randomness(Protocol):
    """All the randomness of the server in a round."""

    name: str

    def sample(self, plan: PrivacyPlan) -> NDArray[np.int64]:
        """The cohort K of a round: each client with probability q = m / N (a round may be empty).

        Or exactly m of them, where the plan says so.
        """
        ...

    def release(self, updates: Rows, plan: PrivacyPlan) -> Rows:
        """What leaves the server in a round of these updates, as `mechanism.release` says."""
        ...


class SeededRandomness:
    """Fast and repeatable, and so predictable: for experiments, never for a release of real data.

    From NumPy's PCG64, in single precision.
    """

    name = "seeded"

    def __init__(self, sampling: np.random.SeedSequence, noise: np.random.SeedSequence) -> None:
        self._sampling = np.random.default_rng(sampling)
        self._noise = np.random.default_rng(noise)

    def sample(self, plan: PrivacyPlan) -> NDArray[np.int64]:
        """Of the seed."""
        if plan.sampler == "fixed":
            chosen = self._sampling.choice(plan.clients, size=plan.clients_per_round, replace=False)
            return np.sort(chosen)
        return np.flatnonzero(self._sampling.random(plan.clients) < plan.sampling_rate)

    def release(self, updates: Rows, plan: PrivacyPlan) -> Rows:
        """With floating-point noise."""
        noise: Rows = self._noise.standard_normal(updates.shape[1:], dtype=np.float32)
        return release(
            updates,
            noise,
            clip_norm=plan.bound,
            noise_multiplier=plan.noise_of_round(len(updates)),
            clients_per_round=plan.clients_per_round,
        )


class SecureRandomness:
    """From the operating system's secure generator, exact on a grid: for private releases."""

    name = "secure"

    def sample(self, plan: PrivacyPlan) -> NDArray[np.int64]:
        """A Poisson sample that nobody can predict: m / N exactly.

        Amplification by sampling needs a cohort that nobody can predict, just as noise does.
        """
        if plan.sampler != "poisson":
            raise ValueError(f"secure sampling is Poisson; found '{plan.sampler}'")
        drawn = (
            secrets.randbelow(plan.clients) < plan.clients_per_round for _ in range(plan.clients)
        )
        return np.flatnonzero(np.fromiter(drawn, dtype=np.bool_, count=plan.clients))

    def release(self, updates: Rows, plan: PrivacyPlan) -> Rows:
        """The same release on whole numbers, with exact discrete Gaussian noise."""
        return secure_release(
            updates,
            clip_norm=plan.bound,
            noise_multiplier=plan.noise_of_round(len(updates)),
            clients_per_round=plan.clients_per_round,
        )
