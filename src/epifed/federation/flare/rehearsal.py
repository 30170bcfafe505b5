"""A rehearsal: a whole federation on this machine, on simulated cases, against one process."""

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any, Self

import numpy as np

from epifed.days import Step
from epifed.federation.flare.jobs import Watch
from epifed.federation.flare.local import LocalFederation, free_port
from epifed.federation.flare.nursery import learners_loaded
from epifed.federation.roster import Aggregator, Federation, Server, Site
from epifed.federation.server import Order, read_state
from epifed.federation.terms import Terms
from epifed.learner import Vector, make_learner
from epifed.panel import CasePanel
from epifed.release import read_release
from epifed.settings import Settings
from epifed.simulate import SimulationSettings, simulate
from epifed.training import train
from epifed.windows import slide
from epifed.words import counted

NAME = "rehearsal"
DAYS = 31
"""The length of the paper's periods."""
END = date(2020, 12, 1)
"""The last day of the paper's first one."""


@dataclass(frozen=True)
class Rehearsed:
    """What came of a rehearsal."""

    sites: int
    clients: int
    rounds: int
    epsilon: float
    epsilon_if_drawn_seen: float
    delta: float
    accountant: str
    randomness: str
    sites_with_model: int
    sha256: str
    largest_difference: float
    """Of any number of the state to a training in one process, with the same seeds."""
    loss: float
    seconds_start: float
    seconds_training: float
    seconds_per_round: float | None
    """Between rounds of one job."""
    aggregator_memory: float | None
    """MB of the processes of an aggregator together, at their peak; shared libraries once."""

    def to_dict(self) -> dict[str, Any]:
        """The same for JSON."""
        return asdict(self)


def rehearsal_federation(
    panel: CasePanel, sites: int, aggregators: int = 0, **changes: Any
) -> Federation:
    """The panel's regions dealt out to so many sites on this machine, with aggregators or none."""
    adding = tuple(
        Aggregator(name=f"aggregator-{i + 1}", own_key=False) for i in range(aggregators)
    )
    hosted = tuple(
        Site(name=f"site-{i + 1}", clients=tuple(panel.regions[i::sites])) for i in range(sites)
    )
    terms = Terms(epsilon_per_release=float("inf"), seeded=True)
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
    """Provision, start, train, stop, compare."""
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
        epsilon_if_drawn_seen=models[0].epsilon_if_drawn_seen,
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
    """The invented country of autumn 2020 with so many counties, counted by day or by week."""
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
    """Reads the server's saved states as they come, for the loss, which no site may send."""

    def __init__(
        self, folder: Path, panel: CasePanel, settings: Settings, losses: dict[int, float] | None
    ) -> None:
        self._folder, self._losses = folder, losses
        self._learner = make_learner(settings)
        self._windows = slide(panel, settings, (panel.start, panel.end))
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def loss(self, state: Vector) -> float:
        """The mean absolute error over all windows: it was learned from them."""
        predicted = self._learner.predict(self._learner.unpack(state), self._windows.inputs)
        return float(np.abs(predicted - self._windows.targets).mean())

    def __enter__(self) -> "_Eye":
        """Start looking."""
        if self._losses is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop looking."""
        self._end.set()
        if self._losses is not None:
            self._thread.join()

    def _look(self) -> None:
        assert self._losses is not None
        while not self._end.wait(0.1):
            found = read_state(self._folder)
            if found and found[0] not in self._losses:
                self._losses[found[0]] = self.loss(found[1])


class _Peaks:
    """Watches the memory of the aggregators, each with all its processes."""

    def __init__(self, local: LocalFederation) -> None:
        self._local = local
        self._names = [one.name for one in local.federation.aggregators]
        self._largest: float | None = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def largest(self) -> float | None:
        """MB of the largest aggregator at its peak; none without any."""
        return self._largest

    def __enter__(self) -> Self:
        """Start looking."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop looking."""
        self._end.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._end.wait(0.2):
            for name in self._names:
                pids = (self._local.processes[name].pid, *self._local.workers(name))
                self._largest = max(self._largest or 0.0, _memory(pids))


def _memory(pids: tuple[int, ...]) -> float:
    """MB of processes on a machine of their own: what each has alone, and what is shared once."""
    alone, shared = 0, [0]
    for pid in pids:
        with suppress(OSError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
            sizes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
            alone += sizes["Private_Clean"] + sizes["Private_Dirty"]
            shared.append(sizes["Shared_Clean"] + sizes["Shared_Dirty"])
    return (alone + max(shared)) / 1024
