"""Trainings as short FLARE jobs, submitted with the coordinator's kit until all rounds are done.

A job is JSON alone: it names installed classes and the request. If a site, a worker or the server
is lost, so is the job, and the next one resumes from the server's saved state.
"""

import contextlib
import json
import shutil
import socket
import tempfile
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from nvflare.fuel.flare_api.api_spec import (
    AuthorizationError,
    InternalError,
    InvalidJobDefinition,
    JobNotFound,
    JobNotRunning,
)
from nvflare.fuel.flare_api.flare_api import Session, new_secure_session

from epifed.errors import EpifedError, counted
from epifed.federation.flare.controller import STATUS, TOPIC
from epifed.federation.flare.engine_patches import Alive, HungError, quietly, watched
from epifed.federation.flare.executor import ADD, ASK, DELIVER, HELLO, TRAIN
from epifed.federation.flare.kits import CONTROLLER, EXECUTOR, kind_of, valid_certificate
from epifed.federation.messages import SENTENCES, Code, Readiness
from epifed.federation.readiness import NotReadyError, Party
from epifed.federation.schedule import Schedule, Week
from epifed.federation.server import Order
from epifed.federation.terms import Federation
from epifed.ledger.ledger import Ledger
from epifed.settings import Settings

T = TypeVar("T")
Watch = Callable[[dict[str, Any]], None]

POLL = 0.5
REACH = 5.0
"""Most seconds to reach the server's port."""
CONNECT = 30.0
"""Most seconds for the server to accept the coordinator, for a job."""
LOST = 300.0
"""Seconds without a server after which a training stops waiting; it can be resumed."""
MOST_FAILURES = 20
SILENT = 45.0
"""Seconds without an answer after which a running job is given up."""
HUNG = 60.0
"""Most seconds for each call to the server."""
MOST_PATIENCE = 4.0
"""Largest factor of both, after jobs were lost: an overloaded machine looks like a dead one."""
REJOIN = 20.0
"""Seconds in which a site that was away at the end may connect again to get its release."""
MOST_DELIVERIES = 3
MOST_QUESTIONS = 3
"""Most jobs that are tried to ask the parties whether they would take part."""
SOON = 10.0
"""Seconds in which a job begins if the parties it needs are connected."""
ENDED = (InternalError, JobNotFound, JobNotRunning)
"""FLARE's errors when a job to be ended has ended already."""
RUNNING = ("SUBMITTED", "APPROVED", "DISPATCHED", "RUNNING", "STARTING")


@dataclass(frozen=True)
class CoordinatorSession:
    """The coordinator's kit, which starts and follows trainings."""

    kit: Path

    def name(self) -> str:
        """The coordinator's name; raises unless the kit is a valid one of a coordinator."""
        if not (self.kit / "startup" / "fed_admin.json").is_file():
            raise EpifedError(
                f"{self.kit}: found {kind_of(self.kit)}; expected the coordinator's kit"
            )
        return valid_certificate(self.kit).name

    def refuse_unreachable(self) -> None:
        """Raise at once if nothing listens at the server's address, before FLARE waits for it."""
        try:
            config = json.loads((self.kit / "startup" / "fed_admin.json").read_text())
            admin = config["admin"]
            where = str(admin["host"]), int(admin["port"])
        except (OSError, ValueError, KeyError, TypeError):
            return
        try:
            socket.create_connection(where, timeout=REACH).close()
        except OSError as error:
            raise EpifedError(
                f"the server cannot be reached at {where[0]}:{where[1]}: "
                f"{error.strerror or error}; expected 'epifed federation server' to run there"
            ) from None

    @contextlib.contextmanager
    def session(self, patience: float = 10.0) -> Iterator[Session]:
        """A session with the server, over the one port, under the coordinator's certificate."""
        name = self.name()
        self.refuse_unreachable()
        with quietly():
            try:
                session = new_secure_session(name, str(self.kit.resolve()), timeout=patience)
            except Exception as error:
                raise EpifedError(f"the server cannot be reached: {error}") from None
        try:
            yield session
        finally:
            with contextlib.suppress(Exception):
                session.close()


