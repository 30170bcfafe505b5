"""`epifed reproduce`: the paper's county experiment, all of it or a part."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar, get_args

import typer

from epifed.cli.kit import (
    SEEDED,
    AsJson,
    Epsilons,
    GridProgress,
    LearnerName,
    ModelName,
    Scheduler,
    Seed,
    Wish,
    Workers,
    caption,
    messages,
    parse_epsilons,
    print_table,
    refuse_unwritable,
)
from epifed.cli.source import Reading, reads_cases
from epifed.errors import EpifedError
from epifed.files import to_json
from epifed.settings import PERIODS, Settings, SplitName

if TYPE_CHECKING:
    import polars as pl

    from epifed.evaluate.experiment import Grid

BELOW_THE_PAPER = (0.05, 0.1)
"""Budgets that the paper does not try."""


@reads_cases
def reproduce(
    data: Annotated[Path, typer.Option(help="Case data: any source that 'data check' reads.")],
    out: Annotated[Path, typer.Option(help="Directory for the results; resumes what is there.")],
    runs: Annotated[int, typer.Option(min=1, help="Runs per budget.")] = 15,
    rounds: Annotated[
        int | None,
        typer.Option(min=1, help="Federated rounds T_cl.", show_default="75, or the learner's"),
    ] = None,
    learner: LearnerName = None,
    model: ModelName = None,
    resplit: Annotated[
        bool, typer.Option("--resplit", help="Each run shuffles its windows anew.")
    ] = False,
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
    seed: Seed = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
    as_json: AsJson = False,
    *,
    reading: Reading,
) -> None:
    """Run the paper's county experiment and compare it with the published tables.

    Both periods, both splits, the 11 budgets and 15 runs of 75 rounds, unless narrowed. Writes
    runs, predictions and convergence as parquet, the settings as TOML, a manifest, figures, and
    comparison.csv. Killed at any point and started again, it computes only what is missing.
    With another learner or model, which then has settings of its own, budgets go down to 0.05
    and small_epsilon.png shows it beside the paper.
    """
    refuse_unwritable(out)
    periods = _chosen("--period", period, tuple(PERIODS))
    splits = _chosen("--split", split, get_args(SplitName))

    from epifed.learner import make_learner
    from epifed.report import tables

    names = _chosen("--table", [t.lower() for t in table] if table else None, tables.TABLES)
    asked = sorted({e for name in names for e in tables.table_epsilons(name)})
    other = bool(model) or learner not in (None, "fedavg")
    epsilons = sorted({*asked, *BELOW_THE_PAPER}) if other else asked
    if epsilon:
        epsilons = list(parse_epsilons(epsilon))
        if not other and not set(epsilons) <= set(asked):
            raise EpifedError(
                f"--epsilon: found {', '.join(epsilon)}; expected budgets of the paper's table "
                f"{' or '.join(names)}: {', '.join(f'{e:g}' for e in asked)}"
            )
    paper = Settings.PAPER | {"sampler": "fixed", "epsilon": math.inf}
    wish = Wish(
        None, paper, smoothing=smoothing, seed=seed, rounds=rounds, learner=learner, model=model
    )
    for name in splits:
        make_learner(wish.settings(4).but(split=name))

    from epifed.baselines import beside
    from epifed.evaluate.experiment import Grid, run_grid
    from epifed.files import write_atomic, write_text
    from epifed.report import figures, small_epsilon

    panel = reading.read(data)
    settings = wish.settings(panel)
    grid = Grid(
        settings=settings,
        splits=splits,
        periods={p: PERIODS[p] for p in periods},
        epsilons=tuple(epsilons),
        runs=runs,
        baselines=beside(settings, communities=False),
        resplit=resplit,
    )
    with GridProgress() as progress:
        results = run_grid(
            panel, grid, out, workers=workers, scheduler=scheduler, progress=progress
        )
    compared = tables.comparison(results.runs, names)
    write_atomic(out / "comparison.csv", compared.write_csv)
    write_text(out / "comparison.md", tables.comparison_markdown(compared))
    figures.save(figures.privacy_utility(results.runs), out / "privacy_utility.png")
    figures.save(figures.convergence(results.convergence), out / "convergence.png")
    if other:
        figure = small_epsilon.figure(results.runs, panel.attribution)
        figures.save(figure, out / "small_epsilon.png")
    if as_json:
        print(to_json(compared.to_dicts()))
    else:
        _print_tables(results.runs, grid)
    messages.print(SEEDED)
    messages.print(f"results, comparison.csv and figures are in {out}")


def _print_tables(runs: "pl.DataFrame", grid: "Grid") -> None:
    from epifed.report import tables
    from epifed.report.compared import experiment, verdict

    for split in grid.splits:
        anew = "; each run shuffles anew" if grid.resplit and split == "shuffled" else ""
        for period in grid.periods:
            zeros = runs.filter(split=split, period=period)["zeros"][0]
            print_table(
                f"{period}, {split} split",
                tables.method_header(),
                tables.method_rows(runs, split, period),
                caption(grid.settings, grid.runs, zeros) + anew,
            )
            print(verdict(experiment(runs, split, period)))


Name = TypeVar("Name", bound=str)


def _chosen(option: str, found: list[str] | None, known: tuple[Name, ...]) -> tuple[Name, ...]:
    for value in found or ():
        if value not in known:
            raise EpifedError(f"{option}: found '{value}'; expected {' or '.join(known)}")
    return tuple(k for k in known if not found or k in found)
