"""A ridge regression from clipped sufficient statistics, in one release instead of many rounds.

The model predicts the distance of the next value from the last, in units of the window's own level.
So two numbers serve regions of every size: a common change, and the effect of a growing or falling
window. A client sends its XᵀX and Xᵀz, averaged over its windows, as one vector. The server solves
for the coefficients. The noise of the release is known, and shrinks the solution from least squares
towards persistence.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import Field

from epifed.errors import EpifedError
from epifed.learners.base import Floats, Own, Vector, WindowLearner, Windows, recency
from epifed.settings import Settings

RECENT_DAYS = 3
STEEPNESS = 3.0
"""Factor on the change over the window and its last days, which is then clipped to ±1."""
LARGEST_RESIDUAL = 1.5
"""Bound on a learned or predicted change, in units of the window's level."""
TARGET_POWER, LARGEST_WEIGHT = 1.5, 3.0
"""A window's weight is (level / target)^1.5, at most 3: then squared errors are nearly relative."""
STEADY_CASES = 30.0
"""The level at which a client has half the weight: smaller counts are mostly chance."""
GRAM_SCALE = 0.15
"""Factor on XᵀX relative to Xᵀz in the vector, about the size of the coefficients."""
PRIOR = (0.25, 0.1)
"""Prior standard deviation of the two coefficients."""
TIGHT_BUDGET, LEAST_SCALE = 0.1, 1 / 3
"""Up to this ε nearly every client is clipped, to reduce noise. Above it they send less, down to
this share, so that fewer are clipped, to reduce bias."""

LEAST_NOISE = 1e-6
"""Least noise deviation, which keeps a release without noise solvable."""
FEATURES = 2
_ROWS, _COLUMNS = np.triu_indices(FEATURES)


class OneShotOwn(Own):
    """The setting for the weight of old windows."""

    half_life: float | None = Field(
        1.0, gt=0, description="days in which a window loses half its weight; none: all alike"
    )


