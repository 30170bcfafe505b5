"""Standard normal vectors for simulations; real releases take `secure_noise`."""

import numpy as np
import torch
from torch import Tensor


class SeededNoise:
    """Fast and repeatable: for simulations, never for a release of real data."""

    name = "seeded"

    def __init__(self, seeds: np.random.SeedSequence) -> None:
        self._rng = np.random.default_rng(seeds)

    def draw(self, length: int) -> Tensor:
        """Single precision, from NumPy's PCG64."""
        return torch.from_numpy(self._rng.standard_normal(length, dtype=np.float32))
