"""Figures of the forecasts: predicted against true, errors by region and by population."""

import math

import matplotlib.pyplot as plt
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from epifed.evaluate.metrics import METRICS, STRATA
from epifed.evaluate.results import TRAINED
from epifed.report.drawing import (
    PERSISTENCE_COLOUR,
    WIDTH,
    Colour,
    band,
    chosen_budgets,
    colour,
    log_scale,
    log_ticks,
    panel_title,
    period_title,
    scatter,
    signed_log,
    style,
)
from epifed.report.tables import PAPER_METRICS, budget


def predicted_against_true(
    predictions: pl.DataFrame, split: str, period: str, unit: str = "region"
) -> Figure:
    """A panel per budget with the diagonal, persistence first; below, errors of single regions.

    The paper's Figs. 5 and 6. The dots are all runs; the boxes have every budget.
    """
    here = predictions.filter((pl.col("split") == split) & (pl.col("period") == period))
    methods = _methods(here)
    shown = chosen_budgets([e for e in methods if e is not None])
    panels = [e for e in methods if e is None or e in shown]
    columns = len(panels) if len(panels) <= 4 else 3
    rows = math.ceil(len(panels) / columns)
    letters = iter("ABCDEFGHIJ")
    with style():
        figure = plt.figure(figsize=(WIDTH, 0.3 + 2.3 * (rows + 1)))
        grid = figure.add_gridspec(rows + 1, columns, height_ratios=[1.0] * rows + [1.05])
        for i, epsilon in enumerate(panels):
            axes = figure.add_subplot(grid[i // columns, i % columns])
            scatter(
                axes, methods[epsilon]["truth"].to_numpy(),
                methods[epsilon]["prediction"].to_numpy(), "", _colour(epsilon),
            )  # fmt: skip
            panel_title(axes, next(letters), _name(epsilon))
            if i % columns == 0:
                axes.set_ylabel("predicted cases per day")
            if i + columns < len(panels):
                axes.set_xlabel("")
        bottom = figure.add_subplot(grid[rows, :])
        _boxes(bottom, {e: region_mape(frame) for e, frame in methods.items()})
        bottom.set_ylabel(f"MAPE of one {unit} (%)")
        title = f"Error of single {plural(unit)}, all runs: median, quartiles, 5 % to 95 %"
        panel_title(bottom, next(letters), title)
        figure.suptitle(f"{period_title(period)}, {split} split", ha="left", x=0.01, fontsize=9)
    return figure


def region_mape(predictions: pl.DataFrame) -> pl.Series:
    """MAPE of every region and run over its test days; zero targets are left out."""
    error = 100 * (pl.col("prediction") - pl.col("truth")).abs() / pl.col("truth")
    return (
        predictions.filter(pl.col("truth") != 0)
        .group_by("run", "region", maintain_order=True)
        .agg(error.mean().alias("mape"))["mape"]
    )


def by_population(runs: pl.DataFrame, split: str, period: str, unit: str = "region") -> Figure:
    """The metrics in each population cluster by budget, one standard deviation shaded (Fig. 7)."""
    here = runs.filter((pl.col("split") == split) & (pl.col("period") == period))
    names = [name for name, _, _ in STRATA]
    methods = _methods(here.filter(pl.col("stratum").is_in(names)))
    shown = chosen_budgets([e for e in methods if e is not None])
    with style():
        figure, grid = plt.subplots(2, 2, figsize=(WIDTH, 5.4), sharex=True)
        for axes, letter, name in zip(grid.flat, "ABCD", PAPER_METRICS, strict=True):
            metric = METRICS[name]
            for epsilon in (e for e in methods if e is None or e in shown):
                line = _over_strata(methods[epsilon], name, names)
                if epsilon is None:
                    axes.plot(
                        names, line["mean"].to_numpy(), color=PERSISTENCE_COLOUR, linestyle="--",
                        marker="s", markersize=3, label="persistence",
                    )  # fmt: skip
                else:
                    band(
                        axes, range(len(names)), line, _name(epsilon), colour(epsilon),
                        most=metric.best if metric.better == "higher" else None,
                    )  # fmt: skip
            axes.set_ylabel(metric.axis)
            panel_title(axes, letter, metric.label)
            axes.margins(x=0.08)
            if metric.better == "higher":
                signed_log(axes)
            else:
                log_scale(axes)
                log_ticks(axes)
        for axes in grid[-1]:
            axes.set_xlabel(f"inhabitants of the {unit}")
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=6)
        figure.suptitle(f"{period_title(period)}, {split} split", ha="left", x=0.01, fontsize=9)
    return figure


def plural(unit: str) -> str:
    """More than one of a unit."""
    return f"{unit[:-1]}ies" if unit.endswith("y") else f"{unit}s"


def _methods(frame: pl.DataFrame) -> dict[float | None, pl.DataFrame]:
    """Persistence (no ε) if it is there, then the federation by budget."""
    found: dict[float | None, pl.DataFrame] = {}
    like_today = frame.filter(pl.col("method") == "persistence")
    if len(like_today):
        found[None] = like_today
    federated = frame.filter(TRAINED)
    for epsilon in federated["epsilon"].unique().sort():
        found[epsilon] = federated.filter(pl.col("epsilon") == epsilon)
    return found


def _boxes(axes: Axes, errors: dict[float | None, pl.Series]) -> None:
    drawn = axes.boxplot(
        [series.to_numpy() for series in errors.values()],
        whis=(5, 95), showfliers=False, patch_artist=True, widths=0.6,
        medianprops={"color": "black", "linewidth": 1.2},
    )  # fmt: skip
    for box, epsilon in zip(drawn["boxes"], errors, strict=True):
        box.set(facecolor=_colour(epsilon), alpha=0.75, linewidth=0.7)
    log_scale(axes)
    log_ticks(axes)
    axes.set_xticks(range(1, len(errors) + 1), [_name(e) for e in errors])
    axes.grid(visible=False, axis="x")


def _over_strata(runs: pl.DataFrame, metric: str, names: list[str]) -> pl.DataFrame:
    value = pl.col(metric).fill_nan(None)
    found = runs.group_by("stratum").agg(value.mean().alias("mean"), value.std().alias("std"))
    return (
        pl.DataFrame({"stratum": names})
        .join(found, on="stratum", how="left", maintain_order="left")
        .with_columns(pl.col("mean").fill_null(math.nan))
    )


def _colour(epsilon: float | None) -> Colour:
    return PERSISTENCE_COLOUR if epsilon is None else colour(epsilon)


def _name(epsilon: float | None) -> str:
    return "persistence" if epsilon is None else f"ε = {budget(epsilon)}"
