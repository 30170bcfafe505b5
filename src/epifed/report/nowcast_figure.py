"""One region's last two weeks: what is known, what is still to come, and R(t)."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from epifed.intervals import LEVELS
from epifed.nowcast import SHOWN_DAYS
from epifed.report.drawing import PERIOD_COLOURS, THOUSANDS, credit, date_axis, panel_title, style
from epifed.reproduction import Reproduction
from epifed.situation import BAND, Situation

KNOWN, SHADE = "#bbbbbb", "#abcfe6"


def nowcast_figure(
    name: str,
    row: int,
    found: Situation,
    attribution: tuple[str, ...] = (),
) -> Figure:
    """Cases by reporting date and, where there are any, by onset, and R of the week to each day."""
    reported, onsets = found.reported, found.onsets
    panels = 2 if onsets is None else 3
    with style():
        figure, axes = plt.subplots(1, panels, figsize=(4.2 * panels, 3.4), squeeze=False)
        low, high = (reported.quantiles[row, :, LEVELS.index(level)] for level in BAND)
        panel_title(axes[0, 0], "A", f"{name}: by reporting date")
        _cases(axes[0, 0], reported.days, reported.known[row], reported.point[row], low, high)
        if onsets is not None:
            shown = slice(-SHOWN_DAYS, None)
            draws = onsets.draws[:, row, shown]
            low, middle, high = np.quantile(draws, (BAND[0], 0.5, BAND[1]), axis=0)
            panel_title(axes[0, 1], "B", "by date of onset")
            _cases(
                axes[0, 1],
                onsets.days[shown],
                onsets.imputed[row, shown],
                middle,
                low,
                high,
            )
        _number(axes[0, -1], "ABC"[panels - 1], found.number, row)
        axes[0, 0].legend(loc="best")
        credit(figure, attribution)
    return figure


def _cases(
    axes: Axes, days: Any, known: Any, estimate: Any, low: NDArray[Any], high: NDArray[Any]
) -> None:
    at = np.array(days, dtype="datetime64[D]")
    axes.bar(at, known, color=KNOWN, width=0.9, label="known so far")
    axes.fill_between(at, low, high, color=SHADE, alpha=0.6, linewidth=0, label="95 % interval")
    axes.plot(at, estimate, color=PERIOD_COLOURS[0], marker=".", label="estimate")
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(THOUSANDS)
    axes.set_ylabel("cases per day")
    date_axis(axes, from_the_first=False)


def _number(axes: Axes, letter: str, number: Reproduction, row: int) -> None:
    at = np.array(number.days, dtype="datetime64[D]")
    lowest, low, middle, high, highest = number.quantiles[row].T
    axes.fill_between(at, lowest, highest, color=SHADE, alpha=0.5, linewidth=0)
    axes.fill_between(at, low, high, color=SHADE, linewidth=0)
    axes.plot(at, middle, color=PERIOD_COLOURS[0])
    axes.axhline(1, color="black", linewidth=0.8, linestyle="--")
    axes.set_ylim(bottom=0)
    axes.set_ylabel("R of the week to that day")
    panel_title(axes, letter, "reproduction number")
    date_axis(axes, from_the_first=False)
