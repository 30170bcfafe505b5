"""Hostile versions of every party: each message is changed in each field and in its bytes.

A real round is stopped, its messages are changed, and the deployed receiver gets them. Changes
of signed content must be refused and not charged. Other changes may be answered only within the
receiver's terms: rows of norm at most S, of its own clients, each answer in its own ledger.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from epifed.audit.aggregator_checks import ALLY, ASKED_SITES, FIRST, SECOND, VICTIM, stopped
from epifed.audit.bench import (
    SEALED_ROUNDS,
    SitesPost,
    answer_of,
    plenty,
    roster,
    serve,
    site_works,
    spent,
    work_in,
    workshop,
)
from epifed.audit.combination_checks import panel_of
from epifed.audit.statistics import Check, Names, finding, made
from epifed.errors import EpifedError
from epifed.federation.aggregator import AggregatorWork
from epifed.federation.crypto import SecretKeys
from epifed.federation.messages import (
    Code,
    Delivery,
    MessageError,
    Parts,
    accept_partial,
    pack_question,
    pack_task,
    unpack_task,
)
from epifed.federation.secure_training import collect
from epifed.federation.server import take_in
from epifed.federation.site import LEDGER as SITE_LEDGER
from epifed.federation.site import SiteWork
from epifed.federation.terms import Terms
from epifed.ledger.ledger import Ledger
from epifed.settings import Settings
from epifed.training.rounds import SLACK

REGIONS = 8
FLIPS = 24
"""Number of places in the bytes of a message at which a bit is flipped."""


def changed(parts: Parts) -> Iterator[tuple[str, Parts]]:
    """Variants of a message: fields left out, of another type, of other values; flipped bits."""
    about = json.loads(parts["about"])
    for key, value in about.items():
        tried = {json.dumps(value)}
        others: list[Any] = [None, [], {}, "x", -1, 10**12, 0.5]
        if isinstance(value, int | float):
            others += [value + 1, value * 2, value / 2, float("nan"), float("inf")]
        if isinstance(value, str):
            others += [value + "0", value[:-1], value.replace("0", "1", 1) + "#"]
        if isinstance(value, list):
            others += [value[:-1], [*value, *value[:1]], value[::-1] if len(value) > 1 else ["x"]]
            odd = (float("inf"), -1, 10**30, [2], None)
            others += [[each, *value[1:]] for each in odd] if value else []
        for other in others:
            if json.dumps(other) not in tried:
                tried.add(json.dumps(other))
                message = json.dumps(about | {key: other})
                yield f"{key} = {str(other)[:20]}", parts | {"about": message}
        rest = {name: each for name, each in about.items() if name != key}
        yield f"no {key}", parts | {"about": json.dumps(rest)}
    for text in ("", "[]", "[" * 100_000, "null", 3):
        yield "no message", parts | {"about": text}
    array = parts.get("array") or b""
    for content in (b"", array[:-1], array + b"\0", None, "x"):
        yield "another array", parts | {"array": content}
    for at in np.linspace(0, len(array) - 1, FLIPS).astype(int) if array else []:
        flipped = bytearray(array)
        flipped[at] ^= 0x40
        yield f"byte {at}", parts | {"array": bytes(flipped)}


def _code(parts: Parts) -> str:
    """The code of an answer; empty if the answer has numbers."""
    code = str(json.loads(parts["about"]).get("code", ""))
    return code if not code or code in set(Code) else f"'{code}' in words"


def check_hostile(settings: Settings, names: Names = None) -> list[Check]:
    """All checks of hostile parties, or those named."""
    checks: dict[str, Callable[[Settings], Check]] = {
        "hostile: server to site": _server_to_site,
        "hostile: server to site that seals": _server_to_sealing_site,
        "hostile: server to aggregator": _server_to_aggregator,
        "hostile: server that invents a release": _invented_release,
        "hostile: site to server": _site_to_server,
        "hostile: site to server, sealed": _sealed_site_to_server,
        "hostile: aggregator to server": _aggregator_to_server,
    }
    return made(
        "hostile", {name: partial(check, settings) for name, check in checks.items()}, names
    )


def _found(expected: str, wrong: list[str], tried: int) -> Check:
    shown = f"{len(wrong)} of {tried}: {wrong[0]}" if wrong else f"so it is with {tried} messages"
    return finding(not wrong and tried > 20, expected, shown)


# A server that is trusted with vectors, and its sites


@dataclass(frozen=True)
class _Served:
    """A secure round of a federation: its tasks and answers, under terms with limits."""

    settings: Settings
    terms: Terms
    tasks: dict[str, Parts]
    answers: dict[str, Parts]
    works: dict[str, SiteWork]
    rounds: Any


@contextmanager
def _served(settings: Settings) -> Iterator[_Served]:
    panel = panel_of("day")
    chosen = Settings.for_learner(
        "fedavg", REGIONS, model="linear", epochs=1, clients_per_round=REGIONS, rounds=2,
        epsilon=settings.epsilon, delta=1e-5,
    )  # fmt: skip
    terms = Terms(
        epsilon_per_release=settings.epsilon * 1.01,
        epsilon_total=settings.epsilon * 2.5,
        last_day=panel.end,
        first_day=panel.start,
    )
    with workshop() as folder:
        federation = roster(panel.regions, 2).model_copy(update={"terms": terms})
        works = site_works(folder, federation, panel)
        post = SitesPost({name: answer_of(work) for name, work in works.items()})
        served = serve(folder, federation, chosen, panel, plenty(folder, chosen))
        served.play(post, lambda _: None)
        yield _Served(chosen, terms, post.tasks[0], post.answers[0], works, served.rounds)


def _server_to_site(settings: Settings) -> Check:
    """Whatever a server asks, a site sends bounded rows of drawn clients, charged to its ledger."""
    wrong, tried = list[str](), 0
    with _served(settings) as play:
        work = play.works["site-1"]
        task = unpack_task(play.tasks["site-1"])
        limit = play.terms.limits["clip_norm"]
        own = {"settings": play.settings.but(clip_norm=2 * limit).to_toml()}
        forbidden: dict[str, dict[str, Any]] = {
            "S beyond its limits": own,
            "predictable noise": {"randomness": "seeded"},
            "hardly any noise": {"noise_multiplier": task.noise_multiplier / 3},
            "no noise": {"noise_multiplier": 0.0},
            "days before those it offers": {"first_day": "2020-01-01"},
            "days after those it offers": {"last_day": "2031-01-01"},
            "rounds repeated 500 times": {"paid": 500},
        }
        for what, changes in forbidden.items():
            tried += 1
            answer, _ = work.answer(pack_task(replace(task, training=f"t-{tried}", **changes)))
            if not _code(answer):
                wrong.append(f"{what} is answered")
        some = replace(task, drawn="10" * (len(task.clients) // 2))
        for what, parts in changed(pack_task(some)):
            tried += 1
            before = spent(work.kit / SITE_LEDGER)
            answer, _ = work.answer(parts)
            wrong += [f"{what}: {why}" for why in _beyond(answer, parts, play)]
            if not _code(answer) and spent(work.kit / SITE_LEDGER) <= before:
                wrong.append(f"{what} is answered and not booked")
        book = Ledger(work.kit / SITE_LEDGER).book()
        total = book.cap.price(book.released())
        if total > play.terms.epsilon_total * (1 + 1e-9):
            wrong.append(f"its ledger has ε = {total:.4g} of {play.terms.epsilon_total:.4g}")
    return _found("a site answers within its terms alone, and books every answer", wrong, tried)


def _beyond(answer: Parts, asked: Parts, play: _Served) -> list[str]:
    """The parts of an answer that no server may get, in words."""
    code = _code(answer)
    if code:
        return [code] if "words" in code else []
    about, task = json.loads(answer["about"]), unpack_task(asked)
    rows = np.frombuffer(answer["array"], dtype=np.float32).reshape(about["shape"])
    idle = [i for i in range(len(rows)) if i not in task.chosen()]
    bound = Settings.from_toml(task.settings).clip_norm
    found = []
    if rows[idle].any():
        found.append("a client that was not drawn is sent")
    norms = np.linalg.norm(rows.astype(np.float64), axis=1)
    if not np.isfinite(norms).all() or norms.max(initial=0.0) > bound * (1 + SLACK):
        found.append("a row beyond S is sent")
    if bound > play.terms.limits["clip_norm"]:
        found.append(f"S = {bound:g} is beyond the site's limits")
    return found


def _site_to_server(settings: Settings) -> Check:
    """Whatever a site answers, the server sums only bounded rows of that site's drawn clients."""
    wrong, tried = list[str](), 0
    with _served(settings) as play:
        for site, answer in play.answers.items():
            task = unpack_task(play.tasks[site])
            drawn = {task.clients[i] for i in task.chosen()}
            others = [c for c in panel_of("day").regions if c not in task.clients]
            about = json.loads(answer["about"])
            hostile = [
                *changed(answer),
                *(
                    (f"{key} of others", answer | {"about": json.dumps(about | {key: others})})
                    for key in ("clients", "client", "rows", "drawn")
                ),
                *_spoiled(answer, play.settings.clip_norm),
            ]
            for what, parts in hostile:
                tried += 1
                try:
                    vectors, problems, _ = take_in({site: parts}, {site: task}, play.rounds)
                except Exception as error:
                    wrong.append(f"{what} stops the server: {type(error).__name__}")
                    continue
                norms = [float(np.linalg.norm(v.astype(np.float64))) for v in vectors.values()]
                if vectors.keys() - drawn:
                    wrong.append(f"{what}: rows of {sorted(vectors.keys() - drawn)} are taken")
                most = play.settings.clip_norm * (1 + SLACK)
                if any(not norm <= most for norm in norms):
                    wrong.append(f"{what}: a row of {max(norms):.3g} is summed")
                if what.startswith(("round", "training", "no round")) and vectors:
                    wrong.append(f"{what} is taken for this round")
                if what.startswith("one row") and len(vectors) < len(drawn) - 1:
                    wrong.append(f"{what}: other rows of the site do not count")
                if any(problem.site != site for problem in problems):
                    wrong.append(f"{what} is blamed on another site")
    expected = "a server sums bounded rows of a site's own drawn clients, of this round alone"
    return _found(expected, wrong, tried)


