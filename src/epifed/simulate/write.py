"""A simulation as a directory laid out like the prepared one: all of it or nothing."""

import json
import os
import shutil
from datetime import timedelta
from importlib import metadata
from pathlib import Path

import numpy as np
import polars as pl

from epifed.errors import EpifedError
from epifed.simulate.lateness import vintages
from epifed.simulate.settings import SIMULATION
from epifed.simulate.shapes import geojson
from epifed.simulate.simulation import Counts, Simulation

FILES = (
    "county_cases.parquet",
    "community_cases.parquet",
    "counties.csv",
    "communities.csv",
    "counties.geojson",
    "communities.geojson",
    "vintages.parquet",
    "ATTRIBUTION.txt",
    SIMULATION,
)


def check_target(folder: Path) -> None:
    """Refuse a target that is not free: only an empty or a simulated directory is replaced."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise EpifedError(f"{folder}: found a file; expected a directory to write to")
    found = {path.name for path in folder.iterdir()}
    foreign = sorted(found - set(FILES))
    if foreign or (found and SIMULATION not in found):
        raise EpifedError(
            f"{folder}: found {foreign[0] if foreign else min(found)}, which is not of a "
            "simulation; expected a new or empty directory, or an earlier simulation to replace"
        )


def write(simulation: Simulation, folder: Path) -> None:
    """Write all files under a temporary name and rename the directory."""
    folder = folder.absolute()
    check_target(folder)
    draft = folder.with_name(f".{folder.name}.{os.getpid()}.draft")
    retired = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    try:
        draft.mkdir(parents=True)
        _write_files(simulation, draft)
        if folder.exists():
            folder.rename(retired)
        draft.rename(folder)
    except OSError as error:
        raise EpifedError(f"{folder}: cannot be written: {error.strerror}") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        shutil.rmtree(retired, ignore_errors=True)


def _write_files(simulation: Simulation, folder: Path) -> None:
    country = simulation.country
    columns = {
        "cases": simulation.cases,
        "first_report": simulation.first_report,
        "onsets": simulation.onsets,
    }
    by_county = {name: simulation.by_county(counts) for name, counts in columns.items()}
    for unit, ids, values in (
        ("county", country.county_ids, by_county),
        ("community", country.community_ids, columns),
    ):
        table = _long(simulation, unit, ids, values)
        table.write_parquet(folder / f"{unit}_cases.parquet", compression="zstd")
    vintages(simulation).to_frame().write_parquet(folder / "vintages.parquet", compression="zstd")
    people = country.county_population
    states = [country.state_names[state] for state in country.state_of]
    pl.DataFrame(
        {
            "county": country.county_ids,
            "name": country.county_names,
            "state": states,
            "population_2020": people,
            "population_2022": people,
        }
    ).write_csv(folder / "counties.csv")
    pl.DataFrame(
        {
            "community": country.community_ids,
            "name": country.community_names,
            "county": [country.county_ids[county] for county in country.county_of],
            "population": country.community_population,
        }
    ).write_csv(folder / "communities.csv")
    shapes = country.shapes
    for name, text in (
        ("counties", geojson(country.county_ids, country.county_names, shapes.counties)),
        (
            "communities",
            geojson(country.community_ids, country.community_names, shapes.communities),
        ),
    ):
        (folder / f"{name}.geojson").write_text(text, encoding="utf-8")
    (folder / "ATTRIBUTION.txt").write_text(simulation.attribution + "\n", encoding="utf-8")
    about = json.dumps(summary(simulation), indent=2, ensure_ascii=False)
    (folder / SIMULATION).write_text(about + "\n", encoding="utf-8")


def summary(simulation: Simulation) -> dict[str, object]:
    """What was simulated: settings, days and totals."""
    cases = simulation.cases
    return {
        "epifed": _version(),
        "settings": simulation.settings.model_dump(),
        "first_day": simulation.start.isoformat(),
        "last_day": (simulation.start + timedelta(days=len(cases) - 1)).isoformat(),
        "counties": len(simulation.country.county_ids),
        "communities": len(simulation.country.community_ids),
        "population": int(simulation.country.community_population.sum()),
        "cases": int(cases.sum(dtype=np.int64)),
        "onsets": int(simulation.onsets.sum(dtype=np.int64)),
        "cases_per_day": round(float(cases.sum(dtype=np.int64) / len(cases)), 1),
    }


def _long(
    simulation: Simulation, unit: str, ids: tuple[str, ...], values: dict[str, Counts]
) -> pl.DataFrame:
    days = len(simulation.cases)
    first, last = simulation.start, simulation.start + timedelta(days=days - 1)
    dates = pl.date_range(first, last, eager=True)
    rows = np.repeat(np.arange(len(ids), dtype=np.uint32), days)
    columns = np.tile(np.arange(days, dtype=np.uint32), len(ids))
    return pl.DataFrame(
        {
            "date": dates.gather(columns),
            unit: pl.Series(ids, dtype=pl.String).gather(rows),
            **{name: np.ascontiguousarray(counts.T).ravel() for name, counts in values.items()},
        },
        schema_overrides=dict.fromkeys(values, pl.Int32),
    )


def _version() -> str:
    try:
        return metadata.version("epifed")
    except metadata.PackageNotFoundError:
        return "unknown"
