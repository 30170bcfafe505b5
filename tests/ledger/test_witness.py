"""A ledger restored, copied, moved or rolled back: what this machine remembers outside the file."""

import hashlib
import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import platformdirs
import pytest

from epifed.errors import EpifedError
from epifed.ledger import ledger as ledgers
from epifed.ledger.budget import Book, Cap
from epifed.ledger.ledger import APPLICATION_ID, Ledger, Run, Seen, Use, Witness, glance, use_of

CAP = Cap(2.0, 1e-5, "rdp")
OLDER = r"an older copy: found \d+ rows; expected the \d+ .* rows missing: \d+"

Elsewhere = Callable[[str], None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return Ledger.create(tmp_path / "ledger.db", CAP).path


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Elsewhere:
    """From now on, be the machine of this name."""
    return lambda name: monkeypatch.setenv("EPIFED_STATE", str(tmp_path / "machines" / name))


def reserve(ledger: Ledger, rounds: int = 4) -> Run:
    return ledger.reserve(
        sampling_rate=0.25, noise_multiplier=20.0, rounds=rounds, settings_hash="5e77"
    )


def seen(book: Book) -> Seen | None:
    return Witness(book.ledger).read()


def test_a_restored_backup_never_spends_again(path: Path, tmp_path: Path) -> None:
    """Removed and copied back, a file mostly gets its old number; it was all that told it apart."""
    backup = tmp_path / "backup.db"
    ledger = Ledger(path)
    run = reserve(ledger, 60)
    for i in range(30):
        shutil.copy2(path, backup)
        run.spend(i)
        newest = path.read_bytes()
        path.unlink()
        shutil.copy2(backup, path)
        with pytest.raises(EpifedError, match=OLDER):
            Ledger(path)
        with pytest.raises(EpifedError, match=OLDER):
            run.spend(i)
        with pytest.raises(EpifedError, match=f"{OLDER}.*neither spend nor be adopted"):
            Ledger.adopt(path, "restored")
        path.write_bytes(newest)
    assert Ledger(path).book().runs[run.name].spent == 30


def test_a_backup_without_a_missing_row_goes_on(path: Path, tmp_path: Path) -> None:
    reserve(Ledger(path)).spend(1)
    backup = shutil.copy2(path, tmp_path / "backup.db")
    path.unlink()
    shutil.copy2(backup, path)
    reserve(Ledger(path)).spend(1)


def test_a_second_file_is_stale_as_soon_as_the_first_one_spends(path: Path, tmp_path: Path) -> None:
    first = reserve(Ledger(path))
    copy = Path(shutil.copy2(path, tmp_path / "copy.db"))
    second = Run(Ledger(copy), first.name)
    first.spend(1)
    with pytest.raises(EpifedError, match=OLDER):
        second.spend(1)
    assert len(Ledger(copy, copy=True).book().hashes) == 2, "a copy can be read"
    with pytest.raises(EpifedError, match=OLDER):
        reserve(Ledger(copy, copy=True))


def test_a_copy_that_went_its_own_way_is_refused(tmp_path: Path, machine: Elsewhere) -> None:
    machine("home")
    path = Ledger.create(tmp_path / "ledger.db", CAP).path
    copy = Path(shutil.copy2(path, tmp_path / "copy.db"))
    reserve(Ledger(path))
    machine("other")
    with pytest.raises(EpifedError, match=r"has not seen this ledger.*'epifed ledger adopt'"):
        Ledger(copy)
    reserve(Ledger.adopt(copy, "moved")).spend(1)
    machine("home")
    with pytest.raises(
        EpifedError, match=r"used beside the original: found row 2 .* its rows are missing"
    ):
        Ledger(copy)
    Ledger(path)


def test_a_ledger_moves_to_another_machine_and_back(path: Path, machine: Elsewhere) -> None:
    machine("one")
    ledger = Ledger.adopt(path, "first machine")
    run = reserve(ledger)
    run.spend(1)
    machine("two")
    head = Ledger(path, copy=True).book().head
    with pytest.raises(EpifedError, match="no row has the hash"):
        Ledger.adopt(path, "the disk failed", head="0" * 64)
    adopted = Ledger.adopt(path, "the disk failed", head)
    adopted.resume(run.name, 3).spend(2)
    with sqlite3.connect(path) as connection:
        (text,) = connection.execute("SELECT row FROM entries WHERE number = 5").fetchone()
    connection.close()
    assert json.loads(text)["note"] == "the disk failed"
    with pytest.raises(EpifedError, match="nothing to adopt"):
        Ledger.adopt(path, "again")
    machine("one")
    old = path.read_bytes()
    Ledger(path).resume(run.name, 2).spend(3)
    path.write_bytes(old)
    with pytest.raises(EpifedError, match=OLDER):
        Ledger(path)


def test_a_renamed_ledger_and_a_link_to_it_stay_the_ledger(path: Path, tmp_path: Path) -> None:
    moved, link = tmp_path / "moved.db", tmp_path / "link.db"
    path.rename(moved)
    link.symlink_to(moved)
    reserve(Ledger(moved))
    reserve(Ledger(link))
    assert len(Ledger(moved).book().runs) == 2


def test_a_second_name_is_refused(path: Path, tmp_path: Path, machine: Elsewhere) -> None:
    ledger = Ledger(path)
    (tmp_path / "second.db").hardlink_to(path)
    with pytest.raises(EpifedError, match="has 2 names"):
        Ledger(path)
    with pytest.raises(EpifedError, match="has 2 names"):
        reserve(ledger)
    machine("other")
    with pytest.raises(EpifedError, match="has 2 names"):
        Ledger.adopt(path, "moved")


def test_a_hash_kept_elsewhere_notices_an_old_backup_of_file_and_memory(
    path: Path,
) -> None:
    """All that a restored image of the whole machine leaves."""
    ledger = Ledger(path)
    memory = Witness(ledger.book().ledger).path
    old, old_memory = path.read_bytes(), memory.read_bytes()
    reserve(ledger)
    head = ledger.book().head
    assert ledger.verify(head).head == head
    path.write_bytes(old)
    memory.write_bytes(old_memory)
    Ledger(path)
    with pytest.raises(EpifedError, match="rows were lost since"):
        Ledger(path).verify(head)


def test_a_writer_killed_before_its_note_is_caught_up_with(path: Path) -> None:
    ledger = Ledger(path)
    run = reserve(ledger)
    before, memory = ledger.book(), Witness(ledger.book().ledger).path
    old, noted = path.read_bytes(), memory.read_bytes()
    run.spend(1)
    memory.write_bytes(noted)
    assert seen(before) == Seen(2, before.head)
    book = Ledger(path).book()
    assert seen(book) == Seen(3, book.head)
    path.write_bytes(old)
    with pytest.raises(EpifedError, match=OLDER):
        Ledger(path)


def test_the_memory_is_written_before_a_spend_returns(path: Path) -> None:
    ledger = Ledger(path)
    run = reserve(ledger)
    run.spend(1)
    assert (found := seen(ledger.book()))
    assert found.number == 3
    run.finish("a11ce")
    assert (found := seen(ledger.book()))
    assert found.number == 4


def test_a_new_ledger_at_the_same_place_is_noticed_by_who_holds_the_old(path: Path) -> None:
    run = reserve(Ledger(path))
    path.unlink()
    Ledger.create(path, CAP)
    with pytest.raises(EpifedError, match="was replaced"):
        run.spend(1)


@pytest.mark.parametrize("how", ["gone", "empty"])
def test_a_memory_that_is_lost_while_a_ledger_is_open_stops_it(path: Path, how: str) -> None:
    run = reserve(Ledger(path))
    memory = Witness(run.ledger.book().ledger).path
    if how == "gone":
        memory.unlink()
    else:
        memory.write_bytes(b"")
    with pytest.raises(EpifedError, match="has not seen this ledger"):
        run.spend(1)


def test_without_a_word_the_memory_is_where_programs_keep_their_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A newer version must find what an older one has noted."""
    root = ledgers.state_root()
    assert Witness("00c0").path == root / "ledgers" / "00c0.db"
    assert ledgers._use_path("a", "b").parent == root / "parties"
    monkeypatch.delenv("EPIFED_STATE")
    assert ledgers.state_root() == Path(platformdirs.user_state_dir("epifed"))


def test_a_ledger_that_was_not_yet_written_to_is_no_older_copy(path: Path) -> None:
    book = Ledger(path).book()
    assert Seen(0, "0" * 64).fault(book) is None
    assert Seen(1, book.head).fault(book) is None
    assert "used beside the original: found row 1" in (Seen(1, "0" * 64).fault(book) or "")


def test_a_row_that_is_written_while_somebody_looks_is_no_fault(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, read = Ledger(path), ledgers._read
    before = [ledger.book()]
    reserve(ledger)
    monkeypatch.setattr(ledgers, "_read", lambda *at: before.pop() if before else read(*at))
    book, fault = glance(path)
    assert (len(book.hashes), fault) == (2, None)


def test_a_damaged_record_of_a_party_s_ledger_is_one_sentence(tmp_path: Path) -> None:
    use = Use("federation", f"{tmp_path}", ("a", "b"), "00c0ffee00c0ffee", 2.0)
    assert use_of(use.federation, use.party) is None
    use.remember()
    assert use_of(use.federation, use.party) == use
    ledgers._use_path(use.federation, use.party).write_text("{")
    with pytest.raises(EpifedError, match=r"cannot be read .* expected the record of a party's"):
        use_of(use.federation, use.party)


def test_a_damaged_memory_is_told(path: Path) -> None:
    memory = Witness(Ledger(path).book().ledger).path
    memory.write_bytes(b"nonsense" * 1000)
    with pytest.raises(EpifedError, match="damaged; expected this machine's memory"):
        Ledger(path)
    memory.write_bytes(b"")
    with pytest.raises(EpifedError, match="has not seen this ledger"):
        Ledger(path)
    Ledger.adopt(path, "the memory was lost")


def test_a_place_that_cannot_hold_the_memory_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("EPIFED_STATE", str(tmp_path / "file"))
    with pytest.raises(EpifedError, match="cannot be created"):
        Ledger.create(tmp_path / "ledger.db", CAP)


def rows_as_before(path: Path, *rows: dict[str, Any]) -> None:
    """A ledger as it was written when the number of the file told it apart."""
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(
            "CREATE TABLE entries "
            "(number INTEGER PRIMARY KEY, row TEXT NOT NULL, hash TEXT NOT NULL)"
        )
        connection.execute("CREATE TABLE head (number INTEGER NOT NULL, hash TEXT NOT NULL)")
        digest = "0" * 64
        for number, row in enumerate(rows, start=1):
            stamped = row | {"time": "2026-11-15T08:00:00+00:00"}
            text = json.dumps(stamped, sort_keys=True, separators=(",", ":"))
            digest = hashlib.sha256(f"{digest}\n{text}".encode()).hexdigest()
            connection.execute("INSERT INTO entries VALUES (?, ?, ?)", (number, text, digest))
        connection.execute("INSERT INTO head VALUES (?, ?)", (len(rows), digest))
    connection.close()


FIRST = {
    "kind": "init",
    "ledger": "00c0ffee00c0ffee",
    "epsilon": 2.0,
    "delta": 1e-5,
    "accountant": "rdp",
    "identity": "803-42",
    "note": "",
}


def test_a_ledger_from_before_is_adopted_once_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    reserved = {
        "kind": "reserve",
        "run": "20261115-00000001",
        "mechanism": "poisson-sampled gaussian",
        "accountant": "rdp",
        "sampling_rate": 0.25,
        "noise_multiplier": 20.0,
        "rounds": 4,
        "settings_hash": "5e77",
        "data_period": "2022-03-01 … 2022-04-01",
        "note": "weekly",
    }
    moved = {"kind": "adopt", "identity": "803-43", "note": "a new disk"}
    spent = {"kind": "spend", "run": reserved["run"], "round": 1}
    rows_as_before(path, FIRST, moved, reserved, spent)
    with pytest.raises(EpifedError, match=r"made before .* once, with 'epifed ledger adopt'"):
        Ledger(path)
    ledger = Ledger.adopt(path, "a new version of epifed")
    (record,) = ledger.book().runs.values()
    assert (record.training, record.days, record.spent) == ("", "", 1)
    assert record.note == "weekly, 2022-03-01 … 2022-04-01"
    ledger.resume(record.run, 3).spend(2)
    reserve(ledger)
    assert len(Ledger(path).book().runs) == 2


def test_a_name_that_would_be_a_path_is_refused(tmp_path: Path) -> None:
    rows_as_before(tmp_path / "evil.db", FIRST | {"ledger": "../../../outside"})
    with pytest.raises(EpifedError, match="expected 16 hexadecimal digits"):
        Ledger(tmp_path / "evil.db", copy=True)
