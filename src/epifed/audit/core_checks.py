"""Checks of the round core by itself: its draws in great number, and what it makes of bad rows."""

from collections.abc import Callable
from functools import partial

import numpy as np

from epifed.audit.checks import CLIENTS, CLIENTS_PER_ROUND, LOOSE
from epifed.audit.findings import Check, Names, made
from epifed.audit.mechanisms import Recorder, Trial
from epifed.audit.sampling_checks import attendance, check_sampling
from epifed.audit.statistics import limit
from epifed.learners.base import Vector
from epifed.privacy.noise import Randomness, SecureRandomness, SeededRandomness
from epifed.privacy.plan import PrivacyPlan
from epifed.settings import Settings, seed_sequence
from epifed.training.rounds import Rounds

DRAWS = 4000
LENGTH = 64
RATES = ((7, 7), (41, 3), (5, 4))
"""Other N and m: all come, few come, most come."""

Source = Callable[[], Randomness]


def sources(seed: int) -> dict[str, Source]:
    """The two kinds of randomness, as the round core uses them."""
    return {
        "round core, seeded": lambda: SeededRandomness(*seed_sequence(seed, "core").spawn(2)),
        "round core, secure": SecureRandomness,
    }


def core(randomness: Randomness, settings: Settings, clients: int) -> Rounds[Vector]:
    """The round core with puppets that send nothing by themselves."""
    nothing = np.zeros((clients, LENGTH), dtype=np.float32)
    recorder = Recorder(Trial(settings, nothing, np.ones(clients, dtype=np.int64)))
    return Rounds(recorder, PrivacyPlan.of(settings, clients), randomness, LENGTH)


def check_draws(settings: Settings, seed: int, names: Names = None) -> list[tuple[str, Check]]:
    """The checks of sampling on thousands of draws, by path."""
    found: list[tuple[str, Check]] = []
    if names is not None and not any(name.startswith("sampling") for name in names):
        return found
    for path, source in sources(seed).items():
        rounds = core(source(), settings.but(clients_per_round=CLIENTS_PER_ROUND), CLIENTS)
        cohorts = tuple(rounds.draw() for _ in range(DRAWS))
        came = attendance(cohorts, CLIENTS)
        found += [(path, check) for check in check_sampling(came, CLIENTS_PER_ROUND / CLIENTS)]
        for clients, per_round in RATES:
            rounds = core(source(), settings.but(clients_per_round=per_round), clients)
            came = attendance(tuple(rounds.draw() for _ in range(DRAWS // 4)), clients)
            where = f"{path}, {per_round} of {clients}"
            if per_round == clients:
                found.append((where, _everybody(came.all(axis=1).mean())))
            else:
                found += [(where, check) for check in check_sampling(came, per_round / clients)]
    return [(path, check) for path, check in found if names is None or check.name in names]


def _everybody(share: float) -> Check:
    return Check(
        "sampling rate",
        share == 1,
        "with m = N everybody comes",
        f"everybody came in {share:.1%} of rounds",
    )


def check_rows(settings: Settings, seed: int, names: Names = None) -> list[tuple[str, Check]]:
    """What the round core does with rows that are too long, broken or huge, by path."""
    checks = {"server clips": _server_clips, "broken rows": _broken_rows}
    return [
        (path, check)
        for path, source in sources(seed).items()
        for check in made(
            "mechanism",
            {name: partial(check, source, settings, seed) for name, check in checks.items()},
            names,
        )
    ]


def closed(source: Source, settings: Settings, rows: Vector) -> tuple[Vector, float]:
    """The release of these rows in units of S / m, and the deviation of the noise in it."""
    loose = settings.but(epsilon=LOOSE, clients_per_round=2, rounds=10)
    rounds = core(source(), loose, 4)
    after = rounds.close(np.zeros(LENGTH, dtype=np.float32), rows)
    return after * np.float32(2 / settings.clip_norm), rounds.plan.noise_multiplier


def _server_clips(source: Source, settings: Settings, seed: int) -> Check:
    rng = np.random.default_rng(seed_sequence(seed, "core", "directions"))
    dense = rng.standard_normal(LENGTH)
    directions = {
        "spread": dense / np.linalg.norm(dense),
        "in one coordinate": np.eye(LENGTH)[3],
        "in the last": -np.eye(LENGTH)[-1],
    }
    worst, where = 0.0, ""
    for name, direction in directions.items():
        for times in (0.5, 1.0, 1.5, 100.0, 1e30):
            row = (times * settings.clip_norm * direction).astype(np.float32)
            released, noise = closed(source, settings, row[None])
            due = min(times, 1.0) * direction
            off = float(np.linalg.norm(released - due)) - noise * (LENGTH**0.5 + limit(30))
            if off > worst:
                worst, where = off, f" for {times:g} S {name}"
    return Check(
        "server clips",
        worst < 1e-3,
        "the server itself counts a row of norm above S as S, whatever the client says",
        f"at most {worst:.2g} S off{where}, noise taken off",
    )


def _broken_rows(source: Source, settings: Settings, seed: int) -> Check:
    del seed
    bound = settings.clip_norm
    good = np.eye(LENGTH, dtype=np.float32)[0] * np.float32(bound)
    problem = ""
    for name, value in (("NaN", np.nan), ("inf", np.inf), ("-inf", -np.inf), ("3e38", 3e38)):
        for whole in (False, True):
            bad = np.zeros(LENGTH, dtype=np.float32)
            bad[slice(None) if whole else 5] = value
            released, noise = closed(source, settings, np.stack([bad, good]))
            allowed = 1.0 + 1e-3 if np.isfinite(value) else 0.0
            tolerance = 1e-3 + noise * (LENGTH**0.5 + limit(30))
            off = float(np.linalg.norm(released - np.eye(LENGTH)[0]))
            if not off <= allowed + tolerance:
                problem = problem or f"a row with {name} moves the release by {off:.3g} S"
    return Check(
        "broken rows",
        not problem,
        "a row that is not finite counts as zero, and every other row as always",
        problem or "rows with NaN, inf and the largest numbers move no other",
    )
