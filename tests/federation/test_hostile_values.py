"""Values that somebody chose badly, or with intent: ids, limits, archives, deliveries, names."""

import json
import unicodedata
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from epifed.cli.common import messages, print_table
from epifed.data.panel import CasePanel
from epifed.data.vintages import FILE, count_vintages
from epifed.errors import EpifedError, printable
from epifed.federation.messages import Code, Delivery, MessageError
from epifed.federation.site import LEDGER, TERMS, SiteWork, archive_of
from epifed.federation.terms import Federation, Server, Site, Terms
from epifed.files import write_sheet
from epifed.learners.base import make_learner
from epifed.ledger.ledger import Ledger
from epifed.privacy.plan import PrivacyPlan
from epifed.settings import of_training
from epifed.training.release import Release
from tests.federation.helpers import panel, settings_of
from tests.federation.test_site import MINE, _kit, _long, _rows, _task
from tests.training.test_forged_releases import forge, release

__all__ = ["release"]  # a fixture
ESCAPE = "\x1b[31m"


@pytest.mark.parametrize(
    "clients",
    [
        ["01001", "1001"],
        ["1001", "1001.0"],
        ["Harz", "harz"],
        ["D\u00fcren", unicodedata.normalize("NFD", "D\u00fcren")],
        ["01001 ", "01002"],
        ["01001", "LK  Harz"],
        ["01001", ""],
        ["01001", "\u200b"],
        ["01001", f"Harz{ESCAPE}"],
    ],
)
@pytest.mark.parametrize("apart", [False, True])
def test_one_client_is_not_enrolled_under_two_ids(clients: list[str], apart: bool) -> None:
    """It would be clipped twice and move the sum by 2 S."""
    first, second = clients
    sites = (
        (Site(name="a", clients=(first,)), Site(name="b", clients=(second,)))
        if apart
        else (Site(name="a", clients=(first, second)),)
    )
    with pytest.raises(ValueError, match=r"sites: found the client"):
        Federation(server=Server(host="localhost"), sites=sites)


def test_clients_that_differ_are_enrolled() -> None:
    ids = ("01001", "10010", "Harz", "Harz 2", "D\u00fcren", "a-1", "a-01", "0", "1.5")
    roster = Federation(server=Server(host="localhost"), sites=(Site(name="a", clients=ids),))
    assert set(roster.clients) == set(ids)


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        ({"clip_norm": float("nan")}, "found nan"),
        ({"clipnorm": 1.0}, "clipnorm: not a setting that is a number"),
        ({"learner": 1.0}, "learner: not a setting that is a number"),
        ({"Rounds": 5}, "expected one such as clip_norm"),
    ],
)
def test_a_limit_that_limits_nothing_is_refused(
    tmp_path: Path, limits: dict[str, float], sentence: str
) -> None:
    written = Terms().to_toml().split("[limits]")[0]
    lines = [f"{name} = {value}" for name, value in limits.items()]
    (tmp_path / TERMS).write_text("\n".join([written, "[limits]", *lines]))
    with pytest.raises(EpifedError, match=sentence):
        Terms.read(tmp_path / TERMS)


def test_limits_of_every_learners_own_settings_are_taken() -> None:
    Terms(limits={"epochs": 3, "clip_norm": 1, "learning_rate": 0.1, "horizon": 7})
    settings = settings_of("fedavg", epochs=4)
    assert not Terms(limits={"epochs": 3}).within_limits(settings)
    assert Terms(limits={"epochs": 4}).within_limits(settings)


