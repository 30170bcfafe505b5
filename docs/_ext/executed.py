"""The directive `executed`: commands and Python that are run when a page is built, and shown.

All blocks of a page share one temporary directory and one Python namespace. What fails fails the
build: a tutorial cannot show what does not work. Pictures that a block saves are shown below it. A
notebook is a page whose code cells are such blocks. German pages are marked as such.
"""

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

from docutils import nodes
from myst_parser.parsers.sphinx_ import MystParser
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

MOST_LINES = 40
WIDEST = 100
DRAWN = frozenset("│┃─━▲")
GERMAN = {
    "Home": "Start",
    "Next": "Weiter",
    "On this page": "Auf dieser Seite",
    "Previous": "Zurück",
    "Search": "Suche",
    "View this page": "Quelltext dieser Seite",
}
"""What the theme says beside a page."""


def in_columns(line: str) -> bool:
    """Whether a line is of a table that is set with spaces, three columns or more."""
    return "#" not in line and len(re.findall(r"\S {2,}(?=\S)", line)) > 1


def folded(line: str) -> str:
    """A long sentence in several lines; what is drawn or set in columns stays as it is.

    >>> folded("a" * 60 + " " + "b" * 60).count(chr(10)), folded("│" + "a " * 60).count(chr(10))
    (1, 0)
    """
    if len(line) <= WIDEST or DRAWN.intersection(line) or in_columns(line):
        return line
    inside = " " * (len(line) - len(line.lstrip()))
    return "\n".join(textwrap.wrap(line, WIDEST, subsequent_indent=inside))


class Workshop:
    """Where the blocks of one page are run."""

    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="epifed-docs-")
        self.names: dict[str, Any] = {"__name__": "__main__"}

    def shell(self, command: str) -> str:
        """What a command prints, with this environment's epifed first on the path."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f'epifed() {{ python -m epifed "$@"; }}\n{command}'],
            cwd=self.folder,
            env=os.environ | {"PATH": path, "COLUMNS": "100", "PYTHONWARNINGS": "ignore"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ExtensionError(f"{command}\n{done.stdout}{done.stderr}")
        return done.stdout

    def pictures(self) -> set[Path]:
        """What was drawn so far."""
        return set(Path(self.folder).glob("*.png"))

    def python(self, code: str) -> str:
        """What code prints."""
        said = io.StringIO()
        with chdir(self.folder), redirect_stdout(said):
            exec(compile(code, "<tutorial>", "exec"), self.names)
        return said.getvalue()


class Executed(SphinxDirective):
    """A block that is run: `shell` or `python`."""

    has_content = True
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """The block, and below it what it printed."""
        language, block = self.arguments[0], "\n".join(self.content)
        workshops: dict[str, Workshop] = self.env.temp_data.setdefault("workshops", {})
        workshop = workshops.setdefault(self.env.docname, Workshop())
        before = workshop.pictures()
        said = getattr(workshop, language)(block).rstrip().splitlines()
        shown: list[nodes.Node] = [nodes.literal_block(block, block, language=language)]
        if said:
            cut = ["…"] if len(said) > MOST_LINES else []
            text = "\n".join(line.rstrip() for line in (*said[:MOST_LINES], *cut))
            shown.append(nodes.literal_block(text, text, language="text"))
        shown += [self._picture(path) for path in sorted(workshop.pictures() - before)]
        return shown

    def _picture(self, path: Path) -> nodes.Node:
        """A picture that was saved, kept until the site is written."""
        kept = Path(self.env.doctreedir) / "executed" / self.env.docname
        kept.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, kept)
        where = os.path.relpath(kept / path.name, Path(self.env.doc2path(self.env.docname)).parent)
        return nodes.image(uri=where, alt=path.stem)


class Notebook(MystParser):
    """A Jupyter notebook as a page: its text, and its code run."""

    supported = ("ipynb",)

    def parse(self, inputstring: str, document: nodes.document) -> None:
        """The cells as Markdown."""
        text = []
        for cell in json.loads(inputstring)["cells"]:
            source = "".join(cell["source"])
            text.append(
                source
                if cell["cell_type"] == "markdown"
                else f"```{{executed}} python\n{source}\n```"
            )
        super().parse("\n\n".join(text), document)


def _mark_drawn(app: Sphinx, doctree: nodes.document) -> None:
    """Blocks with lines drawn in them must not be broken; the others may be (`site.css`)."""
    del app
    for block in doctree.findall(nodes.literal_block):
        lines = block.astext().splitlines()
        columns = sum(in_columns(line) for line in lines)
        if DRAWN.intersection(block.astext()) or columns > 1:
            block["classes"].append("drawn")
            text = "\n".join(folded(line) for line in lines)
            block.rawsource = text
            block.children = [nodes.Text(text)]


def _speak_german(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """A German page says so to browsers, screen readers, translators, and beside the text."""
    del app, template, doctree
    if page.startswith("de/"):
        context["language"] = "de"
        context["_"] = lambda word: GERMAN.get(word, word)


def _clear(app: Sphinx, doctree: nodes.document) -> None:
    del doctree
    for workshop in app.env.temp_data.get("workshops", {}).values():
        shutil.rmtree(workshop.folder, ignore_errors=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("executed", Executed)
    app.add_source_suffix(".ipynb", "ipynb")
    app.add_source_parser(Notebook)
    app.connect("doctree-read", _clear)
    app.connect("doctree-read", _mark_drawn)
    app.connect("html-page-context", _speak_german)
    return {"parallel_read_safe": True}
