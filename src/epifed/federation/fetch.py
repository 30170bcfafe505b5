"""A command that produces a site's file of the day: bounded in time, its exit code looked at."""

import json
import math
import os
import shlex
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from epifed.errors import EpifedError
from epifed.files import write_text

FETCHED, TODAY = "fetched.json", "today.csv"
MOST_SAID = 300
"""Characters that are kept of what a command that failed said last."""


@dataclass(frozen=True)
class Fetched:
    """How the command went the last time."""

    time: str = ""
    problem: str = ""

    @classmethod
    def of(cls, kit: Path) -> "Fetched":
        """What a kit remembers; of a site without a command, nothing."""
        try:
            return cls(**json.loads((kit / FETCHED).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return cls()


@dataclass(frozen=True)
class Fetch:
    """A command, and the file that it writes or, without one, whose content it prints."""

    kit: Path
    command: str
    file: Path | None
    patience: float
    """Seconds that it may take."""

    @property
    def path(self) -> Path:
        """Where the site reads the file."""
        return self.file or self.kit / TODAY

    def age(self) -> float:
        """Seconds since it was last run."""
        try:
            return max(0.0, time.time() - (self.kit / FETCHED).stat().st_mtime)
        except OSError:
            return math.inf

    def run(self, goes_on: Callable[[], bool] = lambda: True) -> str:
        """Run the command once: what is wrong, or nothing.

        What it prints takes the place of the last file only if it ends with exit code 0; what it
        writes itself, it writes itself. Given up when `goes_on` says no.
        """
        problem = self._run(goes_on)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        write_text(self.kit / FETCHED, json.dumps({"time": now, "problem": problem}))
        return problem

    def _run(self, goes_on: Callable[[], bool]) -> str:
        printed, said = self.kit / f".{TODAY}.new", self.kit / f".{TODAY}.log"
        try:
            words = self.command if os.name == "nt" else shlex.split(self.command)
            with printed.open("wb") as out, said.open("wb") as log:
                # Files and no pipes: whatever it has started may hold those open for ever.
                started = subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, stdout=out, stderr=log, cwd=self.kit
                )
                code = _waited(started, self.patience, goes_on)
            if code is None:
                return f"found no end of it after {self.patience:g} seconds; expected one"
            if code:
                last = said.read_text(encoding="utf-8", errors="replace").strip()
                words_said = f": {last.splitlines()[-1][:MOST_SAID]}" if last else ""
                return f"found exit code {code}{words_said}; expected 0"
            if self.file is not None:
                return "" if self.file.exists() else f"{self.file}: not there; expected its file"
            if not printed.stat().st_size:
                return "found that it printed nothing; expected the file on standard output"
            printed.replace(self.path)
        except (OSError, ValueError) as error:
            return f"{error}; expected a command that can be run"
        finally:
            for left in (printed, said):
                left.unlink(missing_ok=True)
        return ""

    def first(self) -> None:
        """The first time, when a person looks on: refused where it fails. Later, nothing."""
        if math.isinf(self.age()) and (problem := self.run()):
            (self.kit / FETCHED).unlink(missing_ok=True)
            raise EpifedError(f"--command: {problem}")


def _waited(
    started: "subprocess.Popen[bytes]", patience: float, goes_on: Callable[[], bool]
) -> int | None:
    """The exit code of a process; none if it took too long, or is not wanted any more."""
    left = patience
    while left > 0 and goes_on():
        try:
            return started.wait(min(left, 1.0))
        except subprocess.TimeoutExpired:
            left -= 1.0
    started.kill()
    started.wait()
    return None
