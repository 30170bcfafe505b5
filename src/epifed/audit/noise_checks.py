"""Checks of noise, sampling and clipping that statistics on one canary cannot make.

Each check trains small federations of simulated clients over one of the deployed paths. It
compares every release with what Algorithm 1 requires.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from epifed.audit.bench import Mechanism, Recorder, Transcript, Trial
from epifed.audit.statistics import (
    LEVEL,
    SURE,
    Check,
    Names,
    attendance,
    check_sampling,
    deviations,
    finding,
    gaussian,
    lags,
    largest_correlation,
    least_shift,
    limit,
    made,
    shared_values,
    standard,
)
from epifed.federation import site
from epifed.learners.base import Floats, Vector
from epifed.privacy.noise import Randomness, SecureRandomness, SeededRandomness
from epifed.privacy.plan import PrivacyPlan
from epifed.settings import Settings, seed_sequence
from epifed.training.rounds import Rounds

CLIENTS, CLIENTS_PER_ROUND = 24, 6
FEW = (4, 1)
"""N and m so small that many rounds are empty."""
ROUNDS, LENGTH = 200, 1024  # at least
LOOSE = 1e6
"""At this ε there is almost no noise, so single clients are visible."""
PAIRED = 1024
"""Coordinates among which all pairs are compared; neighbours are compared in all coordinates."""
MOST_SHARED = 8
"""One in this many values of two rounds may coincide by chance in single precision."""


@dataclass(frozen=True)
class Bench:
    """One deployed path, with trainings that run when a check first needs them."""

    mechanism: Mechanism
    settings: Settings
    seed: int = 0
    rounds: int = ROUNDS
    length: int = LENGTH

    @cached_property
    def silent(self) -> Trial:
        """A trial in which no client sends anything, so its releases are noise."""
        return Trial(self._usual, _nothing(CLIENTS, self.length), _examples(CLIENTS))

    @cached_property
    def quiet(self) -> Transcript:
        """The training of the silent trial."""
        return self._run(self.silent, "noise")

    @cached_property
    def noise(self) -> Floats:
        """The silent training's noise [rounds, length], over the deviation that it must have."""
        trial = self.silent
        return trial.in_units(self.quiet.releases) / trial.claim.noise_multiplier

    @cached_property
    def again(self) -> Transcript:
        """The first rounds of the same silent training, from other seeds."""
        return self._run(self.silent, "noise again", max(self.rounds // 4, 1))

    @cached_property
    def came(self) -> NDArray[np.int64]:
        """Participation in the silent training: [rounds, clients] of 0 and 1."""
        return attendance(self.quiet.cohorts, CLIENTS)

    @cached_property
    def _usual(self) -> Settings:
        return self.settings.but(
            clients_per_round=CLIENTS_PER_ROUND, rounds=self.rounds, sampler="poisson"
        )

    def sparse(self) -> Trial:
        """A trial with few clients who send nothing, so that many rounds are empty."""
        clients, per_round = FEW
        settings = self._usual.but(clients_per_round=per_round)
        return Trial(settings, _nothing(clients, self.length), _examples(clients))

    def honest(self) -> Trial:
        """A trial in which each client sends S in its own direction, almost without noise."""
        axes = np.eye(CLIENTS, max(self.length, CLIENTS)) * self.settings.clip_norm
        settings = self._usual.but(epsilon=LOOSE, rounds=max(self.rounds // 4, 1))
        return Trial(settings, axes.astype(np.float32), _examples(CLIENTS))

    def greedy(self, row: Vector) -> Trial:
        """A trial of few clients, all drawn, one of whom sends this row, almost without noise."""
        clients, _ = FEW
        sent = _nothing(clients, self.length)
        sent[0] = row
        settings = self._usual.but(
            clients_per_round=clients, epsilon=LOOSE, rounds=max(self.rounds // 16, 1)
        )
        return Trial(settings, sent, _examples(clients))

    def run(self, trial: Trial, name: str) -> Transcript:
        """Train another trial; the name selects the seeds."""
        return self._run(trial, name)

    def _run(self, trial: Trial, name: str, rounds: int | None = None) -> Transcript:
        return self.mechanism.run(trial, seed_sequence(self.seed, "checks", name), rounds)


def check_mechanism(
    mechanism: Mechanism,
    settings: Settings,
    *,
    seed: int = 0,
    rounds: int = ROUNDS,
    length: int = LENGTH,
    names: Names = None,
) -> list[Check]:
    """All checks of one path, or those named, at the settings' clip norm, budget and δ."""
    bench = Bench(mechanism, settings, seed, rounds, length)
    return made("mechanism", {name: partial(check, bench) for name, check in CHECKS.items()}, names)


def _nothing(clients: int, length: int) -> Vector:
    return np.zeros((clients, length), dtype=np.float32)


def _examples(clients: int) -> NDArray[np.int64]:
    return np.arange(1, clients + 1, dtype=np.int64)


def _noise(bench: Bench) -> Check:
    noise = bench.noise
    found = deviations(np.square(noise).sum(keepdims=True), noise.size, "noise")
    return finding(
        found.kept,
        "deviation S·c/m over all rounds and coordinates",
        f"{found.worst:.4f} of it in {noise.size} values",
        power=found.power,
    )


def _noise_of_coordinates(bench: Bench) -> Check:
    noise = bench.noise
    found = deviations(np.square(noise).sum(axis=0), len(noise), "one coordinate's noise")
    return finding(
        found.kept,
        "deviation S·c/m in every coordinate",
        f"{found.worst:.3f} of it in the worst of {noise.shape[1]} coordinates",
        power=found.power,
    )


def _noise_of_rounds(bench: Bench) -> Check:
    noise = bench.noise
    found = deviations(np.square(noise).sum(axis=1), noise.shape[1], "one round's noise")
    return finding(
        found.kept,
        "deviation S·c/m in every round",
        f"{found.worst:.3f} of it in the worst of {len(noise)} rounds",
        power=found.power,
    )


def _noise_and_cohort(bench: Bench) -> Check:
    """A round's noise depends neither on how many clients participate nor on the round's number."""
    noise, sizes = bench.noise, bench.came.sum(axis=1).astype(np.float64)
    excess = np.square(noise).sum(axis=1) - noise.shape[1]
    scores, leasts = [], []
    for by in (sizes, np.arange(len(noise), dtype=np.float64)):
        centred = by - by.mean()
        squares = max(float(np.square(centred).sum()), 1e-300)
        spread = float(np.sqrt(2 * noise.shape[1] * squares))
        scores.append(float((centred * excess).sum()) / spread)
        leasts.append(least_shift(2) * spread / squares)
    kept, _ = standard(np.array(scores))
    return finding(
        kept,
        "the noise depends neither on the number of participating clients nor on the round",
        f"{scores[0]:+.1f} deviations with the participating clients, {scores[1]:+.1f} with time",
        power=f"a variance that grows by {leasts[0] / noise.shape[1]:.1%} with each further "
        f"client is found with {SURE:.0%} probability",
    )


def _noise_mean(bench: Bench) -> Check:
    noise = bench.noise
    scores = np.concatenate(
        [noise.sum(axis=0) / len(noise) ** 0.5, noise.sum(axis=1) / noise.shape[1] ** 0.5]
    )
    whole, _ = standard(noise.sum() / noise.size**0.5)
    kept, worst = standard(scores)
    return finding(
        kept and whole,
        "mean 0 in every coordinate and in every round",
        f"{worst:+.1f} deviations in the worst of {scores.size}",
        power=f"a mean of {least_shift() / noise.size**0.5:.1%} of the noise's deviation is found "
        f"with {SURE:.0%} probability",
    )


def _noise_shape(bench: Bench) -> Check:
    kept, body, tail = gaussian(bench.noise)
    return finding(
        kept,
        "normally distributed, in its body (Kolmogorov and Smirnov) and in its tails",
        f"p = {body:.2g} and {tail:.2g} of {bench.noise.size} values",
    )


def _independent_coordinates(bench: Bench) -> Check:
    noise = bench.noise
    rng = np.random.default_rng(seed_sequence(bench.seed, "checks", "coordinates"))
    some = rng.permutation(noise.shape[1])[:PAIRED]
    pairs, worst = largest_correlation(noise[:, np.sort(some)].T)
    near, lag = standard(lags(noise.T))
    common = deviations(
        np.square(noise.sum(axis=1) / noise.shape[1] ** 0.5).sum(keepdims=True), len(noise), ""
    )
    return finding(
        pairs and near and common.kept,
        "the noise of any two coordinates is uncorrelated, and so are all together",
        f"largest correlation {worst:.3f}; {lag:+.1f} deviations at the worst distance",
        power=f"a common part of {least_shift(noise.shape[1] // 2) / noise.size**0.5:.1%} of the "
        f"variance is found with {SURE:.0%} probability",
    )


def _fresh_noise(bench: Bench) -> Check:
    """No two rounds share their noise, in one training or across two."""
    values = np.concatenate([bench.noise, bench.silent.in_units(bench.again.releases)])
    kept, worst = largest_correlation(values)
    near, lag = standard(lags(bench.noise))
    shared = shared_values(values)
    return finding(
        kept and near and shared <= bench.length // MOST_SHARED,
        "the noise of any two rounds is uncorrelated and has no values in common",
        f"largest correlation {worst:.3f} among {len(values)} rounds of two trainings, {shared} "
        f"values in common, {lag:+.1f} deviations at the worst lag",
        power=f"a correlation of {least_shift(len(bench.noise) // 2) / bench.noise.size**0.5:.1%} "
        f"between neighbouring rounds is found with {SURE:.0%} probability",
    )


def _empty_round(bench: Bench) -> Check:
    """A round without clients is released with the usual noise."""
    trial = bench.sparse()
    transcript = bench.run(trial, "empty")
    nobody = np.array([len(cohort) == 0 for cohort in transcript.cohorts])
    noise = trial.in_units(transcript.releases[nobody]) / trial.claim.noise_multiplier
    if not len(noise):
        clients, per_round = FEW
        chance = (1 - (1 - per_round / clients) ** clients) ** len(nobody)
        return finding(
            chance >= LEVEL,
            "some rounds are empty",
            f"none of {len(nobody)}, which has a chance of {chance:.1g}",
        )
    each = deviations(np.square(noise).sum(axis=1), noise.shape[1], "")
    found = deviations(np.square(noise).sum(keepdims=True), noise.size, "noise of empty rounds")
    return finding(
        each.kept and found.kept,
        "an empty round is released with the same noise",
        f"{len(noise)} empty rounds, noise {found.worst:.3f} of what it must be",
        power=found.power,
    )


def _sampling(bench: Bench, place: int) -> Check:
    return check_sampling(bench.came, CLIENTS_PER_ROUND / CLIENTS)[place]


def _equal_weights(bench: Bench) -> Check:
    """A drawn client moves the release by its vector over m, however many examples it has."""
    trial = bench.honest()
    transcript = bench.run(trial, "weights")
    weights = trial.in_units(transcript.releases[:, : trial.clients])
    due = attendance(transcript.cohorts, trial.clients)
    off = np.abs(weights - due)
    place = np.unravel_index(int(off.argmax()), off.shape)
    return finding(
        float(off.max()) < limit(off.size) * trial.claim.noise_multiplier + 1e-5,
        "each client that comes counts 1/m, the others 0",
        f"at most {off[place]:.2f}/m off: {weights[place]:.2f}/m where {due[place]:.0f}/m is due",
        power=f"a weight that is {2 * limit(off.size) * trial.claim.noise_multiplier:.1%} off is "
        f"found with {SURE:.0%} probability",
    )


def _clipping(bench: Bench) -> Check:
    """A client that sends 100 S in a dense direction counts as one that sends S."""
    rng = np.random.default_rng(seed_sequence(bench.seed, "checks", "directions"))
    dense = rng.standard_normal(bench.length)
    dense /= np.linalg.norm(dense)
    bound = bench.settings.clip_norm
    trial = bench.greedy((100 * bound * dense).astype(np.float32))
    transcript = bench.run(trial, "clipping")
    counted = trial.in_units(transcript.releases @ dense)
    mean = float(counted.mean())
    tolerance = limit() * trial.claim.noise_multiplier / len(counted) ** 0.5 + 1e-3
    return finding(
        abs(mean - 1) < tolerance,
        "an update of norm 100 S counts as S, over all parameters together",
        f"it counts as {mean:.4f} S in {len(counted)} rounds",
        power=f"a bound that is {2 * tolerance:.1%} off is found with {SURE:.0%} probability",
    )


CHECKS: dict[str, Callable[[Bench], Check]] = {
    "noise": _noise,
    "noise of each coordinate": _noise_of_coordinates,
    "noise of each round": _noise_of_rounds,
    "noise and cohort": _noise_and_cohort,
    "noise around zero": _noise_mean,
    "noise is Gaussian": _noise_shape,
    "noise between coordinates": _independent_coordinates,
    "fresh noise": _fresh_noise,
    "empty round": _empty_round,
    "sampling rate": partial(_sampling, place=0),
    "sampling of each client": partial(_sampling, place=1),
    "sampling over rounds": partial(_sampling, place=2),
    "sampling between clients": partial(_sampling, place=3),
    "equal weights": _equal_weights,
    "clipping": _clipping,
}
"""The checks of a path by name."""


DRAWS = 4000
CORE_LENGTH = 64
RATES = ((7, 7), (41, 3), (5, 4), (6, 1))
"""Other pairs of N and m: all are drawn, few, most, and often none."""
OF_SITES, SITE_SIZES = 12, (2, 9)
"""N, and the sizes of sites that draw their own clients."""

Source = Callable[[], Randomness]


def sources(seed: int) -> dict[str, Source]:
    """The two kinds of randomness, as the round core uses them."""
    return {
        "round core, seeded": lambda: SeededRandomness(*seed_sequence(seed, "core").spawn(2)),
        "round core, secure": SecureRandomness,
    }


def core(randomness: Randomness, settings: Settings, clients: int) -> Rounds[Vector]:
    """The round core with simulated clients that send zeros."""
    nothing = np.zeros((clients, CORE_LENGTH), dtype=np.float32)
    recorder = Recorder(Trial(settings, nothing, np.ones(clients, dtype=np.int64)))
    return Rounds(recorder, PrivacyPlan.of(settings, clients), randomness, CORE_LENGTH)


def check_draws(settings: Settings, seed: int, names: Names = None) -> list[tuple[str, Check]]:
    """The checks of sampling on thousands of draws, by path."""
    found: list[tuple[str, Check]] = []
    if names is not None and not any(name.startswith("sampling") for name in names):
        return found
    for path, source in sources(seed).items():
        rounds = core(source(), settings.but(clients_per_round=CLIENTS_PER_ROUND), CLIENTS)
        cohorts = tuple(rounds.draw() for _ in range(DRAWS))
        came = attendance(cohorts, CLIENTS)
        found += [(path, check) for check in check_sampling(came, CLIENTS_PER_ROUND / CLIENTS)]
        for clients, per_round in RATES:
            rounds = core(source(), settings.but(clients_per_round=per_round), clients)
            came = attendance(tuple(rounds.draw() for _ in range(DRAWS // 4)), clients)
            where = f"{path}, {per_round} of {clients}"
            if per_round == clients:
                found.append((where, _everybody(came.all(axis=1).mean())))
            else:
                found += [(where, check) for check in check_sampling(came, per_round / clients)]
    plan = core(SecureRandomness(), settings.but(clients_per_round=3), OF_SITES).plan
    for size in SITE_SIZES:
        cohorts = tuple(vars(site)["sample_clients"](plan, size) for _ in range(DRAWS // 4))
        where = f"a site with {size} of {OF_SITES}"
        drawn = check_sampling(attendance(cohorts, size), 3 / OF_SITES)
        found += [(where, check) for check in drawn]
    return [(path, check) for path, check in found if names is None or check.name in names]


def _everybody(share: float) -> Check:
    return Check(
        "sampling rate",
        share == 1,
        "with m = N every client is drawn",
        f"all were drawn in {share:.1%} of rounds",
    )


def check_rows(settings: Settings, seed: int, names: Names = None) -> list[tuple[str, Check]]:
    """Check the round core on rows that are too long, broken or huge, by path."""
    checks = {"server clips": _server_clips, "broken rows": _broken_rows}
    return [
        (path, check)
        for path, source in sources(seed).items()
        for check in made(
            "mechanism",
            {name: partial(check, source, settings, seed) for name, check in checks.items()},
            names,
        )
    ]


def closed(source: Source, settings: Settings, rows: Vector) -> tuple[Vector, float]:
    """The release of these rows in units of S / m, and the deviation of the noise in it."""
    loose = settings.but(epsilon=LOOSE, clients_per_round=2, rounds=10)
    rounds = core(source(), loose, 4)
    after = rounds.close(np.zeros(CORE_LENGTH, dtype=np.float32), rows)
    return after * np.float32(2 / settings.clip_norm), rounds.plan.noise_multiplier


def _server_clips(source: Source, settings: Settings, seed: int) -> Check:
    rng = np.random.default_rng(seed_sequence(seed, "core", "directions"))
    dense = rng.standard_normal(CORE_LENGTH)
    directions = {
        "spread": dense / np.linalg.norm(dense),
        "in one coordinate": np.eye(CORE_LENGTH)[3],
        "in the last": -np.eye(CORE_LENGTH)[-1],
    }
    worst, where = 0.0, ""
    for name, direction in directions.items():
        for times in (0.5, 1.0, 1.5, 100.0, 1e30):
            row = (times * settings.clip_norm * direction).astype(np.float32)
            released, noise = closed(source, settings, row[None])
            due = min(times, 1.0) * direction
            off = float(np.linalg.norm(released - due)) - noise * (CORE_LENGTH**0.5 + limit(30))
            if off > worst:
                worst, where = off, f" for {times:g} S {name}"
    return finding(
        worst < 1e-3,
        "the server itself counts a row of norm above S as S, whatever the client reports",
        f"at most {worst:.2g} S off{where}, noise taken off",
    )


def _broken_rows(source: Source, settings: Settings, seed: int) -> Check:
    del seed
    bound = settings.clip_norm
    good = np.eye(CORE_LENGTH, dtype=np.float32)[0] * np.float32(bound)
    problem = ""
    for name, value in (("NaN", np.nan), ("inf", np.inf), ("-inf", -np.inf), ("3e38", 3e38)):
        for whole in (False, True):
            bad = np.zeros(CORE_LENGTH, dtype=np.float32)
            bad[slice(None) if whole else 5] = value
            released, noise = closed(source, settings, np.stack([bad, good]))
            allowed = 1.0 + 1e-3 if np.isfinite(value) else 0.0
            tolerance = 1e-3 + noise * (CORE_LENGTH**0.5 + limit(30))
            off = float(np.linalg.norm(released - np.eye(CORE_LENGTH)[0]))
            if not off <= allowed + tolerance:
                problem = problem or f"a row with {name} moves the release by {off:.3g} S"
    return finding(
        not problem,
        "a row that is not finite counts as zero, and every other row as always",
        problem or "rows with NaN, inf and the largest numbers move no other",
    )
