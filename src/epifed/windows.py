"""From a case panel to the clients' training and test windows (the paper's Eqs. 1 and 2)."""

from dataclasses import dataclass
from datetime import date

import numpy as np
from numpy.typing import NDArray

from epifed.days import WEEK, Step
from epifed.errors import EpifedError
from epifed.panel import CasePanel
from epifed.settings import Settings, Smoothing
from epifed.words import counted

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Windows:
    """A stack of clients' windows. Clients of unequal length are padded; `mask` says what is real.

    inputs[k, j] are `window` consecutive days (or weeks) of client k, targets[k, j] the count
    `horizon` of them after the last, on day target_days[k, j].
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

    def pooled(self) -> tuple[Floats, Floats]:
        """The inputs and targets of all clients together."""
        return self.inputs[self.mask].astype(np.float64), self.targets[self.mask].astype(np.float64)

    def pick(self, chosen: NDArray[np.int64]) -> "Windows":
        """Some windows of each client, chosen[k] of client k."""
        return Windows(
            np.take_along_axis(self.inputs, chosen[:, :, None], axis=1),
            np.take_along_axis(self.targets, chosen, axis=1),
            np.take_along_axis(self.mask, chosen, axis=1),
            np.take_along_axis(self.target_days, chosen, axis=1),
        )


def smooth(counts: Floats, how: Smoothing) -> Floats:
    """The 7-day moving average along the days; at the ends, over the days that are there.

    `centered` (the paper) uses three later days, `trailing` none.
    """
    if how == "none":
        return counts
    before, after = (3, 3) if how == "centered" else (WEEK - 1, 0)
    days = counts.shape[1]
    total = np.concatenate([np.zeros((len(counts), 1)), np.cumsum(counts, axis=1)], axis=1)
    first = np.maximum(np.arange(days) - before, 0)
    end = np.minimum(np.arange(days) + after + 1, days)
    average: Floats = (total[:, end] - total[:, first]) / (end - first)
    return np.maximum(average, 0.0)


def observed(counts: Floats, step: Step) -> Floats:
    """What is forecast, at each step: the 7-day average up to a day, or the count of a week."""
    return smooth(counts, "trailing" if step == "day" else "none")


def last_windows(panel: CasePanel, settings: Settings, days: int) -> NDArray[np.float32]:
    """The inputs that end on each of the last so many days (or weeks): [regions, days, window]."""
    panel.refuse_step(settings.step)
    smoothed = smooth(panel.counts, settings.smoothing)
    ends = np.arange(smoothed.shape[1] - days, smoothed.shape[1])
    inputs = smoothed[:, ends[:, None] + np.arange(1 - settings.window, 1)]
    return inputs.astype(np.float32)


def last_learned(panel: CasePanel, settings: Settings, period: tuple[date, date]) -> date:
    """The last day of an experiment's period that is learned from, where the split is in time."""
    length = panel.between(*period).counts.shape[1]
    per_client = length + 1 - (settings.history or settings.window) - settings.horizon
    return panel.day(panel.index(period[1]) - per_client + int(per_client * settings.train_share))


def slide(panel: CasePanel, settings: Settings, period: tuple[date, date]) -> Windows:
    """All windows of a period, in order, smoothed before the period is cut out, as in the paper.

    So the first days of a period have their full average.
    """
    panel.refuse_step(settings.step)
    inside = panel.between(*period)
    first, last = inside.start, inside.end
    offset, length, unit = panel.index(first), inside.counts.shape[1], f"{panel.step}s"
    smoothed = smooth(panel.counts, settings.smoothing)[:, offset : offset + length]
    history = settings.history or settings.window
    per_client = length - history - settings.horizon + 1
    if per_client < 1:
        raise EpifedError(
            f"{panel.source}: found {length} {unit} from {first} to {last}; expected at least "
            f"{history + settings.horizon} for one window of {settings.window} {unit} and a target "
            f"{settings.horizon} {unit} ahead"
        )
    if per_client < settings.min_windows:
        raise EpifedError(
            f"{panel.source}: found {counted(per_client, 'window')} per region from {first} to "
            f"{last}; "
            f"expected at least {settings.min_windows}"
        )
    origins = np.arange(history - 1, history - 1 + per_client)
    inputs = smoothed[:, origins[:, None] + np.arange(1 - settings.window, 1)]
    targets = smoothed[:, origins + settings.horizon]
    days = np.datetime64(first) + panel.step_days * (origins + settings.horizon)
    return Windows(
        inputs.astype(np.float32),
        targets.astype(np.float32),
        np.ones(targets.shape, dtype=np.bool_),
        np.broadcast_to(days, targets.shape),
    )
