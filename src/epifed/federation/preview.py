"""What a site would send this week, to the last number; nothing is sent, spent or written."""

import json
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from epifed.errors import EpifedError
from epifed.federation.codes import SENTENCES
from epifed.federation.messages import MessageError, Task, pack_contribution
from epifed.federation.pact import report_bytes
from epifed.federation.site import LEDGER, TERMS, LastAsked, SiteWork, Source, hosted_clients
from epifed.federation.terms import Terms
from epifed.learner import Period, Vector, make_learner
from epifed.ledger.budget import Cap, together
from epifed.ledger.ledger import Ledger
from epifed.privacy.plan import PrivacyPlan
from epifed.seeds import of_training
from epifed.settings import Settings

NAME = "preview"


@dataclass(frozen=True)
class Preview:
    """The answer to the first round of a training, if every client of the site were drawn."""

    period: Period
    clients: tuple[str, ...]
    entries: tuple[str, ...]
    """What each number is."""
    rows: Vector
    """[clients, numbers]; zero for a client that is left out."""
    left_out: dict[str, str]
    plan: PrivacyPlan
    about: str
    """The line that goes with the numbers."""
    bytes: int
    """Of the line and the numbers; with aggregators, of the sealed report."""
    sealed: bool
    fits: bool
    """Whether the site's own total still has room for it."""

    @property
    def norms(self) -> list[float]:
        """The Euclidean norm of each client's vector."""
        return [float(norm) for norm in np.linalg.norm(self.rows.astype(np.float64), axis=1)]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            "first_day": self.period[0],
            "last_day": self.period[1],
            "entries": list(self.entries),
            "vectors": dict(zip(self.clients, self.rows.tolist(), strict=True)),
            "norms": dict(zip(self.clients, self.norms, strict=True)),
            "bound": self.plan.bound,
            "drawn_with_probability": self.plan.sampling_rate,
            "rounds": self.plan.rounds,
            "left_out": self.left_out,
            "about": json.loads(self.about),
            "bytes": self.bytes,
            "sealed": self.sealed,
            "fits": self.fits,
        }


def this_week(asked: LastAsked, today: date) -> Period:
    """The days of a week's training like the last one: the same, whole weeks later.

    >>> last = LastAsked("week-2026-11-02", "", "2026-08-01", "2026-11-01", 40, True, {})
    >>> [str(day) for day in this_week(last, date(2026, 11, 17))]
    ['2026-08-15', '2026-11-15']
    """
    first, last = asked.period
    weeks = max(0, (today - timedelta(days=1) - last).days // 7)
    return first + timedelta(weeks=weeks), last + timedelta(weeks=weeks)


def preview(
    kit: Path, settings: Settings, period: Period, enrolled: int, *, source: Source
) -> Preview:
    """What the site of a kit would answer to the first round of such a training.

    Of a training with several rounds only the first can be known before it: later ones start from
    what was released.
    """
    plan, learner = PrivacyPlan.of(settings, enrolled), make_learner(settings)
    clients = hosted_clients(kit)
    task = Task(
        training=NAME,
        round=1,
        rounds=plan.rounds,
        paid=0,
        settings=settings.to_toml(),
        first_day=str(period[0]),
        last_day=str(period[1]),
        enrolled=enrolled,
        noise_multiplier=plan.noise_multiplier,
        randomness="secure",
        clients=clients,
        drawn="1" * len(clients),
        state=learner.pack(learner.start(of_training(settings.seed)[0])),
    )
    try:
        rows, work = SiteWork(kit, keeps=False, source=source).vectors(task)
    except MessageError as error:
        raise EpifedError(f"nothing would be sent: {SENTENCES[error.code]}") from None
    parts = pack_contribution(NAME, 1, rows)
    adding = settings.aggregators or 0
    size = len(parts["about"].encode()) + len(parts["array"])
    return Preview(
        period,
        clients,
        learner.entries(rows.shape[1]),
        rows,
        work.left_out,
        plan,
        parts["about"],
        report_bytes(adding, rows.shape[1]) if adding else size,
        adding > 0,
        _fits(kit, plan),
    )


def _fits(kit: Path, plan: PrivacyPlan) -> bool:
    terms, path = Terms.read(kit / TERMS), kit / LEDGER
    cap = Cap(terms.epsilon_total, terms.delta, terms.accountant)
    taken = Ledger(path, copy=True).book().taken() if path.exists() else ()
    part = (plan.priced_rate, plan.noise_multiplier, plan.rounds)
    return cap.allows(together((*taken, part)))
