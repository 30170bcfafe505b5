"""`epifed federation rehearse`: the whole federation on one machine, before it is real."""

import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from epifed.cli.federation_train import Watching, price
from epifed.cli.kit import AsJson, LearnerName, Seed, Wish, messages, refuse_unwritable
from epifed.errors import EpifedError
from epifed.files import to_json
from epifed.words import counted


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

    At the end its state is compared with that of a training in one process with the same seeds.

    With --weeks a year: the schedule runs week after week, each with the counts as known that
    morning, while parties leave, crash, lose keys and are restored. Interrupted, the same command
    goes on. Exit code 1 if a release is unaccounted for or the ledger is not the plan.
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
        from epifed.cli.federation_year import rehearse_year

        wish = Wish(settings, {"learner": "nowcast", "epsilon": 1.0}, **given)
        size = (weeks, sites, aggregators, clients)
        rehearse_year(*size, wish.settings(clients), events, out, as_json=as_json)
        return
    if events is not None:
        raise EpifedError("--events: expected --weeks with it")
    if out:
        refuse_unwritable(out)
    if out and out.exists() and any(out.iterdir()):
        raise EpifedError(f"{out}: not empty; expected a new directory for the rehearsal")
    wish = Wish(settings, None, **given)
    chosen = wish.settings(clients, {} if wish.said.keys() & {"learner"} else {"rounds": 10})

    from rich.live import Live

    from epifed.federation.flare.rehearsal import rehearse as run
    from epifed.federation.flare.rehearsal import simulated_panel
    from epifed.privacy.plan import TRUST

    messages.print(f"simulating an epidemic in {counted(clients, 'county')}")
    panel = simulated_panel(clients, chosen.seed, chosen.step)
    losses: dict[int, float] = {}
    watching = Watching(losses)

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
        f"{price(done.epsilon, done.epsilon_if_drawn_seen, done.delta, done.accountant)}; "
        "seeded noise: not for release"
    )
    print(f"all {counted(done.sites_with_model, 'site')} hold the model {done.sha256[:12]}…")
    print(f"largest difference to a training in one process: {done.largest_difference:.2g}")
    print(TRUST[chosen.noise])
    if done.aggregator_memory is not None:
        print(f"memory of an aggregator: {done.aggregator_memory:.0f} MB at most")
