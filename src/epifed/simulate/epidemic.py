"""A stochastic SEIR epidemic in communities that commute; integers throughout."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.sparse import coo_array, csr_array
from scipy.spatial import cKDTree

from epifed.errors import EpifedError
from epifed.simulate.country import Country
from epifed.simulate.settings import Preset, eastward, over_days, reproduction

Array = NDArray[np.float64]
Counts = NDArray[np.int32]
People = NDArray[np.int64]

BURN_IN = 28
"""Days simulated before the first one kept, so that reporting is in full swing on it."""
AWAY = 0.25
"""Share of contacts outside the own community."""
NEAR, HUBS = 12, 6
"""A community commutes to so many nearest communities and so many nearest large ones."""
HUB_SHARE = 0.02
DISTANCE_POWER, SIZE_POWER, DISTANCE_FLOOR = 2.0, 0.7, 5.0
IMPORTS = 1e-7
"""Infections from abroad per person and day."""
FEATURES = 256
REGION_KM = 80.0
"""Distance at which the correlation of regional differences has fallen to 1/e."""
SIZE_OF_LUCK = 0.35
"""Exponent: a county of seven times the people has half the luck, good or bad."""


@dataclass(frozen=True)
class Course:
    """The national course that the communities follow on average."""

    infections: Array
    """New infections per person and day."""
    reproduction: Array
    steps: "Steps"


@dataclass(frozen=True)
class Steps:
    """Daily probabilities of moving on, per day."""

    onset: Array
    recover: Array
    ascertain: Array
    test: Array
    waning: float


@dataclass(frozen=True)
class Epidemic:
    """What happened, by community and day, burn-in included."""

    infections: Counts
    ill: Counts
    """People whose illness begins that day, reported or not."""
    final: People
    """People susceptible, exposed, infectious and recovered after the last day."""


def course(preset: Preset) -> Course:
    """Solve the deterministic SEIR of the whole country for the preset's levels.

    The start level is set to meet the first level; a drift of R between two levels the next.
    """
    first, days = preset.start - timedelta(days=BURN_IN), preset.days + BURN_IN
    steps = _steps(preset, first, days)
    base = reproduction(preset, first, days)
    drift = np.zeros(days)
    weekday = (first.weekday() + np.arange(days)) % 7
    factors = over_days(preset, first, days, lambda r: r.weekday)
    cycle = factors[np.arange(days), weekday]

    def gap(seed: float, bend: Array, level: tuple[date, date, float]) -> float:
        _, reports = _national(base * np.exp(bend), steps, seed, preset)
        window = slice((level[0] - first).days, (level[1] - first).days + 1)
        return float(np.log((reports * cycle)[window].mean() / (level[2] / 1e5)))

    def bent(drift: Array, ramp: Array, level: tuple[date, date, float], bend: float) -> float:
        return gap(start, drift + bend * ramp, level)

    opening, *later = preset.levels
    start = float(np.exp(_root(lambda x: gap(float(np.exp(x)), drift, opening), np.log(1e-8), 0.3)))
    known = opening[1]
    for level in later:
        ends = [(known - first).days, (level[1] - first).days]
        ramp = np.interp(np.arange(days), ends, [0.0, 1.0])
        drift = drift + ramp * _root(partial(bent, drift, ramp, level), 0.0, 0.02)
        known = level[1]
    solved = base * np.exp(drift)
    infections, _ = _national(solved, steps, start, preset)
    return Course(infections, solved, steps)


def spread(
    country: Country, preset: Preset, national: Course, seed: np.random.SeedSequence
) -> Epidemic:
    """Let the epidemic run through the communities."""
    field_seed, start_seed, draw_seed = seed.spawn(3)
    days = len(national.infections)
    people = country.community_population
    county_of = country.county_of
    local = local_factors(country, preset, days, field_seed)
    commute = commuting(country)
    present = commute.T @ people.astype(float)
    first = preset.start - timedelta(days=BURN_IN)
    caution = over_days(preset, first, days, lambda r: r.caution)
    k = over_days(preset, first, days, lambda r: r.superspreading)
    rng = np.random.default_rng(draw_seed)

    steps = national.steps
    S, E, J, R = _start(country, preset, national, np.random.default_rng(start_seed))
    infections = np.empty((days, len(people)), dtype=np.int32)
    falls_ill = np.empty_like(infections)
    total = int(people.sum())
    for day in range(days):
        exposure = commute @ ((commute.T @ J) / present)
        pressure = exposure * people
        crowd = np.add.reduceat(pressure, country.county_starts) / country.county_population
        relative = crowd / max(float(pressure.sum()) / total, 1e-300)
        care = np.maximum(relative, 1e-3) ** -caution[day]
        mean = S * exposure * (local[day] * care)[county_of]
        wanted = national.infections[day] * total
        steer = wanted / max(float(mean.sum()), 1e-9)
        usual = national.reproduction[day] * steps.recover[day]
        mean *= np.clip(steer, usual / 4, usual * 4)
        shape = np.maximum(k[day] * pressure, 1e-9)
        mean = mean * rng.standard_gamma(shape) / shape + IMPORTS * S
        new = np.minimum(rng.poisson(mean), S)
        ill = rng.binomial(E, steps.onset[day])
        well = rng.binomial(J, steps.recover[day])
        again = rng.binomial(R, steps.waning) if steps.waning else 0
        S, E, J, R = S - new + again, E + new - ill, J + ill - well, R + well - again
        infections[day] = new
        falls_ill[day] = ill
    return Epidemic(infections, falls_ill, np.stack([S, E, J, R]))


def commuting(country: Country) -> csr_array:
    """Share of their contacts that the people of a row have in a column; a gravity law."""
    places, people = country.positions, country.community_population.astype(float)
    n = len(people)
    if n == 1:
        return csr_array(np.ones((1, 1)))
    distance, target = cKDTree(places).query(places, k=min(NEAR + 1, n))
    hubs = np.sort(np.argsort(-people, kind="stable")[: max(HUBS, int(HUB_SHARE * n))])[:n]
    hub_distance, hub = cKDTree(places[hubs]).query(places, k=min(HUBS, len(hubs)))
    target = np.concatenate([target, hubs[np.reshape(hub, (n, -1))]], axis=1)
    distance = np.concatenate([distance, np.reshape(hub_distance, (n, -1))], axis=1)
    row = np.repeat(np.arange(n), target.shape[1])
    pair = np.unique(np.stack([row, target.ravel()], axis=1), axis=0, return_index=True)
    row, column = pair[0].T
    gap = distance.ravel()[pair[1]]
    pull = people[column] ** SIZE_POWER / (gap + DISTANCE_FLOOR) ** DISTANCE_POWER
    pull[row == column] = 0.0
    pull *= AWAY / np.bincount(row, pull, n)[row]
    pull[row == column] = 1 - AWAY
    return coo_array((pull, (row, column)), shape=(n, n)).tocsr()


def local_factors(
    country: Country, preset: Preset, days: int, seed: np.random.SeedSequence
) -> Array:
    """By how much R differs from the national one, by day and county."""
    rng = np.random.default_rng(seed)
    first = preset.start - timedelta(days=BURN_IN)
    own = over_days(preset, first, days, lambda r: r.local_spread)
    shared = over_days(preset, first, days, lambda r: r.regional_spread)
    counties = len(country.county_ids)
    region_days = over_days(preset, first, days, lambda r: r.regional_days)
    local_days = over_days(preset, first, days, lambda r: r.local_days)
    region = waves(region_days, 2 * FEATURES, rng) @ _features(country, rng)
    local = waves(local_days, counties, rng) * smallness(country)
    tilt = np.outer(eastward(preset, first, days), _east(country))
    return np.asarray(np.exp(shared[:, None] * region + own[:, None] * local + tilt))


def _east(country: Country) -> Array:
    """How far east each county lies, in deviations from the middle."""
    east = country.county_positions[:, 0]
    return np.asarray((east - east.mean()) / max(float(east.std()), 1e-9))


def smallness(country: Country) -> Array:
    """How much more a county's own luck matters in small counties: one for the median county."""
    people = country.county_population
    return np.asarray((np.median(people) / people) ** SIZE_OF_LUCK)


