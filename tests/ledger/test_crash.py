"""Real processes, killed and raced. As a program this file is the victim, started by the tests.

It imports once and forks for each case, since only the forks are to be killed.
"""

import _sqlite3
import ctypes
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from epifed.errors import EpifedError
from epifed.ledger.budget import Cap, together
from epifed.ledger.ledger import Ledger, OverspendError, Run, Witness, newest

pytestmark = [
    pytest.mark.field,
    pytest.mark.skipif(sys.platform == "win32", reason="no fork, no SIGKILL"),
]

Case = dict[str, Any]

CAP = Cap(2.0, 1e-5, "rdp")
"""One training of 75 rounds with c = 4.9 at q = 0.25 fits, two do not."""
ROUNDS = 2
RANDOM_KILLS = 60
RACES = 12
RACERS = 4


def victim(mode: str) -> list[Case]:
    """What the victim reports. A file system in memory will do: a kill loses no written page."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        done = subprocess.run(
            [sys.executable, __file__, mode, directory],
            capture_output=True,
            text=True,
            timeout=1800,
            check=False,
            env=os.environ | {"EPIFED_STATE": f"{directory}/state"},
        )
    assert done.returncode == 0, done.stderr
    cases: list[Case] = json.loads(done.stdout)
    return cases


def check_never_less_than_released(cases: list[Case]) -> None:
    for case in cases:
        assert case["taken"] >= case["released"], case
        assert case["spent"] >= case["released"], case
        assert case["spent"] <= case["released"] + 1, case
        assert case["closed"] == case["spent"], case
        assert case["witnessed"] >= case["released"], case
        assert case["known"], case


def test_killed_at_every_write_the_ledger_never_shows_less_than_was_released() -> None:
    cases = victim("every-write")
    if not cases:
        pytest.skip("this Python's SQLite does not let its system calls be replaced")
    assert len(cases) >= 50
    assert all(case["killed"] for case in cases)
    seen = {(case["released"], case["spent"]) for case in cases}
    assert seen == {(0, 0), (0, 1), (1, 1), (1, 2), (2, 2)}
    assert {case["behind"] for case in cases} == {0, 1}, "between the commit and the note as well"
    check_never_less_than_released(cases)


def test_killed_at_random_times_the_ledger_never_shows_less_than_was_released() -> None:
    cases = victim("random")
    assert len(cases) == RANDOM_KILLS
    assert len({case["released"] for case in cases}) > 5
    check_never_less_than_released(cases)


def test_racing_trainings_never_take_the_last_of_the_budget_twice() -> None:
    cases = victim("race")
    assert len(cases) == RACES
    for case in cases:
        assert case["won"] == 1, case
        assert case["refused"] == RACERS - 1, case
        assert case["epsilon"] <= case["cap"], case


def test_processes_that_share_a_run_never_spend_more_than_it_has() -> None:
    for case in victim("share"):
        assert case["spent"] == case["succeeded"] == case["reserved"], case


def test_of_racing_copies_one_spends_and_the_others_write_nothing() -> None:
    for case in victim("copies"):
        assert case == {"won": 1, "refused": RACERS - 1, "grown": 1}


# The victim


def forked(work: Callable[[], int]) -> int:
    """Start a process that does this and nothing else."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        code = work()
    finally:
        os._exit(code)


