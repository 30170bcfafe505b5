"""Checks of what leaves a party: bounded rows, and no other contents than the listed ones.

A small training of a real learner runs over the deployed messages, server and sites. Its
messages, reports and files are compared with lists of allowed keys, and over several draws.
"""

import io
import json
import zipfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epifed.audit.bench import (
    SitesPost,
    answer_of,
    audit_panel,
    roster,
    serve,
    site_works,
    workshop,
)
from epifed.audit.combination_checks import REGIONS, panel_of, variants
from epifed.audit.statistics import Check, Names, finding, made
from epifed.data.panel import CasePanel
from epifed.federation.messages import Code, Parts, pack_code, unpack_task
from epifed.federation.server import ServedTraining, TooFewError
from epifed.learners.base import Learner, make_learner
from epifed.privacy.plan import PrivacyPlan
from epifed.settings import Settings, seed_sequence
from epifed.training import rounds
from epifed.training.rounds import SLACK, vector_length

CLIP_NORM = 0.01
"""So small that every learner's rows are clipped, which shows rows that are not."""


def check_learners(settings: Settings, names: Names = None) -> list[Check]:
    """All checks of single learners, or those named."""
    return made("learners", {"contributions bounded": partial(_bounded, settings)}, names)


def _bounded(settings: Settings) -> Check:
    """Every row is bounded, for usual and absurd data, at the start and after a noisy step."""
    problem, rows_seen = "", 0
    common = {"epsilon": settings.epsilon, "delta": settings.delta, "clip_norm": CLIP_NORM}
    for variant in variants(**common):
        if variant.settings is None:
            continue
        panel = panel_of(variant.settings.step)
        odd = {
            "the usual data": panel,
            "no cases": replace(panel, counts=np.zeros_like(panel.counts)),
            "a billion cases a day": replace(panel, counts=np.full_like(panel.counts, 1e9)),
            "one day of a billion": replace(
                panel, counts=np.maximum(panel.counts, 1e9 * np.eye(*panel.counts.shape))
            ),
        }
        learner, plan = make_learner(variant.settings), PrivacyPlan.of(variant.settings, REGIONS)
        for what, data in odd.items():
            view = learner.deployed_view(data, (data.start, data.end))
            for state in _states(learner, plan):
                rows = rounds.contribution(learner, state, view, plan)
                rows_seen += len(rows)
                where = f"{variant.name}, {what}"
                problem = problem or _out_of_bounds(rows, plan.bound, where)
    return finding(
        not problem and rows_seen > 0,
        "every learner's clients send one finite vector of norm at most S each, at any step",
        problem or f"{rows_seen} vectors",
    )


def _states(learner: Learner[Any, Any], plan: PrivacyPlan) -> list[Any]:
    start = learner.start(seed_sequence(0, "audit"))
    length = vector_length(learner, start)
    rng = np.random.default_rng(seed_sequence(0, "audit", "step"))
    noise = rng.standard_normal((1, length)) * plan.noise_std(REGIONS)
    return [start, learner.step(start, noise[0].astype(np.float32), plan.noise_std(REGIONS))]


def _out_of_bounds(rows: NDArray[Any], bound: float, where: str) -> str:
    if rows.dtype != np.float32 or rows.ndim != 2:
        return f"{where}: {rows.dtype.name} of {rows.ndim} dimensions"
    if not np.isfinite(rows).all():
        return f"{where}: a value that is not finite"
    largest = float(np.linalg.norm(rows.astype(np.float64), axis=1).max(initial=0.0))
    return f"{where}: a norm of {largest / bound:.4g} S" if largest > bound * (1 + SLACK) else ""


PLAYED_ROUNDS = 5

PARTS = {"about", "array"}
TASK = {
    "training", "round", "rounds", "paid", "settings", "first_day", "last_day", "enrolled",
    "noise_multiplier", "randomness", "numbers", "length", "start", "least", "aggregators", "site",
    "clients", "drawn", "dtype", "shape",
}  # fmt: skip
"""The keys of a task; `drawn` covers the site's own clients alone."""
CONTRIBUTION = {"training", "round", "dtype", "shape"}
REFUSAL = {"training", "round", "code"}
REPORT = {"round", "epsilon", "problems", "time", "sites"}
"""The keys of a line of the server's report; the transport adds the last two."""
PROBLEM = {"site", "reason"}
STATUS = {
    "training", "finished", "round", "rounds", "paid", "epsilon", "delta", "sites",
    "enrolled_sites", "ledger_run", "lines", "stopped", "error", "sha256", "delivered", "missing",
    "waiting", "epsilon_without_amplification", "accountant", "undelivered", "noise",
    "versions", "readiness", "unready", "unused",
}  # fmt: skip
"""What the coordinator can read while a training runs, and finds in the job's result."""
RELEASE = {
    "kind", "settings", "spent", "continues", "clients",
    "first_day", "last_day", "randomness", "ledger_run", "sha256", "created", "epifed",
    "unused",
}  # fmt: skip
"""The keys of a release file beside its state."""
RELEASE_FILES = {"release.json", "state.npy"}
FOLDER = {
    "lock", "order.json", "roster.json", "state.npz", "model.epifed", "report.jsonl",
    "delivered.json",
}  # fmt: skip
"""The files in the server's folder of a training."""
STATE = {"state", "done", "run", "paid", "unused"}


