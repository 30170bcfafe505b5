"""How many sites one server holds: what each of them costs it, sites without PyTorch.

    python benchmarks/load.py --sites 4 --sites 16 --sites 32 --keep
    python benchmarks/load.py --weeks 64 --weeks 200 --keep

With `--weeks` the sites are forked from one process that has imported everything, one client each,
and a week with two aggregators is run: question, round, delivery. Otherwise the sites are real
processes with real certificates and the learner `trend`, in all rounds of one job. They share the
machine's cores with the server, so seconds on the wall mean little and the server's own processor
time is counted: of its process, which passes everything on between sites and job, and of the job's
worker. Memory is the proportional set size. Stops before a number of sites that would leave less
than `--spare` GB of memory free.
"""

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from _clock import machine
from epifed.federation.messages import Parts, Task, pack_contribution, pack_tasks
from epifed.federation.server import Order, Post, Problem, ServedTraining
from epifed.rehearsal.local import LocalFederation, rehearsal_federation
from epifed.settings import Settings
from federation import invented, memory, processor, resident
from kept import RESULTS, keep, table

EACH = 4
"""Clients of a site."""
AT_ONCE = 4
"""Sites that are started together: FLARE's client gives up after 15 seconds of starting."""
SITE_GB = 0.25
FAR, FARTHER, RELAYS = 400, 4000, 20
LEAST_FREE = 3.0
"""GB of memory below which no more forked sites are started."""


def free_gb() -> float:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(one.split()[1]) for one in lines if one.startswith("MemAvailable")) / 2**20


def connections(port: int) -> int:
    """Established ones at a port of this machine."""
    rows = [
        row.split()
        for name in ("/proc/net/tcp", "/proc/net/tcp6")
        if Path(name).exists()
        for row in Path(name).read_text().splitlines()[1:]
    ]
    return sum(row[1].endswith(f":{port:04X}") and row[3] == "01" for row in rows)


def entries(pid: int, what: str) -> int:
    """The open files (`fd`) or the threads (`task`) of a process."""
    try:
        return len([*Path(f"/proc/{pid}/{what}").iterdir()])
    except OSError:
        return 0


def with_torch(pid: int) -> bool:
    try:
        return b"libtorch" in Path(f"/proc/{pid}/maps").read_bytes()
    except OSError:
        return False


class Scale(threading.Thread):
    """The server's processes: how their processor time grows, and the most of all else."""

    def __init__(self, local: LocalFederation) -> None:
        super().__init__(daemon=True)
        self.local, self.end = local, threading.Event()
        self.times: list[tuple[float, float, float]] = []
        self.most: dict[str, float] = {}

    def __enter__(self) -> "Scale":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end.set()
        self.join()

    def run(self) -> None:
        port, main = self.local.federation.server.port, self.local.processes["server"].pid
        ticks = 0
        while not self.end.wait(0.2):
            workers = self.local.workers("server")
            self.times.append((time.time(), processor(main), sum(map(processor, workers))))
            ticks += 1
            if ticks % 10 == 0:
                site = [self.local.processes["site-1"].pid, *self.local.workers("site-1")]
                now = {
                    "connections": connections(port),
                    "files": entries(main, "fd"),
                    "worker_files": sum(entries(one, "fd") for one in workers),
                    "threads": sum(entries(one, "task") for one in (main, *workers)),
                    "memory": memory(main),
                    "worker_memory": sum(map(memory, workers)),
                    "site_memory": sum(map(memory, site)),
                    "torch": max(map(with_torch, (main, *workers, *site))),
                }
                self.most = {k: max(v, self.most.get(k, 0)) for k, v in now.items()}

    def seconds(self, began: float, ended: float) -> tuple[float, float]:
        """Processor time of the server's process and of its worker, between two times of day."""
        found = np.array(self.times)
        passing, job = (
            float(np.diff(np.interp([began, ended], found[:, 0], found[:, i]))[0]) for i in (1, 2)
        )
        return passing, job


