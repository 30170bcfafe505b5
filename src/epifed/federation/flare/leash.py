"""Processes that end with the one that started them, also where that was killed.

The standard input of a party is a pipe that nobody writes to, and which the system closes; the
worker of a job looks after its party. On Windows a party looks after its starter, too: while a
thread waits at a pipe that is the standard input, NumPy cannot be loaded there
(https://github.com/numpy/numpy/issues/24290).
"""

import contextlib
import os
import sys
import threading
import time

import psutil

LEASH = "EPIFED_LEASH"
"""In the environment of a party on a leash: the id of the process that started it."""
ORPHANED, LOOKS = 60.0, 5.0
"""Seconds that FLARE has to end a worker whose party is gone, and from one look to the next."""


def on_leash() -> None:
    """In the party: end with the process that started it, if it is on a leash."""
    starter = os.environ.pop(LEASH, None)
    if starter is None:
        return
    if os.name == "nt":
        watch = threading.Thread(target=_until_gone, args=(int(starter),), daemon=True)
    else:
        watch = threading.Thread(target=_until_let_go, daemon=True)
    watch.start()


def _until_let_go() -> None:
    with contextlib.suppress(OSError, ValueError):
        while sys.stdin.buffer.read(1):
            pass
    os._exit(1)


def _until_gone(starter: int, every: float = 1.0) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(starter)
        while process.is_running():
            time.sleep(every)
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
