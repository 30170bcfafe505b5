"""What several trainings cost together, and what else fits under a cap.

Composition is not a sum: the ε of two trainings is less than the sum of theirs. So every question
is answered by composing all events that count and pricing the whole.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context
from functools import lru_cache

import dp_accounting as dp
from scipy.optimize import brentq

from epifed.errors import EpifedError, counted
from epifed.privacy.accounting import (
    NEIGHBOURING,
    UNIT,
    calibrate,
    epsilon_of,
    find_accountant,
    rounded_up,
    training_event,
)

Part = tuple[float, float, int]
"""Rounds of one mechanism: the sampling rate q, the noise multiplier c, how many."""
Spending = tuple[Part, ...]
"""Parts in a canonical order, so that the same rounds always have the same price."""

_ROUNDING = 1e-9
"""Relative: what the arithmetic of composing different mechanisms may have rounded away."""
_PRECISION = 1e-3
_LARGEST_NOISE = 1e6
_MOST_TRAININGS = 2**20


LARGEST_DELTA = 1e-2
"""No cap has a larger δ."""
LARGEST_USUAL_DELTA = 1e-3
"""A cap with a larger δ says what that means."""


@dataclass(frozen=True)
class Cap:
    """The (ε, δ) that all trainings of a federation together never pass."""

    epsilon: float
    delta: float
    accountant: str
    weeks: int | None = None
    """A cap that renews holds for every window of so many weeks; none: once and for all."""

    def __post_init__(self) -> None:
        """Refuse what is no cap."""
        if self.weeks is not None and self.weeks < 1:
            raise EpifedError(f"weeks: found {self.weeks}; expected at least 1, or none")
        if not 0 < self.epsilon < math.inf:
            raise EpifedError(
                f"epsilon: found {self.epsilon}; expected a finite number above 0: try 1"
            )
        if not 0 < self.delta <= LARGEST_DELTA:
            raise EpifedError(
                f"delta: found {self.delta}; expected a number above 0 and at most "
                f"{LARGEST_DELTA:g}: {_exposed(self.delta)}"
            )
        find_accountant(self.accountant)

    def price(self, spending: Spending) -> float:
        """The ε of all these rounds at this δ."""
        return _price(spending, self.delta, self.accountant)

    def allows(self, spending: Spending) -> bool:
        """Whether all these rounds stay within ε."""
        return self.price(spending) <= self.epsilon

    def sentence(self) -> str:
        """The cap as it must be quoted: with δ, neighbours and accountant."""
        return (
            f"ε = {rounded_up(self.epsilon)} at δ = {rounded_up(self.delta)} ({UNIT} added or "
            f"removed, {self.accountant.upper()} accountant)" + self._renewal()
        )

    def _renewal(self) -> str:
        if self.weeks is None:
            return ""
        return (
            f" in every window of {counted(self.weeks, 'week')}, which renews: it is weaker than "
            "a cap once and for all, because what is released over the years adds up without end"
        )

    def warning(self) -> str | None:
        """What a δ means that is larger than usual."""
        if self.delta <= LARGEST_USUAL_DELTA:
            return None
        return f"δ = {rounded_up(self.delta)} is large: {_exposed(self.delta)}"

    def to_dict(self) -> dict[str, object]:
        """The same for JSON."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "accountant": self.accountant,
            "neighbouring": NEIGHBOURING,
            "unit": UNIT,
            "weeks": self.weeks,
        }


@dataclass(frozen=True)
class Schedule:
    """So many equal trainings that fit under a cap, the noise of each and its ε alone."""

    releases: int
    noise_multiplier: float
    epsilon_each: float


def together(parts: Iterable[Part]) -> Spending:
    """Parts as one spending, equal mechanisms counted together."""
    counts: Counter[tuple[float, float]] = Counter()
    for sampling_rate, noise_multiplier, rounds in parts:
        counts[float(sampling_rate), float(noise_multiplier)] += rounds
    return tuple(
        (rate, noise, rounds) for (rate, noise), rounds in sorted(counts.items()) if rounds
    )


