"""`epifed forecast`, `epifed nowcast` and `epifed backtest`."""

import math
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from epifed.cli.common import (
    FRACTION,
    SEEDED,
    AsJson,
    GridProgress,
    Reading,
    Scheduler,
    Seed,
    SettingsRequest,
    TargetOptions,
    Workers,
    ahead,
    figure_name,
    messages,
    parse_epsilons,
    print_table,
    reads_cases,
    reads_targets,
    refuse_unwritable,
    say_note,
)
from epifed.data.calendar import DAYS_OF
from epifed.errors import EpifedError, counted, spoken
from epifed.files import to_json
from epifed.settings import USUAL

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from epifed.data.panel import CasePanel
    from epifed.data.quality import Cleaned
    from epifed.data.vintages import Vintages
    from epifed.data.weekly_vintages import WeeklyVintages
    from epifed.forecasting import Forecast, Targets
    from epifed.learners.base import Parts
    from epifed.nowcasting.late_reports import Nowcast
    from epifed.nowcasting.transmission import Generation, OnsetNowcast, Reproduction
    from epifed.training.release import Release


HEADER = [
    "region", "week to", "persistence", "forecast", "50 % interval", "95 % interval",
    "shared", "place", "own", "holidays", "reports",
]  # fmt: skip
WEEKLY_HEADER = [*HEADER[:9], "earlier years", "reports"]
PLAIN = 6
"""Columns of a learner that cannot say where a change comes from."""
WHAT = {"day": "7-day average of daily cases", "week": "cases of a week"}
STALE_DAYS = 7
MOST_FIGURES = 12


@reads_cases
@reads_targets
def forecast(
    model: Annotated[
        Path | None,
        typer.Argument(
            help="Release file of 'train' or of a federation. Without one, only your file is used.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Your file of case counts: any source that 'data check' reads.", show_default=False
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the forecast.")] = Path("forecast"),
    horizon: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            max=28,
            help="With a model: days ahead, or weeks for weekly counts. Repeat for several.",
            show_default="that of the model",
        ),
    ] = None,
    incomplete_days: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Number of newest days to leave out because reports are missing.",
            show_default="detected from the file's past weeks",
        ),
    ] = None,
    alone: Annotated[
        str | None,
        typer.Option(
            metavar="REGION",
            help="Without a model: forecast this region alone.",
            show_default="all together",
        ),
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(help="Ledger to verify the release against; it is not changed."),
    ] = None,
    vintages: Annotated[
        Path | None,
        typer.Option(
            help="Data vintages (the data as known on each day); without them the archive is used."
        ),
    ] = None,
    column_entry: Annotated[
        str | None,
        typer.Option(
            help="For a list of cases, without a model: column of the day a row was entered. It "
            "adds a nowcast and R(t)."
        ),
    ] = None,
    archive: Annotated[
        Path | None,
        typer.Option(
            help="With a model: directory that keeps the counts you give, day by day, as vintages.",
            show_default="of the data file, in the user's state directory",
        ),
    ] = None,
    as_json: AsJson = False,
    *,
    target_options: TargetOptions,
    reading: Reading,
) -> None:
    """Forecast the next one to four weeks from your own file.

    Nothing leaves this machine. Without a model, the regions of your file are forecast together
    and no noise is added. OUT gets report.html, forecast.csv and forecast.xlsx, with the track
    record on the file's own past. With a model (a release file) the intervals come from its errors
    on your past days; use a model that is as new as the data. Implausible counts, such as a
    backlog, are reported and replaced. An ambiguous file leads to a question, or to an error that
    names the option to add.
    """
    if data is None:
        raise EpifedError(
            "--data: found none; expected your file of cases, such as cases.xlsx"
            if model is None
            else f"--data: found none; expected the cases to forecast. Is {model} a file of cases? "
            f"Then use: epifed forecast --data {model}"
        )
    refuse_unwritable(out)
    if model is None:
        of_release = {"--ledger": ledger, "--archive": archive, "--horizon": horizon}
        given = [*(name for name, value in of_release.items() if value), *target_options.given()]
        if given:
            raise EpifedError(
                f"{given[0]}: found without a release file; expected one: "
                f"epifed forecast week.epifed --data {data}"
            )
        reading = reading.at(**target_options.reading())
        return _from_file(
            data, out, incomplete_days, alone, vintages, column_entry, as_json, reading
        )
    if alone is not None or column_entry is not None:
        raise EpifedError("found --alone or --column-entry with a model; expected none")
    return _from_release(
        model, data, out, horizon, incomplete_days, ledger, vintages, archive, as_json,
        target_options, reading,
    )  # fmt: skip


