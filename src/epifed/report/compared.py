"""The comparison that matters: every learner beside "like today", in three columns."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl

from epifed.evaluate.folder import ResultsFolder
from epifed.evaluate.results import TRAINED, summary
from epifed.report.tables import budget, ratio
from epifed.words import counted

Kind = Literal["weekly", "experiment"]
HEADER = ["method", "ε", "error / like today", "interval score / hub baseline", "in 95 %"]
LABELS = {"persistence": "like today", "federated": "fedavg (the paper's model)"}
"""What a method of a table is called where it is read by people."""
LIKE_TODAY = '"like today"'
HOPELESS = 2.0
"""Times the error of "like today" from which on noise has drowned what clients say."""


@dataclass(frozen=True)
class Compared:
    """One method at one budget, over "like today" on the same days; below 1 is better."""

    kind: Kind
    """`weekly`: forecasts from a backtest. `experiment`: a training and its test windows."""
    method: str
    epsilon: float | None
    error: float | None
    """Mean absolute error over that of "like today"."""
    interval_score: float | None = None
    """WIS over that of the COVIDhub baseline, if the method says how sure it is."""
    coverage: float | None = None
    """How often the 95 % interval held the truth."""

    @property
    def trained(self) -> bool:
        """Whether it is a learner's: a baseline has no budget."""
        return self.epsilon is not None

    @property
    def label(self) -> str:
        """The method as people read it."""
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
    """In plain words: which learner beats "like today" at which budgets."""
    trained = [row for row in rows if row.trained and row.error is not None]
    if not trained:
        return f"{LIKE_TODAY} makes no error at all, so there is nothing to beat."
    learners = dict.fromkeys((row.kind, row.label) for row in trained)
    return " ".join(
        f"{kind.capitalize()}: "
        + _of_learner(label, [row for row in trained if (row.kind, row.label) == (kind, label)])
        for kind, label in learners
    )


def _of_learner(label: str, rows: Sequence[Compared]) -> str:
    def told(some: Sequence[Compared]) -> str:
        return ", ".join(f"ε = {budget(r.epsilon)} ({ratio(r.error)}×)" for r in some)

    wins = [row for row in rows if row.error is not None and row.error < 1]
    losses = [row for row in rows if row not in wins]
    said = []
    if wins:
        said.append(f"beats {LIKE_TODAY} at {told(wins)}")
    if losses:
        said.append(f"loses to {'it' if wins else LIKE_TODAY} at {told(losses)}")
    return f"{label} {' and '.join(said)}."


def advice(rows: Sequence[Compared], clients: int) -> str | None:
    """What to do where noise has drowned what so few clients say, if it has."""
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
        f"{worst.label} at ε = {budget(worst.epsilon)} errs {ratio(worst.error)} times as much "
        f"as {LIKE_TODAY}: noise drowns what {counted(clients, 'client')} had to say; take a "
        f"larger ε{other}"
    )


def group_title(kind: Kind, folder: ResultsFolder) -> str:
    """What the rows of a kind are, in a few words."""
    if kind == "experiment":
        return "experiment: trained once"
    assert folder.backtest is not None
    return f"weekly: {counted(folder.backtest.record.origins, 'forecast')} a region"


def tested_on(kind: Kind, folder: ResultsFolder) -> str:
    """The days that the rows of a kind were tested on."""
    if kind == "experiment":
        assert folder.grid is not None
        days = sorted(folder.grid.predictions["target_day"].unique())
        return f"tested on {days[0]} to {days[-1]}"
    assert folder.backtest is not None
    record = folder.backtest.record
    return f"forecasts of {record.first_origin} to {record.last_origin}"
