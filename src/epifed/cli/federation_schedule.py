"""`epifed federation schedule`: every week, without anybody."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from epifed.cli.federation_train import desk_of, order_settings, outcome
from epifed.cli.kit import messages, refuse_unwritable
from epifed.errors import EpifedError
from epifed.words import counted


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
    from epifed.federation.flare.weeks import Trainings
    from epifed.federation.roster import Federation
    from epifed.federation.weekly import (
        Journal,
        Schedule,
        begun_in,
        budgeted,
        run_due,
        run_weeks,
        weeks_left,
    )
    from epifed.ledger.ledger import Ledger
    from epifed.privacy.plan import PrivacyPlan

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
    found = book.book()
    left = weeks_left(when, journal, found, datetime.now(UTC))
    if left:
        cost = PrivacyPlan.of(chosen, len(roster.clients))
        messages.print(budgeted(found.cap, found.taken(), cost, len(left)))
    if plan:
        for week in left:
            print(f"{week.name} {when.local(week)}")
        return

    def say(status: dict[str, Any]) -> None:
        messages.print(outcome(status))

    runner = Trainings(desk_of(kit), roster, when, chosen, book, messages.print, say)
    run = run_due if once else run_weeks
    run(when, journal, runner, begun_in(book), messages.print)
