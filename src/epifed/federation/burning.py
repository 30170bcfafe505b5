"""How a federation's budget burns down: what was spent week by week, beside what was planned."""

from datetime import date, datetime, timedelta

from epifed.days import WEEK
from epifed.federation.past import Known
from epifed.federation.weekly import Schedule
from epifed.ledger.book import Book, RunRecord
from epifed.ledger.budget import Cap, Part, Spending, left, most_trainings, together
from epifed.privacy.plan import PrivacyPlan

MOST_WEEKS = 520
"""That are looked ahead."""


class Point(Known):
    """The ε of all releases together, as of a day."""

    day: date
    epsilon: float


class Budget(Known):
    """What the ledger has spent and keeps for open trainings, and how long the rest lasts."""

    epsilon: float
    """The cap."""
    delta: float
    accountant: str
    spent: float
    taken: float
    """Spent, and reserved by trainings that run."""
    left: float
    rounds: int
    """Paid for, of all trainings."""
    each: float | None
    """ε of one further week alone."""
    points: tuple[Point, ...]
    plan: tuple[Point, ...]
    """What the schedule would have spent after each of its weeks, had none been skipped."""
    weeks_left: int | None
    """That the schedule still has."""
    weeks_fit: int | None
    """That the rest of the budget pays for."""
    ends: date | None
    """The day of the last week that can be paid for; none: nothing says what a week costs."""
    head: str
    fault: str | None
    """Why this file is not the newest that this machine knows."""

    @property
    def short(self) -> bool:
        """Whether the budget ends before the schedule does."""
        return (
            self.weeks_left is not None
            and self.weeks_fit is not None
            and self.weeks_fit < self.weeks_left
        )


def budget_of(
    book: Book,
    fault: str | None,
    schedule: Schedule | None,
    plan: PrivacyPlan | None,
    over: set[str],
    now: datetime,
) -> Budget:
    """The budget of a ledger. `over` are the weeks of the schedule that are done or skipped."""
    cap, taken = book.cap, book.taken()
    runs = [run for run in book.runs.values() if run.spent]
    week = _week(plan, runs)
    fits = most_trainings(cap, taken, *week) if week else None
    coming = [w for w in schedule.planned() if w.name not in over] if schedule else []
    coming = [w for w in coming if schedule and not schedule.missed(w, now)]
    return Budget(
        epsilon=cap.epsilon,
        delta=cap.delta,
        accountant=cap.accountant,
        spent=cap.price(book.released()),
        taken=cap.price(taken),
        left=left(cap, cap.price(taken)),
        rounds=sum(run.spent for run in runs),
        each=cap.price(together([week])) if week else None,
        points=_points(cap, runs),
        plan=_planned(book, schedule, week) if schedule and week and plan else (),
        weeks_left=len(coming) if schedule else None,
        weeks_fit=fits,
        ends=_ends([w.day for w in coming], fits, now.date()),
        head=book.head,
        fault=fault,
    )


def _week(plan: PrivacyPlan | None, runs: list[RunRecord]) -> Part | None:
    """What a further week costs: as planned, else as the last one did."""
    if plan is not None:
        return plan.priced_rate, plan.noise_multiplier, plan.rounds
    return runs[-1].part(runs[-1].rounds) if runs else None


def _points(cap: Cap, runs: list[RunRecord]) -> tuple[Point, ...]:
    found, so_far = [], list[Part]()
    for run in runs:
        so_far.append(run.part(run.spent))
        found.append(Point(day=_day(run), epsilon=cap.price(together(so_far))))
    return tuple(found)


def _planned(book: Book, schedule: Schedule, week: Part) -> tuple[Point, ...]:
    """What was spent before the schedule's first week, and its weeks on top."""
    weeks = schedule.planned()
    names = {one.name for one in weeks}
    before: Spending = together(
        run.part(run.counted) for run in book.runs.values() if run.training not in names
    )
    rate, noise, rounds = week
    return tuple(
        Point(
            day=one.day,
            epsilon=book.cap.price(together((*before, (rate, noise, rounds * (k + 1))))),
        )
        for k, one in enumerate(weeks)
    )


def _day(run: RunRecord) -> date:
    """The day of a week's training, by its name; of another, the day it was begun."""
    try:
        return date.fromisoformat(run.training.removeprefix("week-"))
    except ValueError:
        return datetime.fromisoformat(run.opened).date()


def _ends(coming: list[date], fits: int | None, today: date) -> date | None:
    if fits is None:
        return None
    if fits <= len(coming):
        return coming[fits - 1] if fits else today
    last = coming[-1] if coming else today
    return last + timedelta(days=WEEK * min(fits - len(coming), MOST_WEEKS))