def write_job(
    folder: Path, federation: Federation, order: Order, rounds: int, least: int | None = None
) -> Path:
    """Write the folder of a job: three JSON files, no code.

    `least` sites must be willing before the first round is charged, never fewer than the roster
    requires. A job of no rounds asks the parties whether they would take part, and ends.
    """
    job = folder / order.training
    config = job / "app" / "config"
    config.mkdir(parents=True)
    sites = [site.name for site in federation.sites]
    aggregated = order.settings.noise == "aggregators"
    adders = [party.name for party in federation.aggregators] if aggregated else []
    meta = {
        "name": f"epifed-{order.training}",
        "min_clients": federation.min_sites + len(adders) if rounds else 1,
        "mandatory_clients": adders if rounds else [],
        "resource_spec": {},
        "deploy_map": {"app": ["server", *sites, *adders]},
    }
    controller = {
        "id": "controller",
        "path": CONTROLLER,
        "args": {
            "order": order.sealed(),
            "rounds": rounds,
            "least": max(least or 0, federation.min_sites),
        },
    }
    server = {
        "format_version": 2,
        "server": {"task_request_interval": federation.request_interval},
        "task_data_filters": [],
        "task_result_filters": [],
        "components": [],
        "workflows": [controller],
    }
    client = {
        "format_version": 2,
        "max_runner_sync_timeout": federation.start_timeout,
        "get_task_timeout": federation.ask_again,
        "submit_task_result_timeout": federation.ask_again,
        "executors": [
            {
                "tasks": [HELLO, ASK, TRAIN, ADD, DELIVER],
                "executor": {"path": EXECUTOR, "args": {}},
            }
        ],
        "task_data_filters": [],
        "task_result_filters": [],
        "components": [],
    }
    (job / "meta.json").write_text(json.dumps(meta, indent=2))
    (config / "config_fed_server.json").write_text(json.dumps(server, indent=2))
    (config / "config_fed_client.json").write_text(json.dumps(client, indent=2))
    return job


def run_training(
    desk: CoordinatorSession,
    federation: Federation,
    order: Order,
    watch: Watch,
    patience: float = LOST,
    least: int | None = None,
) -> dict[str, Any]:
    """Submit jobs until the training is finished; returns the last status. It can be repeated.

    Each job first asks the parties whether they would take part. If fewer than `least` sites would,
    by default the roster's minimum, nothing is spent and `NotReadyError` names who refused and why.
    Sites that missed the delivery get it in a further job, if they connect again soon.
    """
    deliveries = 0
    course = _Course(watch)
    while True:
        try:
            status = _one_job(desk, federation, order, course, least)
        except (AuthorizationError, InvalidJobDefinition) as error:
            raise EpifedError(f"the server refused the training: {error}") from None
        except Exception as error:  # FLARE's errors share no base; a restart ends sessions too
            if time.monotonic() - course.heard > patience:
                raise EpifedError(
                    f"training '{order.training}': the server has been away for {patience:g} "
                    f"seconds ({error}); start it and repeat the command to resume"
                ) from None
            watch({"waiting": str(error)})
            time.sleep(1)
            continue
        if status is None or "waiting" in status:
            course.lost += 1
            if course.lost > MOST_FAILURES:
                reason = "the reason is in the logs of the server and the sites"
                raise EpifedError(
                    f"training '{order.training}': {course.lost} jobs failed without a round "
                    f"between them; {status['waiting'] if status else reason}"
                )
        if status is None:
            continue
        course.follow(status)
        if "error" in status:
            kind = NotReadyError if status.get("unready") else EpifedError
            raise kind(str(status["error"]))
        if status.get("stopped") and not status["finished"]:
            return status
        if status["finished"]:
            deliveries += 1
            away = set(status.get("missing", ()))
            if not away or deliveries > MOST_DELIVERIES or not _return(desk, away):
                return status


def nothing_learned(status: dict[str, Any]) -> str:
    """Why nothing was learned from a finished training; empty if something was."""
    if not status["finished"] or status.get("unused", 0) < status["paid"]:
        return ""
    reasons = sorted(
        {SENTENCES[Code(p["reason"])] for line in status.get("lines", ()) for p in line["problems"]}
    )
    return f"ε spent, nothing learned: {'; '.join(reasons) or 'no round could be used'}"


