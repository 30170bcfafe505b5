"""The options that say how case data is to be read, the same for every command that reads it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from epifed.panel import CasePanel

Format = Annotated[
    str | None, typer.Option(help="rki, memilio, tidy or prepared; recognised if not given.")
]
DateColumn = Annotated[
    str | None,
    typer.Option(help="RKI: count by Refdatum (onset where known, default) or Meldedatum."),
]
ColumnDate = Annotated[
    str | None, typer.Option(help="Tidy: column of the day, YYYY-MM-DD (default: date).")
]
ColumnRegion = Annotated[
    str | None, typer.Option(help="Tidy: column of the region's id (default: region).")
]
ColumnCases = Annotated[
    str | None, typer.Option(help="Tidy: column of the daily count (default: cases).")
]
ColumnPopulation = Annotated[
    str | None,
    typer.Option(help="Tidy: column of the inhabitants (default: population, if there)."),
]
Level = Annotated[
    str | None, typer.Option(help="Prepared directory: county (default) or community.")
]


def read_source(
    path: Path,
    *,
    format: str | None,
    date_column: str | None,
    column_date: str | None,
    column_region: str | None,
    column_cases: str | None,
    column_population: str | None,
    level: str | None = None,
) -> "CasePanel":
    """The panel of the file that these options describe."""
    from epifed.sources import load_panel

    options = {
        "date_column": date_column,
        "date": column_date,
        "region": column_region,
        "cases": column_cases,
        "population": column_population,
        "level": level,
    }
    chosen = {key: value for key, value in options.items() if value is not None}
    return load_panel(path, format, **chosen)
