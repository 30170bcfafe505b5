"""Bugs of each class that the audit once missed, and others like them: each makes it fail.

They were planted before anybody looked at which check would notice them.
"""

import hashlib
import json
import logging
import math
import random
import secrets
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from epifed import explain
from epifed.audit import price_checks
from epifed.audit.audit import Size, run_checks
from epifed.audit.bench import EngineMechanism
from epifed.audit.statistics import Check
from epifed.data import vintages
from epifed.data.panel import CasePanel
from epifed.errors import EpifedError
from epifed.federation import aggregator, answers, crypto, messages, server, site, terms
from epifed.federation.answers import AnswerCache
from epifed.federation.crypto import share
from epifed.federation.messages import Code, seal_info
from epifed.federation.server import ServedTraining, StoredTraining, TooFewError
from epifed.federation.site import SiteWork
from epifed.federation.terms import Owner, SiteLedger, Terms
from epifed.learners.base import Vector, make_learner
from epifed.learners.fedavg import FedAvg
from epifed.learners.one_shot import OneShot
from epifed.learners.weekly_trend import LastWeeks, WeeklyTrend
from epifed.ledger import budget
from epifed.ledger.budget import Book, RunRecord
from epifed.ledger.ledger import Ledger
from epifed.privacy import accounting, plan
from epifed.privacy import accounting as accountants
from epifed.privacy import noise as secure
from epifed.privacy.noise import Rows, SecureRandomness, SeededRandomness, clip
from epifed.privacy.plan import PrivacyPlan
from epifed.training import loop, release, rounds
from epifed.training.release import Release
from epifed.training.rounds import Rounds
from tests.helpers import small_settings
from tests.planting import Overhearing, Plant, Planter, PlantingError, rows_in

Steps = NDArray[np.int64]
SETTINGS = small_settings(epsilon=2.0, clip_norm=0.7)


# Combinations: lengths, q, steps, accountants, rounds


def _release_changed(patch: Planter, change: Any) -> None:
    """Of both kinds of randomness: `change(clipped mean, released, plan)`."""
    for kind in (SeededRandomness, SecureRandomness):
        honest = kind.release

        def wrong(self: Any, updates: Rows, plan: PrivacyPlan, honest: Any = honest) -> Rows:
            released = honest(self, updates, plan)
            plain = clip(updates, plan.bound).sum(axis=0) / plan.clients_per_round
            return np.asarray(change(plain, released, plan), dtype=np.float32)

        patch.setattr(kind, "release", wrong)


def no_noise_beyond_1024(patch: Planter) -> None:
    def change(plain: Rows, released: Rows, plan: PrivacyPlan) -> Rows:
        return np.concatenate([released[:1024], plain[1024:]])

    _release_changed(patch, change)


def no_noise_in_the_last_coordinate_of_large_models(patch: Planter) -> None:
    def change(plain: Rows, released: Rows, plan: PrivacyPlan) -> Rows:
        short = len(plain) < 5000
        return released if short else np.concatenate([released[:-1], plain[-1:]])

    _release_changed(patch, change)


def noise_over_root_two_at_q_1(patch: Planter) -> None:
    honest = PrivacyPlan.noise_of_round

    def wrong(self: PrivacyPlan, came: int) -> float:
        full = self.clients_per_round == self.clients
        return honest(self, came) / (math.sqrt(2) if full else 1)

    patch.setattr(PrivacyPlan, "noise_of_round", wrong)


def calibrated_too_low_at_q_1(patch: Planter) -> None:
    """The noise is that of the plan; the plan is wrong, and its own price agrees with it."""
    honest = accounting.training_event

    def wrong(rate: float, noise: float, number: int) -> Any:
        return honest(rate, noise * (math.sqrt(2) if rate == 1 else 1), number)

    for module in (accounting, "epifed.privacy.plan"):
        if isinstance(module, str):
            patch.setattr(f"{module}.training_event", wrong)
        else:
            patch.setattr(module, "training_event", wrong)
    patch.setattr(accounting, "_method", lambda: "planted")


def half_of_the_noise_after_round_60(patch: Planter) -> None:
    honest = Rounds.close
    numbers: dict[int, int] = {}

    def wrong(self: Rounds[Any], state: Any, updates: Vector) -> Any:
        numbers[id(self)] = numbers.get(id(self), 0) + 1
        late = numbers[id(self)] > 60
        plan = replace(self.plan, clip_norm=self.plan.clip_norm / 2) if late else self.plan
        return honest(replace(self, plan=plan), state, updates)

    patch.setattr(Rounds, "close", wrong)


