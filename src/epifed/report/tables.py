"""Printed tables: a grid beside the paper's numbers, and every learner beside persistence."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

import polars as pl

from epifed.errors import counted
from epifed.evaluation.metrics import METRICS, shown
from epifed.evaluation.results_folder import TRAINED, ResultsFolder, summary

TableName = Literal["main", "s1"]
TABLES: tuple[TableName, ...] = ("main", "s1")
PAPER_METRICS = ("mse", "mae", "mape", "r2")
"""The metrics that the paper publishes."""

COMPARISON_COLUMNS = (
    "split", "table", "period", "epsilon", "metric",
    "published_mean", "published_std", "mean", "std", "outside", "persistence",
)  # fmt: skip


def published() -> pl.DataFrame:
    """The numbers of the paper's tables in long form: table, period, epsilon, metric, mean, std."""
    text = files("epifed.report").joinpath("published_results.csv").read_bytes()
    wide = pl.read_csv(text).with_columns(pl.col("table").str.to_lowercase())
    keys = ["table", "period", "epsilon"]
    return pl.concat(
        wide.select(
            *keys,
            pl.lit(m).alias("metric"),
            pl.col(f"{m}_mean").alias("published_mean"),
            pl.col(f"{m}_std").alias("published_std"),
        )
        for m in PAPER_METRICS
    )


def table_epsilons(table: TableName) -> list[float]:
    """The budgets of one of the paper's tables."""
    return published().filter(pl.col("table") == table)["epsilon"].unique().sort().to_list()


def comparison(runs: pl.DataFrame, tables: Sequence[TableName] = TABLES) -> pl.DataFrame:
    """The grid compared with the paper: a row for each split, table, period, budget and metric.

    The paper's tables do not state how the windows were split, so each is compared with both
    splits. MdAPE is measured here only. `outside` marks a cell that differs from the paper's by
    more than either standard deviation.
    """
    means = _long(summary(runs))
    ours = means.filter(TRAINED).drop("method", "runs")
    persistence = means.filter(pl.col("method") == "persistence").select(
        "split", "period", "metric", pl.col("mean").alias("persistence")
    )
    theirs = published().filter(pl.col("table").is_in(list(tables)))
    cells = theirs.select("table", "period", "epsilon").unique(maintain_order=True)
    order = {metric: i for i, metric in enumerate(METRICS)}
    return (
        ours.join(cells, on=["period", "epsilon"], how="inner")
        .join(theirs, on=["table", "period", "epsilon", "metric"], how="left")
        .join(persistence, on=["split", "period", "metric"], how="left")
        .with_columns(_outside().alias("outside"))
        .select(COMPARISON_COLUMNS)
        .sort(
            pl.col("split").replace_strict({"temporal": 0, "shuffled": 1}),
            "table",
            "period",
            "epsilon",
            pl.col("metric").replace_strict(order),
        )
    )


def _outside() -> pl.Expr:
    difference = (pl.col("mean") - pl.col("published_mean")).abs()
    return (difference > pl.col("std")) & (difference > pl.col("published_std"))


def comparison_markdown(compared: pl.DataFrame) -> str:
    """The comparison as Markdown: a table for each of the paper's, beside both splits.

    A star marks a value outside the paper's standard deviation and our own.
    """
    text = []
    for table, period in compared.select("table", "period").unique(maintain_order=True).rows():
        splits = compared["split"].unique(maintain_order=True).to_list()
        header = ["ε", "metric", "paper", *splits, *(f"persistence, {s}" for s in splits)]
        here = compared.filter((pl.col("table") == table) & (pl.col("period") == period))
        rows = []
        for epsilon, metric in here.select("epsilon", "metric").unique(maintain_order=True).rows():
            cells = here.filter((pl.col("epsilon") == epsilon) & (pl.col("metric") == metric))
            by_split = {row["split"]: row for row in cells.iter_rows(named=True)}
            paper = cells.row(0, named=True)
            if paper["published_mean"] is not None:
                rows.append(
                    [budget(epsilon), METRICS[metric].head]
                    + [with_spread(paper["published_mean"], paper["published_std"])]
                    + [
                        with_spread(by_split[s]["mean"], by_split[s]["std"])
                        + (" *" if by_split[s]["outside"] else "")
                        for s in splits
                    ]
                    + [number(by_split[s]["persistence"]) for s in splits]
                )
        text.append(f"**{period}, the paper's table {table}**\n\n{markdown(header, rows)}")
    text.append("\\* differs from the paper by more than either standard deviation\n")
    return "\n".join(text)


