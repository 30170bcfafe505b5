"""`epifed ledger` and `epifed calibrate`: the privacy budget, and the noise that it asks for."""

import json
import math
from dataclasses import asdict
from datetime import date
from decimal import ROUND_CEILING, Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from epifed.cli.common import AsJson, refuse_other_format
from epifed.errors import EpifedError, counted
from epifed.files import to_json
from epifed.settings import Settings

if TYPE_CHECKING:
    from epifed.ledger.budget import Book, Cap, RunRecord, Schedule, Spending
    from epifed.privacy.accounting import Calibration


_DEFAULTS = Settings()


def calibrate(
    epsilon: Annotated[
        float | None, typer.Option(help="ε, the budget of the whole training; inf: no noise.")
    ] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="c, instead of ε: print the ε of a training with it.")
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
    as_json: AsJson = False,
) -> None:
    """Compute the noise multiplier for a budget ε, or the ε of a noise multiplier."""
    if (epsilon is None) == (noise_multiplier is None):
        raise EpifedError(
            f"found {'neither' if epsilon is None else 'both'} of --epsilon and "
            "--noise-multiplier; expected exactly one"
        )
    rate = _sampling_rate(sampling_rate, clients, clients_per_round)

    from epifed.privacy import accounting
    from epifed.privacy.accounting import find_accountant

    find_accountant(accountant)
    if epsilon is not None:
        price = accounting.calibrate(epsilon, delta, rate, rounds, accountant)
    else:
        assert noise_multiplier is not None
        price = accounting.priced(noise_multiplier, rate, rounds, delta, accountant)
    if as_json:
        hidden = ("order", "trust")
        typer.echo(to_json({k: v for k, v in asdict(price).items() if k not in hidden}))
    else:
        typer.echo(_as_text(price))


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


def _as_text(price: "Calibration") -> str:
    from epifed.privacy.accounting import rounded_up

    order = "" if price.order is None else f", at Rényi order {price.order:g}"
    spent = f"ε = {rounded_up(price.epsilon_spent)} at δ = {price.delta:g}{order}"
    return "\n".join(
        (
            f"noise multiplier  c = {price.noise_multiplier:.6g}",
            f"spends            {spent}",
            f"counted for       {price.unit} (neighbours: {price.neighbouring})",
            f"guarantee         {price.sentence()}",
        )
    )


app = typer.Typer(
    help="Record and limit the privacy budget over all trainings.",
    no_args_is_help=True,
)

_POINTS = 5
_SAMPLING_RATE = 0.25

File = Annotated[Path, typer.Argument(metavar="FILE", help="The ledger.")]
Note = Annotated[str, typer.Option(help="Why, in a few words; kept in the ledger.")]
IsCopy = Annotated[bool, typer.Option("--copy", help="Read a file that is only a copy.")]


@app.command("init")
def init(
    file: File,
    epsilon: Annotated[float, typer.Option(help="ε, the cap on all trainings together.")],
    delta: Annotated[float, typer.Option(help="δ, the failure probability.")] = _DEFAULTS.delta,
    accountant: Annotated[
        str,
        typer.Option(
            help="rdp (Rényi, the paper's), pld (tighter: more fits), or gaussian (all clients in "
            "every round; the noise may be chosen from week to week)."
        ),
    ] = _DEFAULTS.accountant,
    renew: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="WEEKS",
            help="Weeks after which the budget renews. The cap holds for each such window, but the "
            "total over the years has no cap: a weaker promise.",
            show_default="never",
        ),
    ] = None,
    note: Note = "",
) -> None:
    """Make a ledger. Its cap on ε cannot be changed later."""
    from epifed.ledger.budget import Cap
    from epifed.ledger.ledger import Ledger

    cap = Cap(epsilon, delta, accountant, renew)
    book = Ledger.create(file, cap, note).book()
    typer.echo(f"{file}: a ledger with the cap {_quoted(cap)}\nhead  {book.head}")


