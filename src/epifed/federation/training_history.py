"""Past trainings of a federation: participation, budget spent, and the skill of releases.

Only files are read that show nothing of a draw. The skill of a release uses published national
counts. The release's growth extrapolates them, and the result is compared with the observed counts,
beside persistence. No client's count is read.
"""

import csv
import json
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from epifed.data.calendar import DAYS_OF, WEEK
from epifed.errors import EpifedError
from epifed.federation.messages import Code, Standing, standing
from epifed.federation.schedule import Schedule
from epifed.federation.server import DELIVERED, MODEL, ORDER, REPORT, Order
from epifed.learners.base import smooth
from epifed.ledger.budget import Book, Part, RunRecord, Spending, left, most_trainings, together
from epifed.privacy.plan import PrivacyPlan, Spent, price_together
from epifed.training.loop import expect
from epifed.training.release import Release, read_release

ALL = "all"
"""Stands in a report for the whole round, not for a site."""
MOST_REMEMBERED = 2048
Stamp = tuple[int, int] | None
"""Time of change (ns) and size of a file; None if it does not exist."""


class Known(BaseModel):
    """A record that the coordinator may know, in the form of JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class Round(Known):
    """One round, from the training's report."""

    number: int
    time: datetime
    epsilon: float
    """The ε that the training has spent so far."""
    without: dict[Standing, int]
    """The number of sites that did not take part, by state."""
    codes: dict[str, int]


class Without(Known):
    """A site that did not take part in some rounds of a training."""

    rounds: int
    """The number of these rounds."""
    code: str | None
    """Why it did not take part in the last round; None if it did."""


class Released(Known):
    """A finished release, by its label."""

    created: datetime
    sha256: str
    epsilon: float
    epsilon_without_amplification: float
    delta: float
    accountant: str
    clients: int
    epifed: str


class Training(Known):
    """One training, from the server's folder."""

    name: str
    learner: str
    first_day: date
    last_day: date
    seeded: bool
    """Whether it is a test: its noise is predictable, and it is no release."""
    rounds: int
    """The number of requested rounds."""
    done: tuple[Round, ...]
    seconds: float | None
    """Median time between two rounds."""
    codes: dict[str, int]
    """The number of absences, by reason."""
    without: dict[str, Without]
    """Sites that did not take part in every round, by name."""
    remarks: tuple[str, ...]
    """Codes of the whole round: an unusual release, or a sum that is too large."""
    learned: bool
    """False if no round could be used: ε was spent and nothing learned."""
    believed: float | None
    """The expected share of the release's variance that is signal; None if it is not known."""
    release: Released | None
    delivered: tuple[str, ...]
    """The parties that have the release."""
    held: int
    """The number of parties that have the release."""


def read_trainings(folder: Path) -> list[Training]:
    """All trainings of a server, oldest first. Those that cannot be read are left out."""
    trainings = []
    for order in folder.glob(f"*/{ORDER}"):
        stamps = tuple(_stamp(order.parent / name) for name in (ORDER, REPORT, MODEL, DELIVERED))
        try:
            trainings.append(_training(order.parent, stamps))
        except (OSError, ValueError, KeyError, TypeError, EpifedError):
            continue
    return sorted(
        trainings, key=lambda training: (training.last_day, _begun(training), training.name)
    )


def _begun(training: Training) -> float:
    return training.done[0].time.timestamp() if training.done else 0.0


def release_of(folder: Path, training: str) -> Release:
    """The release of a training, read from its file."""
    path = folder / training / MODEL
    return _release(path, _stamp(path))


def _stamp(path: Path) -> Stamp:
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_mtime_ns, about.st_size


