"""The real learners: what they send is bounded, and one client added or removed moves S at most.

The last is the definition itself, looked at on neighbouring data sets through the deployed server,
messages and sites: the sum that the noise is added to may differ by the one client's row alone.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epifed.audit.findings import Check, Names, made
from epifed.audit.served import Answer, Post, answer_of, roster, serve, site_works, workshop
from epifed.data.panel import CasePanel
from epifed.errors import EpifedError
from epifed.federation.messages import Parts
from epifed.learners.base import Learner, Vector, make_learner
from epifed.privacy.noise import Randomness, Rows
from epifed.privacy.plan import PrivacyPlan
from epifed.registry import LEARNERS
from epifed.settings import Settings, seed_sequence
from epifed.testing import example_panel
from epifed.training.rounds import SLACK, contribution

REGIONS, DAYS = 8, 60
CLIP_NORM = 0.01
"""So small that every learner's rows are clipped: what is not shows."""
MISSING = "00004"
"""The client that is removed; its site has others."""
CLOSE = 1e-3
"""How far, over S, a row may differ that is computed in another grouping."""


def learner_settings(settings: Settings, **changes: Any) -> Iterator[tuple[str, Settings | str]]:
    """Settings for each learner that is installed, small and fast; or why there are none."""
    for name in LEARNERS.names():
        try:
            chosen = Settings.for_learner(name, REGIONS)
            small = {"epochs": 2} if "epochs" in chosen.own else {}
            common = {
                "epsilon": settings.epsilon,
                "delta": settings.delta,
                "clip_norm": CLIP_NORM,
                "clients_per_round": REGIONS,
                "rounds": min(chosen.rounds, 2),
            }
            chosen = chosen.but(**(small | common | changes))
            make_learner(chosen).start(seed_sequence(0))
        except (ImportError, EpifedError) as error:
            yield name, f"{name}: {error}"
        else:
            yield name, chosen


def audit_panel() -> CasePanel:
    """Regions of all sizes, named so that they sort."""
    panel = example_panel(REGIONS, DAYS)
    return replace(panel, regions=tuple(f"{k:05d}" for k in range(REGIONS)))


def check_learners(settings: Settings, names: Names = None) -> list[Check]:
    """All checks of the learners that can be made here, or those named."""
    checks: dict[str, Callable[[], Check]] = {
        "contributions bounded": partial(_bounded, settings),
        "contributions stand alone": partial(_alone, settings),
        "broken row of a site": partial(_spoiled_answer, settings),
    }
    for name, change in (
        ("neighbours: client removed", _without),
        ("neighbours: client with missing days", _cut_short),
        ("neighbours: client with other data", _other_data),
    ):
        checks[name] = partial(_neighbours, settings, name=name, change=change)
    return made("learners", checks, names)


def _bounded(settings: Settings) -> Check:
    """Every row, of usual and of absurd data, at the start and after a noisy step."""
    panel = audit_panel()
    odd = {
        "the usual data": panel,
        "no cases": replace(panel, counts=np.zeros_like(panel.counts)),
        "a billion cases a day": replace(panel, counts=np.full_like(panel.counts, 1e9)),
        "one day of a billion": replace(
            panel, counts=np.maximum(panel.counts, 1e9 * np.eye(*panel.counts.shape))
        ),
    }
    problem, rows_seen, skipped = "", 0, []
    for name, chosen in learner_settings(settings):
        if isinstance(chosen, str):
            skipped.append(chosen)
            continue
        learner, plan = make_learner(chosen), PrivacyPlan.of(chosen, REGIONS)
        for what, data in odd.items():
            view = learner.deployed_view(data, (data.start, data.end))
            for state in _states(learner, plan):
                rows = contribution(learner, state, view, plan)
                rows_seen += len(rows)
                problem = problem or _out_of_bounds(rows, plan.bound, f"{name}, {what}")
    return Check(
        "contributions bounded",
        not problem and rows_seen > 0,
        "every learner's clients send one finite vector of norm at most S each",
        problem or f"{rows_seen} vectors{_also(skipped)}",
    )


