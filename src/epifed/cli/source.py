"""The options that say how case data is to be read, the same for every command that reads it."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from epifed.panel import CasePanel

FirstDay = Annotated[
    datetime | None, typer.Option("--from", formats=["%Y-%m-%d"], help="First day to use.")
]
LastDay = Annotated[
    datetime | None, typer.Option("--to", formats=["%Y-%m-%d"], help="Last day to use.")
]


@dataclass(frozen=True)
class Reading:
    """How case data is to be read: each field is an option."""

    format: Annotated[
        str | None,
        typer.Option(
            help="rki, memilio, tidy, prepared or what an installed package adds; recognised if "
            "not given."
        ),
    ] = None
    date_column: Annotated[
        str | None,
        typer.Option(help="RKI: count by Refdatum (onset where known, default) or Meldedatum."),
    ] = None
    column_date: Annotated[
        str | None, typer.Option(help="Tidy: column of the day, YYYY-MM-DD (default: date).")
    ] = None
    column_region: Annotated[
        str | None, typer.Option(help="Tidy: column of the region's id (default: region).")
    ] = None
    column_cases: Annotated[
        str | None, typer.Option(help="Tidy: column of the daily count (default: cases).")
    ] = None
    column_population: Annotated[
        str | None,
        typer.Option(help="Tidy: column of the inhabitants (default: population, if there)."),
    ] = None
    level: Annotated[
        str | None, typer.Option(help="Prepared directory: county (default) or community.")
    ] = None

    @property
    def options(self) -> dict[str, str]:
        """What was said, as `load_panel` takes it."""
        options = {
            "date_column": self.date_column,
            "date": self.column_date,
            "region": self.column_region,
            "cases": self.column_cases,
            "population": self.column_population,
            "level": self.level,
        }
        return {name: value for name, value in options.items() if value is not None}

    def read(self, path: Path) -> "CasePanel":
        """The panel of the file that these options describe."""
        from epifed.sources import load_panel

        return load_panel(path, self.format, **self.options)


def reads_cases(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `Reading`, which it gets as its argument `reading`."""
    shared = inspect.signature(Reading).parameters
    own = inspect.signature(command).parameters
    every = [p for name, p in own.items() if name != "reading"] + list(shared.values())

    @wraps(command)
    def with_options(**values: Any) -> None:
        reading = Reading(**{name: values.pop(name) for name in shared})
        command(**values, reading=reading)

    keywords = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in every]
    with_options.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    with_options.__annotations__ = {p.name: p.annotation for p in every}
    return with_options
