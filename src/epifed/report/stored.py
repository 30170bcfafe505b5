"""A results directory as the report reads it: the tables, and what they were computed from."""

from dataclasses import dataclass
from datetime import date
from pathlib import Path

from pydantic import BaseModel, ValidationError

from epifed.errors import EpifedError
from epifed.evaluate.results import TRAINED, Results
from epifed.settings import Settings, read_settings


class DataRecord(BaseModel):
    """What the manifest says of the case data."""

    source: str
    sha256: str
    regions: int
    attribution: tuple[str, ...] = ()


class _GridRecord(BaseModel):
    splits: tuple[str, ...]
    periods: dict[str, tuple[date, date]]
    runs: int


class _Manifest(BaseModel):
    grid: _GridRecord
    data: DataRecord


@dataclass(frozen=True)
class Stored:
    """What `epifed run` or `epifed reproduce` wrote."""

    results: Results
    settings: Settings
    splits: tuple[str, ...]
    periods: dict[str, tuple[date, date]]
    runs: int
    data: DataRecord

    @property
    def epsilons(self) -> list[float]:
        """The budgets, from the strictest to none."""
        budgets = self.results.runs.filter(TRAINED)["epsilon"]
        return budgets.unique().sort().to_list()

    @property
    def cells(self) -> list[tuple[str, str]]:
        """Every split and period."""
        return [(split, period) for split in self.splits for period in self.periods]


def read_stored(directory: Path) -> Stored:
    """The results in a directory, with their settings and manifest."""
    expected = "expected a directory that 'epifed run' or 'epifed reproduce' wrote"
    if not directory.is_dir():
        raise EpifedError(f"{directory}: no such directory; {expected}")
    path = directory / "manifest.json"
    try:
        manifest = _Manifest.model_validate_json(path.read_bytes())
    except OSError as error:
        raise EpifedError(f"{path}: cannot be read: {error.strerror}; {expected}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise EpifedError(f"{path}: {where}: {first['msg']}; {expected}") from None
    grid = manifest.grid
    return Stored(
        results=Results.read(directory),
        settings=read_settings(directory / "settings.toml"),
        splits=grid.splits,
        periods=grid.periods,
        runs=grid.runs,
        data=manifest.data,
    )
