"""`epifed pretrain`: a weekly forecaster that is fitted on public data only."""

from pathlib import Path
from typing import Annotated

import typer

from epifed.cli.common import Reading, messages, reads_cases, refuse_unwritable
from epifed.errors import EpifedError


@reads_cases
def pretrain(
    data: Annotated[
        list[Path],
        typer.Option(help="Public weekly series of many regions. Repeat for several files."),
    ],
    licence: Annotated[
        str, typer.Option(help="Where the series come from and their licence: kept in the file.")
    ],
    leave_out: Annotated[
        list[int] | None,
        typer.Option(help="A season to leave out, by the year of its August. Repeat for several."),
    ] = None,
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("pretrained.json"),
    *,
    reading: Reading,
) -> None:
    """Fit a weekly forecaster on public data and write it as a small file.

    It is applied by each client to its own series, so it costs no privacy:
    'pretrained = "FILE"' in the settings. Counts and rates may be mixed: every region is scaled by
    its own past. Each file counts alike. Never give it data that is not public.
    """
    refuse_unwritable(out)

    from epifed.learners.pretrained import PublicSeries, fit_pretrained

    panels = [reading.read(path) for path in data]
    for path, panel in zip(data, panels, strict=True):
        if panel.step != "week":
            raise EpifedError(f"{path}: found counts of each day; expected counts of each week")
    largest = max(panel.counts.size for panel in panels)
    series = [
        PublicSeries(panel, largest / panel.counts.size, tuple(leave_out or ())) for panel in panels
    ]
    about = {
        "licence": licence,
        "left_out": list(leave_out or ()),
        "series": [
            {
                "file": path.name,
                "regions": len(panel.regions),
                "first": panel.start.isoformat(),
                "last": panel.end.isoformat(),
                "sha256": panel.digest(),
            }
            for path, panel in zip(data, panels, strict=True)
        ],
    }
    fit_pretrained(series, about).write(out)
    weeks = sum(panel.counts.size for panel in panels)
    messages.print(
        f"the forecaster is in {out}, from {weeks:,} weeks of regions; "
        "it was fitted on public data only and costs no privacy"
    )
