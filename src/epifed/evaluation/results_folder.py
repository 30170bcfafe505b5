"""The results folder: one writer and one reader for all results that commands store and show.

manifest.json, settings.toml                what kind of results, and their settings
runs, predictions, convergence.parquet      a grid
backtest.parquet, forecast.parquet, .json   a backtest; also parts.parquet, nowcast.parquet
levels.parquet                              larger regions, where asked for
forecast, points.parquet                    an office's week; backtest files once scored
budgets.json                                the same backtest at other budgets
backtest/                                   a backtest beside a grid, a folder of its own
data/                                       the simulated country, if there was no data
"""

import hashlib
import platform
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Self, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from epifed.data.calendar import Step
from epifed.data.panel import CasePanel
from epifed.errors import EpifedError, sentence_of
from epifed.evaluation.metrics import METRICS, scores, strata
from epifed.files import (
    Part,
    read_json,
    to_json,
    write_parquet,
    write_sheet,
    write_text,
)
from epifed.learners.base import Parts
from epifed.settings import Settings, SplitName, read_settings
from epifed.simulate import SimulationSettings
from epifed.simulate.epidemic import settings_of
from epifed.training.loop import Clients

FEDERATED = "federated"
"""The method name of the paper's learner; another learner's is its own name."""
TRAINED = pl.col("epsilon").is_not_null()
"""Rows of a training by any learner; a baseline has no budget."""
ALL = "all"
KEYS = ("split", "period", "method", "epsilon", "run")
CURVE_COLUMNS = ("round", "train_mse", "test_mse", "test_mape")
KEY_TYPES: dict[str, type[pl.DataType]] = {
    "split": pl.String,
    "period": pl.String,
    "method": pl.String,
    "epsilon": pl.Float64,
    "run": pl.Int32,
}


@dataclass(frozen=True)
class Results:
    """The tidy tables of a grid. `epsilon` is null for a baseline and inf for no privacy.

    Parameters
    ----------
    runs : DataFrame
        A row for each run and population stratum: the metrics, and what the run cost.
    predictions : DataFrame
        A row for each run, region and test day, in cases per day.
    convergence : DataFrame
        A row for each run and evaluated round.

    Examples
    --------
    >>> empty = pl.DataFrame()
    >>> Results(empty, empty, empty).runs.is_empty()
    True
    """

    runs: pl.DataFrame
    """One row per run and population stratum, with the metrics and the privacy cost."""
    predictions: pl.DataFrame
    """One row per run, region and test day."""
    convergence: pl.DataFrame
    """One row per run and evaluated round."""


def method_of(settings: Settings) -> str:
    """The method name of a training in tables."""
    return FEDERATED if settings.learner == "fedavg" else settings.learner


def gather(parts: list[tuple[dict[str, object], Part, Clients]]) -> Results:
    """Score the parts of a grid, each with its keys and the clients of its test."""
    runs: list[dict[str, object]] = []
    predictions: list[pl.DataFrame] = []
    curves: list[pl.DataFrame] = []
    for keys, part, clients in parts:
        truth = clients.test.targets.astype(np.float64)
        like_today = clients.test.inputs[..., -1].astype(np.float64)
        prediction = part["prediction"]
        cost = {
            name: float(part[name]) if name in part else None
            for name in ("noise_multiplier", "epsilon_spent", "mean_cohort")
        }
        runs += [
            keys
            | {"stratum": name, "regions": int(chosen.sum())}
            | scores(truth[chosen], prediction[chosen], like_today[chosen])
            | {"mae_per_100k": _mae_per_100k(clients, prediction, chosen)}
            | cost
            for name, chosen in _clusters(clients)
        ]
        regions = np.repeat(np.array(clients.regions, dtype=object), truth.shape[1])
        columns = {
            "region": pl.Series(regions, dtype=pl.String),
            "target_day": pl.Series(clients.test.target_days.ravel()).cast(pl.Date),
            "truth": truth.ravel(),
            "prediction": prediction.ravel(),
        }
        predictions.append(_with_keys(pl.DataFrame(columns), keys))
        if "convergence" in part:
            frame = pl.DataFrame(part["convergence"], schema=CURVE_COLUMNS, orient="row")
            curves.append(_with_keys(frame.with_columns(pl.col("round").cast(pl.Int32)), keys))
    measured: dict[str, type[pl.DataType]] = dict.fromkeys(
        (*METRICS, "zeros", "mae_per_100k", "noise_multiplier", "epsilon_spent", "mean_cohort"),
        pl.Float64,
    )
    kinds = KEY_TYPES | {"stratum": pl.String, "regions": pl.Int64} | measured
    return Results(
        pl.DataFrame(runs, schema=kinds, orient="row"),
        pl.concat(predictions),
        pl.concat(curves) if curves else pl.DataFrame(schema=KEY_TYPES),
    )


