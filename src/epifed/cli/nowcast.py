"""`epifed nowcast`: the last two weeks as they will be once all reports are in, and R(t)."""

from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from epifed.cli.kit import AsJson, figure_name, messages, print_table, refuse_unwritable
from epifed.errors import EpifedError
from epifed.files import to_json

if TYPE_CHECKING:
    from epifed.nowcast import Nowcast
    from epifed.onsets import OnsetNowcast
    from epifed.reproduction import Generation, Reproduction
    from epifed.vintages import Vintages

HEADER = ["region", "last 7 days known", "estimate", "95 % interval", "R", "95 % interval"]
MOST_FIGURES = 12


def nowcast(
    vintages: Annotated[
        Path,
        typer.Option(
            help="What became known when: a table, a folder of dated line lists, your own list, "
            "or a data directory that has one."
        ),
    ],
    as_of: Annotated[
        datetime | None,
        typer.Option(formats=["%Y-%m-%d"], help="The morning of the nowcast.", show_default="last"),
    ] = None,
    region: Annotated[
        list[str] | None, typer.Option(help="Only this region. Repeat for several.")
    ] = None,
    generation_mean: Annotated[
        float, typer.Option(help="Days from one case to the next it causes (Nishiura 2020).")
    ] = 4.7,
    generation_sd: Annotated[float, typer.Option(help="Their standard deviation.")] = 2.9,
    column_known: Annotated[
        str | None, typer.Option(help="Column of the first morning that knew a row.")
    ] = None,
    column_entry: Annotated[
        str | None, typer.Option(help="Own list: column of the day a row was entered.")
    ] = None,
    column_region: Annotated[str | None, typer.Option(help="Column of the region's id.")] = None,
    column_reported: Annotated[
        str | None, typer.Option(help="Column of the reporting date.")
    ] = None,
    column_onset: Annotated[str | None, typer.Option(help="Column of the onset.")] = None,
    column_cases: Annotated[
        str | None, typer.Option(help="Column of the cases; without one, a row is one case.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Directory for tables and figures.")] = Path("nowcast"),
    as_json: AsJson = False,
) -> None:
    """Estimate the last two weeks as they will be known once all reports are in, and R(t).

    By reporting date and, where the list has onsets, by date of onset. Nothing leaves this machine:
    how late cases are reported is learned from what the list knew on earlier days.
    """
    refuse_unwritable(out)

    from epifed.report import drawing
    from epifed.report.nowcast_figure import nowcast_figure
    from epifed.reproduction import Generation
    from epifed.situation import situation
    from epifed.sources.vintages import load_vintages

    columns = {
        "known": column_known,
        "entry": column_entry,
        "region": column_region,
        "reported": column_reported,
        "onset": column_onset,
        "cases": column_cases,
    }
    given = {name: column for name, column in columns.items() if column is not None}
    generation = Generation(generation_mean, generation_sd)
    history = load_vintages(vintages, regions=region, **given)
    if as_of:
        history = _until(history, as_of.date(), own=column_entry is not None)
    found = situation(history, generation)
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
        print_table(f"Nowcast of {made.as_of}", HEADER, rows, caption)
    if len(made.regions) > MOST_FIGURES:
        messages.print(
            f"shown: the first {MOST_FIGURES} of {len(made.regions)} regions; the tables have all"
        )
    messages.print(f"the nowcast is in {out}")


def _until(history: "Vintages", day: date, *, own: bool) -> "Vintages":
    """What was known on the morning of a day; an own list that ends before had no entry since."""
    if own and day > history.last:
        return history.quiet_until(day)
    if day > history.last:
        raise EpifedError(
            f"--as-of: found {day}; expected at most {history.last}, the last morning of "
            f"{history.source}"
        )
    then = history.until(day)
    if then.last < day:
        raise EpifedError(
            f"--as-of: found {day}, on which nobody looked at {history.source}; expected a morning "
            f"such as {then.last}"
        )
    return then


def _write(
    out: Path, made: "Nowcast", fallen_ill: "OnsetNowcast | None", number: "Reproduction"
) -> None:
    from epifed.files import write_text

    write_text(out / "reported.csv", made.to_long().write_csv())
    write_text(out / "reproduction.csv", number.to_long().write_csv())
    if fallen_ill is not None:
        write_text(out / "onset.csv", fallen_ill.to_long().write_csv())


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
