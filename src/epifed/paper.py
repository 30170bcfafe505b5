"""The paper's figures and tables (LaTeX, Markdown, CSV), and budgets down to ε = 0.05."""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator
from numpy.typing import NDArray

from epifed.data.panel import CasePanel
from epifed.errors import counted
from epifed.evaluation.experiment import zero_entries
from epifed.evaluation.metrics import METRICS, STRATA, strata
from epifed.evaluation.results_folder import ALL, TRAINED, GridFolder, summary
from epifed.files import write_atomic, write_text
from epifed.report import figures, maps
from epifed.report import figures as data_figures
from epifed.report import figures as result_figures
from epifed.report.drawing import (
    PERIOD_COLOURS,
    PERSISTENCE_COLOUR,
    WIDTH,
    band,
    credit,
    panel_title,
    period_title,
    places,
    save,
    style,
)
from epifed.report.maps import Atlas, Place
from epifed.report.tables import (
    PAPER_METRICS,
    budget,
    markdown,
    number,
    published,
    table_epsilons,
    with_spread,
)

SCORES = ("mape", "mdape", "mae", "mae_per_100k")
HEADS = {
    "mape": "MAPE %",
    "mdape": "MdAPE %",
    "mae": "MAE",
    "mae_per_100k": "MAE per 100,000",
}
_CELL = ["split", "period", "method", "epsilon", "stratum"]


def by_size(predictions: pl.DataFrame, panel: CasePanel) -> pl.DataFrame:
    """Mean and standard deviation over the runs of each method, budget and population cluster.

    Parameters
    ----------
    predictions
        One row per run, region and test day, as a grid keeps them.
    panel
        The panel behind them, with a population for each region.

    Returns
    -------
    A row for each split, period, method, budget and cluster: the number of regions and runs, and
    of MAPE, MdAPE (both in per cent, zero targets left out), MAE (cases a day) and MAE per 100,000
    inhabitants the mean, `_std`, and `_persistence`, which is persistence's on the same windows.
    """
    assert panel.population is not None
    clusters = pl.DataFrame(
        [
            {"region": panel.regions[row], "stratum": name, "people": int(panel.population[row])}
            for name, chosen in strata(panel.population)
            for row in chosen.nonzero()[0]
        ],
        schema={"region": pl.String, "stratum": pl.String, "people": pl.Int64},
    )
    error = (pl.col("prediction") - pl.col("truth")).abs()
    share = (100 * error / pl.col("truth")).filter(pl.col("truth") != 0)
    scored = (
        predictions.join(clusters, on="region")
        .group_by(*_CELL, "run")
        .agg(
            pl.col("region").n_unique().alias("regions"),
            share.mean().alias("mape"),
            share.median().alias("mdape"),
            error.mean().alias("mae"),
            (1e5 * error / pl.col("people")).mean().alias("mae_per_100k"),
        )
    )
    means = scored.group_by(_CELL).agg(
        pl.col("regions").first(),
        pl.len().alias("runs"),
        *(pl.col(score).mean() for score in SCORES),
        *(pl.col(score).std().alias(f"{score}_std") for score in SCORES),
    )
    like_today = means.filter(method="persistence").select(
        "split", "period", "stratum", *(pl.col(s).alias(f"{s}_persistence") for s in SCORES)
    )
    order = {name: place for place, (name, _, _) in enumerate(STRATA)}
    return means.join(like_today, on=["split", "period", "stratum"], how="left").sort(
        "split",
        "period",
        TRAINED,
        "method",
        "epsilon",
        pl.col("stratum").replace_strict(order, return_dtype=pl.Int64),
    )


def to_markdown(scored: pl.DataFrame) -> str:
    """A table for each split, period and score: clusters in rows, budgets in columns."""
    text = []
    for split, period in scored.select("split", "period").unique(maintain_order=True).rows():
        here = scored.filter(split=split, period=period)
        trained = here.filter(TRAINED)
        budgets = trained["epsilon"].unique().sort().to_list()
        header = ["inhabitants", "regions", "persistence", *(f"ε = {budget(e)}" for e in budgets)]
        for score in SCORES:
            rows = []
            for name in trained["stratum"].unique(maintain_order=True).to_list():
                cells = trained.filter(stratum=name)
                first = cells.row(0, named=True)
                by_budget = {row["epsilon"]: row for row in cells.iter_rows(named=True)}
                rows.append(
                    [name, str(first["regions"]), number(first[f"{score}_persistence"])]
                    + [
                        with_spread(by_budget[e][score], by_budget[e][f"{score}_std"])
                        for e in budgets
                    ]
                )
            text.append(f"**{period}, {split} split, {HEADS[score]}**\n\n{markdown(header, rows)}")
    return "\n".join(text)


