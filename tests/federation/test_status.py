"""The state of a federation as its coordinator may know it, from files that stay as they are."""

import json
import sqlite3
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from math import exp
from pathlib import Path

import pytest

from epifed.errors import EpifedError
from epifed.federation.messages import GERMAN, SENTENCES, Code, standing
from epifed.federation.server import REPORT
from epifed.federation.status import TRAININGS, Beside, FederationState, Live, read_status
from epifed.federation.training_history import Truth
from epifed.learners.growth import signals
from epifed.ledger.budget import Cap
from epifed.ledger.ledger import Ledger, Witness, glance
from epifed.training.release import read_release
from tests.federation.status_folders import Folders


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    made = Folders(tmp_path_factory.mktemp("status"))
    made.train(0, growth=0.3)
    made.skip(1, "1 site came, 2 expected")
    made.train(
        2,
        {
            "office-001": Code.ABSENT,
            "office-002": Code.REFUSED_TOTAL,
            "office-003": Code.NO_ANSWER,
        },
        growth=-0.2,
        delivered=("office-004",),
    )
    return made


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def kinds(seen: FederationState) -> list[str]:
    return [one.kind for one in seen.notices]


def test_every_code_has_words_in_both_languages() -> None:
    assert set(SENTENCES) == set(GERMAN) == set(Code)
    assert standing(Code.REFUSED_TRUST) == "refused"
    assert standing(Code.DATA) == "faulty"


def test_sites_by_what_the_last_round_said(folders: Folders) -> None:
    seen = read_status(folders.places(), Beside(), folders.after(2))
    assert {site.name: site.state for site in seen.sites} == {
        "office-001": "absent",
        "office-002": "refused",
        "office-003": "late",
        "office-004": "contributed",
    }
    assert [site.weeks for site in seen.sites] == ["ta", "tr", "tl", "tt"]
    assert seen.counted()["contributed"] == 1
    assert sum(seen.counted().values()) == 4
    assert seen.sites[1].code == "refused-total"
    assert seen.reasons["refused-total"]["de"] == GERMAN[Code.REFUSED_TOTAL]
    assert [site.has_release for site in seen.sites] == [False, False, False, True]


def test_who_is_connected_counts_before_the_last_report(folders: Folders) -> None:
    now = folders.after(2)
    live = Live(asked=now, reached=True, connected=("office-001", "office-002", "stranger"))
    seen = read_status(folders.places(), Beside(live), now)
    assert [site.state for site in seen.sites] == ["connected", "refused", "absent", "absent"]
    away = read_status(folders.places(), Beside(Live(asked=now, reached=False)), now)
    assert kinds(away)[0] == "server-away"
    assert [site.connected for site in away.sites] == [None] * 4


def test_weeks_of_the_schedule(folders: Folders) -> None:
    states = {}
    for number in (0, 1, 2, 3):
        week = read_status(folders.places(), Beside(), folders.after(number)).week
        assert week is not None and week.name == folders.week(number).name
        states[number] = week.state
    assert states == {0: "done", 1: "skipped", 2: "done", 3: "waiting"}
    assert week is not None
    assert (week.done, week.skipped, week.planned) == (2, 1, 52)
    late = read_status(folders.places(), Beside(), folders.after(3) + timedelta(hours=6))
    assert "week-overdue" in kinds(late)


def test_the_budget_is_the_ledger_s_and_the_plan_s(folders: Folders) -> None:
    seen = read_status(folders.places(), Beside(), folders.after(2)).budget
    book = Ledger(folders.ledger.path).book()
    assert seen is not None
    assert seen.spent == book.cap.price(book.released()) == seen.points[-1].epsilon
    assert seen.left == pytest.approx(1.0 - seen.spent)
    assert [point.day for point in seen.points] == [folders.week(0).day, folders.week(2).day]
    assert seen.plan[1].epsilon == pytest.approx(seen.spent)  # one of three weeks was skipped
    assert len(seen.plan) == 52 and seen.weeks_left == 49
    assert seen.weeks_fit is not None and seen.weeks_fit >= 49 and not seen.short


def test_a_budget_that_ends_before_its_schedule_is_said(tmp_path: Path) -> None:
    made = Folders(tmp_path, cap=Cap(0.5, 1e-5, "rdp"))
    made.train(0)
    seen = read_status(made.places(), Beside(), made.after(0))
    budget = seen.budget
    assert budget is not None and budget.weeks_fit is not None and budget.weeks_left == 51
    assert budget.short and "budget-short" in kinds(seen)
    # What the ledger itself would still take: that many weeks, and not one more.
    plan = made.plan
    taken = [(plan.priced_rate, plan.noise_multiplier, k) for k in (1 + budget.weeks_fit,)]
    assert made.cap.allows(tuple(taken))
    more = (plan.priced_rate, plan.noise_multiplier, 2 + budget.weeks_fit)
    assert not made.cap.allows((more,))
    assert budget.ends == made.week(budget.weeks_fit).day


