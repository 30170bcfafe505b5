"""Keeps the newest state of a federation at hand, so that no request has to wait for it.

Files are looked at again and again in one thread, the server is asked in another: what it says may
take a minute, and the page must not.
"""

import hashlib
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from epifed.dashboard.metrics import exposition
from epifed.errors import EpifedError
from epifed.federation.overlook import Beside, Places, look_over
from epifed.federation.overview import Live, Overview

ROOT = "root"
"""What the root certificate is called among those of the parties."""
ANSWERED = 60.0
"""Seconds after which certificates are read again."""


@dataclass(frozen=True)
class Snapshot:
    """The state as it is handed out."""

    overview: Overview
    state: bytes
    tag: str
    metrics: bytes

    @classmethod
    def of(cls, overview: Overview, seconds: float) -> "Snapshot":
        """The state as JSON and as metrics; the look at it took so many seconds."""
        state = overview.model_dump_json().encode()
        tag = hashlib.sha256(state).hexdigest()[:32]
        return cls(overview, state, tag, exposition(overview, seconds))


class Watching:
    """Looks at a federation every few seconds until it is stopped."""

    def __init__(
        self,
        places: Places,
        ask: Callable[[], Live] | None,
        ends: Callable[[], dict[str, datetime]],
        every: float,
        ask_every: float,
    ) -> None:
        self._places, self._ask, self._ends = places, ask, ends
        self._every, self._ask_every = every, ask_every
        self._live = Live(asked=datetime.now(UTC), reached=False) if ask else None
        self._asked = False
        self._read: tuple[float, dict[str, datetime]] | None = None
        self._end = threading.Event()
        self._said: dict[str, str] = {}
        self.snapshot = self._look()

    def start(self) -> None:
        """Go on looking."""
        threading.Thread(target=self._go_on, daemon=True, name="looking").start()
        if self._ask:
            threading.Thread(target=self._listen, daemon=True, name="asking").start()

    def stop(self) -> None:
        """Look no more."""
        self._end.set()

    def _look(self) -> Snapshot:
        began = time.perf_counter()
        if self._read is None or began - self._read[0] > ANSWERED:
            self._read = began, self._ends()
        live = self._live if self._asked else None
        overview = look_over(self._places, Beside(live, self._read[1]))
        return Snapshot.of(overview, time.perf_counter() - began)

    def _go_on(self) -> None:
        while not self._end.wait(self._every):
            try:
                self.snapshot = self._look()
                self._said.pop("files", None)
            except (EpifedError, OSError) as error:  # the page says how old its state is
                self._say("files", str(error))

    def _listen(self) -> None:
        while self._ask is not None:
            try:
                self._live = _remembering(self._live, self._ask())
                self._said.pop("server", None)
            except Exception as error:  # FLARE's own have no common base
                away = Live(asked=datetime.now(UTC), reached=False)
                self._live = _remembering(self._live, away)
                self._say("server", str(error))
            self._asked = True
            if self._end.wait(self._ask_every):
                return

    def _say(self, what: str, sentence: str) -> None:
        """Tell the terminal, once as long as it stays the same."""
        if sentence != self._said.get(what):
            print(f"epifed: {sentence}", file=sys.stderr, flush=True)
        self._said[what] = sentence


def _remembering(before: Live | None, now: Live) -> Live:
    """What the server says now, with the versions that sites said when they were last greeted."""
    versions = (before.versions if before else {}) | now.versions
    return now.model_copy(update={"versions": versions})


def ask_server(kit: Path) -> Callable[[], Live]:
    """Asks the server with the coordinator's kit, as 'epifed federation status' does."""
    from epifed.federation.flare.jobs import Desk, look

    desk = Desk(kit)
    desk.name()

    def ask() -> Live:
        found = look(desk)
        running: dict[str, Any] = next((one for one in found["running"] if "training" in one), {})
        return Live(
            asked=datetime.now(UTC),
            reached=True,
            connected=tuple(found["connected"]),
            training=running.get("training"),
            round=running.get("round"),
            rounds=running.get("rounds"),
            versions=running.get("versions", {}),
        )

    return ask


def certificate_ends(kits: dict[str, Path]) -> Callable[[], dict[str, datetime]]:
    """Reads when the certificates of these kits end; a folder that is no kit has none."""
    from epifed.federation.flare.kits import certificate

    def read() -> dict[str, datetime]:
        found = {}
        for party, kit in kits.items():
            try:
                one = certificate(kit)
            except EpifedError:
                continue
            found[party] = one.expires
            found[ROOT] = one.root_expires
        return found

    return read
