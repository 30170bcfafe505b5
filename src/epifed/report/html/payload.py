"""The data that the page shows, as one JSON object."""

import math
from dataclasses import asdict, fields
from datetime import UTC, date, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from epifed.data.calendar import DAYS_OF, WEEK, Step
from epifed.data.panel import CasePanel
from epifed.data.quality import RECENT_DAYS, clean
from epifed.errors import EpifedError
from epifed.evaluation.backtest import SCORES
from epifed.evaluation.metrics import METRICS, Metric
from epifed.evaluation.results_folder import TRAINED, Results, ResultsFolder, summary
from epifed.explain import explain_folder
from epifed.learners.base import Parts
from epifed.ledger.budget import left, together
from epifed.ledger.ledger import Ledger
from epifed.privacy.accounting import most_advantage, right_at_most
from epifed.report.drawing import map_of
from epifed.report.tables import compared

WEEKS = (7, 14, 21, 28)
MOST_ORIGINS = 60
MOST_PAST = 60_000
"""Most past forecasts that are kept in full, of all regions together."""
MOST_TEST_VALUES = 300_000


def plain(value: float | None, digits: int = 4) -> float | str | None:
    """A number for JSON: rounded to significant digits, NaN as null, infinity as text."""
    if value is None or math.isnan(value):
        return None
    return float(f"{value:.{digits}g}") if math.isfinite(value) else "inf"


def weekly(values: Any, step: Step) -> list[Any]:
    """Cases of seven days from daily averages, with a decimal only below 100.

    Counts of weeks are kept as they are.
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
    """The scores of every method beside persistence, as `epifed run` prints them."""
    return [
        asdict(row)
        | {
            name: plain(getattr(row, name))
            for name in ("epsilon", "error", "interval_score", "coverage")
        }
        for row in compared(folder)
    ]


def metrics() -> list[dict[str, Any]]:
    """The metrics of the page: their keys, and their names by language or as the label."""
    return [
        {
            "key": metric.name,
            "label": metric.label,
            "words": dict(metric.words),
            "unit": metric.unit,
            "better": metric.better,
            "small_counts": metric.small_counts,
        }
        for metric in _on_page()
    ]


def _on_page() -> list[Metric]:
    return [metric for metric in METRICS.values() if metric.on_page]


def budgets(folder: ResultsFolder) -> dict[str, Any]:
    """The guarantee of each ε of the grid, as `epifed explain` prints it."""
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
    """The scores for every split and period: of each method, and of the federation at each ε."""
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

    They are of the temporal split if there is one: days after those of the training.
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
    """Scores of past forecasts by origin, horizon and region, and the newest forecasts in full."""
    if folder.backtest is None:
        return None
    frame = folder.backtest.backtest.filter(pl.col("region").is_in(list(regions)))
    step = DAYS_OF[folder.backtest.record.step]
    horizons = frame["horizon"].unique().sort().to_list()
    horizon = WEEK // step if WEEK // step in horizons else horizons[0]
    main = frame.filter(horizon=horizon)
    kept = min(MOST_ORIGINS, max(4, MOST_PAST // len(regions)))
    origins = sorted(main["origin_date"].unique())[-kept:]
    by_region = {row["region"]: row for row in _scored(main, "region")}
    bands = ("truth", "persistence", "point", "lower_95", "lower_50", "upper_50", "upper_95")
    record = folder.backtest.record
    return {
        "horizon": step * horizon,
        "record": {
            name: plain(value) if isinstance(value, int | float) else value
            for name, value in record.model_dump(mode="json").items()
        },
        "right": _guesses((record.epsilon_per_release, record.epsilon_total), record.delta),
        "all": _scored(frame, pl.lit(1).alias("all"))[0],
        "origins": _scored(main, "origin_date"),
        "horizons": [
            row | {"days": step * row["horizon"]}
            for row in _scored(frame, "horizon")
            if step * row["horizon"] in WEEKS or len(horizons) <= len(WEEKS)
        ],
        "regions": [
            {name: by_region[region][name] for name in OF_REGION} if region in by_region else None
            for region in regions
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
    """The privacy cost of an office's release, alone and with earlier releases in the forecast."""
    found = folder.manifest.release
    if found is None:
        return None
    return {
        "training": found.training,
        "learner": found.learner,
        "since": str(found.real_time_since) if found.real_time_since else None,
        "epsilon": plain(found.epsilon, 6),
        "releases": found.releases,
        "total": plain(found.epsilon_total, 6),
        "delta": found.delta,
        "right": _guesses((found.epsilon, found.epsilon_total), found.delta),
    }


