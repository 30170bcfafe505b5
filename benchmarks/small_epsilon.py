"""The comparison of docs/small-epsilon.md: learners, models and who adds the noise, by budget.

    python benchmarks/small_epsilon.py DATA [RUNS] [METHOD]

Temporal split, the paper's centered windows; R² and MAPE as means over the runs. With the name of a
method its rows alone are computed, and replace those that are kept.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from epifed.data.readers import read_prepared
from epifed.evaluation import score
from epifed.settings import PERIODS, Settings, seed_sequence
from epifed.training.loop import make_clients, train
from kept import RESULTS, keep, table

EPSILONS = (0.1, 0.5, 1.0, 2.0)
WINDOWS = {"smoothing": "centered", "history": 11, "min_windows": 11}
SLOW_RUNS = 1
NOISE = {"aggregators": "two aggregators'", "clients": "clients'", "local": "local"}
PERIOD = {"2020-11": "Nov 2020", "2022-03": "Mar 2022"}


def methods() -> dict[str, Settings]:
    """Every learner as it is meant to be used, then with other noise."""
    learners = {
        "fedavg, mlp (the paper)": Settings.paper(),
        "fedavg, scale-free mlp": _suited("fedavg", model="scale-free mlp"),
        "fedavg, scale-free linear": _suited("fedavg", model="scale-free linear"),
        "one-shot": _suited("one-shot"),
    }
    others = {
        f"{name}, {NOISE[noise]} noise": settings.but(noise=noise)
        for noise in NOISE
        for name, settings in learners.items()
        if name != "fedavg, scale-free mlp"
    }
    return learners | others


def _suited(learner: str, **changes: str) -> Settings:
    return Settings.for_learner(learner, 400, **WINDOWS, **changes)


def main(data: Path, runs: int, only: str = "") -> None:
    """Keep a table for each period."""
    torch.set_num_threads(1)
    panel = read_prepared(data)
    tables = {}
    for period, days in PERIODS.items():
        rows: list[list[Any]] = []
        for name, settings in methods().items():
            if only not in ("", name):
                continue
            clients = make_clients(panel, settings, days)
            cells: list[Any] = []
            for epsilon in EPSILONS:
                own = settings.but(epsilon=epsilon)
                scored = [
                    score(
                        train(clients.view, own, seeds=seed_sequence(run, name, epsilon)), clients
                    )
                    for run in range(SLOW_RUNS if settings.rounds > 10 else runs)
                ]
                r2, mape = np.mean([[run["r2"][0], run["mape"][0]] for run in scored], axis=0)
                cells.append([float(f"{r2:.6g}"), float(f"{mape:.6g}")])
            rows.append([name, *cells])
            print(period, *rows[-1], flush=True)
        if only:
            tables[f"methods {period}"] = replaced(period, rows)
            continue
        heads = [PERIOD[period], *(f"ε = {epsilon:g}" for epsilon in EPSILONS)]
        tables[f"methods {period}"] = table(
            heads, ["{}", *["{:short} / {:short} %"] * len(EPSILONS)], rows
        )
    print(keep("small-epsilon", f"python benchmarks/small_epsilon.py {data} {runs}", tables))


def replaced(period: str, rows: list[list[Any]]) -> dict[str, Any]:
    """The kept table with these rows instead of those of the same name."""
    kept: dict[str, Any] = json.loads((RESULTS / "small-epsilon.json").read_text())
    old = kept[f"methods {period}"]
    fresh = [[row[0], *(f"{r2:.4f} / {mape:.2f} %" for r2, mape in row[1:])] for row in rows]
    names = {row[0] for row in fresh}
    return {**old, "rows": [row for row in old["rows"] if row[0] not in names] + fresh}


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 5, *sys.argv[3:])