Caption = Callable[[float], str]
"""What stands under a table, given how many zero targets MAPE leaves out."""

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "ε": r"$\varepsilon$", "δ": r"$\delta$", "∞": r"$\infty$", "±": r"$\pm$", "R²": "$R^2$",
    "–": "--", "²": "$^2$", "…": r"\ldots{}",
}  # fmt: skip


@dataclass(frozen=True)
class PaperTable:
    """One table: a row for persistence and one for each budget, in blocks of split and period."""

    name: str
    title: str
    note: str
    means: pl.DataFrame

    def rows(self) -> list[tuple[tuple[str, str], str, list[tuple[float | None, float | None]]]]:
        """Split and period, the method, and mean and deviation of each metric."""
        return [
            (
                (row["split"], row["period"]),
                "persistence" if row["epsilon"] is None else budget(row["epsilon"]),
                [(row[f"{m}_mean"], row[f"{m}_std"]) for m in PAPER_METRICS],
            )
            for row in self.means.iter_rows(named=True)
        ]

    def to_markdown(self) -> str:
        """The table for a page."""
        header = ["split", "period", "ε", *(METRICS[m].head for m in PAPER_METRICS)]
        rows = [
            [split, period_title(period), method, *(with_spread(*value) for value in values)]
            for (split, period), method, values in self.rows()
        ]
        return f"**{self.title}**\n\n{markdown(header, rows)}\n{self.note}\n"

    def to_latex(self) -> str:
        """The table for a paper, with booktabs."""
        head = " & ".join(rf"\textbf{{{latex(METRICS[m].head)}}}" for m in PAPER_METRICS)
        width = 1 + len(PAPER_METRICS)
        lines = []
        block = None
        for cell, method, values in self.rows():
            if cell != block:
                block = cell
                words = latex(f"{period_title(cell[1])}, {cell[0]} split")
                lines += [r"\midrule", rf"\multicolumn{{{width}}}{{@{{}}l}}{{\emph{{{words}}}}} \\"]
            row = [latex(method), *(latex_with_spread(*value) for value in values)]
            lines.append(" & ".join(row) + r" \\")
        return "\n".join(
            [
                r"\begin{table}[h!]",
                r"\centering",
                rf"\caption{{\textbf{{{latex(self.title)}.}} {latex(self.note)}.}}",
                rf"\label{{tab:{self.name}}}",
                rf"\begin{{tabular}}{{@{{}}l{'r' * len(PAPER_METRICS)}@{{}}}}",
                r"\toprule",
                rf"$\varepsilon$ & {head} \\",
                *lines,
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
                "",
            ]
        )

    def write(self, directory: Path) -> list[Path]:
        """The three files; the CSV has all metrics, not the paper's alone."""
        paths = [directory / f"table_{self.name}.{kind}" for kind in ("tex", "md", "csv")]
        write_text(paths[0], self.to_latex())
        write_text(paths[1], self.to_markdown())
        write_atomic(paths[2], self.means.write_csv)
        return paths


def paper_tables(stored: GridFolder, caption: Caption) -> list[PaperTable]:
    """A table for each period with the paper's main budgets, and S1 with all of everything.

    A period whose results have none of the main budgets shows all it has.
    """
    settings = stored.settings
    means = summary(stored.results.runs)
    means = means.filter(TRAINED | (pl.col("method") == "persistence")).sort(
        pl.col("split").replace_strict({s: i for i, s in enumerate(stored.grid.splits)}),
        pl.col("period").replace_strict({p: i for i, p in enumerate(stored.grid.periods)}),
        "epsilon",
        nulls_last=False,
    )
    main = [e for e in table_epsilons("main") if e in stored.epsilons] or stored.epsilons

    def table(name: str, title: str, chosen: pl.DataFrame) -> PaperTable:
        zeros = chosen.filter(pl.col("method") == "persistence")["zeros"].sum()
        epochs = f" of {settings.own['epochs']} epochs" if "epochs" in settings.own else ""
        note = f"{caption(float(zeros))}; {counted(settings.rounds, 'round')}{epochs}"
        return PaperTable(name, title, note[0].upper() + note[1:], chosen)

    found = [
        table(
            period,
            f"Performance metrics for case prediction, {period_title(period)}",
            means.filter(
                (pl.col("period") == period)
                & (pl.col("epsilon").is_null() | pl.col("epsilon").is_in(main))
            ),
        )
        for period in stored.grid.periods
    ]
    return [*found, table("S1", "Privacy–utility tradeoff across privacy budgets", means)]


def latex(text: str) -> str:
    """Plain text as LaTeX."""
    pattern = "|".join(re.escape(key) for key in sorted(_LATEX, key=len, reverse=True))
    return re.sub(pattern, lambda found: _LATEX[found[0]], text)


