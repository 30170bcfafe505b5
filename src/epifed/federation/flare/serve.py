"""FLARE's server program behind the shield: `python -m epifed.federation.flare.serve`."""

import resource
import runpy

from epifed.federation.flare.leash import on_leash
from epifed.federation.flare.shield import shield_server

PROGRAM = "nvflare.private.fed.app.server.server_train"


def main() -> None:
    """Run it, with as many open files as the system allows: each connection is one."""
    on_leash()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    shield_server()
    runpy.run_module(PROGRAM, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
