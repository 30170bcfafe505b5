"""What commands about privacy and federations print with `--json`."""

from datetime import date
from typing import Literal

from pydantic import Field

from epifed.audit.findings import Check
from epifed.audit.one_run import OneRun
from epifed.cli.outputs.base import ExpectedNoise, Output, Values
from epifed.ledger.book import RunRecord
from epifed.ledger.budget import Schedule


class Calibrated(Output):
    """The noise of a budget, or the price of noise."""

    noise_multiplier: float
    """c."""
    epsilon: float
    """ε that was asked for."""
    epsilon_spent: float
    """ε of this noise."""
    delta: float
    """δ."""
    sampling_rate: float
    """q = m / N."""
    rounds: int
    """T_cl."""
    accountant: str
    neighbouring: str
    unit: str


class Trained(Output):
    """The release file that was written."""

    model: str
    sha256: str
    epsilon: float
    """Of everything inside the file."""
    epsilon_if_drawn_seen: float
    """Against whoever sees who is drawn."""
    releases_inside: int
    delta: float
    accountant: str
    randomness: Literal["seeded", "secure"]
    ledger_run: str | None
    expected_noise: ExpectedNoise | None


class Explained(Output):
    """What a result guarantees."""

    result: str
    clients: int
    clip_norm: float
    delta: float
    accountant: str
    noise: str
    trust: str
    unit: str
    neighbouring: str
    secure: bool
    ledger_run: str | None
    smoothing: str
    budgets: list[Values]
    composed_epsilon: float
    beside: str | None
    vouched: str | None
    expected_noise: str | None
    trainings: int
    private_trainings: int
    looks_ahead: bool
    tuned_on_private_data: str
    sentences: list[str]


class CapRecord(Output):
    """The most that all trainings of a ledger may cost."""

    epsilon: float
    delta: float
    accountant: str
    neighbouring: str
    unit: str


class LedgerShown(Output):
    """All runs, what is spent and what is left."""

    ledger: str
    created: str
    cap: CapRecord
    spent_epsilon: float
    taken_epsilon: float
    """With what open runs still hold."""
    left_epsilon: float
    runs: list[RunRecord]
    rows: int
    head: str
    """The hash of the last row."""


class LedgerPlan(Output):
    """How many trainings fit under a cap."""

    releases: int
    noise_multiplier: float
    epsilon_each: float
    cap: CapRecord
    taken_epsilon: float
    sampling_rate: float
    rounds: int
    curve: list[Schedule]
    fixed_noise: Schedule | None
    """With `--noise-multiplier` or `--epsilon-each`."""


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


class Audited(Output):
    """A lower bound on ε from outside, and the rules."""

    claimed_epsilon: float
    lower_bound: float | None
    confidence: float
    passed: bool
    delta: float
    runs: int
    method: str
    mechanism: str
    clients: int
    clients_per_round: int
    rounds: int
    clip_norm: float
    accountant: str
    noise_multiplier: float
    unit: str
    neighbouring: str
    many_runs: ManyRuns | None
    one_run: OneRun | None
    checks: list[Check]


class Attacked(Output):
    """A membership attack at one budget (`audit --membership`)."""

    epsilon: float
    delta: float
    trainings: int
    right: float
    right_low: float
    right_high: float
    auc: float
    auc_low: float
    auc_high: float
    allowed: float
    allowed_by_noise: float
    advantage: float


class Kits(Output):
    """The startup kits that were made."""

    kits: list[str]
    requests: list[str]
    fingerprint: str
    roster: str | None


class Finding(Output):
    """One thing that was looked at."""

    what: str
    ok: bool
    sentence: str


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


class TrainingStatus(Output):
    """How far a training of a federation is."""

    training: str
    finished: bool
    round: int
    rounds: int
    paid: int
    epsilon: float
    epsilon_if_drawn_seen: float
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


class Starting(Output):
    """A training whose job has not begun a round."""

    training: str
    finished: Literal[False]
    versions: dict[str, str] = Field(default_factory=dict)


class Unknown(Output):
    """A job that has not said anything yet."""

    job: str


class FederationStatus(Output):
    """Who is connected, and what runs."""

    connected: list[str]
    running: list[TrainingStatus | Starting | Unknown]


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
