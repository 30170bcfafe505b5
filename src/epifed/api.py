"""The Python façade: train, forecast and backtest in one call each, on panels and clients.

Everything here is also a command; what runs is the same code.
"""

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from epifed.data.calendar import WEEK, Day, to_day
from epifed.data.panel import CasePanel, Table, levels_of
from epifed.data.readers import load_panel
from epifed.data.vintages import Vintages
from epifed.data.weekly_vintages import WeeklyVintages
from epifed.errors import EpifedError
from epifed.evaluation.backtest import Backtest, mornings_between, origins_between, run_backtest
from epifed.forecasting import SiteForecast, Targets, Totals, forecast_releases
from epifed.hubs.tables import truth_of
from epifed.learners.base import make_learner, settings_for
from epifed.ledger.ledger import Ledger
from epifed.settings import USUAL, Settings
from epifed.training.loop import Clients, Training, train_releasable
from epifed.training.loop import train as train_view
from epifed.training.public_inputs import PublicRegions, ReleasableData
from epifed.training.release import Release

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Cases = CasePanel | Table
"""A panel, or a DataFrame of pandas or polars with a row for each region and day."""


@dataclass(frozen=True)
class Forecasts:
    """What `forecast` returns: quantiles of each region and horizon, as the table that suits.

    Values are 7-day averages of daily cases; of weekly panels, the cases of a week.
    """

    outlook: SiteForecast

    def wide(self) -> pl.DataFrame:
        """A row for each region and horizon: persistence, point, 50 and 95 % interval.

        The columns: origin_date, region, name, horizon (in days), target_date, like_today,
        forecast, lower_95, lower_50, upper_50, upper_95.
        """
        return self.outlook.table()

    def to_polars(self) -> pl.DataFrame:
        """A row for each region, horizon and quantile level; of larger regions if asked for."""
        larger = self.outlook.larger_to_long()
        return self.outlook.to_long() if larger is None else larger

    def to_pandas(self) -> Any:
        """The same as a DataFrame of pandas, which must be installed."""
        return self.to_polars().to_pandas()

    def plot(self, region: str | None = None) -> "Figure":
        """A figure of one region, by its id or name: past weeks, forecast, intervals.

        Without a region it is the one with most cases in the last week.
        """
        from epifed.report.figures import forecast_figure  # noqa: PLC0415

        panel = self.outlook.panel
        if region is None:
            region = panel.regions[int(panel.counts[:, -WEEK:].sum(axis=1).argmax())]
        elif region not in panel.regions:
            named = [one for one, name in zip(panel.regions, panel.names, strict=True)
                     if name == region]  # fmt: skip
            if len(named) != 1:
                raise EpifedError(
                    f"region: found '{region}'; expected one of {', '.join(panel.regions[:6])}"
                )
            region = named[0]
        return forecast_figure(panel, region, self.outlook.forecasts)

    def __repr__(self) -> str:
        """The table as people read it."""
        return f"Forecasts of {self.outlook.panel.end}\n{self.wide()}"


def train(
    data: Cases | Clients,
    settings: Settings | None = None,
    *,
    period: tuple[Day, Day] | None = None,
    regions: Path | str | Table | Sequence[str] | None = None,
    ledger: Ledger | None = None,
    **changes: Any,
) -> Training:
    """Train one forecaster on a panel or DataFrame, or on the clients of an experiment.

    Settings are given, or by name: `train(panel, learner="trend", epsilon=0.1)`. Of a panel, all
    days of the period are learned from; an experiment's clients keep some back to be tested on.
    With a ledger the training is charged to it and its noise is secure; without one it is seeded,
    for research, never for release. A training with a ledger needs its `period` and a public list
    of `regions` (a file, a DataFrame with a column `region`, or ids), unless the panel was made
    with one: what all clients share must not come from their rows. Counts of weeks need
    `step="week"`.
    """
    if isinstance(data, Clients):
        return train_view(data.view, _settings(settings, data, changes), ledger=ledger)
    data = _panel(data)
    if ledger is not None:
        first, last = period or (None, None)
        step = changes.get("step", settings.step if settings else None)
        releasable = ReleasableData.of(data, first, last, regions, step)
        chosen = _settings(settings, releasable.panel, changes)
        return train_releasable(releasable, chosen, ledger)
    if regions is not None:
        data = PublicRegions.of(regions).lay_out(data)
    days = data.start, data.end
    if period is not None:
        days = data.period(to_day(period[0], "period"), to_day(period[1], "period"))
    chosen = _settings(settings, data, changes)
    view = make_learner(chosen).deployed_view(data, days)
    return train_view(view, chosen, ledger=ledger, period=days)


