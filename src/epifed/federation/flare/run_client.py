"""FLARE's client program: `python -m epifed.federation.flare.run_client`."""

import os
import runpy
import shlex
from types import SimpleNamespace

from nvflare.app_common.job_launcher import process_launcher

from epifed.federation.flare.engine_patches import with_parent

PROGRAM = "nvflare.private.fed.app.client.client_train"


def main() -> None:
    """Run it."""
    with_parent()
    if os.name == "nt":
        keep_backslashes()
    runpy.run_module(PROGRAM, run_name="__main__", alter_sys=True)


def keep_backslashes() -> None:
    """Have FLARE start a job's worker by paths of Windows, whose backslashes it takes away."""

    def split(command: str, comments: bool = False) -> list[str]:
        return shlex.split(command.replace("\\", "\\\\"), comments)

    process_launcher.shlex = SimpleNamespace(split=split)


if __name__ == "__main__":
    main()
