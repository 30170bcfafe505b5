"""A training as the server of a federation sees it: rounds that survive a crash.

The rules of a round are `protocol`'s and `privacy.randomness`'s; here is only their order. The
result of a round waits on the disk, where nobody reads it, until the round has been paid for; then
it becomes the state. A crash before the payment has released nothing, and the round is run again;
after the payment the result is still there. So no round is paid for twice, unless the disk loses
the result too: then it is run and paid for again, and the model's ε counts both.
"""

import base64
import fcntl
import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from epifed.errors import EpifedError
from epifed.federation.codes import Code
from epifed.federation.messages import Task
from epifed.federation.roster import Federation
from epifed.files import write_atomic, write_text
from epifed.learners import make_learner
from epifed.ledger.book import Key
from epifed.ledger.ledger import Ledger
from epifed.privacy.accounting import Calibration, priced
from epifed.privacy.randomness import Randomness, SecureRandomness, SeededRandomness
from epifed.protocol import noise_std
from epifed.release import Model
from epifed.seeds import seed_sequence
from epifed.settings import Settings
from epifed.training import Training, calibration_of
from epifed.windows import Windows

STATE, WAITING = "state.npz", "waiting.npz"


@dataclass(frozen=True)
class Plan:
    """What was asked for. It is fixed with the first round."""

    training: str
    settings: Settings
    first_day: str
    last_day: str
    simulation: bool

    @classmethod
    def of(
        cls, name: str, settings: Settings, first: date, last: date, *, simulation: bool = False
    ) -> "Plan":
        """A plan whose name can be a folder's."""
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]{0,60}", name):
            raise EpifedError(
                f"name: found '{name}'; expected up to 61 letters, digits and hyphens"
            )
        if first > last:
            raise EpifedError(f"days: found {first} to {last}; expected the first before the last")
        return cls(name, settings, first.isoformat(), last.isoformat(), simulation)

    def sealed(self) -> str:
        """The plan as one word, in which FLARE finds no variables to fill in."""
        return base64.b64encode(self.to_json().encode()).decode()

    @classmethod
    def unsealed(cls, text: str) -> "Plan":
        """The plan of one word."""
        return cls.from_json(base64.b64decode(text).decode())

    def to_json(self) -> str:
        """The plan as text."""
        return json.dumps(vars(self) | {"settings": self.settings.to_toml()}, indent=2)

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        """The plan of a text."""
        values = json.loads(text)
        days = (date.fromisoformat(values[name]) for name in ("first_day", "last_day"))
        settings = Settings.from_toml(values["settings"])
        return cls.of(values["training"], settings, *days, simulation=bool(values["simulation"]))


@dataclass(frozen=True)
class Problem:
    """A site that did not contribute to a round, and why."""

    site: str
    code: Code


Answers = tuple[dict[str, Tensor], list[Problem]]
"""The accepted vectors by client, and who is missing."""
Ask = Callable[[dict[str, Task], "Rounds"], Answers]
"""Brings tasks to sites and their answers back."""


