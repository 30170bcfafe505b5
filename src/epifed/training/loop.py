"""A training in one process: Algorithm 1 with the updates of a cohort as one stack of vectors.

`expect` estimates before a training how much of a release the noise will hide."""

import math
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epifed.data.panel import CasePanel
from epifed.errors import EpifedError, counted
from epifed.learners.base import (
    Learner,
    Period,
    Vector,
    View,
    WindowLearner,
    Windows,
    last_learned,
    make_learner,
    slide,
)
from epifed.ledger.budget import Key
from epifed.ledger.ledger import Ledger, Run
from epifed.privacy.accounting import Calibration
from epifed.privacy.noise import (
    Randomness,
    SecureRandomness,
    SeededRandomness,
    refuse_without_noise,
)
from epifed.privacy.plan import PrivacyPlan
from epifed.settings import NoiseName, Settings, seed_sequence
from epifed.training.public_inputs import ReleasableData
from epifed.training.release import Release
from epifed.training.rounds import Rounds, contribution


@dataclass(frozen=True)
class Clients:
    """The N clients of an experiment, with their training and test windows.

    Parameters
    ----------
    view : View
        The training data in the form that the learner reads.
    train, test : Windows
        Inputs [N, windows, H] and targets [N, windows] of the training and of the test days.
    regions, names : tuple of str
        Ids and names of the clients.
    population : array [N], optional
        Inhabitants of each client.
    parents : tuple of str
        The larger region of each client, if there is one.

    Examples
    --------
    >>> from epifed.settings import Settings
    >>> from epifed.simulate import SimulationSettings, simulate
    >>> panel = simulate(SimulationSettings(counties=12, communities=24, seed=1)).county_panel
    >>> len(make_clients(panel, Settings.paper()))
    12
    """

    view: View
    """The training data in the form that the learner reads."""
    train: Windows
    """Windows of the training days, for baselines and training errors."""
    test: Windows
    regions: tuple[str, ...]
    names: tuple[str, ...]
    population: NDArray[np.int64] | None
    parents: tuple[str, ...] = ()

    def __len__(self) -> int:
        """N_total of the paper."""
        return len(self.regions)

    def __repr__(self) -> str:
        """The number of clients, and of training and test windows of each."""
        train, test = self.train.mask.shape[1], self.test.mask.shape[1]
        each = f"{counted(train, 'window')} to train and {test} to test each"
        return f"Clients({counted(len(self), 'client')}, {each})"


def make_clients(
    panel: CasePanel,
    settings: Settings,
    period: Period | None = None,
    shuffle: np.random.Generator | None = None,
) -> Clients:
    """Cut a panel into clients, each with training and test windows of the period.

    Parameters
    ----------
    panel : CasePanel
        New cases [regions, days].
    settings : Settings
        `window` H and `horizon` P in days, `split`, and `train_share`, the share of training
        windows.
    period : (date, date), optional
        First and last day; by default all of the panel.
    shuffle : Generator, optional
        Draws the shuffled split; by default the seed of the settings does.

    Returns
    -------
    Clients
        One client for each region.

    Raises
    ------
    EpifedError
        If no window is left to train or to test.

    Examples
    --------
    >>> from epifed.settings import Settings
    >>> from epifed.simulate import SimulationSettings, simulate
    >>> panel = simulate(SimulationSettings(counties=12, communities=24, seed=1)).county_panel
    >>> make_clients(panel, Settings.paper()).train.inputs.shape[0]
    12
    """
    period = period or (panel.start, panel.end)
    every = slide(panel, settings, period)
    per_client = every.mask.shape[1]
    n_train = int(per_client * settings.train_share)
    if n_train in (0, per_client):
        raise EpifedError(
            f"train_share: found {settings.train_share:g} of {counted(per_client, 'window')}, "
            "which leaves "
            f"{n_train} to train and {per_client - n_train} to test; expected at least one each"
        )
    order = np.broadcast_to(np.arange(per_client), every.mask.shape)
    if settings.split == "shuffled":
        order = (shuffle or np.random.default_rng(settings.seed)).permuted(order, axis=1)
    train, test = every.pick(order[:, :n_train]), every.pick(order[:, n_train:])
    return Clients(
        _view(panel, settings, period, train),
        train,
        test,
        panel.regions,
        panel.names,
        panel.population,
        panel.parents,
    )