def ask_parties(
    desk: CoordinatorSession, federation: Federation, order: Order, watch: Watch = lambda _: None
) -> list[Party]:
    """Ask every party whether it would take part in a training; nothing is spent."""
    course = _Course(watch)
    if not set(look(desk)["connected"]) & {party.name for party in federation.parties}:
        away = Readiness(Code.ABSENT)
        return [Party(site.name, "site", away) for site in federation.sites]
    for _ in range(MOST_QUESTIONS):
        status = _one_job(desk, federation, order, course, rounds=0)
        if status and "readiness" in status:
            return [Party.of(row) for row in status["readiness"]]
        if status and "error" in status:
            raise EpifedError(str(status["error"]))
    raise EpifedError(
        f"training '{order.training}': no party could be asked; expected the server and at least "
        "one site: 'epifed federation status' prints who is connected"
    )


@dataclass
class _Course:
    """The progress of a training's jobs."""

    watch: Watch
    lost: int = 0
    """Jobs lost since the last new round."""
    furthest: int = -1
    given_up: set[str] = field(default_factory=set)
    """Jobs that were given up, but that the server may still be running."""
    token: str | None = None
    """The token of the current job; a job submitted again under it is found, not doubled."""
    server_start: float | None = None
    heard: float = field(default_factory=time.monotonic)
    """The time of the server's last answer."""

    @property
    def patience(self) -> float:
        return min(2.0**self.lost, MOST_PATIENCE)

    def follow(self, status: dict[str, Any]) -> None:
        if status.get("round", -1) > self.furthest:
            self.lost, self.furthest = 0, status["round"]
        self.watch(status)

    def token_for(self, session: Session) -> str:
        """The token of the current job, or a new one if the server has restarted."""
        start = session.get_system_info().server_info.start_time
        self.heard = time.monotonic()
        if self.token is None or start != self.server_start:
            self.token, self.server_start = uuid.uuid4().hex, start
        return self.token


def _return(desk: CoordinatorSession, away: set[str]) -> bool:
    """Wait up to `REJOIN` seconds for one of these sites to connect."""
    until = time.monotonic() + REJOIN
    while time.monotonic() < until:
        with contextlib.suppress(Exception):  # the server may be restarting
            if away & set(look(desk)["connected"]):
                return True
        time.sleep(1)
    return False


def _one_job(
    desk: CoordinatorSession,
    federation: Federation,
    order: Order,
    course: _Course,
    least: int | None = None,
    rounds: int | None = None,
) -> dict[str, Any] | None:
    """Run one job from submission to its end; returns its last status, or None if it was lost.

    After an error on the way, the next call resumes the same job, if the server still has it.
    """

    def work(alive: Alive) -> dict[str, Any] | None:
        with (
            desk.session(CONNECT) as session,
            tempfile.TemporaryDirectory() as temporary,
        ):
            _abort(session, course.given_up)
            alive()
            number = federation.rounds_per_job if rounds is None else rounds
            job = write_job(Path(temporary), federation, order, number, least)
            token = course.token_for(session)
            with quietly():
                name = session.submit_job(str(job), submit_token=token)
            needed = _needed(federation, order)
            status = _followed(session, name, course, alive, needed)
            if status is None:
                course.given_up.add(name)
            course.token = None
            shutil.rmtree(desk.kit / "transfer" / name, ignore_errors=True)
            return status

    try:
        return watched(work, HUNG * course.patience)
    except HungError:
        return None


def _needed(federation: Federation, order: Order) -> str:
    """The parties without which a job does not begin, in words."""
    aggregators = " and every aggregator" if order.settings.noise == "aggregators" else ""
    return f"{counted(federation.min_sites, 'site')}{aggregators}"


def _followed(
    session: Session, name: str, course: _Course, alive: Alive, needed: str
) -> dict[str, Any] | None:
    """Follow a submitted job to its end; returns its status, or None if it failed or is silent."""
    submitted = spoke = time.monotonic()
    while (state := str(session.get_job_status(name))) in RUNNING:
        alive()
        course.heard = time.monotonic()
        if state != "RUNNING":
            spoke = course.heard
            if spoke - submitted > SOON:
                reason = f"the server waits for {needed}, or for an earlier job to end"
                course.watch({"waiting": reason})
        else:
            with contextlib.suppress(Exception):  # it may just have ended
                status = _asked(session, name)
                spoke = time.monotonic()
                course.follow(status)
                if "delivered" in status:  # the rest is FLARE's tidying up
                    return status
        if time.monotonic() - spoke > SILENT * course.patience:
            return None
        time.sleep(POLL)
    if "COMPLETED" not in state:
        return None
    with tempfile.TemporaryDirectory() as folder, quietly():
        results = Path(session.download_job_result(name, folder))
        left = next(iter(results.rglob(STATUS)), None)
        return json.loads(left.read_text()) if left else None


