"""Checks that all secure draws come from the system's generator, in every class that draws.

A tape replaces the two lowest levels of a process: the system's random bytes, and the library
that draws exact noise. With the same tape every cohort, coin, share and noise must be the same.
With another tape each must differ. All noise must be exactly what the tape gives. So neither a
clock nor a NumPy generator nor anything else affects the draws.
"""

import hashlib
import math
import os
import random
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from epifed.audit.bench import EngineMechanism, Mechanism, Played, ServedMechanism, Trial, at_work
from epifed.audit.noise_checks import CORE_LENGTH, LOOSE, core
from epifed.audit.statistics import LEVEL, Check, Names, alarms, finding, made
from epifed.federation import site
from epifed.privacy import noise as secure
from epifed.privacy.noise import SecureRandomness
from epifed.settings import Settings, seed_sequence

CLIENTS, CLIENTS_PER_ROUND, ROUNDS = 64, 16, 2
SITES = {"site-1": tuple(range(40)), "site-2": tuple(range(40, 60)), "site-3": (60, 61, 62, 63)}
REACH = 2**20
"""The noise of a tape is up to this many steps of the grid in size."""
_GRID = (0.5, 1)
"""S and m at which a release of single precision shows the whole steps of the grid exactly."""
_LOW_BITS = 16
SYSTEM = ((os, "urandom"), (random, "_urandom"))


@dataclass
class Tape:
    """Reproducible bytes in place of the system's, and noise in place of the library's."""

    name: str
    taken: int = 0
    noises: list[NDArray[np.int64]] = field(default_factory=list)
    blocks: dict[str, int] = field(default_factory=dict)

    def block(self, kind: str, size: int) -> bytes:
        """The next bytes of a kind."""
        content = b""
        while len(content) < size:
            self.blocks[kind] = self.blocks.get(kind, 0) + 1
            text = f"{self.name} {kind} {self.blocks[kind]}"
            content += hashlib.sha256(text.encode()).digest()
        return content[:size]

    def urandom(self, size: int) -> bytes:
        """Replaces the system's random bytes."""
        self.taken += size
        return self.block("bytes", size)

    def noise(self, measurement: Any, values: Any) -> list[int]:
        """Replaces the library's exact noise."""
        del measurement
        words = np.frombuffer(self.block("noise", 8 * len(values)), dtype=np.uint64)
        drawn = (words % np.uint64(2 * REACH)).astype(np.int64) - REACH
        self.noises.append(drawn)
        return [int(value) + int(added) for value, added in zip(values, drawn, strict=True)]


@contextmanager
def played_by(tape: Tape) -> Iterator[None]:
    """Let the system's generator and the library of exact noise return what the tape has."""
    from opendp.mod import Measurement  # noqa: PLC0415

    with ExitStack() as stack:
        for module, name in SYSTEM:
            stack.enter_context(mock.patch.object(module, name, tape.urandom))
        stack.enter_context(mock.patch.object(Measurement, "__call__", _calling(tape)))
        yield


def _calling(tape: Tape) -> Callable[..., Any]:
    def call(self: Any, values: Any) -> Any:
        return tape.noise(self, values)

    return call


@dataclass(frozen=True)
class Drawn:
    """The draws of a secure training, by kind, and how much of its noise is not from the tape."""

    kinds: dict[str, bytes]
    strange: int
    taken: int
    needed: float


def check_generator(settings: Settings, seed: int = 0, names: Names = None) -> list[Check]:
    """All checks of secure randomness, or those named."""
    usual = settings.but(clients_per_round=CLIENTS_PER_ROUND, rounds=ROUNDS, accountant="rdp")
    in_process = partial(_transcript, EngineMechanism(secure=True), usual, seed)
    served = partial(_transcript, ServedMechanism(secure=True), usual, seed)
    checks: dict[str, Callable[[], Check]] = {
        "draws in process": partial(_traced, in_process),
        "draws of a federation": partial(_traced, served),
        "draws with aggregators": partial(_traced, partial(_sealed, usual, seed)),
        "no generator is kept": _kept,
        "whole steps": partial(_whole_steps, usual),
    }
    return made("randomness", checks, names)


