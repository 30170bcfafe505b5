"""Describe a panel before it is used: gaps, zeros, weekday pattern, anomalies."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epifed.data.calendar import Step
from epifed.data.panel import CasePanel
from epifed.data.quality import ANOMALOUS, clean
from epifed.data.readers.tables import AmbiguousTableError
from epifed.errors import counted
from epifed.files import to_json
from epifed.intervals import LEAST_STEPS
from epifed.nowcasting.late_reports import incomplete_days

WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
ONE_WEEKDAY = 0.9
"""From this share of all cases on one weekday, daily counts look like weekly ones."""
GAPS_ARE: dict[Step, str] = {
    "day": "taken as zero",
    "week": "not taken as zero where reports are usual, nor scored in a backtest",
}
"""How days and weeks without a report are treated."""


@dataclass(frozen=True)
class Gaps:
    """Region-days, or region-weeks, without a report in the source."""

    missing: int
    share: float
    regions: int
    longest: int
    longest_region: str | None


@dataclass(frozen=True)
class Anomaly:
    """An implausible count, as found by `epifed.data.quality`."""

    region: str
    name: str
    day: date
    kind: str
    reported: float
    expected: float


@dataclass(frozen=True)
class CheckReport:
    """The result of `check_panel`."""

    source: str
    regions: int
    step: Step
    """Whether a count is of a day or a week; for weeks, `days` counts weeks."""
    first_day: date
    last_day: date
    days: int
    cases: float
    population: int | None
    fractional: int
    """Region-days whose count is not a whole number: averages, or a misread decimal sign."""
    gaps: Gaps
    zeros: float
    """Share of region-days with no case."""
    silent_regions: tuple[str, ...]
    """Regions without any case."""
    silent_weekends: tuple[str, ...]
    """Regions that have cases, but none on any Saturday or Sunday."""
    weekdays: tuple[float, ...] | None
    """Monday to Sunday relative to the average day, over whole weeks."""
    anomaly_counts: dict[str, int]
    """Region-days of each kind of anomaly."""
    anomalies: tuple[Anomaly, ...]
    """The anomalies farthest from the expected counts."""
    days_needed: int
    """Days, or weeks, that a forecast needs."""
    enough_days: bool
    incomplete_days: int
    """Newest days that look incomplete beside the same weekdays before."""
    future_days: int
    """Number of days after today."""
    notes: tuple[str, ...]
    attribution: tuple[str, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What users of the data should know, in sentences; the notes of the source come first."""
        sentences = list(self.notes)
        if self.gaps.missing:
            sentences.append(
                f"no report: {counted(self.gaps.missing, f'region-{self.step}')} "
                f"({self.gaps.share:.1%}), {GAPS_ARE[self.step]}"
            )
        if self.fractional:
            sentences.append(f"not a whole number: {counted(self.fractional, 'count')}")
        if self.cases == 0:
            sentences.append("there is no case at all")
        elif self.silent_regions:
            sentences.append(f"regions without a case: {len(self.silent_regions):,}")
        if self.silent_weekends:
            sentences.append(
                f"never a case on a weekend: {counted(len(self.silent_weekends), 'region')}"
            )
        if self.weekdays is not None and max(self.weekdays) >= ONE_WEEKDAY * 7:
            day = WEEKDAYS[self.weekdays.index(max(self.weekdays))]
            sentences.append(
                f"{max(self.weekdays) / 7:.0%} of all cases fall on one weekday ({day}): these may "
                "be weekly counts"
            )
        sentences += self.of_newest_days
        if self.future_days:
            sentences.append(
                f"the last day, {self.last_day}, is {counted(self.future_days, 'day')} after "
                "today: are day and month mixed up, or is a year mistyped?"
            )
        if not self.enough_days:
            sentences.append(
                f"too few: {counted(self.days, self.step)}; a forecast needs {self.days_needed}"
            )
        return tuple(sentences)

    @property
    def of_newest_days(self) -> tuple[str, ...]:
        """The warnings of which a forecast prints its own, with what it does about them."""
        sentences = []
        if self.anomalies:
            worst = self.anomalies[0]
            reports = counted(sum(self.anomaly_counts.values()), "report")
            sentences.append(
                f"implausible: {reports}, the worst {worst.reported:,.6g} in "
                f"{worst.region} on {worst.day}"
            )
        if self.incomplete_days:
            sentences.append(
                f"the last {counted(self.incomplete_days, 'day')} look incomplete beside the same "
                "weekdays before: a forecast leaves them out (--incomplete-days 0 keeps them)"
            )
        return tuple(sentences)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values, ready for JSON."""
        report: dict[str, Any] = json.loads(to_json(asdict(self)))
        if self.weekdays is not None:
            report["weekdays"] = dict(zip(WEEKDAYS, self.weekdays, strict=True))
        return report | {"warnings": list(self.warnings)}


def check_panel(panel: CasePanel, top: int = 10, today: date | None = None) -> CheckReport:
    """Check a panel; it has enough days if a forecast can be made from it.

    Days after `today` (by default the clock's day) are counted; a week may end after it.
    """
    counts = panel.counts
    regions, days = counts.shape
    weekday = (panel.start.weekday() + np.arange(days)) % 7
    total = counts.sum(axis=1)
    weekend = counts[:, weekday >= 5] if panel.step == "day" else counts[:, :0]
    no_weekend = (total > 0) & (weekend.sum(axis=1) == 0) if weekend.size else total < 0
    needed = LEAST_STEPS[panel.step]
    after = (panel.end - (today or date.today())).days
    anomalies = clean(panel).to_long()
    names = dict(zip(panel.regions, panel.names, strict=True))
    return CheckReport(
        source=panel.source,
        regions=regions,
        step=panel.step,
        first_day=panel.start,
        last_day=panel.end,
        days=days,
        cases=float(total.sum()),
        population=None if panel.population is None else int(panel.population.sum()),
        fractional=int(np.count_nonzero(counts != np.rint(counts))),
        gaps=_gaps(panel),
        zeros=float(np.mean(counts == 0)),
        silent_regions=_named(panel, total == 0),
        silent_weekends=_named(panel, no_weekend),
        weekdays=_weekdays(counts, weekday) if panel.step == "day" else None,
        anomaly_counts={kind: len(anomalies.filter(kind=kind)) for kind in ANOMALOUS},
        anomalies=tuple(
            Anomaly(name=names[row["region"]], **row) for row in anomalies.head(top).to_dicts()
        ),
        days_needed=needed,
        enough_days=days >= needed,
        incomplete_days=incomplete_days(panel),
        future_days=max(after - (panel.step_days - 1), 0),
        notes=panel.notes,
        attribution=panel.attribution,
    )


def refuse_future(panel: CasePanel, options: Mapping[str, Any], today: date | None = None) -> None:
    """Refuse days after today, by default the clock's day, unless the option `until` is given.

    A week may end after today.
    """
    today = today or date.today()
    after = (panel.end - today).days - (panel.step_days - 1)
    if after > 0 and options.get("until") is None:
        raise AmbiguousTableError(
            f"{panel.source}: found days up to {panel.end}, {counted(after, 'day')} after today; "
            "expected no day after today",
            {"until": today.isoformat()},
            {"until": panel.end.isoformat()},
        )


def _named(panel: CasePanel, chosen: NDArray[np.bool_]) -> tuple[str, ...]:
    return tuple(panel.regions[i] for i in np.flatnonzero(chosen))


def _gaps(panel: CasePanel) -> Gaps:
    if panel.reported is None or panel.reported.all():
        return Gaps(missing=0, share=0.0, regions=0, longest=0, longest_region=None)
    absent = ~panel.reported
    run = np.zeros(len(absent), dtype=np.int64)
    longest = np.zeros_like(run)
    for day in absent.T:
        run = np.where(day, run + 1, 0)
        np.maximum(longest, run, out=longest)
    return Gaps(
        missing=int(absent.sum()),
        share=float(absent.mean()),
        regions=int(absent.any(axis=1).sum()),
        longest=int(longest.max()),
        longest_region=panel.regions[int(longest.argmax())],
    )


def _weekdays(counts: NDArray[np.float64], weekday: NDArray[np.int_]) -> tuple[float, ...] | None:
    whole = counts.shape[1] // 7 * 7
    daily = counts[:, :whole].sum(axis=0)
    if not daily.any():
        return None
    by_weekday = np.bincount(weekday[:whole], weights=daily, minlength=7)
    return tuple(float(share) for share in by_weekday / by_weekday.mean())
