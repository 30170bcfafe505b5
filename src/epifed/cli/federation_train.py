"""The coordinator's commands: train, status, stop, schedule, dashboard and rehearse."""

import contextlib
import logging
import math
import signal
import socket
import tempfile
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from epifed.cli.common import (
    AsJson,
    LearnerName,
    Seed,
    SettingsRequest,
    messages,
    refuse_unwritable,
    require,
)
from epifed.errors import EpifedError, counted
from epifed.files import to_json

if TYPE_CHECKING:
    from epifed.dashboard import Access, StatusPoller
    from epifed.federation.flare.jobs import CoordinatorSession
    from epifed.federation.readiness import Party
    from epifed.federation.status import Places
    from epifed.federation.terms import Federation
    from epifed.rehearsal.runner import Plan, Progress
    from epifed.settings import Settings

Folder = Annotated[
    Path | None,
    typer.Argument(help="The folder of 'federation new'.", show_default="none"),
]
FolderRoster = Annotated[
    Path | None,
    typer.Option("--federation", help="The roster: federation.toml.", show_default="in the folder"),
]
FolderKit = Annotated[
    Path | None,
    typer.Option(
        "--kit", help="The coordinator's startup kit.", show_default="kits/coordinator there"
    ),
]
DespiteNoise = Annotated[
    bool, typer.Option("--despite-noise", help="Train even if the release is almost only noise.")
]
USELESS = 0.05
"""Share of a release that is signal below which no ε is spent on it: noise is four times it."""


def schedule(
    weeks: Annotated[
        Path, typer.Argument(help="The schedule as TOML, or the folder of 'federation new'.")
    ],
    settings: Annotated[
        Path | None,
        typer.Option(
            help="Settings of each week's training, as TOML.", show_default="in the folder"
        ),
    ] = None,
    federation: FolderRoster = None,
    kit: FolderKit = None,
    ledger: Annotated[
        Path | None,
        typer.Option(help="The ledger that the server charges.", show_default="in the folder"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the journal of the weeks.", show_default="'weeks' there"),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Finish what is due, and stop.")] = False,
    plan: Annotated[
        bool,
        typer.Option("--plan", help="Print the dates and privacy cost of all weeks; run none."),
    ] = False,
    despite_noise: DespiteNoise = False,
    confirm_clock: Annotated[
        bool,
        typer.Option(
            "--confirm-clock",
            help="Confirm, once, that this machine's clock is right after a jump; run nothing.",
        ),
    ] = False,
) -> None:
    """Train every week at its time; missed weeks follow the schedule's rule.

    All planned weeks must fit into the ledger's budget before the first. Run this as a service. It
    resumes after an interruption.
    """
    from epifed.federation.flare.jobs import Trainings
    from epifed.federation.scaffold import LEDGER, SCHEDULE
    from epifed.federation.schedule import (
        ClockWatch,
        Journal,
        Schedule,
        begun_in,
        budgeted,
        run_due,
        run_weeks,
        weeks_left,
    )
    from epifed.federation.terms import Federation
    from epifed.ledger.ledger import Ledger
    from epifed.privacy.plan import PrivacyPlan

    if weeks.is_dir():
        place = Place.of(weeks, federation, kit)
        settings = settings or place.settings
        weeks, ledger, out = weeks / SCHEDULE, ledger or weeks / LEDGER, out or weeks / "weeks"
    elif settings is None or ledger is None or out is None:
        missing = "settings" if settings is None else "ledger" if ledger is None else "out"
        raise _no_place(f"--{missing}", weeks)
    else:
        place = Place.of(settings, federation, kit)
    federation, kit = place.roster, place.kit
    refuse_unwritable(out)
    when, roster = Schedule.read(weeks), Federation.read(federation)
    chosen = order_settings(settings, federation, roster)
    book = Ledger(ledger)
    journal = Journal(out, ledger)
    if when.least_sites > len(roster.sites):
        raise EpifedError(
            f"{weeks}: least_sites: found {when.least_sites}; expected at most the "
            f"{counted(len(roster.sites), 'site')} of {federation}"
        )
    watch = ClockWatch(out)
    if confirm_clock:
        watch.confirm(datetime.now(UTC))
        messages.print(f"noted in {watch.path}: a waiting scheduler continues within 5 minutes")
        return
    run_book = book.book()
    left = weeks_left(when, journal, run_book, datetime.now(UTC))
    if left:
        cost = PrivacyPlan.of(chosen, len(roster.clients))
        refuse_noise(chosen, roster, despite=despite_noise or plan)
        each = (cost.priced_rate, cost.noise_multiplier, cost.rounds)
        fits = run_book.weeks_that_fit(each, [week.day for week in left])
        messages.print(budgeted(run_book.cap, run_book.taken(), cost, len(left), fits))
        if run_book.cap.weeks is not None:
            messages.print(run_book.renewal())
    if plan:
        for week in left:
            print(f"{week.name} {when.local(week)}")
        return

    def say(status: dict[str, Any]) -> None:
        messages.print(outcome(status))

    runner = Trainings(desk_of(kit), roster, when, chosen, book, messages.print, say)
    run = run_due if once else run_weeks
    run(when, journal, runner, begun_in(book), messages.print, watch=watch)
    if watch.doubted:
        raise typer.Exit(1)


