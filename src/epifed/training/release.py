"""A release file: a trained state, all releases that went into it, and their privacy cost.

Its ε is composed from every release inside it: a training that continues an earlier one holds both.
The hash covers label and state, and stands in the ledger to which the training was charged. Only a
ledger can verify a file. A file that was not verified says so.
"""

import hashlib
import io
import json
import math
import zipfile
import zlib
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from epifed.data.calendar import WEEK
from epifed.data.readers.tables import LONGEST, short
from epifed.errors import EpifedError, counted, printable, sentence_of
from epifed.files import write_atomic
from epifed.learners.base import Learner, Period, Vector, make_learner
from epifed.ledger.ledger import Ledger
from epifed.privacy.accounting import rounded_up
from epifed.privacy.plan import PrivacyPlan, Spent, price_together
from epifed.settings import Settings

_HEADER = 4096
"""Largest size in bytes of the header of the state's NumPy file."""
_DAMAGED = (
    zipfile.BadZipFile, zlib.error, EOFError, KeyError, TypeError, ValueError, RecursionError,
    NotImplementedError, RuntimeError,
)  # fmt: skip
"""Exceptions that reading a damaged or forged file can raise."""

KIND = "epifed release 2"
OLD_KIND = "epifed model 1"
ABOUT, STATE = "release.json", "state.npy"
MOST_LABEL = 2**20
"""Largest size of the label in bytes, and of everything in a file besides its state."""
MOST_NUMBERS = 2**27
"""Largest length of a state; a party that receives one uses the limit of its terms."""
MOST_MECHANISMS = 104
"""Most different mechanisms in a release, two years of weeks: pricing each takes time."""
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


