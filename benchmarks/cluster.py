"""What a Dask scheduler costs beside the trainings themselves.

    python benchmarks/cluster.py [--runs 12] [--keep]

The same grid on this machine with one process, then on a scheduler with one and with two workers,
all over TCP. Counted is processor time, which other work on the machine hardly changes: of the
command, of the scheduler, of the workers; and the seconds on the wall, which it does.
"""

import argparse
import math
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

import epifed
from epifed.evaluation.experiment import Grid, run_grid
from epifed.simulate import SimulationSettings, simulate
from kept import keep, table

PERIOD = (date(2020, 11, 1), date(2020, 12, 1))


def processor_seconds(pid: int) -> float:
    """Of a process and its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def started(*words: str) -> "subprocess.Popen[bytes]":
    """A part of Dask as a process."""
    return subprocess.Popen(
        [sys.executable, "-m", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def own_seconds() -> float:
    """Of this process and of its children that have ended."""
    used = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def on_cluster(panel: epifed.CasePanel, grid: Grid, workers: int) -> list[float]:
    """CPU seconds of command, scheduler and workers, then seconds on the wall."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    address = f"tcp://127.0.0.1:{port}"
    listen = ("--host", "127.0.0.1", "--port", port, "--no-dashboard")
    scheduler = started("distributed.cli.dask_scheduler", *listen)
    alone = ("--nthreads", "1", "--no-nanny", "--no-dashboard")
    crew = [started("distributed.cli.dask_worker", address, *alone) for _ in range(workers)]
    try:
        time.sleep(15)
        parties = [scheduler.pid, *(one.pid for one in crew)]
        before = [processor_seconds(pid) for pid in parties]
        began, mine = time.monotonic(), own_seconds()
        with tempfile.TemporaryDirectory() as out:
            run_grid(panel, grid, out, scheduler=address)
        wall, spent = time.monotonic() - began, own_seconds() - mine
        used = [processor_seconds(pid) - b for pid, b in zip(parties, before, strict=True)]
        return [spent, used[0], sum(used[1:]), wall]
    finally:
        for one in (scheduler, *crew):
            one.kill()
            one.wait()


def main() -> None:
    """Print, and keep, the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--keep", action="store_true")
    given = parser.parse_args()
    panel = simulate(SimulationSettings(counties=60, communities=120, days=100)).county_panel
    settings = epifed.Settings.paper(clients_per_round=15, rounds=30, epochs=30, epsilon=2.0)
    grid = Grid(
        settings=settings, splits=("temporal",), periods={"autumn": PERIOD},
        epsilons=(2.0, math.inf), runs=given.runs, baselines=(),
    )  # fmt: skip
    load = os.getloadavg()[0]
    began, mine = time.monotonic(), own_seconds()
    with tempfile.TemporaryDirectory() as out:
        run_grid(panel, grid, out, workers=1)
    here = [own_seconds() - mine, None, None, time.monotonic() - began]
    rows = [["one process here", *here]]
    for workers in (1, 2):
        rows.append(
            [f"Dask, {workers} worker{'s'[: workers > 1]}", *on_cluster(panel, grid, workers)]
        )
    for row in rows:
        print(*row, flush=True)
    if given.keep:
        heads = ["", "CPU s, command", "scheduler", "workers", "seconds on the wall"]
        found = {
            "grid": table(heads, ["{}", *["{:.1f}"] * 4], rows),
            "trainings": 2 * given.runs,
            "load": round(load, 1),
        }
        print(keep("cluster", f"python benchmarks/cluster.py --runs {given.runs} --keep", found))


if __name__ == "__main__":
    main()
