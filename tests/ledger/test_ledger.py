import json
import math
import sqlite3
from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path

import dp_accounting as dp
import pytest

from epifed.errors import EpifedError
from epifed.ledger import budget
from epifed.ledger.budget import (
    Book,
    Cap,
    canonical,
    chained,
    least_noise,
    left,
    most_rounds,
    most_trainings,
    schedule,
    together,
)
from epifed.ledger.ledger import Ledger, OverspendError, Run
from epifed.privacy.accounting import calibrate, epsilon_of, training_event

CAP = Cap(2.0, 1e-5, "rdp")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return Ledger.create(tmp_path / "ledger.db", CAP).path


def reserve(ledger: Ledger, rounds: int = 4, noise: float = 20.0, rate: float = 0.25) -> Run:
    return ledger.reserve(
        sampling_rate=rate,
        noise_multiplier=noise,
        rounds=rounds,
        settings_hash="5e77",
        first_day=date(2022, 3, 1),
        last_day=date(2022, 4, 1),
    )


def filled(path: Path) -> Ledger:
    """Rows: 1 init, 2 reserve, 3 to 6 spend, 7 close, 8 reserve, 9 spend."""
    ledger = Ledger(path)
    with reserve(ledger) as run:
        for i in range(1, 5):
            run.spend(i)
        run.finish("a11ce")
    reserve(ledger).spend(1)
    return ledger


def sql(path: Path, *statements: str) -> None:
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def rounds(book: Book) -> int:
    return sum(count for *_, count in book.taken())


# What counts


def test_an_open_run_counts_in_full_and_a_closed_one_what_it_spent(path: Path) -> None:
    ledger = Ledger(path)
    run = reserve(ledger, rounds=10)
    run.spend(1)
    assert rounds(ledger.book()) == 10
    assert sum(count for *_, count in ledger.book().released()) == 1
    ledger.close(run.name, "abandoned")
    assert rounds(ledger.book()) == 1


def test_a_row_of_a_run_says_everything_about_it(path: Path) -> None:
    book = filled(path).book()
    first, second = book.runs.values()
    assert (first.outcome, first.spent, first.model_hash) == ("finished", 4, "a11ce")
    assert (first.settings_hash, first.days) == ("5e77", "2022-03-01 … 2022-04-01")
    assert (first.mechanism, first.accountant) == ("poisson-sampled gaussian", "rdp")
    assert first.opened.endswith("+00:00")
    assert (second.outcome, second.spent, second.rounds) == ("open", 1, 4)


def test_a_one_shot_release_is_a_plain_gaussian(path: Path) -> None:
    run = reserve(Ledger(path), rounds=1, noise=5.0, rate=1.0)
    book = Ledger(path).book()
    assert book.runs[run.name].mechanism == "gaussian"
    assert CAP.price(book.taken()) == epsilon_of(dp.GaussianDpEvent(5.0), 1e-5)


def test_a_renewing_cap_counts_a_run_to_the_second_of_its_window(path: Path) -> None:
    ledger = Ledger(path)
    with reserve(ledger) as run:
        run.spend(1)
        run.finish("a11ce")
    (record,) = ledger.book().runs.values()
    assert record.closed is not None
    closed = datetime.fromisoformat(record.closed)
    book = replace(ledger.book(), cap=replace(CAP, weeks=1))
    for later, expected in ((timedelta(0), 1), (timedelta(seconds=1), 0)):
        now = closed + timedelta(weeks=1) + later
        assert len(book.counting(now)) == len(book.released(now)) == expected


def test_an_exception_gives_unspent_rounds_back_and_nothing_else(path: Path) -> None:
    ledger = Ledger(path)
    with pytest.raises(KeyboardInterrupt), reserve(ledger) as run:
        run.spend(1)
        raise KeyboardInterrupt
    assert rounds(ledger.book()) == 1
    with pytest.raises(EpifedError, match="abandoned on"):
        run.spend(2)


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_runs_compose_like_gaussians_do(tmp_path: Path, accountant: str) -> None:
    """Without sampling there is an oracle: 1/c² adds up."""
    ledger = Ledger.create(tmp_path / "l.db", Cap(3.0, 1e-5, accountant))
    reserve(ledger, rounds=2, noise=6.0, rate=1.0)
    reserve(ledger, rounds=3, noise=9.0, rate=1.0)
    alone = 1 / math.sqrt(2 / 36 + 3 / 81)
    expected = epsilon_of(dp.GaussianDpEvent(alone), 1e-5, accountant)
    book = ledger.book()
    assert book.cap.price(book.taken()) == pytest.approx(expected, rel=1e-3)


