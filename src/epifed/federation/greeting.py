"""Which messages a party understands, said before a round waits for it and before one is paid for.

A protocol is a number for all that parties exchange: tasks, answers, the names of settings, the
release file. It goes up when any of that changes; `OLDEST` is the oldest that is still spoken.
Neighbouring versions have one in common and go on together; others are told apart here.
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from epifed.errors import EpifedError
from epifed.files import write_text
from epifed.words import counted

PROTOCOL, OLDEST = 2, 1
"""1: nobody said a number. 2: it is said in the greeting."""
HEARD = "greeting.json"
"""What a site remembers of the server."""
_VERSION = re.compile(r"[0-9A-Za-z.+-]{1,40}")


@dataclass(frozen=True)
class Spoken:
    """From which protocol to which a party speaks, and its version of epifed."""

    oldest: int
    newest: int
    epifed: str

    @classmethod
    def own(cls) -> "Spoken":
        """What this installation speaks."""
        return cls(OLDEST, PROTOCOL, version("epifed"))

    @classmethod
    def of(cls, about: Mapping[str, Any]) -> "Spoken":
        """What a greeting says. One without a number is of the first protocol.

        >>> Spoken.of({}), Spoken.of({"protocol": [2, 3], "epifed": "0.4.0"})
        (Spoken(oldest=1, newest=1, epifed='unknown'), Spoken(oldest=2, newest=3, epifed='0.4.0'))
        """
        said, named = about.get("protocol", [1, 1]), about.get("epifed")
        known = isinstance(named, str) and _VERSION.fullmatch(named)
        epifed = str(named) if known else "unknown"
        if isinstance(said, list) and len(said) == 2 and all(type(n) is int for n in said):
            return cls(said[0], said[1], epifed)
        return cls(0, 0, epifed)

    @property
    def about(self) -> dict[str, Any]:
        """As a greeting says it."""
        return {"protocol": [self.oldest, self.newest], "epifed": self.epifed}

    def understands(self, other: "Spoken") -> bool:
        """Whether both speak some protocol."""
        return max(self.oldest, other.oldest) <= min(self.newest, other.newest)

    def __str__(self) -> str:
        """In words."""
        return f"epifed {self.epifed} (protocols {self.oldest} to {self.newest})"


def foreign(spoken: Mapping[str, Spoken]) -> dict[str, Spoken]:
    """The parties that this server does not understand."""
    own = Spoken.own()
    return {name: said for name, said in spoken.items() if not own.understands(said)}


def refuse_foreign(
    others: Mapping[str, Spoken], needed: Collection[str], left: int, least: int
) -> None:
    """Refuse a training, before it is paid for, that too few parties would understand.

    `needed` must all take part, and of those that are `left` at least so many.
    """
    missing = sorted(others.keys() & set(needed))
    if missing or (others and left < least):
        name = missing[0] if missing else min(others)
        expected = "every aggregator" if missing else f"at least {counted(least, 'site')}"
        raise EpifedError(
            f"'{name}' runs {others[name]} and this server {Spoken.own()}, which do not understand "
            f"each other; expected {expected} of a neighbouring version; nothing was spent"
        )


def hear(kit: Path, about: Mapping[str, Any]) -> Spoken:
    """What the server said in its greeting, remembered for `epifed federation check`."""
    said = Spoken.of(about)
    when = datetime.now(UTC).isoformat(timespec="seconds")
    write_text(kit / HEARD, json.dumps(said.about | {"time": when}))
    return said


def heard(kit: Path) -> tuple[Spoken, str] | None:
    """What the server said last, and when; none before the first training."""
    try:
        about = json.loads((kit / HEARD).read_text(encoding="utf-8"))
        return Spoken.of(about), str(about["time"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