def _features(country: Country, rng: np.random.Generator) -> Array:
    """Random Fourier features of an exponential correlation in space: linear in counties."""
    wave = rng.normal(size=(FEATURES, 2)) / np.abs(rng.normal(size=(FEATURES, 1))) / REGION_KM
    phase = wave @ country.county_positions.T
    return np.asarray(np.concatenate([np.cos(phase), np.sin(phase)]) / FEATURES**0.5)


def waves(memory: Array, width: int, rng: np.random.Generator) -> Array:
    """Independent Ornstein–Uhlenbeck paths of variance 1; `memory`, in days, is given daily."""
    keep = np.exp(-1 / memory)
    shocks = rng.normal(size=(len(memory), width)) * np.sqrt(1 - keep**2)[:, None]
    path: Array = np.empty((len(memory), width))
    value = rng.normal(size=width)
    for day in range(len(memory)):
        value = keep[day] * value + shocks[day]
        path[day] = value
    return path


def _start(
    country: Country, preset: Preset, national: Course, rng: np.random.Generator
) -> tuple[People, People, People, People]:
    """People by state on the first day; incidence differs between counties and regions."""
    level = rng.normal(size=2 * FEATURES) @ _features(country, rng)
    level = preset.initial_spread * (level + rng.normal(size=level.size)) / np.sqrt(2)
    weight = np.exp(level)
    weight /= (weight * country.county_population).sum() / country.county_population.sum()
    people = country.community_population
    rate = np.minimum(national.infections[0] * weight[country.county_of], 0.05)
    steps = national.steps
    E = rng.binomial(people, np.minimum(rate / steps.onset[0], 0.2))
    J = rng.binomial(people - E, np.minimum(rate / steps.recover[0], 0.2))
    S = rng.binomial(people - E - J, preset.susceptible)
    return S, E, J, people - E - J - S


