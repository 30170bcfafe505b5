"""What a site does with a task, without FLARE: read, check the terms, train, clip, book.

With aggregators it also tosses its clients' coins, and sends one sealed report of their sum.
"""

import contextlib
import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from epifed.archive import remember
from epifed.days import Step
from epifed.errors import EpifedError
from epifed.federation.codes import SENTENCES, Code
from epifed.federation.delivery import keep_release
from epifed.federation.greeting import Spoken, hear
from epifed.federation.kept import KeptAnswers, question_digest
from epifed.federation.messages import (
    MessageError,
    Parts,
    Task,
    pack_code,
    pack_contribution,
    unpack_task,
)
from epifed.federation.pact import Pact, make_report, pack_report
from epifed.federation.sealed import ReportKey
from epifed.federation.terms import SiteBook, Terms, book_key
from epifed.files import write_text
from epifed.learner import Learner, Vector, View, make_learner
from epifed.panel import CasePanel
from epifed.privacy.plan import PrivacyPlan
from epifed.privacy.randomness import toss
from epifed.privacy.secure import to_grid
from epifed.release import Release
from epifed.rounds import contribution
from epifed.settings import Settings
from epifed.sources.hosted import Hosted, load_hosted

DATA, TERMS, LEDGER, LOG = "data.json", "site.toml", "site.ledger", "participation.jsonl"
KEY, ANSWERS, ARCHIVE = "report.key", "answers", "archive"
CLIENTS, ASKED = "clients.json", "asked.json"


def hosted_clients(kit: Path) -> tuple[str, ...]:
    """The clients that the roster says the site of a kit hosts."""
    return tuple(json.loads((kit / CLIENTS).read_text(encoding="utf-8")))


def archive_of(kit: Path, client: str) -> Path:
    """The folder in which a site keeps what it was given of a client."""
    return kit / ARCHIVE / hashlib.sha256(client.encode()).hexdigest()


@dataclass(frozen=True)
class Source:
    """Where a site's case counts are and how they are read."""

    path: str
    format: str | None
    options: dict[str, Any]

    def load(self, clients: Collection[str], step: Step = "day") -> Hosted:
        """What it has of these clients, for a training on such steps."""
        return load_hosted(Path(self.path), clients, self.format, step=step, **self.options)

    def write(self, kit: Path) -> None:
        """Remember the source in the kit, for the worker that FLARE starts."""
        write_text(kit / DATA, json.dumps(vars(self), indent=2))

    @classmethod
    def of(cls, kit: Path) -> "Source":
        """The source that was remembered."""
        return cls(**json.loads((kit / DATA).read_text(encoding="utf-8")))


def remembered(kit: Path) -> Source | None:
    """The source that a kit remembers, if it does."""
    try:
        return Source.of(kit)
    except (OSError, ValueError, TypeError):
        return None