def _view(panel: CasePanel, settings: Settings, period: Period, train: Windows) -> View:
    learner = make_learner(settings)
    if isinstance(learner, WindowLearner):
        return train
    if settings.split == "shuffled":
        raise EpifedError(
            f"learner: found '{settings.learner}' with the shuffled split, which cuts the last "
            "days up; expected the temporal split"
        )
    view: View = learner.view(panel, (period[0], last_learned(panel, settings, period)))
    return view


Watch = Callable[[int, Any], None]


@dataclass(frozen=True)
class Training:
    """A finished training: the state w, its privacy cost, and the size of each round's cohort.

    Parameters
    ----------
    state : object
        What the learner made of all releases.
    learner : Learner
        It predicts from the state.
    settings : Settings
        All settings of the training.
    plan : PrivacyPlan
        What ran and what it costs.
    cohort_sizes : tuple of int
        The clients that took part in each round.
    randomness : {"seeded", "secure"}
        Seeded noise is predictable: for experiments.
    release : Release, optional
        The release; none without the days of the training.

    Examples
    --------
    >>> from epifed.api import train
    >>> from epifed.simulate import SimulationSettings, simulate
    >>> panel = simulate(SimulationSettings(counties=12, communities=24, seed=1)).county_panel
    >>> train(panel, learner="trend", epsilon=1.0).calibration.epsilon_spent <= 1.0
    True
    """

    state: Any
    learner: Learner[Any, Any]
    settings: Settings
    plan: PrivacyPlan
    cohort_sizes: tuple[int, ...]
    randomness: str
    """`seeded`: the noise is predictable, for experiments. `secure`: fit for release."""
    release: Release | None = None
    """The release; none without the days of the training."""

    @property
    def calibration(self) -> Calibration:
        """The privacy cost of the rounds that ran."""
        return self.plan.price(len(self.cohort_sizes))

    @property
    def vector(self) -> Vector:
        """The state as one vector, as files store it."""
        return self.learner.pack(self.state)

    @property
    def ledger_run(self) -> str | None:
        """The run in the budget ledger to which the training was charged; none without a ledger."""
        return self.release.ledger_run if self.release else None

    def predict(self, inputs: NDArray[np.float32]) -> NDArray[np.float64]:
        """Forecasts [...] for windows [..., H] of case counts."""
        return self.learner.predict(self.state, inputs)

    def save(self, path: Path | str) -> None:
        """Write the release file, which `read_release` and `epifed forecast` read.

        A release with seeded noise must not be handed out, and its label says so.
        """
        if self.release is None:
            raise EpifedError(
                "save: found a training of an experiment's clients, which is of no known days; "
                "expected one of a panel: train(panel, …)"
            )
        self.release.write(Path(path))

    def __repr__(self) -> str:
        """The learner and the privacy cost."""
        return f"Training({self.learner.title()}, {self.calibration.sentence()})"


