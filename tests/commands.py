"""The command line as a user runs it: a process of its own for each command.

It is forked with its imports done, where that is possible; `test_startup` and `test_readme` start
the interpreter anew.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from epifed.rehearsal.fork_server import POSSIBLE, Wanted, shared_server

LIGHT = (
    "epifed.cli.forecast",
    "epifed.cli.data",
    "epifed.cli.forecast",
    "epifed.cli.hub",
    "epifed.cli.run",
    "epifed.evaluation.backtest",
    "epifed.evaluation.experiment",
    "epifed.report.figures",
    "epifed.report.html",
    "epifed.simulate",
    "epifed.data.readers",
)
"""Without PyTorch."""
PRELOADED = (
    *LIGHT,
    "epifed.learners.networks",
    "epifed.learners.networks",
    "torch._dynamo",
)
"""And what Adam imports at its first use. Also for parties of federations, so that all processes of
a test run are forked from one."""
AT_START = ("PYTHONPATH", "PYTHONIOENCODING")
"""What an interpreter looks at when it starts: who has others is forked from one that has them."""


def epifed(
    *arguments: str | Path,
    expect: int | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> "subprocess.CompletedProcess[str]":
    """Run a command in a folder, and see that it ends with this exit code."""
    program = [sys.executable, "-m", "epifed", *map(str, arguments)]
    here = dict(os.environ if environment is None else environment)
    done = _forked(program, here, folder) if POSSIBLE else None
    if done is None:
        done = subprocess.run(
            program, capture_output=True, text=True, check=False, env=here, cwd=folder
        )
    assert expect in (None, done.returncode), done.stderr + done.stdout
    return done


def _forked(
    program: list[str], environment: dict[str, str], folder: Path | None
) -> "subprocess.CompletedProcess[str] | None":
    wanted = {name: environment.get(name, "") for name in AT_START}
    others = {name: said for name, said in wanted.items() if said != os.environ.get(name, "")}
    parent = shared_server(LIGHT, tuple(others.items())) if others else shared_server(PRELOADED)
    with tempfile.TemporaryDirectory() as written:
        log, errors = (Path(written) / name for name in ("log", "errors"))
        child = parent.start_program(
            Wanted.of(program, environment, log=str(log), errors=str(errors), folder=folder)
        )
        if child is None:
            return None
        code = child.wait()
        assert code is not None
        return subprocess.CompletedProcess(program, code, log.read_text(), errors.read_text())


def refused(*arguments: str | Path) -> str:
    """The one sentence of a refusal."""
    done = epifed(*arguments, expect=2)
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("epifed: ")]
    assert len(lines) == 1, done.stderr
    return lines[0]