def _guesses(budgets: tuple[float, float], delta: float) -> list[Any] | None:
    """Upper bounds on right guesses about participation, for one release and for all together."""
    if not all(map(math.isfinite, budgets)):
        return None
    return [plain(right_at_most(most_advantage(e, delta)), 6) for e in budgets]


OF_REGION = ("forecasts", "mae", "persistence_mae", "coverage_95")
"""The scores of each region that the page shows."""


def _scored(frame: pl.DataFrame, by: str | pl.Expr) -> list[dict[str, Any]]:
    """The scores and mean errors of each group of past forecasts, sorted by group."""
    truth = pl.col("truth")
    table = frame.group_by(by).agg(
        pl.len().alias("forecasts"),
        (pl.col("point") - truth).abs().mean().alias("mae"),
        (pl.col("persistence") - truth).abs().mean().alias("persistence_mae"),
        *SCORES,
    )
    return [
        {name: _shown(value) for name, value in row.items()}
        for row in table.sort(table.columns[0]).iter_rows(named=True)
    ]


def _shown(value: Any) -> Any:
    """A score rounded, a date as text."""
    if isinstance(value, float):
        return plain(value)
    return value.isoformat() if isinstance(value, date) else value


def ledger_summary(path: Path) -> dict[str, Any]:
    """The state of a ledger, which may be a copy, since it is only read."""
    book = Ledger(path, copy=True).book()
    cap = book.cap
    taken = cap.price(book.taken())
    return {
        "cap": asdict(cap),
        "spent": cap.price(book.released()),
        "taken": taken,
        "left": left(cap, taken),
        "total": cap.price(book.since_the_beginning()),
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


MOST_REGIONS = 12_000
MANY_REGIONS = 2000
"""From this number on, the page has fewer days and horizons of each region."""
HISTORY_DAYS = 182
LATER_DAYS = 28
MOST_COUNTS = 500_000
LEVELS = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)
"""The quantiles that the page shows: the median, and the ends of the 50, 80 and 95 % intervals."""


def payload(
    folder: ResultsFolder,
    panel: CasePanel | None,
    *,
    groups: dict[str, str],
    title: str | None,
    ledger: Path | None,
) -> dict[str, Any]:
    """The page's data. `groups` maps a region to the larger one that contains it."""
    ids = panel.regions if panel else _regions(folder)
    if len(ids) > MOST_REGIONS:
        raise EpifedError(
            f"{folder.path}: found {len(ids)} regions; expected at most {MOST_REGIONS} on "
            "one page: report counties instead of communities"
        )
    rows = {region: i for i, region in enumerate(ids)}
    _same_regions(folder, panel, rows)
    as_of = _as_of(folder, panel)
    manifest, data = folder.manifest, folder.manifest.data
    attribution = dict.fromkeys((*(panel.attribution if panel else ()), *data.attribution))
    found: dict[str, Any] = {
        "title": title,
        "made": datetime.now(UTC).isoformat(timespec="minutes"),
        "as_of": as_of.isoformat(),
        "level": _level(panel, ids),
        "step": folder.settings.step,
        "simulated": data.simulated is not None,
        "seeded": folder.seeded,
        "source": data.source,
        "attribution": list(attribution),
        "same_data": panel is None or _same_data(folder, panel),
        "regions": {
            "ids": ids,
            "names": panel.names if panel else ids,
            "groups": [groups.get(region) for region in ids] if groups else None,
            "people": None
            if panel is None or panel.population is None
            else panel.population.tolist(),
        },
        "history": _history(panel, as_of) if panel else None,
        "anomalies": _anomalies(panel, as_of, rows) if panel and folder.newest else None,
        "map": map_of(panel) if panel else None,
        "forecast": _forecast(folder, rows),
        "total": _total(folder),
        "alone": manifest.randomness == "none",
        "about": manifest.forecast.model_dump(exclude={"notes", "reason"})
        if manifest.forecast
        else None,
        "nowcast": _nowcast(folder, rows),
        "backtest": backtest(folder, rows),
        "compared": comparison(folder),
        "release": release(folder),
        "metrics": metrics(),
        "grid": None,
        "ledger": ledger_summary(ledger) if ledger else None,
        "settings": _settings(folder),
        "manifest": {
            "epifed": manifest.epifed,
            "finished": manifest.finished.isoformat(),
            "seed": folder.settings.seed,
            "data_sha256": data.sha256,
            "versions": manifest.versions,
        },
        "version": version("epifed"),
    }
    if folder.grid is not None:
        found["grid"] = {
            "cells": cells(folder.grid),
            "tests": tests(folder.grid, rows, folder.settings.step),
            "privacy": budgets(folder),
        }
    return found