NEEDED = ("fastapi", "uvicorn", "prometheus_client")
MOST_REQUESTS = 100
"""At the same time; more are told to come again."""


def dashboard(
    folder: Folder = None,
    kit: Annotated[
        Path | None,
        typer.Option(
            help="The server's startup kit; it is only read.", show_default="kits/server there"
        ),
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(help="The ledger, only read.", show_default="the one that the server charges"),
    ] = None,
    weeks: Annotated[
        Path | None, typer.Option(help="The folder of 'schedule --out': its journal.")
    ] = None,
    schedule: Annotated[
        Path | None, typer.Option(help="The schedule as TOML: this week, and the plan.")
    ] = None,
    settings: Annotated[
        Path | None, typer.Option(help="Settings of each week's training: what a week costs.")
    ] = None,
    coordinator: Annotated[
        Path | None, typer.Option(help="The coordinator's kit, to show the connected sites.")
    ] = None,
    kits: Annotated[
        Path | None,
        typer.Option(help="The OUT of 'init', to show when the sites' certificates expire."),
    ] = None,
    truth: Annotated[
        Path | None,
        typer.Option(help="CSV date,value: the nation's published counts, to compare releases."),
    ] = None,
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on. For other machines also give token, certificate and key."
        ),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 picks a free one.")] = 8050,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the token that every request must bring.")
    ] = None,
    viewers: Annotated[
        Path | None,
        typer.Option(help='TOML with a line name = "token" for each further reader; revocable.'),
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(help="TLS certificate as PEM; it names the page's hosts.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="Its private key.")] = None,
    every: Annotated[
        float, typer.Option(min=1, max=3600, help="Seconds between two looks at the files.")
    ] = 5.0,
    ask_every: Annotated[
        float, typer.Option(min=5, max=3600, help="Seconds between two questions to the server.")
    ] = 30.0,
) -> None:
    """Serve the coordinator's page (sites, week, budget, expiry dates) and /metrics.

    The page is read-only. It shows only what is released, public, or known to the coordinator.
    """
    require("dashboard", *NEEDED)

    from epifed.dashboard import Access, StatusPoller, ask_server, certificate_ends
    from epifed.federation.scaffold import SCHEDULE, SETTINGS
    from epifed.federation.terms import Federation

    access = Access.of(host, token_file, certificate, key, viewers)
    kit = _in(folder, kit, "kits/server", "--kit")
    if weeks and not weeks.is_dir():
        raise EpifedError(f"{weeks}: no such folder; expected the --out of 'schedule'")
    if folder is not None:
        weeks = weeks or folder / "weeks"  # which 'schedule' may make later
        schedule = schedule or _present(folder / SCHEDULE)
        settings = settings or (_present(folder / SETTINGS) if schedule else None)
        coordinator = coordinator or _present(folder / "kits/coordinator")
        kits = kits or folder
    places = _places(kit, ledger, weeks, schedule, settings, truth)
    parties = _kits(Federation.read(kit / "federation.toml"), kit, coordinator, kits)
    ask = None
    if coordinator:
        desk_of(coordinator)
        ask = ask_server(coordinator)
    listener = _listening(access, port)
    messages.print("reading the weeks so far and the ledger")
    watching = StatusPoller(places, ask, certificate_ends(parties), every, ask_every)
    name = f"[{host}]" if ":" in host else host
    address = f"{access.scheme}://{name}:{listener.getsockname()[1]}"
    # Said before the server is asked: FLARE's sessions take what is printed meanwhile.
    print(f"the page is at {address}/ and the metrics at {address}/metrics", flush=True)
    watching.start()
    try:
        _serve(watching, access, listener)
    finally:
        watching.stop()


def _places(
    kit: Path,
    ledger: Path | None,
    weeks: Path | None,
    schedule: Path | None,
    settings: Path | None,
    truth: Path | None,
) -> "Places":
    from epifed.federation.schedule import Schedule
    from epifed.federation.status import ROSTER, Places
    from epifed.federation.terms import Federation
    from epifed.federation.training_history import Truth
    from epifed.files import read_json
    from epifed.privacy.plan import PrivacyPlan

    if not (kit / "startup" / "fed_server.json").is_file():
        raise EpifedError(f"{kit}: expected the server's kit by 'epifed federation init'")
    if settings and not schedule:
        raise EpifedError("found --settings; expected --schedule with it")
    roster = Federation.read(kit / ROSTER)
    started = kit / "server.json"
    if ledger is None and started.is_file():
        stated = read_json(started, "expected what 'epifed federation server' wrote").get("ledger")
        ledger = Path(stated) if stated else None
    chosen = order_settings(settings, kit / ROSTER, roster) if settings else None
    return Places(
        kit,
        ledger,
        weeks,
        Schedule.read(schedule) if schedule else None,
        PrivacyPlan.of(chosen, len(roster.clients)) if chosen else None,
        Truth.read(truth) if truth else None,
    )


def _kits(
    roster: "Federation", kit: Path, coordinator: Path | None, kits: Path | None
) -> dict[str, Path]:
    """The kits whose certificates can be looked at, by party."""
    kit_of = {"server": kit}
    if coordinator:
        kit_of["coordinator"] = coordinator
    if kits:
        if not (kits / "kits").is_dir():
            raise EpifedError(f"{kits}: expected the OUT of 'epifed federation init'")
        kit_of |= {party.name: kits / "kits" / party.name for party in roster.parties}
    return kit_of


def _listening(access: "Access", port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in access.host else socket.AF_INET
    host = "127.0.0.1" if access.host == "localhost" else access.host
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise EpifedError(
            f"--host {host} --port {port}: cannot be listened on: {error.strerror or error}; "
            "expected an address of this machine and a port that is free"
        ) from None


def _serve(watching: "StatusPoller", access: "Access", listener: socket.socket) -> None:
    import uvicorn

    from epifed.dashboard import make_app

    config = uvicorn.Config(
        make_app(watching, access),
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        lifespan="off",
        limit_concurrency=MOST_REQUESTS,
        ssl_certfile=access.certificate,
        ssl_keyfile=access.key,
    )
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listener])


