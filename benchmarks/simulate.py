"""Time and peak memory of a simulated autumn (153 days) as the country grows; how real it is.

    python benchmarks/simulate.py [--keep]
    python benchmarks/simulate.py --realism DATA [--keep]

Each size runs in a process of its own on one core, geometry and files included; the seconds are
processor time, so that a busy machine does not change them much. With `--realism` the traits of
simulated counties beside those of the real ones in DATA, over seeds that nothing was tuned on.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import numpy as np

from epifed.cli.data import PHASES
from epifed.data.readers import read_prepared
from epifed.simulate import SimulationSettings, simulate
from epifed.simulate.simulation import realism_table, write
from kept import keep, markdown, table

SIZES = ((37, 1_000), (400, 10_786), (3_700, 100_000))
PRESETS: dict[str, Literal["autumn-2020", "omicron-2022"]] = {
    "autumn 2020": "autumn-2020",
    "spring 2022": "omicron-2022",
}
SEEDS = range(21, 26)
PLACES = range(3)
PAPER = {
    "county median": 147_500,
    "county mean": 200_500,
    "largest county": 3_690_000,
    "community median": 1_832,
    "community mean": 7_800,
}


def measure(counties: int, communities: int) -> dict[str, float]:
    began = time.process_time()
    simulation = simulate(SimulationSettings(counties=counties, communities=communities, seed=1))
    simulated = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        write(simulation, Path(folder) / "country")
    written = time.process_time()
    return {
        "simulate": simulated - began,
        "write": written - simulated,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def speed() -> dict[str, Any]:
    """A row for each size."""
    one_core = os.environ | dict.fromkeys(
        ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"), "1"
    )
    rows: list[list[Any]] = []
    for counties, communities in SIZES:
        command = [sys.executable, __file__, "--size", str(counties), str(communities)]
        output = subprocess.run(command, env=one_core, check=True, capture_output=True, text=True)
        found = json.loads(output.stdout)
        each = (found["simulate"] + found["write"]) / communities * 1000
        sizes = (f"{counties:,}", f"{communities:,}")
        rows.append([*sizes, found["simulate"], found["write"], each, found["peak"]])
    heads = ["counties", "communities", "simulate s", "write s", "ms per community", "peak MB"]
    return {"speed": table(heads, ["{}", "{}", "{:.1f}", "{:.1f}", "{:.2f}", "{:,.0f}"], rows)}


def realism(data: Path) -> dict[str, Any]:
    """The traits of both phases, mean and range over the seeds."""
    real = read_prepared(data)
    found: dict[str, Any] = {}
    for name, period in PHASES.items():
        traits: dict[str, list[float]] = {}
        for seed in SEEDS:
            made = simulate(SimulationSettings(preset=PRESETS[name], seed=seed))
            compared = realism_table(
                real, made.county_panel, period,
                simulated_positions=made.country.county_positions,
            )  # fmt: skip
            for trait, truth, simulated, _ in compared.iter_rows():
                traits.setdefault(trait, [truth]).append(simulated)
        found[name] = table(
            ["trait", "real", "simulated", "range", "off"],
            ["{}"] * 4 + ["{:+.0f} %"],
            [_trait(trait, truth, seeds) for trait, (truth, *seeds) in traits.items()],
        )
    return found


def _trait(trait: str, real: float, seeds: list[float]) -> list[Any]:
    mean, off = float(np.mean(seeds)), 100 * (float(np.mean(seeds)) / real - 1)
    digits = 0 if abs(real) >= 1000 else 1 if abs(real) >= 10 else 2 if abs(real) >= 1 else 3
    low, high = (f"{one:,.{digits}f}" for one in (min(seeds), max(seeds)))
    off *= 1 if real > 0 else -1
    return [trait, f"{real:,.{digits}f}", f"{mean:,.{digits}f}", f"{low} … {high}", off]


def places() -> dict[str, Any]:
    """The sizes of counties and communities beside the paper's."""
    found: dict[str, list[float]] = {name: [] for name in PAPER}
    for seed in PLACES:
        country = simulate(SimulationSettings(seed=seed)).country
        counties, communities = country.county_population, country.community_population
        for what, people in (("county", counties), ("community", communities)):
            found[f"{what} median"].append(float(np.median(people)))
            found[f"{what} mean"].append(float(np.mean(people)))
        found["largest county"].append(float(np.max(counties)))
    rows = [[name, paper, _range(found[name])] for name, paper in PAPER.items()]
    heads = ["", "paper", f"simulated, seeds 0–{len(PLACES) - 1}"]
    return {"places": table(heads, ["{}", "{:,.0f}", "{}"], rows)}


def _range(values: Iterable[float]) -> str:
    low, high = min(values), max(values)
    return " … ".join(dict.fromkeys((f"{low:,.0f}", f"{high:,.0f}")))


def main() -> None:
    """Print, and keep, the tables of one of the two."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--realism", type=Path, metavar="DATA")
    parser.add_argument("--size", type=int, nargs=2, help="measure this size in this process")
    parser.add_argument("--keep", action="store_true")
    given = parser.parse_args()
    if given.size:
        print(json.dumps(measure(*given.size)))
        return
    found = realism(given.realism) | places() if given.realism else speed()
    print(*map(markdown, found.values()), sep="\n")
    if given.keep:
        options = "--realism ../shared/data --keep" if given.realism else "--keep"
        print(keep("simulation", f"python benchmarks/simulate.py {options}", found))


if __name__ == "__main__":
    main()
