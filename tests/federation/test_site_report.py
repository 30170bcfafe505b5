"""What a site makes of its weeks for itself: what was forecast, or what is wrong."""

import json
import os
import re
import sys
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from epifed import site_report
from epifed.cli.app import app
from epifed.cli.outputs import schema
from epifed.data.panel import CasePanel
from epifed.data.vintages import remember, together
from epifed.errors import EpifedError
from epifed.federation import site
from epifed.federation.messages import Parts, Task, pack_task
from epifed.federation.server import Order, Problem, ServedTraining
from epifed.federation.site import FETCHED, Fetch, LastAsked, SiteWork, Source
from epifed.federation.terms import Federation, Server, Site, Terms
from epifed.ledger.budget import Cap
from epifed.ledger.ledger import Ledger
from epifed.settings import Settings
from tests.commands import epifed
from tests.federation.helpers import SitesPost
from tests.helpers import small_panel
from tests.waiting import GUARD

DAYS, FIRST = 130, date(2026, 3, 2)
MODEL = "epifed-trend"


@dataclass
class Office:
    """A federation of one site in one process, whose days go by as the test likes."""

    folder: Path
    panel: CasePanel
    settings: Settings
    sent: list[tuple[str, bytes]] = field(default_factory=list)
    """What left the site, in order."""

    @classmethod
    def make(cls, folder: Path, **changes: Any) -> "Office":
        values = {"learner": "trend", "epsilon": 1.0} | changes
        panel = replace(small_panel(3, DAYS), start=FIRST - timedelta(days=100))
        made = cls(folder, panel, Settings.resolve(3, values))
        made.kit.mkdir(parents=True)
        (made.kit / site.CLIENTS).write_text(json.dumps(panel.regions))
        (made.kit / site.TERMS).write_text(Terms(epsilon_total=50.0).to_toml())
        Source(str(made.file), None, {}).write(made.kit)
        Ledger.create(folder / "budget.ledger", Cap(50.0, 1e-5, "rdp"))
        return made

    @property
    def kit(self) -> Path:
        return self.folder / "kit"

    @property
    def file(self) -> Path:
        return self.folder / "cases.csv"

    @property
    def out(self) -> Path:
        return self.folder / "out"

    @property
    def federation(self) -> Federation:
        hosted = Site(name="north", clients=self.panel.regions)
        return Federation(server=Server(host="localhost"), sites=(hosted,))

    def give(self, morning: date) -> None:
        """The file as it is on a morning."""
        known = self.panel.between(self.panel.start, morning - timedelta(days=1))
        known.to_table().write_csv(self.file)

    def train(self, morning: date) -> dict[str, Any]:
        """The training of a morning: the server's line about it."""
        last = morning - timedelta(days=1)
        order = Order.of(f"week-{morning}", self.settings, last - timedelta(days=60), last)
        ledger = Ledger(self.folder / "budget.ledger")
        folder = self.folder / "trainings" / order.training
        training, work, lines = (
            ServedTraining(folder, self.federation, order, ledger),
            SiteWork(self.kit),
            list[dict[str, Any]](),
        )

        def answer(tasks: dict[str, Task]) -> tuple[dict[str, Parts], list[Problem]]:
            parts = {name: work.answer(pack_task(task))[0] for name, task in tasks.items()}
            self.sent += [(one["about"], one.get("array", b"")) for one in parts.values()]
            return parts, []

        # Another site answers in any case, with zeros.
        training._refuse_too_few = lambda *_: None  # type: ignore[method-assign]
        training.play(SitesPost(answer), lines.append)
        training.finish()
        work.receive(training.delivery())
        return lines[0]

    def update_site(self, morning: date) -> dict[str, Any]:
        now = datetime.combine(morning, time(7), tzinfo=UTC)
        return site_report.update_site(self.kit, self.out, MODEL, now)


@pytest.fixture
def north(tmp_path: Path) -> Office:
    return Office.make(tmp_path)