@dataclass(frozen=True)
class Played:
    """All that a small training of a real learner sent, reported and wrote."""

    tasks: list[dict[str, Parts]]
    answers: list[dict[str, Parts]]
    reports: list[dict[str, Any]]
    release: dict[str, Any]
    release_files: dict[str, bytes]
    folder: dict[str, bytes]
    drawn: list[set[str]]


def play(settings: Settings, panel: CasePanel, whole: CasePanel, *, sites: int = 2) -> Played:
    """Run a seeded training over real messages and sites, from the first round to the file."""
    with workshop() as folder:
        federation = roster(whole.regions, sites)
        works = site_works(folder, federation, panel)
        post = SitesPost({name: answer_of(work) for name, work in works.items()})
        training: ServedTraining = serve(folder, federation, settings, whole)
        reports: list[dict[str, Any]] = []
        parts = dict[str, bytes]()
        with suppress(TooFewError):  # answers that the server refuses are judged, too
            while not training.finished:
                training.play(post, reports.append)
            training.finish()
            with zipfile.ZipFile(training.folder / "model.epifed") as archive:
                parts = {name: archive.read(name) for name in archive.namelist()}
        files = {path.name: path.read_bytes() for path in training.folder.iterdir()}
        about = json.loads(parts.get("release.json", b"{}"))
        return Played(post.tasks, post.answers, reports, about, parts, files, post.drawn)


def check_contents(settings: Settings, names: Names = None) -> list[Check]:
    """All checks of what leaves a party, or those named."""
    usual = _example(settings)

    @cache
    def played() -> Played:
        return play(usual, audit_panel(), audit_panel())

    checks: dict[str, Callable[[], Check]] = {
        "nothing beside the vector": lambda: _keys(played()),
        "rows of the drawn": lambda: _drawn_rows(played()),
        "messages of one size": lambda: _sizes(played()),
        "reports without the draw": partial(_draws, usual),
        "own draw only": lambda: _own_draw_only(played()),
    }
    return made("files", checks, names)


def _example(settings: Settings) -> Settings:
    """Settings of a training of several rounds in which some clients are drawn."""
    return Settings.for_learner(
        "trend",
        REGIONS,
        epsilon=settings.epsilon,
        delta=settings.delta,
        clients_per_round=REGIONS // 2,
        rounds=PLAYED_ROUNDS,
        accountant="rdp",
    )


def strangers(found: Iterable[str], allowed: set[str], where: str) -> list[str]:
    """The keys that are not allowed, each described with its place."""
    return [f"'{key}' in {where}" for key in sorted(set(found) - allowed)]


def report_strangers(line: dict[str, Any]) -> list[str]:
    """The parts of a report's line that are not allowed."""
    found = strangers(line, REPORT, "a report")
    for problem in line.get("problems", []):
        found += strangers(problem, PROBLEM, "a report's problem")
        if problem.get("reason") not in set(Code):
            found.append(f"a reason in words, '{problem.get('reason')}'")
    return found


def folder_strangers(files: Iterable[str]) -> list[str]:
    """The files of a training that are not allowed."""
    return strangers(files, FOLDER, "the server's folder")


