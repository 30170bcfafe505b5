"""What aggregators, sites and the relaying server refuse, and how the report says it."""

import json
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from epifed.audit.aggregator_checks import FIRST, SECOND, VICTIM, Stopped, stopped
from epifed.audit.bench import work_in
from epifed.errors import EpifedError
from epifed.federation import aggregator as aggregators
from epifed.federation import messages, site
from epifed.federation.aggregator import AggregatorWork
from epifed.federation.messages import (
    MessageError,
    Parts,
    RoundTerms,
    pack_question,
    pack_task,
    state_digest,
    unpack_question,
    unpack_task,
)
from epifed.federation.secure_training import collect, question_of
from epifed.federation.server import TooFewError
from epifed.federation.site import SiteWork
from epifed.federation.terms import Terms
from epifed.ledger.budget import Cap
from epifed.ledger.ledger import Ledger
from epifed.privacy import noise
from epifed.settings import Settings
from tests.federation.helpers import plan, settings_of
from tests.federation.parties import Parties, spent
from tests.helpers import small_settings

SEALED = {"noise": "aggregators", "epsilon": 2.0}


def _ledger(folder: Path, epsilon: float = 1e6) -> Ledger:
    return Ledger.create(folder / "budget.ledger", Cap(epsilon, 1e-5, "rdp"))


def _round(
    parties: Parties, ledger: Ledger, name: str = "refused", **changes: Any
) -> list[dict[str, Any]]:
    """One round of a training, and what was reported of it."""
    chosen = settings_of("trend", **SEALED | changes)
    training = parties.training(plan(name, chosen, seeded=False), ledger)
    lines: list[dict[str, Any]] = []
    try:
        training.play(parties, lines.append)
    finally:
        training._lock.release()
    return lines


def _only(name: str, change: Callable[[Parts], Parts]) -> Callable[[str, Parts], Parts]:
    return lambda party, parts: change(parts) if party == name else parts


def _without_first(parts: Parts) -> Parts:
    question = unpack_question(parts)
    return pack_question(replace(question, reports=question.reports[1:]))


def _twice(parts: Parts) -> Parts:
    question = unpack_question(parts)
    return pack_question(replace(question, reports=(*question.reports, question.reports[0])))


def _of_a_stranger(parts: Parts) -> Parts:
    question = unpack_question(parts)
    stranger = replace(question.reports[0], site="site-9")
    return pack_question(replace(question, reports=(stranger, *question.reports[1:])))


def _swapped(parts: Parts) -> Parts:
    question = unpack_question(parts)
    one, other, *rest = question.reports
    mixed = replace(one, share=other.share)
    return pack_question(replace(question, reports=(mixed, other, *rest)))


def _forged(parts: Parts) -> Parts:
    question = unpack_question(parts)
    one, *rest = question.reports
    forged = replace(one, signature=bytes(64))
    return pack_question(replace(question, reports=(forged, *rest)))


def _said(**changes: Any) -> Callable[[Parts], Parts]:
    def change(parts: Parts) -> Parts:
        about = json.loads(parts["about"])
        return parts | {"about": json.dumps(about | changes)}

    return change


def _other_clip(parts: Parts) -> Parts:
    about = json.loads(parts["about"])
    text = Settings.from_toml(about["settings"]).but(clip_norm=0.001).to_toml()
    return parts | {"about": json.dumps(about | {"settings": text})}


def _cut_off(parts: Parts) -> Parts:
    return parts | {"array": parts["array"][:-1]}


@pytest.mark.parametrize(
    ("who", "change", "reason"),
    [
        ("sum-2", _without_first, "reports"),
        ("sum-2", _said(before=[]), "reports"),
        ("sum-1", _twice, "doubled"),
        ("sum-1", _of_a_stranger, "foreign"),
        ("sum-2", _swapped, "digest"),
        ("sum-1", _forged, "signature"),
        ("sum-1", _said(noise_multiplier=1e-3), "signature"),
        ("sum-2", _said(training="another"), "signature"),
        ("sum-1", _said(enrolled=11), "refused-roster"),
        ("sum-1", _other_clip, "signature"),
        ("sum-1", _cut_off, "size"),
        ("sum-2", _said(rounds=9), "bad-task"),
        ("sum-2", _said(aggregator="sum-1"), "size"),
        ("sum-1", _said(randomness="seeded"), "signature"),
        ("sum-1", _said(aggregators=[]), "bad-task"),
        ("sum-1", lambda _: {"about": "nonsense"}, "message"),
    ],
)
def test_an_aggregator_refuses_what_was_changed_on_the_way_and_pays_nothing(
    tmp_path: Path, who: str, change: Callable[[Parts], Parts], reason: str
) -> None:
    parties, ledger = Parties.make(tmp_path), _ledger(tmp_path)
    parties.questions = _only(who, change)
    with pytest.raises(EpifedError, match=rf"refused by the aggregator '{who}' \({reason}\)"):
        _round(parties, ledger)
    assert spent(parties.kit(who) / aggregators.LEDGER) == 0
    parties.questions = lambda _, parts: parts
    (line,) = _round(parties, ledger)
    assert line["problems"] == []
    assert spent(parties.kit(who) / aggregators.LEDGER) == 1
    assert spent(ledger.path) == 1