def _from_file(
    data: Path,
    out: Path,
    incomplete_days: int | None,
    region: str | None,
    vintages: Path | None,
    column_entry: str | None,
    as_json: bool,
    reading: Reading,
) -> None:
    """The forecast that a file makes of itself."""
    from dataclasses import asdict

    from epifed.data.readers.vintage_files import load_vintages, read_entries
    from epifed.evaluation.results_folder import RESULTS, refuse_other
    from epifed.forecasting import TOTAL
    from epifed.local_forecast import CSV, REPORT, WORKBOOK, forecast_alone

    refuse_other(out / RESULTS, "week")
    panel = reading.read(data, ask=True)
    history = None
    if column_entry is not None and vintages in (None, data):
        history = read_entries(data, column_entry, panel.regions, **reading.options)
    elif vintages is not None:
        said = {"region": reading.options.get("region"), "reported": reading.options.get("date")}
        said |= {"one_region": reading.options.get("one_region"), "entry": column_entry}
        columns = {name: column for name, column in said.items() if column and column_entry}
        history = load_vintages(vintages, regions=panel.regions, **columns)
    with GridProgress(spoken("forecasts, past weeks first")) as progress:
        made = forecast_alone(
            panel,
            incomplete_days=incomplete_days,
            region=region,
            vintages=history,
            progress=progress,
        )
    made.write(out, messages.print)
    table = made.table()
    if as_json:
        about = {
            "origin": made.origin,
            "method": made.method,
            "reason": made.reason,
            "incomplete_days": made.incomplete_days,
            "notes": list(made.notes),
            "track_record": [asdict(one) for one in made.learner_record],
        }
        print(to_json(about | {"forecast": table.to_dicts()}))
        return
    rows = [
        [
            spoken(TOTAL) if row["region"] == TOTAL else str(row["name"]),
            *(
                spoken(cell)
                for cell in (
                    f"{row['week_to']}",
                    f"{row['like_today']:,.0f}",
                    f"{row['forecast']:,.0f}",
                    f"{row['lower_50']:,.0f} – {row['upper_50']:,.0f}",
                    f"{row['lower_95']:,.0f} – {row['upper_95']:,.0f}",
                )
            ),
        ]
        for row in _few(table)
    ]
    reason = f"{made.reason[:1].upper()}{made.reason[1:]}"
    print_table(
        spoken(f"Cases of seven days, forecast of {made.origin}"),
        list(map(spoken, HEADER[:PLAIN])),
        rows,
        f"{spoken(f'{reason}. No noise: nothing leaves this machine.')} {spoken(FRACTION)}",
    )
    for note in made.notes:
        say_note(note)
    there = [name for name in (REPORT, CSV, WORKBOOK) if (out / name).is_file()]
    messages.print(spoken(f"in {out}: {', '.join(there)}; open {out / REPORT} in a browser"))


def _few(table: "pl.DataFrame") -> "list[dict[str, Any]]":
    """The rows that are printed: the sum of all regions, and the first regions' next week."""
    from epifed.forecasting import TOTAL

    rows = table.to_dicts()
    total = [row for row in rows if row["region"] == TOTAL]
    regions = [row for row in rows if row["region"] != TOTAL]
    if len(regions) == len(total):
        return regions
    return total + [row for row in regions if row["weeks_ahead"] == 1][:MOST_FIGURES]