def _spoiled(answer: Parts, bound: float) -> Iterator[tuple[str, Parts]]:
    """Variants of an answer with rows that are not finite or too long."""
    about = json.loads(answer["about"])
    for value in (np.nan, np.inf, -np.inf, 3e38, 100 * bound, bound):
        rows = np.full(about["shape"], value, dtype=np.float32)
        yield f"rows of {value:g}", answer | {"array": rows.tobytes()}
        some = np.frombuffer(answer["array"], dtype=np.float32).reshape(about["shape"]).copy()
        for place in range(len(some)):
            one = some.copy()
            one[place] = value
            yield f"one row of {value:g}", answer | {"array": one.tobytes()}


# A server that is not trusted


def _server_to_aggregator(settings: Settings) -> Check:
    """Sites sign all that a question contains, so no change of it is answered."""
    expected = "an aggregator refuses a question of which anything was changed, and books nothing"
    wrong, tried = list[str](), 0
    with stopped(settings) as stop:
        question = pack_question(stop.question())
        for what, parts in changed(question):
            tried += 1
            wrong += _refusal(what, stop.parties.aggregators_at_work[FIRST].answer(parts)[0])
        relayed, *others = stop.question().reports
        for what, reports in {
            "no signature": (replace(relayed, signature=bytes(64)), *others),
            "a stranger": (replace(relayed, site="site-9"), *others),
            "two of one site": (relayed, *others, relayed),
            "another's share": (replace(relayed, share=others[0].share), *others),
            "another's signature": (replace(relayed, signature=others[0].signature), *others),
        }.items():
            tried += 1
            wrong += _refusal(what, stop.answer(replace(stop.question(), reports=reports)))
        if stop.paid(FIRST):
            wrong.append(f"{stop.paid(FIRST)} refused rounds were charged")
        if wrong:
            return _found(expected, wrong, tried)
        fewer = stop.question(SECOND, stop.reports[1:])
        wrong += _refusal("other reports for the second", stop.answer(fewer))
        alone = replace(stop.question(SECOND), before=())
        wrong += _refusal("a second without the first", stop.answer(alone))
        if stop.paid(SECOND):
            wrong.append(f"{stop.paid(SECOND)} refused rounds were charged")
    with stopped(settings, epsilon_total=settings.epsilon / 100) as stop:
        wrong += _refusal("a spent budget", stop.answer(stop.question()))
    return _found(expected, wrong, tried + 3)


