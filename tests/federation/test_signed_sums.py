"""Parties take only the state that the aggregators' signed sums give, whatever the server sends."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from epifed.errors import EpifedError
from epifed.federation import secure_training, site
from epifed.federation.messages import (
    MOST_EVIDENCE,
    Code,
    Delivery,
    Evidence,
    MessageError,
    Parts,
    evidence_bytes,
)
from epifed.federation.secure_training import FIRST, SUMS, SecureTraining
from epifed.federation.server import TooFewError
from epifed.learners.base import make_learner
from epifed.ledger.budget import Cap
from epifed.ledger.ledger import Ledger
from epifed.privacy import noise
from epifed.training.release import Release, read_release
from epifed.training.rounds import vector_length
from tests.federation.helpers import plan, settings_of
from tests.federation.parties import Parties

PARTIES = ("site-1", "site-2", "sum-1", "sum-2")
ROUNDS = 3
CHOSEN = settings_of("trend", noise="aggregators", epsilon=2.0, rounds=ROUNDS, accountant="rdp")
Forge = Callable[["Delivered"], Parts]


class Delivered:
    """A finished training of each of two names, and what the server would send of the first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parties = Parties.make(folder / "parties", sites=2)
        ledger = Ledger.create(folder / "budget.ledger", Cap(1e6, 1e-5, "rdp"))
        self.trainings = {name: self._trained(name, ledger) for name in ("flu", "other")}

    def _trained(self, name: str, ledger: Ledger) -> SecureTraining:
        training = self.parties.training(plan(name, CHOSEN, seeded=False), ledger)
        while not training.finished:
            training.play(self.parties, lambda _: None)
        training.finish()
        return training

    def parts(self, name: str = "flu") -> Parts:
        return self.trainings[name].delivery().pack()

    def release(self, name: str = "flu") -> Release:
        return read_release(self.trainings[name].folder / "model.epifed")

    def evidence(self, name: str = "flu") -> Evidence:
        evidence = Delivery.unpack(self.parts(name)).evidence
        assert evidence is not None
        return evidence

    def sums(self, name: str = "flu") -> list[bytes]:
        content = self.evidence(name).sums
        size = len(content) // ROUNDS
        return [content[k * size : (k + 1) * size] for k in range(ROUNDS)]

    def forged(self, **changes: Any) -> Parts:
        """The delivery of a release with another label or state, its hash made to fit."""
        release = replace(self.release(), **changes)
        path = self.folder / "forged.epifed"
        replace(release, sha256=release.content_hash()).write(path)
        return self.parts() | {"array": path.read_bytes()}

    def with_terms(self, **changes: Any) -> Parts:
        return self.with_first(self.evidence().first.agreed | changes)

    def with_first(self, first: dict[str, Any] | None) -> Parts:
        about = json.loads(self.parts()["about"]) | {"first": first}
        return self.parts() | {"about": json.dumps(about)}


@pytest.fixture(scope="module")
def delivered(tmp_path_factory: pytest.TempPathFactory) -> Delivered:
    folder = tmp_path_factory.mktemp("delivered")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EPIFED_STATE", str(folder / "state"))
        return Delivered(folder)


