"""A release file: a trained state, how it came about, and what it cost."""

import io
import json
import math
import zipfile
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from epifed.errors import EpifedError
from epifed.files import write_atomic
from epifed.learner import Learner, Period, Vector, make_learner
from epifed.privacy.accounting import rounded_up
from epifed.privacy.plan import PrivacyPlan
from epifed.settings import Settings
from epifed.training import Training, hash_of

KIND = "epifed release 2"
OLD_KIND = "epifed model 1"


@dataclass(frozen=True)
class Release:
    """What `epifed train` or a federation hands out."""

    vector: Vector
    """The packed state."""
    settings: Settings
    epsilon: float
    delta: float
    accountant: str
    noise_multiplier: float
    clients: int
    first_day: date
    last_day: date
    """The last day that was learned from."""
    randomness: str
    """`secure`: fit for release. `seeded`: its noise can be predicted."""
    ledger_run: str | None
    sha256: str
    created: str
    epifed: str

    @classmethod
    def of(
        cls,
        learner: Learner[Any, Any],
        state: Any,
        plan: PrivacyPlan,
        *,
        paid: int,
        period: Period,
        randomness: str,
        ledger_run: str | None,
    ) -> "Release":
        """The release of a state that so many paid rounds of a plan made from these days."""
        cost, vector = plan.price(paid), learner.pack(state)
        return cls(
            vector=vector,
            settings=learner.settings,
            epsilon=cost.epsilon_spent,
            delta=cost.delta,
            accountant=cost.accountant,
            noise_multiplier=cost.noise_multiplier,
            clients=plan.clients,
            first_day=period[0],
            last_day=period[1],
            randomness=randomness,
            ledger_run=ledger_run,
            sha256=hash_of(vector),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            epifed=version("epifed"),
        )

    @classmethod
    def of_training(cls, training: Training, period: Period) -> "Release":
        """The release of a training in one process."""
        return cls.of(
            training.learner,
            training.state,
            training.plan,
            paid=len(training.cohort_sizes),
            period=period,
            randomness=training.randomness,
            ledger_run=training.ledger_run,
        )

    @cached_property
    def learner(self) -> Learner[Any, Any]:
        """The learner that made it."""
        return make_learner(self.settings)

    def as_of(self, settings: Settings, day: date) -> Any:
        """The state from which a training with these settings, up to this day, may go on."""
        other = make_learner(settings)
        if not other.compatible(self.learner):
            raise EpifedError(
                f"--continue: found a release of {self.learner.title()}, H = "
                f"{self.settings.window}; expected one of {other.title()}, H = {settings.window}, "
                "with as many numbers"
            )
        return other.advance(other.unpack(self.vector), self.age_on(day))

    def age_on(self, day: date) -> int:
        """Days from the last day learned from to another, which may not lie before it."""
        age = (day - self.last_day).days
        if age < 0:
            raise EpifedError(
                f"found cases up to {day} and a release that learned up to {self.last_day}; "
                "expected cases up to that day at least"
            )
        return age

    def state_on(self, day: date) -> Any:
        """The state as it stands on a day."""
        return self.learner.advance(self.learner.unpack(self.vector), self.age_on(day))

    def sentence(self) -> str:
        """The label of the release: what it guarantees, and whether it may be handed out."""
        if math.isinf(self.epsilon):
            return "trained without differential privacy (ε = ∞): not for release"
        guarantee = (
            f"(ε = {rounded_up(self.epsilon)}, δ = {self.delta:g})-differential privacy, one of "
            f"{self.clients} clients added or removed, by the {self.accountant.upper()} accountant"
        )
        if self.randomness == "secure":
            return guarantee
        return f"{guarantee}, but SEEDED: its noise is predictable, not for release"

    def write(self, path: Path) -> None:
        """Store the release, atomically."""
        about = {k: v for k, v in asdict(self).items() if k not in ("vector", "settings")}
        about |= {"kind": KIND, "settings": self.settings.to_toml(), "epsilon": repr(self.epsilon)}
        about |= {"first_day": str(self.first_day), "last_day": str(self.last_day)}
        state = io.BytesIO()
        np.save(state, self.vector, allow_pickle=False)

        def fill(temporary: Path) -> None:
            with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as file:
                file.writestr("release.json", json.dumps(about, indent=2, ensure_ascii=False))
                file.writestr("state.npy", state.getvalue())

        write_atomic(path, fill)


def read_release(path: Path) -> Release:
    """The release that `Release.write` stored; a damaged or changed one is refused."""
    try:
        with zipfile.ZipFile(path) as file:
            if "model.json" in file.namelist():
                raise EpifedError(
                    f"{path}: found '{OLD_KIND}', of version 0.1; expected '{KIND}': train it "
                    "again with this version, since the old label does not say from which day it "
                    "is and what it continued"
                )
            about = json.loads(file.read("release.json"))
            vector = np.load(io.BytesIO(file.read("state.npy")), allow_pickle=False)
    except OSError as error:
        raise EpifedError(f"{path}: cannot be read: {error.strerror}") from None
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        raise EpifedError(f"{path}: expected a release by 'epifed train'; {error}") from None
    if about.pop("kind", None) != KIND:
        raise EpifedError(f"{path}: expected '{KIND}'; it is of another version or kind")
    settings = Settings.from_toml(about.pop("settings"))
    about["epsilon"] = float(about["epsilon"])
    about |= {day: date.fromisoformat(about[day]) for day in ("first_day", "last_day")}
    release = Release(vector=vector.astype(np.float32), settings=settings, **about)
    found = hash_of(release.vector)
    if found != release.sha256:
        raise EpifedError(
            f"{path}: found a state with the hash {found[:12]}…; expected "
            f"{release.sha256[:12]}…: the file was changed"
        )
    return release
