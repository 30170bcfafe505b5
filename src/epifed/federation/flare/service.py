"""A site as a service: FLARE's client, the file of the day, and the week's own forecast.

The client runs on a leash; what the office makes of a week runs in a process of its own, so that
whatever happens there, a fault, too much memory, no end, no training notices.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from epifed.federation.answers import MODELS
from epifed.federation.flare.engine_patches import LEASH
from epifed.federation.flare.parties import Command
from epifed.federation.site import ASKED, FETCHED, Fetch, Source

LOOK = 2.0
"""Seconds between two looks at what has changed."""
SETTLED = 5.0
"""Seconds that nothing has changed before something is made of it: a file may be half copied."""
AGAIN = 6 * 3600.0
"""Seconds after which the office looks again though nothing has changed: data grow old."""
LONGEST = 1800.0
"""Seconds that the office may take for a week."""
ENDING = 20.0
"""Seconds that the client may take for its end."""

Say = Callable[[str], object]


@dataclass
class Service:
    """A site that is left alone until it is stopped."""

    kit: Path
    client: Command
    office: tuple[str, ...]
    """The program that makes the week's folder: exit code 0, or 1 if there is a problem."""
    say: Say
    fetch: Fetch | None = None
    every: float = 3600.0
    """Seconds from one run of the command to the next."""
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> int:
        """Run until a signal, or until the client ends: the exit code."""
        self._catch()
        environment = {**self.client.environment, LEASH: str(os.getpid())}
        client = subprocess.Popen(self.client.arguments, env=environment, stdin=subprocess.PIPE)
        threads = [threading.Thread(target=self._update_site, daemon=True)]
        if self.fetch is not None:
            threads.append(threading.Thread(target=self._fetch, daemon=True))
        for thread in threads:
            thread.start()
        try:
            while client.poll() is None and not self._stop.wait(1):
                pass
        except KeyboardInterrupt:
            pass
        stopped = client.poll() is None
        self._stop.set()
        if stopped:
            client.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                client.wait(ENDING)
            client.kill()
        for thread in threads:
            thread.join(ENDING)
        code = client.wait()
        return 0 if stopped else code or 1

    def _catch(self) -> None:
        def asked(number: int, frame: FrameType | None) -> None:
            del number, frame
            self._stop.set()

        signal.signal(signal.SIGTERM, asked)

    def _fetch(self) -> None:
        """Have the command make the file again and again."""
        assert self.fetch is not None
        while not self._stop.wait(max(0.0, self.every - self.fetch.age())):
            if problem := self.fetch.run(lambda: not self._stop.is_set()):
                self.say(f"the command for the data failed: {problem}")

    def _update_site(self) -> None:
        """Have the office look whenever something has changed."""
        done, seen, since, at = None, None, 0.0, 0.0
        while True:
            now, changed = time.monotonic(), self._signature()
            if changed != seen:
                seen, since = changed, now
            old = done is not None and now - at > AGAIN
            if (old or seen != done) and (done is None or now - since >= SETTLED):
                self._office()
                # What the office itself wrote is no reason to look again.
                done, at = seen, time.monotonic()
            if self._stop.wait(LOOK):
                return

    def _office(self) -> None:
        started = subprocess.Popen(self.office, stdin=subprocess.DEVNULL)
        until = time.monotonic() + LONGEST
        while started.poll() is None and time.monotonic() < until and not self._stop.is_set():
            with contextlib.suppress(subprocess.TimeoutExpired):
                started.wait(1)
        if started.poll() is None:
            started.kill()
            if not self._stop.is_set():
                self.say(f"the week's report was given up after {LONGEST:g} seconds")
        elif started.returncode not in (0, 1):
            self.say(f"the week's report failed (exit code {started.returncode})")
        started.wait()

    def _signature(self) -> Any:
        """What the office would look at, by the time and size of each file."""
        try:
            data = Path(Source.of(self.kit).path)
        except (OSError, ValueError, TypeError):
            return None
        inside = sorted(data.iterdir()) if data.is_dir() else []
        models = sorted((self.kit / MODELS).glob("*.epifed"))
        paths = (data, *inside, *models, self.kit / ASKED, self.kit / FETCHED)
        return [(str(path), _stamp(path)) for path in paths]


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def office_command(kit: Path, out: Path, model_name: str) -> tuple[str, ...]:
    """The program that makes the week's folder of a kit."""
    words = ("federation", "report", "--kit", str(kit), "--out", str(out))
    return (sys.executable, "-m", "epifed", *words, "--model-name", model_name)