def test_looking_changes_neither_ledger_nor_witness_nor_anything(folders: Folders) -> None:
    witness = Witness(folders.ledger.book().ledger).path
    before = digests(folders.root), witness.read_bytes(), witness.stat().st_mtime_ns
    stamps = {p: p.stat().st_mtime_ns for p in folders.root.rglob("*")}
    for _ in range(3):
        read_status(folders.places(), Beside(), folders.after(2))
    assert (digests(folders.root), witness.read_bytes(), witness.stat().st_mtime_ns) == before
    assert {p: p.stat().st_mtime_ns for p in folders.root.rglob("*")} == stamps


def test_a_witness_that_is_behind_stays_behind(tmp_path: Path) -> None:
    made = Folders(tmp_path)
    witness = Witness(made.ledger.book().ledger).path
    old = witness.read_bytes()
    made.train(0)
    new = witness.read_bytes()
    witness.write_bytes(old)
    assert glance(made.ledger.path)[1] is None
    assert witness.read_bytes() == old
    witness.write_bytes(new)


def test_an_older_copy_or_an_unknown_ledger_is_said(tmp_path: Path) -> None:
    made = Folders(tmp_path)
    path = made.ledger.path
    old = path.read_bytes()
    made.train(0)
    path.write_bytes(old)
    seen = read_status(made.places(), Beside(), made.after(0))
    assert seen.budget is not None and "older copy" in str(seen.budget.fault)
    assert {"ledger-fault", "unvouched"} <= set(kinds(seen))


@pytest.mark.parametrize("damage", ["gone", "text", "half-written"])
def test_a_ledger_that_cannot_be_read_is_said_and_left_alone(tmp_path: Path, damage: str) -> None:
    made = Folders(tmp_path)
    made.train(0)
    path = made.ledger.path
    if damage == "gone":
        path.unlink()
    elif damage == "text":
        path.write_text("no ledger")
    else:  # a writer that was killed within its commit leaves a hot journal
        _kill_within_a_commit(path)
    before = digests(tmp_path)
    seen = read_status(made.places(), Beside(), made.after(0))
    assert kinds(seen)[0] == "ledger-unread" and seen.budget is None
    assert digests(tmp_path) == before


def _kill_within_a_commit(path: Path) -> None:
    copy, journal = path.with_name("copy"), path.with_name(f"{path.name}-journal")
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA cache_size = 1")
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(
        "INSERT INTO entries VALUES (?, ?, 'x')", [(n, "x" * 4000) for n in range(100, 140)]
    )
    copy.write_bytes(path.read_bytes())
    log = journal.read_bytes()
    connection.execute("ROLLBACK")
    connection.close()
    copy.replace(path)
    journal.write_bytes(log)


def test_nothing_in_it_tells_of_the_draw(tmp_path: Path) -> None:
    made = Folders(tmp_path)
    made.settings = made.settings.model_copy(update={"clients_per_round": 3})
    made.train(0)
    one = read_status(made.places(), Beside(), made.after(0)).model_dump_json()
    # The same report after another draw: whatever was drawn, the state is the same.
    other = Folders(tmp_path / "other")
    other.settings = made.settings
    other.train(0)
    again = read_status(other.places(), Beside(), other.after(0)).model_dump_json()
    for key in ("drawn", "cohort", "sampled"):
        assert key not in one.replace("epsilon_without_amplification", "")
    assert _without_hashes(one) == _without_hashes(again)


def _without_hashes(text: str) -> object:
    found = json.loads(text)
    for training in found["trainings"]:
        training["release"] |= {"sha256": "", "created": ""}
    return found | {"budget": found["budget"] | {"head": ""}}


def test_reports_that_were_cut_off_or_of_a_newer_version(tmp_path: Path) -> None:
    made = Folders(tmp_path)
    made.train(0, {"office-001": Code.ABSENT})
    path = made.kit / TRAININGS / made.week(0).name / REPORT
    line = json.loads(path.read_text())
    line["problems"].append({"site": "office-002", "reason": "of-the-future"})
    path.write_text(json.dumps(line) + '\n{"round": 2, "prob')
    seen = read_status(made.places(), Beside(), made.after(0))
    assert [site.state for site in seen.sites[:2]] == ["absent", "faulty"]
    (path.parent.parent / "broken").mkdir()
    (path.parent.parent / "broken" / "order.json").write_text("{")
    assert len(read_status(made.places(), Beside(), made.after(0)).trainings) == 1


def test_certificates_that_run_out_are_said_by_how_soon(folders: Folders) -> None:
    now = folders.after(2)
    ends = {
        "server": now + timedelta(days=400),
        "office-001": now + timedelta(days=20),
        "office-002": now - timedelta(minutes=1),
    }
    seen = read_status(folders.places(), Beside(ends=ends), now)
    assert [(one.party, one.days) for one in seen.certificates] == [
        ("office-002", -1),
        ("office-001", 20),
        ("server", 400),
    ]
    found = {one.kind: one for one in seen.notices}
    assert found["certificate-over"].urgent and found["certificate-over"].names == ("office-002",)
    assert not found["certificate-soon"].urgent


