"""A federation on this machine: time of a round beyond its training, and memory of a site.

    python benchmarks/federation.py --sites 8 --sites 16

The sites are real processes with real certificates. The training of the same cohorts in one
process, one site after the other, is timed beside it; what is left of a round is overhead. Light
sites have a linear model and one epoch, so that their number and not their training counts. On one
machine all sites share its cores with the server, so the server's own processor time is counted
apart: it is what a server with a machine of its own needs, and what is drawn out to many sites.
"""

import argparse
import json
import os
import statistics
import tempfile
import threading
import time
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from _clock import machine
from epifed.data.panel import CasePanel
from epifed.federation.server import Order
from epifed.learners.base import make_learner
from epifed.rehearsal.local import LocalFederation, rehearsal_federation
from epifed.settings import Settings, seed_sequence
from epifed.training.loop import make_clients

FULL = 400


def invented(regions: int) -> CasePanel:
    rng = np.random.default_rng(0)
    counts = rng.poisson(rng.uniform(5, 60, (regions, 1)), (regions, 45)).astype(float)
    names = tuple(f"{i:05d}" for i in range(regions))
    return CasePanel(counts=counts, regions=names, start=date(2020, 10, 1), source="invented")


def memory(pid: int) -> float:
    """Megabytes of a process that it shares with nobody, and its part of what it shares."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def resident(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def processor(pid: int) -> float:
    """Seconds that a process has had on a core."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Scale(threading.Thread):
    """The most memory that a site and its worker had, and the server and its worker.

    And how the server's processor time grew.
    """

    def __init__(self, local: LocalFederation) -> None:
        super().__init__(daemon=True)
        self.local, self.end = local, threading.Event()
        self.most: dict[str, dict[str, float]] = {}
        self.server: list[tuple[float, float]] = []

    def __enter__(self) -> "Scale":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end.set()
        self.join()

    def run(self) -> None:
        ticks = 0
        while not self.end.wait(0.1):
            self.server.append((time.time(), sum(map(processor, self._of("server")))))
            ticks += 1
            for party in ("site-1", "server") if ticks % 10 == 0 else ():
                pids = self._of(party)
                now = {"pss": sum(map(memory, pids)), "rss": sum(map(resident, pids))}
                before = self.most.setdefault(party, now)
                self.most[party] = {k: max(v, before[k]) for k, v in now.items()}

    def server_seconds(self, began: float, ended: float) -> float:
        """Of its processor time, between two times of day."""
        times, seconds = zip(*self.server, strict=True)
        return float(np.diff(np.interp([began, ended], times, seconds))[0])

    def _of(self, party: str) -> list[int]:
        return [self.local.processes[party].pid, *self.local.workers(party)]


def local_training(settings: Settings, panel: CasePanel, sites: int) -> float:
    """Seconds that the sites' part of a round takes in one process, site by site."""
    clients = make_clients(panel, settings)
    learner = make_learner(settings)
    state = learner.start(seed_sequence(0))
    times = []
    for _ in range(5):
        began = time.perf_counter()
        for i in range(sites):
            learner.contribute(state, clients.train.of(np.arange(i, len(clients), sites)))
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def measure(sites: int, clients: int, rounds: int, *, light: bool) -> dict[str, Any]:
    panel = invented(clients)
    settings = Settings.of(
        rounds=rounds,
        clients_per_round=clients,
        model="linear" if light else "mlp",
        epochs=1 if light else 30,
    )
    federation = rehearsal_federation(
        panel, sites, rounds_per_job=rounds, min_sites=sites, round_timeout=600
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalFederation.make(Path(folder), federation, panel) as local,
    ):
        began = time.perf_counter()
        local.start()
        started = time.perf_counter() - began
        plan = Order.of("measured", settings, panel.start, panel.end, seeded=True)
        with Scale(local) as scale:
            local.train(plan)
        text = (local.training_folder(plan) / "report.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    times = [line["time"] for line in lines[1:]]
    seconds = np.diff(times)
    server = scale.server_seconds(times[0], times[-1]) / len(seconds)
    training = local_training(settings, panel, sites)
    return {
        "sites": sites,
        "clients": clients,
        "model": settings.own["model"],
        "present": min(len(line["sites"]) for line in lines),
        "start_seconds": round(started, 1),
        "round_seconds": round(float(np.median(seconds)), 3),
        "round_seconds_worst": round(float(np.max(seconds)), 3),
        "training_seconds": round(training, 3),
        "overhead_seconds": round(float(np.median(seconds)) - training, 3),
        "server_processor_seconds": round(server, 3),
        "site_pss_mb": round(scale.most["site-1"]["pss"]),
        "site_rss_mb": round(scale.most["site-1"]["rss"]),
        "server_pss_mb": round(scale.most["server"]["pss"]),
    }


def main() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"  # before PyTorch is imported
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", type=int, action="append", help="numbers of light sites")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--full", action="store_true", help="also 8 sites with the paper's model")
    arguments = parser.parse_args()
    measured = []
    if arguments.full:
        measured.append(measure(8, FULL, arguments.rounds, light=False))
        print(json.dumps(measured[-1]), flush=True)
    light = []
    for sites in arguments.sites or [8]:
        light.append(measure(sites, 4 * sites, arguments.rounds, light=True))
        print(json.dumps(light[-1]), flush=True)
    about: dict[str, object] = {"machine": machine()}
    if len(light) > 1:
        for name in ("round_seconds", "server_processor_seconds"):
            slope, base = np.polyfit([m["sites"] for m in light], [m[name] for m in light], 1)
            about |= {f"{name}_per_site": slope, f"{name}_at_{FULL}": base + slope * FULL}
    print(json.dumps(about))


if __name__ == "__main__":
    main()
