"""Plain sentences on the privacy guarantee and the accuracy of one result."""

import math
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl

from epifed.errors import EpifedError, counted
from epifed.evaluation.results_folder import ALL, TRAINED, Results, ResultsFolder, read_folder
from epifed.learners.base import make_learner
from epifed.privacy.accounting import (
    NEIGHBOURING,
    UNIT,
    advantage_of_noise,
    most_advantage,
    right_at_most,
    rounded_up,
)
from epifed.privacy.plan import TRUST, PrivacyPlan, Spent, price_together
from epifed.settings import NoiseName, Settings
from epifed.training.loop import expect
from epifed.training.release import read_release

EXPECTED = (
    "expected a directory by 'epifed run', 'epifed reproduce' or 'epifed backtest', or a release "
    "by 'epifed train'"
)


@dataclass(frozen=True)
class Budget:
    """The trainings with one ε: their guarantee and their accuracy."""

    epsilon: float
    trainings: int
    spent: Spent
    """The rounds that one of them released."""
    epsilon_spent: float
    epsilon_without_amplification: float
    """The same against anyone who sees who is drawn."""
    right_at_most: float
    """The largest share of right guesses that (ε, δ) allows an attacker."""
    right_at_most_with_this_noise: float
    error_over_persistence: float | None
    """Mean absolute error relative to persistence, if it was measured."""


@dataclass(frozen=True)
class Explanation:
    """The guarantee of a result, for whom, and under which conditions."""

    result: str
    clients: int
    clip_norm: float
    delta: float
    accountant: str
    noise: NoiseName
    """Who added the noise."""
    trust: str
    """Whom a client must trust."""
    unit: str
    neighbouring: str
    secure: bool
    ledger_run: str | None
    smoothing: str
    budgets: tuple[Budget, ...]
    composed_epsilon: float
    beside: str | None
    """A note on other trainings in the same folder that are not explained here, if any."""
    vouched: str | None
    """For a release: whether it was verified against a ledger."""
    expected_noise: str | None
    """The noise compared with the learner's typical signal, if the learner names one."""

    @property
    def private_trainings(self) -> int:
        """The number of trainings with noise."""
        return sum(b.trainings for b in self.budgets if math.isfinite(b.epsilon))

    @property
    def trainings(self) -> int:
        """The number of all trainings."""
        return sum(b.trainings for b in self.budgets)

    def to_dict(self) -> dict[str, object]:
        """The fields, counts and sentences, for JSON."""
        values = asdict(self)
        values["budgets"] = [asdict(budget) for budget in self.budgets]
        return values | {
            "trainings": self.trainings,
            "private_trainings": self.private_trainings,
            "looks_ahead": self.smoothing == "centered",
            "tuned_on_private_data": "not recorded",
            "sentences": self.sentences(),
        }

    def sentences(self) -> list[str]:
        """The guarantee and its conditions, one sentence each."""
        return [
            f"{self.result} holds {counted(self.trainings, 'training')} with {self.clients} "
            f"clients; {counted(self.private_trainings, 'training')} with differential privacy.",
            *(line for budget in self.budgets for line in self._of_budget(budget)),
            f"The unit is {self.unit} with all its days, the neighbouring relation is "
            f"'{self.neighbouring}', the accountant is {self.accountant.upper()}; {self.trust}.",
            *([self.expected_noise] if self.expected_noise else []),
            self._composition(),
            self._noise_source(),
            *([self.vouched] if self.vouched else []),
            self._smoothing(),
            "No ε here covers scores and comparisons: they are computed on the clients' data "
            "without noise, and handing them out is a further release. Nor does it cover settings "
            "that were tuned on the same data; whether that was done is not recorded.",
            *([self.beside] if self.beside else []),
        ]

    def _of_budget(self, budget: Budget) -> list[str]:
        accuracy = _accuracy(budget.error_over_persistence)
        if math.isinf(budget.epsilon):
            return [
                f"ε = ∞ ({counted(budget.trainings, 'training')}): no privacy. Anyone who sees the "
                f"model may be able to tell with certainty which clients took part.{accuracy}"
            ]
        by_epsilon = _percent(budget.right_at_most)
        by_noise = _percent(budget.right_at_most_with_this_noise)
        spent, seen = budget.spent, ""
        each = " from each aggregator" if self.noise == "aggregators" else ""
        if spent.sampling_rate < 1 and self.noise == "aggregators":
            seen = (
                " Each site draws its own clients and shows the draw to no one. So this ε also "
                "holds against the server and the other aggregators."
            )
        elif spent.sampling_rate < 1:
            seen = (
                " This ε holds against everyone who cannot see which clients were drawn. Against "
                "the server and others who can, it is ε = "
                f"{rounded_up(budget.epsilon_without_amplification)}."
            )
        several = ", each by itself" if budget.trainings > 1 else ""
        return [
            f"ε = {rounded_up(budget.epsilon_spent)} at δ = {self.delta:g} "
            f"({counted(budget.trainings, 'training')}{several}): in "
            f"{_rounds(spent.rounds)} a client is drawn with probability "
            f"{spent.sampling_rate:.3g}, and the sum gets noise of "
            f"{spent.noise_multiplier:.4g} times the largest update{each}.{seen} Someone who "
            f"guesses whether your county took part is right at most {by_epsilon} of the time by "
            f"this ε, and at most {by_noise} with this amount of noise; a coin toss is right 50 %."
            f"{accuracy}"
        ]

    def _composition(self) -> str:
        if self.private_trainings < 2:
            return (
                "Every further training on the same clients spends more ε; the ledger adds it up."
            )
        several = "If several are published" if not self.vouched else "Together"
        return (
            f"{several}, all {self.private_trainings} private trainings cost ε = "
            f"{rounded_up(self.composed_epsilon)} at δ = {self.delta:g}."
        )

    def _noise_source(self) -> str:
        if not self.secure:
            return (
                "The noise came from a seeded generator, so it can be predicted and removed: "
                "NOT for release, at any ε."
            )
        charged = f"; charged to the ledger as run {self.ledger_run}" if self.ledger_run else ""
        return f"Noise and sampling came from the secure generator: fit for release{charged}."

    def _smoothing(self) -> str:
        if self.smoothing == "centered":
            return (
                "The centered average looks three days ahead, so the scores are those of the "
                "paper's experiment, not of a real forecast."
            )
        return f"Smoothing is '{self.smoothing}': no forecast uses data after its day."


