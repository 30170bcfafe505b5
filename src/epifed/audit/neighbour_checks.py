"""Compare every byte that leaves a party in runs on neighbouring data with the same random draws.

The server's controller, the sites' executors and their messages are the deployed ones; only the
network is left out. One client's data change in several ways. If the client is not drawn,
nothing may change. If it is drawn, only its own row and the states that it reached may change.
"""

import io
import json
import logging
import shutil
import sqlite3
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

from epifed.audit.bench import Parties, plenty, roster, site_works, workshop
from epifed.audit.combination_checks import REGIONS, panel_of, variants
from epifed.audit.statistics import Check, Names, finding, made
from epifed.data import vintages
from epifed.data.panel import CasePanel
from epifed.data.vintages import LEAST_VINTAGES
from epifed.federation import site
from epifed.federation.crypto import digest
from epifed.federation.messages import Code, Parts, pack_code
from epifed.federation.secure_training import FIRST, SUMS
from epifed.federation.server import REPORT, Order
from epifed.federation.site import archive_of
from epifed.federation.terms import Federation
from epifed.learners.base import Vector, make_learner
from epifed.privacy.noise import SeededRandomness
from epifed.privacy.plan import PrivacyPlan
from epifed.settings import Settings, of_training
from epifed.training import loop
from epifed.training.public_inputs import ReleasableData

CHANGED = "00004"
"""The client whose data change; its site has other clients too."""
SITES, ROUNDS = 3, 3
CLOSE = 1e-6
"""How far, over S, the rows of all other clients together may move where rows are missing: the
grouping of the computation changes. Where one only has other data, they may not move at all."""
ABSENT = ("removed", "the last half missing", "the first half missing")
"""Changes after which a site computes fewer rows."""
MORNINGS = LEAST_VINTAGES + 9
SINGLE = "single precision"

Change = Callable[[CasePanel], CasePanel]


def _row(panel: CasePanel, counts: Any) -> CasePanel:
    every = panel.counts.copy()
    every[panel.regions.index(CHANGED)] = counts
    return replace(panel, counts=every)


def _cut(panel: CasePanel, first: int, last: int) -> CasePanel:
    reported = np.ones(panel.counts.shape, dtype=np.bool_)
    own = reported[panel.regions.index(CHANGED)]
    own[:first] = False
    own[last:] = False
    return replace(panel, counts=np.where(reported, panel.counts, 0.0), reported=reported)


