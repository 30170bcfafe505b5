"""The interface of a learner, and the windows of the paper's Eqs. 1 and 2.

A learner turns a client's data into one vector, and the noisy mean of such vectors into a new
state. It knows nothing of privacy. To add one is to add one file: subclass `Learner`, name it under
the entry point `epifed.learners` of any installed package, and run `epifed.testing.check_learner`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, ClassVar, Generic, Protocol, TypeVar, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from epifed.data.calendar import DAYS_OF, WEEK, Step
from epifed.data.panel import CasePanel, Level
from epifed.data.quality import clean
from epifed.errors import EpifedError, counted, sentence_of
from epifed.registry import LEARNERS
from epifed.settings import DEFAULT_LEARNER, Settings, Smoothing

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Windows:
    """A stack of clients' windows. Clients of unequal length are padded; `mask` says what is real.

    inputs[k, j] are `window` consecutive days (or weeks) of client k, targets[k, j] the count
    `horizon` of them after the last, on day target_days[k, j].
    """

    inputs: NDArray[np.float32]
    targets: NDArray[np.float32]
    mask: NDArray[np.bool_]
    target_days: NDArray[np.datetime64]

    def __len__(self) -> int:
        """The number of clients."""
        return len(self.mask)

    def of(self, clients: NDArray[np.int64]) -> "Windows":
        """The windows of some clients only."""
        return Windows(
            self.inputs[clients],
            self.targets[clients],
            self.mask[clients],
            self.target_days[clients],
        )

    def pooled(self) -> tuple[Floats, Floats]:
        """The inputs and targets of all clients together."""
        return self.inputs[self.mask].astype(np.float64), self.targets[self.mask].astype(np.float64)

    def pick(self, chosen: NDArray[np.int64]) -> "Windows":
        """Some windows of each client, chosen[k] of client k."""
        return Windows(
            np.take_along_axis(self.inputs, chosen[:, :, None], axis=1),
            np.take_along_axis(self.targets, chosen, axis=1),
            np.take_along_axis(self.mask, chosen, axis=1),
            np.take_along_axis(self.target_days, chosen, axis=1),
        )


def smooth(counts: Floats, how: Smoothing) -> Floats:
    """The 7-day moving average along the days; at the ends, over the days that are there.

    `centered` (the paper) uses three later days, `trailing` none.
    """
    if how == "none":
        return counts
    before, after = (3, 3) if how == "centered" else (WEEK - 1, 0)
    days = counts.shape[1]
    total = np.concatenate([np.zeros((len(counts), 1)), np.cumsum(counts, axis=1)], axis=1)
    first = np.maximum(np.arange(days) - before, 0)
    end = np.minimum(np.arange(days) + after + 1, days)
    average: Floats = (total[:, end] - total[:, first]) / (end - first)
    return np.maximum(average, 0.0)


def observed(counts: Floats, step: Step) -> Floats:
    """What is forecast, at each step: the 7-day average up to a day, or the count of a week."""
    return smooth(counts, "trailing" if step == "day" else "none")


def last_windows(panel: CasePanel, settings: Settings, days: int) -> NDArray[np.float32]:
    """The inputs that end on each of the last so many days (or weeks): [regions, days, window]."""
    panel.refuse_step(settings.step)
    smoothed = smooth(panel.counts, settings.smoothing)
    ends = np.arange(smoothed.shape[1] - days, smoothed.shape[1])
    inputs = smoothed[:, ends[:, None] + np.arange(1 - settings.window, 1)]
    return inputs.astype(np.float32)


def last_learned(panel: CasePanel, settings: Settings, period: tuple[date, date]) -> date:
    """The last day of an experiment's period that is learned from, where the split is in time."""
    length = panel.between(*period).counts.shape[1]
    per_client = length + 1 - (settings.history or settings.window) - settings.horizon
    return panel.day(panel.index(period[1]) - per_client + int(per_client * settings.train_share))