def train(
    view: View,
    settings: Settings,
    *,
    seeds: np.random.SeedSequence | None = None,
    learner: Learner[Any, Any] | None = None,
    earlier: Release | None = None,
    watch: Watch | None = None,
    secure: bool = False,
    ledger: Ledger | None = None,
    period: Period | None = None,
    absent: Collection[int] = (),
    plan: PrivacyPlan | None = None,
) -> Training:
    """Train on a view of the clients, with one row for each client.

    `watch(i, w)` is called with the state before round 1 and after each round. `period` is the
    days of the view; without it there is no release. `earlier` is a release to continue. `secure`
    draws clients and noise from the system's secure generator instead of the seeds. A `ledger`
    reserves the whole training before round 1, or refuses it. It records each round before the
    round's noise is drawn, and at the end the hash of the release. A training with a ledger is
    secure, and continues only a release of the same ledger. `absent` are rows of clients without
    data. Their vectors are zero, so one client moves the sum by S at most, not by the difference
    of two vectors. `plan` replaces the plan of the settings in an experiment.
    """
    secure = secure or ledger is not None
    plan = plan or PrivacyPlan.of(settings, len(view))
    if secure:
        refuse_unreleasable(plan)
    if ledger and period is None:
        raise EpifedError(
            "period: found none; expected the days of a training that is charged to a ledger"
        )
    if earlier and period is None:
        raise EpifedError("period: found none; expected the days of a training that continues")
    if ledger and earlier:
        earlier.refuse_continuing(ledger)
    initial, sampling, noise = (seeds or seed_sequence(settings.seed)).spawn(3)
    learner = learner or make_learner(settings)
    randomness: Randomness = SecureRandomness() if secure else SeededRandomness(sampling, noise)
    state = earlier.as_of(settings, period[1]) if earlier and period else learner.start(initial)
    rounds = Rounds.of(learner, plan, randomness, state)
    cohort_sizes = []
    release = None
    with ExitStack() as closing:
        run: Run | None = None
        if ledger:
            key = ledger_key(plan, settings, period)
            run = closing.enter_context(ledger.reserve(rounds=plan.rounds, **key))
        if watch:
            watch(0, state)
        for i in range(1, plan.rounds + 1):
            cohort = rounds.draw()
            present = cohort[~np.isin(cohort, list(absent))]
            updates = contribution(learner, state, view.of(present), plan, alone=secure)
            if run:
                run.spend(i)
            state = rounds.close(state, updates)
            cohort_sizes.append(len(cohort))
            if watch:
                watch(i, state)
        if period is not None:
            release = Release.of(
                learner,
                state,
                plan,
                paid=plan.rounds,
                period=period,
                randomness=randomness.name,
                ledger_run=run.name if run else None,
                earlier=earlier,
            )
        if run and release:
            run.finish(release.sha256)
    sizes = tuple(cohort_sizes)
    return Training(state, learner, settings, plan, sizes, randomness.name, release)


def train_releasable(
    data: ReleasableData,
    settings: Settings,
    ledger: Ledger,
    *,
    earlier: Release | None = None,
    watch: Watch | None = None,
) -> Training:
    """Train on data with given days and regions, charged to a ledger, with secure noise."""
    return train(
        data.view(make_learner(settings)),
        settings,
        earlier=earlier,
        watch=watch,
        ledger=ledger,
        period=data.period,
        absent=tuple(int(row) for row in data.absent),
    )


def refuse_unreleasable(plan: PrivacyPlan, noise: NoiseName = "server") -> None:
    """Refuse a plan that cannot be released with secure noise added by this kind of party."""
    if not plan.private:
        raise EpifedError("epsilon: found inf; expected a finite budget for a secure release")
    if plan.noise != noise:
        raise EpifedError(
            f"noise: found '{plan.noise}'; expected '{noise}' for a secure release: aggregators "
            "are parties of a federation, and the other kinds are for comparison in experiments"
        )
    if noise == "server":
        refuse_without_noise()


def ledger_key(
    plan: PrivacyPlan, settings: Settings, period: Period | None, training: str = ""
) -> Key:
    """The privacy parameters, settings hash and days by which a ledger recognises a training."""
    first, last = period or (None, None)
    return {
        "training": training,
        "sampling_rate": plan.priced_rate,
        "noise_multiplier": plan.noise_multiplier,
        "settings_hash": settings.digest(),
        "first_day": first,
        "last_day": last,
    }


