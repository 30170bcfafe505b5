"""`epifed calibrate`: the noise a budget asks for, or the budget a noise has used up."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from epifed.errors import EpifedError
from epifed.files import to_json
from epifed.settings import Settings
from epifed.words import counted

if TYPE_CHECKING:
    from epifed.privacy.accounting import Calibration

_DEFAULTS = Settings()


def calibrate(
    epsilon: Annotated[
        float | None, typer.Option(help="ε, the budget of the whole training; inf: no noise.")
    ] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="c, instead of ε: what has a training with it spent?")
    ] = None,
    delta: Annotated[float, typer.Option(help="δ, the failure probability.")] = _DEFAULTS.delta,
    sampling_rate: Annotated[
        float | None, typer.Option(help="q, the chance of a client to be in a round.")
    ] = None,
    clients: Annotated[int | None, typer.Option(help="N, all clients, instead of q.")] = None,
    clients_per_round: Annotated[
        int | None, typer.Option(help="m, expected clients of a round, with N instead of q.")
    ] = None,
    rounds: Annotated[int, typer.Option(help="T_cl, federated rounds.")] = _DEFAULTS.rounds,
    accountant: Annotated[
        str, typer.Option(help="rdp (Rényi, the paper's) or pld (tighter: less noise).")
    ] = _DEFAULTS.accountant,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON and nothing else on stdout.")
    ] = False,
) -> None:
    """Find the noise multiplier for a privacy budget, or price a finished training."""
    if (epsilon is None) == (noise_multiplier is None):
        raise EpifedError(
            f"found {'neither' if epsilon is None else 'both'} of --epsilon and "
            "--noise-multiplier; expected exactly one"
        )
    rate = _sampling_rate(sampling_rate, clients, clients_per_round)

    from epifed.privacy import accounting
    from epifed.privacy.accountants import find_accountant

    find_accountant(accountant)
    if epsilon is not None:
        found = accounting.calibrate(epsilon, delta, rate, rounds, accountant)
    else:
        assert noise_multiplier is not None
        found = accounting.priced(noise_multiplier, rate, rounds, delta, accountant)
    if as_json:
        hidden = ("order", "trust")
        typer.echo(to_json({k: v for k, v in asdict(found).items() if k not in hidden}))
    else:
        typer.echo(_as_text(found))


def _sampling_rate(
    sampling_rate: float | None, clients: int | None, clients_per_round: int | None
) -> float:
    counts = (clients, clients_per_round)
    if sampling_rate is not None and counts == (None, None):
        return sampling_rate
    if sampling_rate is not None or clients is None or clients_per_round is None:
        raise EpifedError(
            "expected either --sampling-rate, or both --clients and --clients-per-round"
        )
    if not 1 <= clients_per_round <= clients:
        raise EpifedError(
            f"--clients-per-round: found {clients_per_round} of {counted(clients, 'client')}; "
            "expected at "
            "least 1 and at most all"
        )
    return clients_per_round / clients


def _as_text(found: "Calibration") -> str:
    from epifed.privacy.accounting import rounded_up

    order = "" if found.order is None else f", at Rényi order {found.order:g}"
    spent = f"ε = {rounded_up(found.epsilon_spent)} at δ = {found.delta:g}{order}"
    return "\n".join(
        (
            f"noise multiplier  c = {found.noise_multiplier:.6g}",
            f"spends            {spent}",
            f"counted for       {found.unit} (neighbours: {found.neighbouring})",
            f"guarantee         {found.sentence()}",
        )
    )