def _from_release(
    model: Path,
    data: Path,
    out: Path,
    horizon: list[int] | None,
    incomplete_days: int | None,
    ledger: Path | None,
    vintages: Path | None,
    archive: Path | None,
    as_json: bool,
    target_options: TargetOptions,
    reading: Reading,
) -> None:
    """The forecast from a release file."""
    from epifed.data.quality import RECENT_DAYS
    from epifed.evaluation.backtest import keep_forecast, label
    from epifed.evaluation.results_folder import refuse_other
    from epifed.forecasting import forecast_releases
    from epifed.learners.base import observed
    from epifed.report import drawing
    from epifed.report.figures import forecast_figure
    from epifed.training.release import read_release

    trained = read_release(model)
    refuse_other(out, "week")
    horizons = sorted(set(horizon or [trained.settings.horizon]))
    target_options.refuse_early([DAYS_OF[trained.settings.step] * steps for steps in horizons])
    given = reading.at(**target_options.reading()).read(data, ask=True)
    panel, timeliness = _on_its_morning(given, data, vintages, archive, trained, incomplete_days)
    trained.age_on(panel.end)
    verification = trained.verification(ledger)
    targets = target_options.targets(panel, horizons, [panel.end])
    outlook = forecast_releases([trained], panel, horizons, targets)
    known, made, larger = outlook.known, outlook.forecasts, outlook.larger
    keep_forecast(
        out, given, outlook, trained, label(model.stem, [trained]),
        notes=[timeliness, known.sentence(RECENT_DAYS)],
    )  # fmt: skip
    for region in panel.regions[:MOST_FIGURES]:
        drawing.save(forecast_figure(panel, region, made), out / figure_name(region))
    hub = target_options.write(larger or made)
    changes, above = outlook.parts_table(), outlook.larger_to_long()
    if as_json:
        about = {
            "release": trained.sentence(),
            "verification": verification,
            "timeliness": timeliness,
        }
        found = {
            "forecast": outlook.to_long().to_dicts(),
            "levels": None if above is None else above.to_dicts(),
            "parts": None if changes is None else changes.to_dicts(),
            "anomalies": known.to_long(RECENT_DAYS).to_dicts(),
        }
        print(to_json(about | found))
    else:
        today = observed(panel.counts, panel.step)[:, -1]
        rows = [
            [
                panel.names[row],
                f"{one.target_date}",
                f"{today[row]:.1f}",
                f"{one.point[row]:.1f}",
                *_intervals(one, row),
                *_changes(outlook.parts[one.horizon], row),
            ]
            for row in range(min(len(panel.regions), MOST_FIGURES))
            for one in made
        ]
        header = HEADER if panel.step == "day" else WEEKLY_HEADER
        header = header if changes is not None else header[:PLAIN]
        rows += _level_cells(larger, len(header))
        print_table(
            f"{WHAT[panel.step]}, forecast of {panel.end}",
            header,
            rows,
            f"{trained.sentence()}. {verification} {FRACTION}"
            + " The last columns are what each step adds; shared: the growth of all regions."
            * (len(header) > PLAIN),
        )
    _say(panel, trained, known, targets, timeliness)
    messages.print(
        f"the forecast is in {out}{hub}; 'epifed report {out} --data {data}' makes its page"
    )


def _say(
    panel: "CasePanel",
    trained: "Release",
    known: "Cleaned",
    targets: "Targets | None",
    timeliness: str,
) -> None:
    """What must be known of a forecast beside its numbers."""
    if len(panel.regions) > MOST_FIGURES:
        messages.print(
            f"shown: the first {MOST_FIGURES} of {len(panel.regions)} regions; forecast.parquet "
            "has all"
        )
    from epifed.data.quality import RECENT_DAYS

    messages.print(timeliness)
    messages.print(known.sentence(RECENT_DAYS))
    if (age := trained.age_on(panel.end)) > STALE_DAYS:
        messages.print(
            f"the release learned up to {trained.last_day}, {age} days before the last day of the "
            "data: the newest trend is missing; ask for a newer one"
        )
    if targets and targets.sentence():
        messages.print(targets.sentence(), soft_wrap=True)


