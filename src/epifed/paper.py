"""The paper's figures and tables (LaTeX, Markdown, CSV), and budgets down to ε = 0.05."""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from epifed.errors import counted
from epifed.evaluation.experiment import zero_entries
from epifed.evaluation.metrics import METRICS, STRATA
from epifed.evaluation.results_folder import ALL, TRAINED, GridFolder, summary
from epifed.files import write_atomic, write_text
from epifed.report import figures, maps
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
HEADS = {name: METRICS[name].head for name in SCORES[:-1]} | {"mae_per_100k": "MAE per 100,000"}


def by_size(runs: pl.DataFrame) -> pl.DataFrame:
    """Mean and standard deviation over the runs of each method, budget and population cluster.

    Parameters
    ----------
    runs
        One row per run and population cluster, as a grid keeps them.

    Returns
    -------
    A row for each split, period, method, budget and cluster: the number of regions and runs, and
    of MAPE, MdAPE (both in per cent, zero targets left out), MAE (cases a day) and MAE per 100,000
    inhabitants the mean, `_std`, and `_persistence`, which is persistence's on the same windows.
    """
    order = {name: place for place, (name, _, _) in enumerate(STRATA)}
    cell = ["split", "period", "stratum"]
    values = {score: pl.col(score).fill_nan(None) for score in SCORES}
    means = (
        runs.filter(pl.col("stratum") != ALL)
        .group_by(*cell, "method", "epsilon")
        .agg(
            pl.col("regions").first(),
            pl.len().alias("runs"),
            *(value.mean() for value in values.values()),
            *(value.std().alias(f"{score}_std") for score, value in values.items()),
        )
    )
    persistence = means.filter(method="persistence").select(
        *cell, *(pl.col(score).alias(f"{score}_persistence") for score in SCORES)
    )
    place = pl.col("stratum").replace_strict(order, return_dtype=pl.Int64)
    return means.join(persistence, on=cell, how="left").sort(
        "split", "period", TRAINED, "method", "epsilon", place
    )


def sizes_markdown(scored: pl.DataFrame) -> str:
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
"""Makes the caption of a table from the number of zero targets that MAPE leaves out."""

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
        """The split and period, the method, and mean and deviation of each metric, row by row."""
        return [
            (
                (row["split"], row["period"]),
                "persistence" if row["epsilon"] is None else budget(row["epsilon"]),
                [(row[f"{m}_mean"], row[f"{m}_std"]) for m in PAPER_METRICS],
            )
            for row in self.means.iter_rows(named=True)
        ]

    def to_markdown(self) -> str:
        """The table as Markdown."""
        header = ["split", "period", "ε", *(METRICS[m].head for m in PAPER_METRICS)]
        rows = [
            [split, period_title(period), method, *(with_spread(*value) for value in values)]
            for (split, period), method, values in self.rows()
        ]
        return f"**{self.title}**\n\n{markdown(header, rows)}\n{self.note}\n"

    def to_latex(self) -> str:
        """The table as LaTeX, with booktabs."""
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
        """Write the three files; the CSV has all metrics, not only the paper's."""
        paths = [directory / f"table_{self.name}.{kind}" for kind in ("tex", "md", "csv")]
        write_text(paths[0], self.to_latex())
        write_text(paths[1], self.to_markdown())
        write_atomic(paths[2], self.means.write_csv)
        return paths


def paper_tables(stored: GridFolder, caption: Caption) -> list[PaperTable]:
    """A table for each period with the paper's main budgets, and S1 with all periods and budgets.

    A period whose results have none of the main budgets shows all that it has.
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

    tables = [
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
    return [*tables, table("S1", "Privacy–utility tradeoff across privacy budgets", means)]


def latex(text: str) -> str:
    """Escape plain text for LaTeX."""
    pattern = "|".join(re.escape(key) for key in sorted(_LATEX, key=len, reverse=True))
    return re.sub(pattern, lambda match: _LATEX[match[0]], text)


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
    """Mean ± standard deviation in math mode; the mean alone if there was one run."""
    if std is None or math.isnan(std):
        return f"${latex_number(mean)}$"
    return rf"${latex_number(mean)} \pm {latex_number(std)}$"


TABLE_OF = {"shuffled": "main", "temporal": "s1"}
"""The paper's table whose numbers each split reproduces (docs/reproduction.md)."""
TICKS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, math.inf)
ROWS = ("mape", "r2")
LEAST_R2 = 0.7
"""Lower end of the axis of R²; the paper's values go down to minus millions."""


def small_budgets(runs: pl.DataFrame, attribution: Sequence[str] = ()) -> Figure:
    """Draw MAPE, and R² from 0.7 to 1, with a column for each period and split."""
    means = summary(runs)
    cells = means.select("period", "split").unique().sort("period", "split").rows()
    with style():
        drawn, grid = plt.subplots(
            2, len(cells), figsize=(WIDTH, 4.6), sharex=True, sharey="row", squeeze=False
        )
        letters = iter("ABCDEFGH")
        for metric, row in zip(ROWS, grid, strict=True):
            row[0].set_ylabel(METRICS[metric].axis)
            for axes, (period, split) in zip(row, cells, strict=True):
                _beside_the_paper(axes, means, metric, period, split)
                panel_title(axes, next(letters), f"{period_title(period)}\n{split} split")
        for axes in grid[-1]:
            axes.set_xlabel("ε")
        handles, labels = grid[0, 0].get_legend_handles_labels()
        drawn.legend(handles, labels, loc="outside upper center", ncols=4)
        credit(drawn, attribution)
    return drawn


