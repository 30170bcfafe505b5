"""A case list that is late in a known way, for the tests of vintages and nowcasts."""

from datetime import date, timedelta

import numpy as np
import polars as pl

from epifed.data.panel import CasePanel
from epifed.data.vintages import Vintages

START = date(2020, 6, 1)
SHARES = (0.5, 0.35, 0.15)
"""Of a day's cases, those that are known on the first, second and third morning after it."""


def late_list(
    regions: int = 6,
    days: int = 110,
    level: float = 40.0,
    growth: float = 0.0,
    seed: int = 0,
    *,
    weekly: bool = True,
    onsets: bool = False,
) -> tuple[CasePanel, Vintages]:
    """The final panel, and the list as known on each of its mornings but the first 50.

    With `onsets`, those of the second morning have none, the others one about 4 days before.
    """
    rng = np.random.default_rng(seed)
    weekday = np.array([1.0, 1.3, 1.3, 1.2, 1.1, 0.7, 0.4])[np.arange(days) % 7]
    mean = level * (weekday if weekly else 1.0) * np.exp(growth / 7 * np.arange(days))
    counts = rng.poisson(mean, size=(regions, days))
    names = tuple(f"{i:05d}" for i in range(regions))
    first = START + timedelta(days=50)
    rows: list[tuple[date, str, date, date | None, str, int]] = []
    for region in range(regions):
        for day in range(days):
            reported = START + timedelta(days=day)
            parts = rng.multinomial(counts[region, day], SHARES)
            for lag, cases in enumerate(parts):
                as_of = max(reported + timedelta(days=lag + 1), first)
                if lag == 1 or not onsets:
                    rows.append((as_of, names[region], reported, None, "A", int(cases)))
                    continue
                for delay, number in enumerate(np.bincount(rng.poisson(4.0, size=cases))):
                    onset = reported - timedelta(days=delay)
                    rows.append((as_of, names[region], reported, onset, "A", int(number)))
    table = pl.DataFrame(
        rows,
        schema={
            "as_of": pl.Date,
            "region": pl.String,
            "reported": pl.Date,
            "onset": pl.Date,
            "age_group": pl.String,
            "cases": pl.Int64,
        },
        orient="row",
    )
    last = START + timedelta(days=days)
    panel = CasePanel(counts.astype(np.float64), names, START, source="late")
    return panel, Vintages.from_changes(table.filter(pl.col("as_of") <= last))
