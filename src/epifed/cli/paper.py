"""`epifed reproduce` and `epifed figures`: the paper's experiments, figures and tables."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args

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
from epifed.settings import PERIODS, Settings, Smoothing, SplitName

if TYPE_CHECKING:
    import polars as pl

    from epifed.data.panel import CasePanel
    from epifed.evaluation.experiment import Grid
    from epifed.evaluation.results_folder import Results
    from epifed.report.maps import Atlas
    from epifed.report.tables import TableName


LEVELS = ("county", "community")
COMMUNITY_SMOOTHING: tuple[Smoothing, ...] = ("centered", "none")
"""The paper tried communities with its centered average and without any."""
BASELINE_RUNS = 5
"""Runs of the baselines that have a seed, at most."""
COMMUNITY_ID = 8
"""Digits of a German community's id; a county's has five."""
BELOW_THE_PAPER = (0.05, 0.1)
"""Budgets that the paper does not try."""


@reads_cases
def reproduce(
    data: Annotated[Path, typer.Option(help="Case data: any source that 'data check' reads.")],
    out: Annotated[
        Path, typer.Option(help="Folder for the results; an interrupted run there is resumed.")
    ],
    level: Annotated[
        str,
        typer.Option(
            help="county, or community: the counties of a prepared directory, drawn into "
            "communities by population."
        ),
    ] = "county",
    runs: Annotated[int, typer.Option(min=1, help="Runs per budget.")] = 15,
    rounds: Annotated[
        int | None,
        typer.Option(min=1, help="Federated rounds T_cl.", show_default="75, or the learner's"),
    ] = None,
    learner: LearnerName = None,
    model: ModelName = None,
    resplit: Annotated[
        bool, typer.Option("--resplit", help="Shuffle the windows anew in each run.")
    ] = False,
    smoothing: Annotated[
        str | None,
        typer.Option(
            help="centered (the paper), trailing, or none (data that is averaged already).",
            show_default="centered; of communities, centered and none",
        ),
    ] = None,
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
    """Run the paper's experiment and compare it with the published tables.

    By default: both periods, both splits, 11 budgets, 15 runs of 75 rounds. OUT gets the runs,
    predictions and convergence (parquet), settings (TOML), figures, comparison.csv and strata.csv.
    An interrupted command resumes: it computes only what is missing. Another learner or model has
    its own settings and budgets down to 0.05; small_epsilon.png shows it beside the paper.

    --level community draws each county's cases into its communities, with the paper's settings
    for them (m = 500, 200 rounds, S = 1), with and without the centered average. The paper has no
    table of it, so it is compared with persistence only.
    """
    refuse_unwritable(out)
    _chosen("--level", [level], LEVELS)
    community = level == "community"
    if community and table:
        raise EpifedError(
            f"--table: found {', '.join(table)} with --level community; expected none, because "
            "the paper publishes no table of communities"
        )
    splits: tuple[SplitName, ...] = ("temporal",) if community else get_args(SplitName)
    splits, periods = _chosen("--split", split, splits), _chosen("--period", period, (*PERIODS,))

    from epifed.learners.base import make_learner
    from epifed.report import tables

    names = _chosen("--table", [t.lower() for t in table or ()], tables.TABLES)
    published = ("main",) if community else names
    asked = sorted({e for name in published for e in tables.table_epsilons(name)})
    other = bool(model) or learner not in (None, "fedavg")
    epsilons = sorted({*asked, *BELOW_THE_PAPER}) if other else asked
    if epsilon:
        epsilons = list(parse_epsilons(epsilon))
        if not other and not set(epsilons) <= set(asked):
            where = "experiment" if community else f"table {' or '.join(names)}"
            raise EpifedError(
                f"--epsilon: found {', '.join(epsilon)}; expected budgets of the paper's "
                f"{where}: {', '.join(f'{e:g}' for e in asked)}"
            )

    def request(clients: int, average: str) -> SettingsRequest:
        paper: dict[str, Any] = Settings.PAPER | {"sampler": "fixed", "epsilon": math.inf}
        if community:
            paper |= Settings.community_values(clients)
        return SettingsRequest(
            None, paper, smoothing=average, seed=seed, rounds=rounds, learner=learner, model=model
        )

    averages = [smoothing] if smoothing else COMMUNITY_SMOOTHING if community else ["centered"]
    for name in splits:
        make_learner(request(4, averages[0]).settings(4).but(split=name))

    from epifed.evaluation.experiment import Grid, run_grid
    from epifed.evaluation.metrics import CLIPPED, beside

    panel = _read_communities(data, seed or 0) if community else _counties(reading.read(data))
    rows: list[dict[str, Any]] = []
    for average in averages:
        settings = request(len(panel.regions), average).settings(panel)
        grid = Grid(
            settings=settings,
            splits=splits,
            periods={p: PERIODS[p] for p in periods},
            epsilons=tuple(epsilons),
            runs=runs,
            baselines=(*beside(settings, communities=community), *(() if other else (CLIPPED,))),
            baseline_runs=min(runs, BASELINE_RUNS),
            resplit=resplit,
        )
        folder = out / average if community else out
        with GridProgress() as progress:
            results = run_grid(
                panel, grid, folder, workers=workers, scheduler=scheduler, progress=progress
            )
        if community:
            scored = _write_communities(folder, panel, results, grid)
        else:
            scored = _write_counties(folder, panel, results, names, other=other)
        rows += scored.to_dicts()
        if not as_json:
            _print_tables(results.runs, grid, small_counts=community)
    if as_json:
        print(to_json(rows))
    messages.print(SEEDED)
    messages.print(f"the results, their tables and figures are in {out}")


def _read_communities(data: Path, seed: int) -> "CasePanel":
    """The counties of a prepared directory, drawn into its communities as in the paper."""
    from epifed.data.readers import read_prepared
    from epifed.evaluation.experiment import drawn_communities

    if not data.is_dir():
        raise EpifedError(
            f"{data}: found no directory; expected a prepared one with county_cases.parquet and "
            "communities.csv, to draw cases into communities"
        )
    counties = read_prepared(data)
    _refuse_simulated(counties)
    return drawn_communities(counties, data, seed)


def _counties(panel: "CasePanel") -> "CasePanel":
    """The panel, if it may be Germany's counties."""
    _refuse_simulated(panel)
    if all(len(region) == COMMUNITY_ID and region.isdigit() for region in panel.regions):
        raise EpifedError(
            f"{panel.source}: found communities, by ids such as {panel.regions[0]}; expected "
            "counties, because these are the paper's settings for them; --level community draws "
            "counties into communities, and 'epifed run' trains on any regions"
        )
    return panel


