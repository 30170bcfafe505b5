"""A bad network: slow, narrow, half open, cut. The tool, and trainings through it."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from epifed.federation.flare import jobs
from epifed.federation.server import Order
from epifed.learners.base import Vector
from epifed.ledger.budget import Cap
from epifed.ledger.ledger import Ledger
from epifed.rehearsal.local import LocalFederation, rehearsal_federation
from epifed.settings import Settings
from epifed.training.loop import train
from epifed.training.release import read_release
from tests.commands import PRELOADED
from tests.federation.helpers import Training, panel, plan, settings_of, silenced, view_of
from tests.federation.proxy import Proxy
from tests.waiting import GUARD

pytestmark = pytest.mark.field

FAR = "site-3"
"""The site with a network of its own; the others share one."""
SLOW = 0.05
"""Seconds that a byte takes from the far site, or to it."""
WAITS = 120.0
"""Seconds that a round waits for an answer: a thousand times what one takes."""
ROUNDS = 16
LARGE = 1e6
"""An ε that asks for so little noise that a client who is missing is seen."""
DRAWS = 40
"""Simulated trainings, each with noise of its own."""
FAR_OFF = 8.0
"""Deviations of its noise by which a state may be off: Student's t with 39 degrees is beyond it
with a chance of 1e-9 in each of two numbers. A site that is missing in one round makes over 14."""


@pytest.fixture
def echo() -> Iterator[int]:
    """A port that says back what it is told."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    one, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=answer, args=(one,), daemon=True).start()

        def answer(one: socket.socket) -> None:
            with one:
                while data := one.recv(1 << 16):
                    one.sendall(data)

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]


def _said_back(connection: socket.socket, data: bytes) -> float:
    """Seconds until all of it came back."""
    began = time.monotonic()
    connection.sendall(data)
    found = b""
    while len(found) < len(data):
        part = connection.recv(1 << 16)
        assert part, "cut"
        found += part
    assert found == data
    return time.monotonic() - began


def test_the_proxy_passes_delays_narrows_and_cuts(echo: int) -> None:
    with Proxy(echo) as proxy, socket.create_connection(("127.0.0.1", proxy.port), GUARD) as one:
        one.settimeout(GUARD)
        _said_back(one, b"x" * 100_000)
        assert (proxy.passed, proxy.open) == (200_000, 1)
        proxy.delay = 0.1
        assert _said_back(one, b"hello") >= 0.2
        proxy.delay, proxy.rate = 0.0, 50_000.0
        assert _said_back(one, b"x" * 20_000) >= 0.4
        proxy.rate, proxy.silent = None, True
        one.sendall(b"anybody?")
        one.settimeout(0.3)
        with pytest.raises(TimeoutError):
            one.recv(1)
        assert proxy.open == 1
        proxy.silent = False
        one.settimeout(GUARD)
        assert one.recv(8) == b"anybody?"
        proxy.cut()
        with pytest.raises((ConnectionError, AssertionError)):
            _said_back(one, b"x")
        proxy.refusing = True
        with (
            pytest.raises((ConnectionError, AssertionError)),
            socket.create_connection(("127.0.0.1", proxy.port), GUARD) as other,
        ):
            _said_back(other, b"x")


@dataclass
class Networked:
    """A federation that is running, and the networks of its sites."""

    local: LocalFederation
    near: Proxy
    far: Proxy

    def train(self, name: str, rounds: int = ROUNDS) -> tuple[Training, Order]:
        """Begin a training in which everybody is drawn, in one job."""
        wanted = plan(name, _settings(rounds), seeded=False)
        return Training(self.local, wanted), wanted

    def clean(self, training: Training) -> int:
        """Wait for a round in which nobody was without; its number."""

        def found() -> list[int]:
            return [n for n, sites in self.report(training.wanted).items() if not sites]

        training.until(lambda: bool(found()), "a round with everybody")
        return max(found())

    def report(self, wanted: Order) -> dict[int, list[str]]:
        """By round, the sites that were without; each round once."""
        path = self.local.training_folder(wanted) / "report.jsonl"
        text = path.read_text() if path.exists() else ""
        lines = [json.loads(line) for line in text.splitlines()]
        assert [line["round"] for line in lines] == [*range(1, len(lines) + 1)]
        return {line["round"]: [one["site"] for one in line["problems"]] for line in lines}

    def runs(self, ledger: Path, wanted: Order) -> list[Any]:
        return [r for r in Ledger(ledger).book().runs.values() if r.training == wanted.training]

    def check(self, wanted: Order, status: dict[str, Any]) -> None:
        """Every round was paid once, everybody has the release, and it is what was answered."""
        assert status["finished"]
        assert status["missing"] == []
        assert len(self.report(wanted)) == wanted.settings.rounds
        assert self.local.ledger is not None
        model = read_release(self.local.kit("site-1") / "models" / f"{wanted.training}.epifed")
        own = [self.local.kit(site.name) / "site.ledger" for site in self.local.federation.sites]
        without = self.report(wanted)
        for ledger in (self.local.ledger, *own):
            (run,) = self.runs(ledger, wanted)
            silent = sum(ledger.parent.name in sites for sites in without.values())
            assert wanted.settings.rounds - silent <= run.spent <= wanted.settings.rounds
            assert (run.outcome, run.model_hash) == ("finished", model.sha256)
        regions = panel().regions
        rows = {
            number: [regions.index(c) for s in sites for c in self.local.federation.site(s).clients]
            for number, sites in self.report(wanted).items()
        }
        answered, spread = _simulated(wanted.settings, rows)
        assert _off(model.vector, answered, spread) < FAR_OFF


