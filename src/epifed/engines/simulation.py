"""The whole federation in one process: Algorithm 1 with every cohort as one stack."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from epifed.errors import EpifedError
from epifed.learners import Learner
from epifed.learners.fedavg import FedAvg
from epifed.privacy.accounting import Calibration, calibrate
from epifed.privacy.noise import SeededNoise
from epifed.protocol import release, sample_clients, sampling_rate
from epifed.seeds import seed_sequence
from epifed.settings import Settings
from epifed.windows import Clients

Watch = Callable[[int, Tensor], None]


@dataclass(frozen=True)
class Training:
    """A finished training: the state w, what it cost, and who came to each round."""

    state: Tensor
    learner: Learner
    settings: Settings
    calibration: Calibration
    cohort_sizes: tuple[int, ...]

    def predict(self, inputs: NDArray[np.float32]) -> NDArray[np.float64]:
        """Forecasts [...] for windows [..., H] of case counts."""
        return self.learner.predict(self.state, torch.from_numpy(inputs)).double().numpy()


def train(
    clients: Clients,
    settings: Settings,
    *,
    seeds: np.random.SeedSequence | None = None,
    learner: Learner | None = None,
    watch: Watch | None = None,
) -> Training:
    """Train on these clients. `watch(i, w)` sees the state before round 1 and after each round."""
    if settings.clients_per_round > len(clients):
        raise EpifedError(
            f"clients_per_round: found {settings.clients_per_round} of {len(clients)} clients; "
            "expected at most all of them"
        )
    initial, sampling, noise = (seeds or seed_sequence(settings.seed)).spawn(3)
    learner = learner or FedAvg(settings)
    state = learner.start(initial)
    rng = np.random.default_rng(sampling)
    source = SeededNoise(noise)
    calibration = calibrate(
        settings.epsilon,
        settings.delta,
        sampling_rate(len(clients), settings.clients_per_round),
        settings.rounds,
        settings.accountant,
    )
    clip_norm = settings.clip_norm if settings.private else math.inf
    cohort_sizes = []
    if watch:
        watch(0, state)
    for i in range(1, settings.rounds + 1):
        cohort = sample_clients(rng, len(clients), settings.clients_per_round, settings.sampler)
        released = release(
            learner.contribute(state, clients.train.of(cohort)),
            source.draw(len(state)),
            clip_norm=clip_norm,
            noise_multiplier=calibration.noise_multiplier,
            clients_per_round=settings.clients_per_round,
        )
        state = learner.step(state, released)
        cohort_sizes.append(len(cohort))
        if watch:
            watch(i, state)
    return Training(state, learner, settings, calibration, tuple(cohort_sizes))
