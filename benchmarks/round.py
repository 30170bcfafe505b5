"""One federated round: the stack of epifed against a loop over clients in plain PyTorch."""

import argparse
import json
import os
import time
from collections.abc import Callable

import joblib
import torch
from rich.console import Console
from rich.table import Table

from _clock import as_json, clocked, interleaved, machine, print_target, print_times
from _rounds import (
    SETTINGS,
    TITLE,
    data_loader,
    make_windows,
    plain_round,
    repeat,
    require_same,
    stacked_round,
    start,
    whole_batch,
    wrapped_learner,
)
from epifed.learners.base import Vector
from epifed.learners.fedavg import FedAvg

TARGET = 20.0
EPIFED = "epifed"
LOOP = "plain loop, DataLoader"
MATRIX_PRODUCTS = "matrix products"
ADAM = "Adam"
REST = "rest"
PARTS = {
    "aten::bmm": MATRIX_PRODUCTS,
    "aten::baddbmm": MATRIX_PRODUCTS,
    "aten::_fused_adam_": ADAM,
    "Optimizer.step#Adam.step": ADAM,
}


def ways() -> dict[str, Callable[[], Vector]]:
    state, windows = start(), make_windows()
    learner, wrapped = FedAvg(SETTINGS), wrapped_learner()
    return {
        LOOP: lambda: plain_round(state, windows, data_loader),
        "plain loop, no DataLoader": lambda: plain_round(state, windows, whole_batch),
        "epifed, any module (autograd)": lambda: stacked_round(wrapped, state, windows),
        EPIFED: lambda: stacked_round(learner, state, windows),
    }


def shares(action: Callable[[], object], rounds: int) -> dict[str, float]:
    """Where the time of some rounds goes, by the self time of PyTorch's operations."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    with (
        torch.autograd.profiler.profile(use_cpu=True) as profile,
        torch.autograd.profiler.record_function("round"),
    ):
        for _ in range(rounds):
            action()
    spent = dict.fromkeys((MATRIX_PRODUCTS, ADAM, REST), 0.0)
    for event in profile.key_averages():
        spent[PARTS.get(event.key, REST)] += event.self_cpu_time_total
    total = sum(spent.values())
    return {part: time / total for part, time in spent.items()}


def rounds_per_second(workers: int, rounds: int) -> float:
    """Of all workers together, each a process of its own."""
    with joblib.Parallel(n_jobs=workers) as pool:
        pool(joblib.delayed(repeat)(1) for _ in range(workers))
        began = time.perf_counter()
        pool(joblib.delayed(repeat)(rounds) for _ in range(workers))
        return workers * rounds / (time.perf_counter() - began)


def print_shares(console: Console, parts: dict[str, float]) -> None:
    table = Table(*parts)
    table.add_row(*(f"{share:.0%}" for share in parts.values()))
    console.print(f"where a round of {EPIFED} spends its time", table, sep="\n")


def print_speeds(console: Console, speeds: dict[int, float]) -> None:
    table = Table(*(f"{workers} worker{'s'[: workers > 1]}" for workers in speeds))
    table.add_row(*(f"{speed:.1f} ({speed / speeds[1]:.2f}×)" for speed in speeds.values()))
    console.print(f"rounds per second of {EPIFED}, one thread a worker", table, sep="\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=7, help="of which the median is taken")
    parser.add_argument("--json", action="store_true", help="print numbers for a machine")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = machine()
    rounds = ways()
    reference = rounds[EPIFED]()
    for name, compute in rounds.items():
        require_same(compute(), reference, name)
    with Console(stderr=True).status(f"{options.repetitions} repetitions of {len(rounds)} ways"):
        times = interleaved({n: clocked(f) for n, f in rounds.items()}, options.repetitions)
        parts = shares(rounds[EPIFED], options.repetitions)
        speeds = {
            workers: rounds_per_second(workers, 5 * options.repetitions) for workers in (1, 2)
        }
    if options.json:
        report = {"machine": found, "ways": as_json(times, EPIFED), "target": TARGET}
        print(json.dumps(report | {"shares": parts, "rounds_per_second": speeds}))
        return
    console = Console()
    console.print(f"{found['cores']} cores, load average before: {found['load_average']}")
    print_times(console, TITLE, times, EPIFED)
    print_target(console, f"{EPIFED} against {LOOP}", times[LOOP].over(times[EPIFED]), TARGET)
    print_shares(console, parts)
    print_speeds(console, speeds)


if __name__ == "__main__":
    main()
