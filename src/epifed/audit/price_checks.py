"""Checks of labels and ledgers: every ε that is printed covers the releases that were made.

The price is computed a second time here, from q = m / N, the observed rounds and the noise that
the label names, with dp-accounting alone; none of the package's own accounting is used.
"""

import math
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any, cast
from unittest import mock

import dp_accounting as dp
import numpy as np
from dp_accounting.pld import PLDAccountant, privacy_loss_distribution
from dp_accounting.rdp import RdpAccountant
from scipy.optimize import brentq
from scipy.stats import norm

from epifed.audit.bench import (
    PLENTY,
    EngineMechanism,
    Listening,
    SitesPost,
    Trial,
    agreeable,
    answer_of,
    audit_panel,
    plenty,
    roster,
    serve,
    site_works,
    workshop,
)
from epifed.audit.statistics import Check, Names, attendance, deviations, finding, made
from epifed.errors import EpifedError
from epifed.explain import Explanation, explain
from epifed.federation.messages import MessageError, RoundTerms, Task
from epifed.federation.server import ServedTraining, read_state
from epifed.federation.terms import SiteLedger
from epifed.federation.training_history import budget_of
from epifed.learners.base import Vector, make_learner
from epifed.ledger.budget import Cap, Rule, plan_year
from epifed.ledger.ledger import Ledger, OverspendError
from epifed.privacy.accounting import (
    LossDistribution,
    calibrate,
    epsilon_of,
    hushed,
    rounded_up,
    training_event,
)
from epifed.privacy.plan import PrivacyPlan, Spent
from epifed.registry import ACCOUNTANTS
from epifed.settings import Settings, seed_sequence
from epifed.training import loop as training
from epifed.training.loop import ledger_key
from epifed.training.release import Release, read_release
from epifed.training.rounds import vector_length

CLIENTS, CLIENTS_PER_ROUND, ROUNDS = 8, 2, 3
TOO_MUCH = 1.02
"""Factor by which an ε may exceed the independent one, because of other grids and orders."""
ROUNDING = 1e-6
_EPSILON = re.compile(r"ε = ([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)")
_ADD_OR_REMOVE = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
_PLD_STEP = 1e-3


Part = tuple[float, float, int]
"""Rounds of one mechanism: the sampling rate q, the noise multiplier c, how many."""


def independent_price(
    rate: float, noise: float, rounds: int, delta: float, accountant: str
) -> float:
    """The ε of this many rounds, by dp-accounting directly."""
    return independent_epsilon([(rate, noise, rounds)], delta, accountant)


def independent_epsilon(parts: Sequence[Part], delta: float, accountant: str) -> float:
    """The ε of rounds of different mechanisms together, by dp-accounting directly."""
    kind = accountant if accountant in ("rdp", "pld") else "rdp"
    return _composed(tuple((float(q), float(c), int(n)) for q, c, n in parts), delta, kind)


@lru_cache(maxsize=512)
def _composed(parts: tuple[Part, ...], delta: float, accountant: str) -> float:
    most = max(noise for _, noise, _ in parts)
    composing: Any = RdpAccountant(neighboring_relation=_ADD_OR_REMOVE)
    if accountant == "pld":
        composing = PLDAccountant(_ADD_OR_REMOVE, value_discretization_interval=_step(most))
    with hushed("absl"):
        for rate, noise, rounds in parts:
            gaussian = dp.GaussianDpEvent(noise)
            event = gaussian if rate == 1 else dp.PoissonSampledDpEvent(rate, gaussian)
            composing.compose(event, rounds)
        return float(composing.get_epsilon(delta))


def least_epsilon(parts: Sequence[Part], delta: float) -> float:
    """A lower bound that no correct accountant's ε of these rounds is below.

    At q = 1 it is the exact ε of the Gaussians together (Balle and Wang, 2018), by an own formula;
    with sampling it is that of an optimistic privacy loss distribution.
    """
    if all(rate == 1 for rate, _, _ in parts):
        mu = math.sqrt(sum(rounds / noise**2 for _, noise, rounds in parts))
        return _gaussian_epsilon(mu, delta)
    return _optimistic(tuple(parts), delta)


