"""A site's own weekly report: forecast, nowcast and page, in a folder for each week.

Nothing here is part of a training, and nothing leaves the machine. A week's folder is made once,
when its release has arrived and the counts reach the end of the training data. It then stays as it
was forecast on the day, and later weeks are scored on it. A problem is stated in plain words in
`problem.txt`, and the report is tried again when the counts change.

    OUT/status.json, OUT/problem.txt          the present state; the latter only with a problem
    OUT/2026-W47/report.html, forecast.csv    a week; nowcast.csv where vintages are stored,
                 hub/, results/               forecasts in the format of hubs, all tables
    OUT/latest/                               copies of the newest week's files
"""

import contextlib
import re
import shutil
import tempfile
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
from filelock import FileLock

from epifed.data.calendar import WEEK, Step
from epifed.data.panel import CasePanel
from epifed.data.quality import RECENT_DAYS
from epifed.data.vintages import LEAST_VINTAGES, count_vintages, remember, together
from epifed.data_check import check_panel
from epifed.errors import EpifedError, counted, spoken
from epifed.evaluation.backtest import keep_forecast, label
from epifed.evaluation.results_folder import RESULTS
from epifed.federation.answers import MODELS
from epifed.federation.site import (
    LEDGER,
    Fetched,
    LastAsked,
    Source,
    archive_of,
    full_disk,
    hosted_clients,
    preview,
    remembered,
    this_week,
    took_part,
)
from epifed.federation.terms import OLD_DAYS
from epifed.files import read_json, to_json, write_atomic, write_sheet, write_text
from epifed.forecasting import forecast_releases, timely
from epifed.hubs.submission import write_hub
from epifed.nowcasting.transmission import nowcast_on
from epifed.privacy.accounting import rounded_up
from epifed.privacy.plan import PrivacyPlan
from epifed.report.html import write_report
from epifed.settings import Settings
from epifed.training.loop import POOR, expect
from epifed.training.release import Release, read_release

STATUS, PROBLEM, LATEST, MARK = "status.json", "problem.txt", "latest", "week.txt"
REPORT, FORECAST, NOWCAST = "report.html", "forecast.csv", "nowcast.csv"
HUB = "hub"
REAL_TIME = "real_time_since.txt"
"""In the kit: the day since which late reports are filled up there."""
WEEK_NAME = re.compile(r"\d{4}-W\d\d")
_NAMED = re.compile(r"week-(\d{4}-\d\d-\d\d)")


@dataclass
class SiteDataCheck:
    """The results of checking a site's file."""

    today: date
    panel: CasePanel | None = None
    """All clients that can be read, with their data vintages where stored."""
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    mornings: int = 0
    """Stored vintages of the client with the fewest."""


def week_of(training: str, release: Release) -> str:
    """The name of a week's folder: the ISO week of the training's day."""
    named = _NAMED.fullmatch(training)
    day = date.fromisoformat(named[1]) if named else release.last_day + timedelta(days=1)
    year, week, _ = day.isocalendar()
    return f"{year}-W{week:02d}"


def look(kit: Path, today: date, step: Step) -> SiteDataCheck:
    """Check a site's counts as `epifed data check` does, and store them as known today."""
    found, clients = SiteDataCheck(today), hosted_clients(kit)
    if failed := Fetched.of(kit).problem:
        found.problems.append(f"The command for your data failed: {failed}")
    try:
        hosted = Source.of(kit).load(clients, step)
    except (EpifedError, OSError) as error:
        found.problems.append(f"Your data cannot be read: {error}")
        return found
    for client, reason in hosted.left_out.items():
        found.problems.append(f"Client {client} counts as zero: {reason}")
    panel = hosted.panel
    there = panel.regions if panel is not None else ()
    absent = [one for one in clients if one not in there and one not in hosted.left_out]
    if absent:
        found.problems.append(
            f"Client {absent[0]} counts as zero: found no count of it in your data"
            + (f" ({counted(len(absent), 'client')} without)" if len(absent) > 1 else "")
        )
    if panel is None:
        return found
    age = (today - panel.end).days
    if age > OLD_DAYS:
        found.problems.append(
            f"Your data end on {panel.end}, {counted(age, 'day')} ago: a training of newer days "
            "counts your "
            "clients as zero"
        )
    found.notes += check_panel(panel).warnings
    alone = []
    for client in panel.regions:
        folder = archive_of(kit, client)
        try:
            alone.append(remember(folder, panel.alone(client)))
        except EpifedError as error:
            found.notes.append(f"Today's counts of client {client} are not kept: {error}")
    kept = [count_vintages(archive_of(kit, client)) for client in panel.regions]
    found.mornings = min(kept)
    found.panel = together(panel, alone)
    return found


