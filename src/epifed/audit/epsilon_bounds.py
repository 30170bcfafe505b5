"""The audit in a single training (Steinke, Nasr and Jagielski, 2023, arXiv:2305.08846).

Every client is a canary with a direction of its own, in the training with probability 1/2. The
auditor guesses for some of them which it was, and abstains for the rest. Too many right guesses
refute (ε, δ), whatever the mechanism.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import binom, norm

from epifed.audit.bench import Mechanism, Trial, likelihood_ratio
from epifed.privacy.tradeoff import (
    Errors,
    direct_epsilon,
    gaussian_epsilon,
    gaussian_mu,
    sampled_gaussian_epsilon,
    separation,
    upper_rate,
)
from epifed.settings import Settings, seed_sequence

CANARIES = 1000
EXCESS = 10.0
"""A canary sends so many times the clip norm: the server must clip it."""
_SHARES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5)
_REHEARSALS = 5
_LARGEST_EPSILON = 60.0


@dataclass(frozen=True)
class OneRun:
    """What one training gave away about its canaries."""

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
    """Train once with canaries only, at the same q, c and T, and guess."""
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
    """How many guesses, and how many of them right: "in" for the highest, "out" for the lowest."""
    yes, no = plan
    order = np.argsort(scores)
    right = took_part[order[len(order) - yes :]].sum() + (~took_part[order[:no]]).sum()
    return yes + no, int(right)


def _plan(trial: Trial, delta: float, level: float, rng: np.random.Generator) -> tuple[int, int]:
    """How many guesses of each kind do best on rehearsals of the claimed mechanism.

    Chosen before the training, so that the bound holds without a correction.
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
"""The canary has so many training windows, the others one: its weight must not depend on it."""
LENGTH = 8
LEAST_RUNS = 40
_PILOT_SHARE = 8
"""One in so many trainings chooses the thresholds, and is not counted."""


@dataclass(frozen=True)
class ManyRuns:
    """What many trainings gave away about one canary."""

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

    Without means that the canary sends zeros: divided by the fixed m, that is its absence, at
    the same q.
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
    """What every client sends: nothing, or the canary far more than S."""
    sent = np.zeros((clients, length), dtype=np.float32)
    if present:
        sent[0] = EXCESS * settings.clip_norm / math.sqrt(length)
    examples = np.ones(clients, dtype=np.int64)
    examples[0] = CANARY_EXAMPLES
    return Trial(settings, sent, examples)


def _rehearsal(
    without: Floats, with_canary: Floats, counted: int, level: float
) -> tuple[list[float], list[Errors]]:
    """Thresholds, and the bounds to expect of each, taking the pilot's scores as about normal.

    Smooth on purpose: the best of many noisy counts would be a threshold far out in a tail.
    """
    both = np.concatenate([without, with_canary])
    thresholds = np.quantile(both, np.linspace(0.02, 0.98, 97))
    alarms = norm.sf(thresholds, without.mean(), without.std())
    misses = norm.cdf(thresholds, with_canary.mean(), with_canary.std())

    def bound(share: float) -> float:
        return upper_rate(round(share * counted), counted, level / 2)

    expected = [Errors(bound(a), bound(b)) for a, b in zip(alarms, misses, strict=True)]
    return thresholds.tolist(), expected
