"""A call that hangs is given up; what it would have said or raised otherwise comes through."""

import queue
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from epifed.errors import EpifedError
from epifed.federation.flare import engine_patches, jobs
from epifed.federation.flare.engine_patches import Alive, HungError, quietly, watched
from epifed.federation.flare.jobs import CoordinatorSession, look
from tests.waiting import GUARD, has_pid, wait_for, wait_for_end

pytestmark = pytest.mark.field


def test_a_call_that_never_returns_is_given_up_and_its_thread_ends(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stuck, ended = threading.Event(), threading.Event()

    def hanging(alive: Alive) -> None:
        try:
            alive()
            with quietly():
                print("FLARE's")
                stuck.wait()
            alive()
        finally:
            ended.set()

    with pytest.raises(HungError, match=r"0\.3 seconds"):
        watched(hanging, 0.3)
    print("ours")
    stuck.set()
    assert ended.wait(GUARD)
    assert capsys.readouterr().out == "ours\n"


def test_two_quiet_threads_that_overlap_leave_the_output_as_it_was(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        engine_patches, "_quiet", Counter()
    )  # calls that other tests gave up may go on
    before, turns = sys.stdout, [threading.Event() for _ in range(3)]

    def first() -> None:
        with quietly():
            turns[0].set()
            turns[1].wait(GUARD)
            print("FLARE's")
        turns[2].set()

    def second() -> None:
        turns[0].wait(GUARD)
        with quietly():
            turns[1].set()
            turns[2].wait(GUARD)
            print("FLARE's")

    threads = [threading.Thread(target=one) for one in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sys.stdout is before
    with quietly():
        print("FLARE's")
    print("ours")
    assert capsys.readouterr().out == "ours\n"


def test_signs_of_life_keep_a_long_call_going(monkeypatch: pytest.MonkeyPatch) -> None:
    """After each sign the whole patience is left, and no longer than that is waited for one."""
    waits: list[float | None] = []

    class Recorded(queue.SimpleQueue[Any]):
        def get(self, block: bool = True, timeout: float | None = None) -> Any:
            waits.append(timeout)
            return super().get(block, timeout)

    modified = SimpleNamespace(SimpleQueue=Recorded, Empty=queue.Empty)
    monkeypatch.setattr(engine_patches, "queue", modified)

    def long(alive: Alive) -> int:
        for _ in range(8):
            alive()
        return 8

    assert watched(long, GUARD) == 8
    assert waits == [GUARD] * 9


def test_what_a_call_says_and_raises_comes_through() -> None:
    assert watched(lambda _: {"round": 3}, GUARD) == {"round": 3}

    def failing(_: Alive) -> None:
        raise ConnectionError("away")

    with pytest.raises(ConnectionError, match="away"):
        watched(failing, GUARD)


def test_a_status_that_never_comes_is_said_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(jobs, "HUNG", 0.2)
    stuck = threading.Event()
    monkeypatch.setattr(CoordinatorSession, "session", lambda self: stuck.wait())
    with pytest.raises(EpifedError, match=r"has not answered for 0\.2 seconds"):
        look(CoordinatorSession(tmp_path))
    stuck.set()


def test_a_worker_whose_party_was_killed_ends(tmp_path: Path) -> None:
    """Also one that waits for ever, as a job does whose answer never comes."""
    pid = tmp_path / "pid"
    worker = (
        "import os, threading; from epifed.federation.flare.engine_patches import with_party; "
        f"with_party(0.2, 0.1); open({str(pid)!r}, 'w').write(str(os.getpid())); "
        "threading.Event().wait(600)"
    )
    party = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {worker!r}])"
    with subprocess.Popen([sys.executable, "-c", party]) as running:
        wait_for(lambda: has_pid(pid), "the worker", lambda: running.poll() is None)
        running.kill()
    wait_for_end(int(pid.read_text()))


def test_a_party_on_windows_waits_at_no_pipe_and_still_ends_with_its_starter(
    tmp_path: Path,
) -> None:
    """A thread that reads the standard input would keep NumPy from being loaded there."""
    pid, read = tmp_path / "pid", tmp_path / "read"
    party = f"""
import os, pathlib, sys, time
from epifed.federation.flare.engine_patches import with_parent

class Input:
    @property
    def buffer(self):
        pathlib.Path({str(read)!r}).touch()
        raise OSError

sys.stdin, os.name = Input(), "nt"
with_parent()
time.sleep(0.5)
with open({str(pid)!r}, "w") as file:
    file.write(str(os.getpid()))
time.sleep(600)
"""
    starter = f"""
import os, subprocess, sys
from epifed.federation.flare.engine_patches import WATCHED_PARENT
held = os.environ | {{WATCHED_PARENT: str(os.getpid())}}
subprocess.Popen([sys.executable, "-c", {party!r}], env=held, stdin=subprocess.PIPE).wait()
"""
    with subprocess.Popen([sys.executable, "-c", starter]) as running:
        wait_for(lambda: has_pid(pid) or read.exists(), "the party", lambda: running.poll() is None)
        running.kill()
    assert not read.exists()
    wait_for_end(int(pid.read_text()))
