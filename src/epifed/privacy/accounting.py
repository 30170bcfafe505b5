"""Accountants: the privacy cost of a training in (ε, δ), and the noise that a budget requires.

An event records what was run; an accountant gives an upper bound on its cost. A round of Algorithm
1 is a Poisson-sampled Gaussian mechanism (the paper's Definition 5). The Rényi accountant is the
paper's (Theorems 1 to 4 of its appendix); the privacy loss distribution (PLD) accountant composes
numerically and is tighter. Both use Google's dp-accounting. Another package adds an accountant as a
class with the same methods under the entry point `epifed.accountants`. The trade-off functions
bound what an attacker can learn from an (ε, δ).
"""

import hashlib
import logging
import math
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

import dp_accounting as dp
import numpy as np
from dp_accounting.pld import PLDAccountant, privacy_loss_distribution
from dp_accounting.rdp import RdpAccountant
from dp_accounting.rdp.rdp_privacy_accountant import DEFAULT_RDP_ORDERS
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import log_ndtr
from scipy.stats import beta, norm

from epifed.errors import EPSILON, EpifedError
from epifed.files import cache_root
from epifed.registry import ACCOUNTANTS

ORDERS: tuple[float, ...] = tuple(DEFAULT_RDP_ORDERS)
"""The Rényi orders α over which Theorem 4 takes the minimum."""

_RELATION = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
_GRID_STEPS = 10_000
_LARGEST_ON_GRID = 1e4
_LEAST_DELTA_ON_GRID = 1e-14


class Accountant(Protocol):
    """A method that computes the ε of events."""

    title: str

    def price(self, event: dp.DpEvent, delta: float) -> tuple[float, float | None]:
        """The ε of an event at δ, for one client added or removed, and its Rényi order if any."""
        ...

    def floor(self, delta: float) -> float:
        """The largest ε that this accountant cannot certify at δ, however large the noise."""
        ...


class Renyi:
    """The Rényi accountant: the least ε over `ORDERS` (Theorem 4)."""

    title = "Rényi accountant (RDP)"

    def price(self, event: dp.DpEvent, delta: float) -> tuple[float, float | None]:
        """The least ε over `ORDERS`, and its order.

        Each order is priced alone, because the library returns ε = 0 for all orders where rounding
        makes the tiny divergence of one negative. Theorem 3 at divergence 0 is the least ε that an
        order can certify. So the most promising orders come first, and hopeless ones are skipped.
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
        """The least ε by Theorem 3 at divergence 0."""
        return min(_converted(0, order, delta) for order in ORDERS)


class LossDistribution:
    """The PLD accountant, which composes the privacy loss distribution numerically."""

    title = "privacy loss distribution accountant (PLD)"

    def price(self, event: dp.DpEvent, delta: float) -> tuple[float, float | None]:
        """The ε on a grid whose step is proportional to the Rényi price of the event.

        So a tiny ε is not coarse and a large one does not exhaust the memory. Every grid gives an
        upper bound, and so does the Rényi price, which is returned for a very large ε.
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
        """0: with enough noise PLD certifies any ε."""
        del delta
        return 0.0


class GaussianFilter:
    """Prices adaptively chosen Gaussian releases of all clients (q = 1).

    A release with noise multiplier c is 1/c-Gaussian differentially private. Releases chosen
    adaptively are together μ-Gaussian differentially private as long as Σ 1/c² never passes μ²
    (Smith and Thakurta 2022, arXiv:2210.17520; Koskela, Tobaben and Honkela 2023,
    arXiv:2209.15596). The ε of μ is exact (Dong, Roth and Su 2022, Corollary 1). A ledger that
    refuses every release beyond its cap is such a filter.
    """

    title = "Gaussian filter (q = 1, exact)"

    def price(self, event: dp.DpEvent, delta: float) -> tuple[float, float | None]:
        """The ε of μ² = Σ 1/c²; an event with sampling is refused."""
        return epsilon_of_gaussian(squared_mu(event), delta), None

    def floor(self, delta: float) -> float:
        """0: with enough noise the filter certifies any ε."""
        del delta
        return 0.0


