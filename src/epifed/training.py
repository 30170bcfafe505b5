"""The whole federation in one process: Algorithm 1 with every cohort as one stack."""

import hashlib
import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import date

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from epifed.errors import EpifedError
from epifed.learners import Learner, make_learner
from epifed.ledger.ledger import Ledger, Run
from epifed.privacy.accounting import Calibration, calibrate
from epifed.privacy.randomness import Randomness, SecureRandomness, SeededRandomness
from epifed.protocol import noise_factor, noise_std, sampling_rate
from epifed.seeds import seed_sequence
from epifed.settings import NoiseName, Settings
from epifed.windows import Clients

Watch = Callable[[int, Tensor], None]

TRUST: dict[NoiseName, str] = {
    "server": "clients trust the server, which sees their updates and adds the noise",
    "clients": (
        "clients trust each other, not the server: each adds a share of the noise, sampled or "
        "not, and the server sees only the sum (secure aggregation)"
    ),
    "local": (
        "clients trust nobody: each adds all the noise to its own update, which then says as "
        "little as one of zero; the server sees who comes, so sampling amplifies nothing"
    ),
}
"""What a client must believe for its ε to hold, by who adds the noise."""


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
    days: tuple[date, date] | None = None,
) -> Training:
    """Train on these clients. `watch(i, w)` sees the state before round 1 and after each round.

    `start` continues from the public state of an earlier training instead of the learner's own.

    `secure` takes sampling and noise from the system's secure generator instead of the seeds.
    A `ledger` pays for the whole training before round 1, or refuses it, and writes each round
    down before its noise is drawn, with the first and last of the data's `days`; a training worth
    paying for is secure.
    """
    secure = secure or ledger is not None
    if settings.clients_per_round > len(clients):
        raise EpifedError(
            f"clients_per_round: found {settings.clients_per_round} of {len(clients)} clients; "
            "expected at most all of them"
        )
    if secure and not settings.private:
        raise EpifedError("epsilon: found inf; expected a finite budget for a secure release")
    if secure and settings.noise != "server":
        raise EpifedError(
            f"noise: found '{settings.noise}'; expected 'server' for a secure release: the other "
            "kinds are simulations for comparison"
        )
    if settings.noise == "clients" and len(clients) < 2:
        raise EpifedError("noise: found 'clients' with 1 client; expected at least 2 to share it")
    initial, sampling, noise = (seeds or seed_sequence(settings.seed)).spawn(3)
    learner = learner or make_learner(settings)
    randomness: Randomness = SecureRandomness() if secure else SeededRandomness(sampling, noise)
    calibration = calibration_of(settings, len(clients))
    with ExitStack() as closing:
        run: Run | None = None
        if ledger:
            run = closing.enter_context(
                ledger.reserve(
                    sampling_rate=calibration.sampling_rate,
                    noise_multiplier=calibration.noise_multiplier,
                    rounds=settings.rounds,
                    settings_hash=settings.digest(),
                    first_day=days[0] if days else None,
                    last_day=days[1] if days else None,
                )
            )
        state = learner.start(initial) if start is None else start
        if watch:
            watch(0, state)
        cohort_sizes = []
        clip_norm = settings.clip_norm if settings.private else math.inf
        for i in range(1, settings.rounds + 1):
            cohort = randomness.sample(len(clients), settings.clients_per_round, settings.sampler)
            updates = learner.contribute(state, clients.train.of(cohort))
            if run:
                run.spend(i)
            factor = noise_factor(settings.noise, len(clients), len(cohort))
            noise_multiplier = factor * calibration.noise_multiplier
            released = randomness.release(
                updates,
                clip_norm=clip_norm,
                noise_multiplier=noise_multiplier,
                clients_per_round=settings.clients_per_round,
            )
            error = noise_std(clip_norm, noise_multiplier, settings.clients_per_round)
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


def calibration_of(settings: Settings, clients: int) -> Calibration:
    """The noise that the settings ask for with that many clients, and whom they must trust.

    With local noise the server sees who comes, so each round counts as if everybody did (q = 1).
    """
    local = settings.noise == "local"
    calibration = calibrate(
        settings.epsilon,
        settings.delta,
        1.0 if local else sampling_rate(clients, settings.clients_per_round),
        settings.rounds,
        settings.accountant,
    )
    return replace(calibration, trust=TRUST[settings.noise])


def hash_of(state: Tensor) -> str:
    """A SHA-256 of a state."""
    return hashlib.sha256(state.numpy().tobytes()).hexdigest()
