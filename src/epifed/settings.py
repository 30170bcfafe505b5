"""Every choice of a training, in the paper's words, tied to its symbol here and nowhere else."""

import hashlib
import math
import tomllib
from datetime import date
from pathlib import Path
from typing import Any, Literal, Self

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from epifed.errors import EpifedError

Smoothing = Literal["centered", "trailing", "none"]
SplitName = Literal["temporal", "shuffled"]
SamplerName = Literal["poisson", "fixed"]
AccountantName = Literal["rdp", "pld"]
NoiseName = Literal["server", "clients", "local"]

PERIODS: dict[str, tuple[date, date]] = {
    "2020-11": (date(2020, 11, 1), date(2020, 12, 1)),
    "2022-03": (date(2022, 3, 1), date(2022, 4, 1)),
}
"""The paper's two epidemic phases, both ends included."""

EPSILONS = (0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, math.inf)
"""The budgets of the paper's S1 table."""

ONE_RELEASE: dict[str, dict[str, Any]] = {
    "one-shot": {"clip_norm": 0.1, "half_life": 1.0},
    "trend": {"clip_norm": 1.2, "holidays": "DE"},
}
"""Learners that need all clients once, and what else suits them."""

SUITS_MODEL: dict[str, dict[str, Any]] = {
    "scale-free linear": {"epochs": 30, "learning_rate": 0.01, "clip_norm": 0.1},
    "scale-free": {"epochs": 10, "learning_rate": 0.03, "clip_norm": 0.2},
}
"""What suits models with no scale to learn, which need few rounds: one of them, and the others."""


