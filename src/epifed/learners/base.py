"""The interface of a learner, and the windows of the paper's Eqs. 1 and 2.

A learner turns a client's data into one vector, and the noisy mean of such vectors into a new
state. It contains no privacy code. To add one, write one file: subclass `Learner`, name it under
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
    """Windows of several clients as one stack, padded to equal length; `mask` marks the real ones.

    inputs[k, j] are `window` consecutive days (or weeks) of client k. targets[k, j] is the count
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
        """The windows of the clients with these row numbers."""
        return Windows(*(values[clients] for values in vars(self).values()))

    def pooled(self) -> tuple[Floats, Floats]:
        """Inputs [windows, H] and targets [windows] of all clients together, without padding."""
        return self.inputs[self.mask].astype(np.float64), self.targets[self.mask].astype(np.float64)

    def pick(self, chosen: NDArray[np.int64]) -> "Windows":
        """The windows chosen[k] of each client k."""
        return Windows(
            np.take_along_axis(self.inputs, chosen[:, :, None], axis=1),
            np.take_along_axis(self.targets, chosen, axis=1),
            np.take_along_axis(self.mask, chosen, axis=1),
            np.take_along_axis(self.target_days, chosen, axis=1),
        )


def smooth(counts: Floats, how: Smoothing) -> Floats:
    """The 7-day moving average along the days; at the ends, over the available days.

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
    """The quantity that is forecast: the trailing 7-day average, or the count of a week."""
    return smooth(counts, "trailing" if step == "day" else "none")


def last_windows(panel: CasePanel, settings: Settings, days: int) -> NDArray[np.float32]:
    """The input windows that end on each of the last `days` steps: [regions, days, window]."""
    panel.refuse_step(settings.step)
    smoothed = smooth(panel.counts, settings.smoothing)
    ends = np.arange(smoothed.shape[1] - days, smoothed.shape[1])
    inputs = smoothed[:, ends[:, None] + np.arange(1 - settings.window, 1)]
    return inputs.astype(np.float32)


def last_learned(panel: CasePanel, settings: Settings, period: tuple[date, date]) -> date:
    """The last training day of an experiment's period with the temporal split."""
    length = panel.between(*period).counts.shape[1]
    per_client = length + 1 - (settings.history or settings.window) - settings.horizon
    return panel.day(panel.index(period[1]) - per_client + int(per_client * settings.train_share))


def slide(panel: CasePanel, settings: Settings, period: tuple[date, date]) -> Windows:
    """All windows of a period in order. Counts are smoothed before the cut, as in the paper.

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
"""A function that forecasts the test windows of an experiment's clients."""

DAYS_BACK = 211
"""Largest number of past days from which a forecast is repeated, to learn from its errors."""


class View(Protocol):
    """The data that a learner reads from some clients, one row for each."""

    def __len__(self) -> int:
        """The number of clients."""
        ...

    def of(self, clients: NDArray[np.int64]) -> "View":
        """The rows of these clients."""
        ...


class Own(BaseModel):
    """A learner's own settings; none by default."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=True)


S = TypeVar("S")
V = TypeVar("V", bound=View)


SOFTENING = 0.5
"""Cases added before a client divides by its own count."""


@dataclass(frozen=True)
class Parts:
    """The parts of each region's forecast log change against its last week."""

    country: Floats
    """The growth of all clients together."""
    place: Floats
    """The addition for the region's size and place."""
    own: Floats
    """The addition for the region's own level."""
    calendar: Floats
    """The effect of holidays in the last week and in those ahead."""
    reports: Floats
    """The effect of replacing missing and late reports of the last week."""

    def to_long(self, regions: Sequence[str], horizon: int) -> pl.DataFrame:
        """A row for each region; its log changes add up to that of the forecast."""
        return pl.DataFrame({"region": regions, "horizon": [horizon] * len(regions)} | vars(self))


@dataclass(frozen=True)
class Signal:
    """The main quantity that a learner estimates from a release."""

    name: str
    typical: float
    """Its standard deviation over calm and changing times, as a log change."""
    scale: float
    """Its change when the released number changes by one."""


