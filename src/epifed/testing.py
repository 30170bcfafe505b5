"""A conformance check for learners, of this package or of another: `check_learner`.

>>> from epifed.testing import check_learner
>>> "advance" in check_learner("trend")
True
"""

from dataclasses import fields, is_dataclass, replace
from datetime import date
from typing import Any

import numpy as np

from epifed.data.calendar import DAYS_OF, WEEK
from epifed.data.panel import CasePanel
from epifed.learners.base import Learner, Vector
from epifed.registry import LEARNERS
from epifed.settings import Settings

REGIONS, DAYS = 7, 90
CLOSE = 1e-4
"""Largest relative difference between numbers that a learner computes in other groupings."""


class LearnerRuleError(AssertionError):
    """Raised for a rule that a learner breaks; the message is one sentence."""


def example_panel(regions: int = REGIONS, days: int = DAYS, seed: int = 0) -> CasePanel:
    """A panel with waves of cases in regions of all sizes, one of them without any case."""
    rng = np.random.default_rng(seed)
    level = np.geomspace(1, 300, regions)[:, None]
    wave = 1 + 0.8 * np.sin(np.arange(days) / 15 + rng.uniform(0, 6, size=(regions, 1)))
    counts = rng.poisson(level * wave).astype(np.float64)
    counts[0] = 0.0
    return CasePanel(
        counts=counts,
        regions=tuple(f"{k:02d}" for k in range(regions)),
        start=date(2021, 1, 4),
        source="the example of epifed.testing",
    )


def check_learner(learner: str | type[Learner[Any, Any]], **changes: Any) -> dict[str, str]:
    """Check that a learner satisfies the rules of the learner interface.

    Its settings must be complete. It sends one finite vector of a fixed length for each client,
    the same in any cohort and on repetition, and independent of days after the period. Its state
    packs, unpacks, ages and joins. It forecasts finite counts of at least zero.

    Parameters
    ----------
    learner : str or type
        The name of an installed learner, or a class.
    **changes
        Settings other than its preset, such as `step="week"`.

    Returns
    -------
    dict
        The learner's optional abilities, each with a description.

    Raises
    ------
    LearnerRuleError
        At the first rule that it breaks.
    """
    kind = LEARNERS.load(learner) if isinstance(learner, str) else learner
    name = getattr(kind, "name", None)
    _need(isinstance(name, str), "name", repr(name), "the learner's name, a text")
    with LEARNERS.using(kind.name, kind):
        settings = Settings.resolve(REGIONS, {"learner": kind.name}, changes)
        checked = kind.at(settings.step)(settings)
        _check(checked)
    return {name: checked.ABILITIES[name] for name in checked.abilities()}


def _check(learner: Learner[Any, Any]) -> None:
    panel = example_panel()
    if learner.settings.step == "week":
        panel = example_panel(days=DAYS * WEEK).weekly()
    period = (panel.start, panel.day(panel.index(panel.end) - learner.settings.horizon))
    view = learner.view(panel, period)
    _need(len(view) == REGIONS, "view", f"{len(view)} rows", f"{REGIONS}, one for each region")
    state = learner.start(np.random.SeedSequence(1))
    rows = _contributes(learner, state, view)
    _sees_nothing_later(learner, state, panel, period, rows)
    _survives_odd_data(learner, state, panel, period)
    stepped = _steps(learner, state, rows)
    _ages(learner, stepped)
    _forecasts(learner, stepped, panel)


def _contributes(learner: Learner[Any, Any], state: Any, view: Any) -> Vector:
    before = learner.pack(state).copy()
    rows = learner.contribute(state, view)
    rule = "contribute"
    _need(
        rows.dtype == np.float32 and rows.ndim == 2 and len(rows) == len(view),
        rule,
        f"{rows.dtype.name} of shape {rows.shape}",
        f"float32 of shape ({len(view)}, length)",
    )
    _need(bool(np.isfinite(rows).all()), rule, "a value that is not finite", "finite numbers")
    _same(rule, rows, learner.contribute(state, view), "asked twice")
    _same(rule, before, learner.pack(state), "the state, after it was read")
    nobody = learner.contribute(state, learner.empty_view())
    _need(
        nobody.shape == (0, rows.shape[1]),
        rule,
        f"shape {nobody.shape} of nobody's view",
        f"(0, {rows.shape[1]})",
    )
    some = np.array([4, 1], dtype=np.int64)
    _same(rule, rows[some], learner.contribute(state, view.of(some)), "in another cohort")
    return rows


