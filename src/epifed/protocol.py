"""Algorithm 1 of the paper: federated learning with client-level privacy, as pure functions.

All a client ever sends is one vector, clipped to norm S. What the vector means is the learner's
business; what happens to it on its way into the model is here, once, for every engine.
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from epifed.settings import NoiseName, SamplerName


def sample_clients(
    rng: np.random.Generator, clients: int, clients_per_round: int, sampler: SamplerName
) -> NDArray[np.int64]:
    """Select a subset K of clients: each with probability q = m / N, or exactly m of them.

    The accountant assumes `poisson`, under which a round may be empty.
    """
    if sampler == "fixed":
        size = min(clients_per_round, clients)
        return np.sort(rng.choice(clients, size=size, replace=False))
    return np.flatnonzero(rng.random(clients) < sampling_rate(clients, clients_per_round))


def sampling_rate(clients: int, clients_per_round: int) -> float:
    """q = m / N, at most 1."""
    return min(clients_per_round / clients, 1.0)


def clip(updates: Tensor, clip_norm: float) -> Tensor:
    """Δŵ = Δw / max(1, ‖Δw‖₂ / S), for each row; S = inf leaves the rows as they are.

    A row that is not finite counts as zero: it would spoil the release and tell who came.
    """
    if math.isinf(clip_norm):
        return updates
    norms = torch.linalg.vector_norm(updates, dim=-1, keepdim=True)
    clipped = updates / torch.clamp(norms / clip_norm, min=1.0)
    return torch.where(norms.isfinite(), clipped, 0.0)


def aggregate(updates: Tensor, clients_per_round: int) -> Tensor:
    """(1/m) Σ Δŵ: divided by the fixed m, never by how many came."""
    return updates.sum(dim=0) / clients_per_round


def noise_std(clip_norm: float, noise_multiplier: float, clients_per_round: int) -> float:
    """σ = S · c / m, the noise on the mean; without noise (c = 0) also for S = inf."""
    return clip_norm * noise_multiplier / clients_per_round if noise_multiplier else 0.0


def noise_factor(noise: NoiseName, clients: int, came: int) -> float:
    """How many times the calibrated S · c a sum carries, by who adds the noise.

    `clients`: each of the N clients, sampled or not, adds a share of variance (S c)² / (N − 1), so
    that what N − 1 of them add, all but one who is removed or who knows its own, is enough.
    `local`: each of the clients that came adds all of it.
    """
    if noise == "clients":
        return math.sqrt(clients / (clients - 1))
    return math.sqrt(came) if noise == "local" else 1.0


def release(
    updates: Tensor,
    noise: Tensor,
    *,
    clip_norm: float,
    noise_multiplier: float,
    clients_per_round: int,
) -> Tensor:
    """What leaves the trusted server in a round: the clipped mean plus ξ ~ N(0, σ²I).

    `updates` has a row for each client that came, possibly none; an empty round is still noise.
    `noise` is standard normal. The server clips again what the clients say they clipped.
    """
    if not math.isfinite(clip_norm) and noise_multiplier:
        raise ValueError("noise without a clip norm protects nobody")
    mean = aggregate(clip(updates, clip_norm), clients_per_round)
    return mean + noise_std(clip_norm, noise_multiplier, clients_per_round) * noise
