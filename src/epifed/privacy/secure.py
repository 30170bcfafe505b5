"""Randomness for real data: from a secure generator, and safe against floating-point attacks.

The low bits of a floating-point Gaussian tell what it was added to (Mironov, 2012; Holohan and
Braghin, 2021). Here nothing real-valued is ever added. Each client's vector becomes whole steps
of a fixed grid, S being `STEPS` of them, with a norm of at most S also after rounding; the sum of
whole numbers is exact; and OpenDP adds exact discrete Gaussian noise (Canonne, Kamath and
Steinke, 2020) to it. What follows is post-processing.

The accountants know the continuous Gaussian. One with deviation σ, rounded at random by a
discrete Gaussian of deviation `ROUNDING`, is the discrete Gaussian of variance σ² + `ROUNDING`²
(after Peikert, 2010), point by point within a factor of 1 ± 5·exp(-2π²·ROUNDING²), or 4e-77. So
noise that much wider costs what the continuous one does, by any accountant and any sampling.
"""

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from epifed.privacy.mechanism import Rows, norms

if TYPE_CHECKING:
    from opendp.mod import Measurement

STEPS = 2**24
"""So many steps of the grid make up the clip norm S."""
ROUNDING = 3.0
"""The deviation, in steps, of the randomised rounding that links discrete to continuous noise."""


def noisy_sum(updates: Rows, clip_norm: float, noise_multiplier: float) -> NDArray[np.float64]:
    """Σ Δŵ + ξ with ξ ~ N(0, S²c²I), on the grid, in double precision.

    Clips the rows itself, for only whole numbers can be held to S exactly. The noise is added to
    whole numbers alone: as floating-point numbers it would not be safe.
    """
    _check(clip_norm, noise_multiplier)
    exact = to_grid(updates, clip_norm).sum(axis=0)
    noisy = _mechanism(grid_deviation(noise_multiplier))(exact.tolist())
    return from_grid(np.array(noisy, dtype=np.int64), clip_norm)


def grid_noise(length: int, noise_multiplier: float) -> NDArray[np.int64]:
    """The noise of `noisy_sum` in whole steps, for whoever adds it modulo 2^64.

    It is drawn apart because the mechanism would cut a sum off where whole numbers end, and a
    share of a sum lies anywhere among them.
    """
    _check(1.0, noise_multiplier)
    drawn = _mechanism(grid_deviation(noise_multiplier))([0] * length)
    return np.array(drawn, dtype=np.int64)


def secure_release(
    updates: Rows, *, clip_norm: float, noise_multiplier: float, clients_per_round: int
) -> Rows:
    """`mechanism.release` for real data: the clipped mean plus noise, in the updates' precision."""
    total = noisy_sum(updates, clip_norm, noise_multiplier)
    return (total / clients_per_round).astype(updates.dtype)


def from_grid(steps: NDArray[np.int64], clip_norm: float) -> NDArray[np.float64]:
    """What so many steps of the grid are worth, in double precision."""
    return steps.astype(np.float64) * (clip_norm / STEPS)


def longest_sum(clients: int, length: int, noise_multiplier: float) -> float:
    """The norm, in steps, that the noisy sum of so many clients has never yet been beyond.

    The norm of noise of deviation σ in d coordinates passes σ (√d + 10) with a chance below e^-50
    (concentration of Lipschitz functions of Gaussians).
    """
    noise = grid_deviation(noise_multiplier) * (math.sqrt(length) + 10)
    return clients * STEPS + noise


def to_grid(updates: Rows, clip_norm: float) -> NDArray[np.int64]:
    """Each row in whole steps of S / `STEPS`, its norm at most `STEPS` exactly.

    Rounding to the nearest step lengthens a row of d coordinates by at most √d / 2 steps, so rows
    are clipped to that much less than S, and one step less still for the arithmetic on the way.
    A row that is not finite counts as zero: it must not spoil the round.
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
    """The deviation of the discrete noise, in steps, rounded up."""
    return math.nextafter(math.hypot(noise_multiplier * STEPS, ROUNDING), math.inf)


@lru_cache(maxsize=16)
def _mechanism(deviation: float) -> "Measurement":
    """OpenDP's mechanism; it is imported by who adds noise, and a site adds none."""
    from opendp.domains import atom_domain, vector_domain  # noqa: PLC0415
    from opendp.measurements import make_gaussian  # noqa: PLC0415
    from opendp.metrics import l2_distance  # noqa: PLC0415
    from opendp.mod import enable_features  # noqa: PLC0415

    enable_features("contrib")
    return make_gaussian(vector_domain(atom_domain(T="i64")), l2_distance(T="f64"), deviation)