def _clusters(clients: Clients) -> list[tuple[str, NDArray[np.bool_]]]:
    """All regions, then the population clusters that have any."""
    everybody = (ALL, np.ones(len(clients), dtype=np.bool_))
    if clients.population is None:
        return [everybody]
    return [everybody, *(some for some in strata(clients.population) if some[1].any())]


def _mae_per_100k(
    clients: Clients, prediction: NDArray[np.float64], chosen: NDArray[np.bool_]
) -> float:
    """Mean absolute error over the chosen regions, each per 100,000 of its inhabitants."""
    if clients.population is None:
        return np.nan
    error = np.abs(prediction - clients.test.targets)[chosen]
    return float((1e5 * error / clients.population[chosen, None]).mean())


def summary(runs: pl.DataFrame) -> pl.DataFrame:
    """Mean and standard deviation over the runs of each method and budget, over all regions."""
    return (
        runs.filter(pl.col("stratum") == ALL)
        .group_by("split", "period", "method", "epsilon", maintain_order=True)
        .agg(
            pl.len().alias("runs"),
            *(pl.col(m).mean().alias(f"{m}_mean") for m in METRICS),
            *(pl.col(m).std().alias(f"{m}_std") for m in METRICS),
            pl.col("zeros").first(),
        )
    )


def _with_keys(frame: pl.DataFrame, keys: dict[str, object]) -> pl.DataFrame:
    return frame.select(
        *(pl.lit(keys[name], dtype=KEY_TYPES[name]).alias(name) for name in KEYS), pl.all()
    )


FORMAT: Literal[2] = 2
Kind = Literal["grid", "backtest", "week"]
Randomness = Literal["seeded", "secure", "none"]
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
    """For simulated cases: the settings that reproduce them; none for real cases."""

    @classmethod
    def of(cls, panel: CasePanel) -> Self:
        """The record of a panel."""
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
        """Whether the results were computed from this panel, or from a part of its days."""
        if not panel.start <= self.first_day <= self.last_day <= panel.end:
            return False
        return panel.between(self.first_day, self.last_day).digest() == self.sha256


class GridRecord(_Record):
    """The comparisons of a grid."""

    splits: tuple[SplitName, ...]
    periods: dict[str, tuple[date, date]]
    epsilons: tuple[float, ...]
    runs: int
    baselines: tuple[str, ...]
    baseline_runs: int
    resplit: bool


class WorkRecord(_Record):
    """The number of tasks, and the time they took."""

    tasks: int
    tasks_of_this_call: int
    seconds_of_all_tasks: float
    seconds_of_this_call: float


class BacktestRecord(_Record):
    """The scores of a whole backtest; a ratio is none where it is not defined."""

    mae_ratio: float | None
    """Relative to persistence as known on the day."""
    mae_ratio_final: float | None
    """Relative to persistence on final counts, which were not known on the day."""
    nowcast_mae_ratio: float | None
    """Error of the estimated last week, relative to the count known then; none on final counts."""
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
    """The scores of each larger region's level and week, if requested."""
    metrics: dict[str, float | None] = Field(default_factory=dict)
    """Every registered metric of the point forecasts, by name; none where it is not defined."""


