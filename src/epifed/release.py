"""A trained model as one file: the weights, how they came about, and what they cost."""

import io
import json
import math
import zipfile
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from epifed.errors import EpifedError
from epifed.files import write_atomic
from epifed.learners import make_learner
from epifed.settings import Settings
from epifed.training import Training, hash_of
from epifed.windows import last_learned

KIND = "epifed model 1"


@dataclass(frozen=True)
class Model:
    """What `epifed train` leaves behind."""

    weights: NDArray[np.float32]
    settings: Settings
    epsilon: float
    delta: float
    accountant: str
    noise_multiplier: float
    clients: int
    period: str
    randomness: str
    """`secure`: fit for release. `seeded`: a simulation, its noise can be predicted."""
    ledger_run: str | None
    sha256: str
    created: str
    epifed: str

    @classmethod
    def of(cls, training: Training, clients: int, period: str) -> "Model":
        """The model of a finished training."""
        return cls(
            weights=training.state.numpy(),
            settings=training.settings,
            epsilon=training.calibration.epsilon_spent,
            delta=training.calibration.delta,
            accountant=training.calibration.accountant,
            noise_multiplier=training.calibration.noise_multiplier,
            clients=clients,
            period=period,
            randomness=training.randomness,
            ledger_run=training.ledger_run,
            sha256=training.model_hash,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            epifed=version("epifed"),
        )

    def as_of(self, settings: Settings, day: date) -> Tensor:
        """The state from which a training with these settings, up to this day, may go on."""
        found, expected = (
            f"{s.learner}, {s.model}, H = {s.window}" for s in (self.settings, settings)
        )
        if found != expected:
            raise EpifedError(f"--continue: found a model of {found}; expected one of {expected}")
        return make_learner(settings).advance(torch.from_numpy(self.weights), self.age_on(day))

    def age_on(self, day: date) -> int:
        """Days from the last day learned from to another, which may not lie before it."""
        age = (day - self.last_day).days
        if age < 0:
            raise EpifedError(
                f"found cases up to {day} and a model that learned up to {self.last_day}; expected "
                "cases up to that day at least"
            )
        return age

    def predict(self, inputs: NDArray[np.float32]) -> NDArray[np.float64]:
        """Forecasts [...] for windows [..., H] of case counts."""
        learner = make_learner(self.settings)
        prediction = learner.predict(torch.from_numpy(self.weights), torch.from_numpy(inputs))
        return prediction.double().numpy()

    @property
    def last_day(self) -> date:
        """The last day that the model learned from."""
        first, last = (date.fromisoformat(day) for day in self.period.split(" … "))
        return last_learned(self.settings, first, last)

    def sentence(self) -> str:
        """The label of the model: what it guarantees, and whether it may be released."""
        if math.isinf(self.epsilon):
            return "trained without differential privacy (ε = ∞): not for release"
        guarantee = (
            f"(ε = {self.epsilon:.4g}, δ = {self.delta:g})-differential privacy, one of "
            f"{self.clients} clients added or removed, by the {self.accountant.upper()} accountant"
        )
        if self.randomness == "secure":
            return guarantee
        return f"{guarantee}, but SIMULATED: its noise is seeded and predictable, not for release"

    def write(self, path: Path) -> None:
        """Store the model, atomically."""
        about = {k: v for k, v in asdict(self).items() if k not in ("weights", "settings")}
        about |= {"kind": KIND, "settings": self.settings.to_toml(), "epsilon": repr(self.epsilon)}
        weights = io.BytesIO()
        np.save(weights, self.weights, allow_pickle=False)

        def fill(temporary: Path) -> None:
            with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as file:
                file.writestr("model.json", json.dumps(about, indent=2, ensure_ascii=False))
                file.writestr("weights.npy", weights.getvalue())

        write_atomic(path, fill)


def read_model(path: Path) -> Model:
    """The model that `Model.write` stored; a damaged or changed one is refused."""
    try:
        with zipfile.ZipFile(path) as file:
            about = json.loads(file.read("model.json"))
            weights = np.load(io.BytesIO(file.read("weights.npy")), allow_pickle=False)
    except OSError as error:
        raise EpifedError(f"{path}: cannot be read: {error.strerror}") from None
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        raise EpifedError(f"{path}: expected a model by 'epifed train'; {error}") from None
    if about.pop("kind", None) != KIND:
        raise EpifedError(f"{path}: expected '{KIND}'; it is of another version or kind")
    settings = Settings.from_toml(about.pop("settings"))
    about["epsilon"] = float(about["epsilon"])
    model = Model(weights=weights.astype(np.float32), settings=settings, **about)
    found = hash_of(torch.from_numpy(model.weights))
    if found != model.sha256:
        raise EpifedError(
            f"{path}: found weights with the hash {found[:12]}…; expected {model.sha256[:12]}…: "
            "the file was changed"
        )
    return model
