"""The documentation site: pages that all are in it, numbers that are those of the code."""

import importlib.util
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

from epifed.privacy.tradeoff import most_advantage, right_at_most

DOCS = Path(__file__).parent.parent / "docs"


def test_every_page_is_in_the_table_of_contents() -> None:
    listed = set(re.findall(r"^([\w/-]+)$", (DOCS / "index.md").read_text(), re.MULTILINE))
    pages = {str(path.relative_to(DOCS).with_suffix("")) for path in DOCS.rglob("*.md")}
    assert pages - {"index"} == listed


def test_the_guesses_of_the_german_page_are_those_of_the_code() -> None:
    text = (DOCS / "de" / "datenschutz.md").read_text()
    rows = re.findall(r"^\| ([\d,]+) \| ([\d,]+) % \|$", text, re.MULTILINE)
    assert len(rows) == 4
    for epsilon, share in rows:
        bound = right_at_most(most_advantage(float(epsilon.replace(",", ".")), 1e-5))
        assert float(share.replace(",", ".")) == math.ceil(1000 * bound) / 10


def test_links_between_pages_lead_somewhere() -> None:
    for page in DOCS.rglob("*.md"):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page}: {target}"


@pytest.mark.long
@pytest.mark.skipif(
    importlib.util.find_spec("sphinx") is None, reason="no Sphinx here: 'make docs' installs it"
)
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", str(DOCS), str(tmp_path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "right at most" in (tmp_path / "tutorials" / "reading-epsilon.html").read_text()
