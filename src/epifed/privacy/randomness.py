"""Who comes to a round and what noise it gets: seeded for experiments, secure for real releases."""

import math
import secrets
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from epifed.privacy.mechanism import Rows, release
from epifed.privacy.plan import PrivacyPlan
from epifed.privacy.secure import STEPS, secure_release
from epifed.seeds import of_training


def toss(plan: PrivacyPlan, clients: int) -> NDArray[np.int64]:
    """Which of so many of the N clients come, each with probability m / N exactly.

    From the operating system's secure generator: by the server for all, or by a site for its own.
    """
    drawn = (secrets.randbelow(plan.clients) < plan.clients_per_round for _ in range(clients))
    return np.flatnonzero(np.fromiter(drawn, dtype=np.bool_, count=clients))


def seeded_share(
    plan: PrivacyPlan, seed: int, place: int, number: int, length: int, noise_multiplier: float
) -> NDArray[np.int64]:
    """The predictable share of an aggregator in a round, in steps of the grid: for tests alone.

    All shares of a round add up to what `SeededRandomness` adds, up to the grid.
    """
    _, _, noise = of_training(seed)
    stream = _share_streams(noise, plan)[place]
    drawn = [stream.standard_normal(length, dtype=np.float32) for _ in range(number)][-1]
    steps = np.rint(drawn.astype(np.float64) * noise_multiplier * STEPS)
    return steps.astype(np.int64)


def _share_streams(noise: np.random.SeedSequence, plan: PrivacyPlan) -> list[np.random.Generator]:
    """A generator for each aggregator."""
    return [np.random.default_rng(one) for one in noise.spawn(plan.aggregators)]


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
        self._seed = noise
        self._shares: list[np.random.Generator] = []

    def sample(self, plan: PrivacyPlan) -> NDArray[np.int64]:
        """Of the seed."""
        if plan.sampler == "fixed":
            chosen = self._sampling.choice(plan.clients, size=plan.clients_per_round, replace=False)
            return np.sort(chosen)
        return np.flatnonzero(self._sampling.random(plan.clients) < plan.sampling_rate)

    def release(self, updates: Rows, plan: PrivacyPlan) -> Rows:
        """With floating-point noise."""
        return release(
            updates,
            self._drawn(updates.shape[1], plan),
            clip_norm=plan.bound,
            noise_multiplier=plan.noise_of_round(len(updates)),
            clients_per_round=plan.clients_per_round,
        )

    def _drawn(self, length: int, plan: PrivacyPlan) -> Rows:
        """Standard normal; with aggregators, what the shares of all of them come to."""
        if plan.noise != "aggregators":
            return self._noise.standard_normal(length, dtype=np.float32)
        self._shares = self._shares or _share_streams(self._seed, plan)
        total: Rows = np.zeros(length, dtype=np.float32)
        for stream in self._shares:
            total += stream.standard_normal(length, dtype=np.float32)
        return total / np.float32(math.sqrt(len(self._shares)))


class SecureRandomness:
    """From the operating system's secure generator, exact on a grid: for private releases."""

    name = "secure"

    def sample(self, plan: PrivacyPlan) -> NDArray[np.int64]:
        """A Poisson sample that nobody can predict: m / N exactly.

        Amplification by sampling needs a cohort that nobody can predict, just as noise does.
        """
        if plan.sampler != "poisson":
            raise ValueError(f"secure sampling is Poisson; found '{plan.sampler}'")
        return toss(plan, plan.clients)

    def release(self, updates: Rows, plan: PrivacyPlan) -> Rows:
        """The same release on whole numbers, with exact discrete Gaussian noise."""
        return secure_release(
            updates,
            clip_norm=plan.bound,
            noise_multiplier=plan.noise_of_round(len(updates)),
            clients_per_round=plan.clients_per_round,
        )