def test_equal_rounds_cost_the_same_in_one_run_or_in_many() -> None:
    once = together([(0.25, 20.0, 75)])
    assert together([(0.25, 20.0, 25)] * 3) == once
    assert CAP.price(once) == epsilon_of(training_event(0.25, 20.0, 75), 1e-5)


# The cap


def test_the_whole_cap_can_be_spent_once_and_nothing_after_it(path: Path) -> None:
    ledger = Ledger(path)
    noise = calibrate(2.0, 1e-5, 0.25, 75).noise_multiplier
    reserve(ledger, rounds=75, noise=noise)
    before = ledger.book().head
    with pytest.raises(OverspendError, match="what would fit") as refused:
        reserve(ledger, rounds=1, noise=noise)
    assert ledger.book().head == before
    sentence = str(refused.value)
    for part in ("cap of ε = 2 at δ = 1e-05", "RDP accountant", "taken so far: ε = 2", "left: ε ="):
        assert part in sentence
    assert "open, holding rounds not spent: 2" in sentence


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_what_is_said_to_fit_fits_and_no_more_does(accountant: str) -> None:
    cap = Cap(2.0, 1e-5, accountant)
    spent = together([(1.0, 24.0, 75)])
    noise = least_noise(cap, spent, 1.0, 75)
    assert noise is not None
    assert cap.allows(together([*spent, (1.0, noise, 75)]))
    assert not cap.allows(together([*spent, (1.0, noise * 0.998, 75)]))
    count = most_rounds(cap, spent, 1.0, 20.0, 75)
    assert 0 < count < 75
    assert cap.allows(together([*spent, (1.0, 20.0, count)]))
    assert not cap.allows(together([*spent, (1.0, 20.0, count + 1)]))


def test_little_noise_is_enough_where_much_is_left() -> None:
    cap, spent = Cap(60.0, 1e-5, "rdp"), together([(1.0, 24.0, 1)])
    noise = least_noise(cap, spent, 1.0, 1)
    assert noise is not None and noise < 0.5
    assert cap.allows(together([*spent, (1.0, noise, 1)]))
    assert not cap.allows(together([*spent, (1.0, noise * 0.998, 1)]))


def test_a_refusal_tells_what_fits_in_numbers(path: Path) -> None:
    ledger = Ledger(path)
    reserve(ledger, rounds=75, noise=6.0)
    with pytest.raises(OverspendError) as refused:
        reserve(ledger, rounds=75, noise=5.0)
    words = str(refused.value).split("what would fit: ")[1].split(" (open")[0]
    first, second = words.split(", or ")
    noise = float(first.split("at least ")[1].split()[0])
    reserve_rounds = int(second.split()[0])
    with reserve(ledger, rounds=75, noise=noise):
        pass
    reserve(ledger, rounds=reserve_rounds, noise=5.0)


def test_what_is_left_is_never_negative() -> None:
    assert (left(CAP, 0.5), left(CAP, 2.0), left(CAP, 3.0)) == (1.5, 0.0, 0.0)


def test_nothing_fits_into_a_full_ledger(path: Path) -> None:
    spent = together([(1.0, 0.1, 75)])
    assert least_noise(CAP, spent, 0.25, 75) is None
    with pytest.raises(EpifedError, match="no noise makes 3 trainings fit"):
        schedule(CAP, spent, 0.25, 75, 3)


def test_a_training_without_noise_is_refused(path: Path) -> None:
    with pytest.raises(OverspendError, match="would bring ε to inf"):
        reserve(Ledger(path), noise=0.0)


@pytest.mark.parametrize("bad", [{"rounds": 0}, {"rounds": 2.5}, {"rate": 0.0}, {"rate": 1.5}])
def test_what_cannot_be_priced_is_refused(path: Path, bad: dict[str, float]) -> None:
    with pytest.raises(EpifedError, match="expected"):
        reserve(Ledger(path), **bad)  # type: ignore[arg-type]


def test_the_planned_retrainings_fit_and_one_more_does_not(path: Path) -> None:
    ledger = Ledger(path)
    found = schedule(CAP, (), 0.25, 75, 12)
    assert most_trainings(CAP, (), 0.25, found.noise_multiplier, 75) == 12
    for _ in range(12):
        reserve(ledger, rounds=75, noise=found.noise_multiplier)
    with pytest.raises(OverspendError):
        reserve(ledger, rounds=75, noise=found.noise_multiplier)