def test_an_aggregator_answers_under_its_own_name_alone(tmp_path: Path) -> None:
    """Of three, the first two have shares of one size: only the keys tell them apart."""
    parties, ledger = Parties.make(tmp_path, 4, 3), _ledger(tmp_path)
    parties.questions = _only("sum-2", _said(aggregator="sum-1", before=[]))
    with pytest.raises(EpifedError, match=r"refused by the aggregator 'sum-2' \(refused-roster\)"):
        _round(parties, ledger, aggregators=3)
    assert spent(parties.kit("sum-2") / aggregators.LEDGER) == 0


def test_a_refusal_is_in_the_report(tmp_path: Path) -> None:
    parties, ledger = Parties.make(tmp_path), _ledger(tmp_path)
    parties.questions = _only("sum-2", _without_first)
    chosen = settings_of("trend", **SEALED)
    training = parties.training(plan("told", chosen, seeded=False), ledger)
    lines: list[dict[str, Any]] = []
    with pytest.raises(EpifedError, match="not given the same reports"):
        training.play(parties, lines.append)
    assert lines[0]["problems"] == [{"site": "sum-2", "reason": "reports"}]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_cut_off, "size"),
        (lambda parts: parts | {"array": bytes(64) + parts["array"][64:]}, "signature"),
        (lambda parts: parts | {"array": parts["array"][:-9] + bytes(9)}, "signature"),
        (_said(round=2), "late"),
        (lambda _: {"about": "{}"}, "late"),
        (lambda _: {"about": "[]"}, "message"),
        (lambda parts: {"about": parts["about"]}, "message"),
    ],
)
def test_the_server_leaves_out_what_everybody_can_see_to_be_wrong(
    tmp_path: Path, change: Callable[[Parts], Parts], reason: str
) -> None:
    parties, ledger = Parties.make(tmp_path), _ledger(tmp_path)
    parties.reports = _only("site-2", change)
    (line,) = _round(parties, ledger)
    assert line["problems"] == [{"site": "site-2", "reason": reason}]


def test_an_old_report_in_a_new_round_is_refused(tmp_path: Path) -> None:
    parties, ledger = Parties.make(tmp_path), _ledger(tmp_path)
    chosen = small_settings(**SEALED)
    training = parties.training(plan("old", chosen, seeded=False), ledger)
    lines: list[dict[str, Any]] = []
    training.play(parties, lines.append)
    old = next(parts for name, parts in parties.seen if name == "site-2")
    parties.reports = _only("site-2", lambda _: old)
    training.play(parties, lines.append)
    parties.reports = _only("site-2", lambda _: _said(round=3)(old))
    training.play(parties, lines.append)
    reasons = [[p["reason"] for p in line["problems"]] for line in lines]
    assert reasons == [[], ["late"], ["signature"]]


def test_a_share_that_cannot_be_opened_spoils_one_round_and_names_its_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties, ledger = Parties.make(tmp_path), _ledger(tmp_path)
    chosen = small_settings(**SEALED)
    training = parties.training(plan("spoilt", chosen, seeded=False), ledger)
    before = training.rounds.learner.pack(training.state)
    lines: list[dict[str, Any]] = []
    with monkeypatch.context() as patch:
        original = messages.seal_info

        def wrong(agreed: Any, who: str, name: str) -> bytes:
            return original(agreed, "x" if (who, name) == ("site-2", "sum-2") else who, name)

        patch.setattr(messages, "seal_info", wrong)
        training.play(parties, lines.append)
    after = training.rounds.learner.pack(training.state)
    assert after.tolist() == before.tolist(), "nothing was learned, and nothing else was"
    training.play(parties, lines.append)
    reasons = [[(p["site"], p["reason"]) for p in line["problems"]] for line in lines]
    assert reasons == [[("site-2", "sealed"), ("all", "total")], [("site-2", "sealed")]]
    assert spent(ledger.path) == 2


