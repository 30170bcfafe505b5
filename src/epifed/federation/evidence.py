"""The rule that closes a round with aggregators, and the check of a release made by it.

The server closes each round with `close_round`. Every party that gets the release does the same
with the aggregators' signed sums, so an untrusted server cannot invent one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epifed.errors import EpifedError
from epifed.federation.messages import (
    Code,
    Evidence,
    MessageError,
    PartialSum,
    RoundTerms,
    signed_sums,
    state_digest,
)
from epifed.learners.base import make_learner
from epifed.privacy.noise import SecureRandomness
from epifed.privacy.plan import PrivacyPlan
from epifed.settings import Settings, of_training
from epifed.training.release import Release
from epifed.training.rounds import Rounds


@dataclass(frozen=True)
class Closed:
    """The result of a round with aggregators."""

    state: Any
    released: NDArray[np.float64] | None
    """The noisy mean; None if the round could not be used."""
    code: Code | None = None
    """Why the round could not be used."""


def close_round(
    terms: RoundTerms, sums: Sequence[PartialSum], rounds: Rounds[Any], state: Any
) -> Closed:
    """The state after a round from its signed sums; the server and all parties use this rule."""
    if min(each.statement.opened for each in sums) < terms.least:
        return Closed(state, None, Code.TOO_FEW)
    total = np.zeros(terms.length, dtype=np.uint64)
    for each in sums:
        total += each.total
    steps = total.view(np.int64)
    if not rounds.plausible(steps, terms.enrolled):
        return Closed(state, None, Code.TOTAL)
    released = rounds.released(steps)
    return Closed(rounds.close_sum(state, released), released)


def replay(evidence: Evidence, rounds: Rounds[Any], start: Any) -> tuple[Any, int]:
    """The state that the signed sums give, and the number of rounds that could not be used.

    Raises `MessageError` unless the sums are exactly the rounds of one training, in order. Each
    must start from the state before it and be signed by every aggregator of the terms.
    """
    first, state, unused = evidence.first, start, 0
    if first.round != 1 or first.length != rounds.length:
        raise MessageError(Code.INVENTED, "found the terms of another round or model")
    for number, content in enumerate(evidence.rounds(), start=1):
        now = first.in_round(number, rounds.learner.pack(state))
        closed = close_round(now, signed_sums(now, content), rounds, state)
        # As on the server, which keeps the packed state of each round.
        state = rounds.learner.unpack(rounds.learner.pack(closed.state))
        unused += closed.released is None
    return state, unused


def first_state(settings: Settings) -> str:
    """Digest of the state from which a training with these settings starts."""
    learner = make_learner(settings)
    return state_digest(learner.pack(learner.start(of_training(settings.seed)[0])))


def refuse_invented(release: Release, training: str, evidence: Evidence) -> None:
    """Refuse a release that is not, byte for byte, what its aggregators' signed sums give.

    The state is computed again from the first state, which is public, by the learner's own steps. A
    release that continues another one is refused too: federations make none.
    """
    settings, first = release.settings, evidence.first
    plan = PrivacyPlan.of(settings, release.clients)
    label = (training, str(release.first_day), str(release.last_day), release.randomness)
    agreed = (first.training, first.first_day, first.last_day, first.randomness)
    (cost, *others) = release.spent
    try:
        same = Settings.from_toml(first.settings) == settings
    except EpifedError:
        same = False
    if (
        not same
        or label != agreed
        or (plan.rounds, plan.clients) != (first.rounds, first.enrolled)
        or plan.noise != "aggregators"
        or plan.aggregators != len(first.aggregators)
        or not math.isclose(first.noise_multiplier, plan.noise_multiplier, rel_tol=1e-9)
        or not math.isclose(first.noise_multiplier, cost.noise_multiplier, rel_tol=1e-9)
        or cost.sampling_rate != plan.priced_rate
        or cost.rounds < plan.rounds
        or others
        or release.continues is not None
    ):
        raise MessageError(
            Code.INVENTED,
            f"{training}: found a label that is not that of the signed sums (label: "
            f"{release.sentence()}); expected their settings, days, clients, noise and rounds",
        )
    learner = make_learner(settings)
    start = learner.start(of_training(settings.seed)[0])
    rounds = Rounds.of(learner, plan.announced(first.noise_multiplier), SecureRandomness(), start)
    state, unused = replay(evidence, rounds, start)
    vector = np.ascontiguousarray(learner.pack(state), dtype=np.float32)
    if (vector.tobytes(), unused) != (release.vector.tobytes(), release.unused):
        raise MessageError(
            Code.INVENTED,
            f"{training}: found another state or number of unused rounds than the signed sums "
            "give; expected theirs",
        )
