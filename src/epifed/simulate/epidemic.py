"""A stochastic SEIR epidemic in communities with commuting, its settings and its reporting.

All counts are integers. Reporting includes tests, offices, weekends, backlogs and corrections.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from holidays import country_holidays
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from scipy.optimize import brentq
from scipy.sparse import coo_array, csr_array
from scipy.spatial import cKDTree
from scipy.special import betaincinv

from epifed.data.readers.formats import SIMULATION, simulation_record
from epifed.errors import EpifedError, sentence_of

if TYPE_CHECKING:
    from epifed.simulate.country import Country

Array = NDArray[np.float64]

BURN_IN = 28
"""Days simulated before the first one kept, so that reporting has settled by then."""


@dataclass(frozen=True)
class Regime:
    """The constants of one phase; between two regimes they change linearly."""

    latent_days: float
    infectious_days: float
    ascertainment: float
    """Share of infections that are ever reported."""
    delay_days: float
    """Mean days from onset to the authority, in two equal geometric stages."""
    weekday: tuple[float, ...]
    """Reports of Monday … Sunday relative to the average day."""
    weekday_spread: tuple[float, ...]
    """Standard deviation of these factors between authorities."""
    closed: tuple[float, float]
    """Share of Saturdays and of Sundays on which an authority reports nothing."""
    test_noise: float
    """Standard deviation over days of the log share of infections that an authority detects."""
    report_noise: float
    """Standard deviation of the log-odds that a waiting case is reported today."""
    backlog_rate: float
    """Daily probability that an authority falls behind."""
    backlog_days: float
    """Mean days until a backlog is cleared."""
    local_spread: float
    """Standard deviation of log R between counties, independent in each."""
    local_days: float
    """Time scale in days of such a difference."""
    regional_spread: float
    """Standard deviation of the differences that nearby counties share."""
    regional_days: float
    caution: float
    """Exponent by which contacts fall where prevalence is above the country's, and rise below."""
    superspreading: float
    """k: dispersion of the number that a person infects; small values are uneven."""


@dataclass(frozen=True)
class Preset:
    """A phase: its days, the national reproduction number and the case levels to reach."""

    name: str
    start: date
    end: date
    knots_from: date
    knots_every: int
    reproduction: tuple[float, ...]
    """National R of a fully susceptible country, every so many days, linear in between."""
    levels: tuple[tuple[date, date, float], ...]
    """First day, last day, reported cases per day and 100,000 people in between."""
    regimes: tuple[tuple[date, Regime], ...]
    susceptible: float = 1.0
    """Share of people who can be infected at the start."""
    waning: float = 0.0
    """Share of recovered people who become susceptible again, per day."""
    initial_spread: float = 1.2
    """Standard deviation of log incidence between counties at the start."""
    eastward: tuple[tuple[date, float], ...] = ()
    """Increase of log R per standard deviation further east, on some days, linear in between."""

    @property
    def days(self) -> int:
        """Number of days, both ends included."""
        return (self.end - self.start).days + 1

    @property
    def begin(self) -> date:
        """The first simulated day."""
        return self.start - timedelta(days=BURN_IN)


PEOPLE = 82_160_000
AUTUMN_LEVEL = (date(2020, 11, 1), date(2020, 11, 30), 17_600 / PEOPLE * 1e5)
DELTA_LEVEL = (date(2021, 11, 8), date(2021, 12, 5), 50_500 / PEOPLE * 1e5)
JANUARY_LEVEL = (date(2022, 1, 3), date(2022, 1, 30), 97_700 / PEOPLE * 1e5)
SPRING_LEVEL = (date(2022, 3, 1), date(2022, 3, 31), 212_000 / PEOPLE * 1e5)

