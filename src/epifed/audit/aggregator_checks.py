"""Checks of noise, price and messages in a federation with aggregators, against insiders."""

import json
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epifed.audit.bench import (
    AWAY,
    DRAWN,
    HONEST,
    LAYOUT,
    SEALED_ROUNDS,
    Layout,
    Parties,
    Played,
    SealedBench,
    SeenRound,
    Trial,
    at_work,
    likelihood_ratio,
    partial_sum,
    spent,
    work_in,
)
from epifed.audit.price_checks import independent_price, off, printed
from epifed.audit.statistics import (
    LEVEL,
    SURE,
    Check,
    Names,
    check_sampling,
    deviations,
    finding,
    largest_correlation,
    least_plain_share,
    limit,
    made,
    shared_values,
    standard,
    two_sided,
    uniform,
)
from epifed.federation import aggregator
from epifed.federation.aggregator import AggregatorWork
from epifed.federation.crypto import SEED, ReportKey, bound, digest, share_bytes, to_bytes
from epifed.federation.messages import (
    Code,
    Parts,
    Question,
    Report,
    RoundTerms,
    accept_partial,
    pack_question,
    pack_task,
    unpack_task,
)
from epifed.federation.secure_training import AwayError, SecureTraining, question_of
from epifed.federation.site import KEY
from epifed.federation.site import LEDGER as SITE_LEDGER
from epifed.learners.base import Floats
from epifed.privacy.accounting import (
    Errors,
    impossible,
    sampled_gaussian_epsilon,
    separation,
    upper_rate,
)
from epifed.privacy.noise import STEPS, from_grid
from epifed.settings import Settings, seed_sequence

ATTACKS = 100
"""Simulated attacks from which the power of the insider check is computed."""
MOST_SHARED = 8
"""Up to one in this many values of two noises may coincide by chance."""
SMALL_LAYOUT = Layout(120)
CLOSE = 1e-4
"""Upper bound, over S, on how far the grid and single precision move a vector."""


def check_aggregators(
    settings: Settings, seed: int = 0, names: Names = None, *, small: bool = False
) -> list[Check]:
    """All checks of a federation with aggregators, or those named."""
    bench = SealedBench(settings, seed, SMALL_LAYOUT if small else LAYOUT)
    of_bench = CHECKS | VIEWS
    checks = {name: partial(check, bench) for name, check in of_bench.items()}
    checks |= {name: partial(check, settings) for name, check in REFUSALS.items()}
    return made("aggregators", checks, names)


def _insider(bench: SealedBench) -> Check:
    """Bound ε by the attack of a coalition of all but one aggregator and all but one site."""
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
    return finding(
        bound <= plan.epsilon,
        "the server, all aggregators but one and all sites but one cannot refute a claim of ε = "
        f"{plan.epsilon:g}",
        f"ε ≥ {bound:.3f} measured: of {canaries} canaries they miss at most "
        f"{errors.false_negative:.0%}, with at most {errors.false_positive:.0%} false alarms",
        power=_insider_power(bench),
    )


def _errors(without: Floats, with_canary: Floats) -> Errors:
    """Upper bounds on both error rates of a likelihood-ratio attacker.

    The bounds of all attacks (one per aggregator) hold together at the checks' level.
    """
    return Errors(
        upper_rate(int((without >= 0).sum()), without.size, LEVEL / 4),
        upper_rate(int((with_canary < 0).sum()), with_canary.size, LEVEL / 4),
    )


def _insider_power(bench: SealedBench) -> str:
    """Report the smallest shortfall of noise at which simulated attacks refute the claim."""
    plan, claim = bench.plan, bench.plan.calibration
    rng = np.random.default_rng(seed_sequence(bench.seed, "sealed", "power"))
    shape = (SEALED_ROUNDS, ATTACKS * bench.layout.canaries)
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
    return finding(
        whole.kept and each.kept and around,
        f"where all send zero, the release has {number} times the variance (S·c/m)², around zero",
        f"deviation {whole.worst:.3f} of it in {values.size} values, {each.worst:.2f} in the worst "
        f"of {bench.length} coordinates",
        power=whole.power,
    )