def _states(learner: Learner[Any, Any], plan: PrivacyPlan) -> list[Any]:
    start = learner.start(seed_sequence(0, "audit"))
    length = learner.contribute(start, learner.empty_view()).shape[1]
    rng = np.random.default_rng(seed_sequence(0, "audit", "step"))
    noise = rng.standard_normal((1, length)) * plan.noise_std(REGIONS)
    return [start, learner.step(start, noise[0].astype(np.float32), plan.noise_std(REGIONS))]


def _out_of_bounds(rows: NDArray[Any], bound: float, where: str) -> str:
    if rows.dtype != np.float32 or rows.ndim != 2:
        return f"{where}: {rows.dtype.name} of {rows.ndim} dimensions"
    if not np.isfinite(rows).all():
        return f"{where}: a value that is not finite"
    largest = float(np.linalg.norm(rows.astype(np.float64), axis=1).max(initial=0.0))
    return f"{where}: a norm of {largest / bound:.4g} S" if largest > bound * (1 + SLACK) else ""


def _alone(settings: Settings) -> Check:
    """A client's row is the same whoever else is there, and whatever the others' data are."""
    panel = audit_panel()
    fewer = panel.of(panel.regions[1:])
    louder = replace(panel, counts=np.vstack([panel.counts[:1] + 1e6, panel.counts[1:]]))
    worst, where, skipped = 0.0, "", []
    for name, chosen in learner_settings(settings):
        if isinstance(chosen, str):
            skipped.append(chosen)
            continue
        learner, plan = make_learner(chosen), PrivacyPlan.of(chosen, REGIONS)
        state = _states(learner, plan)[1]

        def rows(
            data: CasePanel,
            learner: Learner[Any, Any] = learner,
            state: Any = state,
            plan: PrivacyPlan = plan,
        ) -> Vector:
            return contribution(
                learner, state, learner.deployed_view(data, (data.start, data.end)), plan
            )

        due = rows(panel)[1:]
        for data in (fewer, louder):
            off = float(np.linalg.norm(rows(data)[-len(due) :] - due, axis=1).max()) / plan.bound
            if not off <= worst:
                worst, where = off, f" ({name})"
    return Check(
        "contributions stand alone",
        worst < CLOSE and len(skipped) < len(LEARNERS.names()),
        "a client's vector does not depend on who else takes part, nor on their data",
        f"at most {worst:.2g} S of difference{where}{_also(skipped)}",
    )


Change = Callable[[CasePanel], CasePanel]


def _without(panel: CasePanel) -> CasePanel:
    return panel.of([region for region in panel.regions if region != MISSING])