def _same_data(folder: ResultsFolder, panel: CasePanel) -> bool:
    folders = [folder, *([folder.beside] if folder.beside else [])]
    return all(one.manifest.data.is_of(panel) for one in folders)


def _settings(folder: ResultsFolder) -> dict[str, Any]:
    values = folder.settings.model_dump(mode="python")
    return {k: plain(v, 12) if isinstance(v, float) else v for k, v in values.items()}


def _past(folder: ResultsFolder) -> dict[str, pl.DataFrame]:
    """The tables of forecasts by name, as far as they exist."""
    found = {"forecast": folder.newest.forecast} if folder.newest else {}
    return found | ({"backtest": folder.backtest.backtest} if folder.backtest else {})


def _regions(folder: ResultsFolder) -> tuple[str, ...]:
    frames = [*_past(folder).values(), *([folder.grid.predictions] if folder.grid else [])]
    return tuple(sorted(set().union(*(set(frame["region"].unique()) for frame in frames))))


def _same_regions(folder: ResultsFolder, panel: CasePanel | None, rows: dict[str, int]) -> None:
    for name, frame in _past(folder).items():
        unknown = set(frame["region"].unique()) - rows.keys()
        if unknown and panel is not None:
            raise EpifedError(
                f"{folder.path}: found in {name}.parquet the region {min(unknown)}, which "
                f"is not in {panel.source}; expected the data that the results were made of"
            )


def _as_of(folder: ResultsFolder, panel: CasePanel | None) -> date:
    """The day that counts as today: the forecast's origin, else the last day of the results."""
    if folder.newest is not None:
        last = folder.newest.forecast["origin_date"].max()
    else:
        assert folder.grid is not None
        last = folder.grid.predictions["target_day"].max()
    assert isinstance(last, date)
    if panel is not None and not panel.start <= last <= panel.end:
        raise EpifedError(
            f"{folder.path}: found results up to {last}, but {panel.source} has the days "
            f"{panel.start} … {panel.end}; expected the data that the results were made of"
        )
    return last


def _level(panel: CasePanel | None, ids: tuple[str, ...]) -> str:
    if panel and panel.parents:
        return "community"
    counties = panel is not None and panel.boundaries is not None
    return "county" if counties or all(len(i) == 5 and i.isdecimal() for i in ids) else "region"


