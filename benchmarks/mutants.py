"""Whether the tests notice planted bugs: one small change of the source at a time.

    python benchmarks/mutants.py --reach tests/privacy tests/ledger      # once: who reaches what
    nice python benchmarks/mutants.py epifed.privacy.noise [...] --share 0.3 --seed 1

A mutant changes one comparison, operator, condition, constant or returned value, or leaves out one
statement. It lives in the memory of a forked process, which runs only the tests that reach the
line, the quickest first, until one fails. So the source stays as it is, and modules are imported
once. A constant of a module is changed before the module is imported. Texts of error messages,
annotations and docstrings are not changed. Survivors are printed with the changed line.
"""

import argparse
import ast
import copy
import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MOST_SECONDS = 8.0
"""Tests of a mutant that take longer together are left out, the slowest first."""
GUARD = 180
"""Processor seconds, and half of those on the wall, after which a mutant counts as hanging."""
ROOMS = ("privacy", "ledger", "training", "federation")

Path_ = tuple[tuple[str, int | None], ...]


@dataclass(frozen=True)
class Mutant:
    """A change of one place in a module."""

    module: str
    line: int
    statement: int
    """The first line of the statement around it, which coverage knows."""
    function: str
    """The outermost function around it; empty outside of functions."""
    first: int
    """The first line of that function, decorators included."""
    where: Path_
    variant: int
    what: str

    @property
    def key(self) -> str:
        return f"{self.module}:{self.line} {self.function or '(module)'}: {self.what}"


SWAPS: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Lt: (ast.LtE,),
    ast.LtE: (ast.Lt,),
    ast.Gt: (ast.GtE,),
    ast.GtE: (ast.Gt,),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div,),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Div,),
    ast.Mod: (ast.Mult,),
    ast.Pow: (ast.Mult,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
}


def variants(node: ast.AST) -> list[tuple[str, ast.AST]]:  # noqa: PLR0912
    """The changed forms of a node."""
    short = ast.unparse(node).split("\n")[0][:60] if not isinstance(node, ast.arguments) else ""
    made: list[tuple[str, ast.AST]] = []

    def add(what: str, new: ast.AST) -> None:
        made.append((f"{short}  ->  {what}", ast.copy_location(new, node)))

    if isinstance(node, ast.Compare):
        for place, op in enumerate(node.ops):
            for other in SWAPS.get(type(op), ()):
                new = copy.deepcopy(node)
                new.ops[place] = other()  # type: ignore[call-overload]
                add(ast.unparse(new)[:60], new)
    elif isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp):
        for other in SWAPS.get(type(node.op), ()):
            changed = copy.deepcopy(node)
            changed.op = other()  # type: ignore[assignment]
            add(ast.unparse(changed)[:60], changed)
        if isinstance(node, ast.AugAssign):
            add("(left out)", ast.Pass())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub | ast.Invert):
        add(ast.unparse(node.operand)[:60], copy.deepcopy(node.operand))
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            add(str(not node.value), ast.Constant(not node.value))
        elif isinstance(node.value, int | float):
            add(f"{node.value} + 1", ast.Constant(node.value + 1))
        elif isinstance(node.value, str) and node.value:
            add("'XX'", ast.Constant("XX" + node.value))
    elif isinstance(node, ast.Return) and node.value is not None:
        if not (isinstance(node.value, ast.Constant) and node.value.value is None):
            add("return None", ast.Return(ast.Constant(None)))
    elif isinstance(node, ast.Raise | ast.Continue | ast.Break) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ):
        add("(left out)", ast.Pass())
    elif isinstance(node, ast.If | ast.While | ast.IfExp) and not isinstance(
        node.test, ast.Compare | ast.UnaryOp | ast.BoolOp
    ):
        new_if = copy.deepcopy(node)
        new_if.test = ast.copy_location(ast.UnaryOp(ast.Not(), new_if.test), node.test)
        add("not the condition", new_if)
    return made