DAY = date(2020, 11, 1)
BROKEN: list[dict[str, Any]] = [
    {"as_of": [None], "region": ["x"], "reported": [DAY], "cases": [1]},
    {"as_of": [DAY], "region": [None], "reported": [DAY], "cases": [1]},
    {"as_of": [DAY], "region": ["x"], "reported": [None], "cases": [1]},
    {"as_of": [DAY], "region": ["x"], "reported": [DAY], "cases": [None]},
    {"as_of": [DAY], "region": ["x"], "reported": [date(1, 1, 1)], "cases": [1]},
    {"as_of": [DAY], "region": ["x"], "reported": [date(9999, 1, 1)], "cases": [1]},
    {"as_of": ["soon"], "region": ["x"], "reported": [DAY], "cases": [1]},
    {"as_of": [DAY], "cases": [1]},
    {"as_of": [], "region": [], "reported": [], "cases": []},
]


@pytest.mark.parametrize("rows", BROKEN, ids=range(len(BROKEN)))
def test_a_clients_broken_archive_silences_nobody_else(
    tmp_path: Path, rows: dict[str, Any]
) -> None:
    kit = _kit(tmp_path / "kit", _long(panel()))
    task = _task(settings_of("real-time", epsilon=2.0), "1111")
    expected = _rows(SiteWork(kit), task)
    folder = archive_of(kit, MINE[0])
    broken = {
        name: [MINE[0] if value == "x" else value for value in values]
        for name, values in rows.items()
    }
    pl.DataFrame(broken).write_parquet(folder / FILE)
    assert count_vintages(folder) == 0
    np.testing.assert_array_equal(_rows(SiteWork(kit), task)[1:], expected[1:])


def test_an_archive_that_makes_any_error_leaves_one_client_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit = _kit(tmp_path / "kit", _long(panel()))
    task = _task(settings_of("real-time", epsilon=2.0), "1111")
    expected = _rows(SiteWork(kit), task)
    work = SiteWork(kit)
    monkeypatch.setattr("epifed.federation.site.remember", _fails)
    np.testing.assert_array_equal(_rows(work, task), expected)


def _fails(*_: object, **__: object) -> CasePanel:
    raise TypeError("an archive that nobody thought of")


@pytest.mark.parametrize("content", [b"", b"\n", b"\xef\xbb\xbf\r\n", b"date,region,cases\n"])
@pytest.mark.parametrize("clients", [1, 4])
def test_a_file_without_rows_is_one_without_a_sign(
    tmp_path: Path, content: bytes, clients: int
) -> None:
    """Its only client is gone: the answer is of zeros, and the code shows nothing."""
    kit = _kit(tmp_path / "kit", _long(panel()))
    (kit / "cases.csv").write_bytes(content)
    task = _task(settings_of("trend", epsilon=2.0), "1" * clients, clients=MINE[:clients])
    rows = _rows(SiteWork(kit), task)
    assert rows.shape[0] == clients
    assert not rows.any()


def _taken_part(folder: Path) -> tuple[SiteWork, Release]:
    """A site that answered the one round of a training, and the training's release."""
    kit = _kit(folder / "kit", _long(panel()))
    (kit / TERMS).write_text(Terms().to_toml())
    settings, days = settings_of("trend", epsilon=1.0), panel()
    work = SiteWork(kit)
    _rows(work, _task(settings, "1111", randomness="secure"))
    learner = make_learner(settings)
    release = Release.of(
        learner, learner.start(of_training(0)[0]), PrivacyPlan.of(settings, 12), paid=1,
        period=(days.start, days.end), randomness="secure", ledger_run="20260301-ab",
    )  # fmt: skip
    return work, release


def _content(release: Release, folder: Path) -> bytes:
    path = folder / "made.epifed"
    replace(release, sha256=release.content_hash()).write(path)
    return path.read_bytes()


def test_what_was_paid_a_sites_own_book_says(tmp_path: Path) -> None:
    """A release that had to repeat rounds costs a site those that it answered."""
    work, release = _taken_part(tmp_path)
    repeated = replace(release, spent=(replace(release.spent[0], rounds=300),))
    work.receive(Delivery("flu", _content(repeated, tmp_path)))
    (run,) = Ledger(work.kit / LEDGER).book().runs.values()
    assert (run.spent, run.rounds, run.outcome) == (1, 1, "finished")


