"""`epifed federation train`, `status` and `stop`: what the coordinator does."""

import logging
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from epifed.cli.kit import AsJson, Wish, messages
from epifed.errors import EpifedError
from epifed.files import to_json
from epifed.words import counted

if TYPE_CHECKING:
    from epifed.federation.flare.jobs import Desk
    from epifed.federation.roster import Federation
    from epifed.settings import Settings

Kit = Annotated[Path, typer.Option(help="The coordinator's startup kit.")]


def train(
    settings: Annotated[Path, typer.Argument(help="Settings as TOML.")],
    federation: Annotated[Path, typer.Option(help="The roster: federation.toml.")],
    kit: Kit,
    first: Annotated[
        datetime, typer.Option("--from", formats=["%Y-%m-%d"], help="First day to use.")
    ],
    last: Annotated[datetime, typer.Option("--to", formats=["%Y-%m-%d"], help="Last day to use.")],
    name: Annotated[
        str | None,
        typer.Option(
            help="Of the training; repeat the command with it to go on.", show_default="new"
        ),
    ] = None,
    seeded: Annotated[
        bool,
        typer.Option(
            "--seeded", "--simulation", help="Test: predictable noise, no ledger, not for release."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Train one private model over all sites; it is then in the kit of each of them.

    Survives lost sites and a lost server: repeat the command with the same --name to go on.
    """
    from rich.live import Live

    from epifed.expectation import expect
    from epifed.federation.flare.jobs import run_training
    from epifed.federation.roster import Federation
    from epifed.federation.server import Order
    from epifed.learner import make_learner
    from epifed.privacy.plan import PrivacyPlan

    named = name or f"{datetime.now(UTC):%Y%m%d-%H%M%S}"
    desk, roster = desk_of(kit), Federation.read(federation)
    chosen = order_settings(settings, federation, roster)
    order = Order.of(named, chosen, first.date(), last.date(), seeded=seeded)
    desk.name()
    expected = expect(make_learner(chosen), PrivacyPlan.of(chosen, len(roster.clients)))
    if expected:
        messages.print(expected.sentence())
    messages.print(f"training '{named}'; to go on after an interruption: --name {named}")
    watching = Watching()
    with Live(console=messages, get_renderable=watching.table, refresh_per_second=2):
        status = run_training(desk, roster, order, watching)
    if not messages.is_terminal:
        messages.print()
    if as_json:
        print(to_json(status))
        return
    print(outcome(status))


def status(kit: Kit, as_json: AsJson = False) -> None:
    """Who is connected, and how far the running training is."""
    from epifed.federation.flare.jobs import look

    found = look(desk_of(kit))
    if as_json:
        print(to_json(found))
        return
    print(f"connected: {', '.join(found['connected']) or 'no site'}")
    for running in found["running"]:
        starting = running.get("training") or running.get("job")
        print(outcome(running) if "round" in running else f"starting: {starting}")
    if not found["running"]:
        print("no training is running")


def stop(kit: Kit) -> None:
    """Stop the running training after its current round. It can be taken up again."""
    from epifed.federation.flare.jobs import halt

    stopped = halt(desk_of(kit))
    if not stopped:
        raise EpifedError("no training is running; expected one to stop")
    for training in stopped:
        print(f"training '{training}' stops after its current round")


def order_settings(settings: Path, federation: Path, roster: "Federation") -> "Settings":
    """The settings of a training by the clients and the aggregators of a roster."""
    wish, adding = Wish(settings), len(roster.aggregators)
    sealed = wish.said.get("noise") == "aggregators"
    chosen = wish.settings(len(roster.clients), {"aggregators": adding} if sealed else None)
    if sealed and chosen.aggregators != adding:
        raise EpifedError(
            f"aggregators: found {chosen.aggregators} in the settings and {adding} in "
            f"{federation}; expected as many"
        )
    return chosen


def desk_of(kit: Path) -> "Desk":
    """The coordinator's desk, at which FLARE's own lines about lost calls are not read out."""
    from epifed.federation.flare.jobs import Desk

    logging.getLogger().addHandler(logging.NullHandler())
    return Desk(kit)


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
        status["epsilon"], status["epsilon_if_drawn_seen"], status["delta"], status["accountant"]
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


class Watching:
    """A live table of the last rounds."""

    def __init__(self, losses: dict[int, float] | None = None) -> None:
        self.rounds: dict[int, dict[str, Any]] = {}
        self.losses = losses
        self.state = "waiting for the server and the sites"

    def __call__(self, status: dict[str, Any]) -> None:
        """Take a status in."""
        if "waiting" in status:
            self.state = f"waiting: {status['waiting']}"
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
