"""The results folder: one writer and one reader for all that commands keep and show.

manifest.json, settings.toml                     what it is, and of what
runs, predictions, convergence.parquet           a grid
backtest.parquet, forecast.parquet, .json        a backtest; where they can be told, parts.parquet
                                                 and nowcast.parquet
levels.parquet                                   of larger regions, where they were asked for
forecast, points.parquet                         an office's week; backtest.parquet and .json once
                                                 earlier weeks can be scored
budgets.json                                     what the same backtest came to at other budgets
backtest/                                        a backtest beside a grid, a folder of its own
data/                                            the simulated country, where there was no data
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import polars as pl
from pydantic import BaseModel, ValidationError

from epifed.errors import EpifedError
from epifed.evaluate.manifest import (
    FORMAT,
    BacktestRecord,
    BudgetRecords,
    GridRecord,
    Kind,
    Manifest,
    Randomness,
    ReleaseRecord,
    WorkRecord,
)
from epifed.evaluate.metrics import METRICS
from epifed.evaluate.results import KEY_TYPES, TRAINED, Results
from epifed.files import read_json, to_json, write_parquet, write_text
from epifed.learner import Parts
from epifed.panel import CasePanel
from epifed.settings import Settings, read_settings, sentence_of
from epifed.simulate.settings import settings_of

EXPECTED = "expected a directory that 'epifed run', 'epifed reproduce' or 'epifed backtest' wrote"
BESIDE = "backtest"
"""A backtest may lie in a folder of this name within a grid's."""
DATA = "data"
"""The country that `epifed run` simulated lies in a folder of this name."""
_MANIFEST, _SETTINGS, _RECORD = "manifest.json", "settings.toml", "backtest.json"
_BUDGETS = "budgets.json"
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
LEVELS = BACKTEST | {"level": pl.String, "weeks_ahead": pl.Int64}


@dataclass(frozen=True)
class BacktestTables:
    """The past forecasts beside what came, the newest forecast, and what they came to."""

    backtest: pl.DataFrame
    forecast: pl.DataFrame
    record: BacktestRecord
    parts: pl.DataFrame | None = None
    """Where the newest forecast's changes come from, if the learner can say."""
    levels: pl.DataFrame | None = None
    """The past forecasts of larger regions, if they were asked for."""
    at_other_budgets: tuple[BacktestRecord, ...] = ()
    """What the same forecasts came to at other budgets, where those were made too."""
    nowcast: pl.DataFrame | None = None
    """The last two weeks as known and as estimated, if it is known when reports came."""

    @property
    def by_budget(self) -> list[BacktestRecord]:
        """The records of all budgets, from the strictest to none."""
        return sorted((self.record, *self.at_other_budgets), key=lambda r: r.epsilon_per_release)


@dataclass(frozen=True)
class WeekTables:
    """An office's forecast of a week; earlier ones beside what came, once something has."""

    forecast: pl.DataFrame
    points: pl.DataFrame
    """Point, and what was known on the day, so that a later week can score the forecast."""
    parts: pl.DataFrame | None = None
    nowcast: pl.DataFrame | None = None
    past: pl.DataFrame | None = None
    record: BacktestRecord | None = None

    @property
    def scored(self) -> BacktestTables | None:
        """The past forecasts as those of a backtest, if some can be scored."""
        if self.past is None or self.record is None:
            return None
        return BacktestTables(
            self.past, self.forecast, self.record, self.parts, nowcast=self.nowcast
        )


@dataclass(frozen=True)
class ResultsFolder:
    """A results folder as it was written."""

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
        """The tables of the backtest: its own, or of the one within, or the scored past."""
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
        """Whether any noise in it can be predicted."""
        own = self.manifest.randomness == "seeded"
        return own or (self.beside is not None and self.beside.seeded)

    @property
    def kept_data(self) -> Path | None:
        """The data directory within it, if that is the simulation its results are of."""
        simulated = self.manifest.data.simulated
        directory = self.path / DATA
        return directory if simulated and settings_of(directory) == simulated else None


