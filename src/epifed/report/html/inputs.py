"""What a results directory holds for the report; every part of it may be missing."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from epifed.errors import EpifedError
from epifed.evaluate.results import Results
from epifed.files import read_json
from epifed.settings import Settings, read_settings

EXPECTED = "expected a directory that 'epifed run', 'epifed reproduce' or 'epifed backtest' wrote"
BESIDE = "backtest"
"""A backtest may lie in a folder of this name within a grid's, with a manifest of its own."""
_VALUES = (
    "truth",
    "persistence",
    "point",
    "lower_95",
    "lower_50",
    "upper_50",
    "upper_95",
    "wis",
    "baseline_wis",
)
_KEYS: dict[str, type[pl.DataType]] = {
    "origin_date": pl.Date,
    "region": pl.String,
    "horizon": pl.Int64,
    "target_date": pl.Date,
}
FORECAST = _KEYS | {"level": pl.Float64, "value": pl.Float64}
BACKTEST = _KEYS | dict.fromkeys(_VALUES, pl.Float64)
LEVELS = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)
"""The quantiles the page shows: the median, and the ends of the 50, 80 and 95 % intervals."""


@dataclass(frozen=True)
class Inputs:
    """The files of a results directory, as far as they are there."""

    directory: Path
    manifest: dict[str, Any]
    settings: Settings | None
    grid: Results | None
    forecast: pl.DataFrame | None
    backtest: pl.DataFrame | None
    record: dict[str, Any]
    """backtest.json: what the whole backtest came to."""

    @property
    def data(self) -> dict[str, Any]:
        """What the manifest says of the case data."""
        found = self.manifest.get("data")
        return found if isinstance(found, dict) else {}

    @property
    def attribution(self) -> tuple[str, ...]:
        """The sources that the manifest names."""
        return tuple(str(line) for line in self.data.get("attribution") or ())

    @property
    def describes_grid(self) -> bool:
        """Whether manifest and settings are those of the grid, not of a backtest put over it."""
        return self.grid is not None and "grid" in self.manifest and self.settings is not None

    @property
    def seeded(self) -> bool | None:
        """Whether the noise can be predicted; none if nothing says where it came from."""
        said = [source.get("noise") for source in (self.manifest, self.record)]
        texts = [text for text in said if isinstance(text, str)]
        return any(text.startswith("seeded") for text in texts) if texts else None


def read_inputs(directory: Path) -> Inputs:
    """Read what is there; a directory with nothing to show is refused."""
    if not directory.is_dir():
        raise EpifedError(f"{directory}: no such directory; {EXPECTED}")

    beside = directory / BESIDE if (directory / BESIDE).is_dir() else directory
    runs = directory / "runs.parquet"
    forecast, backtest = beside / "forecast.parquet", beside / "backtest.parquet"
    if not any(path.is_file() for path in (runs, forecast, backtest)):
        raise EpifedError(
            f"{directory}: found none of runs.parquet, forecast.parquet, backtest.parquet; "
            f"{EXPECTED}"
        )
    described = directory if (directory / "manifest.json").is_file() else beside
    toml = described / "settings.toml"
    return Inputs(
        directory=directory,
        manifest=_json(described / "manifest.json"),
        settings=read_settings(toml) if toml.is_file() else None,
        grid=Results.read(directory) if runs.is_file() else None,
        forecast=_forecast(forecast) if forecast.is_file() else None,
        backtest=_table(backtest, BACKTEST) if backtest.is_file() else None,
        record=_json(beside / "backtest.json"),
    )


def _forecast(path: Path) -> pl.DataFrame:
    frame = _table(path, FORECAST).filter(pl.col("origin_date") == pl.col("origin_date").max())
    levels = frame["level"].round(4).unique().to_list()
    absent = [level for level in LEVELS if level not in levels]
    if absent:
        raise EpifedError(f"{path}: found no level {absent[0]:g}; expected {len(LEVELS)} of them: "
                          f"{', '.join(f'{level:g}' for level in LEVELS)}")  # fmt: skip
    return frame.with_columns(pl.col("level").round(4)).filter(pl.col("level").is_in(LEVELS))


def _table(path: Path, columns: dict[str, type[pl.DataType]]) -> pl.DataFrame:
    try:
        frame = pl.read_parquet(path)
        absent = [name for name in columns if name not in frame.columns]
        if absent:
            raise EpifedError(f"{path}: found no column '{absent[0]}'; {EXPECTED}")
        frame = frame.select(pl.col(name).cast(kind) for name, kind in columns.items())
    except (OSError, pl.exceptions.PolarsError) as error:
        raise EpifedError(f"{path}: cannot be read ({error}); {EXPECTED}") from None
    if frame.is_empty():
        raise EpifedError(f"{path}: found no rows; {EXPECTED}")
    return frame


def _json(path: Path) -> dict[str, Any]:
    return read_json(path, EXPECTED) if path.is_file() else {}