def squared_mu(event: dp.DpEvent) -> float:
    """Σ 1/c² of an event made of Gaussian releases, each of all clients."""
    if isinstance(event, dp.NoOpDpEvent):
        return 0.0
    if isinstance(event, dp.GaussianDpEvent):
        noise = float(event.noise_multiplier)
        return 1 / noise**2 if noise > 0 else math.inf
    if isinstance(event, dp.SelfComposedDpEvent):
        return int(event.count) * squared_mu(event.event)
    if isinstance(event, dp.ComposedDpEvent):
        return math.fsum(squared_mu(one) for one in event.events)
    if isinstance(event, dp.PoissonSampledDpEvent):
        raise EpifedError(
            f"sampling rate: found {event.sampling_probability:g} with the accountant 'gaussian'; "
            "expected 1, all clients in every round, or the accountant 'rdp' or 'pld' and a plan "
            "that is fixed beforehand: no filter is proven for them"
        )
    raise EpifedError(f"event: found {event}; expected Gaussian releases")


def epsilon_of_gaussian(squared: float, delta: float) -> float:
    """The ε at δ of a μ-Gaussian differentially private release, given μ²; rounded up.

    >>> round(epsilon_of_gaussian(1.0, 1e-5), 3)
    4.377
    """
    if squared == 0:
        return 0.0
    if math.isinf(squared):
        return math.inf
    mu = math.sqrt(squared)

    def excess(epsilon: float) -> float:
        return delta_of_gaussian(mu, epsilon) - delta

    if excess(0.0) <= 0:
        return 0.0
    highest = squared / 2 + mu * math.sqrt(2 * math.log(1 / delta))
    return float(brentq(excess, 0.0, highest, xtol=1e-14, rtol=1e-12)) * (1 + 1e-9)


def delta_of_gaussian(mu: float, epsilon: float) -> float:
    """The exact δ of a μ-Gaussian differentially private release at ε."""
    lost, kept = log_ndtr(-epsilon / mu + mu / 2), log_ndtr(-epsilon / mu - mu / 2)
    return float(math.exp(lost) - math.exp(epsilon + kept))


def find_accountant(name: str) -> Accountant:
    """The accountant of this name; an unknown name raises an error that lists the names."""
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
    """Suppress a logger in this thread: orders that do not converge are skipped anyway."""
    logger, owner = logging.getLogger(name), threading.get_ident()

    def of_another_thread(record: logging.LogRecord) -> bool:
        return threading.get_ident() != owner

    logger.addFilter(of_another_thread)
    try:
        yield
    finally:
        logger.removeFilter(of_another_thread)


NEIGHBOURING = "add or remove one client"
UNIT = "one client"
TOLERANCE = 1e-5
"""Largest relative excess of a calibrated noise multiplier over the smallest possible one."""

_LEAST_EPSILON, _LARGEST_EPSILON = 1e-9, 1e6
_LEAST_NOISE = 1e-6
_WIDENINGS = 60

_Budget = tuple[float, float, float, int, str]


@dataclass(frozen=True)
class Calibration:
    """A noise multiplier and the privacy cost of a whole training with it."""

    noise_multiplier: float
    epsilon: float
    epsilon_spent: float
    delta: float
    sampling_rate: float
    rounds: int
    accountant: str
    neighbouring: str = NEIGHBOURING
    unit: str = UNIT
    order: float | None = None
    """The Rényi order α of Theorem 4's minimum; none with PLD or without noise."""
    trust: str = ""
    """Whom a client must trust for this guarantee; empty if not yet known."""

    def sentence(self) -> str:
        """The guarantee with everything that must be quoted: δ, neighbours and accountant."""
        where = f"q = {self.sampling_rate:g} over {self.rounds} round{'s'[: self.rounds > 1]}"
        if math.isinf(self.epsilon):
            return f"no differential privacy (ε = ∞): no noise, at {where}"
        return (
            f"(ε = {rounded_up(self.epsilon)}, δ = {self.delta:g})-differential privacy, "
            f"{UNIT} added or removed, by the {find_accountant(self.accountant).title}: "
            f"noise multiplier c = {self.noise_multiplier:.4g} at {where}"
            f"{'; ' if self.trust else ''}{self.trust}"
        )


def round_event(sampling_rate: float, noise_multiplier: float) -> dp.DpEvent:
    """One round: a client is drawn with probability q, and the sum gets noise of deviation c·S."""
    _check_sampling_rate(sampling_rate)
    _check_noise_multiplier(noise_multiplier)
    gaussian = dp.GaussianDpEvent(noise_multiplier)
    return gaussian if sampling_rate == 1 else dp.PoissonSampledDpEvent(sampling_rate, gaussian)


