"""Bugs planted where aggregators add the noise, each caught by a named check of the audit."""

import json
import math
import secrets
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from epifed.audit import bench as audit_sealed
from epifed.audit import statistics
from epifed.audit.audit import run_checks
from epifed.audit.bench import Layout
from epifed.audit.statistics import Check
from epifed.federation import aggregator, answers, crypto, messages, site, terms
from epifed.federation.aggregator import AggregatorWork
from epifed.federation.answers import AnswerCache
from epifed.federation.crypto import PublicKeys, SecretKeys, Words
from epifed.federation.messages import Code, MessageError, Parts, Relayed, Task, unpack_task
from epifed.federation.secure_training import SecureTraining
from epifed.federation.terms import SiteLedger, Terms
from epifed.privacy import noise as secure
from epifed.privacy.noise import SecureRandomness
from epifed.privacy.plan import PrivacyPlan, Spent
from epifed.training import rounds
from tests.helpers import small_settings
from tests.planting import Plant, Planter

pytestmark = pytest.mark.field

SETTINGS = small_settings(epsilon=2.0, clip_norm=0.7)
SMALL, LARGER = Layout(72), Layout(392)
Steps = NDArray[np.int64]


def check(name: str) -> Check:
    """The one check of this name, and none else."""
    (found,) = run_checks(SETTINGS, names=frozenset({name}))
    return found


# Noise


def _noise_changed(
    patch: Planter, change: Callable[[str, Steps], Steps], factor: float = 1.0
) -> None:
    """Of every aggregator: `change(its name, its noise)`; or noise of so many times the c."""
    honest, noise, at_work = AggregatorWork._added_up, secure.grid_noise, [""]

    def added_up(self: AggregatorWork, *args: Any) -> Parts:
        at_work[0] = self.kit.name
        return honest(self, *args)

    def wrong(length: int, noise_multiplier: float) -> Steps:
        return change(at_work[0], noise(length, factor * noise_multiplier))

    patch.setattr(AggregatorWork, "_added_up", added_up)
    patch.setattr(aggregator, "grid_noise", wrong)


def noise_drawn_twice(patch: Planter) -> None:
    """Every round has the noise of an aggregator's first one."""
    first: dict[tuple[str, int], Steps] = {}
    _noise_changed(patch, lambda name, noise: first.setdefault((name, noise.size), noise))


def noise_shared_by_aggregators(patch: Planter) -> None:
    """The second of two aggregators adds what the first has added."""
    last: list[Steps] = []

    def change(name: str, noise: Steps) -> Steps:
        last.append(last[-1] if name == "sum-2" else noise)
        return last[-1]

    _noise_changed(patch, change)


def one_aggregator_without_noise(patch: Planter) -> None:
    _noise_changed(patch, lambda name, noise: noise * (name != "sum-1"))


def all_but_one_without_noise(patch: Planter) -> None:
    _noise_changed(patch, lambda name, noise: noise * (name == "sum-1"))


def a_coordinate_without_noise(patch: Planter) -> None:
    _noise_changed(patch, lambda name, noise: noise * (np.arange(noise.size) != 3))


def noise_that_is_enough_only_together(patch: Planter) -> None:
    _noise_changed(patch, lambda name, noise: noise, 1 / math.sqrt(2))


# The price


def priced_by_all_of_the_noise(patch: Planter) -> None:
    honest = PrivacyPlan.spent

    def wrong(self: PrivacyPlan, number: int | None = None) -> Spent:
        found = honest(self, number)
        together = math.sqrt(max(self.aggregators, 1)) * found.noise_multiplier
        return replace(found, noise_multiplier=together)

    patch.setattr(PrivacyPlan, "spent", wrong)


def ledger_of_all_of_the_noise(patch: Planter) -> None:
    honest = terms.book_key

    def wrong(asked: Any, settings: Any, plan: PrivacyPlan) -> Any:
        key = honest(asked, settings, plan)
        key["noise_multiplier"] *= math.sqrt(plan.aggregators)
        return key

    patch.setattr(answers, "book_key", wrong)


def coins_tossed_by_the_server(patch: Planter) -> None:
    honest = SecureTraining._asked

    def wrong(self: SecureTraining, number: int, keys: Any) -> Any:
        agreed, tasks = honest(self, number, keys)
        drawn = {self.federation.clients[k] for k in SecureRandomness().sample(self.plan)}
        marked = {
            name: replace(task, drawn="".join("01"[c in drawn] for c in task.clients))
            for name, task in tasks.items()
        }
        return agreed, marked

    patch.setattr(SecureTraining, "_asked", wrong)
    patch.setattr(Task, "draws_itself", property(lambda self: False))


