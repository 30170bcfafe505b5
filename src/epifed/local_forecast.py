"""Forecast from one file alone: nothing is released, so no noise is needed.

The regions of the file learn from each other with the learner `trend`, without noise. With data
vintages the real-time learner is used. The same is repeated on the file's own past, week by
week, with only what was known then: this is the track record. If the learner loses to
persistence there ("next week equals this week"), persistence is the forecast.

    made = forecast_alone(load_panel("cases.xlsx"))
    made.write(Path("forecast"))          # report.html, forecast.csv, forecast.xlsx, results/
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from epifed import forecasting, intervals
from epifed.data.calendar import WEEK
from epifed.data.panel import CasePanel, Level, Table
from epifed.data.quality import RECENT_DAYS, Cleaned, refuse_stray_days
from epifed.data.readers import load_panel
from epifed.data.vintages import LEAST_VINTAGES, Vintages
from epifed.errors import EpifedError, counted
from epifed.evaluation.backtest import SCORES, KnownData, own_table, record_of, train_as_of
from epifed.evaluation.results_folder import RESULTS, ForecastRecord, WeekTables, write_forecast
from epifed.files import write_atomic, write_sheet
from epifed.forecasting import AHEAD, TOTAL, Forecast, SiteForecast, joined_states, whole_of
from epifed.intervals import LEAST_STEPS, LEVELS
from epifed.learners.base import Learner, make_learner, observed, settings_for
from epifed.nowcasting.late_reports import incomplete_days as look_incomplete
from epifed.nowcasting.transmission import nowcast_on
from epifed.report.html import write_report
from epifed.settings import Settings

Floats = NDArray[np.float64]
Method = Literal["trend", "persistence"]

MOST_WEEKS = len(AHEAD)
MOST_ORIGINS = 26
"""Most past weeks from which the forecast is repeated and scored."""
FIRST_DAYS = 28
"""Days of cases before the first vintage that is learned from."""
LEAST_ORIGINS = 4
"""With fewer past weeks the track record does not choose the method."""
REPORT, CSV, WORKBOOK = "report.html", "forecast.csv", "forecast.xlsx"
ENDS = {"lower_95": 0.025, "lower_50": 0.25, "upper_50": 0.75, "upper_95": 0.975}


@dataclass(frozen=True)
class TrackRecord:
    """Scores of past forecasts on the file itself, for one number of weeks ahead."""

    weeks_ahead: int
    origins: int
    """Past weeks from which a forecast was made and has been observed since."""
    relative_mae: float | None
    """Mean absolute error over that of persistence; below 1 is better. None: persistence was
    exact, or there is no origin."""
    coverage_50: float | None
    """Share of observed counts within the 50 % interval."""
    coverage_95: float | None


@dataclass(frozen=True)
class LocalForecast:
    """A forecast from one file, with its track record on that file.

    Tables count cases of seven days; for daily panels the other fields are averages a day.
    """

    panel: CasePanel
    """The data as given, incomplete days included."""
    origin: date
    """The last complete day, from which the forecast is made."""
    method: Method
    """The method of the forecast: the learner (called `trend`), or persistence."""
    learner: str
    """The learner that was tried: `trend`, or the real-time one if there are vintages."""
    reason: str
    """Why this method, in a sentence."""
    forecasts: tuple[Forecast, ...]
    """One for each week ahead: point and quantiles of each region, as 7-day averages of daily
    cases, or for weekly panels as the cases of a week."""
    total: tuple[Forecast, ...]
    """The forecasts of the sum of all regions."""
    like_today: Floats
    """[regions]: persistence, in the same unit: the last week, completed for late reports if there
    are vintages."""
    settings: Settings
    """Settings of the learner that was tried, without noise."""
    learner_record: tuple[TrackRecord, ...]
    """The learner's track record, one for each week ahead."""
    relative_mae_together: float | None
    """The learner's relative MAE over all weeks ahead together."""
    persistence_record: tuple[TrackRecord, ...]
    """The track record of persistence, whose relative MAE is 1 by definition."""
    total_record: tuple[TrackRecord, ...]
    """The track record of the chosen method for the sum of all regions."""
    past: pl.DataFrame
    """The past forecasts of the chosen method, beside what was observed."""
    incomplete_days: int
    """Number of newest days that are left out as incomplete."""
    incomplete_days_found: int
    """Number of newest days that look incomplete by the file's own past, whatever was chosen."""
    notes: tuple[str, ...]
    """What readers of the forecast must know, in sentences."""
    nowcast: pl.DataFrame | None = None
    """The last two weeks as known and as estimated, and R(t), if there are vintages: as_of, region,
    date, known, estimate, lower, upper, r, r_lower, r_upper."""
    nowcast_together: pl.DataFrame | None = None
    """The nowcast of the sum of all regions."""
    parts: pl.DataFrame | None = None
    """The parts of the forecast changes, if the learner makes the forecast."""

    @property
    def track_record(self) -> tuple[TrackRecord, ...]:
        """The track record of the chosen method, one for each week ahead."""
        return self.learner_record if self.method == "trend" else self.persistence_record

    @property
    def regions(self) -> tuple[str, ...]:
        """The ids of the regions."""
        return self.panel.regions

    @property
    def weekly(self) -> float:
        """The factor from a value of `forecasts` to the cases of seven days."""
        return WEEK / self.panel.step_days

    def table(self) -> pl.DataFrame:
        """A row for each region and week ahead, then those of the total: cases of seven days.

        The columns: region, name, weeks_ahead, week_to (its last day), like_today, forecast,
        lower_95, lower_50, upper_50, upper_95, change_percent.
        """
        today = [*self.like_today, self.like_today.sum()]
        names = [*self.panel.names, TOTAL]
        both = zip(self.forecasts, self.total, strict=True)
        frames = []
        for ahead, (forecast, whole) in enumerate(both, start=1):
            quantiles = np.concatenate([forecast.quantiles, whole.quantiles]) * self.weekly
            point = np.concatenate([forecast.point, whole.point]) * self.weekly
            columns: dict[str, Any] = {
                "region": [*forecast.regions, TOTAL],
                "name": names,
                "weeks_ahead": [ahead] * len(names),
                "week_to": [forecast.target_date] * len(names),
                "like_today": np.array(today) * self.weekly,
                "forecast": point,
            }
            columns |= {name: quantiles[:, LEVELS.index(level)] for name, level in ENDS.items()}
            frames.append(
                pl.DataFrame(columns, schema_overrides={"region": pl.String, "name": pl.String})
            )
        change = pl.when(pl.col("like_today") > 0).then(
            100 * (pl.col("forecast") / pl.col("like_today") - 1)
        )
        return pl.concat(frames).with_columns(
            pl.selectors.float().round(1), change_percent=change.round(0)
        )

    def quantiles(self) -> pl.DataFrame:
        """A row for each region, week ahead and quantile level: cases of seven days."""
        every = zip(self.forecasts, self.total, strict=True)
        long = pl.concat(forecast.to_long() for both in every for forecast in both)
        return long.select(
            "region",
            weeks_ahead=pl.col("horizon") * self.panel.step_days // WEEK,
            week_to=pl.col("target_date"),
            quantile=pl.col("level"),
            cases=(pl.col("value") * self.weekly).round(2),
        )

    def write_csv(self, path: Path) -> None:
        """Write the table as CSV."""
        write_sheet(path, self.table())

    def write_workbook(self, path: Path) -> None:
        """Write an Excel file: a sheet of readable numbers with a chart, one of quantiles.

        Text stays text: a region called `=1+1` is written as that text, never as a formula.
        """
        write_atomic(path, lambda to: _write_workbook(self, to))

    def write_results(self, path: Path) -> None:
        """Write the results folder, from which `epifed report` can make the page again."""
        record = None
        if len(self.past):
            # The page's record is of the learner's own horizon, a week.
            first = self.past.filter(pl.col("horizon") == self.forecasts[0].horizon)
            record = record_of(
                first,
                self.settings,
                origins=first["origin_date"].n_unique(),
                releases=0,
                epsilon_total=math.inf,
                noise_multiplier=0.0,
                real_time=self.learner != "trend",
            )
            if self.method == "persistence":
                record = record.model_copy(update={"learner": "persistence"})
        points = pl.concat(
            pl.DataFrame(
                {
                    "region": forecast.regions,
                    "horizon": [forecast.horizon] * len(forecast.regions),
                    "point": forecast.point,
                    "persistence": self.like_today,
                    "completed": self.like_today,
                },
                schema_overrides={"region": pl.String},
            )
            for forecast in self.forecasts
        )
        write_forecast(
            path,
            self.panel,
            self.settings,
            WeekTables(
                pl.concat(forecast.to_long() for forecast in self.forecasts),
                points,
                self.parts,
                self.nowcast,
                self.past if len(self.past) else None,
                record,
                pl.concat(forecast.to_long() for forecast in self.total),
            ),
            self.table(),
            randomness="none",
            about=ForecastRecord(
                method="learner" if self.method == "trend" else "persistence",
                reason=self.reason,
                origins=self.learner_record[0].origins,
                relative_mae=self.learner_record[0].relative_mae,
                relative_mae_together=self.relative_mae_together,
                incomplete_days=self.incomplete_days,
                notes=self.notes,
            ),
        )

    def write_report(
        self, results: Path, path: Path, remark: Callable[[str], object] = lambda _: None
    ) -> None:
        """Write the page of a results folder that `write_results` wrote."""
        write_report(results, path, self.panel, remark=remark)

    def write(self, out: Path, remark: Callable[[str], object] = lambda _: None) -> None:
        """Write report.html, forecast.csv, forecast.xlsx and the folder results into a directory.

        Without XlsxWriter (`pip install epifed[excel]`) the Excel file is left out, and `remark` is
        called with a sentence about it.
        """
        out.mkdir(parents=True, exist_ok=True)
        self.write_results(out / RESULTS)
        self.write_csv(out / CSV)
        self.write_report(out / RESULTS, out / REPORT, remark)
        if find_spec("xlsxwriter") is None:
            remark("no forecast.xlsx: it needs XlsxWriter ('pip install epifed[excel]')")
        else:
            self.write_workbook(out / WORKBOOK)


