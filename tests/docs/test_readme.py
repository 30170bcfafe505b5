"""What the README shows runs."""

import re
import tomllib
from pathlib import Path

import polars as pl
import pytest

ROOT = Path(__file__).resolve().parents[2]


def python_example() -> str:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return str(block)


def test_the_python_example_is_short_and_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = python_example()
    assert sum(bool(line.strip()) for line in code.splitlines()) < 10
    code = code.replace("epsilon=2.0", "epsilon=2.0, rounds=2")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)
    assert (tmp_path / "november.png").stat().st_size > 10_000
    scores = names["scores"]
    assert isinstance(scores, pl.DataFrame)
    assert set(scores["method"]) == {"federated", "persistence"}
    assert not any(scores[name].is_nan().any() for name in scores.columns[1:])


def test_the_citation_and_the_changelog_name_the_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    released = re.findall(r"^## \[(\d\S*)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert released[0][0] == version
    cited = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {version}\ndate-released: {released[0][1]}\n" in cited
