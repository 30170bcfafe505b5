"""Simulate a country with its epidemic, reports and late reports, and write it as a directory.

Each authority has its own habits: the share of days whose cases it sends a day late, and the share
of the other days' cases that is late. At weekends and on holidays less is sent.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import cached_property
from importlib import metadata
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import shapely
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter1d
from scipy.spatial import cKDTree
from shapely.geometry import shape

from epifed.data.panel import CasePanel, long_table
from epifed.data.readers.formats import CALENDAR, SIMULATION
from epifed.data.vintages import Vintages
from epifed.errors import EpifedError
from epifed.simulate.country import Country, geojson, make_country
from epifed.simulate.epidemic import (
    BURN_IN,
    Course,
    Epidemic,
    Reports,
    SimulationSettings,
    course,
    report,
    sent_on,
    spread,
)

Counts = NDArray[np.int32]
LongCounts = NDArray[np.int64]


@dataclass(frozen=True)
class Simulation:
    """A finished simulation; count arrays are days × communities."""

    settings: SimulationSettings
    country: Country
    start: date
    course: Course
    epidemic: Epidemic
    reports: Reports

    @property
    def cases(self) -> Counts:
        """Final counts by reporting date."""
        return self.reports.cases[BURN_IN:]

    @property
    def first_report(self) -> Counts:
        """Counts by reporting date as first published."""
        return self.reports.first_report[BURN_IN:]

    @property
    def onsets(self) -> Counts:
        """Cases that were or will be reported, by date of onset."""
        return self.reports.onsets[BURN_IN:]

    @property
    def attribution(self) -> str:
        """The attribution of the data."""
        return (
            "Simulated data, no real persons or places: made by epifed simulate, "
            f"preset {self.settings.preset}, seed {self.settings.seed}."
        )

    def by_county(self, counts: Counts) -> Counts:
        """Sums over the communities of every county."""
        return np.asarray(np.add.reduceat(counts, self.country.county_starts, axis=1))

    @cached_property
    def county_panel(self) -> CasePanel:
        """Cases by reporting date, counties × days."""
        place = self.country
        names, people = place.county_names, place.county_population
        return self._panel(self.by_county(self.cases), place.county_ids, names, people)

    @cached_property
    def community_panel(self) -> CasePanel:
        """Cases by reporting date, communities × days."""
        place = self.country
        names, people = place.community_names, place.community_population
        return self._panel(self.cases, place.community_ids, names, people)

    def _panel(
        self, cases: Counts, ids: tuple[str, ...], names: tuple[str, ...], people: LongCounts
    ) -> CasePanel:
        return CasePanel(
            counts=cases.T.astype(np.float64),
            regions=ids,
            start=self.start,
            regions_given=True,
            names=names,
            population=people,
            calendars=(CALENDAR,) * len(ids),
            source=f"simulated ({self.settings.preset}, seed {self.settings.seed})",
            attribution=(self.attribution,),
            simulated=self.settings.model_dump(),
        )


def simulate(
    settings: SimulationSettings | None = None, progress: Callable[[str], None] = lambda _: None
) -> Simulation:
    """Simulate a country, its epidemic and its reports."""
    settings = settings or SimulationSettings()
    progress("settling the country")
    place, epidemic_seed, report_seed = np.random.SeedSequence(settings.seed).spawn(3)
    preset = settings.resolved()
    national = course(preset)
    if settings.days is not None:
        national = replace(national, infections=national.infections[: BURN_IN + settings.days])
    country = make_country(settings.counties, settings.communities, place)
    progress("letting the epidemic run")
    epidemic = spread(country, preset, national, epidemic_seed)
    progress("reporting cases")
    reports = report(country, preset, national, epidemic.ill, report_seed)
    return Simulation(settings, country, preset.start, national, epidemic, reports)


def default_panel(seed: int = 0) -> CasePanel:
    """Simulate the default country: 400 counties in autumn 2020.

    Parameters
    ----------
    seed : int
        Of the random numbers.

    Returns
    -------
    CasePanel
        New cases [400 counties, days].

    Raises
    ------
    EpifedError
        If the seed is below 0.

    Examples
    --------
    >>> len(default_panel().regions)
    400
    """
    return simulate(SimulationSettings(seed=seed)).county_panel


MORNINGS = 70
"""Number of vintages, the last ones; the first of them holds all that was known before."""
LATER = (0.81, 0.68, 0.58, 0.48, 0.27, 0.21)
"""Share of the missing cases that becomes known on each further morning after a working day, from
the second morning on; the last value repeats."""
LONGEST_LAG = 27
"""Largest number of further mornings on which cases become known."""
KNOWN_ONSET = 0.48
"""Share of cases with a known onset."""
DAY_OF_TEST = 0.36
"""Daily probability that each of the two waits between onset and report ends."""
LONGEST_DELAY = 20
_KEY = 7_001


def vintages(simulation: Simulation) -> Vintages:
    """The case list of the counties as known on each of the last days."""
    rng = np.random.default_rng(np.random.SeedSequence(simulation.settings.seed, spawn_key=(_KEY,)))
    days = len(simulation.cases)
    begin = max(days - MORNINGS + 1, 1)
    frames = [
        _rows(simulation, part, lag, delay, begin)
        for lag, come in enumerate(_by_lag(simulation, rng))
        for delay, part in _by_delay(come, rng)
    ]
    return Vintages.from_changes(
        pl.concat(frames),
        source=simulation.attribution,
        regions=simulation.country.county_ids,
        snapshots=[simulation.start + timedelta(days=day) for day in range(begin, days + 1)],
        attribution=(simulation.attribution,),
    )


class Mornings:
    """The case list of the counties as known on any day, without onsets."""

    def __init__(self, simulation: Simulation) -> None:
        root = np.random.SeedSequence(simulation.settings.seed, spawn_key=(_KEY, 1))
        self.final = simulation.county_panel
        """The final counts."""
        self._come = np.stack([*_by_lag(simulation, np.random.default_rng(root))])

    def on(self, morning: date) -> CasePanel:
        """The counts known on the morning of a day, of the days before it."""
        days = (morning - self.final.start).days
        counts = np.zeros((days, self._come.shape[2]))
        for lag, come in enumerate(self._come[:days]):
            counts[: days - lag] += come[: days - lag]
        panel = self.final.between(self.final.start, morning - timedelta(days=1))
        return replace(panel, counts=counts.T)

    def history(self, last: date, mornings: int) -> Vintages:
        """The vintages of so many days, up to the last one."""
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


def _by_lag(simulation: Simulation, rng: np.random.Generator) -> Iterator[LongCounts]:
    """The cases [days, counties] that become known on each morning after their day.

    The excess of the first report over the final count is withdrawn on the second morning.
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