@lru_cache(maxsize=MOST_REMEMBERED)
def _training(folder: Path, stamps: tuple[Stamp, ...]) -> Training:
    _, report, model, delivered = stamps
    order = Order.from_json((folder / ORDER).read_text(encoding="utf-8"))
    lines = _lines(folder / REPORT) if report else []
    rounds = tuple(_round(one) for one in lines)
    times = [one["time"] for one in lines]
    concerned = [p["reason"] for one in lines for p in one["problems"] if p["site"] == ALL]
    holders = json.loads((folder / DELIVERED).read_text(encoding="utf-8")) if delivered else []
    release = _release(folder / MODEL, model) if model else None
    return Training(
        name=order.training,
        learner=order.settings.learner,
        first_day=order.first_day,
        last_day=order.last_day,
        seeded=order.seeded,
        rounds=order.settings.rounds,
        done=rounds,
        seconds=float(np.median(np.diff(times))) if len(times) > 1 else None,
        codes=dict(sum((Counter(one.codes) for one in rounds), Counter[str]())),
        without=_without(lines),
        remarks=tuple(dict.fromkeys(concerned)),
        learned=release is None or release.learned,
        believed=_believed(release) if release else None,
        release=_released(release) if release else None,
        delivered=tuple(holders),
        held=len(holders),
    )


def _lines(path: Path) -> list[dict[str, Any]]:
    """The report's lines by round; the last one of a repeated round. Broken lines are ignored."""
    lines: dict[int, dict[str, Any]] = {}
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            line = json.loads(text)
            lines[int(line["round"])] = line
        except (ValueError, KeyError, TypeError):
            continue
    return [lines[number] for number in sorted(lines)]


def _round(line: dict[str, Any]) -> Round:
    own = [p for p in line["problems"] if p["site"] != ALL]
    codes = Counter(str(p["reason"]) for p in own)
    last = {p["site"]: standing_of(p["reason"]) for p in own}
    return Round(
        number=line["round"],
        time=datetime.fromtimestamp(line["time"], UTC),
        epsilon=line["epsilon"],
        without=dict(Counter(last.values())),
        codes=dict(codes),
    )


def _without(lines: list[dict[str, Any]]) -> dict[str, Without]:
    rounds: Counter[str] = Counter()
    code: dict[str, str] = {}
    for line in lines:
        code = {p["site"]: str(p["reason"]) for p in line["problems"] if p["site"] != ALL}
        rounds.update(code.keys())
    return {site: Without(rounds=n, code=code.get(site)) for site, n in rounds.items()}


def standing_of(code: str) -> Standing:
    """A site's state by a code; `faulty` for one that a newer version may have made."""
    return standing(Code(code)) if code in set(Code) else "faulty"


@lru_cache(maxsize=MOST_REMEMBERED)
def _release(path: Path, stamp: Stamp) -> Release:
    del stamp
    return read_release(path)


def _released(release: Release) -> Released:
    price = release.spent, release.delta, release.accountant
    seen = release.settings.noise != "aggregators" or release.continues is not None
    return Released(
        created=datetime.fromisoformat(release.created),
        sha256=release.sha256,
        epsilon=_price(*price, False),
        epsilon_without_amplification=_price(*price, seen),
        delta=release.delta,
        accountant=release.accountant,
        clients=release.clients,
        epifed=release.epifed,
    )


def _believed(release: Release) -> float | None:
    """The expected share of a release's variance that is signal, by its settings and N."""
    expected = expect(release.learner, PrivacyPlan.of(release.settings, release.clients))
    return expected.believed if expected else None


@lru_cache(maxsize=MOST_REMEMBERED)
def _price(spent: tuple[Spent, ...], delta: float, accountant: str, seen: bool) -> float:
    return price_together(spent, delta, accountant, drawn_seen=seen)


MOST_WEEKS = 520
"""Most weeks that are looked ahead."""


class Point(Known):
    """The ε of all releases together, as of a day."""

    day: date
    epsilon: float


