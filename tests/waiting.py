"""How tests wait: for a state, never for a time."""

import os
import signal
import time
from collections.abc import Callable
from datetime import date, datetime, timedelta, tzinfo
from pathlib import Path

import psutil

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


def has_pid(path: Path) -> bool:
    """Whether a process has written its number into a file, all of it."""
    return path.exists() and path.read_text() != ""


def running(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody has asked for does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def exit_status(child: int) -> int:
    """What a forked child ended with; one that does not end is killed."""
    codes: list[int] = []

    def ended() -> bool:
        pid, code = os.waitpid(child, os.WNOHANG)
        codes.extend([code] if pid else [])
        return bool(pid)

    try:
        wait_for(ended, f"the end of {child}", every=0.005)
    finally:
        if not codes:
            os.kill(child, signal.SIGKILL)
    return codes[0]


def wait_for_end(*pids: int) -> None:
    """Wait until none of these processes runs."""
    wait_for(lambda: not any(map(running, pids)), f"the end of {pids}")


def today(zone: tzinfo | None = None) -> date:
    """The day, for a test that ends on the same day; just before midnight the next one is awaited.

    Of this machine's own zone unless another one is given.
    """

    def lasting() -> bool:
        now = datetime.now(zone)
        return now.date() == (now + timedelta(seconds=GUARD / 2)).date()

    wait_for(lasting, "a day that lasts for the test", every=1)
    return datetime.now(zone).date()