@app.command("show")
def show(file: File, copy: IsCopy = False, as_json: AsJson = False) -> None:
    """Print all runs, what is spent and what is left."""
    from epifed.ledger.ledger import Ledger

    book = Ledger(file, copy=copy).book()
    summary = summary_of(book)
    if as_json:
        typer.echo(to_json(summary))
        return
    if book.runs:
        header = ["run", "training", "days", "q", "c", "rounds", "ε alone", "note"]
        table = [header, *(_run_row(book.cap, run) for run in book.runs.values())]
        told = [k for k in range(len(header)) if any(row[k] for row in table[1:])]
        typer.echo(_aligned([[row[k] for k in told] for row in table]))
        typer.echo()
    typer.echo(text_of(book))


@app.command("plan")
def plan(
    epsilon: Annotated[
        float | None, typer.Option(help="ε, the cap on all trainings; with --ledger, its own.")
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="δ of the cap.", show_default=f"{_DEFAULTS.delta:g}")
    ] = None,
    sampling_rate: Annotated[
        float, typer.Option(help="q, the chance of a client to be in a round.")
    ] = _SAMPLING_RATE,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of one training.")] = _DEFAULTS.rounds,
    releases: Annotated[
        int, typer.Option(min=1, help="Trainings that shall fit: 52 is weekly for a year.")
    ] = 52,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="c of one training: print how many fit.")
    ] = None,
    epsilon_each: Annotated[
        float | None, typer.Option(help="ε of one training: print how many fit.")
    ] = None,
    accountant: Annotated[
        str | None,
        typer.Option(
            help="rdp, pld or gaussian.",
            show_default=f"{_DEFAULTS.accountant}; of a year, gaussian",
        ),
    ] = None,
    year: Annotated[
        bool, typer.Option("--year", help="One release of all clients a week: ε of each week.")
    ] = False,
    rule: Annotated[
        str,
        typer.Option(help="Of a year: uniform, or trend (more while the released trend turns)."),
    ] = "uniform",
    growth: Annotated[
        Path | None,
        typer.Option(help="For --rule trend: CSV with columns week and growth, as released."),
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="Plan with what is left in this ledger.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Plot for this file, PNG, PDF or SVG.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print how many trainings fit under a cap, and how much noise each needs."""
    from epifed.ledger import budget
    from epifed.privacy.accounting import calibrate

    if year:
        sampled = sampling_rate if sampling_rate != _SAMPLING_RATE else 1.0
        accountant = accountant if ledger else accountant or "gaussian"
        cap, spent = _cap(epsilon, delta, accountant, ledger)
        _plan_year(cap, spent, sampled, releases, rule, growth, as_json=as_json)
        return
    if out is not None:
        refuse_other_format(out, (".png", ".pdf", ".svg"))
    if noise_multiplier is not None and epsilon_each is not None:
        raise EpifedError("found both of --noise-multiplier and --epsilon-each; expected one")
    cap, spent = _cap(epsilon, delta, accountant, ledger)
    curve = [
        budget.schedule(cap, spent, sampling_rate, rounds, count) for count in _counts(releases)
    ]
    chosen = next(point for point in curve if point.releases == releases)
    fixed = None
    if epsilon_each is not None:
        price = calibrate(epsilon_each, cap.delta, sampling_rate, rounds, cap.accountant)
        noise_multiplier = price.noise_multiplier
    if noise_multiplier is not None:
        fixed = budget.Schedule(
            budget.most_trainings(cap, spent, sampling_rate, noise_multiplier, rounds),
            noise_multiplier,
            cap.price(budget.together([(sampling_rate, noise_multiplier, rounds)])),
        )
    if out is not None:
        _plot(curve, chosen, cap, out)
    if as_json:
        result: dict[str, Any] = {
            "cap": cap.to_dict(),
            "taken_epsilon": cap.price(spent),
            "sampling_rate": sampling_rate,
            "rounds": rounds,
            **asdict(chosen),
            "curve": [asdict(point) for point in curve],
            "fixed_noise": fixed and asdict(fixed),
        }
        typer.echo(json.dumps(result, indent=2))
        return
    each = f"of {counted(rounds, 'round')} at q = {sampling_rate:g}"
    typer.echo(f"cap {_quoted(cap)}" + (f"\ntaken ε = {_up(cap.price(spent))}" if spent else ""))
    typer.echo(
        f"{counted(chosen.releases, 'training')} {each} "
        f"{'fits if it' if chosen.releases == 1 else 'fit if each'} has a noise multiplier of at "
        "least "
        f"c = {_up(chosen.noise_multiplier)}, which is ε = {_up(chosen.epsilon_each)} by itself"
    )
    if fixed:
        typer.echo(
            f"with c = {_up(fixed.noise_multiplier)}, ε = {_up(fixed.epsilon_each)} by itself, "
            f"{counted(fixed.releases, 'training')} {'fits' if fixed.releases == 1 else 'fit'}"
        )
    table = [[str(p.releases), _up(p.noise_multiplier), _up(p.epsilon_each)] for p in curve]
    typer.echo("\n" + _aligned([["trainings", "c", "ε alone"], *table]))


def _cap(
    epsilon: float | None, delta: float | None, accountant: str | None, ledger: Path | None
) -> "tuple[Cap, Spending]":
    """The cap that was said, or a ledger's, and what is taken of it."""
    from epifed.ledger.budget import Cap
    from epifed.ledger.ledger import Ledger

    if ledger is not None:
        if (epsilon, delta, accountant) != (None, None, None):
            raise EpifedError("--ledger has its own cap; expected no --epsilon, --delta or "
                              "--accountant")  # fmt: skip
        book = Ledger(ledger).book()
        return book.cap, book.taken()
    if epsilon is None:
        raise EpifedError("expected --epsilon, or --ledger with its cap")
    delta = _DEFAULTS.delta if delta is None else delta
    return Cap(epsilon, delta, accountant or _DEFAULTS.accountant), ()


def _plan_year(
    cap: "Cap",
    spent: "Spending",
    sampling_rate: float,
    weeks: int,
    rule: str,
    growth: Path | None,
    *,
    as_json: bool,
) -> None:
    """Print what each week may spend."""
    from epifed.ledger.budget import RULES, plan_year
    from epifed.privacy.accounting import squared_mu, training_event

    if rule not in RULES:
        raise EpifedError(f"--rule: found '{rule}'; expected {' or '.join(RULES)}")
    if rule == "trend" and cap.accountant == "gaussian" and growth is None:
        raise EpifedError(
            "--growth: found none with the rule 'trend'; expected a CSV with columns week and "
            "growth, as the past weeks released it"
        )
    if sampling_rate != 1:
        raise EpifedError(
            f"--sampling-rate: found {sampling_rate:g} for a year's plan; expected 1, because no "
            "filter is proven for sampled clients; without --year the plan is fixed beforehand"
        )
    released = _growth(growth) if growth else []
    taken = sum(squared_mu(training_event(*part)) for part in spent)
    planned = plan_year(cap, weeks, rule, released, taken)
    if as_json:
        result = {
            "cap": cap.to_dict(),
            "rule": rule,
            "taken_epsilon": cap.price(spent),
            "weeks": [asdict(week) for week in planned],
        }
        typer.echo(json.dumps(result, indent=2))
        return
    typer.echo(f"cap {_quoted(cap)}")
    typer.echo(
        f"rule {rule}: one release of all clients a week; only released or public numbers may "
        "decide what a week gets"
    )
    header = ["week", "shares", "c", "ε alone", "ε up to it"]
    rows = [
        [str(w.week), f"{w.shares:g}", _up(w.noise_multiplier), _up(w.epsilon_alone),
         _up(w.epsilon_together)]
        for w in planned
    ]  # fmt: skip
    typer.echo("\n" + _aligned([header, *rows]))


def _growth(path: Path) -> list[float]:
    """The released log growth of past weeks, the oldest first."""
    import csv

    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise EpifedError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise EpifedError(f"{path}: expected CSV in UTF-8; {error}") from None
    if rows and not {"week", "growth"} <= set(rows[0]):
        raise EpifedError(
            f"{path}: found the columns {', '.join(map(str, rows[0]))}; expected week and growth"
        )
    weeks = []
    for number, row in enumerate(rows, start=2):
        try:
            day, value = date.fromisoformat(str(row["week"]).strip()), float(row["growth"] or "")
        except ValueError:
            value = math.nan
            day = date.min
        if not math.isfinite(value):
            raise EpifedError(
                f"{path}, row {number}: found week '{row['week']}' and growth '{row['growth']}'; "
                "expected a day as YYYY-MM-DD and the log growth of a week, such as 0.2"
            )
        weeks.append((day, value))
    return [value for _, value in sorted(weeks)]


@app.command("verify")
def verify(
    file: File,
    head: Annotated[
        str | None, typer.Option(help="A hash noted earlier, whose row must still be there.")
    ] = None,
    copy: IsCopy = False,
    as_json: AsJson = False,
) -> None:
    """Check the file and the hash chain of its rows; the first wrong row is named."""
    from epifed.ledger.ledger import Ledger

    book = Ledger(file, copy=copy).verify(head)
    if as_json:
        typer.echo(json.dumps({"verified": True, "rows": len(book.hashes), "head": book.head}))
        return
    rows = len(book.hashes)
    fit = "its only row fits" if rows == 1 else f"all {counted(rows, 'row')} fit"
    typer.echo(f"{file}: {fit}\nhead  {book.head}")
    if head is not None:
        since = len(book.hashes) - 1 - book.hashes.index(head.strip().lower())
        typer.echo(f"rows since the hash that was given: {since}")


@app.command("close")
def close(
    file: File,
    run: Annotated[str, typer.Argument(help="The run, as 'show' names it.")],
    note: Note = "",
) -> None:
    """End a run that was interrupted: its rounds not yet spent are given back.

    A training that is still going on under this run is stopped before its next round.
    """
    from epifed.ledger.ledger import Ledger

    book = Ledger(file).close(run, "abandoned", note=note)
    record = book.runs[run]
    typer.echo(
        f"run {run}: closed; {record.spent} of {counted(record.rounds, 'round')} "
        f"{'was spent and counts' if record.spent == 1 else 'were spent and count'}\n"
    )
    typer.echo(text_of(book))


@app.command("adopt")
def adopt(
    file: File,
    note: Annotated[str, typer.Option(help="Why the original is gone; kept in the ledger.")],
    head: Annotated[
        str | None, typer.Option(help="The last hash noted, to be sure that no row is missing.")
    ] = None,
) -> None:
    """Use a ledger on this machine that was moved or restored from a backup.

    Its original must never spend again. A file older than what this machine has seen of the ledger
    is refused.
    """
    from epifed.ledger.ledger import Ledger

    book = Ledger.adopt(file, note, head).book()
    typer.echo(f"{file}: is the ledger now\n")
    typer.echo(text_of(book))


def summary_of(book: "Book") -> dict[str, Any]:
    """What `ledger show` prints as JSON."""
    from epifed.ledger.budget import left

    taken = book.cap.price(book.taken())
    return {
        "ledger": book.ledger,
        "created": book.created,
        "cap": book.cap.to_dict(),
        "spent_epsilon": book.cap.price(book.released()),
        "taken_epsilon": taken,
        "left_epsilon": left(book.cap, taken),
        "total_epsilon": book.cap.price(book.since_the_beginning()),
        "runs": [asdict(run) for run in book.runs.values()],
        "rows": len(book.hashes),
        "head": book.head,
    }


def text_of(book: "Book") -> str:
    """Cap, spent, left; of a cap that renews also the total since the beginning."""
    from epifed.ledger.budget import rounded_down

    summary = summary_of(book)
    spent = sum(run.spent for run in book.runs.values())
    held = sum(run.counted for run in book.runs.values()) - spent
    lines = [
        f"cap    {_quoted(book.cap)}",
        f"spent  ε = {_up(summary['spent_epsilon'])} for {counted(spent, 'round')} in "
        f"{counted(len(book.runs), 'run')}",
    ]
    if held:
        taken = _up(summary["taken_epsilon"])
        lines.append(f"taken  ε = {taken} with {counted(held, 'round')} that open runs still hold")
    if book.cap.weeks is not None:
        window = counted(book.cap.weeks, "week")
        lines[1] = f"spent  ε = {_up(summary['spent_epsilon'])} in the last {window}"
        lines.append(
            f"total  since the beginning ε = {_up(summary['total_epsilon'])} for "
            f"{counted(spent, 'round')}, which no cap limits"
        )
    left = rounded_down(summary["left_epsilon"])
    fits = "'epifed ledger plan --ledger' shows what fits"
    lines.append(f"left   ε = {left}, by subtraction; {fits}")
    lines.append(f"head   {book.head}, row {len(book.hashes)}")
    return "\n".join(lines)


def _run_row(cap: "Cap", run: "RunRecord") -> list[str]:
    from epifed.ledger.budget import together

    rounds = {"open": f"{run.spent} of {run.rounds} open", "finished": str(run.spent)}
    return [
        run.run,
        _one_line(run.training),
        run.days,
        f"{run.sampling_rate:.4g}",
        f"{run.noise_multiplier:.4g}",
        rounds.get(run.outcome, f"{run.spent} {run.outcome}"),
        _up(cap.price(together([run.part(run.counted)]))),
        _one_line(run.note),
    ]


def _aligned(rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _one_line(text: str) -> str:
    """Words of others, without what would steer a terminal."""
    return "".join(sign if sign.isprintable() else " " for sign in text)


def _counts(releases: int) -> list[int]:
    """From one training to twice as many as asked for, evenly on a log scale."""
    steps = (round((2 * releases) ** (i / _POINTS)) for i in range(_POINTS + 1))
    return sorted({*steps, releases})


def _up(value: float) -> str:
    """Four digits after the point, never less than the value."""
    from epifed.privacy.accounting import rounded_up

    if value == 0 or math.isinf(value):
        return f"{value:g}"
    return rounded_up(float(Decimal(repr(value)).quantize(Decimal("1e-4"), ROUND_CEILING)))


def _quoted(cap: "Cap") -> str:
    """A cap and, if its δ is large, what that means."""
    warning = cap.warning()
    return f"{cap.sentence()}{f'; {warning}' if warning else ''}"


def _plot(curve: list["Schedule"], chosen: "Schedule", cap: "Cap", out: Path) -> None:
    from matplotlib.figure import Figure

    from epifed.files import write_atomic
    from epifed.privacy.accounting import rounded_up

    figure = Figure(figsize=(4.8, 3.2), layout="constrained")
    axes = figure.subplots()
    counts = [point.releases for point in curve]
    axes.plot(counts, [point.epsilon_each for point in curve], "o-", label="composed")
    axes.plot(counts, [cap.epsilon / n for n in counts], "--", color="#555555", label="cap / n")
    axes.plot([chosen.releases], [chosen.epsilon_each], "o", markersize=9, fillstyle="none",
              color="#D55E00", label=f"n = {chosen.releases}: c = {chosen.noise_multiplier:.3g}",
              )  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="trainings n", ylabel="ε of one by itself")
    axes.set_title(f"What fits into ε = {rounded_up(cap.epsilon)}, δ = {rounded_up(cap.delta)} "
                   f"({cap.accountant.upper()})", loc="left", fontsize=10)  # fmt: skip
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    write_atomic(out, lambda path: figure.savefig(path, format=out.suffix[1:], dpi=160))
