"""`epifed federation`: set up a federation, and run its server, sites and aggregators."""

import shutil
import sys
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from epifed.cli import federation_train
from epifed.cli import federation_train as federation_dashboard
from epifed.cli import federation_train as federation_schedule
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
    require,
)
from epifed.cli.federation_train import order_settings
from epifed.errors import EpifedError, counted
from epifed.files import to_json

if TYPE_CHECKING:
    from epifed.federation.site import Fetch, Source
    from epifed.learners.base import Period
    from epifed.settings import Settings

Kit = Annotated[Path, typer.Option(help="The startup kit of this party.")]

REPORTS = "reports"
MOST_SHOWN = 40
"""Numbers of a vector that are shown."""
Out = Annotated[
    Path | None,
    typer.Option(
        help="Folder for the office's own forecast, nowcast and report of each week.",
        show_default="'reports' in the kit",
    ),
]
ModelName = Annotated[str, typer.Option(help="Name in the hub's files, as TEAM-MODEL.")]


@reads_cases
def site(
    kit: Kit,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Case data: any source that 'data check' reads; read again when it changes."
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
    data is reported there, and its client counts as zero. It connects to one port of the server
    and listens on none.
    """
    kit = kit.resolve()
    if dry_run:
        _preview(kit, Preview(data, reading, settings, enrolled, first, last), as_json=as_json)
        return
    if settings or enrolled or first or last or as_json:
        raise EpifedError(
            "found --settings, --enrolled, --from, --to or --json; expected --dry-run with them"
        )
    from epifed.federation.flare.parties import Service, office_command, site_command
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
        raise EpifedError(f"{kit}: found no data yet; expected 'epifed federation site' before")
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
        if (source := remembered(kit)) is None:
            raise EpifedError("found no --data and none in the kit; expected the case data")
        return source

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

    shown = preview(kit, *wished.training(kit), source=wished.source(kit))
    if as_json:
        print(to_json(shown.to_dict()))
        return
    plan, (first, last) = shown.plan, shown.period
    for client, row, norm in zip(shown.clients, shown.rows, shown.norms, strict=True):
        print(f"client {client}, days {first} to {last}")
        if client in shown.left_out:
            print(f"  nothing but zeros: {shown.left_out[client]}")
            continue
        for name, value in list(zip(shown.entries, row, strict=True))[:MOST_SHOWN]:
            print(f"  {float(value):+.6f}  {name}")
        if len(row) > MOST_SHOWN:
            print(f"  ... and {len(row) - MOST_SHOWN} more; --json has all")
        print(f"  norm {norm:.6f}; at most S = {plan.bound:g}")
    drawn = f"; drawn with probability {plan.sampling_rate:.3g}, else zeros are sent"
    drawn = "" if plan.sampling_rate == 1 else drawn
    if shown.sealed:
        print(f"sent: their sum in one sealed report of {shown.bytes:,} bytes{drawn}")
    else:
        print(f"sent: {shown.bytes:,} bytes, these numbers and one line{drawn}")
        print(f"the line: {shown.about}")
    if plan.rounds > 1:
        print(f"this is the first of {plan.rounds} rounds; later ones start from what it releases")
    if not shown.fits:
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


def new(
    name: Annotated[str, typer.Argument(help="Name of the federation and of its folder.")],
    host: Annotated[
        str | None,
        typer.Option(help="Host name or address of the server, as all parties reach it."),
    ] = None,
    site: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=REGION,…", help="A site and its regions. Repeat for several."),
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="The server's one port.")] = 8002,
    epsilon: Annotated[float, typer.Option(min=0.001, help="ε of each week.")] = 1.0,
    weeks: Annotated[int, typer.Option(min=1, max=520, help="Weeks that are planned.")] = 52,
    days: Annotated[
        int,
        typer.Option(min=14, max=3660, help="Days that are learned from; every site needs them."),
    ] = 180,
    first: Annotated[
        datetime | None,
        typer.Option(
            formats=["%Y-%m-%d"], help="A day in the first week.", show_default="next Monday"
        ),
    ] = None,
    zone: Annotated[str, typer.Option(help="Time zone of the schedule.")] = "UTC",
    aggregator: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Aggregator that adds up in the server's place. Give none, or at least two.",
        ),
    ] = None,
    own_keys: Annotated[
        bool, typer.Option("--own-keys", help="Sites make their private keys themselves.")
    ] = False,
    language: Annotated[str, typer.Option(help="Of the readme in each kit: en or de.")] = "en",
    out: Annotated[Path | None, typer.Option(help="Folder to make.", show_default="NAME")] = None,
) -> None:
    """Make roster, settings, schedule, kits and ledger of a new federation in one folder.

    Asks for what is not given. Each line of the files has a comment, and each kit has a readme. The
    sites' terms fit the trainings, and the budget covers all weeks.
    """
    from epifed.federation.flare.kits import make_kits
    from epifed.federation.scaffold import (
        LANGUAGES,
        LEDGER,
        README,
        Outline,
        parse_sites,
        write_scaffold,
    )
    from epifed.learners.base import make_learner
    from epifed.ledger.ledger import Ledger
    from epifed.training.loop import expect

    if language not in LANGUAGES:
        raise EpifedError(f"--language: found '{language}'; expected en or de")
    folder = out or Path(name)
    refuse_unwritable(folder)
    outline = Outline(
        name=name,
        host=host or _asked("host of the server, such as fed.example.org", "--host"),
        sites=parse_sites(site or _asked_sites()),
        first=first.date() if first else _next_monday(date.today()),
        port=port,
        epsilon=epsilon,
        weeks=weeks,
        days=days,
        zone=zone,
        aggregators=tuple(aggregator or ()),
        own_keys=own_keys,
        language=language,
    )
    roster = outline.federation
    written = write_scaffold(outline, folder)
    made = make_kits(roster, folder, outline.settings, outline.schedule)
    if not (folder / LEDGER).exists():
        Ledger.create(folder / LEDGER, outline.cap, f"federation {name}")
    for path in (*written, folder / LEDGER, *made.kits, *made.requests):
        print(f"made {path}")
    expected = expect(make_learner(outline.settings), outline.plan)
    if expected:
        messages.print(expected.sentence())
    if expected and expected.believed < federation_train.USELESS:
        messages.print(
            f"below {100 * federation_train.USELESS:.0f} %, 'federation train' and 'schedule' "
            "refuse to spend ε: add regions, raise --epsilon, or train with --despite-noise"
        )
    messages.print(f"{counted(weeks, 'week')} and one trial cost {outline.cap.sentence()}")
    print(f"root certificate {made.fingerprint}")
    messages.print(f"now read {folder / README}")


def _asked(what: str, option: str) -> str:
    """What somebody at a terminal answers."""
    if not sys.stdin.isatty():
        raise EpifedError(f"{option}: found nothing; expected the {what}")
    return str(typer.prompt(what, err=True)).strip()


def _asked_sites() -> list[str]:
    sites = [_asked("a site and its regions, such as north=01001,01002", "--site")]
    while more := str(typer.prompt("another site (empty: no more)", "", err=True)).strip():
        sites.append(more)
    return sites


def _next_monday(today: date) -> date:
    return today + timedelta(days=7 - today.weekday())


SETTINGS, SCHEDULE = "settings.toml", "schedule.toml"
"""Beside the roster, and in the sites' kits."""

app = typer.Typer(
    help="Run a federation of separate machines over mutual TLS.",
    no_args_is_help=True,
)
app.command("new")(new)
app.command("train")(federation_train.train)
app.command("status")(federation_train.status)
app.command("stop")(federation_train.stop)
app.command("schedule")(federation_schedule.schedule)
app.command("site")(site)
app.command("report")(report)
app.command("dashboard")(federation_dashboard.dashboard)
app.command("rehearse")(federation_train.rehearse)


@app.callback()
def needs_flare() -> None:
    """Run a federation of separate machines over mutual TLS."""
    require("federation", "nvflare")


Roster = Annotated[Path, typer.Argument(help="The roster: federation.toml.")]


@app.command("init")
def init(
    federation: Roster,
    out: Annotated[Path, typer.Option(help="Directory for the kits and the root key.")],
    as_json: AsJson = False,
) -> None:
    """Make startup kits for all parties of the roster that have none yet.

    Parties with own_key = true, and aggregators by default, get a request form instead: nobody else
    sees their private key. Keep OUT/ca secret: it can admit sites.
    """
    from epifed.federation.flare.kits import make_kits
    from epifed.federation.schedule import Schedule
    from epifed.federation.terms import Federation

    roster = Federation.read(federation)
    beside, planned = (federation.parent / name for name in (SETTINGS, SCHEDULE))
    settings = order_settings(beside, federation, roster) if beside.is_file() else None
    made = make_kits(roster, out, settings, Schedule.read(planned) if planned.is_file() else None)
    if as_json:
        about = {
            "kits": [str(kit) for kit in made.kits],
            "requests": [str(form) for form in made.requests],
            "fingerprint": made.fingerprint,
            "roster": str(made.roster) if made.roster else None,
        }
        print(to_json(about))
        return
    for kit in made.kits:
        print(f"made {kit}")
    for form in made.requests:
        print(f"hand {form} to its party, which answers with 'epifed federation key'")
    if made.roster:
        print(f"hand {made.roster} to the aggregators: it has the keys with which sites sign")
    print(f"root certificate {made.fingerprint}")
    messages.print(f"keep {out / 'ca'} secret: who has it can admit sites")


@app.command("key")
def key(
    form: Annotated[Path, typer.Argument(help="The request form from the coordinator.")],
    out: Annotated[Path, typer.Option(help="Directory for the private key, which stays here.")],
) -> None:
    """At a site or aggregator: make the private key and a request for its certificate."""
    from epifed.federation.flare.kits import request_key, request_signs

    if not (form / "participant.yml").is_file():
        raise EpifedError(f"{form}: expected the form by 'epifed federation init', a folder")
    request = request_key(form / "participant.yml", out)
    print(f"send {request} to the coordinator; keep {out} to yourself")
    if signs := request_signs(form, out):
        print(f'tell the coordinator for your entry in the roster: signs = "{signs}"')


@app.command("approve")
def approve(
    federation: Roster,
    request: Annotated[Path, typer.Argument(help="The request of the party.")],
    ca: Annotated[Path, typer.Option("--kits", help="The OUT of 'epifed federation init'.")],
    out: Annotated[Path, typer.Option(help="Directory for the signed answer.")],
) -> None:
    """At the coordinator: sign the request of a party that made its own key."""
    from epifed.federation.flare.kits import approve as sign
    from epifed.federation.terms import Federation

    print(f"send {sign(Federation.read(federation), ca, request, out)} back to the party")


@app.command("assemble")
def assemble(
    form: Annotated[Path, typer.Argument(help="The request form from the coordinator.")],
    signed: Annotated[Path, typer.Argument(help="The coordinator's signed answer.")],
    keys: Annotated[Path, typer.Option("--key", help="The OUT of 'epifed federation key'.")],
    fingerprint: Annotated[
        str, typer.Option(help="Root-certificate fingerprint, confirmed by phone.")
    ],
    kit: Annotated[Path, typer.Option(help="The kit to make.")],
) -> None:
    """At a site or aggregator: put the kit together from certificate and private key."""
    from epifed.federation import aggregator
    from epifed.federation.flare.kits import assemble as make
    from epifed.federation.terms import Federation

    make(Federation.read(form / "federation.toml"), signed, keys, fingerprint, kit)
    for paper in (SETTINGS, SCHEDULE):
        if (form / paper).is_file():
            shutil.copy(form / paper, kit / paper)
    terms = kit / aggregator.TERMS
    if terms.exists():
        print(f"made {kit}; look at {terms}, then run 'epifed federation fingerprint'")
        return
    print(f"made {kit}; look at {kit / 'site.toml'}, then run 'epifed federation check'")


@app.command("server")
def server(
    kit: Kit,
    ledger: Annotated[
        Path | None,
        typer.Option(help="The ledger that trainings are charged to; without one, tests only."),
    ] = None,
    roster: Annotated[
        Path | None, typer.Option(help="A changed federation.toml to take over.")
    ] = None,
) -> None:
    """Run the server until it is stopped."""
    from epifed.federation.flare.parties import server_command

    server_command(kit, ledger, roster).become()


@app.command("fingerprint")
def fingerprint(kit: Kit) -> None:
    """At an aggregator: make its keys if there are none, and print their fingerprint.

    Give the fingerprint to every site and the other aggregators yourself, for example by phone, not
    through the server or the coordinator. They write it into their terms, under 'aggregators'.
    """
    from epifed.federation.aggregator import TERMS, own_keys
    from epifed.federation.flare.kits import certificate

    if not (kit / TERMS).is_file():
        raise EpifedError(f"{kit}: expected an aggregator's kit by 'epifed federation init'")
    print(f'{certificate(kit).name} = "{own_keys(kit).public.fingerprint}"')


@app.command("aggregator")
def aggregator(
    kit: Kit,
    roster: Annotated[Path | None, typer.Option(help="A changed roster.toml to take over.")] = None,
) -> None:
    """Run an aggregator until it is stopped. It connects to one port of the server."""
    from epifed.federation.flare.parties import aggregator_command

    aggregator_command(kit, roster).become()


@app.command("check")
@reads_cases
def check(
    kit: Kit,
    data: Annotated[Path, typer.Option(help="Case data: any source that 'data check' reads.")],
    settings: Annotated[
        Path | None,
        typer.Option(
            help="Settings as TOML.",
            show_default="those in the kit, else of the last training, else the operational ones",
        ),
    ] = None,
    first: FirstDay = None,
    last: LastDay = None,
    as_json: AsJson = False,
    *,
    reading: Reading,
) -> None:
    """Check a site before a training: kit, certificate, connection, data, what it would send.

    Sends no data. Exit code 1 if something is wrong.
    """
    from epifed.federation.flare.inspection import check_settings, inspect_site
    from epifed.federation.site import Source

    if (first is None) != (last is None):
        raise EpifedError("found one of --from and --to; expected both or neither")
    period = (first.date(), last.date()) if first and last else None
    chosen = check_settings(kit, settings)
    source = Source(str(data.resolve()), reading.format, reading.options)
    findings = inspect_site(kit, source, chosen, period)
    if as_json:
        print(to_json([vars(finding) for finding in findings]))
    else:
        for finding in findings:
            print(f"{'ok ' if finding.ok else 'NOT'} {finding.what}: {finding.sentence}")
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)
