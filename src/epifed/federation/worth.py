"""How good past releases were, by what everybody may know: the published counts of the nation.

A release says how the country grows. That growth carries the nation's published counts of the
release's last day on, and what came is compared with it, beside "like today". No client's count
is read, and nothing that is not released.
"""

import csv
from collections.abc import Iterable
from datetime import date, timedelta
from pathlib import Path

import numpy as np

from epifed.days import DAYS_OF, WEEK
from epifed.errors import EpifedError
from epifed.federation.past import Known
from epifed.release import Release
from epifed.windows import smooth


class Worth(Known):
    """One release's forecast of the nation, beside what came."""

    training: str
    day: date
    """The last day learned from."""
    target: date
    forecast: float
    """Average of daily cases, or the cases of the week, at the target."""
    like_today: float
    came: float | None
    """None: it is still to come."""


class Truth:
    """The published counts of the nation, one each day or each week."""

    def __init__(self, counts: dict[date, float], source: str) -> None:
        self.counts, self.source = counts, source

    @classmethod
    def read(cls, path: Path) -> "Truth":
        """The counts of a CSV with the columns date and value."""
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
            found = ", ".join(map(str, rows[0])) if rows else "nothing"
            raise EpifedError(f"{path}: found {found}; expected the columns date, value")
        counts: dict[date, float] = {}
        for number, row in enumerate(rows, start=2):
            day = _day(path, number, row["date"])
            if day in counts:
                raise EpifedError(f"{path}: row {number}: found {day} twice; expected it once")
            counts[day] = _count(path, number, row["value"])
        return cls(counts, path.name)

    def averages(self, last: date, steps: int, apart: int) -> np.ndarray | None:
        """The `steps` values up to a day as learners see them; none where a count is missing.

        By day: averages of seven days. By week: the week's own count, or the sum of its days.
        """
        if apart == 1:
            days = [last - timedelta(days=back) for back in reversed(range(steps + WEEK - 1))]
            if any(day not in self.counts for day in days):
                return None
            counts = np.array([[self.counts[day] for day in days]])
            return smooth(counts, "trailing")[0, WEEK - 1 :]
        found = [self._week(last - timedelta(days=WEEK * back)) for back in reversed(range(steps))]
        return None if None in found else np.array(found, dtype=np.float64)

    def _week(self, last: date) -> float | None:
        days = [last - timedelta(days=back) for back in range(WEEK)]
        if all(day in self.counts for day in days):
            return sum(self.counts[day] for day in days)
        return self.counts.get(last) if not any(day in self.counts for day in days[1:]) else None


def worth_of(releases: Iterable[tuple[str, Release]], truth: Truth) -> tuple[Worth, ...]:
    """What each release said of the nation, where it says something and the counts are there."""
    return tuple(one for name, release in releases if (one := _worth(name, release, truth)))


def _worth(name: str, release: Release, truth: Truth) -> Worth | None:
    settings, learner = release.settings, release.learner
    apart = DAYS_OF[settings.step]
    known = truth.averages(release.last_day, settings.window, apart)
    if learner.signal() is None or known is None:
        return None
    state = learner.unpack(release.vector)
    target = release.last_day + timedelta(days=apart * settings.horizon)
    came = truth.averages(target, 1, apart)
    return Worth(
        training=name,
        day=release.last_day,
        target=target,
        forecast=float(learner.predict(state, known.astype(np.float32)[None, :])[0]),
        like_today=float(known[-1]),
        came=None if came is None else float(came[0]),
    )


def _day(path: Path, number: int, text: str | None) -> date:
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
