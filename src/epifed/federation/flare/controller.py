"""The server's side of a job: a few rounds of a training, from the state on disk."""

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import Timeout
from nvflare.apis.client import Client
from nvflare.apis.controller_spec import ClientTask
from nvflare.apis.controller_spec import Task as FlareTask
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from epifed.errors import EpifedError, counted
from epifed.federation.flare.engine_patches import GATE, shield_worker, with_party
from epifed.federation.flare.executor import ADD, ASK, DELIVER, HELLO, TRAIN
from epifed.federation.messages import (
    Code,
    Greeting,
    Parts,
    ProtocolRange,
    Readiness,
    RoundTerms,
    Task,
    most_bytes,
    not_understood,
    pack_tasks,
    refuse_versions,
    unreceived,
)
from epifed.federation.readiness import NotReadyError, Party, Role, refuse_unready
from epifed.federation.secure_training import AwayError, SecureTraining
from epifed.federation.server import (
    DELIVERED,
    Order,
    Post,
    Problem,
    ServedTraining,
    StoredTraining,
    TooFewError,
    read_state,
    write_line,
)
from epifed.federation.terms import Federation
from epifed.files import write_text
from epifed.learners.base import Vector, make_learner
from epifed.ledger.budget import together
from epifed.ledger.ledger import Ledger
from epifed.privacy.accounting import rounded_up
from epifed.privacy.plan import PrivacyPlan
from epifed.settings import of_training
from epifed.training.loop import refuse_unreleasable
from epifed.training.rounds import vector_length

TOPIC, STATUS, PARCEL = "epifed", "epifed_status.json", "epifed_parcel"
CHECK_PERIOD = 0.05
SILENT_ROUNDS = 2
"""Rounds without an answer after which this job no longer waits for a site."""
LET_GO = 60.0
"""Seconds in which the worker of a crashed server must have released a training."""
RECENT = 20
"""The number of recent rounds in a status."""
ROSTER, SERVER_FILE, TRAININGS = "federation.toml", "server.json", "trainings"

# When a job ends, FLARE looks for tensors in flight, and loads PyTorch for it wherever it is
# installed. There are none here; a module that cannot be imported is not searched.
sys.modules.setdefault("nvflare.app_opt.pt.tensor_downloader", None)  # type: ignore[arg-type]


class _BrokenOffError(Exception):
    """The job ended within a round, which is not counted."""