def test_versions_that_differ_are_said(folders: Folders) -> None:
    now = folders.after(2)
    live = Live(
        asked=now,
        reached=True,
        connected=tuple(site.name for site in folders.roster.sites),
        versions={"office-001": "0.0.1"},
    )
    seen = read_status(folders.places(), Beside(live), now)
    assert [one.names for one in seen.notices if one.kind == "versions-differ"] == [("office-001",)]


def test_what_a_release_says_of_the_nation_is_public_arithmetic(
    folders: Folders, tmp_path: Path
) -> None:
    name = folders.week(0).name
    release = read_release(folders.kit / TRAININGS / name / "model.epifed")
    last = release.last_day
    counts = {last + timedelta(days=n): 700.0 + 7 * n for n in range(-40, 8)}
    path = tmp_path / "truth.csv"
    lines = [f"{day},{value}" for day, value in counts.items()]
    path.write_text("\n".join(["date,value", *lines]) + "\n")
    seen = read_status(folders.places(truth=Truth.read(path)), Beside(), folders.after(2))
    (worth, *_) = seen.worth
    assert worth.training == name and worth.target == last + timedelta(days=7)
    assert worth.like_today == pytest.approx(700 - 21)
    assert worth.came == pytest.approx(700 - 21 + 49)
    # By hand: the growth that the filter keeps of the released number, over one week.
    growth = signals(release.learner.unpack(release.vector)).growth[0]
    assert worth.forecast == pytest.approx((700 - 21) * exp(growth), rel=1e-5)
    path.write_text("\n".join(["date,value", *lines[:-1]]) + "\n")
    again = read_status(folders.places(truth=Truth.read(path)), Beside(), folders.after(2))
    assert again.worth[0].came is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("day,cases\n2026-01-01,3\n", "found day, cases; expected the columns date, value"),
        ("", "found nothing; expected the columns date, value"),
        ("date,value\n1.1.2026,3\n", "row 2, column date: found '1.1.2026'; expected YYYY-MM-DD"),
        ("date,value\n2026-01-01,-3\n", "row 2, column value: found '-3'; expected a number"),
        ("date,value\n2026-01-01,3\n2026-01-01,4\n", "row 3: found 2026-01-01 twice"),
    ],
)
def test_a_truth_that_is_none_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "truth.csv"
    path.write_text(text)
    with pytest.raises(EpifedError, match=sentence.replace("(", r"\(")):
        Truth.read(path)


def test_a_test_is_no_release_and_an_unusual_one_is_urgent(tmp_path: Path) -> None:
    made = Folders(tmp_path)
    made.train(0, {"all": Code.UNUSUAL})
    seen = read_status(made.places(), Beside(), made.after(0))
    assert seen.trainings[0].remarks == ("unusual",) and seen.notices[0].kind == "unusual"
    assert [site.state for site in seen.sites] == ["contributed"] * 4


def test_a_week_on_which_epsilon_was_spent_and_nothing_learned_is_urgent(tmp_path: Path) -> None:
    made = Folders(tmp_path)
    made.train(0, unused=1)
    made.skip(1, "1 of 4 sites would take part, 3 expected", "refused")
    seen = read_status(made.places(), Beside(), made.after(1))
    found = {one.kind: one for one in seen.notices}
    assert found["nothing-learned"].urgent and found["nothing-learned"].detail == made.week(0).name
    assert found["week-refused"].urgent and "1 of 4 sites" in found["week-refused"].detail
    assert not seen.trainings[0].learned
    assert seen.week is not None and seen.week.state == "refused"
    made.skip(1, "ε spent, nothing learned", "wasted")
    wasted = read_status(made.places(), Beside(), made.after(1)).week
    assert wasted is not None and (wasted.state, wasted.wasted) == ("wasted", 2)


def test_a_release_that_is_mostly_noise_is_said(tmp_path: Path) -> None:
    made = Folders(tmp_path)
    made.train(0)
    seen = read_status(made.places(), Beside(), made.after(0))
    (notice,) = (one for one in seen.notices if one.kind == "mostly-noise")
    assert (notice.urgent, notice.names) == (False, (made.week(0).name,))


def test_a_federation_that_has_not_begun(tmp_path: Path) -> None:
    made = Folders(tmp_path)
    seen = read_status(made.places(ledger=None, weeks=None, schedule=None, plan=None), Beside())
    assert {site.state for site in seen.sites} == {"unknown"}
    assert (seen.budget, seen.week, seen.trainings, seen.notices) == (None, None, (), ())
    assert seen.made <= datetime.now(UTC)
    before = read_status(made.places(), Beside(), made.after(0) - timedelta(days=9)).week
    assert before is not None and before.state == "coming"
