"""Backtests with rolling origins: train on the data known then, forecast, and score later.

Releases of different origins are independent. They are computed in parallel, and each is stored as
one file. A forecast uses the releases up to its own origin and none after.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import dp_accounting as dp
import numpy as np
import polars as pl
from numpy.typing import NDArray

from epifed import intervals
from epifed.data.calendar import DAYS_OF, WEEK, Step
from epifed.data.panel import CasePanel, Level
from epifed.data.quality import Cleaned, clean
from epifed.data.vintages import Vintages
from epifed.data.weekly_vintages import WeeklyVintages
from epifed.errors import EpifedError, counted
from epifed.evaluation.experiment import code_digest, in_pieces
from epifed.evaluation.metrics import of_points, strata
from epifed.evaluation.results_folder import (
    BacktestRecord,
    BacktestTables,
    ForecastRecord,
    ReleaseRecord,
    WeekTables,
    read_folder,
    refuse_other,
    write_backtest,
    write_forecast,
)
from epifed.files import Part, load_part, save_part
from epifed.forecasting import (
    Forecast,
    SiteForecast,
    Targets,
    after_holiday,
    as_points,
    horizons_of,
    joined_states,
    level_counts,
    level_rows,
    refuse_horizon,
)
from epifed.intervals import LEVELS
from epifed.learners.base import Learner, Vector, make_learner, observed
from epifed.nowcasting.transmission import nowcast_on
from epifed.privacy.accounting import epsilon_of, rounded_up
from epifed.privacy.plan import PrivacyPlan, price_together
from epifed.settings import Settings, seed_sequence
from epifed.training.loop import Training, train
from epifed.training.release import Release


@dataclass(frozen=True)
class KnownData:
    """The data known on each day: the panel up to it, or the vintage of the next morning.

    For weeks, a day is the date of a vintage's newest week.
    """

    panel: CasePanel
    vintages: Vintages | WeeklyVintages | None = None

    @cached_property
    def _cleaned(self) -> Cleaned:
        return clean(self.panel)

    def on(self, day: date) -> Cleaned:
        """The data known at the end of a day."""
        if self.vintages is None:
            return self._cleaned.until(day)
        if isinstance(self.vintages, WeeklyVintages):
            return clean(self.vintages.as_known(day, like=self.panel))
        return clean(self.vintages.as_known(day + timedelta(days=1), like=self.panel))


Floats = NDArray[np.float64]

COVERAGES = {"50": (0.25, 0.75), "95": (0.025, 0.975)}


def _within(name: str) -> pl.Expr:
    inside = pl.col("truth").is_between(pl.col(f"lower_{name}"), pl.col(f"upper_{name}"))
    return inside.mean().alias(f"coverage_{name}")


def _ratio(column: str, other: str, truth: str) -> pl.Expr:
    """The error of one column relative to that of another; none where the other has none."""
    error, base = ((pl.col(name) - pl.col(truth)).abs().sum() for name in (column, other))
    return _over(error, base)


def _over(score: pl.Expr, base: pl.Expr) -> pl.Expr:
    return pl.when(base > 0).then(score / base)


SCORES = (
    _ratio("point", "persistence", "truth").alias("mae_ratio"),
    _ratio("point", "persistence_final", "truth").alias("mae_ratio_final"),
    _ratio("nowcast", "persistence", "persistence_final").alias("nowcast_mae_ratio"),
    _over(pl.col("wis").sum(), pl.col("baseline_wis").sum()).alias("wis_ratio"),
    *(_within(name) for name in COVERAGES),
)


def by_month(table: pl.DataFrame) -> pl.DataFrame:
    """The scores of each month of targets."""
    month = pl.col("target_date").dt.strftime("%Y-%m").alias("month")
    return table.group_by(month).agg(SCORES).sort("month")


def record_of(
    table: pl.DataFrame,
    settings: Settings,
    *,
    origins: int,
    releases: int,
    epsilon_total: float,
    noise_multiplier: float,
    real_time: bool,
    levels: tuple[dict[str, Any], ...] = (),
) -> BacktestRecord:
    """The scores of past forecasts as one record; ratios below 1 are better."""
    worst = by_month(table).sort("mae_ratio").row(-1, named=True)
    return BacktestRecord(
        **table.select(SCORES).row(0, named=True),
        worst_month_mae_ratio=worst["mae_ratio"],
        worst_month=worst["month"],
        epsilon_per_release=settings.epsilon,
        epsilon_total=epsilon_total,
        noise_multiplier=noise_multiplier,
        delta=settings.delta,
        accountant=settings.accountant,
        learner=settings.learner,
        step=settings.step,
        horizon=settings.horizon,
        origins=origins,
        releases=releases,
        first_origin=table["origin_date"].min(),
        last_origin=table["origin_date"].max(),
        regions=table["region"].n_unique(),
        real_time=real_time,
        levels=levels,
        metrics=metrics_of(table),
    )


def metrics_of(table: pl.DataFrame) -> dict[str, float | None]:
    """Every registered metric of a table's point forecasts, with persistence as known then."""
    rows = table.select("truth", "point", "persistence").drop_nulls()
    return of_points(*(rows[name].to_numpy() for name in rows.columns))