class FederationController(Controller):  # type: ignore[misc]
    """Runs at most `rounds` rounds of a training, then ends the job; the next one resumes.

    Short jobs let a training survive failures: sites that were late or away join the next one.
    Before each job's first round all parties are asked whether they would take part. A training
    begins, and is charged, only if `least` sites would. A job of no rounds asks, and ends.
    """

    def __init__(self, order: str, rounds: int, least: int = 1) -> None:
        super().__init__(task_check_period=CHECK_PERIOD)
        shield_worker()
        with_party()
        self.order = Order.unsealed(order)
        self.rounds_of_job, self.least = rounds, least
        self.status: dict[str, Any] = {"training": self.order.training, "finished": False}
        self._foreign: dict[str, ProtocolRange] = {}
        self._stated: dict[str, ProtocolRange] = {}
        self._late = set[str]()
        self._silences: dict[str, int] = {}
        self._parent = os.getppid()
        self._aggregated = self.order.settings.noise == "aggregators"

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Register the command with which the coordinator gets the status."""
        fl_ctx.get_engine().register_app_command(TOPIC, self._command)

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Nothing to release: the lock ends with the process."""

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Put a site's own parcel into its copy of the common task."""
        super().handle_event(event_type, fl_ctx)
        if event_type == EventType.AFTER_TASK_DATA_FILTER:
            fl_ctx.get_prop(FLContextKey.TASK_DATA).update(fl_ctx.get_prop(PARCEL))

    def _command(self, topic: str, wish: dict[str, Any] | None, fl_ctx: FLContext) -> Any:
        """The status; if the coordinator asks to stop, the job ends after this round."""
        del topic, fl_ctx
        if wish and wish.get("stop"):
            self.status["stopped"] = True
        return self.status

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Run the rounds of this job and, after the last round, deliver the release."""
        workspace = fl_ctx.get_engine().get_workspace()
        kit = Path(workspace.get_root_dir())
        run = Path(workspace.get_run_dir(fl_ctx.get_job_id()))
        try:
            self._play(kit, abort_signal, fl_ctx)
        except _BrokenOffError:
            self.log_warning(fl_ctx, "broken off within a round", fire_event=False)
        except AwayError as away:
            self._wait(f"the aggregator '{away}' does not answer", fl_ctx)
        except TooFewError as few:
            self._wait(str(few), fl_ctx)
        except NotReadyError as error:
            self.status |= {"error": str(error), "unready": True}
            self.log_error(fl_ctx, str(error), fire_event=False)
        except EpifedError as error:
            self.status["error"] = str(error)
            self.log_error(fl_ctx, str(error), fire_event=False)
        write_text(run / STATUS, json.dumps(self.status))

    def _play(self, kit: Path, abort_signal: Signal, fl_ctx: FLContext) -> None:
        federation = Federation.read(kit / ROSTER)
        path = json.loads((kit / SERVER_FILE).read_text(encoding="utf-8")).get("ledger")
        folder = kit / TRAININGS / self.order.training
        ledger = Ledger(Path(path)) if path else None
        GATE.most = most_bytes(0, 0)
        keys = self._greet(federation, abort_signal, fl_ctx)
        left = len(self._present(federation, fl_ctx))
        where = federation, abort_signal, fl_ctx
        if not self.rounds_of_job:
            self._ask_all(_Begun(), keys, ledger, *where)
            return
        refuse_versions(self._foreign, self._adders(federation, fl_ctx), left, federation.min_sites)
        begun = _Begun.of(folder, ledger, self.order.training)
        if not begun.rounds:
            refuse_unready(self._ask_all(begun, keys, ledger, *where), self.least)
        training = self._patiently(folder, federation, ledger)
        if begun.rounds and not training.finished:
            begun = _Begun(training.done, training.paid, begun.state)
            refuse_unready(self._ask_all(begun, keys, None, *where), federation.min_sites)
        largest = max(len(site.clients) for site in federation.sites)
        GATE.most = most_bytes(largest, training.rounds.length)
        post = _Post(self, federation, keys, abort_signal, fl_ctx)
        self._tell(training, federation, fl_ctx)

        def report(line: dict[str, Any]) -> None:
            line |= {"time": time.time(), "sites": sorted(self._present(federation, fl_ctx))}
            write_line(folder, line)
            missing = ", ".join(f"{p['site']}: {p['reason']}" for p in line["problems"])
            without = f"; without {missing}" if missing else ""
            self.logger.info(
                f"'{self.order.training}': round {line['round']} of {training.settings.rounds}, "
                f"ε = {rounded_up(line['epsilon'])} spent{without}"
            )
            for problem in line["problems"]:
                self.log_warning(
                    fl_ctx,
                    f"round {line['round']}: {problem['site']}: {problem['reason']}",
                    fire_event=False,
                )
            self.status["lines"] = [*self.status.get("lines", []), line][-RECENT:]

        last = min(training.settings.rounds, training.done + self.rounds_of_job)
        while training.done < last and not (abort_signal.triggered or self.status.get("stopped")):
            self._refuse_too_few(federation, fl_ctx)
            training.play(post, report)
            self._tell(training, federation, fl_ctx)
        if training.finished:
            self._deliver(training, federation, abort_signal, fl_ctx)
        self._tell(training, federation, fl_ctx)

    def _patiently(
        self, folder: Path, federation: Federation, ledger: Ledger | None
    ) -> ServedTraining | SecureTraining:
        """The training, after waiting until a crashed server's worker has released it."""
        until = time.monotonic() + LET_GO
        while True:
            try:
                kind = SecureTraining if self._aggregated else ServedTraining
                return kind(folder, federation, self.order, ledger)
            except Timeout:
                if time.monotonic() > until:
                    raise EpifedError(
                        f"training '{self.order.training}': another process is still running it; "
                        "expected one at a time"
                    ) from None
                time.sleep(0.2)

    def _tell(self, training: StoredTraining, federation: Federation, fl_ctx: FLContext) -> None:
        self.status |= {
            "round": training.done,
            "rounds": training.settings.rounds,
            "paid": training.paid,
            "epsilon": training.epsilon,
            "epsilon_without_amplification": training.epsilon_without_amplification,
            "delta": training.settings.delta,
            "accountant": training.settings.accountant,
            "finished": training.finished,
            "sites": sorted(self._present(federation, fl_ctx)),
            "enrolled_sites": len(federation.sites),
            "ledger_run": training.run,
            "noise": training.settings.noise,
            "unused": training.unused,
        }

    def _present(self, federation: Federation, fl_ctx: FLContext) -> set[str]:
        """The connected sites that speak a known protocol and have not gone silent in this job."""
        enrolled = {site.name for site in federation.sites}
        connected = {client.name for client in fl_ctx.get_engine().get_clients()} & enrolled
        here = connected - self._foreign.keys()
        return {name for name in here if self._silences.get(name, 0) < SILENT_ROUNDS}

    def _refuse_too_few(self, federation: Federation, fl_ctx: FLContext) -> None:
        """Raise if too few sites are present, which does not depend on whom a round would draw."""
        present = len(self._present(federation, fl_ctx))
        if present < federation.min_sites:
            raise TooFewError(
                f"{counted(present, 'site')} answered, {federation.min_sites} expected"
            )

    def _wait(self, reason: str, fl_ctx: FLContext) -> None:
        """Leave the remaining rounds to the next job."""
        self.status["waiting"] = reason
        self.logger.warning(f"'{self.order.training}' waits: {reason}")

    def _ask_all(
        self,
        begun: "_Begun",
        keys: dict[str, str],
        ledger: Ledger | None,
        federation: Federation,
        abort_signal: Signal,
        fl_ctx: FLContext,
    ) -> list[Party]:
        """Ask every party, before anything is charged, whether it would take part."""
        settings, learner = self.order.settings, make_learner(self.order.settings)
        plan = PrivacyPlan.of(settings, len(federation.clients))
        start = learner.start(of_training(settings.seed)[0])
        adders = [party.name for party in federation.aggregators] if self._aggregated else []
        state = learner.pack(start) if begun.state is None else begun.state
        connected = self._present(federation, fl_ctx) | self._adders(federation, fl_ctx)
        # Every party compares the keys of all aggregators with those that it has pinned.
        able = connected & self._stated.keys() if keys.keys() >= set(adders) else set[str]()
        answers: dict[str, Parts] = {}
        if able:
            terms = RoundTerms.make(
                self.order.training,
                settings,
                plan,
                self.order.period,
                state,
                vector_length(learner, start),
                round=begun.done + 1,
                paid=begun.done if adders else begun.paid,
                randomness="seeded" if self.order.seeded else "secure",
                least=federation.min_sites,
                aggregators=tuple((name, keys[name]) for name in adders),
            )
            asked = dict.fromkeys(sorted(able), terms.pack())
            self._exchange(ASK, asked, answers, federation.start_timeout, abort_signal, fl_ctx)
        self._go_on(abort_signal)
        roles: list[tuple[str, Role]] = [(name, "aggregator") for name in adders]
        roles += [(site.name, "site") for site in federation.sites]
        parties = []
        for name, role in roles:
            if name in self._foreign:
                ready = Readiness(Code.VERSION)
            elif name in answers:
                ready = Readiness.unpack(answers[name])
            elif name in able:
                ready = Readiness(Code.NO_ANSWER)
            else:
                ready = Readiness() if name in connected else Readiness(Code.ABSENT)
            version = self._stated[name].epifed if name in self._stated else ""
            parties.append(Party(name, role, ready, version))
        if not self.order.seeded and (begun.done, begun.paid) == (0, 0):
            refuse_unreleasable(plan, settings.noise)
            paying = _affords(ledger, plan, self.order.training)
            parties.insert(0, Party("server", "server", paying, ProtocolRange.own().epifed))
        self.status["readiness"] = [party.to_dict() for party in parties]
        for party in parties:
            self.logger.info(f"'{self.order.training}': {party.name}: {party.sentence()}")
        return parties

    def _adders(self, federation: Federation, fl_ctx: FLContext) -> set[str]:
        """The aggregators of this job, if the training has any."""
        enrolled = {party.name for party in federation.aggregators} if self._aggregated else set()
        return {client.name for client in fl_ctx.get_engine().get_clients()} & enrolled

    def _greet(
        self, federation: Federation, abort_signal: Signal, fl_ctx: FLContext
    ) -> dict[str, str]:
        """Wait for the parties' workers to start; one that does not counts as absent.

        Returns the public keys of the aggregators that answered.
        """
        answers: dict[str, Parts] = {}
        present = self._present(federation, fl_ctx)
        adders = self._adders(federation, fl_ctx)
        own = Greeting.own(settings=self.order.settings.to_toml()).pack()
        hello = dict.fromkeys(sorted(present | adders), own)
        self._exchange(HELLO, hello, answers, federation.start_timeout, abort_signal, fl_ctx)
        self._silences |= dict.fromkeys(present - answers.keys(), SILENT_ROUNDS)
        greetings = {name: Greeting.unpack(parts) for name, parts in sorted(answers.items())}
        self._stated = {name: greeting.protocols for name, greeting in greetings.items()}
        self._foreign = not_understood(self._stated)
        self.status["versions"] = {name: stated.epifed for name, stated in self._stated.items()}
        return {name: greetings[name].keys for name in adders & greetings.keys()}

    def ask(
        self,
        tasks: dict[str, Task],
        federation: Federation,
        abort_signal: Signal,
        fl_ctx: FLContext,
    ) -> tuple[dict[str, Parts], list[Problem]]:
        """The sites' answers to their tasks, and the sites without one with the reason."""
        answers: dict[str, Parts] = {}
        present = self._present(federation, fl_ctx)
        asked = pack_tasks({site: task for site, task in tasks.items() if site in present})
        self._exchange(TRAIN, asked, answers, federation.round_timeout, abort_signal, fl_ctx)
        self._go_on(abort_signal)
        late, self._late = self._late, set()
        problems = [Problem(site, Code.LATE) for site in sorted(late)]
        for site in tasks:
            if site in answers:
                self._silences.pop(site, None)
            elif site in self._foreign:
                problems.append(Problem(site, Code.VERSION))
            elif site in asked and site in GATE.refused:
                problems.append(Problem(site, GATE.refused[site]))
            else:
                problems.append(Problem(site, Code.NO_ANSWER if site in asked else Code.ABSENT))
                self._silences[site] = self._silences.get(site, 0) + 1
        return answers, problems

    def consult(
        self,
        name: str,
        question: Parts,
        federation: Federation,
        abort_signal: Signal,
        fl_ctx: FLContext,
    ) -> Parts | None:
        """An aggregator's answer; None if it does not answer in time."""
        answers: dict[str, Parts] = {}
        if name in self._adders(federation, fl_ctx):
            asked = {name: question}
            self._exchange(ADD, asked, answers, federation.round_timeout, abort_signal, fl_ctx)
        self._go_on(abort_signal)
        return answers.get(name)

    def _go_on(self, abort_signal: Signal) -> None:
        if abort_signal.triggered or os.getppid() != self._parent:
            raise _BrokenOffError

    def _deliver(
        self,
        training: StoredTraining,
        federation: Federation,
        abort_signal: Signal,
        fl_ctx: FLContext,
    ) -> None:
        release = training.finish()
        path = training.folder / DELIVERED
        delivered = set(json.loads(path.read_text())) if path.exists() else set()
        present = self._present(federation, fl_ctx) | self._adders(federation, fl_ctx)
        wanting = present - delivered
        answers: dict[str, Parts] = {}
        parcel = training.delivery().pack()
        self._exchange(
            DELIVER,
            dict.fromkeys(sorted(wanting), parcel),
            answers,
            federation.start_timeout,
            abort_signal,
            fl_ctx,
        )
        wrong = GATE.refused | {s: unreceived(p, release.sha256) for s, p in answers.items()}
        delivered |= {site for site, code in wrong.items() if code is None}
        write_text(path, json.dumps(sorted(delivered)))
        self.status["sha256"] = release.sha256
        self.status["delivered"] = sorted(delivered)
        parties = {site.name for site in federation.sites}
        if self._aggregated:
            parties |= {party.name for party in federation.aggregators}
        self.status["missing"] = sorted(parties - delivered)
        self.status["undelivered"] = {s: code.value for s, code in sorted(wrong.items()) if code}

    def _exchange(
        self,
        name: str,
        parcels: dict[str, Parts],
        answers: dict[str, Parts],
        timeout: float,
        abort_signal: Signal,
        fl_ctx: FLContext,
    ) -> None:
        """Send each party its own parcel; wait for all answers or until the timeout.

        It is one task for all parties: FLARE scans all tasks whenever a party asks for work.
        """
        if not parcels:
            return

        def sending(client_task: ClientTask, fl_ctx: FLContext) -> None:
            parcel = parcels[client_task.client.name]
            fl_ctx.set_prop(PARCEL, parcel, private=True, sticky=False)

        def answered(client_task: ClientTask, fl_ctx: FLContext) -> None:
            answers.setdefault(client_task.client.name, dict(client_task.result or {}))
            client_task.result = None

        task = FlareTask(
            name,
            Shareable(),
            timeout=max(1, round(timeout)),
            before_task_sent_cb=sending,
            result_received_cb=answered,
        )
        GATE.refused.clear()
        self.broadcast(task, fl_ctx, targets=list(parcels), min_responses=len(parcels))
        until = time.monotonic() + timeout
        while task.completion_status is None:
            done = parcels.keys() <= answers.keys() | GATE.refused.keys()
            if done or abort_signal.triggered or time.monotonic() > until:
                self.cancel_task(task, fl_ctx=fl_ctx)
                break
            time.sleep(CHECK_PERIOD / 5)

    def process_result_of_unknown_task(
        self, client: Client, task_name: str, client_task_id: str, result: Shareable, fl_ctx: Any
    ) -> None:
        """Record an answer for which nothing waits: its round is over, or it came before."""
        self._silences.pop(client.name, None)
        self._late.add(client.name)


