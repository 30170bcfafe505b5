"""Real processes over loopback: equal to the simulation, sending and taking vectors alone."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from epifed.federation.flare.jobs import halt, look
from epifed.federation.flare.kits import SERVER
from epifed.federation.messages import Greeting
from epifed.learners.base import slide
from epifed.registry import LEARNERS
from epifed.rehearsal.local import LocalFederation
from epifed.training.loop import train
from epifed.training.release import read_release
from tests.federation.helpers import (
    HERE,
    Training,
    all_run,
    federation,
    on_path,
    panel,
    plan,
    settings_of,
    silenced,
    view_of,
)
from tests.federation.hostile_site import deeds as hostile
from tests.helpers import conforming, small_settings
from tests.waiting import GUARD, wait_for

pytestmark = pytest.mark.field

HOSTILE = "site-3"
"""The site that runs changed code. Outside the trainings called hostile it is only overheard."""


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFederation]:
    folder = tmp_path_factory.mktemp("federation")
    overheard = folder / "overheard"
    overheard.mkdir()
    report = folder / "kits" / SERVER / "trainings" / "hostile-deeds" / "report.jsonl"
    environment = {
        HOSTILE: on_path("hostile_site", HOSTILE_FOLDER=str(overheard), HOSTILE_REPORT=str(report))
    }
    with federation(
        folder, 3, environment=environment, rounds_per_job=20, round_timeout=hostile.ROUND
    ) as local:
        yield local


TRAININGS = [("fedavg", 2.0), ("fedavg", math.inf)] + [
    (learner, 2.0) for learner in LEARNERS if learner != "fedavg"
]


def _name(learner: str, epsilon: float) -> str:
    return f"same-{learner}-{'open' if math.isinf(epsilon) else 'private'}"


@pytest.mark.parametrize(("learner", "epsilon"), TRAININGS)
def test_federation_and_simulation_give_the_same_weights(
    local: LocalFederation, learner: str, epsilon: float
) -> None:
    settings = settings_of(learner, epsilon=epsilon)
    wanted = plan(_name(learner, epsilon), settings)
    status = local.train(wanted)
    simulated = train(view_of(settings), settings)
    assert status["delivered"] == ["site-1", "site-2", "site-3"]
    for site in local.federation.sites:
        model = read_release(local.kit(site.name) / "models" / f"{wanted.training}.epifed")
        np.testing.assert_allclose(model.vector, simulated.vector, rtol=1.3e-6, atol=1e-5)
        assert model.epsilon == pytest.approx(simulated.calibration.epsilon_spent, rel=1e-9)
        assert model.settings == settings


def test_what_must_not_reach_the_model_does_not_and_the_report_says_who_and_why(
    local: LocalFederation,
) -> None:
    rounds = len(hostile.DEEDS)
    settings = small_settings(rounds=rounds, epsilon=2.0, clients_per_round=12, epochs=1)
    wanted = plan("hostile-deeds", settings)
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
        "rows": ["shape"],
        "exception": ["error"],
        "nonsense": ["message"],
        "endless": ["shape"],
        "nested": ["message"],
        "wordless": ["message"],
        "huge": ["shape"],
        "undecodable": ["message"],
        "fatal": ["late"],
        "large": ["size"],
        "late": ["no-answer"],
        "stale": ["late"],
        "good": [],
    }
    for number, deed in hostile.DEEDS.items():
        found = [reason for site, reason in reasons[number] if site == HOSTILE]
        assert found == expected[deed], (number, deed, reasons[number])
    assert {site for problems in reasons.values() for site, _ in problems} == {HOSTILE}
    mine = [panel().regions.index(c) for c in local.federation.site(HOSTILE).clients]
    rows = {
        number: mine[:1] if deed in hostile.ALONE else mine
        for number, deed in hostile.DEEDS.items()
        if deed != "good"
    }
    simulated = train(view_of(settings), settings, learner=silenced(settings, rows))
    model = read_release(local.kit(HOSTILE) / "models" / f"{wanted.training}.epifed")
    np.testing.assert_allclose(model.vector, simulated.vector, rtol=1.3e-6, atol=1e-5)


def _overheard(local: LocalFederation) -> bytes:
    """All that the hostile site sent, up to the trainings in which it is hostile."""
    folder = local.folder / "overheard"
    files = [path.read_bytes() for path in sorted(folder.glob("sent-*.bin"))]
    return b"".join(sent for sent in files if b"hostile-deeds" not in sent)


def test_nothing_but_vectors_and_their_metadata_leaves_a_site(local: LocalFederation) -> None:
    sent = _overheard(local)
    certificate = (local.kit(HOSTILE) / "startup" / "client.crt").read_bytes().strip()
    assert certificate in sent
    rest, arrays = _without_arrays(sent.replace(certificate, b""))
    metadata = [json.loads(text) for text in METADATA.findall(rest)]
    assert {about["training"] for about in metadata} == {_name(*one) for one in TRAININGS}
    for about in metadata:
        assert about.keys() == {"training", "round", "dtype", "shape"}
        assert about["dtype"] == "float32"
        assert about["shape"][0] == len(local.federation.site(HOSTILE).clients)
    shapes = [tuple(about["shape"]) for about in metadata]
    assert sorted(arrays) == sorted(4 * rows * length for rows, length in shapes)
    rest = METADATA.sub(b"", rest)
    greetings = GREETING.findall(rest)
    assert {Greeting.own().pack()["about"].encode()} == set(greetings)
    rest = READY.sub(_terms_alone, GREETING.sub(b"", rest))
    models = [local.kit(HOSTILE) / "models" / f"{_name(*one)}.epifed" for one in TRAININGS]
    assert {text.decode() for text in RECEIPT.findall(rest)} == {
        read_release(path).sha256 for path in models
    }
    rest = RECEIPT.sub(b"", rest)
    assert len(set(SIGNATURE.findall(rest))) == 1, "the server's own token, sent back"
    assert len(LOGIN.findall(rest)) == 1, "the proof of the site's key when it connects"
    rest = TIME.sub(b"", UUID.sub(b"", LOGIN.sub(b"", SIGNATURE.sub(b"", rest))))
    known = set((HERE / "vocabulary.txt").read_text().split())
    # A byte that tells a length may look like a letter beside a word.
    unknown = {
        word
        for word in map(bytes.decode, WORD.findall(rest))
        if not {word, word[1:], word[:-1], word[1:-1]} & known
    }
    assert unknown == set()


def _terms_alone(found: re.Match[bytes]) -> bytes:
    """Nothing: such an answer is made of the site's terms and of what was announced."""
    about = json.loads(found[0])
    assert (about.pop("code"), about.pop("delta"), about.pop("accountant")) == ("yes", 1e-5, "rdp")
    assert about.pop("limit") is None
    assert about.pop("epsilon") is None or about == {}
    return b""