def _refusal(what: str, answer: Parts) -> list[str]:
    code = _code(answer)
    if not code:
        return [f"{what} is answered"]
    return [f"{what}: {code}"] if "words" in code else []


def _server_to_sealing_site(settings: Settings) -> Check:
    """A site refuses a server that replaces keys or clients, or draws the clients itself."""
    wrong, tried = list[str](), 0
    with stopped(settings) as stop:
        task = unpack_task(stop.seen.tasks[VICTIM])
        work = work_in(stop.parties.copied(VICTIM))
        mine = SecretKeys.make().public.text
        every = tuple((each, mine) for each, _ in task.aggregators)
        plain = Settings.from_toml(task.settings).but(noise="server", aggregators=None).to_toml()
        marks = "1" + "0" * (len(task.clients) - 1)
        abroad = stop.parties.panel.regions[ASKED_SITES[ALLY][0]]
        attacks: dict[str, dict[str, Any]] = {
            "the server's keys": {"aggregators": every},
            "one key of the server's": {"aggregators": ((FIRST, mine), *task.aggregators[1:])},
            "no aggregators": {"aggregators": (), "settings": plain, "drawn": marks},
            "one aggregator": {"aggregators": task.aggregators[:1]},
            "the server's coins": {"drawn": marks},
            "a client of another site": {"clients": (*task.clients, abroad)},
            "a client named twice": {"clients": (*task.clients, task.clients[0])},
            "one client alone": {"clients": task.clients[:1]},
            "no noise": {"noise_multiplier": 0.0},
        }
        for what, changes in attacks.items():
            tried += 1
            wrong += _refusal(what, work.answer(pack_task(replace(task, **changes)))[0])
        if booked := spent(work.kit / SITE_LEDGER):
            wrong.append(f"{booked} refused rounds are booked")
        honest = stop.seen.reports[VICTIM]
        for what, parts in changed(stop.seen.tasks[VICTIM]):
            tried += 1
            before = spent(work.kit / SITE_LEDGER)
            answer, _ = work.answer(parts)
            if _code(answer):
                continue
            if len(answer["array"]) != len(honest["array"]) and "length" not in what:
                wrong.append(f"{what}: an answer of another size")
            if spent(work.kit / SITE_LEDGER) <= before:
                wrong.append(f"{what} is answered and not booked")
    expected = "a site seals to pinned keys, draws each of its own clients by itself, and books it"
    return _found(expected, wrong, tried)