def test_a_training_goes_on_with_as_many_sites_as_it_needs_and_no_fewer(tmp_path: Path) -> None:
    parties = Parties.make(tmp_path)
    parties.federation = parties.federation.model_copy(update={"min_sites": 3})
    training = parties.training(plan("few", settings_of("trend", **SEALED)))
    training._refuse_spoiled({"site-1"})
    with pytest.raises(EpifedError, match=r"site-1, site-2 sent what no .* expected 3: mend"):
        training._refuse_spoiled({"site-1", "site-2"})


def test_a_site_that_lies_about_its_norm_spoils_the_release_and_it_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties, ledger = Parties.make(tmp_path), _ledger(tmp_path)
    grid = noise.to_grid
    monkeypatch.setattr(site, "to_grid", lambda *args: grid(*args) + 2**50)
    (line,) = _round(parties, ledger)
    assert line["problems"] == [{"site": "all", "reason": "total"}]


def test_an_aggregator_that_changes_its_answer_or_signs_for_another_is_not_believed(
    tmp_path: Path,
) -> None:
    parties, ledger = Parties.make(tmp_path), _ledger(tmp_path)
    parties.answers = _only("sum-1", lambda p: p | {"array": bytes(len(p["array"]))})
    with pytest.raises(EpifedError, match=r"'sum-1' \(digest\)"):
        _round(parties, ledger)
    parties.answers = _only("sum-1", _said(aggregator="sum-2"))
    with pytest.raises(EpifedError, match=r"'sum-1' \(digest\)"):
        _round(parties, ledger)
    parties.answers = _only("sum-1", _said(reports="00" * 32))
    with pytest.raises(EpifedError, match=r"'sum-1' \(signature\)"):
        _round(parties, ledger)
    parties.answers = lambda _, parts: parts
    assert _round(parties, ledger)[0]["problems"] == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"round": 9}, "late"),
        ({"training": "other"}, "late"),
        ({"unopened": "site-1"}, "message"),
        ({"unopened": ["site-9"]}, "message"),
        ({"unopened": ["site-1"]}, "message"),
        ({"opened": -1}, "message"),
        ({"opened": True}, "message"),
    ],
)
def test_a_partial_sum_of_another_round_or_of_other_reports_is_not_added(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    parties, ledger = Parties.make(tmp_path), _ledger(tmp_path)
    parties.answers = _only("sum-1", _said(**changes))
    with pytest.raises(EpifedError, match=rf"'sum-1' \({reason}\)"):
        _round(parties, ledger)
    assert not list((tmp_path / "trainings").rglob("*.epifed"))


def test_a_roster_with_another_number_of_aggregators_begins_no_round(tmp_path: Path) -> None:
    parties, ledger = Parties.make(tmp_path), _ledger(tmp_path)
    with pytest.raises(EpifedError, match="found 3 in the settings and 2 in the roster"):
        _round(parties, ledger, aggregators=3)
    assert spent(ledger.path) == 0


def test_an_error_inside_an_aggregator_leaves_as_a_code_without_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties, ledger = Parties.make(tmp_path), _ledger(tmp_path)

    def broken(*_: Any) -> Parts:
        raise RuntimeError("17 cases in 00001")

    monkeypatch.setattr(AggregatorWork, "_sum", broken)
    with pytest.raises(EpifedError, match=r"\(error\)"):
        _round(parties, ledger)
    told = [parts for name, parts in parties.seen if name.startswith("sum")]
    assert told and all("17 cases" not in str(parts) for parts in told)


def test_a_question_that_is_none_gets_a_code(tmp_path: Path) -> None:
    parties = Parties.make(tmp_path)
    parts, error = AggregatorWork(parties.kit("sum-1")).answer({"about": "none", "array": b""})
    assert json.loads(parts["about"])["code"] == "message" and error is not None
    assert not (parties.kit("sum-1") / aggregators.LEDGER).exists()


def test_another_question_of_a_round_that_was_answered_is_refused(tmp_path: Path) -> None:
    parties, ledger = Parties.make(tmp_path), _ledger(tmp_path)
    chosen = small_settings(**SEALED)
    training = parties.training(plan("again", chosen, seeded=False), ledger)
    training.play(parties, lambda _: None)
    work, task = SiteWork(parties.kit("site-1")), parties.tasks["site-1"]
    other = replace(task, state=task.state + 1)
    assert json.loads(work.answer(pack_task(other))[0]["about"])["code"] == "bad-task"
    asked: list[Parts] = []

    def overheard(name: str, parts: Parts) -> Parts:
        if name == "sum-1":
            asked.append(parts)
        return parts

    parties.questions = overheard
    training.play(parties, lambda _: None)
    task = parties.tasks["site-1"]
    state = task.state + 1
    other = replace(task, state=state, start=state_digest(state))
    assert json.loads(work.answer(pack_task(other))[0]["about"])["code"] == "refused-repeat"
    adder = AggregatorWork(parties.kit("sum-1"))
    first, _ = adder.answer(asked[0])
    assert adder.answer(asked[0])[0] == first
    fewer = unpack_question(asked[0])
    changed = pack_question(replace(fewer, reports=fewer.reports[1:]))
    assert json.loads(adder.answer(changed)[0]["about"])["code"] == "refused-repeat"
    assert spent(parties.kit("sum-1") / aggregators.LEDGER) == 2


def test_a_budget_that_is_spent_and_terms_that_are_broken_are_refused_with_the_reason(
    tmp_path: Path,
) -> None:
    broken: dict[str, dict[str, Any]] = {
        "refused-total": {"epsilon_total": 2.5},
        "refused-epsilon": {"epsilon_per_release": 1.0},
        "refused-settings": {"limits": {"clip_norm": 0.01}},
    }
    for reason, own in broken.items():
        folder = tmp_path / reason
        parties = Parties.make(folder, own=own)
        ledger = _ledger(folder)
        first = reason == "refused-total"
        if first:
            _round(parties, ledger, "first")
        with pytest.raises(EpifedError, match=rf"'sum-1' \({reason}\)"):
            _round(parties, ledger, "second")
        assert spent(parties.kit("sum-1") / aggregators.LEDGER) == int(first)


def test_less_noise_or_fewer_clients_under_a_known_name_is_refused(tmp_path: Path) -> None:
    parties = Parties.make(tmp_path)
    _round(parties, _ledger(tmp_path), "weekly")
    other = Parties(tmp_path / "other", parties.federation)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "kits").symlink_to(tmp_path / "kits")
    for changes in ({"epsilon": 40.0}, {"clip_norm": 0.2}):
        ledger = Ledger.create(tmp_path / f"{changes}.ledger", Cap(1e6, 1e-5, "rdp"))
        chosen = settings_of("trend", **SEALED | changes)
        wanted = plan("weekly", chosen, seeded=False)
        training = Parties(tmp_path / f"{changes}", parties.federation).training(wanted, ledger)
        lines: list[dict[str, Any]] = []
        with pytest.raises(TooFewError, match="site-1: refused-repeat"):
            training.play(other, lines.append)
        assert (lines, spent(ledger.path)) == ([], 0)


