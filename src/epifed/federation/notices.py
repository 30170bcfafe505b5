"""What somebody should look at in a federation, or must: the rules, each once."""

from datetime import datetime, timedelta

from epifed.federation.overview import SITE_STATES, Notice, Overview
from epifed.federation.roster import SOON
from epifed.federation.weekly import Schedule
from epifed.ledger.book import Book

VERY_SOON = 7
"""Days before a certificate's end from which on it is urgent."""
LOW = 0.1
"""Share of the budget below which it is low."""
SLACK = timedelta(hours=2)
"""That a week's training may take after its deadline before it is overdue."""


def notices_of(
    seen: Overview,
    schedule: Schedule | None,
    book: Book | None,
    unread: str | None,
    now: datetime,
) -> tuple[Notice, ...]:
    """What somebody should look at, the urgent first. `unread`: why the ledger could not be."""
    found = [
        *_about_sites(seen, schedule),
        *_about_weeks(seen, schedule, book, now),
        *_about_budget(seen, unread),
        *_about_parties(seen),
    ]
    return tuple(sorted(found, key=lambda one: not one.urgent))


def _about_sites(seen: Overview, schedule: Schedule | None) -> list[Notice]:
    found = []
    live = seen.live
    if live and not live.reached:
        found.append(Notice(kind="server-away", urgent=True))
    names = {state: tuple(s.name for s in seen.sites if s.state == state) for state in SITE_STATES}
    there = len(seen.sites) - len(names["absent"])
    least = schedule.least_sites if schedule else 1
    if live and live.reached and there < least:
        detail = f"{there}/{least}"
        found.append(
            Notice(kind="too-few-sites", urgent=True, names=names["absent"], detail=detail)
        )
    elif names["absent"]:
        found.append(Notice(kind="sites-absent", urgent=False, names=names["absent"]))
    if names["late"]:
        found.append(Notice(kind="sites-late", urgent=False, names=names["late"]))
    if names["refused"]:
        found.append(Notice(kind="sites-refused", urgent=False, names=names["refused"]))
    if names["faulty"]:
        found.append(Notice(kind="sites-faulty", urgent=False, names=names["faulty"]))
    return found


def _about_weeks(
    seen: Overview, schedule: Schedule | None, book: Book | None, now: datetime
) -> list[Notice]:
    found = []
    week = seen.week
    if week and week.state == "skipped":
        found.append(Notice(kind="week-skipped", urgent=False, detail=week.reason))
    if week and schedule:
        patience = timedelta(minutes=schedule.deadline_minutes) + SLACK
        overdue = week.state in ("running", "waiting") and now - week.due > patience
        if overdue or week.state == "missed":
            found.append(Notice(kind="week-overdue", urgent=True, detail=week.name))
    for one in seen.releases[-1:]:
        missing = tuple(site.name for site in seen.sites if site.has_release is False)
        if missing:
            found.append(Notice(kind="undelivered", urgent=False, names=missing, detail=one.name))
        if one.remarks:
            found.append(Notice(kind="unusual", urgent=True, names=one.remarks, detail=one.name))
    hashes = {run.model_hash for run in book.runs.values()} if book else set()
    strangers = [
        one.name for one in seen.releases if one.release and one.release.sha256 not in hashes
    ]
    if book and strangers:
        found.append(Notice(kind="unvouched", urgent=True, names=tuple(strangers)))
    return found


def _about_budget(seen: Overview, unread: str | None) -> list[Notice]:
    if unread is not None:
        return [Notice(kind="ledger-unread", urgent=True, detail=unread)]
    budget, found = seen.budget, []
    if budget is None:
        return []
    if budget.fault:
        found.append(Notice(kind="ledger-fault", urgent=True, detail=budget.fault))
    if budget.short:
        detail = f"{budget.weeks_fit}/{budget.weeks_left}"
        found.append(Notice(kind="budget-short", urgent=True, detail=detail))
    elif budget.left < LOW * budget.epsilon:
        found.append(Notice(kind="budget-low", urgent=False))
    return found


def _about_parties(seen: Overview) -> list[Notice]:
    found = []
    over = tuple(one.party for one in seen.certificates if one.days < 0)
    soon = [one for one in seen.certificates if 0 <= one.days <= SOON]
    if over:
        found.append(Notice(kind="certificate-over", urgent=True, names=over))
    if soon:
        urgent = any(one.days <= VERY_SOON for one in soon)
        names = tuple(one.party for one in soon)
        found.append(
            Notice(kind="certificate-soon", urgent=urgent, names=names, detail=str(soon[0].days))
        )
    others = tuple(s.name for s in seen.sites if s.version and s.version != seen.version)
    if others:
        found.append(Notice(kind="versions-differ", urgent=False, names=others))
    return found
