"""A server that tries what it must not, and sites that tell what they sealed.

On the PYTHONPATH of their processes. In trainings called "tampered" the server asks each
aggregator everything in `deeds` before the right question, and that twice; in its third round it
waits while others look into the parties' memory. All is kept in DISHONEST_FOLDER.
"""

import importlib
import json
import os
import time
from pathlib import Path
from typing import Any

from import_hooks import on_import  # type: ignore[import-not-found]

FOLDER = Path(os.environ["DISHONEST_FOLDER"])
PATIENCE = 600.0


def _tampering(module: Any) -> None:
    honest, listen = module.FederationController.consult, module.FederationController.ask
    asked: dict[str, list[Any]] = {}

    def ask(self: Any, *args: Any) -> Any:
        answers, problems = listen(self, *args)
        for site, parts in answers.items():
            _note("reports", [site, len(parts["about"]), len(parts.get("array", b""))])
        return answers, problems

    def consult(self: Any, name: str, question: Any, *where: Any) -> Any:
        if self.order.training != "tampered":
            return honest(self, name, question, *where)
        deeds = importlib.import_module("deeds")
        before = asked.setdefault(name, [])
        tried = dict(deeds.DEEDS)
        if before:
            tried |= deeds.LATER
        if name == "aggregator-2":
            tried |= deeds.SECOND
        for deed, (expected, change) in tried.items():
            answer = honest(self, name, change(question, before), *where)
            code = json.loads(answer["about"]).get("code")
            _note("refused", [name, len(before) + 1, deed, expected, code])
        before.append(question)
        first = honest(self, name, question, *where)
        second = honest(self, name, question, *where)
        same = all(first[part] == second[part] for part in ("about", "array"))
        _note("answers", [name, same, first["array"].hex()])
        if name == "aggregator-2" and len(before) == 3:
            (FOLDER / "paused").write_text("")
            until = time.monotonic() + PATIENCE
            while (FOLDER / "paused").exists() and time.monotonic() < until:
                time.sleep(0.05)
        return first

    module.FederationController.ask = ask
    module.FederationController.consult = consult


def _telling(module: Any) -> None:
    grid = module.to_grid

    def to_grid(rows: Any, clip_norm: float) -> Any:
        steps = grid(rows, clip_norm)
        _note("vectors", [rows.tolist(), steps.tolist(), steps.sum(axis=0).tolist()])
        return steps

    module.to_grid = to_grid


def _note(name: str, line: Any) -> None:
    with (FOLDER / f"{name}-{os.getpid()}.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


on_import(
    {
        "epifed.federation.flare.controller": _tampering,
        "epifed.federation.site": _telling,
    }
)
