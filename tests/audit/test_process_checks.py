"""The audit on real processes, and what it reads of what they leave behind."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from epifed.audit import process_checks as processes
from epifed.audit.leak_checks import read_folder, status_strangers
from epifed.audit.statistics import Check
from epifed.settings import Settings

LINE = {"round": 1, "epsilon": 0.5, "problems": [], "time": 1.0, "sites": ["a"]}


def test_without_nvflare_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "find_spec", lambda name: None)
    (found,) = processes.check_processes(Settings())
    assert found.skipped
    assert "nvflare is not installed" in found.found


def test_a_federation_that_does_not_start_is_a_broken_rule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(settings: Settings) -> Any:
        raise OSError("no port")

    monkeypatch.setattr(processes, "find_spec", lambda name: object())
    monkeypatch.setattr(processes, "_run", broken)
    (found,) = processes.check_processes(Settings())
    assert isinstance(found, Check)
    assert not found.passed
    assert found.found == "OSError: no port"


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({"lines": [LINE]}, []),
        ({"came": 3}, ["'came' in a status"]),
        ({"lines": [LINE | {"sampled": ["a"]}]}, ["'sampled' in a report"]),
        (
            {"lines": [LINE | {"problems": [{"site": "a", "reason": "17 cases"}]}]},
            ["a reason in words, '17 cases'"],
        ),
        (
            {"lines": [LINE | {"problems": [{"site": "a", "reason": "data", "row": 3}]}]},
            ["'row' in a report's problem"],
        ),
    ],
)
def test_what_a_status_may_not_say(status: dict[str, Any], words: list[str]) -> None:
    assert status_strangers(status) == words


def test_what_a_folder_may_not_hold(tmp_path: Path) -> None:
    (tmp_path / "report.jsonl").write_text(json.dumps(LINE | {"norm": 0.3}) + "\n")
    (tmp_path / "updates.npy").write_bytes(b"")
    with zipfile.ZipFile(tmp_path / "model.epifed", "w") as file:
        file.writestr("release.json", json.dumps({"kind": "x", "mae": 3.0}))
        file.writestr("windows.npy", b"")
    assert sorted(read_folder(tmp_path)) == [
        "'mae' in release.json",
        "'norm' in a report",
        "'updates.npy' in the server's folder",
        "'windows.npy' in a release file",
    ]