def _traced(draw: Callable[[Tape], Drawn]) -> Check:
    """Two runs with one tape, one with another, and two with the system itself after a reseed."""
    draw(Tape(""))  # what is imported at first use takes bytes of its own
    runs = []
    for tape in ("first", "first", "second"):
        with _reseeded(), played_by(playing := Tape(tape)):
            runs.append(draw(playing))
    first, again, other = runs
    problem = ""
    for kind, content in first.kinds.items():
        if content != again.kinds[kind]:
            problem = problem or f"the {kind} come from something else than the system's generator"
        if content == other.kinds[kind]:
            problem = problem or f"the {kind} do not come from the system's generator"
    if first.strange:
        problem = problem or f"{first.strange} numbers of noise are not the exact library's"
    if first.taken < first.needed:
        problem = problem or (
            f"{first.taken} bytes were taken from the system where {first.needed:.0f} are due"
        )
    with _reseeded():
        bare = draw(Tape(""))
    with _reseeded():
        free = draw(Tape(""))
    same = [kind for kind in bare.kinds if bare.kinds[kind] == free.kinds[kind]]
    if same:
        problem = problem or f"the {same[0]} are the same in two trainings"
    return finding(
        not problem,
        "every draw is the system's: it follows its bytes, and nothing else, to the last bit",
        problem or f"{', '.join(first.kinds)} follow {first.taken} bytes of the system",
    )


@contextmanager
def _reseeded() -> Iterator[None]:
    """Put the generators of Python, NumPy and PyTorch in a known state, then restore them."""
    torch = sys.modules.get("torch")
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    state = torch.get_rng_state() if torch else None
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    if torch:
        torch.manual_seed(1)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
        if torch:
            torch.set_rng_state(state)


def _entropy(rate: float, coins: int) -> float:
    """The bytes of entropy in this many coins."""
    return coins * -(rate * math.log2(rate) + (1 - rate) * math.log2(1 - rate)) / 8


def _transcript(mechanism: Mechanism, settings: Settings, seed: int, tape: Tape) -> Drawn:
    sent = np.zeros((CLIENTS, CORE_LENGTH), dtype=np.float32)
    trial = Trial(settings, sent, np.ones(CLIENTS, dtype=np.int64))
    before = tape.taken
    seen = mechanism.run(trial, seed_sequence(seed, "traced"))
    marks = np.zeros((len(seen.cohorts), CLIENTS), dtype=np.uint8)
    for row, cohort in zip(marks, seen.cohorts, strict=True):
        row[cohort] = 1
    strange = 0
    if tape.name:
        unit = settings.clip_norm / secure.STEPS / settings.clients_per_round
        due = np.zeros_like(seen.releases)
        for row, noise in zip(due, tape.noises, strict=False):
            row[:] = (noise * unit).astype(np.float32)
        strange = int((np.abs(seen.releases - due) > 1e-6 * REACH * unit).sum())
        strange += abs(len(tape.noises) - len(seen.releases))
    rate = CLIENTS_PER_ROUND / CLIENTS
    return Drawn(
        {"cohorts": marks.tobytes(), "noises": seen.releases.tobytes()},
        strange,
        tape.taken - before,
        _entropy(rate, marks.size) if tape.name else 0.0,
    )


