"""The options that say how case data is to be read, the same for every command that reads it."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from functools import wraps
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer

from epifed.reading import Assumptions, option_of

if TYPE_CHECKING:
    from epifed.panel import CasePanel

FirstDay = Annotated[
    datetime | None, typer.Option("--from", formats=["%Y-%m-%d"], help="First day to use.")
]
LastDay = Annotated[
    datetime | None, typer.Option("--to", formats=["%Y-%m-%d"], help="Last day to use.")
]
_PANEL = "How a table is read"


@dataclass(frozen=True)
class Reading:
    """How case data is to be read: its format, and what was said of it."""

    format: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    """As `load_panel` takes them."""

    def at(self, **options: Any) -> "Reading":
        """The same with some options more."""
        return replace(self, options=self.options | options)

    def read(self, path: Path) -> "CasePanel":
        """The panel of the file that these options describe; what it warns of goes to stderr."""
        from epifed.check import check_panel
        from epifed.cli.kit import messages
        from epifed.sources import load_panel

        panel = load_panel(path, self.format, **self.options)
        for sentence in check_panel(panel).warnings:
            messages.print(f"note: {sentence}", markup=False, soft_wrap=True)
        return panel


def _own_options() -> dict[str, Any]:
    """The options of formats other than tables, by the name of their argument."""
    return {
        "format": typer.Option(
            "--format",
            help="rki, memilio, tidy, prepared or what an installed package adds; recognised if "
            "not given.",
        ),
        "date_column": typer.Option(
            "--date-column",
            help="RKI: count by Refdatum (onset where known, default) or Meldedatum.",
        ),
        "level": typer.Option("--level", help="Prepared directory: county (default) or community."),
    }


def _parameters() -> list[inspect.Parameter]:
    """Every option of reading, made from `Assumptions`, so that there is one list of them."""
    kinds = get_type_hints(Assumptions)
    options: dict[str, tuple[Any, Any]] = {
        name: (str, option) for name, option in _own_options().items()
    }
    for one in fields(Assumptions):
        kind = next(k for k in get_args(kinds[one.name]) if k is not NoneType)
        several = kind not in (str, int, float, bool)
        choices = one.metadata["choices"]
        option = typer.Option(
            option_of(one.name),
            help=one.metadata["help"],
            rich_help_panel=_PANEL,
            metavar="|".join(choices) if all(len(c) > 1 for c in choices) and choices else None,
            show_default=False,
        )
        options[one.name] = (list[str] if several else kind, option)
    return [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[kind | None, option],
        )
        for name, (kind, option) in options.items()
    ]


def reads_cases(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of reading, which it gets as its argument `reading`.

    An option that the command has under the same name is left to it.
    """
    prefix = "read_"
    shared = [p.replace(name=prefix + p.name) for p in _parameters()]
    own = inspect.signature(command).parameters
    shared = [p for p in shared if p.name.removeprefix(prefix) not in own]
    every = [p for name, p in own.items() if name != "reading"] + shared

    @wraps(command)
    def with_options(**values: Any) -> None:
        said = {p.name.removeprefix(prefix): values.pop(p.name) for p in shared}
        format = said.pop("format")
        options = {name: value for name, value in said.items() if value not in (None, [])}
        command(**values, reading=Reading(format, options))

    keywords = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in every]
    with_options.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    with_options.__annotations__ = {p.name: p.annotation for p in every}
    return with_options