METADATA = re.compile(rb'\{"training".*?\}')
GREETING = re.compile(rb'\{"protocol".*?\}')
"""What a site says of itself before the first round of a job."""
READY = re.compile(rb'\{"code".*?\}')
"""What a site says before anything is paid for: whether it would take part."""
RECEIPT = re.compile(rb'\{"sha256": "([0-9a-f]{64})"\}')
"""What a site says of a release that it has got."""
SIGNATURE = re.compile(rb"[A-Za-z0-9+/]{340,}=*")
UUID = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
LOGIN = re.compile(rb"signature\xc5\x01\x00.{256}", re.DOTALL)
"""256 random bytes, among which 2 % of the runs would see a word."""
TIME = re.compile(rb"\xcbA[\xd0-\xdf].{6}", re.DOTALL)
"""The time, as MessagePack writes it: at some hours its bytes are letters."""
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
    assert hostile.SECRET.encode() not in sent
    assert str(local.folder / "data").encode() not in sent
    mine = panel()
    rows = [mine.regions.index(c) for c in local.federation.site(HOSTILE).clients]
    windows = slide(mine, small_settings(), (mine.start, mine.end))
    for k in rows:
        for window in windows.inputs[k]:
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
    found = conforming("federation status", look(local.desk))
    assert found["connected"] == ["site-1", "site-2", "site-3"]
    assert local.train(wanted)["finished"]
    simulated = train(view_of(settings), settings)
    model = read_release(local.kit("site-1") / "models" / "stopped.epifed")
    np.testing.assert_allclose(model.vector, simulated.vector, rtol=1.3e-6, atol=1e-5)


@dataclass(frozen=True)
class _Draws:
    """A training in which few are drawn: who was, and all that the coordinator can get of it."""

    drawn: dict[str, list[list[str]]]
    """The drawn clients of each round, by site, as the sites' own logs have them."""
    statuses: list[dict[str, Any]]
    report: list[dict[str, Any]]
    files: dict[str, str]
    """The job's result by file."""


DRAWS = plan("draws", small_settings(rounds=9, epsilon=2.0, clients_per_round=3))