class Learner(ABC, Generic[S, V]):
    """A method of learning: from a client's data to a vector, from a release to a forecast.

    A learner contains no privacy code: clipping, sampling and noise are added around it. The
    abstract methods and `name` are required. Everything in `ABILITIES` is optional and has a
    default. `epifed.testing.check_learner` checks the rules and lists the abilities it found.

    Parameters
    ----------
    settings : Settings
        The settings of the training; `settings.own` are this learner's own.

    Notes
    -----
    A *state* (type S) is the result of a training. A *view* (type V) is the data read from the
    clients, one row for each. A contribution is an array float32 [clients, length].

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
    """The optional methods, and what a learner that overrides one can do."""

    own_settings: ClassVar[type[Own]] = Own
    any_horizon: ClassVar[bool] = False
    """Whether a state can forecast any number of steps ahead, not only the trained horizon."""
    any_step: ClassVar[bool] = False
    """Whether it learns from weekly counts as from daily ones."""
    reads_history: ClassVar[bool] = False
    """Whether it reads the data vintages of a panel, if there are any."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    # Required.

    @abstractmethod
    def view(self, panel: CasePanel, period: Period) -> V:
        """The training data of the period; only smoothing may read later days.

        Parameters
        ----------
        panel : CasePanel
            Cases [regions, steps].
        period : (date, date)
            First and last day of the training.

        Returns
        -------
        View
            One row for each region.
        """

    @abstractmethod
    def empty_view(self) -> V:
        """The view without clients, which gives the length of a contribution.

        Returns
        -------
        View
            No row.
        """

    @abstractmethod
    def start(self, seeds: np.random.SeedSequence) -> S:
        """The state w₀ before the first round.

        Parameters
        ----------
        seeds : SeedSequence
            For random initial values.

        Returns
        -------
        state
            The same for the same seeds.
        """

    @abstractmethod
    def contribute(self, state: S, view: V) -> Vector:
        """One vector for each client of the view, not yet clipped: [clients, length].

        Parameters
        ----------
        state : state
            The state of this round.
        view : View
            One row for each client.

        Returns
        -------
        array, float32 [clients, length]
            Finite numbers, the same in any cohort.
        """

    @abstractmethod
    def step(self, state: S, release: Vector, noise_std: float) -> S:
        """The next state, from the noisy mean of contributions [length].

        `noise_std` is the public standard deviation of the noise on each value. With aggregators
        every party repeats this computation and must get the same bits. Sums and products of single
        numbers are the same on any processor; linear algebra libraries are not.

        Parameters
        ----------
        state : state
            The state of this round.
        release : array, float32 [length]
            The mean of contributions, with noise.
        noise_std : float
            Of each value, in units of the contribution.

        Returns
        -------
        state
            The state of the next round.
        """

    @abstractmethod
    def predict(self, state: S, inputs: Vector) -> Floats:
        """Forecasts [...] at the trained horizon for windows [..., H] of case counts.

        Parameters
        ----------
        state : state
            The trained state.
        inputs : array, float32 [..., H]
            Cases a day, or a week.

        Returns
        -------
        array, float64 [...]
            Cases a day, or a week, of at least 0.
        """

    @abstractmethod
    def hindcast(self, panel: CasePanel, state: S, horizon: int) -> Floats:
        """Forecasts from each of the last steps, ending with the panel's last: [regions, steps].

        Parameters
        ----------
        panel : CasePanel
            Cases [regions, steps].
        state : state
            As of the panel's last day.
        horizon : int
            Steps ahead.

        Returns
        -------
        array, float64 [regions, steps]
            Cases a day, or a week, of at least 0.
        """

    # Optional: settings.

    @classmethod
    def at(cls, step: Step) -> "type[Learner[Any, Any]]":
        """The class for this name and step; raises an error if there is none.

        Parameters
        ----------
        step : {"day", "week"}
            What one count is of.

        Returns
        -------
        type
            A learner class.

        Raises
        ------
        EpifedError
            If this learner does not learn from such counts.
        """
        if step == "day" or cls.any_step:
            return cls
        raise EpifedError(
            f"learner: found '{cls.name}' with counts of weeks; expected one that learns from "
            "weeks, such as trend or fedavg"
        )

    @classmethod
    def preset(cls, clients: int, given: Mapping[str, Any]) -> dict[str, Any]:
        """Recommended settings of this learner for so many clients and the given settings.

        Parameters
        ----------
        clients : int
            N, all clients.
        given : mapping
            Settings that are given already.

        Returns
        -------
        dict
            Settings by name.
        """
        del clients, given
        return {"learner": cls.name}

    @classmethod
    def facts(cls, panel: CasePanel) -> dict[str, Any]:
        """Settings from public facts of a panel's regions, never from cases; none by default.

        Parameters
        ----------
        panel : CasePanel
            Only its public facts may be read.

        Returns
        -------
        dict
            Settings by name.
        """
        del panel
        return {}

    @classmethod
    def check_own(cls, values: Mapping[str, Any], settings: Settings) -> Own:
        """The learner's own settings with defaults; a ValueError names an invalid one.

        Parameters
        ----------
        values : mapping
            The learner's own settings by name.
        settings : Settings
            All others.

        Returns
        -------
        Own
            The checked settings.

        Raises
        ------
        ValueError
            If a setting is unknown or out of its range.
        """
        try:
            own = cls.own_settings(**values)
        except ValidationError as error:
            names = ", ".join([*Settings.model_fields, *cls.own_settings.model_fields])
            raise ValueError(sentence_of(error, f"one of {names}")) from None
        del settings
        return own

    def fingerprint(self) -> str:
        """A hash of anything else that forecasts depend on, such as a file; empty by default.

        Returns
        -------
        str
            Empty if forecasts depend on settings and data alone.
        """
        return ""

    def title(self) -> str:
        """A short title of the learner, for tables.

        Returns
        -------
        str
            The name by default.
        """
        return self.name

    # Optional: what is read and sent.

    def deployed_view(self, panel: CasePanel, period: Period) -> V:
        """The view for a training for use, of all days of the period and no others.

        Implausible counts are replaced. An experiment reads the data unchanged.

        Parameters
        ----------
        panel : CasePanel
            Cases [regions, steps].
        period : (date, date)
            First and last day of the training.

        Returns
        -------
        View
            One row for each region.
        """
        return self.view(clean(panel.between(*period)).panel, period)

    def entries(self, length: int) -> tuple[str, ...]:
        """A short description of each number of a contribution.

        Parameters
        ----------
        length : int
            Numbers in a contribution.

        Returns
        -------
        tuple of str
            One text for each number.
        """
        return tuple(f"number {i + 1} of {length}" for i in range(length))

    # Optional: the state.

    def pack(self, state: S) -> Vector:
        """The state as one vector for files and messages; by default a state is an array.

        Parameters
        ----------
        state : state
            Any state of this learner.

        Returns
        -------
        array, float32 [length]
            What a release file contains.
        """
        return np.asarray(state, dtype=np.float32).ravel()

    def unpack(self, vector: Vector) -> S:
        """The state from a packed vector; a vector of another length is refused.

        Parameters
        ----------
        vector : array, float32 [length]
            As `pack` returns it.

        Returns
        -------
        state
            The same state.

        Raises
        ------
        EpifedError
            If the vector has another length.
        """
        like: Any = np.asarray(self.start(np.random.SeedSequence(0)))
        self.refuse_length(vector, like.size)
        state: Any = vector.reshape(like.shape).astype(like.dtype)
        return cast(S, state)

    def advance(self, state: S, days: int) -> S:
        """The state `days` later; unchanged by default.

        Parameters
        ----------
        state : state
            A state as of some day.
        days : int
            At least 0.

        Returns
        -------
        state
            As of so many days later.
        """
        del days
        return state

    def again(self, state: S) -> S:
        """The state with its counters of rounds reset, from which a new training continues.

        Parameters
        ----------
        state : state
            A trained state.

        Returns
        -------
        state
            The start of a training that continues it.
        """
        return state

    def join(self, earlier: S, fresh: S) -> S:
        """Combine an earlier state, advanced to the same day, with a new one; here the new one.

        Parameters
        ----------
        earlier : state
            Advanced to the day of the new one.
        fresh : state
            The new one.

        Returns
        -------
        state
            Both together.
        """
        del earlier
        return fresh

    # Optional: the forecast.

    def quantiles(
        self, panel: CasePanel, state: S, horizon: int, level: Level | None = None
    ) -> tuple[Floats, Floats] | None:
        """Points and quantiles of a forecast, from a learner that estimates its own uncertainty.

        None: quantiles are computed from past errors of `hindcast`.

        Parameters
        ----------
        panel : CasePanel
            Cases [regions, steps].
        state : state
            As of the panel's last day.
        horizon : int
            Steps ahead.
        level : Level, optional
            Sums of regions to forecast instead of the regions.

        Returns
        -------
        (array [regions], array [regions, levels]), or None
            Cases a day, or a week, at `epifed.intervals.LEVELS`.
        """
        del panel, state, horizon, level
        return None

    def informed(self, state: S) -> int | None:
        """Days since the first release that past forecasts used; none: all used one.

        Parameters
        ----------
        state : state
            As of the panel's last day.

        Returns
        -------
        int or None
            Days.
        """
        del state
        return None

    def surprises(self, state: S, horizon: int) -> Floats:
        """Errors of past forecasts of all clients together, as far as releases show them.

        [errors, 2]: the unforeseen log change, and the variance of the noise in it.

        Parameters
        ----------
        state : state
            As of the panel's last day.
        horizon : int
            Steps ahead.

        Returns
        -------
        array, float64 [errors, 2]
            Log change, and variance.
        """
        del state, horizon
        return np.zeros((0, 2))

    def completed(self, panel: CasePanel, state: S) -> CasePanel:
        """The panel with late days completed; unchanged by default.

        Parameters
        ----------
        panel : CasePanel
            Cases [regions, steps], with its vintages.
        state : state
            As of the panel's last day.

        Returns
        -------
        CasePanel
            The same regions and steps.
        """
        del state
        return panel

    def parts(self, panel: CasePanel, state: S, horizon: int) -> Parts | None:
        """The parts of the last day's forecast change; none if the learner cannot tell.

        Parameters
        ----------
        panel : CasePanel
            Cases [regions, steps].
        state : state
            As of the panel's last day.
        horizon : int
            Steps ahead.

        Returns
        -------
        Parts or None
            Log changes [regions].
        """
        del panel, state, horizon
        return None

    def signal(self) -> Signal | None:
        """The signal with which noise is compared before a training; none if not known.

        Returns
        -------
        Signal or None
            As a log change.
        """
        return None

    def beside(self) -> dict[str, Baseline]:
        """Baselines that are useful only beside this learner.

        Returns
        -------
        dict
            Functions by name.
        """
        return {}

    # The same for all learners.

    @classmethod
    def abilities(cls) -> tuple[str, ...]:
        """The names of the optional methods that this learner overrides.

        Returns
        -------
        tuple of str
            Keys of `ABILITIES`.
        """
        return tuple(
            name for name in cls.ABILITIES if _plain(cls, name) is not _plain(Learner, name)
        )

    def compatible(self, other: "Learner[Any, Any]") -> bool:
        """Whether this learner can continue a state of the other learner.

        Parameters
        ----------
        other : Learner
            The learner that made the state.

        Returns
        -------
        bool
            Same title, window, step and length of the state.
        """
        own, theirs = (
            (learner.title(), learner.settings.window, learner.settings.step)
            for learner in (self, other)
        )
        return own == theirs and self.pack_length() == other.pack_length()

    def pack_length(self) -> int:
        """The length of a packed state.

        Returns
        -------
        int
            Numbers in a packed state.
        """
        return len(self.pack(self.start(np.random.SeedSequence(0))))

    def refuse_length(self, vector: Vector, expected: int) -> None:
        """Refuse a packed state of another shape than this learner's.

        Parameters
        ----------
        vector : array, float32
            A packed state.
        expected : int
            Its length.

        Raises
        ------
        EpifedError
            If it has another length.
        """
        if vector.shape != (expected,):
            raise EpifedError(
                f"state: found {vector.size} numbers of shape {vector.shape} for learner "
                f"'{self.name}'; expected {expected}"
            )