def measure(sites: int, rounds: int) -> dict[str, Any]:
    panel = invented(EACH * sites)
    settings = Settings.resolve(
        len(panel.regions), {"learner": "trend", "epsilon": 1.0, "rounds": rounds}
    )
    roster = rehearsal_federation(
        panel, sites, rounds_per_job=rounds, min_sites=sites, round_timeout=600
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalFederation.make(Path(folder), roster, panel) as local,
    ):
        local.start("server")
        names = [site.name for site in roster.sites]
        for first in range(0, sites, AT_ONCE):
            local.start(*names[first : first + AT_ONCE])
        order = Order.of("measured", settings, panel.start, panel.end, seeded=True)
        began = time.time()
        with Scale(local) as scale:
            local.train(order)
            ended = time.time()
        text = (local.training_folder(order) / "report.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    times = [line["time"] for line in lines]
    passing, job = scale.seconds(times[0], times[-1])
    whole = scale.seconds(began, ended)
    return {
        "sites": sites,
        "without": sum(len(line["problems"]) for line in lines),
        "seconds_round": float(np.median(np.diff(times))),
        "passing": passing / (len(times) - 1),
        "job": job / (len(times) - 1),
        "whole": sum(whole),
        **scale.most,
        "load": os.getloadavg()[0],
    }


def private(pid: int) -> float:
    """Megabytes of a process that it shares with nobody."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


class Week(threading.Thread):
    """The most that the server and one site have during a week."""

    def __init__(self, local: LocalFederation) -> None:
        super().__init__(daemon=True)
        self.local, self.end = local, threading.Event()
        self.most: dict[str, float] = {}

    def run(self) -> None:
        port = self.local.federation.server.port
        server = self.local.processes["server"].pid
        site = self.local.processes["site-2"].pid
        while not self.end.wait(1):
            parts = [server, *self.local.workers("server")]
            now = {
                "memory": sum(map(memory, parts)),
                "resident": sum(map(resident, parts)),
                "site": sum(map(private, [site, *self.local.workers("site-2")])),
                "connections": connections(port),
                "files": sum(entries(pid, "fd") for pid in parts),
                "threads": sum(entries(pid, "task") for pid in parts),
                "load": os.getloadavg()[0],
                "least_free": -free_gb(),
            }
            self.most = {k: max(v, self.most.get(k, -1e9)) for k, v in now.items()}
            if free_gb() < LEAST_FREE:
                self.local.__exit__()
                print("memory ended: all parties are stopped", file=sys.stderr, flush=True)
                os._exit(1)

    def __enter__(self) -> "Week":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end.set()
        self.join()


def measure_week(sites: int) -> dict[str, Any]:
    """One week of `trend` with two aggregators: all are asked, one round, the release delivered."""
    panel = invented(sites)
    wish = {"learner": "trend", "epsilon": 1.0, "noise": "aggregators", "aggregators": 2}
    wish["accountant"] = "rdp"  # as in the terms; by PLD a site needs 10 MB more
    settings = Settings.resolve(sites, wish)
    roster = rehearsal_federation(
        panel, sites, aggregators=2, rounds_per_job=1, min_sites=9 * sites // 10, round_timeout=900
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalFederation.make(Path(folder), roster, panel, preloaded=()) as local,
    ):
        local.nice = 19  # hundreds of workers that start at once would leave the server nothing
        began = time.monotonic()
        names = ["server", *(party.name for party in roster.parties)]
        for first in range(0, len(names), 2 * AT_ONCE):
            local.start(*names[first : first + 2 * AT_ONCE])
            if free_gb() < LEAST_FREE:
                raise SystemExit(f"{sites} sites: memory ended after {first} of them had started")
        started = time.monotonic() - began
        before = {name: local.processor_seconds(name) for name in names}
        order = Order.of("measured", settings, panel.start, panel.end, seeded=True)
        began = time.monotonic()
        with Week(local) as week:
            status: dict[str, Any] = dict(local.train(order))
        seconds = time.monotonic() - began
        used = {name: local.processor_seconds(name) - before[name] for name in names}
    return {
        "sites": sites,
        "rounds": status["round"],
        "delivered": len(status.get("delivered", ())),
        "seconds_start": started,
        "seconds": seconds,
        "server": used["server"],
        "aggregator": used["aggregator-1"],
        "all": sum(used.values()),
        **week.most,
    }


WEEK = {
    "sites": "{}",
    "seconds": "{:.0f}",
    "processor seconds of the server": "{:.1f}",
    "its share of a core": "{:.0%}",
    "of each site": "{:.1f}",
    "of an aggregator": "{:.1f}",
    "memory of the server, MB": "{:.0f}",
    "its resident sizes, added": "{:.0f}",
    "connections": "{:.0f}",
    "open files": "{:.0f}",
    "threads": "{:.0f}",
    "own memory of a site, MB": "{:.0f}",
}


def week_row(one: dict[str, Any]) -> list[Any]:
    others = one["all"] - one["server"] - 2 * one["aggregator"]
    share = one["server"] / one["seconds"]
    numbers = [one["server"], share, others / one["sites"], one["aggregator"], one["memory"]]
    rest = ("resident", "connections", "files", "threads", "site")
    return [str(one["sites"]), one["seconds"], *numbers, *(one[name] for name in rest)]


def kept_weeks(weeks: list[dict[str, Any]]) -> dict[str, Any]:
    """The table of weeks; numbers of sites that were not measured now stay as they are."""
    path = RESULTS / "load.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    before = kept.get("weeks", {})
    same = before.get("columns") == [*WEEK]
    rows = {row[0]: row for row in before["rows"]} if same else {}
    rows |= {str(one["sites"]): week_row(one) for one in weeks}
    ordered = [rows[name] for name in sorted(rows, key=int)]
    about = {"machine": machine(), "load": max(one["load"] for one in weeks)}
    return {"weeks": table([*WEEK], [*WEEK.values()], ordered), "weeks about": about}


def ours(sites: int, rounds: int = 3) -> float:
    """Processor seconds of a round in the server's job that are epifed's, not FLARE's.

    Tasks made and packed, answers taken in, noise, the state on the disk: one client a site.
    """
    panel, spared = invented(sites), [0.0]
    settings = Settings.resolve(sites, {"learner": "trend", "epsilon": 1.0, "rounds": rounds})
    order = Order.of("measured", settings, panel.start, panel.end, seeded=True)

    class Sites(Post):
        def sites(self, tasks: dict[str, Task]) -> tuple[dict[str, Parts], list[Problem]]:
            pack_tasks(tasks)
            began = time.process_time()
            answers = {
                site: pack_contribution(
                    task.training, task.round, np.zeros((1, task.length), dtype=np.float32)
                )
                for site, task in tasks.items()
            }
            spared[0] += time.process_time() - began
            return answers, []

    with tempfile.TemporaryDirectory() as folder:
        training = ServedTraining(Path(folder), rehearsal_federation(panel, sites), order, None)
        began = time.process_time()
        for _ in range(rounds):
            training.play(Sites(), lambda _: None)
        return (time.process_time() - began - spared[0]) / rounds


def line_of(rows: list[dict[str, Any]], *names: str) -> tuple[float, float]:
    """Slope and beginning of a line through the sums of some columns, by the number of sites."""
    slope, begin = np.polyfit(
        [one["sites"] for one in rows], [sum(one[name] for name in names) for one in rows], 1
    )
    return float(slope), float(begin)


COLUMNS = {
    "sites": "{}",
    "memory of the server": "{:.0f} MB",
    "of a site": "{:.0f} MB",
    "connections": "{:.0f}",
    "open files": "{:.0f}",
    "threads": "{:.0f}",
    "server's processor time a round": "{:.2f} s",
    "load of the machine": "{:.0f}",
}


def row(one: dict[str, Any]) -> list[Any]:
    return [
        str(one["sites"]),
        one["memory"] + one["worker_memory"],
        one["site_memory"],
        one["connections"],
        one["files"] + one["worker_files"],
        one["threads"],
        one["passing"] + one["job"],
        one["load"],
    ]


def results(rows: list[dict[str, Any]], rounds: int) -> dict[str, Any]:
    """The table, and lines through it drawn out to many sites."""
    found: dict[str, Any] = {
        "sites": table([*COLUMNS], [*COLUMNS.values()], [row(one) for one in rows]),
        "about": {
            "machine": machine(),
            "rounds": rounds,
            "most": max(one["sites"] for one in rows),
            "without": sum(one["without"] for one in rows),
            "torch": any(one["torch"] for one in rows),
        },
    }
    if len(rows) > 1:
        lines = {
            "memory": line_of(rows, "memory", "worker_memory"),
            "connections": line_of(rows, "connections"),
            "files": line_of(rows, "files", "worker_files"),
        }
        found["drawn out"] = {
            f"{name}_{sites}": slope * sites + (begin if sites > 1 else 0)
            for name, (slope, begin) in lines.items()
            for sites in (1, FAR, FARTHER // RELAYS, FARTHER)
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sites", type=int, action="append", help="numbers of sites")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--spare", type=float, default=6.0, help="GB of memory that stay free")
    parser.add_argument("--keep", action="store_true", help="for the documentation")
    parser.add_argument("--ours", action="store_true", help="also the part that is epifed's")
    parser.add_argument("--weeks", type=int, action="append", help="forked sites in a week")
    given = parser.parse_args()
    command = " ".join(["python", *sys.argv])
    weeks: list[dict[str, Any]] = []
    if given.weeks:  # whatever happens to memory happens to these processes, not to others'
        Path("/proc/self/oom_score_adj").write_text("1000")
    for sites in given.weeks or []:
        weeks.append(measure_week(sites))
        print(json.dumps(weeks[-1]), flush=True)
        if given.keep:
            print(keep("load", command, kept_weeks(weeks)))
    if given.ours:
        found = {f"seconds_{sites}": ours(sites) for sites in (FAR, FARTHER)}
        print(json.dumps(found), flush=True)
        if given.keep:
            keep("load", command, {"ours": found})
    rows: list[dict[str, Any]] = []
    for sites in given.sites or []:
        if free_gb() - SITE_GB * sites < given.spare:
            print(f"{sites} sites: too little memory is free", file=sys.stderr)
            continue
        rows.append(measure(sites, given.rounds))
        print(json.dumps(rows[-1]), flush=True)
        if given.keep:
            print(keep("load", command, results(rows, given.rounds)))


if __name__ == "__main__":
    main()