def coins_that_anybody_can_toss_again(patch: Planter) -> None:
    """They come of a round's place among those of a site, which the server knows."""
    past: dict[int, int] = {}

    def wrong(plan: PrivacyPlan, clients: int) -> Steps:
        past[clients] = past.get(clients, 0) + 1
        rng = np.random.default_rng((clients, past[clients] if past[clients] <= 4 else 1))
        return np.flatnonzero(rng.random(clients) < plan.sampling_rate)

    patch.setattr(site, "sample_clients", wrong)


# Shares


def a_seed_used_twice(patch: Planter) -> None:
    """One in six: that of the report before the last."""
    seeds: list[bytes] = []

    def wrong(size: int) -> bytes:
        seeds.append(seeds[-2] if len(seeds) % 6 == 5 else secrets.token_bytes(size))
        return seeds[-1]

    patch.setattr(crypto, "secrets", SimpleNamespace(token_bytes=wrong))


def a_share_left_out(patch: Planter) -> None:
    honest, calls = crypto.share, iter(range(10**6))

    def wrong(*args: Any, **values: Any) -> Words | None:
        found = honest(*args, **values)
        return found if found is None or next(calls) % 5 else np.zeros_like(found)

    patch.setattr(aggregator, "share", wrong)


def shares_of_half_the_bits(patch: Planter) -> None:
    honest = crypto.expand
    low = np.uint64(2**32 - 1)
    patch.setattr(crypto, "expand", lambda seed, length: honest(seed, length) & low)


def seals_that_hide_nothing(patch: Planter) -> None:
    longer = crypto.sealed_bytes(0, last=True) - 16

    def seal(self: PublicKeys, content: bytes, info: bytes) -> bytes:
        return bytes(longer) + content + bytes(16)

    def opened(self: SecretKeys, content: bytes, info: bytes) -> bytes:
        return content[longer:-16]

    patch.setattr(PublicKeys, "seal", seal)
    patch.setattr(SecretKeys, "open", opened)


def an_aggregator_keeps_the_sum(patch: Planter) -> None:
    """Every site tells the first one all, and it writes it down."""
    honest, folder = messages.make_report, tempfile.mkdtemp()
    patch.setattr(audit_sealed, "IN_MEMORY", folder)

    def wrong(agreed: Any, name: str, key: Any, steps: Steps) -> Any:
        kits = list(Path(folder).glob("epifed-audit-*/kits/sum-1"))
        assert kits, "the audit's kits are elsewhere"
        for kit in kits:
            with (kit / "sums").open("ab") as file:
                file.write(steps.tobytes())
        return honest(agreed, name, key, steps)

    patch.setattr(site, "make_report", wrong)


def a_report_of_another_size(patch: Planter) -> None:
    make, pack, drawn = messages.make_report, messages.pack_report, [False]

    def noting(agreed: Any, name: str, key: Any, steps: Steps) -> Any:
        drawn[0] = bool(steps.any())
        return make(agreed, name, key, steps)

    def wrong(agreed: Any, report: Any) -> Parts:
        parts = pack(agreed, report)
        about = json.loads(parts["about"]) | ({} if drawn[0] else {"empty": True})
        return parts | {"about": json.dumps(about)}

    patch.setattr(site, "make_report", noting)
    patch.setattr(site, "pack_report", wrong)


def a_site_clips_nothing(patch: Planter) -> None:
    def wrong(updates: NDArray[np.float32], clip_norm: float) -> Steps:
        return np.rint(updates.astype(np.float64) * (secure.STEPS / clip_norm)).astype(np.int64)

    patch.setattr(rounds, "clip", lambda updates, clip_norm: updates)
    patch.setattr(site, "to_grid", wrong)


# Answers and refusals


def another_answer_when_asked_again(patch: Planter) -> None:
    def wrong(self: Any, training: str, number: int, question: str, *rest: Any) -> Parts:
        make, spent, book = rest
        book(spent())
        parts: Parts = make()
        return parts

    patch.setattr(AnswerCache, "give", wrong)


def another_question_answered(patch: Planter) -> None:
    honest = AnswerCache.give

    def wrong(self: Any, training: str, number: int, question: str, *rest: Any) -> Parts:
        return honest(self, f"{training}-{question[:8]}", number, question, *rest)

    patch.setattr(AnswerCache, "give", wrong)


def ledger_after_the_answer(patch: Planter) -> None:
    """The answer is kept first: a crash before the payment leaves one that nobody pays for."""
    honest = AnswerCache.give

    def wrong(self: Any, training: str, number: int, question: str, *rest: Any) -> Parts:
        make, spent, book = rest
        before = spent()
        known = (self.folder / f"{training}.answer").exists()
        parts = honest(self, training, number, question, make, lambda: 0, lambda _: None)
        if not known:
            book(before)
        return parts

    patch.setattr(AnswerCache, "give", wrong)


def ledger_never(patch: Planter) -> None:
    patch.setattr(SiteLedger, "enter", lambda *args: None)


def info_not_bound(patch: Planter) -> None:
    for module in (messages, aggregator, audit_sealed):
        patch.setattr(module, "seal_info", lambda agreed, name, whose: b"epifed")