@pytest.fixture(scope="module")
def draws(local: LocalFederation, tmp_path_factory: pytest.TempPathFactory) -> _Draws:
    statuses: list[dict[str, Any]] = []
    statuses.append(local.train(DRAWS, lambda status: statuses.append(deepcopy(status))))
    drawn = {
        site.name: [
            line["drawn"]
            for line in _lines(local.kit(site.name) / "participation.jsonl")
            if line["training"] == "draws"
        ]
        for site in local.federation.sites
    }
    report = _lines(local.training_folder(DRAWS) / "report.jsonl")
    folder = tmp_path_factory.mktemp("result")
    with local.desk.session(GUARD) as session:
        (job,) = (j["job_id"] for j in session.list_jobs() if j["job_name"] == "epifed-draws")
        completed = partial(_completed, session, job)
        wait_for(completed, "its end", partial(all_run, local), every=0.5)
        found = Path(session.download_job_result(job, str(folder)))
    files = {
        str(path.relative_to(found)): path.read_text(errors="replace")
        for path in sorted(found.rglob("*"))
        if path.is_file()
    }
    return _Draws(drawn, statuses, report, files)


def _completed(session: Any, job: str) -> bool:
    return "COMPLETED" in str(session.get_job_status(job))


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_bytes_that_a_site_sends_do_not_depend_on_who_was_drawn(
    local: LocalFederation, draws: _Draws
) -> None:
    counts = {len(clients) for clients in draws.drawn[HOSTILE]}
    assert 0 in counts and len(counts) > 1, "the draw does not vary: change the seed"
    folder = local.folder / "overheard"
    (sent,) = (
        data for path in folder.glob("sent-*.bin") if b'"draws"' in (data := path.read_bytes())
    )
    rest, arrays = _without_arrays(sent)
    abouts = METADATA.findall(rest)
    assert [json.loads(about)["round"] for about in abouts] == list(range(1, 10))
    assert len({len(about) for about in abouts}) == 1
    assert arrays == [arrays[0]] * 9


def test_what_the_coordinator_gets_tells_neither_who_nor_how_many_were_drawn(
    local: LocalFederation, draws: _Draws
) -> None:
    sites = [site.name for site in local.federation.sites]
    assert [line["round"] for line in draws.report] == list(range(1, 10))
    lines = draws.report + [line for status in draws.statuses for line in status.get("lines", [])]
    for line in lines:
        assert line.keys() == {"round", "epsilon", "problems", "time", "sites"}
        assert (line["problems"], line["sites"]) == ([], sites)
    for status in draws.statuses:
        assert status.keys() <= STATUS_KEYS
        assert status.get("sites", sites) == sites
        assert set(status.get("versions", sites)) == set(sites)
    conforming("federation status", {"connected": sites, "running": draws.statuses})
    conforming("federation train", draws.statuses[-1])
    assert any("epifed_status.json" in name for name in draws.files)
    told = json.dumps([draws.statuses, draws.report]) + "".join(draws.files.values())
    for client in local.federation.clients:
        assert re.search(rf"(?<![0-9A-Za-z]){client}(?![0-9A-Za-z])", told) is None, client
    price = told.replace("epsilon_without_amplification", "")  # of the plan, whoever was drawn
    assert not re.search(r"drawn|cohort|sampled", price)


STATUS_KEYS = {
    "noise",
    "training",
    "finished",
    "lines",
    "round",
    "rounds",
    "paid",
    "epsilon",
    "epsilon_without_amplification",
    "delta",
    "accountant",
    "sites",
    "enrolled_sites",
    "ledger_run",
    "sha256",
    "delivered",
    "missing",
    "undelivered",
    "versions",  # of the greeting, before any draw
    "readiness",  # of the question whether they would take part, before any draw
    "unused",
}


def test_the_servers_log_has_the_same_lines_of_every_site_in_every_round(
    local: LocalFederation, draws: _Draws
) -> None:
    sites = [site.name for site in local.federation.sites]
    (log,) = (text for name, text in draws.files.items() if Path(name).name == "log.txt")
    lines = [line for line in log.splitlines() if "train" in line]
    found = {
        site: Counter(_anonymous(line, site) for line in lines if re.search(rf"\b{site}\b", line))
        for site in sites
    }
    assert found[sites[0]], "FLARE's log tells of no task"
    assert set(found[sites[0]].values()) == {9}
    assert all(counts == found[sites[0]] for counts in found.values())
    _, *rounds = "\n".join(lines).split("scheduled task train")
    for lines_of_round in rounds:
        asked = re.findall(r"assigned task to client (\S+): name=train", lines_of_round)
        assert sorted(asked) == sites


def _anonymous(line: str, site: str) -> str:
    """A line of a log without its time, its ids and its site."""
    words = re.sub(r"^\S+ \S+ - ", "", line).replace(site, "SITE")
    return UUID.sub(b"ID", words.encode()).decode()
