"""How fast, and in how much memory, the RKI line list is read: a generated file of its size."""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

ROWS_PER_SECOND = 1_000_000
MEMORY_GB = 2.0
CHUNK = 500_000
FIRST_DAY = np.datetime64("2020-01-02")
DAYS = 1_200
AGES = ("A00-A04", "A05-A14", "A15-A34", "A35-A59", "A60-A79", "A80+", "unbekannt")
SEXES = ("M", "W", "unbekannt")


def county_ids() -> np.ndarray:
    """411 ids as the RKI writes them: 399 counties and Berlin's 12 districts."""
    berlin = 11_000 + np.arange(1, 13)
    others = np.concatenate([state * 1_000 + np.arange(1, 29) for state in range(1, 17)])
    return np.concatenate([berlin, others[others // 1_000 != 11][:399]])


def chunk(rows: int, rng: np.random.Generator) -> pl.DataFrame:
    """Some rows in the columns and codes of the official file."""
    reported = rng.integers(DAYS, size=rows)
    onset_known = rng.random(rows) < 0.4
    onset = np.maximum(reported - np.where(onset_known, rng.integers(15, size=rows), 0), 0)
    new = rng.choice([0, 1, -1], size=rows, p=[0.998, 0.001, 0.001])
    cases = rng.geometric(0.6, size=rows) * np.where(new < 0, -1, 1)
    return pl.DataFrame(
        {
            "IdLandkreis": rng.choice(county_ids(), size=rows),
            "Altersgruppe": rng.choice(AGES, size=rows),
            "Geschlecht": rng.choice(SEXES, size=rows, p=[0.48, 0.51, 0.01]),
            "Meldedatum": FIRST_DAY + reported,
            "Refdatum": FIRST_DAY + onset,
            "IstErkrankungsbeginn": onset_known.astype(np.int8),
            "NeuerFall": new,
            "NeuerTodesfall": rng.choice([-9, 0], size=rows, p=[0.99, 0.01]),
            "NeuGenesen": rng.choice([-9, 0], size=rows, p=[0.01, 0.99]),
            "AnzahlFall": cases,
            "AnzahlTodesfall": np.zeros(rows, dtype=np.int8),
            "AnzahlGenesen": np.abs(cases),
        }
    ).sort("IdLandkreis", "Meldedatum")


def generate(path: Path, rows: int) -> int:
    """Write the file; returns the cases that count."""
    rng = np.random.default_rng(20200102)
    counted = 0
    with path.open("wb") as file:
        for start in range(0, rows, CHUNK):
            frame = chunk(min(CHUNK, rows - start), rng)
            counted += int(frame.filter(pl.col("NeuerFall") >= 0)["AnzahlFall"].sum())
            frame.write_csv(file, include_header=start == 0)
    return counted


def measure(path: Path) -> None:
    """Read the file once and print what it took, as JSON; in a process of its own."""
    from epifed.data.readers.formats import read_rki  # noqa: PLC0415

    start, cpu = time.perf_counter(), time.process_time()
    panel = read_rki(path)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    print(
        json.dumps(
            {
                "seconds": seconds,
                "cpu_seconds": cpu,
                "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2,
                "cases": float(panel.counts.sum()),
                "regions": len(panel.regions),
            }
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=8_000_000, help="rows of the generated file")
    parser.add_argument("--repeat", type=int, default=3, help="times to read it")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure)
        return
    with tempfile.TemporaryDirectory(prefix="epifed-bench-") as directory:
        path = Path(directory) / "Aktuell_Deutschland_SarsCov2_Infektionen.csv"
        counted = generate(path, options.rows)
        command = [sys.executable, __file__, "--measure", str(path)]
        runs = [
            json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
            for _ in range(options.repeat)
        ]
        size = path.stat().st_size / 1e6
    if any(run["cases"] != counted for run in runs):
        sys.exit(f"read {runs[0]['cases']:,.0f} cases; the file holds {counted:,}")
    speed = options.rows / min(run["seconds"] for run in runs)
    peak = max(run["peak_gb"] for run in runs)
    counties = runs[0]["regions"]
    print(f"RKI line list, {options.rows:,} rows, {size:,.0f} MB, {counties} counties;")
    print(f"best of {options.repeat} runs, each in a process of its own")
    print(f"{'':<18}{'target':>14}{'measured':>14}")
    for name, target, measured, met in (
        ("rows per second", f"≥ {ROWS_PER_SECOND:,}", f"{speed:,.0f}", speed >= ROWS_PER_SECOND),
        ("peak memory, GB", f"< {MEMORY_GB:.1f}", f"{peak:.2f}", peak < MEMORY_GB),
    ):
        print(f"{name:<18}{target:>14}{measured:>14}  {'met' if met else 'missed'}")
    cpu = options.rows / min(run["cpu_seconds"] for run in runs)
    print(f"{'rows per CPU s':<18}{'':>14}{cpu:>14,.0f}  (what a busy machine does not change)")


if __name__ == "__main__":
    main()
