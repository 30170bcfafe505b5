"""The paper's network without a federation: on all data together, and each client alone."""

from typing import TYPE_CHECKING

import numpy as np
import torch

from epifed.learner import Baseline, Floats
from epifed.learners.fedavg import FedAvg, FedAvgState
from epifed.learners.networks import stack
from epifed.settings import Settings

if TYPE_CHECKING:
    from epifed.clients import Clients

CENTRAL_EPOCHS = 100
CENTRAL_BATCH = 256


def central_mlp(clients: "Clients", settings: Settings, seeds: np.random.SeedSequence) -> Floats:
    """The same model on centralised data: mini-batch Adam over all clients' training windows."""
    learner = FedAvg(settings.but(average_last=0))
    start, shuffling = seeds.spawn(2)
    rng = np.random.default_rng(shuffling)
    model = learner.model
    weights = torch.from_numpy(learner.start(start).weights)
    torch.nn.utils.vector_to_parameters(weights, model.parameters())
    pooled_inputs, pooled_targets = clients.train.pooled()
    inputs = torch.from_numpy(pooled_inputs.astype(np.float32))
    targets = torch.from_numpy(pooled_targets.astype(np.float32))
    adam = torch.optim.Adam(model.parameters(), lr=learner.own.learning_rate, fused=True)
    for _ in range(CENTRAL_EPOCHS):
        order = rng.permutation(len(inputs))
        for begin in range(0, len(order), CENTRAL_BATCH):
            batch = order[begin : begin + CENTRAL_BATCH]
            adam.zero_grad()
            loss = (model(inputs[batch]).squeeze(-1) - targets[batch]).square().mean()
            loss.backward()
            adam.step()
    return stack.predictions(model, stack.flatten(model).numpy(), clients.test.inputs)


def local_mlp(clients: "Clients", settings: Settings, seeds: np.random.SeedSequence) -> Floats:
    """The same model, one per client, on its own windows only.

    Each trains for as many epochs as a client of the federation does on average: q · T · E.
    """
    settings = settings.but(average_last=0)
    learner = FedAvg(settings)
    start = learner.start(seeds)
    share = min(settings.clients_per_round / len(clients), 1.0)
    epochs = max(1, round(share * settings.rounds * learner.own.epochs))
    trained = FedAvg(settings.but(epochs=epochs)).contribute(start, clients.train) + start.weights
    rows = [
        learner.predict(FedAvgState(w, w), x)
        for w, x in zip(trained, clients.test.inputs, strict=True)
    ]
    return np.stack(rows)


BASELINES: dict[str, Baseline] = {"central MLP": central_mlp, "local MLP": local_mlp}