def _history(panel: CasePanel, as_of: date) -> dict[str, Any]:
    """Counts of each day or week up to `as_of`, followed by those reported later."""
    kept = int(np.clip(MOST_COUNTS // len(panel.regions), 42, HISTORY_DAYS))
    end, step = panel.index(as_of) + 1, panel.step_days
    begin = max(0, end - kept - 6)
    daily = panel.counts[:, begin : end + LATER_DAYS // step]
    whole = bool((daily == np.rint(daily)).all())
    values = daily.astype(int) if whole else np.round(daily, 1)
    return {
        "start": panel.day(begin).isoformat(),
        "step": step,
        "days": end - begin,
        "counts": values.tolist(),
    }


def _anomalies(panel: CasePanel, as_of: date, rows: dict[str, int]) -> list[list[Any]]:
    """Reports of the last weeks that the forecast treats as implausible."""
    known = clean(panel.between(panel.start, as_of))
    found = known.to_long(RECENT_DAYS).sort("region", "day")
    return [
        [rows[region], day.isoformat(), kind, round(reported, 1), round(expected, 1)]
        for region, day, kind, reported, expected in found.iter_rows()
    ]


def _parts(
    parts: pl.DataFrame | None, rows: dict[str, int], horizons: list[int]
) -> list[list[list[float | None]]] | None:
    """The parts of each forecast change, in the order of `Parts`: [part][region][horizon]."""
    if parts is None:
        return None
    names = [field.name for field in fields(Parts)]
    laid = (lay_out(parts, rows, "horizon", horizons, name) for name in names)
    return [
        [[None if np.isnan(v) else round(float(v), 3) for v in region] for region in part]
        for part in laid
    ]


def _forecast(folder: ResultsFolder, rows: dict[str, int]) -> dict[str, Any] | None:
    """The newest forecast, at the levels that the page shows."""
    if folder.newest is None:
        return None
    frame = folder.newest.forecast.with_columns(pl.col("level").round(4))
    frame = frame.filter(pl.col("origin_date") == pl.col("origin_date").max())
    absent = set(LEVELS) - set(frame["level"].unique())
    if absent:
        raise EpifedError(
            f"{folder.path}: found in forecast.parquet no level {min(absent):g}; "
            f"expected {', '.join(f'{level:g}' for level in LEVELS)}"
        )
    step = folder.settings.step
    horizons = frame["horizon"].unique().sort().to_list()
    if len(rows) > MANY_REGIONS:
        weeks = [days // DAYS_OF[step] for days in WEEKS]
        horizons = [h for h in horizons if h in weeks] or horizons[:1]
    return {
        "horizons": [DAYS_OF[step] * h for h in horizons],
        "parts": _parts(folder.newest.parts, rows, horizons),
        "levels": LEVELS,
        "values": [
            weekly(
                lay_out(frame.filter(level=level), rows, "horizon", horizons, "value"),
                step,
            )
            for level in LEVELS
        ],
    }


def _total(folder: ResultsFolder) -> dict[str, Any] | None:
    """The newest forecast of the sum of all regions: cases of seven days, [levels][horizons]."""
    frame = folder.newest.total if folder.newest else None
    if frame is None:
        return None
    frame = frame.with_columns(pl.col("level").round(4)).sort("horizon")
    step = folder.settings.step
    return {
        "horizons": [DAYS_OF[step] * h for h in frame["horizon"].unique().sort()],
        "levels": LEVELS,
        "values": [weekly(frame.filter(level=level)["value"].to_numpy(), step) for level in LEVELS],
    }


def _nowcast(folder: ResultsFolder, rows: dict[str, int]) -> dict[str, Any] | None:
    """The last two weeks as known and as estimated, and R(t), each as [regions][days]."""
    frame = folder.newest.nowcast if folder.newest else None
    if frame is None or len(rows) > MANY_REGIONS:
        return None
    days = sorted(frame["date"].unique())
    digits = dict.fromkeys(("known", "estimate", "lower", "upper"), 1)
    digits |= dict.fromkeys(("r", "r_lower", "r_upper"), 2)
    return {
        "days": [day.isoformat() for day in days],
        **{
            name: [
                [None if np.isnan(v) else round(float(v), places) for v in region]
                for region in lay_out(frame, rows, "date", days, name)
            ]
            for name, places in digits.items()
        },
    }
