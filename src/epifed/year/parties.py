"""The parties of a year, each on a machine of its own: stopped, killed, restored, renamed."""

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Collection
from contextlib import closing, suppress
from pathlib import Path
from typing import Self

from epifed.archive import fill
from epifed.errors import EpifedError
from epifed.federation.delivery import MODELS
from epifed.federation.flare.kits import SERVER
from epifed.federation.flare.local import LocalFederation
from epifed.federation.roster import Federation
from epifed.federation.site import ARCHIVE, LEDGER, archive_of
from epifed.federation.weekly import Week
from epifed.files import write_text
from epifed.ledger.ledger import Ledger
from epifed.panel import CasePanel
from epifed.vintages import Vintages
from epifed.year.events import renamed

ROSTER, BUDGET, BACKUP, MACHINES, MACHINE = (
    "federation.toml",
    "budget.ledger",
    "backup",
    "machines",
    "server.machine",
)
STATE = "EPIFED_STATE"
PATIENCE = 300.0
"""Seconds that a training may take until it has its budget."""
DOWN = 2.0
"""Seconds that a party that was killed stays down."""


class Parties:
    """A federation on this machine whose parties know of ledgers only what their own machine does.

    The folder is all there is: another process can go on with it.
    """

    def __init__(self, local: LocalFederation) -> None:
        self.local = local
        self._killers: list[threading.Thread] = []
        self._failed: list[Exception] = []
        self._before: str | None = None

    @classmethod
    def make(cls, folder: Path, federation: Federation, panel: CasePanel) -> Self:
        """Kits, and the data of the panel."""
        return cls(LocalFederation.make(folder, federation, panel, folder / BUDGET, ()))

    @classmethod
    def found(cls, folder: Path) -> Self:
        """Those of a folder."""
        federation = Federation.read(folder / ROSTER)
        return cls(LocalFederation(folder, federation, folder / BUDGET, preloaded=()))

    @property
    def folder(self) -> Path:
        """Where everything is."""
        return self.local.folder

    @property
    def ledger(self) -> Path:
        """The federation's budget."""
        return self.folder / BUDGET

    @property
    def sites(self) -> tuple[str, ...]:
        """All enrolled ones."""
        return tuple(site.name for site in self.local.federation.sites)

    @property
    def running(self) -> tuple[str, ...]:
        """The sites that run."""
        return tuple(site for site in self.sites if site in self.local.processes)

    def machine(self, party: str) -> Path:
        """What the machine of a party remembers; a server that was restored is on another one."""
        path = self.folder / MACHINE
        number = path.read_text().strip() if party == SERVER and path.exists() else ""
        return self.folder / MACHINES / f"{party}{number}"

    def environment(self, party: str) -> dict[str, str]:
        """What the processes on the machine of a party have in theirs."""
        return {STATE: str(self.machine(party).resolve())}

    def start(self, *parties: str) -> None:
        """Start those that do not run, a server first, and wait until it knows the others."""
        new = [party for party in parties if party not in self.local.processes]
        self.local.environment |= {party: self.environment(party) for party in new}
        if new:
            self.local.start(*new)

    def stop(self, party: str) -> None:
        """End a party, if it runs."""
        if party in self.local.processes:
            workers = self.local.workers(party)
            self.local.kill(party)
            for pid in workers:
                with suppress(OSError):
                    os.kill(pid, 9)

    def leave(self, *sites: str) -> None:
        """Stop sites, and wait until the server knows: on its clock that was hours ago."""
        for site in sites:
            self.stop(site)
        self.local.wait_until_gone(sites)

    def write_files(self, panel: CasePanel, history: Vintages, broken: Collection[str]) -> None:
        """Give each site that runs the list of this morning; some of them one without a header.

        What its service would have kept on the mornings before, each day, it has in its archives.
        """
        for site in self.running:
            for client in self.local.federation.site(site).clients:
                fill(archive_of(self.local.kit(site), client), history.of((client,)))
            self.local.write_data(site, panel)
            if site in broken:
                path = self.local.data(site)
                write_text(path, path.read_text(encoding="utf-8").partition("\n")[2])

    def back_up(self) -> None:
        """Copy the server's kit and ledger, as is done after each week."""
        new = self.folder / f".{BACKUP}"
        shutil.rmtree(new, ignore_errors=True)
        shutil.copytree(self.local.kit(SERVER), new / SERVER)
        with (
            closing(sqlite3.connect(self.ledger)) as ledger,
            closing(sqlite3.connect(new / BUDGET)) as copy,
        ):
            ledger.backup(copy)
        shutil.rmtree(self.folder / BACKUP, ignore_errors=True)
        new.rename(self.folder / BACKUP)

    def restore_server(self) -> None:
        """Lose the server with its machine, and put the last backup up on another one."""
        self.stop(SERVER)
        number = int(self.machine(SERVER).name.removeprefix(SERVER) or 1) + 1
        shutil.rmtree(self.local.kit(SERVER), ignore_errors=True)
        shutil.copytree(self.folder / BACKUP / SERVER, self.local.kit(SERVER))
        self.ledger.unlink(missing_ok=True)
        shutil.copyfile(self.folder / BACKUP / BUDGET, self.ledger)
        write_text(self.folder / MACHINE, f"{number}\n")
        shutil.rmtree(self.machine(SERVER), ignore_errors=True)
        os.environ |= self.environment(SERVER)
        words = ("ledger", "adopt", str(self.ledger), "--note", "restored from backup")
        self._epifed(SERVER, *words)
        self.start_again(SERVER)

    def lose_key(self, site: str) -> None:
        """Enrol a site whose key is lost under a new name, by the documented procedure."""
        new, roster = renamed(site), self.local.federation
        self.stop(site)
        sites = tuple(
            one.model_copy(update={"name": new, "signs": None}) if one.name == site else one
            for one in roster.sites
        )
        changed = roster.model_copy(update={"sites": sites, "removed": (*roster.removed, site)})
        path = self.folder / ROSTER
        write_text(path, changed.to_toml())
        self._epifed(SERVER, "federation", "init", str(path), "--out", str(self.folder))
        self.local.federation = Federation.read(path)
        old, kit = self.local.kit(site), self.local.kit(new)
        self.local.pin()
        for name in (MODELS, ARCHIVE):
            if (old / name).is_dir():
                shutil.copytree(old / name, kit / name, dirs_exist_ok=True)
        if (old / LEDGER).is_file():
            shutil.copyfile(old / LEDGER, kit / LEDGER)
            shutil.rmtree(self.machine(new), ignore_errors=True)
            self._epifed(new, "ledger", "adopt", str(kit / LEDGER), "--note", "key lost")
        if self.local.data(site).exists():
            shutil.copyfile(self.local.data(site), self.local.data(new))
        adding = [one.name for one in changed.aggregators]
        for party in adding:
            self.stop(party)
        self.stop(SERVER)
        self.start_again(SERVER, *adding, new)
        self.back_up()  # an older one knows the site by its old name

    def kill_within(self, party: str, week: Week) -> None:
        """Kill a party as soon as a week's training has its budget, and start it again."""

        def kill() -> None:
            until = time.monotonic() + PATIENCE
            try:
                while Ledger(self.ledger).book().named(week.name) is None:
                    if time.monotonic() > until:
                        raise EpifedError(f"{week.name}: no training to kill {party} in")
                    time.sleep(0.2)
                self.stop(party)
                time.sleep(DOWN)
                self.start(party)
            except Exception as error:
                self._failed.append(error)

        thread = threading.Thread(target=kill, daemon=True)
        self._killers.append(thread)
        thread.start()

    def settle(self) -> None:
        """Wait for those that were killed to be up again; what went wrong with that is raised."""
        for thread in self._killers:
            thread.join(PATIENCE)
        self._killers.clear()
        if self._failed:
            raise self._failed.pop()
        self.local.wait_for_sites(self.running)

    def processor_seconds(self) -> dict[str, float]:
        """Seconds that each running party, its workers and those that ended had on a core."""
        return {name: self.local.processor_seconds(name) for name in self.local.processes}

    def start_again(self, *parties: str) -> None:
        """Start parties, and wait until the server knows all that run."""
        self.start(*parties)
        self.local.wait_for_sites(self.running)

    def _epifed(self, party: str, *words: str) -> None:
        """Run a command on the machine of a party."""
        program = (sys.executable, "-m", "epifed", *words)
        here = os.environ | self.environment(party)
        done = subprocess.run(program, capture_output=True, text=True, env=here, check=False)
        if done.returncode:
            raise EpifedError(f"epifed {' '.join(words[:2])}: {done.stderr.strip()}")

    def __enter__(self) -> Self:
        """From now on this process is on the server's machine, where the schedule runs."""
        self._before = os.environ.get(STATE)
        os.environ |= self.environment(SERVER)
        return self

    def __exit__(self, *_: object) -> None:
        """End all parties."""
        self.local.__exit__()
        os.environ.pop(STATE)
        if self._before is not None:
            os.environ[STATE] = self._before
