"""What the server takes from a site and what it does not; rosters and terms that cannot be."""

import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from epifed.errors import EpifedError
from epifed.federation.codes import SENTENCES, Code
from epifed.federation.flare.kits import approve, assemble, certificate, make_kits, request_key
from epifed.federation.flare.policies import EXECUTOR
from epifed.federation.flare.rehearsal import rehearsal_federation
from epifed.federation.messages import (
    MessageError,
    Parts,
    Task,
    accept,
    pack_code,
    pack_contribution,
    pack_task,
    unpack_task,
)
from epifed.federation.roster import Federation
from epifed.federation.terms import SiteBook, Terms
from epifed.ledger.ledger import Ledger
from epifed.privacy.accounting import spent
from tests.federation.helpers import panel
from tests.helpers import small_settings


def _accept(parts: Parts) -> dict[str, torch.Tensor]:
    return accept(
        parts,
        training="a",
        number=3,
        asked=("x", "y"),
        length=4,
        dtype=torch.float32,
        clip_norm=1.0,
    )


def test_good_vectors_arrive_as_they_are() -> None:
    rows = torch.tensor([[1.0, 0, 0, 0], [0.1, 0.2, 0.3, 0.4]])
    taken = _accept(pack_contribution("a", 3, ("y", "x"), rows))
    assert torch.equal(taken["y"], rows[0])
    assert torch.equal(taken["x"], rows[1])


ROW = torch.tensor([[0.5, 0.0, 0.0, 0.0]])


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        (pack_contribution("a", 3, ("x",), ROW * math.nan), Code.NOT_FINITE),
        (pack_contribution("a", 3, ("x",), torch.tensor([[0, 0, 0, math.inf]])), Code.NOT_FINITE),
        (pack_contribution("a", 3, ("x",), ROW * 3e38 * 4), Code.NOT_FINITE),
        (pack_contribution("a", 3, ("x",), ROW[:, :3]), Code.SHAPE),
        (pack_contribution("a", 3, ("x", "y"), ROW), Code.SHAPE),
        (pack_contribution("a", 3, ("x",), ROW[0]), Code.SHAPE),
        (pack_contribution("a", 3, ("x",), ROW.double()), Code.DTYPE),
        (pack_contribution("a", 3, ("x",), ROW.int()), Code.DTYPE),
        (pack_contribution("a", 3, ("x",), ROW * 2000), Code.NORM),
        (pack_contribution("a", 3, ("x", "x"), ROW.repeat(2, 1)), Code.DUPLICATE),
        (pack_contribution("a", 3, ("z",), ROW), Code.FOREIGN_CLIENT),
        (pack_contribution("a", 2, ("x",), ROW), Code.LATE),
        (pack_contribution("b", 3, ("x",), ROW), Code.LATE),
        (pack_code("a", 3, Code.DATA), Code.DATA),
        ({"about": json.dumps({"code": "Traceback: 17 cases"})}, Code.MESSAGE),
        ({"about": "[]", "array": b""}, Code.MESSAGE),
        ({}, Code.MESSAGE),
    ],
)
def test_what_is_not_a_contribution_has_a_code(parts: Parts, code: Code) -> None:
    with pytest.raises(MessageError) as caught:
        _accept(parts)
    assert caught.value.code is code


@given(st.binary(max_size=64), st.text(max_size=64), st.lists(st.integers(-9, 2**40), max_size=3))
def test_no_bytes_break_the_server(array: bytes, text: str, shape: list[int]) -> None:
    about = {"training": "a", "round": 3, "clients": ["x"], "dtype": "float32", "shape": shape}
    for parts in ({"about": text, "array": array}, {"about": json.dumps(about), "array": array}):
        try:
            taken = _accept(parts)
        except MessageError:
            continue
        assert all(row.isfinite().all() and row.norm() <= 1.001 for row in taken.values())


def test_every_code_has_its_sentence() -> None:
    assert SENTENCES.keys() == set(Code)


