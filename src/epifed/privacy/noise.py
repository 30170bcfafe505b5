"""Clipping, sampling and Gaussian noise of Algorithm 1, seeded for experiments or secure.

The low bits of a floating-point Gaussian reveal what it was added to (Mironov, 2012; Holohan and
Braghin, 2021). So the secure path adds no real numbers. Each client's vector becomes whole steps
of a fixed grid, with `STEPS` steps to S, and a norm of at most S also after rounding. The sum of
whole numbers is exact. OpenDP adds exact discrete Gaussian noise (Canonne, Kamath and Steinke,
2020) to it. All later steps are post-processing.

The accountants price the continuous Gaussian. One with deviation σ, rounded at random by a
discrete Gaussian of deviation `ROUNDING`, is the discrete Gaussian of variance σ² + `ROUNDING`²
(after Peikert, 2010), point by point within a factor of 1 ± 5·exp(-2π²·ROUNDING²), or 4e-77. So
noise of that variance costs the same as the continuous one, by any accountant and any sampling.
"""

import math
import secrets
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from epifed.errors import EpifedError
from epifed.privacy.plan import PrivacyPlan
from epifed.settings import of_training

if TYPE_CHECKING:
    from opendp.mod import Measurement


Rows = NDArray[np.floating[Any]]


def clip(updates: Rows, clip_norm: float) -> Rows:
    """Δŵ = Δw / max(1, ‖Δw‖₂ / S), for each row; S = inf leaves the rows as they are.

    A row that is not finite becomes zero: it would spoil the release and reveal participation.
    """
    if math.isinf(clip_norm):
        return updates
    with np.errstate(over="ignore", invalid="ignore"):
        length = norms(updates)[:, None]
        clipped = updates / np.maximum(length / clip_norm, 1.0).astype(updates.dtype)
    return np.where(np.isfinite(length), clipped, np.zeros((), dtype=updates.dtype))


def norms(rows: Rows) -> NDArray[np.float64]:
    """‖Δw‖₂ of each row in double precision; not finite where the row is not."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
        found: NDArray[np.float64] = np.sqrt(squares)
    return found


def release(
    updates: Rows,
    noise: Rows,
    *,
    clip_norm: float,
    noise_multiplier: float,
    clients_per_round: int,
) -> Rows:
    """The release of a round by the trusted server: (Σ Δŵ + ξ) / m with ξ ~ N(0, S²c²I).

    `updates` has a row for each participating client, possibly none; an empty round is still noise.
    The sum is divided by the fixed m, never by the number of rows. `noise` is standard normal. The
    server clips all rows again, although the clients clipped them.
    """
    if not math.isfinite(clip_norm) and noise_multiplier:
        raise ValueError("noise without a clip norm gives no privacy")
    total = clip(updates, clip_norm).sum(axis=0, dtype=np.float64) / clients_per_round
    deviation = clip_norm * noise_multiplier / clients_per_round if noise_multiplier else 0.0
    released: Rows = (total + deviation * noise).astype(updates.dtype)
    return released


def sample_clients(plan: PrivacyPlan, clients: int) -> NDArray[np.int64]:
    """Draw from so many of the N clients, each with probability m / N exactly; return the indices.

    Uses the system's secure generator. The server draws for all clients, a site for its own.
    """
    drawn = (secrets.randbelow(plan.clients) < plan.clients_per_round for _ in range(clients))
    return np.flatnonzero(np.fromiter(drawn, dtype=np.bool_, count=clients))


def seeded_share(
    plan: PrivacyPlan, seed: int, place: int, number: int, length: int, noise_multiplier: float
) -> NDArray[np.int64]:
    """An aggregator's predictable share of a round's noise, in steps of the grid: for tests only.

    All shares of a round add up to the noise of `SeededRandomness`, up to rounding to the grid.
    """
    _, _, noise = of_training(seed)
    stream = _share_streams(noise, plan)[place]
    drawn = [stream.standard_normal(length, dtype=np.float32) for _ in range(number)][-1]
    steps = np.rint(drawn.astype(np.float64) * noise_multiplier * STEPS)
    return steps.astype(np.int64)


def _share_streams(noise: np.random.SeedSequence, plan: PrivacyPlan) -> list[np.random.Generator]:
    """One generator for each aggregator."""
    return [np.random.default_rng(one) for one in noise.spawn(plan.aggregators)]


class Randomness(Protocol):
    """The source of the server's draws and noise."""

    name: str

    def sample(self, plan: PrivacyPlan) -> NDArray[np.int64]:
        """The cohort K of a round: each client with probability q = m / N, so it may be empty.

        With the `fixed` sampler, exactly m clients.
        """
        ...

    def release(self, updates: Rows, plan: PrivacyPlan) -> Rows:
        """The noisy mean of a round's updates, as in the function `release`."""
        ...