def test_an_aggregator_may_pin_itself_with_its_own_fingerprint_alone(tmp_path: Path) -> None:
    parties = Parties.make(tmp_path)
    path = parties.kit("sum-1") / aggregators.TERMS
    own = aggregators.own_keys(parties.kit("sum-1")).public.fingerprint
    others = path.read_text()
    (other,) = Terms.read(path).aggregators.values()
    path.write_text(others.replace("[aggregators]\n", f'[aggregators]\nsum-1 = "{other}"\n'))
    ledger = _ledger(tmp_path)
    with pytest.raises(EpifedError, match="refused-trust"):
        _round(parties, ledger)
    path.write_text(others.replace("[aggregators]\n", f'[aggregators]\nsum-1 = "{own}"\n'))
    _round(parties, ledger)
    assert spent(ledger.path) == 1


def test_a_site_with_pinned_aggregators_trusts_neither_others_nor_the_server(
    tmp_path: Path,
) -> None:
    parties, ledger = Parties.make(tmp_path), _ledger(tmp_path)
    _round(parties, ledger)
    task, work = parties.tasks["site-1"], SiteWork(parties.kit("site-1"))

    def code(**changes: Any) -> str:
        parts, _ = work.answer(pack_task(replace(task, training="other", **changes)))
        return str(json.loads(parts["about"])["code"])

    (name, keys), last = task.aggregators
    swapped = ((name, last[1]), (last[0], keys))
    plain = Settings.from_toml(task.settings).but(noise="server", aggregators=None).to_toml()
    drawn = "0" * len(task.clients)
    assert code(aggregators=swapped) == "refused-trust"
    assert code(aggregators=((name, keys), ("sum-3", last[1]))) == "refused-trust"
    assert code(aggregators=(), settings=plain, drawn=drawn) == "refused-trust"
    assert code(drawn=drawn) == "bad-task", "a server that tosses the coins"
    assert code(length=task.length + 1) == "bad-task"
    others = parties.tasks["site-2"].clients
    assert code(clients=others) == "bad-task", "a client of another site"
    assert code(clients=task.clients[:1] * 2) == "bad-task", "a client twice"
    one = ((name, keys), (name, keys))
    assert code(aggregators=one) == "bad-task"