def _long(means: pl.DataFrame, *, small_counts: bool = False) -> pl.DataFrame:
    return pl.concat(
        means.select(
            "split", "period", "method", "epsilon", "runs",
            pl.lit(m.name).alias("metric"),
            pl.col(f"{m.name}_mean").alias("mean"),
            pl.col(f"{m.name}_std").alias("std"),
        )
        for m in shown(small_counts=small_counts)
    )  # fmt: skip


def community_scores(runs: pl.DataFrame, smoothing: str) -> pl.DataFrame:
    """Every score of every method on communities, in long form; the paper publishes none."""
    means = _long(summary(runs), small_counts=True).drop("runs")
    return means.select(pl.lit(smoothing).alias("smoothing"), pl.all())


def ratio(value: float | None) -> str:
    """A relative score as text, with three decimals; a dash where it is not defined."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:.3f}" if value < 10 else number(value)


def number(value: float | None) -> str:
    """A number as text with four figures, as in the paper: 0.938, 24.97, 1.26e+10."""
    if value is None or math.isnan(value):
        return "–"
    if value != 0 and (abs(value) >= 1e5 or abs(value) < 1e-3):
        return f"{value:.2e}"
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def with_spread(mean: float | None, std: float | None) -> str:
    """Mean ± standard deviation as text, or the mean alone for a single run."""
    return number(mean) if std is None or math.isnan(std) else f"{number(mean)} ± {number(std)}"


def budget(epsilon: float | None) -> str:
    """ε as text; empty for a baseline."""
    if epsilon is None:
        return ""
    return "∞" if math.isinf(epsilon) else f"{epsilon:g}"


def method_header(*, small_counts: bool = False) -> list[str]:
    """The header of `method_rows`."""
    return ["method", "ε", *(metric.head for metric in shown(small_counts=small_counts))]


def method_rows(
    runs: pl.DataFrame, split: str, period: str, *, small_counts: bool = False
) -> list[list[str]]:
    """Method, ε and the metrics as text: baselines first, then the federation by budget.

    `small_counts` adds the scores for small counts.
    """
    means = summary(runs).filter((pl.col("split") == split) & (pl.col("period") == period))
    ordered = means.sort(TRAINED, "epsilon", maintain_order=True)
    return [
        [row["method"], budget(row["epsilon"])]
        + [
            with_spread(row[f"{m.name}_mean"], row[f"{m.name}_std"])
            for m in shown(small_counts=small_counts)
        ]
        for row in ordered.iter_rows(named=True)
    ]


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * 2 + ["---:"] * (len(header) - 2), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


Kind = Literal["weekly", "experiment"]
HEADER = ["method", "ε", "relative MAE", "relative WIS", "in 95 %"]
LABELS = {"federated": "fedavg (the paper's model)"}
"""The readable names of methods."""
HOPELESS = 2.0
"""Relative MAE from which noise hides the clients' signal."""


@dataclass(frozen=True)
class Compared:
    """One method at one budget, relative to persistence on the same days; below 1 is better."""

    kind: Kind
    """`weekly`: forecasts from a backtest. `experiment`: a training and its test windows."""
    method: str
    epsilon: float | None
    error: float | None
    """Mean absolute error relative to that of persistence."""
    interval_score: float | None = None
    """WIS relative to that of the COVIDhub baseline, if the method has intervals."""
    coverage: float | None = None
    """Share of 95 % intervals that contain the truth."""

    @property
    def trained(self) -> bool:
        """Whether it is a learner; a baseline has no budget."""
        return self.epsilon is not None

    @property
    def label(self) -> str:
        """The readable name of the method."""
        return LABELS.get(self.method, self.method)

    def cells(self) -> list[str]:
        """The row as text."""
        coverage = "–" if self.coverage is None else f"{self.coverage:.1%}"
        return [
            self.label,
            budget(self.epsilon),
            *map(ratio, (self.error, self.interval_score)),
            coverage,
        ]


