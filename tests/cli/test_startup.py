"""What a start costs: which packages are imported before anything is asked of them."""

import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import epifed
from epifed.cli.app import COMMANDS, app, load_command

HEAVY = ("torch", "polars", "numpy", "scipy", "matplotlib", "pandas", "pydantic", "nvflare")


def imported(code: str) -> set[str]:
    """The heavy packages that a new process has imported after running some code."""
    ask = f"import sys\n{code}\nprint(*(name for name in {HEAVY} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("module", ["epifed", "epifed.files", "epifed.registry", "epifed.errors"])
def test_a_light_module_imports_nothing_heavy(module: str) -> None:
    assert imported(f"import {module}") == set()


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], []])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = f"""
from epifed.cli import main
sys.argv = ["epifed", *{arguments}]
try:
    main()
except SystemExit:
    pass
"""
    assert imported(code) == set()


def test_the_check_of_heavy_packages_can_fail() -> None:
    assert imported("import epifed\nepifed.CasePanel") >= {"numpy", "polars"}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_each_says_itself(name: str) -> None:
    command = load_command(name)
    assert command.name == name
    assert " ".join(command.help.split("\n\n")[0].split()) == COMMANDS[name]


@pytest.mark.parametrize("name", COMMANDS)
def test_no_help_has_a_word_in_brackets_which_would_not_be_shown(name: str) -> None:
    command = load_command(name)
    for shown in (command, *getattr(command, "commands", {}).values()):
        texts = [shown.help or "", *(getattr(one, "help", None) or "" for one in shown.params)]
        assert [text for text in texts if re.search(r"\[[a-z]", text)] == []


def test_public_names_complete_and_exist() -> None:
    assert dir(epifed) == sorted(epifed.__all__)
    for name in dir(epifed):
        assert getattr(epifed, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = epifed.nonsense


def test_rare_options_stand_last_under_advanced() -> None:
    shown = CliRunner().invoke(app, ["backtest", "--help"], env={"COLUMNS": "110"}).stdout
    usual, advanced = shown.split("─ Advanced ─")
    assert "--epsilon" in usual and "--horizon" in usual
    assert "--seed" in advanced and "--seed" not in usual
