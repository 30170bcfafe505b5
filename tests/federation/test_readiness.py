"""Parties are asked before anything is paid for: who would take part, and by how much not."""

import json
import math
import os
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any

import pytest

from epifed.audit.bench import work_in
from epifed.errors import EpifedError
from epifed.federation import aggregator, messages, site
from epifed.federation.aggregator import AggregatorWork
from epifed.federation.crypto import SecretKeys
from epifed.federation.flare.jobs import nothing_learned
from epifed.federation.messages import Code, Readiness, RoundTerms
from epifed.federation.readiness import NotReadyError, Party, refuse_unready
from epifed.federation.secure_training import AwayError
from epifed.federation.server import TooFewError
from epifed.federation.terms import SiteLedger, Terms, book_key
from epifed.learners.base import make_learner
from epifed.ledger.budget import Cap
from epifed.ledger.ledger import Ledger
from epifed.registry import LEARNERS
from epifed.settings import Settings
from epifed.training.release import read_release
from tests.federation.helpers import REGIONS, plan, settings_of, terms_of
from tests.federation.parties import Parties, spent

SEALED = {"noise": "aggregators", "epsilon": 2.0}
STRANGERS = tuple((f"sum-{k}", SecretKeys.make().public.text) for k in (1, 2))


def _ready(kit: Path, terms: RoundTerms) -> Readiness:
    return Readiness.unpack(work_in(kit).ready(terms.pack()))


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    """A site's kit with the terms that nobody has changed."""
    parties = Parties.make(tmp_path, sites=2)
    kit = parties.kit("site-1")
    (kit / site.TERMS).write_text(Terms().to_toml())
    return kit


@pytest.mark.parametrize("learner", list(LEARNERS))
def test_the_default_training_of_every_learner_fits_the_default_terms(
    kit: Path, learner: str
) -> None:
    settings = Settings.for_learner(learner, REGIONS)
    assert settings.epsilon == Terms().epsilon_per_release
    ready = _ready(kit, terms_of(settings))
    assert ready.code is None, Party("north", "site", ready).sentence()
    assert spent(kit / site.LEDGER) == 0


def test_a_site_that_counts_otherwise_says_by_how_much(kit: Path) -> None:
    (kit / site.TERMS).write_text(Terms(accountant="rdp").to_toml())
    ready = _ready(kit, terms_of(Settings.for_learner("trend", REGIONS)))
    assert ready.code == Code.REFUSED_EPSILON
    assert ready.epsilon is not None and 2.1 < ready.epsilon < 2.3
    sentence = Party("north", "site", ready).sentence()
    assert "it counts ε = 2.1" in sentence
    assert "(RDP accountant, δ = 1e-05) and allows 2: 0.1" in sentence
    assert sentence.endswith("too much")


@pytest.mark.parametrize(
    ("terms", "changes", "code"),
    [
        ({"last_day": "2020-01-01"}, {}, Code.REFUSED_PERIOD),
        ({"limits": {"clip_norm": 0.001}}, {}, Code.REFUSED_SETTINGS),
        ({"epsilon_total": 1.0}, {}, Code.REFUSED_TOTAL),
        ({}, {"randomness": "seeded"}, Code.REFUSED_SEEDED),
        ({}, {"aggregators": STRANGERS}, Code.REFUSED_TRUST),
        ({}, {"aggregators": STRANGERS[:1]}, Code.BAD_TASK),
        ({}, {"aggregators": (("sum-1", "SHA256:00"),)}, Code.BAD_TASK),
        ({}, {"settings": "learner = 7"}, Code.BAD_TASK),
        ({}, {"round": 9}, Code.BAD_TASK),
    ],
)
def test_a_site_says_beforehand_why_it_would_refuse(
    kit: Path, terms: dict[str, Any], changes: dict[str, Any], code: Code
) -> None:
    (kit / site.TERMS).write_text(Terms(**terms).to_toml())
    proposal = replace(terms_of(Settings.for_learner("trend", REGIONS)), **changes)
    assert _ready(kit, proposal).code == code
    assert spent(kit / site.LEDGER) == 0


def test_a_site_without_a_file_says_so_and_one_clients_rows_say_nothing(kit: Path) -> None:
    proposal = terms_of(Settings.for_learner("trend", REGIONS))
    path = kit / "cases.csv"
    rows = path.read_text().splitlines()
    client = rows[1].split(",")[0]
    path.write_text("\n".join(row for row in rows if not row.startswith(f"{client},")) + "\n")
    whole = _ready(kit, proposal)
    assert whole.code is None
    path.write_text("\n".join([*rows, f"{client},no day,no count"]) + "\n")
    assert _ready(kit, proposal) == whole
    path.unlink()
    assert _ready(kit, proposal).code == Code.DATA


