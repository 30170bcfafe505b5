"""From an attacker's error rates to ε: exact bounds on rates, and what they say about privacy."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from dp_accounting.pld import privacy_loss_distribution
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import beta, norm

_BINS = 4000
_LEAST_INTERVAL = 1e-4
_SLOPES = np.linspace(0.0, 8.0, 65)
"""Where on the trade-off curve errors are compared with it: any choice gives valid bounds."""
_BISECTIONS = 12


@dataclass(frozen=True)
class Errors:
    """Upper bounds on an attacker's false positive and false negative rates."""

    false_positive: float
    false_negative: float


def upper_rate(found: int, of: int, level: float) -> float:
    """Clopper and Pearson: the true rate is above this with a probability of at most `level`."""
    return 1.0 if found >= of else float(beta.ppf(1 - level, found + 1, of - found))


def most_advantage(epsilon: float, delta: float) -> float:
    """The most that (ε, δ) leaves to tell "took part" from "did not": the rates' difference.

    >>> round(most_advantage(2, 1e-5), 3)
    0.762
    """
    if math.isinf(epsilon):
        return 1.0
    return (math.expm1(epsilon) + 2 * delta) / (math.exp(epsilon) + 1)


def right_at_most(advantage: float) -> float:
    """How often a guess can be right at best, if half of the clients took part."""
    return (1 + advantage) / 2


def advantage_of_noise(noise_multiplier: float, sampling_rate: float, rounds: int) -> float:
    """The most that this very noise leaves, δ at ε = 0: less than the quoted (ε, δ) alone allows.

    >>> round(advantage_of_noise(4.863, 0.25, 75), 3)
    0.177
    """
    if noise_multiplier == 0:
        return 1.0
    loss = _loss(noise_multiplier, sampling_rate, rounds)
    return float(loss.get_delta_for_epsilon(0.0))


def direct_epsilon(errors: Errors, delta: float) -> float:
    """ln((1 − δ − FNR) / FPR), or with the roles swapped. Holds for any mechanism whatever."""
    pairs = (
        (errors.false_positive, errors.false_negative),
        (errors.false_negative, errors.false_positive),
    )
    ratios = [(1 - delta - b) / a for a, b in pairs if a > 0]
    return max(0.0, *(math.log(r) if r > 0 else 0.0 for r in ratios))


def separation(errors: Errors) -> float:
    """Φ⁻¹(1 − FPR) − Φ⁻¹(FNR): how far apart two normal curves with these errors lie."""
    return float(norm.isf(errors.false_positive) - norm.ppf(errors.false_negative))


def gaussian_mu(errors: Errors) -> float:
    """μ of the Gaussian mechanism that errs as often (Dong, Roth and Su, 2022)."""
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
    """Whether no attack on this much noise can err so little.

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
    """The least ε at δ of a Poisson-sampled Gaussian with any noise that can err so little.

    The noise that is just too large for the errors is found by bisection; what adds noise of that
    kind adds less of it, and so costs more than this.
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
    """δ at each of the slopes."""
    loss = _loss(noise_multiplier, sampling_rate, rounds)
    return np.asarray(loss.get_delta_for_epsilon(_SLOPES), dtype=np.float64)


def _loss(
    noise_multiplier: float, sampling_rate: float, rounds: int
) -> privacy_loss_distribution.PrivacyLossDistribution:
    """The privacy loss of a training, on a grid as wide as the loss asks for."""
    shift = sampling_rate * math.sqrt(rounds) / noise_multiplier
    one_round = privacy_loss_distribution.from_gaussian_mechanism(
        standard_deviation=noise_multiplier,
        sampling_prob=sampling_rate,
        value_discretization_interval=max(_LEAST_INTERVAL, (5 * shift + shift**2) / _BINS),
    )
    return one_round.self_compose(rounds)
