"""Connections that never shake hands: dropped by the server, and by the documented proxy before it.

Makefile's target `haproxy` installs the proxy where that is possible.
"""

import json
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from epifed.rehearsal.local import LocalFederation, free_port, rehearsal_federation
from tests.federation.helpers import all_run, panel, plan, settings_of
from tests.waiting import GUARD, wait_for

pytestmark = pytest.mark.field

IDLE = 1500
FEW = 100
"""More connections than two sites, their workers and the coordinator have."""
ELSEWHERE = "127.0.0.2"
"""Another address than the sites' from which the idle connections come."""
CONFIG = Path(__file__).parents[2] / "docs" / "proxy" / "haproxy.cfg"


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalFederation]:
    """A federation that is not yet started."""
    roster = rehearsal_federation(panel(), 2, round_timeout=GUARD)
    with LocalFederation.make(tmp_path, roster, panel()) as made:
        yield made


@contextmanager
def _idle(port: int) -> Iterator[list[socket.socket]]:
    """Connections on which nobody says a word; so many reach the server at once that they count."""
    most = 0
    with ExitStack() as stack:
        made = []
        for number in range(IDLE):
            one = socket.create_connection(("127.0.0.1", port), GUARD, (ELSEWHERE, 0))
            made.append(stack.enter_context(one))
            if number % 50 == 49:
                most = max(most, _reaching(port))
        assert most > FEW, "what the proxy keeps away"
        yield made


@contextmanager
def _insisting(port: int) -> Iterator[list[int]]:
    """As many idle connections, each made again when it is dropped; the list counts all of them."""
    made: list[int] = []
    end = threading.Event()

    def insist() -> None:
        kept: list[socket.socket] = []
        while not end.is_set():
            kept = _kept(kept)
            while len(kept) < IDLE and not end.is_set():
                with suppress(OSError):
                    kept.append(
                        socket.create_connection(("127.0.0.1", port), GUARD, (ELSEWHERE, 0))
                    )
                made.append(1)
            end.wait(1)
        for one in kept:
            one.close()

    thread = threading.Thread(target=insist)
    thread.start()
    try:
        yield made
    finally:
        end.set()
        thread.join()


def _open(connections: list[socket.socket]) -> int:
    """How many of them the other side has not ended."""
    still = 0
    for connection in connections:
        connection.setblocking(False)
        try:
            still += connection.recv(1) != b""
        except BlockingIOError:
            still += 1
        except OSError:
            pass
    return still


def _kept(connections: list[socket.socket]) -> list[socket.socket]:
    """Those that are still open; the others are put away."""
    kept = []
    for connection in connections:
        if _open([connection]):
            kept.append(connection)
        else:
            connection.close()
    return kept


def _reaching(port: int) -> int:
    """How many connections to a port of this machine are established, at the port's side."""
    tables = [Path("/proc/net/tcp"), Path("/proc/net/tcp6")]
    rows = [row.split() for t in tables if t.exists() for row in t.read_text().splitlines()[1:]]
    return sum(row[1].endswith(f":{port:04X}") and row[3] == "01" for row in rows)


def _trains(local: LocalFederation, name: str) -> None:
    status = local.train(plan(name, settings_of("one-shot", epsilon=2.0)))
    assert status["finished"]
    assert status["delivered"] == ["site-1", "site-2"]
    assert [line["problems"] for line in status["lines"]] == [[]]  # type: ignore[attr-defined]


def test_connections_that_do_not_shake_hands_are_dropped_and_the_training_goes_on(
    local: LocalFederation,
) -> None:
    local.start()
    with _idle(local.federation.server.port) as connections:
        wait_for(lambda: not _open(connections), "their end", partial(all_run, local), every=0.5)
        _trains(local, "idle")


@pytest.mark.skipif(shutil.which("haproxy") is None, reason="haproxy is not installed")
def test_the_documented_proxy_keeps_idle_connections_from_the_server(
    local: LocalFederation, tmp_path: Path
) -> None:
    port, server = free_port(), local.federation.server
    config = CONFIG.read_text().replace("0.0.0.0:8002", f"127.0.0.1:{port}")
    (tmp_path / "haproxy.cfg").write_text(
        config.replace("10.0.0.2:8002", f"127.0.0.1:{server.port}")
    )
    for site in local.federation.sites:
        path = local.kit(site.name) / "startup" / "fed_client.json"
        values = json.loads(path.read_text())
        values["servers"][0]["service"]["target"] = f"localhost:{port}"
        path.write_text(json.dumps(values))
    path = local.desk.kit / "startup" / "fed_admin.json"
    values = json.loads(path.read_text())
    values["admin"]["port"] = port
    path.write_text(json.dumps(values))
    proxy = subprocess.Popen(["haproxy", "-db", "-f", str(tmp_path / "haproxy.cfg")])
    try:
        local.start()
        with _insisting(port) as made:
            _trains(local, "proxied")
            reached = _reaching(server.port)
            wait_for(
                lambda: len(made) > IDLE, "connections that come back", partial(all_run, local)
            )
        assert 0 < reached < FEW
    finally:
        proxy.terminate()
        proxy.wait()