@pytest.fixture(autouse=True)
def own_state(delivered: Delivered, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPIFED_STATE", str(delivered.folder / "state"))


def _state(scale: float) -> Forge:
    return lambda made: made.forged(vector=(made.release().vector * scale).astype(np.float32))


def _one_bit(made: Delivered) -> Parts:
    vector = made.release().vector.copy()
    vector[0] = np.nextafter(vector[0], np.float32(np.inf))
    return made.forged(vector=vector)


def _label(**changes: Any) -> Forge:
    def forge(made: Delivered) -> Parts:
        (cost,) = made.release().spent
        own = changes
        if changes.keys() & vars(cost).keys():
            own = {"spent": (replace(cost, **changes),)}
        return made.forged(**own)

    return forge


def _sums(arrange: Callable[[Delivered], list[bytes]]) -> Forge:
    return lambda made: made.parts() | {"sums": b"".join(arrange(made))}


def _flipped(place: int) -> Forge:
    def forge(made: Delivered) -> Parts:
        content = bytearray(made.parts()["sums"])
        content[place] ^= 1
        return made.parts() | {"sums": bytes(content)}

    return forge


def _renamed(made: Delivered) -> Parts:
    """Another training's release and sums, told to be this one's."""
    parts = made.parts("other")
    about = json.dumps(json.loads(parts["about"]) | {"training": "flu"})
    return parts | {"about": about}


def _foreign_keys(made: Delivered) -> Parts:
    """Everything of another federation, whose aggregators have the same names."""
    other = Parties.make(made.folder / "foreign", sites=2)
    training = other.training(plan("flu", CHOSEN))
    while not training.finished:
        training.play(other, lambda _: None)
    training.finish()
    training._lock.release()
    return training.delivery().pack()


FORGERIES: dict[str, Forge] = {
    "a state turned round": _state(-1.0),
    "no state": _state(0.0),
    "one bit of the state": _one_bit,
    "a smaller ε": _label(noise_multiplier=900.0),
    "another sampling rate": _label(sampling_rate=0.01),
    "fewer rounds": _label(rounds=1),
    "more clients": _label(clients=24),
    "another last day": _label(last_day=date(2030, 1, 1)),
    "another budget": _label(settings=CHOSEN.but(epsilon=0.01)),
    "another seed": _label(settings=CHOSEN.but(seed=7)),
    "a continued release": _label(continues="0" * 64),
    "a test": _label(randomness="seeded"),
    "unused rounds": _label(unused=1),
    "a server's noise": _label(settings=CHOSEN.but(noise="server", aggregators=None)),
    "no sums": lambda made: made.with_first(None) | {"sums": b""},
    "empty sums": _sums(lambda made: []),
    "a missing round": _sums(lambda made: made.sums()[:-1]),
    "a round too many": _sums(lambda made: [*made.sums(), made.sums()[-1]]),
    "a replayed round": _sums(lambda made: [*made.sums()[:1], *made.sums()[:2]]),
    "swapped rounds": _sums(lambda made: [made.sums()[1], made.sums()[0], made.sums()[2]]),
    "another training's sums": _sums(lambda made: made.sums("other")),
    "a round of another training": _sums(lambda made: [*made.sums()[:2], made.sums("other")[2]]),
    "another training's terms and sums": lambda made: (
        made.with_first(made.evidence("other").first.agreed) | {"sums": made.evidence("other").sums}
    ),
    "another training's release": _renamed,
    "a changed sum": _flipped(-1),
    "a changed digest of the reports": _flipped(0),
    "a changed number of reports": _flipped(32 + 7),
    "a changed signature": _flipped(32 + 8),
    "the terms of a later round": lambda made: made.with_terms(round=2, paid=1),
    "sums that are text": lambda made: made.parts() | {"sums": "0" * 99},
    "fewer sites needed": lambda made: made.with_terms(least=9),
    "less noise announced": lambda made: made.with_terms(noise_multiplier=0.01),
    "settings that are none": lambda made: made.with_terms(settings="learner = 7"),
    "other keys": _foreign_keys,
}


@pytest.mark.parametrize("name", FORGERIES)
def test_pinned_parties_refuse(delivered: Delivered, name: str) -> None:
    parts = FORGERIES[name](delivered)
    for party in PARTIES:
        work = delivered.parties
        with pytest.raises(MessageError) as caught:
            work.deliver(party, delivered.trainings["flu"], lambda *_: parts)
        assert caught.value.code in {
            Code.INVENTED, Code.REFUSED_TRUST, Code.REFUSED_ROSTER, Code.REFUSED_CHANGE, Code.SIZE,
        }  # fmt: skip
        assert not list((work.kit(party) / "models").glob("flu*"))


def test_what_was_signed_is_taken_by_every_party(delivered: Delivered) -> None:
    for party in PARTIES:
        release = delivered.parties.deliver(party, delivered.trainings["other"])
        assert release.sha256 == delivered.release("other").sha256


@pytest.mark.parametrize("learner", ["fedavg", "one-shot", "real-time"])
def test_every_learner_s_release_is_computed_again_to_the_last_bit(
    tmp_path: Path, learner: str
) -> None:
    parties = Parties.make(tmp_path, sites=2)
    chosen = settings_of(learner, noise="aggregators", epsilon=2.0)
    training = parties.training(plan("exact", chosen))
    while not training.finished:
        training.play(parties, lambda _: None)
    release = training.finish()
    for party in PARTIES:
        assert parties.deliver(party, training).vector.tobytes() == release.vector.tobytes()


def test_a_round_that_could_not_be_used_is_counted_by_every_party(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties = Parties.make(tmp_path, sites=2)
    ledger = Ledger.create(tmp_path / "budget.ledger", Cap(1e6, 1e-5, "rdp"))
    training = parties.training(plan("wasted", CHOSEN, seeded=False), ledger)
    with monkeypatch.context() as patch:
        patch.setattr(site, "to_grid", lambda *args: noise.to_grid(*args) + 2**50)
        training.play(parties, lambda _: None)
    while not training.finished:
        training.play(parties, lambda _: None)
    release = training.finish()
    assert release.unused == 1
    for party in PARTIES:
        assert parties.deliver(party, training).sha256 == release.sha256


def test_rounds_from_another_state_than_the_last_sum_gives_are_refused(tmp_path: Path) -> None:
    """The server has sites learn from a state of its own: what they signed shows it."""
    parties = Parties.make(tmp_path, sites=2)
    ledger = Ledger.create(tmp_path / "budget.ledger", Cap(1e6, 1e-5, "rdp"))
    training = parties.training(plan("steered", CHOSEN, seeded=False), ledger)
    training.play(parties, lambda _: None)
    state = training.state
    training.state = training.rounds.learner.unpack(training.rounds.learner.pack(state) + 1)
    while not training.finished:
        training.play(parties, lambda _: None)
    training.finish()
    for party in PARTIES:
        with pytest.raises(MessageError, match="round 2: found a sum that 'sum-1' did not sign"):
            parties.deliver(party, training)


def test_a_first_state_of_the_servers_own_is_not_contributed_to(tmp_path: Path) -> None:
    parties = Parties.make(tmp_path, sites=2)
    training = parties.training(plan("first", CHOSEN))
    training.state = training.rounds.learner.unpack(
        training.rounds.learner.pack(training.state) + 1
    )
    answers: dict[str, str] = {}

    def overheard(name: str, parts: Parts) -> Parts:
        answers[name] = json.loads(parts["about"]).get("code", "")
        return parts

    parties.reports = overheard
    with pytest.raises(TooFewError):
        training.play(parties, lambda _: None)
    assert answers == {"site-1": "bad-task", "site-2": "bad-task"}


def test_a_training_whose_sums_are_too_many_to_hand_out_is_refused_before_it_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert evidence_bytes(2, 11_777, 1_423) <= MOST_EVIDENCE < evidence_bytes(2, 11_777, 1_424)
    monkeypatch.setattr(secure_training, "MOST_EVIDENCE", 500)
    parties = Parties.make(tmp_path, sites=2)
    with pytest.raises(EpifedError, match=r"rounds: found 3 of .* signed sums take"):
        parties.training(plan("long", CHOSEN))
    learner = make_learner(CHOSEN)
    length = vector_length(learner, learner.start(np.random.SeedSequence(0)))
    monkeypatch.setattr(secure_training, "MOST_EVIDENCE", evidence_bytes(2, length, ROUNDS))
    assert parties.training(plan("fits", CHOSEN)).done == 0


def test_keys_that_change_within_a_training_end_it_before_the_next_round_costs(
    tmp_path: Path,
) -> None:
    parties = Parties.make(tmp_path, sites=2)
    ledger = Ledger.create(tmp_path / "budget.ledger", Cap(1e6, 1e-5, "rdp"))
    training = parties.training(plan("keys", CHOSEN, seeded=False), ledger)
    training.play(parties, lambda _: None)
    (parties.kit("sum-1") / "aggregator.key").unlink()
    with pytest.raises(EpifedError, match="found other keys of its aggregators"):
        training.play(parties, lambda _: None)
    assert training.paid == 1
    (training.folder / SUMS / FIRST).unlink()
    training._lock.release()
    with pytest.raises(EpifedError, match="of an earlier version of epifed"):
        parties.training(plan("keys", CHOSEN, seeded=False), ledger)