def _sees_nothing_later(
    learner: Learner[Any, Any],
    state: Any,
    panel: CasePanel,
    period: tuple[date, date],
    rows: Vector,
) -> None:
    later = panel.counts.copy()
    later[:, panel.index(period[1]) + 1 :] += 1000.0
    changed = replace(panel, counts=later)
    if learner.settings.smoothing != "centered":
        seen = learner.contribute(state, learner.view(changed, period))
        _same("no look-ahead", rows, seen, "with other cases after the period")
    deployed = learner.contribute(state, learner.deployed_view(changed, period))
    cut = learner.contribute(state, learner.deployed_view(panel.between(*period), period))
    _same("no look-ahead", cut, deployed, "with days around the period")


def _survives_odd_data(
    learner: Learner[Any, Any], state: Any, panel: CasePanel, period: tuple[date, date]
) -> None:
    for name, counts in (("no cases at all", 0.0), ("a billion cases a day", 1e9)):
        odd = replace(panel, counts=np.full_like(panel.counts, counts))
        rows = learner.contribute(state, learner.view(odd, period))
        finite = bool(np.isfinite(rows).all())
        _need(finite, "contribute", f"a value that is not finite with {name}", "finite numbers")


def _steps(learner: Learner[Any, Any], state: Any, rows: Vector) -> Any:
    mean = rows.mean(axis=0, dtype=np.float64).astype(np.float32)
    for noise_std in (0.0, 0.1, 1e6):
        noisy = mean + np.float32(noise_std) * np.ones_like(mean)
        vector = learner.pack(learner.step(state, noisy, noise_std))
        finite = bool(np.isfinite(vector).all()) and vector.dtype == np.float32
        _need(finite, "step", f"a state that is not finite at σ = {noise_std:g}", "finite float32")
    stepped = learner.step(state, mean, 0.0)
    vector = learner.pack(stepped)
    _same("pack", vector, learner.pack(learner.unpack(vector)), "packed and unpacked")
    _alike("pack", stepped, learner.unpack(vector))
    return stepped


def _ages(learner: Learner[Any, Any], state: Any) -> None:
    pack = learner.pack
    _same("advance", pack(state), pack(learner.advance(state, 0)), "no day later")
    step = DAYS_OF[learner.settings.step]
    twice = learner.advance(learner.advance(state, 3 * step), 4 * step)
    _same("advance", pack(learner.advance(state, 7 * step)), pack(twice), "in two steps")
    joined = learner.join(learner.advance(state, 7 * step), state)
    _need(bool(np.isfinite(pack(joined)).all()), "join", "a value that is not finite", "numbers")


def _forecasts(learner: Learner[Any, Any], state: Any, panel: CasePanel) -> None:
    far = (1, 7, 28) if learner.settings.step == "day" else (1, 2, 4)
    for horizon in far if learner.any_horizon else (learner.settings.horizon,):
        past = learner.hindcast(panel, state, horizon)
        good = past.ndim == 2 and len(past) == len(panel.regions) and past.shape[1] >= 1
        _need(good, "hindcast", f"shape {past.shape}", f"({len(panel.regions)}, days)")
        sane = bool(np.isfinite(past).all() and (past >= 0).all())
        _need(sane, "hindcast", "a value below zero or not finite", "counts of at least 0")


def _same(rule: str, expected: Any, again: Any, when: str) -> None:
    scale = max(float(np.abs(expected).max(initial=0.0)), 1e-12)
    good = expected.shape == again.shape and bool((np.abs(expected - again) <= CLOSE * scale).all())
    _need(good, rule, f"other numbers {when}", "the same")


def _alike(rule: str, state: Any, again: Any) -> None:
    _need(type(state) is type(again), rule, type(again).__name__, type(state).__name__)
    if is_dataclass(state):
        for field in fields(state):
            kind, other = type(getattr(state, field.name)), type(getattr(again, field.name))
            _need(kind is other, rule, f"{field.name} as {other.__name__}", kind.__name__)


def _need(kept: bool, rule: str, actual: str, expected: str) -> None:
    if not kept:
        raise LearnerRuleError(f"{rule}: found {actual}; expected {expected}")