@dataclass(frozen=True)
class Release:
    """The result of `epifed train` or of a federation: a state and all releases that went into it.

    Its guarantee is composed from all releases inside it. `read_release` reads one from a file and
    `write` writes one; both keep the hash of the contents.

    Parameters
    ----------
    vector : array [length]
        The packed state, 32-bit numbers.
    settings : Settings
        All settings of the newest training.
    spent : tuple of Spent
        All releases that went into the state, the newest last.
    clients : int
        N of the newest training.
    first_day, last_day : date
        The days of the newest training's data.
    randomness : {"secure", "seeded"}
        Secure noise is fit for release, seeded noise is predictable.
    ledger_run : str, optional
        The run of the ledger that paid.
    continues : str, optional
        The hash of the release that was continued.
    created, epifed : str
        When it was made, and with which version.
    unused : int
        Rounds that were charged but gave no usable result.
    sha256 : str
        The SHA-256 of everything else.

    Raises
    ------
    EpifedError
        By its methods: for a state that learned nothing, or a day before its own.

    Examples
    --------
    >>> from epifed.api import train
    >>> from epifed.simulate import SimulationSettings, simulate
    >>> panel = simulate(SimulationSettings(counties=12, communities=24, seed=1)).county_panel
    >>> days = panel.start, panel.end
    >>> release = train(panel, learner="trend", epsilon=1.0, period=days).release
    >>> release.clients, release.randomness
    (12, 'seeded')
    """

    vector: Vector
    """The packed state."""
    settings: Settings
    spent: tuple[Spent, ...]
    """All releases that went into the state, the newest last."""
    clients: int
    """The number N of clients of the newest training."""
    first_day: date
    last_day: date
    """The last day of the training data."""
    randomness: str
    """`secure`: fit for release. `seeded`: its noise is predictable."""
    ledger_run: str | None
    continues: str | None
    """The hash of the release that was continued, if any."""
    created: str
    epifed: str
    unused: int = 0
    """Rounds that were charged to the ledger but gave no usable result."""
    sha256: str = ""
    """The SHA-256 of everything else."""

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
        earlier: "Release | None" = None,
        unused: int = 0,
        created: datetime | None = None,
    ) -> "Release":
        """The release of a state that so many charged rounds of a plan made from these days.

        An earlier release is part of the state, so its privacy cost is included. If its noise was
        predictable, the new release is marked as seeded too.

        Parameters
        ----------
        learner, state, plan
            Of the training.
        paid : int
            Charged rounds.
        period : (date, date)
            First and last training day.
        randomness : {"seeded", "secure"}
            Of the noise.
        ledger_run : str or None
            The run that was charged.
        earlier : Release, optional
            The one that was continued.
        unused : int
            Charged rounds that could not be used.
        created : datetime, optional
            By default now.

        Returns
        -------
        Release
            With its hash.
        """
        before = earlier.spent if earlier else ()
        predictable = "seeded" in (randomness, earlier.randomness if earlier else randomness)
        unsealed = cls(
            vector=np.ascontiguousarray(learner.pack(state), dtype=np.float32),
            settings=learner.settings,
            spent=(*before, plan.spent(paid)),
            clients=plan.clients,
            first_day=period[0],
            last_day=period[1],
            randomness="seeded" if predictable else randomness,
            ledger_run=ledger_run,
            continues=earlier.sha256 if earlier else None,
            created=(created or datetime.now(UTC)).isoformat(timespec="seconds"),
            epifed=version("epifed"),
            unused=unused,
        )
        return replace(unsealed, sha256=unsealed.content_hash())

    @property
    def learned(self) -> bool:
        """Whether at least one round of the newest training was used."""
        return self.unused < self.spent[-1].rounds

    def refuse_unlearned(self) -> None:
        """Refuse to forecast from a release without any used round.

        Raises
        ------
        EpifedError
            If no round was used.
        """
        if not self.learned:
            raise EpifedError(
                "ε was spent and nothing learned: no round of this release could be used; "
                "expected a release of a training in which enough sites took part"
            )

    @property
    def delta(self) -> float:
        """The δ at which ε is computed."""
        return self.settings.delta

    @property
    def accountant(self) -> str:
        """The name of the accountant that computes ε."""
        return self.settings.accountant

    @cached_property
    def epsilon(self) -> float:
        """The composed ε of all releases inside, against those who cannot see who was drawn."""
        return price_together(self.spent, self.delta, self.accountant)

    @cached_property
    def epsilon_without_amplification(self) -> float:
        """The composed ε of all releases inside, against anyone who saw who was drawn.

        That can be the server. With aggregators nobody outside a client's own site saw the draw.
        """
        if self.settings.noise == "aggregators" and self.continues is None:
            return self.epsilon
        return price_together(self.spent, self.delta, self.accountant, drawn_seen=True)

    @cached_property
    def learner(self) -> Learner[Any, Any]:
        """The learner of the release's settings."""
        return make_learner(self.settings)

    def as_of(self, settings: Settings, day: date) -> Any:
        """The state from which a training with these settings, up to this day, may continue.

        Parameters
        ----------
        settings : Settings
            Of the new training.
        day : date
            Its last day.

        Returns
        -------
        state
            Advanced to the day.

        Raises
        ------
        EpifedError
            If the learners or the days do not fit.
        """
        other = make_learner(settings)
        if not other.compatible(self.learner):
            raise EpifedError(
                f"--continue: found a release of {self.learner.title()}, H = "
                f"{self.settings.window}; expected one of {other.title()}, H = {settings.window}"
            )
        return other.again(other.advance(other.unpack(self.vector), self.age_on(day)))

    def age_on(self, day: date) -> int:
        """Days from the last training day to this day, which may not lie before it.

        Parameters
        ----------
        day : date
            At least the last training day.

        Returns
        -------
        int
            Days.

        Raises
        ------
        EpifedError
            If the day lies before.
        """
        age = (day - self.last_day).days
        if self.settings.step == "week" and -WEEK < age < 0:
            return 0  # the same week, dated by another of its days
        if age < 0:
            raise EpifedError(
                f"found cases up to {day} and a release that learned up to {self.last_day}; "
                "expected cases up to that day at least"
            )
        return age

    def state_on(self, day: date) -> Any:
        """The state advanced to a day, for a forecast.

        Parameters
        ----------
        day : date
            At least the last training day.

        Returns
        -------
        state
            Advanced to the day.

        Raises
        ------
        EpifedError
            If no round was used, or the day lies before.
        """
        self.refuse_unlearned()
        return self.learner.advance(self.learner.unpack(self.vector), self.age_on(day))

    def verified_by(self, ledger: Ledger) -> bool:
        """Whether this ledger was charged for exactly this content.

        Parameters
        ----------
        ledger : Ledger
            It is only read.

        Returns
        -------
        bool
            True if a run there has the release's hash.
        """
        record = ledger.book().runs.get(self.ledger_run or "")
        return record is not None and record.model_hash == self.sha256

    def verification(self, ledger: Path | None) -> str:
        """A sentence on whether the file was verified against a ledger.

        Parameters
        ----------
        ledger : Path, optional
            A ledger, or a copy of it.

        Returns
        -------
        str
            One or two sentences.
        """
        if ledger is None:
            return "Not verified against a ledger; add --ledger."
        book = Ledger(ledger, copy=True)
        if self.verified_by(book):
            exact = f"its run {self.ledger_run} has exactly this hash."
            return f"Verified against {ledger.name}: {exact} {book.book().renewal()}".rstrip()
        return (
            f"NOT in the ledger {ledger.name}: no run there has its hash. Do not rely on its ε or "
            "its noise."
        )

    def refuse_continuing(self, ledger: Ledger) -> None:
        """Refuse to continue this release in a charged training unless this ledger covers it.

        Parameters
        ----------
        ledger : Ledger
            The one that will be charged.

        Raises
        ------
        EpifedError
            If the noise is not secret, or the ledger has no such run.
        """
        if self.randomness != "secure" or math.isinf(self.epsilon):
            raise EpifedError(
                "--continue: found a release whose noise is predictable or absent; expected a "
                "secure one, since all of it is inside the new one"
            )
        if not self.verified_by(ledger):
            raise EpifedError(
                f"--continue: found a release that is not in the ledger {ledger.path} (run "
                f"{self.ledger_run or 'none'}, hash {self.sha256[:12]}…); expected one that was "
                "charged to this ledger"
            )

    def sentence(self) -> str:
        """The label of the release: its guarantee, and whether it may be handed out.

        Returns
        -------
        str
            With ε, δ, the unit and the accountant.
        """
        if math.isinf(self.epsilon):
            return "trained without differential privacy (ε = ∞): not for release"
        parts = f", composed of the {counted(len(self.spent), 'release')} inside it"
        guarantee = (
            f"(ε = {rounded_up(self.epsilon)}, δ = {self.delta:g})-differential privacy, one of "
            f"{counted(self.clients, 'client')} added or removed, by the "
            f"{self.accountant.upper()} accountant"
            f"{parts if len(self.spent) > 1 else ''}{drawn_seen(self)}"
        )
        if self.randomness == "secure":
            return guarantee
        return f"{guarantee}, but SEEDED: its noise is predictable, not for release"

    def content_hash(self) -> str:
        """The SHA-256 of label and state, without the hash itself.

        Returns
        -------
        str
            64 hexadecimal digits.
        """
        sha = hashlib.sha256(self._about(sealed=False).encode())
        sha.update(self.vector.tobytes())
        return sha.hexdigest()

    def write(self, path: Path) -> None:
        """Write the release to a file, atomically.

        Parameters
        ----------
        path : Path
            The new file.

        Raises
        ------
        EpifedError
            If it cannot be written.
        """
        state = io.BytesIO()
        np.save(state, self.vector, allow_pickle=False)

        def fill(temporary: Path) -> None:
            with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as file:
                file.writestr(ABOUT, self._about(sealed=True))
                file.writestr(STATE, state.getvalue())

        write_atomic(path, fill)

    def _about(self, *, sealed: bool) -> str:
        """The label as JSON in canonical form; `sealed` includes the hash."""
        about = {k: v for k, v in vars(self).items() if k in type(self).__dataclass_fields__}
        del about["vector"]
        if not self.unused:  # older releases lack this field; their hash must not change
            del about["unused"]
        if not sealed:
            del about["sha256"]
        about |= {"kind": KIND, "settings": self.settings.to_toml()}
        about |= {"first_day": str(self.first_day), "last_day": str(self.last_day)}
        about["spent"] = [asdict(one) for one in self.spent]
        return json.dumps(about, indent=2, ensure_ascii=False, sort_keys=True)