class Budget(Known):
    """The ledger's spent and reserved budget, and how long the rest lasts."""

    epsilon: float
    """The cap."""
    delta: float
    accountant: str
    spent: float
    taken: float
    """Spent, and reserved by running trainings."""
    left: float
    rounds: int
    """Charged rounds of all trainings."""
    each: float | None
    """The ε of one further week alone."""
    points: tuple[Point, ...]
    plan: tuple[Point, ...]
    """The ε that the schedule would have spent after each week if none had been skipped."""
    weeks_left: int | None
    """The number of weeks that the schedule still has."""
    weeks_fit: int | None
    """The number of weeks for which the rest of the budget suffices."""
    ends: date | None
    """The day of the last week that the budget covers; None if a week's cost is unknown."""
    head: str
    fault: str | None
    """Why this file is not the newest that this machine has seen; None if it is."""
    window: int | None
    """For a cap that renews: it holds for every window of this many weeks. None: for all time."""
    total: float
    """The ε since the beginning, which a cap that renews does not limit."""

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
    """The budget of a ledger; `over` holds the names of weeks that are done or skipped."""
    cap, reserved = book.cap, book.taken()
    runs = [run for run in book.runs.values() if run.spent]
    week = _week(plan, runs)
    coming = [w for w in schedule.planned() if w.name not in over] if schedule else []
    coming = [w for w in coming if schedule and not schedule.missed(w, now)]
    fits = most_trainings(cap, reserved, *week) if week else None
    if week and coming and cap.weeks is not None:
        fits = book.weeks_that_fit(week, [w.day for w in coming])
    return Budget(
        epsilon=cap.epsilon,
        delta=cap.delta,
        accountant=cap.accountant,
        spent=cap.price(book.released()),
        taken=cap.price(reserved),
        left=left(cap, cap.price(reserved)),
        rounds=sum(run.spent for run in runs),
        each=cap.price(together([week])) if week else None,
        points=_points(book, runs),
        plan=_planned(book, schedule, week) if schedule and week and plan else (),
        weeks_left=len(coming) if schedule else None,
        weeks_fit=fits,
        ends=_ends([w.day for w in coming], fits, now.date()),
        head=book.head,
        fault=fault,
        window=cap.weeks,
        total=cap.price(book.since_the_beginning()),
    )


def _week(plan: PrivacyPlan | None, runs: list[RunRecord]) -> Part | None:
    """The cost of a further week: as planned, else as the last run."""
    if plan is not None:
        return plan.priced_rate, plan.noise_multiplier, plan.rounds
    return runs[-1].part(runs[-1].rounds) if runs else None


def _points(book: Book, runs: list[RunRecord]) -> tuple[Point, ...]:
    """The ε that counted against the cap after each run."""
    points = []
    for number, run in enumerate(runs):
        counting = book.counting(datetime.fromisoformat(run.closed or run.opened))
        parts = [
            earlier.part(earlier.spent) for earlier in runs[: number + 1] if earlier in counting
        ]
        points.append(Point(day=_day(run), epsilon=book.cap.price(together(parts))))
    return tuple(points)


def _planned(book: Book, schedule: Schedule, week: Part) -> tuple[Point, ...]:
    """The ε of runs outside the schedule, plus the schedule's weeks, after each week."""
    weeks = schedule.planned()
    names = {planned_week.name for planned_week in weeks}
    rate, noise, rounds = week
    window = book.cap.weeks or len(weeks)

    def spent_after(number: int, day: date) -> Spending:
        counting = book.counting(datetime.combine(day, time.min, UTC))
        before = [run.part(run.counted) for run in counting if run.training not in names]
        return together((*before, (rate, noise, rounds * min(number, window))))

    return tuple(
        Point(day=planned_week.day, epsilon=book.cap.price(spent_after(number, planned_week.day)))
        for number, planned_week in enumerate(weeks, start=1)
    )


def _day(run: RunRecord) -> date:
    """The day of a week's training, by its name; for another, the day it was begun."""
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


