"""The tests of noise and sampling that the checks use, each with its level and its power.

Every test is two-sided and exact, or close to it, at a `LEVEL` that all its comparisons share
(Bonferroni). What a test can find is computed from the same distribution that decides it.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, binom, chi2, kstest, ncx2, norm

Floats = NDArray[np.float64]

LEVEL = 1e-7
"""The chance that correct code fails one check."""
SURE = 0.99
"""What a power statement means by 'found'."""


@dataclass(frozen=True)
class Verdict:
    """Whether values are what they must be; the worst of them, and what would be noticed."""

    kept: bool
    worst: float
    power: str


def deviations(squares: Floats, degrees: int, what: str) -> Verdict:
    """Of each sum of squares of so many standard normal numbers: is its deviation 1?"""
    low, high = _interval(degrees, squares.size)
    ratios = np.sqrt(squares / degrees).ravel()
    kept = bool(((squares >= low) & (squares <= high)).all())
    worst = float(ratios[np.argmax(np.abs(np.log(np.maximum(ratios, 1e-300))))])
    found = least_deficit(degrees, squares.size)
    return Verdict(kept, worst, f"{what} {found:.1%} low is found with {SURE:.0%} probability")


def least_deficit(degrees: int, tests: int = 1, sure: float = SURE) -> float:
    """The smallest shortfall of a deviation that `deviations` finds with this probability."""
    low, _ = _interval(degrees, tests)
    return float(1 - math.sqrt(low / chi2.ppf(sure, degrees)))


def deficit_power(deficit: float, degrees: int, tests: int = 1) -> float:
    """The probability that `deviations` finds one deviation that is so much too low."""
    low, high = _interval(degrees, tests)
    scale = (1 - deficit) ** 2
    return float(chi2.cdf(low / scale, degrees) + chi2.sf(high / scale, degrees))


def _interval(degrees: int, tests: int) -> tuple[float, float]:
    level = LEVEL / (2 * max(tests, 1))
    return float(chi2.ppf(level, degrees)), float(chi2.isf(level, degrees))


def standard(scores: Floats | float) -> tuple[bool, float]:
    """Whether scores can all be standard normal, and the largest in size."""
    all_of = np.atleast_1d(np.asarray(scores, dtype=np.float64)).ravel()
    worst = float(all_of[np.argmax(np.abs(all_of))]) if all_of.size else 0.0
    return abs(worst) <= limit(all_of.size), worst


def limit(tests: int = 1) -> float:
    """The standard deviations that chance may explain in the worst of so many scores."""
    return float(norm.isf(LEVEL / (2 * max(tests, 1))))


def least_shift(tests: int = 1, sure: float = SURE) -> float:
    """The smallest shift of a standard normal score that `standard` finds, in deviations."""
    return limit(tests) + float(norm.ppf(sure))


def lags(values: Floats, spread: float = 1.0) -> Floats:
    """For each lag, the pooled correlation of rows that far apart, as a standard normal score.

    Up to half of the rows, so that enough pairs are pooled. `values` [rows, columns] have mean 0
    and this deviation.
    """
    rows, columns = values.shape
    products = values @ values.T
    scores = [
        np.trace(products, offset=lag) / (spread**2 * math.sqrt((rows - lag) * columns))
        for lag in range(1, rows // 2 + 1)
    ]
    return np.array(scores)


def largest_correlation(values: Floats) -> tuple[bool, float]:
    """Whether the rows of a matrix are uncorrelated pair by pair, and the largest correlation."""
    norms = np.linalg.norm(values, axis=1, keepdims=True)
    unit = values / np.where(norms > 0, norms, 1.0)
    alike = np.abs(unit @ unit.T)
    np.fill_diagonal(alike, 0.0)
    rows, numbers = values.shape
    pairs = max(1, rows * (rows - 1) // 2)
    allowed = math.sqrt(float(beta.isf(LEVEL / pairs, 0.5, (numbers - 1) / 2)))
    worst = float(alike.max(initial=0.0))
    return worst <= allowed, worst


def shared_values(rows: Floats) -> int:
    """The most values, their sign left out, that any two rows have in common."""
    found: dict[tuple[int, int], int] = {}
    sizes = np.abs(rows)
    number = np.repeat(np.arange(len(rows)), rows.shape[1])
    flat = sizes.ravel()
    order = np.argsort(flat, kind="stable")
    flat, number = flat[order], number[order]
    starts = np.flatnonzero(np.r_[True, np.diff(flat) > 0])
    for i, j in zip(starts, np.r_[starts[1:], len(flat)], strict=True):
        if j - i > 1:
            some = sorted(set(number[i:j].tolist()))[:50]
            for a, first in enumerate(some):
                for second in some[a + 1 :]:
                    found[first, second] = found.get((first, second), 0) + 1
    return max(found.values(), default=0)


def gaussian(values: Floats) -> tuple[bool, float, float]:
    """Whether numbers are standard normal: the p-values of their body and of their tails."""
    flat = values.ravel()
    body = float(kstest(flat, "norm").pvalue)
    far = np.array([2.0, 2.5, 3.0, 3.5])
    chances = 2 * norm.sf(far)
    counts = (np.abs(flat)[:, None] > far).sum(axis=0)
    tails = [two_sided(int(n), flat.size, float(p)) for n, p in zip(counts, chances, strict=True)]
    tail = min(tails) * len(tails)
    return min(body, tail) >= LEVEL / 2, body, tail


def two_sided(count: int, of: int, chance: float) -> float:
    """The p-value of so many successes."""
    low, high = float(binom.cdf(count, of, chance)), float(binom.sf(count - 1, of, chance))
    return min(1.0, 2 * min(low, high))


def rates(counts: NDArray[np.int64], of: int, chance: float) -> tuple[bool, float]:
    """Whether counts of so many trials each have this chance, and the rate farthest from it."""
    flat = np.atleast_1d(counts).ravel()
    low, high = binom.cdf(flat, of, chance), binom.sf(flat - 1, of, chance)
    kept = bool((np.minimum(low, high) >= LEVEL / (2 * max(flat.size, 1))).all())
    found = flat / of
    return kept, float(found[np.argmax(np.abs(found - chance))])


def least_rate_change(of: int, chance: float, tests: int = 1, sure: float = SURE) -> float:
    """The smallest relative fall of a chance that `rates` finds with this probability."""
    edge = int(binom.ppf(LEVEL / (2 * tests), of, chance)) - 1
    low, high = 0.0, chance
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if binom.cdf(edge, of, middle) >= sure else (low, middle)
    return 1 - low / chance


def dispersion(sizes: Floats, clients: int, chance: float) -> tuple[bool, float]:
    """Whether the sizes of cohorts vary as a binomial, and their variance over its."""
    variance = clients * chance * (1 - chance)
    ratio = float(np.square(sizes - clients * chance).mean() / variance)
    excess = (1 - 6 * chance * (1 - chance)) / variance
    degrees = len(sizes) * 2 / (2 + max(excess, 0.0))
    low, high = (float(chi2.ppf(p, degrees)) for p in (LEVEL / 2, 1 - LEVEL / 2))
    return low <= ratio * degrees <= high, ratio


def uniform(rows: NDArray[np.uint8]) -> tuple[bool, float]:
    """Whether the bytes of each row are uniformly distributed (χ²), and the smallest p-value."""
    numbers = rows.shape[1]
    counts = np.stack([np.bincount(row, minlength=256) for row in rows])
    statistics = np.square(counts - numbers / 256).sum(axis=1) / (numbers / 256)
    worst = float(chi2.sf(statistics.max(), 255))
    return worst >= LEVEL / len(rows), worst


def least_plain_share(numbers: int, rows: int = 1, sure: float = SURE) -> float:
    """The smallest share of a row's bytes, all the same, that `uniform` finds."""
    edge = float(chi2.isf(LEVEL / rows, 255))
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        found = ncx2.sf(edge, 255, max(255 * numbers * middle**2, 1e-12)) >= sure
        low, high = (low, middle) if found else (middle, high)
    return high