@lru_cache(maxsize=64)
def _optimistic(parts: tuple[Part, ...], delta: float) -> float:
    step = 2e-3 / max(1.0, *(noise for _, noise, _ in parts))
    total: Any = None
    for rate, noise, rounds in parts:
        one = privacy_loss_distribution.from_gaussian_mechanism(
            noise,
            sampling_prob=rate,
            pessimistic_estimate=False,
            value_discretization_interval=step,
            use_connect_dots=False,
        ).self_compose(rounds)
        total = one if total is None else total.compose(one)
    return max(0.0, float(total.get_epsilon_for_delta(delta)))


def price_range(parts: Sequence[Part], delta: float, accountant: str) -> tuple[float, float]:
    """The range in which an accountant's price of these rounds must lie.

    The Rényi price is computed a second time. Any other price lies above the exact ε and not above
    the Rényi price.
    """
    usual = independent_epsilon(parts, delta, "rdp")
    if accountant == "rdp":
        return usual * (1 - ROUNDING), usual * TOO_MUCH
    return least_epsilon(parts, delta) * (1 - ROUNDING), usual * TOO_MUCH


@contextmanager
def remembered_prices() -> Iterator[None]:
    """Compute each price of a privacy loss distribution only once, since it takes a second."""
    honest, known = LossDistribution.price, dict[str, Any]()

    def price(self: LossDistribution, event: dp.DpEvent, delta: float) -> Any:
        key = f"{event!r} {delta!r}"
        if key not in known:
            known[key] = honest(self, event, delta)
        return known[key]

    with mock.patch.object(LossDistribution, "price", price):
        yield


def _gaussian_epsilon(mu: float, delta: float) -> float:
    """The ε at which a Gaussian mechanism of this μ has this δ."""

    def excess(epsilon: float) -> float:
        first = norm.logcdf(mu / 2 - epsilon / mu)
        second = epsilon + norm.logcdf(-mu / 2 - epsilon / mu)
        return float(math.exp(first) - math.exp(second) - delta)

    if excess(0.0) <= 0:
        return 0.0
    upper = 1.0
    while excess(upper) > 0:
        upper *= 2
    return float(brentq(excess, 0.0, upper, xtol=1e-10)) * (1 - 1e-9)


def printed_epsilons(text: str) -> list[float]:
    """Every ε in a sentence."""
    return [float(value) for value in _EPSILON.findall(text)]


def _step(noise: float) -> float:
    """The grid step of privacy losses: finer with more noise, since losses are smaller."""
    return _PLD_STEP / max(1.0, noise)


def check_labels(settings: Settings, names: Names = None) -> list[Check]:
    """All checks of labels, or those named."""
    checks: dict[str, Callable[[Settings], Check]] = {
        "ε rounded up": _printed,
        "label of repeated rounds": _repeated_rounds,
        "label of a continued release": _continued,
        "price of each kind of noise": _who_adds_noise,
        "explained price": _explained,
        "accountants": _accountants,
        "mixtures in a ledger": _mixed_ledger,
        "years in a ledger": _long_ledger,
        "cap that renews": _renewing_cap,
        "plan of a year": _year_plan,
        "mixtures in a file": _mixed_file,
    }
    with remembered_prices():
        return made("labels", {name: partial(c, settings) for name, c in checks.items()}, names)


MIXTURES: tuple[tuple[Part, ...], ...] = (
    ((1.0, 12.0, 1), (1.0, 3.0, 1), (1.0, 40.0, 6)),
    ((0.25, 4.0, 5), (0.5, 4.0, 2), (1.0, 12.0, 2)),
    ((0.25, 4.8631, 7),),
)
"""Trainings of different q, noise and rounds, as in a year of a federation."""


def mixtures_for(accountant: str) -> list[tuple[Part, ...]]:
    """The mixtures that an accountant prices: one without a proof for sampling refuses q < 1."""
    if prices_sampling(accountant):
        return list(MIXTURES)
    return [parts for parts in MIXTURES if all(rate == 1.0 for rate, _, _ in parts)]


def prices_sampling(accountant: str) -> bool:
    """Whether an accountant prices rounds to which only some clients are drawn."""
    try:
        epsilon_of(training_event(0.5, 4.0, 1), 1e-5, accountant)
    except EpifedError:
        return False
    return True


