"""What is forecast beside each region's own week: larger regions, and the weeks of hubs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from epifed.anomalies import Cleaned, clean
from epifed.days import DAYS_OF, Step
from epifed.errors import EpifedError
from epifed.forecasting import Forecast, forecast, refuse_horizon
from epifed.intervals import LEVELS
from epifed.learner import Learner
from epifed.levels import Level, choose, levels_of
from epifed.panel import CasePanel
from epifed.weeks import WEEKDAYS, Weeks, to_weekday
from epifed.words import counted

_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Totals:
    """The published counts of larger regions, which are public already."""

    level: Level
    """Whose they are, as sums of the clients."""
    panel: CasePanel
    lead: int
    """Days by which they are known further than the clients' counts.

    One if they are dated by the day of publication; more if clients learn from older days only.
    """

    @classmethod
    def of(
        cls, panel: CasePanel, published: pl.DataFrame, places: Mapping[str, str], lead: int
    ) -> "Totals":
        """The totals of a table (date, location, value) for the regions above those of a panel.

        `places` is the region of each location. Of several levels the smallest regions are taken,
        and larger ones are sums of them. What was taken back is left out of its day.
        """
        known = published.with_columns(
            region=pl.col("location").replace_strict(places, default=None, return_dtype=pl.String)
        ).drop_nulls("region")
        there = set(known["region"])
        complete = [one for one in levels_of(panel).values() if there >= set(one.regions)]
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
        rows = known.filter(pl.col("region").is_in(level.regions))
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
        """The last day that is known when the clients' counts end on an origin."""
        return origin + self.lead * _DAY

    def on(self, origin: date) -> Cleaned:
        """What was published when the clients' counts end on an origin."""
        return self._cleaned.until(self.last_day(origin))

    def has(self, level: Level) -> bool:
        """Whether the regions of a level are sums of these."""
        return bool((self._within(level) @ self.level.members == level.members).all())

    def over(self, level: Level) -> Level:
        """A level as sums of these regions instead of the clients."""
        return replace(level, members=self._within(level))

    def _within(self, level: Level) -> NDArray[np.bool_]:
        """Which of these regions lie within each region of a level."""
        shared = level.members.astype(int) @ self.level.members.astype(int).T
        inside: NDArray[np.bool_] = shared == self.level.members.sum(axis=1)
        return inside


@dataclass(frozen=True)
class Targets:
    """Which levels are forecast, how far ahead, and from which counts."""

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
        """What is asked for beside each region's own forecast; none if nothing is.

        `steps` ahead are forecast where weeks are not counted from a reference day.
        """
        own = next(iter(levels_of(panel)))
        counted = week_ends or reference_day or ahead
        if not counted and set(level or [own]) == {own} and totals is None:
            return None
        weeks = _weeks(panel, week_ends, reference_day) if counted else None
        levels = choose(panel, level or [own])
        found = cls(levels, tuple(sorted(set((ahead or [1]) if weeks else steps))), weeks, totals)
        if totals is not None and not any(map(found.totals_of, levels)):
            raise EpifedError(
                f"--published: found counts of the level '{totals.level.name}'; expected a --level "
                "that is forecast from them"
            )
        return found

    def made(
        self, known: Cleaned, learner: Learner[Any, Any], state: Any
    ) -> list[tuple[Level, Forecast]]:
        """The forecasts of all levels from the last day of a panel, with a state as of that day."""
        origin = known.panel.end
        found = []
        for level in self.levels:
            counts, now, over = known, state, level
            if (totals := self.totals_of(level)) is not None:
                counts, over = totals.on(origin), totals.over(level)
                now = learner.advance(state, totals.lead)
            for ahead in self.ahead:
                steps, reference = self.horizon(origin, counts.panel.end, ahead, counts.panel.step)
                one = forecast(counts, learner, now, steps, over)
                if self.weeks is not None:
                    one = replace(one, reference=reference, weeks_ahead=ahead)
                elif one.step == "week":
                    one = replace(one, weeks_ahead=ahead)
                found.append((level, one))
        return found

    def within_reach(self, origins: Sequence[date], step: Step) -> "Targets":
        """Without the weeks that lie too far ahead, or have ended, from one of the origins."""
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
        """What will be forecast from some origins, without values."""
        found = []
        for origin in origins:
            for level in self.levels:
                totals = self.totals_of(level)
                last = origin if totals is None else totals.last_day(origin)
                nothing = np.zeros((len(level.regions), len(LEVELS)))
                for ahead in self.ahead:
                    steps, day = self.horizon(origin, last, ahead, step)
                    refuse_horizon(steps, step)
                    found.append(
                        Forecast(last, steps, level.regions, nothing[:, 0], nothing, level.name,
                                 day if self.weeks else None, ahead if self.weeks else None, step)
                    )  # fmt: skip
        return found

    def totals_of(self, level: Level) -> Totals | None:
        """The published counts that a level is forecast from, if it is."""
        return self.totals if self.totals is not None and self.totals.has(level) else None

    def sentence(self) -> str:
        """Which counts of larger regions are used, and that they are no private release."""
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
    """How weeks are counted; those of a weekly panel end on the day that they are dated."""
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
    """Refuse totals that are not daily, or end earlier for some regions: no count is not zero."""
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
    """The final counts of a level's regions, which forecasts of it are scored on."""
    totals = targets.totals_of(level)
    return level.panel(panel) if totals is None else totals.over(level).panel(totals.panel)


def level_rows(one: Forecast) -> pl.DataFrame:
    """A forecast of a level as a long table, with the level and the week as a hub counts it."""
    return (
        one.to_long()
        .rename({"level": "quantile"})
        .with_columns(
            pl.lit(one.level).alias("level"),
            pl.lit(one.reference, dtype=pl.Date).alias("reference_date"),
            pl.lit(one.weeks_ahead, dtype=pl.Int64).alias("weeks_ahead"),
        )
    )
