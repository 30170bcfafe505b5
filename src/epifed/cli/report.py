"""`epifed report` and `epifed explain`: the HTML page, and the guarantee in plain sentences."""

from pathlib import Path
from typing import Annotated

import typer

from epifed.cli.common import AsJson, Reading, messages, reads_cases, refuse_unwritable_file
from epifed.files import to_json


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
    """Write one HTML page with map, forecasts, intervals and the privacy guarantee.

    The page needs no network and can be mailed. It names what the results do not contain.
    """
    refuse_unwritable_file(out)

    from epifed.report.html import write_report

    panel = None
    if data is not None:
        panel = reading.read(data)
    write_report(results, out, panel, ledger=ledger, title=title, remark=messages.print)
    print(f"Wrote {out} ({out.stat().st_size / 1e6:.1f} MB). Open it in a browser.")


def explain(
    result: Annotated[
        Path,
        typer.Argument(
            metavar="RESULT",
            help="A directory by 'epifed run', 'reproduce' or 'backtest', or a release by 'train'.",
            show_default=False,
        ),
    ],
    ledger: Annotated[
        Path | None,
        typer.Option(help="Ledger to verify a release against; only read."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print in plain sentences what a result guarantees, and what it does not."""
    from epifed.explain import explain as read

    found = read(result, ledger)
    print(to_json(found.to_dict()) if as_json else "\n\n".join(found.sentences()))