AUTUMN = Regime(
    latent_days=3.0,
    infectious_days=3.0,
    ascertainment=0.4,
    delay_days=3.5,
    weekday=(0.82, 1.17, 1.33, 1.24, 1.11, 0.83, 0.51),
    weekday_spread=(0.27, 0.20, 0.12, 0.10, 0.10, 0.19, 0.22),
    closed=(0.10, 0.185),
    test_noise=0.21,
    report_noise=0.9,
    backlog_rate=0.0025,
    backlog_days=2.0,
    local_spread=0.18,
    local_days=4.6,
    regional_spread=0.165,
    regional_days=7.0,
    caution=0.18,
    superspreading=0.15,
)
SPRING = Regime(
    latent_days=2.0,
    infectious_days=2.5,
    ascertainment=0.5,
    delay_days=2.5,
    weekday=(0.95, 1.34, 1.36, 1.27, 1.10, 0.62, 0.36),
    weekday_spread=(0.31, 0.20, 0.10, 0.08, 0.08, 0.25, 0.22),
    closed=(0.16, 0.255),
    test_noise=0.075,
    report_noise=0.65,
    backlog_rate=0.002,
    backlog_days=2.0,
    local_spread=0.045,
    local_days=10.0,
    regional_spread=0.12,
    regional_days=18.0,
    caution=0.15,
    superspreading=0.3,
)

CALM = replace(SPRING, regional_spread=0.06, caution=0.05)
"""A regime in which regions hardly differ."""


# fmt: off
AUTUMN_R = (
    # late summer
    0.870, 0.894, 0.918, 0.945, 1.040, 1.226, 1.103, 1.064, 1.368,
    # indoors again, from 5 October
    1.483, 1.573, 1.557, 1.231,
    # restaurants closed on 2 November
    1.038, 1.018, 1.004, 0.990, 1.155, 1.281,
    # schools and shops closed on 16 December
    1.037, 0.748, 1.064, 1.153, 0.848, 0.846, 0.949, 1.059,
)
OMICRON_R = (
    # the end of the Delta wave
    0.709, 0.808, 0.917,
    # BA.1
    1.134, 1.438, 1.437, 1.520, 1.386, 1.268, 1.197,
    # BA.2 and the end of most measures
    1.173, 1.221, 1.408, 1.638, 1.542, 1.515,
    # spring
    1.350, 1.374, 1.541, 1.570, 1.575, 1.537, 1.617, 1.425, 1.285, 1.179, 1.090,
)
PANDEMIC_R = (
    0.807, 0.864, 0.923, 1.120, 1.152, 1.094, 1.462, 1.605, 1.432, 1.042, 1.013, 0.970,
    1.218, 1.139, 0.783, 1.175, 0.883, 0.866, 0.844, 0.995, 1.108, 1.126, 1.364, 1.134,
    1.028, 1.259, 0.984, 0.827, 0.839, 0.681, 0.821, 0.610, 0.770, 1.174, 1.544, 1.220,
    1.236, 1.502, 1.331, 1.108, 0.939, 0.951, 1.095, 1.109, 1.415, 1.230, 1.393, 1.209,
    1.045, 0.975, 0.898, 1.213, 1.528, 1.532, 1.367, 1.235, 1.174, 1.385, 1.626, 1.552,
    1.348, 1.411, 1.566, 1.465, 1.625, 1.156, 1.778, 2.081, 1.861, 1.800, 1.700,
)
CROSSING_R = (
    # a quiet summer
    0.980, 0.980, 1.000, 1.000, 1.000, 1.000, 1.000, 1.010, 1.010, 1.020, 1.020, 1.030, 1.040,
    # a wave that begins in the west
    1.050, 1.070, 1.090, 1.110, 1.120, 1.120, 1.130, 1.140, 1.150, 1.150, 1.150, 1.150,
    # and crosses to the east
    1.150, 1.140, 1.120, 1.110, 1.100, 1.100,
)
# fmt: on