def _sealed_site_to_server(settings: Settings) -> Check:
    """A report that was changed on its way, or is another site's, does not reach a sum."""
    wrong, tried = list[str](), 0
    with stopped(settings) as stop:
        signs, report = stop.parties.federation.signs, stop.seen.reports[VICTIM]
        for what, parts in changed(report):
            tried += 1
            reports, problems = collect({VICTIM: parts}, stop.terms, signs)
            if reports or [problem.site for problem in problems] != [VICTIM]:
                wrong.append(f"{what} is taken")
        reports, _ = collect({ALLY: report}, stop.terms, signs)
        if reports:
            wrong.append("another site's report is taken")
        other = replace(stop.terms, round=stop.terms.round + 1)
        about = json.loads(report["about"]) | {"round": other.round}
        again = report | {"about": json.dumps(about)}
        if collect({VICTIM: again}, other, signs)[0]:
            wrong.append("a report of an earlier round is taken")
    expected = "a sealed report counts as its site signed it, for its round, or not at all"
    return _found(expected, wrong, tried + 2)


def _invented_release(settings: Settings) -> Check:
    """Sites and aggregators accept only the state that follows from the signed sums."""
    wrong, tried = list[str](), 0
    with stopped(settings, SEALED_ROUNDS) as stop:
        stop.training.play(stop.parties, lambda _: None)
        honest, parts = stop.training.finish(), stop.training.delivery().pack()
        signed = {"about": json.dumps(json.loads(parts["about"])["first"]), "array": parts["sums"]}
        attacks = {
            f"terms or sums, {what}": _with_evidence(parts, other["about"], other["array"])
            for what, other in changed(signed)
        }
        half = len(parts["sums"]) // SEALED_ROUNDS
        attacks["swapped rounds"] = parts | {"sums": parts["sums"][half:] + parts["sums"][:half]}
        attacks["a replayed round"] = parts | {"sums": parts["sums"][:half] * SEALED_ROUNDS}
        attacks["no sums"] = _with_evidence(parts, "null", b"")
        (cost,) = honest.spent
        labels: dict[str, dict[str, Any]] = {
            "a state turned round": {"vector": -honest.vector},
            "a state of nothing": {"vector": honest.vector * np.float32(0)},
            "a smaller ε": {"spent": (replace(cost, noise_multiplier=900.0),)},
            "more clients": {"clients": honest.clients + 1},
            "a continued release": {"continues": "0" * 64},
            "an unused round": {"unused": 1},
        }
        path = stop.parties.folder / "forged.epifed"
        for what, changes in labels.items():
            forged = replace(honest, **changes)
            replace(forged, sha256=forged.content_hash()).write(path)
            attacks[what] = parts | {"array": path.read_bytes()}
        for party in (VICTIM, FIRST):
            work = stop.parties.party(party)
            for what, message in attacks.items():
                tried += 1
                if _taken(work, message) is not None:
                    wrong.append(f"{party} takes {what}")
            if _taken(work, parts) != honest.sha256:
                wrong.append(f"{party} refuses what was signed")
    expected = "no party takes a state or a label that the aggregators' signed sums do not give"
    return _found(expected, wrong, tried)


