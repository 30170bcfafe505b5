"""Settings in, a country with its epidemic and its reports out."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epifed.panel import CasePanel
from epifed.simulate.country import Country, make_country
from epifed.simulate.epidemic import BURN_IN, Course, Epidemic, course, spread
from epifed.simulate.reporting import Reports, report
from epifed.simulate.settings import CALENDAR, SimulationSettings

Counts = NDArray[np.int32]


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
            regions_given=True,
            names=self.country.county_names,
            population=self.country.county_population,
            calendars=(CALENDAR,) * len(self.country.county_ids),
            **self._about(),
        )

    @cached_property
    def community_panel(self) -> CasePanel:
        """Cases by reporting date, communities × days."""
        return CasePanel(
            counts=self.cases.T.astype(np.float64),
            regions=self.country.community_ids,
            regions_given=True,
            names=self.country.community_names,
            population=self.country.community_population,
            calendars=(CALENDAR,) * len(self.country.community_ids),
            **self._about(),
        )

    def _about(self) -> dict[str, Any]:
        return {
            "start": self.start,
            "source": f"simulated ({self.settings.preset}, seed {self.settings.seed})",
            "attribution": (self.attribution,),
            "simulated": self.settings.model_dump(),
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
