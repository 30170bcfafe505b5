"""Parts of an older epifed are computed again, not taken for those of this one."""

import math
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from epifed.data.panel import CasePanel
from epifed.evaluation import backtest, experiment
from epifed.evaluation.backtest import origins_between, run_backtest
from epifed.evaluation.experiment import code_digest, run_grid
from epifed.settings import Settings
from tests.evaluation.test_experiment import small_grid
from tests.helpers import small_panel


def test_the_digest_sees_every_file_and_where_it_ends(tmp_path: Path) -> None:
    folders = []
    for name, content in {
        "a": {"one.py": "x = 1\n", "two.py": ""},
        "b": {"one.py": "x = 2\n", "two.py": ""},
        "c": {"one.py": "", "two.py": "x = 1\n"},
        "d": {"one.py": "x = 1\n"},
    }.items():
        (tmp_path / name).mkdir()
        for file, text in content.items():
            (tmp_path / name / file).write_text(text)
        folders.append(tmp_path / name)
    assert len({code_digest(folder) for folder in folders}) == 4
    (folders[0] / "notes.txt").write_text("no code")
    assert code_digest.__wrapped__(folders[0]) == code_digest(folders[0])


@pytest.mark.parametrize("changed", [False, True])
def test_other_code_does_not_reuse_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: bool
) -> None:
    panel = small_panel()
    grid = small_grid(epsilons=(math.inf,), runs=1, splits=("temporal",))
    days = np.random.default_rng(1).poisson(9.0, (6, 80)).astype(np.float64)
    long = CasePanel(days, tuple("abcdef"), date(2020, 9, 1))
    settings = Settings.of(learner="trend", horizon=7, clients_per_round=6)
    origins = origins_between(long.day(60), long.end, 7, long, 7)
    done: list[int] = []
    for again in (False, True):
        if again and changed:
            for module in (backtest, experiment):
                monkeypatch.setattr(module, "code_digest", lambda: "older")
        done.clear()
        run_grid(panel, grid, tmp_path / "g", workers=1, progress=lambda d, _: done.append(d))
        first = done[0]
        done.clear()
        run_backtest(
            long,
            settings,
            origins,
            tmp_path / "b",
            workers=1,
            progress=lambda d, _: done.append(d),
        )
        assert bool(first) == bool(done[0]) == (again and not changed)
