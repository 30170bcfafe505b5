"""Every example in a docstring of the package is run."""

import doctest
import importlib
import sys
from pathlib import Path

import pytest

import epifed

PACKAGE = Path(epifed.__file__).parent
EXTRAS = ("nvflare", "torch")
"""What a module may need that a plain installation does not bring."""


def modules_with_examples() -> list[str]:
    """The names of the package's modules that hold an example."""
    names = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if ">>> " in path.read_text(encoding="utf-8"):
            parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
            names.append(".".join(parts).removesuffix(".__init__"))
    return names


def run_examples(name: str) -> None:
    """Fail where an example of the module gives something else, or stands where none is run."""
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        extra = (error.name or "").partition(".")[0]
        if extra not in EXTRAS:
            raise
        pytest.skip(f"{name} needs {extra}, which is not installed")
    said: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    tests = doctest.DocTestFinder(exclude_empty=True).find(module, name)
    for test in tests:
        runner.run(test, out=said.append)
    assert runner.failures == 0, "".join(said)
    written = Path(str(module.__file__)).read_text(encoding="utf-8").count(">>> ")
    assert sum(len(test.examples) for test in tests) == written, f"{name}: an example is not run"


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples(name: str) -> None:
    run_examples(name)


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "planted", raising=False)
    return tmp_path / "planted.py"


def test_a_wrong_example_fails(planted: Path) -> None:
    planted.write_text('"""Adds.\n\n>>> 1 + 1\n3\n"""\n')
    with pytest.raises(AssertionError, match=r"Expected:\s+3\s+Got:\s+2"):
        run_examples("planted")


def test_an_example_outside_a_docstring_fails(planted: Path) -> None:
    planted.write_text("# >>> 1 + 1\n")
    with pytest.raises(AssertionError, match="an example is not run"):
        run_examples("planted")


def test_a_module_of_an_absent_extra_is_skipped_and_no_other(
    planted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "nvflare", None)
    planted.write_text("import nvflare.apis\n")
    with pytest.raises(pytest.skip.Exception, match="planted needs nvflare, which is not"):
        run_examples("planted")
    planted.write_text("import nothing_of_that_name_at_all\n")
    with pytest.raises(ModuleNotFoundError, match="nothing_of_that_name"):
        run_examples("planted")
