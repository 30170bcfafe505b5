"""Bugs planted in the deployed code, each caught by a named check of the audit."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from epifed.audit.audit import Size, run_checks
from epifed.audit.bench import EngineMechanism
from epifed.audit.statistics import Check
from epifed.federation import server
from epifed.learners.base import Vector
from epifed.privacy import noise as mechanism
from epifed.privacy import noise as randomness
from epifed.privacy import noise as secure
from epifed.privacy.noise import Rows, SecureRandomness, SeededRandomness, clip
from epifed.privacy.plan import PrivacyPlan
from epifed.training import loop, rounds
from epifed.training.rounds import Rounds
from tests.helpers import small_settings
from tests.planting import Plant, Planter

pytestmark = pytest.mark.field

SETTINGS = small_settings(epsilon=2.0, clip_norm=0.7)
KINDS = (SeededRandomness, SecureRandomness)


@pytest.fixture(autouse=True)
def _fewer_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    """In process alone: the round core is the same, and the federation's is slow."""
    small = (Size(EngineMechanism(), 200, 1024), Size(EngineMechanism(secure=True), 200, 64))
    monkeypatch.setattr("epifed.audit.audit.paths", lambda scope: small)


def check(name: str) -> Check:
    """The one check of this name, and none else."""
    (found,) = run_checks(SETTINGS, names=frozenset({name}))
    return found


# Noise


def _noise_changed(patch: Planter, change: Callable[[Rows, Rows, PrivacyPlan], Rows]) -> None:
    """Of both kinds of randomness: `change(release without noise, noise, plan)`."""
    for kind in KINDS:
        honest = kind.release

        def wrong(self: Any, updates: Rows, plan: PrivacyPlan, honest: Any = honest) -> Rows:
            released = honest(self, updates, plan)
            plain = clip(updates, plan.bound).sum(axis=0) / plan.clients_per_round
            return np.asarray(change(plain, released - plain, plan), dtype=np.float32)

        patch.setattr(kind, "release", wrong)


def noise_in_nine_of_ten_coordinates(patch: Planter) -> None:
    def change(plain: Rows, noise: Rows, plan: PrivacyPlan) -> Rows:
        noise = noise.copy()
        noise[::10] = 0
        return plain + noise

    _noise_changed(patch, change)


def noise_a_tenth_low(patch: Planter) -> None:
    honest = PrivacyPlan.noise_of_round
    patch.setattr(PrivacyPlan, "noise_of_round", lambda self, came: 0.9 * honest(self, came))


def secure_noise_a_tenth_low(patch: Planter) -> None:
    honest = secure.grid_deviation
    patch.setattr(secure, "grid_deviation", lambda c: 0.9 * honest(c))


def noise_low_in_one_round(patch: Planter) -> None:
    numbers = iter(range(10**6))
    _noise_changed(
        patch, lambda plain, noise, plan: plain + noise * (0.1 if next(numbers) == 7 else 1)
    )


def noise_by_those_who_came(patch: Planter) -> None:
    honest = PrivacyPlan.noise_of_round

    def wrong(self: PrivacyPlan, came: int) -> float:
        return honest(self, came) * (came / self.clients_per_round + 0.05)

    patch.setattr(PrivacyPlan, "noise_of_round", wrong)


def noise_fades(patch: Planter) -> None:
    numbers = iter(range(10**6))
    _noise_changed(
        patch, lambda plain, noise, plan: plain + noise * (1.15 - 0.0015 * (next(numbers) % 200))
    )


def one_number_for_all_coordinates(patch: Planter) -> None:
    _noise_changed(
        patch,
        lambda plain, noise, plan: plain + np.full_like(noise, noise.mean() * noise.size**0.5),
    )


def half_of_the_noise_twice(patch: Planter) -> None:
    def change(plain: Rows, noise: Rows, plan: PrivacyPlan) -> Rows:
        half = noise.size // 2
        found: Rows = plain + np.concatenate([noise[:half], noise[: noise.size - half]])
        return found

    _noise_changed(patch, change)


def noise_of_the_round_before_shuffled(patch: Planter) -> None:
    kept: dict[int, Rows] = {}

    def change(plain: Rows, noise: Rows, plan: PrivacyPlan) -> Rows:
        last = kept.get(noise.size)
        kept[noise.size] = noise if last is None else last
        return plain + (noise if last is None else -np.roll(last, 3))

    _noise_changed(patch, change)


def uniform_noise(patch: Planter) -> None:
    rng = np.random.default_rng(0)

    def change(plain: Rows, noise: Rows, plan: PrivacyPlan) -> Rows:
        width = plan.noise_std(0) * 3**0.5
        return plain + rng.uniform(-width, width, noise.shape)

    _noise_changed(patch, change)


def noise_cut_at_two_and_a_half_deviations(patch: Planter) -> None:
    def change(plain: Rows, noise: Rows, plan: PrivacyPlan) -> Rows:
        most = 2.5 * plan.noise_std(0)
        return plain + np.clip(noise, -most, most)

    _noise_changed(patch, change)


