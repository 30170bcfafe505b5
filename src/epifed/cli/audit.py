"""`epifed audit`: is a training as private as it claims? Measured from outside."""

import platform
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from epifed.cli.common import (
    AsJson,
    GridProgress,
    messages,
    print_table,
    refuse_other_format,
    require,
)
from epifed.errors import EpifedError, counted
from epifed.files import to_json, write_text
from epifed.settings import Settings

if TYPE_CHECKING:
    from epifed.audit.audit import Audit
    from epifed.audit.epsilon_bounds import Attack
    from epifed.audit.statistics import Check

_DEFAULTS = Settings()
QUICK_RUNS = 600
PAGE = ".md"
SURE = 1 - 1e-7
"""The confidence of the bounds of --all and --quick, whose verdict is not to be a false alarm."""
LEAST_SHOWN = 0.0005
"""A smaller measured ε would be printed as 0."""


def audit(
    epsilon: Annotated[float, typer.Option(help="The claimed ε.")] = _DEFAULTS.epsilon,
    delta: Annotated[float, typer.Option(help="δ of the claim.")] = _DEFAULTS.delta,
    clients: Annotated[int, typer.Option(min=1, help="N, all clients.")] = 400,
    clients_per_round: Annotated[
        int, typer.Option(help="m, expected clients of a round.")
    ] = _DEFAULTS.clients_per_round,
    rounds: Annotated[int, typer.Option(help="T_cl, federated rounds.")] = _DEFAULTS.rounds,
    clip_norm: Annotated[
        float, typer.Option(help="S, bound on a client's update.")
    ] = _DEFAULTS.clip_norm,
    accountant: Annotated[str, typer.Option(help="rdp or pld.")] = _DEFAULTS.accountant,
    runs: Annotated[int, typer.Option(help="Trainings, half of them with the canary.")] = 3000,
    method: Annotated[
        str, typer.Option(help="many-runs, one-run (Steinke et al. 2023) or both.")
    ] = "many-runs",
    confidence: Annotated[float, typer.Option(help="Confidence of all bounds together.")] = 0.99,
    seed: Annotated[int, typer.Option(min=0, help="Root of all randomness.")] = 0,
    secure: Annotated[
        bool,
        typer.Option(
            "--secure", help="Use the secure generator, as for real data; not repeatable."
        ),
    ] = False,
    federation: Annotated[
        bool,
        typer.Option("--federation", help="Check a federation on real processes too (a minute)."),
    ] = False,
    membership: Annotated[
        bool,
        typer.Option(
            "--membership",
            help="Attack a small simulated federation instead, at ε = ∞, 5, 2, 1 and 0.5.",
        ),
    ] = False,
    every: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Try everything that can be deployed, on real processes too (a few minutes).",
        ),
    ] = False,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Fewer trainings and a part of each kind of check (about a minute).",
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="A page for an auditor (.md), or a picture of both distributions."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Test whether the deployed code keeps its privacy guarantee.

    A worst-case client takes part in half of many trainings. How well an attacker tells them apart
    gives a lower bound on ε. Named checks cover transports, learners, randomness, files, labels,
    the ledger and aggregators; each prints what it would notice. PASS means that no bound exceeds
    the claim and every check holds. Exit code 0: PASS, 1: FAIL, 2: a mistake in the options.
    """
    if out is not None:
        refuse_other_format(out, (PAGE, ".png", ".pdf", ".svg"))
    if every and quick:
        raise EpifedError("--all: found --quick, too; expected one of them")
    settings = _DEFAULTS.but(
        epsilon=epsilon,
        delta=delta,
        clients_per_round=clients_per_round,
        rounds=rounds,
        clip_norm=clip_norm,
        accountant=accountant,
    )

    if membership:
        if out is not None and out.suffix == PAGE:
            raise EpifedError(f"--out: found '{out}' with --membership; expected a picture")
        _membership(runs, seed, out, as_json)
        return
    require("federation", "cryptography", "filelock", "nvflare", "opendp", "psutil")

    from epifed.audit.audit import audit as measure
    from epifed.audit.bench import EngineMechanism
    from epifed.audit.epsilon_bounds import LENGTH, METHODS
    from epifed.report import figures

    chosen = next((name for name in METHODS if name == method), None)
    if chosen is None:
        raise EpifedError(f"--method: found '{method}'; expected one of {', '.join(METHODS)}")
    if out is not None and out.suffix != PAGE and chosen == "one-run":
        raise EpifedError("--out: the picture shows many runs; expected --method many-runs or both")
    with GridProgress() as progress:
        result = measure(
            settings,
            clients,
            mechanism=EngineMechanism(secure=secure),
            method=chosen,
            runs=min(runs, QUICK_RUNS) if quick else runs,
            confidence=max(confidence, SURE) if every or quick else confidence,
            seed=seed,
            length=2 if secure else LENGTH,
            federation=federation,
            scope="all" if every else "quick",
            progress=progress,
        )
    if out is not None and out.suffix == PAGE:
        write_text(out, _as_page(result))
    elif out is not None:
        figures.save(figures.audit_scores(result), out)
    print(to_json(result.to_dict()) if as_json else _as_text(result))
    if out is not None:
        what = "page" if out.suffix == PAGE else "picture of the two distributions"
        messages.print(f"the {what} is in {out}")
    if not result.passed:
        raise typer.Exit(1)


def _as_text(result: "Audit") -> str:
    from epifed.audit.statistics import GROUPS

    s = result.settings
    lines = [
        f"claimed      ε = {result.claimed_epsilon:g} at δ = {result.delta:g}, one client added or "
        f"removed, by the {s.accountant.upper()} accountant",
        f"mechanism    {result.mechanism}: N = {result.clients}, m = {s.clients_per_round}, "
        f"T = {s.rounds}, S = {s.clip_norm:g}, c = {result.noise_multiplier:.4g}",
        f"measured     {_measured(result)}",
    ]
    if m := result.many_runs:
        lines += [
            f"  many runs  ε ≥ {m.lower_bound:.3f} by the trade-off of the sampled Gaussian, "
            f"ε ≥ {m.direct:.3f} for any mechanism",
            f"             {counted(m.runs, 'training')}: at most {m.errors.false_positive:.1%} "
            "false alarms, "
            f"{m.errors.false_negative:.1%} misses; μ ≥ {m.mu:.3f} (ε ≈ {m.gaussian:.3f} if it "
            "were Gaussian-DP)",
        ]
    if o := result.one_run:
        lines.append(
            f"  one run    ε ≥ {o.lower_bound:.3f}: {o.right} of {o.guesses} guesses right about "
            f"{counted(o.canaries, 'canary')}"
        )
    for group in GROUPS:
        of_group = [check for check in result.checks if check.group == group]
        seconds = sum(check.seconds for check in of_group)
        lines += [f"{group} ({seconds:.0f} s)"] if of_group else []
        lines += [line for check in of_group for line in _lines(check)]
    if result.coverage:
        lines.append("covered")
        lines += [f"  {what:<32}{tried}" for what, tried in result.coverage]
        groups = [group for group in GROUPS if any(c.group == group for c in result.checks)]
        number = len(result.checks) - sum(check.skipped for check in result.checks)
        lines.append(f"  {'checks':<32}{number} in {len(groups)} groups: {', '.join(groups)}")
        lines.append("not covered")
        lines += [f"  {what}" for what in result.left_out or ("nothing that could be tried here",)]
        lines.append(
            f"false alarms  the checks fail correct code with a chance of at most "
            f"{result.false_alarms:.1g}"
        )
    lines.append(f"code         sha256 {result.code}")
    lines.append("PASS" if result.passed else "FAIL")
    return "\n".join(lines)


def _measured(result: "Audit") -> str:
    """The measured lower bound on ε, and the chance that it is wrong."""
    bound = f"ε ≥ {result.lower_bound:.3f}"
    if result.lower_bound < LEAST_SHOWN:
        bound = "no ε above 0: these trainings do not show whether a client took part"
    chance = f"wrong with a chance of at most {1 - result.confidence:.2g}"
    return f"{bound} ({counted(result.runs, 'training')}; {chance})"


def _as_page(result: "Audit") -> str:
    """One page for an auditor: the verdict, what was tried, and what would have been noticed."""
    from epifed import __version__
    from epifed.audit.statistics import GROUPS

    failed = [check.name for check in result.checks if not check.passed]
    verdict = "PASS" if result.passed else f"FAIL: {', '.join(failed) or 'the measured ε'}"
    lines = [
        "# Audit of epifed",
        "",
        f"- **Verdict: {verdict}**",
        f"- Made on {datetime.now(UTC):%Y-%m-%d at %H:%M} UTC with epifed {__version__}, Python "
        f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        f"- Code, SHA-256 of all source files: `{result.code}`",
        f"- Claim: ε = {result.claimed_epsilon:g} at δ = {result.delta:g}, one client added or "
        f"removed, by the {result.settings.accountant.upper()} accountant",
        f"- Measured: {_measured(result)}",
        f"- The checks fail correct code with a chance of at most {result.false_alarms:.1g}",
        "",
        "PASS means that no measured bound is above the claim and no rule is broken. It is not a "
        "proof of privacy.",
    ]
    nothing = [("nothing of this kind",)]
    lines += [
        "",
        "## What was tried",
        "",
        *_table(("What", "How much"), result.coverage or nothing),
    ]
    lines += ["", "## What was not tried", ""]
    lines += _table(("What",), [(what,) for what in result.left_out] or nothing)
    lines += ["", "## Each rule, what was seen, and what would have been noticed"]
    for group in GROUPS:
        of_group = [
            (
                "skipped" if check.skipped else "kept" if check.passed else "**BROKEN**",
                check.name,
                check.expected,
                check.found,
                check.power or "a breach of the rule in what was tried",
            )
            for check in result.checks
            if check.group == group
        ]
        header = ("", "Check", "Rule", "Seen", "Would have been noticed")
        if of_group:
            lines += ["", f"### {group.capitalize()}", "", *_table(header, of_group)]
    return "\n".join([*lines, ""])


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table in Markdown."""
    cells = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in cells]


