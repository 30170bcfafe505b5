"""`epifed federation rehearse`: a whole federation on one machine, for one training or a year."""

import signal
import tempfile
from contextlib import nullcontext
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
)
from epifed.cli.federation_train import TrainingProgress, desk_of, price
from epifed.errors import EpifedError, counted
from epifed.files import to_json

if TYPE_CHECKING:
    from epifed.rehearsal.plan import Plan
    from epifed.rehearsal.runner import Progress
    from epifed.settings import Settings


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
    from epifed.federation.flare.kits import SERVER
    from epifed.rehearsal.plan import MOST_WEEKS, Events, Plan, least_sites, usual

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
            help="Keep kits, logs and models here; with --weeks the report, too, and go on there.",
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
    given = {"rounds": rounds, "epsilon": epsilon, "learner": learner, "seed": seed}
    if aggregators:
        given |= {"noise": "aggregators", "aggregators": aggregators}
    if weeks is not None:
        wish = SettingsRequest(settings, {"learner": "real-time", "epsilon": 1.0}, **given)
        size = (weeks, sites, aggregators, clients)
        rehearse_year(*size, wish.settings(clients), events, out, as_json=as_json)
        return
    if events is not None:
        raise EpifedError("--events: expected --weeks with it")
    if out:
        refuse_unwritable(out)
    if out and out.exists() and any(out.iterdir()):
        raise EpifedError(f"{out}: not empty; expected a new directory for the rehearsal")
    wish = SettingsRequest(settings, None, **given)
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
