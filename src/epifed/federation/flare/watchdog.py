"""Calls that may never return, given up after a while.

FLARE's client may wait for ever for the answer of a server that died at the wrong moment.
"""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")
Alive = Callable[[], None]


class HungError(Exception):
    """There was no sign of life."""


def watched(work: Callable[[Alive], T], patience: float) -> T:
    """What `work` returns or raises, from a thread of its own.

    `work` is handed a function to call as a sign of life. `HungError` is raised after `patience`
    seconds without one; the thread ends when it calls the function again.
    """
    events: queue.SimpleQueue[Future[T] | None] = queue.SimpleQueue()
    abandoned = threading.Event()

    def alive() -> None:
        if abandoned.is_set():
            raise HungError
        events.put(None)

    def attempt() -> None:
        ended: Future[T] = Future()
        try:
            ended.set_result(work(alive))
        except Exception as error:
            ended.set_exception(error)
        events.put(ended)

    threading.Thread(target=attempt, daemon=True).start()
    while True:
        try:
            ended = events.get(timeout=patience)
        except queue.Empty:
            abandoned.set()
            raise HungError(f"no sign of life for {patience:g} seconds") from None
        if ended:
            return ended.result()