def _accountants(settings: Settings) -> Check:
    """Every accountant's price of every mixture lies between the exact ε and the Rényi bound."""
    problem, tried = "", 0
    for name in ACCOUNTANTS.names():
        for parts in mixtures_for(name):
            events = [training_event(*part) for part in parts]
            composed = dp.ComposedDpEvent(events) if len(events) > 1 else events[0]
            found = epsilon_of(composed, settings.delta, name)
            least, usual = price_range(parts, settings.delta, name)
            tried += 1
            if not least <= found <= usual:
                problem = problem or (
                    f"{name} gives ε = {found:.4g} of {parts}, of which {least:.4g} is the least "
                    f"and {usual:.4g} the most"
                )
    for epsilon, rate, rounds in ((settings.epsilon, 1.0, 1), (0.5, 1.0, 5), (3.0, 0.25, 20)):
        for name in ACCOUNTANTS.names():
            if rate < 1 and not prices_sampling(name):
                continue
            noise = calibrate(epsilon, settings.delta, rate, rounds, name).noise_multiplier
            least = least_epsilon([(rate, noise, rounds)], settings.delta)
            if least > epsilon * (1 + ROUNDING):
                problem = problem or (
                    f"{name} asks for c = {noise:.4g} at q = {rate:g}, which costs {least:.4g} "
                    f"where {epsilon:g} is allowed"
                )
    return finding(
        not problem,
        "every accountant's ε and noise lie between what is exactly true and the Rényi bound",
        problem or f"so it is in {tried} compositions",
    )


YEARS = 157
"""The weekly trainings of three years, and one more."""