class BudgetRecords(_Record):
    """The scores of the same backtest at other budgets."""

    budgets: tuple[BacktestRecord, ...]


class ReleaseRecord(_Record):
    """The release behind an office's forecast."""

    training: str
    sha256: str
    last_day: date
    learner: str
    epsilon: float
    delta: float
    accountant: str
    releases: int
    """Number of releases used by the forecast, this one included."""
    epsilon_total: float
    """The ε of all of them together."""
    noise_multiplier: float
    real_time_since: date | None = None
    """Since when the office's late reports are completed; none: they are not."""


class ForecastRecord(_Record):
    """The method of a forecast and the notes on it."""

    method: Literal["learner", "persistence"] = "learner"
    """Persistence, where the learner was worse on the file's own past."""
    reason: str = ""
    """A sentence on why this method was used."""
    origins: int = 0
    """For a forecast from a file alone: past weeks on which the learner was tested."""
    relative_mae: float | None = None
    """The learner's relative MAE there, one week ahead."""
    relative_mae_together: float | None = None
    """The same for all weeks ahead together."""
    incomplete_days: int = 0
    """Number of newest days that were left out as incomplete."""
    notes: tuple[str, ...] = ()


class Manifest(_Record):
    """The content and origin of a results folder; with the command, enough to repeat it."""

    format: Literal[2] = FORMAT
    kind: Kind
    epifed: str
    finished: datetime
    randomness: Randomness
    """`seeded`: the noise is predictable, so nothing may be released. `secure`: it is not.
    `none`: there is no noise, because a file alone was used and nothing leaves."""
    settings_sha256: str
    """The SHA-256 of settings.toml in the same folder."""
    data: DataRecord
    grid: GridRecord | None = None
    work: WorkRecord | None = None
    release: ReleaseRecord | None = None
    forecast: ForecastRecord | None = None
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
    """The versions of the installed libraries."""
    versions = {}
    for name in LIBRARIES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


EXPECTED = (
    "expected a directory that 'epifed run', 'epifed reproduce', 'epifed backtest' or "
    "'epifed forecast' wrote"
)
BESIDE = "backtest"
"""The folder of a backtest within a grid's folder."""
RESULTS = "results"
"""The folder of the tables of a forecast from a file alone, beside its page."""
DATA = "data"
"""The folder of the country that `epifed run` simulated."""
_MANIFEST, _SETTINGS, _RECORD = "manifest.json", "settings.toml", "backtest.json"
_BUDGETS = "budgets.json"
_KINDS = {"grid": "grid", "backtest": "backtest", "week": "forecast"}
"""The kinds of folders, in words."""
_KEYS: dict[str, type[pl.DataType]] = {
    "origin_date": pl.Date,
    "region": pl.String,
    "horizon": pl.Int64,
    "target_date": pl.Date,
}
_VALUES = (
    "truth",
    "persistence",
    "persistence_final",
    "nowcast",
    "point",
    "lower_95",
    "lower_50",
    "upper_50",
    "upper_95",
    "wis",
    "baseline_wis",
)
Record = TypeVar("Record", bound=BaseModel)
FORECAST = _KEYS | {"level": pl.Float64, "value": pl.Float64}
PARTS: dict[str, type[pl.DataType]] = {
    "region": pl.String,
    "horizon": pl.Int64,
    **dict.fromkeys((field.name for field in fields(Parts)), pl.Float64),
}
NOWCAST: dict[str, type[pl.DataType]] = {
    "as_of": pl.Date,
    "region": pl.String,
    "date": pl.Date,
    **dict.fromkeys(("known", "estimate", "lower", "upper", "r", "r_lower", "r_upper"), pl.Float64),
}
POINTS: dict[str, type[pl.DataType]] = {
    "region": pl.String,
    "horizon": pl.Int64,
    **dict.fromkeys(("point", "persistence", "completed"), pl.Float64),
}
BACKTEST = _KEYS | dict.fromkeys(_VALUES, pl.Float64)
_COLUMNS = {
    "backtest": BACKTEST,
    "forecast": FORECAST,
    "levels": BACKTEST | {"level": pl.String, "weeks_ahead": pl.Int64},
    "nowcast": NOWCAST,
    "parts": PARTS,
    "points": POINTS,
    "total": FORECAST,
}
"""The columns of each table besides those of a grid."""
_OPTIONAL = ("parts", "levels", "nowcast", "total")
"""The tables that a backtest may lack."""