def forecast_alone(
    panel: CasePanel | Table,
    *,
    weeks: int = MOST_WEEKS,
    incomplete_days: int | None = None,
    region: str | None = None,
    vintages: Vintages | None = None,
    progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> LocalForecast:
    """Forecast the regions of a panel one to four weeks ahead, from the panel alone.

    Parameters
    ----------
    panel
        Cases of regions by day or week, or a DataFrame of them. Regions learn from each other.
    weeks
        Weeks ahead, 1 to 4; fewer are made if the panel is too short for all.
    incomplete_days
        Newest days to leave out because not all reports are in; None: as many as the file's own
        past suggests. Weekly panels have none. Not used with `vintages`, which complete these days.
    region
        The id of one region to forecast alone, from its own counts; None: all together.
    vintages
        Data vintages, as known on each day, or a line list with the dates of report. With them
        there is a nowcast and R(t), and the track record is a real-time one.
    progress
        Called with the number of past weeks that are done, and the number of all.

    Returns
    -------
    LocalForecast
        Forecasts, persistence beside them, the track record, and notes.

    Raises
    ------
    EpifedError
        If the panel is too short, or an argument does not fit it.

    Examples
    --------
    >>> import numpy as np
    >>> from datetime import date
    >>> counts = np.tile([9.0, 12, 11, 10, 8, 3, 2], (2, 12))
    >>> made = forecast_alone(CasePanel(counts, ("a", "b"), date(2024, 1, 1)), weeks=2)
    >>> made.table().select("region", "weeks_ahead", "like_today").rows()[:3]
    [('a', 1, 55.0), ('b', 1, 55.0), ('total', 1, 110.0)]
    """
    if not 1 <= weeks <= MOST_WEEKS:
        raise EpifedError(f"weeks: found {weeks}; expected 1 to {MOST_WEEKS}")
    panel = panel if isinstance(panel, CasePanel) else load_panel(panel)
    if region is not None:
        panel = _alone(panel, region)
    if not panel.counts.any():
        raise EpifedError(
            f"{panel.source}: found no case at all; expected cases to forecast (formulas that no "
            "program has computed are read as 0: open the file in Excel and save it)"
        )
    refuse_stray_days(panel)
    notes: list[str] = []
    vintages = vintages if vintages is not None else panel.history
    if vintages is not None:
        vintages = _settled(vintages, panel, notes)
    seems = look_incomplete(panel) if vintages is None else 0
    left_out = _left_out(panel, incomplete_days, seems, vintages, notes)
    used = replace(panel, history=None)
    if left_out:
        used = used.between(panel.start, panel.end - timedelta(days=left_out))
    learner_name = "real-time" if vintages is not None and panel.step == "day" else "trend"
    horizons = _horizons(used, weeks, notes)
    history = vintages.of(used.regions) if vintages is not None else None
    known = KnownData(used, history)
    # Slopes by size and place overfit few regions (relative MAE of 6: 0.93 with, 0.85 without) and
    # gain nothing with 120.
    slopes = {"modes": 0} if used.step == "day" else {}
    settings = settings_for(used, {"learner": learner_name, "epsilon": math.inf}, slopes)
    learner = make_learner(settings)
    origins = _origins(used, history)
    states = _train(known, settings, learner, origins, progress)
    whole = whole_of(used)
    past = _look_back(known, learner, states, horizons, whole)
    record = _records(past["trend"], horizons, used)
    now = known.on(used.end)
    series = _weeks_known(now, learner, states[used.end], late=history is not None)
    method, reason = _choose(past["trend"], record, learner_name)
    parts = None
    if method == "trend":
        newest = states[used.end]
        outlook = SiteForecast.of(now, learner, newest, horizons)
        made, parts = outlook.forecasts, outlook.parts_table()
        total = outlook.total
    else:
        made = tuple(_persistence(used, series, h, used.regions) for h in horizons)
        total = tuple(_persistence(used, whole.sum(series), h, (TOTAL,)) for h in horizons)
    anomalies = now.to_long(RECENT_DAYS)
    if not anomalies.is_empty():
        notes.append(now.sentence(RECENT_DAYS))
    if panel.population is None:
        notes.append("no population: there are no incidences, and the size of a region is not used")
    if len(panel.regions) == 1:
        notes.append(
            "one region: it learns from its own past alone; more regions make a forecast better"
        )
    return LocalForecast(
        panel=panel,
        origin=used.end,
        method=method,
        learner=learner_name,
        reason=reason,
        forecasts=made,
        total=total,
        like_today=series[:, -1],
        settings=settings,
        learner_record=record,
        relative_mae_together=_relative_mae(past["trend"]),
        persistence_record=_records(past["persistence"], horizons, used),
        total_record=_records(past[f"{method} of all"], horizons, used),
        past=past[method],
        incomplete_days=left_out,
        incomplete_days_found=seems,
        notes=tuple(notes),
        nowcast=None if history is None else nowcast_on(history, used.end),
        nowcast_together=None if history is None else nowcast_on(history.together(TOTAL), used.end),
        parts=parts,
    )


def _alone(panel: CasePanel, region: str) -> CasePanel:
    """The panel of one region, by its id or name."""
    rows = [row for row, name in enumerate(panel.names) if region in (panel.regions[row], name)]
    if len(rows) != 1:
        raise EpifedError(
            f"region: found '{region}'; expected one of {', '.join(panel.regions[:6])}"
            + (" …" if len(panel.regions) > 6 else "")
        )
    return panel.alone(panel.regions[rows[0]])


def _settled(vintages: Vintages, panel: CasePanel, notes: list[str]) -> Vintages | None:
    """The vintages that have at least four weeks of cases; None if there are too few."""
    first = panel.start + timedelta(days=FIRST_DAYS)
    mornings = [morning for morning in vintages.snapshots if morning >= first]
    if len(mornings) < LEAST_VINTAGES:
        notes.append(
            f"data vintages: found {counted(len(mornings), 'vintage')} from {first} on; a nowcast "
            f"needs {LEAST_VINTAGES}, so the newest days are not filled up"
        )
        return None
    if mornings[0] == vintages.first:
        return vintages
    changes = vintages.changes.with_columns(pl.max_horizontal("as_of", pl.lit(mornings[0])))
    return Vintages.from_changes(
        changes, source=vintages.source, regions=vintages.regions, snapshots=mornings
    )


def _left_out(
    panel: CasePanel, asked: int | None, seems: int, vintages: Vintages | None, notes: list[str]
) -> int:
    """The number of newest days to leave out as incomplete; adds notes about them."""
    if asked is not None and not 0 <= asked < panel.counts.shape[1]:
        raise EpifedError(
            f"incomplete days: found {asked}; expected 0 to {panel.counts.shape[1] - 1}"
        )
    if panel.step == "week" or vintages is not None:
        if asked:
            why = "weekly counts" if panel.step == "week" else "data vintages"
            raise EpifedError(f"incomplete days: found {asked} with {why}; expected none")
        return 0
    if asked is not None:
        if seems > asked:
            notes.append(
                f"the last {counted(seems, 'day')} look incomplete; {asked or 'none'} "
                f"{'is' if asked == 1 else 'are'} left out, as chosen"
            )
        return asked
    if seems:
        notes.append(
            f"the last {counted(seems, 'day')} (from {panel.end - timedelta(days=seems - 1)}) look "
            "incomplete beside the same weekdays before and are left out; 'incomplete days' = 0 "
            "keeps them"
        )
    return seems


def _horizons(used: CasePanel, weeks: int, notes: list[str]) -> tuple[int, ...]:
    """The steps ahead for which the panel is long enough."""
    have, least, week = used.counts.shape[1], LEAST_STEPS[used.step], WEEK // used.step_days
    if have < least:
        raise EpifedError(
            f"{used.source}: found {counted(have, used.step)} up to {used.end}; expected at least "
            f"{least} for a forecast"
        )
    possible = min(weeks, 1 + (have - least) // week)
    if possible < weeks:
        notes.append(
            f"the file has {counted(have, used.step)}: enough for a forecast "
            f"{counted(possible, 'week')} ahead, not {weeks}"
        )
    return tuple(week * ahead for ahead in range(1, possible + 1))


def _origins(used: CasePanel, vintages: Vintages | None) -> list[date]:
    """The past weeks from which the forecast is repeated, ending with the panel's last day."""
    week = WEEK // used.step_days
    last, least = used.counts.shape[1] - 1, LEAST_STEPS[used.step] - week - 1
    days = [used.day(column) for column in range(last, max(least, week), -week)][::-1]
    days = days[-MOST_ORIGINS - MOST_WEEKS :] or [used.end]
    if vintages is not None:
        first = vintages.first + timedelta(days=LEAST_VINTAGES)
        looked = set(vintages.snapshots)
        days = [one for one in days if one + timedelta(days=1) in looked and one >= first]
        days = days if used.end in days else [*days, used.end]
    return days


def _train(
    known: KnownData,
    settings: Settings,
    learner: Learner[Any, Any],
    origins: Sequence[date],
    progress: Callable[[int, int], None],
) -> dict[date, Any]:
    """The learner's state as of each origin, joined with those of the weeks before it."""
    fresh = []
    for done, day in enumerate(origins):
        progress(done, len(origins))
        fresh.append((day, train_as_of(known, settings, day).state))
    progress(len(origins), len(origins))
    return dict(zip(origins, joined_states(learner, fresh), strict=True))


def _look_back(
    known: KnownData,
    learner: Learner[Any, Any],
    states: dict[date, Any],
    horizons: Sequence[int],
    whole: Level,
) -> dict[str, pl.DataFrame]:
    """The forecasts that would have been made, beside what was observed.

    Keys are the methods, and for the sum of all regions the methods followed by "of all".
    """
    panel = known.panel
    tables: dict[str, list[pl.DataFrame]] = {}
    summed = KnownData(whole.panel(panel))
    for day, state in states.items():
        then = known.on(day)
        series = _weeks_known(then, learner, state, late=known.vintages is not None)
        today = series[:, -1]
        for horizon in horizons:
            if panel.index(day) + horizon >= panel.counts.shape[1]:
                continue
            try:
                one = forecasting.forecast(then, learner, state, horizon)
                of_all = forecasting.forecast(then, learner, state, horizon, whole)
            except EpifedError:
                continue  # too early in the file for this horizon
            again = _persistence(then.panel, series, horizon, panel.regions)
            again_of_all = _persistence(then.panel, whole.sum(series), horizon, (TOTAL,))
            for name, made, truth, like in (
                ("trend", one, known, today),
                ("trend of all", of_all, summed, whole.sum(today)),
                ("persistence", again, known, today),
                ("persistence of all", again_of_all, summed, whole.sum(today)),
            ):
                table = own_table(truth, [made], {day: like})
                table = table.with_columns(persistence=pl.col("nowcast"))
                tables.setdefault(name, []).append(table)
    names = ("trend", "trend of all", "persistence", "persistence of all")
    return {name: pl.concat(tables[name]) if tables else pl.DataFrame() for name in names}


def _weeks_known(then: Cleaned, learner: Learner[Any, Any], state: Any, *, late: bool) -> Floats:
    """The weeks up to a day as known on it; with `late`, the last is completed."""
    panel = then.panel
    counts = learner.completed(panel, state).counts if late else then.reported
    return observed(counts, panel.step)


def _records(
    past: pl.DataFrame, horizons: Sequence[int], panel: CasePanel
) -> tuple[TrackRecord, ...]:
    """The track record of each horizon."""
    records = []
    for horizon in horizons:
        weeks = horizon * panel.step_days // WEEK
        rows = past if past.is_empty() else past.filter(horizon=horizon)
        if rows.is_empty():
            records.append(TrackRecord(weeks, 0, None, None, None))
            continue
        scores = rows.select(SCORES).row(0, named=True)
        records.append(
            TrackRecord(
                weeks,
                rows["origin_date"].n_unique(),
                scores["mae_ratio"],
                scores["coverage_50"],
                scores["coverage_95"],
            )
        )
    return tuple(records)


def _choose(past: pl.DataFrame, record: Sequence[TrackRecord], learner: str) -> tuple[Method, str]:
    """Choose the method, with a reason: persistence if it beat the learner on the file's past.

    The learner lost if its error was not smaller for the next week, or for all weeks together. A
    choice for each week ahead errs no less (docs/evidence/forecasting.md).
    """
    first = record[0]
    if first.origins < LEAST_ORIGINS or first.relative_mae is None:
        return "trend", (
            f"the file allows {counted(first.origins, 'past forecast')}, fewer than "
            f"{LEAST_ORIGINS}: the trend is not tested on this file"
        )
    together = _relative_mae(past)
    tested = f"on {counted(first.origins, 'past week')} of this file"
    if first.relative_mae >= 1:
        return "persistence", (
            f"{tested} the {learner} forecast of the next week had a larger error than persistence "
            f"(relative MAE {first.relative_mae:.2f}): persistence is shown"
        )
    if together is not None and together >= 1:
        return "persistence", (
            f"{tested} the {learner} forecasts of all weeks ahead together had a larger error than "
            f"persistence (relative MAE {together:.2f}): persistence is shown"
        )
    return "trend", (
        f"{tested} the forecast of the next week had a smaller error than persistence "
        f"(relative MAE {first.relative_mae:.2f})"
    )


def _relative_mae(past: pl.DataFrame) -> float | None:
    """The error of all past forecasts over that of persistence; None without past forecasts."""
    if past.is_empty():
        return None
    ratio: float | None = past.select(SCORES).row(0, named=True)["mae_ratio"]
    return ratio


def _persistence(
    panel: CasePanel, series: Floats, horizon: int, regions: tuple[str, ...]
) -> Forecast:
    """Persistence: the last week's value, with quantiles from its own past errors."""
    apart, days = panel.step_days, horizon * panel.step_days
    used = min(series.shape[1] - horizon, intervals.ERRORS // apart)
    daily = series / apart
    past = intervals.Past(daily[:, -used - horizon : -horizon], daily[:, -used:], days, apart)
    spread = apart * intervals.quantiles(daily[:, -1], past)
    return Forecast(panel.end, horizon, regions, series[:, -1], spread, step=panel.step)


def _write_workbook(made: LocalForecast, path: Path) -> None:
    """Write the Excel file; text cells are written as text."""
    import xlsxwriter  # noqa: PLC0415

    with xlsxwriter.Workbook(
        path, {"strings_to_formulas": False, "strings_to_urls": False}
    ) as book:
        bold = book.add_format({"bold": True, "bottom": 1, "text_wrap": True, "valign": "top"})
        whole, day = (
            book.add_format({"num_format": "0"}),
            book.add_format({"num_format": "yyyy-mm-dd"}),
        )
        text = book.add_format({"text_wrap": True, "valign": "top"})
        table = made.table()
        sheet = book.add_worksheet("forecast")
        heads = {
            "region": "region", "name": "name", "weeks_ahead": "weeks ahead",
            "week_to": "seven days to", "like_today": "like today", "forecast": "forecast",
            "lower_95": "95 % from", "lower_50": "50 % from", "upper_50": "50 % to",
            "upper_95": "95 % to", "change_percent": "change in %",
        }  # fmt: skip
        _write_table(sheet, table.rename(heads), bold, whole, day)
        notes = book.add_worksheet("notes")
        notes.set_column(0, 0, 110)
        lines = [
            f"Forecast of {made.origin}: cases of seven days; persistence ('like today') is the "
            "last seven days again.",
            made.reason[:1].upper() + made.reason[1:] + ".",
            *(
                f"{counted(one.weeks_ahead, 'week')} ahead, {counted(one.origins, 'past forecast')}"
                f": relative MAE {_number(one.relative_mae)}, observed values inside the "
                f"50 % interval {_percent(one.coverage_50)}, 95 % {_percent(one.coverage_95)}."
                for one in made.learner_record
            ),
            *(note[:1].upper() + note[1:] + "." for note in made.notes),
        ]
        for row, line in enumerate(lines):
            notes.write_string(row, 0, line, text)
        data = book.add_worksheet("chart data")
        history = _history(made)
        _write_table(data, history, bold, whole, day)
        chart = book.add_chart({"type": "line"})
        rows = len(history)
        for column, (name, colour) in enumerate(
            [
                ("observed", "#333333"),
                ("forecast", "#1f5fa8"),
                ("lower_95", "#9dbfe3"),
                ("upper_95", "#9dbfe3"),
            ],
            start=1,
        ):
            chart.add_series(
                {
                    "name": name.replace("_", " "),
                    "categories": ["chart data", 1, 0, rows, 0],
                    "values": ["chart data", 1, column, rows, column],
                    "line": {"color": colour, "width": 1.5},
                }
            )
        chart.set_title({"name": "All regions, cases of seven days", "name_font": {"size": 11}})
        chart.set_legend({"position": "bottom"})
        chart.set_size({"width": 640, "height": 320})
        sheet.insert_chart(1, len(heads) + 1, chart)
        _write_table(book.add_worksheet("quantiles"), made.quantiles(), bold, None, day)


def _history(made: LocalForecast) -> pl.DataFrame:
    """Weekly sums of seven days over all regions, followed by the forecasts of them."""
    panel = made.panel.between(made.panel.start, made.origin)
    sums = observed(panel.counts, panel.step).sum(axis=0) * made.weekly
    week = WEEK // panel.step_days
    columns = range(len(sums) - 1, max(len(sums) - 1 - 26 * week, -1), -week)
    places = list(columns)[::-1]
    offset = panel.counts.shape[1] - len(sums)
    rows: list[tuple[date, float | None, float | None, float | None, float | None]] = [
        (panel.day(place + offset), float(sums[place]), None, None, None) for place in places
    ]
    last = rows[-1]
    rows[-1] = (last[0], last[1], last[1], last[1], last[1])
    low, high = LEVELS.index(0.025), LEVELS.index(0.975)
    for one in made.total:
        values = one.quantiles[0] * made.weekly
        point = float(one.point[0] * made.weekly)
        rows.append((one.target_date, None, point, float(values[low]), float(values[high])))
    names = ["seven days to", "observed", "forecast", "lower_95", "upper_95"]
    return pl.DataFrame(rows, schema=names, orient="row")


def _write_table(sheet: Any, table: pl.DataFrame, bold: Any, whole: Any, day: Any) -> None:
    """Write a table to a sheet with a frozen header, each value with its type."""
    sheet.freeze_panes(1, 0)
    for column, name in enumerate(table.columns):
        sheet.write_string(0, column, name, bold)
        sheet.set_column(column, column, 14 if table.schema[name] != pl.String else 18)
    for row, values in enumerate(table.iter_rows(), start=1):
        for column, value in enumerate(values):
            if value is None:
                sheet.write_blank(row, column, None)
            elif isinstance(value, date):
                sheet.write_datetime(row, column, value, day)
            elif isinstance(value, str):
                sheet.write_string(row, column, value)
            else:
                sheet.write_number(row, column, value, whole)


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.0%}"