def _intervals(one: "Forecast", row: int) -> list[str]:
    """The 50 and 95 % intervals of a region."""
    from epifed.intervals import LEVELS

    ends = [
        [one.quantiles[row, LEVELS.index(level)] for level in both]
        for both in ((0.25, 0.75), (0.025, 0.975))
    ]
    return [f"{low:.1f} – {high:.1f}" for low, high in ends]


def _level_cells(larger: "Sequence[Forecast]", width: int) -> list[list[str]]:
    """The rows of larger regions, of which only a few are shown."""
    rows = [
        [region, f"{one.target_date}", "", f"{one.point[row]:.1f}", *_intervals(one, row)]
        for one in larger
        for row, region in enumerate(one.regions[:MOST_FIGURES])
    ]
    return [row + [""] * (width - len(row)) for row in rows]


def _changes(parts: "Parts | None", row: int) -> list[str]:
    """What all regions, the region, the own level and holidays add to a forecast, in per cent."""
    if parts is None:
        return []
    return [f"{100 * math.expm1(float(part[row])):+.0f} %" for part in vars(parts).values()]


def _on_its_morning(
    panel: "CasePanel",
    data: Path,
    vintages: Path | None,
    folder: Path | None,
    trained: "Release",
    incomplete_days: int | None,
) -> "tuple[CasePanel, str]":
    """The panel with what was known on earlier days, as far as it is kept, and a sentence on it.

    Without, newest days that are incomplete, or look so, and newer than the release are left out.
    """
    from datetime import timedelta
    from hashlib import sha256

    from epifed.data.readers.vintage_files import load_vintages, load_weekly_vintages
    from epifed.data.vintages import LEAST_VINTAGES, count_vintages, remember
    from epifed.forecasting import leave_out, timely
    from epifed.ledger.ledger import state_root

    if incomplete_days is not None and vintages is None:
        return leave_out(panel, incomplete_days, trained.last_day)
    if vintages is not None and panel.step == "week":
        weeks = load_weekly_vintages(vintages, regions=panel.regions)
        known = weeks.as_known(panel.end, like=panel)
    elif vintages is not None:
        history = load_vintages(vintages, regions=panel.regions)
        known = history.as_known(panel.end + timedelta(days=1), like=panel)
    else:
        key = sha256(str(data.resolve()).encode()).hexdigest()[:16]
        folder = folder or state_root() / "vintages" / key
        known = remember(folder, panel)
    kept = count_vintages(folder) if folder else 0
    reason = f"{kept} of {LEAST_VINTAGES} days are archived in {folder}"
    return timely(panel, known, trained.learner, trained.last_day, reason, refuse=True)


NOWCAST_HEADER = ["region", "last 7 days known", "estimate", "95 % interval", "R", "95 % interval"]
WEEKS_HEADER = ["region", "known", "estimate"]


