"""The ledger before the release: nothing becomes visible that is not written down."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from epifed.audit.findings import Check, Names, made
from epifed.audit.label_checks import CLIENTS, CLIENTS_PER_ROUND, ROUNDING, independent_price, small
from epifed.audit.learner_checks import Listening, audit_panel
from epifed.audit.served import (
    Post,
    agreeable,
    answer_of,
    plenty,
    roster,
    serve,
    site_works,
    workshop,
)
from epifed.errors import EpifedError
from epifed.federation.messages import MessageError, Task
from epifed.federation.server import ServedTraining, read_state
from epifed.federation.terms import SiteLedger
from epifed.learners.base import Vector, make_learner
from epifed.ledger.budget import Cap
from epifed.ledger.ledger import Ledger
from epifed.privacy.plan import PrivacyPlan
from epifed.settings import Settings, seed_sequence
from epifed.training import loop as training
from epifed.training.loop import ledger_key

ROUNDS = 3


class _StoppedError(EpifedError):
    """A ledger that cannot be written to."""


def check_ledger(settings: Settings, names: Names = None) -> list[Check]:
    """All checks of the ledger, or those named."""
    chosen = small(settings, accountant="rdp", rounds=ROUNDS)
    checks: dict[str, Callable[[Settings], Check]] = {
        "paid before the round": _before_the_round,
        "paid before the state": _before_the_state,
        "unpaid round in process": _unpaid_in_process,
        "unpaid round in a federation": _unpaid_in_a_federation,
        "what the ledger shows": _what_it_shows,
        "cap": _over_the_cap,
        "restored copy": _restored_copy,
        "same name, other noise": _same_name,
        "site's own book": _site_book,
        "site's own terms": _site_terms,
    }
    return made("ledger", {name: partial(c, chosen) for name, c in checks.items()}, names)


class _Noting(Ledger):
    """A ledger that notes every payment, and what could be seen at that moment."""

    events: list[str]
    look: Callable[[], Any] = staticmethod(lambda: None)
    stop_at: int | None = None

    def spend(self, run: str, number: int) -> None:
        if number == self.stop_at:
            raise _StoppedError("the disk is full")
        self.events.append(f"seen {self.look()} at payment {number}")
        super().spend(run, number)
        self.events.append(f"paid {number}")


def _noting(folder: Path, settings: Settings) -> _Noting:
    path = plenty(folder, settings).path
    noting = _Noting(path)
    noting.events = []
    return noting


def _trained(ledger: _Noting, settings: Settings) -> None:
    """A training in one process that notes its rounds' noise and its states with the payments."""
    panel = audit_panel()
    period = (panel.start, panel.end)
    learner = make_learner(settings)
    honest = learner.step
    numbers = iter(range(1, settings.rounds + 1))

    def step(state: Any, release: Vector, noise_std: float) -> Any:
        ledger.events.append(f"released {next(numbers)}")
        return honest(state, release, noise_std)

    learner.step = step  # type: ignore[method-assign]
    training.train(
        learner.deployed_view(panel, period),
        settings,
        learner=learner,
        ledger=ledger,
        period=period,
        watch=lambda i, _: ledger.events.append(f"visible {i}"),
    )


def _before_the_round(settings: Settings) -> Check:
    with workshop() as folder:
        ledger = _noting(folder, settings)
        _trained(ledger, settings)
        events = [event for event in ledger.events if not event.startswith("seen")]
    due = ["visible 0"]
    for number in range(1, settings.rounds + 1):
        due += [f"paid {number}", f"released {number}", f"visible {number}"]
    return Check(
        "paid before the round",
        events == due,
        "in one process a round is written down before its noise is drawn",
        "so it is" if events == due else f"found {', '.join(events[:6])}",
    )


def _served(
    folder: Path, settings: Settings, ledger: Ledger | None
) -> tuple[ServedTraining, Post, Listening]:
    panel = audit_panel()
    federation = roster(panel.regions, 2)
    works = site_works(folder, federation, panel)
    post = Post({name: answer_of(work) for name, work in works.items()})
    training = serve(folder, federation, settings, panel, ledger)
    listening = Listening.to(training.rounds.randomness)
    training.rounds = replace(training.rounds, randomness=listening)
    return training, post, listening