CHANGES: dict[str, Change] = {
    "removed": lambda p: p.of([region for region in p.regions if region != CHANGED]),
    "without cases": lambda p: _row(p, 0.0),
    "other cases": lambda p: _row(p, p.counts[p.regions.index(CHANGED)][::-1] * 3 + 5),
    "a million a day": lambda p: _row(p, 1e6),
    "one odd day": lambda p: _row(
        p, np.maximum(p.counts[4], 1e6 * np.eye(1, p.counts.shape[1])[0])
    ),
    "the last half missing": lambda p: _cut(p, 0, p.counts.shape[1] // 2),
    "the first half missing": lambda p: _cut(p, p.counts.shape[1] // 2, p.counts.shape[1]),
}
"""The changes of one client's data, by name."""
SPOILED: dict[str, Callable[[list[str]], list[list[str]]]] = {
    "a word for a count": lambda cells: [[*cells[:2], "many", *cells[3:]]],
    "counts below zero": lambda cells: [[*cells[:2], "-3.5", *cells[3:]]],
    "days without a date": lambda cells: [["", *cells[1:]]],
    "days of 2999": lambda cells: [["2999" + cells[0][4:], *cells[1:]]],
    "every day twice": lambda cells: [cells, cells],
    "an open quotation mark": lambda cells: [[*cells[:2], '"' + cells[2], *cells[3:]]],
    "dates of another form": lambda cells: [["31/12/2020", *cells[1:]]],
}
"""Changes of one client's rows in its site's file: `[date, region, cases, …]`."""
FAULTY = "train", "site-3"
"""The message with another fault, and the site (without the changed client) where it occurs."""
Fault = Callable[[Parts], Parts]


def _with_value(answer: Parts, value: float) -> Parts:
    rows = np.frombuffer(answer["array"], dtype=np.float32).copy()
    rows[:1] = value
    return answer | {"array": rows.tobytes()}


FAULTS: dict[str, Fault] = {
    "a site that cannot read its data": lambda _: pack_code("audit", 1, Code.DATA),
    "numbers that are not finite": lambda answer: _with_value(answer, np.nan),
    "a vector that is too long": lambda answer: _with_value(answer, 1e6),
    "an answer cut short": lambda answer: answer | {"array": answer["array"][:-4]},
    "no message": lambda answer: answer | {"about": "{"},
}
"""Faults at a site in a round, so that the server has an error to report."""


@dataclass
class Outside:
    """All that left a party in a training, by kind and in order."""

    texts: dict[str, bytes] = field(default_factory=dict)
    arrays: dict[str, Vector] = field(default_factory=dict)
    """What may depend on the data of a drawn client: rows of sites, states."""
    computed: dict[str, list[int]] = field(default_factory=dict)
    """The rows that the sites computed for each answer: their time depends on it."""
    drawn: list[set[str]] = field(default_factory=list)

    def add(self, what: str, content: bytes | str) -> None:
        """Record something that left a party."""
        number = sum(key.rsplit(" #", 1)[0] == what for key in self.texts)
        self.texts[f"{what} #{number}"] = content.encode() if isinstance(content, str) else content

    def message(self, what: str, parts: Mapping[str, Any]) -> None:
        """Record a message: its text, and its numbers separately."""
        array, text = parts.get("array"), parts.get("about")
        about = json.loads(text) if isinstance(text, str) else {}
        rest = {key: value for key, value in parts.items() if key not in ("array", "about")}
        if "sums" in rest:  # sums have the aggregators' noise, so only their size is compared
            rest["sums"] = len(rest["sums"])
        if "start" in about and isinstance(array, bytes):
            about["start"] = about["start"] == digest(array).hex()  # no more than the state itself
        self.add(f"{what}, text", _plain(rest | about))
        if not what.startswith("deliver"):  # a file is compared by parts, where it is stored
            self.add(f"{what}, size", str([len(part or b"") for part in (array, text)]))
        if isinstance(array, bytes) and about.get("dtype") == "float32":
            number = sum(key.startswith(f"{what} #") for key in self.arrays)
            rows = np.frombuffer(array, dtype=np.float32).reshape(about["shape"])
            self.arrays[f"{what} #{number}"] = rows


class _Log(logging.Handler):
    """Record every line that the server logs; a site's log stays at the site."""

    def __init__(self, outside: Outside, who: list[str]) -> None:
        super().__init__(level=logging.DEBUG)
        self.outside, self.who = outside, who

    def emit(self, record: logging.LogRecord) -> None:
        if self.who[-1] == SERVER and not record.name.startswith("filelock"):
            self.outside.add(f"log of {record.name}", record.getMessage())


SERVER = "server"


@contextmanager
def _heard(outside: Outside, who: list[str]) -> Iterator[None]:
    """Record all that the server logs and prints."""
    root, handler = logging.getLogger(), _Log(outside, who)
    level, out = root.level, io.StringIO()
    others, root.handlers = root.handlers, [handler]
    root.setLevel(logging.DEBUG)
    disabled, logging.root.manager.disable = logging.root.manager.disable, logging.NOTSET
    try:
        with redirect_stdout(out), redirect_stderr(out):
            yield
    finally:
        root.handlers = others
        root.setLevel(level)
        logging.root.manager.disable = disabled
        outside.add("print", out.getvalue())


@dataclass(frozen=True)
class Trouble:
    """The faults in a training: in one client's rows, and at a site of other clients."""

    rows: str = ""
    """A name in `SPOILED`."""
    fault: str = ""
    """A name in `FAULTS`."""
    all_needed: bool = False
    """Whether a round is refused for one missing site."""


NO_TROUBLE = Trouble()


def controlled(
    settings: Settings,
    panel: CasePanel,
    *,
    archives: "Archives | None" = None,
    trouble: Trouble = NO_TROUBLE,
) -> Outside:
    """A seeded training by the deployed controller and executors, from greeting to delivered file.

    With `archives` every client's archive has the panel's earlier data vintages.
    """
    from epifed.federation.flare import controller, executor  # noqa: PLC0415

    outside, who = Outside(), [SERVER]
    whole = panel_of(settings.step)
    with ExitStack() as stack:
        folder = stack.enter_context(workshop())
        for module in (controller, executor):
            stack.enter_context(mock.patch.object(module, "with_party", lambda: None))
        stack.enter_context(mock.patch.object(controller, "shield_worker", lambda: None))
        federation, kits = _parties(folder, settings, panel, whole)
        if trouble.rows:
            _spoil(kits, SPOILED[trouble.rows])
        if trouble.all_needed:
            federation = federation.model_copy(update={"min_sites": SITES})
        if archives is not None:
            archives.fill(kits, panel)
        stack.enter_context(_counted(outside))
        workers = {name: _Worker(executor.FederationExecutor(), kit) for name, kit in kits.items()}
        server = folder / SERVER
        server.mkdir()
        (server / controller.ROSTER).write_text(federation.to_toml(), encoding="utf-8")
        (server / controller.SERVER_FILE).write_text("{}", encoding="utf-8")

        class Playing(controller.FederationController):
            """The controller; it hands messages to the executors in this process."""

            def _exchange(
                self, name: str, parcels: dict[str, Parts], answers: dict[str, Parts], *_: Any
            ) -> None:
                for party, parcel in parcels.items():
                    outside.message(f"{name} to {party}", parcel)
                    if name == executor.TRAIN:
                        outside.drawn.append(_drawn(parcel))
                    who.append(party)
                    answers[party] = workers[party].answer(name, parcel)
                    who.pop()
                    outside.message(f"{name} from {party}", answers[party])
                    if trouble.fault and (name, party) == FAULTY:
                        answers[party] = FAULTS[trouble.fault](answers[party])

        order = Order.of("audit", settings, whole.start, whole.end, seeded=True)
        job = server / "job"
        job.mkdir()
        context = _context(server, job, list(workers))
        stack.enter_context(_heard(outside, who))
        playing = Playing(order.sealed(), settings.rounds)
        telling = playing._tell

        def tell(*arguments: Any) -> None:
            telling(*arguments)
            outside.add("status", _plain(playing._command("", None, context)))

        stack.enter_context(mock.patch.object(playing, "_tell", tell))
        playing.control_flow(SimpleNamespace(triggered=False), context)
        outside.add("status", _plain(playing.status))
        _files(outside, server)
        for name in kits:
            _delivered(outside, kits[name], name)
    return outside


def charged(settings: Settings, panel: CasePanel) -> Outside:
    """A training in one process that is charged to a ledger: what it prints, writes and charges."""
    outside, whole = Outside(), panel_of(settings.step)
    _, *coins = of_training(settings.seed)
    with ExitStack() as stack:
        folder = stack.enter_context(workshop())
        same = mock.patch.object(loop, "SecureRandomness", lambda: SeededRandomness(*coins))
        stack.enter_context(same)
        stack.enter_context(_heard(outside, [SERVER]))
        regions = [*whole.regions]
        data = ReleasableData.of(panel, whole.start, whole.end, regions, settings.step)
        ledger = plenty(folder, settings)
        release = loop.train_releasable(data, settings, ledger).release
        assert release is not None
        release.write(folder / "model.epifed")
        _release_file(outside, "release", (folder / "model.epifed").read_bytes())
        with closing(sqlite3.connect(ledger.path)) as rows:
            for (text,) in rows.execute("SELECT row FROM entries ORDER BY number"):
                row = {**json.loads(text), "run": "", "ledger": ""}
                outside.add("ledger", _plain(row).replace(release.sha256, "its release"))
    return outside


@dataclass
class _Worker:
    """A site's or an aggregator's executor in its kit."""

    executor: Any
    kit: Path

    def answer(self, name: str, parcel: Parts) -> Parts:
        context = _context(self.kit, self.kit, [])
        abort = SimpleNamespace(triggered=False)
        found = self.executor.execute(name, dict(parcel), context, abort)
        return {key: found[key] for key in ("about", "array") if key in found}


def _context(root: Path, run: Path, parties: list[str]) -> Any:
    workspace = SimpleNamespace(get_root_dir=lambda: str(root), get_run_dir=lambda _: str(run))
    engine = SimpleNamespace(
        get_workspace=lambda: workspace,
        get_clients=lambda: [SimpleNamespace(name=name) for name in parties],
        register_app_command=lambda *_: None,
    )
    return SimpleNamespace(
        get_engine=lambda: engine,
        get_job_id=lambda: "job",
        get_identity_name=lambda default="": "audit",
        get_prop=lambda *_: None,
        get_peer_context=lambda: None,
    )


def _parties(
    folder: Path, settings: Settings, panel: CasePanel, whole: CasePanel
) -> tuple[Federation, dict[str, Path]]:
    if settings.noise == "aggregators":
        sites = {f"site-{i + 1}": whole.regions[i::SITES] for i in range(SITES)}
        parties = Parties.make(folder, panel, sites, settings.aggregators or 2, {})
        return parties.federation, {n: parties.kit(n) for n in (*sites, *parties.names)}
    federation = roster(whole.regions, SITES)
    works = site_works(folder, federation, panel)
    for each in federation.sites:
        clients = works[each.name].kit / site.CLIENTS
        clients.write_text(json.dumps(each.clients), encoding="utf-8")
    return federation, {name: work.kit for name, work in works.items()}


@dataclass(frozen=True)
class Archives:
    """Each client's own archive, as if its site had read its list on many days.

    The same list gives the same archive, so it is made once and copied.
    """

    store: Path

    def fill(self, kits: Mapping[str, Path], panel: CasePanel) -> None:
        """Put each client's archive into the kit of its site."""
        for kit in kits.values():
            hosted = json.loads((kit / site.CLIENTS).read_text(encoding="utf-8"))
            for region in sorted(set(hosted) & set(panel.regions)):
                alone = panel.alone(region)
                made = self.store / f"{region}-{alone.digest()[:16]}-{panel.end}"
                if not made.exists():
                    _remember_mornings(made, alone, panel.end)
                shutil.copytree(made, archive_of(kit, region))


def _remember_mornings(archive: Path, alone: CasePanel, end: date) -> None:
    archive.mkdir()
    for back in range(MORNINGS, 0, -1):
        if back % 5 == int(alone.regions[0]) % 5 and back > 2:
            continue  # this client's list was not read on that day
        last = min(alone.end, end - timedelta(days=back))
        if last < alone.start:
            continue  # the client had no days yet
        until = alone.between(alone.start, last)
        counts = until.counts.copy()
        shares = np.array([0.9, 0.7, 0.4])[-counts.shape[1] :]
        counts[:, -3:] = np.floor(counts[:, -3:] * shares)
        vintages.remember(archive, replace(until, counts=counts))


def _spoil(kits: Mapping[str, Path], edit: Callable[[list[str]], list[list[str]]]) -> None:
    """Change the rows of one client in its site's file."""
    for path in (kit / "cases.csv" for kit in kits.values() if (kit / "cases.csv").exists()):
        header, *lines = path.read_text(encoding="utf-8").splitlines()
        rows = [line.split(",") for line in lines]
        edited = [new for row in rows for new in (edit(row) if row[1] == CHANGED else [row])]
        path.write_text("\n".join([header, *map(",".join, edited)]) + "\n", encoding="utf-8")


@contextmanager
def _counted(outside: Outside) -> Iterator[None]:
    """Record how many rows a site computes for each answer."""
    honest: Callable[..., Vector] = vars(site)["contribution"]

    def counting(learner: Any, state: Any, view: Any, plan: Any, **options: Any) -> Vector:
        outside.computed.setdefault("rows", []).append(len(view))
        return honest(learner, state, view, plan, **options)

    with mock.patch.object(site, "contribution", counting):
        yield


def _drawn(parcel: Parts) -> set[str]:
    about = json.loads(parcel["about"])
    return {c for c, mark in zip(about["clients"], about["drawn"], strict=False) if mark == "1"}


def _plain(told: Any) -> str:
    """A status or a line without times and without the file's hash, which covers the state."""

    def bare(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: bare(v) for k, v in value.items() if k not in ("time", "sha256")}
        return [bare(each) for each in value] if isinstance(value, list) else value

    return json.dumps(bare(json.loads(json.dumps(told, default=str))), sort_keys=True)


def _files(outside: Outside, server: Path) -> None:
    """Record all files of the server; of those with a state, what is stored beside it."""
    for path in sorted(each for each in server.rglob("*") if each.is_file()):
        name, content = f"file {path.relative_to(server)}", path.read_bytes()
        if path.suffix == ".npy":
            outside.arrays[name] = np.load(path, allow_pickle=False)
        elif path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as stored:
                for key in stored.files:
                    _numbers(outside, f"{name} {key}", stored[key])
        elif path.suffix == ".epifed":
            _release_file(outside, name, content)
        elif path.parent.name == SUMS:
            told = json.loads(content) if path.name == FIRST else len(content)
            outside.add(f"{name}, text", _plain(told))
        elif path.suffix in (".json", ".jsonl"):
            for line in content.decode().splitlines():
                outside.add(name, _line(line))
        else:
            outside.add(name, content)


def _numbers(outside: Outside, name: str, stored: Any) -> None:
    if name.endswith(" state"):
        outside.arrays[name] = stored
    else:
        outside.add(name, stored.tobytes())


def _release_file(outside: Outside, name: str, content: bytes) -> None:
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        for part in file.namelist():
            if part == "state.npy":
                outside.arrays[f"{name} {part}"] = np.load(io.BytesIO(file.read(part)))
            elif part == "release.json":
                about = json.loads(file.read(part))
                outside.add(f"{name} {part}", _plain(about | {"created": "", "ledger_run": ""}))
            else:
                outside.add(f"{name} {part}", file.read(part))


def _line(text: str) -> str:
    try:
        return _plain(json.loads(text))
    except ValueError:
        return text


def _delivered(outside: Outside, kit: Path, name: str) -> None:
    """Record the files that a party was given."""
    for path in sorted(kit.rglob("*.epifed")):
        outside.add(f"delivered to {name}", path.name)


def differences(first: Outside, second: Outside) -> list[str]:
    """What left in one run and not in the other, apart from the numbers of rows and states."""
    found = []
    for what in first.texts.keys() | second.texts.keys():
        one, other = first.texts.get(what), second.texts.get(what)
        if one != other:
            found.append(f"{what}: {_shown(one, other)}")
    return sorted(found)


def _shown(one: bytes | None, other: bytes | None) -> str:
    if one is None or other is None:
        return "in one run only"
    at = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
    around = slice(max(0, at - 30), at + 20)
    return (
        f"…{one[around].decode(errors='replace')}… and …{other[around].decode(errors='replace')}…"
    )


def moved(first: Outside, second: Outside, bound: float) -> dict[str, float]:
    """How far each array moved between two runs, over S."""
    found = {}
    for what in first.arrays.keys() | second.arrays.keys():
        one, other = first.arrays.get(what), second.arrays.get(what)
        if one is None or other is None or one.shape != other.shape:
            found[what] = float("inf")
        else:
            found[what] = float(np.linalg.norm(one.astype(np.float64) - other)) / bound
    return found


def seed_for(settings: Settings, *, drawn: bool) -> int:
    """A seed that draws the changed client in the first round, or in no round."""
    plan, place = PrivacyPlan.of(settings, REGIONS), int(CHANGED)
    for seed in range(2000):
        _, sampling, noise = of_training(seed)
        randomness = SeededRandomness(sampling, noise)
        cohorts = [set(randomness.sample(plan).tolist()) for _ in range(settings.rounds)]
        if place in cohorts[0] if drawn else not any(place in cohort for cohort in cohorts):
            return seed
    raise ValueError("no such seed")


@lru_cache(maxsize=1)
def learners_of(epsilon: float, delta: float) -> tuple[tuple[str, Settings], ...]:
    """Each installed learner once for each step, with its smallest model."""
    found: dict[tuple[str, str], tuple[int, str, Settings]] = {}
    for variant in variants(epsilon=epsilon, delta=delta):
        if variant.settings is None:
            continue
        key = variant.settings.learner, variant.settings.step
        known = found.get(key)
        if known is None or variant.length < known[0]:
            found[key] = variant.length, variant.name, variant.settings
    return tuple((name, settings) for _, name, settings in found.values())


def _with_cohort(settings: Settings, *, drawn: bool = False) -> Settings:
    """Settings in which all clients or a quarter of them are drawn each round, with few rounds."""
    cohort = REGIONS if drawn else REGIONS // 4
    chosen = settings.but(clients_per_round=cohort, accountant="rdp")
    try:
        return chosen.but(rounds=ROUNDS if settings.learner == "fedavg" else settings.rounds)
    except Exception:
        return chosen


@dataclass(frozen=True)
class Usual:
    """The runs on the usual data, each made once for all checks that compare with it."""

    runs: dict[tuple[str, bool], Outside] = field(default_factory=dict)

    def of(self, settings: Settings, archives: Archives | None = None) -> Outside:
        """The run of these settings."""
        key = settings.to_toml(), archives is not None
        if key not in self.runs:
            self.runs[key] = controlled(settings, panel_of(settings.step), archives=archives)
        return self.runs[key]


def _compared(
    settings: Settings,
    changes: Mapping[str, Change],
    usual_runs: Usual,
    *,
    drawn: bool,
    archives: Archives | None = None,
) -> list[str]:
    """Differences between a run on the usual data and runs with one client's data changed."""
    seeded = settings.but(seed=seed_for(settings, drawn=drawn))
    panel = panel_of(settings.step)
    usual, wrong = usual_runs.of(seeded, archives), list[str]()
    if "error" in json.loads(usual.texts.get("status #0", b"{}")) or not usual.drawn:
        wrong.append(f"no training: {usual.texts.get('status #0')!r}")
    for name, change in changes.items():
        other = controlled(seeded, change(panel), archives=archives)
        wrong += [f"{name}: {what}" for what in differences(usual, other)[:3]]
        moves = moved(usual, other, settings.clip_norm)
        if not drawn:
            wrong += [f"{name}: {what} moves by {by:.2g} S" for what, by in moves.items() if by]
        else:
            most = CLOSE if name in ABSENT else 0.0
            wrong += [f"{name}: {what}" for what in _others(usual, other, settings, most)]
        if wrong:
            break
    return wrong


def _others(usual: Outside, other: Outside, settings: Settings, most: float) -> list[str]:
    """Faults in the first round: others' rows that moved, or the changed one by more than 2 S."""
    total, wrong = 0.0, []
    for number in range(SITES):
        what = f"train from site-{number + 1} #0"
        one, two = usual.arrays.get(what), other.arrays.get(what)
        if one is None or two is None or one.shape != two.shape:
            wrong.append(f"{what} has another shape")
            continue
        moves = np.linalg.norm(one.astype(np.float64) - two, axis=1) / settings.clip_norm
        clients = panel_of(settings.step).regions[number::SITES]
        if CHANGED in clients:
            place = clients.index(CHANGED)
            if moves[place] > 2 * (1 + 1e-4):
                wrong.append(f"its own row moves by {moves[place]:.3g} S")
            moves[place] = 0.0
        total += float(moves.sum())
    if total > most:
        wrong.append(f"the rows of all other clients move by {total:.3g} S together")
    return wrong


TRIED = {
    "least": ("a million a day",),
    "quick": ("removed", "without cases", "a million a day"),
    "all": tuple(CHANGES),
}
"""The changes that are tried, by the audit's scope."""


def check_neighbours(settings: Settings, scope: str = "quick", names: Names = None) -> list[Check]:
    """All checks of neighbouring data, or those named."""
    chosen, usual = {name: CHANGES[name] for name in TRIED[scope]}, Usual()
    checks: dict[str, Callable[[], Check]] = {}
    for drawn in (False, True):
        name = f"same coins: client {'drawn' if drawn else 'not drawn'}"
        some = chosen if drawn or scope != "quick" else {n: CHANGES[n] for n in TRIED["least"]}
        checks[name] = partial(_coins, settings, some, usual, drawn=drawn)
    few = chosen if scope == "all" else {n: CHANGES[n] for n in TRIED["least"]}
    checks["same coins: aggregators"] = partial(_sealed_coins, settings, few)
    checks["same coins: time of an answer"] = partial(_time, settings, usual)
    checks["same coins: bad rows"] = partial(_bad_rows, settings, usual)
    checks["same coins: errors"] = partial(_errors, settings)
    checks["archives with many mornings"] = partial(_mornings, settings, chosen, usual)
    if find_spec("nvflare") is None:
        why = "nvflare is not installed: pip install 'epifed[federation]'"
        checks = {n: partial(_skipped, n, why) for n in checks}
    return made("neighbours", checks, names)


def _skipped(name: str, why: str) -> Check:
    return Check(name, True, "two runs with the same coins", why, skipped=True)


def _coins(
    settings: Settings, changes: Mapping[str, Change], usual: Usual, *, drawn: bool
) -> Check:
    wrong, learners = list[str](), learners_of(settings.epsilon, settings.delta)
    for variant, chosen in learners:
        apart = _compared(_with_cohort(chosen, drawn=drawn), changes, usual, drawn=drawn)
        wrong += [f"{variant}, {what}" for what in apart]
        if drawn and not wrong:
            wrong += [f"{variant}, in process, {what}" for what in _charged_apart(chosen, changes)]
        if wrong:
            break
    expected = (
        "another row of one client changes its own row, and no other byte of message, status, log, "
        "ledger or file but the states"
        if drawn
        else "data of a client that is not drawn change no byte that leaves any party"
    )
    tried = f"{len(learners)} learners and steps, {len(changes)} changes of one client's data"
    return finding(not wrong, expected, wrong[0] if wrong else f"none in {tried}")


def _charged_apart(settings: Settings, changes: Mapping[str, Change]) -> list[str]:
    """Differences between trainings in one process, apart from the states."""
    chosen = _with_cohort(settings, drawn=True)
    usual = charged(chosen, panel_of(chosen.step))
    return [
        f"{name}: {what}"
        for name, change in changes.items()
        for what in differences(usual, charged(chosen, change(panel_of(chosen.step))))
    ]


def _sealed_coins(settings: Settings, changes: Mapping[str, Change]) -> Check:
    name, chosen = learners_of(settings.epsilon, settings.delta)[0]
    sealed = _with_cohort(chosen).but(noise="aggregators")
    wrong = [
        what for drawn in (False, True) for what in _compared_sealed(sealed, changes, drawn=drawn)
    ]
    return finding(
        not wrong,
        "with aggregators, too, no text, size, status, log or file depends on one client's data",
        f"{name}: {wrong[0]}" if wrong else f"none in {2 * len(changes)} pairs of trainings",
    )


def _compared_sealed(
    settings: Settings, changes: Mapping[str, Change], *, drawn: bool
) -> list[str]:
    """Compare texts and sizes of sealed messages; keys and signatures are new in every run."""
    seeded = settings.but(seed=seed_for(settings, drawn=drawn))
    panel = panel_of(settings.step)
    usual = _masked(controlled(seeded, panel))
    wrong = []
    for name, change in changes.items():
        other = _masked(controlled(seeded, change(panel)))
        wrong += [f"{name}: {what}" for what in differences(usual, other)[:3]]
    return wrong


def _masked(outside: Outside, *others: str) -> Outside:
    """Remove what is new in every run: keys, signatures and digests, also of states."""
    fresh = {"keys", "aggregators", "reports", "partial", "signature", "start", *others}

    def bare(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: bare(v) for k, v in value.items() if k not in fresh}
        if isinstance(value, list):
            return [bare(each) for each in value]
        return value

    masked = Outside(drawn=outside.drawn)
    for what, content in outside.texts.items():
        if ", text" in what:
            masked.texts[what] = json.dumps(bare(json.loads(content))).encode()
        elif "federation.toml" not in what:
            masked.texts[what] = content
    return masked


def _bad_rows(settings: Settings, usual: Usual) -> Check:
    """Unreadable rows of one client change no text, and no row but its own."""
    name, chosen = learners_of(settings.epsilon, settings.delta)[0]
    everybody = _with_cohort(chosen, drawn=True)
    seeded = everybody.but(seed=seed_for(everybody, drawn=True))
    wrong, before = list[str](), usual.of(seeded)
    for rows in SPOILED:
        after = controlled(seeded, panel_of(seeded.step), trouble=Trouble(rows))
        apart = [*differences(before, after), *_others(before, after, seeded, CLOSE)]
        wrong += [f"{rows}: {what}" for what in apart[:3]]
    return finding(
        not wrong,
        "rows of one client that cannot be read change its own vector, and no other byte",
        f"{name}: {wrong[0]}" if wrong else f"none in {len(SPOILED)} kinds of bad rows",
    )


SHOWN = "status", "log of", "print", "file job", f"file trainings/audit/{REPORT}"
"""What the server shows of a training; its other files contain the seed of the draws."""


def _errors(settings: Settings) -> Check:
    """Errors that a site can cause are reported in the same words, whatever the data and draw."""
    name, chosen = learners_of(settings.epsilon, settings.delta)[0]
    quarter, panel = _with_cohort(chosen).but(rounds=1), panel_of(chosen.step)
    wrong, waited = list[str](), list[bool]()
    undrawn, drawn = (quarter.but(seed=seed_for(quarter, drawn=drawn)) for drawn in (False, True))
    troubles = [Trouble(fault=fault) for fault in FAULTS]
    for trouble in [replace(troubles[0], all_needed=True), *troubles]:
        usual = controlled(drawn, panel, trouble=trouble)
        other = controlled(drawn, CHANGES["without cases"](panel), trouble=trouble)
        draw = controlled(undrawn, panel, trouble=trouble)
        shown = [_masked(run, "settings", "seed") for run in (usual, draw)]
        apart = [what for what in differences(*shown) if what.startswith(SHOWN)]
        wrong += [f"{trouble.fault}: {what}" for what in differences(usual, other)[:3]]
        wrong += [f"{trouble.fault}, another draw: {what}" for what in apart[:3]]
        waited.append(any(b'"waiting"' in text for text in usual.texts.values()))
    return finding(
        not wrong and any(waited),
        "an error at one site is reported in the same words for other data and for another draw",
        f"{name}: {wrong[0]}" if wrong else f"so it is with {len(FAULTS)} errors",
    )


def _time(settings: Settings, usual_runs: Usual) -> Check:
    """A site computes the same number of rows whichever of its clients are drawn."""
    wrong = []
    for name, chosen in learners_of(settings.epsilon, settings.delta):
        counts = set()
        for drawn in (False, True):
            usual = _with_cohort(chosen)
            seeded = usual.but(seed=seed_for(usual, drawn=drawn))
            counts.add(tuple(usual_runs.of(seeded).computed.get("rows", [])))
        if len(counts) != 1 or not next(iter(counts)):
            wrong.append(f"{name}: rows computed {' or '.join(map(str, sorted(counts)))}")
    return finding(
        not wrong,
        "a site computes the same rows whoever is drawn, so that its time reveals nothing",
        wrong[0] if wrong else "so it is for every learner",
    )


def _mornings(settings: Settings, changes: Mapping[str, Change], usual: Usual) -> Check:
    """One client's archive does not affect another client's row."""
    wrong, tried = [], 0
    with workshop() as store:
        for name, chosen in learners_of(settings.epsilon, settings.delta):
            if not make_learner(chosen).reads_history:
                continue
            tried += 1
            everybody, archives = _with_cohort(chosen, drawn=True), Archives(store)
            apart = _compared(everybody, changes, usual, drawn=True, archives=archives)
            wrong += [f"{name}, {what}" for what in apart]
    return finding(
        not wrong,
        f"an archive of {MORNINGS} data vintages of one client changes no other client's row",
        wrong[0] if wrong else f"none in {tried} learners",
    )
