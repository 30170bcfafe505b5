"""Named things from this package and from another one, which is really installed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from epifed.data.readers import SOURCES
from epifed.errors import EpifedError
from epifed.registry import LEARNERS, Registry
from epifed.settings import Settings
from tests.helpers import lay_package

READER = """
from datetime import date
from pathlib import Path

import numpy as np

from epifed.data.panel import CasePanel


def read_counts(path: Path, region: str = "a") -> CasePanel:
    counts = np.array([[float(n) for n in path.read_text().split()]])
    return CasePanel(counts, (region,), date(2020, 11, 1))


def read_anything(path: Path, **options: str) -> dict[str, str]:
    return options


not_a_reader = 7
"""
SOURCE_NAMES = ("rki", "memilio", "tidy", "prepared")


def python(code: str, environment: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def cli(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from epifed.cli import main; main()", *arguments],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture
def other(tmp_path: Path) -> dict[str, str]:
    """An environment with a second package, some of whose entry points are broken."""
    entries = {
        "counts": "plain_counts:read_counts",
        "anything": "plain_counts:read_anything",
        "number": "plain_counts:not_a_reader",
        "absent": "plain_counts:nowhere",
        "unmade": "no_such_module:read",
        "raises": "plain_broken:read",
        "tidy": "plain_counts:read_counts",
    }
    modules = {"plain_counts": READER, "plain_broken": "raise RuntimeError('not\\ntoday')\n"}
    return lay_package(tmp_path / "site", "plain-counts", modules, {"epifed.readers": entries})


def test_builtins_are_imported_when_asked_for() -> None:
    code = """
import sys
from epifed.registry import Registry
registry = Registry("epifed.nothing", {"one": "colorsys:rgb_to_hsv", "two": "nowhere:at_all"})
assert registry.names() == tuple(registry) == ("one", "two")
assert "one" in registry and "three" not in registry
assert "colorsys" not in sys.modules
first = registry.load("one")
assert first is registry.load("one") is sys.modules["colorsys"].rgb_to_hsv
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_name_is_refused_with_the_list() -> None:
    registry: Registry[object] = Registry("epifed.x", {"b": "json:loads", "a": "json:dumps"})
    with pytest.raises(EpifedError, match=r"^epifed\.x: found 'c'; expected one of b, a$"):
        registry.load("c")
    with pytest.raises(EpifedError, match=r"^format: found 'excel'; expected one of rki, memilio"):
        SOURCES.load("excel")


def test_every_builtin_source_is_there() -> None:
    assert SOURCES.names()[:4] == SOURCE_NAMES
    for name in SOURCE_NAMES:
        assert SOURCES.is_builtin(name)
        assert SOURCES.load(name).__name__ == f"read_{name}"


def test_another_package_brings_a_source(other: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "counts.txt"
    file.write_text(" ".join(["4"] * 20))
    code = """
import sys
from epifed.data.readers import SOURCES, load_panel
print(*SOURCES.names())
assert "plain_counts" not in sys.modules
print(load_panel(sys.argv[1], format="counts", region="b"))
"""
    names, panel = python(code, other, str(file)).splitlines()
    assert names.split() == [
        *SOURCE_NAMES, "absent", "anything", "counts", "number", "raises", "unmade",
    ]  # fmt: skip
    assert panel == "CasePanel(1 region × 20 days, 2020-11-01 … 2020-11-20, 'memory')"
    checked = cli(other, "data", "check", str(file), "--format", "counts", "--json")
    assert json.loads(checked.stdout)["cases"] == 80


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["excel"], "format: found 'excel'; expected one of rki, memilio, tidy, prepared, absent,"),
        (["number"], "format: 'number' of the package plain-counts 1.0: found "
         "plain_counts:not_a_reader, a int; expected a function of a path"),
        (["absent"], "format: 'absent' of the package plain-counts 1.0: found "
         "plain_counts:nowhere, which cannot be imported (AttributeError: "),
        (["unmade"], "format: 'unmade' of the package plain-counts 1.0: found "
         "no_such_module:read, which cannot be imported (ModuleNotFoundError: "),
        (["raises"], "format: 'raises' of the package plain-counts 1.0: found "
         "plain_broken:read, which cannot be imported (RuntimeError: not today); expected"),
        (["tidy"], "format: found 'tidy' in 2 installed packages (epifed, plain-counts 1.0); "
         "expected it in one"),
        (["anything", "--level", "county"], "{file}: found a dict from the format anything; "
         "expected a CasePanel"),
        (["counts", "--level", "county"], "level: not an option of the format counts, which "
         "{file} has; expected one of region"),
    ],
)  # fmt: skip
def test_what_another_package_does_wrong_is_one_sentence(
    other: dict[str, str], tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    file = tmp_path / "counts.txt"
    file.write_text("1 2 3")
    done = cli(other, "data", "check", str(file), "--format", *arguments)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(f"epifed: {sentence.format(file=file)}")
    assert len(done.stderr.splitlines()) == 1


def test_a_name_in_two_packages_is_refused(other: dict[str, str], tmp_path: Path) -> None:
    entries = {"epifed.readers": {"counts": "more_counts:read"}}
    lay_package(tmp_path / "site", "more-counts", {"more_counts": "read = print\n"}, entries, "2.1")
    done = cli(other, "data", "check", str(tmp_path), "--format", "counts")
    assert done.returncode == 2
    assert "found 'counts' in 2 installed packages (" in done.stderr
    assert "plain-counts 1.0" in done.stderr and "more-counts 2.1" in done.stderr


def test_the_old_name_of_the_real_time_learner_is_accepted_and_not_listed() -> None:
    assert LEARNERS.load("nowcast") is LEARNERS.load("real-time")
    assert "nowcast" in LEARNERS
    assert "nowcast" not in LEARNERS.names()
    old, new = (Settings.resolve(12, {"learner": name}) for name in ("nowcast", "real-time"))
    assert old.but(learner="real-time") == new