def _no_place(option: str, path: Path) -> EpifedError:
    """An option is missing, and `path` is not the folder that would replace it."""
    if not path.exists():
        return EpifedError(f"{path}: no such folder; expected that of 'epifed federation new'")
    return EpifedError(
        f"{option}: found nothing; expected it, or the folder of 'epifed federation new' in place "
        f"of {path}"
    )


def _in(folder: Path | None, path: Path | None, name: str, option: str) -> Path:
    """A path as given, or by its name in the folder of `federation new`."""
    if path is not None:
        return path
    if folder is None:
        raise EpifedError(
            f"{option}: found nothing; expected it, or the folder of 'federation new'"
        )
    if not (folder / name).exists():
        raise EpifedError(f"{folder}: found no {name}; expected the folder of 'federation new'")
    return folder / name


def _present(path: Path) -> Path | None:
    return path if path.exists() else None


@dataclass(frozen=True)
class Place:
    """Where a federation's files are: each given, or all in the folder of `federation new`."""

    settings: Path
    roster: Path
    kit: Path
    folder: Path | None = None

    @classmethod
    def of(cls, settings: Path, roster: Path | None, kit: Path | None) -> "Place":
        """The places that a command was told."""
        folder = settings if settings.is_dir() else None
        if folder is not None:
            roster, kit = roster or folder / "federation.toml", kit or folder / "kits/coordinator"
            return cls(folder / "settings.toml", roster, kit, folder)
        if roster is None or kit is None:
            raise _no_place("--federation" if roster is None else "--kit", settings)
        return cls(settings, roster, kit)

    def period(self, first: datetime | None, last: datetime | None) -> tuple[date, date]:
        """The days to learn from: those given, or of a folder those up to yesterday's lag."""
        from epifed.federation.schedule import Schedule

        if first is not None and last is not None:
            if last.date() >= datetime.now(UTC).date():
                raise EpifedError(
                    f"--to: found {last:%Y-%m-%d}; expected a day before today, since nobody has "
                    "the counts of others"
                )
            return first.date(), last.date()
        if self.folder is None or first is not None or last is not None:
            raise EpifedError("--from, --to: found one or none; expected both")
        schedule = Schedule.read(self.folder / "schedule.toml")
        return schedule.period_to(datetime.now(UTC).date() - timedelta(days=schedule.lag))


