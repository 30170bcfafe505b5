"""The clients of an experiment: what they learn from, and what is kept back to test them on."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from epifed.errors import EpifedError
from epifed.learner import Period, View, WindowLearner, make_learner
from epifed.panel import CasePanel
from epifed.settings import Settings
from epifed.windows import Windows, last_learned, slide
from epifed.words import counted


@dataclass(frozen=True)
class Clients:
    """The N clients of an experiment: who they are, what is trained on, what is tested on."""

    view: View
    """What the learner reads."""
    train: Windows
    """The same days as windows, for baselines and training errors."""
    test: Windows
    regions: tuple[str, ...]
    names: tuple[str, ...]
    population: NDArray[np.int64] | None
    parents: tuple[str, ...] = ()

    def __len__(self) -> int:
        """The paper's N_total."""
        return len(self.regions)

    def __repr__(self) -> str:
        """How many, and how many windows each."""
        train, test = self.train.mask.shape[1], self.test.mask.shape[1]
        each = f"{counted(train, 'window')} to train and {test} to test each"
        return f"Clients({counted(len(self), 'client')}, {each})"


def make_clients(
    panel: CasePanel,
    settings: Settings,
    period: Period | None = None,
    shuffle: np.random.Generator | None = None,
) -> Clients:
    """Cut a panel into clients: slide windows over the period and split them 90/10.

    With the shuffled split, `shuffle` decides which windows are for testing.
    """
    period = period or (panel.start, panel.end)
    every = slide(panel, settings, period)
    per_client = every.mask.shape[1]
    n_train = int(per_client * settings.train_share)
    if n_train in (0, per_client):
        raise EpifedError(
            f"train_share: found {settings.train_share:g} of {counted(per_client, 'window')}, "
            "which leaves "
            f"{n_train} to train and {per_client - n_train} to test; expected at least one each"
        )
    order = np.broadcast_to(np.arange(per_client), every.mask.shape)
    if settings.split == "shuffled":
        order = (shuffle or np.random.default_rng(settings.seed)).permuted(order, axis=1)
    train, test = every.pick(order[:, :n_train]), every.pick(order[:, n_train:])
    return Clients(
        _view(panel, settings, period, train),
        train,
        test,
        panel.regions,
        panel.names,
        panel.population,
        panel.parents,
    )


def _view(panel: CasePanel, settings: Settings, period: Period, train: Windows) -> View:
    learner = make_learner(settings)
    if isinstance(learner, WindowLearner):
        return train
    if settings.split == "shuffled":
        raise EpifedError(
            f"learner: found '{settings.learner}' with the shuffled split, which cuts the last "
            "days up; expected the temporal split"
        )
    view: View = learner.view(panel, (period[0], last_learned(panel, settings, period)))
    return view
