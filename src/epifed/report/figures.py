"""Figures of data, forecasts, trainings, hubs, nowcasts and audits."""

import math
from collections.abc import Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from epifed.data.calendar import Step
from epifed.data.panel import CasePanel
from epifed.errors import EpifedError
from epifed.evaluation.metrics import METRICS, STRATA
from epifed.evaluation.results_folder import TRAINED, summary
from epifed.forecasting import Forecast
from epifed.intervals import LEVELS
from epifed.learners.base import observed, smooth
from epifed.nowcasting.late_reports import SHOWN_DAYS
from epifed.nowcasting.transmission import BAND, NowcastSummary, Reproduction
from epifed.report.drawing import (
    PERIOD_COLOURS,
    PERSISTENCE_COLOUR,
    THOUSANDS,
    WIDTH,
    Colour,
    band,
    chosen_budgets,
    colour,
    credit,
    date_axis,
    log_scale,
    log_ticks,
    panel_title,
    period_title,
    places,
    save,
    scatter,
    signed_log,
    style,
)
from epifed.report.tables import budget, published

if TYPE_CHECKING:
    from epifed.audit.audit import Audit
    from epifed.audit.epsilon_bounds import Attack
    from epifed.training.loop import Clients, Training


MEDIAN_COLOUR, MEAN_COLOUR = "#B2182B", "#E69F00"
DAILY_COLOUR, AVERAGE_COLOUR = "#0072B2", "#E69F00"
MOST_BINS = 40


def populations(levels: Mapping[str, NDArray[np.int64]], attribution: Sequence[str] = ()) -> Figure:
    """Distribution of population sizes at each level, with median and mean (the paper's Fig. 1)."""
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
    """Samples by their number of zeros, and their populations (the paper's Fig. 3)."""
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
    """Plot the daily sum of all regions with its centered 7-day average."""
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


BY_POPULATION = ("mse", "mae", "mape", "mdape", "r2")
"""The metrics by population: those of the paper's figure, and the median that its text cites."""


def predicted_against_true(
    predictions: pl.DataFrame, split: str, period: str, unit: str = "region"
) -> Figure:
    """Predictions against the truth for each budget, and the errors of single regions below.

    The paper's Figs. 5 and 6, persistence first. Dots are all runs; boxes show every budget.
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
    """The metrics of each population cluster by budget, with standard deviation (Fig. 7)."""
    here = runs.filter((pl.col("split") == split) & (pl.col("period") == period))
    names = [name for name, _, _ in STRATA]
    methods = _methods(here.filter(pl.col("stratum").is_in(names)))
    shown = chosen_budgets([e for e in methods if e is not None])
    with style():
        figure, grid = plt.subplots(3, 2, figsize=(WIDTH, 7.6), sharex=True)
        grid[-1, -1].remove()
        for axes, letter, name in zip(grid.flat, "ABCDE", BY_POPULATION, strict=False):
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
        for axes in (grid[-1, 0], grid[-2, 1]):
            axes.set_xlabel(f"inhabitants of the {unit}")
            axes.tick_params(labelbottom=True)
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=6)
        figure.suptitle(f"{period_title(period)}, {split} split", ha="left", x=0.01, fontsize=9)
    return figure


def plural(unit: str) -> str:
    """The plural of a unit."""
    return f"{unit[:-1]}ies" if unit.endswith("y") else f"{unit}s"


def _methods(frame: pl.DataFrame) -> dict[float | None, pl.DataFrame]:
    """The rows of persistence (no ε) if present, then of the federation by budget."""
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
"""The metrics of the paper's Fig. 8."""
CONVERGENCE_EPSILONS = (0.5, 1.0, 2.0, math.inf)
"""The budgets of the paper's Fig. 9."""