def _by_delay(
    cases: LongCounts, rng: np.random.Generator
) -> Iterator[tuple[int | None, LongCounts]]:
    """The same cases by days from onset to report; none for those with unknown onset."""
    some = rng.binomial(np.maximum(cases, 0), KNOWN_ONSET)
    yield None, cases - some
    for delay in range(LONGEST_DELAY):
        # The delay is two waits of at least a day, given that it is not shorter.
        ends = _ending(delay)
        here = rng.binomial(some, ends)
        some = some - here
        yield delay, here
    yield LONGEST_DELAY, some


def _ending(delay: int) -> float:
    """The probability that a delay of at least so many days, less two, ends."""
    stay = 1 - DAY_OF_TEST
    k = np.arange(200)
    chance = (k + 1) * DAY_OF_TEST**2 * stay**k
    return float(chance[delay] / chance[delay:].sum())


def _rows(
    simulation: Simulation, cases: LongCounts, lag: int, delay: int | None, begin: int
) -> pl.DataFrame:
    """The changes that add these cases, with the onset of cases with this delay."""
    changes = _changes(simulation.start, simulation.country.county_ids, cases, lag, begin)
    early = pl.lit(None, pl.Date) if delay is None else pl.col("reported") - timedelta(days=delay)
    return changes.with_columns(onset=early)


def _changes(
    start: date, regions: Sequence[str], cases: LongCounts, lag: int, begin: int
) -> pl.DataFrame:
    """The changes by which cases [days, regions] become known, up to the morning after the last."""
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


FILES = (
    "county_cases.parquet",
    "community_cases.parquet",
    "counties.csv",
    "communities.csv",
    "counties.geojson",
    "communities.geojson",
    "vintages.parquet",
    "ATTRIBUTION.txt",
    SIMULATION,
)