def train(
    settings: Annotated[
        Path, typer.Argument(help="Settings as TOML, or the folder of 'federation new'.")
    ],
    federation: FolderRoster = None,
    kit: FolderKit = None,
    first: Annotated[
        datetime | None,
        typer.Option(
            "--from",
            formats=["%Y-%m-%d"],
            help="First day to use.",
            show_default="of a folder, by its schedule",
        ),
    ] = None,
    last: Annotated[
        datetime | None, typer.Option("--to", formats=["%Y-%m-%d"], help="Last day to use.")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            help="Name of the training; repeat the command with it to resume.", show_default="new"
        ),
    ] = None,
    seeded: Annotated[
        bool,
        typer.Option("--seeded", help="For tests: predictable noise, no ledger, not for release."),
    ] = False,
    plan: Annotated[
        bool,
        typer.Option(
            "--plan",
            help="Ask every party whether it would take part, print the answers, and stop.",
        ),
    ] = False,
    despite_noise: DespiteNoise = False,
    as_json: AsJson = False,
) -> None:
    """Train one private model over all sites and deliver it to each of them.

    Every party is asked first whether it would take part. If too few would, nothing is spent. After
    an interruption, repeat the command with the same --name to resume.
    """
    from rich.live import Live

    from epifed.federation.flare.jobs import ask_parties, nothing_learned, run_training
    from epifed.federation.server import Order
    from epifed.federation.terms import Federation

    named = name or f"{datetime.now(UTC):%Y%m%d-%H%M%S}"
    place = Place.of(settings, federation, kit)
    desk, roster = desk_of(place.kit), Federation.read(place.roster)
    chosen = order_settings(place.settings, place.roster, roster)
    order = Order.of(named, chosen, *place.period(first, last), seeded=seeded)
    desk.name()
    refuse_noise(chosen, roster, despite=despite_noise or plan or seeded)
    if plan:
        _print_plan(ask_parties(desk, roster, order, _say_waits), roster.min_sites, as_json=as_json)
        return
    messages.print(f"training '{named}'; to resume after an interruption: --name {named}")
    watching = TrainingProgress()
    _say_connected(desk, roster)
    with Live(console=messages, get_renderable=watching.table, refresh_per_second=2):
        status = run_training(desk, roster, order, watching)
    if not messages.is_terminal:
        messages.print()
    wasted = nothing_learned(status)
    print(to_json(status) if as_json else outcome(status))
    if wasted:
        messages.print(wasted)
        raise typer.Exit(1)


