"""The state of a federation as its coordinator may know it, and the alerts that follow from it.

It is read from the roster, the server's folder, the schedule's journal and the ledger, without
changing them. It does not read who was drawn, what a site sent, or what is not yet charged. The
page and the metrics show this object and nothing else.
"""

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field

from epifed.errors import EpifedError
from epifed.federation.messages import GERMAN, SENTENCES, Code, Standing
from epifed.federation.schedule import JOURNAL, Schedule, Week, read_outcomes
from epifed.federation.terms import SOON, Federation, Site
from epifed.federation.training_history import (
    Budget,
    Known,
    ReleaseSkill,
    Training,
    Truth,
    budget_of,
    read_trainings,
    release_of,
    release_skill,
    standing_of,
)
from epifed.ledger.budget import Book
from epifed.ledger.ledger import glance
from epifed.privacy.plan import PrivacyPlan
from epifed.training.loop import POOR

SiteState = Literal["connected", "contributed", "absent", "late", "refused", "faulty", "unknown"]
SITE_STATES: tuple[SiteState, ...] = get_args(SiteState)
WeekState = Literal[
    "done", "skipped", "refused", "wasted", "running", "waiting", "missed", "coming"
]  # fmt: skip
WEEK_STATES: tuple[WeekState, ...] = get_args(WeekState)
NoticeKind = Literal[
    "server-away", "too-few-sites", "sites-absent", "sites-late", "sites-refused", "sites-faulty",
    "week-skipped", "week-refused", "week-overdue", "nothing-learned", "mostly-noise",
    "undelivered", "unusual", "unvouched", "ledger-fault",
    "ledger-unread", "budget-short", "budget-low", "certificate-over", "certificate-soon",
    "versions-differ",
]  # fmt: skip
NOTICE_KINDS: tuple[NoticeKind, ...] = get_args(NoticeKind)


class Live(Known):
    """The server's own answer when it was last asked."""

    asked: datetime
    reached: bool
    connected: tuple[str, ...] = ()
    training: str | None = None
    """The training that is running."""
    round: int | None = None
    rounds: int | None = None
    versions: dict[str, str] = Field(default_factory=dict)
    """The version of epifed at each party that has stated it."""


