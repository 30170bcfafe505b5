"""`epifed forecast`: one authority's forecast from a trained model and its own cases, offline."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from epifed.cli.kit import AsJson, messages, print_table, refuse_file
from epifed.cli.source import Reading, reads_cases
from epifed.files import to_json

if TYPE_CHECKING:
    from epifed.learner import Parts

HEADER = [
    "region", "week to", "like today", "forecast", "50 % interval", "95 % interval",
    "country", "place", "own", "holidays",
]  # fmt: skip
PLAIN_HEADER = HEADER[:6]
STALE_DAYS = 7
MOST_FIGURES = 12


@reads_cases
def forecast(
    model: Annotated[Path, typer.Argument(help="The release file of 'train' or a federation.")],
    data: Annotated[Path, typer.Option(help="Your own cases: any source 'data check' reads.")],
    out: Annotated[Path, typer.Option(help="Directory for the forecast and its figures.")] = Path(
        "forecast"
    ),
    horizon: Annotated[
        list[int] | None,
        typer.Option(min=1, max=28, help="Days ahead. Repeat for several.", show_default="7"),
    ] = None,
    hub: Annotated[
        Path | None, typer.Option(help="Also write the forecast into this hubverse folder.")
    ] = None,
    model_name: Annotated[str, typer.Option(help="team-model in the hub.")] = "epifed-trend",
    ledger: Annotated[
        Path | None,
        typer.Option(help="A ledger to vouch for the release, a site's own book, say; only read."),
    ] = None,
    as_json: AsJson = False,
    *,
    reading: Reading,
) -> None:
    """Forecast the 7-day average of daily cases from the last day of your own data.

    Nothing leaves this machine: the model is a file, and the intervals come from how wrong it would
    have been on your own past days. The model should be as new as the data: its trend fades with
    every day it is older.
    """
    refuse_file(out)

    import polars as pl

    from epifed import forecasting
    from epifed.files import write_parquet
    from epifed.hub import to_hub, write_hub
    from epifed.intervals import LEVELS
    from epifed.release import read_release
    from epifed.report import drawing
    from epifed.report.forecast_figure import forecast_figure
    from epifed.windows import smooth

    trained = read_release(model)
    panel = reading.read(data)
    age = trained.age_on(panel.end)
    vouching = trained.vouching(ledger)
    state = trained.state_on(panel.end)
    made = [
        forecasting.forecast(panel, trained.learner, state, days)
        for days in sorted(set(horizon or [trained.settings.horizon]))
    ]
    if hub:
        to_hub(made)
    table = pl.concat(one.to_long() for one in made)
    write_parquet(out / "forecast.parquet", table)
    parts = {one.horizon: trained.learner.parts(panel, state, one.horizon) for one in made}
    whence = [
        found.to_long(panel.regions, days) for days, found in parts.items() if found is not None
    ]
    if whence:
        write_parquet(out / "parts.parquet", pl.concat(whence))
    for region in panel.regions[:MOST_FIGURES]:
        drawing.save(forecast_figure(panel, region, made), out / f"{_file(region)}.png")
    if hub:
        write_hub(made, hub, model_name)
    if as_json:
        about = {"release": trained.sentence(), "vouching": vouching}
        changes = pl.concat(whence).to_dicts() if whence else None
        print(to_json(about | {"forecast": table.to_dicts(), "parts": changes}))
    else:
        today = smooth(panel.counts, "trailing")[:, -1]
        at = [LEVELS.index(level) for level in (0.25, 0.75, 0.025, 0.975)]
        rows = [
            [
                panel.names[row],
                f"{one.target_date}",
                f"{today[row]:.1f}",
                f"{one.point[row]:.1f}",
                f"{one.quantiles[row, at[0]]:.1f} – {one.quantiles[row, at[1]]:.1f}",
                f"{one.quantiles[row, at[2]]:.1f} – {one.quantiles[row, at[3]]:.1f}",
                *_changes(parts[one.horizon], row),
            ]
            for row in range(min(len(panel.regions), MOST_FIGURES))
            for one in made
        ]
        print_table(
            f"7-day average of daily cases, forecast of {panel.end}",
            HEADER if whence else PLAIN_HEADER,
            rows,
            f"{trained.sentence()}. {vouching}",
        )
    if len(panel.regions) > MOST_FIGURES:
        messages.print(
            f"shown: the first {MOST_FIGURES} of {len(panel.regions)} regions; forecast.parquet "
            "has all"
        )
    if age > STALE_DAYS:
        messages.print(
            f"the release learned up to {trained.last_day}, {age} days before the last day of the "
            "data: the newest trend is missing; ask for a newer one"
        )
    messages.print(f"the forecast is in {out}" + (f", hub files in {hub}" if hub else ""))


def _changes(parts: "Parts | None", row: int) -> list[str]:
    """What the country, the region, the own level and holidays add to a forecast, in per cent."""
    if parts is None:
        return []
    return [f"{100 * math.expm1(float(part[row])):+.0f} %" for part in vars(parts).values()]


def _file(region: str) -> str:
    """A region's id as a file name."""
    return "".join(c if c.isalnum() else "_" for c in region) or "region"
