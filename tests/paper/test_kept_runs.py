"""The rows of runs that benchmarks keep, and the tables that are made from them."""

import importlib
import json
from pathlib import Path
from types import ModuleType

import polars as pl
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("kept")


def folder(path: Path, mae: dict[tuple[float | None, int], float]) -> Path:
    """A results folder with one row and one curve for each budget and run."""
    keys: dict[str, object] = {"split": "temporal", "period": "2020-11", "method": "federated"}
    rows = [keys | {"epsilon": e, "run": run, "stratum": "all", "mae": value}
            for (e, run), value in mae.items()]  # fmt: skip
    path.mkdir()
    runs = pl.DataFrame(rows, schema_overrides={"epsilon": pl.Float64, "run": pl.Int32})
    runs.write_parquet(path / "runs.parquet")
    curves = runs.drop("stratum", "mae").with_columns(round=pl.lit(5), test_mape=pl.lit(1.0))
    curves.write_parquet(path / "convergence.parquet")
    return path


def test_runs_are_added_to_those_kept_before_and_newer_ones_replace_older(
    kept: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "RESULTS", tmp_path / "results")
    first = folder(tmp_path / "a", {(2.0, 0): 1.5, (2.0, 1): 2.5, (None, 0): 3.0})
    second = folder(tmp_path / "b", {(2.0, 1): 4.5, (0.3, 0): 5.0})
    kept.keep_runs("some", [first])
    kept.keep_runs("some", [second])
    rows = kept.kept_runs("some").select("epsilon", "run", "mae").rows()
    assert sorted(rows, key=str) == sorted(
        [(None, 0, 3.0), (0.3, 0, 5.0), (2.0, 0, 1.5), (2.0, 1, 4.5)], key=str
    )
    assert len(kept.kept_runs("some", "convergence")) == 4


def test_the_table_of_communities_is_that_of_the_kept_runs(kept: ModuleType) -> None:
    communities = importlib.import_module("communities")
    table = json.loads((BENCHMARKS / "results" / "communities.json").read_text())["real"]
    assert communities.paper_table()["rows"] == table["rows"]


def test_kept_runs_are_small() -> None:
    files = list((BENCHMARKS / "results").glob("*.parquet"))
    assert files and sum(path.stat().st_size for path in files) < 1_000_000


def test_the_summary_is_of_the_results_it_summarises(kept: ModuleType) -> None:
    skill = importlib.import_module("summary").skill()
    stored = json.loads((kept.RESULTS / "summary.json").read_text())["skill"]
    assert stored["rows"] == json.loads(json.dumps(skill["rows"])), "run benchmarks/summary.py"
