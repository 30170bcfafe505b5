"""Differentially private federated forecasting of local case numbers.

>>> import epifed
>>> epifed.Settings.paper(epsilon=2.0).clip_norm
0.5
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from epifed.api import backtest, forecast, train
    from epifed.data.panel import CasePanel
    from epifed.data.readers import load_panel
    from epifed.errors import EpifedError
    from epifed.evaluation import score
    from epifed.evaluation.experiment import Grid, run_grid
    from epifed.evaluation.results_folder import Results
    from epifed.learners.base import Learner, WindowLearner
    from epifed.ledger.ledger import Ledger
    from epifed.privacy.accounting import calibrate
    from epifed.registry import LEARNERS, MODELS
    from epifed.report.figures import plot
    from epifed.settings import EPSILONS, PERIODS, Settings
    from epifed.simulate import default_panel
    from epifed.training.loop import Clients, Training, make_clients
    from epifed.training.release import Release, read_release

_HOMES = {
    "backtest": "api",
    "calibrate": "privacy.accounting",
    "CasePanel": "data.panel",
    "Clients": "training.loop",
    "default_panel": "simulate",
    "EpifedError": "errors",
    "EPSILONS": "settings",
    "forecast": "api",
    "Grid": "evaluation.experiment",
    "Learner": "learners.base",
    "LEARNERS": "registry",
    "Ledger": "ledger.ledger",
    "load_panel": "data.readers",
    "make_clients": "training.loop",
    "MODELS": "registry",
    "PERIODS": "settings",
    "plot": "report.figures",
    "read_release": "training.release",
    "Release": "training.release",
    "Results": "evaluation.results_folder",
    "run_grid": "evaluation.experiment",
    "score": "evaluation",
    "Settings": "settings",
    "train": "api",
    "Training": "training.loop",
    "WindowLearner": "learners.base",
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