class Settings(BaseModel):
    """A training, completely described. Frozen: make another with `settings.but(epsilon=1)`.

    The defaults are the operational ones: nothing looks into the future. `Settings.paper()` is
    the paper's preset, whose centered average does.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=True)

    smoothing: Smoothing = Field(
        "trailing", description="7-day average: centered looks 3 days ahead, trailing does not"
    )
    window: int = Field(10, ge=1, description="H, days of input")
    horizon: int = Field(7, ge=1, description="P, days from the last input day to the target")
    history: int | None = Field(
        None, ge=1, description="days of the period needed before the first target; none: window"
    )
    holidays: str = Field("", description="country whose public holidays count, such as DE")
    min_windows: int = Field(2, ge=2, description="clients with fewer windows are left out")
    split: SplitName = Field("temporal", description="which windows are for testing")
    train_share: float = Field(
        0.9, gt=0, le=1, description="share of a client's windows to train; 1: none is for testing"
    )

    learner: str = Field("fedavg", description="name of what clients send and the server makes")
    model: str = Field("mlp", description="name of the forecaster")
    epochs: int = Field(30, ge=1, description="E, local epochs a round, one full batch each")
    learning_rate: float = Field(0.001, gt=0, description="η, of Adam, fresh at each round")
    half_life: float | None = Field(
        None, gt=0, description="days in which a window loses half its weight; none: all alike"
    )
    average_last: int = Field(
        0, ge=0, description="fedavg: predict with the mean of so many last iterates; 0: the last"
    )
    clients_per_round: int = Field(100, ge=1, description="m, expected clients of a round")
    rounds: int = Field(75, ge=1, description="T_cl, federated rounds")
    sampler: SamplerName = Field(
        "poisson", description="poisson: each client with probability q; fixed: exactly m"
    )

    epsilon: float = Field(2.0, gt=0, description="ε, the budget of the whole training; inf: none")
    delta: float = Field(1e-5, gt=0, lt=1, description="δ, the failure probability")
    clip_norm: float = Field(0.5, gt=0, description="S, bound on the norm of one client's update")
    accountant: AccountantName = Field("rdp", description="how ε is counted")
    noise: NoiseName = Field(
        "server", description="who adds it: server (the paper), clients (shares), local (each all)"
    )

    evaluate_every: int = Field(5, ge=1, description="rounds between points of the convergence")
    seed: int = Field(0, ge=0, description="root of all randomness of a simulation")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if math.isnan(self.epsilon):
            raise ValueError("epsilon: found nan; expected a number above 0, or inf")
        if self.private and self.sampler != "poisson":
            raise ValueError(
                f"sampler: found '{self.sampler}' with ε = {self.epsilon:g}; expected 'poisson', "
                "because the accountant assumes it ('fixed' is for ε = inf only)"
            )
        if self.history is not None and self.history < self.window:
            raise ValueError(
                f"history: found {self.history} days; expected at least the window of {self.window}"
            )
        if self.average_last > self.rounds:
            raise ValueError(
                f"average_last: found {self.average_last} of {self.rounds} rounds; expected at "
                "most all of them"
            )
        return self

    @property
    def private(self) -> bool:
        """Whether noise is added: ε is finite."""
        return math.isfinite(self.epsilon)

    @classmethod
    def paper(cls, **changes: Any) -> Self:
        """The paper's county experiment, with the facts its authors' code adds to the text."""
        preset: dict[str, Any] = {"smoothing": "centered", "history": 11, "min_windows": 11}
        return cls.of(**(preset | changes))

    @classmethod
    def community(cls, **changes: Any) -> Self:
        """The paper's community experiment: more clients, more rounds, a wider clip."""
        preset: dict[str, Any] = {"clients_per_round": 500, "rounds": 200, "clip_norm": 1.0}
        return cls.of(**(preset | changes))

    @classmethod
    def for_learner(cls, learner: str, clients: int, **changes: Any) -> Self:
        """What suits a learner, its model and that many clients, if nobody says otherwise."""
        model = changes.get("model", "mlp")
        everybody: dict[str, Any] = {"clients_per_round": clients, "accountant": "pld"}
        if learner in ONE_RELEASE:
            preset = everybody | {"rounds": 1} | ONE_RELEASE[learner]
        elif model.startswith("scale-free"):
            suits = SUITS_MODEL.get(model, SUITS_MODEL["scale-free"])
            preset = everybody | {"rounds": 5, "half_life": 1.0} | suits
        else:
            preset = {"clients_per_round": max(1, clients // 4)}
        return cls.of(**({"learner": learner} | preset | changes))

    @classmethod
    def of(cls, **values: Any) -> Self:
        """Settings from keyword values; what does not fit is one sentence."""
        try:
            return cls(**values)
        except ValidationError as error:
            raise EpifedError(sentence_of(error, f"one of {', '.join(cls.model_fields)}")) from None

    def but(self, **changes: Any) -> Self:
        """The same settings with some changed, checked again."""
        return self.of(**(self.model_dump() | changes))

    def to_toml(self) -> str:
        """The settings as TOML, as `read_settings` takes them."""
        return tomli_w.dumps(self.model_dump(exclude_none=True))

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """Settings from TOML."""
        try:
            return cls.of(**tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise EpifedError(f"expected TOML; {error}") from None

    def digest(self) -> str:
        """A SHA-256 of all settings."""
        return hashlib.sha256(self.to_toml().encode()).hexdigest()


def read_settings(path: Path) -> Settings:
    """Settings from a TOML file."""
    try:
        return Settings.from_toml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise EpifedError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise EpifedError(f"{path}: expected TOML; {error}") from None
    except EpifedError as error:
        raise EpifedError(f"{path}: {error}") from None


def sentence_of(error: ValidationError, known: str = "it left out") -> str:
    """What is wrong first, as one sentence; `known` is expected instead of an unknown name."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    if not where:
        return message
    if first["type"] == "missing":
        return f"{where}: found nothing; expected a value"
    if first["type"] == "extra_forbidden":
        return f"{where}: not a setting; expected {known}"
    return f"{where}: found {first['input']!r}; {message[0].lower()}{message[1:]}"
