"""`epifed open`: a local page that reads a file, checks it and forecasts from it."""

import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from epifed.errors import EpifedError

if TYPE_CHECKING:
    from epifed.app.member import Member

NEEDED = ("starlette", "uvicorn", "fastexcel", "xlsxwriter")


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
    for name in NEEDED:
        if find_spec(name) is None:
            raise EpifedError(f"{name}: not installed; expected 'pip install epifed[app]'")

    from epifed.app.server import serve
    from epifed.app.session import PageSession
    from epifed.data.readers.tables import existing

    if file is not None:
        existing(file)
    member = _member(kit.resolve()) if kit is not None else None

    def say(address: str) -> None:
        print(f"the page is at {address}", flush=True)
        print("Ctrl-C ends it; nothing leaves this machine", flush=True)

    with tempfile.TemporaryDirectory(prefix="epifed-open-") as folder:
        desk = PageSession(Path(folder).resolve(), member=member)
        if file is not None:
            desk.open(file.resolve(), file.name)
        serve(desk, port, say, browser=browser)


def _member(kit: Path) -> "Member":
    """The site of a kit, which needs what a federation needs."""
    from epifed.cli.common import MODEL_NAME
    from epifed.cli.federation_site import REPORTS

    if not (kit / "clients.json").is_file():
        raise EpifedError(f"{kit}: expected a site's kit by 'epifed federation init'")
    for name in ("cryptography", "filelock"):
        if find_spec(name) is None:
            raise EpifedError(f"{name}: not installed; expected 'pip install epifed[federation]'")

    from epifed.app.member import Member

    return Member(kit, kit / REPORTS, MODEL_NAME)
