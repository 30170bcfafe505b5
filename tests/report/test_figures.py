import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from matplotlib import pyplot as plt

from epifed.evaluation.experiment import run_grid
from epifed.evaluation.results_folder import Results
from epifed.report import drawing, figures
from tests.evaluation.test_experiment import small_grid
from tests.helpers import small_panel
from tests.report.test_tables import fake_runs


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    grid = small_grid(splits=("temporal",))
    return run_grid(small_panel(), grid, tmp_path_factory.mktemp("grid"), workers=1)


def values(data: object) -> list[float]:
    return [float(v) for v in np.asarray(data).ravel()]


def test_privacy_utility_shows_every_budget_persistence_and_the_paper() -> None:
    figure = figures.privacy_utility(fake_runs())
    titles = [a.get_title(loc="left").split("$  ")[-1] for a in figure.axes[::3]]
    assert titles == ["MSE, shuffled split", "MSE, temporal split"]
    first = figure.axes[0]
    lines = {line.get_label(): line for line in first.lines}
    assert values(lines["November 2020, federated"].get_xdata()) == [2.0, 10.0]
    assert values(lines["November 2020, federated"].get_ydata()) == [3.5, 0.5]
    assert set(values(lines["November 2020, persistence"].get_ydata())) == {1.0}
    assert len(values(lines["November 2020, paper's S1"].get_xdata())) == 11
    assert first.get_xscale() == first.get_yscale() == "log"
    assert [t.get_text() for t in figure.axes[3].get_xticklabels()] == ["2", "∞"]
    plt.close(figure)


def test_convergence_has_a_curve_for_each_budget(results: Results) -> None:
    figure = figures.convergence(results.convergence, [1.0, math.inf])
    titles = [a.get_title(loc="left").split("$  ")[-1] for a in figure.axes]
    assert titles == ["one, temporal split", "two, temporal split"]
    for axes in figure.axes:
        assert [line.get_label() for line in axes.lines] == ["ε = 1", "ε = ∞"]
        assert values(axes.lines[0].get_xdata()) == [0, 2, 4]
    plt.close(figure)


def test_predicted_against_true_has_a_panel_for_each_budget(results: Results) -> None:
    figure = figures.predicted_against_true(results.predictions, "temporal", "one")
    titles = [a.get_title(loc="left").split("$  ")[-1] for a in figure.axes]
    assert titles[:-1] == ["persistence", "ε = 1", "ε = ∞"]
    own = results.predictions.filter(
        (pl.col("period") == "one") & (pl.col("method") == "federated") & (pl.col("epsilon") == 1.0)
    )
    assert len(values(figure.axes[1].collections[0].get_offsets())) == 2 * len(own)
    plt.close(figure)


def test_levels_are_drawn_relative_to_persistence() -> None:
    runs = fake_runs().filter(split="temporal")
    figure = figures.by_level({"county": runs, "community": runs})
    (axes,) = figure.axes
    lines = {line.get_label(): line for line in axes.lines}
    assert values(lines["county"].get_ydata()) == [3.5, 0.5]
    assert set(values(lines["persistence"].get_ydata())) == {1.0}
    assert [t.get_text() for t in axes.get_xticklabels()] == ["2", "∞"]
    plt.close(figure)


def test_zero_entries_has_two_panels_a_period() -> None:
    table = pl.DataFrame(
        {"zeros": [0, 1], "samples": [3, 5], "share": [0.375, 0.625],
         "population_q1": [10.0, None], "population_median": [20.0, None],
         "population_q3": [40.0, None]}
    )  # fmt: skip
    figure = figures.zero_entries({"2020-11": table, "2022-03": table})
    assert len(figure.axes) == 4
    assert [bar.get_height() for bar in figure.axes[0].patches] == [3, 5]  # type: ignore[attr-defined]
    assert figure.axes[3].get_yscale() == "log"
    plt.close(figure)


def test_a_budget_has_one_colour_and_another_budget_another() -> None:
    assert drawing.colour(2.0) == drawing.colour(2.0)
    assert len({drawing.colour(e) for e in (0.2, 0.5, 1.0, 2.0, 5.0, math.inf)}) == 6


def test_save_writes_the_kind_the_name_says(tmp_path: Path) -> None:
    figure = figures.privacy_utility(fake_runs())
    figures.save(figure, tmp_path / "a.png", tmp_path / "a.pdf")
    for name, start in (("a.png", b"\x89PNG"), ("a.pdf", b"%PDF")):
        assert (tmp_path / name).read_bytes().startswith(start)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.pdf", "a.png"]
