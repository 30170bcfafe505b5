"""A party that ends with the process that started it, also where that was killed.

Its standard input is a pipe that nobody writes to, and which the system closes.
"""

import contextlib
import os
import sys
import threading

LEASH = "EPIFED_LEASH"
"""Set in the environment of a party on a leash."""


def on_leash() -> None:
    """In the party: end when the pipe is closed, if it is on a leash."""
    if os.environ.pop(LEASH, None):
        threading.Thread(target=_until_let_go, daemon=True).start()


def _until_let_go() -> None:
    with contextlib.suppress(OSError, ValueError):
        while sys.stdin.buffer.read(1):
            pass
    os._exit(1)
