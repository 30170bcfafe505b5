"""What a learner is: what it reads of a client, sends, makes of a release, and forecasts.

A learner knows nothing of privacy: it turns a client's data into one vector, and the noisy mean of
such vectors into a new state. To add one is to add one file: subclass `Learner`, name it under the
entry point `epifed.learners` of any installed package, and let `epifed.testing.check_learner` say
whether it keeps the rules.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from epifed.anomalies import clean
from epifed.days import DAYS_OF, Step
from epifed.errors import EpifedError
from epifed.panel import CasePanel
from epifed.registry import LEARNERS
from epifed.settings import DEFAULT_LEARNER, Settings, sentence_of
from epifed.windows import Windows, last_windows, slide

Floats = NDArray[np.float64]
Vector = NDArray[np.float32]
Period = tuple[date, date]
Baseline = Callable[[Any, Settings, np.random.SeedSequence], Floats]
"""A forecast of the test windows of an experiment's clients."""

DAYS_BACK = 211
"""Past days at most for which a forecast is repeated, to learn from its errors."""


class View(Protocol):
    """What a learner reads of some clients, a row for each."""

    def __len__(self) -> int:
        """The number of clients."""
        ...

    def of(self, clients: NDArray[np.int64]) -> "View":
        """The same of some of them only."""
        ...


class Own(BaseModel):
    """A learner's own settings; none, unless the learner says which."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=True)


S = TypeVar("S")
V = TypeVar("V", bound=View)


SOFTENING = 0.5
"""Cases that are added before a client divides by its own."""


@dataclass(frozen=True)
class Parts:
    """Where the log change of each region's forecast against its last week comes from."""

    country: Floats
    """The growth of all clients together."""
    place: Floats
    """What is added by size and place."""
    own: Floats
    """What the region's own level adds."""
    calendar: Floats
    """What holidays add, of the last week and of those ahead."""
    reports: Floats
    """What was put in the place of missing and late reports of the last week."""

    def to_long(self, regions: Sequence[str], horizon: int) -> pl.DataFrame:
        """A row for each region: the log changes, which add up to that of its forecast."""
        return pl.DataFrame({"region": regions, "horizon": [horizon] * len(regions)} | vars(self))


@dataclass(frozen=True)
class Signal:
    """What a learner is mainly to find out from a release."""

    name: str
    typical: float
    """Its deviation over quiet and wild times, as a log change."""
    scale: float
    """By how much it moves if the released number does by one."""


class Learner(ABC, Generic[S, V]):
    """One method of learning: from a client's data to a vector, from a release to a forecast."""

    name: ClassVar[str]
    own_settings: ClassVar[type[Own]] = Own
    any_horizon: ClassVar[bool] = False
    """Whether a state forecasts any number of steps ahead, and not the trained one alone."""
    any_step: ClassVar[bool] = False
    """Whether it learns from weeks as it does from days."""
    reads_history: ClassVar[bool] = False
    """Whether it reads what was known on earlier days, where a panel has that history."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @classmethod
    def at(cls, step: Step) -> "type[Learner[Any, Any]]":
        """What learns under this name from panels of such a step; refused if nothing does."""
        if step == "day" or cls.any_step:
            return cls
        raise EpifedError(
            f"learner: found '{cls.name}' with counts of weeks; expected one that learns from "
            "weeks, such as trend or fedavg"
        )

    @classmethod
    def preset(cls, clients: int, given: Mapping[str, Any]) -> dict[str, Any]:
        """Settings that suit this learner with so many clients, beside what was given."""
        del clients, given
        return {"learner": cls.name}

    @classmethod
    def facts(cls, panel: CasePanel) -> dict[str, Any]:
        """Settings that say what is public of a panel's regions, not of their cases; none here."""
        del panel
        return {}

    @classmethod
    def check_own(cls, values: Mapping[str, Any], settings: Settings) -> Own:
        """The learner's own settings, complete; a ValueError says what does not fit."""
        try:
            own = cls.own_settings(**values)
        except ValidationError as error:
            known = ", ".join([*Settings.model_fields, *cls.own_settings.model_fields])
            raise ValueError(sentence_of(error, f"one of {known}")) from None
        del settings
        return own

    def title(self) -> str:
        """The learner in a few words, as tables say it."""
        return self.name

    @abstractmethod
    def view(self, panel: CasePanel, period: Period) -> V:
        """What is learned from: the period, and nothing after it but what smoothing reads."""

    def deployed_view(self, panel: CasePanel, period: Period) -> V:
        """What a training for use reads: the days of its period, all of them and no other.

        Anomalous days are replaced; an experiment reads the data as they are.
        """
        return self.view(clean(panel.between(*period)).panel, period)

    @abstractmethod
    def nobody(self) -> V:
        """The view of no client at all, which tells the length of a contribution."""

    @abstractmethod
    def start(self, seeds: np.random.SeedSequence) -> S:
        """The state w₀ before the first round."""

    @abstractmethod
    def contribute(self, state: S, view: V) -> Vector:
        """One vector for each client of the view, not yet clipped: [clients, length]."""

    def entries(self, length: int) -> tuple[str, ...]:
        """What each of the numbers of a contribution is, in a few words."""
        return tuple(f"number {i + 1} of {length}" for i in range(length))

    @abstractmethod
    def step(self, state: S, release: Vector, noise_std: float) -> S:
        """The state after the server has released a noisy mean of contributions.

        `noise_std` is the deviation of the noise on each of its values, which is public.
        """

    @abstractmethod
    def predict(self, state: S, inputs: Vector) -> Floats:
        """Forecasts [...] at the trained horizon for windows [..., H] of case counts."""

    @abstractmethod
    def pack(self, state: S) -> Vector:
        """The state as one vector, as files and messages carry it."""

    @abstractmethod
    def unpack(self, vector: Vector) -> S:
        """The state of a vector; another length than a state's is refused."""

    def advance(self, state: S, days: int) -> S:
        """The state as it stands so many days later: the same, unless the learner ages."""
        del days
        return state

    def again(self, state: S) -> S:
        """The state from which a further training goes on: what counts rounds begins anew."""
        return state

    def join(self, earlier: S, fresh: S) -> S:
        """What an earlier state, advanced to the same day, and a fresh one know together."""
        del earlier
        return fresh

    @abstractmethod
    def hindcast(self, panel: CasePanel, state: S, horizon: int) -> Floats:
        """What would have been forecast at each of the last steps, the panel's last one last."""

    def informed(self, state: S) -> int | None:
        """How many days ago the first release was that past forecasts knew; none: all knew it."""
        del state
        return None

    def surprises(self, state: S, horizon: int) -> Floats:
        """By how much past forecasts of all clients together erred, as far as releases tell.

        [errors, 2]: the log change that was not foreseen, and the variance of the noise in it.
        """
        del state, horizon
        return np.zeros((0, 2))

    def completed(self, panel: CasePanel, state: S) -> CasePanel:
        """The panel as the learner takes it: as it is, unless it fills late days up."""
        del state
        return panel

    def parts(self, panel: CasePanel, state: S, horizon: int) -> Parts | None:
        """Where the change comes from that is forecast on the last day, if the learner can say."""
        del panel, state, horizon
        return None

    def signal(self) -> Signal | None:
        """What noise is to be compared with before a training, if the learner can say."""
        return None

    def beside(self) -> dict[str, Baseline]:
        """Baselines that mean something beside this learner alone."""
        return {}

    def compatible(self, other: "Learner[Any, Any]") -> bool:
        """Whether a state of the other learner may be continued by this one."""
        mine, theirs = (
            (one.title(), one.settings.window, one.settings.step) for one in (self, other)
        )
        return mine == theirs and self.pack_length() == other.pack_length()

    def pack_length(self) -> int:
        """The numbers of a packed state."""
        return len(self.pack(self.start(np.random.SeedSequence(0))))

    def refuse_length(self, vector: Vector, expected: int) -> None:
        """Refuse a packed state of another shape than this learner's."""
        if vector.shape != (expected,):
            raise EpifedError(
                f"state: found {vector.size} numbers of shape {vector.shape} for learner "
                f"'{self.name}'; expected {expected}"
            )