def drawn_seen(release: Release) -> str:
    """The ε against anyone who saw who was drawn, for the label; empty without sampling."""
    if all(one.sampling_rate == 1 for one in release.spent):
        return ""
    if release.epsilon_without_amplification == release.epsilon:
        return " (against server and aggregators too: only a client's own site sees the draw)"
    seen = rounded_up(release.epsilon_without_amplification)
    return f" (ε = {seen} against whoever sees who was drawn)"


class _Rounds(BaseModel):
    """Rounds of one mechanism inside a release, as stored in the label."""

    model_config = ConfigDict(extra="forbid", strict=True)

    sampling_rate: float = Field(gt=0, le=1)
    noise_multiplier: float = Field(ge=0, lt=math.inf)
    rounds: int = Field(ge=1, le=10**9)


class _Label(BaseModel):
    """The label of a release file, checked because anyone may have written it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    settings: str
    spent: list[_Rounds] = Field(min_length=1, max_length=10_000)
    clients: int = Field(ge=1, le=10**9)
    first_day: str
    last_day: str
    randomness: Literal["secure", "seeded"]
    ledger_run: Annotated[str, Field(pattern=r"^[\w-]{1,64}$")] | None
    continues: Sha256 | None
    created: str = Field(max_length=40)
    epifed: str = Field(pattern=r"^[\w.+-]{1,64}$")
    sha256: Sha256
    unused: int = Field(0, ge=0, le=10**9)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        datetime.fromisoformat(self.created)
        if date.fromisoformat(self.first_day) > date.fromisoformat(self.last_day):
            raise ValueError("first_day: found a day after last_day; expected one before it")
        kinds = {(one.sampling_rate, one.noise_multiplier) for one in self.spent}
        if len(kinds) > MOST_MECHANISMS:
            raise ValueError(
                f"spent: found rounds of {len(kinds)} different noises or sampling rates; expected "
                f"at most {MOST_MECHANISMS}"
            )
        return self

    def release(self, vector: Vector) -> Release:
        """The release of this label and a state."""
        try:
            settings = Settings.from_toml(self.settings)
        except EpifedError as error:
            raise ValueError(f"settings: {error}") from None
        if any(printable(str(value)) != str(value) for value in settings.model_dump().values()):
            raise ValueError("settings: found signs that a terminal obeys; expected text")
        return Release(
            **dict(self)
            | {
                "vector": vector,
                "settings": settings,
                "spent": tuple(Spent(**dict(one)) for one in self.spent),
                "first_day": date.fromisoformat(self.first_day),
                "last_day": date.fromisoformat(self.last_day),
            }
        )


def read_release(path: Path, most_numbers: int = MOST_NUMBERS) -> Release:
    """Read a release that `Release.write` stored.

    Parameters
    ----------
    path : Path
        The file.
    most_numbers : int
        The longest state that is read, in numbers of 4 bytes.

    Returns
    -------
    Release
        The release, whose hash was checked.

    Raises
    ------
    EpifedError
        If the file cannot be read, is damaged or changed, or is of another version.

    Examples
    --------
    >>> read_release(Path("week.model"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    epifed.errors.EpifedError: week.model: cannot be read: ...
    """
    expected = "expected a release by 'epifed train' or a federation"
    most_bytes = {ABOUT: MOST_LABEL, STATE: 4 * most_numbers + _HEADER}
    try:
        with zipfile.ZipFile(path) as file:
            sizes = {part.filename: part.file_size for part in file.infolist()}
            if "model.json" in sizes:
                raise EpifedError(
                    f"{path}: found '{OLD_KIND}', of version 0.1; expected '{KIND}': train it "
                    "again with this version, since the old label does not say from which day it "
                    "is and what it continued"
                )
            for name, most in most_bytes.items():
                if sizes.get(name, 0) > most:
                    raise EpifedError(
                        f"{path}: found {sizes[name]:,} bytes of {name}; expected at most {most:,}"
                    )
            about = json.loads(_part(file, ABOUT, most_bytes[ABOUT]))
            if not isinstance(about, dict) or about.pop("kind", None) != KIND:
                raise EpifedError(f"{path}: expected '{KIND}'; it is of another version or kind")
            label = _Label(**about)
            vector = _state(_part(file, STATE, most_bytes[STATE]))
        release = label.release(vector)
    except OSError as error:
        raise EpifedError(f"{path}: cannot be read: {error.strerror}; {expected}") from None
    except ValidationError as error:
        raise EpifedError(f"{path}: {expected}; {short(sentence_of(error), LONGEST)}") from None
    except zipfile.BadZipFile:
        raise EpifedError(f"{path}: found another or a damaged file; {expected}") from None
    except _DAMAGED as error:
        raise EpifedError(f"{path}: {expected}; {short(error, LONGEST)}") from None
    found = release.content_hash()
    if found != release.sha256:
        raise EpifedError(
            f"{path}: found content with the hash {found[:12]}…; expected "
            f"{release.sha256[:12]}…: the file was changed"
        )
    return release


def _state(content: bytes) -> Vector:
    """The state vector in these bytes, checked to be finite 32-bit numbers."""
    try:
        vector: Vector = np.load(io.BytesIO(content), allow_pickle=False)
    except Exception:  # a forged header can raise any of them
        raise ValueError("found a damaged state") from None
    if not isinstance(vector, np.ndarray) or vector.dtype != np.float32 or vector.ndim != 1:
        raise ValueError("found no list of 32-bit numbers in its state")
    if not np.isfinite(vector).all():
        raise ValueError("found a state with a value that is not a finite number")
    return vector


def _part(file: zipfile.ZipFile, name: str, most: int) -> bytes:
    """A part of the archive, read to at most `most` bytes whatever its header states."""
    with file.open(name) as part:
        content = part.read(most + 1)
    if len(content) > most:
        raise ValueError(f"{name} is larger than {most:,} bytes")
    return content
