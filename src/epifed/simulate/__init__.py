"""The embedded default data: an invented country, its epidemic and its reporting."""

from epifed.simulate.simulation import (
    Simulation,
    SimulationSettings,
    default_panel,
    simulate,
)

__all__ = ["Simulation", "SimulationSettings", "default_panel", "simulate"]