@pytest.mark.parametrize(
    "changes",
    [
        {"noise_multiplier": 900.0},
        {"sampling_rate": 0.01},
        {"clients": 24},
        {"last_day": date(2030, 1, 1)},
        {"settings": settings_of("trend", epsilon=0.01)},
        {"continues": "0" * 64},
        {"spent": 2},
    ],
)
def test_a_label_that_is_not_that_of_the_own_book_is_refused(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    work, release = _taken_part(tmp_path)
    (honest,) = release.spent
    if "spent" in changes:
        changes = {"spent": (honest, honest)}
    elif changes.keys() & vars(honest).keys():
        changes = {"spent": (replace(honest, **changes),)}
    with pytest.raises(MessageError, match="differs from this party's own ledger") as caught:
        work.receive(Delivery("flu", _content(replace(release, **changes), tmp_path)))
    assert caught.value.code is Code.REFUSED_CHANGE
    assert not list((work.kit / "models").glob("*"))
    work.receive(Delivery("flu", _content(release, tmp_path)))


def test_a_delivery_unpacks_to_no_more_than_the_terms_allow(tmp_path: Path, release: Path) -> None:
    kit = tmp_path / "kit"
    kit.mkdir()
    (kit / TERMS).write_text(Terms(most_numbers=1000).to_toml())
    np.save(tmp_path / "zeros.npy", np.zeros(2_000_000, np.float32))
    content = forge(release, (tmp_path / "zeros.npy").read_bytes()).read_bytes()
    work = SiteWork(kit)
    with pytest.raises(EpifedError, match="expected at most"):
        work.receive(Delivery("flu", content))
    sent = Delivery("flu", content).pack()
    about = json.dumps(json.loads(sent["about"]) | {"training": ["flu"]})
    for wrong in ({"array": b"0" * 2_000_000}, {"array": "text"}, {"about": about}):
        with pytest.raises(MessageError) as caught:
            work.receive(Delivery.unpack(sent | wrong))
        assert caught.value.code in (Code.SIZE, Code.BAD_TASK)
    assert not list((kit / "models").glob("*"))


def test_no_sentence_commands_a_terminal() -> None:
    assert str(EpifedError(f"region {ESCAPE}: found 3")) == r"region \x1b[31m: found 3"
    assert printable("D\u00fcren, 5 %\n") == "D\u00fcren, 5 %\n"
    assert printable("a\u202eb") == r"a\u202eb"
    names = CasePanel(np.ones((1, 3)), ("1",), date(2020, 1, 1), names=(f"Harz{ESCAPE}",)).names
    assert names == (r"Harz\x1b[31m",)


def test_a_name_in_a_table_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["Harz [/x]", "[bold]Bonn[/bold]", f"Kiel{ESCAPE}"]
    print_table("of [/y]", ["region [/z]"], [[name] for name in names], "by [link=x]", {0: "[/s]"})
    shown = capsys.readouterr().out
    for part in ("of [/y]", "Harz [/x]", "[bold]Bonn[/bold]", "by [link=x]", "[/s]"):
        assert part in shown
    assert "\x1b" not in shown
    messages.print(f"Kiel{ESCAPE}")
    assert "\x1b" not in capsys.readouterr().err


def test_a_formula_in_a_table_stays_a_text(tmp_path: Path) -> None:
    names = ['=HYPERLINK("x")', "+1", "-2", "@a", "\tb", "Harz", None]
    table = pl.DataFrame({"region": names, "name": names[::-1], "cases": range(-3, 4)})
    write_sheet(tmp_path / "a.csv", table)
    found = pl.read_csv(tmp_path / "a.csv")
    assert found["region"].to_list() == [
        *(f"'{name}" for name in names[:5] if name), "Harz", None,
    ]  # fmt: skip
    assert found["cases"].to_list() == list(range(-3, 4))
