"""`epifed audit --federation`: a small federation on real processes, observed from outside.

A server and two sites with their own certificates train twice on this machine. The seeded
training must equal that of one process; the secure one is charged to a ledger.
"""

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from epifed.audit.bench import AUDIT_REGIONS as REGIONS
from epifed.audit.bench import audit_panel, remembering
from epifed.audit.leak_checks import read_folder, status_strangers
from epifed.audit.price_checks import independent_price, noise_of, off, small
from epifed.audit.statistics import Check, finding, made
from epifed.data.panel import CasePanel
from epifed.federation.server import Order
from epifed.federation.site import LOG
from epifed.learners.base import Vector, make_learner
from epifed.ledger.budget import Cap
from epifed.ledger.ledger import Ledger
from epifed.settings import Settings
from epifed.training import loop
from epifed.training.release import Release, read_release

SITES, ROUNDS = 2, 4
EPSILON, TOTAL = 1.0, 8.0
CLOSE = 1e-5
TEXTS = ("*.log", "*.txt", "*.json", "*.jsonl")
"""Files of the server that are searched for names of clients."""
PRIVATE = ("trainings", "startup", "local")
"""Folders of the server's kit that never leave it: the roster and the states."""


@dataclass(frozen=True)
class Ran:
    """The results of two trainings of a real federation."""

    seeded: Release
    secure: Release
    here: Vector
    statuses: tuple[dict[str, Any], ...]
    strangers: tuple[str, ...]
    answered: dict[str, dict[str, int]]
    """The number of rounds that each site answered, by site and training."""
    named: tuple[str, ...]
    """The server's files that name a client."""
    spent: int
    sites_with_model: int


def check_processes(settings: Settings) -> list[Check]:
    """All checks on real processes; one skipped check if nvflare is not installed."""
    if find_spec("nvflare") is None:
        why = "nvflare is not installed: pip install 'epifed[federation]'"
        return [Check("real processes", True, "a federation runs", why, "federation", skipped=True)]
    ran: list[Ran] = []

    def run() -> Check:
        ran.append(_run(settings))
        return Check(
            "real processes",
            ran[0].sites_with_model == 2 * SITES,
            "a server and two sites train twice, and every site gets both releases",
            f"{ran[0].sites_with_model} of {2 * SITES} releases arrived",
        )

    first = made("federation", {"real processes": run})
    if not ran:
        return first
    found: dict[str, Callable[[], Check]] = {
        "same as in process": lambda: _same(ran[0]),
        "every site in every round": lambda: _every_round(ran[0]),
        "status and files": lambda: _contents(ran[0]),
        "nobody is named": lambda: _nobody_named(ran[0]),
        "secure and charged": lambda: _secure(ran[0], settings),
    }
    return first + made("federation", found)


def _run(settings: Settings) -> Ran:
    """Run both trainings. Imports what needs nvflare, which is optional."""
    from epifed.federation.flare.kits import SERVER  # noqa: PLC0415
    from epifed.rehearsal.local import LocalFederation, rehearsal_federation  # noqa: PLC0415

    panel = audit_panel()
    panel = replace(panel, regions=tuple(f"client-{region}" for region in panel.regions))
    chosen = _small(settings)
    with tempfile.TemporaryDirectory(prefix="epifed-audit-") as temporary:
        folder = Path(temporary)
        federation = rehearsal_federation(panel, SITES, min_sites=SITES, rounds_per_job=ROUNDS)
        ledger = folder / "budget.db"
        with remembering(folder / "state"):
            Ledger.create(ledger, Cap(TOTAL, 1e-5, "rdp"))
            with LocalFederation.make(folder, federation, panel, ledger) as local:
                local.start()
                statuses: list[dict[str, Any]] = []
                orders = [
                    Order.of(
                        f"audit-{kind}", chosen, panel.start, panel.end, seeded=kind == "seeded"
                    )
                    for kind in ("seeded", "secure")
                ]
                for order in orders:
                    statuses.append(dict(local.train(order, lambda s: statuses.append(dict(s)))))
                releases = [
                    read_release(local.training_folder(order) / "model.epifed") for order in orders
                ]
                arrived = sum(
                    (local.kit(site.name) / "models" / f"{order.training}.epifed").exists()
                    for order in orders
                    for site in federation.sites
                )
                strangers = [s for o in orders for s in read_folder(local.training_folder(o))]
                answered = {site.name: _answered(local.kit(site.name)) for site in federation.sites}
                named = _naming(local.kit(SERVER), folder / "logs" / f"{SERVER}.log", panel)
                spent = sum(run.spent for run in Ledger(ledger).book().runs.values())
    learner = make_learner(chosen)
    view = learner.deployed_view(panel, (panel.start, panel.end))
    strangers += [s for status in statuses for s in status_strangers(status)]
    return Ran(
        seeded=releases[0],
        secure=releases[1],
        here=loop.train(view, chosen).vector,
        statuses=tuple(statuses),
        strangers=tuple(sorted(set(strangers))),
        answered=answered,
        named=named,
        spent=spent,
        sites_with_model=arrived,
    )


