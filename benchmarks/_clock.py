"""Clocks for benchmarks: several ways to do one thing, in turn, in one run."""

import os
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Times:
    """Seconds on the wall and seconds of this process on a core; equal on an idle machine."""

    wall: float
    cpu: float

    def over(self, other: "Times") -> "Times":
        return Times(self.wall / other.wall, self.cpu / other.cpu)


Way = Callable[[], Times]


def clocked(action: Callable[[], object]) -> Way:
    def run() -> Times:
        wall, cpu = time.perf_counter(), time.process_time()
        action()
        return Times(time.perf_counter() - wall, time.process_time() - cpu)

    return run


def interleaved(ways: dict[str, Way], repetitions: int) -> dict[str, Times]:
    """The median times of each way; every repetition runs all of them, so they share the load."""
    for way in ways.values():
        way()
    measured = [{name: way() for name, way in ways.items()} for _ in range(repetitions)]
    return {name: median(times[name] for times in measured) for name in ways}


def median(times: Iterable[Times]) -> Times:
    listed = list(times)
    return Times(
        statistics.median(t.wall for t in listed), statistics.median(t.cpu for t in listed)
    )


def machine() -> dict[str, float | int | None]:
    return {"cores": os.cpu_count(), "load_average": round(os.getloadavg()[0], 1), "threads": 1}


def as_json(times: dict[str, Times], base: str) -> dict[str, dict[str, dict[str, float]]]:
    return {
        name: {"seconds": asdict(t), "times_slower": asdict(t.over(times[base]))}
        for name, t in times.items()
    }


def print_times(console: Console, title: str, times: dict[str, Times], base: str) -> None:
    table = Table("the same round")
    for column in ("seconds", "CPU seconds", f"× {base}", "× by CPU"):
        table.add_column(column, justify="right")
    for name, t in times.items():
        ratio = t.over(times[base])
        table.add_row(
            name, f"{t.wall:.3f}", f"{t.cpu:.3f}", f"{ratio.wall:.1f}", f"{ratio.cpu:.1f}"
        )
    console.print(title, table, sep="\n")


def print_target(console: Console, what: str, ratio: Times, target: float) -> None:
    """By the processor's time: other work on the machine cannot change who is faster there."""
    verdict = "met" if ratio.cpu >= target else "[red]missed[/red]"
    console.print(
        f"{what}: {ratio.wall:.1f}×, by CPU {ratio.cpu:.1f}×; target ≥ {target:g}×: {verdict}\n"
    )
