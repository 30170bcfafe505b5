"""Differentially private federated forecasting of local case numbers.

>>> import epifed
>>> epifed.Settings.paper(epsilon=2.0).clip_norm
0.5
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from epifed.clients import Clients, make_clients
    from epifed.errors import EpifedError
    from epifed.evaluate import score
    from epifed.evaluate.experiment import Grid, run_grid
    from epifed.evaluate.results import Results
    from epifed.panel import CasePanel
    from epifed.privacy.accounting import calibrate
    from epifed.report.figures import plot
    from epifed.settings import EPSILONS, PERIODS, Settings
    from epifed.simulate import default_panel
    from epifed.sources import load_panel
    from epifed.training import Training, train

_HOMES = {
    "CasePanel": "panel",
    "Clients": "clients",
    "EPSILONS": "settings",
    "EpifedError": "errors",
    "Grid": "evaluate.experiment",
    "PERIODS": "settings",
    "Results": "evaluate.results",
    "Settings": "settings",
    "Training": "training",
    "calibrate": "privacy.accounting",
    "default_panel": "simulate",
    "score": "evaluate",
    "load_panel": "sources",
    "make_clients": "clients",
    "plot": "report.figures",
    "run_grid": "evaluate.experiment",
    "train": "training",
}

__all__ = [
    "EPSILONS",
    "PERIODS",
    "CasePanel",
    "Clients",
    "EpifedError",
    "Grid",
    "Results",
    "Settings",
    "Training",
    "calibrate",
    "default_panel",
    "load_panel",
    "make_clients",
    "plot",
    "run_grid",
    "score",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import on first use, so that `epifed --help` does not wait for PyTorch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'epifed' has no attribute '{name}'")
    value = getattr(import_module(f"epifed.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, for completion."""
    return sorted(__all__)
