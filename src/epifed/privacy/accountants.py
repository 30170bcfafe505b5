"""Accountants: what an event costs in (ε, δ), each an upper bound, found by name.

The Rényi accountant is the paper's (Theorems 1 to 4 of its appendix); the privacy loss
distribution accountant composes numerically and is tighter. Both are Google's dp-accounting. A
further one is a class with these two methods, named under the entry point `epifed.accountants`.
"""

import logging
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import dp_accounting as dp
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from dp_accounting.rdp.rdp_privacy_accountant import DEFAULT_RDP_ORDERS

from epifed.errors import EpifedError
from epifed.registry import ACCOUNTANTS

ORDERS: tuple[float, ...] = tuple(DEFAULT_RDP_ORDERS)
"""The Rényi orders α over which Theorem 4 takes its minimum."""

_RELATION = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
_GRID_STEPS = 10_000
_LARGEST_ON_GRID = 1e4
_LEAST_DELTA_ON_GRID = 1e-14


class Accountant(Protocol):
    """A way to price events."""

    title: str

    def price(self, event: dp.DpEvent, delta: float) -> tuple[float, float | None]:
        """The ε of an event at δ, one client added or removed; and its Rényi order, if any."""
        ...

    def floor(self, delta: float) -> float:
        """The ε that this accountant cannot certify at δ with any noise."""
        ...


class Renyi:
    """Theorem 4: the least ε over `ORDERS`."""

    title = "Rényi accountant (RDP)"

    def price(self, event: dp.DpEvent, delta: float) -> tuple[float, float | None]:
        """The least ε over `ORDERS`, and its order.

        Order by order, because the library answers ε = 0 for all where rounding makes the tiny
        divergence of one order negative. Theorem 3 at divergence 0 is the least an order can
        certify, so the most promising come first and the hopeless are left out.
        """
        promise = sorted((max(_converted(0, order, delta), 0.0), order) for order in ORDERS)
        epsilon, best = math.inf, None
        with hushed("absl"):
            for least, order in promise:
                if least >= epsilon:
                    break
                rdp = RdpAccountant([order], _RELATION)
                _compose(rdp, event)
                certified = max(float(rdp.get_epsilon(delta)), least)
                if certified < epsilon:
                    epsilon, best = certified, float(order)
        return epsilon, best

    def floor(self, delta: float) -> float:
        """What Theorem 3 leaves at divergence 0."""
        return min(_converted(0, order, delta) for order in ORDERS)


class LossDistribution:
    """Numerical composition of the privacy loss distribution."""

    title = "privacy loss distribution accountant (PLD)"

    def price(self, event: dp.DpEvent, delta: float) -> tuple[float, float | None]:
        """On a grid that follows the size of the privacy loss.

        So neither a tiny ε is coarse nor a large one fills the memory. Any grid gives an upper
        bound, and so does the Rényi price.
        """
        if delta < _LEAST_DELTA_ON_GRID:
            raise EpifedError(
                f"delta: found {delta}; expected at least {_LEAST_DELTA_ON_GRID:g} with the "
                f"{self.title}, or accountant 'rdp'"
            )
        scale, _ = Renyi().price(event, min(delta, 1e-5))
        if scale > _LARGEST_ON_GRID:
            return scale, None
        pld = PLDAccountant(_RELATION, scale / _GRID_STEPS)
        _compose(pld, event)
        return float(pld.get_epsilon(delta)), None

    def floor(self, delta: float) -> float:
        """None."""
        del delta
        return 0.0


def find_accountant(name: str) -> Accountant:
    """The accountant of that name, or a sentence saying which there are."""
    found: Accountant = ACCOUNTANTS.load(name)()
    return found


def _converted(divergence: float, order: float, delta: float) -> float:
    """Theorem 3: the ε of an (α, ρ)-Rényi differentially private mechanism."""
    return divergence + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)


def _compose(accountant: dp.PrivacyAccountant, event: dp.DpEvent) -> None:
    try:
        accountant.compose(event)
    except dp.UnsupportedEventError:
        raise EpifedError(
            f"event: found {event}; expected one that {type(accountant).__name__} can price"
        ) from None


@contextmanager
def hushed(name: str) -> Iterator[None]:
    """Drop what this thread logs under a name: orders that do not converge are left out anyway."""
    logger, owner = logging.getLogger(name), threading.get_ident()

    def of_another_thread(record: logging.LogRecord) -> bool:
        return threading.get_ident() != owner

    logger.addFilter(of_another_thread)
    try:
        yield
    finally:
        logger.removeFilter(of_another_thread)
