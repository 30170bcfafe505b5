"""Aggregators as real processes over loopback: exact, blind, of one size, and not to be tricked."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from epifed.data.panel import CasePanel
from epifed.errors import EpifedError
from epifed.federation import aggregator as aggregators
from epifed.federation.flare.inspection import inspect_site
from epifed.federation.flare.kits import SERVER
from epifed.federation.messages import report_bytes
from epifed.federation.site import Source
from epifed.learners.base import make_learner
from epifed.learners.trend import Trend
from epifed.ledger.budget import Cap
from epifed.ledger.ledger import Ledger
from epifed.rehearsal.local import LocalFederation
from epifed.settings import Settings
from epifed.training.loop import train
from epifed.training.release import read_release
from tests.federation.dishonest_server import deeds
from tests.federation.helpers import Training, federation, on_path, panel, plan, settings_of
from tests.federation.parties import spent

pytestmark = pytest.mark.field

ADDERS = ("aggregator-1", "aggregator-2")
DRAWN = re.compile(rb'"drawn": ?"([01]*)"')
OWN = np.uint64(1 << 63 | 1 << 56)
"""Of a page: present, and mapped by nobody else."""
SEALED: dict[str, Any] = {"noise": "aggregators", "epsilon": 2.0}


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFederation]:
    folder = tmp_path_factory.mktemp("aggregators")
    ledger = folder / "budget.ledger"
    Ledger.create(ledger, Cap(1e6, 1e-5, "rdp"))
    (folder / "kept").mkdir()
    told = on_path("dishonest_server", DISHONEST_FOLDER=str(folder / "kept"))
    parties = (SERVER, "site-1", "site-2", "site-3")
    with federation(
        folder,
        3,
        aggregators=2,
        environment=dict.fromkeys(parties, told),
        ledger=ledger,
        terms={"epsilon_per_release": 2.5, "epsilon_total": 2.5, "seeded": True},
    ) as local:
        yield local


def _kept(local: LocalFederation, name: str) -> list[Any]:
    paths = sorted((local.folder / "kept").glob(f"{name}-*.jsonl"))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def tampered(local: LocalFederation) -> dict[str, bytes]:
    """A training whose server tries everything; what each party's memory held in its last round."""
    wanted = plan(
        "tampered", settings_of("trend", **SEALED, rounds=3, clients_per_round=9), seeded=False
    )
    training = Training(local, wanted)
    paused = local.folder / "kept" / "paused"
    training.until(paused.exists, "the third round")
    memory = {party: _memory(local, party) for party in (SERVER, *ADDERS)}
    paused.unlink()
    status = training.finished()
    assert status["round"] == 3
    return memory


def _memory(local: LocalFederation, party: str) -> bytes:
    """All pages that the processes of a party have written to, as one heap of bytes.

    Those that it shares with what it was forked from are as they were before the training.
    """
    return b"".join(
        page
        for pid in (local.processes[party].pid, *local.workers(party))
        for page in _pages(Path(f"/proc/{pid}"))
    )


