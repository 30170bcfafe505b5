"""The guarantee of one concrete result, in plain sentences."""

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import dp_accounting as dp
import polars as pl

from epifed.errors import EpifedError
from epifed.evaluate.folder import ResultsFolder, read_folder
from epifed.evaluate.results import ALL, TRAINED, Results
from epifed.privacy.accounting import (
    NEIGHBOURING,
    UNIT,
    epsilon_of,
    rounded_up,
    training_event,
)
from epifed.privacy.plan import PrivacyPlan
from epifed.privacy.tradeoff import advantage_of_noise, most_advantage, right_at_most
from epifed.release import read_release
from epifed.settings import Settings

EXPECTED = (
    "expected a directory by 'epifed run', 'epifed reproduce' or 'epifed backtest', or a model by "
    "'epifed train'"
)


@dataclass(frozen=True)
class Budget:
    """The trainings of one ε: what each guarantees, and what they are worth."""

    epsilon: float
    trainings: int
    noise_multiplier: float
    epsilon_spent: float
    right_at_most: float
    """The share of right guesses that (ε, δ) leaves to an attacker at most."""
    right_at_most_with_this_noise: float
    error_over_persistence: float | None
    """Mean absolute error over that of "next week is like today", if it was measured."""


@dataclass(frozen=True)
class Explanation:
    """What a result guarantees, to whom, and under which conditions."""

    result: str
    clients: int
    sampling_rate: float
    rounds: int
    clip_norm: float
    delta: float
    accountant: str
    unit: str
    neighbouring: str
    secure: bool
    ledger_run: str | None
    smoothing: str
    budgets: tuple[Budget, ...]
    composed_epsilon: float
    beside: str | None
    """What lies in the same folder and is not explained here, if anything does."""

    @property
    def private_trainings(self) -> int:
        """Those with noise."""
        return sum(b.trainings for b in self.budgets if math.isfinite(b.epsilon))

    @property
    def trainings(self) -> int:
        """All of them."""
        return sum(b.trainings for b in self.budgets)

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        found = asdict(self)
        found["budgets"] = [asdict(budget) for budget in self.budgets]
        return found | {
            "trainings": self.trainings,
            "private_trainings": self.private_trainings,
            "looks_ahead": self.smoothing == "centered",
            "tuned_on_private_data": "not recorded",
            "sentences": self.sentences(),
        }

    def sentences(self) -> list[str]:
        """The guarantee as one would tell it."""
        return [
            f"{self.result} holds {_count(self.trainings, 'training')} with {self.clients} "
            f"clients, {self.private_trainings} of them with differential privacy.",
            *(line for budget in self.budgets for line in self._of_budget(budget)),
            f"The unit is {self.unit} with all its days, the neighbouring relation is "
            f"'{self.neighbouring}', the accountant is {self.accountant.upper()}. The server is "
            "trusted: it sees the clipped updates.",
            self._composition(),
            self._noise_source(),
            self._smoothing(),
            "Not counted in any ε here: scores and comparisons, which are computed on the clients' "
            "data without noise, and a choice of settings on the same data. Whether these settings "
            "were tuned so is not recorded.",
            *([self.beside] if self.beside else []),
        ]

    def _of_budget(self, budget: Budget) -> list[str]:
        worth = _worth(budget.error_over_persistence)
        if math.isinf(budget.epsilon):
            return [
                f"ε = ∞ ({_count(budget.trainings, 'training')}): no privacy. Whoever sees the "
                f"model may be able to tell with certainty who took part.{worth}"
            ]
        by_epsilon = _percent(budget.right_at_most)
        by_noise = _percent(budget.right_at_most_with_this_noise)
        return [
            f"ε = {rounded_up(budget.epsilon_spent)} at δ = {self.delta:g} "
            f"({_count(budget.trainings, 'training')}, each by itself): in each of {self.rounds} "
            f"rounds a client is asked with probability {self.sampling_rate:.3g}, and the sum gets "
            f"noise of {budget.noise_multiplier:.4g} times the largest update. Whoever guesses "
            f"whether your county took part is right at most {by_epsilon} of the time by this ε, "
            f"and at most {by_noise} given this very noise; a coin toss is right 50 %.{worth}"
        ]

    def _composition(self) -> str:
        if self.private_trainings < 2:
            return "Every further training on the same clients costs again; the ledger adds it up."
        return (
            f"Publishing several of them composes: all {self.private_trainings} private trainings "
            f"together cost ε = {rounded_up(self.composed_epsilon)} at δ = {self.delta:g}."
        )

    def _noise_source(self) -> str:
        if not self.secure:
            return (
                "The noise came from a seeded generator, so it can be predicted and taken off: "
                "a simulation, NOT for release, whatever ε says."
            )
        paid = f"; run {self.ledger_run} in the ledger paid for it" if self.ledger_run else ""
        return f"Noise and sampling came from the secure generator: fit for release{paid}."

    def _smoothing(self) -> str:
        if self.smoothing == "centered":
            return (
                "The centered average looks three days ahead, so the scores are those of the "
                "paper's experiment, not of a forecast one could have made."
            )
        return f"Smoothing is '{self.smoothing}': no forecast looks past its day."


