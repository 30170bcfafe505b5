"""The command line as a user runs it: a process of its own for each command.

It is forked with its imports done, where that is possible; `test_light`, `test_startup` and
`test_readme` start the interpreter anew.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from epifed.federation.flare.nursery import POSSIBLE, Wanted, nursery

PRELOADED = (
    "epifed.cli.backtest",
    "epifed.cli.data",
    "epifed.cli.forecast",
    "epifed.cli.hub",
    "epifed.cli.run",
    "epifed.evaluate.backtest",
    "epifed.evaluate.experiment",
    "epifed.learners.networks.baselines",
    "epifed.learners.networks.stack",
    "epifed.report.figures",
    "epifed.report.html.write",
    "epifed.simulate",
    "epifed.sources",
)
"""Also for parties of federations, so that all processes of a test run are forked from one."""


def epifed(
    *arguments: str | Path,
    expect: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> "subprocess.CompletedProcess[str]":
    """Run a command, and see that it ends with this exit code."""
    program = [sys.executable, "-m", "epifed", *map(str, arguments)]
    done = _forked(program, environment) if POSSIBLE else None
    if done is None:
        done = subprocess.run(program, capture_output=True, text=True, check=False, env=environment)
    assert expect in (None, done.returncode), done.stderr + done.stdout
    return done


def _forked(
    program: list[str], environment: Mapping[str, str] | None
) -> "subprocess.CompletedProcess[str] | None":
    with tempfile.TemporaryDirectory() as folder:
        log, errors = (Path(folder) / name for name in ("log", "errors"))
        here = dict(os.environ if environment is None else environment)
        child = nursery(PRELOADED).bear(Wanted.of(program, here, log=str(log), errors=str(errors)))
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
