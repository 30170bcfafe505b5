"""The accuracy of a training, always beside persistence on the same windows."""

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from epifed.evaluation.metrics import scores
from epifed.evaluation.results_folder import method_of

if TYPE_CHECKING:
    from epifed.training.loop import Clients, Training


def score(training: "Training", clients: "Clients") -> pl.DataFrame:
    """Score a training and persistence on the clients' test windows.

    Parameters
    ----------
    training : Training
        What predicts.
    clients : Clients
        What it was trained on; their test windows [N, windows] are scored.

    Returns
    -------
    DataFrame
        A row for each method: every registered metric, and `zeros`, the targets left out of MAPE.

    Raises
    ------
    ValueError
        If the windows have another length than the training's.

    Examples
    --------
    >>> from epifed.api import train
    >>> from epifed.settings import Settings
    >>> from epifed.simulate import SimulationSettings, simulate
    >>> from epifed.training.loop import make_clients
    >>> panel = simulate(SimulationSettings(counties=12, communities=24, seed=1)).county_panel
    >>> clients = make_clients(panel, Settings.for_learner("one-shot", 12, clients_per_round=12))
    >>> score(train(clients, learner="one-shot", epsilon=1.0), clients)["method"].to_list()
    ['one-shot', 'persistence']
    """
    truth = clients.test.targets.astype(np.float64)
    like_today = clients.test.inputs[..., -1].astype(np.float64)
    rows = {
        method_of(training.settings): training.predict(clients.test.inputs),
        "persistence": like_today,
    }
    return pl.DataFrame([{"method": m} | scores(truth, p, like_today) for m, p in rows.items()])
