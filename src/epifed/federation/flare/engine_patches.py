"""Changes to FLARE's behaviour: endless calls, its prints, orphaned processes, hostile sites.

A call to a dead server is given up after a while. FLARE's client prints are dropped, per thread. A
party's process ends with the one that started it. Its standard input is a pipe that the system
closes. On Windows it watches its starter, since NumPy cannot be loaded while a thread waits at such
a pipe (https://github.com/numpy/numpy/issues/24290). FLARE ends a whole job because of one site's
undecodable answer, code, event or failure. Here such a message is refused, and `GATE` records its
site.
"""

import contextlib
import logging
import os
import queue
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import psutil
from filelock import FileLock, Timeout
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.fuel.f3.cellnet import cell
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming import blob_streamer
from nvflare.private.defs import JobFailureMsgKey
from nvflare.private.fed.server.fed_server import FederatedServer
from nvflare.private.fed.server.server_runner import ServerRunner
from nvflare.widgets.fed_event import ServerFedEventRunner

from epifed.federation.messages import Code

T = TypeVar("T")
Alive = Callable[[], None]


class HungError(Exception):
    """There was no sign of life."""


def watched(work: Callable[[Alive], T], patience: float) -> T:
    """Run `work` in a thread of its own; returns or raises what it does.

    `work` gets a function to call as a sign of life. `HungError` is raised after `patience` seconds
    without one. The thread ends when it next calls the function.
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


_changing = threading.Lock()
_quiet: Counter[int] = Counter()
"""Threads whose output is dropped, and how often each has asked for it."""


class _Filter:
    """A standard output that prints only the main thread's text while any thread is quiet."""

    def __init__(self, real: Any) -> None:
        self.real = real

    def write(self, text: str) -> int:
        """Print the text of the main thread, unless that thread is quiet; drop all other text."""
        thread = threading.current_thread()
        if thread is threading.main_thread() and not _quiet[threading.get_ident()]:
            self.real.write(text)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        """Pass all other attributes to the real output."""
        return getattr(self.real, name)


@contextmanager
def quietly() -> Iterator[None]:
    """Within, drop the output of this thread, and of all threads but the main one.

    A thread that never leaves the block does not silence the main thread.
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


WATCHED_PARENT = "EPIFED_PARENT"
"""Environment variable with the id of the process with which a party must end."""
ENDING = 120.0
"""Seconds that a stopped party has to end before its kit counts as in use."""
ORPHANED, LOOKS = 60.0, 5.0
"""Seconds that FLARE has to end a worker whose party is gone, and seconds between two checks."""


def with_parent() -> None:
    """In a party: end with the process that started it, if that process asked for it."""
    starter = os.environ.pop(WATCHED_PARENT, None)
    if starter is None:
        return
    if os.name == "nt":
        watch = threading.Thread(target=_until_gone, args=(int(starter),), daemon=True)
    else:
        watch = threading.Thread(target=_until_let_go, daemon=True)
    watch.start()


def hold_kit(kit: Path, patience: float = ENDING) -> FileLock:
    """Take a kit for this process; end with exit code 2 if another one keeps running it.

    Otherwise two servers would share a port, and two sites a name, without a word. A party that was
    just stopped gets some time to end. The system frees the lock of a process that is gone.
    """
    held = FileLock(kit / ".running")
    with contextlib.suppress(Timeout):
        return held.acquire(blocking=False).lock
    print(f"{kit}: another process runs this kit; waits {patience:.0f} s for its end", flush=True)
    try:
        held.acquire(timeout=patience)
    except Timeout:
        _refuse(f"{kit}: found another process that runs this kit; expected one at a time")
    return held


def refuse_used(port: int) -> None:
    """End with exit code 2 if another program listens on the server's port."""
    try:
        socket.create_server(("", port)).close()
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        _refuse(f"port {port}: {reason}; expected a port that no other program uses")


def _refuse(sentence: str) -> None:
    print(f"epifed: {sentence}", file=sys.stderr, flush=True)
    sys.exit(2)


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

    FLARE asks the job to stop only once, and a job that waits for an answer never ends.
    """
    party = os.getppid()

    def watch() -> None:
        while os.getppid() == party and psutil.pid_exists(party):
            time.sleep(every)
        time.sleep(patience)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@dataclass
class Gate:
    """The messages that a worker of the server accepts: readable, of at most `most` bytes."""

    most: int | None = None
    refused: dict[str, Code] = field(default_factory=dict)
    """Sites whose message was refused before it was decoded, and why."""

    def refuse(self, headers: dict[str, Any] | None, code: Code) -> None:
        """Record the site that sent a message; FLARE has compared its name with its token."""
        origin = (headers or {}).get(MessageHeaderKey.ORIGIN)
        if isinstance(origin, str):
            self.refused[FQCN.split(origin)[0]] = code


GATE = Gate()
"""The gate of this process."""


class _BoundedBlob(blob_streamer.BlobTask):  # type: ignore[misc]
    """A message that is refused by its declared size, before memory is allocated."""

    def __init__(
        self, future: Any, stream: Any, max_size: int = 0, preserve_chunks: bool = False
    ) -> None:
        if GATE.most is not None:
            max_size = min(max_size or GATE.most, GATE.most)
        super().__init__(future, stream, max_size, preserve_chunks)


_decode, _fail = cell.decode_payload, blob_streamer.BlobHandler._fail
_report = FederatedServer.process_job_failure


def _decoded(message: Message, *args: Any, **options: Any) -> None:
    try:
        _decode(message, *args, **options)
    except Exception:
        GATE.refuse(message.headers, Code.MESSAGE)
        raise


def _failed(stream: Any, future: Any, error: Exception) -> None:
    GATE.refuse(stream.headers, Code.SIZE)
    _fail(stream, future, error)


def _dropped(self: Any, topic: str, request: Shareable, fl_ctx: Any) -> Shareable:
    """Ignore an event that a site sends to be fired at the server: epifed uses none."""
    del self, topic, request, fl_ctx
    return make_reply(ReturnCode.OK)


def _reported(self: Any, request: Message) -> Any:
    """Accept a site's report that its worker failed, without the code that would end the job."""
    if isinstance(request.payload, dict):
        request.payload = request.payload | {JobFailureMsgKey.CODE: None}
    return _report(self, request)


def say_unwritten() -> None:
    """Report a log that cannot be written, as on a full disk, in one line and once."""
    report, printed = logging.Handler.handleError, set[str]()

    def handle(self: logging.Handler, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            report(self, record)
        elif (reason := error.strerror or str(error)) not in printed:
            printed.add(reason)
            print(f"the log cannot be written: {reason}", file=sys.stderr, flush=True)

    logging.Handler.handleError = handle  # type: ignore[method-assign]


def shield_worker() -> None:
    """In the worker of a job on the server: prevent any site's message from ending it."""
    cell._is_server_job_cell = lambda _: False
    cell.decode_payload = _decoded
    blob_streamer.BlobTask = _BoundedBlob
    blob_streamer.BlobHandler._fail = staticmethod(_failed)
    ServerRunner.ABORT_RETURN_CODES = []
    ServerFedEventRunner._receive = _dropped


def shield_server() -> None:
    """In the server's own process: prevent any site's report from ending a job."""
    FederatedServer.process_job_failure = _reported