def _cut_short(panel: CasePanel) -> CasePanel:
    """The client's last days were never reported."""
    reported = np.ones(panel.counts.shape, dtype=np.bool_)
    row = panel.regions.index(MISSING)
    reported[row, DAYS // 2 :] = False
    counts = np.where(reported, panel.counts, 0.0)
    return replace(panel, counts=counts, reported=reported)


def _other_data(panel: CasePanel) -> CasePanel:
    counts = panel.counts.copy()
    counts[panel.regions.index(MISSING)] = 1e6
    return replace(panel, counts=counts)


@dataclass
class Listening:
    """Randomness that keeps a copy of the rows that noise is about to be added to."""

    randomness: Randomness
    name: str
    rows: list[Rows] = field(default_factory=list)
    cohorts: list[NDArray[np.int64]] = field(default_factory=list)
    releases: list[Rows] = field(default_factory=list)

    @classmethod
    def to(cls, randomness: Randomness) -> "Listening":
        """To this one."""
        return cls(randomness, randomness.name)

    def sample(self, plan: PrivacyPlan) -> NDArray[np.int64]:
        """As it was, noted."""
        self.cohorts.append(self.randomness.sample(plan))
        return self.cohorts[-1]

    def release(self, updates: Rows, plan: PrivacyPlan) -> Rows:
        """As it was, noted."""
        self.rows.append(updates.copy())
        self.releases.append(self.randomness.release(updates, plan))
        return self.releases[-1]


def first_round(
    folder: Path,
    settings: Settings,
    panel: CasePanel,
    whole: CasePanel,
    spoil: Callable[[str, Answer], Answer] = lambda _, answer: answer,
) -> tuple[dict[str, Vector], Post, list[dict[str, Any]]]:
    """The rows by client that one round of a federation with these data adds up."""
    federation = roster(whole.regions, 2)
    works = site_works(folder, federation, panel)
    post = Post({name: spoil(name, answer_of(work)) for name, work in works.items()})
    training = serve(folder, federation, settings, whole)
    listening = Listening.to(training.rounds.randomness)
    training.rounds = replace(training.rounds, randomness=listening)
    accepted: dict[str, Vector] = {}
    lines: list[dict[str, Any]] = []

    def ask(*arguments: Any) -> Any:
        answers = post(*arguments)
        accepted.update(answers.vectors)
        return answers

    training.play(ask, lines.append)
    summed = listening.rows[0].sum(axis=0, dtype=np.float64)
    told = np.sum([row.astype(np.float64) for row in accepted.values()], axis=0)
    if not np.allclose(summed, told, atol=1e-6):
        accepted["what was summed beside them"] = (summed - told).astype(np.float32)
    return accepted, post, lines


def _neighbours(settings: Settings, *, name: str, change: Change) -> Check:
    """The sum of a federation's round with and without one client of a site that has more."""
    whole = audit_panel()
    problem, worst, skipped = "", 0.0, []
    for learner, chosen in learner_settings(settings):
        if isinstance(chosen, str):
            skipped.append(chosen)
            continue
        with workshop() as folder:
            before, _, _ = first_round(folder / "with", chosen, whole, whole)
            after, _, _ = first_round(folder / "without", chosen, change(whole), whole)
        own, others = _moved(before, after)
        worst = max(worst, own)
        if others > CLOSE:
            problem = problem or f"{learner}: the others' rows move by {others:.3g} S"
    bound = 2.0 if change is _other_data else 1.0
    return Check(
        name,
        not problem and 0 < worst <= bound * (1 + CLOSE),
        f"one client's change moves the sum by its own row, at most {bound:g} S, and no other row "
        "of its site",
        problem or f"the sum moves by at most {worst:.3f} S{_also(skipped)}",
    )


def _moved(before: dict[str, Vector], after: dict[str, Vector]) -> tuple[float, float]:
    """By how much the changed client's row moved, and the most that another did, in S."""
    length = len(next(iter((before | after).values())))
    zero = np.zeros(length, dtype=np.float32)
    moved = {
        client: float(np.linalg.norm(before.get(client, zero) - after.get(client, zero)))
        / CLIP_NORM
        for client in before.keys() | after.keys()
    }
    return moved.pop(MISSING, 0.0), max(moved.values(), default=0.0)


def _spoiled_answer(settings: Settings) -> Check:
    """One row of a site's answer is broken on its way: the site's other rows count."""
    whole = audit_panel()
    chosen = next(c for _, c in learner_settings(settings) if not isinstance(c, str))
    site = roster(whole.regions, 2).site("site-1")
    place = site.clients.index(MISSING)
    problem = ""
    for what, value in (("NaN", np.nan), ("inf", np.inf), ("100 S", 100 * CLIP_NORM)):

        def spoil(name: str, answer: Answer, value: float = value) -> Answer:
            def spoiled(parts: Parts) -> Parts:
                found = answer(parts)
                about = json.loads(found["about"])
                rows = np.frombuffer(found["array"], dtype=np.float32).copy()
                rows = rows.reshape(about["shape"])
                if name == site.name:
                    rows[place] = value
                return found | {"array": rows.tobytes()}

            return spoiled

        with workshop() as folder:
            before, _, _ = first_round(folder / "good", chosen, whole, whole)
            after, _, _ = first_round(folder / "bad", chosen, whole, whole, spoil)
        own, others = _moved(before, after)
        if not (own <= 1 + CLOSE and others <= CLOSE):
            problem = problem or f"{what}: its row moves by {own:.3g} S, others by {others:.3g} S"
    return Check(
        "broken row of a site",
        not problem,
        "a client's row that is not finite or too long counts as zero, its site's others count",
        problem or "NaN, inf and 100 S in one row move no other",
    )


def _also(skipped: list[str]) -> str:
    return f"; not made here: {'; '.join(skipped)}" if skipped else ""