def noise_with_a_mean(patch: Planter) -> None:
    _noise_changed(patch, lambda plain, noise, plan: plain + noise + 0.2 * plan.noise_std(0))


def empty_round_without_noise(patch: Planter) -> None:
    for kind in KINDS:
        honest = kind.release

        def wrong(self: Any, updates: Rows, plan: PrivacyPlan, honest: Any = honest) -> Rows:
            released: Rows = honest(self, updates, plan)
            return released if len(updates) else np.zeros_like(released)

        patch.setattr(kind, "release", wrong)


# Sampling


def _cohort_changed(
    patch: Planter,
    change: Callable[[NDArray[np.int64], PrivacyPlan], NDArray[np.int64]],
    kinds: tuple[type, ...] = KINDS,
) -> None:
    for kind in kinds:
        honest = kind.sample  # type: ignore[attr-defined]

        def wrong(self: Any, plan: PrivacyPlan, honest: Any = honest) -> NDArray[np.int64]:
            return change(honest(self, plan), plan)

        patch.setattr(kind, "sample", wrong)


def q_halved(patch: Planter) -> None:
    rng = np.random.default_rng(0)
    _cohort_changed(patch, lambda cohort, plan: cohort[rng.random(len(cohort)) < 0.5])


def secure_q_a_tenth_high(patch: Planter) -> None:
    rng = np.random.default_rng(0)

    def change(cohort: NDArray[np.int64], plan: PrivacyPlan) -> NDArray[np.int64]:
        more = np.flatnonzero(rng.random(plan.clients) < 0.1 * plan.sampling_rate)
        return np.union1d(cohort, more)

    _cohort_changed(patch, change, (SecureRandomness,))


def first_client_favoured(patch: Planter) -> None:
    _cohort_changed(patch, lambda cohort, plan: np.union1d(cohort, [0]))


def fixed_size(patch: Planter) -> None:
    rng = np.random.default_rng(0)
    _cohort_changed(
        patch,
        lambda _, plan: np.sort(rng.choice(plan.clients, plan.clients_per_round, replace=False)),
    )


def cohort_of_three_rounds_ago(patch: Planter) -> None:
    """One in five rounds has the cohort that came three rounds before."""
    past: list[NDArray[np.int64]] = []

    def change(cohort: NDArray[np.int64], plan: PrivacyPlan) -> NDArray[np.int64]:
        back = past[-3] if len(past) > 3 and len(past) % 5 == 0 else cohort
        past.append(back if back.size == 0 or back.max() < plan.clients else cohort)
        return past[-1]

    _cohort_changed(patch, change)


