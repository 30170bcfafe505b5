"""The tests of noise and sampling that the checks use, each with its level and its power.

Every test is two-sided and exact, or close to it, at a `LEVEL` that all its comparisons share
(Bonferroni). Its power is computed from the same distribution that decides it. A `Check` holds
the result.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from time import process_time
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, binom, chi2, kstest, ncx2, norm

Group = Literal[
    "mechanism",
    "combinations",
    "neighbours",
    "learners",
    "randomness",
    "files",
    "labels",
    "ledger",
    "aggregators",
    "hostile",
    "federation",
]
GROUPS: tuple[Group, ...] = get_args(Group)


Names = frozenset[str] | None
"""The names of the wanted checks; None for all."""


@dataclass(frozen=True)
class Check:
    """One rule of the deployed code, and whether it holds."""

    name: str
    passed: bool
    expected: str
    found: str
    group: Group = "mechanism"
    power: str = ""
    """For a statistical check: which deviation is found with which probability."""
    seconds: float = 0.0
    skipped: bool = False
    """Whether the check could not be made here, for the reason in `found`; it decides nothing."""


def finding(passed: bool, expected: str, found: str, *, power: str = "") -> Check:
    """The result of a check, which gets its name from the table that declares it."""
    return Check("", passed, expected, found, power=power)


Checking = Callable[[], Check]


def made(group: Group, checks: Mapping[str, Checking], names: Names = None) -> list[Check]:
    """Run the checks of a group, or those named, and measure each one's seconds of processor time.

    An unexpected exception is a failed check.
    """
    found = []
    for name, checking in checks.items():
        if names is not None and name not in names:
            continue
        began = process_time()
        try:
            check = checking()
        except Exception as error:
            said = " ".join(str(error).split())
            check = Check(name, False, "no error", f"{type(error).__name__}: {said}")
        found.append(replace(check, name=name, group=group, seconds=process_time() - began))
    return found


def merged(checks: Iterable[tuple[str, Check]]) -> list[Check]:
    """Merge checks of the same name on several paths; the result passes if all of them do."""
    by_name: dict[str, list[tuple[str, Check]]] = {}
    for path, check in checks:
        by_name.setdefault(check.name, []).append((path, check))
    found = []
    for same in by_name.values():
        broken = [(path, check) for path, check in same if not check.passed]
        path, shown = (broken or same)[0]
        more = len(same) - 1
        others = f" (and {more} other path{'s'[: more > 1]})" if more and not broken else ""
        found.append(
            replace(
                shown,
                found=f"{path}: {shown.found}{others}",
                power=same[0][1].power,
                seconds=sum(check.seconds for _, check in same),
            )
        )
    return found


Floats = NDArray[np.float64]

LEVEL = 2e-10
"""The chance that correct code fails one test; the tests of a whole audit are counted."""
SURE = 0.99
"""The probability that a power statement means by 'found'."""


@dataclass
class Alarms:
    """Counts the tests made, each of which fails correct code with probability at most `LEVEL`."""

    tests: int = 0

    def count(self, tests: int = 1) -> None:
        """Count this many further tests."""
        self.tests += tests

    @property
    def chance(self) -> float:
        """Upper bound on the chance that any of the tests failed correct code."""
        return self.tests * LEVEL


alarms = Alarms()
"""The count of this process."""


@dataclass(frozen=True)
class Verdict:
    """Whether values are as required, the worst of them, and the power of the test."""

    kept: bool
    worst: float
    power: str


def deviations(squares: Floats, degrees: int, what: str) -> Verdict:
    """Test whether sums of squares of `degrees` standard normal numbers have deviation 1."""
    alarms.count()
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
    """The probability that `deviations` finds one deviation that is this much too low."""
    low, high = _interval(degrees, tests)
    scale = (1 - deficit) ** 2
    return float(chi2.cdf(low / scale, degrees) + chi2.sf(high / scale, degrees))


def _interval(degrees: int, tests: int) -> tuple[float, float]:
    level = LEVEL / (2 * max(tests, 1))
    return float(chi2.ppf(level, degrees)), float(chi2.isf(level, degrees))


def standard(scores: Floats | float) -> tuple[bool, float]:
    """Whether all scores can be standard normal, and the score of largest size."""
    alarms.count()
    all_of = np.atleast_1d(np.asarray(scores, dtype=np.float64)).ravel()
    worst = float(all_of[np.argmax(np.abs(all_of))]) if all_of.size else 0.0
    return abs(worst) <= limit(all_of.size), worst


def limit(tests: int = 1) -> float:
    """The standard deviations that chance may explain in the worst of this many scores."""
    alarms.count()
    return float(norm.isf(LEVEL / (2 * max(tests, 1))))


def least_shift(tests: int = 1, sure: float = SURE) -> float:
    """The smallest shift of a standard normal score that `standard` finds, in deviations."""
    return limit(tests) + float(norm.ppf(sure))


def lags(values: Floats, spread: float = 1.0) -> Floats:
    """For each lag, the pooled correlation of rows at this distance, as a standard normal score.

    Lags reach to half of the rows, so that enough pairs are pooled. `values` [rows, columns] have
    mean 0 and deviation `spread`.
    """
    rows, columns = values.shape
    spectrum = np.fft.rfft(values, 2 * rows, axis=0)
    products = np.fft.irfft((np.abs(spectrum) ** 2).sum(axis=1), 2 * rows)
    lag = np.arange(1, rows // 2 + 1)
    scores: Floats = products[lag] / (spread**2 * np.sqrt((rows - lag) * columns))
    return scores


def largest_correlation(values: Floats) -> tuple[bool, float]:
    """Whether the rows of a matrix are uncorrelated pair by pair, and the largest correlation."""
    alarms.count()
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
    """The most absolute values that any two rows have in common."""
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
    alarms.count()
    flat = values.ravel()
    body = float(kstest(flat, "norm").pvalue)
    far = np.array([2.0, 2.5, 3.0, 3.5])
    chances = 2 * norm.sf(far)
    counts = (np.abs(flat)[:, None] > far).sum(axis=0)
    tails = [two_sided(int(n), flat.size, float(p)) for n, p in zip(counts, chances, strict=True)]
    tail = min(tails) * len(tails)
    return min(body, tail) >= LEVEL / 2, body, tail


def two_sided(count: int, of: int, chance: float) -> float:
    """The two-sided binomial p-value of a count of successes."""
    alarms.count()
    low, high = float(binom.cdf(count, of, chance)), float(binom.sf(count - 1, of, chance))
    return min(1.0, 2 * min(low, high))


def rates(counts: NDArray[np.int64], of: int, chance: float) -> tuple[bool, float]:
    """Whether each count of `of` trials has this chance, and the rate farthest from it."""
    alarms.count()
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
    """Whether the sizes of cohorts vary as a binomial, and their variance over the binomial's."""
    alarms.count()
    variance = clients * chance * (1 - chance)
    ratio = float(np.square(sizes - clients * chance).mean() / variance)
    excess = (1 - 6 * chance * (1 - chance)) / variance
    degrees = len(sizes) * 2 / (2 + max(excess, 0.0))
    low, high = (float(chi2.ppf(p, degrees)) for p in (LEVEL / 2, 1 - LEVEL / 2))
    return low <= ratio * degrees <= high, ratio


