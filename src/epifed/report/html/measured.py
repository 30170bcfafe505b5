"""What was measured, for the page: the grid's scores by budget, the backtest, the ledger."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from epifed.days import DAYS_OF, WEEK, Step
from epifed.evaluate.folder import ResultsFolder
from epifed.evaluate.metrics import METRICS, Metric
from epifed.evaluate.results import TRAINED, Results, summary
from epifed.explain import explain_folder
from epifed.ledger.budget import left, together
from epifed.ledger.ledger import Ledger
from epifed.privacy.tradeoff import most_advantage, right_at_most
from epifed.report.compared import compared

WEEKS = (7, 14, 21, 28)
MOST_ORIGINS = 60
MOST_PAST = 60_000
"""Past forecasts kept in full, of all regions together."""
MOST_TEST_VALUES = 300_000


def plain(value: float | None, digits: int = 4) -> float | str | None:
    """A number as JSON takes it: rounded to significant digits, infinity as text."""
    if value is None or math.isnan(value):
        return None
    return float(f"{value:.{digits}g}") if math.isfinite(value) else "inf"


def weekly(values: Any, step: Step) -> list[Any]:
    """Averages a day as sums of seven days, to a whole number where a tenth does not show.

    Counts of weeks are such sums already.
    """
    sums = np.asarray(values, dtype=np.float64) * (WEEK // DAYS_OF[step])
    rounded = np.where(np.abs(sums) >= 100, np.rint(sums), np.round(sums, 1))
    found: list[Any] = _listed(rounded)
    return found


def _listed(values: Any) -> Any:
    if values.ndim > 1:
        return [_listed(row) for row in values]
    return [
        None if math.isnan(v) else int(v) if v == int(v) else v for v in (float(v) for v in values)
    ]


def comparison(folder: ResultsFolder) -> list[dict[str, Any]]:
    """Every method beside "like today", as `epifed run` prints it."""
    return [
        asdict(row)
        | {
            name: plain(getattr(row, name))
            for name in ("epsilon", "error", "interval_score", "coverage")
        }
        for row in compared(folder)
    ]


def metrics() -> list[dict[str, Any]]:
    """The metrics of the page: scores come by these keys, and labels that nobody translated."""
    return [
        {
            "key": metric.name,
            "label": metric.label,
            "unit": metric.unit,
            "better": metric.better,
            "small_counts": metric.small_counts,
        }
        for metric in _on_page()
    ]


def _on_page() -> list[Metric]:
    return [metric for metric in METRICS.values() if metric.on_page]


def budgets(folder: ResultsFolder) -> dict[str, Any]:
    """What each ε of the grid guarantees, as `epifed explain` says it."""
    found = explain_folder(folder)
    return {
        "clients": found.clients,
        "rounds": found.budgets[0].spent.rounds,
        "sampling_rate": plain(found.budgets[0].spent.sampling_rate),
        "delta": found.delta,
        "accountant": found.accountant.upper(),
        "trainings": found.private_trainings,
        "composed": plain(found.composed_epsilon),
        "budgets": [
            {
                "epsilon": plain(b.epsilon, 6),
                "noise": plain(b.spent.noise_multiplier),
                "right": plain(b.right_at_most, 6),
                "right_noise": plain(b.right_at_most_with_this_noise, 6),
            }
            for b in found.budgets
        ],
    }


def cells(grid: Results) -> list[dict[str, Any]]:
    """The scores of every split and period: each method, and the federation at each ε."""
    means = summary(grid.runs)
    found = []
    for split, period in means.select("split", "period").unique(maintain_order=True).rows():
        here = (pl.col("split") == split) & (pl.col("period") == period)
        ordered = means.filter(here).sort(TRAINED, "epsilon", maintain_order=True)
        rows = [
            {
                "method": row["method"],
                "epsilon": plain(row["epsilon"], 6),
                "runs": row["runs"],
                "mean": {m.name: plain(row[f"{m.name}_mean"]) for m in _on_page()},
                "std": {m.name: plain(row[f"{m.name}_std"]) for m in _on_page()},
            }
            for row in ordered.iter_rows(named=True)
        ]
        zeros = means.filter(here)["zeros"][0]
        found.append({"split": split, "period": period, "zeros": plain(zeros, 9), "rows": rows})
    return found


def tests(grid: Results, regions: dict[str, int], step: Step) -> dict[str, Any] | None:
    """The first run's predictions of the last period, beside truth and persistence.

    Of the temporal split if there is one: days after those the model was trained on.
    """
    frame = grid.predictions.filter(pl.col("region").is_in(list(regions)))
    splits = frame["split"].unique().to_list()
    split = "temporal" if "temporal" in splits else min(splits, default=None)
    frame = frame.filter((pl.col("split") == split) & (pl.col("run") == 0))
    if frame.is_empty():
        return None
    last = frame.filter(pl.col("target_day") == frame["target_day"].max())["period"][0]
    frame = frame.filter(pl.col("period") == last)
    epsilons = frame["epsilon"].drop_nulls().unique().sort().to_list()
    days = sorted(frame["target_day"].unique())
    days = days[-max(2, MOST_TEST_VALUES // (len(regions) * (len(epsilons) + 2))) :]

    def laid_out(chosen: pl.DataFrame, column: str) -> list[Any]:
        return weekly(lay_out(chosen, regions, "target_day", days, column), step)

    like_today = frame.filter(method="persistence")
    federated = frame.filter(TRAINED)
    if like_today.is_empty():
        return None
    return {
        "split": split,
        "period": last,
        "days": [day.isoformat() for day in days],
        "epsilons": [plain(e, 6) for e in epsilons],
        "truth": laid_out(like_today, "truth"),
        "persistence": laid_out(like_today, "prediction"),
        "federated": [
            laid_out(federated.filter(pl.col("epsilon") == e), "prediction") for e in epsilons
        ],
    }


def lay_out(
    frame: pl.DataFrame, regions: dict[str, int], key: str, keys: list[Any], column: str
) -> Any:
    """A long table's column as regions × keys; nan where there is no row."""
    at = {value: i for i, value in enumerate(keys)}
    chosen = frame.filter(pl.col(key).is_in(keys) & pl.col("region").is_in(list(regions)))
    values = np.full((len(regions), len(keys)), np.nan)
    rows = chosen["region"].replace_strict(regions, return_dtype=pl.Int64).to_numpy()
    columns = np.array([at[value] for value in chosen[key]], dtype=np.int64)
    values[rows, columns] = chosen[column].to_numpy()
    return values