def clip_at_two_bounds_for_weeks(patch: Planter) -> None:
    honest = rounds.contribution

    def wrong(learner: Any, state: Any, view: Any, plan: PrivacyPlan, **options: Any) -> Vector:
        if learner.settings.step == "week":
            plan = replace(plan, clip_norm=2 * plan.clip_norm)
        return honest(learner, state, view, plan, **options)

    patch.setattr(rounds, "contribution", wrong)
    patch.setattr("epifed.training.loop.contribution", wrong)
    patch.setattr(site, "contribution", wrong)


def price_of_the_loss_distribution_a_tenth_low(patch: Planter) -> None:
    honest = accountants.LossDistribution.price

    def wrong(self: Any, event: Any, delta: float) -> Any:
        epsilon, order = honest(self, event, delta)
        return 0.9 * epsilon, order

    patch.setattr(accountants.LossDistribution, "price", wrong)
    patch.setattr(accounting, "_method", lambda: "planted")


# Other clients' data


def weekly_trend_minus_the_median_of_the_view(patch: Planter) -> None:
    honest = WeeklyTrend.view

    def wrong(self: WeeklyTrend, panel: CasePanel, period: Any) -> LastWeeks:
        change = honest(self, panel, period).change
        return LastWeeks(change - (np.median(change) if len(change) else 0.0))

    patch.setattr(WeeklyTrend, "view", wrong)


def mornings_shared_between_clients(patch: Planter) -> None:
    """All clients of a site are read with the lateness of the one that was read before."""
    honest = vintages.remember
    before: list[Any] = []

    def wrong(folder: Any, panel: CasePanel, **options: Any) -> CasePanel:
        found = honest(folder, panel, **options)
        history = found.history
        if history is not None:
            before.append(history)
            shared = [day for day in before[-2:][0].snapshots if day in history.snapshots]
            if len(shared) >= 14:
                history = replace(history, snapshots=tuple(shared))
        return replace(found, history=history)

    patch.setattr(site, "remember", wrong)


def one_shot_rows_minus_a_hundredth_of_their_mean(patch: Planter) -> None:
    """Each other client moves by little; all of them together by more."""
    honest = OneShot.contribute

    def wrong(self: OneShot, state: Any, view: Any) -> Vector:
        rows = honest(self, state, view)
        return rows - np.float32(0.005) * rows.mean(axis=0) if len(rows) else rows

    patch.setattr(OneShot, "contribute", wrong)


def networks_see_the_mean_update(patch: Planter) -> None:
    honest = FedAvg.contribute

    def wrong(self: FedAvg, state: Any, view: Any) -> Vector:
        rows = honest(self, state, view)
        return rows + np.float32(1e-3) * rows.mean(axis=0) if len(rows) else rows

    patch.setattr(FedAvg, "contribute", wrong)


def a_client_without_cases_silences_its_site(patch: Planter) -> None:
    honest = SiteWork._rows

    def wrong(self: SiteWork, task: Any, work: Any, state: Any, drawn: Any) -> Vector:
        rows = honest(self, task, work, state, drawn)
        counts = self._hosted[1].panel.counts if self._hosted and self._hosted[1].panel else None
        silent = counts is not None and not counts.any(axis=1).all()
        return np.zeros_like(rows) if silent else rows

    patch.setattr(SiteWork, "_rows", wrong)


# What leaves beside the noise


def mean_norm_in_the_noise_of_a_task(patch: Planter) -> None:
    """The last digits of an allowed number."""
    tasks, close = StoredTraining._tasks, Rounds.close
    norms = [0.0]

    def closing(self: Rounds[Any], state: Any, updates: Vector) -> Any:
        norms.append(float(np.linalg.norm(updates, axis=1).sum()))
        return close(self, state, updates)

    def wrong(self: StoredTraining, *asked: Any) -> Any:
        told = tasks(self, *asked)
        factor = 1 + 1e-9 * norms[-1]
        return {
            name: replace(task, noise_multiplier=task.noise_multiplier * factor)
            for name, task in told.items()
        }

    patch.setattr(Rounds, "close", closing)
    patch.setattr(StoredTraining, "_tasks", wrong)


def mean_in_the_log(patch: Planter) -> None:
    honest = ServedTraining.play

    def wrong(self: ServedTraining, post: Any, report: Any) -> None:
        def hear(_: Any, rows: Any) -> None:
            mean = float(np.mean([row.sum() for row in rows] or [0.0]))
            logging.getLogger("epifed.federation.server").info("mean update %.6g", mean)

        honest(self, Overhearing(post, hear), report)

    patch.setattr(ServedTraining, "play", wrong)


