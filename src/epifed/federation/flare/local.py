"""A whole federation on one machine: real processes, real certificates, over loopback.

For rehearsals, tests and benchmarks. Everything is in one folder, and every process is a child
that ends with this one.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from epifed.errors import EpifedError
from epifed.federation import aggregator
from epifed.federation.aggregator import own_keys
from epifed.federation.flare.jobs import Desk, Watch, run_training
from epifed.federation.flare.kits import COORDINATOR, SERVER, make_kits
from epifed.federation.flare.leash import LEASH
from epifed.federation.flare.nursery import POSSIBLE, Child, Wanted, nursery
from epifed.federation.flare.parties import (
    Command,
    aggregator_command,
    server_command,
    site_command,
)
from epifed.federation.roster import Federation
from epifed.federation.server import Order
from epifed.federation.site import TERMS, Source
from epifed.federation.terms import Terms
from epifed.files import write_atomic, write_text
from epifed.panel import CasePanel

START_SECONDS = 90.0
"""Seconds in which a party must have started."""
START_EACH = 5.0
"""Seconds more for each site, since all of them start on this one machine."""
NICE = 10
"""How far a site stands back behind the server, whose cores it would not share elsewhere."""


class _OverError(EpifedError):
    """Waiting longer would not help."""


@dataclass
class LocalFederation:
    """A federation whose parties are child processes. As a context it ends them all."""

    folder: Path
    federation: Federation
    ledger: Path | None = None
    statsd: int | None = None
    """A port of this machine for FLARE's own metrics of the server."""
    environment: dict[str, dict[str, str]] = field(default_factory=dict)
    """More environment variables, by party."""
    services: bool = False
    """Whether sites run as an office would: with the week's own reports, in `reports`."""
    preloaded: tuple[str, ...] | None = None
    """Have parties forked with all imports done, and these modules'; none: start each anew."""
    processes: dict[str, subprocess.Popen[bytes] | Child] = field(default_factory=dict)

    @classmethod
    def make(
        cls,
        folder: Path,
        federation: Federation,
        panel: CasePanel,
        ledger: Path | None = None,
        preloaded: tuple[str, ...] | None = None,
    ) -> Self:
        """Kits and a data file for each site, with the days of its own clients alone."""
        write_text(folder / "federation.toml", federation.to_toml())
        make_kits(federation, folder)
        local = cls(folder, federation, ledger, preloaded=preloaded)
        for site in federation.sites:
            local.write_data(site.name, panel)
        local.pin()
        return local

    def kit(self, party: str) -> Path:
        """The kit of a party."""
        return self.folder / "kits" / party

    def data(self, site: str) -> Path:
        """The data file of a site."""
        return self.folder / "data" / f"{site}.csv"

    def write_data(self, site: str, panel: CasePanel) -> None:
        """Give a site a file with the days of its own clients alone."""
        clients = self.federation.site(site).clients
        mine = panel.of([client for client in clients if client in panel.regions])
        write_atomic(self.data(site), mine.to_table().write_csv)

    @property
    def desk(self) -> Desk:
        """Where trainings are started."""
        return Desk(self.kit(COORDINATOR))

    def start(self, *parties: str) -> None:
        """Start parties, by default all, and wait until the server has heard of the sites."""
        chosen = parties or (SERVER, *(party.name for party in self.federation.parties))
        for party in chosen:
            self._launch(party)
            if party == SERVER:
                self._wait_for_port()
        self.wait_for_sites(tuple(party for party in chosen if party != SERVER))

    def command(self, party: str) -> Command:
        """The program of a party."""
        if party == SERVER:
            return server_command(self.kit(SERVER), self.ledger, statsd=self.statsd)
        if party in {one.name for one in self.federation.aggregators}:
            return aggregator_command(self.kit(party))
        path = self.data(party).resolve()
        if self.services:
            words = ("federation", "site", "--kit", str(self.kit(party)), "--data", str(path))
            out = str(self.reports(party).resolve())
            program = (sys.executable, "-m", "epifed", *words, "--out", out)
            return Command(program, dict(os.environ))
        return site_command(self.kit(party), Source(str(path), None, {}))

    def reports(self, site: str) -> Path:
        """Where a site that runs as a service writes its weeks."""
        return self.folder / "reports" / site

    def kill(self, party: str, how: signal.Signals = signal.SIGKILL) -> None:
        """End a party's process at once; its workers are left to notice."""
        process = self.processes.pop(party)
        process.send_signal(how)
        process.wait()
        if process.stdin is not None:
            process.stdin.close()

    def workers(self, party: str) -> list[int]:
        """The process ids of a party's workers, and of theirs."""
        found: set[int] = set()
        left = [self.processes[party].pid]
        while left:
            for task in Path(f"/proc/{left.pop()}/task").glob("*/children"):
                with suppress(OSError):
                    new = set(map(int, task.read_text().split())) - found
                    found |= new
                    left += new
        return sorted(found)

    def processor_seconds(self, party: str) -> float:
        """Seconds that a party, its workers and those of them that ended had on a core."""
        used = 0
        for pid in (self.processes[party].pid, *self.workers(party)):
            with suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                used += sum(map(int, fields[11:15]))
        return used / os.sysconf("SC_CLK_TCK")

    def train(self, order: Order, watch: Watch = lambda _: None) -> dict[str, object]:
        """Run a training to its end."""
        return run_training(self.desk, self.federation, order, watch)

    def training_folder(self, order: Order) -> Path:
        """Where the server keeps a training."""
        return self.kit(SERVER) / "trainings" / order.training

    def log(self, party: str) -> str:
        """What a party has printed."""
        path = self.folder / "logs" / f"{party}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def wait_for_sites(self, sites: tuple[str, ...]) -> None:
        """Until the server has these sites registered."""
        patience = START_SECONDS + START_EACH * len(sites)

        def there(connected: set[str]) -> bool:
            missing = set(sites) - connected
            for site in missing:
                if self.processes[site].poll() is not None:
                    raise _OverError(f"site '{site}' has ended: see its log")
            return not missing

        self._wait(there, patience, f"not all of {', '.join(sites)} connected", every=0.2)

    def wait_until_gone(self, sites: tuple[str, ...]) -> None:
        """Until the server has missed the signs of life of sites that were stopped."""
        still = f"the server still knows one of {', '.join(sites)}"
        self._wait(lambda connected: not connected & set(sites), START_SECONDS, still, every=1)

    def _wait(
        self, met: Callable[[set[str]], bool], patience: float, otherwise: str, every: float
    ) -> None:
        """Ask the server who is connected until that is as wished.

        A machine with too much to do lets a question run out of time: it is asked again.
        """
        until = time.monotonic() + patience
        while True:
            try:
                with self.desk.session(patience) as session:
                    while not met({one.name for one in session.get_connected_client_list()}):
                        if time.monotonic() > until:
                            raise _OverError(f"{otherwise} in {patience:g} s: see the logs")
                        time.sleep(every)
                    return
            except _OverError:
                raise
            except Exception:  # FLARE's own have no common base
                if time.monotonic() > until:
                    raise
                time.sleep(1)

    def __enter__(self) -> Self:
        """The federation itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End all parties and their workers."""
        pids = [pid for party in self.processes for pid in self.workers(party)]
        for party in list(self.processes):
            self.kill(party)
        for pid in pids:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def pin(self) -> None:
        """Have every party know the aggregators' keys, which elsewhere each says by telephone."""
        names = [one.name for one in self.federation.aggregators]
        pins = {name: own_keys(self.kit(name)).public.fingerprint for name in names}
        files = [self.kit(site.name) / TERMS for site in self.federation.sites if pins]
        for path in (*files, *(self.kit(name) / aggregator.TERMS for name in names)):
            others = {name: pin for name, pin in pins.items() if name != path.parent.name}
            terms = Terms.read(path).model_copy(update={"aggregators": others})
            write_text(path, terms.to_toml())

    def _launch(self, party: str) -> None:
        command = self.command(party)
        logs = self.folder / "logs"
        logs.mkdir(exist_ok=True)
        path, folder = logs / f"{party}.log", self.kit(party)
        environment = command.environment | self.environment.get(party, {})
        nice = 0 if party == SERVER else NICE
        if POSSIBLE and self.preloaded is not None and not self.services:
            wanted = Wanted.of(
                command.arguments,
                environment,
                folder=folder,
                log=str(path.resolve()),
                nice=nice,
                party=True,
            )
            own = tuple(sorted(self.environment.get(party, {}).items()))
            imports = own if "PYTHONPATH" in dict(own) else ()
            child = nursery(self.preloaded, imports).bear(wanted)
            if child is not None:
                self.processes[party] = child
                return
        with path.open("ab") as log:
            self.processes[party] = subprocess.Popen(
                command.arguments,
                env=environment | {LEASH: str(os.getpid())},
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        os.setpriority(os.PRIO_PROCESS, self.processes[party].pid, nice)

    def _wait_for_port(self) -> None:
        until = time.monotonic() + START_SECONDS
        server = self.federation.server
        while time.monotonic() < until:
            if self.processes[SERVER].poll() is not None:
                raise EpifedError("the server has ended: see its log")
            with (
                suppress(OSError),
                closing(socket.create_connection((server.host, server.port), timeout=1)),
            ):
                return
            time.sleep(0.1)
        raise EpifedError(f"the server did not start in {START_SECONDS:g} seconds: see its log")


def free_port() -> int:
    """A port that nobody listens on now."""
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
