"""Whether a year's books are right: every release paid once and nothing else, in every ledger.

Nothing here was written by the course of the year: it is read from the journal of the schedule, the
ledgers of all parties, the server's trainings and the release files that each party holds.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from epifed.errors import EpifedError
from epifed.federation import aggregator
from epifed.federation.delivery import MODELS
from epifed.federation.flare.controller import TRAININGS
from epifed.federation.site import LEDGER
from epifed.federation.weekly import JOURNAL, read_outcomes
from epifed.ledger.book import Book, RunRecord
from epifed.ledger.budget import together
from epifed.ledger.ledger import Ledger
from epifed.release import read_release
from epifed.year.events import foreseen, renamed
from epifed.year.parties import BUDGET
from epifed.year.plan import Plan

TOLERANCE = 1e-9
"""Of an ε, relative: composing rounds all at once or one after the other rounds differently."""


@dataclass
class Accounts:
    """What the books of a year say, and what is wrong with them."""

    outcomes: dict[str, dict[str, Any]]
    """By week, from the schedule's journal."""
    spent: list[float]
    """ε after each week, by the federation's ledger."""
    planned: list[float]
    """ε after each week, by the plan and the list of events."""
    releases: dict[str, str] = field(default_factory=dict)
    """The hash of each week's release, by the federation's ledger."""
    took_part: dict[str, list[str]] = field(default_factory=dict)
    """By week, the sites whose answer counted."""
    without: dict[str, dict[str, str]] = field(default_factory=dict)
    """By week, the sites that did not count, and why."""
    holders: dict[str, list[str]] = field(default_factory=dict)
    """By week, the parties that hold its release."""
    faults: list[str] = field(default_factory=list)

    @property
    def right(self) -> bool:
        """Whether every release is accounted for and the ledger is the plan."""
        return not self.faults


def settle_accounts(folder: Path, plan: Plan) -> Accounts:
    """Read all books of a year that is over."""
    outcomes = read_outcomes(folder / "weeks" / JOURNAL)
    book = Ledger(folder / BUDGET, copy=True).book()
    names = [week.name for week in plan.planned]
    expected = foreseen(plan.schedule, plan.names, plan.events)
    done = [name for name, one in zip(names, expected, strict=True) if one == "done"]
    accounts = Accounts(outcomes, *_courses(book, plan, expected))
    fault = accounts.faults.append
    for name, one in zip(names, expected, strict=True):
        became = outcomes.get(name, {}).get("outcome", "nothing")
        if became != one:
            fault(f"{name}: the journal says '{became}'; expected '{one}' by the list of events")
    _check_budget(book, plan, done, accounts)
    for name in done:
        _check_training(folder, name, accounts)
    _check_parties(folder, plan, done, accounts)
    return accounts


def _courses(book: Book, plan: Plan, expected: list[Any]) -> tuple[list[float], list[float]]:
    """ε after each week: spent, and planned."""
    spent, planned, weeks, parts = list[float](), list[float](), 0, list[Any]()
    for week, one in zip(plan.planned, expected, strict=True):
        run = book.named(week.name)
        parts += [run.part(run.spent)] if run else []
        weeks += one == "done"
        spent.append(book.cap.price(together(parts)))
        planned.append(plan.price(weeks))
    return spent, planned


def _check_budget(book: Book, plan: Plan, done: list[str], accounts: Accounts) -> None:
    fault = accounts.faults.append
    _check_runs("the federation's ledger", book, plan, done, fault)
    for name in done:
        run = book.named(name)
        if run is None:
            fault(f"{name}: not in the federation's ledger; expected it to be paid for")
        elif run.model_hash is None:
            fault(f"{name}: no release stands in the federation's ledger; expected its hash")
        else:
            accounts.releases[name] = run.model_hash
    total, wanted = book.cap.price(book.taken()), plan.price(len(done))
    if abs(total - wanted) > TOLERANCE * wanted:
        fault(f"the federation's ledger: found ε = {total:.9g} spent; expected {wanted:.9g}")