def check_target(folder: Path) -> None:
    """Refuse a target that is neither empty nor a simulated directory."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise EpifedError(f"{folder}: found a file; expected a directory to write to")
    names = {path.name for path in folder.iterdir()}
    foreign = sorted(names - set(FILES))
    if foreign or (names and SIMULATION not in names):
        raise EpifedError(
            f"{folder}: found {foreign[0] if foreign else min(names)}, which is not of a "
            "simulation; expected a new or empty directory, or an earlier simulation to replace"
        )


def write(simulation: Simulation, folder: Path) -> None:
    """Write all files under a temporary name and rename the directory."""
    folder = folder.absolute()
    check_target(folder)
    draft = folder.with_name(f".{folder.name}.{os.getpid()}.draft")
    retired = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    try:
        draft.mkdir(parents=True)
        _write_files(simulation, draft)
        if folder.exists():
            folder.rename(retired)
        draft.rename(folder)
    except OSError as error:
        raise EpifedError(f"{folder}: cannot be written: {error.strerror}") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        shutil.rmtree(retired, ignore_errors=True)


def _write_files(simulation: Simulation, folder: Path) -> None:
    country = simulation.country
    columns = {
        "cases": simulation.cases,
        "first_report": simulation.first_report,
        "onsets": simulation.onsets,
    }
    by_county = {name: simulation.by_county(counts) for name, counts in columns.items()}
    for unit, ids, values in (
        ("county", country.county_ids, by_county),
        ("community", country.community_ids, columns),
    ):
        table = _long(simulation, unit, ids, values)
        table.write_parquet(folder / f"{unit}_cases.parquet", compression="zstd")
    vintages(simulation).to_frame().write_parquet(folder / "vintages.parquet", compression="zstd")
    people = country.county_population
    states = [country.state_names[state] for state in country.state_of]
    pl.DataFrame(
        {
            "county": country.county_ids,
            "name": country.county_names,
            "state": states,
            "population_2020": people,
            "population_2022": people,
        }
    ).write_csv(folder / "counties.csv")
    pl.DataFrame(
        {
            "community": country.community_ids,
            "name": country.community_names,
            "county": [country.county_ids[county] for county in country.county_of],
            "population": country.community_population,
        }
    ).write_csv(folder / "communities.csv")
    for name, ids, names, shapes in (
        ("counties", country.county_ids, country.county_names, country.shapes.counties),
        ("communities", country.community_ids, country.community_names, country.shapes.communities),
    ):
        text = geojson(ids, names, shapes)
        (folder / f"{name}.geojson").write_text(text, encoding="utf-8")
    (folder / "ATTRIBUTION.txt").write_text(simulation.attribution + "\n", encoding="utf-8")
    about = json.dumps(summary(simulation), indent=2, ensure_ascii=False)
    (folder / SIMULATION).write_text(about + "\n", encoding="utf-8")


def summary(simulation: Simulation) -> dict[str, object]:
    """The settings, days and totals of a simulation."""
    cases = simulation.cases
    return {
        "epifed": metadata.version("epifed"),
        "settings": simulation.settings.model_dump(),
        "first_day": simulation.start.isoformat(),
        "last_day": (simulation.start + timedelta(days=len(cases) - 1)).isoformat(),
        "counties": len(simulation.country.county_ids),
        "communities": len(simulation.country.community_ids),
        "population": int(simulation.country.community_population.sum()),
        "cases": int(cases.sum(dtype=np.int64)),
        "onsets": int(simulation.onsets.sum(dtype=np.int64)),
        "cases_per_day": round(float(cases.sum(dtype=np.int64) / len(cases)), 1),
    }


def _long(
    simulation: Simulation, unit: str, ids: tuple[str, ...], values: dict[str, Counts]
) -> pl.DataFrame:
    days = [simulation.start + timedelta(days=day) for day in range(len(simulation.cases))]
    by_unit = {name: counts.T for name, counts in values.items()}
    long = long_table({unit: ids, "date": days}, by_unit)
    return long.select("date", unit, pl.col(*values).cast(pl.Int32))


Array = NDArray[np.float64]

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
DISTANCES = (0, 50, 100, 200, 400)
NEIGHBOURS = 6
HORIZON = 7
KM_PER_DEGREE = 111.2


def realism_table(
    real: CasePanel,
    simulated: CasePanel,
    period: tuple[date, date],
    real_positions: Array | None = None,
    simulated_positions: Array | None = None,
) -> pl.DataFrame:
    """All traits of both panels in the period, and their difference in per cent.

    Positions are kilometres, one row per region; without them they are the centroids of the
    panel's `boundaries`.
    """
    left = traits(real.between(*period), _positions(real, real_positions))
    right = traits(simulated.between(*period), _positions(simulated, simulated_positions))
    return pl.DataFrame(
        {
            "trait": list(left),
            "real": list(left.values()),
            "simulated": list(right.values()),
        }
    ).with_columns(
        ((pl.col("simulated") / pl.col("real") - 1) * pl.col("real").sign() * 100).alias("off_%")
    )


def traits(panel: CasePanel, positions: Array) -> dict[str, float]:
    """The traits of one panel, over all its days."""
    counts = panel.counts
    values = {
        "cases per day": float(counts.sum(0).mean()),
        "zero county-days": float((counts == 0).mean()),
    }
    values |= weekday_factors(panel)
    values["dispersion"] = dispersion(counts)
    growth = weekly_growth(panel)
    for lag in (1, 2, 3):
        pairs = growth[:, lag:].ravel(), growth[:, :-lag].ravel()
        values[f"growth autocorrelation, lag {lag}"] = float(np.corrcoef(*pairs)[0, 1])
    values["growth spread"] = float((growth - growth.mean(0)).std())
    values |= spatial_growth(growth, positions)
    smooth = centered_average(counts)
    values["peak day spread"] = float(smooth.argmax(1).std())
    values |= persistence(smooth)
    return values


def weekday_factors(panel: CasePanel) -> dict[str, float]:
    """Cases of the average Monday … Sunday relative to the average day."""
    national = panel.counts.sum(0)
    weekday = (panel.start.weekday() + np.arange(national.size)) % 7
    return {
        f"factor {name}": float(national[weekday == i].mean() / national.mean())
        for i, name in enumerate(WEEKDAYS)
        if (weekday == i).any()
    }


def dispersion(counts: Array) -> float:
    """Median over counties of the Pearson dispersion around the 7-day mean times the weekday.

    1 is Poisson. The expectation of a day is its centered 7-day mean times the county's own
    weekday factor. So neither the wave nor the weekly cycle counts as noise.
    """
    smooth = centered_average(counts)
    inner = counts[:, 3:-3]
    weekday = np.arange(inner.shape[1]) % 7
    expected = np.empty_like(inner)
    for day in range(7):
        of_day = weekday == day
        total = smooth[:, of_day].sum(1, keepdims=True)
        factor = inner[:, of_day].sum(1, keepdims=True) / np.maximum(total, 1e-9)
        expected[:, of_day] = smooth[:, of_day] * factor
    squares = (inner - expected) ** 2 / np.maximum(expected, 1e-9)
    enough = expected > 0.5
    return float(np.nanmedian(np.where(enough, squares, 0).sum(1) / np.maximum(enough.sum(1), 1)))


def weekly_growth(panel: CasePanel) -> Array:
    """log((cases of a week + 1) / (cases of the week before + 1)), Monday to Sunday."""
    skip = -panel.start.weekday() % 7
    weeks = (panel.counts.shape[1] - skip) // 7
    if weeks < 6:
        raise EpifedError(f"found {weeks} full weeks; expected at least 6 to measure growth")
    weekly = panel.counts[:, skip : skip + 7 * weeks].reshape(-1, weeks, 7).sum(2)
    return np.asarray(np.diff(np.log(weekly + 1), axis=1))


def spatial_growth(growth: Array, positions: Array) -> dict[str, float]:
    """Moran's I of weekly growth and its correlation by distance, averaged over weeks."""
    centred = growth - growth.mean(0)
    n = len(centred)
    near = cKDTree(positions).query(positions, k=min(NEIGHBOURS + 1, n))[1][:, 1:]
    variance = (centred**2).sum(0)
    moran = (centred * centred[near].mean(1)).sum(0) / np.maximum(variance, 1e-12)
    values = {"Moran's I of growth": float(moran.mean())}
    gaps = np.linalg.norm(positions[:, None] - positions[None], axis=2)
    products = centred @ centred.T
    scale = variance.sum() / n
    for low, high in pairwise(DISTANCES):
        pairs = (gaps > max(low, 1e-9)) & (gaps <= high)
        if pairs.any():
            name = f"growth correlation, {low}–{high} km"
            values[name] = float(products[pairs].mean() / scale)
    return values


