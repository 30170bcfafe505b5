"""A training in one process: Algorithm 1 with every cohort as one stack of vectors."""

import hashlib
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from epifed.errors import EpifedError
from epifed.learner import Learner, Period, Vector, View, make_learner
from epifed.ledger.book import Key
from epifed.ledger.ledger import Ledger, Run
from epifed.privacy.accounting import Calibration
from epifed.privacy.plan import PrivacyPlan
from epifed.privacy.randomness import Randomness, SecureRandomness, SeededRandomness
from epifed.rounds import Rounds, contribution
from epifed.seeds import seed_sequence
from epifed.settings import Settings

Watch = Callable[[int, Any], None]
RandomnessName = Literal["seeded", "secure"]


@dataclass(frozen=True)
class Training:
    """A finished training: the state w, what it cost, and who came to each round."""

    state: Any
    learner: Learner[Any, Any]
    settings: Settings
    plan: PrivacyPlan
    cohort_sizes: tuple[int, ...]
    randomness: str
    """`seeded`: an experiment, its noise can be predicted. `secure`: fit for release."""
    ledger_run: str | None = None
    """The run in the budget ledger that paid for it, if one did."""

    @property
    def calibration(self) -> Calibration:
        """What it cost."""
        return self.plan.price(len(self.cohort_sizes))

    @property
    def vector(self) -> Vector:
        """The state as files carry it."""
        return self.learner.pack(self.state)

    @property
    def state_hash(self) -> str:
        """A SHA-256 of the state."""
        return hash_of(self.vector)

    def predict(self, inputs: NDArray[np.float32]) -> NDArray[np.float64]:
        """Forecasts [...] for windows [..., H] of case counts."""
        return self.learner.predict(self.state, inputs)

    def __repr__(self) -> str:
        """The learner, and what it cost."""
        return f"Training({self.learner.title()}, {self.calibration.sentence()})"


def train(
    view: View,
    settings: Settings,
    *,
    seeds: np.random.SeedSequence | None = None,
    learner: Learner[Any, Any] | None = None,
    start: Any = None,
    watch: Watch | None = None,
    secure: bool = False,
    ledger: Ledger | None = None,
    period: Period | None = None,
) -> Training:
    """Train on what the learner reads of the clients, a row of the view for each.

    `watch(i, w)` sees the state before round 1 and after each round. `start` continues from the
    public state of an earlier training instead of the learner's own. `secure` takes sampling and
    noise from the system's secure generator instead of the seeds. A `ledger` pays for the whole
    training before round 1, or refuses it, and writes each round down before its noise is drawn;
    a training worth paying for is secure.
    """
    secure = secure or ledger is not None
    plan = PrivacyPlan.of(settings, len(view))
    if secure:
        refuse_unreleasable(plan)
    initial, sampling, noise = (seeds or seed_sequence(settings.seed)).spawn(3)
    learner = learner or make_learner(settings)
    randomness: Randomness = SecureRandomness() if secure else SeededRandomness(sampling, noise)
    state = learner.start(initial) if start is None else start
    rounds = Rounds.of(learner, plan, randomness, state)
    cohort_sizes = []
    with ExitStack() as closing:
        run: Run | None = None
        if ledger:
            key = ledger_key(plan, settings, period)
            run = closing.enter_context(ledger.reserve(rounds=plan.rounds, **key))
        if watch:
            watch(0, state)
        for i in range(1, plan.rounds + 1):
            cohort = rounds.draw()
            updates = contribution(learner, state, view.of(cohort), plan)
            if run:
                run.spend(i)
            state = rounds.close(state, updates)
            cohort_sizes.append(len(cohort))
            if watch:
                watch(i, state)
        if run:
            run.finish(hash_of(learner.pack(state)))
    name = run.name if run else None
    return Training(state, learner, settings, plan, tuple(cohort_sizes), randomness.name, name)


def refuse_unreleasable(plan: PrivacyPlan) -> None:
    """Refuse a plan whose result cannot be released with noise of the secure generator."""
    if not plan.private:
        raise EpifedError("epsilon: found inf; expected a finite budget for a secure release")
    if plan.noise != "server":
        raise EpifedError(
            f"noise: found '{plan.noise}'; expected 'server' for a secure release: the other "
            "kinds are for comparison in experiments"
        )


def ledger_key(
    plan: PrivacyPlan, settings: Settings, period: Period | None, training: str = ""
) -> Key:
    """Everything that prices a training and says which it is, as a ledger finds it again."""
    first, last = period or (None, None)
    return {
        "training": training,
        "sampling_rate": plan.priced_rate,
        "noise_multiplier": plan.noise_multiplier,
        "settings_hash": settings.digest(),
        "first_day": first,
        "last_day": last,
    }


def hash_of(vector: Vector) -> str:
    """A SHA-256 of a packed state."""
    return hashlib.sha256(np.ascontiguousarray(vector).tobytes()).hexdigest()