def _abort(session: Session, jobs: set[str]) -> None:
    """End jobs that were given up, so that they block neither the next one nor the sites."""
    while jobs:
        job = min(jobs)
        with quietly(), contextlib.suppress(*ENDED):
            session.abort_job(job)
        jobs.remove(job)


def look(desk: CoordinatorSession) -> dict[str, Any]:
    """The connected parties, and the status of each running job."""

    def work(_: Alive) -> dict[str, Any]:
        with desk.session() as session:
            connected = sorted(client.name for client in session.get_connected_client_list())
            return {"connected": connected, "running": [*_running(session, None)]}

    return _answered(work)


def halt(desk: CoordinatorSession) -> list[str]:
    """Stop running trainings after their current round; returns their names."""

    def work(_: Alive) -> list[str]:
        with desk.session() as session:
            asked = _running(session, {"stop": True})
            return [str(status["training"]) for status in asked if "training" in status]

    return _answered(work)


def _answered(work: Callable[[Alive], T]) -> T:
    try:
        return watched(work, HUNG)
    except HungError:
        raise EpifedError(f"the server has not answered for {HUNG:g} seconds") from None


def _running(session: Session, wish: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    start = session.get_system_info().server_info.start_time
    for job in session.list_jobs(detailed=True):
        # A restarted server still lists the job from before its crash as running.
        if job["status"] == "RUNNING" and job["last_schedule_time"] >= start:
            try:
                yield _asked(session, job["job_id"], wish)
            except Exception:  # not yet, or no longer
                yield {"job": job["job_id"]}


def _asked(session: Session, job: str, wish: dict[str, Any] | None = None) -> dict[str, Any]:
    with quietly():
        return dict(session.do_app_command(job, TOPIC, wish or {}))


@dataclass
class Trainings:
    """Runs a week's training from the coordinator's machine."""

    desk: CoordinatorSession
    roster: Federation
    schedule: Schedule
    settings: Settings
    ledger: Ledger
    say: Callable[[str], object]
    finished: Callable[[dict[str, Any]], object] = lambda _: None
    """Called with the status of each finished training."""

    def rival(self, week: Week) -> str | None:
        """Another training of the same week that was charged, or None."""
        runs = self.ledger.book().runs.values()
        paid = [run.training for run in runs if run.spent and run.training]
        return next((name for name in paid if week.same(name)), None)

    def give_back(self, week: Week) -> None:
        """Close a run without spent rounds, so that it reserves no budget."""
        run = self.ledger.book().named(week.name)
        if run is not None and run.outcome == "open" and not run.spent:
            self.ledger.close(run.run, "abandoned", note="the week was skipped")

    def connected(self) -> Collection[str]:
        """The connected sites; empty while the server is away."""
        try:
            connected = look(self.desk)["connected"]
        except Exception as error:  # FLARE's errors share no base class
            self.say(f"the server does not answer: {error}")
            return set()
        return {site.name for site in self.roster.sites} & set(connected)

    def train(self, week: Week, least: int = 1) -> str:
        """Run the week's training to its end; returns why nothing was learned, if so."""
        order = Order.of(week.name, self.settings, *self.schedule.period(week))
        printed = set[str]()

        def watch(status: dict[str, Any]) -> None:
            reason = status.get("waiting")
            if reason and reason not in printed:
                printed.add(reason)
                self.say(f"{week.name} waits: {reason}")

        try:
            status = run_training(self.desk, self.roster, order, watch, least=least)
        except NotReadyError as refused:
            self.say(f"{week.name} waits: {refused}")
            raise
        if not status["finished"]:
            raise EpifedError(f"{week.name}: stopped; start the schedule again to resume")
        self.finished(status)
        return nothing_learned(status)
