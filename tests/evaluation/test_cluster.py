"""A grid and a backtest on a real Dask scheduler with two workers over TCP, one of them killed."""

import math
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path

import joblib
import polars as pl
import pytest
from typer.testing import CliRunner

from epifed.cli.app import app
from epifed.errors import EpifedError
from epifed.evaluation import experiment as workers
from epifed.evaluation.backtest import origins_between, run_backtest
from epifed.evaluation.experiment import Grid, run_grid
from epifed.learners.base import settings_for
from epifed.rehearsal.local import free_port
from tests.helpers import small_panel, small_settings
from tests.waiting import GUARD, wait_for

pytestmark = pytest.mark.field

pytest.importorskip("distributed", reason="no Dask here: 'pip install epifed[cluster]'")


TOGETHER = """(lambda os, time, pathlib: (
    pathlib.Path({folder!r}, str(os.getpid())).touch(),
    any(len(os.listdir({folder!r})) >= {pids} or time.sleep(0.05) for _ in range(12_000)),
    os.getpid(),
))(*map(__import__, ("os", "time", "pathlib")))[-1]"""
"""Where it is computed, in a process that has not these tests, once so many have begun."""


class Cluster:
    """A scheduler and its workers, each a process."""

    def __init__(self, folder: Path, closing: ExitStack, workers: int = 2) -> None:
        port = str(free_port())
        self.address = f"tcp://127.0.0.1:{port}"
        self._folder, self._closing = folder, closing
        address = ("--host", "127.0.0.1", "--port", port, "--no-dashboard")
        scheduler = self._start("dask_scheduler", *address)
        wait_for(lambda: _answers(int(port)), "the scheduler", lambda: scheduler.poll() is None)
        self.workers = [self.worker() for _ in range(workers)]

    def worker(self) -> "subprocess.Popen[bytes]":
        alone = ("--nthreads", "1", "--no-nanny", "--no-dashboard")
        return self._start("dask_worker", self.address, *alone)

    def _start(self, module: str, *arguments: str) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.{module}", *arguments],
            cwd=self._folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._closing.callback(process.wait)
        self._closing.callback(process.kill)
        return process


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), GUARD):
        return True
    return False


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "CONNECT", GUARD)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with ExitStack() as closing:
        yield Cluster(tmp_path_factory.mktemp("dask"), closing)


def small_grid() -> Grid:
    panel = small_panel(days=60)
    return Grid(
        settings=small_settings(rounds=2, epochs=1),
        splits=("temporal",),
        periods={"late": (panel.day(20), panel.end)},
        epsilons=(2.0, math.inf),
        runs=8,
        baselines=("persistence", "pooled linear"),
    )


def tables(out: Path) -> list[pl.DataFrame]:
    return [pl.read_parquet(out / f"{name}.parquet") for name in ("runs", "predictions")]


def test_a_grid_is_the_same_though_a_worker_is_killed_in_the_middle(
    cluster: Cluster, tmp_path: Path
) -> None:
    panel, grid = small_panel(days=60), small_grid()
    run_grid(panel, grid, tmp_path / "here", workers=1)
    seen: list[int] = []

    def kill_one(done: int, total: int) -> None:
        seen.append(done)
        if done == 3:
            assert total > 6
            cluster.workers[0].send_signal(signal.SIGKILL)

    run_grid(panel, grid, tmp_path / "there", scheduler=cluster.address, progress=kill_one)
    assert cluster.workers[0].wait(timeout=GUARD) == -signal.SIGKILL
    assert seen == list(range(seen[-1] + 1))
    for one, two in zip(tables(tmp_path / "here"), tables(tmp_path / "there"), strict=True):
        assert one.equals(two)


def test_a_grid_goes_on_where_it_was(cluster: Cluster, tmp_path: Path) -> None:
    panel, grid = small_panel(days=60), small_grid()
    run_grid(panel, grid, tmp_path, scheduler=cluster.address)
    before = tables(tmp_path)
    kept = sorted((tmp_path / "parts").rglob("*.npz"))
    kept[0].unlink()
    changed = [path.stat().st_mtime_ns for path in kept[1:]]
    seen: list[int] = []
    run_grid(panel, grid, tmp_path, scheduler=cluster.address, progress=lambda d, _: seen.append(d))
    assert seen == [len(kept) - 1, len(kept)]
    assert [path.stat().st_mtime_ns for path in kept[1:]] == changed
    assert all(one.equals(two) for one, two in zip(before, tables(tmp_path), strict=True))


def test_a_backtest_is_the_same(cluster: Cluster, tmp_path: Path) -> None:
    panel = small_panel(days=100)
    settings = settings_for(panel, {"learner": "trend", "epsilon": 1.0})
    origins = origins_between(panel.end - timedelta(days=28), panel.end, 7, panel, 7)
    here = run_backtest(panel, settings, origins, tmp_path / "here", workers=1)
    there = run_backtest(panel, settings, origins, tmp_path / "there", scheduler=cluster.address)
    assert here.table.equals(there.table)
    assert here.summary() == there.summary()


def test_one_worker_computes_all_and_one_that_comes_later_helps(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    pids.mkdir()
    with ExitStack() as closing:
        cluster = Cluster(tmp_path, closing, workers=1)
        seen: list[int] = []
        with workers.parallel(None, cluster.address) as run:
            told = [TOGETHER.format(folder=str(pids), pids=1 + (i > 0)) for i in range(40)]
            for pid in run(joblib.delayed(eval)(one) for one in told):
                if not seen:
                    cluster.workers.append(cluster.worker())
                seen.append(pid)
    assert os.getpid() not in seen
    assert len(set(seen)) == 2


def test_a_scheduler_that_is_not_there_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "CONNECT", 1)
    data = tmp_path / "cases.csv"
    small_panel(days=40).to_long().rename({"day": "date"}).write_csv(data)
    done = CliRunner().invoke(
        app,
        ["run", "--data", str(data), "--learner", "trend", "--out", str(tmp_path / "out"),
         "--scheduler", "tcp://127.0.0.1:9"],
    )  # fmt: skip
    assert isinstance(done.exception, EpifedError)
    assert "--scheduler: no answer from 'tcp://127.0.0.1:9'" in str(done.exception)
