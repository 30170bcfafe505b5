"""Words and sentences of each page of the documentation.

    python benchmarks/words.py                       # README.md and all pages of docs/
    python benchmarks/words.py docs/privacy.md       # some pages
    python benchmarks/words.py --longest 3           # fewer of the longest sentences

For each page: words, sentences, their average length, and the longest sentences. Words are those
of sentences, headings and tables, without code and comments. Sentences are counted without headings
and tables. The last lines add up the pages of each role, as docs/index.md lists them. This is a
report (make page-words); it never fails a build.
"""

import argparse
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GOAL_AVERAGE, GOAL_LONGEST = 20, 35
GOAL_README, GOAL_USER_PAGES = 700, 15_000
NOT_USER_PAGES = ("Evidence", "Deutsch")

UNREAD = re.compile(
    r"<!--.*?-->"  # comments
    r"|^ *```.*?^ *```"  # fenced code and directives
    r"|^(?: {4,}|\t)(?! *(?:[-*]|\d+\.) )\S.*?$"  # indented code
    r"|!\[.*?\]\(.*?\)",  # pictures
    re.DOTALL | re.MULTILINE,
)
NO_SENTENCE = re.compile(r"^ *\|.*?$|^#.*?$", re.MULTILINE)  # tables and headings
TOCTREE = re.compile(r"^```\{toctree\}\n:caption: (.*?)\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
CODE = re.compile(r"`[^`]*`")
BLOCK = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )")
BULLET = re.compile(r"^\s*(?:[-*]|\d+\.) +")
END = re.compile(r"(?<=[.!?])[\")*_]*\s+(?=[\"(\[*_`]*[^\sa-zäöü])")
ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|z\.B|d\.h|bzw|ca|vs|et al|Fig|Nr)\.$")


@dataclass(frozen=True)
class Page:
    """The words and sentences of one page."""

    name: str
    words: int
    """Words of sentences, headings and tables."""
    sentences: tuple[str, ...]

    @property
    def average(self) -> float:
        """Words of a sentence."""
        return sum(map(length, self.sentences)) / max(1, len(self.sentences))

    def longest(self, count: int) -> list[str]:
        """The longest sentences, the longest one first."""
        return sorted(self.sentences, key=length, reverse=True)[:count]


def length(sentence: str) -> int:
    """Words of a sentence: whatever has a letter or a digit. Code counts as one word."""
    return sum(any(map(str.isalnum, word)) for word in CODE.sub("code", sentence).split())


def readable(text: str) -> str:
    """A page without code, comments, pictures and the addresses of links."""
    return LINK.sub(r"\1", UNREAD.sub("", text))


def sentences_of(text: str) -> list[str]:
    """The sentences of a page in Markdown.

    >>> sentences_of("# Title\\n\\nOne idea. Two, e.g. Three.\\n\\n- a bullet\\n- another")
    ['One idea.', 'Two, e.g. Three.', 'a bullet', 'another']
    """
    sentences = []
    for block in BLOCK.split(NO_SENTENCE.sub("", readable(text))):
        joined = " ".join(BULLET.sub("", block).split())
        part = ""
        for piece in END.split(joined):
            part = f"{part} {piece}".strip()
            if not ABBREVIATION.search(part):
                sentences.append(part)
                part = ""
        sentences.append(part)
    return [sentence for sentence in sentences if length(sentence)]


def read_page(path: Path) -> Page:
    """One page, counted."""
    text = path.read_text(encoding="utf-8")
    name = str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)
    return Page(name, length(readable(text)), tuple(sentences_of(text)))


def roles() -> dict[str, list[str]]:
    """The pages of each role, in the order of docs/index.md."""
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    return {
        caption: [f"docs/{page}.md" for page in re.findall(r"^[a-z].*$", body, re.MULTILINE)]
        for caption, body in TOCTREE.findall(index)
    }


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
    read = [read_page(path) for path in paths]
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
    print(f"* average above {GOAL_AVERAGE} words, or a sentence above {GOAL_LONGEST}")
    if not given.pages:
        words = {page.name: page.words for page in read}
        by_role = {
            role: sum(words.get(name, 0) for name in names) for role, names in roles().items()
        }
        print("\nwords by role")
        for role, total in by_role.items():
            print(f"{role:40} {total:6d}")
        user = sum(total for role, total in by_role.items() if role not in NOT_USER_PAGES)
        print(f"{'user pages (without evidence, German)':40} {user:6d}  of {GOAL_USER_PAGES}")
        print(f"{'README.md':40} {words['README.md']:6d}  of {GOAL_README}")


if __name__ == "__main__":
    main()