def nowcast(
    vintages: Annotated[
        Path,
        typer.Option(
            help="Data vintages (the data as known on each day): a table, a folder of dated line "
            "lists, your own list of cases, or a data directory with one of these."
        ),
    ],
    as_of: Annotated[
        datetime | None,
        typer.Option(formats=["%Y-%m-%d"], help="Day of the nowcast.", show_default="last"),
    ] = None,
    region: Annotated[
        list[str] | None, typer.Option(help="Only this region. Repeat for several.")
    ] = None,
    generation_mean: Annotated[
        float,
        typer.Option(help="Mean days from a case to the next one that it causes (Nishiura 2020)."),
    ] = 4.7,
    generation_sd: Annotated[float, typer.Option(help="Their standard deviation.")] = 2.9,
    column_known: Annotated[
        str | None, typer.Option(help="Column of the first day on which a row was in the list.")
    ] = None,
    column_entry: Annotated[
        str | None,
        typer.Option(help="Your own list of cases: column of the day a row was entered."),
    ] = None,
    column_region: Annotated[str | None, typer.Option(help="Column of the region's id.")] = None,
    column_reported: Annotated[
        str | None, typer.Option(help="Column of the reporting date.")
    ] = None,
    column_onset: Annotated[str | None, typer.Option(help="Column of the date of onset.")] = None,
    column_cases: Annotated[
        str | None, typer.Option(help="Column of the cases; without one, a row is one case.")
    ] = None,
    one_region: Annotated[
        bool, typer.Option("--one-region", help="All rows are one region, named as the file.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for tables and figures.")] = Path("nowcast"),
    as_json: AsJson = False,
) -> None:
    """Estimate the cases of the last two weeks once all reports are in, and R(t).

    Cases are counted by reporting date and, if the list has onsets, by date of onset. Reporting
    delays are learned from earlier versions of the list. Weekly vintages (as_of, date, region,
    cases, signal) give the newest weeks, without R(t). Nothing leaves this machine.
    """
    refuse_unwritable(out)

    from epifed.data.readers.vintage_files import holds_weeks, load_vintages, load_weekly_vintages
    from epifed.nowcasting.transmission import Generation, nowcast_summary
    from epifed.report import drawing
    from epifed.report.figures import nowcast_figure

    columns = {
        "known": column_known,
        "entry": column_entry,
        "region": column_region,
        "reported": column_reported,
        "onset": column_onset,
        "cases": column_cases,
    }
    given: dict[str, Any] = {name: column for name, column in columns.items() if column}
    if holds_weeks(vintages, **given):
        weeks = load_weekly_vintages(vintages, regions=region, **given)
        _print_weeks(weeks.until(as_of.date()) if as_of else weeks, out, as_json)
        return
    given |= {"one_region": True} if one_region else {}
    generation = Generation(generation_mean, generation_sd)
    history = load_vintages(vintages, regions=region, **given)
    if as_of:
        history = _until(history, as_of.date(), own=column_entry is not None)
    found = nowcast_summary(history, generation)
    made, fallen_ill, number = found.reported, found.onsets, found.number
    _write(out, made, fallen_ill, number)
    for row, name in enumerate(history.regions[:MOST_FIGURES]):
        figure = nowcast_figure(name, row, found, history.attribution)
        drawing.save(figure, out / figure_name(name))
    if as_json:
        print(to_json(_record(made, fallen_ill, number, generation)))
    else:
        rows = [_row(made, number, row) for row in range(min(len(made.regions), MOST_FIGURES))]
        caption = f"As known on {made.as_of}. R is of the week to {made.days[-1]}" + (
            f", by onset (known for {fallen_ill.with_onset:.0%})"
            if fallen_ill
            else ", by reporting date: the list has no onsets of the last weeks"
        )
        caption += f". {FRACTION}"
        print_table(f"Nowcast of {made.as_of}", NOWCAST_HEADER, rows, caption)
    if len(made.regions) > MOST_FIGURES:
        messages.print(
            f"shown: the first {MOST_FIGURES} of {len(made.regions)} regions; the tables have all"
        )
    messages.print(f"the nowcast is in {out}")


def _print_weeks(weeks: "WeeklyVintages", out: Path, as_json: bool) -> None:
    """Write and print the newest weeks as they will be once they are revised."""
    from epifed.files import write_text

    for note in weeks.notes:
        say_note(note)
    table = weeks.nowcast()
    write_text(out / "weeks.csv", table.write_csv())
    newest = table.filter(table["date"] == table["date"].max())
    if as_json:
        print(to_json({"as_of": weeks.last, "weeks": table.to_dicts()}))
    else:
        rows = [
            [row["region"], f"{row['known']:,.6g}", f"{row['estimate']:,.1f}"]
            for row in newest.head(MOST_FIGURES).iter_rows(named=True)
        ]
        used = weeks.signals and not weeks.notes
        signals = f", improved by {', '.join(weeks.signals)}" if used else ""
        learned = f"revisions learned from earlier vintages{signals}"
        caption = f"As known on {weeks.last}; {learned}. {FRACTION}"
        print_table(f"The week to {newest['date'][0]}", WEEKS_HEADER, rows, caption)
    if len(newest) > MOST_FIGURES and not as_json:
        messages.print(
            f"shown: the first {MOST_FIGURES} of {len(newest)} regions; the table has all"
        )
    messages.print(f"the nowcast is in {out}")


