"""Rolling origins: at each, train on what was known, forecast, and score when the day has come.

The releases of the origins do not depend on one another, so they are computed in parallel, each
kept as one file; then each forecast sees the releases up to its own origin and none after.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import dp_accounting as dp
import joblib
import numpy as np
import polars as pl

from epifed import intervals
from epifed.errors import EpifedError
from epifed.evaluate.folder import BacktestTables, refuse_other, write_backtest
from epifed.evaluate.manifest import BacktestRecord
from epifed.evaluate.metrics import strata
from epifed.files import load_part, save_part
from epifed.forecasting import Forecast, forecast
from epifed.learner import Learner, Vector, make_learner
from epifed.panel import CasePanel
from epifed.privacy.accounting import epsilon_of, rounded_up
from epifed.privacy.plan import PrivacyPlan
from epifed.seeds import seed_sequence
from epifed.settings import Settings
from epifed.training import train
from epifed.windows import smooth

Progress = Callable[[int, int], None]

AHEAD = (7, 14, 21, 28)
"""Days ahead of the latest forecast."""
TRAINING_DAYS = 28
"""Targets within the last so many days are learned from."""

COVERAGES = {"50": (0.25, 0.75), "95": (0.025, 0.975)}


@dataclass(frozen=True)
class Backtest:
    """The forecasts of all origins beside what came, and what they cost."""

    table: pl.DataFrame
    forecasts: tuple[Forecast, ...]
    settings: Settings
    releases: int
    epsilon_total: float
    noise_multiplier: float
    latest: tuple[Forecast, ...]
    """From the last day of the data, at `AHEAD`, or at the learner's own horizon."""
    parts: pl.DataFrame | None = None
    """Where the changes of the latest come from, if the learner can say."""

    def summary(self) -> dict[str, Any]:
        """The scores as one record; ratios below 1 beat persistence, or the hub's baseline."""
        total = self.table.select(_SCORES).row(0, named=True)
        worst = self.by_month().sort("mae_ratio").row(-1, named=True)
        return total | {
            "worst_month_mae_ratio": worst["mae_ratio"],
            "worst_month": worst["month"],
            "epsilon_per_release": self.settings.epsilon,
            "epsilon_total": self.epsilon_total,
            "noise_multiplier": self.noise_multiplier,
            "delta": self.settings.delta,
            "accountant": self.settings.accountant,
            "learner": self.settings.learner,
            "horizon": self.settings.horizon,
            "origins": len(self.forecasts),
            "releases": self.releases,
            "first_origin": self.table["origin_date"].min(),
            "last_origin": self.table["origin_date"].max(),
            "regions": self.table["region"].n_unique(),
        }

    def caption(self) -> str:
        """What must stand under every table of these scores."""
        s = self.settings
        if not s.private:
            return "no differential privacy (ε = ∞)"
        return (
            f"ε = {s.epsilon:g} for each of {self.releases} releases (the newest forecast's too), "
            f"{rounded_up(self.epsilon_total)} in total, δ = {s.delta:g}, unit one client, add or "
            f"remove one client, {s.accountant.upper()} accountant; trailing averages: nothing "
            "looks ahead"
        )

    def write(self, out: Path, panel: CasePanel) -> None:
        """Write the results folder of this backtest, which was made on the panel."""
        ahead = pl.concat(one.to_long() for one in self.latest)
        record = BacktestRecord.model_validate(self.summary())
        write_backtest(
            out, panel, self.settings, BacktestTables(self.table, ahead, record, self.parts)
        )

    def by_month(self) -> pl.DataFrame:
        """The scores of each month of targets."""
        month = pl.col("target_date").dt.strftime("%Y-%m").alias("month")
        return self.table.group_by(month).agg(_SCORES).sort("month")

    def by_stratum(self, panel: CasePanel) -> pl.DataFrame:
        """The scores of each of the paper's population clusters."""
        if panel.population is None:
            return pl.DataFrame()
        rows = []
        for name, members in strata(panel.population):
            regions = [r for r, inside in zip(panel.regions, members, strict=True) if inside]
            part = self.table.filter(pl.col("region").is_in(regions))
            if len(part):
                rows.append(
                    {"stratum": name, "regions": len(regions)}
                    | part.select(_SCORES).row(0, named=True)
                )
        return pl.DataFrame(rows)


def _within(name: str) -> pl.Expr:
    inside = pl.col("truth").is_between(pl.col(f"lower_{name}"), pl.col(f"upper_{name}"))
    return inside.mean().alias(f"coverage_{name}")


_SCORES = (
    (
        (pl.col("point") - pl.col("truth")).abs().sum()
        / (pl.col("persistence") - pl.col("truth")).abs().sum()
    ).alias("mae_ratio"),
    (pl.col("wis").sum() / pl.col("baseline_wis").sum()).alias("wis_ratio"),
    *(_within(name) for name in COVERAGES),
)


def origins_between(
    first: date, last: date, every: int, panel: CasePanel, horizon: int
) -> list[date]:
    """The origins of a backtest; the last target lies within the panel and the period."""
    end = min(last, panel.end) - timedelta(days=horizon)
    days = range(0, (end - first).days + 1, every)
    if first < panel.start or len(days) == 0:
        raise EpifedError(
            f"{panel.source}: found days {panel.start} … {panel.end}; expected origins from "
            f"{first} to {last} with a target {horizon} days later"
        )
    return [first + timedelta(days=day) for day in days]