def persistence(smooth: Array) -> dict[str, float]:
    """R² and MAPE (zero targets left out) of persistence over 7 days."""
    forecast, target = smooth[:, :-HORIZON], smooth[:, HORIZON:]
    residual = ((target - forecast) ** 2).sum()
    some = target > 0
    return {
        "persistence R²": float(1 - residual / ((target - target.mean()) ** 2).sum()),
        "persistence MAPE": float((np.abs(target - forecast)[some] / target[some]).mean()),
    }


def centered_average(counts: Array) -> Array:
    """The centered 7-day average of the days that have one."""
    return np.asarray(uniform_filter1d(counts, 7, axis=1)[:, 3:-3])


def _positions(panel: CasePanel, positions: Array | None) -> Array:
    if positions is not None:
        return positions
    if panel.boundaries is None:
        raise EpifedError(f"{panel.source}: found no boundaries; expected positions or boundaries")
    return centroids(panel.boundaries, panel.regions)


def centroids(boundaries: Path, regions: tuple[str, ...]) -> Array:
    """Centroids of the regions in kilometres, from a GeoJSON file in degrees."""
    features = json.loads(boundaries.read_text(encoding="utf-8"))["features"]
    shapes = {feature["properties"]["id"]: shape(feature["geometry"]) for feature in features}
    points = shapely.get_coordinates(shapely.centroid([shapes[region] for region in regions]))
    scale = np.array([np.cos(np.radians(points[:, 1].mean())), 1.0])
    return np.asarray(points * scale * KM_PER_DEGREE)