def neighbours_come_together(patch: Planter) -> None:
    """Pairs of clients come together or not at all."""
    _cohort_changed(
        patch,
        lambda cohort, plan: np.flatnonzero(np.isin(np.arange(plan.clients) // 2 * 2, cohort)),
    )


# Clipping and weights


def server_does_not_clip(patch: Planter) -> None:
    patch.setattr(mechanism, "clip", lambda updates, clip_norm: updates)


def secure_server_does_not_clip(patch: Planter) -> None:
    def wrong(updates: Rows, clip_norm: float) -> NDArray[np.int64]:
        bounded = np.nan_to_num(updates.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
        steps = np.clip(bounded, -1e9, 1e9) * (secure.STEPS / clip_norm)
        return np.rint(steps).astype(np.int64)

    patch.setattr(secure, "to_grid", wrong)


def _by_coordinate(updates: Rows, clip_norm: float) -> Rows:
    return np.clip(updates, -clip_norm, clip_norm)


def client_clips_per_coordinate(patch: Planter) -> None:
    patch.setattr(rounds, "clip", _by_coordinate)


def everybody_clips_per_coordinate(patch: Planter) -> None:
    patch.setattr(rounds, "clip", _by_coordinate)
    patch.setattr(mechanism, "clip", _by_coordinate)


def client_does_not_clip(patch: Planter) -> None:
    patch.setattr(rounds, "clip", lambda updates, clip_norm: updates)


def nan_spoils_the_round(patch: Planter) -> None:
    def wrong(updates: Rows, clip_norm: float) -> Rows:
        length = np.sqrt(np.square(updates, dtype=np.float64).sum(axis=1, keepdims=True))
        with np.errstate(invalid="ignore"):
            clipped = updates / np.maximum(length / clip_norm, 1.0)
        return np.asarray(clipped, dtype=updates.dtype)

    patch.setattr(mechanism, "clip", wrong)


def divided_by_those_who_came(patch: Planter) -> None:
    for kind in KINDS:
        honest = kind.release

        def wrong(self: Any, updates: Rows, plan: PrivacyPlan, honest: Any = honest) -> Rows:
            factor = plan.clients_per_round / max(len(updates), 1)
            found: Rows = (honest(self, updates, plan) * factor).astype(np.float32)
            return found

        patch.setattr(kind, "release", wrong)


def first_row_counts_twice(patch: Planter) -> None:
    honest = Rounds.close

    def wrong(self: Rounds[Any], state: Any, updates: Vector) -> Any:
        return honest(self, state, np.concatenate([updates[:1], updates]))

    patch.setattr(Rounds, "close", wrong)


# The generator


def _numpy_noise(self: SecureRandomness, updates: Rows, plan: PrivacyPlan) -> Rows:
    noise = np.random.default_rng().standard_normal(updates.shape[1:])
    return mechanism.release(
        updates,
        noise,
        clip_norm=plan.bound,
        noise_multiplier=plan.noise_of_round(len(updates)),
        clients_per_round=plan.clients_per_round,
    )


def secure_noise_by_numpy(patch: Planter) -> None:
    patch.setattr(SecureRandomness, "release", _numpy_noise)


def cohort_of_a_seed(patch: Planter) -> None:
    rng = np.random.default_rng(42)

    def wrong(self: SecureRandomness, plan: PrivacyPlan) -> NDArray[np.int64]:
        return np.flatnonzero(rng.random(plan.clients) < plan.sampling_rate)

    patch.setattr(SecureRandomness, "sample", wrong)


def cohort_by_python(patch: Planter) -> None:
    def wrong(self: SecureRandomness, plan: PrivacyPlan) -> NDArray[np.int64]:
        drawn = [random.random() < plan.sampling_rate for _ in range(plan.clients)]
        return np.flatnonzero(drawn)

    patch.setattr(SecureRandomness, "sample", wrong)


def a_generator_for_all(patch: Planter) -> None:
    patch.add(randomness, "_shared", np.random.default_rng())


def seeded_though_secure(patch: Planter) -> None:
    def wrong() -> SeededRandomness:
        return SeededRandomness(*np.random.SeedSequence(0).spawn(2))

    patch.setattr(loop, "SecureRandomness", wrong)


def federation_seeded_though_secure(patch: Planter) -> None:
    def wrong() -> SeededRandomness:
        return SeededRandomness(*np.random.SeedSequence(0).spawn(2))

    patch.setattr(server, "SecureRandomness", wrong)


def low_bits_of_the_sum_are_left(patch: Planter) -> None:
    """The noise is whole multiples of 64 steps: the remainder of the exact sum is released."""
    honest = secure.noisy_sum

    def wrong(updates: Rows, clip_norm: float, noise_multiplier: float) -> NDArray[np.float64]:
        step = clip_norm / secure.STEPS
        exact = secure.to_grid(updates, clip_norm).sum(axis=0)
        noise = honest(updates, clip_norm, noise_multiplier) / step - exact
        found: NDArray[np.float64] = (exact + np.rint(noise / 64) * 64) * step
        return found

    patch.setattr(secure, "noisy_sum", wrong)


CAUGHT: dict[Plant, str] = {
    noise_in_nine_of_ten_coordinates: "noise of each coordinate",
    noise_a_tenth_low: "noise",
    secure_noise_a_tenth_low: "noise",
    noise_low_in_one_round: "noise of each round",
    noise_by_those_who_came: "noise and cohort",
    noise_fades: "noise and cohort",
    one_number_for_all_coordinates: "noise between coordinates",
    half_of_the_noise_twice: "noise between coordinates",
    noise_of_the_round_before_shuffled: "fresh noise",
    uniform_noise: "noise is Gaussian",
    noise_cut_at_two_and_a_half_deviations: "noise is Gaussian",
    noise_with_a_mean: "noise around zero",
    empty_round_without_noise: "empty round",
    q_halved: "sampling rate",
    secure_q_a_tenth_high: "sampling rate",
    first_client_favoured: "sampling of each client",
    fixed_size: "sampling between clients",
    cohort_of_three_rounds_ago: "sampling over rounds",
    neighbours_come_together: "sampling between clients",
    server_does_not_clip: "server clips",
    secure_server_does_not_clip: "server clips",
    client_clips_per_coordinate: "contributions bounded",
    everybody_clips_per_coordinate: "clipping",
    client_does_not_clip: "contributions bounded",
    nan_spoils_the_round: "broken rows",
    divided_by_those_who_came: "equal weights",
    first_row_counts_twice: "equal weights",
    secure_noise_by_numpy: "draws in process",
    cohort_of_a_seed: "draws in process",
    cohort_by_python: "draws in process",
    a_generator_for_all: "no generator is kept",
    seeded_though_secure: "draws in process",
    federation_seeded_though_secure: "draws of a federation",
    low_bits_of_the_sum_are_left: "whole steps",
}


@pytest.mark.parametrize("plant", CAUGHT, ids=lambda plant: plant.__name__)
def test_a_named_check_catches(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    planter = Planter(monkeypatch)
    plant(planter)
    found = check(CAUGHT[plant])
    planter.refuse_unused()
    assert not found.passed, found.found
    assert found.expected != "no error", found.found