def _before_the_state(settings: Settings) -> Check:
    problem = ""
    with workshop() as folder:
        ledger = _noting(folder, settings)
        served, post, listening = _served(folder, settings, ledger)
        ledger.look = lambda: (read_state(served.folder) or (0,))[0]
        reported: list[int] = []
        while not served.finished:
            number = served.done + 1
            before = len(ledger.events)
            served.play(post, lambda line: reported.append(line["round"]))
            events = ledger.events[before:]
            if events != [f"seen {number - 1} at payment {number}", f"paid {number}"]:
                problem = problem or f"in round {number}: {', '.join(events) or 'no payment'}"
        drawn, spent = len(listening.cohorts), ledger.book().runs[served.run or ""].spent
    if not problem and not (drawn == spent == settings.rounds == len(reported)):
        problem = f"{drawn} rounds drawn, {spent} paid for"
    return Check(
        "paid before the state",
        not problem,
        "in a federation a round is written down before its state can be seen or reported",
        problem or f"so it is in {settings.rounds} rounds, as many as were paid for",
    )


def _unpaid_in_process(settings: Settings) -> Check:
    with workshop() as folder:
        ledger = _noting(folder, settings)
        ledger.stop_at = 2
        try:
            _trained(ledger, settings)
            stopped = False
        except _StoppedError:
            stopped = True
        after = [event for event in ledger.events if event.endswith(" 2")]
    return Check(
        "unpaid round in process",
        stopped and not after,
        "a round that cannot be written down is not run",
        "it ends before it" if stopped and not after else f"found {', '.join(after) or 'no end'}",
    )


def _unpaid_in_a_federation(settings: Settings) -> Check:
    with workshop() as folder:
        ledger = _noting(folder, settings)
        ledger.stop_at = 2
        served, post, _ = _served(folder, settings, ledger)
        reported: list[int] = []
        try:
            while not served.finished:
                served.play(post, lambda line: reported.append(line["round"]))
            stopped = False
        except _StoppedError:
            stopped = True
        seen = (read_state(served.folder) or (0,))[0]
    kept = stopped and seen == 1 and reported == [1]
    return Check(
        "unpaid round in a federation",
        kept,
        "a round that cannot be written down changes neither state nor report",
        "the state stays as it was" if kept else f"state of round {seen}, reports {reported}",
    )


def _what_it_shows(settings: Settings) -> Check:
    """The book's ε is an independent composition of the rounds it holds."""
    with workshop() as folder:
        ledger = _noting(folder, settings)
        for _ in range(2):
            _trained(ledger, settings)
        book = ledger.book()
        rounds = sum(record.spent for record in book.runs.values())
        cap, records = book.cap, [*book.runs.values()]
        shown = cap.price(book.released())
    plan = PrivacyPlan.of(settings, CLIENTS)
    rate = CLIENTS_PER_ROUND / CLIENTS
    kept = rounds == 2 * settings.rounds and all(
        record.noise_multiplier == plan.noise_multiplier
        and record.sampling_rate == rate
        and record.outcome == "finished"
        for record in records
    )
    due = independent_price(rate, plan.noise_multiplier, rounds, cap.delta, cap.accountant)
    kept = kept and shown >= due * (1 - ROUNDING)
    return Check(
        "what the ledger shows",
        kept,
        "two trainings stand in the book with their q, noise and all their rounds",
        f"{rounds} rounds, together ε = {shown:.4g}, {due:.4g} by an independent composition",
    )


def _over_the_cap(settings: Settings) -> Check:
    """A training that does not fit is refused before anybody is drawn."""
    plan = PrivacyPlan.of(settings, CLIENTS)
    delta = min(settings.delta, 1e-3)
    rate = CLIENTS_PER_ROUND / CLIENTS
    cost = independent_price(rate, plan.noise_multiplier, settings.rounds, delta, "rdp")
    found: list[str] = []
    for cap, fits in ((0.98 * cost, False), (1.02 * cost, True)):
        with workshop() as folder:
            path = Ledger.create(folder / "cap.db", Cap(cap, delta, "rdp")).path
            ledger = _Noting(path)
            ledger.events = []
            try:
                _trained(ledger, settings)
                ran = True
            except EpifedError:
                ran = False
            if ran != fits or (ledger.events and not fits):
                found.append(
                    f"a cap of {cap / cost:.2f} of the cost: {'ran' if ran else 'refused'}"
                )
    return Check(
        "cap",
        not found,
        "a training runs if and only if it fits under the cap, or nobody is drawn",
        "; ".join(found) or "2 % too little is refused, 2 % more is enough",
    )


