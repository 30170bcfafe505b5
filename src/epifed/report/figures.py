"""Figures from the stored tables. The same colour for the same ε everywhere."""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from epifed.evaluate.results import FEDERATED, summary
from epifed.evaluate.store import write_atomic
from epifed.report.tables import budget, published
from epifed.settings import EPSILONS

if TYPE_CHECKING:
    from epifed.engines.simulation import Training
    from epifed.windows import Clients

Colour = str | tuple[float, float, float, float]
FloatArray = NDArray[np.floating[Any]]

PERIOD_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
PERSISTENCE_COLOUR = "#555555"
LABELS = {"mse": "MSE", "mae": "MAE (cases per day)", "mape": "MAPE (%)"}


def colour(epsilon: float) -> tuple[float, float, float, float]:
    """The colour of a budget: cividis from the strictest to none, safe for the colour-blind."""
    low, high = math.log(min(EPSILONS)), math.log(10.0)
    place = (math.log(min(max(epsilon, min(EPSILONS)), 10.0)) - low) / (high - low)
    red, green, blue, alpha = plt.get_cmap("cividis")(0.9 * place)
    return red, green, blue, alpha


def privacy_utility(runs: pl.DataFrame) -> Figure:
    """Error against ε on log axes, the non-private end at the right (the paper's Fig. 8).

    Bands are one standard deviation over the runs, dashed lines are persistence on the same
    windows, hollow circles the paper's S1 table where the period is one of the paper's.
    """
    means = summary(runs)
    splits = means["split"].unique(maintain_order=True).to_list()
    paper = published().filter(pl.col("table") == "s1")
    with style():
        figure, grid = plt.subplots(
            len(splits), 3, figsize=(9.5, 0.4 + 2.6 * len(splits)), squeeze=False
        )
        for split, row in zip(splits, grid, strict=True):
            here = means.filter(pl.col("split") == split)
            for axes, (metric, label) in zip(row, LABELS.items(), strict=True):
                for period, period_colour in zip(_periods(here), PERIOD_COLOURS, strict=False):
                    _curve(axes, here.filter(pl.col("period") == period), metric, period_colour)
                    dots = paper.filter((pl.col("period") == period) & (pl.col("metric") == metric))
                    if len(dots):
                        axes.plot(
                            _places(dots["epsilon"].to_list()), dots["published_mean"].to_list(),
                            "o", markerfacecolor="none", color=period_colour,
                            label=f"{period}, paper's S1",
                        )  # fmt: skip
                axes.set(yscale="log", xlabel="privacy budget ε", ylabel=label, title=split)
                _budget_axis(axes, here)
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


def convergence(curves: pl.DataFrame, epsilons: Sequence[float]) -> Figure:
    """Test MAPE over the rounds, mean and standard deviation over the runs (the paper's Fig. 9)."""
    federated = curves.filter(pl.col("epsilon").is_in(list(epsilons)))
    cells = federated.select("split", "period").unique(maintain_order=True).rows()
    with style():
        figure, row = plt.subplots(
            1, len(cells), figsize=(1 + 3.4 * len(cells), 3.2), squeeze=False
        )
        for axes, (split, period) in zip(row[0], cells, strict=True):
            for epsilon in sorted(epsilons):
                line = (
                    federated.filter(
                        (pl.col("split") == split)
                        & (pl.col("period") == period)
                        & (pl.col("epsilon") == epsilon)
                    )
                    .group_by("round")
                    .agg(
                        pl.col("test_mape").mean().alias("mean"),
                        pl.col("test_mape").std().alias("std"),
                    )
                    .sort("round")
                )
                _band(
                    axes, line["round"].to_list(), line, f"ε = {budget(epsilon)}", colour(epsilon)
                )
            axes.set(yscale="log", xlabel="federated round", title=f"{period}, {split}")
        row[0, 0].set_ylabel("test MAPE (%)")
        row[0, -1].legend()
    return figure


def predicted_against_true(predictions: pl.DataFrame, split: str, period: str) -> Figure:
    """One panel per budget with the diagonal, persistence first (the paper's Figs. 5 and 6)."""
    here = predictions.filter((pl.col("split") == split) & (pl.col("period") == period))
    panels: list[tuple[str, pl.DataFrame, Colour]] = [
        ("persistence", here.filter(pl.col("method") == "persistence"), PERSISTENCE_COLOUR)
    ]
    budgets = here.filter(pl.col("method") == FEDERATED)["epsilon"].unique().sort().to_list()
    for epsilon in budgets:
        chosen = here.filter((pl.col("method") == FEDERATED) & (pl.col("epsilon") == epsilon))
        panels.append((f"ε = {budget(epsilon)}", chosen, colour(epsilon)))
    with style():
        columns = min(len(panels), 5)
        rows = math.ceil(len(panels) / columns)
        figure, grid = plt.subplots(
            rows, columns, figsize=(2.1 * columns, 2.2 * rows), squeeze=False, sharey=True
        )
        for axes, (title, chosen, panel_colour) in zip(grid.flat, panels, strict=False):
            truth, predicted = chosen["truth"].to_numpy(), chosen["prediction"].to_numpy()
            _scatter(axes, truth, predicted, title, panel_colour)
        for axes in list(grid.flat)[len(panels) :]:
            axes.set_axis_off()
        grid[0, 0].set_ylabel("predicted cases")
        figure.suptitle(f"{period}, {split} split", ha="left", x=0.01)
    return figure