def run_backtest(
    panel: CasePanel,
    settings: Settings,
    origins: Sequence[date],
    out: Path,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Backtest:
    """Compute what is missing of a backtest, keep it in `out`, and score it.

    One more release, on the panel's last day, is for the newest forecast, which nobody can score
    yet.
    """
    folder = out / "parts" / _fingerprint(panel, settings)
    ends = sorted({*origins, panel.end})
    states = [folder / f"{day}_state.npz" for day in ends]
    forecasts = [folder / f"{day}_{_hash(ends[: i + 1])}.npz" for i, day in enumerate(ends)]
    refuse_other(out, "backtest")
    plan = PrivacyPlan.of(settings, len(panel.regions))
    plan.price()  # remembered, so the workers need not search for it
    done = 0

    def tick(jobs: Iterable[Any]) -> None:
        nonlocal done
        for _ in joblib.Parallel(
            n_jobs=workers or -1, return_as="generator_unordered", max_nbytes=None
        )(jobs):
            done += 1
            if progress:
                progress(done, 2 * len(ends))

    missing = [(d, p) for d, p in zip(ends, states, strict=True) if not p.exists()]
    done = len(ends) - len(missing)
    if progress:
        progress(done, 2 * len(ends))
    tick(joblib.delayed(_train)(panel.between(panel.start, d), settings, p) for d, p in missing)
    joined = _joined(settings, ends, states)
    todo = [(d, s, p) for d, s, p in zip(ends, joined, forecasts, strict=True) if not p.exists()]
    done += len(ends) - len(todo)
    tick(
        joblib.delayed(_forecast)(panel.between(panel.start, d), settings, s, p) for d, s, p in todo
    )
    made = {
        day: Forecast(day, settings.horizon, panel.regions, part["point"], part["quantiles"])
        for day, part in zip(ends, map(load_part, forecasts), strict=True)
    }
    tested = tuple(made[day] for day in sorted(origins))
    learner = make_learner(settings)
    ahead = AHEAD if learner.any_horizon else (settings.horizon,)
    newest = learner.unpack(joined[-1])
    latest = tuple(forecast(panel, learner, newest, days) for days in ahead)
    total = math.inf
    if plan.private:
        event = dp.SelfComposedDpEvent(plan.event(), len(ends))
        total = epsilon_of(event, settings.delta, settings.accountant)
    noise = plan.noise_multiplier
    table, parts = _table(panel, tested), _parts(panel, learner, newest, ahead)
    return Backtest(table, tested, settings, len(ends), total, noise, latest, parts)


def _parts(
    panel: CasePanel, learner: Learner[Any, Any], state: Any, ahead: Sequence[int]
) -> pl.DataFrame | None:
    found = [(learner.parts(panel, state, days), days) for days in ahead]
    tables = [parts.to_long(panel.regions, days) for parts, days in found if parts is not None]
    return pl.concat(tables) if tables else None


def _train(known: CasePanel, settings: Settings, path: Path) -> None:
    days = TRAINING_DAYS + (settings.history or settings.window) + settings.horizon
    first = max(known.start, known.end - timedelta(days=days - 2))
    view = make_learner(settings).view(known, (first, known.end))
    seeds = seed_sequence(settings.seed, "backtest", known.end.isoformat())
    save_part(path, {"state": train(view, settings, seeds=seeds).vector})


def _joined(settings: Settings, days: Sequence[date], paths: Sequence[Path]) -> list[Vector]:
    """The packed state as of each day, with what earlier releases said."""
    learner = make_learner(settings)
    states = [learner.unpack(load_part(path)["state"].astype(np.float32)) for path in paths]
    for i in range(1, len(states)):
        gap = (days[i] - days[i - 1]).days
        states[i] = learner.join(learner.advance(states[i - 1], gap), states[i])
    return [learner.pack(state) for state in states]


def _forecast(known: CasePanel, settings: Settings, state: Vector, path: Path) -> None:
    learner = make_learner(settings)
    made = forecast(known, learner, learner.unpack(state), settings.horizon)
    save_part(path, {"point": made.point, "quantiles": made.quantiles})


def _table(panel: CasePanel, made: Sequence[Forecast]) -> pl.DataFrame:
    series = smooth(panel.counts, "trailing")
    frames = []
    for one in made:
        at, to = ((day - panel.start).days for day in (one.origin, one.target_date))
        truth, baseline = series[:, to], intervals.hub_baseline(series[:, : at + 1], one.horizon)
        columns = {"truth": truth, "persistence": series[:, at], "point": one.point}
        for name, (low, high) in COVERAGES.items():
            columns[f"lower_{name}"] = one.quantiles[:, intervals.LEVELS.index(low)]
            columns[f"upper_{name}"] = one.quantiles[:, intervals.LEVELS.index(high)]
        columns["wis"] = intervals.weighted_interval_score(truth, one.quantiles)
        columns["baseline_wis"] = intervals.weighted_interval_score(truth, baseline)
        frames.append(
            pl.DataFrame({"region": panel.regions} | columns).select(
                pl.lit(one.origin).alias("origin_date"),
                "region",
                pl.lit(one.horizon, dtype=pl.Int64).alias("horizon"),
                pl.lit(one.target_date).alias("target_date"),
                *columns,
            )
        )
    return pl.concat(frames)


def _fingerprint(panel: CasePanel, settings: Settings) -> str:
    return _hash([settings.to_toml(), panel.digest()])


def _hash(parts: Iterable[object]) -> str:
    return hashlib.sha256("".join(map(str, parts)).encode()).hexdigest()[:16]