def _beside_the_paper(
    axes: Axes, means: pl.DataFrame, metric: str, period: str, split: str
) -> None:
    theirs = published().filter(table=TABLE_OF[split], period=period, metric=metric)
    here = means.filter(period=period, split=split)
    trained = here.filter(TRAINED).rename({f"{metric}_mean": "mean", f"{metric}_std": "std"})
    lines = {"the paper": theirs.rename({"published_mean": "mean", "published_std": "std"})}
    for method in trained["method"].unique(maintain_order=True):
        lines[method] = trained.filter(method=method)
    most = METRICS[metric].best if metric == "r2" else None
    for (name, line), colour in zip(lines.items(), reversed(PERIOD_COLOURS), strict=False):
        if len(line):
            ordered = line.sort("epsilon")
            band(axes, places(ordered["epsilon"].to_list()), ordered, name, colour, most=most)
    for level in here.filter(method="persistence")[f"{metric}_mean"]:
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
    """The figures that can be drawn, by file name, and why the others cannot."""

    drawings: dict[str, Callable[[], Figure]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, draw: Callable[[], Figure], missing: str | None = None) -> None:
        """Add a figure, or the reason why it is missing."""
        if missing is None:
            self.drawings[name] = draw
        else:
            self.left_out[name] = missing

    def write(self, directory: Path) -> Iterator[list[Path]]:
        """Draw one figure after the other, each as PDF and PNG."""
        for name, draw in self.drawings.items():
            paths = [directory / f"{name}.{kind}" for kind in KINDS]
            save(draw(), *paths)
            yield paths


def plan(stored: GridFolder, country: Atlas | None, place: Place | None) -> Plan:
    """The figures of the paper, in its order."""
    drawable = Plan()
    if country is None or place is None:
        for name in ("populations", "regions", "zero_entries", "cases"):
            drawable.left_out[name] = NO_DATA
    else:
        _of_country(drawable, stored, country, place)
    runs, curves = stored.results.runs, stored.results.convergence
    unit = unit_of(stored, country)
    no_people = "these results have no populations"
    for name, draw, table, missing in (
        ("predictions", figures.predicted_against_true, stored.results.predictions, None),
        (
            "strata",
            figures.by_population,
            runs,
            no_people if set(runs["stratum"]) == {ALL} else None,
        ),
    ):
        for split, period in stored.cells:
            drawing = partial(draw, table, split, period, unit)
            drawable.add(f"{name}_{period}_{split}", drawing, missing)
    with_paper = of_german_counties(stored)
    utility = partial(figures.privacy_utility, runs, with_paper=with_paper)
    drawable.add("privacy_utility", utility)
    no_curves = None if len(curves) else "these results have no curves"
    drawable.add("convergence", partial(figures.convergence, curves), no_curves)
    drawable.add("losses", partial(figures.losses, curves), no_curves)
    return drawable


def of_german_counties(stored: GridFolder) -> bool:
    """Whether the results can stand beside the paper's tables: reported cases of counties."""
    ids = stored.results.predictions["region"].unique()
    counties = bool(ids.str.contains(r"^\d{5}$").all())
    return stored.folder.manifest.data.simulated is None and counties


def unit_of(stored: GridFolder, country: Atlas | None) -> str:
    """The word for a region of these results: county, community or region."""
    regions = set(stored.results.predictions["region"].unique())
    if country is not None and regions <= set(country.counties.regions):
        return "county"
    if country is not None and country.communities is not None:
        return "community" if regions <= set(country.communities.regions) else "region"
    return "region"


def _of_country(drawable: Plan, stored: GridFolder, country: Atlas, place: Place) -> None:
    counties, communities = country.counties, country.communities
    sources = country.data_attribution
    covered = {p: days for p, days in stored.grid.periods.items() if country.covers(days)}
    early = none = shapes = None
    if not covered:
        days = f"{counties.start} … {counties.end}"
        early = f"{country.source} has {days}, none of these periods"
    if communities is None:
        none = f"{country.source} has no communities.csv"
    if country.county_shapes is None or country.community_shapes is None:
        shapes = f"{country.source} has no counties.geojson and communities.geojson"
    levels = {
        name: level.population
        for name, level in (("counties", counties), ("communities", communities))
        if level is not None and level.population is not None
    }

    def zeros() -> Figure:
        assert communities is not None
        plain = stored.settings.but(smoothing="none")
        tables = {p: zero_entries(communities, plain, days) for p, days in covered.items()}
        return figures.zero_entries(tables, sources)

    drawable.add("populations", partial(figures.populations, levels, sources))
    newest = list(covered.values())[-1:]
    drawable.add(
        "regions", lambda: maps.regions(country, place, newest[0]), none or shapes or early
    )
    drawable.add("zero_entries", zeros, none or early)
    drawable.add("cases", partial(maps.cases, country, covered), early)
    if country.county_shapes is None and not early:
        drawable.left_out["maps in cases"] = f"{country.source} has no counties.geojson"
