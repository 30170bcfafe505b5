"""A party of another version: SPEAKS says from which protocol to which, or "nothing".

On the PYTHONPATH of its processes.
"""

import os
from typing import Any

from import_hooks import on_import  # type: ignore[import-not-found]

SPEAKS = os.environ["SPEAKS"]


def _other(module: Any) -> None:
    if SPEAKS != "nothing":
        module.OLDEST, module.PROTOCOL = map(int, SPEAKS.split("-"))


def _silent(module: Any) -> None:
    """As before there was a number: `prepare`, and nothing said."""
    if SPEAKS == "nothing":

        def greeting(work: Any, about: dict[str, Any]) -> dict[str, Any]:
            work.prepare(about["settings"])
            return {"about": "{}"}

        module._greeting = greeting


on_import({"epifed.federation.messages": _other, "epifed.federation.flare.executor": _silent})