def by_level(levels: dict[str, pl.DataFrame]) -> Figure:
    """MASE against ε for several results of one epidemic: counties, communities, drawn ones.

    The error is relative to persistence at the same level, so that levels can be compared.
    """
    with style():
        figure, axes = plt.subplots(figsize=(6.4, 3.6))
        for (label, runs), line_colour in zip(levels.items(), PERIOD_COLOURS, strict=False):
            federated = summary(runs).filter(pl.col("method") == FEDERATED).sort("epsilon")
            line = federated.select(
                pl.col("mase_mean").alias("mean"), pl.col("mase_std").alias("std")
            )
            _band(axes, _places(federated["epsilon"].to_list()), line, label, line_colour)
        axes.axhline(
            1.0, linestyle="--", linewidth=1, color=PERSISTENCE_COLOUR, label="persistence"
        )
        axes.set(
            yscale="log",
            xlabel="privacy budget ε",
            ylabel="mean absolute error / persistence's",
        )
        budgets = sorted({e for runs in levels.values() for e in runs["epsilon"].drop_nulls()})
        axes.set_xscale("log")
        axes.set_xticks(_places(budgets), [budget(e) for e in budgets])
        axes.minorticks_off()
        axes.legend()
    return figure


def zero_entries(periods: dict[str, pl.DataFrame]) -> Figure:
    """Samples by their number of zeros, and the population behind them (the paper's Fig. 3)."""
    with style():
        figure, grid = plt.subplots(len(periods), 2, figsize=(8, 2.6 * len(periods)), squeeze=False)
        for (period, table), (left, right) in zip(periods.items(), grid, strict=True):
            zeros = table["zeros"].to_list()
            left.bar(zeros, table["samples"].to_list(), color=PERIOD_COLOURS[0])
            left.set(title=f"{period}: samples", ylabel="samples", xticks=zeros)
            found = table.drop_nulls("population_median")
            middle = found["population_median"].to_numpy()
            right.errorbar(
                found["zeros"].to_list(), middle, fmt="o", capsize=2, color=PERIOD_COLOURS[1],
                yerr=[middle - found["population_q1"].to_numpy(),
                      found["population_q3"].to_numpy() - middle],
            )  # fmt: skip
            right.set(title=f"{period}: population, median and quartiles", ylabel="inhabitants",
                      yscale="log", xticks=zeros)  # fmt: skip
            for axes in (left, right):
                axes.set_xlabel("zeros among a sample's 10 inputs and its target")
    return figure


def plot(training: "Training", clients: "Clients") -> Figure:
    """Predicted against true on the test windows, persistence beside the training."""
    truth = clients.test.targets
    epsilon = training.settings.epsilon
    with style():
        figure, (left, right) = plt.subplots(1, 2, figsize=(6.4, 3.2), sharey=True)
        like_today = clients.test.inputs[..., -1]
        _scatter(left, truth, like_today, "persistence", PERSISTENCE_COLOUR)
        predicted = training.predict(clients.test.inputs)
        _scatter(right, truth, predicted, f"federated, ε = {budget(epsilon)}", colour(epsilon))
        left.set_ylabel("predicted cases")
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a figure, its kind told by the name's ending, and close it."""
    write_atomic(path, lambda temporary: figure.savefig(temporary, format=path.suffix[1:]))
    plt.close(figure)


def _scatter(
    axes: Axes, truth: FloatArray, prediction: FloatArray, title: str, dots: Colour
) -> None:
    axes.scatter(truth, prediction, s=3, alpha=0.25, linewidths=0, color=dots, rasterized=True)
    end = float(truth.max()) if truth.size else 1.0
    axes.plot([0, end], [0, end], color="black", linewidth=0.8)
    axes.set_xscale("symlog", linthresh=1)
    axes.set_yscale("symlog", linthresh=1)
    axes.set(title=title, xlabel="true cases")


def style() -> AbstractContextManager[None]:
    """The one style of all figures."""
    with as_file(files("epifed.report").joinpath("epifed.mplstyle")) as path:
        return plt.style.context(path)


def _periods(means: pl.DataFrame) -> list[str]:
    return sorted(means["period"].unique())


def _places(epsilons: Sequence[float]) -> list[float]:
    """Where budgets stand on the axis: at ε, the non-private end at twice the largest of S1."""
    return [
        2 * max(e for e in EPSILONS if math.isfinite(e)) if math.isinf(e) else e for e in epsilons
    ]


def _budget_axis(axes: Axes, means: pl.DataFrame) -> None:
    budgets = means["epsilon"].drop_nulls().unique().sort().to_list()
    shown = [e for e in budgets if e in (0.2, 0.5, 1.0, 2.0, 5.0, math.inf)] or budgets
    axes.set_xscale("log")
    axes.set_xticks(_places(shown), [budget(e) for e in shown])
    axes.minorticks_off()


def _curve(axes: Axes, means: pl.DataFrame, metric: str, period_colour: str) -> None:
    period = means["period"][0]
    federated = means.filter(pl.col("method") == FEDERATED).sort("epsilon")
    line = federated.select(
        pl.col(f"{metric}_mean").alias("mean"), pl.col(f"{metric}_std").alias("std")
    )
    _band(
        axes, _places(federated["epsilon"].to_list()), line, f"{period}, federated", period_colour
    )
    persistence = means.filter(pl.col("method") == "persistence")[f"{metric}_mean"]
    if len(persistence):
        axes.axhline(
            persistence[0], linestyle="--", linewidth=1, color=period_colour,
            label=f"{period}, persistence",
        )  # fmt: skip


def _band(
    axes: Axes,
    x: Sequence[float],
    line: pl.DataFrame,
    label: str,
    line_colour: Colour,
) -> None:
    mean = line["mean"].to_numpy()
    std = line["std"].fill_null(0.0).to_numpy()
    axes.plot(x, mean, marker="o", color=line_colour, label=label)
    axes.fill_between(
        x, np.maximum(mean - std, mean / 10), mean + std, color=line_colour, alpha=0.15, linewidth=0
    )
