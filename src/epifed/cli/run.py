"""`epifed run`: train the private federated forecaster against the baselines on one data set."""

from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from epifed.cli.kit import (
    SEEDED,
    AsJson,
    Epsilons,
    GridProgress,
    LearnerName,
    ModelName,
    Seed,
    Wish,
    Workers,
    ahead,
    caption,
    messages,
    parse_epsilons,
    print_table,
    refuse_file,
)
from epifed.cli.source import FirstDay, LastDay, Reading, reads_cases
from epifed.days import WEEK, Step
from epifed.files import to_json
from epifed.settings import Settings

if TYPE_CHECKING:
    from epifed.panel import CasePanel

DEFAULT_EPSILONS = ["0.5", "1", "2", "inf"]
DEFAULT_STEPS: dict[Step, int] = {"day": 31, "week": 52}
"""The length of the paper's periods, or a year: the last so many days, or weeks, of the data."""
WEEKS_BACK = 8
LEAST_DAYS = 56
"""Days before the first forecast of the report."""


@reads_cases
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
    learner: LearnerName = None,
    model: ModelName = None,
    first: FirstDay = None,
    last: LastDay = None,
    seed: Seed = None,
    workers: Workers = None,
    as_json: AsJson = False,
    *,
    reading: Reading,
) -> None:
    """Train the private federated forecaster at several budgets, beside the baselines.

    The windows are split in time: the model is tested on days after those it was trained on, and
    nothing looks ahead (trailing average). Results, settings, a manifest, figures, the forecasts of
    the last weeks by the shared trend and an HTML report of all go to OUT. Without data the
    simulated list's nowcast goes there too.
    """  # fmt: skip
    refuse_file(out)
    epsilons = parse_epsilons(epsilon or DEFAULT_EPSILONS)
    wish = Wish(settings, learner=learner, model=model, seed=seed)

    from epifed.baselines import beside
    from epifed.evaluate.experiment import Grid, run_grid
    from epifed.evaluate.results import summary
    from epifed.report import figures, tables
    from epifed.report.html import write_report

    if data is None:
        panel, end = _simulated(int(wish.said.get("seed", 0)), out), date(2020, 12, 1)
    else:
        panel = reading.read(data)
        end = panel.end
    end = last.date() if last else end
    panel = panel.between(panel.start, end)
    usual = panel.day(max(panel.index(end) - DEFAULT_STEPS[panel.step] + 1, 0))
    begin, end = panel.period(first.date() if first else usual, end)
    chosen = wish.settings(panel, base_for(panel, wish))
    grid = Grid(
        settings=chosen,
        splits=(chosen.split,),
        periods={f"{begin}_{end}": (begin, end)},
        epsilons=epsilons,
        runs=runs,
        baselines=beside(chosen, communities=bool(panel.parents)),
        baseline_runs=min(runs, 3),
    )
    with GridProgress() as progress:
        results = run_grid(panel, grid, out, workers=workers, progress=progress)
    (period,) = grid.periods
    if as_json:
        print(to_json(summary(results.runs).to_dicts()))
    else:
        small = bool(panel.parents)
        print_table(
            f"{len(panel.regions)} regions, {begin} to {end}, {ahead(chosen)}",
            tables.method_header(small_counts=small),
            tables.method_rows(results.runs, chosen.split, period, small_counts=small),
            caption(chosen, runs, results.runs["zeros"][0]),
        )
        print(tables.verdict(results.runs, chosen.split, period))
    figures.save(figures.privacy_utility(results.runs), out / "privacy_utility.png")
    figures.save(figures.convergence(results.convergence, epsilons), out / "convergence.png")
    scatter = figures.predicted_against_true(results.predictions, chosen.split, period)
    figures.save(scatter, out / "predicted_against_true.png")
    if data is None:
        _nowcast(panel, end, out)
    _look_back(panel, chosen.seed, out / "backtest", workers)
    write_report(out, out / "report.html", panel if data else None, remark=messages.print)
    messages.print(SEEDED)
    messages.print(f"results and figures are in {out}; open {out / 'report.html'} in a browser")


def _simulated(seed: int, out: Path) -> "CasePanel":
    """The counties of the default epidemic, which is kept with the results."""
    from epifed.evaluate.folder import DATA, refuse_other
    from epifed.simulate import SimulationSettings, simulate
    from epifed.simulate.write import write

    messages.print("no --data: simulating an epidemic")
    refuse_other(out, "grid")
    simulation = simulate(SimulationSettings(seed=seed))
    write(simulation, out / DATA)
    return simulation.county_panel


def _nowcast(panel: "CasePanel", end: date, out: Path) -> None:
    """The last two weeks of the largest county as they will be known, from its own late list."""
    from epifed.cli.nowcast import estimates
    from epifed.evaluate.folder import DATA
    from epifed.report import drawing
    from epifed.report.nowcast_figure import nowcast_figure
    from epifed.sources.vintages import load_vintages

    morning = end + timedelta(days=1)
    history = load_vintages(out / DATA)
    if not history.first + timedelta(days=28) <= morning:
        morning = history.last
    assert panel.population is not None
    largest = int(panel.population.argmax())
    known = history.until(morning).of([panel.regions[largest]])
    figure = nowcast_figure(panel.names[largest], 0, *estimates(known), panel.attribution)
    drawing.save(figure, out / "nowcast.png")


def _look_back(panel: "CasePanel", seed: int, out: Path, workers: int | None) -> None:
    """Forecasts of the last weeks and of the next, for the report."""
    from epifed.evaluate.backtest import origins_between, run_backtest
    from epifed.learner import settings_for

    days = panel.counts.shape[1] * panel.step_days
    weeks = min(WEEKS_BACK, (days - LEAST_DAYS) // WEEK)
    if weeks < 1:
        messages.print(
            f"found {days} days up to {panel.end}; the report has no forecast, which needs "
            f"{LEAST_DAYS + WEEK}"
        )
        return
    settings = settings_for(panel, {"learner": "trend", "epsilon": 1.0, "seed": seed})
    first = panel.end - timedelta(days=WEEK * weeks)
    origins = origins_between(first, panel.end, WEEK, panel, settings.horizon)
    with GridProgress() as progress:
        result = run_backtest(panel, settings, origins, out, workers=workers, progress=progress)
    result.write(out, panel)


def base_for(panel: "CasePanel", wish: Wish) -> dict[str, Any]:
    """The paper's community settings for communities, unless something else was asked for."""
    if not panel.parents or wish.said.keys() & {"learner", "model"}:
        return {}
    return Settings.community_values(len(panel.regions))
