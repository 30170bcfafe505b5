"""`epifed federation schedule`: every week, without anybody."""

import time
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from epifed.cli.federation_train import desk_of, order_settings, outcome
from epifed.cli.kit import messages
from epifed.errors import EpifedError

if TYPE_CHECKING:
    from epifed.federation.flare.jobs import Desk
    from epifed.federation.roster import Federation
    from epifed.federation.weekly import Schedule, Week
    from epifed.settings import Settings

LONGEST_SLEEP = 300.0
"""Seconds after which the clock is looked at again: it may have been set."""


def schedule(
    weeks: Annotated[Path, typer.Argument(help="When, as TOML: the schedule.")],
    settings: Annotated[Path, typer.Option(help="Settings of each week's training, as TOML.")],
    federation: Annotated[Path, typer.Option(help="The roster: federation.toml.")],
    kit: Annotated[Path, typer.Option(help="The coordinator's startup kit.")],
    ledger: Annotated[Path, typer.Option(help="The ledger that the server pays from.")],
    out: Annotated[Path, typer.Option(help="Folder for the journal of the weeks.")],
    once: Annotated[
        bool, typer.Option("--once", help="Bring to an end what is due, and stop.")
    ] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Say what all weeks cost and when they are; run none.")
    ] = False,
) -> None:
    """Train every week at its time: missed weeks are made up or skipped by the schedule's rule.

    Before the first week the whole year must fit into the ledger's budget. Run it as a service; it
    can be killed at any moment and started again.
    """
    from epifed.federation.roster import Federation
    from epifed.federation.weekly import Journal, Schedule, budgeted, run_due
    from epifed.ledger.ledger import Ledger
    from epifed.privacy.plan import PrivacyPlan

    when, roster = Schedule.read(weeks), Federation.read(federation)
    chosen = order_settings(settings, federation, roster)
    book, journal = Ledger(ledger), Journal(out)
    if when.least_sites > len(roster.sites):
        raise EpifedError(
            f"{weeks}: least_sites: found {when.least_sites}; expected at most the "
            f"{len(roster.sites)} sites of {federation}"
        )
    found, past, now = book.book(), journal.outcomes(), datetime.now(UTC)
    left = [
        week
        for week in when.planned()
        if week.name not in past and found.named(week.name) is None and not when.missed(week, now)
    ]
    if left:
        cost = PrivacyPlan.of(chosen, len(roster.clients))
        messages.print(budgeted(found.cap, found.taken(), cost, len(left)))
    if plan:
        for week in left:
            print(f"{week.name} {week.due.isoformat()}")
        return
    runner = _Weekly(desk_of(kit), roster, when, chosen)

    def begun(week: "Week") -> bool:
        run = book.book().named(week.name)
        return run is not None and run.spent > 0

    while True:
        coming = run_due(when, journal, runner, begun, messages.print)
        if once or coming is None:
            return
        wait = (coming.due - datetime.now(UTC)).total_seconds()
        time.sleep(min(LONGEST_SLEEP, max(1.0, wait)))


class _Weekly:
    """The federation that the weeks are run on."""

    def __init__(
        self, desk: "Desk", roster: "Federation", schedule: "Schedule", settings: "Settings"
    ) -> None:
        self.desk, self.roster, self.schedule, self.settings = desk, roster, schedule, settings

    def connected(self) -> Collection[str]:
        """The sites that are there; none while the server is away."""
        from epifed.federation.flare.jobs import look

        try:
            there = look(self.desk)["connected"]
        except Exception as error:  # FLARE's own have no common base
            messages.print(f"the server does not answer: {error}")
            return set()
        return {site.name for site in self.roster.sites} & set(there)

    def train(self, week: "Week") -> None:
        """The week's training."""
        from epifed.federation.flare.jobs import run_training
        from epifed.federation.server import Order

        order = Order.of(week.name, self.settings, *self.schedule.period(week))
        status = run_training(self.desk, self.roster, order, lambda _: None)
        if not status["finished"]:
            raise EpifedError(f"{week.name}: stopped; start the schedule again to go on")
        messages.print(outcome(status))
