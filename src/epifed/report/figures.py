"""Figures of trainings: privacy against utility, convergence, and the ones commands draw."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from epifed.evaluate.metrics import METRICS
from epifed.evaluate.results import TRAINED, summary
from epifed.report.data_figures import zero_entries
from epifed.report.drawing import (
    PERIOD_COLOURS,
    PERSISTENCE_COLOUR,
    WIDTH,
    band,
    colour,
    log_scale,
    log_ticks,
    panel_title,
    period_title,
    places,
    save,
    scatter,
    style,
)
from epifed.report.result_figures import predicted_against_true
from epifed.report.tables import budget, published

if TYPE_CHECKING:
    from epifed.clients import Clients
    from epifed.training import Training

__all__ = [
    "by_level",
    "convergence",
    "losses",
    "plot",
    "predicted_against_true",
    "privacy_utility",
    "save",
    "zero_entries",
]

UTILITY_METRICS = ("mse", "mae", "mape")
"""Those of the paper's Fig. 8."""
CONVERGENCE_EPSILONS = (0.5, 1.0, 2.0, math.inf)
"""Those of the paper's Fig. 9."""


def privacy_utility(runs: pl.DataFrame) -> Figure:
    """Error against ε on log axes, the non-private end at the right (the paper's Fig. 8).

    Bands are one standard deviation over the runs, dashed lines are persistence on the same
    windows, hollow circles the paper's S1 table where the period is one of the paper's.
    """
    means = summary(runs)
    splits = means["split"].unique(maintain_order=True).to_list()
    paper = published().filter(pl.col("table") == "s1")
    letters = iter("ABCDEFGHI")
    with style():
        figure, grid = plt.subplots(
            len(splits),
            len(UTILITY_METRICS),
            figsize=(WIDTH, 0.7 + 2.2 * len(splits)),
            squeeze=False,
            sharex="col",
        )
        for split, row in zip(splits, grid, strict=True):
            here = means.filter(pl.col("split") == split)
            for axes, metric in zip(row, UTILITY_METRICS, strict=True):
                for period, period_colour in zip(_periods(here), PERIOD_COLOURS, strict=False):
                    _curve(axes, here.filter(pl.col("period") == period), metric, period_colour)
                    dots = paper.filter((pl.col("period") == period) & (pl.col("metric") == metric))
                    if len(dots):
                        axes.plot(
                            places(dots["epsilon"].to_list()), dots["published_mean"].to_list(),
                            "o", markersize=5, markerfacecolor="none", color=period_colour,
                            label=f"{period_title(period)}, paper's S1",
                        )  # fmt: skip
                axes.set(ylabel=METRICS[metric].axis)
                log_scale(axes)
                panel_title(axes, next(letters), f"{METRICS[metric].label}, {split} split")
                _budget_axis(axes, here)
                log_ticks(axes)
        for axes in grid[-1]:
            axes.set_xlabel("privacy budget ε")
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(_periods(means)))
    return figure


def convergence(curves: pl.DataFrame, epsilons: Sequence[float] | None = None) -> Figure:
    """Test MAPE over the rounds, mean and standard deviation over the runs (the paper's Fig. 9).

    A row for each split, a column for each period; without `epsilons`, the paper's.
    """
    shown = _convergence_budgets(curves) if epsilons is None else sorted(epsilons)
    with style():
        figure, cells = _rounds_grid(curves)
        for axes, here in cells:
            for epsilon in shown:
                line = _over_rounds(here, epsilon, "test_mape")
                label = f"ε = {budget(epsilon)}"
                band(axes, line["round"].to_list(), line, label, colour(epsilon))
            axes.set(ylabel=f"test {METRICS['mape'].axis}")
            log_scale(axes)
        _finish_rounds(figure, len(shown))
    return figure


def losses(curves: pl.DataFrame, epsilons: Sequence[float] | None = None) -> Figure:
    """Train (solid) against test (dotted) loss over the rounds, mean and spread over the runs."""
    shown = _convergence_budgets(curves) if epsilons is None else sorted(epsilons)
    with style():
        figure, cells = _rounds_grid(curves)
        for axes, here in cells:
            for epsilon in shown:
                name = f"ε = {budget(epsilon)}"
                train = _over_rounds(here, epsilon, "train_mse")
                rounds = train["round"].to_list()
                band(axes, rounds, train, f"{name}, train", colour(epsilon))
                test = _over_rounds(here, epsilon, "test_mse")
                axes.plot(
                    rounds, test["mean"].to_numpy(), color=colour(epsilon), linestyle=":",
                    marker="o", markerfacecolor="white", label=f"{name}, test",
                )  # fmt: skip
            axes.set(ylabel=METRICS["mse"].axis)
            log_scale(axes)
        _finish_rounds(figure, len(shown))
    return figure


def _convergence_budgets(curves: pl.DataFrame) -> list[float]:
    """The paper's budgets for curves over rounds, or all if these results have none of them."""
    found = sorted(curves["epsilon"].drop_nulls().unique())
    return [e for e in CONVERGENCE_EPSILONS if e in found] or found


