"""A federation on one machine, as real processes with real certificates, and its rehearsal.

All files are in one folder. Every process is a child that ends with this process.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Self

import numpy as np

from epifed.data.calendar import Step
from epifed.data.panel import CasePanel
from epifed.data.readers.formats import SIMULATION
from epifed.errors import EpifedError, counted
from epifed.federation import aggregator
from epifed.federation.aggregator import own_keys
from epifed.federation.flare.engine_patches import WATCHED_PARENT
from epifed.federation.flare.jobs import CoordinatorSession, Watch, run_training
from epifed.federation.flare.kits import COORDINATOR, SERVER, make_kits
from epifed.federation.flare.parties import (
    Command,
    aggregator_command,
    server_command,
    site_command,
)
from epifed.federation.server import Order, read_state
from epifed.federation.site import TERMS, Source
from epifed.federation.terms import Aggregator, Federation, Server, Site, Terms
from epifed.files import write_atomic, write_text
from epifed.learners.base import Vector, make_learner, slide
from epifed.rehearsal.fork_server import POSSIBLE, Child, Wanted, learners_loaded, shared_server
from epifed.settings import Settings
from epifed.simulate import SimulationSettings, simulate
from epifed.training.loop import train
from epifed.training.release import read_release

START_SECONDS = 600.0
"""Most seconds for a party's start: a guard, since one that has ended is noticed at once."""
START_EACH = 5.0
"""Further seconds for each site, since all of them start on this one machine."""
NICE = 3
"""How nice sites are, so that the server, elsewhere on a machine of its own, goes first. With a
larger value, other work on a busy machine would leave sites almost nothing."""


class _OverError(EpifedError):
    """The condition can no longer be met, so waiting ends."""