def _task(**changes: object) -> Task:
    values: dict[str, object] = {
        "training": "a",
        "round": 1,
        "rounds": 4,
        "paid": 0,
        "settings": small_settings(epsilon=2.0).to_toml(),
        "first_day": "2020-10-01",
        "last_day": "2020-11-09",
        "enrolled": 12,
        "noise_multiplier": 3.0,
        "randomness": "secure",
        "clients": ("00001",),
        "state": torch.arange(3.0),
    }
    return Task(**values | changes)  # type: ignore[arg-type]


def test_a_task_arrives_as_it_was() -> None:
    task = _task()
    found = unpack_task(pack_task(task))
    assert torch.equal(found.state, task.state)
    assert {**vars(found), "state": 0} == {**vars(task), "state": 0}


@pytest.mark.parametrize(
    ("terms", "task", "code"),
    [
        ({"epsilon_per_release": 0.1}, {}, Code.REFUSED_EPSILON),
        ({}, {"noise_multiplier": 0.0}, Code.REFUSED_EPSILON),
        ({}, {"randomness": "seeded"}, Code.REFUSED_SIMULATION),
        ({"first_day": "2020-10-02"}, {}, Code.REFUSED_PERIOD),
        ({"last_day": "2020-11-08"}, {}, Code.REFUSED_PERIOD),
    ],
)
def test_a_site_refuses_what_is_beyond_its_terms(
    terms: dict[str, object], task: dict[str, object], code: Code
) -> None:
    settings = small_settings(epsilon=2.0)
    Terms(epsilon_per_release=50.0).refuse(_task(), settings)
    own = Terms(**{"epsilon_per_release": 50.0} | terms)
    with pytest.raises(MessageError) as caught:
        own.refuse(_task(**task), settings)
    assert caught.value.code is code


def test_a_sites_book_counts_every_round_and_refuses_beyond_the_total(tmp_path: Path) -> None:
    settings = small_settings(epsilon=2.0)
    one = spent(3.0, 0.5, 4, 1e-5)
    book = SiteBook(tmp_path / "site.ledger", Terms(epsilon_total=1.2 * one))
    for number, paid in ((1, 0), (1, 0), (3, 3)):
        book.take_part(_task(round=number, paid=paid), settings)
    (record,) = Ledger(tmp_path / "site.ledger").book().runs.values()
    assert record.spent == 4
    assert record.rounds == 5, "round 3 was paid for twice, so five rounds are needed"
    book.finish("a", 5, "hash")
    (record,) = Ledger(tmp_path / "site.ledger").book().runs.values()
    assert (record.spent, record.outcome) == (5, "finished")
    with pytest.raises(MessageError) as caught:
        book.take_part(_task(training="b"), settings)
    assert caught.value.code is Code.REFUSED_TOTAL


def test_a_site_refuses_a_training_whose_noise_changes_under_its_name(tmp_path: Path) -> None:
    """Announced once with much noise, then with little: all would be booked at the first."""
    settings = small_settings(epsilon=2.0)
    book = SiteBook(tmp_path / "site.ledger", Terms(epsilon_total=50.0))
    book.take_part(_task(noise_multiplier=1e5), settings)
    for changes in ({"noise_multiplier": 2.15}, {"enrolled": 13}, {"last_day": "2020-11-08"}):
        with pytest.raises(MessageError) as caught:
            book.take_part(_task(round=2, paid=1, **{"noise_multiplier": 1e5} | changes), settings)
        assert caught.value.code is Code.REFUSED_CHANGE
    with pytest.raises(MessageError) as caught:
        book.take_part(_task(noise_multiplier=1e5), settings.but(epochs=9))
    assert caught.value.code is Code.REFUSED_CHANGE
    book.take_part(_task(training="b", noise_multiplier=2.15), settings)
    parts = Ledger(tmp_path / "site.ledger").book().released()
    assert parts == ((0.5, 2.15, 1), (0.5, 1e5, 1))
    book.finish("a", 1, "hash")
    with pytest.raises(MessageError) as caught:
        book.take_part(_task(noise_multiplier=1e5), settings)
    assert caught.value.code is Code.REFUSED_CHANGE


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
