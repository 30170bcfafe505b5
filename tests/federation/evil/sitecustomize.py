"""A site that runs changed code: on the PYTHONPATH of one site's processes, and of no other's.

It keeps the bytes of all that its processes hand to TLS in the folder EVIL_FOLDER, and in
trainings whose name begins with "evil" it answers each round with another thing a site must not.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from changing import on_import  # type: ignore[import-not-found]
from deeds import DEEDS, LATE, SECRET  # type: ignore[import-not-found]

FOLDER = Path(os.environ["EVIL_FOLDER"])


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
        torch = sys.modules["torch"]
        task = module.unpack_task(parts)
        if not task.training.startswith("evil"):
            return honest(self, parts)
        deed = DEEDS.get(task.round, "good")
        if deed == "exception":
            module.make_learner = _raising(module)
        reply, error = honest(self, parts)
        if deed in ("good", "exception"):
            return reply, error
        about = json.loads(reply["about"])
        rows = torch.frombuffer(bytearray(reply["array"]), dtype=torch.float32)
        rows = rows.reshape(about["shape"])
        clients = tuple(about["clients"])
        if deed == "nan":
            rows[0, 0] = float("nan")
        elif deed == "infinite":
            rows[0, 0] = float("inf")
        elif deed == "shape":
            rows = rows[:, 1:]
        elif deed == "dtype":
            rows = rows.double()
        elif deed == "norm":
            rows = 1000 * rows / rows.norm(dim=1, keepdim=True)
        elif deed == "twice":
            clients, rows = (*clients, *clients), torch.cat([rows, rows])
        elif deed == "foreign":
            clients = ("00000", *clients[1:])
        elif deed == "late":
            time.sleep(LATE)
        number = task.round - 1 if deed == "stale" else task.round
        if deed == "nonsense":
            return {"about": "{", "array": b"\x80\x04."}, None
        return module.pack_contribution(task.training, number, clients, rows), None

    module.SiteWork.answer = answer


def _raising(module: Any) -> Any:
    before = module.make_learner

    def make_learner(settings: Any) -> Any:
        module.make_learner = before
        raise RuntimeError(SECRET)

    return make_learner


on_import(
    {
        "nvflare.fuel.f3.drivers.grpc_driver": _record,
        "epifed.federation.site": _corrupt,
    }
)