def compared(folder: ResultsFolder) -> list[Compared]:
    """The rows of a results folder: weekly forecasts first, then its experiment."""
    rows = _weekly(folder)
    if folder.grid is not None:
        last = folder.grid.runs.select("split", "period").row(-1)
        rows += experiment(folder.grid.runs, *last)
    return rows


def _weekly(folder: ResultsFolder) -> list[Compared]:
    if folder.backtest is None:
        return []
    trained = [
        Compared(
            "weekly",
            record.learner,
            record.epsilon_per_release,
            record.mae_ratio,
            record.wis_ratio,
            record.coverage_95,
        )
        for record in folder.backtest.by_budget
    ]
    error, score = (
        None if all(one is None for one in found) else 1.0
        for found in ([row.error for row in trained], [row.interval_score for row in trained])
    )
    return [Compared("weekly", "persistence", None, error, score), *trained]


def experiment(runs: pl.DataFrame, split: str, period: str) -> list[Compared]:
    """The rows of one split and period of a grid."""
    here = summary(runs).filter(split=split, period=period)
    like_today = here.filter(method="persistence")["mae_mean"]
    base = like_today[0] if len(like_today) else 0.0
    return [
        Compared(
            "experiment",
            row["method"],
            row["epsilon"],
            row["mae_mean"] / base if base > 0 else None,
        )
        for row in here.sort(TRAINED, "epsilon", maintain_order=True).iter_rows(named=True)
    ]


def verdict(rows: Sequence[Compared]) -> str:
    """Sentences on which learner beats persistence at which budgets."""
    trained = [row for row in rows if row.trained and row.error is not None]
    if not trained:
        return "Persistence makes no error at all, so there is nothing to beat."
    learners = dict.fromkeys((row.kind, row.label) for row in trained)
    return " ".join(
        f"{kind.capitalize()}: "
        + _of_learner(label, [row for row in trained if (row.kind, row.label) == (kind, label)])
        for kind, label in learners
    )


def _of_learner(label: str, rows: Sequence[Compared]) -> str:
    def told(some: Sequence[Compared]) -> str:
        return ", ".join(f"ε = {budget(r.epsilon)} (relative MAE {ratio(r.error)})" for r in some)

    wins = [row for row in rows if row.error is not None and row.error < 1]
    losses = [row for row in rows if row not in wins]
    said = []
    if wins:
        said.append(f"beats persistence at {told(wins)}")
    if losses:
        said.append(f"loses to {'it' if wins else 'persistence'} at {told(losses)}")
    return f"{label} {' and '.join(said)}."


def advice(rows: Sequence[Compared], clients: int) -> str | None:
    """Advice where noise hides the signal of so few clients, if it does."""
    drowned = [
        row
        for row in rows
        if row.kind == "experiment"
        and row.epsilon is not None
        and math.isfinite(row.epsilon)
        and (row.error or 0) > HOPELESS
    ]
    if not drowned:
        return None
    worst = max(drowned, key=lambda row: row.error or 0)
    other = "" if worst.method == "trend" else ", or a learner that needs less: --learner trend"
    return (
        f"{worst.label} at ε = {budget(worst.epsilon)} has a relative MAE of {ratio(worst.error)}: "
        f"with {counted(clients, 'client')}, noise hides the signal; take a larger ε{other}"
    )


def group_title(kind: Kind, folder: ResultsFolder) -> str:
    """A short title for the rows of a kind."""
    if kind == "experiment":
        return "experiment: trained once"
    assert folder.backtest is not None
    return f"weekly: {counted(folder.backtest.record.origins, 'forecast')} a region"


def tested_on(kind: Kind, folder: ResultsFolder) -> str:
    """The test days of the rows of a kind, in words."""
    if kind == "experiment":
        assert folder.grid is not None
        days = sorted(folder.grid.predictions["target_day"].unique())
        return f"tested on {days[0]} to {days[-1]}"
    assert folder.backtest is not None
    record = folder.backtest.record
    return f"forecasts of {record.first_origin} to {record.last_origin}"
