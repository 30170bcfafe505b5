"""Forecasts with quantiles, from a trained state and a client's own counts.

A client computes this alone: the trend is public, the counts and the past errors are its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from epifed import intervals
from epifed.data.calendar import DAYS_OF, WEEK, WEEKDAYS, Step, Weeks, days_off_within, to_weekday
from epifed.data.panel import CasePanel, Level, choose, levels_of, long_table
from epifed.data.quality import Cleaned, clean
from epifed.errors import EpifedError, counted
from epifed.intervals import LEVELS
from epifed.learners.base import SOFTENING, Learner, Parts, observed
from epifed.nowcasting.late_reports import incomplete_days
from epifed.training.release import Release

Floats = NDArray[np.float64]

MOST_HORIZON = 28


@dataclass(frozen=True)
class Forecast:
    """Quantiles of the 7-day average of daily cases, `horizon` days after the origin.

    With the step `week`: of a week's cases, so many weeks after the week dated by the origin.
    """

    origin: date
    horizon: int
    regions: tuple[str, ...]
    point: Floats
    quantiles: Floats
    """[regions, levels], at `intervals.LEVELS`."""
    level: str = ""
    """The level of the regions if they are sums of others: county, state, nation."""
    reference: date | None = None
    """The reference date in a hub's files; none: the origin."""
    weeks_ahead: int | None = None
    """The week counted by a hub from that date; none: whole weeks from the origin."""
    step: Step = "day"
    last: Floats | None = None
    """The newest week of each region as it will be once revised, where the learner says so."""

    @property
    def target_date(self) -> date:
        """The last day of the forecast week, or the day by which it is dated."""
        return self.origin + timedelta(days=self.horizon * DAYS_OF[self.step])

    def to_long(self) -> pl.DataFrame:
        """A row for each region and quantile level."""
        axes = {
            "origin_date": [self.origin],
            "region": self.regions,
            "horizon": [self.horizon],
            "target_date": [self.target_date],
            "level": LEVELS,
        }
        return long_table(axes, {"value": self.quantiles[None, :, None, None]})


def refuse_horizon(horizon: int, step: Step) -> None:
    """Refuse a horizon outside 1 to 28 days, or 1 to 4 weeks."""
    most = MOST_HORIZON // DAYS_OF[step]
    if not 1 <= horizon <= most:
        raise EpifedError(f"horizon: found {horizon} {step}s; expected 1 to {most}")


@dataclass(frozen=True)
class PointForecast:
    """A forecast without quantiles: the points, and the past errors for its intervals."""

    origin: date
    horizon: int
    step: Step
    regions: tuple[str, ...]
    level: str
    point: Floats
    """The forecast as if there had been no reporting artefact."""
    now: Floats
    """The contribution of the target week's days that are already observed, which is certain."""
    left: float
    """The share of the target week that is still ahead, times the days of a step."""
    past: intervals.Past
    population: NDArray[np.int64] | None
    reported: Floats
    """The contribution of reporting artefacts on those observed days."""

    def forecast(self) -> Forecast:
        """The forecast with its quantiles."""
        ahead = np.maximum(self.point - self.now, 0.0) / self.left
        spread = intervals.quantiles(ahead, self.past, self.population)
        values = (self.now + self.reported)[:, None] + self.left * spread
        return Forecast(
            self.origin,
            self.horizon,
            self.regions,
            np.maximum(self.point + self.reported, 0.0),
            np.maximum(values, 0.0),
            self.level,
            step=self.step,
        )


def forecast(
    cleaned: Cleaned,
    learner: Learner[Any, Any],
    state: Any,
    horizon: int,
    level: Level | None = None,
) -> Forecast:
    """Forecast from a panel's last day, with the state as of that day.

    Regions of a level are forecast as sums of their parts, with intervals from past errors of such
    sums. Reporting artefacts are replaced in the data of the forecast and of past forecasts. Those
    on days of the target week are already observed, and are added back at the end.
    """
    panel = cleaned.panel
    panel.refuse_step(learner.settings.step)
    refuse_horizon(horizon, panel.step)
    made = learner.quantiles(panel, state, horizon, level)
    if made is not None:
        regions, name = (panel.regions, "") if level is None else (level.regions, level.name)
        last = learner.completed(panel, state).counts[:, -1]
        last = last if level is None else level.sum(last)
        return Forecast(panel.end, horizon, regions, *made, name, step=panel.step, last=last)
    return reckoned(cleaned, learner, state, horizon, level).forecast()


