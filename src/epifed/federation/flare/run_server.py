"""FLARE's server program with its protections: `python -m epifed.federation.flare.run_server`."""

import json
import logging
import resource
import runpy
import sys
from pathlib import Path
from typing import Any

from nvflare.private.fed.server.client_manager import ClientManager
from nvflare.private.fed.server.fed_server import FederatedServer

from epifed.errors import counted
from epifed.federation.flare.engine_patches import (
    hold_kit,
    refuse_used,
    say_unwritten,
    shield_server,
    with_parent,
)
from epifed.federation.terms import Federation

ROSTER = "federation.toml"
PROGRAM = "nvflare.private.fed.app.server.server_train"


def main() -> None:
    """Run it with as many open files as the system allows; each connection needs one."""
    with_parent()
    kit = Path(sys.argv[sys.argv.index("-m") + 1])
    held = hold_kit(kit)
    config = json.loads((kit / "startup" / "fed_server.json").read_text(encoding="utf-8"))
    refuse_used(int(config["servers"][0]["service"]["target"].rpartition(":")[2]))
    say_unwritten()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    shield_server()
    announce_sites(kit)
    with held:
        runpy.run_module(PROGRAM, run_name="__main__", alter_sys=True)


def announce_sites(kit: Path) -> None:
    """Have the server print a line whenever a party connects or leaves."""
    federation = Federation.read(kit / ROSTER)
    names = {site.name for site in federation.sites}
    parties = {party.name for party in federation.parties}
    lines = logging.getLogger("epifed.server")

    def say(manager: ClientManager, what: str, *joined: str) -> None:
        connected = {client.name for client in list(manager.get_clients().values())} | {*joined}
        few = len(connected & names) < federation.min_sites
        waits = f"; a round needs {federation.min_sites}" if few else ""
        lines.info(
            f"{what}: {len(connected & names)} of {counted(len(names), 'site')} connected{waits}"
        )

    deploy = FederatedServer.deploy

    def deployed(server: FederatedServer, *arguments: Any, **named: Any) -> None:
        deploy(server, *arguments, **named)
        few = f"a round needs {federation.min_sites} of {counted(len(names), 'site')}"
        lines.info(f"the server listens on port {federation.server.port}; {few}")

    login, leave = ClientManager.login_client, ClientManager.remove_client

    def logged_in(manager: ClientManager, *arguments: Any, **named: Any) -> Any:
        before = set(manager.get_clients())
        client = login(manager, *arguments, **named)
        if client is not None and client.name in parties and client.token not in before:
            say(manager, f"{client.name} connected", client.name)
        return client

    def left(manager: ClientManager, token: str) -> Any:
        client = leave(manager, token)
        if client is not None and client.name in parties:
            say(manager, f"{client.name} left")
        return client

    FederatedServer.deploy = deployed
    ClientManager.login_client, ClientManager.remove_client = logged_in, left


if __name__ == "__main__":
    main()
