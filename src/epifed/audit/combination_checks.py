"""Every deployable combination: learner × step × model × q × accountant × transport.

The combinations come from the registries, so every installed learner is audited. Each is a
secure training of the real learner, at its real length and with its usual S. It runs over a
deployed transport: in one process, a federation with a trusted server, or with aggregators.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from typing import Any, Literal, get_args
from unittest import mock

import numpy as np

from epifed.audit.bench import (
    SERVED_SITES,
    Parties,
    SitesPost,
    answer_of,
    plenty,
    roster,
    serve,
    site_works,
    workshop,
)
from epifed.audit.price_checks import (
    price_range,
    prices_sampling,
    printed_epsilons,
    remembered_prices,
)
from epifed.audit.statistics import SURE, Check, Floats, Names, deviations, least_deficit, made
from epifed.data.calendar import Step
from epifed.data.panel import CasePanel
from epifed.errors import EpifedError
from epifed.learners.base import Vector, make_learner
from epifed.privacy.noise import STEPS
from epifed.registry import ACCOUNTANTS, LEARNERS, MODELS
from epifed.settings import Settings, of_training, seed_sequence
from epifed.testing import example_panel
from epifed.training import loop
from epifed.training.public_inputs import ReleasableData
from epifed.training.release import Release
from epifed.training.rounds import SLACK, Rounds, vector_length

Transport = Literal["in process", "federation", "aggregators"]
TRANSPORTS: tuple[Transport, ...] = get_args(Transport)
REGIONS, DAYS, WEEKS = 8, 60, 40
MOST_ROUNDS = 2
"""Most rounds of a combination's training; the bench's simulated clients cover long trainings."""
VALUES = 600
"""Noise values to draw of a short vector's plan, for enough power."""
BLOCK = 512
"""Coordinates whose noise is tested together."""


@lru_cache(maxsize=2)
def panel_of(step: Step) -> CasePanel:
    """A panel of regions of all sizes, named so that they sort, by days or by weeks."""
    panel = example_panel(REGIONS, DAYS if step == "day" else 7 * WEEKS)
    panel = replace(panel, regions=tuple(f"{k:05d}" for k in range(REGIONS)))
    return panel if step == "day" else panel.weekly()


@dataclass(frozen=True)
class Variant:
    """A learner with a step and a model, with its preset; or the reason why it cannot run here."""

    name: str
    settings: Settings | None
    length: int = 0
    reason: str = ""


def variants(**changes: Any) -> list[Variant]:
    """All variants that the registries have; networks train for one epoch."""
    found = []
    for learner in LEARNERS.names():
        for step in get_args(Step):
            given: dict[str, Any] = {"learner": learner, "step": step}
            try:
                own = Settings.resolve(REGIONS, given).own
            except (EpifedError, ImportError) as error:
                found.append(Variant(f"{learner}, {step}s", None, reason=str(error)))
                continue
            given |= {"epochs": 1} if "epochs" in own else {}
            for model in MODELS.names() if "model" in own else [""]:
                name = f"{learner}{' ' if model else ''}{model}, {step}s"
                found.append(_variant(name, given | ({"model": model} if model else {}), changes))
    return found


def _variant(name: str, given: dict[str, Any], changes: dict[str, Any]) -> Variant:
    try:
        settings = Settings.resolve(REGIONS, given, changes)
        learner = make_learner(settings)
        start = learner.start(seed_sequence(0))
        return Variant(name, settings, vector_length(learner, start))
    except (EpifedError, ImportError) as error:
        return Variant(name, None, reason=str(error))


def longest() -> int:
    """The length of the longest contribution of any installed learner."""
    return max(variant.length for variant in variants())


@dataclass(frozen=True)
class Combination:
    """A variant with the way in which it is deployed."""

    variant: str
    settings: Settings
    transport: Transport

    def __str__(self) -> str:
        """A description for tables and findings."""
        s = self.settings
        return (
            f"{self.variant}, q = {s.clients_per_round}/{REGIONS}, {s.rounds} rounds, "
            f"{s.accountant}, {self.transport}"
        )


