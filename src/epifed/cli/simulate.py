"""`epifed simulate`: a country with an epidemic in it, as a data directory."""

import json
import time
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from epifed.cli.kit import refuse_unwritable
from epifed.errors import EpifedError

if TYPE_CHECKING:
    import polars as pl

    from epifed.simulate import Simulation

PHASES = {
    "autumn 2020": (date(2020, 9, 1), date(2021, 1, 31)),
    "spring 2022": (date(2022, 1, 1), date(2022, 5, 31)),
}


def simulate(
    out: Annotated[Path | None, typer.Option(help="Directory to write.")] = None,
    seed: Annotated[int, typer.Option(help="Root of all randomness.")] = 0,
    preset: Annotated[
        str,
        typer.Option(
            help="autumn-2020, omicron-2022, pandemic (both and all between), or crossing (a wave "
            "that moves from west to east)."
        ),
    ] = "pandemic",
    counties: Annotated[int, typer.Option(help="N, counties.")] = 400,
    communities: Annotated[int, typer.Option(help="Communities, at least N.")] = 10_786,
    days: Annotated[int | None, typer.Option(help="Only so many days from the first.")] = None,
    level: Annotated[float, typer.Option(help="Cases relative to the preset's.")] = 1.0,
    ascertainment: Annotated[
        float | None, typer.Option(help="Share of infections ever reported.")
    ] = None,
    superspreading: Annotated[
        float | None, typer.Option(help="k, dispersion of the number a person infects.")
    ] = None,
    realism: Annotated[
        Path | None, typer.Option(help="Real data directory to compare with, county by county.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Make an invented country with an epidemic in it and write it as a data directory."""
    if out is None and realism is None:
        raise EpifedError("found neither --out nor --realism; expected a directory to write to")
    from rich.console import Console

    from epifed.simulate import SimulationSettings
    from epifed.simulate import simulate as run
    from epifed.simulate.write import check_target, summary, write

    settings = SimulationSettings.of(
        seed=seed,
        preset=preset,
        counties=counties,
        communities=communities,
        days=days,
        level=level,
        ascertainment=ascertainment,
        superspreading=superspreading,
    )
    if out is not None:
        check_target(out)
        refuse_unwritable(out)
    began = time.perf_counter()
    with Console(stderr=True).status("simulating") as status:
        simulation = run(settings, status.update)
        if out is not None:
            status.update("drawing maps and writing files")
            write(simulation, out)
    about = summary(simulation) | {"seconds": round(time.perf_counter() - began, 1)}
    tables = {} if realism is None else _compare(simulation, realism)
    if as_json:
        about["realism"] = {name: table.to_dicts() for name, table in tables.items()}
        print(json.dumps(about, ensure_ascii=False))
        return
    for name, table in tables.items():
        _show(name, table)
    if out is not None:
        print(
            f"Wrote {out}: {about['cases']:,} simulated cases in {about['counties']:,} counties "
            f"and {about['communities']:,} communities from {about['first_day']} to "
            f"{about['last_day']}, in {about['seconds']} s."
        )


def _compare(simulation: "Simulation", folder: Path) -> "dict[str, pl.DataFrame]":
    from epifed.simulate.realism import realism_table
    from epifed.sources import read_prepared

    real, panel = read_prepared(folder), simulation.county_panel
    tables = {
        name: realism_table(
            real, panel, (first, last), simulated_positions=simulation.country.county_positions
        )
        for name, (first, last) in PHASES.items()
        if panel.start <= first and last <= panel.end
    }
    if not tables:
        raise EpifedError(
            f"found days {panel.start} … {panel.end}; expected all of a phase to compare: "
            + " or ".join(f"{first} … {last}" for first, last in PHASES.values())
        )
    return tables


def _show(name: str, table: "pl.DataFrame") -> None:
    from rich.console import Console
    from rich.table import Table

    shown = Table("trait", title=f"Realism, {name}", title_justify="left")
    for column in ("real", "simulated", "off"):
        shown.add_column(column, justify="right")
    for trait, real, simulated, off in table.iter_rows():
        shown.add_row(trait, f"{real:,.3f}", f"{simulated:,.3f}", f"{off:+.0f} %")
    Console().print(shown)