def mean_in_the_log_of_the_controller(patch: Planter) -> None:
    controller = pytest.importorskip("epifed.federation.flare.controller")
    honest = controller._Post.sites

    def wrong(self: Any, tasks: Any) -> Any:
        answers, problems = honest(self, tasks)
        mean = float(np.mean([np.abs(row).sum() for row in rows_in(answers)] or [0.0]))
        self.controller.log_info(self.fl_ctx, f"round done, {mean:.5g}", fire_event=False)
        return answers, problems

    patch.setattr(controller._Post, "sites", wrong)


def status_counts_the_contributors(patch: Planter) -> None:
    controller = pytest.importorskip("epifed.federation.flare.controller")
    honest, tell = controller._Post.sites, controller.FederationController._tell
    came: list[int] = [0]

    def noting(self: Any, tasks: Any) -> Any:
        answers, problems = honest(self, tasks)
        came.append(sum(bool(np.any(row)) for row in rows_in(answers)))
        return answers, problems

    def wrong(self: Any, *arguments: Any) -> None:
        tell(self, *arguments)
        self.status["epsilon"] += came[-1] * 1e-7

    patch.setattr(controller._Post, "sites", noting)
    patch.setattr(controller.FederationController, "_tell", wrong)


def time_of_an_answer_tells_the_draw(patch: Planter) -> None:
    """Only the drawn are computed."""

    def wrong(self: SiteWork, task: Any, work: Any, state: Any, drawn: Any) -> Vector:
        length = work.learner.contribute(state, work.learner.empty_view()).shape[1]
        rows = np.zeros((len(task.clients), length), dtype=np.float32)
        marked = {task.clients[i]: i for i in drawn}
        for view, clients in work.read or ():
            chosen = [k for k, client in enumerate(clients) if client in marked]
            some = view.of(np.array(chosen, dtype=np.int64))
            sent = vars(site)["contribution"](work.learner, state, some, work.plan)
            for k, row in zip(chosen, sent, strict=True):
                rows[marked[clients[k]]] = row
        self._note(task, drawn)
        return rows

    patch.setattr(SiteWork, "_rows", wrong)


def size_of_the_data_in_a_code(patch: Planter) -> None:
    """A refusal depends on the counts: a site with many cases answers with a code."""
    honest = SiteWork._contribute

    def wrong(self: SiteWork, task: Any, parts: Any) -> Any:
        panel = self._hosted[1].panel if self._hosted else None
        if panel is not None and panel.counts.max(initial=0.0) > 1e5:
            raise messages.MessageError(Code.DATA)
        return honest(self, task, parts)

    patch.setattr(SiteWork, "_contribute", wrong)


# Draws


def aggregators_noise_seeded_by_the_clock(patch: Planter) -> None:
    def wrong(length: int, noise_multiplier: float) -> Steps:
        rng = np.random.default_rng(time.time_ns())
        return np.rint(rng.standard_normal(length) * noise_multiplier * secure.STEPS).astype(
            np.int64
        )

    patch.setattr(aggregator, "grid_noise", wrong)


def noise_from_a_hash_of_the_time(patch: Planter) -> None:
    def wrong(length: int, noise_multiplier: float) -> Steps:
        seed, drawn = hashlib.sha256(str(time.time_ns()).encode()).digest(), []
        for i in range(length):
            block = hashlib.sha256(seed + i.to_bytes(8, "big")).digest()
            halves = [int.from_bytes(block[k : k + 8], "big") / 2**64 for k in (0, 8)]
            size = math.sqrt(-2 * math.log(halves[0] or 1e-9))
            drawn.append(size * math.cos(2 * math.pi * halves[1]))
        return np.rint(np.array(drawn) * noise_multiplier * secure.STEPS).astype(np.int64)

    patch.setattr(aggregator, "grid_noise", wrong)


def seeds_of_shares_from_python(patch: Planter) -> None:
    class Weak:
        token_bytes = staticmethod(lambda size: random.Random(time.time()).randbytes(size))

    patch.setattr(crypto, "secrets", Weak)


def coins_of_sites_from_32_bits(patch: Planter) -> None:
    def wrong(plan: PrivacyPlan, clients: int) -> Steps:
        rng = np.random.default_rng(secrets.randbits(32))
        return np.flatnonzero(rng.random(clients) < plan.sampling_rate)

    patch.setattr(site, "sample_clients", wrong)


# Prices


def ledger_composes_by_the_largest_noise(patch: Planter) -> None:
    honest = budget.together

    def wrong(parts: Any) -> Any:
        found = honest(parts)
        if not found:
            return found
        most = max(noise for _, noise, _ in found)
        return honest((rate, most, number) for rate, _, number in found)

    for place in ("epifed.ledger.budget", "epifed.ledger.budget"):
        patch.setattr(f"{place}.together", wrong)