def test_a_run_cannot_spend_more_than_it_reserved(path: Path) -> None:
    ledger = Ledger(path)
    run = reserve(ledger, rounds=1)
    run.spend(1)
    with pytest.raises(OverspendError, match="all its rounds \\(1\\)"):
        run.spend(2)
    with pytest.raises(EpifedError, match="run 'x': not in this ledger"):
        ledger.spend("x", 1)


def test_a_resumed_run_pays_for_the_round_it_repeats(path: Path) -> None:
    ledger = Ledger(path)
    run = reserve(ledger, rounds=3)
    run.spend(1)
    run.spend(2)  # and here it crashed, before the second round was released
    again = Ledger(path).resume(run.name, rounds_left=2)
    assert ledger.book().runs[run.name].rounds == 4
    again.spend(2)
    again.spend(3)
    again.finish("b0b")
    assert rounds(ledger.book()) == 4


def test_a_round_to_repeat_must_fit_as_well(path: Path) -> None:
    ledger = Ledger(path)
    run = reserve(ledger, rounds=75, noise=calibrate(2.0, 1e-5, 0.25, 75).noise_multiplier)
    run.spend(1)
    with pytest.raises(OverspendError):
        ledger.resume(run.name, rounds_left=75)
    ledger.resume(run.name, rounds_left=74)


# The file


def test_a_ledger_is_made_once(path: Path) -> None:
    with pytest.raises(EpifedError, match="exists already"):
        Ledger.create(path, CAP)
    assert Ledger(path).book().cap == CAP


@pytest.mark.parametrize(
    "epsilon, delta",
    [(0, 1e-5), (math.inf, 1e-5), (math.nan, 1e-5), (1, 1), (1, 0.9), (1, 0.011), (1, math.nan)],
)
def test_what_is_no_cap_is_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(EpifedError, match="expected a"):
        Cap(epsilon, delta, "rdp")


def test_a_cap_is_quoted_never_smaller_than_it_is() -> None:
    assert "ε = 2.00001 at δ = 1.00001e-05" in Cap(2.0000001, 1.000001e-5, "rdp").sentence()


def test_a_cap_may_renew_every_week() -> None:
    assert Cap(1.0, 1e-5, "rdp", weeks=1).sentence().count("in every window of 1 week,") == 1
    with pytest.raises(EpifedError, match="weeks: found 0; expected at least 1"):
        Cap(1.0, 1e-5, "rdp", weeks=0)


def test_a_large_delta_says_what_it_means() -> None:
    assert Cap(1.0, 1e-3, "rdp").warning() is None
    assert "are revealed entirely with a chance of 0.01" in (Cap(1.0, 0.01, "rdp").warning() or "")


