"""Any order of reserving, spending, crashing, resuming and closing, against a simple model."""

import math
import os
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from unittest import mock

import dp_accounting as dp
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
)

from epifed.errors import EpifedError
from epifed.ledger import ledger as ledger_module
from epifed.ledger.budget import Cap
from epifed.ledger.ledger import Ledger, OverspendError, Run
from epifed.privacy.accounting import epsilon_of

CAP = Cap(1.0, 1e-5, "rdp")


@lru_cache
def composed(rounds: int) -> float:
    """The oracle: Gaussians without sampling compose to one; here in rounds of c = 16."""
    return epsilon_of(dp.GaussianDpEvent(16.0 / math.sqrt(rounds)), CAP.delta) if rounds else 0.0


@dataclass
class Released:
    """The model of a run: what has left the server, and what it may still ask for."""

    noise: float
    wanted: int
    released: int = 0
    paid: int = 0
    closed: bool = False


class LedgerMachine(RuleBasedStateMachine):
    """A handle is what a process holds; a crash loses it, and sometimes the round just paid."""

    handles: Bundle[Run] = Bundle("handles")
    crashed: Bundle[str] = Bundle("crashed")
    backups: Bundle[tuple[bytes, str]] = Bundle("backups")

    def __init__(self) -> None:
        super().__init__()
        memory = Path("/dev/shm")
        self.directory = tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None)
        self.path = Path(self.directory.name) / "ledger.db"
        self.state = mock.patch.dict(os.environ, EPIFED_STATE=self.directory.name)
        self.state.start()
        self.ledger = Ledger.create(self.path, CAP)
        self.model: dict[str, Released] = {}

    def teardown(self) -> None:
        self.state.stop()
        self.directory.cleanup()

    @rule(target=handles, noise=st.sampled_from([8.0, 16.0]), rounds=st.integers(1, 4))
    def reserve(self, noise: float, rounds: int) -> Run | MultipleResults[Run]:
        try:
            run = self.ledger.reserve(
                sampling_rate=1.0,
                noise_multiplier=noise,
                rounds=rounds,
                settings_hash="",
            )
        except OverspendError:
            assert not self.fits([(noise, rounds)])
            return multiple()
        self.model[run.name] = Released(noise, rounds)
        return run

    @rule(run=handles)
    def release_a_round(self, run: Run) -> None:
        self.pay(run, released=True)

    @rule(target=crashed, run=consumes(handles), paid=st.booleans())
    def crash(self, run: Run, paid: bool) -> str:
        if paid:
            self.pay(run, released=False)
        self.ledger = Ledger(self.path)
        return run.name

    @rule(target=handles, name=crashed)
    def resume(self, name: str) -> Run | MultipleResults[Run]:
        model = self.model[name]
        try:
            run = self.ledger.resume(name, model.wanted - model.released)
        except OverspendError:
            return multiple()
        except EpifedError:
            assert model.closed
            return multiple()
        assert not model.closed
        return run

    @rule(run=consumes(handles), finished=st.booleans())
    def close(self, run: Run, finished: bool) -> None:
        try:
            if finished:
                run.finish("model")
            else:
                self.ledger.close(run.name, "abandoned")
        except EpifedError:
            assert self.model[run.name].closed
        self.model[run.name].closed = True

    @rule(target=backups)
    def back_up(self) -> tuple[bytes, str]:
        return self.path.read_bytes(), self.ledger.book().head

    @rule(backup=backups)
    def restore(self, backup: tuple[bytes, str]) -> None:
        """An older copy neither spends nor is adopted, however it was put in place."""
        content, head = backup
        newest = self.path.read_bytes()
        if self.ledger.book().head == head:
            return
        self.path.unlink()
        self.path.write_bytes(content)
        for attempt in (
            lambda: Ledger(self.path),
            lambda: Ledger.adopt(self.path, "restored"),
            self.ledger.book,
        ):
            with pytest.raises(EpifedError, match="an older copy"):
                attempt()
        self.path.write_bytes(newest)

    def pay(self, run: Run, released: bool) -> None:
        model = self.model[run.name]
        try:
            run.spend(model.released + 1)
        except EpifedError:
            record = self.ledger.book().runs[run.name]
            assert model.closed or model.paid == record.rounds
            return
        assert not model.closed
        model.paid += 1
        model.released += released

    def fits(self, more: list[tuple[float, int]]) -> bool:
        counted = [(run.noise_multiplier, run.counted) for run in self.ledger.book().runs.values()]
        return self.epsilon(counted + more) <= CAP.epsilon

    @staticmethod
    def epsilon(parts: list[tuple[float, int]]) -> float:
        return composed(round(sum(rounds * (16.0 / noise) ** 2 for noise, rounds in parts)))

    @invariant()
    def never_less_than_released_and_never_more_than_the_cap(self) -> None:
        book = Ledger(self.path).verify()
        assert book.runs.keys() == self.model.keys()
        for name, model in self.model.items():
            record = book.runs[name]
            assert record.counted >= record.spent == model.paid >= model.released
            assert record.counted == (model.paid if model.closed else record.rounds)
        released = self.epsilon([(run.noise, run.released) for run in self.model.values()])
        assert released <= CAP.price(book.released()) * (1 + 1e-6)
        assert self.fits([])


@pytest.fixture(autouse=True)
def short_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "refusal", lambda *_: "refused")


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(max_examples=20, stateful_step_count=20)