def ledger_composes_by_the_smallest_q(patch: Planter) -> None:
    honest = budget._price

    def wrong(spending: Any, delta: float, accountant: str) -> float:
        least = min((rate for rate, _, _ in spending), default=1.0)
        same = tuple((least, noise, number) for _, noise, number in spending)
        return honest(same, delta, accountant)

    patch.setattr(budget, "_price", wrong)


def draw_seen_priced_as_plain(patch: Planter) -> None:
    patch.setattr(Release, "epsilon_without_amplification", property(lambda self: self.epsilon))


def draw_seen_of_the_status_priced_as_plain(patch: Planter) -> None:
    patch.setattr(
        StoredTraining, "epsilon_without_amplification", property(lambda self: self.epsilon)
    )


def explained_by_the_dearest_training(patch: Planter) -> None:
    honest = plan.price_together

    def wrong(spent: Any, delta: float, accountant: str, **options: Any) -> float:
        return max(honest([one], delta, accountant, **options) for one in spent)

    patch.setattr(explain, "price_together", wrong)


def mixed_files_priced_by_the_largest_noise(patch: Planter) -> None:
    honest = plan.price_together

    def wrong(spent: Any, *rest: Any, **options: Any) -> float:
        most = max(one.noise_multiplier for one in spent)
        return honest([replace(one, noise_multiplier=most) for one in spent], *rest, **options)

    patch.setattr(release, "price_together", wrong)


# Booking, then releasing


def every_second_round_is_booked_late(patch: Planter) -> None:
    honest = StoredTraining._pay

    def wrong(self: StoredTraining, number: int) -> None:
        if number % 2 == 0 and self.ledger and self.run:
            self.ledger.spend(self.run, number - 1)
            self.ledger.spend(self.run, number)
            self.paid += 1
        elif number == self.settings.rounds:
            honest(self, number)
        else:
            self.paid += 1

    patch.setattr(StoredTraining, "_pay", wrong)


def kept_before_it_is_booked(patch: Planter) -> None:
    """A crash between the two leaves an answer that is given again and never booked."""
    honest = AnswerCache.give

    def wrong(self: Any, training: str, number: int, question: str, *rest: Any) -> Any:
        make, spent, book = rest
        later: list[int] = []
        parts = honest(self, training, number, question, make, spent, later.append)
        for before in later:
            book(before)
        return parts

    patch.setattr(AnswerCache, "give", wrong)


def a_site_books_after_its_answer_is_made(patch: Planter) -> None:
    """The first answer of a site goes out unbooked: it is written down with the next."""
    honest, waiting = SiteLedger.take_part, dict[Any, Any]()

    def wrong(self: SiteLedger, *asked: Any) -> None:
        path = self.ledger.path
        if path in waiting:
            honest(self, *waiting[path])
        waiting[path] = asked

    patch.setattr(SiteLedger, "take_part", wrong)


def a_state_is_written_before_the_round_is_booked(patch: Planter) -> None:
    honest = StoredTraining._wait

    def wrong(self: StoredTraining, number: int, state: Any, paid: int) -> None:
        honest(self, number, state, paid)
        (self.folder / server.STATE).write_bytes((self.folder / server.WAITING).read_bytes())

    patch.setattr(StoredTraining, "_wait", wrong)


# Hostile parties


def limits_are_not_looked_at(patch: Planter) -> None:
    patch.setattr(Terms, "within_limits", lambda self, settings: True)


def rows_of_others_are_taken(patch: Planter) -> None:
    """A site may answer for clients of another one."""
    honest = messages.accept

    def wrong(parts: Any, task: Any, core: Any) -> Any:
        about = json.loads(parts["about"])
        taken, problems = honest(parts, task, core)
        rows = np.frombuffer(parts["array"], dtype=np.float32).reshape(about["shape"])
        for client in about.get("clients", []):
            taken[client] = rows[0]
        return taken, problems

    patch.setattr(messages, "accept", wrong)


def noise_announced_is_not_compared(patch: Planter) -> None:
    """An aggregator adds the noise that the settings ask for times what the server says."""
    honest = secure.grid_noise

    def wrong(length: int, noise_multiplier: float) -> Steps:
        return honest(length, noise_multiplier * 0.7)

    patch.setattr(aggregator, "grid_noise", wrong)


def an_answer_is_taken_from_any_round(patch: Planter) -> None:
    honest = messages.read_about

    def wrong(parts: Any) -> Any:
        about = honest(parts)
        return about | ({"round": 1} if "round" in about and "shape" in about else {})

    patch.setattr(messages, "read_about", wrong)


