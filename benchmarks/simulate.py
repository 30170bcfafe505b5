"""Time and peak memory of a simulated autumn (153 days) as the country grows.

Each size runs in a process of its own on one core, geometry and files included; the seconds are
processor time, so that a busy machine does not change them much.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from epifed.simulate import SimulationSettings, simulate
from epifed.simulate.write import write

SIZES = ((37, 1_000), (400, 10_786), (3_700, 100_000))


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


def main() -> None:
    one_core = os.environ | dict.fromkeys(
        ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"), "1"
    )
    print("| counties | communities | simulate s | write s | ms per community | peak MB |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: |")
    for counties, communities in SIZES:
        command = [sys.executable, __file__, str(counties), str(communities)]
        output = subprocess.run(command, env=one_core, check=True, capture_output=True, text=True)
        found = json.loads(output.stdout)
        each = (found["simulate"] + found["write"]) / communities * 1000
        print(
            f"| {counties:,} | {communities:,} | {found['simulate']:.1f} | {found['write']:.1f} "
            f"| {each:.2f} | {found['peak']:,.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]))))
    else:
        main()
