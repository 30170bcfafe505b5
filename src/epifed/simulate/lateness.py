"""How late reports reach the list: on which morning a simulated case is known, and its onset.

Each authority has its habits, whatever its size: on how many days it sends nothing before the next
morning, and how much of the other days' cases. At weekends and on holidays less is sent.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, timedelta

import numpy as np
import polars as pl
from numpy.typing import NDArray

from epifed.panel import CasePanel
from epifed.simulate.reporting import sent_on
from epifed.simulate.simulation import Simulation
from epifed.vintages import Vintages

Counts = NDArray[np.int64]

MORNINGS = 70
"""Mornings that are kept, the last ones; the first of them holds all that was known before."""
LATER = (0.81, 0.68, 0.58, 0.48, 0.27, 0.21)
"""Of the cases that are still missing, the share that is known on each further morning, from the
second on, where a working day lies before it; then as on the last."""
LONGEST_LAG = 27
"""After so many further mornings nothing comes any more."""
KNOWN_ONSET = 0.48
"""Share of cases whose onset the list knows."""
DAY_OF_TEST = 0.36
"""Chance of each day to end each of the two waits between onset and report."""
LONGEST_DELAY = 20
_KEY = 7_001


def vintages(simulation: Simulation) -> Vintages:
    """The list of the counties as known on each of the last mornings."""
    rng = np.random.default_rng(np.random.SeedSequence(simulation.settings.seed, spawn_key=(_KEY,)))
    days = len(simulation.cases)
    begin = max(days - MORNINGS + 1, 1)
    frames = [
        _rows(simulation, part, lag, delay, begin)
        for lag, known in enumerate(_by_lag(simulation, rng))
        for delay, part in _by_delay(known, rng)
    ]
    return Vintages.from_changes(
        pl.concat(frames),
        source=simulation.attribution,
        regions=simulation.country.county_ids,
        snapshots=[simulation.start + timedelta(days=day) for day in range(begin, days + 1)],
        attribution=(simulation.attribution,),
    )


class Mornings:
    """The list of the counties as known on any morning, onsets left out."""

    def __init__(self, simulation: Simulation) -> None:
        root = np.random.SeedSequence(simulation.settings.seed, spawn_key=(_KEY, 1))
        self.final = simulation.county_panel
        """In the end."""
        self._come = np.stack([*_by_lag(simulation, np.random.default_rng(root))])

    def on(self, morning: date) -> CasePanel:
        """What was known on the morning of a day, of the days before it."""
        days = (morning - self.final.start).days
        known = np.zeros((days, self._come.shape[2]))
        for lag, come in enumerate(self._come[:days]):
            known[: days - lag] += come[: days - lag]
        panel = self.final.between(self.final.start, morning - timedelta(days=1))
        return replace(panel, counts=known.T)

    def history(self, last: date, mornings: int) -> Vintages:
        """What was known on so many mornings, up to the last one."""
        start, days = self.final.start, (last - self.final.start).days
        begin = max(days - mornings + 1, 1)
        frames = [
            _changes(start, self.final.regions, come[:days], lag, begin)
            for lag, come in enumerate(self._come)
        ]
        return Vintages.from_changes(
            pl.concat(frames),
            source="simulated",
            regions=self.final.regions,
            snapshots=[start + timedelta(days=day) for day in range(begin, days + 1)],
        )


def _by_lag(simulation: Simulation, rng: np.random.Generator) -> Iterator[Counts]:
    """The cases [days, counties] that become known on each morning after their day.

    What the first report has beyond the final count is taken back on the second morning.
    """
    cases, first = (
        simulation.by_county(counts).astype(np.int64)
        for counts in (simulation.cases, simulation.first_report)
    )
    sending = sent_on(simulation.start, len(cases) + LONGEST_LAG)[:, None]
    yield first
    left = np.maximum(cases - first, 0)
    for lag in range(1, LONGEST_LAG):
        chance = LATER[min(lag, len(LATER)) - 1] * sending[lag : lag + len(cases)]
        come = rng.binomial(left, chance)
        left = left - come
        yield come - np.maximum(first - cases, 0) if lag == 1 else come
    yield left


def _by_delay(known: Counts, rng: np.random.Generator) -> Iterator[tuple[int | None, Counts]]:
    """The same by days from onset to report; none for those whose onset nobody knows."""
    some = rng.binomial(np.maximum(known, 0), KNOWN_ONSET)
    yield None, known - some
    for delay in range(LONGEST_DELAY):
        # The delay is two waits of at least a day, given that it is not shorter.
        ends = _ending(delay)
        here = rng.binomial(some, ends)
        some = some - here
        yield delay, here
    yield LONGEST_DELAY, some


def _ending(delay: int) -> float:
    """The chance that a delay of at least so many days, less two, ends."""
    stay = 1 - DAY_OF_TEST
    k = np.arange(200)
    chance = (k + 1) * DAY_OF_TEST**2 * stay**k
    return float(chance[delay] / chance[delay:].sum())


def _rows(
    simulation: Simulation, cases: Counts, lag: int, delay: int | None, begin: int
) -> pl.DataFrame:
    """The changes that these cases are, with the onset of cases that are so many days late."""
    found = _changes(simulation.start, simulation.country.county_ids, cases, lag, begin)
    early = pl.lit(None, pl.Date) if delay is None else pl.col("reported") - timedelta(days=delay)
    return found.with_columns(onset=early)


def _changes(
    start: date, regions: Sequence[str], cases: Counts, lag: int, begin: int
) -> pl.DataFrame:
    """The changes that cases [days, regions] are on the mornings up to that after the last day."""
    day, region = np.nonzero(cases)
    morning = np.maximum(day + 1 + lag, begin)
    inside = morning <= len(cases)
    day, region, morning = day[inside], region[inside], morning[inside]
    first = np.datetime64(start)
    return pl.DataFrame(
        {
            "as_of": first + morning,
            "region": pl.Series(regions, dtype=pl.String).gather(region),
            "reported": first + day,
            "cases": cases[day, region],
        }
    )
