"""Start the parties: FLARE's own server and client programs, in the foreground.

They use the Python of this environment, so their workers find the installed epifed. A site's
service also fetches its file and makes its weekly report.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from epifed.errors import EpifedError
from epifed.federation import aggregator
from epifed.federation.aggregator import AggregatorWork
from epifed.federation.answers import MODELS
from epifed.federation.flare.controller import ROSTER, SERVER_FILE
from epifed.federation.flare.engine_patches import WATCHED_PARENT
from epifed.federation.flare.inspection import other_regions, too_short
from epifed.federation.flare.kits import (
    ORGANISATION,
    is_server,
    kind_of,
    lock,
    organisation,
    valid_certificate,
)
from epifed.federation.site import (
    ASKED,
    FETCHED,
    TERMS,
    Fetch,
    Source,
    full_disk,
    hosted_clients,
    remembered,
)
from epifed.federation.terms import Federation, Terms
from epifed.files import write_text
from epifed.ledger.ledger import Ledger

HEARTBEAT = 10
"""Seconds between two signs of life of a site."""


@dataclass(frozen=True)
class Command:
    """A program to run, with its environment."""

    arguments: tuple[str, ...]
    environment: dict[str, str]

    def become(self) -> None:
        """Replace this process by the program; on Windows, run it and exit with its code."""
        if os.name == "nt":
            sys.exit(subprocess.run(self.arguments, env=self.environment, check=False).returncode)
        os.execve(self.arguments[0], self.arguments, self.environment)


def server_command(kit: Path, ledger: Path | None, roster: Path | None = None) -> Command:
    """The server of a kit. `ledger` is charged for its trainings; `roster` replaces the kit's."""
    kit = kit.resolve()
    if not is_server(kit):
        raise EpifedError(f"{kit}: found {kind_of(kit)}; expected the server's kit")
    valid_certificate(kit)
    federation = _roster(kit, roster)
    if ledger:
        Ledger(ledger)
    write_text(kit / SERVER_FILE, json.dumps({"ledger": str(ledger.resolve()) if ledger else None}))
    void = {"disabled_clients": sorted(federation.removed)}
    write_text(kit / "disabled_clients.json", json.dumps(void))
    lock(kit)
    return _command(
        "epifed.federation.flare.run_server", kit, "fed_server.json", (f"org={ORGANISATION}",)
    )


def aggregator_command(kit: Path, roster: Path | None = None) -> Command:
    """The aggregator of a kit; makes its keys if it has none. `roster` replaces the kit's."""
    kit = kit.resolve()
    if not (kit / aggregator.TERMS).is_file():
        raise EpifedError(f"{kit}: found {kind_of(kit)}; expected an aggregator's kit")
    _roster(kit, roster)
    AggregatorWork(kit)
    return _client(kit)


def site_command(kit: Path, source: Source) -> Command:
    """The site of a kit, with its data."""
    kit = kit.resolve()
    if is_server(kit) or not (kit / "startup" / "fed_client.json").is_file():
        raise EpifedError(f"{kit}: found {kind_of(kit)}; expected a site's kit")
    if (kit / aggregator.TERMS).is_file():
        raise EpifedError(
            f"{kit}: found an aggregator's kit; expected a site's (an aggregator is run by 'epifed "
            "federation aggregator')"
        )
    Terms.read(kit / TERMS)
    if source != remembered(kit):
        # A person is present at a first start, so it raises; later starts miss a week instead.
        _refuse_other_data(kit, source)
        source.write(kit)
    return _client(kit)


def _refuse_other_data(kit: Path, source: Source) -> None:
    """Refuse a file that cannot be read, has no row of the site's clients, or begins too late."""
    clients = hosted_clients(kit)
    loaded = source.load(clients)
    if loaded.panel is not None and (problem := too_short(kit, loaded.panel)):
        raise EpifedError(problem)
    if loaded.panel is None and not loaded.left_out:
        raise EpifedError(other_regions(kit, source))


def _roster(kit: Path, changed: Path | None) -> Federation:
    """The roster of a kit; a changed one replaces it and keeps the sites' known keys."""
    federation = Federation.read(kit / ROSTER)
    if changed:
        federation = Federation.read(changed).with_signs(federation.signs)
        write_text(kit / ROSTER, federation.to_toml())
    return federation


def _client(kit: Path) -> Command:
    """The client program of a party that connects to the server."""
    name = valid_certificate(kit).name
    lock(kit)
    who = (f"uid={name}", f"org={organisation(name)}", f"heart_beat_interval={HEARTBEAT}")
    return _command("epifed.federation.flare.run_client", kit, "fed_client.json", who)


