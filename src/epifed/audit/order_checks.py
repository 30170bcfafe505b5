"""Charge first, then release: every training and every answer is killed at each of its steps.

A party is killed before each file that it opens for writing, renames or removes, and before and
after each row of its ledger. Then its disk is inspected and it is restarted. All that became
visible must be in the ledger, and all that is finished in the end must be charged.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from epifed.audit.bench import (
    Parties,
    SitesPost,
    Trial,
    answer_of,
    at_work,
    plenty,
    roster,
    serve,
    site_works,
    spent,
    work_in,
    workshop,
)
from epifed.audit.combination_checks import panel_of
from epifed.audit.statistics import Check, Names, finding, made
from epifed.federation import aggregator
from epifed.federation.aggregator import AggregatorWork
from epifed.federation.messages import Parts
from epifed.federation.server import ServedTraining, TooFewError, read_state
from epifed.federation.site import LEDGER as SITE_LEDGER
from epifed.learners.base import make_learner
from epifed.ledger.ledger import Ledger
from epifed.settings import Settings
from epifed.training import loop

REGIONS, ROUNDS = 8, 2
MOST_STEPS = 400
_WRITES = ("os.rename", "os.remove", "os.truncate", "shutil.copyfile")


class KilledError(BaseException):
    """Raised to kill a party; no code of the party runs after it."""


class _Killer:
    """Counts the writing steps below a folder, and kills the writer at one of them."""

    folder: Path | None = None
    at: int | None = None
    steps: int = 0

    def step(self) -> None:
        """Count a step; raise `KilledError` at the chosen one."""
        self.steps += 1
        if self.steps == self.at:
            self.at = None
            raise KilledError

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        """The interpreter's audit hook: count an event that writes below the folder."""
        if self.folder is None:
            return
        writes = event in _WRITES
        if event == "open":
            mode = arguments[1]
            writes = isinstance(mode, str) and any(letter in mode for letter in "wax+")
        path = str(arguments[0]) if arguments else ""
        idle = path.endswith(("lock", "-journal", "-wal"))
        if writes and not idle and path.startswith(str(self.folder)):
            self.step()


_KILLER = _Killer()
_HOOKED: list[bool] = []


@contextmanager
def _killing(folder: Path, at: int | None) -> Iterator[_Killer]:
    """Count the steps below a folder, and kill at step `at`."""
    if not _HOOKED:
        sys.addaudithook(_KILLER.hook)
        _HOOKED.append(True)
    honest = Ledger.spend

    def spend(self: Ledger, run: str, number: int) -> None:
        _KILLER.step()
        honest(self, run, number)
        _KILLER.step()

    _KILLER.folder, _KILLER.at, _KILLER.steps = folder, at, 0
    try:
        with mock.patch.object(Ledger, "spend", spend):
            yield _KILLER
    finally:
        _KILLER.folder = None


def check_order(settings: Settings, names: Names = None) -> list[Check]:
    """All checks of charging before releasing, or those named."""
    checks: dict[str, Callable[[], Check]] = {
        "killed: training in process": partial(_killed, settings, _in_process),
        "killed: server": partial(_killed, settings, _server),
        "killed: server with aggregators": partial(_killed, settings, _relay),
        "killed: site": partial(_killed, settings, partial(_answering, "site")),
        "killed: site that seals": partial(_killed, settings, partial(_answering, "sealing site")),
        "killed: aggregator": partial(_killed, settings, partial(_answering, "aggregator")),
        "lost ledger": partial(_lost_ledgers, settings),
    }
    return made("ledger", checks, names)


Play = Callable[[Settings, Path, int | None], tuple[int, str]]
"""Plays with a kill at a step; returns the number of steps, and what is wrong on the disk."""


def _killed(settings: Settings, play: Play) -> Check:
    problem, steps, at = "", 0, 1
    with workshop() as folder:
        steps, problem = play(settings, folder, None)
    if steps > MOST_STEPS:
        problem = problem or f"{steps} steps"
    while not problem and at <= steps:
        with workshop() as folder:
            _, wrong = play(settings, folder, at)
            problem = wrong and f"killed at step {at} of {steps}: {wrong}"
        at += 1
    return finding(
        not problem and steps > 2,
        "whenever it is killed, what is visible is booked, and what is finished is charged",
        problem or f"so it is at each of {steps} steps",
    )


def _small(settings: Settings) -> Settings:
    return Settings.for_learner(
        "fedavg",
        REGIONS,
        model="linear",
        epochs=1,
        clients_per_round=REGIONS // 2,
        rounds=ROUNDS,
        epsilon=settings.epsilon,
        delta=settings.delta,
    )