def _noise_of_each(bench: SealedBench) -> Check:
    """Each aggregator adds the full noise, so it remains even if all others reveal theirs."""
    values = np.concatenate([played.noises for played in bench.trainings()]) / bench.deviation
    squares = np.square(values).sum(axis=2)
    found = deviations(squares, bench.length, "")
    whole = deviations(squares.sum(axis=1), SEALED_ROUNDS * bench.length, "one aggregator's noise")
    return finding(
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
    return finding(
        kept and shared <= bench.length // MOST_SHARED,
        "the noises of any two rounds, aggregators or trainings have nothing in common",
        f"largest correlation {worst:.3f}, {shared} values in common among {len(rows)} noises",
    )


def _exact_sum(bench: SealedBench) -> Check:
    """The release is exactly the sum of shares and noises, also with dropouts."""
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
    return finding(
        not problem,
        "a release is exactly the sum of the participating sites' vectors and of all noises",
        problem or f"so it is in {len(AWAY)} rounds, in one of them with all sites but one away",
    )


def _price(bench: SealedBench) -> Check:
    """Every reported ε is that of one aggregator's noise, amplified only if no draw is visible."""
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
            rate, played.release.spent[0].noise_multiplier, SEALED_ROUNDS, bench.plan.delta, "rdp"
        )
        seen = independent_price(
            1.0 if draws_told(played) else rate,
            played.release.spent[0].noise_multiplier,
            SEALED_ROUNDS,
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
            if (record.sampling_rate, record.spent) != (rate, SEALED_ROUNDS):
                problem = problem or (
                    f"the ledger of {who} has {record.spent} rounds at q = {record.sampling_rate}"
                )
        if problem:
            break
    return finding(
        not problem,
        "ε is that of one aggregator's noise, in label, explain and every ledger; sampling "
        "amplifies it because no message reveals the draw",
        problem or f"ε = {bench.busy.release.epsilon:.4f} with 2 aggregators and with 3",
        power=told,
    )


def _named_noises(played: Played) -> list[tuple[str, float]]:
    """The noise multiplier that each ledger, label, explanation and round's terms report."""
    found = [(f"the ledger of {who}", one.noise_multiplier) for who, one in played.books.items()]
    found += [("the label", one.noise_multiplier) for one in played.release.spent]
    found += [("explain", budget.spent.noise_multiplier) for budget in played.explained.budgets]
    return [*found, ("the terms of a round", played.rounds[0].terms.noise_multiplier)]


CHECKS: dict[str, Callable[[SealedBench], Check]] = {
    "insider's view": _insider,
    "null round": _null_round,
    "noise of each aggregator": _noise_of_each,
    "noise drawn once": _drawn_once,
    "exact sum": _exact_sum,
    "price against a coalition": _price,
}
"""The checks of noise and price, by name."""


_WORD = 8


def draws_told(played: Played) -> bool:
    """Whether any message to a site reveals which of its clients are drawn."""
    tasks = (parts for seen in played.rounds for parts in seen.tasks.values())
    return any(json.loads(parts["about"])["drawn"] for parts in tasks)


def _fresh_shares(bench: SealedBench) -> Check:
    """No number is in two shares: one seed for both would reveal a difference of hidden vectors."""
    problem, number = "", 0
    for played in bench.trainings():
        every = np.concatenate([np.stack(shares) for shares in played.shares.values()])
        number += len(every)
        _, times = np.unique(every, return_counts=True)
        if times.max() > 1:
            problem = f"{int((times > 1).sum())} numbers are in two shares"
            break
    return finding(
        not problem,
        f"every share of every report is random anew, from {SEED} bytes of its own",
        problem or f"no number in common among {number} shares of two trainings",
    )


def _one_size(bench: SealedBench) -> Check:
    found = bench.again.few
    reports = [parts for sent in found.values() for parts in sent]
    reports += [parts for seen in bench.busy.rounds for parts in seen.reports.values()]
    looks = {_look(parts) for parts in reports}
    return finding(
        len(looks) == 1 and all(found.values()),
        "a report has the same size and content, whether or not a client was drawn",
        f"{len(reports)} reports of {' or '.join(f'{s} bytes beside {t}' for s, t in looks)}",
    )


def _look(parts: Parts) -> tuple[int, str]:
    """A report's size in bytes and its metadata, without the round number."""
    said = json.loads(parts["about"])
    return len(parts["array"]), json.dumps(said | {"round": 0})


def _server_sees(bench: SealedBench) -> Check:
    """Sealed shares, partial sums and the server's disk reveal no contribution."""
    sealed, added, messages = [], [], []
    for played in bench.trainings():
        for seen, reports in zip(played.rounds, played.reports, strict=True):
            for report in reports.values():
                for name, one in zip(played.shares, report.shares, strict=True):
                    sealed.append(one[-share_bytes(bench.length, last=seen.terms.last(name)) :])
            added += [to_bytes(partial_sum(seen, name)) for name in played.shares]
            every = (*seen.reports.values(), *seen.questions.values())
            messages += [parts["array"] for parts in every]
    ciphers = np.frombuffer(b"".join(sealed), dtype=np.uint8)[None]
    rows = _by_place(added)
    hidden, worst = uniform(ciphers)
    even, least = uniform(rows)
    held = b"".join([bench.busy.held["server"], *messages, *added])
    met = _met(bench, held)
    return finding(
        hidden and even and not met,
        "sealed shares and partial sums look uniform (χ²); no contribution on its disk or its way",
        f"p = {worst:.2g} and {least:.2g}; "
        + (f"{met} numbers of contributions" if met else "no number of a contribution")
        + f" in {len(held)} bytes",
        power=_uniform_power(rows),
    )


def _aggregator_sees(bench: SealedBench) -> Check:
    """The shares that an aggregator opens, its sums and its disk reveal no contribution."""
    kept, worst, met, power = True, 1.0, 0, ""
    for played in bench.trainings():
        for name, shares in played.shares.items():
            opened = [to_bytes(one) for one in shares]
            sums = [to_bytes(partial_sum(seen, name)) for seen in played.rounds]
            asked = [seen.questions[name]["array"] for seen in played.rounds]
            rows = _by_place([*opened, *sums])
            even, p = uniform(rows)
            kept, worst, power = kept and even, min(worst, p), _uniform_power(rows)
            if played is bench.busy:
                met += _met(bench, b"".join([played.held[name], *opened, *sums, *asked]))
        if not kept or met:
            break
    return finding(
        kept and not met,
        "the shares that each opens and its sums look uniform (χ²) and hold no contribution",
        f"p = {worst:.2g} in the worst; "
        + (f"{met} numbers of contributions" if met else "no number of a contribution"),
        power=power,
    )


def _by_place(words: Iterable[bytes]) -> NDArray[np.uint8]:
    """Arrange the bytes of numbers by position, since only the high bytes may look unlike noise."""
    return np.frombuffer(b"".join(words), dtype=np.uint8).reshape(-1, _WORD).T


def _uniform_power(rows: NDArray[np.uint8]) -> str:
    share = least_plain_share(rows.shape[1], len(rows))
    return f"{share:.1%} of bytes in the clear is found with {SURE:.0%} probability"


def _met(bench: SealedBench, content: bytes) -> int:
    """Count the numbers of sums or of clients' vectors that occur anywhere in these bytes."""
    found = 0
    for start in range(_WORD):
        usable = (len(content) - start) // _WORD * _WORD
        words = np.frombuffer(content, dtype="<u8", count=usable // _WORD, offset=start)
        found += int(np.isin(words, bench.contributions).sum())
    return found


def _coins(bench: SealedBench) -> Check:
    """Each site draws its own clients independently, and draws anew if it is asked again."""
    came = np.stack([bench.drawn(sent[HONEST]) for sent in bench.busy.vectors])
    broken = [check for check in check_sampling(came, 1 / DRAWN) if not check.passed]
    drawn = [came[0], *(bench.drawn(vector) for vector in bench.again.sent)]
    alike = 1 - 2 / DRAWN + 2 / DRAWN**2
    pairs = [(i, j) for i in range(len(drawn)) for j in range(i)]
    same = [int((drawn[i] == drawn[j]).sum()) for i, j in pairs]
    problem = "; ".join(f"{check.name}: {check.found}" for check in broken)
    if min(two_sided(n, came.shape[1], alike) for n in same) < LEVEL / len(pairs):
        problem = (
            f"two sites that get the same task agree about {max(same)} of {came.shape[1]} clients"
        )
    if any(draws_told(played) for played in bench.trainings()):
        problem = "a task reveals who is drawn"
    return finding(
        not problem,
        f"a site draws each of its clients with q = {1 / DRAWN:g} by coins of its own, which no "
        "message reveals",
        problem
        or f"{came.mean():.3f} of {came.size} coins; sites that get the same task agree "
        f"about {max(same)} of {came.shape[1]} clients where {alike * came.shape[1]:.0f} are due",
    )


def _clip(bench: SealedBench) -> Check:
    """Clients send 100 S and must count S in the site's sum, since no later party can clip."""
    weights = np.concatenate(
        [
            bench.weights(vector)[[*bench.layout.sites[site]]]
            for sent in bench.busy.vectors
            for site, vector in sent.items()
        ]
    )
    counted = weights[np.abs(weights) > 1 / 2]
    most = float(np.abs(weights).max())
    return finding(
        most <= 1 + CLOSE and bool((counted > 1 - CLOSE).all()),
        "in a site's sum each drawn client counts S, however much it sends",
        f"at most {most:.6f} S of {bench.layout.clients} clients in {SEALED_ROUNDS} rounds",
    )


VIEWS: dict[str, Callable[[SealedBench], Check]] = {
    "fresh shares": _fresh_shares,
    "one size of report": _one_size,
    "what the server sees": _server_sees,
    "what an aggregator sees": _aggregator_sees,
    "coins of the sites": _coins,
    "clip of the sites": _clip,
}
"""The checks of what each party sees, by name."""


ASKED_SITES = {"site-1": (0, 1, 2, 3), "site-2": (4, 5), "site-3": (6, 7)}
ASKED_CLIENTS, ASKED_LENGTH = 8, 24
VICTIM, ALLY = "site-1", "site-2"
FIRST, SECOND = "sum-1", "sum-2"


@dataclass(frozen=True)
class Stopped:
    """A round whose reports are in and of which no aggregator has been asked yet."""

    parties: Parties
    training: SecureTraining
    seen: SeenRound
    terms: RoundTerms
    reports: tuple[Report, ...]

    def question(self, name: str = FIRST, reports: tuple[Report, ...] | None = None) -> Question:
        """The question to the first aggregator, or to the second once the first has answered."""
        chosen = self.reports if reports is None else reports
        before = []
        if name == SECOND:
            asked = self.question(FIRST)
            answer = self.parties.aggregators_at_work[FIRST].answer(pack_question(asked))[0]
            before = [accept_partial(answer, asked)]
        return question_of(self.terms, name, chosen, before)

    def answer(self, question: Question | Parts) -> Parts:
        """The answer of the aggregator to which a question is addressed."""
        parts = pack_question(question) if isinstance(question, Question) else question
        name = question.aggregator if isinstance(question, Question) else FIRST
        return self.parties.aggregators_at_work[name].answer(parts)[0]

    def paid(self, name: str) -> int:
        """The number of rounds in a party's own ledger."""
        file = aggregator.LEDGER if name in self.parties.names else SITE_LEDGER
        return spent(self.parties.kit(name) / file)


@contextmanager
def stopped(settings: Settings, number: int = 1, **own: Any) -> Iterator[Stopped]:
    """Stop the first round, or a later one, before the first aggregator's answer."""
    rows = np.full((ASKED_CLIENTS, ASKED_LENGTH), settings.clip_norm, dtype=np.float32)
    chosen = settings.but(
        clients_per_round=ASKED_CLIENTS // DRAWN, rounds=SEALED_ROUNDS, accountant="rdp"
    )
    trial = Trial(chosen, rows, np.ones(ASKED_CLIENTS, dtype=np.int64))
    with at_work(trial, ASKED_SITES, **own) as (parties, sealed):
        training = parties.training(sealed)
        for _ in range(1, number):
            training.play(parties, lambda _: None)
        parties.mute = {FIRST}
        try:
            training.play(parties, lambda _: None)
        except AwayError:
            parties.mute = set()
        seen = parties.seen[-1]
        reports = tuple(
            parties.report(parts, seen.terms, site) for site, parts in sorted(seen.reports.items())
        )
        yield Stopped(parties, training, seen, seen.terms, reports)


def _code(parts: Parts) -> str:
    """The code of an answer; 'accepted' if it has none."""
    return str(json.loads(parts["about"]).get("code", "accepted"))


def _signed(stop: Stopped, site: str, shares: tuple[bytes, ...]) -> Report:
    """A report of these shares, signed with the site's own key."""
    key = ReportKey.read(stop.parties.kit(site) / KEY)
    content = bound("report", stop.terms.digest, site, *map(digest, shares))
    return Report(site, shares, key.sign(content))


def _bound(settings: Settings) -> Check:
    """A sealed share opens only for its own round and site, even if it is signed again."""
    with stopped(settings, 2) as stop:
        first = stop.parties.seen[0]
        old = stop.parties.report(first.reports[VICTIM], first.terms, VICTIM)
        now = next(report for report in stop.reports if report.site == VICTIM)
        replayed = _code(stop.answer(question_of(stop.terms, FIRST, (old,), [])))
        problem = "" if replayed == Code.SIGNATURE else f"an old report: {replayed}"
        attacks = {
            "a share under an ally's name": (ALLY, now.shares),
            "an old share under an ally's name": (ALLY, old.shares),
            "an old share, signed anew": (VICTIM, old.shares),
        }
        for what, (site, shares) in attacks.items():
            others = tuple(report for report in (now,) if report.site != site)
            reports = (*others, _signed(stop, site, shares))
            question = question_of(stop.terms, FIRST, reports, [])
            work = AggregatorWork(stop.parties.copied(FIRST))
            answer, _ = work.answer(pack_question(question))
            unopened = () if "array" not in answer else accept_partial(answer, question).unopened
            if unopened != (site,):
                problem = problem or f"{what} is opened"
    return finding(
        not problem,
        "a share counts once, for its own round and site, even if an ally signs a copy of it",
        problem or f"not opened: {', '.join(attacks)}; an old report is refused",
    )


def _same_answer(settings: Settings) -> Check:
    """A second, different answer in a round would be a second release charged only once."""
    problem = ""
    with stopped(settings) as stop:
        stop.training.play(stop.parties, lambda _: None)
        seen = stop.seen
        for name, answer in seen.answers.items():
            question = seen.question(name)
            for work in (
                stop.parties.aggregators_at_work[name],
                AggregatorWork(stop.parties.kit(name)),
            ):
                if work.answer(seen.questions[name])[0] != answer:
                    problem = problem or f"{name} answers the same question otherwise"
                other = pack_question(replace(question, reports=question.reports[1:]))
                if _code(work.answer(other)[0]) == "accepted":
                    problem = problem or f"{name} answers another question of the same round"
        for name, report in seen.reports.items():
            task = unpack_task(seen.tasks[name])
            site = work_in(stop.parties.kit(name))
            if site.answer(seen.tasks[name])[0] != report:
                problem = problem or f"{name} answers the same task otherwise"
            other_task = pack_task(replace(task, state=task.state + 1))
            if _code(site.answer(other_task)[0]) == "accepted":
                problem = problem or f"{name} answers another task of the same round"
        counts = {name: stop.paid(name) for name in (*seen.answers, *seen.reports)}
        if {*counts.values()} != {1}:
            problem = problem or f"rounds charged: {counts}"
    return finding(
        not problem,
        "the same question brings the same bytes, also after a restart, and is charged once; "
        "another one in its round is refused",
        problem or f"so it is with {len(counts)} parties",
    )


def _always_noise(settings: Settings) -> Check:
    """No sum leaves without noise, whichever reports are relayed or spoiled."""
    worst, problem = math.inf, ""
    with stopped(settings) as stop:
        plan = stop.training.plan
        spoiled = [
            _signed(stop, report.site, tuple(bytes(len(share)) for share in report.shares))
            for report in stop.reports
        ]
        (first, *_), others = stop.reports, stop.reports[1:]
        relayed: dict[str, tuple[Report, ...]] = {
            "all reports": stop.reports,
            "one report alone": (first,),
            "no report": (),
            "one spoiled report": (spoiled[0], *others),
            "one report beside spoiled ones": (first, *spoiled[1:]),
            "spoiled reports alone": tuple(spoiled),
        }
        for what, reports in relayed.items():
            question = question_of(stop.terms, FIRST, reports, [])
            noises = []
            for _ in range(COPIES_ASKED):
                answer, _ = AggregatorWork(stop.parties.copied(FIRST)).answer(
                    pack_question(question)
                )
                if "array" not in answer:
                    break
                total = accept_partial(answer, question).total
                for report in question.reports:
                    opened = stop.parties.share(stop.terms, FIRST, report.site, report.share)
                    if opened is not None:
                        total = total - opened
                noises.append(total.view(np.int64) / (plan.noise_multiplier * STEPS))
            if noises:
                values = np.concatenate(noises)
                verdict = deviations(np.square(values).sum(keepdims=True), values.size, what)
                worst = min(worst, verdict.worst)
                if not verdict.kept:
                    problem = problem or f"{what}: noise of {verdict.worst:.2f} times S·c"
    return finding(
        not problem and worst < math.inf,
        "an aggregator's sum has noise of deviation S·c, whichever reports it was given and "
        "whatever of them can be opened",
        problem or f"{worst:.2f} of it in the worst of {len(relayed)} questions",
    )


COPIES_ASKED = 8
"""Copies of an aggregator that are asked the same question, to see more of their noise."""

REFUSALS: dict[str, Callable[[Settings], Check]] = {
    "noise in every sum": _always_noise,
    "old and copied shares": _bound,
    "same answer twice": _same_answer,
}
"""The checks of what parties refuse, by name."""
