"""What a training costs in (ε, δ), and how much noise a budget asks for.

An event says what happened, an accountant says what it costs. A round of Algorithm 1 is a
Poisson-sampled Gaussian mechanism (the paper's Definition 5); the Rényi accountant prices it by
Theorems 1 to 4 of the paper's appendix, the privacy loss distribution accountant by numerical
composition, which is tighter. Both are Google's dp-accounting, and both are upper bounds.
"""

import hashlib
import math
import warnings
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import dp_accounting as dp
from scipy.optimize import brentq

from epifed.cache import cache_root
from epifed.errors import EpifedError
from epifed.privacy.accountants import find_accountant, hushed

NEIGHBOURING = "add or remove one client"
UNIT = "one client"
TOLERANCE = 1e-5
"""How far, relatively, a calibrated noise multiplier may lie above the smallest one."""

_LEAST_EPSILON, _LARGEST_EPSILON = 1e-9, 1e6
_LEAST_NOISE = 1e-6
_WIDENINGS = 60

_Budget = tuple[float, float, float, int, str]


@dataclass(frozen=True)
class Calibration:
    """A noise multiplier and the privacy it buys for a whole training."""

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
    """The Rényi order α at which Theorem 4's minimum is attained; none with PLD or no noise."""
    trust: str = ""
    """Whom a client must trust for it, once that is known."""

    def sentence(self) -> str:
        """The guarantee as it must always be quoted: with δ, neighbours and accountant."""
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
    """One round: each client is in with probability q, and the sum gets noise of deviation c·S."""
    _check_sampling_rate(sampling_rate)
    _check_noise_multiplier(noise_multiplier)
    gaussian = dp.GaussianDpEvent(noise_multiplier)
    return gaussian if sampling_rate == 1 else dp.PoissonSampledDpEvent(sampling_rate, gaussian)


def training_event(sampling_rate: float, noise_multiplier: float, rounds: int) -> dp.DpEvent:
    """The rounds of one training, each of which costs, the empty ones too (Theorem 2)."""
    _check_rounds(rounds)
    return dp.SelfComposedDpEvent(round_event(sampling_rate, noise_multiplier), int(rounds))


def epsilon_of(event: dp.DpEvent, delta: float, accountant: str = "rdp") -> float:
    """The ε of any event or composition of events, at δ, for one client added or removed.

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
    """The ε that a training of this many rounds with this noise costs (Theorem 4)."""
    return epsilon_of(training_event(sampling_rate, noise_multiplier, rounds), delta, accountant)


def priced(
    noise_multiplier: float,
    sampling_rate: float,
    rounds: int,
    delta: float,
    accountant: str = "rdp",
) -> Calibration:
    """A finished training as the budget it has used up."""
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
    """The smallest noise multiplier c that keeps a training within (ε, δ); ε = inf asks for none.

    The smallest up to `TOLERANCE`, and never one that costs more than ε. Remembered on disk.
    """
    if not (_LEAST_EPSILON <= epsilon <= _LARGEST_EPSILON or epsilon == math.inf):
        raise EpifedError(
            f"epsilon: found {epsilon}; expected a number above 0, from {_LEAST_EPSILON:g} to "
            f"{_LARGEST_EPSILON:g}, or inf for no privacy"
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
    """Six digits of an ε, never less than it.

    >>> rounded_up(2.0000001)
    '2.00001'
    """
    return f"{float(Context(prec=6, rounding=ROUND_CEILING).create_decimal(repr(epsilon))):g}"


def _price(event: dp.DpEvent, delta: float, accountant: str) -> tuple[float, float | None]:
    """ε, and with the Rényi accountant the order that gives it."""
    _check_delta(delta)
    found = find_accountant(accountant)
    return (0.0, None) if isinstance(event, dp.NoOpDpEvent) else found.price(event, delta)


def _search(budget: _Budget, method: str) -> tuple[float, float, float | None]:
    """The smallest c, its ε and order. `method` is only a part of the key on disk."""
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
    """`_search`, looked up on disk first. A folder that cannot be used is done without."""
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
    """What a remembered calibration depends on besides its arguments: the library and our code."""
    here = Path(__file__)
    code = here.read_bytes() + (here.parent / "accountants.py").read_bytes()
    source = hashlib.sha256(code).hexdigest()[:16]
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
