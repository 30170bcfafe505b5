"""Where secure noise and secure cohorts come from: nothing that can be repeated or predicted."""

import math
import os
import random
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from epifed.audit.checks import LOOSE
from epifed.audit.core_checks import LENGTH, core
from epifed.audit.findings import Check, Names, made
from epifed.audit.mechanisms import EngineMechanism, Mechanism, Trial
from epifed.audit.served import ServedMechanism
from epifed.audit.statistics import LEVEL
from epifed.learners.base import Vector
from epifed.privacy import noise as mechanism
from epifed.privacy import noise as randomness
from epifed.privacy import noise as secure
from epifed.privacy import plan
from epifed.privacy.noise import SecureRandomness
from epifed.settings import Settings, seed_sequence
from epifed.training.rounds import Rounds

CLIENTS, CLIENTS_PER_ROUND = 64, 16
COHORTS = 8
TWICE = ("secure training twice", "secure federation twice")
_PATIENCE = 60.0
_GRID = (0.5, 1)
"""S and m at which a release of single precision shows the whole steps of the grid exactly."""
_LOW_BITS = 16


def check_generator(settings: Settings, seed: int = 0, names: Names = None) -> list[Check]:
    """All checks of secure randomness, or those named."""
    usual = settings.but(clients_per_round=CLIENTS_PER_ROUND, rounds=10)
    checks: dict[str, Callable[[Settings, int], Check]] = {
        "cohort from the system": _system_bytes,
        "no other generator": _no_other_generator,
        "after a fork": _after_a_fork,
        "after a reseed": _after_a_reseed,
        TWICE[0]: partial(_same_seeds, EngineMechanism(secure=True), name=TWICE[0]),
        TWICE[1]: partial(_same_seeds, ServedMechanism(secure=True), name=TWICE[1]),
        "whole steps": _whole_steps,
    }
    return made(
        "randomness", {name: partial(check, usual, seed) for name, check in checks.items()}, names
    )


def _rounds(settings: Settings) -> Rounds[Vector]:
    return core(SecureRandomness(), settings, CLIENTS)


def _drawn(rounds: Rounds[Vector]) -> tuple[bytes, bytes]:
    """A few cohorts and the noise of a round, as bytes that can be compared."""
    cohorts = b"".join(_marks(rounds.draw()) for _ in range(COHORTS))
    noise = rounds.close(np.zeros(LENGTH, dtype=np.float32), rounds.empty_rows())
    return cohorts, noise.tobytes()


def _marks(cohort: NDArray[np.int64]) -> bytes:
    marks = np.zeros(CLIENTS, dtype=np.uint8)
    marks[cohort] = 1
    return marks.tobytes()


def _repeated(first: tuple[bytes, bytes], second: tuple[bytes, bytes]) -> str:
    """What of two draws is the same, in words."""
    same = [name for name, a, b in zip(("cohorts", "noise"), first, second, strict=True) if a == b]
    return " and ".join(same)


def _system_bytes(settings: Settings, seed: int) -> Check:
    """The entropy of a cohort, N·h(q) bits, cannot come from fewer bits of the system's."""
    del seed
    rounds = _rounds(settings)
    q = rounds.plan.sampling_rate
    needed = COHORTS * CLIENTS * -(q * math.log2(q) + (1 - q) * math.log2(1 - q)) / 8
    taken = 0

    def counting(honest: Callable[..., bytes]) -> Callable[..., bytes]:
        def count(size: int, *rest: Any) -> bytes:
            nonlocal taken
            taken += size
            return honest(size, *rest)

        return count

    system = os.urandom
    with (
        mock.patch.object(random, "_urandom", counting(system)),
        mock.patch.object(os, "urandom", counting(system)),
    ):
        for _ in range(COHORTS):
            rounds.draw()
    return Check(
        "cohort from the system",
        taken >= needed,
        f"a cohort takes its {needed / COHORTS:.0f} bytes of entropy from the system's generator",
        f"{taken / COHORTS:.0f} bytes",
    )


def _no_other_generator(settings: Settings, seed: int) -> Check:
    """No generator of NumPy or Python is called, and none is kept where it could be."""
    del seed
    kept = _kept_generators()
    called: list[str] = []
    with _tripwires(called):
        try:
            _drawn(_rounds(settings))
        except _CalledError as error:
            called.append(str(error))
    found = sorted(set(called)) + kept
    return Check(
        "no other generator",
        not found,
        "secure cohorts and noise use no generator of NumPy's, Python's or PyTorch's",
        f"found {', '.join(found)}" if found else "none was called, none is kept",
    )


class _CalledError(Exception):
    """A generator that has no business here was called."""


@contextmanager
def _tripwires(called: list[str]) -> Iterator[None]:
    """Every function of NumPy's and Python's generators replaced by one that says it was called."""

    def trip(name: str) -> Callable[..., Any]:
        def tripped(*_: Any, **__: Any) -> Any:
            called.append(name)
            raise _CalledError(name)

        return tripped

    modules: list[tuple[str, Any, set[str]]] = [
        ("numpy.random", np.random, set()),
        ("random", random, {"SystemRandom"}),
    ]
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        modules.append(("torch", torch, {n for n in dir(torch) if not n.startswith("rand")}))
    with _all(
        [
            mock.patch.object(module, name, trip(f"{where}.{name}"))
            for where, module, spared in modules
            for name in dir(module)
            if not name.startswith("_") and name not in spared and callable(getattr(module, name))
        ]
    ):
        yield