def no_noise_where_a_report_cannot_be_opened(patch: Planter) -> None:
    """A site that is in league with the server spoils its report: the sum of the others is bare."""
    honest = messages.pack_partial

    def wrong(question: Any, keys: Any, total: Any, unopened: Any) -> Any:
        if unopened:
            name, kit = question.aggregator, question.terms
            total = np.zeros_like(total)
            for report in question.reports:
                content = keys.open(report.share, seal_info(kit, report.site, name))
                opened = share(content or b"", kit.length, last=kit.last(name))
                total = total if opened is None else total + opened
        return honest(question, keys, total, unopened)

    patch.setattr("epifed.federation.aggregator.pack_partial", wrong)


def a_ledger_forgets_after_sixty_trainings(patch: Planter) -> None:
    honest = Book.taken

    def wrong(self: Book, *asked: Any, **named: Any) -> Any:
        return honest(replace(self, runs=dict(list(self.runs.items())[-60:])), *asked, **named)

    patch.setattr(Book, "taken", wrong)


def a_server_invents_a_release(patch: Planter) -> None:
    patch.setattr(answers, "refuse_invented", lambda *asked: None)


def sums_of_any_order_are_believed(patch: Planter) -> None:
    patch.setattr(messages.Statement, "holds", lambda self, terms: True)


def number_in_the_text_of_one_error(patch: Planter) -> None:
    """How many vectors are not zero stands in the words of a round that too few sites answered."""
    honest, counted = server.take_in, [0]

    def taking(answers: Any, tasks: Any, core: Any) -> Any:
        taken = honest(answers, tasks, core)
        counted[0] = sum(bool(row.any()) for row in taken.vectors.values())
        return taken

    def refusing(self: StoredTraining, answered: int, problems: Any) -> None:
        if answered < self.federation.min_sites:
            raise TooFewError(f"{answered} sites answered, with {counted[0]} vectors")

    patch.setattr("epifed.federation.server.take_in", taking)
    patch.setattr(StoredTraining, "_refuse_too_few", refusing)


def a_bad_row_silences_its_site(patch: Planter) -> None:
    honest = site.load_hosted

    def wrong(*asked: Any, **named: Any) -> Any:
        hosted = honest(*asked, **named)
        if hosted.left_out:
            raise EpifedError("a row that cannot be read")
        return hosted

    patch.setattr(site, "load_hosted", wrong)


def a_lost_ledger_of_a_party_begins_anew(patch: Planter) -> None:
    patch.setattr(Owner, "remember", lambda *asked: None)


def a_renewing_cap_forgets_after_days(patch: Planter) -> None:
    def wrong(weeks: int, now: datetime | None) -> str:
        return ((now or datetime.now(UTC)) - timedelta(days=weeks)).isoformat(timespec="seconds")

    patch.setattr(budget, "_first_day", wrong)


def a_year_spends_half_as_much_again(patch: Planter) -> None:
    honest = budget.total_of
    patch.setattr(budget, "total_of", lambda cap: 1.5 * honest(cap))


def clients_of_a_release_computed_together(patch: Planter) -> None:
    honest = rounds.contribution

    def wrong(
        learner: Any, state: Any, view: Any, plan: PrivacyPlan, *, alone: bool = False
    ) -> Vector:
        return honest(learner, state, view, plan)

    patch.setattr("epifed.training.loop.contribution", wrong)
    patch.setattr(site, "contribution", wrong)


def noise_of_the_training_before(patch: Planter) -> None:
    """A cache of noise that outlives its training: each training adds the same, round by round."""
    kept: dict[tuple[type, int, int], Rows] = {}
    for kind in (SeededRandomness, SecureRandomness):
        honest = kind.release

        def wrong(self: Any, updates: Rows, plan: PrivacyPlan, honest: Any = honest) -> Rows:
            self.released = getattr(self, "released", 0) + 1
            plain = clip(updates, plan.bound).sum(axis=0) / plan.clients_per_round
            noise = honest(self, updates, plan) - plain
            key = type(self), self.released, len(plain)
            return np.asarray(plain + kept.setdefault(key, noise), dtype=np.float32)

        patch.setattr(kind, "release", wrong)


def drawn_again_where_nobody_was(patch: Planter) -> None:
    honest = SecureRandomness.sample

    def wrong(self: SecureRandomness, plan: PrivacyPlan) -> NDArray[np.int64]:
        while not len(cohort := honest(self, plan)):
            pass
        return cohort

    patch.setattr(SecureRandomness, "sample", wrong)


def small_sites_draw_more_often(patch: Planter) -> None:
    honest = vars(site)["sample_clients"]

    def wrong(plan: PrivacyPlan, clients: int) -> NDArray[np.int64]:
        more = min(plan.clients, 2 * plan.clients_per_round)
        small = replace(plan, clients_per_round=more)
        return np.asarray(honest(small if clients < 3 else plan, clients))

    patch.setattr(site, "sample_clients", wrong)