def test_a_week_is_a_folder_and_later_weeks_are_scored_on_it(north: Office) -> None:
    mornings = [FIRST + timedelta(weeks=week) for week in range(3)]
    for morning in mornings:
        north.give(morning)
        assert north.train(morning)["problems"] == []
        status = north.update_site(morning)
        assert status["problems"] == []
        assert status["made"]
    weeks = ["2026-W10", "2026-W11", "2026-W12"]
    assert [path.name for path in sorted(north.out.glob("*-W*"))] == weeks
    for week, folder in enumerate(sorted(north.out.glob("*-W*"))):
        names = {path.name for path in folder.iterdir()}
        assert names == {"report.html", "forecast.csv", "hub", "results"}
        assert (folder / "results" / "backtest.parquet").exists() == (week > 0)
    assert (north.out / "latest" / "week.txt").read_text() == "2026-W12\n"
    past = pl.read_parquet(north.out / "2026-W12" / "results" / "backtest.parquet")
    assert past["origin_date"].unique().to_list() == [
        morning - timedelta(days=1) for morning in mornings[:2]
    ]
    for week in range(2):
        last = mornings[week] - timedelta(days=1)
        came = north.panel.between(last + timedelta(days=1), last + timedelta(days=7))
        rows = past.filter(origin_date=last)
        assert rows["truth"].to_numpy() == pytest.approx(came.counts.mean(axis=1))
        table = pl.read_csv(north.out / f"2026-W{10 + week}" / "forecast.csv")
        made = table.filter(horizon=7)
        assert rows["point"].to_numpy() == pytest.approx(made["forecast"].to_numpy(), abs=1e-3)
        assert rows["persistence"].to_numpy() == pytest.approx(
            made["like_today"].to_numpy(), abs=1e-3
        )


def test_what_was_forecast_is_not_made_again_of_later_counts(north: Office) -> None:
    north.give(FIRST)
    north.train(FIRST)
    north.update_site(FIRST)
    before = (north.out / "2026-W10" / "forecast.csv").read_bytes()
    north.give(FIRST + timedelta(days=2))
    north.update_site(FIRST + timedelta(days=2))
    assert (north.out / "2026-W10" / "forecast.csv").read_bytes() == before


def test_a_question_about_the_next_training_makes_no_problem_of_the_last(north: Office) -> None:
    north.give(FIRST)
    north.train(FIRST)
    asked = LastAsked.of(north.kit)
    assert asked is not None
    replace(asked, training="week-2026-03-09").write(north.kit)
    assert north.update_site(FIRST)["problems"] == []
    (north.kit / site.LOG).unlink()
    (problem,) = north.update_site(FIRST)["problems"]
    assert problem.startswith("This site took no part in the training 'week-2026-03-02'")


@pytest.mark.parametrize(
    ("harm", "said", "reason", "made"),
    [
        (lambda text: text.replace("region", "Region id"), "Your data cannot be", "data", False),
        (lambda text: "", "counts as zero", None, False),
        (lambda text: text.splitlines()[0], "counts as zero", None, False),
        (lambda text: text.replace("00001", "77777"), "Client 00001 counts as zero", None, True),
        (lambda text: text.replace(",00001,", ",00001,x"), "Client 00001 counts as", None, True),
    ],
)
def test_a_bad_file_is_said_and_the_week_sat_out(
    north: Office, harm: Any, said: str, reason: str | None, made: bool
) -> None:
    north.give(FIRST)
    good = north.file.read_text()
    north.file.write_text(harm(good))
    line = north.train(FIRST)
    assert line["problems"] == ([{"site": "north", "reason": reason}] if reason else [])
    status = north.update_site(FIRST)
    text = (north.out / "problem.txt").read_text()
    assert said in text
    assert f"training 'week-{FIRST}'" in text
    assert status["problems"] == text.splitlines()
    assert status["made"] == made, "the other clients have their forecast"
    north.file.write_text(good)
    mended = north.update_site(FIRST)
    assert mended["made"]
    assert not any(one.startswith("Your data") for one in mended["problems"])
    assert (north.out / "2026-W10" / "problem.txt").exists(), "that it sat out stays with the week"


