"""The bad network of tests: slow, narrow, half open, cut."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.federation.proxy import Proxy


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
    with Proxy(echo) as proxy, socket.create_connection(("127.0.0.1", proxy.port), 10) as one:
        one.settimeout(10)
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
        one.settimeout(10)
        assert one.recv(8) == b"anybody?"
        proxy.cut()
        with pytest.raises((ConnectionError, AssertionError)):
            _said_back(one, b"x")
        proxy.refusing = True
        with (
            pytest.raises((ConnectionError, AssertionError)),
            socket.create_connection(("127.0.0.1", proxy.port), 10) as other,
        ):
            _said_back(other, b"x")