class ReleaseSkill(Known):
    """One release's forecast of the national counts, beside persistence and the observed value."""

    training: str
    day: date
    """The last day of the training data."""
    target: date
    forecast: float
    """Average of daily cases, or the cases of the week, at the target."""
    like_today: float
    came: float | None
    """The observed value; None before it is known."""


class Truth:
    """The published national counts, one for each day or each week."""

    def __init__(self, counts: dict[date, float], source: str) -> None:
        self.counts, self.source = counts, source

    @classmethod
    def read(cls, path: Path) -> "Truth":
        """Read a CSV with the columns date and value; raises `EpifedError` if it is invalid."""
        try:
            with path.open(encoding="utf-8-sig", newline="") as file:
                rows = list(csv.DictReader(file))
        except OSError as error:
            raise EpifedError(f"{path}: cannot be read: {error.strerror}") from None
        except (UnicodeDecodeError, csv.Error) as error:
            raise EpifedError(
                f"{path}: expected CSV with the columns date, value; {error}"
            ) from None
        if not rows or not {"date", "value"} <= rows[0].keys():
            columns = ", ".join(map(str, rows[0])) if rows else "nothing"
            raise EpifedError(f"{path}: found {columns}; expected the columns date, value")
        counts: dict[date, float] = {}
        for number, row in enumerate(rows, start=2):
            day = _parse_day(path, number, row["date"])
            if day in counts:
                raise EpifedError(f"{path}: row {number}: found {day} twice; expected it once")
            counts[day] = _count(path, number, row["value"])
        return cls(counts, path.name)

    def averages(self, last: date, steps: int, apart: int) -> np.ndarray | None:
        """The last `steps` values up to a day as learners see them; None if a count is missing.

        By day: averages of seven days. By week: the week's own count, or the sum of its days.
        """
        if apart == 1:
            days = [last - timedelta(days=back) for back in reversed(range(steps + WEEK - 1))]
            if any(day not in self.counts for day in days):
                return None
            counts = np.array([[self.counts[day] for day in days]])
            return smooth(counts, "trailing")[0, WEEK - 1 :]
        values = [self._week(last - timedelta(days=WEEK * back)) for back in reversed(range(steps))]
        return None if None in values else np.array(values, dtype=np.float64)

    def _week(self, last: date) -> float | None:
        days = [last - timedelta(days=back) for back in range(WEEK)]
        if all(day in self.counts for day in days):
            return sum(self.counts[day] for day in days)
        return self.counts.get(last) if not any(day in self.counts for day in days[1:]) else None


def release_skill(
    releases: Iterable[tuple[str, Release]], truth: Truth
) -> tuple[ReleaseSkill, ...]:
    """The skill of each release that has a national signal and enough published counts."""
    return tuple(skill for name, release in releases if (skill := _worth(name, release, truth)))


def _worth(name: str, release: Release, truth: Truth) -> ReleaseSkill | None:
    settings, learner = release.settings, release.learner
    apart = DAYS_OF[settings.step]
    history = truth.averages(release.last_day, settings.window, apart)
    if learner.signal() is None or history is None:
        return None
    state = learner.unpack(release.vector)
    target = release.last_day + timedelta(days=apart * settings.horizon)
    observed = truth.averages(target, 1, apart)
    return ReleaseSkill(
        training=name,
        day=release.last_day,
        target=target,
        forecast=float(learner.predict(state, history.astype(np.float32)[None, :])[0]),
        like_today=float(history[-1]),
        came=None if observed is None else float(observed[0]),
    )


def _parse_day(path: Path, number: int, text: str | None) -> date:
    try:
        return date.fromisoformat(text or "")
    except ValueError:
        raise EpifedError(
            f"{path}: row {number}, column date: found '{text or ''}'; expected YYYY-MM-DD"
        ) from None


def _count(path: Path, number: int, text: str | None) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = -1.0
    if not 0 <= value < np.inf:
        raise EpifedError(
            f"{path}: row {number}, column value: found '{text or ''}'; expected a number of at "
            "least 0"
        )
    return value
