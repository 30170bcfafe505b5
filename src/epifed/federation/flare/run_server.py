"""FLARE's server program behind the shield: `python -m epifed.federation.flare.run_server`."""

import resource
import runpy

from epifed.federation.flare.engine_patches import shield_server, with_parent

PROGRAM = "nvflare.private.fed.app.server.server_train"


def main() -> None:
    """Run it, with as many open files as the system allows: each connection is one."""
    with_parent()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    shield_server()
    runpy.run_module(PROGRAM, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