def combinations(settings: Settings, one_in: int = 1) -> tuple[list[Combination], list[str]]:
    """All combinations, or one in so many with all properties among them; and those left out."""
    found, left_out = [], []
    common = {"epsilon": settings.epsilon, "delta": settings.delta}
    sampled = [name for name in ACCOUNTANTS.names() if prices_sampling(name)]
    cohorts = dict.fromkeys(sampled, (REGIONS, REGIONS // 2))
    others = {name: (REGIONS,) for name in ACCOUNTANTS.names() if name not in sampled}
    for accountants in (cohorts, others):
        place = 0
        for variant in variants(**common):
            if variant.settings is None:
                left_out.append(f"{variant.name}: {variant.reason}")
                continue
            sizes = sorted({size for chosen in accountants.values() for size in chosen})
            for transport, cohort, name in product(TRANSPORTS, sizes[::-1], accountants):
                place += 1
                if (place + place // 12) % one_in:
                    continue
                chosen = variant.settings.but(
                    clients_per_round=cohort,
                    accountant=name,
                    noise="aggregators" if transport == "aggregators" else "server",
                )
                chosen = _with_rounds(chosen, 1 if (place // 2) % 2 else MOST_ROUNDS)
                found.append(Combination(variant.name, chosen, transport))
    return found, list(dict.fromkeys(left_out))


def _with_rounds(settings: Settings, rounds: int) -> Settings:
    """The settings with this number of rounds, or unchanged if the learner does not allow it."""
    try:
        chosen = settings.but(rounds=rounds)
        make_learner(chosen)
    except EpifedError:
        return settings
    return chosen


@dataclass
class Seen:
    """What a combination's training did, as seen by an auditor who has all keys."""

    rows: list[Vector] = field(default_factory=list)
    """The rows that each round summed, clipped by the clients."""
    noise: list[Floats] = field(default_factory=list)
    """For each round, the release minus the clipped rows, in units of S / m."""
    core: Rounds[Any] | None = None
    lines: list[dict[str, Any]] = field(default_factory=list)
    prices: list[tuple[str, float, Any]] = field(default_factory=list)
    """Who reports it, the ε, and its terms: whether the draw is seen, after how many rounds."""
    release: Release | None = None
    booked: dict[str, tuple[float, float, int]] = field(default_factory=dict)
    """By party: q, c and the number of rounds in its ledger."""
    together: int = 0
    """The most clients whose vectors were computed in one stack."""
    state: Vector | None = None
    """The state after the last round, packed."""
    foreign: str = ""
    """Which state did not follow from the first one and the releases alone."""


class _Stepping:
    """A learner that records every release it gets."""

    def __init__(self, learner: Any, releases: list[Vector]) -> None:
        self._learner, self._releases = learner, releases

    def step(self, state: Any, release: Vector, noise_std: float) -> Any:
        self._releases.append(release.copy())
        return self._learner.step(state, release, noise_std)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._learner, name)


@contextmanager
def watched_rounds(seen: Seen) -> Iterator[None]:
    """Record what every round closed in this context sums and releases."""
    honest = Rounds.close

    def close(self: Rounds[Any], state: Any, updates: Vector) -> Any:
        releases: list[Vector] = []
        watched: Any = _Stepping(self.learner, releases)
        after = honest(replace(self, learner=watched), state, updates)
        plan = self.plan
        unit = plan.bound / plan.clients_per_round
        due = clipped(updates, plan.bound).sum(axis=0) / plan.clients_per_round
        seen.core = self
        _follow(seen, self, (state, after), updates, releases)
        seen.rows.append(updates.copy())
        seen.noise += [(release.astype(np.float64) - due) / unit for release in releases]
        return after

    with mock.patch.object(Rounds, "close", close):
        yield


def _follow(
    seen: Seen, core: Rounds[Any], states: tuple[Any, Any], updates: Vector, releases: list[Vector]
) -> None:
    """Check that a round's states follow from the settings and the noisy releases alone."""
    learner = make_learner(core.learner.settings)
    before, after = map(learner.pack, states)
    public = seen.state
    if public is None:
        public = learner.pack(learner.start(of_training(learner.settings.seed)[0]))
    due = learner.step(states[0], releases[-1], core.plan.noise_std(len(updates)))
    if not np.array_equal(before, public) or not np.array_equal(after, learner.pack(due)):
        seen.foreign = f"the state of round {len(seen.rows) + 1} has more in it than releases"
    seen.state = after


def clipped(rows: Vector, bound: float) -> Floats:
    """The rows clipped to norm S, by a computation independent of the package."""
    exact = rows.astype(np.float64)
    norms = np.sqrt((exact * exact).sum(axis=1, keepdims=True))
    shorter: Floats = exact * np.minimum(1.0, bound / np.maximum(norms, 1e-300))
    return shorter


@contextmanager
def watched_stacks(seen: Seen, settings: Settings) -> Iterator[None]:
    """Record how many clients are computed together, since the last bits depend on it."""
    kind = type(make_learner(settings))
    honest = kind.contribute

    def contribute(self: Any, state: Any, view: Any) -> Vector:
        seen.together = max(seen.together, len(view))
        rows: Vector = honest(self, state, view)
        return rows

    with mock.patch.object(kind, "contribute", contribute):
        yield


def play(combination: Combination, panel: CasePanel | None = None) -> Seen:
    """Run a secure training of a combination, charged to a ledger."""
    seen = Seen()
    chosen = panel or panel_of(combination.settings.step)
    watched = watched_rounds(seen), watched_stacks(seen, combination.settings)
    with workshop() as folder, watched[0], watched[1]:
        _PLAYERS[combination.transport](folder, combination.settings, chosen, seen)
    return seen


def _in_process(folder: Any, settings: Settings, panel: CasePanel, seen: Seen) -> None:
    whole = panel_of(settings.step)
    data = ReleasableData.of(panel, whole.start, whole.end, [*whole.regions], settings.step)
    ledger = plenty(folder, settings)
    done = loop.train_releasable(data, settings, ledger)
    seen.release = done.release
    seen.prices.append(("the training", done.calibration.epsilon_spent, (False,)))
    (record,) = ledger.book().runs.values()
    seen.booked["the ledger"] = (record.sampling_rate, record.noise_multiplier, record.spent)


def _federation(folder: Any, settings: Settings, panel: CasePanel, seen: Seen) -> None:
    whole = panel_of(settings.step)
    federation = roster(whole.regions, SERVED_SITES)
    works = site_works(folder, federation, panel)
    post = SitesPost({name: answer_of(work) for name, work in works.items()})
    ledger = plenty(folder, settings)
    served = serve(folder, federation, settings, whole, ledger)
    while not served.finished:
        served.play(post, seen.lines.append)
        number = served.done
        seen.prices.append(
            (f"the report of round {number}", seen.lines[-1]["epsilon"], (False, number))
        )
    seen.prices.append(("the status", served.epsilon, (False,)))
    seen.prices.append(("the status", served.epsilon_without_amplification, (True,)))
    seen.release = served.finish()
    _note_books(seen, folder, {name: work.kit for name, work in works.items()})


def _aggregators(folder: Any, settings: Settings, panel: CasePanel, seen: Seen) -> None:
    whole = panel_of(settings.step)
    sites = {f"site-{i + 1}": whole.regions[i::SERVED_SITES] for i in range(SERVED_SITES)}
    parties = Parties.make(folder, panel, sites, settings.aggregators or 2, {})
    relayed = parties.training(settings)
    seen.core = relayed.rounds
    while not relayed.finished:
        relayed.play(parties, seen.lines.append)
    seen.prices.append(("the status", relayed.epsilon, (False,)))
    seen.prices.append(("the status", relayed.epsilon_without_amplification, (True,)))
    seen.release = relayed.finish()
    for each in parties.seen:
        for name in parties.names:
            shares = np.zeros(each.terms.length, dtype=np.uint64)
            for opened in parties.opened(each, name).values():
                shares += opened
            answer = np.frombuffer(each.answers[name]["array"], dtype="<u8")
            seen.noise.append((answer - shares).view(np.int64) / STEPS)
    _note_books(seen, folder, {name: parties.kit(name) for name in (*sites, *parties.names)})


def _note_books(seen: Seen, folder: Any, kits: dict[str, Any]) -> None:
    from epifed.ledger.ledger import Ledger  # noqa: PLC0415

    paths = {"the server": folder / "budget.db"}
    for name, kit in kits.items():
        (paths[name],) = kit.glob("*.ledger")
    for name, path in paths.items():
        for record in Ledger(path).book().runs.values():
            seen.booked[name] = (record.sampling_rate, record.noise_multiplier, record.spent)


_PLAYERS: dict[Transport, Callable[[Any, Settings, CasePanel, Seen], None]] = {
    "in process": _in_process,
    "federation": _federation,
    "aggregators": _aggregators,
}


@dataclass
class Covered:
    """All combinations, each played once, and the faults found in them by check."""

    settings: Settings
    one_in: int = 1
    made: dict[str, Seen] = field(default_factory=dict)
    wrong: dict[str, list[str]] = field(default_factory=dict)
    short: list[Floats] = field(default_factory=list)
    """Noise of vectors that are too short to test alone; they are tested together."""
    least: float = 0.0
    left_out: list[str] = field(default_factory=list)
    tried: list[Combination] = field(default_factory=list)

    def run(self) -> "Covered":
        """Play all combinations unless that was done before."""
        if self.made:
            return self
        chosen, self.left_out = combinations(self.settings, self.one_in)
        self.tried = chosen
        with remembered_prices():
            self._run(chosen)
        if self.short:
            together = np.concatenate(self.short)
            found = deviations(np.square(together).sum(keepdims=True), together.size, "noise")
            if not found.kept:
                self.wrong.setdefault("noise", []).append(
                    f"all short vectors together: {found.worst:.3f} of the noise that is priced"
                )
        return self

    def _run(self, chosen: list[Combination]) -> None:
        for combination in chosen:
            try:
                seen = play(combination)
            except Exception as error:
                said = " ".join(str(error).split())
                self._note("runs", combination, f"{type(error).__name__}: {said}")
                self.made[str(combination)] = Seen()
                continue
            self.made[str(combination)] = seen
            self._look(combination, seen)

    def table(self) -> dict[str, str]:
        """What was covered, by property."""
        if not self.tried:
            return {}
        possible = len(combinations(self.settings)[0])
        return {
            "combinations": f"{len(self.tried)} of the {possible} that the registries make",
            "learners and steps": _counted(c.variant for c in self.tried),
            "transports": _counted(c.transport for c in self.tried),
            "accountants": _counted(c.settings.accountant for c in self.tried),
            "q": _counted(f"{c.settings.clients_per_round}/{REGIONS}" for c in self.tried),
            "rounds": _counted(str(c.settings.rounds) for c in self.tried),
        }

    def _note(self, check: str, combination: Combination, problem: str) -> None:
        self.wrong.setdefault(check, []).append(f"{combination}: {problem}")

    def _look(self, combination: Combination, seen: Seen) -> None:
        s, release = combination.settings, seen.release
        assert release is not None and seen.core is not None
        (spent,) = release.spent
        plan = seen.core.plan
        if len(seen.noise) != s.rounds * (s.aggregators or 1):
            self._note("noise", combination, f"{len(seen.noise)} releases in {s.rounds} rounds")
        noise = [*seen.noise, *_more(seen.core, combination)]
        self._look_at_noise(combination, noise, spent.noise_multiplier)
        if seen.state is not None and not np.array_equal(release.vector, seen.state):
            seen.foreign = seen.foreign or "the file has another state than the last round's"
        if seen.foreign:
            self._note("state", combination, seen.foreign)
        norms = [np.linalg.norm(rows.astype(np.float64), axis=1) for rows in seen.rows]
        largest = max((float(norm.max(initial=0.0)) for norm in norms), default=0.0)
        if largest > s.clip_norm * (1 + SLACK):
            self._note("bound", combination, f"a vector of {largest / s.clip_norm:.4g} S is summed")
        if seen.together != 1:
            self._note("alone", combination, f"{seen.together} clients are computed in one stack")
        rate = s.clients_per_round / REGIONS
        noise_multiplier = spent.noise_multiplier

        def due(seeing: bool, number: int = s.rounds) -> tuple[float, float]:
            counts = seeing and combination.transport != "aggregators"
            part = (1.0 if counts else rate, noise_multiplier, number)
            return price_range([part], s.delta, s.accountant)

        if (spent.sampling_rate, spent.rounds) != (rate, s.rounds):
            self._note("price", combination, f"the file has q and rounds {spent}")
        if due(False)[0] > s.epsilon * 1.001:
            self._note("price", combination, f"costs ε = {due(False)[0]:.4g}, not {s.epsilon:g}")
        sentence = printed_epsilons(release.sentence())
        prices = [
            *seen.prices,
            ("the file", release.epsilon, due(False)),
            (
                "the file against who sees the draw",
                release.epsilon_without_amplification,
                due(True),
            ),
            ("the plan", plan.price().epsilon_spent, due(False)),
            ("the sentence against who sees the draw", max(sentence), due(True)),
            ("the sentence", min(sentence), due(False)),
        ]
        for who, epsilon, asked in prices:
            low, high = due(*asked) if isinstance(asked[0], bool) else asked
            if not low <= epsilon <= high + 1e-4:
                self._note("price", combination, f"{who} gives ε = {epsilon:.5g}, {low:.5g} is due")
        for who, booked in seen.booked.items():
            if booked != (rate, spent.noise_multiplier, s.rounds):
                self._note("ledger", combination, f"the ledger of {who} has {booked}")

    def _look_at_noise(
        self, combination: Combination, noise: list[Floats], multiplier: float
    ) -> None:
        values = np.stack(noise) / multiplier
        if values.size < VALUES // 2:
            self.short.append(values.ravel())
            return
        whole = deviations(np.square(values).sum(keepdims=True), values.size, "noise")
        self.least = max(self.least, least_deficit(values.size))
        if not whole.kept:
            self._note("noise", combination, f"{whole.worst:.3f} of the noise that is priced")
        blocks = np.array_split(np.arange(values.shape[1]), max(1, values.shape[1] // BLOCK))
        for block in blocks:
            part = deviations(
                np.square(values[:, block]).sum(keepdims=True), values[:, block].size, "noise"
            )
            if not part.kept:
                where = f"coordinates {block[0]} to {block[-1]}"
                self._note("noise", combination, f"{part.worst:.3f} of the noise in {where}")
                break
        still = np.abs(values).max(axis=0) < 1e-9
        if still.any():
            self._note("noise", combination, f"no noise in {int(still.sum())} coordinates")


def _counted(values: Iterable[str]) -> str:
    """Each value with how often it was tried."""
    return ", ".join(f"{value} ({times})" for value, times in Counter(values).items())


def _more(core: Rounds[Any], combination: Combination) -> list[Floats]:
    """Further noise of a short vector, from the training's own randomness and plan."""
    if combination.transport == "aggregators" or core.length >= VALUES:
        return []
    plan, times = core.plan, math.ceil(VALUES / core.length)
    unit = plan.bound / plan.clients_per_round
    nobody = np.zeros((0, core.length), dtype=np.float32)
    return [core.randomness.release(nobody, plan).astype(np.float64) / unit for _ in range(times)]


ONE_IN = {"all": 1, "quick": 8}
"""One in so many combinations is tried, by the audit's scope."""


def check_combinations(
    settings: Settings, scope: str = "quick", names: Names = None
) -> tuple[list[Check], Covered]:
    """All checks of the combinations, or those named, and what was covered."""
    covered = Covered(settings, ONE_IN[scope])
    expected = {
        "runs": "every combination of the registries trains",
        "noise": "every combination's release has the noise that its label prices, in every block",
        "state": "every state follows from the settings and the noisy releases, and is in the file",
        "bound": "every combination sums vectors of norm at most S",
        "alone": "every combination computes each client alone, so that no bit depends on others",
        "price": "every ε that a combination reports is that of its events, both prices",
        "ledger": "every party's ledger has the q, the noise and the rounds that were played",
    }

    def checking(key: str) -> Check:
        wrong = covered.run().wrong.get(key, [])
        number = len(covered.made)
        shown = f"so it is in {number} combinations"
        if covered.left_out:
            shown += f"; not possible: {'; '.join(covered.left_out)}"
        return Check(
            f"combinations: {key}",
            not wrong and number > 0,
            expected[key],
            f"{len(wrong)} of {number}: {wrong[0]}" if wrong else shown,
            power=f"noise {covered.least:.0%} low in any one combination (of short vectors with "
            f"aggregators: in all together) is found with {SURE:.0%} probability"
            if key == "noise"
            else "",
        )

    checks = {f"combinations: {key}": (lambda key=key: checking(key)) for key in expected}
    return made("combinations", checks, names), covered
