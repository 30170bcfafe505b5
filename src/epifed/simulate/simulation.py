"""Settings in, a country with its epidemic and its reports out."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from epifed.errors import EpifedError
from epifed.panel import CasePanel
from epifed.simulate.country import COMMUNITIES_PER_COUNTY_MAX, Country, make_country
from epifed.simulate.epidemic import BURN_IN, Course, Epidemic, course, spread
from epifed.simulate.presets import PRESETS, Preset
from epifed.simulate.reporting import Reports, report

PresetName = Literal["autumn-2020", "omicron-2022", "pandemic"]
Counts = NDArray[np.int32]


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
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            message = first["msg"].removeprefix("Value error, ")
            message = message.replace("Input should be", "expected")
            if where:
                message = f"{where}: found {first['input']!r}; {message}"
            raise EpifedError(message) from None

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
        """What the data is."""
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
        return CasePanel(
            counts=self.by_county(self.cases).T.astype(np.float64),
            regions=self.country.county_ids,
            names=self.country.county_names,
            population=self.country.county_population,
            **self._about(),
        )

    @cached_property
    def community_panel(self) -> CasePanel:
        """Cases by reporting date, communities × days."""
        return CasePanel(
            counts=self.cases.T.astype(np.float64),
            regions=self.country.community_ids,
            names=self.country.community_names,
            population=self.country.community_population,
            **self._about(),
        )

    def _about(self) -> dict[str, Any]:
        return {
            "start": self.start,
            "source": f"simulated ({self.settings.preset}, seed {self.settings.seed})",
            "attribution": (self.attribution,),
        }


def simulate(
    settings: SimulationSettings | None = None, progress: Callable[[str], None] = lambda _: None
) -> Simulation:
    """Make a country, let an epidemic run through it and report it."""
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
    """The embedded default: 400 counties in autumn 2020."""
    return simulate(SimulationSettings(seed=seed)).county_panel