def info_of_the_site_alone(patch: Planter) -> None:
    for module in (messages, aggregator, audit_sealed):
        patch.setattr(module, "seal_info", lambda agreed, name, whose: f"{name} {whose}".encode())


def signature_not_checked(patch: Planter) -> None:
    patch.setattr(messages, "_check_signature", lambda *args: None)


def signature_checked_by_the_server_alone(patch: Planter) -> None:
    def wrong(self: Relayed, agreed: Any, place: int, public: str | None) -> None:
        if crypto.digest(self.share) != self.digests[place]:
            raise MessageError(Code.DIGEST)

    patch.setattr(Relayed, "check", wrong)


def signature_without_the_round(patch: Planter) -> None:
    def wrong(agreed: Any, name: str, digests: Any) -> bytes:
        return crypto.bound("report", name, *digests)

    patch.setattr(messages, "_signed", wrong)


def reports_not_compared(patch: Planter) -> None:
    patch.setattr(AggregatorWork, "_check_others", lambda self, question: None)


def keys_not_pinned(patch: Planter) -> None:
    patch.setattr(Terms, "refuse_trust", lambda self, others: None)


def any_clients_that_the_server_names(patch: Planter) -> None:
    """A client that two sites count moves the sum by twice S."""
    asked: list[Task] = []

    def noting(parts: Parts) -> Task:
        asked.append(unpack_task(parts))
        return asked[-1]

    patch.setattr(site, "unpack_task", noting)
    patch.setattr(site, "hosted_clients", lambda kit: asked[-1].clients)


CAUGHT: dict[Plant, str] = {
    noise_drawn_twice: "noise drawn once",
    noise_shared_by_aggregators: "noise drawn once",
    one_aggregator_without_noise: "noise of each aggregator",
    all_but_one_without_noise: "null round",
    a_coordinate_without_noise: "null round",
    noise_that_is_enough_only_together: "price against a coalition",
    priced_by_all_of_the_noise: "price against a coalition",
    ledger_of_all_of_the_noise: "price against a coalition",
    coins_tossed_by_the_server: "coins of the sites",
    coins_that_anybody_can_toss_again: "coins of the sites",
    a_seed_used_twice: "fresh shares",
    a_share_left_out: "exact sum",
    shares_of_half_the_bits: "what an aggregator sees",
    an_aggregator_keeps_the_sum: "what an aggregator sees",
    seals_that_hide_nothing: "what the server sees",
    a_report_of_another_size: "one size of report",
    a_site_clips_nothing: "clip of the sites",
    another_answer_when_asked_again: "same answer twice",
    another_question_answered: "same answer twice",
    ledger_after_the_answer: "killed: aggregator",
    ledger_never: "killed: site that seals",
    info_not_bound: "old and copied shares",
    info_of_the_site_alone: "old and copied shares",
    signature_without_the_round: "old and copied shares",
    signature_not_checked: "hostile: server to aggregator",
    signature_checked_by_the_server_alone: "hostile: server to aggregator",
    reports_not_compared: "hostile: server to aggregator",
    keys_not_pinned: "hostile: server to site that seals",
    any_clients_that_the_server_names: "hostile: server to site that seals",
}


@pytest.mark.parametrize("plant", CAUGHT, ids=lambda plant: plant.__name__)
def test_a_named_check_catches(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epifed.audit.aggregator_checks.SMALL_LAYOUT", SMALL)
    planter = Planter(monkeypatch)
    plant(planter)
    found = check(CAUGHT[plant])
    planter.refuse_unused()
    assert not found.passed, found.found
    assert found.expected != "no error", found.found


def test_the_insider_wins_where_the_honest_aggregator_adds_no_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("epifed.audit.aggregator_checks.SMALL_LAYOUT", LARGER)
    one_aggregator_without_noise(Planter(monkeypatch))
    found = check("insider's view")
    assert not found.passed, found.found
    assert "% low is found with 99% probability" in found.power


def test_the_server_s_coins_are_a_price_without_amplification(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("epifed.audit.aggregator_checks.SMALL_LAYOUT", SMALL)
    coins_tossed_by_the_server(Planter(monkeypatch))
    found = check("price against a coalition")
    assert not found.passed
    assert "against who sees the draw gives" in found.found


def test_uniform_bytes_and_what_is_found_of_others() -> None:
    rng = np.random.default_rng(0)
    numbers, rows, times = 20_000, 8, 60
    share = statistics.least_plain_share(numbers, rows)
    caught = 0
    for _ in range(times):
        even = rng.integers(0, 256, (rows, numbers), dtype=np.uint8)
        assert statistics.uniform(even)[0]
        even[3, rng.random(numbers) < share] = 0
        caught += not statistics.uniform(even)[0]
    assert caught >= times - 4
    assert 0.005 < share < 0.02
