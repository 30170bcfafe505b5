"""The Python API: train, forecast and backtest in one call each, on panels and clients.

Every function here is also a command, and both run the same code.
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
from epifed.evaluation.backtest import Backtest, origins_between, run_backtest, vintage_origins
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
    """The result of `forecast`: quantiles of each region and horizon, as different tables.

    Values are 7-day averages of daily cases, or for weekly panels the cases of a week.
    """

    outlook: SiteForecast

    def wide(self) -> pl.DataFrame:
        """A row for each region and horizon: persistence, point, 50 and 95 % interval.

        The columns: origin_date, region, name, horizon (in days), target_date, like_today,
        forecast, lower_95, lower_50, upper_50, upper_95.
        """
        return self.outlook.table()

    def to_polars(self) -> pl.DataFrame:
        """A row for each region, horizon and quantile level; of larger regions if requested."""
        larger = self.outlook.larger_to_long()
        return self.outlook.to_long() if larger is None else larger

    def to_pandas(self) -> Any:
        """The table of `to_polars` as a pandas DataFrame; pandas must be installed."""
        return self.to_polars().to_pandas()

    def plot(self, region: str | None = None) -> "Figure":
        """Draw one region, by its id or name: past weeks, forecast, intervals.

        By default it is the region with most cases in the last week.
        """
        from epifed.report.figures import forecast_figure  # noqa: PLC0415

        panel = self.outlook.panel
        if region is None:
            region = panel.regions[int(panel.counts[:, -WEEK:].sum(axis=1).argmax())]
        elif region not in panel.regions:
            named = [id_ for id_, name in zip(panel.regions, panel.names, strict=True)
                     if name == region]  # fmt: skip
            if len(named) != 1:
                raise EpifedError(
                    f"region: found '{region}'; expected one of {', '.join(panel.regions[:6])}"
                )
            region = named[0]
        return forecast_figure(panel, region, self.outlook.forecasts)

    def __repr__(self) -> str:
        """The wide table as text."""
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
    """Train one forecaster on a panel, a DataFrame, or the clients of an experiment.

    With a ledger the training is charged to it and its noise is secure. Without one the noise is
    seeded: for research, never for release. What all clients share must not come from their
    rows. So a training with a ledger needs its `period` and a public list of `regions`, unless the
    panel was made with one.

    Parameters
    ----------
    data : CasePanel, DataFrame or Clients
        New cases of each region [regions, steps]. Of a panel, all days of the period are
        learned from. `Clients` keep some days back to be tested on.
    settings : Settings, optional
        All settings. Without them, those that suit the learner.
    period : (day, day), optional
        First and last day to learn from; by default all days of the panel.
    regions : path, DataFrame with a column `region`, or ids, optional
        The public list of the clients.
    ledger : Ledger, optional
        The ledger that the training is charged to.
    **changes
        Settings by name, such as `learner="trend", epsilon=1`. Counts of weeks need `step="week"`.

    Returns
    -------
    Training
        The learned state, its privacy cost and, with a period, its release.

    Raises
    ------
    EpifedError
        If the settings do not suit the data, or the ledger has no room for the training.

    Examples
    --------
    >>> from epifed.simulate import SimulationSettings, simulate
    >>> panel = simulate(SimulationSettings(counties=12, communities=24, seed=1)).county_panel
    >>> train(panel, learner="trend", epsilon=1.0).settings.epsilon
    1.0
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
    panel: Cases | None = None,
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

    For weekly panels it is the cases of a week, and horizons are weeks. With `level`, or weeks
    as a hub counts them, `.to_polars()` has these: `level` then names the level, `quantile` the
    quantile.

    Parameters
    ----------
    trained : Release or Training
        The trained model. A release contains the last day of its data.
    panel : CasePanel or DataFrame
        New cases [regions, steps]; the forecast begins after its last day.
    horizon : int or tuple of int, optional
        Steps ahead; by default one week.
    learned_until : day, optional
        The last day of a training's data; by default the panel's last day.
    level : str or several
        Larger regions: county, state, nation, or one of them by id.
    week_ends, reference_day : str, optional
        Weekdays by which a hub counts, such as `saturday`.
    ahead : int or several
        Weeks ahead, as the hub counts them.
    published : DataFrame, optional
        Public counts of larger regions: date, location, value.
    published_lead : int
        Days by which they are known further than the panel.

    Returns
    -------
    Forecasts
        `.wide()`, `.to_polars()` and `.to_pandas()` are tables, `.plot()` is a figure.

    Raises
    ------
    EpifedError
        If the panel does not suit the training, or a target cannot be reached.

    Examples
    --------
    >>> from epifed.simulate import SimulationSettings, simulate
    >>> panel = simulate(SimulationSettings(counties=12, communities=24, seed=1)).county_panel
    >>> made = forecast(train(panel, learner="trend", epsilon=1.0), panel, (7, 14))
    >>> made.wide().shape[0] == 2 * len(panel.regions)
    True
    """
    if panel is None:
        raise EpifedError(
            "forecast: found one argument; expected a trained model and the cases. From cases "
            "alone: epifed.local_forecast.forecast_alone(cases)"
        )
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
    """Forecast from rolling origins with the data known then, and score with later data.

    Parameters
    ----------
    panel : CasePanel or DataFrame
        New cases [regions, steps]. With `vintages` it is the final state, used only for scores.
    first, last : day
        The first and last origin; with `vintages`, the days of the first and last vintage.
    settings : Settings, optional
        All settings. Without them, those that suit the learner.
    every : int
        Days between two origins.
    vintages : Vintages or WeeklyVintages, optional
        The data vintages, as known on each day.
    out : path, optional
        A folder for the results. The same call resumes after an interruption.
    workers : int, optional
        Worker processes; None: all cores.
    level, week_ends, reference_day, ahead, published, published_lead
        Larger regions and a hub's weeks, as in `forecast`.
    **changes
        Settings by name, such as `learner="trend", epsilon=1`.

    Returns
    -------
    Backtest
        `.table` has all forecasts, `.summary()` the scores. Of larger regions, `.levels.to_long()`
        has the quantiles, `.levels.table` the scores, `.levels.summary()` those of each level and
        week.

    Raises
    ------
    EpifedError
        If no origin has enough days before it and a horizon after it.

    Examples
    --------
    >>> from datetime import timedelta
    >>> from epifed.simulate import SimulationSettings, simulate
    >>> panel = simulate(SimulationSettings(counties=12, communities=24, seed=1)).county_panel
    >>> first = panel.end - timedelta(days=14)
    >>> backtest(panel, first, panel.end, learner="trend", epsilon=1.0).summary()["origins"]
    2
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
        origins = vintage_origins(begin, end, every, panel, vintages, chosen.horizon)
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
    """The requested levels and weeks, as targets; None if there are none."""
    totals = None
    if published is not None:
        names = {name: name for larger in levels_of(panel).values() for name in larger.regions}
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
    """The settings with changes, or those that suit the data and the named learner."""
    if settings is not None:
        return settings.but(**changes)
    if isinstance(data, Clients):
        return Settings.resolve(len(data), changes)
    return settings_for(data, {} if "model" in changes else USUAL, changes)
