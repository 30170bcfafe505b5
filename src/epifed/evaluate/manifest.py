"""What a results folder says about where it came from."""

import platform
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from epifed.panel import CasePanel
from epifed.settings import Settings

LIBRARIES = ("torch", "numpy", "polars", "dp-accounting", "joblib")


def manifest(panel: CasePanel, settings: Settings) -> dict[str, Any]:
    """Data, settings and versions; all that reproduction needs besides the command."""
    return {
        "epifed": version("epifed"),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "learner": settings.learner,
        "own_settings": settings.own,
        "settings_sha256": settings.digest(),
        "seed": settings.seed,
        "noise": "seeded generator: a simulation, not a release",
        "data": {
            "source": Path(panel.source).name,
            "sha256": panel.digest(),
            "regions": len(panel.regions),
            "days": [panel.start.isoformat(), panel.end.isoformat()],
            "attribution": panel.attribution,
        },
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in LIBRARIES if name != "torch" or find_spec(name)},
    }
