import math
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from epifed.errors import EpifedError
from epifed.evaluation.experiment import Grid, run_grid, tasks
from epifed.evaluation.metrics import scores
from epifed.evaluation.results_folder import ALL, FEDERATED, read_grid
from tests.helpers import START, small_panel, small_settings

TABLES = ("runs.parquet", "predictions.parquet", "convergence.parquet")


def small_grid(**changes: object) -> Grid:
    values: dict[str, object] = {
        "settings": small_settings(epsilon=math.inf, sampler="fixed", evaluate_every=2),
        "periods": {"one": (START, START + timedelta(days=30)),
                    "two": (START + timedelta(days=5), START + timedelta(days=39))},
        "epsilons": (1.0, math.inf),
        "runs": 2,
        "baseline_runs": 1,
    }  # fmt: skip
    return Grid.model_validate(values | changes)


def same_tables(one: Path, two: Path) -> None:
    for name in TABLES:
        a, b = pl.read_parquet(one / name), pl.read_parquet(two / name)
        assert a.equals(b), name


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed")
    run_grid(small_panel(), small_grid(), out, workers=1)
    return out


@pytest.mark.field
def test_one_and_two_workers_give_the_same_numbers(undisturbed: Path, tmp_path: Path) -> None:
    run_grid(small_panel(), small_grid(), tmp_path, workers=2)
    same_tables(undisturbed, tmp_path)


def test_a_narrower_grid_gives_the_same_numbers_for_what_it_keeps(
    undisturbed: Path, tmp_path: Path
) -> None:
    narrow = small_grid(epsilons=(math.inf,), splits=("shuffled",), runs=1)
    got = run_grid(small_panel(), narrow, tmp_path, workers=1).runs
    whole = read_grid(undisturbed).results.runs
    keys = ["split", "period", "method", "epsilon", "run", "stratum"]
    kept = whole.join(got.select(keys), on=keys, how="semi", nulls_equal=True)
    assert kept.equals(got)


CHILD = """
import os, signal, sys
from pathlib import Path
from tests.helpers import small_panel
from tests.evaluation.test_experiment import small_grid
from epifed.evaluation.experiment import run_grid
out, workers, last = Path(sys.argv[1]), *map(int, sys.argv[2:])
def progress(done, total):
    if done >= last:
        os.killpg(0, signal.SIGKILL)
run_grid(small_panel(), small_grid(), out, workers=workers, progress=progress)
"""


@pytest.mark.field
def test_killed_at_any_point_it_resumes_to_the_same_result(
    undisturbed: Path, tmp_path: Path
) -> None:
    """The whole process group kills itself with -9 after each few new parts, then gets through."""
    root = Path(__file__).resolve().parents[2]
    total = len(list(tasks(small_grid())))
    for workers in (1, 2, 1):
        last = len(list(tmp_path.rglob("*.npz"))) + (3 if workers == 1 else 1)
        words = [sys.executable, "-c", CHILD, str(tmp_path), str(workers)]
        assert last < total
        child = subprocess.run([*words, str(last)], cwd=root, start_new_session=True, check=False)
        assert child.returncode == -signal.SIGKILL
        assert len(list(tmp_path.rglob("*.npz"))) >= last
    done = subprocess.run([*words, str(total + 1)], cwd=root, start_new_session=True, check=False)
    assert done.returncode == 0
    same_tables(undisturbed, tmp_path)
    assert not [p for p in tmp_path.rglob(".*") if p.suffix in {".parquet", ".json"}]
    work = read_grid(tmp_path).folder.manifest.work
    assert work is not None and work.tasks == total
    assert 0 < work.tasks_of_this_call < total


def test_finished_work_is_not_computed_again(undisturbed: Path) -> None:
    parts = {p: p.stat().st_mtime_ns for p in undisturbed.rglob("*.npz")}
    seen: list[tuple[int, int]] = []
    run_grid(small_panel(), small_grid(), undisturbed, workers=1,
             progress=lambda done, total: seen.append((done, total)))  # fmt: skip
    assert {p: p.stat().st_mtime_ns for p in undisturbed.rglob("*.npz")} == parts
    assert seen == [(len(parts), len(parts))]


def test_other_data_or_settings_do_not_reuse_parts(undisturbed: Path, tmp_path: Path) -> None:
    run_grid(small_panel(), small_grid(), tmp_path, workers=1)
    fewer = small_grid(epsilons=(math.inf,), runs=1, splits=("temporal",))
    done: list[int] = []
    run_grid(small_panel(seed=1), fewer, tmp_path, workers=1, progress=lambda d, _: done.append(d))
    assert done[0] == 0
    same = [pl.read_parquet(p / "predictions.parquet") for p in (undisturbed, tmp_path)]
    assert not same[0].head(10).equals(same[1].head(10))


def test_a_damaged_part_is_refused(tmp_path: Path) -> None:
    grid = small_grid(epsilons=(math.inf,), runs=1, splits=("temporal",))
    run_grid(small_panel(), grid, tmp_path, workers=1)
    part = next(tmp_path.rglob("*persistence*.npz"))
    part.write_bytes(part.read_bytes()[:40])
    with pytest.raises(EpifedError, match="damaged part"):
        run_grid(small_panel(), grid, tmp_path, workers=1)


def test_the_tables_hold_what_they_say(undisturbed: Path) -> None:
    results = read_grid(undisturbed).results
    keys = ["split", "period", "method", "epsilon", "run"]
    federated = results.runs.filter((pl.col("method") == FEDERATED) & (pl.col("stratum") == ALL))
    assert len(federated) == 2 * 2 * 2 * 2
    assert federated["mean_cohort"].is_not_null().all()
    private = federated.filter(pl.col("epsilon").is_finite())
    assert (private["epsilon_spent"] <= private["epsilon"]).all()
    assert (private["noise_multiplier"] > 0).all()
    for row in results.runs.filter(pl.col("stratum") == ALL).iter_rows(named=True):
        own = results.predictions.filter(*(pl.col(k).eq_missing(pl.lit(row[k])) for k in keys))
        expected = scores(own["truth"].to_numpy(), own["prediction"].to_numpy())
        assert row["mae"] == pytest.approx(expected["mae"])
        assert row["r2"] == pytest.approx(expected["r2"])
    rounds = results.convergence["round"].unique().sort().to_list()
    assert rounds == [0, 2, 4]
    last = results.convergence.filter(pl.col("round") == 4).join(federated, on=keys)
    np.testing.assert_allclose(last["test_mse"], last["mse"], rtol=1e-5)