AUTUMN_2020 = Preset(
    name="autumn-2020",
    start=date(2020, 9, 1),
    end=date(2021, 1, 31),
    knots_from=date(2020, 8, 3),
    knots_every=7,
    reproduction=AUTUMN_R,
    levels=(AUTUMN_LEVEL,),
    regimes=((date(2020, 9, 1), AUTUMN),),
)
OMICRON_2022 = Preset(
    name="omicron-2022",
    start=date(2022, 1, 1),
    end=date(2022, 5, 31),
    knots_from=date(2021, 12, 4),
    knots_every=7,
    reproduction=OMICRON_R,
    levels=(JANUARY_LEVEL, SPRING_LEVEL),
    regimes=((date(2022, 1, 1), SPRING),),
    susceptible=0.95,
    waning=1 / 400,
    initial_spread=0.4,
)
PANDEMIC = Preset(
    name="pandemic",
    start=date(2020, 9, 1),
    end=date(2022, 6, 30),
    knots_from=date(2020, 8, 3),
    knots_every=10,
    reproduction=PANDEMIC_R,
    levels=(AUTUMN_LEVEL, DELTA_LEVEL, JANUARY_LEVEL, SPRING_LEVEL),
    regimes=((date(2021, 1, 31), AUTUMN), (date(2021, 12, 15), SPRING)),
    waning=1 / 250,
)
CROSSING = Preset(
    name="crossing",
    start=date(2023, 5, 31),
    end=date(2023, 11, 28),
    knots_from=date(2023, 5, 3),
    knots_every=7,
    reproduction=CROSSING_R,
    levels=((date(2023, 11, 1), date(2023, 11, 28), 50.0),),
    regimes=((date(2023, 5, 31), CALM),),
    waning=1 / 250,
    initial_spread=0.4,
    eastward=(
        (date(2023, 8, 1), 0.0),
        (date(2023, 9, 1), -0.08),
        (date(2023, 10, 29), -0.08),
        (date(2023, 11, 12), 0.2),
    ),
)
PRESETS = {preset.name: preset for preset in (AUTUMN_2020, OMICRON_2022, PANDEMIC, CROSSING)}


def over_days(preset: Preset, days: int, name: str) -> Array:
    """A constant of the regimes on each day from the begin, changing linearly between them."""
    at = [(day - preset.begin).days for day, _ in preset.regimes]
    values = np.array([getattr(regime, name) for _, regime in preset.regimes], dtype=np.float64)
    when = np.arange(days)
    if values.ndim == 1:
        return np.interp(when, at, values)
    return np.stack([np.interp(when, at, column) for column in values.T], axis=1)


def eastward(preset: Preset, days: int) -> Array:
    """Increase of log R per standard deviation further east, on each day from the begin."""
    if not preset.eastward:
        return np.zeros(days)
    at = [(day - preset.begin).days for day, _ in preset.eastward]
    return np.interp(np.arange(days), at, [tilt for _, tilt in preset.eastward])


def reproduction(preset: Preset, days: int) -> Array:
    """The preset's national R on each day from the begin."""
    start = (preset.knots_from - preset.begin).days
    at = start + preset.knots_every * np.arange(len(preset.reproduction))
    return np.interp(np.arange(days), at, preset.reproduction)


PresetName = Literal["autumn-2020", "omicron-2022", "pandemic", "crossing"]
COMMUNITIES_PER_COUNTY_MAX = 100
"""Largest average; the largest county then still has fewer than the 1000 that its ids allow."""


class SimulationSettings(BaseModel):
    """All settings of a simulated country and its epidemic."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    counties: int = Field(400, ge=1, le=4000, description="N, counties of the country")
    communities: int = Field(10_786, ge=1, description="communities, at least one per county")
    preset: PresetName = Field("autumn-2020", description="the phase of the epidemic")
    days: int | None = Field(None, ge=7, description="days from the preset's first; none: all")
    level: float = Field(1.0, gt=0, le=2, description="cases relative to the preset's")
    ascertainment: float | None = Field(
        None, gt=0, le=1, description="share of infections ever reported; none: the preset's"
    )
    superspreading: float | None = Field(
        None, gt=0, description="k, dispersion of the number a person infects; none: the preset's"
    )
    seed: int = Field(0, ge=0, description="root of all randomness")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.communities < self.counties:
            raise ValueError(
                f"found {self.counties} counties and {self.communities} communities; "
                "expected at least one community per county"
            )
        most = self.counties * COMMUNITIES_PER_COUNTY_MAX
        if self.communities > most:
            raise ValueError(
                f"found {self.communities} communities in {self.counties} counties; "
                f"expected at most {most}"
            )
        preset = PRESETS[self.preset]
        if self.days is not None and self.days > preset.days:
            raise ValueError(
                f"found {self.days} days; expected at most the {preset.days} of {self.preset}"
            )
        return self

    @classmethod
    def of(cls, **values: Any) -> Self:
        """Settings from keyword values; a value that does not fit raises an `EpifedError`."""
        try:
            return cls(**values)
        except ValidationError as error:
            raise EpifedError(sentence_of(error)) from None

    def resolved(self) -> Preset:
        """The preset with these settings' changes."""
        preset = PRESETS[self.preset]
        changes = {
            name: value
            for name in ("ascertainment", "superspreading")
            if (value := getattr(self, name)) is not None
        }
        return replace(
            preset,
            levels=tuple((a, b, cases * self.level) for a, b, cases in preset.levels),
            regimes=tuple((day, replace(regime, **changes)) for day, regime in preset.regimes),
        )


