"""`epifed run`: the learners beside what any forecast must beat, on one data set."""

import math
import sys
from datetime import date, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from epifed.cli.common import (
    SEEDED,
    AsJson,
    Epsilons,
    FirstDay,
    GridProgress,
    LastDay,
    LearnerName,
    ModelName,
    Reading,
    Scheduler,
    Seed,
    SettingsRequest,
    Workers,
    ahead,
    caption,
    guarantee,
    messages,
    parse_epsilons,
    print_table,
    reads_cases,
    refuse_unwritable,
)
from epifed.data.calendar import WEEK, Step
from epifed.errors import counted
from epifed.files import to_json

if TYPE_CHECKING:
    from epifed.data.panel import CasePanel
    from epifed.data.vintages import Vintages
    from epifed.evaluation.results_folder import ResultsFolder

DEFAULT_EPSILONS = ["0.5", "1", "2", "inf"]
"""Of the experiment."""
WEEKLY_LEARNER = "trend"
WEEKLY_EPSILONS = (0.1, 1.0, math.inf)
"""Of each release of the weekly forecasts."""
SHOWN_EPSILON = 1.0
"""The budget of the forecasts that the report shows."""
EXAMPLE: dict[str, Any] = {"preset": "crossing", "counties": 320, "communities": 1280}
"""What is simulated where there is no data."""
DEFAULT_STEPS: dict[Step, int] = {"day": 31, "week": 52}
"""The length of the paper's periods, or a year: the last so many days, or weeks, of the data."""
RUNS, EXAMPLE_RUNS = 3, 1
WEEKS_BACK = 12
LEAST_DAYS = 56
"""Days before the first forecast of the report."""
LEAST_VINTAGES = 28
"""Mornings of a list before a nowcast of it."""
READING = (
    'Relative MAE: mean absolute error divided by that of persistence ("next week equals this '
    'week") on the same days. Relative WIS: interval score divided by that of the COVIDhub '
    "baseline. Below 1 is better. In 95 %: share of observed values inside the 95 % interval."
)


@reads_cases
def run(
    data: Annotated[
        Path | None,
        typer.Option(
            help="Case data: any source that 'data check' reads.",
            show_default="a simulated epidemic",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("out"),
    epsilon: Epsilons = None,
    runs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Runs of the experiment for each budget.",
            show_default=f"{RUNS}; {EXAMPLE_RUNS} without data",
        ),
    ] = None,
    settings: Annotated[
        Path | None, typer.Option(help="Settings as TOML.", show_default="the operational ones")
    ] = None,
    learner: LearnerName = None,
    model: ModelName = None,
    first: FirstDay = None,
    last: LastDay = None,
    seed: Seed = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
    details: Annotated[
        bool, typer.Option("--details", help="Print every metric of the experiment.")
    ] = False,
    as_json: AsJson = False,
    *,
    reading: Reading,
) -> None:
    """Compare the learners with persistence at several privacy budgets, and write a report.

    There are two tests; neither uses later data. Weekly: the learner trend forecasts the next week
    from each of the last weeks, with a release at ε = 0.1, 1 and ∞. Experiment: the paper's model
    (learner fedavg, or --learner) is trained on the paper's 31 days and tested on the last of them.
    Persistence ("next week equals this week") stands beside both. OUT gets tables, settings,
    figures and report.html. Without --data, an invented country is simulated.
    """  # fmt: skip
    refuse_unwritable(out)
    epsilons = parse_epsilons(epsilon or DEFAULT_EPSILONS)
    weekly = parse_epsilons(epsilon) if epsilon else WEEKLY_EPSILONS
    named = _learner(learner, settings, model)
    with messages.status("starting"):  # the imports take seconds
        wish = SettingsRequest(settings, learner=named, model=model, seed=seed)

        from epifed.evaluation.experiment import Grid, run_grid
        from epifed.evaluation.metrics import beside
        from epifed.evaluation.results_folder import read_folder
        from epifed.report import figures
        from epifed.report.html import write_report

    panel = reading.read(data) if data else _simulated(int(wish.said.get("seed", 0)), out)
    end = last.date() if last else panel.end
    panel = panel.between(panel.start, end)
    usual = DEFAULT_STEPS[panel.step]
    newest = panel.day(max(panel.index(end) - usual + 1, 0))
    begin, end = panel.period(first.date() if first else newest, end)
    if first is None and begin > panel.start:
        messages.print(
            f"found {counted(panel.counts.shape[1], panel.step)}; the experiment is on the last "
            f"{usual}, from {begin} on (change this with --from), the weekly forecasts on all"
        )
    chosen = wish.settings_of(panel)
    times = runs or (RUNS if data else EXAMPLE_RUNS)
    grid = Grid(
        settings=chosen,
        splits=(chosen.split,),
        periods={f"{begin}_{end}": (begin, end)},
        epsilons=epsilons,
        runs=times,
        baselines=beside(chosen, communities=bool(panel.parents)),
        baseline_runs=min(times, 3),
    )
    with GridProgress(f"experiment: {chosen.learner}") as progress:
        results = run_grid(
            panel, grid, out, workers=workers, scheduler=scheduler, progress=progress
        )
    late = None if data else _known_until(end, out)
    _look_back(panel, weekly, chosen.seed, out / "backtest", workers, late)
    with messages.status("drawing figures and the report"):
        figures.save(figures.privacy_utility(results.runs), out / "privacy_utility.png")
        figures.save(figures.convergence(results.convergence, epsilons), out / "convergence.png")
        scatter = figures.predicted_against_true(results.predictions, *_cell(grid))
        figures.save(scatter, out / "predicted_against_true.png")
        if late is not None:
            _nowcast(panel, late, out)
        write_report(out, out / "report.html", panel if data else None, remark=messages.print)
    folder = read_folder(out)
    if as_json:
        print(to_json(_record(folder)))
    else:
        _print(folder, grid, panel, details)
    messages.print(SEEDED)
    _what_next(out, data)


