"""The WIS of several models relative to a baseline, with how sure it is, one panel for a group."""

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from epifed.report.drawing import PERIOD_COLOURS, PERSISTENCE_COLOUR, credit, style

OTHERS = "#555555"
ROW = 0.26
"""Inches of a model's line."""


def hub_figure(
    records: Sequence[dict[str, Any]],
    keys: Sequence[str],
    baseline: str,
    ours: str | None = None,
    sources: Sequence[str] = (),
) -> Figure:
    """A point and an interval for each model, the best first; `ours` is drawn in colour."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in records:
        if row["wis_ratio"] is not None:
            name = ", ".join(_named(key, row[key]) for key in keys)
            groups.setdefault(name, []).append(row)
    most = max(map(len, groups.values()), default=1)
    columns = min(len(groups), 2) or 1
    lines = -(-len(groups) // columns) or 1
    with style():
        figure, panels = plt.subplots(
            lines,
            columns,
            figsize=(5.6 * columns, lines * (ROW * most + 1.1)),
            squeeze=False,
            layout="constrained",
        )
        for axes in panels.ravel()[len(groups) :]:
            axes.set_visible(False)
        for axes, (name, rows) in zip(panels.ravel(), groups.items(), strict=False):
            _panel(axes, rows, ours)
            axes.set_title(name)
            axes.set_xlabel(f"WIS / {baseline}")
        credit(figure, sources)
    return figure


def _named(key: str, value: Any) -> str:
    return f"{value} week{'s'[: value != 1]} ahead" if key == "horizon" else str(value)


def _panel(axes: Any, rows: Sequence[dict[str, Any]], ours: str | None) -> None:
    axes.axvline(1.0, color=PERSISTENCE_COLOUR, linestyle="--", linewidth=1)
    for place, row in enumerate(rows):
        mine = ours is not None and row["model"].split("-")[0] == ours.split("-")[0]
        colour = PERIOD_COLOURS[0] if mine else OTHERS
        axes.plot([row["wis_ratio_low"], row["wis_ratio_high"]], [place, place], color=colour)
        axes.plot(row["wis_ratio"], place, "o", color=colour)
        axes.annotate(
            f"{row['coverage_95']:.0%}",
            (1.01, place),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize="small",
            color=colour,
        )
    axes.annotate("in 95 %", (1.01, 1.01), xycoords="axes fraction", fontsize="small")
    axes.set_yticks(range(len(rows)), [f"{row['model']} ({row['tasks']})" for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(left=0)
