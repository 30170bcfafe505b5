"""A party of another version: SPEAKS says from which protocol to which.

On the PYTHONPATH of its processes.
"""

import os
from typing import Any

from import_hooks import on_import  # type: ignore[import-not-found]

SPEAKS = os.environ["SPEAKS"]


def _other(module: Any) -> None:
    module.OLDEST, module.PROTOCOL = map(int, SPEAKS.split("-"))


on_import({"epifed.federation.messages": _other})