def mutants(module: str, source: str) -> Iterator[Mutant]:
    """All changes of a module, in the order of its text."""
    quiet = (ast.JoinedStr, ast.Raise)

    def walk(
        node: ast.AST, where: Path_, function: str, first: int, scope: str, text: bool, stmt: int
    ) -> Iterator[Mutant]:
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list", "type_comment", "bases"):
                continue
            inside = field not in ("defaults", "kw_defaults")
            for place, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
                if not isinstance(child, ast.AST):
                    continue
                here = (*where, (field, place))
                if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                    continue  # a docstring
                if isinstance(child, ast.TypeAlias if hasattr(ast, "TypeAlias") else ()):
                    continue
                if isinstance(child, ast.Assign | ast.AnnAssign) and "TypeVar(" in ast.unparse(
                    child
                ):
                    continue
                inner, start = function if inside or "." in function else "", first
                hidden = text or isinstance(child, quiet)
                line = child.lineno if isinstance(child, ast.stmt) else stmt
                if hasattr(child, "lineno"):
                    for number, (what, _) in enumerate(variants(child)):
                        if (
                            hidden
                            and isinstance(child, ast.Constant)
                            and isinstance(child.value, str)
                        ):
                            continue
                        yield Mutant(module, child.lineno, line, inner, start, here, number, what)
                below = scope
                if isinstance(child, ast.FunctionDef | ast.ClassDef):
                    below = f"{scope}.{child.name}" if scope else child.name
                    if isinstance(child, ast.FunctionDef) and not function:
                        inner = below
                        start = min([child.lineno, *(d.lineno for d in child.decorator_list)])
                yield from walk(child, here, inner, start, below, hidden, line)

    yield from walk(ast.parse(source), (), "", 0, "", False, 0)


def mutated(mutant: Mutant, source: str, path: str) -> CodeType:
    """The code of the module with the change."""
    tree = ast.parse(source)
    parent: Any = tree
    for field, place in mutant.where[:-1]:
        parent = getattr(parent, field)
        parent = parent if place is None else parent[place]
    field, place = mutant.where[-1]
    old = getattr(parent, field) if place is None else getattr(parent, field)[place]
    new = variants(old)[mutant.variant][1]
    if place is None:
        setattr(parent, field, new)
    else:
        getattr(parent, field)[place] = new
    code: CodeType = compile(ast.fix_missing_locations(tree), path, "exec")
    return code


def function_code(code: CodeType, name: str, first: int) -> CodeType | None:
    for const in code.co_consts:
        if isinstance(const, CodeType):
            if const.co_qualname == name and const.co_firstlineno == first:
                return const
            if "<locals>" not in const.co_qualname and (inner := function_code(const, name, first)):
                return inner
    return None


class Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module with other code."""

    def __init__(self, name: str, code: CodeType, path: str) -> None:
        self.name, self.code, self.path = name, code, path

    def find_spec(self, fullname: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name:
            return None
        return importlib.util.spec_from_file_location(fullname, self.path, loader=self)

    def exec_module(self, module: ModuleType) -> None:
        exec(self.code, vars(module))


FUNCTIONS: dict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)
"""The functions that are imported, by file, name and first line."""


def plant(mutant: Mutant, source: str, path: str) -> bool:
    """Change the module in this process; False if no function of it has this code."""
    code = mutated(mutant, source, path)
    if not mutant.function:
        sys.meta_path.insert(0, Changed(mutant.module, code, path))
        return True
    new = function_code(code, mutant.function, mutant.first)
    found = FUNCTIONS[path, mutant.function, mutant.first]
    if new is None:
        return False
    for function in found:
        function.__code__ = new
    return bool(found)


def tested(tests: list[str], log: Path) -> int:
    """Run these tests in this process; the exit status of pytest."""
    import pytest  # noqa: PLC0415

    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    options = ["-x", "-q", "-p", "no:cacheprovider", "--durations=0", "--tb=line"]
    return int(pytest.main([*options, *tests]))


def collect(files: list[str]) -> None:
    """Import the tests and what they need, once for all forked processes."""
    import pytest  # noqa: PLC0415

    with Path(os.devnull).open("w") as nobody, redirect_stdout(nobody):
        pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *files])


def child(
    work: Callable[[], int], seconds: float, preload: Callable[[], None] | None = None
) -> str:
    """What became of a forked process: killed, survived, timeout or not planted."""
    pid = os.fork()
    if pid == 0:
        status = 70
        try:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 5))
            status = work()
        finally:
            os._exit(status)
    until = time.monotonic() + 2 * GUARD
    while True:
        done, code = os.waitpid(pid, os.WNOHANG)
        if done:
            break
        if time.monotonic() > until:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return "timeout"
        time.sleep(0.01)
    if os.WIFSIGNALED(code):
        return "timeout" if os.WTERMSIG(code) in (signal.SIGXCPU, signal.SIGKILL) else "killed"
    return {0: "survived", 71: "unplanted", 5: "unreached"}.get(os.WEXITSTATUS(code), "killed")


def reach(folder: Path, paths: list[str]) -> None:
    """Note which in-process test reaches which line of the rooms, and how long each test takes."""
    data, xml, ini = folder / "coverage", folder / "times.xml", folder / "coverage.ini"
    rooms = ",".join(f"epifed.{room}" for room in ROOMS)
    ini.write_text(f"[run]\nbranch = true\nsource_pkgs = {rooms}\ndata_file = {data}\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "not field", *paths]
    options = ["--cov", f"--cov-config={ini}", "--cov-context=test", "--cov-report="]
    subprocess.run([*command, *options, f"--junitxml={xml}"], cwd=ROOT, check=False)


def reached(folder: Path) -> tuple[dict[str, dict[int, set[str]]], dict[str, float]]:
    """The tests that reach each line of each file, and the seconds of each test.

    What a fixture of a whole file reaches counts for each test of the file.
    """
    from coverage import CoverageData  # noqa: PLC0415

    times: dict[str, float] = {}
    for case in ET.parse(folder / "times.xml").iter("testcase"):
        parts = case.attrib["classname"].split(".")
        place = next(
            i for i in range(len(parts), 0, -1) if (ROOT / ("/".join(parts[:i]) + ".py")).exists()
        )
        names = ["/".join(parts[:place]) + ".py", *parts[place:], case.attrib["name"]]
        if case.find("skipped") is None and case.find("failure") is None:
            times["::".join(names)] = float(case.attrib["time"])
    of_file: dict[str, set[str]] = defaultdict(set)
    for test in times:
        of_file[test.split("::")[0]].add(test)
    data = CoverageData(str(folder / "coverage"))
    data.read()
    lines: dict[str, dict[int, set[str]]] = {}
    for file in data.measured_files():
        found: dict[int, set[str]] = defaultdict(set)
        for line, contexts in data.contexts_by_lineno(file).items():
            for context in contexts:
                test, _, phase = context.rpartition("|")
                if phase == "setup":
                    found[line] |= of_file[test.split("::")[0]]
                elif test in times:
                    found[line].add(test)
        lines[str(Path(file).relative_to(ROOT))] = found
    return lines, times


def chosen(tests: set[str], times: dict[str, float], most: float, room: str) -> list[str]:
    """The quickest of these tests, those of the room first, up to so many seconds, at least one.

    Those that start commands as processes, where nothing is changed, are the last choice.
    """
    files = {file: (ROOT / file).read_text() for file in {test.split("::")[0] for test in tests}}
    inside = {test for test in tests if "tests.commands" not in files[test.split("::")[0]]}
    tests = inside or tests
    taken: list[str] = []
    spent = 0.0
    for test in sorted(tests, key=lambda test: (f"/{room}/" not in test, times[test], test)):
        spent += times[test]
        if taken and spent > most:
            break
        taken.append(test)
    return taken


def outcomes(folder: Path) -> dict[str, str]:
    """What became of each mutant that was tried, by the newest run."""
    newest: dict[str, str] = {}
    for path in sorted(folder.glob("results-*.jsonl")):
        found = map(json.loads, path.read_text().splitlines())
        newest |= {row["key"]: row["outcome"] for row in found}
    return newest


def keep_results(folder: Path, names: list[str]) -> None:
    """Keep what became of the mutants that were tried, the newest run of each, by module."""
    from kept import keep, table  # noqa: PLC0415

    newest = outcomes(folder)
    columns = ["module", "mutants", "tried", "noticed", "not noticed", "share"]
    rows: list[list[Any]] = []
    sums = [0] * 4
    for name in names:
        keys = {one.key for one in mutants(name, source_of(name)[0])}
        became = Counter(newest[key] for key in keys if key in newest)
        noticed = became["killed"] + became["timeout"]
        tried = became.total() - became["unplanted"]
        numbers = [len(keys), tried, noticed, tried - noticed]
        sums = [a + b for a, b in zip(sums, numbers, strict=True)]
        rows.append([f"`{name.removeprefix('epifed.')}`", *numbers, 100 * noticed / max(tried, 1)])
    rows.append(["all", *sums, 100 * sums[2] / max(sums[1], 1)])
    formats = ["{}", "{:,.0f}", "{:,.0f}", "{:,.0f}", "{:,.0f}", "{:.0f} %"]
    found = {"modules": table(columns, formats, rows)}
    keep("mutants", "python benchmarks/mutants.py MODULES", found)


def source_of(name: str) -> tuple[str, str]:
    """The source of a module and its path below the repository."""
    path = "src/" + name.replace(".", "/") + ".py"
    return (ROOT / path).read_text(), path


Job = tuple[Mutant, str, str, list[str]]
"""A mutant, the source and the path of its module, and the tests that may notice it."""


def jobs_of(given: argparse.Namespace) -> tuple[list[Job], int]:
    """The mutants to try, in random order, and the number of all."""
    lines, times = reached(given.folder)
    jobs: list[Job] = []
    for name in given.names:
        source, path = source_of(name)
        of_line = lines.get(path, {})
        everybody = set[str]().union(*of_line.values())
        for mutant in mutants(name, source):
            near = of_line.get(mutant.line, set()) | of_line.get(mutant.statement, set())
            tests = chosen(
                near if mutant.function else everybody, times, given.most, name.split(".")[1]
            )
            also = [test for test in given.also if f"/{name.split('.')[1]}/" in test]
            jobs.append((mutant, source, str(ROOT / path), [*also, *tests]))
    only = set(given.only.read_text().splitlines()) if given.only else None
    tried = outcomes(given.folder)
    wanted = [
        job
        for job in jobs
        if (job[0].key in only if only else job[0].key not in tried)
        and bool(job[0].function) != given.outside
    ]
    random.Random(given.seed).shuffle(wanted)
    return wanted[: round(given.share * len(wanted))], len(jobs)


def became(job: Job, times: dict[str, float], log: Path) -> str:
    """Try a mutant in a process of its own."""
    mutant, source, path, tests = job
    if not tests:
        return "unreached"
    with tempfile.TemporaryDirectory(prefix="mutant-") as scratch:
        os.environ["TMPDIR"] = tempfile.tempdir = scratch
        if mutant.module == "epifed.privacy.accounting":  # what is remembered hides a change
            os.environ["EPIFED_CACHE"] = f"{scratch}/cache"

        def work() -> int:
            return tested(tests, log) if plant(mutant, source, path) else 71

        outcome = child(work, min(60 + 8 * sum(times.get(test, 0) for test in tests), GUARD))
        tempfile.tempdir = None
    return outcome


def load(names: list[str], files: list[str]) -> None:
    """Import once what all forked processes need, and list the functions that can be changed."""
    for name in ("epifed.cli", "epifed.federation.flare.controller", *names):
        importlib.import_module(name)
    collect(files)
    for thing in gc.get_objects():
        if type(thing) is FunctionType:
            code = thing.__code__
            FUNCTIONS[code.co_filename, code.co_qualname, code.co_firstlineno].append(thing)
    gc.freeze()


def main() -> None:
    """Try mutants, or note which test reaches which line, or keep what was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="+", help="modules, or with --reach paths of tests")
    parser.add_argument("--reach", action="store_true")
    parser.add_argument("--keep", action="store_true", help="only keep what was found so far")
    parser.add_argument("--folder", type=Path, default=ROOT / ".mutants")
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most", type=float, default=MOST_SECONDS)
    parser.add_argument("--only", type=Path, help="a file with keys of mutants, one a line")
    parser.add_argument("--also", nargs="*", default=[], help="newer tests of the same room")
    parser.add_argument("--outside", action="store_true", help="constants of modules: slower")
    given = parser.parse_args()
    given.folder.mkdir(exist_ok=True)
    if given.reach:
        reach(given.folder, given.names)
        return
    if given.keep:
        keep_results(given.folder, given.names)
        return
    os.chdir(ROOT)
    jobs, total = jobs_of(given)
    print(f"{len(jobs)} of {total} mutants", flush=True)
    _, times = reached(given.folder)
    if not given.outside:
        load(given.names, sorted({test.split("::")[0] for *_, tests in jobs for test in tests}))
    with (given.folder / f"results-{time.time_ns()}.jsonl").open("w") as results:
        for job in jobs:
            outcome = became(job, times, given.folder / "last.log")
            row = {"key": job[0].key, "outcome": outcome, "tests": len(job[3])}
            print(json.dumps(row, ensure_ascii=False), file=results, flush=True)
            if outcome != "killed":
                print(f"{outcome:10} {job[0].key}", flush=True)


if __name__ == "__main__":
    main()
