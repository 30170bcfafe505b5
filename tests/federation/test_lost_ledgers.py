"""A party's ledger that is gone is no new budget: a loss is told from a first start."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID

from epifed.errors import EpifedError
from epifed.federation.messages import Code, MessageError
from epifed.federation.site import LEDGER, LOG, Source, preview
from epifed.federation.terms import SiteLedger, Terms
from epifed.learners.base import make_learner
from epifed.ledger.budget import Cap
from epifed.ledger.ledger import Ledger, state_root
from epifed.privacy.plan import PrivacyPlan
from epifed.settings import of_training
from epifed.training.release import Release
from tests.federation.helpers import panel, settings_of
from tests.federation.helpers import plan as ordered
from tests.federation.parties import Parties
from tests.federation.test_messages import PLAN, SETTINGS, _task
from tests.federation.test_secure_training import _ledger, _played

TOTAL = 3.0
TERMS = Terms(epsilon_total=TOTAL, epsilon_per_release=50.0)


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPIFED_STATE", str(tmp_path / "state"))


def _certificate(name: str, key: Ed25519PrivateKey) -> bytes:
    who = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime(2026, 1, 1, tzinfo=UTC)
    builder = x509.CertificateBuilder(who, who, key.public_key(), x509.random_serial_number())
    dated = builder.not_valid_before(now).not_valid_after(now + timedelta(days=9))
    return dated.sign(key, None).public_bytes(serialization.Encoding.PEM)


def _kit(folder: Path, name: str, clients: list[str], root: bytes) -> Path:
    """A kit with certificates, as it is handed to a site."""
    (folder / "startup").mkdir(parents=True)
    (folder / "startup" / "rootCA.pem").write_bytes(root)
    own = _certificate(name, Ed25519PrivateKey.generate())
    (folder / "startup" / "client.crt").write_bytes(own)
    (folder / "clients.json").write_text(json.dumps(clients))
    return folder


@pytest.fixture
def root() -> bytes:
    return _certificate("root", Ed25519PrivateKey.generate())


def _spend_all(path: Path) -> None:
    book = SiteLedger(path, TERMS)
    with pytest.raises(MessageError) as caught:
        for week in range(99):
            book.take_part(_task(training=f"week-{week}"), SETTINGS, PLAN)
    assert caught.value.code is Code.REFUSED_TOTAL


def test_a_deleted_ledger_is_no_new_budget(tmp_path: Path) -> None:
    path = tmp_path / "kit" / LEDGER
    _spend_all(path)
    path.unlink()
    with pytest.raises(MessageError, match="pay from the ledger") as caught:
        SiteLedger.of(path, TERMS)
    assert caught.value.code is Code.LEDGER
    assert "epifed ledger init" in caught.value.detail
    assert not path.exists()


def test_the_newest_file_put_back_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "kit" / LEDGER
    SiteLedger(path, TERMS).take_part(_task(), SETTINGS, PLAN)
    content = path.read_bytes()
    path.unlink()
    with pytest.raises(EpifedError, match="no such file"):
        SiteLedger(path, TERMS)
    path.write_bytes(content)
    SiteLedger(path, TERMS).take_part(_task(round=2, paid=1), SETTINGS, PLAN)


def test_a_new_ledger_in_its_place_needs_a_smaller_total(tmp_path: Path) -> None:
    path = tmp_path / "kit" / LEDGER
    SiteLedger(path, TERMS).take_part(_task(), SETTINGS, PLAN)
    path.unlink()
    Ledger.create(path, Cap(TOTAL, 1e-5, "rdp"))
    with pytest.raises(EpifedError, match=r"expected the ledger .* or a total below 3"):
        SiteLedger(path, TERMS)
    path.unlink()
    Ledger.create(path, Cap(2.0, 1e-5, "rdp"))
    smaller = TERMS.model_copy(update={"epsilon_total": 2.0})
    SiteLedger(path, smaller).take_part(_task(), SETTINGS, PLAN)
    path.unlink()
    with pytest.raises(EpifedError, match="no such file"):
        SiteLedger(path, smaller)


def test_a_kit_that_was_moved_or_renamed_is_known(tmp_path: Path, root: bytes) -> None:
    """A party is its certificate's name and its clients, not a folder."""
    old = _kit(tmp_path / "kit", "north", ["09161"], root)
    _spend_all(old / LEDGER)
    moved = _kit(tmp_path / "moved", "north", ["09161"], root)
    with pytest.raises(EpifedError, match="seen this party pay"):
        SiteLedger(moved / LEDGER, TERMS)
    renamed = _kit(tmp_path / "renamed", "north-again", ["09162", "09161"], root)
    with pytest.raises(EpifedError, match=r"'north' pay from .* for the client '09161'"):
        SiteLedger(renamed / LEDGER, TERMS)


