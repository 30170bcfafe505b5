"""A call that hangs is given up; what it would have said or raised otherwise comes through."""

import sys
import threading
from typing import Any

import pytest

from epifed.errors import EpifedError
from epifed.federation.flare import jobs
from epifed.federation.flare.jobs import Desk, look
from epifed.federation.flare.watchdog import Alive, HungError, watched


def test_a_call_that_never_returns_is_given_up_and_its_thread_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stuck, ended = threading.Event(), threading.Event()

    def hanging(alive: Alive) -> None:
        alive()
        monkeypatch.setattr(sys, "stdout", None)
        stuck.wait()
        try:
            alive()
        finally:
            ended.set()

    before = sys.stdout
    with pytest.raises(HungError, match=r"0\.3 seconds"):
        watched(hanging, 0.3)
    assert sys.stdout is before
    stuck.set()
    assert ended.wait(5)


def test_signs_of_life_keep_a_long_call_going() -> None:
    def long(alive: Alive) -> int:
        for _ in range(8):
            threading.Event().wait(0.1)
            alive()
        return 8

    assert watched(long, 0.4) == 8


def test_what_a_call_says_and_raises_comes_through() -> None:
    assert watched(lambda _: {"round": 3}, 5) == {"round": 3}

    def failing(_: Alive) -> None:
        raise ConnectionError("away")

    with pytest.raises(ConnectionError, match="away"):
        watched(failing, 5)


def test_a_status_that_never_comes_is_said_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(jobs, "HUNG", 0.2)
    monkeypatch.setattr(Desk, "session", lambda self: threading.Event().wait(2))
    with pytest.raises(EpifedError, match=r"has not answered for 0\.2 seconds"):
        look(Desk(tmp_path))
