"""Labels against what ran: an ε that is printed is that of the events inside, and never less.

The price is computed here a second time, from q = m / N, the rounds that were seen and the noise
that the label names, with dp-accounting alone; none of the package's own accounting is used.
"""

import math
import re
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import dp_accounting as dp
import numpy as np
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from epifed.audit.findings import Check, Names, made
from epifed.audit.learner_checks import audit_panel
from epifed.audit.mechanisms import EngineMechanism, Trial
from epifed.audit.sampling_checks import attendance
from epifed.audit.served import Post, answer_of, roster, serve, site_works, workshop
from epifed.audit.statistics import deviations
from epifed.explain import Explanation, explain
from epifed.learners.base import make_learner
from epifed.privacy.accounting import hushed, rounded_up
from epifed.privacy.plan import PrivacyPlan
from epifed.settings import Settings, seed_sequence
from epifed.training import loop
from epifed.training.release import Release, read_release

CLIENTS, CLIENTS_PER_ROUND, ROUNDS = 8, 2, 3
TOO_MUCH = 1.02
"""An ε may be this much above the independent one: other grids, other orders."""
ROUNDING = 1e-6
_EPSILON = re.compile(r"ε = ([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)")
_ADD_OR_REMOVE = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
_PLD_STEP = 1e-4


def independent_price(
    rate: float, noise: float, rounds: int, delta: float, accountant: str
) -> float:
    """The ε of so many rounds, by dp-accounting directly."""
    gaussian = dp.GaussianDpEvent(noise)
    event = gaussian if rate == 1 else dp.PoissonSampledDpEvent(rate, gaussian)
    with hushed("absl"):
        if accountant == "pld":
            pld = PLDAccountant(_ADD_OR_REMOVE, value_discretization_interval=_step(noise))
            return float(pld.compose(event, rounds).get_epsilon(delta))
        rdp = RdpAccountant(neighboring_relation=_ADD_OR_REMOVE)
        return float(rdp.compose(event, rounds).get_epsilon(delta))


def _step(noise: float) -> float:
    """The grid of privacy losses, finer where there is more noise and so less loss."""
    return _PLD_STEP / max(1.0, noise)


def check_labels(settings: Settings, names: Names = None) -> list[Check]:
    """All checks of labels, or those named."""
    checks: dict[str, Callable[[Settings], Check]] = {
        "label of a release": _release_label,
        "ε rounded up": _printed,
        "label of repeated rounds": _repeated_rounds,
        "label of a continued release": _continued,
        "label of a federation": _reports,
        "price of each kind of noise": _who_adds_noise,
        "explained price": _explained,
    }
    return made("labels", {name: partial(c, settings) for name, c in checks.items()}, names)


def small(settings: Settings, **changes: Any) -> Settings:
    """A training of a few rounds by a learner without networks."""
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
    """The release of a training in one process, and the number of each round that was seen."""
    panel = audit_panel()
    period = (panel.start, panel.end)
    view = make_learner(settings).deployed_view(panel, period)
    seen: list[int] = []
    done = loop.train(
        view, settings, watch=lambda i, _: seen.append(i), period=period, earlier=earlier
    )
    assert done.release is not None
    return done.release, seen


def noise_of(release: Release) -> float:
    """c of the newest training inside a release."""
    return release.spent[-1].noise_multiplier


def printed(told: Explanation) -> list[float]:
    """Every ε in the sentences of an explanation."""
    return [float(value) for value in _EPSILON.findall(" ".join(told.sentences()))]


def off(found: float, due: float, grid: float = 0.0) -> str:
    """What is wrong with an ε, in words; nothing if it is due, up to what a grid rounds up."""
    if not math.isfinite(found) or found < due * (1 - ROUNDING) - grid:
        return f"says ε = {found:.6g} where {due:.6g} is due"
    return f"says ε = {found:.6g}, far above {due:.6g}" if found > due * TOO_MUCH + 1e-4 else ""


