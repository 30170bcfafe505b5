"""A site's work on a task: read its file, check the terms, train, clip, book. Also the preview.

With aggregators, the site also draws its clients itself and sends one encrypted report of their
sum. The preview shows what would be sent this week; nothing is sent, spent or written.
"""

import contextlib
import csv
import hashlib
import json
import math
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from epifed.data.calendar import Step, refuse_apart
from epifed.data.panel import CasePanel
from epifed.data.readers import load_panel, recognise
from epifed.data.readers.cleaning import MONDAYS, Tidy, clean_rows, open_tidy
from epifed.data.readers.columns import lay_long, refuse_rows, wanted_names
from epifed.data.readers.formats import is_simulated
from epifed.data.readers.tables import (
    AmbiguousTableError,
    Assumptions,
    Content,
    RawTable,
    existing,
    open_content,
    read_header,
)
from epifed.data.readers.values import Facts, filled, spelled
from epifed.data.vintages import remember
from epifed.errors import EpifedError
from epifed.federation.answers import AnswerCache, keep_release
from epifed.federation.crypto import ReportKey
from epifed.federation.evidence import first_state
from epifed.federation.messages import (
    SENTENCES,
    Code,
    Delivery,
    Greeting,
    MessageError,
    Parts,
    ProtocolRange,
    Readiness,
    RoundTerms,
    Task,
    make_report,
    pack_code,
    pack_contribution,
    pack_report,
    report_bytes,
    unpack_task,
)
from epifed.federation.readiness import weigh
from epifed.federation.terms import Owner, SiteLedger, Terms
from epifed.files import write_text
from epifed.learners.base import Learner, Period, Vector, View, make_learner
from epifed.ledger.budget import Cap, together
from epifed.ledger.ledger import Ledger
from epifed.privacy.noise import sample_clients, to_grid
from epifed.privacy.plan import PrivacyPlan
from epifed.settings import Settings, of_training
from epifed.training.release import Release
from epifed.training.rounds import contribution, vector_length

_MOST_BLANK = 4096
"""Most bytes of a file that may be blank."""


@dataclass(frozen=True)
class Hosted:
    """The counts that a file has of the wanted clients."""

    panel: CasePanel | None
    """The clients whose rows are valid; None if there are none."""
    left_out: dict[str, str]
    """The clients with an invalid row, and its error."""


def load_hosted(
    path: Path | str,
    clients: Collection[str],
    format: str | None = None,
    *,
    step: Step = "day",
    **options: Any,
) -> Hosted:
    """The panel of these clients, without those with invalid rows; other rows are not checked.

    Rows of another step than the training's are invalid. Weeks are dated by their Mondays here,
    whatever day each client uses. In a tidy CSV every line is a row, whatever its quotation marks.
    Other formats are refused as a whole for one invalid row, so a site with several clients cannot
    use them. A blank file counts as one without rows, so that the absence of a client does not
    show.
    """
    if _blank(Path(path)):
        return Hosted(None, {})
    path = existing(Path(path))
    recognised = format or recognise(path, options)
    if recognised != "tidy":
        if len(clients) > 1:
            raise EpifedError(
                f"{path}: found the format '{recognised}' at a site with {len(clients)} clients, "
                "where one client's bad row would silence all; expected a table, as 'epifed data "
                "convert' writes it"
            )
        try:
            whole = load_panel(path, format, **options)
            whole.refuse_step(step)
        except EpifedError as error:
            return Hosted(None, dict.fromkeys(clients, str(error)))
        hosted = [region for region in whole.regions if region in clients]
        return Hosted(whole.of(hosted) if hosted else None, {})
    assumptions = Assumptions.of(options, str(path))
    left_out: dict[str, str] = {}
    content = open_content(path, assumptions)
    if content.kind == "text":
        table = _read_lines(content, assumptions, clients, left_out)
    else:
        table = open_tidy(content, assumptions)
    long = lay_long(table, assumptions)
    good, facts = [], Facts()
    for client, rows in _by_client(long.frame, clients, assumptions).items():
        try:
            refuse_rows(table, rows, long.columns, assumptions)
            tidy = _clean(table.where, rows, long.columns, assumptions)
            counted = _counted(tidy, step)
            client_facts = tidy.facts()
            client_facts.refuse_missing(table.where, client)
        except EpifedError as error:
            left_out.setdefault(client, str(error))
            continue
        if client not in left_out and not counted.is_empty():
            good.append(counted)
            facts = facts.joined(client_facts)
    if not good:
        return Hosted(None, left_out)
    panel = CasePanel.from_long(pl.concat(good), source=str(path), step=step, **vars(facts))
    return Hosted(panel, left_out)