def least_noise(cap: Cap, spent: Spending, sampling_rate: float, rounds: int) -> float | None:
    """The smallest noise multiplier, to a thousandth, with which the rounds still fit."""
    if not spent:
        found = calibrate(cap.epsilon, cap.delta, sampling_rate, rounds, cap.accountant)
        return found.noise_multiplier

    def excess(log_c: float) -> float:
        spending = together((*spent, (sampling_rate, math.exp(log_c), rounds)))
        return math.log(max(cap.price(spending), cap.epsilon / 1e6) / cap.epsilon)

    if excess(math.log(_LARGEST_NOISE)) > 0:
        return None
    low, high = math.log(0.5), math.log(1.0)
    while excess(high) > 0:
        low, high = high, high + 1
    while excess(low) <= 0:
        low, high = low - 1, low
    log_c = brentq(excess, low, high, xtol=_PRECISION / 4)
    while excess(log_c) > 0:
        log_c += _PRECISION / 4
    return math.exp(log_c)


def most_rounds(
    cap: Cap, spent: Spending, sampling_rate: float, noise_multiplier: float, wanted: int
) -> int:
    """The largest number of rounds, at most `wanted`, that fits with this noise."""
    fits, too_many = 0, wanted + 1
    while too_many - fits > 1:
        rounds = (fits + too_many) // 2
        if cap.allows(together((*spent, (sampling_rate, noise_multiplier, rounds)))):
            fits = rounds
        else:
            too_many = rounds
    return fits


def most_trainings(
    cap: Cap, spent: Spending, sampling_rate: float, noise_multiplier: float, rounds: int
) -> int:
    """How many trainings of so many rounds fit with this noise."""

    def allowed(trainings: int) -> bool:
        part = (sampling_rate, noise_multiplier, trainings * rounds)
        return cap.allows(together((*spent, part)))

    if not allowed(1):
        return 0
    fits = 1
    while fits < _MOST_TRAININGS and allowed(2 * fits):
        fits *= 2
    step = fits // 2
    while step:
        if allowed(fits + step):
            fits += step
        step //= 2
    return fits


def schedule(
    cap: Cap, spent: Spending, sampling_rate: float, rounds: int, releases: int
) -> Schedule:
    """The noise with which so many equal trainings fit on top of what is spent."""
    noise = least_noise(cap, spent, sampling_rate, rounds * releases)
    if noise is None:
        raise EpifedError(
            f"no noise makes {counted(releases, 'training')} fit: ε = "
            f"{rounded_up(cap.price(spent))} of the "
            f"cap of {cap.sentence()} is taken"
        )
    each = cap.price(together([(sampling_rate, noise, rounds)]))
    return Schedule(releases=releases, noise_multiplier=noise, epsilon_each=each)


def refusal(cap: Cap, spent: Spending, wanted: Part) -> str:
    """Why a training does not fit under the cap, and what would."""
    rate, noise, rounds = wanted
    total = cap.price(together((*spent, wanted)))
    taken = cap.price(spent)
    fitting = []
    least = least_noise(cap, spent, rate, rounds)
    if least is not None:
        alone = cap.price(together([(rate, least, rounds)]))
        fitting.append(
            f"{counted(rounds, 'round')} with a noise multiplier of at least {rounded_up(least)} "
            f"(a training of at most ε = {rounded_down(alone)} by itself)"
        )
    fewer = most_rounds(cap, spent, rate, noise, rounds - 1) if noise > 0 else 0
    if fewer:
        fitting.append(f"{counted(fewer, 'round')} at this noise")
    return (
        f"this training would pass the cap of {cap.sentence()}: {counted(rounds, 'round')} with "
        "noise "
        f"multiplier c = {noise:.6g} at q = {rate:g} would bring ε to {rounded_up(total)}; taken "
        f"so far: ε = {rounded_up(taken)}, left: ε = {rounded_down(left(cap, taken))}; what would "
        f"fit: {', or '.join(fitting) or 'nothing'}"
    )


def left(cap: Cap, taken: float) -> float:
    """What is left of the cap."""
    return max(0.0, cap.epsilon - taken)


def rounded_down(epsilon: float) -> str:
    """Six digits of an ε that may still be spent, never more than it.

    >>> rounded_down(0.12345678)
    '0.123456'
    """
    return f"{float(Context(prec=6, rounding=ROUND_FLOOR).create_decimal(repr(epsilon))):g}"


def _exposed(delta: float) -> str:
    return (
        f"it allows that the data of each client come out whole with a chance of {delta:g}; δ "
        "should be far below one over the number of clients, as 1e-05"
    )


@lru_cache(maxsize=4096)
def _price(spending: Spending, delta: float, accountant: str) -> float:
    events = [training_event(*part) for part in spending]
    if not events:
        return 0.0
    if len(events) == 1:
        return epsilon_of(events[0], delta, accountant)
    return epsilon_of(dp.ComposedDpEvent(events), delta, accountant) * (1 + _ROUNDING)
