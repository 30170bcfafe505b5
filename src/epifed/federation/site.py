"""What a site does with a task, without FLARE: read, check the terms, train, clip, book."""

import contextlib
import json
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from epifed.errors import EpifedError
from epifed.federation.codes import Code
from epifed.federation.messages import (
    MessageError,
    Parts,
    Task,
    pack_code,
    pack_contribution,
    unpack_task,
)
from epifed.federation.terms import SiteBook, Terms
from epifed.files import write_text
from epifed.learners import make_learner
from epifed.panel import CasePanel
from epifed.protocol import clip
from epifed.release import Model, read_model
from epifed.settings import Settings
from epifed.sources import load_panel
from epifed.windows import Clients, make_clients

DATA, TERMS, LEDGER, LOG = "data.json", "site.toml", "site.ledger", "participation.jsonl"


@dataclass(frozen=True)
class Source:
    """Where a site's case counts are and how they are read."""

    path: str
    format: str | None
    options: dict[str, Any]

    def load(self) -> CasePanel:
        """The panel."""
        return load_panel(Path(self.path), self.format, **self.options)

    def write(self, kit: Path) -> None:
        """Remember the source in the kit, for the worker that FLARE starts."""
        write_text(kit / DATA, json.dumps(vars(self), indent=2))

    @classmethod
    def of(cls, kit: Path) -> "Source":
        """The source that was remembered."""
        return cls(**json.loads((kit / DATA).read_text(encoding="utf-8")))


class SiteWork:
    """A site at work, in its kit. Its answers hold vectors or a code, never words."""

    def __init__(self, kit: Path) -> None:
        self.kit = kit
        self.terms = Terms.read(kit / TERMS)
        self._clients: dict[tuple[str, tuple[date, date]], Clients] = {}
        self._panel: CasePanel | None = None

    def prepare(self) -> None:
        """Read the data before a round waits for them. What is wrong with them, a round says."""
        with contextlib.suppress(EpifedError):
            self._load()

    def answer(self, parts: Parts) -> tuple[Parts, EpifedError | Exception | None]:
        """The answer to a task, and for the site's own log what went wrong."""
        training, number = "", 0
        try:
            task = unpack_task(parts)
            training, number = task.training, task.round
            return self._contribute(task), None
        except MessageError as error:
            return pack_code(training, number, error.code), error
        except EpifedError as error:
            return pack_code(training, number, Code.DATA), error
        except Exception as error:
            return pack_code(training, number, Code.ERROR), error

    def receive(self, content: bytes, paid: int, training: str) -> Model:
        """Keep the finished model, once it has been checked, and close the site's book on it."""
        path = self.kit / "models" / f"{training}.epifed"
        path.parent.mkdir(exist_ok=True)
        waiting = path.with_suffix(".received")
        waiting.write_bytes(content)
        model = read_model(waiting)
        if model.randomness == "secure":
            SiteBook(self.kit / LEDGER, self.terms).finish(training, paid, model.sha256)
        waiting.replace(path)
        return model

    def _contribute(self, task: Task) -> Parts:
        try:
            settings = Settings.from_toml(task.settings)
            period = date.fromisoformat(task.first_day), date.fromisoformat(task.last_day)
        except (EpifedError, ValueError):
            raise MessageError(Code.BAD_TASK) from None
        self.terms.refuse(task, settings)
        clients = self.clients(settings, period)
        row_of = {region: k for k, region in enumerate(clients.regions)}
        if not set(task.clients) <= row_of.keys():
            raise MessageError(Code.UNKNOWN_CLIENT)
        SiteBook(self.kit / LEDGER, self.terms).take_part(task, settings)
        rows = np.array([row_of[client] for client in task.clients], dtype=np.int64)
        updates = make_learner(settings).contribute(task.state, clients.train.of(rows))
        bounded = clip(updates, settings.clip_norm) if settings.private else updates
        self._note(task)
        return pack_contribution(task.training, task.round, task.clients, bounded)

    def clients(self, settings: Settings, period: tuple[date, date]) -> Clients:
        """The site's clients over these days, cut once a training."""
        key = settings.digest(), period
        if key not in self._clients:
            self._clients = {key: make_clients(self._load(), settings, period)}
        return self._clients[key]

    def _load(self) -> CasePanel:
        self._panel = self._panel or Source.of(self.kit).load()
        return self._panel

    def _note(self, task: Task) -> None:
        line = {
            "training": task.training,
            "round": task.round,
            "clients": task.clients,
            "randomness": task.randomness,
        }
        with (self.kit / LOG).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