class Certificate(Known):
    """The end of a party's certificate."""

    party: str
    ends: datetime
    days: int
    """Whole days from now; negative after the end."""

    @classmethod
    def of(cls, party: str, ends: datetime, now: datetime) -> "Certificate":
        """The certificate of a party, with the days from now to its end."""
        return cls(party=party, ends=ends, days=(ends - now) // timedelta(days=1))


class SiteSeen(Known):
    """One site: whether it is connected, and its state in the last training."""

    name: str
    clients: int
    state: SiteState
    connected: bool | None
    """None if the server could not be asked."""
    code: str | None
    """Why the last round was without it; None if it took part."""
    without: int
    """Rounds of the last training that were without it."""
    weeks: str
    """By training, oldest first: t took part, a absent, l late, r refused, f faulty."""
    has_release: bool | None
    """Whether it has the last release; None before the first one."""
    version: str | None


class WeekSeen(Known):
    """The newest due week of the schedule, or the first week to come."""

    name: str
    day: date
    due: datetime
    state: WeekState
    reason: str
    next_due: datetime | None
    done: int
    skipped: int
    """Skipped or refused weeks: nothing was spent on them."""
    wasted: int
    planned: int


class Alert(Known):
    """A matter for the coordinator's attention; urgent or not."""

    kind: NoticeKind
    urgent: bool
    names: tuple[str, ...] = ()
    """The parties, trainings or codes that it concerns."""
    detail: str = ""


class FederationState(Known):
    """The state of a federation as its coordinator may know it."""

    made: datetime
    federation: str
    clients: int
    """N, which is public."""
    aggregators: tuple[str, ...]
    version: str
    live: Live | None
    sites: tuple[SiteSeen, ...]
    week: WeekSeen | None
    trainings: tuple[Training, ...]
    """Oldest first; only the last one that is no test has all its rounds, and names."""
    budget: Budget | None
    certificates: tuple[Certificate, ...]
    worth: tuple[ReleaseSkill, ...]
    truth: str | None
    """The name of the file of published counts with which releases are compared."""
    reasons: dict[str, dict[str, str]]
    """The meaning of each code, by language."""
    notices: tuple[Alert, ...]

    def counted(self) -> dict[SiteState, int]:
        """The number of sites in each state."""
        states = [site.state for site in self.sites]
        return {state: states.count(state) for state in SITE_STATES}

    @property
    def releases(self) -> list[Training]:
        """The released trainings, without tests."""
        return [training for training in self.trainings if training.release and not training.seeded]


VERY_SOON = 7
"""A certificate with at most this many days left is urgent."""
LOW = 0.1
"""Share of the budget below which it is low."""
SLACK = timedelta(hours=2)
"""Time that a week's training may take after its deadline before it is overdue."""


def alerts_of(
    seen: FederationState,
    schedule: Schedule | None,
    book: Book | None,
    unread: str | None,
    now: datetime,
) -> tuple[Alert, ...]:
    """The alerts, urgent ones first; `unread` is the reason if the ledger could not be read."""
    alerts = [
        *_about_sites(seen, schedule),
        *_about_weeks(seen, schedule, book, now),
        *_about_budget(seen, unread),
        *_about_parties(seen),
    ]
    return tuple(sorted(alerts, key=lambda alert: not alert.urgent))


def _about_sites(seen: FederationState, schedule: Schedule | None) -> list[Alert]:
    alerts = []
    live = seen.live
    if live and not live.reached:
        alerts.append(Alert(kind="server-away", urgent=True))
    names = {state: tuple(s.name for s in seen.sites if s.state == state) for state in SITE_STATES}
    present = len(seen.sites) - len(names["absent"])
    least = schedule.least_sites if schedule else 1
    if live and live.reached and present < least:
        detail = f"{present}/{least}"
        alerts.append(
            Alert(kind="too-few-sites", urgent=True, names=names["absent"], detail=detail)
        )
    elif names["absent"]:
        alerts.append(Alert(kind="sites-absent", urgent=False, names=names["absent"]))
    if names["late"]:
        alerts.append(Alert(kind="sites-late", urgent=False, names=names["late"]))
    if names["refused"]:
        willing = len(seen.sites) - len(names["refused"])
        urgent = willing < least
        alerts.append(Alert(kind="sites-refused", urgent=urgent, names=names["refused"]))
    if names["faulty"]:
        alerts.append(Alert(kind="sites-faulty", urgent=False, names=names["faulty"]))
    return alerts


def _about_weeks(
    seen: FederationState, schedule: Schedule | None, book: Book | None, now: datetime
) -> list[Alert]:
    alerts = []
    week = seen.week
    if week and week.state == "skipped":
        alerts.append(Alert(kind="week-skipped", urgent=False, detail=week.reason))
    if week and week.state == "refused":
        alerts.append(Alert(kind="week-refused", urgent=True, detail=week.reason))
    if week and schedule:
        patience = timedelta(minutes=schedule.deadline_minutes) + SLACK
        overdue = week.state in ("running", "waiting") and now - week.due > patience
        if overdue or week.state == "missed":
            alerts.append(Alert(kind="week-overdue", urgent=True, detail=week.name))
    for training in seen.releases[-1:]:
        missing = tuple(site.name for site in seen.sites if site.has_release is False)
        if missing:
            alerts.append(
                Alert(kind="undelivered", urgent=False, names=missing, detail=training.name)
            )
        if not training.learned:
            alerts.append(Alert(kind="nothing-learned", urgent=True, detail=training.name))
        elif training.believed is not None and training.believed < POOR:
            share = f"{100 * training.believed:.0f}"
            alerts.append(
                Alert(kind="mostly-noise", urgent=False, names=(training.name,), detail=share)
            )
        if training.remarks:
            alerts.append(
                Alert(kind="unusual", urgent=True, names=training.remarks, detail=training.name)
            )
    hashes = {run.model_hash for run in book.runs.values()} if book else set()
    strangers = [
        training.name
        for training in seen.releases
        if training.release and training.release.sha256 not in hashes
    ]
    if book and strangers:
        alerts.append(Alert(kind="unvouched", urgent=True, names=tuple(strangers)))
    return alerts


def _about_budget(seen: FederationState, unread: str | None) -> list[Alert]:
    if unread is not None:
        return [Alert(kind="ledger-unread", urgent=True, detail=unread)]
    budget, alerts = seen.budget, []
    if budget is None:
        return []
    if budget.fault:
        alerts.append(Alert(kind="ledger-fault", urgent=True, detail=budget.fault))
    if budget.short:
        detail = f"{budget.weeks_fit}/{budget.weeks_left}"
        alerts.append(Alert(kind="budget-short", urgent=True, detail=detail))
    elif budget.window is None and budget.left < LOW * budget.epsilon:
        alerts.append(Alert(kind="budget-low", urgent=False))
    return alerts


def _about_parties(seen: FederationState) -> list[Alert]:
    alerts = []
    over = tuple(certificate.party for certificate in seen.certificates if certificate.days < 0)
    soon = [certificate for certificate in seen.certificates if 0 <= certificate.days <= SOON]
    if over:
        alerts.append(Alert(kind="certificate-over", urgent=True, names=over))
    if soon:
        urgent = any(certificate.days <= VERY_SOON for certificate in soon)
        names = tuple(certificate.party for certificate in soon)
        alerts.append(
            Alert(kind="certificate-soon", urgent=urgent, names=names, detail=str(soon[0].days))
        )
    others = tuple(s.name for s in seen.sites if s.version and s.version != seen.version)
    if others:
        alerts.append(Alert(kind="versions-differ", urgent=False, names=others))
    return alerts


ROSTER, TRAININGS = "federation.toml", "trainings"
SHOWN_WEEKS = 12
"""The number of past trainings shown for each site."""


@dataclass(frozen=True)
class Places:
    """The files from which the state is read."""

    kit: Path
    """The server's kit."""
    ledger: Path | None = None
    weeks: Path | None = None
    schedule: Schedule | None = None
    plan: PrivacyPlan | None = None
    """The privacy plan of one week's training."""
    truth: Truth | None = None


@dataclass(frozen=True)
class Beside:
    """State that is not in the server's files: its own answer, and the ends of certificates."""

    live: Live | None = None
    ends: dict[str, datetime] = field(default_factory=dict)


def read_status(places: Places, beside: Beside, now: datetime | None = None) -> FederationState:
    """Read the state of the federation now."""
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
    state = FederationState(
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
        worth=release_skill(released, truth) if truth else (),
        truth=truth.source if truth else None,
        reasons={c.value: {"en": SENTENCES[c], "de": GERMAN.get(c, SENTENCES[c])} for c in Code},
        notices=(),
    )
    return state.model_copy(
        update={"notices": alerts_of(state, places.schedule, book, unread, now)}
    )


def _book(ledger: Path | None) -> tuple[Book | None, str | None, str | None]:
    """The ledger's book, a fault of its file, and the reason if it could not be read."""
    if ledger is None:
        return None, None, None
    try:
        book, fault = glance(ledger)
    except (EpifedError, OSError) as error:
        return None, None, str(error)
    return book, fault, None


def _brief(training: Training) -> Training:
    """An earlier training, reduced to its last round and without names."""
    update = {"done": training.done[-1:], "without": {}, "delivered": ()}
    return training.model_copy(update=update)


def _site(site: Site, trainings: list[Training], live: Live | None) -> SiteSeen:
    last = trainings[-1] if trainings else None
    handed = next((training for training in reversed(trainings) if training.release), None)
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
        weeks="".join(_letter(training, site.name) for training in trainings[-SHOWN_WEEKS:]),
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
    """The state of the newest week that is due, or of the first week to come."""
    weeks = schedule.planned()
    due = [week for week in weeks if week.due <= now]
    week, coming = (due[-1] if due else weeks[0]), weeks[len(due) :]
    results = [
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
        done=results.count("done"),
        skipped=results.count("skipped") + results.count("refused"),
        wasted=results.count("wasted"),
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
        states: dict[str, WeekState] = {"done": "done", "refused": "refused", "wasted": "wasted"}
        return states.get(outcome["outcome"], "skipped")
    if week.due > now:
        return "coming"
    begun = any(training.name == week.name for training in trainings)
    if begun or (live is not None and live.training == week.name):
        return "running"
    return "missed" if schedule.missed(week, now) else "waiting"