def _steps(preset: Preset, first: date, days: int) -> Steps:
    def chance(read: Callable[..., float]) -> Array:
        return 1 / np.maximum(over_days(preset, first, days, read), 1.0)

    return Steps(
        onset=chance(lambda r: r.latent_days),
        recover=chance(lambda r: r.infectious_days),
        ascertain=over_days(preset, first, days, lambda r: r.ascertainment),
        test=chance(lambda r: r.delay_days / 2),
        waning=preset.waning,
    )


def _national(R: Array, steps: Steps, start: float, preset: Preset) -> tuple[Array, Array]:
    """New infections and reports per person and day in a country of one well-mixed place."""
    exposed, infectious = start / steps.onset[0], start / steps.recover[0]
    susceptible = preset.susceptible * (1 - exposed - infectious)
    recovered = 1 - susceptible - exposed - infectious
    waiting = tested = start * steps.ascertain[0] / steps.test[0]
    infections, reports = np.empty_like(R), np.empty_like(R)
    for day, value in enumerate(R):
        new = value * steps.recover[day] * susceptible * infectious + IMPORTS * susceptible
        new = min(new, 0.5 * susceptible)
        ill = steps.onset[day] * exposed
        well = steps.recover[day] * infectious
        again = steps.waning * recovered
        susceptible += again - new
        exposed += new - ill
        infectious += ill - well
        recovered += well - again
        reports[day] = steps.test[day] * tested
        swab = steps.test[day] * waiting
        waiting += ill * steps.ascertain[day] - swab
        tested += swab - reports[day]
        infections[day] = new
    return infections, reports


def _root(function: Callable[[float], float], guess: float, step: float) -> float:
    """The root of a function that rises around it, the first one met from the guess."""
    value = function(guess)
    step = step if value < 0 else -step
    for _ in range(50):
        following = function(guess + step)
        if (following < 0) != (value < 0):
            return float(brentq(function, guess, guess + step, xtol=1e-5))
        guess, value = guess + step, following
    raise EpifedError(
        "found no epidemic with so many cases in this country; "
        "expected a lower level or a higher ascertainment"
    )