def update_site(
    kit: Path,
    out: Path,
    model_name: str,
    now: datetime | None = None,
    say: Callable[[str], object] = lambda _: None,
) -> dict[str, Any]:
    """Make a site's pending report, and write its status; returns the status.

    It can be called at any time, also by two processes at once.
    """
    now = now or datetime.now().astimezone()
    out.mkdir(parents=True, exist_ok=True)
    with FileLock(out / ".lock"):
        for left in out.glob(".*-W*-*"):
            shutil.rmtree(left, ignore_errors=True)  # left by a process that was killed
        asked, held = LastAsked.of(kit), _releases(kit, say)
        newest = held[-1] if held else None
        found = look(kit, now.date(), _step(asked, newest))
        full = [problem for folder in (kit, out) if (problem := full_disk(folder))]
        problems, week = [*full[:1], *found.problems], None
        if newest is not None:
            week = week_of(*newest)
            problems += _sat_out(kit, asked, newest[0])
            if not newest[1].learned:
                problems.append(
                    f"No forecast of {week}: in the training '{newest[0]}' ε was spent and nothing "
                    "learned, because no round of it could be used"
                )
            elif not (out / week / RESULTS).is_dir():
                problems += _try_week(kit, out, found, held, problems, model_name, say)
            if (out / week / RESULTS).is_dir() and _latest(out) != week:
                problems += _copy_latest(out, week)
        status = _status(kit, now, found, asked, newest, problems)
        status |= {"week": week, "made": bool(week and (out / week / RESULTS).is_dir())}
        write_text(out / STATUS, to_json(status) + "\n")
        _write_problems(out / PROBLEM, problems)
        return status


def _step(asked: LastAsked | None, newest: tuple[str, Release] | None) -> Step:
    if newest is not None:
        return newest[1].settings.step
    with contextlib.suppress(EpifedError):
        if asked is not None:
            return Settings.from_toml(asked.settings).step
    return "day"


def _releases(kit: Path, say: Callable[[str], object]) -> list[tuple[str, Release]]:
    """The releases that the site has, with their trainings, newest last."""
    found = []
    for path in sorted((kit / MODELS).glob("*.epifed")):
        try:
            found.append((path.stem, read_release(path)))
        except EpifedError as error:
            say(f"a release is left out: {error}")
    return sorted(found, key=lambda one: (one[1].last_day, one[1].created))


def _sat_out(kit: Path, asked: LastAsked | None, training: str) -> list[str]:
    """The site's clients that did not count in a training, as sentences."""
    if asked is None or asked.training != training:
        if took_part(kit, training):
            return []  # it was asked about a later training since
        return [f"This site took no part in the training '{training}': it was not connected."]
    if asked.problem:
        return [f"This site sat out the training '{training}': {asked.problem}"]
    return [
        f"In the training '{training}' client {client} counted as zero: {reason}"
        for client, reason in asked.left_out.items()
    ]


def _try_week(
    kit: Path,
    out: Path,
    found: SiteDataCheck,
    held: list[tuple[str, Release]],
    problems: list[str],
    model_name: str,
    say: Callable[[str], object],
) -> list[str]:
    """Make the folder of the newest week; returns what prevented it."""
    training, release = held[-1]
    week = week_of(training, release)
    if found.panel is None:
        return [f"No forecast of {week}: there are no counts to forecast from"]
    with tempfile.TemporaryDirectory(dir=out, prefix=f".{week}-") as name:
        folder = Path(name) / week
        folder.mkdir()
        try:
            _make(kit, out, folder, found, held, model_name, say)
        except EpifedError as error:
            return [f"No forecast of {week}: {error}"]
        except Exception as error:  # a fault of epifed must not look like one of the site's
            say(traceback.format_exc())
            return [f"No forecast of {week}, by a fault of epifed: {error!r}"]
        _write_problems(folder / PROBLEM, problems)
        try:
            folder.rename(out / week)
        except OSError as error:
            return [f"{out / week}: cannot be written: {error.strerror or error}"]
    say(f"{week}: the forecast is in {out / week}")
    return []