def _off(state: Vector, expected: Vector, spread: Vector) -> float:
    """How far growth or level is off, in deviations; behind them stands how well they are known."""
    return float((np.abs(state - expected)[:2] / spread[:2]).max())


def test_a_far_site_that_is_missing_in_one_round_would_be_seen() -> None:
    clients = rehearsal_federation(panel(), 3).site(FAR).clients
    everybody, spread = _simulated(_settings(), {})
    missing, _ = _simulated(_settings(), {1: [panel().regions.index(c) for c in clients]})
    assert _off(missing, everybody, spread) > 1.5 * FAR_OFF


def _settings(rounds: int = ROUNDS) -> Settings:
    """Everybody is drawn."""
    return settings_of("trend", rounds=rounds, epsilon=LARGE, clients_per_round=12)


def _simulated(settings: Settings, rows: dict[int, list[int]]) -> tuple[Vector, Vector]:
    """A training in one process without these answers: mean and deviation over its own noise."""
    seeds = [settings.model_copy(update={"seed": seed}) for seed in range(DRAWS)]
    states = [train(view_of(one), one, learner=silenced(one, rows)).vector for one in seeds]
    return np.asarray(np.mean(states, axis=0)), np.asarray(np.std(states, axis=0, ddof=1))


@pytest.fixture(scope="module")
def networked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Networked]:
    folder = tmp_path_factory.mktemp("network")
    ledger = folder / "budget.ledger"
    Ledger.create(ledger, Cap(1e7, 1e-5, "rdp"))
    roster = rehearsal_federation(
        panel(),
        3,
        rounds_per_job=20,
        round_timeout=WAITS,
        terms={"epsilon_per_release": 1e6, "epsilon_total": 1e7},
    )
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(jobs, "REJOIN", GUARD)  # all sites come back, however late
        local = stack.enter_context(
            LocalFederation.make(folder, roster, panel(), ledger, PRELOADED)
        )
        near = stack.enter_context(Proxy(roster.server.port))
        far = stack.enter_context(Proxy(roster.server.port, delay=SLOW))
        for site in roster.sites:
            path = local.kit(site.name) / "startup" / "fed_client.json"
            values = json.loads(path.read_text())
            port = far.port if site.name == FAR else near.port
            values["servers"][0]["service"]["target"] = f"localhost:{port}"
            path.write_text(json.dumps(values))
        local.start()
        yield Networked(local, near, far)


def test_a_site_that_is_slow_cut_and_half_open_stops_nobody(networked: Networked) -> None:
    training, wanted = networked.train("far")
    began = networked.clean(training)
    for _ in range(2):
        networked.far.cut()
        training.until_round(training.done() + 2)
    assert networked.far.cuts
    back = networked.clean(training)
    assert back > began, "what a cut had lost was not asked for again"
    silent = training.done()
    networked.far.silent = True
    training.until_round(ROUNDS)
    networked.far.silent = False
    networked.check(wanted, training.finished())
    without = networked.report(wanted)
    assert {site for n, sites in without.items() if n > began for site in sites} == {FAR}
    assert all(without[n] == [FAR] for n in range(silent + 2, ROUNDS + 1))


def test_a_training_that_nobody_comes_to_says_so_and_begins_when_they_do(
    networked: Networked,
) -> None:
    networked.near.silent = networked.far.silent = True
    training, wanted = networked.train("late", 2)
    said = "the server waits for 1 site, or for an earlier job to end"
    training.until(lambda: {"waiting": said} in training.told, "a word")
    networked.near.silent = networked.far.silent = False
    assert training.finished()["missing"] == []
    assert networked.report(wanted) == {1: [], 2: []}


def test_rounds_are_not_spent_while_nobody_can_be_reached(networked: Networked) -> None:
    training, wanted = networked.train("nobody")
    networked.clean(training)
    networked.near.silent = networked.far.silent = True
    training.until(lambda: any("waiting" in one for one in training.told), "a wait")
    networked.near.silent = networked.far.silent = False
    networked.check(wanted, training.finished())
    without = networked.report(wanted)
    assert not any(len(sites) == 3 for sites in without.values())
