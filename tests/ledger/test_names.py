"""A training's name in the ledger: a key together with all that prices it, used once."""

from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from epifed.errors import EpifedError
from epifed.ledger.budget import Cap, Key
from epifed.ledger.ledger import Ledger, NameTakenError

KEY: Key = {
    "training": "weekly",
    "sampling_rate": 0.25,
    "noise_multiplier": 20.0,
    "settings_hash": "5e77",
    "first_day": date(2022, 3, 1),
    "last_day": date(2022, 4, 1),
}
CHANGES: list[tuple[dict[str, Any], str]] = [
    ({"noise_multiplier": 2.15}, "noise multiplier: found 20.0; expected 2.15"),
    ({"sampling_rate": 0.5}, "sampling rate: found 0.25; expected 0.5"),
    ({"settings_hash": "0dd"}, "settings hash: found '5e77'; expected '0dd'"),
    ({"first_day": date(2022, 3, 2)}, "first day: found 2022-03-01; expected 2022-03-02"),
    ({"last_day": None}, "last day: found 2022-04-01; expected none"),
]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "ledger.db", Cap(2.0, 1e-5, "rdp"))


def changed(changes: dict[str, Any]) -> Key:
    key: Any = {**KEY, **changes}
    return key  # type: ignore[no-any-return]


def test_a_training_is_found_by_its_key_open_and_finished(ledger: Ledger) -> None:
    assert ledger.find(**KEY) is None
    run = ledger.reserve(rounds=1, **KEY)
    found = ledger.find(**KEY)
    assert found is not None
    assert (found.run, found.outcome) == (run.name, "open")
    run.spend(1)
    run.finish("a11ce")
    found = Ledger(ledger.path).find(**KEY)
    assert found is not None
    assert (found.outcome, found.first_day) == ("finished", date(2022, 3, 1))


@pytest.mark.parametrize(("changes", "sentence"), CHANGES)
@pytest.mark.parametrize("closed", [False, True])
def test_another_training_of_the_same_name_is_neither_found_nor_reserved(
    ledger: Ledger, changes: dict[str, Any], sentence: str, closed: bool
) -> None:
    run = ledger.reserve(rounds=2, **KEY)
    if closed:
        ledger.close(run.name, "abandoned")
    before = ledger.book().head
    other = changed(changes)
    assert ledger.find(**other) is None
    with pytest.raises(NameTakenError) as refused:
        ledger.reserve(rounds=2, **other)
    for part in ("training 'weekly'", run.name, sentence, "expected a name that was not used"):
        assert part in str(refused.value)
    assert ledger.book().head == before


def test_a_name_is_reserved_once_and_more_rounds_are_resumed_at_its_own_price(
    ledger: Ledger,
) -> None:
    run = ledger.reserve(rounds=2, **KEY)
    with pytest.raises(NameTakenError, match=rf"is in the ledger as run {run.name} \(open\);"):
        ledger.reserve(rounds=2, **KEY)
    ledger.resume(run.name, 5)
    assert ledger.book().taken() == ((0.25, 20.0, 5),)


def test_a_name_goes_to_one_of_several_who_ask_at_once(ledger: Ledger) -> None:
    def ask(_: int) -> bool:
        try:
            Ledger(ledger.path).reserve(rounds=1, **KEY)
        except NameTakenError:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(ask, range(8))) == 1
    assert len(ledger.book().runs) == 1


def test_a_note_is_no_name_and_trainings_without_one_are_never_found(ledger: Ledger) -> None:
    nameless = changed({"training": ""})
    for _ in range(2):
        ledger.reserve(rounds=1, note="weekly", **nameless)
    assert ledger.find(**nameless) is None
    assert ledger.find(**KEY) is None
    ledger.reserve(rounds=1, **KEY)
    assert [run.note for run in ledger.book().runs.values()] == ["weekly", "weekly", ""]


def test_a_run_of_another_ledger_is_not_here(ledger: Ledger) -> None:
    with pytest.raises(EpifedError, match="not in this ledger"):
        ledger.resume("20261115-00000001", 1)