def release_strangers(content: bytes) -> list[str]:
    """The parts of a release file that are not allowed."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        about = json.loads(archive.read("release.json"))
        names = archive.namelist()
    found = strangers(names, RELEASE_FILES, "a release file")
    return found + strangers(about, RELEASE, "release.json")


def _keys(played: Played) -> Check:
    found: list[str] = []
    for parcel, allowed, where in (
        *((p, TASK, "a task") for tasks in played.tasks for p in tasks.values()),
        *((p, CONTRIBUTION, "a contribution") for a in played.answers for p in a.values()),
        (pack_code("audit", 1, Code.DATA), REFUSAL, "a refusal"),
    ):
        found += strangers(parcel, PARTS, where)
        found += strangers(json.loads(parcel["about"]), allowed, where)
    asked = [json.loads(p["about"]) for tasks in played.tasks for p in tasks.values()]
    if {about["randomness"] for about in (*asked, played.release)} != {"seeded"}:
        found.append("predictable noise that is not called seeded")
    for line in played.reports:
        found += report_strangers(line)
    found += folder_strangers(played.folder)
    with np.load(io.BytesIO(played.folder["state.npz"]), allow_pickle=False) as state:
        found += strangers(state.files, STATE, "state.npz")
    found += release_strangers(played.folder["model.epifed"])
    several = sorted(set(found))
    return finding(
        not several,
        "messages, reports, state and release file have the keys of the list and no other",
        f"found {', '.join(several)}" if several else "none that is not in the list",
    )


def _drawn_rows(played: Played) -> Check:
    """Rows of clients that were not drawn are zero, and there are no other rows."""
    problem = ""
    for tasks, answers in zip(played.tasks, played.answers, strict=True):
        for name, parts in answers.items():
            task, about = unpack_task(tasks[name]), json.loads(parts["about"])
            rows = np.frombuffer(parts["array"], dtype=np.float32)
            if about.get("shape", [None])[0] != len(task.clients):
                problem = f"{about.get('shape')} of {len(task.clients)} clients"
                continue
            rows = rows.reshape(about["shape"])
            idle = [i for i in range(len(rows)) if i not in task.chosen()]
            if rows[idle].any():
                problem = "numbers in the row of a client that was not drawn"
    return finding(
        not problem,
        "an answer has a row for each client of the site, zeros for those not drawn",
        problem or f"so it is in {len(played.answers)} rounds",
    )


def _sizes(played: Played) -> Check:
    """All rounds have messages of the same size, whoever was drawn."""
    sizes: dict[str, set[int]] = {}
    asked: dict[str, set[int]] = {}
    for tasks, answers in zip(played.tasks, played.answers, strict=True):
        for name in tasks:
            sizes.setdefault(name, set()).add(_size(answers.get(name)))
            asked.setdefault(name, set()).add(_size(tasks[name]))
    everywhere = all(len(t) == len(played.tasks[0]) for t in played.tasks)
    varying = sorted(n for n in asked if len(sizes[n]) > 1 or len(asked[n]) > 1)
    several = len(played.drawn) > 1 and any(d != played.drawn[0] for d in played.drawn)
    return finding(
        everywhere and not varying and several,
        "every site gets a task and answers in every round, with as many bytes",
        f"{varying[0]}'s vary" if varying else f"so it is in {len(played.reports)} rounds",
    )


def _size(parts: Parts | None) -> int:
    return -1 if parts is None else len(parts["about"]) + len(parts.get("array", b""))


def _but(values: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in keys}


def _draws(settings: Settings) -> Check:
    """The same training with other draws has the same reports."""
    panel = audit_panel()
    first, second = (play(settings.but(seed=seed), panel, panel) for seed in (101, 102))
    problems = [line["problems"] for line in first.reports + second.reports]
    kept = first.reports == second.reports and first.drawn != second.drawn
    return finding(
        kept and not any(problems),
        "reports are the same whoever was drawn, and however many",
        "the same for two series of draws" if kept else "another report for other draws",
    )


def _own_draw_only(played: Played) -> Check:
    """A site learns nothing about another site's clients."""
    problem = ""
    for tasks in played.tasks:
        for name, parts in tasks.items():
            about = json.loads(parts["about"])
            others = {c for n, p in tasks.items() if n != name for c in unpack_task(p).clients}
            text = json.dumps(_but(about, "settings"))
            named = [client for client in others if f'"{client}"' in text]
            if named or len(about["drawn"]) != len(about["clients"]):
                problem = f"the task of {name} speaks of others' clients"
    return finding(
        not problem,
        "a task shows which of the site's own clients were drawn, and nothing of others'",
        problem or "so it is in every task",
    )


def status_strangers(status: dict[str, Any]) -> list[str]:
    """The parts of a training's status that are not allowed."""
    found = strangers(status, STATUS, "a status")
    for line in status.get("lines", []):
        found += report_strangers(line)
    return found


def read_folder(folder: Path) -> list[str]:
    """The contents of the server's folder of a training that are not allowed."""
    found = folder_strangers(path.name for path in folder.iterdir())
    report = folder / "report.jsonl"
    for line in report.read_text(encoding="utf-8").splitlines() if report.exists() else []:
        found += report_strangers(json.loads(line))
    model = folder / "model.epifed"
    return found + (release_strangers(model.read_bytes()) if model.exists() else [])
