"""The whole federation in one process: Algorithm 1 with every cohort as one stack."""

import hashlib
import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from epifed.errors import EpifedError
from epifed.learners import Learner, make_learner
from epifed.privacy.accounting import Calibration, calibrate
from epifed.privacy.ledger import Ledger, Run
from epifed.privacy.randomness import Randomness, SecureRandomness, SeededRandomness
from epifed.protocol import noise_std, sampling_rate
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
    randomness: str
    """`seeded`: a simulation. `secure`: fit for release."""
    ledger_run: str | None = None
    """The run in the budget ledger that paid for it, if one did."""

    @property
    def model_hash(self) -> str:
        """A SHA-256 of the state."""
        return hash_of(self.state)

    def predict(self, inputs: NDArray[np.float32]) -> NDArray[np.float64]:
        """Forecasts [...] for windows [..., H] of case counts."""
        return self.learner.predict(self.state, torch.from_numpy(inputs)).double().numpy()


def train(
    clients: Clients,
    settings: Settings,
    *,
    seeds: np.random.SeedSequence | None = None,
    learner: Learner | None = None,
    start: Tensor | None = None,
    watch: Watch | None = None,
    secure: bool = False,
    ledger: Ledger | None = None,
    data_period: str = "",
) -> Training:
    """Train on these clients. `watch(i, w)` sees the state before round 1 and after each round.

    `start` continues from the public state of an earlier training instead of the learner's own.

    `secure` takes sampling and noise from the system's secure generator instead of the seeds.
    A `ledger` pays for the whole training before round 1, or refuses it, and writes each round
    down before its noise is drawn; a training worth paying for is secure.
    """
    secure = secure or ledger is not None
    if settings.clients_per_round > len(clients):
        raise EpifedError(
            f"clients_per_round: found {settings.clients_per_round} of {len(clients)} clients; "
            "expected at most all of them"
        )
    if secure and not settings.private:
        raise EpifedError("epsilon: found inf; expected a finite budget for a secure release")
    initial, sampling, noise = (seeds or seed_sequence(settings.seed)).spawn(3)
    learner = learner or make_learner(settings)
    randomness: Randomness = SecureRandomness() if secure else SeededRandomness(sampling, noise)
    rate = sampling_rate(len(clients), settings.clients_per_round)
    calibration = calibrate(
        settings.epsilon, settings.delta, rate, settings.rounds, settings.accountant
    )
    with ExitStack() as closing:
        run: Run | None = None
        if ledger:
            run = closing.enter_context(
                ledger.reserve(
                    sampling_rate=rate,
                    noise_multiplier=calibration.noise_multiplier,
                    rounds=settings.rounds,
                    settings_hash=settings.digest(),
                    data_period=data_period,
                )
            )
        state = learner.start(initial) if start is None else start
        if watch:
            watch(0, state)
        cohort_sizes = []
        clip_norm = settings.clip_norm if settings.private else math.inf
        error = noise_std(clip_norm, calibration.noise_multiplier, settings.clients_per_round)
        for i in range(1, settings.rounds + 1):
            cohort = randomness.sample(len(clients), settings.clients_per_round, settings.sampler)
            updates = learner.contribute(state, clients.train.of(cohort))
            if run:
                run.spend(i)
            released = randomness.release(
                updates,
                clip_norm=clip_norm,
                noise_multiplier=calibration.noise_multiplier,
                clients_per_round=settings.clients_per_round,
            )
            state = learner.step(state, released, error)
            cohort_sizes.append(len(cohort))
            if watch:
                watch(i, state)
        if run:
            run.finish(hash_of(state))
    return Training(
        state,
        learner,
        settings,
        calibration,
        tuple(cohort_sizes),
        randomness.name,
        run.name if run else None,
    )


def hash_of(state: Tensor) -> str:
    """A SHA-256 of a state."""
    return hashlib.sha256(state.numpy().tobytes()).hexdigest()
