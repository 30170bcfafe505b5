"""Forked parties: a program like any other, below whoever asked for it, and gone with them."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from epifed.rehearsal import fork_server
from epifed.rehearsal.fork_server import Child, ForkServer, Wanted
from tests import commands
from tests.waiting import GUARD, wait_for, wait_for_end

pytestmark = [
    pytest.mark.field,
    pytest.mark.skipif(not fork_server.POSSIBLE, reason="needs fork and pidfd_open"),
]

TELL = """
import json, os, sys
print(json.dumps([sys.argv[1:], os.getcwd(), os.environ["COLOUR"], "PATH" in os.environ, __name__]))
print("aside", file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""
PARTY = """
import os, sys, time
from nvflare.app_common.job_launcher import process_launcher
program = [sys.executable, "-m", "asleep", sys.argv[1]]
worker = process_launcher.spawn_process(program, dict(os.environ))
worker.wait() if sys.argv[2:] == ["wait"] else time.sleep(600)
print("worker ended:", worker.poll())
"""
ASLEEP = """
import os, pathlib, sys, time
pathlib.Path(sys.argv[1]).write_text(f"{os.getpid()} {os.getppid()} {os.getsid(0)}")
time.sleep(600)
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    for name, text in {"tell": TELL, "party": PARTY, "asleep": ASLEEP}.items():
        (folder / f"{name}.py").write_text(text)
    return folder


@pytest.fixture(scope="module")
def made(programs: Path) -> Iterator[ForkServer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(programs), prepend=os.pathsep)
        yield ForkServer.start()


def _born(made: ForkServer, folder: Path, module: str, *words: str, party: bool = False) -> Child:
    wanted = Wanted.of(
        [sys.executable, "-u", "-m", module, *words],
        {**os.environ, "COLOUR": "blue"},
        folder=folder,
        log=str(folder / "log"),
        party=party,
    )
    child = made.start_program(wanted)
    assert child is not None
    return child


def _knowing(programs: Path) -> dict[str, str]:
    """An environment in which the programs are found."""
    search = filter(None, [str(programs), os.environ.get("PYTHONPATH")])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(search)}


def _said(path: Path, alive: Callable[[], bool]) -> list[int]:
    wait_for(lambda: path.exists() and len(path.read_text().split()) == 3, "a word", alive)
    return [int(word) for word in path.read_text().split()]


@pytest.mark.parametrize("code", [0, 3])
def test_a_program_has_its_arguments_environment_folder_log_and_exit_code(
    made: ForkServer, tmp_path: Path, code: int
) -> None:
    child = _born(made, tmp_path, "tell", str(code), "more")
    assert child.wait(GUARD) == child.poll() == code
    told, aside = (tmp_path / "log").read_text().splitlines()
    assert json.loads(told) == [[str(code), "more"], str(tmp_path), "blue", True, "__main__"]
    assert aside == "aside"


def test_what_cannot_be_run_says_so_and_harms_nobody(made: ForkServer, tmp_path: Path) -> None:
    assert _born(made, tmp_path, "not_there").wait(GUARD) == fork_server.FATAL
    assert "No module named not_there" in (tmp_path / "log").read_text()
    assert _born(made, tmp_path, "tell", "0").wait(GUARD) == 0


def test_a_worker_is_below_its_party_in_a_group_of_its_own_and_ends_with_it(
    made: ForkServer, tmp_path: Path
) -> None:
    party = _born(made, tmp_path, "party", str(tmp_path / "said"), party=True)
    worker, parent, session = _said(tmp_path / "said", lambda: party.poll() is None)
    assert session == worker
    assert psutil.Process(parent).ppid() == party.pid
    party.send_signal(signal.SIGKILL)
    assert party.wait(GUARD) == -signal.SIGKILL
    wait_for_end(worker, parent)


def test_flare_ends_a_worker_and_is_told(made: ForkServer, tmp_path: Path) -> None:
    party = _born(made, tmp_path, "party", str(tmp_path / "said"), "wait", party=True)
    worker, *_ = _said(tmp_path / "said", lambda: party.poll() is None)
    os.kill(worker, signal.SIGKILL)
    assert party.wait(GUARD) == 0
    assert "worker ended: -9" in (tmp_path / "log").read_text()


def test_a_party_whose_fork_server_was_killed_starts_its_workers_anew(
    programs: Path, tmp_path: Path
) -> None:
    """As where all processes of a site but the party itself are killed."""
    text = (
        "import os, signal, sys\n"
        "from epifed.rehearsal import fork_server\n"
        "found = fork_server.ForkServer.fork()\n"
        "fork_server._have_workers(found)\n"
        "children = open(f'/proc/self/task/{os.getpid()}/children').read().split()\n"
        "os.kill(int(children[0]), signal.SIGKILL)\n"
        "os.waitpid(int(children[0]), 0)\n"
        "from nvflare.app_common.job_launcher import process_launcher\n"
        "program = [sys.executable, '-m', 'tell', '4']\n"
        "worker = process_launcher.spawn_process(program, {**os.environ, 'COLOUR': 'red'})\n"
        "worker.wait(); print(worker.poll())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", text],
        env=_knowing(programs),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[-1] == "4", done.stderr
    assert '"red"' in done.stdout


def test_all_end_with_the_process_that_asked_for_them(programs: Path, tmp_path: Path) -> None:
    text = (
        "import os, sys, time\n"
        "from epifed.rehearsal.fork_server import ForkServer, Wanted\n"
        "program = [sys.executable, '-m', 'party', sys.argv[1]]\n"
        "made = ForkServer.start()\n"
        "child = made.start_program(Wanted.of(program, dict(os.environ), party=True))\n"
        "print(child.pid, flush=True); time.sleep(600)\n"
    )
    asking = subprocess.Popen(
        [sys.executable, "-c", text, str(tmp_path / "said")],
        env=_knowing(programs),
        stdout=subprocess.PIPE,
    )
    assert asking.stdout is not None
    party = int(asking.stdout.readline())
    worker, below, _ = _said(tmp_path / "said", lambda: asking.poll() is None)
    asking.kill()
    asking.wait()
    wait_for_end(party, below, worker)


def test_what_is_imported_beforehand_is_there() -> None:
    """A name that is wrong would only cost time, and nobody would see it."""
    names = (*fork_server.PRELOADED, *commands.PRELOADED)
    assert [name for name in names if importlib.util.find_spec(name) is None] == []
