"""`epifed reproduce` and `epifed figures`: the paper's experiments, figures and tables."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar, get_args

import typer

from epifed.cli.common import (
    SEEDED,
    AsJson,
    Epsilons,
    GridProgress,
    LearnerName,
    ModelName,
    Reading,
    Scheduler,
    Seed,
    SettingsRequest,
    Workers,
    caption,
    messages,
    parse_epsilons,
    print_table,
    reads_cases,
    refuse_unwritable,
)
from epifed.errors import EpifedError
from epifed.files import to_json
from epifed.settings import PERIODS, Settings, SplitName

if TYPE_CHECKING:
    import polars as pl

    from epifed.evaluation.experiment import Grid
    from epifed.evaluation.results_folder import GridFolder
    from epifed.report.maps import Atlas


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

    from epifed.learners.base import make_learner
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
    wish = SettingsRequest(
        None, paper, smoothing=smoothing, seed=seed, rounds=rounds, learner=learner, model=model
    )
    for name in splits:
        make_learner(wish.settings(4).but(split=name))

    from epifed import paper as small_epsilon
    from epifed.evaluation.experiment import Grid, run_grid
    from epifed.evaluation.metrics import beside
    from epifed.files import write_atomic, write_text
    from epifed.report import figures

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
    from epifed.report.tables import experiment, verdict

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


def figures(
    results: Annotated[
        Path, typer.Argument(help="Directory that 'epifed run' or 'epifed reproduce' wrote.")
    ],
    out: Annotated[Path, typer.Option(help="Directory for figures and tables.")],
    data: Annotated[
        Path | None,
        typer.Option(
            help="The prepared or simulated directory behind the results, for what shows the "
            "country: populations, maps, zeros, daily counts.",
            show_default="the simulated country, if the results are of one",
        ),
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(help="State to show in communities.", show_default="the county's"),
    ] = None,
    county: Annotated[
        str | None,
        typer.Option(
            help="County to mark: its id, name or a part of it.",
            show_default="the paper's, else a middling one",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Draw every figure of the paper as PDF and PNG, and its tables as LaTeX, Markdown and CSV.

    What cannot be drawn for want of data is left out, with the reason.
    """
    refuse_unwritable(out)

    from epifed.errors import EpifedError
    from epifed.evaluation.results_folder import read_grid
    from epifed.files import write_text
    from epifed.paper import paper_tables, plan
    from epifed.report.maps import choose_place, read_country

    stored = read_grid(results)
    country = read_country(data) if data else _simulated(stored)
    if country is None and (state or county):
        raise EpifedError("--state, --county: found no map to show them on; expected --data too")
    place = choose_place(country, state, county) if country else None
    if data and country and not _same_data(stored, country):
        messages.print(f"{data}: these are not the cases that {results} was computed from")
    planned = plan(stored, country, place)
    settings = stored.settings
    written = [
        path
        for table in paper_tables(stored, lambda zeros: caption(settings, stored.grid.runs, zeros))
        for path in table.write(out)
    ]
    sources = country.attribution if country else stored.folder.manifest.data.attribution
    if sources:
        written.append(out / "ATTRIBUTION.txt")
        write_text(written[-1], "\n".join(sources) + "\n")
    with messages.status("drawing"):
        for paths in planned.write(out):
            written += paths
    if as_json:
        names = sorted(path.name for path in written)
        print(to_json({"written": names, "left_out": dict(planned.left_out)}))
        return
    for name, reason in planned.left_out.items():
        messages.print(f"left out: {name} ({reason})")
    drawn = len(planned.drawings)
    print(f"Wrote {drawn} figures (PDF, PNG) and {len(stored.grid.periods) + 1} tables to {out}.")


def _simulated(stored: "GridFolder") -> "Atlas | None":
    """The country of results that were simulated."""
    from epifed.report.maps import read_country, simulated_data

    with simulated_data(stored.folder, messages.print) as directory:
        return read_country(directory) if directory else None


def _same_data(stored: "GridFolder", country: "Atlas") -> bool:
    about = stored.folder.manifest.data
    panels = [country.counties, country.communities]
    return any(about.is_of(panel) for panel in panels if panel is not None)