class SeededRandomness:
    """Fast, repeatable and so predictable: for experiments, never for a release of real data.

    Draws come from NumPy's PCG64, noise in single precision.
    """

    name = "seeded"

    def __init__(self, sampling: np.random.SeedSequence, noise: np.random.SeedSequence) -> None:
        self._sampling = np.random.default_rng(sampling)
        self._noise = np.random.default_rng(noise)
        self._seed = noise
        self._shares: list[np.random.Generator] = []

    def sample(self, plan: PrivacyPlan) -> NDArray[np.int64]:
        """The cohort, drawn from the seed."""
        if plan.sampler == "fixed":
            chosen = self._sampling.choice(plan.clients, size=plan.clients_per_round, replace=False)
            return np.sort(chosen)
        return np.flatnonzero(self._sampling.random(plan.clients) < plan.sampling_rate)

    def release(self, updates: Rows, plan: PrivacyPlan) -> Rows:
        """The noisy mean, with seeded floating-point noise."""
        return release(
            updates,
            self._drawn(updates.shape[1], plan),
            clip_norm=plan.bound,
            noise_multiplier=plan.noise_of_round(len(updates)),
            clients_per_round=plan.clients_per_round,
        )

    def _drawn(self, length: int, plan: PrivacyPlan) -> Rows:
        """Standard normal noise; with aggregators, the scaled sum of all their shares."""
        if plan.noise != "aggregators":
            return self._noise.standard_normal(length, dtype=np.float32)
        self._shares = self._shares or _share_streams(self._seed, plan)
        total: Rows = np.zeros(length, dtype=np.float32)
        for stream in self._shares:
            total += stream.standard_normal(length, dtype=np.float32)
        return total / np.float32(math.sqrt(len(self._shares)))


class SecureRandomness:
    """Draws from the operating system's secure generator, exact on a grid: for private releases."""

    name = "secure"

    def sample(self, plan: PrivacyPlan) -> NDArray[np.int64]:
        """A Poisson sample of unpredictable clients, each with probability m / N exactly.

        Amplification by sampling needs a cohort that nobody can predict, just as noise does.
        """
        if plan.sampler != "poisson":
            raise ValueError(f"secure sampling is Poisson; found '{plan.sampler}'")
        return sample_clients(plan, plan.clients)

    def release(self, updates: Rows, plan: PrivacyPlan) -> Rows:
        """The noisy mean on whole numbers, with exact discrete Gaussian noise."""
        return secure_release(
            updates,
            clip_norm=plan.bound,
            noise_multiplier=plan.noise_of_round(len(updates)),
            clients_per_round=plan.clients_per_round,
        )


STEPS = 2**24
"""Number of grid steps in the clip norm S."""
ROUNDING = 3.0
"""Deviation, in steps, of the randomised rounding that links discrete to continuous noise."""


def refuse_without_noise() -> None:
    """Raise an error if OpenDP, which draws the secure noise, is not installed."""
    if find_spec("opendp") is None:
        raise EpifedError(
            "secure noise: found no OpenDP, which draws it; expected epifed installed with "
            "'pip install epifed[release]', or a training with --seeded, which must not be released"
        )


