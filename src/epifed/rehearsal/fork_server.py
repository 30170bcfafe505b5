"""Forks the parties of a rehearsal from a process that has already imported their modules.

A party that starts, and each worker of a job, needs about two processor seconds for imports. On a
machine of its own this hardly matters; in a rehearsal all of them share one machine.

A *fork server* forks programs on request and reports when they end. The rehearsal has one, which
forks the parties. Each party has one of its own, which forks its workers. So a worker is a
descendant of its party and ends with it. Fork is safe there: a fork server has no thread and uses
nothing that it has imported.
"""

import contextlib
import gc
import importlib
import logging
import os
import runpy
import signal
import socket
import ssl
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

POSSIBLE = hasattr(os, "fork") and hasattr(os, "pidfd_open")
"""True on Linux; elsewhere parties are started as in a real federation."""
LAUNCHER = "nvflare.app_common.job_launcher.process_launcher"
_FLARE = (
    "app_common.executors.client_api_executor",
    "app_common.np.np_downloader",
    "app_common.state_persistors.storage_state_persistor",
    "app_common.job_launcher.client_process_launcher",
    "app_common.job_launcher.server_process_launcher",
    "app_common.job_schedulers.job_scheduler",
    "app_common.resource_consumers.gpu_resource_consumer",
    "app_common.resource_managers.gpu_resource_manager",
    "app_common.storages.filesystem_storage",
    "fuel.f3.drivers.__init__",
    "fuel.f3.drivers.grpc.__init__",
    "fuel.utils.fobs.decomposers.core_decomposers",
    "fuel.f3.drivers.aio_grpc_driver",
    "fuel.f3.drivers.aio_http_driver",
    "fuel.f3.drivers.aio_tcp_driver",
    "fuel.f3.drivers.file_driver",
    "fuel.f3.drivers.grpc_driver",
    "fuel.f3.drivers.tcp_driver",
    "private.fed.app.client.client_train",
    "private.fed.app.client.worker_process",
    "private.fed.app.server.runner_process",
    "private.fed.app.server.server_train",
)
_EPIFED = (
    "federation.flare.controller",
    "federation.flare.run_client",
    "federation.flare.run_server",
    "learners.fedavg",
    "learners.one_shot",
    "learners.real_time",
    "learners.trend",
)
PRELOADED = (
    LAUNCHER,
    *(f"nvflare.{name}" for name in _FLARE),
    *(f"epifed.{name}" for name in _EPIFED),
    "cryptography.hazmat.backends.openssl.backend",
    "grpc.experimental",
    "holidays.countries",
    "joblib",
)
"""The modules that a party or a worker has imported by its end, without the networks' PyTorch."""
FATAL = 1


@dataclass(frozen=True)
class Wanted:
    """A Python program to fork: a module with arguments, environment and folder."""

    module: str
    arguments: tuple[str, ...]
    environment: dict[str, str]
    folder: str
    log: str | None = None
    """The file to which its output is appended; None: the fork server's own output."""
    errors: str | None = None
    """The file for the standard error, if it differs from `log`."""
    nice: int = 0
    party: bool = False
    """Whether it launches workers and so needs a fork server of its own."""

    @classmethod
    def of(cls, program: Sequence[str], environment: dict[str, str], **more: Any) -> "Wanted":
        """The program of a command line `python … -m MODULE …`."""
        at = program.index("-m") + 1
        here = more.pop("folder", None) or Path.cwd()
        return cls(program[at], tuple(program[at + 1 :]), environment, str(here), **more)


class Child:
    """A forked process, with the parts of `subprocess.Popen` that are used."""

    stdin = None

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = threading.Event()

    def end(self, code: int) -> None:
        """Record the exit code that the fork server has reported."""
        self.returncode = code
        self._ended.set()

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for its end or the timeout; returns the exit code, or None."""
        self._ended.wait(timeout)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """End the process and its whole group, as FLARE ends a worker."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(os.getpgid(self.pid), signal.SIGKILL)


