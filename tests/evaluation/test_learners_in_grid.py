"""Other learners through the grid and the commands: their label, their settings, their figure."""

from pathlib import Path

import polars as pl
import pytest

from epifed import paper
from epifed.cli.common import SettingsRequest
from epifed.evaluation.experiment import Grid, run_grid
from epifed.evaluation.results_folder import TRAINED
from epifed.settings import Settings, read_settings
from tests.commands import epifed, refused
from tests.helpers import START, small_panel


def small_grid(**changes: object) -> Grid:
    days = (START, small_panel().end)
    values: dict[str, object] = {
        "settings": Settings.for_learner("one-shot", 12),
        "periods": {"2020-11": days, "2022-03": days},
        "epsilons": (0.1, 1.0, float("inf")),
        "runs": 3,
        "baselines": ("persistence",),
    }
    return Grid.model_validate(values | changes)


def persistence(runs: pl.DataFrame, split: str) -> pl.Series:
    return runs.filter(
        pl.col("method") == "persistence", pl.col("split") == split,
        pl.col("stratum") == "all", pl.col("period") == "2020-11",
    )["mae"]  # fmt: skip


def test_each_run_may_shuffle_anew_and_persistence_with_it(tmp_path: Path) -> None:
    once = run_grid(small_panel(), small_grid(), tmp_path, workers=1).runs
    anew = run_grid(small_panel(), small_grid(resplit=True), tmp_path, workers=1).runs
    assert len(persistence(once, "shuffled")) == 1
    assert persistence(anew, "shuffled").n_unique() == 3
    assert persistence(anew, "temporal").to_list() == persistence(once, "temporal").to_list()
    for frame in (once, anew):
        assert set(frame.filter(TRAINED)["method"]) == {"one-shot"}


def test_the_figure_has_two_panels_for_each_cell(tmp_path: Path) -> None:
    runs = run_grid(small_panel(), small_grid(), tmp_path, workers=1).runs
    drawn = paper.small_budgets(runs, ["somebody"])
    assert len(drawn.axes) == 8
    for axes in drawn.axes:
        labels = {line.get_label() for line in axes.get_lines()}
        assert labels == {"the paper", "one-shot", "persistence"}


def test_run_with_another_learner_needs_no_other_setting(tmp_path: Path) -> None:
    data = tmp_path / "cases.csv"
    frame = small_panel().to_long().rename({"day": "date"})
    frame.with_columns(pl.col("cases").cast(pl.Int64)).write_csv(data)
    out = tmp_path / "out"
    done = epifed("run", "--data", str(data), "--out", str(out), "--learner", "one-shot",
                  "--epsilon", "0.1", "--runs", "2", "--workers", "1", expect=0)  # fmt: skip
    assert "one-shot" in done.stdout
    assert "persistence" in done.stdout
    assert "PLD" in done.stdout
    used = read_settings(out / "settings.toml")
    assert (used.rounds, used.clients_per_round, used.clip_norm) == (1, 12, 0.1)
    assert used.learner == "one-shot"
    epifed("run", "--data", str(data), "--out", str(tmp_path / "two"), "--model",
           "scale-free linear", "--epsilon", "1", "--runs", "1", "--workers", "1",
           expect=0)  # fmt: skip
    used = read_settings(tmp_path / "two" / "settings.toml")
    assert (used.learner, used.rounds, used.clients_per_round) == ("fedavg", 5, 12)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "--learner", "magic"], "learner: found 'magic'; expected one of fedavg, one-shot"),
        (["run", "--model", "forest"], "model: found 'forest'; expected one of mlp, linear, gru"),
        (
            ["run", "--settings", "x.toml", "--learner", "one-shot"],
            "x.toml: cannot be read",
        ),
    ],
)
def test_a_mistake_is_one_sentence(arguments: list[str], words: str, tmp_path: Path) -> None:
    assert words in refused(*arguments, "--out", str(tmp_path / "out"))


def test_a_learner_given_beside_a_file_wins_over_it_and_brings_its_preset(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text('learner = "trend"\nepsilon = 0.4\nclip_norm = 0.2\n')
    used = SettingsRequest(file, learner="one-shot", seed=None).settings(12)
    assert (used.learner, used.epsilon, used.clip_norm, used.seed) == ("one-shot", 0.4, 0.2, 0)
    assert (used.rounds, used.clients_per_round) == (1, 12)
    file.write_text("epochs = 3\n")
    words = refused("run", "--settings", str(file), "--learner", "one-shot")
    assert "my.toml: epochs: not a setting; expected one of" in words


def test_reproduce_with_another_learner_draws_it_beside_the_paper(
    tmp_path: Path, real_data: Path
) -> None:
    out = tmp_path / "r"
    epifed("reproduce", "--data", str(real_data), "--out", str(out), "--learner", "one-shot",
           "--runs", "2", "--epsilon", "0.1", "--epsilon", "inf", "--period", "2020-11",
           "--resplit", "--workers", "1", expect=0)  # fmt: skip
    assert (out / "small_epsilon.png").stat().st_size > 10_000
    compared = pl.read_csv(out / "comparison.csv")
    assert set(compared["epsilon"]) == {float("inf")}
    assert compared["mean"].is_not_null().all()
