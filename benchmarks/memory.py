"""The memory of a training must not grow with its rounds, nor that of a grid with its runs."""

import argparse
import json
import resource
import subprocess
import sys
from datetime import date

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from epifed.data.panel import CasePanel
from epifed.settings import Settings, seed_sequence
from epifed.training.loop import Clients, make_clients, train

ROUNDS = (20, 100, 300)
RUNS = (1, 5, 15)
CLIENTS = 50
SETTINGS = Settings.paper(clients_per_round=CLIENTS, epochs=5, epsilon=2.0)
"""All clients come to every round (q = 1), else the largest cohort so far would set the peak."""
SCALE = 1024**2 if sys.platform == "darwin" else 1024
"""From the unit of `ru_maxrss` to megabytes."""


def some_clients() -> Clients:
    """Regions of one period."""
    counts = np.random.default_rng(0).poisson(50.0, size=(CLIENTS, 31))
    regions = tuple(str(i) for i in range(CLIENTS))
    panel = CasePanel(counts=counts.astype(np.float64), regions=regions, start=date(2020, 11, 1))
    return make_clients(panel, SETTINGS)


def peak() -> float:
    """The most memory this process ever held, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / SCALE


def peaks_by_round(rounds: int) -> dict[int, float]:
    """The peak so far at the marks of one training."""
    peaks: dict[int, float] = {}

    def watch(i: int, state: object) -> None:
        del state
        if i in ROUNDS:
            peaks[i] = peak()

    train(some_clients().view, SETTINGS.but(rounds=rounds), watch=watch)
    return peaks


def peaks_by_run(runs: int) -> dict[int, float]:
    """The peak so far after some of many trainings in one process."""
    clients, settings = some_clients(), SETTINGS.but(rounds=ROUNDS[0])
    peaks: dict[int, float] = {}
    for run in range(1, runs + 1):
        train(clients.view, settings, seeds=seed_sequence(0, run))
        if run in RUNS:
            peaks[run] = peak()
    return peaks


def in_fresh_process(what: str, number: int) -> dict[int, float]:
    command = [sys.executable, __file__, what, str(number)]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return {int(mark): value for mark, value in json.loads(answer).items()}


def measure() -> dict[str, dict[int, float]]:
    fresh = {rounds: in_fresh_process("rounds", rounds)[rounds] for rounds in ROUNDS}
    return {
        "rounds, a process each": fresh,
        "rounds, one process": in_fresh_process("rounds", ROUNDS[-1]),
        f"runs of {ROUNDS[0]} rounds, one process": in_fresh_process("runs", RUNS[-1]),
    }


def print_peaks(console: Console, peaks: dict[str, dict[int, float]]) -> None:
    table = Table("peak memory, MB, after")
    for column in ("few", "more", "many", "growth"):
        table.add_column(column, justify="right")
    for name, found in peaks.items():
        values = list(found.values())
        cells = [f"{mark}: {value:.0f}" for mark, value in found.items()]
        table.add_row(name, *cells, f"{values[-1] / values[0] - 1:+.1%}")
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print numbers for a machine")
    parser.add_argument("what", nargs="?", choices=("rounds", "runs"), help=argparse.SUPPRESS)
    parser.add_argument("number", nargs="?", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.what:
        by = peaks_by_round if options.what == "rounds" else peaks_by_run
        print(json.dumps(by(options.number)))
        return
    peaks = measure()
    if options.json:
        print(json.dumps(peaks))
    else:
        print_peaks(Console(), peaks)


if __name__ == "__main__":
    main()