def explain(result: Path, ledger: Path | None = None) -> Explanation:
    """Explain a results directory, or a release file, verified against a ledger if given."""
    if result.is_dir():
        return explain_folder(read_folder(result))
    if result.is_file():
        return _of_release(result, ledger)
    raise EpifedError(f"{result}: no such file or directory; {EXPECTED}")


def explain_folder(folder: ResultsFolder) -> Explanation:
    """Explain the trainings of a grid, or the releases of a backtest."""
    clients = folder.manifest.data.regions
    plan = PrivacyPlan.of(folder.settings, clients)
    rows = _of_grid(folder.grid) if folder.grid else _of_backtest(folder)
    return _explanation(
        folder.path,
        folder.settings,
        clients,
        tuple(
            _budget(
                folder.settings,
                Spent(plan.priced_rate, row["noise_multiplier"], plan.rounds),
                row["trainings"],
                row["epsilon"],
                row["ratio"],
            )
            for row in rows
        ),
        secure=folder.manifest.randomness == "secure",
        beside=_beside(folder),
    )


def _of_grid(grid: Results) -> list[dict[str, Any]]:
    """A row for each ε; the error is the trainings' mean error over that of persistence."""
    runs = grid.runs.filter(pl.col("stratum") == ALL)
    keys = ["split", "period"]
    persistence = runs.filter(pl.col("method") == "persistence")
    own = persistence.select(*keys, "run", pl.col("mae").alias("own"))
    shared = persistence.filter(run=0).select(*keys, pl.col("mae").alias("shared"))
    return (
        runs.filter(TRAINED)
        # With --resplit each run has its own test windows, and so its own persistence.
        .join(own, on=[*keys, "run"], how="left")
        .join(shared, on=keys, how="left")
        .with_columns(pl.coalesce("own", "shared").alias("like_today"))
        .group_by("epsilon")
        .agg(
            pl.len().alias("trainings"),
            pl.col("noise_multiplier").min(),
            pl.when(pl.col("like_today") > 0)
            .then(pl.col("mae") / pl.col("like_today"))
            .mean()
            .alias("ratio"),
        )
        .sort("epsilon")
        .to_dicts()
    )


