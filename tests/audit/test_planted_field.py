"""Bugs planted around the mechanism: files, sites, labels, ledger. A named check catches each."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from epifed.audit.audit import run_checks
from epifed.audit.statistics import Check
from epifed.federation import messages, server, site
from epifed.federation import terms as site_terms
from epifed.federation.messages import Code
from epifed.federation.server import ServedTraining
from epifed.federation.site import SiteWork
from epifed.learners.base import Vector
from epifed.learners.trend import LastDays, Trend
from epifed.ledger.ledger import Ledger, Run, Seen
from epifed.privacy import accounting, plan
from epifed.privacy.plan import PrivacyPlan
from epifed.training import release
from epifed.training.rounds import Rounds
from tests.helpers import small_settings
from tests.planting import Overhearing, Plant, Planter

pytestmark = pytest.mark.field

SETTINGS = small_settings(epsilon=2.0, clip_norm=0.7)


def check(name: str) -> Check:
    """The one check of this name, and none else."""
    (found,) = run_checks(SETTINGS, names=frozenset({name}))
    return found


# Files and messages


def norm_in_a_report(patch: Planter) -> None:
    honest = ServedTraining.play

    def wrong(self: ServedTraining, post: Any, report: Any) -> None:
        seen: list[float] = []

        def hear(_: Any, rows: Any) -> None:
            seen.append(float(sum(np.linalg.norm(row) for row in rows)))

        honest(self, Overhearing(post, hear), lambda line: report(line | {"norm": seen[-1]}))

    patch.setattr(ServedTraining, "play", wrong)


def norm_within_epsilon(patch: Planter) -> None:
    """The key is allowed, the value is not."""
    honest = ServedTraining.play

    def wrong(self: ServedTraining, post: Any, report: Any) -> None:
        seen: list[float] = []

        def hear(_: Any, rows: Any) -> None:
            seen.append(float(sum(np.abs(row).max() for row in rows)))

        honest(
            self,
            Overhearing(post, hear),
            lambda line: report(line | {"epsilon": line["epsilon"] + seen[-1] / 1e3}),
        )

    patch.setattr(ServedTraining, "play", wrong)


def cohort_size_in_a_report(patch: Planter) -> None:
    honest = ServedTraining.play

    def wrong(self: ServedTraining, post: Any, report: Any) -> None:
        drawn: list[int] = []

        def hear(tasks: Any, _: Any) -> None:
            drawn.append(sum(task.drawn.count("1") for task in tasks.values()))

        def reporting(line: dict[str, Any]) -> None:
            report(line | {"round": line["round"] + drawn[-1] / 1000})

        honest(self, Overhearing(post, hear), reporting)

    patch.setattr(ServedTraining, "play", wrong)


def loss_in_an_answer(patch: Planter) -> None:
    def wrong(name: str, number: int, rows: Vector) -> messages.Parts:
        parts = messages.pack_contribution(name, number, rows)
        about = json.loads(parts["about"]) | {"loss": float(np.abs(rows).mean())}
        return parts | {"about": json.dumps(about)}

    patch.setattr(site, "pack_contribution", wrong)


def windows_in_a_release_file(patch: Planter) -> None:
    honest = json.dumps

    class Talkative:
        loads = staticmethod(json.loads)

        @staticmethod
        def dumps(about: Any, **rest: Any) -> str:
            return honest(about | {"examples": 17}, **rest)

    patch.setattr(release, "json", Talkative)


def answers_as_long_as_the_drawn(patch: Planter) -> None:
    def wrong(name: str, number: int, rows: Vector) -> messages.Parts:
        return messages.pack_contribution(name, number, rows[np.abs(rows).any(axis=1)])

    patch.setattr(site, "pack_contribution", wrong)


def everybodys_draw_in_a_task(patch: Planter) -> None:
    honest = ServedTraining._tasks

    def wrong(self: ServedTraining, terms: Any, state: Any, drawn: set[str]) -> Any:
        tasks = honest(self, terms, state, drawn)
        everybody = tuple(sorted(self.federation.clients))
        marks = "".join("01"[client in drawn] for client in everybody)
        return {name: replace(task, clients=everybody, drawn=marks) for name, task in tasks.items()}

    patch.setattr(ServedTraining, "_tasks", wrong)


def an_endless_shape_stops_the_server(patch: Planter) -> None:
    def wrong(about: dict[str, Any], parts: messages.Parts) -> NDArray[Any]:
        shape = [int(size) for size in about["shape"]]
        return np.frombuffer(parts["array"], dtype=np.float32).copy().reshape(shape)

    patch.setattr(messages, "_array", wrong)


# Neighbouring data sets


def site_silenced_by_a_missing_client(patch: Planter) -> None:
    honest = SiteWork._read

    def wrong(self: SiteWork, task: messages.Task, work: Any) -> Any:
        found = honest(self, task, work)
        read = {client for _, clients in found.read or () for client in clients}
        if set(task.clients) - read:
            raise messages.MessageError(Code.DATA)
        return found

    patch.setattr(SiteWork, "_read", wrong)


def answer_refused_for_one_row(patch: Planter) -> None:
    honest = messages.accept

    def wrong(parts: messages.Parts, task: messages.Task, core: Rounds[Any]) -> Any:
        good, problems = honest(parts, task, core)
        if problems:
            raise messages.MessageError(problems[0])
        return good, problems

    patch.setattr(messages, "accept", wrong)


def scaled_by_the_largest_client(patch: Planter) -> None:
    honest = Trend.view

    def wrong(self: Trend, panel: Any, period: Any) -> LastDays:
        view = honest(self, panel, period)
        return replace(view, change=view.change / panel.counts.max(initial=1.0))

    patch.setattr(Trend, "view", wrong)


# Labels


def label_of_the_plan_alone(patch: Planter) -> None:
    """What was paid for again is not in the file."""
    honest = PrivacyPlan.spent
    patch.setattr(PrivacyPlan, "spent", lambda self, rounds=None: honest(self))


def label_of_the_last_release(patch: Planter) -> None:
    """A file that continues others says what its own training cost."""
    honest = plan.price_together
    patch.setattr(
        "epifed.training.release.price_together",
        lambda spent, *rest, **how: honest(spent[-1:], *rest, **how),
    )


def label_rounded_down(patch: Planter) -> None:
    for module in (release, accounting):
        patch.setattr(module, "rounded_up", lambda epsilon: f"{epsilon:.5g}")
    patch.setattr("epifed.audit.price_checks.rounded_up", lambda epsilon: f"{epsilon:.5g}")


def local_noise_priced_at_q(patch: Planter) -> None:
    patch.setattr(PrivacyPlan, "priced_rate", PrivacyPlan.sampling_rate)


def label_at_another_delta(patch: Planter) -> None:
    honest = PrivacyPlan.of.__func__  # type: ignore[attr-defined]

    def wrong(cls: type[PrivacyPlan], settings: Any, clients: int) -> PrivacyPlan:
        plan: PrivacyPlan = honest(cls, settings, clients)
        return replace(plan, delta=1e-2)

    patch.setattr(PrivacyPlan, "of", classmethod(wrong))
    patch.setattr(release.Release, "delta", SETTINGS.delta)


def one_round_fewer_in_the_price(patch: Planter) -> None:
    honest = accounting.training_event

    def wrong(rate: float, noise: float, number: int) -> Any:
        return honest(rate, noise, max(1, number - 1))

    for module in (accounting, plan):
        patch.setattr(module, "training_event", wrong)


# The ledger


def paid_after_the_round(patch: Planter) -> None:
    """In one process: what is due is written down with the next round, and at the end."""
    honest, finish = Run.spend, Run.finish
    due: dict[str, int] = {}

    def later(self: Run, number: int) -> None:
        if self.name in due:
            honest(self, due[self.name])
        due[self.name] = number

    def at_last(self: Run, model_hash: str) -> None:
        honest(self, due.pop(self.name))
        finish(self, model_hash)

    patch.setattr(Run, "spend", later)
    patch.setattr(Run, "finish", at_last)


def state_before_the_payment(patch: Planter) -> None:
    honest = ServedTraining._pay

    def wrong(self: ServedTraining, number: int) -> None:
        path = self.folder / server.STATE
        path.write_bytes((self.folder / server.WAITING).read_bytes())
        honest(self, number)

    patch.setattr(ServedTraining, "_pay", wrong)


def failed_payment_is_forgotten(patch: Planter) -> None:
    honest = ServedTraining._pay

    def wrong(self: ServedTraining, number: int) -> None:
        try:
            honest(self, number)
        except Exception:
            self.paid += 1

    patch.setattr(ServedTraining, "_pay", wrong)


def run_found_by_its_name(patch: Planter) -> None:
    def wrong(self: Ledger, training: str, **_: Any) -> Any:
        return self.book().named(training)

    patch.setattr(Ledger, "find", wrong)


def site_books_what_the_server_says(patch: Planter) -> None:
    honest = site_terms.SiteLedger._catch_up

    def wrong(self: site_terms.SiteLedger, name: str, rounds: int) -> None:
        honest(self, name, 1)

    patch.setattr(site_terms.SiteLedger, "_catch_up", wrong)


def site_judges_at_the_servers_delta(patch: Planter) -> None:
    def wrong(
        self: site_terms.Terms, noise_multiplier: float, plan: PrivacyPlan, rounds: int
    ) -> float:
        return accounting.spent(noise_multiplier, plan.priced_rate, rounds, plan.delta)

    patch.setattr(site_terms.Terms, "epsilon_of", wrong)


def a_copy_spends_again(patch: Planter) -> None:
    patch.setattr(Seen, "fault", lambda self, book: None)


CAUGHT: dict[Plant, str] = {
    norm_in_a_report: "nothing beside the vector",
    norm_within_epsilon: "same coins: client drawn",
    cohort_size_in_a_report: "reports without the draw",
    loss_in_an_answer: "nothing beside the vector",
    windows_in_a_release_file: "nothing beside the vector",
    answers_as_long_as_the_drawn: "messages of one size",
    everybodys_draw_in_a_task: "own draw only",
    an_endless_shape_stops_the_server: "hostile: site to server",
    site_silenced_by_a_missing_client: "same coins: client drawn",
    answer_refused_for_one_row: "hostile: site to server",
    scaled_by_the_largest_client: "same coins: client drawn",
    label_of_the_plan_alone: "label of repeated rounds",
    label_of_the_last_release: "label of a continued release",
    label_rounded_down: "ε rounded up",
    local_noise_priced_at_q: "price of each kind of noise",
    label_at_another_delta: "combinations: price",
    one_round_fewer_in_the_price: "label of repeated rounds",
    paid_after_the_round: "killed: training in process",
    state_before_the_payment: "killed: server",
    failed_payment_is_forgotten: "unpaid round in a federation",
    run_found_by_its_name: "same name, other noise",
    site_books_what_the_server_says: "site's own book",
    site_judges_at_the_servers_delta: "site's own terms",
    a_copy_spends_again: "restored copy",
}


@pytest.mark.parametrize("plant", CAUGHT, ids=lambda plant: plant.__name__)
def test_a_named_check_catches(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    planter = Planter(monkeypatch)
    plant(planter)
    found = check(CAUGHT[plant])
    planter.refuse_unused()
    assert not found.passed, found.found
    assert found.expected != "no error", found.found


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ledgers and witnesses of the audit's own trainings go with it."""
    monkeypatch.setenv("EPIFED_STATE", str(tmp_path))
    assert check("restored copy").passed
    assert list(tmp_path.iterdir()) == []