@dataclass(frozen=True)
class GridFolder:
    """The folder of a grid, as the paper's tables and figures read it."""

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
        """Every split and period."""
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
    manifest = Manifest.of("backtest", panel, settings)
    frames = {"backtest": tables.backtest, "forecast": tables.forecast}
    optional = {"parts": tables.parts, "levels": tables.levels, "nowcast": tables.nowcast}
    for name, frame in optional.items():
        (path / f"{name}.parquet").unlink(missing_ok=True)
        if frame is not None:
            frames[name] = frame
    records = {_RECORD: tables.record.model_dump()}
    (path / _BUDGETS).unlink(missing_ok=True)
    if tables.at_other_budgets:
        records[_BUDGETS] = {"budgets": [one.model_dump() for one in tables.at_other_budgets]}
    _write(path, manifest, settings, frames, records)


def write_week(
    path: Path,
    panel: CasePanel,
    settings: Settings,
    tables: WeekTables,
    release: ReleaseRecord,
    randomness: Randomness,
) -> None:
    """Write the folder of an office's week."""
    manifest = Manifest.of("week", panel, settings, randomness, release=release)
    named = {"forecast": tables.forecast, "points": tables.points, "backtest": tables.past}
    named |= {"parts": tables.parts, "nowcast": tables.nowcast}
    records = {} if tables.record is None else {_RECORD: tables.record.model_dump()}
    frames = {name: frame for name, frame in named.items() if frame is not None}
    _write(path, manifest, settings, frames, records)


def refuse_other(path: Path, kind: Kind) -> None:
    """Refuse to write into a folder with results of another kind, before anything is computed."""
    manifest = path / _MANIFEST
    found = read_json(manifest, EXPECTED).get("kind") if manifest.is_file() else None
    if found not in (None, kind):
        raise EpifedError(
            f"{path}: found the results of a {found}; expected a new directory for a {kind}"
        )


def read_folder(path: Path) -> ResultsFolder:
    """Read a results folder; what is missing or does not fit is refused in one sentence."""
    if not path.is_dir():
        raise EpifedError(f"{path}: no such directory; {EXPECTED}")
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
            forecast=_some(path, "forecast", FORECAST),
            points=_some(path, "points", POINTS),
            parts=_perhaps(path, "parts", PARTS),
            nowcast=_perhaps(path, "nowcast", NOWCAST),
            past=_perhaps(path, "backtest", BACKTEST),
            record=_checked(BacktestRecord, record) if record.is_file() else None,
        )
        return ResultsFolder(path, manifest, chosen, week)
    tables = BacktestTables(
        backtest=_some(path, "backtest", BACKTEST),
        forecast=_some(path, "forecast", FORECAST),
        record=_checked(BacktestRecord, path / _RECORD),
        parts=_perhaps(path, "parts", PARTS),
        levels=_perhaps(path, "levels", LEVELS),
        nowcast=_perhaps(path, "nowcast", NOWCAST),
        at_other_budgets=_checked(BudgetRecords, path / _BUDGETS).budgets
        if (path / _BUDGETS).is_file()
        else (),
    )
    return ResultsFolder(path, manifest, chosen, tables)


def read_grid(path: Path) -> GridFolder:
    """Read the folder of a grid; a backtest's is refused."""
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
    tables: dict[str, pl.DataFrame],
    records: Mapping[str, object] = MappingProxyType({}),
) -> None:
    """The manifest goes first and comes last, so that it never describes other tables."""
    refuse_other(path, manifest.kind)
    (path / _MANIFEST).unlink(missing_ok=True)
    for name, frame in tables.items():
        write_parquet(path / f"{name}.parquet", frame)
    for name, record in records.items():
        write_text(path / name, to_json(record) + "\n")
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
    """A metric that was registered after the results were computed is empty."""
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


def _perhaps(path: Path, name: str, columns: dict[str, type[pl.DataType]]) -> pl.DataFrame | None:
    """A table that need not be there."""
    return _some(path, name, columns) if (path / f"{name}.parquet").is_file() else None


def _some(path: Path, name: str, columns: dict[str, type[pl.DataType]]) -> pl.DataFrame:
    """A table of exactly these columns, with at least one row."""
    frame = _frame(path, name, columns)
    try:
        frame = frame.select(pl.col(column).cast(kind) for column, kind in columns.items())
    except pl.exceptions.PolarsError as error:
        raise EpifedError(f"{path / name}.parquet: cannot be read ({error}); {EXPECTED}") from None
    if frame.is_empty():
        raise EpifedError(f"{path / name}.parquet: found no rows; {EXPECTED}")
    return frame
