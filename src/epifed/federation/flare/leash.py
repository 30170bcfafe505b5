"""Processes that end with the one that started them, also where that was killed.

The standard input of a party is a pipe that nobody writes to, and which the system closes; the
worker of a job looks after its party.
"""

import contextlib
import os
import sys
import threading
import time

import psutil

LEASH = "EPIFED_LEASH"
"""Set in the environment of a party on a leash."""
ORPHANED, LOOKS = 60.0, 5.0
"""Seconds that FLARE has to end a worker whose party is gone, and from one look to the next."""


def on_leash() -> None:
    """In the party: end when the pipe is closed, if it is on a leash."""
    if os.environ.pop(LEASH, None):
        threading.Thread(target=_until_let_go, daemon=True).start()


def _until_let_go() -> None:
    with contextlib.suppress(OSError, ValueError):
        while sys.stdin.buffer.read(1):
            pass
    os._exit(1)


def with_party(patience: float = ORPHANED, every: float = LOOKS) -> None:
    """In a worker: end if the party that started it is gone and FLARE does not end it.

    FLARE asks the job to stop, once; one that waits for an answer goes on for ever.
    """
    party = os.getppid()

    def watch() -> None:
        while os.getppid() == party and psutil.pid_exists(party):
            time.sleep(every)
        time.sleep(patience)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
