"""Could somebody tell whether one county took part? The strongest attack we know, tried out.

The attacker sees the model after every round, as each client does, and knows everything else: all
other clients' data, the settings, the initial weights, even what the county's data would be. Only
whether it took part, who was sampled, and the noise are unknown. In each round the attacker
computes what every client would have sent, and compares how well the release fits with and
without the county.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest, norm, rankdata

from epifed.data.panel import CasePanel
from epifed.errors import EpifedError
from epifed.learners.base import Vector, Windows
from epifed.learners.fedavg import FedAvg, FedAvgState
from epifed.privacy.noise import clip
from epifed.privacy.plan import PrivacyPlan
from epifed.privacy.tradeoff import advantage_of_noise, most_advantage, right_at_most
from epifed.settings import Settings, seed_sequence
from epifed.training.loop import Clients, make_clients, train

Floats = NDArray[np.float64]

EPSILONS = (math.inf, 5.0, 2.0, 1.0, 0.5)
CONFIDENCE = 0.95
COUNTIES = 20
DAYS = 31
LAST_DAY = date(2020, 12, 1)
SMALL = Settings.of(clients_per_round=5, rounds=10, epochs=10)
"""The paper's model and clip norm, in a federation small enough to be trained many times."""
_RIDGE = 1e-2
"""Where there is no noise: the share of a client's update below which differences are ignored."""


@dataclass(frozen=True)
class Attack:
    """How well the attacker did at one budget, and what was the most it could have done."""

    epsilon: float
    delta: float
    trainings: int
    right: float
    right_low: float
    right_high: float
    auc: float
    auc_low: float
    auc_high: float
    allowed: float
    """The share of right guesses that (ε, δ) allows at most."""
    allowed_by_noise: float
    """The share that this very noise allows at most."""

    @property
    def advantage(self) -> float:
        """True minus false positive rate: 0 for guessing, 1 for certainty."""
        return 2 * self.right - 1


