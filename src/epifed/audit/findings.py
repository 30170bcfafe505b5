"""What a check finds: its name, what was expected, what was found, and what it would notice."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from time import process_time
from typing import Literal, get_args

Group = Literal[
    "mechanism",
    "combinations",
    "neighbours",
    "learners",
    "randomness",
    "files",
    "labels",
    "ledger",
    "aggregators",
    "hostile",
    "federation",
]
GROUPS: tuple[Group, ...] = get_args(Group)


Names = frozenset[str] | None
"""Which checks are wanted; none: all."""


@dataclass(frozen=True)
class Check:
    """One rule of the deployed code, and whether it was kept."""

    name: str
    passed: bool
    expected: str
    found: str
    group: Group = "mechanism"
    power: str = ""
    """Which deviation is found with which probability, of a check that is statistical."""
    seconds: float = 0.0
    skipped: bool = False
    """It could not be made here, for the reason in `found`; it decides nothing."""


Checking = Callable[[], Check]


def made(group: Group, checks: Mapping[str, Checking], names: Names = None) -> list[Check]:
    """The checks of a group, or those named, each with its seconds.

    Code that fails where it must not is a rule that is not kept.
    """
    found = []
    for name, checking in checks.items():
        if names is not None and name not in names:
            continue
        began = process_time()
        try:
            check = checking()
        except Exception as error:
            said = " ".join(str(error).split())
            check = Check(name, False, "no error", f"{type(error).__name__}: {said}")
        assert check.name == name, f"{check.name} is not {name}"
        found.append(replace(check, group=group, seconds=process_time() - began))
    return found


def merged(checks: Iterable[tuple[str, Check]]) -> list[Check]:
    """Checks of the same name on several paths as one: kept if it is on all of them."""
    by_name: dict[str, list[tuple[str, Check]]] = {}
    for path, check in checks:
        by_name.setdefault(check.name, []).append((path, check))
    found = []
    for same in by_name.values():
        broken = [(path, check) for path, check in same if not check.passed]
        path, shown = (broken or same)[0]
        more = len(same) - 1
        others = f" (and {more} other path{'s'[: more > 1]})" if more and not broken else ""
        found.append(
            replace(
                shown,
                found=f"{path}: {shown.found}{others}",
                power=same[0][1].power,
                seconds=sum(check.seconds for _, check in same),
            )
        )
    return found
