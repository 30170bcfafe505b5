"""`epifed reproduce`: the paper's county experiment, all of it or a part."""

import math
from pathlib import Path
from typing import Annotated, TypeVar, get_args

import typer

from epifed.cli.grid import (
    SIMULATED,
    AsJson,
    Epsilons,
    GridProgress,
    Seed,
    Workers,
    caption,
    messages,
    parse_epsilons,
    print_table,
    refuse_file,
    to_json,
)
from epifed.cli.source import (
    ColumnCases,
    ColumnDate,
    ColumnPopulation,
    ColumnRegion,
    DateColumn,
    Format,
    read_source,
)
from epifed.errors import EpifedError
from epifed.settings import PERIODS, Settings, SplitName


def reproduce(
    data: Annotated[Path, typer.Option(help="Case data: any source that 'data check' reads.")],
    out: Annotated[Path, typer.Option(help="Directory for the results; resumes what is there.")],
    runs: Annotated[int, typer.Option(min=1, help="Runs per budget.")] = 15,
    rounds: Annotated[int, typer.Option(min=1, help="Federated rounds T_cl.")] = 75,
    smoothing: Annotated[
        str,
        typer.Option(
            help="centered (the paper), trailing, or none (data that is averaged already)."
        ),
    ] = "centered",
    epsilon: Epsilons = None,
    period: Annotated[
        list[str] | None, typer.Option(help="2020-11 or 2022-03.", show_default="both")
    ] = None,
    split: Annotated[
        list[str] | None, typer.Option(help="temporal or shuffled.", show_default="both")
    ] = None,
    table: Annotated[
        list[str] | None, typer.Option(help="The paper's table: main or s1.", show_default="both")
    ] = None,
    format: Format = None,
    date_column: DateColumn = None,
    column_date: ColumnDate = None,
    column_region: ColumnRegion = None,
    column_cases: ColumnCases = None,
    column_population: ColumnPopulation = None,
    seed: Seed = None,
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Run the paper's county experiment and compare it with the published tables.

    Both periods, both splits, the 11 budgets and 15 runs of 75 rounds, unless narrowed. Writes
    runs, predictions and convergence as parquet, the settings as TOML, a manifest, figures, and
    comparison.csv. Killed at any point and started again, it computes only what is missing.
    """
    refuse_file(out)
    periods = _chosen("--period", period, tuple(PERIODS))
    splits = _chosen("--split", split, get_args(SplitName))

    from epifed.report import tables

    names = _chosen("--table", [t.lower() for t in table] if table else None, tables.TABLES)
    asked = sorted({e for name in names for e in tables.table_epsilons(name)})
    epsilons = asked
    if epsilon:
        epsilons = list(parse_epsilons(epsilon))
        if not set(epsilons) <= set(asked):
            raise EpifedError(
                f"--epsilon: found {', '.join(epsilon)}; expected budgets of the paper's table "
                f"{' or '.join(names)}: {', '.join(f'{e:g}' for e in asked)}"
            )
    settings = Settings.paper(
        smoothing=smoothing, rounds=rounds, sampler="fixed", epsilon=math.inf, seed=seed or 0
    )

    from epifed.evaluate.experiment import Grid, run_grid
    from epifed.evaluate.store import write_atomic, write_text
    from epifed.report import figures

    panel = read_source(
        data,
        format=format,
        date_column=date_column,
        column_date=column_date,
        column_region=column_region,
        column_cases=column_cases,
        column_population=column_population,
    )
    settings = settings.but(clients_per_round=min(100, max(1, round(len(panel.regions) / 4))))
    grid = Grid(
        settings=settings,
        splits=splits,
        periods={p: PERIODS[p] for p in periods},
        epsilons=tuple(epsilons),
        runs=runs,
    )
    with GridProgress() as progress:
        results = run_grid(panel, grid, out, workers=workers, progress=progress)
    compared = tables.comparison(results.runs, names)
    write_atomic(out / "comparison.csv", compared.write_csv)
    write_text(out / "comparison.md", tables.comparison_markdown(compared))
    figures.save(figures.privacy_utility(results.runs), out / "privacy_utility.png")
    shown = [e for e in (0.5, 1.0, 2.0, math.inf) if e in epsilons] or epsilons
    figures.save(figures.convergence(results.convergence, shown), out / "convergence.png")
    if as_json:
        print(to_json(compared.to_dicts()))
    else:
        for s in splits:
            for p in periods:
                rows = tables.method_rows(results.runs, s, p)
                zeros = results.runs.filter(split=s, period=p)["zeros"][0]
                print_table(
                    f"{p}, {s} split",
                    tables.METHOD_HEADER,
                    rows,
                    caption(settings, runs, zeros),
                )
                print(tables.verdict(results.runs, s, p))
    messages.print(SIMULATED)
    messages.print(f"results, comparison.csv and figures are in {out}")


Name = TypeVar("Name", bound=str)


def _chosen(option: str, found: list[str] | None, known: tuple[Name, ...]) -> tuple[Name, ...]:
    for value in found or ():
        if value not in known:
            raise EpifedError(f"{option}: found '{value}'; expected {' or '.join(known)}")
    return tuple(k for k in known if not found or k in found)