def _sealed(settings: Settings, seed: int, tape: Tape) -> Drawn:
    """The coins and shares of sites, and the noise of aggregators."""
    del seed
    rows = np.eye(CLIENTS, dtype=np.float32) * np.float32(settings.clip_norm)
    trial = Trial(settings, rows, np.ones(CLIENTS, dtype=np.int64))
    with at_work(trial, SITES) as (parties, sealed), _tossing(tape) as tossed:
        before = tape.taken
        played = Played.of(parties, sealed)
        taken = tape.taken - before
    rate = CLIENTS_PER_ROUND / CLIENTS
    short = [coins for coins, used in tossed if used < _entropy(rate, coins)]
    coins = b"".join(
        (sent[site] > secure.STEPS // 2).astype(np.uint8).tobytes()
        for sent in played.vectors
        for site in SITES
    )
    first, *rest = played.shares.values()
    del rest
    strange = 0
    if tape.name:
        made_up = {noise.tobytes() for noise in tape.noises}
        found = [noise.tobytes() for each in played.noises for noise in each]
        strange = sum(noise not in made_up for noise in found) * played.noises.shape[-1]
        strange += abs(len(found) - len(tape.noises))
        taken = 0 if short or not tossed else taken
    seeds = 32 * len(SITES) * ROUNDS
    return Drawn(
        {
            "coins": coins,
            "shares": b"".join(share.tobytes() for share in first),
            "noises": played.noises.tobytes(),
        },
        strange,
        taken,
        _entropy(rate, CLIENTS * ROUNDS) + seeds if tape.name else 0.0,
    )


@contextmanager
def _tossing(tape: Tape) -> Iterator[list[tuple[int, int]]]:
    """Record each site's number of coins, and the bytes of the system that they took."""
    honest: Callable[..., Any] = vars(site)["sample_clients"]
    tossed: list[tuple[int, int]] = []

    def sample_clients(plan: Any, clients: int) -> Any:
        before = tape.taken
        drawn = honest(plan, clients)
        tossed.append((clients, tape.taken - before))
        return drawn

    with mock.patch.object(site, "sample_clients", sample_clients):
        yield tossed


def _kept() -> Check:
    """No module or class of the deployed code that draws keeps a generator that could be used."""
    kinds: tuple[type, ...] = (
        np.random.Generator,
        np.random.BitGenerator,
        np.random.RandomState,
        random.Random,
    )
    found = []
    for name, module in sorted(sys.modules.items()):
        if not name.startswith(("epifed.privacy", "epifed.federation", "epifed.training.rounds")):
            continue
        places = {name: vars(module)} | {
            f"{name}.{key}": dict(vars(value))
            for key, value in vars(module).items()
            if isinstance(value, type) and value.__module__ == name
        }
        found += [
            f"{type(value).__name__} kept as {where}.{key}"
            for where, values in places.items()
            for key, value in values.items()
            if isinstance(value, kinds) and not isinstance(value, secrets.SystemRandom)
        ]
    return finding(
        not found,
        "no module or class that draws keeps a generator of NumPy's or Python's",
        f"found {', '.join(found)}" if found else "none",
    )


def _whole_steps(settings: Settings) -> Check:
    """Exact noise on a grid has whole steps only, whose low bits reveal nothing of the sum."""
    bound, per_round = _GRID
    exact = settings.but(
        clip_norm=bound, clients_per_round=per_round, epsilon=LOOSE, rounds=1, accountant="rdp"
    )
    rounds = core(SecureRandomness(), exact, 4)
    row = np.full(CORE_LENGTH, bound / CORE_LENGTH, dtype=np.float32)
    released = np.stack(
        [rounds.close(np.zeros(CORE_LENGTH, dtype=np.float32), row[None]) for _ in range(8)]
    )
    steps = released.astype(np.float64) * (secure.STEPS / bound)
    whole = bool((steps == np.rint(steps)).all())
    counts = np.bincount(np.rint(steps).astype(np.int64).ravel() % _LOW_BITS, minlength=_LOW_BITS)
    due = steps.size / _LOW_BITS
    alarms.count()
    p = float(chi2.sf(np.square(counts - due).sum() / due, _LOW_BITS - 1))
    return finding(
        whole and p >= LEVEL,
        "a secure release is whole steps of the grid, their low bits evenly distributed",
        f"{'whole steps' if whole else 'fractions of steps'}, p = {p:.2g} of the low bits",
    )
