"""What each command prints with `--json`, as types from which the JSON Schemas are made.

A result that is a dataclass is its own type (`shape`). A test runs the commands and validates what
they print.
"""

from datetime import date
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model
from pydantic.dataclasses import dataclass
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from epifed.audit.audit import Audit
from epifed.audit.epsilon_bounds import Attack
from epifed.data.readers.download import Record
from epifed.data_check import CheckReport
from epifed.evaluation.results_folder import BacktestRecord, GridRecord
from epifed.explain import Explanation
from epifed.federation.flare.inspection import Finding
from epifed.federation.flare.kits import Made
from epifed.ledger.budget import Cap, RunRecord, Schedule, Week
from epifed.nowcasting.transmission import Generation
from epifed.privacy.accounting import Calibration
from epifed.rehearsal.local import Rehearsed
from epifed.report.tables import Compared
from epifed.simulate import SimulationSettings
from epifed.training.loop import NoisePreview

Values = dict[str, Any]
Row = dict[str, str | float | bool | None]
"""A row of a table."""


class Output(BaseModel):
    """Fields that are all there, and no others."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


def shape(result: type, *without: str, **more: Any) -> Any:
    """The model of a dataclass as it is printed: its fields, without some, and with more.

    >>> list(shape(Finding, "ok", row=int).model_fields)
    ['what', 'sentence', 'row']
    """
    frozen = vars(result)["__dataclass_params__"].frozen
    described = ConfigDict(use_attribute_docstrings=True, defer_build=True)
    own = dataclass(result, config=described, frozen=frozen).__pydantic_fields__
    kept: dict[str, Any] = {
        name: (more.get(name, field.annotation), Field(description=field.description))
        for name, field in own.items()
        if name not in without
    }
    added: dict[str, Any] = {
        name: (kind, Field()) for name, kind in more.items() if name not in own
    }
    return create_model(result.__name__, __base__=Output, __doc__=result.__doc__, **kept, **added)


CapRecord = shape(Cap, unit=str, neighbouring=str)
ExpectedNoise = shape(NoisePreview, believed=float, sentence=str)


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


Checked = shape(
    CheckReport,
    weekdays=dict[str, float] | None,
    warnings=list[str],
    vintages=Annotated[Mornings | None, Field(default=None, description="With `--vintages`.")],
    read_as=Annotated[Values, Field(description="What was assumed when it was read.")],
    expected_noise=list[ExpectedNoise],  # type: ignore[valid-type]
)


class ZeroEntries(Output):
    """How many windows have so many days without a case."""

    zeros: int
    samples: int
    share: float
    population_q1: float | None
    """Of the regions behind them; none without a sample."""
    population_median: float | None
    population_q3: float | None


class FileForecasted(Output):
    """The forecast of a file alone, in cases of seven days."""

    origin: date
    """The last day that is taken as complete."""
    method: str
    """`trend`, or `persistence` where that was better on the file's own past."""
    reason: str
    incomplete_days: int
    notes: list[str]
    track_record: list[Row]
    """Of the learner: weeks ahead, origins, relative MAE, coverage of intervals."""
    forecast: list[Row]
    """Region, weeks ahead, persistence, forecast and intervals; the sum is the region `total`."""


class Forecasted(Output):
    """Forecasts from a release, and what they rest on."""

    release: str
    """What the release guarantees, in a sentence."""
    verification: str
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
    generation_time: Generation


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
    outside: bool | None
    """Whether it differs from the paper by more than either standard deviation."""
    persistence: float | None


class CommunityRow(Output):
    """One score of one method on communities; the paper publishes none."""

    smoothing: str
    split: str
    period: str
    method: str
    epsilon: float | None
    """None for a baseline."""
    metric: str
    mean: float | None
    std: float | None


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


class Trained(Output):
    """The release file that was written."""

    model: str
    sha256: str
    epsilon: float
    """Of everything inside the file."""
    epsilon_without_amplification: float
    """Against whoever sees who is drawn."""
    releases_inside: int
    delta: float
    accountant: str
    randomness: Literal["seeded", "secure"]
    ledger_run: str | None
    expected_noise: ExpectedNoise | None  # type: ignore[valid-type]


