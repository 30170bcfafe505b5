"""`epifed figures`: the paper's figures and tables from stored results."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from epifed.cli.kit import AsJson, caption, messages, refuse_unwritable
from epifed.files import to_json

if TYPE_CHECKING:
    from epifed.evaluate.folder import GridFolder
    from epifed.report.country import Atlas


def figures(
    results: Annotated[
        Path, typer.Argument(help="Directory that 'epifed run' or 'epifed reproduce' wrote.")
    ],
    out: Annotated[Path, typer.Option(help="Directory for figures and tables.")],
    data: Annotated[
        Path | None,
        typer.Option(
            help="The prepared or simulated directory behind the results, for what shows the "
            "country: populations, maps, zeros, daily counts.",
            show_default="the simulated country, if the results are of one",
        ),
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(help="State to show in communities.", show_default="the county's"),
    ] = None,
    county: Annotated[
        str | None,
        typer.Option(
            help="County to mark: its id, name or a part of it.",
            show_default="the paper's, else a middling one",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Draw every figure of the paper as PDF and PNG, and its tables as LaTeX, Markdown and CSV.

    What cannot be drawn for want of data is left out, with the reason.
    """
    refuse_unwritable(out)

    from epifed.errors import EpifedError
    from epifed.evaluate.folder import read_grid
    from epifed.files import write_text
    from epifed.report.country import choose_place, read_country
    from epifed.report.paper_figures import plan
    from epifed.report.paper_tables import paper_tables

    stored = read_grid(results)
    country = read_country(data) if data else _simulated(stored)
    if country is None and (state or county):
        raise EpifedError("--state, --county: found no map to show them on; expected --data too")
    place = choose_place(country, state, county) if country else None
    if data and country and not _same_data(stored, country):
        messages.print(f"{data}: these are not the cases that {results} was computed from")
    planned = plan(stored, country, place)
    settings = stored.settings
    written = [
        path
        for table in paper_tables(stored, lambda zeros: caption(settings, stored.grid.runs, zeros))
        for path in table.write(out)
    ]
    sources = country.attribution if country else stored.folder.manifest.data.attribution
    if sources:
        written.append(out / "ATTRIBUTION.txt")
        write_text(written[-1], "\n".join(sources) + "\n")
    with messages.status("drawing"):
        for paths in planned.write(out):
            written += paths
    if as_json:
        names = sorted(path.name for path in written)
        print(to_json({"written": names, "left_out": dict(planned.left_out)}))
        return
    for name, reason in planned.left_out.items():
        messages.print(f"left out: {name} ({reason})")
    drawn = len(planned.drawings)
    print(f"Wrote {drawn} figures (PDF, PNG) and {len(stored.grid.periods) + 1} tables to {out}.")


def _simulated(stored: "GridFolder") -> "Atlas | None":
    """The country of results that were simulated."""
    from epifed.report.country import read_country, simulated_data

    with simulated_data(stored.folder, messages.print) as directory:
        return read_country(directory) if directory else None


def _same_data(stored: "GridFolder", country: "Atlas") -> bool:
    about = stored.folder.manifest.data
    panels = [country.counties, country.communities]
    return any(about.is_of(panel) for panel in panels if panel is not None)