def _rounds_grid(curves: pl.DataFrame) -> tuple[Figure, list[tuple[Axes, pl.DataFrame]]]:
    """Axes over the rounds for each split and period, with their part of the curves."""
    splits = curves["split"].unique(maintain_order=True).to_list()
    periods = curves["period"].unique(maintain_order=True).to_list()
    wide = WIDTH if len(periods) > 1 else 0.65 * WIDTH
    figure, grid = plt.subplots(
        len(splits), len(periods), figsize=(wide, 0.5 + 2.3 * len(splits)), squeeze=False,
        sharex=True,
    )  # fmt: skip
    cells = []
    pairs = [(split, period) for split in splits for period in periods]
    for axes, letter, (split, period) in zip(grid.flat, "ABCDEFGHIJKL", pairs, strict=False):
        title = f"{period_title(period)}, {split} split"
        if len(pairs) > 1:
            panel_title(axes, letter, title)
        else:
            axes.set_title(title)
        cells.append((axes, curves.filter(split=split, period=period)))
    return figure, cells


def _finish_rounds(figure: Figure, columns: int) -> None:
    """What all figures over rounds have: the axis below, one y label a row, one legend."""
    for axes in figure.axes:
        place = axes.get_subplotspec()
        assert place is not None
        if place.is_last_row():
            axes.set_xlabel("federated round")
        if not place.is_first_col():
            axes.set_ylabel("")
        log_ticks(axes)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(columns, 5))


def _over_rounds(curves: pl.DataFrame, epsilon: float, column: str) -> pl.DataFrame:
    """Mean and standard deviation over the runs of one budget, round by round."""
    return (
        curves.filter(pl.col("epsilon") == epsilon)
        .group_by("round")
        .agg(pl.col(column).mean().alias("mean"), pl.col(column).std().alias("std"))
        .sort("round")
    )


def by_level(levels: dict[str, pl.DataFrame]) -> Figure:
    """MASE against ε for several results of one epidemic: counties, communities, drawn ones.

    The error is relative to persistence at the same level, so that levels can be compared.
    """
    with style():
        figure, axes = plt.subplots(figsize=(6.4, 3.6))
        for (label, runs), line_colour in zip(levels.items(), PERIOD_COLOURS, strict=False):
            federated = summary(runs).filter(TRAINED).sort("epsilon")
            line = federated.select(
                pl.col("mase_mean").alias("mean"), pl.col("mase_std").alias("std")
            )
            band(axes, places(federated["epsilon"].to_list()), line, label, line_colour)
        axes.axhline(
            1.0, linestyle="--", linewidth=1, color=PERSISTENCE_COLOUR, label="persistence"
        )
        axes.set(xlabel="privacy budget ε", ylabel="mean absolute error / persistence's")
        log_scale(axes)
        budgets = sorted({e for runs in levels.values() for e in runs["epsilon"].drop_nulls()})
        axes.set_xscale("log")
        axes.set_xticks(places(budgets), [budget(e) for e in budgets])
        axes.minorticks_off()
        axes.legend()
    return figure


def plot(training: "Training", clients: "Clients") -> Figure:
    """Predicted against true on the test windows, persistence beside the training."""
    truth = clients.test.targets
    epsilon = training.settings.epsilon
    with style():
        figure, (left, right) = plt.subplots(1, 2, figsize=(6.4, 3.2), sharey=True)
        like_today = clients.test.inputs[..., -1]
        scatter(left, truth, like_today, "persistence", PERSISTENCE_COLOUR)
        predicted = training.predict(clients.test.inputs)
        scatter(right, truth, predicted, f"federated, ε = {budget(epsilon)}", colour(epsilon))
        left.set_ylabel("predicted cases per day")
    return figure


def _periods(means: pl.DataFrame) -> list[str]:
    return sorted(means["period"].unique())


def _budget_axis(axes: Axes, means: pl.DataFrame) -> None:
    budgets = means["epsilon"].drop_nulls().unique().sort().to_list()
    common = [e for e in budgets if e in (0.2, 0.5, 1.0, 2.0, 5.0, math.inf)]
    shown = common if common and len(budgets) > 6 else budgets
    axes.set_xscale("log")
    axes.set_xticks(places(shown), [budget(e) for e in shown])
    axes.minorticks_off()


def _curve(axes: Axes, means: pl.DataFrame, metric: str, period_colour: str) -> None:
    period = period_title(means["period"][0])
    federated = means.filter(TRAINED).sort("epsilon")
    line = federated.select(
        pl.col(f"{metric}_mean").alias("mean"), pl.col(f"{metric}_std").alias("std")
    )
    band(axes, places(federated["epsilon"].to_list()), line, f"{period}, federated", period_colour)
    persistence = means.filter(pl.col("method") == "persistence")[f"{metric}_mean"]
    if len(persistence):
        axes.axhline(
            persistence[0], linestyle="--", linewidth=1, color=period_colour,
            label=f"{period}, persistence",
        )  # fmt: skip