def _with_evidence(parts: Parts, first: Any, sums: Any) -> Parts:
    """A delivery with these terms of the first round, as JSON, and these sums."""
    about = json.loads(parts["about"])
    try:
        about["first"] = json.loads(first)
    except (ValueError, TypeError, RecursionError):
        about["first"] = first
    return parts | {"about": json.dumps(about), "sums": sums}


def _taken(work: SiteWork | AggregatorWork, parts: Parts) -> str | None:
    """The hash of the release that a party accepts from a delivery; None if it refuses."""
    try:
        return work.receive(Delivery.unpack(parts)).sha256
    except EpifedError:
        return None


def _aggregator_to_server(settings: Settings) -> Check:
    """A partial sum that does not answer the question is refused."""
    wrong, tried = list[str](), 0
    with stopped(settings) as stop:
        question = stop.question()
        answer = stop.answer(question)
        sites = {report.site for report in question.reports}
        for what, parts in changed(answer):
            tried += 1
            try:
                partial_sum = accept_partial(parts, question)
            except MessageError:
                continue
            except Exception as error:
                wrong.append(f"{what} stops the server: {type(error).__name__}")
                continue
            if not what.startswith("unopened") or not sites.issuperset(partial_sum.unopened):
                wrong.append(f"{what} is taken")
    return _found("a server takes the signed answer to its question alone", wrong, tried)
