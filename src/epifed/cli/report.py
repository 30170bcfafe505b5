"""`epifed report`: one self-contained HTML file for those who decide."""

from pathlib import Path
from typing import Annotated

import typer

from epifed.cli.kit import messages, refuse_unwritable_file
from epifed.cli.source import Reading, reads_cases


@reads_cases
def report(
    results: Annotated[
        Path,
        typer.Argument(help="Directory by 'epifed run', 'epifed reproduce' or 'epifed backtest'."),
    ],
    out: Annotated[Path, typer.Option(help="The HTML file to write.")] = Path("report.html"),
    data: Annotated[
        Path | None,
        typer.Option(
            help="The case data behind the results, for history and map.",
            show_default="the simulated country, if the results are of one",
        ),
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="A budget ledger whose state is shown; only read.")
    ] = None,
    title: Annotated[
        str | None, typer.Option(help="Title of the page.", show_default="in the reader's language")
    ] = None,
    *,
    reading: Reading,
) -> None:
    """Write one HTML file: map, forecasts with their uncertainty, privacy in plain words.

    It needs no network and can be mailed. What the results do not hold is left out and said so.
    """
    refuse_unwritable_file(out)

    from epifed.report.html import write_report

    panel = None
    if data is not None:
        panel = reading.read(data)
    write_report(results, out, panel, ledger=ledger, title=title, remark=messages.print)
    print(f"Wrote {out} ({out.stat().st_size / 1e6:.1f} MB). Open it in a browser.")