def test_other_parties_and_other_federations_start_for_the_first_time(
    tmp_path: Path, root: bytes
) -> None:
    _spend_all(_kit(tmp_path / "kit", "north", ["09161"], root) / LEDGER)
    other = _kit(tmp_path / "south", "south", ["09162"], root)
    SiteLedger(other / LEDGER, TERMS).take_part(_task(), SETTINGS, PLAN)
    anew = _kit(
        tmp_path / "new", "north", ["09161"], _certificate("x", Ed25519PrivateKey.generate())
    )
    SiteLedger(anew / LEDGER, TERMS).take_part(_task(), SETTINGS, PLAN)


def test_a_kit_restored_without_its_ledger_on_a_new_machine_is_noticed(
    tmp_path: Path, root: bytes
) -> None:
    kit = _kit(tmp_path / "kit", "north", ["09161"], root)
    SiteLedger(kit / LEDGER, TERMS).take_part(_task(), SETTINGS, PLAN)
    (kit / LEDGER).unlink()
    for path in (state_root() / "parties").iterdir():
        path.unlink()
    (kit / LOG).write_text(json.dumps({"round": 1, "randomness": "secure"}) + "\n")
    with pytest.raises(EpifedError, match=f"{LOG} shows rounds"):
        SiteLedger(kit / LEDGER, TERMS)
    (kit / LOG).write_text(json.dumps({"round": 1, "randomness": "seeded"}) + "\n")
    settings = settings_of("trend", epsilon=1.0)
    learner, days = make_learner(settings), panel()
    release = Release.of(
        learner, learner.start(of_training(0)[0]), PrivacyPlan.of(settings, 12), paid=1,
        period=(days.start, days.end), randomness="secure", ledger_run="r",
    )  # fmt: skip
    release.write(kit / "models" / "week.epifed")
    with pytest.raises(EpifedError, match=r"week\.epifed is of a training"):
        SiteLedger(kit / LEDGER, TERMS)


def test_a_deleted_aggregators_ledger_stops_the_training(tmp_path: Path) -> None:
    parties = Parties.make(tmp_path)
    chosen = settings_of("trend", epsilon=1.0, noise="aggregators", aggregators=2)
    _played(parties, ordered("one", chosen, seeded=False), _ledger(tmp_path))
    (parties.kit("sum-1") / "aggregator.ledger").unlink()
    with pytest.raises(EpifedError, match=r"refused by the aggregator 'sum-1' \(ledger\)"):
        _played(parties, ordered("two", chosen, seeded=False), Ledger(tmp_path / "budget.ledger"))


def test_a_look_ahead_says_that_the_ledger_is_lost(tmp_path: Path) -> None:
    parties = Parties.make(tmp_path)
    kit = parties.kit("site-1")
    SiteLedger(kit / LEDGER, Terms.read(kit / "site.toml"))
    (kit / LEDGER).unlink()
    days = panel()
    with pytest.raises(EpifedError, match="no such file, but this machine has seen"):
        preview(
            kit, settings_of("trend", epsilon=1.0), (days.start, days.end), 12,
            source=Source.of(kit),
        )  # fmt: skip