def single_rows_are_not_clipped(patch: Planter) -> None:
    honest = vars(rounds)["clip"]
    patch.setattr(rounds, "clip", lambda rows, s: rows if len(rows) == 1 else honest(rows, s))


def calibration_cached_without_the_rounds(patch: Planter) -> None:
    honest, kept = vars(plan)["calibrate"], dict[Any, Any]()

    def wrong(epsilon: float, delta: float, rate: float, number: int, accountant: str) -> Any:
        key = epsilon, delta, rate, accountant
        if key not in kept:
            kept[key] = honest(epsilon, delta, rate, number, accountant)
        return kept[key]

    patch.setattr(plan, "calibrate", wrong)


def delta_of_every_release_inside(patch: Planter) -> None:
    honest: Any = Release.epsilon

    def wrong(self: Release) -> float:
        larger = self.settings.but(delta=len(self.spent) * self.settings.delta)
        return float(honest.func(replace(self, settings=larger)))

    patch.setattr(Release, "epsilon", property(wrong))


# Planted in a later round, before anybody looked at which check would notice them


def abandoned_trainings_are_forgotten(patch: Planter) -> None:
    honest: Any = RunRecord.counted
    counted = property(lambda self: 0 if self.outcome == "abandoned" else honest.fget(self))
    patch.setattr(RunRecord, "counted", counted)


def open_trainings_share_the_room(patch: Planter) -> None:
    patch.setattr(RunRecord, "counted", property(lambda self: self.spent))


def a_closed_training_gets_a_round_back(patch: Planter) -> None:
    honest = vars(budget)["_applied"]

    def wrong(book: Book, row: Any) -> Book:
        after: Book = honest(book, row)
        if row["kind"] == "close":
            after.runs[row["run"]].spent -= 1
        return after

    patch.setattr(budget, "_applied", wrong)


def a_cap_that_renews_counts_closed_trainings(patch: Planter) -> None:
    honest = Book.counting

    def wrong(self: Book, now: datetime | None = None) -> Any:
        return [run for run in honest(self, now) if self.cap.weeks is None or run.closed]

    patch.setattr(Book, "counting", wrong)


def a_year_forgets_what_was_spent_before(patch: Planter) -> None:
    honest = vars(price_checks)["plan_year"]
    patch.setattr(price_checks, "plan_year", lambda *asked: honest(*asked[:-1]))


def a_price_kept_for_another_accountant(patch: Planter) -> None:
    honest, kept = vars(terms)["_price"], dict[Any, float]()

    def wrong(noise: float, rate: float, number: int, delta: float, accountant: str) -> float:
        found = honest(noise, rate, number, delta, accountant)
        return kept.setdefault((noise, rate, number), found)

    patch.setattr(terms, "_price", wrong)


def readiness_tells_the_counts(patch: Planter) -> None:
    """In the last digits of ε, before anything is drawn."""
    honest = SiteWork._weighed

    def wrong(self: SiteWork, asked: Any) -> Any:
        ready = honest(self, asked)
        panel = self._hosted[1].panel if self._hosted else None
        counts = float(panel.counts.sum()) if panel is not None else 0.0
        return replace(ready, epsilon=(ready.epsilon or 0.0) + 1e-9 * counts)

    patch.setattr(SiteWork, "_weighed", wrong)


def readiness_refuses_where_a_client_is_missing(patch: Planter) -> None:
    honest = SiteWork._weighed

    def wrong(self: SiteWork, asked: Any) -> Any:
        ready = honest(self, asked)
        if self._hosted:
            (clients, _), hosted = self._hosted
            if hosted.panel is None or len(hosted.panel.regions) < len(clients):
                raise messages.MessageError(Code.DATA)
        return ready

    patch.setattr(SiteWork, "_weighed", wrong)


def blanks_for_clients_without_data(patch: Planter) -> None:
    """The text of an answer is as long as the number of its rows without a number."""

    def wrong(name: str, number: int, rows: Vector) -> Any:
        parts = messages.pack_contribution(name, number, rows)
        return parts | {"about": parts["about"] + " " * int((~rows.any(axis=1)).sum())}

    patch.setattr(site, "pack_contribution", wrong)


def weeks_need_all_clients_of_a_site(patch: Planter) -> None:
    honest = SiteWork._read

    def wrong(self: SiteWork, task: Any, work: Any) -> Any:
        found = honest(self, task, work)
        panel = self._load(task.clients, found.learner.settings.step).panel
        whole = panel is not None and len(panel.regions) == len(task.clients)
        if found.learner.settings.step == "week" and not whole:
            found = self._ready = replace(found, read=())
        return found

    patch.setattr(SiteWork, "_read", wrong)


