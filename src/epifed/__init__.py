"""Differentially private federated forecasting of local case numbers.

>>> import epifed
>>> epifed.Settings.paper(epsilon=2.0).clip_norm
0.5
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from epifed.api import backtest, forecast, train
    from epifed.clients import Clients, make_clients
    from epifed.errors import EpifedError
    from epifed.evaluate import score
    from epifed.evaluate.experiment import Grid, run_grid
    from epifed.evaluate.results import Results
    from epifed.learner import Learner, WindowLearner
    from epifed.ledger.ledger import Ledger
    from epifed.panel import CasePanel
    from epifed.privacy.accounting import calibrate
    from epifed.registry import LEARNERS, MODELS
    from epifed.release import Release, read_release
    from epifed.report.figures import plot
    from epifed.settings import EPSILONS, PERIODS, Settings
    from epifed.simulate import default_panel
    from epifed.sources import load_panel
    from epifed.training import Training

_HOMES = {
    "backtest": "api",
    "calibrate": "privacy.accounting",
    "CasePanel": "panel",
    "Clients": "clients",
    "default_panel": "simulate",
    "EpifedError": "errors",
    "EPSILONS": "settings",
    "forecast": "api",
    "Grid": "evaluate.experiment",
    "Learner": "learner",
    "LEARNERS": "registry",
    "Ledger": "ledger.ledger",
    "load_panel": "sources",
    "make_clients": "clients",
    "MODELS": "registry",
    "PERIODS": "settings",
    "plot": "report.figures",
    "read_release": "release",
    "Release": "release",
    "Results": "evaluate.results",
    "run_grid": "evaluate.experiment",
    "score": "evaluate",
    "Settings": "settings",
    "train": "api",
    "Training": "training",
    "WindowLearner": "learner",
}

__all__ = [
    "EPSILONS",
    "LEARNERS",
    "MODELS",
    "PERIODS",
    "CasePanel",
    "Clients",
    "EpifedError",
    "Grid",
    "Learner",
    "Ledger",
    "Release",
    "Results",
    "Settings",
    "Training",
    "WindowLearner",
    "backtest",
    "calibrate",
    "default_panel",
    "forecast",
    "load_panel",
    "make_clients",
    "plot",
    "read_release",
    "run_grid",
    "score",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import on first use, so that a command waits for nothing that it does not need."""
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415

        return version("epifed")
    if name not in _HOMES:
        raise AttributeError(f"module 'epifed' has no attribute '{name}'")
    value = getattr(import_module(f"epifed.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, for completion."""
    return sorted(__all__)