def test_a_commit_is_durable(path: Path) -> None:
    with budget.transaction(path, "BEGIN") as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (3,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


@pytest.mark.parametrize("row", [1, 2, 4, 7, 9])
def test_verify_names_the_first_row_that_was_changed(path: Path, row: int) -> None:
    filled(path)
    sql(path, f"UPDATE entries SET row = replace(row, '20', '21') WHERE number = {row}")
    with pytest.raises(EpifedError, match=f"row {row} does not fit the chain"):
        Ledger(path)


def test_a_row_changed_together_with_its_hash_breaks_the_next(path: Path) -> None:
    book = filled(path).book()
    forged = canonical({"kind": "adopt", "note": "", "time": ""})
    digest = chained(book.hashes[2], forged)
    sql(path, f"UPDATE entries SET row = '{forged}', hash = '{digest}' WHERE number = 4")
    with pytest.raises(EpifedError, match="row 5 does not fit the chain"):
        Ledger(path)


@pytest.mark.parametrize(
    "statement, found",
    [
        ("DELETE FROM entries WHERE number = 4", "row 4 is missing"),
        ("DELETE FROM entries", "row 1 is missing"),
        ("DELETE FROM entries WHERE number > 6", "ends at row 6, .* is 9"),
        ("UPDATE head SET number = 4", "ends at row 9, .* is 4"),
        ("DELETE FROM head", "ends at row 9, .* is None"),
        ("UPDATE entries SET row = x'ff00' WHERE number = 3", "row 3 does not fit"),
        ("DROP TABLE entries", "damaged or truncated"),
    ],
)
def test_missing_and_truncated_rows_are_noticed(path: Path, statement: str, found: str) -> None:
    filled(path)
    sql(path, statement)
    with pytest.raises(EpifedError, match=found):
        Ledger(path)


def test_a_file_that_sqlite_calls_damaged_is_refused_though_its_rows_fit(path: Path) -> None:
    ledger = Ledger(path)
    sql(
        path,
        "CREATE TABLE more (value)",
        "INSERT INTO more VALUES (NULL)",
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_master SET sql = 'CREATE TABLE more (value NOT NULL)' WHERE name = 'more'",
    )
    assert len(ledger.book().hashes) == 1
    with pytest.raises(EpifedError, match=r"damaged: NULL value in more\.value; restore it"):
        ledger.verify()


def test_a_chain_that_fits_but_makes_no_sense_is_refused(path: Path) -> None:
    book = Ledger(path).book()
    text = canonical({"kind": "spend", "run": "nobody", "round": 1, "time": ""})
    digest = chained(book.head, text)
    sql(
        path,
        f"INSERT INTO entries VALUES (2, '{text}', '{digest}')",
        f"UPDATE head SET number = 2, hash = '{digest}'",
    )
    with pytest.raises(EpifedError, match=r"row 2 does not follow .* run 'nobody'"):
        Ledger(path)


def test_every_truncation_of_the_file_is_refused(path: Path, tmp_path: Path) -> None:
    filled(path)
    whole = path.read_bytes()
    for length in [*range(0, len(whole), 509), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(EpifedError, match=r"truncated|not a ledger"):
            Ledger(path)
    path.write_bytes(whole)
    Ledger(path)


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    text, other, empty = tmp_path / "a.csv", tmp_path / "b.db", tmp_path / "c.db"
    text.write_text("region,date,cases\n" * 100)
    sql(other, "CREATE TABLE entries (number, row, hash)")
    empty.touch()
    for file in (text, other, empty):
        with pytest.raises(EpifedError, match=f"{file.name}: not a ledger"):
            Ledger(file)
    for file in (tmp_path / "none.db", tmp_path):
        with pytest.raises(EpifedError, match="no such file"):
            Ledger(file)
    for file in (text, other, tmp_path):
        with pytest.raises(EpifedError, match="exists already"):
            Ledger.create(file, CAP)
    Ledger.create(empty, CAP)


def test_a_busy_ledger_is_waited_for_and_then_says_so(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = reserve(Ledger(path))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr(budget, "WAIT_SECONDS", 0.1)
    with pytest.raises(EpifedError, match="another process has been writing"):
        run.spend(1)
    other.close()
    run.spend(1)


INIT = {"kind": "init", "ledger": "00c0ffee00c0ffee", "epsilon": 2.0, "delta": 1e-5,
        "accountant": "rdp", "time": "2026-11-15T08:00:00+00:00"}  # fmt: skip
RESERVED = {
    "kind": "reserve",
    "run": "a",
    "time": INIT["time"],
    "sampling_rate": 0.25,
    "noise_multiplier": 4.9,
    "rounds": 1,
    "settings_hash": "",
    "training": "week",
    "first_day": "2026-01-01",
    "last_day": None,
    "mechanism": "gaussian",
    "accountant": "rdp",
    "note": "",
}
SPENT = {"kind": "spend", "run": "a", "round": 1, "time": INIT["time"]}


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ([], "row 1 is missing"),
        ([SPENT], "row 1 does not follow"),
        ([INIT | {"ledger": "mine"}], "row 1 does not follow.*expected 16 hexadecimal digits"),
        ([INIT | {"weeks": 0}], "weeks: found 0; expected at least 1"),
        ([INIT, INIT], "row 2 does not follow.*found 'init'; expected reserve"),
        ([INIT, SPENT], "row 2 does not follow"),
        ([INIT, RESERVED, RESERVED], "row 3 does not follow.*'a' was reserved before"),
        ([INIT, RESERVED, RESERVED | {"run": "b"}], "row 3.*'week' was reserved before"),
        (
            [INIT, RESERVED, SPENT, SPENT],
            "row 4.*more than the 1 rounds of run 'a'",
        ),
    ],
)
def test_rows_of_a_whole_chain_that_do_not_follow_are_refused(
    rows: list[dict[str, object]], fault: str
) -> None:
    """Whoever can write the file can chain anything; what no ledger writes is not believed."""
    stored, digest = [], budget.GENESIS
    for number, row in enumerate(rows, start=1):
        text = json.dumps(row)
        digest = budget.chained(digest, text)
        stored.append((number, text, digest))
    with pytest.raises(EpifedError, match=fault):
        budget.read_book(stored)
