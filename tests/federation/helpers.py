"""What the tests of the federation share."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from epifed.engines.federation.local import LocalFederation
from epifed.engines.federation.rehearsal import rehearsal_federation
from epifed.engines.federation.rounds import Plan
from epifed.panel import CasePanel
from epifed.settings import Settings
from tests.helpers import small_panel

HERE = Path(__file__).parent
REGIONS = 12


def panel() -> CasePanel:
    return small_panel(REGIONS)


def plan(name: str, settings: Settings, *, simulation: bool = True) -> Plan:
    days = panel()
    return Plan.of(name, settings, days.start, days.end, simulation=simulation)


@contextmanager
def federation(
    folder: Path,
    sites: int,
    *,
    environment: dict[str, dict[str, str]] | None = None,
    ledger: Path | None = None,
    **changes: Any,
) -> Iterator[LocalFederation]:
    """A local federation, started, its keys and caches in its own folder."""
    roster = rehearsal_federation(panel(), sites, **changes)
    with LocalFederation.make(folder, roster, panel(), ledger) as local:
        local.environment |= environment or {}
        local.start()
        yield local


def on_path(folder: str, **more: str) -> dict[str, str]:
    """An environment whose processes run the sitecustomize of a folder here."""
    before = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(HERE / folder), *([before] if before else [])])
    return {"PYTHONPATH": path, **more}
