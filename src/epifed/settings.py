"""The settings of a training, named in the paper's words, and the seeds of a run.

A run has one root of randomness, spawned by name, so numbers do not depend on order or workers.
"""

import hashlib
import math
import tomllib
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from epifed.data.calendar import USUAL_HORIZON, USUAL_WINDOW, Step
from epifed.errors import EPSILON, EpifedError, sentence_of
from epifed.registry import ACCOUNTANTS, LEARNERS

MOST_STEPS = 3660
"""Longest window or horizon: a forged file could ask for a network that fills the memory."""


def seed_sequence(seed: int, *names: str | int | float) -> np.random.SeedSequence:
    """The seed sequence of a root seed and a path of names, such as "temporal", "2020-11", 2.0.

    >>> seed_sequence(0, "a").generate_state(1) == seed_sequence(0, "b").generate_state(1)
    array([False])
    """
    key = tuple(int.from_bytes(hashlib.sha256(repr(n).encode()).digest()[:4]) for n in names)
    return np.random.SeedSequence(seed, spawn_key=key)


def of_training(seed: int) -> tuple[np.random.SeedSequence, ...]:
    """The seed sequences of a training's first state, its draws and its noise."""
    return tuple(seed_sequence(seed).spawn(3))


Smoothing = Literal["centered", "trailing", "none"]
SplitName = Literal["temporal", "shuffled"]
SamplerName = Literal["poisson", "fixed"]
NoiseName = Literal["server", "aggregators", "clients", "local"]

DEFAULT_LEARNER = "fedavg"
"""The paper's learner."""
USUAL: dict[str, Any] = {"learner": "trend", "epsilon": 1.0}
"""Defaults for training and scoring a release, if neither settings nor a model are given."""

PERIODS: dict[str, tuple[date, date]] = {
    "2020-11": (date(2020, 11, 1), date(2020, 12, 1)),
    "2022-03": (date(2022, 3, 1), date(2022, 4, 1)),
}
"""The paper's two epidemic phases, both ends included."""

EPSILONS = (0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, math.inf)
"""The budgets of the paper's S1 table."""


