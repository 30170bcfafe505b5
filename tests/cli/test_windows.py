"""What a site and a single office use needs nothing that only POSIX has.

`test_light.py` runs it where epifed's own code finds no such module and output is not UTF-8.
"""

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from nvflare.app_common.job_launcher import process_launcher
from nvflare.app_common.job_launcher.client_process_launcher import ClientProcessJobLauncher

import epifed
from epifed.federation.flare.run_client import keep_backslashes
from epifed.files import write_text

ROOT = Path(epifed.__file__).parent
ELSEWHERE = {
    "federation/flare/run_server.py": "the server's program",
    "rehearsal/local.py": "a federation of processes for rehearsals",
    "rehearsal/fork_server.py": "forks those processes",
}
"""Modules that neither a site nor a single office runs. So is the audit, the coordinator's."""
MODULES = {"fcntl", "grp", "pty", "pwd", "resource", "termios", "syslog", "crypt", "nis"}
WINDOWS = {"SIGABRT", "SIGFPE", "SIGILL", "SIGINT", "SIGSEGV", "SIGTERM", "SIGBREAK"}
POSIX_ONLY = {
    "os": {
        "chown", "fchmod", "fchown", "fork", "forkpty", "getegid", "geteuid", "getgid", "getgroups",
        "getpgid", "getpriority", "getuid", "killpg", "lchown", "mkfifo", "nice", "setpgid",
        "setsid", "sysconf", "uname", "wait3", "wait4", "O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC",
    },
    "signal": {one.name for one in signal.Signals} - WINDOWS | {"alarm", "pause", "setitimer"},
    "socket": {"AF_UNIX", "socketpair"},
}  # fmt: skip


def _posix(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        where = f"{path.relative_to(ROOT).as_posix()}:{getattr(node, 'lineno', 0)}"
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.attr in POSIX_ONLY.get(node.value.id, ())
        ):
            found.append(f"{where} {node.value.id}.{node.attr}")
        elif isinstance(node, ast.Constant) and repr(node.value).startswith(("'/proc", "'/dev/")):
            found.append(f"{where} {node.value!r}")
        found += [f"{where} {name}" for name in names if name in MODULES]
    return found


def test_no_module_that_offices_run_asks_for_what_only_posix_has() -> None:
    used = {
        path.relative_to(ROOT).as_posix(): _posix(path)
        for path in ROOT.rglob("*.py")
        if "audit" not in path.relative_to(ROOT).parts
    }
    assert {name for name, found in used.items() if found} == ELSEWHERE.keys(), used


def test_the_search_finds_what_it_looks_for(tmp_path: Path) -> None:
    path = ROOT / "federation" / "flare" / "run_server.py"
    assert [found.split()[-1] for found in _posix(path)] == ["resource"]


def test_modules_of_a_site_do_not_import_those_of_the_server() -> None:
    modules = [name.removesuffix(".py").replace("/", ".") for name in ELSEWHERE]
    code = (
        "import sys, epifed.cli.app, epifed.federation.flare.executor, epifed.api\n"
        "import epifed.federation.flare.kits, epifed.federation.flare.inspection\n"
        f"print([m for m in {modules} if 'epifed.' + m in sys.modules])"
    )
    made = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert made.stdout.strip() == "[]"


def test_text_files_have_the_same_bytes_everywhere(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", "ε\nδ\n")
    assert (tmp_path / "a.txt").read_bytes() == "ε\nδ\n".encode()


def test_flare_starts_a_worker_by_paths_with_backslashes(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [r"C:\epifed\Scripts\python.exe", "-m", r"C:\epifed\kit\run_1\app", "--set", "a=b"]
    spawn = Mock()
    monkeypatch.setattr(process_launcher, "shlex", process_launcher.shlex)
    monkeypatch.setattr(process_launcher, "spawn_process", spawn)
    launcher = ClientProcessJobLauncher()
    monkeypatch.setattr(launcher, "get_command", lambda *_: " ".join(words))
    workspace = Mock(get_app_custom_dir=lambda _: "")
    wanted = process_launcher.FLContextKey.WORKSPACE_OBJECT
    context = Mock(get_prop=lambda name: workspace if name == wanted else None)
    launcher.launch_job({}, context)
    keep_backslashes()
    launcher.launch_job({}, context)
    without, kept = (call.args[0] for call in spawn.call_args_list)
    assert without != words and kept == words
