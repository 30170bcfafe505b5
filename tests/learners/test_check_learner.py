"""The rules that every learner keeps, and that the check of them can fail."""

from typing import Any

import numpy as np
import pytest

from epifed.data.panel import CasePanel
from epifed.learners.base import Floats, Vector, Windows, slide
from epifed.learners.growth import Releases
from epifed.learners.one_shot import OneShot
from epifed.learners.trend import LastDays, Trend
from epifed.registry import LEARNERS
from epifed.testing import LearnerRuleError, check_learner


@pytest.mark.parametrize("name", LEARNERS.names())
def test_our_own_learners_keep_the_rules(name: str) -> None:
    check_learner(name)


@pytest.mark.parametrize("model", ["linear", "gru", "scale-free linear"])
def test_so_do_other_models(model: str) -> None:
    check_learner("fedavg", model=model, epochs=2)


def test_and_an_averaged_one() -> None:
    check_learner("fedavg", model="linear", rounds=3, average_last=2)


class NotFinite(Trend):
    def contribute(self, state: Releases, view: LastDays) -> Vector:
        return super().contribute(state, view) / np.float32(0)


class LooksAround(Trend):
    def contribute(self, state: Releases, view: LastDays) -> Vector:
        rows = super().contribute(state, view)
        return rows - rows.mean(axis=0) if len(rows) else rows


class Forgetful(Trend):
    calls = 0

    def contribute(self, state: Releases, view: LastDays) -> Vector:
        self.calls += 1
        return super().contribute(state, view) * np.float32(self.calls)


class LooksAhead(OneShot):
    def view(self, panel: CasePanel, period: Any) -> Windows:
        return slide(panel, self.settings, (period[0], panel.end))


class Mutates(OneShot):
    def contribute(self, state: Vector, view: Windows) -> Vector:
        state[0] += 1
        return super().contribute(state, view)


class Negative(OneShot):
    def predict(self, state: Vector, inputs: Vector) -> Floats:
        return super().predict(state, inputs) - 10

    def hindcast(self, panel: CasePanel, state: Vector, horizon: int) -> Floats:
        return super().hindcast(panel, state, horizon) - 10


class Ages(Trend):
    def advance(self, state: Releases, days: int) -> Releases:
        return super().advance(state, 2 * days + 1)


class Loses(Trend):
    def unpack(self, vector: Vector) -> Releases:
        state = super().unpack(vector)
        return Releases(state.values, state.precision * 0)


class Wide(Trend):
    def contribute(self, state: Releases, view: LastDays) -> Vector:
        rows = super().contribute(state, view)
        return rows if len(rows) else np.zeros((0, 1), dtype=np.float32)


@pytest.mark.parametrize(
    ("learner", "words"),
    [
        (NotFinite, "contribute: found a value that is not finite"),
        (LooksAround, "contribute: found other numbers in another cohort"),
        (Forgetful, "contribute: found other numbers asked twice"),
        (LooksAhead, "no look-ahead: found other numbers with other cases after the period"),
        (Mutates, "contribute: found other numbers"),
        (Negative, "hindcast: found a value below zero"),
        (Ages, "advance: found other numbers no day later"),
        (Loses, "pack: found other numbers packed and unpacked"),
        (Wide, "contribute: found shape (0, 1) of nobody's view"),
    ],
)
def test_a_broken_learner_is_found(learner: Any, words: str) -> None:
    with np.errstate(all="ignore"), pytest.raises(LearnerRuleError) as caught:
        check_learner(learner)
    assert words in str(caught.value)


def test_optional_abilities_are_listed() -> None:
    assert list(check_learner("one-shot")) == ["preset", "entries"]
    assert {"advance", "join", "signal"} <= set(check_learner("trend"))
