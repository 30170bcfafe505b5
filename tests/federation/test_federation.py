"""Real processes over loopback: equal to the simulation, sending and taking vectors alone."""

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from epifed.clients import make_clients
from epifed.federation.flare.jobs import halt, look
from epifed.federation.flare.local import LocalFederation
from epifed.learners.fedavg import FedAvg
from epifed.registry import LEARNERS
from epifed.release import read_release
from epifed.settings import Settings
from epifed.training import train
from epifed.windows import Windows
from tests.federation.evil import deeds as evil
from tests.federation.helpers import HERE, Training, federation, on_path, panel, plan
from tests.helpers import small_settings

EVIL = "site-3"
"""The site that runs changed code. Outside the trainings called evil it is only overheard."""


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFederation]:
    folder = tmp_path_factory.mktemp("federation")
    overheard = folder / "overheard"
    overheard.mkdir()
    environment = {EVIL: on_path("evil", EVIL_FOLDER=str(overheard))}
    with federation(
        folder, 3, environment=environment, rounds_per_job=20, round_timeout=evil.ROUND
    ) as local:
        yield local


def _settings(learner: str, epsilon: float) -> Settings:
    changes: dict[str, Any] = {"learner": learner, "epsilon": epsilon}
    if learner != "fedavg":
        changes["rounds"] = 1
    return small_settings(**changes)


TRAININGS = [("fedavg", 2.0), ("fedavg", math.inf)] + [
    (learner, 2.0) for learner in LEARNERS if learner != "fedavg"
]


def _name(learner: str, epsilon: float) -> str:
    return f"same-{learner}-{'open' if math.isinf(epsilon) else 'private'}"


@pytest.mark.parametrize(("learner", "epsilon"), TRAININGS)
def test_federation_and_simulation_give_the_same_weights(
    local: LocalFederation, learner: str, epsilon: float
) -> None:
    settings = _settings(learner, epsilon)
    wanted = plan(_name(learner, epsilon), settings)
    status = local.train(wanted)
    simulated = train(make_clients(panel(), settings), settings)
    assert status["delivered"] == ["site-1", "site-2", "site-3"]
    for site in local.federation.sites:
        model = read_release(local.kit(site.name) / "models" / f"{wanted.training}.epifed")
        torch.testing.assert_close(
            torch.from_numpy(model.vector), torch.from_numpy(simulated.vector)
        )
        assert model.epsilon == pytest.approx(simulated.calibration.epsilon_spent, rel=1e-9)
        assert model.settings == settings


def test_what_must_not_reach_the_model_does_not_and_the_report_says_who_and_why(
    local: LocalFederation,
) -> None:
    settings = small_settings(rounds=12, epsilon=2.0, clients_per_round=12, epochs=1)
    wanted = plan("evil-deeds", settings)
    status = local.train(wanted)
    assert status["finished"]
    lines = (local.training_folder(wanted) / "report.jsonl").read_text().splitlines()
    reasons = {
        line["round"]: [(p["site"], p["reason"]) for p in line["problems"]]
        for line in map(json.loads, lines)
    }
    expected = {
        "nan": ["not-finite"],
        "infinite": ["not-finite"],
        "shape": ["shape"],
        "dtype": ["dtype"],
        "norm": ["norm"],
        "twice": ["duplicate"],
        "foreign": ["foreign-client"],
        "exception": ["error"],
        "nonsense": ["message"],
        "late": ["no-answer"],
        "stale": ["late"],
        "good": [],
    }
    for number, deed in evil.DEEDS.items():
        found = [reason for site, reason in reasons[number] if site == EVIL]
        assert found == expected[deed], (number, deed, reasons[number])
    assert {site for problems in reasons.values() for site, _ in problems} == {EVIL}
    silenced = [panel().regions.index(c) for c in local.federation.site(EVIL).clients]
    simulated = train(
        make_clients(panel(), settings), settings, learner=_Silenced(settings, silenced, until=12)
    )
    model = read_release(local.kit(EVIL) / "models" / f"{wanted.training}.epifed")
    torch.testing.assert_close(torch.from_numpy(model.vector), torch.from_numpy(simulated.vector))


class _Silenced(FedAvg):
    """Some clients contribute nothing before a round. Everybody is sampled: row k is client k."""

    def __init__(self, settings: Settings, rows: list[int], until: int) -> None:
        super().__init__(settings)
        self.rows, self.until, self.calls = rows, until, 0

    def contribute(self, state: Tensor, windows: Windows) -> Tensor:
        self.calls += 1
        updates = super().contribute(state, windows)
        if self.calls < self.until:
            updates[self.rows] = 0.0
        return updates


