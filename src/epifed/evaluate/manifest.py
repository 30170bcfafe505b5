"""The manifest of a results folder: what kind it is and what it was computed from, in fields."""

import platform
from datetime import UTC, date, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict

from epifed.days import Step
from epifed.panel import CasePanel
from epifed.settings import Settings, SplitName
from epifed.simulate import SimulationSettings

FORMAT: Literal[2] = 2
Kind = Literal["grid", "backtest", "week"]
Randomness = Literal["seeded", "secure"]
LIBRARIES = ("torch", "numpy", "polars", "dp-accounting", "joblib")


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class DataRecord(_Record):
    """The case data behind results."""

    source: str
    sha256: str
    regions: int
    first_day: date
    last_day: date
    attribution: tuple[str, ...]
    simulated: SimulationSettings | None
    """Invented cases: the settings that make them again. Real ones: none."""

    @classmethod
    def of(cls, panel: CasePanel) -> Self:
        """What there is to say about a panel."""
        return cls(
            source=Path(panel.source).name,
            sha256=panel.digest(),
            regions=len(panel.regions),
            first_day=panel.start,
            last_day=panel.end,
            attribution=panel.attribution,
            simulated=SimulationSettings.of(**panel.simulated) if panel.simulated else None,
        )

    def is_of(self, panel: CasePanel) -> bool:
        """Whether the results were computed from this panel, or from a stretch of its days."""
        if not panel.start <= self.first_day <= self.last_day <= panel.end:
            return False
        return panel.between(self.first_day, self.last_day).digest() == self.sha256


class GridRecord(_Record):
    """What a grid compared."""

    splits: tuple[SplitName, ...]
    periods: dict[str, tuple[date, date]]
    epsilons: tuple[float, ...]
    runs: int
    baselines: tuple[str, ...]
    baseline_runs: int
    resplit: bool


class WorkRecord(_Record):
    """How much was computed, and how long it took."""

    tasks: int
    tasks_of_this_call: int
    seconds_of_all_tasks: float
    seconds_of_this_call: float


class BacktestRecord(_Record):
    """What a whole backtest came to; a ratio is none where it does not exist."""

    mae_ratio: float | None
    """To persistence as it was known."""
    mae_ratio_final: float | None
    """To persistence on final counts, which nobody had."""
    nowcast_mae_ratio: float | None
    """Of the estimate of the last week, to the count as it was known; none on final counts."""
    wis_ratio: float | None
    coverage_50: float | None
    coverage_95: float | None
    worst_month_mae_ratio: float | None
    worst_month: str
    epsilon_per_release: float
    epsilon_total: float
    noise_multiplier: float
    delta: float
    accountant: str
    learner: str
    step: Step = "day"
    horizon: int
    origins: int
    releases: int
    first_origin: date
    last_origin: date
    regions: int
    real_time: bool
    levels: tuple[dict[str, Any], ...] = ()
    """The scores of each larger region's level and week, if they were asked for."""


class BudgetRecords(_Record):
    """What the same backtest came to at other budgets."""

    budgets: tuple[BacktestRecord, ...]


class ReleaseRecord(_Record):
    """The release that an office's forecast was made with."""

    training: str
    sha256: str
    last_day: date
    learner: str
    epsilon: float
    delta: float
    accountant: str
    releases: int
    """Releases that the forecast knows, this one included."""
    epsilon_total: float
    """Of all of them together."""
    noise_multiplier: float


class Manifest(_Record):
    """What a results folder says about itself; with the command, all that doing it again takes."""

    format: Literal[2] = FORMAT
    kind: Kind
    epifed: str
    finished: datetime
    randomness: Randomness
    """`seeded`: the noise can be predicted, so nothing may be released. `secure`: it cannot."""
    settings_sha256: str
    """Of settings.toml beside it."""
    data: DataRecord
    grid: GridRecord | None = None
    work: WorkRecord | None = None
    release: ReleaseRecord | None = None
    versions: dict[str, str]

    @classmethod
    def of(
        cls,
        kind: Kind,
        panel: CasePanel,
        settings: Settings,
        randomness: Randomness = "seeded",
        **more: Any,
    ) -> Self:
        """The manifest of results that were finished just now."""
        return cls(
            kind=kind,
            epifed=version("epifed"),
            finished=datetime.now(UTC).replace(microsecond=0),
            randomness=randomness,
            settings_sha256=settings.digest(),
            data=DataRecord.of(panel),
            versions={"python": platform.python_version()} | _versions(),
            **more,
        )


def _versions() -> dict[str, str]:
    """Of the libraries that are installed."""
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
