"""One region's past weeks and the weeks ahead, with intervals."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from epifed.days import Step
from epifed.forecasting import Forecast
from epifed.intervals import LEVELS
from epifed.panel import CasePanel
from epifed.report.drawing import (
    PERIOD_COLOURS,
    PERSISTENCE_COLOUR,
    THOUSANDS,
    credit,
    date_axis,
    style,
)
from epifed.windows import observed

SHOWN: dict[Step, int] = {"day": 56, "week": 52}
"""Past steps of the figure."""
BANDS = (
    (0.025, 0.975, "95 %", "#d9e8f3"),
    (0.1, 0.9, "80 %", "#abcfe6"),
    (0.25, 0.75, "50 %", "#74afd6"),
)


def forecast_figure(panel: CasePanel, region: str, forecasts: Sequence[Forecast]) -> Figure:
    """Reports, their 7-day average, the forecast of it, and "like today" as a dashed line.

    Of weeks, the counts of each.
    """
    row = panel.regions.index(region)
    shown = min(SHOWN[panel.step], panel.counts.shape[1])
    days = np.array(panel.days[-shown:], dtype="datetime64[D]")
    average = observed(panel.counts, panel.step)[row, -shown:]
    ahead = sorted(forecasts, key=lambda one: one.horizon)
    ends = np.array([panel.end, *(one.target_date for one in ahead)], dtype="datetime64[D]")
    now = float(average[-1])
    with style():
        figure, axes = plt.subplots(figsize=(7.5, 3.6))
        axes.bar(
            days,
            panel.counts[row, -shown:],
            color="#cccccc",
            width=0.9 * panel.step_days,
            label=f"reported each {panel.step}",
        )
        if panel.step == "day":
            axes.plot(days, average, color="black", label="7-day average")
        for low, high, name, shade in BANDS:
            axes.fill_between(
                ends,
                [now, *(one.quantiles[row, LEVELS.index(low)] for one in ahead)],
                [now, *(one.quantiles[row, LEVELS.index(high)] for one in ahead)],
                color=shade,
                linewidth=0,
                label=f"{name} interval",
            )
        axes.plot(
            ends,
            [now, *(one.point[row] for one in ahead)],
            color=PERIOD_COLOURS[0],
            marker="o",
            label="forecast",
        )
        axes.plot(
            ends[[0, -1]],
            [now, now],
            color=PERSISTENCE_COLOUR,
            linestyle="--",
            label="like today" if panel.step == "day" else "like this week",
        )
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(THOUSANDS)
        axes.set_ylabel(f"new reported cases per {panel.step}")
        axes.set_title(f"{panel.names[row]}: forecast made on {panel.end}")
        date_axis(axes)
        axes.legend(loc="upper left", ncols=2)
        credit(figure, panel.attribution)
    return figure