def _learner(name: str | None, settings: Path | None, model: str | None) -> str | None:
    """The learner that was named, or, without PyTorch, one of the experiment that needs none."""
    if name or settings or model:
        return name
    if not _has_torch():
        messages.print(
            "PyTorch is not installed, so the paper's model (fedavg) is left out and one-shot "
            "takes its place: 'pip install epifed[torch]' brings it"
        )
        return "one-shot"
    return None


def _has_torch() -> bool:
    """Whether PyTorch is installed, without importing it."""
    try:
        return find_spec("torch") is not None
    except ImportError:
        return False


def _cell(grid: Any) -> tuple[str, str]:
    (split,), (period,) = grid.splits, grid.periods
    return split, period


def _print(folder: "ResultsFolder", grid: Any, panel: "CasePanel", details: bool) -> None:
    """The comparison, what it says, and on request every metric."""
    from epifed.report import tables
    from epifed.report.tables import HEADER, advice, compared, group_title, tested_on, verdict

    rows = compared(folder)
    begins = {row.kind: i for i, row in reversed(list(enumerate(rows)))}
    sentences = [READING]
    if folder.beside:
        sentences.append(
            f"Weekly: {tested_on('weekly', folder)}, {guarantee(folder.beside.settings)}, for each "
            "release."
        )
    sentences.append(
        f"Experiment: {tested_on('experiment', folder)}, {guarantee(grid.settings)}, for the whole "
        f"training; mean of "
        f"{counted(grid.runs, 'run')}. The paper's own numbers: 'epifed reproduce'."
    )
    print_table(
        f"{counted(len(panel.regions), 'region')} to {panel.end}, {ahead(grid.settings)}: nothing "
        "looks ahead",
        HEADER,
        [row.cells() for row in rows],
        " ".join(sentences),
        sections={i: group_title(kind, folder) for kind, i in begins.items()},
    )
    print(verdict(rows))
    if details and folder.grid:
        runs, small = folder.grid.runs, bool(panel.parents)
        print_table(
            "The experiment, every metric",
            tables.method_header(small_counts=small),
            tables.method_rows(runs, *_cell(grid), small_counts=small),
            caption(grid.settings, grid.runs, runs["zeros"][0]),
        )
    hint = advice(rows, len(panel.regions))
    if hint:
        messages.print(hint)


def _record(folder: "ResultsFolder") -> dict[str, Any]:
    """The results for a machine: what was compared, with what, and all of it in full."""
    from dataclasses import asdict

    from epifed.evaluation.results_folder import summary
    from epifed.privacy.accounting import NEIGHBOURING, UNIT
    from epifed.report.tables import compared

    assert folder.grid is not None and folder.manifest.grid is not None
    weekly = folder.backtest.by_budget if folder.backtest else []
    return {
        "compared": [asdict(row) for row in compared(folder)],
        "experiment": {
            "settings": folder.settings.model_dump(),
            "delta": folder.settings.delta,
            "accountant": folder.settings.accountant,
            "unit": UNIT,
            "neighbouring": NEIGHBOURING,
            "grid": folder.manifest.grid.model_dump(),
            "methods": summary(folder.grid.runs).to_dicts(),
        },
        "weekly": {
            "settings": folder.beside.settings.model_dump() if folder.beside else None,
            "budgets": [record.model_dump() for record in weekly],
        },
    }


