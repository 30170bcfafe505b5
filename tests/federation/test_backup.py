"""Server, sites and aggregators restored from backups: nothing is paid twice, nothing unpaid."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from epifed.errors import EpifedError
from epifed.federation import aggregator, site
from epifed.federation.flare.parties import server_command
from epifed.federation.messages import Code
from epifed.federation.secure_training import AwayError
from epifed.federation.server import Order
from epifed.ledger.budget import Cap
from epifed.ledger.ledger import Ledger
from tests.federation.helpers import Training, federation, panel, settings_of
from tests.federation.parties import Parties

CAP = Cap(50.0, 1e-5, "rdp")
SETTINGS = settings_of("trend", epsilon=1.0, noise="aggregators", aggregators=2)
Move = Callable[[Path, Path], None]


def _order(week: int) -> Order:
    days, back = panel(), timedelta(days=7 * (3 - week))
    return Order.of(f"week-{week}", SETTINGS, days.start, days.end - back)


def _copy(source: Path, target: Path) -> None:
    """What `cp -a` does, of a file or a folder, in the place of what is there."""
    if target.is_dir():
        shutil.rmtree(target)
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy2(source, target)


def _paid(path: Path) -> dict[str, int]:
    runs = Ledger(path).book().runs.values()
    return {run.training: run.spent for run in runs if run.spent}


def _identity(path: Path) -> str:
    return Ledger(path).book().ledger


class Country:
    """A federation with aggregators in one process, its budget, and copies of any part of it."""

    def __init__(self, folder: Path) -> None:
        self.parties = Parties.make(folder, sites=2)
        self.ledger = folder / "budget.ledger"
        Ledger.create(self.ledger, CAP)
        self.backups = folder / "backups"
        self.reasons: list[list[tuple[str, str]]] = []

    @property
    def books(self) -> dict[str, Path]:
        kit = self.parties.kit
        return {
            "server": self.ledger,
            "site-1": kit("site-1") / site.LEDGER,
            "sum-1": kit("sum-1") / aggregator.LEDGER,
        }

    def files(self, party: str) -> list[Path]:
        folder = self.parties.folder
        return (
            [self.ledger, folder / "trainings"] if party == "server" else [self.parties.kit(party)]
        )

    def back_up(self, name: str) -> None:
        for party in self.books:
            for path in self.files(party):
                (self.backups / name / party).mkdir(parents=True, exist_ok=True)
                _copy(path, self.backups / name / party / path.name)

    def restore(self, name: str, party: str) -> None:
        for path in self.files(party):
            _copy(self.backups / name / party / path.name, path)

    def train(self, week: int) -> None:
        training = self.parties.training(_order(week), Ledger(self.ledger))
        try:
            if not training.finished:
                training.play(self.parties, self._report)
            release = training.finish()
        finally:
            training._lock.release()
        for party in ("site-1", "site-2", "sum-1", "sum-2"):
            try:
                got = self.parties.deliver(party, training)
            except EpifedError:
                continue
            assert got.sha256 == release.sha256

    def _report(self, line: dict[str, list[dict[str, str]]]) -> None:
        self.reasons.append([(one["site"], one["reason"]) for one in line["problems"]])


@pytest.fixture
def country(tmp_path: Path) -> Country:
    made = Country(tmp_path)
    made.train(1)
    made.back_up("old")
    made.train(2)
    made.back_up("new")
    return made


WEEKS = {"week-1": 1, "week-2": 1, "week-3": 1}


@pytest.mark.parametrize("party", ["server", "site-1", "sum-1"])
def test_restored_with_its_newest_row_a_party_goes_on(country: Country, party: str) -> None:
    before = _identity(country.books[party])
    country.restore("new", party)
    country.train(3)
    country.train(3)
    for book in country.books.values():
        assert _paid(book) == WEEKS
    assert _identity(country.books[party]) == before
    assert country.reasons == [[], [], []]


def test_an_older_copy_of_the_server_pays_for_nothing(country: Country) -> None:
    country.restore("old", "server")
    with pytest.raises(EpifedError, match="an older copy"):
        country.train(3)
    country.restore("new", "server")
    country.train(3)
    assert {name: _paid(book) for name, book in country.books.items()} == dict.fromkeys(
        country.books, WEEKS
    )


def test_an_older_copy_of_a_site_sits_out_and_hurts_nobody(country: Country) -> None:
    country.restore("old", "site-1")
    country.train(3)
    assert country.reasons[-1] == [("site-1", Code.LEDGER.value)]
    asked = site.LastAsked.of(country.parties.kit("site-1"))
    assert asked is not None
    assert "an older copy" in asked.problem
    assert not asked.sent
    assert _paid(country.ledger) == WEEKS
    country.restore("new", "site-1")
    assert _paid(country.books["site-1"]) == {"week-1": 1, "week-2": 1}, "nothing sent, none booked"


def test_an_older_copy_of_an_aggregator_is_waited_for_and_the_round_paid_once(
    country: Country,
) -> None:
    country.restore("old", "sum-1")
    with pytest.raises((EpifedError, AwayError)):
        country.train(3)
    country.restore("new", "sum-1")
    country.train(3)
    assert {name: _paid(book) for name, book in country.books.items()} == dict.fromkeys(
        country.books, WEEKS
    )


@pytest.mark.parametrize("party", ["site-1", "sum-1"])
def test_on_a_new_machine_a_ledger_is_adopted_once_and_keeps_its_identity(
    country: Country, party: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = country.books[party]
    before, head = _identity(book), Ledger(book).book().head
    country.restore("new", party)
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("EPIFED_STATE", str(tmp_path / "machine-2"))
        with pytest.raises(EpifedError, match="has not seen this ledger"):
            Ledger(book)
        Ledger.adopt(book, "the old machine burnt", head)
        assert _identity(book) == before
        assert _paid(book) == {"week-1": 1, "week-2": 1}


@pytest.mark.field
def test_a_server_and_a_site_of_real_processes_restored(tmp_path: Path) -> None:
    """As the runbook says: stop, copy, and later put back."""
    ledger = tmp_path / "budget.ledger"
    Ledger.create(ledger, CAP)
    served = replace(_order(1), settings=settings_of("trend", epsilon=1.0))
    weeks = [replace(served, training=f"week-{week}") for week in (1, 2, 3)]
    with federation(tmp_path / "local", 2, ledger=ledger) as local:
        parts = {"server": local.kit("server"), "site-1": local.kit("site-1"), "ledger": ledger}

        def back_up(name: str) -> None:
            (tmp_path / name).mkdir()
            for part, path in parts.items():
                _copy(path, tmp_path / name / part)

        local.train(weeks[0])
        identity = _identity(ledger)
        for party in ("site-1", "server"):
            local.kill(party)
        back_up("old")
        local.start("server", "site-1")
        local.wait_for_sites(("site-1", "site-2"))
        running = Training(local, weeks[1])
        running.finished()
        for party in ("site-1", "server"):
            local.kill(party)
        back_up("new")
        _copy(tmp_path / "old" / "ledger", ledger)
        _copy(tmp_path / "old" / "server", parts["server"])
        with pytest.raises(EpifedError, match="an older copy"):
            server_command(parts["server"], ledger)
        for part, path in parts.items():
            _copy(tmp_path / ("old" if part == "site-1" else "new") / part, path)
        local.start("server", "site-1")
        local.wait_for_sites(("site-1", "site-2"))
        local.train(weeks[2])
        report = local.training_folder(weeks[2]) / "report.jsonl"
        assert '"site": "site-1", "reason": "ledger"' in report.read_text()
    assert _identity(ledger) == identity
    assert _paid(ledger) == WEEKS
    assert _paid(local.kit("site-2") / site.LEDGER) == WEEKS