def explain(result: Path) -> Explanation:
    """Explain a directory of results, or a model file."""
    if result.is_dir():
        return explain_folder(read_folder(result))
    if result.is_file():
        return _of_model(result)
    raise EpifedError(f"{result}: no such file or directory; {EXPECTED}")


def explain_folder(folder: ResultsFolder) -> Explanation:
    """Explain the trainings of a grid, or the releases of a backtest."""
    clients = folder.manifest.data.regions
    rate = PrivacyPlan.of(folder.settings, clients).priced_rate
    rows = _of_grid(folder.grid) if folder.grid else _of_backtest(folder)
    return _explanation(
        folder.path,
        folder.settings,
        clients,
        tuple(_budget(folder.settings, rate, row) for row in rows),
        secure=folder.manifest.randomness == "secure",
        beside=_beside(folder),
    )


def _of_grid(grid: Results) -> list[dict[str, Any]]:
    """A row for each ε; the error is the mean of the trainings' over persistence's."""
    runs = grid.runs.filter(pl.col("stratum") == ALL)
    keys = ["split", "period"]
    like_today = runs.filter(pl.col("method") == "persistence").select(
        *keys, pl.col("mae").alias("like_today")
    )
    return (
        runs.filter(TRAINED)
        .join(like_today, on=keys, how="left")
        .group_by("epsilon")
        .agg(
            pl.len().alias("trainings"),
            pl.col("noise_multiplier").min(),
            pl.col("epsilon_spent").max(),
            (pl.col("mae") / pl.col("like_today")).mean().alias("ratio"),
        )
        .sort("epsilon")
        .to_dicts()
    )


def _of_backtest(folder: ResultsFolder) -> list[dict[str, Any]]:
    assert folder.backtest is not None
    record = folder.backtest.record
    return [
        {
            "epsilon": record.epsilon_per_release,
            "trainings": record.releases,
            "noise_multiplier": record.noise_multiplier,
            "epsilon_spent": record.epsilon_per_release,
            "ratio": record.mae_ratio,
        }
    ]


def _beside(folder: ResultsFolder) -> str | None:
    """What else lies in the folder and is not counted."""
    if folder.beside is None or folder.backtest is None:
        return None
    further = _count(folder.backtest.record.releases, "further training")
    return (
        f"{folder.beside.path.name} within it holds {further} of the learner "
        f"{folder.beside.settings.learner}, which are not counted here: explain that directory "
        "by itself."
    )


def _of_model(path: Path) -> Explanation:
    model = read_release(path)
    rate = PrivacyPlan.of(model.settings, model.clients).priced_rate
    row = {
        "epsilon": model.settings.epsilon,
        "trainings": 1,
        "noise_multiplier": model.noise_multiplier,
        "epsilon_spent": model.epsilon,
        "ratio": None,
    }
    return _explanation(
        path,
        model.settings,
        model.clients,
        (_budget(model.settings, rate, row),),
        secure=model.randomness == "secure",
        ledger_run=model.ledger_run,
    )


def _budget(settings: Settings, rate: float, row: dict[str, Any]) -> Budget:
    noise, epsilon = float(row["noise_multiplier"]), float(row["epsilon"])
    return Budget(
        epsilon=epsilon,
        trainings=int(row["trainings"]),
        noise_multiplier=noise,
        epsilon_spent=float(row["epsilon_spent"]),
        right_at_most=right_at_most(most_advantage(epsilon, settings.delta)),
        right_at_most_with_this_noise=right_at_most(
            advantage_of_noise(noise, rate, settings.rounds)
        ),
        error_over_persistence=row["ratio"],
    )


def _explanation(
    result: Path,
    settings: Settings,
    clients: int,
    budgets: tuple[Budget, ...],
    *,
    secure: bool,
    ledger_run: str | None = None,
    beside: str | None = None,
) -> Explanation:
    rate = PrivacyPlan.of(settings, clients).priced_rate
    private = [b for b in budgets if math.isfinite(b.epsilon)]
    together = dp.ComposedDpEvent(
        [training_event(rate, b.noise_multiplier, settings.rounds * b.trainings) for b in private]
    )
    composed = epsilon_of(together, settings.delta, settings.accountant) if private else 0.0
    return Explanation(
        result=result.name or str(result),
        clients=clients,
        sampling_rate=rate,
        rounds=settings.rounds,
        clip_norm=settings.clip_norm,
        delta=settings.delta,
        accountant=settings.accountant,
        unit=UNIT,
        neighbouring=NEIGHBOURING,
        secure=secure,
        ledger_run=ledger_run,
        smoothing=settings.smoothing,
        budgets=budgets,
        composed_epsilon=composed,
        beside=beside,
    )


def _worth(ratio: float | None) -> str:
    if ratio is None:
        return ""
    better = "better" if ratio < 1 else "worse"
    return (
        f' Its mean absolute error is {ratio:.3g} times that of persistence ("next week is like '
        f'today"): {better}.'
    )


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'s'[: number != 1]}"


def _percent(share: float) -> str:
    """Rounded up, for it is a bound."""
    return f"{min(math.ceil(1000 * share - 1e-9) / 10, 100):g} %"
