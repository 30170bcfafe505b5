"""`epifed run`: train the private federated forecaster against the baselines on one data set."""

from datetime import date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    Level,
    read_source,
)
from epifed.settings import Settings, read_settings

if TYPE_CHECKING:
    from epifed.panel import CasePanel

DEFAULT_EPSILONS = ["0.5", "1", "2", "inf"]
DEFAULT_DAYS = 31
"""The length of the paper's periods: the last so many days of the data, unless told otherwise."""


def run(
    data: Annotated[
        Path | None,
        typer.Option(
            help="Case data: any source that 'data check' reads.",
            show_default="a simulated epidemic",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Directory for results and figures.")] = Path("out"),
    epsilon: Epsilons = None,
    runs: Annotated[int, typer.Option(min=1, help="Runs per budget, each with its seed.")] = 3,
    settings: Annotated[
        Path | None, typer.Option(help="Settings as TOML.", show_default="the operational ones")
    ] = None,
    first: Annotated[
        datetime | None, typer.Option("--from", formats=["%Y-%m-%d"], help="First day to use.")
    ] = None,
    last: Annotated[
        datetime | None, typer.Option("--to", formats=["%Y-%m-%d"], help="Last day to use.")
    ] = None,
    format: Format = None,
    date_column: DateColumn = None,
    column_date: ColumnDate = None,
    column_region: ColumnRegion = None,
    column_cases: ColumnCases = None,
    column_population: ColumnPopulation = None,
    level: Level = None,
    seed: Seed = None,
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Train the private federated forecaster at several budgets, beside the baselines.

    The windows are split in time: the model is tested on days after those it was trained on, and
    nothing looks ahead (trailing average). Results, settings, a manifest and figures go to OUT.
    """  # fmt: skip
    refuse_file(out)
    epsilons = parse_epsilons(epsilon or DEFAULT_EPSILONS)
    chosen = read_settings(settings) if settings else Settings()
    if seed is not None:
        chosen = chosen.but(seed=seed)

    from epifed.baselines import COMMUNITY_BASELINES, COUNTY_BASELINES
    from epifed.evaluate.experiment import Grid, run_grid
    from epifed.evaluate.results import summary
    from epifed.report import figures, tables
    from epifed.simulate import default_panel

    if data is None:
        messages.print("no --data: simulating an epidemic")
        panel, end = default_panel(chosen.seed), date(2020, 12, 1)
    else:
        panel = read_source(
            data,
            format=format,
            date_column=date_column,
            column_date=column_date,
            column_region=column_region,
            column_cases=column_cases,
            column_population=column_population,
            level=level,
        )
        end = panel.end
    end = last.date() if last else end
    begin = first.date() if first else max(end - timedelta(days=DEFAULT_DAYS - 1), panel.start)
    if not settings:
        chosen = preset_for(panel, chosen.seed)
    grid = Grid(
        settings=chosen,
        splits=(chosen.split,),
        periods={f"{begin}_{end}": (begin, end)},
        epsilons=epsilons,
        runs=runs,
        baselines=COMMUNITY_BASELINES if panel.parents else COUNTY_BASELINES,
        baseline_runs=min(runs, 3),
    )
    with GridProgress() as progress:
        results = run_grid(panel, grid, out, workers=workers, progress=progress)
    (period,) = grid.periods
    figures.save(figures.privacy_utility(results.runs), out / "privacy_utility.png")
    figures.save(figures.convergence(results.convergence, epsilons), out / "convergence.png")
    scatter = figures.predicted_against_true(results.predictions, chosen.split, period)
    figures.save(scatter, out / "predicted_against_true.png")
    if as_json:
        print(to_json(summary(results.runs).to_dicts()))
    else:
        print_table(
            f"{len(panel.regions)} regions, {begin} to {end}, {chosen.horizon} days ahead",
            tables.HONEST_HEADER if panel.parents else tables.METHOD_HEADER,
            tables.method_rows(results.runs, chosen.split, period, honest=bool(panel.parents)),
            caption(chosen, runs, results.runs["zeros"][0]),
        )
        print(tables.verdict(results.runs, chosen.split, period))
    messages.print(SIMULATED)
    messages.print(f"results and figures are in {out}")


def preset_for(panel: "CasePanel", seed: int) -> Settings:
    """The paper's settings for the level of the panel, with a share of its clients a round."""
    clients = len(panel.regions)
    if panel.parents:
        return Settings.community(seed=seed, clients_per_round=min(500, max(1, clients // 4)))
    return Settings.of(seed=seed, clients_per_round=max(1, clients // 4))