def _refuse_simulated(panel: "CasePanel") -> None:
    if panel.simulated is not None:
        raise EpifedError(
            f"{panel.source}: found a simulated country; expected reported cases, because the "
            "paper's numbers are of Germany; 'epifed run' takes simulated data at either level"
        )


def _write_curves(out: Path, results: "Results", *, with_paper: bool) -> None:
    """The paper's Figs. 8 and 9."""
    from epifed.report import figures

    utility = figures.privacy_utility(results.runs, with_paper=with_paper)
    figures.save(utility, out / "privacy_utility.png")
    figures.save(figures.convergence(results.convergence), out / "convergence.png")


def _write_counties(
    out: Path,
    panel: "CasePanel",
    results: "Results",
    names: "tuple[TableName, ...]",
    *,
    other: bool,
) -> "pl.DataFrame":
    """The comparison with the paper, the population clusters and the figures."""
    from epifed import paper
    from epifed.files import write_atomic, write_text
    from epifed.report import tables
    from epifed.report.drawing import save

    compared = tables.comparison(results.runs, names)
    write_atomic(out / "comparison.csv", compared.write_csv)
    write_text(out / "comparison.md", tables.comparison_markdown(compared))
    if panel.population is not None:
        sizes = paper.by_size(results.runs)
        write_atomic(out / "strata.csv", sizes.write_csv)
        write_text(out / "strata.md", paper.sizes_markdown(sizes))
    _write_curves(out, results, with_paper=True)
    if other:
        save(paper.small_budgets(results.runs, panel.attribution), out / "small_epsilon.png")
    return compared


def _write_communities(
    out: Path, panel: "CasePanel", results: "Results", grid: "Grid"
) -> "pl.DataFrame":
    """The scores, the zeros behind them and the figures."""
    from epifed.evaluation.experiment import zero_entries
    from epifed.files import write_atomic
    from epifed.report import figures, tables

    covered = {
        name: zero_entries(panel, grid.settings, days) for name, days in grid.periods.items()
    }
    figures.save(figures.zero_entries(covered), out / "zero_entries.png")
    _write_curves(out, results, with_paper=False)
    scored = tables.community_scores(results.runs, grid.settings.smoothing)
    write_atomic(out / "communities.csv", scored.write_csv)
    return scored


def _print_tables(runs: "pl.DataFrame", grid: "Grid", *, small_counts: bool = False) -> None:
    from epifed.report import tables

    for split in grid.splits:
        anew = "; each run shuffles anew" if grid.resplit and split == "shuffled" else ""
        for period in grid.periods:
            zeros = runs.filter(split=split, period=period)["zeros"][0]
            print_table(
                f"{period}, {split} split",
                tables.method_header(small_counts=small_counts),
                tables.method_rows(runs, split, period, small_counts=small_counts),
                caption(grid.settings, grid.runs, zeros) + anew,
            )
            print(tables.verdict(tables.experiment(runs, split, period)))


Name = TypeVar("Name", bound=str)


def _chosen(option: str, given: list[str] | None, allowed: tuple[Name, ...]) -> tuple[Name, ...]:
    for value in given or ():
        if value not in allowed:
            raise EpifedError(f"{option}: found '{value}'; expected {' or '.join(allowed)}")
    return tuple(name for name in allowed if not given or name in given)


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
            show_default="the paper's, else one of median size",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Draw every figure of the paper as PDF and PNG, and its tables as LaTeX, Markdown and CSV.

    A figure whose data is missing is left out, and the reason is printed.
    """
    refuse_unwritable(out)

    from epifed.evaluation.results_folder import read_grid
    from epifed.files import write_text
    from epifed.paper import paper_tables, plan
    from epifed.report.maps import choose_place, read_country, simulated_data

    stored = read_grid(results)
    if data:
        country: Atlas | None = read_country(data)
    else:
        with simulated_data(stored.folder, messages.print) as directory:
            country = read_country(directory) if directory else None
    if country is None and (state or county):
        raise EpifedError("--state, --county: found no map to show them on; expected --data too")
    place = choose_place(country, state, county) if country else None
    panels = (country.counties, country.communities) if country else ()
    about = stored.folder.manifest.data
    if data and not any(about.is_of(panel) for panel in panels if panel is not None):
        messages.print(f"{data}: these are not the cases that {results} was computed from")
    planned = plan(stored, country, place)
    settings = stored.settings
    written = [
        path
        for table in paper_tables(stored, lambda zeros: caption(settings, stored.grid.runs, zeros))
        for path in table.write(out)
    ]
    sources = country.attribution if country else about.attribution
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