OTHERS: dict[str, Callable[[RoundTerms], Any]] = {
    "training": lambda terms: "other",
    "round": lambda terms: terms.round + 1,
    "rounds": lambda terms: terms.rounds + 1,
    "paid": lambda terms: terms.paid + 1,
    "settings": lambda terms: terms.read()[0].but(epsilon=1.5).to_toml(),
    "first_day": lambda terms: terms.first_day.replace("2021", "2020"),
    "last_day": lambda terms: terms.last_day.replace("2021", "2022"),
    "enrolled": lambda terms: terms.enrolled + 1,
    "noise_multiplier": lambda terms: terms.noise_multiplier * 2,
    "randomness": lambda terms: "seeded",
    "numbers": lambda terms: terms.numbers + 1,
    "length": lambda terms: terms.length - 1,
    "start": lambda terms: "00" * 32,
    "least": lambda terms: terms.least + 1,
    "aggregators": lambda terms: terms.aggregators[::-1],
}
"""Another value of each term, which a server may state to one party alone."""


@pytest.fixture(scope="module")
def stop() -> Iterator[Stopped]:
    """A round whose reports are in; the first aggregator has answered."""
    with stopped(small_settings(epsilon=2.0, clip_norm=0.7)) as round_:
        first = round_.question()
        assert "code" not in json.loads(round_.answer(first)["about"])
        yield round_


@pytest.mark.parametrize("term", OTHERS)
def test_a_term_that_is_stated_otherwise_to_one_party_makes_no_sum(
    stop: Stopped, term: str
) -> None:
    assert OTHERS.keys() == {field.name for field in fields(RoundTerms)}
    other = {term: OTHERS[term](stop.terms)}
    paid = {name: stop.paid(name) for name in (FIRST, SECOND)}
    task = replace(unpack_task(stop.seen.tasks[VICTIM]), **other)
    answer = work_in(stop.parties.copied(VICTIM)).answer(pack_task(task))[0]
    signs = stop.parties.federation.signs
    told = collect({VICTIM: answer}, stop.terms, signs)[0]  # as the others were asked
    assert not told
    if term in ("rounds", "paid", "numbers", "length", "start"):
        assert json.loads(answer["about"])["code"] == "bad-task"
    if "code" not in json.loads(answer["about"]) and term not in ("training", "round"):
        relayed = collect({VICTIM: answer}, replace(stop.terms, **other), signs)[0]
        mixed = (*relayed, *(each for each in stop.reports if each.site != VICTIM))
        with pytest.raises(MessageError, match="signature"):
            question = question_of(stop.terms, FIRST, mixed, [])
            for report in question.reports:
                report.check(stop.terms, 0, signs[report.site])
    honest = stop.question(SECOND)
    try:
        question = replace(honest, terms=replace(stop.terms, **other))
        asked = stop.answer(question)
    except MessageError:  # it cannot even be stated
        return
    assert json.loads(asked["about"])["code"]
    assert {name: stop.paid(name) for name in paid} == paid


@pytest.mark.parametrize("change", [{"paid": 3}, {"aggregators": 1}, {"noise_multiplier": 0.0}])
def test_terms_with_aggregators_that_cannot_be_are_refused(
    stop: Stopped, change: dict[str, Any]
) -> None:
    if "aggregators" in change:
        change = {"aggregators": stop.terms.aggregators[:1]}
    with pytest.raises(MessageError, match="bad-task"):
        RoundTerms.of(stop.terms.agreed | change)


@pytest.mark.parametrize(("term", "code"), [("enrolled", "refused-roster"), ("rounds", "bad-task")])
def test_an_aggregator_judges_terms_that_all_were_told(stop: Stopped, term: str, code: str) -> None:
    other = replace(stop.terms, training="told", **{term: OTHERS[term](stop.terms)})
    answer = stop.answer(question_of(other, FIRST, (), []))
    assert json.loads(answer["about"])["code"] == code


def test_an_aggregator_does_not_answer_for_another_one(stop: Stopped) -> None:
    asked = pack_question(stop.question(SECOND))
    answer = stop.parties.aggregators_at_work[FIRST].answer(asked)[0]
    assert json.loads(answer["about"])["code"] == "refused-roster"