def _make(
    kit: Path,
    out: Path,
    folder: Path,
    found: SiteDataCheck,
    held: list[tuple[str, Release]],
    model_name: str,
    say: Callable[[str], object],
) -> None:
    """Make all files of a week, in a folder that nobody reads yet."""
    (training, release), panel = held[-1], found.panel
    assert panel is not None
    plain = replace(panel, history=None)
    used, sentence = timely(
        plain, panel, release.learner, release.last_day,
        f"{found.mornings} of {LEAST_VINTAGES} days are archived",
    )  # fmt: skip
    since = _real_time_since(kit, used, found.today)
    if since is not None:
        sentence += f", since {since}"
    found.notes.append(f"{sentence[:1].upper()}{sentence[1:]}")
    expected = expect(release.learner, PrivacyPlan.of(release.settings, release.clients))
    if expected is not None and expected.believed < POOR:
        found.notes.append(expected.sentence())
    release.age_on(used.end)
    mine = [one for _, one in held if one.randomness == release.randomness and one.learned]
    mine = [one for one in mine if release.learner.compatible(one.learner)]
    outlook = forecast_releases(mine, used)
    found.notes.append(outlook.known.sentence(RECENT_DAYS))
    nowcast = None if panel.history is None else nowcast_on(panel.history, panel.end)
    earlier = [one / RESULTS for one in out.iterdir() if WEEK_NAME.fullmatch(one.name)]
    about = label(training, mine).model_copy(update={"real_time_since": since})
    results = folder / RESULTS
    keep_forecast(
        results, plain, outlook, release, about,
        nowcast=nowcast, earlier=earlier, notes=found.notes,
    )  # fmt: skip
    shutil.copyfile(results / FORECAST, folder / FORECAST)
    if nowcast is not None:
        write_sheet(folder / NOWCAST, nowcast.with_columns(pl.selectors.float().round(3)))
    if all(one.horizon * used.step_days % WEEK == 0 for one in outlook.forecasts):
        write_hub(outlook.forecasts, folder / HUB, model_name)
    ledger = kit / LEDGER
    write_report(
        results, folder / REPORT, plain, ledger=ledger if ledger.is_file() else None, remark=say
    )


def _real_time_since(kit: Path, panel: CasePanel, today: date) -> date | None:
    """The day since which a site's newest counts are completed, stored once; None if they are not.

    Days are completed from a site's own files of each day, weeks from its lists of each week.
    """
    if panel.revisions is not None:
        since = today
    elif panel.history is not None:
        since = panel.history.snapshots[LEAST_VINTAGES - 1]
    else:
        return None
    path = kit / REAL_TIME
    with contextlib.suppress(OSError, ValueError):
        return date.fromisoformat(path.read_text(encoding="utf-8").strip())
    write_text(path, f"{since}\n")
    return since


def _latest(out: Path) -> str | None:
    """The week whose files are in `latest`."""
    with contextlib.suppress(OSError):
        return (out / LATEST / MARK).read_text(encoding="utf-8").strip()
    return None


def _copy_latest(out: Path, week: str) -> list[str]:
    """Copy the newest week's files to a constant path; returns what prevented it.

    On some systems a file that is open cannot be replaced; the week's own folder has it.
    """
    problems = []
    latest = out / LATEST
    for name in (REPORT, FORECAST, NOWCAST):
        source = out / week / name
        try:
            if source.exists():
                write_atomic(latest / name, partial(shutil.copyfile, source))
            else:
                (latest / name).unlink(missing_ok=True)
        except (EpifedError, OSError) as error:
            problems.append(f"{latest / name} is still that of an earlier week: {error}")
    if not problems:
        write_text(latest / MARK, f"{week}\n")
    return problems


def _status(
    kit: Path,
    now: datetime,
    found: SiteDataCheck,
    asked: LastAsked | None,
    newest: tuple[str, Release] | None,
    problems: list[str],
) -> dict[str, Any]:
    panel = found.panel
    return {
        "time": now.astimezone(UTC).isoformat(timespec="seconds"),
        "problems": problems,
        "notes": found.notes,
        "clients": len(hosted_clients(kit)),
        "first_day": panel.start if panel else None,
        "last_day": panel.end if panel else None,
        "mornings_kept": found.mornings,
        "asked": asked.training if asked else None,
        "sent": asked.sent if asked else None,
        "training": newest[0] if newest else None,
        "release": newest[1].sentence() if newest else None,
    }


