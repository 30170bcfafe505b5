"""What commands about data, forecasts and experiments print with `--json`."""

from datetime import date
from typing import Literal

from epifed.check import Anomaly, Gaps
from epifed.cli.outputs.base import ExpectedNoise, Output, Row, Values
from epifed.days import Step
from epifed.evaluate.manifest import BacktestRecord, GridRecord
from epifed.simulate import SimulationSettings


class Simulated(Output):
    """The country that was made."""

    epifed: str
    settings: SimulationSettings
    first_day: date
    last_day: date
    counties: int
    communities: int
    population: int
    cases: int
    onsets: int
    cases_per_day: float
    seconds: float
    realism: dict[str, list[Row]]
    """With `--realism`: its tables."""


class Completeness(Output):
    """How much of a day is known at an age."""

    lag: int
    weekday: int | None
    """Monday is 0; none: all."""
    known: float
    now: float
    share: float | None


class Mornings(Output):
    """The mornings of a list."""

    first_morning: date
    last_morning: date
    mornings: int
    missing_mornings: list[date]
    completeness: list[Completeness]
    notes: list[str]


class Checked(Output):
    """What is in case data."""

    source: str
    regions: int
    step: Step
    first_day: date
    last_day: date
    days: int
    """Or weeks, if that is the step."""
    cases: float
    population: int | None
    fractional: int
    gaps: Gaps
    zeros: float
    """The share of region-days without a case."""
    silent_regions: list[str]
    silent_weekends: list[str]
    weekdays: dict[str, float] | None
    anomaly_counts: dict[str, int]
    anomalies: list[Anomaly]
    days_needed: int
    enough_days: bool
    notes: list[str]
    attribution: list[str]
    warnings: list[str]
    vintages: Mornings | None = None
    """With `--vintages`."""
    read_as: Values
    """What was assumed when it was read."""
    expected_noise: list[ExpectedNoise]


class Fetched(Output):
    """Where the official file is, and what it is."""

    path: str
    url: str
    retrieved: str
    sha256: str
    bytes: int
    etag: str | None
    last_modified: str | None


class ZeroEntries(Output):
    """How many windows have so many days without a case."""

    zeros: int
    samples: int
    share: float
    population_q1: float | None
    """Of the regions behind them; none without a sample."""
    population_median: float | None
    population_q3: float | None


class Forecasted(Output):
    """Forecasts, and what they rest on."""

    release: str
    """What the release guarantees, in a sentence."""
    vouching: str
    timeliness: str
    forecast: list[Row]
    """Region, horizon, target day, quantile level and value."""
    levels: list[Row] | None
    """The same of larger regions, with `--level`."""
    parts: list[Row] | None
    """What each part adds to a region's change."""
    anomalies: list[Row]


class WeekEstimate(Output):
    """The cases of the last seven days of a region."""

    region: str
    known: float
    estimate: float
    lower_95: float
    upper_95: float


class GenerationTime(Output):
    """Days between an infection and those it causes."""

    mean: float
    sd: float


class Nowcasted(Output):
    """The last two weeks as they will be known."""

    as_of: date
    week: list[WeekEstimate]
    reported: list[Row]
    onset: list[Row] | None
    onset_known: float | None
    """The share of cases whose onset is known."""
    reproduction: list[Row]
    """R(t) of each region and day."""
    generation_time: GenerationTime


class Compared(Output):
    """One method at one budget, over "like today"; below 1 is better."""

    kind: Literal["weekly", "experiment"]
    method: str
    epsilon: float | None
    error: float | None
    interval_score: float | None
    coverage: float | None


class Experiment(Output):
    """The paper's experiment on the data."""

    settings: Values
    delta: float
    accountant: str
    unit: str
    neighbouring: str
    grid: GridRecord
    methods: list[Row]


class Weekly(Output):
    """The backtest beside it."""

    settings: Values | None
    budgets: list[BacktestRecord]


class Ran(Output):
    """What `run` compared."""

    compared: list[Compared]
    experiment: Experiment
    weekly: Weekly


class PaperRow(Output):
    """One number of the paper beside ours."""

    split: str
    table: str
    period: str
    epsilon: float
    metric: str
    published_mean: float | None
    published_std: float | None
    mean: float | None
    std: float | None
    persistence: float | None


class Drawn(Output):
    """The figures and tables that were written."""

    written: list[str]
    left_out: dict[str, str]
    """Those that were not, and why."""


class HubScores(Output):
    """Models beside each other on shared tasks."""

    baseline: str
    scores: list[Row]
    """A row for each model and part: MAE, WIS, their ratios to the baseline, coverage, skill."""
    left_out: dict[str, int]
    """Forecasts without all levels, and tasks without a truth."""
    unknown_locations: list[str]
    """Locations of which the truth knows nothing."""
