"""Below the county: the paper's random filling of communities, and what is zero in them."""

from dataclasses import replace
from datetime import date

import numpy as np
import polars as pl

from epifed.data.panel import CasePanel
from epifed.errors import EpifedError
from epifed.learners.base import slide
from epifed.settings import Settings


def disaggregate(
    counties: CasePanel, communities: pl.DataFrame, rng: np.random.Generator
) -> CasePanel:
    """Draw each county's cases of each day into its communities, by share of population.

    As in the paper: every case falls on a community with probability community population /
    county population, days without a case are zero. Communities add up to their county on every
    day; infection chains are lost, which is what the paper warns of. `communities` has the
    columns community, name, county and population.
    """
    if (counties.counts != np.round(counties.counts)).any():
        raise EpifedError(
            f"{counties.source}: found counts that are not whole numbers; expected daily cases, "
            "not averages, to draw into communities"
        )
    places = communities.sort("county", "community")
    unknown = set(places["county"].unique()) ^ set(counties.regions)
    if unknown:
        raise EpifedError(
            f"{counties.source}: county {min(unknown)} has cases or communities but not both; "
            "expected communities for every county"
        )
    row_of = {county: row for row, county in enumerate(counties.regions)}
    within = np.array([row_of[county] for county in places["county"]])
    counts = np.zeros((len(places), counties.counts.shape[1]))
    of_county = {key[0]: rows for key, rows in places.with_row_index().group_by("county")}
    for k, county in enumerate(counties.regions):
        rows = of_county[county]
        people = rows["population"].to_numpy().astype(np.float64)
        drawn = rng.multinomial(counties.counts[k].astype(np.int64), people / people.sum())
        counts[rows["index"].to_numpy()] = drawn.T
    return replace(
        counties,
        counts=counts,
        regions=tuple(places["community"]),
        names=tuple(places["name"]),
        parents=tuple(places["county"]),
        population=places["population"].to_numpy(),
        states=tuple(counties.states[row] for row in within) if counties.states else (),
        calendars=tuple(counties.calendars[row] for row in within) if counties.calendars else (),
        positions=None if counties.positions is None else counties.positions[within],
        reported=None,
        boundaries=None,
        notes=(*counties.notes, "communities drawn at random by population: no infection chains"),
    )


def zero_entries(panel: CasePanel, settings: Settings, period: tuple[date, date]) -> pl.DataFrame:
    """How many of a sample's H inputs and its target are zero (the paper's Fig. 3).

    One row for each number of zeros from 0 to H + 1: the samples that have so many, their share,
    and the quartiles of the population behind them.
    """
    windows = slide(panel, settings, period)
    if panel.population is None:
        raise EpifedError(f"{panel.source}: found no population; expected one for each region")
    zeros = (windows.inputs == 0).sum(axis=2) + (windows.targets == 0)
    samples = pl.DataFrame(
        {
            "zeros": zeros.ravel().astype(np.int64),
            "population": np.repeat(panel.population, zeros.shape[1]),
        }
    )
    table = samples.group_by("zeros").agg(
        pl.len().cast(pl.Int64).alias("samples"),
        (pl.len() / len(samples)).alias("share"),
        *(
            pl.col("population").quantile(q, "linear").alias(f"population_{name}")
            for name, q in (("q1", 0.25), ("median", 0.5), ("q3", 0.75))
        ),
    )
    numbers = pl.DataFrame({"zeros": np.arange(settings.window + 2)})
    return numbers.join(table, on="zeros", how="left").with_columns(
        pl.col("samples", "share").fill_null(0)
    )