def settings_of(folder: Path) -> SimulationSettings | None:
    """The settings of a simulated directory; none if it is not simulated."""
    record = simulation_record(folder)
    if record is None:
        return None
    try:
        return SimulationSettings.of(**record)
    except EpifedError as error:
        raise EpifedError(f"{folder / SIMULATION}: settings: {error}") from None


Counts = NDArray[np.int32]
People = NDArray[np.int64]

AWAY = 0.25
"""Share of contacts outside the own community."""
NEAR, HUBS = 12, 6
"""Numbers of nearest communities and of nearest large ones to which a community commutes."""
HUB_SHARE = 0.02
DISTANCE_POWER, SIZE_POWER, DISTANCE_FLOOR = 2.0, 0.7, 5.0
IMPORTS = 1e-7
"""Infections from abroad per person and day."""
FEATURES = 256
REGION_KM = 80.0
"""Distance at which the correlation of regional differences has fallen to 1/e."""
SIZE_OF_LUCK = 0.35
"""Exponent of population: a county of seven times the people has half the random difference."""


@dataclass(frozen=True)
class Course:
    """The national course, which the communities follow on average."""

    infections: Array
    """New infections per person and day."""
    reproduction: Array
    steps: "Steps"


@dataclass(frozen=True)
class Steps:
    """Daily probabilities of the transitions, for each day."""

    onset: Array
    recover: Array
    ascertain: Array
    test: Array
    waning: float


@dataclass(frozen=True)
class Epidemic:
    """The simulated infections, by community and day, burn-in included."""

    infections: Counts
    ill: Counts
    """People whose illness begins that day, reported or not."""
    final: People
    """People susceptible, exposed, infectious and recovered after the last day."""


def course(preset: Preset) -> Course:
    """Solve the deterministic SEIR of the whole country for the preset's levels.

    The start level is chosen to reach the first level, and a drift of R to reach each next one.
    """
    first, days = preset.begin, preset.days + BURN_IN
    steps = _steps(preset, days)
    base = reproduction(preset, days)
    drift = np.zeros(days)
    weekday = (first.weekday() + np.arange(days)) % 7
    factors = over_days(preset, days, "weekday")
    cycle = factors[np.arange(days), weekday]

    def gap(seed: float, bend: Array, level: tuple[date, date, float]) -> float:
        _, reports = _national(base * np.exp(bend), steps, seed, preset)
        window = slice((level[0] - first).days, (level[1] - first).days + 1)
        return float(np.log((reports * cycle)[window].mean() / (level[2] / 1e5)))

    def bent(drift: Array, ramp: Array, level: tuple[date, date, float], bend: float) -> float:
        return gap(start, drift + bend * ramp, level)

    opening, *later = preset.levels
    start = float(np.exp(_root(lambda x: gap(float(np.exp(x)), drift, opening), np.log(1e-8), 0.3)))
    reached = opening[1]
    for level in later:
        ends = [(reached - first).days, (level[1] - first).days]
        ramp = np.interp(np.arange(days), ends, [0.0, 1.0])
        drift = drift + ramp * _root(partial(bent, drift, ramp, level), 0.0, 0.02)
        reached = level[1]
    solved = base * np.exp(drift)
    infections, _ = _national(solved, steps, start, preset)
    return Course(infections, solved, steps)


