"""The audit passes the engine as it is, and catches every bug planted in it."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binom, norm

from epifed.audit import epsilon_bounds as audit_one_run
from epifed.audit.audit import Audit, audit
from epifed.audit.bench import EngineMechanism, Puppets, Recorder, Trial, likelihood_ratio
from epifed.audit.epsilon_bounds import many_runs
from epifed.audit.noise_checks import check_mechanism
from epifed.audit.statistics import GROUPS
from epifed.errors import EpifedError
from epifed.learners.base import Vector
from epifed.privacy import accounting
from epifed.privacy import noise as mechanism
from epifed.privacy import noise as randomness
from epifed.privacy.accounting import calibrate
from epifed.privacy.noise import Rows, SeededRandomness, clip, release
from epifed.privacy.plan import PrivacyPlan
from epifed.settings import seed_sequence
from epifed.training import loop as engine
from epifed.training import rounds
from tests.audit.test_aggregator_checks import CAUGHT as SEALED
from tests.audit.test_planted import CAUGHT
from tests.audit.test_planted_classes import CAUGHT as CLASSES
from tests.audit.test_planted_field import CAUGHT as FIELD
from tests.helpers import small_settings
from tests.planting import Plant, Planter

CLIENTS = 8
SETTINGS = small_settings(
    clients_per_round=4, rounds=8, epsilon=8.0, delta=1e-2, clip_norm=0.7, accountant="pld"
)


def quick(**changes: Any) -> Audit:
    values: dict[str, Any] = {"runs": 400, "checks": ()}
    return audit(SETTINGS, CLIENTS, **(values | changes))


def failed_checks(name: str) -> set[str]:
    checks = check_mechanism(EngineMechanism(), SETTINGS, names=frozenset({name}))
    return {c.name for c in checks if not c.passed}


# The bugs, each planted in the real engine.


def halved_noise(patch: Planter) -> None:
    honest = PrivacyPlan.noise_of_round
    patch.setattr(PrivacyPlan, "noise_of_round", lambda self, came: honest(self, came) / 2)


def noise_over_those_who_came(patch: Planter) -> None:
    def wrong(updates: Rows, noise: Rows, *, clients_per_round: int, **rest: float) -> Rows:
        came = max(len(updates), 1)
        return release(
            updates, noise * (clients_per_round / came), clients_per_round=clients_per_round, **rest
        )

    patch.setattr(randomness, "release", wrong)


def weighted_by_examples(patch: Planter) -> None:
    """Clipped first, then averaged by the number of training examples."""
    shares: list[NDArray[np.float64]] = []
    of = Puppets.of

    def looking(self: Puppets, clients: NDArray[np.int64]) -> Puppets:
        shares.append(self.examples[clients].astype(np.float64))
        return of(self, clients)

    def weighted(updates: Rows, noise: Rows, *, clip_norm: float, **rest: Any) -> Rows:
        share = shares[-1]
        clipped = clip(updates, clip_norm) * (share / share.sum())[:, None]
        mean: Rows = clipped.sum(axis=0) + release(updates[:0], noise, clip_norm=clip_norm, **rest)
        return mean

    patch.setattr(Puppets, "of", looking)
    patch.setattr(randomness, "release", weighted)


def clipping_with(patch: Planter, wrong: Callable[[Rows, float], Rows]) -> None:
    """Of the client and of the server."""
    patch.setattr(rounds, "clip", wrong)
    patch.setattr(mechanism, "clip", wrong)


def unclipped(patch: Planter) -> None:
    clipping_with(patch, lambda updates, clip_norm: updates)


def fixed_size(patch: Planter) -> None:
    honest = SeededRandomness.sample

    def wrong(self: SeededRandomness, plan: PrivacyPlan) -> NDArray[np.int64]:
        return honest(self, replace(plan, sampler="fixed"))

    patch.setattr(SeededRandomness, "sample", wrong)


def same_seed_twice(patch: Planter) -> None:
    class Stuck:
        def __init__(self, honest: np.random.Generator) -> None:
            self.honest = honest
            self.drawn: list[Rows] = []

        def standard_normal(self, *shape: Any, **kind: Any) -> Rows:
            fresh = self.honest.standard_normal(*shape, **kind)
            self.drawn.append(self.drawn[0] if len(self.drawn) == 1 else fresh)
            return self.drawn[-1]

    honest = SeededRandomness.__init__

    def wrong(self: SeededRandomness, *seeds: np.random.SeedSequence) -> None:
        honest(self, *seeds)
        self._noise = Stuck(self._noise)  # type: ignore[assignment]

    patch.setattr(SeededRandomness, "__init__", wrong)


def silent_empty_round(patch: Planter) -> None:
    def wrong(updates: Rows, noise: Rows, **rest: Any) -> Rows:
        return release(updates, float(len(updates) > 0) * noise, **rest)

    patch.setattr(randomness, "release", wrong)


def clipped_by_layer(patch: Planter) -> None:
    def wrong(updates: Rows, clip_norm: float) -> Rows:
        layers = np.array_split(updates, 4, axis=-1)
        return np.concatenate([clip(layer, clip_norm) for layer in layers], axis=-1)

    clipping_with(patch, wrong)


CAUGHT_BY_CHECK: dict[Plant, str] = {
    halved_noise: "noise",
    noise_over_those_who_came: "noise of each round",
    weighted_by_examples: "equal weights",
    unclipped: "clipping",
    fixed_size: "sampling between clients",
    same_seed_twice: "fresh noise",
    silent_empty_round: "empty round",
    clipped_by_layer: "clipping",
}
CAUGHT_BY_STATISTICS = [halved_noise, weighted_by_examples, unclipped, clipped_by_layer]


@pytest.mark.field
def test_the_engine_passes_the_audit_and_every_check() -> None:
    found = quick(method="both", checks=GROUPS, scope="all", confidence=1 - 1e-7)
    assert 0 < found.false_alarms < 1e-6
    assert [c.name for c in found.checks if not c.passed] == []
    assert found.passed
    assert {c.name for c in found.checks} >= {
        *CAUGHT_BY_CHECK.values(),
        *CAUGHT.values(),
        *FIELD.values(),
        *SEALED.values(),
        *CLASSES.values(),
    }
    assert {c.group for c in found.checks} == set(GROUPS)
    assert sum(c.group == "federation" for c in found.checks) == 6, "on real processes"
    assert found.lower_bound < SETTINGS.epsilon
    assert found.runs == 401


@pytest.mark.field
@pytest.mark.parametrize("plant", CAUGHT_BY_CHECK, ids=lambda plant: plant.__name__)
def test_a_check_catches(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    planter = Planter(monkeypatch)
    plant(planter)
    assert CAUGHT_BY_CHECK[plant] in failed_checks(CAUGHT_BY_CHECK[plant])
    planter.refuse_unused()


@pytest.mark.field
@pytest.mark.parametrize("plant", CAUGHT_BY_STATISTICS, ids=lambda plant: plant.__name__)
def test_the_measured_epsilon_catches(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(Planter(monkeypatch))
    found = quick()
    assert not found.passed
    assert found.lower_bound > SETTINGS.epsilon


@pytest.mark.field
def test_one_run_catches_an_unclipped_update(monkeypatch: pytest.MonkeyPatch) -> None:
    strict = SETTINGS.but(epsilon=2.0, delta=1e-5)
    assert audit(strict, CLIENTS, method="one-run", checks=()).passed
    unclipped(Planter(monkeypatch))
    found = audit(strict, CLIENTS, method="one-run", checks=())
    assert found.many_runs is None
    assert not found.passed


@pytest.mark.field
def test_a_failed_check_fails_the_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    same_seed_twice(Planter(monkeypatch))
    found = quick(method="one-run", checks=("mechanism",))
    assert found.lower_bound <= SETTINGS.epsilon
    assert not found.passed


@pytest.mark.field
def test_the_secure_release_passes() -> None:
    assert quick(
        mechanism=EngineMechanism(secure=True), runs=100, length=2, confidence=1 - 1e-7
    ).passed


@pytest.mark.field
def test_the_false_alarm_rate_is_within_the_confidence() -> None:
    """On the tight accountant, with simulated scores of the mechanism exactly as claimed."""

    claim = calibrate(4.0, 1e-3, 0.5, 3, "pld")
    rng = np.random.default_rng(0)
    alarms = 0
    for _ in range(100):
        present = rng.random((3, 400)) < 0.5
        noise = claim.noise_multiplier * rng.standard_normal((2, 3, 400))
        without = likelihood_ratio(noise[0], claim)
        with_it = likelihood_ratio(present + noise[1], claim)
        errors = accounting.Errors(
            accounting.upper_rate(int((without >= 0).sum()), 400, 0.05),
            accounting.upper_rate(int((with_it < 0).sum()), 400, 0.05),
        )
        alarms += accounting.impossible(errors, claim.noise_multiplier, 0.5, 3)
    assert alarms <= binom.ppf(0.999, 100, 0.1)


@pytest.mark.field
def test_the_same_seed_gives_the_same_numbers() -> None:
    first, second = (
        many_runs(EngineMechanism(), SETTINGS, CLIENTS, runs=40, level=0.01, seed=5)
        for _ in range(2)
    )
    np.testing.assert_array_equal(first.scores_with, second.scores_with)
    assert first.lower_bound == second.lower_bound


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"runs": 10}, "runs: found 10"),
        ({"confidence": 1.0}, "confidence: found 1.0"),
        ({"method": "guess"}, "method: found 'guess'"),
    ],
)
def test_refuses(changes: dict[str, object], words: str) -> None:
    with pytest.raises(EpifedError, match=words):
        quick(**changes)
    with pytest.raises(EpifedError, match="expected a finite claim"):
        audit(SETTINGS.but(epsilon=math.inf), CLIENTS)
    with pytest.raises(EpifedError, match="4 of 3 clients"):
        audit(SETTINGS, 3)


# The formulas.


@given(st.integers(1, 200), st.floats(0.001, 0.2), st.data())
def test_clopper_pearson_inverts_the_binomial(of: int, level: float, data: st.DataObject) -> None:
    found = data.draw(st.integers(0, of - 1))
    upper = accounting.upper_rate(found, of, level)
    assert binom.cdf(found, of, upper) == pytest.approx(level, rel=1e-6)
    assert accounting.upper_rate(of, of, level) == 1.0


@given(st.floats(0.05, 4), st.floats(1e-6, 0.4))
def test_gaussian_formulas_invert_each_other(mu: float, false_positive: float) -> None:
    miss = float(norm.cdf(norm.isf(false_positive) - mu))
    assert accounting.gaussian_mu(accounting.Errors(false_positive, miss)) == pytest.approx(
        mu, abs=1e-6
    )


def test_without_sampling_the_exact_bound_is_the_gaussian_one() -> None:
    miss = float(norm.cdf(norm.isf(0.2) - 1.5))
    errors = accounting.Errors(0.2, miss)
    exact = accounting.sampled_gaussian_epsilon(errors, 1e-5, 1.0, 4)
    assert exact == pytest.approx(accounting.gaussian_epsilon(1.5, 1e-5), rel=0.01)
    assert exact > accounting.direct_epsilon(errors, 1e-5) > 0
    assert accounting.sampled_gaussian_epsilon(accounting.Errors(0.5, 0.5), 1e-5, 0.5, 4) == 0


def test_the_advantage_of_noise_is_below_that_of_its_epsilon() -> None:
    found = calibrate(2.0, 1e-5, 0.25, 20)
    tight = accounting.advantage_of_noise(found.noise_multiplier, 0.25, 20)
    assert 0.1 < tight < accounting.most_advantage(2.0, 1e-5)
    assert accounting.advantage_of_noise(0.0, 0.25, 20) == 1.0
    assert accounting.most_advantage(math.inf, 1e-5) == 1.0
    assert accounting.most_advantage(0.0, 0.1) == pytest.approx(0.1)
    assert accounting.right_at_most(accounting.most_advantage(2.0, 0.0)) == pytest.approx(
        0.8808, abs=1e-4
    )


def test_one_run_p_values() -> None:
    """Published: 75 of 100 guesses right among 1000 canaries refute ε = 0.673 at δ = 1e-4."""
    assert audit_one_run.lower_bound(1000, 100, 75, 1e-4, 0.05) == pytest.approx(0.673, abs=5e-4)
    assert audit_one_run.p_value(1000, 100, 75, 0.5, 0.0) == pytest.approx(
        float(binom.sf(74, 100, 1 / (1 + math.exp(-0.5))))
    )
    assert audit_one_run.lower_bound(1000, 100, 50, 1e-5, 0.05) == 0.0
    assert audit_one_run.lower_bound(1000, 0, 0, 1e-5, 0.05) == 0.0
    assert audit_one_run.lower_bound(50, 50, 50, 0.0, 0.05) == pytest.approx(
        -math.log(0.05 ** (-1 / 50) - 1), abs=1e-6
    )


def test_the_engine_is_audited_itself() -> None:
    """The transcript is what `train` did: its cohorts, its releases."""
    sent = np.eye(CLIENTS, dtype=np.float32) * np.float32(SETTINGS.clip_norm)
    trial = Trial(SETTINGS, sent, np.arange(1, CLIENTS + 1))
    transcript = EngineMechanism().run(trial, seed_sequence(3))
    training = engine.train(trial.view, SETTINGS, seeds=seed_sequence(3), learner=_Silent(trial))
    assert tuple(len(c) for c in transcript.cohorts) == training.cohort_sizes
    signal = np.stack(
        [sent[c].sum(axis=0) / SETTINGS.clients_per_round for c in transcript.cohorts]
    )
    np.testing.assert_allclose(
        transcript.releases.sum(axis=0), training.state + signal.sum(axis=0), rtol=1.3e-6, atol=1e-5
    )


class _Silent(Recorder):
    """The same federation, in which nobody sends anything."""

    def contribute(self, state: Vector, view: Puppets) -> Vector:
        del state
        return np.zeros((len(view), self.sent.shape[1]), dtype=np.float32)