def _check_runs(
    whose: str, book: Book, plan: Plan, allowed: list[str], fault: Callable[[str], None]
) -> None:
    """Of a ledger: only these trainings, each once, with the plan's rounds, and closed."""
    seen = set[str]()
    for run in book.runs.values():
        if not run.counted:  # given back by a week that was skipped
            continue
        if run.training not in allowed or run.training in seen:
            again = "a second time" if run.training in seen else "but no week that was to be run"
            fault(f"{whose}: found '{run.training}', {again}")
        seen.add(run.training)
        if run.spent != plan.privacy.rounds:
            fault(
                f"{whose}: {run.training}: found {run.spent} rounds paid for; expected "
                f"{plan.privacy.rounds}"
            )


def _check_training(folder: Path, name: str, accounts: Accounts) -> None:
    """The server's folder of a week: its release is the ledger's, and who took part."""
    path = folder / "kits" / "server" / TRAININGS / name
    try:
        found = read_release(path / "model.epifed").sha256
        lines = [json.loads(one) for one in (path / "report.jsonl").read_text().splitlines()]
    except (EpifedError, OSError, ValueError) as error:
        accounts.faults.append(f"{name}: its release cannot be read at the server: {error}")
        return
    if found != accounts.releases.get(name):
        accounts.faults.append(f"{name}: the server's release is not the one that was paid for")
    last = {line["round"]: line for line in lines}
    problems = {one["site"]: one["reason"] for line in last.values() for one in line["problems"]}
    accounts.without[name] = problems
    everyone = {site for line in last.values() for site in line["sites"]}
    accounts.took_part[name] = sorted(everyone - problems.keys())


def _check_parties(folder: Path, plan: Plan, done: list[str], accounts: Accounts) -> None:
    """The books and the releases of all parties, of those under their old names, too."""
    known = {digest: name for name, digest in accounts.releases.items()}
    accounts.holders = {name: [] for name in done}
    for kit in sorted((folder / "kits").iterdir()):
        for path in sorted((kit / MODELS).glob("*.epifed")):
            name = known.get(read_release(path).sha256)
            if name is None or name != path.stem:
                accounts.faults.append(f"{kit.name}: holds a release that nobody paid for: {path}")
            else:
                accounts.holders[name].append(kit.name)
    for name in plan.adders:
        book = Ledger(folder / "kits" / name / aggregator.LEDGER, copy=True).book()
        _check_runs(name, book, plan, done, accounts.faults.append)
        for week in sorted(set(done) - _trainings(book)):
            accounts.faults.append(f"{name}: {week} is not in its ledger")
    lost = {site for event in plan.events.events if event.what == "lost-key" for site in event.who}
    for name in plan.names:
        now = renamed(name) if name in lost else name
        _check_site(folder, plan, {name, now}, now, done, accounts)


def _check_site(
    folder: Path, plan: Plan, names: set[str], now: str, done: list[str], accounts: Accounts
) -> None:
    """A site's own ledger: all weeks in which its answer counted, under each of its names."""
    fault = accounts.faults.append
    counted = {week for week, sites in accounts.took_part.items() if names & set(sites)}
    path = folder / "kits" / now / LEDGER
    if not path.exists():
        if counted:
            fault(f"{now}: has no ledger; expected one of {len(counted)} weeks")
        return
    book = Ledger(path, copy=True).book()
    _check_runs(now, book, plan, done, fault)
    for week in sorted(counted - _trainings(book)):
        fault(f"{now}: {week} is not in its ledger, though its answer counted")
    for run in book.runs.values():
        if _wrong_release(run, accounts):
            fault(f"{now}: {run.training}: its ledger names another release than was paid for")


def _trainings(book: Book) -> set[str]:
    return {run.training for run in book.runs.values()}


def _wrong_release(run: RunRecord, accounts: Accounts) -> bool:
    return run.model_hash not in (None, accounts.releases.get(run.training))
