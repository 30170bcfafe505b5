"""What the server's folder tells of past trainings: who was without, and what was released.

Only files are read that say nothing of a draw: orders, reports, finished releases, deliveries.
States and what waits to be paid for are left alone.
"""

import json
from collections import Counter
from datetime import UTC, date, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from epifed.errors import EpifedError
from epifed.federation.codes import Code, Standing, standing
from epifed.federation.server import DELIVERED, MODEL, ORDER, REPORT, Order
from epifed.privacy.plan import Spent, price_together
from epifed.release import Release, read_release

ALL = "all"
"""Stands in a report for the whole round, not for a site."""
MOST_REMEMBERED = 2048
Stamp = tuple[int, int] | None
"""When a file was changed, and its size; none: it is not there."""


class Known(BaseModel):
    """Something that the coordinator may know, as JSON says it."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class Round(Known):
    """One round as the report tells it."""

    number: int
    time: datetime
    epsilon: float
    """Spent by the training so far."""
    without: dict[Standing, int]
    """Sites that it was without, by how they stood."""
    codes: dict[str, int]


class Without(Known):
    """A site that rounds of a training were without."""

    rounds: int
    """How many."""
    code: str | None
    """Why the last round was; none: it was not."""


class Released(Known):
    """A finished release: what its label says."""

    created: datetime
    sha256: str
    epsilon: float
    epsilon_if_drawn_seen: float
    delta: float
    accountant: str
    clients: int
    epifed: str


class Training(Known):
    """One training as the server's folder tells it."""

    name: str
    learner: str
    first_day: date
    last_day: date
    seeded: bool
    """A test: its noise is predictable, and it is no release."""
    rounds: int
    """That were asked for."""
    done: tuple[Round, ...]
    seconds: float | None
    """Between two rounds, in the middle."""
    codes: dict[str, int]
    """How often a round was without a site, by the reason."""
    without: dict[str, Without]
    """By site; who is not here was in every round."""
    remarks: tuple[str, ...]
    """Codes that concern the whole training: a release that is unusual, a sum that cannot be."""
    release: Released | None
    delivered: tuple[str, ...]
    """Who has it."""
    held: int
    """How many have it."""


def read_trainings(folder: Path) -> list[Training]:
    """All trainings of a server, the oldest first. One that cannot be read is left out."""
    found = []
    for order in folder.glob(f"*/{ORDER}"):
        stamps = tuple(_stamp(order.parent / name) for name in (ORDER, REPORT, MODEL, DELIVERED))
        try:
            found.append(_training(order.parent, stamps))
        except (OSError, ValueError, KeyError, TypeError, EpifedError):
            continue
    return sorted(found, key=lambda one: (one.last_day, _begun(one), one.name))


def _begun(training: Training) -> float:
    return training.done[0].time.timestamp() if training.done else 0.0


def release_of(folder: Path, training: str) -> Release:
    """The release file of a training."""
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
        release=_released(_release(folder / MODEL, model)) if model else None,
        delivered=tuple(holders),
        held=len(holders),
    )


def _lines(path: Path) -> list[dict[str, Any]]:
    """The report's lines, of a round that was played twice the last; what was cut off is none."""
    found: dict[int, dict[str, Any]] = {}
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            line = json.loads(text)
            found[int(line["round"])] = line
        except (ValueError, KeyError, TypeError):
            continue
    return [found[number] for number in sorted(found)]


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
    """How a site stands by a code, which a newer version may have made."""
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
        epsilon_if_drawn_seen=_price(*price, seen),
        delta=release.delta,
        accountant=release.accountant,
        clients=release.clients,
        epifed=release.epifed,
    )


@lru_cache(maxsize=MOST_REMEMBERED)
def _price(spent: tuple[Spent, ...], delta: float, accountant: str, seen: bool) -> float:
    return price_together(spent, delta, accountant, drawn_seen=seen)
