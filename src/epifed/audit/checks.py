"""What statistics on one canary cannot see, looked at one by one, still from outside.

Each check trains small federations of puppets and compares every release with what Algorithm 1
says it must be. A correct mechanism fails one with a probability below 1e-6.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from epifed.audit.mechanisms import Mechanism, Transcript, Trial
from epifed.learner import Floats, Vector
from epifed.seeds import seed_sequence
from epifed.settings import Settings

CLIENTS, CLIENTS_PER_ROUND, ROUNDS = 24, 6, 200
FEW = (4, 1)
"""So few clients, and so few per round, that many rounds are empty."""
LENGTH = 1024
LOOSE = 1e6
"""At this ε the noise is next to nothing, so that single clients show."""
LIMIT = 6.5
"""Standard deviations that chance may explain."""


@dataclass(frozen=True)
class Check:
    """One rule of the mechanism, and whether it was kept."""

    name: str
    passed: bool
    expected: str
    found: str


def check_mechanism(
    mechanism: Mechanism, settings: Settings, *, seed: int = 0, length: int = LENGTH
) -> list[Check]:
    """All checks, at the clip norm, budget, δ and accountant of these settings."""
    rng = np.random.default_rng(seed_sequence(seed, "checks"))
    usual = settings.but(clients_per_round=CLIENTS_PER_ROUND, rounds=ROUNDS, sampler="poisson")
    few_clients, few_per_round = FEW
    sparse = usual.but(clients_per_round=few_per_round)
    run = partial(_run, mechanism, seed)

    silent = Trial(usual, _nothing(CLIENTS, length), _examples(CLIENTS))
    quiet, again = run(silent, "noise"), run(silent, "noise again")
    empty = Trial(sparse, _nothing(few_clients, length), _examples(few_clients))

    axes = (np.eye(CLIENTS, length) * settings.clip_norm).astype(np.float32)
    honest = Trial(usual.but(epsilon=LOOSE), axes, _examples(CLIENTS))

    dense = rng.standard_normal(length)
    dense /= np.linalg.norm(dense)
    loud = _nothing(few_clients, length)
    loud[0] = 100 * settings.clip_norm * dense
    greedy = Trial(sparse.but(epsilon=LOOSE), loud, _examples(few_clients))
    return [
        _noise(silent, quiet),
        _empty_round(empty, run(empty, "empty")),
        _fresh_noise(np.concatenate([quiet.releases, again.releases])),
        _sampling(quiet),
        _equal_weights(honest, run(honest, "weights")),
        _clipping(greedy, run(greedy, "clipping"), dense),
    ]


def _run(mechanism: Mechanism, seed: int, trial: Trial, name: str) -> Transcript:
    return mechanism.run(trial, seed_sequence(seed, "checks", name))


def _nothing(clients: int, length: int) -> Vector:
    return np.zeros((clients, length), dtype=np.float32)


def _examples(clients: int) -> NDArray[np.int64]:
    return np.arange(1, clients + 1, dtype=np.int64)


def _deviations(trial: Trial, releases: Vector) -> NDArray[np.float64]:
    """The noise of each round, as a multiple of what it must be."""
    values = trial.in_units(releases) / trial.claim.noise_multiplier
    found: NDArray[np.float64] = np.sqrt(np.square(values).mean(axis=1))
    return found


def _noise(trial: Trial, transcript: Transcript) -> Check:
    """Deviation S·c/m in every round, however many came."""
    found = _deviations(trial, transcript.releases)
    worst = float(found[np.argmax(np.abs(found - 1))])
    return Check(
        "noise",
        abs(worst - 1) < _tolerance(transcript),
        "deviation S·c/m in every round, however many clients came",
        f"{worst:.3f} of it in the worst of {len(found)} rounds",
    )


def _empty_round(trial: Trial, transcript: Transcript) -> Check:
    """Nobody came: the release is noise all the same."""
    nobody = np.array([len(cohort) == 0 for cohort in transcript.cohorts])
    found = _deviations(trial, transcript.releases)[nobody]
    least = float(found.min()) if len(found) else 0.0
    return Check(
        "empty round",
        len(found) > 0 and abs(least - 1) < _tolerance(transcript),
        "an empty round is released with the same noise",
        f"{len(found)} empty rounds, the least noise {least:.3f} of what it must be",
    )


def _fresh_noise(releases: Vector) -> Check:
    """No two rounds share their noise, in one training or in two."""
    values = releases.astype(np.float64)
    norms = np.linalg.norm(values, axis=1, keepdims=True)
    unit = values / np.where(norms > 0, norms, 1.0)
    alike = np.abs(unit @ unit.T)
    np.fill_diagonal(alike, 0.0)
    worst = float(alike.max())
    return Check(
        "fresh noise",
        worst < LIMIT / values.shape[1] ** 0.5,
        "the noise of any two rounds is uncorrelated",
        f"largest correlation {worst:.3f} among {len(values)} rounds of two trainings",
    )


def _sampling(transcript: Transcript) -> Check:
    """Poisson: the sizes of cohorts vary as a binomial, and rounds do not know each other."""
    came = np.zeros((len(transcript.cohorts), CLIENTS))
    for row, cohort in zip(came, transcript.cohorts, strict=True):
        row[cohort] = 1
    q, rounds = CLIENTS_PER_ROUND / CLIENTS, len(came)
    sizes = came.sum(axis=1)
    variance = CLIENTS * q * (1 - q)
    dispersion = float(np.square(sizes - CLIENTS * q).mean() / variance)
    twice = float((came[1:] * came[:-1]).sum(axis=1).mean())
    spread = np.sqrt(CLIENTS * q**2 * (1 - q**2) / (rounds - 1))
    off = {
        "dispersion": (dispersion - 1) / np.sqrt(2 / rounds),
        "mean": (sizes.mean() - CLIENTS * q) / np.sqrt(variance / rounds),
        "client": np.abs(came.mean(axis=0) - q).max() / np.sqrt(q * (1 - q) / rounds),
        "overlap": (twice - CLIENTS * q**2) / (1.5 * spread),
    }
    return Check(
        "sampling",
        all(abs(z) < LIMIT for z in off.values()),
        "each client comes with probability q, whoever else comes and whenever",
        f"cohorts of {sizes.min():.0f} to {sizes.max():.0f}, variance {dispersion:.2f} of the "
        f"binomial's; {twice:.2f} of {CLIENTS * q**2:.2f} clients in two rounds running",
    )


def _equal_weights(trial: Trial, transcript: Transcript) -> Check:
    """A client moves the release by its vector over m: whoever comes, however many examples."""
    weights = trial.in_units(transcript.releases[:, : trial.clients])
    due = np.zeros_like(weights)
    for row, cohort in zip(due, transcript.cohorts, strict=True):
        row[cohort] = 1
    off = np.abs(weights - due)
    place = np.unravel_index(int(off.argmax()), off.shape)
    return Check(
        "equal weights",
        float(off.max()) < LIMIT * trial.claim.noise_multiplier,
        "each client that comes counts 1/m, the others 0",
        f"at most {off[place]:.2f}/m off: {weights[place]:.2f}/m where {due[place]:.0f}/m is due",
    )


def _clipping(trial: Trial, transcript: Transcript, direction: Floats) -> Check:
    """A client that sends 100 S, spread over all parameters, counts as one that sends S."""
    present = np.array([0 in cohort for cohort in transcript.cohorts])
    found = trial.in_units(transcript.releases @ direction)[present]
    mean = float(found.mean()) if len(found) else 0.0
    tolerance = LIMIT * trial.claim.noise_multiplier / max(len(found), 1) ** 0.5 + 1e-3
    return Check(
        "clipping",
        len(found) > 0 and abs(mean - 1) < tolerance,
        "an update of norm 100 S counts as S, over all parameters together",
        f"it counts as {mean:.3f} S",
    )


def _tolerance(transcript: Transcript) -> float:
    """Of the deviation found in one round."""
    return LIMIT / float(np.sqrt(2 * transcript.releases.shape[1]))
