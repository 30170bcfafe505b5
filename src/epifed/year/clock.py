"""A clock that jumps: who sleeps on it waits for no time, but for what happens in between."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from epifed.files import write_text

Action = Callable[[], bool]
"""Does something; says whether the schedule has to be started again after it."""
_APART = timedelta(seconds=1)


class RestartError(Exception):
    """The schedule must be started again, as its service would be."""


@dataclass
class Clock:
    """The time of a year, kept in a file, and what is to be done at which time."""

    path: Path
    time: datetime
    agenda: list[tuple[datetime, Action]] = field(default_factory=list)
    """In the order of their times, no two at the same."""

    @classmethod
    def at(cls, path: Path, beginning: datetime) -> "Clock":
        """A clock at its beginning, or where it stood when it was stopped."""
        said = path.read_text(encoding="utf-8").strip() if path.exists() else ""
        return cls(path, datetime.fromisoformat(said) if said else beginning)

    def enter(self, moment: datetime, action: Action) -> datetime:
        """Have something done at a time, or right after what is done then: when it will be."""
        while any(taken == moment for taken, _ in self.agenda):
            moment += _APART
        self.agenda.append((moment, action))
        self.agenda.sort(key=lambda entry: entry[0])
        return moment

    def forget_past(self) -> None:
        """What was to be done up to now has been done before."""
        self.agenda = [entry for entry in self.agenda if entry[0] > self.time]

    def now(self) -> datetime:
        """The time."""
        return self.time

    def sleep(self, seconds: float) -> None:
        """Go on by so many seconds, and do what is to be done until then."""
        self.until(self.time + timedelta(seconds=seconds))

    def until(self, moment: datetime) -> None:
        """Go on to a time, and do what is to be done until then.

        What is interrupted is done again from its beginning by the next clock of this file.
        """
        while self.agenda and self.agenda[0][0] <= moment:
            due, action = self.agenda[0]
            self.time = max(due, self.time)
            restart = action()
            self.agenda.pop(0)
            write_text(self.path, f"{self.time.isoformat()}\n")
            if restart:
                raise RestartError
        self.time = max(moment, self.time)