def refuse_noise(settings: "Settings", roster: "Federation", *, despite: bool) -> None:
    """Print what noise to expect, and refuse to pay for a release that is almost nothing else."""
    from epifed.learners.base import make_learner
    from epifed.privacy.plan import PrivacyPlan
    from epifed.training.loop import expect

    expected = expect(make_learner(settings), PrivacyPlan.of(settings, len(roster.clients)))
    if expected is None:
        return
    if expected.believed < USELESS and not despite:
        raise EpifedError(
            f"{expected.sentence()} Nothing was spent; expected at least {100 * USELESS:.0f} %, or "
            "--despite-noise"
        )
    messages.print(expected.sentence())


def _say_connected(desk: "CoordinatorSession", roster: "Federation") -> None:
    """Say who is connected, before anybody is waited for."""
    from epifed.federation.flare.jobs import look

    try:
        connected = set(look(desk)["connected"])
    except EpifedError as error:
        messages.print(f"{error}; waiting for it", soft_wrap=True)
        return
    missing = [party.name for party in roster.parties if party.name not in connected]
    waits = f"; not connected: {', '.join(missing)}" if missing else ""
    sites = len({site.name for site in roster.sites} & connected)
    messages.print(f"{sites} of {counted(len(roster.sites), 'site')} connected{waits}")


def _say_waits(status: dict[str, Any]) -> None:
    if "waiting" in status:
        messages.print(f"waiting: {status['waiting']}")


def _print_plan(parties: "list[Party]", least: int, *, as_json: bool) -> None:
    """Who would take part and who would not, as a table; exit code 1 if too few would."""
    from epifed.federation.readiness import refuse_unready

    if as_json:
        print(to_json([party.to_dict() for party in parties]))
    else:
        for row in parties:
            answer = "NO " if row.readiness.code else "yes"
            print(f"{answer} {row.role} {row.name}: {row.sentence()}")
    try:
        refuse_unready(parties, least)
    except EpifedError as error:
        messages.print(str(error), soft_wrap=True)
        raise typer.Exit(1) from None
    willing = sum(row.role == "site" and row.readiness.code is None for row in parties)
    if willing < least:
        messages.print(f"{counted(willing, 'site')} would take part, {least} expected")
        raise typer.Exit(1)
    messages.print("nothing was spent")


