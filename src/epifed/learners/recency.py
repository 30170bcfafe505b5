"""How much a window counts by its age: in a changing epidemic the last days say most."""

import numpy as np
from numpy.typing import NDArray

from epifed.settings import Settings
from epifed.windows import Windows


def recency(windows: Windows, settings: Settings) -> NDArray[np.float32]:
    """A weight for each window, 1 for a client's newest and half as much every half-life before.

    Padding counts nothing. With the shuffled split the tested windows lie among the others, so
    all count alike.
    """
    real = windows.mask.astype(np.float32)
    if settings.half_life is None or settings.split == "shuffled" or real.size == 0:
        return real
    days = windows.target_days.astype("datetime64[D]").astype(np.int64)
    newest = np.where(windows.mask, days, np.iinfo(np.int64).min).max(axis=1, keepdims=True)
    age = np.where(windows.mask, newest - days, 0)
    weight: NDArray[np.float32] = real * np.exp2(-age / settings.half_life).astype(np.float32)
    return weight