def own_table(
    data: KnownData, made: Sequence[Forecast], completed: Mapping[date, Floats]
) -> pl.DataFrame:
    """The forecasts of the regions themselves with the observed counts."""
    panel = data.panel
    final = observed(panel.counts, panel.step)
    frames = []
    for forecast in made:
        at = panel.index(forecast.origin)
        series = final[:, : at + 1]
        if data.vintages is not None:
            series = observed(data.on(forecast.origin).reported, panel.step)
        to = at + forecast.horizon
        frame = scored(forecast, final[:, to], final[:, at], series, completed[forecast.origin])
        frames.append(with_observed(frame, panel, to))
    return pl.concat(frames)


def with_observed(frame: pl.DataFrame, final: CasePanel, column: int) -> pl.DataFrame:
    """The rows, one for each region, whose truth is known; an unreported week has none."""
    if final.step == "day" or final.reported is None:
        return frame
    return frame.filter(pl.Series(final.reported[:, column]))


def scored(
    forecast: Forecast, truth: Floats, now: Floats, series: Floats, completed: Floats
) -> pl.DataFrame:
    """One forecast with the observed counts, the final counts of its day and those known then."""
    baseline = intervals.hub_baseline(series, forecast.horizon, WEEK // DAYS_OF[forecast.step])
    columns = {
        "truth": truth,
        "persistence": series[:, -1],
        "persistence_final": now,
        "nowcast": completed,
        "point": forecast.point,
    }
    for name, (low, high) in COVERAGES.items():
        columns[f"lower_{name}"] = forecast.quantiles[:, intervals.LEVELS.index(low)]
        columns[f"upper_{name}"] = forecast.quantiles[:, intervals.LEVELS.index(high)]
    columns["wis"] = intervals.weighted_interval_score(truth, forecast.quantiles)
    columns["baseline_wis"] = intervals.weighted_interval_score(truth, baseline)
    return pl.DataFrame({"region": forecast.regions} | columns).select(
        pl.lit(forecast.origin).alias("origin_date"),
        "region",
        pl.lit(forecast.horizon, dtype=pl.Int64).alias("horizon"),
        pl.lit(forecast.target_date).alias("target_date"),
        *columns,
    )


@dataclass(frozen=True)
class LevelBacktest:
    """The forecasts of all levels, and the table of those whose week has been observed."""

    forecasts: tuple[Forecast, ...]
    table: pl.DataFrame
    """As in the backtest, with `level` and `weeks_ahead`, which may be empty."""
    sentence: str
    """A sentence on the counts used for larger regions."""

    def to_long(self) -> pl.DataFrame:
        """All quantiles: a row for each origin, region, week and quantile."""
        return pl.concat(map(level_rows, self.forecasts))

    def summary(self) -> list[dict[str, Any]]:
        """The scores of each level and week."""
        if self.table.is_empty():
            return []
        keys = ["level", "weeks_ahead", pl.when(pl.col("weeks_ahead").is_null()).then("horizon")
                .alias("days_ahead")]  # fmt: skip
        grouped = self.table.group_by(keys, maintain_order=True)
        regions, origins = pl.col("region").n_unique(), pl.col("origin_date").n_unique()
        return grouped.agg(regions.alias("regions"), origins.alias("origins"), *SCORES).to_dicts()


def backtest_levels(
    data: KnownData, learner: Learner[Any, Any], states: Mapping[date, Any], targets: Targets
) -> LevelBacktest:
    """Forecast every level from each origin with the state of that day, and score past weeks.

    No week after the clients' last day is scored, even if published totals reach further.
    """
    finals = {level.name: level_counts(data.panel, targets, level) for level in targets.levels}
    forecasts, frames = [], []
    for day, state in states.items():
        then = data.on(day)
        filled_up = learner.completed(then.panel, state).counts
        completed = observed(filled_up, then.panel.step)[:, -1]
        for level, forecast in targets.made(then, learner, state):
            forecasts.append(forecast)
            final = finals[level.name]
            if forecast.target_date > min(final.end, data.panel.end):
                continue
            series = _known_series(data, targets, level, final, forecast)
            filled = series[:, -1] if targets.totals_of(level) else level.sum(completed)
            average = observed(final.counts, final.step)
            at = final.index(forecast.origin)
            to = at + forecast.horizon
            frame = scored(forecast, average[:, to], average[:, at], series, filled)
            frames.append(
                with_observed(frame, final, to).with_columns(
                    pl.lit(level.name).alias("level"),
                    pl.lit(forecast.weeks_ahead, dtype=pl.Int64).alias("weeks_ahead"),
                )
            )
    table = pl.concat(frames) if frames else pl.DataFrame()
    return LevelBacktest(tuple(forecasts), table, targets.sentence())


def _known_series(
    data: KnownData, targets: Targets, level: Level, final: CasePanel, forecast: Forecast
) -> Floats:
    """The 7-day averages of a level up to the last known day, as known then."""
    if data.vintages is not None and targets.totals_of(level) is None:
        return observed(level.sum(data.on(forecast.origin).reported), final.step)
    return observed(final.between(final.start, forecast.origin).counts, final.step)


Progress = Callable[[int, int], None]
Work = Callable[["KnownData", Settings, Sequence[Any]], list[tuple[Path, Part]]]
"""A function that computes tasks, and returns the parts to store and their paths."""

TRAINING_STEPS: dict[Step, int] = {"day": 28, "week": 26}
"""Number of last steps whose targets are used for training."""

REAL_TIME = "each forecast uses the data as known on its day and is scored on the final counts"
FINAL = "no forecast uses later days; all use final counts, so real-time scores would be worse"


@dataclass(frozen=True)
class Backtest:
    """The forecasts of all origins with the observed counts, and their privacy cost."""

    table: pl.DataFrame
    forecasts: tuple[Forecast, ...]
    settings: Settings
    releases: int
    epsilon_total: float
    noise_multiplier: float
    latest: tuple[Forecast, ...]
    """From the last day of the data, one to four weeks ahead, or the learner's own horizon."""
    real_time: bool = False
    """Whether each forecast used the data vintage of its day."""
    parts: pl.DataFrame | None = None
    """The parts of the latest forecast's changes, if the learner can tell."""
    nowcast: pl.DataFrame | None = None
    """The last two weeks before the latest forecast, if reporting delays are known."""
    levels: LevelBacktest | None = None
    """The same for larger regions, if requested."""
    total: pl.DataFrame | None = None
    """The latest forecast of all regions together."""

    def summary(self) -> dict[str, Any]:
        """The scores as one record; ratios below 1 beat persistence, or the hub's baseline."""
        record = self.record()
        return record.model_dump() | {"levels": list(record.levels)}

    def caption(self) -> str:
        """The caption that belongs under every table of these scores."""
        s = self.settings
        when = REAL_TIME if self.real_time else FINAL
        if not s.private:
            return f"no differential privacy (ε = ∞); {when}"
        newest = "" if self.real_time else " (the newest forecast's too)"
        return (
            f"ε = {s.epsilon:g} for {_each(self.releases)}{newest}, "
            f"{rounded_up(self.epsilon_total)} in total, δ = {s.delta:g}, unit one client, add or "
            f"remove one client, {s.accountant.upper()} accountant; {when}"
        )

    def record(self) -> BacktestRecord:
        """The scores as stored in a results folder."""
        return record_of(
            self.table,
            self.settings,
            origins=len(self.forecasts),
            releases=self.releases,
            epsilon_total=self.epsilon_total,
            noise_multiplier=self.noise_multiplier,
            real_time=self.real_time,
            levels=tuple(self.levels.summary()) if self.levels else (),
        )

    def write(
        self, out: Path, panel: CasePanel, at_other_budgets: Sequence[BacktestRecord] = ()
    ) -> None:
        """Write the results folder of this backtest of the panel."""
        ahead = pl.concat(forecast.to_long() for forecast in self.latest)
        levels = self.levels.table if self.levels and len(self.levels.table) else None
        others = tuple(at_other_budgets)
        tables = BacktestTables(
            self.table, ahead, self.record(), self.parts, levels, others, self.nowcast, self.total
        )
        write_backtest(out, panel, self.settings, tables)

    def by_month(self) -> pl.DataFrame:
        """The scores of each month of targets."""
        return by_month(self.table)

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
                    | part.select(SCORES).row(0, named=True)
                )
        return pl.DataFrame(rows)

    def after_holiday(self, panel: CasePanel) -> dict[str, Any] | None:
        """The scores of forecasts made shortly after a public holiday of their region, if any."""
        after = [
            pl.DataFrame(
                {
                    "origin_date": forecast.origin,
                    "region": panel.regions,
                    "after": after_holiday(panel, forecast.origin),
                }
            )
            for forecast in self.forecasts
        ]
        then = pl.concat(after).filter("after")
        part = self.table.join(then, on=["origin_date", "region"], how="semi")
        return None if part.is_empty() else part.select(SCORES).row(0, named=True)


