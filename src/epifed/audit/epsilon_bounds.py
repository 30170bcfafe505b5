"""The audit in a single training (Steinke, Nasr and Jagielski, 2023, arXiv:2305.08846).

Every client is a canary with its own direction, in the training with probability 1/2. The
auditor guesses for some of them whether they took part, and abstains for the rest. Too many
right guesses refute (ε, δ), whatever the mechanism. The same module audits by many trainings,
and attacks membership in a small simulated federation.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from itertools import product
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import binom, binomtest, norm, rankdata

from epifed.audit.bench import Mechanism, Trial, likelihood_ratio
from epifed.data.panel import CasePanel
from epifed.errors import EpifedError
from epifed.learners.base import Vector, Windows
from epifed.learners.fedavg import FedAvg, FedAvgState
from epifed.privacy.accounting import (
    Errors,
    advantage_of_noise,
    direct_epsilon,
    gaussian_epsilon,
    gaussian_mu,
    most_advantage,
    right_at_most,
    sampled_gaussian_epsilon,
    separation,
    upper_rate,
)
from epifed.privacy.noise import clip
from epifed.privacy.plan import PrivacyPlan
from epifed.settings import Settings, seed_sequence
from epifed.training.loop import Clients, make_clients, train

CANARIES = 1000
EXCESS = 10.0
"""How many times the clip norm a canary sends, so that the server must clip it."""
_SHARES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5)
_REHEARSALS = 5
_LARGEST_EPSILON = 60.0


@dataclass(frozen=True)
class OneRun:
    """The bound from one training with canaries, and the guesses behind it."""

    lower_bound: float
    canaries: int
    guesses: int
    right: int
    level: float


def p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """The chance of so many right guesses if (ε, δ) holds (their Theorem 5.2 and Appendix D)."""
    accuracy = 1 / (1 + math.exp(-epsilon))
    at_least = float(binom.sf(right - 1, guesses, accuracy))
    if not right or not delta:
        return at_least
    fewer = np.cumsum(binom.pmf(np.arange(right - 1, -1, -1), guesses, accuracy))
    slope = float(np.max(fewer / np.arange(1, right + 1)))
    return min(1.0, at_least + 2 * canaries * delta * slope)


def lower_bound(canaries: int, guesses: int, right: int, delta: float, level: float) -> float:
    """The largest ε that so many right guesses refute at this level.

    >>> round(lower_bound(1000, 100, 75, 1e-4, 0.05), 3)
    0.673
    """

    def excess(epsilon: float) -> float:
        return p_value(canaries, guesses, right, epsilon, delta) - level

    if guesses == 0 or excess(0.0) >= 0:
        return 0.0
    upper = 1.0
    while excess(upper) < 0 and upper < _LARGEST_EPSILON:
        upper += 1.0
    found = float(brentq(excess, 0.0, upper, xtol=1e-9)) if excess(upper) > 0 else upper
    return max(0.0, found - 1e-9)


def one_run(
    mechanism: Mechanism, settings: Settings, clients: int, *, level: float, seed: int
) -> OneRun:
    """Train once with canaries only, at the same q, c and T, and bound ε by guessing."""
    times = max(1, round(CANARIES / clients))
    canaries = clients * times
    larger = settings.but(clients_per_round=settings.clients_per_round * times)
    rng = np.random.default_rng(seed_sequence(seed, "one run, canaries"))
    took_part = rng.random(canaries) < 0.5
    sent = np.diag(took_part).astype(np.float32) * np.float32(EXCESS * settings.clip_norm)
    trial = Trial(larger, sent, np.ones(canaries, dtype=np.int64))
    plan = _plan(trial, settings.delta, level, rng)
    transcript = mechanism.run(trial, seed_sequence(seed, "one run"))
    scores = likelihood_ratio(trial.in_units(transcript.releases), trial.claim)
    guesses, right = _guess(scores, took_part, plan)
    bound = lower_bound(canaries, guesses, right, settings.delta, level)
    return OneRun(bound, canaries, guesses, right, level)


def _guess(
    scores: NDArray[np.float64], took_part: NDArray[np.bool_], plan: tuple[int, int]
) -> tuple[int, int]:
    """Count all and right guesses: "in" for the highest scores, "out" for the lowest."""
    yes, no = plan
    order = np.argsort(scores)
    right = took_part[order[len(order) - yes :]].sum() + (~took_part[order[:no]]).sum()
    return yes + no, int(right)


def _plan(trial: Trial, delta: float, level: float, rng: np.random.Generator) -> tuple[int, int]:
    """The number of guesses of each kind that does best on rehearsals of the claimed mechanism.

    It is chosen before the training, so the bound holds without a correction.
    """
    canaries, claim = trial.clients, trial.claim
    plans = [
        (int(yes * canaries), int(no * canaries))
        for yes, no in product(_SHARES, _SHARES)
        if yes + no > 0
    ]
    totals = np.zeros(len(plans))
    for _ in range(_REHEARSALS):
        took_part = rng.random(canaries) < 0.5
        shape = (claim.rounds, canaries)
        present = took_part & (rng.random(shape) < claim.sampling_rate)
        noise = claim.noise_multiplier * rng.standard_normal(shape)
        scores = likelihood_ratio(present + noise, claim)
        for i, plan in enumerate(plans):
            guesses, right = _guess(scores, took_part, plan)
            totals[i] += lower_bound(canaries, guesses, right, delta, level)
    return plans[int(np.argmax(totals))]


Method = Literal["many-runs", "one-run", "both"]
METHODS: tuple[Method, ...] = ("many-runs", "one-run", "both")
Floats = NDArray[np.float64]
Progress = Callable[[int, int], None]

CANARY_EXAMPLES = 10
"""Training windows of the canary; others have one: its weight must not depend on them."""
LENGTH = 8
LEAST_RUNS = 40
_PILOT_SHARE = 8
"""One in this many trainings chooses the thresholds and is not counted."""


@dataclass(frozen=True)
class ManyRuns:
    """The bounds from many trainings with and without one canary."""

    lower_bound: float
    direct: float
    gaussian: float
    mu: float
    errors: Errors
    level: float
    runs: int
    scores_without: Floats
    scores_with: Floats
    threshold: float


def many_runs(
    mechanism: Mechanism,
    settings: Settings,
    clients: int,
    *,
    runs: int,
    level: float,
    seed: int,
    length: int = LENGTH,
    progress: Progress | None = None,
) -> ManyRuns:
    """Train often with and without the canary; each of the two bounds fails with `level` at most.

    Without the canary means that it sends zeros: divided by the fixed m, that equals its absence,
    at the same q.
    """
    per_arm = runs // 2
    if progress:
        progress(0, 2 * per_arm)
    arms = []
    for present in (False, True):
        trial = make_trial(settings, clients, length, present=present)
        direction = np.full(length, 1 / math.sqrt(length))
        values = []
        for i in range(per_arm):
            transcript = mechanism.run(trial, seed_sequence(seed, "many runs", present, i))
            values.append(transcript.releases @ direction)
            if progress:
                progress(present * per_arm + i + 1, 2 * per_arm)
        arms.append(likelihood_ratio(trial.in_units(np.stack(values, axis=1)), trial.claim))
    without, with_canary = arms
    pilot = per_arm // _PILOT_SHARE
    counted = per_arm - pilot

    def errors_at(threshold: float) -> Errors:
        return Errors(
            upper_rate(int((without[pilot:] >= threshold).sum()), counted, level / 2),
            upper_rate(int((with_canary[pilot:] < threshold).sum()), counted, level / 2),
        )

    thresholds, expected = _rehearsal(without[:pilot], with_canary[:pilot], counted, level)
    threshold = thresholds[int(np.argmax([separation(e) for e in expected]))]
    far = thresholds[int(np.argmax([direct_epsilon(e, settings.delta) for e in expected]))]
    errors = errors_at(threshold)
    mu = gaussian_mu(errors)
    rate = trial.claim.sampling_rate
    return ManyRuns(
        lower_bound=sampled_gaussian_epsilon(errors, settings.delta, rate, settings.rounds),
        direct=direct_epsilon(errors_at(far), settings.delta),
        gaussian=gaussian_epsilon(mu, settings.delta),
        mu=mu,
        errors=errors,
        level=level,
        runs=2 * per_arm,
        scores_without=without,
        scores_with=with_canary,
        threshold=threshold,
    )


def make_trial(settings: Settings, clients: int, length: int, *, present: bool) -> Trial:
    """A trial in which clients send zeros, and the canary, if present, far more than S."""
    sent = np.zeros((clients, length), dtype=np.float32)
    if present:
        sent[0] = EXCESS * settings.clip_norm / math.sqrt(length)
    examples = np.ones(clients, dtype=np.int64)
    examples[0] = CANARY_EXAMPLES
    return Trial(settings, sent, examples)


def _rehearsal(
    without: Floats, with_canary: Floats, counted: int, level: float
) -> tuple[list[float], list[Errors]]:
    """Thresholds and the expected bounds of each, treating the pilot's scores as about normal.

    A smooth fit is used because the best of many noisy counts would lie far out in a tail.
    """
    both = np.concatenate([without, with_canary])
    thresholds = np.quantile(both, np.linspace(0.02, 0.98, 97))
    alarms = norm.sf(thresholds, without.mean(), without.std())
    misses = norm.cdf(thresholds, with_canary.mean(), with_canary.std())

    def bound(share: float) -> float:
        return upper_rate(round(share * counted), counted, level / 2)

    expected = [Errors(bound(a), bound(b)) for a, b in zip(alarms, misses, strict=True)]
    return thresholds.tolist(), expected


EPSILONS = (math.inf, 5.0, 2.0, 1.0, 0.5)
CONFIDENCE = 0.95
COUNTIES = 20
DAYS = 31
LAST_DAY = date(2020, 12, 1)
SMALL = Settings.of(clients_per_round=5, rounds=10, epochs=10)
"""The paper's model and clip norm, in a federation small enough to be trained many times."""
_RIDGE = 1e-2
"""Without noise: the share of a client's update below which differences are ignored."""


@dataclass(frozen=True)
class Attack:
    """How well an attacker did at one budget, and the most it could have done."""

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
    """Upper bound on the share of right guesses, from (ε, δ)."""
    allowed_by_noise: float
    """Upper bound on the share of right guesses, from the noise itself."""

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
    """Select regions spread over a panel; the target is the most populous among them."""
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
    """A FedAvg that trains as usual and adds up evidence about one client."""

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
        """Take FedAvg's step, after adding the release's evidence."""
        self.score += self._evidence(state, release)
        return super().step(state, release, noise_std)

    def _evidence(self, state: FedAvgState, release: Vector) -> float:
        """log p(release | took part) / p(release | did not), cohorts approximated as Gaussian.

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
    """The federation in which the client has no windows: it sends zeros, as if it were absent."""
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