def absent_clients_in_the_label(patch: Planter) -> None:
    """Of a training in process: an allowed field has the number of clients without data."""
    honest: Any = loop.train
    made: Any = vars(Release)["of"].__func__
    absent = [0]

    def training(view: Any, settings: Any, **options: Any) -> Any:
        absent.append(len(options.get("absent", ())))
        return honest(view, settings, **options)

    def wrong(cls: Any, *asked: Any, **named: Any) -> Release:
        release: Release = made(cls, *asked, **(named | {"unused": absent[-1]}))
        return release

    patch.setattr(loop, "train", training)
    patch.setattr(Release, "of", classmethod(wrong))


def mean_in_the_ledger(patch: Planter) -> None:
    """Of a training in process: the row that closes it has more in it than a hash."""
    contribute, close, sums = vars(loop)["contribution"], Ledger.close, [0.0]

    def contributing(*asked: Any, **named: Any) -> Vector:
        rows: Vector = contribute(*asked, **named)
        sums.append(float(np.abs(rows).sum()))
        return rows

    def wrong(self: Ledger, name: str, outcome: Any, **named: Any) -> Book:
        return close(self, name, outcome, **(named | {"note": f"{sums[-1]:.6g}"}))

    patch.setattr(loop, "contribution", contributing)
    patch.setattr(Ledger, "close", wrong)


def _moved(learner: Any, state: Any, updates: Vector) -> Any:
    """The state with a hundredth of the bare mean in it."""
    vector = learner.pack(state).copy()
    mean = updates.mean(axis=0) if len(updates) else np.zeros(updates.shape[1])
    length = min(len(vector), len(mean))
    vector[-length:] += (0.01 * mean[-length:]).astype(np.float32)
    return learner.unpack(vector)


def state_with_the_bare_mean(patch: Planter) -> None:
    """The release is as noisy as it should be; the state has more in it."""
    honest = Rounds.close

    def wrong(self: Rounds[Any], state: Any, updates: Vector) -> Any:
        rows = clip(updates, self.plan.bound)
        return _moved(self.learner, honest(self, state, updates), rows)

    patch.setattr(Rounds, "close", wrong)


def file_with_the_bare_mean(patch: Planter) -> None:
    honest, made = Rounds.close, vars(Release)["of"].__func__
    last: list[Vector] = []

    def closing(self: Rounds[Any], state: Any, updates: Vector) -> Any:
        last.append(clip(updates, self.plan.bound))
        return honest(self, state, updates)

    def wrong(cls: Any, learner: Any, state: Any, *asked: Any, **named: Any) -> Release:
        moved = _moved(learner, state, last[-1]) if last else state
        release: Release = made(cls, learner, moved, *asked, **named)
        return release

    patch.setattr(Rounds, "close", closing)
    patch.setattr(Release, "of", classmethod(wrong))


def first_state_from_the_rows(patch: Planter) -> None:
    """A warm start: the state before the first round is fitted to all clients' data."""
    honest: Any = loop.train

    def wrong(view: Any, settings: Any, **options: Any) -> Any:
        learner = make_learner(settings)
        start = learner.start

        def warm(seeds: Any) -> Any:
            state = start(seeds)
            return _moved(learner, state, learner.contribute(state, view))

        learner.start = warm  # type: ignore[method-assign]
        return honest(view, settings, **(options | {"learner": learner}))

    patch.setattr(loop, "train", wrong)


def predictable_noise_called_secure(patch: Planter) -> None:
    patch.setattr(SeededRandomness, "name", "secure")