def _write_problems(path: Path, problems: list[str]) -> None:
    """Write the problems in the language of the machine; delete the file if there are none."""
    if problems:
        write_text(path, "\n".join(map(spoken, problems)) + "\n")
    else:
        path.unlink(missing_ok=True)


SHOWN_NUMBERS = 2000
"""Numbers of a vector that the page shows."""


@dataclass
class Member:
    """The site of a kit, as the page shows it."""

    kit: Path
    out: Path
    """The folder of its own forecasts."""
    model_name: str
    sent: dict[str, Any] | None = field(default=None)
    """The preview, once it was asked for."""

    def to_dict(self) -> dict[str, Any]:
        """How things stand, from the files of the kit alone."""
        asked, newest = LastAsked.of(self.kit), self._newest()
        status = self._status()
        return {
            "site": self.kit.name,
            "clients": list(hosted_clients(self.kit)),
            "release": None if newest is None else _release_dict(*newest),
            "asked": None if asked is None else _asked_dict(asked),
            "preview": self.sent,
            "own": {
                "week": status.get("week"),
                "made": bool(status.get("made")),
                "last_day": status.get("last_day"),
            },
            "problems": list(status.get("problems", ())),
        }

    def look_ahead(self, source: Mapping[str, Any] | None, today: date | None = None) -> None:
        """What would be sent for this week's training, to the number; nothing is."""
        asked = LastAsked.of(self.kit)
        if asked is None:
            raise EpifedError(
                "found no training that this site was asked for yet; expected one, so that its "
                "settings are known"
            )
        chosen = remembered(self.kit)
        if chosen is None and source is not None:
            chosen = Source(source["path"], None, dict(source["options"]))
        if chosen is None:
            raise EpifedError("found no case data in the kit; expected a file on this page")
        period = this_week(asked, today or datetime.now().date())
        settings = Settings.from_toml(asked.settings)
        sent = preview(self.kit, settings, period, asked.enrolled, source=chosen).to_dict()
        numbers = {client: row[:SHOWN_NUMBERS] for client, row in sent["vectors"].items()}
        days = {name: str(sent[name]) for name in ("first_day", "last_day")}
        self.sent = sent | days | {"vectors": numbers}

    def make_own(self) -> None:
        """The office's own forecast of the newest week, where it is not made yet."""
        update_site(self.kit, self.out, self.model_name)

    def report(self) -> tuple[str, Path]:
        """The newest week that has a report, and that report."""
        path = self.out / LATEST / REPORT
        if not path.is_file():
            raise EpifedError("found no report of a week yet; expected the forecast made before")
        return str(self._status().get("week") or "week"), path

    def _status(self) -> dict[str, Any]:
        path = self.out / STATUS
        return read_json(path, "expected the status of a site") if path.is_file() else {}

    def _newest(self) -> tuple[str, Release] | None:
        """The newest release that the site holds, with the name of its training."""
        releases = []
        for path in (self.kit / MODELS).glob("*.epifed"):
            try:
                releases.append((path.stem, read_release(path)))
            except EpifedError:
                continue  # a damaged file is no release; the service reports it
        return max(
            releases, key=lambda release: (release[1].last_day, release[1].created), default=None
        )


def _release_dict(training: str, release: Release) -> dict[str, Any]:
    return {
        "training": training,
        "first_day": str(release.first_day),
        "last_day": str(release.last_day),
        "epsilon": rounded_up(release.epsilon),
        "epsilon_without_amplification": None
        if release.epsilon_without_amplification == release.epsilon
        else rounded_up(release.epsilon_without_amplification),
        "accountant": release.accountant,
        "delta": f"{release.delta:g}",
        "secure": release.randomness == "secure",
        "sentence": release.sentence(),
    }


def _asked_dict(asked: LastAsked) -> dict[str, Any]:
    return {
        "training": asked.training,
        "first_day": asked.first_day,
        "last_day": asked.last_day,
        "enrolled": asked.enrolled,
        "sent": asked.sent,
        "problem": asked.problem or None,
        "left_out": dict(asked.left_out),
    }
