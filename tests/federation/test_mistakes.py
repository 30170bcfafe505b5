"""A user's mistakes with the federation's commands: one sentence, exit code 2, at once."""

import sys
from pathlib import Path

import pytest

from epifed.cli import main
from epifed.federation.flare.kits import make_kits
from epifed.rehearsal.local import rehearsal_federation
from tests.federation.helpers import panel
from tests.helpers import small_settings

DAYS = ("--from", "2020-10-01", "--to", "2020-11-01")
BACKWARDS = ("--from", "2020-11-01", "--to", "2020-10-01")
TRAIN = ("train", "settings.toml", "--federation", "federation.toml")


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("office")
    federation = rehearsal_federation(panel(), 1)
    (folder / "federation.toml").write_text(federation.to_toml())
    (folder / "settings.toml").write_text(small_settings().to_toml())
    panel().to_table().write_csv(folder / "cases.csv")
    make_kits(federation, folder)
    return folder


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            (*TRAIN, "--kit", "none", *DAYS),
            "none: found no startup kit; expected",
        ),
        ((*TRAIN, "--kit", "kits/site-1", *DAYS), "expected the coordinator's kit"),
        ((*TRAIN, "--kit", "kits/coordinator", *BACKWARDS), "expected the first before the last"),
        ((*TRAIN, "--kit", "kits/coordinator", *DAYS, "--name", "a/b"), "found 'a/b'"),
        (("train", "none.toml", *TRAIN[2:], "--kit", "kits/coordinator", *DAYS), "none.toml"),
        ((*TRAIN[:3], "none.toml", "--kit", "kits/coordinator", *DAYS), "none.toml"),
        (("status", "--kit", "kits/site-1"), "expected the coordinator's kit"),
        (("status", "kits"), "kits: found no kits/coordinator; expected the folder of"),
        (("status",), "--kit: found nothing; expected it, or the folder of 'federation new'"),
        (("stop", "--kit", "none"), "expected the coordinator's kit"),
        (("stop", "none"), "none: found no kits/coordinator; expected the folder of"),
        (("dashboard", "none"), "none: found no kits/server; expected the folder of"),
        (("server", "--kit", "kits/site-1"), "expected the server's kit"),
        (("server", "--kit", "kits/server", "--ledger", "none.db"), "none.db: no such file"),
        (("site", "--kit", "kits/server", "--data", "cases.csv"), "expected a site's kit"),
        (("site", "--kit", "kits/site-1", "--data", "none.csv"), "none.csv: no such file"),
        (("init", "settings.toml", "--out", "new"), "server: found nothing; expected a value"),
        (("rehearse", "--sites", "9", "--clients", "4"), "found 9 for 4 clients"),
    ],
)
def test_a_mistake_gets_one_sentence(
    office: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    expected: str,
) -> None:
    monkeypatch.chdir(office)
    before = sorted(office.rglob("*"))
    monkeypatch.setattr(sys, "argv", ["epifed", "federation", *words])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert expected in sentence
    assert sorted(office.rglob("*")) == before
