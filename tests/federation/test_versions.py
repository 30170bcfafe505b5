"""Parties of several versions: neighbours go on, others are named before a round is paid."""

import json
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epifed.errors import EpifedError
from epifed.federation import messages
from epifed.federation.flare.inspection import _version
from epifed.federation.messages import (
    PROTOCOL,
    Greeting,
    ProtocolRange,
    Readiness,
    RoundTerms,
    Task,
    not_understood,
    refuse_versions,
)
from epifed.ledger.budget import Cap
from epifed.ledger.ledger import Ledger
from epifed.registry import LEARNERS
from epifed.settings import Settings
from epifed.training.release import KIND, Release
from tests.federation.helpers import federation, on_path, plan, settings_of

EXCHANGED = {
    "terms": "aggregators enrolled first_day last_day least length noise_multiplier numbers paid "
    "randomness round rounds settings start training",
    "task": "clients drawn site state",
    "settings": "accountant aggregators clients_per_round clip_norm delta epsilon evaluate_every "
    "history horizon learner min_windows noise rounds sampler seed smoothing split step "
    "train_share window",
    "trend": "holidays modes places",
    "one-shot": "half_life",
    "real-time": "holidays modes places",
    "fedavg": "average_last epochs half_life learning_rate model",
    "release": "clients continues created epifed first_day last_day ledger_run randomness "
    "settings sha256 spent unused vector",
    "readiness": "accountant code delta epsilon limit",
    "kind": "epifed release 2",
}
"""What protocol 4 exchanges."""


def test_who_changes_what_is_exchanged_says_a_new_number() -> None:
    """A party that does not know a name refuses it: then PROTOCOL goes up, and perhaps OLDEST."""
    terms = {field.name for field in fields(RoundTerms)}
    now = {
        "terms": " ".join(sorted(terms)),
        "task": " ".join(sorted({field.name for field in fields(Task)} - terms)),
        "settings": " ".join(sorted(Settings.model_fields)),
        "release": " ".join(sorted(field.name for field in fields(Release))),
        "readiness": " ".join(sorted(field.name for field in fields(Readiness))),
        "kind": KIND,
    }
    for name in ("trend", "one-shot", "real-time", "fedavg"):
        now[name] = " ".join(sorted(LEARNERS.load(name).own_settings.model_fields))
    assert (PROTOCOL, now) == (4, EXCHANGED)


@given(st.integers(1, 6), st.integers(0, 3), st.integers(1, 6), st.integers(0, 3))
def test_two_parties_understand_each_other_if_they_share_a_protocol(
    a: int, more: int, b: int, further: int
) -> None:
    one, other = ProtocolRange(a, a + more, "1"), ProtocolRange(b, b + further, "2")
    shared = set(range(a, a + more + 1)) & set(range(b, b + further + 1))
    assert one.understands(other) == other.understands(one) == bool(shared)


@pytest.mark.parametrize(
    "said", [{"protocol": "2"}, {"protocol": [2]}, {"protocol": [True, 2]}, {"protocol": [9, 9.0]}]
)
def test_nonsense_is_not_understood(said: dict[str, object]) -> None:
    assert not_understood({"north": ProtocolRange.of(said | {"epifed": "x" * 99})}).keys() == {
        "north"
    }
    assert ProtocolRange.of(said | {"epifed": "x" * 99}).epifed == "unknown"


def test_too_few_who_understand_are_said_before_anything_is_paid() -> None:
    other = {"north": ProtocolRange(7, 8, "9.0")}
    refuse_versions(other, (), 2, 2)
    refuse_versions({}, (), 0, 2)
    with pytest.raises(EpifedError, match=r"'north' runs epifed 9.0 \(protocols 7 to 8\)"):
        refuse_versions(other, (), 1, 2)
    with pytest.raises(EpifedError, match="expected every aggregator"):
        refuse_versions(other, ("north",), 5, 2)


def test_a_site_s_check_says_whether_the_server_was_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "no server has greeted" in _version(tmp_path).sentence
    Greeting.own().remember(tmp_path)
    assert _version(tmp_path).ok
    monkeypatch.setattr(messages, "OLDEST", PROTOCOL + 1)
    monkeypatch.setattr(messages, "PROTOCOL", PROTOCOL + 2)
    assert not _version(tmp_path).ok
    assert "upgrade the older one" in _version(tmp_path).sentence


@pytest.mark.field
def test_neighbours_go_on_and_a_stranger_is_named_before_it_costs(tmp_path: Path) -> None:
    """Real sites: of this version, of the next, of the one before, of a far one."""
    speaks = {
        "site-2": f"{PROTOCOL}-{PROTOCOL + 1}",
        "site-3": f"{PROTOCOL - 1}-{PROTOCOL}",
        "site-4": f"{PROTOCOL + 3}-{PROTOCOL + 4}",
    }
    environment = {site: on_path("other_version", SPEAKS=said) for site, said in speaks.items()}
    ledger = tmp_path / "budget.ledger"
    Ledger.create(ledger, Cap(5.0, 1e-5, "rdp"))
    before = Ledger(ledger).book().head
    order = plan("weekly", settings_of("trend", epsilon=1.0), seeded=False)
    with federation(
        tmp_path / "local", 4, environment=environment, ledger=ledger, min_sites=4
    ) as local:
        with pytest.raises(EpifedError, match=r"'site-4' runs epifed .* nothing was spent"):
            local.train(order)
        assert Ledger(ledger).book().head == before, "nothing was spent, nor reserved"
        local.federation = local.federation.model_copy(update={"min_sites": 3})
        (local.kit("server") / "federation.toml").write_text(local.federation.to_toml())
        status = local.train(order)
    assert status["delivered"] == ["site-1", "site-2", "site-3"]
    (line,) = (local.training_folder(order) / "report.jsonl").read_text().splitlines()
    assert json.loads(line)["problems"] == [{"site": "site-4", "reason": "version"}]
