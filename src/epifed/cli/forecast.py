"""`epifed forecast`: one authority's forecast from a trained model and its own cases, offline."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from epifed.cli.aims import Aims, aims_at_levels
from epifed.cli.kit import AsJson, figure_name, messages, print_table, refuse_unwritable
from epifed.cli.source import Reading, reads_cases
from epifed.days import DAYS_OF
from epifed.files import to_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from epifed.anomalies import Cleaned
    from epifed.forecasting import Forecast
    from epifed.learner import Parts
    from epifed.panel import CasePanel
    from epifed.release import Release
    from epifed.targets import Targets

HEADER = [
    "region", "week to", "like today", "forecast", "50 % interval", "95 % interval",
    "country", "place", "own", "holidays", "reports",
]  # fmt: skip
WEEKLY_HEADER = [*HEADER[:2], "like this week", *HEADER[3:9], "earlier years", "reports"]
PLAIN = 6
"""Columns of a learner that cannot say where a change comes from."""
WHAT = {"day": "7-day average of daily cases", "week": "cases of a week"}
STALE_DAYS = 7
MOST_FIGURES = 12


@reads_cases
@aims_at_levels
def forecast(
    model: Annotated[Path, typer.Argument(help="The release file of 'train' or a federation.")],
    data: Annotated[Path, typer.Option(help="Your own cases: any source 'data check' reads.")],
    out: Annotated[Path, typer.Option(help="Directory for the forecast and its figures.")] = Path(
        "forecast"
    ),
    horizon: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            max=28,
            help="Days ahead; of weekly data, weeks. Repeat for several.",
            show_default="that of the model",
        ),
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(help="A ledger to vouch for the release, a site's own book, say; only read."),
    ] = None,
    vintages: Annotated[
        Path | None,
        typer.Option(help="What became known when, if you keep it; else the archive is used."),
    ] = None,
    archive: Annotated[
        Path | None,
        typer.Option(
            help="Directory in which what you give each day is kept, on this machine.",
            show_default="of the data file, in the user's state directory",
        ),
    ] = None,
    as_json: AsJson = False,
    *,
    aims: Aims,
    reading: Reading,
) -> None:
    """Forecast the 7-day average of daily cases, or the cases of a week, from your own data.

    Nothing leaves this machine: the model is a file, and the intervals come from how wrong it would
    have been on your own past days. Reports that are no count of their day, such as a backlog, are
    named and not carried on. The model should be as new as the data: its trend fades with every day
    it is older. What you give is kept, so that in two weeks it is known how late your cases come.
    """
    refuse_unwritable(out)

    import polars as pl

    from epifed.anomalies import RECENT_DAYS
    from epifed.files import write_parquet
    from epifed.outlook import Outlook
    from epifed.release import read_release
    from epifed.report import drawing
    from epifed.report.forecast_figure import forecast_figure
    from epifed.targets import level_rows
    from epifed.windows import observed

    trained = read_release(model)
    horizons = sorted(set(horizon or [trained.settings.horizon]))
    aims.refuse_early([DAYS_OF[trained.settings.step] * steps for steps in horizons])
    panel = reading.at(**aims.reading()).read(data)
    panel, timeliness = _on_its_morning(panel, data, vintages, archive, trained)
    trained.age_on(panel.end)
    vouching = trained.vouching(ledger)
    outlook = Outlook.of(panel, trained.learner, trained.state_on(panel.end), horizons)
    known, state, made = outlook.known, outlook.state, outlook.forecasts
    targets = aims.targets(panel, horizons, [panel.end])
    larger = [one for _, one in targets.made(known, trained.learner, state)] if targets else []
    table, changes = outlook.to_long(), outlook.parts_table()
    above = pl.concat(map(level_rows, larger)) if larger else None
    write_parquet(out / "forecast.parquet", table)
    if above is not None:
        write_parquet(out / "levels.parquet", above)
    write_parquet(out / "anomalies.parquet", known.to_long())
    if changes is not None:
        write_parquet(out / "parts.parquet", changes)
    for region in panel.regions[:MOST_FIGURES]:
        drawing.save(forecast_figure(panel, region, made), out / figure_name(region))
    hub = aims.write(larger or made)
    if as_json:
        about = {
            "release": trained.sentence(),
            "vouching": vouching,
            "timeliness": timeliness,
        }
        found = {
            "forecast": table.to_dicts(),
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
            f"{trained.sentence()}. {vouching}",
        )
    _say(panel, trained, known, targets, timeliness)
    messages.print(f"the forecast is in {out}{hub}")


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
    from epifed.anomalies import RECENT_DAYS

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
    """What the country, the region, the own level and holidays add to a forecast, in per cent."""
    if parts is None:
        return []
    return [f"{100 * math.expm1(float(part[row])):+.0f} %" for part in vars(parts).values()]


def _on_its_morning(
    panel: "CasePanel",
    data: Path,
    vintages: Path | None,
    folder: Path | None,
    trained: "Release",
) -> "tuple[CasePanel, str]":
    """The panel with what was known on earlier days, as far as it is kept, and a sentence on it.

    Without, a newest day that looks incomplete and is newer than the release is left out.
    """
    from datetime import timedelta
    from hashlib import sha256

    from epifed.archive import mornings_kept, remember
    from epifed.ledger.witness import state_root
    from epifed.outlook import timely
    from epifed.sources.vintages import load_vintages
    from epifed.vintages import LEAST_MORNINGS

    if panel.step == "week":
        if vintages is not None:
            panel.refuse_step("day")
        return timely(panel, panel, trained.learner, trained.last_day, "")
    if vintages is not None:
        history = load_vintages(vintages, regions=panel.regions)
        known = history.as_known(panel.end + timedelta(days=1), like=panel)
    else:
        key = sha256(str(data.resolve()).encode()).hexdigest()[:16]
        folder = folder or state_root() / "vintages" / key
        known = remember(folder, panel)
    kept = mornings_kept(folder) if folder else 0
    reason = f"{kept} of {LEAST_MORNINGS} mornings are kept in {folder}"
    return timely(panel, known, trained.learner, trained.last_day, reason)
