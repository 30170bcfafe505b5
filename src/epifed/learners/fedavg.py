"""Federated averaging (McMahan et al. 2017), the paper's learner: a contribution is Δw.

PyTorch is imported when a learner is made, not before, because the settings do not need it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pydantic import Field

from epifed.errors import EpifedError, counted
from epifed.learners.base import Baseline, Floats, Own, Vector, WindowLearner, Windows, recency
from epifed.settings import Settings

if TYPE_CHECKING:
    from torch import nn

SCALE_FREE = "scale-free "
"""Prefix of a model's name: it reads and predicts changes in units of the window's own level."""
SUITS_MODEL: dict[str, dict[str, Any]] = {
    "scale-free linear": {"epochs": 30, "learning_rate": 0.01, "clip_norm": 0.1},
    SCALE_FREE: {"epochs": 10, "learning_rate": 0.03, "clip_norm": 0.2},
}
"""Settings for scale-free models, which need few rounds: one named model, then all others."""


class FedAvgOwn(Own):
    """The settings of local training."""

    model: str = Field("mlp", description="name of the forecaster")
    epochs: int = Field(30, ge=1, description="E, local epochs a round, one full batch each")
    learning_rate: float = Field(0.001, gt=0, description="η, of Adam, fresh at each round")
    half_life: float | None = Field(
        None,
        gt=0,
        description="steps in which a window loses half its weight; none: all alike",
    )
    average_last: int = Field(
        0, ge=0, description="predict with the mean of so many last iterates; 0: the last"
    )


@dataclass(frozen=True)
class FedAvgState:
    """The weights for training, the weights for prediction, and the number of finished rounds."""

    weights: Vector
    mean: Vector
    """The mean of the last iterates, which averages out the noise of those rounds."""
    rounds: int = 0


class FedAvg(WindowLearner[FedAvgState]):
    """Clients train the model on their windows with Adam for E epochs and send the difference."""

    name = "fedavg"
    own_settings = FedAvgOwn
    any_step: ClassVar[bool] = True

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.own = FedAvgOwn(**settings.own)
        try:
            from epifed.learners import networks  # noqa: PLC0415
        except ImportError as error:
            raise EpifedError(
                f"learner: found 'fedavg', which trains networks, but {error}; expected PyTorch "
                "('pip install epifed[torch]'), or a learner that needs none"
            ) from None
        self._networks = networks
        self.model: nn.Module = networks.make_model(self.own.model, settings.window)
        self.length = sum(p.numel() for p in self.model.parameters())

    @classmethod
    def preset(cls, clients: int, given: Mapping[str, Any]) -> dict[str, Any]:
        """A quarter of the clients a round; scale-free models use few rounds of all clients."""
        model = str(given.get("model", "mlp"))
        if not model.startswith(SCALE_FREE):
            return super().preset(clients, given) | {"clients_per_round": max(1, clients // 4)}
        suits = SUITS_MODEL.get(model, SUITS_MODEL[SCALE_FREE])
        everybody = {"clients_per_round": clients, "accountant": "pld", "rounds": 5}
        return super().preset(clients, given) | everybody | {"half_life": 1.0} | suits

    @classmethod
    def check_own(cls, values: Mapping[str, Any], settings: Settings) -> Own:
        """Check that no more iterates are averaged than there are rounds."""
        own = super().check_own(values, settings)
        assert isinstance(own, FedAvgOwn)
        if own.average_last > settings.rounds:
            raise ValueError(
                f"average_last: found {own.average_last} of {counted(settings.rounds, 'round')}; "
                "expected at "
                "most all of them"
            )
        return own

    def title(self) -> str:
        """The learner's name with that of its model."""
        return f"{self.name} of the model {self.own.model}"

    def start(self, seeds: np.random.SeedSequence) -> FedAvgState:
        """The model's weights by PyTorch's default initialisation, with the given seed."""
        seed = int(seeds.generate_state(1, np.uint64)[0] >> 1)
        weights = self._networks.initial(
            lambda: self._networks.make_model(self.own.model, self.settings.window), seed
        )
        return FedAvgState(weights, weights)

    def contribute(self, state: FedAvgState, view: Windows) -> Vector:
        """Δw of each client, all trained as one stack."""
        weight = recency(view, self.own.half_life, self.settings)
        return self._networks.contributions(
            self.model,
            state.weights,
            view.inputs,
            view.targets,
            weight,
            epochs=self.own.epochs,
            learning_rate=self.own.learning_rate,
        )

    def step(self, state: FedAvgState, release: Vector, noise_std: float) -> FedAvgState:
        """The weights w + Δw̄ + ξ, and their mean over the last rounds."""
        del noise_std
        weights, done, last = state.weights + release, state.rounds + 1, self.own.average_last
        averaged = done - (self.settings.rounds - last)
        mean = weights
        if last and averaged > 0:
            mean = state.mean + (weights - state.mean) / np.float32(min(averaged, last))
        return FedAvgState(weights, mean, done)

    def again(self, state: FedAvgState) -> FedAvgState:
        """Start again from the averaged weights, with no round done."""
        return FedAvgState(state.mean, state.mean)

    def predict(self, state: FedAvgState, inputs: Vector) -> Floats:
        """The model's predictions for windows of counts."""
        return self._networks.predictions(self.model, state.mean, inputs)

    def pack(self, state: FedAvgState) -> Vector:
        """The weights, and with averaging also their mean and the number of rounds."""
        if not self.own.average_last:
            return state.weights
        return np.concatenate(
            [state.weights, state.mean, np.array([state.rounds], dtype=np.float32)]
        )

    def unpack(self, vector: Vector) -> FedAvgState:
        """The state from the vector of `pack`."""
        averaging = bool(self.own.average_last)
        self.refuse_length(vector, 2 * self.length + 1 if averaging else self.length)
        if not averaging:
            return FedAvgState(vector, vector)
        weights, mean = vector[: self.length], vector[self.length : -1]
        return FedAvgState(weights, mean, int(vector[-1]))

    def beside(self) -> dict[str, Baseline]:
        """The same network without a federation, for the paper's kind of model."""
        if self.own.model.startswith(SCALE_FREE):
            return {}
        return dict(self._networks.BASELINES)