def _what_next(out: Path, data: Path | None) -> None:
    """The second screen: where to look, and three commands that lead on."""
    called = sys.argv[0] if Path(sys.argv[0]).name == "epifed" else "epifed"
    cases = data or "cases.csv"
    steps = {
        f"{called} explain {out}": "what these results guarantee, in plain sentences",
        f"{called} data check {cases}": "what is in your own file: a table of date, region, cases",
        f"{called} run --data {cases} --out mine": "the same on it",
    }
    if data:
        steps.popitem()
        steps[f"{called} train --help"] = "a model that may be released, charged to a ledger"
    widest = max(map(len, steps))
    messages.print(f"\nResults and figures are in {out}; open {out / 'report.html'} in a browser.")
    messages.print("What to do next:")
    for command, why in steps.items():
        messages.print(f"  {command:<{widest}}   {why}", soft_wrap=True)


def _simulated(seed: int, out: Path) -> "CasePanel":
    """The counties of the example, as they are kept with the results."""
    from epifed.data.readers import load_panel
    from epifed.evaluation.results_folder import DATA, refuse_other
    from epifed.simulate import SimulationSettings, simulate
    from epifed.simulate.simulation import write

    refuse_other(out, "grid")
    with messages.status("no --data: simulating an epidemic") as status:
        simulation = simulate(SimulationSettings(seed=seed, **EXAMPLE), status.update)
        status.update("drawing its map and writing its case list")
        write(simulation, out / DATA)
    messages.print(
        f"no --data: simulated a wave that crosses an invented country of "
        f"{counted(len(simulation.country.county_ids), 'county')}"
    )
    return load_panel(out / DATA)


def _nowcast(panel: "CasePanel", late: "Vintages", out: Path) -> None:
    """The last two weeks of the largest county as they will be known, as of the forecast's day."""
    from epifed.nowcasting.transmission import nowcast_summary
    from epifed.report import drawing
    from epifed.report.figures import nowcast_figure

    assert panel.population is not None
    largest = int(panel.population.argmax())
    summary = nowcast_summary(late.of([panel.regions[largest]]))
    figure = nowcast_figure(panel.names[largest], 0, summary, panel.attribution)
    drawing.save(figure, out / "nowcast.png")


def _known_until(end: date, out: Path) -> "Vintages | None":
    """The list of the simulated country as known after the last day, if that says enough."""
    from epifed.data.readers.vintage_files import load_vintages
    from epifed.evaluation.results_folder import DATA

    morning, late = end + timedelta(days=1), load_vintages(out / DATA)
    if (morning - late.first).days < LEAST_VINTAGES:
        messages.print(
            f"no nowcast: the list is known from {late.first} on; expected "
            f"{LEAST_VINTAGES} vintages before {morning}"
        )
        return None
    return late.until(morning)


def _look_back(
    panel: "CasePanel",
    epsilons: tuple[float, ...],
    seed: int,
    out: Path,
    workers: int | None,
    late: "Vintages | None",
) -> None:
    """Forecasts of the last weeks at each budget and of the next, for the table and the report.

    With a late list, the nowcast of that day too.
    """
    from dataclasses import replace

    from epifed.evaluation.backtest import origins_between, run_backtest
    from epifed.learners.base import settings_for
    from epifed.nowcasting.transmission import nowcast_on

    days = panel.counts.shape[1] * panel.step_days
    weeks = min(WEEKS_BACK, (days - LEAST_DAYS) // WEEK)
    if weeks < 1:
        messages.print(
            f"found {counted(days, 'day')} up to {panel.end}; the report has no forecast, which "
            "needs "
            f"{LEAST_DAYS + WEEK}"
        )
        return
    shown = min(epsilons, key=lambda e: abs(math.log(min(e, 1e9) / SHOWN_EPSILON)))
    first = panel.end - timedelta(days=WEEK * weeks)
    made = {}
    for epsilon in epsilons:
        settings = settings_for(
            panel, {"learner": WEEKLY_LEARNER, "epsilon": epsilon, "seed": seed}
        )
        origins = origins_between(first, panel.end, WEEK, panel, settings.horizon)
        with GridProgress(f"weekly: {WEEKLY_LEARNER}, ε = {epsilon:g}") as progress:
            made[epsilon] = run_backtest(
                panel, settings, origins, out, workers=workers, progress=progress
            )
    others = [made[epsilon].record() for epsilon in epsilons if epsilon != shown]
    nowcast = None if late is None else nowcast_on(late, panel.end)
    replace(made[shown], nowcast=nowcast).write(out, panel, others)
