"""What FLARE's client prints as it works, dropped, while others go on to be heard.

`contextlib.redirect_stdout` is of the whole process: of two threads that begin and end in the same
order, the second restores what the first had put there, and nothing is heard any more.
"""

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_changing = threading.Lock()
_quiet: Counter[int] = Counter()
"""Threads that are not to be heard, and how often each of them asked for it."""


class _Filter:
    """A standard output on which, while somebody is quiet, the main thread alone is heard."""

    def __init__(self, real: Any) -> None:
        self.real = real

    def write(self, text: str) -> int:
        """Pass on what the main thread says, unless it is the quiet one."""
        thread = threading.current_thread()
        if thread is threading.main_thread() and not _quiet[threading.get_ident()]:
            self.real.write(text)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        """All else is the output's own."""
        return getattr(self.real, name)


@contextmanager
def quietly() -> Iterator[None]:
    """Within, nothing is heard of this thread, nor of those that it started.

    One that never comes back from within silences nobody else.
    """
    me = threading.get_ident()
    with _changing:
        _quiet[me] += 1
        if not isinstance(sys.stdout, _Filter):
            sys.stdout = _Filter(sys.stdout)
    try:
        yield
    finally:
        with _changing:
            _quiet[me] -= 1
            if not +_quiet and isinstance(sys.stdout, _Filter):
                sys.stdout = sys.stdout.real
