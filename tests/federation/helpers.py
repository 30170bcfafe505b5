"""What the tests of the federation share."""

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from epifed.data.panel import CasePanel
from epifed.federation.flare import jobs
from epifed.federation.messages import Parts, RoundTerms, Task, pack_contribution
from epifed.federation.server import Order, Post, Problem, read_state
from epifed.learners.base import Learner, Vector, View, make_learner
from epifed.privacy.plan import PrivacyPlan
from epifed.rehearsal.local import LocalFederation, rehearsal_federation
from epifed.settings import Settings, seed_sequence
from epifed.training.rounds import vector_length
from tests.commands import PRELOADED
from tests.helpers import small_panel, small_settings
from tests.waiting import GUARD, wait_for

HERE = Path(__file__).parent
REGIONS = 12


def panel() -> CasePanel:
    return small_panel(REGIONS)


def settings_of(learner: str, **changes: Any) -> Settings:
    """Small settings of a learner: several rounds of fedavg, one of any other."""
    if learner == "fedavg":
        return small_settings(**changes)
    values = {"learner": learner, "rounds": 1, "clients_per_round": 6}
    return Settings.of(**values | changes)


def view_of(settings: Settings) -> View:
    """What a learner reads of all clients in one process."""
    days = panel()
    found: View = make_learner(settings).deployed_view(days, (days.start, days.end))
    return found


def plan(name: str, settings: Settings, *, seeded: bool = True) -> Order:
    days = panel()
    return Order.of(name, settings, days.start, days.end, seeded=seeded)


@contextmanager
def federation(
    folder: Path,
    sites: int,
    *,
    environment: dict[str, dict[str, str]] | None = None,
    ledger: Path | None = None,
    cases: CasePanel | None = None,
    **changes: Any,
) -> Iterator[LocalFederation]:
    """A local federation, started, its keys and caches in its own folder.

    A site that is away when a model is delivered is waited for, however late it comes back.
    """
    cases = cases or panel()
    roster = rehearsal_federation(cases, sites, **{"round_timeout": 300.0} | changes)
    with (
        mock.patch.object(jobs, "REJOIN", GUARD),
        LocalFederation.make(folder, roster, cases, ledger, PRELOADED) as local,
    ):
        local.environment |= environment or {}
        local.start()
        yield local


def all_run(local: LocalFederation) -> bool:
    """Whether each party that was started still runs."""
    return all(process.poll() is None for process in local.processes.values())


def on_path(folder: str, **more: str) -> dict[str, str]:
    """An environment whose processes run the sitecustomize of a folder here."""
    before = os.environ.get("PYTHONPATH")
    folders = [str(HERE / folder), str(HERE / "import_hooks")]
    path = os.pathsep.join([*folders, *([before] if before else [])])
    return {"PYTHONPATH": path, **more}


class Training(threading.Thread):
    """A training that runs beside what is done to it."""

    def __init__(self, local: LocalFederation, wanted: Order) -> None:
        super().__init__(daemon=True)
        self.local, self.wanted = local, wanted
        self.status: dict[str, Any] = {}
        self.told: list[dict[str, Any]] = []
        self.error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            self.status = self.local.train(self.wanted, self.told.append)
        except Exception as error:
            self.error = error

    def until_round(self, number: int) -> None:
        self.until(lambda: self.done() >= number, f"round {number}")

    def until(self, happened: Callable[[], bool], what: str) -> None:
        def goes_on() -> bool:
            assert self.error is None, self.error
            return self.is_alive()

        wait_for(happened, what, goes_on)

    def done(self) -> int:
        found = read_state(self.local.training_folder(self.wanted))
        return found[0] if found else 0

    def finished(self) -> dict[str, Any]:
        self.join(2 * GUARD)
        assert not self.is_alive(), "the training did not finish"
        assert self.error is None, self.error
        return self.status


Answering = Callable[[dict[str, Task]], tuple[Mapping[str, Parts], list[Problem]]]


class SitesPost(Post):
    """A post in this process whose sites answer as a function says."""

    def __init__(self, answering: Answering) -> None:
        self.answering = answering

    def sites(self, tasks: dict[str, Task]) -> tuple[Mapping[str, Parts], list[Problem]]:
        return self.answering(tasks)


def zeros(task: Task) -> Parts:
    """A site's answer whose clients all send zeros."""
    rows = np.zeros((len(task.clients), task.length), dtype=np.float32)
    return pack_contribution(task.training, task.round, rows)


def terms_of(settings: Settings, clients: int = REGIONS, **changes: Any) -> RoundTerms:
    """The terms of a training's first round over the days of the panel."""
    learner, days = make_learner(settings), panel()
    state = learner.start(seed_sequence(settings.seed))
    period, length = (days.start, days.end), vector_length(learner, state)
    plan = PrivacyPlan.of(settings, clients)
    terms = RoundTerms.make("week", settings, plan, period, learner.pack(state), length)
    return replace(terms, **changes)


def task_of(
    settings: Settings, hosted: tuple[str, ...], drawn: str, clients: int = REGIONS, **changes: Any
) -> Task:
    """The task of a site in the first round."""
    state = make_learner(settings).pack(make_learner(settings).start(seed_sequence(settings.seed)))
    return Task.to(terms_of(settings, clients, **changes), "site-1", hosted, drawn, state)


def silenced(settings: Settings, rows: dict[int, list[int]]) -> Learner[Any, Any]:
    """A learner to which some clients contribute nothing in some rounds.

    Everybody is drawn: row k is client k.
    """
    kind: Any = type(make_learner(settings))

    class Silenced(kind):  # type: ignore[misc]
        round = 0

        def contribute(self, state: Any, view: View) -> Vector:
            updates: Vector = super().contribute(state, view)
            if len(view):
                self.round += 1
                updates[rows.get(self.round, [])] = 0.0
            return updates

    made: Learner[Any, Any] = Silenced(settings)
    return made
