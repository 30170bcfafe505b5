"""Federated averaging (McMahan et al. 2017), the paper's learner: a contribution is Δw."""

import numpy as np
import torch
from torch import Tensor

from epifed.learners.networks import stack
from epifed.learners.networks.models import ScaleFree, make_model
from epifed.learners.recency import recency
from epifed.learners.windowed import Windowed
from epifed.settings import Settings
from epifed.windows import Windows


class FedAvg(Windowed):
    """Clients train the model on their windows with Adam for E epochs and send the difference.

    With `average_last` the state is [w, mean of the last iterates, rounds done]: clients train
    from w, and predictions are the mean's, in which the noise of those rounds averages out.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.model = make_model(settings.model, settings.window)
        self.length = sum(p.numel() for p in self.model.parameters())

    def start(self, seeds: np.random.SeedSequence) -> Tensor:
        """PyTorch's default initialisation of the model, under the given seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(seeds.generate_state(1, np.uint64)[0] >> 1))
            weights = stack.flatten(make_model(self.settings.model, self.settings.window))
        if not self.settings.average_last:
            return weights
        return torch.cat([weights, weights, torch.zeros(1)])

    def contribute(self, state: Tensor, windows: Windows) -> Tensor:
        """Δw of each client, trained as one stack.

        A scale-free model is trained on scale-free errors: a county of a million and one of fifty
        thousand have the same say.
        """
        model, inputs = self.model, torch.from_numpy(windows.inputs)
        targets = torch.from_numpy(windows.targets)
        if isinstance(model, ScaleFree):
            targets = model.residual(inputs, targets)
            inputs, _, _ = model.scaled(inputs)
            model = model.net
        return stack.train_stack(
            model,
            state[: self.length],
            inputs,
            targets,
            torch.from_numpy(recency(windows, self.settings)),
            epochs=self.settings.epochs,
            learning_rate=self.settings.learning_rate,
        )

    def step(self, state: Tensor, release: Tensor, noise_std: float) -> Tensor:
        """w + Δw̄ + ξ."""
        del noise_std
        if not self.settings.average_last:
            return state + release
        weights = state[: self.length] + release
        mean, done = state[self.length : -1], state[-1:] + 1
        averaged = int(done) - (self.settings.rounds - self.settings.average_last)
        if averaged > 0:
            mean = mean + (weights - mean) / min(averaged, self.settings.average_last)
        else:
            mean = weights
        return torch.cat([weights, mean, done])

    def predict(self, state: Tensor, inputs: Tensor) -> Tensor:
        """The model on windows of counts."""
        averaged = self.settings.average_last > 0
        weights = state[self.length : -1] if averaged else state
        return stack.predict(self.model, weights, inputs)
