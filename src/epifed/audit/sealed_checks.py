"""Checks of the noise and the price where aggregators add it: what remains against an insider."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from epifed.audit.findings import Check, Names, made
from epifed.audit.label_checks import independent_price, off, printed
from epifed.audit.mechanisms import likelihood_ratio
from epifed.audit.sealed import Played
from epifed.audit.sealed_bench import AWAY, DRAWN, HONEST, LAYOUT, ROUNDS, SealedBench
from epifed.audit.sealed_refusals import REFUSALS
from epifed.audit.sealed_views import VIEWS, draws_told
from epifed.audit.statistics import (
    LEVEL,
    SURE,
    deviations,
    largest_correlation,
    limit,
    shared_values,
    standard,
)
from epifed.learners.base import Floats
from epifed.privacy.noise import STEPS, from_grid
from epifed.privacy.tradeoff import (
    Errors,
    impossible,
    sampled_gaussian_epsilon,
    separation,
    upper_rate,
)
from epifed.settings import Settings, seed_sequence

ATTACKS = 100
"""Attacks that are simulated to say what one finds."""
MOST_SHARED = 8
"""One in so many values of two noises may be the same by chance."""
CLOSE = 1e-4
"""How far, over S, rounding to the grid and to single precision moves a vector at most."""


def check_aggregators(settings: Settings, seed: int = 0, names: Names = None) -> list[Check]:
    """All checks of a federation with aggregators, or those named."""
    bench = SealedBench(settings, seed, LAYOUT)
    of_bench = CHECKS | VIEWS
    checks = {name: partial(check, bench) for name, check in of_bench.items()}
    checks |= {name: partial(check, settings) for name, check in REFUSALS.items()}
    return made("aggregators", checks, names)


def _insider(bench: SealedBench) -> Check:
    """All but one aggregator and one site take off what they know: what does the rest tell?"""
    played, plan = bench.busy, bench.plan
    nothing, canaries = np.zeros(bench.length, dtype=np.int64), bench.layout.canaries
    known = np.stack(
        [sum((v for s, v in sent.items() if s != HONEST), nothing) for sent in played.vectors]
    )
    attacks = []
    for honest in range(len(played.noises)):
        others = np.delete(played.noises, honest, axis=0).sum(axis=0)
        view = ((played.totals - others - known) / STEPS) @ bench.directions.T
        scores = likelihood_ratio(view, plan.calibration)
        attacks.append(_errors(scores[-canaries:], scores[:canaries]))
    errors = max(attacks, key=separation)
    bound = sampled_gaussian_epsilon(errors, plan.delta, plan.sampling_rate, plan.rounds)
    return Check(
        "insider's view",
        bound <= plan.epsilon,
        "the server, all aggregators but one and all sites but one cannot refute a claim of ε = "
        f"{plan.epsilon:g}",
        f"ε ≥ {bound:.3f} measured: of {canaries} canaries they miss at most "
        f"{errors.false_negative:.0%}, with at most {errors.false_positive:.0%} false alarms",
        power=_insider_power(bench),
    )


def _errors(without: Floats, with_canary: Floats) -> Errors:
    """Bounds on the errors of who believes what is likelier.

    Those of both attacks hold together at the checks' level.
    """
    return Errors(
        upper_rate(int((without >= 0).sum()), without.size, LEVEL / 4),
        upper_rate(int((with_canary < 0).sum()), with_canary.size, LEVEL / 4),
    )


def _insider_power(bench: SealedBench) -> str:
    """The least shortfall of noise with which simulated attacks refute the claim."""
    plan, claim = bench.plan, bench.plan.calibration
    rng = np.random.default_rng(seed_sequence(bench.seed, "sealed", "power"))
    shape = (ROUNDS, ATTACKS * bench.layout.canaries)
    drawn = rng.random(shape) < plan.sampling_rate
    clouds = claim.noise_multiplier * rng.standard_normal((2, *shape))
    for tenths in range(1, 11):
        noise = 1 - tenths / 10
        without = likelihood_ratio(noise * clouds[0], claim).reshape(ATTACKS, -1)
        present = likelihood_ratio(drawn + noise * clouds[1], claim).reshape(ATTACKS, -1)
        refuted = [
            impossible(
                _errors(*pair),
                claim.noise_multiplier,
                claim.sampling_rate,
                claim.rounds,
            )
            for pair in zip(without, present, strict=True)
        ]
        if np.mean(refuted) >= SURE:
            return (
                f"an honest aggregator's noise {tenths * 10} % low is found with {SURE:.0%} "
                "probability"
            )
    return "at this claim not even missing noise would be found"


def _null_round(bench: SealedBench) -> Check:
    played, plan = bench.quiet, bench.plan
    number = len(played.noises)
    due = math.sqrt(number) * plan.noise_multiplier * plan.bound / plan.clients_per_round
    values = played.releases.astype(np.float64) / due
    whole = deviations(np.square(values).sum(keepdims=True), values.size, "noise")
    each = deviations(np.square(values).sum(axis=0), len(values), "")
    around, _ = standard(values.sum(axis=0) / len(values) ** 0.5)
    return Check(
        "null round",
        whole.kept and each.kept and around,
        f"where all send zero, the release has {number} times the variance (S·c/m)², around zero",
        f"deviation {whole.worst:.3f} of it in {values.size} values, {each.worst:.2f} in the worst "
        f"of {bench.length} coordinates",
        power=whole.power,
    )


def _noise_of_each(bench: SealedBench) -> Check:
    """Each adds all of it, so that it remains where the others have told theirs."""
    values = np.concatenate([played.noises for played in bench.trainings()]) / bench.deviation
    squares = np.square(values).sum(axis=2)
    found = deviations(squares, bench.length, "")
    whole = deviations(squares.sum(axis=1), ROUNDS * bench.length, "one aggregator's noise")
    return Check(
        "noise of each aggregator",
        found.kept and whole.kept,
        "every aggregator adds noise of deviation S·c in every round, whatever the others add",
        f"{whole.worst:.3f} of it by the worst of {len(values)} aggregators in two trainings, "
        f"{found.worst:.3f} in its worst round",
        power=whole.power,
    )


def _drawn_once(bench: SealedBench) -> Check:
    rows = np.concatenate([played.noises.reshape(-1, bench.length) for played in bench.trainings()])
    kept, worst = largest_correlation(rows / bench.deviation)
    shared = shared_values(rows.astype(np.float64))
    return Check(
        "noise drawn once",
        kept and shared <= bench.length // MOST_SHARED,
        "the noises of any two rounds, aggregators or trainings have nothing in common",
        f"largest correlation {worst:.3f}, {shared} values in common among {len(rows)} noises",
    )


def _exact_sum(bench: SealedBench) -> Check:
    """To the step, whoever drops out. A share too many or too few makes a noise of any size."""
    played, plan, problem = bench.busy, bench.plan, ""
    if (np.abs(played.noises) > limit(played.noises.size) * 1.01 * bench.deviation).any():
        problem = "a partial sum is not that of all shares, each once, and of the noise"
    for away, sent in zip(AWAY, played.vectors, strict=True):
        if {*sent} != {*bench.layout.sites} - away:
            problem = problem or f"{', '.join(sorted(sent))} were added up"
        for site, vector in sent.items():
            weights = bench.weights(vector)
            rest = vector / STEPS - weights @ bench.directions[: bench.layout.clients]
            others = np.delete(weights, [*bench.layout.sites[site]])
            if max(np.abs(rest).max(), np.abs(others).max()) > CLOSE:
                problem = problem or f"what {site} sent is no sum of its clients' vectors"
    released = from_grid(played.totals, plan.bound) / plan.clients_per_round
    if (released.astype(np.float32) != played.releases).any():
        problem = problem or "the release is not the sum of the partial sums over m"
    return Check(
        "exact sum",
        not problem,
        "a release is the sum of the vectors of the sites that came and of all noises, exactly",
        problem or f"so it is in {len(AWAY)} rounds, in one of them with all sites but one away",
    )


def _price(bench: SealedBench) -> Check:
    """Every ε is that of the noise that one aggregator was seen to add; q only if nobody sees."""
    problem, told = "", ""
    for played in bench.trainings():
        rate = 1 / DRAWN
        noises = played.noises / STEPS
        for who, noise in _named_noises(played):
            remains = deviations(
                np.square(noises / noise).sum(axis=(1, 2)), noises[0].size, "remaining noise"
            )
            told = remains.power
            if not remains.kept:
                problem = problem or (
                    f"{who} counts noise of {noise:.4g} S, of which {remains.worst:.3f} remains "
                    "against a coalition"
                )
        due = independent_price(
            rate, played.release.spent[0].noise_multiplier, ROUNDS, bench.plan.delta, "rdp"
        )
        seen = independent_price(
            1.0 if draws_told(played) else rate,
            played.release.spent[0].noise_multiplier,
            ROUNDS,
            bench.plan.delta,
            "rdp",
        )
        (budget,) = played.explained.budgets
        for who, epsilon, least in (
            ("the label", played.release.epsilon, due),
            (
                "the label against who sees the draw",
                played.release.epsilon_without_amplification,
                seen,
            ),
            ("explain", budget.epsilon_spent, due),
            ("explain", played.explained.composed_epsilon, due),
            ("explain against who sees the draw", budget.epsilon_without_amplification, seen),
            ("a sentence", min(printed(played.explained)), due),
        ):
            wrong = off(epsilon, least)
            problem = problem or (wrong and f"{who} {wrong}")
        for who, record in played.books.items():
            if (record.sampling_rate, record.spent) != (rate, ROUNDS):
                problem = problem or (
                    f"the ledger of {who} has {record.spent} rounds at q = {record.sampling_rate}"
                )
        if problem:
            break
    return Check(
        "price against a coalition",
        not problem,
        "ε is that of one aggregator's noise, in label, explain and every ledger; it is amplified "
        "because no message tells the draw",
        problem or f"ε = {bench.busy.release.epsilon:.4f} with 2 aggregators and with 3",
        power=told,
    )


def _named_noises(played: Played) -> list[tuple[str, float]]:
    """Who says which noise multiplier."""
    found = [(f"the ledger of {who}", one.noise_multiplier) for who, one in played.books.items()]
    found += [("the label", one.noise_multiplier) for one in played.release.spent]
    found += [("explain", budget.spent.noise_multiplier) for budget in played.explained.budgets]
    return [*found, ("the pact", played.rounds[0].pact.noise_multiplier)]


CHECKS: dict[str, Callable[[SealedBench], Check]] = {
    "insider's view": _insider,
    "null round": _null_round,
    "noise of each aggregator": _noise_of_each,
    "noise drawn once": _drawn_once,
    "exact sum": _exact_sum,
    "price against a coalition": _price,
}
"""The checks of noise and price by name."""
