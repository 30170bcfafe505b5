"""The same federated round with epifed, with Apple's pfl-research, and with a plain loop."""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from _clock import Times, Way, as_json, clocked, interleaved, machine, print_target, print_times
from _rounds import (
    OWN,
    SETTINGS,
    TITLE,
    data_loader,
    make_windows,
    plain_round,
    require_same,
    stacked_round,
    start,
)
from epifed.learners.base import Windows
from epifed.learners.fedavg import FedAvg, FedAvgState

TARGET = 15.0
REQUIREMENTS = ("pfl==0.6.0", "torch==2.13.0")
PFL = "pfl-research 0.6.0"
EPIFED = "epifed"
HERE = Path(__file__).parent
ENVIRONMENT = HERE.parent / ".venv-peers"


def peers_python(console: Console) -> Path:
    """An interpreter that has pfl; its environment is made at the first call."""
    python = ENVIRONMENT / "bin" / "python"
    stamp = ENVIRONMENT / ".installed"
    wanted = "\n".join(REQUIREMENTS)
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    with console.status(f"installing {', '.join(REQUIREMENTS)} into {ENVIRONMENT.name}"):
        for command in (
            [sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT)],
            [str(python), "-m", "pip", "install", "--quiet", *REQUIREMENTS],
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"{ENVIRONMENT.name} cannot be made:\n{done.stderr}")
    stamp.write_text(wanted)
    return python


class Peer:
    """pfl in a process of its own, which computes a round when asked and else sleeps."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.state = np.array(self._read()["state"], dtype=np.float32)

    def __call__(self) -> Times:
        assert self._process.stdin
        print(file=self._process.stdin, flush=True)
        report = self._read()
        return Times(report["wall"], report["cpu"])

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{PFL} stopped without an answer")
        report: dict[str, Any] = json.loads(line)
        return report


@contextmanager
def peer(python: Path, state: FedAvgState, windows: Windows) -> Iterator[Peer]:
    sizes = [p.shape[1] for p in FedAvg(SETTINGS).model.parameters() if p.dim() == 2]
    with tempfile.TemporaryDirectory(prefix="epifed-bench-") as directory:
        task = Path(directory) / "round.npz"
        np.savez(
            task,
            inputs=windows.inputs,
            targets=windows.targets,
            state=state.weights,
            sizes=[*sizes, 1],
            epochs=OWN.epochs,
            learning_rate=OWN.learning_rate,
            clip_norm=SETTINGS.clip_norm,
        )
        with subprocess.Popen(
            [str(python), str(HERE / "pfl_round.py"), str(task)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            yield Peer(process)


def measure(python: Path, repetitions: int) -> dict[str, Times]:
    state, windows = start(), make_windows()
    learner = FedAvg(SETTINGS)
    with peer(python, state, windows) as pfl:
        require_same(pfl.state - state.weights, stacked_round(learner, state, windows), PFL)
        ways: dict[str, Way] = {
            "plain loop, DataLoader": clocked(lambda: plain_round(state, windows, data_loader)),
            PFL: pfl,
            EPIFED: clocked(lambda: stacked_round(learner, state, windows)),
        }
        return interleaved(ways, repetitions)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=7, help="of which the median is taken")
    parser.add_argument("--json", action="store_true", help="print numbers for a machine")
    options = parser.parse_args()
    torch.set_num_threads(1)
    quiet = Console(stderr=True)
    python = peers_python(quiet)
    found = machine()
    with quiet.status(f"{options.repetitions} repetitions"):
        times = measure(python, options.repetitions)
    if options.json:
        print(json.dumps({"machine": found, "ways": as_json(times, EPIFED), "target": TARGET}))
        return
    console = Console()
    console.print(f"{found['cores']} cores, load average before: {found['load_average']}")
    print_times(console, TITLE, times, EPIFED)
    print_target(console, f"{EPIFED} against {PFL}", times[PFL].over(times[EPIFED]), TARGET)


if __name__ == "__main__":
    main()