@dataclass(frozen=True)
class _Begun:
    """The progress of a training before this job."""

    done: int = 0
    paid: int = 0
    state: Vector | None = None
    """The packed state; None before the first round."""

    @property
    def rounds(self) -> int:
        """The rounds that were run or charged, whichever is larger."""
        return max(self.done, self.paid)

    @classmethod
    def of(cls, folder: Path, ledger: Ledger | None, training: str) -> "_Begun":
        """The progress of a training, from the disk and the ledger."""
        done, state = read_state(folder) or (0, None)
        record = ledger.book().named(training) if ledger else None
        return cls(done, record.spent if record else 0, state)


def _affords(ledger: Ledger | None, plan: PrivacyPlan, training: str) -> Readiness:
    """Whether the server's ledger has room for a training."""
    if ledger is None:
        raise EpifedError("the server has no ledger; expected one to charge the training to")
    book = ledger.book()
    own = book.named(training)
    part = (plan.priced_rate, plan.noise_multiplier, plan.rounds)
    cap, everything = book.cap, together((*book.taken(own.run if own else ""), part))
    code = None if cap.allows(everything) else Code.REFUSED_TOTAL
    return Readiness(code, cap.price(everything), cap.epsilon, cap.delta, cap.accountant)


@dataclass(frozen=True)
class _Post(Post):
    """Sends questions to the parties of a job over FLARE and returns their answers."""

    controller: FederationController
    federation: Federation
    public: dict[str, str]
    abort_signal: Signal
    fl_ctx: FLContext

    def keys(self) -> dict[str, str]:
        """The public keys of the aggregators that answered the greeting."""
        return self.public

    def sites(self, tasks: dict[str, Task]) -> tuple[dict[str, Parts], list[Problem]]:
        """The answers that arrived, by site, and the problems of the other sites."""
        return self.controller.ask(tasks, self.federation, self.abort_signal, self.fl_ctx)

    def aggregator(self, name: str, question: Parts) -> Parts | None:
        """An aggregator's answer; None if none arrives."""
        where = self.federation, self.abort_signal, self.fl_ctx
        return self.controller.consult(name, question, *where)
