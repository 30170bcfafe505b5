"""The site's own terms (`site.toml`) and its ledger of the trainings it took part in.

The site prices every training itself, from the announced noise and sampling rate, and writes it
into its own ledger before it contributes. So it refuses what is beyond its terms, whatever the
coordinator's budget says.
"""

import hashlib
import json
import math
import tomllib
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol, Self, get_args

import tomli_w
from cryptography import x509
from cryptography.x509.oid import NameOID
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from epifed.errors import EpifedError, sentence_of
from epifed.federation.messages import Code, MessageError, Task
from epifed.ledger.budget import Cap
from epifed.ledger.ledger import Ledger, NameTakenError, OverspendError, Use, use_of, uses_in
from epifed.ledger.rows import Book, Key
from epifed.privacy.accounting import spent
from epifed.privacy.plan import PrivacyPlan
from epifed.registry import LEARNERS
from epifed.settings import Settings
from epifed.training.loop import ledger_key
from epifed.training.release import Release, read_release


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

    @classmethod
    def checked(cls, **values: Any) -> Self:
        """The table of these values; what does not fit is one sentence."""
        try:
            return cls(**values)
        except ValidationError as error:
            raise EpifedError(sentence_of(error)) from None

    def to_toml(self) -> str:
        """The table as `read` takes it."""
        return tomli_w.dumps(self.model_dump(exclude_none=True))


_price = lru_cache(maxsize=256)(spent)
"""Asked twice a round, and always the same."""

_LIMITS: dict[str, float] = {
    "clip_norm": 10.0, "rounds": 1000, "epochs": 300, "learning_rate": 1.0, "window": 100,
}  # fmt: skip
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

    epsilon_per_release: float = Field(
        2.0,
        gt=0,
        description="largest ε of one training, which bounds what one release can tell of a client",
    )
    epsilon_total: float = Field(
        10.0, gt=0, lt=math.inf, description="largest ε of all trainings together, ever"
    )
    delta: float = Field(1e-5, gt=0, le=0.01, description="δ at which both are counted")
    accountant: str = Field("pld", description="how both are counted: pld (tight) or rdp")
    first_day: date | None = Field(None, description="first day of data it offers; none: all")
    last_day: date | None = Field(None, description="last day of data it offers; none: all")
    seeded: bool = Field(
        False, description="true: take part in tests with predictable noise, on simulated counts"
    )
    most_numbers: int = Field(
        10_000_000, ge=1, description="largest model, in numbers; protects this machine's memory"
    )
    aggregators: dict[str, Fingerprint] = Field(
        {},
        description="fingerprints of the keys of all (other) aggregators, as each of them says by "
        "telephone: no one else is trusted then, the server neither; none: the server is",
    )
    limits: dict[str, float] = Field(_LIMITS, description="largest value of a setting, by its name")

    @field_validator("limits")
    @classmethod
    def _limiting(cls, limits: dict[str, float]) -> dict[str, float]:
        for name, most in limits.items():
            if math.isnan(most):
                raise ValueError(f"{name}: found nan, which limits nothing; expected a number")
        if unknown := sorted(limits.keys() - _numbers(limits)):
            raise ValueError(
                f"{unknown[0]}: not a setting that is a number; expected one such as clip_norm, "
                "rounds, epochs, learning_rate or window"
            )
        return limits

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
        return all(
            values.get(name) is None or values[name] <= most for name, most in self.limits.items()
        )

    def epsilon_of(self, noise_multiplier: float, plan: PrivacyPlan, rounds: int) -> float:
        """What so many rounds cost, as the site counts them: at its own δ and accountant."""
        if not (plan.private and noise_multiplier > 0):
            return math.inf
        rate = plan.priced_rate
        return round(_price(noise_multiplier, rate, rounds, self.delta, self.accountant), 9)


def _numbers(wanted: Collection[str]) -> set[str]:
    """The names of settings that are numbers; learners are asked for theirs only where needed."""
    known = {*_LIMITS, *_fields_of_numbers(Settings)}
    if not known.issuperset(wanted):
        for name in LEARNERS:
            with suppress(EpifedError):
                learner: Any = LEARNERS.load(name)
                known |= _fields_of_numbers(learner.own_settings)
                known |= _fields_of_numbers(learner.at("week").own_settings)
    return known


def _fields_of_numbers(model: type[BaseModel]) -> set[str]:
    return {
        name
        for name, about in model.model_fields.items()
        if {int, float} & {about.annotation, *get_args(about.annotation)}
    }


def book_key(asked: Asked, settings: Settings, plan: PrivacyPlan) -> Key:
    """What a training is found by in a party's book: priced by the noise that was announced."""
    key = ledger_key(plan, settings, asked.period, asked.training)
    key["noise_multiplier"] = asked.noise_multiplier
    return key


