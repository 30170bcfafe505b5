"""A training on the server of a federation: rounds that survive a crash.

The rules of a round are in `epifed.training.rounds`; this module makes rounds durable. The result
of a round waits on disk, where nobody reads it, until the round is charged. Then it becomes the
state. A crash before the charge has released nothing, and the round is run again. After the charge,
the result is still there. So no round is charged twice unless the disk loses the result too. Then
it is run and charged again, and the model's ε counts both.
"""

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from filelock import FileLock

from epifed.errors import EpifedError, counted
from epifed.federation import messages
from epifed.federation.messages import NAME, Code, Delivery, MessageError, Parts, RoundTerms, Task
from epifed.federation.terms import Federation
from epifed.files import write_atomic, write_text
from epifed.learners.base import Period, Vector, make_learner
from epifed.ledger.ledger import Ledger
from epifed.privacy.noise import Randomness, SecureRandomness, SeededRandomness
from epifed.privacy.plan import PrivacyPlan
from epifed.settings import NoiseName, Settings, of_training
from epifed.training.loop import ledger_key, refuse_unreleasable
from epifed.training.release import Release, read_release
from epifed.training.rounds import Rounds

STATE, WAITING, ORDER = "state.npz", "waiting.npz", "order.json"
REPORT, MODEL, DELIVERED = "report.jsonl", "model.epifed", "delivered.json"


@dataclass(frozen=True)
class Order:
    """A requested training: its name, settings and days. Fixed with the first round."""

    training: str
    settings: Settings
    first_day: date
    last_day: date
    seeded: bool
    """Whether it is a test: predictable noise, no ledger, not for release."""

    @classmethod
    def of(
        cls, name: str, settings: Settings, first: date, last: date, *, seeded: bool = False
    ) -> "Order":
        """An order; raises if its name cannot be a folder's or its days are reversed."""
        if not NAME.fullmatch(name):
            raise EpifedError(
                f"name: found '{name}'; expected up to 61 letters, digits and hyphens"
            )
        if first > last:
            raise EpifedError(f"days: found {first} to {last}; expected the first before the last")
        return cls(name, settings, first, last, seeded)

    @property
    def period(self) -> Period:
        """First and last day of the training data."""
        return self.first_day, self.last_day

    def sealed(self) -> str:
        """The order in base64, so that FLARE finds no variables to fill in."""
        return base64.b64encode(self.to_json().encode()).decode()

    @classmethod
    def unsealed(cls, text: str) -> "Order":
        """The order from base64."""
        return cls.from_json(base64.b64decode(text).decode())

    def to_json(self) -> str:
        """The order as JSON."""
        days = {"first_day": str(self.first_day), "last_day": str(self.last_day)}
        return json.dumps(vars(self) | days | {"settings": self.settings.to_toml()}, indent=2)

    @classmethod
    def from_json(cls, text: str) -> "Order":
        """The order from JSON."""
        values = json.loads(text)
        days = (date.fromisoformat(values[name]) for name in ("first_day", "last_day"))
        settings = Settings.from_toml(values["settings"])
        return cls.of(values["training"], settings, *days, seeded=bool(values["seeded"]))


@dataclass(frozen=True)
class Problem:
    """A party that did not contribute to a round, or only in part, and the reason."""

    site: str
    code: Code


class TooFewError(Exception):
    """Fewer sites answered than a round requires; it was not charged."""


class Post:
    """Carries a round's questions to the parties and their answers back: FLARE, or one process."""

    def keys(self) -> Mapping[str, str]:
        """The public keys of the connected aggregators."""
        return {}

    def sites(self, tasks: dict[str, Task]) -> tuple[Mapping[str, Parts], list[Problem]]:
        """The answers that arrived, by site, and the problems of the other sites."""
        raise NotImplementedError

    def aggregator(self, name: str, question: Parts) -> Parts | None:
        """An aggregator's answer; None if none arrives."""
        raise NotImplementedError


Report = Callable[[dict[str, Any]], None]
"""Takes the report of a round."""


class Answers(NamedTuple):
    """What the sites' answers to a round contain."""

    vectors: dict[str, Vector]
    """The accepted vectors, by drawn client."""
    problems: list[Problem]
    sites: frozenset[str]
    """The sites that answered with vectors, whether or not their clients were drawn."""


def take_in(
    answers: Mapping[str, Parts], tasks: Mapping[str, Task], rounds: Rounds[Any]
) -> Answers:
    """The vectors in the answers that arrived, and the problems of each site."""
    vectors: dict[str, Vector] = {}
    problems: list[Problem] = []
    answered = set[str]()
    for site, parts in answers.items():
        try:
            accepted, rejected = messages.accept(parts, tasks[site], rounds)
        except MessageError as error:
            problems.append(Problem(site, error.code))
            continue
        answered.add(site)
        vectors |= accepted
        problems += [Problem(site, code) for code in sorted(set(rejected))]
    return Answers(vectors, problems, frozenset(answered))