def spread(
    country: "Country", preset: Preset, national: Course, seed: np.random.SeedSequence
) -> Epidemic:
    """Simulate the epidemic in the communities."""
    field_seed, start_seed, draw_seed = seed.spawn(3)
    days = len(national.infections)
    people = country.community_population
    county_of = country.county_of
    local = local_factors(country, preset, days, field_seed)
    commute = commuting(country)
    present = commute.T @ people.astype(float)
    caution, k = (over_days(preset, days, name) for name in ("caution", "superspreading"))
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


def commuting(country: "Country") -> csr_array:
    """Share of contacts that the people of a row have in a column, by a gravity law."""
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
    country: "Country", preset: Preset, days: int, seed: np.random.SeedSequence
) -> Array:
    """Factor from national to local R, by day and county."""
    rng = np.random.default_rng(seed)
    own, shared = (over_days(preset, days, name) for name in ("local_spread", "regional_spread"))
    region_days = over_days(preset, days, "regional_days")
    region = waves(region_days, 2 * FEATURES, rng) @ _features(country, rng)
    local_days = over_days(preset, days, "local_days")
    local = waves(local_days, len(country.county_ids), rng) * smallness(country)
    tilt = np.outer(eastward(preset, days), _east(country))
    return np.asarray(np.exp(shared[:, None] * region + own[:, None] * local + tilt))


def _east(country: "Country") -> Array:
    """East-west position of each county, in standard deviations from the mean."""
    east = country.county_positions[:, 0]
    return np.asarray((east - east.mean()) / max(float(east.std()), 1e-9))


def smallness(country: "Country") -> Array:
    """Factor on the random differences of each county by its size; 1 for the median county."""
    people = country.county_population
    return np.asarray((np.median(people) / people) ** SIZE_OF_LUCK)


def _features(country: "Country", rng: np.random.Generator) -> Array:
    """Random Fourier features of an exponential correlation in space, linear in counties."""
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
    country: "Country", preset: Preset, national: Course, rng: np.random.Generator
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


def _steps(preset: Preset, days: int) -> Steps:
    latent, infectious, delay = (
        over_days(preset, days, name) for name in ("latent_days", "infectious_days", "delay_days")
    )
    return Steps(
        onset=1 / np.maximum(latent, 1.0),
        recover=1 / np.maximum(infectious, 1.0),
        ascertain=over_days(preset, days, "ascertainment"),
        test=1 / np.maximum(delay / 2, 1.0),
        waning=preset.waning,
    )


def _national(R: Array, steps: Steps, start: float, preset: Preset) -> tuple[Array, Array]:
    """New infections and reports per person and day in one well-mixed country."""
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
    """The root of an increasing function that is found first from the guess."""
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


WITHHELD = (0.6, 1.7)
"""Beta parameters of the share of working days whose cases an authority sends as a whole after
the next morning: a quarter on average, hardly any for many, most for some."""
PUNCTUAL = (1.75, 0.7)
"""Beta parameters of the share that it sends before the next morning on other days."""
EVENLY = 3.0
"""Sum of the beta parameters of that share on each day: a large sum varies little."""
SENDING = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 0.68, 0.66])
"""Reports sent on Monday … Sunday, relative to a working day: some offices are closed."""
WITHDRAWN = 0.01
"""Cases first published and later withdrawn, relative to those published with them."""
TEST_DAYS = 5.0
"""Time scale in days of an authority's share of detected cases."""
UNEVEN = 1.5
"""Sum of beta parameters; small: an authority is nearly always or nearly never closed."""
CYCLE_ROUNDS = 6


@dataclass(frozen=True)
class Reports:
    """The reports by day and community, burn-in included."""

    onsets: Counts
    """Cases by day of onset: reported by now or pending."""
    cases: Counts
    """Final counts by reporting date."""
    first_report: Counts
    """The same as known on the next morning: without late cases, with withdrawn ones."""
    pending: NDArray[np.int64]
    """Cases that are not yet reported after the last day."""