def reckoned(
    cleaned: Cleaned,
    learner: Learner[Any, Any],
    state: Any,
    horizon: int,
    level: Level | None = None,
) -> PointForecast:
    """The point forecast of `forecast`, without quantiles."""
    panel = cleaned.panel
    panel.refuse_step(learner.settings.step)
    refuse_horizon(horizon, panel.step)
    apart, unit = panel.step_days, f"{panel.step}s"
    made = learner.hindcast(panel, state, horizon)
    origins = made.shape[1] - horizon
    least = intervals.LEAST_ERRORS if apart == 1 else intervals.LEAST_WEEKLY_ERRORS
    if origins < least:
        raise EpifedError(
            f"{panel.source}: found {panel.counts.shape[1]} {unit} of cases, enough for "
            f"{max(origins, 0)} past errors {horizon} {unit} ahead; expected enough for {least}"
        )
    used = min(origins, intervals.ERRORS // apart)
    so_far = learner.completed(panel, state).counts
    days = apart * horizon
    truth = observed(so_far[:, -used - WEEK + 1 :], panel.step)[:, -used:]
    came, unsettled = _came(so_far, days), after_holiday(panel, panel.end)
    reported, population, regions = _reported(cleaned, horizon), panel.population, panel.regions
    if level is not None:
        made, truth, reported = level.sum(made), level.sum(truth), level.sum(reported)
        came, unsettled = level.sum(came), level.members @ unsettled > 0
        population = None if population is None else level.members @ population
        regions = level.regions
    # Observed days of the target week are certain: only the mean of the other days has an error.
    # An interval is computed in cases a day, whatever the step.
    left, informed = min(days, WEEK) / WEEK * apart, learner.informed(state)
    then = came[:, -used - horizon : -horizon]
    past = intervals.Past(
        np.maximum(made[:, origins - used : origins] - then, 0.0) / left,
        np.maximum(truth - then, 0.0) / left,
        days,
        apart,
        uninformed=0 if informed is None else max(used + horizon - 1 - informed, 0),
        surprises=learner.surprises(state, horizon),
        after_holiday=unsettled,
    )
    return PointForecast(
        panel.end,
        horizon,
        panel.step,
        regions,
        level.name if level else "",
        made[:, -1],
        came[:, -1],
        left,
        past,
        population,
        reported,
    )


def parts(cleaned: Cleaned, learner: Learner[Any, Any], state: Any, horizon: int) -> Parts | None:
    """The parts of the change against the last week as reported, if the learner can tell."""
    own = learner.parts(cleaned.panel, state, horizon)
    if own is None:
        return None
    taken, reported = (
        counts[:, -WEEK // cleaned.panel.step_days :].mean(axis=1) + SOFTENING
        for counts in (cleaned.panel.counts, cleaned.reported)
    )
    return replace(own, reports=own.reports + np.log(taken / reported))


def after_holiday(panel: CasePanel, day: date) -> NDArray[np.bool_]:
    """Which regions had a public holiday shortly before a day; false where holidays are unknown."""
    if not panel.calendars or panel.step == "week":
        return np.zeros(len(panel.regions), dtype=np.bool_)
    return days_off_within(panel.calendars, day, intervals.HOLIDAY_DAYS)


def _came(counts: Floats, horizon: int) -> Floats:
    """By day, the part of its target week's average that its observed days contribute."""
    days = max(WEEK - horizon, 0)
    total = np.cumsum(np.pad(counts, ((0, 0), (WEEK, 0))), axis=1)
    came: Floats = (total[:, WEEK:] - total[:, WEEK - days : total.shape[1] - days]) / WEEK
    return came


def _reported(cleaned: Cleaned, horizon: int) -> Floats:
    """How much the observed days of the target week exceed their cleaned counts, on average."""
    days = max(WEEK - horizon, 0) if cleaned.panel.step == "day" else 0
    newest = slice(cleaned.reported.shape[1] - days, None)
    excess = cleaned.reported[:, newest] - cleaned.panel.counts[:, newest]
    average: Floats = excess.sum(axis=1) / WEEK
    return average


_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Totals:
    """Published counts of larger regions, which are public data."""

    level: Level
    """The larger regions, as sums of the clients."""
    panel: CasePanel
    lead: int
    """Days by which their last day is later than that of the clients' counts.

    One if they are dated by the day of publication; more if clients use older days only.
    """

    @classmethod
    def of(
        cls, panel: CasePanel, published: pl.DataFrame, places: Mapping[str, str], lead: int
    ) -> "Totals":
        """The totals in a table (date, location, value), for the regions above those of a panel.

        `places` is the region of each location. If there are several levels, the smallest complete
        regions are used, and larger ones are sums of them. A negative value counts as 0.
        """
        named = published.with_columns(
            region=pl.col("location").replace_strict(places, default=None, return_dtype=pl.String)
        ).drop_nulls("region")
        there = set(named["region"])
        complete = [level for level in levels_of(panel).values() if there >= set(level.regions)]
        if not complete:
            raise EpifedError(
                f"--published: found {len(there)} of the regions of {panel.source}; expected all "
                "states, or the nation, under their names or by --locations"
            )
        if lead % panel.step_days:
            raise EpifedError(
                f"--published-lead: found {counted(lead, 'day')}; expected whole weeks, as "
                f"{panel.source} has"
            )
        level = complete[0]
        rows = named.filter(pl.col("region").is_in(level.regions))
        cases = pl.col("value").clip(lower_bound=0.0)
        counts = CasePanel.from_long(
            rows.select(day="date", region="region", cases=cases),
            source="--published",
            regions=level.regions,
            step=panel.step,
        )
        if (counts.end - panel.end).days % panel.step_days:
            raise EpifedError(
                f"--published: found weeks dated {counts.end}; expected the weekday of "
                f"{panel.end}, as in {panel.source}"
            )
        _refuse_gaps(counts)
        both = replace(
            level.panel(panel),
            counts=counts.counts,
            start=counts.start,
            reported=counts.reported,
            source=counts.source,
        )
        return cls(level, both, lead)

    @cached_property
    def _cleaned(self) -> Cleaned:
        return clean(self.panel)

    def last_day(self, origin: date) -> date:
        """The last published day when the clients' counts end on an origin."""
        return origin + self.lead * _DAY

    def on(self, origin: date) -> Cleaned:
        """The totals as published when the clients' counts end on an origin."""
        return self._cleaned.until(self.last_day(origin))

    def has(self, level: Level) -> bool:
        """Whether the regions of a level are sums of these."""
        return bool((self._within(level) @ self.level.members == level.members).all())

    def over(self, level: Level) -> Level:
        """The level as sums of these regions instead of the clients."""
        return replace(level, members=self._within(level))

    def _within(self, level: Level) -> NDArray[np.bool_]:
        """Which of these regions lie within each region of a level."""
        shared = level.members.astype(int) @ self.level.members.astype(int).T
        inside: NDArray[np.bool_] = shared == self.level.members.sum(axis=1)
        return inside


@dataclass(frozen=True)
class Targets:
    """The levels to forecast, the weeks or days ahead, and the counts to use."""

    levels: tuple[Level, ...]
    ahead: tuple[int, ...]
    """Weeks as a hub counts them, or days where there are no weeks."""
    weeks: Weeks | None = None
    totals: Totals | None = None

    @classmethod
    def of(
        cls,
        panel: CasePanel,
        steps: Sequence[int],
        level: Sequence[str] = (),
        *,
        week_ends: str | None = None,
        reference_day: str | None = None,
        ahead: Sequence[int] = (),
        totals: Totals | None = None,
    ) -> "Targets | None":
        """The targets requested beside each region's own forecast; none if there are no others.

        `steps` ahead are forecast where weeks are not counted from a reference day.
        """
        own = next(iter(levels_of(panel)))
        counted = week_ends or reference_day or ahead
        if not counted and set(level or [own]) == {own} and totals is None:
            return None
        weeks = _weeks(panel, week_ends, reference_day) if counted else None
        levels = choose(panel, level or [own])
        targets = cls(levels, tuple(sorted(set((ahead or [1]) if weeks else steps))), weeks, totals)
        if totals is not None and not any(map(targets.totals_of, levels)):
            raise EpifedError(
                f"--published: found counts of the level '{totals.level.name}'; expected a --level "
                "that is forecast from them"
            )
        return targets

    def made(
        self, cleaned: Cleaned, learner: Learner[Any, Any], state: Any
    ) -> list[tuple[Level, Forecast]]:
        """Forecasts of all levels from the last day of a panel, with the state as of that day."""
        origin = cleaned.panel.end
        forecasts = []
        for level in self.levels:
            counts, now, over = cleaned, state, level
            if (totals := self.totals_of(level)) is not None:
                counts, over = totals.on(origin), totals.over(level)
                now = learner.advance(state, totals.lead)
            for ahead in self.ahead:
                steps, reference = self.horizon(origin, counts.panel.end, ahead, counts.panel.step)
                made = forecast(counts, learner, now, steps, over)
                if self.weeks is not None:
                    made = replace(made, reference=reference, weeks_ahead=ahead)
                elif made.step == "week":
                    made = replace(made, weeks_ahead=ahead)
                forecasts.append((level, made))
        return forecasts

    def within_reach(self, origins: Sequence[date], step: Step) -> "Targets":
        """The targets without weeks that are too far ahead, or over, for one of the origins."""
        assert self.weeks is not None

        def reached(ahead: int) -> bool:
            try:
                replace(self, ahead=(ahead,)).blank(origins, step)
            except EpifedError:
                return False
            return True

        kept = tuple(filter(reached, self.ahead))
        return replace(self, ahead=kept or self.ahead)

    def blank(self, origins: Sequence[date], step: Step) -> list[Forecast]:
        """The coming forecasts from some origins, without values."""
        forecasts = []
        for origin in origins:
            for level in self.levels:
                totals = self.totals_of(level)
                last = origin if totals is None else totals.last_day(origin)
                nothing = np.zeros((len(level.regions), len(LEVELS)))
                for ahead in self.ahead:
                    steps, day = self.horizon(origin, last, ahead, step)
                    refuse_horizon(steps, step)
                    forecasts.append(
                        Forecast(last, steps, level.regions, nothing[:, 0], nothing, level.name,
                                 day if self.weeks else None, ahead if self.weeks else None, step)
                    )  # fmt: skip
        return forecasts

    def totals_of(self, level: Level) -> Totals | None:
        """The published counts that are used for a level, if any."""
        return self.totals if self.totals is not None and self.totals.has(level) else None

    def sentence(self) -> str:
        """A sentence on the counts used for larger regions: they are no private release."""
        published = [level for level in self.levels if self.totals_of(level) is not None]
        summed = [
            level
            for level in self.levels
            if self.totals_of(level) is None and level.members.sum() > len(level.regions)
        ]
        sentences = []
        if published:
            sentences.append(
                f"counts of the levels {_names(published)} are the published totals that were "
                "given, public already; of the clients nothing is used but the release"
            )
        if summed:
            sentences.append(
                f"counts of the levels {_names(summed)} are sums of the clients' own, taken as "
                "public already; they are no private release, and may only be used where such sums "
                "are published"
            )
        return "\n".join(sentences)

    def horizon(self, origin: date, last: date, ahead: int, step: Step) -> tuple[int, date]:
        """Steps from the last known one to the end of a target, and the reference date."""
        if self.weeks is None:
            return ahead, last
        lead = self.totals.lead if self.totals else 0
        reference = self.weeks.reference_date(origin + max(lead, 1) * _DAY)
        end = self.weeks.end(reference, ahead)
        days = (end - last).days
        if days < 1:
            raise EpifedError(
                f"--ahead: found week {ahead}, which ends on {end}; expected one that ends after "
                f"{last}, the last known day"
            )
        return days // DAYS_OF[step], reference


def _weeks(panel: CasePanel, week_ends: str | None, reference_day: str | None) -> Weeks:
    """The definition of weeks; those of a weekly panel end on the day that dates them."""
    dated = panel.end.weekday()
    if week_ends is None and panel.step == "day":
        raise EpifedError("found --ahead or --reference-day; expected --week-ends with it")
    ends = dated if week_ends is None else to_weekday(week_ends, "--week-ends")
    if panel.step == "week" and ends != dated:
        raise EpifedError(
            f"--week-ends: found {WEEKDAYS[ends]}, and weeks of {panel.source} that end on a "
            f"{WEEKDAYS[dated]}; expected the same day, or --weeks-dated first where they are "
            "dated by their first day"
        )
    reference = None if reference_day is None else to_weekday(reference_day, "--reference-day")
    return Weeks(ends, reference)


def _names(levels: Sequence[Level]) -> str:
    return " and ".join(f"'{level.name}'" for level in levels)


def _refuse_gaps(totals: CasePanel) -> None:
    """Refuse totals with missing days or different last days: a missing count is not zero."""
    reported = totals.reported
    assert reported is not None
    for region, there in zip(totals.regions, reported, strict=True):
        if not there[-1]:
            raise EpifedError(
                f"--published: found no count of {region} on {totals.end}; expected all regions "
                "up to the same last day"
            )
        days = len(there) - int(there.argmax())
        if 2 * there.sum() <= days > 1:
            raise EpifedError(
                f"--published: found {counted(there.sum(), 'count')} of {region} in "
                f"{counted(days, 'day')}; expected one "
                "of each day"
            )


def level_counts(panel: CasePanel, targets: Targets, level: Level) -> CasePanel:
    """The final counts of a level's regions, for scoring its forecasts."""
    totals = targets.totals_of(level)
    return level.panel(panel) if totals is None else totals.over(level).panel(totals.panel)


def level_rows(forecast: Forecast) -> pl.DataFrame:
    """A forecast of a level as a long table, with the level and the week as a hub counts it."""
    return (
        forecast.to_long()
        .rename({"level": "quantile"})
        .with_columns(
            pl.lit(forecast.level).alias("level"),
            pl.lit(forecast.reference, dtype=pl.Date).alias("reference_date"),
            pl.lit(forecast.weeks_ahead, dtype=pl.Int64).alias("weeks_ahead"),
        )
    )


TOTAL = "total"
"""The id of the sum of all regions."""
AHEAD = (7, 14, 21, 28)
"""Horizons of a weekly forecast, in days."""


@dataclass(frozen=True)
class SiteForecast:
    """The forecasts from the last day of a panel, with the parts of their changes."""

    known: Cleaned
    learner: Learner[Any, Any]
    state: Any
    """The state as of the last day."""
    forecasts: tuple[Forecast, ...]
    """Forecasts of the regions themselves, one for each horizon."""
    larger: tuple[Forecast, ...] = ()
    """Forecasts of larger regions, or of a hub's weeks, if requested."""

    @classmethod
    def of(
        cls,
        cases: CasePanel | Cleaned,
        learner: Learner[Any, Any],
        state: Any,
        horizons: Sequence[int],
        targets: Targets | None = None,
    ) -> "SiteForecast":
        """The forecasts from the last day of the cases, with the state as of that day."""
        cleaned = clean(cases) if isinstance(cases, CasePanel) else cases
        made = tuple(forecast(cleaned, learner, state, ahead) for ahead in horizons)
        larger = tuple(sums for _, sums in targets.made(cleaned, learner, state)) if targets else ()
        return cls(cleaned, learner, state, made, larger)

    @cached_property
    def parts(self) -> dict[int, Parts | None]:
        """The parts of the changes, by horizon; none where the learner cannot tell."""
        return {
            own.horizon: parts(self.known, self.learner, self.state, own.horizon)
            for own in self.forecasts
        }

    @property
    def panel(self) -> CasePanel:
        """The panel of the forecast, with reporting artefacts replaced."""
        return self.known.panel

    @cached_property
    def total(self) -> tuple[Forecast, ...]:
        """The forecasts of all regions together, one for each horizon."""
        whole = whole_of(self.panel)
        return tuple(
            forecast(self.known, self.learner, self.state, own.horizon, whole)
            for own in self.forecasts
        )

    def total_to_long(self) -> pl.DataFrame:
        """A row for each horizon and quantile level of all regions together."""
        return pl.concat(own.to_long() for own in self.total)

    def to_long(self) -> pl.DataFrame:
        """A row for each horizon, region and quantile level."""
        return pl.concat(own.to_long() for own in self.forecasts)

    def larger_to_long(self) -> pl.DataFrame | None:
        """The same for larger regions and a hub's weeks, if requested."""
        return pl.concat(map(level_rows, self.larger)) if self.larger else None

    def parts_table(self) -> pl.DataFrame | None:
        """The parts of the changes as a table, if the learner can tell."""
        regions = self.panel.regions
        tables = [
            change.to_long(regions, days)
            for days, change in self.parts.items()
            if change is not None
        ]
        return pl.concat(tables) if tables else None

    def completed(self) -> Floats:
        """The last week of each region, with late reports completed by the learner."""
        filled = self.learner.completed(self.panel, self.state)
        return observed(filled.counts, filled.step)[:, -1]

    def table(self) -> pl.DataFrame:
        """A readable table: a row for each region and horizon with point, 50 and 95 % interval."""
        reported = observed(self.known.reported, self.panel.step)[:, -1]
        ends = {"lower_95": 0.025, "lower_50": 0.25, "upper_50": 0.75, "upper_95": 0.975}
        frames = [
            pl.DataFrame(
                {
                    "origin_date": [own.origin] * len(own.regions),
                    "region": own.regions,
                    "name": self.panel.names,
                    "horizon": [own.horizon * DAYS_OF[own.step]] * len(own.regions),
                    "target_date": [own.target_date] * len(own.regions),
                    "like_today": reported,
                    "forecast": own.point,
                }
                | {name: own.quantiles[:, LEVELS.index(level)] for name, level in ends.items()},
                schema_overrides={"region": pl.String, "name": pl.String},
            )
            for own in self.forecasts
        ]
        return pl.concat(frames).with_columns(pl.selectors.float().round(3))


def whole_of(panel: CasePanel) -> Level:
    """All regions of a panel together, as one region called `TOTAL`."""
    return Level(TOTAL, (TOTAL,), (TOTAL,), np.ones((1, len(panel.regions)), dtype=np.bool_))


def horizons_of(learner: Learner[Any, Any]) -> tuple[int, ...]:
    """The steps ahead of a weekly forecast: one to four weeks, or the learner's own horizon."""
    step = DAYS_OF[learner.settings.step]
    return (
        tuple(days // step for days in AHEAD)
        if learner.any_horizon
        else (learner.settings.horizon,)
    )


def timely(
    panel: CasePanel,
    known: CasePanel,
    learner: Learner[Any, Any],
    learned_to: date,
    kept: str,
    *,
    refuse: bool = False,
) -> tuple[CasePanel, str]:
    """The panel for a forecast, and a sentence on how complete its newest days are.

    `known` is the same panel with its data vintages, as far as they are kept. `kept` describes how
    far that is. Without vintages, an incomplete newest day after the last training day is left out.
    One that was trained on is a warning, or refused with `refuse`.
    """
    if panel.step == "week" and known.revisions is not None:
        weeks = counted(len(known.revisions.snapshots), "vintage")
        return known, f"the newest weeks are completed, from {weeks} of your own list"
    if panel.step == "week":
        return panel, "weekly counts: the newest week is taken as complete"
    if known.history is not None and learner.reads_history:
        mornings = len(known.history.snapshots)
        return (
            known,
            f"late reports are filled up, from {counted(mornings, 'vintage')} of your own list",
        )
    reason = kept if learner.reads_history else f"the learner '{learner.name}' reads no vintages"
    late = incomplete_days(panel)
    if not late:
        return panel, f"no vintages ({reason}): the newest days are taken as complete"
    complete, which = panel.end - timedelta(days=late), _newest(panel.end, late)
    if complete < learned_to and refuse:
        raise EpifedError(
            f"{panel.source}: found {which} incomplete, and the release learned from days up to "
            f"{learned_to}; expected a release of days up to {complete}, or --incomplete-days 0 to "
            "forecast nevertheless"
        )
    if complete < learned_to:
        return panel, f"no vintages ({reason}): {which} incomplete, take care"
    return panel.between(panel.start, complete), (
        f"no vintages ({reason}): {which} incomplete and {'is' if late == 1 else 'are'} left out, "
        "the days before are taken as complete; counts by publication day never are incomplete "
        "('epifed data convert --by-publication')"
    )


def leave_out(panel: CasePanel, days: int, learned_to: date) -> tuple[CasePanel, str]:
    """The panel without its newest `days`, and a sentence on it."""
    if panel.step == "week" and days:
        raise EpifedError(f"--incomplete-days: found {days} with counts of weeks; expected none")
    complete = panel.end - timedelta(days=days)
    if complete < max(learned_to, panel.start):
        raise EpifedError(
            f"--incomplete-days: found {days}, which leaves days up to {complete}; expected days "
            f"up to {learned_to} at least, which the release learned from"
        )
    sentence = f"the last {counted(days, 'day')} left out as incomplete, as chosen"
    return panel.between(panel.start, complete), sentence if days else "no day is left out"


def _newest(end: date, days: int) -> str:
    """The beginning of a sentence that names the newest days as incomplete."""
    if days == 1:
        return f"{end} looks"
    return f"the last {days} days, {end - timedelta(days=days - 1)} to {end}, look"


def forecast_releases(
    releases: Sequence[Release],
    panel: CasePanel,
    horizons: Sequence[int] | None = None,
    targets: Targets | None = None,
) -> SiteForecast:
    """Forecast from several releases together, the newest last, and an office's own cases.

    Releases that the newest one's learner cannot use are left out. All are already released and
    charged, so joining them has no further privacy cost. Without horizons: one to four weeks.
    """
    newest = releases[-1]
    newest.refuse_unlearned()
    learner = newest.learner
    used = [
        past
        for past in sorted(releases, key=lambda release: release.last_day)
        if past.learned and past.last_day <= newest.last_day and learner.compatible(past.learner)
    ]
    states = [(release.last_day, learner.unpack(release.vector)) for release in used]
    state = learner.advance(joined_states(learner, states)[-1], newest.age_on(panel.end))
    return SiteForecast.of(panel, learner, state, horizons or horizons_of(learner), targets)


def joined_states(learner: Learner[Any, Any], fresh: Sequence[tuple[date, Any]]) -> list[Any]:
    """The state as of each day joined with those of the days before, the oldest first."""
    joined: list[Any] = []
    for place, (day, state) in enumerate(fresh):
        if place:
            gap = (day - fresh[place - 1][0]).days
            joined.append(learner.join(learner.advance(joined[-1], gap), state))
        else:
            joined.append(state)
    return joined


def as_points(outlook: SiteForecast) -> pl.DataFrame:
    """The points and the persistence of the day, with which a later week scores them."""
    panel = outlook.panel
    persistence = observed(outlook.known.reported, panel.step)[:, -1]
    completed = outlook.completed()
    of_day = {"persistence": persistence, "completed": completed}
    return pl.concat(
        long_table(
            {"region": forecast.regions, "horizon": [forecast.horizon]},
            {"point": forecast.point} | of_day,
        )
        for forecast in outlook.forecasts
    )
