"""`epifed figures`: the paper's figures and tables from stored results."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from epifed.cli.kit import AsJson, caption, messages, refuse_file
from epifed.files import to_json

if TYPE_CHECKING:
    from epifed.report.country import Country
    from epifed.report.stored import Stored


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
            show_default="the simulated default again, if the results are of it",
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
    refuse_file(out)

    from epifed.errors import EpifedError
    from epifed.files import write_text
    from epifed.report.country import choose_place, read_country
    from epifed.report.paper_figures import plan
    from epifed.report.paper_tables import paper_tables
    from epifed.report.stored import read_stored

    stored = read_stored(results)
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
        for table in paper_tables(stored, lambda zeros: caption(settings, stored.runs, zeros))
        for path in table.write(out)
    ]
    sources = country.attribution if country else stored.data.attribution
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
    print(f"Wrote {drawn} figures (PDF, PNG) and {len(stored.periods) + 1} tables to {out}.")


def _simulated(stored: "Stored") -> "Country | None":
    """The country of results without data, which were simulated."""
    from epifed.report.country import simulated_country

    if not stored.data.source.startswith("simulated ("):
        return None
    messages.print("no --data: simulating the epidemic of these results again")
    return simulated_country(stored.settings.seed, stored.data.sha256)


def _same_data(stored: "Stored", country: "Country") -> bool:
    panels = [country.counties, country.communities]
    return any(panel.digest() == stored.data.sha256 for panel in panels if panel is not None)
