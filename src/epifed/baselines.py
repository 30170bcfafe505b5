"""What any forecast must beat, on the same windows: from "like today" to the centralised MLP."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from epifed.errors import EpifedError
from epifed.learners.fedavg import FedAvg
from epifed.learners.networks import stack
from epifed.learners.networks.models import SCALE_FREE
from epifed.protocol import sampling_rate
from epifed.settings import Settings
from epifed.windows import Clients, Windows

Floats = NDArray[np.float64]
Baseline = Callable[[Clients, Settings, np.random.SeedSequence], Floats]

DAMPING = 0.3
"""Share of the week's local growth that the damped trend lets go on."""
CENTRAL_EPOCHS = 100
CENTRAL_BATCH = 256


def persistence(clients: Clients, settings: Settings, seeds: np.random.SeedSequence) -> Floats:
    """Next week is like today: the last value of the window."""
    del settings, seeds
    return clients.test.inputs[..., -1].astype(np.float64)


def damped_trend(clients: Clients, settings: Settings, seeds: np.random.SeedSequence) -> Floats:
    """The last value, carried on by a damped share of its log growth over the window."""
    del seeds
    inputs = clients.test.inputs.astype(np.float64)
    days = inputs.shape[-1] - 1
    if days == 0:
        return inputs[..., -1]
    growth = np.log((inputs[..., -1] + 1) / (inputs[..., 0] + 1)) / days
    prediction: Floats = inputs[..., -1] * np.exp(DAMPING * settings.horizon * growth)
    return prediction


def pooled_linear(clients: Clients, settings: Settings, seeds: np.random.SeedSequence) -> Floats:
    """Least squares on the training windows of all clients together: no privacy at all."""
    del settings, seeds
    design, targets = _pooled(clients.train)
    coefficients = np.linalg.lstsq(_with_intercept(design), targets, rcond=None)[0]
    prediction: Floats = _with_intercept(clients.test.inputs.astype(np.float64)) @ coefficients
    return prediction


def central_mlp(clients: Clients, settings: Settings, seeds: np.random.SeedSequence) -> Floats:
    """The same model on centralised data: mini-batch Adam over all clients' training windows."""
    learner = FedAvg(settings.but(average_last=0))
    start, shuffling = seeds.spawn(2)
    rng = np.random.default_rng(shuffling)
    model = learner.model
    torch.nn.utils.vector_to_parameters(learner.start(start), model.parameters())
    pooled_inputs, pooled_targets = _pooled(clients.train)
    inputs = torch.from_numpy(pooled_inputs.astype(np.float32))
    targets = torch.from_numpy(pooled_targets.astype(np.float32))
    adam = torch.optim.Adam(model.parameters(), lr=settings.learning_rate, fused=True)
    for _ in range(CENTRAL_EPOCHS):
        order = rng.permutation(len(inputs))
        for begin in range(0, len(order), CENTRAL_BATCH):
            batch = order[begin : begin + CENTRAL_BATCH]
            adam.zero_grad()
            loss = (model(inputs[batch]).squeeze(-1) - targets[batch]).square().mean()
            loss.backward()
            adam.step()
    weights = stack.flatten(model)
    return learner.predict(weights, torch.from_numpy(clients.test.inputs)).double().numpy()


def local_mlp(clients: Clients, settings: Settings, seeds: np.random.SeedSequence) -> Floats:
    """The same model, one per client, on its own windows only.

    Each trains for as many epochs as a client of the federation does on average: q · T · E.
    """
    settings = settings.but(average_last=0)
    learner = FedAvg(settings)
    weights = learner.start(seeds)
    share = sampling_rate(len(clients), settings.clients_per_round)
    epochs = max(1, round(share * settings.rounds * settings.epochs))
    trained = FedAvg(settings.but(epochs=epochs)).contribute(weights, clients.train) + weights
    inputs = torch.from_numpy(clients.test.inputs)
    rows = [learner.predict(w, x) for w, x in zip(trained, inputs, strict=True)]
    return torch.stack(rows).double().numpy()


def predict_zero(clients: Clients, settings: Settings, seeds: np.random.SeedSequence) -> Floats:
    """No cases: right more often than not where regions are small, and worth nothing."""
    del settings, seeds
    return np.zeros(clients.test.targets.shape)


def county_share(clients: Clients, settings: Settings, seeds: np.random.SeedSequence) -> Floats:
    """The share of the population in what its county had on the last day of the window."""
    del settings, seeds
    if not clients.parents or clients.population is None:
        raise EpifedError("county share: found no counties above the regions; expected communities")
    if (clients.test.target_days != clients.test.target_days[0]).any():
        raise EpifedError("county share: found windows out of step; expected the temporal split")
    _, county = np.unique(clients.parents, return_inverse=True)
    last = clients.test.inputs[..., -1].astype(np.float64)
    of_county = np.zeros((county.max() + 1, last.shape[1]))
    np.add.at(of_county, county, last)
    share = clients.population / np.bincount(county, weights=clients.population)[county]
    prediction: Floats = share[:, None] * of_county[county]
    return prediction


BASELINES: dict[str, Baseline] = {
    "persistence": persistence,
    "damped trend": damped_trend,
    "pooled linear": pooled_linear,
    "central MLP": central_mlp,
    "local MLP": local_mlp,
    "zero": predict_zero,
    "county share": county_share,
}

COUNTY_BASELINES = ("persistence", "damped trend", "pooled linear", "central MLP", "local MLP")
COMMUNITY_BASELINES = (*COUNTY_BASELINES, "zero", "county share")

RANDOM_BASELINES = frozenset({"central MLP", "local MLP"})
"""Those that depend on the seed."""


def beside(settings: Settings, *, communities: bool) -> tuple[str, ...]:
    """The baselines that mean something beside a training with these settings.

    The networks are trained as the paper's federation trains its own, so they stand beside it only.
    """
    names = COMMUNITY_BASELINES if communities else COUNTY_BASELINES
    if settings.learner == "fedavg" and not settings.model.startswith(SCALE_FREE):
        return names
    return tuple(name for name in names if name not in RANDOM_BASELINES)


def _pooled(windows: Windows) -> tuple[Floats, Floats]:
    return (
        windows.inputs[windows.mask].astype(np.float64),
        windows.targets[windows.mask].astype(np.float64),
    )


def _with_intercept(inputs: Floats) -> Floats:
    return np.concatenate([inputs, np.ones((*inputs.shape[:-1], 1))], axis=-1)