@dataclass(frozen=True)
class LastAsked:
    """What a site was asked for last and what became of it, for the site's own eyes."""

    training: str
    settings: str
    first_day: str
    last_day: str
    enrolled: int
    sent: bool
    """Whether an answer with numbers was given, be they zero."""
    left_out: dict[str, str]
    """The clients that counted as zero, and why."""
    problem: str = ""
    """Why no numbers were sent."""

    @classmethod
    def of(cls, kit: Path) -> "LastAsked | None":
        """What is written down in a kit; none before the first training."""
        try:
            return cls(**json.loads((kit / ASKED).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    @property
    def period(self) -> tuple[date, date]:
        """The days that were learned from."""
        return date.fromisoformat(self.first_day), date.fromisoformat(self.last_day)

    def write(self, kit: Path) -> None:
        """Write it down."""
        write_text(kit / ASKED, json.dumps(vars(self), indent=2, ensure_ascii=False))


@dataclass(frozen=True)
class Work:
    """What a site has ready for a training: its learner, plan, and what is read of whom."""

    key: tuple[str, str, str, int, tuple[str, ...]]
    learner: Learner[Any, Any]
    plan: PrivacyPlan
    read: tuple[tuple[View, tuple[str, ...]], ...] | None = None
    """What the learner reads, and of which clients; a client that is missing, that has a bad row or
    whose days do not cover the training's is not there, and counts as zero. None before the data
    are read."""
    left_out: dict[str, str] = field(default_factory=dict)
    """The clients that are not there, and why."""


class SiteWork:
    """A site at work, in its kit. Its answers hold vectors or a code, never words.

    What `say` is told, a client that is left out and why, stays at the site. Without `keeps`
    nothing is written down: for a look ahead, perhaps at another source than the kit's.
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
        self._asked: LastAsked | None = None
        self._foreign = False

    def greeted(self, about: Mapping[str, Any]) -> bool:
        """Whether the server that greets is understood; tasks of another are refused."""
        self._foreign = not Spoken.own().understands(hear(self.kit, about))
        return not self._foreign

    def prepare(self, settings: str) -> None:
        """Load what takes a while before a round waits: the data, and what the learner needs.

        What is wrong with them, a round says.
        """
        with contextlib.suppress(EpifedError, OSError, ValueError):
            wanted = Settings.from_toml(settings)
            self._load(hosted_clients(self.kit), wanted.step)
            if self.terms.within_limits(wanted):
                make_learner(wanted)

    def answer(self, parts: Parts) -> tuple[Parts, EpifedError | Exception | None]:
        """The answer to a task, and for the site's own log what went wrong."""
        try:
            task = unpack_task(parts)
        except Exception as error:
            return pack_code("", 0, _code_of(error)), error
        try:
            given = self._contribute(task, parts)
        except Exception as error:
            code = _code_of(error)
            detail = error.detail if isinstance(error, MessageError) else str(error)
            self._keep_asked(task, f"{SENTENCES[code]}{f': {detail}' if detail else ''}")
            return pack_code(task.training, task.round, code), error
        self._keep_asked(task)
        return given, None

    def receive(self, content: bytes, paid: int, training: str) -> Release:
        """Keep the finished release, once it has been checked."""
        return keep_release(self.kit, LEDGER, self.terms, content, paid, training)

    def vectors(self, task: Task) -> tuple[Vector, Work]:
        """The clipped vector of every client of a task, drawn or not, and what they are made from.

        Refused is what the terms refuse; nothing is booked and nobody is told.
        """
        settings, plan = self._asked_for(task)
        self.terms.refuse(task, settings, plan)
        work, state = self._made_ready(task, settings, plan)
        return self._rows(task, work, state, range(len(task.clients))), work

    def _asked_for(self, task: Task) -> tuple[Settings, PrivacyPlan]:
        if self._foreign:
            raise MessageError(Code.BAD_TASK)
        try:
            settings = Settings.from_toml(task.settings)
            return settings, PrivacyPlan.of(settings, task.enrolled)
        except EpifedError:
            raise MessageError(Code.BAD_TASK) from None

    def _made_ready(self, task: Task, settings: Settings, plan: PrivacyPlan) -> tuple[Work, Any]:
        """The site's side of a training, its data read, and the state that a task brings."""
        try:
            work = self._work(task, settings, plan)
            state = work.learner.unpack(task.state)
        except EpifedError:
            raise MessageError(Code.BAD_TASK) from None
        return self._read(task, work), state

    def _contribute(self, task: Task, parts: Parts) -> Parts:
        settings, plan = self._asked_for(task)
        pact = Pact.of_task(task) if task.aggregators else None
        self.terms.refuse_trust(pact.fingerprints if pact else {})
        if len(task.aggregators) != plan.aggregators or (pact and pact.rounds != plan.rounds):
            raise MessageError(Code.BAD_TASK)
        if pact and task.clients != hosted_clients(self.kit):
            # A server that is not trusted could have one client counted by two sites.
            raise MessageError(Code.BAD_TASK)
        self.terms.refuse(task, settings, plan)
        work, state = self._made_ready(task, settings, plan)
        book = SiteBook.of(self.kit / LEDGER, self.terms) if task.randomness == "secure" else None
        if pact is None:
            if book:
                book.take_part(task, settings, work.plan)
            rows = self._rows(task, work, state, task.chosen())
            return pack_contribution(task.training, task.round, rows)

        def make() -> Parts:
            drawn = toss(plan, len(task.clients)) if task.draws_itself else task.chosen()
            rows = self._rows(task, work, state, [int(i) for i in drawn])
            if rows.shape[1] != pact.length:
                raise MessageError(Code.BAD_TASK)
            steps = to_grid(rows, plan.bound).sum(axis=0)
            key = ReportKey.read(self.kit / KEY)
            return pack_report(pact, make_report(pact, task.site, key, steps))

        kept = KeptAnswers(self.kit / ANSWERS)
        asked = pact.training, pact.round, question_digest(parts), make
        if book is None:
            return kept.give(*asked, lambda: 0, lambda _: None)
        name, left = book_key(pact, settings, plan), pact.rounds - pact.round + 1
        return kept.give(
            *asked,
            lambda: book.spent(name),
            lambda spent: book.enter(name, plan, max(spent, pact.round - 1), left),
        )

    def _rows(self, task: Task, work: Work, state: Any, drawn: Collection[int]) -> Vector:
        """A clipped vector for each client of the site, zero for those who were not drawn."""
        length = work.learner.contribute(state, work.learner.nobody()).shape[1]
        rows = np.zeros((len(task.clients), length), dtype=np.float32)
        marked = {task.clients[i]: i for i in drawn}
        for view, clients in work.read or ():
            # All are computed and the drawn sent, so that the time of an answer tells nothing.
            every = contribution(work.learner, state, view, work.plan)
            for client, row in zip(clients, every, strict=True):
                if client in marked:
                    rows[marked[client]] = row
        if self.keeps:
            self._note(task, drawn)
        return rows

    def _work(self, task: Task, settings: Settings, plan: PrivacyPlan) -> Work:
        """The training that a task belongs to, made once."""
        key = settings.digest(), task.first_day, task.last_day, task.enrolled, task.clients
        if self._ready is None or self._ready.key != key:
            self._ready = Work(key, make_learner(settings), plan)
        return self._ready

    def _read(self, task: Task, work: Work) -> Work:
        """The same with what the learner reads of the site's clients, each by its own days."""
        if work.read is None:
            step = work.learner.settings.step
            found, (first, last) = self._load(task.clients, step), task.period
            panel, mine = found.panel, list[str]()
            panels: list[CasePanel] = []
            if panel is not None:
                known = {client: self._remember(panel.alone(client)) for client in panel.regions}
                whole = dict(zip(panel.regions, panel.covers(first, last), strict=True))
                mine = [client for client in task.clients if whole.get(client, False)]
                if work.learner.reads_history:
                    panels = [known[client] for client in mine]
                elif mine:
                    panels = [panel.of(mine)]
            read = tuple(
                (work.learner.deployed_view(one, (first, last)), one.regions) for one in panels
            )
            left_out = _left_out(task, found, mine)
            for client in left_out.keys() - found.left_out.keys():
                self.say(f"client {client} counts as zero: {left_out[client]}")
            work = self._ready = replace(work, read=read, left_out=left_out)
        return work

    def _remember(self, panel: CasePanel) -> CasePanel:
        """What the site was given of a client today is kept, for itself; with all that is kept.

        Each client has an archive of its own: what is known of one decides nothing about another.
        """
        try:
            return remember(archive_of(self.kit, panel.regions[0]), panel, write=self.keeps)
        except EpifedError as error:
            self.say(f"today's counts of client {panel.regions[0]} are not kept: {error}")
            return panel

    def _load(self, clients: tuple[str, ...], step: Step) -> Hosted:
        """What the site's file has of its clients, read once."""
        if self._hosted is None or self._hosted[0] != (clients, step):
            found = (self.source or Source.of(self.kit)).load(clients, step)
            for client, reason in found.left_out.items():
                self.say(f"client {client} counts as zero: {reason}")
            self._hosted = (clients, step), found
        return self._hosted[1]

    def _keep_asked(self, task: Task, problem: str = "") -> None:
        """Write down what was asked for, where it is not written yet; no reason to fail."""
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


def _code_of(error: Exception) -> Code:
    if isinstance(error, MessageError):
        return error.code
    return Code.DATA if isinstance(error, EpifedError) else Code.ERROR


def _left_out(task: Task, found: Hosted, mine: Collection[str]) -> dict[str, str]:
    """The clients of a task that have nothing to send, and why."""
    said = {}
    first, last = task.period
    for client in task.clients:
        if client in mine:
            continue
        if client in found.left_out:
            said[client] = found.left_out[client]
        elif found.panel is None or client not in found.panel.regions:
            said[client] = "found no count of it; expected some"
        else:
            own = found.panel.alone(client)
            said[client] = f"found counts from {own.start} to {own.end}; expected {first} to {last}"
    return said
