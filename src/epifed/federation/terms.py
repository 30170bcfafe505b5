"""The site's own terms (`site.toml`) and its ledger of the trainings it took part in.

The site prices every training itself, from the announced noise and sampling rate, and writes it
into its own ledger before it contributes. So it refuses what is beyond its terms, whatever the
coordinator's budget says.
"""

import math
import tomllib
from collections.abc import Mapping
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Protocol, Self

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from epifed.errors import EpifedError
from epifed.federation.messages import Code, MessageError, Task
from epifed.ledger.budget import Cap
from epifed.ledger.ledger import Ledger, NameTakenError, OverspendError
from epifed.ledger.rows import Key
from epifed.privacy.accounting import spent
from epifed.privacy.plan import PrivacyPlan
from epifed.settings import Settings, sentence_of
from epifed.training.loop import ledger_key


class Table(BaseModel):
    """A frozen table of a TOML file. What does not fit is one sentence."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=True)

    @classmethod
    def read(cls, path: Path) -> Self:
        """The table in a file."""
        try:
            return cls(**tomllib.loads(path.read_text(encoding="utf-8")))
        except OSError as error:
            raise EpifedError(f"{path}: cannot be read: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise EpifedError(f"{path}: expected TOML; {error}") from None
        except ValidationError as error:
            raise EpifedError(f"{path}: {sentence_of(error)}") from None

    def to_toml(self) -> str:
        """The table as `read` takes it."""
        return tomli_w.dumps(self.model_dump(exclude_none=True))


_price = lru_cache(maxsize=256)(spent)
"""Asked twice a round, and always the same."""

Fingerprint = Annotated[str, Field(pattern="^SHA256(:[0-9A-F]{2}){32}$")]


class Asked(Protocol):
    """What a party looks at before it takes part: a site's task, or an aggregator's pact."""

    @property
    def training(self) -> str: ...  # noqa: D102
    @property
    def noise_multiplier(self) -> float: ...  # noqa: D102
    @property
    def randomness(self) -> str: ...  # noqa: D102
    @property
    def period(self) -> tuple[date, date]: ...  # noqa: D102
    @property
    def numbers(self) -> int: ...  # noqa: D102
    @property
    def repeated(self) -> int: ...  # noqa: D102


class Terms(Table):
    """What a site, or an aggregator, agrees to."""

    epsilon_per_release: float = Field(2.0, gt=0, description="largest ε of one training; inf: any")
    epsilon_total: float = Field(10.0, gt=0, lt=math.inf, description="ε of all trainings together")
    delta: float = Field(1e-5, gt=0, le=0.01, description="δ at which both are counted")
    accountant: str = Field("rdp", description="how both are counted")
    first_day: date | None = Field(None, description="first day of data it offers; none: all")
    last_day: date | None = Field(None, description="last day of data it offers; none: all")
    seeded: bool = Field(False, description="take part in tests with predictable noise")
    most_numbers: int = Field(10_000_000, ge=1, description="largest state of a model")
    aggregators: dict[str, Fingerprint] = Field(
        {},
        description="fingerprints of the keys of all (other) aggregators, as each of them says by "
        "telephone: no one else is trusted then, the server neither; none: the server is",
    )
    limits: dict[str, float] = Field(
        {"clip_norm": 10.0, "rounds": 1000, "epochs": 300, "learning_rate": 1.0, "window": 100},
        description="largest value of a setting, by its name",
    )

    def refuse(self, task: Asked, settings: Settings, plan: PrivacyPlan) -> None:
        """Raise the code of the first term that the training breaks."""
        first, last = task.period
        if (self.first_day and first < self.first_day) or (self.last_day and last > self.last_day):
            raise MessageError(Code.REFUSED_PERIOD)
        if task.numbers > self.most_numbers or not self.within_limits(settings):
            raise MessageError(Code.REFUSED_SETTINGS)
        if task.randomness != "secure" and not self.seeded:
            raise MessageError(Code.REFUSED_SEEDED)
        rounds = plan.rounds + task.repeated
        if self.epsilon_of(task.noise_multiplier, plan, rounds) > self.epsilon_per_release:
            raise MessageError(Code.REFUSED_EPSILON)

    def refuse_trust(self, aggregators: Mapping[str, str]) -> None:
        """Refuse others than those pinned; of a training without any, if some are pinned."""
        if dict(aggregators) != self.aggregators:
            raise MessageError(Code.REFUSED_TRUST)

    def within_limits(self, settings: Settings) -> bool:
        """Whether no setting is larger than the site allows."""
        values = settings.model_dump()
        return not any(
            isinstance(values.get(name), int | float) and values[name] > most
            for name, most in self.limits.items()
        )

    def epsilon_of(self, noise_multiplier: float, plan: PrivacyPlan, rounds: int) -> float:
        """What so many rounds cost, as the site counts them: at its own δ and accountant."""
        if not (plan.private and noise_multiplier > 0):
            return math.inf
        rate = plan.priced_rate
        return round(_price(noise_multiplier, rate, rounds, self.delta, self.accountant), 9)


def book_key(asked: Asked, settings: Settings, plan: PrivacyPlan) -> Key:
    """What a training is found by in a party's book: priced by the noise that was announced."""
    key = ledger_key(plan, settings, asked.period, asked.training)
    key["noise_multiplier"] = asked.noise_multiplier
    return key