def test_a_file_that_was_written_before_the_last_day_cannot_have_it(kit: Path) -> None:
    proposal = terms_of(Settings.for_learner("trend", REGIONS))
    assert _ready(kit, proposal).code is None
    last = datetime.combine(proposal.period[1], time(), UTC)
    for days, code in ((0, None), (-1, None), (-2, Code.REFUSED_PERIOD)):
        written = (last + timedelta(days=days)).timestamp()
        os.utime(kit / "cases.csv", (written, written))
        assert _ready(kit, proposal).code == code, days


def test_a_training_of_another_content_under_a_used_name_is_refused_beforehand(kit: Path) -> None:
    settings = Settings.for_learner("trend", REGIONS)
    first = terms_of(settings)
    book = SiteLedger(kit / site.LEDGER, Terms())
    read, plan_ = first.read()
    book.enter(book_key(first, read, plan_), plan_, 0, 1)
    assert _ready(kit, first).code == Code.REFUSED_EPSILON, "a repeat"
    other = terms_of(settings.but(epsilon=1.0))
    assert _ready(kit, other).code == Code.REFUSED_CHANGE


def without_pytorch(_: object) -> None:
    raise EpifedError("learner: found no PyTorch")


def test_an_aggregator_says_beforehand_what_it_would_refuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties = Parties.make(tmp_path, own={"epsilon_per_release": 1.0, "accountant": "pld"})
    settings = settings_of("trend", **SEALED, accountant="pld")
    proposal = terms_of(settings, aggregators=tuple(parties.keys().items()))
    work = AggregatorWork(parties.kit("sum-1"))
    ready = Readiness.unpack(work.ready(proposal.pack()))
    assert (ready.code, ready.limit) == (Code.REFUSED_EPSILON, 1.0)
    assert spent(parties.kit("sum-1") / aggregator.LEDGER) == 0
    assert _ready(parties.kit("site-1"), proposal).code is None
    few = replace(proposal, enrolled=REGIONS - 1)
    assert Readiness.unpack(work.ready(few.pack())).code == Code.REFUSED_ROSTER
    strangers = replace(proposal, aggregators=STRANGERS)
    assert Readiness.unpack(work.ready(strangers.pack())).code == Code.REFUSED_ROSTER
    assert Readiness.unpack(work.ready({"about": "none"})).code == Code.BAD_TASK
    unknown = replace(proposal, settings=proposal.settings.replace('"trend"', '"nowhere"'))
    assert Readiness.unpack(work.ready(unknown.pack())).code == Code.BAD_TASK
    with monkeypatch.context() as patch:
        patch.setattr(aggregator, "make_learner", without_pytorch)
        assert Readiness.unpack(work.ready(proposal.pack())).code == Code.BAD_TASK
    with monkeypatch.context() as patch:
        patch.setattr(AggregatorWork, "_weighed", lambda *_: 1 / 0)
        assert work.ready(proposal.pack()) == Readiness(Code.ERROR).pack()
    swapped = replace(proposal, aggregators=proposal.aggregators[::-1])
    assert Readiness.unpack(work.ready(swapped.pack())).code == Code.REFUSED_ROSTER


def _party(name: str, code: Code | None = None, role: Any = "site") -> Party:
    return Party(name, role, Readiness(code))


def test_a_refusal_is_no_presence() -> None:
    refusing = [_party(name, Code.REFUSED_EPSILON) for name in ("north", "south")]
    with pytest.raises(NotReadyError, match="1 of 3 sites would take part, 2 expected") as refused:
        refuse_unready([*refusing, _party("west")], 2)
    assert "north: the training's ε is above what the site allows" in str(refused.value)
    assert str(refused.value).endswith("nothing was spent")
    refuse_unready([refusing[0], _party("west"), _party("east")], 2)
    refuse_unready([_party("north", Code.ABSENT), _party("west")], 2)  # it is waited for
    adding = _party("sum-1", Code.REFUSED_TOTAL, "aggregator")
    with pytest.raises(NotReadyError, match="the aggregator 'sum-1' would refuse"):
        refuse_unready([adding, _party("west"), _party("east")], 2)


@pytest.mark.parametrize("about", ["{}", "[]", '{"code": 7}', '{"code": ["yes"]}', "x" * 9])
def test_what_is_no_answer_is_no_yes(about: str) -> None:
    assert Readiness.unpack({"about": about}).code == Code.MESSAGE


def test_an_answer_comes_back_as_it_was_and_a_number_that_is_none_does_not() -> None:
    ready = Readiness(Code.REFUSED_TOTAL, 2.5, 2.0, 1e-5, "pld")
    assert Readiness.unpack(ready.pack()) == ready
    row = Party("north", "site", ready, "0.2")
    assert Party.of(json.loads(json.dumps(row.to_dict()))) == row
    odd = {"code": "yes", "epsilon": math.inf, "limit": True, "accountant": "x\n"}
    assert Readiness.unpack({"about": json.dumps(odd)}) == Readiness()


