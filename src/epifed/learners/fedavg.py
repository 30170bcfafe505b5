"""Federated averaging (McMahan et al. 2017), the paper's learner: a contribution is Δw."""

import numpy as np
import torch
from torch import Tensor

from epifed import stack
from epifed.models import make_model
from epifed.settings import Settings
from epifed.windows import Windows


class FedAvg:
    """Clients train the model on their windows with Adam for E epochs and send the difference."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.model = make_model(settings.model, settings.window)

    def start(self, seeds: np.random.SeedSequence) -> Tensor:
        """PyTorch's default initialisation of the model, under the given seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(seeds.generate_state(1, np.uint64)[0] >> 1))
            return stack.flatten(make_model(self.settings.model, self.settings.window))

    def contribute(self, state: Tensor, windows: Windows) -> Tensor:
        """Δw of each client, trained as one stack."""
        return stack.train_stack(
            self.model,
            state,
            torch.from_numpy(windows.inputs),
            torch.from_numpy(windows.targets),
            torch.from_numpy(windows.mask),
            epochs=self.settings.epochs,
            learning_rate=self.settings.learning_rate,
        )

    def step(self, state: Tensor, release: Tensor, noise_std: float) -> Tensor:
        """w + Δw̄ + ξ."""
        del noise_std
        return state + release

    def predict(self, state: Tensor, inputs: Tensor) -> Tensor:
        """The model on windows of counts."""
        return stack.predict(self.model, state, inputs)
