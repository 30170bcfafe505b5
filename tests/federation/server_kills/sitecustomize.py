"""A server that is killed at a stage of a round: on the PYTHONPATH of the server's processes.

The file KILL_FILE holds "stage round"; when its worker gets there, the file is emptied and the
server and the worker are killed, as by a power cut. A stage is before or after one function.
"""

import os
import signal
from pathlib import Path
from types import ModuleType
from typing import Any

from import_hooks import on_import, party  # type: ignore[import-not-found]
from stages import STAGES  # type: ignore[import-not-found]

FILE = Path(os.environ["KILL_FILE"])


def _die(stage: str, number: int) -> None:
    wanted = FILE.read_text().split() if FILE.exists() else []
    if wanted and wanted[0] == stage and int(wanted[1]) <= number:
        FILE.write_text("")
        os.kill(party(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


def _arm(module: ModuleType) -> None:
    for method in {name for name, _ in STAGES.values()}:
        original = getattr(module.ServedTraining, method)

        def armed(self: Any, *args: Any, _original: Any = original, _name: str = method) -> Any:
            stages = {when: stage for stage, (name, when) in STAGES.items() if name == _name}
            number = self.done + 1
            _die(stages["before"], number)
            result = _original(self, *args)
            _die(stages["after"], number)
            return result

        setattr(module.ServedTraining, method, armed)


on_import({"epifed.federation.server": _arm})