class OneShot(WindowLearner[Vector]):
    """A linear model of the scale-free residual (y − last) / (mean + 1), learned in one round.

    The state is its two coefficients: a common change, and the effect of the window's trend.
    """

    name = "one-shot"
    own_settings = OneShotOwn

    def __init__(self, settings: Settings) -> None:
        if settings.rounds != 1:
            raise EpifedError(
                f"rounds: found {settings.rounds} with learner 'one-shot'; expected 1, its one "
                "release"
            )
        super().__init__(settings)
        self.own = OneShotOwn(**settings.own)
        self.scale = max(LEAST_SCALE, min(1.0, TIGHT_BUDGET / settings.epsilon))
        self.bound = settings.clip_norm / self.scale if settings.private else math.inf

    @classmethod
    def preset(cls, clients: int, given: Mapping[str, Any]) -> dict[str, Any]:
        """One round of all clients."""
        everybody = {"clients_per_round": clients, "rounds": 1, "accountant": "pld"}
        return super().preset(clients, given) | everybody | {"clip_norm": 0.1}

    def start(self, seeds: np.random.SeedSequence) -> Vector:
        """Zero coefficients: persistence."""
        del seeds
        return np.zeros(FEATURES, dtype=np.float32)

    def contribute(self, state: Vector, view: Windows) -> Vector:
        """The upper triangle of XᵀX, then Xᵀz, of each client: weighted means over its windows."""
        del state
        inputs, targets = view.inputs.astype(np.float64), view.targets.astype(np.float64)
        x, last, level = _features(inputs)
        z = ((targets - last) / level).clip(-LARGEST_RESIDUAL, LARGEST_RESIDUAL)
        weight = recency(view, self.own.half_life, self.settings).astype(np.float64)
        weight = weight / weight.sum(axis=1, keepdims=True).clip(min=1.0)
        weight = weight * np.minimum((level / (targets + 1)) ** TARGET_POWER, LARGEST_WEIGHT)
        weight = weight * level / (level + STEADY_CASES)
        weighted = np.where(view.mask[..., None], x * weight[..., None], 0.0).transpose(0, 2, 1)
        gram, moment = weighted @ x, (weighted @ z[..., None]).squeeze(-1)
        rows = np.concatenate([GRAM_SCALE * gram[:, _ROWS, _COLUMNS], moment], axis=1)
        sent: Vector = (self.scale * rows).astype(np.float32)
        return sent

    def entries(self, length: int) -> tuple[str, ...]:
        """Means over a client's windows: products of two features, and of each with the target."""
        del length
        products = [
            f"mean of feature {i + 1} x feature {j + 1}"
            for i, j in zip(_ROWS, _COLUMNS, strict=True)
        ]
        return (*products, *(f"mean of feature {i + 1} x target" for i in range(FEATURES)))

    def step(self, state: Vector, release: Vector, noise_std: float) -> Vector:
        """The coefficients β with the least ‖Aβ − b‖² / σ² + ‖β / prior‖².

        A is made positive semidefinite, and A and b are limited to the norm of clipped statistics,
        whatever the noise. So β falls to 0 as the noise grows. The solution is written out for two
        coefficients, because every party of a federation must get the same bits. Linear algebra
        libraries round differently on different processors.
        """
        del state
        a, b, c, *moment = (float(value) / self.scale for value in release)
        a, b, c = _bounded_gram(
            a / GRAM_SCALE, b / GRAM_SCALE, c / GRAM_SCALE, self.bound / GRAM_SCALE
        )
        length = math.sqrt(moment[0] * moment[0] + moment[1] * moment[1])
        shrink = min(1.0, self.bound / max(length, 1e-30))
        first, second = moment[0] * shrink, moment[1] * shrink
        p, q = PRIOR
        noise = max(noise_std / self.scale, LEAST_NOISE)
        # (P A A P + σ²) x = P A b, and β = P x.
        left = p * p * (a * a + b * b) + noise * noise
        cross = p * q * b * (a + c)
        right = q * q * (b * b + c * c) + noise * noise
        from_first, from_second = p * (a * first + b * second), q * (b * first + c * second)
        ratio = cross / left
        y = (from_second - ratio * from_first) / (right - ratio * cross)
        x = (from_first - cross * y) / left
        return np.array([p * x, q * y], dtype=np.float32)

    def predict(self, state: Vector, inputs: Vector) -> Floats:
        """The last value plus the learned change, at least 0."""
        x, last, level = _features(inputs.astype(np.float64))
        change = (x @ state.astype(np.float64)).clip(-LARGEST_RESIDUAL, LARGEST_RESIDUAL)
        prediction: Floats = np.maximum(last + level * change, 0.0)
        return prediction


def _features(inputs: Floats) -> tuple[Floats, Floats, Floats]:
    """Features [..., 2] within ±1 of windows [..., H], the last value, and the level mean + 1."""
    last, level = inputs[..., -1], inputs.mean(axis=-1) + 1
    recent = inputs[..., -1 - min(RECENT_DAYS, inputs.shape[-1] - 1)]
    change = (2 * last - inputs[..., 0] - recent) / level
    trend = (STEEPNESS * change).clip(-1.0, 1.0)
    return np.stack([np.ones_like(trend), trend], axis=-1), last, level


def _bounded_gram(a: float, b: float, c: float, largest: float) -> tuple[float, float, float]:
    """The matrix (a, b; b, c) with its eigenvalues clipped to [0, largest]."""
    middle, half = (a + c) / 2, (a - c) / 2
    radius = math.sqrt(half * half + b * b)
    upper, lower = (min(max(value, 0.0), largest) for value in (middle + radius, middle - radius))
    middle, spread = (upper + lower) / 2, (upper - lower) / 2 / radius if radius else 0.0
    return middle + spread * half, spread * b, middle - spread * half