class SiteLedger:
    """A party's ledger and the names under which trainings stand in it."""

    def __init__(self, path: Path, terms: Terms) -> None:
        if not path.exists():
            cap = Cap(terms.epsilon_total, terms.delta, terms.accountant)
            Ledger.create(path, cap, "what this party took part in")
        self.ledger, self.terms = Ledger(path), terms
        cap = self.ledger.book().cap
        if cap.epsilon != terms.epsilon_total:
            raise EpifedError(
                f"{path}: found a total of ε = {cap.epsilon:g}; the terms say "
                f"{terms.epsilon_total:g}; expected the same (a new total needs a new ledger)"
            )

    @classmethod
    def of(cls, path: Path, terms: Terms) -> "SiteLedger":
        """The book of a party at work; one that cannot be used is a code, like all that it says."""
        try:
            return cls(path, terms)
        except EpifedError as error:
            raise MessageError(Code.LEDGER, str(error)) from None

    def take_part(self, task: Task, settings: Settings, plan: PrivacyPlan) -> None:
        """Write this round of the training down, or refuse it.

        Every answer counts as a round, whatever the server says it has paid for.
        """
        key = book_key(task, settings, plan)
        done = max(task.paid, self.spent(key))
        self.enter(key, plan, done, task.rounds - task.round + 1)

    def spent(self, key: Key) -> int:
        """The rounds of this very training that are written down."""
        found = self.ledger.find(**key)
        return found.spent if found else 0

    def enter(self, key: Key, plan: PrivacyPlan, done: int, left: int) -> None:
        """Write a round down after `done` others, if the `left` ones from it on fit the terms."""
        found, needed, terms = self.ledger.find(**key), done + left, self.terms
        if terms.epsilon_of(key["noise_multiplier"], plan, needed) > terms.epsilon_per_release:
            raise MessageError(Code.REFUSED_EPSILON)
        try:
            if found is None or found.outcome != "open":  # a closed one is refused by its name
                name = self.ledger.reserve(rounds=needed, **key).name
            else:
                name = found.run
            record = self.ledger.book().run(name)
            if record.rounds < needed:
                self.ledger.resume(name, needed - record.spent)
        except OverspendError:
            raise MessageError(Code.REFUSED_TOTAL) from None
        except NameTakenError:
            raise MessageError(Code.REFUSED_CHANGE) from None
        self._catch_up(name, done + 1)

    def finish(self, training: str, paid: int, model_hash: str) -> None:
        """Close the training with the model that came of it, all its rounds counted."""
        record = self.ledger.book().named(training)
        if record is None or record.outcome != "open":
            return
        if record.rounds < paid:
            self.ledger.resume(record.run, paid - record.spent)
        self._catch_up(record.run, paid)
        self.ledger.close(record.run, "finished", model_hash=model_hash)

    def _catch_up(self, name: str, rounds: int) -> None:
        """A round counts for every enrolled client, sampled or not."""
        for number in range(self.ledger.book().run(name).spent, rounds):
            self.ledger.spend(name, number + 1)