def latex_number(value: float | None) -> str:
    r"""A number in math mode as the paper writes it.

    >>> latex_number(1.26e10), latex_number(24.972), latex_number(4480.2), latex_number(None)
    ('1.26 \\times 10^{10}', '24.97', '4.48 \\times 10^{3}', '-')
    """
    if value is None or math.isnan(value):
        return "-"
    if abs(value) >= 1000 or 0 < abs(value) < 1e-4:
        mantissa, exponent = f"{value:.2e}".split("e")
        return rf"{mantissa} \times 10^{{{int(exponent)}}}"
    return f"{value:.2f}" if value == 0 or abs(value) >= 0.01 else f"{value:.4f}"


def latex_with_spread(mean: float | None, std: float | None) -> str:
    """Mean ± standard deviation in math mode; the mean alone where there was one run."""
    if std is None or math.isnan(std):
        return f"${latex_number(mean)}$"
    return rf"${latex_number(mean)} \pm {latex_number(std)}$"


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


KINDS = ("pdf", "png")
NO_DATA = "no --data: expected the prepared or simulated directory behind these results"


@dataclass
class Plan:
    """What can be drawn, by file name, and why the rest cannot."""

    drawings: dict[str, Callable[[], Figure]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, draw: Callable[[], Figure], missing: str | None = None) -> None:
        """A figure, or the reason against it."""
        if missing is None:
            self.drawings[name] = draw
        else:
            self.left_out[name] = missing

    def write(self, directory: Path) -> Iterator[list[Path]]:
        """Draw one after the other, each as PDF and PNG."""
        for name, draw in self.drawings.items():
            paths = [directory / f"{name}.{kind}" for kind in KINDS]
            save(draw(), *paths)
            yield paths


def plan(stored: GridFolder, country: Atlas | None, place: Place | None) -> Plan:
    """The figures of the paper, in its order."""
    found = Plan()
    if country is None or place is None:
        for name in ("populations", "regions", "zero_entries", "cases"):
            found.left_out[name] = NO_DATA
    else:
        _of_country(found, stored, country, place)
    results = stored.results
    unit = unit_of(stored, country)
    for split, period in stored.cells:
        found.add(
            f"predictions_{period}_{split}",
            lambda s=split, p=period: result_figures.predicted_against_true(  # type: ignore[misc]
                results.predictions, s, p, unit
            ),
        )
    strata = set(results.runs["stratum"].unique()) != {ALL}
    for split, period in stored.cells:
        found.add(
            f"strata_{period}_{split}",
            lambda s=split, p=period: result_figures.by_population(  # type: ignore[misc]
                results.runs, s, p, unit
            ),
            None if strata else "these results have no populations",
        )
    found.add("privacy_utility", lambda: figures.privacy_utility(results.runs))
    curves = None if len(results.convergence) else "these results have no curves"
    found.add("convergence", lambda: figures.convergence(results.convergence), curves)
    found.add("losses", lambda: figures.losses(results.convergence), curves)
    return found


def unit_of(stored: GridFolder, country: Atlas | None) -> str:
    """What a region of these results is called."""
    regions = set(stored.results.predictions["region"].unique())
    if country is not None and regions <= set(country.counties.regions):
        return "county"
    if country is not None and country.communities is not None:
        return "community" if regions <= set(country.communities.regions) else "region"
    return "region"


def _of_country(found: Plan, stored: GridFolder, country: Atlas, place: Place) -> None:
    communities = country.communities
    covered = {p: days for p, days in stored.grid.periods.items() if country.covers(days)}
    early = None
    if not covered:
        panel = country.counties
        early = f"{country.source} has {panel.start} … {panel.end}, none of these periods"
    none = None if communities else f"{country.source} has no communities.csv"
    shapes = None
    if country.county_shapes is None or country.community_shapes is None:
        shapes = f"{country.source} has no counties.geojson and communities.geojson"

    def people() -> Figure:
        levels: dict[str, NDArray[np.int64]] = {}
        for name, level in (("counties", country.counties), ("communities", communities)):
            if level is not None and level.population is not None:
                levels[name] = level.population
        return data_figures.populations(levels, country.data_attribution)

    def zeros() -> Figure:
        assert communities is not None
        plain = stored.settings.but(smoothing="none")
        tables = {p: zero_entries(communities, plain, days) for p, days in covered.items()}
        return data_figures.zero_entries(tables, country.data_attribution)

    found.add("populations", people)
    last = list(covered.values())[-1:]
    found.add("regions", lambda: maps.regions(country, place, last[0]), none or shapes or early)
    found.add("zero_entries", zeros, none or early)
    found.add("cases", lambda: maps.cases(country, covered), early)
    if country.county_shapes is None and not early:
        found.left_out["maps in cases"] = f"{country.source} has no counties.geojson"
