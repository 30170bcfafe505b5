"""Aggregators, sites and a relaying server without FLARE: exact sums, one payment, one size."""

import json
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from epifed.federation import aggregator as aggregators
from epifed.federation import secure_training, site
from epifed.federation.crypto import share
from epifed.federation.messages import Parts, pack_task
from epifed.federation.secure_training import AwayError
from epifed.federation.site import SiteWork
from epifed.learners.base import make_learner
from epifed.ledger.budget import Cap
from epifed.ledger.ledger import Ledger
from epifed.privacy import noise as secure
from epifed.privacy.plan import TRUST, PrivacyPlan
from epifed.training.loop import train
from epifed.training.release import Release, read_release
from tests.federation.helpers import panel, plan, settings_of
from tests.federation.parties import Parties, spent
from tests.helpers import small_settings

SEALED = {"noise": "aggregators", "epsilon": 2.0}


def _ledger(folder: Path, epsilon: float = 1e6) -> Ledger:
    return Ledger.create(folder / "budget.ledger", Cap(epsilon, 1e-5, "rdp"))


def _played(
    parties: Parties, wanted: Any, ledger: Ledger | None = None
) -> tuple[Release, list[dict[str, Any]]]:
    lines: list[dict[str, Any]] = []
    training = parties.training(wanted, ledger)
    while not training.finished:
        training.play(parties, lines.append)
    release = training.finish()
    training._lock.release()
    return release, lines


@pytest.mark.parametrize("learner", ["fedavg", "trend", "one-shot"])
@pytest.mark.parametrize("number", [2, 3])
def test_with_test_noise_the_release_is_that_of_the_simulation(
    tmp_path: Path, learner: str, number: int
) -> None:
    chosen = settings_of(learner, **SEALED, aggregators=number)
    release, lines = _played(Parties.make(tmp_path, 4, number), plan("same", chosen))
    days = panel()
    view = make_learner(chosen).deployed_view(days, (days.start, days.end))
    simulated = train(view, chosen)
    np.testing.assert_allclose(release.vector, simulated.vector, rtol=1.3e-6, atol=1e-5)
    assert release.epsilon == pytest.approx(simulated.calibration.epsilon_spent, rel=1e-9)
    assert all(line["problems"] == [] for line in lines)


