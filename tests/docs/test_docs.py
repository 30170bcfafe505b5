"""The documentation site: pages that all are in it, numbers that are those of the code."""

import json
import math
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from epifed.cli.app import COMMANDS, load_command
from epifed.privacy.accounting import most_advantage, right_at_most

pytestmark = pytest.mark.field

ROOT = Path(__file__).parents[2]
DOCS, BENCHMARKS = ROOT / "docs", ROOT / "benchmarks"
REFERENCE = ("reference/settings", "reference/commands", "reference/json")


def test_every_page_is_in_the_table_of_contents() -> None:
    listed = set(re.findall(r"^([\w/-]+)$", (DOCS / "index.md").read_text(), re.MULTILINE))
    pages = {
        str(path.relative_to(DOCS).with_suffix(""))
        for kind in ("*.md", "*.ipynb")
        for path in DOCS.rglob(kind)
    }
    assert pages - {"index"} == listed


def test_numbers_are_those_of_the_results_that_are_kept() -> None:
    """`make figures-docs` writes what this compares."""
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "kept.py"), "--check"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_number_that_was_changed_by_hand_is_found(tmp_path: Path) -> None:
    place = "reproduction/2020-11 MAE/2/temporal"
    code = (
        "import kept; kept.ROOT = __import__('pathlib').Path('.').resolve();"
        "print([page.name for page in kept.stale()])"
    )
    (tmp_path / "docs" / "de").mkdir(parents=True)
    (tmp_path / "README.md").write_text(f"is 10.77 ± 2.01<!-- = {place} --> and no more\n")
    (tmp_path / "docs" / "right.md").write_text(f"is 10.8<!-- = {place} :.1f -->\n")
    (tmp_path / "docs" / "de" / "komma.md").write_text(f"ist 10,8<!-- = {place} :.1f -->\n")
    (tmp_path / "docs" / "wrong.md").write_text(f"is 10.7<!-- = {place} :.1f -->\n")
    (tmp_path / "docs" / "table.md").write_text(
        "<!-- numbers: reproduction/2020-11 MAE -->\n\n| 1 |\n\n<!-- /numbers -->\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={"PYTHONPATH": str(BENCHMARKS)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "['table.md', 'wrong.md']\n"


def tables_by_hand(text: str) -> list[str]:
    """The heads of tables that are mostly numbers, yet neither kept nor said not to be measured."""
    kept = re.compile(r"<!-- numbers: .+? -->.*?<!-- /numbers -->|^```.*?^```", re.DOTALL | re.M)
    found = []
    for before, table in re.findall(r"(.*\n?.*\n)((?:\|.*\n)+)", kept.sub("", text)):
        head, _, *rows = table.splitlines()
        cells = [cell.strip() for row in rows for cell in row.strip("|").split("|")[1:]]
        numbers = [cell for cell in cells if re.match(r"[-−+<≤±*]*\d", cell)]
        if 2 * len(numbers) > len(cells) and "<!-- not measured: " not in before:
            found.append(head)
    return found


def test_a_table_of_numbers_is_written_from_results_that_are_kept() -> None:
    by_hand = {page.name for page in pages() if tables_by_hand(page.read_text())}
    assert by_hand == set()
    table = "| ε | MAE |\n| --- | ---: |\n| 1 | 0.7 |\n"
    assert tables_by_hand(f"a\n\n{table}\nb\n") == ["| ε | MAE |"]
    assert tables_by_hand(f"<!-- not measured: goals -->\n\n{table}") == []
    assert tables_by_hand(f"<!-- numbers: a/b -->\n\n{table}\n<!-- /numbers -->\n") == []


NO_PROSE = re.compile(
    r"^ *```.*?^ *```|<!-- numbers: .+? -->.*?<!-- /numbers -->|^\|.*?$|^ {4}.*?$|^#.*?$|!\[.*?\]",
    re.DOTALL | re.MULTILINE,
)
KEPT = re.compile(r"[-−+]?[\d.,]+(?: ± [\d.,]+)?<!-- = .+? -->")
NO_RESULT = re.compile(
    r"`[^`]*`|\]\([^)]*\)|https?:\S+|\[arXiv:[^\]]*\]|CC BY 4\.0|Python 3\.\d+|\) 2\.9\b"
    r"|\d\d\.\d\d\.\d{4}|\b(?:50|95) ?(?:%|and 95)"
    r"|[εδqmSTN] [=<>≤≥] [\d.,e−-]+(?:, [\d.,]+)*(?: (?:and|or|und|to) [\d.,]+)?"
)
RESULT = re.compile(
    r"(?<![\w.,-])(?:\d+\.\d+|\d[\d,.]*(?= ?(?:%|s\b|ms\b|MB|GB|kB|×|"
    r"(?:seconds|minutes|hours|times|Sekunden|Minuten)\b)))"
)
SAID = re.compile(r"<!-- set: .+? -->|[Mm]easured once|inmal gemessen", re.DOTALL)


def numbers_by_hand(text: str) -> list[str]:
    """Numbers of sentences that look measured, in paragraphs that do not say where from.

    Budgets, levels of intervals, days, versions and addresses are none. A paragraph or item is
    told from the next by an empty line or a bullet.
    """
    prose = re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", NO_PROSE.sub("", text))
    silent = [block for block in prose if not SAID.search(block)]
    return [n for block in silent for n in RESULT.findall(NO_RESULT.sub(" ", KEPT.sub(" ", block)))]


def test_a_number_in_a_sentence_is_kept_or_says_what_it_is() -> None:
    found = {page.name: numbers_by_hand(page.read_text()) for page in site()}
    assert {name: numbers for name, numbers in found.items() if numbers} == {}
    for text in ("errs 0.732 times as much", "takes 12 s", "- a\n- 7 % less", "half, 3.5× as fast"):
        assert numbers_by_hand(text), text
    for text in (
        "errs 0.732<!-- = forecast/Germany/1/Tuesdays --> times as much",
        "at ε = 0.1, with 95 % intervals, under CC BY 4.0, `--horizon 0.5`",
        "takes 12 s (measured once, on 2026-11-16)",
        "13 % of the distance<!-- set: constant -->",
    ):
        assert not numbers_by_hand(text), text


def site() -> list[Path]:
    """The README and the pages of the site."""
    return [ROOT / "README.md", *(page for page in pages() if DOCS in page.parents)]


def commands_of(text: str) -> list[tuple[str, bool]]:
    """The commands that a page shows, each with whether it is a whole line to be typed."""
    blocks = re.findall(r"^ *```.*?^ *```|^(?: {4}.*\n)+", text, re.DOTALL | re.MULTILINE)
    joined = re.sub(r"\\\n\s*", " ", "\n".join(blocks))
    lines = re.findall(r"^ *(?:\$ )?(epifed .*?)(?:\s+#.*)?$", joined, re.MULTILINE)
    whole = [(line, True) for line in lines if "`" not in line and not line.startswith("epifed:")]
    inline = re.findall(r"(?<!`)`(epifed [^`]+)`", text)
    return whole + [(" ".join(one.split()), False) for one in inline]


def unknown(line: str, whole: bool) -> str:
    """What no command of epifed takes, or a whole line lacks."""
    words = [word for word in shlex.split(line)[1:] if word not in ("…", "2>&1", "||", "true")]
    if words and words[0].startswith("--"):
        return "" if words[0] in ("--version", "--help", "--install-completion") else words[0]
    if not words or words[0] not in COMMANDS:
        return words[0] if words else "nothing"
    command = load_command(words.pop(0))
    while getattr(command, "commands", None):
        if not words or words[0] not in command.commands:
            return words[0] if words and not words[0].isupper() and whole else ""
        command = command.commands[words.pop(0)]
    known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    given = {word.split("=")[0] for word in words if re.match("--[a-z]", word)}
    if wrong := given - known - {"--help"}:
        return sorted(wrong)[0]
    needed = [one.opts[0] for one in command.params if one.required and one.opts[0][:2] == "--"]
    return next((name for name in needed if whole and name not in given), "")


def test_every_command_of_the_pages_can_be_typed() -> None:
    """Names and options; that they do what is said, tests of each command show."""
    shown = [(page.name, *one) for page in site() for one in commands_of(page.read_text())]
    assert len(shown) > 150
    wrong = {f"{name}: {line}": why for name, line, whole in shown if (why := unknown(line, whole))}
    assert wrong == {}
    assert unknown("epifed run --nonsense 1", whole=False) == "--nonsense"
    assert unknown("epifed nonsense", whole=True) == "nonsense"
    assert unknown("epifed train --out a", whole=True) == "--data"


def test_the_notebook_is_small_and_without_outputs() -> None:
    """They would be stale; the site runs it."""
    path = DOCS / "tutorials" / "paper.ipynb"
    notebook = json.loads(path.read_text())
    assert notebook["nbformat"] == 4 and path.stat().st_size < 10_000
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert code and all(cell["outputs"] == [] for cell in code)


def test_the_guesses_of_the_german_page_are_those_of_the_code() -> None:
    text = (DOCS / "de" / "datenschutz.md").read_text()
    rows = re.findall(r"^\| ([\d,]+) \| ([\d,]+) % \|$", text, re.MULTILINE)
    assert len(rows) == 4
    for epsilon, share in rows:
        bound = right_at_most(most_advantage(float(epsilon.replace(",", ".")), 1e-5))
        assert float(share.replace(",", ".")) == math.ceil(1000 * bound) / 10


def pages() -> list[Path]:
    built = DOCS / "_build"
    return [*ROOT.glob("*.md"), *(p for p in DOCS.rglob("*.md") if built not in p.parents)]


def anchors(page: Path) -> set[str]:
    """The headings of a page, as code hosts and MyST name them."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken(page: Path) -> list[str]:
    """The links of a page to files or headings that are not there."""
    found = re.findall(r"\]\(((?!https?:)[^)\s]+)\)", page.read_text())
    wrong = []
    for link in found:
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        known = target.exists() and (not anchor or anchor in anchors(target))
        wrong += [] if known else [link]
    return wrong


def test_links_between_pages_lead_somewhere(tmp_path: Path) -> None:
    """The site's builder looks too; links to the outside: `make linkcheck`, with a network."""
    assert {page.name: broken(page) for page in pages() if broken(page)} == {}
    page = tmp_path / "page.md"
    page.write_text("# A title, *here*\n[a](#a-title-here) [b](#b) [c](c.md) [d](page.md#nope)")
    assert broken(page) == ["#b", "c.md", "page.md#nope"]


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", str(DOCS), str(tmp_path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    made = {
        name: (tmp_path / f"{name}.html").read_text() for name in ("tutorials/paper", *REFERENCE)
    }
    assert "right at most" in (tmp_path / "tutorials" / "reading-epsilon.html").read_text()
    assert "Zurück" in (tmp_path / "de" / "betrieb.html").read_text()
    assert "predictions.png" in made["tutorials/paper"] and "persistence" in made["tutorials/paper"]
    assert "P, days (or weeks) from last input to target" in made["reference/settings"]
    assert "below 1 is better" in made["reference/commands"]
    assert "epsilon_without_amplification" in made["reference/json"]
    assert json.loads((tmp_path / "schemas" / "ledger-verify.json").read_text())["properties"]
