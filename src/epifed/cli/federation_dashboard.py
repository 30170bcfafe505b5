"""`epifed federation dashboard`: the coordinator's page, and metrics for Prometheus."""

import contextlib
import socket
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from epifed.cli.federation_train import desk_of, order_settings
from epifed.cli.kit import messages
from epifed.errors import EpifedError

if TYPE_CHECKING:
    from epifed.dashboard.access import Access
    from epifed.dashboard.watching import Watching
    from epifed.federation.overlook import Places
    from epifed.federation.roster import Federation

NEEDED = ("fastapi", "uvicorn", "prometheus_client")
MOST_REQUESTS = 100
"""At the same time; more are told to come again."""


def dashboard(
    kit: Annotated[Path, typer.Option(help="The server's startup kit; it is only read.")],
    ledger: Annotated[
        Path | None,
        typer.Option(help="The ledger, only read.", show_default="the one the server pays from"),
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
        Path | None, typer.Option(help="The coordinator's kit: who is connected now.")
    ] = None,
    kits: Annotated[
        Path | None, typer.Option(help="The OUT of 'init': when the sites' certificates end.")
    ] = None,
    truth: Annotated[
        Path | None,
        typer.Option(help="CSV date,value: the nation's published counts, to compare releases."),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; others than this machine need all below.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: a free one.")] = 8050,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the token that every request must bring.")
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
    """Serve a page for the coordinator, and /metrics: sites, week, budget, what runs out.

    It changes nothing and shows nothing that is not released, public or the coordinator's to know.
    """
    for name in NEEDED:
        if find_spec(name) is None:
            raise EpifedError(f"{name}: not installed; expected 'pip install epifed[dashboard]'")

    from epifed.dashboard.access import Access
    from epifed.dashboard.watching import Watching, ask_server, certificate_ends
    from epifed.federation.roster import Federation

    access = Access.of(host, token_file, certificate, key)
    places = _places(kit, ledger, weeks, schedule, settings, truth)
    parties = _kits(Federation.read(kit / "federation.toml"), kit, coordinator, kits)
    ask = None
    if coordinator:
        desk_of(coordinator)
        ask = ask_server(coordinator)
    listener = _listening(access, port)
    messages.print("reading the weeks so far and the ledger")
    watching = Watching(places, ask, certificate_ends(parties), every, ask_every)
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
    from epifed.federation.overlook import ROSTER, Places
    from epifed.federation.roster import Federation
    from epifed.federation.weekly import Schedule
    from epifed.federation.worth import Truth
    from epifed.files import read_json
    from epifed.privacy.plan import PrivacyPlan

    if not (kit / "startup" / "fed_server.json").is_file():
        raise EpifedError(f"{kit}: expected the server's kit by 'epifed federation init'")
    if settings and not schedule:
        raise EpifedError("found --settings; expected --schedule with it")
    if weeks and not weeks.is_dir():
        raise EpifedError(f"{weeks}: no such folder; expected the --out of 'schedule'")
    roster = Federation.read(kit / ROSTER)
    started = kit / "server.json"
    if ledger is None and started.is_file():
        said = read_json(started, "expected what 'epifed federation server' wrote").get("ledger")
        ledger = Path(said) if said else None
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
    found = {"server": kit}
    if coordinator:
        found["coordinator"] = coordinator
    if kits:
        if not (kits / "kits").is_dir():
            raise EpifedError(f"{kits}: expected the OUT of 'epifed federation init'")
        found |= {party.name: kits / "kits" / party.name for party in roster.parties}
    return found


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


def _serve(watching: "Watching", access: "Access", listener: socket.socket) -> None:
    import uvicorn

    from epifed.dashboard.web import make_app

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
