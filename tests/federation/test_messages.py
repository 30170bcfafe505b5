"""What the server takes from a site and what it does not; rosters and terms that cannot be."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from epifed.errors import EpifedError
from epifed.federation.flare.kits import (
    EXECUTOR,
    approve,
    assemble,
    certificate,
    make_kits,
    request_key,
)
from epifed.federation.messages import (
    SENTENCES,
    Code,
    MessageError,
    Parts,
    Task,
    accept,
    pack_code,
    pack_contribution,
    pack_task,
    state_digest,
    unpack_task,
)
from epifed.federation.terms import Federation, SiteLedger, Terms
from epifed.learners.base import Vector, make_learner
from epifed.ledger.ledger import Ledger
from epifed.privacy.accounting import spent
from epifed.privacy.noise import SecureRandomness
from epifed.privacy.plan import PrivacyPlan
from epifed.rehearsal.local import rehearsal_federation
from epifed.settings import Settings
from epifed.training.rounds import Rounds
from tests.federation.helpers import panel, task_of
from tests.helpers import small_settings

SETTINGS = small_settings(epsilon=2.0, clip_norm=1.0)
PLAN = PrivacyPlan.of(SETTINGS, 12)
LENGTH = 4
STATE = np.arange(3, dtype=np.float32)


def _task(**changes: object) -> Task:
    values: dict[str, object] = {
        "training": "a",
        "round": 1,
        "rounds": 4,
        "paid": 0,
        "settings": SETTINGS.to_toml(),
        "first_day": "2020-10-01",
        "last_day": "2020-11-09",
        "enrolled": 12,
        "noise_multiplier": 3.0,
        "randomness": "secure",
        "numbers": STATE.size,
        "length": LENGTH,
        "start": state_digest(STATE),
        "state": STATE,
    }
    task = task_of(SETTINGS, ("00001",), "1")
    return replace(task, **values | changes)  # type: ignore[arg-type]


def _accept(parts: Parts, drawn: str = "11") -> tuple[dict[str, Vector], list[Code]]:
    rounds = Rounds(make_learner(SETTINGS), PLAN, SecureRandomness(), LENGTH)
    return accept(parts, _task(round=3, clients=("x", "y"), drawn=drawn), rounds)


def _rows(*rows: list[float]) -> Vector:
    return np.array(rows, dtype=np.float32)


LONGEST, SHORT = [1.0, 0.0, 0.0, 0.0], [0.1, 0.2, 0.3, 0.4]
ROWS = _rows(LONGEST, SHORT)


def test_good_vectors_arrive_as_they_are() -> None:
    taken, wrong = _accept(pack_contribution("a", 3, ROWS))
    assert taken.keys() == {"x", "y"}
    np.testing.assert_array_equal(taken["x"], ROWS[0])
    np.testing.assert_array_equal(taken["y"], ROWS[1])
    assert wrong == []


@pytest.mark.parametrize("drawn", ["00", "01", "10"])
def test_the_vector_of_a_client_that_was_not_drawn_is_not_taken(drawn: str) -> None:
    taken, wrong = _accept(pack_contribution("a", 3, ROWS), drawn)
    assert taken.keys() == {client for client, mark in zip("xy", drawn, strict=True) if mark == "1"}
    assert wrong == []


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ([math.nan, 0, 0, 0], Code.NOT_FINITE),
        ([0, 0, 0, math.inf], Code.NOT_FINITE),
        ([0, 0, 0, -math.inf], Code.NOT_FINITE),
        ([3e38, 3e38, 0, 0], Code.NORM),
        ([1000, 0, 0, 0], Code.NORM),
        ([1.001, 0, 0, 0], Code.NORM),
    ],
)
@pytest.mark.parametrize("drawn", ["11", "01"])
def test_a_bad_vector_counts_as_zero_alone_and_is_named(
    row: list[float], code: Code, drawn: str
) -> None:
    taken, wrong = _accept(pack_contribution("a", 3, _rows(row, SHORT)), drawn)
    assert taken.keys() == {"y"}
    np.testing.assert_array_equal(taken["y"], ROWS[1])
    assert wrong == [code]


def _shaped(shape: object, **changes: object) -> Parts:
    """A contribution of good bytes that says another shape of itself."""
    about = {"training": "a", "round": 3, "dtype": "float32", "shape": shape} | changes
    return {"about": json.dumps(about), "array": ROWS.tobytes()}


def _nested(name: str, depth: int) -> Parts:
    text = json.dumps({"training": "a", "round": 3})[:-1]
    deep = "[" * depth + "]" * depth
    return {"about": f'{text}, "{name}": {deep}}}', "array": ROWS.tobytes()}


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        (pack_contribution("a", 3, ROWS[:, :3]), Code.SHAPE),
        (pack_contribution("a", 3, ROWS[:1]), Code.SHAPE),
        (pack_contribution("a", 3, ROWS[:0]), Code.SHAPE),
        (pack_contribution("a", 3, np.concatenate([ROWS, ROWS])), Code.SHAPE),
        (pack_contribution("a", 3, ROWS[0]), Code.SHAPE),
        (pack_contribution("a", 3, ROWS.T), Code.SHAPE),
        (_shaped([math.inf]), Code.SHAPE),
        (_shaped([math.nan, LENGTH]), Code.SHAPE),
        (_shaped([2, 4.0]), Code.SHAPE),
        (_shaped([True, 8]), Code.SHAPE),
        (_shaped([2, -1]), Code.SHAPE),
        (_shaped([2, 5]), Code.SHAPE),
        (_shaped([2**28, 2**28]), Code.SHAPE),
        (_shaped([2**62, 2**62]), Code.SHAPE),
        (_shaped([1] * 100 + [8]), Code.SHAPE),
        (_shaped([[2], [4]]), Code.SHAPE),
        (_shaped("24"), Code.SHAPE),
        (_shaped(8), Code.SHAPE),
        (_shaped(None), Code.SHAPE),
        (_shaped([2, 4], dtype="float64"), Code.DTYPE),
        (_shaped([2, 4], dtype="object"), Code.DTYPE),
        (_shaped([2, 4], dtype=["float32"]), Code.DTYPE),
        (pack_contribution("a", 3, ROWS.astype(np.float64)), Code.DTYPE),
        (pack_contribution("a", 3, ROWS.astype(np.int32)), Code.DTYPE),
        (pack_contribution("a", 2, ROWS), Code.LATE),
        (pack_contribution("b", 3, ROWS), Code.LATE),
        (_shaped([2, 4], round=[3]), Code.LATE),
        (pack_code("a", 3, Code.DATA), Code.DATA),
        (_shaped([2, 4], code="Traceback: 17 cases"), Code.MESSAGE),
        (_shaped([2, 4], code=None), Code.MESSAGE),
        (_shaped([2, 4], code={"data": 17}), Code.MESSAGE),
        (_nested("code", 400), Code.MESSAGE),
        (_nested("code", 100_000), Code.MESSAGE),
        (_nested("shape", 100_000), Code.MESSAGE),
        (_shaped([2, 4], more="x" * 1_000_000), Code.MESSAGE),
        ({"about": "1" * 10_000, "array": b""}, Code.MESSAGE),
        ({"about": "[]", "array": b""}, Code.MESSAGE),
        ({"about": {"training": "a", "round": 3}, "array": ROWS.tobytes()}, Code.MESSAGE),
        ({"about": 7, "array": ROWS.tobytes()}, Code.MESSAGE),
        ({"about": b"{}", "array": ROWS.tobytes()}, Code.MESSAGE),
        (_shaped([2, 4]) | {"array": ROWS}, Code.MESSAGE),
        (_shaped([2, 4]) | {"array": ROWS.tobytes()[:-1]}, Code.SHAPE),
        (_shaped([2, 4]) | {"array": b""}, Code.SHAPE),
        ({"about": _shaped([2, 4])["about"]}, Code.MESSAGE),
        ({}, Code.MESSAGE),
    ],
)
def test_what_is_not_a_contribution_has_a_code(parts: Parts, code: Code) -> None:
    with pytest.raises(MessageError) as caught:
        _accept(parts)
    assert caught.value.code is code


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(
    st.binary(max_size=64),
    st.text(max_size=64),
    st.lists(st.integers(-9, 2**40) | st.booleans() | st.floats(), max_size=3) | JSON,
    st.dictionaries(st.sampled_from(["training", "round", "code", "dtype"]), JSON),
)
def test_no_bytes_break_the_server(
    array: bytes, text: str, shape: object, changes: dict[str, object]
) -> None:
    for parts in (
        {"about": text, "array": array},
        _shaped(shape) | {"array": array},
        _shaped(shape, **changes),
    ):
        try:
            taken, _ = _accept(parts)
        except MessageError:
            continue
        assert all(np.isfinite(row).all() for row in taken.values())
        assert all(np.linalg.norm(row) <= 1.001 for row in taken.values())


@given(st.binary(min_size=32, max_size=32))
def test_whatever_the_vectors_hold_only_finite_short_ones_are_taken(array: bytes) -> None:
    taken, wrong = _accept(_shaped([2, 4]) | {"array": array})
    assert len(taken) + len(wrong) == 2
    assert all(np.linalg.norm(row.astype(np.float64)) <= 1.001 for row in taken.values())


def test_every_code_has_its_sentence() -> None:
    assert SENTENCES.keys() == set(Code)


def test_a_task_arrives_as_it_was() -> None:
    task = _task()
    found = unpack_task(pack_task(task))
    np.testing.assert_array_equal(found.state, task.state)
    assert {**vars(found), "state": 0} == {**vars(task), "state": 0}


@pytest.mark.parametrize(
    "changes",
    [
        {"training": "../a"},
        {"training": 7},
        {"clients": (1,)},
        {"clients": 3},
        {"drawn": "11"},
        {"drawn": ""},
        {"drawn": "2"},
        {"drawn": [1]},
        {"round": 0},
        {"round": 5},
        {"round": 1.0},
        {"paid": -1},
        {"enrolled": 0},
        {"start": "00" * 32},
        {"start": "x"},
        {"numbers": 2},
        {"length": 0},
        {"least": 0},
        {"randomness": "other"},
        {"noise_multiplier": -1.0},
        {"noise_multiplier": math.nan},
        {"noise_multiplier": 10**400},
        {"noise_multiplier": "x"},
        {"first_day": "2020-11-10"},
        {"last_day": "soon"},
        {"last_day": 7},
    ],
)
def test_a_task_that_a_site_must_not_act_on_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(MessageError) as caught:
        unpack_task(pack_task(_task(**changes)))
    assert caught.value.code is Code.BAD_TASK


@pytest.mark.parametrize(
    ("terms", "task", "settings", "code"),
    [
        ({"epsilon_per_release": 0.1}, {}, {}, Code.REFUSED_EPSILON),
        ({}, {"noise_multiplier": 0.0}, {}, Code.REFUSED_EPSILON),
        ({}, {}, {"epsilon": math.inf}, Code.REFUSED_EPSILON),
        ({}, {"randomness": "seeded"}, {}, Code.REFUSED_SEEDED),
        ({"first_day": "2020-10-02"}, {}, {}, Code.REFUSED_PERIOD),
        ({"last_day": "2020-11-08"}, {}, {}, Code.REFUSED_PERIOD),
        ({"most_numbers": 2}, {}, {}, Code.REFUSED_SETTINGS),
        ({"limits": {"clip_norm": 0.5}}, {}, {}, Code.REFUSED_SETTINGS),
        ({}, {}, {"clip_norm": 10.1}, Code.REFUSED_SETTINGS),
        ({}, {}, {"rounds": 1001}, Code.REFUSED_SETTINGS),
        ({}, {}, {"epochs": 301}, Code.REFUSED_SETTINGS),
    ],
)
def test_a_site_refuses_what_is_beyond_its_terms(
    terms: dict[str, object], task: dict[str, object], settings: dict[str, object], code: Code
) -> None:
    Terms(epsilon_per_release=50.0).refuse(_task(), SETTINGS, PLAN)
    own = Terms(**{"epsilon_per_release": 50.0} | terms)
    asked = SETTINGS.but(**settings)
    with pytest.raises(MessageError) as caught:
        own.refuse(_task(**task), asked, PrivacyPlan.of(asked, 12))
    assert caught.value.code is code


def test_a_sites_book_counts_every_round_and_refuses_beyond_the_total(tmp_path: Path) -> None:
    one = spent(3.0, 0.5, 4, 1e-5)
    book = SiteLedger(tmp_path / "site.ledger", Terms(epsilon_total=1.2 * one))
    for number, paid in ((1, 0), (1, 0), (3, 3)):
        book.take_part(_task(round=number, paid=paid), SETTINGS, PLAN)
    (record,) = Ledger(tmp_path / "site.ledger").book().runs.values()
    assert record.spent == 4
    assert record.rounds == 5, "round 3 was paid for twice, so five rounds are needed"
    book.finish("a", "hash")
    (record,) = Ledger(tmp_path / "site.ledger").book().runs.values()
    assert (record.spent, record.outcome) == (4, "finished"), "the fifth round was not answered"
    with pytest.raises(MessageError) as caught:
        book.take_part(_task(training="b"), SETTINGS, PLAN)
    assert caught.value.code is Code.REFUSED_TOTAL


def test_a_site_refuses_a_training_whose_noise_changes_under_its_name(tmp_path: Path) -> None:
    """Announced once with much noise, then with little: all would be booked at the first."""
    terms = Terms(epsilon_total=50.0, epsilon_per_release=50.0)
    book = SiteLedger(tmp_path / "site.ledger", terms)

    def take_part(settings: Settings = SETTINGS, **changes: object) -> None:
        task = _task(**{"noise_multiplier": 1e5} | changes)
        book.take_part(task, settings, PrivacyPlan.of(settings, task.enrolled))

    take_part()
    changed: tuple[dict[str, object], ...] = (
        {"noise_multiplier": 2.15},
        {"enrolled": 13},
        {"last_day": "2020-11-08"},
    )
    for changes in changed:
        with pytest.raises(MessageError) as caught:
            take_part(SETTINGS, round=2, paid=1, **changes)
        assert caught.value.code is Code.REFUSED_CHANGE
    with pytest.raises(MessageError) as caught:
        take_part(SETTINGS.but(epochs=9))
    assert caught.value.code is Code.REFUSED_CHANGE
    take_part(training="b", noise_multiplier=2.15)
    parts = Ledger(tmp_path / "site.ledger").book().released()
    assert parts == ((0.5, 2.15, 1), (0.5, 1e5, 1))
    book.finish("a", "hash")
    with pytest.raises(MessageError) as caught:
        take_part()
    assert caught.value.code is Code.REFUSED_CHANGE


def test_a_server_that_says_nothing_is_paid_pays_all_the_same(tmp_path: Path) -> None:
    """`paid` held at 0 and the same round asked for again: each answer counts."""
    allowed = spent(4.0, 0.5, 20, 1e-5)
    terms = Terms(epsilon_total=500.0, epsilon_per_release=allowed + 1e-6, accountant="rdp")
    book = SiteLedger(tmp_path / "site.ledger", terms)
    answers = 0
    with pytest.raises(MessageError) as caught:
        for _ in range(40):
            book.take_part(_task(noise_multiplier=4.0), SETTINGS, PLAN)
            answers += 1
    assert caught.value.code is Code.REFUSED_EPSILON
    (record,) = Ledger(tmp_path / "site.ledger").book().runs.values()
    assert record.spent == answers == 17, "with the three rounds to come they are twenty"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "server: found nothing"),
        ('[server]\nhost = "h"\n[[sites]]\nname = "a b"\nclients = ["1"]', "sites.0.name: found"),
        (
            '[server]\nhost = "h"\n[[sites]]\nname = "a"\nclients = ["1"]\n'
            '[[sites]]\nname = "b"\nclients = ["1"]',
            "found '1' 2 times",
        ),
        (
            'removed = ["a"]\n[server]\nhost = "h"\n[[sites]]\nname = "a"\nclients = ["1"]',
            "found 'a', which was removed",
        ),
        ("server = ", "expected TOML"),
        ("server = " + "[" * 100_000, "expected TOML"),
    ],
)
def test_a_roster_that_cannot_be_is_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "federation.toml"
    path.write_text(text)
    with pytest.raises(EpifedError) as caught:
        Federation.read(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_site_with_its_own_key_gets_a_locked_kit_and_nobody_else_has_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    roster = rehearsal_federation(panel(), 2)
    sites = (roster.sites[0], roster.sites[1].model_copy(update={"own_key": True}))
    roster = roster.model_copy(update={"sites": sites})
    made = make_kits(roster, tmp_path / "made")
    assert {kit.name for kit in made.kits} == {"coordinator", "server", "site-1"}
    (form,) = made.requests
    request = request_key(form / "participant.yml", tmp_path / "key")
    signed = approve(roster, tmp_path / "made", request, tmp_path / "answers")
    kit = tmp_path / "kit"
    with pytest.raises(EpifedError):
        assemble(roster, signed, tmp_path / "key", "SHA256:" + "00:" * 31 + "00", kit)
    assemble(roster, signed, tmp_path / "key", made.fingerprint, kit)
    assert certificate(kit).name == "site-2"
    key = (kit / "startup" / "client.key").read_bytes()
    elsewhere = [p for p in (tmp_path / "made").rglob("*") if p.is_file()]
    assert key not in [p.read_bytes() for p in elsewhere]
    resources = json.loads((kit / "local" / "resources.json").read_text())
    assert resources["class_allow_list"] == [EXECUTOR]
    assert resources["allow_log_streaming"] is False
    assert not any("log_streamer" in c["id"] for c in resources["components"])
    rights = json.loads((kit / "local" / "authorization.json").read_text())["permissions"]
    assert rights.keys() == {"lead"}
    assert rights["lead"]["byoc"] == rights["lead"]["shell_commands"] == "none"