def _overheard(local: LocalFederation) -> bytes:
    """All that the evil site sent, up to the trainings in which it is evil."""
    folder = local.folder / "overheard"
    files = [path.read_bytes() for path in sorted(folder.glob("sent-*.bin"))]
    return b"".join(sent for sent in files if b"evil-deeds" not in sent)


def test_nothing_but_vectors_and_their_metadata_leaves_a_site(local: LocalFederation) -> None:
    sent = _overheard(local)
    certificate = (local.kit(EVIL) / "startup" / "client.crt").read_bytes().strip()
    assert certificate in sent
    rest, arrays = _without_arrays(sent.replace(certificate, b""))
    metadata = [json.loads(text) for text in METADATA.findall(rest)]
    assert {about["training"] for about in metadata} == {_name(*one) for one in TRAININGS}
    for about in metadata:
        assert about.keys() == {"training", "round", "clients", "dtype", "shape"}
        assert about["dtype"] == "float32"
        assert set(about["clients"]) <= set(local.federation.site(EVIL).clients)
    shapes = [tuple(about["shape"]) for about in metadata]
    assert sorted(arrays) == sorted(4 * rows * length for rows, length in shapes)
    rest = METADATA.sub(b"", rest)
    assert len(set(SIGNATURE.findall(rest))) == 1, "the server's own token, sent back"
    rest = UUID.sub(b"", SIGNATURE.sub(b"", rest))
    known = set((HERE / "vocabulary.txt").read_text().split())
    # A byte that tells a length may look like a letter beside a word.
    unknown = {
        word
        for word in map(bytes.decode, WORD.findall(rest))
        if not {word, word[1:], word[:-1], word[1:-1]} & known
    }
    assert unknown == set()


METADATA = re.compile(rb'\{"training".*?\}')
SIGNATURE = re.compile(rb"[A-Za-z0-9+/]{340,}=*")
UUID = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
WORD = re.compile(rb"[A-Za-z_][A-Za-z_.]{4,}[A-Za-z_]")
ARRAY = re.compile(rb"array(?:\xc4(.)|\xc5(..)|\xc6(....))", re.DOTALL)
"""The key and the length before an array, as MessagePack writes them."""


def _without_arrays(sent: bytes) -> tuple[bytes, list[int]]:
    """What was sent without the arrays of contributions, and these arrays' lengths in bytes."""
    rest, lengths, end = b"", [], 0
    for found in ARRAY.finditer(sent):
        length = int.from_bytes(found[1] or found[2] or found[3], "big")
        rest += sent[end : found.start()]
        end = found.end() + length
        lengths.append(length)
    return rest + sent[end:], lengths


def test_no_count_window_path_or_word_of_an_exception_leaves_a_site(
    local: LocalFederation,
) -> None:
    folder = local.folder / "overheard"
    sent = b"".join(path.read_bytes() for path in sorted(folder.glob("sent-*.bin")))
    assert b"same-fedavg-private" in sent, "nothing was overheard"
    assert evil.SECRET.encode() not in sent
    assert str(local.folder / "data").encode() not in sent
    mine = panel()
    rows = [mine.regions.index(c) for c in local.federation.site(EVIL).clients]
    clients = make_clients(mine, small_settings())
    for k in rows:
        for window in clients.train.inputs[k]:
            assert window.tobytes() not in sent
        for counts in (mine.counts[k], mine.counts[k].astype(np.float32)):
            for day in range(len(counts) - 2):
                assert counts[day : day + 3].tobytes() not in sent
        text = ",".join(f"{value:g}" for value in mine.counts[k][:3])
        assert text.encode() not in sent


def test_a_stopped_training_goes_on_to_the_same_weights(local: LocalFederation) -> None:
    settings = small_settings(rounds=20, epsilon=2.0)
    wanted = plan("stopped", settings)
    training = Training(local, wanted)
    training.until_round(1)
    assert halt(local.desk) == ["stopped"]
    status = training.finished()
    assert status["stopped"]
    assert 1 <= status["round"] < settings.rounds
    assert look(local.desk)["connected"] == ["site-1", "site-2", "site-3"]
    assert local.train(wanted)["finished"]
    simulated = train(make_clients(panel(), settings), settings)
    model = read_release(local.kit("site-1") / "models" / "stopped.epifed")
    torch.testing.assert_close(torch.from_numpy(model.vector), torch.from_numpy(simulated.vector))