def _clean(
    where: str, rows: pl.DataFrame, columns: dict[str, str], assumptions: Assumptions
) -> Tidy:
    """A client's cleaned rows; a Monday names its own week here, so nobody is asked which."""
    try:
        return clean_rows(where, rows, columns, assumptions)
    except AmbiguousTableError as error:
        if error.example != MONDAYS:
            raise
    return clean_rows(where, rows, columns, replace(assumptions, weeks_dated="last"))


def _blank(path: Path) -> bool:
    """Whether a file is empty or has only white space."""
    if not path.is_file() or path.stat().st_size > _MOST_BLANK:
        return False
    return not path.read_bytes().strip(b"\xef\xbb\xbf \t\r\n")


def _counted(tidy: Tidy, step: Step) -> pl.DataFrame:
    """The counts of a client; raises if they have another step or are not whole weeks apart."""
    if tidy.step != step:
        raise EpifedError(f"{tidy.where}: found a row for each {tidy.step}; expected each {step}")
    counted = tidy.frame.drop_nulls("cases").select("day", "region", "cases")
    if step == "day":
        return counted
    refuse_apart(tidy.where, counted["day"].to_list())
    return counted.with_columns(pl.col("day").dt.truncate("1w"))


def _by_client(
    frame: pl.DataFrame, clients: Collection[str], assumptions: Assumptions
) -> dict[str, pl.DataFrame]:
    """The rows of each wanted client that has some, as they were read."""
    named = pl.col("region").cast(pl.String, strict=False)
    names = frame.select(named).to_series()
    named_rows = frame.with_columns(spelled(names).alias("client"))
    named_rows = named_rows.with_columns(filled(pl.col("client"), assumptions.id_width))
    hosted = named_rows.filter(pl.col("client").is_in(sorted(clients)))
    parts = hosted.partition_by("client", as_dict=True, include_key=False)
    return {str(client): rows for (client, *_), rows in parts.items()}


def _read_lines(
    content: Content, assumptions: Assumptions, clients: Collection[str], left_out: dict[str, str]
) -> RawTable:
    """The lines of a CSV as text; a broken line makes the client that it names invalid."""
    header = read_header(content, assumptions, wanted_names(assumptions))
    names = tuple(name.strip() for name in header.names)
    wanted = (assumptions.region or "region").casefold()
    place = next((i for i, name in enumerate(names) if name.casefold() == wanted), len(names))
    complete: list[tuple[Any, ...]] = []
    with content.open() as file:
        for number, raw in enumerate(file, start=1):
            line = raw.decode("utf-8", errors="replace").strip("\r\n")
            if number <= header.line or not line.strip():
                continue
            try:
                (cells,) = csv.reader([line], delimiter=header.separator, strict=True)
                whole = len(cells) <= len(names) and "\ufffd" not in line
            except (csv.Error, ValueError):
                cells, whole = line.split(header.separator), False
            if whole:
                complete.append((number, *cells, *[None] * (len(names) - len(cells))))
            elif place < len(cells) and (client := cells[place].strip()) in clients:
                sentence = f"row {number}: found a broken line; expected UTF-8 CSV"
                left_out.setdefault(client, f"{content.where}: {sentence}")
    types = {"row": pl.UInt32, **{str(i): pl.String for i in range(len(names))}}
    rows = pl.DataFrame(complete, schema=types, orient="row")
    return RawTable(content.where, names, lambda places: rows.select("row", *map(str, places)))