@dataclass(frozen=True)
class BacktestTables:
    """The past forecasts with observed counts, the newest forecast, and the scores."""

    backtest: pl.DataFrame
    forecast: pl.DataFrame
    record: BacktestRecord
    parts: pl.DataFrame | None = None
    """The parts of the newest forecast's changes, if the learner can tell."""
    levels: pl.DataFrame | None = None
    """The past forecasts of larger regions, if requested."""
    at_other_budgets: tuple[BacktestRecord, ...] = ()
    """The scores of the same forecasts at other budgets, if computed."""
    nowcast: pl.DataFrame | None = None
    """The last two weeks as known and as estimated, if reporting delays are known."""
    total: pl.DataFrame | None = None
    """The newest forecast of all regions together."""

    @property
    def by_budget(self) -> list[BacktestRecord]:
        """The records of all budgets, from the strictest to none."""
        return sorted((self.record, *self.at_other_budgets), key=lambda r: r.epsilon_per_release)


@dataclass(frozen=True)
class WeekTables:
    """A forecast from a release or a file alone, with scored past forecasts, if any."""

    forecast: pl.DataFrame
    points: pl.DataFrame
    """The points and the counts known on the day, so that a later week can score the forecast."""
    parts: pl.DataFrame | None = None
    nowcast: pl.DataFrame | None = None
    past: pl.DataFrame | None = None
    record: BacktestRecord | None = None
    total: pl.DataFrame | None = None

    @property
    def scored(self) -> BacktestTables | None:
        """The past forecasts as those of a backtest, if some can be scored."""
        if self.past is None or self.record is None:
            return None
        return BacktestTables(
            self.past,
            self.forecast,
            self.record,
            self.parts,
            nowcast=self.nowcast,
            total=self.total,
        )


@dataclass(frozen=True)
class ResultsFolder:
    """The content of a results folder."""

    path: Path
    manifest: Manifest
    settings: Settings
    tables: Results | BacktestTables | WeekTables
    beside: "ResultsFolder | None" = None
    """The backtest within a grid's folder."""

    @property
    def grid(self) -> Results | None:
        """The tables of the grid, if it is one."""
        return self.tables if isinstance(self.tables, Results) else None

    @property
    def backtest(self) -> BacktestTables | None:
        """The tables of the backtest: its own, the one within a grid, or the scored past weeks."""
        if isinstance(self.tables, BacktestTables):
            return self.tables
        if isinstance(self.tables, WeekTables):
            return self.tables.scored
        return self.beside.backtest if self.beside else None

    @property
    def newest(self) -> BacktestTables | WeekTables | None:
        """The tables with the newest forecast, if there is one."""
        return self.tables if isinstance(self.tables, WeekTables) else self.backtest

    @property
    def seeded(self) -> bool:
        """Whether any noise in it is predictable."""
        own = self.manifest.randomness == "seeded"
        return own or (self.beside is not None and self.beside.seeded)

    @property
    def data_folder(self) -> Path | None:
        """The data directory within it, if it holds the simulation behind its results."""
        simulated = self.manifest.data.simulated
        directory = self.path / DATA
        return directory if simulated and settings_of(directory) == simulated else None


@dataclass(frozen=True)
class GridFolder:
    """The folder of a grid, as read for the paper's tables and figures."""

    folder: ResultsFolder
    results: Results
    grid: GridRecord

    @property
    def settings(self) -> Settings:
        """The settings that all trainings share."""
        return self.folder.settings

    @property
    def epsilons(self) -> list[float]:
        """The budgets, from the strictest to none."""
        budgets = self.results.runs.filter(TRAINED)["epsilon"]
        return budgets.unique().sort().to_list()

    @property
    def cells(self) -> list[tuple[str, str]]:
        """Every pair of split and period."""
        return [(split, period) for split in self.grid.splits for period in self.grid.periods]


