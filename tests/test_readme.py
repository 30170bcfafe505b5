"""What the README shows runs."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def python_example() -> str:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return str(block)


def test_the_python_example_is_short_and_runs(
    tmp_path: Path, real_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = python_example()
    assert sum(bool(line.strip()) for line in code.splitlines()) < 10
    assert '"../shared/data"' in code
    code = code.replace('"../shared/data"', repr(str(real_data)))
    code = code.replace("epsilon=2.0", "epsilon=2.0, rounds=2")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)
    assert (tmp_path / "november.png").stat().st_size > 10_000
    scores = names["scores"]
    assert set(scores["method"]) == {"federated", "persistence"}  # type: ignore[index]


def test_every_link_to_a_file_leads_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:\s]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_citation_and_the_changelog_name_the_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    released = re.findall(r"^## \[(\d\S*)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert released[0][0] == version
    cited = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {version}\ndate-released: {released[0][1]}\n" in cited