def report(
    country: "Country", preset: Preset, national: Course, ill: Counts, seed: np.random.SeedSequence
) -> Reports:
    """Detect a share of the ill, and delay them by two stages of testing and by the office."""
    test_seed, office_seed, draw_seed, correction_seed, habit_seed = seed.spawn(5)
    days, steps = len(ill), national.steps
    county_of = country.county_of
    shares = found_shares(country, preset, national, np.random.default_rng(test_seed))
    chance = desk_chances(country, preset, national, np.random.default_rng(office_seed))
    rng = np.random.default_rng(draw_seed)
    waiting = np.zeros(ill.shape[1], dtype=np.int64)
    tested, desk = waiting.copy(), waiting.copy()
    onsets, cases = np.empty_like(ill), np.empty_like(ill)
    for day in range(days):
        arrived = rng.binomial(tested, steps.test[day])
        swabbed = rng.binomial(waiting, steps.test[day])
        onsets[day] = rng.binomial(ill[day], shares[day][county_of])
        waiting += onsets[day] - swabbed
        tested += swabbed - arrived
        desk += arrived
        cases[day] = rng.binomial(desk, chance[day][county_of])
        desk -= cases[day]
    rng = np.random.default_rng(correction_seed)
    sending = sent_on(preset.begin, days)
    sent = _sent_at_once(sending, len(country.county_ids), np.random.default_rng(habit_seed))
    first = rng.binomial(cases, sent[:, county_of])
    first += rng.poisson(WITHDRAWN * first)
    return Reports(onsets, cases, first.astype(np.int32), waiting + tested + desk)


def sent_on(first: date, days: int) -> Array:
    """Reports that authorities send on each day, relative to a working day."""
    return np.asarray(SENDING[_office_days(first, days)])


def _sent_at_once(sending: Array, counties: int, rng: np.random.Generator) -> Array:
    """The share of each day's cases, by county, that is known on the next morning."""
    rank = (np.argsort(rng.random((2, counties)), axis=1) + 0.5) / counties
    withheld = betaincinv(*WITHHELD, rank[0])
    habit = np.clip(betaincinv(*PUNCTUAL, rank[1]), 0.01, 0.99)
    days = len(sending), counties
    shares = rng.beta(EVENLY * habit, EVENLY * (1 - habit), size=days)
    return np.where(rng.random(days) < sending[:, None] * (1 - withheld), shares, 0.0)


def found_shares(
    country: "Country", preset: Preset, national: Course, rng: np.random.Generator
) -> Array:
    """Share of infections that will be reported, by day of onset and county."""
    days = len(national.infections)
    noise = over_days(preset, days, "test_noise")[:, None] * smallness(country)
    path = waves(np.full(days, TEST_DAYS), len(country.county_ids), rng)
    share = national.steps.ascertain[:days, None] * np.exp(noise * path - noise**2 / 2)
    return np.asarray(np.minimum(share, 1.0))


def desk_chances(
    country: "Country", preset: Preset, national: Course, rng: np.random.Generator
) -> Array:
    """Probability, by day and county, that a waiting case is reported that day.

    Noise, closed offices and holidays distort the weekly cycle. So the offices' weeks are
    adjusted until the national course has the regimes' weekday factors.
    """
    days = len(national.infections)
    people = country.county_population
    counties = len(people)
    weekday = (preset.begin.weekday() + np.arange(days)) % 7
    office_day = _office_days(preset.begin, days)
    at = [(day - preset.begin).days for day, _ in preset.regimes]
    share = np.stack([np.interp(np.arange(days), at, row) for row in np.eye(len(at))])

    character = rng.normal(size=(counties, 7))
    noise = over_days(preset, days, "report_noise")[:, None] * rng.normal(size=(days, counties))
    rate, length = (over_days(preset, days, name) for name in ("backlog_rate", "backlog_days"))
    pace = np.where(_behind(rate, length, counties, rng), 0.1, 1.0)
    pace[_closed(preset, office_day, share, counties, rng)] = 0.0

    wanted = [np.array(regime.weekday) * 7 / sum(regime.weekday) for _, regime in preset.regimes]
    aim = [factors.copy() for factors in wanted]
    for _ in range(CYCLE_ROUNDS):
        weeks = [
            office_week(aim[i], regime, character, people)
            for i, (_, regime) in enumerate(preset.regimes)
        ]
        usual = sum(share[i, :, None] * week[:, office_day].T for i, week in enumerate(weeks))
        usual = np.clip(usual, 0.005, 0.985)
        chance = pace / (1 + (1 / usual - 1) * np.exp(-noise))
        flow = _cleared(chance, national.infections[:days]) @ people
        for i in range(len(aim)):
            pure = (share[i] == 1) & (np.arange(days) >= BURN_IN)
            if pure.sum() < 7:
                continue
            got = np.array([flow[pure & (weekday == day)].mean() for day in range(7)])
            aim[i] *= (wanted[i] / (got * 7 / got.sum())) ** 0.8
            aim[i] *= 7 / aim[i].sum()
    return np.asarray(chance)


