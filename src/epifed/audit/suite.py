"""All checks of the deployed code, in groups: what `epifed audit` runs beside its statistics."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from epifed.audit.checks import CHECKS, LENGTH, ROUNDS, check_mechanism
from epifed.audit.content_checks import check_contents
from epifed.audit.core_checks import check_draws, check_rows
from epifed.audit.findings import GROUPS, Check, Group, Names, merged
from epifed.audit.generator_checks import check_generator
from epifed.audit.label_checks import check_labels
from epifed.audit.learner_checks import check_learners
from epifed.audit.ledger_checks import check_ledger
from epifed.audit.mechanisms import EngineMechanism, Mechanism
from epifed.audit.processes import check_processes
from epifed.audit.sealed_checks import check_aggregators
from epifed.audit.served import ServedMechanism
from epifed.settings import Settings

Report = Callable[[int, int], None]


@dataclass(frozen=True)
class Path:
    """A deployed path and the size of the trainings that are run on it."""

    mechanism: Mechanism
    rounds: int
    length: int


PATHS = (
    Path(EngineMechanism(), ROUNDS, LENGTH),
    Path(EngineMechanism(secure=True), ROUNDS, 64),
    Path(ServedMechanism(), 80, 128),
    Path(ServedMechanism(secure=True), 24, 96),
)
"""Both transports, seeded and secure. The last are slow: they write every round to the disk."""


def run_checks(
    settings: Settings,
    *,
    seed: int = 0,
    groups: tuple[Group, ...] = GROUPS,
    names: Names = None,
    federation: bool = False,
    progress: Report | None = None,
) -> list[Check]:
    """All checks of these groups, or those named; with `federation` on real processes too."""
    makers: dict[Group, Callable[[], list[Check]]] = {
        "mechanism": partial(_mechanism, settings, seed, names),
        "learners": partial(check_learners, settings, names),
        "randomness": partial(check_generator, settings, seed, names),
        "files": partial(check_contents, settings, names),
        "labels": partial(check_labels, settings, names),
        "ledger": partial(check_ledger, settings, names),
        "aggregators": partial(check_aggregators, settings, seed, names),
    }
    if federation:
        makers["federation"] = partial(check_processes, settings)
    chosen = [maker for group, maker in makers.items() if group in groups]
    found: list[Check] = []
    for i, maker in enumerate(chosen):
        if progress:
            progress(i, len(chosen))
        found += maker()
    if progress:
        progress(len(chosen), len(chosen))
    return found


def _mechanism(settings: Settings, seed: int, names: Names) -> list[Check]:
    """The checks of all paths, each check once; the path with the most power comes first."""
    found = check_draws(settings, seed, names)
    for path in PATHS:
        if names is not None and not names & CHECKS.keys():
            break
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