def slide(panel: CasePanel, settings: Settings, period: tuple[date, date]) -> Windows:
    """All windows of a period, in order, smoothed before the period is cut out, as in the paper.

    So the first days of a period have their full average.
    """
    panel.refuse_step(settings.step)
    inside = panel.between(*period)
    first, last = inside.start, inside.end
    offset, length, unit = panel.index(first), inside.counts.shape[1], f"{panel.step}s"
    smoothed = smooth(panel.counts, settings.smoothing)[:, offset : offset + length]
    history = settings.history or settings.window
    per_client = length - history - settings.horizon + 1
    if per_client < 1:
        raise EpifedError(
            f"{panel.source}: found {length} {unit} from {first} to {last}; expected at least "
            f"{history + settings.horizon} for one window of {settings.window} {unit} and a target "
            f"{settings.horizon} {unit} ahead"
        )
    if per_client < settings.min_windows:
        raise EpifedError(
            f"{panel.source}: found {counted(per_client, 'window')} per region from {first} to "
            f"{last}; "
            f"expected at least {settings.min_windows}"
        )
    origins = np.arange(history - 1, history - 1 + per_client)
    inputs = smoothed[:, origins[:, None] + np.arange(1 - settings.window, 1)]
    targets = smoothed[:, origins + settings.horizon]
    days = np.datetime64(first) + panel.step_days * (origins + settings.horizon)
    return Windows(
        inputs.astype(np.float32),
        targets.astype(np.float32),
        np.ones(targets.shape, dtype=np.bool_),
        np.broadcast_to(days, targets.shape),
    )


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
    """A method of learning: from a client's data to a vector, from a release to a forecast.

    A learner knows nothing of privacy: clipping, sampling and noise are added around it. The
    abstract methods and `name` are required. Everything in `ABILITIES` is optional and has a
    default. `epifed.testing.check_learner` checks the rules and lists the abilities it found.

    Parameters
    ----------
    settings : Settings
        The settings of the training; `settings.own` are those of this learner alone.

    Notes
    -----
    A *state* (type S) is what a training has learned, a *view* (type V) what is read of the
    clients, a row for each. A contribution is an array float32 [clients, length].

    Examples
    --------
    >>> from epifed.learners.base import make_learner
    >>> from epifed.settings import Settings
    >>> learner = make_learner(Settings(learner="one-shot", rounds=1))
    >>> learner.contribute(None, learner.empty_view()).shape
    (0, 5)
    """

    name: ClassVar[str]

    ABILITIES: ClassVar[Mapping[str, str]] = {
        "at": "another class learns from weeks under the same name",
        "preset": "settings that suit the number of clients",
        "facts": "settings from public facts of the regions",
        "check_own": "checks of its own settings",
        "title": "a title for tables",
        "deployed_view": "a view of its own for a training for use",
        "entries": "names of the numbers that a client sends",
        "pack": "a state that is more than one array",
        "advance": "a state that ages from day to day",
        "again": "a state that counts rounds",
        "join": "an earlier state joined with a new one",
        "informed": "since when past forecasts knew a release",
        "surprises": "errors of all clients' past forecasts, from releases",
        "completed": "late days filled up",
        "parts": "where a forecast's change comes from",
        "signal": "a typical signal, to compare the noise with",
        "beside": "baselines of its own",
        "quantiles": "quantiles of its own, instead of those from past errors",
        "fingerprint": "a file beside the settings, which results depend on",
    }
    """Optional methods, and what a learner can do that has its own."""

    own_settings: ClassVar[type[Own]] = Own
    any_horizon: ClassVar[bool] = False
    """Whether a state forecasts any number of steps ahead, and not the trained one alone."""
    any_step: ClassVar[bool] = False
    """Whether it learns from weeks as it does from days."""
    reads_history: ClassVar[bool] = False
    """Whether it reads the data vintages of a panel, where there are some."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    # Required.

    @abstractmethod
    def view(self, panel: CasePanel, period: Period) -> V:
        """What is learned from: the period, and nothing after it but what smoothing reads."""

    @abstractmethod
    def empty_view(self) -> V:
        """The view of no client, from which the length of a contribution follows."""

    @abstractmethod
    def start(self, seeds: np.random.SeedSequence) -> S:
        """The state w₀ before the first round."""

    @abstractmethod
    def contribute(self, state: S, view: V) -> Vector:
        """One vector for each client of the view, not yet clipped: [clients, length]."""

    @abstractmethod
    def step(self, state: S, release: Vector, noise_std: float) -> S:
        """The state after a noisy mean of contributions [length] was released.

        `noise_std` is the deviation of the noise on each of its values, which is public. With
        aggregators every party computes this again, to the last bit: sums and products of single
        numbers do so on any processor, libraries of linear algebra do not.
        """

    @abstractmethod
    def predict(self, state: S, inputs: Vector) -> Floats:
        """Forecasts [...] at the trained horizon for windows [..., H] of case counts."""

    @abstractmethod
    def hindcast(self, panel: CasePanel, state: S, horizon: int) -> Floats:
        """Forecasts from each of the last steps, the panel's last one last: [regions, steps]."""

    # Optional: settings.

    @classmethod
    def at(cls, step: Step) -> "type[Learner[Any, Any]]":
        """The class that learns under this name from such a step; refused if there is none."""
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
        """Settings from what is public of a panel's regions, not of their cases; none here."""
        del panel
        return {}

    @classmethod
    def check_own(cls, values: Mapping[str, Any], settings: Settings) -> Own:
        """The learner's own settings, complete; a ValueError names what does not fit."""
        try:
            own = cls.own_settings(**values)
        except ValidationError as error:
            names = ", ".join([*Settings.model_fields, *cls.own_settings.model_fields])
            raise ValueError(sentence_of(error, f"one of {names}")) from None
        del settings
        return own

    def fingerprint(self) -> str:
        """What forecasts depend on beside settings and data, such as a file; nothing here."""
        return ""

    def title(self) -> str:
        """The learner in a few words, for tables."""
        return self.name

    # Optional: what is read and sent.

    def deployed_view(self, panel: CasePanel, period: Period) -> V:
        """What a training for use reads: the days of its period, all of them and no other.

        Implausible counts are replaced; an experiment reads the data as they are.
        """
        return self.view(clean(panel.between(*period)).panel, period)

    def entries(self, length: int) -> tuple[str, ...]:
        """What each number of a contribution is, in a few words."""
        return tuple(f"number {i + 1} of {length}" for i in range(length))

    # Optional: the state.

    def pack(self, state: S) -> Vector:
        """The state as one vector, as files and messages carry it; here: a state is an array."""
        return np.asarray(state, dtype=np.float32).ravel()

    def unpack(self, vector: Vector) -> S:
        """The state of a vector; another length than a state's is refused."""
        like: Any = np.asarray(self.start(np.random.SeedSequence(0)))
        self.refuse_length(vector, like.size)
        state: Any = vector.reshape(like.shape).astype(like.dtype)
        return cast(S, state)

    def advance(self, state: S, days: int) -> S:
        """The state so many days later: the same, unless the learner ages."""
        del days
        return state

    def again(self, state: S) -> S:
        """The state from which a further training continues: what counts rounds begins anew."""
        return state

    def join(self, earlier: S, fresh: S) -> S:
        """An earlier state, advanced to the same day, together with a fresh one."""
        del earlier
        return fresh

    # Optional: the forecast.

    def quantiles(
        self, panel: CasePanel, state: S, horizon: int, level: Level | None = None
    ) -> tuple[Floats, Floats] | None:
        """The points and quantiles of a forecast, if the learner knows its own uncertainty.

        None: they are as wide as past errors of `hindcast`.
        """
        del panel, state, horizon, level
        return None

    def informed(self, state: S) -> int | None:
        """Days since the first release that past forecasts knew; none: all knew it."""
        del state
        return None

    def surprises(self, state: S, horizon: int) -> Floats:
        """Errors of past forecasts of all clients together, as far as releases show them.

        [errors, 2]: the log change that was not foreseen, and the variance of the noise in it.
        """
        del state, horizon
        return np.zeros((0, 2))

    def completed(self, panel: CasePanel, state: S) -> CasePanel:
        """The panel with late days filled up; here: as it is."""
        del state
        return panel

    def parts(self, panel: CasePanel, state: S, horizon: int) -> Parts | None:
        """Where the forecast change of the last day comes from; none: unknown."""
        del panel, state, horizon
        return None

    def signal(self) -> Signal | None:
        """The signal that noise is compared with before a training; none: unknown."""
        return None

    def beside(self) -> dict[str, Baseline]:
        """Baselines that mean something beside this learner alone."""
        return {}

    # The same for all learners.

    @classmethod
    def abilities(cls) -> tuple[str, ...]:
        """The optional methods that this learner has of its own."""
        return tuple(
            name for name in cls.ABILITIES if _plain(cls, name) is not _plain(Learner, name)
        )

    def compatible(self, other: "Learner[Any, Any]") -> bool:
        """Whether a state of the other learner may be continued by this one."""
        mine, theirs = (
            (learner.title(), learner.settings.window, learner.settings.step)
            for learner in (self, other)
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


def _plain(kind: type[Any], name: str) -> Any:
    """A method as it was written, without the class it is bound to."""
    method = getattr(kind, name)
    return getattr(method, "__func__", method)


class WindowLearner(Learner[S, Windows]):
    """A learner that reads windows, forecasts one horizon, and is learned anew each time."""

    def view(self, panel: CasePanel, period: Period) -> Windows:
        """All windows of the period."""
        return slide(panel, self.settings, period)

    def empty_view(self) -> Windows:
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
