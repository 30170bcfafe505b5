"""kill -9 of sites, workers and the server: the training goes on, and the ledger tells no less.

EPIFED_KILLS sets how often the server is killed, at every stage of a round in turn.
"""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from epifed.errors import EpifedError
from epifed.federation.flare.jobs import look
from epifed.federation.flare.kits import SERVER
from epifed.federation.server import Order
from epifed.ledger.budget import Cap
from epifed.ledger.ledger import Ledger
from epifed.privacy.accounting import spent
from epifed.rehearsal.local import LocalFederation
from epifed.training.release import read_release
from tests.federation.helpers import Training, all_run, federation, on_path, plan
from tests.federation.server_kills.stages import STAGES
from tests.helpers import small_settings
from tests.waiting import wait_for

pytestmark = pytest.mark.field

KILLS = int(os.environ.get("EPIFED_KILLS", "2"))
SITES = 3


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFederation]:
    folder = tmp_path_factory.mktemp("kills")
    ledger = folder / "budget.ledger"
    Ledger.create(ledger, Cap(1000.0, 1e-5, "rdp"))
    environment = {SERVER: on_path("server_kills", KILL_FILE=str(folder / "killing"))}
    with federation(
        folder,
        SITES,
        environment=environment,
        ledger=ledger,
        rounds_per_job=4,
        round_timeout=40,
        terms={"epsilon_per_release": 1000.0, "epsilon_total": 1000.0},
    ) as local:
        yield local


def _record(local: LocalFederation, wanted: Order) -> Any:
    assert local.ledger is not None
    book = Ledger(local.ledger).book()
    (record,) = (run for run in book.runs.values() if run.training == wanted.training)
    return record


def _check_money(local: LocalFederation, wanted: Order) -> None:
    """Never less in the ledger than was released, and no round twice."""
    record = _record(local, wanted)
    assert record.spent == wanted.settings.rounds
    assert record.outcome == "finished"
    model = read_release(local.kit("site-1") / "models" / f"{wanted.training}.epifed")
    assert model.randomness == "secure"
    assert model.sha256 == record.model_hash
    assert model.ledger_run == record.run
    settings = wanted.settings
    paid = spent(
        model.spent[-1].noise_multiplier, record.sampling_rate, record.spent, settings.delta
    )
    assert model.epsilon == pytest.approx(paid, rel=1e-9)
    site = Ledger(local.kit("site-1") / "site.ledger").book()
    (own,) = (run for run in site.runs.values() if run.training == wanted.training)
    report = (local.training_folder(wanted) / "report.jsonl").read_text().splitlines()
    problems = [[one["site"] for one in json.loads(line)["problems"]] for line in report]
    assert own.spent >= record.spent - sum("site-1" in sites for sites in problems)
    assert own.outcome == "finished"


def _restart(local: LocalFederation, party: str) -> None:
    if party in local.processes:
        local.processes.pop(party).wait()
    local.start(party)


def test_the_server_killed_at_every_stage_of_a_round(local: LocalFederation) -> None:
    stages = list(STAGES)
    rounds = max(4, KILLS + 2)
    wanted = plan("killing", small_settings(rounds=rounds, epsilon=4.0), seeded=False)
    killing = local.folder / "killing"
    killing.write_text("")
    training = Training(local, wanted)
    released = 0
    for kill in range(KILLS):
        stage = stages[(kill + 3) % len(stages)]
        killing.write_text(f"{stage} {kill + 1}")
        training.until(lambda: local.processes[SERVER].poll() is not None, "a crash")
        record = _record(local, wanted)
        assert record.spent >= training.done() >= released
        assert record.spent <= training.done() + 1
        released = training.done()
        _restart(local, SERVER)
    status = training.finished()
    assert status["round"] == rounds
    _check_money(local, wanted)
    wait_for(
        lambda: _idle(local), "the end of jobs of before a crash", partial(all_run, local), every=1
    )


def _idle(local: LocalFederation) -> bool:
    """Whether the server says that no job runs; one that says nothing is asked again."""
    with suppress(EpifedError):
        return not look(local.desk)["running"]
    return False


def test_a_worker_a_site_and_a_third_of_the_sites_killed_in_a_round(
    local: LocalFederation,
) -> None:
    wanted = plan("mortal", small_settings(rounds=12, epsilon=2.0), seeded=False)
    training = Training(local, wanted)
    training.until_round(2)
    for pid in local.workers("site-2"):
        os.kill(pid, signal.SIGKILL)
    training.until_round(5)
    local.kill("site-3")
    training.until_round(6)
    _restart(local, "site-3")
    status = training.finished()
    assert status["round"] == 12
    assert status["missing"] == []
    _check_money(local, wanted)
    book = Path(local.kit("site-3") / "participation.jsonl").read_text().splitlines()
    assert any('"mortal"' in line for line in book)