def test_a_round_that_waits_for_an_aggregator_is_not_counted_twice(tmp_path: Path) -> None:
    """The round is charged and its answers are kept, so nobody refuses it as one too many."""
    allowed: dict[str, Any] = {"epsilon_per_release": 2.0, "accountant": "rdp"}
    parties = Parties.make(tmp_path, sites=2, own=allowed, **allowed)
    ledger = Ledger.create(tmp_path / "budget.ledger", Cap(1e6, 1e-5, "rdp"))
    settings = settings_of("trend", **SEALED, accountant="rdp")
    training = parties.training(plan("week", settings, seeded=False), ledger)
    keys, parties.dropped = parties.keys(), {"sum-2"}
    parties.keys = lambda: keys  # type: ignore[method-assign]
    with pytest.raises(AwayError):
        training.play(parties, lambda _: None)
    assert (training.paid, training.done) == (1, 0)
    asked = terms_of(settings, aggregators=tuple(keys.items()))
    for name in ("site-1", "site-2"):
        assert _ready(parties.kit(name), asked).code is None
    for name in keys:
        work = AggregatorWork(parties.kit(name))
        assert Readiness.unpack(work.ready(asked.pack())).code is None


def test_a_relayed_round_that_too_few_report_to_is_not_paid_for(tmp_path: Path) -> None:
    parties = Parties.make(tmp_path)
    parties.federation = parties.federation.model_copy(update={"min_sites": 3})
    ledger = Ledger.create(tmp_path / "budget.ledger", Cap(1e6, 1e-5, "rdp"))
    training = parties.training(plan("few", settings_of("trend", **SEALED), seeded=False), ledger)
    parties.dropped = {"site-1", "site-2"}
    with pytest.raises(TooFewError, match="2 sites answered with a vector, 3 expected"):
        training.play(parties, lambda _: None)
    assert spent(ledger.path) == 0
    parties.dropped = set()
    training.play(parties, lambda _: None)
    assert (spent(ledger.path), training.unused) == (1, 0)
    assert training.finish().learned


def test_a_release_of_spoilt_rounds_says_that_nothing_was_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties = Parties.make(tmp_path)
    parties.federation = parties.federation.model_copy(update={"min_sites": 4})
    ledger = Ledger.create(tmp_path / "budget.ledger", Cap(1e6, 1e-5, "rdp"))
    chosen = settings_of("trend", **SEALED)
    training = parties.training(plan("spoilt", chosen, seeded=False), ledger)
    original = messages.seal_info

    def wrong(agreed: Any, who: str, name: str) -> bytes:
        return original(agreed, "x" if who == "site-2" else who, name)

    lines: list[dict[str, Any]] = []
    with monkeypatch.context() as patch:
        patch.setattr(messages, "seal_info", wrong)
        training.play(parties, lines.append)
    assert {"site": "all", "reason": "too-few"} in lines[0]["problems"]
    release = training.finish()
    assert (release.unused, release.learned, spent(ledger.path)) == (1, False, 1)
    again = read_release(training.folder / "model.epifed")
    assert (again.unused, again.sha256) == (1, release.sha256)
    with pytest.raises(Exception, match="nothing learned"):
        again.state_on(again.last_day)
    status = {"finished": True, "paid": 1, "unused": 1, "lines": lines}
    assert nothing_learned(status).startswith("ε spent, nothing learned: ")
    assert nothing_learned(status | {"unused": 0}) == ""


def test_a_training_whose_sites_are_all_left_out_for_spoiling_ends_unpaid(tmp_path: Path) -> None:
    parties = Parties.make(tmp_path, sites=2)
    ledger = Ledger.create(tmp_path / "budget.ledger", Cap(1e6, 1e-5, "rdp"))
    training = parties.training(plan("left", settings_of("trend", **SEALED), seeded=False), ledger)
    training._avoid(["site-1", "site-2"])
    with pytest.raises(Exception, match="site-1, site-2 sent what no aggregator can open"):
        training.play(parties, lambda _: None)
    assert spent(ledger.path) == 0


def test_a_release_without_unused_rounds_is_written_as_before(tmp_path: Path) -> None:
    parties = Parties.make(tmp_path)
    training = parties.training(plan("same", settings_of("trend", **SEALED)))
    training.play(parties, lambda _: None)
    release = training.finish()
    assert "unused" not in release._about(sealed=True)
    assert make_learner(release.settings).pack(release.state_on(release.last_day)).any()
