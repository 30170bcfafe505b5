"""The settings of a simulation, and its presets: epidemic phases and how they were reported."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from epifed.data.readers.formats import SIMULATION, simulation_record
from epifed.errors import EpifedError, sentence_of

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Regime:
    """The constants of a time; between two regimes they change linearly."""

    latent_days: float
    infectious_days: float
    ascertainment: float
    """Share of infections that are ever reported."""
    delay_days: float
    """From onset to the authority's desk, mean of two equal geometric stages."""
    weekday: tuple[float, ...]
    """Reports of Monday … Sunday relative to the average day."""
    weekday_spread: tuple[float, ...]
    """Standard deviation of these factors between authorities."""
    closed: tuple[float, float]
    """Share of Saturdays and of Sundays on which an authority reports nothing."""
    test_noise: float
    """Standard deviation of the log share of infections an authority finds, over days."""
    report_noise: float
    """Standard deviation of the log-odds that a case on the desk is reported today."""
    backlog_rate: float
    """Probability a day that an authority falls behind."""
    backlog_days: float
    """Mean days until it has caught up."""
    local_spread: float
    """Standard deviation of log R between counties, on its own in each."""
    local_days: float
    """How long such a difference lasts."""
    regional_spread: float
    """The same, shared by counties near to each other."""
    regional_days: float
    caution: float
    """Exponent by which contacts fall where prevalence is above the country's, and rise below."""
    superspreading: float
    """k: dispersion of the number a person infects; small is uneven."""


@dataclass(frozen=True)
class Preset:
    """A phase: its days, the national reproduction number and the level to meet."""

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
    """Share of the people who can be infected at the start."""
    waning: float = 0.0
    """Share of the recovered who can be infected again, per day."""
    initial_spread: float = 1.2
    """Standard deviation of log incidence between counties at the start."""
    eastward: tuple[tuple[date, float], ...] = ()
    """By how much log R is higher a deviation further east, on some days, linear in between."""

    @property
    def days(self) -> int:
        """Number of days, both ends included."""
        return (self.end - self.start).days + 1


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
"""Regions that differ by little of their own."""


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


def over_days(
    preset: Preset, first: date, days: int, read: Callable[[Regime], float | tuple[float, ...]]
) -> Array:
    """A constant of the regimes on each day, changing linearly from regime to regime."""
    at = [(day - first).days for day, _ in preset.regimes]
    values = np.array([read(regime) for _, regime in preset.regimes], dtype=np.float64)
    when = np.arange(days)
    if values.ndim == 1:
        return np.interp(when, at, values)
    return np.stack([np.interp(when, at, column) for column in values.T], axis=1)


def eastward(preset: Preset, first: date, days: int) -> Array:
    """By how much log R is higher a deviation further east, on each day."""
    if not preset.eastward:
        return np.zeros(days)
    at = [(day - first).days for day, _ in preset.eastward]
    return np.interp(np.arange(days), at, [tilt for _, tilt in preset.eastward])


def reproduction(preset: Preset, first: date, days: int) -> Array:
    """The preset's national R on each day."""
    start = (preset.knots_from - first).days
    at = start + preset.knots_every * np.arange(len(preset.reproduction))
    return np.interp(np.arange(days), at, preset.reproduction)


PresetName = Literal["autumn-2020", "omicron-2022", "pandemic", "crossing"]
COMMUNITIES_PER_COUNTY_MAX = 100
"""On average; the largest county then still has fewer than the 1000 its ids allow."""


class SimulationSettings(BaseModel):
    """An invented country and its epidemic, completely described."""

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
        """Settings from keyword values; what does not fit is one sentence."""
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


def is_simulated(path: Path) -> bool:
    """Whether a directory, or a file of one, is marked as invented by 'epifed simulate'."""
    return ((path if path.is_dir() else path.parent) / SIMULATION).is_file()