def _small(settings: Settings) -> Settings:
    return small(
        settings, rounds=ROUNDS, epsilon=EPSILON, accountant="rdp", clip_norm=1.0, delta=1e-5
    )


def _answered(kit: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    path = kit / LOG
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        name = json.loads(line)["training"]
        found[name] = found.get(name, 0) + 1
    return found


def _naming(kit: Path, log: Path, panel: CasePanel) -> tuple[str, ...]:
    files = [log] if log.exists() else []
    files += [
        path
        for pattern in TEXTS
        for path in kit.rglob(pattern)
        if not set(path.relative_to(kit).parts) & set(PRIVATE)
    ]
    return tuple(
        sorted(
            path.name
            for path in files
            if any(
                region in path.read_text(encoding="utf-8", errors="replace")
                for region in panel.regions
            )
        )
    )


def _same(ran: Ran) -> Check:
    most = float(np.abs(ran.seeded.vector - ran.here).max())
    return finding(
        most <= CLOSE,
        "the seeded training of the federation is that of one process, number by number",
        f"largest difference {most:.2g} of {ran.here.size} numbers",
    )


def _every_round(ran: Ran) -> Check:
    """Each site answered each round of both trainings, whoever was drawn."""
    due = {"audit-seeded": ROUNDS, "audit-secure": ROUNDS}
    kept = all(found == due for found in ran.answered.values())
    return finding(
        kept,
        "every site gets a task and answers in every round, whoever was drawn",
        f"{SITES} sites answered {ROUNDS} rounds twice" if kept else f"found {ran.answered}",
    )


def _contents(ran: Ran) -> Check:
    return finding(
        not ran.strangers,
        "status, report and files have the keys of the list and no other",
        f"found {', '.join(ran.strangers)}"
        if ran.strangers
        else f"none that is not in the list, in {len(ran.statuses)} statuses",
    )


def _nobody_named(ran: Ran) -> Check:
    return finding(
        not ran.named,
        "the server's logs and the job's result name no client",
        f"found names in {', '.join(ran.named)}" if ran.named else "they name none",
    )


def _secure(ran: Ran, settings: Settings) -> Check:
    chosen, release = _small(settings), ran.secure
    rate = chosen.clients_per_round / REGIONS
    due = independent_price(rate, noise_of(release), ROUNDS, chosen.delta, "rdp")
    wrong = off(release.epsilon, due)
    if release.randomness != "secure" or release.ledger_run is None:
        wrong = "is not secure, or in no ledger"
    if ran.spent != ROUNDS:
        wrong = f"is of {ROUNDS} rounds, of which {ran.spent} were charged"
    if np.abs(release.vector - ran.here).max() <= CLOSE:
        wrong = "has the noise of the seed"
    return finding(
        not wrong,
        "the secure training has noise of its own, and the ledger and label have its price",
        f"the release {wrong}"
        if wrong
        else f"ε = {release.epsilon:.4g}, {ran.spent} rounds charged",
    )
