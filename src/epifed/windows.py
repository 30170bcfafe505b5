"""From a case panel to the clients' training and test windows (the paper's Eqs. 1 and 2)."""

from dataclasses import dataclass
from datetime import date

import numpy as np
from numpy.typing import NDArray

from epifed.errors import EpifedError
from epifed.panel import CasePanel
from epifed.settings import Settings, Smoothing

Floats = NDArray[np.float64]

SMOOTHING_DAYS = 7


@dataclass(frozen=True)
class Windows:
    """A stack of clients' windows. Clients of unequal length are padded; `mask` says what is real.

    inputs[k, j] are `window` consecutive days of client k, targets[k, j] the count `horizon` days
    after the last of them, on day target_days[k, j].
    """

    inputs: NDArray[np.float32]
    targets: NDArray[np.float32]
    mask: NDArray[np.bool_]
    target_days: NDArray[np.datetime64]

    def __len__(self) -> int:
        """The number of clients."""
        return len(self.mask)

    def of(self, clients: NDArray[np.int64]) -> "Windows":
        """The windows of some clients only."""
        return Windows(
            self.inputs[clients],
            self.targets[clients],
            self.mask[clients],
            self.target_days[clients],
        )


@dataclass(frozen=True)
class Clients:
    """The N clients of a training: who they are, what they train on, what they are tested on."""

    train: Windows
    test: Windows
    regions: tuple[str, ...]
    names: tuple[str, ...]
    population: NDArray[np.int64] | None
    parents: tuple[str, ...] = ()

    def __len__(self) -> int:
        """The paper's N_total."""
        return len(self.regions)


def smooth(counts: Floats, how: Smoothing) -> Floats:
    """The 7-day moving average along the days; at the ends, over the days that are there.

    `centered` (the paper) uses three later days, `trailing` none.
    """
    if how == "none":
        return counts
    before, after = (3, 3) if how == "centered" else (SMOOTHING_DAYS - 1, 0)
    days = counts.shape[1]
    total = np.concatenate([np.zeros((len(counts), 1)), np.cumsum(counts, axis=1)], axis=1)
    first = np.maximum(np.arange(days) - before, 0)
    end = np.minimum(np.arange(days) + after + 1, days)
    average: Floats = (total[:, end] - total[:, first]) / (end - first)
    return np.maximum(average, 0.0)


def make_clients(
    panel: CasePanel,
    settings: Settings,
    period: tuple[date, date] | None = None,
    shuffle: np.random.Generator | None = None,
) -> Clients:
    """Cut a panel into clients: smooth, cut the period out, slide windows, split 90/10.

    Smoothing comes before the cut, as in the paper, so the first days of a period have their full
    average. With the shuffled split, `shuffle` decides which windows are for testing.
    """
    first, last = period or (panel.start, panel.end)
    panel.between(first, last)
    offset = (first - panel.start).days
    length = (last - first).days + 1
    smoothed = smooth(panel.counts, settings.smoothing)[:, offset : offset + length]
    history = settings.history or settings.window
    per_client = length - history - settings.horizon + 1
    if per_client < 1:
        raise EpifedError(
            f"{panel.source}: found {length} days from {first} to {last}; expected at least "
            f"{history + settings.horizon} for one window of {settings.window} days and a target "
            f"{settings.horizon} days ahead"
        )
    if per_client < settings.min_windows:
        raise EpifedError(
            f"{panel.source}: found {per_client} windows per region from {first} to {last}; "
            f"expected at least {settings.min_windows}"
        )
    origins = np.arange(history - 1, history - 1 + per_client)
    inputs = smoothed[:, origins[:, None] + np.arange(1 - settings.window, 1)]
    targets = smoothed[:, origins + settings.horizon]
    target_days = np.datetime64(first) + origins + settings.horizon
    n_train = int(per_client * settings.train_share)
    if not 0 < n_train < per_client:
        raise EpifedError(
            f"train_share: found {settings.train_share:g} of {per_client} windows, which leaves "
            f"{n_train} to train and {per_client - n_train} to test; expected at least one each"
        )
    order = np.broadcast_to(np.arange(per_client), (len(inputs), per_client))
    if settings.split == "shuffled":
        generator = shuffle or np.random.default_rng(settings.seed)
        order = generator.permuted(order, axis=1)
    parts = []
    for chosen in (order[:, :n_train], order[:, n_train:]):
        parts.append(
            Windows(
                np.take_along_axis(inputs, chosen[:, :, None], axis=1).astype(np.float32),
                np.take_along_axis(targets, chosen, axis=1).astype(np.float32),
                np.ones(chosen.shape, dtype=np.bool_),
                target_days[chosen],
            )
        )
    return Clients(parts[0], parts[1], panel.regions, panel.names, panel.population, panel.parents)
