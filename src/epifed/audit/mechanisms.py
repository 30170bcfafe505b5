"""What the audit looks at from outside: the trusted side of a training, with chosen clients in it.

A `Trial` says what every client sends whenever it is asked. A `Mechanism` trains with such
clients and hands back what an adversary would see. There are two, one for each transport of the
deployed rounds: `training.train` in one process, and a federation's server and sites (`served`).
In both only the learner is a puppet: it sends the trial's vectors and writes down every release.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from epifed.data.panel import CasePanel
from epifed.learners.base import Floats, Learner, Period, Vector
from epifed.privacy.accounting import Calibration
from epifed.privacy.plan import PrivacyPlan
from epifed.settings import Settings
from epifed.training import loop


@dataclass(frozen=True)
class Trial:
    """A federation of puppets: client k sends `sent[k]`, and has `examples[k]` examples."""

    settings: Settings
    sent: Vector
    examples: NDArray[np.int64]

    @property
    def clients(self) -> int:
        """N."""
        return len(self.sent)

    @cached_property
    def claim(self) -> Calibration:
        """The noise that the accountant says this training has."""
        return PrivacyPlan.of(self.settings, self.clients).calibration

    @property
    def view(self) -> "Puppets":
        """All clients, as a learner sees them."""
        return Puppets(np.arange(self.clients), self.examples)

    def in_units(self, projections: NDArray[Any]) -> Floats:
        """Projections of releases such that one whole client counts 1, and the noise c."""
        s = self.settings
        return projections.astype(np.float64) * (s.clients_per_round / s.clip_norm)


@dataclass(frozen=True)
class Puppets:
    """Clients that are nothing but their numbers, and how many examples they would have."""

    numbers: NDArray[np.int64]
    examples: NDArray[np.int64]

    def __len__(self) -> int:
        """The number of clients."""
        return len(self.numbers)

    def of(self, clients: NDArray[np.int64]) -> "Puppets":
        """Some of them."""
        return Puppets(self.numbers[clients], self.examples[clients])


@dataclass(frozen=True)
class Transcript:
    """What a training showed: who came to each round, and what was released [rounds, length]."""

    cohorts: tuple[NDArray[np.int64], ...]
    releases: Vector


class Mechanism(Protocol):
    """Anything that trains: the engine, the deployed server, or one with a bug in it."""

    name: str

    def run(self, trial: Trial, seeds: np.random.SeedSequence) -> Transcript:
        """One training of these clients."""
        ...


class Recorder(Learner[Vector, Puppets]):
    """A learner whose clients send what the trial says, and whose server writes down."""

    name = "recorder"

    def __init__(self, trial: Trial) -> None:
        super().__init__(trial.settings)
        self.sent, self.examples = trial.sent, trial.examples
        self.cohorts: list[NDArray[np.int64]] = []
        self.releases: list[Vector] = []

    def view(self, panel: CasePanel, period: Period) -> Puppets:
        """Puppets have no data: a region's code is its number."""
        del period
        numbers = np.array([int(region) for region in panel.regions], dtype=np.int64)
        return Puppets(numbers, self.examples[numbers])

    def empty_view(self) -> Puppets:
        """No puppet."""
        return Puppets(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))

    def start(self, seeds: np.random.SeedSequence) -> Vector:
        """Zeros."""
        del seeds
        return np.zeros(self.sent.shape[1], dtype=np.float32)

    def contribute(self, state: Vector, view: Puppets) -> Vector:
        """The rows of those who came."""
        del state
        return self.sent[view.numbers]

    def step(self, state: Vector, release: Vector, noise_std: float) -> Vector:
        """As FedAvg."""
        del noise_std
        self.releases.append(release)
        return state + release

    def predict(self, state: Vector, inputs: Vector) -> Floats:
        """Nothing."""
        del state
        return np.zeros(inputs.shape[:-1])

    def hindcast(self, panel: CasePanel, state: Vector, horizon: int) -> Floats:
        """Nothing."""
        raise TypeError("puppets forecast nothing")

    def pack(self, state: Vector) -> Vector:
        """Itself."""
        return state

    def unpack(self, vector: Vector) -> Vector:
        """Itself."""
        return vector


@dataclass(frozen=True)
class Watched:
    """A view that writes down which of its rows were asked for: the cohorts."""

    view: Puppets
    cohorts: list[NDArray[np.int64]]

    def __len__(self) -> int:
        """The number of clients."""
        return len(self.view)

    def of(self, clients: NDArray[np.int64]) -> Puppets:
        """Some of them, noted."""
        self.cohorts.append(clients)
        return self.view.of(clients)


class EngineMechanism:
    """`training.train` as it is: its sampling, its noise, its release.

    With `secure`, the path for real data, which pays no heed to the seeds.
    """

    def __init__(self, *, secure: bool = False) -> None:
        self.secure = secure
        self.name = f"in process, {'secure' if secure else 'seeded'}"

    def run(self, trial: Trial, seeds: np.random.SeedSequence) -> Transcript:
        """One training by the engine."""
        recorder = Recorder(trial)
        watched = Watched(trial.view, recorder.cohorts)
        loop.train(watched, trial.settings, seeds=seeds, learner=recorder, secure=self.secure)
        return Transcript(tuple(recorder.cohorts), np.stack(recorder.releases))


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