def backtest(folder: ResultsFolder, regions: dict[str, int]) -> dict[str, Any] | None:
    """How good past forecasts were: by origin, by horizon, by region; and the last ones in full."""
    if folder.backtest is None:
        return None
    frame = folder.backtest.backtest.filter(pl.col("region").is_in(list(regions)))
    step = DAYS_OF[folder.backtest.record.step]
    horizons = frame["horizon"].unique().sort().to_list()
    horizon = WEEK // step if WEEK // step in horizons else horizons[0]
    main = frame.filter(horizon=horizon)
    kept = min(MOST_ORIGINS, max(4, MOST_PAST // len(regions)))
    origins = sorted(main["origin_date"].unique())[-kept:]
    by_region = dict(zip((r := _scored(main, "region"))["region"], r.rows(), strict=True))
    bands = ("truth", "persistence", "point", "lower_95", "lower_50", "upper_50", "upper_95")
    record = folder.backtest.record
    return {
        "horizon": step * horizon,
        "record": {
            name: plain(value) if isinstance(value, int | float) else value
            for name, value in record.model_dump(mode="json").items()
        },
        "right": _guesses((record.epsilon_per_release, record.epsilon_total), record.delta),
        "all": _numbers(_scored(frame.with_columns(all=pl.lit(1)), "all").row(0)),
        "origins": [
            [row[0].isoformat(), *_numbers(row)]
            for row in _scored(main, "origin_date").sort("origin_date").iter_rows()
        ],
        "horizons": [
            [step * row[0], *_numbers(row)]
            for row in _scored(frame, "horizon").sort("horizon").iter_rows()
            if step * row[0] in WEEKS or len(horizons) <= len(WEEKS)
        ],
        "regions": [
            _numbers(by_region[region]) if region in by_region else None for region in regions
        ],
        "days": [
            main.filter(origin_date=day)["target_date"][0].isoformat() for day in origins
        ],
        "past": {
            name: weekly(lay_out(main, regions, "origin_date", origins, name), record.step)
            for name in bands
        },
    }  # fmt: skip


def release(folder: ResultsFolder) -> dict[str, Any] | None:
    """What an office's release costs, alone and with the earlier ones that the forecast knows."""
    found = folder.manifest.release
    if found is None:
        return None
    return {
        "training": found.training,
        "learner": found.learner,
        "epsilon": plain(found.epsilon, 6),
        "releases": found.releases,
        "total": plain(found.epsilon_total, 6),
        "delta": found.delta,
        "right": _guesses((found.epsilon, found.epsilon_total), found.delta),
    }


def _guesses(budgets: tuple[float, float], delta: float) -> list[Any] | None:
    """Of one release and of all together: how often a guess who took part is right at most."""
    if not all(map(math.isfinite, budgets)):
        return None
    return [plain(right_at_most(most_advantage(e, delta)), 6) for e in budgets]


def _scored(frame: pl.DataFrame, by: str) -> pl.DataFrame:
    """MAE and WIS beside those of persistence and baseline, and the intervals' coverage."""
    truth = pl.col("truth")
    return frame.group_by(by, maintain_order=True).agg(
        pl.len().alias("forecasts"),
        (pl.col("point") - truth).abs().mean().alias("mae"),
        (pl.col("persistence") - truth).abs().mean().alias("persistence_mae"),
        pl.col("wis").mean(),
        pl.col("baseline_wis").mean(),
        truth.is_between("lower_50", "upper_50").mean().alias("coverage_50"),
        truth.is_between("lower_95", "upper_95").mean().alias("coverage_95"),
    )


def _numbers(row: tuple[Any, ...]) -> list[Any]:
    return [row[1], *(plain(value) for value in row[2:])]


def ledger(path: Path) -> dict[str, Any]:
    """The state of a ledger, which may be a copy: it is only read."""
    book = Ledger(path, copy=True).book()
    cap = book.cap
    taken = cap.price(book.taken())
    return {
        "cap": asdict(cap),
        "spent": cap.price(book.released()),
        "taken": taken,
        "left": left(cap, taken),
        "head": book.head,
        "runs": [
            {
                "run": run.run,
                "opened": run.opened[:10],
                "data": run.days,
                "rounds": run.rounds,
                "spent": run.spent,
                "outcome": run.outcome,
                "epsilon": cap.price(together([run.part(run.counted)])),
            }
            for run in book.runs.values()
        ],
    }
