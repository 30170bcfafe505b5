"""The site's own say: what it agrees to (`site.toml`), and its book of what it took part in.

The site prices every training itself, from the noise and sampling rate the server announces, and
writes it into a ledger of its own before it contributes. So it refuses what is beyond its terms
whatever the coordinator's budget says.
"""

import math
from datetime import date
from pathlib import Path

from pydantic import Field

from epifed.errors import EpifedError
from epifed.federation.codes import Code
from epifed.federation.messages import MessageError, Task
from epifed.federation.tables import Table
from epifed.ledger.book import Key
from epifed.ledger.budget import Cap
from epifed.ledger.ledger import Ledger, NameTakenError, OverspendError
from epifed.privacy.accounting import spent
from epifed.protocol import sampling_rate
from epifed.settings import AccountantName, Settings


class Terms(Table):
    """What a site agrees to."""

    epsilon_per_release: float = Field(2.0, gt=0, description="largest ε of one training; inf: any")
    epsilon_total: float = Field(10.0, gt=0, lt=math.inf, description="ε of all trainings together")
    delta: float = Field(1e-5, gt=0, lt=1, description="δ at which the total is counted")
    accountant: AccountantName = Field("rdp", description="how the total is counted")
    first_day: date | None = Field(None, description="first day of data it offers; none: all")
    last_day: date | None = Field(None, description="last day of data it offers; none: all")
    simulations: bool = Field(False, description="take part in trainings with predictable noise")

    def refuse(self, task: Task, settings: Settings) -> None:
        """Raise the code of the first term that the training breaks."""
        first, last = date.fromisoformat(task.first_day), date.fromisoformat(task.last_day)
        if (self.first_day and first < self.first_day) or (self.last_day and last > self.last_day):
            raise MessageError(Code.REFUSED_PERIOD)
        if task.randomness != "secure" and not self.simulations:
            raise MessageError(Code.REFUSED_SIMULATION)
        if self.epsilon_of(task, settings) > self.epsilon_per_release:
            raise MessageError(Code.REFUSED_EPSILON)

    def epsilon_of(self, task: Task, settings: Settings) -> float:
        """What the whole training costs, as the site counts it."""
        if not (settings.private and task.noise_multiplier > 0):
            return math.inf
        rate = sampling_rate(task.enrolled, settings.clients_per_round)
        rounds = settings.rounds + max(0, task.paid + 1 - task.round)
        epsilon = spent(task.noise_multiplier, rate, rounds, settings.delta, settings.accountant)
        return round(epsilon, 9)


class SiteBook:
    """The site's ledger and the names under which trainings stand in it."""

    def __init__(self, path: Path, terms: Terms) -> None:
        if not path.exists():
            cap = Cap(terms.epsilon_total, terms.delta, terms.accountant)
            Ledger.create(path, cap, "what this site took part in")
        self.ledger = Ledger(path)
        cap = self.ledger.book().cap
        if cap.epsilon != terms.epsilon_total:
            raise EpifedError(
                f"{path}: found a total of ε = {cap.epsilon:g}; the terms say "
                f"{terms.epsilon_total:g}; expected the same (a new total needs a new ledger)"
            )

    def take_part(self, task: Task, settings: Settings) -> None:
        """Write this round of the training down, or refuse it; a simulation costs nothing."""
        if task.randomness != "secure":
            return
        needed = task.paid + task.rounds - task.round + 1
        key: Key = {
            "training": task.training,
            "sampling_rate": sampling_rate(task.enrolled, settings.clients_per_round),
            "noise_multiplier": task.noise_multiplier,
            "settings_hash": settings.digest(),
            "first_day": date.fromisoformat(task.first_day),
            "last_day": date.fromisoformat(task.last_day),
        }
        try:
            found = self.ledger.find(**key)
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
        self._catch_up(name, task.paid + 1)

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
