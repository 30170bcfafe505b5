"""A job that hangs is given up; what it would have said or raised otherwise comes through."""

import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from epifed.engines.federation import jobs
from epifed.engines.federation.jobs import Desk, Watch
from tests.federation.helpers import plan
from tests.helpers import small_settings

DESK = Desk(Path("nowhere"))
PLAN = plan("hanging", small_settings(), simulation=True)


def watched(monkeypatch: pytest.MonkeyPatch, job: Any) -> dict[str, Any] | None:
    monkeypatch.setattr(jobs, "HUNG", 0.3)
    monkeypatch.setattr(jobs, "_one_job", job)
    return jobs._watched(DESK, None, PLAN, lambda _: None)  # type: ignore[arg-type]


def test_a_call_that_never_returns_is_given_up_and_its_thread_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stuck, ended = threading.Event(), threading.Event()

    def hanging(desk: Desk, federation: Any, plan: Any, watch: Watch, alive: Any) -> None:
        alive()
        monkeypatch.setattr(sys, "stdout", None)
        stuck.wait()
        try:
            alive()
        finally:
            ended.set()

    before = sys.stdout
    assert watched(monkeypatch, hanging) is None
    assert sys.stdout is before
    stuck.set()
    assert ended.wait(5)


def test_what_a_job_says_and_raises_comes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watched(monkeypatch, lambda *_: {"round": 3}) == {"round": 3}
    assert watched(monkeypatch, lambda *_: None) is None

    def failing(*_: Any) -> None:
        raise ConnectionError("away")

    with pytest.raises(ConnectionError, match="away"):
        watched(monkeypatch, failing)
