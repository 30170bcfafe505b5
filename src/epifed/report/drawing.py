"""The look of all figures: one style, the same colour for the same ε, axes and their ticks."""

import math
import re
import textwrap
from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import date
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import (
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullLocator,
    SymmetricalLogLocator,
)
from numpy.typing import NDArray

from epifed.files import write_atomic
from epifed.report.tables import table_epsilons
from epifed.settings import EPSILONS

Colour = str | tuple[float, float, float, float]
FloatArray = NDArray[np.floating[Any]]

WIDTH = 7.5
"""Inches, the full width of a printed page."""
PERIOD_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
PERSISTENCE_COLOUR = "#555555"
MOST_PANELS = 5
THOUSANDS = FuncFormatter(lambda value, _: f"{value:,.0f}")


def colour(epsilon: float) -> tuple[float, float, float, float]:
    """The colour of a budget: plasma from the strictest to none, safe for the colour-blind."""
    low, high = math.log(min(EPSILONS)), math.log(10.0)
    place = (math.log(min(max(epsilon, min(EPSILONS)), 10.0)) - low) / (high - low)
    red, green, blue, alpha = plt.get_cmap("plasma")(0.87 * place)
    return red, green, blue, alpha


def style() -> AbstractContextManager[None]:
    """The one style of all figures."""
    with as_file(files("epifed.report").joinpath("epifed.mplstyle")) as path:
        return plt.rc_context(matplotlib.rc_params_from_file(path, use_default_template=False))


def save(figure: Figure, *paths: Path) -> None:
    """Write a figure, its kinds told by the names' endings, and close it."""
    with style():
        for path in paths:
            kind = path.suffix[1:]
            undated = {"CreationDate": None} if kind == "pdf" else None

            def write(temporary: Path, kind: str = kind, undated: Any = undated) -> None:
                figure.savefig(temporary, format=kind, metadata=undated)

            write_atomic(path, write)
    plt.close(figure)


def period_title(period: str) -> str:
    """A period for readers: "November 2020" for 2020-11, both days for a pair, else its name."""
    if re.fullmatch(r"\d{4}-(0[1-9]|1[0-2])", period):
        return f"{date.fromisoformat(f'{period}-01'):%B %Y}"
    try:
        first, last = (date.fromisoformat(day) for day in period.split("_"))
    except ValueError:
        return period
    year = f" {first:%Y}" if first.year != last.year else ""
    return f"{first.day} {first:%b}{year} – {last.day} {last:%b %Y}"


def panel_title(axes: Axes, letter: str, title: str, *, pad: float | None = None) -> None:
    """The panel's letter and what it shows."""
    axes.set_title(rf"$\mathbf{{{letter}}}$  {title}", pad=pad)


def credit(figure: Figure, attribution: Sequence[str]) -> None:
    """The sources, in the picture, as their licences ask."""
    letters = int(figure.get_figwidth() * 24)
    lines = [line for source in attribution for line in textwrap.wrap(source, letters)]
    if lines:
        figure.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=5.5, color="#444444")


def date_axis(axes: Axes, *, from_the_first: bool = True) -> None:
    """Days along the bottom, those of a month counted from its first or not."""
    locator = AutoDateLocator(  # type: ignore[no-untyped-call]
        minticks=4, maxticks=9, interval_multiples=from_the_first
    )
    formatter = ConciseDateFormatter(  # type: ignore[no-untyped-call]
        locator,
        formats=["%Y", "%b", "%d %b", "%H:%M", "%H:%M", "%S"],
        zero_formats=["", "%b\n%Y", "%d %b", "%d %b", "%H:%M", "%H:%M"],
        show_offset=False,
    )
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(formatter)


