"""FLARE's client program: `python -m epifed.federation.flare.run_client`."""

import logging
import os
import runpy
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from nvflare.app_common.job_launcher import process_launcher
from nvflare.private.fed.client.communicator import Communicator

from epifed.federation.flare.engine_patches import hold_kit, say_unwritten, with_parent

PROGRAM = "nvflare.private.fed.app.client.client_train"


def main() -> None:
    """Run FLARE's client with epifed's changes."""
    with_parent()
    held = hold_kit(Path(sys.argv[sys.argv.index("-m") + 1]))
    say_unwritten()
    if os.name == "nt":
        keep_backslashes()
    announce_connection()
    with held:
        runpy.run_module(PROGRAM, run_name="__main__", alter_sys=True)


def announce_connection() -> None:
    """Have a party print a line when the server has accepted it."""
    register = Communicator.client_registration

    def registered(communicator: Communicator, *arguments: Any, **named: Any) -> Any:
        token = register(communicator, *arguments, **named)
        if token:
            name = arguments[0] if arguments else named.get("client_name", "")
            lines = logging.getLogger("epifed.party")
            lines.info(f"'{name}' is connected to the server and waits for a training")
        return token

    Communicator.client_registration = registered


def keep_backslashes() -> None:
    """Keep the backslashes of Windows paths, which FLARE drops when it starts a job's worker."""

    def split(command: str, comments: bool = False) -> list[str]:
        return shlex.split(command.replace("\\", "\\\\"), comments)

    process_launcher.shlex = SimpleNamespace(split=split)


if __name__ == "__main__":
    main()
