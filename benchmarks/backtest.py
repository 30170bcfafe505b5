"""How long a backtest takes, and whether it grows linearly with regions and origins.

    python benchmarks/backtest.py

Invented cases of 911 days: 400 regions and 95 origins, as many German counties and the weeks of
docs/forecasting.md; then 95 origins of 10,786 regions, as many communities. Beside them half the
regions and half the origins: linear is twice the time, and what does not grow is left.
"""

import argparse
import json
import tempfile
from datetime import date
from pathlib import Path

import numpy as np

from _clock import Times, clocked, machine
from epifed.data.calendar import GERMAN_STATES
from epifed.data.panel import CasePanel
from epifed.evaluation.backtest import origins_between, run_backtest
from epifed.learners.base import settings_for

DAYS, FIRST = 911, date(2020, 9, 1)
COUNTIES, COMMUNITIES, ORIGINS = 400, 10_786, 95
SECONDS = {COUNTIES: 5.0, COMMUNITIES: 90.0}


def invented(regions: int) -> CasePanel:
    """Waves and weeks of cases, at the size of counties or, if there are many, of communities."""
    rng = np.random.default_rng(0)
    people = rng.lognormal(12 if regions <= COUNTIES else 8, 0.8, size=(regions, 1))
    days = np.arange(DAYS)
    wave = np.exp(1.5 * np.sin(days / 40)) * (1 + 0.3 * np.cos(2 * np.pi * days / 7))
    counts = rng.poisson(people * 2e-4 * wave).astype(np.float64)
    names = tuple(f"{i:05d}" for i in range(regions))
    states = [f"DE-{state}" for state in GERMAN_STATES.values()]
    return CasePanel(
        counts,
        names,
        date(2020, 1, 2),
        population=people[:, 0].astype(np.int64) + 100,
        calendars=tuple(states[i % len(states)] for i in range(regions)),
    )


def timed(regions: int, origins: int, workers: int) -> Times:
    """One backtest, from the panel to the scores."""
    panel = invented(regions)
    settings = settings_for(panel, {"learner": "trend", "epsilon": 1.0})
    days = origins_between(FIRST, panel.end, 7, panel, 7)[-origins:]

    def run(some: list[date]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            run_backtest(panel, settings, some, Path(folder), workers=workers)

    run(days[-1:])  # calibrates the noise, and imports
    return clocked(lambda: run(days))()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--counties", action="store_true", help="leave the communities out")
    options = parser.parse_args()
    found = []
    for regions, target in SECONDS.items():
        if options.counties and regions == COMMUNITIES:
            continue
        whole = timed(regions, ORIGINS, options.workers)
        fewer = {
            "regions": timed(regions // 2, ORIGINS, options.workers),
            "origins": timed(regions, ORIGINS // 2, options.workers),
        }
        found.append(
            {
                "regions": regions,
                "origins": ORIGINS,
                "seconds": round(whole.wall, 1),
                "cpu_seconds": round(whole.cpu, 1),
                "target_seconds": target,
            }
            | {f"times_half_the_{name}": round(whole.cpu / t.cpu, 2) for name, t in fewer.items()}
        )
    print(json.dumps(machine() | {"workers": options.workers, "backtests": found}, indent=2))


if __name__ == "__main__":
    main()
