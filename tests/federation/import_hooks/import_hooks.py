"""Changes modules as they are imported: for processes whose code a test cannot reach otherwise."""

import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, changes: dict[str, Callable[[Any], None]]) -> None:
        self.changes = changes

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name not in self.changes:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        assert spec is not None and spec.loader is not None
        load = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            self.changes[name](module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def on_import(changes: dict[str, Callable[[Any], None]]) -> None:
    """Let each function change the module of its name."""
    sys.meta_path.insert(0, _Finder(changes))


def party() -> int:
    """In a worker: the process of its party, which is above the fork server if it was forked."""
    parent = os.getppid()
    if "epifed.rehearsal.fork_server" in sys.modules:
        parent = int(Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[1])
    return parent
