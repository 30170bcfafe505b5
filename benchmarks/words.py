"""Words and sentences of each page of the documentation.

    python benchmarks/words.py                       # README.md and all pages of docs/
    python benchmarks/words.py docs/privacy.md       # some pages
    python benchmarks/words.py --longest 3           # fewer of the longest sentences

For each page: words, sentences, average length, and the longest sentences. Code blocks, tables,
headings and comments are left out. This is a report (make page-words); it never fails a build.
"""

import argparse
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GOAL_AVERAGE, GOAL_LONGEST = 20, 35

NO_PROSE = re.compile(
    r"<!--.*?-->"  # comments
    r"|^ *```.*?^ *```"  # fenced code and directives
    r"|^(?: {4}|\t)(?! *(?:[-*]|\d+\.) )\S.*?$"  # indented code
    r"|^ *\|.*?$"  # tables
    r"|^#.*?$"  # headings
    r"|!\[.*?\]\(.*?\)",  # pictures
    re.DOTALL | re.MULTILINE,
)
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
CODE = re.compile(r"`[^`]*`")
BLOCK = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )")
BULLET = re.compile(r"^\s*(?:[-*]|\d+\.) +")
END = re.compile(r"(?<=[.!?])[\")*_]*\s+(?=[\"(\[*_`]*[^\sa-zäöü])")
ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|z\.B|d\.h|bzw|ca|vs|et al|Fig|Nr)\.$")


@dataclass(frozen=True)
class Page:
    """The sentences of one page."""

    name: str
    sentences: tuple[str, ...]

    @property
    def words(self) -> int:
        """Words of all sentences."""
        return sum(map(length, self.sentences))

    @property
    def average(self) -> float:
        """Words of a sentence."""
        return self.words / len(self.sentences) if self.sentences else 0.0

    def longest(self, count: int) -> list[str]:
        """The longest sentences, the longest one first."""
        return sorted(self.sentences, key=length, reverse=True)[:count]


def length(sentence: str) -> int:
    """Words of a sentence: whatever has a letter or a digit. Code counts as one word."""
    return sum(any(map(str.isalnum, word)) for word in CODE.sub("code", sentence).split())


def sentences_of(text: str) -> list[str]:
    """The sentences of a page in Markdown.

    >>> sentences_of("# Title\\n\\nOne idea. Two, e.g. Three.\\n\\n- a bullet\\n- another")
    ['One idea.', 'Two, e.g. Three.', 'a bullet', 'another']
    """
    found = []
    for block in BLOCK.split(LINK.sub(r"\1", NO_PROSE.sub("", text))):
        joined = " ".join(BULLET.sub("", block).split())
        part = ""
        for piece in END.split(joined):
            part = f"{part} {piece}".strip()
            if not ABBREVIATION.search(part):
                found.append(part)
                part = ""
        found.append(part)
    return [sentence for sentence in found if length(sentence)]


def pages() -> list[Path]:
    """The README and all pages, without a built site."""
    docs = sorted((ROOT / "docs").rglob("*.md"))
    return [ROOT / "README.md", *(page for page in docs if "_build" not in page.parts)]


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*", type=Path, help="pages instead of all")
    parser.add_argument("--longest", type=int, default=10, help="sentences to print of each page")
    given = parser.parse_args()
    paths = [path.resolve() for path in given.pages] or pages()
    read = [
        Page(
            str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path),
            tuple(sentences_of(path.read_text(encoding="utf-8"))),
        )
        for path in paths
    ]
    for page in read:
        for sentence in page.longest(given.longest):
            print(f"{page.name}: {length(sentence):3d}  {sentence}")
        print()
    print(f"{'page':40} {'words':>6} {'sentences':>9} {'average':>7} {'longest':>7}")
    for page in read:
        longest = max(map(length, page.sentences), default=0)
        over = page.average > GOAL_AVERAGE or longest > GOAL_LONGEST
        print(
            f"{page.name:40} {page.words:6d} {len(page.sentences):9d} {page.average:7.1f} "
            f"{longest:7d}{'  *' if over else ''}"
        )
    print(f"{'all':40} {sum(page.words for page in read):6d}")
    print(f"* average above {GOAL_AVERAGE} words, or a sentence above {GOAL_LONGEST}")


if __name__ == "__main__":
    main()