def _in_process(settings: Settings, folder: Path, at: int | None) -> tuple[int, str]:
    chosen, panel = _small(settings), panel_of("day")
    period = (panel.start, panel.end)
    learner = make_learner(chosen)
    view = learner.deployed_view(panel, period)
    ledger = plenty(folder, chosen)
    visible: list[int] = []
    released: list[bool] = []
    step = learner.step

    def stepping(state: Any, release: Any, noise_std: float) -> Any:
        released.append(True)
        return step(state, release, noise_std)

    learner.step = stepping  # type: ignore[method-assign]
    finished = False
    with _killing(folder, at) as killer:
        with suppress(KilledError):
            loop.train(
                view,
                chosen,
                learner=learner,
                ledger=ledger,
                period=period,
                watch=lambda number, _: visible.append(number),
            )
            finished = True
        steps = killer.steps
    booked = spent(ledger.path)
    wrong = ""
    if max(max(visible, default=0), len(released)) > booked:
        wrong = f"{len(released)} rounds were released and {booked} booked"
    if finished and booked != ROUNDS:
        wrong = f"it finished with {booked} rounds booked"
    return steps, wrong


def _server(settings: Settings, folder: Path, at: int | None) -> tuple[int, str]:
    chosen, panel = _small(settings), panel_of("day")
    federation = roster(panel.regions, 2)
    works = site_works(folder / "sites", federation, panel)
    told: list[int] = []

    def post() -> SitesPost:
        return SitesPost({name: answer_of(work) for name, work in works.items()})

    home = folder / "server"
    ledger = plenty(folder / "server", chosen)
    with _killing(home, at) as killer:
        with suppress(KilledError):
            _finish(serve(home, federation, chosen, panel, ledger), post(), told)
        steps = killer.steps
    wrong = _unbooked(home, ledger.path, told)
    if at is not None and not wrong:
        again = serve(home, federation, chosen, panel, Ledger(ledger.path))
        _finish(again, post(), told)
        wrong = _unpaid(again, ledger.path)
    return steps, wrong


def _finish(served: Any, post: Any, told: list[int]) -> None:
    try:
        while not served.finished:
            served.play(post, lambda line: told.append(line["round"]))
        served.finish()
    finally:
        served._lock.release()


def _unbooked(home: Path, ledger: Path, told: list[int]) -> str:
    """What the disk or a report shows of rounds that are not in the ledger, in words."""
    booked = spent(ledger)
    visible = max(
        [*told, *((read_state(path) or (0,))[0] for path in (home / "trainings").glob("*"))],
        default=0,
    )
    if visible > booked:
        return f"the state of round {visible} is visible and {booked} rounds are booked"
    files = [path for path in home.rglob("model.epifed") if booked < ROUNDS]
    return f"a release file with {booked} rounds booked" if files else ""


def _unpaid(again: Any, ledger: Path) -> str:
    """How the finished release differs from the ledger, in words."""
    booked = spent(ledger)
    (part,) = again.finish().spent
    if not ROUNDS <= part.rounds == booked:
        return f"its file says {part.rounds} rounds, its ledger {booked}"
    return ""


_PUPPETS = {"site-1": (0, 1, 2, 3), "site-2": (4, 5, 6, 7)}