def _plain(kind: type[Any], name: str) -> Any:
    """The function behind a method, without the class to which it is bound."""
    method = getattr(kind, name)
    return getattr(method, "__func__", method)


class WindowLearner(Learner[S, Windows]):
    """A learner that reads windows, forecasts one horizon, and trains from the start each time.

    Subclasses write `start`, `contribute`, `step` and `predict`.

    Parameters
    ----------
    settings : Settings
        `window` H and `horizon` P, in days or weeks.

    Examples
    --------
    >>> from epifed.registry import LEARNERS
    >>> issubclass(LEARNERS.load("one-shot"), WindowLearner)
    True
    """

    def view(self, panel: CasePanel, period: Period) -> Windows:
        """All windows of the period."""
        return slide(panel, self.settings, period)

    def empty_view(self) -> Windows:
        """Windows of no client."""
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


def settings_for(panel: CasePanel, *mappings: Mapping[str, Any]) -> Settings:
    """The settings for a panel's regions: the learner's preset, overridden by each mapping."""
    steps = [values["step"] for values in mappings if "step" in values]
    if steps and steps[-1] != panel.step:
        raise EpifedError(
            f"step: found '{steps[-1]}'; expected '{panel.step}', which {panel.source} counts"
        )
    named = [values["learner"] for values in mappings if "learner" in values]
    learner: type[Learner[Any, Any]] = LEARNERS.load(str(named[-1] if named else DEFAULT_LEARNER))
    step: dict[str, Any] = {} if panel.step == "day" else {"step": panel.step}
    facts = step | learner.at(panel.step).facts(panel)
    return Settings.resolve(len(panel.regions), facts, *mappings)


def recency(windows: Windows, half_life: float | None, settings: Settings) -> Vector:
    """A weight for each window: 1 for a client's newest, halved with every half-life of age.

    The half-life is in steps; newer windows are more relevant in a changing epidemic. Padding has
    weight 0. With the shuffled split, test windows lie between the others, so all weights are 1.
    """
    real = windows.mask.astype(np.float32)
    if half_life is None or settings.split == "shuffled" or real.size == 0:
        return real
    days = windows.target_days.astype("datetime64[D]").astype(np.int64)
    newest = np.where(windows.mask, days, np.iinfo(np.int64).min).max(axis=1, keepdims=True)
    age = np.where(windows.mask, newest - days, 0) / DAYS_OF[settings.step]
    weight: Vector = real * np.exp2(-age / half_life).astype(np.float32)
    return weight