def noisy_sum(updates: Rows, clip_norm: float, noise_multiplier: float) -> NDArray[np.float64]:
    """Σ Δŵ + ξ with ξ ~ N(0, S²c²I), on the grid, in double precision.

    Clips the rows itself, because only whole numbers can be held to S exactly. The noise is added
    to whole numbers only: added to floating-point numbers it would not be safe.
    """
    _check(clip_norm, noise_multiplier)
    exact = to_grid(updates, clip_norm).sum(axis=0)
    noisy = _mechanism(grid_deviation(noise_multiplier))(exact.tolist())
    return from_grid(np.array(noisy, dtype=np.int64), clip_norm)


def grid_noise(length: int, noise_multiplier: float) -> NDArray[np.int64]:
    """The noise of `noisy_sum` in whole steps, for a party that adds it modulo 2^64.

    It is drawn separately because the mechanism saturates at the limits of 64-bit integers. A share
    of a sum can lie anywhere between them.
    """
    _check(1.0, noise_multiplier)
    drawn = _mechanism(grid_deviation(noise_multiplier))([0] * length)
    return np.array(drawn, dtype=np.int64)


def secure_release(
    updates: Rows, *, clip_norm: float, noise_multiplier: float, clients_per_round: int
) -> Rows:
    """`release` for real data: the clipped mean plus secure noise, in the updates' precision."""
    total = noisy_sum(updates, clip_norm, noise_multiplier)
    return (total / clients_per_round).astype(updates.dtype)


def from_grid(steps: NDArray[np.int64], clip_norm: float) -> NDArray[np.float64]:
    """Convert steps of the grid to units of the vectors, in double precision."""
    return steps.astype(np.float64) * (clip_norm / STEPS)


def longest_sum(clients: int, length: int, noise_multiplier: float) -> float:
    """A bound, in steps, that the norm of a noisy sum of so many clients practically never passes.

    The norm of noise of deviation σ in d coordinates passes σ (√d + 10) with a chance below e^-50
    (concentration of Lipschitz functions of Gaussians).
    """
    noise = grid_deviation(noise_multiplier) * (math.sqrt(length) + 10)
    return clients * STEPS + noise


def to_grid(updates: Rows, clip_norm: float) -> NDArray[np.int64]:
    """Each row in whole steps of S / `STEPS`, with a norm of at most `STEPS` exactly.

    Rounding to the nearest step lengthens a row of d coordinates by at most √d / 2 steps. So rows
    are clipped to that much less than S, and one step less still for rounding in the arithmetic.
    A row that is not finite becomes zero, so it does not spoil the round.
    """
    rows = updates.astype(np.float64)
    length = norms(rows)[:, None]
    radius = STEPS - 1 - math.sqrt(rows.shape[-1]) / 2
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        rows = np.rint(rows * np.minimum(radius / length, STEPS / clip_norm))
    rows[~np.isfinite(length[:, 0])] = 0.0
    return rows.astype(np.int64)


def _check(clip_norm: float, noise_multiplier: float) -> None:
    if not (0 < clip_norm < math.inf and 0 < noise_multiplier < math.inf):
        raise ValueError(
            "secure noise needs a clip norm and a noise multiplier above 0 and finite; "
            f"found S = {clip_norm} and c = {noise_multiplier}"
        )


def grid_deviation(noise_multiplier: float) -> float:
    """The standard deviation of the discrete noise in steps, rounded up."""
    return math.nextafter(math.hypot(noise_multiplier * STEPS, ROUNDING), math.inf)


@lru_cache(maxsize=16)
def _mechanism(deviation: float) -> "Measurement":
    """OpenDP's mechanism, imported here because only parties that add noise need it."""
    refuse_without_noise()
    from opendp.domains import atom_domain, vector_domain  # noqa: PLC0415
    from opendp.measurements import make_gaussian  # noqa: PLC0415
    from opendp.metrics import l2_distance  # noqa: PLC0415
    from opendp.mod import enable_features  # noqa: PLC0415

    enable_features("contrib")
    return make_gaussian(vector_domain(atom_domain(T="i64")), l2_distance(T="f64"), deviation)
