"""How late the simulated list is beside the real one, by weekday of the report and lag.

    python benchmarks/lateness.py --data DIR

Kept for docs/real-time.md: known / final by lag, for all days and each weekday, how many of
their cases counties send before the next morning, and how often they send none.
"""

import argparse
from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from epifed.data.readers.vintage_files import load_vintages
from epifed.data.vintages import LAGS, Floats, Vintages
from epifed.simulate import SimulationSettings, simulate
from epifed.simulate.epidemic import sent_on
from epifed.simulate.simulation import WEEKDAYS, vintages
from kept import keep, table

SEED = 21
SHOWN = (0, 1, 2, 3, 4, 7)
COUNTIES = (0.1, 0.25, 0.5, 0.75, 0.9)
STRATA = {"3 to 9": (3, 10), "10 to 29": (10, 30), "30 or more": (30, np.inf)}


def shares(late: Vintages) -> dict[str, list[float]]:
    """Known / final at the shown lags, of all days and of each weekday."""
    found = late.completeness(max(SHOWN) + 1).filter(pl.col("lag").is_in(SHOWN)).sort("lag")
    every: list[tuple[int | None, str]] = [(None, "all"), *enumerate(WEEKDAYS)]
    return {
        name: found.filter(pl.col("weekday").eq_missing(pl.lit(day)))["share"].round(3).to_list()
        for day, name in every
    }


def of_counties(late: Vintages) -> list[float]:
    """Quantiles over counties of the share that is known on the first morning."""
    first, then, _ = first_and_last(late)
    found = np.quantile(first.sum(axis=0) / np.maximum(then.sum(axis=0), 1), COUNTIES)
    return [round(float(share), 3) for share in found]


def none_yet(late: Vintages, least: float, most: float) -> list[tuple[float, int]]:
    """Of county-days with so many cases the share that shows none at first, and how many there are.

    On working days, then on the others.
    """
    first, then, working = first_and_last(late)
    rows = []
    for days in (working, ~working):
        some = (then[days] >= least) & (then[days] < most)
        rows.append((round(float((first[days][some] <= 0).mean()), 3), int(some.sum())))
    return rows


def first_and_last(late: Vintages) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Counts [days, counties] on the first morning and after four weeks; which are working days."""
    known = late.known(LAGS + 1)
    first, then = known[:-LAGS, :, 0], known[LAGS:, :, LAGS]
    looked = ~np.isnan(first[:, 0]) & ~np.isnan(then[:, 0])
    working = sent_on(late.first - timedelta(days=1), len(first)) == 1
    return first[looked], then[looked], working[looked]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    real = load_vintages(parser.parse_args().data)
    made = vintages(simulate(SimulationSettings(preset="autumn-2020", seed=SEED)))
    both = shares(real), shares(made)
    off = max(abs(x - y) for name in both[0] for x, y in zip(*(b[name] for b in both), strict=True))
    rows = [
        [name, *([x, y] for x, y in zip(*(b[name] for b in both), strict=True))] for name in both[0]
    ]
    counties = [list(pair) for pair in zip(of_counties(real), of_counties(made), strict=True)]
    none = [
        [name, *([x, y, n] for (x, n), (y, _) in zip(*pair, strict=True))]
        for name, bounds in STRATA.items()
        for pair in [(none_yet(real, *bounds), none_yet(made, *bounds))]
    ]
    keep(
        "lateness",
        "python benchmarks/lateness.py",
        {
            "weekdays": table(
                ["reported on", *(f"lag {lag}" for lag in SHOWN)],
                ["{}", *["{:.2f} / {:.2f}"] * len(SHOWN)],
                rows,
            ),
            "counties": table(
                ["", *(f"{level:.0%}" for level in COUNTIES)],
                ["{}", *["{:.2f} / {:.2f}"] * len(COUNTIES)],
                [["known on the first morning", *counties]],
            ),
            "none-yet": table(
                ["cases of the county-day", "working days", "weekends and holidays"],
                ["{}", *["{:.2f} / {:.2f} ({:,} real)"] * 2],
                none,
            ),
            "largest-difference": round(off, 3),
        },
    )


if __name__ == "__main__":
    main()
