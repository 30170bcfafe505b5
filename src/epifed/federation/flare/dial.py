"""FLARE's client program: `python -m epifed.federation.flare.dial`."""

import runpy

from epifed.federation.flare.leash import on_leash

PROGRAM = "nvflare.private.fed.app.client.client_train"


def main() -> None:
    """Run it."""
    on_leash()
    runpy.run_module(PROGRAM, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