def uniform(rows: NDArray[np.uint8]) -> tuple[bool, float]:
    """Whether the bytes of each row are uniformly distributed (χ²), and the smallest p-value."""
    alarms.count()
    numbers = rows.shape[1]
    counts = np.stack([np.bincount(row, minlength=256) for row in rows])
    statistics = np.square(counts - numbers / 256).sum(axis=1) / (numbers / 256)
    worst = float(chi2.sf(statistics.max(), 255))
    return worst >= LEVEL / len(rows), worst


def least_plain_share(numbers: int, rows: int = 1, sure: float = SURE) -> float:
    """The smallest share of identical bytes in a row that `uniform` finds with this probability."""
    edge = float(chi2.isf(LEVEL / rows, 255))
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        found = ncx2.sf(edge, 255, max(255 * numbers * middle**2, 1e-12)) >= sure
        low, high = (low, middle) if found else (middle, high)
    return high


def attendance(cohorts: tuple[NDArray[np.int64], ...], clients: int) -> NDArray[np.int64]:
    """Participation in each round: [rounds, clients] of 0 and 1."""
    came = np.zeros((len(cohorts), clients), dtype=np.int64)
    for row, cohort in zip(came, cohorts, strict=True):
        row[cohort] = 1
    return came


def check_sampling(came: NDArray[np.int64], rate: float) -> list[Check]:
    """The checks of participation [rounds, clients], each client having this probability."""
    rounds, clients = came.shape
    sizes = came.sum(axis=1).astype(np.float64)
    mean, found = rates(np.array([came.sum()]), came.size, rate)
    each, farthest = rates(came.sum(axis=0), rounds, rate)
    spread = float(np.sqrt(rate * (1 - rate)))
    centred = came - rate
    over, lag = standard(lags(centred.astype(np.float64), spread))
    varied, ratio = dispersion(sizes, clients, rate)
    together = (came.T @ came)[np.triu_indices(clients, 1)]
    pairs, pair = rates(together, rounds, rate**2)
    return [
        Check(
            "sampling rate",
            mean,
            f"a client comes with probability q = {rate:.4g}",
            f"{found:.4f} in {came.size} draws",
            power=f"a q that is {least_rate_change(came.size, rate):.1%} low is found with "
            f"{SURE:.0%} probability",
        ),
        Check(
            "sampling of each client",
            each,
            "every client comes as often",
            f"{farthest:.3f} where {rate:.3f} is due, the farthest of {clients} clients",
            power=f"a client that comes {least_rate_change(rounds, rate, clients):.1%} too rarely "
            f"is found with {SURE:.0%} probability",
        ),
        Check(
            "sampling over rounds",
            over,
            "rounds do not know each other, however far apart",
            f"{lag:+.1f} deviations at the worst of {rounds // 2} lags",
            power=f"a correlation of {least_shift(rounds // 2) / came.size**0.5:.1%} between "
            f"neighbouring rounds is found with {SURE:.0%} probability",
        ),
        Check(
            "sampling between clients",
            varied and pairs,
            "clients do not know each other: the sizes of cohorts vary as a binomial",
            f"cohorts of {sizes.min():.0f} to {sizes.max():.0f}, variance {ratio:.2f} of the "
            f"binomial's; a pair came together in {pair:.3f} of rounds where {rate**2:.3f} is due",
        ),
    ]