def forecast(
    trained: Release | Training,
    panel: Cases,
    horizon: int | tuple[int, ...] | None = None,
    *,
    learned_until: Day | None = None,
    level: str | Sequence[str] = (),
    week_ends: str | None = None,
    reference_day: str | None = None,
    ahead: int | Sequence[int] = (),
    published: Table | None = None,
    published_lead: int = 0,
) -> Forecasts:
    """Forecast the 7-day average of daily cases of each region, with quantiles.

    From the panel's last day, a week ahead if nothing is said; of weekly panels, of the cases of a
    week, and horizons are weeks. A release says itself until when it learned; of a training it is
    the panel's last day unless `learned_until` says otherwise. `.wide()`, `.to_polars()` and
    `.to_pandas()` of the result are tables, `.plot()` is a figure.

    With `level` (county, state, nation, or one region; one or several) or weeks as a hub counts
    them (`week_ends="saturday"`, `reference_day`, `ahead`) `.to_polars()` is of those, and `level`
    says which; the level of a quantile is then in `quantile`. `published` are counts of larger
    regions (date, location, value) that are public, and known `published_lead` days further.
    """
    panel = _panel(panel)
    if horizon is None:
        horizon = WEEK // panel.step_days
    horizons = (horizon,) if isinstance(horizon, int) else horizon
    targets = _targets(
        panel, horizons, level, week_ends, reference_day, ahead, published, published_lead
    )
    if isinstance(trained, Release):
        return Forecasts(forecast_releases([trained], panel, horizons, targets))
    last = to_day(learned_until, "learned_until") if learned_until else panel.end
    if last > panel.end:
        raise EpifedError(
            f"learned_until: found {last}; expected at most {panel.end}, the panel's last day"
        )
    state = trained.learner.advance(trained.state, (panel.end - last).days)
    return Forecasts(SiteForecast.of(panel, trained.learner, state, horizons, targets))


def backtest(
    panel: Cases,
    first: Day,
    last: Day,
    settings: Settings | None = None,
    *,
    every: int = 7,
    vintages: Vintages | WeeklyVintages | None = None,
    out: Path | str | None = None,
    workers: int | None = 1,
    level: str | Sequence[str] = (),
    week_ends: str | None = None,
    reference_day: str | None = None,
    ahead: int | Sequence[int] = (),
    published: Table | None = None,
    published_lead: int = 0,
    **changes: Any,
) -> Backtest:
    """Forecast from rolling origins with what was known then, and score when the day has come.

    With `vintages` each forecast is made with what was known on its morning, `first` and `last` are
    mornings, and the panel is the final state, which only scores see. `out` keeps what was
    computed, so that it can go on where it was; the table of all forecasts is `.table`, the scores
    are `.summary()`. Larger regions and a hub's weeks are asked for as in `forecast`: their
    quantiles are `.levels.to_long()`, their scores `.levels.table`, and those of each level and
    week `.levels.summary()`.
    """
    panel = _panel(panel)
    if settings is None:
        real_time = {"learner": "real-time"} if isinstance(vintages, Vintages) else {}
        changes = real_time | changes
    chosen = _settings(settings, panel, changes)
    begin, end = to_day(first, "first"), to_day(last, "last")
    if vintages is None:
        panel = panel.between(panel.start, min(end, panel.end))
        origins = origins_between(begin, end, every, panel, chosen.horizon)
    else:
        origins = mornings_between(begin, end, every, panel, vintages, chosen.horizon)
    steps = (chosen.horizon,)
    targets = _targets(
        panel, steps, level, week_ends, reference_day, ahead, published, published_lead
    )
    with ExitStack() as closing:
        folder = Path(out) if out else Path(closing.enter_context(tempfile.TemporaryDirectory()))
        return run_backtest(
            panel, chosen, origins, folder, vintages=vintages, targets=targets, workers=workers
        )


def _panel(data: Cases) -> CasePanel:
    """The panel itself, or that of a DataFrame, read as `load_panel` reads it."""
    return data if isinstance(data, CasePanel) else load_panel(data)


def _targets(
    panel: CasePanel,
    steps: Sequence[int],
    level: str | Sequence[str],
    week_ends: str | None,
    reference_day: str | None,
    ahead: int | Sequence[int],
    published: Table | None,
    published_lead: int,
) -> Targets | None:
    """The levels and weeks that were asked for, one or several."""
    totals = None
    if published is not None:
        names = {name: name for one in levels_of(panel).values() for name in one.regions}
        totals = Totals.of(panel, truth_of(published), names, published_lead)
    return Targets.of(
        panel,
        steps,
        [level] if isinstance(level, str) else level,
        week_ends=week_ends,
        reference_day=reference_day,
        ahead=[ahead] if isinstance(ahead, int) else ahead,
        totals=totals,
    )


def _settings(
    settings: Settings | None, data: CasePanel | Clients, changes: Mapping[str, Any]
) -> Settings:
    """Settings with changes, or what suits the learner that was named."""
    if settings is not None:
        return settings.but(**changes)
    if isinstance(data, Clients):
        return Settings.resolve(len(data), changes)
    return settings_for(data, {} if "model" in changes else USUAL, changes)
