"""Readiness of each party for a training, asked before anything is charged.

The question names the terms: settings, days, N, noise and whom to trust. The answer is a code, the
ε as the party counts it, and its limit. It is given before clients are drawn, from the party's own
terms, ledger and file as a whole. So it shows nothing of a draw and nothing of a client's rows.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import date
from typing import Any, Literal

from epifed.errors import EpifedError, counted
from epifed.federation.messages import MOST_ARRAY, NAME, SENTENCES, Code, MessageError, Parts, said
from epifed.federation.terms import SiteLedger, Terms, book_key
from epifed.ledger.budget import together
from epifed.privacy.accounting import rounded_up
from epifed.privacy.plan import PrivacyPlan
from epifed.settings import Settings

_ACCOUNTANT = re.compile(r"[a-z0-9-]{1,20}")
Role = Literal["site", "aggregator", "server"]


class NotReadyError(EpifedError):
    """Too few parties would take part in a training. Nothing was spent."""


@dataclass(frozen=True)
class Proposal:
    """The terms of a training on which a party is asked."""

    training: str
    rounds: int
    done: int
    """Rounds that are done already."""
    paid: int
    """Rounds that were charged, including repeated rounds."""
    settings: str
    first_day: str
    last_day: str
    enrolled: int
    noise_multiplier: float
    randomness: str
    numbers: int
    """The length of the model, or of the vectors that are added up."""
    aggregators: tuple[tuple[str, str], ...] = ()
    """Names and key fingerprints of the aggregators; if empty, the server adds up."""

    @property
    def period(self) -> tuple[date, date]:
        """First and last day of the training data."""
        return date.fromisoformat(self.first_day), date.fromisoformat(self.last_day)

    @property
    def repeated(self) -> int:
        """Rounds that were charged and had to be run again."""
        return max(0, self.paid - self.done)

    def pack(self) -> Parts:
        """Encode the question as a message."""
        return {"about": json.dumps(asdict(self))}

    @classmethod
    def unpack(cls, parts: Parts) -> "Proposal":
        """Decode a question; raises `MessageError` if its terms are invalid."""
        about = said(parts)
        try:
            values = {field.name: about[field.name] for field in fields(cls)}
            pinned = tuple((str(name), str(print_)) for name, print_ in values["aggregators"])
            proposal = cls(**values | {"aggregators": pinned})
            whole = (proposal.rounds, proposal.done, proposal.paid, proposal.enrolled)
            good = (
                NAME.fullmatch(proposal.training) is not None
                and all(type(number) is int and number >= 0 for number in whole)
                and proposal.done < proposal.rounds
                and proposal.enrolled >= 1
                and 0 <= proposal.numbers <= MOST_ARRAY
                and 0 <= float(proposal.noise_multiplier) < math.inf
                and isinstance(proposal.settings, str)
                and proposal.period[0] <= proposal.period[1]
            )
        except (KeyError, TypeError, ValueError):
            good = False
        if not good:
            raise MessageError(Code.BAD_TASK)
        return proposal

    def read(self) -> tuple[Settings, PrivacyPlan]:
        """The proposed settings and their privacy plan."""
        try:
            settings = Settings.from_toml(self.settings)
            return settings, PrivacyPlan.of(settings, self.enrolled)
        except EpifedError:
            raise MessageError(Code.BAD_TASK) from None


@dataclass(frozen=True)
class Readiness:
    """Whether a party would take part, and the ε as it counts it."""

    code: Code | None = None
    """Why it would not take part; None if it would."""
    epsilon: float | None = None
    """As the party counts it: of this training, or of all together if the total is exceeded."""
    limit: float | None = None
    """The most that it allows; None if infinite."""
    delta: float | None = None
    accountant: str | None = None

    def pack(self) -> Parts:
        """Encode the answer as a message."""
        about = {"ready": "yes" if self.code is None else self.code.value} | {
            name: value for name, value in vars(self).items() if name != "code"
        }
        return {"about": json.dumps(about)}

    @classmethod
    def unpack(cls, parts: Parts) -> "Readiness":
        """Decode an answer; one that is invalid counts as a refusal."""
        about = said(parts)
        word = about.get("ready", about.get("code"))
        if word == "yes":
            code = None
        else:
            code = Code(word) if isinstance(word, str) and word in set(Code) else Code.MESSAGE
        numbers = {name: _number(about.get(name)) for name in ("epsilon", "limit", "delta")}
        named = about.get("accountant")
        known = isinstance(named, str) and _ACCOUNTANT.fullmatch(named)
        return cls(code, **numbers, accountant=str(named) if known else None)


def _number(value: object) -> float | None:
    good = type(value) in (int, float) and 0 <= float(value) < math.inf  # type: ignore[arg-type]
    return float(value) if good else None  # type: ignore[arg-type]


def weigh(proposal: Proposal, terms: Terms, book: SiteLedger | None) -> Readiness:
    """A party's readiness by its terms and by its ledger, which is None for a test."""
    settings, plan = proposal.read()
    key = book_key(proposal, settings, plan)
    spent = max(proposal.paid, book.spent(key) if book else 0)
    needed = spent + proposal.rounds - proposal.done
    epsilon = terms.epsilon_of(proposal.noise_multiplier, plan, needed)
    limit = terms.epsilon_per_release

    def counts(code: Code | None) -> Readiness:
        finite = [value if math.isfinite(value) else None for value in (epsilon, limit)]
        return Readiness(code, finite[0], finite[1], terms.delta, terms.accountant)

    try:
        terms.refuse(proposal, settings, plan)
    except MessageError as error:
        return counts(error.code)
    if epsilon > limit:
        return counts(Code.REFUSED_EPSILON)
    if book is None:
        return counts(None)
    ledger = book.ledger.book()
    own = ledger.named(proposal.training)
    if own is not None and (own.differences(key) or own.outcome != "open"):
        return counts(Code.REFUSED_CHANGE)
    part = (plan.priced_rate, proposal.noise_multiplier, needed)
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
        return {
            "party": self.name,
            "role": self.role,
            "version": self.version,
            **asdict(self.readiness),
            "code": code.value if code else None,
        }

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Party":
        """The row from plain values."""
        numbers = {name: values[name] for name in ("epsilon", "limit", "delta", "accountant")}
        code = Code(values["code"]) if values["code"] else None
        return cls(values["party"], values["role"], Readiness(code, **numbers), values["version"])

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
    needed = [one for one in rows if one.role != "site" and one.readiness.code and one.asked]
    if needed:
        raise NotReadyError(
            f"the {needed[0].role} '{needed[0].name}' would refuse: {needed[0].sentence()}; "
            "nothing was spent"
        )
    sites = [one for one in rows if one.role == "site"]
    refusing = [one for one in sites if one.readiness.code and one.asked]
    willing = [one for one in sites if one.readiness.code is None]
    if len(sites) - len(refusing) < least or (refusing and len(willing) < least):
        reasons = "; ".join(f"{one.name}: {one.sentence()}" for one in refusing[:3])
        more = f"; and {len(refusing) - 3} more" if len(refusing) > 3 else ""
        raise NotReadyError(
            f"{len(willing)} of {counted(len(sites), 'site')} would take part, {least} expected "
            f"({reasons}{more}); nothing was spent"
        )
