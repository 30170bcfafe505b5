"""One look at a federation's files, which changes none of them.

It reads the roster, the reports and releases in the server's folder, the journal of the weeks and
the ledger. Who was drawn, what a site sent and what is not paid for yet it does not read.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from epifed.errors import EpifedError
from epifed.federation.burning import budget_of
from epifed.federation.codes import GERMAN, SENTENCES, Code, Standing
from epifed.federation.notices import notices_of
from epifed.federation.overview import (
    Certificate,
    Live,
    Overview,
    SiteSeen,
    SiteState,
    WeekSeen,
    WeekState,
)
from epifed.federation.past import Training, read_trainings, release_of, standing_of
from epifed.federation.roster import Federation, Site
from epifed.federation.weekly import JOURNAL, Schedule, Week, read_outcomes
from epifed.federation.worth import Truth, worth_of
from epifed.ledger.book import Book
from epifed.ledger.ledger import glance
from epifed.privacy.plan import PrivacyPlan

ROSTER, TRAININGS = "federation.toml", "trainings"
SHOWN_WEEKS = 12
"""Of each site."""


@dataclass(frozen=True)
class Places:
    """Where the state is read from."""

    kit: Path
    """The server's."""
    ledger: Path | None = None
    weeks: Path | None = None
    schedule: Schedule | None = None
    plan: PrivacyPlan | None = None
    """Of one week's training."""
    truth: Truth | None = None


@dataclass(frozen=True)
class Beside:
    """What files of the server do not tell: what it says itself, and when certificates end."""

    live: Live | None = None
    ends: dict[str, datetime] = field(default_factory=dict)


def look_over(places: Places, beside: Beside, now: datetime | None = None) -> Overview:
    """The state of the federation now."""
    now = now or datetime.now(UTC)
    roster = Federation.read(places.kit / ROSTER)
    folder = places.kit / TRAININGS
    trainings = read_trainings(folder)
    real = [one for one in trainings if not one.seeded] or trainings
    last = real[-1] if real else None
    book, fault, unread = _book(places.ledger)
    outcomes = read_outcomes(places.weeks / JOURNAL) if places.weeks else {}
    live = beside.live
    week = _week(places.schedule, outcomes, trainings, live, now) if places.schedule else None
    released = [
        (one.name, release_of(folder, one.name))
        for one in trainings
        if one.release and not one.seeded
    ]
    truth = places.truth
    found = Overview(
        made=now,
        federation=roster.name,
        clients=len(roster.clients),
        aggregators=tuple(one.name for one in roster.aggregators),
        version=version("epifed"),
        live=live,
        sites=tuple(_site(site, real, live) for site in roster.sites),
        week=week,
        trainings=tuple(one if one is last else _brief(one) for one in trainings),
        budget=budget_of(book, fault, places.schedule, places.plan, set(outcomes), now)
        if book
        else None,
        certificates=tuple(
            sorted(
                (Certificate.of(party, ends, now) for party, ends in beside.ends.items()),
                key=lambda one: (one.ends, one.party),
            )
        ),
        worth=worth_of(released, truth) if truth else (),
        truth=truth.source if truth else None,
        reasons={c.value: {"en": SENTENCES[c], "de": GERMAN.get(c, SENTENCES[c])} for c in Code},
        notices=(),
    )
    return found.model_copy(
        update={"notices": notices_of(found, places.schedule, book, unread, now)}
    )


def _book(ledger: Path | None) -> tuple[Book | None, str | None, str | None]:
    """The ledger's book, what speaks against it, and why it could not be read."""
    if ledger is None:
        return None, None, None
    try:
        book, fault = glance(ledger)
    except (EpifedError, OSError) as error:
        return None, None, str(error)
    return book, fault, None


def _brief(training: Training) -> Training:
    """A training of the past: its last round, and no names."""
    update = {"done": training.done[-1:], "without": {}, "delivered": ()}
    return training.model_copy(update=update)


def _site(site: Site, trainings: list[Training], live: Live | None) -> SiteSeen:
    last = trainings[-1] if trainings else None
    handed = next((one for one in reversed(trainings) if one.release), None)
    without = last.without.get(site.name) if last else None
    code = without.code if without else None
    stood: Standing | None = standing_of(code) if code else None
    connected = site.name in live.connected if live and live.reached else None
    if connected is False:
        state: SiteState = "absent"
    elif stood and (stood != "absent" or connected is None):
        state = stood
    elif connected:
        state = "connected"
    else:
        state = "contributed" if last and last.done else "unknown"
    return SiteSeen(
        name=site.name,
        clients=len(site.clients),
        state=state,
        connected=connected,
        code=code,
        without=without.rounds if without else 0,
        weeks="".join(_letter(one, site.name) for one in trainings[-SHOWN_WEEKS:]),
        has_release=site.name in handed.delivered if handed else None,
        version=live.versions.get(site.name) if live else None,
    )


def _letter(training: Training, site: str) -> str:
    without = training.without.get(site)
    return standing_of(without.code)[0] if without and without.code else "t"


def _week(
    schedule: Schedule,
    outcomes: dict[str, dict[str, Any]],
    trainings: list[Training],
    live: Live | None,
    now: datetime,
) -> WeekSeen:
    """The newest week that is due, or the first one to come."""
    weeks = schedule.planned()
    due = [week for week in weeks if week.due <= now]
    week, coming = (due[-1] if due else weeks[0]), weeks[len(due) :]
    found = [
        str(one["outcome"]) for name, one in outcomes.items() if name in {w.name for w in weeks}
    ]
    outcome = outcomes.get(week.name)
    return WeekSeen(
        name=week.name,
        day=week.day,
        due=week.due,
        state=_week_state(schedule, week, outcome, trainings, live, now),
        reason=str(outcome["reason"]) if outcome else "",
        next_due=coming[0].due if coming else None,
        done=found.count("done"),
        skipped=found.count("skipped"),
        planned=len(weeks),
    )


def _week_state(
    schedule: Schedule,
    week: Week,
    outcome: dict[str, Any] | None,
    trainings: list[Training],
    live: Live | None,
    now: datetime,
) -> WeekState:
    if outcome:
        return "done" if outcome["outcome"] == "done" else "skipped"
    if week.due > now:
        return "coming"
    begun = any(one.name == week.name for one in trainings)
    if begun or (live is not None and live.training == week.name):
        return "running"
    return "missed" if schedule.missed(week, now) else "waiting"
