"""The units of docs/systemd, checked by systemd's own tool in a root of stubs."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

UNITS = sorted((Path(__file__).resolve().parents[2] / "docs" / "systemd").glob("*.service"))
ANALYZE = shutil.which("systemd-analyze") or shutil.which(
    "systemd-analyze", path=Path(sys.executable).parent
)
pytestmark = [
    pytest.mark.field,
    pytest.mark.skipif(
        ANALYZE is None, reason="no systemd-analyze here: 'make systemd-analyze' fetches Debian's"
    ),
]
TARGETS = ("sysinit", "basic", "shutdown", "network-online", "multi-user")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine with nothing but the program, the units and the targets that they name."""
    program = tmp_path / "opt" / "epifed" / "bin" / "epifed"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    units = tmp_path / "etc" / "systemd" / "system"
    units.mkdir(parents=True)
    for unit in UNITS:
        shutil.copy(unit, units)
    for target in TARGETS:
        (units / f"{target}.target").write_text(f"[Unit]\nDescription={target}\n")
    return tmp_path


def _said(root: Path, unit: str) -> tuple[int, str]:
    words = [str(ANALYZE), "verify", "--man=no", f"--root={root}", unit]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_all_units_are_here() -> None:
    parties = {"aggregator", "dashboard", "schedule", "server", "site"}
    assert {unit.stem.removeprefix("epifed-") for unit in UNITS} == parties


@pytest.mark.parametrize("unit", [unit.name for unit in UNITS])
def test_systemd_has_nothing_to_say_about_a_unit(root: Path, unit: str) -> None:
    assert _said(root, unit) == (0, "")


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("NoNewPrivileges=", "NoNewPrivilegs=", "Unknown key 'NoNewPrivilegs'"),
        (r"RestartSec=\d+", "RestartSec=five", "Failed to parse"),
        ("/opt/epifed/bin/epifed", "/opt/epifed/bin/other", "is not executable"),
        (r"ReadWritePaths=/\S+", "ReadWritePaths=var", "not absolute"),
    ],
)
def test_it_would_say_what_is_wrong(root: Path, right: str, wrong: str, said: str) -> None:
    path = root / "etc" / "systemd" / "system" / "epifed-site.service"
    text = path.read_text()
    changed = re.sub(right, wrong, text, count=1)
    assert changed != text
    path.write_text(changed)
    _, found = _said(root, path.name)
    assert said in found
