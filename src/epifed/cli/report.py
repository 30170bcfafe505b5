"""`epifed open`, `report` and `explain`: the local page, the HTML report, the guarantee."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from epifed.cli.common import (
    AsJson,
    Reading,
    messages,
    reads_cases,
    refuse_unwritable_file,
    require,
)
from epifed.errors import EpifedError
from epifed.files import to_json

if TYPE_CHECKING:
    from epifed.site_report import Member


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
            help="A directory by 'epifed run', 'reproduce' or 'backtest', or a release file.",
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

    explanation = read(result, ledger)
    print(to_json(explanation.to_dict()) if as_json else "\n\n".join(explanation.sentences()))


NEEDED = ("filelock", "starlette", "uvicorn", "fastexcel", "xlsxwriter")


def open(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="File of case counts: CSV, Excel, ODS, zip or parquet; or drop one on the page.",
            show_default=False,
        ),
    ] = None,
    kit: Annotated[
        Path | None,
        typer.Option(help="Startup kit of a site: also show this week's release and training."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 picks a free one.")] = 0,
    browser: Annotated[
        bool, typer.Option(help="Open the browser, or only print the address.")
    ] = True,
) -> None:
    """Open a local page: drop a file on it and download a forecast.

    Nothing leaves this machine. Ctrl-C ends the page and deletes the files that were dropped on it.
    """
    require("app", *NEEDED)

    from epifed.app.server import serve
    from epifed.app.session import PageSession, private_folder
    from epifed.data.readers.tables import existing

    if file is not None:
        existing(file)
    member = _member(kit.resolve()) if kit is not None else None

    def say(address: str) -> None:
        print(f"the page is at {address}", flush=True)
        print("Ctrl-C ends it; nothing leaves this machine", flush=True)

    with private_folder() as folder:
        desk = PageSession(folder, member=member)
        if file is not None:
            desk.open(file.resolve(), file.name)
        serve(desk, port, say, browser=browser)


def _member(kit: Path) -> "Member":
    """The site of a kit, which needs what a federation needs."""
    from epifed.cli.common import MODEL_NAME
    from epifed.cli.federation import REPORTS

    if not (kit / "clients.json").is_file():
        raise EpifedError(f"{kit}: expected a site's kit by 'epifed federation init'")
    require("federation", "cryptography")

    from epifed.site_report import Member

    return Member(kit, kit / REPORTS, MODEL_NAME)
