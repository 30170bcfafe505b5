"""How the parties are started: FLARE's own server and client programs, in the foreground.

They run under the Python of this environment, so that their workers find the installed epifed.
"""

import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from epifed.data.readers import load_panel
from epifed.errors import EpifedError
from epifed.federation import aggregator
from epifed.federation.aggregator import AggregatorWork
from epifed.federation.flare.controller import ROSTER, SERVER_FILE
from epifed.federation.flare.inspection import too_short
from epifed.federation.flare.kits import (
    ORGANISATION,
    certificate,
    is_server,
    kind_of,
    lock,
    organisation,
)
from epifed.federation.roster import Federation
from epifed.federation.site import TERMS, Source, hosted_clients, remembered
from epifed.federation.terms import Terms
from epifed.files import write_text
from epifed.ledger.ledger import Ledger

HEARTBEAT = 5
"""Seconds between two signs of life of a site."""


@dataclass(frozen=True)
class Command:
    """A program to run."""

    arguments: tuple[str, ...]
    environment: dict[str, str]

    def become(self) -> None:
        """Replace this process by it; where that would end this one, wait for it."""
        if os.name == "nt":
            sys.exit(subprocess.run(self.arguments, env=self.environment, check=False).returncode)
        os.execve(self.arguments[0], self.arguments, self.environment)


def server_command(kit: Path, ledger: Path | None, roster: Path | None = None) -> Command:
    """The server of a kit. `ledger` pays for its trainings; `roster` replaces the kit's."""
    kit = kit.resolve()
    if not is_server(kit):
        raise EpifedError(f"{kit}: found {kind_of(kit)}; expected the server's kit")
    certificate(kit)
    federation = _roster(kit, roster)
    if ledger:
        Ledger(ledger)
    write_text(kit / SERVER_FILE, json.dumps({"ledger": str(ledger.resolve()) if ledger else None}))
    void = {"disabled_clients": sorted(federation.removed)}
    write_text(kit / "disabled_clients.json", json.dumps(void))
    lock(kit)
    return _command(
        "epifed.federation.flare.run_server", kit, "fed_server.json", (f"org={ORGANISATION}",)
    )


def aggregator_command(kit: Path, roster: Path | None = None) -> Command:
    """The aggregator of a kit, which makes its keys if it has none; `roster` replaces the kit's."""
    kit = kit.resolve()
    if not (kit / aggregator.TERMS).is_file():
        raise EpifedError(f"{kit}: found {kind_of(kit)}; expected an aggregator's kit")
    _roster(kit, roster)
    AggregatorWork(kit)
    return _client(kit)


def site_command(kit: Path, source: Source) -> Command:
    """The site of a kit, with its data."""
    kit = kit.resolve()
    if is_server(kit) or not (kit / "startup" / "fed_client.json").is_file():
        raise EpifedError(f"{kit}: found {kind_of(kit)}; expected a site's kit")
    if (kit / aggregator.TERMS).is_file():
        raise EpifedError(
            f"{kit}: found an aggregator's kit; expected a site's (an aggregator is run by 'epifed "
            "federation aggregator')"
        )
    certificate(kit)
    Terms.read(kit / TERMS)
    if source != remembered(kit):
        # A first start is a person's, who is told at once; later ones sit a week out instead.
        _refuse_other_data(kit, source)
        source.write(kit)
    return _client(kit)


def _refuse_other_data(kit: Path, source: Source) -> None:
    """Refuse a file that cannot be read, has no row of the site's clients, or begins too late."""
    clients = hosted_clients(kit)
    loaded = source.load(clients)
    if loaded.panel is not None and (problem := too_short(kit, loaded.panel)):
        raise EpifedError(problem)
    if loaded.panel is None and not loaded.left_out:
        regions = "of others"
        with suppress(Exception):  # it is only for the sentence
            panel = load_panel(Path(source.path), source.format, **source.options)
            regions = _listed(panel.regions)
        raise EpifedError(
            f"{source.path}: found the regions {regions}; expected those of the site "
            f"'{certificate(kit).name}': {_listed(clients)}"
        )


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _roster(kit: Path, changed: Path | None) -> Federation:
    """The roster of a kit, replaced by a changed one, which keeps the sites' keys known before."""
    federation = Federation.read(kit / ROSTER)
    if changed:
        federation = Federation.read(changed).with_signs(federation.signs)
        write_text(kit / ROSTER, federation.to_toml())
    return federation


def _client(kit: Path) -> Command:
    """A party that dials the server."""
    name = certificate(kit).name
    lock(kit)
    who = (f"uid={name}", f"org={organisation(name)}", f"heart_beat_interval={HEARTBEAT}")
    return _command("epifed.federation.flare.run_client", kit, "fed_client.json", who)


def _command(module: str, kit: Path, config: str, more: tuple[str, ...]) -> Command:
    (kit / "transfer").mkdir(exist_ok=True)
    settings = ("secure_train=true", "config_folder=config", *more)
    arguments = (
        sys.executable,
        "-u",
        "-m",
        module,
        "-m",
        str(kit),
        "-s",
        config,
        "--set",
        *settings,
    )
    environment = {"MALLOC_ARENA_MAX": "2", "OMP_NUM_THREADS": "1", "GRPC_VERBOSITY": "ERROR"}
    if config == "fed_client.json":
        environment["NVFLARE_SECURE_LOGGING"] = "true"
    return Command(arguments, {**environment, **os.environ})
