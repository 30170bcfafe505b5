"""What a client contributes and how the server steps. A learner knows nothing of privacy."""

from typing import Protocol

import numpy as np
from torch import Tensor

from epifed.windows import Windows


class Learner(Protocol):
    """The part of a method that is not the protocol: from windows to vectors and back."""

    def start(self, seeds: np.random.SeedSequence) -> Tensor:
        """The state w₀ before the first round, a vector."""
        ...

    def contribute(self, state: Tensor, windows: Windows) -> Tensor:
        """One vector for each client of these windows, not yet clipped: [clients, length]."""
        ...

    def step(self, state: Tensor, release: Tensor) -> Tensor:
        """The state after the server has released a noisy mean of contributions."""
        ...

    def predict(self, state: Tensor, inputs: Tensor) -> Tensor:
        """Forecasts [...] for windows [..., H] of case counts."""
        ...
