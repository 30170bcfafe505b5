"""A party that is killed at a point of a round: on the PYTHONPATH of its processes.

The file KILL_FILE holds "role method when"; when the worker gets there, the file is emptied and
the party and its worker are killed, as by a power cut.
"""

import os
import signal
from pathlib import Path
from types import ModuleType
from typing import Any

from import_hooks import on_import, party  # type: ignore[import-not-found]
from points import POINTS  # type: ignore[import-not-found]

FILE, ROLE = Path(os.environ["KILL_FILE"]), os.environ["KILL_ROLE"]


def _die(method: str, when: str) -> None:
    wanted = FILE.read_text().split() if FILE.exists() else []
    if wanted == [method, when]:
        FILE.write_text("")
        os.kill(party(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


def _arm(module: ModuleType) -> None:
    for name, kind, method in POINTS[ROLE]:
        if name == module.__name__:
            _arm_one(getattr(module, kind), method)


def _arm_one(kind: Any, method: str) -> None:
    original = getattr(kind, method)

    def armed(self: Any, *args: Any) -> Any:
        _die(method, "before")
        result = original(self, *args)
        _die(method, "after")
        return result

    setattr(kind, method, armed)


on_import({name: _arm for name, _, _ in POINTS[ROLE]})
