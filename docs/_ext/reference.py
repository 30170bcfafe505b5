"""The directives `commands`, `settings`, `outputs` and `schemas`: pages made from the code."""

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from pydantic import BaseModel
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from epifed.cli.app import COMMANDS, load_command
from epifed.cli.outputs import OUTPUTS, schema
from epifed.evaluation.results_folder import Manifest
from epifed.learners.base import Own
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
        yield from _table(("option", "meaning"), rows)
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
        yield from ("## Of every learner", "")
        yield from _fields(Settings)
        for name in LEARNERS.names():
            own: type[Own] = LEARNERS.load(name).own_settings
            if own.model_fields:
                yield from ("", f"## Of the learner {name}", "")
                yield from _fields(own)


class Outputs(Generated):
    """The fields of the JSON file that every results folder has."""

    def lines(self) -> Iterator[str]:
        """`manifest.json`, and what is inside it."""
        made = Manifest.model_json_schema()
        yield from ("", "## manifest.json", "")
        yield from _properties(made)
        for kind, one in made.get("$defs", {}).items():
            if "properties" in one:
                yield from (f"*{kind}*: {one.get('description', '').splitlines()[0]}", "")
                yield from _properties(one)


class Schemas(Generated):
    """What each command prints with `--json`."""

    def lines(self) -> Iterator[str]:
        """A section for each command: a link to its JSON Schema, and its fields."""
        for command in OUTPUTS:
            made = schema(command)
            kinds = [k for k in _mentioned(made, made) if "properties" in made["$defs"].get(k, {})]
            yield from ("", f"## {command}", "")
            title = made.get("description", "").splitlines()
            link = f'<a href="../schemas/{_file(command)}">JSON Schema</a>'
            yield from (" ".join([*title[:1], f"It is {_an(_type(made))}.", link]), "")
            if "properties" in made:
                yield from _properties(made)
            for kind in kinds:
                yield from (
                    f"*{kind}*: {made['$defs'][kind].get('description', '').splitlines()[0]}",
                    "",
                )
                yield from _properties(made["$defs"][kind])


def _an(kind: str) -> str:
    return kind if kind.startswith("an ") else f"a {kind}"


def _file(command: str) -> str:
    return f"{command.replace(' ', '-')}.json"


def _properties(made: dict[str, Any]) -> Iterator[str]:
    rows = [
        (f"`{name}`", _type(field), field.get("description", ""))
        for name, field in made["properties"].items()
    ]
    told = 3 if any(row[2] for row in rows) else 2
    yield from _table(("field", "type", "what it is")[:told], [row[:told] for row in rows])


def _mentioned(made: Any, root: dict[str, Any]) -> list[str]:
    """The kinds of objects inside, in the order in which they are met."""
    found: list[str] = []
    if isinstance(made, dict):
        named = str(made.get("$ref", "")).rsplit("/", 1)[-1]
        if named:
            found += [named, *_mentioned(root["$defs"][named], root)]
        found += [k for key, v in made.items() if key != "$defs" for k in _mentioned(v, root)]
    elif isinstance(made, list):
        found += [k for one in made for k in _mentioned(one, root)]
    return list(dict.fromkeys(found))


def _type(made: dict[str, Any]) -> str:
    """A type as people say it."""
    if "$ref" in made:
        return str(made["$ref"]).rsplit("/", 1)[-1]
    if "anyOf" in made:
        kinds = [_type(one) for one in made["anyOf"] if one != {"enum": ["inf", "-inf"]}]
        return " or ".join(dict.fromkeys(kinds))
    if "const" in made or "enum" in made:
        return " or ".join(f"`{one}`" for one in made.get("enum", [made.get("const")]))
    if made.get("type") == "array":
        inner = made.get("items") or {"type": "values"}
        return f"list of {_type(inner)}" if "prefixItems" not in made else "list"
    if made.get("type") == "object" and isinstance(made.get("additionalProperties"), dict):
        kinds = _type(made["additionalProperties"])
        return "row" if " or " in kinds else f"object of {kinds}"
    return {"string": made.get("format", "text"), "integer": "whole number"}.get(
        made.get("type", "any"), "an object" if "properties" in made else made.get("type", "any")
    )


def _write_schemas(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        folder = Path(app.outdir) / "schemas"
        folder.mkdir(exist_ok=True)
        for command in OUTPUTS:
            text = json.dumps(schema(command), indent=1, ensure_ascii=False)
            (folder / _file(command)).write_text(text + "\n")


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
    app.add_directive("schemas", Schemas)
    app.connect("build-finished", _write_schemas)
    return {"parallel_read_safe": True}