def training_event(sampling_rate: float, noise_multiplier: float, rounds: int) -> dp.DpEvent:
    """All rounds of one training; empty rounds cost as much as others (Theorem 2)."""
    _check_rounds(rounds)
    return dp.SelfComposedDpEvent(round_event(sampling_rate, noise_multiplier), int(rounds))


def epsilon_of(event: dp.DpEvent, delta: float, accountant: str = "rdp") -> float:
    """The ε of an event or a composition of events at δ, for one client added or removed.

    >>> round(epsilon_of(training_event(0.25, 4.8631, 75), 1e-5), 3)
    2.0
    """
    return _price(event, delta, accountant)[0]


def spent(
    noise_multiplier: float,
    sampling_rate: float,
    rounds: int,
    delta: float,
    accountant: str = "rdp",
) -> float:
    """The ε of a training of this many rounds with this noise (Theorem 4)."""
    return epsilon_of(training_event(sampling_rate, noise_multiplier, rounds), delta, accountant)


def priced(
    noise_multiplier: float,
    sampling_rate: float,
    rounds: int,
    delta: float,
    accountant: str = "rdp",
) -> Calibration:
    """The privacy cost of a training with this noise, as a calibration."""
    event = training_event(sampling_rate, noise_multiplier, rounds)
    epsilon, order = _price(event, delta, accountant)
    return Calibration(
        noise_multiplier=float(noise_multiplier),
        epsilon=epsilon,
        epsilon_spent=epsilon,
        delta=float(delta),
        sampling_rate=float(sampling_rate),
        rounds=int(rounds),
        accountant=accountant,
        order=order,
    )


def calibrate(
    epsilon: float,
    delta: float,
    sampling_rate: float,
    rounds: int,
    accountant: str = "rdp",
) -> Calibration:
    """Find the smallest noise multiplier c that keeps a training within (ε, δ).

    It exceeds the smallest by at most `TOLERANCE`, and never costs more than ε. Cached on disk.

    Parameters
    ----------
    epsilon : float
        ε; infinity needs no noise.
    delta : float
        δ.
    sampling_rate : float
        q = m / N, the chance that a client takes part in a round.
    rounds : int
        T_cl.
    accountant : str
        Its name: `rdp`, `pld`, `gaussian`, or one of another package.

    Returns
    -------
    Calibration
        c, and the ε that it costs.

    Raises
    ------
    EpifedError
        If a number is out of its range, or no accountant has this name.

    Examples
    --------
    >>> calibrate(1.0, 1e-5, 0.25, 75).epsilon_spent <= 1.0
    True
    """
    if not (_LEAST_EPSILON <= epsilon <= _LARGEST_EPSILON or epsilon == math.inf):
        raise EpifedError(
            f"epsilon: found {epsilon}; expected {EPSILON} (from {_LEAST_EPSILON:g} to "
            f"{_LARGEST_EPSILON:g})"
        )
    _check_delta(delta)
    _check_sampling_rate(sampling_rate)
    _check_rounds(rounds)
    find_accountant(accountant)
    noise_multiplier, epsilon_spent, order = 0.0, math.inf, None
    if math.isfinite(epsilon):
        budget = (float(epsilon), float(delta), float(sampling_rate), int(rounds), accountant)
        noise_multiplier, epsilon_spent, order = _remembered(
            budget, _method(), cache_root() / "calibration"
        )
    return Calibration(
        noise_multiplier=noise_multiplier,
        epsilon=float(epsilon),
        epsilon_spent=epsilon_spent,
        delta=float(delta),
        sampling_rate=float(sampling_rate),
        rounds=int(rounds),
        accountant=accountant,
        order=order,
    )


def rounded_up(epsilon: float) -> str:
    """An ε with six digits, rounded up.

    >>> rounded_up(2.0000001)
    '2.00001'
    """
    return f"{float(Context(prec=6, rounding=ROUND_CEILING).create_decimal(repr(epsilon))):g}"


def _price(event: dp.DpEvent, delta: float, accountant: str) -> tuple[float, float | None]:
    """The ε, and with the Rényi accountant the order that attains it."""
    _check_delta(delta)
    found = find_accountant(accountant)
    return (0.0, None) if isinstance(event, dp.NoOpDpEvent) else found.price(event, delta)


