"""One federated round, always the same one, computed in several ways."""

import copy
import math
from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from epifed.learners import networks
from epifed.learners.base import Vector, Windows
from epifed.learners.fedavg import FedAvg, FedAvgState
from epifed.learners.networks import make_model
from epifed.privacy.noise import release
from epifed.settings import Settings, seed_sequence

CLIENTS = 100
WINDOWS = 12
SETTINGS = Settings.paper(clients_per_round=CLIENTS)
OWN = FedAvg(SETTINGS).own
TITLE = (
    f"{CLIENTS} clients × {OWN.epochs} epochs × {WINDOWS} windows of {SETTINGS.window} days, "
    "one thread, medians"
)
TOLERANCE = 1e-3
"""How far two ways may be apart, relative to the aggregate: single precision, other orders."""

Batches = Callable[[Tensor, Tensor], Iterable[list[Tensor]]]


def make_windows() -> Windows:
    """A growing or falling epidemic in regions of unlike size, as counts."""
    rng = np.random.default_rng(20201101)
    to_target = SETTINGS.window - 1 + SETTINGS.horizon
    days = np.arange(WINDOWS + to_target)
    level = rng.lognormal(3.0, 1.0, size=(CLIENTS, 1))
    growth = rng.normal(0.02, 0.03, size=(CLIENTS, 1))
    counts = rng.poisson(level * np.exp(growth * days)).astype(np.float32)
    inputs = np.lib.stride_tricks.sliding_window_view(counts, SETTINGS.window, axis=1)[:, :WINDOWS]
    first = np.datetime64("2020-11-01")
    return Windows(
        inputs=np.ascontiguousarray(inputs),
        targets=np.ascontiguousarray(counts[:, to_target:]),
        mask=np.ones((CLIENTS, WINDOWS), dtype=np.bool_),
        target_days=np.broadcast_to(first + days[to_target:], (CLIENTS, WINDOWS)),
    )


def start() -> FedAvgState:
    return FedAvg(SETTINGS).start(seed_sequence(0))


def data_loader(inputs: Tensor, targets: Tensor) -> Iterable[list[Tensor]]:
    data = TensorDataset(inputs, targets)
    return DataLoader(data, batch_size=len(data), shuffle=True)


def whole_batch(inputs: Tensor, targets: Tensor) -> Iterable[list[Tensor]]:
    return [[inputs, targets]]


def plain_round(state: FedAvgState, windows: Windows, batches: Batches) -> Vector:
    """One model, one optimizer, one client at a time."""
    model = make_model(OWN.model, SETTINGS.window)
    weights = torch.from_numpy(state.weights)
    nn.utils.vector_to_parameters(weights.clone(), model.parameters())
    total = torch.zeros_like(weights)
    for inputs, targets in zip(windows.inputs, windows.targets, strict=True):
        local = copy.deepcopy(model)
        _train_alone(local, batches(torch.from_numpy(inputs), torch.from_numpy(targets)))
        update = networks.flatten(local) - weights
        total += update / max(1.0, float(update.norm()) / SETTINGS.clip_norm)
    return (total / SETTINGS.clients_per_round).numpy()


def _train_alone(model: nn.Module, batches: Iterable[list[Tensor]]) -> None:
    adam = torch.optim.Adam(model.parameters(), lr=OWN.learning_rate)
    squared_error = nn.MSELoss()
    for _ in range(OWN.epochs):
        for inputs, targets in batches:
            adam.zero_grad()
            loss = squared_error(model(inputs).squeeze(-1), targets)
            loss.backward()
            adam.step()


def stacked_round(learner: FedAvg, state: FedAvgState, windows: Windows) -> Vector:
    """What a training in one process does in a round, with c = 0 so that ways can be compared."""
    released = release(
        learner.contribute(state, windows),
        np.random.default_rng(0).standard_normal(learner.length, dtype=np.float32),
        clip_norm=SETTINGS.clip_norm,
        noise_multiplier=0.0,
        clients_per_round=SETTINGS.clients_per_round,
    )
    return released.astype(np.float32, copy=False)


def repeat(rounds: int) -> None:
    """Some rounds on one thread, as a worker of the grid computes them."""
    torch.set_num_threads(1)
    learner, state, windows = FedAvg(SETTINGS), start(), make_windows()
    for _ in range(rounds):
        stacked_round(learner, state, windows)


class Wrapped(nn.Module):
    """The model as any other module: nothing tells the stack that it is a chain."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor) -> Tensor:
        prediction: Tensor = self.model(inputs)
        return prediction


def wrapped_learner() -> FedAvg:
    learner = FedAvg(SETTINGS)
    learner.model = Wrapped(learner.model)
    return learner


def require_same(aggregate: Vector, reference: Vector, name: str) -> None:
    apart = float(np.linalg.norm(aggregate - reference) / np.linalg.norm(reference))
    if math.isnan(apart) or apart > TOLERANCE:
        raise SystemExit(
            f"{name}: its aggregate is {apart:.2g} away, relatively; not the same round"
        )
