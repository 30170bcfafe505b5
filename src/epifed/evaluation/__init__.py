"""The accuracy of a training, always beside persistence on the same windows."""

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from epifed.evaluation.metrics import scores
from epifed.evaluation.results_folder import method_of

if TYPE_CHECKING:
    from epifed.training.loop import Clients, Training


def score(training: "Training", clients: "Clients") -> pl.DataFrame:
    """The metrics of a training and of persistence on the clients' test windows."""
    truth = clients.test.targets.astype(np.float64)
    like_today = clients.test.inputs[..., -1].astype(np.float64)
    rows = {
        method_of(training.settings): training.predict(clients.test.inputs),
        "persistence": like_today,
    }
    return pl.DataFrame([{"method": m} | scores(truth, p, like_today) for m, p in rows.items()])