def status(
    folder: Folder = None,
    kit: FolderKit = None,
    ledger: Annotated[
        Path | None,
        typer.Option(
            help="Budget ledger of these trainings, to print its budget too.",
            show_default="in the folder",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the connected sites and the progress of the running training."""
    from epifed.cli.ledger import summary_of, text_of
    from epifed.federation.flare.jobs import look
    from epifed.federation.scaffold import LEDGER
    from epifed.ledger.ledger import Ledger

    kit = _in(folder, kit, "kits/coordinator", "--kit")
    if ledger is None and folder is not None:
        ledger = _present(folder / LEDGER)
    book = Ledger(ledger).book() if ledger else None
    seen = look(desk_of(kit))
    if as_json:
        print(to_json(seen | ({"ledger": summary_of(book)} if book else {})))
        return
    print(f"connected: {', '.join(seen['connected']) or 'no site'}")
    for running in seen["running"]:
        starting = running.get("training") or running.get("job")
        print(outcome(running) if "round" in running else f"starting: {starting}")
    if not seen["running"]:
        print("no training is running")
    if book:
        print(text_of(book))


def stop(folder: Folder = None, kit: FolderKit = None) -> None:
    """Stop the running training after its current round. It can be resumed."""
    from epifed.federation.flare.jobs import halt

    stopped = halt(desk_of(_in(folder, kit, "kits/coordinator", "--kit")))
    if not stopped:
        raise EpifedError("no training is running; expected one to stop")
    for training in stopped:
        print(f"training '{training}' stops after its current round")


def order_settings(settings: Path, federation: Path, roster: "Federation") -> "Settings":
    """The settings of a training by the clients and the aggregators of a roster."""
    wish, adding = SettingsRequest(settings), len(roster.aggregators)
    sealed = wish.said.get("noise") == "aggregators"
    chosen = wish.settings(len(roster.clients), {"aggregators": adding} if sealed else None)
    if sealed and chosen.aggregators != adding:
        raise EpifedError(
            f"aggregators: found {chosen.aggregators} in the settings and {adding} in "
            f"{federation}; expected as many"
        )
    return chosen


def desk_of(kit: Path) -> "CoordinatorSession":
    """The coordinator's desk, at which FLARE's own lines about lost calls are not read out."""
    from epifed.federation.flare.jobs import CoordinatorSession

    logging.getLogger().addHandler(logging.NullHandler())
    return CoordinatorSession(kit)


def price(epsilon: float, if_drawn_seen: float, delta: float, accountant: str) -> str:
    """What was spent, never rounded down: against outsiders, and against who sees the draw.

    >>> price(1.00000001, 3.5, 1e-5, "rdp")
    'ε = 1.00001 spent at δ = 1e-05 (one client added or removed, RDP accountant); against whoever \
sees who is drawn, the server: ε = 3.5'
    """
    from epifed.privacy.accounting import UNIT, rounded_up

    if math.isinf(epsilon):
        return "no privacy"
    seen = "; against whoever sees who is drawn, the server: "
    return (
        f"ε = {rounded_up(epsilon)} spent at δ = {delta:g} ({UNIT} added or removed, "
        f"{accountant.upper()} accountant)"
        f"{f'{seen}ε = {rounded_up(if_drawn_seen)}' if if_drawn_seen > epsilon else ''}"
    )


def outcome(status: dict[str, Any]) -> str:
    """A status as a sentence."""
    from epifed.privacy.plan import TRUST

    where = f"training '{status['training']}': {status['round']} of {status['rounds']} rounds"
    cost = price(
        status["epsilon"],
        status["epsilon_without_amplification"],
        status["delta"],
        status["accountant"],
    )
    cost = f"{cost}; {TRUST[status['noise']]}"
    if not status["finished"]:
        return f"{where}, {counted(len(status['sites']), 'site')}, {cost}"
    missing = status.get("missing", [])
    parties = "party" if status["noise"] == "aggregators" else "site"
    held = f"the model is at {counted(len(status.get('delivered', [])), parties)}"
    undelivered = status.get("undelivered", {})
    missing = [f"{site} ({undelivered[site]})" if site in undelivered else site for site in missing]
    absent = f"; not yet at {', '.join(missing)}: repeat when they are back" if missing else ""
    return f"{where}, {cost}; {held}{absent}"


class TrainingProgress:
    """A live table of the last rounds."""

    def __init__(self, losses: dict[int, float] | None = None) -> None:
        self.rounds: dict[int, dict[str, Any]] = {}
        self.losses = losses
        self.state = "waiting for the server and the sites"

    def __call__(self, status: dict[str, Any]) -> None:
        """Take a status in."""
        if "waiting" in status:
            state = f"waiting: {status['waiting']}"
            if state != self.state and not messages.is_terminal:
                messages.print(state, soft_wrap=True)
            self.state = state
            return
        self.state = f"round {status.get('round', 0)} of {status.get('rounds', '?')}"
        for line in status.get("lines", []):
            self.rounds[line["round"]] = line

    def table(self) -> Any:
        """The table as it stands."""
        from rich.table import Table

        from epifed.privacy.accounting import rounded_up

        table = Table(caption=self.state, caption_justify="left")
        for column in ("round", "sites", "ε spent", "without"):
            table.add_column(column, justify="left" if column == "without" else "right")
        if self.losses is not None:
            table.add_column("loss", justify="right")
        for number, line in sorted(self.rounds.items())[-12:]:
            problems = ", ".join(f"{p['site']} ({p['reason']})" for p in line["problems"])
            row = [
                str(number),
                str(len(line["sites"])),
                rounded_up(line["epsilon"]),
                problems,
            ]
            if self.losses is not None:
                row.append(f"{self.losses[number]:.4g}" if number in self.losses else "")
            table.add_row(*row)
        return table


def rehearse_year(
    weeks: int,
    sites: int,
    aggregators: int,
    clients: int,
    settings: "Settings",
    events: Path | None,
    out: Path | None,
    *,
    as_json: bool,
) -> None:
    """Run a year in a folder, or go on with it, and write its report."""
    from rich.live import Live

    from epifed.rehearsal.report import sentences, settle_accounts, write_year, year_report
    from epifed.rehearsal.runner import Course, Progress

    if out is None:
        raise EpifedError(
            "--out: expected a directory, so that an interrupted year can be resumed there"
        )
    plan = _plan(weeks, sites, aggregators, clients, settings, events)
    refuse_unwritable(out)
    resumed = plan.keep(out)
    progress = Progress(weeks)
    messages.print(
        f"{'going on with' if resumed else 'rehearsing'} {counted(weeks, 'week')} with "
        f"{counted(sites, 'site')}, "
        f"{counted(aggregators, 'aggregator') if aggregators else 'no aggregators'} and "
        f"{counted(clients, 'client')} in {out}"
    )
    progress.text = "simulating an epidemic"
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    desk_of(out)
    with Live(console=messages, get_renderable=lambda: _said(progress), refresh_per_second=1):
        vintages = plan.simulated()
        course = Course(out, plan, progress, messages.print)
        course.run(vintages)
        progress.text = "reading all books"
        accounts = settle_accounts(out, plan)
        year = year_report(out, plan, accounts, vintages.final)
        write_year(out, year)
    if as_json:
        print(to_json(year))
    else:
        for sentence in sentences(year):
            print(sentence)
        print(f"the year's table is in {out / 'report.html'} and {out / 'report.md'}")
    if not accounts.right:
        raise typer.Exit(1)


def _plan(
    weeks: int,
    sites: int,
    aggregators: int,
    clients: int,
    settings: "Settings",
    events: Path | None,
) -> "Plan":
    from epifed.federation.flare.kits import SERVER
    from epifed.rehearsal.runner import MOST_WEEKS, Events, Plan, least_sites, usual

    if weeks > MOST_WEEKS:
        raise EpifedError(f"--weeks: found {weeks}; expected at most {MOST_WEEKS}")
    if not settings.private:
        raise EpifedError("--epsilon: found none; expected one that a ledger can pay for")
    if settings.step != "day":
        raise EpifedError(f"step: found '{settings.step}'; expected 'day', as a year is counted")
    plan = Plan(weeks, sites, aggregators, clients, settings, Events())
    others = [SERVER, *plan.adders]
    if events is None:
        chosen = usual(sites, least_sites(sites)).within(weeks, [*plan.names, *others])
    else:
        chosen = Events.read(events)
    chosen.refuse_unknown(weeks, plan.names, others)
    return Plan(weeks, sites, aggregators, clients, settings, chosen)


def _said(progress: "Progress") -> Any:
    """The line that is shown while it runs."""
    from rich.text import Text

    left = progress.left
    minutes = "" if left is None else f", about {counted(max(1, round(left / 60)), 'minute')} left"
    return Text(f"{progress.done} of {counted(progress.weeks, 'week')}{minutes}; {progress.text}")


def rehearse(
    sites: Annotated[int, typer.Option(min=1, help="Sites, each its own process.")] = 8,
    aggregators: Annotated[
        int | None,
        typer.Option(
            max=16,
            help="Aggregators, at least 2; 0: the server adds up.",
            show_default="0; 2 with --weeks",
        ),
    ] = None,
    weeks: Annotated[
        int | None,
        typer.Option(min=1, help="Rehearse so many weeks of a schedule, on a fast clock."),
    ] = None,
    events: Annotated[
        Path | None,
        typer.Option(help="What happens in which week, as TOML.", show_default="a usual year"),
    ] = None,
    clients: Annotated[int, typer.Option(min=2, help="Counties of the invented country.")] = 400,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds of the training.")] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="ε of the training, or each week's.")
    ] = None,
    settings: Annotated[
        Path | None, typer.Option(help="Settings as TOML.", show_default="the operational ones")
    ] = None,
    learner: LearnerName = None,
    seed: Seed = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Keep kits, logs and models here; with --weeks also the report, and resume there.",
            show_default="a temporary folder",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a real federation on this machine: real processes and certificates, invented data.

    At the end its state is compared with a training in one process with the same seeds.

    With --weeks the schedule runs week after week, with the data as known on each day, while
    parties leave, crash, lose keys and are restored. An interrupted command resumes. Exit code 1 if
    a release is missing from the ledger or the ledger differs from the plan.
    """
    if sites > clients:
        raise EpifedError(
            f"--sites: found {sites} for {counted(clients, 'client')}; expected at most as many"
        )
    aggregators = (2 if weeks else 0) if aggregators is None else aggregators
    if aggregators == 1 or aggregators < 0:
        raise EpifedError(f"--aggregators: found {aggregators}; expected 0, or at least 2")
    stated = {"rounds": rounds, "epsilon": epsilon, "learner": learner, "seed": seed}
    if aggregators:
        stated |= {"noise": "aggregators", "aggregators": aggregators}
    if weeks is not None:
        wish = SettingsRequest(settings, {"learner": "real-time", "epsilon": 1.0}, **stated)
        size = (weeks, sites, aggregators, clients)
        rehearse_year(*size, wish.settings(clients), events, out, as_json=as_json)
        return
    if events is not None:
        raise EpifedError("--events: expected --weeks with it")
    if out:
        refuse_unwritable(out)
    if out and out.exists() and any(out.iterdir()):
        raise EpifedError(f"{out}: not empty; expected a new directory for the rehearsal")
    wish = SettingsRequest(settings, None, **stated)
    chosen = wish.settings(clients, {} if wish.said.keys() & {"learner"} else {"rounds": 10})

    from rich.live import Live

    from epifed.privacy.plan import TRUST
    from epifed.rehearsal.local import rehearse as run
    from epifed.rehearsal.local import simulated_panel

    messages.print(f"simulating an epidemic in {counted(clients, 'county')}")
    panel = simulated_panel(clients, chosen.seed, chosen.step)
    losses: dict[int, float] = {}
    watching = TrainingProgress(losses)

    def progress(text: str) -> None:
        watching.state = text

    with (
        tempfile.TemporaryDirectory(prefix="epifed-")
        if out is None
        else nullcontext(out) as folder,
        Live(console=messages, get_renderable=watching.table, refresh_per_second=2),
    ):
        done = run(Path(folder), panel, chosen, sites, watching, losses, progress)
    if as_json:
        print(to_json(done.to_dict() | {"losses": losses}))
        return
    print(
        f"{counted(done.rounds, 'round')} with {counted(done.sites, 'site')}, "
        f"{counted(aggregators, 'aggregator') if aggregators else 'no aggregators'} and "
        f"{counted(done.clients, 'client')}: "
        f"{price(done.epsilon, done.epsilon_without_amplification, done.delta, done.accountant)}; "
        "seeded noise: not for release"
    )
    print(f"all {counted(done.sites_with_model, 'site')} hold the model {done.sha256[:12]}…")
    print(f"largest difference to a training in one process: {done.largest_difference:.2g}")
    print(TRUST[chosen.noise])
    if done.aggregator_memory is not None:
        print(f"memory of an aggregator: {done.aggregator_memory:.0f} MB at most")