class LedgerShown(Output):
    """All runs, what is spent and what is left."""

    ledger: str
    created: str
    cap: CapRecord  # type: ignore[valid-type]
    spent_epsilon: float
    taken_epsilon: float
    """With what open runs still hold."""
    left_epsilon: float
    total_epsilon: float
    """Since the beginning; more than the cap, if that renews."""
    runs: list[RunRecord]
    rows: int
    head: str
    """The hash of the last row."""


class LedgerPlan(Output):
    """How many trainings fit under a cap."""

    releases: int
    noise_multiplier: float
    epsilon_each: float
    cap: CapRecord  # type: ignore[valid-type]
    taken_epsilon: float
    sampling_rate: float
    rounds: int
    curve: list[Schedule]
    fixed_noise: Schedule | None
    """With `--noise-multiplier` or `--epsilon-each`."""


class YearPlan(Output):
    """With `--year`: what each week may spend."""

    cap: CapRecord  # type: ignore[valid-type]
    rule: str
    taken_epsilon: float
    weeks: list[Week]


class LedgerVerified(Output):
    """A ledger whose rows all fit."""

    verified: Literal[True]
    rows: int
    head: str


class ManyRuns(Output):
    """What many trainings showed."""

    lower_bound: float
    direct: float
    gaussian_approximation: float
    mu: float
    false_positive_rate_at_most: float
    false_negative_rate_at_most: float
    threshold: float


class RoundProblem(Output):
    """Who did not count in a round."""

    site: str
    reason: str


class RoundLine(Output):
    """A round of a training."""

    round: int
    epsilon: float
    """Spent so far."""
    problems: list[RoundProblem]
    time: float
    """Seconds since 1970."""
    sites: list[str]


class PartyReady(Output):
    """Whether a party would take part, and how it counts the ε."""

    party: str
    role: Literal["server", "aggregator", "site"]
    version: str
    code: str | None
    """Why it would not; none: it would."""
    epsilon: float | None
    limit: float | None
    delta: float | None
    accountant: str | None


class TrainingStatus(Output):
    """How far a training of a federation is."""

    training: str
    finished: bool
    round: int
    rounds: int
    paid: int
    epsilon: float
    epsilon_without_amplification: float
    delta: float
    accountant: str
    sites: list[str]
    """Of this job, that have not gone silent."""
    enrolled_sites: int
    ledger_run: str | None
    noise: str
    versions: dict[str, str]
    """The epifed of each party."""
    lines: list[RoundLine] = Field(default_factory=list)
    """The last rounds; none before the first of a job."""
    stopped: bool = False
    """Whether it ends after this round, as the coordinator wished."""
    sha256: str | None = None
    """Of the release file, once it is finished; with it who has it."""
    delivered: list[str] = Field(default_factory=list)
    missing: list[str] = Field(default_factory=list)
    undelivered: dict[str, str] = Field(default_factory=dict)
    """Why it is missing, in a word."""
    unused: int = 0
    """Charged rounds that could not be used."""
    readiness: list[PartyReady] = Field(default_factory=list)
    """The parties' answers before the first round of this job."""


class Starting(Output):
    """A training whose job has not begun a round."""

    training: str
    finished: Literal[False]
    versions: dict[str, str] = Field(default_factory=dict)
    readiness: list[PartyReady] = Field(default_factory=list)


class Unknown(Output):
    """A job that has not reported anything yet."""

    job: str


class FederationStatus(Output):
    """Who is connected, and what runs."""

    connected: list[str]
    running: list[TrainingStatus | Starting | Unknown]
    ledger: LedgerShown | None = None
    """With `--ledger`."""


class SentLine(Output):
    """The line that goes with a site's numbers."""

    training: str
    round: int
    dtype: str
    shape: list[int]


class SitePreview(Output):
    """What a site would send this week, if all of its clients were drawn."""

    first_day: date
    last_day: date
    entries: list[str]
    """What each number of a vector is."""
    vectors: dict[str, list[float]]
    """By client; zeros of one that is left out."""
    norms: dict[str, float]
    bound: float
    """S, which no norm exceeds."""
    drawn_with_probability: float
    rounds: int
    left_out: dict[str, str]
    """Clients that count as zero, and why."""
    about: SentLine
    bytes: int
    sealed: bool
    """Whether it is one sealed report of their sum."""
    fits: bool
    """Whether the site's own total has room for the training."""


