"""Audit the deployed code against its privacy claim: bounds on ε, and checks of every rule."""

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from epifed.audit.aggregator_checks import check_aggregators
from epifed.audit.bench import EngineMechanism, Mechanism, ServedMechanism
from epifed.audit.combination_checks import check_combinations, longest
from epifed.audit.epsilon_bounds import (
    LEAST_RUNS,
    METHODS,
    ManyRuns,
    Method,
    OneRun,
    Progress,
    make_trial,
    many_runs,
    one_run,
)
from epifed.audit.epsilon_bounds import LENGTH as MANY_RUNS_LENGTH
from epifed.audit.hostile_checks import check_hostile
from epifed.audit.leak_checks import check_contents, check_learners
from epifed.audit.neighbour_checks import check_neighbours
from epifed.audit.noise_checks import (
    CHECKS,
    LENGTH,
    ROUNDS,
    check_draws,
    check_mechanism,
    check_rows,
)
from epifed.audit.order_checks import check_order
from epifed.audit.price_checks import check_labels, check_ledger
from epifed.audit.process_checks import check_processes
from epifed.audit.randomness_checks import check_generator
from epifed.audit.statistics import GROUPS, LEVEL, Check, Group, Names, alarms, merged
from epifed.errors import EpifedError
from epifed.settings import Settings

Report = Callable[[int, int], None]
Scope = Literal["quick", "all"]


@dataclass(frozen=True)
class Size:
    """A deployed path and the size of the trainings that are run on it."""

    mechanism: Mechanism
    rounds: int
    length: int


def paths(scope: Scope) -> tuple[Size, ...]:
    """The deployed paths that a scope covers, with the longest vector of any installed learner."""
    length = max(longest(), LENGTH)
    everything = (
        Size(EngineMechanism(), ROUNDS if scope != "quick" else 80, length),
        Size(EngineMechanism(secure=True), 12, length),
        Size(ServedMechanism(), 24, length),
        Size(ServedMechanism(secure=True), 8, length),
    )
    return everything[:2] if scope == "quick" else everything


