"""The package as an index and a container see it: version, completion, README, images."""

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

import epifed
from epifed.cli.app import app

pytestmark = pytest.mark.field

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DOCKERFILE = ROOT / "docs" / "containers" / "Dockerfile"
SERVICES = ROOT / "docs" / "systemd"


def test_the_version_is_that_of_the_package() -> None:
    assert epifed.__version__ == version("epifed")
    done = CliRunner().invoke(app, ["--version"])
    assert (done.exit_code, done.output) == (0, f"epifed {version('epifed')}\n")
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited and cited[1] == PROJECT["project"]["version"]


@pytest.mark.parametrize(
    ("typed", "expected"),
    [("epifed calib", "calibrate"), ("epifed run --deta", "--details"),
     ("epifed ledger sh", "show")],
)  # fmt: skip
def test_a_shell_completes_commands_and_options(typed: str, expected: str) -> None:
    asked = {
        "_EPIFED_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(typed.split()) - 1),
    }
    code = "import sys; sys.argv[0] = 'epifed'; from epifed.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | asked, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.stdout.split() == [expected], done.stderr


def test_the_readme_of_an_index_has_no_link_that_leads_nowhere() -> None:
    hook = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    text = (ROOT / "README.md").read_text()
    assert re.search(r"\]\(docs/", text)
    for change in hook["substitutions"]:
        text = re.sub(change["pattern"], change["replacement"], text)
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert targets and all(target.startswith(("http", "#")) for target in targets)
    assert "Privacy (`docs/privacy.md`)" in text


def test_extras_are_those_that_the_documentation_names() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    named = {
        "app",
        "torch",
        "federation",
        "release",
        "dashboard",
        "excel",
        "docs",
        "dev",
        "cluster",
    }
    assert named == set(extras)
    page = (ROOT / "docs" / "index.md").read_text()
    assert all(f"`{extra}`" in page for extra in extras)
    light = " ".join(PROJECT["project"]["dependencies"])
    assert not any(name in light for name in ("torch", "nvflare", "distributed", "opendp"))


def stages() -> dict[str, list[str]]:
    """The instructions of each stage of the container file."""
    found: dict[str, list[str]] = {}
    for line in DOCKERFILE.read_text().replace("\\\n", " ").splitlines():
        if line.startswith("FROM"):
            found[line.split(" AS ")[1]] = here = [line]
        elif found and line and not line.startswith("#"):
            here.append(line)
    return found


@pytest.mark.parametrize("party", ["site", "server"])
def test_a_container_runs_what_the_service_runs_and_not_as_root(party: str) -> None:
    built = stages()
    assert built[party][0] == f"FROM base AS {party}"
    assert "USER 10001:10001" in built["base"]
    assert not any(line.startswith(("USER", "RUN")) for line in built[party])
    unit = (SERVICES / f"epifed-{party}.service").read_text()
    started = re.search(r"^ExecStart=/opt/epifed/bin/(.+)$", unit, re.MULTILINE)
    assert started
    told = re.findall(r'"([^"]+)"', " ".join(built[party][1:]))
    assert told == started[1].split()
    images = {line.split()[1] for line in DOCKERFILE.read_text().splitlines() if "FROM" in line[:4]}
    assert all(":" in image and "latest" not in image for image in images - {"base"})


def test_the_task_of_windows_runs_what_the_service_runs_and_is_never_ended() -> None:
    space = "{http://schemas.microsoft.com/windows/2004/02/mit/task}"
    task = ElementTree.parse(ROOT / "docs" / "windows" / "epifed-site.xml").getroot()
    said = {one.tag.removeprefix(space): one.text for one in task.iter()}
    unit = (SERVICES / "epifed-site.service").read_text()
    started = re.search(r"^ExecStart=/opt/epifed/bin/epifed (.+)$", unit, re.MULTILINE)
    assert started and said["Arguments"]
    options = [word for word in started[1].split() if not word.startswith("/")]
    assert [word for word in said["Arguments"].split() if not word.startswith("C:")] == options
    assert said["ExecutionTimeLimit"] == "PT0S"
    assert said["StopIfGoingOnBatteries"] == "false"