def _restored_copy(settings: Settings) -> Check:
    with workshop() as folder:
        ledger = _noting(folder, settings)
        backup = folder / "backup.db"
        shutil.copy(ledger.path, backup)
        _trained(ledger, settings)
        ledger.path.unlink()
        shutil.copy(backup, ledger.path)
        try:
            again = _Noting(ledger.path)
            again.events = []
            _trained(again, settings)
            refused = False
        except EpifedError:
            refused = True
    return Check(
        "restored copy",
        refused,
        "a ledger that was restored from an older copy spends nothing",
        "it is refused" if refused else "it spent what had been spent before",
    )


def _same_name(settings: Settings) -> Check:
    """A run is found by everything that prices it: never by its name alone."""
    louder = settings.but(epsilon=20 * settings.epsilon)
    with workshop() as folder:
        ledger = plenty(folder, settings)
        first, post, _ = _served(folder / "one", settings, ledger)
        first.play(post, lambda _: None)
        try:
            other, post, _ = _served(folder / "two", louder, ledger)
            other.play(post, lambda _: None)
            runs = ledger.book().runs
            record = runs[other.run or ""]
            kept = other.run != first.run and record.noise_multiplier == other.plan.noise_multiplier
        except EpifedError:
            kept = True
    return Check(
        "same name, other noise",
        kept,
        "a training under a used name with other noise is refused, or a run of its own",
        "so it is" if kept else "its rounds stand in the ledger at the first one's noise",
    )


def _task(settings: Settings, **changes: Any) -> Task:
    panel, plan = audit_panel(), PrivacyPlan.of(settings, CLIENTS)
    learner = make_learner(settings)
    values: dict[str, Any] = {
        "training": "weekly",
        "round": 1,
        "rounds": settings.rounds,
        "paid": 0,
        "settings": settings.to_toml(),
        "first_day": str(panel.start),
        "last_day": str(panel.end),
        "enrolled": CLIENTS,
        "noise_multiplier": plan.noise_multiplier,
        "randomness": "secure",
        "clients": panel.regions[::2],
        "drawn": "0" * len(panel.regions[::2]),
        "state": learner.pack(learner.start(seed_sequence(0))),
    }
    return Task(**(values | changes))


def _site_book(settings: Settings) -> Check:
    """What a site has booked is what it answered, drawn or not, whatever the server says."""
    plan = PrivacyPlan.of(settings, CLIENTS)
    problem = ""
    with workshop() as folder:
        book = SiteLedger(folder / "site.db", agreeable())
        for _ in range(5):
            book.take_part(_task(settings), settings, plan)
        runs = book.ledger.book().runs.values()
        booked = sum(record.spent for record in runs)
        if booked != 5:
            problem = f"{booked} rounds booked for 5 answers"
        try:
            book.take_part(_task(settings, noise_multiplier=1e5), settings, plan)
            problem = problem or "the same name with other noise was taken"
        except MessageError:
            pass
    return Check(
        "site's own book",
        not problem,
        "a site books every answer, drawn or not, and no name twice with other noise",
        problem or "5 answers, 5 rounds; other noise is refused",
    )


def _site_terms(settings: Settings) -> Check:
    """A site judges by its own ε, δ and accountant, not by those it is told."""
    plan = PrivacyPlan.of(settings, CLIENTS)
    rate = CLIENTS_PER_ROUND / CLIENTS
    cost = independent_price(rate, plan.noise_multiplier, settings.rounds, 1e-5, "rdp")
    found: list[str] = []
    for times, fits in ((0.98, False), (1.02, True)):
        terms = agreeable(epsilon_per_release=times * cost, delta=1e-5, accountant="rdp")
        for told in (1e-5, 1e-2):
            said = settings.but(delta=told)
            task = _task(said, noise_multiplier=plan.noise_multiplier)
            try:
                terms.refuse(task, said, PrivacyPlan.of(said, CLIENTS))
                taken = True
            except MessageError:
                taken = False
            if taken != fits:
                found.append(f"{times:g} of the cost at δ = {told:g}: {'taken' if taken else 'no'}")
    key = ledger_key(plan, settings, None, "weekly")
    if key["sampling_rate"] != rate or key["noise_multiplier"] != plan.noise_multiplier:
        found.append("a key without its price")
    return Check(
        "site's own terms",
        not found,
        "a site refuses what costs more than its terms say, at its own δ",
        "; ".join(found) or "2 % too much is refused, whatever δ the server names",
    )