def privacy_utility(runs: pl.DataFrame, *, with_paper: bool = True) -> Figure:
    """Error against ε on log axes, with ε = ∞ at the right (the paper's Fig. 8).

    Bands are one standard deviation over the runs, dashed lines are persistence on the same
    windows. Hollow circles are the paper's S1 table, for the paper's periods. That table is of
    German counties: `with_paper` is false for anything else.
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
                    if with_paper and len(dots):
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
    """Training (solid) and test (dotted) loss over the rounds, mean and spread over the runs."""
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
    """Set the elements that all figures over rounds share: x axis, y labels and legend."""
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
    """Plot predicted against true on the test windows of an experiment, persistence beside it.

    A forecast has a figure of its own: `forecast(training, panel).plot()`.

    Parameters
    ----------
    training : Training
        What predicts, in cases per day.
    clients : Clients
        What it was trained on.

    Returns
    -------
    matplotlib.figure.Figure
        Two panels with one scale.

    Raises
    ------
    EpifedError
        If it gets something else than a training and its clients.

    Examples
    --------
    >>> from epifed.api import train
    >>> from epifed.settings import Settings
    >>> from epifed.simulate import SimulationSettings, simulate
    >>> from epifed.training.loop import make_clients
    >>> panel = simulate(SimulationSettings(counties=12, communities=24, seed=1)).county_panel
    >>> clients = make_clients(panel, Settings.for_learner("one-shot", 12, clients_per_round=12))
    >>> len(plot(train(clients, learner="one-shot", epsilon=1.0), clients).axes)
    2
    """
    if not (hasattr(clients, "test") and hasattr(training, "predict")):
        raise EpifedError(
            f"plot: found a {type(training).__name__} and a {type(clients).__name__}; expected a "
            "Training and the Clients it was trained on (a forecast: forecast(…).plot())"
        )
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


SHOWN: dict[Step, int] = {"day": 56, "week": 52}
"""Number of past steps in the figure."""
BANDS = (
    (0.025, 0.975, "95 %", "#d9e8f3"),
    (0.1, 0.9, "80 %", "#abcfe6"),
    (0.25, 0.75, "50 %", "#74afd6"),
)


def forecast_figure(panel: CasePanel, region: str, forecasts: Sequence[Forecast]) -> Figure:
    """Reports, their 7-day average, its forecast, and persistence as a dashed line.

    For weeks, the counts of each week.
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


OTHERS = "#555555"
ROW = 0.26
"""Height of a model's line, in inches."""


def hub_figure(
    records: Sequence[dict[str, Any]],
    keys: Sequence[str],
    baseline: str,
    ours: str | None = None,
    sources: Sequence[str] = (),
) -> Figure:
    """A point and an interval for each model, the best first; `ours` is coloured."""
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


KNOWN, SHADE = "#bbbbbb", "#abcfe6"


def nowcast_figure(
    name: str,
    row: int,
    found: NowcastSummary,
    attribution: tuple[str, ...] = (),
) -> Figure:
    """Cases by reporting date and, if known, by onset, and R of the week to each day."""
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


def audit_scores(audit: "Audit") -> Figure:
    """The evidence in trainings with and without the canary: the more apart, the less private."""
    found = audit.many_runs
    if found is None:
        raise EpifedError("--out: the picture shows many runs; expected --method many-runs or both")
    both = np.concatenate([found.scores_without, found.scores_with])
    low, high = np.quantile(both, [0.002, 0.998])
    bins = np.linspace(low, high, 41).tolist()
    with style():
        figure, axes = plt.subplots(figsize=(6.4, 3.4))
        for scores, label, colour in (
            (found.scores_without, "canary did not take part", PERIOD_COLOURS[0]),
            (found.scores_with, "canary took part", PERIOD_COLOURS[1]),
        ):
            axes.hist(
                np.clip(scores, low, high), bins=bins, density=True,
                alpha=0.5, color=colour, label=label,
            )  # fmt: skip
        axes.axvline(found.threshold, color="black", linewidth=1, label="the auditor's threshold")
        axes.set(
            xlabel="evidence that the canary took part (log likelihood ratio)",
            ylabel="density of trainings",
            title=f"claimed ε = {audit.claimed_epsilon:g}, measured ε ≥ {audit.lower_bound:.2f} "
            f"({audit.confidence:.0%} confidence): {'PASS' if audit.passed else 'FAIL'}",
        )
        axes.legend()
    return figure


def membership_attack(attacks: Sequence["Attack"]) -> Figure:
    """Right guesses of the attacker at each budget, below what the guarantee allows."""
    ordered = sorted(attacks, key=lambda a: a.epsilon)
    ticks = range(len(ordered))
    right = np.array([a.right for a in ordered])
    reach = np.array([[a.right - a.right_low, a.right_high - a.right] for a in ordered]).T
    with style():
        figure, axes = plt.subplots(figsize=(6.4, 3.6))
        axes.bar(ticks, 100 * right, width=0.5, color=[colour(a.epsilon) for a in ordered])
        axes.errorbar(ticks, 100 * right, yerr=100 * reach, fmt="none", color="black", capsize=3)
        for name, line, values in (
            ("the most that (ε, δ) allows", "solid", [a.allowed for a in ordered]),
            ("the most that this noise allows", (0, (1, 1)), [a.allowed_by_noise for a in ordered]),
        ):
            axes.add_collection(
                LineCollection(
                    [[(i - 0.38, 100 * v), (i + 0.38, 100 * v)] for i, v in enumerate(values)],
                    colors=PERIOD_COLOURS[1], linestyles=line, label=name,
                )
            )  # fmt: skip
        axes.axhline(50, color="black", linewidth=0.8)
        axes.text(len(ordered) - 0.5, 50.5, "coin toss", ha="right", va="bottom", fontsize=8)
        axes.set_xticks(list(ticks), [f"ε = {budget(a.epsilon)}" for a in ordered])
        axes.set(ylim=(40, 104), ylabel="right guesses (%)", title="Did this county take part?")
        axes.legend(loc="upper left")
    return figure
