"""The Gaussian mechanism of Algorithm 1: clip each client's vector, sum, add noise, divide by m.

Here in floating point, for experiments; `secure` is the same on whole numbers, for real data.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.floating[Any]]


def clip(updates: Rows, clip_norm: float) -> Rows:
    """Δŵ = Δw / max(1, ‖Δw‖₂ / S), for each row; S = inf leaves the rows as they are.

    A row that is not finite counts as zero: it would spoil the release and tell who came.
    """
    if math.isinf(clip_norm):
        return updates
    with np.errstate(over="ignore", invalid="ignore"):
        length = norms(updates)[:, None]
        clipped = updates / np.maximum(length / clip_norm, 1.0).astype(updates.dtype)
    return np.where(np.isfinite(length), clipped, np.zeros((), dtype=updates.dtype))


def norms(rows: Rows) -> NDArray[np.float64]:
    """‖Δw‖₂ of each row, in double precision; not finite if the row is not."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
        found: NDArray[np.float64] = np.sqrt(squares)
    return found


def release(
    updates: Rows,
    noise: Rows,
    *,
    clip_norm: float,
    noise_multiplier: float,
    clients_per_round: int,
) -> Rows:
    """What leaves the trusted server in a round: (Σ Δŵ + ξ) / m with ξ ~ N(0, S²c²I).

    `updates` has a row for each client that came, possibly none; an empty round is still noise.
    The sum is divided by the fixed m, never by how many came. `noise` is standard normal. The
    server clips again what the clients say they clipped.
    """
    if not math.isfinite(clip_norm) and noise_multiplier:
        raise ValueError("noise without a clip norm protects nobody")
    total = clip(updates, clip_norm).sum(axis=0, dtype=np.float64) / clients_per_round
    deviation = clip_norm * noise_multiplier / clients_per_round if noise_multiplier else 0.0
    released: Rows = (total + deviation * noise).astype(updates.dtype)
    return released
