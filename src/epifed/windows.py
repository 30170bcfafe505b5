"""From a case panel to the clients' training and test windows (the paper's Eqs. 1 and 2)."""

from dataclasses import dataclass, replace
from datetime import date, timedelta

import numpy as np
from numpy.typing import NDArray

from epifed import holidays
from epifed.errors import EpifedError
from epifed.panel import CasePanel
from epifed.settings import Settings, Smoothing

Floats = NDArray[np.float64]

SMOOTHING_DAYS = 7
LATEST_DAYS = 28


@dataclass(frozen=True)
class Windows:
    """A stack of clients' windows. Clients of unequal length are padded; `mask` says what is real.

    inputs[k, j] are `window` consecutive days of client k, targets[k, j] the count `horizon` days
    after the last of them, on day target_days[k, j]. latest[k] are the counts of client k on the
    last days that may be learned from, holidays taken out, unless a shuffled split cuts them up.
    """

    inputs: NDArray[np.float32]
    targets: NDArray[np.float32]
    mask: NDArray[np.bool_]
    target_days: NDArray[np.datetime64]
    latest: NDArray[np.float32] | None = None

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
            None if self.latest is None else self.latest[clients],
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
    every = _slide(panel, settings, first, last)
    per_client = every.mask.shape[1]
    if per_client < settings.min_windows:
        raise EpifedError(
            f"{panel.source}: found {per_client} windows per region from {first} to {last}; "
            f"expected at least {settings.min_windows}"
        )
    n_train = _training_windows(settings, per_client)
    if n_train == 0 or (n_train == per_client and settings.train_share < 1):
        raise EpifedError(
            f"train_share: found {settings.train_share:g} of {per_client} windows, which leaves "
            f"{n_train} to train and {per_client - n_train} to test; expected at least one each"
        )
    order = np.broadcast_to(np.arange(per_client), every.mask.shape)
    latest = None
    if settings.split == "shuffled":
        generator = shuffle or np.random.default_rng(settings.seed)
        order = generator.permuted(order, axis=1)
    else:
        latest = _latest(panel, settings, last_learned(settings, first, last))
    train, test = _pick(every, order[:, :n_train]), _pick(every, order[:, n_train:])
    return Clients(
        replace(train, latest=latest),
        test,
        panel.regions,
        panel.names,
        panel.population,
        panel.parents,
    )


def last_learned(settings: Settings, first: date, last: date) -> date:
    """The last day of a period that is learned from, where the split is in time."""
    length = (last - first).days + 1
    per_client = length - (settings.history or settings.window) - settings.horizon + 1
    return last - timedelta(days=per_client - _training_windows(settings, per_client))


def last_windows(panel: CasePanel, settings: Settings, days: int) -> NDArray[np.float32]:
    """The inputs whose last day is each of the last so many days: [regions, days, window]."""
    smoothed = smooth(panel.counts, settings.smoothing)
    ends = np.arange(smoothed.shape[1] - days, smoothed.shape[1])
    inputs = smoothed[:, ends[:, None] + np.arange(1 - settings.window, 1)]
    return inputs.astype(np.float32)


def _training_windows(settings: Settings, per_client: int) -> int:
    return int(per_client * settings.train_share)


def _slide(panel: CasePanel, settings: Settings, first: date, last: date) -> Windows:
    """All windows of a period, in order."""
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
    origins = np.arange(history - 1, history - 1 + per_client)
    inputs = smoothed[:, origins[:, None] + np.arange(1 - settings.window, 1)]
    targets = smoothed[:, origins + settings.horizon]
    days = np.datetime64(first) + origins + settings.horizon
    return Windows(
        inputs.astype(np.float32),
        targets.astype(np.float32),
        np.ones(targets.shape, dtype=np.bool_),
        np.broadcast_to(days, targets.shape),
    )


def _pick(windows: Windows, chosen: NDArray[np.int64]) -> Windows:
    """Some windows of each client, chosen[k] of client k."""
    return Windows(
        np.take_along_axis(windows.inputs, chosen[:, :, None], axis=1),
        np.take_along_axis(windows.targets, chosen, axis=1),
        np.take_along_axis(windows.mask, chosen, axis=1),
        np.take_along_axis(windows.target_days, chosen, axis=1),
    )


def _latest(panel: CasePanel, settings: Settings, last: date) -> NDArray[np.float32]:
    known = panel.counts[:, : (last - panel.start).days + 1]
    usual = holidays.taken_out(known, settings.holidays, panel.start)
    return usual[:, -LATEST_DAYS:].astype(np.float32)
