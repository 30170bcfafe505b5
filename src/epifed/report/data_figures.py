"""Figures of the data: who lives where, what is zero, how the epidemic ran."""

from collections.abc import Mapping, Sequence
from datetime import date

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from epifed.panel import CasePanel
from epifed.report.drawing import (
    PERIOD_COLOURS,
    THOUSANDS,
    WIDTH,
    credit,
    date_axis,
    panel_title,
    period_title,
    style,
)
from epifed.windows import smooth

MEDIAN_COLOUR, MEAN_COLOUR = "#B2182B", "#E69F00"
DAILY_COLOUR, AVERAGE_COLOUR = "#0072B2", "#E69F00"
MOST_BINS = 40


def populations(levels: Mapping[str, NDArray[np.int64]], attribution: Sequence[str] = ()) -> Figure:
    """Distribution of population sizes at each level, median and mean marked (Fig. 1)."""
    with style():
        figure, row = plt.subplots(
            1, len(levels), figsize=(WIDTH * max(len(levels), 1.3) / 2, 3.0), squeeze=False
        )
        for axes, letter, (level, people) in zip(row[0], "ABCD", levels.items(), strict=False):
            low, high = people.min(), people.max()
            count = min(MOST_BINS, max(6, round(2 * len(people) ** 0.5)))
            bins = np.geomspace(low, max(high, low + 1), count + 1).tolist()
            axes.hist(people, bins=bins, color=PERIOD_COLOURS[0], edgecolor="white", linewidth=0.3)
            for name, value, line_colour, dashes in (
                ("median", np.median(people), MEDIAN_COLOUR, "-"),
                ("mean", people.mean(), MEAN_COLOUR, "--"),
            ):
                axes.axvline(
                    value, color=line_colour, linestyle=dashes, linewidth=1.6,
                    label=f"{name} {value:,.0f}",
                )  # fmt: skip
            axes.set(xscale="log", xlabel="inhabitants", ylabel=f"number of {level}")
            axes.xaxis.set_major_formatter(THOUSANDS)
            axes.yaxis.set_major_locator(MaxNLocator(integer=True))
            axes.yaxis.set_major_formatter(THOUSANDS)
            panel_title(axes, letter, f"{len(people):,} {level}", pad=16)
            axes.legend(
                loc="lower left", bbox_to_anchor=(0, 1), ncols=2, handlelength=1.4, borderaxespad=0
            )
        credit(figure, attribution)
    return figure


def zero_entries(periods: Mapping[str, pl.DataFrame], attribution: Sequence[str] = ()) -> Figure:
    """Samples by their number of zeros, and the population behind them (the paper's Fig. 3)."""
    letters = iter("ABCDEFGHIJKLMNOP")
    with style():
        figure, grid = plt.subplots(
            len(periods), 2, figsize=(WIDTH, 0.4 + 2.3 * len(periods)), squeeze=False
        )
        for (period, table), (left, right) in zip(periods.items(), grid, strict=True):
            zeros = table["zeros"].to_list()
            left.bar(zeros, table["samples"].to_list(), color=PERIOD_COLOURS[0])
            left.set(ylabel="number of samples", xticks=zeros)
            left.yaxis.set_major_formatter(THOUSANDS)
            panel_title(left, next(letters), period_title(period))
            found = table.drop_nulls("population_median")
            middle = found["population_median"].to_numpy()
            right.errorbar(
                found["zeros"].to_list(), middle, fmt="o", capsize=2, color=PERIOD_COLOURS[1],
                yerr=[middle - found["population_q1"].to_numpy(),
                      found["population_q3"].to_numpy() - middle],
            )  # fmt: skip
            right.set(ylabel="inhabitants (median, quartiles)", yscale="log", xticks=zeros)
            right.yaxis.set_major_formatter(THOUSANDS)
            panel_title(right, next(letters), period_title(period))
            for axes in (left, right):
                axes.set_xlabel(f"zeros among a sample's {len(zeros) - 2} inputs and its target")
        credit(figure, attribution)
    return figure


def daily_counts(axes: Axes, panel: CasePanel, days: tuple[date, date]) -> None:
    """The sum of all regions day by day, with its centered 7-day average."""
    first, last = days
    shown = panel.between(first, last)
    offset = panel.index(shown.start)
    total = panel.counts.sum(axis=0, keepdims=True)
    average = smooth(total, "centered")[0, offset : offset + len(shown.days)]
    dates = np.array(shown.days, dtype="datetime64[D]")
    bars = axes.bar(
        dates, shown.counts.sum(axis=0), width=0.8, color=DAILY_COLOUR, alpha=0.55, linewidth=0,
        label="daily counts",
    )  # fmt: skip
    (line,) = axes.plot(dates, average, color=AVERAGE_COLOUR, linewidth=2, label="7-day average")
    axes.legend(handles=[bars, line], loc="upper left", ncols=2)
    axes.set_ylabel("new cases a day")
    axes.margins(x=0.01)
    axes.set_ylim(bottom=0, top=axes.get_ylim()[1] * 1.2)
    axes.yaxis.set_major_formatter(THOUSANDS)
    date_axis(axes)