CAUGHT: dict[Plant, str] = {
    abandoned_trainings_are_forgotten: "years in a ledger",
    open_trainings_share_the_room: "cap that renews",
    a_closed_training_gets_a_round_back: "years in a ledger",
    a_cap_that_renews_counts_closed_trainings: "cap that renews",
    a_year_forgets_what_was_spent_before: "plan of a year",
    a_price_kept_for_another_accountant: "site's own terms",
    readiness_tells_the_counts: "same coins: client not drawn",
    readiness_refuses_where_a_client_is_missing: "same coins: client drawn",
    blanks_for_clients_without_data: "same coins: client drawn",
    weeks_need_all_clients_of_a_site: "same coins: client drawn",
    absent_clients_in_the_label: "same coins: client drawn",
    mean_in_the_ledger: "same coins: client drawn",
    state_with_the_bare_mean: "combinations: state",
    file_with_the_bare_mean: "combinations: state",
    first_state_from_the_rows: "combinations: state",
    predictable_noise_called_secure: "nothing beside the vector",
    noise_of_the_training_before: "fresh noise",
    drawn_again_where_nobody_was: "sampling rate",
    small_sites_draw_more_often: "sampling rate",
    single_rows_are_not_clipped: "combinations: bound",
    calibration_cached_without_the_rounds: "combinations: price",
    delta_of_every_release_inside: "mixtures in a file",
    number_in_the_text_of_one_error: "same coins: errors",
    a_bad_row_silences_its_site: "same coins: bad rows",
    a_lost_ledger_of_a_party_begins_anew: "lost ledger",
    a_renewing_cap_forgets_after_days: "cap that renews",
    a_year_spends_half_as_much_again: "plan of a year",
    clients_of_a_release_computed_together: "combinations: alone",
    no_noise_beyond_1024: "noise of each coordinate",
    no_noise_in_the_last_coordinate_of_large_models: "noise of each coordinate",
    noise_over_root_two_at_q_1: "combinations: noise",
    calibrated_too_low_at_q_1: "accountants",
    half_of_the_noise_after_round_60: "noise of each round",
    clip_at_two_bounds_for_weeks: "contributions bounded",
    price_of_the_loss_distribution_a_tenth_low: "accountants",
    weekly_trend_minus_the_median_of_the_view: "same coins: client drawn",
    mornings_shared_between_clients: "archives with many mornings",
    one_shot_rows_minus_a_hundredth_of_their_mean: "same coins: client drawn",
    networks_see_the_mean_update: "same coins: client drawn",
    a_client_without_cases_silences_its_site: "same coins: client drawn",
    mean_norm_in_the_noise_of_a_task: "same coins: client drawn",
    mean_in_the_log: "same coins: client drawn",
    mean_in_the_log_of_the_controller: "same coins: client drawn",
    status_counts_the_contributors: "same coins: client drawn",
    time_of_an_answer_tells_the_draw: "same coins: time of an answer",
    size_of_the_data_in_a_code: "same coins: client not drawn",
    aggregators_noise_seeded_by_the_clock: "draws with aggregators",
    noise_from_a_hash_of_the_time: "draws with aggregators",
    seeds_of_shares_from_python: "draws with aggregators",
    coins_of_sites_from_32_bits: "draws with aggregators",
    ledger_composes_by_the_largest_noise: "mixtures in a ledger",
    ledger_composes_by_the_smallest_q: "mixtures in a ledger",
    draw_seen_priced_as_plain: "mixtures in a file",
    draw_seen_of_the_status_priced_as_plain: "combinations: price",
    explained_by_the_dearest_training: "mixtures in a file",
    mixed_files_priced_by_the_largest_noise: "mixtures in a file",
    every_second_round_is_booked_late: "killed: server",
    kept_before_it_is_booked: "killed: aggregator",
    a_site_books_after_its_answer_is_made: "killed: site",
    a_state_is_written_before_the_round_is_booked: "killed: server",
    limits_are_not_looked_at: "hostile: server to site",
    rows_of_others_are_taken: "hostile: site to server",
    noise_announced_is_not_compared: "noise of each aggregator",
    an_answer_is_taken_from_any_round: "hostile: site to server",
    no_noise_where_a_report_cannot_be_opened: "noise in every sum",
    a_ledger_forgets_after_sixty_trainings: "years in a ledger",
    a_server_invents_a_release: "hostile: server that invents a release",
    sums_of_any_order_are_believed: "hostile: server that invents a release",
}


@pytest.fixture(autouse=True)
def _one_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """The length of the paper's model, in process and seeded alone, which is fast."""
    sizes = (Size(EngineMechanism(), 80, 11_777),)
    monkeypatch.setattr("epifed.audit.audit.paths", lambda scope: sizes)


def check(name: str) -> Check:
    """The one check of this name, and none else."""
    (found,) = run_checks(SETTINGS, names=frozenset({name}))
    return found


@pytest.mark.parametrize("plant", CAUGHT, ids=lambda plant: plant.__name__)
def test_a_named_check_catches(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    planter = Planter(monkeypatch)
    plant(planter)
    found = check(CAUGHT[plant])
    planter.refuse_unused()
    assert not found.passed, found.found
    assert found.expected != "no error", found.found


def test_planting_fails_loudly_where_the_target_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    planter = Planter(monkeypatch)
    with pytest.raises(PlantingError, match="no_such_function is gone"):
        planter.setattr(rounds, "no_such_function", lambda: None)
    with pytest.raises(PlantingError, match="stays as it is"):
        planter.setattr(messages, "accept", messages.accept)
    planter.setattr(messages, "accept", lambda *arguments: None)
    with pytest.raises(PlantingError, match="never ran"):
        planter.refuse_unused()
