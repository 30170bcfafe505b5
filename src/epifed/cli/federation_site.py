"""`epifed federation site` and `report`: what runs at an office."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from epifed.cli.common import (
    MODEL_NAME,
    AsJson,
    FirstDay,
    LastDay,
    Reading,
    SettingsRequest,
    messages,
    reads_cases,
    refuse_unwritable,
)
from epifed.errors import EpifedError
from epifed.files import to_json

if TYPE_CHECKING:
    from epifed.federation.site import Fetch, Source
    from epifed.learners.base import Period
    from epifed.settings import Settings

REPORTS = "reports"
MOST_SHOWN = 40
"""Numbers of a vector that are shown."""
Kit = Annotated[Path, typer.Option(help="The startup kit of this party.")]
Out = Annotated[
    Path | None,
    typer.Option(
        help="Folder for the office's own forecast, nowcast and report of each week.",
        show_default="'reports' in the kit",
    ),
]
ModelName = Annotated[str, typer.Option(help="Name team-model in the hub's files.")]


@reads_cases
def site(
    kit: Kit,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Case data: any source that 'data check' reads; looked at when it changes."
        ),
    ] = None,
    command: Annotated[
        str | None,
        typer.Option(
            help="A program that writes --data or, without it, prints the file; its exit code "
            "must be 0."
        ),
    ] = None,
    every: Annotated[
        int, typer.Option(min=1, max=7 * 24 * 60, help="Minutes between two runs of --command.")
    ] = 60,
    command_minutes: Annotated[
        int, typer.Option(min=1, max=12 * 60, help="Minutes that --command may take.")
    ] = 10,
    out: Out = None,
    model_name: ModelName = MODEL_NAME,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Print every number that would be sent this week; send nothing."
        ),
    ] = False,
    settings: Annotated[
        Path | None,
        typer.Option(
            help="With --dry-run: settings of the training, as TOML.",
            show_default="of the last training",
        ),
    ] = None,
    enrolled: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="With --dry-run: N, clients in the roster.",
            show_default="of the last training",
        ),
    ] = None,
    first: FirstDay = None,
    last: LastDay = None,
    as_json: AsJson = False,
    *,
    reading: Reading,
) -> None:
    """Run a site until it is stopped.

    The site checks its file whenever it changes and keeps a copy of each day. It takes part in
    trainings and writes the office's forecast, nowcast and report of each week to a folder. Bad
    data is reported there, and the site skips the week. It connects to one port of the server and
    listens on none.
    """
    kit = kit.resolve()
    if dry_run:
        _preview(kit, Preview(data, reading, settings, enrolled, first, last), as_json=as_json)
        return
    if settings or enrolled or first or last or as_json:
        raise EpifedError(
            "found --settings, --enrolled, --from, --to or --json; expected --dry-run with them"
        )
    from epifed.federation.flare.parties import site_command
    from epifed.federation.flare.service import Service, office_command
    from epifed.federation.site import Source
    from epifed.hubs.submission import refuse_for_hub

    refuse_for_hub(model_name)
    if out is not None:
        refuse_unwritable(out)
    fetch = _fetch(kit, command, data, 60.0 * command_minutes)
    path = _path(data, fetch)
    source = Source(str(path.resolve()), reading.format, reading.options)
    if fetch is not None:
        fetch.first()
    client = site_command(kit, source)
    office = office_command(kit, (out or kit / REPORTS).resolve(), model_name)
    running = Service(kit, client, office, messages.print, fetch, 60.0 * every)
    raise typer.Exit(running.run())


def report(
    kit: Kit, out: Out = None, model_name: ModelName = MODEL_NAME, as_json: AsJson = False
) -> None:
    """Check a site's data and write its own forecast, nowcast and report of the newest week.

    'epifed federation site' does this whenever something changes. Nothing leaves the machine. Exit
    code 1 if something is wrong; problem.txt has the details.
    """
    from epifed.hubs.submission import refuse_for_hub
    from epifed.site_report import update_site

    refuse_for_hub(model_name)
    if out is not None:
        refuse_unwritable(out)
    if not (kit / "clients.json").is_file():
        raise EpifedError(f"{kit}: expected a site's kit by 'epifed federation init'")
    if not (kit / "data.json").is_file():
        raise EpifedError(f"{kit}: knows no data yet; expected 'epifed federation site' before")
    folder = (out or kit / REPORTS).resolve()
    status = update_site(kit.resolve(), folder, model_name, say=messages.print)
    if as_json:
        print(to_json(status))
    else:
        for sentence in status["problems"]:
            messages.print(f"problem: {sentence}", soft_wrap=True)
        made = f"{status['week']} is in {folder}" if status["made"] else "no week's forecast yet"
        print(f"data to {status['last_day']}; {made}")
    if status["problems"]:
        raise typer.Exit(1)


@dataclass(frozen=True)
class Preview:
    """What was said of a training to look ahead at."""

    data: Path | None
    reading: Reading
    settings: Path | None
    enrolled: int | None
    first: datetime | None
    last: datetime | None

    def source(self, kit: Path) -> "Source":
        """The data of the service, or others."""
        from epifed.federation.site import Source, remembered

        if self.data is not None:
            path = str(self.data.resolve())
            return Source(path, self.reading.format, self.reading.options)
        if (found := remembered(kit)) is None:
            raise EpifedError("found no --data and none in the kit; expected the case data")
        return found

    def training(self, kit: Path) -> "tuple[Settings, Period, int]":
        """Settings, days and N: as given, else as of the last training, this week."""
        from epifed.federation.site import LastAsked, this_week
        from epifed.settings import Settings

        asked = LastAsked.of(kit)
        if (self.first is None) != (self.last is None):
            raise EpifedError("found one of --from and --to; expected both or neither")
        if asked is None and not (self.settings and self.enrolled and self.first):
            raise EpifedError(
                "found no training that this site was asked for yet; expected --settings, "
                "--enrolled, --from and --to"
            )
        enrolled = self.enrolled or (asked.enrolled if asked else 0)
        if self.settings is not None:
            chosen = SettingsRequest(self.settings).settings(enrolled)
        else:
            assert asked is not None
            chosen = Settings.from_toml(asked.settings)
        if self.first and self.last:
            return chosen, (self.first.date(), self.last.date()), enrolled
        assert asked is not None
        return chosen, this_week(asked, datetime.now().date()), enrolled


def _preview(kit: Path, wished: Preview, *, as_json: bool) -> None:
    from epifed.federation.site import preview

    found = preview(kit, *wished.training(kit), source=wished.source(kit))
    if as_json:
        print(to_json(found.to_dict()))
        return
    plan, (first, last) = found.plan, found.period
    for client, row, norm in zip(found.clients, found.rows, found.norms, strict=True):
        print(f"client {client}, days {first} to {last}")
        if client in found.left_out:
            print(f"  nothing but zeros: {found.left_out[client]}")
            continue
        for name, value in list(zip(found.entries, row, strict=True))[:MOST_SHOWN]:
            print(f"  {float(value):+.6f}  {name}")
        if len(row) > MOST_SHOWN:
            print(f"  ... and {len(row) - MOST_SHOWN} more; --json has all")
        print(f"  norm {norm:.6f}; at most S = {plan.bound:g}")
    drawn = f"; drawn with probability {plan.sampling_rate:.3g}, else zeros are sent"
    drawn = "" if plan.sampling_rate == 1 else drawn
    if found.sealed:
        print(f"sent: their sum in one sealed report of {found.bytes:,} bytes{drawn}")
    else:
        print(f"sent: {found.bytes:,} bytes, these numbers and one line{drawn}")
        print(f"the line: {found.about}")
    if plan.rounds > 1:
        print(f"this is the first of {plan.rounds} rounds; later ones start from what it releases")
    if not found.fits:
        print("it would be REFUSED: the training does not fit into the site's total ε")
    messages.print("nothing was sent, spent or written")


def _fetch(kit: Path, command: str | None, data: Path | None, patience: float) -> "Fetch | None":
    from epifed.federation.site import Fetch

    if command is None:
        return None
    return Fetch(kit, command, data.resolve() if data else None, patience)


def _path(data: Path | None, fetch: "Fetch | None") -> Path:
    if fetch is not None:
        return fetch.path
    if data is None:
        raise EpifedError("found neither --data nor --command; expected the site's case data")
    return data