def office_week(
    factors: Array, regime: Regime, character: Array, weight: NDArray[np.int64]
) -> Array:
    """Reporting probabilities of Monday … Sunday in every office for these average factors.

    With one case a day arriving and f reported, the office holds B cases at the start of the day.
    Reporting f of B + 1 has the probability f / (B + 1).
    """
    wobble = character.copy()
    wobble[:, 5] = 0.8 * wobble[:, 6] + 0.6 * wobble[:, 5]
    factor = np.maximum(factors + np.array(regime.weekday_spread) * wobble, 0.02)
    for _ in range(10):
        factor *= factors / np.average(factor, axis=0, weights=weight)
        factor *= 7 / factor.sum(1, keepdims=True)
    left = np.cumsum(1 - factor, axis=1)
    left -= left.min(1, keepdims=True)
    before = np.roll(left, 1, axis=1)
    return np.asarray(np.clip(factor / (before + 1), 0.0, 1.0))


def _cleared(chance: Array, arriving: Array) -> Array:
    """Expected reports, by day and county, if the same cases arrive at every office."""
    desk = np.zeros(chance.shape[1])
    flow = np.empty_like(chance)
    for day, new in enumerate(arriving):
        desk += new
        flow[day] = desk * chance[day]
        desk -= flow[day]
    return flow


def _closed(
    preset: Preset,
    office_day: NDArray[np.int64],
    share: Array,
    counties: int,
    rng: np.random.Generator,
) -> NDArray[np.bool_]:
    """Weekend days without any report, which some authorities have nearly always, most seldom."""
    rank = (rng.permutation(counties) + 0.5) / counties
    # One draw per week: an office that is closed on Saturday is closed on Sunday too.
    week = (office_day[0] + np.arange(len(office_day))) // 7
    luck = rng.random((week[-1] + 1, counties))[week]
    odds = np.zeros((len(office_day), counties))
    for i, (_, regime) in enumerate(preset.regimes):
        for day, mean in zip((5, 6), regime.closed, strict=True):
            habit = betaincinv(UNEVEN * mean, UNEVEN * (1 - mean), rank)
            odds[office_day == day] += share[i, office_day == day, None] * habit
    return np.asarray(luck < odds)


def _behind(
    rate: Array, length: Array, counties: int, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Days on which an authority has a backlog."""
    behind = np.zeros((len(rate), counties), dtype=np.bool_)
    now = np.zeros(counties, dtype=np.bool_)
    for day in range(len(rate)):
        stays = now & (rng.random(counties) > 1 / max(length[day], 1.0))
        now = stays | (rng.random(counties) < rate[day])
        behind[day] = now
    return behind


def _office_days(first: date, days: int) -> NDArray[np.int64]:
    """The weekday by which offices work on each day: Sunday on holidays, Saturday before some."""
    dates = [first + timedelta(days=i) for i in range(days)]
    holidays = country_holidays("DE", years=range(first.year, dates[-1].year + 1))
    weekdays = np.array([day.weekday() for day in dates])
    weekdays[[day in holidays for day in dates]] = 6
    weekdays[[day.month == 12 and day.day in (24, 31) and day.weekday() < 5 for day in dates]] = 5
    return weekdays
