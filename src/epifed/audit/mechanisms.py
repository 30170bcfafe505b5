"""What the audit looks at from outside: the trusted side of a training, with chosen clients in it.

A `Trial` says what every client sends whenever it is asked. A `Mechanism` trains with such
clients and hands back what an adversary would see. The real one is the simulation engine itself,
with a learner in it that sends the trial's vectors and writes down every release.
"""

import math
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from epifed import training
from epifed.privacy.accounting import Calibration, calibrate
from epifed.protocol import sampling_rate
from epifed.settings import Settings
from epifed.windows import Clients, Windows


@dataclass(frozen=True)
class Trial:
    """A federation of puppets: client k sends `sent[k]`, and has `examples[k]` training windows."""

    settings: Settings
    sent: Tensor
    examples: NDArray[np.int64]

    @property
    def clients(self) -> int:
        """N."""
        return len(self.sent)

    @cached_property
    def claim(self) -> Calibration:
        """The noise that the accountant says this training has."""
        s = self.settings
        rate = sampling_rate(self.clients, s.clients_per_round)
        return calibrate(s.epsilon, s.delta, rate, s.rounds, s.accountant)

    @cached_property
    def numbered(self) -> Clients:
        """Clients whose windows hold nothing but the client's number."""
        shape = (self.clients, int(self.examples.max()))
        numbers = np.arange(self.clients, dtype=np.float32)
        windows = Windows(
            np.broadcast_to(numbers[:, None, None], (*shape, 1)).copy(),
            np.zeros(shape, dtype=np.float32),
            np.arange(shape[1]) < self.examples[:, None],
            np.full(shape, np.datetime64(date(2020, 1, 1))),
        )
        names = tuple(str(k) for k in range(self.clients))
        return Clients(windows, windows, names, names, None)

    def in_units(self, projections: Tensor) -> NDArray[np.float64]:
        """Projections of releases such that one whole client counts 1, and the noise c."""
        s = self.settings
        return projections.double().numpy() * (s.clients_per_round / s.clip_norm)


@dataclass(frozen=True)
class Transcript:
    """What a training showed: who came to each round, and what was released [rounds, length]."""

    cohorts: tuple[NDArray[np.int64], ...]
    releases: Tensor


class Mechanism(Protocol):
    """Anything that trains: the engine, the deployed server, or one with a bug in it."""

    name: str

    def run(self, trial: Trial, seeds: np.random.SeedSequence) -> Transcript:
        """One training of these clients."""
        ...


class Recorder:
    """A learner whose clients send what the trial says, and whose server writes down."""

    def __init__(self, sent: Tensor) -> None:
        self.sent = sent
        self.cohorts: list[NDArray[np.int64]] = []
        self.releases: list[Tensor] = []

    def start(self, seeds: np.random.SeedSequence) -> Tensor:
        """Zeros."""
        del seeds
        return torch.zeros(self.sent.shape[1])

    def contribute(self, state: Tensor, windows: Windows) -> Tensor:
        """The rows of those who came."""
        del state
        cohort = windows.inputs[:, 0, 0].astype(np.int64)
        self.cohorts.append(cohort)
        return self.sent[cohort]

    def step(self, state: Tensor, release: Tensor, noise_std: float) -> Tensor:
        """As FedAvg."""
        del noise_std
        self.releases.append(release)
        return state + release

    def predict(self, state: Tensor, inputs: Tensor) -> Tensor:
        """Nothing."""
        del state
        return torch.zeros(inputs.shape[:-1])


class EngineMechanism:
    """`training.train` as it is: its sampling, its noise, its release.

    With `secure`, the path for real data, which pays no heed to the seeds.
    """

    def __init__(self, *, secure: bool = False) -> None:
        self.secure = secure
        self.name = f"the engine with {'secure' if secure else 'seeded'} randomness"

    def run(self, trial: Trial, seeds: np.random.SeedSequence) -> Transcript:
        """One training by the engine."""
        recorder = Recorder(trial.sent)
        training.train(
            trial.numbered, trial.settings, seeds=seeds, learner=recorder, secure=self.secure
        )
        return Transcript(tuple(recorder.cohorts), torch.stack(recorder.releases))


def likelihood_ratio(values: NDArray[np.float64], claim: Calibration) -> NDArray[np.float64]:
    """log p(took part) / p(did not), summed over the rounds (the first axis).

    `values` are projections on the client's direction in units of one client: N(0, c²) without
    it, and with it the mixture of the paper's Theorem 1. The strongest test there is, if the
    mechanism is what it claims to be.
    """
    q, c = claim.sampling_rate, claim.noise_multiplier
    absent = math.log1p(-q) if q < 1 else -math.inf
    ratio = np.logaddexp(absent, math.log(q) + (2 * values - 1) / (2 * c * c))
    total: NDArray[np.float64] = ratio.sum(axis=0)
    return total