class StoredTraining:
    """The rounds of one training, in a server's folder that one process at a time may use.

    Subclasses define how the sum of a round is made.
    """

    noise: ClassVar[NoiseName]
    """The party that adds the noise, as the settings name it."""

    def __init__(
        self, folder: Path, federation: Federation, order: Order, ledger: Ledger | None
    ) -> None:
        settings = order.settings
        if settings.split != "temporal":
            raise EpifedError(
                f"split: found '{settings.split}'; expected 'temporal': sites have no common "
                "randomness to shuffle by"
            )
        self.plan = PrivacyPlan.of(settings, len(federation.clients))
        if not order.seeded:
            refuse_unreleasable(self.plan, self.noise)
        elif settings.noise != self.noise:
            raise EpifedError(
                f"noise: found '{settings.noise}'; expected '{self.noise}', who add it here"
            )
        if not order.seeded and ledger is None:
            raise EpifedError("the server has no ledger; expected one to charge the training to")
        self.folder, self.federation, self.order, self.settings = (
            folder,
            federation,
            order,
            settings,
        )
        self.ledger = None if order.seeded else ledger
        self._hold()
        self._agree()
        learner = make_learner(settings)
        initial, sampling, noise = of_training(settings.seed)
        randomness: Randomness = (
            SeededRandomness(sampling, noise) if order.seeded else SecureRandomness()
        )
        self.done, self.paid, self.unused, self.run = 0, 0, 0, None
        self.state = learner.start(initial)
        self.rounds = Rounds.of(learner, self.plan, randomness, self.state)
        self._load()
        self._open_run()
        if order.seeded:
            self._replay()

    done: int
    """Rounds whose result is on disk."""
    paid: int
    """Charged rounds, including repeated ones; never fewer than `done`."""
    unused: int
    """Charged rounds that could not be used."""
    run: str | None
    state: Any

    @property
    def finished(self) -> bool:
        """Whether all rounds are done."""
        return self.done >= self.settings.rounds

    @property
    def epsilon(self) -> float:
        """The ε of the rounds charged so far."""
        return self.plan.price(self.paid).epsilon_spent if self.paid else 0.0

    @property
    def epsilon_without_amplification(self) -> float:
        """The same against a party that sees which clients are drawn, such as the server."""
        return self.plan.epsilon_without_amplification(self.paid) if self.paid else 0.0

    def line(self, number: int, problems: list[Problem]) -> dict[str, Any]:
        """The report of a round: missing sites and reasons, never who was drawn."""
        listed = [{"site": p.site, "reason": p.code.value} for p in problems]
        return {"round": number, "epsilon": self.epsilon, "problems": listed}

    def play(self, post: Post, report: Report) -> None:
        """Run one round of Algorithm 1 and store its result."""
        raise NotImplementedError

    def finish(self) -> Release:
        """Close the run in the ledger and make the release file, once."""
        path = self.folder / MODEL
        if path.exists():
            release = read_release(path)
        else:
            release = Release.of(
                self.rounds.learner,
                self.state,
                self.plan,
                paid=self.paid,
                period=self.order.period,
                randomness=self.rounds.randomness.name,
                ledger_run=self.run,
                unused=self.unused,
            )
            release.write(path)
        if self.ledger and self.run and self.ledger.book().runs[self.run].outcome == "open":
            self.ledger.close(self.run, "finished", model_hash=release.sha256)
        return release

    def delivery(self) -> Delivery:
        """The message that brings the finished training to each party."""
        return Delivery(self.order.training, (self.folder / MODEL).read_bytes())

    def _terms(self, number: int, state: Vector, **stated: Any) -> RoundTerms:
        """The terms of a round that starts from a packed state."""
        return RoundTerms.make(
            self.order.training,
            self.settings,
            self.plan,
            self.order.period,
            state,
            self.rounds.length,
            **{"round": number, "paid": self.paid, "least": self.federation.min_sites}
            | {"randomness": self.rounds.randomness.name}
            | stated,
        )

    def _tasks(self, terms: RoundTerms, state: Vector, drawn: set[str] | None) -> dict[str, Task]:
        """The task of each site; without `drawn`, sites draw their clients themselves."""
        marks = {
            site.name: "".join("01"[client in drawn] for client in site.clients)
            if drawn is not None
            else ""
            for site in self.federation.sites
        }
        return {
            site.name: Task.to(terms, site.name, site.clients, marks[site.name], state)
            for site in self.federation.sites
        }

    def _pay(self, number: int) -> None:
        if self.ledger and self.run:
            self.ledger.spend(self.run, number)
        self.paid += 1

    def _open_run(self) -> None:
        if self.ledger is None:
            return
        key = ledger_key(self.plan, self.settings, self.order.period, self.order.training)
        booked = self.ledger.find(**key)
        if self.run and (booked is None or booked.run != self.run):
            raise EpifedError(
                f"training '{self.order.training}': its run {self.run} is not in the ledger with "
                "this noise, these settings and days; expected them, or another name"
            )
        name = booked.run if booked else self.ledger.reserve(rounds=self.plan.rounds, **key).name
        self.run = name
        record = self.ledger.book().runs[name]
        self.paid = record.spent
        self._recover()
        left = self.settings.rounds - self.done
        if left and record.spent + left > record.rounds:
            self.ledger.resume(name, left)

    def _replay(self) -> None:
        """Advance seeded randomness past the rounds on disk."""
        self.paid = self.done
        for _ in range(self.done):
            self.rounds.draw()
            self.rounds.randomness.release(self.rounds.empty_rows(), self.plan)

    def _hold(self) -> None:
        """Lock the folder; raises Timeout while the worker of a crashed server lives on."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(self.folder / "lock")
        self._lock.acquire(timeout=0)

    def _agree(self) -> None:
        path = self.folder / ORDER
        if not path.exists():
            write_text(self.folder / "roster.json", json.dumps(self.federation.clients))
            write_text(path, self.order.to_json())
        elif Order.from_json(path.read_text(encoding="utf-8")) != self.order:
            raise EpifedError(
                f"training '{self.order.training}': found it with other settings, days or noise; "
                "expected the same, or another name"
            )
        elif json.loads((self.folder / "roster.json").read_text()) != list(self.federation.clients):
            raise EpifedError(
                f"training '{self.order.training}': the roster's clients have changed since its "
                "first round; expected the same N, or another training"
            )

    def _load(self) -> None:
        path = self.folder / STATE
        if not path.exists():
            return
        with np.load(path, allow_pickle=False) as stored:
            self.state = self.rounds.learner.unpack(stored["state"])
            self.done = int(stored["done"])
            self.run = str(stored["run"]) or None
            self.unused = int(stored["unused"]) if "unused" in stored else 0

    def _refuse_too_few(self, answered: int, problems: list[Problem]) -> None:
        """Refuse to spend a round if fewer sites answered with vectors than the roster requires.

        A site answers with vectors whoever was drawn, so their number shows nothing of the draw.
        """
        if answered < self.federation.min_sites:
            reasons = ", ".join(sorted({f"{p.site}: {p.code.value}" for p in problems}))
            raise TooFewError(
                f"{counted(answered, 'site')} answered with a vector, {self.federation.min_sites} "
                f"expected{f' ({reasons})' if reasons else ''}"
            )

    def _wait(self, number: int, state: Any, paid: int, unused: int = 0) -> None:
        """Store the result of a round until more than `paid` rounds are charged.

        `unused` is 1 if the round could not be used.
        """

        def write(temporary: Path) -> None:
            with temporary.open("wb") as file:
                np.savez(
                    file,
                    state=self.rounds.learner.pack(state),
                    done=number,
                    run=self.run or "",
                    paid=paid,
                    unused=self.unused + unused,
                )

        write_atomic(self.folder / WAITING, write)

    def _save(self) -> None:
        """Make the waiting result the state."""
        (self.folder / WAITING).replace(self.folder / STATE)
        self._load()

    def _recover(self) -> None:
        """After a crash: adopt a waiting result that was charged, or delete one that was not."""
        path = self.folder / WAITING
        if not path.exists():
            return
        with np.load(path, allow_pickle=False) as stored:
            paid_for = self.paid > int(stored["paid"])
        if paid_for:
            self._save()
        else:
            path.unlink()


class ServedTraining(StoredTraining):
    """A training whose server is trusted: it draws, sees the vectors and adds the noise."""

    noise = "server"

    def play(self, post: Post, report: Report) -> None:
        """Run one round of Algorithm 1 over the enrolled clients.

        Every site gets a task and answers, whoever was drawn; the report shows nothing of the draw.
        """
        number, clients = self.done + 1, self.federation.clients
        drawn = {clients[k] for k in self.rounds.draw()}
        state = self.rounds.learner.pack(self.state)
        tasks = self._tasks(self._terms(number, state), state, drawn)
        answers, missing = post.sites(tasks)
        vectors, problems, answered = take_in(answers, tasks, self.rounds)
        problems = [*problems, *missing]
        self._refuse_too_few(len(answered), problems)
        rows = [vectors[client] for client in clients if client in drawn and client in vectors]
        updates = np.stack(rows) if rows else self.rounds.empty_rows()
        self._wait(number, self.rounds.close(self.state, updates), self.paid)
        self._pay(number)
        self._save()
        report(self.line(number, problems))


def write_line(folder: Path, line: Mapping[str, Any]) -> None:
    """Append the report of a round to its training's report file."""
    with (folder / REPORT).open("a", encoding="utf-8", newline="\n") as file:
        file.write(json.dumps(line) + "\n")


def read_state(folder: Path) -> tuple[int, Vector] | None:
    """The number of rounds on disk and the packed state; None if there is no state."""
    try:
        with np.load(folder / STATE, allow_pickle=False) as stored:
            return int(stored["done"]), stored["state"]
    except OSError:
        return None