class Vfs(ctypes.Structure):
    """The head of SQLite's `sqlite3_vfs`, up to the replacement of system calls."""

    _fields_ = (
        ("version", ctypes.c_int),
        ("file_size", ctypes.c_int),
        ("path_size", ctypes.c_int),
        ("next", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("data", ctypes.c_void_p),
        ("methods", ctypes.c_void_p * 13),
        ("set_system_call", ctypes.c_void_p),
    )


def replace_writes(before_write: Callable[[Callable[[], Any]], None]) -> list[Any]:
    """Have `before_write(half)` called before each write, truncation and removal by SQLite.

    `half()` does half of the write. Returns what must be kept alive; nothing if it cannot be done.
    """
    library, libc = ctypes.CDLL(_sqlite3.__file__), ctypes.CDLL(None)
    number, pointer = ctypes.c_ssize_t, ctypes.c_void_p
    try:
        library.sqlite3_vfs_find.restype = ctypes.POINTER(Vfs)
        vfs = library.sqlite3_vfs_find(None)
    except AttributeError:
        return []
    if not vfs or vfs.contents.version < 3:
        return []
    setter = ctypes.CFUNCTYPE(ctypes.c_int, pointer, ctypes.c_char_p, pointer)
    signatures: dict[str, tuple[Any, ...]] = {
        "write": (number, ctypes.c_int, pointer, ctypes.c_size_t),
        "pwrite": (number, ctypes.c_int, pointer, ctypes.c_size_t, ctypes.c_int64),
        "pwrite64": (number, ctypes.c_int, pointer, ctypes.c_size_t, ctypes.c_int64),
        "ftruncate": (ctypes.c_int, ctypes.c_int, ctypes.c_int64),
        "unlink": (ctypes.c_int, ctypes.c_char_p),
    }
    kept: list[Any] = []
    for name, (result, *arguments) in signatures.items():
        kind = ctypes.CFUNCTYPE(result, *arguments, use_errno=True)
        original = kind((name, libc))

        def replacement(*values: Any, original: Any = original, name: str = name) -> Any:
            def half() -> None:
                if "write" in name:
                    descriptor, buffer, size, *offset = values
                    original(descriptor, buffer, size // 2, *offset)

            before_write(half)
            return original(*values)

        kept += [original, kind(replacement)]
        address = ctypes.cast(kept[-1], pointer)
        setter(vfs.contents.set_system_call)(ctypes.cast(vfs, pointer), name.encode(), address)
    return kept


def release(path: Path) -> None:
    """Stands for noise that has left the server."""
    with path.open("ab") as file:
        file.write(b"x")
        file.flush()
        os.fsync(file.fileno())


def train(path: Path, rounds: int, before_release: Callable[[], None] = lambda: None) -> int:
    run = reserve(Ledger(path), rounds)
    for i in range(1, rounds + 1):
        run.spend(i)
        before_release()
        release(path.with_suffix(".released"))
    run.finish("model")
    return 0


def reserve(ledger: Ledger, rounds: int) -> Run:
    return ledger.reserve(
        sampling_rate=0.25,
        noise_multiplier=4.9,
        rounds=rounds,
        settings_hash="",
    )


def remembered(path: Path) -> Case:
    """What the machine knows of the file before it is opened again."""
    try:
        book = Ledger(path, copy=True).book()
    except EpifedError:
        return {"behind": 0, "witnessed": 0}  # it was killed while being made
    seen = Witness(book.ledger).read()
    assert seen is not None
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT row FROM entries WHERE number <= ?", (seen.number,))
        witnessed = sum(json.loads(row)["kind"] == "spend" for (row,) in rows)
    connection.close()
    return {"behind": len(book.hashes) - seen.number, "witnessed": witnessed}


def examined(path: Path, **facts: Any) -> Case:
    """What is left after a kill, first as it is and then with open runs closed."""
    log = path.with_suffix(".released")
    case = {"released": log.stat().st_size if log.exists() else 0, **facts, **remembered(path)}
    try:
        ledger = Ledger(path)
    except EpifedError:
        ledger = Ledger.create(path, CAP)  # it was killed while being made
    runs = ledger.verify().runs.values()
    case["known"] = Witness(ledger.book().ledger).read() == newest(ledger.book())
    case["spent"] = sum(run.spent for run in runs)
    case["taken"] = sum(run.counted for run in runs)
    for run in runs:
        if run.outcome == "open":
            ledger.close(run.run, "abandoned")
    case["closed"] = sum(run.counted for run in ledger.book().runs.values())
    return case


def killed_at(number: int, torn: bool, path: Path) -> int:
    seen = 0

    def before_write(half: Callable[[], Any] = lambda: None) -> None:
        nonlocal seen
        seen += 1
        if seen == number:
            if torn:
                half()
            os.kill(os.getpid(), signal.SIGKILL)

    kept = replace_writes(before_write)
    if not kept:
        return 3
    Ledger.create(path, CAP)
    return train(path, ROUNDS, before_write)


def every_write(directory: Path) -> list[Case]:
    cases: list[Case] = []
    for number in range(1, 1000):
        for torn in (False, True):
            path = directory / f"{number}-{torn}.db"
            status = os.waitpid(forked(partial(killed_at, number, torn, path)), 0)[1]
            if not os.WIFSIGNALED(status):
                if os.WEXITSTATUS(status) not in (0, 3):
                    raise RuntimeError(f"write {number}: exit code {os.WEXITSTATUS(status)}")
                return cases
            killed = os.WTERMSIG(status) == signal.SIGKILL
            cases.append(examined(path, number=number, torn=torn, killed=killed))
    raise RuntimeError("there is no end to the writes")


def random_times(directory: Path) -> list[Case]:
    cases, rng = [], random.Random(0)
    for number in range(RANDOM_KILLS):
        path = directory / f"{number}.db"
        Ledger.create(path, CAP)
        released = path.with_suffix(".released")
        released.touch()
        child = forked(partial(train, path, 75))
        enough = rng.randrange(10)
        while released.stat().st_size < enough and not os.waitid(
            os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT
        ):
            time.sleep(0.001)
        time.sleep(rng.uniform(0.0, 0.02))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        cases.append(examined(path))
    return cases


def raced(work: Callable[[int], int]) -> list[int]:
    """Exit codes of processes that start the same work at the same time."""
    reader, writer = os.pipe()

    def waiting(racer: int) -> int:
        os.close(writer)
        os.read(reader, 1)
        return work(racer)

    children = [forked(partial(waiting, racer)) for racer in range(RACERS)]
    os.close(reader)
    os.close(writer)
    return [os.WEXITSTATUS(os.waitpid(child, 0)[1]) for child in children]


def race(directory: Path) -> list[Case]:
    cases = []
    for number in range(RACES):
        ledger = Ledger.create(directory / f"{number}.db", CAP)

        def take(_: int, ledger: Ledger = ledger) -> int:
            try:
                reserve(ledger, 75)
            except OverspendError:
                return 3
            return 0

        codes = raced(take)
        facts = {"won": codes.count(0), "refused": codes.count(3), "cap": CAP.epsilon}
        cases.append(facts | {"epsilon": CAP.price(ledger.verify().taken())})
    return cases


def share(directory: Path) -> list[Case]:
    ledger = Ledger.create(directory / "shared.db", CAP)
    run = reserve(ledger, 20)

    def spend(_: int) -> int:
        for i in range(100):
            try:
                run.spend(i)
            except OverspendError:
                return i
        return 100

    codes = raced(spend)
    spent = ledger.verify().runs[run.name].spent
    return [{"spent": spent, "succeeded": sum(codes), "reserved": 20}]


def copies(directory: Path) -> list[Case]:
    """Each racer spends from its own copy of one ledger."""
    cases = []
    for number in range(RACES):
        ledger = Ledger.create(directory / f"{number}.db", CAP)
        run = reserve(ledger, 20)
        files = [Path(f"{ledger.path}-{racer}") for racer in range(RACERS)]
        for file in files:
            shutil.copy2(ledger.path, file)

        def spend(racer: int, name: str = run.name, files: list[Path] = files) -> int:
            try:
                Ledger(files[racer]).spend(name, 1)
            except EpifedError as error:
                return 3 if "an older copy" in str(error) else 4
            return 0

        codes = raced(spend)
        grown = sum(len(Ledger(file, copy=True).book().hashes) > 2 for file in files)
        cases.append({"won": codes.count(0), "refused": codes.count(3), "grown": grown})
    return cases


if __name__ == "__main__":
    for trainings in (1, 2):
        CAP.price(together([(0.25, 4.9, 75 * trainings)]))
    modes = {
        "every-write": every_write,
        "random": random_times,
        "race": race,
        "share": share,
        "copies": copies,
    }
    with mock.patch("epifed.ledger.ledger.refusal", return_value="refused"):
        print(json.dumps(modes[sys.argv[1]](Path(sys.argv[2]))))