def _release_label(settings: Settings) -> Check:
    """A release's ε, δ and accountant, of both accountants."""
    problem, shown = "", ""
    for accountant in ("rdp", "pld"):
        chosen = small(settings, accountant=accountant)
        release, seen = released(chosen)
        rounds = len(seen) - 1
        due = independent_price(
            CLIENTS_PER_ROUND / CLIENTS, noise_of(release), rounds, chosen.delta, accountant
        )
        shown = f"ε = {release.epsilon:.4f}, {due:.4f} by an independent composition"
        grid = rounds * _step(noise_of(release)) if accountant == "pld" else 0.0
        wrong = off(release.epsilon, due, grid)
        said = (release.delta, release.accountant, release.clients)
        if said != (chosen.delta, accountant, CLIENTS):
            wrong = f"says δ, accountant and N = {said}"
        if rounds != chosen.rounds:
            wrong = f"is of {rounds} rounds where {chosen.rounds} were asked for"
        if release.epsilon > chosen.epsilon * (1 + ROUNDING):
            wrong = f"costs ε = {release.epsilon:.6g} where {chosen.epsilon:g} was asked for"
        problem = problem or (wrong and f"{accountant}: the label {wrong}")
    return Check(
        "label of a release",
        not problem,
        "a release's ε is that of its rounds, noise and q, at the δ and accountant it names",
        problem or shown,
    )


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
            said = [float(value) for value in _EPSILON.findall(sentence)]
            if not said or min(said) < epsilon:
                low.append(f"{epsilon!r} in '{sentence[:40]}…'")
    return Check(
        "ε rounded up",
        not low,
        "a printed ε is never below the true one",
        f"found {'; '.join(low)}" if low else "rounded up wherever it is printed",
    )


def _repeated_rounds(settings: Settings) -> Check:
    """More rounds than planned, and fewer, cost what they cost."""
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
    return Check(
        "label of repeated rounds",
        not problem,
        "rounds that were run and paid for again count again in the label",
        problem or f"so it is from 1 to {5 * ROUNDS} rounds",
    )


def _continued(settings: Settings) -> Check:
    """A release that continues others costs what all of them cost, however small the last."""
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
        wrong = f"of a noise-free state that was continued says ε = {mixed.epsilon:.4g}"
    return Check(
        "label of a continued release",
        not wrong,
        "a file's ε is composed from every release inside it",
        f"the label {wrong}" if wrong else f"three trainings in one file are ε = {due:.4f}",
    )


def _reports(settings: Settings) -> Check:
    """What a federation reports round by round, and the label of its file."""
    chosen = small(settings, accountant="rdp", rounds=2)
    panel = audit_panel()
    with workshop() as folder:
        federation = roster(panel.regions, 2)
        works = site_works(folder, federation, panel)
        post = Post({name: answer_of(work) for name, work in works.items()})
        served = serve(folder, federation, chosen, panel)
        lines: list[dict[str, Any]] = []
        while not served.finished:
            served.play(post, lines.append)
        release = served.finish()
        announced = {
            float(re.search(r'"noise_multiplier": ([0-9.e+-]+)', parts["about"])[1])  # type: ignore[index]
            for tasks in post.tasks
            for parts in tasks.values()
        }
    noise, rate = noise_of(release), CLIENTS_PER_ROUND / CLIENTS
    problem = ""
    for number, line in enumerate(lines, start=1):
        due = independent_price(rate, noise, number, chosen.delta, "rdp")
        wrong = off(float(line["epsilon"]), due)
        problem = problem or (wrong and f"the report of round {number} {wrong}")
    wrong = off(release.epsilon, independent_price(rate, noise, len(lines), chosen.delta, "rdp"))
    problem = problem or (wrong and f"the file {wrong}")
    if announced != {noise}:
        problem = problem or f"sites are told c = {announced}, the file says {noise:.4g}"
    return Check(
        "label of a federation",
        not problem,
        "reports, file and what sites are told are of one price: that of the rounds played",
        problem or f"so it is in {len(lines)} rounds",
    )


def _who_adds_noise(settings: Settings) -> Check:
    """Local noise is priced at q = 1 and carried by each who came; shares leave N − 1 enough."""
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
    return Check(
        "price of each kind of noise",
        not problem,
        "noise of the server, in shares, or of each client is priced as it is added",
        problem or "so it is for all three",
    )


def _explained(settings: Settings) -> Check:
    """`explain` says of a file what its label says, at the same q."""
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
    return Check(
        "explained price",
        not problem,
        "explain and a file that was read again say the ε of the events inside",
        problem or "so it is for noise of the server and of each client",
    )