def origins_between(
    first: date, last: date, every: int, panel: CasePanel, horizon: int
) -> list[date]:
    """The origins of a backtest whose last target lies within the panel and the period."""
    if last < first:
        raise EpifedError(f"found days from {first} to {last}; expected the first before the last")
    if every % panel.step_days:
        raise EpifedError(
            f"every: found {counted(every, 'day')}; expected whole weeks, as {panel.source} has"
        )
    begin = -((panel.start - first).days // panel.step_days)
    end = panel.index(min(last, panel.end)) - horizon
    if begin < 0 or end < begin:
        raise EpifedError(
            f"{panel.source}: found {panel.step}s {panel.start} … {panel.end}; expected origins "
            f"from {first} to {last} with a target {horizon} {panel.step}s later"
        )
    return [panel.day(column) for column in range(begin, end + 1, every // panel.step_days)]


def vintage_origins(
    first: date,
    last: date,
    every: int,
    panel: CasePanel,
    vintages: Vintages | WeeklyVintages,
    horizon: int,
) -> list[date]:
    """The origins of a real-time backtest: the newest reporting date of each vintage.

    Days without a vintage are left out. The last target lies in the panel. For weekly vintages,
    the origins are the newest weeks of those from the first day to the last.
    """
    inside = [(i, day) for i, day in enumerate(vintages.snapshots) if first <= day <= last]
    if isinstance(vintages, WeeklyVintages):
        unit, newest = "week", {vintages.newest(i) for i, _ in inside}
    else:
        chosen = [day for _, day in inside if (day - first).days % every == 0]
        unit, newest = "day", {day - timedelta(days=1) for day in chosen}
    ahead = timedelta(**{f"{unit}s": horizon})
    origins = sorted(day for day in newest if day + ahead <= panel.end)
    if not origins:
        raise EpifedError(
            f"{vintages.source}: found vintages from {vintages.first} to {vintages.last}, and "
            f"final counts to {panel.end}; expected some from {first} to {last} with a target "
            f"{counted(horizon, unit)} later"
        )
    return origins


def run_backtest(
    panel: CasePanel,
    settings: Settings,
    origins: Sequence[date],
    out: Path,
    *,
    vintages: Vintages | WeeklyVintages | None = None,
    targets: Targets | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    progress: Progress | None = None,
) -> Backtest:
    """Compute the missing parts of a backtest, store them in `out`, and score it.

    One more release, on the panel's last day, is for the newest forecast, which cannot be scored
    yet. With vintages, learning, calibration and forecasts use only the data known then. The panel
    is the final data, which only scores use, and the newest forecast is that of the last origin.
    `targets` are larger regions to forecast with the same releases.
    """
    refuse_horizon(settings.horizon, settings.step)
    folder = out / "parts" / _fingerprint(panel, settings, vintages)
    ends = sorted({*origins, panel.end} if vintages is None else set(origins))
    data = KnownData(panel, vintages)
    states = [folder / f"{day}_state.npz" for day in ends]
    forecasts = [folder / f"{day}_{_hash(ends[: i + 1])}.npz" for i, day in enumerate(ends)]
    refuse_other(out, "backtest")
    plan = PrivacyPlan.of(settings, len(panel.regions))
    plan.price()  # cached, so workers need not search for it
    missing = [(d, p) for d, p in zip(ends, states, strict=True) if not p.exists()]
    done = sum(path.exists() for path in (*states, *forecasts))

    def tick(finished: int) -> None:
        nonlocal done
        done += finished
        if progress:
            progress(done, 2 * len(ends))

    def run(work: Work, todo: Sequence[Any]) -> None:
        for piece in in_pieces(work, (data, settings), todo, workers, scheduler):
            for path, part in piece:
                save_part(path, part)
            tick(len(piece))

    tick(0)
    run(_train, missing)
    joined = _joined(settings, ends, states)
    every = zip(ends, joined, forecasts, strict=True)
    todo = [(d, s, p) for d, s, p in every if not p.exists()]
    run(_forecast, todo)
    loaded = dict(zip(ends, map(load_part, forecasts), strict=True))
    made = {
        day: Forecast(
            day, settings.horizon, panel.regions, part["point"], part["quantiles"], step=panel.step
        )
        for day, part in loaded.items()
    }
    tested = tuple(made[day] for day in sorted(origins))
    learner = make_learner(settings)
    newest = learner.unpack(joined[-1])
    latest = SiteForecast.of(data.on(ends[-1]), learner, newest, horizons_of(learner))
    total = math.inf
    if plan.private:
        event = dp.SelfComposedDpEvent(plan.event(), len(ends))
        total = epsilon_of(event, settings.delta, settings.accountant)
    noise = plan.noise_multiplier
    at_origin = {day: learner.unpack(state) for day, state in zip(ends, joined, strict=True)
                 if day in set(origins)}  # fmt: skip
    filled = {day: part["completed"] for day, part in loaded.items()}
    return Backtest(
        own_table(data, tested, filled),
        tested,
        settings,
        len(ends),
        total,
        noise,
        latest.forecasts,
        parts=latest.parts_table(),
        total=latest.total_to_long(),
        nowcast=nowcast_on(vintages, ends[-1]) if isinstance(vintages, Vintages) else None,
        real_time=vintages is not None,
        levels=None if targets is None else backtest_levels(data, learner, at_origin, targets),
    )


def train_as_of(data: KnownData, settings: Settings, day: date) -> Training:
    """Train on a day with the data known then."""
    steps = TRAINING_STEPS[settings.step] + (settings.history or settings.window) + settings.horizon
    panel = data.on(day).panel
    first = panel.day(max(panel.index(day) - steps + 2, 0))
    view = make_learner(settings).view(panel, (first, day))
    return train(view, settings, seeds=seed_sequence(settings.seed, "backtest", day.isoformat()))


def _train(
    data: KnownData, settings: Settings, todo: Sequence[tuple[date, Path]]
) -> list[tuple[Path, Part]]:
    return [(path, {"state": train_as_of(data, settings, day).vector}) for day, path in todo]


def _joined(settings: Settings, days: Sequence[date], paths: Sequence[Path]) -> list[Vector]:
    """The packed state as of each day, joined with earlier releases."""
    learner = make_learner(settings)
    fresh = [learner.unpack(load_part(path)["state"].astype(np.float32)) for path in paths]
    joined = joined_states(learner, list(zip(days, fresh, strict=True)))
    return [learner.pack(state) for state in joined]


def _forecast(
    data: KnownData, settings: Settings, todo: Sequence[tuple[date, Vector, Path]]
) -> list[tuple[Path, Part]]:
    learner = make_learner(settings)
    parts = []
    for day, state, path in todo:
        outlook = SiteForecast.of(data.on(day), learner, learner.unpack(state), (settings.horizon,))
        (made,), completed = outlook.forecasts, outlook.completed()
        part: Part = {"point": made.point, "quantiles": made.quantiles, "completed": completed}
        parts.append((path, part))
    return parts


def _fingerprint(
    panel: CasePanel, settings: Settings, vintages: Vintages | WeeklyVintages | None
) -> str:
    when = vintages.digest() if vintages else "final"
    beside = make_learner(settings).fingerprint()
    return _hash([code_digest(), settings.to_toml(), panel.digest(), when, beside])


def _hash(parts: Iterable[object]) -> str:
    return hashlib.sha256("".join(map(str, parts)).encode()).hexdigest()[:16]


def _each(releases: int) -> str:
    return "the only release" if releases == 1 else f"each of {counted(releases, 'release')}"


MOST_WEEKS = 60
"""Largest number of earlier weeks that are scored."""
_Past = tuple[Forecast, Floats, Floats]
"""A forecast, and the last week as known on its day: as reported, and completed."""


def label(training: str, releases: Sequence[Release]) -> ReleaseRecord:
    """The record of a training's release, the last of those used by a forecast."""
    newest = releases[-1]
    spent = [rounds for release in releases for rounds in release.spent]
    return ReleaseRecord(
        training=training,
        sha256=newest.sha256,
        last_day=newest.last_day,
        learner=newest.settings.learner,
        epsilon=newest.epsilon,
        delta=newest.delta,
        accountant=newest.accountant,
        releases=len(releases),
        epsilon_total=price_together(spent, newest.delta, newest.accountant),
        noise_multiplier=newest.spent[-1].noise_multiplier,
    )


def keep_forecast(
    path: Path,
    panel: CasePanel,
    outlook: SiteForecast,
    release: Release,
    about: ReleaseRecord,
    *,
    nowcast: pl.DataFrame | None = None,
    earlier: Sequence[Path] = (),
    notes: Sequence[str] = (),
) -> None:
    """Write a forecast from a release as a results folder, with a CSV beside.

    `earlier` are the folders of forecasts of earlier weeks, which are scored; `notes` are remarks
    on the forecast, one sentence each.
    """
    settings = release.settings
    past = scored_weeks(panel, earlier, settings.horizon, outlook.panel.end)
    record = None
    if past is not None:
        record = record_of(
            past,
            settings,
            origins=past["origin_date"].n_unique(),
            releases=about.releases,
            epsilon_total=about.epsilon_total,
            noise_multiplier=about.noise_multiplier,
            real_time=True,
        )
    tables = WeekTables(
        outlook.to_long(),
        as_points(outlook),
        outlook.parts_table(),
        nowcast,
        past,
        record,
        outlook.total_to_long(),
    )
    left_out = (panel.end - outlook.panel.end).days
    write_forecast(
        path,
        panel,
        settings,
        tables,
        outlook.table(),
        randomness="secure" if release.randomness == "secure" else "seeded",
        about=ForecastRecord(incomplete_days=left_out, notes=tuple(notes)),
        release=about,
        beside={"levels": outlook.larger_to_long(), "anomalies": outlook.known.to_long()},
    )


def scored_weeks(
    panel: CasePanel, earlier: Sequence[Path], horizon: int, today: date
) -> pl.DataFrame | None:
    """The forecasts of earlier weeks whose target has been observed; none if there are none.

    Persistence is the count reported on the day, as the office knew it.
    """
    frames = []
    for path in sorted(earlier)[-MOST_WEEKS:]:
        past = _read(path, panel, horizon)
        if past is None or past[0].target_date > min(panel.end, today):
            continue
        made, reported, completed = past
        own = panel.of(made.regions)
        if made.origin < own.start:
            continue
        table = own_table(KnownData(own), [made], {made.origin: completed})
        then = pl.DataFrame({"region": made.regions, "known": reported})
        frames.append(
            table.join(then, on="region", maintain_order="left")
            .with_columns(persistence=pl.col("known"))
            .drop("known")
        )
    return pl.concat(frames) if frames else None


def _read(path: Path, panel: CasePanel, horizon: int) -> _Past | None:
    """The earlier forecast in a folder, for the panel's regions; none if it has none.

    A folder that cannot be read, such as one of another version of epifed, is skipped.
    """
    try:
        tables = read_folder(path).tables
    except (EpifedError, OSError):
        return None
    if not isinstance(tables, WeekTables):
        return None
    points = tables.points.filter(
        (pl.col("horizon") == horizon) & pl.col("region").is_in(panel.regions)
    )
    long = tables.forecast.filter(
        (pl.col("horizon") == horizon) & pl.col("region").is_in(points["region"].to_list())
    )
    if points.is_empty() or len(long) != len(points) * len(LEVELS):
        return None
    regions = tuple(points["region"])
    order = {region: row for row, region in enumerate(regions)}
    long = long.sort(pl.col("region").replace_strict(order), "level")
    made = Forecast(
        long["origin_date"][0],
        horizon,
        regions,
        points["point"].to_numpy(),
        long["value"].to_numpy().reshape(len(regions), len(LEVELS)),
        step=panel.step,
    )
    return made, points["persistence"].to_numpy(), points["completed"].to_numpy()
