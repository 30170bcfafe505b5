"""What an office does each week, in processes that have nothing but what Windows has."""

import json
import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

from epifed.federation.site import Source
from tests.federation.test_site_report import FIRST, Office
from tests.like_windows import lay_strict
from tests.waiting import GUARD, wait_for

pytestmark = [
    pytest.mark.field,
    pytest.mark.skipif(
        sys.platform == "win32", reason="Windows itself is better than what is like it"
    ),
]


@pytest.fixture
def like_windows(tmp_path: Path) -> dict[str, str]:
    folder = lay_strict(tmp_path / "site")
    search = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    here = {"PYTHONPATH": search, "LIKE_WINDOWS": str(tmp_path), "PYTHONIOENCODING": "cp1252"}
    return {**os.environ, **here}


def _epifed(
    environment: dict[str, str], folder: Path, *words: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "epifed", *words],
        env=environment, cwd=folder, capture_output=True, text=True, check=False,
        encoding="utf-8",
    )  # fmt: skip


def test_what_windows_has_not_is_not_there(like_windows: dict[str, str], tmp_path: Path) -> None:
    code = f"""
import os, pathlib
folder = pathlib.Path({str(tmp_path)!r})
found = []
for attempt in (
    os.getuid,
    os.fork,
    lambda: (folder / "2026-11-17T06:00").write_text(""),
    lambda: (folder / "a.").mkdir(),
    lambda: (folder / "link").symlink_to(folder),
):
    try:
        attempt()
        found.append(True)
    except (OSError, AttributeError):
        found.append(False)
(folder / "x").write_text(""); (folder / "y").write_text("")
with (folder / "x").open() as held:
    try:
        (folder / "y").replace(folder / "x")
        found.append(True)
    except (OSError, AttributeError):
        found.append(False)
(folder / "y").replace(folder / "x")
print(found)
"""
    done = subprocess.run(
        [sys.executable, "-c", f"exec({code!r}, {{'__name__': 'epifed.site_report'}})"],
        env=like_windows, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == str([False] * 6), done.stderr


def test_an_office_s_week(like_windows: dict[str, str], tmp_path: Path) -> None:
    north = Office.make(tmp_path / "north")
    north.give(FIRST)
    last = FIRST - timedelta(days=1)
    settings = tmp_path / "trend.toml"
    settings.write_text('learner = "trend"\nepsilon = 1.0\n')
    kit, model = str(north.kit), str(north.kit / "models" / f"week-{FIRST}.epifed")
    days = ["--from", f"{last - timedelta(days=60)}", "--to", f"{last}"]
    asked = ["--settings", str(settings), "--enrolled", "3", *days]
    before = _epifed(
        like_windows, tmp_path, "federation", "site", "--kit", kit, "--dry-run", "--json", *asked
    )
    assert before.returncode == 0, before.stderr
    assert len(json.loads(before.stdout)["vectors"]) == 3
    north.train(FIRST)
    steps = {
        "check": ["data", "check", str(north.file)],
        "week": ["federation", "report", "--kit", kit, "--out", str(north.out)],
        "forecast": ["forecast", model, "--data", str(north.file), "--archive", "archive"],
        "page": ["report", str(north.out / "2026-W10" / "results"), "--data", str(north.file)],
        "ledger": ["ledger", "show", str(north.kit / "site.ledger")],
        "verify": ["ledger", "verify", str(north.kit / "site.ledger")],
        "explain": ["explain", model, "--ledger", str(north.kit / "site.ledger")],
    }
    for name, words in steps.items():
        done = _epifed(like_windows, tmp_path, *words)
        assert done.returncode == (1 if name == "week" else 0), (name, done.stderr)
        assert "Traceback" not in done.stderr
    table = north.out / "latest" / "forecast.csv"
    assert pl.read_csv(table).height == 12
    written = [path for path in north.out.rglob("*") if path.suffix in {".csv", ".json", ".txt"}]
    assert written
    assert not any(b"\r\n" in path.read_bytes() for path in written)


def test_a_nowcast_of_an_own_list(like_windows: dict[str, str], tmp_path: Path) -> None:
    rows = ["entry,region,reported,cases"]
    for day in range(60):
        reported = FIRST + timedelta(days=day)
        for late, cases in enumerate((6, 3, 1)):
            rows.append(f"{reported + timedelta(days=late)},01001,{reported},{cases}")
    (tmp_path / "list.csv").write_text("\n".join(rows) + "\n")
    done = _epifed(
        like_windows, tmp_path, "nowcast", "--vintages", "list.csv", "--column-entry", "entry",
        "--column-region", "region", "--column-reported", "reported", "--column-cases", "cases",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert any((tmp_path / "nowcast").iterdir())


SERVICE = """
import sys
from pathlib import Path
from epifed.federation.site import Fetch
from epifed.federation.flare.parties import Command
from epifed.federation.flare.parties import Service, office_command
import os
kit, out, file = map(Path, sys.argv[1:4])
client = Command((sys.executable, "-c", "import time; time.sleep(600)"), dict(os.environ))
fetch = Fetch(kit, f'"{sys.executable}" -c "print(open({str(file)!r}).read())"', None, 60.0)
service = Service(kit, client, office_command(kit, out, "epifed-trend"), print, fetch, 5.0)
print("up", flush=True)
sys.exit(service.run())
"""


def test_the_service_without_its_federation(like_windows: dict[str, str], tmp_path: Path) -> None:
    """The file of the day by a command, the week's folder, an end in order."""
    north = Office.make(tmp_path / "north")
    north.give(FIRST)
    north.train(FIRST)
    Source(str(north.kit / "today.csv"), None, {}).write(north.kit)
    words = [str(north.kit), str(north.out), str(north.file)]
    running = subprocess.Popen(
        [sys.executable, "-c", SERVICE, *words], env=like_windows, stderr=subprocess.PIPE
    )
    page = north.out / "2026-W10" / "report.html"
    wait_for(page.is_file, "the page of the week", lambda: running.poll() is None)
    assert (north.kit / "today.csv").is_file()
    running.send_signal(signal.SIGTERM)
    assert running.wait(GUARD) == 0
