"""What a client contributes and how the server steps. A learner knows nothing of privacy."""

from collections.abc import Callable
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from epifed.errors import EpifedError
from epifed.learners.fedavg import FedAvg
from epifed.learners.one_shot import OneShot
from epifed.learners.trend import Trend
from epifed.panel import CasePanel
from epifed.settings import Settings
from epifed.windows import Windows


class Learner(Protocol):
    """The part of a method that is not the protocol: from windows to vectors and back."""

    def start(self, seeds: np.random.SeedSequence) -> Tensor:
        """The state w₀ before the first round, a vector."""
        ...

    def contribute(self, state: Tensor, windows: Windows) -> Tensor:
        """One vector for each client of these windows, not yet clipped: [clients, length]."""
        ...

    def step(self, state: Tensor, release: Tensor, noise_std: float) -> Tensor:
        """The state after the server has released a noisy mean of contributions.

        `noise_std` is the deviation of the noise on each of its values, which is public.
        """
        ...

    def predict(self, state: Tensor, inputs: Tensor) -> Tensor:
        """Forecasts [...] for windows [..., H] of case counts."""
        ...


class Forecaster(Learner, Protocol):
    """And what becomes of its state, day after day."""

    any_horizon: ClassVar[bool]
    """Whether a state forecasts any number of days ahead, and not the trained one alone."""
    whole_period: ClassVar[bool]
    """Whether it learns from the last days alone, so that none are kept back for a test."""

    def advance(self, state: Tensor, days: int) -> Tensor:
        """The state as it stands so many days later."""
        ...

    def join(self, earlier: Tensor, fresh: Tensor) -> Tensor:
        """What an earlier state, advanced to the same day, and a fresh one know together."""
        ...

    def hindcast(self, panel: CasePanel, state: Tensor, horizon: int) -> NDArray[np.float64]:
        """What would have been forecast on each of the last days, the panel's last day last."""
        ...


LEARNERS: dict[str, Callable[[Settings], Forecaster]] = {
    "fedavg": FedAvg,
    "one-shot": OneShot,
    "trend": Trend,
}


def make_learner(settings: Settings) -> Forecaster:
    """The learner that the settings name."""
    if settings.learner not in LEARNERS:
        raise EpifedError(
            f"learner: found '{settings.learner}'; expected one of {', '.join(LEARNERS)}"
        )
    return LEARNERS[settings.learner](settings)