def _search(budget: _Budget, method: str) -> tuple[float, float, float | None]:
    """The smallest c, its ε and its order. `method` only enters the key of the cache."""
    epsilon, delta, sampling_rate, rounds, accountant = budget
    method_of_price = find_accountant(accountant)
    floor = method_of_price.floor(delta)
    if epsilon <= floor:
        raise EpifedError(
            f"epsilon: found {epsilon:g}; expected more than {rounded_up(floor)}, the least that "
            f"the {method_of_price.title} certifies at δ = {delta:g} with any noise"
        )

    def price(log_c: float) -> tuple[float, float | None]:
        event = training_event(sampling_rate, math.exp(log_c), rounds)
        return _price(event, delta, accountant)

    def excess(log_c: float) -> float:
        return math.log(max(price(log_c)[0], _LEAST_EPSILON / 2)) - math.log(epsilon)

    factor = math.log(1.5)
    guess = sampling_rate * math.sqrt(2 * rounds * math.log(1.25 / delta)) / max(epsilon, 1e-4)
    upper = math.log(max(guess, 0.01))
    for _ in range(_WIDENINGS):
        if excess(upper) <= 0:
            break
        upper += factor
    else:
        raise EpifedError(
            f"epsilon: found {epsilon:g}; no noise multiplier up to {math.exp(upper):.0e} reaches "
            f"it at δ = {delta:g} by the {method_of_price.title}; expected a larger ε or δ"
        )
    lower = upper - factor
    while excess(lower) <= 0:
        lower, upper = lower - factor, lower
    log_c = brentq(excess, lower, upper, xtol=TOLERANCE / 4, rtol=1e-12)
    step = TOLERANCE / 4
    while (priced_now := price(log_c))[0] > epsilon:
        log_c, step = log_c + step, 2 * step
    return math.exp(log_c), *priced_now


@lru_cache(maxsize=1024)
def _remembered(budget: _Budget, method: str, folder: Path) -> tuple[float, float, float | None]:
    """`_search` with a cache on disk; without it if the folder cannot be used."""
    import joblib  # noqa: PLC0415

    try:
        with hushed("joblib"), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Unable to ")
            on_disk = joblib.Memory(folder, verbose=0).cache(_search)
            found: tuple[float, float, float | None] = on_disk(budget, method)
            return found
    except OSError:
        return _search(budget, method)


@lru_cache(maxsize=1)
def _method() -> str:
    """Versions of the library and of this file, on which a cached calibration depends."""
    source = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]
    return f"dp-accounting {version('dp-accounting')}, accounting {source}"


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise EpifedError(f"delta: found {delta}; expected a number above 0 and below 1")


def _check_sampling_rate(sampling_rate: float) -> None:
    if not 0 < sampling_rate <= 1:
        raise EpifedError(
            f"sampling rate: found {sampling_rate}; expected a number above 0 and at most 1"
        )


def _check_rounds(rounds: int) -> None:
    if not (rounds >= 1 and math.isfinite(rounds) and rounds == int(rounds)):
        raise EpifedError(f"rounds: found {rounds}; expected a whole number of at least 1")


def _check_noise_multiplier(noise_multiplier: float) -> None:
    if not (noise_multiplier == 0 or _LEAST_NOISE <= noise_multiplier < math.inf):
        raise EpifedError(
            f"noise multiplier: found {noise_multiplier}; expected 0, or a number of at least "
            f"{_LEAST_NOISE:g}"
        )


_BINS = 4000
_LEAST_INTERVAL = 1e-4
_SLOPES = np.linspace(0.0, 8.0, 65)
"""Values ε' where errors are compared with the trade-off curve; any choice gives valid bounds."""
_BISECTIONS = 12


@dataclass(frozen=True)
class Errors:
    """Upper bounds on an attacker's false positive and false negative rates."""

    false_positive: float
    false_negative: float


def upper_rate(found: int, of: int, level: float) -> float:
    """Clopper-Pearson: the true rate exceeds this with a probability of at most `level`."""
    return 1.0 if found >= of else float(beta.ppf(1 - level, found + 1, of - found))


def most_advantage(epsilon: float, delta: float) -> float:
    """The largest advantage (TPR - FPR) of a membership attack that (ε, δ) allows.

    >>> round(most_advantage(2, 1e-5), 3)
    0.762
    """
    if math.isinf(epsilon):
        return 1.0
    return (math.expm1(epsilon) + 2 * delta) / (math.exp(epsilon) + 1)


def right_at_most(advantage: float) -> float:
    """The largest share of right guesses about taking part, if half of the clients took part."""
    return (1 + advantage) / 2