@dataclass
class Coverage:
    """What an audit has covered, and what it has left out."""

    scope: Scope
    rows: list[tuple[str, str]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def add(self, what: str, tried: str) -> None:
        """Add a row to the table of what was covered."""
        self.rows.append((what, tried))


def run_checks(
    settings: Settings,
    *,
    seed: int = 0,
    groups: tuple[Group, ...] = GROUPS,
    names: Names = None,
    federation: bool = False,
    scope: Scope = "quick",
    progress: Report | None = None,
    coverage: Coverage | None = None,
) -> list[Check]:
    """All checks of these groups, or those named; `federation` adds those on real processes."""
    covered = coverage or Coverage(scope)
    every = scope == "all"
    makers: dict[Group, Callable[[], list[Check]]] = {
        "mechanism": partial(_mechanism, settings, seed, names, scope, covered),
        "combinations": partial(_combinations, settings, names, scope, covered),
        "neighbours": partial(check_neighbours, settings, scope, names),
        "learners": partial(check_learners, settings, names),
        "randomness": partial(check_generator, settings, seed, names),
        "files": partial(check_contents, settings, names),
        "labels": partial(check_labels, settings, names),
        "ledger": lambda: check_ledger(settings, names) + check_order(settings, names),
        "aggregators": partial(check_aggregators, settings, seed, names, small=scope == "quick"),
        "hostile": partial(check_hostile, settings, names),
    }
    if federation or every:
        makers["federation"] = partial(check_processes, settings)
    elif names is None:
        covered.left_out.append("real processes and their logs (--all, or --federation)")
    chosen = [maker for group, maker in makers.items() if group in groups]
    checks: list[Check] = []
    for i, maker in enumerate(chosen):
        if progress:
            progress(i, len(chosen))
        checks += maker()
    if progress:
        progress(len(chosen), len(chosen))
    covered.left_out += [f"{check.name}: {check.found}" for check in checks if check.skipped]
    return checks


def _combinations(
    settings: Settings, names: Names, scope: Scope, coverage: Coverage
) -> list[Check]:
    checks, covered = check_combinations(settings, scope, names)
    for what, values in covered.table().items():
        coverage.add(what, values)
    coverage.left_out += covered.left_out
    return checks


def _mechanism(
    settings: Settings, seed: int, names: Names, scope: Scope, coverage: Coverage
) -> list[Check]:
    """The checks of all paths, merged by name; the path with the most power comes first."""
    found = check_draws(settings, seed, names)
    for path in paths(scope) if names is None or names & CHECKS.keys() else ():
        coverage.add(
            f"puppets {path.mechanism.name}", f"{path.rounds} rounds of {path.length:,} numbers"
        )
        found += [
            (path.mechanism.name, check)
            for check in check_mechanism(
                path.mechanism,
                settings,
                seed=seed,
                rounds=path.rounds,
                length=path.length,
                names=names,
            )
        ]
    found += check_rows(settings, seed, names)
    return merged(found)


@dataclass(frozen=True)
class Audit:
    """The verdict of an audit, with the bounds and checks that it is based on."""

    claimed_epsilon: float
    lower_bound: float
    confidence: float
    passed: bool
    delta: float
    method: Method
    runs: int
    mechanism: str
    settings: Settings
    clients: int
    noise_multiplier: float
    many_runs: ManyRuns | None
    one_run: OneRun | None
    checks: tuple[Check, ...]
    coverage: tuple[tuple[str, str], ...] = ()
    """What was covered, as rows of a table."""
    left_out: tuple[str, ...] = ()
    """What was left out, and why."""
    false_alarms: float = 0.0
    """Upper bound on the chance that the checks fail correct code."""
    code: str = ""
    """A SHA-256 of the audited code."""

    def to_dict(self) -> dict[str, object]:
        """All fields but the single scores, ready for JSON."""
        s = self.settings
        found: dict[str, object] = {
            "claimed_epsilon": self.claimed_epsilon,
            "lower_bound": self.lower_bound,
            "confidence": self.confidence,
            "passed": self.passed,
            "delta": self.delta,
            "runs": self.runs,
            "method": self.method,
            "mechanism": self.mechanism,
            "clients": self.clients,
            "clients_per_round": s.clients_per_round,
            "rounds": s.rounds,
            "clip_norm": s.clip_norm,
            "accountant": s.accountant,
            "noise_multiplier": self.noise_multiplier,
            "unit": "one client",
            "neighbouring": "add or remove one client",
            "coverage": [list(row) for row in self.coverage],
            "left_out": list(self.left_out),
            "false_alarms": self.false_alarms,
            "code": self.code,
            "many_runs": None,
            "one_run": asdict(self.one_run) if self.one_run else None,
            "checks": [asdict(check) for check in self.checks],
        }
        if self.many_runs:
            m = self.many_runs
            found["many_runs"] = {
                "lower_bound": m.lower_bound,
                "direct": m.direct,
                "gaussian_approximation": m.gaussian,
                "mu": m.mu,
                "false_positive_rate_at_most": m.errors.false_positive,
                "false_negative_rate_at_most": m.errors.false_negative,
                "threshold": m.threshold,
            }
        return found


def audit(
    settings: Settings,
    clients: int,
    *,
    mechanism: Mechanism | None = None,
    method: Method = "many-runs",
    runs: int = 3000,
    confidence: float = 0.99,
    seed: int = 0,
    length: int = MANY_RUNS_LENGTH,
    checks: tuple[Group, ...] = GROUPS,
    federation: bool = False,
    scope: Scope = "quick",
    progress: Progress | None = None,
) -> Audit:
    """Audit a mechanism (by default a training in one process) against its claim.

    Half of the `runs` trainings have the canary. All bounds hold together at `confidence`. The
    checks of the chosen groups cover all of the deployed code, whatever the mechanism; with
    `federation` also a federation on real processes. The audit passes if no bound exceeds the
    claimed ε and no check failed.
    """
    _check_arguments(settings, clients, method, runs, confidence)
    chosen = mechanism or EngineMechanism()
    bounds = {"many-runs": 2, "one-run": 1, "both": 3}[method]
    level = (1 - confidence) / bounds
    many = one = None
    if method != "one-run":
        many = many_runs(
            chosen,
            settings,
            clients,
            runs=runs,
            level=level,
            seed=seed,
            length=length,
            progress=progress,
        )
    if method != "many-runs":
        one = one_run(chosen, settings, clients, level=level, seed=seed)
    coverage, before = Coverage(scope), alarms.tests
    found = tuple(
        run_checks(
            settings,
            seed=seed,
            groups=checks,
            federation=federation,
            scope=scope,
            coverage=coverage,
        )
        if checks
        else ()
    )
    measured = [one.lower_bound] if one else []
    if many:
        measured += [many.lower_bound, many.direct]
    bound = max(measured)
    trial = make_trial(settings, clients, length, present=False)
    return Audit(
        claimed_epsilon=settings.epsilon,
        lower_bound=bound,
        confidence=confidence,
        passed=bound <= settings.epsilon and all(check.passed for check in found),
        delta=settings.delta,
        method=method,
        runs=(many.runs if many else 0) + (1 if one else 0),
        mechanism=chosen.name,
        settings=settings,
        clients=clients,
        noise_multiplier=trial.claim.noise_multiplier,
        many_runs=many,
        one_run=one,
        checks=found,
        coverage=tuple(coverage.rows),
        left_out=tuple(coverage.left_out),
        false_alarms=(alarms.tests - before) * LEVEL,
        code=code_digest(),
    )


def code_digest() -> str:
    """A SHA-256 over the names and contents of all source files of the installed package."""
    root = Path(__file__).resolve().parents[1]
    sha = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        sha.update(f"{path.relative_to(root).as_posix()}\n".encode() + path.read_bytes())
    return sha.hexdigest()


def _check_arguments(
    settings: Settings, clients: int, method: str, runs: int, confidence: float
) -> None:
    if not settings.private:
        raise EpifedError("epsilon: found inf; expected a finite claim to audit")
    if method not in METHODS:
        raise EpifedError(f"method: found '{method}'; expected one of {', '.join(METHODS)}")
    if not 1 <= settings.clients_per_round <= clients:
        raise EpifedError(
            f"clients_per_round: found {settings.clients_per_round} of {clients} clients; "
            "expected at most all of them"
        )
    if runs < LEAST_RUNS:
        raise EpifedError(f"runs: found {runs}; expected at least {LEAST_RUNS}")
    if not 0.5 <= confidence < 1:
        raise EpifedError(f"confidence: found {confidence}; expected from 0.5 to below 1")