def _lines(check: "Check") -> list[str]:
    verdict = "skipped" if check.skipped else "ok" if check.passed else "BROKEN"
    line = f"  {verdict:<11}{check.name}: {check.expected}; {check.found}"
    return [line, f"{'':<13}{check.power}"] if check.power else [line]


def _membership(runs: int, seed: int, out: Path | None, as_json: bool) -> None:
    from epifed.audit.epsilon_bounds import (
        CONFIDENCE,
        EPSILONS,
        SMALL,
        membership_attack,
        small_federation,
    )
    from epifed.report import figures
    from epifed.report.tables import budget
    from epifed.simulate import default_panel

    few, target = small_federation(default_panel(seed), SMALL)
    per_budget = max(4, runs // len(EPSILONS))
    with GridProgress() as progress:
        attacks = membership_attack(
            few, SMALL, target, trainings=per_budget, seed=seed, progress=progress
        )
    if out is not None:
        figures.save(figures.membership_attack(attacks), out)
    if as_json:
        print(to_json([asdict(attack) | {"advantage": attack.advantage} for attack in attacks]))
        return
    print_table(
        f"Did {few.names[target]} take part? {counted(len(few), 'region')}, "
        f"{counted(SMALL.rounds, 'round')}",
        MEMBERSHIP_HEADER,
        [membership_row(budget(attack.epsilon), attack) for attack in attacks],
        f"{counted(per_budget, 'training')} per ε, {CONFIDENCE:.0%} intervals; a coin toss is "
        "right 50 %; "
        f"δ = {SMALL.delta:g}, one client added or removed, {SMALL.accountant.upper()} accountant",
    )


MEMBERSHIP_HEADER = ["ε", "right guesses", "AUC", "advantage", "noise allows", "(ε, δ) allows"]


def membership_row(epsilon: str, attack: "Attack") -> list[str]:
    """One budget as text."""
    return [
        epsilon,
        f"{attack.right:.0%} ({attack.right_low:.0%} to {attack.right_high:.0%})",
        f"{attack.auc:.2f} ({attack.auc_low:.2f} to {attack.auc_high:.2f})",
        f"{attack.advantage:.2f}",
        f"{attack.allowed_by_noise:.0%}",
        f"{attack.allowed:.0%}",
    ]
