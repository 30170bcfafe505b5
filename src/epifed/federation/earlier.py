"""Whether a round's release is like those of the weeks before, where nobody sees what a site sent.

Only releases are compared, which are private already. A release that is unlike them stands and is
paid for; that it is, is said, so that somebody looks before a forecast is made of it.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from epifed.errors import EpifedError
from epifed.federation.server import ORDER, Order
from epifed.files import write_atomic

RELEASED = "released"
LEAST_WEEKS, MOST_WEEKS = 4, 12
"""Earlier trainings that make a comparison, and the most that are looked at."""
FAR = 6.0
"""Deviations from the earlier ones' median from which on a number is unusual."""
LEAST_SPREAD = 0.05
"""Deviation that is usual in any case, relative to the clip norm."""
MOST_NUMBERS = 64
"""Of a longer vector only its norm is compared."""


def keep(folder: Path, number: int, released: NDArray[np.float64]) -> None:
    """Remember what a round of the training in a folder has released."""

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.save(file, _compared(released))

    (folder / RELEASED).mkdir(exist_ok=True)
    write_atomic(folder / RELEASED / f"{number}.npy", write)


def unlike(
    folder: Path,
    order: Order,
    number: int,
    released: NDArray[np.float64],
    noise_std: float,
) -> bool:
    """Whether a release is far from those of the same round of earlier trainings like this one.

    Like this one are those beside it with the same learner and clip norm and an earlier last day.
    """
    now = _compared(released)
    weeks = [week for week in _weeks(folder, order, number) if week.shape == now.shape]
    if len(weeks) < LEAST_WEEKS:
        return False
    before = np.stack(weeks[-MOST_WEEKS:])
    middle = np.median(before, axis=0)
    usual = 1.4826 * np.median(np.abs(before - middle), axis=0)
    spread = np.sqrt(usual**2 + noise_std**2 + (LEAST_SPREAD * order.settings.clip_norm) ** 2)
    return bool((np.abs(now - middle) > FAR * spread).any())


def _compared(released: NDArray[np.float64]) -> NDArray[np.float64]:
    return released if len(released) <= MOST_NUMBERS else np.array([np.linalg.norm(released)])


def _weeks(folder: Path, order: Order, number: int) -> list[NDArray[np.float64]]:
    """What the same round of earlier trainings released, the oldest first.

    One that cannot be read, of another version of epifed say, is no reason to stop a training.
    """
    found = []
    for path in folder.parent.glob(f"*/{RELEASED}/{number}.npy"):
        try:
            other = Order.from_json((path.parents[1] / ORDER).read_text(encoding="utf-8"))
            released = np.load(path, allow_pickle=False)
        except (OSError, ValueError, KeyError, EpifedError):
            continue
        same = (other.settings.learner, other.settings.clip_norm, other.seeded) == (
            order.settings.learner,
            order.settings.clip_norm,
            order.seeded,
        )
        if same and other.last_day < order.last_day:
            found.append((other.last_day, other.training, released))
    return [week for _, _, week in sorted(found, key=lambda one: one[:2])]