def chosen_budgets(epsilons: Sequence[float]) -> list[float]:
    """The budgets that get a panel or line each: all if they are few, else the paper's main ones.

    >>> chosen_budgets([0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.0, 3.0])
    [0.3, 0.5, 1.0, 2.0]
    """
    found = sorted(set(epsilons))
    if len(found) <= MOST_PANELS:
        return found
    paper = [e for e in found if e in table_epsilons("main")]
    if len(paper) > 1:
        return paper
    spread = np.unique(np.linspace(0, len(found) - 1, MOST_PANELS).round().astype(int))
    return [found[i] for i in spread]


def scatter(
    axes: Axes, truth: FloatArray, prediction: FloatArray, title: str, dots: Colour
) -> None:
    """Predicted against true cases with the diagonal, on log axes.

    Where there are zeros or negative predictions, an axis is linear between -1 and 1.
    """
    axes.scatter(truth, prediction, s=4, alpha=0.3, linewidths=0, color=dots, rasterized=True)
    low, high = (float(truth.min()), float(truth.max())) if truth.size else (0.0, 1.0)
    start = low if low > 0 else min(1.0, high)
    line = np.unique([low, *np.geomspace(start or 1.0, high or 1.0, 100)])
    axes.plot(line, line, color="black", linewidth=0.9, label="perfect prediction")
    least = {"x": low, "y": min(low, float(prediction.min())) if prediction.size else low}
    for axis, value in least.items():
        if value > 0:
            axes.set(**{f"{axis}scale": "log"})
        else:
            signed_log(axes, axis)
    axes.set(title=title, xlabel="true cases per day")


def signed_log(axes: Axes, axis: str = "y") -> None:
    """A log axis for numbers of either sign, linear between -1 and 1."""
    (axes.set_xscale if axis == "x" else axes.set_yscale)("symlog", linthresh=1)
    ticks = axes.xaxis if axis == "x" else axes.yaxis
    locator = SymmetricalLogLocator(base=10, linthresh=1)
    locator.set_params(numticks=7)
    ticks.set_major_locator(locator)
    ticks.set_minor_locator(NullLocator())
    ticks.set_major_formatter(FuncFormatter(lambda value, _: _power(value)))


def _power(value: float) -> str:
    if abs(value) <= 10:
        return f"{value:g}".replace("-", "−")
    sign = "-" if value < 0 else ""
    return rf"${sign}10^{{{round(math.log10(abs(value)))}}}$"


def log_scale(axes: Axes) -> None:
    """A log y axis; a linear one where nothing that was drawn is above zero."""
    if math.isfinite(axes.dataLim.minposy):
        axes.set_yscale("log")


def log_ticks(axes: Axes) -> None:
    """Ticks at powers of ten, closer ones where there are few of those."""
    low, high = axes.get_ylim()
    if low > 0 and high / low < 100:
        few = high / low < 10
        axes.yaxis.set_major_locator(
            MaxNLocator(6, steps=[1, 2, 5, 10]) if few else LogLocator(subs=(1, 2, 5))
        )
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_locator(NullLocator())


def places(epsilons: Sequence[float]) -> list[float]:
    """Where budgets stand on the axis: at ε, the non-private end at twice the largest of S1."""
    return [
        2 * max(e for e in EPSILONS if math.isfinite(e)) if math.isinf(e) else e for e in epsilons
    ]


def band(
    axes: Axes,
    x: Sequence[float],
    line: pl.DataFrame,
    label: str,
    line_colour: Colour,
    *,
    most: float | None = None,
) -> None:
    """A line of means in a band of one standard deviation.

    On a log axis the band cannot reach 0, and ends at a tenth of the mean; `most` is for a score
    that cannot be larger.
    """
    mean = line["mean"].to_numpy()
    std = line["std"].fill_null(0.0).to_numpy()
    low = np.maximum(mean - std, mean / 10) if most is None else mean - std
    high = np.minimum(mean + std, math.inf if most is None else most)
    shade = 0.15 if most is None else 0.08
    axes.plot(x, mean, marker="o", color=line_colour, label=label)
    axes.fill_between(x, low, high, color=line_colour, alpha=shade, linewidth=0)
