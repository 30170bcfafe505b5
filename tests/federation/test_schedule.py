"""The weekly run on real processes: killed and doubled, a week is run and paid for once."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, timedelta
from pathlib import Path

import pytest

from epifed.federation.schedule import Journal
from epifed.ledger.budget import Cap
from epifed.ledger.ledger import Ledger
from epifed.rehearsal.local import LocalFederation
from epifed.training.release import read_release
from tests.federation.helpers import federation, panel
from tests.waiting import today, wait_for

pytestmark = pytest.mark.field


def _command(local: LocalFederation, folder: Path) -> list[str]:
    assert local.ledger is not None
    weekly = ["-c", "from epifed.cli import main; main()", "federation", "schedule"]
    named = {
        "--settings": folder / "trend.toml",
        "--federation": local.folder / "federation.toml",
        "--kit": local.kit("coordinator"),
        "--ledger": local.ledger,
        "--out": folder / "weeks",
    }
    options = [str(text) for pair in named.items() for text in pair]
    return [sys.executable, *weekly, str(folder / "weekly.toml"), "--despite-noise", *options]


def test_killed_or_doubled_a_week_is_run_and_paid_for_once(tmp_path: Path) -> None:
    yesterday = today(UTC) - timedelta(days=1)
    days = panel().counts.shape[1]
    cases = replace(panel(), start=yesterday - timedelta(days=days - 1))
    ledger = tmp_path / "budget.ledger"
    Ledger.create(ledger, Cap(5.0, 1e-5, "rdp"))
    first_day = yesterday + timedelta(days=1)
    weekday = f"{first_day:%A}".lower()
    (tmp_path / "weekly.toml").write_text(
        f'first = {first_day}\nweeks = 2\nweekday = "{weekday}"\nat = 00:00:00\ndays = {days}\n'
        "least_sites = 2\nmake_up_hours = 48\n"
    )
    (tmp_path / "trend.toml").write_text('learner = "trend"\nepsilon = 1.0\n')
    with federation(tmp_path / "local", 2, ledger=ledger, cases=cases) as local:
        command = _command(local, tmp_path)
        planned = subprocess.run([*command, "--plan"], capture_output=True, text=True, check=True)
        assert len(planned.stdout.splitlines()) == 2
        assert "2 weeks to come" in planned.stderr
        moments: tuple[Callable[[], object], ...] = (
            (tmp_path / "weeks").exists,
            lambda: Ledger(ledger).book().runs,
            lambda: any(run.spent for run in Ledger(ledger).book().runs.values()),
        )
        for moment in moments:
            with subprocess.Popen([*command, "--once"], stderr=subprocess.DEVNULL) as one:
                wait_for(lambda: moment() or one.poll() is not None, "a moment to kill it in")  # noqa: B023
                one.kill()
        both = [subprocess.Popen([*command, "--once"], stderr=subprocess.PIPE) for _ in range(2)]
        errors = [one.communicate()[1] for one in both]
        assert sorted(one.returncode for one in both) in ([0, 2], [0, 0]), errors
        again = subprocess.run([*command, "--once"], capture_output=True, text=True, check=True)
        assert "1 week to come" not in again.stdout
    (entry,) = Journal(tmp_path / "weeks").outcomes().values()
    assert (entry["week"], entry["outcome"]) == (f"week-{first_day}", "done")
    runs = [run for run in Ledger(ledger).book().runs.values() if run.spent]
    assert [(run.training, run.spent, run.outcome) for run in runs] == [
        (f"week-{first_day}", 1, "finished")
    ]
    for name in ("site-1", "site-2"):
        (model,) = local.kit(name).rglob("*.epifed")
        assert read_release(model).sha256 == runs[0].model_hash
    assert json.loads((tmp_path / "weeks" / "weeks.jsonl").read_text())["outcome"] == "done"
