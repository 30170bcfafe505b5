"""`epifed federation rehearse --weeks`: a year of a federation, in about an hour."""

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from epifed.cli.federation_train import desk_of
from epifed.cli.kit import messages, refuse_unwritable
from epifed.errors import EpifedError
from epifed.files import to_json
from epifed.words import counted

if TYPE_CHECKING:
    from epifed.settings import Settings
    from epifed.year.course import Progress
    from epifed.year.plan import Plan


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

    from epifed.year.account import settle_accounts
    from epifed.year.course import Course, Progress
    from epifed.year.report import sentences, write_year, year_report

    if out is None:
        raise EpifedError("--out: expected a directory for the year, to go on there if interrupted")
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
        mornings = plan.simulated()
        course = Course(out, plan, progress, messages.print)
        course.run(mornings)
        progress.text = "reading all books"
        accounts = settle_accounts(out, plan)
        found = year_report(out, plan, accounts, mornings.final)
        write_year(out, found)
    if as_json:
        print(to_json(found))
    else:
        for sentence in sentences(found):
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
    from epifed.year.events import SERVER, Events, usual
    from epifed.year.plan import MOST_WEEKS, Plan, least_sites

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