def _until(history: "Vintages", day: date, *, own: bool) -> "Vintages":
    """What was known on the morning of a day; an own list that ends before had no entry since."""
    if own and day > history.last:
        return history.quiet_until(day)
    if day > history.last:
        raise EpifedError(
            f"--as-of: found {day}; expected at most {history.last}, the last vintage of "
            f"{history.source}"
        )
    then = history.until(day)
    if then.last < day:
        raise EpifedError(
            f"--as-of: found {day}, for which {history.source} has no vintage; expected a day "
            f"such as {then.last}"
        )
    return then


def _write(
    out: Path, made: "Nowcast", fallen_ill: "OnsetNowcast | None", number: "Reproduction"
) -> None:
    from epifed.files import write_sheet

    write_sheet(out / "reported.csv", made.to_long())
    write_sheet(out / "reproduction.csv", number.to_long())
    if fallen_ill is not None:
        write_sheet(out / "onset.csv", fallen_ill.to_long())


def _record(
    made: "Nowcast",
    fallen_ill: "OnsetNowcast | None",
    number: "Reproduction",
    generation: "Generation",
) -> dict[str, Any]:
    from epifed.intervals import LEVELS

    at = [LEVELS.index(level) for level in (0.025, 0.975)]
    weeks = [
        {
            "region": region,
            "known": float(made.known[row, -7:].sum()),
            "estimate": float(made.week[row]),
            "lower_95": float(made.week_quantiles[row, at[0]]),
            "upper_95": float(made.week_quantiles[row, at[1]]),
        }
        for row, region in enumerate(made.regions)
    ]
    return {
        "as_of": made.as_of,
        "week": weeks,
        "reported": made.to_long().filter(_shown()).to_dicts(),
        "onset": None if fallen_ill is None else fallen_ill.to_long().to_dicts(),
        "onset_known": None if fallen_ill is None else fallen_ill.with_onset,
        "reproduction": number.to_long().to_dicts(),
        "generation_time": {"mean": generation.mean, "sd": generation.sd},
    }


def _shown() -> Any:
    import polars as pl

    return pl.col("level").is_in([0.025, 0.25, 0.5, 0.75, 0.975])


def _row(made: "Nowcast", number: "Reproduction", row: int) -> list[str]:
    from epifed.intervals import LEVELS

    low, high = (made.week_quantiles[row, LEVELS.index(level)] for level in (0.025, 0.975))
    lowest, _, middle, _, highest = number.quantiles[row, -1]
    return [
        made.regions[row],
        f"{made.known[row, -7:].sum():,.0f}",
        f"{made.week[row]:,.0f}",
        f"{low:,.0f} – {high:,.0f}",
        f"{middle:.2f}",
        f"{lowest:.2f} – {highest:.2f}",
    ]


TOTALS = ("US", "nation", "total")
"""Rows of vintages that are sums of the others."""
REAL_TIME_BASE = USUAL | {"learner": "real-time"}
BACKTEST_HEADER = ["", "regions", "MAE / persistence", "WIS / hub baseline", "in 50 %", "in 95 %"]
REAL_TIME_HEADER = ["MAE / final persistence", "nowcast / known"]