@contextmanager
def _sealed(settings: Settings) -> Iterator[tuple[Parties, Settings]]:
    rows = np.full((REGIONS, 6), settings.clip_norm, dtype=np.float32)
    chosen = settings.but(clients_per_round=REGIONS // 2, rounds=ROUNDS, accountant="rdp")
    trial = Trial(chosen, rows, np.ones(REGIONS, dtype=np.int64))
    with at_work(trial, _PUPPETS) as found:
        yield found


def _relay(settings: Settings, folder: Path, at: int | None) -> tuple[int, str]:
    del folder
    with _sealed(settings) as (parties, sealed):
        told: list[int] = []
        home, ledger = parties.folder / "server", parties.folder / "budget.db"
        plenty(parties.folder, sealed)
        with _killing(home, at) as killer:
            with suppress(KilledError):
                _finish(parties.training(sealed), parties, told)
            steps = killer.steps
        booked = spent(ledger)
        done = (read_state(home / "audit") or (0,))[0]
        wrong = ""
        if max([done, *told]) > booked:
            wrong = f"the state of round {done} is visible and {booked} rounds are booked"
        asked = max((each.terms.round for each in parties.seen if each.answers), default=0)
        if asked > booked:
            wrong = wrong or f"an aggregator answered round {asked} with {booked} rounds booked"
        if at is not None and not wrong:
            again = parties.training(sealed)
            _finish(again, parties, told)
            wrong = _unpaid(again, ledger)
        return steps, wrong


def _answering(who: str, settings: Settings, folder: Path, at: int | None) -> tuple[int, str]:
    """No answer of a party leaves, or is found on its disk, before it is in the ledger."""
    if who == "site":
        chosen, panel = _small(settings), panel_of("day")
        federation = roster(panel.regions, 2)
        works = site_works(folder, federation, panel)
        server = folder / "server"
        server.mkdir()
        served = serve(server, federation, chosen, panel, plenty(server, chosen))
        kit = works["site-1"].kit
        asked = _first_task(served)["site-1"]
        return _asked(partial(work_in, kit), kit, SITE_LEDGER, asked, at, kept=False)
    with _sealed(settings) as (parties, sealed):
        parties.training(sealed).play(parties, lambda _: None)
        name = "site-1" if who == "sealing site" else parties.names[0]
        first = parties.seen[0]
        asked = first.tasks[name] if who == "sealing site" else first.questions[name]
        kit = parties.copied(name)
        if who == "sealing site":
            return _asked(partial(work_in, kit), kit, SITE_LEDGER, asked, at)
        return _asked(partial(AggregatorWork, kit), kit, aggregator.LEDGER, asked, at)


def _lost_ledgers(settings: Settings) -> Check:
    """A party that has answered sends nothing once its ledger is missing or an older copy."""
    wrong = []
    with workshop() as folder:
        chosen, panel = _small(settings), panel_of("day")
        federation = roster(panel.regions, 2)
        kit = site_works(folder, federation, panel)["site-1"].kit
        served = serve(folder, federation, chosen, panel, plenty(folder, chosen))
        asked = _first_task(served)["site-1"]
        wrong += _answers_without(lambda: work_in(kit), kit / SITE_LEDGER, [asked] * 3)
    with _sealed(settings) as (parties, sealed):
        training = parties.training(sealed)
        while not training.finished:
            training.play(parties, lambda _: None)
        for name, book in (("site-1", SITE_LEDGER), (parties.names[0], aggregator.LEDGER)):
            kit = parties.copied(name)
            is_site = name in parties.sites_at_work
            questions = [(each.tasks if is_site else each.questions)[name] for each in parties.seen]
            party = partial(work_in if is_site else AggregatorWork, kit)
            wrong += _answers_without(party, kit / book, questions)
    return finding(
        not wrong,
        "a site or an aggregator whose ledger is gone, or was restored from a copy, sends nothing",
        wrong[0] if wrong else "so it is for a site, a site that seals and an aggregator",
    )


def _answers_without(party: Callable[[], Any], ledger: Path, questions: list[Parts]) -> list[str]:
    """Answers sent without the ledger, or with its first state, to the last of some questions."""
    wrong, backup = [], ledger.with_suffix(".backup")
    for number, question in enumerate(questions[:-1]):
        if _numbers(party().answer(question)[0]) is None:
            return [f"{ledger.name}: no answer to question {number + 1}"]
        if number == 0:
            backup.write_bytes(ledger.read_bytes())
    whole = ledger.read_bytes()
    states = {"gone": None, "restored from a copy": backup.read_bytes()}
    for state, content in states.items():
        if content == whole:
            continue
        ledger.unlink(missing_ok=True)
        if content is not None:
            ledger.write_bytes(content)
        if _numbers(party().answer(questions[-1])[0]) is not None:
            wrong.append(f"{ledger.parent.name}: it answers with {ledger.name} {state}")
    return wrong


def _first_task(served: ServedTraining) -> dict[str, Parts]:
    """The tasks of the first round, as they travel."""
    silent = SitesPost({site.name: lambda _: {} for site in served.federation.sites})
    with suppress(TooFewError):
        served.play(silent, lambda _: None)
    return silent.tasks[0]


def _asked(
    party: Callable[[], Any],
    kit: Path,
    ledger: str,
    asked: Parts,
    at: int | None,
    *,
    kept: bool = True,
) -> tuple[int, str]:
    given: Parts | None = None
    with _killing(kit, at) as killer:
        with suppress(KilledError):
            given = _numbers(party().answer(asked)[0])
        steps = killer.steps
    booked = spent(kit / ledger)
    if given is not None and booked != 1:
        return steps, f"an answer left with {booked} rounds booked"
    if kept and [*kit.rglob("*.answer")] and booked != 1:
        return steps, f"an answer is kept with {booked} rounds booked"
    if at is None:
        return steps, "" if given is not None else "no answer"
    again = _numbers(party().answer(asked)[0])
    booked = spent(kit / ledger)
    if again is None or booked < 1 or (kept and booked != 1):
        return steps, f"asked again it answers with {booked} rounds booked"
    return steps, ""


def _numbers(answer: Parts) -> Parts | None:
    """The answer, or None if it is a code."""
    return None if "code" in json.loads(answer["about"]) else answer