def write_grid(
    path: Path,
    panel: CasePanel,
    settings: Settings,
    results: Results,
    grid: GridRecord,
    work: WorkRecord,
) -> None:
    """Write the folder of a grid."""
    tables = {field.name: getattr(results, field.name) for field in fields(Results)}
    _write(path, Manifest.of("grid", panel, settings, grid=grid, work=work), settings, tables)


def write_backtest(
    path: Path, panel: CasePanel, settings: Settings, tables: BacktestTables
) -> None:
    """Write the folder of a backtest."""
    frames = {name: getattr(tables, name) for name in ("backtest", "forecast", *_OPTIONAL)}
    others = BudgetRecords(budgets=tables.at_other_budgets) if tables.at_other_budgets else None
    records = {_RECORD: tables.record, _BUDGETS: others}
    _write(path, Manifest.of("backtest", panel, settings), settings, frames, records)


def write_forecast(
    path: Path,
    panel: CasePanel,
    settings: Settings,
    tables: WeekTables,
    readable: pl.DataFrame,
    *,
    randomness: Randomness,
    about: ForecastRecord,
    release: ReleaseRecord | None = None,
    beside: Mapping[str, pl.DataFrame | None] = MappingProxyType({}),
) -> None:
    """Write the folder of a forecast; `readable` becomes forecast.csv.

    `beside` are further tables, by name, that the page does not use.
    """
    manifest = Manifest.of("week", panel, settings, randomness, release=release, forecast=about)
    names = ("forecast", "points", "parts", "nowcast", "total")
    frames = {name: getattr(tables, name) for name in names} | {"backtest": tables.past, **beside}
    _write(path, manifest, settings, frames, {_RECORD: tables.record})
    write_sheet(path / "forecast.csv", readable)


def refuse_other(path: Path, kind: Kind) -> None:
    """Refuse a folder with results of another kind, before anything is computed."""
    manifest = path / _MANIFEST
    other = read_json(manifest, EXPECTED).get("kind") if manifest.is_file() else None
    if other not in (None, kind):
        raise EpifedError(
            f"{path}: found the results of a {_KINDS.get(str(other), other)}; expected a new "
            f"directory for a {_KINDS[kind]}"
        )


def read_folder(path: Path) -> ResultsFolder:
    """Read a results folder; a missing or wrong part raises an error of one sentence."""
    if not path.is_dir():
        raise EpifedError(f"{path}: no such directory; {EXPECTED}")
    if not (path / _MANIFEST).is_file() and (path / RESULTS / _MANIFEST).is_file():
        path = path / RESULTS
    if not (path / _MANIFEST).is_file():
        raise EpifedError(f"{path}: found no results; {EXPECTED}")
    manifest = _manifest(path / _MANIFEST)
    settings = path / _SETTINGS
    chosen = read_settings(settings)
    if hashlib.sha256(settings.read_bytes()).hexdigest() != manifest.settings_sha256:
        raise EpifedError(
            f"{settings}: found other settings than those of the results; expected the file with "
            f"the SHA-256 {manifest.settings_sha256[:12]}…"
        )
    if manifest.kind == "grid":
        frames = {field.name: _frame(path, field.name, KEY_TYPES) for field in fields(Results)}
        frames["runs"] = _with_all_metrics(frames["runs"])
        within = path / BESIDE
        beside = read_folder(within) if (within / _MANIFEST).is_file() else None
        return ResultsFolder(path, manifest, chosen, Results(**frames), beside)
    if manifest.kind == "week":
        record = path / _RECORD
        week = WeekTables(
            forecast=_some(path, "forecast"),
            points=_some(path, "points"),
            parts=_perhaps(path, "parts"),
            nowcast=_perhaps(path, "nowcast"),
            total=_perhaps(path, "total"),
            past=_perhaps(path, "backtest"),
            record=_checked(BacktestRecord, record) if record.is_file() else None,
        )
        return ResultsFolder(path, manifest, chosen, week)
    optional: dict[str, Any] = {name: _perhaps(path, name) for name in _OPTIONAL}
    budgets = path / _BUDGETS
    tables = BacktestTables(
        backtest=_some(path, "backtest"),
        forecast=_some(path, "forecast"),
        **optional,
        record=_checked(BacktestRecord, path / _RECORD),
        at_other_budgets=_checked(BudgetRecords, budgets).budgets if budgets.is_file() else (),
    )
    return ResultsFolder(path, manifest, chosen, tables)


