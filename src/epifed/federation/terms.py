"""The roster of a federation, and a site's own terms (`site.toml`) with its ledger.

The site prices every training itself, from the announced noise and sampling rate. It books the
training in its own ledger before it contributes. So it refuses what exceeds its terms, whatever the
coordinator's budget allows.
"""

import hashlib
import json
import math
import re
import tomllib
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

import tomli_w
from cryptography import x509
from cryptography.x509.oid import NameOID
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from epifed.data.readers.values import refuse_alike
from epifed.errors import EpifedError, counted, sentence_of
from epifed.federation.messages import Code, MessageError, RoundTerms
from epifed.ledger.budget import Book, Cap, Key
from epifed.ledger.ledger import Ledger, NameTakenError, OverspendError, Use, use_of, uses_in
from epifed.privacy.accounting import spent
from epifed.privacy.plan import PrivacyPlan
from epifed.registry import LEARNERS
from epifed.settings import Settings
from epifed.training.loop import ledger_key
from epifed.training.release import Release, read_release


def _shaped(pattern: str, expected: str) -> AfterValidator:
    """A check of a text's form; the error shows what is expected instead of the pattern."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"expected {expected}")
        return text

    return AfterValidator(check)


class Table(BaseModel):
    """A frozen table of a TOML file. Invalid values raise `EpifedError` with one sentence."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=True)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the table from a file."""
        try:
            return cls(**tomllib.loads(path.read_text(encoding="utf-8")))
        except OSError as error:
            raise EpifedError(f"{path}: cannot be read: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise EpifedError(f"{path}: expected TOML; {error}") from None
        except ValidationError as error:
            raise EpifedError(f"{path}: {sentence_of(error)}") from None

    @classmethod
    def checked(cls, **values: Any) -> Self:
        """The table of these values; invalid values raise `EpifedError` with one sentence."""
        try:
            return cls(**values)
        except ValidationError as error:
            raise EpifedError(sentence_of(error)) from None

    def to_toml(self) -> str:
        """The table as TOML, in the form that `read` reads."""
        return tomli_w.dumps(self.model_dump(exclude_none=True))


_price = lru_cache(maxsize=256)(spent)
"""Cached: each round asks for the same price twice."""

_LIMITS: dict[str, float] = {
    "clip_norm": 10.0, "rounds": 1000, "epochs": 300, "learning_rate": 1.0, "window": 100,
}  # fmt: skip
Fingerprint = Annotated[
    str,
    _shaped(
        "SHA256(:[0-9A-F]{2}){32}", "SHA256: and 32 bytes as 'epifed federation fingerprint' prints"
    ),
]


class Terms(Table):
    """The conditions under which a site, or an aggregator, takes part."""

    epsilon_per_release: float = Field(
        2.0,
        gt=0,
        description="largest ε of one training, which bounds what a release can reveal of a client",
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

    def refuse(self, asked: RoundTerms, settings: Settings, plan: PrivacyPlan) -> None:
        """Raise `MessageError` with the code of the first term that the training breaks."""
        first, last = asked.period
        if (self.first_day and first < self.first_day) or (self.last_day and last > self.last_day):
            raise MessageError(Code.REFUSED_PERIOD)
        size = max(asked.numbers, asked.length)
        if size > self.most_numbers or not self.within_limits(settings):
            raise MessageError(Code.REFUSED_SETTINGS)
        if asked.randomness != "secure" and not self.seeded:
            raise MessageError(Code.REFUSED_SEEDED)
        rounds = plan.rounds + asked.repeated
        if self.epsilon_of(asked.noise_multiplier, plan, rounds) > self.epsilon_per_release:
            raise MessageError(Code.REFUSED_EPSILON)

    def refuse_trust(self, aggregators: Mapping[str, str]) -> None:
        """Refuse a training whose aggregators are not exactly the pinned ones."""
        if dict(aggregators) != self.aggregators:
            raise MessageError(Code.REFUSED_TRUST)

    def within_limits(self, settings: Settings) -> bool:
        """Whether no setting exceeds the site's limit for it."""
        values = settings.model_dump()
        return all(
            values.get(name) is None or values[name] <= most for name, most in self.limits.items()
        )

    def epsilon_of(self, noise_multiplier: float, plan: PrivacyPlan, rounds: int) -> float:
        """The ε of so many rounds, at the site's own δ and accountant."""
        if not (plan.private and noise_multiplier > 0):
            return math.inf
        rate = plan.priced_rate
        return round(_price(noise_multiplier, rate, rounds, self.delta, self.accountant), 9)


def _numbers(wanted: Collection[str]) -> set[str]:
    """The names of numeric settings; learners are loaded for theirs only where needed."""
    names = {*_LIMITS, *_fields_of_numbers(Settings)}
    if not names.issuperset(wanted):
        for name in LEARNERS:
            with suppress(EpifedError):
                learner: Any = LEARNERS.load(name)
                names |= _fields_of_numbers(learner.own_settings)
                names |= _fields_of_numbers(learner.at("week").own_settings)
    return names


def _fields_of_numbers(model: type[BaseModel]) -> set[str]:
    return {
        name
        for name, about in model.model_fields.items()
        if {int, float} & {about.annotation, *get_args(about.annotation)}
    }


def book_key(asked: RoundTerms, settings: Settings, plan: PrivacyPlan) -> Key:
    """The key of a training in a party's ledger, with the noise that was announced."""
    key = ledger_key(plan, settings, asked.period, asked.training)
    key["noise_multiplier"] = asked.noise_multiplier
    return key


@dataclass(frozen=True)
class Owner:
    """The owner of a kit, who must not get a second budget by losing its ledger."""

    CLIENTS: ClassVar[str] = "clients.json"
    LOG: ClassVar[str] = "participation.jsonl"
    """The rounds that a site took part in."""
    MODELS: ClassVar[str] = "models"
    """The releases that it received."""

    kit: Path
    federation: str
    party: str
    clients: tuple[str, ...]

    @classmethod
    def of(cls, kit: Path) -> "Owner":
        """The owner of a kit, by its certificates; without any, by the kit's folder."""
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
        """Raise if the ledger is missing although the party has charged one before."""
        if ledger.exists() or (evidence := self._evidence()) is None:
            return
        raise EpifedError(
            f"{ledger}: no such file, but {evidence}; expected the ledger with what was spent "
            "since. Put the newest file back. If it is lost, lower epsilon_total in the terms by "
            f"what it had spent, and make a new one: 'epifed ledger init {ledger} --epsilon TOTAL "
            f"--delta {terms.delta:g} --accountant {terms.accountant}'"
        )

    def remember(self, path: Path, book: Book) -> None:
        """Note which ledger the party charges; raises for another one with as large a total."""
        before = use_of(self.federation, self.party)
        if before and before.ledger != book.ledger and book.cap.epsilon >= before.epsilon:
            raise EpifedError(
                f"{path}: found a new ledger with a total of ε = {book.cap.epsilon:g}; expected "
                f"the ledger {before.ledger}, which this party used before, or a total below "
                f"{before.epsilon:g} that leaves room for what was spent there"
            )
        use = (self.federation, self.party, self.clients, book.ledger, book.cap.epsilon)
        Use(*use).remember()

    def _evidence(self) -> str | None:
        """Evidence that the party has charged a ledger before; None at a first start."""
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
        """Evidence of charged trainings in a kit that was restored without its ledger."""
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
    """A party's ledger, in which trainings stand by name."""

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
                f"{path}: found a total of ε = {book.cap.epsilon:g}; the terms have "
                f"{terms.epsilon_total:g}; expected the same (a new total needs a new ledger)"
            )
        owner.remember(path, book)

    @classmethod
    def of(cls, path: Path, terms: Terms) -> "SiteLedger":
        """Open a party's ledger; raises `MessageError` with a code if it cannot be used."""
        try:
            return cls(path, terms)
        except EpifedError as error:
            raise MessageError(Code.LEDGER, str(error)) from None

    def take_part(self, asked: RoundTerms, settings: Settings, plan: PrivacyPlan) -> None:
        """Book this round of the training, or refuse it.

        Every answer counts as a round, whatever number of charged rounds the server states.
        """
        key = book_key(asked, settings, plan)
        done = max(asked.paid, self.spent(key))
        self.enter(key, plan, done, asked.rounds - asked.round + 1)

    def spent(self, key: Key) -> int:
        """The booked rounds of this training."""
        run = self.ledger.find(**key)
        return run.spent if run else 0

    def enter(self, key: Key, plan: PrivacyPlan, done: int, left: int) -> None:
        """Book a round after `done` others, if the `left` rounds from it on fit the terms."""
        booked, needed, terms = self.ledger.find(**key), done + left, self.terms
        if terms.epsilon_of(key["noise_multiplier"], plan, needed) > terms.epsilon_per_release:
            raise MessageError(Code.REFUSED_EPSILON)
        try:
            if booked is None or booked.outcome != "open":  # a closed one is refused by its name
                name = self.ledger.reserve(rounds=needed, **key).name
            else:
                name = booked.run
            record = self.ledger.book().run(name)
            if record.rounds < needed:
                self.ledger.resume(name, needed - record.spent)
        except OverspendError:
            raise MessageError(Code.REFUSED_TOTAL) from None
        except NameTakenError:
            raise MessageError(Code.REFUSED_CHANGE) from None
        self._catch_up(name, done + 1)

    def refuse_label(self, training: str, release: Release) -> None:
        """Refuse a release whose label differs from the training that this ledger booked.

        A training in which the party did not take part is not in its ledger and is not checked.
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
        """Close the training with its model's hash; the rounds booked here remain charged."""
        record = self.ledger.book().named(training)
        if record is not None and record.outcome == "open":
            self.ledger.close(record.run, "finished", model_hash=model_hash)

    def _catch_up(self, name: str, rounds: int) -> None:
        """Book rounds up to this number: each counts for every enrolled client, sampled or not."""
        for number in range(self.ledger.book().run(name).spent, rounds):
            self.ledger.spend(name, number + 1)


Name = Annotated[
    str, _shaped("[A-Za-z0-9][A-Za-z0-9-]{0,40}", "letters, digits and hyphens, at most 41")
]
Host = Annotated[
    str, _shaped("[A-Za-z0-9][A-Za-z0-9.-]{0,62}", "a host name such as fed.example.org")
]
Mail = Annotated[
    str,
    _shaped(r"(?=.{1,63}\Z)[A-Za-z0-9._-]+@([A-Za-z0-9-]+\.)+[A-Za-z]{2,}", "a mail address"),
]

QUESTIONS = 50
"""Requests for work per second from all waiting sites, which keep about half a core busy."""
SILENT = 60.0
"""Seconds without a sign of life after which the server drops a party, in a small federation."""
AGAIN = 2.0
"""Least seconds without a sign of a reply before a question is repeated."""
START = 60.0
"""Least seconds that a site's worker has for its start."""

OLD_DAYS = 8
"""Days after which counts are old: a weekly training then probably finds too few."""
SOON = 30
"""Days before a certificate's end from which on it is reported as a problem."""


class Server(Table):
    """The address that all parties connect to: one host, one port."""

    host: Host
    port: int = Field(8002, ge=1, le=65535)


class Site(Table):
    """A party with data: a machine that hosts one or more clients."""

    name: Name
    clients: tuple[str, ...] = Field(min_length=1)
    own_key: bool = Field(False, description="the site makes its private key itself")
    signs: str | None = Field(
        None,
        pattern="^[0-9a-f]{64}$",
        description="with aggregators: the public key with which it signs its reports",
    )


class Aggregator(Table):
    """A party without data that adds up sealed shares; it is another legal entity than the rest."""

    name: Name
    own_key: bool = Field(True, description="it makes the private key of its certificate itself")


class Federation(Table):
    """The roster, and how its rounds are run."""

    name: Name = Field("epifed", description="of the federation")
    language: Literal["en", "de"] = Field("en", description="of the readme in each kit: en or de")
    coordinator: Mail = Field("coordinator@epifed.org", description="who may start trainings")
    root_days: int = Field(3650, ge=1, description="life of the root certificate")
    certificate_days: int = Field(730, ge=1, description="life of a party's certificate")
    rounds_per_job: int = Field(10, ge=1, description="rounds until late sites may join")
    round_timeout: float = Field(120.0, gt=0, description="seconds a round waits for its sites")
    min_sites: int = Field(
        1, ge=1, description="sites that must answer with a vector for a round to be spent"
    )
    removed: tuple[Name, ...] = Field((), description="sites whose certificates are void")
    server: Server
    terms: Terms = Field(Terms(), description="proposed to the sites, each of which has its own")
    sites: tuple[Site, ...] = Field(min_length=1)
    aggregators: tuple[Aggregator, ...] = Field(
        (), max_length=16, description="who add up in the server's place: none, or at least two"
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [site.name.lower() for site in self.sites]
        names += [aggregator.name.lower() for aggregator in self.aggregators]
        if len(self.aggregators) == 1:
            raise ValueError(
                "aggregators: found 1; expected none, or at least 2 of different legal entities"
            )
        for listed in (names, self.clients):
            name, times = Counter(listed).most_common(1)[0]
            if times > 1:
                raise ValueError(f"sites: found '{name}' {times} times; expected it once")
        try:
            refuse_alike("sites", self.clients)
        except EpifedError as error:
            raise ValueError(str(error)) from None
        reserved = {"server", "all", self.server.host.lower()} & set(names)
        if reserved:
            raise ValueError(f"sites: found the name '{min(reserved)}', which is not free")
        void = {name.lower() for name in self.removed} & set(names)
        if void:
            raise ValueError(
                f"sites: found '{min(void)}', which was removed; expected a new name, because a "
                "removed one is refused for good"
            )
        if self.certificate_days > self.root_days:
            raise ValueError(
                f"certificate_days: found {self.certificate_days}; expected at most the "
                f"{self.root_days} days of the root certificate"
            )
        if self.min_sites > len(self.sites):
            raise ValueError(
                f"min_sites: found {self.min_sites} of {counted(len(self.sites), 'site')}; "
                "expected at most "
                "all"
            )
        return self

    @cached_property
    def clients(self) -> tuple[str, ...]:
        """The N enrolled clients, sorted; sampling uses this order."""
        return tuple(sorted(client for site in self.sites for client in site.clients))

    @cached_property
    def site_of(self) -> dict[str, str]:
        """The site that hosts each client."""
        return {client: site.name for site in self.sites for client in site.clients}

    @property
    def parties(self) -> tuple[Site | Aggregator, ...]:
        """All parties that connect to the server: aggregators first, whose presence is required."""
        return (*self.aggregators, *self.sites)

    @cached_property
    def signs(self) -> dict[str, str]:
        """The public keys with which sites sign their reports, where known, by site."""
        return {site.name: site.signs for site in self.sites if site.signs}

    @property
    def request_interval(self) -> float:
        """Seconds between two requests for work of a waiting site."""
        return max(0.2, len(self.sites) / QUESTIONS)

    @property
    def silent(self) -> float:
        """Seconds without a sign of life after which the server drops a party.

        Where hundreds of workers start at once, signs of life are late.
        """
        return SILENT + len(self.sites)

    @property
    def ask_again(self) -> float:
        """Seconds until a site repeats a lost question or answer, several times in a round."""
        return max(AGAIN, self.round_timeout / 4)

    @property
    def start_timeout(self) -> float:
        """Seconds in which a site's worker must have started, or have received the model."""
        return max(START, self.round_timeout)

    def with_signs(self, keys: Mapping[str, str]) -> Self:
        """The roster with these public keys for sites whose keys it does not have."""
        sites = (
            site.model_copy(update={"signs": site.signs or keys.get(site.name)})
            for site in self.sites
        )
        return self.model_copy(update={"sites": tuple(sites)})

    def party(self, name: str) -> Site | Aggregator:
        """The site or aggregator of that name; raises `EpifedError` if there is none."""
        listed = next((party for party in self.parties if party.name == name), None)
        return listed or self.site(name)

    def site(self, name: str) -> Site:
        """The site of that name; raises `EpifedError` if there is none."""
        for site in self.sites:
            if site.name == name:
                return site
        raise EpifedError(f"site '{name}': not in the roster of the federation '{self.name}'")