def test_problem_txt_is_german_where_the_machine_is(
    north: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    north.give(FIRST)
    good = north.file.read_text()
    north.file.write_text(good.replace(",00001,", ",00001,x"))
    north.train(FIRST)
    status = north.update_site(FIRST)
    text = (north.out / "problem.txt").read_text()
    assert "00001 zählt als null: " in text and "erwartet: eine Zahl ab 0" in text
    assert f"Im Training 'week-{FIRST}' zählte 00001 als null" in text
    assert not re.search(r"\b(found|expected|the|counts)\b", text)
    assert status["problems"][0].startswith("Client 00001 counts as zero"), "the record is not"


def test_counts_that_come_late_are_forecast_from_once_they_are_there(north: Office) -> None:
    north.give(FIRST - timedelta(days=3))
    north.train(FIRST)
    text = "\n".join(north.update_site(FIRST)["problems"])
    assert "found counts from 2025-11-22 to 2026-02-26; expected 2025-12-31 to 2026-03-01" in text
    assert "No forecast of 2026-W10" in text
    assert not (north.out / "2026-W10").exists()
    north.give(FIRST)
    assert north.update_site(FIRST)["made"]


def test_old_counts_are_a_problem_before_a_training_is(north: Office) -> None:
    north.give(FIRST)
    assert north.update_site(FIRST)["problems"] == []
    assert (
        "Your data end on 2026-03-01" in north.update_site(FIRST + timedelta(days=9))["problems"][0]
    )


def test_a_fault_in_the_report_hurts_no_training(
    north: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no")

    north.give(FIRST)
    north.train(FIRST)
    with monkeypatch.context() as patched:
        patched.setattr(site_report, "write_report", broken)
        status = north.update_site(FIRST)
    assert status["problems"] == [
        "No forecast of 2026-W10, by a fault of epifed: RuntimeError('no')"
    ]
    assert sorted(path.name for path in north.out.iterdir()) == [
        ".lock", "problem.txt", "status.json",
    ]  # fmt: skip
    assert north.update_site(FIRST)["made"]


def test_a_file_that_cannot_be_replaced_does_not_stop_the_others(
    north: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Windows, where somebody looks at the page of last week."""
    north.give(FIRST)
    north.train(FIRST)
    real = Path.replace

    def replace_file(path: Path, target: Path) -> Path:
        if Path(target) == north.out / "latest" / "report.html":
            raise PermissionError(13, "Permission denied")
        return real(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", replace_file)
        status = north.update_site(FIRST)
    assert status["made"]
    (problem,) = status["problems"]
    assert "report.html is still that of an earlier week" in problem
    assert (north.out / "latest" / "forecast.csv").exists()
    assert north.update_site(FIRST)["problems"] == []
    assert (north.out / "latest" / "report.html").exists()


def test_vintages_are_kept_each_day_and_become_a_nowcast(tmp_path: Path) -> None:
    north = Office.make(tmp_path)
    north.panel = replace(north.panel, counts=np.round(north.panel.counts))
    mornings = [FIRST - timedelta(days=back) for back in range(16, -1, -1)]
    for morning in mornings:
        north.give(morning)
        status = north.update_site(morning)
    assert status["mornings_kept"] == len(mornings)
    north.train(FIRST)
    assert north.update_site(FIRST)["problems"] == []
    nowcast = pl.read_csv(north.out / "2026-W10" / "nowcast.csv", try_parse_dates=True)
    assert nowcast["date"].max() == FIRST - timedelta(days=1)
    assert set(nowcast.columns) >= {"known", "estimate", "lower", "upper", "r"}
    assert (north.out / "latest" / "nowcast.csv").exists()


def test_the_real_time_learner_reads_vintages_once_enough_are_kept_and_says_since_when(
    tmp_path: Path,
) -> None:
    north = Office.make(tmp_path, learner="real-time")
    north.panel = replace(north.panel, counts=np.round(north.panel.counts))
    first = FIRST + timedelta(weeks=1)
    for day in range(22):
        morning = FIRST + timedelta(days=day)
        north.give(morning)
        if day in (7, 14, 21):
            north.train(morning)
        status = north.update_site(morning)
        if morning == first:
            assert any("8 of 14 days are archived" in note for note in status["notes"])
    since = FIRST + timedelta(days=13)
    assert any(f"of your own list, since {since}" in note for note in status["notes"])
    records = [
        json.loads((folder / "results" / "manifest.json").read_text())["release"]["real_time_since"]
        for folder in sorted(north.out.glob("*-W*"))
    ]
    assert records == [None, str(since), str(since)]
    page = (north.out / "latest" / "report.html").read_text()
    assert f'"since":"{since}"' in page.replace('": "', '":"')


def test_weekly_lists_are_completed_once_enough_are_kept_and_the_page_says_since_when(
    tmp_path: Path,
) -> None:
    north = Office.make(tmp_path, learner="trend", step="week")
    counts = (60 + np.arange(54).reshape(3, 18) * 7 % 40).astype(np.float64)
    start = FIRST - timedelta(weeks=12)
    north.panel = CasePanel(counts, north.panel.regions, start, step="week")
    for week in range(6):
        monday = FIRST + timedelta(weeks=week)
        north.give(monday)
        north.train(monday)
        status = north.update_site(monday)
        assert status["problems"] == []
    since = FIRST + timedelta(weeks=3)
    assert any(f"vintages of your own list, since {since}" in note for note in status["notes"])
    records = [
        json.loads((folder / "results" / "manifest.json").read_text())["release"]["real_time_since"]
        for folder in sorted(north.out.glob("*-W*"))
    ]
    assert records == [None] * 3 + [str(since)] * 3
    page = (north.out / "latest" / "report.html").read_text()
    assert f'"since":"{since}"' in page.replace('": "', '":"')


def test_no_forecast_is_made_of_a_release_that_learned_nothing(
    north: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    north.give(FIRST)
    finish = ServedTraining.finish

    def wasted(training: ServedTraining) -> Any:
        training.unused = training.paid
        return finish(training)

    monkeypatch.setattr(ServedTraining, "finish", wasted)
    north.train(FIRST)
    status = north.update_site(FIRST)
    assert not status["made"]
    assert "ε was spent and nothing learned" in (north.out / "problem.txt").read_text()
    model = north.kit / "models" / f"week-{FIRST}.epifed"
    done = epifed("forecast", model, "--data", north.file, expect=2)
    assert "nothing learned" in done.stderr


def test_a_release_that_is_mostly_noise_says_so(tmp_path: Path) -> None:
    north = Office.make(tmp_path, epsilon=0.05)
    north.give(FIRST)
    north.train(FIRST)
    assert any("noise hides most of it" in note for note in north.update_site(FIRST)["notes"])


def test_the_common_mornings_of_clients_that_were_kept_alone(tmp_path: Path) -> None:
    """Against one archive of both: the mornings on which one was not looked at are joined."""
    whole = replace(small_panel(2, 60), start=date(2026, 1, 1))
    days = [date(2026, 2, 1) + timedelta(days=day) for day in range(20)]
    for day in days:
        known = whole.between(whole.start, day)
        both = remember(tmp_path / "both", known) if day.day != 5 else known
        alone = [
            remember(tmp_path / client, known.alone(client))
            for client in known.regions
            if not (day.day == 5 and client == "00001")
        ]
    joined = together(known, alone)
    assert joined.history is not None
    assert both.history is not None
    assert joined.history.snapshots == both.history.snapshots
    assert joined.history.changes.equals(both.history.changes)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("print('date,region,cases')", ""),
        ("import sys; sys.exit('no database')", "found exit code 1: no database; expected 0"),
        ("pass", "found that it printed nothing; expected the file on standard output"),
        ("import time; time.sleep(600)", "found no end of it after 1 seconds; expected one"),
    ],
)
def test_a_command_s_file_takes_the_place_of_the_last_only_if_it_ended_well(
    tmp_path: Path, program: str, said: str
) -> None:
    (tmp_path / "print.py").write_text(program)
    words = f'"{sys.executable}" "{tmp_path / "print.py"}"'
    fetch = Fetch(tmp_path, words, None, 1.0 if "sleep" in program else GUARD)
    fetch.path.write_text("before\n")
    assert fetch.run() == said
    assert fetch.path.read_text() == ("before\n" if said else "date,region,cases\n")
    assert json.loads((tmp_path / FETCHED).read_text())["problem"] == said
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["print.py", "fetched.json", "today.csv"]
    )


def test_a_command_that_writes_the_file_itself(tmp_path: Path) -> None:
    target = tmp_path / "cases.csv"
    fetch = Fetch(tmp_path, f'"{sys.executable}" -c "pass"', target, 10.0)
    assert fetch.run() == f"{target}: not there; expected its file"
    target.write_text("date,region,cases\n")
    assert fetch.run() == ""
    assert fetch.path == target


def test_a_failing_command_stands_in_problem_txt(north: Office) -> None:
    north.give(FIRST)
    Fetch(north.kit, f'"{sys.executable}" -c "raise SystemExit(3)"', north.file, 10.0).run()
    (problem,) = north.update_site(FIRST)["problems"]
    assert problem == "The command for your data failed: found exit code 3; expected 0"


def test_the_command_line(north: Office) -> None:
    north.give(FIRST)
    north.train(FIRST)
    words = ["federation", "report", "--kit", str(north.kit), "--out", str(north.out)]
    done = epifed(*words, expect=1, environment={**os.environ, "COLUMNS": "200"})
    assert "2026-W10 is in" in done.stdout
    assert "Your data end on 2026-03-01" in done.stderr
    jsonschema.validate(
        json.loads((north.out / "status.json").read_text()), schema("federation report")
    )


def _dry_run(north: Office, *words: str) -> dict[str, Any]:
    command = ["federation", "site", "--kit", str(north.kit), "--dry-run", "--json", *words]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(found, schema("federation site"))
    return found


@pytest.mark.parametrize("learner", ["trend", "one-shot", "real-time"])
def test_a_dry_run_shows_what_a_training_then_gets(tmp_path: Path, learner: str) -> None:
    north = Office.make(tmp_path, learner=learner)
    north.give(FIRST)
    kept = sorted(path.name for path in north.kit.rglob("*"))
    settings = tmp_path / "settings.toml"
    settings.write_text(f'learner = "{learner}"\nepsilon = 1.0\n')
    last = FIRST - timedelta(days=1)
    days = ["--from", f"{last - timedelta(days=60)}", "--to", f"{last}"]
    shown = _dry_run(north, "--settings", str(settings), "--enrolled", "3", *days)
    assert sorted(path.name for path in north.kit.rglob("*")) == kept, "nothing is written"
    north.train(FIRST)
    (about, array), *_ = north.sent
    rows = np.frombuffer(array, dtype=np.float32).reshape(json.loads(about)["shape"])
    assert np.array(list(shown["vectors"].values()), dtype=np.float32).tolist() == rows.tolist()
    assert np.abs(rows).sum() > 0
    assert len(shown["entries"]) == rows.shape[1]
    assert shown["norms"] == pytest.approx(
        dict(zip(north.panel.regions, np.linalg.norm(rows, axis=1), strict=True))
    )
    assert max(shown["norms"].values()) <= shown["bound"] * (1 + 1e-6)
    same = json.loads(about) | {"training": "preview"}
    assert shown["about"] == same
    assert shown["bytes"] == len(json.dumps(same)) + len(array)


def test_a_dry_run_knows_the_last_training_and_what_is_wrong(north: Office) -> None:
    early = ["federation", "site", "--kit", str(north.kit), "--dry-run"]
    done = CliRunner().invoke(app, early)
    assert isinstance(done.exception, EpifedError)
    assert "--settings, --enrolled, --from and --to" in str(done.exception)
    north.give(FIRST)
    north.train(FIRST)
    spent = Ledger(north.kit / site.LEDGER).book().head
    good = _dry_run(north, "--from", "2025-12-31", "--to", "2026-03-01")
    text = north.file.read_text()
    north.file.write_text(text.replace(",00001,", ",00001,x"))
    bad = _dry_run(north, "--from", "2025-12-31", "--to", "2026-03-01")
    assert bad["vectors"]["00001"] == [0.0] * len(bad["entries"])
    assert bad["vectors"]["00000"] == good["vectors"]["00000"]
    assert "expected a number" in bad["left_out"]["00001"]
    late = _dry_run(north)
    assert all(value == [0.0, 0.0] for value in late["vectors"].values())
    assert "expected" in late["left_out"]["00000"]
    assert Ledger(north.kit / site.LEDGER).book().head == spent
    people = CliRunner().invoke(app, [*early, "--from", "2025-12-31", "--to", "2026-03-01"])
    assert "change against the week before" in people.stdout
    assert "norm" in people.stdout
    assert '"training": "preview"' in people.stdout