def _of_backtest(folder: ResultsFolder) -> list[dict[str, Any]]:
    if folder.backtest is None or folder.manifest.release:
        raise EpifedError(
            f"{folder.path}: found an office's week; expected the release that it was made with "
            "(models/NAME.epifed in the kit), or another directory"
        )
    return [
        {
            "epsilon": record.epsilon_per_release,
            "trainings": record.releases,
            "noise_multiplier": record.noise_multiplier,
            "ratio": record.mae_ratio,
        }
        for record in folder.backtest.by_budget
    ]


def _beside(folder: ResultsFolder) -> str | None:
    """A note on further trainings in the folder that are not counted, if any."""
    if folder.beside is None or folder.backtest is None:
        return None
    releases = sum(record.releases for record in folder.backtest.by_budget)
    further = counted(releases, "further training")
    return (
        f"{folder.beside.path.name} within it holds {further} of the learner "
        f"{folder.beside.settings.learner}, which are not counted here: explain that directory "
        "by itself."
    )


def _of_release(path: Path, ledger: Path | None) -> Explanation:
    release = read_release(path)
    settings = release.settings
    budgets = tuple(
        _budget(settings, spent, times, price_together([spent], *_counted(settings)))
        for spent, times in Counter(release.spent).items()
    )
    return _explanation(
        path,
        settings,
        release.clients,
        budgets,
        secure=release.randomness == "secure",
        ledger_run=release.ledger_run,
        vouched=release.verification(ledger),
    )


def _budget(
    settings: Settings, spent: Spent, trainings: int, epsilon: float, ratio: float | None = None
) -> Budget:
    delta, accountant = _counted(settings)
    return Budget(
        epsilon=epsilon,
        trainings=trainings,
        spent=spent,
        epsilon_spent=price_together([spent], delta, accountant),
        epsilon_without_amplification=price_together(
            [spent], delta, accountant, drawn_seen=settings.noise != "aggregators"
        ),
        right_at_most=right_at_most(most_advantage(epsilon, delta)),
        right_at_most_with_this_noise=right_at_most(
            advantage_of_noise(spent.noise_multiplier, spent.sampling_rate, spent.rounds)
        ),
        error_over_persistence=ratio,
    )


def _counted(settings: Settings) -> tuple[float, str]:
    return settings.delta, settings.accountant


def _explanation(
    result: Path,
    settings: Settings,
    clients: int,
    budgets: tuple[Budget, ...],
    *,
    secure: bool,
    ledger_run: str | None = None,
    beside: str | None = None,
    vouched: str | None = None,
) -> Explanation:
    every = [b.spent for b in budgets if math.isfinite(b.epsilon) for _ in range(b.trainings)]
    return Explanation(
        result=result.name or str(result),
        clients=clients,
        clip_norm=settings.clip_norm,
        delta=settings.delta,
        accountant=settings.accountant,
        noise=settings.noise,
        trust=TRUST[settings.noise],
        unit=UNIT,
        neighbouring=NEIGHBOURING,
        secure=secure,
        ledger_run=ledger_run,
        smoothing=settings.smoothing,
        budgets=budgets,
        composed_epsilon=price_together(every, *_counted(settings)) if every else 0.0,
        beside=beside,
        vouched=vouched,
        expected_noise=_expected(settings, clients),
    )


def _expected(settings: Settings, clients: int) -> str | None:
    preview = expect(make_learner(settings), PrivacyPlan.of(settings, clients))
    return preview.sentence() if preview else None


def _accuracy(ratio: float | None) -> str:
    if ratio is None:
        return ""
    better = "better" if ratio < 1 else "worse"
    return (
        f' Its mean absolute error is {ratio:.3g} times that of persistence ("next week equals '
        f'this week"): {better}.'
    )


def _rounds(number: int) -> str:
    return "its only round" if number == 1 else f"each of {number} rounds"


def _percent(share: float) -> str:
    """A share in per cent, rounded up because it is a bound."""
    return f"{min(math.ceil(1000 * share - 1e-9) / 10, 100):g} %"