class WindowLearner(Learner[S, Windows]):
    """A learner that reads windows, forecasts one horizon, and is learned anew each time."""

    def view(self, panel: CasePanel, period: Period) -> Windows:
        """All windows of the period."""
        return slide(panel, self.settings, period)

    def nobody(self) -> Windows:
        """No windows."""
        return Windows(
            np.zeros((0, 1, self.settings.window), dtype=np.float32),
            np.zeros((0, 1), dtype=np.float32),
            np.zeros((0, 1), dtype=np.bool_),
            np.zeros((0, 1), dtype="datetime64[D]"),
        )

    def hindcast(self, panel: CasePanel, state: S, horizon: int) -> Floats:
        """The prediction from each of the last windows."""
        settings = self.settings
        if horizon != settings.horizon:
            raise EpifedError(
                f"horizon: found {horizon} {settings.step}s; expected {settings.horizon}, the one "
                f"that the '{settings.learner}' model was trained for"
            )
        days = min(panel.counts.shape[1] - settings.window + 1, DAYS_BACK)
        return np.maximum(self.predict(state, last_windows(panel, settings, days)), 0.0)


def make_learner(settings: Settings) -> Learner[Any, Any]:
    """The learner that the settings name."""
    kind: type[Learner[Any, Any]] = LEARNERS.load(settings.learner)
    return kind.at(settings.step)(settings)


def settings_for(panel: CasePanel, *said: Mapping[str, Any]) -> Settings:
    """The settings for a panel's regions: what suits the learner and them, under what was said."""
    steps = [values["step"] for values in said if "step" in values]
    if steps and steps[-1] != panel.step:
        raise EpifedError(
            f"step: found '{steps[-1]}'; expected '{panel.step}', which {panel.source} counts"
        )
    named = [values["learner"] for values in said if "learner" in values]
    learner: type[Learner[Any, Any]] = LEARNERS.load(str(named[-1] if named else DEFAULT_LEARNER))
    step: dict[str, Any] = {} if panel.step == "day" else {"step": panel.step}
    facts = step | learner.at(panel.step).facts(panel)
    return Settings.resolve(len(panel.regions), facts, *said)


def recency(windows: Windows, half_life: float | None, settings: Settings) -> Vector:
    """A weight for each window, 1 for a client's newest and half as much every half-life before.

    In a changing epidemic the last days say most; the half-life is of steps. Padding counts
    nothing. With the shuffled split the tested windows lie among the others, so all count alike.
    """
    real = windows.mask.astype(np.float32)
    if half_life is None or settings.split == "shuffled" or real.size == 0:
        return real
    days = windows.target_days.astype("datetime64[D]").astype(np.int64)
    newest = np.where(windows.mask, days, np.iinfo(np.int64).min).max(axis=1, keepdims=True)
    age = np.where(windows.mask, newest - days, 0) / DAYS_OF[settings.step]
    weight: Vector = real * np.exp2(-age / half_life).astype(np.float32)
    return weight
