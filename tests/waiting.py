"""How tests wait: for a state, never for a time."""

import time
from collections.abc import Callable

GUARD = 600.0
"""Seconds after which a test that waits is given up. No verdict depends on it."""


def _always() -> bool:
    return True


def wait_for(
    state: Callable[[], object],
    what: str,
    alive: Callable[[], bool] = _always,
    every: float = 0.05,
) -> None:
    """Wait until a state is reached; end early if what brings it about has died."""
    until = time.monotonic() + GUARD
    while not state():
        if not alive():
            assert state(), f"{what} did not come, and what it was waited from has ended"
            return
        assert time.monotonic() < until, f"{what} did not come in {GUARD:g} seconds"
        time.sleep(every)
