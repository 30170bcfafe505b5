"""Small panels and clients that several tests use."""

import json
import os
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
from numpy.typing import NDArray

from epifed.cli.outputs import schema
from epifed.data.panel import CasePanel
from epifed.data.readers import load_panel
from epifed.files import to_json
from epifed.learners.base import Windows
from epifed.settings import Settings
from epifed.training.loop import Clients, make_clients

START = date(2020, 10, 1)


def small_panel(regions: int = 12, days: int = 40, seed: int = 0) -> CasePanel:
    rng = np.random.default_rng(seed)
    level = rng.uniform(5, 60, size=(regions, 1))
    growth = rng.normal(0.01, 0.02, size=(regions, 1))
    counts = rng.poisson(level * np.exp(growth * np.arange(days))).astype(np.float64)
    return CasePanel(
        counts=counts,
        regions=tuple(f"{i:05d}" for i in range(regions)),
        start=START,
        population=rng.integers(20_000, 800_000, size=regions),
        source="small",
    )


def conforming(command: str, found: Any) -> Any:
    """What a command prints with --json, which its schema allows."""
    told = json.loads(to_json(found))
    jsonschema.Draft202012Validator(schema(command)).validate(told)
    return told


def small_settings(**changes: object) -> Settings:
    values: dict[str, object] = {
        "rounds": 4,
        "epochs": 3,
        "clients_per_round": 6,
        "model": "linear",
    }
    return Settings.of(**(values | changes))


def small_clients(settings: Settings, regions: int = 12, days: int = 40) -> Clients:
    return make_clients(small_panel(regions, days), settings)


def days_of(data: Path) -> list[str]:
    """The first and the last day of the data as options, which a user gives."""
    panel = load_panel(data)
    return ["--from", str(panel.start), "--to", str(panel.end)]


def public_inputs(folder: Path, data: Path) -> list[str]:
    """What a releasable training shares, as options: its days and a public list of its regions."""
    listed = folder / "regions.txt"
    listed.write_text("\n".join(load_panel(data).regions), encoding="utf-8")
    return [*days_of(data), "--regions", str(listed)]


def windows_of(lengths: list[int], window: int = 10, seed: int = 0, scale: float = 20.0) -> Windows:
    """Random windows of clients of unequal lengths, padded with nonsense that must not matter."""
    rng = np.random.default_rng(seed)
    shape = (len(lengths), max(lengths))
    mask: NDArray[np.bool_] = np.arange(shape[1]) < np.array(lengths)[:, None]
    inputs = (scale * rng.random((*shape, window))).astype(np.float32)
    targets = (scale * rng.random(shape)).astype(np.float32)
    inputs[~mask], targets[~mask] = 1e3, -1e3
    return Windows(inputs, targets, mask, np.full(shape, np.datetime64(START)))


def lay_package(
    site: Path,
    name: str,
    modules: Mapping[str, str],
    entry_points: Mapping[str, Mapping[str, str]],
    version: str = "1.0",
) -> dict[str, str]:
    """Lay a package into `site` as an installer does; an environment that has it installed.

    `entry_points` maps a group to the names in it and their 'module:attribute'.
    """
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    for module, text in modules.items():
        (site / f"{module}.py").write_text(text, encoding="utf-8")
    head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (info / "METADATA").write_text(head, encoding="utf-8")
    lines = [
        line
        for group, entries in entry_points.items()
        for line in (f"[{group}]", *(f"{key} = {value}" for key, value in entries.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    search = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": search}
