"""One root of randomness per run, found by name, whatever the order and number of workers."""

import hashlib

import numpy as np


def seed_sequence(seed: int, *names: str | int | float) -> np.random.SeedSequence:
    """The seed sequence of, say, (seed, "temporal", "2020-11", 2.0, run 3).

    >>> seed_sequence(0, "a").generate_state(1) == seed_sequence(0, "b").generate_state(1)
    array([False])
    """
    key = tuple(int.from_bytes(hashlib.sha256(repr(n).encode()).digest()[:4]) for n in names)
    return np.random.SeedSequence(seed, spawn_key=key)


def of_training(seed: int) -> tuple[np.random.SeedSequence, ...]:
    """What the first state, the draws and the noise of a training are made from."""
    return tuple(seed_sequence(seed).spawn(3))
