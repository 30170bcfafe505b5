"""One release instead of many rounds: a ridge regression from clipped sufficient statistics.

The model says how far the next value lies from the last, in units of the window's own level, so
that two numbers, a common change and what a growing or falling window adds to it, serve every
region whatever its size. A client sends its XᵀX and Xᵀz, averaged over its windows, as one vector;
the server solves for the coefficients. The noise of the release is known, and so the solution
shrinks with it: from least squares to "next week is like today".
"""

import math

import numpy as np
import torch
from torch import Tensor

from epifed.errors import EpifedError
from epifed.learners.recency import recency
from epifed.learners.windowed import Windowed
from epifed.settings import Settings
from epifed.windows import Windows

RECENT_DAYS = 3
STEEPNESS = 3.0
"""The changes over the window and over its last days, together, are cut at a third of its level."""
LARGEST_RESIDUAL = 1.5
"""Neither a learned nor a predicted change is larger, in units of the window's level."""
TARGET_POWER, LARGEST_WEIGHT = 1.5, 3.0
"""A window counts (level / target)^1.5, at most 3: squared errors then resemble relative ones."""
STEADY_CASES = 30.0
"""The level at which a client counts half: smaller ones are mostly counting noise."""
GRAM_SCALE = 0.15
"""XᵀX is sent this much smaller than Xᵀz: it meets coefficients of about this size."""
PRIOR = (0.25, 0.1)
"""How large the two coefficients are expected to be before anything is released."""
TIGHT_BUDGET, LEAST_SCALE = 0.1, 1 / 3
"""Up to this ε nearly every client is clipped, against the noise; above it they send less, down to
this share, so that fewer are, against the bias."""

LEAST_NOISE = 1e-6
"""Keeps a release without noise solvable."""
FEATURES = 2
_ROWS, _COLUMNS = np.triu_indices(FEATURES)


class OneShot(Windowed):
    """A linear model of the scale-free residual (y − last) / (mean + 1), learned in one round."""

    def __init__(self, settings: Settings) -> None:
        if settings.rounds != 1:
            raise EpifedError(
                f"rounds: found {settings.rounds} with learner 'one-shot'; expected 1, its one "
                "release"
            )
        self.settings = settings
        self.scale = max(LEAST_SCALE, min(1.0, TIGHT_BUDGET / settings.epsilon))
        self.bound = settings.clip_norm / self.scale if settings.private else math.inf

    def start(self, seeds: np.random.SeedSequence) -> Tensor:
        """No change: persistence."""
        del seeds
        return torch.zeros(FEATURES)

    def contribute(self, state: Tensor, windows: Windows) -> Tensor:
        """The upper triangle of XᵀX, then Xᵀz, of each client: weighted means over its windows."""
        del state
        inputs = torch.from_numpy(windows.inputs)
        targets = torch.from_numpy(windows.targets)
        x, last, level = _features(inputs)
        z = ((targets - last) / level).clamp(-LARGEST_RESIDUAL, LARGEST_RESIDUAL)
        weight = torch.from_numpy(recency(windows, self.settings))
        weight = weight / weight.sum(dim=1, keepdim=True).clamp(min=1.0)
        weight = weight * (level / (targets + 1)).pow(TARGET_POWER).clamp(max=LARGEST_WEIGHT)
        weight = weight * level / (level + STEADY_CASES)
        weighted = torch.where(torch.from_numpy(windows.mask)[..., None], x * weight[..., None], 0)
        gram = weighted.double().transpose(1, 2) @ x.double()
        moment = weighted.double().transpose(1, 2) @ z.double()[..., None]
        rows = [GRAM_SCALE * gram[:, _ROWS, _COLUMNS], moment.squeeze(-1)]
        return self.scale * torch.cat(rows, dim=1).float()

    def step(self, state: Tensor, release: Tensor, noise_std: float) -> Tensor:
        """The coefficients β with the least ‖Aβ − b‖² / σ² + ‖β / prior‖².

        A is positive semidefinite and not larger than the clipped statistics can make it, b not
        longer, whatever the noise; so β falls to 0 as the noise grows.
        """
        del state
        values = release.double() / self.scale
        gram = torch.zeros((FEATURES, FEATURES), dtype=torch.float64)
        gram[_ROWS, _COLUMNS] = values[: len(_ROWS)] / GRAM_SCALE
        gram = gram + gram.triu(1).T
        moment = values[len(_ROWS) :]
        moment = moment * min(1.0, self.bound / max(float(moment.norm()), 1e-30))
        eigenvalues, axes = torch.linalg.eigh(gram)
        eigenvalues = eigenvalues.clamp(0.0, self.bound / GRAM_SCALE)
        prior = torch.tensor(PRIOR, dtype=torch.float64)
        system = (axes * eigenvalues) @ axes.T * prior
        variance = max(noise_std / self.scale, LEAST_NOISE) ** 2
        normal = system.T @ system + variance * torch.eye(FEATURES, dtype=torch.float64)
        solution: Tensor = prior * torch.linalg.solve(normal, system.T @ moment)
        return solution.float()

    def predict(self, state: Tensor, inputs: Tensor) -> Tensor:
        """The last value and the learned change, never below zero."""
        x, last, level = _features(inputs)
        change = (x @ state).clamp(-LARGEST_RESIDUAL, LARGEST_RESIDUAL)
        return (last + level * change).clamp(min=0.0)


def _features(inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Features [..., 2] within ±1 of windows [..., H], the last value, and the level mean + 1."""
    last, level = inputs[..., -1], inputs.mean(dim=-1) + 1
    recent = inputs[..., -1 - min(RECENT_DAYS, inputs.shape[-1] - 1)]
    change = (2 * last - inputs[..., 0] - recent) / level
    trend = (STEEPNESS * change).clamp(-1.0, 1.0)
    return torch.stack([torch.ones_like(trend), trend], dim=-1), last, level
