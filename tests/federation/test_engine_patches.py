"""What FLARE would end a job for: events and reports of a site, which the shield takes in."""

import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from filelock import FileLock
from nvflare.apis.shareable import Shareable
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.message import Message
from nvflare.private.defs import JobFailureMsgKey

from epifed.federation.flare import engine_patches
from epifed.federation.messages import Code


def test_a_message_is_refused_under_the_name_of_its_site() -> None:
    gate = engine_patches.Gate()
    gate.refuse({MessageHeaderKey.ORIGIN: "site-3.0c2d"}, Code.SIZE)
    gate.refuse({MessageHeaderKey.ORIGIN: 7}, Code.SIZE)
    gate.refuse(None, Code.SIZE)
    assert gate.refused == {"site-3": Code.SIZE}


def test_what_cannot_be_decoded_is_refused_and_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def decode(*_: Any) -> None:
        raise ValueError("no such type")

    monkeypatch.setattr(engine_patches, "_decode", decode)
    monkeypatch.setattr(engine_patches, "GATE", engine_patches.Gate())
    with pytest.raises(ValueError, match="no such type"):
        engine_patches._decoded(Message({MessageHeaderKey.ORIGIN: "north.1"}, b""))
    assert engine_patches.GATE.refused == {"north": Code.MESSAGE}


def test_an_event_of_a_site_is_not_queued() -> None:
    runner = SimpleNamespace(in_events=[])
    engine_patches._dropped(runner, "fed.event", Shareable(), None)
    assert runner.in_events == []


def test_a_report_of_failure_loses_the_code_that_ends_the_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(engine_patches, "_report", lambda _, request: seen.append(request.payload))
    payload = {JobFailureMsgKey.JOB_ID: "j", JobFailureMsgKey.CODE: 101}
    engine_patches._reported(None, Message({}, payload))
    assert seen == [{JobFailureMsgKey.JOB_ID: "j", JobFailureMsgKey.CODE: None}]


def test_a_kit_that_runs_already_or_a_used_port_ends_a_party(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with engine_patches.hold_kit(tmp_path), pytest.raises(SystemExit) as ended:
        engine_patches.hold_kit(tmp_path, 0)
    assert ended.value.code == 2
    assert "found another process that runs this kit" in capsys.readouterr().err
    with FileLock(tmp_path / ".running", timeout=0):
        pass
    with socket.create_server(("", 0)) as used:
        port = used.getsockname()[1]
        with pytest.raises(SystemExit):
            engine_patches.refuse_used(port)
    assert f"port {port}: Address already in use; expected" in capsys.readouterr().err
    engine_patches.refuse_used(port)
