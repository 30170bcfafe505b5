"""Who comes to a round and what noise it gets: seeded for simulations, secure for real releases."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from epifed.privacy.noise import SeededNoise
from epifed.privacy.secure_noise import sample_clients_securely, secure_release
from epifed.protocol import release, sample_clients
from epifed.settings import SamplerName


class Randomness(Protocol):
    """All the randomness of the server in a round."""

    name: str

    def sample(
        self, clients: int, clients_per_round: int, sampler: SamplerName
    ) -> NDArray[np.int64]:
        """The cohort of a round."""
        ...

    def release(
        self, updates: Tensor, *, clip_norm: float, noise_multiplier: float, clients_per_round: int
    ) -> Tensor:
        """What leaves the server in a round, as `protocol.release` says."""
        ...


class SeededRandomness:
    """Fast and repeatable, and so predictable: for simulations only."""

    name = "seeded"

    def __init__(self, sampling: np.random.SeedSequence, noise: np.random.SeedSequence) -> None:
        self._rng = np.random.default_rng(sampling)
        self._noise = SeededNoise(noise)

    def sample(
        self, clients: int, clients_per_round: int, sampler: SamplerName
    ) -> NDArray[np.int64]:
        """From NumPy's PCG64."""
        return sample_clients(self._rng, clients, clients_per_round, sampler)

    def release(
        self, updates: Tensor, *, clip_norm: float, noise_multiplier: float, clients_per_round: int
    ) -> Tensor:
        """The protocol's release with seeded floating-point noise."""
        return release(
            updates,
            self._noise.draw(updates.shape[1]),
            clip_norm=clip_norm,
            noise_multiplier=noise_multiplier,
            clients_per_round=clients_per_round,
        )


class SecureRandomness:
    """From the operating system's secure generator, exact on a grid: for private releases."""

    name = "secure"

    def sample(
        self, clients: int, clients_per_round: int, sampler: SamplerName
    ) -> NDArray[np.int64]:
        """A Poisson sample that nobody can predict."""
        if sampler != "poisson":
            raise ValueError(f"secure sampling is Poisson; found '{sampler}'")
        return sample_clients_securely(clients, clients_per_round)

    def release(
        self, updates: Tensor, *, clip_norm: float, noise_multiplier: float, clients_per_round: int
    ) -> Tensor:
        """The same release on whole numbers, with exact discrete Gaussian noise."""
        return secure_release(
            updates,
            clip_norm=clip_norm,
            noise_multiplier=noise_multiplier,
            clients_per_round=clients_per_round,
        )
