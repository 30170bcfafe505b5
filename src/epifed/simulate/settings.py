"""The settings of a simulation, and where a simulated directory keeps them."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from epifed.errors import EpifedError
from epifed.files import read_json
from epifed.simulate.presets import PRESETS, Preset

PresetName = Literal["autumn-2020", "omicron-2022", "pandemic", "crossing"]
COMMUNITIES_PER_COUNTY_MAX = 100
"""On average; the largest county then still has fewer than the 1000 its ids allow."""
SIMULATION = "simulation.json"
"""The file of a simulated directory that says what was simulated."""


CALENDAR = "DE"
"""The code of the calendar whose holidays an invented country has."""


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


def settings_of(folder: Path) -> SimulationSettings | None:
    """The settings of a simulated directory; none if it is not simulated."""
    path = folder / SIMULATION
    if not path.is_file():
        return None
    expected = "expected what 'epifed simulate' wrote"
    found = read_json(path, expected).get("settings")
    if not isinstance(found, dict):
        raise EpifedError(f"{path}: found no settings; {expected}")
    try:
        return SimulationSettings.of(**found)
    except EpifedError as error:
        raise EpifedError(f"{path}: settings: {error}") from None