@dataclass(frozen=True)
class Owner:
    """The party whose kit it is: who must not get a second budget by losing its ledger."""

    CLIENTS: ClassVar[str] = "clients.json"
    LOG: ClassVar[str] = "participation.jsonl"
    """The rounds that a site took part in."""
    MODELS: ClassVar[str] = "models"
    """The releases that it was given."""

    kit: Path
    federation: str
    party: str
    clients: tuple[str, ...]

    @classmethod
    def of(cls, kit: Path) -> "Owner":
        """The owner of a kit, by its certificates; one without any is known by its folder."""
        startup, hosted = kit / "startup", kit / cls.CLIENTS
        root, own = startup / "rootCA.pem", startup / "client.crt"
        clients = json.loads(hosted.read_text(encoding="utf-8")) if hosted.is_file() else []
        if not (root.is_file() and own.is_file()):
            return cls(kit, f"folder {kit.resolve()}", "", tuple(clients))
        subject = x509.load_pem_x509_certificate(own.read_bytes()).subject
        (name, *_) = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        digest = hashlib.sha256(root.read_bytes()).hexdigest()
        return cls(kit, digest, str(name.value), tuple(clients))

    def refuse_lost(self, ledger: Path, terms: Terms) -> None:
        """Tell a ledger that is lost from one that was never made."""
        if ledger.exists() or (evidence := self._evidence()) is None:
            return
        raise EpifedError(
            f"{ledger}: no such file, but {evidence}; expected the ledger with what was spent "
            "since. Put the newest file back. If it is lost, lower epsilon_total in the terms by "
            f"what it had spent, and make a new one: 'epifed ledger init {ledger} --epsilon TOTAL "
            f"--delta {terms.delta:g} --accountant {terms.accountant}'"
        )

    def remember(self, path: Path, book: Book) -> None:
        """Note which ledger the party pays from; another with as large a total is refused."""
        before = use_of(self.federation, self.party)
        if before and before.ledger != book.ledger and book.cap.epsilon >= before.epsilon:
            raise EpifedError(
                f"{path}: found a new ledger with a total of ε = {book.cap.epsilon:g}; expected "
                f"the ledger {before.ledger}, from which this party paid before, or a total below "
                f"{before.epsilon:g} that leaves room for what was spent there"
            )
        use = (self.federation, self.party, self.clients, book.ledger, book.cap.epsilon)
        Use(*use).remember()

    def _evidence(self) -> str | None:
        """What shows that the party has paid from a ledger before; nothing of a first start."""
        for use in uses_in(self.federation):
            if use.party == self.party:
                return f"this machine has seen this party pay from the ledger {use.ledger}"
            if shared := sorted(set(use.clients) & set(self.clients)):
                return (
                    f"this machine has seen the party '{use.party}' pay from the ledger "
                    f"{use.ledger} for the client '{shared[0]}'"
                )
        return self._traces() if self.party else None

    def _traces(self) -> str | None:
        """What a kit that was restored without its ledger shows of trainings."""
        log = self.kit / self.LOG
        if log.is_file() and '"randomness": "secure"' in log.read_text(encoding="utf-8"):
            return f"{self.LOG} shows rounds that this party has charged"
        for path in sorted((self.kit / self.MODELS).glob("*.epifed")):
            try:
                secure = read_release(path).randomness == "secure"
            except EpifedError:
                continue
            if secure:
                return f"{self.MODELS}/{path.name} is of a training that this party has charged"
        return None


class SiteLedger:
    """A party's ledger and the names under which trainings stand in it."""

    def __init__(self, path: Path, terms: Terms) -> None:
        owner = Owner.of(path.parent)
        if not path.exists():
            owner.refuse_lost(path, terms)
            cap = Cap(terms.epsilon_total, terms.delta, terms.accountant)
            Ledger.create(path, cap, "what this party took part in")
        self.ledger, self.terms = Ledger(path), terms
        book = self.ledger.book()
        if book.cap.epsilon != terms.epsilon_total:
            raise EpifedError(
                f"{path}: found a total of ε = {book.cap.epsilon:g}; the terms say "
                f"{terms.epsilon_total:g}; expected the same (a new total needs a new ledger)"
            )
        owner.remember(path, book)

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

    def refuse_label(self, training: str, release: Release) -> None:
        """Refuse a release whose label is not that of the training in which the party took part.

        Of a training that it did not take part in, its book knows nothing.
        """
        record = self.ledger.book().named(training)
        if record is None:
            return
        plan = PrivacyPlan.of(release.settings, release.clients)
        period = release.first_day, release.last_day
        key = ledger_key(plan, release.settings, period, training)
        key["noise_multiplier"] = record.noise_multiplier
        (rounds, *others) = release.spent
        noise = rounds.noise_multiplier
        if (
            record.differences(key)
            or others
            or release.continues is not None
            or rounds.sampling_rate != record.sampling_rate
            or not math.isclose(noise, record.noise_multiplier, rel_tol=1e-9)
            or rounds.rounds < release.settings.rounds
        ):
            raise MessageError(
                Code.REFUSED_CHANGE,
                f"{training}: found a release whose label differs from this party's own ledger in "
                f"settings, days, clients, noise or rounds (label: {release.sentence()}); expected "
                "the training in which it took part",
            )

    def finish(self, training: str, model_hash: str) -> None:
        """Close the training with the model that came of it; what this book has spent, counts."""
        record = self.ledger.book().named(training)
        if record is not None and record.outcome == "open":
            self.ledger.close(record.run, "finished", model_hash=model_hash)

    def _catch_up(self, name: str, rounds: int) -> None:
        """A round counts for every enrolled client, sampled or not."""
        for number in range(self.ledger.book().run(name).spent, rounds):
            self.ledger.spend(name, number + 1)
