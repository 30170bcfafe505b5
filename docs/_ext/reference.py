"""The directives `commands`, `settings` and `outputs`: reference pages made from the code."""

import inspect
import re
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from pydantic import BaseModel
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from epifed.cli.app import COMMANDS, load_command
from epifed.evaluate.manifest import BacktestRecord, Manifest
from epifed.learner import Own
from epifed.registry import LEARNERS
from epifed.settings import Settings


class Generated(SphinxDirective):
    """A directive whose content is Markdown that code wrote."""

    def run(self) -> list[nodes.Node]:
        """The Markdown, parsed."""
        return self.parse_text_to_nodes("\n".join(self.lines()), allow_section_headings=True)

    def lines(self) -> Iterator[str]:
        """The Markdown."""
        raise NotImplementedError


class Commands(Generated):
    """Every command with its help and options, as typer has them."""

    def lines(self) -> Iterator[str]:
        """A section for each command."""
        for name in COMMANDS:
            yield from _command(load_command(name), f"epifed {name}")


def _command(command: Any, called: str) -> Iterator[str]:
    inner = getattr(command, "commands", {})
    yield from ("", f"## {called}", "", _escaped(inspect.cleandoc(command.help or "")), "")
    rows = [(_names(p), _help(p)) for p in command.params if not getattr(p, "hidden", False)]
    if rows and not inner:
        yield from _table(("option", "what it says"), rows)
    for name, one in inner.items():
        yield from _command(one, f"{called} {name}")


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{(parameter.metavar or parameter.name).upper()}`"
    return " ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))


def _help(parameter: Any) -> str:
    default = parameter.show_default
    if not isinstance(default, str):
        plain = isinstance(parameter.default, str | int | float) and parameter.default is not False
        default = str(parameter.default) if plain else ""
    required = " Required." if parameter.required else ""
    return f"{parameter.help or ''}{required}{f' Default: {default}.' if default else ''}"


class SettingsTable(Generated):
    """Every setting with the paper's symbol and its default."""

    def lines(self) -> Iterator[str]:
        """The shared settings, then each learner's own."""
        yield from _fields(Settings)
        for name in LEARNERS.names():
            own: type[Own] = LEARNERS.load(name).own_settings
            if own.model_fields:
                yield from ("", f"## Of the learner {name}", "")
                yield from _fields(own)


class Outputs(Generated):
    """The fields of the JSON files of a results folder."""

    def lines(self) -> Iterator[str]:
        """`manifest.json` and `backtest.json`."""
        for title, kind in (("manifest.json", Manifest), ("backtest.json", BacktestRecord)):
            yield from ("", f"## {title}", "")
            rows = [(f"`{n}`", f"`{_kind(f.annotation)}`") for n, f in kind.model_fields.items()]
            yield from _table(("field", "type"), rows)


def _kind(annotation: Any) -> str:
    return re.sub(r"[\w.]*\.", "", getattr(annotation, "__name__", "") or str(annotation))


def _fields(model: type[BaseModel]) -> Iterator[str]:
    rows = [
        (f"`{name}`", field.description or "", f"`{field.default!r}`")
        for name, field in model.model_fields.items()
    ]
    yield from _table(("setting", "meaning", "default"), rows)


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(_cell(cell) for cell in row)} |"
    yield ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _escaped(text: str) -> str:
    return text.replace("<", "\\<")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives."""
    app.add_directive("commands", Commands)
    app.add_directive("settings", SettingsTable)
    app.add_directive("outputs", Outputs)
    return {"parallel_read_safe": True}