def _pages(process: Path) -> Iterator[bytes]:
    size = os.sysconf("SC_PAGE_SIZE")
    with (
        (process / "mem").open("rb", buffering=0) as memory,
        (process / "pagemap").open("rb", buffering=0) as table,
    ):
        for line in (process / "maps").read_text().splitlines():
            where, mode, *_ = line.split()
            start, end = (int(number, 16) // size for number in where.split("-"))
            if not mode.startswith("rw"):
                continue
            table.seek(8 * start)
            entries = np.frombuffer(table.read(8 * (end - start)), dtype=np.uint64)
            own = entries & OWN == OWN
            edges = np.flatnonzero(np.diff(own, prepend=False, append=False)).reshape(-1, 2)
            for first, last in edges.tolist():
                memory.seek((start + first) * size)
                with suppress(OSError):
                    yield memory.read((last - first) * size)


def _patterns(local: LocalFederation, last: int) -> set[bytes]:
    """Two neighbouring numbers of what each site sealed in its last rounds, as any array has them.

    Of the vector of every client, in floating point and on the grid, and of their sum.
    """
    found = set()
    for path in (local.folder / "kept").glob("vectors-*.jsonl"):
        for line in path.read_text().splitlines()[-last:]:
            rows, steps, total = json.loads(line)
            vectors = [np.array(row, dtype=np.float32) for row in rows]
            vectors += [np.array(row, dtype=np.int64) for row in (*steps, total)]
            for vector in vectors:
                pairs = np.stack([vector[:-1], vector[1:]], axis=1)
                least = 1e-6 if vector.dtype == np.float32 else 1000
                telling = pairs[np.abs(pairs).min(axis=1) > least]
                found |= {pair.tobytes() for pair in telling[:1]}
    return found


def test_nobody_s_memory_or_disk_holds_a_contribution_or_a_cohort(
    local: LocalFederation, tampered: dict[str, bytes]
) -> None:
    fresh, every = _patterns(local, 1), _patterns(local, 3)
    assert len(fresh) >= 2, "nobody was drawn, which has a chance of 0.25^12 = 6e-8"
    for party, memory in tampered.items():
        assert len(memory) > 50_000_000
        assert b"tampered" in memory
        files = [path for path in local.kit(party).rglob("*") if path.is_file()]
        disk = b"".join(path.read_bytes() for path in files)
        assert [pattern for pattern in fresh if pattern in memory] == [], party
        assert [pattern for pattern in every if pattern in disk] == [], party
        assert set(DRAWN.findall(memory + disk)) <= {b""}, party
    assert set(DRAWN.findall(tampered[SERVER])) == {b""}, "what is looked for can be found"


def test_an_aggregator_refuses_what_a_server_may_try_and_pays_each_round_once(
    local: LocalFederation, tampered: dict[str, bytes]
) -> None:
    del tampered
    refused = _kept(local, "refused")
    assert [line for line in refused if line[3] != line[4]] == []
    tried = {(name, deed) for name, _, deed, _, _ in refused}
    assert tried == {
        *((name, deed) for name in ADDERS for deed in (*deeds.DEEDS, *deeds.LATER)),
        *(("aggregator-2", deed) for deed in deeds.SECOND),
    }
    answers = _kept(local, "answers")
    assert len(answers) == 6
    assert all(same for _, same, _ in answers)
    for name in ADDERS:
        assert spent(local.kit(name) / aggregators.LEDGER) == 3
        (run,) = Ledger(local.kit(name) / aggregators.LEDGER).book().runs.values()
        assert run.outcome == "finished"
    assert local.ledger is not None
    assert spent(local.ledger) == 3


def test_partial_sums_look_uniform_and_all_reports_have_one_size(
    local: LocalFederation, tampered: dict[str, bytes]
) -> None:
    del tampered
    for name in ADDERS:
        sums = [
            bytes.fromhex(content) for who, _, content in _kept(local, "answers") if who == name
        ]
        nibbles = np.frombuffer(b"".join(sums), dtype=np.uint8)
        counts = np.bincount(np.concatenate([nibbles % 16, nibbles // 16]), minlength=16)
        assert stats.chisquare(counts).pvalue > 1e-8  # false alarms of both: 2e-8
    reports = _kept(local, "reports")
    assert len(reports) == 9
    assert {size for _, _, size in reports} == {report_bytes(2, _length())}
    assert len({about for _, about, _ in reports}) == 1


def _length() -> int:
    learner = make_learner(settings_of("trend", **SEALED))
    return int(
        learner.contribute(learner.start(np.random.SeedSequence(0)), learner.empty_view()).shape[1]
    )


def test_a_check_says_whom_one_must_trust(local: LocalFederation) -> None:
    source = Source(str(local.folder / "data" / "site-2.csv"), None, {})
    findings = inspect_site(local.kit("site-2"), source, settings_of("trend", **SEALED))
    assert [f.sentence for f in findings if not f.ok] == []
    said = {f.what: f.sentence for f in findings}
    assert "trust no one alone" in said["trust"]
    for name in ADDERS:
        assert aggregators.own_keys(local.kit(name)).public.fingerprint in said["trust"]
    assert f"one sealed report of {report_bytes(2, _length()):,} bytes" in said["sent"]
    assert "Nobody but this machine sees who is drawn" in said["price"]
    plain = inspect_site(local.kit("site-2"), source, settings_of("trend", epsilon=2.0))
    assert [f.what for f in plain if not f.ok] == ["trust"]


def test_a_spent_budget_is_refused_and_the_report_says_so(
    local: LocalFederation, tampered: dict[str, bytes]
) -> None:
    del tampered
    wanted = plan("beyond", settings_of("trend", **SEALED), seeded=False)
    refusal = r"aggregator 'aggregator-1' would refuse: .*total ε.*; nothing was spent"
    with pytest.raises(EpifedError, match=refusal):
        local.train(wanted)
    assert not (local.training_folder(wanted) / "report.jsonl").exists()
    assert spent(local.kit("aggregator-1") / aggregators.LEDGER) == 3


class _Silenced(Trend):
    """Only some clients contribute."""

    def __init__(self, settings: Settings, rows: list[int]) -> None:
        super().__init__(settings)
        self.rows = rows

    def contribute(self, state: Any, view: Any) -> Any:
        updates = super().contribute(state, view)
        if len(view):
            kept = updates[self.rows].copy()
            updates[:] = 0.0
            updates[self.rows] = kept
        return updates


def test_with_test_noise_it_is_the_simulation_also_when_all_sites_but_one_drop(
    local: LocalFederation, tampered: dict[str, bytes]
) -> None:
    del tampered
    days = panel()
    settings = settings_of("trend", **SEALED, clients_per_round=12)
    everybody = local.train(plan("same", settings))
    assert everybody["missing"] == []
    _equal(local, "same", settings, days, list(range(12)))
    for site in ("site-1", "site-3"):
        local.kill(site)
    local.wait_until_gone(("site-1", "site-3"))
    release = local.kit("site-2") / "models" / "dropped.epifed"
    Training(local, plan("dropped", settings)).until(release.exists, "the release")
    mine = [days.regions.index(client) for client in local.federation.site("site-2").clients]
    _equal(local, "dropped", settings, days, mine)


def _equal(
    local: LocalFederation, name: str, settings: Settings, days: CasePanel, rows: list[int]
) -> None:
    view = make_learner(settings).deployed_view(days, (days.start, days.end))
    simulated = train(view, settings, learner=_Silenced(settings, rows))
    release = read_release(local.kit("site-2") / "models" / f"{name}.epifed")
    np.testing.assert_allclose(release.vector, simulated.vector, rtol=1.3e-6, atol=1e-5)
    assert release.epsilon == pytest.approx(simulated.calibration.epsilon_spent, rel=1e-9)