FETCHED, TODAY = "fetched.json", "today.csv"
MOST_SAID = 300
"""Most characters that are kept of a failed command's last line."""


@dataclass(frozen=True)
class Fetched:
    """The time and the problem of the command's last run."""

    time: str = ""
    problem: str = ""

    @classmethod
    def of(cls, kit: Path) -> "Fetched":
        """The last run as stored in a kit; empty for a site without a command."""
        try:
            return cls(**json.loads((kit / FETCHED).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return cls()


@dataclass(frozen=True)
class Fetch:
    """A command, and the file that it writes; without a file, its output is used."""

    kit: Path
    command: str
    file: Path | None
    patience: float
    """Most seconds that it may take."""

    @property
    def path(self) -> Path:
        """The file that the site reads."""
        return self.file or self.kit / TODAY

    def age(self) -> float:
        """Seconds since the last run; infinite before the first."""
        try:
            return max(0.0, time.time() - (self.kit / FETCHED).stat().st_mtime)
        except OSError:
            return math.inf

    def run(self, goes_on: Callable[[], bool] = lambda: True) -> str:
        """Run the command once; returns the problem, or an empty string.

        Its output replaces the last file only if the exit code is 0 and there is some. A file that
        it writes itself need only exist. The run is ended when `goes_on` returns false.
        """
        problem = self._run(goes_on)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        write_text(self.kit / FETCHED, json.dumps({"time": now, "problem": problem}))
        return problem

    def _run(self, goes_on: Callable[[], bool]) -> str:
        printed, log_path = self.kit / f".{TODAY}.new", self.kit / f".{TODAY}.log"
        try:
            words = self.command if os.name == "nt" else shlex.split(self.command)
            with printed.open("wb") as out, log_path.open("wb") as log:
                # Files, not pipes: a process that the command started may keep those open for ever.
                started = subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, stdout=out, stderr=log, cwd=self.kit
                )
                code = _waited(started, self.patience, goes_on)
            if code is None:
                return f"found no end of it after {self.patience:g} seconds; expected one"
            if code:
                last = log_path.read_text(encoding="utf-8", errors="replace").strip()
                words_said = f": {last.splitlines()[-1][:MOST_SAID]}" if last else ""
                return f"found exit code {code}{words_said}; expected 0"
            if self.file is not None:
                return "" if self.file.exists() else f"{self.file}: not there; expected its file"
            if not printed.stat().st_size:
                return "found that it printed nothing; expected the file on standard output"
            printed.replace(self.path)
        except (OSError, ValueError) as error:
            return f"{error}; expected a command that can be run"
        finally:
            for left in (printed, log_path):
                left.unlink(missing_ok=True)
        return ""

    def first(self) -> None:
        """Run the command if it never ran, and raise if it fails: a person is present then."""
        if math.isinf(self.age()) and (problem := self.run()):
            (self.kit / FETCHED).unlink(missing_ok=True)
            raise EpifedError(f"--command: {problem}")


def _waited(
    started: "subprocess.Popen[bytes]", patience: float, goes_on: Callable[[], bool]
) -> int | None:
    """The exit code of a process; None if it was ended, after `patience` or by `goes_on`."""
    left = patience
    while left > 0 and goes_on():
        try:
            return started.wait(min(left, 1.0))
        except subprocess.TimeoutExpired:
            left -= 1.0
    started.kill()
    started.wait()
    return None


DATA, TERMS, LEDGER = "data.json", "site.toml", "site.ledger"
KEY, ANSWERS, ARCHIVE = "report.key", "answers", "archive"
CLIENTS, LOG, ASKED = Owner.CLIENTS, Owner.LOG, "asked.json"


LEAST_FREE = 20
"""Least MB of free disk for a site's logs, answers and reports."""


def hosted_clients(kit: Path) -> tuple[str, ...]:
    """The clients that the site of a kit hosts, by the roster."""
    return tuple(json.loads((kit / CLIENTS).read_text(encoding="utf-8")))


def full_disk(folder: Path) -> str:
    """The problem if the disk of a folder is full; else an empty string."""
    free = shutil.disk_usage(folder).free // 2**20
    if free >= LEAST_FREE:
        return ""
    return (
        f"{folder}: found {free} MB free on the disk; expected at least {LEAST_FREE}: without room "
        "this site cannot take part"
    )


def archive_of(kit: Path, client: str) -> Path:
    """The folder in which a site keeps the counts that it received of a client."""
    return kit / ARCHIVE / hashlib.sha256(client.encode()).hexdigest()


@dataclass(frozen=True)
class Source:
    """The location of a site's case counts, and how to read them."""

    path: str
    format: str | None
    options: dict[str, Any]

    def load(self, clients: Collection[str], step: Step = "day") -> Hosted:
        """The counts of these clients, for a training in days or weeks."""
        return load_hosted(Path(self.path), clients, self.format, step=step, **self.options)

    @property
    def simulated(self) -> bool:
        """Whether the counts are invented, as 'epifed simulate' marks them in their folder."""
        return is_simulated(Path(self.path))

    def written(self) -> date:
        """The last day of which the file can have counts, by its time of writing, not by its rows.

        It is a day later than the UTC date of writing, which some time zone has reached already.
        """
        path = Path(self.path)
        files = (path, *path.iterdir()) if path.is_dir() else (path,)
        newest = max(file.stat().st_mtime for file in files)
        return datetime.fromtimestamp(newest, UTC).date() + timedelta(days=1)

    def write(self, kit: Path) -> None:
        """Store the source in the kit, for the worker that FLARE starts."""
        write_text(kit / DATA, json.dumps(vars(self), indent=2))

    @classmethod
    def of(cls, kit: Path) -> "Source":
        """The source stored in a kit; raises if there is none."""
        return cls(**json.loads((kit / DATA).read_text(encoding="utf-8")))


def remembered(kit: Path) -> Source | None:
    """The source stored in a kit; None if there is none."""
    try:
        return Source.of(kit)
    except (OSError, ValueError, TypeError):
        return None


@dataclass(frozen=True)
class LastAsked:
    """The last request to a site and its result; it stays at the site."""

    training: str
    settings: str
    first_day: str
    last_day: str
    enrolled: int
    sent: bool
    """Whether an answer with numbers was given, even if all are zero."""
    left_out: dict[str, str]
    """The clients that counted as zero, and why."""
    problem: str = ""
    """Why no numbers were sent; empty if they were."""

    @classmethod
    def of(cls, kit: Path) -> "LastAsked | None":
        """The request stored in a kit; None before the first training."""
        try:
            return cls(**json.loads((kit / ASKED).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    @property
    def period(self) -> tuple[date, date]:
        """First and last day of the training data."""
        return date.fromisoformat(self.first_day), date.fromisoformat(self.last_day)

    def write(self, kit: Path) -> None:
        """Store it in the kit."""
        write_text(kit / ASKED, json.dumps(vars(self), indent=2, ensure_ascii=False))


@dataclass(frozen=True)
class Work:
    """A site's learner, plan and data for one training."""

    key: tuple[str, str, str, int, tuple[str, ...]]
    learner: Learner[Any, Any]
    plan: PrivacyPlan
    read: tuple[tuple[View, tuple[str, ...]], ...] | None = None
    """The learner's view of each panel, and the panel's clients. A client is left out if it is
    missing, has an invalid row, or lacks some of the training's days. It then counts as zero. None
    before the data are read."""
    left_out: dict[str, str] = field(default_factory=dict)
    """The clients that are left out, and why."""


class SiteWork:
    """A site working in its kit. Its answers hold vectors or a code, never free text.

    `say` gets the reasons why clients are left out; they stay at the site. Without `keeps`,
    `vectors` writes nothing; this is for a preview, perhaps of another `source` than the kit's. A
    caller that gives a `source` decides whether tests with predictable noise may read it.
    """

    def __init__(
        self,
        kit: Path,
        say: Callable[[str], None] = lambda _: None,
        *,
        keeps: bool = True,
        source: Source | None = None,
    ) -> None:
        self.kit, self.say, self.keeps, self.source = kit, say, keeps, source
        self.terms = Terms.read(kit / TERMS)
        self._ready: Work | None = None
        self._hosted: tuple[tuple[tuple[str, ...], Step], Hosted] | None = None
        self._simulated = False
        self._asked: LastAsked | None = None
        self._foreign = False

    def prepare(self, greeting: Greeting) -> None:
        """Load the data and the learner before a round waits for them.

        Errors are ignored here; a round reports them. If the server's greeting is not understood,
        its tasks are refused.
        """
        greeting.remember(self.kit)
        self._foreign = not ProtocolRange.own().understands(greeting.protocols)
        if self._foreign:
            return
        with contextlib.suppress(EpifedError, OSError, ValueError):
            wanted = Settings.from_toml(greeting.settings)
            self._load(hosted_clients(self.kit), wanted.step)
            if self.terms.within_limits(wanted):
                make_learner(wanted)

    def ready(self, parts: Parts) -> Parts:
        """Whether the site would take part in a training, by its terms, ledger and file.

        Nothing is booked. Missing or invalid rows of a client are no reason: it counts as zero.
        """
        try:
            return self._weighed(RoundTerms.unpack(parts)).pack()
        except Exception as error:
            self.say(f"asked for a training, this site answers {_code_of(error).value}: {error}")
            return Readiness(_code_of(error)).pack()

    def _weighed(self, asked: RoundTerms) -> Readiness:
        if self._foreign:
            raise MessageError(Code.VERSION)
        self.terms.refuse_trust(asked.fingerprints)
        book = self._ledger(asked)
        answered = AnswerCache(self.kit / ANSWERS).last_round(asked.training)
        readiness = weigh(asked, self.terms, book, answered)
        if readiness.code is None:
            self._load(hosted_clients(self.kit), asked.read()[0].step)
            source = self.source or Source.of(self.kit)
            if book is not None and source.written() < asked.period[1]:
                return replace(readiness, code=Code.REFUSED_PERIOD)
        return readiness

    def answer(self, parts: Parts) -> tuple[Parts, EpifedError | Exception | None]:
        """Answer a task; also returns the error, if any, for the site's own log."""
        try:
            task = unpack_task(parts)
        except Exception as error:
            return pack_code("", 0, _code_of(error)), error
        try:
            reply = self._contribute(task, parts)
        except Exception as error:
            code = _code_of(error)
            detail = error.detail if isinstance(error, MessageError) else str(error)
            self._keep_asked(task, f"{SENTENCES[code]}{f': {detail}' if detail else ''}")
            return pack_code(task.training, task.round, code), error
        self._keep_asked(task)
        return reply, None

    def _ledger(self, asked: RoundTerms) -> SiteLedger | None:
        """The ledger to charge; None for a test."""
        secure = asked.randomness == "secure"
        return SiteLedger.of(self.kit / LEDGER, self.terms) if secure else None

    def receive(self, delivery: Delivery) -> Release:
        """Check and keep the finished release.

        A site that has pinned aggregators accepts only what their signed sums give.
        """
        evidence = delivery.evidence
        self.terms.refuse_trust(evidence.first.fingerprints if evidence else {})
        return keep_release(self.kit, LEDGER, self.terms, delivery)

    def vectors(self, task: Task) -> tuple[Vector, Work]:
        """The clipped vector of every client of a task, drawn or not, and the work they come from.

        Raises what the terms refuse; nothing is booked or sent.
        """
        settings, plan = self._asked_for(task)
        self.terms.refuse(task, settings, plan)
        work, state = self._made_ready(task, settings, plan)
        return self._rows(task, work, state, range(len(task.clients))), work

    def _asked_for(self, task: Task) -> tuple[Settings, PrivacyPlan]:
        if self._foreign:
            raise MessageError(Code.BAD_TASK)
        return task.read()

    def _made_ready(self, task: Task, settings: Settings, plan: PrivacyPlan) -> tuple[Work, Any]:
        """The learner and data of a training, and the state that the task brings."""
        try:
            work = self._work(task, settings, plan)
            state = work.learner.unpack(task.state)
        except EpifedError:
            raise MessageError(Code.BAD_TASK) from None
        if vector_length(work.learner, state) != task.length:
            raise MessageError(Code.BAD_TASK)
        work = self._read(task, work)
        if task.randomness != "secure" and not self._simulated:
            raise MessageError(
                Code.REFUSED_SEEDED,
                "found real counts in a test with predictable noise, which gives no privacy; "
                "expected counts in a folder that 'epifed simulate' wrote",
            )
        return work, state

    def _contribute(self, task: Task, parts: Parts) -> Parts:
        settings, plan = self._asked_for(task)
        self.terms.refuse_trust(task.fingerprints)
        if (len(task.aggregators), task.rounds) != (plan.aggregators, plan.rounds):
            raise MessageError(Code.BAD_TASK)
        if task.aggregators and task.clients != hosted_clients(self.kit):
            # A server that is not trusted could have one client counted by two sites.
            raise MessageError(Code.BAD_TASK)
        self.terms.refuse(task, settings, plan)
        work, state = self._made_ready(task, settings, plan)
        if task.aggregators and task.round == 1 and task.start != first_state(settings):
            raise MessageError(Code.BAD_TASK, "found another first state than the settings give")
        book = self._ledger(task)
        if not task.aggregators:
            if book:
                book.take_part(task, settings, work.plan)
            rows = self._rows(task, work, state, task.chosen())
            return pack_contribution(task.training, task.round, rows)

        def make() -> Parts:
            drawn = sample_clients(plan, len(task.clients)) if task.draws_itself else task.chosen()
            rows = self._rows(task, work, state, [int(i) for i in drawn])
            steps = to_grid(rows, plan.bound).sum(axis=0)
            key = ReportKey.read(self.kit / KEY)
            return pack_report(task, make_report(task, task.site, key, steps))

        return AnswerCache(self.kit / ANSWERS).give_charged(parts, task, make, book)

    def _rows(self, task: Task, work: Work, state: Any, drawn: Collection[int]) -> Vector:
        """A clipped vector for each client of the site; zero for clients not drawn."""
        rows = np.zeros((len(task.clients), task.length), dtype=np.float32)
        marked = {task.clients[i]: i for i in drawn}
        for view, clients in work.read or ():
            # All are computed and the drawn ones sent, so the time of an answer shows nothing.
            alone = task.randomness == "secure"
            every = contribution(work.learner, state, view, work.plan, alone=alone)
            for client, row in zip(clients, every, strict=True):
                if client in marked:
                    rows[marked[client]] = row
        if self.keeps:
            self._note(task, drawn)
        return rows

    def _work(self, task: Task, settings: Settings, plan: PrivacyPlan) -> Work:
        """The work of the task's training, created once."""
        key = settings.digest(), task.first_day, task.last_day, task.enrolled, task.clients
        if self._ready is None or self._ready.key != key:
            self._ready = Work(key, make_learner(settings), plan)
        return self._ready

    def _read(self, task: Task, work: Work) -> Work:
        """The work with the data that the learner reads, each client checked for its own days."""
        if work.read is None:
            step = work.learner.settings.step
            hosted, (first, last) = self._load(task.clients, step), counted_by(task.period, step)
            panel, complete = hosted.panel, list[str]()
            panels: list[CasePanel] = []
            if panel is not None:
                remembered_panels = {
                    client: self._remember(panel.alone(client)) for client in panel.regions
                }
                whole = dict(zip(panel.regions, panel.covers(first, last), strict=True))
                complete = [client for client in task.clients if whole.get(client, False)]
                if work.learner.reads_history:
                    panels = [remembered_panels[client] for client in complete]
                elif complete:
                    panels = [panel.of(complete)]
            read, unread = self._views(work, panels, (first, last))
            left_out = _left_out(task, hosted, complete) | unread
            for client in left_out.keys() - hosted.left_out.keys():
                self.say(f"client {client} counts as zero: {left_out[client]}")
            work = self._ready = replace(work, read=read, left_out=left_out)
        return work

    def _views(
        self, work: Work, panels: Sequence[CasePanel], period: Period
    ) -> tuple[tuple[tuple[View, tuple[str, ...]], ...], dict[str, str]]:
        """The learner's view of each panel; a single client that it cannot read is left out."""
        read, unread = [], dict[str, str]()
        for panel in panels:
            try:
                read.append((work.learner.deployed_view(panel, period), panel.regions))
            except Exception as error:
                if len(panel.regions) > 1:
                    raise
                unread[panel.regions[0]] = f"the learner cannot read its counts: {error}"
        return tuple(read), unread

    def _remember(self, panel: CasePanel) -> CasePanel:
        """Store today's counts of a client, and return them with all that is stored of it.

        Each client has an archive of its own, so one client's data do not affect another.
        """
        try:
            return remember(archive_of(self.kit, panel.regions[0]), panel, write=self.keeps)
        except Exception as error:  # a failure for one client must not silence the others
            self.say(f"today's counts of client {panel.regions[0]} are not kept: {error}")
            return panel

    def _load(self, clients: tuple[str, ...], step: Step) -> Hosted:
        """The counts of the site's clients in its file, read once."""
        if self._hosted is None or self._hosted[0] != (clients, step):
            source = self.source or Source.of(self.kit)
            self._simulated = self.source is not None or source.simulated
            try:
                hosted = source.load(clients, step)
            except OSError as error:
                raise EpifedError(f"the data cannot be read: {error}") from None
            for client, reason in hosted.left_out.items():
                self.say(f"client {client} counts as zero: {reason}")
            self._hosted = (clients, step), hosted
        return self._hosted[1]

    def _keep_asked(self, task: Task, problem: str = "") -> None:
        """Store the request if it has changed; a failure to write is only reported."""
        now = LastAsked(
            task.training,
            task.settings,
            task.first_day,
            task.last_day,
            task.enrolled,
            not problem,
            self._ready.left_out if self._ready else {},
            problem,
        )
        if now != self._asked:
            try:
                now.write(self.kit)
                self._asked = now
            except EpifedError as error:
                self.say(str(error))

    def _note(self, task: Task, drawn: Collection[int]) -> None:
        line = {
            "training": task.training,
            "round": task.round,
            "drawn": [task.clients[i] for i in drawn],
            "randomness": task.randomness,
        }
        with (self.kit / LOG).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def took_part(kit: Path, training: str) -> bool:
    """Whether a site's own log has a round of a training that the site answered with numbers."""
    log = kit / LOG
    return log.is_file() and f'"training": {json.dumps(training)},' in log.read_text("utf-8")


def counted_by(period: Period, step: Step) -> Period:
    """A period as the site's counts are dated: by days, or by the Mondays of its weeks.

    >>> [str(day) for day in counted_by((date(2020, 9, 8), date(2020, 12, 1)), "week")]
    ['2020-09-07', '2020-11-30']
    """
    if step == "day":
        return period
    first, last = (day - timedelta(days=day.weekday()) for day in period)
    return first, last


def _code_of(error: Exception) -> Code:
    if isinstance(error, MessageError):
        return error.code
    return Code.DATA if isinstance(error, EpifedError) else Code.ERROR


def _left_out(task: Task, hosted: Hosted, complete: Collection[str]) -> dict[str, str]:
    """The clients of a task that have nothing to send, and why."""
    reasons = {}
    first, last = task.period
    for client in task.clients:
        if client in complete:
            continue
        if client in hosted.left_out:
            reasons[client] = hosted.left_out[client]
        elif hosted.panel is None or client not in hosted.panel.regions:
            reasons[client] = "found no count of it; expected some"
        else:
            own = hosted.panel.alone(client)
            reasons[client] = (
                f"found counts from {own.start} to {own.end}; expected {first} to {last}"
            )
    return reasons


NAME = "preview"


@dataclass(frozen=True)
class Preview:
    """The answer to the first round of a training, if every client of the site were drawn."""

    period: Period
    clients: tuple[str, ...]
    entries: tuple[str, ...]
    """The meaning of each number."""
    rows: Vector
    """[clients, numbers]; zero for a client that is left out."""
    left_out: dict[str, str]
    plan: PrivacyPlan
    about: str
    """The JSON text that is sent with the numbers."""
    bytes: int
    """Size of text and numbers; with aggregators, of the sealed report."""
    sealed: bool
    fits: bool
    """Whether the site's own total ε has room for it."""

    @property
    def norms(self) -> list[float]:
        """The Euclidean norm of each client's vector."""
        return [float(norm) for norm in np.linalg.norm(self.rows.astype(np.float64), axis=1)]

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values."""
        return {
            "first_day": self.period[0],
            "last_day": self.period[1],
            "entries": list(self.entries),
            "vectors": dict(zip(self.clients, self.rows.tolist(), strict=True)),
            "norms": dict(zip(self.clients, self.norms, strict=True)),
            "bound": self.plan.bound,
            "drawn_with_probability": self.plan.sampling_rate,
            "rounds": self.plan.rounds,
            "left_out": self.left_out,
            "about": json.loads(self.about),
            "bytes": self.bytes,
            "sealed": self.sealed,
            "fits": self.fits,
        }


def this_week(asked: LastAsked, today: date) -> Period:
    """The days of this week's training: the last one's, moved on by whole weeks.

    >>> last = LastAsked("week-2026-11-02", "", "2026-08-01", "2026-11-01", 40, True, {})
    >>> [str(day) for day in this_week(last, date(2026, 11, 17))]
    ['2026-08-15', '2026-11-15']
    """
    first, last = asked.period
    weeks = max(0, (today - timedelta(days=1) - last).days // 7)
    return first + timedelta(weeks=weeks), last + timedelta(weeks=weeks)


def preview(
    kit: Path, settings: Settings, period: Period, enrolled: int, *, source: Source
) -> Preview:
    """What the site of a kit would answer to the first round of such a training.

    Later rounds start from what was released, so they cannot be known before.
    """
    plan, learner = PrivacyPlan.of(settings, enrolled), make_learner(settings)
    clients = hosted_clients(kit)
    state = learner.start(of_training(settings.seed)[0])
    length, packed = vector_length(learner, state), learner.pack(state)
    terms = RoundTerms.make(NAME, settings, plan, period, packed, length)
    task = Task.to(terms, kit.name, clients, "1" * len(clients), packed)
    try:
        rows, work = SiteWork(kit, keeps=False, source=source).vectors(task)
    except MessageError as error:
        raise EpifedError(f"nothing would be sent: {SENTENCES[error.code]}") from None
    parts = pack_contribution(NAME, 1, rows)
    adding = settings.aggregators or 0
    size = len(parts["about"].encode()) + len(parts["array"])
    return Preview(
        period,
        clients,
        learner.entries(rows.shape[1]),
        rows,
        work.left_out,
        plan,
        parts["about"],
        report_bytes(adding, rows.shape[1]) if adding else size,
        adding > 0,
        _fits(kit, plan),
    )


def _fits(kit: Path, plan: PrivacyPlan) -> bool:
    terms, path = Terms.read(kit / TERMS), kit / LEDGER
    Owner.of(kit).refuse_lost(path, terms)
    cap = Cap(terms.epsilon_total, terms.delta, terms.accountant)
    charged = Ledger(path, copy=True).book().taken() if path.exists() else ()
    part = (plan.priced_rate, plan.noise_multiplier, plan.rounds)
    return cap.allows(together((*charged, part)))
