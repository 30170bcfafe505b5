"""The whole range of budgets beside the paper's curve and persistence, down to ε = 0.05."""

import math
from collections.abc import Sequence

import matplotlib.pyplot as plt
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from epifed.evaluate.metrics import METRICS
from epifed.evaluate.results import TRAINED, summary
from epifed.report.drawing import (
    PERIOD_COLOURS,
    PERSISTENCE_COLOUR,
    WIDTH,
    band,
    credit,
    panel_title,
    period_title,
    places,
    style,
)
from epifed.report.tables import published

TABLE_OF = {"shuffled": "main", "temporal": "s1"}
"""The paper's table whose numbers each split reproduces (docs/reproduction.md)."""
TICKS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, math.inf)
ROWS = ("mape", "r2")
LEAST_R2 = 0.7
"""Where the axis of R² ends: the paper's goes down to minus millions."""


def figure(runs: pl.DataFrame, attribution: Sequence[str] = ()) -> Figure:
    """A column for each period and split: MAPE in full, and R² where it is worth something."""
    means = summary(runs)
    cells = means.select("period", "split").unique(maintain_order=True).sort("period", "split")
    with style():
        drawn, grid = plt.subplots(
            2, len(cells), figsize=(WIDTH, 4.6), sharex=True, sharey="row", squeeze=False
        )
        letters = iter("ABCDEFGH")
        for i, metric in enumerate(ROWS):
            for j, (period, split) in enumerate(cells.rows()):
                axes = grid[i, j]
                here = means.filter((pl.col("period") == period) & (pl.col("split") == split))
                _panel(axes, here, metric, period, split)
                panel_title(axes, next(letters), f"{period_title(period)}\n{split} split")
            grid[i, 0].set_ylabel(METRICS[metric].axis)
        for axes in grid[-1]:
            axes.set_xlabel("ε")
        handles, labels = grid[0, 0].get_legend_handles_labels()
        drawn.legend(handles, labels, loc="outside upper center", ncols=4)
        credit(drawn, attribution)
    return drawn


def _panel(axes: Axes, means: pl.DataFrame, metric: str, period: str, split: str) -> None:
    theirs = published().filter(
        (pl.col("table") == TABLE_OF[split])
        & (pl.col("period") == period)
        & (pl.col("metric") == metric)
    )
    lines = {"the paper": theirs.rename({"published_mean": "mean", "published_std": "std"})}
    trained = means.filter(TRAINED).rename({f"{metric}_mean": "mean", f"{metric}_std": "std"})
    for method in trained["method"].unique(maintain_order=True):
        lines[method] = trained.filter(pl.col("method") == method)
    like_today = means.filter(pl.col("method") == "persistence")[f"{metric}_mean"]
    for (name, line), colour in zip(lines.items(), reversed(PERIOD_COLOURS), strict=False):
        ordered = line.sort("epsilon")
        if len(ordered):
            x = places(ordered["epsilon"].to_list())
            band(
                axes,
                x,
                ordered,
                name,
                colour,
                most=METRICS[metric].best if metric == "r2" else None,
            )
    for level in like_today:
        axes.axhline(
            level,
            color=PERSISTENCE_COLOUR, linestyle="--", linewidth=1, label="persistence",
        )  # fmt: skip
    axes.set_xscale("log")
    if metric == "r2":
        axes.set_ylim(LEAST_R2, 1.0)
    else:
        axes.set_yscale("log")
    names = dict(zip(places(TICKS), TICKS, strict=True))
    axes.set_xticks(list(names))
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda x, _: "∞" if math.isinf(names.get(x, 0)) else f"{x:g}")
    )
    axes.xaxis.set_minor_locator(NullLocator())
    axes.tick_params(axis="x", labelsize=6)