def _long_ledger(settings: Settings) -> Check:
    """A ledger counts every training, however many follow; a quarter more does not fit."""
    week, problem = (1.0, 20.0, 1), ""
    delta = min(settings.delta, 1e-3)
    least, most = price_range([(1.0, 20.0, YEARS)], delta, "rdp")
    with workshop() as folder:
        ledger = Ledger.create(folder / "years.db", Cap(1.0001 * most, delta, "rdp"))
        for number in range(YEARS):
            run = _reserved(ledger, number, week)
            ledger.spend(run, 1)
            if number % 3:  # the others stay open
                ledger.close(run, "finished" if number % 3 == 1 else "abandoned")
        book = Ledger(ledger.path).book()
        try:
            _reserved(ledger, YEARS, (1.0, 20.0, YEARS // 4))
            problem = "a training beyond the cap is reserved"
        except OverspendError:
            pass
    for who, spending in (
        ("the ledger", book.released()),
        ("the room that is taken", book.taken()),
        ("all since the beginning", book.since_the_beginning()),
    ):
        if not least <= (epsilon := book.cap.price(spending)) <= most:
            problem = problem or f"{who} gives ε = {epsilon:.4g}, {least:.4g} is due"
    return finding(
        not problem,
        f"a ledger counts all of {YEARS} trainings, and refuses a quarter more",
        problem or "so it is",
    )


RENEWED_WEEKS = 4


def _renewing_cap(settings: Settings) -> Check:
    """A renewing cap counts all of its last weeks, and the total counts everything."""
    delta, problem = min(settings.delta, 1e-3), ""
    now = datetime(2030, 6, 3, 12, tzinfo=UTC)
    with workshop() as folder:
        cap = Cap(PLENTY, delta, "rdp", RENEWED_WEEKS)
        ledger = Ledger.create(folder / "renewing.db", cap)
        runs = [_reserved(ledger, week, (1.0, 20.0 + week, 1)) for week in range(9)]
        for run in runs[:-1]:
            ledger.spend(run, 1)
            ledger.close(run, "finished", model_hash="0" * 64)
        book = ledger.book()
    for week, run in enumerate(runs[:-1]):  # closed eight weeks ago, seven weeks ago, …
        closed = now - timedelta(weeks=8 - week, hours=-1)
        book.runs[run].closed = closed.isoformat(timespec="seconds")
    parts = [(1.0, 20.0 + week, 1) for week in range(9)]
    recent = parts[8 - RENEWED_WEEKS :]
    for who, spending, due in (
        ("the ledger", book.released(now=now), recent[:-1]),
        ("the room that is taken", book.taken(now=now), recent),
        ("all since the beginning", book.since_the_beginning(), parts),
    ):
        least, most = price_range(due, delta, "rdp")
        if not least <= (epsilon := book.cap.price(spending)) <= most:
            problem = problem or f"{who} gives ε = {epsilon:.4g}, {least:.4g} is due"
    return finding(
        not problem,
        f"a cap that renews counts all of the last {RENEWED_WEEKS} weeks and what is open",
        problem or "so it is",
    )


def _year_plan(settings: Settings) -> Check:
    """The noise of a year's weeks stays within the plan's ε, whatever was released."""
    delta, weeks, spent = min(settings.delta, 1e-3), 52, 1 / 30.0**2
    turning = [0.3 * (-1) ** week for week in range(weeks)]
    problem = ""
    for rule, growth in (("uniform", ()), ("trend", turning), ("trend", [0.0] * weeks)):
        planned = plan_year(Cap(1.0, delta, "gaussian"), weeks, cast(Rule, rule), growth, spent)
        total = spent
        for week in planned:
            total += 1 / week.noise_multiplier**2
            exact = _gaussian_epsilon(math.sqrt(total), delta)
            if not exact <= week.epsilon_together * (1 + ROUNDING) <= 1 + 2 * ROUNDING:
                problem = problem or (
                    f"{rule}: ε = {week.epsilon_together:.5g} is planned up to week {week.week}, "
                    f"{exact:.5g} is due and 1 allowed"
                )
    return finding(
        not problem,
        "the ε up to each week is that of its noise, and never above the year's",
        problem or f"so it is in {weeks} weeks of three plans",
    )


def _reserved(ledger: Ledger, number: int, part: Part) -> str:
    """Reserve a training in a ledger; returns the run's name."""
    rate, noise, rounds = part
    run = ledger.reserve(
        training=f"week-{number}",
        sampling_rate=rate,
        noise_multiplier=noise,
        rounds=rounds,
        settings_hash="0" * 64,
        first_day=None,
        last_day=None,
    )
    return run.name


def _mixed_ledger(settings: Settings) -> Check:
    """Prices, room and page of a ledger with trainings of different noise and q."""
    problem = ""
    for name in ACCOUNTANTS.names():
        for parts in mixtures_for(name):
            delta = min(settings.delta, 1e-3)
            least, most = price_range(parts, delta, name)
            with workshop() as folder:
                ledger = Ledger.create(folder / "mixed.db", Cap(1.01 * most, delta, name))
                for number, part in enumerate(parts):
                    run = _reserved(ledger, number, part)
                    for played in range(part[2]):
                        ledger.spend(run, played + 1)
                    ledger.close(run, "finished", model_hash="0" * 64)
                book = Ledger(ledger.path).book()
                budget = budget_of(book, None, None, None, set(), datetime.now(UTC))
            for who, epsilon in (
                ("the ledger", book.cap.price(book.released())),
                ("the room that is taken", book.cap.price(book.taken())),
                ("the page's budget", budget.spent),
                ("the last point of its curve", budget.points[-1].epsilon),
            ):
                if not least <= epsilon <= most:
                    problem = problem or (
                        f"{who} gives ε = {epsilon:.4g} by {name} of {parts}, {least:.4g} is due"
                    )
            tight = Cap(least * 0.99, delta, name)
            if tight.allows(book.released()) or not Cap(most * 1.01, delta, name).allows(
                book.released()
            ):
                problem = problem or f"a cap 1 % from the price of {parts} is judged wrongly"
    return finding(
        not problem,
        "a ledger with trainings of different noise, q and rounds shows what they cost together",
        problem or f"so it is for {len(MIXTURES)} mixtures by each accountant",
    )


def _mixed_file(settings: Settings) -> Check:
    """Label, sentence and explanation of a file that continues releases of different noise."""
    problem = ""
    first, _ = released(small(settings, accountant="rdp"))
    for name in ACCOUNTANTS.names():
        for parts in mixtures_for(name):
            mixed = replace(
                first,
                spent=tuple(Spent(*part) for part in parts),
                settings=first.settings.but(accountant=name, clients_per_round=first.clients),
                randomness="secure",
                continues="0" * 64,
            )
            mixed = replace(mixed, sha256=mixed.content_hash())
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "model.epifed"
                mixed.write(path)
                told, again = explain(path), read_release(path)
            delta = settings.delta
            due, _ = price_range(parts, delta, name)
            seen, _ = price_range([(1.0, c, n) for _, c, n in parts], delta, name)
            sentence = printed_epsilons(again.sentence())
            for who, epsilon, least in (
                ("the label", again.epsilon, due),
                ("the label against who sees the draw", again.epsilon_without_amplification, seen),
                ("the sentence", min(sentence), due),
                ("the sentence against who sees the draw", max(sentence), seen),
                ("explain", told.composed_epsilon, due),
                ("explain's sentences", max(printed(told)), due),
            ):
                if epsilon < least:
                    problem = problem or (
                        f"{who} gives ε = {epsilon:.4g} by {name} of {parts}, {least:.4g} is due"
                    )
            for budget in told.budgets:
                part = (budget.spent.sampling_rate, budget.spent.noise_multiplier)
                alone, _ = price_range([(*part, budget.spent.rounds)], delta, name)
                bare, _ = price_range([(1.0, part[1], budget.spent.rounds)], delta, name)
                if budget.epsilon_spent < alone * (
                    1 - 2e-3
                ) or budget.epsilon_without_amplification < bare * (1 - 2e-3):
                    problem = problem or f"explain says too little of one training in {parts}"
    return finding(
        not problem,
        "a file with releases of different noise has their joint ε, both values",
        problem or f"so it is for {len(MIXTURES)} mixtures by each accountant",
    )


def small(settings: Settings, **changes: Any) -> Settings:
    """Settings of a training of a few rounds by a learner without networks."""
    values: dict[str, Any] = {
        "clients_per_round": CLIENTS_PER_ROUND,
        "rounds": ROUNDS,
        "epsilon": settings.epsilon,
        "delta": settings.delta,
        "accountant": settings.accountant if settings.accountant in ("rdp", "pld") else "rdp",
        "clip_norm": settings.clip_norm,
    }
    return Settings.for_learner("trend", CLIENTS, **(values | changes))


def released(settings: Settings, earlier: Release | None = None) -> tuple[Release, list[int]]:
    """The release of a training in one process, and the number of each observed round."""
    panel = audit_panel()
    period = (panel.start, panel.end)
    view = make_learner(settings).deployed_view(panel, period)
    seen: list[int] = []
    done = training.train(
        view, settings, watch=lambda i, _: seen.append(i), period=period, earlier=earlier
    )
    assert done.release is not None
    return done.release, seen


def noise_of(release: Release) -> float:
    """c of the newest training inside a release."""
    return release.spent[-1].noise_multiplier


def printed(told: Explanation) -> list[float]:
    """Every ε in the sentences of an explanation."""
    return printed_epsilons(" ".join(told.sentences()))


def off(found: float, due: float, grid: float = 0.0) -> str:
    """What is wrong with an ε, in words; empty if it matches, up to what a grid rounds up."""
    if not math.isfinite(found) or found < due * (1 - ROUNDING) - grid:
        return f"gives ε = {found:.6g} where {due:.6g} is due"
    return f"gives ε = {found:.6g}, far above {due:.6g}" if found > due * TOO_MUCH + 1e-4 else ""


def _printed(settings: Settings) -> Check:
    """Every printed ε is rounded up."""
    del settings
    low: list[str] = []
    for epsilon in (1.0000001, 2.7182818284, 0.123456749, 9.99999951, 1e-5 / 3, 123456.7):
        if float(rounded_up(epsilon)) < epsilon:
            low.append(f"{epsilon!r} as {rounded_up(epsilon)}")
    chosen = small(Settings())
    release, _ = released(chosen)
    for epsilon in (1.00000051, 2.7182818284):
        labelled = replace(release, randomness="secure")
        vars(labelled)["epsilon"] = epsilon  # what the label computes, taken as known
        label = labelled.sentence()
        price = replace(PrivacyPlan.of(chosen, CLIENTS).calibration, epsilon=epsilon).sentence()
        for sentence in (label, price):
            said = printed_epsilons(sentence)
            if not said or min(said) < epsilon:
                low.append(f"{epsilon!r} in '{sentence[:40]}…'")
    return finding(
        not low,
        "a printed ε is never below the true one",
        f"found {'; '.join(low)}" if low else "rounded up wherever it is printed",
    )


def _repeated_rounds(settings: Settings) -> Check:
    """More or fewer rounds than planned are charged as such."""
    chosen = small(settings, accountant="rdp")
    plan = PrivacyPlan.of(chosen, CLIENTS)
    learner, panel = make_learner(chosen), audit_panel()
    state = learner.start(seed_sequence(0))
    problem = ""
    for paid in (1, ROUNDS, ROUNDS + 1, 5 * ROUNDS):
        release = Release.of(
            learner,
            state,
            plan,
            paid=paid,
            period=(panel.start, panel.end),
            randomness="secure",
            ledger_run=None,
        )
        due = independent_price(
            CLIENTS_PER_ROUND / CLIENTS, plan.noise_multiplier, paid, chosen.delta, "rdp"
        )
        wrong = off(release.epsilon, due)
        problem = problem or (wrong and f"after {paid} paid rounds the label {wrong}")
    return finding(
        not problem,
        "rounds that were run and charged again count again in the label",
        problem or f"so it is from 1 to {5 * ROUNDS} rounds",
    )


def _continued(settings: Settings) -> Check:
    """The label of a release that continues others covers all of them, however small the last."""
    chosen = small(settings, accountant="rdp")
    first, _ = released(chosen)
    second, _ = released(chosen, first)
    third, _ = released(chosen, second)
    rate = CLIENTS_PER_ROUND / CLIENTS
    due = independent_price(rate, noise_of(third), 3 * ROUNDS, chosen.delta, "rdp")
    wrong = off(third.epsilon, due)
    bare, _ = released(chosen.but(epsilon=math.inf))
    mixed, _ = released(chosen, bare)
    if math.isfinite(mixed.epsilon):
        wrong = f"of a noise-free state that was continued gives ε = {mixed.epsilon:.4g}"
    return finding(
        not wrong,
        "a file's ε is composed from every release inside it",
        f"the label {wrong}" if wrong else f"three trainings in one file are ε = {due:.4f}",
    )


def _who_adds_noise(settings: Settings) -> Check:
    """Local noise is priced at q = 1 and added by each drawn client; shares leave N − 1 enough."""
    problem = ""
    sent = np.zeros((CLIENTS, 256), dtype=np.float32)
    for noise in ("server", "clients", "local"):
        chosen = settings.but(
            noise=noise, clients_per_round=CLIENTS_PER_ROUND, rounds=40, accountant="rdp"
        )
        plan = PrivacyPlan.of(chosen, CLIENTS)
        rate = 1.0 if noise == "local" else CLIENTS_PER_ROUND / CLIENTS
        due = independent_price(rate, plan.noise_multiplier, 40, chosen.delta, "rdp")
        for price in (plan.price(40).epsilon_spent, plan.calibration.epsilon_spent):
            wrong = off(price, due)
            problem = problem or (wrong and f"'{noise}' {wrong}")
        again = independent_price(rate, plan.noise_multiplier, 7, chosen.delta, "rdp")
        wrong = off(plan.price(7).epsilon_spent, again)
        problem = problem or (wrong and f"'{noise}' after 7 rounds {wrong}")
        trial = Trial(chosen, sent, np.ones(CLIENTS, dtype=np.int64))
        seen = EngineMechanism().run(trial, seed_sequence(0, "who adds", noise))
        came = attendance(seen.cohorts, CLIENTS).sum(axis=1)
        factor = {
            "server": np.ones(len(came)),
            "clients": np.full(len(came), math.sqrt(CLIENTS / (CLIENTS - 1))),
            "local": np.sqrt(came),
        }[noise]
        values = trial.in_units(seen.releases) / plan.noise_multiplier
        some = factor > 0
        values = values[some] / factor[some, None]
        found = deviations(np.square(values).sum(keepdims=True), values.size, "noise")
        if not found.kept:
            problem = problem or f"'{noise}' adds {found.worst:.3f} of its noise"
    return finding(
        not problem,
        "noise of the server, in shares, or of each client is priced as it is added",
        problem or "so it is for all three",
    )


def _explained(settings: Settings) -> Check:
    """`explain` gives the same ε for a file as its label, at the same q."""
    problem = ""
    for noise in ("server", "local"):
        chosen = small(settings, accountant="rdp", noise=noise)
        release, _ = released(chosen)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.epifed"
            release.write(path)
            told, again = explain(path), read_release(path)
        rate = 1.0 if noise == "local" else CLIENTS_PER_ROUND / CLIENTS
        due = independent_price(rate, noise_of(release), ROUNDS, chosen.delta, "rdp")
        for what, epsilon in (
            ("the file", again.epsilon),
            ("explain", told.composed_epsilon),
            ("explain", min(budget.epsilon_spent for budget in told.budgets)),
        ):
            wrong = off(epsilon, due)
            problem = problem or (wrong and f"of noise '{noise}' {what} {wrong}")
        said = printed(told)
        if said and min(said) < due * (1 - ROUNDING):
            problem = problem or f"of noise '{noise}' explain prints ε = {min(said)}"
    return finding(
        not problem,
        "explain and a file that was read again give the ε of the events inside",
        problem or "so it is for noise of the server and of each client",
    )


class _StoppedError(EpifedError):
    """Raised by a ledger that cannot be written to."""


def check_ledger(settings: Settings, names: Names = None) -> list[Check]:
    """All checks of the ledger, or those named."""
    chosen = small(settings, accountant="rdp", rounds=ROUNDS)
    checks: dict[str, Callable[[Settings], Check]] = {
        "unpaid round in a federation": _unpaid_in_a_federation,
        "cap": _over_the_cap,
        "restored copy": _restored_copy,
        "same name, other noise": _same_name,
        "site's own book": _site_book,
        "site's own terms": _site_terms,
    }
    return made("ledger", {name: partial(c, chosen) for name, c in checks.items()}, names)


class _Noting(Ledger):
    """A ledger that records every charge, and what was visible at that moment."""

    events: list[str]
    look: Callable[[], Any] = staticmethod(lambda: None)
    stop_at: int | None = None

    def spend(self, run: str, number: int) -> None:
        if number == self.stop_at:
            raise _StoppedError("the disk is full")
        self.events.append(f"seen {self.look()} at payment {number}")
        super().spend(run, number)
        self.events.append(f"paid {number}")


def _noting(folder: Path, settings: Settings) -> _Noting:
    path = plenty(folder, settings).path
    noting = _Noting(path)
    noting.events = []
    return noting


def _trained(ledger: _Noting, settings: Settings) -> None:
    """A training in one process that records its releases and states among the charges."""
    panel = audit_panel()
    period = (panel.start, panel.end)
    learner = make_learner(settings)
    honest = learner.step
    numbers = iter(range(1, settings.rounds + 1))

    def step(state: Any, release: Vector, noise_std: float) -> Any:
        ledger.events.append(f"released {next(numbers)}")
        return honest(state, release, noise_std)

    learner.step = step  # type: ignore[method-assign]
    training.train(
        learner.deployed_view(panel, period),
        settings,
        learner=learner,
        ledger=ledger,
        period=period,
        watch=lambda i, _: ledger.events.append(f"visible {i}"),
    )


def _served_training(
    folder: Path, settings: Settings, ledger: Ledger | None
) -> tuple[ServedTraining, SitesPost, Listening]:
    panel = audit_panel()
    federation = roster(panel.regions, 2)
    works = site_works(folder, federation, panel)
    post = SitesPost({name: answer_of(work) for name, work in works.items()})
    training = serve(folder, federation, settings, panel, ledger)
    listening = Listening.to(training.rounds.randomness)
    training.rounds = replace(training.rounds, randomness=listening)
    return training, post, listening


def _unpaid_in_a_federation(settings: Settings) -> Check:
    with workshop() as folder:
        ledger = _noting(folder, settings)
        ledger.stop_at = 2
        served, post, _ = _served_training(folder, settings, ledger)
        reported: list[int] = []
        try:
            while not served.finished:
                served.play(post, lambda line: reported.append(line["round"]))
            stopped = False
        except _StoppedError:
            stopped = True
        seen = (read_state(served.folder) or (0,))[0]
    kept = stopped and seen == 1 and reported == [1]
    return finding(
        kept,
        "a round that cannot be written down changes neither state nor report",
        "the state stays as it was" if kept else f"state of round {seen}, reports {reported}",
    )


def _over_the_cap(settings: Settings) -> Check:
    """A training that does not fit is refused before any client is drawn."""
    plan = PrivacyPlan.of(settings, CLIENTS)
    delta = min(settings.delta, 1e-3)
    rate = CLIENTS_PER_ROUND / CLIENTS
    cost = independent_price(rate, plan.noise_multiplier, settings.rounds, delta, "rdp")
    found: list[str] = []
    for cap, fits in ((0.98 * cost, False), (1.02 * cost, True)):
        with workshop() as folder:
            path = Ledger.create(folder / "cap.db", Cap(cap, delta, "rdp")).path
            ledger = _Noting(path)
            ledger.events = []
            try:
                _trained(ledger, settings)
                ran = True
            except EpifedError:
                ran = False
            if ran != fits or (ledger.events and not fits):
                found.append(
                    f"a cap of {cap / cost:.2f} of the cost: {'ran' if ran else 'refused'}"
                )
    return finding(
        not found,
        "a training runs if and only if it fits under the cap, or nobody is drawn",
        "; ".join(found) or "2 % too little is refused, 2 % more is enough",
    )


def _restored_copy(settings: Settings) -> Check:
    with workshop() as folder:
        ledger = _noting(folder, settings)
        backup = folder / "backup.db"
        shutil.copy(ledger.path, backup)
        _trained(ledger, settings)
        ledger.path.unlink()
        shutil.copy(backup, ledger.path)
        try:
            again = _Noting(ledger.path)
            again.events = []
            _trained(again, settings)
            refused = False
        except EpifedError:
            refused = True
    return finding(
        refused,
        "a ledger that was restored from an older copy spends nothing",
        "it is refused" if refused else "it spent what had been spent before",
    )


def _same_name(settings: Settings) -> Check:
    """A run is identified by everything that prices it, not by its name alone."""
    louder = settings.but(epsilon=20 * settings.epsilon)
    with workshop() as folder:
        ledger = plenty(folder, settings)
        first, post, _ = _served_training(folder / "one", settings, ledger)
        first.play(post, lambda _: None)
        try:
            other, post, _ = _served_training(folder / "two", louder, ledger)
            other.play(post, lambda _: None)
            runs = ledger.book().runs
            record = runs[other.run or ""]
            kept = other.run != first.run and record.noise_multiplier == other.plan.noise_multiplier
        except EpifedError:
            kept = True
    return finding(
        kept,
        "a training under a used name with other noise is refused, or a run of its own",
        "so it is" if kept else "its rounds stand in the ledger at the first one's noise",
    )


def _task(settings: Settings, **changes: Any) -> Task:
    panel, plan = audit_panel(), PrivacyPlan.of(settings, CLIENTS)
    learner, period = make_learner(settings), (panel.start, panel.end)
    start = learner.start(seed_sequence(0))
    state, length = learner.pack(start), vector_length(learner, start)
    terms = RoundTerms.make("weekly", settings, plan, period, state, length)
    clients = panel.regions[::2]
    return replace(Task.to(terms, "audit", clients, "0" * len(clients), state), **changes)


def _site_book(settings: Settings) -> Check:
    """A site's ledger counts every answer, whether or not clients are drawn."""
    plan = PrivacyPlan.of(settings, CLIENTS)
    problem = ""
    with workshop() as folder:
        book = SiteLedger(folder / "site.db", agreeable())
        for _ in range(5):
            book.take_part(_task(settings), settings, plan)
        runs = book.ledger.book().runs.values()
        booked = sum(record.spent for record in runs)
        if booked != 5:
            problem = f"{booked} rounds booked for 5 answers"
        try:
            book.take_part(_task(settings, noise_multiplier=1e5), settings, plan)
            problem = problem or "the same name with other noise was taken"
        except MessageError:
            pass
    return finding(
        not problem,
        "a site books every answer, drawn or not, and no name twice with other noise",
        problem or "5 answers, 5 rounds; other noise is refused",
    )


def _site_terms(settings: Settings) -> Check:
    """A site judges by its own ε, δ and accountant, not by those in the task."""
    plan = PrivacyPlan.of(settings, CLIENTS)
    rate = CLIENTS_PER_ROUND / CLIENTS
    found: list[str] = []
    for accountant, (times, fits) in product(("rdp", "pld"), ((0.98, False), (1.02, True))):
        event = rate, plan.noise_multiplier, settings.rounds
        cost = independent_price(*event, 1e-5, accountant)
        terms = agreeable(epsilon_per_release=times * cost, delta=1e-5, accountant=accountant)
        for told in (1e-5, 1e-2):
            said = settings.but(delta=told)
            task = _task(said, noise_multiplier=plan.noise_multiplier)
            try:
                terms.refuse(task, said, PrivacyPlan.of(said, CLIENTS))
                taken = True
            except MessageError:
                taken = False
            if taken != fits:
                found.append(f"{times:g} of the cost at δ = {told:g}: {'taken' if taken else 'no'}")
    key = ledger_key(plan, settings, None, "weekly")
    if key["sampling_rate"] != rate or key["noise_multiplier"] != plan.noise_multiplier:
        found.append("a key without its price")
    return finding(
        not found,
        "a site refuses what costs more than its terms allow, at its own δ",
        "; ".join(found) or "2 % too much is refused, whatever δ the server names",
    )
