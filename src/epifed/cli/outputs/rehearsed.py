"""What a rehearsal prints with `--json`: of one training, or of a year."""

from datetime import date

from epifed.cli.outputs.base import Output, Values


class Rehearsal(Output):
    """What came of a rehearsal."""

    sites: int
    clients: int
    rounds: int
    epsilon: float
    epsilon_if_drawn_seen: float
    delta: float
    accountant: str
    randomness: str
    sites_with_model: int
    sha256: str
    largest_difference: float
    """To a training in one process, with the same seeds."""
    loss: float
    seconds_start: float
    seconds_training: float
    seconds_per_round: float | None
    aggregator_memory: float | None
    losses: Values
    """Of each round."""


class WeekScores(Output):
    """How good forecasts of a rehearsed year were, held to the final counts."""

    mae_ratio: float | None
    """Of the error of "like today"; none where that made none."""
    coverage_50: float
    coverage_95: float
    forecasts: int


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