def read_grid(path: Path) -> GridFolder:
    """Read the folder of a grid; other folders are refused."""
    folder = read_folder(path)
    if folder.grid is None or folder.manifest.grid is None:
        raise EpifedError(
            f"{path}: found the results of a {folder.manifest.kind}; expected a directory that "
            "'epifed run' or 'epifed reproduce' wrote"
        )
    return GridFolder(folder, folder.grid, folder.manifest.grid)


def _write(
    path: Path,
    manifest: Manifest,
    settings: Settings,
    tables: Mapping[str, pl.DataFrame | None],
    records: Mapping[str, BaseModel | None] = MappingProxyType({}),
) -> None:
    """Write all files, and remove those of none; the manifest is removed first and written last."""
    refuse_other(path, manifest.kind)
    (path / _MANIFEST).unlink(missing_ok=True)
    for name, frame in tables.items():
        file = path / f"{name}.parquet"
        file.unlink(missing_ok=True) if frame is None else write_parquet(file, frame)
    for name, record in records.items():
        if record is None:
            (path / name).unlink(missing_ok=True)
        else:
            write_text(path / name, to_json(record.model_dump()) + "\n")
    write_text(path / _SETTINGS, settings.to_toml())
    write_text(path / _MANIFEST, to_json(manifest.model_dump()) + "\n")


def _manifest(path: Path) -> Manifest:
    if read_json(path, EXPECTED).get("format") != FORMAT:
        raise EpifedError(
            f'{path}: found no "format": {FORMAT}, so another version of epifed wrote it; '
            "expected a folder by this one: give the same command the same --out again, which "
            "computes only what is missing"
        )
    return _checked(Manifest, path)


def _checked(kind: type[Record], path: Path) -> Record:
    try:
        return kind.model_validate(read_json(path, EXPECTED))
    except ValidationError as error:
        raise EpifedError(f"{path}: {sentence_of(error)}; {EXPECTED}") from None


def _with_all_metrics(runs: pl.DataFrame) -> pl.DataFrame:
    """Add empty columns for metrics that were registered after the results were computed."""
    later = [name for name in METRICS if name not in runs.columns]
    return runs.with_columns(pl.lit(None, dtype=pl.Float64).alias(name) for name in later)


def _frame(path: Path, name: str, columns: dict[str, type[pl.DataType]]) -> pl.DataFrame:
    file = path / f"{name}.parquet"
    try:
        frame = pl.read_parquet(file)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise EpifedError(f"{file}: cannot be read ({error}); {EXPECTED}") from None
    absent = [column for column in columns if column not in frame.columns]
    if absent:
        raise EpifedError(f"{file}: found no column '{absent[0]}'; {EXPECTED}")
    return frame


def _perhaps(path: Path, name: str) -> pl.DataFrame | None:
    """An optional table of a folder."""
    return _some(path, name) if (path / f"{name}.parquet").is_file() else None


def _some(path: Path, name: str) -> pl.DataFrame:
    """A table of exactly its columns, with at least one row."""
    columns = _COLUMNS[name]
    frame = _frame(path, name, columns)
    try:
        frame = frame.select(pl.col(column).cast(kind) for column, kind in columns.items())
    except pl.exceptions.PolarsError as error:
        raise EpifedError(f"{path / name}.parquet: cannot be read ({error}); {EXPECTED}") from None
    if frame.is_empty():
        raise EpifedError(f"{path / name}.parquet: found no rows; {EXPECTED}")
    return frame
