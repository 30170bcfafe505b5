"""Checks of what a party sees alone, and of what each site does by itself: coins, clip, shares."""

import json
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from epifed.audit.findings import Check
from epifed.audit.sampling_checks import check_sampling
from epifed.audit.sealed import Played, partial_sum
from epifed.audit.sealed_bench import DRAWN, HONEST, ROUNDS, SealedBench
from epifed.audit.statistics import LEVEL, SURE, least_plain_share, two_sided, uniform
from epifed.federation.crypto import SEED, share_bytes, to_bytes
from epifed.federation.messages import Parts

CLOSE = 1e-4
_WORD = 8


def draws_told(played: Played) -> bool:
    """Whether any message to a site says who of its clients is drawn."""
    tasks = (parts for seen in played.rounds for parts in seen.tasks.values())
    return any(json.loads(parts["about"])["drawn"] for parts in tasks)


def _fresh_shares(bench: SealedBench) -> Check:
    """Two shares from one seed would give away the difference of what they hide."""
    problem, number = "", 0
    for played in bench.trainings():
        every = np.concatenate([np.stack(shares) for shares in played.shares.values()])
        number += len(every)
        _, times = np.unique(every, return_counts=True)
        if times.max() > 1:
            problem = f"{int((times > 1).sum())} numbers are in two shares"
            break
    return Check(
        "fresh shares",
        not problem,
        f"every share of every report is random anew, from {SEED} bytes of its own",
        problem or f"no number in common among {number} shares of two trainings",
    )


def _one_size(bench: SealedBench) -> Check:
    found = bench.again.few
    reports = [parts for sent in found.values() for parts in sent]
    reports += [parts for seen in bench.busy.rounds for parts in seen.reports.values()]
    looks = {_look(parts) for parts in reports}
    return Check(
        "one size of report",
        len(looks) == 1 and all(found.values()),
        "a report has the same size, and says the same, whether or not a client was drawn",
        f"{len(reports)} reports of {' or '.join(f'{s} bytes beside {t}' for s, t in looks)}",
    )


def _look(parts: Parts) -> tuple[int, str]:
    """A report from outside: its bytes, and what is said beside them, the round's number apart."""
    said = json.loads(parts["about"])
    return len(parts["array"]), json.dumps(said | {"round": 0})


def _server_sees(bench: SealedBench) -> Check:
    """The sealed shares, the partial sums, its own disk. Of a seal, what the cipher wrote."""
    sealed, added, messages = [], [], []
    for played in bench.trainings():
        for seen, reports in zip(played.rounds, played.reports, strict=True):
            for report in reports.values():
                for name, one in zip(played.shares, report.shares, strict=True):
                    sealed.append(one[-share_bytes(bench.length, last=seen.pact.last(name)) :])
            added += [to_bytes(partial_sum(seen, name)) for name in played.shares]
            every = (*seen.reports.values(), *seen.questions.values())
            messages += [parts["array"] for parts in every]
    ciphers = np.frombuffer(b"".join(sealed), dtype=np.uint8)[None]
    rows = _by_place(added)
    hidden, worst = uniform(ciphers)
    even, least = uniform(rows)
    held = b"".join([bench.busy.held["server"], *messages, *added])
    met = _met(bench, held)
    return Check(
        "what the server sees",
        hidden and even and not met,
        "sealed shares and partial sums look uniform (χ²); no contribution on its disk or its way",
        f"p = {worst:.2g} and {least:.2g}; "
        + (f"{met} numbers of contributions" if met else "no number of a contribution")
        + f" in {len(held)} bytes",
        power=_power(rows),
    )


def _aggregator_sees(bench: SealedBench) -> Check:
    """The shares that it opens, its own sums, its own disk."""
    kept, worst, met, power = True, 1.0, 0, ""
    for played in bench.trainings():
        for name, shares in played.shares.items():
            opened = [to_bytes(one) for one in shares]
            sums = [to_bytes(partial_sum(seen, name)) for seen in played.rounds]
            asked = [seen.questions[name]["array"] for seen in played.rounds]
            rows = _by_place([*opened, *sums])
            even, p = uniform(rows)
            kept, worst, power = kept and even, min(worst, p), _power(rows)
            if played is bench.busy:
                met += _met(bench, b"".join([played.held[name], *opened, *sums, *asked]))
        if not kept or met:
            break
    return Check(
        "what an aggregator sees",
        kept and not met,
        "the shares that each opens and its sums look uniform (χ²) and hold no contribution",
        f"p = {worst:.2g} in the worst; "
        + (f"{met} numbers of contributions" if met else "no number of a contribution"),
        power=power,
    )


def _by_place(words: Iterable[bytes]) -> NDArray[np.uint8]:
    """The bytes of numbers by their place in a number: the high ones would be bare first."""
    return np.frombuffer(b"".join(words), dtype=np.uint8).reshape(-1, _WORD).T


def _power(rows: NDArray[np.uint8]) -> str:
    share = least_plain_share(rows.shape[1], len(rows))
    return f"{share:.1%} of bytes in the clear is found with {SURE:.0%} probability"


def _met(bench: SealedBench, content: bytes) -> int:
    """How many numbers of sums or of clients' vectors are somewhere among these bytes."""
    found = 0
    for start in range(_WORD):
        usable = (len(content) - start) // _WORD * _WORD
        words = np.frombuffer(content, dtype="<u8", count=usable // _WORD, offset=start)
        found += int(np.isin(words, bench.contributions).sum())
    return found


def _coins(bench: SealedBench) -> Check:
    """Each site tosses for its own clients, and the same task draws others the next time."""
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
        problem = "a task says who is drawn"
    return Check(
        "coins of the sites",
        not problem,
        f"a site draws each of its clients with q = {1 / DRAWN:g} by coins of its own, which no "
        "message tells",
        problem
        or f"{came.mean():.3f} of {came.size} coins; sites that get the same task agree "
        f"about {max(same)} of {came.shape[1]} clients where {alike * came.shape[1]:.0f} are due",
    )


def _clip(bench: SealedBench) -> Check:
    """Nobody after the site can clip: its clients send 100 S and must count S."""
    weights = np.concatenate(
        [
            bench.weights(vector)[[*bench.layout.sites[site]]]
            for sent in bench.busy.vectors
            for site, vector in sent.items()
        ]
    )
    counted = weights[np.abs(weights) > 1 / 2]
    most = float(np.abs(weights).max())
    return Check(
        "clip of the sites",
        most <= 1 + CLOSE and bool((counted > 1 - CLOSE).all()),
        "in a site's sum each drawn client counts S, however much it sends",
        f"at most {most:.6f} S of {bench.layout.clients} clients in {ROUNDS} rounds",
    )


VIEWS: dict[str, Callable[[SealedBench], Check]] = {
    "fresh shares": _fresh_shares,
    "one size of report": _one_size,
    "what the server sees": _server_sees,
    "what an aggregator sees": _aggregator_sees,
    "coins of the sites": _coins,
    "clip of the sites": _clip,
}
"""These checks by name."""