@dataclass
class LocalFederation:
    """A federation whose parties are child processes. As a context manager it ends them all."""

    folder: Path
    federation: Federation
    ledger: Path | None = None
    """The ledger that the server charges; None for tests alone."""
    environment: dict[str, dict[str, str]] = field(default_factory=dict)
    """Additional environment variables, by party."""
    services: bool = False
    """Whether sites run as services, which also write weekly reports to `reports`."""
    preloaded: tuple[str, ...] | None = None
    """Modules to import before parties are forked; None starts each party as a new program."""
    nice: int = NICE
    """The niceness of all parties but the server."""
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
        """Make kits, and a data file for each site with the counts of its own clients alone."""
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
        """Write a site's data file with its own clients alone, marked so that tests may read it."""
        clients = self.federation.site(site).clients
        hosted = panel.of([client for client in clients if client in panel.regions])
        write_atomic(self.data(site), hosted.to_table().write_csv)
        mark = self.data(site).with_name(SIMULATION)
        if not mark.exists():
            write_text(mark, json.dumps({"source": "a federation on one machine"}))

    @property
    def desk(self) -> CoordinatorSession:
        """The coordinator's session, from which trainings are started."""
        return CoordinatorSession(self.kit(COORDINATOR))

    def start(self, *parties: str) -> None:
        """Start parties, by default all, and wait until the server has registered them."""
        chosen = parties or (SERVER, *(party.name for party in self.federation.parties))
        for party in chosen:
            self._launch(party)
            if party == SERVER:
                self._wait_for_port()
        self.wait_for_sites(tuple(party for party in chosen if party != SERVER))

    def command(self, party: str) -> Command:
        """The program of a party."""
        if party == SERVER:
            return server_command(self.kit(SERVER), self.ledger)
        if party in {adder.name for adder in self.federation.aggregators}:
            return aggregator_command(self.kit(party))
        path = self.data(party).resolve()
        if self.services:
            words = ("federation", "site", "--kit", str(self.kit(party)), "--data", str(path))
            out = str(self.reports(party).resolve())
            program = (sys.executable, "-m", "epifed", *words, "--out", out)
            return Command(program, dict(os.environ))
        return site_command(self.kit(party), Source(str(path), None, {}))

    def reports(self, site: str) -> Path:
        """The folder in which a site that runs as a service writes its weeks."""
        return self.folder / "reports" / site

    def kill(self, party: str, how: signal.Signals = signal.SIGKILL) -> None:
        """End a party's process at once; its workers must notice by themselves."""
        process = self.processes.pop(party)
        process.send_signal(how)
        process.wait()
        if process.stdin is not None:
            process.stdin.close()

    def workers(self, party: str) -> list[int]:
        """The process ids of all descendants of a party's process."""
        workers: set[int] = set()
        left = [self.processes[party].pid]
        while left:
            for task in Path(f"/proc/{left.pop()}/task").glob("*/children"):
                with suppress(OSError):
                    new = set(map(int, task.read_text().split())) - workers
                    workers |= new
                    left += new
        return sorted(workers)

    def processor_seconds(self, party: str) -> float:
        """Processor seconds of a party and its workers, including ended ones."""
        used = 0
        for pid in (self.processes[party].pid, *self.workers(party)):
            with suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                used += sum(map(int, fields[11:15]))
        return used / os.sysconf("SC_CLK_TCK")

    def train(self, order: Order, watch: Watch = lambda _: None) -> dict[str, object]:
        """Run a training to its end; returns the last status."""
        return run_training(self.desk, self.federation, order, watch)

    def training_folder(self, order: Order) -> Path:
        """The server's folder of a training."""
        return self.kit(SERVER) / "trainings" / order.training

    def log(self, party: str) -> str:
        """The output of a party, and its FLARE log."""
        paths = (self.folder / "logs" / f"{party}.log", self.kit(party) / "log.txt")
        texts = (p.read_text(encoding="utf-8", errors="replace") for p in paths if p.exists())
        return "".join(texts)

    def wait_for_sites(self, sites: tuple[str, ...]) -> None:
        """Wait until the server has registered these parties."""
        patience = START_SECONDS + START_EACH * len(sites)

        def there(connected: set[str]) -> bool:
            missing = set(sites) - connected
            for site in missing:
                if self.processes[site].poll() is not None:
                    raise _OverError(f"site '{site}' has ended: see its log")
            return not missing

        self._wait(there, patience, f"not all of {', '.join(sites)} connected", every=0.2)

    def wait_until_gone(self, sites: tuple[str, ...]) -> None:
        """Wait until the server has dropped these stopped sites for their silence."""
        still = f"the server still knows one of {', '.join(sites)}"
        self._wait(lambda connected: not connected & set(sites), START_SECONDS, still, every=1)

    def _wait(
        self, met: Callable[[set[str]], bool], patience: float, otherwise: str, every: float
    ) -> None:
        """Ask the server for the connected parties until `met` accepts them.

        On an overloaded machine a question can time out; it is asked again.
        """
        until = time.monotonic() + patience
        while True:
            try:
                with self.desk.session(patience) as session:
                    while not met({client.name for client in session.get_connected_client_list()}):
                        if time.monotonic() > until:
                            raise _OverError(f"{otherwise} in {patience:g} s: see the logs")
                        time.sleep(every)
                    return
            except _OverError:
                raise
            except Exception:  # FLARE's errors share no base class
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
        """Pin the aggregators' keys at every party; elsewhere each is given by telephone."""
        names = [party.name for party in self.federation.aggregators]
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
        environment = command.environment | {"GRPC_VERBOSITY": "INFO"}
        environment |= self.environment.get(party, {})
        nice = 0 if party == SERVER else self.nice
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
            child = shared_server(self.preloaded, imports).start_program(wanted)
            if child is not None:
                self.processes[party] = child
                return
        with path.open("ab") as log:
            self.processes[party] = subprocess.Popen(
                command.arguments,
                env=environment | {WATCHED_PARENT: str(os.getpid())},
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


_CLAIMS: list[socket.socket] = []
"""UDP sockets that reserve the TCP ports of the same numbers for this process."""
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""On Linux: the first and the last port given to outgoing connections."""


def free_port() -> int:
    """A free port, reserved against other processes that use this function while this one runs.

    It is below the ports of outgoing connections, any of which could take it before it is used.
    """
    end = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32768
    ports = [port for port in range(end // 2, end) if port > 1024]
    start = os.getpid() * 97 % len(ports)
    for port in ports[start:] + ports[:start]:
        with closing(socket.socket()) as listener, suppress(OSError):
            claim = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            try:
                claim.bind(("127.0.0.1", port))
                listener.bind(("", port))
            except OSError:
                claim.close()
                raise
            _CLAIMS.append(claim)
            return port
    raise EpifedError(f"found no free port from {ports[0]} to {ports[-1]}; expected one")


NAME = "rehearsal"
DAYS = 31
"""The length of the paper's periods."""
END = date(2020, 12, 1)
"""The last day of the paper's first period."""


@dataclass(frozen=True)
class Rehearsed:
    """The results of a rehearsal."""

    sites: int
    clients: int
    rounds: int
    epsilon: float
    epsilon_without_amplification: float
    delta: float
    accountant: str
    randomness: str
    sites_with_model: int
    sha256: str
    largest_difference: float
    """Largest difference of a number of the state from the same training in one process."""
    loss: float
    seconds_start: float
    seconds_training: float
    seconds_per_round: float | None
    """Median time between rounds of one job."""
    aggregator_memory: float | None
    """Peak MB of all processes of an aggregator; shared libraries are counted once."""

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        return asdict(self)


def rehearsal_federation(
    panel: CasePanel, sites: int, aggregators: int = 0, **changes: Any
) -> Federation:
    """A roster that deals the panel's regions out to so many sites, with aggregators or without."""
    adding = tuple(
        Aggregator(name=f"aggregator-{i + 1}", own_key=False) for i in range(aggregators)
    )
    hosted = tuple(
        Site(name=f"site-{i + 1}", clients=tuple(panel.regions[i::sites])) for i in range(sites)
    )
    terms = Terms(epsilon_per_release=float("inf"), accountant="rdp", seeded=True)
    server = Server(host="localhost", port=free_port())
    values = {"server": server, "terms": terms, "sites": hosted, "aggregators": adding}
    return Federation(**values | changes)


def rehearse(
    folder: Path,
    panel: CasePanel,
    settings: Settings,
    sites: int,
    watch: Watch = lambda _: None,
    losses: dict[int, float] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Rehearsed:
    """Provision, start and train a federation, stop it, and compare with one process."""
    period = (panel.day(max(panel.index(panel.end) - DAYS + 1, 0)), panel.end)
    aggregators = settings.aggregators or 0
    federation = rehearsal_federation(
        panel, sites, aggregators, min_sites=sites, rounds_per_job=settings.rounds
    )
    order = Order.of(NAME, settings, *period, seeded=True)
    learner = make_learner(settings)
    view = learner.deployed_view(panel, period)
    began = time.perf_counter()
    progress("making certificates and kits")
    with LocalFederation.make(folder, federation, panel, preloaded=learners_loaded()) as local:
        adding = f", {counted(aggregators, 'aggregator')}" if aggregators else ""
        progress(f"starting a server{adding} and {counted(sites, 'site')}")
        local.start()
        started = time.perf_counter()
        progress("training")
        eye = _Eye(local.training_folder(order), panel, settings, losses)
        peaks = _Peaks(local)
        with eye, peaks:
            status = local.train(order, watch)
        trained = time.perf_counter()
        models = [
            read_release(path)
            for site in federation.sites
            if (path := local.kit(site.name) / "models" / f"{NAME}.epifed").exists()
        ]
        seconds = round_seconds(local.training_folder(order))
    progress("comparing with a training in one process")
    if panel.regions != federation.clients:
        raise ValueError("expected the panel's regions to be sorted, as the server draws them")
    here = train(view, settings).vector
    state = models[0].vector
    return Rehearsed(
        sites=sites,
        clients=len(view),
        rounds=settings.rounds,
        epsilon=models[0].epsilon,
        epsilon_without_amplification=models[0].epsilon_without_amplification,
        delta=settings.delta,
        accountant=settings.accountant,
        randomness=models[0].randomness,
        sites_with_model=sum(model.sha256 == status["sha256"] for model in models),
        sha256=str(status["sha256"]),
        largest_difference=float(np.abs(state - here).max()),
        loss=eye.loss(state),
        seconds_start=started - began,
        seconds_training=trained - started,
        seconds_per_round=seconds,
        aggregator_memory=peaks.largest(),
    )


def simulated_panel(clients: int, seed: int, step: Step = "day") -> CasePanel:
    """A simulated country of autumn 2020 with so many counties, counted by day or by week."""
    communities = min(10_786, 27 * clients)
    settings = SimulationSettings.of(counties=clients, communities=communities, seed=seed)
    panel = simulate(settings).county_panel
    panel = panel.between(panel.start, END)
    return panel if step == "day" else panel.weekly()


def round_seconds(folder: Path) -> float | None:
    """The median time between two rounds of a job, from the server's report."""
    path = folder / "report.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    times = [json.loads(line)["time"] for line in lines]
    return float(np.median(np.diff(times))) if len(times) > 1 else None


class _Eye:
    """Computes the loss from the server's saved states, since no site may send it."""

    def __init__(
        self, folder: Path, panel: CasePanel, settings: Settings, losses: dict[int, float] | None
    ) -> None:
        self._folder, self._losses = folder, losses
        self._learner = make_learner(settings)
        self._windows = slide(panel, settings, (panel.start, panel.end))
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def loss(self, state: Vector) -> float:
        """The mean absolute error over all windows, which were also used for training."""
        predicted = self._learner.predict(self._learner.unpack(state), self._windows.inputs)
        return float(np.abs(predicted - self._windows.targets).mean())

    def __enter__(self) -> "_Eye":
        """Start watching."""
        if self._losses is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop watching."""
        self._end.set()
        if self._losses is not None:
            self._thread.join()

    def _look(self) -> None:
        assert self._losses is not None
        while not self._end.wait(0.1):
            state = read_state(self._folder)
            if state and state[0] not in self._losses:
                self._losses[state[0]] = self.loss(state[1])


class _Peaks:
    """Watches the memory of the aggregators, each with all its processes."""

    def __init__(self, local: LocalFederation) -> None:
        self._local = local
        self._names = [party.name for party in local.federation.aggregators]
        self._largest: float | None = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def largest(self) -> float | None:
        """Peak MB of the largest aggregator; None without aggregators."""
        return self._largest

    def __enter__(self) -> Self:
        """Start watching."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop watching."""
        self._end.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._end.wait(0.2):
            for name in self._names:
                pids = (self._local.processes[name].pid, *self._local.workers(name))
                self._largest = max(self._largest or 0.0, _memory(pids))


def _memory(pids: tuple[int, ...]) -> float:
    """MB of these processes on a machine of their own: private memory, and shared memory once."""
    alone, shared = 0, [0]
    for pid in pids:
        with suppress(OSError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
            sizes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
            alone += sizes["Private_Clean"] + sizes["Private_Dirty"]
            shared.append(sizes["Shared_Clean"] + sizes["Shared_Dirty"])
    return (alone + max(shared)) / 1024