class Settings(BaseModel):
    """All settings of a training. Frozen: change a copy with `settings.but(epsilon=1)`.

    Settings of all learners are fields. A learner's own settings (such as `epochs`) are extra
    fields, which the learner checks. The defaults use no future data. `Settings.paper()` is the
    paper's preset, whose centered average does.

    Parameters
    ----------
    **values
        The fields below, each with the paper's symbol and its unit in its description.

    Raises
    ------
    ValidationError
        If a value is out of its range; `Settings.resolve` and `but` raise an `EpifedError`.

    Examples
    --------
    >>> Settings.paper().but(epsilon=2.0).epsilon
    2.0
    """

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=True)

    smoothing: Smoothing = Field(
        "trailing", description="7-day average: centered looks 3 days ahead, trailing does not"
    )
    window: int = Field(
        USUAL_WINDOW["day"], ge=1, le=MOST_STEPS, description="H, days (or weeks) of input"
    )
    horizon: int = Field(
        USUAL_HORIZON["day"],
        ge=1,
        le=MOST_STEPS,
        description="P, days (or weeks) from last input to target",
    )
    history: int | None = Field(
        None,
        ge=1,
        le=MOST_STEPS,
        description="days (or weeks) needed before the first target; none: window",
    )
    step: Step = Field("day", description="what one count is of, a day or a week")
    min_windows: int = Field(2, ge=2, description="clients with fewer windows are left out")
    split: SplitName = Field("temporal", description="which windows are for testing")
    train_share: float = Field(
        0.9,
        gt=0,
        lt=1,
        description="in an experiment, the share of a client's windows to train on; a training "
        "for use keeps none back",
    )

    learner: str = Field(
        DEFAULT_LEARNER, description="name of what clients send and the server makes"
    )
    clients_per_round: int = Field(100, ge=1, description="m, expected clients of a round")
    rounds: int = Field(75, ge=1, description="T_cl, federated rounds")
    sampler: SamplerName = Field(
        "poisson", description="poisson: each client with probability q; fixed: exactly m"
    )

    epsilon: float = Field(2.0, gt=0, description="ε, the budget of the whole training; inf: none")
    delta: float = Field(1e-5, gt=0, lt=1, description="δ, the failure probability")
    clip_norm: float = Field(0.5, gt=0, description="S, bound on the norm of one client's update")
    accountant: str = Field("rdp", description="how ε is counted")
    noise: NoiseName = Field(
        "server",
        description="who adds it: server (the paper), aggregators (each all, on sealed sums), "
        "clients (shares), local (each all)",
    )
    aggregators: int | None = Field(
        None, ge=2, le=16, description="k, with noise by aggregators: how many; the default is 2"
    )

    PAPER: ClassVar[dict[str, Any]] = {"smoothing": "centered", "history": 11, "min_windows": 11}
    """Changes for the paper's county experiment."""
    WEEKLY: ClassVar[dict[str, Any]] = {
        "smoothing": "none",
        "window": USUAL_WINDOW["week"],
        "horizon": USUAL_HORIZON["week"],
    }
    """Changes for weekly counts, for every learner."""

    evaluate_every: int = Field(5, ge=1, description="rounds between points of the convergence")
    seed: int = Field(0, ge=0, description="root of all seeded randomness")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if math.isnan(self.epsilon):
            raise ValueError(f"epsilon: found nan; expected {EPSILON}")
        if self.private and self.sampler != "poisson":
            raise ValueError(
                f"sampler: found '{self.sampler}' with ε = {self.epsilon:g}; expected 'poisson', "
                "because the accountant assumes it ('fixed' is for ε = inf only)"
            )
        if self.accountant not in ACCOUNTANTS:
            raise ValueError(
                f"accountant: found '{self.accountant}'; expected one of "
                f"{', '.join(ACCOUNTANTS.names())}"
            )
        if self.noise == "aggregators":
            object.__setattr__(self, "aggregators", self.aggregators or 2)
        elif self.aggregators is not None:
            raise ValueError(
                f"aggregators: found {self.aggregators} with noise = '{self.noise}'; expected "
                "noise = 'aggregators', or none"
            )
        if self.history is not None and self.history < self.window:
            raise ValueError(
                f"history: found {self.history} {self.step}s; expected at least the window of "
                f"{self.window}"
            )
        if self.step == "week" and self.smoothing != "none":
            raise ValueError(
                f"smoothing: found '{self.smoothing}' with step = 'week'; expected 'none', because "
                "seven days are one count already"
            )
        own = self._learner().check_own(self.model_extra or {}, self)
        object.__setattr__(self, "__pydantic_extra__", own.model_dump())
        return self

    def _learner(self) -> Any:
        """The learner class for this step, loaded by name: this module imports no learner."""
        return LEARNERS.load(self.learner).at(self.step)

    @property
    def own(self) -> dict[str, Any]:
        """The learner's own settings by name."""
        return dict(self.model_extra or {})

    @property
    def private(self) -> bool:
        """Whether noise is added: ε is finite."""
        return math.isfinite(self.epsilon)

    @classmethod
    def paper(cls, **changes: Any) -> Self:
        """The paper's county experiment, with details from its authors' code."""
        return cls.of(**(cls.PAPER | changes))

    @classmethod
    def community(cls, clients: int = 2000, **changes: Any) -> Self:
        """The paper's community experiment: more clients, more rounds, a larger clip norm."""
        return cls.of(**(cls.community_values(clients) | changes))

    @staticmethod
    def community_values(clients: int) -> dict[str, Any]:
        """Changes for the paper's community experiment; m is a quarter of N, at most 500."""
        return {
            "clients_per_round": min(500, max(1, clients // 4)),
            "rounds": 200,
            "clip_norm": 1.0,
        }

    @classmethod
    def for_learner(cls, learner: str, clients: int, **changes: Any) -> Self:
        """A learner's preset for this number of clients, with changes."""
        return cls.resolve(clients, {"learner": learner}, changes)

    @classmethod
    def resolve(cls, clients: int, *mappings: Mapping[str, Any]) -> Self:
        """The learner's preset for this number of clients, overridden by each mapping in turn.

        Commands use the order preset < file < options.
        """
        given: dict[str, Any] = {}
        for values in mappings:
            given |= values
        learner = LEARNERS.load(str(given.get("learner", DEFAULT_LEARNER)))
        if given.get("step") != "week":
            return cls.of(**(learner.preset(clients, given) | given))
        return cls.of(**(cls.WEEKLY | learner.at("week").preset(clients, given) | given))

    @classmethod
    def of(cls, **values: Any) -> Self:
        """Settings from keyword values; a value that does not fit raises an `EpifedError`."""
        try:
            return cls(**values)
        except ValidationError as error:
            raise EpifedError(sentence_of(error)) from None

    def but(self, **changes: Any) -> Self:
        """A copy with some settings changed; with another learner, its own settings are reset."""
        same = changes.get("learner", self.learner) == self.learner
        values = self.model_dump(include=None if same else set(type(self).model_fields))
        return self.of(**(values | changes))

    def to_toml(self) -> str:
        """The settings as TOML, which `read_settings` reads."""
        return tomli_w.dumps(self.model_dump(exclude_none=True))

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """Settings from TOML."""
        return cls.of(**_toml(text))

    def digest(self) -> str:
        """The SHA-256 of all settings, as hexadecimal text."""
        return hashlib.sha256(self.to_toml().encode()).hexdigest()


def read_settings(path: Path) -> Settings:
    """Read settings from a TOML file; missing ones get the defaults, not a learner's preset."""
    values = read_values(path)
    try:
        return Settings.of(**values)
    except EpifedError as error:
        raise (
            error if str(error).startswith(str(path)) else EpifedError(f"{path}: {error}")
        ) from None


def read_values(path: Path) -> dict[str, Any]:
    """The values in a TOML file, before presets and defaults."""
    try:
        return _toml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise EpifedError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise EpifedError(f"{path}: expected TOML; {error}") from None
    except EpifedError as error:
        raise EpifedError(f"{path}: {error}") from None


def _toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise EpifedError(f"expected TOML; {error}") from None
