"""`epifed backtest`: forecasts from rolling origins, each with what was known then, scored."""

from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from epifed.cli.aims import Aims, aims_at_levels
from epifed.cli.kit import (
    SEEDED,
    AsJson,
    GridProgress,
    Scheduler,
    Seed,
    Wish,
    Workers,
    ahead,
    messages,
    parse_epsilons,
    print_table,
    refuse_unwritable,
)
from epifed.cli.source import Reading, reads_cases
from epifed.errors import EpifedError
from epifed.files import to_json
from epifed.words import counted

BASE = {"learner": "trend", "epsilon": 1.0}
REAL_TIME_BASE = {"learner": "nowcast", "epsilon": 1.0}
HEADER = ["", "regions", "MAE / persistence", "WIS / hub baseline", "in 50 %", "in 95 %"]
REAL_TIME_HEADER = ["MAE / final persistence", "nowcast / known"]


@reads_cases
@aims_at_levels
def backtest(
    data: Annotated[Path, typer.Option(help="Case data: any source that 'data check' reads.")],
    first: Annotated[
        datetime,
        typer.Option(
            "--from", formats=["%Y-%m-%d"], help="First origin; with vintages, first morning."
        ),
    ],
    last: Annotated[
        datetime,
        typer.Option(
            "--to", formats=["%Y-%m-%d"], help="Last day of a target; with vintages, last morning."
        ),
    ],
    vintages: Annotated[
        Path | None,
        typer.Option(
            help="What became known when: forecast with nothing else, score on the final data."
        ),
    ] = None,
    every: Annotated[int, typer.Option(min=1, help="Days between origins.")] = 7,
    learner: Annotated[
        str | None,
        typer.Option(
            help="What clients send: trend, one-shot, fedavg or one of another package.",
            show_default="of the settings, else trend",
        ),
    ] = None,
    epsilon: Annotated[
        str | None,
        typer.Option(
            metavar="E",
            help="Privacy budget ε of each release, or inf.",
            show_default="of the settings, else 1",
        ),
    ] = None,
    horizon: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=28,
            help="Days ahead; of weekly data, weeks.",
            show_default="of the settings, else a week",
        ),
    ] = None,
    holidays: Annotated[
        str | None,
        typer.Option(
            help="Public holidays: region (of the data), none, or a code such as DE-BY.",
            show_default="of the settings, else region",
        ),
    ] = None,
    settings: Annotated[
        Path | None,
        typer.Option(help="Settings as TOML.", show_default="what suits the learner"),
    ] = None,
    out: Annotated[Path, typer.Option(help="Directory for results.")] = Path("backtest"),
    seed: Seed = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
    as_json: AsJson = False,
    *,
    aims: Aims,
    reading: Reading,
) -> None:
    """Forecast from every origin with what was known then, and score it when the day has come.

    The target is the 7-day trailing average of daily cases, or the count of a week. Scores are
    ratios: below 1, the forecast beats "next week is like today" (MAE) and the COVIDhub baseline
    (WIS). ε is for each release; the total over all origins stands beside it. Interrupted, it goes
    on where it was.
    With --vintages each forecast is made with what was known on its morning, and nothing else.
    Larger regions are forecast as sums, with quantiles from the past errors of the sums.
    """
    refuse_unwritable(out)
    budget = parse_epsilons([epsilon])[0] if epsilon else None
    wish = Wish(
        settings,
        REAL_TIME_BASE if vintages else BASE,
        learner=learner,
        epsilon=budget,
        horizon=horizon,
        holidays=holidays,
        seed=seed,
    )

    from epifed.evaluate.backtest import mornings_between, origins_between, run_backtest
    from epifed.report.tables import ratio
    from epifed.sources.vintages import load_vintages

    aims.refuse_early([])
    panel = reading.at(**aims.reading()).read(data)
    aims.refuse_early([wish.settings(panel).horizon * panel.step_days])
    if vintages:
        panel.refuse_step("day")
    known_when = load_vintages(vintages, regions=panel.regions) if vintages else None
    if known_when is None:
        panel = panel.between(panel.start, min(last.date(), panel.end))
    chosen = wish.settings(panel)
    if chosen.smoothing == "centered":
        raise EpifedError(
            "smoothing: found 'centered', which looks three days ahead; expected 'trailing'"
        )
    days = first.date(), last.date(), every, panel
    if known_when is None:
        origins = origins_between(*days, chosen.horizon)
    else:
        origins = mornings_between(*days, known_when, chosen.horizon)
    targets = aims.targets(panel, [chosen.horizon], origins)
    with GridProgress() as progress:
        result = run_backtest(
            panel,
            chosen,
            origins,
            out,
            vintages=known_when,
            targets=targets,
            workers=workers,
            scheduler=scheduler,
            progress=progress,
        )
    result.write(out, panel)
    hub = aims.write(result.levels.forecasts if result.levels else result.forecasts)
    summary = result.summary()
    if as_json:
        print(to_json(summary))
    else:
        header = HEADER + (REAL_TIME_HEADER if result.real_time else [])
        rows = [["all", str(len(panel.regions)), *_cells(summary, result.real_time)]]
        rows += [
            [row["stratum"], str(row["regions"]), *_cells(row, result.real_time)]
            for row in result.by_stratum(panel).iter_rows(named=True)
        ]
        if (after := result.after_holiday(panel)) is not None:
            rows.append(["after a public holiday", "", *_cells(after, result.real_time)])
        rows += [
            [_level_name(row), str(row["regions"]), *_cells(row, result.real_time)]
            for row in summary["levels"]
        ]
        rows.append(
            [
                f"worst month: {summary['worst_month']}",
                "",
                ratio(summary["worst_month_mae_ratio"]),
                *[""] * (len(header) - 3),
            ]
        )
        print_table(
            f"{chosen.learner}, {ahead(chosen)}, {counted(len(origins), 'origin')} from "
            f"{origins[0]} to {origins[-1]}",
            header,
            rows,
            result.caption(),
        )
    messages.print(SEEDED)
    if result.levels and result.levels.sentence:
        messages.print(result.levels.sentence, soft_wrap=True)
    messages.print(f"results are in {out}{hub}")


def _level_name(row: dict[str, Any]) -> str:
    weeks = row["weeks_ahead"]
    ahead = f"{row['days_ahead']} days" if weeks is None else f"week {weeks}"
    return f"{row['level']}, {ahead}"


def _cells(row: dict[str, float | None], real_time: bool) -> list[str]:
    from epifed.report.tables import ratio

    cells = [
        ratio(row["mae_ratio"]),
        ratio(row["wis_ratio"]),
        f"{row['coverage_50']:.1%}",
        f"{row['coverage_95']:.1%}",
    ]
    if real_time:
        cells += [ratio(row["mae_ratio_final"]), ratio(row["nowcast_mae_ratio"])]
    return cells