class ForkServer:
    """The client of a fork server. It may have threads, since another process forks."""

    def __init__(
        self, connection: Connection, process: "subprocess.Popen[bytes] | None" = None
    ) -> None:
        self._connection, self._process = connection, process
        self._asking = threading.Lock()
        self._born = threading.Semaphore(0)
        self._children: dict[int, Child] = {}
        self._newest: Child | None = None
        self._thread: threading.Thread | None = None

    @classmethod
    def start(
        cls, modules: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> "ForkServer":
        """Start a new process that imports the parties' modules and others, and then forks."""
        here, there = socket.socketpair()
        with there:
            program = "from epifed.rehearsal.fork_server import main; main()"
            arguments = [sys.executable, "-u", "-c", program, str(there.fileno()), *modules]
            once = {
                "MALLOC_ARENA_MAX": "1",
                "MALLOC_MMAP_THRESHOLD_": "65536",
                "MALLOC_TRIM_THRESHOLD_": "65536",
                "OMP_NUM_THREADS": "1",
            }
            started = subprocess.Popen(
                arguments,
                env={**once, **os.environ, **(environment or {})},
                pass_fds=[there.fileno()],
                start_new_session=True,
            )
        return cls(Connection(here.detach()), started)

    @classmethod
    def fork(cls) -> "ForkServer":
        """Fork a server below this process, which must not have threads yet."""
        here, there = socket.socketpair()
        if not os.fork():
            here.close()
            _guarded(partial(_serve, Connection(there.detach())))
        there.close()
        return cls(Connection(here.detach()))

    def start_program(self, wanted: Wanted) -> Child | None:
        """Have a program forked; None if the fork server has ended."""
        with self._asking:
            if self._thread is None:
                self._thread = threading.Thread(target=self._listen, daemon=True)
                self._thread.start()
            self._newest = None
            with contextlib.suppress(OSError):
                self._connection.send(wanted)
                self._born.acquire()
            return self._newest

    def _listen(self) -> None:
        try:
            while True:
                pid, code = self._connection.recv()
                if code is None:
                    self._newest = self._children[pid] = Child(pid)
                    self._born.release()
                else:
                    self._children.pop(pid).end(code)
        except (EOFError, OSError):
            for child in self._children.values():
                child.end(-signal.SIGKILL)
            self._born.release()


@cache
def shared_server(
    modules: tuple[str, ...], environment: tuple[tuple[str, str], ...] = ()
) -> ForkServer:
    """This process's fork server for these modules and environment; it ends with the process."""
    return ForkServer.start(modules, dict(environment))


def learners_loaded() -> tuple[str, ...]:
    """The learners' modules that this process has loaded, including PyTorch's if it was needed."""
    return tuple(sorted(name for name in sys.modules if name.startswith("epifed.learners.")))


def main() -> None:
    """The program of a started fork server: import the modules, then fork on request."""
    asked = Connection(int(sys.argv[1]))
    for module in (*PRELOADED, *sys.argv[2:]):
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(module)
    _share()
    _guarded(partial(_serve, asked))


def _use_a_key() -> None:
    """Use a private key and a TLS context, so that OpenSSL has loaded its algorithms."""
    key = rsa.generate_private_key(65537, 2048)
    form = serialization.PrivateFormat.TraditionalOpenSSL
    plain = serialization.NoEncryption()
    text = key.private_bytes(serialization.Encoding.PEM, form, plain)
    serialization.load_pem_private_key(text, None)
    signature = key.sign(b"", padding.PKCS1v15(), hashes.SHA256())
    key.public_key().verify(signature, b"", padding.PKCS1v15(), hashes.SHA256())
    ssl.create_default_context()


def _share() -> None:
    """Do what every party would do once, so that pages that it only reads stay shared.

    FLARE's tables of classes are filled here. The garbage collector ignores what exists by now.
    """
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module("nvflare.private.fed.utils.fed_utils").nvflare_fobs_initialize()
        importlib.import_module("nvflare.fuel.utils.fobs.fobs")._register_decomposers()
        communicator: Any = importlib.import_module("nvflare.fuel.f3.communicator")
        communicator.load_comm_drivers()
        communicator.CommConfigurator.reset()  # each party reads a configuration of its own
        logs: Any = importlib.import_module("nvflare.fuel.utils.log_utils")
        # FLARE's own function looks for its caller's name in every module, and so touches all.
        logs.get_script_logger = partial(logging.getLogger, "nvflare.worker")
        # FLARE copies the table of modules to inspect a signature, and so touches all of them.
        decomposer: Any = importlib.import_module("nvflare.fuel.utils.fobs.decomposer")
        for container in (dict, list, set, tuple):
            decomposer._requires_init_args(container)
        _use_a_key()
    gc.collect()
    gc.freeze()


def _serve(asked: Connection) -> None:
    """Fork on request and report ended processes, until the requesting process is gone."""
    children: dict[int, int] = {}
    try:
        while True:
            for ready in wait([asked, *children]):
                if not isinstance(ready, int):
                    wanted = asked.recv()
                    pid = os.fork()
                    if not pid:
                        asked.close()
                        for file in children:
                            os.close(file)
                        _guarded(partial(_become, wanted))
                    children[os.pidfd_open(pid)] = pid
                    asked.send((pid, None))
                else:
                    pid = children.pop(ready)
                    os.close(ready)
                    asked.send((pid, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
    except (EOFError, OSError):
        pass
    finally:
        for pid in children.values():
            os.kill(pid, signal.SIGKILL)


def _become(wanted: Wanted) -> None:
    """In a forked process: run the program."""
    os.setsid()
    os.chdir(wanted.folder)
    os.nice(wanted.nice)
    os.environ.clear()
    os.environ.update(wanted.environment)
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    for path, numbers in ((wanted.log, (1, 2)), (wanted.errors, (2,))):
        if path:
            with Path(path).open("ab") as file:
                for number in numbers:
                    os.dup2(file.fileno(), number)
    if wanted.party:
        _have_workers(ForkServer.fork())
    sys.argv = [wanted.module, *wanted.arguments]
    runpy.run_module(wanted.module, run_name="__main__", alter_sys=True)


def _have_workers(server: ForkServer) -> None:
    """Have FLARE's launcher in this party fork its workers, or start them if that fails."""
    launcher: Any = importlib.import_module(LAUNCHER)
    started = launcher.spawn_process

    def spawn(program: list[str], environment: dict[str, str]) -> Any:
        child = server.start_program(Wanted.of(program, environment))
        return child or started(program, environment)

    launcher.spawn_process = spawn


def _guarded(work: Callable[[], None]) -> None:
    """Run `work`, then end this process as the interpreter would; it never returns."""
    code = 0
    try:
        work()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = FATAL
    finally:
        with contextlib.suppress(BaseException):
            threading._shutdown()  # type: ignore[attr-defined]
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(BaseException):
                stream.flush()
        os._exit(code)
