"""Readiness of each party for a training, asked before anything is charged.

The question is the terms of the next round: settings, days, N, noise and whom to trust. The answer
is a code, the ε as the party counts it, and its limit. It is given before clients are drawn, from
the party's own terms, ledger and file as a whole. So it shows nothing of a draw and nothing of a
client's rows.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from epifed.errors import EpifedError, counted
from epifed.federation.messages import SENTENCES, Code, MessageError, Readiness, RoundTerms
from epifed.federation.terms import SiteLedger, Terms, book_key
from epifed.ledger.budget import together
from epifed.privacy.accounting import rounded_up

Role = Literal["site", "aggregator", "server"]


class NotReadyError(EpifedError):
    """Too few parties would take part in a training. Nothing was spent."""


def weigh(asked: RoundTerms, terms: Terms, book: SiteLedger | None, answered: int = 0) -> Readiness:
    """A party's readiness by its terms and by its ledger, which is None for a test.

    Rounds up to `answered` are not charged again: the party gives its kept answers to them.
    """
    settings, plan = asked.read()
    key = book_key(asked, settings, plan)
    spent = max(asked.paid, book.spent(key) if book else 0)
    needed = spent + asked.rounds - max(asked.round - 1, answered)
    epsilon = terms.epsilon_of(asked.noise_multiplier, plan, needed)
    limit = terms.epsilon_per_release

    def counts(code: Code | None) -> Readiness:
        finite = [value if math.isfinite(value) else None for value in (epsilon, limit)]
        return Readiness(code, finite[0], finite[1], terms.delta, terms.accountant)

    try:
        terms.refuse(asked, settings, plan)
    except MessageError as error:
        return counts(error.code)
    if epsilon > limit:
        return counts(Code.REFUSED_EPSILON)
    if book is None:
        return counts(None)
    ledger = book.ledger.book()
    own = ledger.named(asked.training)
    if own is not None and (own.differences(key) or own.outcome != "open"):
        return counts(Code.REFUSED_CHANGE)
    part = (plan.priced_rate, asked.noise_multiplier, needed)
    everything = together((*ledger.taken(own.run if own else ""), part))
    if not ledger.cap.allows(everything):
        cap = ledger.cap
        return Readiness(
            Code.REFUSED_TOTAL, cap.price(everything), cap.epsilon, cap.delta, cap.accountant
        )
    return counts(None)


@dataclass(frozen=True)
class Party:
    """A row of the table that the coordinator sees before anything is charged."""

    name: str
    role: Role
    readiness: Readiness
    version: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The row as plain values."""
        code = self.readiness.code
        row = {"party": self.name, "role": self.role, "version": self.version}
        return row | vars(self.readiness) | {"code": code.value if code else None}

    @classmethod
    def of(cls, values: dict[str, Any]) -> "Party":
        """The row from plain values."""
        readiness = Readiness.of(values | {"code": values["code"] or "yes"})
        return cls(values["party"], values["role"], readiness, values["version"])

    @property
    def asked(self) -> bool:
        """Whether the party answered."""
        return self.readiness.code not in (Code.ABSENT, Code.NO_ANSWER)

    def sentence(self) -> str:
        """The party's answer as a sentence, with its ε."""
        ready = self.readiness
        counting = ""
        if ready.epsilon is not None and ready.accountant and ready.delta is not None:
            by = f"{ready.accountant.upper()} accountant, δ = {ready.delta:g}"
            counting = f"it counts ε = {rounded_up(ready.epsilon)} ({by})"
            if ready.limit is not None and ready.epsilon > ready.limit:
                over = rounded_up(ready.epsilon - ready.limit)
                counting += f" and allows {ready.limit:g}: {over} too much"
            elif ready.limit is not None:
                counting += f" and allows {ready.limit:g}"
        if ready.code is None:
            return f"would take part{f'; {counting}' if counting else ''}"
        numbers = ready.code in (Code.REFUSED_EPSILON, Code.REFUSED_TOTAL) and counting
        return f"{SENTENCES[ready.code]}{f'; {counting}' if numbers else ''}"


def refuse_unready(parties: Iterable[Party], least: int) -> None:
    """Refuse a training, before it is charged, in which too few parties would take part.

    Aggregators and the server must be willing, and at least `least` sites. Absent parties are no
    reason to refuse, but once a site refuses, only willing sites count.
    """
    rows = list(parties)
    needed = [
        party for party in rows if party.role != "site" and party.readiness.code and party.asked
    ]
    if needed:
        raise NotReadyError(
            f"the {needed[0].role} '{needed[0].name}' would refuse: {needed[0].sentence()}; "
            "nothing was spent"
        )
    sites = [party for party in rows if party.role == "site"]
    refusing = [party for party in sites if party.readiness.code and party.asked]
    willing = [party for party in sites if party.readiness.code is None]
    if len(sites) - len(refusing) < least or (refusing and len(willing) < least):
        reasons = "; ".join(f"{party.name}: {party.sentence()}" for party in refusing[:3])
        more = f"; and {len(refusing) - 3} more" if len(refusing) > 3 else ""
        raise NotReadyError(
            f"{len(willing)} of {counted(len(sites), 'site')} would take part, {least} expected "
            f"({reasons}{more}); nothing was spent"
        )
