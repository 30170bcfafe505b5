"""The server's rounds without FLARE, killed at every stage in forked processes."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from filelock import Timeout

from epifed.errors import EpifedError
from epifed.federation.messages import Code
from epifed.federation.server import (
    Order,
    Problem,
    ServedTraining,
    TooFewError,
    read_state,
)
from epifed.ledger.budget import Cap
from epifed.ledger.ledger import Ledger
from epifed.rehearsal.local import rehearsal_federation
from tests.federation.helpers import SitesPost, panel, plan, zeros
from tests.federation.server_kills.stages import STAGES
from tests.helpers import small_settings
from tests.waiting import exit_status

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no fork, no SIGKILL")

KILLS = 60


_NOBODY = SitesPost(lambda tasks: ({site: zeros(task) for site, task in tasks.items()}, []))
"""Every site answers, and no client's vector is longer than zero."""
_REFUSING = SitesPost(lambda tasks: ({}, [Problem(s, Code.REFUSED_EPSILON) for s in tasks]))


def _open(folder: Path, wanted: Order, ledger: Path) -> ServedTraining:
    return ServedTraining(folder, rehearsal_federation(panel(), 2), wanted, Ledger(ledger))


def _victim(folder: Path, wanted: Order, ledger: Path, stage: str, number: int) -> int:
    """A process that plays until it is killed at a stage of a round; its exit status."""
    pid = os.fork()
    if pid:
        return exit_status(pid)
    try:
        rounds = _open(folder, wanted, ledger)
        method, when = STAGES[stage]
        original = getattr(rounds, method)

        def killing(*args: Any) -> Any:
            due = rounds.done + 1 >= number
            if due and when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            result = original(*args)
            if due:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        setattr(rounds, method, killing)
        while not rounds.finished:
            rounds.play(_NOBODY, lambda _: None)
    finally:
        os._exit(1)


@pytest.mark.field
def test_killed_at_every_stage_the_ledger_shows_what_was_released_and_no_round_twice(
    tmp_path: Path,
) -> None:
    ledger = tmp_path / "budget.ledger"
    Ledger.create(ledger, Cap(10_000.0, 1e-5, "rdp"))
    wanted = plan(
        "killed",
        small_settings(rounds=KILLS, epsilon=4.0, clients_per_round=12),
        seeded=False,
    )
    folder = tmp_path / "training"
    for kill in range(KILLS):
        stage = list(STAGES)[kill % len(STAGES)]
        status = _victim(folder, wanted, ledger, stage, kill + 1 - kill // len(STAGES))
        assert os.WIFSIGNALED(status), stage
        found = read_state(folder)
        done = found[0] if found else 0
        assert done <= _spent(ledger) <= done + 1, stage
    rounds = _open(folder, wanted, ledger)
    while not rounds.finished:
        rounds.play(_NOBODY, lambda _: None)
    model = rounds.finish()
    (record,) = Ledger(ledger).book().runs.values()
    assert record.outcome == "finished"
    assert record.model_hash == model.sha256
    assert record.spent == KILLS
    assert (rounds.done, rounds.paid) == (KILLS, KILLS)
    assert model.epsilon == pytest.approx(rounds.epsilon)


def _spent(ledger: Path) -> int:
    return sum(record.spent for record in Ledger(ledger).book().runs.values())


@pytest.mark.field
def test_two_processes_never_play_the_same_training(tmp_path: Path) -> None:
    ledger = tmp_path / "budget.ledger"
    Ledger.create(ledger, Cap(10.0, 1e-5, "rdp"))
    wanted = plan("held", small_settings(epsilon=2.0), seeded=False)
    holder = _open(tmp_path / "training", wanted, ledger)
    with pytest.raises(Timeout):
        _open(tmp_path / "training", wanted, ledger)
    assert holder.done == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"clients_per_round": 13}, "13 of 12 clients"),
        ({"split": "shuffled"}, "expected 'temporal'"),
        ({"epsilon": float("inf")}, "expected a finite budget"),
    ],
)
def test_what_a_federation_cannot_train_is_refused(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    ledger = tmp_path / "budget.ledger"
    Ledger.create(ledger, Cap(10.0, 1e-5, "rdp"))
    settings = small_settings(**{"epsilon": 2.0} | changes)
    with pytest.raises(EpifedError, match=words):
        _open(tmp_path / "training", plan("no", settings, seeded=False), ledger)
    assert Ledger(ledger).book().runs == {}


def test_other_settings_under_the_same_name_are_refused(tmp_path: Path) -> None:
    ledger = tmp_path / "budget.ledger"
    Ledger.create(ledger, Cap(10.0, 1e-5, "rdp"))
    settings = small_settings(epsilon=2.0)
    first = _open(tmp_path / "t", plan("same", settings, seeded=False), ledger)
    first.play(_NOBODY, lambda _: None)
    first._lock.release()
    with pytest.raises(EpifedError, match="found it with other settings"):
        _open(tmp_path / "t", plan("same", settings.but(epochs=9), seeded=False), ledger)


def test_a_name_whose_folder_was_lost_is_never_priced_at_its_old_noise(tmp_path: Path) -> None:
    ledger = tmp_path / "budget.ledger"
    Ledger.create(ledger, Cap(100.0, 1e-5, "rdp"))
    cheap, dear = (
        plan("weekly", small_settings(epsilon=epsilon), seeded=False) for epsilon in (0.1, 40.0)
    )
    _open(tmp_path / "first", cheap, ledger).play(_NOBODY, lambda _: None)
    with pytest.raises(EpifedError, match=r"noise multiplier: found .*; expected"):
        _open(tmp_path / "second", dear, ledger)
    again = _open(tmp_path / "third", cheap, ledger)
    again.play(_NOBODY, lambda _: None)
    (record,) = Ledger(ledger).book().runs.values()
    assert (record.spent, record.rounds) == (2, cheap.settings.rounds + 1)
    assert again.paid == 2


def test_a_training_does_not_go_on_with_another_ledger(tmp_path: Path) -> None:
    wanted = plan("moved", small_settings(epsilon=2.0), seeded=False)
    for name in ("one", "two"):
        Ledger.create(tmp_path / name, Cap(10.0, 1e-5, "rdp"))
    rounds = _open(tmp_path / "t", wanted, tmp_path / "one")
    rounds.play(_NOBODY, lambda _: None)
    rounds._lock.release()
    with pytest.raises(EpifedError, match=r"its run .* is not in the ledger"):
        _open(tmp_path / "t", wanted, tmp_path / "two")
    assert Ledger(tmp_path / "two").book().runs == {}


def test_a_round_that_all_sites_refuse_is_neither_paid_for_nor_used(tmp_path: Path) -> None:
    """A refusal is no presence: ε = 2.17 was once spent on three sites that had all refused."""
    ledger = tmp_path / "budget.ledger"
    Ledger.create(ledger, Cap(10.0, 1e-5, "rdp"))
    wanted = plan("refused", small_settings(epsilon=2.0), seeded=False)
    training = _open(tmp_path / "training", wanted, ledger)
    with pytest.raises(TooFewError, match="0 sites answered with a vector, 1 expected") as few:
        training.play(_REFUSING, lambda _: None)
    assert "site-1: refused-epsilon" in str(few.value)
    assert (training.done, training.paid, _spent(ledger)) == (0, 0, 0)
    training.play(_NOBODY, lambda _: None)
    assert (training.done, training.paid, _spent(ledger)) == (1, 1, 1)
