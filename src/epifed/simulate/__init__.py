"""The built-in default data: a simulated country, its epidemic and its reporting."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from epifed.simulate.epidemic import SimulationSettings
    from epifed.simulate.simulation import Simulation, default_panel, simulate

__all__ = ["Simulation", "SimulationSettings", "default_panel", "simulate"]


def __getattr__(name: str) -> Any:
    """Import on first use, so that reading settings does not load the simulator."""
    if name not in __all__:
        raise AttributeError(f"module 'epifed.simulate' has no attribute '{name}'")
    home = "epidemic" if name == "SimulationSettings" else "simulation"
    return getattr(import_module(f"epifed.simulate.{home}"), name)
