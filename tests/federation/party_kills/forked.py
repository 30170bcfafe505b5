"""All parties in one process, which is forked and killed at every point of a round in turn.

A program of its own: what is forked must not have used Polars, whose threads a fork loses.
"""

import importlib
import os
import pickle
import signal
import sys
from pathlib import Path
from typing import Any

from epifed.federation import aggregator as aggregators
from epifed.federation import site
from epifed.federation.server import Order, read_state
from epifed.ledger.budget import Cap
from epifed.ledger.ledger import Ledger
from tests.federation.helpers import plan, settings_of
from tests.federation.parties import Parties, spent
from tests.federation.party_kills.points import POINTS, WHEN

FORKED = [
    (*point, when, call)
    for role, points in POINTS.items()
    for point in points
    for when in WHEN
    for call in ((0,) if role == "server" else (0, 2, 3))
]
"""Where forked parties die; a party's point is passed by two sites, then two aggregators."""


def _made(folder: Path) -> Parties:
    """Kits, made in another process, which hands over the roster: to read one takes Polars."""
    pid, kept = os.fork(), folder / "roster.pickle"
    if pid == 0:
        kept.write_bytes(pickle.dumps(Parties.make(folder, 2).federation))
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    return Parties(folder, pickle.loads(kept.read_bytes()))


def _killed(parties: Parties, wanted: Order, ledger: Path, point: tuple[Any, ...]) -> int:
    """A process that plays until it is killed at a point; its exit status."""
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    try:
        module, kind, method, when, calls = point
        owner = getattr(importlib.import_module(module), kind)
        original, passed = getattr(owner, method), [0]

        def killing(self: Any, *args: Any) -> Any:
            due = passed[0] == calls
            passed[0] += 1
            if due and when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            result = original(self, *args)
            if due:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        setattr(owner, method, killing)
        training = parties.training(wanted, Ledger(ledger))
        while not training.finished:
            training.play(parties, lambda _: None)
    finally:
        os._exit(1)


def main(folder: Path, turns: int) -> None:
    """Kill at every point, so many times, and look at every book after each."""
    deaths = FORKED * turns
    ledger = folder / "budget.ledger"
    Ledger.create(ledger, Cap(1e6, 1e-5, "rdp"))
    parties = _made(folder)
    chosen = {"rounds": len(deaths), "epsilon": 4.0, "noise": "aggregators"}
    wanted = plan("killed", settings_of("trend", **chosen), seeded=False)
    books = [
        *(parties.kit(name) / aggregators.LEDGER for name in ("sum-1", "sum-2")),
        *(parties.kit(name) / site.LEDGER for name in ("site-1", "site-2")),
    ]
    for point in deaths:
        assert os.WIFSIGNALED(_killed(parties, wanted, ledger, point)), point
        found = read_state(folder / "trainings" / "killed")
        done = found[0] if found else 0
        for book in (ledger, *books):
            assert done <= spent(book) <= done + 1, (point, book)
    training = parties.training(wanted, Ledger(ledger))
    while not training.finished:
        training.play(parties, lambda _: None)
    release = training.finish()
    assert (training.done, training.paid) == (len(deaths), len(deaths))
    assert {spent(book) for book in (ledger, *books)} == {len(deaths)}
    assert abs(release.epsilon - training.epsilon) < 1e-9
    print(len(deaths))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