class Rounds:
    """The rounds of one training, in a folder of the server that one process at a time holds."""

    def __init__(
        self, folder: Path, federation: Federation, plan: Plan, ledger: Ledger | None
    ) -> None:
        settings = plan.settings
        if settings.clients_per_round > len(federation.clients):
            raise EpifedError(
                f"clients_per_round: found {settings.clients_per_round} of "
                f"{len(federation.clients)} enrolled clients; expected at most all of them"
            )
        if settings.split != "temporal":
            raise EpifedError(
                f"split: found '{settings.split}'; expected 'temporal': sites have no common "
                "randomness to shuffle by"
            )
        if settings.noise != "server":
            raise EpifedError(
                f"noise: found '{settings.noise}'; expected 'server', which adds it here"
            )
        if not plan.simulation and not settings.private:
            raise EpifedError("epsilon: found inf; expected a finite budget for a real training")
        if not plan.simulation and ledger is None:
            raise EpifedError("the server has no ledger; expected one that pays for the training")
        self.folder, self.federation, self.plan, self.settings = folder, federation, plan, settings
        self.ledger = None if plan.simulation else ledger
        self._hold()
        self._agree()
        self.learner = make_learner(settings)
        self.clip_norm = settings.clip_norm if settings.private else math.inf
        self.calibration = calibration_of(settings, len(federation.clients))
        self.rate = self.calibration.sampling_rate
        initial, sampling, noise = seed_sequence(settings.seed).spawn(3)
        self.randomness: Randomness = (
            SeededRandomness(sampling, noise) if plan.simulation else SecureRandomness()
        )
        self.done, self.paid, self.cohort_sizes, self.run = 0, 0, (), None
        self.state = self.learner.start(initial)
        self._load()
        like = self.learner.contribute(self.state, no_windows(settings))
        self.length, self.dtype = like.shape[1], like.dtype
        self._open_run()
        if plan.simulation:
            self._replay()

    done: int
    """Rounds whose result is on the disk."""
    paid: int
    """Rounds paid for: at least as many."""
    cohort_sizes: tuple[int, ...]
    run: str | None

    @property
    def finished(self) -> bool:
        """Whether all rounds are done."""
        return self.done >= self.settings.rounds

    @property
    def epsilon(self) -> float:
        """The ε of the rounds paid for so far."""
        return self._priced().epsilon_spent if self.paid else 0.0

    def play(self, ask: Ask, report: Callable[[dict[str, Any]], None]) -> None:
        """One round of Algorithm 1 over the enrolled clients, whoever is there."""
        number, settings = self.done + 1, self.settings
        cohort = self.randomness.sample(
            len(self.federation.clients), settings.clients_per_round, settings.sampler
        )
        chosen = [self.federation.clients[k] for k in cohort]
        vectors, problems = ask(self._tasks(number, chosen), self) if chosen else ({}, [])
        rows = [vectors[client] for client in chosen if client in vectors]
        updates = torch.stack(rows) if rows else torch.zeros((0, self.length), dtype=self.dtype)
        released = self.randomness.release(
            updates,
            clip_norm=self.clip_norm,
            noise_multiplier=self.calibration.noise_multiplier,
            clients_per_round=settings.clients_per_round,
        )
        error = noise_std(
            self.clip_norm, self.calibration.noise_multiplier, settings.clients_per_round
        )
        self._wait(number, self.learner.step(self.state, released, error), len(chosen))
        self._pay(number)
        self._save()
        report(
            {
                "round": number,
                "sampled": len(chosen),
                "came": len(rows),
                "epsilon": self.epsilon,
                "problems": [{"site": p.site, "reason": p.code.value} for p in problems],
            }
        )

    def finish(self) -> Model:
        """Close the run in the ledger and make the model file, once."""
        path = self.folder / "model.epifed"
        training = Training(
            self.state,
            self.learner,
            self.settings,
            replace(self._priced(), epsilon=self.settings.epsilon),
            self.cohort_sizes,
            self.randomness.name,
            self.run,
        )
        period = f"{self.plan.first_day} … {self.plan.last_day}"
        model = Model.of(training, len(self.federation.clients), period)
        if not path.exists():
            model.write(path)
        if self.ledger and self.run and self.ledger.book().runs[self.run].outcome == "open":
            self.ledger.close(self.run, "finished", model_hash=model.sha256)
        return model

    def _priced(self) -> Calibration:
        if not self.settings.private:
            return self.calibration
        return priced(
            self.calibration.noise_multiplier,
            self.rate,
            max(self.paid, 1),
            self.settings.delta,
            self.settings.accountant,
        )

    def _tasks(self, number: int, chosen: Iterable[str]) -> dict[str, Task]:
        of_site: dict[str, list[str]] = {}
        for client in chosen:
            of_site.setdefault(self.federation.site_of[client], []).append(client)
        return {site: self._task(number, tuple(clients)) for site, clients in of_site.items()}

    def _task(self, number: int, clients: tuple[str, ...]) -> Task:
        return Task(
            training=self.plan.training,
            round=number,
            rounds=self.settings.rounds,
            paid=self.paid,
            settings=self.settings.to_toml(),
            first_day=self.plan.first_day,
            last_day=self.plan.last_day,
            enrolled=len(self.federation.clients),
            noise_multiplier=self.calibration.noise_multiplier,
            randomness=self.randomness.name,
            clients=clients,
            state=self.state,
        )

    def _pay(self, number: int) -> None:
        if self.ledger and self.run:
            self.ledger.spend(self.run, number)
        self.paid += 1

    def _open_run(self) -> None:
        if self.ledger is None:
            return
        settings = self.settings
        key: Key = {
            "training": self.plan.training,
            "sampling_rate": self.rate,
            "noise_multiplier": self.calibration.noise_multiplier,
            "settings_hash": settings.digest(),
            "first_day": date.fromisoformat(self.plan.first_day),
            "last_day": date.fromisoformat(self.plan.last_day),
        }
        found = self.ledger.find(**key)
        if self.run and (found is None or found.run != self.run):
            raise EpifedError(
                f"training '{self.plan.training}': its run {self.run} is not in the ledger with "
                "this noise, these settings and days; expected them, or another name"
            )
        name = found.run if found else self.ledger.reserve(rounds=settings.rounds, **key).name
        self.run = name
        record = self.ledger.book().runs[name]
        self.paid = record.spent
        self._recover()
        left = settings.rounds - self.done
        if left and record.spent + left > record.rounds:
            self.ledger.resume(name, left)

    def _replay(self) -> None:
        """Bring seeded randomness to where the rounds on the disk have left it."""
        settings, nobody = self.settings, torch.zeros((0, self.length), dtype=self.dtype)
        self.paid = self.done
        for _ in range(self.done):
            self.randomness.sample(
                len(self.federation.clients), settings.clients_per_round, settings.sampler
            )
            self.randomness.release(
                nobody,
                clip_norm=self.clip_norm,
                noise_multiplier=self.calibration.noise_multiplier,
                clients_per_round=settings.clients_per_round,
            )

    def _hold(self) -> None:
        """Two must never play: raises BlockingIOError while a crashed server's worker lives on."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = (self.folder / "lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _agree(self) -> None:
        path = self.folder / "plan.json"
        if not path.exists():
            write_text(path, self.plan.to_json())
            write_text(self.folder / "roster.json", json.dumps(self.federation.clients))
        elif Plan.from_json(path.read_text(encoding="utf-8")) != self.plan:
            raise EpifedError(
                f"training '{self.plan.training}': found it with other settings, days or noise; "
                "expected the same, or another name"
            )
        elif json.loads((self.folder / "roster.json").read_text()) != list(self.federation.clients):
            raise EpifedError(
                f"training '{self.plan.training}': the roster's clients have changed since its "
                "first round; expected the same N, or another training"
            )

    def _load(self) -> None:
        path = self.folder / STATE
        if not path.exists():
            return
        with np.load(path, allow_pickle=False) as stored:
            self.state = torch.from_numpy(stored["state"])
            self.done = int(stored["done"])
            self.cohort_sizes = tuple(int(size) for size in stored["cohort_sizes"])
            self.run = str(stored["run"]) or None

    def _wait(self, number: int, state: Tensor, sampled: int) -> None:
        """Keep the result of a round for the moment when it has been paid for."""

        def write(temporary: Path) -> None:
            with temporary.open("wb") as file:
                np.savez(
                    file,
                    state=state.numpy(),
                    done=number,
                    cohort_sizes=np.array((*self.cohort_sizes, sampled), dtype=np.int64),
                    run=self.run or "",
                    paid=self.paid,
                )

        write_atomic(self.folder / WAITING, write)

    def _save(self) -> None:
        """Make the result that waited the state."""
        (self.folder / WAITING).replace(self.folder / STATE)
        self._load()

    def _recover(self) -> None:
        """After a crash: take the result that was paid for, drop one that was not."""
        path = self.folder / WAITING
        if not path.exists():
            return
        with np.load(path, allow_pickle=False) as stored:
            paid_for = self.paid > int(stored["paid"])
        if paid_for:
            self._save()
        else:
            path.unlink()


def read_state(folder: Path) -> tuple[int, Tensor] | None:
    """The last round on the disk and its state, if there is one."""
    try:
        with np.load(folder / STATE, allow_pickle=False) as stored:
            return int(stored["done"]), torch.from_numpy(stored["state"])
    except OSError:
        return None


def no_windows(settings: Settings) -> Windows:
    """The windows of nobody, which tell the length of a contribution."""
    return Windows(
        np.zeros((0, 1, settings.window), dtype=np.float32),
        np.zeros((0, 1), dtype=np.float32),
        np.zeros((0, 1), dtype=np.bool_),
        np.zeros((0, 1), dtype="datetime64[D]"),
    )
