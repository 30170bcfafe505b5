"""kill -9 of aggregators, sites and the server at every point of a round: paid once, none unpaid.

Forked processes play all parties and are killed at each point in turn. Then real ones over
loopback: EPIFED_KILLS sets how often one of them is killed, and how often forked ones are at least.
"""

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from epifed.federation import aggregator as aggregators
from epifed.federation import site
from epifed.federation.flare.kits import SERVER
from epifed.ledger.budget import Cap
from epifed.ledger.ledger import Ledger
from epifed.rehearsal.local import LocalFederation
from epifed.training.release import read_release
from tests.federation.helpers import Training, federation, on_path, plan, settings_of
from tests.federation.parties import spent
from tests.federation.party_kills.points import POINTS, WHEN
from tests.waiting import GUARD

pytestmark = [
    pytest.mark.field,
    pytest.mark.skipif(sys.platform == "win32", reason="no fork, no SIGKILL"),
]

KILLS = int(os.environ.get("EPIFED_KILLS", "2"))


def _settings(rounds: int) -> Any:
    values = {"rounds": rounds, "clients_per_round": 6, "epsilon": 4.0}
    return settings_of("trend", noise="aggregators", **values)


def test_killed_at_every_point_every_round_is_paid_once_by_everybody(tmp_path: Path) -> None:
    turns = str(math.ceil(KILLS / 30))
    script = [sys.executable, "-m", "tests.federation.party_kills.forked", str(tmp_path), turns]
    root = Path(__file__).parents[2]
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        script,
        cwd=root,
        env={**os.environ, "PYTHONPATH": path, "EPIFED_STATE": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * GUARD,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= max(30, KILLS), "so often was it killed"


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFederation]:
    folder = tmp_path_factory.mktemp("killed")
    ledger = folder / "budget.ledger"
    Ledger.create(ledger, Cap(1e6, 1e-5, "rdp"))
    roles = {SERVER: "server", "aggregator-1": "party", "aggregator-2": "party", "site-2": "party"}
    environment = {
        party: on_path("party_kills", KILL_FILE=str(folder / f"kill-{party}"), KILL_ROLE=role)
        for party, role in roles.items()
    }
    with federation(
        folder,
        2,
        aggregators=2,
        environment=environment,
        ledger=ledger,
        rounds_per_job=5,
        round_timeout=40,
        terms={"epsilon_per_release": 1e6, "epsilon_total": 1e6},
    ) as local:
        yield local


def test_real_parties_killed_at_every_point_of_a_round(local: LocalFederation) -> None:
    """The server, both aggregators and a site in turn."""
    deaths = [
        (party, method, when)
        for place in range(6)
        for when in WHEN
        for party in (SERVER, "aggregator-1", "aggregator-2", "site-2")
        for _, _, method in [_point(party, place)]
    ]
    rounds = KILLS + 2
    wanted = plan("killed", _settings(rounds), seeded=False)
    assert local.ledger is not None
    training = Training(local, wanted)
    training.until_round(1)
    for kill in range(KILLS):
        party, method, when = deaths[(kill * 13) % len(deaths)]
        (local.folder / f"kill-{party}").write_text(f"{method} {when}")

        def dead(party: str = party) -> bool:
            return local.processes[party].poll() is not None or training.done() == rounds

        training.until(dead, f"the death of {party} {when} {method}")
        for name in ("aggregator-1", "aggregator-2"):
            done = training.done()
            paid = spent(local.kit(name) / aggregators.LEDGER)
            assert done <= paid <= training.done() + 1, (party, method, when)
        if local.processes[party].poll() is not None:
            local.processes.pop(party).wait()
            local.start(party)
    status = training.finished()
    assert status["round"] == rounds
    release = read_release(local.kit("site-1") / "models" / "killed.epifed")
    assert spent(local.ledger) == release.spent[-1].rounds == rounds
    for name in ("aggregator-1", "aggregator-2"):
        assert spent(local.kit(name) / aggregators.LEDGER) == rounds
    report = (local.training_folder(wanted) / "report.jsonl").read_text().splitlines()
    problems = [[one["site"] for one in json.loads(line)["problems"]] for line in report]
    without = sum("site-1" in sites for sites in problems)
    assert rounds - without <= spent(local.kit("site-1") / site.LEDGER) <= rounds


def _point(party: str, place: int) -> tuple[str, str, str]:
    points = POINTS["server" if party == SERVER else "party"]
    return points[place % len(points)]