@contextmanager
def _all(patches: list[Any]) -> Iterator[None]:
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in reversed(patches):
            patch.stop()


def _kept_generators() -> list[str]:
    """Generators in the modules of the secure path, its class and a new object of it."""
    one = SecureRandomness()
    places: list[tuple[str, dict[str, Any]]] = [
        *((module.__name__, vars(module)) for module in (randomness, secure, mechanism, plan)),
        ("SecureRandomness", dict(vars(SecureRandomness))),
        ("SecureRandomness()", dict(getattr(one, "__dict__", {}))),
    ]
    kinds: tuple[type, ...] = (
        np.random.Generator,
        np.random.BitGenerator,
        np.random.RandomState,
        random.Random,
    )
    return [
        f"{type(value).__name__} kept as {where}.{name}"
        for where, names in places
        for name, value in names.items()
        if isinstance(value, kinds) and not isinstance(value, random.SystemRandom)
    ]


def _after_a_fork(settings: Settings, seed: int) -> Check:
    del seed
    name, expected = "after a fork", "two processes from one have other cohorts and other noise"
    if not hasattr(os, "fork"):
        return Check(name, True, expected, "no fork on this system", skipped=True)
    rounds = _rounds(settings)
    _drawn(rounds)
    first, second = (_in_a_child(partial(_drawn, rounds)) for _ in range(2))
    if first is None or second is None:
        return Check(name, False, expected, "a process that did not answer")
    same = _repeated(first, second)
    return Check(name, not same, expected, f"the same {same}" if same else "others")


def _in_a_child(work: Callable[[], tuple[bytes, bytes]]) -> tuple[bytes, bytes] | None:
    """What a forked process draws; none if it fails."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            cohorts, noise = work()
            os.write(writing, len(cohorts).to_bytes(4, "big") + cohorts + noise)
        finally:
            os._exit(0)
    os.close(writing)
    content = b""
    while select.select([reading], [], [], _PATIENCE)[0]:
        chunk = os.read(reading, 1 << 16)
        if not chunk:
            break
        content += chunk
    os.close(reading)
    os.waitpid(child, 0)
    size = int.from_bytes(content[:4], "big")
    return (content[4 : 4 + size], content[4 + size :]) if len(content) > 4 else None


def _after_a_reseed(settings: Settings, seed: int) -> Check:
    rounds = _rounds(settings)
    torch = sys.modules.get("torch")
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    state = torch.get_rng_state() if torch else None
    drawn = []
    try:
        for _ in range(2):
            random.seed(seed)
            np.random.seed(seed)  # noqa: NPY002
            if torch:
                torch.manual_seed(seed)
            drawn.append(_drawn(rounds))
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
        if torch:
            torch.set_rng_state(state)
    same = _repeated(*drawn)
    return Check(
        "after a reseed",
        not same,
        "seeding NumPy, Python and PyTorch repeats neither cohorts nor noise",
        f"the same {same}" if same else "others",
    )


def _same_seeds(mechanism: Mechanism, settings: Settings, seed: int, *, name: str) -> Check:
    """Two secure trainings with the same settings and seeds."""
    sent = np.zeros((CLIENTS, LENGTH), dtype=np.float32)
    trial = Trial(settings.but(rounds=2), sent, np.ones(CLIENTS, dtype=np.int64))
    drawn = []
    for _ in range(2):
        seen = mechanism.run(trial, seed_sequence(seed, "twice"))
        drawn.append((b"".join(map(_marks, seen.cohorts)), seen.releases.tobytes()))
    same = _repeated(*drawn)
    return Check(
        name,
        not same,
        "a secure training that is repeated with its seeds has other cohorts and other noise",
        f"the same {same}" if same else "others",
    )


def _whole_steps(settings: Settings, seed: int) -> Check:
    """Exact noise on a grid: whole steps only, whose low bits say nothing of the sum."""
    del seed
    bound, per_round = _GRID
    exact = settings.but(
        clip_norm=bound, clients_per_round=per_round, epsilon=LOOSE, rounds=1, accountant="rdp"
    )
    rounds = core(SecureRandomness(), exact, 4)
    row = np.full(LENGTH, bound / LENGTH, dtype=np.float32)
    released = np.stack(
        [rounds.close(np.zeros(LENGTH, dtype=np.float32), row[None]) for _ in range(COHORTS)]
    )
    steps = released.astype(np.float64) * (secure.STEPS / bound)
    whole = bool((steps == np.rint(steps)).all())
    counts = np.bincount(np.rint(steps).astype(np.int64).ravel() % _LOW_BITS, minlength=_LOW_BITS)
    due = steps.size / _LOW_BITS
    p = float(chi2.sf(np.square(counts - due).sum() / due, _LOW_BITS - 1))
    return Check(
        "whole steps",
        whole and p >= LEVEL,
        "a secure release is whole steps of the grid, their low bits evenly distributed",
        f"{'whole steps' if whole else 'fractions of steps'}, p = {p:.2g} of the low bits",
    )