def advantage_of_noise(noise_multiplier: float, sampling_rate: float, rounds: int) -> float:
    """The largest advantage that this noise allows, δ at ε = 0: less than (ε, δ) alone allows.

    >>> round(advantage_of_noise(4.863, 0.25, 75), 3)
    0.177
    """
    if noise_multiplier == 0:
        return 1.0
    loss = _loss(noise_multiplier, sampling_rate, rounds)
    return float(loss.get_delta_for_epsilon(0.0))


def direct_epsilon(errors: Errors, delta: float) -> float:
    """ln((1 − δ − FNR) / FPR), or with FPR and FNR swapped: a lower bound for any mechanism."""
    pairs = (
        (errors.false_positive, errors.false_negative),
        (errors.false_negative, errors.false_positive),
    )
    ratios = [(1 - delta - b) / a for a, b in pairs if a > 0]
    return max(0.0, *(math.log(r) if r > 0 else 0.0 for r in ratios))


def separation(errors: Errors) -> float:
    """Φ⁻¹(1 − FPR) − Φ⁻¹(FNR): the distance of two unit normal curves with these errors."""
    return float(norm.isf(errors.false_positive) - norm.ppf(errors.false_negative))


def gaussian_mu(errors: Errors) -> float:
    """The μ of a Gaussian mechanism with these errors, at least 0 (Dong, Roth and Su, 2022)."""
    return max(0.0, separation(errors))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The ε at δ of μ-Gaussian differential privacy.

    >>> round(gaussian_epsilon(1.0, 1e-5), 3)
    4.377
    """

    def excess(epsilon: float) -> float:
        tail = math.exp(epsilon + norm.logcdf(-epsilon / mu - mu / 2))
        return float(norm.cdf(-epsilon / mu + mu / 2)) - tail - delta

    if mu <= 0 or excess(0.0) <= 0:
        return 0.0
    upper = 1.0
    while excess(upper) > 0:
        upper *= 2
    return float(brentq(excess, 0.0, upper, xtol=1e-9))


def impossible(errors: Errors, noise_multiplier: float, sampling_rate: float, rounds: int) -> bool:
    """Whether these errors are smaller than any attack on this much noise can have.

    For every ε', TPR ≤ e^ε' FPR + δ(ε') and 1 − FPR ≤ e^ε' FNR + δ(ε').
    """
    a, b = errors.false_positive, errors.false_negative
    if a + b >= 1:
        return False
    deltas = _curve(noise_multiplier, sampling_rate, rounds)
    growth = np.exp(_SLOPES)
    return bool(np.any(1 - b > growth * a + deltas) or np.any(1 - a > growth * b + deltas))


def sampled_gaussian_epsilon(
    errors: Errors, delta: float, sampling_rate: float, rounds: int
) -> float:
    """The least ε at δ of a Poisson-sampled Gaussian with any noise that allows these errors.

    Bisection finds the noise that is just too large for the errors. A mechanism of this kind with
    these errors adds less noise, and so costs more than this.
    """
    mu = gaussian_mu(errors)
    if mu <= 0:
        return 0.0
    guess = math.log(sampling_rate * math.sqrt(rounds) / mu)
    low, high = guess - 1.0, guess + 1.0

    def too_large(log_noise: float) -> bool:
        return impossible(errors, math.exp(log_noise), sampling_rate, rounds)

    while not too_large(high):
        low, high = high, high + 1.0
        if high > guess + 6:
            return 0.0
    while too_large(low):
        low, high = low - 1.0, low
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if too_large(middle) else (middle, high)
    loss = _loss(math.exp(high), sampling_rate, rounds)
    return float(loss.get_epsilon_for_delta(delta))


@lru_cache(maxsize=64)
def _curve(noise_multiplier: float, sampling_rate: float, rounds: int) -> NDArray[np.float64]:
    """δ at each ε' of `_SLOPES`."""
    loss = _loss(noise_multiplier, sampling_rate, rounds)
    return np.asarray(loss.get_delta_for_epsilon(_SLOPES), dtype=np.float64)


def _loss(
    noise_multiplier: float, sampling_rate: float, rounds: int
) -> privacy_loss_distribution.PrivacyLossDistribution:
    """The privacy loss of a training, on a grid scaled to its size."""
    shift = sampling_rate * math.sqrt(rounds) / noise_multiplier
    one_round = privacy_loss_distribution.from_gaussian_mechanism(
        standard_deviation=noise_multiplier,
        sampling_prob=sampling_rate,
        value_discretization_interval=max(_LEAST_INTERVAL, (5 * shift + shift**2) / _BINS),
    )
    return one_round.self_compose(rounds)