def _command(module: str, kit: Path, config: str, more: tuple[str, ...]) -> Command:
    (kit / "transfer").mkdir(exist_ok=True)
    settings = ("secure_train=true", "config_folder=config", *more)
    arguments = (
        sys.executable,
        "-u",
        "-m",
        module,
        "-m",
        str(kit),
        "-s",
        config,
        "--set",
        *settings,
    )
    environment = {"MALLOC_ARENA_MAX": "2", "OMP_NUM_THREADS": "1", "GRPC_VERBOSITY": "ERROR"}
    if config == "fed_client.json":
        environment["NVFLARE_SECURE_LOGGING"] = "true"
    return Command(arguments, {**environment, **os.environ})


LOOK = 2.0
"""Seconds between two checks for changed files."""
SETTLED = 5.0
"""Seconds without a further change before changed files are used: one may be half copied."""
AGAIN = 6 * 3600.0
"""Seconds after which a report is made although nothing has changed: data grow old."""
LONGEST = 1800.0
"""Most seconds that a week's report may take."""
ENDING = 20.0
"""Most seconds that the client may take to end."""

Say = Callable[[str], object]


@dataclass
class Service:
    """A site that runs unattended until it is stopped."""

    kit: Path
    client: Command
    office: tuple[str, ...]
    """The program that makes the week's folder: exit code 0, or 1 if there is a problem."""
    say: Say
    fetch: Fetch | None = None
    every: float = 3600.0
    """Seconds from one run of the command to the next."""
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> int:
        """Run until a signal arrives or the client ends; returns the exit code."""
        self._catch()
        environment = {**self.client.environment, WATCHED_PARENT: str(os.getpid())}
        client = subprocess.Popen(self.client.arguments, env=environment, stdin=subprocess.PIPE)
        threads = [threading.Thread(target=self._update_site, daemon=True)]
        if self.fetch is not None:
            threads.append(threading.Thread(target=self._fetch, daemon=True))
        for thread in threads:
            thread.start()
        try:
            while client.poll() is None and not self._stop.wait(1):
                pass
        except KeyboardInterrupt:
            pass
        stopped = client.poll() is None
        self._stop.set()
        if stopped:
            client.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                client.wait(ENDING)
            client.kill()
        for thread in threads:
            thread.join(ENDING)
        code = client.wait()
        return 0 if stopped else code or 1

    def _catch(self) -> None:
        def asked(number: int, frame: FrameType | None) -> None:
            del number, frame
            self._stop.set()

        signal.signal(signal.SIGTERM, asked)

    def _fetch(self) -> None:
        """Run the command for the data at regular intervals."""
        assert self.fetch is not None
        while not self._stop.wait(max(0.0, self.every - self.fetch.age())):
            if problem := self.fetch.run(lambda: not self._stop.is_set()):
                self.say(f"the command for the data failed: {problem}")

    def _update_site(self) -> None:
        """Make the report whenever a file has changed, and after `AGAIN` seconds."""
        done, seen, since, at = None, None, 0.0, 0.0
        while True:
            now, changed = time.monotonic(), self._signature()
            if changed != seen:
                seen, since = changed, now
            old = done is not None and now - at > AGAIN
            if (old or seen != done) and (done is None or now - since >= SETTLED):
                self._office()
                # The report's own files are no reason to make it again.
                done, at = seen, time.monotonic()
            if self._stop.wait(LOOK):
                return

    def _office(self) -> None:
        started = subprocess.Popen(self.office, stdin=subprocess.DEVNULL)
        until = time.monotonic() + LONGEST
        while started.poll() is None and time.monotonic() < until and not self._stop.is_set():
            with contextlib.suppress(subprocess.TimeoutExpired):
                started.wait(1)
        if started.poll() is None:
            started.kill()
            if not self._stop.is_set():
                self.say(f"the week's report was given up after {LONGEST:g} seconds")
        elif started.returncode not in (0, 1):
            self.say(f"the week's report failed (exit code {started.returncode})")
        started.wait()

    def _signature(self) -> Any:
        """Time and size of each file that the report depends on; None without a source."""
        try:
            data = Path(Source.of(self.kit).path)
        except (OSError, ValueError, TypeError):
            return None
        inside = sorted(data.iterdir()) if data.is_dir() else []
        models = sorted((self.kit / MODELS).glob("*.epifed"))
        paths = (data, *inside, *models, self.kit / ASKED, self.kit / FETCHED)
        stamps = [(str(path), _stamp(path)) for path in paths]
        return stamps, full_disk(self.kit) != ""


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def office_command(kit: Path, out: Path, model_name: str) -> tuple[str, ...]:
    """The program that makes the week's folder of a kit."""
    words = ("federation", "report", "--kit", str(kit), "--out", str(out))
    return (sys.executable, "-m", "epifed", *words, "--model-name", model_name)
