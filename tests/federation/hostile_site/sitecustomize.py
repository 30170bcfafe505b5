"""A site that runs changed code: on the PYTHONPATH of one site's processes, and of no other's.

It keeps the bytes of all that its processes hand to TLS in the folder HOSTILE_FOLDER, and in
trainings whose name begins with "hostile" it answers each round with another thing a site must not.
It answers late when the server's report HOSTILE_REPORT has closed the round.
"""

import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deeds import DEEDS, LARGE, SECRET  # type: ignore[import-not-found]
from import_hooks import on_import  # type: ignore[import-not-found]

FOLDER = Path(os.environ["HOSTILE_FOLDER"])
REPORT = Path(os.environ["HOSTILE_REPORT"])


def _record(module: Any) -> None:
    original = module.StreamConnection.send_frame

    def send_frame(self: Any, frame: Any) -> Any:
        with (FOLDER / f"sent-{os.getpid()}.bin").open("ab") as file:
            file.write(bytes(frame))
        return original(self, frame)

    module.StreamConnection.send_frame = send_frame


def _corrupt(module: Any) -> None:
    honest = module.SiteWork.answer

    def answer(self: Any, parts: Any) -> Any:
        numpy = sys.modules["numpy"]
        task = module.unpack_task(parts)
        if not task.training.startswith("hostile"):
            return honest(self, parts)
        deed = DEEDS.get(task.round, "good")
        if deed == "exception":
            module.contribution = _raising(module)
        reply, error = honest(self, parts)
        if deed in ("good", "exception"):
            return reply, error
        about = json.loads(reply["about"])
        rows = numpy.frombuffer(reply["array"], dtype="float32").reshape(about["shape"]).copy()
        if deed == "nan":
            rows[0, 0] = float("nan")
        elif deed == "infinite":
            rows[0, 0] = float("inf")
        elif deed == "shape":
            rows = rows[:, 1:]
        elif deed == "dtype":
            rows = rows.astype("float64")
        elif deed == "norm":
            rows = 1000 * rows / numpy.linalg.norm(rows, axis=1, keepdims=True)
        elif deed == "rows":
            rows = numpy.concatenate([rows, rows[:1]])
        elif deed == "late":
            while f'"round": {task.round},' not in REPORT.read_text():  # until it is closed
                time.sleep(0.5)
        number = task.round - 1 if deed == "stale" else task.round
        sent = module.pack_contribution(task.training, number, rows)
        return sent | _said(deed, about), None

    module.SiteWork.answer = answer


def _said(deed: str, about: dict[str, Any]) -> dict[str, Any]:
    """What a deed puts in the place of parts of a message."""
    said: dict[str, Callable[[], dict[str, Any]]] = {
        "nonsense": lambda: {"about": "{", "array": b"\x80\x04."},
        "endless": lambda: {"about": json.dumps(about | {"shape": [float("inf")]})},
        "nested": lambda: {"about": '{"round": ' + "[" * 100_000 + "]" * 100_000 + "}"},
        "wordless": lambda: {"about": about},
        "huge": lambda: {"about": json.dumps(about | {"shape": [2**62, 2**62]})},
        "undecodable": lambda: {"array": _unknown_type()},
        "fatal": lambda: {"about": "{}", "__headers__": {"__rc__": "TASK_UNKNOWN"}},
        "large": lambda: {"array": bytes(LARGE)},
    }
    return said.get(deed, dict)()


def _unknown_type() -> Any:
    """An object of a type that only this site's processes can write and read."""
    fobs = importlib.import_module("nvflare.fuel.utils.fobs")

    class Unknown:
        pass

    class Decomposer(fobs.Decomposer):  # type: ignore[misc,name-defined]
        def supported_type(self) -> type:
            return Unknown

        def decompose(self, target: Any, manager: Any = None) -> Any:
            return "nothing"

        def recompose(self, data: Any, manager: Any = None) -> Any:
            return Unknown()

    fobs.register(Decomposer)
    return Unknown()


def _raising(module: Any) -> Any:
    before = module.contribution

    def contribution(*_: Any, **__: Any) -> Any:
        module.contribution = before
        raise RuntimeError(SECRET)

    return contribution


on_import(
    {
        "nvflare.fuel.f3.drivers.grpc_driver": _record,
        "epifed.federation.site": _corrupt,
    }
)