GOOD = 0.9
"""The share of signal from which noise hardly matters: its deviation is a third of the signal's."""
POOR = 0.5
LARGEST_EPSILON = 64.0
"""Larger ε give no useful guarantee and are not suggested."""
MOST_PERCENT = 1000
"""Above this, the effect of noise is printed as "more than"."""


@dataclass(frozen=True)
class NoisePreview:
    """The noise of a plan against a learner's typical signal, and what would make it small."""

    clients: int
    epsilon: float
    signal: str
    """The quantity that the learner estimates, in words."""
    typical: float
    noise: float
    """Standard deviations of the signal, and of the noise on it, as log changes."""
    epsilon_for_good: float | None
    clients_for_good: int | None
    """The ε, or number of clients, from which noise hardly matters; none where it is so already."""

    @property
    def believed(self) -> float:
        """The share of a release's variance that is signal."""
        return self.typical**2 / (self.typical**2 + self.noise**2)

    def to_dict(self) -> dict[str, Any]:
        """The fields, the share of signal and the sentence, for JSON."""
        return asdict(self) | {"believed": self.believed, "sentence": self.sentence()}

    def sentence(self) -> str:
        """The expected noise in one sentence."""
        share = "less than 1 %" if self.believed < 0.01 else f"{100 * self.believed:.0f} %"
        verdict = f"{share} of the release is signal"
        if self.believed < POOR:
            verdict = f"noise hides most of it; {verdict}"
        advice = ""
        if self.clients_for_good is not None:
            wanted = [counted(self.clients_for_good, "client")]
            if self.epsilon_for_good is not None:
                wanted.insert(0, f"ε = {self.epsilon_for_good:.2g}")
            advice = f"; {' or '.join(wanted)} would make it {100 * GOOD:.0f} %"
        return (
            f"With {counted(self.clients, 'client')} and ε = {self.epsilon:g}, noise moves "
            f"{self.signal} by {_about(self.noise)}, where ±{_percent(self.typical)} is typical: "
            f"{verdict}{advice}.{ALONE if self.believed < POOR else ''}"
        )


ALONE = " A forecast of your own file needs no noise: 'epifed forecast --data FILE'."
"""The advice where noise hides most of the signal."""


def _about(log_change: float) -> str:
    """The effect of noise in per cent, up to `MOST_PERCENT`."""
    if log_change > math.log1p(MOST_PERCENT / 100):
        return f"more than ±{MOST_PERCENT:,} %"
    return f"about ±{_percent(log_change)}"


def _percent(log_change: float) -> str:
    """A log change in per cent."""
    share = 100 * math.expm1(log_change)
    return f"{share:.0f} %" if share >= 9.5 else f"{share:.2g} %"


def expect(learner: Learner[Any, Any], plan: PrivacyPlan) -> NoisePreview | None:
    """Estimate the noise of a private plan; none if the learner names no typical signal."""
    signal = learner.signal()
    if signal is None or not plan.private:
        return None
    noise = signal.scale * plan.noise_std(plan.clients_per_round)
    most = signal.typical * math.sqrt(1 / GOOD - 1)
    found = NoisePreview(plan.clients, plan.epsilon, signal.name, signal.typical, noise, None, None)
    if noise <= most:
        return found
    return replace(
        found,
        epsilon_for_good=_epsilon(plan, most / signal.scale),
        clients_for_good=math.ceil(plan.clients * noise / most),
    )


def _epsilon(plan: PrivacyPlan, most: float) -> float | None:
    """The smallest ε, to about 3 %, with noise of at most this; none up to `LARGEST_EPSILON`."""
    low = high = plan.epsilon
    while _noise(plan, high) > most:
        low, high = high, 2 * high
        if high > LARGEST_EPSILON:
            return None
    while high / low > 1.03:
        middle = float(f"{math.sqrt(low * high):.3g}")
        if _noise(plan, middle) <= most:
            high = middle
        else:
            low = middle
    return high


def _noise(plan: PrivacyPlan, epsilon: float) -> float:
    return replace(plan, epsilon=epsilon).noise_std(plan.clients_per_round)