class _Watched:
    """The vectors and the noise of each round, as the parties used them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.vectors: list[NDArray[np.int64]] = []
        self.noises: list[NDArray[np.int64]] = []
        self.totals: list[NDArray[np.int64]] = []
        grid, noise = secure.to_grid, secure.grid_noise

        def to_grid(*args: Any) -> Any:
            self.vectors.append(grid(*args).sum(axis=0))
            return grid(*args)

        def grid_noise(*args: Any) -> Any:
            self.noises.append(noise(*args))
            return self.noises[-1]

        def plausible(rounds: Any, steps: Any, clients: int) -> bool:
            del rounds, clients
            self.totals.append(steps.copy())
            return True

        monkeypatch.setattr(site, "to_grid", to_grid)
        monkeypatch.setattr(aggregators, "grid_noise", grid_noise)
        monkeypatch.setattr("epifed.training.rounds.Rounds.plausible", plausible)


@settings(max_examples=12)
@given(dropped=st.sets(st.integers(1, 5), max_size=4), number=st.integers(2, 3))
def test_the_sum_is_that_of_the_vectors_and_the_noises_exactly_whoever_drops(
    dropped: set[int], number: int
) -> None:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setenv("EPIFED_STATE", str(Path(folder) / "state"))
        watched = _Watched(patch)
        parties = Parties.make(Path(folder), 5, number)
        parties.dropped = {f"site-{i}" for i in dropped}
        chosen = settings_of("one-shot", **SEALED, aggregators=number)
        _, (line,) = _played(parties, plan("exact", chosen, seeded=False), _ledger(Path(folder)))
        assert len(watched.vectors) == 5 - len(dropped)
        assert len(watched.noises) == number
        expected = [0] * len(watched.totals[0])
        for one in [*watched.vectors, *watched.noises]:
            expected = [a + int(b) for a, b in zip(expected, one, strict=True)]
        assert watched.totals[0].tolist() == expected
        assert {p["site"] for p in line["problems"]} == parties.dropped


def test_a_training_is_paid_once_by_everybody_and_priced_by_one_share(tmp_path: Path) -> None:
    chosen, ledger = small_settings(**SEALED), _ledger(tmp_path)
    parties = Parties.make(tmp_path)
    parties.dropped = {"site-3"}
    release, _ = _played(parties, plan("paid", chosen, seeded=False), ledger)
    for name in ("sum-1", "sum-2"):
        path = parties.kit(name) / aggregators.LEDGER
        assert spent(path) == chosen.rounds
        training = parties.training(plan("paid", chosen, seeded=False), ledger)
        assert parties.deliver(name, training).sha256 == release.sha256
        training._lock.release()
        (run,) = Ledger(path).book().runs.values()
        assert (run.outcome, run.model_hash) == ("finished", release.sha256)
    assert spent(parties.kit("site-1") / site.LEDGER) == chosen.rounds
    assert spent(parties.kit("site-3") / site.LEDGER) == 0
    (run,) = ledger.book().runs.values()
    assert (run.spent, run.model_hash) == (chosen.rounds, release.sha256)
    (cost,) = release.spent
    alone = PrivacyPlan.of(chosen.but(noise="server", aggregators=None), 12)
    assert cost.noise_multiplier == alone.noise_multiplier == run.noise_multiplier
    assert release.epsilon == pytest.approx(2.0, rel=1e-4)


def test_the_noise_of_outsiders_is_wider_and_the_price_is_not_theirs() -> None:
    alone = PrivacyPlan.of(small_settings(epsilon=2.0), 12)
    for number in (2, 3):
        both = PrivacyPlan.of(small_settings(**SEALED, aggregators=number), 12)
        assert both.noise_multiplier == alone.noise_multiplier
        assert both.noise_std(5) == pytest.approx(math.sqrt(number) * alone.noise_std(5))
        assert both.price().epsilon_spent == alone.price().epsilon_spent
        assert both.epsilon_without_amplification() == pytest.approx(both.price().epsilon_spent)
        assert alone.epsilon_without_amplification() > 2.5
        assert TRUST["aggregators"] in both.calibration.sentence()


def test_every_message_of_a_site_has_one_size_and_the_same_question_the_same_bytes(
    tmp_path: Path,
) -> None:
    # With q = 1/6 and 4 clients, 24 rounds have none without a client, or all of them, with chance
    # (1 - (5/6)^4)^24 + (5/6)^(4 * 24) < 2e-7.
    chosen = settings_of("trend", **SEALED, rounds=24, clients_per_round=2)
    parties = Parties.make(tmp_path, 3)
    _played(parties, plan("sizes", chosen, seeded=False), _ledger(tmp_path))
    log = (parties.kit("site-1") / site.LOG).read_text().splitlines()
    drawn = {len(json.loads(line)["drawn"]) for line in log}
    assert 0 in drawn
    assert len(drawn) > 1
    sent = [parts for name, parts in parties.seen if name == "site-1"]
    assert len({len(parts["array"]) for parts in sent}) == 1
    assert len({len(parts["about"]) - len(str(i + 1)) for i, parts in enumerate(sent)}) == 1
    assert len({parts["array"] for parts in sent}) == len(sent)
    again, _ = SiteWork(parties.kit("site-1")).answer(pack_task(parties.tasks["site-1"]))
    assert again == sent[-1]
    assert spent(parties.kit("site-1") / site.LEDGER) == 24


def test_nobody_alone_holds_a_contribution_or_a_cohort(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = _Watched(monkeypatch)
    chosen = settings_of("trend", **SEALED, clients_per_round=11)
    parties = Parties.make(tmp_path)
    _played(parties, plan("blind", chosen, seeded=False), _ledger(tmp_path))
    held = {
        "server": b"".join(_contents(tmp_path / "trainings")) + _content(parties.seen),
        "sum-1": b"".join(_contents(parties.kit("sum-1"))),
        "sum-2": b"".join(_contents(parties.kit("sum-2"))),
    }
    telling = [n.tobytes() for vector in watched.vectors for n in vector if abs(n) > 2**20]
    assert telling
    for content in held.values():
        assert not any(number in content for number in telling)
        assert b'"drawn": [' not in content


def _contents(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()]


def _content(seen: list[tuple[str, Parts]]) -> bytes:
    return b"".join(parts["about"].encode() + parts.get("array", b"") for _, parts in seen)


def test_a_lost_answer_is_paid_for_again_and_a_lost_server_waits(tmp_path: Path) -> None:
    parties, ledger = Parties.make(tmp_path), _ledger(tmp_path)
    chosen = small_settings(**SEALED)
    training = parties.training(plan("away", chosen, seeded=False), ledger)
    parties.dropped = {"sum-2"}
    with pytest.raises(AwayError, match="sum-2"):
        training.play(parties, lambda _: None)
    assert spent(ledger.path) == 0, "nobody was asked"
    parties.dropped = set()
    parties.answers = lambda name, parts: None if name == "sum-2" else parts
    for _ in range(2):
        with pytest.raises(AwayError, match="sum-2"):
            training.play(parties, lambda _: None)
        assert spent(ledger.path) == 1
    first = {name: parts for name, parts in parties.seen if name.startswith("sum")}
    (parties.kit("sum-2") / aggregators.ANSWERS / "away.answer").unlink()
    parties.answers = lambda _, parts: parts
    training.play(parties, lambda _: None)
    second = {name: parts for name, parts in parties.seen if name.startswith("sum")}
    assert first["sum-1"] == second["sum-1"]
    assert first["sum-2"] != second["sum-2"]
    assert spent(parties.kit("sum-1") / aggregators.LEDGER) == 1
    assert spent(parties.kit("sum-2") / aggregators.LEDGER) == 2


def test_reports_are_used_though_their_sites_are_gone_and_in_no_other_round(
    tmp_path: Path,
) -> None:
    parties, ledger = Parties.make(tmp_path), _ledger(tmp_path)
    training = parties.training(plan("over", small_settings(**SEALED), seeded=False), ledger)
    parties.answers = lambda name, parts: None if name == "sum-2" else parts
    with pytest.raises(AwayError):
        training.play(parties, lambda _: None)
    old = (training.folder / secure_training.REPORTS).read_bytes()
    parties.answers = lambda _, parts: parts
    parties.dropped = set(parties.tasks)  # what they have reported is kept
    training.play(parties, lambda _: None)
    parties.dropped = set()
    (training.folder / secure_training.REPORTS).write_bytes(old)
    lines: list[dict[str, Any]] = []
    training.play(parties, lines.append)
    assert (lines[0]["round"], lines[0]["problems"]) == (2, [])
    assert [task.round for task in parties.tasks.values()] == [2] * 4
    assert (training.done, spent(ledger.path)) == (2, 2)


def test_partial_sums_look_uniform(tmp_path: Path) -> None:
    parties = Parties.make(tmp_path)
    chosen = small_settings(**SEALED, rounds=12)
    _played(parties, plan("uniform", chosen, seeded=False), _ledger(tmp_path))
    for name in ("sum-1", "sum-2"):
        content = b"".join(parts["array"] for who, parts in parties.seen if who == name)
        counts = np.bincount(np.frombuffer(content, dtype=np.uint8) % 16, minlength=16)
        assert stats.chisquare(counts).pvalue > 1e-8  # false alarms of both: 2e-8


def test_share_of_a_wrong_size_is_none() -> None:
    assert share(b"", 3, last=False) is None
    assert share(bytes(32), 3, last=True) is None


def test_a_release_says_whom_one_must_trust(tmp_path: Path) -> None:
    chosen = small_settings(**SEALED)
    parties = Parties.make(tmp_path)
    release, _ = _played(parties, plan("told", chosen, seeded=False), _ledger(tmp_path))
    path = tmp_path / "trainings" / "told" / "model.epifed"
    assert read_release(path).settings.noise == "aggregators"
    assert "against whoever sees who was drawn" not in release.sentence()