class SiteReport(Output):
    """How things stand at a site."""

    time: str
    problems: list[str]
    """In sentences; empty if nothing is wrong."""
    notes: list[str]
    clients: int
    first_day: date | None
    last_day: date | None
    mornings_kept: int
    asked: str | None
    """The last training that asked."""
    sent: bool | None
    """Whether it got an answer with numbers."""
    training: str | None
    """The training of the newest release."""
    release: str | None
    """What it guarantees, in a sentence."""
    week: str | None
    made: bool
    """Whether the week's forecast is there."""


class WeekScores(Output):
    """How good forecasts of a rehearsed year were, held to the final counts."""

    mae_ratio: float | None
    """Of the error of "like today"; none where that made none."""
    coverage_50: float
    coverage_95: float
    forecasts: int
    metrics: dict[str, float | None]
    """Every registered metric of the point forecasts."""


class RehearsedWeek(Output):
    """What became of a week of a rehearsed year."""

    week: int
    day: date
    events: list[str]
    outcome: str | None
    reason: str | None
    sites: int
    """Whose answer counted."""
    without: dict[str, str]
    """The sites that did not count, and why."""
    holders: int
    """Parties that hold the release."""
    spent: float
    """ε so far, by the ledger."""
    planned: float
    scores: WeekScores | None
    seconds: float | None
    processor_seconds: float | None
    processor_seconds_offices: float | None


class RehearsedYear(Output):
    """What came of a rehearsed year, with --weeks."""

    right: bool
    """Whether every release is accounted for and the ledger is the plan."""
    faults: list[str]
    sites: int
    aggregators: int
    clients: int
    learner: str
    epsilon_each: float
    epsilon_spent: float
    epsilon_planned: float
    delta: float
    accountant: str
    weeks_done: int
    weeks_skipped: int
    releases: int
    weeks_scored: int
    scores: dict[str, WeekScores | None]
    seconds: float
    processor_seconds: float
    processor_seconds_offices: float
    weeks: list[RehearsedWeek]


OUTPUTS: dict[str, Any] = {
    "run": Ran,
    "reproduce": list[PaperRow] | list[CommunityRow],
    "figures": Drawn,
    "backtest": BacktestRecord,
    "train": Trained,
    "forecast": Forecasted | FileForecasted,
    "hub score": HubScores,
    "nowcast": Nowcasted,
    "simulate": Simulated,
    "explain": shape(
        Explanation,
        budgets=list[Values],
        trainings=int,
        private_trainings=int,
        looks_ahead=bool,
        tuned_on_private_data=str,
        sentences=list[str],
    ),
    "audit": shape(
        Audit,
        "settings",
        clients_per_round=int,
        rounds=int,
        clip_norm=float,
        accountant=str,
        unit=str,
        neighbouring=str,
        lower_bound=float | None,
        many_runs=ManyRuns | None,
    )
    | list[shape(Attack, advantage=float)],  # type: ignore[misc]
    "calibrate": shape(Calibration, "order", "trust"),
    "data check": Checked,
    "data fetch rki": shape(Record, path=str),
    "data communities": dict[str, list[ZeroEntries]],
    "ledger show": LedgerShown,
    "ledger plan": LedgerPlan | YearPlan,
    "ledger verify": LedgerVerified,
    "federation init": Made,
    "federation check": list[Finding],
    "federation report": SiteReport,
    "federation site": SitePreview,
    "federation train": TrainingStatus,
    "federation status": FederationStatus,
    "federation rehearse": shape(Rehearsed, losses=Values) | RehearsedYear,
}
"""Each command with `--json`, and what it prints."""


class _Schema(GenerateJsonSchema):
    """JSON has no infinity: epifed prints the text "inf". A dataclass prints all of its fields."""

    def dataclass_schema(self, schema: Any) -> JsonSchemaValue:
        made = super().dataclass_schema(schema)
        return made | {"additionalProperties": False, "required": list(made["properties"])}

    def float_schema(self, schema: Any) -> JsonSchemaValue:
        return {"anyOf": [super().float_schema(schema), {"enum": ["inf", "-inf"]}]}


def schema(command: str) -> dict[str, Any]:
    """The JSON Schema of what a command prints.

    >>> sorted(schema("ledger verify")["properties"])
    ['head', 'rows', 'verified']
    >>> schema("ledger verify")["title"]
    'epifed ledger verify --json'
    """
    made = TypeAdapter(OUTPUTS[command]).json_schema(schema_generator=_Schema)
    head = {"$schema": GenerateJsonSchema.schema_dialect, "title": f"epifed {command} --json"}
    return head | made | head
