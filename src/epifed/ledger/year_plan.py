"""A year's budget, week by week: the same for each, or more while the released trend turns.

What a week gets may depend on what earlier weeks released, so the accounting must be one that is
proven for such choices: the Gaussian filter, which adds 1/c² of each release up to a total that was
fixed beforehand. Nothing but released or public numbers may decide.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from scipy.optimize import brentq

from epifed.errors import EpifedError
from epifed.ledger.budget import Cap
from epifed.privacy.accounting import epsilon_of_gaussian

Rule = Literal["uniform", "trend"]
RULES: tuple[Rule, ...] = ("uniform", "trend")

FILTER = "gaussian"
"""The accountant whose prices hold for adaptive choices."""
TURNING = 0.10
"""Change of the released log growth from one week to the next from which on the trend turns."""
FLAT = 0.05
"""Released log growth a week below which two weeks in a row are flat."""
MORE, LESS = 2.0, 0.5
"""Even shares that a week gets while the trend turns, and while it is flat."""


@dataclass(frozen=True)
class Week:
    """What one week may spend."""

    week: int
    shares: float
    """Relative to an even share of what is left."""
    noise_multiplier: float
    epsilon_alone: float
    """ε of this release by itself, at the δ of the cap."""
    epsilon_together: float
    """ε of all releases up to it."""


def shares(growth: Sequence[float]) -> float:
    """How many even shares the next week gets, from the released log growth of past weeks.

    >>> shares([0.20, 0.02]), shares([0.01, -0.02]), shares([0.20, 0.22]), shares([0.1])
    (2.0, 0.5, 1.0, 1.0)
    """
    if len(growth) < 2:
        return 1.0
    before, now = growth[-2:]
    if abs(now - before) >= TURNING:
        return MORE
    return LESS if max(abs(now), abs(before)) < FLAT else 1.0


def spend(left: float, weeks_left: int, weight: float) -> float:
    """What a week takes of what is left, each later week counting as one share.

    It never takes all but in the last week, so the sum never passes the total.
    """
    return left * weight / (weight + weeks_left - 1)


def total_of(cap: Cap) -> float:
    """The μ² that a cap allows: the largest Σ 1/c² whose ε does not pass it."""

    def excess(log_squared: float) -> float:
        return epsilon_of_gaussian(math.exp(log_squared), cap.delta) - cap.epsilon

    low, high = math.log(1e-12), 0.0
    while excess(high) < 0:
        high += 2
    found = math.exp(float(brentq(excess, low, high, xtol=1e-13)))
    while epsilon_of_gaussian(found, cap.delta) > cap.epsilon:
        found *= 1 - 1e-12
    return found


def plan_year(
    cap: Cap, weeks: int, rule: Rule, growth: Sequence[float] = (), spent: float = 0.0
) -> list[Week]:
    """What each of so many weeks may spend, one release of all clients a week.

    Parameters
    ----------
    cap
        The (ε, δ) of all weeks together, by the Gaussian filter.
    weeks
        Releases that are to come.
    rule
        `uniform`, or `trend`: twice as much while the released trend turns, half while it is flat.
    growth
        Released log growth of past weeks, the oldest first. Week i is decided by those before it;
        a week whose past is not yet released gets an even share.
    spent
        Σ 1/c² that the same clients have released already.

    Returns
    -------
    A row for each week.

    Raises
    ------
    EpifedError
        If the cap's accountant is not proven for adaptive choices, or nothing is left.
    """
    if cap.accountant != FILTER:
        raise EpifedError(
            f"accountant: found '{cap.accountant}' with the rule '{rule}' of a year; expected "
            f"'{FILTER}' (all clients in every round), because no filter is proven for the least ε "
            "over many Rényi orders or for PLD with sampled clients; a plan of equal weeks that is "
            "fixed beforehand is 'epifed ledger plan --releases 52'"
        )
    left = total_of(cap) - spent
    if left <= 0:
        raise EpifedError(f"nothing is left of the cap of {cap.sentence()}")
    planned = []
    for week in range(1, weeks + 1):
        known = growth[: week - 1] if week - 1 <= len(growth) else ()
        weight = shares(known) if rule == "trend" else 1.0
        taken = spend(left, weeks - week + 1, weight)
        left -= taken
        spent += taken
        planned.append(
            Week(
                week,
                weight,
                1 / math.sqrt(taken),
                epsilon_of_gaussian(taken, cap.delta),
                min(epsilon_of_gaussian(spent, cap.delta), cap.epsilon),
            )
        )
    return planned