def membership_attack(
    clients: Clients,
    settings: Settings,
    target: int,
    *,
    epsilons: Sequence[float] = EPSILONS,
    trainings: int = 100,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> list[Attack]:
    """Attack client `target` in this many trainings per budget, half of them with it."""
    if not 0 <= target < len(clients):
        raise EpifedError(f"target: found {target}; expected one of {len(clients)} clients")
    per_arm = trainings // 2
    if per_arm < 2:
        raise EpifedError(f"trainings: found {trainings}; expected at least 4")
    without = _without(clients, target)
    if progress:
        progress(0, 2 * per_arm * len(epsilons))
    attacks = []
    for i, epsilon in enumerate(epsilons):
        here = settings.but(epsilon=epsilon)
        scores: list[list[float]] = [[], []]
        for present, federation in enumerate((without, clients)):
            for run in range(per_arm):
                attacker = Attacker(here, clients.train, target, seed)
                seeds = seed_sequence(seed, "membership", epsilon, present, run)
                train(federation.train, here, seeds=seeds, learner=attacker)
                scores[present].append(attacker.score)
                if progress:
                    done = (i * 2 + present) * per_arm + run + 1
                    progress(done, 2 * per_arm * len(epsilons))
        attacks.append(_judge(here, len(clients), np.array(scores[0]), np.array(scores[1])))
    return attacks


def small_federation(panel: CasePanel, settings: Settings) -> tuple[Clients, int]:
    """Regions spread over a panel, and the one of the most people among them: the target."""
    size = min(COUNTIES, len(panel.regions))
    chosen = np.linspace(0, len(panel.regions) - 1, size).astype(np.int64)
    last = min(panel.end, LAST_DAY)
    clients = make_clients(panel, settings, (last - timedelta(days=DAYS - 1), last))
    few = replace(
        clients,
        view=clients.train.of(chosen),
        train=clients.train.of(chosen),
        test=clients.test.of(chosen),
        regions=tuple(clients.regions[i] for i in chosen),
        names=tuple(clients.names[i] for i in chosen),
        population=None,
        parents=(),
    )
    weight = panel.counts.sum(axis=1) if panel.population is None else panel.population
    return few, int(np.argmax(weight[chosen]))


class Attacker(FedAvg):
    """A FedAvg that behaves, and on the side adds up evidence about one client."""

    def __init__(self, settings: Settings, everyone: Windows, target: int, seed: int) -> None:
        super().__init__(settings)
        self.everyone, self.target, self.seed = everyone, target, seed
        self.score = 0.0
        self.plan = PrivacyPlan.of(settings, len(everyone))

    def start(self, seeds: np.random.SeedSequence) -> FedAvgState:
        """The same known weights in every training."""
        del seeds
        return super().start(seed_sequence(self.seed, "membership, initial weights"))

    def step(self, state: FedAvgState, release: Vector, noise_std: float) -> FedAvgState:
        """As FedAvg, after a look."""
        self.score += self._evidence(state, release)
        return super().step(state, release, noise_std)

    def _evidence(self, state: FedAvgState, release: Vector) -> float:
        """log p(release | took part) / p(release | did not), cohorts taken as Gaussian.

        Without the client the release is N(q Σ a, q(1-q) Σ aaᵀ + σ²I) over the others' clipped
        updates a, of rank N - 1 and so inverted by Woodbury's identity; with it, the mixture.
        """
        plan, m, q = self.plan, self.plan.clients_per_round, self.plan.sampling_rate
        sent = self.contribute(state, self.everyone).astype(np.float64)
        rows = clip(sent, plan.bound).astype(np.float64) / m
        mine, others = rows[self.target], np.delete(rows, self.target, axis=0)
        size = plan.bound
        if not plan.private:
            size = float(np.median(np.linalg.norm(rows, axis=1))) * m
        sigma = size * max(plan.noise_multiplier, _RIDGE) / m
        spread = math.sqrt(q * (1 - q)) * others
        inner = spread @ spread.T + sigma**2 * np.eye(len(spread))
        along = np.linalg.solve(inner, spread @ mine)
        weight = (mine - spread.T @ along) / sigma**2
        residual = release.astype(np.float64) - q * others.sum(axis=0)
        exponent = float(weight @ residual - weight @ mine / 2)
        return float(np.logaddexp(math.log1p(-q), math.log(q) + exponent)) if q < 1 else exponent


def _without(clients: Clients, target: int) -> Clients:
    """The federation in which the client has no windows and so sends zeros: as if it were away."""
    mask = clients.train.mask.copy()
    mask[target] = False
    windows = replace(clients.train, mask=mask)
    return replace(clients, view=windows, train=windows)


def _judge(settings: Settings, clients: int, absent: Floats, present: Floats) -> Attack:
    right = int((present > 0).sum() + (absent <= 0).sum())
    interval = binomtest(right, len(absent) + len(present)).proportion_ci(CONFIDENCE)
    auc, deviation = area_under_curve(absent, present)
    reach = float(norm.ppf((1 + CONFIDENCE) / 2)) * deviation
    plan = PrivacyPlan.of(settings, clients)
    return Attack(
        epsilon=settings.epsilon,
        delta=settings.delta,
        trainings=len(absent) + len(present),
        right=right / (len(absent) + len(present)),
        right_low=float(interval.low),
        right_high=float(interval.high),
        auc=auc,
        auc_low=max(0.0, auc - reach),
        auc_high=min(1.0, auc + reach),
        allowed=right_at_most(most_advantage(settings.epsilon, settings.delta)),
        allowed_by_noise=right_at_most(
            advantage_of_noise(plan.noise_multiplier, plan.sampling_rate, plan.rounds)
        ),
    )


def area_under_curve(absent: Floats, present: Floats) -> tuple[float, float]:
    """The chance that a county that took part scores higher, and its deviation (DeLong, 1988).

    >>> area_under_curve(np.array([0.0, 1.0]), np.array([2.0, 3.0]))
    (1.0, 0.0)
    """
    n, m = len(absent), len(present)
    ranks = rankdata(np.concatenate([present, absent]))
    of_present = (ranks[:m] - rankdata(present)) / n
    of_absent = 1 - (ranks[m:] - rankdata(absent)) / m
    variance = of_present.var(ddof=1) / m + of_absent.var(ddof=1) / n
    return float(of_present.mean()), float(math.sqrt(variance))
