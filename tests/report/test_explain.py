"""What `epifed explain` says about a result."""

import json
import math
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

from epifed.cli import report as command
from epifed.errors import EpifedError
from epifed.evaluation.experiment import Grid, run_grid
from epifed.explain import explain
from epifed.privacy.accounting import spent
from epifed.training.loop import train
from tests.helpers import START, small_clients, small_panel, small_settings


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    panel = small_panel()
    grid = Grid(
        settings=small_settings(rounds=2, epochs=1),
        splits=("temporal",),
        periods={"all": (START, panel.end)},
        epsilons=(2.0, math.inf),
        runs=3,
        baseline_runs=1,
    )
    out = tmp_path_factory.mktemp("result") / "out"
    run_grid(panel, grid, out, workers=1)
    return out


def test_trainings_that_split_anew_are_counted_once(tmp_path: Path) -> None:
    panel = small_panel()
    grid = Grid(
        settings=small_settings(rounds=2, epochs=1),
        splits=("temporal", "shuffled"),
        periods={"all": (START, panel.end)},
        epsilons=(2.0,),
        runs=3,
        baseline_runs=1,
        resplit=True,
    )
    run_grid(panel, grid, tmp_path / "out", workers=1)
    found = explain(tmp_path / "out")
    assert (found.trainings, found.private_trainings) == (6, 6)
    (budget,) = found.budgets
    # Six trainings of two rounds cost as one of twelve.
    assert found.composed_epsilon == pytest.approx(
        spent(budget.spent.noise_multiplier, 0.5, 12, found.delta)
    )
    runs = pl.read_parquet(tmp_path / "out" / "runs.parquet").filter(pl.col("stratum") == "all")
    ratios = []
    for split in ("temporal", "shuffled"):
        here = runs.filter(split=split)
        like_today = here.filter(method="persistence").sort("run")["mae"]
        trained = here.filter(method="federated").sort("run")["mae"]
        ratios += [trained[i] / like_today[i if split == "shuffled" else 0] for i in range(3)]
    assert budget.error_over_persistence == pytest.approx(sum(ratios) / 6)


def test_a_directory(result: Path) -> None:
    found = explain(result)
    assert (found.trainings, found.private_trainings, found.clients) == (6, 3, 12)
    private, plain = found.budgets
    assert private.right_at_most == pytest.approx(0.8808, abs=1e-4)
    assert 0.5 < private.right_at_most_with_this_noise < private.right_at_most
    assert plain.right_at_most == 1
    # Three trainings of two rounds cost as one of six.
    assert found.composed_epsilon == pytest.approx(
        spent(private.spent.noise_multiplier, 0.5, 6, found.delta)
    )
    runs = pl.read_parquet(result / "runs.parquet").filter(pl.col("stratum") == "all")
    mae = {
        method: runs.filter((pl.col("method") == method) & (pl.col("epsilon").fill_null(2) == 2))[
            "mae"
        ]
        for method in ("federated", "persistence")
    }
    ratio = float((mae["federated"] / mae["persistence"][0]).mean())
    assert private.error_over_persistence == pytest.approx(ratio)
    text = " ".join(found.sentences())
    for words in (
        "6 trainings with 12 clients; 3 trainings with differential privacy",
        "ε = 2 at δ = 1e-05",
        "is right at most 88.1 % of the time",
        "'add or remove one client'",
        "accountant is RDP",
        "all 3 private trainings cost ε = ",
        "NOT for release",
        "no forecast uses data after its day",
        "whether that was done is not recorded",
        "that of persistence",
        "ε = ∞ (3 trainings): no privacy",
    ):
        assert words in text


def test_a_release_file(tmp_path: Path) -> None:
    settings = small_settings(rounds=2, epochs=1, smoothing="centered")
    days = (START, START + timedelta(days=30))
    training = train(small_clients(settings).view, settings, secure=True, period=days)
    path = tmp_path / "model.epifed"
    assert training.release is not None
    training.release.write(path)
    found = explain(path)
    assert found.secure
    assert found.trainings == 1
    text = " ".join(found.sentences())
    assert "fit for release" in text
    assert "looks three days ahead" in text
    assert "Every further training on the same clients spends more ε" in text
    assert "Not verified against a ledger" in text


def test_the_command(result: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command.explain(result, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["private_trainings"] == 3
    assert found["budgets"][1]["epsilon"] == "inf"
    assert found["looks_ahead"] is False
    command.explain(result)
    assert found["sentences"][0] in capsys.readouterr().out


def test_refuses_what_is_no_result(result: Path, tmp_path: Path) -> None:
    with pytest.raises(EpifedError, match="no such file or directory"):
        explain(tmp_path / "nothing")
    with pytest.raises(EpifedError, match="found no results"):
        explain(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(EpifedError, match="expected JSON"):
        explain(tmp_path)
    (tmp_path / "manifest.json").write_bytes((result / "manifest.json").read_bytes())
    (tmp_path / "settings.toml").write_text("")
    with pytest.raises(EpifedError, match=r"settings\.toml: found other settings"):
        explain(tmp_path)
    (tmp_path / "settings.toml").write_bytes((result / "settings.toml").read_bytes())
    with pytest.raises(EpifedError, match=r"runs\.parquet: cannot be read"):
        explain(tmp_path)
    (tmp_path / "release").write_text("no release")
    with pytest.raises(EpifedError, match="expected a release by 'epifed train'"):
        explain(tmp_path / "release")