@reads_cases
@reads_targets
def backtest(
    first: Annotated[
        datetime,
        typer.Option("--from", formats=["%Y-%m-%d"], help="First day on which a forecast is made."),
    ],
    last: Annotated[
        datetime,
        typer.Option(
            "--to",
            formats=["%Y-%m-%d"],
            help="Last day that is forecast; with --vintages, last day with a forecast.",
        ),
    ],
    vintages: Annotated[
        Path | None,
        typer.Option(
            help="Data vintages: forecast with data as known on each day, score on final data."
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Case data: any source that 'data check' reads.",
            show_default="the last of weekly vintages",
        ),
    ] = None,
    signal: Annotated[
        str | None,
        typer.Option(help="The signal to forecast, if the vintages have several."),
    ] = None,
    every: Annotated[int, typer.Option(min=1, help="Days from one forecast to the next.")] = 7,
    learner: Annotated[
        str | None,
        typer.Option(
            help="The learner: trend, one-shot, fedavg, or one of another package.",
            show_default="of the settings, else trend",
        ),
    ] = None,
    epsilon: Annotated[
        str | None,
        typer.Option(
            metavar="E",
            help="Privacy budget ε of each release; inf means no privacy.",
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
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("backtest"),
    seed: Seed = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
    as_json: AsJson = False,
    *,
    target_options: TargetOptions,
    reading: Reading,
) -> None:
    """Score past forecasts, each made only with the data known on its day.

    The target is the 7-day trailing average of daily cases, or the count of a week. Scores are
    ratios; below 1 is better. MAE is relative to persistence ("next week equals this week"), WIS to
    the COVIDhub baseline. ε is for each release; the total over all origins is printed beside it.
    An interrupted command resumes. With --vintages each forecast uses the data as known on its day.
    Larger regions are forecast as sums of their clients.
    """
    refuse_unwritable(out)
    budget = parse_epsilons([epsilon])[0] if epsilon else None

    from epifed.data.readers.vintage_files import holds_weeks

    weekly = vintages is not None and holds_weeks(vintages)
    wish = SettingsRequest(
        settings,
        REAL_TIME_BASE if vintages and not weekly else USUAL,
        learner=learner,
        epsilon=budget,
        horizon=horizon,
        holidays=holidays,
        seed=seed,
    )

    from epifed.evaluation.backtest import origins_between, run_backtest, vintage_origins
    from epifed.report.tables import ratio

    target_options.refuse_early([])
    panel, known_when = _read(
        data, vintages, signal, weekly, reading.at(**target_options.reading())
    )
    target_options.refuse_early([wish.settings(panel).horizon * panel.step_days])
    if known_when is None:
        if last.date() < panel.start:
            raise EpifedError(
                f"--to: found {last.date()}; expected a day from {panel.start} to {panel.end}, the "
                f"days of {panel.source}"
            )
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
        origins = vintage_origins(*days, known_when, chosen.horizon)
    targets = target_options.targets(panel, [chosen.horizon], origins)
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
    hub = target_options.write(result.levels.forecasts if result.levels else result.forecasts)
    summary = result.summary()
    if as_json:
        print(to_json(summary))
    else:
        header = BACKTEST_HEADER + (REAL_TIME_HEADER if result.real_time else [])
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


def _read(
    data: Path | None, vintages: Path | None, signal: str | None, weekly: bool, reading: Reading
) -> "tuple[CasePanel, Vintages | WeeklyVintages | None]":
    """The final counts, and what was known when."""
    from epifed.data.readers.vintage_files import load_vintages, load_weekly_vintages

    if data is None and not weekly:
        raise EpifedError("found no --data; expected it, or --vintages of weeks")
    if signal is not None and not weekly:
        raise EpifedError("found --signal; expected --vintages of weeks with it")
    if vintages is None or not weekly:
        assert data is not None
        panel = reading.read(data)
        if vintages is None:
            return panel, None
        panel.refuse_step("day")
        return panel, load_vintages(vintages, regions=panel.regions)
    if data is None:
        known = load_weekly_vintages(vintages, counts=signal)
        known = known.of([region for region in known.regions if region not in TOTALS])
        panel = known.final()
    else:
        panel = reading.read(data)
        panel.refuse_step("week")
        known = load_weekly_vintages(vintages, counts=signal, regions=panel.regions)
    for note in known.notes:
        say_note(note)
    messages.print(_chosen(known), soft_wrap=True)
    return panel, known


def _chosen(vintages: "WeeklyVintages") -> str:
    """What is forecast with, in one sentence."""
    beside = f", improved by {' and '.join(vintages.signals)}" if vintages.signals else ""
    return (
        f"weekly counts as known in {counted(len(vintages.snapshots), 'vintage')}: the learner "
        "'trend' with the forecaster that public data taught, newest weeks completed by each "
        f"region's own revisions{beside}"
    )


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
