"""Measures from outside how much privacy a mechanism really gives: a lower bound on its ε.

A worst-case client, which sends far more than S in one direction, takes part in half of many
trainings. How well can one tell which? Three answers, from the weakest assumption to the strongest:

- `direct`: error rates this low contradict every ε below the bound, for any mechanism.
- `lower_bound`: no Poisson-sampled Gaussian with the claimed q and T errs as little unless its ε
  is at least this. A bound above the claim refutes the claimed noise at the given confidence.
- `gaussian`: the ε of the Gaussian mechanism with the same errors. A rule of thumb, because a
  sampled Gaussian is not Gaussian-DP; it decides nothing.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from epifed.audit.findings import GROUPS, Check, Group
from epifed.audit.mechanisms import EngineMechanism, Mechanism, Trial, likelihood_ratio
from epifed.audit.one_run import EXCESS, OneRun, one_run
from epifed.audit.suite import run_checks
from epifed.errors import EpifedError
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


@dataclass(frozen=True)
class Audit:
    """A verdict with what it rests on."""

    claimed_epsilon: float
    lower_bound: float
    confidence: float
    passed: bool
    delta: float
    method: Method
    runs: int
    mechanism: str
    settings: Settings
    clients: int
    noise_multiplier: float
    many_runs: ManyRuns | None
    one_run: OneRun | None
    checks: tuple[Check, ...]

    def to_dict(self) -> dict[str, object]:
        """For JSON: all but the single scores."""
        s = self.settings
        found: dict[str, object] = {
            "claimed_epsilon": self.claimed_epsilon,
            "lower_bound": self.lower_bound,
            "confidence": self.confidence,
            "passed": self.passed,
            "delta": self.delta,
            "runs": self.runs,
            "method": self.method,
            "mechanism": self.mechanism,
            "clients": self.clients,
            "clients_per_round": s.clients_per_round,
            "rounds": s.rounds,
            "clip_norm": s.clip_norm,
            "accountant": s.accountant,
            "noise_multiplier": self.noise_multiplier,
            "unit": "one client",
            "neighbouring": "add or remove one client",
            "many_runs": None,
            "one_run": asdict(self.one_run) if self.one_run else None,
            "checks": [asdict(check) for check in self.checks],
        }
        if self.many_runs:
            m = self.many_runs
            found["many_runs"] = {
                "lower_bound": m.lower_bound,
                "direct": m.direct,
                "gaussian_approximation": m.gaussian,
                "mu": m.mu,
                "false_positive_rate_at_most": m.errors.false_positive,
                "false_negative_rate_at_most": m.errors.false_negative,
                "threshold": m.threshold,
            }
        return found


def audit(
    settings: Settings,
    clients: int,
    *,
    mechanism: Mechanism | None = None,
    method: Method = "many-runs",
    runs: int = 3000,
    confidence: float = 0.99,
    seed: int = 0,
    length: int = LENGTH,
    checks: tuple[Group, ...] = GROUPS,
    federation: bool = False,
    progress: Progress | None = None,
) -> Audit:
    """Audit a mechanism, a training in one process unless told otherwise, against its claim.

    `runs` trainings, half of them with the canary. All bounds hold together at `confidence`. The
    checks of these groups look at all of the deployed code, whatever the mechanism; those with
    `federation` at a federation on real processes too. Passed: no bound is above the claimed ε,
    and no check failed.
    """
    _check_arguments(settings, clients, method, runs, confidence)
    chosen = mechanism or EngineMechanism()
    bounds = {"many-runs": 2, "one-run": 1, "both": 3}[method]
    level = (1 - confidence) / bounds
    many = one = None
    if method != "one-run":
        many = many_runs(
            chosen,
            settings,
            clients,
            runs=runs,
            level=level,
            seed=seed,
            length=length,
            progress=progress,
        )
    if method != "many-runs":
        one = one_run(chosen, settings, clients, level=level, seed=seed)
    found = tuple(
        run_checks(settings, seed=seed, groups=checks, federation=federation) if checks else ()
    )
    measured = [one.lower_bound] if one else []
    if many:
        measured += [many.lower_bound, many.direct]
    bound = max(measured)
    trial = _trial(settings, clients, length, present=False)
    return Audit(
        claimed_epsilon=settings.epsilon,
        lower_bound=bound,
        confidence=confidence,
        passed=bound <= settings.epsilon and all(check.passed for check in found),
        delta=settings.delta,
        method=method,
        runs=(many.runs if many else 0) + (1 if one else 0),
        mechanism=chosen.name,
        settings=settings,
        clients=clients,
        noise_multiplier=trial.claim.noise_multiplier,
        many_runs=many,
        one_run=one,
        checks=found,
    )


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
        trial = _trial(settings, clients, length, present=present)
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


def _trial(settings: Settings, clients: int, length: int, *, present: bool) -> Trial:
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


def _check_arguments(
    settings: Settings, clients: int, method: str, runs: int, confidence: float
) -> None:
    if not settings.private:
        raise EpifedError("epsilon: found inf; expected a finite claim to audit")
    if method not in METHODS:
        raise EpifedError(f"method: found '{method}'; expected one of {', '.join(METHODS)}")
    if not 1 <= settings.clients_per_round <= clients:
        raise EpifedError(
            f"clients_per_round: found {settings.clients_per_round} of {clients} clients; "
            "expected at most all of them"
        )
    if runs < LEAST_RUNS:
        raise EpifedError(f"runs: found {runs}; expected at least {LEAST_RUNS}")
    if not 0.5 <= confidence < 1:
        raise EpifedError(f"confidence: found {confidence}; expected from 0.5 to below 1")
